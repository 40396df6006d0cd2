#include "kernels/backend.h"

#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <utility>

#include "convnet/base/available_memory.h"
#include "convnet/base/clock.h"
#include "convnet/base/error.h"
#include "convnet/base/openmp_scope.h"
#include "kernels/cpu/own_kernels.h"
#include "kernels/cpu/queue.h"

namespace convnet {
namespace {

/// Anonymous pages, zeroed by the kernel; huge pages make the first touch several times cheaper.
class HostMemory : public DeviceMemory {
 public:
  explicit HostMemory(std::int64_t bytes, const CorePlace& place = {}) : bytes_(bytes) {
    if (bytes == 0) return;
    void* p = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
      throw DeviceError("cpu: cannot allocate " + std::to_string(bytes >> 20) + " MiB of memory");
    madvise(p, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
    prefer_node(place, p, static_cast<std::size_t>(bytes));
    data_ = static_cast<std::byte*>(p);
  }
  ~HostMemory() override {
    if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(bytes_));
  }
  std::byte* data() override { return data_; }
  std::int64_t bytes() const override { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

/// Sets how many threads the OpenMP teams of the calling thread have: exactly that many, whatever
/// OMP_DYNAMIC, OMP_NUM_THREADS and OMP_MAX_ACTIVE_LEVELS say, and no others within a team.
void set_teams(int threads) {
  omp_set_dynamic(0);
  omp_set_max_active_levels(1);
  omp_set_num_threads(threads);
}

/// Does so for its lifetime.
class Teams {
 public:
  explicit Teams(int threads)
      : dynamic_(omp_get_dynamic()), levels_(omp_get_max_active_levels()), threads_(omp_get_max_threads()) {
    set_teams(threads);
  }
  Teams(const Teams&) = delete;
  Teams& operator=(const Teams&) = delete;
  ~Teams() {
    omp_set_num_threads(threads_);
    omp_set_max_active_levels(levels_);
    omp_set_dynamic(dynamic_);
  }

 private:
  int dynamic_, levels_, threads_;
};

/// Prepares operations for a number of threads. oneDNN fixes partitions and scratch sizes at creation.
class Preparer {
 public:
  /// Limits the threads to OMP_THREAD_LIMIT: OpenMP starts no more, and a primitive that is partitioned for
  /// more threads waits for ever.
  Preparer(int threads, Precision precision)
      : threads_(std::min(threads, omp_get_thread_limit())), bf16_(precision == Precision::bf16) {}

  int threads() const { return threads_; }
  bool bf16() const { return bf16_; }

  cpu::Prepared prepare(const OpDesc& op, const LayoutHints& hints) const {
    const Teams teams(threads_);
    return cpu::prepare(op, hints, type());
  }
  bool fuses(const OpDesc& op) const { return cpu::fuses(op, type()); }

 private:
  DataType type() const { return bf16_ ? DataType::bf16 : DataType::f32; }

  int threads_;
  bool bf16_;
};

/// The target of CPU devices. Only oneDNN knows which layouts it wants, so form() prepares the operation and
/// returns the form of that.
class CpuTarget : public Target {
 public:
  CpuTarget(int threads, Precision precision) : preparer_(threads, precision) {}

  std::string name() const override { return "cpu"; }
  std::string precision() const override { return preparer_.bf16() ? "bf16" : "fp32"; }
  OpForm form(const OpDesc& op, const LayoutHints& hints) const override {
    return preparer_.prepare(op, hints)->form();
  }
  bool fuses(const OpDesc& op) const override { return preparer_.fuses(op); }
  bool runs_streams_together() const override { return false; }
  std::int64_t joined_update_bytes() const override { return std::int64_t{1} << 20; }

 private:
  Preparer preparer_;
};

class CpuBackend : public Backend {
 public:
  CpuBackend(int threads, Precision precision, std::map<int, CorePlace> places)
      : target_(threads, precision), preparer_(threads, precision), places_(std::move(places)) {}

  const Target& target() const override { return target_; }

  std::shared_ptr<const PreparedOp> bind(const OpDesc& op, const OpForm& form, int) const override {
    auto prepared = preparer_.prepare(op, {form.args.begin(), form.args.end()});
    check_form(op, form, *prepared);
    return prepared;
  }

  std::unique_ptr<DeviceMemory> allocate(int device, std::int64_t bytes) const override {
    return std::make_unique<HostMemory>(bytes, place(device));
  }

  std::int64_t memory_available(int) const override { return available_memory(); }

  bool on_host() const override { return true; }

  double measure_copy_bandwidth(int) const override {
    const OpenMpScope scope;
    const Teams teams(preparer_.threads());
    return cpu::own_kernels(use_instruction_set()).measure_copy_bandwidth(preparer_.threads());
  }
  /// Our own loop has no instructions of AVX without AVX2, or of AMX, which oneDNN's products have.
  double measure_peak_flops(int) const override {
    const OpenMpScope scope;
    const Teams teams(preparer_.threads());
    const double own =
        cpu::own_kernels(use_instruction_set())
            .measure_peak_flops(preparer_.threads(), preparer_.bf16() ? DataType::bf16 : DataType::f32);
    return std::max(own, product_flops());
  }

  void enter_worker(int device) const override { enter(preparer_.threads(), place(device)); }

  std::vector<std::unique_ptr<Queue>> make_queues(int device, std::size_t count) const override {
    return cpu::make_queues(
        count, [threads = preparer_.threads(), place = place(device)] { enter(threads, place); });
  }
  std::unique_ptr<Recording> record(std::span<Queue* const> queues,
                                    const std::function<void()>& submit) const override {
    return cpu::record(queues, submit);
  }

  std::unique_ptr<DeviceMemory> allocate_staging(std::int64_t bytes) const override {
    return std::make_unique<HostMemory>(bytes);
  }
  bool reaches(int, int) const override { return true; }
  void copy(std::byte* dst, const std::byte* src, std::int64_t bytes) const override {
    std::copy_n(src, bytes, dst);  // allows null pointers if there are no bytes
  }
  void relay(const TensorDesc& from, const std::byte* src, const TensorDesc& to,
             std::byte* dst) const override {
    const OpenMpScope scope;
    const Teams teams(preparer_.threads());
    const auto op = preparer_.prepare(Reorder{from, to}, {from, to});
    std::vector<std::byte> workspace(static_cast<std::size_t>(op->workspace_bytes()));
    std::byte* pointers[] = {const_cast<std::byte*>(src), dst};
    op->run(pointers, workspace.data(), nullptr);
  }

 private:
  CorePlace place(int device) const {
    const auto found = places_.find(device);
    return found == places_.end() ? CorePlace() : found->second;
  }
  static void enter(int threads, const CorePlace& place) {
    bind_thread(place);
    set_teams(threads);
  }

  /// Returns the FLOP/s of the fastest of three products of large matrices.
  double product_flops() const {
    const OpDesc product = InnerProductForward{.g = {.n = 512, .in = 1024, .out = 1024}, .bias = false};
    const auto op = preparer_.prepare(product, LayoutHints(arguments(product).size()));
    std::vector<std::unique_ptr<HostMemory>> memory;
    std::vector<std::byte*> pointers;
    for (const TensorDesc& arg : op->args()) {
      memory.push_back(std::make_unique<HostMemory>(arg.bytes()));
      pointers.push_back(memory.back()->data());
    }
    HostMemory workspace(op->workspace_bytes());
    double best = 0;
    for (int repeat = 0; repeat < 3; ++repeat) {
      const auto start = Clock::now();
      op->run(pointers, workspace.data(), nullptr);
      best = std::max(best, op_flops(product) / seconds_since(start));
    }
    return best;
  }

  CpuTarget target_;
  Preparer preparer_;
  std::map<int, CorePlace> places_;
};

}  // namespace

std::unique_ptr<const Target> make_cpu_target(int threads, Precision precision) {
  return std::make_unique<CpuTarget>(threads, precision);
}

std::unique_ptr<Backend> make_cpu_backend(int threads_per_device, Precision precision,
                                          std::map<int, CorePlace> places) {
  return std::make_unique<CpuBackend>(threads_per_device, precision, std::move(places));
}

bool cpu_multiplies_bf16() { return instruction_set() >= InstructionSet::avx512_core_bf16; }

}  // namespace convnet
