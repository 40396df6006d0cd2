// The plans of a net in configs/, for CPU devices or GPUs, without data or memory.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <stdexcept>

#include "convnet/plan/plan_set.h"
#include "tests/every_case.h"

namespace convnet::test {

struct ConfigData {
  Dims image;
  std::int64_t classes;
};

/// Nets of configs/ by name, with the data they are made for. The other nets there are in
/// ready_nets_test.cpp.
inline const std::map<std::string, ConfigData>& config_data() {
  static const std::map<std::string, ConfigData> data = {
      {"lenet", {{1, 28, 28}, 10}},
      {"cifar-quick", {{3, 32, 32}, 10}},
      {"alexnet-owt", {{3, 224, 224}, 1000}},
      {"cifar10-11pct", {{3, 32, 32}, 10}},
      {"wrn-16-4", {{3, 32, 32}, 10}},
      {"vgg16", {{3, 224, 224}, 1000}},
      {"resnet18-imagenet", {{3, 224, 224}, 1000}},
      {"resnet50-imagenet", {{3, 224, 224}, 1000}},
      {"mobilenet-v3-small-imagenet", {{3, 224, 224}, 1000}},
      {"wrn-16-4-fashion", {{1, 28, 28}, 10}},
      {"alexnet-owt-2gpu-data", {{3, 224, 224}, 1000}},
      {"alexnet-owt-4gpu-data", {{3, 224, 224}, 1000}},
      {"alexnet-owt-2gpu-hybrid", {{3, 224, 224}, 1000}},
      {"alexnet-owt-4gpu-hybrid", {{3, 224, 224}, 1000}},
      {"alexnet-owt-4gpu-hybrid-auto", {{3, 224, 224}, 1000}},
      {"alexnet-2gpu-model", {{3, 224, 224}, 1000}}};
  return data;
}

/// The files that tests of many cases plan: all of config_data(), or every every_case()-th of them.
inline std::map<std::string, ConfigData> config_cases() {
  return every_nth(config_data(), static_cast<std::size_t>(every_case()));
}

struct PlannedNet {
  std::vector<MatrixInfo> matrices;
  Graph graph;
  std::unique_ptr<const Target> target;
  std::unique_ptr<PlanSet> plans;

  /// `data_parallel`: that many devices with every layer on all of them; 0: as the file says.
  explicit PlannedNet(const std::string& config, bool learns = true, bool conserve = false,
                      int data_parallel = 0, Precision precision = Precision::fp32,
                      const std::string& device = "cpu", const Topology& topology = {}, int microbatches = 1)
      : target(device == "cuda" ? make_cuda_target(precision) : make_cpu_target(1, precision)) {
    const ConfigData& data = config_data().at(config);
    matrices = {{"data", data.image, DataType::u8, 0}, {"labels", {1}, DataType::s32, data.classes}};
    const std::string path = CONVNET_SOURCE_DIR "/configs/" + config;
    Diagnostics diagnostics;
    const IniFile definition = read_ini(path + ".cfg", diagnostics);
    const IniFile parameters = read_ini(path + "-params.cfg", diagnostics);
    GraphOptions graph_of{true, true, data_parallel, data_parallel > 0};
    graph_of.microbatches = microbatches;
    graph = build_graph(definition, parameters, matrices, graph_of, diagnostics);
    diagnostics.throw_if_errors();
    PlanOptions options{1, true, learns, conserve};
    options.topology = topology;
    plans = std::make_unique<PlanSet>(graph, matrices, *target, options);
  }

  const Plan& plan(Phase phase, std::int64_t images) { return plans->plan(phase, images); }
  const Node& node(const std::string& name) const {
    const Node* found = graph.find(name);
    if (found == nullptr) throw std::logic_error("no layer " + name);
    return *found;
  }
};

/// First and last task that touches each buffer; first > last for one that none does.
struct Life {
  TaskId first{1 << 30}, last;
};
inline Table<BufferId, Life> lives(const Plan& plan) {
  Table<BufferId, Life> all(plan.buffers.size());
  for (const TaskId t : plan.tasks.ids()) {
    const Task& task = plan.tasks[t];
    std::vector<BufferId> touched;
    for (const BufferUse& use : task.uses) touched.push_back(use.buffer);
    if (task.workspace.exists()) touched.push_back(task.workspace);
    for (const BufferId b : touched) {
      Life& life = all[b];
      life.first = std::min(life.first, t);
      life.last = t;
    }
  }
  return all;
}

inline bool is_transient(const Buffer& b) { return !b.persistent() && b.kind != BufferKind::input; }

}  // namespace convnet::test
