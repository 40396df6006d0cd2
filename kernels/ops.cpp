#include "kernels/ops.h"

#include "convnet/base/crop.h"

namespace convnet {
namespace {

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

constexpr Access R = Access::read;
constexpr Access W = Access::write;
constexpr Access RW = Access::read_write;
constexpr std::int64_t kUnsized = 0;  // step block and costs: sized by the planner, not by the operation

template <class Op>
std::vector<Argument> forward_with_weights(const Op& op) {
  std::vector<Argument> args = {{"src", R, op.g.src()}, {"weights", R, op.g.weights()}};
  if (op.bias) args.push_back({"bias", R, {op.g.dst()[1]}});
  args.push_back({"dst", op.accumulate ? RW : W, op.g.dst()});
  return args;
}

template <class Op>
std::vector<Argument> backward_data(const Op& op) {
  return {{"diff_dst", R, op.g.dst()}, {"weights", R, op.g.weights()}, {"diff_src", W, op.g.src()}};
}

template <class Op>
std::vector<Argument> backward_weights(const Op& op) {
  std::vector<Argument> args = {
      {"src", R, op.g.src()}, {"diff_dst", R, op.g.dst()}, {"diff_weights", W, op.g.weights()}};
  if (op.bias) args.push_back({"diff_bias", W, {op.g.dst()[1]}});
  return args;
}

std::vector<Argument> src_to_dst(const Dims& src, const Dims& dst) {
  return {{"src", R, src}, {"dst", W, dst}};
}

/// Backward of an operation that reads its input again.
std::vector<Argument> from_src_and_diff(const Dims& src, const Dims& dst) {
  return {{"src", R, src}, {"diff_dst", R, dst}, {"diff_src", W, src}};
}

std::vector<Argument> sources(std::size_t count, const Dims& dims) {
  std::vector<Argument> args;
  for (std::size_t i = 0; i < count; ++i) args.push_back({"src_" + std::to_string(i), R, dims});
  return args;
}

Dims one_image(const Dims& dims) { return {dims.begin() + 1, dims.end()}; }

template <class Op>
std::vector<Argument> logreg_backward(const Op& op) {
  return {{"labels", R, {op.n, 1}, DataType::s32}, {"probs", R, {op.n, op.c}}, {"diff_src", W, {op.n, op.c}}};
}

/// Of costs with a label for every output.
template <class Op>
std::vector<Argument> cost_forward(const Op& op) {
  return {{"labels", R, {op.n, op.c}}, {"probs", R, {op.n, op.c}}, {"costs", RW, {kUnsized}, DataType::f64}};
}
template <class Op>
std::vector<Argument> cost_backward(const Op& op) {
  return {{"labels", R, {op.n, op.c}}, {"probs", R, {op.n, op.c}}, {"diff_src", W, {op.n, op.c}}};
}

}  // namespace

double ConvGeometry::flops() const {
  return 2.0 * static_cast<double>(n * k) * static_cast<double>(oh * ow) *
         static_cast<double>(element_count({c / groups, filter, filter}));
}

OpDesc::OpDesc() = default;
OpDesc::OpDesc(const OpDesc& other) = default;
OpDesc::OpDesc(OpDesc&& other) noexcept = default;
OpDesc& OpDesc::operator=(const OpDesc& other) = default;
OpDesc& OpDesc::operator=(OpDesc&& other) noexcept = default;
OpDesc::~OpDesc() = default;

std::vector<Argument> arguments(const OpDesc& desc) {
  const Argument step{"step", R, {kUnsized}, DataType::u8};
  const auto workspace = [](Access access, const PoolGeometry& g) {
    return Argument{"workspace", access, g.dst(), g.workspace_type()};
  };
  return std::visit(
      Overloaded{
          [](const ConvForward& op) { return forward_with_weights(op); },
          [](const InnerProductForward& op) { return forward_with_weights(op); },
          [](const ConvBackwardData& op) { return backward_data(op); },
          [](const InnerProductBackwardData& op) { return backward_data(op); },
          [](const ConvBackwardWeights& op) { return backward_weights(op); },
          [](const InnerProductBackwardWeights& op) { return backward_weights(op); },
          [&](const PoolForward& op) {
            std::vector<Argument> args = src_to_dst(op.g.src(), op.g.dst());
            if (op.keep_workspace) args.push_back(workspace(W, op.g));
            return args;
          },
          [&](const PoolBackward& op) {
            std::vector<Argument> args = {{"diff_dst", R, op.g.dst()}};
            if (op.g.keeps_workspace()) args.push_back(workspace(R, op.g));
            args.push_back({"diff_src", W, op.g.src()});
            return args;
          },
          [](const CrossMapNormForward& op) { return src_to_dst(op.p.dims(), op.p.dims()); },
          [](const CrossMapNormBackward& op) { return from_src_and_diff(op.p.dims(), op.p.dims()); },
          [](const NeuronForward& op) { return src_to_dst(op.dims, op.dims); },
          [](const NeuronBackward& op) {
            return std::vector<Argument>{{neuron_uses_output(op.f.kind) ? "dst" : "src", R, op.dims},
                                         {"diff_dst", R, op.dims},
                                         {"diff_src", W, op.dims}};
          },
          [&](const Dropout& op) {
            return std::vector<Argument>{{"src", R, op.dims}, {"dst", W, op.dims}, step};
          },
          [](const Scale& op) { return src_to_dst(op.dims, op.dims); },
          [](const SoftmaxForward& op) {
            return src_to_dst({op.n, op.c}, {op.n, op.c});
          },
          [](const SoftmaxBackward& op) {
            return std::vector<Argument>{
                {"dst", R, {op.n, op.c}}, {"diff_dst", R, {op.n, op.c}}, {"diff_src", W, {op.n, op.c}}};
          },
          [](const LogregForward& op) {
            return std::vector<Argument>{{"labels", R, {op.n, 1}, DataType::s32},
                                         {"probs", R, {op.n, op.c}},
                                         {"costs", RW, {kUnsized}, DataType::f64}};
          },
          [](const LogregBackward& op) { return logreg_backward(op); },
          [](const SoftmaxLogregBackward& op) { return logreg_backward(op); },
          [](const LoadImages& op) {
            std::vector<Argument> args;
            if (op.whole.empty())
              args.push_back({"src", R, op.from, op.source});
            else
              args.push_back({"src",
                              R,
                              {op.from[0], cropped_image_bytes(element_count(op.whole) * size_of(op.source))},
                              DataType::u8});
            if (op.mean) {
              Dims one = op.from;
              one[0] = 1;
              args.push_back({"mean", R, one});
            }
            args.push_back({"dst", W, op.dims});
            return args;
          },
          [](const LoadLabels& op) {
            return std::vector<Argument>{{"src", R, {op.n, 1}, DataType::s32},
                                         {"dst", W, {op.n, 1}, DataType::s32}};
          },
          [](const Reorder& op) {
            return std::vector<Argument>{{"src", R, op.from.dims, op.from.type},
                                         {"dst", W, op.to.dims, op.to.type}};
          },
          [](const Accumulate& op) {
            return std::vector<Argument>{{"src", R, op.dims}, {"dst", RW, op.dims}};
          },
          [](const FillZero& op) {
            return std::vector<Argument>{{"dst", W, op.what.dims, op.what.type}};
          },
          [&](const Update& op) {
            std::vector<Argument> args;
            for (const Update::Part& part : op.parts) {
              args.push_back({"weights", RW, {part.count}});
              args.push_back({"increment", RW, {part.count}});
              for (int i = 0; i < part.gradients; ++i) args.push_back({"gradient", R, {part.count}});
              if (part.accumulates) args.push_back({"accumulator", RW, {part.count}});
            }
            args.push_back(step);
            args.push_back({"broken", R, {kUnsized}, DataType::f64});
            args.push_back({"costs", RW, {kUnsized}, DataType::f64});
            return args;
          },
          [](const LocalForward& op) {
            std::vector<Argument> args = {{"src", R, op.g.src()}, {"weights", R, op.g.weights()}};
            if (op.bias) args.push_back({"bias", R, op.g.biases()});
            args.push_back({"dst", op.accumulate ? RW : W, op.g.dst()});
            return args;
          },
          [](const LocalBackwardData& op) { return backward_data(op); },
          [](const LocalBackwardWeights& op) {
            std::vector<Argument> args = {
                {"src", R, op.g.src()}, {"diff_dst", R, op.g.dst()}, {"diff_weights", W, op.g.weights()}};
            if (op.bias) args.push_back({"diff_bias", W, op.g.biases()});
            return args;
          },
          [](const AddBias& op) {
            return std::vector<Argument>{{"bias", R, one_image(op.dims)}, {"dst", RW, op.dims}};
          },
          [](const BiasBackward& op) {
            return std::vector<Argument>{{"diff_dst", R, op.dims}, {"diff_bias", W, one_image(op.dims)}};
          },
          [](const CrossMapPoolForward& op) { return src_to_dst(op.p.src(), op.p.dst()); },
          [](const CrossMapPoolBackward& op) { return from_src_and_diff(op.p.src(), op.p.dst()); },
          [](const WindowNormForward& op) { return src_to_dst(op.p.dims(), op.p.dims()); },
          [](const WindowNormBackward& op) { return from_src_and_diff(op.p.dims(), op.p.dims()); },
          [](const BatchNormMoments& op) {
            const Dims c = {op.dims[1]};
            return std::vector<Argument>{{"src", R, op.dims}, {"mean", W, c}, {"variance", W, c}};
          },
          [](const BatchNormForward& op) {
            const Dims c = {op.dims[1]};
            return std::vector<Argument>{{"src", R, op.dims}, {"mean", R, c},  {"variance", R, c},
                                         {"scale", R, c},     {"shift", R, c}, {"dst", W, op.dims}};
          },
          [](const BatchNormTrack& op) {
            const Dims c = {op.channels};
            return std::vector<Argument>{
                {"mean", R, c}, {"variance", R, c}, {"running_mean", RW, c}, {"running_variance", RW, c}};
          },
          [](const BatchNormBackwardWeights& op) {
            const Dims c = {op.dims[1]};
            return std::vector<Argument>{{"src", R, op.dims}, {"diff_dst", R, op.dims}, {"mean", R, c},
                                         {"variance", R, c},  {"diff_scale", W, c},     {"diff_shift", W, c}};
          },
          [](const BatchNormBackwardData& op) {
            const Dims c = {op.dims[1]};
            return std::vector<Argument>{{"src", R, op.dims},  {"diff_dst", R, op.dims}, {"mean", R, c},
                                         {"variance", R, c},   {"scale", R, c},          {"diff_scale", R, c},
                                         {"diff_shift", R, c}, {"diff_src", W, op.dims}};
          },
          [&](const NoisyRelu& op) {
            return std::vector<Argument>{{"src", R, op.dims}, {"dst", W, op.dims}, step};
          },
          [](const EltwiseSum& op) {
            std::vector<Argument> args = sources(op.coeffs.size(), op.dims);
            args.push_back({"dst", W, op.dims});
            return args;
          },
          [](const EltwiseMax& op) {
            std::vector<Argument> args = sources(static_cast<std::size_t>(op.inputs), op.dims);
            args.push_back({"dst", W, op.dims});
            return args;
          },
          [](const EltwiseMaxBackward& op) {
            std::vector<Argument> args = sources(static_cast<std::size_t>(op.inputs), op.dims);
            args.push_back({"diff_dst", R, op.dims});
            args.push_back({"diff_src", W, op.dims});
            return args;
          },
          [](const Concat& op) {
            std::vector<Argument> args;
            for (const Dims& dims : op.from) args.push_back({"src", R, dims});
            args.push_back({"dst", W, op.to});
            return args;
          },
          [](const Split& op) { return src_to_dst(op.from, op.to); },
          [](const GroupSumForward& op) {
            return src_to_dst({op.n, op.c}, {op.n, op.c / op.stride});
          },
          [](const GroupSumBackward& op) {
            return std::vector<Argument>{{"diff_dst", R, {op.n, op.c / op.stride}},
                                         {"diff_src", W, {op.n, op.c}}};
          },
          [](const SampleForward& op) { return src_to_dst(op.p.src(), op.p.dst()); },
          [](const SampleBackward& op) {
            return std::vector<Argument>{{"diff_dst", R, op.p.dst()}, {"diff_src", W, op.p.src()}};
          },
          [](const Blur& op) { return src_to_dst(op.dims, op.dims); },
          [](const Resize& op) { return src_to_dst(op.src(), op.dst()); },
          [&](const RandomScale& op) {
            return std::vector<Argument>{{"src", R, op.src()}, {"dst", W, op.dst()}, step};
          },
          [](const ColorTransform& op) { return src_to_dst(op.dims, op.dims); },
          [](const CrossentForward& op) { return cost_forward(op); },
          [](const CrossentBackward& op) { return cost_backward(op); },
          [](const SoftmaxCrossentBackward& op) { return cost_backward(op); },
          [](const BinaryCostForward& op) { return cost_forward(op); },
          [](const BinaryCostBackward& op) { return cost_backward(op); },
          [](const LogisticBinaryCostBackward& op) { return cost_backward(op); },
          [](const SquaresForward& op) {
            return std::vector<Argument>{{"src", R, op.dims}, {"costs", RW, {kUnsized}, DataType::f64}};
          },
          [](const SquaresBackward& op) {
            return std::vector<Argument>{{"src", R, op.dims}, {"diff_src", W, op.dims}};
          },
          [&](const Constrain& op) {
            std::vector<Argument> args = {{"weights", RW, op.what.dims}};
            if (op.when_due) args.push_back(step);
            return args;
          },
          [](const CopyRuns& op) {
            std::vector<Argument> args;
            for (std::int64_t count : op.counts) args.push_back({"src", R, {count}});
            for (std::int64_t count : op.counts) args.push_back({"dst", W, {count}});
            return args;
          },
          [](const AnyBroken& op) {
            std::vector<Argument> args(static_cast<std::size_t>(op.devices),
                                       Argument{"costs", R, {kUnsized}, DataType::f64});
            args.push_back({"broken", W, {1}, DataType::f64});
            return args;
          },
          [](const BatchNormMerge& op) {
            const Dims c = {op.channels};
            std::vector<Argument> args;
            for (std::size_t i = 0; i < op.values.size(); ++i) {
              args.push_back({"mean", R, c});
              args.push_back({"variance", R, c});
            }
            args.push_back({"mean", W, c});
            args.push_back({"variance", W, c});
            return args;
          }},
      desc);
}

std::string op_name(const OpDesc& desc) {
  return std::visit(
      Overloaded{
          [](const ConvForward& op) -> std::string { return op.relu ? "conv.forward+relu" : "conv.forward"; },
          [](const ConvBackwardData&) -> std::string { return "conv.backward_data"; },
          [](const ConvBackwardWeights&) -> std::string { return "conv.backward_weights"; },
          [](const InnerProductForward& op) -> std::string {
            return op.relu ? "inner_product.forward+relu" : "inner_product.forward";
          },
          [](const InnerProductBackwardData&) -> std::string { return "inner_product.backward_data"; },
          [](const InnerProductBackwardWeights&) -> std::string { return "inner_product.backward_weights"; },
          [](const PoolForward& op) -> std::string { return op.relu ? "pool.forward+relu" : "pool.forward"; },
          [](const PoolBackward&) -> std::string { return "pool.backward"; },
          [](const CrossMapNormForward&) -> std::string { return "cmrnorm.forward"; },
          [](const CrossMapNormBackward&) -> std::string { return "cmrnorm.backward"; },
          [](const NeuronForward&) -> std::string { return "neuron.forward"; },
          [](const NeuronBackward&) -> std::string { return "neuron.backward"; },
          [](const Dropout&) -> std::string { return "dropout"; },
          [](const Scale&) -> std::string { return "scale"; },
          [](const SoftmaxForward&) -> std::string { return "softmax.forward"; },
          [](const SoftmaxBackward&) -> std::string { return "softmax.backward"; },
          [](const LogregForward&) -> std::string { return "logreg.forward"; },
          [](const LogregBackward&) -> std::string { return "logreg.backward"; },
          [](const SoftmaxLogregBackward&) -> std::string { return "softmax+logreg.backward"; },
          [](const LoadImages&) -> std::string { return "load"; },
          [](const LoadLabels&) -> std::string { return "load"; },
          [](const Reorder&) -> std::string { return "reorder"; },
          [](const Accumulate&) -> std::string { return "accumulate"; },
          [](const FillZero&) -> std::string { return "zero"; },
          [](const Update&) -> std::string { return "update"; },
          [](const LocalForward& op) -> std::string {
            return op.relu ? "local.forward+relu" : "local.forward";
          },
          [](const LocalBackwardData&) -> std::string { return "local.backward_data"; },
          [](const LocalBackwardWeights&) -> std::string { return "local.backward_weights"; },
          [](const AddBias&) -> std::string { return "bias.forward"; },
          [](const BiasBackward&) -> std::string { return "bias.backward"; },
          [](const CrossMapPoolForward&) -> std::string { return "cmpool.forward"; },
          [](const CrossMapPoolBackward&) -> std::string { return "cmpool.backward"; },
          [](const WindowNormForward& op) -> std::string {
            return op.p.contrast ? "cnorm.forward" : "rnorm.forward";
          },
          [](const WindowNormBackward& op) -> std::string {
            return op.p.contrast ? "cnorm.backward" : "rnorm.backward";
          },
          [](const BatchNormMoments&) -> std::string { return "bnorm.moments"; },
          [](const BatchNormForward& op) -> std::string {
            return op.relu ? "bnorm.forward+relu" : "bnorm.forward";
          },
          [](const BatchNormTrack&) -> std::string { return "bnorm.track"; },
          [](const BatchNormBackwardWeights&) -> std::string { return "bnorm.backward_weights"; },
          [](const BatchNormBackwardData&) -> std::string { return "bnorm.backward_data"; },
          [](const NoisyRelu&) -> std::string { return "nrelu.forward"; },
          [](const EltwiseSum&) -> std::string { return "eltsum"; },
          [](const EltwiseMax&) -> std::string { return "eltmax.forward"; },
          [](const EltwiseMaxBackward&) -> std::string { return "eltmax.backward"; },
          [](const Concat&) -> std::string { return "concat"; },
          [](const Split&) -> std::string { return "split"; },
          [](const GroupSumForward&) -> std::string { return "sum.forward"; },
          [](const GroupSumBackward&) -> std::string { return "sum.backward"; },
          [](const SampleForward&) -> std::string { return "sample.forward"; },
          [](const SampleBackward&) -> std::string { return "sample.backward"; },
          [](const Blur&) -> std::string { return "blur"; },
          [](const Resize&) -> std::string { return "resize"; },
          [](const RandomScale&) -> std::string { return "rscale"; },
          [](const ColorTransform& op) -> std::string {
            return op.to == ColorSpace::yuv ? "rgb2yuv" : "rgb2lab";
          },
          [](const CrossentForward&) -> std::string { return "crossent.forward"; },
          [](const CrossentBackward&) -> std::string { return "crossent.backward"; },
          [](const SoftmaxCrossentBackward&) -> std::string { return "softmax+crossent.backward"; },
          [](const BinaryCostForward& op) -> std::string {
            return op.per_class ? "dce.forward" : "bce.forward";
          },
          [](const BinaryCostBackward&) -> std::string { return "bce.backward"; },
          [](const LogisticBinaryCostBackward&) -> std::string { return "logistic+bce.backward"; },
          [](const SquaresForward&) -> std::string { return "sum2.forward"; },
          [](const SquaresBackward&) -> std::string { return "sum2.backward"; },
          [](const Constrain&) -> std::string { return "constrain"; },
          [](const AnyBroken&) -> std::string { return "any_broken"; },
          [](const CopyRuns&) -> std::string { return "copy"; },
          [](const BatchNormMerge&) -> std::string { return "bnorm.merge"; }},
      desc);
}

double op_flops(const OpDesc& desc) {
  return std::visit(
      [](const auto& op) -> double {
        if constexpr (requires { op.g.flops(); }) {
          return op.g.flops();
        } else {
          return 0;
        }
      },
      desc);
}

}  // namespace convnet
