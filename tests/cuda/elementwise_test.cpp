#include "kernels/cuda/layout.h"
#include "tests/catch.h"
#include "tests/cuda/both_backends.h"

using namespace convnet;
using namespace convnet::test;

TEST_CASE("neurons, scaling and sums on both backends", "[cuda]") {
  for (const Dims& dims : {Dims{3, 5, 4, 6}, Dims{7, 13}, Dims{1, 1}, Dims{0, 3, 4, 4}}) {
    for (int kind = 0; kind <= static_cast<int>(NeuronKind::nrelu); ++kind) {
      const Neuron f{static_cast<NeuronKind>(kind), 1.5F, 0.7F};
      Values x = test_values(dims, 1);
      // Of these the square root and the logarithm are numbers.
      for (double& v : x) v = f.kind == NeuronKind::sqrt || f.kind == NeuronKind::log ? std::abs(v) : v;
      check_on_both({NeuronForward{f, dims}, {x}});
      check_on_both({NeuronForward{f, dims}, {x}, {}, 0});
      check_on_both({NeuronBackward{f, dims}, {x}});
      check_on_both({NeuronBackward{f, dims}, {x}, {}, 1});
    }
    check_on_both({Scale{dims, 0.3F}});
    check_on_both({Scale{dims, -2}, {}, {}, 0});
    check_on_both({Accumulate{dims}});
  }
}

TEST_CASE("copies and zeros on both backends", "[cuda]") {
  check_on_both({CopyRuns{{5, 1, 700}}, {}, {}, {}, 0});
  check_on_both({FillZero{{{3, 5, 4, 6}, DataType::f32, nullptr}}, {}, {}, {}, 0});
  check_on_both({FillZero{{{3, 5}, DataType::u8, nullptr}}, {}, {}, {}, 0});
}

TEST_CASE("layouts of the CUDA backend hold the same values", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::fp32);
  const Dims dims{2, 3, 4, 5};
  const TensorDesc plain{dims, DataType::f32, nullptr}, last = cuda::channels_last(dims);
  REQUIRE_FALSE(last.plain());
  std::vector<float> values(120), moved(120);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  backend->relay(plain, reinterpret_cast<const std::byte*>(values.data()), last,
                 reinterpret_cast<std::byte*>(moved.data()));
  CHECK(moved[0] == 0);
  CHECK(moved[1] == 20);  // the second channel of the first pixel
  CHECK(moved[3] == 1);   // the second pixel
  check_on_both({Reorder{plain, plain}});
}
