// Sums and maxima of several tensors: flat over the memory, whatever its layout.
#include <stdexcept>

#include "kernels/cuda/flat.h"
#include "kernels/cuda/sources.h"

namespace convnet::cuda {
namespace {

void check_inputs(const OpDesc& op, std::int64_t inputs) {
  if (inputs == 0) throw std::logic_error(op_name(op) + ": no inputs");
}

Sources<float> sources_of(std::span<std::byte* const> args) {
  Sources<float> sources;
  for (std::byte* arg : args) sources.add(arg);
  return sources;
}

/// Checks the number of inputs of a maximum: one launch reads all of them.
std::size_t count_inputs(const OpDesc& op, std::int64_t inputs) {
  check_inputs(op, inputs);
  return static_cast<std::size_t>(inputs);
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
  return std::make_shared<KernelOp>(form,
                                    [inputs = count_inputs(op, op.inputs), count = element_count(op.dims)](
                                        Stream stream, std::span<std::byte* const> args, std::byte*) {
                                      const Sources<float> sources = sources_of(args.first(inputs));
                                      float* dst = as_floats(args.back());
                                      for_each(stream, count, [=] CONVNET_DEVICE(std::int64_t i) {
                                        float best = sources.from[0][i];
                                        for (int k = 1; k < sources.count; ++k) {
                                          const float v = sources.from[k][i];
                                          best = beats(v, best) ? v : best;
                                        }
                                        dst[i] = best;
                                      });
                                    });
}

template <>
Prepared prepare(const EltwiseMaxBackward& op, const OpForm& form, const Context&) {
  const std::size_t inputs = count_inputs(op, op.inputs);
  if (op.index < 0 || op.index >= op.inputs)
    throw std::logic_error("eltmax: no input " + std::to_string(op.index));
  return std::make_shared<KernelOp>(
      form, [inputs, index = static_cast<int>(op.index), count = element_count(op.dims)](
                Stream stream, std::span<std::byte* const> args, std::byte*) {
        const Sources<float> sources = sources_of(args.first(inputs));
        const float* diff_dst = as_floats(args[inputs]);
        float* diff_src = as_floats(args[inputs + 1]);
        for_each(stream, count, [=] CONVNET_DEVICE(std::int64_t i) {
          const float own = sources.from[index][i];
          bool wins = true;
          // The first one of equal inputs wins.
          for (int k = 0; k < index; ++k) wins = wins && beats(own, sources.from[k][i]);
          for (int k = index + 1; k < sources.count; ++k) wins = wins && !beats(sources.from[k][i], own);
          diff_src[i] = wins ? diff_dst[i] : 0.0F;
        });
      });
}

}  // namespace convnet::cuda
