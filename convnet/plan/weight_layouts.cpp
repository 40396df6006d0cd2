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

/// A Lowering that records the layouts in which a layer's forward operations read its weights.
class WeightReader : public Lowering {
 public:
  WeightReader(const Node& node, std::int64_t images, bool training, const Target& target)
      : training_(training), target_(target) {
    facts_.images = images;
    facts_.training = facts_.random = training;
    facts_.fused = node.fused;
    for (const WeightSpec& spec : node.layer->weights)
      layouts_.push_back({{spec.dims, DataType::f32, nullptr}});
    read_.resize(layouts_.size(), false);
  }
  std::vector<WeightLayout> layouts() const { return layouts_; }

  const Microbatch& microbatch() const override { return facts_; }
  Value input(std::size_t) override { return other_; }
  Value output() override { return other_; }
  Value output_gradient() override { return other_; }
  bool wants_input_gradient(std::size_t) const override { return false; }
  Value input_gradient(std::size_t) override { return other_; }
  Value weights(std::size_t i) override { return Value{static_cast<int>(i)}; }
  bool wants_weights_gradient(std::size_t) const override { return false; }
  Value weights_gradient(std::size_t) override { return other_; }
  Value kept(const std::string&, const Dims&, DataType) override { return other_; }
  void keep(const std::string&, Value) override {}
  void merge_replicas(const std::vector<std::string>&, const std::vector<std::string>&, const Dims&,
                      const Merge&) override {}
  std::vector<std::int64_t> images_of_replicas() const override { return {facts_.images}; }
  Value source(std::size_t) override { return other_; }
  Dims uncropped_image(std::size_t) const override { return {}; }
  Value mean_image() override { return {}; }
  Value step() override { return other_; }
  Value costs() override { return other_; }
  std::int64_t cost_slot() const override { return 1; }
  void run(const OpDesc& op, const std::vector<Value>& values) override { look_at(op, values); }
  void run_across(const OpDesc& op, const std::vector<Value>& values) override { look_at(op, values); }
  void forward_unchanged() override {}
  void backward_unchanged(std::size_t) override {}

 private:
  void look_at(const OpDesc& op, const std::vector<Value>& values) {
    const std::vector<Argument> args = arguments(op);
    std::optional<OpForm> form;
    for (std::size_t k = 0; k < args.size(); ++k) {
      if (values[k].id == other_.id || args[k].access == Access::write) continue;
      const auto i = static_cast<std::size_t>(values[k].id);
      if (read_[i]) continue;
      read_[i] = true;
      if (!form) form = target_.form(op, LayoutHints(args.size()));
      const TensorDesc& wanted = form->args[k];
      const std::optional<TensorDesc> gradient =
          wanted.type != DataType::f32 && training_ ? layout_of_gradient(op, target_) : std::nullopt;
      TensorDesc& weights = layouts_[i].weights;
      weights = gradient ? *gradient : with_type(wanted, DataType::f32);
      // Not every layout exists in both types; with_type() makes the others plain.
      const bool same =
          weights.plain() == wanted.plain() && same_layout(with_type(weights, DataType::bf16), wanted);
      const bool can_follow = !training_ || same;
      if (wanted.type == DataType::bf16 && can_follow) layouts_[i].rounded = wanted;
    }
  }

  Microbatch facts_;
  bool training_;
  const Target& target_;
  const Value other_{1 << 30};  ///< every tensor that is no matrix of the layer
  std::vector<WeightLayout> layouts_;
  std::vector<bool> read_;  ///< by matrix
};

}  // namespace

std::vector<WeightLayout> choose_weight_layouts(const Node& node, std::int64_t images, bool training,
                                                const Target& target) {
  WeightReader reader(node, images, training, target);
  if (node.layer->weights.empty()) return reader.layouts();
  try {
    node.layer->before_forward(reader);
    node.layer->forward(reader);
  } catch (const DeviceError& e) {
    throw DeviceError(node.place_text() + ": " + e.what());
  }
  return reader.layouts();
}

}  // namespace convnet
