// Operations whose activations are stored as bf16, beside the CPU's in fp32 on the same (rounded) numbers.
#include <algorithm>

#include "tests/catch.h"
#include "tests/cuda/run_prepared.h"

using namespace convnet;
using namespace convnet::test;

namespace {

/// A rounding of the results, or of what they are sums of.
constexpr double kTolerance = 6e-3;

void check(OpDesc op, std::vector<Values> inputs = {}, std::optional<std::size_t> in_place = {},
           std::vector<std::vector<std::byte>> raw = {}, double tolerance = kTolerance) {
  OpCase c{std::move(op), std::move(inputs), std::move(raw), in_place, tolerance};
  c.bf16 = true;
  BothBackends().check(c);
}

}  // namespace

TEST_CASE("convolutions of bf16 numbers", "[cuda][cudnn]") {
  for (const ConvGeometry& g :
       {conv(3, 3, 7, 6, 16, 3, 1, 1), conv(2, 16, 7, 6, 20, 5, 2, 2), conv(2, 8, 7, 6, 4, 1),
        conv(2, 6, 7, 6, 4, 3, 1, 1, 2), conv(0, 3, 7, 6, 8, 3, 1, 1)}) {
    for (const bool relu : {false, true}) check(ConvForward{g, true, false, relu});
    check(ConvForward{g, false, true, false});
    check(ConvBackwardData{g});
    for (const bool bias : {false, true}) check(ConvBackwardWeights{g, bias});
  }
}

TEST_CASE("inner products of bf16 numbers", "[cuda]") {
  for (const InnerProductGeometry& g :
       {InnerProductGeometry{5, 130, 67}, {128, 20, 10}, {4, 5, 3, 6}, {0, 5, 7}}) {
    for (const bool relu : {false, true}) check(InnerProductForward{g, true, false, relu});
    check(InnerProductForward{g, false, true, false});
    check(InnerProductBackwardData{g});
    for (const bool bias : {false, true}) check(InnerProductBackwardWeights{g, bias});
  }
}

TEST_CASE("locally-connected layers of bf16 numbers", "[cuda]") {
  for (const LocalGeometry& g : local_geometries()) {
    for (const bool accumulate : {false, true}) check(LocalForward{g, !accumulate, accumulate, accumulate});
    check(LocalBackwardData{g});
    for (const bool bias : {false, true}) check(LocalBackwardWeights{g, bias});
  }
  const LocalGeometry empty = local({0, 20, 6, 4}, 18, 3, 1, 1);
  check(LocalForward{empty});
  check(LocalBackwardData{empty});
  check(LocalBackwardWeights{empty});
}

TEST_CASE("costs, sums of features, biases of elements and scaling read and write bf16 numbers", "[cuda]") {
  BothBackends both;
  for (OpCase c : cost_cases()) {
    if (element_count(arguments(c.op)[1].dims) > 1000) continue;  // slow in threads
    c.bf16 = true;
    c.tolerance = std::max(c.tolerance, kTolerance);
    both.check(c);
  }
  for (const Dims& dims : bias_shapes()) check(AddBias{dims});
  for (const Dims& dims : {Dims{3, 5, 4, 6}, Dims{2, 8, 7, 5}, Dims{4, 7}}) {
    check(Scale{dims, 0.7F});
    check(NeuronForward{{NeuronKind::logistic}, dims});
    // Outputs near 0 and 1 would be rounded to them.
    check(NeuronBackward{{NeuronKind::logistic}, dims},
          {Values(static_cast<std::size_t>(element_count(dims)), 0.25)});
  }
}

TEST_CASE("gradients of what a product makes are bf16, and probabilities are f32", "[cuda]") {
  const auto target = make_cuda_target(Precision::bf16);
  const auto types = [&](const OpDesc& op, const std::vector<std::size_t>& rounded) {
    const std::vector<Argument> args = arguments(op);
    LayoutHints hints(args.size());
    for (const std::size_t i : rounded) hints[i] = TensorDesc{args[i].dims, DataType::bf16, nullptr};
    std::vector<DataType> given;
    for (const TensorDesc& tensor : target->form(op, hints).args) given.push_back(tensor.type);
    return given;
  };
  constexpr DataType f32 = DataType::f32, bf16 = DataType::bf16, f64 = DataType::f64;
  using Types = std::vector<DataType>;
  const Dims dims = {4, 6};
  const Neuron logistic{NeuronKind::logistic};
  CHECK(types(NeuronForward{logistic, dims}, {0}) == Types{bf16, f32});
  CHECK(types(NeuronForward{logistic, dims}, {0, 1}) == Types{bf16, f32});
  CHECK(types(NeuronBackward{logistic, dims}, {}) == Types{f32, f32, bf16});
  CHECK(types(SoftmaxBackward{4, 6}, {}) == Types{f32, f32, bf16});
  CHECK(types(SoftmaxCrossentBackward{4, 6}, {}) == Types{f32, f32, bf16});
  CHECK(types(LogisticBinaryCostBackward{4, 6}, {}) == Types{f32, f32, bf16});
  CHECK(types(CrossentBackward{4, 6}, {}) == Types{f32, f32, f32});
  // Outputs of any layer.
  CHECK(types(BinaryCostForward{4, 6}, {1}) == Types{f32, bf16, f64});
  CHECK(types(BinaryCostForward{4, 6}, {}) == Types{f32, f32, f64});
  CHECK(types(BinaryCostBackward{4, 6}, {1}) == Types{f32, bf16, bf16});
  CHECK(types(BinaryCostBackward{4, 6}, {2}) == Types{f32, f32, f32});
  CHECK(types(AverageViews{4, 6, 2}, {0}) == Types{bf16, f32});
  CHECK(types(SquaresForward{dims}, {0}) == Types{bf16, f64});
  CHECK(types(SquaresBackward{dims}, {0}) == Types{bf16, bf16});
  CHECK(types(Scale{dims, 2}, {0}) == Types{bf16, bf16});
  // A sum may be f32 where what is added is not.
  CHECK(types(Accumulate{dims}, {0}) == Types{bf16, f32});
  CHECK(types(Accumulate{dims}, {1}) == Types{f32, bf16});
  const LocalGeometry g = local({2, 3, 4, 4}, 5, 3, 1, 1);
  CHECK(types(LocalForward{g, true}, {}) == Types{bf16, bf16, f32, bf16});
  CHECK(types(LocalBackwardData{g}, {}) == Types{bf16, bf16, bf16});
  CHECK(types(LocalBackwardWeights{g, true}, {}) == Types{bf16, bf16, f32, f32});
  CHECK(types(ConvBackwardWeights{conv(2, 3, 4, 4, 5, 3, 1, 1), true}, {}) == Types{bf16, bf16, bf16, f32});
}

TEST_CASE("sums that are accumulated keep their type, whatever is added", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::bf16);
  const Accumulate op{{5, 13}};
  for (const DataType added : {DataType::f32, DataType::bf16})
    for (const DataType sum : {DataType::f32, DataType::bf16}) {
      const auto prepared = prepared_for_test(
          *backend, op, {TensorDesc{op.dims, added, nullptr}, TensorDesc{op.dims, sum, nullptr}});
      const std::vector<Values> inputs = stored_inputs(op, *prepared);
      CHECK(relative_error(run_prepared(*backend, op, *prepared, inputs)[1], run_plain(op, inputs)[1]) <=
            (sum == DataType::f32 ? 1e-6 : kTolerance));
    }
}

TEST_CASE("a softmax reads bf16 numbers, and its gradient is bf16", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::bf16);
  const SoftmaxForward forward{5, 13};
  const TensorDesc logits{{5, 13}, DataType::bf16, nullptr};
  const auto softmax = prepared_for_test(*backend, forward, {logits, std::nullopt});
  CHECK(softmax->args()[0].type == DataType::bf16);
  CHECK(softmax->args()[1].type == DataType::f32);
  const std::vector<Values> inputs = stored_inputs(forward, *softmax);
  CHECK(relative_error(run_prepared(*backend, forward, *softmax, inputs)[1], run_plain(forward, inputs)[1]) <
        1e-6);
  CHECK(prepared_for_test(*backend, forward, LayoutHints(2))->args()[0].type == DataType::f32);
  const SoftmaxLogregBackward backward{5, 13, 0.7F};
  const auto gradient = prepared_for_test(*backend, backward, LayoutHints(arguments(backward).size()));
  CHECK(gradient->args().back().type == DataType::bf16);
}

TEST_CASE("element-wise operations, pooling, norms and dropout keep bf16 numbers", "[cuda]") {
  const auto cuda = make_cuda_backend(Precision::bf16);
  for (const Dims& dims : {Dims{3, 5, 4, 6}, Dims{2, 8, 7, 5}}) {
    check(NeuronForward{{NeuronKind::tanh, 1.5F, 0.7F}, dims});
    check(NeuronForward{{NeuronKind::relu}, dims}, {}, 0);
    check(NeuronBackward{{NeuronKind::relu}, dims}, {}, 1);
    check(Accumulate{dims});
    check(EltwiseSum{dims, {1, -0.5F, 2}});
    check(EltwiseMax{dims, 3});
    for (const std::int64_t index : {0, 1, 2}) check(EltwiseMaxBackward{dims, 3, index});
    const Values variance(static_cast<std::size_t>(dims[1]), 0.7);
    check(BatchNormMoments{dims});
    for (const Neuron& neuron : applied_neurons()) {
      check(BatchNormForward{dims, 1e-3F, neuron}, {{}, {}, variance});
      check(BatchNormBackwardWeights{dims, 1e-3F, neuron}, {{}, {}, {}, variance});
      check(BatchNormBackwardData{dims, element_count(dims) / dims[1], 1e-3F, neuron},
            {{}, {}, {}, variance});
    }
    for (const PoolKind kind : {PoolKind::max, PoolKind::average, PoolKind::max_abs}) {
      const PoolGeometry g = pool(kind, dims, 3, 2);
      check(PoolForward{g, g.keeps_workspace()});
      if (g.keeps_workspace()) check(PoolForward{g, true, true});
      std::vector<Values> inputs = {{}};
      if (g.keeps_workspace())
        inputs.emplace_back(static_cast<std::size_t>(element_count(g.dst())), 4.0);  // the window's centre
      check(PoolBackward{g}, inputs);
    }
    const CrossMapNorm norm{dims[0], dims[1], dims[2], dims[3], 5, false, 0.5F, 0.75F, 1};
    check(CrossMapNormForward{norm});
    check(CrossMapNormBackward{norm});
    for (const CrossMapNorm& wide :
         {CrossMapNorm{dims[0], dims[1], dims[2], dims[3], 3, true, 0.5F, 0.75F, 1},
          CrossMapNorm{dims[0], dims[1], dims[2], dims[3], 12, false, 0.5F, 0.75F, 1}}) {
      check(CrossMapNormForward{wide});
      check(CrossMapNormBackward{wide});
    }
    for (const std::int64_t size : {3, 7})
      for (const bool contrast : {false, true}) {
        const WindowNorm window{dims[0], dims[1], dims[2], dims[3], size, contrast, 0.5F, 0.75F, 1};
        check(WindowNormForward{window});
        check(WindowNormBackward{window});
      }
    for (const bool mask : {false, true})
      for (const bool sum : {false, true}) {
        if (!mask && !sum) continue;
        // The sums are those of rounded gradients.
        for (const Neuron& neuron : applied_neurons())
          check(BatchNormBackwardWeights{dims, 1e-3F, neuron, sum, mask}, {{}, {}, {}, variance}, 1, {},
                2 * kTolerance);
      }
    check(BiasBackward{dims});
    const CrossMapPool maps{dims[0], dims[1], dims[2], dims[3], 3, 2, 2, -1};
    check(CrossMapPoolForward{maps});
    check(CrossMapPoolBackward{maps});
    for (const DropUnit unit : {DropUnit::value, DropUnit::map, DropUnit::image})
      check(Dropout{dims, 0.6F, 1 / 0.6F, 77, 0, 0, unit}, {}, {}, {{}, {}, step_block(5)});
    check(NoisyRelu{dims, 77}, {}, {}, {{}, {}, step_block(5)});
    // They follow what they are given.
    for (const DataType type : {DataType::f32, DataType::bf16}) {
      const LayoutHints hints(2, cuda::channels_last(dims, type));
      std::vector<OpDesc> ops = {NeuronForward{{NeuronKind::relu}, dims}, Dropout{dims}, NoisyRelu{dims}};
      if (dims[1] % 4 == 0) ops.emplace_back(CrossMapNormForward{norm});
      for (const OpDesc& op : ops) {
        const auto prepared = prepared_for_test(*cuda, op, hints);
        INFO(op_name(op));
        CHECK(prepared->args()[0].type == type);
        CHECK(prepared->args()[1].type == type);
      }
    }
  }
}
