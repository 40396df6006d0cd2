// The checkpoint reader on any bytes: the tensors, and where they are good, what the metadata says.
#include <cstddef>
#include <cstdint>
#include <string>

#include "convnet/train/checkpoint.h"
#include "kernels/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convnet;
  try {
    parse_checkpoint("fuzz",
                     parse_safetensors("fuzz", std::string(reinterpret_cast<const char*>(data), size)));
  } catch (const InputError&) {
    // Refusing bad input is right.
  }
  return 0;
}
