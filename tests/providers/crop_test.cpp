// Crops, mirror images and deviations.
#include "providers/crop.h"

#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "convnet/base/error.h"
#include "providers/registry.h"
#include "providers/shuffle.h"
#include "tests/catch.h"
#include "tests/temp_folder.h"

using namespace convnet;

namespace {

/// Batches of 40 images of 2x6x6 whose pixels say where they are: 36 c + 6 y + x + 1, none of which is 0.
/// Image i of f32 data has i / 64 added, and batch b has `batch_step` * b added.
class Grid final : public StoredProvider {
 public:
  static constexpr std::int64_t images = 40;
  explicit Grid(DataType type)
      : matrices_({{"data", {2, 6, 6}, type, 0}, {"labels", {1}, DataType::s32, 10}}) {}
  const std::vector<MatrixInfo>& matrices() const override { return matrices_; }
  void check_range(const BatchRange&, const std::string&) const override {}
  std::int64_t images_in(int) const override { return images; }
  bool has_mean() const override { return true; }
  std::vector<float> mean_image(const BatchRange&) const override {
    std::vector<float> mean;
    for (int p = 1; p <= 72; ++p) mean.push_back(static_cast<float>(p));
    return mean;
  }
  std::int64_t most_kept() const override { return kept; }
  DataBatch load(int number) const override {
    ++loads;
    DataBatch batch{images, {{}, {}}};
    for (int i = 0; i < images * 4; ++i) batch.matrices[1].push_back(static_cast<std::byte>(i));
    for (int i = 0; i < images; ++i)
      for (int p = 1; p <= 72; ++p) {
        const int pixel = p + batch_step * number;
        const auto value = static_cast<float>(pixel) + static_cast<float>(i) / 64;
        const auto* bytes = reinterpret_cast<const std::byte*>(&value);
        if (matrices_[0].type == DataType::u8)
          batch.matrices[0].push_back(static_cast<std::byte>(pixel));
        else
          batch.matrices[0].insert(batch.matrices[0].end(), bytes, bytes + sizeof value);
      }
    return batch;
  }

  std::int64_t kept = 1 << 20;
  int batch_step = 0;
  mutable int loads = 0;

 private:
  std::vector<MatrixInfo> matrices_;
};

std::unique_ptr<StoredProvider> cropped(const ImageOptions& options, DataType type = DataType::u8,
                                        std::uint64_t seed = 1) {
  return make_cropped_provider(std::make_unique<Grid>(type), options, seed);
}

/// Returns the crops of what provider.read() returns.
DataBatch seen(const Provider& provider, const LoadRequest& request, const PixelStatistics& statistics = {}) {
  DataBatch batch = provider.read(request, statistics);
  const MatrixInfo& info = provider.matrices()[0];
  REQUIRE(batch.matrices[0].size() == static_cast<std::size_t>(batch.images * info.image_bytes()));
  std::vector<std::byte> out;
  for (std::int64_t i = 0; i < batch.images; ++i)
    for (const float value : seen_pixels(batch, info, i)) {
      const auto* bytes = reinterpret_cast<const std::byte*>(&value);
      if (info.type == DataType::u8)
        out.push_back(static_cast<std::byte>(value));
      else
        out.insert(out.end(), bytes, bytes + sizeof value);
    }
  batch.matrices[0] = std::move(out);
  return batch;
}

std::vector<float> floats(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// Returns the position of a crop of side `inner` in the grid; fails unless every pixel of both channels is
/// right.
struct Place {
  int y, x;
  bool mirror;
  auto operator<=>(const Place&) const = default;
};
Place place_of(const std::byte* image, int inner) {
  const auto pixel = [&](int c, int y, int x) {
    return std::to_integer<int>(image[(c * inner + y) * inner + x]);
  };
  // Any pixel that is not of the border tells the place, given the direction.
  for (int m = 0; m < 2; ++m)
    for (int y = 0; y < inner; ++y)
      for (int x = 0; x < inner; ++x) {
        if (pixel(0, y, x) == 0) continue;
        const int at = pixel(0, y, x) - 1;
        const Place place{at / 6 - y, at % 6 - (m == 1 ? inner - 1 - x : x), m == 1};
        bool right = true;
        for (int c = 0; c < 2; ++c)
          for (int v = 0; v < inner; ++v)
            for (int u = 0; u < inner; ++u) {
              const int row = place.y + v, column = place.x + (m == 1 ? inner - 1 - u : u);
              const bool inside = row >= 0 && row < 6 && column >= 0 && column < 6;
              right = right && pixel(c, v, u) == (inside ? 36 * c + 6 * row + column + 1 : 0);
            }
        if (right) return place;
        y = inner;  // one try for each direction
        break;
      }
  FAIL("no crop of the image");
  return {};
}

std::map<Place, int> places(const ImageOptions& options, int inner, int epochs) {
  const auto provider = cropped(options);
  std::map<Place, int> counts;
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    const DataBatch batch = seen(*provider, {3, epoch});
    REQUIRE(batch.images == Grid::images);
    REQUIRE(batch.matrices[0].size() == static_cast<std::size_t>(Grid::images * 2 * inner * inner));
    for (std::int64_t i = 0; i < batch.images; ++i)
      ++counts[place_of(batch.matrices[0].data() + i * 2 * inner * inner, inner)];
  }
  return counts;
}

void check_uniform(const std::map<Place, int>& counts, int first, int last, int total) {
  const double expected = total / (2.0 * (last - first + 1) * (last - first + 1));
  CHECK(counts.size() == static_cast<std::size_t>(2 * (last - first + 1) * (last - first + 1)));
  for (const auto& [place, count] : counts) {
    CAPTURE(place.y, place.x, place.mirror, count, expected);
    CHECK(std::min(place.y, place.x) >= first);
    CHECK(std::max(place.y, place.x) <= last);
    CHECK(std::abs(count - expected) < 5 * std::sqrt(expected));
  }
}

}  // namespace

TEST_CASE("training crops lie anywhere and are mirrored half the time", "[crop]") {
  // Origins 0 to 2·floor((6 − inner) / 2): with 3 of 6 pixels left over, the last origin is never drawn.
  check_uniform(places({4, 0, false}, 4, 100), 0, 2, 4000);
  check_uniform(places({3, 0, false}, 3, 100), 0, 2, 4000);
  check_uniform(places({6, 0, false}, 6, 10), 0, 0, 400);
  // Zeros around: origins −pad to pad.
  check_uniform(places({0, 2, false}, 6, 200), -2, 2, 8000);
  check_uniform(places({4, 1, false}, 4, 200), -1, 3, 8000);
}

TEST_CASE("images are mirrored as --flip says", "[crop]") {
  // Without crops, training has the whole image, mirrored half the time.
  ImageOptions options;
  options.flip = Flip::on;
  check_uniform(places(options, 6, 10), 0, 0, 400);
  CHECK(cropped(options)->matrices()[0].dims == Dims{2, 6, 6});
  CHECK(seen(*cropped(options), {1, 0}).matrices[0] == Grid(DataType::u8).load(1).matrices[0]);
  // With crops, it may be turned off; the places stay.
  options = {4, 1, false};
  const auto mirrored = places(options, 4, 20);
  options.flip = Flip::on;
  CHECK(places(options, 4, 20) == mirrored);
  options.flip = Flip::off;
  for (const auto& [place, count] : places(options, 4, 20)) {
    CHECK_FALSE(place.mirror);
    const auto as_mirrored = [&, y = place.y, x = place.x](bool mirror) {
      const auto found = mirrored.find({y, x, mirror});
      return found == mirrored.end() ? 0 : found->second;
    };
    CHECK(count == as_mirrored(false) + as_mirrored(true));
  }
}

TEST_CASE("tests take the centre", "[crop]") {
  for (const int pad : {0, 2}) {
    const auto provider = cropped({4, pad, false});
    const DataBatch batch = seen(*provider, {3, 0});
    for (std::int64_t i = 0; i < batch.images; ++i)
      CHECK(place_of(batch.matrices[0].data() + i * 32, 4) == Place{1, 1, false});
  }
  CHECK(place_of(seen(*cropped({3, 0, false}), {3, 0}).matrices[0].data(), 3) == Place{1, 1, false});
  CHECK(seen(*cropped({0, 2, false}), {1, 0}).matrices[0] == Grid(DataType::u8).load(1).matrices[0]);
}

TEST_CASE("multiview tests see nine squares of each image", "[crop]") {
  const auto provider = cropped({3, 2, false, true});
  CHECK(provider->images_in(3) == Grid::images);
  const DataBatch batch = seen(*provider, {3, 0});
  REQUIRE(batch.images == 9 * Grid::images);
  REQUIRE(batch.matrices[0].size() == static_cast<std::size_t>(9 * Grid::images * 18));
  for (std::int64_t i = 0; i < batch.images; ++i) {
    const auto view = static_cast<int>(i % 9);
    CHECK(place_of(batch.matrices[0].data() + i * 18, 3) == Place{view / 3, view % 3, false});
  }
  const std::vector<float> labels = floats(batch.matrices[1]);
  const std::vector<float> stored = floats(provider->load(3).matrices[1]);
  REQUIRE(labels.size() == 9 * stored.size());
  bool equal = true;
  for (std::size_t i = 0; i < labels.size(); ++i)
    equal = equal && std::memcmp(&labels[i], &stored[i / 9], 4) == 0;
  CHECK(equal);
  // Training goes on with one crop of each.
  CHECK(seen(*provider, {3, 1}).matrices == seen(*cropped({3, 2, false}), {3, 1}).matrices);
  CHECK(message_of<InputError>([] {
          make_provider("dummy-3x8x8-10", "", 0, {0, 0, false, true});
        }) == "--multiview-test needs --inner-size, the side of the views");
}

TEST_CASE("a crop depends on seed, epoch, batch and place alone", "[crop]") {
  const ImageOptions options{4, 1, false};
  const auto provider = cropped(options);
  const auto images = [](const Provider& p, const LoadRequest& r) { return seen(p, r).matrices[0]; };
  const std::vector<std::byte> first = images(*provider, {3, 2});
  for (const LoadRequest& other :
       {LoadRequest{3, 1}, LoadRequest{2, 3}, LoadRequest{3, 3}, LoadRequest{2, 2}})
    CHECK(images(*provider, other) != first);
  CHECK(images(*provider, {3, 2}) == first);
  CHECK(images(*cropped(options), {3, 2}) == first);
  CHECK(images(*cropped(options, DataType::u8, 2), {3, 2}) != first);
  // Labels stay.
  CHECK(seen(*provider, {3, 2}).matrices[1] == provider->load(3).matrices[1]);
}

TEST_CASE("shuffled images are cropped as they come", "[crop]") {
  const auto provider = make_shuffled_provider(cropped({4, 0, false}, DataType::f32), {1, 2}, 7);
  const std::vector<float> images = floats(seen(*provider, {2, 1}).matrices[0]);
  REQUIRE(images.size() == static_cast<std::size_t>(Grid::images * 32));
  std::set<float> which;
  for (std::size_t i = 0; i < images.size(); i += 32) which.insert(images[i] - std::floor(images[i]));
  CHECK(which.size() > 20);
}

TEST_CASE("pieces are those of the whole batch", "[crop]") {
  const ImageOptions options{4, 1, true};
  const PixelStatistics statistics{{}, {2, 4}, {}};
  for (const bool shuffle : {false, true})
    for (const int epoch : {0, 2}) {
      std::unique_ptr<Provider> provider = cropped(options);
      if (shuffle) provider = make_shuffled_provider(cropped(options), {1, 4}, 7);
      const DataBatch whole = provider->read({3, epoch}, statistics);
      CHECK(whole.images == Grid::images);
      CHECK(whole.first == 0);
      CHECK(whole.last);
      for (const std::int64_t count : {1, 7, 20, 39, 40, 41}) {
        CAPTURE(shuffle, epoch, count);
        std::vector<std::vector<std::byte>> matrices(2);
        std::int64_t first = 0;
        for (bool last = false; !last; first += count) {
          const DataBatch piece = provider->read({3, epoch, first, count}, statistics);
          CHECK(piece.first == first);
          REQUIRE(piece.images == std::min(count, Grid::images - first));
          for (std::size_t m = 0; m < 2; ++m)
            matrices[m].insert(matrices[m].end(), piece.matrices[m].begin(), piece.matrices[m].end());
          last = piece.last;
        }
        CHECK(first < Grid::images + count);
        CHECK(matrices == whole.matrices);
      }
      const DataBatch beyond = provider->read({3, epoch, 41, 2}, statistics);
      CHECK(beyond.images == 0);
      CHECK(beyond.last);
    }
}

TEST_CASE("batches that are read again are kept as far as they fit", "[crop]") {
  Grid grid(DataType::u8);
  const auto loads = [&](int batch) {
    const int before = grid.loads;
    for (const std::int64_t first : {0, 10, 20}) CHECK(grid.read({batch, 1, first, 10}, {}).images == 10);
    return grid.loads - before;
  };
  grid.kept = 2 * Grid::images * (72 + 4);  // two batches
  CHECK(loads(1) == 1);
  CHECK(loads(2) == 1);
  CHECK(loads(3) == 1);
  CHECK(loads(4) == 1);
  CHECK(loads(1) == 0);
  CHECK(loads(2) == 0);
  CHECK(loads(4) == 0);  // the last one that was loaded
  CHECK(loads(3) == 1);
  CHECK(loads(4) == 1);
  CHECK(loads(1) == 0);
}

TEST_CASE("the mean image is cut like a test's images", "[crop]") {
  const auto provider = cropped({4, 0, false});
  CHECK(provider->matrices()[0].dims == Dims{2, 4, 4});
  CHECK(provider->matrices()[0].uncropped == Dims{2, 6, 6});
  CHECK(provider->matrices()[0].type == DataType::u8);
  CHECK(provider->matrices()[1].classes == 10);
  const PixelStatistics statistics = provider->statistics({1, 1});
  CHECK(statistics.deviations.empty());
  const DataBatch test = seen(*provider, {1, 0});
  REQUIRE(statistics.mean.size() == 32);
  for (std::size_t p = 0; p < 32; ++p)
    CHECK(statistics.mean[p] == static_cast<float>(std::to_integer<int>(test.matrices[0][p])));
}

TEST_CASE("pixels are divided by their channel's deviation", "[crop]") {
  // 1…36 and 37…72: the variance of n equally spaced numbers is (n² − 1) / 12.
  const auto expected = static_cast<float>(std::sqrt((36 * 36 - 1) / 12.0));
  for (const DataType type : {DataType::u8, DataType::f32}) {
    const auto provider = cropped({4, 0, true}, type);
    CHECK(provider->matrices()[0].type == DataType::f32);
    const PixelStatistics statistics = provider->statistics({1, 2});
    REQUIRE(statistics.deviations.size() == 2);
    CHECK(statistics.deviations[0] == Approx(expected).epsilon(1e-3));
    CHECK(statistics.deviations[1] == Approx(expected).epsilon(1e-3));
    const std::vector<float> test = floats(seen(*provider, {1, 0}, {{}, {2, 4}, {}}).matrices[0]);
    CHECK(test[0] == 8 / 2.0F);
    CHECK(test[16] == 44 / 4.0F);
    CHECK(statistics.mean[0] == 8 / statistics.deviations[0]);
    // Nothing is divided without statistics, as in a benchmark.
    CHECK(floats(seen(*provider, {1, 0}).matrices[0])[0] == 8);
  }
}

TEST_CASE("deviations are those of the pixels of all batches of the range", "[crop]") {
  for (const DataType type : {DataType::u8, DataType::f32}) {
    auto grid = std::make_unique<Grid>(type);
    grid->batch_step = 40;
    const auto provider = make_cropped_provider(std::move(grid), {4, 0, true}, 1);
    // Batch 1 has 41…76 and 77…112, batch 4 has 120 more: the variance within a batch and that of the
    // batches.
    for (const auto& [range, of_batches] :
         {std::pair(BatchRange{1, 4}, 40.0 * 40 * 15 / 12), std::pair(BatchRange{3, 4}, 20.0 * 20),
          std::pair(BatchRange{2, 2}, 0.0)}) {
      const auto expected = static_cast<float>(std::sqrt((36 * 36 - 1) / 12.0 + of_batches));
      const PixelStatistics statistics = provider->statistics(range);
      REQUIRE(statistics.deviations.size() == 2);
      CHECK(statistics.deviations[0] == Approx(expected).epsilon(1e-3));
      CHECK(statistics.deviations[1] == Approx(expected).epsilon(1e-3));
    }
  }
}

TEST_CASE("options that do not fit the images are refused", "[crop]") {
  CHECK(message_of<InputError>([] {
          cropped({7, 0, false});
        }) ==
        "--inner-size 7: the images are 2x6x6 (channels x height x width), and a crop can be at most 6");
  const auto dummy = [](const ImageOptions& options) {
    return message_of<InputError>([&] { make_provider("dummy-labeled-5", "", 0, options); });
  };
  CHECK(dummy({2, 0, false}) == "--inner-size is for images, but this data is vectors of 5 numbers");
  CHECK(dummy({0, 2, false}) == "--crop-pad is for images, but this data is vectors of 5 numbers");
  CHECK(dummy({0, 0, true}) == "--pixel-std is for images, but this data is vectors of 5 numbers");
  CHECK(make_provider("dummy-3x8x8-10", "", 0, {5, 0, false})->matrices()[0].dims == Dims{3, 5, 5});
  for (const std::string name : {"cifar-cropped", "cropped-cifar"}) {
    CHECK(message_of<InputError>([&] { make_provider(name, "", 0); }) ==
          "data provider '" + name + "' needs --inner-size, the side of the crops, or --crop-pad");
    ImageOptions options;
    options.inner_size = 1;
    const std::string folder = std::string(CONVNET_SOURCE_DIR) + "/tests/providers/data/cifar-original";
    CHECK(make_provider(name, folder, 0, options)->matrices()[0].dims == Dims{3, 1, 1});
  }
}
