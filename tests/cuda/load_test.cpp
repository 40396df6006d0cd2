#include "tests/catch.h"
#include "tests/cuda/both_backends.h"
#include "tests/kernels/whole_images.h"

using namespace convnet;
using namespace convnet::test;

TEST_CASE("load on both backends", "[cuda]") {
  struct Case {
    Dims from, to;
    std::int64_t offset;
  };
  for (const Case& c : std::vector<Case>{{{3, 3, 5, 7}, {3, 3, 5, 7}, 0},
                                         {{1, 1, 1, 1}, {1, 1, 1, 1}, 0},
                                         {{2, 40, 6, 6}, {2, 40, 6, 6}, 0},
                                         {{3, 2, 3, 5}, {3, 1, 3, 5}, 15},
                                         {{3, 2, 3, 5}, {3, 7}, 4},
                                         {{0, 9}, {0, 3}, 3}})
    for (const DataType type : {DataType::u8, DataType::f32})
      for (const auto& [mean, bf16] : {std::pair{false, false}, {true, false}, {true, true}}) {
        INFO(to_string(c.from) << " to " << to_string(c.to) << " at " << c.offset);
        Values pixels;
        for (std::int64_t i = 0; i < element_count(c.from); ++i)
          pixels.push_back(static_cast<double>(i * 37 % 256));
        check_on_both(
            {LoadImages{c.from, c.to, c.offset, type, mean}, {pixels}, {}, {}, bf16 ? 0.004 : 0, bf16});
      }
}

TEST_CASE("load of whole images on both backends", "[cuda]") {
  const std::vector<Crop> crops{{0, 0, 0},  {2, 1, 1},  {-1, -2, 0}, {-1, -2, 1}, {3, 2, 0},
                                {4, 3, 1},  {1, -3, 0}, {-3, 1, 1},  {9, 9, 0},   {1, 1, 1},
                                {1, -2, 0}, {2, 3, 1},  {-9, 0, 1}};
  const auto images = static_cast<std::int64_t>(crops.size());
  struct Case {
    Dims whole, seen, to;
    std::int64_t offset;
  };
  for (const Case& c : std::vector<Case>{{{3, 5, 4}, {3, 3}, {3, 3, 3}, 0},
                                         {{3, 5, 4}, {5, 4}, {3, 5, 4}, 0},
                                         {{1, 1, 1}, {1, 1}, {1, 1, 1}, 0},
                                         {{40, 3, 3}, {2, 1}, {40, 2, 1}, 0},
                                         {{2, 5, 4}, {3, 3}, {7}, 4},
                                         {{2, 5, 4}, {3, 2}, {1, 3, 2}, 6}})
    for (const DataType type : {DataType::u8, DataType::f32})
      for (const auto& [mean, bf16] : {std::pair{false, false}, {true, false}, {true, true}}) {
        INFO(to_string(c.whole) << " to " << to_string(c.to) << " at " << c.offset);
        Dims to = c.to;
        to.insert(to.begin(), images);
        const std::int64_t pixels = element_count(c.whole);
        check_on_both(
            {LoadImages{{images, c.whole[0], c.seen[0], c.seen[1]}, to, c.offset, type, mean, c.whole},
             {},
             {type == DataType::u8 ? whole_images<std::uint8_t>(pixels, crops)
                                   : whole_images<float>(pixels, crops)},
             {},
             bf16 ? 0.004 : 0,
             bf16});
      }
}
