#include "kernels/cuda/conv_edges.h"

#include "kernels/cuda/products.h"
#include "kernels/cuda/sum_rows.h"

namespace convnet::cuda {
namespace {

/// A copy of the pixels of `from` that lie `shift` rows and columns on; zeros where there are none.
template <class T>
struct ShiftedCopy {
  View from, to;
  std::int64_t shift;
  const T* src;
  T* dst;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = to.place(i);
    const Quotient pixel = divide(at.s, to.w);
    const std::int64_t y = pixel.value + shift, x = pixel.rest + shift;
    const bool inside = y >= 0 && y < from.h && x >= 0 && x < from.w;
    dst[i] = inside ? src[from.index(at.n, at.c, y, x)] : T{};
  }
};

void shifted_copy(Stream stream, DataType type, const View& from, const std::byte* src, std::int64_t shift,
                  const View& to, std::byte* dst) {
  with_stored_type(type, [&](auto stored) {
    using T = decltype(stored);
    for_each(stream, to.size(),
             ShiftedCopy<T>{from, to, shift, reinterpret_cast<const T*>(src), reinterpret_cast<T*>(dst)});
  });
}

}  // namespace

void pad_images(Stream stream, DataType type, const View& from, const std::byte* src, const View& to,
                std::int64_t pad, std::byte* dst) {
  shifted_copy(stream, type, from, src, -pad, to, dst);
}

// Pixels behind the last window are no part of `from`.
void crop_images(Stream stream, DataType type, const View& from, const std::byte* src, std::int64_t pad,
                 const View& to, std::byte* dst) {
  shifted_copy(stream, type, from, src, pad, to, dst);
}

void add_bias_relu(Stream stream, std::int64_t rows, std::int64_t columns, const float* bias, bool relu,
                   DataType type, std::byte* y) {
  finish_columns(stream, rows, columns, bias, relu, type, y);
}

void widen(Stream stream, std::int64_t count, const BFloat16* src, float* dst) {
  for_each(stream, count, [=] CONVNET_DEVICE(std::int64_t i) { dst[i] = to_float(src[i]); });
}

void narrow(Stream stream, std::int64_t count, const float* src, BFloat16* dst) {
  for_each(stream, count, [=] CONVNET_DEVICE(std::int64_t i) { dst[i] = stored_as<BFloat16>(src[i]); });
}

void bias_gradient(Stream stream, std::int64_t rows, std::int64_t columns, DataType type,
                   const std::byte* diff_dst, std::byte* workspace, float* diff_bias) {
  SumRows(rows, columns).run(stream, type, diff_dst, workspace, diff_bias);
}

}  // namespace convnet::cuda
