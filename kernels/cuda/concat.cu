// Concatenation, its inverse, and other selections of maps.
#include <optional>
#include <stdexcept>

#include "kernels/cuda/activations.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/prepare.h"

namespace convnet::cuda {
namespace {

std::int64_t features(const Dims& dims) { return element_count({dims.begin() + 1, dims.end()}); }

/// The position of a part of the features in a larger tensor. Both may be in any layout: features are
/// counted in (C,H,W) order.
struct PlacedPart {
  View part, whole;
  std::int64_t offset;  ///< the whole's feature that is the part's first

  /// Returns the position in the whole tensor of the part's element at `i` in memory.
  CONVNET_HD std::int64_t in_whole(std::int64_t i) const {
    const View::Place at = part.place(i);
    const Quotient to = divide(offset + at.c * part.spatial() + at.s, whole.spatial());
    return whole.index(at.n, to.value, to.rest);
  }
};

/// Copies a part to its place in the whole tensor, or from there if `Out`: a thread copies Lanes elements.
template <class T, int Lanes, bool Out>
struct CopyPart {
  PlacedPart part;  ///< elements are vectors
  const Vector<T, Lanes>* src;
  Vector<T, Lanes>* dst;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t in_whole = part.in_whole(i);
    if constexpr (Out)
      dst[i] = src[in_whole];
    else
      dst[in_whole] = src[i];
  }
};

/// Returns the part in vectors of `lanes` elements, if these lie beside each other in both tensors.
std::optional<PlacedPart> in_vectors(const PlacedPart& p, std::int64_t lanes) {
  const auto divides = [&](std::int64_t count) { return count % lanes == 0; };
  const auto maps = [&](const View& view) { return View(view.n, view.c / lanes, view.h, view.w, true); };
  const std::int64_t pixels = p.part.spatial();
  if (p.part.last && p.whole.last && pixels == p.whole.spatial() && divides(p.part.c) && divides(p.whole.c) &&
      p.offset % (lanes * pixels) == 0)
    return PlacedPart{maps(p.part), maps(p.whole), p.offset / lanes};
  // The features of an image lie in order.
  const auto in_order = [](const View& view) { return !view.last || view.spatial() == 1; };
  const auto flat = [&](const View& view) {
    return View(view.n, view.c * view.spatial() / lanes, 1, 1, true);
  };
  if (in_order(p.part) && in_order(p.whole) && divides(p.part.c * pixels) &&
      divides(p.whole.c * p.whole.spatial()) && divides(p.offset))
    return PlacedPart{flat(p.part), flat(p.whole), p.offset / lanes};
  return std::nullopt;
}

template <bool Out>
void copy_part(Stream stream, DataType type, const PlacedPart& part, const std::byte* src, std::byte* dst) {
  with_stored_type(type, [&](auto stored) {
    using T = decltype(stored);
    constexpr int kTogether = kLoadLanes<T>;
    if (const auto vectors = in_vectors(part, kTogether))
      for_each(stream, vectors->part.size(),
               CopyPart<T, kTogether, Out>{*vectors, reinterpret_cast<const Vector<T, kTogether>*>(src),
                                           as_vectors<T, kTogether>(dst)});
    else
      for_each(stream, part.part.size(),
               CopyPart<T, 1, Out>{part, reinterpret_cast<const Vector<T, 1>*>(src), as_vectors<T, 1>(dst)});
  });
}

/// Copies an element of the result of TakeMaps, or sets it to 0.
template <class T>
struct TakeEachMap {
  MapOrder order;
  View from, to;
  const T* src;
  T* dst;

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = to.place(i);
    const std::int64_t map = order.source(at.c);
    dst[i] = map < 0 ? T{} : src[from.index(at.n, map, at.s)];
  }
};

}  // namespace

template <>
Prepared prepare(const Concat& op, const OpForm& form, const Context&) {
  const View whole = view_of(form.args.back());
  std::vector<PlacedPart> parts;
  std::int64_t offset = 0;
  for (std::size_t k = 0; k < op.from.size(); ++k) {
    parts.push_back({view_of(form.args[k]), whole, offset});
    offset += features(op.from[k]);
  }
  if (offset != features(op.to)) throw std::logic_error("concat: the inputs do not fill " + to_string(op.to));
  return std::make_shared<KernelOp>(form, [parts, type = form.args.back().type](
                                              Stream stream, std::span<std::byte* const> args, std::byte*) {
    for (std::size_t k = 0; k < parts.size(); ++k)
      copy_part<false>(stream, type, parts[k], args[k], args.back());
  });
}

template <>
Prepared prepare(const Split& op, const OpForm& form, const Context&) {
  const View whole = view_of(form.args[0]);
  std::vector<PlacedPart> parts;
  for (std::size_t k = 0; k < op.to.size(); ++k) {
    const auto& [dims, offset] = op.to[k];
    if (offset < 0 || offset + features(dims) > features(op.from))
      throw std::logic_error("split: " + to_string(dims) + " does not fit into " + to_string(op.from));
    parts.push_back({view_of(form.args[k + 1]), whole, offset});
  }
  return std::make_shared<KernelOp>(
      form, [parts, type = form.args[0].type](Stream stream, std::span<std::byte* const> args, std::byte*) {
        for (std::size_t k = 0; k < parts.size(); ++k)
          copy_part<true>(stream, type, parts[k], args[0], args[k + 1]);
      });
}

template <>
Prepared prepare(const TakeMaps& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [order = op.order(), from = view_of(form.args[0]), to = view_of(form.args[1]),
             type = form.args[0].type](Stream stream, std::span<std::byte* const> args, std::byte*) {
        with_stored_type(type, [&](auto stored) {
          using T = decltype(stored);
          for_each(stream, to.size(),
                   TakeEachMap<T>{order, from, to, reinterpret_cast<const T*>(args[0]),
                                  reinterpret_cast<T*>(args[1])});
        });
      });
}

}  // namespace convnet::cuda
