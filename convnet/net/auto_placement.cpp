#include "convnet/net/auto_placement.h"

#include <fmt/format.h>

#include "convnet/base/error.h"
#include "convnet/net/devices.h"
#include "convnet/net/net_files.h"
#include "convnet/place/placed_files.h"

namespace convnet {
namespace {

constexpr double kMebibyte = 1 << 20;

/// Throws the InputError that says how candidates would fit.
[[noreturn]] void refuse_memory(const PlacementAnswer& answer, const StepOptions& step) {
  const PlacedCandidate& least = *std::min_element(
      answer.candidates.begin(), answer.candidates.end(),
      [](const PlacedCandidate& a, const PlacedCandidate& b) { return a.memory < b.memory; });
  const std::string help = step.conserve_mem
                               ? "use more --microbatches or a smaller --mini"
                               : "use more --microbatches, a smaller --mini or --conserve-mem 1";
  throw InputError(
      fmt::format("no placement fits into the {:.0f} MiB {}: the fullest device of the smallest of {} "
                  "candidates needs {:.0f} MiB ({}); {}",
                  static_cast<double>(answer.memory.bytes) / kMebibyte,
                  answer.memory.shared ? "that the devices share" : "of each device", answer.simulated,
                  static_cast<double>(least.memory) / kMebibyte, least.description, help));
}

}  // namespace

PlacementAnswer find_placements(const NetFiles& files, const Provider& provider,
                                const NetFileOptions& file_options, const DeviceOptions& devices,
                                const StepOptions& step, Predictor& predictor, const SearchLimits& limits) {
  PlacementQuestion question{files.definition, files.parameters};
  question.matrices = provider.matrices();
  question.graph = graph_options(file_options, devices, step);
  question.plan = plan_options(step, devices, provider);
  question.images = step.mini;
  question.target = [&](int used) { return std::shared_ptr<const Target>(make_target(devices, used)); };
  question.predict = [&](const Plan& plan, int used) { return predictor.predict(devices, plan, used); };
  question.links = predictor.links();
  question.memory =
      limits.memory_limit > 0 ? MachineMemory{limits.memory_limit, false} : predictor.memory(devices);
  question.exhaustive = limits.exhaustive;
  // Measured operations must not disturb each other.
  question.threads = predictor.measures() ? 1 : thread_count(0);
  PlacementAnswer answer = search_placement(question);
  if (!answer.candidates[0].fits) refuse_memory(answer, step);
  return answer;
}

std::string placement_head(const DeviceOptions& devices, const StepOptions& step) {
  std::vector<std::string> hosts;
  for (const int count : devices.devices_of_hosts) hosts.push_back(std::to_string(count));
  const std::string cut = step.microbatches == 1 ? "" : fmt::format(" in {} microbatches", step.microbatches);
  return fmt::format("# {} devices, of hosts [{}], {} images{}\n", devices.gpus().size(), join(hosts, ","),
                     step.mini, cut);
}

void check_model_used(const OptionTexts& given, const DeviceOptions& devices) {
  if (given.contains("model") && devices.parallel != Parallel::automatic)
    throw InputError(
        "--model is the machine that --parallel auto places layers for; add that option (a net is named by "
        "--layer-def)");
}

Placement auto_placement(const NetFiles& files, const Provider& provider, const NetFileOptions& file_options,
                         const DeviceOptions& devices, const StepOptions& step, Predictor& predictor,
                         std::string& found, Processes* processes) {
  Placement placement;
  const auto search = [&] {
    // Messages cannot be timed in one process: the copies of a process with all devices are timed instead.
    DeviceOptions searched = devices;
    if (predictor.measures()) searched.devices_of_processes.clear();
    const PlacementAnswer answer = find_placements(files, provider, file_options, searched, step, predictor);
    const PlacedCandidate& best = answer.candidates[0];
    placement = best.placement;
    found = fmt::format("Placement: {} ({:.3f} ms a step predicted for {}, the best of {} candidates)",
                        best.description, 1e3 * best.seconds, predictor.name(), answer.simulated);
  };
  if (processes == nullptr) {
    search();
    return placement;
  }
  processes->run_on_first(search);
  const std::string text = processes->exchange(processes->rank() == 0 ? placement_text(placement) : "")[0];
  return read_placement(text, files.definition, static_cast<int>(devices.gpus().size()), "rank 0");
}

}  // namespace convnet
