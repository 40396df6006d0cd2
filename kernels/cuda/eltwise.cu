// Sums, maxima and products of several tensors: flat over the memory, whatever its layout. Products by map go
// over the maps.
#include <stdexcept>

#include "kernels/cuda/flat.h"
#include "kernels/cuda/sizes.h"
#include "kernels/cuda/sources.h"
#include "kernels/functors.h"

namespace convnet::cuda {
namespace {

void check_inputs(const OpDesc& op, std::int64_t inputs) {
  if (inputs == 0) throw std::logic_error(op_name(op) + ": no inputs");
}

Sources<std::byte> sources_of(std::span<std::byte* const> args) {
  Sources<std::byte> sources;
  for (std::byte* arg : args) sources.add(arg);
  return sources;
}

/// The maximum of several tensors. `Inputs` is their number if it is known when this is compiled, else 0:
/// then loads are in flight together.
template <class T, int Inputs>
struct Maximum {
  Sources<std::byte> sources;
  std::byte* dst;

  template <int Lanes>
  CONVNET_DEVICE void at(std::int64_t i) const {
    Vector<float, Lanes> best = Numbers<T, Lanes>(sources.from[0])[i];
    const int inputs = Inputs > 0 ? Inputs : sources.count;
    CONVNET_UNROLL_BY((Inputs > 0 ? Inputs : 4))
    for (int k = 1; k < inputs; ++k) {
      const Vector<float, Lanes> v = Numbers<T, Lanes>(sources.from[k])[i];
      CONVNET_UNROLL
      for (int lane = 0; lane < Lanes; ++lane)
        best.lane[lane] = beats(v.lane[lane], best.lane[lane]) ? v.lane[lane] : best.lane[lane];
    }
    Numbers<T, Lanes>(dst).set(i, best);
  }
};

/// The gradient of input `index` of a maximum. The first one of equal inputs gets it.
template <class T, int Inputs>
struct MaximumBackward {
  Sources<std::byte> sources;
  int index;
  std::byte *diff_dst, *diff_src;

  template <int Lanes>
  CONVNET_DEVICE void at(std::int64_t i) const {
    const Vector<float, Lanes> own = Numbers<T, Lanes>(sources.from[index])[i];
    Vector<float, Lanes> diff = Numbers<T, Lanes>(diff_dst)[i];
    const int inputs = Inputs > 0 ? Inputs : sources.count;
    CONVNET_UNROLL_BY((Inputs > 0 ? Inputs : 4))
    for (int k = 0; k < inputs; ++k) {
      if (k == index) continue;
      const Vector<float, Lanes> other = Numbers<T, Lanes>(sources.from[k])[i];
      CONVNET_UNROLL
      for (int lane = 0; lane < Lanes; ++lane) {
        const bool wins =
            k < index ? beats(own.lane[lane], other.lane[lane]) : !beats(other.lane[lane], own.lane[lane]);
        diff.lane[lane] = wins ? diff.lane[lane] : 0.0F;
      }
    }
    Numbers<T, Lanes>(diff_src).set(i, diff);
  }
};

/// Checks the number of inputs of a maximum: one launch reads all of them.
std::size_t count_inputs(const OpDesc& op, std::int64_t inputs) {
  check_inputs(op, inputs);
  return static_cast<std::size_t>(inputs);
}

/// Calls f(inputs) with the number of inputs as a constant if kernels are compiled for it, else with 0.
template <class F>
void with_inputs(std::size_t inputs, const F& f) {
  if (inputs == 2)
    f(std::integral_constant<int, 2>{});
  else
    f(std::integral_constant<int, 0>{});
}

/// Sums terms. `Inputs` is the number of inputs if it is known when this is compiled, else 0.
template <class T, int Inputs>
struct SumTerms {
  Sources<std::byte> sources;
  float coeffs[kMostSources];
  std::byte* dst;
  bool adds;  ///< whether the sum is added to what the destination holds

  template <int Lanes>
  CONVNET_DEVICE void at(std::int64_t i) const {
    Vector<float, Lanes> sum{};
    if (adds) sum = Numbers<T, Lanes>(dst)[i];
    const int inputs = Inputs > 0 ? Inputs : sources.count;
    CONVNET_UNROLL
    for (int k = 0; k < inputs; ++k) {
      const Vector<float, Lanes> v = Numbers<T, Lanes>(sources.from[k])[i];
      CONVNET_UNROLL
      for (int lane = 0; lane < Lanes; ++lane) sum.lane[lane] += coeffs[k] * v.lane[lane];
    }
    Numbers<T, Lanes>(dst).set(i, sum);
  }
};

/// Sums the `inputs` arguments from `first` on; those before it are already summed in the destination.
template <class T, int Inputs>
void sum_terms(Stream stream, std::int64_t count, const std::vector<float>& coeffs, std::size_t first,
               std::size_t inputs, std::span<std::byte* const> args) {
  SumTerms<T, Inputs> terms{{}, {}, args.back(), first > 0};
  for (std::byte* arg : args.subspan(first, inputs)) terms.sources.add(arg);
  std::copy_n(&coeffs[first], inputs, terms.coeffs);
  for_elements<kLoadLanes<T>>(stream, count, args, terms);
}

struct Multiply {
  CONVNET_DEVICE float operator()(float a, float b) const { return a * b; }
};

/// Multiplies each map by its factor: a thread for Lanes channels of a pixel.
template <class T, int Lanes>
struct ScaleMaps {
  View view;
  Numbers<T, Lanes> src, factors, dst;

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = view.place(i);
    Vector<float, Lanes> v = src[i];
    const Vector<float, Lanes> factor = factors[at.n * view.c + at.c];
    CONVNET_UNROLL
    for (int lane = 0; lane < Lanes; ++lane) v.lane[lane] *= factor.lane[lane];
    dst.set(i, v);
  }
};

/// Sums the products of some pixels of Lanes maps in one thread. The sums are (part, image, map).
template <class T, int Lanes>
struct ProductSums {
  View view;
  int parts;  ///< threads that share the pixels of a map: thread p takes pixels p, p + parts, ...
  Numbers<T, Lanes> a, b;
  Numbers<float, Lanes> sums;

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t maps = view.n * view.c;
    const Quotient part = divide(i, maps), image = divide(part.rest, view.c);
    const std::int64_t n = image.value, c = image.rest;
    const int pixels = static_cast<int>(view.spatial());
    Vector<float, Lanes> sum{};
    CONVNET_UNROLL_BY(4)
    for (int s = static_cast<int>(part.value); s < pixels; s += parts) {
      const std::int64_t at = view.index(n, c, s);
      const Vector<float, Lanes> x = a[at], y = b[at];
      CONVNET_UNROLL
      for (int lane = 0; lane < Lanes; ++lane) sum.lane[lane] += x.lane[lane] * y.lane[lane];
    }
    sums.set(i, sum);
  }
};

/// Adds the sums of all parts of a map.
template <class T>
struct AddParts {
  std::int64_t maps;
  int parts;
  const float* sums;
  T* dst;

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    float sum = 0;
    for (int part = 0; part < parts; ++part) sum += sums[part * maps + i];
    dst[i] = stored_as<T>(sum);
  }
};

/// Calls f(stored, lanes): a value of the type that maps of `view` are stored as, and how many channels a
/// thread works on.
template <class F>
void with_lanes(DataType type, const View& view, const F& f) {
  with_stored_type(type, [&](auto stored) {
    if (lanes_of(view) == kLanes)
      f(stored, std::integral_constant<int, kLanes>{});
    else
      f(stored, std::integral_constant<int, 1>{});
  });
}

}  // namespace

template <>
Prepared prepare(const EltwiseSum& op, const OpForm& form, const Context&) {
  check_inputs(op, std::ssize(op.coeffs));
  const DataType type = form.args[0].type;
  return std::make_shared<KernelOp>(form, [type, coeffs = op.coeffs, count = element_count(op.dims)](
                                              Stream stream, std::span<std::byte* const> args, std::byte*) {
    with_stored_type(type, [&](auto stored) {
      using T = decltype(stored);
      // Two inputs, as a residual net has, are both read before either is used.
      if (coeffs.size() == 2) return sum_terms<T, 2>(stream, count, coeffs, 0, 2, args);
      for (std::size_t first = 0; first < coeffs.size(); first += kMostSources)
        sum_terms<T, 0>(stream, count, coeffs, first,
                        std::min<std::size_t>(coeffs.size() - first, kMostSources), args);
    });
  });
}

template <>
Prepared prepare(const EltwiseMax& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [inputs = count_inputs(op, op.inputs), count = element_count(op.dims), type = form.args[0].type](
                Stream stream, std::span<std::byte* const> args, std::byte*) {
        with_stored_type(type, [&](auto stored) {
          using T = decltype(stored);
          with_inputs(inputs, [&](auto known) {
            for_elements<kLoadLanes<T>>(stream, count, args,
                                        Maximum<T, known()>{sources_of(args.first(inputs)), args.back()});
          });
        });
      });
}

template <>
Prepared prepare(const EltwiseMaxBackward& op, const OpForm& form, const Context&) {
  const std::size_t inputs = count_inputs(op, op.inputs);
  if (op.index < 0 || op.index >= op.inputs)
    throw std::logic_error("eltmax: no input " + std::to_string(op.index));
  return std::make_shared<KernelOp>(
      form, [inputs, index = static_cast<int>(op.index), count = element_count(op.dims),
             type = form.args[0].type](Stream stream, std::span<std::byte* const> args, std::byte*) {
        with_stored_type(type, [&](auto stored) {
          using T = decltype(stored);
          with_inputs(inputs, [&](auto known) {
            for_elements<kLoadLanes<T>>(stream, count, args,
                                        MaximumBackward<T, known()>{sources_of(args.first(inputs)), index,
                                                                    args[inputs], args[inputs + 1]});
          });
        });
      });
}

template <>
Prepared prepare(const EltwiseProduct& op, const OpForm& form, const Context&) {
  const TensorDesc& src = form.args[0];
  if (!op.by_map)
    return std::make_shared<KernelOp>(form, [type = src.type, count = element_count(op.dims)](
                                                Stream stream, std::span<std::byte* const> args, std::byte*) {
      with_stored_type(type,
                       [&](auto stored) { flat_binary<decltype(stored)>(stream, count, args, Multiply()); });
    });
  return std::make_shared<KernelOp>(form, [type = src.type, view = channels_view(src)](
                                              Stream stream, std::span<std::byte* const> args, std::byte*) {
    with_lanes(type, view, [&](auto stored, auto lanes) {
      using Maps = Numbers<decltype(stored), lanes()>;
      const View vectors = in_vectors(view, lanes());
      for_each(stream, vectors.size(),
               ScaleMaps<decltype(stored), lanes()>{vectors, Maps(args[0]), Maps(args[1]), Maps(args[2])});
    });
  });
}

template <>
Prepared prepare(const MapProductSums&, const OpForm& form, const Context&) {
  const TensorDesc& src = form.args[0];
  const View view = channels_view(src);
  return std::make_shared<KernelOp>(
      form, [type = src.type, view, parts = map_parts(view)](Stream stream, std::span<std::byte* const> args,
                                                             std::byte* workspace) {
        with_lanes(type, view, [&](auto stored, auto lanes) {
          using T = decltype(stored);
          const View vectors = in_vectors(view, lanes());
          for_each(stream, parts * vectors.n * vectors.c,
                   ProductSums<T, lanes()>{vectors, static_cast<int>(parts), Numbers<T, lanes()>(args[0]),
                                           Numbers<T, lanes()>(args[1]), Numbers<float, lanes()>(workspace)});
          for_each(stream, view.n * view.c,
                   AddParts<T>{view.n * view.c, static_cast<int>(parts), as_floats(workspace),
                               reinterpret_cast<T*>(args[2])});
        });
      });
}

}  // namespace convnet::cuda
