// The weights of a net: how they begin, and as checkpoints have them.
#include "convnet/net/net_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <numbers>

#include "convnet/base/checksum.h"
#include "convnet/base/error.h"
#include "convnet/base/openmp_scope.h"
#include "convnet/base/philox.h"
#include "convnet/net/net.h"
#include "convnet/net/net_files.h"
#include "convnet/plan/plan_set.h"

namespace convnet {
namespace {

/// N(0,1) for weight `index` of a stream: Box-Muller on the words of one Philox call, four neighbours a call.
void fill_normal(std::uint64_t key, double mean, double stdev, std::vector<float>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  const OpenMpScope scope;
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

}  // namespace

Graph stored_graph(const Checkpoint& checkpoint) {
  Diagnostics diagnostics;
  const NetFiles files = stored_files(checkpoint, diagnostics);
  Graph graph = build_graph(files.definition, files.parameters, checkpoint.matrices, {}, diagnostics);
  return diagnostics.has_errors() ? Graph{} : graph;
}

/// A checkpoint that init functions name, and its net.
struct Net::InitSource {
  explicit InitSource(const std::string& file_or_folder) {
    Checkpoint checkpoint = read_checkpoint(file_or_folder);
    graph = stored_graph(checkpoint);
    tensors = std::move(checkpoint.tensors);
  }

  /// Returns the matrix of `layer` that corresponds to `weight`, matrix `index` of a layer here: that of the
  /// same input, by its place in the list, from the layer that owns it. Throws InputError if there is none.
  const NamedTensor& matrix(const std::string& layer, const WeightSpec& weight, std::size_t index) const {
    std::string name = layer + "." + weight.name;
    const Node* node = find_layer(graph, layer);
    if (weight.name.starts_with("weights.") && node != nullptr) {
      const std::size_t matrices = node->layer->input_weights();
      if (index >= matrices)
        throw InputError(
            fmt::format("layer '{}' of the checkpoint has {} weight matrices, and none for input {}", layer,
                        matrices, index + 1));
      const WeightOwner& owner = node->owners[index];
      name = graph.nodes[owner.node].layer_name + "." + graph.weight(owner).name;
    }
    const auto found = tensors.tensors.find(name);
    if (found == tensors.tensors.end()) throw InputError("the checkpoint has no tensor '" + name + "'");
    return found->second;
  }

  TensorFile tensors;
  Graph graph;  ///< if it has no nodes, tensors are found by the names that they have here
};

namespace {

/// Several layers' matrices as one with all their outputs. The weights of an output may have other dimensions
/// than here, but must be as many.
std::vector<float> concatenated(const std::vector<const NamedTensor*>& parts, const WeightSpec& weight) {
  const std::ptrdiff_t axis = weight.output_axis;
  const auto before_outputs = [&](const Dims& dims) { return Dims(dims.begin(), dims.begin() + axis); };
  const auto of_output = [&](const Dims& dims) {
    return element_count({dims.begin() + axis + 1, dims.end()});
  };
  const auto count = [&](const Dims& dims) { return dims[static_cast<std::size_t>(axis)]; };
  std::int64_t outputs = 0;
  for (const NamedTensor* part : parts) {
    const Dims& dims = part->dims;
    const bool fits = std::ssize(dims) > axis && before_outputs(dims) == before_outputs(weight.dims) &&
                      of_output(dims) == of_output(weight.dims);
    if (!fits || (parts.size() == 1 && count(dims) != count(weight.dims)))
      throw InputError("a matrix of " + to_string(dims) + " does not fit one of " + to_string(weight.dims) +
                       ": outputs, and weights of each, must be as many");
    outputs += count(dims);
  }
  const auto outer = static_cast<std::size_t>(element_count(before_outputs(weight.dims)));
  if (outputs != count(weight.dims))
    throw InputError("gives " + std::to_string(outputs) + " outputs, not " +
                     std::to_string(count(weight.dims)));
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

void put_part(const WholeMatrix& whole, const std::vector<float>& part, NamedTensor& tensor) {
  tensor.dims = whole.dims;
  tensor.values.resize(static_cast<std::size_t>(element_count(whole.dims)));
  std::copy(part.begin(), part.end(), tensor.values.begin() + whole.begin);
}

}  // namespace

std::vector<float> Net::initial_values(const WeightBuffers& w, std::uint64_t seed,
                                       std::map<std::string, InitSource>& sources) const {
  WeightSpec weight = spec(w);
  weight.dims = whole(w).dims;
  const InitFunction& f = weight.init;
  const auto count = static_cast<std::size_t>(element_count(weight.dims));
  std::vector<float> values;
  if (f.name.empty()) {
    values.assign(count, static_cast<float>(weight.init_value));
    if (weight.init_stdev > 0)
      fill_normal(philox_key(seed, w.name), weight.init_value, weight.init_stdev, values);
    if (!all_finite(values))
      throw InputError(fmt::format("{}: {}: initW of {:g} makes weights that fp32 does not hold",
                                   graph_.nodes[w.node].where.str(), w.name, weight.init_stdev));
    return values;
  }
  const auto wrong = [&](const std::string& message) {
    return InputError(f.where.str() + ": " + w.name + ": " + f.name + ": " + message);
  };
  if (const std::string why = wrong_call(f); !why.empty())
    throw InputError(f.where.str() + ": " + w.name + ": " + why +
                     "; the weights cannot be made from scratch");
  if (f.name == "makeb_vec") {
    for (const std::string& item : f.args) {
      double value = 0;
      parse_value(item, ParamSpec{}, value);
      values.push_back(static_cast<float>(value));
    }
  } else {
    const bool several = f.name.ends_with("cat");
    std::vector<std::string> layers(f.args.begin() + 1, f.args.end());
    if (!several) layers = {graph_.nodes[w.node].layer_name};
    try {
      const InitSource& from = sources.try_emplace(f.args[0], f.args[0]).first->second;
      std::vector<const NamedTensor*> parts;
      for (const std::string& layer : layers) parts.push_back(&from.matrix(layer, weight, w.index));
      values = concatenated(parts, weight);
    } catch (const InputError& e) {
      throw wrong(e.what());
    }
  }
  if (values.size() != count)
    throw wrong(fmt::format("gives {} values instead of {}{}", values.size(), count,
                            weight.dims.size() > 1 ? " (" + to_string(weight.dims) + ")" : ""));
  if (!all_finite(values)) throw wrong("gives numbers that are not finite");
  return values;
}

std::uint32_t Net::init_weights(std::uint64_t seed) {
  Crc32 sum;
  std::map<std::string, InitSource> sources;  // by the names in init functions; each is read once
  std::vector<std::string> wrong;
  for (const WeightBuffers& w : plans_.weights()) {
    std::vector<float> values;
    try {
      values = part_of(whole(w), initial_values(w, seed, sources));
    } catch (const InputError& e) {
      wrong.emplace_back(e.what());
      continue;
    }
    executor_.write_weights(w, values);
    sum.add(values.data(), values.size() * sizeof(float));
    const std::vector<float> zeros(values.size(), 0.0F);
    set_increment(w, zeros);
    executor_.write_shards(w, &UpdateShard::accumulator, zeros);
    executor_.write_shards(w, &UpdateShard::squares, zeros);
    executor_.write_averages(w, values);
  }
  if (!wrong.empty()) throw InputError(join(wrong, "\n"));
  windows_.clear();
  return sum.value();
}

std::vector<float> part_of(const WholeMatrix& whole, const std::vector<float>& values) {
  const auto first = values.begin() + whole.begin;
  return {first, first + whole.count};
}

const std::vector<float>& matrix_of(const TensorFile& tensors, const std::string& file,
                                    const std::string& name, const Dims& dims) {
  const auto found = tensors.tensors.find(name);
  if (found == tensors.tensors.end())
    throw InputError(file + ": has no tensor '" + name + "', which this net needs");
  if (found->second.dims != dims)
    throw InputError(file + ": tensor '" + name + "' is " + to_string(found->second.dims) +
                     ", but this net needs " + to_string(dims));
  if (!all_finite(found->second.values))
    throw InputError(file + ": tensor '" + name + "' holds numbers that are not finite (NaN or infinity)");
  return found->second.values;
}

const std::vector<float>& tested_matrix(const Checkpoint& checkpoint, const std::string& layer,
                                        const WeightSpec& spec) {
  const std::string average = increment_name(layer, spec.name, kAverageSuffix);
  const bool averaged = checkpoint.tensors.tensors.contains(average);
  return matrix_of(checkpoint.tensors, checkpoint.file, averaged ? average : layer + "." + spec.name,
                   spec.dims);
}

std::string pytorch_name(const std::string& layer, const std::string& matrix, bool first_input) {
  static const std::map<std::string, std::string> parameters = {
      {"weights", "weight"},           {"biases", "bias"},           {"scale", "weight"}, {"shift", "bias"},
      {"runningMean", "running_mean"}, {"runningVar", "running_var"}};
  const auto parameter = parameters.find(matrix.substr(0, matrix.find('.')));
  return first_input && parameter != parameters.end() ? layer + "." + parameter->second : "";
}

PytorchWeights pytorch_weights(const Graph& graph, const Checkpoint& checkpoint) {
  PytorchWeights result;
  for (const Node& node : graph.nodes) {
    for (std::size_t i = 0; i < node.owners.size(); ++i) {
      if (node.owners[i] != WeightOwner{node.id, i}) continue;  // another layer's
      const WeightSpec& spec = graph.weight(node.owners[i]);
      const bool first_input = i == 0 || i >= node.layer->input_weights();
      std::string name = pytorch_name(node.layer_name, spec.name, first_input);
      if (name.empty()) name = result.unnamed.emplace_back(node.layer_name + "." + spec.name);
      const NamedTensor tensor = {spec.dims, tested_matrix(checkpoint, node.layer_name, spec)};
      if (!result.file.tensors.try_emplace(name, tensor).second)
        throw InputError(checkpoint.file + ": two matrices would have PyTorch's name '" + name +
                         "', that of layer '" + node.layer_name + "' and another one's");
    }
  }
  return result;
}

std::map<std::string, Magnitudes> magnitudes(const Executor& executor, const PlanSet& plans) {
  std::map<std::string, Magnitudes> all;
  const auto sum = [&](BufferId buffer) {
    double total = 0;
    if (!executor.is_here(plans.persistent()[buffer].device)) return total;
    for (const float v : executor.read(nullptr, buffer)) total += std::abs(static_cast<double>(v));
    return total;
  };
  for (const WeightBuffers& w : plans.weights()) {
    // Parts of a matrix on several devices count as one; replicas are equal.
    Magnitudes& of_matrix = all[w.name];
    of_matrix.weights += sum(w.weights[0]);
    of_matrix.count += static_cast<double>(element_count(plans.persistent()[w.weights[0]].desc.dims));
    for (const UpdateShard& shard : w.shards) of_matrix.increments += sum(shard.increment);
  }
  if (executor.processes() == nullptr) return all;
  std::vector<double> mine;
  for (const auto& [name, of_matrix] : all) {
    mine.push_back(of_matrix.weights);
    mine.push_back(of_matrix.increments);
  }
  const std::size_t bytes = mine.size() * sizeof(double);
  std::vector<double> total(mine.size(), 0);
  for (const std::string& text :
       executor.processes()->exchange({reinterpret_cast<const char*>(mine.data()), bytes})) {
    std::vector<double> of_process(mine.size());
    if (text.size() != bytes) throw RunError("a process has sent a damaged message");
    std::memcpy(of_process.data(), text.data(), bytes);
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += of_process[i];
  }
  auto next = total.begin();
  for (auto& [name, of_matrix] : all) {
    of_matrix.weights = *next++;
    of_matrix.increments = *next++;
  }
  return all;
}

std::string Net::name_of(const WeightBuffers& w, const char* suffix) const {
  return increment_name(graph_.nodes[w.node].layer_name, spec(w).name, suffix);
}

int Net::minibatches_per_update(const WeightBuffers& w) const {
  return std::max(1, graph_.nodes[w.node].update_period / graph_.passes);
}

void Net::load(const TensorFile& tensors, const std::string& file, const UpdateWindows& windows) {
  const auto has = [&](const std::string& name) { return tensors.tensors.contains(name); };
  const auto values_of = [&](const WeightBuffers& w, const std::string& name) {
    return part_of(whole(w), matrix_of(tensors, file, name, whole(w).dims));
  };
  windows_ = windows;
  std::string restarted, thawed;  // a matrix whose optimiser was another one, and one that was frozen
  bool thaws_window = false;
  for (const WeightBuffers& w : plans_.weights()) {
    const std::string average = name_of(w, kAverageSuffix);
    const std::vector<float> weights = values_of(w, learns_ || !has(average) ? w.name : average);
    executor_.write_weights(w, weights);
    if (!w.averages.empty()) executor_.write_averages(w, has(average) ? values_of(w, average) : weights);
    if (w.shards.empty()) continue;
    const std::vector<float> zeros(weights.size(), 0.0F);
    const UpdateRule rule = spec(w).learning.rule();
    const std::string squares = name_of(w, squares_suffix(rule));
    UpdateWindow window = windows_[w.name];
    // Increments of AdamW are means of gradients, those of RMSProp belong to its squares, and others are
    // steps.
    const bool same_kind = has(name_of(w, kAdamSquaresSuffix)) == (rule == UpdateRule::adamw) &&
                           has(name_of(w, kRmsSquaresSuffix)) == (rule == UpdateRule::rmsprop);
    const bool was_frozen =
        std::ranges::none_of(std::array{kIncrementSuffix, kAdamSquaresSuffix, kRmsSquaresSuffix},
                             [&](const char* suffix) { return has(name_of(w, suffix)); });
    const bool goes_on = same_kind && !was_frozen;
    if (was_frozen && thawed.empty()) thawed = w.name;
    thaws_window = thaws_window || (was_frozen && w.accumulates());
    if (!was_frozen && !same_kind && restarted.empty()) restarted = w.name;
    set_increment(w, goes_on ? values_of(w, name_of(w, kIncrementSuffix)) : zeros);
    if (w.keeps_squares())
      executor_.write_shards(w, &UpdateShard::squares, goes_on ? values_of(w, squares) : zeros);
    if (!goes_on || rule != UpdateRule::adamw) window.updates = 0;
    // An edited updatePeriod that is over already starts anew.
    if (!w.accumulates() || window.minibatches >= minibatches_per_update(w))
      window = {.updates = window.updates};
    if (w.accumulates())
      executor_.write_shards(w, &UpdateShard::accumulator,
                             window.open() ? values_of(w, name_of(w, kGradientSuffix)) : zeros);
    set_window(windows_, w.name, window);
  }
  // Gradients are clipped together, so all matrices are updated after the same minibatches.
  if (thaws_window) close_windows();
  std::erase_if(windows_, [&](const auto& window) {
    return std::none_of(plans_.weights().begin(), plans_.weights().end(),
                        [&](const WeightBuffers& w) { return w.name == window.first && !w.shards.empty(); });
  });
  if (!restarted.empty())
    fmt::print(stderr,
               "warning: {}: '{}' was trained with another kind of optimiser; its increments, and those of "
               "other matrices of which this is so, begin at 0\n",
               file, restarted);
  if (!thawed.empty())
    fmt::print(
        stderr,
        "Note: {}: has no increments of '{}', as of a frozen matrix; these, and those of other matrices of "
        "which this is so, begin at 0\n",
        file, thawed);
}

void Net::close_windows() {
  for (const WeightBuffers& w : plans_.weights()) {
    const auto count = static_cast<std::size_t>(element_count(spec(w).dims));
    if (w.accumulates())
      executor_.write_shards(w, &UpdateShard::accumulator, std::vector<float>(count, 0.0F));
  }
  for (const auto& [matrix, window] : UpdateWindows(windows_))
    set_window(windows_, matrix, {.updates = window.updates});
}

void Net::store(TensorFile& tensors) const {
  for (const WeightBuffers& w : plans_.weights()) {
    const auto trained = trained_.find(&w);
    put_part(whole(w), trained == trained_.end() ? executor_.read_weights(w) : trained->second,
             tensors.tensors[w.name]);
    if (!w.averages.empty())
      put_part(whole(w), executor_.read_averages(w), tensors.tensors[name_of(w, kAverageSuffix)]);
    if (w.shards.empty()) continue;
    put_part(whole(w), increment(w), tensors.tensors[name_of(w, kIncrementSuffix)]);
    if (w.keeps_squares())
      put_part(whole(w), executor_.read_shards(w, &UpdateShard::squares),
               tensors.tensors[name_of(w, squares_suffix(spec(w).learning.rule()))]);
    const auto window = windows_.find(w.name);
    if (window != windows_.end() && window->second.open())
      put_part(whole(w), executor_.read_shards(w, &UpdateShard::accumulator),
               tensors.tensors[name_of(w, kGradientSuffix)]);
  }
}

std::string Net::overflow_in(const TensorFile& tensors) const {
  constexpr std::array<std::pair<const char*, const char*>, 6> kKinds = {
      {{"", "the weights"},
       {kIncrementSuffix, "the increments"},
       {kGradientSuffix, "the gradients since the last update"},
       {kAdamSquaresSuffix, "the mean of squared gradients"},
       {kRmsSquaresSuffix, "the mean of squared gradients"},
       {kAverageSuffix, "the running average of the weights"}}};
  for (const WeightBuffers& w : plans_.weights()) {
    for (const auto& [suffix, kind] : kKinds) {
      const auto tensor = tensors.tensors.find(name_of(w, suffix));
      if (tensor == tensors.tensors.end() || all_finite(tensor->second.values)) continue;
      const bool is_state = spec(w).state && *suffix == '\0';
      return fmt::format("layer '{}': '{}', {}, is not finite (NaN or infinity)",
                         graph_.nodes[w.node].layer_name, tensor->first,
                         is_state ? "a running statistic of its inputs" : kind);
    }
  }
  return "";
}

void Net::use_averages() {
  if (!trained_.empty()) return;
  for (const WeightBuffers& w : plans_.weights()) {
    if (w.averages.empty()) continue;  // frozen
    trained_[&w] = executor_.read_weights(w);
    executor_.write_weights(w, executor_.read_averages(w));
  }
}

void Net::use_trained() {
  for (const auto& [w, weights] : trained_) executor_.write_weights(*w, weights);
  trained_.clear();
}

}  // namespace convnet
