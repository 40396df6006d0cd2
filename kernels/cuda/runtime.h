// Access to devices, streams and memory. runtime.cpp implements it with the CUDA runtime. With
// CONVNET_CUDA_EMULATED (tests/cuda), kernels run on the host, synchronously.
#pragma once

#include <functional>

#include "kernels/backend.h"

#if !defined(CONVNET_CUDA_EMULATED)
#include <cuda_runtime.h>
#endif

namespace convnet::cuda {

#if defined(CONVNET_CUDA_EMULATED)
struct EmulatedLine;
struct Stream {
  bool threads = false;  ///< kernels run in several threads
  int device = 0;
  EmulatedLine* line = nullptr;  ///< the queue's work; null: work is done at once
};
/// Puts a kernel or a copy into a stream.
void put(const Stream& stream, std::function<void()> work);
#else
struct Stream {
  cudaStream_t handle = nullptr;
  /// Whether own kernels are programmatic dependent launches: they are started before the kernel before them
  /// has ended, and wait for its end themselves.
  bool dependent_launch = false;
};

/// Throws DeviceError that names the call (`what`) and CUDA's error, if there is one.
void check(cudaError_t error, const char* what);
#endif

/// Returns the stream of a queue that this backend made.
Stream stream_of(Queue* queue);

/// Returns the number of usable devices; if there are none, `reason` says why.
int count_devices(std::string& reason);
/// Returns the name of the kind of device, like "NVIDIA H100 80GB HBM3".
std::string device_name(int device);
/// Returns the number of bytes of the device's memory that are not in use.
std::int64_t free_memory(int device);
/// Allocates zeroed device memory.
std::unique_ptr<DeviceMemory> allocate_memory(int device, std::int64_t bytes);
/// Allocates pinned host memory, which the device copies from and to without the processor.
std::unique_ptr<DeviceMemory> allocate_pinned(std::int64_t bytes);
/// Makes a queue that runs its work in a stream of its own.
std::unique_ptr<Queue> make_stream_queue(int device);
/// See Backend::record(). Throws DeviceError if the work cannot be recorded.
std::unique_ptr<Recording> record_graph(std::span<Queue* const> queues, const std::function<void()>& submit);
/// Enables `device` to access the memory of `other`; returns whether the hardware can.
bool connect(int device, int other);
/// Copies between device and host memory, and waits for the copy.
void copy_memory(std::byte* dst, const std::byte* src, std::int64_t bytes);
/// Waits, spinning, until the mark is reached.
inline void wait_for(const Mark& mark) {
  while (!mark.reached()) {
  }
}
/// Makes `device` the current one of the calling thread.
void use_device(int device);

}  // namespace convnet::cuda
