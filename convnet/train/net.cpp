#include "convnet/train/net.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "convnet/train/checkpoint.h"
#include "convnet/train/convert.h"
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
    for (const std::int64_t word : {0, 2}) {
      const double u = (r.value[word] + 0.5) * 0x1p-32;
      const double angle = 2 * std::numbers::pi * (r.value[word + 1] * 0x1p-32);
      const double radius = std::sqrt(-2 * std::log(u)) * stdev;
      const std::int64_t at = first + word;
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
  NetFiles files{read_ini(prefixed(options, options.layer_def), diagnostics),
                 read_parameters(options, diagnostics)};
  convert_definition(files.definition, options, diagnostics);
  return files;
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
      plans_(graph_, provider.matrices(), *backend_,
             {options.seed_value(), !mean_.empty(), learns, options.conserve_mem}),
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

namespace {

/// The matrix of `layer` in a checkpoint that corresponds to matrix `index` of a layer here: of the same
/// name, or where inputs are called otherwise, of the same place among its weights.
const NamedTensor& matrix_of(const TensorFile& from, const std::string& layer, const WeightSpec& weight,
                             int index) {
  const auto found = from.tensors.find(layer + "." + weight.name);
  if (found != from.tensors.end()) return found->second;
  const std::string prefix = layer + ".weights.";
  std::vector<const NamedTensor*> weights;
  for (const auto& [name, tensor] : from.tensors) {
    if (name.starts_with(prefix)) weights.push_back(&tensor);
  }
  // Tensors are sorted by name, not by input: only a single one is certainly meant.
  if (weight.name.starts_with("weights.") && index == 0 && weights.size() == 1) return *weights[0];
  throw InputError("the checkpoint has no tensor '" + layer + "." + weight.name + "'");
}

/// Several layers' matrices as one with all their outputs.
std::vector<float> concatenated(const std::vector<const NamedTensor*>& parts, const WeightSpec& weight) {
  if (parts.size() == 1) return parts[0]->values;
  const auto axis = static_cast<std::size_t>(weight.output_axis);
  std::size_t outer = 1;
  for (std::size_t d = 0; d < axis; ++d) outer *= static_cast<std::size_t>(weight.dims[d]);
  std::int64_t outputs = 0;
  for (const NamedTensor* part : parts) {
    Dims same = part->dims;
    if (same.size() == weight.dims.size()) {
      outputs += same[axis];
      same[axis] = weight.dims[axis];
    }
    if (same != weight.dims)
      throw InputError("a matrix of " + to_string(part->dims) + " is no part of one of " +
                       to_string(weight.dims));
  }
  if (outputs != weight.dims[axis])
    throw InputError("gives " + std::to_string(outputs) + " outputs, not " +
                     std::to_string(weight.dims[axis]));
  std::vector<float> values;
  for (std::size_t o = 0; o < outer; ++o) {
    for (const NamedTensor* part : parts) {
      const std::size_t row = part->values.size() / outer;
      const auto begin = part->values.begin() + static_cast<std::ptrdiff_t>(o * row);
      values.insert(values.end(), begin, begin + static_cast<std::ptrdiff_t>(row));
    }
  }
  return values;
}

bool is_increment(const std::string& tensor) {
  const std::size_t weights = tensor.rfind(".weightsInc.");
  return weights != std::string::npos || tensor.ends_with(".biasesInc") || tensor.ends_with(".scaleInc") ||
         tensor.ends_with(".shiftInc");
}

}  // namespace

std::vector<float> Net::initial_values(const WeightBuffers& w, std::uint64_t seed,
                                       std::map<std::string, TensorFile>& checkpoints) const {
  const WeightSpec& weight = spec(w);
  const InitFunction& f = weight.init;
  const auto count = static_cast<std::size_t>(element_count(weight.dims));
  std::vector<float> values;
  if (f.name.empty()) {
    values.assign(count, static_cast<float>(weight.init_value));
    if (weight.init_stdev > 0)
      fill_normal(philox_key(seed, w.name), weight.init_value, weight.init_stdev, values);
    return values;
  }
  const auto wrong = [&](const std::string& message) {
    return InputError(f.where.str() + ": " + w.name + ": " + f.name + ": " + message);
  };
  if (!is_init_function(f.name))
    throw wrong("there is no such function; the weights cannot be made from scratch");
  if (f.name == "makeb_vec") {
    for (const std::string& item : f.args) {
      double value = 0;
      if (std::string why = parse_value(item, ParamSpec{}, value); !why.empty()) throw wrong(why);
      values.push_back(static_cast<float>(value));
    }
  } else {
    if (f.args.empty()) throw wrong("names no checkpoint");
    const bool several = f.name.ends_with("cat");
    if (several != (f.args.size() > 1))
      throw wrong(several ? "needs a checkpoint and layers" : "takes a checkpoint alone");
    std::vector<std::string> layers(f.args.begin() + 1, f.args.end());
    if (!several) layers = {graph_.nodes[static_cast<std::size_t>(w.node)].name};
    try {
      auto found = checkpoints.find(f.args[0]);
      if (found == checkpoints.end())
        found = checkpoints.emplace(f.args[0], read_checkpoint(f.args[0]).tensors).first;
      const TensorFile& from = found->second;
      std::vector<const NamedTensor*> parts;
      for (const std::string& layer : layers) parts.push_back(&matrix_of(from, layer, weight, w.index));
      values = concatenated(parts, weight);
    } catch (const InputError& e) {
      throw wrong(e.what());
    }
  }
  if (values.size() != count)
    throw wrong("gives " + std::to_string(values.size()) + " values, but " + to_string(weight.dims) +
                " takes " + std::to_string(count));
  if (!all_finite(values)) throw wrong("gives numbers that are not finite");
  return values;
}

void Net::init_weights(std::uint64_t seed) {
  std::map<std::string, TensorFile> checkpoints;  // those that init functions name, each read once
  for (const WeightBuffers& w : plans_.weights()) {
    const std::vector<float> values = initial_values(w, seed, checkpoints);
    executor_.write(w.weights, values);
    if (w.increment >= 0) executor_.write(w.increment, std::vector<float>(values.size(), 0.0F));
  }
}

void Net::init_from(const std::string& checkpoint) {
  const Checkpoint from = read_checkpoint(checkpoint);
  std::map<std::string, bool> used;
  for (const auto& [name, tensor] : from.tensors.tensors) used[name] = false;
  int copied = 0;
  fmt::print("Weights from {}:\n", from.file);
  for (const WeightBuffers& w : plans_.weights()) {
    const Dims& dims = spec(w).dims;
    const auto found = from.tensors.tensors.find(w.name);
    if (found == from.tensors.tensors.end()) {
      fmt::print("  {:<32} {:<20} newly made: it is not in the checkpoint\n", w.name, to_string(dims));
      continue;
    }
    used[w.name] = true;
    if (found->second.dims != dims) {
      fmt::print("  {:<32} {:<20} newly made: it is {} in the checkpoint\n", w.name, to_string(dims),
                 to_string(found->second.dims));
      continue;
    }
    if (!all_finite(found->second.values))
      throw InputError(from.file + ": tensor '" + w.name +
                       "' holds numbers that are not finite (NaN or infinity)");
    executor_.write(w.weights, found->second.values);
    fmt::print("  {:<32} {:<20} copied\n", w.name, to_string(dims));
    ++copied;
  }
  for (const auto& [name, was_used] : used) {
    if (!was_used && !is_increment(name) && !name.ends_with(".mean"))
      fmt::print("  {:<32} {:<20} skipped: this net has no such matrix\n", name,
                 to_string(from.tensors.tensors.at(name).dims));
  }
  if (copied == 0) throw InputError(from.file + ": no matrix has the name and shape of one of this net");
}

std::string increment_name(const std::string& layer, const std::string& weight) {
  const std::size_t dot = std::min(weight.find('.'), weight.size());
  return layer + "." + weight.substr(0, dot) + "Inc" + weight.substr(dot);
}

std::string Net::increment_of(const WeightBuffers& w) const {
  return increment_name(graph_.nodes[static_cast<std::size_t>(w.node)].name, spec(w).name);
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
    fill(w.name, spec(w).dims, w.weights);
    if (w.increment >= 0) fill(increment_of(w), spec(w).dims, w.increment);
  }
}

void Net::store(TensorFile& tensors) const {
  for (const WeightBuffers& w : plans_.weights()) {
    tensors.tensors[w.name] = {spec(w).dims, executor_.read(nullptr, w.weights)};
    if (w.increment >= 0)
      tensors.tensors[increment_of(w)] = {spec(w).dims, executor_.read(nullptr, w.increment)};
  }
}

std::vector<Rates> Net::rates(double progress) const {
  std::vector<Rates> rates;
  for (const WeightBuffers& w : plans_.weights()) {
    const LearningParams& p = spec(w).learning;
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
  PlanSet plans(plain, provider_.matrices(), *backend_, {options_.seed_value(), !mean_.empty()});
  const Plan& plan = plans.plan(phase, images);
  Executor executor(plans, options_.gpus());
  executor.reserve(plan);
  if (plans.mean_buffer() >= 0) executor.write(plans.mean_buffer(), mean_);
  for (std::size_t i = 0; i < plans.weights().size(); ++i)
    executor.write(plans.weights()[i].weights, executor_.read(nullptr, plans_.weights()[i].weights));
  std::string first;
  const StepResult result = executor.run(plan, inputs, nullptr, [&](std::size_t t) {
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
  if (!first.empty()) return "the first layer with such an output is '" + first + "'";
  for (const CostSlot& c : plan.costs) {
    for (int v = 0; v < c.values; ++v) {
      if (!std::isfinite(result.costs[static_cast<std::size_t>(c.slot + v)]))
        return "all layers' outputs are finite, but cost '" +
               plain.nodes[static_cast<std::size_t>(c.node)].name +
               "' is not: its input is outside of what it is defined for";
    }
  }
  return "";
}

}  // namespace convnet
