#include "convnet/train/stop_signal.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

#include "kernels/error.h"

namespace convnet {

StopSignal::StopSignal() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  if (pthread_sigmask(SIG_BLOCK, &signals, nullptr) != 0 ||
      (fd_ = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC)) < 0)
    throw RunError("cannot watch for SIGINT and SIGTERM");
}

StopSignal::~StopSignal() { close(fd_); }

bool StopSignal::arrived() {
  signalfd_siginfo info;
  if (!arrived_ && read(fd_, &info, sizeof info) == sizeof info) arrived_ = true;
  return arrived_;
}

}  // namespace convnet
