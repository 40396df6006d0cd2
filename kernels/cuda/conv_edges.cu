#include "kernels/cuda/conv_edges.h"

#include "kernels/cuda/products.h"
#include "kernels/cuda/sum_rows.h"

namespace convnet::cuda {

void pad_images(Stream stream, const View& from, const float* src, const View& to, std::int64_t pad,
                float* dst) {
  const View f = from, t = to;
  for_each(stream, t.size(), [=] CONVNET_DEVICE(std::int64_t i) {
    const View::Place at = t.place(i);
    const Quotient pixel = divide(at.s, t.w);
    const std::int64_t y = pixel.value - pad, x = pixel.rest - pad;
    const bool inside = y >= 0 && y < f.h && x >= 0 && x < f.w;
    dst[i] = inside ? src[f.index(at.n, at.c, y, x)] : 0.0F;
  });
}

void crop_images(Stream stream, const View& from, const float* src, std::int64_t pad, const View& to,
                 float* dst) {
  const View f = from, t = to;
  for_each(stream, t.size(), [=] CONVNET_DEVICE(std::int64_t i) {
    const View::Place at = t.place(i);
    const Quotient pixel = divide(at.s, t.w);
    const std::int64_t y = pixel.value + pad, x = pixel.rest + pad;
    // Pixels behind the last window are no part of `from`.
    dst[i] = y < f.h && x < f.w ? src[f.index(at.n, at.c, y, x)] : 0.0F;
  });
}

void add_bias_relu(Stream stream, std::int64_t rows, std::int64_t columns, const float* bias, bool relu,
                   float* y) {
  finish_columns(stream, rows, columns, bias, relu, y);
}

std::int64_t bias_gradient_workspace(std::int64_t rows, std::int64_t columns) {
  return SumRows(rows, columns).workspace_bytes();
}

void bias_gradient(Stream stream, std::int64_t rows, std::int64_t columns, const float* diff_dst,
                   std::byte* workspace, float* diff_bias) {
  SumRows(rows, columns).run(stream, diff_dst, workspace, diff_bias);
}

}  // namespace convnet::cuda
