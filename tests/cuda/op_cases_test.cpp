// Every case of the table that the tests of all backends share, on both backends: a test case for each
// operation, so that one that breaks the process hides no other. Those that cuDNN does have the tag [cudnn].
#include <array>
#include <set>
#include <string>
#include <utility>

#include "tests/catch.h"
#include "tests/cuda/both_backends.h"
#include "tests/every_case.h"

using namespace convnet::test;

namespace {

/// The names of all operations of the table.
constexpr std::array kOperations = {"accumulate",
                                    "any_non_finite",
                                    "average",
                                    "bce.backward",
                                    "bce.forward",
                                    "bias.backward",
                                    "bias.forward",
                                    "blur",
                                    "bnorm.backward_data",
                                    "bnorm.backward_data+relu",
                                    "bnorm.backward_data+sum",
                                    "bnorm.backward_data+sum+relu",
                                    "bnorm.backward_weights",
                                    "bnorm.backward_weights+relu",
                                    "bnorm.forward",
                                    "bnorm.forward+relu",
                                    "bnorm.forward+sum",
                                    "bnorm.forward+sum+relu",
                                    "bnorm.merge",
                                    "bnorm.moments",
                                    "bnorm.track",
                                    "cmpool.backward",
                                    "cmpool.forward",
                                    "cmrnorm.backward",
                                    "cmrnorm.forward",
                                    "cnorm.backward",
                                    "cnorm.forward",
                                    "concat",
                                    "constrain",
                                    "conv.backward_data",
                                    "conv.backward_weights",
                                    "conv.forward",
                                    "conv.forward+relu",
                                    "copy",
                                    "crossent.backward",
                                    "crossent.forward",
                                    "dce.forward",
                                    "dropout",
                                    "eltmax.backward",
                                    "eltmax.forward",
                                    "eltmul",
                                    "eltmul.maps",
                                    "eltmul.sums",
                                    "eltsum",
                                    "inner_product.backward_data",
                                    "inner_product.backward_weights",
                                    "inner_product.forward",
                                    "inner_product.forward+relu",
                                    "load",
                                    "local.backward_data",
                                    "local.backward_weights",
                                    "local.forward",
                                    "local.forward+relu",
                                    "logistic+bce.backward",
                                    "logreg.backward",
                                    "logreg.forward",
                                    "neuron.backward",
                                    "neuron.forward",
                                    "nrelu.forward",
                                    "pool.backward",
                                    "pool.forward",
                                    "pool.forward+relu",
                                    "reorder",
                                    "resize",
                                    "rgb2lab",
                                    "rgb2yuv",
                                    "rnorm.backward",
                                    "rnorm.forward",
                                    "rscale",
                                    "sample.backward",
                                    "sample.forward",
                                    "scale",
                                    "softmax+crossent.backward",
                                    "softmax+logreg.backward",
                                    "softmax.backward",
                                    "softmax.forward",
                                    "split",
                                    "sum",
                                    "sum.backward",
                                    "sum.forward",
                                    "sum2.backward",
                                    "sum2.forward",
                                    "take_maps",
                                    "update",
                                    "update.scales",
                                    "update.squares",
                                    "views.average",
                                    "zero"};

const std::vector<OpCase>& table() {
  static const std::vector<OpCase> cases = op_cases();
  return cases;
}

template <std::size_t Index>
void check_operation() {
  BothBackends backends;
  const int every = every_case();
  int number = 0;
  for (const OpCase& c : table())
    if (op_name(c.op) == kOperations[Index] && number++ % every == 0) backends.check(c);
}

/// Adds a test case for an operation, as TEST_CASE does.
template <std::size_t Index>
bool add_test_case() {
  const std::string operation = kOperations[Index];
  const std::string name = operation + " on both backends";
  const std::string tags = operation.starts_with("conv.") ? "[cuda][cudnn]" : "[cuda]";
  const Catch::AutoReg added(Catch::makeTestInvoker(&check_operation<Index>), CATCH_INTERNAL_LINEINFO,
                             Catch::StringRef(), Catch::NameAndTags(name, tags));
  return true;
}

const bool kAdded = []<std::size_t... Index>(std::index_sequence<Index...>) {
  return (add_test_case<Index>() && ...);
}
(std::make_index_sequence<kOperations.size()>());

}  // namespace

TEST_CASE("every operation of the table has a test case on both backends", "[cuda]") {
  REQUIRE(kAdded);
  std::set<std::string> expected;
  for (const OpCase& c : table()) expected.insert(op_name(c.op));
  CHECK(std::set<std::string>(kOperations.begin(), kOperations.end()) == expected);
}
