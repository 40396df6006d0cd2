// The checkpoint reader on any bytes.
#include <cstddef>
#include <cstdint>
#include <string>

#include "convnet/train/safetensors.h"
#include "kernels/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    convnet::parse_safetensors("fuzz", std::string(reinterpret_cast<const char*>(data), size));
  } catch (const convnet::InputError&) {
    // Refusing bad input is right.
  }
  return 0;
}
