// Copies that are too large for one core.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>

namespace convnet {

/// How a copy is shared out.
struct CopySharing {
  int most_threads = 0;                   ///< 0: one for each core, at most 8, more bring little
  std::int64_t smallest_piece = 4 << 20;  ///< bytes that are worth a thread
  std::function<std::thread(std::function<void()>)> start = {};  ///< default: starts a thread
};

/// Copies `bytes` bytes as std::memcpy does, in several threads if that is worth
/// it. Pieces whose thread cannot be started are copied by the caller.
void copy_in_threads(std::byte* dst, const std::byte* src, std::int64_t bytes,
                     const CopySharing& sharing = {});

}  // namespace convnet
