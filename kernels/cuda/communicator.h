// Communicators between GPUs of several processes. nccl.cpp makes them with NCCL, no_nccl.cpp has none.
#pragma once

#include <memory>
#include <string>

#include "kernels/backend.h"

namespace convnet::cuda {

/// As the functions of Backend.
std::string communicator_key(int device);
std::string new_communicator();
std::unique_ptr<Communicator> join_communicator(int device, const std::string& name, int rank, int size,
                                                double seconds);

}  // namespace convnet::cuda
