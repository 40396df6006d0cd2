// A net of Darknet, imported and run beside plain loops in double precision.
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/catch.h"
#include "tests/cli/small_net.h"
#include "tests/onnx_import/darknet_files.h"
#include "tests/providers/image_sets.h"

namespace convnet {
namespace {

/// Maps of an image, (c, h, w).
struct Maps {
  int c = 0, h = 1, w = 1;
  std::vector<double> x = {};
  double& at(int map, int row, int column) {
    return x[static_cast<std::size_t>((map * h + row) * w + column)];
  }
  bool has(int row, int column) const { return row >= 0 && row < h && column >= 0 && column < w; }
};

Maps maps_of(int c, int h, int w) {
  return {c, h, w, std::vector<double>(static_cast<std::size_t>(c * h * w))};
}

using Function = std::function<double(double)>;
double linear(double x) { return x; }
double leaky(double x) { return x > 0 ? x : 0.1 * x; }
double mish(double x) { return x * std::tanh(std::log1p(std::exp(x))); }
double swish(double x) { return x / (1 + std::exp(-x)); }
double elu(double x) { return x >= 0 ? x : std::exp(x) - 1; }
double selu(double x) { return 1.0507009873554805 * (x >= 0 ? x : 1.6732632423543772 * (std::exp(x) - 1)); }
double relu6(double x) { return std::min(std::max(x, 0.0), 6.0); }

/// A net as Darknet computes it. Each layer draws random weights when it computes the first image, which are
/// then those of the weights file.
class DarknetNet {
 public:
  /// The numbers of the weights file, those of connected layers transposed or not.
  std::vector<float> numbers(bool transposed) const { return transposed ? transposed_ : plain_; }

  /// Begins an image. The layers of every image are computed in the same order.
  void begin() { next_ = 0; }

  Maps conv(Maps in, int filters, int size, int stride, int pad, int groups, bool normalises,
            const Function& f) {
    const int maps = in.c / groups;
    const Rows rows = take(filters, maps * size * size, normalises, false);
    Maps out = maps_of(filters, (in.h + 2 * pad - size) / stride + 1, (in.w + 2 * pad - size) / stride + 1);
    for (int o = 0; o < filters; ++o)
      for (int y = 0; y < out.h; ++y)
        for (int x = 0; x < out.w; ++x) {
          double sum = 0;
          for (int m = 0; m < maps; ++m)
            for (int dy = 0; dy < size; ++dy)
              for (int dx = 0; dx < size; ++dx) {
                const int row = y * stride + dy - pad, column = x * stride + dx - pad;
                if (!in.has(row, column)) continue;
                sum += rows.weight(o, (m * size + dy) * size + dx) *
                       in.at(o / (filters / groups) * maps + m, row, column);
              }
          out.at(o, y, x) = f(rows.finished(o, sum));
        }
    return out;
  }

  Maps connected(const Maps& in, int outputs, bool normalises, const Function& f) {
    const int inputs = in.c * in.h * in.w;
    const Rows rows = take(outputs, inputs, normalises, true);
    Maps out = maps_of(outputs, 1, 1);
    for (int o = 0; o < outputs; ++o) {
      double sum = 0;
      for (int i = 0; i < inputs; ++i) sum += rows.weight(o, i) * in.x[static_cast<std::size_t>(i)];
      out.x[static_cast<std::size_t>(o)] = f(rows.finished(o, sum));
    }
    return out;
  }

 private:
  /// The weights of a layer with an output in each row.
  struct Rows {
    int inputs = 0;
    bool normalises = false;
    std::vector<float> biases, scales = {}, means = {}, variances = {}, weights = {};
    double weight(int o, int i) const { return weights[static_cast<std::size_t>(o * inputs + i)]; }
    double finished(int o, double sum) const {
      const auto at = static_cast<std::size_t>(o);
      if (normalises) sum = scales[at] * (sum - means[at]) / std::sqrt(variances[at] + 1e-5);
      return sum + biases[at];
    }
  };

  std::vector<float> draw(int count, float least, float most) {
    std::vector<float> drawn;
    for (int i = 0; i < count; ++i)
      drawn.push_back(std::uniform_real_distribution<float>(least, most)(random_));
    return drawn;
  }
  void write(const std::vector<float>& values) {
    plain_.insert(plain_.end(), values.begin(), values.end());
    transposed_.insert(transposed_.end(), values.begin(), values.end());
  }

  Rows take(int outputs, int inputs, bool normalises, bool connected) {
    if (next_ < layers_.size()) return layers_[next_++];
    Rows rows{inputs, normalises, draw(outputs, -0.3F, 0.3F)};
    write(rows.biases);
    rows.scales = draw(outputs, 0.5F, 1.5F);
    rows.means = draw(outputs, -0.3F, 0.3F);
    rows.variances = draw(outputs, 0.1F, 1);
    rows.weights = draw(outputs * inputs, -0.5F, 0.5F);
    const auto write_norm = [&] {
      for (const auto* values : {&rows.scales, &rows.means, &rows.variances})
        if (normalises) write(*values);
    };
    if (!connected) write_norm();
    plain_.insert(plain_.end(), rows.weights.begin(), rows.weights.end());
    for (int i = 0; i < outputs * inputs; ++i)
      transposed_.push_back(connected ? static_cast<float>(rows.weight(i % outputs, i / outputs))
                                      : rows.weights[static_cast<std::size_t>(i)]);
    if (connected) write_norm();
    layers_.push_back(rows);
    ++next_;
    return rows;
  }

  std::mt19937 random_{7};
  std::vector<float> plain_, transposed_;
  std::vector<Rows> layers_;
  std::size_t next_ = 0;
};

/// Darknet's maximum, with so many pixels of border, the smaller half of them above and left.
Maps maximum(Maps in, int size, int stride, int border) {
  Maps out = maps_of(in.c, (in.h + border - size) / stride + 1, (in.w + border - size) / stride + 1);
  for (int c = 0; c < in.c; ++c)
    for (int y = 0; y < out.h; ++y)
      for (int x = 0; x < out.w; ++x) {
        double most = -1e30;
        for (int dy = 0; dy < size; ++dy)
          for (int dx = 0; dx < size; ++dx) {
            const int row = y * stride + dy - border / 2, column = x * stride + dx - border / 2;
            if (in.has(row, column)) most = std::max(most, in.at(c, row, column));
          }
        out.at(c, y, x) = most;
      }
  return out;
}

Maps maximum(const Maps& in, int size, int stride) { return maximum(in, size, stride, size - 1); }

Maps sum_of(Maps a, const Maps& b) {
  for (std::size_t i = 0; i < a.x.size(); ++i) a.x[i] += b.x[i];
  return a;
}

/// The second half of the maps.
Maps second_half(const Maps& in) {
  const auto half = static_cast<std::ptrdiff_t>(in.x.size() / 2);
  return {in.c / 2, in.h, in.w, {in.x.begin() + half, in.x.end()}};
}

std::vector<double> softmax_of(std::vector<double> scores) {
  double all = 0;
  for (double& score : scores) all += score = std::exp(score);
  for (double& score : scores) score /= all;
  return scores;
}

Maps joined(const Maps& a, const Maps& b) {
  Maps both = a;
  both.c += b.c;
  both.x.insert(both.x.end(), b.x.begin(), b.x.end());
  return both;
}

/// The sections that computed() computes.
std::string cfg_text() {
  return "[net]\nbatch=64\nwidth=9\nheight=7\nchannels=3\nlearning_rate=0.1\n"
         "[convolutional]\nbatch_normalize=1\nfilters=8\nsize=3\nstride=1\npad=1\nactivation=leaky\n"  // 0
         "[maxpool]\nsize=2\nstride=1\n"                                                               // 1
         "[convolutional]\nfilters=8\nsize=1\nactivation=linear\n"                                     // 2
         "[shortcut]\nfrom=-3\nactivation=relu\n"                                                      // 3
         "[route]\nlayers=-1\ngroups=2\ngroup_id=1\n"                                                  // 4
         "[convolutional]\nbatch_normalize=1\nfilters=8\ngroups=2\nsize=3\nstride=2\npadding=1\nactivation="
         "mish\n"
         "[maxpool]\nsize=3\nstride=2\n"                                            // 6
         "[convolutional]\nfilters=4\nsize=2\nstride=1\npad=1\nactivation=swish\n"  // 7
         "[maxpool]\nsize=2\nstride=2\n"                                            // 8
         "[route]\nlayers=8\n"                                                      // 9
         "[convolutional]\nfilters=6\nsize=1\nactivation=logistic\n"                // 10
         "[route]\nlayers=-1,8\n"                                                   // 11
         "[dropout]\nprobability=0.3\n"                                             // 12
         "[connected]\nbatch_normalize=1\noutput=6\nactivation=tanh\n"              // 13
         "[connected]\noutput=5\nactivation=linear\n[softmax]\ngroups=1\n[cost]\n";
}

/// Returns the probabilities of an image.
std::vector<double> computed(DarknetNet& net, const Maps& image) {
  net.begin();
  const Maps first = net.conv(image, 8, 3, 1, 1, 1, true, leaky);
  Maps sum = sum_of(net.conv(maximum(first, 2, 1), 8, 1, 1, 0, 1, false, linear), first);
  for (double& x : sum.x) x = std::max(0.0, x);
  const Maps low = maximum(net.conv(second_half(sum), 8, 3, 2, 1, 2, true, mish), 3, 2);
  const Maps eighth = maximum(net.conv(low, 4, 2, 1, 1, 1, false, swish), 2, 2);
  const Maps tenth = net.conv(eighth, 6, 1, 1, 0, 1, false, [](double x) { return 1 / (1 + std::exp(-x)); });
  const Maps hidden = net.connected(joined(tenth, eighth), 6, true, [](double x) { return std::tanh(x); });
  return softmax_of(net.connected(hidden, 5, false, linear).x);
}

/// The sections that computed_sums() computes.
std::string sums_text() {
  return "[net]\nwidth=9\nheight=7\nchannels=3\n"
         "[convolutional]\nfilters=4\nsize=3\npad=1\nactivation=elu\n"  // 0
         "[convolutional]\nfilters=4\nactivation=selu\n"                // 1
         "[convolutional]\nfilters=4\nactivation=relu6\n"               // 2
         "[shortcut]\nfrom=-2,0\nactivation=linear\n"                   // 3
         "[maxpool]\nsize=3\nstride=2\npadding=3\n"                     // 4
         "[convolutional]\nfilters=6\nactivation=linear\n"              // 5
         "[route]\nlayers=-1,-2\ngroups=2\ngroup_id=1\n"                // 6
         "[avgpool]\n[connected]\noutput=5\nactivation=linear\n[softmax]\n";
}

/// Returns the probabilities of an image.
std::vector<double> computed_sums(DarknetNet& net, const Maps& image) {
  net.begin();
  const Maps zeroth = net.conv(image, 4, 3, 1, 1, 1, false, elu);
  const Maps first = net.conv(zeroth, 4, 1, 1, 0, 1, false, selu);
  const Maps second = net.conv(first, 4, 1, 1, 0, 1, false, relu6);
  const Maps fourth = maximum(sum_of(sum_of(second, first), zeroth), 3, 2, 3);
  const Maps fifth = net.conv(fourth, 6, 1, 1, 0, 1, false, linear);
  const Maps both = joined(second_half(fifth), second_half(fourth));
  Maps means = maps_of(both.c, 1, 1);
  const int pixels = both.h * both.w;
  for (std::size_t i = 0; i < both.x.size(); ++i)
    means.x[i / static_cast<std::size_t>(pixels)] += both.x[i] / pixels;
  return softmax_of(net.connected(means, 5, false, linear).x);
}

/// A cfg, what it computes, and the largest pixel of its images.
struct DarknetCase {
  std::string cfg;
  std::vector<double> (*probabilities)(DarknetNet&, const Maps&);
  float most;
};

}  // namespace

TEST_CASE("a net of Darknet is imported and computes what plain loops do") {
  constexpr int kImages = 6, kPixels = 3 * 7 * 9;
  const Workshop shop;
  const DarknetCase c =
      GENERATE(DarknetCase{cfg_text(), computed, 1}, DarknetCase{sums_text(), computed_sums, 8});
  INFO(c.cfg);
  DarknetNet net;
  std::string pixels;
  std::vector<std::vector<double>> expected;
  std::mt19937 random(3);
  for (int n = 0; n < kImages; ++n) {
    Maps image = maps_of(3, 7, 9);
    for (int i = 0; i < kPixels; ++i) {
      const float pixel = std::uniform_real_distribution<float>(0, c.most)(random);
      image.x[static_cast<std::size_t>(i)] = pixel;
      append(pixels, pixel);
    }
    expected.push_back(c.probabilities(net, image));
  }
  write_file(shop / "x.npy", npy_file("<f4", "6, 3, 7, 9", pixels));
  write_file(shop / "x.cfg", c.cfg);
  for (const std::int32_t version : {1, 2, 1002}) {
    INFO(version);
    write_file(shop / "x.weights", darknet_weights(net.numbers(version > 1000), version));
    const Outcome imported = run_well({"import", shop / "x.cfg", "--layer-def", shop / "in.cfg",
                                       "--checkpoint", shop / "in", "--pixels", "floats"});
    CHECK_THAT(imported.out, Catch::Contains("from data (3x7x9) to 5 classes"));
    const auto files = nlohmann::json::parse(
        run_well({"predict", shop / "in", shop / "x.npy", "--json", "1", "--top", "5"}).out)["files"];
    REQUIRE(files.size() == kImages);
    for (std::size_t n = 0; n < files.size(); ++n) {
      REQUIRE(files[n]["classes"].size() == 5);
      for (const auto& one : files[n]["classes"]) {
        const std::size_t at = std::stoul(one["class"].get<std::string>());
        CHECK(one["probability"].get<double>() == Approx(expected[n].at(at)).margin(2e-6));
      }
    }
  }
}

TEST_CASE("import says which files a net of Darknet needs") {
  const Workshop shop;
  write_file(shop / "x.cfg", cfg_text());
  check_refused({"import", shop / "x.cfg"}, shop / "x.cfg: its weights are not in " + (shop / "x.weights") +
                                                "; type convnet import " + (shop / "x.cfg") +
                                                " --weights FILE.weights");
  check_refused({"import", shop.definition_path()},
                shop.definition_path() +
                    ": is no net of Darknet, which begins with [net]; convnet import reads FILE.onnx, or "
                    "FILE.cfg of Darknet");
  check_refused({"import", shop / "x.weights"},
                "type convnet import " + (shop / "x.cfg") + " --weights " + (shop / "x.weights"));
  check_refused({"import", shop / "x.onnx", "--weights", shop / "x.weights"},
                "--weights is for nets of Darknet, whose names end in .cfg");
  check_refused({"--layer-def", shop / "x.cfg", "--layer-params", shop / "x.cfg", "--data-provider",
                 "dummy-3x9x9-5", "--train-range", "1", "--test-range", "2", "--save-file", shop / "run"},
                "is a cfg of Darknet; convnet import FILE.cfg --weights FILE.weights makes a net of it");
}

}  // namespace convnet
