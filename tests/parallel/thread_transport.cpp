#include "tests/parallel/thread_transport.h"

#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <tuple>

namespace convnet::test {
namespace {

using Piece = Transport::Piece;

/// An end of a message whose other end has not come.
struct End {
  std::vector<Piece> pieces;
  std::function<void()> ended;
};

class Hub {
 public:
  using Key = std::tuple<int, int, int>;  // from, to, channel

  void add(Key key, bool sends, End end) {
    End other;
    {
      const std::lock_guard lock(mutex_);
      std::deque<End>& waiting = (sends ? receives_ : sends_)[key];
      if (waiting.empty()) {
        (sends ? sends_ : receives_)[key].push_back(std::move(end));
        return;
      }
      other = std::move(waiting.front());
      waiting.pop_front();
    }
    copy(sends ? end : other, sends ? other : end);
    end.ended();
    other.ended();
  }

 private:
  static void copy(const End& from, const End& to) {
    if (from.pieces.size() != to.pieces.size()) throw std::logic_error("a message has other pieces");
    for (std::size_t p = 0; p < from.pieces.size(); ++p) {
      if (from.pieces[p].bytes != to.pieces[p].bytes) throw std::logic_error("a message has another size");
      std::memcpy(to.pieces[p].data, from.pieces[p].data, static_cast<std::size_t>(from.pieces[p].bytes));
    }
  }

  std::mutex mutex_;
  std::map<Key, std::deque<End>> sends_, receives_;
};

class ThreadTransport : public Transport {
 public:
  ThreadTransport(std::shared_ptr<Hub> hub, int rank, int size)
      : hub_(std::move(hub)), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void send(int to, int channel, std::vector<Piece> pieces, std::function<void()> ended) override {
    hub_->add({rank_, to, channel}, true, {std::move(pieces), std::move(ended)});
  }
  void receive(int from, int channel, std::vector<Piece> pieces, std::function<void()> ended) override {
    hub_->add({from, rank_, channel}, false, {std::move(pieces), std::move(ended)});
  }
  std::string failure() const override { return ""; }
  [[noreturn]] void abort(int) override { std::terminate(); }

 private:
  std::shared_ptr<Hub> hub_;
  int rank_, size_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> thread_transports(int count) {
  const auto hub = std::make_shared<Hub>();
  std::vector<std::unique_ptr<Transport>> transports;
  for (int r = 0; r < count; ++r) transports.push_back(std::make_unique<ThreadTransport>(hub, r, count));
  return transports;
}

void run_processes(int count, const std::function<void(Processes&)>& process, double stall_seconds) {
  std::vector<std::unique_ptr<Transport>> transports = thread_transports(count);
  std::vector<std::exception_ptr> errors(transports.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < transports.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        Processes processes(std::move(transports[r]), stall_seconds);
        process(processes);
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace convnet::test
