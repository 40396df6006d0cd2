// safetensors files: 8 bytes little-endian header length, a JSON header, the tensors' bytes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "convnet/base/tensor.h"

namespace convnet {

/// A float32 tensor in its canonical row-major layout.
struct NamedTensor {
  Dims dims;
  std::vector<float> values;
};

/// The contents of a file. Maps keep names in order, so equal contents give equal bytes.
struct TensorFile {
  std::map<std::string, NamedTensor> tensors;
  std::map<std::string, std::string> metadata;
};

/// Message about a pickle in place of a checkpoint.
constexpr const char* kIsPickle =
    "is a pickle, as cuda-convnet2's checkpoints are; scripts/weights-from-cuda-convnet writes its weights "
    "for --init-from (docs/coming-from.md)";

/// Writes atomically and durably (OutputFile), with checksums of the tensors and of the metadata as two more
/// metadata entries. Names and metadata must be UTF-8. Throws RunError.
void write_safetensors(const std::string& path, const TensorFile& contents);

/// Whether to compare checksums. A file without any (from another program or an older version) is read
/// either way.
enum class Checksums { compare, ignore };

/// Reads a file and checks all of it: the header's JSON, types (F32 only), shapes against offsets, offsets
/// that overlap, leave holes or reach beyond the file, names given twice, and checksums. The result does not
/// hold the checksums. Throws InputError naming the file and what is wrong. The data is held in memory once,
/// and memory is bounded by the file's size.
TensorFile read_safetensors(const std::string& path);

/// Reads a file of another program, as read_safetensors() does: tensors of type F64, F16 and BF16 become
/// float32, and those of types that are no floating-point numbers are left out.
TensorFile read_any_safetensors(const std::string& path);

/// Which types of tensors are allowed: F32 only, or all as in read_any_safetensors().
enum class TensorTypes { f32, any };

/// Reads a file that is in memory as read_safetensors() or read_any_safetensors() does; error messages call
/// it `name`.
TensorFile parse_safetensors(const std::string& name, const std::string& bytes,
                             Checksums checksums = Checksums::compare, TensorTypes types = TensorTypes::f32);

}  // namespace convnet
