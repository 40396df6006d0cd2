// A net from two texts, run the real way (config, graph, plan, executor, CPU backend) and by the reference
// interpreter.
#pragma once

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "convnet/net/net.h"
#include "tests/reference/net_reference.h"

namespace convnet::test {

/// A matrix that the provider has beside images and labels: `width` numbers an image.
struct ExtraMatrix {
  enum Kind {
    one_hot,    ///< 1 at the image's label, if that is below `width`
    multi_hot,  ///< random zeros and ones
    real        ///< random numbers in [-1,1)
  };
  std::int64_t width = 0;
  Kind kind = one_hot;
};

/// A provider without files: it has the shapes that a Net asks for, and no images.
class ShapeOnlyProvider : public StoredProvider {
 public:
  ShapeOnlyProvider(const Dims& image, std::int64_t classes, const std::vector<ExtraMatrix>& extra = {})
      : matrices_{{"data", image, DataType::f32, 0}, {"labels", {1}, DataType::s32, classes}} {
    for (const ExtraMatrix& m : extra) matrices_.push_back({"extra", {m.width}, DataType::f32, 0});
  }
  const std::vector<MatrixInfo>& matrices() const override { return matrices_; }
  void check_range(const BatchRange&, const std::string&) const override {}
  std::int64_t images_in(int) const override { return 0; }
  DataBatch load(int) const override { return {}; }
  bool has_mean() const override { return false; }
  std::vector<float> mean_image(const BatchRange&) const override { return {}; }

 private:
  std::vector<MatrixInfo> matrices_;
};

struct Minibatch {
  std::vector<float> data;
  std::vector<std::int32_t> labels;
  std::vector<std::vector<float>> extra;
  std::int64_t images() const { return static_cast<std::int64_t>(labels.size()); }
};

/// Returns random values in [-1,1), the same for the same seed.
Minibatch random_minibatch(const Dims& image, std::int64_t images, std::int64_t classes, std::uint64_t seed,
                           const std::vector<ExtraMatrix>& extra = {});
/// Returns the minibatch as the interpreter reads it.
std::vector<reference::Values> reference_inputs(const Minibatch& batch);

struct NetTexts {
  std::string definition, parameters;
};

/// Wraps `layers` (which reads "data" and ends in `top`) between data and fc + softmax + cost.logreg, and
/// gives every weight layer learning parameters. A `[layer]` section of `parameters` replaces the usual ones.
NetTexts between_data_and_cost(const std::string& layers, const std::string& top, int classes,
                               const std::string& parameters = "");

/// A graph, and the messages about its files, "net.cfg" and "params.cfg".
struct Built {
  Graph graph;
  std::vector<std::string> errors, warnings;
};
Built build_net(const NetTexts& texts, const Provider& provider, const GraphOptions& options = {});

struct StepOutcome {
  std::vector<double> costs;                            ///< accumulators by slot, without the first
  std::map<std::string, std::vector<float>> outputs;    ///< outputs that exist, by layer, in canonical layout
  std::map<std::string, std::vector<float>> gradients;  ///< d(cost)/dw summed over images, by tensor name
};

struct NetOptions {
  bool rewrites = true, conserve_memory = false;
  int threads = 1;
  std::uint64_t seed = 3;
  std::string gpu = "0";
  Precision precision = Precision::fp32;
  bool data_parallel = false;
  double clip_norm = 0, ema = 0;
  int microbatches = 1;
  std::vector<ExtraMatrix> extra = {};
  /// Puts something between the net and its devices.
  std::function<std::unique_ptr<Backend>(std::unique_ptr<Backend>)> wrap = {};
  /// The processes of the run, of which each has its own SmallNet; null where there is one. `gpu` lists the
  /// devices of all.
  Processes* processes = nullptr;
  std::vector<int> devices_of_processes = {};
  std::vector<int> devices_of_hosts = {};  ///< empty for one host
  std::string read = {};  ///< a layer whose output will be read whatever could be fused with it
};

/// Returns the name of a weight tensor's increment: "conv1.weightsInc.data" for "conv1.weights.data".
std::string increment_tensor(const std::string& name);

class SmallNet {
 public:
  SmallNet(const NetTexts& texts, const Dims& image, std::int64_t classes, const NetOptions& options = {});

  /// Makes the plan; initial weights are set when there is memory for them, after the first one.
  const Plan& prepare(Phase phase, std::int64_t images);
  /// Returns what a step on `batch`, which must live until then, needs from the host.
  StepInputs inputs_of(const Minibatch& batch, std::uint64_t iteration) const;
  /// Runs one minibatch; training updates the weights. `collects`: outputs and gradients are collected, too.
  StepOutcome step(Phase phase, const Minibatch& batch, std::uint64_t iteration, bool collects = false);
  /// Runs a test and returns what OutputReader reads of every layer of the file that has features of its own.
  /// Layers that apply the relu of the layer above are left out.
  std::map<std::string, std::vector<float>> read_outputs(const Minibatch& batch);
  /// Does the same for these layers only.
  std::map<std::string, std::vector<float>> read_outputs(const Minibatch& batch,
                                                         const std::vector<std::string>& layers);
  Net& net() { return *net_; }
  const Graph& graph() const { return net_->graph(); }
  /// Returns weights and increments by checkpoint name.
  std::map<std::string, NamedTensor> tensors() const;
  void set_weights(const std::string& name, const std::vector<float>& values);
  /// Returns the interpreter of the same files, with the same weights and increments.
  reference::NetReference reference() const;

 private:
  std::uint64_t seed_;
  IniFile definition_, parameters_;
  ShapeOnlyProvider provider_;
  std::unique_ptr<Net> net_;
  bool has_weights_ = false;
};

/// Returns the largest difference over the largest magnitude of `expected`; infinity if sizes differ or a
/// number is not finite.
template <class A, class B>
double relative_difference(const A& actual, const B& expected) {
  if (actual.size() != expected.size()) return INFINITY;
  double largest = 1e-30, difference = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const auto a = static_cast<double>(actual[i]);
    const auto e = static_cast<double>(expected[i]);
    if (!std::isfinite(a) || !std::isfinite(e)) return INFINITY;
    largest = std::max(largest, std::abs(e));
    difference = std::max(difference, std::abs(a - e));
  }
  return difference / largest;
}

}  // namespace convnet::test
