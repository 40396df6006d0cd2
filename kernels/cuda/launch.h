// Runs kernel bodies on a stream. A body is a functor over an index; where this file is compiled as plain C++
// (tests/cuda), bodies run in a loop on the host, so that everything but the launching itself is tested
// without a GPU.
#pragma once

#include <cstdint>

#include "kernels/cuda/runtime.h"

#if defined(__CUDACC__)
#define CONVNET_DEVICE __device__
#define CONVNET_PRAGMA(text) _Pragma(#text)
#else
#define CONVNET_DEVICE
#define CONVNET_PRAGMA(text)
#endif
// Arrays that are indexed in loops stay in registers only where the loops are unrolled.
#define CONVNET_UNROLL CONVNET_PRAGMA(unroll)
#define CONVNET_UNROLL_BY(times) CONVNET_PRAGMA(unroll times)

namespace convnet::cuda {

constexpr int kBlock = 256;        ///< threads of a block in for_each
constexpr int kTeamThreads = 256;  ///< threads of a team

#if defined(__CUDACC__)

/// The threads of a block that work on one item together. Sums are taken in a fixed order: the same bits
/// every time.
class Team {
 public:
  __device__ int rank() const { return static_cast<int>(threadIdx.x); }
  __device__ int size() const { return static_cast<int>(blockDim.x); }
  /// All members get the sum of everybody's value; likewise the largest. All must call.
  template <class T>
  __device__ T sum(T value) const {
    return reduce(value, [](T a, T b) { return a + b; });
  }
  template <class T>
  __device__ T max(T value) const {
    return reduce(value, [](T a, T b) { return a > b ? a : b; });
  }

 private:
  template <class T, class Combine>
  __device__ static T reduce(T value, Combine combine) {
    __shared__ T parts[32];
    for (int distance = 16; distance > 0; distance /= 2)
      value = combine(value, __shfl_xor_sync(0xffffffffU, value, distance));
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    __syncthreads();  // everybody has read the parts of the call before
    if (lane == 0) parts[warp] = value;
    __syncthreads();
    T total = parts[0];
    for (unsigned i = 1; i < warps; ++i) total = combine(total, parts[i]);
    return total;
  }
};

template <class Body>
__global__ void __launch_bounds__(kBlock) each_kernel(std::int64_t count, Body body) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  // Most threads have one index: unrolled, they would divide to learn that.
#pragma unroll 1
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step)
    body(i);
}

template <class Body>
__global__ void __launch_bounds__(kTeamThreads) teams_kernel(std::int64_t count, Body body) {
  const Team team;
#pragma unroll 1
  for (std::int64_t i = blockIdx.x; i < count; i += gridDim.x) body(team, i);
}

/// body(i) for all i of [0, count), in any order.
template <class Body>
void for_each(Stream stream, std::int64_t count, const Body& body) {
  if (count <= 0) return;
  const std::int64_t blocks = (count + kBlock - 1) / kBlock;
  constexpr std::int64_t kMost = 65535;
  each_kernel<<<static_cast<unsigned>(blocks < kMost ? blocks : kMost), kBlock, 0, stream.handle>>>(count,
                                                                                                    body);
  check_launch();
}

/// body(team, i) for all i of [0, count), in any order. Bodies that use the team's sums do so the same number
/// of times in all threads.
template <class Body>
void for_teams(Stream stream, std::int64_t count, const Body& body) {
  if (count <= 0) return;
  constexpr std::int64_t kMost = 65535;
  teams_kernel<<<static_cast<unsigned>(count < kMost ? count : kMost), kTeamThreads, 0, stream.handle>>>(
      count, body);
  check_launch();
}

#elif !defined(CONVNET_CUDA_EMULATED)
#error "kernels are compiled by nvcc, or as C++ with CONVNET_CUDA_EMULATED"
#else

class Team {
 public:
  int rank() const { return 0; }
  int size() const { return 1; }
  template <class T>
  T sum(T value) const {
    return value;
  }
  template <class T>
  T max(T value) const {
    return value;
  }
};

template <class Body>
void for_each(Stream, std::int64_t count, const Body& body) {
  for (std::int64_t i = 0; i < count; ++i) body(i);
}

template <class Body>
void for_teams(Stream, std::int64_t count, const Body& body) {
  for (std::int64_t i = 0; i < count; ++i) body(Team(), i);
}

#endif

}  // namespace convnet::cuda
