#include "tests/reference/net_reference.h"

#include <cmath>
#include <stdexcept>

#include "convnet/base/philox.h"
#include "kernels/image_math.h"

namespace convnet::reference {

NetReference::NetReference(const IniFile& definition, const IniFile& parameters, std::vector<Dims> provider,
                           std::uint64_t seed)
    : provider_(std::move(provider)), seed_(seed) {
  for (const IniSection& section : definition.sections) add(Keys(section, parameters.find(section.name)));
  for (auto& [name, m] : matrices) m.increment = m.gradient = Values(m.values.size(), 0.0);
}

void NetReference::add(const Keys& keys) {
  RefLayer layer;
  layer.name = keys.name();
  layer.type = keys.text("type");
  for (const std::string& input : keys.list("inputs")) layer.inputs.push_back(read_as_.at(input));
  if (!layer.inputs.empty()) layer.shape = layers_[layer.inputs[0]].shape;
  describe(layer, keys);
  const std::string type = layer.type;
  std::size_t top = layers_.size();
  by_name_[layer.name] = top;
  layers_.push_back(std::move(layer));
  if (type.starts_with("cost.") || type == "data") {
    read_as_[keys.name()] = top;
    return;
  }
  if (const double drop = keys.number("dropout", 0); drop > 0) {
    RefLayer dropout;
    dropout.type = "dropout2";
    dropout.mask = true;
    dropout.keep = dropout.test_scale = 1 - drop;
    top = add_implicit(std::move(dropout), top, keys.name() + "_dropout");
  }
  if (const std::string f = keys.text("neuron"); !f.empty() && f != "ident" && type != "neuron") {
    RefLayer neuron;
    neuron.type = "neuron";
    neuron.neuron = parse_neuron(f);
    top = add_implicit(std::move(neuron), top, keys.name() + "_neuron");
  }
  read_as_[keys.name()] = top;
}

std::size_t NetReference::add_implicit(RefLayer layer, std::size_t below, const std::string& name) {
  layer.name = name;
  layer.inputs = {below};
  layer.shape = layers_[below].shape;
  by_name_[layer.name] = layers_.size();
  layers_.push_back(std::move(layer));
  return layers_.size() - 1;
}

void NetReference::describe(RefLayer& layer, const Keys& keys) {
  const std::string& type = layer.type;
  std::vector<Shape> inputs;
  for (std::size_t in : layer.inputs) inputs.push_back(layers_[in].shape);
  if (type == "conv" || type == "local" || type == "fc" || type == "sfc") {
    describe_weights(layer, keys);
  } else if (type == "data") {
    describe_data(layer, keys);
  } else if (type == "bnorm") {
    describe_batch_norm(layer, keys);
  } else if (type == "neuron") {
    layer.neuron = parse_neuron(keys.text("neuron"));
  } else if (type == "dropout" || type == "dropout2") {
    layer.keep = keys.number("keep", 0.5);
    layer.drops = keys.text("drops", "values");
    layer.mask = keys.flag("enable", true);
    if (type == "dropout") {
      layer.train_scale = layer.mask ? 1 / layer.keep : 1;
    } else {
      layer.train_scale = layer.mask ? 1 : layer.keep;
      layer.test_scale = layer.keep;
    }
  } else if (type == "softmax") {
    layer.shape = {layer.shape.size(), 1, 1, false};
  } else if (type == "rgb2lab") {
    layer.shape = as_maps(layer.shape, 3);
    layer.center = keys.flag("center", false);
  } else if (type.starts_with("cost.")) {
    layer.coeff = keys.number("coeff", 1);
    layer.cost = {keys.number("posWeight", 1), keys.integer("topk", 1)};
  } else {
    layer.taps = tap_layer(type, inputs, keys);
    if (layer.taps.rule == Rule::none) throw std::logic_error("reference: layer type " + type);
    layer.shape = layer.taps.shape;
    layer.max_scale = static_cast<float>(keys.number("maxScale", 1));
    const double size = keys.number("size", 1);
    layer.norm = {keys.number("minDiv", 1),
                  keys.number("scale", 0) / (type == "cmrnorm" ? size : size * size), keys.number("pow", 0)};
  }
}

void NetReference::describe_data(RefLayer& layer, const Keys& keys) const {
  layer.matrix = static_cast<std::size_t>(keys.integer("dataIdx", 0));
  const Dims& dims = provider_.at(layer.matrix);
  layer.shape =
      dims.size() == 3 ? Shape{dims[0], dims[1], dims[2], true} : Shape{element_count(dims), 1, 1, false};
  if (!keys.has("start") && !keys.has("end")) return;
  const std::int64_t start = keys.integer("start", 0), end = keys.integer("end", layer.shape.size());
  layer.start = static_cast<std::size_t>(start);
  layer.shape = {end - start, 1, 1, false};
}

void NetReference::forward(const Values& data, const std::vector<int>& labels, bool training,
                           std::uint64_t iteration) {
  forward({data, {labels.begin(), labels.end()}}, training, iteration);
}

void NetReference::forward(const std::vector<Values>& data, bool training, std::uint64_t iteration) {
  images_ = static_cast<std::int64_t>(data[0].size()) / element_count(provider_[0]);
  training_ = training;
  iteration_ = iteration;
  for (RefLayer& layer : layers_) {
    if (layer.type == "data") {
      forward_data(layer, data);
    } else {
      forward_layer(layer);
    }
  }
}

void NetReference::forward_data(RefLayer& layer, const std::vector<Values>& data) const {
  const Values& all = data.at(layer.matrix);
  const std::size_t size = all.size() / static_cast<std::size_t>(images_);
  layer.y.clear();
  for (std::size_t n = 0; n < static_cast<std::size_t>(images_); ++n)
    for (std::size_t e = 0; e < static_cast<std::size_t>(layer.shape.size()); ++e)
      layer.y.push_back(all[n * size + layer.start + e]);
}

void NetReference::forward_layer(RefLayer& layer) {
  std::vector<const Values*> inputs;
  for (std::size_t in : layer.inputs) inputs.push_back(&layers_[in].y);
  const Values& x = *inputs[0];
  const auto set = [&](Result result) {
    layer.y = std::move(result.y);
    layer.slopes = std::move(result.slopes);
  };
  if (!layer.conv.empty()) {
    forward_weights(layer);
  } else if (layer.taps.rule == Rule::normalise || layer.taps.rule == Rule::normalise_sd) {
    set(response_norm(layer.taps, layer.norm, x, images_));
  } else if (layer.type == "rscale" && training_) {
    forward_random_scale(layer);
  } else if (layer.taps.rule != Rule::none) {
    set(apply_taps(layer.taps, inputs, images_));
  } else if (layer.type == "bnorm") {
    forward_batch_norm(layer);
  } else if (layer.neuron.kind == NeuronKind::nrelu) {
    set(neuron_layer(layer.neuron, with_noise(layer, x)));
  } else if (layer.type == "neuron") {
    set(neuron_layer(layer.neuron, x));
  } else if (layer.type == "softmax") {
    set(softmax_layer(x, layer.shape.c));
  } else if (layer.type == "rgb2lab") {
    set(lab_layer(x, images_, layer.center));
  } else if (layer.type.starts_with("cost.")) {
    layer.costs = cost_layer(layer.type, layer.cost, x, *inputs.back(), images_);
  } else {
    forward_dropout(layer);
  }
}

double NetReference::mask(const RefLayer& layer, std::size_t element) const {
  if (!layer.mask) return 1;
  const auto size = static_cast<std::size_t>(layer.shape.size());
  std::size_t index = element % size;
  if (layer.drops == "maps") index /= static_cast<std::size_t>(layer.shape.h * layer.shape.w);
  if (layer.drops == "images") index = 0;
  const std::uint32_t word =
      element_random(philox_key(seed_, layer.name), iteration_, static_cast<std::uint32_t>(element / size),
                     static_cast<std::uint32_t>(index));
  return word < static_cast<double>(static_cast<float>(layer.keep)) * 0x1p32 ? 1 : 0;
}

/// nrelu's input in training.
Values NetReference::with_noise(const RefLayer& layer, Values x) const {
  const auto size = static_cast<std::size_t>(layer.shape.size());
  for (std::size_t i = 0; training_ && i < x.size(); ++i)
    x[i] += std::sqrt(1 / (1 + std::exp(-x[i]))) *
            static_cast<double>(element_normal(philox_key(seed_, layer.name), iteration_,
                                               static_cast<std::uint32_t>(i / size),
                                               static_cast<std::uint32_t>(i % size)));
  return x;
}

void NetReference::forward_random_scale(RefLayer& layer) {
  const Shape in = as_maps(layers_[layer.inputs[0]].shape, layer.shape.c);
  const auto size = static_cast<std::size_t>(in.size());
  const Values& x = layers_[layer.inputs[0]].y;
  layer.y.clear();
  for (std::size_t n = 0; n < static_cast<std::size_t>(images_); ++n) {
    const ScaleDraw draw = draw_scale(in.h, layer.shape.h, layer.max_scale, philox_key(seed_, layer.name),
                                      iteration_, static_cast<std::uint32_t>(n));
    // Pixels y, y + 1, ... of the resized image, which is centred on the whole one.
    const auto axis = [&](std::int64_t first) {
      const double corner = (static_cast<double>(in.h) - static_cast<double>(draw.side) * draw.factor) / 2;
      return bilinear(in.h, layer.shape.h, draw.factor, corner + static_cast<double>(first) * draw.factor);
    };
    const TapLayer resized{Rule::sum, layer.shape, separable(in, axis(draw.y), axis(draw.x))};
    const Values image(x.begin() + static_cast<std::ptrdiff_t>(n * size),
                       x.begin() + static_cast<std::ptrdiff_t>((n + 1) * size));
    const Values y = apply_taps(resized, {&image}, 1).y;
    layer.y.insert(layer.y.end(), y.begin(), y.end());
  }
}

void NetReference::forward_dropout(RefLayer& layer) {
  const Values& x = layers_[layer.inputs[0]].y;
  layer.y.clear();
  layer.slopes.clear();
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double factor = training_ ? mask(layer, i) * layer.train_scale : layer.test_scale;
    layer.y.push_back(x[i] * factor);
    layer.slopes.push_back({0, i, i, factor});
  }
}

Values NetReference::costs() const {
  Values all;
  for (const RefLayer& layer : layers_)
    all.insert(all.end(), layer.costs.totals.begin(), layer.costs.totals.end());
  return all;
}

double NetReference::objective() const {
  double sum = 0;
  for (const RefLayer& layer : layers_) {
    if (!layer.costs.totals.empty()) sum += layer.coeff * layer.costs.totals[0];
  }
  return sum;
}

void NetReference::backward() {
  for (RefLayer& layer : layers_) layer.dy.assign(layer.y.size(), 0.0);
  for (auto& [name, m] : matrices) m.gradient.assign(m.values.size(), 0.0);
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    for (const Slope& s : layer->slopes) {
      // An infinite slope where no gradient arrives counts nothing.
      if (layer->dy[s.to] != 0) layers_[layer->inputs[s.input]].dy[s.from] += layer->dy[s.to] * s.value;
    }
    if (!layer->conv.empty()) backward_weights(*layer);
    if (layer->type == "bnorm") backward_batch_norm(*layer);
    for (std::size_t i = 0; i < layer->costs.gradient.size(); ++i)
      layers_[layer->inputs.back()].dy[i] += layer->coeff * layer->costs.gradient[i];
  }
}

}  // namespace convnet::reference
