#include "convnet/train/stop_signal.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "convnet/base/error.h"

namespace convnet {
namespace {

bool is_ignored(int signal) {
  struct sigaction action = {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

/// Ends this program by `signal`, which is blocked here.
void end_by(int signal) {
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  raise(signal);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
}

}  // namespace

StopSignal::StopSignal(const StandardStreams& streams) : streams_(streams) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGUSR1);
  if (!is_ignored(SIGHUP)) sigaddset(&signals, SIGHUP);
  if (pthread_sigmask(SIG_BLOCK, &signals, nullptr) != 0 ||
      (fd_ = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC)) < 0)
    throw RunError("cannot watch for SIGINT and SIGTERM");
}

StopSignal::~StopSignal() { close(fd_); }

bool StopSignal::arrived() {
  if (arrived_) return true;
  signalfd_siginfo info;
  if (!watched_ && read(fd_, &info, sizeof info) == sizeof info) signal_ = static_cast<int>(info.ssi_signo);
  if (streams_.closed() || signal_ != 0)
    arrived_ = true;
  else if (seconds_left() <= kept_back_)
    arrived_ = out_of_time_ = true;
  return arrived_;
}

/// A watcher that cannot wait for signals ends, and leaves them to arrived().
StopSignal::Watcher::Watcher(StopSignal& signals, std::function<bool(int signal)> takes)
    : signals_(signals), over_(eventfd(0, EFD_CLOEXEC)) {
  if (over_ < 0) throw RunError("cannot watch for SIGINT and SIGTERM");
  thread_ = std::thread([arriving = signals.fd_, over = over_, takes = std::move(takes)] {
    while (true) {
      std::array<pollfd, 2> events = {{{over, POLLIN, 0}, {arriving, POLLIN, 0}}};
      while (poll(events.data(), events.size(), -1) < 0) {
        if (errno != EINTR) return;
      }
      signalfd_siginfo info;
      if (events[0].revents != 0 || read(arriving, &info, sizeof info) != sizeof info) return;
      if (!takes(static_cast<int>(info.ssi_signo))) return;
    }
  });
  signals_.watched_ = true;
}

StopSignal::Watcher::~Watcher() {
  eventfd_write(over_, 1);
  thread_.join();
  close(over_);
  signals_.watched_ = false;
}

StopSignal::EndsProgram::EndsProgram(StopSignal& signals, std::function<void()> before_end)
    : watcher_(signals, [before_end = std::move(before_end)](int signal) {
        before_end();
        end_by(signal);
        return false;
      }) {}

StopSignal::AnswersCtrlC::AnswersCtrlC(StopSignal& signals)
    : watcher_(signals, [&signals, answered = false](int signal) mutable {
        if (signals.signal_ == 0) signals.signal_ = signal;
        if (signal != SIGINT) return true;
        if (answered) end_by(signal);
        answered = true;
        fmt::print(stderr,
                   "\nStopping after this minibatch; another Ctrl-C ends the program at once, and nothing is "
                   "saved\n");
        return true;
      }) {}

}  // namespace convnet
