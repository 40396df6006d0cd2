// Everything that differs between oneDNN 2.6 and 3.x, and the prepared operation that runs a oneDNN
// primitive.
#pragma once

#include <cstdint>
#include <dnnl.hpp>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "convnet/base/error.h"
#include "kernels/backend.h"
#include "kernels/cpu/layout.h"
#include "kernels/cpu/prepare.h"

namespace convnet::cpu {

/// Returns the CPU engine, one for the whole process.
const dnnl::engine& cpu_engine();

/// A blocked (or plain) memory descriptor taken apart: strides of the outer dimensions in elements, then the
/// inner blocks, outermost first.
struct Blocking {
  Dims dims, padded_dims, strides;
  std::vector<std::int64_t> inner_sizes, inner_dims;
};
/// Returns the blocking of a descriptor; nullopt for opaque formats.
std::optional<Blocking> blocking_of(const dnnl::memory::desc& desc);

/// Returns the attributes of a primitive whose caller gives it the scratchpad (a primitive with its own
/// scratchpad cannot run in two threads), and which does dst += result if `accumulate`, then dst = max(0,
/// dst) if `relu`.
dnnl::primitive_attr attributes(bool accumulate = false, bool relu = false);

/// Makes the primitive descriptor of `Primitive`. `args` are the arguments of Primitive::desc in oneDNN 2.6.
/// Throws dnnl::error.
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

/// Returns whether this is oneDNN's scalar fallback, which is slower by orders of magnitude.
bool is_reference(const dnnl::primitive_desc_base& pd);

/// Returns "conv.forward src 8x3x32x32 weights ... dst ...", for errors.
std::string describe(const OpDesc& op);

/// Returns make(hinted), with the weights in the hinted layout, if that gives the same implementation as
/// make(any), which leaves the layout open, and so saves a reorder; else make(any).
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

/// A reference implementation is accepted for operations below this: at its ~1 GFLOP/s they take less than 50
/// ms.
constexpr double kSmallFlops = 5e7;

/// The address space that must be left where oneDNN may make code: pieces of up to 256 KiB, of which the
/// first matrix product of a process makes several tens at once, and heaps of threads.
constexpr std::size_t kSpaceForCode = std::size_t{32} << 20;
/// Throws DeviceError if the limit of address space leaves less. oneDNN 2.6 does not survive that: it writes
/// to address 0.
void require_space_for_code();

/// Returns build(); its errors become DeviceErrors that name the operation and its shapes.
template <class Build>
Prepared checked(const OpDesc& op, const Build& build) {
  require_space_for_code();
  try {
    return build();
  } catch (const dnnl::error& e) {
    throw DeviceError(describe(op) + ": oneDNN cannot do this: " + e.what());
  }
}

/// The matrix product c = a b, or c += a b, of row-major f32 matrices: (m,k) times (k,n), where 'T' says that
/// a factor is stored transposed. Rows are lda, ldb and ldc floats apart.
struct MatrixProduct {
  char trans_a = 'N', trans_b = 'N';
  std::int64_t m, n, k;
  const float* a;
  std::int64_t lda;
  const float* b;
  std::int64_t ldb;
  float* c;
  std::int64_t ldc;
  bool accumulate = false;
};
/// Computes a product, which may be empty. Returns false if oneDNN fails or may not survive for want of
/// memory; threads of OpenMP must not throw.
bool multiply(const MatrixProduct& p);

/// Sets the number of threads of the OpenMP teams that the calling thread starts, for its lifetime.
class TeamSize {
 public:
  explicit TeamSize(int threads);
  TeamSize(const TeamSize&) = delete;
  TeamSize& operator=(const TeamSize&) = delete;
  ~TeamSize();

 private:
  int before_;
};

/// Runs a oneDNN primitive, in a team of the size that teams had when it was made: the library divides the
/// work among these threads then.
class DnnlOp : public PreparedOp {
 public:
  /// Takes the layouts of the arguments from `pd`. `ids` are the DNNL_ARG_* of arguments(op), in that order.
  /// `kind` is put before the algorithm's name ("winograd:jit:…") unless it is empty. Throws DeviceError if
  /// `pd` is a reference implementation and the operation is not small.
  DnnlOp(const OpDesc& op, const dnnl::primitive_desc_base& pd, dnnl::primitive primitive,
         std::vector<int> ids, const std::string& kind = "");
  /// Takes the argument tensors as given.
  DnnlOp(std::vector<TensorDesc> args, const dnnl::primitive_desc_base& pd, dnnl::primitive primitive,
         std::vector<int> ids);
  void run(std::span<std::byte* const> pointers, std::byte* workspace, Queue* queue) const override;

 private:
  void finish(const dnnl::primitive_desc_base& pd);

  /// The first run: oneDNN makes code in it, in its own threads, and does not survive if that fails.
  mutable std::once_flag makes_code_;
  dnnl::primitive primitive_;
  std::vector<int> ids_;
  std::vector<dnnl::memory::desc> descs_;
  dnnl::memory::desc scratchpad_;
  int threads_ = 1;
};

}  // namespace convnet::cpu
