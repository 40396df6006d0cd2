#include "tests/kernels/op_cases.h"

#include <omp.h>

#include <algorithm>
#include <set>
#include <span>
#include <variant>

#include "kernels/cpu/own_kernels.h"
#include "tests/catch.h"
#include "tests/kernels/op_runner.h"

namespace convnet::op_cases_test {
using namespace test;

namespace {

/// Returns an operation as our own kernels prepare it for `threads` threads; null if only oneDNN has it.
cpu::Prepared own_kernel(const OpDesc& op, int threads) {
  const cpu::OwnKernels& own = cpu::own_kernels(use_instruction_set());
  const int before = omp_get_max_threads();
  omp_set_num_threads(threads);
  cpu::Prepared prepared = own.prepare_winograd(op, DataType::f32);
  if (!prepared) prepared = own.prepare_direct(op, DataType::f32);
  if (const auto* reorder = std::get_if<Reorder>(&op)) prepared = own.prepare_reorder(*reorder);
  const bool is_own =
      std::visit([]<class Op>(const Op&) { return !cpu::OnednnOp<Op>; }, static_cast<const AnyOp&>(op));
  if (is_own) prepared = own.prepare(op, LayoutHints(arguments(op).size()), DataType::f32);
  omp_set_num_threads(before);
  return prepared;
}

/// Returns the values of every argument that the operation reads.
std::vector<Values> inputs_of(const OpCase& c) {
  std::vector<Values> inputs;
  for (const Argument& arg : arguments(c.op)) {
    const std::size_t i = inputs.size();
    const bool given = i < c.inputs.size() && !c.inputs[i].empty();
    inputs.push_back(arg.access == Access::write ? Values()
                     : given                     ? c.inputs[i]
                                                 : test_values(arg.dims, static_cast<unsigned>(i)));
  }
  return inputs;
}

}  // namespace

TEST_CASE("every operation has a case in the table", "[ops]") {
  std::set<std::size_t> seen;
  for (const OpCase& c : op_cases()) seen.insert(c.op.index());
  for (std::size_t i = 0; i < std::variant_size_v<AnyOp>; ++i) {
    INFO("alternative " << i << " of AnyOp");
    CHECK(seen.contains(i));
  }
}

TEST_CASE("every argument of the table's cases has a name, and values of its size", "[ops]") {
  for (const OpCase& c : op_cases()) {
    const std::vector<Argument> args = arguments(c.op);
    INFO(op_name(c.op));
    REQUIRE(c.inputs.size() <= args.size());
    for (std::size_t i = 0; i < args.size(); ++i) {
      if (args[i].name.empty()) FAIL("argument " << i);
      if (i < c.inputs.size() && !c.inputs[i].empty() &&
          std::ssize(c.inputs[i]) != element_count(args[i].dims))
        FAIL(args[i].name << " has " << c.inputs[i].size() << " values");
    }
  }
}

TEST_CASE("own kernels that are prepared for four threads give the same bits in a team of one", "[ops]") {
  const int levels = omp_get_max_active_levels();
  int checked = 0;
  for (const OpCase& c : op_cases()) {
    if (!c.raw.empty() || c.in_place) continue;
    const cpu::Prepared prepared = own_kernel(c.op, 4);
    if (!prepared) continue;
    INFO(op_name(c.op));
    const Results in_four = run_plain(c.op, *own_kernel(c.op, 4), inputs_of(c));
    omp_set_max_active_levels(0);  // all teams have one thread
    const Results alone = run_plain(c.op, *prepared, inputs_of(c));
    omp_set_max_active_levels(levels);
    for (std::size_t i = 0; i < alone.size(); ++i) {
      REQUIRE(alone[i].size() == in_four[i].size());  // compared as bits: there may be NaN
      CHECK(std::ranges::equal(std::as_bytes(std::span(alone[i])), std::as_bytes(std::span(in_four[i]))));
    }
    ++checked;
  }
  CHECK(checked > 40);
}

}  // namespace convnet::op_cases_test
