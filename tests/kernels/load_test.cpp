#include <algorithm>
#include <stdexcept>

#include "tests/kernels/op_cases.h"
#include "tests/kernels/run_op.h"
#include "tests/kernels/whole_images.h"

namespace convnet::load_test {
using namespace test;

TEST_CASE("load converts images and subtracts the mean", "[load]") {
  for (const Dims& dims : std::vector<Dims>{{2, 3, 5, 7}, {1, 1, 1, 1}, {3, 19}, {5, 3, 40, 40}})
    for (bool mean : {false, true}) {
      const auto count = static_cast<std::size_t>(element_count(dims));
      const std::size_t per_image = count / static_cast<std::size_t>(dims[0]);
      const auto mean_values = random_values(static_cast<std::int64_t>(per_image), 1, 100, 150);
      std::vector<std::uint8_t> bytes(count);
      std::vector<float> floats, from_bytes, from_floats;
      for (std::size_t i = 0; i < count; ++i) {
        bytes[i] = static_cast<std::uint8_t>(i * 37 % 256);
        floats.push_back(static_cast<float>(i) * 0.25F);
        const float subtracted = mean ? mean_values[i % per_image] : 0.0F;
        from_bytes.push_back(static_cast<float>(bytes[i]) - subtracted);
        from_floats.push_back(floats[i] - subtracted);
      }
      const std::size_t dst = mean ? 2 : 1;
      OpRun u8(cpu::prepare(LoadImages{dims, dims, 0, DataType::u8, mean}, {}));
      u8.set_raw(0, bytes);
      if (mean) u8.set_raw(1, mean_values);
      u8.run();
      CHECK(u8.get(dst) == from_bytes);
      OpRun f32(cpu::prepare(LoadImages{dims, dims, 0, DataType::f32, mean}, {}));
      f32.set_raw(0, floats);
      if (mean) f32.set_raw(1, mean_values);
      f32.run();
      CHECK(f32.get(dst) == from_floats);
    }
  CHECK_THROWS_AS(cpu::prepare(LoadImages{{1, 1, 1, 1}, {1, 1, 1, 1}, 0, DataType::s32, false}, {}),
                  std::logic_error);
}

TEST_CASE("load takes a slice of every image", "[load]") {
  for (const LoadSlice& c : load_slices())
    for (bool mean : {false, true}) {
      INFO(to_string(c.from) << " to " << to_string(c.to) << " at " << c.offset);
      const auto features = [](const Dims& dims) { return element_count({dims.begin() + 1, dims.end()}); };
      const std::int64_t width = features(c.from), taken = features(c.to);
      const auto means = random_values(width, 2, 100, 150);
      std::vector<std::uint8_t> bytes(static_cast<std::size_t>(c.from[0] * width));
      for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 37 % 256);
      std::vector<float> expected;
      for (std::int64_t n = 0; n < c.from[0]; ++n)
        for (std::int64_t i = c.offset; i < c.offset + taken; ++i)
          expected.push_back(static_cast<float>(bytes[static_cast<std::size_t>(n * width + i)]) -
                             (mean ? means[static_cast<std::size_t>(i)] : 0.0F));
      OpRun op(cpu::prepare(LoadImages{c.from, c.to, c.offset, DataType::u8, mean}, {}));
      op.set_raw(0, bytes);
      if (mean) op.set_raw(1, means);
      op.run();
      CHECK(op.get(mean ? 2 : 1) == expected);
    }
  CHECK_THROWS_AS(cpu::prepare(LoadImages{{2, 9}, {2, 3}, 7, DataType::u8, false}, {}), std::logic_error);
}

namespace {

/// Images of 2x5x4 with their crops, of which 3x3 are seen.
template <class Source>
struct Whole {
  static constexpr std::int64_t kPixels = 40, kSeen = 18;
  const std::vector<Crop> crops = load_crops();
  const std::vector<std::byte> bytes = whole_images<Source>(kPixels, crops);

  /// The visible part of an image, column by column from the left of the picture or, mirrored, of its mirror
  /// image.
  /// The visible part of image i.
  std::vector<float> seen(std::size_t i) const {
    std::vector<float> out;
    for (int c = 0; c < 2; ++c)
      for (int y = 0; y < 3; ++y) {
        std::vector<float> row;
        for (int x = 0; x < 3; ++x) {
          const int v = crops[i].y + y, u = crops[i].x + x;
          const bool inside = v >= 0 && v < 5 && u >= 0 && u < 4;
          row.push_back(inside ? static_cast<float>(whole_pixel(i, (c * 5 + v) * 4 + u)) : 0.0F);
        }
        if (crops[i].mirror != 0) std::reverse(row.begin(), row.end());
        out.insert(out.end(), row.begin(), row.end());
      }
    return out;
  }
};

template <class Source>
void check_crops(DataType type) {
  const Whole<Source> whole;
  const auto images = static_cast<std::int64_t>(whole.crops.size());
  const auto means = random_values(Whole<Source>::kSeen, 2, 100, 150);
  struct Slice {
    Dims dims;
    std::int64_t offset;
  };
  for (const Slice& slice :
       std::vector<Slice>{{{images, 2, 3, 3}, 0}, {{images, 7}, 4}, {{images, 18}, 0}, {{images, 1}, 17}})
    for (const bool mean : {false, true}) {
      INFO(to_string(slice.dims) << " at " << slice.offset << (mean ? ", mean" : ""));
      std::vector<float> expected;
      for (std::size_t i = 0; i < whole.crops.size(); ++i) {
        const std::vector<float> seen = whole.seen(i);
        for (std::int64_t f = 0; f < element_count(slice.dims) / images; ++f) {
          const auto at = static_cast<std::size_t>(slice.offset + f);
          expected.push_back(seen[at] - (mean ? means[at] : 0.0F));
        }
      }
      OpRun op(
          cpu::prepare(LoadImages{{images, 2, 3, 3}, slice.dims, slice.offset, type, mean, {2, 5, 4}}, {}));
      op.set_raw(0, whole.bytes);
      if (mean) op.set_raw(1, means);
      op.run();
      CHECK(op.get(mean ? 2 : 1) == expected);
    }
}

}  // namespace

TEST_CASE("load cuts what is seen out of whole images", "[load]") {
  check_crops<std::uint8_t>(DataType::u8);
  check_crops<float>(DataType::f32);
}

TEST_CASE("load copies labels", "[load]") {
  const std::vector<std::int32_t> labels{3, 0, 99, -1, 5};
  OpRun op(cpu::prepare(LoadLabels{5}, {}));
  op.set_raw(0, labels);
  op.run();
  CHECK(op.raw<std::int32_t>(1, 5) == labels);
}

}  // namespace convnet::load_test
