// All that differs between oneDNN 2.6 and 3.x, and the prepared operation that runs a oneDNN primitive.
#pragma once

#include <cstdint>
#include <dnnl.hpp>
#include <optional>
#include <string>
#include <vector>

#include "convnet/base/error.h"
#include "kernels/backend.h"
#include "kernels/cpu/layout.h"
#include "kernels/cpu/prepare.h"

namespace convnet::cpu {

const dnnl::engine& cpu_engine();

/// A blocked (or plain) memory descriptor taken apart: strides of the outer dimensions in elements, then the
/// inner blocks, outermost first.
struct Blocking {
  Dims dims, padded_dims, strides;
  std::vector<std::int64_t> inner_sizes, inner_dims;
};
/// nullopt for opaque formats.
std::optional<Blocking> blocking_of(const dnnl::memory::desc& desc);

/// Scratchpad given by the caller (a primitive with its own breaks when run by two threads), and what is done
/// to the result: dst += result, then max(0, dst).
dnnl::primitive_attr attributes(bool accumulate = false, bool relu = false);

/// The primitive descriptor of `Primitive` for the arguments that 2.6 gives its `desc`. Throws dnnl::error.
template <class Primitive, class... Args>
typename Primitive::primitive_desc forward_pd(const dnnl::primitive_attr& attr, const Args&... args) {
#if DNNL_VERSION_MAJOR >= 3
  return {cpu_engine(), args..., attr};
#else
  return {typename Primitive::desc(args...), attr, cpu_engine()};
#endif
}
template <class Primitive, class ForwardPd, class... Args>
typename Primitive::primitive_desc backward_pd(const ForwardPd& forward, const Args&... args) {
#if DNNL_VERSION_MAJOR >= 3
  return {cpu_engine(), args..., forward, attributes()};
#else
  return {typename Primitive::desc(args...), attributes(), cpu_engine(), forward};
#endif
}

/// oneDNN's scalar fallback, orders of magnitude slower than the rest.
bool is_reference(const dnnl::primitive_desc_base& pd);

/// "conv.forward src 8x3x32x32 weights ... dst ...", for errors.
std::string describe(const OpDesc& op);

/// make(desc) with the weights' layout left open, or in the hinted layout where that gives the same
/// implementation and so saves a reorder.
template <class Make>
auto prefer_hinted(const Make& make, const dnnl::memory::desc& any,
                   const std::optional<dnnl::memory::desc>& hinted) {
  auto open = make(any);
  if (!hinted) return open;
  try {
    auto fixed = make(*hinted);
    return std::string(fixed.impl_info_str()) == open.impl_info_str() ? fixed : open;
  } catch (const dnnl::error&) {
    return open;  // no implementation takes that layout
  }
}

/// Below this a reference implementation is accepted: at its ~1 GFLOP/s the operation takes less than 50 ms.
constexpr double kSmallFlops = 5e7;

/// build(), with errors that name the operation and its shapes.
template <class Build>
Prepared checked(const OpDesc& op, const Build& build) {
  try {
    return build();
  } catch (const dnnl::error& e) {
    throw DeviceError(describe(op) + ": oneDNN cannot do this: " + e.what());
  }
}

/// Runs one oneDNN primitive. Takes its layouts from the primitive descriptor.
class DnnlOp : public PreparedOp {
 public:
  /// `ids` are the DNNL_ARG_* of arguments(op), in that order. Throws DeviceError if `pd` is a reference
  /// implementation and the operation is not small.
  DnnlOp(const OpDesc& op, const dnnl::primitive_desc_base& pd, dnnl::primitive primitive,
         std::vector<int> ids, const std::string& kind = "");
  /// With the argument descriptors given.
  DnnlOp(std::vector<TensorDesc> args, const dnnl::primitive_desc_base& pd, dnnl::primitive primitive,
         std::vector<int> ids);
  void run(std::span<std::byte* const> pointers, std::byte* workspace, Queue* queue) const override;

 private:
  void finish(const dnnl::primitive_desc_base& pd);

  dnnl::primitive primitive_;
  std::vector<int> ids_;
  std::vector<dnnl::memory::desc> descs_;
  dnnl::memory::desc scratchpad_;
};

}  // namespace convnet::cpu
