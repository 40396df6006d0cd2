// Biases with a number for every element of an image. Those of conv, fc and local layers are part of their
// products.
#include "kernels/cuda/launch.h"
#include "kernels/cuda/prepare.h"

namespace convnet::cuda {

template <>
Prepared prepare(const AddBias&, const OpForm& form, const Context&) {
  const View view = view_of(form.args[1]);
  return std::make_shared<KernelOp>(form, [view](Stream stream, std::span<std::byte* const> p, std::byte*) {
    const float* bias = as_floats(p[0]);
    float* dst = as_floats(p[1]);
    for_each(stream, view.size(), [=] CONVNET_DEVICE(std::int64_t i) {
      const View::Place at = view.place(i);
      dst[i] += bias[at.c * view.spatial() + at.s];
    });
  });
}

template <>
Prepared prepare(const BiasBackward& op, const OpForm& form, const Context&) {
  const View view = view_of(form.args[0]);
  const std::int64_t per_image = element_count({op.dims.begin() + 1, op.dims.end()});
  return std::make_shared<KernelOp>(
      form, [view, per_image](Stream stream, std::span<std::byte* const> p, std::byte*) {
        const float* diff_dst = as_floats(p[0]);
        float* diff_bias = as_floats(p[1]);
        // Neighbouring threads sum neighbouring elements of the images.
        for_each(stream, per_image, [=] CONVNET_DEVICE(std::int64_t i) {
          float sum = 0;
          for (std::int64_t n = 0; n < view.n; ++n) sum += diff_dst[n * per_image + i];
          const View::Place at = view.place(i);
          diff_bias[at.c * view.spatial() + at.s] = sum;
        });
      });
}

}  // namespace convnet::cuda
