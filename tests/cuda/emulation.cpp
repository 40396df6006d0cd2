// The CUDA backend's devices on the host, for tests: memory is the host's, matrix products are plain loops, a
// queue does its work at once, but a recording that is played, and what comes after it, only when somebody
// waits for it. Kernels, layouts and planning for queues are the real ones. A recording consists of kernels
// and copies with the arguments that they had when they were recorded, as CUDA graphs do, and what these
// forbid while work is recorded is an error here, too.
#include "tests/cuda/emulation.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "convnet/base/error.h"
#include "kernels/cuda/communicator.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/sizes.h"
#include "kernels/cuda/tuning.h"

namespace convnet::cuda {
namespace {

constexpr int kDevices = 8;

class Memory : public DeviceMemory {
 public:
  /// Much of what plans ask for is never used: calloc() does not touch it.
  explicit Memory(std::int64_t bytes)
      : memory_(std::calloc(static_cast<std::size_t>(bytes + kMemoryAlignment), 1), &std::free),
        bytes_(bytes) {
    if (memory_ == nullptr) throw DeviceError("emulated: no memory");
    void* place = memory_.get();
    std::size_t space = static_cast<std::size_t>(bytes + kMemoryAlignment);
    data_ =
        static_cast<std::byte*>(std::align(kMemoryAlignment, static_cast<std::size_t>(bytes), place, space));
  }
  std::byte* data() override { return bytes_ == 0 ? nullptr : data_; }
  std::int64_t bytes() const override { return bytes_; }

 private:
  std::unique_ptr<void, decltype(&std::free)> memory_;
  std::byte* data_ = nullptr;
  std::int64_t bytes_;
};

/// The device that the thread has made the current one.
thread_local int current_device = 0;

}  // namespace

/// Work of several queues that is being recorded, in an order in which it can be done.
struct Capture {
  std::vector<std::function<void()>> work;
  std::map<const EmulatedLine*, std::size_t> put;  ///< the pieces of work of each queue
  std::vector<EmulatedLine*> lines;                ///< that take part
  bool ended = false;
};

namespace {

/// The capture of the thread; null while it records nothing.
thread_local Capture* capturing = nullptr;

[[noreturn]] void refuse(const std::string& what) { throw std::logic_error("emulated device: " + what); }

/// Throws if work is being recorded. CUDA would refuse the call, or do it once and not record it.
void check_not_recording(const char* what) {
  if (capturing != nullptr) refuse(std::string(what) + " while work is recorded");
}

}  // namespace

/// A queue's pending work, in order. Marks share it because they may outlive the queue.
struct EmulatedLine {
  std::deque<std::function<void()>> waiting;
  std::size_t done = 0;
  std::shared_ptr<Capture> capture;  ///< in which the queue takes part
  /// The recorded work, by queue, that comes before whatever the queue records next.
  std::map<const EmulatedLine*, std::size_t> before;

  void do_until(std::size_t count) {
    while (done < count && !waiting.empty()) {
      const std::function<void()> next = std::move(waiting.front());
      waiting.pop_front();
      ++done;
      next();
    }
  }
  /// Returns the value of `done` once everything requested so far is complete.
  std::size_t end() const { return done + waiting.size(); }

  void put(std::function<void()> work) {
    if (capture) {
      capture->work.push_back(std::move(work));
      before[this] = ++capture->put[this];
    } else if (waiting.empty()) {
      check_not_recording("work is put into a queue that is not recorded");
      work();
    } else {
      check_not_recording("work is put into a queue that is not recorded");
      waiting.push_back(std::move(work));
    }
  }
};

void put(const Stream& stream, std::function<void()> work) {
  if (stream.line == nullptr) return work();
  if (stream.device != current_device)
    refuse("a kernel for device " + std::to_string(stream.device) + " is started while device " +
           std::to_string(current_device) + " is the thread's current one");
  stream.line->put(std::move(work));
}

namespace {

class Time : public Mark {
 public:
  explicit Time(std::shared_ptr<EmulatedLine> line)
      : line_(std::move(line)), until_(line_->end()), capture_(line_->capture), before_(line_->before) {}
  bool reached() const override {
    check_not_recording("a mark is asked for");
    if (capture_) refuse("a mark of recorded work is asked for");
    line_->do_until(until_);
    return true;
  }
  double seconds_since(const Mark& earlier) const override {
    const auto& other = dynamic_cast<const Time&>(earlier);
    if (capture_ || other.capture_) refuse("recorded work is timed");
    return std::chrono::duration<double>(at_ - other.at_).count();
  }
  /// Makes a queue wait for this.
  void hold(EmulatedLine& line) const {
    if (capture_) {
      if (capture_->ended) refuse("a queue waits for a mark of a recording that has ended");
      if (!line.capture) {
        if (!line.waiting.empty()) refuse("a queue with pending work is recorded");
        line.capture = capture_;
        capture_->lines.push_back(&line);
      }
      for (const auto& [queue, count] : before_) line.before[queue] = std::max(line.before[queue], count);
      return;
    }
    if (line.capture) refuse("recorded work waits for work outside of the recording");
    const auto wait = [awaited = line_, until = until_] { awaited->do_until(until); };
    if (line.waiting.empty())
      wait();
    else if (line_.get() != &line)
      line.waiting.push_back(wait);
  }

 private:
  std::shared_ptr<EmulatedLine> line_;
  std::size_t until_;
  std::shared_ptr<Capture> capture_;  ///< null: it is a mark of work that is done, not recorded
  std::map<const EmulatedLine*, std::size_t> before_;
  std::chrono::steady_clock::time_point at_ = std::chrono::steady_clock::now();
};

class HostQueue : public Queue {
 public:
  HostQueue(int device, bool threads) : device_(device), threads_(threads) {}
  /// Returns the stream, and makes its device the current one of the thread, as launches require.
  Stream stream() const {
    use_device(device_);
    return {threads_, device_, line_.get()};
  }
  EmulatedLine& line() const { return *line_; }
  std::shared_ptr<const Mark> mark() override { return std::make_shared<Time>(line_); }
  void wait(const Mark& mark) override { dynamic_cast<const Time&>(mark).hold(*line_); }
  void copy(std::byte* dst, const std::byte* src, std::int64_t bytes) override {
    if (bytes > 0) line_->put([=] { std::copy_n(src, bytes, dst); });
  }
  void later(std::function<void()> work) { line_->waiting.push_back(std::move(work)); }

 private:
  int device_;
  bool threads_;
  std::shared_ptr<EmulatedLine> line_ = std::make_shared<EmulatedLine>();
};

class Recorded : public Recording {
 public:
  explicit Recorded(std::vector<std::function<void()>> work)
      : work_(std::make_shared<const std::vector<std::function<void()>>>(std::move(work))) {}
  void play(Queue& queue) const override {
    check_not_recording("a recording is played");
    for (std::size_t i = 0; i < work_->size(); ++i)
      dynamic_cast<HostQueue&>(queue).later([work = work_, i] { (*work)[i](); });
  }

 private:
  std::shared_ptr<const std::vector<std::function<void()>>> work_;
};

/// A capture by this thread, from the beginning of its first queue on.
class Capturing {
 public:
  explicit Capturing(HostQueue& first) : first_(first.line()) {
    if (capturing != nullptr) refuse("a recording in a recording");
    first_.capture = capture_;
    capture_->lines.push_back(&first_);
    capturing = capture_.get();
  }
  Capturing(const Capturing&) = delete;
  Capturing& operator=(const Capturing&) = delete;
  ~Capturing() {
    capturing = nullptr;
    capture_->ended = true;
    for (EmulatedLine* line : capture_->lines) {
      line->capture.reset();
      line->before.clear();
    }
  }
  /// Throws if the first queue does not wait for the end of all recorded work.
  std::vector<std::function<void()>> take() {
    for (const auto& [line, count] : capture_->put)
      if (first_.before[line] < count) refuse("a recording ends before all of its work");
    return std::move(capture_->work);
  }

 private:
  std::shared_ptr<Capture> capture_ = std::make_shared<Capture>();
  EmulatedLine& first_;
};

/// Messages between processes that are threads of one program. As with NCCL, a message waits for its other
/// end, and the messages of a group do not wait for one another. Where NCCL may wait forever, this throws: if
/// a group shares messages with several groups of another process.
class Meeting {
 public:
  /// Returns the meeting of this name, which lives as long as any of its members.
  static std::shared_ptr<Meeting> of(const std::string& name) {
    static std::mutex mutex;
    static std::map<std::string, std::weak_ptr<Meeting>> all;
    const std::lock_guard lock(mutex);
    std::shared_ptr<Meeting> meeting = all[name].lock();
    if (!meeting) all[name] = meeting = std::make_shared<Meeting>();
    return meeting;
  }

  void join(int size, double seconds) {
    std::unique_lock lock(mutex_);
    ++members_;
    changed_.notify_all();
    wait(lock, seconds, [&] { return members_ >= size; });
  }

  void exchange(int rank, std::span<const Communicator::Piece> pieces, double seconds) {
    std::unique_lock lock(mutex_);
    std::vector<std::shared_ptr<End>> ends;
    const std::int64_t group = ++groups_;
    for (const Communicator::Piece& piece : pieces) {
      if (piece.bytes == 0) continue;
      ends.push_back(std::make_shared<End>(End{piece, group, false}));
      auto& [sends, receives] =
          lines_[piece.sends ? std::pair(rank, piece.peer) : std::pair(piece.peer, rank)];
      (piece.sends ? sends : receives).push_back(ends.back());
      if (sends.empty() || receives.empty()) continue;
      End &from = *sends.front(), &to = *receives.front();
      if (from.piece.bytes != to.piece.bytes) throw std::logic_error("emulated: a message of another size");
      check_partner(from.group, from.piece.peer, to.group);
      check_partner(to.group, to.piece.peer, from.group);
      std::copy_n(from.piece.data, from.piece.bytes, to.piece.data);
      from.done = to.done = true;
      sends.pop_front();
      receives.pop_front();
      changed_.notify_all();
    }
    wait(lock, seconds,
         [&] { return std::all_of(ends.begin(), ends.end(), [](const auto& end) { return end->done; }); });
  }

 private:
  struct End {
    Communicator::Piece piece;
    std::int64_t group = 0;
    bool done = false;
  };
  using Line = std::deque<std::shared_ptr<End>>;

  /// Notes that `group` has a message with group `other` of process `peer`.
  void check_partner(std::int64_t group, int peer, std::int64_t other) {
    if (partners_.try_emplace({group, peer}, other).first->second != other)
      throw std::logic_error("emulated: a group of messages has its other ends in several groups");
  }

  void wait(std::unique_lock<std::mutex>& lock, double seconds, const std::function<bool()>& done) {
    if (!changed_.wait_for(lock, std::chrono::duration<double>(seconds), done))
      throw DeviceError("emulated: the other processes do not come");
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int members_ = 0;
  std::int64_t groups_ = 0;                                        ///< so far; each call has a number
  std::map<std::pair<std::int64_t, int>, std::int64_t> partners_;  ///< by group and process
  std::map<std::pair<int, int>, std::pair<Line, Line>> lines_;     ///< who has come, by sender and receiver
};

class Member : public Communicator {
 public:
  Member(std::shared_ptr<Meeting> meeting, int rank, double seconds)
      : meeting_(std::move(meeting)), rank_(rank), seconds_(seconds) {}
  void exchange(Queue& queue, std::span<const Piece> pieces) override {
    put(stream_of(&queue),
        [meeting = meeting_, rank = rank_, seconds = seconds_,
         all = std::vector<Piece>(pieces.begin(), pieces.end())] { meeting->exchange(rank, all, seconds); });
  }
  std::string failure() const override { return ""; }

 private:
  std::shared_ptr<Meeting> meeting_;
  int rank_;
  double seconds_;
};

/// The kernels that have been started.
struct Started {
  std::mutex mutex;
  std::set<std::type_index> kernels;
};
Started& started() {
  static Started all;
  return all;
}

class LoopGemm : public PreparedGemm {
 public:
  explicit LoopGemm(const Gemm& gemm) : g_(gemm) {}
  /// Returns all that a product may take, for forms to be tested. Small products, for each run of which tests
  /// allocate the workspace, take some, and products of nothing none, as on devices.
  std::int64_t workspace_bytes() const override {
    constexpr std::int64_t kSmall = 1 << 24;
    const std::int64_t terms = g_.m * g_.n * g_.k * g_.batch;
    return terms == 0 ? 0 : terms <= kSmall ? 4 : kMostProductBytes;
  }
  using PreparedGemm::run;
  void run(Queue* queue, const std::byte* a, const std::byte* b, std::byte* c,
           std::byte* workspace) const override {
    check_aligned(g_, a, b, c, workspace);
    put(stream_of(queue), [g = g_, a, b, c] {
      with_stored_type(g.factors, [&](auto factor) {
        with_stored_type(g.result, [&](auto result) {
          multiply(g, reinterpret_cast<const decltype(factor)*>(a),
                   reinterpret_cast<const decltype(factor)*>(b), reinterpret_cast<decltype(result)*>(c));
        });
      });
    });
  }

 private:
  template <class Factor, class Result>
  static void multiply(const Gemm& g, const Factor* a, const Factor* b, Result* c) {
    const auto number = [](auto v) { return static_cast<double>(to_float(v)); };
    std::vector<double> row(static_cast<std::size_t>(g.n));
    for (std::int64_t batch = 0; batch < g.batch; ++batch, a += g.a_step, b += g.b_step, c += g.c_step) {
      for (std::int64_t m = 0; m < g.m; ++m) {
        std::fill(row.begin(), row.end(), 0.0);
        for (std::int64_t k = 0; k < g.k; ++k) {
          const double left = number(g.trans_a ? a[k * g.lda + m] : a[m * g.lda + k]);
          for (std::int64_t n = 0; n < g.n; ++n)
            row[static_cast<std::size_t>(n)] +=
                left * number(g.trans_b ? b[n * g.ldb + k] : b[k * g.ldb + n]);
        }
        for (std::int64_t n = 0; n < g.n; ++n) {
          Result& out = c[m * g.ldc + n];
          const double value = row[static_cast<std::size_t>(n)] + (g.accumulate ? number(out) : 0);
          out = stored_as<Result>(static_cast<float>(value));
        }
      }
    }
  }

  Gemm g_;
};

}  // namespace

void note_kernel(const std::type_info& body) {
  const std::lock_guard lock(started().mutex);
  started().kernels.insert(body);
}
Stream stream_of(Queue* queue) {
  const auto* ours = dynamic_cast<const HostQueue*>(queue);
  return ours == nullptr ? Stream{} : ours->stream();  // tests have queues of their own
}
int count_devices(std::string&) { return kDevices; }
std::string device_name(int) { return "emulated"; }
std::int64_t free_memory(int) { return std::int64_t{1} << 34; }
std::unique_ptr<DeviceMemory> allocate_memory(int, std::int64_t bytes) {
  check_not_recording("memory is allocated");
  return std::make_unique<Memory>(bytes);
}
std::unique_ptr<DeviceMemory> allocate_pinned(std::int64_t bytes) {
  check_not_recording("memory is allocated");
  return std::make_unique<Memory>(bytes);
}
/// Threads are slow: those of the last device are there for tests of single operations.
std::unique_ptr<Queue> make_stream_queue(int device) {
  return std::make_unique<HostQueue>(device, device == kDevices - 1);
}
std::unique_ptr<Recording> record_graph(std::span<Queue* const> queues, const std::function<void()>& submit) {
  for (const Queue* queue : queues) {
    if (queue == nullptr) refuse("a queue that is to be recorded is missing");
  }
  Capturing recording(dynamic_cast<HostQueue&>(*queues[0]));
  submit();
  return std::make_unique<Recorded>(recording.take());
}
/// The even and the odd devices reach each other: both kinds of copies between devices are tested.
bool connect(int device, int other) { return device % 2 == other % 2; }
void copy_memory(std::byte* dst, const std::byte* src, std::int64_t bytes) {
  check_not_recording("a copy is waited for");
  std::copy_n(src, bytes, dst);
}
void use_device(int device) { current_device = device; }
std::shared_ptr<const PreparedGemm> prepare_gemm(const Gemm& gemm, const Context&) {
  return std::make_shared<LoopGemm>(gemm);
}
/// Processes of a launcher do not meet in memory: their messages pass through the hosts.
std::string communicator_key(int device) {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"})
    if (std::getenv(variable) != nullptr) return "";
  return std::to_string(device);
}
std::string new_communicator() {
  static std::atomic<int> made = 0;
  return std::to_string(made++);
}
std::unique_ptr<Communicator> join_communicator(int, const std::string& name, int rank, int size,
                                                double seconds) {
  auto meeting = Meeting::of(name);
  meeting->join(size, seconds);
  return std::make_unique<Member>(std::move(meeting), rank, seconds);
}
double measure_peak_flops(int, Precision) { return 1e9; }
double measure_copy_bandwidth(int) { return 1e9; }

}  // namespace convnet::cuda

namespace convnet::test {

std::set<std::type_index> take_started_kernels() {
  const std::lock_guard lock(cuda::started().mutex);
  return std::exchange(cuda::started().kernels, {});
}

}  // namespace convnet::test
