#include "kernels/cuda/layout.h"

#include <stdexcept>

namespace convnet::cuda {

TensorDesc channels_last(const Dims& dims, DataType type) {
  TensorDesc tensor{dims, type, nullptr};
  // With one channel, or one pixel, both are the same bytes: plain needs no reorder.
  if (dims.size() == 4 && dims[1] != 1 && dims[2] * dims[3] != 1)
    tensor.layout = std::make_shared<ChannelsLast>(element_count(dims), type);
  return tensor;
}

View view_of(const TensorDesc& tensor) {
  const Dims& d = tensor.dims;
  if (!tensor.plain() && dynamic_cast<const ChannelsLast*>(tensor.layout.get()) == nullptr)
    throw std::logic_error("cuda: layout " + tensor.layout_name() + " is not of this backend");
  View view;
  view.last = !tensor.plain();
  view.n = d.empty() ? 1 : d[0];
  if (d.size() == 4) {
    view.c = d[1], view.h = d[2], view.w = d[3];
  } else {
    for (std::size_t i = 1; i < d.size(); ++i) view.c *= d[i];
  }
  return view;
}

}  // namespace convnet::cuda
