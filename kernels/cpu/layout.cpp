#include "kernels/cpu/layout.h"

#include <algorithm>
#include <cctype>
#include <numeric>

#include "kernels/cpu/onednn.h"

namespace convnet::cpu {
namespace {

dnnl::memory::data_type to_dnnl(DataType type) {
  switch (type) {
    case DataType::s32: return dnnl::memory::data_type::s32;
    case DataType::u8: return dnnl::memory::data_type::u8;
    case DataType::bf16: return dnnl::memory::data_type::bf16;
    case DataType::f64: return dnnl::memory::data_type::undef;  // no operation of oneDNN takes it
    case DataType::f32: break;
  }
  return dnnl::memory::data_type::f32;
}

/// Returns the type of the numbers of a descriptor that to_dnnl() or a primitive has made.
DataType type_of(const dnnl::memory::desc& desc) {
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::memory::data_type type = desc.get_data_type();
#else
  const dnnl::memory::data_type type = desc.data_type();
#endif
  switch (type) {
    case dnnl::memory::data_type::s32: return DataType::s32;
    case dnnl::memory::data_type::u8: return DataType::u8;
    case dnnl::memory::data_type::bf16: return DataType::bf16;
    default: return DataType::f32;
  }
}

Dims row_major_strides(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (std::size_t i = dims.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<std::int64_t>(dims[i], 1);
  return strides;
}

/// One loop of the walk through memory: `size` steps along a dimension, `stride` elements apart.
struct Loop {
  std::int64_t dim, size, stride;
  bool operator==(const Loop&) const = default;
};

/// Returns the dimensions in the order of their strides, the outermost first.
std::vector<std::size_t> outer_order(const Blocking& b) {
  std::vector<std::size_t> order(b.dims.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t i, std::size_t j) { return b.strides[i] > b.strides[j]; });
  return order;
}

/// Returns the loops from the outermost to the innermost, without those of one step, because descriptors that
/// differ only in the strides of dimensions of size 1 place every element alike.
std::vector<Loop> loops_of(const Blocking& b) {
  Dims outer = b.padded_dims;
  std::int64_t stride = 1;
  std::vector<Loop> inner;
  for (std::size_t i = b.inner_sizes.size(); i-- > 0;) {
    inner.push_back({b.inner_dims[i], b.inner_sizes[i], stride});
    stride *= b.inner_sizes[i];
    outer[static_cast<std::size_t>(b.inner_dims[i])] /= b.inner_sizes[i];
  }
  std::vector<Loop> loops;
  for (std::size_t d : outer_order(b))
    loops.push_back({static_cast<std::int64_t>(d), outer[d], b.strides[d]});
  loops.insert(loops.end(), inner.rbegin(), inner.rend());
  std::erase_if(loops, [](const Loop& loop) { return loop.size == 1; });
  return loops;
}

bool is_row_major(const dnnl::memory::desc& desc) {
  const auto blocking = blocking_of(desc);
  if (!blocking || blocking->padded_dims != blocking->dims) return false;
  const std::vector<Loop> loops = loops_of(*blocking);
  std::int64_t stride = 1, dim = static_cast<std::int64_t>(blocking->dims.size());
  for (std::size_t i = loops.size(); i-- > 0;) {
    if (loops[i].dim > dim || loops[i].stride != stride) return false;
    dim = loops[i].dim;
    stride *= loops[i].size;
  }
  return true;
}

/// Returns a name like oneDNN's tags: "nChw16c" for activations, "OIhw16i16o" and "gOIhw16i16o" for
/// convolution weights, "AB16b64a" for the rest; blocked dimensions are capitals.
std::string name_of(const dnnl::memory::desc& desc) {
  const auto blocking = blocking_of(desc);
  if (!blocking) return "opaque";
  const Blocking& b = *blocking;
  const auto is_blocked = [&](std::int64_t dim) {
    return std::find(b.inner_dims.begin(), b.inner_dims.end(), dim) != b.inner_dims.end();
  };
  std::string letters = "abcdefghijkl";
  if (b.dims.size() == 4) letters = is_blocked(0) ? "oihw" : "nchw";
  if (b.dims.size() == 5) letters = "goihw";
  std::string name;
  for (std::size_t d : outer_order(b)) {
    const char letter = letters[d];
    name += is_blocked(static_cast<std::int64_t>(d)) ? static_cast<char>(std::toupper(letter)) : letter;
  }
  for (std::size_t i = 0; i < b.inner_sizes.size(); ++i)
    name += std::to_string(b.inner_sizes[i]) + letters[static_cast<std::size_t>(b.inner_dims[i])];
  return name;
}

}  // namespace

DnnlLayout::DnnlLayout(const dnnl::memory::desc& desc)
    : desc_(desc), name_(name_of(desc_)), bytes_(static_cast<std::int64_t>(desc_.get_size())) {}

bool DnnlLayout::equals(const Layout& other) const {
  const auto* that = dynamic_cast<const DnnlLayout*>(&other);
  if (that == nullptr) return false;
  if (desc_ == that->desc_) return true;
  const auto a = blocking_of(desc_), b = blocking_of(that->desc_);
  return a && b && bytes_ == that->bytes_ && a->dims == b->dims && a->padded_dims == b->padded_dims &&
         loops_of(*a) == loops_of(*b);
}

std::shared_ptr<const Layout> DnnlLayout::with_type(DataType type) const {
  const auto blocking = blocking_of(desc_);
  if (!blocking) return nullptr;
  const auto view = activation_view({blocking->dims, type_of(desc_), std::make_shared<DnnlLayout>(desc_)});
  if (!view || view->block == 1) return nullptr;
  return blocked_activations(blocking->dims, static_cast<int>(view->block), type).layout;
}

dnnl::memory::desc to_dnnl(const TensorDesc& tensor) {
  if (const auto* layout = dynamic_cast<const DnnlLayout*>(tensor.layout.get())) return layout->desc();
  return {tensor.dims, to_dnnl(tensor.type), row_major_strides(tensor.dims)};
}

dnnl::memory::desc any_layout(const Dims& dims, DataType type) {
  return {dims, to_dnnl(type), dnnl::memory::format_tag::any};
}

TensorDesc from_dnnl(const dnnl::memory::desc& desc, const Dims& dims) {
  return {dims, type_of(desc), is_row_major(desc) ? nullptr : std::make_shared<DnnlLayout>(desc)};
}

std::optional<ActivationView> activation_view(const TensorDesc& tensor) {
  const Dims& dims = tensor.dims;
  if (dims.size() != 2 && dims.size() != 4) return std::nullopt;
  ActivationView view{dims[0], dims[1], dims.size() == 4 ? dims[2] * dims[3] : 1, 1, dims[1]};
  if (tensor.plain()) return view;
  if (dims.size() != 4) return std::nullopt;
  for (int block : {16, 8, 4})
    if (same_layout(tensor, blocked_activations(dims, block, tensor.type))) {
      view.block = block;
      view.padded_c = (view.c + block - 1) / block * block;
      return view;
    }
  return std::nullopt;
}

TensorDesc blocked_activations(const Dims& dims, int block, DataType type) {
  using tag = dnnl::memory::format_tag;
  const tag format = block == 16 ? tag::nChw16c : block == 8 ? tag::nChw8c : tag::nChw4c;
  return from_dnnl({dims, to_dnnl(type), format}, dims);
}

}  // namespace convnet::cpu
