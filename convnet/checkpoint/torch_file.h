// Reads the weights in files of torch.save (.pth, .pt): tensors only, and nothing that a file names is run.
#pragma once

#include <string>
#include <string_view>

#include "convnet/base/file.h"
#include "convnet/checkpoint/safetensors.h"

namespace convnet {

/// The tensors of a state_dict.
struct TorchWeights {
  TensorFile tensors;  ///< as float32; those that are no floating-point numbers are left out
  std::string place;   ///< keys of the dicts around the state_dict, "model_ema" or "state.model"; "" if none
};

/// Returns whether a file that begins with these bytes is to be read by read_torch_file(): a zip archive, or
/// the older form of torch.save.
bool is_torch_file(std::string_view first);

/// Reads a file of torch.save, which is a state_dict or has one in a dict: under a usual key (averaged
/// weights before others), or else in its only dict with tensors. A whole model stands for its state_dict.
/// Other objects are left out. Throws InputError, with what can be done, for files that want functions called
/// other than those that make tensors and plain data, that have no state_dict, or that are damaged; RunError
/// for I/O errors. Memory is bounded by a multiple of the file's size.
TorchWeights read_torch_file(const InputFile& file);

}  // namespace convnet
