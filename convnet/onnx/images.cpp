// Images of the data set, and operations on pixels.
#include "convnet/onnx/operators.h"
#include "kernels/image_math.h"

namespace convnet {
namespace {

/// The interpolation along a side as a matrix (outputs, side).
std::vector<float> bilinear_matrix(std::int64_t side, std::int64_t outputs, double scale) {
  std::vector<float> matrix(static_cast<std::size_t>(outputs * side), 0.0F);
  for (std::int64_t i = 0; i < outputs; ++i) {
    const BilinearTap tap = bilinear_tap(i, side, outputs, scale);
    matrix[static_cast<std::size_t>(i * side + tap.first)] += 1 - tap.weight;
    matrix[static_cast<std::size_t>(i * side + tap.second)] += tap.weight;
  }
  return matrix;
}

}  // namespace

/// The mean is subtracted from the images as they come, before slices are taken of them.
std::string add_operators(OnnxBuilder& b, const LoadImages& op, const OnnxArguments& args) {
  const std::int64_t all = element_count(args::one_image(op.from));
  const std::int64_t taken = element_count(args::one_image(op.dims));
  if (taken == all) return args[0];
  return b.sliced(b.reshaped(args[0], {all}), {{1, op.offset, op.offset + taken}});
}

std::string add_operators(OnnxBuilder& b, const SampleForward& op, const OnnxArguments& args) {
  const auto range = [](std::int64_t axis, std::int64_t side, std::int64_t start, std::int64_t step,
                        std::int64_t outputs) {
    const std::int64_t end = start + step * (outputs - 1) + (step > 0 ? 1 : -1);
    // -1 would be the last pixel, not the one before the first.
    return OnnxBuilder::Range{axis, start, end < 0 ? -side - 1 : end, step};
  };
  const Sampling& p = op.p;
  return b.sliced(args[0],
                  {range(2, p.h, p.start_y, p.step_y, p.oh), range(3, p.w, p.start_x, p.step_x, p.ow)});
}

std::string add_operators(OnnxBuilder& b, const Blur& op, const OnnxArguments& args) {
  using Ints = std::vector<std::int64_t>;
  const double sum = gaussian_sum(op.size, op.stdev);
  std::vector<float> filters;
  const std::int64_t maps = op.dims[1], radius = op.size / 2;
  for (std::int64_t map = 0; map < maps; ++map)
    for (std::int64_t y = -radius; y <= radius; ++y)
      for (std::int64_t x = -radius; x <= radius; ++x)
        filters.push_back(static_cast<float>(gaussian(y, op.stdev) / sum * gaussian(x, op.stdev) / sum));
  return b.add("Conv", {args[0], b.numbers("filters", {maps, 1, op.size, op.size}, std::move(filters))},
               {{"kernel_shape", Ints{op.size, op.size}},
                {"pads", Ints{radius, radius, radius, radius}},
                {"group", maps}});
}

/// Multiplies every map (H,W) by matrices from the left and from the right.
std::string add_operators(OnnxBuilder& b, const Resize& op, const OnnxArguments& args) {
  const auto scale = static_cast<double>(op.scale);
  const std::string rows = b.numbers("rows", {op.oh, op.h}, bilinear_matrix(op.h, op.oh, scale));
  const std::string columns =
      b.add("Transpose", {b.numbers("columns", {op.ow, op.w}, bilinear_matrix(op.w, op.ow, scale))});
  return b.add("MatMul", {b.add("MatMul", {rows, args[0]}), columns});
}

std::string add_operators(OnnxBuilder& b, const ColorTransform& op, const OnnxArguments& args) {
  if (op.to == ColorSpace::lab) throw NotInOnnx("CIE L*a*b*");
  // Linear: the colours of pure red, green and blue are the columns of a matrix.
  const Color columns[3] = {rgb_to_yuv(1, 0, 0), rgb_to_yuv(0, 1, 0), rgb_to_yuv(0, 0, 1)};
  std::vector<float> filters;
  for (std::size_t row = 0; row < 3; ++row)
    for (const Color& column : columns) filters.push_back(column.value[row]);
  return b.add("Conv", {args[0], b.numbers("colours", {3, 3, 1, 1}, std::move(filters))},
               {{"kernel_shape", std::vector<std::int64_t>{1, 1}}});
}

}  // namespace convnet
