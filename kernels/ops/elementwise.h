// Element-wise operations on one or several inputs, and operations that move elements.
#pragma once

#include <algorithm>
#include <stdexcept>

#include "convnet/base/host_device.h"
#include "kernels/ops/argument.h"
#include "kernels/ops/neuron.h"

namespace convnet {

/// y = f(x) for every element. src and dst may be the same memory.
struct NeuronForward {
  Neuron f;
  Dims dims;

  std::string name() const { return "neuron.forward"; }
  std::vector<Argument> arguments() const { return args::src_to_dst(dims, dims); }
  std::vector<std::int64_t> settings() const { return {static_cast<std::int64_t>(f.kind)}; }
};
/// dx = dy * f'(x), computed from y if neuron_uses_output(), else from x. diff_src may be the memory of
/// diff_dst.
struct NeuronBackward {
  Neuron f;
  Dims dims;

  std::string name() const { return "neuron.backward"; }
  std::vector<Argument> arguments() const {
    return {args::read(neuron_uses_output(f.kind) ? "dst" : "src", dims), args::read("diff_dst", dims),
            args::write("diff_src", dims)};
  }
  std::vector<std::int64_t> settings() const { return {static_cast<std::int64_t>(f.kind)}; }
};

/// The part of an image that a mask keeps or drops as a whole.
enum class DropUnit {
  value,
  map,   ///< Tompson et al., arXiv:1411.4280; a value of a vector is a map
  image  ///< Huang et al., "Deep networks with stochastic depth", arXiv:1603.09382
};

/// dst = src * mask * scale, where mask is 1 with probability `keep`, else 0. The mask of a value depends
/// only on (key, iteration, image, index), see philox.h. The index is that of the value, that of its map, or
/// 0, as `unit` says. So backward runs the same operation on the gradient. src and dst may be the same
/// memory.
struct Dropout {
  Dims dims;
  float keep = 0.5F, scale = 1.0F;
  std::uint64_t key = 0;           ///< hash of the seed and the layer's name
  std::int64_t first_image = 0;    ///< index within the minibatch of this tensor's first image
  std::int64_t first_element = 0;  ///< canonical index of an image's first element in the whole layer
  DropUnit unit = DropUnit::value;

  std::string name() const { return "dropout"; }
  std::vector<Argument> arguments() const {
    return {args::read("src", dims), args::write("dst", dims), args::step()};
  }
  std::vector<std::int64_t> settings() const { return {static_cast<std::int64_t>(unit)}; }
};

/// dst = src * factor. src and dst may be the same memory.
struct Scale {
  Dims dims;
  float factor = 1;

  std::string name() const { return "scale"; }
  std::vector<Argument> arguments() const { return args::src_to_dst(dims, dims); }
};

/// y = max(0, x + noise), noise ~ N(0, 1/(1+exp(-x))), with random numbers keyed as for Dropout. It is neuron
/// nrelu in training; in tests nrelu is NeuronForward, without noise. Its gradient is that of relu. src and
/// dst may be the same memory.
struct NoisyRelu {
  Dims dims;
  std::uint64_t key = 0;
  std::int64_t first_image = 0, first_element = 0;

  std::string name() const { return "nrelu.forward"; }
  std::vector<Argument> arguments() const {
    return {args::read("src", dims), args::write("dst", dims), args::step()};
  }
};

namespace args {

/// Returns the arguments src_0, src_1, ...
inline std::vector<Argument> sources(std::size_t count, const Dims& dims) {
  std::vector<Argument> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(read("src_" + std::to_string(i), dims));
  return all;
}

}  // namespace args

/// dst = sum over k of coeffs[k] * src_k.
struct EltwiseSum {
  Dims dims;
  std::vector<float> coeffs;  ///< a factor for each input

  std::string name() const { return "eltsum"; }
  std::vector<Argument> arguments() const {
    std::vector<Argument> all = args::sources(coeffs.size(), dims);
    all.push_back(args::write("dst", dims));
    return all;
  }
};
/// dst = max over k of src_k.
struct EltwiseMax {
  Dims dims;
  std::int64_t inputs = 2;

  std::string name() const { return "eltmax.forward"; }
  std::vector<Argument> arguments() const {
    std::vector<Argument> all = args::sources(static_cast<std::size_t>(inputs), dims);
    all.push_back(args::write("dst", dims));
    return all;
  }
};
/// diff_src = diff_dst where input `index` is the first maximum, else 0.
struct EltwiseMaxBackward {
  Dims dims;
  std::int64_t inputs = 2;
  std::int64_t index = 0;

  std::string name() const { return "eltmax.backward"; }
  std::vector<Argument> arguments() const {
    std::vector<Argument> all = args::sources(static_cast<std::size_t>(inputs), dims);
    all.push_back(args::read("diff_dst", dims));
    all.push_back(args::write("diff_src", dims));
    return all;
  }
};

/// dst = a * b. If b is `by_map`, it has a factor for each map of each image.
struct EltwiseProduct {
  Dims dims;
  bool by_map = false;

  std::string name() const { return by_map ? "eltmul.maps" : "eltmul"; }
  std::vector<Argument> arguments() const {
    return {args::read("a", dims), args::read("b", by_map ? Dims{dims.at(0), dims.at(1)} : dims),
            args::write("dst", dims)};
  }
};
/// sums = for each map of each image, the sum of a * b over its pixels.
struct MapProductSums {
  Dims dims;

  std::string name() const { return "eltmul.sums"; }
  std::vector<Argument> arguments() const {
    return {args::read("a", dims), args::read("b", dims), args::write("sums", {dims.at(0), dims.at(1)})};
  }
};

/// Concatenates the features of all inputs for each image, in (C,H,W) order.
struct Concat {
  std::vector<Dims> from;
  Dims to;

  std::string name() const { return "concat"; }
  std::vector<Argument> arguments() const {
    std::vector<Argument> all;
    for (const Dims& dims : from) all.push_back(args::read("src", dims));
    all.push_back(args::write("dst", to));
    return all;
  }
};
/// Each dst = the features [offset, offset + size of dst) of each image of src, in (C,H,W) order.
struct Split {
  struct Part {
    Dims dims;
    std::int64_t offset = 0;
  };
  Dims from;
  std::vector<Part> to;

  std::string name() const { return "split"; }
  std::vector<Argument> arguments() const {
    std::vector<Argument> all = {args::read("src", from)};
    for (const Part& part : to) all.push_back(args::write("dst", part.dims));
    return all;
  }
};

/// The map of the source that each map of a result is. Groups of maps lie one behind the other in the source,
/// and the result takes one map of each group after the other, as a channel shuffle does.
struct MapOrder {
  std::int64_t first = 0;   ///< map of the source that is map 0 of the result; negative: zeros come before it
  std::int64_t groups = 1;  ///< divides `to`
  std::int64_t from = 0, to = 0;  ///< maps of the source and of the result

  /// Returns the map of the source that is map k of the result, or -1 if there is none.
  CONVNET_HD std::int64_t source(std::int64_t k) const {
    // There are less than 2^31 maps, and divisions in 32 bits are faster.
    const auto map = static_cast<std::uint32_t>(k), count = static_cast<std::uint32_t>(groups);
    const std::int64_t at = first + map % count * (to / groups) + map / count;
    return at >= 0 && at < from ? at : -1;
  }
};
/// Makes maps of the maps of each image of src, by MapOrder; those that src does not have are zeros. Both are
/// (N,C,H,W) with equal H and W, or both (N,C), whose numbers are maps of one pixel. Layers: slice (groups =
/// 1) and shuffle (first = 0); both are their own gradient with other numbers.
struct TakeMaps {
  Dims from, to;
  std::int64_t first = 0, groups = 1;

  /// Throws std::logic_error if `to` cannot be maps of `from`.
  MapOrder order() const {
    if (groups < 1 || to.at(1) % groups != 0 || from.size() != to.size() || from.at(0) != to[0] ||
        !std::equal(from.begin() + 2, from.end(), to.begin() + 2))
      throw std::logic_error("take_maps: " + to_string(to) + " cannot be maps of " + to_string(from));
    return {first, groups, from.at(1), to[1]};
  }

  std::string name() const { return "take_maps"; }
  std::vector<Argument> arguments() const { return args::src_to_dst(from, to); }
  std::vector<std::int64_t> settings() const { return {first, groups}; }
};

}  // namespace convnet
