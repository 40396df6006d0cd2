#include "tests/layers/small_net.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "convnet/base/philox.h"
#include "convnet/net/outputs.h"

namespace convnet::test {

Minibatch random_minibatch(const Dims& image, std::int64_t images, std::int64_t classes, std::uint64_t seed,
                           const std::vector<ExtraMatrix>& extra) {
  Minibatch batch;
  const std::uint64_t key = philox_key(seed, "minibatch");
  const auto word = [&](std::uint64_t matrix, std::int64_t n, std::int64_t i) {
    return element_random(key, matrix, static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(i));
  };
  const auto real = [&](std::uint64_t matrix, std::int64_t n, std::int64_t i) {
    return 2 * uniform01(word(matrix, n, i)) - 1;
  };
  batch.extra.resize(extra.size());
  for (std::int64_t n = 0; n < images; ++n) {
    for (std::int64_t i = 0; i < element_count(image); ++i) batch.data.push_back(real(0, n, i));
    const std::int64_t label = word(1, n, 0) % static_cast<std::uint32_t>(classes);
    batch.labels.push_back(static_cast<std::int32_t>(label));
    for (std::size_t m = 0; m < extra.size(); ++m)
      for (std::int64_t i = 0; i < extra[m].width; ++i) {
        const float number = real(2 + m, n, i);
        batch.extra[m].push_back(extra[m].kind == ExtraMatrix::real        ? number
                                 : extra[m].kind == ExtraMatrix::multi_hot ? (number > 0 ? 1.0F : 0.0F)
                                                                           : (i == label ? 1.0F : 0.0F));
      }
  }
  return batch;
}

std::vector<reference::Values> reference_inputs(const Minibatch& batch) {
  std::vector<reference::Values> inputs = {{batch.data.begin(), batch.data.end()},
                                           {batch.labels.begin(), batch.labels.end()}};
  for (const std::vector<float>& matrix : batch.extra) inputs.emplace_back(matrix.begin(), matrix.end());
  return inputs;
}

NetTexts between_data_and_cost(const std::string& layers, const std::string& top, int classes,
                               const std::string& parameters) {
  NetTexts texts;
  texts.definition =
      "[data]\ntype=data\ndataIdx=0\n[labels]\ntype=data\ndataIdx=1\n" + layers +
      "\n[top]\ntype=fc\ninputs=" + top + "\noutputs=" + std::to_string(classes) +
      "\ninitW=0.3\n[probs]\ntype=softmax\ninputs=top\n[logprob]\ntype=cost.logreg\ninputs=labels,probs\n";
  texts.parameters = parameters;
  if (parameters.find("[logprob]") == std::string::npos) texts.parameters += "\n[logprob]\ncoeff=1\ntopk=2\n";
  static const std::set<std::string> learns = {"conv", "fc", "sfc", "local", "bnorm"};
  Diagnostics diagnostics;
  for (const IniSection& section : parse_ini("net.cfg", texts.definition, diagnostics).sections) {
    const IniValue* type = section.find("type");
    if (type == nullptr || !learns.contains(type->text)) continue;
    if (parameters.find("[" + section.name + "]") != std::string::npos) continue;
    texts.parameters += "[" + section.name + "]\nepsW=0.05\nepsB=0.1\nmomW=0.9\nmomB=0.8\nwc=0.01\n";
  }
  return texts;
}

Built build_net(const NetTexts& texts, const Provider& provider, const GraphOptions& options) {
  Diagnostics diagnostics;
  const IniFile definition = parse_ini("net.cfg", texts.definition, diagnostics);
  const IniFile parameters = parse_ini("params.cfg", texts.parameters, diagnostics);
  Built built{build_graph(definition, parameters, provider.matrices(), options, diagnostics), {}, {}};
  built.errors = diagnostics.errors();
  built.warnings = diagnostics.warnings();
  return built;
}

namespace {

/// Returns the devices of a test, several on one GPU if there are fewer GPUs.
std::string on_this_machine(const std::string& gpus) {
  std::string reason, there;
  const int devices = cuda_devices(reason);
  for (const std::string& id : split_list(gpus))
    there += (there.empty() ? "" : ",") + (devices > 0 ? std::to_string(std::stoi(id) % devices) : id);
  return there;
}

}  // namespace

SmallNet::SmallNet(const NetTexts& texts, const Dims& image, std::int64_t classes, const NetOptions& options)
    : seed_(options.seed), provider_(image, classes, options.extra) {
  Diagnostics diagnostics;
  definition_ = parse_ini("net.cfg", texts.definition, diagnostics);
  parameters_ = parse_ini("params.cfg", texts.parameters, diagnostics);
  GraphOptions graph_of{true, options.rewrites, static_cast<int>(split_list(options.gpu).size()),
                        options.data_parallel};
  graph_of.microbatches = options.microbatches;
  Graph graph = build_graph(definition_, parameters_, provider_.matrices(), graph_of, diagnostics);
  diagnostics.throw_if_errors();
  if (!options.read.empty()) keep_output(graph, options.read);
  DeviceOptions devices;
  devices.gpu = on_this_machine(options.gpu);
  devices.device = DeviceKind::automatic;  // GPUs where the test program has them
  devices.precision = options.precision;
  devices.threads = options.threads;
  devices.devices_of_processes = options.devices_of_processes;
  devices.devices_of_hosts = options.devices_of_hosts;
  StepOptions step;
  step.seed = options.seed;
  step.conserve_mem = options.conserve_memory;
  step.clip_norm = options.clip_norm;
  step.ema = options.ema;
  std::unique_ptr<Backend> backend = make_backend(devices, graph.gpu_count(), options.processes);
  if (options.wrap) backend = options.wrap(std::move(backend));
  net_ = std::make_unique<Net>(std::move(graph), provider_, devices, step, std::vector<float>{}, true,
                               std::move(backend), options.processes);
}

const Plan& SmallNet::prepare(Phase phase, std::int64_t images) {
  const Plan& plan = net_->prepare(phase, images);
  if (!std::exchange(has_weights_, true)) net_->init_weights(seed_);
  return plan;
}

StepInputs SmallNet::inputs_of(const Minibatch& batch, std::uint64_t iteration) const {
  StepInputs inputs;
  inputs.matrices = {reinterpret_cast<const std::byte*>(batch.data.data()),
                     reinterpret_cast<const std::byte*>(batch.labels.data())};
  for (const std::vector<float>& matrix : batch.extra)
    inputs.matrices.push_back(reinterpret_cast<const std::byte*>(matrix.data()));
  inputs.iteration = iteration;
  inputs.rates = net_->rates(0);
  return inputs;
}

std::map<std::string, std::vector<float>> SmallNet::read_outputs(const Minibatch& batch) {
  std::vector<std::string> layers;
  for (const Node& node : graph().nodes) {
    const bool features = !node.is_cost() && node.layer->label_classes() == 0;
    const bool hidden = node.fused && node.layer->facts.fuses_neuron != FusesNeuron::no &&
                        graph().nodes[node.users[0]].section != node.section;
    if (features && !hidden && std::find(layers.begin(), layers.end(), node.section) == layers.end())
      layers.push_back(node.section);
  }
  return read_outputs(batch, layers);
}

std::map<std::string, std::vector<float>> SmallNet::read_outputs(const Minibatch& batch,
                                                                 const std::vector<std::string>& layers) {
  const Plan& plan = prepare(Phase::test, batch.images());
  OutputReader reader(*net_, layers);
  net_->run(plan, inputs_of(batch, 0), nullptr, reader.reading(plan));
  std::map<std::string, std::vector<float>> outputs;
  reader.collect();
  for (std::size_t i = 0; i < layers.size(); ++i) outputs[layers[i]] = reader.values(i);
  return outputs;
}

StepOutcome SmallNet::step(Phase phase, const Minibatch& batch, std::uint64_t iteration, bool collects) {
  const Plan& plan = prepare(phase, batch.images());
  const StepInputs inputs = inputs_of(batch, iteration);
  StepOutcome outcome;
  std::mutex mutex;  // devices work at the same time
  const auto after_task = [&](TaskId t) {
    const std::lock_guard lock(mutex);
    const Task& task = plan.tasks[t];
    if (const auto* update = std::get_if<Update>(&*task.op);
        update != nullptr && task.kind == TaskKind::update) {
      auto use = task.uses.begin();
      for (const Update::Part& part : update->parts) {
        const Buffer& weights = plan.buffers[use->buffer];
        outcome.gradients[weights.name] = net_->executor().read(&plan, use[2].buffer);
        use += part.arguments();
      }
    }
    if (task.kind != TaskKind::forward && task.kind != TaskKind::load) return;
    for (const BufferUse& use : task.uses) {
      const Buffer& b = plan.buffers[use.buffer];
      if (use.access == Access::read || b.kind != BufferKind::activation || b.desc.type != DataType::f32)
        continue;
      outcome.outputs[graph().nodes[task.node].name] = net_->executor().read(&plan, use.buffer);
    }
  };
  const StepResult result = collects ? net_->run(plan, inputs, nullptr, after_task) : net_->run(plan, inputs);
  outcome.costs.assign(result.costs.begin() + 1, result.costs.end());
  if (!collects) return outcome;
  for (const Node& node : graph().nodes) {
    // A layer without a task has its input's output; a fused one shows its user's.
    if (!node.inputs.empty() && !node.is_cost() && !outcome.outputs.contains(node.name))
      outcome.outputs[node.name] = outcome.outputs[graph().nodes[node.inputs[0]].name];
    if (node.fused && node.layer->facts.fuses_neuron != FusesNeuron::no)
      outcome.outputs[node.name + " fused"] = {};
  }
  for (const Node& node : graph().nodes) {
    if (outcome.outputs.erase(node.name + " fused") > 0) outcome.outputs.erase(node.name);
  }
  return outcome;
}

std::map<std::string, NamedTensor> SmallNet::tensors() const {
  TensorFile file;
  net_->store(file);
  return file.tensors;
}

void SmallNet::set_weights(const std::string& name, const std::vector<float>& values) {
  for (const WeightBuffers& w : net_->plans().weights()) {
    if (w.name == name) return net_->executor().write_weights(w, values);
  }
  throw std::logic_error("no weights " + name);
}

std::string increment_tensor(const std::string& name) {
  const std::size_t weights = name.find(".weights.");
  return weights == std::string::npos ? name + "Inc" : std::string(name).insert(weights + 8, "Inc");
}

reference::NetReference SmallNet::reference() const {
  std::vector<Dims> provider;
  for (const MatrixInfo& m : provider_.matrices()) provider.push_back(m.dims);
  reference::NetReference net(definition_, parameters_, provider, seed_);
  const std::map<std::string, NamedTensor> all = tensors();
  const auto fill = [&](reference::Values& values, const std::string& name) {
    if (all.at(name).values.size() != values.size())
      throw std::logic_error("tensor " + name + " has " + to_string(all.at(name).dims));
    values.assign(all.at(name).values.begin(), all.at(name).values.end());
  };
  for (auto& [name, m] : net.matrices) {
    fill(m.values, name);
    if (all.contains(increment_tensor(name))) fill(m.increment, increment_tensor(name));
  }
  return net;
}

}  // namespace convnet::test
