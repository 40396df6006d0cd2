#include "convnet/onnx_import/activation.h"

#include <fmt/format.h>

#include <algorithm>

#include "convnet/onnx_import/cannot_import.h"

namespace convnet {

std::int64_t size_of(const AxisDigits& axis) {
  std::int64_t size = 1;
  for (const Digit& digit : axis) size *= digit.size;
  return size;
}

AxisDigits joined(const AxisDigits& digits) {
  AxisDigits result;
  for (const Digit& digit : digits) {
    if (digit.size == 1) continue;
    if (!result.empty() && result.back().stride == digit.size * digit.stride)
      result.back() = {result.back().size * digit.size, digit.stride};
    else
      result.push_back(digit);
  }
  return result;
}

AxisDigits joined(const std::vector<AxisDigits>& axes) {
  AxisDigits all;
  for (const AxisDigits& axis : axes) all.insert(all.end(), axis.begin(), axis.end());
  return joined(all);
}

Dims Activation::dims() const {
  Dims result = {images};
  for (const AxisDigits& axis : axes) result.push_back(size_of(axis));
  return result;
}

std::int64_t Activation::size() const {
  std::int64_t count = 1;
  for (const AxisDigits& axis : axes) count *= size_of(axis);
  return count;
}

bool Activation::in_order() const {
  const AxisDigits all = joined(axes);
  return all.empty() || (all.size() == 1 && all[0].stride == 1);
}

Activation stored_activation(SketchId layer, const FeatureShape& shape, std::int64_t images) {
  Activation a{layer, images, {}};
  a.axes.push_back(joined(AxisDigits{{shape.c, shape.h * shape.w}}));
  if (!shape.image) return a;
  a.axes.push_back(joined(AxisDigits{{shape.h, shape.w}}));
  a.axes.push_back(joined(AxisDigits{{shape.w, 1}}));
  return a;
}

Activation transposed(const Activation& a, const std::vector<std::int64_t>& perm) {
  const auto count = static_cast<std::int64_t>(a.axes.size()) + 1;
  std::vector<std::int64_t> sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  bool right = std::ssize(perm) == count;
  for (std::size_t i = 0; right && i < sorted.size(); ++i) right = sorted[i] == static_cast<std::int64_t>(i);
  if (!right) throw CannotImport("perm is no order of its axes");
  if (perm[0] != 0) throw CannotImport("it moves the axis of the images");
  Activation result{a.layer, a.images, {}};
  for (std::size_t i = 1; i < perm.size(); ++i)
    result.axes.push_back(a.axes[static_cast<std::size_t>(perm[i] - 1)]);
  return result;
}

Activation reshaped(const Activation& a, const Dims& dims) {
  AxisDigits left = joined(a.axes);
  std::reverse(left.begin(), left.end());  // the next digit is at the end
  Activation result{a.layer, a.images, {}};
  for (std::size_t i = 1; i < dims.size(); ++i) {
    AxisDigits axis;
    std::int64_t needed = dims[i];
    while (needed > 1) {
      if (left.empty()) throw CannotImport("it changes the number of elements");
      Digit& digit = left.back();
      const std::int64_t taken = std::min(digit.size, needed);
      if (digit.size % taken != 0 || needed % taken != 0)
        throw CannotImport("its new axes cut the old ones, " + to_string(a.dims()) + " to " +
                           to_string(dims));
      axis.push_back({taken, digit.stride * (digit.size / taken)});
      digit.size /= taken;
      if (digit.size == 1) left.pop_back();
      needed /= taken;
    }
    result.axes.push_back(joined(axis));
  }
  if (!left.empty()) throw CannotImport("it changes the number of elements");
  return result;
}

std::vector<std::int64_t> places(const std::vector<AxisDigits>& axes) {
  std::vector<std::int64_t> result = {0};
  for (const AxisDigits& axis : axes) {
    for (const Digit& digit : axis) {
      std::vector<std::int64_t> longer;
      longer.reserve(result.size() * static_cast<std::size_t>(digit.size));
      for (const std::int64_t first : result)
        for (std::int64_t i = 0; i < digit.size; ++i) longer.push_back(first + i * digit.stride);
      result = std::move(longer);
    }
  }
  return result;
}

void check_maps(std::int64_t count) {
  constexpr std::int64_t kMost = 1 << 20;
  if (count > kMost) throw CannotImport(fmt::format("it chooses from {} maps; {} are allowed", count, kMost));
}

std::vector<std::int64_t> maps_along(const AxisDigits& axis, std::int64_t pixels) {
  check_maps(size_of(axis));
  std::vector<std::int64_t> maps = places({axis});
  for (std::int64_t& map : maps) map /= pixels;
  return maps;
}

bool counts_maps(const AxisDigits& axis, const FeatureShape& shape) {
  const std::int64_t pixels = shape.h * shape.w;
  return std::ranges::all_of(axis, [&](const Digit& digit) { return digit.stride % pixels == 0; });
}

}  // namespace convnet
