#include "tests/catch.h"
#include "tests/cuda/both_backends.h"

using namespace convnet;
using namespace convnet::test;

TEST_CASE("crop, href and nailbed on both backends", "[cuda]") {
  // n, c, h, w, oh, ow, start_y, start_x, step_y, step_x
  for (const Sampling& p : std::vector<Sampling>{
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
           {0, 3, 6, 6, 2, 2, 1, 1, 4, 4},         // no images
       }) {
    INFO(to_string(p.src()) << " to " << to_string(p.dst()));
    check_on_both({SampleForward{p}, {}, {}, {}, 0});
    check_on_both({SampleBackward{p}, {}, {}, {}, 0});
  }
}

TEST_CASE("blur on both backends", "[cuda]") {
  for (const Dims& dims : std::vector<Dims>{{2, 3, 6, 5},
                                            {1, 17, 3, 4},
                                            {1, 1, 1, 1},
                                            {2, 1, 1, 7},
                                            {1, 2, 9, 1},
                                            {1, 40, 9, 11},
                                            {0, 3, 6, 5}})
    for (const auto& [size, stdev] : std::vector<std::pair<std::int64_t, float>>{
             {3, 1.0F}, {5, 0.7F}, {9, 3.0F}, {3, 0.01F}, {1, 1.0F}}) {
      INFO(to_string(dims) << " size " << size << " stdev " << stdev);
      check_on_both({Blur{dims, size, stdev}, {}, {}, {}, 1e-6});
    }
}

TEST_CASE("resize on both backends", "[cuda]") {
  for (const Resize& p : std::vector<Resize>{{2, 3, 8, 6, 4, 3, 2.0F},
                                             {1, 1, 7, 9, 5, 6, 1.3F},
                                             {1, 20, 5, 5, 10, 10, 0.5F},
                                             {2, 2, 6, 6, 6, 6, 1.0F},
                                             {1, 2, 1, 1, 2, 2, 0.5F},  // one pixel
                                             {1, 2, 1, 5, 1, 4, 1.2F},
                                             {1, 1, 2, 2, 1, 1, 2.0F},
                                             {2, 8, 2, 2, 1, 1, 2.0F},
                                             {0, 3, 8, 8, 4, 4, 2.0F},
                                             {2, 40, 20, 20, 16, 16, 1.25F}}) {
    INFO(to_string(p.src()) << " to " << to_string(p.dst()) << " by " << p.scale);
    check_on_both({p, {}, {}, {}, 2e-6});
  }
}

TEST_CASE("rscale on both backends", "[cuda]") {
  for (RandomScale p : std::vector<RandomScale>{{2, 3, 9, 6, 1.5F},
                                                {1, 1, 6, 5, 1.2F},
                                                {3, 1, 1, 1, 1},
                                                {5, 1, 9, 9, 1},
                                                {20, 2, 9, 6, 2},
                                                {1, 2, 8, 7, 2.0F},
                                                {9, 3, 24, 16, 1.5F},
                                                {2, 40, 12, 8, 1.5F},
                                                {0, 3, 9, 6, 1.5F}})
    for (const bool training : {false, true}) {
      p.training = training;
      p.key = 77;
      p.first_image = 30;
      INFO(to_string(p.src()) << " to " << to_string(p.dst()) << (training ? " training" : ""));
      check_on_both({p, {}, {{}, {}, step_block(5)}, {}, 2e-6});
      check_on_both({p, {}, {{}, {}, step_block((std::uint64_t{1} << 33) + 7)}, {}, 2e-6});
    }
}

TEST_CASE("colour transforms on both backends", "[cuda]") {
  for (const Dims& dims : std::vector<Dims>{{2, 3, 5, 7}, {1, 3, 1, 1}, {4, 3, 16, 16}, {0, 3, 2, 2}}) {
    Values x = test_values(dims, 1);
    for (double& v : x) v = (v + 1) / 2;
    for (std::size_t i = 0; i + 9 < x.size(); i += 13) x[i] *= 0.01;  // dark: the line below the cube root
    check_on_both({ColorTransform{dims, ColorSpace::yuv, false}, {x}, {}, {}, 1e-6});
    for (const bool center : {false, true})
      check_on_both({ColorTransform{dims, ColorSpace::lab, center}, {x}, {}, {}, 1e-5});
  }
}
