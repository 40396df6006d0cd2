#include "tests/kernels/op_cases.h"

#include <cstring>

namespace convnet::test {

std::vector<OpCase> op_cases() {
  std::vector<OpCase> all;
  for (const auto cases : {product_cases, pooling_cases, norm_cases, elementwise_cases, image_cases,
                           cost_cases, memory_cases, update_cases})
    for (OpCase& c : cases()) all.push_back(std::move(c));
  return all;
}

std::vector<std::byte> step_block(std::uint64_t iteration, const std::vector<Rates>& rates) {
  std::vector<std::byte> bytes(
      static_cast<std::size_t>(step_block_bytes(static_cast<std::int64_t>(rates.size()))));
  const StepHeader header{iteration};
  std::memcpy(bytes.data(), &header, sizeof header);
  if (!rates.empty()) std::memcpy(bytes.data() + sizeof header, rates.data(), rates.size() * sizeof(Rates));
  return bytes;
}

std::vector<std::byte> doubles(const Values& values) { return packed(values, DataType::f64); }

}  // namespace convnet::test
