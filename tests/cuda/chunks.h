// Operations of the CUDA backend that are computed in chunks.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/chunked.h"
#include "tests/cuda/run_prepared.h"

namespace convnet::test {

/// Checks that an operation computes the same in chunks of each of these numbers of pieces as in one chunk,
/// up to `tolerance`. A piece, like an image, takes `piece_bytes` of the memory for columns.
template <class Op>
void check_chunks(const Backend& backend, const Op& op, std::int64_t piece_bytes,
                  const std::vector<std::int64_t>& pieces, double tolerance) {
  const cuda::Context context{Precision::fp32, 0, nullptr};
  for (const bool last : {false, true}) {
    const OpForm form = backend.target().form(op, hints_for(op, last));
    const auto prepare = [&](std::int64_t most) { return cuda::prepare_in_chunks(op, form, context, most); };
    const Results expected = run_prepared(backend, op, *prepare(cuda::kMostColumnBytes));
    for (const std::int64_t count : pieces) {
      const auto prepared = prepare(count * piece_bytes);
      const Results actual = run_prepared(backend, op, *prepared);
      for (std::size_t i = 0; i < actual.size(); ++i)
        CHECK(relative_error(actual[i], expected[i]) <= tolerance);
    }
  }
}

/// Checks that results are rounded to bf16 once, in however many pieces they are computed: only sums that lie
/// between two numbers may be rounded to either.
template <class Op>
void check_rounded_once(const Op& op, std::int64_t piece_bytes, const std::vector<std::int64_t>& pieces) {
  const auto backend = make_cuda_backend(Precision::bf16);
  const cuda::Context context{Precision::bf16, 0, nullptr};
  const OpForm form = backend->target().form(op, hints_for(op, true));
  const auto run = [&](std::int64_t most) {
    const Results results = run_prepared(*backend, op, *cuda::prepare_in_chunks(op, form, context, most));
    return results.at(2);
  };
  const Values expected = run(cuda::kMostColumnBytes);
  REQUIRE(expected.size() > 100);
  for (const std::int64_t count : pieces) {
    const Values actual = run(count * piece_bytes);
    std::int64_t other = 0;
    for (std::size_t i = 0; i < actual.size(); ++i) other += actual[i] != expected[i] ? 1 : 0;
    CHECK(100 * other <= std::ssize(actual));
  }
}

}  // namespace convnet::test
