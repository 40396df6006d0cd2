// convnet: trains convolutional networks described by two .cfg files. Parses the command, maps errors to exit
// codes.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "convnet/base/available_memory.h"
#include "convnet/base/end_signals.h"
#include "convnet/base/error.h"
#include "convnet/base/host_threads.h"
#include "convnet/base/openmp_environment.h"
#include "convnet/base/printable.h"
#include "convnet/base/standard_streams.h"
#include "convnet/cli/commands.h"
#include "convnet/cli/help.h"
#include "convnet/config/diagnostics.h"
#include "convnet/runtime/transport.h"

namespace {

int dispatch(std::vector<std::string> args, convnet::StandardStreams& streams) {
  if (args.empty()) {
    fmt::print(stderr, "{}", convnet::usage_text());
    return 2;
  }
  const std::string name = args[0];
  const convnet::Command* command = convnet::find_command(name);
  const bool named = command != nullptr;
  if (named) args.erase(args.begin());
  const auto asked = [&](const char* option) {
    const auto end = std::find(args.begin(), args.end(), "--");  // after it come names of files
    return std::find(args.begin(), end, option) != end;
  };
  if (!named && name.starts_with("-")) command = convnet::find_command("train");
  const bool wants_version = asked("--version"), wants_help = asked("--help") || asked("-h");
  const bool works_together =
      command != nullptr && command->processes == convnet::InProcesses::all && !wants_version && !wants_help;
  const bool several = convnet::launched_processes() > 1;
  // The first process does the work of all other commands and reports their errors.
  if (several && !works_together && convnet::launched_rank() > 0) return 0;
  if (wants_version) {
    fmt::print("{}", convnet::version_text());
    return 0;
  }
  if (command == nullptr) {
    std::vector<std::string> names;
    for (const convnet::Command& known : convnet::commands()) names.emplace_back(known.name);
    if (const std::string task = convnet::task_help(name); !task.empty())
      throw convnet::InputError("unknown command '" + name + "'; " + task);
    std::string otherwise = "the commands are " + convnet::join(names);
    if (std::error_code none; std::filesystem::exists(name, none))
      otherwise = "to train on a data set, type: convnet train " + convnet::shell_word(name) + " ...";
    throw convnet::InputError("unknown command '" + name + "'" +
                              convnet::did_you_mean(name, names, otherwise));
  }
  if (wants_help) {
    if (!named) fmt::print("{}\n", convnet::usage_text());
    fmt::print("{}", convnet::command_help(*command));
  } else {
    if (command->processes == convnet::InProcesses::refused && several)
      throw convnet::InputError("convnet " + std::string(command->name) +
                                " runs in one process; start it without mpirun or srun");
    command->run(args, streams);
  }
  return 0;
}

/// Prints an error on stderr and returns its exit code. In a run of several processes, an error without text
/// has been reported by another process.
int fail(const std::string& what, int code) {
  std::fflush(stdout);
  if (!what.empty())
    fmt::print(stderr, "{}\n", what);
  else if (convnet::launched_processes() <= 1)
    fmt::print(stderr, "convnet failed, and the error has no text; this is an error in convnet itself\n");
  return code;
}

/// Calls restart_in_openmp_environment() before the libraries that this program needs are initialised.
[[gnu::used, gnu::section(".preinit_array")]] void (*const restart)(int, char**, char**) =
    [](int, char** argv, char** environment) { convnet::restart_in_openmp_environment(argv, environment); };

/// Returns what `act` returns, or prints its exception and returns the exit code for that.
template <class Act>
int code_of(const Act& act) {
  try {
    return act();
  } catch (const convnet::InputError& e) {
    return fail(e.what(), 2);
  } catch (const convnet::DeviceError& e) {
    return fail(e.what(), 3);
  } catch (const std::bad_alloc&) {
    return fail("out of memory", 3);
  } catch (const std::system_error& e) {
    if (e.code() != std::errc::resource_unavailable_try_again) return fail(e.what(), 1);
    return fail("no more threads can be started; " + convnet::thread_limits(), 3);
  } catch (const std::exception& e) {
    return fail(e.what(), 1);
  }
}

/// Ends the program where an exception cannot reach main(), as in a thread of a library.
[[noreturn]] void end_at_once() {
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    // Nothing that allocates.
    constexpr std::string_view kText =
        "out of memory in a thread that cannot report it: the program ends at once\n";
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText.data(), kText.size());
    ::_exit(3);
  } catch (const std::exception& e) {
    fmt::print(stderr, "an error in a thread that cannot report it: {}\n", e.what());
  } catch (...) {
  }
  std::abort();
}

int run_with_streams(const std::vector<std::string>& args) {
  convnet::StandardStreams streams;
  const int code = code_of([&] { return dispatch(args, streams); });
  std::fflush(stdout);
  // A closed pipe is no error: its reader has read enough.
  if (code != 0 || streams.error() == 0 || streams.closed()) return code;
  return fail("stdout cannot be written: " + std::generic_category().message(streams.error()), 1);
}

}  // namespace

int main(int argc, char** argv) {
  return code_of([&] {
    std::set_terminate(end_at_once);
    // A write that fails says so, which is better than a signal: files and training are saved then.
    for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
    convnet::remove_temporaries_at_end_signals();
    convnet::share_heap_if_limited();
    return run_with_streams({argv + 1, argv + argc});
  });
}
