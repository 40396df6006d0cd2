// Runs the program as a user does: arguments in, exit code and both outputs back.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "convnet/checkpoint/checkpoint.h"
#include "tests/catch.h"

namespace convnet {

/// The end of a run of the program.
struct Outcome {
  int code = -1;      ///< exit code; -1 if a signal ended it
  int signal = 0;     ///< that signal
  std::string out;    ///< stdout
  std::string err;    ///< stderr
  long peak_kib = 0;  ///< most memory that it had at once, in KiB
};

/// Checks that the checkpoints in a run's folder that were saved after `start` can be read, and hold nothing
/// that a resumed run refuses. A run that still goes on may remove some of them meanwhile.
inline void check_saved(const std::string& folder, std::filesystem::file_time_type start) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    // The time of a file that is gone is the earliest that there is.
    if (entry.path().extension() != ".safetensors" || entry.last_write_time(none) < start) continue;
    INFO(entry.path());
    Checkpoint saved;
    try {
      saved = read_checkpoint(entry.path().string());
    } catch (const std::exception& error) {
      if (!std::filesystem::exists(entry.path(), none)) continue;
      FAIL_CHECK(error.what());
    }
    for (const auto& [name, tensor] : saved.tensors.tensors) {
      INFO(name);
      CHECK(all_finite(tensor.values));
    }
  }
}

/// The program, running; its outputs are pipes. The destructor ends it. Checkpoints that it has saved in the
/// folder of --save-file must be readable when it has ended.
class Program {
 public:
  explicit Program(std::vector<std::string> args, const std::string& executable = CONVNET_PROGRAM) {
    std::array<int, 2> out{};
    std::array<int, 2> err{};
    if (pipe2(out.data(), O_CLOEXEC) != 0 || pipe2(err.data(), O_CLOEXEC) != 0)
      throw std::runtime_error("no pipe");
    for (std::size_t i = 0; i + 1 < args.size(); ++i)
      if (args[i] == "--save-file") folder_ = args[i + 1];
    args.insert(args.begin(), executable);
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
    const int error = posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    close(err[1]);
    pipes_ = {{{out[0], POLLIN, 0}, {err[0], POLLIN, 0}}};
    if (error != 0) throw std::runtime_error("cannot start " + args[0]);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    for (const pollfd& pipe : pipes_) {
      if (pipe.fd >= 0) close(pipe.fd);
    }
  }

  void send(int signal) const { kill(pid_, signal); }
  /// The variables that the program was started with, each ending with a zero byte.
  std::string environment() const {
    std::ifstream file("/proc/" + std::to_string(pid_) + "/environ", std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  /// The name that ps and top print.
  std::string name() const {
    std::ifstream file("/proc/" + std::to_string(pid_) + "/comm");
    std::string name;
    std::getline(file, name);
    return name;
  }

  /// Waits until stdout holds `text` that many times. False if the program closed its outputs before.
  bool printed(const std::string& text, int times) {
    const auto enough = [&] {
      std::size_t at = 0;
      for (int i = 0; i < times; ++i) {
        at = outcome_.out.find(text, at);
        if (at == std::string::npos) return false;
        at += text.size();
      }
      return true;
    };
    while (!enough()) {
      if (!read_more()) return false;
    }
    return true;
  }

  Outcome finish() {
    while (read_more()) {
    }
    int status = 0;
    rusage used{};
    wait4(std::exchange(pid_, -1), &status, 0, &used);
    outcome_.peak_kib = used.ru_maxrss;
    if (WIFEXITED(status)) outcome_.code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) outcome_.signal = WTERMSIG(status);
    if (!folder_.empty()) check_saved(folder_, start_);
    return outcome_;
  }

 private:
  /// Reads more of the outputs. Returns false at the end of both.
  bool read_more() {
    using Clock = std::chrono::steady_clock;
    if (pipes_[0].fd < 0 && pipes_[1].fd < 0) return false;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
    if (left <= 0 || poll(pipes_.data(), pipes_.size(), static_cast<int>(left)) == 0)
      throw std::runtime_error("the program hangs; so far it wrote:\n" + outcome_.out + outcome_.err);
    for (std::size_t i = 0; i < pipes_.size(); ++i) {
      if (pipes_[i].fd < 0 || pipes_[i].revents == 0) continue;
      std::array<char, 4096> buffer{};
      const ssize_t count = read(pipes_[i].fd, buffer.data(), buffer.size());
      if (count > 0) {
        (i == 0 ? outcome_.out : outcome_.err).append(buffer.data(), static_cast<std::size_t>(count));
      } else {
        close(std::exchange(pipes_[i].fd, -1));
      }
    }
    return true;
  }

  std::string folder_;  ///< of --save-file; "" for none
  std::filesystem::file_time_type start_ = std::filesystem::file_time_type::clock::now();
  pid_t pid_ = -1;
  std::array<pollfd, 2> pipes_{};
  Outcome outcome_;
#ifdef __SANITIZE_THREAD__
  static constexpr std::chrono::minutes kLongest{20};  // a check takes tens of times as long
#else
  static constexpr std::chrono::minutes kLongest{2};
#endif
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::now() + kLongest;
};

using Args = std::vector<std::string>;

inline Args operator+(Args args, const Args& more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

inline Outcome run_program(const Args& args) { return Program(args).finish(); }

/// Runs the program, which must end with exit code 0.
inline Outcome run_well(const Args& args) {
  Outcome run = run_program(args);
  INFO(run.out << run.err);
  REQUIRE(run.code == 0);
  return run;
}

/// Runs the program, which must end with this exit code and a message with this part.
inline Outcome check_refused(const Args& args, const std::string& message, int code = 2) {
  Outcome run = run_program(args);
  std::string line = "convnet";
  for (const std::string& arg : args) line += " " + arg;
  INFO(line << "\n" << run.out << run.err);
  CHECK(run.signal == 0);
  CHECK(run.code == code);
  CHECK(run.err.find(message) != std::string::npos);
  return run;
}

/// Arguments of a shell (/bin/sh) that runs `script`, in which "$@" is the program with `args`.
inline Args in_shell(const std::string& script, const Args& args) {
  return Args{"-c", script, "sh", CONVNET_PROGRAM} + args;
}
inline Outcome run_in_shell(const std::string& script, const Args& args) {
  return Program(in_shell(script, args), "/bin/sh").finish();
}

}  // namespace convnet
