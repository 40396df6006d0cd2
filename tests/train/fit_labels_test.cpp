// The ends that nets of the program get for tags and numbers.
#include "convnet/net/fit_labels.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <span>

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

/// Images with these numbers, in one batch.
class NumberedImages final : public Provider {
 public:
  NumberedImages(std::vector<std::string> names, std::vector<float> numbers) : numbers_(std::move(numbers)) {
    matrices_ = {{"data", {1, 1, 1}, DataType::u8},
                 {"numbers", {std::ssize(names)}, DataType::f32, 0, std::move(names)}};
  }
  const std::vector<MatrixInfo>& matrices() const override { return matrices_; }
  void check_range(const BatchRange&, const std::string&) const override {}
  std::int64_t images_in(int) const override {
    return std::ssize(numbers_) / element_count(matrices_[1].dims);
  }
  bool has_mean() const override { return false; }
  PixelStatistics statistics(const BatchRange&) const override { return {}; }
  DataBatch read(const LoadRequest& request, const PixelStatistics&) const override {
    DataBatch all;
    all.images = images_in(1);
    all.matrices.emplace_back(static_cast<std::size_t>(all.images));
    const auto bytes = std::as_bytes(std::span(numbers_));
    all.matrices.emplace_back(bytes.begin(), bytes.end());
    return piece_of(all, request.first, request.count);
  }

 private:
  std::vector<MatrixInfo> matrices_;
  std::vector<float> numbers_;
};

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

TEST_CASE("the end for numbers that a net has fits the original net in the same way") {
  const std::string text =
      "[data]\ntype=data\ndataIdx=0\n[labels]\ntype=data\ndataIdx=1\n[fc]\ntype=fc\ninputs=data\noutputs=1\n"
      "[probs]\ntype=softmax\ninputs=fc\n[logprob]\ntype=cost.logreg\ninputs=labels,probs\n";
  const auto fitted = [&](const LabelFit& fit) {
    Diagnostics diagnostics;
    IniFile net = parse_ini("net.cfg", text, diagnostics);
    CHECK_FALSE(fit_definition(net, fit).empty());
    CHECK_NOTHROW(diagnostics.throw_if_errors());
    return net;
  };
  for (const double deviation : {12.34, 15.27, 1.004, 0.02999, 9.996, 1234567.0, 1e-9})
    for (const double mean : {0.0, 0.004, -7.77777, 99.96, 101325.0, -123456.789, 1e15 / 3}) {
      INFO(deviation << " " << mean);
      const IniFile once = fitted({LabelKind::numbers, mean, deviation});
      const LabelFit seen = label_fit(once);
      CHECK(fitted(seen).text == once.text);
      CHECK(seen.deviation == Approx(deviation).epsilon(0.01));
      CHECK(seen.mean == Approx(mean).margin(0.1 * deviation).epsilon(1e-12));
    }
  // The mean is as exact as the deviation asks for, and no more.
  CHECK_THAT(fitted({LabelKind::numbers, 101325, 20}).text, Catch::Contains("neuron=linear[20,101325]\n"));
  CHECK_THAT(fitted({LabelKind::numbers, 101325.678, 12.34}).text,
             Catch::Contains("neuron=linear[12.3,101326]\n") && Catch::Contains("coeffs=0.0813,-0.0813\n"));
  CHECK_THAT(fitted({LabelKind::numbers, 0.04, 12.34}).text, Catch::Contains("neuron=linear[12.3,0]\n"));
}

TEST_CASE("the fit for numbers has their mean and deviation, and warns of unlike ones") {
  const BatchRange range{1, 1};
  const LabelFit fit = label_fit(NumberedImages({"x", "y"}, {1, 3, 5, 7, 3, 5}), range);
  CHECK(fit.kind == LabelKind::numbers);
  CHECK(fit.mean == Approx(4));
  CHECK(fit.deviation == Approx(std::sqrt(22.0 / 6)));
  CHECK(fit.warning.empty());
  // Many images come in several pieces.
  std::vector<float> many;
  for (int i = 0; i < 1000; ++i) many.push_back(static_cast<float>(i % 2 == 0 ? 8 : 12));
  const LabelFit pieces = label_fit(NumberedImages({"x"}, many), range);
  CHECK(pieces.mean == Approx(10));
  CHECK(pieces.deviation == Approx(2));
  // Numbers that are all the same have no deviation.
  const LabelFit same = label_fit(NumberedImages({"x"}, {5, 5, 5}), range);
  CHECK(same.mean == 5);
  CHECK(same.deviation == 1);
  CHECK(same.warning.empty());

  const LabelFit unlike = label_fit(NumberedImages({"age", "income"}, {1, 1000, 2, 9000, 3, 5000}), range);
  CHECK_THAT(unlike.warning,
             Catch::StartsWith("warning: the deviation of the number 'age' is 0.816, and that of all numbers "
                               "together ") &&
                 Catch::EndsWith(", so it hardly counts; bring the numbers to like sizes in the table"));

  // A number that is not finite is reported when the net reads it.
  const float infinite = std::numeric_limits<float>::infinity();
  for (const float wrong : {infinite, -infinite, std::numeric_limits<float>::quiet_NaN()}) {
    const LabelFit bad = label_fit(NumberedImages({"x"}, {1, wrong, 3}), range);
    CHECK(bad.kind == LabelKind::numbers);
    CHECK(bad.mean == 0);
    CHECK(bad.deviation == 1);
    CHECK(bad.warning.empty());
  }
  // Without a range, the kind alone is known.
  const LabelFit blind = label_fit(NumberedImages({"x"}, {5, 6}), std::nullopt);
  CHECK(blind.kind == LabelKind::numbers);
  CHECK(blind.mean == 0);
  CHECK(blind.deviation == 1);
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
