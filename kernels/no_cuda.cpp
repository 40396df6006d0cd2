// Replaces the CUDA backend if the program is built without it.
#include "convnet/base/error.h"
#include "kernels/backend.h"

namespace convnet {

int cuda_devices(std::string& reason) {
  reason = "this program was built without CUDA";
  return 0;
}

std::unique_ptr<Backend> make_cuda_backend(Precision) {
  std::string reason;
  cuda_devices(reason);
  throw DeviceError("--device cuda: " + reason);
}

}  // namespace convnet
