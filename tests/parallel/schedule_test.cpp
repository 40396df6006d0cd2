// How a minibatch is cut, and in which order the layers of a net run on the pieces.
#include "convnet/graph/schedule.h"

#include <algorithm>
#include <numeric>

#include "tests/catch.h"
#include "tests/parallel/placed_nets.h"
#include "tests/plan/planned_net.h"

using namespace convnet;
using namespace convnet::test;

namespace {

/// data, conv, fc, probs and a cost; `gpus` are the devices of the four layers.
Graph small_graph(const std::vector<std::string>& gpus, int microbatches, int period = 0) {
  const NetTexts texts = between_data_and_cost(
      conv("a", "inputs=data channels=3 filters=2 filterSize=3") + fc("b", "inputs=a outputs=4"), "b", 4);
  Gpus lines = {{"a", gpus[0]}, {"b", gpus[1]}, {"top", gpus[2]}, {"logprob", gpus[3]}};
  GraphOptions options;
  options.microbatches = microbatches;
  NetTexts placed{with_gpus(texts.definition, lines), texts.parameters};
  if (period > 0) placed.parameters = with_update_period(placed.parameters, period);
  const Built built = build_net(placed, ShapeOnlyProvider(kImage, kClasses), options);
  REQUIRE(built.errors.empty());
  return built.graph;
}

/// "Fa0 Fb0 Bb0 Ba0 U": the runs of layers a and b.
std::string text_of(const RunSchedule& schedule, const Graph& graph) {
  std::string text;
  for (const ScheduledRun& run : schedule) {
    const std::string name = run.kind == RunKind::update ? "U" : graph.nodes[run.node].name;
    if (name.size() > 1) continue;
    if (!text.empty()) text += " ";
    text += run.kind == RunKind::update
                ? name
                : (run.kind == RunKind::forward ? "F" : "B") + name + std::to_string(run.run);
  }
  return text;
}

/// Checks that all layers run on all microbatches, each after what it reads, and returns the schedule.
RunSchedule checked_schedule(const Graph& graph) {
  RunSchedule schedule = make_schedule(graph);
  struct Done {
    int forward = 0, backward = 0;  ///< microbatches
  };
  Table<NodeId, Done> done(graph.nodes.size());
  int updates = 0;
  for (const ScheduledRun& run : schedule) {
    if (run.kind == RunKind::update) {
      ++updates;
      continue;
    }
    const Node& node = graph.nodes[run.node];
    INFO(node.name << " run " << run.run);
    REQUIRE(node.role != LayerRole::data);
    REQUIRE(run.pass < graph.passes);
    const int end = (run.run + 1) * node.replicas();
    int& own = run.kind == RunKind::forward ? done[node.id].forward : done[node.id].backward;
    REQUIRE(own == end - node.replicas());
    own = end;
    if (run.kind == RunKind::forward) {
      for (const NodeId input : node.inputs)
        REQUIRE((graph.nodes[input].role == LayerRole::data || done[input].forward >= end));
    } else {
      REQUIRE(done[node.id].forward >= end);
      for (const NodeId user : node.users) REQUIRE(done[user].backward >= end);
    }
  }
  for (const Node& node : graph.nodes) {
    const int all = node.role == LayerRole::data ? 0 : graph.microbatches;
    CHECK(done[node.id].forward == all);
    CHECK(done[node.id].backward == all);
  }
  CHECK(schedule.back().kind == RunKind::update);
  CHECK(updates == (pipeline_depth(graph) > 1 ? 1 : graph.passes));
  return schedule;
}

std::string schedule_of(const std::vector<std::string>& gpus, int microbatches, int period = 0) {
  const Graph graph = small_graph(gpus, microbatches, period);
  return text_of(checked_schedule(graph), graph);
}

}  // namespace

TEST_CASE(
    "microbatches are pieces of a minibatch in order, and passes have the same images however they are cut") {
  for (const int replicas : {1, 2, 4, 6}) {
    for (const int passes : {1, 2, 3, 4, 6}) {
      if (replicas % passes != 0) continue;
      for (const int per_replica : {1, 2, 3, 5}) {
        const MinibatchCut cut{replicas, passes, per_replica}, whole{replicas, passes, 1};
        for (std::int64_t images = 1; images < 70; ++images) {
          CAPTURE(replicas, passes, per_replica, images);
          std::int64_t next = 0, of_pass = 0;
          bool right = true;
          for (int m = 0; m < cut.microbatches(); ++m) {
            const std::int64_t count = cut.images_of(images, m);
            right = right && count >= 0 && (count == 0 || cut.first_image(images, m) == next);
            for (std::int64_t i = next; i < next + count; ++i)
              right = right && cut.microbatch_of(images, i) == m;
            next += count;
            of_pass += count;
            if ((m + 1) % cut.in_pass() != 0) continue;
            std::int64_t of_whole = 0;
            for (int w = m / cut.in_pass() * whole.in_pass(); w < (m / cut.in_pass() + 1) * whole.in_pass();
                 ++w)
              of_whole += whole.images_of(images, w);
            right = right && of_pass == of_whole;
            of_pass = 0;
          }
          REQUIRE((right && next == images));
          // Nobody has more than the first.
          const std::int64_t share = (images + replicas - 1) / replicas;
          REQUIRE(cut.images_of(images, 0) == (share + per_replica - 1) / per_replica);
        }
      }
    }
  }
}

TEST_CASE("a device runs forward and backward on one microbatch after the other") {
  CHECK(schedule_of({"0", "0", "0", "0"}, 1) == "Fa0 Fb0 Bb0 Ba0 U");
  CHECK(schedule_of({"0", "0", "0", "0"}, 3) == "Fa0 Fb0 Bb0 Ba0 Fa1 Fb1 Bb1 Ba1 Fa2 Fb2 Bb2 Ba2 U");
  CHECK(schedule_of({"0,1", "0,1", "0,1", "1,0"}, 2) == "Fa0 Fb0 Bb0 Ba0 Fa1 Fb1 Bb1 Ba1 U");
}

TEST_CASE("layers with more replicas run once in several passes") {
  CHECK(schedule_of({"0,1", "0", "0", "0"}, 1) == "Fa0 Fb0 Bb0 U Fb1 Bb1 Ba0 U");
  CHECK(schedule_of({"0", "0,1", "0,1", "0,1"}, 1) == "Fa0 Fa1 Fb0 U Bb0 Ba0 Ba1 U");
  // The passes stay, and each has two rounds.
  CHECK(schedule_of({"0,1", "0", "0", "0"}, 2) == "Fa0 Fb0 Bb0 Fb1 Bb1 Ba0 U Fa1 Fb2 Bb2 Fb3 Bb3 Ba1 U");
  // A run of `a` may span passes.
  CHECK(schedule_of({"0,1", "0", "0", "0"}, 3) ==
        "Fa0 Fb0 Bb0 Fb1 Bb1 Ba0 Fa1 Fb2 Bb2 U Fb3 Bb3 Ba1 Fa2 Fb4 Bb4 Fb5 Bb5 Ba2 U");
}

TEST_CASE("the weights of a net are updated as often as without --microbatches") {
  for (const std::vector<std::string>& gpus : {std::vector<std::string>{"0,1", "0", "0", "0"},
                                               {"0", "0,1", "0,1", "0,1"},
                                               {"0,1,2,3", "0,1", "0", "0"}}) {
    const Graph whole = small_graph(gpus, 1);
    for (const int microbatches : {2, 3, 4}) {
      const Graph cut = small_graph(gpus, microbatches);
      CHECK(cut.passes == whole.passes);
      CHECK(cut.microbatches == microbatches * whole.microbatches);
      for (const Node& node : whole.nodes) CHECK(cut.nodes[node.id].update_period == node.update_period);
    }
  }
}

TEST_CASE("layers on devices of their own are a pipeline: one forward, one backward") {
  CHECK(schedule_of({"0", "1", "1", "1"}, 1) == "Fa0 Fb0 Bb0 Ba0 U");
  CHECK(schedule_of({"0", "1", "1", "1"}, 4) ==
        "Fa0 Fb0 Fa1 Bb0 Fa2 Fb1 Ba0 Bb1 Fa3 Fb2 Ba1 Bb2 Ba2 Fb3 Bb3 Ba3 U");
  CHECK(schedule_of({"2", "0", "0", "0"}, 2) == "Fa0 Fb0 Fa1 Bb0 Ba0 Fb1 Bb1 Ba1 U");
  // Stages of several replicas each.
  CHECK(schedule_of({"0,1", "3,2", "2,3", "2,3"}, 2) == "Fa0 Fb0 Fa1 Bb0 Ba0 Fb1 Bb1 Ba1 U");
  // Stages with other numbers of replicas run on as many microbatches.
  CHECK(schedule_of({"0,1", "2", "2", "2"}, 2, 2) == "Fa0 Fb0 Fb1 Fa1 Bb0 Bb1 Ba0 Fb2 Fb3 Bb2 Bb3 Ba1 U");
}

TEST_CASE("a stage of a pipeline keeps a microbatch for each stage and copy above it") {
  for (const std::vector<std::string>& gpus :
       {std::vector<std::string>{"0", "1", "2", "3"}, {"3", "1", "0", "2"}, {"0", "1", "1", "2"}}) {
    const Graph graph = small_graph(gpus, 9);
    const Table<NodeId, int> stages = pipeline_stages(graph);
    const int depth = pipeline_depth(graph);
    CHECK(depth == static_cast<int>(std::set<std::string>(gpus.begin(), gpus.end()).size()));
    Table<NodeId, int> kept(graph.nodes.size(), 0), most(graph.nodes.size(), 0);
    for (const ScheduledRun& run : checked_schedule(graph)) {
      if (run.kind == RunKind::update) continue;
      kept[run.node] += run.kind == RunKind::forward ? 1 : -1;
      most[run.node] = std::max(most[run.node], kept[run.node]);
    }
    for (const Node& node : graph.nodes) {
      if (node.role != LayerRole::data) CHECK(most[node.id] == 2 * (depth - stages[node.id]) - 1);
    }
  }
}

TEST_CASE("nets without an order of their devices, or with updates in every pass, are no pipelines") {
  // Two devices that read from each other, and one that both read.
  const Graph circle = small_graph({"0", "1", "0", "1"}, 4);
  CHECK(pipeline_depth(circle) == 1);
  const Graph behind = small_graph({"2", "1", "0", "1"}, 4);
  CHECK(pipeline_depth(behind) == 2);
  CHECK(pipeline_stages(behind)[behind.find("top")->id] == 1);
  CHECK(pipeline_depth(small_graph({"0,1", "1", "1", "1"}, 4, 2)) == 1);
  CHECK(pipeline_depth(small_graph({"0,1", "2", "2", "2"}, 4, 2)) == 2);
  CHECK(pipeline_depth(small_graph({"0,1", "2", "2", "2"}, 4, 1)) == 1);
  for (const std::string config : {"alexnet-owt", "alexnet-owt-4gpu-data", "alexnet-owt-4gpu-hybrid",
                                   "alexnet-owt-4gpu-hybrid-auto", "alexnet-2gpu-model"}) {
    INFO(config);
    PlannedNet net(config, true, false, 0, Precision::fp32, "cpu", {}, 2);
    CHECK(pipeline_depth(net.graph) == 1);
    checked_schedule(net.graph);
  }
}

TEST_CASE("schedules of random nets are right") {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const PlacedNet net = random_net(seed, true);
    INFO(net.placed.definition);
    for (const int microbatches : {1, 2, 3, 5}) {
      GraphOptions options;
      options.microbatches = microbatches;
      const Built built = build_net(net.placed, ShapeOnlyProvider(kImage, kClasses), options);
      REQUIRE(built.errors.empty());
      checked_schedule(built.graph);
    }
  }
}
