// .npy files: headers of any bytes are read or refused.
#include <cstdint>
#include <string>

#include "convnet/base/error.h"
#include "providers/npy_array.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const convnet::InputFile file("fuzz.npy", std::string(reinterpret_cast<const char*>(data), size));
    convnet::read_npy_header(file);
  } catch (const convnet::InputError&) {  // what is expected of most inputs
  }
  return 0;
}
