// cuBLASLt and cuDNN: handles for a queue, checks of calls, and owners of the libraries' objects.
#pragma once

#include <cublasLt.h>

#include <array>
#include <string>
#include <utility>

#include "convnet/base/error.h"
#include "kernels/cuda/runtime.h"

#if defined(CONVNET_CUDNN)
#include <cudnn.h>
#endif

namespace convnet::cuda {

/// Throws DeviceError that names the call (`what`) and the library's error, if there is one.
inline void check(cublasStatus_t status, const std::string& what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw DeviceError("cuBLASLt: " + what + " failed: " + cublasLtGetStatusString(status));
}
#if defined(CONVNET_CUDNN)
/// Returns the library's explanation of the calling thread's last error, " (…)", or "".
inline std::string last_cudnn_error() {
  std::array<char, 1024> message{};
  cudnnGetLastErrorString(message.data(), message.size());
  return message[0] == '\0' ? "" : std::string(" (") + message.data() + ")";
}
inline void check(cudnnStatus_t status, const std::string& what) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw DeviceError("cuDNN: " + what + " failed: " + cudnnGetErrorString(status) + last_cudnn_error());
}
#endif

/// Owns a handle of a C library.
template <class Handle, auto Destroy>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (handle_ != nullptr) static_cast<void>(Destroy(handle_));
  }
  Handle get() const { return handle_; }
  /// Returns the place to which a C function that creates a handle writes it.
  Handle* put() { return &handle_; }

 private:
  Handle handle_ = nullptr;
};

/// Return the handle of a queue that this backend made; its work goes to the queue's stream.
cublasLtHandle_t cublas_of(Queue* queue);
#if defined(CONVNET_CUDNN)
cudnnHandle_t cudnn_of(Queue* queue);
#endif

}  // namespace convnet::cuda
