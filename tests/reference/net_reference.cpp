#include "tests/reference/net_reference.h"

#include <cmath>
#include <stdexcept>

#include "convnet/config/params.h"
#include "convnet/config/schedule.h"
#include "kernels/philox.h"
#include "tests/kernels/dnn_reference.h"
#include "tests/kernels/reference.h"

namespace convnet::reference {
namespace {

/// Smallest number of windows of `stride` that covers `rest` pixels after the first window.
std::int64_t windows(std::int64_t rest, std::int64_t stride) {
  std::int64_t count = 1;
  while (stride * (count - 1) < rest) ++count;
  return count;
}

Neuron neuron_of(const std::string& text) {
  if (text == "relu") return {NeuronKind::relu, 1, 1};
  if (text == "logistic") return {NeuronKind::logistic, 1, 1};
  if (text == "ident") return {NeuronKind::ident, 1, 1};
  if (text.rfind("tanh[", 0) != 0) throw std::logic_error("reference: neuron " + text);
  const std::vector<std::string> ab = split_list(text.substr(5, text.size() - 6));
  return {NeuronKind::tanh, std::stof(ab.at(0)), std::stof(ab.at(1))};
}

double neuron_slope(const Neuron& f, double x) {
  const double a = static_cast<double>(f.a), b = static_cast<double>(f.b);
  switch (f.kind) {
    case NeuronKind::ident: break;
    case NeuronKind::relu: return x > 0 ? 1 : 0;
    case NeuronKind::logistic: return 1 / (2 + std::exp(x) + std::exp(-x));
    case NeuronKind::tanh: return a * b / (std::cosh(b * x) * std::cosh(b * x));
  }
  return 1;
}

/// dx of y_c = x_c d_c^-power, in closed form; tests hold it against central differences of the forward pass.
Values norm_backward(const CrossMapNorm& p, const Values& x, const Values& dy) {
  Values dx(x.size(), 0.0);
  const double power = static_cast<double>(p.power);
  const double factor = static_cast<double>(p.scale) / static_cast<double>(p.size);
  for (std::int64_t n = 0; n < p.n; ++n)
    for (std::int64_t s = 0; s < p.h * p.w; ++s)
      for (std::int64_t c = 0; c < p.c; ++c) {
        const auto at = [&](std::int64_t map) {
          return static_cast<std::size_t>((n * p.c + map) * p.h * p.w + s);
        };
        const double d = norm_denominator(p, x, n, c, s);
        dx[at(c)] += dy[at(c)] * std::pow(d, -power);
        const auto [first, last] = norm_window(p, c);
        for (std::int64_t i = first; i < last; ++i)
          dx[at(i)] -= dy[at(c)] * x[at(c)] * power * std::pow(d, -power - 1) * factor * 2 * x[at(i)];
      }
  return dx;
}

/// The chance of missing the label among the k most probable, ties drawn by lot.
double miss(const double* p, std::int64_t classes, int label, std::int64_t k) {
  std::int64_t above = 0, tied = 0;
  for (std::int64_t i = 0; i < classes; ++i) {
    if (p[i] > p[label]) ++above;
    if (p[i] == p[label]) ++tied;
  }
  const double places = static_cast<double>(k - above);
  return 1 - std::min(1.0, std::max(0.0, places / static_cast<double>(tied)));
}

void add_to(Values& sum, const Values& values) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
}

}  // namespace

/// The keys of one layer, from both files.
class NetReference::Reader {
 public:
  Reader(const IniSection& definition, const IniSection* parameters)
      : definition_(definition), parameters_(parameters) {}

  const std::string& name() const { return definition_.name; }
  std::string text(const std::string& key, const std::string& fallback = "") const {
    for (const IniSection* section : {parameters_, &definition_}) {
      if (section == nullptr) continue;
      if (const IniValue* value = section->find(key)) return value->text;
    }
    return fallback;
  }
  double number(const std::string& key, double fallback) const {
    const std::string t = text(key);
    return t.empty() ? fallback : std::stod(t);
  }
  std::int64_t integer(const std::string& key, std::int64_t fallback) const {
    return static_cast<std::int64_t>(number(key, static_cast<double>(fallback)));
  }
  /// Entry i of a list; a single value stands for all inputs.
  std::string item(const std::string& key, std::size_t i, const std::string& fallback) const {
    const std::vector<std::string> items = split_list(text(key, fallback));
    return items.size() == 1 ? items[0] : items.at(i);
  }
  std::int64_t integer_of(const std::string& key, std::size_t i, const std::string& fallback = "") const {
    return std::stoll(item(key, i, fallback));
  }

 private:
  const IniSection& definition_;
  const IniSection* parameters_;
};

NetReference::NetReference(const IniFile& definition, const IniFile& parameters, const Dims& image,
                           std::uint64_t seed)
    : seed_(seed) {
  for (const IniSection& section : definition.sections)
    add(Reader(section, parameters.find(section.name)), image);
}

NetReference::Shape NetReference::maps_of(std::size_t input, std::int64_t channels) const {
  const Shape& in = layers_[input].shape;
  if (in.image) return in;
  const auto side = static_cast<std::int64_t>(std::lround(std::sqrt(in.c / channels)));
  return {channels, side, side, true};
}

const std::string& NetReference::input_name(const RefLayer& layer, std::size_t i) const {
  return written_inputs_[static_cast<std::size_t>(&layer - layers_.data())][i];
}

void NetReference::add(const Reader& keys, const Dims& image) {
  RefLayer layer;
  layer.name = keys.name();
  layer.type = keys.text("type");
  const std::vector<std::string> inputs = split_list(keys.text("inputs"));
  for (const std::string& input : inputs) layer.inputs.push_back(read_as_.at(input));
  written_inputs_.push_back(inputs);
  if (!inputs.empty()) layer.shape = layers_[layer.inputs[0]].shape;

  if (layer.type == "data") {
    layer.shape = {0, 1, 1, false};  // labels have no output of their own here
    if (keys.integer("dataIdx", 0) == 0)
      layer.shape =
          image.size() == 3 ? Shape{image[0], image[1], image[2], true} : Shape{image[0], 1, 1, false};
  } else if (layer.type == "conv" || layer.type == "fc") {
    add_weight_layer(layer, keys);
  } else if (layer.type == "pool") {
    const Shape in = maps_of(layer.inputs[0], keys.integer("channels", 0));
    PoolGeometry& g = layer.pool;
    g.kind = keys.text("pool") == "max" ? PoolKind::max : PoolKind::average;
    g.c = in.c, g.h = in.h, g.w = in.w;
    g.size = keys.integer("sizeX", 0) == 0 ? in.h : keys.integer("sizeX", 0);
    g.stride = keys.integer("stride", 1);
    g.start = keys.integer("start", 0);
    g.sum = keys.integer("sum", 0) != 0;
    const std::int64_t side = keys.integer("outputsX", 0);
    g.oh = side > 0 ? side : windows(in.h - g.start - g.size, g.stride);
    g.ow = side > 0 ? side : windows(in.w - g.start - g.size, g.stride);
    layer.shape = {g.c, g.oh, g.ow, true};
  } else if (layer.type == "cmrnorm") {
    layer.shape = maps_of(layer.inputs[0], keys.integer("channels", 0));
    layer.norm = {0,
                  layer.shape.c,
                  layer.shape.h,
                  layer.shape.w,
                  keys.integer("size", 0),
                  keys.integer("blocked", 0) != 0,
                  static_cast<float>(keys.number("scale", 0)),
                  static_cast<float>(keys.number("pow", 0)),
                  static_cast<float>(keys.number("minDiv", 1))};
  } else if (layer.type == "neuron") {
    layer.neuron = neuron_of(keys.text("neuron"));
  } else if (layer.type == "dropout" || layer.type == "dropout2") {
    const bool enable = keys.integer("enable", 1) != 0;
    layer.keep = keys.number("keep", 0.5);
    layer.mask = enable;
    if (layer.type == "dropout") {
      layer.train_scale = enable ? 1 / layer.keep : 1;
    } else {
      layer.train_scale = enable ? 1 : layer.keep;
      layer.test_scale = layer.keep;
    }
  } else if (layer.type == "softmax") {
    layer.shape = {layer.shape.size(), 1, 1, false};
  } else if (layer.type == "cost.logreg") {
    layer.coeff = keys.number("coeff", 1);
    layer.topk = keys.integer("topk", 1);
  } else {
    throw std::logic_error("reference: layer type " + layer.type);
  }

  std::size_t top = layers_.size();
  by_name_[layer.name] = top;
  const std::string type = layer.type;
  layers_.push_back(std::move(layer));
  if (const double drop = keys.number("dropout", 0); drop > 0) {
    RefLayer dropout;
    dropout.type = "dropout2";
    dropout.mask = true;
    dropout.keep = dropout.test_scale = 1 - drop;
    top = add_implicit(std::move(dropout), top, "_dropout");
  }
  if (const std::string f = keys.text("neuron");
      !f.empty() && f != "ident" && type != "neuron" && type != "cost.logreg") {
    RefLayer neuron;
    neuron.type = "neuron";
    neuron.neuron = neuron_of(f);
    top = add_implicit(std::move(neuron), top, "_neuron");
  }
  read_as_[keys.name()] = top;
}

std::size_t NetReference::add_implicit(RefLayer layer, std::size_t below, const std::string& suffix) {
  std::string base = layers_[below].name;
  if (const std::size_t end = base.rfind("_dropout"); end != std::string::npos) base.resize(end);
  layer.name = base + suffix;
  layer.inputs = {below};
  layer.shape = layers_[below].shape;
  by_name_[layer.name] = layers_.size();
  layers_.push_back(std::move(layer));
  written_inputs_.push_back({base});
  return layers_.size() - 1;
}

void NetReference::add_weight_layer(RefLayer& layer, const Reader& keys) {
  const bool fc = layer.type == "fc";
  const auto learning = [&](const std::string& eps, const std::string& mom, const std::string& wc,
                            std::size_t i) {
    Matrix m;
    m.epsilon = Schedule::parse(keys.item(eps, i, "")).at(0);
    m.momentum = std::stod(keys.item(mom, i, ""));
    m.decay = wc.empty() ? 0 : std::stod(keys.item(wc, i, "0"));
    return m;
  };
  for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
    ConvGeometry g;
    if (fc) {  // a convolution of 1x1 images
      g.c = layers_[layer.inputs[i]].shape.size();
      g.k = keys.integer("outputs", 0);
      g.h = g.w = g.oh = g.ow = g.filter = 1;
    } else {
      const Shape in = maps_of(layer.inputs[i], keys.integer_of("channels", i));
      g.c = in.c, g.h = in.h, g.w = in.w;
      g.filter = keys.integer_of("filterSize", i);
      g.stride = keys.integer_of("stride", i, "1");
      g.pad = keys.integer_of("padding", i, "0");
      g.groups = keys.integer_of("groups", i, "1");
      g.k = keys.integer("filters", 0) * g.groups;
      const std::int64_t side = keys.integer("modulesX", 0);
      g.oh = side > 0 ? side : windows(2 * g.pad + g.h - g.filter, g.stride);
      g.ow = side > 0 ? side : windows(2 * g.pad + g.w - g.filter, g.stride);
    }
    Matrix m = learning("epsW", "momW", "wc", i);
    m.values.assign(static_cast<std::size_t>(element_count(g.weights())), 0.0);
    matrices[layer.name + ".weights." + written_inputs_.back()[i]] = std::move(m);
    layer.conv.push_back(g);
  }
  const ConvGeometry& g = layer.conv[0];
  layer.shape = {g.k, g.oh, g.ow, !fc};
  Matrix biases = learning("epsB", "momB", "", 0);
  biases.values.assign(static_cast<std::size_t>(g.k), 0.0);
  matrices[layer.name + ".biases"] = std::move(biases);
  for (auto& [name, m] : matrices) m.increment = m.gradient = Values(m.values.size(), 0.0);
}

void NetReference::forward(const Values& data, const std::vector<int>& labels, bool training,
                           std::uint64_t iteration) {
  images_ = static_cast<std::int64_t>(labels.size());
  labels_ = labels;
  training_ = training;
  iteration_ = iteration;
  for (RefLayer& layer : layers_) {
    for (ConvGeometry& g : layer.conv) g.n = images_;
    layer.pool.n = layer.norm.n = images_;
    if (layer.type == "data") {
      if (layer.shape.c > 0) layer.y = data;
      continue;
    }
    const Values& x = layers_[layer.inputs[0]].y;
    if (!layer.conv.empty()) {
      forward_weights(layer);
    } else if (layer.type == "pool") {
      test::PoolResult result = test::reference_pool(layer.pool, x);
      layer.y = std::move(result.dst);
      layer.position = std::move(result.position);
    } else if (layer.type == "cmrnorm") {
      layer.y = norm(layer.norm, x);
    } else if (layer.type == "neuron") {
      layer.y.clear();
      for (double v : x) layer.y.push_back(neuron(layer.neuron, v));
    } else if (layer.type == "softmax") {
      layer.y.clear();
      for (auto row = x.begin(); row != x.end(); row += layer.shape.c) {
        const Values p = softmax({row, row + layer.shape.c});
        layer.y.insert(layer.y.end(), p.begin(), p.end());
      }
    } else if (layer.type == "cost.logreg") {
      forward_cost(layer);
    } else {
      forward_dropout(layer);
    }
  }
}

void NetReference::forward_weights(RefLayer& layer) {
  layer.y.assign(static_cast<std::size_t>(element_count(layer.conv[0].dst())), 0.0);
  for (std::size_t i = 0; i < layer.conv.size(); ++i) {
    const Matrix& w = matrices.at(layer.name + ".weights." + input_name(layer, i));
    add_to(layer.y, test::reference_forward(layer.conv[i], layers_[layer.inputs[i]].y, w.values));
  }
  test::add_bias(layer.y, layer.conv[0].dst(), matrices.at(layer.name + ".biases").values);
}

double NetReference::mask(const RefLayer& layer, std::size_t element) const {
  if (!layer.mask) return 1;
  const auto size = static_cast<std::size_t>(layer.shape.size());
  const std::uint32_t word =
      element_random(philox_key(seed_, layer.name), iteration_, static_cast<std::uint32_t>(element / size),
                     static_cast<std::uint32_t>(element % size));
  return word < static_cast<double>(static_cast<float>(layer.keep)) * 0x1p32 ? 1 : 0;
}

void NetReference::forward_dropout(RefLayer& layer) {
  const Values& x = layers_[layer.inputs[0]].y;
  layer.y.clear();
  for (std::size_t i = 0; i < x.size(); ++i)
    layer.y.push_back(training_ ? x[i] * mask(layer, i) * layer.train_scale : x[i] * layer.test_scale);
}

void NetReference::forward_cost(RefLayer& layer) {
  const RefLayer& probs = layers_[layer.inputs[1]];
  layer.costs = {};
  for (std::size_t n = 0; n < labels_.size(); ++n) {
    const double* p = probs.y.data() + n * static_cast<std::size_t>(probs.shape.c);
    layer.costs[0] -= std::max(-50.0, std::log(p[labels_[n]]));
    layer.costs[1] += miss(p, probs.shape.c, labels_[n], 1);
    layer.costs[2] += miss(p, probs.shape.c, labels_[n], layer.topk);
  }
}

Values NetReference::costs() const {
  Values all;
  for (const RefLayer& layer : layers_) {
    if (layer.type == "cost.logreg") all.insert(all.end(), layer.costs.begin(), layer.costs.end());
  }
  return all;
}

double NetReference::objective() const {
  double sum = 0;
  for (const RefLayer& layer : layers_) {
    if (layer.type == "cost.logreg") sum += layer.coeff * layer.costs[0];
  }
  return sum;
}

void NetReference::backward() {
  for (RefLayer& layer : layers_) layer.dy.assign(layer.y.size(), 0.0);
  for (auto& [name, m] : matrices) m.gradient.assign(m.values.size(), 0.0);
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    if (!layer->inputs.empty()) backward_layer(*layer);
  }
}

/// Adds to the gradients of the layer's inputs and weights.
void NetReference::backward_layer(const RefLayer& layer) {
  RefLayer& in = layers_[layer.inputs[0]];
  if (!layer.conv.empty()) {
    backward_weights(layer);
  } else if (layer.type == "pool") {
    add_to(in.dy, test::reference_pool_backward(layer.pool, layer.dy, layer.position));
  } else if (layer.type == "cmrnorm") {
    add_to(in.dy, norm_backward(layer.norm, in.y, layer.dy));
  } else if (layer.type == "neuron") {
    for (std::size_t i = 0; i < in.y.size(); ++i)
      in.dy[i] += layer.dy[i] * neuron_slope(layer.neuron, in.y[i]);
  } else if (layer.type == "softmax") {
    const auto classes = static_cast<std::size_t>(layer.shape.c);
    for (std::size_t i = 0; i < layer.y.size(); ++i) {
      for (std::size_t j = i / classes * classes; j < (i / classes + 1) * classes; ++j)
        in.dy[i] += layer.dy[j] * layer.y[j] * ((i == j ? 1 : 0) - layer.y[i]);
    }
  } else if (layer.type == "cost.logreg") {
    RefLayer& probs = layers_[layer.inputs[1]];
    for (std::size_t n = 0; n < labels_.size(); ++n) {
      const std::size_t at =
          n * static_cast<std::size_t>(probs.shape.c) + static_cast<std::size_t>(labels_[n]);
      probs.dy[at] -= layer.coeff / probs.y[at];
    }
  } else {
    for (std::size_t i = 0; i < in.y.size(); ++i)
      in.dy[i] += layer.dy[i] * mask(layer, i) * layer.train_scale;
  }
}

void NetReference::backward_weights(const RefLayer& layer) {
  for (std::size_t i = 0; i < layer.conv.size(); ++i) {
    RefLayer& in = layers_[layer.inputs[i]];
    Matrix& w = matrices.at(layer.name + ".weights." + input_name(layer, i));
    add_to(w.gradient, test::reference_backward_weights(layer.conv[i], in.y, layer.dy));
    add_to(in.dy, test::reference_backward_data(layer.conv[i], layer.dy, w.values));
  }
  add_to(matrices.at(layer.name + ".biases").gradient, test::bias_gradient(layer.dy, layer.conv[0].dst()));
}

void NetReference::update() {
  for (auto& [name, m] : matrices) {
    if (m.epsilon == 0) continue;  // frozen
    for (std::size_t i = 0; i < m.values.size(); ++i) {
      m.increment[i] = m.momentum * m.increment[i] - m.epsilon * m.decay * m.values[i] -
                       m.epsilon * m.gradient[i] / static_cast<double>(images_);
      m.values[i] += m.increment[i];
    }
  }
}

}  // namespace convnet::reference
