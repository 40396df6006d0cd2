// The checkpoint reader on any bytes: the tensors, and where they are good, what the metadata says. Checksums
// are compared, too, but what they do not fit is read all the same: no mutation would get past them.
#include <cstddef>
#include <cstdint>
#include <string>

#include "convnet/base/error.h"
#include "convnet/checkpoint/checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convnet;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  for (const Checksums checksums : {Checksums::compare, Checksums::ignore}) {
    try {
      parse_checkpoint("fuzz", parse_safetensors("fuzz", bytes, checksums));
    } catch (const InputError&) {
      // Refusing bad input is right.
    }
  }
  return 0;
}
