// The program is built without NCCL: messages between processes pass through the hosts.
#include "kernels/cuda/communicator.h"

namespace convnet::cuda {

std::string communicator_key(int) { return ""; }
std::string new_communicator() { return ""; }
std::unique_ptr<Communicator> join_communicator(int, const std::string&, int, int, double) { return nullptr; }

}  // namespace convnet::cuda
