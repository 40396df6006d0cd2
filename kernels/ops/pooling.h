// Pooling over windows of pixels and over windows of maps.
#pragma once

#include "kernels/ops/argument.h"

namespace convnet {

/// max_abs takes the element of the largest absolute value, with its sign.
enum class PoolKind { max, average, max_abs };

/// Geometry of pooling. Windows start at `start + stride*i` and are clipped at the borders of the image.
struct PoolGeometry {
  PoolKind kind = PoolKind::max;
  std::int64_t n = 0, c = 0, h = 0, w = 0, oh = 0, ow = 0;
  std::int64_t size = 0, stride = 1, start = 0;  ///< start may be negative
  bool sum = false;                              ///< average only: do not divide by the clipped window

  Dims src() const { return {n, c, h, w}; }
  Dims dst() const { return {n, c, oh, ow}; }
  /// Whether backward reads a workspace of forward: max and max_abs pooling keep the position of each maximum
  /// in its window, row * size + column, or kNowhere. It lies in the layout of dst.
  bool keeps_workspace() const { return kind != PoolKind::average; }
  DataType workspace_type() const { return size < 16 ? DataType::u8 : DataType::s32; }
  static constexpr std::int32_t kNowhere = -1;  ///< truncated to the workspace's type
  std::vector<std::int64_t> settings() const { return {stride, static_cast<std::int64_t>(kind), size}; }
};

/// The first of equal maxima counts.
struct PoolForward {
  PoolGeometry g;
  bool keep_workspace = false;  ///< max, max_abs in training: PoolBackward will follow
  /// max, max_abs only: dst = max(0, pooled). A maximum that is not positive gets no gradient: its position
  /// is kNowhere.
  bool relu = false;

  std::string name() const { return relu ? "pool.forward+relu" : "pool.forward"; }
  std::vector<Argument> arguments() const {
    std::vector<Argument> all = args::src_to_dst(g.src(), g.dst());
    if (keep_workspace) all.push_back(args::write("workspace", g.dst(), g.workspace_type()));
    return all;
  }
  std::vector<std::int64_t> settings() const { return g.settings(); }
};
struct PoolBackward {
  PoolGeometry g;

  std::string name() const { return "pool.backward"; }
  std::vector<Argument> arguments() const {
    std::vector<Argument> all = {args::read("diff_dst", g.dst())};
    if (g.keeps_workspace()) all.push_back(args::read("workspace", g.dst(), g.workspace_type()));
    all.push_back(args::write("diff_src", g.src()));
    return all;
  }
  std::vector<std::int64_t> settings() const { return g.settings(); }
};

/// Maximum over windows of maps: output map o takes the maps [start + stride*o, + size), clipped to [0,C).
struct CrossMapPool {
  std::int64_t n = 0, c = 0, h = 0, w = 0, outputs = 0;
  std::int64_t size = 0, stride = 1, start = 0;

  Dims src() const { return {n, c, h, w}; }
  Dims dst() const { return {n, outputs, h, w}; }
};
struct CrossMapPoolForward {
  CrossMapPool p;

  std::string name() const { return "cmpool.forward"; }
  std::vector<Argument> arguments() const { return args::src_to_dst(p.src(), p.dst()); }
  std::vector<std::int64_t> settings() const { return {p.size}; }
};
/// The first of equal maxima takes the gradient.
struct CrossMapPoolBackward {
  CrossMapPool p;

  std::string name() const { return "cmpool.backward"; }
  std::vector<Argument> arguments() const { return args::from_src_and_diff(p.src(), p.dst()); }
  std::vector<std::int64_t> settings() const { return {p.size}; }
};

}  // namespace convnet
