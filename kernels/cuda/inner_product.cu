// Fully connected layers: matrix products of plain matrices, or (sfc) one for every part.
#include "kernels/cuda/conv_edges.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/sum_rows.h"

namespace convnet::cuda {
namespace {

/// The sizes of one product, or of one for every part; the parts' columns are adjacent in memory.
struct Sizes {
  explicit Sizes(const InnerProductGeometry& g)
      : batch(g.parts > 0 ? g.parts : 1), in(g.src()[1]), out(g.dst()[1]), weights(g.out * g.in) {}
  std::int64_t batch;    ///< number of products
  std::int64_t in, out;  ///< columns of all parts together
  std::int64_t weights;  ///< elements of one part
};

}  // namespace

template <>
Prepared prepare(const InnerProductForward& op, const OpForm& form, const Context& context) {
  const InnerProductGeometry& g = op.g;
  const DataType type = form.args[0].type;
  if (g.n == 0) return prepare_empty(op, form);
  const Sizes s(g);
  Gemm gemm;
  gemm.alignment = kArgumentAlignment;
  gemm.trans_b = true;
  gemm.m = g.n, gemm.n = g.out, gemm.k = g.in;
  gemm.lda = s.in, gemm.ldb = g.in, gemm.ldc = s.out;
  gemm.batch = s.batch, gemm.a_step = g.in, gemm.b_step = s.weights, gemm.c_step = g.out;
  gemm.accumulate = op.accumulate;
  gemm.factors = gemm.result = type;
  const auto product = prepare_gemm(gemm, context);
  return std::make_shared<ProductOp>(form, product->workspace_bytes(),
                                     [=, images = g.n, has_bias = op.bias, relu = op.relu](
                                         Queue* queue, std::span<std::byte* const> p, std::byte* workspace) {
                                       const std::byte* bias = has_bias ? p[2] : nullptr;
                                       product->run(queue, p[0], p[1], p.back(), workspace);
                                       add_bias_relu(stream_of(queue), images, s.out, bias, DataType::f32,
                                                     relu, type, p.back());
                                     });
}

template <>
Prepared prepare(const InnerProductBackwardData& op, const OpForm& form, const Context& context) {
  const InnerProductGeometry& g = op.g;
  const DataType type = form.args[0].type;
  if (g.n == 0) return prepare_empty(op, form);
  const Sizes s(g);
  Gemm gemm;
  gemm.alignment = kArgumentAlignment;
  gemm.m = g.n, gemm.n = g.in, gemm.k = g.out;
  gemm.lda = s.out, gemm.ldb = g.in, gemm.ldc = s.in;
  gemm.batch = s.batch, gemm.a_step = g.out, gemm.b_step = s.weights, gemm.c_step = g.in;
  gemm.factors = gemm.result = type;
  const auto product = prepare_gemm(gemm, context);
  return std::make_shared<ProductOp>(
      form, product->workspace_bytes(),
      [product](Queue* queue, std::span<std::byte* const> p, std::byte* workspace) {
        product->run(queue, p[0], p[1], p[2], workspace);
      });
}

template <>
Prepared prepare(const InnerProductBackwardWeights& op, const OpForm& form, const Context& context) {
  const InnerProductGeometry& g = op.g;
  const DataType type = form.args[0].type;
  if (g.n == 0) return prepare_empty(op, form);
  const Sizes s(g);
  Gemm gemm;
  gemm.alignment = kArgumentAlignment;
  gemm.trans_a = true;
  gemm.m = g.out, gemm.n = g.in, gemm.k = g.n;
  gemm.lda = s.out, gemm.ldb = s.in, gemm.ldc = g.in;
  gemm.batch = s.batch, gemm.a_step = g.out, gemm.b_step = g.in, gemm.c_step = s.weights;
  gemm.factors = type;
  const auto product = prepare_gemm(gemm, context);
  const SumRows bias_sums(g.n, s.out);
  Areas areas;
  const std::int64_t product_area = areas.add(product->workspace_bytes());
  const std::int64_t sums_area = areas.add(op.bias ? sum_rows_bytes(g.n, s.out) : 0);
  return std::make_shared<ProductOp>(
      form, areas.bytes(),
      [=, bias = op.bias](Queue* queue, std::span<std::byte* const> p, std::byte* workspace) {
        product->run(queue, p[1], p[0], p[2], workspace + product_area);
        if (bias) bias_sums.run(stream_of(queue), type, p[1], workspace + sums_area, as_floats(p[3]));
      });
}

}  // namespace convnet::cuda
