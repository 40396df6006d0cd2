#include <cmath>

#include "kernels/cuda/chunked.h"
#include "tests/catch.h"
#include "tests/cuda/run_prepared.h"

using namespace convnet;
using namespace convnet::test;

namespace {

/// n images of c maps, h x w, k filters; the output side follows the ceil rule unless `floor`.
ConvGeometry conv(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w, std::int64_t k,
                  std::int64_t filter, std::int64_t stride = 1, std::int64_t pad = 0, std::int64_t groups = 1,
                  bool floor = false) {
  ConvGeometry g;
  g.n = n, g.c = c, g.h = h, g.w = w, g.k = k;
  g.filter = filter, g.stride = stride, g.pad = pad, g.groups = groups;
  const auto side = [&](std::int64_t in) {
    return (2 * pad + in - filter + (floor ? 0 : stride - 1)) / stride + 1;
  };
  g.oh = side(h), g.ow = side(w);
  return g;
}

void check_all(const ConvGeometry& g, double tolerance = 1e-5) {
  for (const bool bias : {false, true}) {
    check_on_both({.op = ConvForward{g, bias, false, false}, .tolerance = tolerance});
    check_on_both({.op = ConvBackwardWeights{g, bias}, .tolerance = tolerance});
  }
  check_on_both({.op = ConvBackwardData{g}, .tolerance = tolerance});
}

}  // namespace

TEST_CASE("convolutions on both backends", "[cuda]") {
  check_all(conv(1, 1, 1, 1, 1, 1));
  check_all(conv(3, 1, 7, 5, 1, 3));
  check_all(conv(1, 3, 7, 5, 16, 3, 1, 1));
  check_all(conv(3, 3, 9, 8, 20, 5, 2, 2));
  check_all(conv(3, 16, 7, 5, 32, 3, 2, 1));
  check_all(conv(2, 20, 8, 8, 50, 5));
  check_all(conv(3, 36, 5, 5, 40, 5, 1, 2));
  check_all(conv(2, 16, 6, 6, 10, 6));              // one output pixel
  check_all(conv(2, 32, 6, 7, 64, 3, 1, 1), 2e-4);  // the CPU's is Winograd's
}

TEST_CASE("convolutions of single pixels on both backends", "[cuda]") {
  check_all(conv(1, 50, 5, 7, 20, 1));
  check_all(conv(4, 8, 1, 1, 6, 1));
  check_all(conv(2, 6, 5, 7, 4, 1, 1, 0, 2));
  check_all(conv(2, 8, 5, 7, 4, 1, 2));     // not all pixels
  check_all(conv(2, 5, 4, 4, 3, 1, 1, 1));  // a border of windows without pixels
}

TEST_CASE("convolution borders on both backends: overhang, wide padding, unseen pixels", "[cuda]") {
  check_all(conv(2, 3, 32, 32, 16, 11, 4));   // the last window hangs over by 3, as AlexNet's on 224
  check_all(conv(2, 16, 10, 9, 16, 3, 4));    // overhang of 1 and 2
  check_all(conv(2, 3, 5, 5, 16, 3, 1, 3));   // padding as wide as the filter: outputs that see only zeros
  check_all(conv(1, 16, 4, 4, 16, 3, 2, 4));  // wider
  check_all(conv(2, 3, 12, 11, 16, 3, 4, 0, 1, true));  // the last pixels are in no window
  check_all(conv(2, 16, 12, 11, 16, 3, 4, 1, 1, true));
}

TEST_CASE("grouped convolutions on both backends", "[cuda]") {
  check_all(conv(2, 32, 7, 5, 64, 3, 1, 1, 2));
  check_all(conv(2, 6, 7, 5, 4, 3, 1, 1, 2));
  check_all(conv(1, 16, 6, 6, 16, 3, 1, 1, 16));
  check_all(conv(1, 24, 6, 6, 40, 5, 2, 2, 4));
}

TEST_CASE("convolutions on both backends fuse ReLU and accumulation", "[cuda]") {
  for (const ConvGeometry& g :
       {conv(3, 3, 7, 5, 20, 3, 1, 1), conv(2, 16, 7, 5, 32, 5, 2, 2), conv(2, 6, 7, 5, 4, 3, 1, 1, 2),
        conv(2, 6, 7, 5, 4, 1), conv(2, 6, 7, 5, 4, 1, 1, 0, 2)}) {
    for (const bool accumulate : {false, true})
      for (const bool relu : {false, true}) check_on_both({ConvForward{g, true, accumulate, relu}});
    check_on_both({ConvForward{g, false, true, true}});
  }
}

// The CPU's are not compared: their fused relu loses NaN.
TEST_CASE("convolutions of the CUDA backend keep NaN through relu", "[cuda]") {
  const ConvGeometry g = conv(2, 16, 7, 5, 32, 3, 1, 1);
  Values src = test_values(g.src(), 1);
  src[0] = std::nan("");
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
    const auto backend = make_cuda_backend(precision);
    for (const bool bias : {false, true}) {
      const ConvForward op{g, bias, false, true};
      const auto prepared = backend->prepare(op, LayoutHints(arguments(op).size()));
      INFO(to_string(precision) << " " << prepared->algorithm());
      const Values dst = run_prepared(*backend, op, *prepared, {src}).back();
      CHECK(std::isnan(dst[0]));
      CHECK(std::isnan(dst[static_cast<std::size_t>(g.oh * g.ow + 1)]));  // beside it, in another map
      CHECK_FALSE(std::isnan(dst.back()));                                // of the other image
    }
  }
}

TEST_CASE("convolutions of no images on both backends", "[cuda]") {
  check_all(conv(0, 6, 7, 5, 4, 3, 1, 1, 2));
  check_all(conv(0, 3, 7, 5, 4, 1));
}

TEST_CASE("convolutions by matrix products in chunks of images", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::fp32);
  const cuda::Context context{Precision::fp32, nullptr};
  for (const ConvGeometry& g :
       {conv(5, 6, 5, 4, 4, 3, 1, 1, 2), conv(5, 8, 5, 4, 4, 3, 1, 1), conv(5, 8, 5, 4, 4, 1)}) {
    const std::int64_t one = g.oh * g.ow * g.c * g.filter * g.filter * size_of(DataType::f32);
    const auto check = [&](const auto& op) {
      for (const bool last : {false, true}) {
        const OpForm form = backend->target().form(op, hints_for(op, last));
        const auto prepare = [&](std::int64_t most) {
          return cuda::prepare_in_chunks(op, form, context, most);
        };
        const Results expected = run_prepared(*backend, op, *prepare(cuda::kMostColumnBytes));
        for (const std::int64_t images : {0, 1, 2, 3}) {
          const auto prepared = prepare(images * one);
          const Results actual = run_prepared(*backend, op, *prepared);
          for (std::size_t i = 0; i < actual.size(); ++i)
            CHECK(relative_error(actual[i], expected[i]) <= 1e-5);
        }
      }
    };
    check(ConvForward{g, true, true, true});
    check(ConvBackwardData{g});
    check(ConvBackwardWeights{g, true});
  }
}

TEST_CASE("convolutions read maps that must lie plain", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::fp32);
  const ConvGeometry g = conv(2, 8, 5, 4, 4, 1);
  const auto forward = backend->prepare(ConvForward{g}, hints_for(ConvForward{g}, false));
  CHECK(forward->args()[0].plain());
  CHECK_FALSE(forward->args()[3].plain());
  CHECK(backend->prepare(ConvBackwardData{g}, hints_for(ConvBackwardData{g}, false))->args()[2].plain());
}
