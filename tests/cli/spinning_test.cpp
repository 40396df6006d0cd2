// How long the program's threads wait for each other.
#include <cstdlib>
#include <optional>

#include "tests/catch.h"
#include "tests/cli/small_net.h"

namespace convnet {
namespace {

/// Gives a variable another value, or none, for as long as it lives.
class Variable {
 public:
  Variable(const char* name, const std::optional<std::string>& value) : name_(name) {
    if (const char* before = std::getenv(name); before != nullptr) before_ = before;
    set(value);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { set(before_); }

 private:
  void set(const std::optional<std::string>& value) const {
    if (value)
      setenv(name_, value->c_str(), 1);
    else
      unsetenv(name_);
  }
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace

TEST_CASE("threads spin for a short time, unless the environment says how they wait") {
  const Workshop shop;
  shop.write_data();
  const auto environment_of_run = [&](const std::string& folder) {
    Program run(shop.mnist() + Args{"--save-file", shop / folder});
    REQUIRE(run.printed("Devices:", 1));
    return run.environment();
  };
  const Variable policy("OMP_WAIT_POLICY", {});
  {
    const Variable none("GOMP_SPINCOUNT", {});
    CHECK_THAT(environment_of_run("a"), Catch::Contains("GOMP_SPINCOUNT=5000"));
    const Variable active("OMP_WAIT_POLICY", "active");
    CHECK_THAT(environment_of_run("b"), !Catch::Contains("GOMP_SPINCOUNT"));
  }
  const Variable own("GOMP_SPINCOUNT", "77");
  CHECK_THAT(environment_of_run("c"), Catch::Contains("GOMP_SPINCOUNT=77"));
}

}  // namespace convnet
