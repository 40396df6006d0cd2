// Communicators by NCCL.
#include <nccl.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <future>
#include <stdexcept>
#include <thread>

#include "convnet/base/error.h"
#include "convnet/base/exit.h"
#include "kernels/cuda/communicator.h"
#include "kernels/cuda/runtime.h"

namespace convnet::cuda {
namespace {

void check(ncclResult_t result, const std::string& what) {
  if (result != ncclSuccess)
    throw DeviceError("NCCL: " + what + " failed: " + ncclGetErrorString(result) + " (" +
                      ncclGetLastError(nullptr) + ")");
}

class NcclCommunicator : public Communicator {
 public:
  /// Takes ownership.
  explicit NcclCommunicator(ncclComm_t comm) : comm_(comm) {}
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  ~NcclCommunicator() override {
    // Destroying the communicator would wait for messages that never end.
    static_cast<void>(failure().empty() ? ncclCommDestroy(comm_) : ncclCommAbort(comm_));
  }

  void exchange(Queue& queue, std::span<const Piece> pieces) override {
    const cudaStream_t stream = stream_of(&queue).handle;
    check(ncclGroupStart(), "beginning messages");
    ncclResult_t result = ncclSuccess;
    for (const Piece& piece : pieces) {
      if (piece.bytes == 0 || result != ncclSuccess) continue;
      const auto bytes = static_cast<std::size_t>(piece.bytes);
      result = piece.sends ? ncclSend(piece.data, bytes, ncclUint8, piece.peer, comm_, stream)
                           : ncclRecv(piece.data, bytes, ncclUint8, piece.peer, comm_, stream);
    }
    const ncclResult_t ended = ncclGroupEnd();
    check(result, "a message");
    check(ended, "starting messages");
  }

  std::string failure() const override {
    ncclResult_t result = ncclSuccess;
    if (ncclCommGetAsyncError(comm_, &result) != ncclSuccess) return "NCCL has lost its communicator";
    if (result == ncclSuccess || result == ncclInProgress) return "";
    return std::string("NCCL: ") + ncclGetErrorString(result) + " (" + ncclGetLastError(comm_) + ")";
  }

 private:
  ncclComm_t comm_;
};

}  // namespace

std::string communicator_key(int device) {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device), "asking for the device's properties");
  return std::string(properties.uuid.bytes, sizeof properties.uuid.bytes);
}

std::string new_communicator() {
  ncclUniqueId id;
  check(ncclGetUniqueId(&id), "naming a communicator");
  return std::string(id.internal, sizeof id.internal);
}

std::unique_ptr<Communicator> join_communicator(int device, const std::string& name, int rank, int size,
                                                double seconds) {
  ncclUniqueId id;
  if (name.size() != sizeof id.internal)
    throw std::logic_error("the name of a communicator has another length");
  std::memcpy(id.internal, name.data(), name.size());
  // NCCL waits for the other processes without a time limit, so a thread that can be abandoned calls it.
  std::promise<ncclComm_t> promise;
  std::future<ncclComm_t> joined = promise.get_future();
  std::thread([promise = std::move(promise), id, device, rank, size]() mutable {
    try {
      use_device(device);
      ncclComm_t comm = nullptr;
      check(ncclCommInitRank(&comm, size, id, rank),
            "connecting GPUs of " + std::to_string(size) + " processes");
      promise.set_value(comm);
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  }).detach();
  if (joined.wait_for(std::chrono::duration<double>(seconds)) != std::future_status::ready) {
    skip_destructors_at_exit();  // the thread goes on
    throw DeviceError("NCCL has not connected the GPUs of " + std::to_string(size) + " processes in " +
                      std::to_string(std::lround(seconds)) + " s; --nccl 0 sends through the hosts");
  }
  return std::make_unique<NcclCommunicator>(joined.get());
}

}  // namespace convnet::cuda
