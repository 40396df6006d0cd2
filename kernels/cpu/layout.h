// Memory layouts of the CPU backend: oneDNN memory descriptors behind the Layout interface.
#pragma once

#include <dnnl.hpp>
#include <optional>

#include "convnet/base/tensor.h"

namespace convnet::cpu {

/// A oneDNN memory descriptor. Dense row-major tensors never carry one: their TensorDesc::layout is null.
class DnnlLayout : public Layout {
 public:
  explicit DnnlLayout(const dnnl::memory::desc& desc);
  std::string name() const override { return name_; }
  std::int64_t bytes() const override { return bytes_; }
  bool equals(const Layout& other) const override;
  /// The same layout of activations as another type; null for weights, whose order of elements depends on the
  /// type.
  std::shared_ptr<const Layout> with_type(DataType type) const override;
  const dnnl::memory::desc& desc() const { return desc_; }

 private:
  dnnl::memory::desc desc_;
  std::string name_;
  std::int64_t bytes_;
};

/// The oneDNN descriptor of a tensor: its layout, or the dense row-major one of its dims.
dnnl::memory::desc to_dnnl(const TensorDesc& tensor);
/// The same with format "any", for primitives that may choose.
dnnl::memory::desc any_layout(const Dims& dims, DataType type = DataType::f32);
/// The tensor a descriptor means; layout null when it is dense row-major.
TensorDesc from_dnnl(const dnnl::memory::desc& desc, const Dims& dims);

/// Activations as own kernels walk them: [n][padded_c/block][spatial][block]; block 1 is plain (N,C,H,W) or
/// (N,C). Lanes of channels >= c hold zeros and must keep them.
struct ActivationView {
  std::int64_t n = 0, c = 0, spatial = 1;
  std::int64_t block = 1;     ///< channels stored together: 1, 4, 8 or 16
  std::int64_t padded_c = 0;  ///< c rounded up to whole blocks
  std::int64_t size() const { return n * padded_c * spatial; }
};
/// nullopt if the layout is neither plain nor nChw{4,8,16}c.
std::optional<ActivationView> activation_view(const TensorDesc& tensor);
/// (N,C,H,W) stored as nChw{block}c.
TensorDesc blocked_activations(const Dims& dims, int block, DataType type = DataType::f32);

}  // namespace convnet::cpu
