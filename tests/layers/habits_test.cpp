// Files that cuda-convnet2 takes because its parser is more generous than a table of keys: lists for each
// input, names that are taken, keys of other layer types, empty values. Some tests are of files that it
// refuses and this program warns of.
#include <algorithm>

#include "providers/dummy.h"
#include "tests/layers/against_reference.h"

using namespace convnet;
using namespace convnet::test;

namespace {

const std::string kRates = "epsW=0.1\nepsB=0.1\nmomW=0.9\nmomB=0.9\n";

Built build(const NetTexts& texts) {
  return build_net(texts, ShapeOnlyProvider({3, 12, 12}, 4, {{4, ExtraMatrix::one_hot}}));
}

/// Puts `layers` between data and cost; "p" and "q" below them are convolutions to 4 maps of 12x12.
NetTexts net(const std::string& layers, const std::string& top, const std::string& parameters = "") {
  return between_data_and_cost(conv("p", "inputs=data channels=3 filters=4 filterSize=1") +
                                   conv("q", "inputs=data channels=3 filters=4 filterSize=1 neuron=relu") +
                                   layers,
                               top, 4, parameters);
}

/// Builds the usual net: p and q added up, and `layers` above that.
Built above_sum(const std::string& layers, const std::string& top, const std::string& parameters = "") {
  return build(net(section("s", "eltsum", "inputs=p,q") + layers, top, parameters));
}

bool says(const std::vector<std::string>& messages, const std::string& text) {
  return std::any_of(messages.begin(), messages.end(),
                     [&](const std::string& m) { return m.find(text) != std::string::npos; });
}

/// Checks that there is one warning, with this text, and no error.
void check_warned(const Built& built, const std::string& text) {
  CAPTURE(built.errors, built.warnings, text);
  CHECK(built.errors.empty());
  CHECK(built.warnings.size() == 1);
  CHECK(says(built.warnings, text));
}

void check_silent(const Built& built) {
  CAPTURE(built.errors, built.warnings);
  CHECK(built.errors.empty());
  CHECK(built.warnings.empty());
}

}  // namespace

TEST_CASE("filters= may be a list, as the other keys of conv and local") {
  for (const std::string type : {"conv", "local"}) {
    const auto with = [&](const std::string& keys) {
      return build(net(section("x", type, "inputs=p,q " + keys), "x"));
    };
    const Built list = with(
        "channels=4,4 filters=6,6 padding=1,1 stride=1,1 filterSize=3,3 groups=1,1 "
        "initW=0.01,0.01 partialSum=4,4 randSparse=0,0");
    check_silent(list);
    CHECK(list.graph.find("x")->layer->output == FeatureShape{6, 12, 12, true});
    // The numbers of output maps, groups times filters, must agree.
    const Built groups = with("channels=4 filters=6,3 groups=1,2 filterSize=3");
    check_silent(groups);
    CHECK(groups.graph.find("x")->layer->output.c == 6);
    CHECK(groups.graph.find("x")->layer->weights.at(1).dims ==
          (type == "conv" ? Dims{6, 2, 3, 3} : Dims{10, 10, 6, 2, 3, 3}));
    const Built unequal = with("channels=4 filters=6,3 filterSize=3");
    CAPTURE(unequal.errors);
    REQUIRE(unequal.errors.size() == 1);
    CHECK(says(
        unequal.errors,
        "layer 'x': input 'q' gives 3 filters, but 'p' gives 6 filters; the outputs of all inputs are added "
        "up, so filters*groups must be equal"));
    CHECK(unequal.errors[0].starts_with("net.cfg:"));
    CHECK(says(with("channels=4 filters=6,6,6 filterSize=3").errors,
               "layer 'x': filters has 3 values for 2 inputs"));
    CHECK(says(with("channels=4 filters=6,0 filterSize=3").errors, "layer 'x': filters expects an integer"));
  }
  train_like_reference({"groups that differ between inputs",
                        {3, 5, 5},
                        2,
                        conv("p", "inputs=data channels=3 filters=4 filterSize=1") +
                            conv("x", "inputs=p,data channels=4,3 filters=6,6 filterSize=3,3 padding=1,1"),
                        "x"});
}

TEST_CASE("a layer may read an input several times, with a matrix for each") {
  const std::string p1 = conv("p.1", "inputs=p channels=4 filters=4 filterSize=1");
  const Built built = above_sum(p1 + fc("x", "inputs=p,p,p.1,s,p,p.1 outputs=3"), "x");
  check_silent(built);
  std::vector<std::string> names;
  for (const WeightSpec& w : built.graph.find("x")->layer->weights) names.push_back(w.name);
  CHECK(names == std::vector<std::string>{"weights.p", "weights.p.2", "weights.p.1", "weights.s",
                                          "weights.p.3", "weights.p.1.1", "biases"});
  for (const std::string type : {"conv", "local"})
    train_like_reference(
        {type,
         {3, 5, 5},
         2,
         conv("p", "inputs=data channels=3 filters=4 filterSize=1 neuron=relu") +
             section("x", type,
                     "inputs=p,p,data channels=4,4,3 filters=6 filterSize=3,5,1 padding=1,2,0 "
                     "initW=0.3,0.1,0.2"),
         "x",
         rates("x", "", "0.05,0.02,0.03")});
}

TEST_CASE("an implicit layer whose name is taken gets another, whichever comes first") {
  const std::string own = section("x_neuron", "neuron", "inputs=s neuron=tanh[1,1]") +
                          section("x_dropout", "dropout", "inputs=x_neuron");
  const std::string x = conv("x", "inputs=s channels=4 filters=4 filterSize=1 dropout=0.5 neuron=relu");
  const std::string both = section("sum", "eltsum", "inputs=x,x_dropout");
  for (const std::string& layers : {own + x + both, x + own + both}) {
    const Built built = above_sum(layers, "sum");
    check_silent(built);
    const auto input = [&](const std::string& layer) {
      const Node* node = built.graph.find(layer);
      REQUIRE(node != nullptr);
      return built.graph.nodes[node->inputs.at(0)].name;
    };
    CHECK(input("sum") == "x_neuron.1");
    CHECK(input("x_neuron.1") == "x_dropout.1");
    CHECK(input("x_dropout.1") == "x");
    CHECK(input("x_neuron") == "s");
    CHECK(built.graph.find("x_dropout")->section == "x_dropout");
  }
  // A third layer of that name is renamed, too.
  const Built third = above_sum(own + section("x_neuron.1", "neuron", "inputs=x_dropout neuron=abs") + x +
                                    section("sum", "eltsum", "inputs=x,x_neuron.1"),
                                "sum");
  check_silent(third);
  CHECK(third.graph.find("x_neuron.2") != nullptr);
}

TEST_CASE("a net with taken names trains, and its layers can be read") {
  const NetTexts texts =
      between_data_and_cost(conv("x", "inputs=data channels=3 filters=4 filterSize=3 neuron=relu") +
                                section("x_neuron", "neuron", "inputs=x neuron=linear[-1,0]"),
                            "x_neuron", 4);
  SmallNet small(texts, {3, 5, 5}, 4);
  const Minibatch batch = random_minibatch({3, 5, 5}, 3, 4, 1);
  for (double cost : small.step(Phase::train, batch, 0).costs) CHECK(std::isfinite(cost));
  const auto outputs = small.read_outputs(batch);
  const std::vector<float>& x = outputs.at("x");
  const std::vector<float>& negated = outputs.at("x_neuron");
  REQUIRE(x.size() == negated.size());
  CHECK(*std::max_element(x.begin(), x.end()) > 0);
  CHECK(*std::min_element(x.begin(), x.end()) == 0);  // after its relu
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(negated[i] == -x[i]);
}

TEST_CASE("keys that the optimiser of a layer does not use get a warning") {
  const std::string rates = "epsW=0.1\nepsB=0.1\nmomW=0.9\nmomB=0.9\n";
  const auto built = [&](const std::string& layer, const std::string& keys) {
    std::string text = "[x]\n" + rates + keys;
    std::replace(text.begin(), text.end(), ' ', '\n');
    return above_sum(section("x", layer,
                             layer == "bnorm" ? "inputs=s"
                             : layer == "fc"  ? "inputs=s outputs=3"
                                              : "inputs=s channels=4 filters=3 filterSize=1"),
                     "x", text);
  };
  for (const std::string layer : {"fc", "conv", "bnorm"}) {
    check_warned(built(layer, "beta2=0.9"),
                 "layer 'x': beta2 has no effect with optimizer=sgd; adamw and rmsprop use it");
    check_warned(built(layer, "optimizer=lars adamEpsilon=1e-3"),
                 "layer 'x': adamEpsilon has no effect with optimizer=lars; adamw and rmsprop use it");
    check_warned(built(layer, "optimizer=adamw trust=0.1"),
                 "layer 'x': trust has no effect with optimizer=adamw; lars uses it");
    check_silent(built(layer, "optimizer=rmsprop beta2=0.9 adamEpsilon=1e-3"));
    check_silent(built(layer, "optimizer=lars trust=0.1"));
    // [DEFAULT] is for all layers, whatever their optimisers.
    check_silent(above_sum(section("x", "fc", "inputs=s outputs=3"), "x",
                           "[DEFAULT]\nbeta2=0.9\ntrust=0.1\n[x]\n" + rates));
  }
  check_warned(built("conv", "wcNormMin=0.1"), "layer 'x': wcNormMin has no effect without wcNormMax");
  check_silent(built("conv", "wcNormMin=0.1 wcNormMax=0.2"));
}

TEST_CASE("keys that other layer types have are ignored with a warning") {
  struct Habit {
    std::string layer, parameters, warning;
  };
  const std::string norm = "[x]\nscale=0.1\npow=0.75\n";
  const std::vector<Habit> habits = {
      {section("x", "eltsum", "inputs=s,p coeff=1"), "",
       "layer 'x': unknown key 'coeff' is ignored: it belongs to layers of type cost.logreg, cost.crossent, "
       "cost.bce, cost.dce, cost.sum2; did you mean 'coeffs'?"},
      {section("x", "rnorm", "inputs=s channels=4 size=3 sizeX=3"), norm,
       "unknown key 'sizeX' is ignored: it belongs to layers of type pool, crop; did you mean 'size'?"},
      {section("x", "pool", "pool=max inputs=s channels=4 sizeX=3 stride=2 size=3"), "",
       "unknown key 'size' is ignored: it belongs to layers of type cmpool, rnorm, cmrnorm, cnorm"},
      {section("x", "fc", "inputs=s outputs=3 outputsX=3"), "",
       "unknown key 'outputsX' is ignored: it belongs to layers of type pool"},
      {section("x", "fc", "inputs=s outputs=3 partialSum=3"), "",
       "unknown key 'partialSum' is ignored: it belongs to layers of type conv, local"},
      {section("x", "conv", "inputs=s channels=4 filters=3 filterSize=1 initCFunc=f.g(1)"), "",
       "unknown key 'initCFunc' is ignored: it makes the connections of randSparse, which is not supported"},
      {section("x", "href", "inputs=s channels=4 momW=0.5"), "",
       "unknown key 'momW' is ignored: it belongs to layers of type fc, sfc, conv, local, bnorm"},
      {section("x", "fc", "inputs=s outputs=3 channels=4"), "", "cmpool, rnorm and 11 more"},
      {section("x", "eltsum", "inputs=s,p"), "[x]\ncoeff=2\n", "unknown key 'coeff' is ignored: it belongs"},
  };
  for (const Habit& habit : habits)
    check_warned(above_sum(habit.layer, "x", habit.parameters), habit.warning);
  // A key that is needed is still missed.
  const Built missing = above_sum(section("x", "pool", "pool=max inputs=s channels=4 size=3 stride=1"), "x");
  CHECK(says(missing.errors, "layer 'x': 'sizeX' is missing"));
  CHECK(says(missing.warnings, "'size' is ignored"));
}

TEST_CASE("real typos stay errors, transposed short keys too") {
  for (const auto& [layer, key] : std::vector<std::pair<std::string, std::string>>{
           {section("x", "pool", "pool=max inputs=s channels=4 sizeX=3 stride=2 strat=1"), "start"},
           {section("x", "eltsum", "inputs=s,p coefs=1,1"), "coeffs"},
           {section("x", "fc", "inputs=s outputs=3 intiW=1"), "initW"},
           {section("x", "fc", "inputs=s outputs=3 nueron=relu"), "neuron"}}) {
    const Built built = above_sum(layer, "x");
    CAPTURE(built.errors, key);
    CHECK(says(built.errors, "did you mean '" + key + "'?"));
  }
  const Built keep = above_sum(section("x", "dropout", "inputs=s"), "x", "[x]\nkepe=0.5\n");
  CHECK(says(keep.errors, "layer 'x': unknown key 'kepe'; did you mean 'keep'?"));
}

TEST_CASE("an older spelling of cmrnorm is no rnorm") {
  const std::string norm = "[x]\nscale=0.1\npow=0.75\n";
  for (const std::string type : {"rnorm", "cnorm"}) {
    const auto with = [&](const std::string& value) {
      return above_sum(section("x", type, "inputs=s channels=4 size=3 crossMap=" + value), "x", norm);
    };
    CHECK(says(with("1").errors, "layer 'x': crossMap=1 normalises across maps, which layers of type " +
                                     type + " do not; write type=cmrnorm, without crossMap"));
    check_silent(with("0"));
  }
  check_warned(above_sum(section("x", "cmrnorm", "inputs=s channels=4 size=3 crossMap=1"), "x", norm),
               "unknown key 'crossMap' is ignored");
}

TEST_CASE("init functions may be written without parentheses") {
  const auto with = [](const std::string& text) {
    return above_sum(section("x", "fc", "inputs=s outputs=3 initWFunc=" + text), "x");
  };
  const Built plain = with("initw.makew");
  check_silent(plain);
  const InitFunction& function = plain.graph.find("x")->layer->weights.at(0).init;
  CHECK(function.name == "makew");
  CHECK(function.args.empty());
  check_warned(with("initw.winit3"), "initWFunc=initw.winit3: there is no function 'winit3' here");
  check_warned(with("winit3"), "there is no function 'winit3' here");
  for (const std::string wrong : {"f.g(", "f.", "f.(1)", "(1)", "f.g(1"}) {
    INFO(wrong);
    CHECK(says(with(wrong).errors,
               "initWFunc must be written function or function(arguments), not '" + wrong + "'"));
  }
}

TEST_CASE("neuron= without a value is no neuron") {
  const Built built = above_sum(section("x", "fc", "inputs=s outputs=3 neuron="), "x");
  check_silent(built);
  CHECK(built.graph.find("x_neuron") == nullptr);
  CHECK(says(above_sum(section("x", "neuron", "inputs=s neuron="), "x").errors,
             "layer 'x': 'neuron' is missing; it is one of ident, "));
}

TEST_CASE("what cuda-convnet2 refuses as a mistake of the file gets a warning") {
  const std::string norm = "[x]\nscale=0.1\npow=0.75\n";
  check_warned(above_sum(section("x", "rnorm", "inputs=s channels=4 size=13"), "x", norm),
               "layer 'x': size=13 is larger than the image of input 's' (4x12x12): windows are clipped, but "
               "scale/size^2 is not");
  check_warned(above_sum(section("x", "cnorm", "inputs=s channels=4 size=13"), "x", norm),
               "larger than the image");
  check_silent(above_sum(section("x", "rnorm", "inputs=s channels=4 size=12"), "x", norm));
  check_warned(
      above_sum(section("x", "cmrnorm", "inputs=s channels=4 size=5"), "x", norm),
      "size=5 is larger than the maps of input 's' (4x12x12): windows are clipped, but scale/size is not");
  check_silent(above_sum(section("x", "cmrnorm", "inputs=s channels=4 size=4"), "x", norm));
  const auto cmpool = [](const std::string& keys) {
    return above_sum(section("x", "cmpool", "pool=max inputs=s channels=4 " + keys), "x");
  };
  check_silent(cmpool("size=2 stride=2"));
  check_silent(cmpool("size=3 stride=2 start=-1"));
  check_silent(cmpool("size=2 stride=1 start=-1 outputs=5"));
  check_warned(
      cmpool("size=2 stride=2 outputs=1"),
      "layer 'x': 2 of the 4 maps of input 's' lie in no window (size=2, stride=2, start=0, 1 outputs) and "
      "are not used");
  check_warned(cmpool("size=1 stride=3"), "2 of the 4 maps");
  check_warned(cmpool("size=2 stride=1 start=1"), "1 of the 4 maps");
  check_warned(
      above_sum(fc("five", "inputs=s outputs=5") + section("wide", "softmax", "inputs=five") +
                    section("cost2", "cost.logreg", "inputs=labels,wide"),
                "s", "[cost2]\ncoeff=1\n"),
      "layer 'cost2': 'wide' has 5 outputs, but the data has only 4 classes: no image belongs to the others");
}

TEST_CASE("weights without a cost to learn from are named: they stay as they are") {
  const std::string two = fc("side", "inputs=s outputs=4 neuron=relu") + fc("end", "inputs=side outputs=4") +
                          section("soft", "softmax", "inputs=end") +
                          section("cost2", "cost.logreg", "inputs=labels,soft");
  check_silent(above_sum(two, "s", "[cost2]\ncoeff=0.1\n"));
  check_warned(above_sum(two, "s", "[cost2]\ncoeff=0\n"),
               "no gradient of a cost reaches weights of side, end: they stay as "
               "they are, without decay");
  // Frozen weights are not meant to learn.
  const std::string frozen = "epsW=0\nepsB=0\nmomW=0\nmomB=0\n";
  check_silent(above_sum(two, "s", "[side]\n" + frozen + "[end]\n" + frozen + "[cost2]\ncoeff=0\n"));
  // The owner of shared weights learns if a layer that shares them does; its biases do not.
  const std::string shared = fc("side", "inputs=s outputs=4 biases=0") +
                             section("soft", "softmax", "inputs=side") +
                             section("cost2", "cost.logreg", "inputs=labels,soft") +
                             fc("main", "inputs=s outputs=4 weightSource=side[0]");
  check_silent(above_sum(shared, "main", "[cost2]\ncoeff=0\n"));

  SmallNet small(net(section("s", "eltsum", "inputs=p,q") + two, "s",
                     "[side]\n" + kRates + "wc=0.5\n[cost2]\ncoeff=0\n"),
                 {3, 5, 5}, 4);
  small.prepare(Phase::train, 3);
  const auto before = small.tensors();
  small.step(Phase::train, random_minibatch({3, 5, 5}, 3, 4, 1), 0);
  const auto after = small.tensors();
  CHECK(after.at("side.weights.s").values == before.at("side.weights.s").values);
  CHECK(after.at("p.weights.data").values != before.at("p.weights.data").values);
}

TEST_CASE("messages about data name its classes, and the order of dimensions that it may have") {
  const auto errors_for = [](const Dims& image, std::vector<std::string> names) {
    const auto classes = std::ssize(names);
    const auto provider = make_dummy_provider(
        {{"data", image, DataType::u8}, {"labels", {1}, DataType::s32, classes, std::move(names)}}, true, 1);
    return build_net(between_data_and_cost(
                         "[conv]\ntype=conv\ninputs=data\nchannels=3\nfilters=2\nfilterSize=3\n", "conv", 2),
                     *provider)
        .errors;
  };
  std::vector<std::string> names;
  for (char letter = 'a'; letter <= 'l'; ++letter) names.emplace_back(1, letter);
  CHECK(says(errors_for({3, 16, 16}, names),
             "the data has 12 classes, but 'probs' has only 2 outputs; the classes are a, b, c, d, e, f, g, "
             "h, i, j, …"));
  CHECK(says(errors_for({3, 16, 16}, {"cat", "dog", "owl"}),
             "has only 2 outputs; the classes are cat, dog, owl"));
  const std::string advice = "an array of (N,H,W,C) is saved as (N,C,H,W) by images.transpose(0, 3, 1, 2)";
  CHECK(says(errors_for({16, 16, 3}, {"cat", "dog"}), "has 16 channels; " + advice));
  CHECK_FALSE(says(errors_for({16, 16, 4}, {"cat", "dog"}), advice));
  CHECK_FALSE(says(errors_for({1, 16, 3}, {"cat", "dog"}), advice));
}
