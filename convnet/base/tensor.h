// Tensors as the plan sees them: logical dimensions, an element type, and an opaque memory layout.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace convnet {

/// Logical dimensions, outermost first: activations are (N,C,H,W) or, for flat vectors, (N,C).
using Dims = std::vector<std::int64_t>;

/// Number of elements; 1 for no dimensions, 0 if any dimension is 0, the largest number there is where it
/// would overflow.
std::int64_t element_count(const Dims& dims);

/// Returns whether no number is NaN or infinite.
bool all_finite(const std::vector<float>& values);

/// "128x3x32x32"
std::string to_string(const Dims& dims);

/// bf16: the upper half of an f32, rounded to nearest even (kernels/bf16.h).
enum class DataType { f32, f64, s32, u8, bf16 };

std::int64_t size_of(DataType type);
const char* to_string(DataType type);

/// The way a backend stores a tensor. Immutable; backends make it, all others only compare and size it.
class Layout {
 public:
  Layout() = default;
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  virtual ~Layout() = default;
  /// Short name for plans and error messages, like "nChw16c".
  virtual std::string name() const = 0;
  /// Bytes of the tensor, padding included.
  virtual std::int64_t bytes() const = 0;
  virtual bool equals(const Layout& other) const = 0;
  /// Returns a layout with the same order for elements of another type; null (plain) if the backend has none.
  virtual std::shared_ptr<const Layout> with_type(DataType type) const = 0;
};

/// A tensor's type. `layout` null means dense, row-major: the last dimension is contiguous.
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

/// Returns whether the two tensors have the same bytes for the same elements (dims are not compared).
bool same_layout(const TensorDesc& a, const TensorDesc& b);

}  // namespace convnet
