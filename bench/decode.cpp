// Decodes the images of a folder, again and again on one core: libjpeg-turbo's own decoding of the whole
// image, and what provider "image" does with it (decoding, scaling, a random crop). Prints a line for each;
// bench/decode runs it.
#include <turbojpeg.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "convnet/base/median.h"
#include "convnet/base/philox.h"
#include "providers/decode.h"
#include "providers/resize.h"

namespace {

using namespace convnet;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Pixels of the last image are left in `pixels`.
void decode_alone(const std::string& bytes, std::vector<unsigned char>& pixels) {
  static const std::unique_ptr<void, int (*)(tjhandle)> decoder(tjInitDecompress(), tjDestroy);
  int width = 0, height = 0, subsampling = 0, colors = 0;
  const auto* const data = reinterpret_cast<const unsigned char*>(bytes.data());
  const auto size = static_cast<unsigned long>(bytes.size());
  if (tjDecompressHeader3(decoder.get(), data, size, &width, &height, &subsampling, &colors) != 0)
    throw InputError(tjGetErrorStr2(decoder.get()));
  pixels.resize(std::size_t{3} * static_cast<std::size_t>(width) * static_cast<std::size_t>(height));
  if (tjDecompress2(decoder.get(), data, size, pixels.data(), width, 0, height, TJPF_RGB, 0) != 0)
    throw InputError(tjGetErrorStr2(decoder.get()));
}

void run(const std::string& folder, int image_size, int inner_size, int rounds) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".jpg" || entry.path().extension() == ".jpeg")
      files.push_back(read_whole_file(entry.path().string()));
  if (files.empty()) throw InputError(folder + ": there is no .jpg or .jpeg in it");
  std::vector<unsigned char> pixels;
  std::uint32_t image = 0;
  const auto alone = [&] {
    for (const std::string& bytes : files) decode_alone(bytes, pixels);
  };
  const auto ours = [&] {
    for (const std::string& bytes : files) {
      const DecodedImage decoded = decode_image(bytes, "image", image_size);
      const ImageSize size = scaled_to_shorter_side({decoded.height, decoded.width}, image_size);
      const Philox4x32 random = philox(1, ++image, 0, 0, 0);
      const auto place = [&](std::uint32_t word, int side) {
        return static_cast<int>(word % static_cast<std::uint32_t>(side - inner_size + 1));
      };
      resize_image(
          decoded, size,
          {place(random.value[0], size.height), place(random.value[1], size.width), inner_size, inner_size});
    }
  };
  std::vector<double> alone_times, our_times, ratios;
  for (int round = 0; round <= rounds; ++round) {
    const double a = seconds_of(alone), b = seconds_of(ours);
    if (round == 0) continue;  // the first touches memory
    alone_times.push_back(a);
    our_times.push_back(b);
    ratios.push_back(a / b);
  }
  const auto count = static_cast<double>(files.size());
  std::printf("| %zu | %d | %d | %.0f | %.0f | %.2f |\n", files.size(), image_size, inner_size,
              count / median(alone_times), count / median(our_times), median(ratios));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: decode_bench FOLDER IMAGE-SIZE INNER-SIZE ROUNDS\n");
    return 2;
  }
  try {
    run(argv[1], std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "decode_bench: %s\n", error.what());
    return 2;
  }
  return 0;
}
