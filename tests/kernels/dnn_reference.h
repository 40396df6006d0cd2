// Convolution, locally-connected layer, inner product and pooling as plain loops in double precision: slow,
// and easy to see right.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/ops.h"

namespace convnet::test {

using Values = std::vector<double>;

inline std::size_t index(const Dims& dims, std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
  return static_cast<std::size_t>(((a * dims[1] + b) * dims[2] + c) * dims[3] + d);
}

/// Calls visit(src index, weight index, dst index) for every multiplication of a convolution. The columns of
/// the output are the innermost loop, so that nothing is multiplied and no border asked for in it.
template <class Visit>
void for_each_product(const ConvGeometry& g, const Visit& visit) {
  const std::int64_t c_per_group = g.c / g.groups, k_per_group = g.k / g.groups;
  const Dims src = g.src(), weights = g.weights(), dst = g.dst();
  const auto step = static_cast<std::size_t>(g.stride.x);
  for (std::int64_t n = 0; n < g.n; ++n)
    for (std::int64_t k = 0; k < g.k; ++k)
      for (std::int64_t c = 0; c < c_per_group; ++c)
        for (std::int64_t fy = 0; fy < g.filter.y; ++fy)
          for (std::int64_t fx = 0; fx < g.filter.x; ++fx) {
            const auto column = [&](std::int64_t ox) {
              return ox * g.stride.x - g.pad.x + fx * g.dilation.x;
            };
            // The columns whose windows have this tap within the image.
            std::int64_t first = 0, end = g.ow;
            while (first < end && column(first) < 0) ++first;
            while (end > first && column(end - 1) >= g.w) --end;
            if (first == end) continue;
            const std::size_t w = index(weights, k, c, fy, fx);
            for (std::int64_t oy = 0; oy < g.oh; ++oy) {
              const std::int64_t y = oy * g.stride.y - g.pad.y + fy * g.dilation.y;
              if (y < 0 || y >= g.h) continue;
              std::size_t s = index(src, n, k / k_per_group * c_per_group + c, y, column(first));
              std::size_t d = index(dst, n, k, oy, first);
              for (std::int64_t ox = first; ox < end; ++ox, s += step, ++d) visit(s, w, d);
            }
          }
}

/// dst += bias, per channel of (N,C,...).
inline void add_bias(Values& dst, const Dims& dims, const Values& bias) {
  const auto channels = static_cast<std::size_t>(dims[1]);
  const std::size_t pixels = dst.size() / static_cast<std::size_t>(dims[0]) / channels;
  for (std::size_t i = 0; i < dst.size(); ++i) dst[i] += bias[i / pixels % channels];
}
inline Values bias_gradient(const Values& diff_dst, const Dims& dims) {
  const auto channels = static_cast<std::size_t>(dims[1]);
  const std::size_t pixels = diff_dst.size() / static_cast<std::size_t>(dims[0]) / channels;
  Values sums(channels, 0.0);
  for (std::size_t i = 0; i < diff_dst.size(); ++i) sums[i / pixels % channels] += diff_dst[i];
  return sums;
}
inline void relu(Values& values) {
  for (double& v : values) v = std::max(v, 0.0);
}

inline Values zeros(const Dims& dims) { return Values(static_cast<std::size_t>(element_count(dims)), 0.0); }

inline Values reference_forward(const ConvGeometry& g, const Values& src, const Values& weights) {
  Values dst = zeros(g.dst());
  for_each_product(g, [&](std::size_t s, std::size_t w, std::size_t d) { dst[d] += src[s] * weights[w]; });
  return dst;
}
inline Values reference_backward_data(const ConvGeometry& g, const Values& diff_dst, const Values& weights) {
  Values diff_src = zeros(g.src());
  for_each_product(
      g, [&](std::size_t s, std::size_t w, std::size_t d) { diff_src[s] += diff_dst[d] * weights[w]; });
  return diff_src;
}
inline Values reference_backward_weights(const ConvGeometry& g, const Values& src, const Values& diff_dst) {
  Values diff_weights = zeros(g.weights());
  for_each_product(
      g, [&](std::size_t s, std::size_t w, std::size_t d) { diff_weights[w] += diff_dst[d] * src[s]; });
  return diff_weights;
}

/// Filter weight `w` of the position of output value `d`, in (OH,OW,O,I/groups,H,W).
inline std::size_t local_weight(const LocalGeometry& g, std::size_t w, std::size_t d) {
  const auto position = d % static_cast<std::size_t>(g.oh * g.ow);
  return position * static_cast<std::size_t>(element_count(g.ConvGeometry::weights())) + w;
}
/// The bias, in (OH,OW,O), of output value `d`.
inline std::size_t local_bias(const LocalGeometry& g, std::size_t d) {
  const auto positions = static_cast<std::size_t>(g.oh * g.ow), k = static_cast<std::size_t>(g.k);
  return d % positions * k + d / positions % k;
}
inline Values reference_local_forward(const LocalGeometry& g, const Values& src, const Values& weights) {
  Values dst = zeros(g.dst());
  for_each_product(g, [&](std::size_t s, std::size_t w, std::size_t d) {
    dst[d] += src[s] * weights[local_weight(g, w, d)];
  });
  return dst;
}
inline Values reference_local_backward_data(const LocalGeometry& g, const Values& diff_dst,
                                            const Values& weights) {
  Values diff_src = zeros(g.src());
  for_each_product(g, [&](std::size_t s, std::size_t w, std::size_t d) {
    diff_src[s] += diff_dst[d] * weights[local_weight(g, w, d)];
  });
  return diff_src;
}
inline Values reference_local_backward_weights(const LocalGeometry& g, const Values& src,
                                               const Values& diff_dst) {
  Values diff_weights = zeros(g.weights());
  for_each_product(g, [&](std::size_t s, std::size_t w, std::size_t d) {
    diff_weights[local_weight(g, w, d)] += diff_dst[d] * src[s];
  });
  return diff_weights;
}

/// An inner product is a convolution of 1x1 images.
inline ConvGeometry as_conv(const InnerProductGeometry& g) {
  ConvGeometry conv;
  conv.n = g.n, conv.c = g.in, conv.k = g.out;
  conv.h = conv.w = conv.oh = conv.ow = 1, conv.filter = 1;
  return conv;
}

struct PoolResult {
  Values dst, position;
};
inline PoolResult reference_pool(const PoolGeometry& g, const Values& src) {
  PoolResult result{zeros(g.dst()), zeros(g.dst())};
  for (std::int64_t n = 0; n < g.n; ++n)
    for (std::int64_t c = 0; c < g.c; ++c)
      for (std::int64_t oy = 0; oy < g.oh; ++oy)
        for (std::int64_t ox = 0; ox < g.ow; ++ox) {
          double sum = 0, best = 0;
          std::int64_t count = 0, where = 0;
          for (std::int64_t fy = 0; fy < g.size.y; ++fy)
            for (std::int64_t fx = 0; fx < g.size.x; ++fx) {
              const std::int64_t y = g.start.y + oy * g.stride.y + fy, x = g.start.x + ox * g.stride.x + fx;
              if (y < 0 || y >= g.h || x < 0 || x >= g.w) continue;
              const double v = src[index(g.src(), n, c, y, x)];
              const bool abs = g.kind == PoolKind::max_abs;
              const bool better = abs ? std::abs(v) > std::abs(best) : v > best;
              if (count == 0 || better || (std::isnan(v) && !std::isnan(best)))
                best = v, where = fy * g.size.x + fx;
              sum += v;
              ++count;
            }
          const std::size_t o = index(g.dst(), n, c, oy, ox);
          const double average = g.sum ? sum : sum / static_cast<double>(std::max<std::int64_t>(count, 1));
          result.dst[o] = g.kind == PoolKind::average ? average : best;
          result.position[o] = static_cast<double>(where);
        }
  return result;
}
/// `position` is not read for average pooling.
inline Values reference_pool_backward(const PoolGeometry& g, const Values& diff_dst, const Values& position) {
  Values diff_src = zeros(g.src());
  for (std::int64_t n = 0; n < g.n; ++n)
    for (std::int64_t c = 0; c < g.c; ++c)
      for (std::int64_t oy = 0; oy < g.oh; ++oy)
        for (std::int64_t ox = 0; ox < g.ow; ++ox) {
          std::vector<std::size_t> pixels;
          const std::size_t o = index(g.dst(), n, c, oy, ox);
          for (std::int64_t fy = 0; fy < g.size.y; ++fy)
            for (std::int64_t fx = 0; fx < g.size.x; ++fx) {
              const std::int64_t y = g.start.y + oy * g.stride.y + fy, x = g.start.x + ox * g.stride.x + fx;
              if (y < 0 || y >= g.h || x < 0 || x >= g.w) continue;
              if (g.keeps_workspace() && position[o] != static_cast<double>(fy * g.size.x + fx)) continue;
              pixels.push_back(index(g.src(), n, c, y, x));
            }
          const bool share = g.kind == PoolKind::average && !g.sum;
          for (std::size_t p : pixels)
            diff_src[p] += diff_dst[o] / (share ? static_cast<double>(pixels.size()) : 1.0);
        }
  return diff_src;
}

}  // namespace convnet::test
