#include "kernels/cpu/queue.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "convnet/base/clock.h"

namespace convnet::cpu {
namespace {

/// Wakes the thread of a device.
class Bell {
 public:
  std::uint32_t rung() const { return rung_; }
  void ring() {
    ++rung_;
    rung_.notify_all();
  }
  /// Waits until it has been rung more often than `rung` times.
  void wait(std::uint32_t rung) const { rung_.wait(rung); }

 private:
  std::atomic<std::uint32_t> rung_ = 0;
};

class HostMark : public Mark, public std::enable_shared_from_this<HostMark> {
 public:
  /// `device` (optional) looks at the mark again without being woken, because its thread reaches it.
  explicit HostMark(const Bell* device) : device_(device) {}

  bool reached() const override { return reached_; }
  void rest() const override {
    std::unique_lock lock(mutex_);
    awaited_ = true;
    changed_.wait_for(lock, std::chrono::milliseconds(100), [this] { return reached(); });
  }
  double seconds_since(const Mark& earlier) const override {
    return std::chrono::duration<double>(at_ - dynamic_cast<const HostMark&>(earlier).at_).count();
  }

  void reach() {
    at_ = Clock::now();
    reached_ = true;
    if (!awaited_) return;  // who waits from now on sees that it is reached
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
    for (const auto& bell : bells_) bell->ring();
  }
  /// Makes a recorded mark ready to be reached again.
  void reset() { reached_ = false; }
  /// From now on rings `bell` when the mark is reached.
  void wake(const std::shared_ptr<Bell>& bell) const {
    if (bell.get() == device_) return;
    const std::lock_guard lock(mutex_);
    awaited_ = true;
    if (std::find(bells_.begin(), bells_.end(), bell) == bells_.end()) bells_.push_back(bell);
  }

 private:
  const Bell* const device_;
  std::atomic<bool> reached_ = false;
  mutable std::atomic<bool> awaited_ = false;
  Clock::time_point at_;
  mutable std::mutex mutex_;  ///< guards what follows
  mutable std::condition_variable changed_;
  mutable std::vector<std::shared_ptr<Bell>> bells_;
};

/// A piece of work.
struct Piece {
  std::vector<std::shared_ptr<const HostMark>> after;
  std::shared_ptr<HostMark> begins, ends;  ///< may be null
  std::function<void()> work;              ///< may be empty
};
/// Pieces that are done one after the other.
struct Pieces {
  std::vector<Piece> all;
  std::vector<std::shared_ptr<HostMark>> marks;  ///< those that were made while they were recorded
};

/// Work that goes on after its call has returned. In whatever order it ends, its marks are reached in the
/// order of the calls.
class StartedWork {
 public:
  struct Entry {
    std::shared_ptr<HostMark> mark;
    bool ended = false;
  };

  std::shared_ptr<Entry> add(const std::shared_ptr<HostMark>& mark) {
    auto entry = std::make_shared<Entry>(Entry{mark});
    const std::lock_guard lock(mutex_);
    in_order_.push_back(entry);
    return entry;
  }
  void end(Entry& entry) {
    const std::lock_guard lock(mutex_);
    entry.ended = true;
    for (; !in_order_.empty() && in_order_.front()->ended; in_order_.pop_front())
      in_order_.front()->mark->reach();
  }

 private:
  std::mutex mutex_;
  std::deque<std::shared_ptr<Entry>> in_order_;
};

/// The thread of a device, and the work of its queues.
class Device {
 public:
  Device(std::size_t queues, const std::function<void()>& enter)
      : lines_(queues), thread_([this, enter] {
          enter();
          serve();
        }) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() {
    ends_ = true;
    bell_->ring();
    thread_.join();
  }

  const std::shared_ptr<Bell>& bell() const { return bell_; }
  void put(std::size_t queue, std::shared_ptr<const Pieces> pieces) {
    Line& line = lines_[queue];
    {
      const std::lock_guard lock(mutex_);
      line.waiting.push_back(std::move(pieces));
      ++line.length;
    }
    bell_->ring();
  }

 private:
  /// The work of a queue.
  struct Line {
    std::deque<std::shared_ptr<const Pieces>> waiting;  ///< guarded by mutex_
    std::atomic<std::size_t> length = 0;                ///< that of `waiting`
    std::shared_ptr<const Pieces> current;              ///< only the thread uses it and `next`
    std::size_t next = 0;
  };

  void serve() {
    while (true) {
      const std::uint32_t rung = bell_->rung();
      const auto line = std::find_if(lines_.begin(), lines_.end(), [this](Line& l) { return can_begin(l); });
      if (line != lines_.end())
        do_next(*line);
      else if (ends_)
        return;
      else
        bell_->wait(rung);
    }
  }

  bool can_begin(Line& line) {
    if (line.current == nullptr) {
      if (line.length == 0) return false;
      const std::lock_guard lock(mutex_);
      line.current = std::move(line.waiting.front());
      line.waiting.pop_front();
      --line.length;
      line.next = 0;
    }
    const Piece& piece = line.current->all[line.next];
    return std::all_of(piece.after.begin(), piece.after.end(), [](const auto& m) { return m->reached(); });
  }

  static void do_next(Line& line) {
    const Piece& piece = line.current->all[line.next];
    if (piece.begins) piece.begins->reach();
    if (piece.work) piece.work();
    const bool last = ++line.next == line.current->all.size();
    if (piece.ends) piece.ends->reach();
    if (last) line.current = nullptr;
  }

  const std::shared_ptr<Bell> bell_ = std::make_shared<Bell>();
  std::mutex mutex_;
  std::vector<Line> lines_;  ///< by queue
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

class HostQueue : public Queue {
 public:
  HostQueue(std::shared_ptr<Device> device, std::size_t index) : device_(std::move(device)), index_(index) {}

  std::shared_ptr<const Mark> mark() override {
    if (end_) return end_;
    auto mark = make_mark(device_->bell().get());
    const bool follows =
        recorded_ && !recorded_->all.empty() && next_.after.empty() && !next_.begins && !last_started_;
    if (follows && !recorded_->all.back().ends) {
      recorded_->all.back().ends = mark;
    } else {
      next_.ends = mark;
      put();
    }
    return end_ = std::move(mark);
  }
  std::shared_ptr<const Mark> mark_begin() override {
    end_ = nullptr;
    if (!next_.begins) next_.begins = make_mark(device_->bell().get());
    return next_.begins;
  }
  void wait(const Mark& mark) override {
    end_ = nullptr;
    wait_in_next(dynamic_cast<const HostMark&>(mark));
  }
  void copy(std::byte* dst, const std::byte* src, std::int64_t bytes) override {
    call([=] { std::copy_n(src, bytes, dst); });
  }
  void call(std::function<void()> work) override {
    end_ = nullptr;
    next_.work = std::move(work);
    put();
  }
  std::shared_ptr<const Mark> start(std::function<void(std::function<void()> ended)> begin) override {
    const auto end = make_mark(nullptr);
    next_.work = [begin = std::move(begin), end, started = started_] {
      begin([started, entry = started->add(end)] { started->end(*entry); });
    };
    put_without_waiting();
    last_started_ = end;
    // mark() is to be reached by the device's thread, so that nothing of a recording is left when it is
    // played again.
    end_ = nullptr;
    return end;
  }

  /// From here to end_recording() work is collected.
  void begin_recording() {
    put_rest();
    recorded_ = std::make_shared<Pieces>();
  }
  std::shared_ptr<const Pieces> end_recording() {
    put_rest();
    return std::exchange(recorded_, nullptr);
  }
  void play(std::shared_ptr<const Pieces> pieces) {
    put_rest();
    if (!pieces->all.empty()) device_->put(index_, std::move(pieces));
  }

 private:
  std::shared_ptr<HostMark> make_mark(const Bell* device) {
    auto mark = std::make_shared<HostMark>(device);
    if (recorded_) recorded_->marks.push_back(mark);
    return mark;
  }
  void wait_in_next(const HostMark& mark) {
    mark.wake(device_->bell());
    next_.after.push_back(mark.shared_from_this());
  }
  /// Puts in a piece for what was to come before the next work.
  void put_rest() {
    if (!next_.after.empty() || next_.begins || last_started_) put();
    end_ = nullptr;
  }
  void put() {
    if (const auto started = std::exchange(last_started_, nullptr)) wait_in_next(*started);
    put_without_waiting();
  }
  void put_without_waiting() {
    Piece piece = std::exchange(next_, {});
    if (recorded_) {
      recorded_->all.push_back(std::move(piece));
    } else {
      auto pieces = std::make_shared<Pieces>();
      pieces->all.push_back(std::move(piece));
      device_->put(index_, std::move(pieces));
    }
  }

  const std::shared_ptr<Device> device_;
  const std::size_t index_;
  Piece next_;                       ///< what is known of the piece that is put in next
  std::shared_ptr<const Mark> end_;  ///< a mark at the end of the queue; null if none is known
  const std::shared_ptr<StartedWork> started_ = std::make_shared<StartedWork>();
  std::shared_ptr<const HostMark> last_started_;  ///< until work waits for it; null if none is to
  std::shared_ptr<Pieces> recorded_;              ///< null unless it records
};

class HostRecording : public Recording {
 public:
  HostRecording(std::span<Queue* const> queues, const std::function<void()>& submit) {
    for (Queue* queue : queues) parts_.push_back({dynamic_cast<HostQueue*>(queue), nullptr});
    for (const Part& part : parts_) part.queue->begin_recording();
    std::exception_ptr error;
    try {
      submit();
    } catch (...) {
      error = std::current_exception();
    }
    for (Part& part : parts_) part.pieces = part.queue->end_recording();
    if (error) std::rethrow_exception(error);
  }
  void play(Queue&) const override {
    for (const Part& part : parts_) {
      for (const auto& mark : part.pieces->marks) mark->reset();
    }
    for (const Part& part : parts_) part.queue->play(part.pieces);
  }

 private:
  struct Part {
    HostQueue* queue;
    std::shared_ptr<const Pieces> pieces;
  };
  std::vector<Part> parts_;
};

}  // namespace

std::vector<std::unique_ptr<Queue>> make_queues(std::size_t count, const std::function<void()>& enter) {
  const auto device = std::make_shared<Device>(count, enter);
  std::vector<std::unique_ptr<Queue>> queues;
  while (queues.size() < count) queues.push_back(std::make_unique<HostQueue>(device, queues.size()));
  return queues;
}

std::unique_ptr<Recording> record(std::span<Queue* const> queues, const std::function<void()>& submit) {
  return std::make_unique<HostRecording>(queues, submit);
}

}  // namespace convnet::cpu
