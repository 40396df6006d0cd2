// Kernels before and after the libraries' convolutions and matrix products: they convert images and filters
// to the forms that cuDNN's engines want, and add biases. Tensors are channels last, of type `type` (f32 or
// bf16).
#pragma once

#include "kernels/bf16.h"
#include "kernels/cuda/layout.h"
#include "kernels/cuda/runtime.h"
#include "kernels/ops/windows.h"

namespace convnet::cuda {

/// Images as blocks: pixel (y, x) of the blocks holds side x side pixels of the images, from (y * side -
/// pad.y, x * side - pad.x) on, row by row, with the channels of a pixel beside each other ("space to
/// depth"). Pixels outside of the images are zeros, and so are channels that are left over. A side of 1 only
/// adds borders.
struct Blocks {
  std::int64_t side = 1;
  Sides pad;
};
/// Copies the images `from` into the blocks `to`.
void to_blocks(Stream stream, DataType type, const View& from, const std::byte* src, const Blocks& blocks,
               const View& to, std::byte* dst);
/// Does the reverse: copies pixels from the blocks `from` to the images `to`. Pixels that no block holds
/// become zero.
void from_blocks(Stream stream, DataType from_type, const View& from, const std::byte* src,
                 const Blocks& blocks, const View& to, DataType to_type, std::byte* dst);
/// Adds `bias`, a number of `bias_type` for every column, to the matrix y (rows, columns) unless it is null;
/// then applies max(0,y) if `relu`, keeping NaN. The library's matrix products could do both, but their relu
/// loses NaN, and they can neither add f32 to bf16 nor a different bias to each matrix of a batch.
void add_bias_relu(Stream stream, std::int64_t rows, std::int64_t columns, const std::byte* bias,
                   DataType bias_type, bool relu, DataType type, std::byte* y);
/// Converts `count` numbers from f32 to `type`: sums that no library has rounded.
void round_sums(Stream stream, std::int64_t count, std::byte* sums, DataType type, std::byte* dst);
/// diff_bias = the sums of the columns of diff_dst (rows, columns). `workspace` has sum_rows_bytes().
void bias_gradient(Stream stream, std::int64_t rows, std::int64_t columns, DataType type,
                   const std::byte* diff_dst, std::byte* workspace, float* diff_bias);

}  // namespace convnet::cuda
