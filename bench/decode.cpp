// Reads the images of a folder, again and again on one core: libjpeg-turbo's own decoding of whole images,
// and what provider "image" makes of them for training: random crops of scaled images, and random resized
// crops. bench/decode runs it.
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
#include "providers/image.h"

namespace {

using namespace convnet;

/// Returns the images per second of some work that returns how many it did.
double speed_of(const std::function<double()>& work) {
  const auto start = std::chrono::steady_clock::now();
  const double images = work();
  return images / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
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
  const auto alone = [&] {
    for (const std::string& bytes : files) decode_alone(bytes, pixels);
    return static_cast<double>(files.size());
  };
  ImageOptions options;
  options.image_size = image_size;
  options.inner_size = inner_size;
  options.decode_threads = 1;
  const auto reading = [&](double random_resized_crop) {
    options.random_resized_crop = random_resized_crop;
    std::shared_ptr<Provider> provider = make_image_provider(folder, options, 1);
    return [provider, epoch = 0]() mutable {
      const int first = provider->split() ? provider->split()->train.first : 0;
      return static_cast<double>(provider->read({.batch = first, .epoch = ++epoch}, {}).images);
    };
  };
  std::vector<std::function<double()>> works = {alone, reading(0), reading(0.08)};
  std::vector<std::vector<double>> speeds(works.size()), ratios(works.size());
  for (int round = 0; round <= rounds; ++round) {
    for (std::size_t w = 0; w < works.size(); ++w) {
      const double speed = speed_of(works[w]);
      if (round == 0) continue;  // the first touches memory
      speeds[w].push_back(speed);
      ratios[w].push_back(speed / speeds[0].back());
    }
  }
  std::printf("| %zu | %d | %d | %.0f | %.0f | %.2f | %.0f | %.2f |\n", files.size(), image_size, inner_size,
              median(speeds[0]), median(speeds[1]), median(ratios[1]), median(speeds[2]), median(ratios[2]));
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
