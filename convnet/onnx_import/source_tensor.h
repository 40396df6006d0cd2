// Reads the tensors of ONNX files.
#pragma once

#include <protozero/pbf_reader.hpp>
#include <string>
#include <utility>

#include "convnet/onnx_import/source_model.h"

namespace convnet {

/// A tensor with its name.
struct NamedStoredTensor {
  std::string name;
  StoredTensor tensor;
};

/// Reads the entry of a map of texts.
std::pair<std::string, std::string> read_texts(protozero::pbf_reader message);

/// Reads a TensorProto. Its numbers may be in another file of `folder`, or if that is "", not. Throws
/// InputError if the message contradicts itself, protozero::exception if it is damaged.
NamedStoredTensor read_tensor(protozero::pbf_reader message, const std::string& folder);

}  // namespace convnet
