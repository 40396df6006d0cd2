#include "kernels/ops.h"

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

}  // namespace

double ConvGeometry::flops() const {
  return 2.0 * static_cast<double>(n * k) * static_cast<double>(oh * ow) *
         static_cast<double>(c / groups * filter * filter);
}

std::vector<Argument> arguments(const OpDesc& desc) {
  const Argument step{"step", R, {kUnsized}, DataType::u8};
  const auto workspace = [](Access access, const PoolGeometry& g) {
    return Argument{"workspace", access, g.dst(), g.workspace_type()};
  };
  return std::visit(
      Overloaded{[](const ConvForward& op) { return forward_with_weights(op); },
                 [](const InnerProductForward& op) { return forward_with_weights(op); },
                 [](const ConvBackwardData& op) { return backward_data(op); },
                 [](const InnerProductBackwardData& op) { return backward_data(op); },
                 [](const ConvBackwardWeights& op) { return backward_weights(op); },
                 [](const InnerProductBackwardWeights& op) { return backward_weights(op); },
                 [&](const PoolForward& op) {
                   std::vector<Argument> args = {{"src", R, op.g.src()}, {"dst", W, op.g.dst()}};
                   if (op.keep_workspace) args.push_back(workspace(W, op.g));
                   return args;
                 },
                 [&](const PoolBackward& op) {
                   std::vector<Argument> args = {{"diff_dst", R, op.g.dst()}};
                   if (op.g.kind == PoolKind::max) args.push_back(workspace(R, op.g));
                   args.push_back({"diff_src", W, op.g.src()});
                   return args;
                 },
                 [](const CrossMapNormForward& op) {
                   return std::vector<Argument>{{"src", R, op.p.dims()}, {"dst", W, op.p.dims()}};
                 },
                 [](const CrossMapNormBackward& op) {
                   return std::vector<Argument>{
                       {"src", R, op.p.dims()}, {"diff_dst", R, op.p.dims()}, {"diff_src", W, op.p.dims()}};
                 },
                 [](const NeuronForward& op) {
                   return std::vector<Argument>{{"src", R, op.dims}, {"dst", W, op.dims}};
                 },
                 [](const NeuronBackward& op) {
                   return std::vector<Argument>{{neuron_uses_output(op.f.kind) ? "dst" : "src", R, op.dims},
                                                {"diff_dst", R, op.dims},
                                                {"diff_src", W, op.dims}};
                 },
                 [&](const Dropout& op) {
                   return std::vector<Argument>{{"src", R, op.dims}, {"dst", W, op.dims}, step};
                 },
                 [](const Scale& op) {
                   return std::vector<Argument>{{"src", R, op.dims}, {"dst", W, op.dims}};
                 },
                 [](const SoftmaxForward& op) {
                   return std::vector<Argument>{{"src", R, {op.n, op.c}}, {"dst", W, {op.n, op.c}}};
                 },
                 [](const SoftmaxBackward& op) {
                   return std::vector<Argument>{{"dst", R, {op.n, op.c}},
                                                {"diff_dst", R, {op.n, op.c}},
                                                {"diff_src", W, {op.n, op.c}}};
                 },
                 [](const LogregForward& op) {
                   return std::vector<Argument>{{"labels", R, {op.n, 1}, DataType::s32},
                                                {"probs", R, {op.n, op.c}},
                                                {"costs", RW, {kUnsized}, DataType::f64}};
                 },
                 [](const LogregBackward& op) {
                   return std::vector<Argument>{{"labels", R, {op.n, 1}, DataType::s32},
                                                {"probs", R, {op.n, op.c}},
                                                {"diff_src", W, {op.n, op.c}}};
                 },
                 [](const SoftmaxLogregBackward& op) {
                   return std::vector<Argument>{{"labels", R, {op.n, 1}, DataType::s32},
                                                {"probs", R, {op.n, op.c}},
                                                {"diff_src", W, {op.n, op.c}}};
                 },
                 [](const LoadImages& op) {
                   std::vector<Argument> args = {{"src", R, op.dims, op.source}};
                   if (op.mean) {
                     Dims one = op.dims;
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
                   return std::vector<Argument>{{"weights", RW, op.what.dims},
                                                {"increment", RW, op.what.dims},
                                                {"gradient", R, op.what.dims},
                                                step,
                                                {"costs", RW, {kUnsized}, DataType::f64}};
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
          [](const PoolForward&) -> std::string { return "pool.forward"; },
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
          [](const Update&) -> std::string { return "update"; }},
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
