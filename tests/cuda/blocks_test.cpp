// Images and filters as blocks of pixels, which the library gets instead where images have few channels.
#include "kernels/cuda/conv_edges.h"
#include "kernels/cuda/sizes.h"
#include "tests/catch.h"
#include "tests/cuda/both_backends.h"
#include "tests/kernels/op_runner.h"
#include "tests/rounding.h"

using namespace convnet;
using namespace convnet::test;
using cuda::Blocks;

namespace {

/// Runs `copy`, which fills a tensor, and returns the tensor's values in the order (N,C,H,W). Tensors lie
/// channels last, the source plain if `plain`.
template <class Copy>
Values copied(const Backend& backend, const TensorDesc& from, const Values& values, const TensorDesc& to,
              const Copy& copy) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(from.bytes()));
  backend.relay(plain_of(from), packed(values, from.type).data(), from, bytes.data());
  const auto src = backend.allocate(test_device(), from.bytes());
  backend.copy(src->data(), bytes.data(), from.bytes());
  std::vector<std::byte> result(static_cast<std::size_t>(to.bytes()), std::byte{0xFF});  // NaN
  const auto dst = backend.allocate(test_device(), to.bytes());
  backend.copy(dst->data(), result.data(), to.bytes());
  const auto queue = backend.make_queue(test_device());
  copy(cuda::stream_of(queue.get()), cuda::view_of(from), src->data(), cuda::view_of(to), dst->data());
  cuda::wait_for(*queue->mark());
  backend.copy(result.data(), dst->data(), to.bytes());
  std::vector<std::byte> plain(result.size());
  backend.relay(to, result.data(), plain_of(to), plain.data());
  return unpacked(plain, to.type);
}

Values in_blocks(const Backend& backend, const TensorDesc& from, const Values& values, const Blocks& blocks,
                 const Dims& to) {
  return copied(
      backend, from, values, cuda::channels_last(to, from.type),
      [&](cuda::Stream stream, const cuda::View& images, const std::byte* src, const cuda::View& view,
          std::byte* dst) { cuda::to_blocks(stream, from.type, images, src, blocks, view, dst); });
}

Values out_of_blocks(const Backend& backend, const TensorDesc& from, const Values& values,
                     const Blocks& blocks, const TensorDesc& to) {
  return copied(
      backend, from, values, to,
      [&](cuda::Stream stream, const cuda::View& view, const std::byte* src, const cuda::View& images,
          std::byte* dst) { cuda::from_blocks(stream, from.type, view, src, blocks, images, to.type, dst); });
}

}  // namespace

TEST_CASE("a convolution over blocks of pixels is the convolution over pixels", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::fp32);
  // Borders of every kind, windows that hang over and that leave pixels, sides that filters do not fill.
  for (const ConvGeometry& g : {conv(2, 3, 20, 23, 5, 11, 4, 2), conv(2, 3, 14, 15, 4, 7, 2, 3),
                                conv(2, 1, 9, 8, 3, 5, 1, 0), conv(1, 3, 8, 8, 4, 3, 1, 1),
                                conv(2, 2, 11, 10, 3, 2, 3, 0, 1, true), conv(2, 4, 9, 9, 3, 3, 3, 1)}) {
    for (const std::int64_t channels : {1, 4, 8}) {
      const ConvGeometry seen = cuda::over_blocks(g, g.stride.x, channels);
      INFO(to_string(g.src()) << " * " << to_string(g.weights()) << " stride " << to_string(g.stride)
                              << " pad " << to_string(g.pad) << ", as " << to_string(seen.src()));
      CHECK(seen.c % channels == 0);
      const Values src = test_values(g.src(), 1), weights = test_values(g.weights(), 2),
                   diff = test_values(g.dst(), 3);
      const TensorDesc src_tensor = cuda::channels_last(g.src());
      const Blocks blocks{g.stride.x, g.pad}, filters{g.stride.x, 0};
      const Values blocked = in_blocks(*backend, src_tensor, src, blocks, seen.src());
      // It is the same if the images lie plain.
      CHECK(in_blocks(*backend, plain_of(src_tensor), src, blocks, seen.src()) == blocked);
      const Values blocked_weights =
          in_blocks(*backend, cuda::channels_last(g.weights()), weights, filters, seen.weights());
      const auto error = [&](const Values& actual, const Values& expected, std::int64_t terms) {
        return relative_error(actual, expected) / rounding_of(static_cast<double>(terms));
      };
      const std::int64_t window = g.c * g.filter.area();
      CHECK(error(run_plain(ConvForward{seen, false}, {blocked, blocked_weights, {}}).back(),
                  run_plain(ConvForward{g, false}, {src, weights, {}}).back(), window) <= 1);
      const Values gradient = run_plain(ConvBackwardWeights{seen, false}, {blocked, diff, {}}).back();
      const Values expected = run_plain(ConvBackwardWeights{g, false}, {src, diff, {}}).back();
      CHECK(error(out_of_blocks(*backend, cuda::channels_last(seen.weights()), gradient, filters,
                                cuda::channels_last(g.weights())),
                  expected, g.n * g.oh * g.ow) <= 1);
      // The gradient of the weights may be rounded before.
      const Values rounded = unpacked(packed(gradient, DataType::bf16), DataType::bf16);
      CHECK(out_of_blocks(*backend, cuda::channels_last(seen.weights(), DataType::bf16), rounded, filters,
                          cuda::channels_last(g.weights())) ==
            out_of_blocks(*backend, cuda::channels_last(seen.weights()), rounded, filters,
                          cuda::channels_last(g.weights())));
    }
  }
}

TEST_CASE("blocks of one pixel are images with borders, which can be cut off", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::fp32);
  for (const ConvGeometry& g :
       {conv(2, 16, 7, 6, 8, 3, 2, 1), conv(2, 6, 8, 8, 4, 3, 2, 0, 2), conv(1, 3, 9, 9, 2, 2, 4, 1, 1, true),
        conv(2, 6, 7, 9, 4, {1, 5}, 1, {0, 2}), conv(2, 3, 9, 9, 4, 3, {2, 1}, {3, 1}, 1, false, {1, 3})}) {
    const ConvGeometry seen = cuda::with_padding(g);
    INFO(to_string(g.src()) << " as " << to_string(seen.src()));
    const Blocks blocks{1, g.pad};
    for (const DataType type : {DataType::f32, DataType::bf16}) {
      const TensorDesc tensor = cuda::channels_last(g.src(), type);
      const Values src = unpacked(packed(test_values(g.src(), 1), type), type);
      const Values padded = in_blocks(*backend, tensor, src, blocks, seen.src());
      const auto at = [&](const ConvGeometry& of, std::int64_t n, std::int64_t c, std::int64_t y,
                          std::int64_t x) {
        return static_cast<std::size_t>(((n * of.c + c) * of.h + y) * of.w + x);
      };
      Values cut(src.size(), 0);
      double borders = 0;
      for (std::int64_t n = 0; n < g.n; ++n)
        for (std::int64_t c = 0; c < g.c; ++c)
          for (std::int64_t y = 0; y < seen.h; ++y)
            for (std::int64_t x = 0; x < seen.w; ++x) {
              const std::int64_t iy = y - g.pad.y, ix = x - g.pad.x;
              const double value = padded[at(seen, n, c, y, x)];
              if (iy < 0 || iy >= g.h || ix < 0 || ix >= g.w)
                borders += std::abs(value);
              else
                cut[at(g, n, c, iy, ix)] = value == src[at(g, n, c, iy, ix)] ? value : std::nan("");
            }
      CHECK(borders == 0);
      CHECK(out_of_blocks(*backend, cuda::channels_last(seen.src(), type), padded, blocks, tensor) == cut);
    }
  }
}
