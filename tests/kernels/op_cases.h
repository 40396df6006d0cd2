// One table of operations with their inputs, for the tests of all backends. tests/kernels compares the CPU
// backend with references on the shapes listed here; tests/cuda runs every case on both backends. A test
// checks that every operation occurs.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "convnet/base/crop.h"
#include "kernels/ops.h"
#include "tests/kernels/values.h"

namespace convnet::test {

struct OpCase {
  OpDesc op;
  /// Values by argument. The list may be shorter, and entries may be empty: an argument without values holds
  /// random numbers in [-1,1), chosen by its index.
  std::vector<Values> inputs = {};
  /// The bytes of arguments whose size the operation does not give, by argument.
  std::vector<std::vector<std::byte>> raw = {};
  std::optional<std::size_t> in_place = {};  ///< the last argument is this one's memory
  double tolerance = 1e-5;                   ///< relative to the largest value of an argument
  bool bf16 = false;                         ///< the CUDA backend's precision; its activations come as bf16
};

// The cases of a family of operations (kernels/ops/).
std::vector<OpCase> product_cases();
std::vector<OpCase> pooling_cases();
std::vector<OpCase> norm_cases();
std::vector<OpCase> elementwise_cases();
std::vector<OpCase> image_cases();
std::vector<OpCase> cost_cases();
std::vector<OpCase> memory_cases();
std::vector<OpCase> update_cases();
/// The cases of all families.
std::vector<OpCase> op_cases();

/// Geometry of n images of c maps, h x w, k filters; the output side follows the ceil rule unless `floor`.
ConvGeometry conv(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w, std::int64_t k,
                  Sides filter, Sides stride = 1, Sides pad = 0, std::int64_t groups = 1, bool floor = false,
                  Sides dilation = 1);
/// The same convolution with `behind` zeros behind the image, of which no window has more than it needs.
ConvGeometry with_zeros_behind(ConvGeometry g, Sides behind);
/// Geometry with the output side as the layers compute it: ceil, so that the last window may overhang.
LocalGeometry local(const Dims& src, std::int64_t k, Sides filter, Sides stride = 1, Sides pad = 0,
                    std::int64_t groups = 1, Sides dilation = 1);
/// Geometry with the output side as the layers compute it: ceil, so that the last window may overhang.
PoolGeometry pool(PoolKind kind, const Dims& src, Sides size, Sides stride, Sides start = 0);

std::vector<ConvGeometry> conv_geometries();
/// Geometries on which relu, bias and accumulation are tested in all combinations.
std::vector<ConvGeometry> fused_conv_geometries();
std::vector<InnerProductGeometry> inner_product_geometries();
std::vector<LocalGeometry> local_geometries();
std::vector<Dims> bias_shapes();

/// Ident, and a neuron of each kind that batch norm applies.
std::vector<Neuron> applied_neurons();

/// Each in all kinds of pooling.
std::vector<PoolGeometry> pool_geometries();
std::vector<CrossMapPool> map_pools();

std::vector<CrossMapNorm> map_norms();
/// Each with and without contrast.
std::vector<WindowNorm> window_norms();
std::vector<Dims> batch_norm_shapes();

/// A neuron, the range its inputs are drawn from, and where its slope jumps.
struct NeuronCase {
  Neuron f;
  float low = -3, high = 3;
  std::vector<double> kinks = {};
};
std::vector<NeuronCase> neurons();
std::vector<Dims> elementwise_shapes();
std::vector<Dims> eltwise_shapes();
std::vector<Dims> product_shapes();
/// Inputs of Concat, its output, and the layouts that it takes as they are on the CPU, by their number of
/// channels in a block.
struct ConcatCase {
  std::vector<Dims> from;
  Dims to;
  std::vector<int> blocks = {};
};
std::vector<ConcatCase> concats();
std::vector<TakeMaps> map_takings();

std::vector<Sampling> samplings();
std::vector<Blur> blurs();
std::vector<Resize> resizes();
/// Returns cases outside of training, which need no key.
std::vector<RandomScale> random_scales();
std::vector<Dims> color_shapes();

/// Images and classes.
struct CostShape {
  std::int64_t n, c;
};
std::vector<CostShape> softmax_shapes();
std::vector<CostShape> label_cost_shapes();
/// An image with several largest outputs or labels, and the top-1 errors that it counts.
struct LabelTie {
  Values labels, probs;
  double errors;
};
std::vector<LabelTie> label_ties();
std::vector<Dims> squares_shapes();

/// A part of every image that LoadImages takes.
struct LoadSlice {
  Dims from, to;
  std::int64_t offset;
};
std::vector<LoadSlice> load_slices();
/// Places of what is seen in images that come whole: inside, across every border, outside.
std::vector<Crop> load_crops();

/// Constraints without a rule.
std::vector<Constrain> constraints();

/// A step block: the header, then `rates`.
std::vector<std::byte> step_block(std::uint64_t iteration, const std::vector<Rates>& rates = {});
/// The values as bytes.
std::vector<std::byte> doubles(const Values& values);

}  // namespace convnet::test
