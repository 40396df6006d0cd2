// The facts of layers: which combinations are refused, and what every layer type declares.
#include "layers/facts.h"

#include <stdexcept>

#include "tests/catch.h"
#include "tests/layers/against_reference.h"

using namespace convnet;
using namespace convnet::test;

namespace {

class FactsOnlyLayer : public Layer {
 public:
  FactsOnlyLayer(LayerFacts layer_facts, std::vector<WeightSpec> matrices)
      : Layer({1, 1, 1, false}, std::move(layer_facts), std::move(matrices)) {}
  void forward(Lowering&) const override {}
  void backward(Lowering&) const override {}
};

/// Returns whether a layer with `matrices` weight matrices can have these facts.
bool accepted(const LayerFacts& facts, std::size_t matrices = 0) {
  try {
    FactsOnlyLayer(facts, std::vector<WeightSpec>(matrices));
    return true;
  } catch (const std::logic_error&) {
    return false;
  }
}

CostFacts cost_of(int values) {
  CostFacts cost;
  cost.values = values;
  return cost;
}

}  // namespace

TEST_CASE("facts that contradict each other are refused") {
  CHECK(accepted({}));
  CHECK(accepted({.in_place = true, .backward_in_place = true, .cheap = true}));
  CHECK(accepted({.backward_reads = BackwardReads::output, .in_place = true}));
  CHECK_FALSE(accepted({.backward_reads = BackwardReads::inputs, .in_place = true}));

  CHECK(accepted({.fuses_neuron = FusesNeuron::relu, .backward_reads = BackwardReads::inputs}));
  CHECK_FALSE(accepted({.fuses_neuron = FusesNeuron::relu, .backward_reads = BackwardReads::output}));
  CHECK_FALSE(accepted({.function = LayerFunction::softmax, .fuses_neuron = FusesNeuron::relu_and_gradient}));

  CHECK(accepted({.differentiable = false, .cheap = true}));
  CHECK_FALSE(accepted({.differentiable = false, .backward_reads = BackwardReads::inputs}));
  CHECK_FALSE(accepted({.differentiable = false, .backward_in_place = true}));
  CHECK_FALSE(accepted({.differentiable = false}, 1));

  CHECK(accepted({.division = Division::outputs}, 2));
  CHECK_FALSE(accepted({.division = Division::outputs}));
  CHECK(accepted({.division = Division::as_inputs}));
  CHECK_FALSE(accepted({.division = Division::as_inputs}, 1));
}

TEST_CASE("facts of data layers and costs that make no sense are refused") {
  CHECK(accepted({.data = DataFacts{1, 10}}));
  CHECK_FALSE(accepted({.data = DataFacts{-1, 0}}));
  CHECK_FALSE(accepted({.data = DataFacts{1, -1}}));
  CHECK_FALSE(accepted({.backward_reads = BackwardReads::inputs, .data = DataFacts{}}));

  CHECK(accepted({.backward_reads = BackwardReads::inputs, .cost = cost_of(2)}));
  CHECK_FALSE(accepted({.cost = cost_of(0)}));
  CHECK_FALSE(accepted({.backward_reads = BackwardReads::output, .cost = cost_of(2)}));
  CHECK_FALSE(accepted({.data = DataFacts{}, .cost = cost_of(2)}));

  for (const bool data : {true, false}) {
    LayerFacts end;
    if (data) end.data = DataFacts{};
    if (!data) end.cost = cost_of(1);
    const auto with = [&](auto member, auto value) {
      LayerFacts facts = end;
      facts.*member = value;
      return accepted(facts);
    };
    CHECK(accepted(end));
    CHECK_FALSE(accepted(end, 1));
    CHECK_FALSE(with(&LayerFacts::function, LayerFunction::softmax));
    CHECK_FALSE(with(&LayerFacts::neuron, Neuron{NeuronKind::relu}));
    CHECK_FALSE(with(&LayerFacts::fuses_neuron, FusesNeuron::relu));
    CHECK_FALSE(with(&LayerFacts::division, Division::as_inputs));
    CHECK_FALSE(with(&LayerFacts::in_place, true));
    CHECK_FALSE(with(&LayerFacts::backward_in_place, true));
    CHECK_FALSE(with(&LayerFacts::cheap, true));
    CHECK_FALSE(with(&LayerFacts::differentiable, false));
  }
}

TEST_CASE("layers declare what neighbours can join") {
  const std::string below = fc("f", "inputs=data outputs=4 neuron=logistic") +
                            section("tags", "data", "dataIdx=2") + section("p", "softmax", "inputs=f");
  const std::string costs =
      section("ce", "cost.crossent", "inputs=tags,p") + section("bce", "cost.bce", "inputs=tags,f") +
      section("dce", "cost.dce", "inputs=tags,f") + section("l2", "cost.sum2", "inputs=p");
  const std::string coeffs = "[ce]\ncoeff=1\n[bce]\ncoeff=1\n[dce]\ncoeff=1\n[l2]\ncoeff=1\n";
  const NetTexts texts = between_data_and_cost(below + costs, "p", 4, coeffs);
  const Built built = build_net(texts, ShapeOnlyProvider({6}, 4, {{4, ExtraMatrix::multi_hot}}));
  REQUIRE(built.errors.empty());
  const auto facts = [&](const std::string& name) { return built.graph.find(name)->layer->facts; };
  CHECK(facts("f").fuses_neuron == FusesNeuron::relu);
  CHECK(facts("f_neuron").function == LayerFunction::logistic);
  CHECK(facts("f_neuron").neuron.kind == NeuronKind::logistic);
  CHECK(facts("f_neuron").division == Division::as_inputs);
  CHECK(facts("p").function == LayerFunction::softmax);
  CHECK(facts("p").backward_reads == BackwardReads::output);
  CHECK(facts("ce").cost->differentiates == LayerFunction::softmax);
  CHECK(facts("bce").cost->differentiates == LayerFunction::logistic);
  CHECK(facts("dce").cost->differentiates == LayerFunction::logistic);
  CHECK(facts("l2").cost->differentiates == LayerFunction::other);
  CHECK(facts("l2").cost->labels == CostLabels::none);
  CHECK(facts("tags").data->matrix == 2);
}

TEST_CASE("a cost has a name for each value that it prints") {
  const std::string below = fc("f", "inputs=data outputs=3") + section("tags", "data", "dataIdx=2");
  const std::string costs = section("bce", "cost.bce", "inputs=tags,f") +
                            section("parent", "cost.bce", "inputs=tags,f children=bce") +
                            section("dce", "cost.dce", "inputs=tags,f") +
                            section("l2", "cost.sum2", "inputs=f");
  const std::string coeffs = "[bce]\ncoeff=1\n[parent]\ncoeff=1\n[dce]\ncoeff=1\n[l2]\ncoeff=1\n";
  const NetTexts texts = between_data_and_cost(below + costs, "f", 4, coeffs);
  const Built built = build_net(texts, ShapeOnlyProvider({6}, 4, {{3, ExtraMatrix::multi_hot}}));
  REQUIRE(built.errors.empty());
  std::size_t seen = 0;
  for (const Node& node : built.graph.nodes) {
    INFO(node.name);
    if (!node.is_cost()) {
      CHECK(node.layer->cost_names().empty());
      continue;
    }
    ++seen;
    const std::vector<double> sums(static_cast<std::size_t>(node.layer->facts.cost->values), 1.0);
    CHECK(node.layer->cost_names().size() == node.layer->cost_report(sums, 1).size());
  }
  CHECK(seen == 5);
  CHECK(built.graph.find("dce")->layer->cost_names().at(5) == "recall of output 1");
  CHECK(built.graph.find("parent")->layer->cost_names() == std::vector<std::string>{"cross entropy"});
}
