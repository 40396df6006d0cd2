// Grad-CAM: its maps against derivatives that are known, and its drawing.
#include "convnet/show/cam.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "convnet/base/error.h"
#include "providers/dummy.h"
#include "tests/catch.h"

using namespace convnet;

namespace {

constexpr int kSide = 6, kClasses = 4;

/// A net with initial weights, as a checkpoint, and an image.
class SmallCam {
 public:
  explicit SmallCam(const std::string& layers, const std::string& top)
      : provider_(make_dummy_provider("dummy-1x6x6-4", 1)) {
    Diagnostics diagnostics;
    checkpoint_.definition_path = "net.cfg";
    checkpoint_.definition_text =
        "[data]\ntype=data\ndataIdx=0\n[labels]\ntype=data\ndataIdx=1\n" + layers +
        "[drop]\ntype=dropout\ninputs=" + top +
        "\n[fc]\ntype=fc\ninputs=drop\noutputs=4\ninitW=0.5\n"
        "[probs]\ntype=softmax\ninputs=fc\n[logprob]\ntype=cost.logreg\ninputs=labels,probs\n";
    checkpoint_.parameters_path = "params.cfg";
    checkpoint_.parameters_text = "[DEFAULT]\nepsW=0.1\nepsB=0.1\nmomW=0\nmomB=0\nwc=0\nkeep=0.5\ncoeff=1\n";
    const NetFiles files = stored_files(checkpoint_, diagnostics);
    devices_.device = DeviceKind::cpu;
    devices_.threads = 1;
    graph_ = build_graph(files.definition, files.parameters, provider_->matrices(),
                         graph_options(NetFileOptions(), devices_, step_), diagnostics);
    diagnostics.throw_if_errors();
    Net net(graph_, *provider_, devices_, step_, {}, false);
    net.prepare(Phase::test, 1);
    net.init_weights(3);
    net.store(checkpoint_.tensors);
    batch_ = provider_->read({1, 0, 0, 1}, {});
  }

  CamNet cam(const std::string& layer) const {
    return CamNet(checkpoint_, graph_, *provider_, devices_, step_, {}, layer, "");
  }
  CamMap map(const std::string& layer, std::int64_t cls) const { return cam(layer).map_of(inputs(), cls); }
  NamedTensor& tensor(const std::string& name) { return checkpoint_.tensors.tensors.at(name); }

  /// The output of a layer for the image.
  std::vector<float> output(const std::string& layer) const {
    Graph readable = graph_;
    keep_output(readable, layer);
    Net net(readable, *provider_, devices_, step_, {}, false);
    const Plan& plan = net.prepare(Phase::test, 1);
    net.load(checkpoint_.tensors, "net");
    OutputReader reader(net, {layer});
    StepInputs step;
    step.matrices = inputs();
    step.rates = net.rates(0);
    net.run(plan, step, nullptr, reader.reading(plan));
    return reader.values(0);
  }

 private:
  std::vector<const std::byte*> inputs() const {
    std::vector<const std::byte*> pointers;
    for (const auto& matrix : batch_.matrices) pointers.push_back(matrix.data());
    return pointers;
  }

  std::unique_ptr<const Provider> provider_;
  Checkpoint checkpoint_;
  DeviceOptions devices_;
  StepOptions step_;
  Graph graph_;
  DataBatch batch_;
};

/// The map of maps `output` whose pixels have the derivatives factor[k] · weights[k][p], as the paper
/// computes it.
std::vector<float> expected(const std::vector<float>& output, const std::vector<float>& weights,
                            const std::vector<double>& factors) {
  const std::size_t pixels = output.size() / factors.size();
  std::vector<double> sums(pixels, 0);
  for (std::size_t k = 0; k < factors.size(); ++k) {
    double mean = 0;
    for (std::size_t p = 0; p < pixels; ++p)
      mean += factors[k] * weights[k * pixels + p] / static_cast<double>(pixels);
    for (std::size_t p = 0; p < pixels; ++p) sums[p] += mean * output[k * pixels + p];
  }
  const double most = *std::max_element(sums.begin(), sums.end());
  std::vector<float> map;
  for (const double sum : sums) map.push_back(most > 0 ? static_cast<float>(std::max(0.0, sum / most)) : 0);
  return map;
}

void check_close(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(std::abs(a[i] - b[i]) < 2e-3);
}

std::vector<float> weights_of_class(const NamedTensor& fc, std::size_t cls) {
  const std::size_t inputs = fc.values.size() / kClasses;
  const auto first = fc.values.begin() + static_cast<std::ptrdiff_t>(cls * inputs);
  return {first, first + static_cast<std::ptrdiff_t>(inputs)};
}

const std::string kConv =
    "[conv1]\ntype=conv\ninputs=data\nfilters=3\nfilterSize=3\npadding=1\ninitW=0.5\nneuron=relu\n";

}  // namespace

TEST_CASE("the map of a layer below batch norm, dropout and fc is that of the known derivatives in a test") {
  SmallCam net(kConv + "[bn1]\ntype=bnorm\ninputs=conv1\n", "bn1");
  net.tensor("bn1.scale").values = {1, -2, 0.5};
  net.tensor("bn1.runningVar").values = {4, 1, 0.25};
  std::vector<double> factors;
  for (std::size_t k = 0; k < 3; ++k)
    factors.push_back(net.tensor("bn1.scale").values[k] /
                      std::sqrt(net.tensor("bn1.runningVar").values[k] + 1e-5));
  for (std::int64_t cls = 0; cls < kClasses; ++cls) {
    INFO(cls);
    const CamMap map = net.map("conv1", cls);
    CHECK(map.width == kSide);
    CHECK(map.height == kSide);
    check_close(
        map.values,
        expected(net.output("conv1"),
                 weights_of_class(net.tensor("fc.weights.drop"), static_cast<std::size_t>(cls)), factors));
  }
}

TEST_CASE("a layer that a branch goes around is cut out with what the branch carries") {
  SmallCam net(kConv +
                   "[conv2]\ntype=conv\ninputs=conv1\nfilters=3\nfilterSize=3\npadding=1\ninitW=0.5\n"
                   "[sum]\ntype=eltsum\ninputs=conv1,conv2\n",
               "sum");
  check_close(net.map("conv2", 2).values,
              expected(net.output("conv2"), weights_of_class(net.tensor("fc.weights.drop"), 2), {1, 1, 1}));
}

TEST_CASE("Grad-CAM takes the last layer with maps and the most probable class if none is named") {
  SmallCam net(kConv +
                   "[pool1]\ntype=pool\ninputs=conv1\npool=max\nsizeX=2\nstride=2\n"
                   "[all]\ntype=pool\ninputs=pool1\npool=avg\nsizeX=3\nstride=3\n",
               "all");
  CamNet cam = net.cam("");
  CHECK(cam.layer() == "pool1");
  CHECK(cam.maps_text() == "3 maps of 3x3");
  CHECK(net.map("", -1).values == net.map("", static_cast<std::int64_t>(net.map("", -1).cls)).values);
  const std::vector<float> probabilities = net.output("probs");
  CHECK(net.map("", -1).cls ==
        static_cast<std::size_t>(std::max_element(probabilities.begin(), probabilities.end()) -
                                 probabilities.begin()));
}

TEST_CASE("layers that have no maps between the images and the scores are refused") {
  const SmallCam net(kConv, "conv1");
  CHECK_THROWS_WITH(net.cam("fc"),
                    Catch::Contains("layer 'fc' has no maps but a vector") && Catch::Contains("like 'drop'"));
  CHECK_THROWS_WITH(net.cam("data"), Catch::Contains("is not between the images and the scores of 'probs'"));
  CHECK_THROWS_WITH(net.cam("conv2"), Catch::Contains("did you mean 'conv1'?"));
}

TEST_CASE("classes of Grad-CAM are given by name or number") {
  Classifier classifier;
  classifier.outputs = 3;
  classifier.class_names = {"cat", "dog", "0"};
  CHECK(class_of(classifier, "dog") == 1);
  CHECK(class_of(classifier, "0") == 2);
  CHECK(class_of(classifier, "1") == 1);
  CHECK_THROWS_WITH(class_of(classifier, "dogg"), Catch::Contains("did you mean 'dog'?"));
  CHECK_THROWS_AS(class_of(classifier, "3"), InputError);
}

TEST_CASE("a drawing of Grad-CAM is red where a map is high, and the picture elsewhere") {
  const Picture grey(4, 4, {100, 100, 100});
  CamMap map;
  map.width = map.height = 2;
  map.values = {1, 0, 0, 0};
  const Picture drawn = draw_cam(grey, map);
  CHECK(drawn.width() == 224);
  CHECK(drawn.at(20, 20).r > 180);
  CHECK(drawn.at(20, 20).b < 40);
  CHECK(drawn.at(200, 200) == Color{100, 100, 100});
  CHECK(draw_cam(Picture(300, 10), map).width() == 300);
}
