// Reorders that own kernels do faster than oneDNN: activations between plain and blocked layouts, weights of
// matrix products that are rounded to bf16, and conversions between f32 and bf16 that keep the order of the
// elements.
#include "kernels/cpu/interleave.h"
#include "kernels/cpu/own_kernel.h"

namespace convnet::cpu::own {
namespace {

constexpr std::int64_t kBlock = 16;  ///< number of channels of a block
/// Floats in a register.
#if defined(__AVX512F__)
constexpr int kLanes = 16;
#else
constexpr int kLanes = 8;
#endif

/// Copies activations between the layout of `view`, with blocks of 16 channels, and the plain layout; to the
/// latter if `to_plain`.
template <class T>
void rearrange(const ActivationView& view, bool to_plain, const T* from, T* to) {
  const std::int64_t blocks = view.padded_c / kBlock, all = view.n * blocks;
#pragma omp parallel for schedule(static) if (view.size() >= kParallelElements)
  for (std::int64_t i = 0; i < all; ++i) {
    const std::int64_t n = i / blocks, first = i % blocks * kBlock, count = std::min(kBlock, view.c - first);
    const std::int64_t blocked = i * kBlock * view.spatial, plain = (n * view.c + first) * view.spatial;
    if (to_plain)
      separate(bits_of(from) + blocked, count, view.spatial, bits_of(to) + plain);
    else
      interleave(bits_of(from) + plain, view.spatial, count, view.spatial, bits_of(to) + blocked);
  }
}

Prepared prepare_activations(const Reorder& op) {
  const bool to_plain = op.to.plain();
  const TensorDesc& blocked = to_plain ? op.from : op.to;
  if (op.from.type != op.to.type || op.from.plain() == to_plain || blocked.plain()) return nullptr;
  if (op.from.type != DataType::f32 && op.from.type != DataType::bf16) return nullptr;
  const auto view = activation_view(blocked);
  if (!view || view->block != kBlock) return nullptr;
  return std::make_shared<KernelOp>(
      std::vector<TensorDesc>{op.from, op.to},
      [view = *view, to_plain, type = op.from.type](std::span<std::byte* const> args) {
        with_stored(type,
                    [&]<class T>(T) { rearrange(view, to_plain, as<const T>(args[0]), as<T>(args[1])); });
      });
}

/// Copies numbers from memory of f32 to bf16, or the reverse.
template <class From, class To>
void convert(const From* from, std::int64_t count, To* to) {
  for_pieces(count, [=](std::int64_t begin, std::int64_t end) {
    std::int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      Vector<float, kLanes>::Type v;
      load_floats<kLanes>(from + i, kLanes, v);
      store_floats<kLanes>(to + i, kLanes, v);
    }
    for (; i < end; ++i) to[i] = stored_as<To>(to_float(from[i]));
  });
}

/// to[i] = from[i], rounded to bf16. It is a function because compilers do not vectorise loops over captured
/// pointers well.
void round_piece(const float* __restrict from, std::int64_t count, float* __restrict to) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) to[i] = to_float(to_bf16(from[i]));
}

/// Prepares a conversion between f32 and bf16 of a tensor whose elements keep their order.
Prepared prepare_conversion(const Reorder& op) {
  const auto is_real = [](DataType type) { return type == DataType::f32 || type == DataType::bf16; };
  if (op.from.type == op.to.type || !is_real(op.from.type) || !is_real(op.to.type)) return nullptr;
  if (op.from.plain() != op.to.plain() || !same_layout(with_type(op.from, op.to.type), op.to)) return nullptr;
  return std::make_shared<KernelOp>(std::vector<TensorDesc>{op.from, op.to},
                                    [count = stored_numbers(op.from),
                                     widens = op.to.type == DataType::f32](std::span<std::byte* const> args) {
                                      if (widens)
                                        convert(as<const BFloat16>(args[0]), count, as<float>(args[1]));
                                      else
                                        convert(as<const float>(args[0]), count, as<BFloat16>(args[1]));
                                    });
}

#if defined(__AVX512BF16__)
/// Rounds a block of weights: 16 rows of 64 numbers become 8 rows of 64 pairs.
void round_block(const float* from, BFloat16* to) {
  constexpr std::int64_t kRow = 64;
  for (std::int64_t row = 0; row < 16; row += 2)
    for (std::int64_t i = 0; i < kRow; i += 16) {
      Vector<float, 16>::Type even, odd;
      load(from + row * kRow + i, even);
      load(from + (row + 1) * kRow + i, odd);
      // Numbers of even rows are the lower halves of 32 bits, those of odd rows the upper halves.
      Vector<std::uint16_t, 16>::Type low, high;
      narrow<16>(even, low);
      narrow<16>(odd, high);
      const auto pairs = __builtin_convertvector(low, Vector<std::uint32_t, 16>::Type) |
                         __builtin_convertvector(high, Vector<std::uint32_t, 16>::Type) << 16;
      std::memcpy(static_cast<void*>(to + row * kRow + 2 * i), &pairs, sizeof pairs);
    }
}

/// Prepares the rounding of weights between the layouts that oneDNN chooses for inner products in f32 and in
/// bf16.
Prepared prepare_weights(const Reorder& op) {
  const bool known = op.from.type == DataType::f32 && op.from.layout_name() == "AB16b64a" &&
                     op.to.type == DataType::bf16 && op.to.layout_name() == "AB8b64a2b";
  if (!known || op.from.bytes() != 2 * op.to.bytes() || op.from.dims != op.to.dims) return nullptr;
  constexpr std::int64_t kNumbers = std::int64_t{16} * 64;
  return std::make_shared<KernelOp>(
      std::vector<TensorDesc>{op.from, op.to},
      [blocks = op.to.bytes() / 2 / kNumbers](std::span<std::byte* const> args) {
        const float* const from = as_floats(args[0]);
        BFloat16* const to = as<BFloat16>(args[1]);
#pragma omp parallel for schedule(static) if (blocks * kNumbers >= kParallelElements)
        for (std::int64_t i = 0; i < blocks; ++i) round_block(from + i * kNumbers, to + i * kNumbers);
      });
}
#else
Prepared prepare_weights(const Reorder&) { return nullptr; }
#endif

}  // namespace

Prepared prepare_reorder(const Reorder& op) {
  if (element_count(op.from.dims) != element_count(op.to.dims)) return nullptr;  // onednn::prepare() throws
  for (const auto prepare_kind : {prepare_activations, prepare_conversion, prepare_weights})
    if (Prepared prepared = prepare_kind(op)) return prepared;
  return nullptr;
}

void round_factors(const float* from, std::int64_t count, float* to) {
  for_pieces(count, [=](std::int64_t begin, std::int64_t end) {
    round_piece(from + begin, end - begin, to + begin);
  });
}

}  // namespace convnet::cpu::own
