#include "convnet/net/net.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <numbers>

#include "convnet/base/error.h"
#include "convnet/base/openmp_scope.h"
#include "convnet/base/philox.h"
#include "convnet/checkpoint/checkpoint.h"
#include "convnet/net/convert.h"

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

/// Returns whether updates of the matrix span several minibatches.
bool has_accumulator(const WeightBuffers& w) { return !w.shards.empty() && w.shards[0].accumulator.exists(); }
/// Returns whether squares of gradients are kept for the matrix, for AdamW.
bool uses_squares(const WeightBuffers& w) { return !w.shards.empty() && w.shards[0].squares.exists(); }

/// Sets the window of a matrix; one that says nothing has no entry.
void keep(UpdateWindows& windows, const std::string& matrix, const UpdateWindow& window) {
  if (window.open() || window.updates > 0)
    windows[matrix] = window;
  else
    windows.erase(matrix);
}

/// Returns a layer file's name with --layer-path before it, unless it is absolute.
std::string prefixed(const NetFileOptions& options, const std::string& name) {
  return (std::filesystem::path(options.layer_path) / name).string();
}

bool all_finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

}  // namespace

IniFile read_parameters(const NetFileOptions& options, Diagnostics& diagnostics) {
  return read_ini(parameter_file(options), diagnostics);
}

IniFile read_definition(const NetFileOptions& options, Diagnostics& diagnostics) {
  IniFile definition = read_ini(definition_file(options), diagnostics);
  convert_definition(definition, options, diagnostics);
  return definition;
}

std::string definition_file(const NetFileOptions& options) { return prefixed(options, options.layer_def); }

std::string parameter_file(const NetFileOptions& options) { return prefixed(options, options.layer_params); }

std::vector<std::string> layer_files(const NetFileOptions& options) {
  std::vector<std::string> files;
  if (!options.layer_def.empty()) files.push_back(definition_file(options));
  if (!options.layer_params.empty()) files.push_back(parameter_file(options));
  return files;
}

NetFiles read_net_files(const NetFileOptions& options, Diagnostics& diagnostics) {
  IniFile definition = read_definition(options, diagnostics);
  return {std::move(definition), read_parameters(options, diagnostics)};
}

ImageOptions image_options(const DataOptions& options) {
  ImageOptions images;
  images.inner_size = options.inner_size;
  images.crop_pad = options.crop_pad;
  images.pixel_std = options.pixel_std;
  images.multiview = options.multiview_test;
  images.scalar_mean = options.scalar_mean;
  images.image_size = options.image_size;
  images.color_noise = options.color_noise;
  images.skip_bad_images = options.skip_bad_images;
  images.decode_threads = options.decode_threads;
  images.flip = options.flip;
  images.mixup = options.mixup;
  images.cutmix = options.cutmix;
  images.random_erasing = options.random_erasing;
  images.random_resized_crop = options.random_resized_crop;
  images.hold_out = options.hold_out;
  return images;
}

std::unique_ptr<Provider> open_provider(const DataOptions& options, std::uint64_t seed) {
  std::optional<BatchRange> shuffled;
  if (options.shuffle) shuffled = options.train_range;
  return make_provider(options.provider, options.path, seed, image_options(options), shuffled);
}

std::string choose_ranges(DataOptions& options, const OptionTexts& texts) {
  if (texts.contains("train-range") || texts.contains("test-range")) return "";
  options.hold_out = true;
  DataOptions any_order = options;
  any_order.shuffle = false;
  const std::optional<BatchSplit> split = open_provider(any_order, 0)->split();
  if (!split)
    throw InputError(options.path +
                     ": the numbers of its batches do not say which ones "
                     "are for tests; --train-range and --test-range must");
  options.train_range = split->train;
  std::string why;
  if (split->test) {
    options.test_range = *split->test;
    if (split->held_out) why = ": a tenth of the images, chosen by a hash of their names, is held out";
  } else {
    constexpr int kShare = 10;
    const BatchRange all = split->train;
    if (all.count() == 1)
      throw InputError(
          fmt::format("{}: has one batch, {}, and none to test with; --train-range and --test-range must "
                      "name it to use it for both",
                      options.path, all.str()));
    options.train_range.last = all.last - std::max(1, all.count() / kShare);
    options.test_range = {options.train_range.last + 1, all.last};
    why =
        ": there are none of tests, and the last tenth is held out, which is fair only if images are in no "
        "order of their classes (convnet make-data leaves none)";
  }
  return fmt::format("Batches: training {}, tests {}{}", options.train_range.str(), options.test_range.str(),
                     why);
}

PlanOptions plan_options(const StepOptions& options, const DeviceOptions& devices, const Provider& provider) {
  return {.seed = options.seed,
          .mean = provider.step_subtracts_mean(),
          .conserve_memory = options.conserve_mem,
          .images = options.mini,
          .topology = devices.topology(),
          .clips = options.clip_norm > 0,
          .averages = options.ema > 0};
}

GraphOptions graph_options(const NetFileOptions& files, const DeviceOptions& devices) {
  return {files.strict, true, static_cast<int>(devices.gpus().size()), devices.parallel == Parallel::data};
}

std::string unused_devices(const Graph& graph, const DeviceOptions& options) {
  const std::size_t listed = options.gpus().size();
  // A search that leaves devices out has said so.
  if (static_cast<int>(listed) <= graph.gpu_count() || options.parallel == Parallel::automatic) return "";
  return fmt::format("warning: --gpu lists {} devices, but the layers use {}; --parallel data uses all",
                     listed, graph.gpu_count());
}

Graph checked_graph(const NetFiles& files, const Provider& provider, const GraphOptions& options,
                    Diagnostics& diagnostics) {
  Graph graph = build_graph(files.definition, files.parameters, provider.matrices(), options, diagnostics);
  diagnostics.throw_if_errors();
  return graph;
}

namespace {

PlanOptions plans_of(const StepOptions& step, const DeviceOptions& devices, const Provider& provider,
                     bool mean, bool learns) {
  PlanOptions options = plan_options(step, devices, provider);
  options.mean = mean;
  options.learns = learns;
  options.views = provider.views();
  return options;
}

}  // namespace

Net::Net(Graph graph, const Provider& provider, const DeviceOptions& devices, const StepOptions& step,
         std::vector<float> mean, bool learns, std::unique_ptr<Backend> backend, Processes* processes)
    : graph_(std::move(graph)),
      provider_(provider),
      gpus_(devices.gpus()),
      seed_(step.seed),
      mean_(provider.step_subtracts_mean() ? std::move(mean) : std::vector<float>()),
      backend_(backend ? std::move(backend) : make_backend(devices, graph_.gpu_count(), processes)),
      learns_(learns),
      clip_norm_(static_cast<float>(step.clip_norm)),
      average_share_(static_cast<float>(1 - step.ema)),
      plans_(graph_, provider.matrices(), backend_->target(),
             plans_of(step, devices, provider, !mean_.empty(), learns)),
      executor_(plans_, *backend_, gpus_, devices.stall_timeout, processes) {}

const Plan& Net::prepare(Phase phase, std::int64_t images) {
  const Plan& plan = plans_.plan(phase, images);
  executor_.reserve(plan);
  upload_mean();
  return plan;
}

/// Leaks the backend if a device hangs: closing its libraries would wait for the device, and the error would
/// never be printed.
Net::~Net() {
  if (executor_.stalled()) static_cast<void>(backend_.release());
}

void Net::upload_mean() {
  if (std::exchange(mean_uploaded_, true)) return;
  executor_.write_everywhere(plans_.mean_buffers(), mean_);
}

/// A checkpoint that init functions name, and its net.
struct Net::InitSource {
  explicit InitSource(const std::string& file_or_folder) {
    Checkpoint checkpoint = read_checkpoint(file_or_folder);
    Diagnostics diagnostics;
    graph = build_graph(parse_ini(checkpoint.definition_path, checkpoint.definition_text, diagnostics),
                        parse_ini(checkpoint.parameters_path, checkpoint.parameters_text, diagnostics),
                        checkpoint.matrices, {}, diagnostics);
    if (diagnostics.has_errors()) graph = {};
    tensors = std::move(checkpoint.tensors);
  }

  /// Returns the matrix of `layer` that corresponds to `weight`, matrix `index` of a layer here: that of the
  /// same input, by its place in the list, from the layer that owns it. Throws InputError if there is none.
  const NamedTensor& matrix(const std::string& layer, const WeightSpec& weight, std::size_t index) const {
    std::string name = layer + "." + weight.name;
    const auto node =
        std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) { return n.whole == layer; });
    if (weight.name.starts_with("weights.") && node != graph.nodes.end()) {
      const std::size_t matrices = node->layer->input_weights();
      if (index >= matrices)
        throw InputError(
            fmt::format("layer '{}' of the checkpoint has {} weight matrices, and none for input {}", layer,
                        matrices, index + 1));
      const WeightOwner& owner = node->owners[index];
      name = graph.nodes[owner.node].whole + "." + graph.weight(owner).name;
    }
    const auto found = tensors.tensors.find(name);
    if (found == tensors.tensors.end()) throw InputError("the checkpoint has no tensor '" + name + "'");
    return found->second;
  }

  TensorFile tensors;
  /// Without nodes for an older checkpoint, which did not note what its data looks like: its tensors are then
  /// found by the names that they have here.
  Graph graph;
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

/// Returns whether a tensor belongs to the training of a matrix, not to the net.
bool is_training_state(const std::string& tensor) {
  for (const std::string suffix : kTrainingSuffixes) {
    if (tensor.find(".weights" + suffix + ".") != std::string::npos) return true;
    for (const char* matrix : {".biases", ".scale", ".shift"}) {
      if (tensor.ends_with(matrix + suffix)) return true;
    }
  }
  return false;
}

/// Returns the place of a matrix in the whole one that it may be a part of, as a run of numbers. Matrices
/// that have parts count the outputs in their first dimension.
std::pair<std::size_t, std::size_t> run_of(const WeightSpec& spec) {
  const auto count = static_cast<std::size_t>(element_count(spec.dims));
  const auto outputs = static_cast<std::size_t>(std::max<std::int64_t>(1, spec.dims[0]));
  return {static_cast<std::size_t>(spec.first_output) * (count / outputs), count};
}

std::vector<float> part_of(const WeightSpec& spec, const std::vector<float>& whole) {
  if (spec.whole.empty()) return whole;
  const auto [begin, count] = run_of(spec);
  const auto first = whole.begin() + static_cast<std::ptrdiff_t>(begin);
  return {first, first + static_cast<std::ptrdiff_t>(count)};
}

void put_part(const WeightSpec& spec, const std::vector<float>& part, NamedTensor& whole) {
  whole.dims = spec.whole_dims();
  whole.values.resize(static_cast<std::size_t>(element_count(whole.dims)));
  std::copy(part.begin(), part.end(), whole.values.begin() + static_cast<std::ptrdiff_t>(run_of(spec).first));
}

}  // namespace

std::vector<float> Net::initial_values(const WeightBuffers& w, std::uint64_t seed,
                                       std::map<std::string, InitSource>& sources) const {
  WeightSpec weight = spec(w);
  weight.dims = weight.whole_dims();
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
    if (!several) layers = {graph_.nodes[w.node].whole};
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
    throw wrong("gives " + std::to_string(values.size()) + " values, but " + to_string(weight.dims) +
                " takes " + std::to_string(count));
  if (!all_finite(values)) throw wrong("gives numbers that are not finite");
  return values;
}

void Net::init_weights(std::uint64_t seed) {
  std::map<std::string, InitSource> sources;  // by the names in init functions; each is read once
  for (const WeightBuffers& w : plans_.weights()) {
    const std::vector<float> values = part_of(spec(w), initial_values(w, seed, sources));
    executor_.write_weights(w, values);
    const std::vector<float> zeros(values.size(), 0.0F);
    set_increment(w, zeros);
    executor_.write_shards(w, &UpdateShard::accumulator, zeros);
    executor_.write_shards(w, &UpdateShard::squares, zeros);
    executor_.write_averages(w, values);
  }
  windows_.clear();
}

void Net::init_from(const std::string& checkpoint) {
  const Checkpoint from = read_checkpoint(checkpoint);
  std::map<std::string, bool> used;
  for (const auto& [name, tensor] : from.tensors.tensors) used[name] = false;
  int copied = 0;
  fmt::print("Weights from {}:\n", from.file);
  for (const WeightBuffers& w : plans_.weights()) {
    const Dims& dims = spec(w).whole_dims();
    const bool first_part = spec(w).first_output == 0;
    // Averages, where there are any, are what the other run's tests saw.
    auto found = from.tensors.tensors.find(name_of(w, kAverageSuffix));
    if (found == from.tensors.tensors.end()) found = from.tensors.tensors.find(w.name);
    if (found == from.tensors.tensors.end()) {
      if (first_part)
        fmt::print("  {:<32} {:<20} newly made: it is not in the checkpoint\n", w.name, to_string(dims));
      continue;
    }
    used[w.name] = true;
    if (found->second.dims != dims) {
      if (first_part)
        fmt::print("  {:<32} {:<20} newly made: it is {} in the checkpoint\n", w.name, to_string(dims),
                   to_string(found->second.dims));
      continue;
    }
    const std::vector<float> values =
        part_of(spec(w), matrix_of(from.tensors, from.file, found->first, dims));
    executor_.write_weights(w, values);
    executor_.write_averages(w, values);
    if (first_part) fmt::print("  {:<32} {:<20} copied\n", w.name, to_string(dims));
    ++copied;
  }
  for (const auto& [name, was_used] : used) {
    if (!was_used && !is_training_state(name) && !name.ends_with(".mean"))
      fmt::print("  {:<32} {:<20} skipped: this net has no such matrix\n", name,
                 to_string(from.tensors.tensors.at(name).dims));
  }
  if (copied == 0) throw InputError(from.file + ": no matrix has the name and shape of one of this net");
}

std::string increment_name(const std::string& layer, const std::string& weight, const char* suffix) {
  const std::size_t dot = std::min(weight.find('.'), weight.size());
  return layer + "." + weight.substr(0, dot) + suffix + weight.substr(dot);
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

std::string Net::name_of(const WeightBuffers& w, const char* suffix) const {
  return increment_name(graph_.nodes[w.node].whole, spec(w).name, suffix);
}

int Net::minibatches_per_update(const WeightBuffers& w) const {
  return std::max(1, graph_.nodes[w.node].update_period / graph_.passes);
}

void Net::load(const TensorFile& tensors, const std::string& file, const UpdateWindows& windows) {
  const auto has = [&](const std::string& name) { return tensors.tensors.contains(name); };
  const auto values_of = [&](const WeightBuffers& w, const std::string& name) {
    return part_of(spec(w), matrix_of(tensors, file, name, spec(w).whole_dims()));
  };
  windows_ = windows;
  std::string restarted;  // a matrix whose optimiser was another one
  for (const WeightBuffers& w : plans_.weights()) {
    const std::string average = name_of(w, kAverageSuffix);
    const std::vector<float> weights = values_of(w, learns_ || !has(average) ? w.name : average);
    executor_.write_weights(w, weights);
    if (!w.averages.empty()) executor_.write_averages(w, has(average) ? values_of(w, average) : weights);
    if (w.shards.empty()) continue;
    const std::vector<float> zeros(weights.size(), 0.0F);
    const std::string squares = name_of(w, kSquaresSuffix);
    UpdateWindow window = windows_[w.name];
    // An increment of AdamW is a mean of gradients, and others are steps.
    const bool same_kind = has(squares) == uses_squares(w);
    if (!same_kind && restarted.empty() && spec(w).learned()) restarted = w.name;
    set_increment(w, same_kind ? values_of(w, name_of(w, kIncrementSuffix)) : zeros);
    if (uses_squares(w))
      executor_.write_shards(w, &UpdateShard::squares, same_kind ? values_of(w, squares) : zeros);
    if (!same_kind || !uses_squares(w)) window.updates = 0;
    // An edited updatePeriod that is over already starts anew.
    if (!has_accumulator(w) || window.minibatches >= minibatches_per_update(w))
      window = {.updates = window.updates};
    if (has_accumulator(w))
      executor_.write_shards(w, &UpdateShard::accumulator,
                             window.open() ? values_of(w, name_of(w, kGradientSuffix)) : zeros);
    keep(windows_, w.name, window);
  }
  std::erase_if(windows_, [&](const auto& window) {
    return std::none_of(plans_.weights().begin(), plans_.weights().end(),
                        [&](const WeightBuffers& w) { return w.name == window.first && !w.shards.empty(); });
  });
  if (!restarted.empty())
    fmt::print(stderr,
               "warning: {}: '{}' was trained with another kind of optimiser; its increments, and those of "
               "other matrices of which this is so, begin at 0\n",
               file, restarted);
}

void Net::store(TensorFile& tensors) const {
  for (std::size_t i = 0; i < plans_.weights().size(); ++i) {
    const WeightBuffers& w = plans_.weights()[i];
    put_part(spec(w), trained_.empty() ? executor_.read_weights(w) : trained_[i], tensors.tensors[w.name]);
    if (!w.averages.empty())
      put_part(spec(w), executor_.read_averages(w), tensors.tensors[name_of(w, kAverageSuffix)]);
    if (w.shards.empty()) continue;
    put_part(spec(w), increment(w), tensors.tensors[name_of(w, kIncrementSuffix)]);
    if (uses_squares(w))
      put_part(spec(w), executor_.read_shards(w, &UpdateShard::squares),
               tensors.tensors[name_of(w, kSquaresSuffix)]);
    const auto window = windows_.find(w.name);
    if (window != windows_.end() && window->second.open())
      put_part(spec(w), executor_.read_shards(w, &UpdateShard::accumulator),
               tensors.tensors[name_of(w, kGradientSuffix)]);
  }
}

void Net::use_averages() {
  if (!trained_.empty()) return;
  std::vector<std::vector<float>> trained, averages;
  for (const WeightBuffers& w : plans_.weights()) {
    if (w.averages.empty()) return;
    trained.push_back(executor_.read_weights(w));
    averages.push_back(executor_.read_averages(w));
  }
  trained_ = std::move(trained);
  for (std::size_t i = 0; i < averages.size(); ++i) executor_.write_weights(plans_.weights()[i], averages[i]);
}

void Net::use_trained() {
  for (std::size_t i = 0; i < trained_.size(); ++i) executor_.write_weights(plans_.weights()[i], trained_[i]);
  trained_.clear();
}

bool Net::submits_ahead() const {
  return std::none_of(plans_.weights().begin(), plans_.weights().end(), has_accumulator);
}

void Net::submit(const Plan& plan, StepInputs inputs, TaskTimes* times,
                 const std::function<void(TaskId)>& after_task) {
  if (in_flight() > 0 && !submits_ahead())
    throw std::logic_error("net: a step is submitted ahead where updates span several minibatches");
  const UpdateWindows before = windows_after_.empty() ? windows_ : windows_after_.back();
  UpdateWindows after = before;
  if (plan.phase == Phase::train) {
    inputs.clip_norm = clip_norm_;
    // The weights after the first minibatch are the first average; initial weights are not averaged.
    inputs.average_share = inputs.iteration == 0 ? 1 : average_share_;
    for (const WeightBuffers& w : plans_.weights())
      count_updates(w, plan.images, before, inputs.rates, after);
  }
  executor_.submit(plan, inputs, times, after_task);
  windows_after_.push_back(std::move(after));
}

/// Counts the updates of matrix `w` in a minibatch of `images` images, and fills in the fields of its rates
/// that depend on them. Parts of a matrix share its name and its window, so all of them begin at the one in
/// `before`.
void Net::count_updates(const WeightBuffers& w, std::int64_t images, const UpdateWindows& before,
                        std::vector<Rates>& rates, UpdateWindows& after) const {
  const bool squares = uses_squares(w);
  if (!has_accumulator(w) && !squares) return;
  const auto found = before.find(w.name);
  UpdateWindow window = found == before.end() ? UpdateWindow{} : found->second;
  bool due = true;
  if (has_accumulator(w)) {
    ++window.minibatches;
    window.images += images;
    due = window.minibatches >= minibatches_per_update(w);
    rates.at(static_cast<std::size_t>(w.rate_index)).images = due ? static_cast<float>(window.images) : 0;
    if (due) window.minibatches = window.images = 0;
  }
  for (int i = 0; squares && due && i < w.rates; ++i) {
    const auto updates = static_cast<double>(++window.updates);
    const LearningParams& p = spec(w).learning;
    Rates& own = rates.at(static_cast<std::size_t>(w.rate_index + i));
    own.first_scale = static_cast<float>(1 / (1 - std::pow(p.momentum, updates)));
    own.second_scale = static_cast<float>(1 / std::sqrt(1 - std::pow(p.beta2, updates)));
  }
  keep(after, w.name, window);
}

StepResult Net::wait() {
  UpdateWindows after = std::move(windows_after_.front());
  windows_after_.pop_front();
  StepResult result = executor_.wait();
  if (result.finite()) windows_ = std::move(after);
  return result;
}

StepResult Net::run(const Plan& plan, StepInputs inputs, TaskTimes* times,
                    const std::function<void(TaskId)>& after_task) {
  if (in_flight() > 0) throw std::logic_error("net: a step is run while others are in flight");
  submit(plan, std::move(inputs), times, after_task);
  return wait();
}

std::vector<Rates> Net::rates(const TrainingProgress& progress) const {
  std::vector<Rates> rates;
  for (const WeightBuffers& w : plans_.weights()) {
    const LearningParams& p = spec(w).learning;
    const Rates of_matrix = {.epsilon = static_cast<float>(p.epsilon.at(progress)),
                             .momentum = static_cast<float>(p.momentum),
                             .decay = static_cast<float>(p.decay),
                             .trust = static_cast<float>(p.trust),
                             .second = static_cast<float>(p.beta2),
                             .second_share = static_cast<float>(1 - p.beta2),
                             .adam_epsilon = static_cast<float>(p.adam_epsilon)};
    rates.insert(rates.end(), static_cast<std::size_t>(w.rates), of_matrix);
  }
  return rates;
}

std::string Net::first_non_finite(Phase phase, std::int64_t images, const StepInputs& inputs) {
  // This is the same net with no layer fused into another, so that every layer's own output can be seen.
  Graph plain = graph_;
  for (Node& node : plain.nodes) node.fused = false;
  PlanSet plans(plain, provider_.matrices(), backend_->target(),
                {seed_, !mean_.empty(), true, false, provider_.views(), images, plans_.topology()});
  const Plan& plan = plans.plan(phase, images);
  Executor executor(plans, *backend_, gpus_, executor_.stall_seconds(), executor_.processes());
  executor.reserve(plan);
  executor.write_everywhere(plans.mean_buffers(), mean_);
  for (std::size_t i = 0; i < plans.weights().size(); ++i)
    executor.write_weights(plans.weights()[i], executor_.read_weights(plans_.weights()[i]));
  std::mutex mutex;  // devices work at the same time
  TaskId first_task;
  const StepResult result = executor.run(plan, inputs, nullptr, [&](TaskId t) {
    const Task& task = plan.tasks[t];
    if (task.kind != TaskKind::forward && task.kind != TaskKind::load) return;
    for (const BufferUse& use : task.uses) {
      const Buffer& b = plan.buffers[use.buffer];
      const bool real = b.desc.type == DataType::f32 || b.desc.type == DataType::bf16;
      if (use.access == Access::read || b.kind != BufferKind::activation || !real) continue;
      if (all_finite(executor.read(&plan, use.buffer))) continue;
      const std::lock_guard lock(mutex);
      if (!first_task.exists() || t < first_task) first_task = t;
    }
  });
  if (executor_.processes() != nullptr) {
    for (const std::string& task : executor_.processes()->exchange(std::to_string(first_task.value()))) {
      const TaskId other(std::stoi(task));
      if (other.exists() && (!first_task.exists() || other < first_task)) first_task = other;
    }
  }
  const std::string first = first_task.exists() ? plain.nodes[plan.tasks[first_task].node].name : "";
  if (first_task.exists() && plan.tasks[first_task].kind == TaskKind::load)
    return "the data set itself has such numbers, where layer '" + first + "' reads it";
  for (const WeightBuffers& w : plans_.weights()) {
    // Running statistics may differ: they follow the data, and only tests read them.
    if (spec(w).state && phase != Phase::test) continue;
    if (!all_finite(executor_.read_weights(w))) {
      return "'" + w.name + "' is not finite after an update that was too large";
    }
  }
  if (first_task.exists()) return "the first layer with such an output is '" + first + "'";
  for (const CostSlot& c : plan.costs) {
    for (int v = 0; v < c.values; ++v) {
      if (!std::isfinite(result.costs[static_cast<std::size_t>(c.slot + v)]))
        return "all layers' outputs are finite, but cost '" + plain.nodes[c.node].name +
               "' is not: its input is outside of what it is defined for";
    }
  }
  return "";
}

}  // namespace convnet
