// The tables of `convnet plan`.
#include "convnet/plan/print.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/catch.h"
#include "tests/plan/planned_net.h"

using namespace convnet;
using namespace convnet::test;

TEST_CASE("the rows of the table of links are in the order of devices, and the host is last") {
  PlannedNet net("lenet", true, false, 12);
  std::istringstream text(
      plan_text(plan_json(*net.plans, net.plan(Phase::train, 24), net.plan(Phase::test, 24), false)));
  std::string line;
  while (line != "bytes a step, from (down) to (across)") REQUIRE(std::getline(text, line));
  std::getline(text, line);  // the numbers of the columns
  std::vector<std::string> rows;
  for (std::string row; std::getline(text, line) && std::istringstream(line) >> row;) rows.push_back(row);
  CHECK(rows ==
        std::vector<std::string>{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "host"});
}
