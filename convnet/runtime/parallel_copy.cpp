#include "convnet/runtime/parallel_copy.h"

#include <algorithm>
#include <cstring>

namespace convnet {

void copy_in_threads(std::byte* dst, const std::byte* src, std::int64_t bytes, const CopySharing& sharing) {
  const std::int64_t pieces =
      std::clamp<std::int64_t>(bytes / sharing.smallest_piece, 1, sharing.most_threads);
  const auto copy_piece = [=](std::size_t piece) {
    const auto i = static_cast<std::int64_t>(piece);
    const std::int64_t begin = bytes * i / pieces, end = bytes * (i + 1) / pieces;
    if (begin < end) std::memcpy(dst + begin, src + begin, static_cast<std::size_t>(end - begin));
  };
  share_work(static_cast<std::size_t>(pieces), sharing.most_threads, copy_piece, sharing.start);
}

}  // namespace convnet
