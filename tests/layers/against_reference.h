// Trains a net the real way (files, graph, plan, executor, CPU kernels) beside the reference interpreter and
// compares outputs, costs, weights and increments.
#pragma once

#include "tests/catch.h"
#include "tests/layers/small_net.h"

namespace convnet::test {

struct Case {
  std::string name;
  Dims image;
  std::int64_t images;
  std::string layers, top;
  std::string parameters = "";
  int classes = 4;
  std::vector<ExtraMatrix> extra = {};
};

// Tolerance between fp32 and double; rounding alone gives about 1e-6 in nets this small.
constexpr double kTolerance = 2e-4;

inline void check_against(SmallNet& net, const reference::NetReference& reference,
                          const StepOutcome& outcome) {
  CHECK(relative_difference(outcome.costs, reference.costs()) < kTolerance);
  for (const auto& [layer, values] : outcome.outputs) {
    INFO("output of " << layer);
    if (layer == "labels") continue;
    CHECK(relative_difference(values, reference.output(layer)) < kTolerance);
  }
  const auto tensors = net.tensors();
  for (const auto& [name, matrix] : reference.matrices) {
    INFO(name);
    CHECK(relative_difference(tensors.at(name).values, matrix.values) < kTolerance);
    if (matrix.learned())
      CHECK(relative_difference(tensors.at(increment_tensor(name)).values, matrix.increment) < kTolerance);
  }
}

/// Compares what OutputReader returns for every layer with the values that the layer's users read.
inline void check_outputs_read(const std::map<std::string, std::vector<float>>& outputs,
                               const reference::NetReference& reference, const Graph& graph) {
  for (const auto& [layer, values] : outputs) {
    INFO("read output of " << layer);
    std::string top = layer;
    for (const char* suffix : {"_dropout", "_neuron"}) {
      if (const Node* node = graph.find(layer + suffix); node != nullptr && node->section == layer)
        top = node->name;
    }
    CHECK(relative_difference(values, reference.output(top)) < kTolerance);
  }
}

/// Runs a test, three training steps on different images, and a test of other images, and compares after
/// each.
inline void train_like_reference(const Case& c) {
  INFO(c.name);
  NetOptions options;
  options.extra = c.extra;
  SmallNet net(between_data_and_cost(c.layers, c.top, c.classes, c.parameters), c.image, c.classes, options);
  net.prepare(Phase::train, c.images);
  reference::NetReference reference = net.reference();
  std::uint64_t iteration = 0;
  for (const Phase phase : {Phase::test, Phase::train, Phase::train, Phase::train, Phase::test}) {
    INFO("step " << iteration << (phase == Phase::train ? ", train" : ", test"));
    const Minibatch batch = random_minibatch(c.image, c.images, c.classes, 100 + iteration, c.extra);
    const StepOutcome outcome = net.step(phase, batch, iteration, true);
    reference.forward(reference_inputs(batch), phase == Phase::train, iteration);
    if (phase == Phase::train) {
      reference.backward();
      reference.update();
    }
    check_against(net, reference, outcome);
    if (phase == Phase::test) check_outputs_read(net.read_outputs(batch), reference, net.graph());
    ++iteration;
  }
}

inline void train_all_like_reference(const std::vector<Case>& cases) {
  for (const Case& c : cases) train_like_reference(c);
}

/// Returns the section [name] with its keys, which are separated by blanks.
inline std::string keys_of(const std::string& name, std::string keys) {
  for (char& ch : keys) ch = ch == ' ' ? '\n' : ch;
  return "[" + name + "]\n" + keys + "\n";
}
inline std::string section(const std::string& name, const std::string& type, const std::string& keys) {
  return keys_of(name, "type=" + type + " " + keys);
}
inline std::string conv(const std::string& name, const std::string& keys) {
  return section(name, "conv", "initW=0.3 initB=0.1 " + keys);
}
inline std::string fc(const std::string& name, const std::string& keys) {
  return section(name, "fc", "initW=0.3 initB=0.1 " + keys);
}
/// Returns a layer's section of the parameter file: the usual rates and `more` keys.
inline std::string rates(const std::string& layer, const std::string& more = "",
                         const std::string& eps_w = "0.05", const std::string& eps_b = "0.1") {
  return keys_of(layer, "epsW=" + eps_w + " epsB=" + eps_b + " momW=0.9 momB=0.8 " + more);
}
/// Returns a convolution "below", which learns below the layer under test.
inline std::string below(int channels, int filters) {
  return conv("below", "inputs=data channels=" + std::to_string(channels) +
                           " filters=" + std::to_string(filters) + " filterSize=1");
}

}  // namespace convnet::test
