// Signals that end a run, in processes of their own.
#include "convnet/train/stop_signal.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>

#include "convnet/base/end_signals.h"
#include "tests/catch.h"
#include "tests/temp_folder.h"

using namespace convnet;

namespace {

/// Runs `work` in a child process, which it may end. Returns how the child has ended: its exit code, which is
/// 0 when `work` returns, or minus a signal. A child that hangs is ended by SIGALRM.
int child(const std::function<void()>& work) {
  constexpr unsigned kHangs = 60;  // seconds
  const pid_t id = fork();
  if (id < 0) throw std::runtime_error("cannot fork");
  if (id == 0) {
    alarm(kHangs);
    std::signal(SIGTERM, SIG_DFL);  // the test's main program has a handler of its own
    try {
      work();
    } catch (...) {
      _exit(99);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(id, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("a signal while a run is prepared ends the program, whoever else looks for signals") {
  for (int i = 0; i < 20; ++i) {
    const int ended = child([] {
      const StandardStreams streams;
      StopSignal stop(streams);
      const StopSignal::EndsProgram preparing(stop, [] {});
      kill(getpid(), SIGTERM);
      // Processes that load together look for signals at every exchange.
      while (true) {
        if (stop.arrived()) _exit(5);
      }
    });
    REQUIRE(ended == -SIGTERM);
  }
}

TEST_CASE("a signal after the preparations is found by the run") {
  const int ended = child([] {
    const StandardStreams streams;
    StopSignal stop(streams);
    {
      const StopSignal::EndsProgram preparing(stop, [] {});
    }
    if (stop.arrived()) _exit(6);
    kill(getpid(), SIGTERM);
    _exit(stop.arrived() ? 7 : 8);
  });
  CHECK(ended == 7);
}

TEST_CASE("the first Ctrl-C asks a run to stop, and the second one ends it") {
  const auto await = [](StopSignal& stop, int signal) {
    kill(getpid(), signal);
    while (!stop.arrived()) usleep(1000);
    if (stop.signal() != signal) _exit(4);
  };
  // Only a person presses Ctrl-C again because nothing seems to happen.
  CHECK(child([&] {
          const StandardStreams streams;
          StopSignal stop(streams);
          const StopSignal::AnswersCtrlC answers(stop);
          await(stop, SIGTERM);
          for (int i = 0; i < 3; ++i) kill(getpid(), SIGTERM);
          usleep(50'000);
        }) == 0);
  // Shells start the jobs of a script in the background with SIGINT ignored.
  for (const bool ignored : {false, true}) {
    CHECK(child([&] {
            std::signal(SIGINT, ignored ? SIG_IGN : SIG_DFL);
            const StandardStreams streams;
            StopSignal stop(streams);
            const StopSignal::AnswersCtrlC answers(stop);
            await(stop, SIGINT);
            usleep(50'000);
            kill(getpid(), SIGINT);
            while (true) pause();
          }) == -SIGINT);
  }
}

TEST_CASE("a second Ctrl-C removes temporary files") {
  const TempFolder folder;
  const std::string file = folder / "temporary";
  for (const bool ignored : {false, true}) {
    write_file(file, "half of a checkpoint");
    CHECK(child([&] {
            std::signal(SIGINT, ignored ? SIG_IGN : SIG_DFL);
            remove_temporaries_at_end_signals();
            const RemovedAtEnd removed(file);
            const StandardStreams streams;
            StopSignal stop(streams);
            const StopSignal::AnswersCtrlC answers(stop);
            kill(getpid(), SIGINT);
            while (!stop.arrived()) usleep(1000);
            usleep(50'000);
            kill(getpid(), SIGINT);
            while (true) pause();
          }) == -SIGINT);
    CHECK_FALSE(std::filesystem::exists(file));
  }
}

TEST_CASE("a signal that ends a run is pending until the run looks for it") {
  CHECK(child([] {
          const StandardStreams streams;
          StopSignal stop(streams);
          const StopSignal::AnswersCtrlC answers(stop);
          kill(getpid(), SIGTERM);
          usleep(50'000);
          sigset_t pending;
          sigpending(&pending);
          if (sigismember(&pending, SIGTERM) != 1) _exit(4);
          if (!stop.arrived() || stop.signal() != SIGTERM) _exit(5);
        }) == 0);
}

TEST_CASE("preparations end although nobody can wait for signals") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return test::skip("sanitizers open files of their own");
#endif
  const int ended = child([] {
    const StandardStreams streams;
    StopSignal stop(streams);
    struct sigaction ignores = {};
    ignores.sa_handler = [](int) {};
    sigaction(SIGUSR2, &ignores, nullptr);
    const StopSignal::EndsProgram preparing(stop, [] {});
    // Only the watching thread takes this signal, which makes it call poll() again.
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 1;  // poll() refuses to watch more files than that
    setrlimit(RLIMIT_NOFILE, &limit);
    kill(getpid(), SIGUSR2);
  });
  CHECK(ended == 0);
}
