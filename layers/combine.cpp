// concat, pass, eltsum, eltmax, eltmul, sum: layers that put features together.
#include <fmt/format.h>

#include "layers/layer.h"

namespace convnet {
namespace {

struct NoParams {};

/// Returns whether maps of the two shapes can lie one behind the other.
bool same_side(const FeatureShape& a, const FeatureShape& b) {
  return a.image && b.image && a.h == b.h && a.w == b.w;
}

/// Returns the shape of the concatenated inputs. Maps of one size stay maps; anything else becomes a flat
/// vector.
FeatureShape concatenated(const std::vector<FeatureShape>& inputs) {
  const FeatureShape first = inputs[0];
  bool maps = true;
  std::int64_t size = 0;
  for (const FeatureShape& input : inputs) {
    size += input.size();
    maps = maps && same_side(input, first);
  }
  return maps ? FeatureShape{size / (first.h * first.w), first.h, first.w, true}
              : FeatureShape{size, 1, 1, false};
}

class ConcatLayer : public Layer {
 public:
  explicit ConcatLayer(std::vector<FeatureShape> shapes, std::string flat_because)
      : Layer(concatenated(shapes), {.flat_because = std::move(flat_because)}), inputs(std::move(shapes)) {}

  void forward(Lowering& l) const override {
    if (inputs.size() == 1) return l.forward_unchanged();
    Concat op;
    std::vector<Value> args;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      op.from.push_back(inputs[i].dims(l.microbatch().images));
      args.push_back(l.input(i));
    }
    op.to = output.dims(l.microbatch().images);
    args.push_back(l.output());
    l.run_across(op, args);
  }

  void backward(Lowering& l) const override {
    if (inputs.size() == 1) return l.backward_unchanged();
    Split op{output.dims(l.microbatch().images), {}};
    std::vector<Value> args = {l.output_gradient()};
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (l.wants_input_gradient(i)) {
        op.to.push_back({inputs[i].dims(l.microbatch().images), offset});
        args.push_back(l.input_gradient(i));
      }
      offset += inputs[i].size();
    }
    l.run(op, args);
  }

 private:
  const std::vector<FeatureShape> inputs;
};

std::shared_ptr<const Layer> create_concat(const LayerType& type, const LayerSource& source) {
  NoParams p;
  if (!parse_params(type, source, p)) return nullptr;
  std::vector<FeatureShape> inputs;
  bool all_maps = true;
  const LayerInput* other = nullptr;  // of another size than the first
  for (const LayerInput& input : source.inputs) {
    inputs.push_back(input.shape);
    all_maps = all_maps && input.shape.image;
    if (other == nullptr && !same_side(input.shape, inputs[0])) other = &input;
  }
  if (!all_maps || other == nullptr) return make_concat_layer(inputs);
  const LayerInput& first = source.inputs[0];
  const std::string sides =
      fmt::format("the inputs of '{}' have maps of unequal sides, '{}' {} and '{}' {}", source.name,
                  first.name, first.shape.str(), other->name, other->shape.str());
  auto layer = std::make_shared<ConcatLayer>(inputs, sides);
  source.warning("inputs",
                 fmt::format("{}, so its output is a vector of {} numbers", sides, layer->output.size()));
  return layer;
}

/// Returns the inputs' common shape, or nullopt after an error.
std::optional<FeatureShape> common_shape(const LayerSource& source) {
  const LayerInput& first = source.inputs[0];
  for (const LayerInput& input : source.inputs) {
    if (input.shape.size() == first.shape.size() &&
        (!input.shape.image || !first.shape.image || input.shape == first.shape))
      continue;
    source.error("inputs", "all inputs must have the same shape, but '" + first.name + "' is " +
                               first.shape.str() + " and '" + input.name + "' is " + input.shape.str());
    return std::nullopt;
  }
  for (const LayerInput& input : source.inputs) {
    if (input.shape.image) return input.shape;
  }
  return first.shape;
}

struct EltsumParams {
  std::vector<double> coeffs;
};

class EltsumLayer : public Layer {
 public:
  EltsumLayer(const FeatureShape& shape, std::vector<float> factors)
      : Layer(shape, {.division = Division::as_inputs}), coeffs(std::move(factors)) {}

  std::shared_ptr<const Layer> part(std::int64_t, std::int64_t count) const override {
    return std::make_shared<EltsumLayer>(FeatureShape{count, 1, 1, false}, coeffs);
  }

  void forward(Lowering& l) const override {
    std::vector<Value> args;
    for (std::size_t i = 0; i < coeffs.size(); ++i) args.push_back(l.input(i));
    args.push_back(l.output());
    l.run(EltwiseSum{output.dims(l.microbatch().images), coeffs}, args);
  }

  void backward(Lowering& l) const override {
    for (std::size_t i = 0; i < coeffs.size(); ++i) {
      if (!l.wants_input_gradient(i)) continue;
      if (coeffs[i] == 1) {
        l.backward_unchanged(i);
      } else {
        l.run(Scale{output.dims(l.microbatch().images), coeffs[i]},
              {l.output_gradient(), l.input_gradient(i)});
      }
    }
  }

 private:
  const std::vector<float> coeffs;
};

std::shared_ptr<const Layer> create_eltsum(const LayerType& type, const LayerSource& source) {
  EltsumParams p;
  if (!parse_params(type, source, p)) return nullptr;
  const std::optional<FeatureShape> shape = common_shape(source);
  if (!shape) return nullptr;
  std::vector<float> coeffs;
  for (double c : p.coeffs) coeffs.push_back(static_cast<float>(c));
  return std::make_shared<EltsumLayer>(*shape, std::move(coeffs));
}

class EltmaxLayer : public Layer {
 public:
  EltmaxLayer(const FeatureShape& shape, std::size_t inputs)
      : Layer(shape, {.division = Division::as_inputs, .backward_reads = BackwardReads::inputs}),
        count(inputs) {}

  std::shared_ptr<const Layer> part(std::int64_t, std::int64_t elements) const override {
    return std::make_shared<EltmaxLayer>(FeatureShape{elements, 1, 1, false}, count);
  }

  void forward(Lowering& l) const override {
    std::vector<Value> args = inputs(l);
    args.push_back(l.output());
    l.run(EltwiseMax{output.dims(l.microbatch().images), static_cast<std::int64_t>(count)}, args);
  }

  void backward(Lowering& l) const override {
    for (std::size_t i = 0; i < count; ++i) {
      if (!l.wants_input_gradient(i)) continue;
      std::vector<Value> args = inputs(l);
      args.push_back(l.output_gradient());
      args.push_back(l.input_gradient(i));
      l.run(EltwiseMaxBackward{output.dims(l.microbatch().images), static_cast<std::int64_t>(count),
                               static_cast<std::int64_t>(i)},
            args);
    }
  }

 private:
  std::vector<Value> inputs(Lowering& l) const {
    std::vector<Value> values;
    for (std::size_t i = 0; i < count; ++i) values.push_back(l.input(i));
    return values;
  }

  const std::size_t count;
};

std::shared_ptr<const Layer> create_eltmax(const LayerType& type, const LayerSource& source) {
  NoParams p;
  if (!parse_params(type, source, p)) return nullptr;
  const std::optional<FeatureShape> shape = common_shape(source);
  if (!shape) return nullptr;
  return std::make_shared<EltmaxLayer>(*shape, source.inputs.size());
}

class EltmulLayer : public Layer {
 public:
  /// `factors`: input 1 has a factor for each map of input 0.
  EltmulLayer(const FeatureShape& shape, bool factors)
      : Layer(shape, {.division = factors ? Division::none : Division::as_inputs,
                      .backward_reads = BackwardReads::inputs}),
        by_map(factors) {}

  std::shared_ptr<const Layer> part(std::int64_t, std::int64_t count) const override {
    if (by_map) return nullptr;
    return std::make_shared<EltmulLayer>(FeatureShape{count, 1, 1, false}, false);
  }

  void forward(Lowering& l) const override {
    l.run(EltwiseProduct{dims(l), by_map}, {l.input(0), l.input(1), l.output()});
  }

  void backward(Lowering& l) const override {
    if (l.wants_input_gradient(0))
      l.run(EltwiseProduct{dims(l), by_map}, {l.output_gradient(), l.input(1), l.input_gradient(0)});
    if (!l.wants_input_gradient(1)) return;
    const std::vector<Value> args = {l.output_gradient(), l.input(0), l.input_gradient(1)};
    if (by_map)
      l.run(MapProductSums{dims(l)}, args);
    else
      l.run(EltwiseProduct{dims(l)}, args);
  }

 private:
  Dims dims(const Lowering& l) const { return output.dims(l.microbatch().images); }

  const bool by_map;
};

std::shared_ptr<const Layer> create_eltmul(const LayerType& type, const LayerSource& source) {
  NoParams p;
  if (!parse_params(type, source, p)) return nullptr;
  const LayerInput &first = source.inputs[0], &second = source.inputs[1];
  const auto scales = [](const FeatureShape& maps, const FeatureShape& factors) {
    return maps.image && maps.size() > maps.c && factors.size() == maps.c;
  };
  if (scales(first.shape, second.shape)) return std::make_shared<EltmulLayer>(first.shape, true);
  if (scales(second.shape, first.shape)) {
    source.error("inputs", fmt::format("the maps come first: inputs={},{}", second.name, first.name));
    return nullptr;
  }
  if (first.shape.image && second.shape.size() != first.shape.size()) {
    source.error("inputs",
                 fmt::format("'{}' must have the shape of '{}', {}, or a number for each of its {} maps, "
                             "but is {}",
                             second.name, first.name, first.shape.str(), first.shape.c, second.shape.str()));
    return nullptr;
  }
  const std::optional<FeatureShape> shape = common_shape(source);
  return shape ? std::make_shared<EltmulLayer>(*shape, false) : nullptr;
}

struct SumParams {
  int stride = 1;
};

class SumLayer : public Layer {
 public:
  SumLayer(std::int64_t inputs, std::int64_t width)
      : Layer({inputs / width, 1, 1, false}, {.cheap = true}), stride(width) {}

  void forward(Lowering& l) const override { l.run(PoolForward{windows(l)}, {l.input(0), l.output()}); }
  void backward(Lowering& l) const override {
    l.run(PoolBackward{windows(l)}, {l.output_gradient(), l.input_gradient(0)});
  }

 private:
  /// Each sum is that of a map, which is a row of `stride` pixels.
  PoolGeometry windows(Lowering& l) const {
    PoolGeometry g;
    g.kind = PoolKind::average;
    g.n = l.microbatch().images;
    g.c = output.c;
    g.w = stride;
    g.h = g.oh = g.ow = 1;
    g.size = {1, stride};
    g.sum = true;
    return g;
  }

  const std::int64_t stride;
};

std::shared_ptr<const Layer> create_sum(const LayerType& type, const LayerSource& source) {
  SumParams p;
  if (!parse_params(type, source, p)) return nullptr;
  const std::int64_t size = source.inputs[0].shape.size();
  if (size % p.stride != 0) {
    source.error("stride", "stride=" + std::to_string(p.stride) + " does not divide the " +
                               std::to_string(size) + " numbers of input '" + source.inputs[0].name + "'");
    return nullptr;
  }
  return std::make_shared<SumLayer>(size, p.stride);
}

}  // namespace

std::shared_ptr<const Layer> make_concat_layer(const std::vector<FeatureShape>& inputs) {
  return std::make_shared<ConcatLayer>(inputs, "");
}

LayerType concat_type() {
  LayerType type;
  type.name = "concat";
  type.doc =
      "The features of all inputs, one after the other. Maps of equal side stay maps; others become a "
      "vector.";
  type.formula = "y = (x_1, x_2, ...)";
  type.example = "[cat]\ntype=concat\ninputs=fc1,fc2";
  type.max_inputs = 64;
  type.create = create_concat;
  return type;
}

LayerType pass_type() {
  LayerType type = concat_type();
  type.name = "pass";
  type.doc = "concat without a copy where memory allows it: a single input is passed on as it is.";
  type.example = "[gather]\ntype=pass\ninputs=fc1,fc2";
  return type;
}

LayerType eltsum_type() {
  LayerType type;
  type.name = "eltsum";
  type.doc = "Weighted sum of inputs of equal shape.";
  type.formula = "y = sum over inputs of coeffs_i * x_i";
  type.example = "[add1]\ntype=eltsum\ninputs=conv2,conv4";
  type.max_inputs = 64;
  type.params = {param_per_input("coeffs", &EltsumParams::coeffs,
                                 {.fallback = "1", .doc = "factor of each input", .file = CfgFile::both})};
  type.create = create_eltsum;
  return type;
}

LayerType eltmax_type() {
  LayerType type;
  type.name = "eltmax";
  type.doc = "Element-wise maximum of inputs of equal shape. The first of equal inputs takes the gradient.";
  type.formula = "y = max(x_1, x_2, ...)";
  type.example = "[max1]\ntype=eltmax\ninputs=conv2a,conv2b";
  type.min_inputs = 2;
  type.max_inputs = 64;
  type.create = create_eltmax;
  return type;
}

LayerType eltmul_type() {
  LayerType type;
  type.name = "eltmul";
  type.doc =
      "Element-wise product of two inputs of equal shape, or of maps and a factor for each of them "
      "(squeeze-and-excitation, Hu et al., arXiv 1709.01507).";
  type.formula = "y = a * b; with a factor for each map y_cij = a_cij * b_c";
  type.example =
      "[squeeze]\ntype=pool\npool=avg\ninputs=conv2\nchannels=64\nsizeX=8\nstride=8\n\n"
      "[excite]\ntype=fc\ninputs=squeeze\noutputs=64\nneuron=logistic\n\n"
      "[scale2]\ntype=eltmul\ninputs=conv2,excite";
  type.min_inputs = 2;
  type.max_inputs = 2;
  type.create = create_eltmul;
  return type;
}

LayerType sum_type() {
  LayerType type;
  type.name = "sum";
  type.doc = "Sums of neighbouring features.";
  type.formula = "y_j = sum over k < stride of x_(j*stride+k)";
  type.example = "[sum1]\ntype=sum\ninputs=fc1\nstride=4";
  type.params = {param("stride", &SumParams::stride,
                       {.fallback = "1", .min = 1, .max = 1 << 24, .doc = "features in a sum"})};
  type.create = create_sum;
  return type;
}

}  // namespace convnet
