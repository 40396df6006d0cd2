// Pooling over windows of pixels and over windows of maps.
#pragma once

#include "kernels/ops/argument.h"
#include "kernels/ops/windows.h"

namespace convnet {

/// max_abs takes the element of the largest absolute value, with its sign.
enum class PoolKind { max, average, max_abs };

/// Geometry of pooling. Windows start at `start + stride*i` and are clipped at the borders of the image.
struct PoolGeometry {
  PoolKind kind = PoolKind::max;
  std::int64_t n = 0, c = 0, h = 0, w = 0, oh = 0, ow = 0;
  Sides size, stride = 1, start;  ///< start may be negative
  bool sum = false;               ///< average only: do not divide by the size of the clipped window

  Dims src() const { return {n, c, h, w}; }
  Dims dst() const { return {n, c, oh, ow}; }
  /// Returns whether forward writes a workspace that backward reads: max and max_abs pooling keep the
  /// position of each maximum in its window, row * size.x + column, or kNowhere. It has the layout of dst.
  bool keeps_workspace() const { return kind != PoolKind::average; }
  /// A byte holds the positions in a window and kNowhere.
  DataType workspace_type() const { return size.area() < 256 ? DataType::u8 : DataType::s32; }
  static constexpr std::int32_t kNowhere = -1;  ///< truncated to the workspace's type
  WindowLine rows() const { return {h, oh, size.y, stride.y, start.y}; }
  WindowLine columns() const { return {w, ow, size.x, stride.x, start.x}; }
  /// Returns whether the windows are square and move alike in both directions.
  bool square() const { return size.equal() && stride.equal() && start.equal(); }
  std::vector<std::int64_t> settings() const {
    if (square()) return {stride.x, static_cast<std::int64_t>(kind), size.x};
    return {stride.y, stride.x, static_cast<std::int64_t>(kind), size.y, size.x};
  }
};

/// Pools (N,C,H,W) to (N,C,OH,OW). Of equal maxima, the first one is taken.
struct PoolForward {
  PoolGeometry g;
  bool keep_workspace = false;  ///< max, max_abs: write the workspace for PoolBackward
  /// max, max_abs only: dst = max(0, pooled). A maximum that is not positive gets no gradient; its position
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

/// Maximum over windows of maps: output map o is the maximum over the `size` maps from start + stride*o on,
/// clipped to [0,C).
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
/// The gradient; of equal maxima, the first one gets it.
struct CrossMapPoolBackward {
  CrossMapPool p;

  std::string name() const { return "cmpool.backward"; }
  std::vector<Argument> arguments() const { return args::from_src_and_diff(p.src(), p.dst()); }
  std::vector<std::int64_t> settings() const { return {p.size}; }
};

}  // namespace convnet
