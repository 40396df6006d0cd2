// The ends that nets of the program get for tags and numbers.
#include "convnet/net/fit_labels.h"

#include <filesystem>

#include "convnet/base/file.h"
#include "convnet/graph/graph.h"
#include "convnet/net/ready_nets.h"
#include "tests/catch.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

/// The matrices of a data set with 3 labels of this kind.
std::vector<MatrixInfo> data_with(LabelKind kind, const Dims& image) {
  std::vector<MatrixInfo> matrices = {{"data", image, DataType::u8}};
  if (kind == LabelKind::numbers) {
    matrices.push_back({"numbers", {3}, DataType::f32});
  } else {
    matrices.push_back({"labels", {1}, DataType::s32, 3});
    matrices.push_back({kind == LabelKind::tags ? kTagsMatrix : "multi-hot labels", {3}, DataType::f32});
  }
  return matrices;
}

std::string cost_types(const Graph& graph) {
  std::string types;
  for (const Node& node : graph.nodes)
    if (node.is_cost()) types += (types.empty() ? "" : " ") + node.type;
  return types;
}

}  // namespace

TEST_CASE("the kind of labels shows in the matrices of a data set") {
  for (const LabelKind kind : {LabelKind::classes, LabelKind::tags, LabelKind::numbers})
    CHECK(label_kind(data_with(kind, {3, 8, 8})) == kind);
  CHECK(label_kind({}) == LabelKind::classes);
}

TEST_CASE("all nets that take the number of classes from the data end for tags and numbers, too") {
  const std::string folder = std::string(CONVNET_SOURCE_DIR) + "/configs/";
  int nets = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    if (!file.ends_with(".cfg") || file.ends_with("-params.cfg")) continue;
    const std::string text = read_whole_file(folder + file);
    const auto header = read_net_header(text);
    if (!header || text.find("=classes") == std::string::npos) continue;
    ++nets;
    for (const LabelKind kind : {LabelKind::tags, LabelKind::numbers}) {
      INFO(file);
      Diagnostics diagnostics;
      IniFile definition = parse_ini(file, text, diagnostics);
      const std::string params = folder + file.substr(0, file.size() - 4) + "-params.cfg";
      IniFile parameters = read_ini(params, diagnostics);
      const LabelFit fit{kind, 12.5, 0.25};
      CHECK_FALSE(fit_definition(definition, fit).empty());
      fit_parameters(parameters, definition);
      const Graph graph =
          build_graph(definition, parameters, data_with(kind, header->image), {}, diagnostics);
      CHECK_NOTHROW(diagnostics.throw_if_errors());
      CHECK(diagnostics.warnings().empty());
      CHECK(cost_types(graph) == (kind == LabelKind::tags ? "cost.bce" : "cost.sum2"));
      // It can be seen from the net, so that a run goes on with the same one.
      const LabelFit seen = label_fit(definition);
      CHECK(seen.kind == kind);
      if (kind != LabelKind::numbers) continue;
      CHECK(seen.mean == 12.5);
      CHECK(seen.deviation == 0.25);
    }
  }
  CHECK(nets > 20);
}

TEST_CASE("a net for classes stays as it is") {
  Diagnostics diagnostics;
  const std::string text =
      "[data]\ntype=data\ndataIdx=0\n[fc]\ntype=fc\ninputs=data\noutputs=3\n[labels]\ntype=data\ndataIdx=1\n"
      "[probs]\ntype=softmax\ninputs=fc\n[logprob]\ntype=cost.logreg\ninputs=labels,probs\n";
  IniFile net = parse_ini("net.cfg", text, diagnostics);
  CHECK(fit_definition(net, {}).empty());
  CHECK(net.text == text);
  IniFile parameters = parse_ini("p.cfg", "[fc]\nepsW=1\n[logprob]\ncoeff=1\ntopk=3\n", diagnostics);
  const std::string before = parameters.text;
  fit_parameters(parameters, net);
  CHECK(parameters.text == before);
  // Nothing is made of a cost that reads other labels.
  IniFile other =
      parse_ini("net.cfg",
                "[labels]\ntype=data\ndataIdx=2\n[fc]\ntype=fc\ninputs=labels\noutputs=3\n"
                "[probs]\ntype=softmax\ninputs=fc\n[logprob]\ntype=cost.logreg\ninputs=labels,probs\n",
                diagnostics);
  CHECK(fit_definition(other, {LabelKind::tags, 0, 1}).empty());
}

TEST_CASE("a net with auxiliary costs gets an end for each, and keeps its other keys") {
  Diagnostics diagnostics;
  const std::string text =
      "[data]\ntype=data\ndataIdx=0\n\n[labels]\ntype=data\ndataIdx=1\n\n"
      "[template end(from)]\n[%(name)s]\ntype=fc\noutputs=classes\ninputs=%(from)s\n[end]\n\n"
      "[fc1]\ntype=end(from=data)\n[fc2]\ntype=end(from=data)\n\n"
      "[aux]\ntype=softmax\ninputs=fc1\ngpu=0\n# The first "
      "cost.\n[auxcost]\ntype=cost.logreg\ninputs=labels,aux\n\n"
      "[probs]\ntype=softmax\ninputs=fc2\n[logprob]\ntype=cost.logreg\ninputs=labels,probs\n";
  IniFile tags = parse_ini("net.cfg", text, diagnostics);
  fit_definition(tags, {LabelKind::tags, 0, 1});
  CHECK(
      tags.text ==
      "[data]\ntype=data\ndataIdx=0\n\n[targets]\ntype=data\ndataIdx=2\n\n"
      "[template end(from)]\n[%(name)s]\ntype=fc\noutputs=classes\ninputs=%(from)s\n[end]\n\n"
      "[fc1]\ntype=end(from=data)\n[fc2]\ntype=end(from=data)\n\n"
      "[aux]\ntype=neuron\nneuron=logistic\ninputs=fc1\ngpu=0\n# The first cost.\n[auxcost]\ntype=cost.bce\n"
      "inputs=targets,aux\n\n"
      "[probs]\ntype=neuron\nneuron=logistic\ninputs=fc2\n[logprob]\ntype=cost.bce\ninputs=targets,probs\n");
  IniFile numbers = parse_ini("net.cfg", text, diagnostics);
  fit_definition(numbers, {LabelKind::numbers, 7, 2});
  CHECK(numbers.text ==
        "[data]\ntype=data\ndataIdx=0\n\n[numbers]\ntype=data\ndataIdx=1\n\n"
        "[template end(from)]\n[%(name)s]\ntype=fc\noutputs=classes\ninputs=%(from)s\n[end]\n\n"
        "[fc1]\ntype=end(from=data)\n[fc2]\ntype=end(from=data)\n\n"
        "[aux]\ntype=neuron\nneuron=linear[2,7]\ninputs=fc1\ngpu=0\n\n"
        "[auxcost.difference]\ntype=eltsum\ninputs=aux,numbers\ncoeffs=0.5,-0.5\n# The first cost.\n"
        "[auxcost]\ntype=cost.sum2\ninputs=auxcost.difference\n\n"
        "[predicted]\ntype=neuron\nneuron=linear[2,7]\ninputs=fc2\n\n"
        "[difference]\ntype=eltsum\ninputs=predicted,numbers\ncoeffs=0.5,-0.5\n"
        "[squares]\ntype=cost.sum2\ninputs=difference\n");
  CHECK_NOTHROW(diagnostics.throw_if_errors());
  // Parameters that only cost.logreg has go, and the others stay.
  IniFile parameters = parse_ini(
      "p.cfg", "[DEFAULT]\nepsW=1\n[auxcost]\ncoeff=0.3\ntopk=5\n[logprob]\nsmoothing=0.1\ncoeff=1\n",
      diagnostics);
  IniFile of_numbers = parameters;
  fit_parameters(parameters, tags);
  CHECK(parameters.text == "[DEFAULT]\nepsW=1\n[auxcost]\ncoeff=0.3\n[logprob]\ncoeff=1\n");
  fit_parameters(of_numbers, numbers);
  CHECK(of_numbers.text == "[DEFAULT]\nepsW=1\n[auxcost]\ncoeff=0.3\n[squares]\ncoeff=1\n");
}

}  // namespace convnet
