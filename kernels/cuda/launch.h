// Runs kernel bodies on a stream. A body is a functor over an index. If this file is compiled as plain C++
// (tests/cuda), bodies run in a few threads of the host, when the emulated stream comes to them: everything
// but the launch itself is tested without a GPU, and the thread sanitizer finds data races.
#pragma once

#include <cstdint>

#include "kernels/cuda/runtime.h"

#if defined(CONVNET_CUDA_EMULATED)
#include <barrier>
#include <cstring>
#include <deque>
#include <thread>
#include <type_traits>
#include <typeinfo>
#include <vector>
#endif

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

#if defined(__CUDACC__)

constexpr int kBlock = 256;             ///< threads of a block in for_each
constexpr int kTeamThreads = 256;       ///< threads of a team
constexpr int kSharedBytes = 48 << 10;  ///< most memory that the threads of a team share

/// The threads of a block, which work on one item together. The order of sums is fixed, so that the bits are
/// the same every time.
class Team {
 public:
  __device__ int rank() const { return static_cast<int>(threadIdx.x); }
  __device__ int size() const { return static_cast<int>(blockDim.x); }
  /// Return the sum, or the maximum, of the values of all members to each member. All members must call.
  template <class T>
  __device__ T sum(T value) const {
    return reduce(value, [](T a, T b) { return a + b; });
  }
  template <class T>
  __device__ T max(T value) const {
    return reduce(value, [](T a, T b) { return a > b ? a : b; });
  }
  /// Waits until all members have called it. What they wrote before can be read after it.
  __device__ void wait() const { __syncthreads(); }
  /// Returns memory for `Count` values that the members share. Calls with the same arguments return the same.
  template <class T, int Count>
  __device__ T* shared() const {
    static_assert(sizeof(T) * Count <= kSharedBytes);
    __shared__ alignas(16) unsigned char memory[sizeof(T) * Count];
    return reinterpret_cast<T*>(memory);
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

/// In a programmatic dependent launch, lets the next kernel start, and waits until the earlier kernels of the
/// stream have ended and what they wrote can be read. All kernels call it first, so the end of one implies
/// the end of those before it. In other launches it does nothing, so that no kernel of a library starts
/// early.
__device__ inline void wait_for_earlier_kernels([[maybe_unused]] bool dependent_launch) {
#if __CUDA_ARCH__ >= 900
  if (!dependent_launch) return;
  cudaTriggerProgrammaticLaunchCompletion();
  cudaGridDependencySynchronize();
#endif
}

template <class Body>
__global__ void __launch_bounds__(kBlock) each_kernel(std::int64_t count, Body body, bool dependent_launch) {
  wait_for_earlier_kernels(dependent_launch);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  // Most threads have only one index. An unrolled loop would first divide to find the number of rounds.
#pragma unroll 1
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step)
    body(i);
}

template <class Body>
__global__ void __launch_bounds__(kTeamThreads)
    teams_kernel(std::int64_t count, Body body, bool dependent_launch) {
  wait_for_earlier_kernels(dependent_launch);
  const Team team;
#pragma unroll 1
  for (std::int64_t i = blockIdx.x; i < count; i += gridDim.x) body(team, i);
}

/// Starts a kernel with at most 65535 blocks.
template <class Body>
void launch(Stream stream, std::int64_t blocks, int threads, void (*kernel)(std::int64_t, Body, bool),
            std::int64_t count, const Body& body) {
  constexpr std::int64_t kMost = 65535;
  cudaLaunchAttribute dependent{};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(blocks < kMost ? blocks : kMost);
  config.blockDim = static_cast<unsigned>(threads);
  config.stream = stream.handle;
  config.attrs = &dependent;
  config.numAttrs = stream.dependent_launch ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, count, body, stream.dependent_launch), "starting a kernel");
}

/// Calls body(i) for all i of [0, count), in any order.
template <class Body>
void for_each(Stream stream, std::int64_t count, const Body& body) {
  if (count <= 0) return;
  launch(stream, (count + kBlock - 1) / kBlock, kBlock, each_kernel<Body>, count, body);
}

/// Calls body(team, i) for all i of [0, count), in any order. Bodies that use the team's sums do so the same
/// number of times in all threads.
template <class Body>
void for_teams(Stream stream, std::int64_t count, const Body& body) {
  if (count <= 0) return;
  launch(stream, count, kTeamThreads, teams_kernel<Body>, count, body);
}

#elif !defined(CONVNET_CUDA_EMULATED)
#error "kernels are compiled by nvcc, or as C++ with CONVNET_CUDA_EMULATED"
#else

/// Numbers of threads if the kernels of a stream run in threads (Stream::threads); else one thread does
/// everything.
constexpr int kWorkers = 2;             ///< threads that share the indices of for_each
constexpr int kTeams = 2;               ///< teams that share the items of for_teams
constexpr int kMembers = 2;             ///< threads of a team
constexpr int kSharedBytes = 48 << 10;  ///< most memory that the threads of a team share

/// Calls work(0), work(1)... work(threads - 1), each in a thread of its own.
template <class Work>
void on_threads(int threads, const Work& work) {
  std::vector<std::jthread> others;
  for (int rank = 1; rank < threads; ++rank) others.emplace_back([&work, rank] { work(rank); });
  work(0);
}

/// Returns which of `count` workers gets index `i`. Indices at any fixed stride are spread over several
/// workers.
inline int worker_of(std::int64_t i, int count) {
  const std::uint64_t mixed = static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15U;
  return static_cast<int>((mixed >> 32) % static_cast<unsigned>(count));
}

class Team {
 public:
  /// The state that the members of a team share.
  class Meeting {
   public:
    explicit Meeting(int members) : barrier_(members), parts_(static_cast<std::size_t>(members)) {}
    int members() const { return static_cast<int>(parts_.size()); }
    template <class T, class Combine>
    T reduce(int rank, T value, Combine combine) {
      static_assert(sizeof(T) <= sizeof(Part));
      std::memcpy(&parts_[static_cast<std::size_t>(rank)], &value, sizeof value);
      barrier_.arrive_and_wait();
      T total;
      std::memcpy(&total, &parts_[0], sizeof total);
      for (std::size_t other = 1; other < parts_.size(); ++other) {
        std::memcpy(&value, &parts_[other], sizeof value);
        total = combine(total, value);
      }
      barrier_.arrive_and_wait();  // everybody has read the parts
      return total;
    }
    void wait() { barrier_.arrive_and_wait(); }
    void* shared() { return shared_; }

   private:
    using Part = double;
    std::barrier<> barrier_;
    alignas(16) std::byte shared_[kSharedBytes];
    std::vector<Part> parts_;
  };
  Team(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  int rank() const { return rank_; }
  int size() const { return meeting_.members(); }
  template <class T>
  T sum(T value) const {
    return meeting_.reduce(rank_, value, [](T a, T b) { return a + b; });
  }
  template <class T>
  T max(T value) const {
    return meeting_.reduce(rank_, value, [](T a, T b) { return a > b ? a : b; });
  }
  void wait() const { meeting_.wait(); }
  template <class T, int Count>
  T* shared() const {
    static_assert(sizeof(T) * Count <= kSharedBytes);
    return static_cast<T*>(meeting_.shared());
  }

 private:
  Meeting& meeting_;
  int rank_;
};

/// Tells tests that a kernel is started (tests/cuda/emulation.h).
void note_kernel(const std::type_info& body);

/// Whether CUDA can pass a body to a kernel: it copies the bytes alone, and not more than parameters may
/// have.
template <class Body>
constexpr bool can_be_passed = std::is_trivially_copyable_v<Body> && sizeof(Body) <= 32000;

template <class Body>
void for_each(Stream stream, std::int64_t count, const Body& body) {
  if (count <= 0) return;
  static_assert(can_be_passed<Body>);
  note_kernel(typeid(Body));
  put(stream, [count, body, threads = stream.threads ? kWorkers : 1] {
    on_threads(threads, [&](int rank) {
      for (std::int64_t i = 0; i < count; ++i)
        if (worker_of(i, threads) == rank) body(i);
    });
  });
}

template <class Body>
void for_teams(Stream stream, std::int64_t count, const Body& body) {
  if (count <= 0) return;
  static_assert(can_be_passed<Body>);
  note_kernel(typeid(Body));
  const int teams = stream.threads ? kTeams : 1, members = stream.threads ? kMembers : 1;
  put(stream, [count, body, teams, members] {
    std::deque<Team::Meeting> meetings;
    for (int i = 0; i < teams; ++i) meetings.emplace_back(members);
    on_threads(teams * members, [&](int thread) {
      const int mine = thread / members;
      const Team team(meetings[static_cast<std::size_t>(mine)], thread % members);
      for (std::int64_t i = 0; i < count; ++i)
        if (worker_of(i, teams) == mine) body(team, i);
    });
  });
}

#endif

}  // namespace convnet::cuda
