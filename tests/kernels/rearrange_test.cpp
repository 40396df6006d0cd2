// Reorders of our own beside the library's: the same bytes.

#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/layout.h"
#include "kernels/cpu/prepare.h"
#include "tests/catch.h"
#include "tests/kernels/op_runner.h"

namespace convnet::rearrange_test {
namespace {

using test::GuardedBuffer;

/// Fills memory with numbers of the type, and zeros where a layout pads.
GuardedBuffer filled(const TensorDesc& tensor) {
  const TensorDesc plain{tensor.dims, DataType::f32, nullptr};
  const std::int64_t count = element_count(tensor.dims);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 977) * 0.37F - 150;
  GuardedBuffer buffer(tensor.bytes());
  std::byte* pointers[] = {reinterpret_cast<std::byte*>(values.data()), buffer.data()};
  cpu::onednn::prepare(Reorder{plain, tensor}, {})->run(pointers, nullptr, nullptr);
  return buffer;
}

/// Checks that our own code does a reorder, and with the library's result.
void check(const TensorDesc& from, const TensorDesc& to) {
  INFO(to_string(from.dims) << " " << to_string(from.type) << " " << from.layout_name() << " to "
                            << to_string(to.type) << " " << to.layout_name());
  const Reorder op{from, to};
  const cpu::Prepared ours = cpu::prepare(op, {}), theirs = cpu::onednn::prepare(op, {});
  CHECK(ours->algorithm() == "own");
  GuardedBuffer source = filled(from), expected(to.bytes()), result(to.bytes());
  std::byte* pointers[] = {source.data(), expected.data()};
  theirs->run(pointers, nullptr, nullptr);
  pointers[1] = result.data();
  ours->run(pointers, nullptr, nullptr);
  CHECK(result.intact());
  CHECK(result.copy() == expected.copy());
}

}  // namespace

TEST_CASE("activations are reordered between plain and blocks of 16 channels as the library does") {
  for (const DataType type : {DataType::f32, DataType::bf16})
    for (const Dims& dims : {Dims{1, 1, 1, 1}, Dims{3, 16, 4, 4}, Dims{2, 20, 7, 7}, Dims{5, 70, 3, 11},
                             Dims{33, 64, 5, 5}, Dims{0, 16, 2, 2}, Dims{2, 16, 1, 1}}) {
      const TensorDesc plain{dims, type, nullptr}, blocked = cpu::blocked_activations(dims, 16, type);
      check(plain, blocked);
      check(blocked, plain);
    }
}

TEST_CASE("weights of inner products are rounded to bf16 as the library does") {
  if (instruction_set() < InstructionSet::avx512_core_bf16)
    return test::skip("this processor has no AVX512_BF16");
  using Tag = dnnl::memory::format_tag;
  for (const Dims& dims : {Dims{64, 16}, Dims{256, 3136}, Dims{100, 70}, Dims{1, 1}, Dims{10, 500}}) {
    const auto in = [&](dnnl::memory::data_type type, Tag tag) {
      return cpu::from_dnnl(dnnl::memory::desc(dims, type, tag), dims);
    };
    check(in(dnnl::memory::data_type::f32, Tag::AB16b64a), in(dnnl::memory::data_type::bf16, Tag::AB8b64a2b));
  }
}

}  // namespace convnet::rearrange_test
