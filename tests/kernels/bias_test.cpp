#include "tests/catch.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/run_op.h"

namespace convnet::bias_test {
using namespace test;

namespace {

/// Elements of one image.
std::size_t image_size(const Dims& dims) { return static_cast<std::size_t>(dims[1] * dims[2] * dims[3]); }

}  // namespace

TEST_CASE("a bias is added to every image", "[bias]") {
  for (const Dims& dims : bias_shapes())
    for (int block : {1, 4, 8, 16}) {
      INFO(to_string(dims) << " block " << block);
      const TensorDesc dst = activations(dims, block);
      const auto bias = random_values(dims[1] * dims[2] * dims[3], 1);
      const auto before = random_values(element_count(dims), 2);
      const auto op = cpu::prepare(AddBias{dims}, {std::nullopt, dst});
      CHECK(op->args()[0].plain());
      CHECK(same_layout(op->args()[1], dst));
      OpRun run(op);
      run.set_raw(0, bias);
      run.set(1, before);
      run.run();
      std::vector<float> expected = before;
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += bias[i % image_size(dims)];
      CHECK(run.get(1) == expected);
      CHECK(run.padding_is_zero(1));
    }
}

TEST_CASE("the gradient of a bias is the sum over images", "[bias]") {
  for (const Dims& dims : bias_shapes())
    for (int block : {1, 4, 8, 16}) {
      INFO(to_string(dims) << " block " << block);
      const TensorDesc diff_dst = activations(dims, block);
      const auto diff = random_values(element_count(dims), 3);
      const auto op = cpu::prepare(BiasBackward{dims}, {diff_dst});
      CHECK(same_layout(op->args()[0], diff_dst));
      CHECK(op->args()[1].plain());
      OpRun run(op);
      run.set(0, diff);
      run.run(1);
      // By increasing n, in fp32.
      std::vector<float> expected(image_size(dims), 0.0F);
      for (std::size_t i = 0; i < diff.size(); ++i) expected[i % expected.size()] += diff[i];
      CHECK(run.raw<float>(1, expected.size()) == expected);
      run.run(3);
      CHECK(run.raw<float>(1, expected.size()) == expected);
    }
}

TEST_CASE("biases of flat vectors", "[bias]") {
  OpRun add(cpu::prepare(AddBias{{2, 3}}, {}));
  add.set_raw<float>(0, {1, 2, 3});
  add.set_raw<float>(1, {1, 1, 1, 5, NAN, 5});
  add.run();
  const auto dst = add.raw<float>(1, 6);
  CHECK(dst[0] == 2);
  CHECK(dst[3] == 6);
  CHECK(std::isnan(dst[4]));
  CHECK(dst[5] == 8);
  OpRun sum(cpu::prepare(BiasBackward{{2, 3}}, {}));
  sum.set_raw<float>(0, {1, 2, 3, 4, 5, 6});
  sum.run();
  CHECK(sum.raw<float>(1, 3) == std::vector<float>{5, 7, 9});
}

TEST_CASE("no images give a bias no gradient", "[bias]") {
  const Dims dims = {0, 20, 3, 3};
  for (int block : {1, 16}) {
    OpRun add(cpu::prepare(AddBias{dims}, {std::nullopt, activations(dims, block)}));
    add.run();
    OpRun sum(cpu::prepare(BiasBackward{dims}, {activations(dims, block)}));
    sum.run();
    CHECK(sum.raw<float>(1, 180) == std::vector<float>(180, 0.0F));
  }
}

}  // namespace convnet::bias_test
