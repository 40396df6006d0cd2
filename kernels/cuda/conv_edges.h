// Work around the library's convolution: borders that it does not know, biases that it did not add.
// Tensors are channels last, of type `type` (f32 or bf16).
#pragma once

#include "kernels/bf16.h"
#include "kernels/cuda/layout.h"
#include "kernels/cuda/runtime.h"

namespace convnet::cuda {

/// `to` = the images of `from` with `pad` rows and columns of zeros before them and the rest after.
void pad_images(Stream stream, DataType type, const View& from, const std::byte* src, const View& to,
                std::int64_t pad, std::byte* dst);
/// The reverse: of `from` only what pad_images() copied.
void crop_images(Stream stream, DataType type, const View& from, const std::byte* src, std::int64_t pad,
                 const View& to, std::byte* dst);
/// y = y [+ bias of the column], then max(0,y) if `relu`, of a matrix of rows of `columns`. `bias` may be
/// null.
void add_bias_relu(Stream stream, std::int64_t rows, std::int64_t columns, const float* bias, bool relu,
                   DataType type, std::byte* y);
/// dst = src, of as many numbers.
void widen(Stream stream, std::int64_t count, const BFloat16* src, float* dst);
void narrow(Stream stream, std::int64_t count, const float* src, BFloat16* dst);
/// Sums of the columns.
std::int64_t bias_gradient_workspace(std::int64_t rows, std::int64_t columns);
void bias_gradient(Stream stream, std::int64_t rows, std::int64_t columns, DataType type,
                   const std::byte* diff_dst, std::byte* workspace, float* diff_bias);

}  // namespace convnet::cuda
