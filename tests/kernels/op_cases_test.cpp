#include "tests/kernels/op_cases.h"

#include <set>
#include <variant>

#include "tests/catch.h"

using namespace convnet;
using namespace convnet::test;

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
