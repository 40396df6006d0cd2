// Tensors as the plan sees them: logical dimensions, an element type, and an opaque memory layout.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace convnet {

/// Logical dimensions, outermost first: activations are (N,C,H,W) or, for flat vectors, (N,C).
using Dims = std::vector<std::int64_t>;

/// Returns the number of elements: 1 for no dimensions, 0 if any dimension is 0, and the largest std::int64_t
/// if the product would overflow.
std::int64_t element_count(const Dims& dims);

/// Returns whether no number is NaN or infinite.
bool all_finite(const std::vector<float>& values);

/// Returns "128x3x32x32".
std::string to_string(const Dims& dims);

/// The type of a tensor's elements. bf16 is the upper half of an f32, rounded to nearest even
/// (kernels/bf16.h).
enum class DataType { f32, f64, s32, u8, bf16 };

std::int64_t size_of(DataType type);
const char* to_string(DataType type);

/// The way a backend stores a tensor. Immutable. Only backends make layouts; other code compares them and
/// asks for their size.
class Layout {
 public:
  Layout() = default;
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  virtual ~Layout() = default;
  /// Returns a short name for plans and error messages, like "nChw16c".
  virtual std::string name() const = 0;
  /// Returns the bytes of the tensor, padding included.
  virtual std::int64_t bytes() const = 0;
  virtual bool equals(const Layout& other) const = 0;
  /// Returns a layout with the same order for elements of another type; null (plain) if the backend has none.
  virtual std::shared_ptr<const Layout> with_type(DataType type) const = 0;
};

/// Describes a tensor: shape, element type and layout. A null layout means "plain": dense and row-major, so
/// that the last dimension is contiguous.
struct TensorDesc {
  Dims dims;
  DataType type = DataType::f32;
  std::shared_ptr<const Layout> layout;

  std::int64_t bytes() const { return layout ? layout->bytes() : element_count(dims) * size_of(type); }
  bool plain() const { return layout == nullptr; }
  std::string layout_name() const { return layout ? layout->name() : "plain"; }
};

/// Returns the tensor with another type, in the same layout if the backend has it, else plain.
TensorDesc with_type(const TensorDesc& tensor, DataType type);

/// Returns whether two tensors lie in memory alike: the same type and layout. Their dims are not compared.
bool same_layout(const TensorDesc& a, const TensorDesc& b);

}  // namespace convnet
