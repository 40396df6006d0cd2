// Every case of the table that the tests of all backends share, on both backends: a test case for each
// operation, so that one that breaks the process hides no other. Those that cuDNN does have the tag [cudnn].
// With $CONVNET_CASES = "smallest", as under tools that make a GPU a hundred times slower, only those of
// smallest_cases.h run.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "tests/catch.h"
#include "tests/cuda/both_backends.h"
#include "tests/cuda/smallest_cases.h"
#include "tests/every_case.h"
#if defined(CONVNET_CUDA_EMULATED)
#include "tests/cuda/emulation.h"
#endif

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
                                    "bnorm.backward_data+brelu",
                                    "bnorm.backward_data+leaky",
                                    "bnorm.backward_data+hswish",
                                    "bnorm.backward_data+silu",
                                    "bnorm.backward_data+sum",
                                    "bnorm.backward_data+sum+relu",
                                    "bnorm.backward_data+sum+brelu",
                                    "bnorm.backward_data+sum+leaky",
                                    "bnorm.backward_data+sum+hswish",
                                    "bnorm.backward_data+sum+silu",
                                    "bnorm.backward_weights",
                                    "bnorm.backward_weights+mask",
                                    "bnorm.backward_weights+mask+relu",
                                    "bnorm.backward_weights+mask+brelu",
                                    "bnorm.backward_weights+mask+leaky",
                                    "bnorm.backward_weights+mask+hswish",
                                    "bnorm.backward_weights+mask+silu",
                                    "bnorm.backward_weights+relu",
                                    "bnorm.backward_weights+brelu",
                                    "bnorm.backward_weights+leaky",
                                    "bnorm.backward_weights+hswish",
                                    "bnorm.backward_weights+silu",
                                    "bnorm.backward_weights+sum",
                                    "bnorm.backward_weights+sum+mask",
                                    "bnorm.backward_weights+sum+mask+relu",
                                    "bnorm.backward_weights+sum+mask+brelu",
                                    "bnorm.backward_weights+sum+mask+leaky",
                                    "bnorm.backward_weights+sum+mask+hswish",
                                    "bnorm.backward_weights+sum+mask+silu",
                                    "bnorm.backward_weights+sum+relu",
                                    "bnorm.backward_weights+sum+brelu",
                                    "bnorm.backward_weights+sum+leaky",
                                    "bnorm.backward_weights+sum+hswish",
                                    "bnorm.backward_weights+sum+silu",
                                    "bnorm.forward",
                                    "bnorm.forward+relu",
                                    "bnorm.forward+brelu",
                                    "bnorm.forward+leaky",
                                    "bnorm.forward+hswish",
                                    "bnorm.forward+silu",
                                    "bnorm.forward+sum",
                                    "bnorm.forward+sum+relu",
                                    "bnorm.forward+sum+brelu",
                                    "bnorm.forward+sum+leaky",
                                    "bnorm.forward+sum+hswish",
                                    "bnorm.forward+sum+silu",
                                    "bnorm.merge",
                                    "bnorm.merge+track",
                                    "bnorm.moments",
                                    "bnorm.moments+track",
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

std::vector<const OpCase*> cases_of(const std::string& operation) {
  std::vector<const OpCase*> cases;
  for (const OpCase& c : table())
    if (op_name(c.op) == operation) cases.push_back(&c);
  return cases;
}

bool only_smallest() {
  const char* const text = std::getenv("CONVNET_CASES");
  return text != nullptr && std::string(text) == "smallest";
}

#if defined(CONVNET_CUDA_EMULATED)
std::int64_t elements(const OpCase& c) {
  std::int64_t sum = 0;
  for (const Argument& arg : arguments(c.op)) sum += element_count(arg.dims);
  return sum;
}

/// Returns the cases, by their place, that reach a kernel which no smaller one reaches.
std::vector<int> smallest(const std::vector<const OpCase*>& cases,
                          const std::vector<std::set<std::type_index>>& kernels) {
  std::vector<int> order(cases.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return elements(*cases[at(a)]) < elements(*cases[at(b)]); });
  std::set<std::type_index> reached;
  std::vector<int> kept;
  for (const int i : order) {
    const std::size_t before = reached.size();
    reached.insert(kernels[at(i)].begin(), kernels[at(i)].end());
    if (reached.size() > before) kept.push_back(i);
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

/// Returns the row of smallest_cases.h.
std::string row_of(const std::string& operation, const std::vector<int>& cases) {
  std::string text = "{\"" + operation + "\", {";
  for (std::size_t i = 0; i < cases.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(cases[i]);
  return text + "}},";
}
#endif

template <std::size_t Index>
void check_operation() {
  BothBackends backends;
  const std::string operation = kOperations[Index];
  const std::vector<const OpCase*> cases = cases_of(operation);
  if (only_smallest()) {
    if (const auto found = smallest_cases().find(operation); found != smallest_cases().end())
      for (const int i : found->second) backends.check(*cases.at(static_cast<std::size_t>(i)));
    return;
  }
  const auto every = static_cast<std::size_t>(every_case());
#if defined(CONVNET_CUDA_EMULATED)
  std::vector<std::set<std::type_index>> kernels;
  take_started_kernels();
#endif
  for (std::size_t i = 0; i < cases.size(); i += every) {
    backends.check(*cases[i]);
#if defined(CONVNET_CUDA_EMULATED)
    kernels.push_back(take_started_kernels());
#endif
  }
#if defined(CONVNET_CUDA_EMULATED)
  if (every > 1) return;
  const auto found = smallest_cases().find(operation);
  CHECK(row_of(operation, found == smallest_cases().end() ? std::vector<int>{} : found->second) ==
        row_of(operation, smallest(cases, kernels)));
#endif
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
