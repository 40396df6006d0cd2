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
  if (d.size() == 4) return {d[0], d[1], d[2], d[3], !tensor.plain()};
  std::int64_t others = 1;
  for (std::size_t i = 1; i < d.size(); ++i) others *= d[i];
  return {d.empty() ? 1 : d[0], others, 1, 1, !tensor.plain()};
}

}  // namespace convnet::cuda
