#include "convnet/runtime/processes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <limits>
#include <mutex>
#include <new>
#include <system_error>
#include <utility>

#include "convnet/base/clock.h"
#include "convnet/base/error.h"
#include "convnet/base/host_threads.h"

namespace convnet {
namespace {

constexpr int kChannel = 0;  ///< of exchanges

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

/// Counts messages in flight. The transport may end them when nobody waits for them any more.
class Pending {
 public:
  std::function<void()> add() {
    {
      const std::lock_guard lock(shared_->mutex);
      ++shared_->count;
    }
    return [shared = shared_] {
      const std::lock_guard lock(shared->mutex);
      --shared->count;
      shared->changed.notify_all();
    };
  }
  /// Returns false if they have not ended after so many milliseconds.
  bool wait_for(std::chrono::milliseconds time) {
    std::unique_lock lock(shared_->mutex);
    return shared_->changed.wait_for(lock, time, [&] { return shared_->count == 0; });
  }

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    int count = 0;
  };
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

void wait(Pending& pending, const Transport& transport, double seconds, const std::string& what) {
  const auto start = Clock::now();
  while (!pending.wait_for(std::chrono::milliseconds(100))) {
    if (const std::string why = transport.failure(); !why.empty()) throw RunError(why);
    if (seconds_since(start) > seconds)
      throw RunError(fmt::format("{} has not answered for {:.0f} s (--stall-timeout)", what, seconds));
  }
}

std::vector<Transport::Piece> piece(std::string& text) {
  return {{reinterpret_cast<std::byte*>(text.data()), std::ssize(text)}};
}

/// Appends the sizes and contents of blocks; unpack() reads them.
std::string pack(const std::vector<std::string>& blocks, std::size_t count) {
  std::string message;
  for (std::size_t b = 0; b < count; ++b) {
    const std::uint64_t size = blocks[b].size();
    message.append(reinterpret_cast<const char*>(&size), sizeof size);
    message += blocks[b];
  }
  return message;
}

void unpack(std::string_view message, std::vector<std::string>& blocks) {
  while (!message.empty()) {
    std::uint64_t size = 0;
    if (message.size() < sizeof size) throw RunError("a process has sent a damaged message");
    std::memcpy(&size, message.data(), sizeof size);
    message.remove_prefix(sizeof size);
    if (message.size() < size) throw RunError("a process has sent a damaged message");
    blocks.emplace_back(message.substr(0, size));
    message.remove_prefix(size);
  }
}

// A process's answer in an exchange begins with one of these: all is well, or the kind of an error.
constexpr char kGood = '+', kInputError = 'i', kRunError = 'r', kDeviceError = 'd';

char kind_of(const std::exception& error) {
  if (dynamic_cast<const InputError*>(&error) != nullptr) return kInputError;
  if (dynamic_cast<const DeviceError*>(&error) != nullptr) return kDeviceError;
  return kRunError;
}

}  // namespace

void with_own_error(const std::exception& error, const std::function<void(const std::exception&)>& use) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return use(DeviceError("out of memory"));
  const auto* const of_system = dynamic_cast<const std::system_error*>(&error);
  if (of_system != nullptr && of_system->code() == std::errc::resource_unavailable_try_again)
    return use(DeviceError("no more threads can be started; " + thread_limits()));
  use(error);
}

Processes::Processes(std::unique_ptr<Transport> transport, double stall_seconds)
    : transport_(std::move(transport)),
      stall_seconds_(stall_seconds),
      hosts_(static_cast<std::size_t>(transport_->size())) {
  hosts_ = exchange(host_name());
}

std::string Processes::name(int rank) const {
  const std::string& of = host(rank);
  return fmt::format("rank {}{}", rank, of.empty() ? "" : " on host " + of);
}

/// Sends a message and receives one, each after its size.
std::string Processes::swap(int to, const std::string& message, int from) {
  // The transport may use them after an error has ended the wait.
  const auto out = std::make_shared<std::pair<std::string, std::string>>();
  const auto in = std::make_shared<std::pair<std::string, std::string>>();
  const auto kept = [](Pending& pending, const auto& buffers) {
    return [ended = pending.add(), buffers] { ended(); };
    // The analyser does not follow std::function to its destructor.
  };  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks)
  const std::uint64_t size = message.size();
  out->first.assign(reinterpret_cast<const char*>(&size), sizeof size);
  out->second = message;
  in->first.resize(sizeof size);
  Pending sends;
  Pending receives;
  transport_->receive(from, kChannel, piece(in->first), kept(receives, in));
  transport_->send(to, kChannel, piece(out->first), kept(sends, out));
  transport_->send(to, kChannel, piece(out->second), kept(sends, out));
  wait(receives, *transport_, stall_seconds_, name(from));
  std::uint64_t coming = 0;
  std::memcpy(&coming, in->first.data(), sizeof coming);
  in->second.resize(coming);
  transport_->receive(from, kChannel, piece(in->second), kept(receives, in));
  wait(receives, *transport_, stall_seconds_, name(from));
  wait(sends, *transport_, stall_seconds_, name(to));
  return std::move(in->second);
}

/// An all-gather by Bruck's algorithm: each round doubles the number of blocks that a process has.
std::vector<std::string> Processes::all_gather(std::string mine) {
  const auto size = static_cast<std::size_t>(count());
  std::vector<std::string> blocks = {std::move(mine)};  // of this process and those after it
  while (blocks.size() < size) {
    const int distance = static_cast<int>(blocks.size());
    const std::string message = pack(blocks, std::min(blocks.size(), size - blocks.size()));
    const int to = (rank() - distance + count()) % count();
    const int from = (rank() + distance) % count();
    unpack(swap(to, message, from), blocks);
  }
  if (blocks.size() != size) throw RunError("a process has sent a damaged message");
  std::rotate(blocks.begin(), blocks.end() - rank(), blocks.end());
  return blocks;
}

/// Sends this process's answer to all processes and returns the texts of all. Throws if any answer is an
/// error.
std::vector<std::string> Processes::answer(char kind, std::string_view text) {
  const bool stop = asked_to_stop_ && asked_to_stop_();
  std::string block = {kind, stop ? '!' : ' '};
  block += text;
  std::vector<std::string> all = all_gather(std::move(block));
  stop_ = std::any_of(all.begin(), all.end(), [](const std::string& a) { return a.at(1) == '!'; });
  const auto bad = std::find_if(all.begin(), all.end(), [](const std::string& a) { return a[0] != kGood; });
  if (bad == all.end()) {
    for (std::string& content : all) content.erase(0, 2);
    return all;
  }
  ++errors_told_;
  // If all processes have the same error, as usual, the message names no process.
  const int rank = static_cast<int>(bad - all.begin());
  const bool everywhere = std::all_of(all.begin(), all.end(),
                                      [&](const std::string& a) { return a.substr(2) == bad->substr(2); });
  const std::string what = (rank == 0 || everywhere ? "" : name(rank) + ": ") + bad->substr(2);
  if ((*bad)[0] == kInputError) throw InputError(what);
  if ((*bad)[0] == kDeviceError) throw DeviceError(what);
  throw RunError(what);
}

std::vector<std::string> Processes::exchange(std::string_view mine) { return answer(kGood, mine); }

void Processes::run_collectively(const std::function<void()>& work) {
  const int told = errors_told_;
  try {
    work();
  } catch (const std::exception& e) {
    // An exchange within the work may have told the others already.
    if (errors_told_ == told) with_own_error(e, [&](const auto& own) { answer(kind_of(own), own.what()); });
    throw;
  }
  exchange("");
}

void Processes::run_on_first(const std::function<void()>& work) {
  const double limit = stall_seconds_;
  if (rank() > 0) stall_seconds_ = std::numeric_limits<double>::infinity();
  try {
    run_collectively([&] {
      if (rank() == 0) work();
    });
  } catch (...) {
    stall_seconds_ = limit;
    throw;
  }
  stall_seconds_ = limit;
}

void Processes::fail(const std::exception& error) noexcept {
  if (all_know()) return;
  try {
    with_own_error(error, [&](const auto& own) { answer(kind_of(own), own.what()); });
  } catch (const std::exception&) {  // that error, or the others do not come
  }
}

void run_collectively(Processes* processes, const std::function<void()>& work) {
  if (processes == nullptr)
    work();
  else
    processes->run_collectively(work);
}

void run_on_first(Processes* processes, const std::function<void()>& work) {
  if (processes == nullptr)
    work();
  else
    processes->run_on_first(work);
}

}  // namespace convnet
