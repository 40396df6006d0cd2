#include "convnet/base/names.h"

#include <algorithm>
#include <random>

#include "tests/catch.h"

using namespace convnet;

namespace {

/// The optimal string alignment, by its definition.
std::size_t plain_distance(std::string_view a, std::string_view b) {
  if (a.empty() || b.empty()) return std::max(a.size(), b.size());
  const std::string_view a1 = a.substr(1), b1 = b.substr(1);
  std::size_t found = std::min({plain_distance(a1, b1) + (a[0] == b[0] ? 0 : 1), plain_distance(a1, b) + 1,
                                plain_distance(a, b1) + 1});
  if (!a1.empty() && !b1.empty() && a[0] == b[1] && a[1] == b[0])
    found = std::min(found, plain_distance(a1.substr(1), b1.substr(1)) + 1);
  return found;
}

}  // namespace

TEST_CASE("nearest counts edits as their definition does") {
  std::mt19937 random(1);
  const auto word = [&] {
    std::string letters(random() % 6, ' ');
    for (char& letter : letters) letter = static_cast<char>('a' + random() % 3);
    return letters;
  };
  for (int i = 0; i < 3000; ++i) {
    const std::string a = word(), b = word() + "x";
    INFO(a + " " + b);
    for (int edits = 0; edits < 4; ++edits)
      CHECK(nearest(a, {b}, edits) == (plain_distance(a, b) <= static_cast<std::size_t>(edits) ? b : ""));
  }
}

TEST_CASE("nearest finds the closest candidate") {
  const std::vector<std::string> keys = {"filters", "filterSize", "stride", "padding"};
  CHECK(nearest("fliterSize", keys) == "filterSize");
  CHECK(nearest("stirde", keys) == "stride");
  CHECK(nearest("STRIDES", keys) == "stride");
  CHECK(nearest("padding", keys) == "padding");
  CHECK(nearest("padd", keys) == "");
  CHECK(nearest("stirde", keys, 1) == "stride");
  CHECK(nearest("strat", {"start"}, 1) == "start");
  CHECK(nearest("kepe", {"keep"}, 1) == "keep");
  CHECK(nearest("ab", {"ba"}, 1) == "ba");
  CHECK(nearest("stidre", keys, 1) == "");
  CHECK(nearest("tsirde", keys) == "stride");
  CHECK(nearest("tsirde", keys, 1) == "");
  CHECK(nearest("strde", keys, 1) == "stride");
  CHECK(nearest("stride", keys, 0) == "stride");
  CHECK(nearest("", keys) == "");
  CHECK(nearest("x", {}) == "");
  CHECK(nearest("bat", {"cat", "rat", "bat"}) == "bat");
  CHECK(nearest("hat", {"cat", "rat"}) == "cat");
  CHECK(nearest(std::string(100000, 'a'), keys) == "");
}

TEST_CASE("the names of other programs stand for ours") {
  const std::vector<std::string> keys = {"filters", "filterSize", "stride", "padding", "fp32", "bf16"};
  CHECK(nearest("kernel_size", keys) == "filterSize");
  CHECK(nearest("KernelSize", keys) == "filterSize");
  CHECK(nearest("kernel-size", keys) == "filterSize");
  CHECK(nearest("pad", keys) == "padding");
  CHECK(nearest("weightDecay", {"wc", "wball"}) == "wc");
  CHECK(nearest("weight_decay", {"wc", "wball"}) == "wc");
  CHECK(nearest("LearningRate", {"epsW", "epsB"}) == "epsW");
  CHECK(nearest("activation", {"neuron", "inputs"}) == "neuron");
  CHECK(nearest("_", keys) == "");
  CHECK(nearest("fp16", keys) == "bf16");
  CHECK(nearest("fp16", keys, 0) == "");
  CHECK(usual_name("fp16", {"fp32"}) == "");
  CHECK(usual_name("filters", keys) == "");
  CHECK(did_you_mean("swish", {"relu", "silu"}) == "; did you mean 'silu'?");
}

TEST_CASE("short words have fewer typing mistakes") {
  CHECK(typing_edits("steps") == 1);
  CHECK(typing_edits("stride") == 2);
}

TEST_CASE("join") {
  CHECK(join({}) == "");
  CHECK(join({"a"}) == "a");
  CHECK(join({"a", "b", "c"}) == "a, b, c");
  CHECK(join({"a", "b"}, "\n") == "a\nb");
}
