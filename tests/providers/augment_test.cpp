// Mirroring, erasing and mixing of training images.
#include "providers/augment.h"

#include <cmath>
#include <cstring>
#include <set>

#include "convnet/base/error.h"
#include "providers/crop.h"
#include "providers/distort.h"
#include "providers/registry.h"
#include "providers/shuffle.h"
#include "tests/catch.h"
#include "tests/temp_folder.h"

using namespace convnet;

namespace {

constexpr std::int64_t set_images = Augmentation::group + 6;
constexpr int side = 6, pixels = side * side;

/// Batches of 1,030 images of 1x6x6 with label i + 7 · batch, whose pixels are multiples of the label's.
class Numbered final : public StoredProvider {
 public:
  explicit Numbered(DataType type, std::int64_t images = set_images)
      : images_(images),
        matrices_({{"data", {1, side, side}, type, 0}, {"labels", {1}, DataType::s32, 2000}}) {}
  const std::vector<MatrixInfo>& matrices() const override { return matrices_; }
  void check_range(const BatchRange&, const std::string&) const override {}
  std::int64_t images_in(int) const override { return images_; }
  bool has_mean() const override { return true; }
  std::vector<float> mean_image(const BatchRange&) const override { return {}; }
  static int pixel(std::int64_t label, int p) { return static_cast<int>((label * 31 + p * 5) % 256); }

  DataBatch load(int batch) const override {
    DataBatch loaded{images_, {{}, {}}};
    const auto add = [&](std::size_t m, const auto& value) {
      const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
      loaded.matrices[m].insert(loaded.matrices[m].end(), bytes, bytes + sizeof value);
    };
    for (std::int64_t i = 0; i < images_; ++i) {
      const auto label = static_cast<std::int32_t>(i + 7 * batch);
      add(1, label);
      for (int p = 0; p < pixels; ++p) {
        if (matrices_[0].type == DataType::u8)
          add(0, static_cast<std::uint8_t>(pixel(label, p)));
        else
          add(0, static_cast<float>(pixel(label, p)));
      }
    }
    return loaded;
  }

 private:
  const std::int64_t images_;
  const std::vector<MatrixInfo> matrices_;
};

std::unique_ptr<Provider> augmented(const ImageOptions& options, DataType type = DataType::u8,
                                    std::uint64_t seed = 1) {
  return make_augmented_provider(std::make_unique<Numbered>(type), options, seed);
}

ImageOptions mixing(double mixup, double cutmix) {
  ImageOptions options;
  options.mixup = mixup;
  options.cutmix = cutmix;
  return options;
}
ImageOptions erasing(double probability) {
  ImageOptions options;
  options.random_erasing = probability;
  return options;
}

template <class Item>
std::vector<Item> items(const std::vector<std::byte>& bytes) {
  std::vector<Item> values(bytes.size() / sizeof(Item));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// An image's three label values.
struct Label {
  std::int32_t own = 0, other = 0, weight = 0;
};
std::vector<Label> mixed_labels_of(const DataBatch& data) {
  const auto values = items<std::int32_t>(data.matrices[1]);
  REQUIRE(values.size() == static_cast<std::size_t>(3 * data.images));
  std::vector<Label> labels;
  for (std::size_t i = 0; i < values.size(); i += 3)
    labels.push_back({values[i], values[i + 1], values[i + 2]});
  return labels;
}

/// Number of pixels of image `i` that are those of the image with that label.
int equal_pixels(const std::vector<std::uint8_t>& images, std::size_t i, std::int32_t label) {
  int equal = 0;
  for (int p = 0; p < pixels; ++p)
    if (images[i * pixels + static_cast<std::size_t>(p)] == Numbered::pixel(label, p)) ++equal;
  return equal;
}

}  // namespace

TEST_CASE("mixup blends an image and its label with another of its group", "[augment]") {
  const auto provider = augmented(mixing(1, 0));
  CHECK(provider->matrices()[1].dims == Dims{3});
  CHECK(provider->matrices()[1].classes == 2000);
  const DataBatch data = provider->read({2, 1}, {});
  const std::vector<Label> labels = mixed_labels_of(data);
  const auto images = items<std::uint8_t>(data.matrices[0]);
  const auto numbers = items<float>(augmented(mixing(1, 0), DataType::f32)->read({2, 1}, {}).matrices[0]);
  bool right = true;
  std::set<std::int32_t> others;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto [own, other, weight] = labels[i];
    CAPTURE(i, own, other, weight);
    REQUIRE(own == static_cast<std::int32_t>(i) + 14);
    REQUIRE((weight == 0 || other != own));
    REQUIRE((other - 14 >= Augmentation::group) == (own - 14 >= Augmentation::group));
    REQUIRE(other - 14 < set_images);
    REQUIRE(weight >= 0);
    REQUIRE(weight <= 65535);
    others.insert(other);
    for (int p = 0; p < pixels; ++p) {
      const double exact =
          (Numbered::pixel(own, p) * (65536.0 - weight) + Numbered::pixel(other, p) * 1.0 * weight) / 65536;
      const std::size_t at = i * pixels + static_cast<std::size_t>(p);
      right = right && images[at] == static_cast<int>(std::floor(exact + 0.5)) &&
              std::abs(numbers[at] - exact) < 1e-3;
    }
  }
  CHECK(right);
  // Of n images, each is the other one of Poisson(1) images.
  CHECK(others.size() > 550);
  CHECK(others.size() < 750);
}

TEST_CASE("the weight of mixup has a Beta distribution", "[augment]") {
  for (const double alpha : {0.1, 0.4, 1.0, 6.0}) {
    const auto provider = augmented(mixing(alpha, 0));
    double sum = 0, squares = 0, count = 0;
    for (int epoch = 1; epoch <= 20; ++epoch)
      for (const Label& label : mixed_labels_of(provider->read({1, epoch}, {}))) {
        const double weight = label.weight / 65536.0 - 0.5;
        sum += weight;
        squares += weight * weight;
        ++count;
      }
    CAPTURE(alpha, count);
    const double variance = 1 / (4 * (2 * alpha + 1));
    CHECK(std::abs(sum / count) < 5 * std::sqrt(variance / count));
    CHECK(squares / count == Approx(variance).epsilon(0.03));
  }
  // Tiny alphas take one image or the other.
  for (const Label& label : mixed_labels_of(augmented(mixing(1e-300, 0))->read({1, 1}, {})))
    REQUIRE((label.weight == 0 || label.weight == 65535));
}

TEST_CASE("cutmix puts a box of another image in", "[augment]") {
  const DataBatch data = augmented(mixing(0, 1))->read({1, 1}, {});
  const std::vector<Label> labels = mixed_labels_of(data);
  const auto images = items<std::uint8_t>(data.matrices[0]);
  std::set<std::int32_t> weights;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto [own, other, weight] = labels[i];
    const int area = static_cast<int>(std::lround(weight * pixels / 65536.0));
    CAPTURE(i, own, other, weight, area);
    REQUIRE(weight ==
            std::min<std::int32_t>(65535, static_cast<std::int32_t>(std::lround(65536.0 * area / pixels))));
    weights.insert(area);
    if (area == 0) {
      REQUIRE(equal_pixels(images, i, own) == pixels);
      continue;
    }
    // The pixels of two images differ everywhere unless their labels are equal modulo 256.
    if ((own - other) % 256 == 0) continue;
    REQUIRE(equal_pixels(images, i, other) == area);
    REQUIRE(equal_pixels(images, i, own) == pixels - area);
    int top = side, left = side, bottom = 0, right = 0;
    for (int p = 0; p < pixels; ++p) {
      if (images[i * pixels + static_cast<std::size_t>(p)] != Numbered::pixel(other, p)) continue;
      top = std::min(top, p / side);
      bottom = std::max(bottom, p / side + 1);
      left = std::min(left, p % side);
      right = std::max(right, p % side + 1);
    }
    REQUIRE((bottom - top) * (right - left) == area);
  }
  CHECK(weights.size() > 10);
}

TEST_CASE("with mixup and cutmix a coin chooses for each image", "[augment]") {
  // With such alphas mixup has weights near 1/2, and cutmix boxes of 4x4 or less.
  const DataBatch data = augmented(mixing(100, 100))->read({1, 1}, {});
  const std::vector<Label> labels = mixed_labels_of(data);
  const auto images = items<std::uint8_t>(data.matrices[0]);
  int cut = 0;
  for (std::size_t i = 0; i < labels.size(); ++i)
    if (equal_pixels(images, i, labels[i].own) + equal_pixels(images, i, labels[i].other) >= pixels) ++cut;
  CHECK(cut > 430);
  CHECK(cut < 600);
}

TEST_CASE("erased boxes have the mean image's pixels", "[augment]") {
  PixelStatistics statistics;
  for (int p = 0; p < pixels; ++p) statistics.mean.push_back(256.0F + 0.25F * static_cast<float>(p));
  const auto numbers = [&](double probability) {
    return items<float>(augmented(erasing(probability), DataType::f32)->read({1, 1}, statistics).matrices[0]);
  };
  const auto erased_in = [&](const std::vector<float>& images, std::int64_t i) {
    int top = side, left = side, bottom = 0, right = 0, count = 0;
    for (int p = 0; p < pixels; ++p) {
      const float value = images[static_cast<std::size_t>(i * pixels + p)];
      if (value == static_cast<float>(Numbered::pixel(i + 7, p))) continue;
      REQUIRE(value == statistics.mean[static_cast<std::size_t>(p)]);
      ++count;
      top = std::min(top, p / side);
      bottom = std::max(bottom, p / side + 1);
      left = std::min(left, p % side);
      right = std::max(right, p % side + 1);
    }
    REQUIRE((count == 0 || count == (bottom - top) * (right - left)));
    return count;
  };
  const auto always = numbers(1), half = numbers(0.5), never = numbers(1e-12);
  int erased = 0;
  std::set<int> areas;
  for (std::int64_t i = 0; i < set_images; ++i) {
    const int area = erased_in(always, i);
    REQUIRE(area >= 1);
    // 2 % to 33 %, with sides rounded.
    REQUIRE(area <= 16);
    areas.insert(area);
    erased += erased_in(half, i) > 0 ? 1 : 0;
    REQUIRE(erased_in(never, i) == 0);
  }
  CHECK(areas.size() > 6);
  CHECK(erased > 430);
  CHECK(erased < 600);
  // Bytes are rounded, and zeros take the place of a mean image that read() subtracts or that is not there.
  const auto stored = Numbered(DataType::u8).load(1).matrices[0];
  const auto changed = [&](const ImageOptions& options, const PixelStatistics& with) {
    const auto bytes = augmented(options)->read({1, 1}, with).matrices[0];
    std::set<int> values;
    for (std::size_t p = 0; p < bytes.size(); ++p)
      if (bytes[p] != stored[p]) values.insert(std::to_integer<int>(bytes[p]));
    return values;
  };
  CHECK(changed(erasing(1), {std::vector<float>(pixels, 99.5F), {}, {}}) == std::set<int>{100});
  CHECK(changed(erasing(1), {std::vector<float>(pixels, 1e30F), {}, {}}) == std::set<int>{255});
  CHECK(changed(erasing(1), {}) == std::set<int>{0});
}

TEST_CASE("random rectangles have uniform areas, logarithms of ratios and places", "[augment]") {
  // The bounds of random erasing. 23 of 10,000 such rectangles do not fit into a square and are drawn again.
  const WindowBounds bounds{0.02, 0.33, 0.3, 3.3};
  constexpr int height = 2000, width = 2000, count = 20000;
  struct Moments {
    double sum = 0, squares = 0;
    void add(double value, double least, double most) {
      const double uniform = (value - least) / (most - least);
      sum += uniform;
      squares += (uniform - 0.5) * (uniform - 0.5);
    }
  };
  Moments area, ratio, top, left;
  for (int i = 0; i < count; ++i) {
    const std::optional<ImageWindow> box = random_window(7, {1, 2, i}, height, width, bounds);
    REQUIRE(box);
    area.add(double(box->height) * box->width / (double(height) * width), bounds.least_area,
             bounds.most_area);
    ratio.add(std::log(double(box->width) / box->height), std::log(bounds.least_ratio),
              std::log(bounds.most_ratio));
    // A rectangle that is as high or as wide as the image has one place.
    if (box->height < height) top.add(box->y, 0, height - box->height);
    if (box->width < width) left.add(box->x, 0, width - box->width);
  }
  // Four standard deviations of such averages, and the rectangles that are drawn again.
  for (const Moments& moments : {area, ratio, top, left}) {
    CHECK(moments.sum / count == Approx(0.5).margin(0.01));
    CHECK(moments.squares / count == Approx(1.0 / 12).margin(0.003));
  }
}

TEST_CASE("images are distorted by their own draws", "[augment]") {
  ImageOptions options;
  options.trivial_augment = true;
  options.color_jitter = 0.4;
  const DataBatch stored = Numbered(DataType::u8, 40).load(1);
  const auto* const from = reinterpret_cast<const std::uint8_t*>(stored.matrices[0].data());
  std::vector<std::uint8_t> expected;
  for (std::int64_t i = 0; i < 40; ++i) {
    DecodedImage image{side, side, {}};
    for (int p = 0; p < pixels; ++p) image.pixels.insert(image.pixels.end(), 3, from[i * pixels + p]);
    const DrawnDistortion drawn = draw_distortion(draw(philox_key(5, "trivial-augment"), {3, 1, i}));
    distort(image, drawn.kind, drawn.magnitude);
    jitter_colors(image, 0.4, draw(philox_key(5, "color-jitter"), {3, 1, i}));
    for (int p = 0; p < pixels; ++p) expected.push_back(image.pixels[static_cast<std::size_t>(3 * p)]);
  }
  const auto provider = make_augmented_provider(std::make_unique<Numbered>(DataType::u8, 40), options, 5);
  CHECK(items<std::uint8_t>(provider->read({1, 3}, {}).matrices[0]) == expected);
  CHECK(items<std::uint8_t>(provider->read({1, 0}, {}).matrices[0]) ==
        std::vector<std::uint8_t>(from, from + std::ptrdiff_t{40} * pixels));
  // Bytes that were divided by their deviation are distorted as bytes.
  options.pixel_std = true;
  const auto scaled = make_augmented_provider(
      make_cropped_provider(std::make_unique<Numbered>(DataType::u8, 40), options, 5), options, 5);
  const auto floats = items<float>(scaled->read({1, 3}, {{}, {70.3F}, {}}).matrices[0]);
  REQUIRE(floats.size() == expected.size());
  bool same = true;
  for (std::size_t i = 0; i < floats.size(); ++i)
    same = same && floats[i] == static_cast<float>(expected[i]) / 70.3F;
  CHECK(same);
}

TEST_CASE("images are distorted, then erased, then mixed", "[augment]") {
  ImageOptions trivial, all = mixing(1, 0);
  trivial.trivial_augment = all.trivial_augment = true;
  all.random_erasing = 1;
  const auto read = [](const ImageOptions& options, float mean) {
    return augmented(options)->read({1, 1}, {std::vector<float>(pixels, mean), {}, {}});
  };
  const auto bytes = [](const DataBatch& data) { return items<std::uint8_t>(data.matrices[0]); };
  const auto stored = bytes(Numbered(DataType::u8).load(1)), distorted = bytes(read(trivial, 77));
  REQUIRE(distorted != stored);
  // The boxes are where the mean image shows.
  const auto erased = bytes(read(erasing(1), 77)), erased_otherwise = bytes(read(erasing(1), 78));
  auto unmixed = distorted;
  for (std::size_t p = 0; p < unmixed.size(); ++p)
    if (erased[p] != erased_otherwise[p]) unmixed[p] = 77;
  const DataBatch data = read(all, 77);
  const auto mixed = bytes(data);
  const std::vector<Label> labels = mixed_labels_of(data);
  bool right = true;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto other = static_cast<std::size_t>(labels[i].other - 7);
    const double weight = labels[i].weight / 65536.0;
    for (std::size_t p = 0; p < pixels; ++p) {
      const double exact = unmixed[i * pixels + p] * (1 - weight) + unmixed[other * pixels + p] * weight;
      right = right && std::abs(mixed[i * pixels + p] - exact) <= 0.5 + 1e-9;
    }
  }
  CHECK(right);
}

TEST_CASE("augmented images depend on seed, epoch, batch and place alone", "[augment]") {
  ImageOptions options = mixing(0.3, 1);
  options.random_erasing = 0.5;
  options.trivial_augment = true;
  options.color_jitter = 0.4;
  options.inner_size = 4;
  options.crop_pad = 1;
  const auto make = [&](bool shuffle, std::uint64_t seed) {
    auto cropped = make_cropped_provider(std::make_unique<Numbered>(DataType::u8, 40), options, seed);
    std::unique_ptr<Provider> plain =
        shuffle ? make_shuffled_provider(std::move(cropped), {1, 3}, seed) : std::move(cropped);
    return make_augmented_provider(std::move(plain), options, seed);
  };
  for (const bool shuffle : {false, true}) {
    const auto provider = make(shuffle, 1);
    CHECK(provider->matrices()[0].dims == Dims{1, 4, 4});
    CHECK(provider->matrices()[0].uncropped.empty());
    const DataBatch whole = provider->read({2, 3}, {});
    for (const LoadRequest& other : {LoadRequest{1, 3}, LoadRequest{2, 2}})
      CHECK(provider->read(other, {}).matrices != whole.matrices);
    CHECK(make(shuffle, 2)->read({2, 3}, {}).matrices != whole.matrices);
    for (const std::int64_t count : {1, 7, 40, 41}) {
      CAPTURE(shuffle, count);
      const auto other = make(shuffle, 1);
      std::vector<std::vector<std::byte>> matrices(2);
      std::int64_t first = 0;
      for (bool last = false; !last; first += count) {
        const DataBatch piece = other->read({2, 3, first, count}, {});
        for (std::size_t m = 0; m < 2; ++m)
          matrices[m].insert(matrices[m].end(), piece.matrices[m].begin(), piece.matrices[m].end());
        last = piece.last;
      }
      CHECK(matrices == whole.matrices);
    }
    // Each process has at least what it needs.
    for (const bool early : {false, true}) {
      const ImageShare share{{2}, {early, !early}};
      const DataBatch piece = make(shuffle, 1)->read({2, 3, 10, 20, &share}, {});
      for (std::size_t m = 0; m < 2; ++m) {
        const auto bytes = static_cast<std::ptrdiff_t>(whole.matrices[m].size()) / 40;
        const std::ptrdiff_t begin = early ? 0 : 10;
        CHECK(std::equal(piece.matrices[m].begin() + begin * bytes,
                         piece.matrices[m].begin() + (begin + 10) * bytes,
                         whole.matrices[m].begin() + (10 + begin) * bytes));
      }
    }
  }
}

TEST_CASE("tests see whole images that are not augmented", "[augment]") {
  ImageOptions options = mixing(0.3, 1);
  options.random_erasing = 1;
  options.trivial_augment = true;
  options.color_jitter = 1;
  options.flip = Flip::on;
  const DataBatch stored = Numbered(DataType::u8).load(1);
  const auto provider = make_augmented_provider(
      make_cropped_provider(std::make_unique<Numbered>(DataType::u8), options, 1), options, 1);
  const DataBatch test = provider->read({1, 0}, {});
  CHECK(test.matrices[0] == stored.matrices[0]);
  const auto classes = items<std::int32_t>(stored.matrices[1]);
  const std::vector<Label> labels = mixed_labels_of(test);
  for (std::size_t i = 0; i < labels.size(); ++i)
    REQUIRE((labels[i].own == classes[i] && labels[i].other == classes[i] && labels[i].weight == 0));
  // Views have such labels, too.
  options.inner_size = 4;
  options.multiview = true;
  const auto views = make_augmented_provider(
      make_cropped_provider(std::make_unique<Numbered>(DataType::u8), options, 1), options, 1);
  CHECK(views->views() == 9);
  CHECK(mixed_labels_of(views->read({1, 0}, {}))[9].own == classes[1]);
}

TEST_CASE("a single image is not mixed", "[augment]") {
  const auto provider = make_augmented_provider(
      std::make_unique<Numbered>(DataType::u8, Augmentation::group + 1), mixing(1, 0), 1);
  const Label last = mixed_labels_of(provider->read({0, 1, Augmentation::group, 1}, {}))[0];
  CHECK(last.own == Augmentation::group);
  CHECK(last.other == last.own);
  CHECK(last.weight == 0);
}

TEST_CASE("augmentation that does not fit the data is refused", "[augment]") {
  const auto refused = [](const char* name, const ImageOptions& options) {
    return message_of<InputError>([&] { make_provider(name, "", 0, options); });
  };
  CHECK(refused("dummy-labeled-5", mixing(0.2, 1)) ==
        "--cutmix is for images, but this data is vectors of 5 numbers");
  CHECK(refused("dummy-labeled-5", erasing(0.5)) ==
        "--random-erasing is for images, but this data is vectors of 5 numbers");
  ImageOptions jitter, trivial;
  jitter.color_jitter = 0.4;
  trivial.trivial_augment = true;
  CHECK(refused("dummy-labeled-5", jitter) ==
        "--color-jitter is for images, but this data is vectors of 5 numbers");
  const std::string floats = "--trivial-augment is for images of bytes, but this data is floats";
  CHECK(refused("dummy-3x8x8-10", trivial) == floats);
  CHECK(message_of<InputError>([&] {
          Augmentation(trivial, {{"data", {2, 4, 4}, DataType::u8}}, 0);
        }) == "--trivial-augment is for grey or RGB images, but these have 2 channels");
  CHECK(refused("dummy-5", mixing(0.2, 0)) ==
        "--mixup mixes images and their labels, but this data has no labels");
  ImageOptions options;
  options.flip = Flip::on;
  CHECK(refused("dummy-labeled-5", options) == "--flip is for images, but this data is vectors of 5 numbers");
  options.flip = Flip::automatic;
  options.random_resized_crop = 0.5;
  CHECK(refused("dummy-3x8x8-10", options) ==
        "--random-resized-crop is for data provider 'image', not for 'dummy-3x8x8-10'");
  CHECK(make_provider("dummy-labeled-5", "", 0, mixing(0.2, 0))->matrices()[1].dims == Dims{3});
}
