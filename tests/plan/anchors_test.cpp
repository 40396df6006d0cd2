// Published measurements as tests of the simulator.
#include <regex>
#include <sstream>

#include "convnet/base/text_file.h"
#include "convnet/plan/simulate.h"
#include "tests/catch.h"
#include "tests/plan/planned_net.h"

using namespace convnet;
using namespace convnet::test;

namespace {

std::string text_of_config(const std::string& file) {
  return read_bytes(CONVNET_SOURCE_DIR "/configs/" + file + ".cfg", 1 << 20);
}

std::string replaced(const std::string& text, const std::string& old, const std::string& fresh) {
  return std::regex_replace(text, std::regex(old), fresh);
}

/// The predicted seconds of a step of alexnet-owt with 128 images a GPU: on one GPU, or on several by the
/// hybrid scheme with updates of the fully-connected layers after every `period` passes.
double step_seconds(const DeviceModel& machine, int gpus, int period, Routes routes) {
  std::string definition = text_of_config("alexnet-owt"), parameters = text_of_config("alexnet-owt-params");
  if (gpus > 1) {
    const std::string all = "gpu=0-" + std::to_string(gpus - 1);
    definition = replaced(text_of_config("alexnet-owt-4gpu-hybrid-auto"), "gpu=0,1,2,3", all);
    parameters = replaced(text_of_config("alexnet-owt-4gpu-hybrid-auto-params"), "updatePeriod=1",
                          "updatePeriod=" + std::to_string(period));
  }
  Diagnostics diagnostics;
  const std::vector<MatrixInfo> matrices = {{"data", {3, 224, 224}, DataType::u8, 0},
                                            {"labels", {1}, DataType::s32, 1000}};
  const Graph graph =
      build_graph(parse_ini("net.cfg", definition, diagnostics),
                  parse_ini("params.cfg", parameters, diagnostics), matrices, {}, diagnostics);
  diagnostics.throw_if_errors();
  PlanOptions options;
  options.mean = true;
  options.images = 128 * gpus;
  options.routes = routes;
  const auto target = make_cuda_target(Precision::fp32);
  PlanSet plans(graph, matrices, *target, options);
  return simulate(plans.plan(Phase::train, options.images), machine, Precision::fp32).step;
}

}  // namespace

TEST_CASE("published anchors: the hybrid scheme on K20 GPUs") {
  // arXiv 1404.5997, table 1: speed-ups over one GPU, with updates of the fully-connected layers once a
  // minibatch and after every 128 images. The predictions assume that a GPU reads activations from where they
  // were made, and does not compute while it communicates.
  DeviceModel machine = read_device_model(CONVNET_SOURCE_DIR "/bench/models/k20-pcie-8gpu.json");
  machine.concurrent_streams = false;
  const double one = step_seconds(machine, 1, 1, Routes::direct);
  struct Published {
    int gpus;
    double once, often;
  };
  for (const Published& published : {Published{2, 1.95, 1.93}, {4, 3.74, 3.66}, {8, 6.25, 6.16}}) {
    const int gpus = published.gpus;
    INFO(gpus << " GPUs");
    CHECK(gpus * one / step_seconds(machine, gpus, gpus, Routes::direct) ==
          Approx(published.once).epsilon(0.06));
    CHECK(gpus * one / step_seconds(machine, gpus, 1, Routes::direct) ==
          Approx(published.often).epsilon(0.06));
  }
}

TEST_CASE("relays and copies ahead hide most of the hybrid scheme's communication") {
  const DeviceModel k20 = read_device_model(CONVNET_SOURCE_DIR "/bench/models/k20-pcie-8gpu.json");
  const DeviceModel nvlink = read_device_model(CONVNET_SOURCE_DIR "/bench/models/nvlink-8gpu.json");
  const auto speedup = [](const DeviceModel& machine, Routes routes) {
    return 8 * step_seconds(machine, 1, 1, routes) / step_seconds(machine, 8, 8, routes);
  };
  CHECK(speedup(k20, Routes::relayed) > 6.9);
  CHECK(speedup(k20, Routes::direct) < 6.9);
  CHECK(speedup(nvlink, Routes::relayed) > 7.3);
}
