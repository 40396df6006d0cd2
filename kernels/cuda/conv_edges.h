// What surrounds the library's convolution: borders that it does not know, biases that it did not add.
// Tensors are channels last.
#pragma once

#include "kernels/cuda/layout.h"
#include "kernels/cuda/runtime.h"

namespace convnet::cuda {

/// `to` = the images of `from` with `pad` rows and columns of zeros before them and the rest after.
void pad_images(Stream stream, const View& from, const float* src, const View& to, std::int64_t pad,
                float* dst);
/// The reverse: of `from` only what pad_images() copied.
void crop_images(Stream stream, const View& from, const float* src, std::int64_t pad, const View& to,
                 float* dst);
/// y = y [+ bias of the column], then max(0,y) if `relu`, of a matrix of rows of `columns`. `bias` may be
/// null.
void add_bias_relu(Stream stream, std::int64_t rows, std::int64_t columns, const float* bias, bool relu,
                   float* y);
/// Sums of the columns.
std::int64_t bias_gradient_workspace(std::int64_t rows, std::int64_t columns);
void bias_gradient(Stream stream, std::int64_t rows, std::int64_t columns, const float* diff_dst,
                   std::byte* workspace, float* diff_bias);

}  // namespace convnet::cuda
