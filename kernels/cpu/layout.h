// Memory layouts of the CPU backend: oneDNN memory descriptors behind the Layout interface.
#pragma once

#include <dnnl.hpp>
#include <optional>

#include "kernels/cpu/activation_view.h"

namespace convnet::cpu {

/// A oneDNN memory descriptor. Dense row-major tensors never carry one: their TensorDesc::layout is null.
class DnnlLayout : public Layout {
 public:
  explicit DnnlLayout(const dnnl::memory::desc& desc);
  std::string name() const override { return name_; }
  std::int64_t bytes() const override { return bytes_; }
  bool equals(const Layout& other) const override;
  /// Returns the same layout for activations of another type; null for weights, whose order of elements
  /// depends on the type.
  std::shared_ptr<const Layout> with_type(DataType type) const override;
  const dnnl::memory::desc& desc() const { return desc_; }

 private:
  dnnl::memory::desc desc_;
  std::string name_;
  std::int64_t bytes_;
};

/// Returns the oneDNN descriptor of a tensor: its layout, or the dense row-major one of its dims.
dnnl::memory::desc to_dnnl(const TensorDesc& tensor);
/// Returns a descriptor with format "any", for primitives that may choose the layout.
dnnl::memory::desc any_layout(const Dims& dims, DataType type = DataType::f32);
/// Returns the tensor with this descriptor; its layout is null if it is dense and row-major.
TensorDesc from_dnnl(const dnnl::memory::desc& desc, const Dims& dims);

}  // namespace convnet::cpu
