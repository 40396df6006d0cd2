// `convnet train`: trains, resumes or tests a net, in one process or several.
#include <fmt/format.h>

#include <algorithm>

#include "convnet/base/error.h"
#include "convnet/base/standard_streams.h"
#include "convnet/cli/arguments.h"
#include "convnet/cli/command_line.h"
#include "convnet/cli/commands.h"
#include "convnet/train/trainer.h"
#include "kernels/cpu/instruction_set.h"

namespace convnet {
namespace {

/// Ends a run of several processes in which this one has failed. If all know why, the first process reports
/// it; else this one does, and ends the others, which wait for it.
[[noreturn]] void end_together(const std::exception& error, Processes& processes, StandardStreams& streams) {
  constexpr double kWaitForOthers = 10;  // seconds
  const bool is_input = dynamic_cast<const InputError*>(&error) != nullptr,
             is_device = dynamic_cast<const DeviceError*>(&error) != nullptr;
  const int code = is_input ? 2 : is_device ? 3 : 1;
  processes.set_stall_seconds(std::min(kWaitForOthers, processes.stall_seconds()));
  processes.fail(error);
  if (!processes.all_know()) {
    streams.unsilence_errors();
    fmt::print(stderr, "{}: {}\n", processes.name(processes.rank()), error.what());
    std::fflush(stderr);
    processes.transport().abort(code);
  }
  std::fflush(stdout);
  if (processes.rank() == 0) fmt::print(stderr, "{}\n", error.what());
  std::fflush(stderr);
  // As soon as one process ends with an error, mpirun kills the others, which could not report it any more.
  try {
    processes.exchange("");
  } catch (const std::exception&) {  // one has ended without waiting
  }
  const std::string reported;
  if (is_input) throw InputError(reported);
  if (is_device) throw DeviceError(reported);
  throw RunError(reported);
}

/// Limits all processes to the least of their processors' instruction sets, so that their results and plans
/// are the same. Returns a line about it if they differ, else "".
std::string agree_on_instruction_set(Processes& processes) {
  std::string mine;
  processes.run_collectively([&] { mine = name_of(instruction_set()); });
  const std::vector<std::string> all = processes.exchange(mine);
  LeastInstructionSet least;
  processes.run_collectively([&] { least = least_instruction_set(all); });
  limit_instruction_set(least.set);
  if (std::all_of(all.begin(), all.end(), [&](const auto& each) { return each == all[0]; })) return "";
  return fmt::format("Processors differ: all processes compute with {}, the instruction set of {}\n",
                     name_of(least.set), processes.name(static_cast<int>(least.process)));
}

/// Returns those options of devices that processes need before they can agree on the command line. If it is
/// wrong, returns the defaults: train() reports the error once all processes have started.
DeviceOptions early_options(const std::vector<std::string>& args) {
  OptionTexts given;
  try {
    const OptionTexts texts =
        parse_command_line(train_command_options(), split_words(train_command_options(), args).options);
    for (const char* const key : {"stall-timeout", "shared-memory"})
      if (const auto text = texts.find(key); text != texts.end()) given.insert(*text);
    return device_options().parse(given);
  } catch (const InputError&) {  // train() reports it
    return {};
  }
}

/// Runs the command. Prints `note` before it trains.
void train(const std::vector<std::string>& args, StopSignal& stop, Processes* processes,
           const std::string& note = "") {
  OptionTexts texts;
  run_collectively(processes, [&] {
    texts = parse_command_line(train_command_options(), with_data_set(train_command_options(), args));
  });
  // With --json stdout has the results alone.
  fmt::print(texts.contains("json") ? stderr : stdout, "{}", note);
  Trainer(texts, stop, processes).run();
}

}  // namespace

const std::vector<OptionSpec>& train_command_options() { return train_options().specs(); }

void train_command(const std::vector<std::string>& args, StandardStreams& streams) {
  StopSignal stop(streams);  // before any thread starts
  const DeviceOptions early = early_options(args);
  std::unique_ptr<Transport> transport = make_transport(early.stall_timeout, early.shared_memory);
  if (!transport) return train(args, stop, nullptr);
  if (transport->rank() > 0) streams.silence();
  Processes processes(std::move(transport));
  processes.set_asked_to_stop([&] { return stop.arrived(); });
  try {
    train(args, stop, &processes, agree_on_instruction_set(processes));
    processes.exchange("");  // nobody leaves before all are done
  } catch (const std::exception& e) {
    with_own_error(e, [&](const std::exception& own) { end_together(own, processes, streams); });
  }
}

}  // namespace convnet
