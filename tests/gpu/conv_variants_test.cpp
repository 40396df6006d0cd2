// Every way in which the CUDA backend can have cuDNN do a convolution, beside the CPU. Which one a run takes
// is decided by timing, so this test puts each into the file of choices.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/cuda/sizes.h"
#include "tests/catch.h"
#include "tests/cuda/run_prepared.h"
#include "tests/environment.h"
#include "tests/temp_folder.h"

using namespace convnet;
using namespace convnet::test;

namespace {

/// The file of choices, which timing one operation has made.
std::filesystem::path only_file(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".json") return entry.path();
  FAIL("no choice was kept in " << folder);
  return {};
}

double allowed(Precision precision) {
  switch (precision) {
    case Precision::fp32: return 1e-5;
    case Precision::tf32: return 2e-3;
    case Precision::bf16: break;
  }
  return 2e-2;
}

/// Few channels and asymmetric borders, the latter also with as many channels as engines like, and with
/// rectangular and dilated filters.
std::vector<ConvGeometry> geometries() {
  return {conv(4, 3, 30, 30, 16, 11, 4, 2), conv(4, 3, 14, 14, 16, 7, 2, 3), conv(4, 16, 14, 14, 16, 3, 2, 1),
          conv(4, 16, 14, 14, 16, {1, 7}, {2, 1}, {0, 3}),
          conv(4, 16, 15, 14, 16, 3, 2, 2, 1, false, {1, 2})};
}

/// Computes `op` in every way, and adds to `seen` those that the library can do.
template <class Op>
void check_ways(const Op& op, std::set<std::string>& seen) {
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
    const TempFolder folder;
    const Setting cache("CONVNET_CACHE", folder.path()), tuning("CONVNET_TUNING", {});
    const auto prepared_now = [&](const Backend& backend) {
      return prepared_for_test(backend, op, LayoutHints(arguments(op).size()));
    };
    {
      const auto backend = make_cuda_backend(precision);
      prepared_now(*backend);
    }
    const std::filesystem::path file = only_file(folder.path());
    std::ifstream in(file);
    const auto choices = nlohmann::json::parse(in);
    REQUIRE(choices.size() == 1);
    for (const std::string way : {"plain", "fused"})
      for (const std::string images : {"", "+padded", "+blocks"}) {
        // The backend would time all engines again for a way that does not exist.
        const bool forward = op.name().starts_with("conv.forward");
        const bool backward_data = op.name() == "conv.backward_data";
        const bool asymmetric = !cuda::symmetric(op.g), few = cuda::has_few_channels(op.g);
        if ((way == "fused" && !forward) || (images == "+padded" && !asymmetric) ||
            (images == "+blocks" && (!few || backward_data)))
          continue;
        const std::string choice = way + images + ":0";
        std::ofstream(file) << nlohmann::json({{choices.begin().key(), choice}});
        const auto backend = make_cuda_backend(precision);
        const auto prepared = prepared_now(*backend);
        if (prepared->algorithm() != choice) continue;  // the library does not do that
        INFO(op.name() << " " << to_string(precision) << " " << choice);
        seen.insert(way + images);
        const std::vector<Values> inputs = stored_inputs(op, *prepared);
        const Results actual = run_prepared(*backend, op, *prepared, inputs);
        const Results expected = run_plain(op, inputs);
        for (std::size_t i = 0; i < actual.size(); ++i)
          CHECK(relative_error(actual[i], expected[i]) <= allowed(precision));
      }
  }
}

}  // namespace

// A case for each pass: finding the fastest engines takes tens of seconds, which processes can share.

TEST_CASE("convolutions forward agree with the CPU in every way of doing them", "[cuda][cudnn]") {
  std::set<std::string> seen;
  for (const ConvGeometry& g : geometries()) check_ways(ConvForward{g, true, false, true}, seen);
  CHECK(seen.contains("plain+blocks"));
  CHECK(seen.contains("plain+padded"));
}

TEST_CASE("gradients of convolutions' inputs agree with the CPU in every way of doing them",
          "[cuda][cudnn]") {
  std::set<std::string> seen;
  for (const ConvGeometry& g : geometries())
    if (g.c == 16) check_ways(ConvBackwardData{g}, seen);
  CHECK(seen.contains("plain+padded"));
}

TEST_CASE("gradients of convolutions' weights agree with the CPU in every way of doing them",
          "[cuda][cudnn]") {
  std::set<std::string> seen;
  for (const ConvGeometry& g : geometries()) check_ways(ConvBackwardWeights{g, true}, seen);
  CHECK(seen.contains("plain+blocks"));
  CHECK(seen.contains("plain+padded"));
}
