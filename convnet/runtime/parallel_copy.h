// Copies large blocks of memory with several threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "convnet/base/share_work.h"

namespace convnet {

/// How a copy is divided among threads.
struct CopySharing {
  int most_threads = 1;                   ///< the calling thread included
  std::int64_t smallest_piece = 4 << 20;  ///< fewest bytes that are worth a thread
  StartThread start = {};                 ///< of share_work()
};

/// Copies `bytes` bytes as std::memcpy does, in several threads if there are enough bytes. The calling thread
/// copies the pieces of threads that cannot be started.
void copy_in_threads(std::byte* dst, const std::byte* src, std::int64_t bytes,
                     const CopySharing& sharing = {});

}  // namespace convnet
