// Queues of CPU devices: the order of their work, marks, and recordings.
#include <atomic>
#include <mutex>
#include <string>
#include <thread>

#include "convnet/base/error.h"
#include "kernels/backend.h"
#include "tests/catch.h"

namespace convnet::queue_test {
namespace {

using Queues = std::vector<std::unique_ptr<Queue>>;

/// What was done, in order.
class Diary {
 public:
  std::function<void()> writes(const std::string& word) {
    return [this, word] {
      const std::lock_guard lock(mutex_);
      text_ += (text_.empty() ? "" : " ") + word;
    };
  }
  std::string take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(text_, "");
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

void finish(Queue& queue) {
  const auto end = queue.mark();
  while (!end->reached()) end->rest();
}

/// Work that goes on until it is ended.
struct Started {
  std::atomic<bool> begun = false;
  std::function<void()> end;

  std::shared_ptr<const Mark> put_into(Queue& queue) {
    return queue.start([this](std::function<void()> ended) {
      end = std::move(ended);
      begun = true;
    });
  }
  void await_begin() const {
    while (!begun) std::this_thread::yield();
  }
};

std::vector<Queue*> pointers_to(const Queues& queues) {
  std::vector<Queue*> pointers;
  for (const auto& queue : queues) pointers.push_back(queue.get());
  return pointers;
}

}  // namespace

TEST_CASE("a CPU device does the work of a queue in order") {
  const auto backend = make_cpu_backend(1);
  const auto queue = backend->make_queue(0);
  Diary diary;
  const std::vector<std::byte> from(100, std::byte{7});
  std::vector<std::byte> to(100);
  std::byte seen{0};
  queue->copy(to.data(), from.data(), 100);
  queue->call([&] { seen = to.back(); });
  queue->call(diary.writes("a"));
  queue->call(diary.writes("b"));
  finish(*queue);
  CHECK(seen == std::byte{7});
  CHECK(diary.take() == "a b");
  CHECK(queue->mark() == queue->mark());
}

TEST_CASE("a CPU device prefers its first queue, and does what can begin") {
  const auto backend = make_cpu_backend(1);
  const Queues queues = backend->make_queues(0, 2);
  const auto other = backend->make_queue(1);
  Diary diary;
  Started gate, lock;
  // The device is busy until everything is there.
  const auto open = gate.put_into(*other);
  const auto unlocked = lock.put_into(*other);
  queues[1]->wait(*open);
  queues[1]->call(diary.writes("first"));
  const auto begun = queues[1]->mark();
  for (const auto& queue : queues) queue->wait(*begun);
  queues[0]->call(diary.writes("preferred"));
  queues[0]->wait(*unlocked);
  queues[0]->call(diary.writes("late"));
  queues[1]->call(diary.writes("other"));
  const auto end = queues[1]->mark();
  gate.await_begin();
  CHECK(diary.take().empty());
  gate.end();
  while (!end->reached()) end->rest();
  CHECK(diary.take() == "first preferred other");
  lock.await_begin();
  lock.end();
  finish(*queues[0]);
  CHECK(diary.take() == "late");
}

TEST_CASE("work that was started holds up its queue, and its end is a mark") {
  const auto backend = make_cpu_backend(1);
  const Queues queues = backend->make_queues(0, 2);
  Diary diary;
  Started message;
  const auto ended = message.put_into(*queues[0]);
  const auto marked = queues[0]->mark();
  queues[0]->call(diary.writes("behind"));
  queues[1]->call(diary.writes("beside"));
  finish(*queues[1]);
  message.await_begin();
  CHECK_FALSE(ended->reached());
  CHECK_FALSE(marked->reached());
  CHECK(diary.take() == "beside");
  message.end();
  finish(*queues[0]);
  CHECK(ended->reached());
  CHECK(marked->reached());
  CHECK(diary.take() == "behind");
}

TEST_CASE("started works go on at the same time, and their marks are reached in order") {
  const auto backend = make_cpu_backend(1);
  const auto queue = backend->make_queue(0);
  Diary diary;
  Started first, second, third;
  const auto first_end = first.put_into(*queue), second_end = second.put_into(*queue);
  queue->call(diary.writes("behind both"));
  const auto third_end = third.put_into(*queue);
  first.await_begin();
  second.await_begin();
  second.end();
  CHECK_FALSE(second_end->reached());
  CHECK(diary.take().empty());
  first.end();
  CHECK(first_end->reached());
  CHECK(second_end->reached());
  third.await_begin();
  CHECK(diary.take() == "behind both");
  CHECK_FALSE(third_end->reached());
  third.end();
  CHECK(third_end->reached());
}

TEST_CASE("marks know when work began and ended") {
  const auto backend = make_cpu_backend(1);
  const auto queue = backend->make_queue(0), other = backend->make_queue(1);
  Started held;
  const auto first = queue->mark();
  finish(*queue);
  queue->wait(*held.put_into(*other));
  const auto begin = queue->mark_begin();
  queue->call([] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  const auto end = queue->mark();
  held.await_begin();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK_FALSE(begin->reached());
  held.end();
  finish(*queue);
  CHECK(begin->seconds_since(*first) >= 0.02);
  CHECK(end->seconds_since(*begin) >= 0.02);
}

TEST_CASE("recorded work is done whenever it is played, in the order that was recorded") {
  const auto backend = make_cpu_backend(1);
  Queues queues = backend->make_queues(0, 2);
  queues.push_back(backend->make_queue(1));
  Diary diary;
  std::shared_ptr<const Mark> end;
  const auto record = [&] {
    return backend->record(pointers_to(queues), [&] {
      const auto begin = queues[0]->mark();
      queues[1]->wait(*begin);
      queues[1]->call(diary.writes("a"));
      queues[2]->wait(*queues[1]->mark());
      queues[2]->start([write = diary.writes("b")](const std::function<void()>& ended) {
        write();
        ended();
      });
      queues[0]->wait(*queues[2]->mark());
      queues[0]->call(diary.writes("c"));
      end = queues[0]->mark();
    });
  };
  const auto recording = record();
  finish(*queues[0]);
  CHECK(diary.take().empty());
  for (int i = 0; i < 3000; ++i) {
    queues[0]->call(diary.writes("before"));
    recording->play(*queues[0]);
    queues[0]->call(diary.writes("after"));
    finish(*queues[0]);
    CHECK(end->reached());
    REQUIRE(diary.take() == "before a b c after");
  }
  CHECK_THROWS_WITH(backend->record(pointers_to(queues),
                                    [&] {
                                      queues[0]->call(diary.writes("never"));
                                      throw DeviceError("cannot be recorded");
                                    }),
                    "cannot be recorded");
  queues[0]->call(diary.writes("plain"));
  finish(*queues[0]);
  CHECK(diary.take() == "plain");
}

}  // namespace convnet::queue_test
