// A backend's access to devices, streams and memory. runtime.cpp does it with the CUDA runtime. Compiled
// with CONVNET_CUDA_EMULATED (tests/cuda), kernels run on the host, at once.
#pragma once

#include "kernels/backend.h"

#if !defined(CONVNET_CUDA_EMULATED)
#include <cuda_runtime.h>
#endif

namespace convnet::cuda {

#if defined(CONVNET_CUDA_EMULATED)
struct Stream {
  bool threads = false;  ///< kernels run in several threads
};
#else
struct Stream {
  cudaStream_t handle = nullptr;
};

/// Throws DeviceError that names the attempted call and CUDA's error.
void check(cudaError_t error, const char* what);
inline void check_launch() { check(cudaGetLastError(), "starting a kernel"); }
#endif

/// Returns the stream of a queue that this backend made.
Stream stream_of(Queue* queue);

/// Returns the number of usable devices; if there are none, `reason` says why.
int count_devices(std::string& reason);
/// Returns a name like "NVIDIA H100 80GB HBM3"; choices made by timing hold for one kind of device.
std::string device_name(int device);
std::int64_t free_memory(int device);
/// Allocates zeroed device memory.
std::unique_ptr<DeviceMemory> allocate_memory(int device, std::int64_t bytes);
/// Allocates pinned host memory: the device copies from and to it without the processor.
std::unique_ptr<DeviceMemory> allocate_pinned(std::int64_t bytes);
std::unique_ptr<Queue> make_stream_queue(int device);
std::unique_ptr<Recording> record_graph(std::span<Queue* const> queues, const std::function<void()>& submit);
/// Lets `device` access the memory of `other` if the hardware can; returns whether it does.
bool connect(int device, int other);
/// Copies between device and host memory, and waits for the copy.
void copy_memory(std::byte* dst, const std::byte* src, std::int64_t bytes);
/// Waits until the event is reached.
inline void wait_for(const Mark& mark) {
  while (!mark.reached()) {
  }
}
/// Makes `device` the current one of the calling thread.
void use_device(int device);

}  // namespace convnet::cuda
