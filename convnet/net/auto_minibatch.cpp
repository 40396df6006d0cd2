#include "convnet/net/auto_minibatch.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include "convnet/base/error.h"
#include "convnet/config/text.h"
#include "convnet/net/data_set.h"
#include "convnet/net/devices.h"
#include "convnet/plan/plan_set.h"

namespace convnet {
namespace {

constexpr double kMemoryShare = 0.8;        ///< share of the memory that plans may need
constexpr int kLargestMinibatch = 1 << 24;  ///< largest --mini
constexpr std::int64_t kFewSteps = 50;  ///< minibatches of an epoch below which a smaller --mini is advised
constexpr std::int64_t kWaiting = 3;  ///< minibatches of images in the host's memory: two steps, and one read

/// Finds out what plans for minibatches need.
struct Question {
  const Graph& graph;
  const Provider& provider;
  const DeviceOptions& devices;
  StepOptions step;
  const MachineMemory& memory;
  const LargestBatches& largest;
  std::unique_ptr<const Target> target;

  /// Returns the bytes that plans for minibatches of `mini` images need of the memory of the fullest device,
  /// or of the fullest host if its devices share memory.
  std::int64_t needed(int mini) {
    step.mini = mini;
    PlanSet plans(graph, provider.matrices(), *target, plan_options(step, devices, provider));
    const auto rows = [](std::int64_t wanted, std::int64_t most) {
      return most > 0 ? std::min(wanted, most) : wanted;
    };
    plans.plan(Phase::train, rows(mini, largest.train));
    plans.plan(Phase::test, rows(rows_of_test(provider, mini), largest.test * provider.views()));
    std::map<int, std::int64_t> of_hosts;
    std::int64_t most = 0;
    for (const DeviceId device : plans.device_ids()) {
      const std::int64_t bytes = plans.memory_needed(device);
      most = std::max(most, bytes);
      of_hosts[plans.topology().host(device)] += bytes;
    }
    if (!memory.shared) return most;
    std::int64_t image = 0;
    for (const MatrixInfo& matrix : provider.matrices()) image += matrix.image_bytes();
    for (const auto& [host, bytes] : of_hosts) most = std::max(most, bytes + kWaiting * mini * image);
    return most;
  }
};

}  // namespace

LargestBatches largest_batches(const Provider& provider, const DataOptions& data) {
  return {largest_batch(provider, data.train_range), largest_batch(provider, data.test_range),
          image_count(provider, data.train_range)};
}

MachineMemory free_memory_of(const DeviceOptions& devices, int used, const Processes* processes) {
  const auto backend = make_backend(devices, used, processes);
  std::vector<int> here = devices.gpus_of(processes == nullptr ? 0 : processes->rank());
  if (processes == nullptr) here.resize(std::min(here.size(), static_cast<std::size_t>(used)));
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const int device : here) least = std::min(least, backend->memory_available(device));
  return {least, backend->on_host()};
}

void check_auto_minibatch(const StepOptions& step, const DeviceOptions& devices) {
  if (step.mini == kAutoMini && devices.parallel == Parallel::automatic)
    throw InputError(
        "--mini auto and --parallel auto wait for each other: how much memory a minibatch takes depends on "
        "where layers run, and that on the minibatch; give --mini a number");
}

int choose_minibatch(const Graph& graph, const Provider& provider, const DeviceOptions& devices,
                     StepOptions step, const MachineMemory& memory, const LargestBatches& largest,
                     std::string& note, Processes* processes) {
  const int replicas = graph.cut().replicas;
  const auto allowed = static_cast<std::int64_t>(kMemoryShare * static_cast<double>(memory.bytes));
  int least = 1;  // each microbatch has an image
  while (least < step.microbatches) least *= 2;
  const std::int64_t most =
      std::min<std::int64_t>(kLargestMinibatch, largest.train > 0 ? largest.train : kLargestMinibatch);
  Question question{graph, provider, devices, step, memory, largest, nullptr};
  std::int64_t first = 0, needs = 0;
  int found = 0;  // images for each replica; 0: none fits
  run_collectively(processes, [&] {
    question.target = make_target(devices, graph.gpu_count());
    first = question.needed(replicas * least);
    for (int images = least; images == least || images <= most / replicas; images *= 2) {
      const std::int64_t bytes = images == least ? first : question.needed(replicas * images);
      if (bytes > allowed) break;
      found = images;
      needs = bytes;
    }
  });
  bool by_data = found > 0 && 2 * std::int64_t{found} * replicas > most;
  if (processes != nullptr) {
    const int mine = found;
    for (const std::string& other : processes->exchange(std::to_string(mine)))
      found = std::min(found, to_number<int>(other).value_or(0));
    by_data = by_data && found == mine;
  }
  const auto mebibytes = [](std::int64_t bytes) { return bytes >> 20; };
  if (found == 0)
    throw DeviceError(
        fmt::format("--mini auto: even {} image{} for each of {} replica{} need {} MiB, and plans may take "
                    "{} of the {} MiB that are free; use --conserve-mem 1, a smaller net or more devices",
                    least, least == 1 ? "" : "s", replicas, replicas == 1 ? "" : "s", mebibytes(first),
                    mebibytes(allowed), mebibytes(memory.bytes)));
  const std::string rule = replicas == 1
                               ? "the largest power of two"
                               : fmt::format("the largest power of two for each of {} replicas", replicas);
  const std::string limit =
      by_data ? fmt::format("that the largest batch of training has, {} images", most)
              : fmt::format("whose plans need at most {:.0f} % of the free memory", 100 * kMemoryShare);
  note =
      fmt::format("--mini auto: {}, {} {} (needs {} of {} MiB{})", found * replicas, rule, limit,
                  mebibytes(needs), mebibytes(memory.bytes), memory.shared ? "" : " of the fullest device");
  const std::int64_t images = std::int64_t{found} * replicas;
  if (const std::int64_t steps = (largest.epoch + images - 1) / images; steps > 0 && steps < kFewSteps)
    note += fmt::format("; an epoch has only about {} of them, and learns more from smaller ones", steps);
  return found * replicas;
}

std::string choose_small_minibatch(StepOptions& step, OptionTexts& texts, std::int64_t images,
                                   std::int64_t largest) {
  if (texts.contains("mini")) return "";
  constexpr int kFewest = 16, kSteps = 20;
  const int usual = step.mini;
  while (step.mini > kFewest && images < std::int64_t{kSteps} * step.mini) step.mini /= 2;
  step.mini = static_cast<int>(std::clamp<std::int64_t>(largest, 1, step.mini));
  texts["mini"] = std::to_string(step.mini);
  if (step.mini == usual) return "";
  return fmt::format("Not given, and chosen for {} image{}: --mini {}", images, images == 1 ? "" : "s",
                     step.mini);
}

}  // namespace convnet
