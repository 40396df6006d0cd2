// The minibatches of a run: their data, and their steps on the devices.
#include "convnet/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "convnet/base/clock.h"
#include "convnet/base/error.h"

namespace convnet {

LoadRequest Trainer::request(int batch, int epoch, std::int64_t first) const {
  return {batch, epoch, first, epoch > 0 ? options_.step.mini : test_minibatch() / provider_->views(),
          share_ ? &*share_ : nullptr};
}

LoadRequest Trainer::test_request(std::int64_t cursor) const {
  return request(test_range_.first + static_cast<int>(cursor % test_range_.count()), 0);
}

std::shared_ptr<const DataBatch> Trainer::take(const LoadRequest& wanted) {
  const auto start = Clock::now();
  std::shared_ptr<const DataBatch> data;
  run_collectively(processes_, [&] {
    data = prefetcher_.take(wanted);
    // Nothing could be read ahead of a run's first step.
    if (std::exchange(taken_data_, true)) batch_wait_ += seconds_since(start);
  });
  time_use_.data += seconds_since(start);
  return data;
}

StepInputs Trainer::inputs_of(const DataBatch& data, TrainingProgress progress, int ahead) const {
  StepInputs inputs;
  for (const auto& matrix : data.matrices) inputs.matrices.push_back(matrix.data());
  inputs.iteration = state_.iteration + static_cast<std::uint64_t>(ahead);
  progress.minibatches = static_cast<double>(inputs.iteration);
  inputs.rates = net_.rates(progress);
  return inputs;
}

bool Trainer::has_time_for_two() const {
  if (options_.time_limit == 0) return true;
  if (!pace_.knows(Phase::train)) return false;
  // Several processes would not answer alike; they keep the time of two minibatches back.
  return processes_ != nullptr || stop_.seconds_left() > pace_.needed(Phase::train, 2);
}

void Trainer::step(Phase phase, const LoadRequest& piece, const DataBatch& data,
                   const TrainingProgress& progress, CostSums& sums, TestOutputs* outputs) {
  const Plan& plan = net_.prepare(phase, data.images);
  const StepInputs inputs = inputs_of(data, progress);
  std::optional<StepInputs> next;
  std::shared_ptr<const DataBatch> following;  // stays in the line until it is taken
  if (!data.last) {
    following =
        prefetcher_.peek({piece.batch, piece.epoch, piece.first + piece.count, piece.count, piece.share});
    if (following && following->images == data.images) next = inputs_of(*following, progress, 1);
  }
  const auto start = Clock::now();
  TaskTimes times;
  const bool times_tasks =
      options_.report.verbose || !options_.report.profile.empty() || !net_.executor().times_cost();
  sound_ = false;
  if (net_.in_flight() == 0)
    net_.submit(plan, inputs, times_tasks ? &times : nullptr,
                outputs != nullptr ? outputs->reading(plan) : nullptr);
  // Nothing but the stop signal ends a batch early, and it waits for what is in flight.
  bool ahead =
      phase == Phase::train && !times_tasks && net_.submits_ahead() && !stopped() && has_time_for_two();
  // Processes have not read equally far, and none of them may begin a step that the others do not begin.
  if (ahead && !data.last && processes_ != nullptr) {
    const std::vector<std::string> have_read = processes_->exchange(next ? "yes" : "no");
    ahead =
        std::all_of(have_read.begin(), have_read.end(), [](const std::string& has) { return has == "yes"; });
  }
  if (next) {
    // All minibatches of a batch but the last have equally many images.
    if (ahead)
      net_.submit(plan, *next);
    else
      net_.expect(plan, next->matrices);
  }
  const StepResult result = net_.wait();
  if (times_tasks) time_use_.add(plan, times, seconds_since(start));
  if (!result.finite()) {
    NonFinite found;
    // A step in flight may have changed the weights a little.
    try {
      found = net_.first_non_finite(phase, data.images, inputs);
    } catch (const DeviceError&) {
      found.text = "there is not enough memory to look for the layer";
    }
    throw RunError(fmt::format(
        "a cost or weight is not finite (NaN or infinity) in {} after {} minibatches, images "
        "{}-{} of the batch{}{}",
        phase == Phase::train ? "training" : "a test", state_.iteration, data.first,
        data.first + (data.images - 1) / plan.views, found.text.empty() ? "" : "; " + found.text,
        (phase == Phase::train ? divergence_advice(options_.step, state_.iteration > 0 || found.after_update)
                               : "") +
            (last_checkpoint_.empty() ? "" : "\nthe last good checkpoint is " + last_checkpoint_)));
  }
  sound_ = true;
  if (phase == Phase::train && !options_.report.profile.empty()) profile_.add(plan, net_.graph(), times);
  if (outputs != nullptr) {
    outputs->collect();
    run_collectively(processes_, [&] { outputs->add_step(plan, inputs.matrices); });
  }
  add_costs(sums, plan, net_.graph(), result.costs, data.images);
}

}  // namespace convnet
