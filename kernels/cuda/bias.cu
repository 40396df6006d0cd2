// Biases with a number for every element of an image. Those of conv, fc and local layers are part of their
// products.
#include "kernels/cuda/launch.h"
#include "kernels/cuda/prepare.h"
#include "kernels/cuda/sum_rows.h"

namespace convnet::cuda {
namespace {

template <class T>
struct AddBiasOfElement {
  View view;
  const float* bias;
  T* dst;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = view.place(i);
    dst[i] = stored_as<T>(to_float(dst[i]) + bias[at.c * view.spatial() + at.s]);
  }
};

}  // namespace

template <>
Prepared prepare(const AddBias&, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(form, [view = view_of(form.args[1]), type = form.args[1].type](
                                              Stream stream, std::span<std::byte* const> p, std::byte*) {
    with_stored_type(type, [&](auto stored) {
      using T = decltype(stored);
      for_each(stream, view.size(), AddBiasOfElement<T>{view, as_floats(p[0]), reinterpret_cast<T*>(p[1])});
    });
  });
}

template <>
Prepared prepare(const BiasBackward& op, const OpForm& form, const Context&) {
  // The images are the rows of a matrix, whose columns lie as the elements of an image do.
  const View view = view_of(form.args[0]);
  const std::int64_t per_image = element_count({op.dims.begin() + 1, op.dims.end()});
  const bool in_order = !view.last || view.c == 1 || view.spatial() == 1;
  return std::make_shared<KernelOp>(
      form, [view, in_order, per_image, rows = SumRows(view.n, per_image), type = form.args[0].type](
                Stream stream, std::span<std::byte* const> p, std::byte* workspace) {
        float* diff_bias = as_floats(p[1]);
        Areas areas;
        float* sums = in_order ? diff_bias : as_floats(workspace + areas.add_floats(per_image));
        rows.run(stream, type, p[0], workspace + areas.bytes(), sums);
        if (in_order) return;
        for_each(stream, per_image, [=] CONVNET_DEVICE(std::int64_t i) {
          const View::Place at = view.place(i);
          diff_bias[at.c * view.spatial() + at.s] = sums[i];
        });
      });
}

}  // namespace convnet::cuda
