// Processes that end while threads hang.
#include "convnet/base/exit.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/catch.h"

using namespace convnet;

namespace {

/// Ends the process with code 9 when it is destroyed: as a library would crash whose threads still run.
struct Crash {
  ~Crash() { std::_Exit(9); }
};

/// Returns the exit code of a process that calls `run` and ends with std::exit(3).
template <class Run>
int exit_code(const Run& run) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    static const Crash crash;
    run();
    std::exit(3);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("destructors of static objects can be skipped at the exit, whose code stays", "[exit]") {
  CHECK(exit_code([] {}) == 9);
  CHECK(exit_code([] { skip_destructors_at_exit(); }) == 3);
}
