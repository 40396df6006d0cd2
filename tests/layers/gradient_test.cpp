// Gradients against central differences: of the interpreter in double precision, and of the fp32 program
// itself.
#include <algorithm>

#include "convnet/base/philox.h"
#include "tests/larger.h"
#include "tests/layers/against_reference.h"

using namespace convnet;
using namespace convnet::test;

namespace {

constexpr int kClasses = 4;
constexpr std::int64_t kCheckedImages = 3;

struct GradientNet {
  std::string name;
  Dims image;
  NetTexts texts;
};

const std::vector<ExtraMatrix>& extra() {
  static const std::vector<ExtraMatrix> matrices = {{kClasses, ExtraMatrix::one_hot},
                                                    {5, ExtraMatrix::multi_hot}};
  return matrices;
}

GradientNet net(const std::string& name, const Dims& image, const std::string& layers, const std::string& top,
                const std::string& parameters = "") {
  return {name, image, between_data_and_cost(layers, top, kClasses, parameters)};
}

std::string tanh_conv(const std::string& name, const std::string& keys) {
  return conv(name, keys + " neuron=tanh[1,1]");
}

std::vector<GradientNet> smooth_nets() {
  const std::string a = tanh_conv("a", "inputs=data channels=3 filters=4 filterSize=2");
  const std::string norm = "[x]\nscale=0.5\npow=0.75\n";
  const std::string f = fc("f", "inputs=data outputs=6 neuron=tanh[1,1]");
  std::vector<GradientNet> nets = {
      net("conv, average, cmrnorm, fc", {3, 5, 5},
          conv("a", "inputs=data channels=3 filters=6 filterSize=3 padding=1 neuron=tanh[1.7,0.6]") +
              section("p", "pool", "pool=avg inputs=a channels=6 sizeX=3 stride=2") +
              section("n", "cmrnorm", "inputs=p channels=6 size=4") +
              conv("b", "inputs=n,p channels=6 filters=4 filterSize=2 neuron=logistic") +
              fc("f", "inputs=b,n outputs=5 neuron=tanh[1,1]"),
          "f", "[n]\nscale=0.5\npow=0.75\n"),
      net("local, unshared biases", {2, 4, 4},
          conv("a", "inputs=data channels=2 filters=3 filterSize=1 sharedBiases=0 neuron=tanh[1,1]") +
              section("l", "local",
                      "inputs=a,data channels=3,2 filters=2 filterSize=3,2 stride=2 padding=1,0 modulesX=2 "
                      "initW=0.3 "
                      "neuron=logistic"),
          "l"),
      net("rectangles, dilated, with one-sided borders", {2, 6, 5},
          tanh_conv("a",
                    "inputs=data channels=2 filters=3 filterSize=3 filterSizeY=1 padding=1 paddingY=0 "
                    "dilation=2 paddingEnd=3 paddingEndY=0") +
              tanh_conv("b",
                        "inputs=a channels=3 filters=4 filterSize=2 filterSizeY=3 strideY=2 dilationY=2 "
                        "paddingY=2 paddingEnd=1") +
              section("p", "pool",
                      "pool=avg inputs=b channels=4 sizeX=3 sizeY=2 stride=2 strideY=1 startY=-1 "
                      "paddingEnd=1") +
              section("l", "local",
                      "inputs=a channels=3 filters=2 filterSize=2 filterSizeY=3 stride=2 dilation=2 "
                      "initW=0.3 neuron=logistic"),
          "p,l"),
      net("sfc", {6}, f + section("s", "sfc", "inputs=f,data parts=3 outputs=2 initW=0.4 neuron=tanh[1,1]"),
          "s"),
      net("rnorm", {3, 4, 4}, a + section("x", "rnorm", "inputs=a channels=4 size=2"), "x", norm),
      net("cnorm", {3, 5, 4}, a + section("x", "cnorm", "inputs=a channels=4 size=3"), "x", norm),
      net("cnorm, even", {3, 4, 4}, a + section("x", "cnorm", "inputs=a channels=4 size=4"), "x",
          "[x]\nscale=2\npow=1.5\nminDiv=2\n"),
      net("bnorm", {3, 4, 4}, a + section("x", "bnorm", "inputs=a channels=4 epsilon=0.01 neuron=logistic"),
          "x"),
      net("bnorm of a vector", {6}, f + section("x", "bnorm", "inputs=f epsilon=0.01 neuron=tanh[1,1]"), "x"),
      net("joins", {3, 3, 3},
          a + tanh_conv("b", "inputs=data channels=3 filters=4 filterSize=2") +
              section("j", "concat", "inputs=a,b") + section("k", "eltsum", "inputs=a,b,a coeffs=0.5,-1,2") +
              section("p", "pass", "inputs=k,a") + section("s", "sum", "inputs=j stride=4 neuron=tanh[1,1]"),
          "s,p"),
      net("maps in parts and in another order", {3, 3, 3},
          a + section("s", "shuffle", "inputs=a groups=2") +
              section("p", "slice", "inputs=s start=1 maps=2") +
              section("r", "slice", "inputs=s start=3 neuron=tanh[1,1]") +
              fc("f", "inputs=p,a outputs=6 neuron=tanh[1,1]") +
              section("g", "shuffle", "inputs=f groups=3") +
              section("h", "slice", "inputs=g start=2 maps=3 neuron=square"),
          "r,h"),
      net("products", {3, 3, 3},
          a + tanh_conv("b", "inputs=data channels=3 filters=4 filterSize=2") +
              fc("g", "inputs=data outputs=4") + section("j", "eltmul", "inputs=a,b") +
              section("k", "eltmul", "inputs=j,g") + section("s", "eltmul", "inputs=k,k"),
          "s"),
      net("pixels", {3, 5, 5},
          a + section("n", "nailbed", "inputs=a channels=4 stride=2") +
              section("b", "blur", "inputs=a channels=4 filterSize=5 stdev=1.2") +
              section("h", "href", "inputs=b channels=4 neuron=square") +
              section("s", "pool",
                      "inputs=a channels=4 pool=avg sum=1 sizeX=3 stride=2 start=-1 neuron=tanh[0.5,0.5]"),
          "n,h,s"),
      net("shared weights", {3, 4, 4},
          tanh_conv("p", "inputs=data channels=3 filters=4 filterSize=1") +
              tanh_conv("a", "inputs=p channels=4 filters=4 filterSize=3 padding=1") +
              tanh_conv("b", "inputs=a,p channels=4 filters=4 filterSize=3 padding=1 weightSource=a[0],a"),
          "b"),
      net("inputs read twice", {3, 4, 4},
          tanh_conv("a", "inputs=data,data channels=3 filters=4 filterSize=3,1 padding=1,0") +
              tanh_conv("b",
                        "inputs=a,a,a channels=4 filters=4 filterSize=1,3,1 padding=0,1,0 weightSource=,,b") +
              fc("f", "inputs=b,b outputs=4"),
          "f"),
      net("costs", {6},
          section("onehot", "data", "dataIdx=2") + section("tags", "data", "dataIdx=3") + f +
              fc("g", "inputs=f outputs=5 neuron=logistic") + fc("h", "inputs=f outputs=4") +
              section("q", "softmax", "inputs=h") + section("c1", "cost.crossent", "inputs=onehot,q") +
              section("c2", "cost.bce", "inputs=tags,g") + section("c3", "cost.dce", "inputs=tags,g") +
              section("c4", "cost.sum2", "inputs=f"),
          "f",
          "[c1]\ncoeff=0.7\n[c2]\ncoeff=0.5\nposWeight=2\n[c3]\ncoeff=0.3\nposWeight=0.5\n[c4]\ncoeff=0.2\n"),
  };
  for (const std::string g : {"softrelu", "square", "linear[-0.7,0.3]", "drelu[0.8]", "log[3]", "elu[1]",
                              "silu", "gelu", "mish", "hsigmoid", "hswish"})
    nets.push_back(net(g, {6}, f + fc("g", "inputs=f outputs=5 neuron=" + g), "g"));
  nets.push_back(
      net("sqrt", {6},
          fc("g", "inputs=data outputs=5 neuron=logistic") + section("x", "neuron", "inputs=g neuron=sqrt"),
          "x"));
  return nets;
}

std::vector<GradientNet> kinked_nets() {
  const auto a = [](const std::string& neuron) {
    return conv("a", "inputs=data channels=3 filters=5 filterSize=3 padding=1 neuron=" + neuron);
  };
  return {
      net("relu and max", {3, 7, 7},
          a("relu") + section("p", "pool", "pool=max inputs=a channels=5 sizeX=3 stride=2") +
              conv("b", "inputs=p channels=5 filters=4 filterSize=2 neuron=relu"),
          "b"),
      net("maxabs, max across maps", {3, 4, 4},
          a("tanh[1,1]") + section("p", "pool", "pool=maxabs inputs=a channels=5 sizeX=3 stride=2") +
              section("m", "cmpool", "pool=max inputs=a channels=5 size=3 stride=2 start=-1 outputs=3"),
          "p,m"),
      net("largest of inputs", {3, 4, 4},
          a("ident") + conv("b", "inputs=data channels=3 filters=5 filterSize=1") +
              section("m", "eltmax", "inputs=a,b,a"),
          "m"),
      net("bnorm and relu", {3, 4, 4},
          a("tanh[1,1]") + section("x", "bnorm", "inputs=a channels=5 epsilon=0.01 neuron=relu"), "x"),
      net("bnorm and brelu", {3, 4, 4},
          a("tanh[1,1]") + section("x", "bnorm", "inputs=a channels=5 epsilon=0.01 neuron=brelu[1]"), "x"),
      net("bnorm and leaky", {3, 4, 4},
          a("tanh[1,1]") + section("x", "bnorm", "inputs=a channels=5 epsilon=0.01 neuron=leaky[0.2]"), "x"),
      net("bnorm and hswish, beyond its kinks", {3, 4, 4},
          a("tanh[1,1]") +
              section("x", "bnorm", "inputs=a channels=5 epsilon=0.01 initScale=3 neuron=hswish"),
          "x"),
      net("abs, brelu, abstanh", {6},
          fc("f", "inputs=data outputs=6 neuron=abs") + fc("g", "inputs=f outputs=6 neuron=brelu[0.5]") +
              fc("h", "inputs=g,f outputs=5 neuron=abstanh[1.2,0.9]"),
          "h")};
}

/// Compares analytic gradients with differences of a cost, element by element.
class GradientCheck {
 public:
  GradientCheck(double step, double tolerance) : step_(step), tolerance_(tolerance) {}

  /// `cost(x)` is the cost with this element moved by x; `scale` the largest gradient of its matrix.
  template <class Cost>
  void element(double gradient, double scale, double here, const Cost& cost) {
    const double above = (cost(step_) - here) / step_;
    const double below = (here - cost(-step_)) / step_;
    ++elements_;
    // With a kink within the step, neither side is the derivative.
    if (std::abs(above - below) > kink_ * scale) return;
    ++checked_;
    worst_ = test::larger(worst_, std::abs((above + below) / 2 - gradient) / scale);
  }
  void finish(double least_checked) const {
    INFO("worst relative error " << worst_ << ", " << checked_ << " of " << elements_ << " elements checked");
    CHECK(worst_ < tolerance_);
    CHECK(checked_ >= least_checked * elements_);
    CHECK(elements_ > 0);
  }
  void kinks(double at_least) { kink_ = at_least; }

 private:
  double step_, tolerance_;
  double kink_ = INFINITY;
  double worst_ = 0;
  int elements_ = 0, checked_ = 0;
};

template <class Values>
double largest(const Values& values) {
  double most = 1e-30;
  for (const auto v : values) most = std::max(most, std::abs(static_cast<double>(v)));
  return most;
}

Minibatch batch_for(const GradientNet& n) {
  return random_minibatch(n.image, kCheckedImages, kClasses, 5, extra());
}

/// Makes the interpreter of a net with random weights. It needs nothing of the program but the file parser.
reference::NetReference interpreter(const GradientNet& n) {
  Diagnostics diagnostics;
  const IniFile definition = parse_ini("net.cfg", n.texts.definition, diagnostics);
  const IniFile parameters = parse_ini("params.cfg", n.texts.parameters, diagnostics);
  diagnostics.throw_if_errors();
  std::vector<Dims> provider = {n.image, {1}};
  for (const ExtraMatrix& m : extra()) provider.push_back({m.width});
  reference::NetReference reference(definition, parameters, provider, 3);
  for (auto& [name, matrix] : reference.matrices) {
    const std::uint64_t key = philox_key(7, name);
    const bool around_one = name.ends_with(".scale") || name.ends_with(".runningVar");
    for (std::size_t i = 0; i < matrix.values.size(); ++i)
      matrix.values[i] =
          1.2 * static_cast<double>(uniform01(element_random(key, 0, 0, static_cast<std::uint32_t>(i)))) -
          0.6 + (around_one ? 1 : 0);
  }
  return reference;
}

/// Compares the interpreter's gradients with differences of its own forward pass.
void check_reference(const GradientNet& n, GradientCheck check, double least_checked) {
  INFO(n.name);
  reference::NetReference reference = interpreter(n);
  const std::vector<reference::Values> inputs = reference_inputs(batch_for(n));
  reference.forward(inputs, true, 0);
  reference.backward();
  const double here = reference.objective();
  for (auto& [name, matrix] : reference.matrices) {
    if (matrix.state) continue;
    for (std::size_t i = 0; i < matrix.values.size(); ++i) {
      check.element(matrix.gradient[i], largest(matrix.gradient), here, [&, &m = matrix](double x) {
        const double old = std::exchange(m.values[i], m.values[i] + x);
        reference.forward(inputs, true, 0);
        m.values[i] = old;
        return reference.objective();
      });
    }
  }
  check.finish(least_checked);
}

/// Compares the fp32 program's gradients with differences of its training costs.
void check_program(const GradientNet& n, GradientCheck check, double least_checked) {
  INFO(n.name);
  NetOptions options;
  options.extra = extra();
  SmallNet net(n.texts, n.image, kClasses, options);
  net.prepare(Phase::train, kCheckedImages);
  const auto start = net.tensors();
  const Minibatch batch = batch_for(n);
  StepOutcome outcome = net.step(Phase::train, batch, 0, true);
  const auto gradients = outcome.gradients;
  // This is a training step, for batch statistics; it moves the weights afterwards.
  const auto cost_with = [&](const std::string& moved, const std::vector<float>& values) {
    for (const auto& [name, gradient] : gradients)
      net.set_weights(name, name == moved ? values : start.at(name).values);
    outcome = net.step(Phase::train, batch, 0);
    double sum = 0;
    std::size_t slot = 0;
    for (const Node& node : net.graph().nodes) {
      if (!node.is_cost()) continue;
      sum += node.layer->facts.cost->coeff * outcome.costs.at(slot);
      slot += static_cast<std::size_t>(node.layer->facts.cost->values);
    }
    return sum;
  };
  const double here = cost_with("", {});
  for (const auto& [name, gradient] : gradients) {
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      std::vector<float> values = start.at(name).values;
      check.element(static_cast<double>(gradient[i]), largest(gradient), here, [&, &name = name](double x) {
        const float old = std::exchange(values[i], values[i] + static_cast<float>(x));
        const double cost = cost_with(name, values);
        values[i] = old;
        return cost;
      });
    }
  }
  std::size_t learned = 0;
  for (const auto& [name, matrix] : net.reference().matrices) learned += matrix.learned() ? 1 : 0;
  CHECK(gradients.size() == learned);
  check.finish(least_checked);
}

}  // namespace

TEST_CASE("the interpreter's gradients are the derivatives of its costs") {
  for (const GradientNet& n : smooth_nets()) check_reference(n, GradientCheck(1e-5, 1e-6), 1);
  GradientCheck kinked(1e-6, 1e-4);
  kinked.kinks(1e-3);
  for (const GradientNet& n : kinked_nets()) check_reference(n, kinked, 0.95);
}

TEST_CASE("the program's gradients are the derivatives of its costs") {
  for (const GradientNet& n : smooth_nets()) check_program(n, GradientCheck(7e-3, 2e-3), 1);
}

TEST_CASE("the program's gradients through relu and max are the derivatives of its costs") {
  GradientCheck kinked(4e-3, 2e-3);
  kinked.kinks(4e-3);
  for (const GradientNet& n : kinked_nets()) check_program(n, kinked, 0.5);
}
