// Runs a prepared operation on the CPU from plain values: reorders them into the layouts it wants, runs it
// once and reorders back. Checks on the way what every operation promises: it writes within its arguments and
// workspace only, leaves what it reads alone, and keeps the padding of blocked layouts zero.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cpu/prepare.h"
#include "tests/kernels/values.h"

namespace convnet::test {

/// Memory with sentinels before and after; filled with 0xFF, which is NaN in f32 and f64.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(std::int64_t bytes)
      : bytes_(static_cast<std::size_t>(bytes)), memory_((bytes_ + 3 * kGuard) / kGuard) {
    std::memset(memory_.data(), 0xFF, memory_.size() * kGuard);
    std::memset(begin(), kSentinel, kGuard);
    std::memset(data() + bytes_, kSentinel, kGuard);
  }
  std::byte* data() { return begin() + kGuard; }
  const std::byte* data() const { return const_cast<GuardedBuffer*>(this)->data(); }
  std::size_t size() const { return bytes_; }
  std::vector<std::byte> copy() const { return {data(), data() + bytes_}; }
  bool intact() const {
    for (std::size_t i = 0; i < kGuard; ++i)
      if (*(data() - 1 - i) != std::byte{kSentinel} || *(data() + bytes_ + i) != std::byte{kSentinel})
        return false;
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr unsigned char kSentinel = 0xA5;
  struct alignas(kGuard) Line {
    std::byte bytes[kGuard];
  };
  std::byte* begin() { return memory_.data()->bytes; }

  std::size_t bytes_;
  std::vector<Line> memory_;
};

/// One call of `op` without its workspace's initial value mattering (it holds NaN).
inline void run_guarded(const PreparedOp& op, std::vector<GuardedBuffer>& buffers) {
  std::vector<std::byte*> pointers;
  for (GuardedBuffer& buffer : buffers) pointers.push_back(buffer.data());
  GuardedBuffer workspace(op.workspace_bytes());
  op.run(pointers, workspace.data(), nullptr);
  REQUIRE(workspace.intact());
  for (const GuardedBuffer& buffer : buffers) REQUIRE(buffer.intact());
}

inline std::vector<std::byte> reordered(const std::vector<std::byte>& from_bytes, const TensorDesc& from,
                                        const TensorDesc& to) {
  std::vector<GuardedBuffer> buffers;
  buffers.emplace_back(from.bytes());
  buffers.emplace_back(to.bytes());
  REQUIRE(from_bytes.size() == buffers[0].size());
  std::copy(from_bytes.begin(), from_bytes.end(), buffers[0].data());
  run_guarded(*cpu::prepare(Reorder{from, to}, {}), buffers);
  return buffers[1].copy();
}

/// Returns plain numbers in another type.
inline std::vector<std::byte> converted(const std::vector<std::byte>& bytes, DataType from, DataType to) {
  return from == to ? bytes : packed(unpacked(bytes, from), to);
}
/// Returns whether an operation may store an argument of type `logical` so: activations may be bf16.
inline bool may_be_stored_as(DataType logical, DataType stored) {
  return stored == logical || (logical == DataType::f32 && stored == DataType::bf16);
}

inline TensorDesc plain_of(const TensorDesc& tensor) { return {tensor.dims, tensor.type, nullptr}; }
/// The planner, not the operation, sizes the step block and the costs.
inline bool sized(const TensorDesc& tensor) { return element_count(tensor.dims) > 0; }

/// The result of run_plain: one entry per argument, plain values (inputs as they were given).
using Results = std::vector<Values>;

/// Runs `prepared` (made from `op`) on `inputs`: per argument its plain values, or nothing for arguments that
/// are only written.
inline Results run_plain(const OpDesc& op, const PreparedOp& prepared, const std::vector<Values>& inputs) {
  const std::vector<Argument> arguments_of_op = arguments(op);
  const std::vector<TensorDesc>& args = prepared.args();
  REQUIRE(args.size() == arguments_of_op.size());
  REQUIRE(inputs.size() == args.size());
  std::vector<GuardedBuffer> buffers;
  std::vector<std::vector<std::byte>> before;
  for (std::size_t i = 0; i < args.size(); ++i) {
    INFO(op_name(op) << " argument " << arguments_of_op[i].name);
    REQUIRE(args[i].dims == arguments_of_op[i].dims);
    REQUIRE(may_be_stored_as(arguments_of_op[i].type, args[i].type));
    auto bytes = packed(inputs[i], args[i].type);
    if (sized(args[i]) && !bytes.empty()) bytes = reordered(bytes, plain_of(args[i]), args[i]);
    if (arguments_of_op[i].access == Access::write)
      REQUIRE(bytes.empty());
    else if (sized(args[i]))
      REQUIRE(std::ssize(inputs[i]) == element_count(args[i].dims));
    buffers.emplace_back(sized(args[i]) ? args[i].bytes() : static_cast<std::int64_t>(bytes.size()));
    std::copy(bytes.begin(), bytes.end(), buffers.back().data());
    before.push_back(buffers.back().copy());
  }
  run_guarded(prepared, buffers);
  Results results;
  for (std::size_t i = 0; i < args.size(); ++i) {
    INFO(op_name(op) << " argument " << arguments_of_op[i].name << " as " << args[i].layout_name());
    const auto after = buffers[i].copy();
    if (arguments_of_op[i].access == Access::read) REQUIRE(after == before[i]);
    const auto canonical = sized(args[i]) ? reordered(after, args[i], plain_of(args[i])) : after;
    results.push_back(unpacked(canonical, args[i].type));
    // Back again gives zeros in the padding: what the operation wrote there must be the same. (A pooling
    // workspace may hold anything there; its gradient is zero.)
    if ((args[i].type != DataType::f32 && args[i].type != DataType::bf16) || args[i].plain()) continue;
    const Values padded = unpacked(after, args[i].type);
    const Values expected = unpacked(reordered(canonical, plain_of(args[i]), args[i]), args[i].type);
    bool same = true;
    for (std::size_t j = 0; j < padded.size(); ++j)
      same = same && (padded[j] == expected[j] || (std::isnan(padded[j]) && std::isnan(expected[j])));
    REQUIRE(same);
  }
  return results;
}

/// Prepares `op` without hints and runs it.
template <class Op>
Results run_plain(const Op& op, const std::vector<Values>& inputs) {
  return run_plain(OpDesc(op), *cpu::prepare(op, LayoutHints(inputs.size())), inputs);
}

/// The largest difference, relative to the largest finite expected magnitude (1 if all are zero); NaN and
/// infinities must meet their like.
inline double relative_error(const Values& actual, const Values& expected) {
  REQUIRE(actual.size() == expected.size());
  double worst = 0, scale = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (std::isnan(actual[i]) != std::isnan(expected[i])) return std::numeric_limits<double>::infinity();
    if (std::isnan(expected[i])) continue;
    if (std::isinf(expected[i])) {
      if (actual[i] != expected[i]) return std::numeric_limits<double>::infinity();
      continue;
    }
    worst = std::max(worst, std::abs(actual[i] - expected[i]));
    scale = std::max(scale, std::abs(expected[i]));
  }
  return worst / (scale > 0 ? scale : 1);
}

}  // namespace convnet::test
