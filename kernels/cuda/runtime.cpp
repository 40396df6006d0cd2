#include "kernels/cuda/runtime.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "kernels/cuda/libraries.h"

namespace convnet::cuda {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // the next launch would report it again
  throw DeviceError(std::string("CUDA: ") + what + " failed: " + cudaGetErrorString(error) + " (" +
                    cudaGetErrorName(error) + ")");
}

namespace {

using Event = Owned<cudaEvent_t, cudaEventDestroy>;
using Graph = Owned<cudaGraph_t, cudaGraphDestroy>;
using GraphExec = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;
using StreamHandle = Owned<cudaStream_t, cudaStreamDestroy>;
using BlasHandle = Owned<cublasLtHandle_t, cublasLtDestroy>;
#if defined(CONVNET_CUDNN)
using DnnHandle = Owned<cudnnHandle_t, cudnnDestroy>;
#endif

class EventMark : public Mark {
 public:
  explicit EventMark(cudaStream_t stream) {
    check(cudaEventCreate(event_.put()), "making an event");
    check(cudaEventRecord(event_.get(), stream), "recording an event");
  }
  bool reached() const override {
    const cudaError_t state = cudaEventQuery(event_.get());
    if (state == cudaErrorNotReady) {
      // The check after a launch would take this error for a failure.
      static_cast<void>(cudaGetLastError());
      return false;
    }
    check(state, "a kernel or copy before this point");
    return true;
  }
  double seconds_since(const Mark& earlier) const override {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, dynamic_cast<const EventMark&>(earlier).event_.get(),
                               event_.get()),
          "timing");
    return static_cast<double>(milliseconds) * 1e-3;
  }
  cudaEvent_t event() const { return event_.get(); }

 private:
  Event event_;
};

class StreamQueue : public Queue {
 public:
  explicit StreamQueue(int device) : device_(device) {
    use_device(device);
    // The stream need not be ordered with the default stream, which nothing here uses.
    check(cudaStreamCreateWithFlags(stream_.put(), cudaStreamNonBlocking), "making a stream");
    const char* wanted = std::getenv("CONVNET_DEPENDENT_LAUNCH");
    int major = 0;
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
          "asking for the device's properties");
    dependent_launch_ = wanted != nullptr && std::string_view(wanted) == "on" && major >= 9;
  }

  StreamQueue(const StreamQueue&) = delete;
  StreamQueue& operator=(const StreamQueue&) = delete;
  /// The libraries' handles belong to the device that was current when they were made, and want it to be
  /// current again.
  ~StreamQueue() override { static_cast<void>(cudaSetDevice(device_)); }

  std::shared_ptr<const Mark> mark() override { return std::make_shared<EventMark>(stream()); }
  void wait(const Mark& mark) override {
    check(cudaStreamWaitEvent(stream(), dynamic_cast<const EventMark&>(mark).event(), 0),
          "waiting for an event");
  }
  void copy(std::byte* dst, const std::byte* src, std::int64_t bytes) override {
    if (bytes == 0) return;
    check(cudaMemcpyAsync(dst, src, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream()),
          "starting a copy");
  }

  /// Returns the stream, and makes its device the current one of the thread, as launches require.
  cudaStream_t stream() const {
    use_device(device_);
    return stream_.get();
  }
  bool dependent_launch() const { return dependent_launch_; }
  cublasLtHandle_t cublas() {
    use_device(device_);
    if (cublas_.get() == nullptr) check(cublasLtCreate(cublas_.put()), "making a handle");
    return cublas_.get();
  }
#if defined(CONVNET_CUDNN)
  cudnnHandle_t cudnn() {
    use_device(device_);
    if (cudnn_.get() == nullptr) {
      check(cudnnCreate(cudnn_.put()), "making a handle");
      check(cudnnSetStream(cudnn_.get(), stream_.get()), "setting the stream");
    }
    return cudnn_.get();
  }
#endif

 private:
  int device_;
  bool dependent_launch_ = false;  ///< Stream::dependent_launch
  StreamHandle stream_;
  BlasHandle cublas_;
#if defined(CONVNET_CUDNN)
  DnnHandle cudnn_;
#endif
};

StreamQueue& stream_queue(Queue* queue) { return dynamic_cast<StreamQueue&>(*queue); }

class GraphRecording : public Recording {
 public:
  explicit GraphRecording(cudaGraph_t graph) {
    check(cudaGraphInstantiate(exec_.put(), graph, 0), "making a graph of the step");
  }
  void play(Queue& queue) const override {
    check(cudaGraphLaunch(exec_.get(), stream_of(&queue).handle), "starting the graph of the step");
  }

 private:
  GraphExec exec_;
};

class GpuMemory : public DeviceMemory {
 public:
  GpuMemory(int device, std::int64_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    use_device(device);
    const auto size = static_cast<std::size_t>(bytes);
    if (const cudaError_t error = cudaMalloc(memory_.put(), size); error != cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // it would be reported again by the next launch
      throw DeviceError("cuda:" + std::to_string(device) + ": cannot allocate " +
                        std::to_string(bytes >> 20) + " MiB: " + cudaGetErrorString(error));
    }
    check(cudaMemset(memory_.get(), 0, size), "zeroing memory");
    check(cudaStreamSynchronize(cudaStreamLegacy), "zeroing memory");
  }
  std::byte* data() override { return static_cast<std::byte*>(memory_.get()); }
  std::int64_t bytes() const override { return bytes_; }

 private:
  Owned<void*, cudaFree> memory_;
  std::int64_t bytes_;
};

class PinnedMemory : public DeviceMemory {
 public:
  explicit PinnedMemory(std::int64_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    check(cudaHostAlloc(memory_.put(), static_cast<std::size_t>(bytes), cudaHostAllocPortable),
          "allocating pinned memory of the host");
    std::fill_n(static_cast<std::byte*>(memory_.get()), bytes, std::byte{0});
  }
  std::byte* data() override { return static_cast<std::byte*>(memory_.get()); }
  std::int64_t bytes() const override { return bytes_; }

 private:
  Owned<void*, cudaFreeHost> memory_;
  std::int64_t bytes_;
};

}  // namespace

Stream stream_of(Queue* queue) {
  const StreamQueue& of = stream_queue(queue);
  return {of.stream(), of.dependent_launch()};
}
cublasLtHandle_t cublas_of(Queue* queue) { return stream_queue(queue).cublas(); }
#if defined(CONVNET_CUDNN)
cudnnHandle_t cudnn_of(Queue* queue) { return stream_queue(queue).cudnn(); }
#endif

int count_devices(std::string& reason) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  static_cast<void>(cudaGetLastError());
  reason = error == cudaSuccess ? "this machine has no NVIDIA GPU"
                                : std::string("no GPU can be used: ") + cudaGetErrorString(error);
  return 0;
}

std::string device_name(int device) {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device), "asking for the device's properties");
  return properties.name;
}

std::int64_t free_memory(int device) {
  use_device(device);
  std::size_t available = 0, total = 0;
  check(cudaMemGetInfo(&available, &total), "asking for free memory");
  return static_cast<std::int64_t>(available);
}

std::unique_ptr<DeviceMemory> allocate_memory(int device, std::int64_t bytes) {
  return std::make_unique<GpuMemory>(device, bytes);
}
std::unique_ptr<DeviceMemory> allocate_pinned(std::int64_t bytes) {
  return std::make_unique<PinnedMemory>(bytes);
}

std::unique_ptr<Queue> make_stream_queue(int device) { return std::make_unique<StreamQueue>(device); }

std::unique_ptr<Recording> record_graph(std::span<Queue* const> queues, const std::function<void()>& submit) {
  const cudaStream_t origin = stream_of(queues[0]).handle;
  const auto end = [&](Graph& graph) {
    // The tasks have made other devices the thread's current one.
    stream_of(queues[0]);
    return cudaStreamEndCapture(origin, graph.put());
  };
  check(cudaStreamBeginCapture(origin, cudaStreamCaptureModeRelaxed), "beginning to record");
  try {
    submit();
  } catch (...) {
    Graph broken;
    static_cast<void>(end(broken));
    static_cast<void>(cudaGetLastError());
    throw;
  }
  Graph graph;
  check(end(graph), "recording");
  return std::make_unique<GraphRecording>(graph.get());
}

bool connect(int device, int other) {
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, device, other), "asking whether GPUs reach each other");
  if (can == 0) return false;
  use_device(device);
  const cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {
    static_cast<void>(cudaGetLastError());
    return true;
  }
  if (error == cudaErrorTooManyPeers) {  // the driver copies through the host
    static_cast<void>(cudaGetLastError());
    return false;
  }
  check(error, "connecting GPUs");
  return true;
}

void copy_memory(std::byte* dst, const std::byte* src, std::int64_t bytes) {
  if (bytes == 0) return;
  // The copy runs in a stream of the current device, for which this function waits.
  for (const std::byte* memory : {src, static_cast<const std::byte*>(dst)}) {
    cudaPointerAttributes attributes;
    check(cudaPointerGetAttributes(&attributes, memory), "asking where memory is");
    if (attributes.type == cudaMemoryTypeDevice) use_device(attributes.device);
  }
  check(cudaMemcpy(dst, src, static_cast<std::size_t>(bytes), cudaMemcpyDefault), "copying memory");
  // From pageable memory the call may come back before the device has everything.
  check(cudaStreamSynchronize(cudaStreamLegacy), "copying memory");
}

void use_device(int device) { check(cudaSetDevice(device), "choosing a device"); }

}  // namespace convnet::cuda
