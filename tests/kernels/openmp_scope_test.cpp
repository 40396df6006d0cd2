// Threads of OpenMP that end with what they were started for.
#include "convnet/base/openmp_scope.h"

#include <omp.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <thread>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/activation_view.h"
#include "tests/catch.h"

namespace convnet::openmp_scope_test {
namespace {

std::ptrdiff_t listed_threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

/// Returns the number of threads once it has not changed for a while: one that was joined is listed a moment
/// longer.
std::ptrdiff_t threads() {
  std::ptrdiff_t last = listed_threads();
  for (int same = 0; same < 10; ++same) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::ptrdiff_t now = listed_threads();
    if (now != last) same = 0;
    last = now;
  }
  return last;
}

/// Returns by how many threads there are more after `work`, which a thread does that never used OpenMP.
template <class Work>
std::ptrdiff_t threads_left(const Work& work) {
  std::ptrdiff_t more = 0;
  std::thread([&] {
    const std::ptrdiff_t before = threads();
    work();
    more = threads() - before;
  }).join();
  return more;
}

void use_three_threads() {
#pragma omp parallel num_threads(3)
  std::this_thread::yield();
}

}  // namespace

TEST_CASE("an OpenMP scope ends the threads that were started in it") {
  if (omp_get_thread_limit() < 3) return test::skip("OpenMP may not start three threads");
  CHECK(threads_left([] { use_three_threads(); }) == 2);
  CHECK(threads_left([] {
          const OpenMpScope scope;
          use_three_threads();
        }) == 0);
}

TEST_CASE(
    "reading and writing weights leaves no OpenMP threads, which would slow down the devices' workers") {
  const auto backend = make_cpu_backend(3, Precision::fp32);
  const Dims dims = {64, 64, 16, 16};
  const TensorDesc plain{dims, DataType::f32, nullptr}, blocked = cpu::blocked_activations(dims, 8);
  const std::vector<float> from(static_cast<std::size_t>(element_count(dims)));
  std::vector<float> to(from.size());
  CHECK(threads_left([&] {
          backend->relay(plain, reinterpret_cast<const std::byte*>(from.data()), blocked,
                         reinterpret_cast<std::byte*>(to.data()));
          backend->measure_copy_bandwidth(0);
        }) == 0);
}

}  // namespace convnet::openmp_scope_test
