// The IDX reader on any bytes, plain or gzipped.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>

#include "convnet/base/error.h"
#include "providers/idx.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convnet;
  const std::string path = "/tmp/convnet-idx-fuzz-" + std::to_string(getpid());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  for (int dimensions : {1, 3}) {
    try {
      read_idx_records(path, read_idx_header(path, dimensions));
    } catch (const InputError&) {
      // Refusing bad input is right.
    }
  }
  unlink(path.c_str());
  return 0;
}
