#include "convnet/train/stop_signal.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <initializer_list>
#include <utility>

#include "convnet/base/end_signals.h"
#include "convnet/base/error.h"

namespace convnet {
namespace {

bool is_ignored(int signal) {
  struct sigaction action = {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

/// Blocks these signals, and returns a descriptor of them; -1 if that fails.
int blocked(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) {
    if (signal != SIGHUP || !is_ignored(SIGHUP)) sigaddset(&set, signal);
  }
  return pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0 ? signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC) : -1;
}

/// Takes a signal that has arrived, and returns it; 0 if there is none.
int taken_from(int descriptor) {
  signalfd_siginfo info;
  return read(descriptor, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

}  // namespace

StopSignal::StopSignal(const StandardStreams& streams)
    : streams_(streams), interrupts_(blocked({SIGINT})), others_(blocked({SIGTERM, SIGUSR1, SIGHUP})) {
  if (interrupts_ < 0 || others_ < 0) throw RunError("cannot watch for SIGINT and SIGTERM");
}

StopSignal::~StopSignal() {
  close(interrupts_);
  close(others_);
}

bool StopSignal::arrived() {
  if (arrived_) return true;
  int signal = watched_ == Watched::none ? taken_from(interrupts_) : 0;
  if (signal == 0 && watched_ != Watched::all) signal = taken_from(others_);
  if (signal != 0) signal_ = signal;  // a Watcher may set it, too
  if (streams_.closed() || signal_ != 0)
    arrived_ = true;
  else if (seconds_left() <= kept_back_)
    arrived_ = out_of_time_ = true;
  return arrived_;
}

/// A watcher that cannot wait for signals ends, and leaves them to arrived().
StopSignal::Watcher::Watcher(StopSignal& signals, Watched watched, std::function<bool(int signal)> takes)
    : signals_(signals), over_(eventfd(0, EFD_CLOEXEC)) {
  if (over_ < 0) throw RunError("cannot watch for SIGINT and SIGTERM");
  const int others = watched == Watched::all ? signals.others_ : -1;  // poll() ignores -1
  thread_ = std::thread([interrupts = signals.interrupts_, others, over = over_, takes = std::move(takes)] {
    while (true) {
      std::array<pollfd, 3> events = {{{over, POLLIN, 0}, {interrupts, POLLIN, 0}, {others, POLLIN, 0}}};
      while (poll(events.data(), events.size(), -1) < 0) {
        if (errno != EINTR) return;
      }
      if (events[0].revents != 0) return;
      const int signal = taken_from(events[1].revents != 0 ? interrupts : others);
      if (signal == 0 || !takes(signal)) return;
    }
  });
  signals_.watched_ = watched;
}

StopSignal::Watcher::~Watcher() {
  eventfd_write(over_, 1);
  thread_.join();
  close(over_);
  signals_.watched_ = Watched::none;
}

StopSignal::EndsProgram::EndsProgram(StopSignal& signals, std::function<void()> before_end)
    : watcher_(signals, Watched::all, [before_end = std::move(before_end)](int signal) {
        before_end();
        end_by_signal(signal);
        return false;
      }) {}

StopSignal::AnswersCtrlC::AnswersCtrlC(StopSignal& signals)
    : watcher_(signals, Watched::interrupts, [&signals, answered = false](int signal) mutable {
        if (answered) end_by_signal(signal);
        answered = true;
        int none = 0;
        signals.signal_.compare_exchange_strong(none, signal);
        fmt::print(stderr,
                   "\nStopping after this minibatch; another Ctrl-C ends the program at once, and nothing is "
                   "saved\n");
        return true;
      }) {}

}  // namespace convnet
