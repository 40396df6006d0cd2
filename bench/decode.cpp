// Reads the images of a folder, again and again: libjpeg-turbo's own decoding of whole images, and what
// provider "image" makes of them for training: random crops of scaled images, and random resized crops, of
// photos and of decoded pictures in a cache. bench/decode runs it.
#include <time.h>
#include <turbojpeg.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "convnet/base/clock.h"
#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "convnet/base/median.h"
#include "providers/image.h"
#include "providers/prefetch.h"
#include "tests/temp_folder.h"

namespace {

using namespace convnet;

/// Returns the seconds that all threads of this process have computed. Other programs on the machine change
/// them less than the time on the wall.
double cpu_seconds() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Images per second and core, and per second on the wall.
struct Speed {
  double core = 0, wall = 0;
};
/// Returns the speed of some work that returns how many images it did.
Speed speed_of(const std::function<double()>& work) {
  const double start = cpu_seconds();
  const auto begin = Clock::now();
  const double images = work();
  return {images / (cpu_seconds() - start), images / seconds_since(begin)};
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

void run(const std::string& folder, int image_size, int inner_size, int threads, int rounds) {
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
  options.decode_threads = threads;
  const TempFolder cache;
  const auto reading = [&](double random_resized_crop, bool cached) {
    options.random_resized_crop = random_resized_crop;
    options.cache = cached ? cache.path() : "";
    const std::shared_ptr<Provider> provider = make_image_provider(folder, options, 1);
    const auto none = std::make_shared<const PixelStatistics>();
    return [provider, none, epoch = 0]() mutable {
      // As in training, minibatches are taken while the next ones are read, and epochs follow each other
      // without a break.
      constexpr std::size_t kAhead = 6;
      constexpr std::int64_t kMinibatch = 64;
      constexpr int kEpochs = 4;
      Prefetcher queue([&](const LoadRequest& request) { return provider->begin(request, *none); }, kAhead);
      LoadRequest request{.batch = provider->split() ? provider->split()->train.first : 0,
                          .count = kMinibatch};
      double images = 0;
      for (const int end = epoch + kEpochs; epoch < end;) {
        request.epoch = ++epoch;
        request.first = 0;
        for (bool last = false; !last; request.first += kMinibatch) {
          const std::shared_ptr<const DataBatch> piece = queue.take(request);
          if (request.first == 0 && epoch < end)
            queue.start({.batch = request.batch, .epoch = epoch + 1, .count = kMinibatch});
          images += static_cast<double>(piece->images);
          last = piece->last;
        }
      }
      return images;
    };
  };
  std::vector<std::function<double()>> works = {alone, reading(0, false), reading(0.08, false),
                                                reading(0, true), reading(0.08, true)};
  std::vector<std::vector<double>> speeds(works.size()), ratios(works.size()), on_wall(works.size());
  for (int round = 0; round <= rounds; ++round) {
    for (std::size_t w = 0; w < works.size(); ++w) {
      const Speed speed = speed_of(works[w]);
      if (round == 0) continue;  // the first touches memory
      speeds[w].push_back(speed.core);
      ratios[w].push_back(speed.core / speeds[0].back());
      on_wall[w].push_back(speed.wall);
    }
  }
  std::printf("| %zu | %d | %d | %.0f |", files.size(), image_size, inner_size, median(speeds[0]));
  for (std::size_t w = 1; w < works.size(); ++w)
    std::printf(" %.0f | %.2f | %.0f |", median(speeds[w]), median(ratios[w]), median(on_wall[w]));
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: decode_bench FOLDER IMAGE-SIZE INNER-SIZE THREADS ROUNDS\n");
    return 2;
  }
  try {
    run(argv[1], std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]), std::atoi(argv[5]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "decode_bench: %s\n", error.what());
    return 2;
  }
  return 0;
}
