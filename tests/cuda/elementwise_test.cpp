#include "kernels/cuda/layout.h"
#include "tests/catch.h"
#include "tests/cuda/run_prepared.h"

using namespace convnet;
using namespace convnet::test;

TEST_CASE("parts of tensors begin and end anywhere", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::bf16);
  for (const DataType type : {DataType::f32, DataType::bf16})
    for (const std::int64_t count : {1, 7, 8, 31, 80})
      for (const std::int64_t skipped : {0, 1, 4}) {
        const Dims dims{1, count};
        const TensorDesc tensor{dims, type, nullptr}, other{dims, DataType::f32, nullptr};
        for (const OpDesc& op : std::vector<OpDesc>{Accumulate{dims}, NeuronForward{{NeuronKind::abs}, dims},
                                                    NeuronBackward{{NeuronKind::relu}, dims},
                                                    EltwiseSum{dims, {2, -1}}, EltwiseSum{dims, {2, -1, 3}},
                                                    Reorder{tensor, other}, Reorder{other, tensor}}) {
          INFO(op_name(op) << " of " << count << " behind " << skipped << " " << to_string(type));
          const auto prepared = prepared_for_test(*backend, op, LayoutHints(arguments(op).size(), tensor));
          if (!std::holds_alternative<Reorder>(op)) REQUIRE(prepared->args().back().type == type);
          const Results whole = run_prepared(*backend, op, *prepared);
          CHECK(run_prepared(*backend, op, *prepared, {}, skipped) == whole);
        }
      }
}

TEST_CASE("reorders between types and layouts move every element", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::bf16);
  // The last ones are transposed in squares, of which those at the borders are not full.
  for (const Dims& dims : {Dims{2, 3, 4, 5}, Dims{3, 8, 2, 3}, Dims{2, 1, 3, 5}, Dims{2, 3, 1, 1},
                           Dims{2, 33, 6, 5}, Dims{3, 70, 9, 8}, Dims{1, 128, 8, 16}})
    for (const DataType from : {DataType::f32, DataType::bf16})
      for (const DataType to : {DataType::f32, DataType::bf16})
        for (const bool from_last : {false, true})
          for (const bool to_last : {false, true}) {
            const auto tensor = [&](DataType type, bool last) {
              return last ? cuda::channels_last(dims, type) : TensorDesc{dims, type, nullptr};
            };
            const Reorder op{tensor(from, from_last), tensor(to, to_last)};
            INFO(to_string(dims) << " " << op.from.layout_name() << " " << to_string(from) << " to "
                                 << op.to.layout_name() << " " << to_string(to));
            const Results results =
                run_prepared(*backend, op, *prepared_for_test(*backend, op, LayoutHints(2)));
            CHECK(results[1] == unpacked(packed(results[0], to), to));
          }
}

TEST_CASE("elements have places in tensors of any size", "[cuda]") {
  std::int64_t wrong = 0;
  for (const bool last : {false, true})
    for (const cuda::View& view : {cuda::View(3, 7, 5, 4, last),
                                   {1, 1, 1, 1, last},
                                   {9, 70000, 300, 300, last},
                                   {5, 3, 40000, 40000, last}}) {
      const std::int64_t size = view.size(), step = size > 1000 ? size / 1000 : 1;
      for (std::int64_t i = 0; i < size; i += step)
        for (const std::int64_t at : {i, size - 1 - i}) {
          const cuda::View::Place p = view.place(at);
          const cuda::Quotient row = view.row(p.s);
          wrong += view.index(p.n, p.c, row.value, row.rest) != at || p.n >= view.n || p.c >= view.c ||
                   row.value >= view.h || row.rest >= view.w;
        }
    }
  CHECK(wrong == 0);
}

TEST_CASE("layouts of the CUDA backend hold the same values", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::fp32);
  const Dims dims{2, 3, 4, 5};
  const TensorDesc plain{dims, DataType::f32, nullptr}, last = cuda::channels_last(dims);
  REQUIRE_FALSE(last.plain());
  std::vector<float> values(120), moved(120);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  backend->relay(plain, reinterpret_cast<const std::byte*>(values.data()), last,
                 reinterpret_cast<std::byte*>(moved.data()));
  CHECK(moved[0] == 0);
  CHECK(moved[1] == 20);  // the second channel of the first pixel
  CHECK(moved[3] == 1);   // the second pixel
}

TEST_CASE("the destination of a sum may be one of its sources", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::fp32);
  constexpr std::int64_t kCount = 1000;
  // A launch has room for one source of the second run only.
  const SumRuns op{{{kCount, 191}, {kCount, 3}}};
  const std::size_t args = arguments(op).size(), own = 193;
  for (const std::size_t own_source : {1, 2, 3}) {
    std::vector<std::unique_ptr<DeviceMemory>> memory;
    std::vector<std::byte*> pointers;
    for (std::size_t i = 0; i < args; ++i) {
      const Values values = test_values({kCount}, static_cast<std::uint32_t>(i));
      const std::vector<std::byte> bytes = packed(values, DataType::f32);
      memory.push_back(backend->allocate(test_device(), std::ssize(bytes)));
      backend->copy(memory.back()->data(), bytes.data(), std::ssize(bytes));
      pointers.push_back(memory.back()->data());
    }
    const auto value = [&](std::size_t source, std::size_t i) {
      return test_values({kCount}, static_cast<std::uint32_t>(own - 1 + source))[i];
    };
    pointers[own - 1] = pointers[own - 1 + own_source];
    const auto prepared = prepared_for_test(*backend, op, LayoutHints(args));
    const auto queue = backend->make_queue(test_device());
    prepared->run(pointers, nullptr, queue.get());
    const auto mark = queue->mark();
    while (!mark->reached()) {
    }
    std::vector<std::byte> bytes(static_cast<std::size_t>(kCount) * sizeof(float));
    backend->copy(bytes.data(), pointers[own - 1], std::ssize(bytes));
    const Values sums = unpacked(bytes, DataType::f32);
    for (const std::size_t i : {std::size_t{0}, std::size_t{7}, sums.size() - 1})
      CHECK(std::abs(sums[i] - (value(1, i) + value(2, i) + value(3, i))) < 1e-6);
  }
}

TEST_CASE("a sum of too many sources for a launch is not made in place", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::fp32);
  const SumRuns op{{{1, 193}}};
  const auto memory = backend->allocate(test_device(), 4);
  const std::vector<std::byte*> same(194, memory->data());
  const auto prepared = prepared_for_test(*backend, op, LayoutHints(same.size()));
  const auto queue = backend->make_queue(test_device());
  CHECK_THROWS_WITH(prepared->run(same, nullptr, queue.get()), Catch::Contains("one of 193 sources"));
}
