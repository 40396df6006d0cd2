// Products of bf16 numbers on processors without instructions for them: activations are stored as bf16, and
// the products are those of f32.
#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/arguments.h"
#include "kernels/cpu/activation_view.h"
#include "kernels/cpu/own_kernels.h"
#include "kernels/cpu/relayout.h"

namespace convnet::cpu {
namespace {

/// A piece of the minibatch gets at least this many bytes of activations as f32, so that they stay in caches,
/// and at least four times as many as the weights have, which each piece reads anew.
constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;

bool is_weights(const Argument& arg) { return arg.name == "weights"; }
bool is_activation(const Argument& arg) { return arg.dims.size() > 1 && !arg.name.ends_with("weights"); }
/// Returns whether each piece computes a term of the argument: gradients of weights and of biases.
bool is_sum(const Argument& arg) { return arg.access != Access::read && !is_activation(arg); }

/// Returns an activation of `images` images, stored as bf16, in the layout that `piece` has as f32 if our own
/// kernels know it, else plain.
TensorDesc stored(const TensorDesc& piece, std::int64_t images) {
  TensorDesc tensor{piece.dims, DataType::bf16, nullptr};
  tensor.dims[0] = images;
  const auto view = activation_view(piece);
  if (view && view->block > 1)
    tensor = blocked_activations(tensor.dims, static_cast<int>(view->block), DataType::bf16);
  return tensor;
}

/// Returns the images of a piece. `threads` divides it unless it is the whole minibatch.
template <class Op>
std::int64_t images_of_piece(const Op& op, int threads) {
  std::int64_t bytes_of_image = 0, bytes_of_weights = 0;
  for (const Argument& arg : op.arguments()) {
    const std::int64_t bytes = element_count(arg.dims) * size_of(DataType::f32);
    if (is_activation(arg))
      bytes_of_image += bytes / op.g.n;
    else
      bytes_of_weights += bytes;
  }
  const std::int64_t least =
      std::max(kPieceBytes, 4 * bytes_of_weights) / std::max<std::int64_t>(bytes_of_image, 1) + 1;
  return std::min((least + threads - 1) / threads * threads, op.g.n);
}

/// A product of f32 numbers on activations that are stored as bf16, piece by piece of the minibatch. Weights
/// are rounded to bf16 first.
template <class Op>
class ProductInF32 : public PreparedOp {
 public:
  ProductInF32(const Op& op, LayoutHints hints, std::int64_t images) : arguments_(op.arguments()) {
    for (std::size_t i = 0; i < hints.size(); ++i)
      if (hints[i] && is_activation(arguments_[i])) hints[i].reset();
    std::int64_t for_pieces = 0;
    for (std::int64_t first = 0; first < std::max<std::int64_t>(op.g.n, 1); first += images) {
      const std::int64_t count = std::min(images, op.g.n - first);
      if (pieces_.empty() || pieces_.back().images != count)
        for_pieces = std::max(for_pieces, add_piece(op, hints, first, count));
      else
        pieces_.push_back({first, count, pieces_.back().product});
    }
    place_copies();
    workspace_bytes_ = shared_offset_ + for_pieces;
  }

  void run(std::span<std::byte* const> pointers, std::byte* workspace, Queue* queue) const override {
    std::vector<std::byte*> all(pointers.begin(), pointers.end());
    const auto count_of = [&](std::size_t i) { return args_[i].bytes() / size_of(DataType::f32); };
    for (const Copy& copy : copies_) {
      if (!is_weights(arguments_[copy.arg])) continue;
      all[copy.arg] = workspace + copy.offset;
      own_kernels(use_instruction_set())
          .round_factors(as_floats(pointers[copy.arg]), count_of(copy.arg), as_floats(all[copy.arg]));
    }
    for (const Piece& piece : pieces_) {
      for (std::size_t i = 0; i < all.size(); ++i)
        if (is_activation(arguments_[i]) && piece.first > 0)
          all[i] = pointers[i] + args_[i].bytes() / args_[i].dims[0] * piece.first;
      if (piece.first > 0)
        for (const Copy& copy : copies_) all[copy.arg] = workspace + copy.offset;
      piece.product->run(all, workspace + shared_offset_, queue);
      for (const Copy& copy : copies_)
        if (piece.first > 0 && copy.sum)
          copy.sum->run(std::vector{all[copy.arg], pointers[copy.arg]}, nullptr, queue);
    }
  }

 private:
  struct Piece {
    std::int64_t first, images;
    Prepared product;
  };
  /// A place in the workspace for rounded weights, or for the term of a later piece, which `sum` adds.
  struct Copy {
    std::size_t arg;
    std::int64_t offset;
    Prepared sum;
  };

  /// Returns the bytes of the piece's workspace.
  std::int64_t add_piece(Op op, const LayoutHints& hints, std::int64_t first, std::int64_t images) {
    const std::int64_t all = op.g.n;
    op.g.n = images;
    const Prepared inner = prepare(op, hints, DataType::f32);
    if (args_.empty()) {
      args_ = inner->args();
      algorithm_ = "f32:" + inner->algorithm();
      for (std::size_t i = 0; i < args_.size(); ++i)
        if (is_activation(arguments_[i])) args_[i] = stored(args_[i], all);
    }
    std::vector<TensorDesc> outer = args_;
    for (std::size_t i = 0; i < outer.size(); ++i)
      if (is_activation(arguments_[i])) outer[i] = stored(args_[i], images);
    pieces_.push_back({first, images, std::make_shared<RelaidOp>(op, inner, std::move(outer))});
    return pieces_.back().product->workspace_bytes();
  }

  void place_copies() {
    for (std::size_t i = 0; i < args_.size(); ++i) {
      Copy copy{i, shared_offset_, nullptr};
      if (is_sum(arguments_[i]) && pieces_.size() > 1)
        copy.sum = prepare(Accumulate{{args_[i].bytes() / size_of(DataType::f32)}}, {});
      else if (!is_weights(arguments_[i]))
        continue;
      shared_offset_ += aligned(args_[i].bytes());
      copies_.push_back(std::move(copy));
    }
  }

  const std::vector<Argument> arguments_;
  std::vector<Piece> pieces_;
  std::vector<Copy> copies_;
  std::int64_t shared_offset_ = 0;  ///< offset of the workspace of the pieces
};

template <class Op>
Prepared prepare_pieces(const Op& op, const LayoutHints& hints) {
  if (op.g.n == 0) return std::make_shared<ProductInF32<Op>>(op, hints, 1);
  const std::int64_t images = images_of_piece(op, omp_get_max_threads());
  auto prepared = std::make_shared<ProductInF32<Op>>(op, hints, images);
  // Whether the library's slow implementation will do depends on the whole operation.
  if (images < op.g.n && prepared->algorithm().find("ref") != std::string::npos)
    return std::make_shared<ProductInF32<Op>>(op, hints, op.g.n);
  return prepared;
}

}  // namespace

Prepared prepare_in_f32(const OpDesc& op, const LayoutHints& hints) {
  return std::visit(
      [&]<class Op>(const Op& desc) -> Prepared {
        if constexpr (OnednnProduct<Op>)
          return prepare_pieces(desc, hints);
        else
          throw std::logic_error(op_name(op) + " is no product");
      },
      op);
}

}  // namespace convnet::cpu
