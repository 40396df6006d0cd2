// How long the program's threads wait for each other.
#include "tests/catch.h"
#include "tests/cli/small_net.h"
#include "tests/environment.h"

namespace convnet {
using test::Setting;

TEST_CASE("threads spin for a short time, unless the environment says how they wait") {
  const Workshop shop;
  shop.write_data();
  const auto environment_of_run = [&](const std::string& folder) {
    Program run(shop.mnist() + Args{"--save-file", shop / folder});
    REQUIRE(run.printed("Devices:", 1));
    return run.environment();
  };
  const Setting policy("OMP_WAIT_POLICY", {});
  {
    const Setting none("GOMP_SPINCOUNT", {});
    CHECK_THAT(environment_of_run("a"), Catch::Contains("GOMP_SPINCOUNT=5000"));
    const Setting active("OMP_WAIT_POLICY", "active");
    CHECK_THAT(environment_of_run("b"), !Catch::Contains("GOMP_SPINCOUNT"));
  }
  const Setting own("GOMP_SPINCOUNT", "77");
  CHECK_THAT(environment_of_run("c"), Catch::Contains("GOMP_SPINCOUNT=77"));
}

}  // namespace convnet
