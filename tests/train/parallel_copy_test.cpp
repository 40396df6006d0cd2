#include "convnet/runtime/parallel_copy.h"

#include <numeric>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "tests/catch.h"

using namespace convnet;

namespace {

/// Checks that a copy brings all bytes and touches none around them; returns the threads that it started.
int check_copy(std::int64_t bytes, CopySharing sharing, int threads_there_are = 1000) {
  constexpr std::int64_t kAround = 16;
  int started = 0;
  sharing.start = [&](std::function<void()> work) {
    if (started == threads_there_are)
      throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    ++started;
    return std::thread(std::move(work));
  };
  std::vector<std::byte> src(static_cast<std::size_t>(bytes)),
      dst(static_cast<std::size_t>(bytes + 2 * kAround));
  for (std::size_t i = 0; i < src.size(); ++i) src[i] = static_cast<std::byte>(i * 31 + i / 256);
  std::vector<std::byte> expected = dst;
  std::copy(src.begin(), src.end(), expected.begin() + kAround);
  copy_in_threads(dst.data() + kAround, src.data(), bytes, sharing);
  CHECK(dst == expected);
  return started;
}

}  // namespace

TEST_CASE("copies in threads bring every byte once") {
  for (const std::int64_t bytes : {0, 1, 99, 100, 199, 200, 201, 1000, 1001, 12345}) {
    for (const int most : {1, 2, 3, 8}) {
      INFO(bytes << " bytes, at most " << most << " threads");
      const std::int64_t pieces = std::min<std::int64_t>(most, bytes / 100);
      CHECK(check_copy(bytes, {most, 100}) == std::max<std::int64_t>(pieces - 1, 0));
    }
  }
}

TEST_CASE("small copies start no thread, large ones as many as may run") {
  CHECK(check_copy(4 << 20, {8}) == 0);
  CHECK(check_copy(40 << 20, {}) == 0);
  CHECK(check_copy(40 << 20, {8}) == 7);
}

TEST_CASE("where threads cannot be started, the caller copies") {
  for (const int there_are : {0, 1, 2}) CHECK(check_copy(10000, {4, 100}, there_are) == there_are);
}
