// What a search for placements may choose gives the answer of one device, written into the two files as
// convnet place does.
#include <random>

#include "convnet/place/placed_files.h"
#include "convnet/place/search.h"
#include "convnet/plan/verify.h"
#include "tests/parallel/placed_nets.h"

using namespace convnet;
using namespace convnet::test;

namespace {

/// Draws choices that the rules allow.
std::vector<Choice> some_choices(const PlacementUnits& units, int devices, int of_host, std::size_t count,
                                 std::uint32_t seed) {
  std::mt19937 draw(seed);
  std::vector<Choice> choices;
  for (int attempt = 0; attempt < 20000 && choices.size() < count; ++attempt) {
    Choice choice;
    for (const PlacementUnit& unit : units.units) {
      const std::vector<Spread> spreads = spreads_of(unit, devices, of_host);
      choice.push_back(spreads[draw() % spreads.size()]);
    }
    if (allowed(units, choice)) choices.push_back(choice);
  }
  return choices;
}

/// Checks some placements of a net on `devices` devices.
void check_placements(const NetTexts& plain, int devices, const std::vector<int>& hosts, std::uint32_t seed) {
  const std::vector<std::int64_t> sizes = {24, 24, 13};
  SmallNet reference(plain, kImage, kClasses);
  Diagnostics diagnostics;
  const IniFile definition = parse_ini("net.cfg", plain.definition, diagnostics);
  const IniFile parameters = parse_ini("params.cfg", plain.parameters, diagnostics);
  const std::vector<MatrixInfo> matrices = {{"data", kImage, DataType::u8, 0},
                                            {"labels", {1}, DataType::s32, kClasses}};
  GraphOptions one{true, false, 1, true};
  const Graph graph = build_graph(definition, parameters, matrices, one, diagnostics);
  diagnostics.throw_if_errors();
  const PlacementUnits units = find_units(graph);
  const Trained expected = train(reference, sizes);
  const std::vector<Choice> choices =
      some_choices(units, devices, hosts.empty() ? devices : hosts[0], 6, seed);
  REQUIRE(choices.size() == 6);
  for (const Choice& choice : choices) {
    INFO(describe(graph, units, choice));
    const Placement placement = placement_of(graph, units, choice);
    GraphOptions there{true, true, devices, false};
    there.placement = &placement;
    const Graph placed = build_graph(definition, parameters, matrices, there, diagnostics);
    diagnostics.throw_if_errors();
    const PlacedFiles files = placed_files(definition, parameters, placed, placement);
    INFO(files.definition.text);
    NetOptions options;
    options.gpu = device_list(devices);
    options.devices_of_hosts = hosts;
    SmallNet net({files.definition.text, files.parameters.text}, kImage, kClasses, options);
    for (const std::int64_t images : sizes)
      REQUIRE_NOTHROW(verify(net.prepare(Phase::train, images), net.graph()));
    check_same_answer(train(net, sizes), expected);
  }
}

}  // namespace

TEST_CASE("random placements give the answer of one device") {
  check_placements(column_net(Normalised::nowhere), 4, {}, 1);
  check_placements(column_net(Normalised::trunk), 4, {}, 2);
  check_placements(column_net(Normalised::head), 2, {}, 3);
  check_placements(two_columns_net(false), 4, {}, 4);
  check_placements(two_columns_net(true), 6, {}, 5);
}

TEST_CASE("after 20 minibatches the weights of the fastest placement are those of one device") {
  const std::vector<std::int64_t> sizes(20, 24);
  const std::vector<MatrixInfo> matrices = {{"data", kImage, DataType::u8, 0},
                                            {"labels", {1}, DataType::s32, kClasses}};
  const auto target = std::shared_ptr<const Target>(make_cpu_target(1));
  // Devices that are slow beside their links, and links of several speeds.
  DeviceModel machine;
  machine.flops.fp32 = machine.memory_bandwidth = machine.host_bandwidth = 1e9;
  machine.link_latency = 1e-5;
  for (const double link : {1e7, 1e8, 1e10}) {
    for (const Normalised normalised : {Normalised::nowhere, Normalised::trunk}) {
      const NetTexts plain = column_net(normalised);
      Diagnostics diagnostics;
      const IniFile definition = parse_ini("net.cfg", plain.definition, diagnostics);
      const IniFile parameters = parse_ini("params.cfg", plain.parameters, diagnostics);
      PlacementQuestion question{definition, parameters};
      question.matrices = matrices;
      question.graph.devices = 4;
      question.images = question.plan.images = 24;
      machine.link_bandwidth = {link};
      question.links = machine;
      question.target = [&](int) { return target; };
      question.predict = [&](const Plan& plan, int) { return simulate(plan, machine, Precision::fp32); };
      const PlacedCandidate best = search_placement(question).candidates[0];
      INFO(best.description);
      GraphOptions there{true, true, 4, false};
      there.placement = &best.placement;
      const Graph placed = build_graph(definition, parameters, matrices, there, diagnostics);
      const PlacedFiles files = placed_files(definition, parameters, placed, best.placement);
      NetOptions options;
      options.gpu = device_list(4);
      check_same_answer(train({files.definition.text, files.parameters.text}, options, sizes),
                        train(plain, NetOptions(), sizes));
    }
  }
}

TEST_CASE("random placements over two hosts give the answer of one device") {
  check_placements(column_net(Normalised::trunk), 4, {2, 2}, 6);
  check_placements(two_columns_net(true), 4, {2, 2}, 7);
  check_placements(column_net(Normalised::nowhere), 8, {4, 4}, 8);
}
