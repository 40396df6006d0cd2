// The search for placements: what belongs together, what is allowed, what is found, and what is written.
#include "convnet/base/error.h"
#include "convnet/place/placed_files.h"
#include "convnet/place/search.h"
#include "convnet/plan/hash.h"
#include "convnet/plan/verify.h"
#include "tests/catch.h"
#include "tests/every_case.h"
#include "tests/place/two_towers.h"
#include "tests/plan/planned_net.h"

namespace convnet::test {
namespace {

/// A net and all that a search needs to know of it.
struct Asked {
  IniFile definition, parameters;
  PlacementQuestion question;
  std::unique_ptr<const Target> target = make_cuda_target(Precision::tf32);
  DeviceModel model;

  Asked(const std::string& layers, const std::string& learning, const Dims& image, std::int64_t classes,
        int devices, const std::string& machine, std::int64_t images)
      : definition(parsed("net.cfg", layers)),
        parameters(parsed("params.cfg", learning)),
        question{definition, parameters},
        model(read_device_model(CONVNET_SOURCE_DIR "/bench/models/" + machine + ".json")) {
    question.matrices = {{"data", image, DataType::u8, 0}, {"labels", {1}, DataType::s32, classes}};
    question.graph.devices = devices;
    question.plan.mean = true;
    question.plan.images = question.images = images;
    question.target = [this](int) {
      return std::shared_ptr<const Target>(target.get(), [](const Target*) {});
    };
    question.predict = [this](const Plan& plan, int) { return simulate(plan, model, Precision::fp32); };
    question.links = model;
    question.threads = 2;
  }
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;

  static IniFile parsed(const std::string& name, const std::string& text) {
    Diagnostics diagnostics;
    IniFile file = parse_ini(name, text, diagnostics);
    diagnostics.throw_if_errors();
    return file;
  }

  Graph graph(const Placement* placement, int data_devices = 0) const {
    Diagnostics diagnostics;
    GraphOptions options = question.graph;
    options.placement = placement;
    options.data_parallel = data_devices > 0;
    if (data_devices > 0) options.devices = data_devices;
    Graph made = build_graph(definition, parameters, question.matrices, options, diagnostics);
    diagnostics.throw_if_errors();
    return made;
  }

  std::uint64_t hash(const Graph& graph) const {
    PlanSet plans(graph, question.matrices, *target, question.plan);
    const Plan& plan = plans.plan(Phase::train, question.images);
    verify(plan, graph);
    return plan_hash(plan);
  }
};

std::string config_text(const std::string& name) {
  Diagnostics diagnostics;
  return read_ini(CONVNET_SOURCE_DIR "/configs/" + name + ".cfg", diagnostics).text;
}

std::unique_ptr<Asked> asked(const std::string& config, int devices, const std::string& machine,
                             std::int64_t images = 128) {
  const ConfigData& data = config_data().at(config);
  return std::make_unique<Asked>(config_text(config), config_text(config + "-params"), data.image,
                                 data.classes, devices, machine, images);
}

std::unique_ptr<Asked> towers(int devices, const std::string& machine) {
  return std::make_unique<Asked>(kTowers, kTowersParameters, Dims{3, 32, 32}, 10, devices, machine, 256);
}

/// The layers of each unit, without data and implicit ones.
std::vector<std::string> layers_of(const Asked& net) {
  const Graph graph = net.graph(nullptr, 1);
  std::vector<std::string> texts;
  for (const PlacementUnit& unit : find_units(graph).units) {
    std::string text;
    for (const NodeId id : unit.nodes) {
      const Node& node = graph.nodes[id];
      if (!node.implicit && node.role != LayerRole::data) text += (text.empty() ? "" : " ") + node.section;
    }
    texts.push_back(text);
  }
  return texts;
}

const PlacedCandidate& named(const PlacementAnswer& answer, const std::string& name) {
  for (const PlacedCandidate& c : answer.candidates) {
    if (c.name == name) return c;
  }
  throw std::logic_error("no candidate " + name);
}

}  // namespace

TEST_CASE("units: a layer with weights and what follows it, residual trunks as a whole, towers apart") {
  CHECK(layers_of(*asked("lenet", 1, "nvlink-8gpu")) ==
        std::vector<std::string>{"conv1 pool1", "conv2 pool2", "fc1", "fc2 probs logprob"});
  const std::vector<std::string> resnet = layers_of(*asked("resnet18-imagenet", 1, "nvlink-8gpu"));
  for (const std::string& unit : resnet) UNSCOPED_INFO(unit);
  REQUIRE(resnet.size() == 2);
  CHECK(resnet[1] == "fc probs logprob");
  CHECK(layers_of(*towers(1, "nvlink-8gpu")) ==
        std::vector<std::string>{"left", "right", "left2", "right2", "both probs logprob"});

  const PlacementUnits units = find_units(towers(1, "nvlink-8gpu")->graph(nullptr, 1));
  CHECK(units.units[0].group == units.units[1].group);  // both read the data
  CHECK(units.units[2].group == units.units[3].group);  // both are read by one layer
  CHECK(units.units[0].group != units.units[2].group);
  CHECK(units.units[0].beside_another);
  CHECK_FALSE(units.units[4].beside_another);
  CHECK(units.units[4].divisible);
  CHECK_FALSE(units.units[0].divisible);
  CHECK(find_units(asked("wrn-16-4", 1, "nvlink-8gpu")->graph(nullptr, 1)).units[0].sees_minibatch);
}

TEST_CASE("choices keep the rules of the documentation") {
  const Graph graph = towers(1, "nvlink-8gpu")->graph(nullptr, 1);
  PlacementUnits units = find_units(graph);
  const Spread one{1, 0, 1, 1}, other{1, 1, 1, 1}, two{2, 0, 1, 1}, three{3, 0, 1, 1}, four{4, 0, 1, 1},
      parts{4, 0, 1, 4};
  CHECK(allowed(units, {one, other, one, other, one}));
  CHECK(allowed(units, {two, two, two, two, four}));
  CHECK(allowed(units, {four, four, four, four, parts}));
  CHECK_FALSE(allowed(units, {one, two, one, one, one}));      // both read the data
  CHECK_FALSE(allowed(units, {two, two, three, three, two}));  // neither divides the other
  CHECK_FALSE(allowed(units, {four, four, two, two, three}));
  units.units[0].sees_minibatch = true;
  CHECK(allowed(units, {two, two, two, two, one}));
  CHECK_FALSE(allowed(units, {two, two, two, two, four}));
  CHECK(parts.replicas() == 1);
  CHECK(devices_of({two, {2, 1, 2, 1}}) == 4);
  CHECK(describe(graph, units, {two, two, two, two, parts}) ==
        "left to right2 on 2; both to logprob divided over 4");
  CHECK(describe(graph, units, Choice(5, Spread{4, 0, 2, 1})) == "all on 4, every 2nd");
  const Spread halves{4, 0, 1, 2};
  CHECK(halves.replicas() == 2);
  CHECK(allowed(units, {four, four, four, four, halves}));
  CHECK(describe(graph, units, {four, four, four, four, halves}) ==
        "left to right2 on 4; both to logprob in 2 replicas, each divided over 2");
  CHECK(divisors(12) == std::vector<int>{1, 2, 3, 4, 6, 12});
}

TEST_CASE("the microbatches of a replica stay in its part of the devices") {
  const auto order = [](const Spread& spread, const std::vector<int>& fewer) {
    return numbers_of(spread.devices_near(fewer));
  };
  CHECK(order({8, 0, 1, 1}, {2}) == std::vector<int>{0, 4, 1, 5, 2, 6, 3, 7});
  CHECK(order({8, 0, 1, 1}, {2, 4}) == std::vector<int>{0, 4, 2, 6, 1, 5, 3, 7});
  CHECK(order({4, 0, 2, 1}, {2}) == std::vector<int>{0, 4, 2, 6});
  // The parts of a replica stay together.
  CHECK(order({8, 0, 1, 2}, {2}) == std::vector<int>{0, 1, 4, 5, 2, 3, 6, 7});
  // Numbers that are not smaller, or do not divide the number of replicas, change nothing.
  for (const std::vector<int>& fewer : {std::vector<int>{}, {1}, {8}, {3}, {1, 8, 16}})
    CHECK(order({8, 0, 1, 1}, fewer) == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7});

  const Graph graph = towers(1, "nvlink-8gpu")->graph(nullptr, 1);
  const PlacementUnits units = find_units(graph);
  const Spread all{8, 0, 1, 1}, within{8, 0, 1, 4}, first{4, 0, 1, 1};
  const auto placed = [&](const Spread& below, const Spread& above, const std::string& layer) {
    return numbers_of(placement_of(graph, units, {below, below, below, below, above}).at(layer).gpus);
  };
  CHECK(placed(all, within, "left") == std::vector<int>{0, 4, 1, 5, 2, 6, 3, 7});
  CHECK(placed(all, within, "both") == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(placed(all, within, "logprob") == std::vector<int>{0, 4});
  CHECK(placed(all, {2, 0, 4, 1}, "left") == std::vector<int>{0, 4, 1, 5, 2, 6, 3, 7});
  // Replicas on some neighbouring devices are near to nobody.
  CHECK(placed(all, {2, 0, 1, 1}, "left") == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(placed(first, {4, 0, 1, 4}, "left") == std::vector<int>{0, 1, 2, 3});
}

TEST_CASE("fully-connected layers may be divided within each host and replicated over hosts") {
  const auto net = asked("alexnet-owt", 8, "ethernet-8x4-100gbit", 1024);
  net->question.plan.topology = Topology({4, 4}, {});
  const PlacementAnswer answer = search_placement(net->question);
  const PlacedCandidate& within = named(answer, "hybrid within hosts on 8");
  CHECK(within.seconds < 0.8 * named(answer, "hybrid on 8").seconds);
  const LayerPlace& place = within.placement.at("fc4096a");
  CHECK(place.parts == 4);
  CHECK(numbers_of(place.gpus) == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(numbers_of(within.placement.at("probs").gpus) == std::vector<int>{0, 4});
  const Graph placed = net->graph(&within.placement);
  CHECK(placed.passes == 4);
  const PlacedFiles files = placed_files(net->definition, net->parameters, placed, within.placement);
  CHECK(files.definition.find("fc4096a")->find("parts")->text == "4");
  CHECK(files.definition.find("probs")->find("gpu") == nullptr);
  Asked written(files.definition.text, files.parameters.text, {3, 224, 224}, 1000, 8, "ethernet-8x4-100gbit",
                1024);
  written.question.plan.topology = net->question.plan.topology;
  CHECK(written.hash(written.graph(nullptr)) == net->hash(placed));
  CHECK(logical_signature(files.definition) == logical_signature(net->definition));
  CHECK(read_placement(placement_text(within.placement), net->definition, 8, "saved") == within.placement);
  // Placing the written files anew leaves no line of the old place.
  const Placement one = named(answer, "one device").placement;
  const PlacedFiles again = placed_files(files.definition, files.parameters, net->graph(&one), one);
  CHECK(again.definition.text.find("parts=") == std::string::npos);
}

TEST_CASE("the parts of an sfc layer are not a place") {
  const std::string layers = kTowers;
  const auto with_sfc = [&](const std::string& parts) {
    const std::string sfc = "[cut]\ntype=sfc\ninputs=right2\noutputs=16\n" + parts + "initW=0.1\n";
    std::string text = layers;
    return Asked::parsed("net.cfg", text.insert(text.find("[both]"), sfc));
  };
  CHECK(logical_signature(with_sfc("parts=2\n")) != logical_signature(with_sfc("parts=4\n")));
}

TEST_CASE("an sfc layer keeps the parts that it has from [DEFAULT] when other layers are placed") {
  const std::string layers =
      "[DEFAULT]\nparts=4\n[data]\ntype=data\ndataIdx=0\n[labels]\ntype=data\ndataIdx=1\n"
      "[cut]\ntype=sfc\ninputs=data\noutputs=8\n[fc]\ntype=fc\ninputs=cut\noutputs=10\n"
      "[probs]\ntype=softmax\ninputs=fc\n[logprob]\ntype=cost.logreg\ninputs=labels,probs\n";
  const Asked net(layers,
                  "[cut]\nepsW=0.01\nepsB=0.01\nmomW=0.9\nmomB=0.9\n[fc]\nepsW=0.01\nepsB=0.01\nmomW=0."
                  "9\nmomB=0.9\n[logprob]\ncoeff=1\n",
                  {3, 8, 8}, 10, 2, "pcie-8gpu", 64);
  const PlacementAnswer answer = search_placement(net.question);
  REQUIRE(!answer.candidates.empty());
  for (const PlacedCandidate& candidate : answer.candidates) {
    const Graph placed = net.graph(&candidate.placement);
    const PlacedFiles files = placed_files(net.definition, net.parameters, placed, candidate.placement);
    INFO(files.definition.text);
    CHECK(files.definition.find("cut")->find("parts")->text == "4");
    CHECK(logical_signature(files.definition) == logical_signature(net.definition));
  }
}

TEST_CASE("a written placement has the plan that was found, whatever the files said before") {
  for (const std::string config :
       {"lenet", "cifar-quick", "alexnet-owt", "wrn-16-4", "alexnet-owt-4gpu-hybrid-auto"}) {
    const auto net = asked(config, 4, "ethernet-8x4-25gbit");
    INFO(config);
    const PlacementAnswer answer = search_placement(net->question);
    const std::size_t step = std::max<std::size_t>(1, answer.candidates.size() / 12);
    for (std::size_t i = 0; i < answer.candidates.size(); i += step) {
      const Placement& placement = answer.candidates[i].placement;
      INFO(answer.candidates[i].description);
      const Graph placed = net->graph(&placement);
      const PlacedFiles files = placed_files(net->definition, net->parameters, placed, placement);
      INFO(files.definition.text);
      const Asked written(files.definition.text, files.parameters.text, config_data().at(config).image,
                          config_data().at(config).classes, 4, "ethernet-8x4-25gbit", 128);
      CHECK(written.hash(written.graph(nullptr)) == net->hash(placed));
      CHECK(logical_signature(files.definition) == logical_signature(net->definition));
      CHECK(read_placement(placement_text(placement), net->definition, 4, "saved") == placement);
    }
  }
}

TEST_CASE("the search finds what simulating all candidates finds") {
  const std::vector<std::string> machines = {"pcie-8gpu", "nvlink-8gpu", "ethernet-8x1-10gbit",
                                             "ethernet-8x4-25gbit"};
  for (const std::string& machine : every_nth(machines, static_cast<std::size_t>(every_case()))) {
    for (const int devices : {2, 4}) {
      for (const bool two : {false, true}) {
        const auto net = two ? towers(devices, machine) : asked("lenet", devices, machine, 512);
        INFO(machine << ", " << devices << " devices, " << (two ? "towers" : "lenet"));
        PlacementQuestion all = net->question;
        all.exhaustive = true;
        const PlacementAnswer found = search_placement(net->question), best = search_placement(all);
        CHECK(best.exhaustive);
        CHECK(best.simulated == best.possible);
        CHECK(found.candidates[0].seconds <= 1.02 * best.candidates[0].seconds);
        for (const PlacedCandidate& c : best.candidates) CHECK(best.candidates[0].seconds <= c.seconds);
      }
    }
  }
}

TEST_CASE("where hosts are far apart, fully-connected layers stay together") {
  const auto net = asked("alexnet-owt", 8, "ethernet-8x1-10gbit", 1024);
  net->question.plan.topology = Topology(std::vector<int>(8, 1), {});
  const PlacementAnswer answer = search_placement(net->question);
  const PlacedCandidate& best = answer.candidates[0];
  INFO(best.description);
  CHECK(best.seconds < 0.8 * named(answer, "data on 8").seconds);
  CHECK(best.seconds < named(answer, "data on 2").seconds);
  CHECK(best.seconds < named(answer, "one device").seconds);
  CHECK(best.placement.at("conv1").gpus.size() == 8);
  CHECK(best.placement.at("fc4096a").gpus.size() == 1);
  // The same question has the same answer, also with one thread.
  net->question.threads = 1;
  const PlacementAnswer again = search_placement(net->question);
  REQUIRE(again.candidates.size() == answer.candidates.size());
  for (std::size_t i = 0; i < answer.candidates.size(); ++i)
    CHECK(again.candidates[i].placement == answer.candidates[i].placement);
}

TEST_CASE("towers may run on devices of their own") {
  const auto net = towers(2, "nvlink-8gpu");
  net->question.exhaustive = true;
  bool apart = false;
  for (const PlacedCandidate& c : search_placement(net->question).candidates)
    apart = apart || (c.placement.at("left").gpus == std::vector{DeviceId(0)} &&
                      c.placement.at("right").gpus == std::vector{DeviceId(1)});
  CHECK(apart);
}

TEST_CASE("candidates that do not fit the memory come last") {
  const auto net = asked("alexnet-owt", 4, "nvlink-8gpu", 512);
  const PlacementAnswer free = search_placement(net->question);
  CHECK(free.candidates[0].fits);
  const std::int64_t most = free.candidates[0].memory;
  net->question.memory = {most - 1, false};
  const PlacementAnswer tight = search_placement(net->question);
  CHECK(tight.candidates[0].fits);
  CHECK(tight.candidates[0].memory < most);
  CHECK(tight.candidates[0].seconds >= free.candidates[0].seconds);
  net->question.memory = {1, false};
  CHECK_FALSE(search_placement(net->question).candidates[0].fits);
}

TEST_CASE("with several microbatches, pipelines of stages that take about as long are candidates") {
  const auto net = asked("alexnet-owt", 4, "nvlink-8gpu", 512);
  const PlacementAnswer whole = search_placement(net->question);
  for (const PlacedCandidate& c : whole.candidates) CHECK_FALSE(c.name.starts_with("pipeline"));
  net->question.graph.microbatches = 16;
  const PlacementAnswer cut = search_placement(net->question);
  CHECK(cut.candidates[0].seconds <= named(cut, "pipeline of 4 stages").seconds);
  CHECK(named(cut, "pipeline of 4 stages").seconds < 0.7 * named(cut, "one device").seconds);
  CHECK(named(cut, "pipeline of 4 stages").seconds < named(cut, "pipeline of 2 stages").seconds);
  CHECK(named(cut, "pipeline of 4 stages").memory < named(cut, "one device").memory);
  const Placement& placement = named(cut, "pipeline of 2 stages on 2 each").placement;
  CHECK(placement.begin()->second.gpus.size() == 2);
  std::set<std::vector<DeviceId>> stages;
  for (const auto& [layer, place] : placement) stages.insert(place.gpus);
  CHECK(stages.size() == 2);
}

TEST_CASE("the file's own lines are a candidate") {
  const auto net = asked("alexnet-2gpu-model", 2, "nvlink-8gpu");
  const PlacementAnswer answer = search_placement(net->question);
  CHECK_NOTHROW(named(answer, "file"));
  CHECK(answer.candidates[0].seconds <= named(answer, "file").seconds);
  // One that needs more devices is none.
  const auto few = asked("alexnet-2gpu-model", 1, "nvlink-8gpu");
  CHECK_THROWS(named(search_placement(few->question), "file"));
}

TEST_CASE("weights are updated once a minibatch, or as seldom as the file says") {
  const std::string seldom = [] {
    std::string text = kTowersParameters;
    return text.replace(text.find("[both]\n"), 7, "[both]\nupdatePeriod=3\n");
  }();
  // The same for layers without a section.
  const std::string defaults =
      "[DEFAULT]\nepsW=0.01\nepsB=0.01\nmomW=0.9\nmomB=0.9\n[both]\nupdatePeriod=3\n";
  const Asked net(kTowers, GENERATE_COPY(seldom, defaults), {3, 32, 32}, 10, 4, "nvlink-8gpu", 64);
  Placement placement;
  for (const IniSection& section : net.definition.sections)
    placement[section.name] = {{DeviceId(0), DeviceId(1), DeviceId(2), DeviceId(3)}};
  for (const char* layer : {"both", "probs", "logprob", "labels"}) placement[layer] = {{DeviceId(2)}};
  const Graph graph = net.graph(&placement);
  CHECK(graph.passes == 4);
  CHECK(graph.find("left")->update_period == 4);
  CHECK(graph.find("both")->update_period == 12);
  const PlacedFiles files = placed_files(net.definition, net.parameters, graph, placement);
  CHECK(files.parameters.find("left")->find("updatePeriod")->text == "4");
  CHECK(files.parameters.find("both")->find("updatePeriod")->text == "12");
  CHECK(files.definition.find("both")->find("gpu")->text == "2");
  CHECK(files.definition.find("probs")->find("gpu") == nullptr);
}

TEST_CASE("statistics of each replica's images cannot be placed") {
  std::string text = config_text("wrn-16-4");
  const std::size_t at = text.find("type=bnorm\n");
  text.insert(at, "sync=0\n");
  const Asked net(text, config_text("wrn-16-4-params"), {3, 32, 32}, 10, 2, "nvlink-8gpu", 64);
  CHECK_THROWS_WITH(search_placement(net.question), Catch::Contains("sync=0") && Catch::Contains("net.cfg:"));
}

TEST_CASE("damaged placements are refused") {
  const auto net = towers(2, "nvlink-8gpu");
  std::string good;
  for (const IniSection& section : net->definition.sections) good += "[" + section.name + "]\ngpu=0,1\n";
  CHECK_NOTHROW(read_placement(good, net->definition, 2, "saved"));
  const auto refused = [&](const std::string& text, const std::string& why) {
    CHECK_THROWS_AS(read_placement(text, net->definition, 2, "saved"), InputError);
    CHECK_THROWS_WITH(read_placement(text, net->definition, 2, "saved"), Catch::Contains(why));
  };
  refused("", "'data' is missing");
  refused(good.substr(0, good.size() - 8), "'logprob' is missing");
  for (const std::string wrong : {"0,2", "-1", "x", "99999999999"}) {
    std::string text = good;
    refused(text.replace(text.find("0,1"), 3, wrong), "of 2");
  }
  std::string twice = good, none = good;
  refused(twice.replace(twice.find("0,1"), 3, "1,1"), "twice");
  refused(none.replace(none.find("0,1"), 3, ""), "no device");
  // Texts without parts= are of one replica.
  const auto divided = [&](const std::string& lines) {
    std::string text = good;
    return text.replace(text.find("0,1"), 3, "0,1\nparallel=model" + lines);
  };
  CHECK(read_placement(divided(""), net->definition, 2, "saved").at("data").parts == 2);
  CHECK(read_placement(divided("\nparts=1"), net->definition, 2, "saved").at("data").parts == 1);
  for (const std::string parts : {"0", "-1", "3", "4", "x", "99999999999"})
    refused(divided("\nparts=" + parts), "parts on 2 devices");
}

}  // namespace convnet::test
