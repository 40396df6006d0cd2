#include <stdexcept>

#include "tests/catch.h"
#include "tests/cuda/run_prepared.h"

using namespace convnet;
using namespace convnet::test;

TEST_CASE("concat and split take every argument as it lies", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::fp32);
  const Dims one{2, 3, 4, 5}, two{2, 6, 4, 5};
  for (const OpDesc& op : {OpDesc(Concat{{one, one}, two}), OpDesc(Split{two, {{one, 47}, {one, 0}}})}) {
    const LayoutHints plain = hints_for(op, false), last = hints_for(op, true);
    const Results expected = run_prepared(*backend, op, *prepared_for_test(*backend, op, plain));
    for (unsigned mix = 1; mix < 1U << plain.size(); ++mix) {
      LayoutHints hints;
      for (std::size_t i = 0; i < plain.size(); ++i)
        hints.push_back(((mix >> i) & 1U) != 0 ? last[i] : plain[i]);
      const auto prepared = prepared_for_test(*backend, op, hints);
      for (std::size_t i = 0; i < hints.size(); ++i) CHECK(same_layout(prepared->args()[i], *hints[i]));
      CHECK(run_prepared(*backend, op, *prepared) == expected);
    }
  }
}

TEST_CASE("concat and split copy f32 and bf16, by vectors where these lie beside each other", "[cuda]") {
  struct Case {
    Dims one, other, whole;
    std::int64_t offset;  ///< of the other
  };
  // Maps of whole vectors and others, images as one vector, parts that begin within a vector or a map.
  for (const Case& c : {Case{{2, 8, 3, 5}, {2, 16, 3, 5}, {2, 24, 3, 5}, 120},
                        {{2, 8, 3, 5}, {2, 12, 3, 5}, {2, 20, 3, 5}, 120},
                        {{2, 4, 3, 5}, {2, 12, 3, 5}, {2, 16, 3, 5}, 60},
                        {{2, 3, 4, 4}, {2, 5, 4, 4}, {2, 8, 4, 4}, 48},
                        {{3, 8}, {3, 24}, {3, 32}, 8},
                        {{3, 7}, {3, 9}, {3, 16}, 7},
                        {{2, 8}, {2, 2, 2, 2}, {2, 16}, 8}}) {
    INFO(to_string(c.one) << " and " << to_string(c.other));
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      const auto backend = make_cuda_backend(precision);
      const DataType type = precision == Precision::bf16 ? DataType::bf16 : DataType::f32;
      for (const OpDesc& op : {OpDesc(Concat{{c.one, c.other}, c.whole}),
                               OpDesc(Split{c.whole, {{c.other, c.offset}, {c.one, 0}}})}) {
        Results results[2];
        for (const bool last : {false, true}) {
          LayoutHints hints;
          for (const Argument& arg : arguments(op))
            hints.push_back(last ? cuda::channels_last(arg.dims, type) : TensorDesc{arg.dims, type, nullptr});
          const auto prepared = prepared_for_test(*backend, op, hints);
          for (const TensorDesc& arg : prepared->args()) CHECK(arg.type == type);
          const std::vector<Values> inputs = stored_inputs(op, *prepared);
          results[last ? 1 : 0] = run_prepared(*backend, op, *prepared, inputs);
          const Results expected = run_plain(op, inputs);
          CHECK(results[last ? 1 : 0] == expected);
        }
        // What has two types is not rounded.
        LayoutHints mixed;
        for (const Argument& arg : arguments(op)) mixed.push_back(TensorDesc{arg.dims, type, nullptr});
        mixed[0]->type = DataType::f32;
        mixed[1]->type = type;
        CHECK(prepared_for_test(*backend, op, mixed)->args()[0].type == DataType::f32);
      }
    }
  }
}

TEST_CASE("concat and split of the CUDA backend that do not fit are bugs", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::fp32);
  CHECK_THROWS_AS(prepared_for_test(*backend, Concat{{{2, 3}, {2, 4}}, {2, 8}}, {}), std::logic_error);
  CHECK_THROWS_AS(prepared_for_test(*backend, Split{{2, 8}, {{{2, 3}, 6}}}, {}), std::logic_error);
  CHECK_THROWS_AS(prepared_for_test(*backend, Split{{2, 8}, {{{2, 3}, -1}}}, {}), std::logic_error);
}
