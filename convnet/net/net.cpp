#include "convnet/net/net.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "convnet/base/exit.h"
#include "convnet/checkpoint/checkpoint.h"
#include "convnet/net/net_files.h"
#include "convnet/net/net_weights.h"

namespace convnet {
namespace {

PlanOptions plans_of(const StepOptions& step, const DeviceOptions& devices, const Provider& provider,
                     bool mean, bool learns) {
  PlanOptions options = plan_options(step, devices, provider);
  options.mean = mean;
  options.learns = learns;
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
  const Plan& plan = plans_.verified(phase, images);
  executor_.reserve(plan);
  upload_mean();
  return plan;
}

/// Leaks the backend if a device hangs: closing its libraries would wait for the device, and the error would
/// never be printed. The libraries' own destructors would wait, too.
Net::~Net() {
  if (!executor_.stalled()) return;
  skip_destructors_at_exit();
  static_cast<void>(backend_.release());
}

void Net::upload_mean() {
  if (std::exchange(mean_uploaded_, true)) return;
  executor_.write_everywhere(plans_.mean_buffers(), mean_);
}

bool Net::submits_ahead() const {
  return std::none_of(plans_.weights().begin(), plans_.weights().end(),
                      [](const WeightBuffers& w) { return w.accumulates(); });
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
    for (const WeightBuffers& w : plans_.weights()) count_updates(w, plan, before, inputs.rates, after);
  }
  executor_.submit(plan, inputs, times, after_task);
  windows_after_.push_back(std::move(after));
}

/// Counts the updates of matrix `w` in a minibatch of `plan`, and fills in the fields of its rates that
/// depend on them. An update whose microbatches have no images does nothing and is not counted. Parts of a
/// matrix share its name and its window, so all of them begin at the one in `before`.
void Net::count_updates(const WeightBuffers& w, const Plan& plan, const UpdateWindows& before,
                        std::vector<Rates>& rates, UpdateWindows& after) const {
  const bool counts = spec(w).learning.rule() == UpdateRule::adamw;
  if (w.shards.empty() || (!w.accumulates() && !counts)) return;  // frozen, or nothing to count
  const auto found = before.find(w.name);
  UpdateWindow window = found == before.end() ? UpdateWindow{} : found->second;
  bool due = true;
  if (w.accumulates()) {
    ++window.minibatches;
    window.images += plan.images;
    due = window.minibatches >= minibatches_per_update(w);
    rates.at(static_cast<std::size_t>(w.rate_index)).images = due ? static_cast<float>(window.images) : 0;
    if (due) window.minibatches = window.images = 0;
  }
  const int microbatches = microbatches_per_update(graph_, graph_.nodes[w.node], plan.phase);
  for (int i = 0; counts && due && i < w.rates; ++i) {
    // If the first microbatch of an update has no images, the others have none either.
    if (graph_.images_of(plan.images, i * microbatches, plan.views) == 0) break;
    const auto updates = static_cast<double>(++window.updates);
    const LearningParams& p = spec(w).learning;
    Rates& own = rates.at(static_cast<std::size_t>(w.rate_index + i));
    own.first_scale = static_cast<float>(1 / (1 - std::pow(p.momentum, updates)));
    own.second_scale = static_cast<float>(1 / std::sqrt(1 - std::pow(p.beta2, updates)));
  }
  set_window(after, w.name, window);
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

NonFinite Net::first_non_finite(Phase phase, std::int64_t images, const StepInputs& inputs) {
  // Executors know plans by their addresses, so these stay.
  if (!unfused_) {
    Graph plain = graph_;
    for (Node& node : plain.nodes) node.fused = false;
    unfused_ = std::make_unique<Unfused>(std::move(plain), plans_);
  }
  while (in_flight() > 0) {
    try {
      wait();
    } catch (const std::runtime_error&) {  // an error of that step
    }
  }
  const Plan& plan = unfused_->plans.verified(phase, images);
  StepInputs still = inputs;
  for (Rates& rates : still.rates) rates.epsilon = rates.momentum = 0;
  std::mutex mutex;  // devices work at the same time
  TaskId first_task;
  const StepResult result = executor_.run(plan, still, nullptr, [&](TaskId t) {
    const Task& task = plan.tasks[t];
    if (task.kind != TaskKind::forward && task.kind != TaskKind::load) return;
    for (const BufferUse& use : task.uses) {
      const Buffer& b = plan.buffers[use.buffer];
      const bool real = b.desc.type == DataType::f32 || b.desc.type == DataType::bf16;
      if (use.access == Access::read || b.kind != BufferKind::activation || !real) continue;
      if (all_finite(executor_.read(&plan, use.buffer))) continue;
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
  const std::string first = first_task.exists() ? graph_.nodes[plan.tasks[first_task].node].name : "";
  if (first_task.exists() && plan.tasks[first_task].kind == TaskKind::load)
    return {"the data set itself has such numbers, where layer '" + first + "' reads it"};
  for (const WeightBuffers& w : plans_.weights()) {
    // Running statistics may differ: they follow the data, and only tests read them.
    if (spec(w).state && phase != Phase::test) continue;
    if (!all_finite(executor_.read_weights(w))) {
      const auto index = static_cast<std::size_t>(w.rate_index);
      const bool learns = phase != Phase::test && !spec(w).state && index < inputs.rates.size();
      return {
          "'" + w.name + "' is not finite" +
              (learns ? fmt::format(
                            " after an update at the rate {:g}: this, or the gradient, is too large for fp32",
                            inputs.rates[index].epsilon)
                      : ""),
          learns};
    }
    if (w.keeps_squares() && !all_finite(executor_.read_shards(w, &UpdateShard::squares)))
      return {"'" + name_of(w, squares_suffix(spec(w).learning.rule())) +
                  "', the mean of squared gradients of layer '" + graph_.nodes[w.node].layer_name +
                  "', is not finite: a gradient was too large",
              true};
  }
  if (first_task.exists()) return {"the first layer with such an output is '" + first + "'"};
  for (const CostSlot& c : plan.costs) {
    for (int v = 0; v < c.values; ++v) {
      if (!std::isfinite(result.costs[static_cast<std::size_t>(c.slot + v)]))
        return {"all layers' outputs are finite, but cost '" + graph_.nodes[c.node].name +
                "' is not: its input is outside of what it is defined for"};
    }
  }
  return {};
}

}  // namespace convnet
