// Element-wise kernels for tensors of any layout.
#pragma once

#include <algorithm>

#include "kernels/cuda/activations.h"

namespace convnet::cuda {

/// A kernel body over vectors of `Lanes` elements: body.at<Lanes>(i) works on vector i.
template <int Lanes, class Body>
struct Flat {
  Body body;
  std::int64_t count;    ///< number of elements
  std::int64_t vectors;  ///< number of whole vectors among the first elements; the others are done singly

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    if (i < vectors) return body.template at<Lanes>(i);
    const std::int64_t end = (i + 1) * Lanes < count ? (i + 1) * Lanes : count;
    CONVNET_UNROLL_BY(1)
    for (std::int64_t k = i * Lanes; k < end; ++k) body.template at<1>(k);
  }
};

/// Returns whether vectors can be read from all of the memory.
inline bool all_aligned(std::span<std::byte* const> args) {
  return std::all_of(args.begin(), args.end(), [](const std::byte* arg) { return is_aligned(arg); });
}

/// Runs the body over `count` elements of the tensors at `args`. If one of them is not aligned to vectors,
/// all elements are done singly.
template <int Lanes, class Body>
void for_elements(Stream stream, std::int64_t count, std::span<std::byte* const> args, const Body& body) {
  for_each(stream, (count + Lanes - 1) / Lanes,
           Flat<Lanes, Body>{body, count, all_aligned(args) ? count / Lanes : 0});
}

/// dst = f(src)
template <class F, class From, class To>
struct FlatUnary {
  F f;
  std::byte *src, *dst;
  template <int Lanes>
  CONVNET_DEVICE void at(std::int64_t i) const {
    Vector<float, Lanes> v = Numbers<From, Lanes>(src)[i];
    CONVNET_UNROLL
    for (int lane = 0; lane < Lanes; ++lane) v.lane[lane] = f(v.lane[lane]);
    Numbers<To, Lanes>(dst).set(i, v);
  }
};
/// args: src, dst. They may be the same memory if the types are equal.
template <class From, class To, class F>
void flat_unary(Stream stream, std::int64_t count, std::span<std::byte* const> args, const F& f) {
  for_elements<kLoadLanes<From, To>>(stream, count, args, FlatUnary<F, From, To>{f, args[0], args[1]});
}

/// dst = f(a, b), where dst may be a or b if the types are equal.
template <class F, class A, class B, class To>
struct FlatBinary {
  F f;
  std::byte *a, *b, *dst;
  template <int Lanes>
  CONVNET_DEVICE void at(std::int64_t i) const {
    const Vector<float, Lanes> x = Numbers<A, Lanes>(a)[i];
    Vector<float, Lanes> y = Numbers<B, Lanes>(b)[i];
    CONVNET_UNROLL
    for (int lane = 0; lane < Lanes; ++lane) y.lane[lane] = f(x.lane[lane], y.lane[lane]);
    Numbers<To, Lanes>(dst).set(i, y);
  }
};
/// args: a, b, and dst, which by default is b.
template <class A, class B = A, class To = B, class F>
void flat_binary(Stream stream, std::int64_t count, std::span<std::byte* const> args, const F& f) {
  for_elements<kLoadLanes<A, B, To>>(stream, count, args,
                                     FlatBinary<F, A, B, To>{f, args[0], args[1], args.back()});
}

}  // namespace convnet::cuda
