// The orders of training images.
#include "providers/shuffle.h"

#include <map>
#include <optional>
#include <set>
#include <string>

#include "convnet/base/error.h"
#include "providers/registry.h"
#include "tests/catch.h"

namespace convnet {
namespace {

/// Returns the images of an epoch in their order, by number in the stored order.
std::vector<std::int64_t> drawn(EpochOrder& order, int epoch, const std::vector<std::int64_t>& batches) {
  order.prepare(epoch);
  std::vector<std::int64_t> first = {0};
  for (const std::int64_t images : batches) first.push_back(first.back() + images);
  std::vector<std::int64_t> images;
  for (std::size_t b = 0; b < batches.size(); ++b)
    for (std::int64_t place = 0; place < batches[b]; ++place) {
      const EpochOrder::Stored stored = order.at(b, place);
      images.push_back(first[stored.batch] + stored.image);
    }
  return images;
}

TEST_CASE("a shuffled epoch has the images of all batches, each with its label", "[shuffle]") {
  const BatchRange range{1, 3};
  const auto images_of = [&](const Provider& provider, int epoch) {
    std::multiset<std::string> images;
    for (int batch = range.first; batch <= range.last; ++batch) {
      const DataBatch read = provider.read({batch, epoch, 0, provider.images_in(batch)}, {});
      for (std::int64_t i = 0; i < read.images; ++i) {
        std::string image;
        for (std::size_t m = 0; m < read.matrices.size(); ++m) {
          const auto bytes = static_cast<std::size_t>(provider.matrices()[m].image_bytes());
          image.append(
              reinterpret_cast<const char*>(read.matrices[m].data()) + static_cast<std::size_t>(i) * bytes,
              bytes);
        }
        images.insert(image);
      }
    }
    return images;
  };
  const auto plain = make_provider("dummy-1x3x3-7", "", 5, {}, std::nullopt);
  const auto shuffled = make_provider("dummy-1x3x3-7", "", 5, {}, range);
  const std::multiset<std::string> stored = images_of(*plain, 1);
  REQUIRE(std::set<std::string>(stored.begin(), stored.end()).size() > stored.size() / 2);
  for (const int epoch : {1, 2}) CHECK(images_of(*shuffled, epoch) == stored);
}

TEST_CASE("an even order draws all classes as often, and every image in time", "[shuffle]") {
  // 20 images: 15 of class 0, 3 of class 5, one of class 2, and one without a class.
  std::vector<std::int32_t> classes(20, 0);
  classes[3] = classes[11] = classes[19] = 5;
  classes[7] = 2;
  classes[8] = -1;
  const std::vector<std::int64_t> batches = {12, 8};
  EpochOrder order(batches, classes, 7);
  std::set<std::int64_t> seen;
  std::map<std::int32_t, int> total;
  for (int epoch = 1; epoch <= 30; ++epoch) {
    const std::vector<std::int64_t> images = drawn(order, epoch, batches);
    std::map<std::int32_t, int> counts;
    std::map<std::int64_t, int> times;
    for (const std::int64_t image : images) {
      const std::int32_t of_class = classes[static_cast<std::size_t>(image)];
      ++counts[of_class];
      ++total[of_class];
      ++times[image];
      seen.insert(image);
    }
    CHECK(counts.size() == 3);
    for (const auto& [number, count] : counts) CHECK((count == 6 || count == 7));
    for (const auto& [image, count] : times) {
      if (classes[static_cast<std::size_t>(image)] == 0) CHECK(count == 1);
      if (classes[static_cast<std::size_t>(image)] == 5) CHECK((count == 2 || count == 3));
    }
  }
  CHECK(seen.size() == 19);
  CHECK_FALSE(seen.contains(8));
  // No class has the odd image of every epoch.
  for (const auto& [number, count] : total) CHECK((count > 180 && count < 210));

  EpochOrder same(batches, classes, 7), other(batches, classes, 8);
  CHECK(drawn(same, 4, batches) == drawn(order, 4, batches));
  CHECK(drawn(same, 5, batches) != drawn(order, 4, batches));
  CHECK(drawn(other, 4, batches) != drawn(order, 4, batches));
  CHECK(message_of<InputError>([&] {
          EpochOrder({2}, {-1, -1}, 7);
        }) == "--balance 1: no image of the training range has a class");
}

TEST_CASE("an even order needs labels", "[shuffle]") {
  ImageOptions options;
  options.balance = true;
  CHECK(message_of<InputError>([&] {
          make_provider("dummy-8", "", 1, options, BatchRange{1, 2});
        }) == "--balance 1 draws classes evenly, and the data set has none (matrix 1 holds no labels)");
  const auto provider = make_provider("dummy-labeled-8", "", 1, options, BatchRange{1, 2});
  std::map<std::int32_t, int> counts;
  const DataBatch batch = provider->read({1, 1}, {});
  for (std::int64_t i = 0; i < batch.images; ++i)
    ++counts[reinterpret_cast<const std::int32_t*>(batch.matrices[1].data())[i]];
  CHECK(counts.size() == 10);
  CHECK(batch.images == 1000);
}

}  // namespace
}  // namespace convnet
