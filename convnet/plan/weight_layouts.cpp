#include "convnet/plan/weight_layouts.h"

#include <optional>

#include "convnet/base/error.h"

namespace convnet {
namespace {

/// Returns the layout that the gradient of the weights of `op` has if its operation is free to choose.
std::optional<TensorDesc> layout_of_gradient(const OpDesc& op, const Target& target) {
  const auto third_argument = [&](const OpDesc& gradient) {
    return target.form(gradient, LayoutHints(arguments(gradient).size())).args.at(2);
  };
  if (const auto* conv = std::get_if<ConvForward>(&op))
    return third_argument(ConvBackwardWeights{conv->g, conv->bias});
  if (const auto* product = std::get_if<InnerProductForward>(&op))
    return third_argument(InnerProductBackwardWeights{product->g, product->bias});
  return std::nullopt;
}

/// Returns the layout of the matrix that is argument `k` of `op`, which wants it as `wanted`.
WeightLayout layout_for(const OpDesc& op, std::size_t k, const TensorDesc& wanted, bool training,
                        const Target& target) {
  const bool is_weights = k == 1;  // others are biases
  const std::optional<TensorDesc> gradient =
      wanted.type != DataType::f32 && training && is_weights ? layout_of_gradient(op, target) : std::nullopt;
  WeightLayout layout{with_type(gradient ? *gradient : wanted, DataType::f32)};
  // Not every layout exists in both types; with_type() makes the others plain.
  const bool same = layout.weights.plain() == wanted.plain() &&
                    same_layout(with_type(layout.weights, DataType::bf16), wanted);
  if (wanted.type == DataType::bf16 && (!training || same)) layout.rounded = wanted;
  return layout;
}

}  // namespace

std::vector<WeightLayout> choose_weight_layouts(const Node& node, std::int64_t images, bool training,
                                                const Target& target) {
  std::vector<WeightLayout> layouts;
  for (const WeightSpec& spec : node.layer->weights) layouts.push_back({{spec.dims, DataType::f32, nullptr}});
  Microbatch microbatch;
  microbatch.images = images;
  microbatch.training = microbatch.random = training;
  microbatch.fused = node.fused;
  try {
    for (const auto& [op, matrices] : node.layer->products(microbatch)) {
      const OpForm form = target.form(op, LayoutHints(arguments(op).size()));
      for (std::size_t k = 0; k < matrices.size(); ++k) {
        if (matrices[k] >= 0)
          layouts[static_cast<std::size_t>(matrices[k])] = layout_for(op, k, form.args[k], training, target);
      }
    }
  } catch (const DeviceError& e) {
    throw DeviceError(node.place_text() + ": " + e.what());
  }
  return layouts;
}

}  // namespace convnet
