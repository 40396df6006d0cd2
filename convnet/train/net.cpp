#include "convnet/train/net.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/error.h"
#include "kernels/philox.h"

namespace convnet {
namespace {

/// N(0,1) for weight `index` of a stream: Box-Muller on the words of one Philox call, four neighbours a call.
void fill_normal(std::uint64_t key, double mean, double stdev, std::vector<float>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
#pragma omp parallel for schedule(static)
  for (std::int64_t first = 0; first < count; first += 4) {
    const auto block = static_cast<std::uint64_t>(first / 4);
    const Philox4x32 r =
        philox(key, static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0);
    for (int pair = 0; pair < 2; ++pair) {
      const double u = (r.value[2 * pair] + 0.5) * 0x1p-32;
      const double angle = 2 * std::numbers::pi * (r.value[2 * pair + 1] * 0x1p-32);
      const double radius = std::sqrt(-2 * std::log(u)) * stdev;
      const std::int64_t at = first + 2 * pair;
      if (at < count)
        values[static_cast<std::size_t>(at)] = static_cast<float>(mean + radius * std::cos(angle));
      if (at + 1 < count)
        values[static_cast<std::size_t>(at + 1)] = static_cast<float>(mean + radius * std::sin(angle));
    }
  }
}

/// A layer file's name after --layer-path.
std::string prefixed(const Options& options, const std::string& name) {
  if (options.layer_path.empty()) return name;
  return options.layer_path + (options.layer_path.back() == '/' ? "" : "/") + name;
}

bool all_finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

}  // namespace

IniFile read_parameters(const Options& options, Diagnostics& diagnostics) {
  return read_ini(prefixed(options, options.layer_params), diagnostics);
}

NetFiles read_net_files(const Options& options, Diagnostics& diagnostics) {
  return {read_ini(prefixed(options, options.layer_def), diagnostics), read_parameters(options, diagnostics)};
}

int thread_count(const Options& options) {
  if (options.threads > 0) return options.threads;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

std::unique_ptr<Backend> make_backend(const Options& options, int devices) {
  if (options.device == "cuda")
    throw DeviceError("--device cuda: this program was built without CUDA devices; use --device cpu");
  return make_cpu_backend(std::max(1, thread_count(options) / devices));
}

Graph checked_graph(const NetFiles& files, const Provider& provider, const Options& options,
                    Diagnostics& diagnostics) {
  Graph graph = build_graph(files.definition, files.parameters, provider.matrices(), {options.strict, true},
                            diagnostics);
  diagnostics.throw_if_errors();
  if (const int needed = graph.gpu_count(); needed > static_cast<int>(options.gpus().size()))
    throw InputError(fmt::format("--gpu {} names {} device(s), but the layers use {}", options.gpu,
                                 options.gpus().size(), needed));
  return graph;
}

Net::Net(Graph graph, const Provider& provider, const Options& options, std::vector<float> mean, bool learns)
    : graph_(std::move(graph)),
      provider_(provider),
      options_(options),
      mean_(std::move(mean)),
      backend_(make_backend(options, graph_.gpu_count())),
      plans_(graph_, provider.matrices(), *backend_, options.seed_value(), !mean_.empty(), learns),
      executor_(plans_, options.gpus()) {}

const Plan& Net::prepare(Phase phase, std::int64_t images) {
  const Plan& plan = plans_.plan(phase, images);
  executor_.reserve(plan);
  upload_mean();
  return plan;
}

void Net::upload_mean() {
  if (mean_uploaded_ || plans_.mean_buffer() < 0) return;
  executor_.write(plans_.mean_buffer(), mean_);
  mean_uploaded_ = true;
}

void Net::init_weights(std::uint64_t seed) {
  for (const WeightBuffers& w : plans_.weights()) {
    const WeightSpec& spec =
        graph_.nodes[static_cast<std::size_t>(w.node)].layer->weights[static_cast<std::size_t>(w.index)];
    std::vector<float> values(static_cast<std::size_t>(element_count(spec.dims)),
                              static_cast<float>(spec.init_value));
    if (spec.init_stdev > 0) fill_normal(philox_key(seed, w.name), spec.init_value, spec.init_stdev, values);
    executor_.write(w.weights, values);
    if (w.increment >= 0) executor_.write(w.increment, std::vector<float>(values.size(), 0.0F));
  }
}

std::string increment_name(const std::string& layer, const std::string& weight) {
  return layer +
         (weight == "biases" ? ".biasesInc" : ".weightsInc" + weight.substr(std::string("weights").size()));
}

void Net::load(const TensorFile& tensors, const std::string& file) {
  const auto fill = [&](const std::string& name, const Dims& dims, int buffer) {
    const auto found = tensors.tensors.find(name);
    if (found == tensors.tensors.end())
      throw InputError(file + ": has no tensor '" + name + "', which this net needs");
    if (found->second.dims != dims)
      throw InputError(file + ": tensor '" + name + "' is " + to_string(found->second.dims) +
                       ", but this net needs " + to_string(dims));
    if (!all_finite(found->second.values))
      throw InputError(file + ": tensor '" + name + "' holds numbers that are not finite (NaN or infinity)");
    executor_.write(buffer, found->second.values);
  };
  for (const WeightBuffers& w : plans_.weights()) {
    const Node& node = graph_.nodes[static_cast<std::size_t>(w.node)];
    const WeightSpec& spec = node.layer->weights[static_cast<std::size_t>(w.index)];
    fill(w.name, spec.dims, w.weights);
    if (w.increment >= 0) fill(increment_name(node.name, spec.name), spec.dims, w.increment);
  }
}

void Net::store(TensorFile& tensors) const {
  for (const WeightBuffers& w : plans_.weights()) {
    const Node& node = graph_.nodes[static_cast<std::size_t>(w.node)];
    const WeightSpec& spec = node.layer->weights[static_cast<std::size_t>(w.index)];
    tensors.tensors[w.name] = {spec.dims, executor_.read(nullptr, w.weights)};
    if (w.increment >= 0)
      tensors.tensors[increment_name(node.name, spec.name)] = {spec.dims,
                                                               executor_.read(nullptr, w.increment)};
  }
}

std::vector<Rates> Net::rates(double progress) const {
  std::vector<Rates> rates;
  for (const WeightBuffers& w : plans_.weights()) {
    const LearningParams& p = graph_.nodes[static_cast<std::size_t>(w.node)]
                                  .layer->weights[static_cast<std::size_t>(w.index)]
                                  .learning;
    rates.push_back({static_cast<float>(p.epsilon.at(progress)), static_cast<float>(p.momentum),
                     static_cast<float>(p.decay)});
  }
  return rates;
}

std::string Net::first_non_finite(Phase phase, std::int64_t images, const StepInputs& inputs) {
  for (const WeightBuffers& w : plans_.weights()) {
    if (!all_finite(executor_.read(nullptr, w.weights))) {
      return "'" + w.name + "' is not finite after an update that was too large";
    }
  }
  // The same net with no layer fused into another, so that every layer's own output can be seen.
  Graph plain = graph_;
  for (Node& node : plain.nodes) node.fused = false;
  PlanSet plans(plain, provider_.matrices(), *backend_, options_.seed_value(), !mean_.empty(), true);
  const Plan& plan = plans.plan(phase, images);
  Executor executor(plans, options_.gpus());
  executor.reserve(plan);
  if (plans.mean_buffer() >= 0) executor.write(plans.mean_buffer(), mean_);
  for (std::size_t i = 0; i < plans.weights().size(); ++i)
    executor.write(plans.weights()[i].weights, executor_.read(nullptr, plans_.weights()[i].weights));
  std::string first;
  executor.run(plan, inputs, nullptr, [&](std::size_t t) {
    const Task& task = plan.tasks[t];
    if (!first.empty() || (task.kind != TaskKind::forward && task.kind != TaskKind::load)) return;
    for (const BufferUse& use : task.uses) {
      const Buffer& b = plan.buffers[static_cast<std::size_t>(use.buffer)];
      if (use.access == Access::read || b.kind != BufferKind::activation || b.desc.type != DataType::f32)
        continue;
      if (!all_finite(executor.read(&plan, use.buffer)))
        first = plain.nodes[static_cast<std::size_t>(task.node)].name;
    }
  });
  return first.empty() ? "" : "the first layer with such an output is '" + first + "'";
}

}  // namespace convnet
