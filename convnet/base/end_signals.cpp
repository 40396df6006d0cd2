#include "convnet/base/end_signals.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>

namespace convnet {

/// A place for the name of a file. Places are reused, but never freed: the handler may be reading them.
struct RemovedAtEnd::Slot {
  std::atomic<const char*> name;  ///< null: the place is free
  Slot* next = nullptr;
};

namespace {

constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};

// A signal handler reaches nothing but variables of the program.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<RemovedAtEnd::Slot*> slots = nullptr;
std::atomic<bool> ending = false;
std::atomic<pid_t> owner = 0;  ///< the process whose files they are, not a child that inherits the handler
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

static_assert(std::atomic<const char*>::is_always_lock_free && std::atomic<bool>::is_always_lock_free &&
              std::atomic<pid_t>::is_always_lock_free);

/// Waits until the handler, in another thread, ends the program.
[[noreturn]] void wait_for_end() {
  while (true) pause();
}

RemovedAtEnd::Slot* slot_for(const char* name) {
  for (RemovedAtEnd::Slot* slot = slots; slot != nullptr; slot = slot->next) {
    const char* none = nullptr;
    if (slot->name.compare_exchange_strong(none, name)) return slot;
  }
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): it is in the list for ever
  auto* slot = new RemovedAtEnd::Slot{name, slots};
  while (!slots.compare_exchange_weak(slot->next, slot)) {
  }
  return slot;
}

}  // namespace

/// Calls only functions that are safe in a signal handler, which it also is.
void end_by_signal(int signal) {
  if (owner == getpid()) {
    ending = true;
    for (RemovedAtEnd::Slot* slot = slots; slot != nullptr; slot = slot->next) {
      // The name is taken, so that its owner waits before it frees the text.
      if (const char* name = slot->name.exchange(nullptr); name != nullptr) unlink(name);
    }
  }
  std::signal(signal, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  raise(signal);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
}

void remove_temporaries_at_end_signals() {
  owner = getpid();
  for (const int signal : kSignals) {
    struct sigaction before = {};
    if (sigaction(signal, nullptr, &before) != 0 || before.sa_handler == SIG_IGN) continue;
    struct sigaction action = {};
    action.sa_handler = end_by_signal;
    sigemptyset(&action.sa_mask);
    for (const int other : kSignals) sigaddset(&action.sa_mask, other);
    sigaction(signal, &action, nullptr);
  }
}

RemovedAtEnd::RemovedAtEnd(const std::string& file) : file_(file), slot_(slot_for(file_.c_str())) {
  if (!ending) return;  // the handler sees the name
  unlink(file_.c_str());
  wait_for_end();
}

RemovedAtEnd::~RemovedAtEnd() {
  const char* mine = file_.c_str();
  if (!slot_->name.compare_exchange_strong(mine, nullptr)) wait_for_end();
}

}  // namespace convnet
