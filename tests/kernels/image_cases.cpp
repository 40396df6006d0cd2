#include "tests/kernels/op_cases.h"

namespace convnet::test {

std::vector<Sampling> samplings() {
  // n, c, h, w, oh, ow, start_y, start_x, step_y, step_x
  return {
      {2, 20, 6, 7, 4, 4, 1, 2, 1, 1},        // crop
      {1, 1, 5, 5, 5, 5, 0, 0, 1, 1},         // of everything
      {2, 16, 4, 4, 1, 1, 3, 3, 1, 1},        // of the last pixel
      {1, 3, 1, 1, 1, 1, 0, 0, 1, 1},         //
      {2, 17, 4, 5, 4, 5, 0, 4, 1, -1},       // href
      {1, 1, 3, 1, 3, 1, 0, 0, 1, -1},        // of one column
      {2, 9, 7, 7, 3, 3, 0, 0, 3, 3},         // nailbed
      {1, 8, 8, 8, 3, 3, 0, 0, 3, 3},         // that leaves out the last row and column
      {2, 2, 6, 6, 2, 2, 1, 1, 4, 4},         //
      {2, 40, 13, 11, 12, 11, 1, 10, 1, -1},  //
      {5, 20, 33, 31, 32, 31, 1, 30, 1, -1},  // for several threads
      {0, 3, 6, 6, 2, 2, 1, 1, 4, 4},         // no images
  };
}

std::vector<Blur> blurs() {
  std::vector<Blur> all;
  for (const Dims& dims : std::vector<Dims>{{2, 3, 6, 5},
                                            {1, 17, 3, 4},
                                            {1, 1, 1, 1},
                                            {2, 1, 1, 7},
                                            {1, 2, 9, 1},
                                            {1, 40, 9, 11},
                                            {3, 20, 19, 21},
                                            {0, 3, 6, 5}})
    for (const auto& [size, stdev] :
         std::vector<std::pair<std::int64_t, float>>{{3, 1.0F}, {5, 0.7F}, {9, 3.0F}, {3, 0.01F}, {1, 1.0F}})
      all.push_back({dims, size, stdev});
  return all;
}

std::vector<Resize> resizes() {
  return {{2, 3, 8, 6, 4, 3, 2.0F}, {1, 1, 7, 9, 5, 6, 1.3F},       {1, 20, 5, 5, 10, 10, 0.5F},
          {2, 2, 6, 6, 6, 6, 1.0F}, {1, 2, 1, 1, 2, 2, 0.5F},  // one pixel
          {1, 2, 1, 5, 1, 4, 1.2F}, {1, 1, 2, 2, 1, 1, 2.0F},       {2, 8, 2, 2, 1, 1, 2.0F},
          {0, 3, 8, 8, 4, 4, 2.0F}, {2, 40, 20, 20, 16, 16, 1.25F}, {9, 20, 20, 20, 16, 16, 1.25F}};
}

std::vector<RandomScale> random_scales() {
  return {{2, 3, 9, 6, 1.5F},   {1, 1, 6, 5, 1.2F}, {1, 1, 1, 1, 1},      {3, 1, 1, 1, 1},
          {5, 1, 9, 9, 1},      {20, 2, 9, 6, 2},   {1, 2, 8, 7, 2.0F},   {9, 3, 24, 16, 1.5F},
          {2, 40, 12, 8, 1.5F}, {0, 3, 9, 6, 1.5F}, {30, 20, 12, 8, 1.5F}};
}

std::vector<Dims> color_shapes() {
  return {{2, 3, 5, 7}, {1, 3, 1, 1}, {4, 3, 16, 16}, {40, 3, 16, 16}, {0, 3, 2, 2}};
}

std::vector<OpCase> image_cases() {
  std::vector<OpCase> cases;
  for (const Sampling& p : samplings()) {
    cases.push_back({SampleForward{p}, {}, {}, {}, 0});
    cases.push_back({SampleBackward{p}, {}, {}, {}, 0});
  }
  for (const Blur& op : blurs()) cases.push_back({op, {}, {}, {}, 1e-6});
  for (const Resize& op : resizes()) cases.push_back({op, {}, {}, {}, 2e-6});
  for (RandomScale op : random_scales()) {
    op.key = 77;
    op.first_image = 30;
    cases.push_back({op, {}, {{}, {}, step_block(5)}, {}, 2e-6});
    cases.push_back({op, {}, {{}, {}, step_block((std::uint64_t{1} << 33) + 7)}, {}, 2e-6});
  }
  for (const Dims& dims : color_shapes()) {
    Values x = values_between(dims, 1, 0, 1);
    for (std::size_t i = 0; i + 9 < x.size(); i += 13) x[i] *= 0.01;  // dark: the line below the cube root
    cases.push_back({ColorTransform{dims, ColorSpace::yuv, false}, {x}, {}, {}, 1e-6});
    for (const bool center : {false, true})
      cases.push_back({ColorTransform{dims, ColorSpace::lab, center}, {x}, {}, {}, 1e-5});
  }
  return cases;
}

}  // namespace convnet::test
