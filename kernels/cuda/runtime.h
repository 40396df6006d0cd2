// Devices, streams and memory of a backend. runtime.cpp implements them with the CUDA runtime. Compiled
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

/// Throws DeviceError with what was tried and CUDA's words.
void check(cudaError_t error, const char* what);
inline void check_launch() { check(cudaGetLastError(), "starting a kernel"); }
#endif

/// The stream of a queue that this backend made.
Stream stream_of(Queue* queue);

/// Devices that can be used; where there are none, `reason` says why.
int count_devices(std::string& reason);
/// "NVIDIA H100 80GB HBM3"; what was chosen by timing holds for one kind of device.
std::string device_name(int device);
std::int64_t free_memory(int device);
/// Zeroed.
std::unique_ptr<DeviceMemory> allocate_memory(int device, std::int64_t bytes);
/// Allocates pinned host memory: the device copies from and to it without the processor.
std::unique_ptr<DeviceMemory> allocate_pinned(std::int64_t bytes);
std::unique_ptr<Queue> make_stream_queue(int device);
std::unique_ptr<Recording> record_graph(std::span<Queue* const> queues, const std::function<void()>& submit);
/// Lets `device` reach the memory of `other` where the hardware can; whether it does.
bool connect(int device, int other);
/// Between device and host memory; waits.
void copy_memory(std::byte* dst, const std::byte* src, std::int64_t bytes);
/// Waits until it is reached.
inline void wait_for(const Mark& mark) {
  while (!mark.reached()) {
  }
}
/// Makes it the device of the calling thread.
void use_device(int device);

}  // namespace convnet::cuda
