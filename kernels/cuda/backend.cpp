#include "kernels/backend.h"

#include <cstring>

#include "convnet/base/error.h"
#include "kernels/cuda/communicator.h"
#include "kernels/cuda/prepare.h"
#include "kernels/cuda/tuning.h"

namespace convnet {
namespace {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
void store(std::byte* to, const T& value) {
  std::memcpy(to, &value, sizeof value);
}

class CudaBackend : public Backend {
 public:
  explicit CudaBackend(Precision precision)
      : precision_(precision), target_(make_cuda_target(precision)), tuning_(cuda::device_name(0)) {}

  const Target& target() const override { return *target_; }

  std::shared_ptr<const PreparedOp> bind(const OpDesc& op, const OpForm& form, int device) const override {
    const cuda::Context context{precision_, device, &tuning_};
    auto prepared = std::visit([&](const auto& desc) { return cuda::prepare(desc, form, context); }, op);
    check_form(op, form, *prepared);
    return prepared;
  }

  std::unique_ptr<DeviceMemory> allocate(int device, std::int64_t bytes) const override {
    tuning_.free_memory();
    return cuda::allocate_memory(device, bytes);
  }
  std::int64_t memory_available(int device) const override {
    tuning_.free_memory();
    return cuda::free_memory(device);
  }
  bool on_host() const override { return false; }

  double measure_peak_flops(int device) const override {
    return cuda::measure_peak_flops(device, precision_);
  }
  double measure_copy_bandwidth(int device) const override { return cuda::measure_copy_bandwidth(device); }

  void enter_worker(int device) const override { cuda::use_device(device); }

  std::vector<std::unique_ptr<Queue>> make_queues(int device, std::size_t count) const override {
    std::vector<std::unique_ptr<Queue>> queues;
    while (queues.size() < count) queues.push_back(cuda::make_stream_queue(device));
    return queues;
  }
  std::unique_ptr<Recording> record(std::span<Queue* const> queues,
                                    const std::function<void()>& submit) const override {
    return cuda::record_graph(queues, submit);
  }
  std::string communicator_key(int device) const override { return cuda::communicator_key(device); }
  std::string new_communicator() const override { return cuda::new_communicator(); }
  std::unique_ptr<Communicator> join_communicator(int device, const std::string& name, int rank, int size,
                                                  double seconds) const override {
    return cuda::join_communicator(device, name, rank, size, seconds);
  }
  std::unique_ptr<DeviceMemory> allocate_staging(std::int64_t bytes) const override {
    return cuda::allocate_pinned(bytes);
  }
  bool reaches(int device, int other) const override {
    return device == other || cuda::connect(device, other);
  }
  void copy(std::byte* dst, const std::byte* src, std::int64_t bytes) const override {
    cuda::copy_memory(dst, src, bytes);
  }
  void relay(const TensorDesc& from, const std::byte* src, const TensorDesc& to,
             std::byte* dst) const override {
    const cuda::View source = cuda::view_of(from), target = cuda::view_of(to);
    const std::int64_t size = size_of(from.type);
    const bool widens = from.type == DataType::bf16 && to.type == DataType::f32;
    const bool narrows = from.type == DataType::f32 && to.type == DataType::bf16;
    if (from.type != to.type && !widens && !narrows)
      throw std::logic_error(std::string("cuda: relaying ") + to_string(from.type) + " as " +
                             to_string(to.type));
    for (std::int64_t i = 0; i < target.size(); ++i) {
      const cuda::View::Place p = target.place(i);
      const std::byte* element = src + source.index(p.n, p.c, p.s) * size;
      std::byte* place = dst + i * size_of(to.type);
      if (widens) {
        store(place, to_float(load<BFloat16>(element)));
      } else if (narrows) {
        store(place, to_bf16(load<float>(element)));
      } else {
        std::memcpy(place, element, static_cast<std::size_t>(size));
      }
    }
  }

 private:
  Precision precision_;
  std::unique_ptr<const Target> target_;
  mutable cuda::Tuning tuning_;  // fills while operations are prepared
};

}  // namespace

int cuda_devices(std::string& reason) { return cuda::count_devices(reason); }

std::unique_ptr<Backend> make_cuda_backend(Precision precision) {
  std::string reason;
  if (cuda::count_devices(reason) == 0) throw DeviceError("--device cuda: " + reason);
  return std::make_unique<CudaBackend>(precision);
}

}  // namespace convnet
