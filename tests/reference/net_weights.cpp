// The interpreter's layers with weights, and their updates.
#include <algorithm>
#include <cmath>

#include "convnet/config/schedule.h"
#include "tests/kernels/dnn_reference.h"
#include "tests/reference/net_reference.h"

namespace convnet::reference {
namespace {

Matrix learning(const Keys& keys, const std::string& eps, const std::string& mom, const std::string& wc,
                std::size_t i) {
  Matrix m;
  m.epsilon = Schedule::parse(keys.item(eps, i)).at(0);
  m.momentum = keys.number_of(mom, i);
  m.decay = wc.empty() ? 0 : keys.number_of(wc, i, "0");
  return m;
}

/// The geometry of input i, of shape `in`.
ConvGeometry geometry(const std::string& type, const Keys& keys, std::size_t i, const Shape& in) {
  ConvGeometry g;
  if (type == "fc" || type == "sfc") {  // a convolution of 1x1 images, with a group for each part
    g.c = in.size();
    g.groups = keys.integer("parts", 1);
    g.k = keys.integer("outputs", 0) * g.groups;
    g.h = g.w = g.oh = g.ow = 1, g.filter = 1;
    return g;
  }
  const Shape image = as_maps(in, keys.integer_of("channels", i));
  g.c = image.c, g.h = image.h, g.w = image.w;
  const auto sides = [&](const std::string& key, const char* otherwise) {
    const std::int64_t x = keys.integer_of(key, i, otherwise);
    return Sides(keys.has(key + "Y") ? keys.integer_of(key + "Y", i) : x, x);
  };
  g.filter = sides("filterSize", "1");
  g.stride = sides("stride", "1");
  g.pad = sides("padding", "0");
  g.dilation = sides("dilation", "1");
  g.groups = keys.integer_of("groups", i, "1");
  g.k = keys.integer("filters", 0) * g.groups;
  const std::int64_t modules = keys.integer("modulesX", 0);
  const auto count = [&](const WindowLine& line, std::int64_t end, std::int64_t given) {
    const std::int64_t rest = end - line.start + line.pixels - line.extent();
    if (keys.text("rounding") == "down") return rest / line.stride + 1;
    return given > 0 ? given : windows(rest, line.stride);
  };
  Sides end = g.pad;
  if (keys.has("paddingEnd")) end = keys.integer_of("paddingEnd", i);
  if (keys.has("paddingEndY")) end.y = keys.integer_of("paddingEndY", i);
  g.oh = count(g.rows(), end.y, keys.integer("modulesY", modules));
  g.ow = count(g.columns(), end.x, modules);
  return g;
}

/// Calls visit(input, weight, output) for every multiplication.
template <class Visit>
void for_each_weight(const ConvGeometry& g, bool local, const Visit& visit) {
  const auto positions = static_cast<std::size_t>(g.oh * g.ow);
  const auto filters = static_cast<std::size_t>(element_count(g.weights()));
  test::for_each_product(g, [&](std::size_t x, std::size_t w, std::size_t y) {
    visit(x, local ? y % positions * filters + w : w, y);  // (Y,X, filters)
  });
}

}  // namespace

void NetReference::describe_weights(RefLayer& layer, const Keys& keys) {
  const std::vector<std::string> sources = keys.list("weightSource");
  const std::vector<std::string> names = keys.list("inputs");
  for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
    layer.conv.push_back(geometry(layer.type, keys, i, layers_[layer.inputs[i]].shape));
    const std::string source = i < sources.size() ? sources[i] : "";
    if (source.empty()) {
      const auto before = std::count(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]);
      layer.weights.push_back(
          own_weights(layer, keys, i, names[i] + (before > 0 ? "." + std::to_string(before) : "")));
      continue;
    }
    const std::size_t bracket = source.find('[');
    const std::string of = source.substr(0, bracket);
    const std::size_t index = bracket == std::string::npos ? 0 : std::stoul(source.substr(bracket + 1));
    const RefLayer& owner = of == layer.name ? layer : layers_[by_name_.at(of)];
    layer.weights.push_back(
        {owner.weights.at(index).name, learning(keys, "epsW", "momW", "wc", i).epsilon != 0});
  }
  const ConvGeometry& g = layer.conv[0];
  layer.shape = {g.k, g.oh, g.ow, layer.type == "conv" || layer.type == "local"};
  if (keys.flag("biases", true)) describe_biases(layer, keys);
}

NetReference::WeightUse NetReference::own_weights(const RefLayer& layer, const Keys& keys, std::size_t i,
                                                  const std::string& input) {
  const ConvGeometry& g = layer.conv[i];
  Matrix m = learning(keys, "epsW", "momW", "wc", i);
  m.norm_min = keys.number_of("wcNormMin", i, "0");
  m.norm_max = keys.number_of("wcNormMax", i, "0");
  m.ball = keys.number_of("wball", i, "0");
  m.shrink = layer.type == "local";
  const std::int64_t places = layer.type == "local" ? g.oh * g.ow : 1;
  const std::int64_t filter = element_count(g.weights()) / g.k;
  // A row is a filter, or the weights of an output: of output o of all parts in sfc.
  const std::int64_t rows = layer.type == "sfc" ? g.k / g.groups : places * g.k;
  for (std::int64_t w = 0; w < places * g.k * filter; ++w)
    m.row.push_back(static_cast<std::size_t>(w / filter % rows));
  m.values.assign(m.row.size(), 0.0);
  const WeightUse use{layer.name + ".weights." + input, m.epsilon != 0};
  matrices[use.name] = std::move(m);
  return use;
}

void NetReference::describe_biases(RefLayer& layer, const Keys& keys) {
  const auto pixels = static_cast<std::size_t>(layer.shape.h * layer.shape.w);
  const auto maps = static_cast<std::size_t>(layer.shape.c);
  const bool own = layer.type == "local" || !keys.flag("sharedBiases", true);
  for (std::size_t e = 0; e < maps * pixels; ++e) {
    const std::size_t map = e / pixels, place = e % pixels;
    layer.bias_of.push_back(!own ? map : layer.type == "local" ? place * maps + map : e);
  }
  Matrix biases = learning(keys, "epsB", "momB", "", 0);
  biases.values.assign(own ? maps * pixels : maps, 0.0);
  layer.biases = {layer.name + ".biases", biases.epsilon != 0};
  matrices[layer.biases.name] = std::move(biases);
}

void NetReference::describe_batch_norm(RefLayer& layer, const Keys& keys) {
  if (keys.has("channels")) layer.shape = as_maps(layer.shape, keys.integer("channels", 0));
  layer.epsilon = keys.number("epsilon", 1e-5);
  layer.average_factor = keys.number("averageFactor", 0.1);
  Matrix scale = learning(keys, "epsW", "momW", "wc", 0), shift = learning(keys, "epsB", "momB", "", 0);
  Matrix state;
  state.state = true;
  scale.values = shift.values = state.values = Values(static_cast<std::size_t>(layer.shape.c), 0.0);
  matrices[layer.name + ".scale"] = std::move(scale);
  matrices[layer.name + ".shift"] = std::move(shift);
  matrices[layer.name + ".runningMean"] = matrices[layer.name + ".runningVar"] = std::move(state);
}

void NetReference::forward_weights(RefLayer& layer) {
  for (ConvGeometry& g : layer.conv) g.n = images_;
  layer.y.assign(static_cast<std::size_t>(images_ * layer.shape.size()), 0.0);
  for (std::size_t i = 0; i < layer.conv.size(); ++i) {
    const Values& x = layers_[layer.inputs[i]].y;
    const Values& w = matrices.at(layer.weights[i].name).values;
    for_each_weight(
        layer.conv[i], layer.type == "local",
        [&](std::size_t from, std::size_t at, std::size_t to) { layer.y[to] += x[from] * w[at]; });
  }
  if (layer.biases.name.empty()) return;
  const Values& b = matrices.at(layer.biases.name).values;
  for (std::size_t i = 0; i < layer.y.size(); ++i) layer.y[i] += b[layer.bias_of[i % layer.bias_of.size()]];
}

/// Adds to the gradients of the layer's inputs, weights and biases.
void NetReference::backward_weights(const RefLayer& layer) {
  for (std::size_t i = 0; i < layer.conv.size(); ++i) {
    RefLayer& in = layers_[layer.inputs[i]];
    Matrix& w = matrices.at(layer.weights[i].name);
    for_each_weight(layer.conv[i], layer.type == "local",
                    [&](std::size_t from, std::size_t at, std::size_t to) {
                      if (layer.weights[i].learns) w.gradient[at] += layer.dy[to] * in.y[from];
                      in.dy[from] += layer.dy[to] * w.values[at];
                    });
  }
  if (layer.biases.name.empty()) return;
  Values& gradient = matrices.at(layer.biases.name).gradient;
  for (std::size_t i = 0; i < layer.dy.size(); ++i)
    gradient[layer.bias_of[i % layer.bias_of.size()]] += layer.dy[i];
}

void NetReference::forward_batch_norm(RefLayer& layer) {
  std::vector<const Values*> running;
  if (!training_)
    running = {&matrices.at(layer.name + ".runningMean").values,
               &matrices.at(layer.name + ".runningVar").values};
  layer.moments = batch_norm(layers_[layer.inputs[0]].y, layer.shape.c, layer.shape.h * layer.shape.w,
                             layer.epsilon, matrices.at(layer.name + ".scale").values,
                             matrices.at(layer.name + ".shift").values, running);
  layer.y = std::move(layer.moments.result.y);
  layer.slopes = std::move(layer.moments.result.slopes);
}

void NetReference::backward_batch_norm(const RefLayer& layer) {
  const auto pixels = static_cast<std::size_t>(layer.shape.h * layer.shape.w);
  const auto channels = static_cast<std::size_t>(layer.shape.c);
  for (std::size_t i = 0; i < layer.dy.size(); ++i) {
    const std::size_t c = i / pixels % channels;
    matrices.at(layer.name + ".scale").gradient[c] += layer.dy[i] * layer.moments.normalised[i];
    matrices.at(layer.name + ".shift").gradient[c] += layer.dy[i];
  }
}

void NetReference::update() {
  for (auto& [name, m] : matrices) {
    if (m.learned()) update_matrix(m, images_);
  }
  for (const RefLayer& layer : layers_) {
    if (layer.type != "bnorm") continue;
    const auto m = static_cast<double>(images_ * layer.shape.h * layer.shape.w);
    if (m < 2) continue;
    Values& mean = matrices.at(layer.name + ".runningMean").values;
    Values& variance = matrices.at(layer.name + ".runningVar").values;
    const double f = layer.average_factor, unbiased = m / (m - 1);
    for (std::size_t c = 0; c < mean.size(); ++c) {
      mean[c] = (1 - f) * mean[c] + f * layer.moments.mean[c];
      variance[c] = (1 - f) * variance[c] + f * layer.moments.variance[c] * unbiased;
    }
  }
}

void update_matrix(Matrix& m, std::int64_t images) {
  for (std::size_t i = 0; i < m.values.size(); ++i) {
    m.increment[i] = m.momentum * m.increment[i] - m.epsilon * m.decay * m.values[i] -
                     m.epsilon * m.gradient[i] / static_cast<double>(images);
    m.values[i] += m.increment[i];
  }
  std::map<std::size_t, std::vector<double*>> rows;
  for (std::size_t i = 0; i < m.row.size(); ++i) rows[m.row[i]].push_back(&m.values[i]);
  for (auto& [row, weights] : rows) {
    const auto n = static_cast<double>(weights.size());
    const auto scale = [&weights = weights](double factor) {
      for (double* w : weights) *w *= factor;
    };
    double mean = 0, spread = 0, norm = 0;
    for (const double* w : weights) mean += *w / n;
    for (const double* w : weights) spread += (*w - mean) * (*w - mean);
    const double is = std::sqrt(spread) / n;
    if (m.norm_max > 0 && is > 0) scale(std::min(std::max(is, m.norm_min), m.norm_max) / is);
    for (const double* w : weights) norm += *w * *w;
    norm = std::sqrt(norm);
    if (m.ball > 0 && norm > 0 && (norm > m.ball || !m.shrink)) scale(m.ball / norm);
  }
}

}  // namespace convnet::reference
