// Tables of options: groups, parts of groups, and what is said about wrong values.
#include "convnet/config/options.h"

#include <stdexcept>

#include "tests/catch.h"
#include "tests/temp_folder.h"

using namespace convnet;

namespace {

struct Paint {
  static constexpr OptionGroup group = OptionGroup::data;
  int layers = 1;
  bool glossy = false;
};
struct Wall {
  static constexpr OptionGroup group = OptionGroup::training;
  std::string name;
  Paint inside, outside;
};

OptionTable<Paint> paint_options(const std::string& prefix) {
  return OptionTable<Paint>({
      option(prefix + "layers", &Paint::layers, {.fallback = "1", .min = 1, .max = 9}),
      unsaved_option(prefix + "glossy", &Paint::glossy, {.fallback = "0"}),
  });
}

OptionTable<Wall> wall_options() {
  return OptionTable<Wall>()
      .add({option("name", &Wall::name, {.fallback = ""})})
      .add(&Wall::inside, paint_options("inside-"))
      .add(&Wall::outside, paint_options("outside-").only({"outside-layers"}));
}

}  // namespace

TEST_CASE("help lists an option where its struct says, or the option itself") {
  OptionTable<Wall> table = wall_options();
  table.add({of_original(option("height", &Wall::name, {.fallback = ""}))});
  std::vector<std::optional<OptionGroup>> groups;
  for (const OptionSpec& spec : table.specs()) groups.push_back(spec.group);
  using enum OptionGroup;
  CHECK(groups == std::vector<std::optional<OptionGroup>>{training, data, data, data, original});
}

TEST_CASE("options of a group are stored in the group") {
  const Wall wall = wall_options().parse(
      {{"name", "north"}, {"inside-glossy", ""}, {"outside-layers", "3"}, {"other", "x"}});
  CHECK(wall.name == "north");
  CHECK(wall.inside.layers == 1);
  CHECK(wall.inside.glossy);
  CHECK(wall.outside.layers == 3);
}

TEST_CASE("a table has its options in order, and only those of a group that it takes") {
  std::vector<std::string> keys, saved;
  const OptionTable<Wall> table = wall_options();
  for (const OptionSpec& spec : table.specs()) {
    keys.push_back(spec.param.key);
    if (spec.saved) saved.push_back(spec.param.key);
  }
  CHECK(keys == std::vector<std::string>{"name", "inside-layers", "inside-glossy", "outside-layers"});
  CHECK(saved == std::vector<std::string>{"name", "inside-layers", "outside-layers"});
  CHECK_FALSE(table.parse({{"outside-glossy", "1"}}).outside.glossy);
  CHECK_THROWS_AS(paint_options("").only({"layers", "colour"}), std::logic_error);
}

TEST_CASE("all wrong options are reported, one on each line") {
  const std::string message = message_of<InputError>([] {
    wall_options().parse({{"inside-layers", "0"}, {"inside-glossy", "very"}, {"outside-layers", "9"}});
  });
  CHECK(message ==
        "--inside-layers expects an integer between 1 and 9, not '0'\n"
        "--inside-glossy expects 0 or 1 (also true/false, yes/no, on/off), not 'very'");
}

TEST_CASE("missing options are listed with a hint") {
  CHECK_NOTHROW(require_options({{"a", ""}, {"b", ""}}, {"b"}, ""));
  CHECK(message_of<InputError>([] {
          require_options({{"b", ""}}, {"a", "b", "c"}, "; see --help");
        }) == "missing: --a, --c; see --help");
}
