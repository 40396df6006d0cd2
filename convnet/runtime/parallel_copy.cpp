#include "convnet/runtime/parallel_copy.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <vector>

namespace convnet {

void copy_in_threads(std::byte* dst, const std::byte* src, std::int64_t bytes, const CopySharing& sharing) {
  const std::int64_t pieces =
      std::clamp<std::int64_t>(bytes / sharing.smallest_piece, 1, sharing.most_threads);
  const auto copy_piece = [=](std::int64_t i) {
    const std::int64_t begin = bytes * i / pieces, end = bytes * (i + 1) / pieces;
    if (begin < end) std::memcpy(dst + begin, src + begin, static_cast<std::size_t>(end - begin));
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(pieces));
  std::int64_t own = 0;  // pieces from here on are the caller's
  try {
    for (; own + 1 < pieces; ++own) {
      const auto work = [=, i = own] { copy_piece(i); };
      threads.push_back(sharing.start ? sharing.start(work) : std::thread(work));
    }
  } catch (const std::exception&) {
    // The rest is the caller's.
  }
  for (; own < pieces; ++own) copy_piece(own);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace convnet
