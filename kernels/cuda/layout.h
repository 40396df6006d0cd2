// Memory layouts of the CUDA backend: activations of four dimensions lie (N,H,W,C), convolution weights
// (O,H,W,I), everything else plain. No layout has padding.
#pragma once

#include <algorithm>
#include <cstdint>

#include "convnet/base/tensor.h"
#include "kernels/cuda/divisor.h"

namespace convnet::cuda {

/// The layout in which the second dimension of four is the innermost in memory.
class ChannelsLast : public Layout {
 public:
  ChannelsLast(std::int64_t elements, DataType type) : elements_(elements), type_(type) {}
  std::string name() const override { return "channels last"; }
  std::int64_t bytes() const override { return elements_ * size_of(type_); }
  bool equals(const Layout& other) const override {
    return dynamic_cast<const ChannelsLast*>(&other) != nullptr;
  }
  std::shared_ptr<const Layout> with_type(DataType type) const override {
    return std::make_shared<ChannelsLast>(elements_, type);
  }

 private:
  std::int64_t elements_;
  DataType type_;
};

/// Returns a tensor in the layout that this backend wants: channels last for four dimensions, plain for
/// others.
TensorDesc channels_last(const Dims& dims, DataType type = DataType::f32);

/// Divides by a number that is used once. 64-bit divisions are slow on GPUs, so numbers below 2^32 are
/// divided in 32 bits.
CONVNET_HD inline Quotient divide(std::int64_t a, std::int64_t b) {
  if ((static_cast<std::uint64_t>(a) | static_cast<std::uint64_t>(b)) >> 32 == 0) {
    const auto a32 = static_cast<std::uint32_t>(a), b32 = static_cast<std::uint32_t>(b);
    const std::uint32_t q = a32 / b32;
    return {q, a32 - q * b32};
  }
  return {a / b, a % b};
}

/// Maps elements (n,c,y,x) of activations to indices in memory, and back.
class View {
 public:
  View() = default;
  View(std::int64_t n_, std::int64_t c_, std::int64_t h_, std::int64_t w_, bool last_)
      : n(n_), c(c_), h(h_), w(w_), last(last_), by_c_(c), by_spatial_(h * w), by_w_(w) {}

  std::int64_t n = 0, c = 1, h = 1, w = 1;  ///< as constructed
  bool last = false;                        ///< channels last

  std::int64_t size() const { return n * c * h * w; }
  CONVNET_HD std::int64_t spatial() const { return h * w; }
  CONVNET_HD std::int64_t index(std::int64_t in, std::int64_t ic, std::int64_t s) const {
    return last ? (in * h * w + s) * c + ic : (in * c + ic) * (h * w) + s;
  }
  CONVNET_HD std::int64_t index(std::int64_t in, std::int64_t ic, std::int64_t y, std::int64_t x) const {
    return index(in, ic, y * w + x);
  }
  struct Place {
    std::int64_t n, c, s;  ///< s = y * w + x
  };
  /// Returns the place of the element at index i in memory.
  CONVNET_HD Place place(std::int64_t i) const {
    const Divisor inner = last ? by_c_ : by_spatial_, outer = last ? by_spatial_ : by_c_;
    Quotient first, second;
    if (i < Divisor::kLimit) {
      first = inner.divide(static_cast<std::uint32_t>(i));
      second = outer.divide(static_cast<std::uint32_t>(first.value));
    } else {
      first = inner.divide_any(i);
      second = outer.divide_any(first.value);
    }
    return last ? Place{second.value, first.rest, second.rest} : Place{second.value, second.rest, first.rest};
  }
  /// Returns the row (value) and the column (rest) of s = y * w + x. Maps have less than 2^31 pixels.
  CONVNET_HD Quotient row(std::int64_t s) const { return by_w_.divide(static_cast<std::uint32_t>(s)); }

 private:
  Divisor by_c_{1}, by_spatial_{1}, by_w_{1};
};

/// Returns the view of (N,C,H,W), (N,C), or any other dimensions, which are read as (N, product of the
/// others). Throws std::logic_error for a layout of another backend.
View view_of(const TensorDesc& tensor);

/// Returns the view of an activation. A plain tensor whose maps have one pixel is also channels last.
inline View channels_view(const TensorDesc& tensor) {
  View view = view_of(tensor);
  view.last = view.last || view.spatial() == 1;
  return view;
}

/// The most bytes that a thread reads or writes at once.
constexpr int kLoadBytes = 16;
/// The number of elements of the largest of some types that fit into kLoadBytes.
template <class... Types>
constexpr int kLoadLanes = kLoadBytes / static_cast<int>(std::max({sizeof(Types)...}));
constexpr int kLanes = kLoadLanes<float>;

/// Returns whether memory begins at a multiple of `bytes`. Parts of tensors may begin anywhere, but a load of
/// kLoadBytes must be aligned to its size.
inline bool is_aligned(const void* memory, std::int64_t bytes = kLoadBytes) {
  return reinterpret_cast<std::uintptr_t>(memory) % static_cast<std::uintptr_t>(bytes) == 0;
}

/// Returns the number of channels that a thread can work on at once: kLanes or 1.
inline int lanes_of(const View& view) { return view.last && view.c % kLanes == 0 ? kLanes : 1; }
/// Returns the number of consecutive elements of `type`, of which `count` lie beside each other, that a
/// thread reads at once: as many as kLoadBytes hold, kLanes, or 1.
inline int lanes_of(std::int64_t count, DataType type) {
  const int most = kLoadBytes / static_cast<int>(size_of(type));
  return count % most == 0 ? most : count % kLanes == 0 ? kLanes : 1;
}

}  // namespace convnet::cuda
