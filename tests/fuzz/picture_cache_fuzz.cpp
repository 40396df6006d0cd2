// The cache of decoded pictures with any index: entries of 60 bytes get right checksums, so that what they
// say is looked at.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "convnet/base/checksum.h"
#include "convnet/base/error.h"
#include "providers/picture_cache.h"

namespace {

using namespace convnet;

ImageWindow whole(ImageSize size) { return {0, 0, size.height, size.width}; }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr int kSide = 4;
  constexpr std::size_t kContent = 60;
  const std::string folder = "/tmp/convnet-picture-cache-fuzz-" + std::to_string(getpid());
  const PictureOrigin origin{"/a", 1, 2};
  {
    PictureCache cache(folder, kSide);
    cache.add(origin, {kSide, kSide, std::vector<std::uint8_t>(3 * kSide * kSide, 7)});
  }
  {
    std::ofstream index(folder + "/pictures-4.index", std::ios::binary | std::ios::app);
    for (std::size_t at = 0; at < size; at += kContent) {
      std::string record(reinterpret_cast<const char*>(data) + at, std::min(kContent, size - at));
      record.resize(kContent);
      Crc32 sum;
      sum.add(record.data(), record.size());
      for (int i = 0; i < 4; ++i) record += static_cast<char>(sum.value() >> (8 * i) & 0xff);
      index << record;
    }
  }
  try {
    PictureCache cache(folder, kSide);
    cache.read(origin, whole);
    cache.add({"/b", 1, 2}, {1, 1, {1, 2, 3}});
  } catch (const RunError&) {
    // An offset beyond what the file system allows is an error.
  }
  std::filesystem::remove_all(folder);
  return 0;
}
