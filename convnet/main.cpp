// convnet: trains convolutional networks described by two .cfg files. Parses the command, maps errors to exit
// codes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "convnet/base/error.h"
#include "convnet/base/host_threads.h"
#include "convnet/base/standard_streams.h"
#include "convnet/cli/command_line.h"
#include "convnet/cli/commands.h"

namespace {

constexpr const char* kUsage =
    "convnet trains convolutional networks described by two .cfg files.\n\n"
    "  convnet --layer-def F --layer-params F --data-provider P --data-path D --train-range A-B --test-range "
    "C-D\n"
    "          --save-path D [options]           train; --load-file CHECKPOINT alone resumes\n"
    "  convnet plan --layer-def F --layer-params F --data-provider P [options]\n"
    "                                            shapes, memory and work of a net, without running it\n"
    "  convnet place --layer-def F --layer-params F --data-provider P --model M --gpu 0,1,... [options]\n"
    "                                            the fastest devices for each layer, written as .cfg files\n"
    "  convnet bench --layer-def F --layer-params F --data-provider dummy-CxHxW-K [options]\n"
    "                                            speed of a training step, by layer\n"
    "  convnet show CHECKPOINT [--show-cost NAME | --show-filters LAYER | --show-preds SOFTMAX | --html "
    "FILE]\n"
    "                                            curves, filters and predictions as pictures or a page\n"
    "  convnet predict CHECKPOINT FILE|FOLDER|-... [options]\n"
    "                                            the classes of image files\n"
    "  convnet make-data --src DIR --dst DIR [options]\n"
    "                                            the original's batches of JPEGs from images\n"
    "  convnet layers [TYPE]                     the layer types and their keys\n"
    "  convnet --version\n\n"
    "convnet COMMAND --help lists a command's options. Exit codes: 0 done, 1 the run failed, 2 the input is "
    "wrong,\n"
    "3 the machine cannot do it.\n";

struct Command {
  const char* name;
  const std::vector<convnet::OptionSpec>& (*options)();
  void (*run)(const std::vector<std::string>& args);
};
/// The commands, without train, which gets the standard streams, and layers, which has no options.
constexpr std::array<Command, 6> kCommands = {{
    {"plan", convnet::plan_command_options, convnet::plan_command},
    {"place", convnet::place_command_options, convnet::place_command},
    {"bench", convnet::bench_command_options, convnet::bench_command},
    {"show", convnet::show_command_options, convnet::show_command},
    {"predict", convnet::predict_command_options, convnet::predict_command},
    {"make-data", convnet::make_data_command_options, convnet::make_data_command},
}};

int dispatch(std::vector<std::string> args, convnet::StandardStreams& streams) {
  using convnet::option_help;
  if (args.empty()) {
    fmt::print(stderr, "{}", kUsage);
    return 2;
  }
  const std::string name = args[0];
  const auto command =
      std::find_if(kCommands.begin(), kCommands.end(), [&](const Command& c) { return name == c.name; });
  const bool known = command != kCommands.end();
  const bool named = known || name == "layers" || name == "train";
  if (named) args.erase(args.begin());
  const auto asked = [&](const char* option) {
    return std::find(args.begin(), args.end(), option) != args.end();
  };
  if (asked("--version")) {
    fmt::print("{}", convnet::version_text());
    return 0;
  }
  if (asked("--help") || asked("-h")) {
    if (name == "layers") {
      fmt::print("usage: convnet layers [TYPE | --markdown]\n");
    } else {
      fmt::print("{}\nOptions{}:\n{}", kUsage, named ? " of convnet " + name : "",
                 option_help(known ? command->options() : convnet::train_command_options()));
    }
    return 0;
  }
  if (known) {
    command->run(args);
  } else if (name == "layers") {
    convnet::layers_command(args);
  } else if (named || name.starts_with("-")) {
    convnet::train_command(args, streams);
  } else {
    throw convnet::InputError("unknown command '" + name +
                              "'; there are train, plan, place, bench, show, predict, make-data and layers");
  }
  return 0;
}

/// An error without text has been reported by another process.
int fail(const std::string& what, int code) {
  std::fflush(stdout);
  if (!what.empty()) fmt::print(stderr, "{}\n", what);
  return code;
}

int run(const std::vector<std::string>& args, convnet::StandardStreams& streams) {
  try {
    return dispatch(args, streams);
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

int run_with_streams(const std::vector<std::string>& args) {
  convnet::StandardStreams streams;
  const int code = run(args, streams);
  std::fflush(stdout);
  // A closed pipe is no error: its reader has read enough.
  if (code != 0 || streams.error() == 0 || streams.closed()) return code;
  return fail("stdout cannot be written: " + std::generic_category().message(streams.error()), 1);
}

}  // namespace

int main(int argc, char** argv) {
  // A write that fails says so, which is better than a signal: files and training are saved then.
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
  try {
    return run_with_streams({argv + 1, argv + argc});
  } catch (const convnet::DeviceError& e) {
    return fail(e.what(), 3);  // before there are streams
  }
}
