// The reader of device models on any bytes.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>

#include "convnet/base/error.h"
#include "convnet/plan/device_model.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convnet;
  const std::string path = "/tmp/convnet-model-fuzz-" + std::to_string(getpid());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  try {
    read_device_model(path);
  } catch (const InputError&) {
    // Refusing bad input is right.
  }
  unlink(path.c_str());
  return 0;
}
