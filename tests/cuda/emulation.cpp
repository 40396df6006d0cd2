// The CUDA backend's devices on the host, for tests: memory is the host's, matrix products are plain loops, a
// queue does its work at once, but a recording that is played only when somebody waits for it. Kernels,
// layouts, planning for queues and recordings are the real ones.
#include <algorithm>
#include <chrono>
#include <deque>
#include <vector>

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/sizes.h"
#include "kernels/cuda/tuning.h"

namespace convnet::cuda {
namespace {

constexpr int kDevices = 8;

class Memory : public DeviceMemory {
 public:
  explicit Memory(std::int64_t bytes)
      : lines_(static_cast<std::size_t>(aligned(bytes) / kMemoryAlignment)), bytes_(bytes) {}
  std::byte* data() override { return lines_.empty() ? nullptr : lines_.data()->bytes; }
  std::int64_t bytes() const override { return bytes_; }

 private:
  struct alignas(kMemoryAlignment) Line {
    std::byte bytes[kMemoryAlignment] = {};
  };
  std::vector<Line> lines_;
  std::int64_t bytes_;
};

/// A queue's pending work, in order. Marks share it because they may outlive the queue.
struct Line {
  std::deque<std::function<void()>> waiting;
  std::size_t done = 0;
  bool working = false;

  void do_until(std::size_t count) {
    if (working) return;
    while (done < count && !waiting.empty()) {
      const std::function<void()> next = std::move(waiting.front());
      waiting.pop_front();
      ++done;
      working = true;
      try {
        next();
      } catch (...) {
        working = false;
        throw;
      }
      working = false;
    }
  }
  /// Returns the value of `done` once everything requested so far is complete.
  std::size_t end() const { return working ? done : done + waiting.size(); }
};

class Time : public Mark {
 public:
  explicit Time(std::shared_ptr<Line> line) : line_(std::move(line)), until_(line_->end()) {}
  bool reached() const override {
    line_->do_until(until_);
    return true;
  }
  double seconds_since(const Mark& earlier) const override {
    return std::chrono::duration<double>(at_ - dynamic_cast<const Time&>(earlier).at_).count();
  }

 private:
  std::shared_ptr<Line> line_;
  std::size_t until_;
  std::chrono::steady_clock::time_point at_ = std::chrono::steady_clock::now();
};

class HostQueue : public Queue {
 public:
  explicit HostQueue(bool threads) : stream_{threads} {}
  Stream stream() const { return stream_; }
  std::shared_ptr<const Mark> mark() override { return std::make_shared<Time>(line_); }
  void wait(const Mark& mark) override {
    if (line_->waiting.empty()) static_cast<void>(mark.reached());
  }
  void copy(std::byte* dst, const std::byte* src, std::int64_t bytes) override {
    copy_memory(dst, src, bytes);
  }
  void later(std::function<void()> work) { line_->waiting.push_back(std::move(work)); }

 private:
  Stream stream_;
  std::shared_ptr<Line> line_ = std::make_shared<Line>();
};

class Again : public Recording {
 public:
  explicit Again(std::function<void()> submit) : submit_(std::move(submit)) {}
  void play(Queue& queue) const override { dynamic_cast<HostQueue&>(queue).later(submit_); }

 private:
  std::function<void()> submit_;
};

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
  void run(Queue*, const std::byte* a, const std::byte* b, std::byte* c,
           std::byte* workspace) const override {
    check_aligned(g_, {a, b, c}, workspace);
    with_stored_type(g_.factors, [&](auto factor) {
      with_stored_type(g_.result, [&](auto result) {
        multiply(reinterpret_cast<const decltype(factor)*>(a), reinterpret_cast<const decltype(factor)*>(b),
                 reinterpret_cast<decltype(result)*>(c));
      });
    });
  }

 private:
  template <class Factor, class Result>
  void multiply(const Factor* a, const Factor* b, Result* c) const {
    const auto number = [](auto v) { return static_cast<double>(to_float(v)); };
    std::vector<double> row(static_cast<std::size_t>(g_.n));
    for (std::int64_t batch = 0; batch < g_.batch; ++batch, a += g_.a_step, b += g_.b_step, c += g_.c_step) {
      for (std::int64_t m = 0; m < g_.m; ++m) {
        std::fill(row.begin(), row.end(), 0.0);
        for (std::int64_t k = 0; k < g_.k; ++k) {
          const double left = number(g_.trans_a ? a[k * g_.lda + m] : a[m * g_.lda + k]);
          for (std::int64_t n = 0; n < g_.n; ++n)
            row[static_cast<std::size_t>(n)] +=
                left * number(g_.trans_b ? b[n * g_.ldb + k] : b[k * g_.ldb + n]);
        }
        for (std::int64_t n = 0; n < g_.n; ++n) {
          Result& out = c[m * g_.ldc + n];
          const double value = row[static_cast<std::size_t>(n)] + (g_.accumulate ? number(out) : 0);
          out = stored_as<Result>(static_cast<float>(value));
        }
      }
    }
  }

  Gemm g_;
};

}  // namespace

Stream stream_of(Queue* queue) {
  const auto* ours = dynamic_cast<const HostQueue*>(queue);
  return ours == nullptr ? Stream{} : ours->stream();  // tests have queues of their own
}
int count_devices(std::string&) { return kDevices; }
std::string device_name(int) { return "emulated"; }
std::int64_t free_memory(int) { return std::int64_t{1} << 34; }
std::unique_ptr<DeviceMemory> allocate_memory(int, std::int64_t bytes) {
  return std::make_unique<Memory>(bytes);
}
std::unique_ptr<DeviceMemory> allocate_pinned(std::int64_t bytes) { return std::make_unique<Memory>(bytes); }
/// Threads are slow: those of the last device are there for tests of single operations.
std::unique_ptr<Queue> make_stream_queue(int device) {
  return std::make_unique<HostQueue>(device == kDevices - 1);
}
std::unique_ptr<Recording> record_graph(std::span<Queue* const>, const std::function<void()>& submit) {
  return std::make_unique<Again>(submit);
}
/// The even and the odd devices reach each other: both kinds of copies between devices are tested.
bool connect(int device, int other) { return device % 2 == other % 2; }
void copy_memory(std::byte* dst, const std::byte* src, std::int64_t bytes) { std::copy_n(src, bytes, dst); }
void use_device(int) {}
std::shared_ptr<const PreparedGemm> prepare_gemm(const Gemm& gemm, const Context&) {
  return std::make_shared<LoopGemm>(gemm);
}
double measure_peak_flops(int, Precision) { return 1e9; }
double measure_copy_bandwidth(int) { return 1e9; }

}  // namespace convnet::cuda
