// Plans for GPUs are made in every build, with or without CUDA.
#include "kernels/target.h"
#include "tests/catch.h"

using namespace convnet;

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
    CHECK(conv.args[2].type == DataType::f32);
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
