// Messages between processes of one host: here most processes are objects of the test, which share memory as
// processes do.
#include "convnet/runtime/host_messages.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.h"

using namespace convnet;

namespace {

/// Memory that processes share which are forked from this one.
class SharedMemory {
 public:
  explicit SharedMemory(int processes) : bytes_(HostMessages::shared_bytes(processes)) {
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory_ != MAP_FAILED);
    HostMessages::prepare(get(), processes);
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { munmap(memory_, bytes_); }
  std::byte* get() const { return static_cast<std::byte*>(memory_); }

 private:
  std::size_t bytes_;
  void* memory_;
};

/// The ends of all processes in this one.
struct Host {
  explicit Host(int processes) : memory(processes) {
    for (int p = 0; p < processes; ++p)
      ends.push_back(std::make_unique<HostMessages>(memory.get(), p, processes));
  }
  SharedMemory memory;
  std::vector<std::unique_ptr<HostMessages>> ends;
};

/// Counts what has ended.
class Counter {
 public:
  std::function<void()> one() {
    return [this] { ++count_; };
  }
  /// Returns whether so many have ended within some seconds.
  bool reaches(int count) const {
    for (int waited = 0; waited < 20000 && count_ < count; ++waited)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return count_ == count;
  }
  int count() const { return count_; }

 private:
  std::atomic<int> count_ = 0;
};

/// Returns the failure of an end: its thread may find it later than the test asks, so it waits some seconds.
std::string failure_of(const HostMessages& end) {
  for (int waited = 0; waited < 20000 && end.failure().empty(); ++waited)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return end.failure();
}

/// The pieces of a message and their memory.
struct Content {
  std::vector<std::byte> bytes;
  std::vector<HostMessages::Piece> pieces;

  /// `cuts` are the sizes of the pieces.
  explicit Content(const std::vector<std::int64_t>& cuts) {
    std::int64_t all = 0;
    for (const std::int64_t cut : cuts) all += cut;
    bytes.resize(static_cast<std::size_t>(all));
    std::byte* next = bytes.data();
    for (const std::int64_t cut : cuts) {
      pieces.push_back({next, cut});
      next += cut;
    }
  }
};

}  // namespace

TEST_CASE("messages of a host arrive in their order, whichever end comes first") {
  constexpr int kProcesses = 3, kChannels = 2, kMessages = 60;
  const Host host(kProcesses);
  for (const auto& end : host.ends) CHECK(end->reaches_all());
  std::mt19937 random(1);
  // The sizes on both sides of what lies in the ring itself, and more pieces than one call copies.
  const std::vector<std::vector<std::int64_t>> cuts = {{},
                                                       {0},
                                                       {1},
                                                       {8192},
                                                       {8193},
                                                       {300000},
                                                       {10, 0, 7},
                                                       {8000, 0, 193, 5},
                                                       std::vector<std::int64_t>(600, 20)};
  struct Order {
    bool sends;
    int from, to, channel, message;
  };
  std::vector<Order> orders;
  std::vector<std::unique_ptr<Content>> sent, received;
  Counter sends, receives;
  for (int from = 0; from < kProcesses; ++from)
    for (int to = 0; to < kProcesses; ++to)
      for (int channel = 0; channel < kChannels; ++channel)
        for (int m = 0; m < kMessages && from != to; ++m) {
          const int message = static_cast<int>(sent.size());
          const std::vector<std::int64_t>& sizes = cuts[random() % cuts.size()];
          sent.push_back(std::make_unique<Content>(sizes));
          for (std::byte& byte : sent.back()->bytes) byte = static_cast<std::byte>(random());
          received.push_back(std::make_unique<Content>(sizes));
          orders.push_back({true, from, to, channel, message});
          orders.push_back({false, from, to, channel, message});
        }
  // A thread for each process and half of its channels' ends, so that ends of a message come in any order.
  std::vector<std::thread> threads;
  for (int process = 0; process < kProcesses; ++process)
    for (const bool sending : {true, false})
      threads.emplace_back([&, process, sending] {
        HostMessages& own = *host.ends[static_cast<std::size_t>(process)];
        for (const Order& order : orders) {
          if (order.sends != sending || (sending ? order.from : order.to) != process) continue;
          const auto m = static_cast<std::size_t>(order.message);
          if (sending)
            own.send(order.to, order.channel, sent[m]->pieces, sends.one());
          else
            own.receive(order.from, order.channel, received[m]->pieces, receives.one());
        }
      });
  for (std::thread& thread : threads) thread.join();
  const int all = static_cast<int>(sent.size());
  CHECK(receives.reaches(all));
  CHECK(sends.reaches(all));
  for (std::size_t m = 0; m < sent.size(); ++m) REQUIRE(received[m]->bytes == sent[m]->bytes);
  for (const auto& end : host.ends) {
    CHECK_FALSE(end->in_flight());
    CHECK(end->failure().empty());
  }
}

TEST_CASE("messages that a ring has no space for wait for it") {
  const Host host(2);
  std::vector<std::unique_ptr<Content>> sent, received;
  Counter ended;
  constexpr int kMessages = 400;  // of 8 KiB, where a ring has 32 KiB
  for (int m = 0; m < kMessages; ++m) {
    sent.push_back(std::make_unique<Content>(std::vector<std::int64_t>{8192}));
    std::fill(sent.back()->bytes.begin(), sent.back()->bytes.end(), static_cast<std::byte>(m));
    received.push_back(std::make_unique<Content>(std::vector<std::int64_t>{8192}));
    host.ends[0]->send(1, 5, sent.back()->pieces, ended.one());
  }
  CHECK(ended.count() == kMessages);  // the sender may use its memory again
  for (int m = 0; m < kMessages; ++m)
    host.ends[1]->receive(0, 5, received[static_cast<std::size_t>(m)]->pieces, ended.one());
  CHECK(ended.reaches(2 * kMessages));
  for (std::size_t m = 0; m < sent.size(); ++m) REQUIRE(received[m]->bytes == sent[m]->bytes);
}

TEST_CASE("a large message is in flight until it is received") {
  const Host host(2);
  Content large({100000}), target({100000});
  Counter ended;
  host.ends[0]->send(1, 0, large.pieces, ended.one());
  CHECK(host.ends[0]->in_flight());
  CHECK(ended.count() == 0);
  host.ends[1]->receive(0, 0, target.pieces, ended.one());
  CHECK(ended.reaches(2));
  CHECK_FALSE(host.ends[0]->in_flight());
}

TEST_CASE("messages of other sizes than those that are received are a failure") {
  using Cuts = std::vector<std::int64_t>;
  struct Case {
    Cuts sent, received;
    std::string text;
  };
  for (const auto& [from, to, text] : std::vector<Case>{
           {{20000}, {20001}, "20000 bytes in 1 pieces, and is received as 20001 bytes in 1 pieces"},
           {{10}, {20000}, "10 bytes in 1 pieces, and is received as 20000 bytes in 1 pieces"},
           {{20000}, {10000, 10000}, "20000 bytes in 1 pieces, and is received as 20000 bytes in 2 pieces"},
           {{8000, 12000},
            {12000, 8000},
            "20000 bytes in 2 pieces, and is received as 20000 bytes in 2 pieces of other sizes"}}) {
    const Host host(2);
    Content content(from), target(to);
    Counter never;
    host.ends[1]->receive(0, 0, target.pieces, never.one());
    host.ends[0]->send(1, 0, content.pieces, [] {});
    CHECK(failure_of(*host.ends[1]) == "a message was sent as " + text);
    CHECK(host.ends[1]->in_flight());
    CHECK(never.count() == 0);
  }
}

TEST_CASE("memory that the system hides from other processes is copied first") {
  // The kernel's data for clocks are mapped like memory of a device.
  std::ifstream maps("/proc/self/maps");
  std::byte* hidden = nullptr;
  for (std::string line; std::getline(maps, line);)
    if (line.ends_with("[vvar]")) hidden = reinterpret_cast<std::byte*>(std::stoull(line, nullptr, 16));
  if (hidden == nullptr) return test::skip("this system maps no data for clocks");
  std::byte byte{};
  const iovec from = {hidden, 1}, to = {&byte, 1};
  REQUIRE(process_vm_readv(getpid(), &to, 1, &from, 1, 0) < 0);

  const Host host(2);
  Content own({20000}), target({64, 20000});
  std::fill(own.bytes.begin(), own.bytes.end(), std::byte{9});
  Counter ended;
  host.ends[1]->receive(0, 0, target.pieces, ended.one());
  host.ends[0]->send(1, 0, {{hidden, 64}, own.pieces[0]}, ended.one());
  CHECK(ended.reaches(2));
  CHECK(std::equal(own.bytes.begin(), own.bytes.end(), target.bytes.begin() + 64));
}

TEST_CASE("a process whose memory cannot be read is found before there are messages") {
  const SharedMemory memory(2);
  const HostMessages alone(memory.get(), 0, 2);  // the other has not come
  CHECK_FALSE(alone.reaches_all());
}

TEST_CASE("messages reach another process, and its end is a failure") {
  const SharedMemory memory(2);
  Content question({50000}), answer({50000}), rest({50000});
  std::fill(question.bytes.begin(), question.bytes.end(), std::byte{3});
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {  // answers with numbers that are larger by one, sends once more, and ends
    HostMessages own(memory.get(), 1, 2);
    Counter ended;
    own.receive(0, 0, answer.pieces, ended.one());
    if (!ended.reaches(1)) _exit(1);
    for (std::byte& byte : answer.bytes) byte = static_cast<std::byte>(std::to_integer<int>(byte) + 1);
    own.send(0, 0, answer.pieces, ended.one());
    const bool copied = ended.reaches(2);
    own.send(0, 1, rest.pieces, [] {});
    _exit(copied ? 0 : 1);
  }
  HostMessages own(memory.get(), 0, 2);
  Counter ended;
  own.send(1, 0, question.pieces, ended.one());
  own.receive(1, 0, answer.pieces, ended.one());
  CHECK(ended.reaches(2));
  CHECK(std::all_of(answer.bytes.begin(), answer.bytes.end(), [](std::byte b) { return b == std::byte{4}; }));
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  own.receive(1, 1, rest.pieces, [] {});
  CHECK(failure_of(own) ==
        "cannot read the memory of another process of this host: No such process; if it has not ended, try "
        "--shared-memory 0");
}
