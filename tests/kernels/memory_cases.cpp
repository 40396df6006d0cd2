#include "tests/kernels/op_cases.h"
#include "tests/kernels/whole_images.h"

namespace convnet::test {
namespace {

/// Calls add(type, mean, bf16) for loads without a mean, with one, and stored as bf16 on the GPU.
template <class Add>
void for_loads(const Add& add) {
  for (const DataType type : {DataType::u8, DataType::f32})
    for (const auto& [mean, bf16] : {std::pair{false, false}, {true, false}, {true, true}})
      add(type, mean, bf16);
}

void add_loads(std::vector<OpCase>& cases, const LoadSlice& s) {
  for_loads([&](DataType type, bool mean, bool bf16) {
    Values pixels;
    for (std::int64_t i = 0; i < element_count(s.from); ++i)
      pixels.push_back(static_cast<double>(i * 37 % 256));
    cases.push_back(
        {LoadImages{s.from, s.to, s.offset, type, mean}, {pixels}, {}, {}, bf16 ? 0.004 : 0, bf16});
  });
}

/// Images that come whole: (C,H,W), the size of what is seen, and the part of it that is taken.
struct WholeSlice {
  Dims uncropped, seen, to;
  std::int64_t offset;
};
void add_whole_loads(std::vector<OpCase>& cases, const WholeSlice& s) {
  const std::vector<Crop> crops = load_crops();
  for_loads([&](DataType type, bool mean, bool bf16) {
    Dims to = s.to;
    to.insert(to.begin(), std::ssize(crops));
    const std::int64_t pixels = element_count(s.uncropped);
    cases.push_back({LoadImages{{std::ssize(crops), s.uncropped[0], s.seen[0], s.seen[1]},
                                to,
                                s.offset,
                                type,
                                mean,
                                s.uncropped},
                     {},
                     {type == DataType::u8 ? whole_images<std::uint8_t>(pixels, crops)
                                           : whole_images<float>(pixels, crops)},
                     {},
                     bf16 ? 0.004 : 0,
                     bf16});
  });
}

}  // namespace

std::vector<LoadSlice> load_slices() {
  return {{{3, 3, 5, 7}, {3, 3, 5, 7}, 0},
          {{1, 1, 1, 1}, {1, 1, 1, 1}, 0},
          {{2, 40, 6, 6}, {2, 40, 6, 6}, 0},
          {{3, 2, 3, 5}, {3, 1, 3, 5}, 15},
          {{3, 2, 3, 5}, {3, 7}, 4},
          {{2, 30}, {2, 2, 3, 5}, 0},
          {{300, 100}, {300, 99}, 1},
          {{0, 9}, {0, 3}, 3},
          {{4, 1}, {4, 1}, 0}};
}

std::vector<Crop> load_crops() {
  return {{0, 0, 0},  {2, 1, 1}, {-1, -2, 0}, {-1, -2, 1}, {3, 2, 0}, {4, 3, 1}, {1, -3, 0},
          {-3, 1, 1}, {9, 9, 0}, {1, 1, 1},   {1, -2, 0},  {2, 3, 1}, {-9, 0, 1}};
}

std::vector<OpCase> memory_cases() {
  std::vector<OpCase> cases;
  for (const LoadSlice& s : load_slices()) add_loads(cases, s);
  for (const WholeSlice& s : std::vector<WholeSlice>{{{3, 5, 4}, {3, 3}, {3, 3, 3}, 0},
                                                     {{3, 5, 4}, {5, 4}, {3, 5, 4}, 0},
                                                     {{1, 1, 1}, {1, 1}, {1, 1, 1}, 0},
                                                     {{40, 3, 3}, {2, 1}, {40, 2, 1}, 0},
                                                     {{2, 5, 4}, {3, 3}, {7}, 4},
                                                     {{2, 5, 4}, {3, 2}, {1, 3, 2}, 6}})
    add_whole_loads(cases, s);
  cases.push_back({LoadLabels{5}, {{3, 0, 99, -1, 5}}, {}, {}, 0});
  const TensorDesc plain{{2, 3, 4, 5}, DataType::f32, nullptr};
  cases.push_back({Reorder{plain, plain}});
  cases.push_back({CopyRuns{{{5}, {1}, {700}}}, {}, {}, {}, 0});
  cases.push_back({CopyRuns{{{5}, {1, true}, {700, true}, {16}}}, {}, {}, {}, 0});
  cases.push_back({CopyRuns{{{4096}, {9001, true}, {8195}}}, {}, {}, {}, 0});  // several pieces
  CopyRuns runs;
  for (int i = 0; i < 70; ++i) runs.runs.push_back({i % 5 + 1, i % 3 == 0});
  cases.push_back({runs, {}, {}, {}, 0});
  cases.push_back({SumRuns{{{5, 1}, {1, 3}, {700, 2}}}, {}, {}, {}, 0});
  cases.push_back({SumRuns{{{4096, 2}, {9001, 3}, {8195, 1}}}, {}, {}, {}, 0});
  // More runs, and more sources, than the CUDA backend sums in one launch.
  SumRuns sums;
  for (int i = 0; i < 70; ++i) sums.runs.push_back({i % 5 + 1, i % 4 + 1});
  cases.push_back({sums, {}, {}, {}, 0});
  cases.push_back({SumRuns{{{10, 3}, {7, 193}, {0, 2}, {20, 400}, {3, 2}}}, {}, {}, {}, 0});
  for (const Dims& dims : std::vector<Dims>{{3, 5, 4, 6}, {7, 13}, {1, 1}, {0, 3, 4, 4}})
    cases.push_back({Accumulate{dims}});
  cases.push_back({FillZero{{{3, 5, 4, 6}, DataType::f32, nullptr}}, {}, {}, {}, 0});
  cases.push_back({FillZero{{{3, 5}, DataType::u8, nullptr}}, {}, {}, {}, 0});
  return cases;
}

}  // namespace convnet::test
