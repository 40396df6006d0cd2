// The tar reader on any bytes; tars among the members are read in their turn.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>

#include "convnet/base/error.h"
#include "providers/tar.h"

namespace {

using namespace convnet;

void look_into(const InputFile& file, FileRegion region, int depth) {
  try {
    for (const TarMember& member : index_tar(file, region)) {
      file.read(member.at.offset, member.at.size);
      if (depth > 0) look_into(file, member.at, depth - 1);
    }
  } catch (const InputError&) {
    // Refusing bad input is right.
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string path = "/tmp/convnet-tar-fuzz-" + std::to_string(getpid());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  const InputFile file(path);
  look_into(file, {0, file.size()}, 1);
  unlink(path.c_str());
  return 0;
}
