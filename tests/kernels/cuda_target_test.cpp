// Plans for GPUs are made in every build, with or without CUDA.
#include "convnet/base/error.h"
#include "kernels/target.h"
#include "tests/catch.h"

namespace convnet::cuda_target_test {
TEST_CASE("the CUDA target gives forms without a device", "[kernels]") {
  ConvGeometry g;
  g.n = 8, g.c = 3, g.h = g.w = g.oh = g.ow = 16, g.k = 32, g.filter = 5, g.pad = 2;
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
    const auto target = make_cuda_target(precision);
    CHECK(target->name() == "cuda");
    CHECK(target->precision() == to_string(precision));
    CHECK(target->runs_streams_together());
    CHECK(target->joined_update_bytes() == 4 << 20);
    const OpForm conv = target->form(ConvForward{g}, LayoutHints(4));
    const DataType type = precision == Precision::bf16 ? DataType::bf16 : DataType::f32;
    REQUIRE(conv.args.size() == 4);
    for (const std::size_t i : {0, 1, 3}) {
      CHECK(conv.args[i].layout_name() == "channels last");
      CHECK(conv.args[i].type == type);
    }
    CHECK(conv.args[2].plain());
    CHECK(conv.args[2].type == type);
    CHECK(conv.workspace_bytes > 0);
    CHECK(conv.algorithm.empty());
    // The next operation reads the output as it lies.
    const OpForm relu = target->form(NeuronForward{{NeuronKind::relu}, g.dst()}, {conv.args[3], {}});
    for (const TensorDesc& arg : relu.args) {
      CHECK(same_layout(arg, conv.args[3]));
      CHECK(arg.type == type);
    }
    CHECK(relu.algorithm == "own");
  }
}

TEST_CASE("the CUDA target reports what its kernels do not take without a device", "[kernels]") {
  const auto target = make_cuda_target(Precision::fp32);
  const auto form = [&](const OpDesc& op) { return target->form(op, LayoutHints(arguments(op).size())); };
  const Dims dims = {2, 3, 4, 5};
  CHECK_NOTHROW(form(EltwiseMax{dims, 64}));
  CHECK_NOTHROW(form(EltwiseMaxBackward{dims, 64, 63}));
  CHECK_THROWS_WITH(form(EltwiseMax{dims, 65}), "eltmax.forward: more than 64 inputs");
  CHECK_THROWS_WITH(form(EltwiseMaxBackward{dims, 65, 0}), "eltmax.backward: more than 64 inputs");
  const auto reorder = [&](DataType from, DataType to) {
    return form(Reorder{{dims, from, nullptr}, {dims, to, nullptr}});
  };
  CHECK_NOTHROW(reorder(DataType::f32, DataType::bf16));
  CHECK_NOTHROW(reorder(DataType::bf16, DataType::f32));
  CHECK_NOTHROW(reorder(DataType::u8, DataType::u8));
  CHECK_THROWS_AS(reorder(DataType::u8, DataType::f32), DeviceError);
  CHECK_THROWS_WITH(reorder(DataType::f32, DataType::f64), "reorder: from f32 to f64");
}

TEST_CASE("the CUDA target reserves memory between launches where one takes too few arguments", "[kernels]") {
  const auto target = make_cuda_target(Precision::fp32);
  const auto workspace = [&](const OpDesc& op) {
    return target->form(op, LayoutHints(arguments(op).size())).workspace_bytes;
  };
  // A count, a mean and squares for each channel.
  CHECK(workspace(BatchNormMerge{5, std::vector<std::int64_t>(64, 7)}) == 0);
  CHECK(workspace(BatchNormMerge{5, std::vector<std::int64_t>(65, 7)}) == 5 * 3 * 8);
  // A sum for each weight of a part that has more gradients.
  const auto part = [](std::int64_t count, int gradients) {
    return Update::Part{.count = count, .gradients = gradients};
  };
  CHECK(workspace(Update{{part(10, 192)}}) == 0);
  CHECK(workspace(Update{{part(10, 193), part(20, 1), part(30, 200)}}) == (10 + 30) * 4);
}

}  // namespace convnet::cuda_target_test
