#include "tests/reference/formulas.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>

namespace convnet::reference {
namespace {

struct Point {
  double value, slope;
};

Point neuron_at(const Neuron& f, double x) {
  const double a = static_cast<double>(f.a), b = static_cast<double>(f.b);
  const auto tanh_slope = [](double z) { return 1 - std::tanh(z) * std::tanh(z); };
  const double sign = x > 0 ? 1 : x < 0 ? -1 : 0;
  switch (f.kind) {
    case NeuronKind::ident: return {x, 1};
    case NeuronKind::relu:
    case NeuronKind::nrelu: return {std::max(x, 0.0), x > 0 ? 1.0 : 0.0};
    case NeuronKind::logistic: return {1 / (1 + std::exp(-x)), 1 / (2 + std::exp(x) + std::exp(-x))};
    case NeuronKind::tanh: return {a * std::tanh(b * x), a * b * tanh_slope(b * x)};
    case NeuronKind::abs: return {std::abs(x), sign};
    case NeuronKind::softrelu: return {std::log(1 + std::exp(x)), 1 / (1 + std::exp(-x))};
    case NeuronKind::square: return {x * x, 2 * x};
    case NeuronKind::sqrt: return {std::sqrt(x), x == 0 ? 0 : 0.5 / std::sqrt(x)};
    case NeuronKind::log: return {std::log(a + x), 1 / (a + x)};
    case NeuronKind::brelu: return {std::min(a, std::max(0.0, x)), x > 0 && x < a ? 1.0 : 0.0};
    case NeuronKind::linear: return {a * x + b, a};
    case NeuronKind::drelu: return {x - a * std::tanh(x / a), 1 - tanh_slope(x / a)};
    case NeuronKind::abstanh:
      return {a * std::abs(std::tanh(b * x)), a * b * tanh_slope(b * x) * (b > 0 ? sign : -sign)};
    case NeuronKind::leaky: return {x < 0 ? a * x : x, x > 0 ? 1 : a};
    case NeuronKind::elu: return {x < 0 ? a * (std::exp(x) - 1) : x, x > 0 ? 1 : a * std::exp(x)};
    case NeuronKind::silu: {
      const double s = 1 / (1 + std::exp(-x));
      return {x * s, s + x * s * (1 - s)};
    }
    case NeuronKind::gelu: {
      const double below = (1 + std::erf(x / std::sqrt(2.0))) / 2;
      return {x * below, below + x * std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0))};
    }
    case NeuronKind::mish: {
      const double z = std::log(1 + std::exp(x));
      return {x * std::tanh(z), std::tanh(z) + x * tanh_slope(z) / (1 + std::exp(-x))};
    }
    case NeuronKind::hsigmoid:
      return {std::min(1.0, std::max(0.0, (x + 3) / 6)), x > -3 && x < 3 ? 1.0 / 6 : 0.0};
    case NeuronKind::hswish: {
      const double gate = std::min(1.0, std::max(0.0, (x + 3) / 6));
      return {x * gate, gate + (x > -3 && x < 3 ? x / 6 : 0.0)};
    }
  }
  throw std::logic_error("reference: neuron");
}

double floored_log(double p) { return std::max(-50.0, std::log(p)); }
const double kSmallest = std::exp(-50);

/// The chance of missing `label` among the k most probable, ties drawn at random.
double miss(const double* p, std::int64_t classes, std::int64_t label, std::int64_t k) {
  std::int64_t above = 0, tied = 0;
  for (std::int64_t i = 0; i < classes; ++i) {
    if (p[i] > p[label]) ++above;
    if (p[i] == p[label]) ++tied;
  }
  return 1 - std::min(1.0, std::max(0.0, static_cast<double>(k - above) / static_cast<double>(tied)));
}

/// The chance that one of the most probable outputs, drawn at random, has not the largest label.
double soft_miss(const double* t, const double* p, std::int64_t classes) {
  const double top = *std::max_element(p, p + classes), label = *std::max_element(t, t + classes);
  double tied = 0, right = 0;
  for (std::int64_t i = 0; i < classes; ++i) {
    if (p[i] != top) continue;
    ++tied;
    if (t[i] == label) ++right;
  }
  return 1 - right / tied;
}

double lab_curve(double t) {
  const double delta = 6.0 / 29;
  return t > delta * delta * delta ? std::cbrt(t) : t / (3 * delta * delta) + 4.0 / 29;
}

/// cost.bce and cost.dce of one image.
void binary_image(bool per_class, double pos_weight, const double* t, const double* p, std::int64_t classes,
                  CostResult& r) {
  double wrong = 0;
  for (std::int64_t i = 0; i < classes; ++i) {
    r.totals[0] -= pos_weight * t[i] * floored_log(p[i]) + (1 - t[i]) * floored_log(1 - p[i]);
    r.gradient.push_back((1 - t[i]) / std::max(1 - p[i], kSmallest) -
                         pos_weight * t[i] / std::max(p[i], kSmallest));
    const bool says = p[i] > 0.5, is = t[i] > 0.5;
    if (says != is) ++wrong;
    if (!per_class) continue;
    double* counts = r.totals.data() + 2 + 3 * i;
    counts[0] += says && is ? 1 : 0;
    counts[1] += says ? 1 : 0;
    counts[2] += is ? 1 : 0;
  }
  r.totals[1] += wrong / static_cast<double>(classes);
  if (!per_class) r.totals[2] += soft_miss(t, p, classes);
}

}  // namespace

Neuron parse_neuron(const std::string& text) {
  static const std::map<std::string, NeuronKind> kinds = {
      {"ident", NeuronKind::ident},       {"relu", NeuronKind::relu},
      {"logistic", NeuronKind::logistic}, {"tanh", NeuronKind::tanh},
      {"abs", NeuronKind::abs},           {"softrelu", NeuronKind::softrelu},
      {"square", NeuronKind::square},     {"sqrt", NeuronKind::sqrt},
      {"log", NeuronKind::log},           {"brelu", NeuronKind::brelu},
      {"linear", NeuronKind::linear},     {"drelu", NeuronKind::drelu},
      {"abstanh", NeuronKind::abstanh},   {"nrelu", NeuronKind::nrelu},
      {"leaky", NeuronKind::leaky},       {"elu", NeuronKind::elu},
      {"silu", NeuronKind::silu},         {"gelu", NeuronKind::gelu},
      {"mish", NeuronKind::mish},         {"hsigmoid", NeuronKind::hsigmoid},
      {"hswish", NeuronKind::hswish}};
  const std::size_t bracket = text.find('[');
  Neuron f{kinds.at(text.substr(0, bracket)), 1, 1};
  if (bracket == std::string::npos) return f;
  const std::vector<std::string> ab = split_list(text.substr(bracket + 1, text.size() - bracket - 2));
  f.a = std::stof(ab.at(0));
  if (ab.size() > 1) f.b = std::stof(ab[1]);
  return f;
}

Result neuron_layer(const Neuron& f, const Values& x) {
  Result r;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Point at = neuron_at(f, x[i]);
    r.y.push_back(at.value);
    r.slopes.push_back({0, i, i, at.slope});
  }
  return r;
}

Result apply_taps(const TapLayer& layer, const std::vector<const Values*>& inputs, std::int64_t images) {
  Result r;
  for (std::size_t n = 0; n < static_cast<std::size_t>(images); ++n)
    for (const std::vector<Tap>& taps : layer.taps) {
      const std::size_t to = r.y.size();
      const auto from = [&](const Tap& tap) {
        return n * (inputs[tap.input]->size() / static_cast<std::size_t>(images)) + tap.element;
      };
      const auto x = [&](const Tap& tap) { return (*inputs[tap.input])[from(tap)]; };
      r.y.push_back(0);
      if (layer.rule == Rule::sum) {
        for (const Tap& tap : taps) {
          r.y.back() += tap.weight * x(tap);
          r.slopes.push_back({tap.input, from(tap), to, tap.weight});
        }
        continue;
      }
      if (layer.rule == Rule::product) {
        r.y.back() = 1;
        for (const Tap& tap : taps) r.y.back() *= x(tap);
        for (std::size_t i = 0; i < taps.size(); ++i) {
          double others = 1;
          for (std::size_t k = 0; k < taps.size(); ++k) others *= k == i ? 1 : x(taps[k]);
          r.slopes.push_back({taps[i].input, from(taps[i]), to, others});
        }
        continue;
      }
      const auto less = [&](const Tap& a, const Tap& b) {
        return layer.rule == Rule::largest ? x(a) < x(b) : std::abs(x(a)) < std::abs(x(b));
      };
      const Tap& best = *std::max_element(taps.begin(), taps.end(), less);  // the first of equal ones
      r.y.back() = x(best);
      r.slopes.push_back({best.input, from(best), to, 1});
    }
  return r;
}

Result response_norm(const TapLayer& layer, const NormParams& p, const Values& x, std::int64_t images) {
  Result r;
  const std::size_t size = layer.taps.size();
  for (std::size_t n = 0; n < static_cast<std::size_t>(images); ++n) {
    // z = x, or x minus the mean of its window, and where z depends on x.
    std::vector<std::vector<std::pair<std::size_t, double>>> dz(size);
    Values z(size, 0.0);
    for (std::size_t j = 0; j < size; ++j) {
      dz[j] = {{j, 1.0}};
      if (layer.rule == Rule::normalise_sd) {
        for (const Tap& tap : layer.taps[j])
          dz[j].emplace_back(tap.element, -1 / static_cast<double>(layer.taps[j].size()));
      }
      for (const auto& [i, slope] : dz[j]) z[j] += slope * x[n * size + i];
    }
    for (std::size_t o = 0; o < size; ++o) {
      double d = p.min_div;
      for (const Tap& tap : layer.taps[o]) d += p.factor * z[tap.element] * z[tap.element];
      const std::size_t to = n * size + o;
      r.y.push_back(x[to] * std::pow(d, -p.power));
      r.slopes.push_back({0, to, to, std::pow(d, -p.power)});
      const double by_d = -p.power * x[to] * std::pow(d, -p.power - 1);
      for (const Tap& tap : layer.taps[o])
        for (const auto& [i, slope] : dz[tap.element])
          r.slopes.push_back({0, n * size + i, to, by_d * p.factor * 2 * z[tap.element] * slope});
    }
  }
  return r;
}

Result softmax_layer(const Values& x, std::int64_t c) {
  Result r;
  const auto classes = static_cast<std::size_t>(c);
  for (std::size_t row = 0; row < x.size(); row += classes) {
    const double most = *std::max_element(x.data() + row, x.data() + row + classes);
    double sum = 0;
    for (std::size_t i = row; i < row + classes; ++i) sum += std::exp(x[i] - most);
    for (std::size_t i = row; i < row + classes; ++i) r.y.push_back(std::exp(x[i] - most) / sum);
    for (std::size_t i = row; i < row + classes; ++i)
      for (std::size_t j = row; j < row + classes; ++j)
        // Costs divide by max(p, kSmallest), so the gradient of both together is p - t for every p.
        r.slopes.push_back({0, i, j, std::max(r.y[j], kSmallest) * ((i == j ? 1 : 0) - r.y[i])});
  }
  return r;
}

BatchNormResult batch_norm(const Values& x, std::int64_t channels, std::int64_t pixels, double epsilon,
                           const Values& scale, const Values& shift,
                           const std::vector<const Values*>& running) {
  BatchNormResult b;
  b.result.y = b.normalised = Values(x.size(), 0.0);
  for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
    std::vector<std::size_t> own;  // the elements of this channel
    for (std::size_t i = 0; i < x.size(); ++i)
      if (i / static_cast<std::size_t>(pixels) % static_cast<std::size_t>(channels) == c) own.push_back(i);
    const auto m = static_cast<double>(own.size());
    double mean = 0, variance = 0;
    for (std::size_t i : own) mean += x[i] / m;
    for (std::size_t i : own) variance += (x[i] - mean) * (x[i] - mean) / m;
    if (!running.empty()) mean = running[0]->at(c), variance = running[1]->at(c);
    b.mean.push_back(mean);
    b.variance.push_back(variance);
    const double sd = std::sqrt(variance + epsilon);
    for (std::size_t i : own) {
      b.normalised[i] = (x[i] - mean) / sd;
      b.result.y[i] = b.normalised[i] * scale[c] + shift[c];
    }
    for (std::size_t to : own) {
      b.result.slopes.push_back({0, to, to, scale[c] / sd});
      if (!running.empty()) continue;
      for (std::size_t from : own)
        b.result.slopes.push_back(
            {0, from, to, -scale[c] / sd * (1 + b.normalised[from] * b.normalised[to]) / m});
    }
  }
  return b;
}

Result lab_layer(const Values& x, std::int64_t images, bool center) {
  Result r;
  r.y.resize(x.size());
  const std::size_t pixels = x.size() / 3 / static_cast<std::size_t>(images);
  for (std::size_t i = 0; i < x.size() / 3; ++i) {
    const std::size_t at = i / pixels * 3 * pixels + i % pixels;
    const double red = x[at], green = x[at + pixels], blue = x[at + 2 * pixels];
    const double fx = lab_curve(.49 * red + .31 * green + .2 * blue);
    const double fy = lab_curve(.17697 * red + .8124 * green + .01063 * blue);
    const double fz = lab_curve(.01 * green + .99 * blue);
    r.y[at] = 116 * fy - 16 - (center ? 50 : 0);
    r.y[at + pixels] = 500 * (fx - fy);
    r.y[at + 2 * pixels] = 200 * (fy - fz);
  }
  return r;
}

CostResult cost_layer(const std::string& type, const CostParams& p, const Values& labels, const Values& x,
                      std::int64_t images) {
  CostResult r;
  const std::size_t size = x.size() / static_cast<std::size_t>(images);
  const auto classes = static_cast<std::int64_t>(size);
  if (type == "cost.sum2") {
    r.totals = {0};
    for (double v : x) {
      r.totals[0] += v * v;
      r.gradient.push_back(2 * v);
    }
    return r;
  }
  const bool logreg = type == "cost.logreg", crossent = type == "cost.crossent", dce = type == "cost.dce";
  if (!logreg && !crossent && !dce && type != "cost.bce") throw std::logic_error("reference: " + type);
  r.totals.assign(dce ? 2 + 3 * size : crossent ? 2 : 3, 0.0);
  for (std::size_t n = 0; n < static_cast<std::size_t>(images); ++n) {
    const double* q = x.data() + n * size;
    if (logreg) {
      const auto label = static_cast<std::int64_t>(labels[n]);
      r.totals[0] -= floored_log(q[label]);
      r.totals[1] += miss(q, classes, label, 1);
      r.totals[2] += miss(q, classes, label, p.topk);
      for (std::int64_t i = 0; i < classes; ++i)
        r.gradient.push_back(i == label ? -1 / std::max(q[i], kSmallest) : 0);
      continue;
    }
    const double* t = labels.data() + n * size;
    if (!crossent) {
      binary_image(dce, p.pos_weight, t, q, classes, r);
      continue;
    }
    r.totals[1] += soft_miss(t, q, classes);
    for (std::int64_t i = 0; i < classes; ++i) {
      r.totals[0] -= t[i] * floored_log(q[i]);
      r.gradient.push_back(-t[i] / std::max(q[i], kSmallest));
    }
  }
  return r;
}

}  // namespace convnet::reference
