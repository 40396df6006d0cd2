// Temporary files when a signal ends the program.
#include "convnet/base/end_signals.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <optional>

#include "convnet/base/output_file.h"
#include "tests/catch.h"
#include "tests/temp_folder.h"

namespace convnet {
namespace {

/// Runs `act` in a child process, and sends it `signal` once it has ended. Returns the child's exit status.
template <class Act>
int status_of_ended(int signal, const Act& act) {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    for (const int each : {SIGINT, SIGTERM, SIGHUP}) ::signal(each, SIG_DFL);  // not the test program's
    act([&] {
      static_cast<void>(!write(ends[1], "r", 1));
      while (true) pause();
    });
    _exit(99);
  }
  char ready = 0;
  CHECK(read(ends[0], &ready, 1) == 1);
  kill(child, signal);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  close(ends[0]);
  close(ends[1]);
  return status;
}

bool is_empty(const TempFolder& folder) { return std::filesystem::is_empty(folder.path()); }

}  // namespace

TEST_CASE("a signal that ends the program removes temporary files first") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const TempFolder folder;
    const int status = status_of_ended(signal, [&](const auto& wait) {
      remove_temporaries_at_end_signals();
      OutputFile one(folder / "one"), two(folder / "two");
      one.write("half");
      wait();
    });
    INFO(signal);
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == signal);
    CHECK(is_empty(folder));
  }
}

TEST_CASE("a signal that ends the program leaves finished files") {
  const TempFolder folder;
  status_of_ended(SIGTERM, [&](const auto& wait) {
    remove_temporaries_at_end_signals();
    write_whole_file(folder / "done", "text");
    { const OutputFile dropped(folder / "dropped"); }
    OutputFile open(folder / "open");
    wait();
  });
  CHECK(read_file(folder / "done") == "text");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("a signal that ends a child process leaves its parent's temporary files") {
  const TempFolder folder;
  const int status = status_of_ended(SIGTERM, [&](const auto& wait) {
    remove_temporaries_at_end_signals();
    OutputFile file(folder / "file");
    const pid_t child = fork();
    if (child == 0) {
      raise(SIGTERM);
      _exit(0);
    }
    int ended = 0;
    waitpid(child, &ended, 0);
    if (!WIFSIGNALED(ended) || is_empty(folder)) _exit(1);
    wait();
  });
  CHECK(WIFSIGNALED(status));
  CHECK(is_empty(folder));
}

TEST_CASE("a signal that the program ignores stays ignored") {
  const TempFolder folder;
  const int status = status_of_ended(SIGTERM, [&](const auto& wait) {
    ::signal(SIGHUP, SIG_IGN);
    remove_temporaries_at_end_signals();
    const OutputFile file(folder / "file");
    raise(SIGHUP);
    if (is_empty(folder)) _exit(1);
    wait();
  });
  CHECK(WIFSIGNALED(status));
}

}  // namespace convnet
