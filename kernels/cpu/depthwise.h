// The layout of depthwise convolutions, whose groups have one map each, and copies of their images with zeros
// around them.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/layout.h"
#include "kernels/cpu/own_kernel.h"

namespace convnet::cpu::own {

/// The maps that lie together in oneDNN's activations and weights of depthwise convolutions.
constexpr int kDepthwiseMaps = kUsualBlock;

/// Returns the weights in that layout: blocks of maps, in them taps.
inline TensorDesc depthwise_weights(const ConvGeometry& g) {
  constexpr auto format =
      kDepthwiseMaps == 16 ? dnnl::memory::format_tag::Abcde16a : dnnl::memory::format_tag::Abcde8a;
  const dnnl::memory::desc weights({g.c, 1, 1, g.filter.y, g.filter.x}, dnnl::memory::data_type::f32, format);
  return from_dnnl(weights, g.weights());
}

/// Returns whether our kernels know the convolution, but for the size of its filters.
inline bool is_depthwise(const ConvGeometry& g) {
  return g.square() && g.groups == g.c && g.groups == g.k && g.c >= kDepthwiseMaps;
}

/// Has the processor fetch numbers into the second-level cache. They may lie beyond the end of a tensor. A
/// kernel that works on one image after the other fetches a line of the next one beside each line that it
/// computes; else it would wait for memory between two images.
template <class T>
void prefetch(const T* numbers, std::int64_t count) {
  constexpr std::int64_t kCacheLine = 64 / sizeof(T);
  for (std::int64_t i = 0; i < count; i += kCacheLine) __builtin_prefetch(numbers + i, 0, 2);
}

/// Lines of an image of one block of maps as f32, with zeros in place of pixels outside of the image. It
/// begins at column `left` of the image, which may be negative, and has `width` columns.
class Band {
 public:
  /// A band of lines should have at most this many bytes, so that it stays in the first-level cache.
  static constexpr std::int64_t kBytes = 48 << 10;

  Band(std::int64_t lines, std::int64_t left, std::int64_t width)
      : left_(left), width_(width), pixels_(static_cast<std::size_t>(lines * width)) {}

  /// Copies `lines` lines of a plane of h x w pixels, the first of which is `top`, which may be negative.
  template <class T>
  void fill(const T* plane, std::int64_t h, std::int64_t w, std::int64_t top, std::int64_t lines) {
    const std::int64_t first = std::max<std::int64_t>(left_, 0), last = std::min(left_ + width_, w);
    if (first >= last) return;
    for (std::int64_t line = 0; line < lines; ++line) {
      const std::int64_t from = top + line;
      float* const to = data() + (line * width_ + first - left_) * kDepthwiseMaps;
      if (from < 0 || from >= h) {
        std::fill_n(to, (last - first) * kDepthwiseMaps, 0.0F);
        continue;
      }
      const T* const pixels = plane + (from * w + first) * kDepthwiseMaps;
      for (std::int64_t i = 0; i < (last - first) * kDepthwiseMaps; i += kDepthwiseMaps) {
        typename Vector<float, kDepthwiseMaps>::Type pixel;
        load_floats<kDepthwiseMaps>(pixels + i, kDepthwiseMaps, pixel);
        store(to + i, pixel);
      }
    }
  }
  float* data() { return pixels_.data()->maps; }
  const float* data() const { return pixels_.data()->maps; }
  std::int64_t width() const { return width_; }

 private:
  struct alignas(kDepthwiseMaps * sizeof(float)) Pixel {
    float maps[kDepthwiseMaps] = {};
  };
  std::int64_t left_, width_;
  std::vector<Pixel> pixels_;
};

}  // namespace convnet::cpu::own
