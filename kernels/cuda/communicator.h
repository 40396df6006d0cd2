// Communicators between GPUs of several processes. nccl.cpp implements these functions with NCCL;
// no_nccl.cpp, for programs built without it, makes no communicators.
#pragma once

#include <memory>
#include <string>

#include "kernels/backend.h"

namespace convnet::cuda {

/// These implement the functions of Backend with the same names.
std::string communicator_key(int device);
std::string new_communicator();
std::unique_ptr<Communicator> join_communicator(int device, const std::string& name, int rank, int size,
                                                double seconds);

}  // namespace convnet::cuda
