// Every layer type through the real path (files, graph, plan, executor, CPU kernels) against the reference
// interpreter: outputs, costs, weights and increments, over shapes that libraries find odd.
#include "tests/layers/against_reference.h"

using namespace convnet;
using namespace convnet::test;

namespace {

void run(const Case& c) { train_like_reference(c); }
std::string pool(const std::string& keys) { return "[pool]\ntype=pool\ninputs=below\n" + keys + "\n"; }
std::string norm(const std::string& keys) { return "[norm]\ntype=cmrnorm\ninputs=below\n" + keys + "\n"; }

}  // namespace

TEST_CASE("conv layers train like the reference") {
  const std::vector<Case> cases = {
      {"one channel, one pixel, one image",
       {1, 1, 1},
       1,
       conv("c", "inputs=data\nchannels=1\nfilters=1\nfilterSize=1"),
       "c"},
      {"one image",
       {3, 7, 7},
       1,
       conv("c", "inputs=data\nchannels=3\nfilters=5\nfilterSize=3\npadding=1"),
       "c"},
      {"3 to 16 channels, not square",
       {3, 6, 9},
       5,
       conv("c", "inputs=data\nchannels=3\nfilters=16\nfilterSize=3"),
       "c"},
      {"5 to 20 channels",
       {5, 5, 5},
       3,
       conv("c", "inputs=data\nchannels=5\nfilters=20\nfilterSize=5\npadding=2\nneuron=relu"),
       "c"},
      {"stride 4, the last window hangs over",
       {3, 15, 15},
       2,
       conv("c", "inputs=data\nchannels=3\nfilters=4\nfilterSize=6\nstride=4"),
       "c"},
      {"stride 2 with padding, hanging over",
       {4, 8, 8},
       3,
       conv("c", "inputs=data\nchannels=4\nfilters=3\nfilterSize=3\nstride=2\npadding=1"),
       "c"},
      {"modulesX says how many windows",
       {2, 7, 7},
       2,
       conv("c", "inputs=data\nchannels=2\nfilters=3\nfilterSize=3\nstride=2\nmodulesX=4"),
       "c"},
      {"modulesX is what it would be without the key, with the last window outside",
       {2, 4, 4},
       2,
       conv("c", "inputs=data\nchannels=2\nfilters=3\nfilterSize=1\nstride=3\npadding=2\nmodulesX=4"),
       "c"},
      {"rounded down, with pixels in no window",
       {3, 8, 10},
       2,
       conv("c", "inputs=data\nchannels=3\nfilters=4\nfilterSize=3\nstride=2\nrounding=down"),
       "c"},
      {"rounded down with padding",
       {4, 8, 9},
       3,
       conv("c", "inputs=data\nchannels=4\nfilters=3\nfilterSize=3\nstride=2\npadding=1\nrounding=down"),
       "c"},
      {"a rectangle that moves otherwise downwards",
       {3, 8, 9},
       2,
       conv(
           "c",
           "inputs=data\nchannels=3\nfilters=4\nfilterSize=3\nfilterSizeY=5\nstride=1\nstrideY=2\npadding=1\n"
           "paddingY=2"),
       "c"},
      {"a row and a column of weights",
       {3, 6, 7},
       3,
       conv("a",
            "inputs=data\nchannels=3\nfilters=16\nfilterSize=5\nfilterSizeY=1\npadding=2\npaddingY=0\n"
            "neuron=relu") +
           conv("c",
                "inputs=a\nchannels=16\nfilters=5\nfilterSize=1\nfilterSizeY=5\npaddingY=2\nneuron=relu"),
       "c"},
      {"several inputs of which one is a rectangle",
       {3, 6, 6},
       3,
       conv("a", "inputs=data\nchannels=3\nfilters=4\nfilterSize=3\npadding=1\nneuron=tanh[1,1]") +
           conv("c",
                "inputs=data,a\nchannels=3,4\nfilters=5\nfilterSize=3\nfilterSizeY=3,1\npadding=1\n"
                "paddingY=1,0"),
       "c"},
      {"dilated",
       {4, 9, 8},
       2,
       conv("c", "inputs=data\nchannels=4\nfilters=5\nfilterSize=3\npadding=2\ndilation=2\nneuron=relu"),
       "c"},
      {"dilated downwards, with a stride and groups",
       {4, 11, 8},
       2,
       conv("c",
            "inputs=data\nchannels=4\nfilters=2\ngroups=2\nfilterSize=3\npadding=1\nstride=2\ndilationY=3"),
       "c"},
      {"more border behind than before, as in TensorFlow",
       {3, 8, 8},
       3,
       conv("c", "inputs=data\nchannels=3\nfilters=4\nfilterSize=4\npadding=1\npaddingEnd=2"),
       "c"},
      {"less border below than above, rounded down",
       {3, 8, 9},
       2,
       conv("c",
            "inputs=data\nchannels=3\nfilters=4\nfilterSize=3\nstride=2\npadding=2\npaddingEndY=0\n"
            "rounding=down"),
       "c"},
      {"modulesY",
       {2, 7, 7},
       2,
       conv("c", "inputs=data\nchannels=2\nfilters=3\nfilterSize=3\nstride=2\nmodulesX=3\nmodulesY=4"),
       "c"},
      {"groups",
       {4, 5, 5},
       3,
       conv("c", "inputs=data\nchannels=4\nfilters=3\ngroups=2\nfilterSize=3\npadding=1"),
       "c"},
      {"groups above 16 channels",
       {3, 5, 5},
       2,
       below(3, 32) +
           conv("c", "inputs=below\nchannels=32\nfilters=16\ngroups=2\nfilterSize=3\npadding=1\nneuron=relu"),
       "c"},
      {"a group for each channel",
       {6, 4, 4},
       2,
       conv("c", "inputs=data\nchannels=6\nfilters=1\ngroups=6\nfilterSize=3\npadding=1"),
       "c"},
      {"several inputs with own filters",
       {3, 6, 6},
       3,
       conv("a", "inputs=data\nchannels=3\nfilters=4\nfilterSize=3\npadding=1\nneuron=tanh[1,1]") +
           conv("c", "inputs=data,a\nchannels=3,4\nfilters=5\nfilterSize=3,1\npadding=1,0\nneuron=relu"),
       "c"},
      {"a vector read as maps", {27}, 4, conv("c", "inputs=data\nchannels=3\nfilters=4\nfilterSize=2"), "c"},
      {"two in a row",
       {3, 8, 8},
       4,
       conv("a", "inputs=data\nchannels=3\nfilters=20\nfilterSize=3\npadding=1\nneuron=relu") +
           conv("c", "inputs=a\nchannels=20\nfilters=5\nfilterSize=3\nneuron=logistic"),
       "c"},
  };
  for (const Case& c : cases) run(c);
}

TEST_CASE("fc layers train like the reference") {
  const std::vector<Case> cases = {
      {"one number, one output", {1}, 1, fc("f", "inputs=data\noutputs=1"), "f", "", 2},
      {"odd sizes", {13}, 7, fc("f", "inputs=data\noutputs=5\nneuron=tanh[1.7,0.6]"), "f"},
      {"from an image", {3, 4, 5}, 3, fc("f", "inputs=data\noutputs=6\nneuron=relu"), "f"},
      {"from blocked maps", {3, 4, 4}, 3, below(3, 20) + fc("f", "inputs=below\noutputs=6"), "f"},
      {"several inputs",
       {9},
       4,
       fc("a", "inputs=data\noutputs=5\nneuron=relu") + fc("b", "inputs=a\noutputs=3\nneuron=logistic") +
           fc("f", "inputs=a,b,data\noutputs=8\nneuron=relu\ninitW=0.3,0.2,0.1"),
       "f"},
  };
  for (const Case& c : cases) run(c);
}

TEST_CASE("pool layers train like the reference") {
  const std::vector<Case> cases = {
      {"max", {3, 6, 6}, 3, below(3, 5) + pool("pool=max\nchannels=5\nsizeX=2\nstride=2"), "pool"},
      {"max, overlapping and hanging over",
       {3, 8, 8},
       2,
       below(3, 16) + pool("pool=max\nchannels=16\nsizeX=3\nstride=2"),
       "pool"},
      {"max, a rectangle that moves otherwise downwards",
       {3, 8, 9},
       2,
       below(3, 5) + pool("pool=max\nchannels=5\nsizeX=3\nsizeY=2\nstride=1\nstrideY=2\nstart=-1\nstartY=0"),
       "pool"},
      {"average of rows",
       {3, 5, 6},
       2,
       below(3, 16) + pool("pool=avg\nchannels=16\nsizeX=6\nsizeY=1\nstride=1"),
       "pool"},
      {"average, border behind alone",
       {3, 6, 6},
       2,
       below(3, 5) + pool("pool=avg\nchannels=5\nsizeX=2\nstride=1\npaddingEnd=1"),
       "pool"},
      {"max, less border below, rounded down",
       {3, 7, 7},
       2,
       below(3, 5) + pool("pool=max\nchannels=5\nsizeX=3\nstride=2\nstart=-1\npaddingEndY=0\nrounding=down"),
       "pool"},
      {"max, larger than the map",
       {3, 4, 4},
       2,
       below(3, 5) + pool("pool=max\nchannels=5\nsizeX=5\nstride=1\nstart=-2\nrounding=down"),
       "pool"},
      {"max, outputsY",
       {3, 6, 6},
       2,
       below(3, 5) + pool("pool=max\nchannels=5\nsizeX=2\nstride=2\noutputsX=2\noutputsY=3"),
       "pool"},
      {"max, negative start",
       {3, 7, 7},
       2,
       below(3, 20) + pool("pool=max\nchannels=20\nsizeX=3\nstride=2\nstart=-1"),
       "pool"},
      {"max, then relu",
       {3, 7, 6},
       3,
       below(3, 16) + pool("pool=max\nchannels=16\nsizeX=3\nstride=2\nneuron=relu"),
       "pool"},
      {"max, large window",
       {1, 20, 20},
       1,
       below(1, 3) + pool("pool=max\nchannels=3\nsizeX=17\nstride=2"),
       "pool"},
      {"the whole of maps that are not square",
       {3, 4, 7},
       2,
       below(3, 16) + pool("pool=avg\nchannels=16\nsizeX=0"),
       "pool"},
      {"the maximum of maps that are not square",
       {3, 4, 7},
       2,
       below(3, 16) + pool("pool=max\nchannels=16\nsizeX=0"),
       "pool"},
      {"the maximum of a signal",
       {1, 70000, 1},
       1,
       "[below]\ntype=conv\ninputs=data\nchannels=1\nfilters=1\nfilterSize=1\ninitW=1\n" +
           pool("pool=max\nchannels=1\nsizeX=0"),
       "pool"},
      {"average", {3, 6, 6}, 3, below(3, 16) + pool("pool=avg\nchannels=16\nsizeX=3\nstride=3"), "pool"},
      {"average, clipped at both borders",
       {3, 8, 8},
       2,
       below(3, 5) + pool("pool=avg\nchannels=5\nsizeX=3\nstride=2\nstart=-1"),
       "pool"},
      {"average, stride larger than the window",
       {2, 9, 9},
       2,
       below(2, 3) + pool("pool=avg\nchannels=3\nsizeX=2\nstride=4"),
       "pool"},
      {"sum",
       {3, 7, 7},
       2,
       below(3, 16) + pool("pool=avg\nsum=1\nchannels=16\nsizeX=3\nstride=2"),
       "pool",
       "[below]\nepsW=0.001\nepsB=0.001\nmomW=0.9\nmomB=0.9\n[top]\nepsW=0.001\nepsB=0.001\nmomW=0.9\nmomB=0."
       "9\n"},
      {"the whole map", {3, 5, 5}, 2, below(3, 16) + pool("pool=avg\nchannels=16\nsizeX=0"), "pool"},
      {"fewer outputs than cover",
       {3, 9, 9},
       2,
       below(3, 4) + pool("pool=max\nchannels=4\nsizeX=3\nstride=2\noutputsX=3"),
       "pool"},
      {"rounded down",
       {3, 8, 9},
       2,
       below(3, 4) + pool("pool=max\nchannels=4\nsizeX=3\nstride=2\nrounding=down"),
       "pool"},
      {"rounded down, with borders on both sides",
       {3, 7, 8},
       2,
       below(3, 4) + pool("pool=avg\nchannels=4\nsizeX=3\nstride=2\nstart=-1\nrounding=down"),
       "pool"},
      {"of one pixel", {3, 1, 1}, 1, below(3, 3) + pool("pool=max\nchannels=3\nsizeX=1\nstride=2"), "pool"},
  };
  for (const Case& c : cases) run(c);
}

TEST_CASE("cmrnorm layers train like the reference") {
  const std::string parameters = "[norm]\nscale=0.5\npow=0.75\n";
  const std::vector<Case> cases = {
      {"odd size", {3, 5, 5}, 2, below(3, 16) + norm("channels=16\nsize=5"), "norm", parameters},
      {"even size", {3, 4, 4}, 3, below(3, 20) + norm("channels=20\nsize=4"), "norm", parameters},
      {"five maps", {3, 5, 3}, 1, below(3, 5) + norm("channels=5\nsize=3"), "norm", parameters},
      {"one map", {1, 3, 3}, 2, below(1, 1) + norm("channels=1\nsize=1"), "norm", parameters},
      {"blocked", {3, 4, 4}, 2, below(3, 16) + norm("channels=16\nsize=4\nblocked=1"), "norm", parameters},
      {"blocked, the last group is short",
       {3, 4, 4},
       2,
       below(3, 5) + norm("channels=5\nsize=3\nblocked=1"),
       "norm",
       parameters},
      {"minDiv and another power",
       {3, 4, 4},
       2,
       below(3, 16) + norm("channels=16\nsize=5"),
       "norm",
       "[norm]\nscale=0.3\npow=1.5\nminDiv=2\n"},
  };
  for (const Case& c : cases) run(c);
}

TEST_CASE("neurons and dropout train like the reference") {
  std::vector<Case> cases;
  for (const std::string f : {"ident", "relu", "logistic", "tanh[1.7159,0.6667]"}) {
    const std::string neuron = "[n]\ntype=neuron\ninputs=below\nneuron=" + f + "\n";
    cases.push_back({"layer of its own, " + f, {3, 4, 5}, 3, below(3, 5) + neuron, "n"});
    cases.push_back(
        {"between convolutions, " + f,
         {3, 4, 4},
         2,
         below(3, 20) + neuron + conv("c", "inputs=n\nchannels=20\nfilters=3\nfilterSize=3\npadding=1"),
         "n,c"});
  }
  const auto dropout = [](const std::string& type) { return "[drop]\ntype=" + type + "\ninputs=below\n"; };
  for (const std::string type : {"dropout", "dropout2"}) {
    for (const std::string keys : {"", "keep=0.75", "keep=1", "keep=0.8\nenable=0", "drops=maps",
                                   "keep=0.7\ndrops=images", "drops=values"}) {
      cases.push_back(
          {type + " " + keys, {3, 5, 3}, 3, below(3, 20) + dropout(type), "drop", "[drop]\n" + keys + "\n"});
      cases.push_back({type + " of a vector " + keys,
                       {9},
                       3,
                       fc("below", "inputs=data\noutputs=7\nneuron=relu") + dropout(type),
                       "drop",
                       "[drop]\n" + keys + "\n"});
    }
  }
  cases.push_back(
      {"dropout= before the neuron",
       {3, 5, 5},
       2,
       conv("c", "inputs=data\nchannels=3\nfilters=16\nfilterSize=3\ndropout=0.3\nneuron=logistic"),
       "c"});
  cases.push_back({"of the data itself", {6}, 3, "[n]\ntype=neuron\ninputs=data\nneuron=relu\n", "n,data"});
  for (const Case& c : cases) run(c);
}

TEST_CASE("gradients of several users are summed") {
  const std::string a =
      conv("a", "inputs=data\nchannels=3\nfilters=16\nfilterSize=3\npadding=1\nneuron=relu");
  const std::vector<Case> cases = {
      {"two convolutions read one",
       {3, 5, 5},
       2,
       a + conv("b", "inputs=a\nchannels=16\nfilters=4\nfilterSize=3\npadding=1") +
           conv("c", "inputs=a\nchannels=16\nfilters=4\nfilterSize=1\nneuron=tanh[1,1]"),
       "b,c"},
      {"a shortcut past a layer",
       {3, 5, 5},
       2,
       a + conv("b", "inputs=a\nchannels=16\nfilters=16\nfilterSize=3\npadding=1\nneuron=relu") +
           conv("c", "inputs=a,b\nchannels=16\nfilters=3\nfilterSize=1"),
       "c"},
      {"a shortcut past neurons that work in place",
       {3, 4, 4},
       2,
       below(3, 5) +
           "[n]\ntype=neuron\ninputs=below\nneuron=logistic\n[m]\ntype=neuron\ninputs=n\nneuron=tanh[1,2]\n",
       "below,n,m"},
      {"pool, norm and fc read one",
       {3, 6, 6},
       2,
       a + "[p]\ntype=pool\npool=max\ninputs=a\nchannels=16\nsizeX=3\nstride=2\n[n]\ntype=cmrnorm\ninputs="
           "a\nchannels=16\nsize=5\n",
       "a,p,n",
       "[n]\nscale=0.4\npow=0.75\n"},
      {"ident neurons pass one gradient on",
       {3, 4, 4},
       2,
       below(3, 5) +
           "[n]\ntype=neuron\ninputs=below\nneuron=ident\n[m]\ntype=neuron\ninputs=below\nneuron=ident\n" +
           "[k]\ntype=neuron\ninputs=below\nneuron=tanh[1,1]\n",
       "n,below,m,k"},
      {"dropout of an output that others read",
       {3, 4, 4},
       2,
       below(3, 5) + "[d]\ntype=dropout\ninputs=below\n[e]\ntype=dropout2\ninputs=below\n",
       "d,below,e"},
      {"dropout above a neuron that needs its output",
       {8},
       3,
       fc("f", "inputs=data\noutputs=6\nneuron=logistic") +
           "[d]\ntype=dropout\ninputs=f\n[n]\ntype=neuron\ninputs=d\nneuron=tanh[1,1]\n",
       "n"},
  };
  for (const Case& c : cases) run(c);
}

TEST_CASE("two costs drive one net") {
  const std::string layers =
      fc("a", "inputs=data\noutputs=6\nneuron=tanh[1,1]") + fc("b", "inputs=a\noutputs=4") +
      "[probs2]\ntype=softmax\ninputs=b\n[cost2]\ntype=cost.logreg\ninputs=labels,probs2\n";
  run({"own softmax, own weight", {7}, 3, layers, "a", "[cost2]\ncoeff=0.5\n"});
  run({"one only reports",
       {7},
       3,
       layers + fc("c", "inputs=a\noutputs=3"),
       "a,c",
       "[cost2]\ncoeff=0\n[b]\nepsW=0\nepsB=0\nmomW=0\nmomB=0\n"});
  NetTexts shared = between_data_and_cost(fc("a", "inputs=data\noutputs=6\nneuron=relu"), "a", 4);
  shared.definition += "[again]\ntype=cost.logreg\ninputs=labels,probs\n";
  shared.parameters += "[again]\ncoeff=0.25\ntopk=3\n";
  SmallNet net(shared, {5}, 4);
  net.prepare(Phase::train, 3);
  reference::NetReference reference = net.reference();
  const Minibatch batch = random_minibatch({5}, 3, 4, 9);
  const StepOutcome outcome = net.step(Phase::train, batch, 0, true);
  reference.forward(reference_inputs(batch), true, 0);
  reference.backward();
  reference.update();
  check_against(net, reference, outcome);
}

TEST_CASE("frozen matrices stay as they are and pass the gradient on") {
  const std::string layers =
      conv("a", "inputs=data\nchannels=3\nfilters=5\nfilterSize=3\nneuron=tanh[1,1]") +
      conv("b", "inputs=a\nchannels=5\nfilters=16\nfilterSize=3\npadding=1\nneuron=relu") +
      fc("f", "inputs=b\noutputs=6");
  const auto rates = [](const std::string& layer, const std::string& w, const std::string& b) {
    return "[" + layer + "]\nepsW=" + w + "\nepsB=" + b + "\nmomW=0.9\nmomB=0.9\nwc=0.1\n";
  };
  struct Freeze {
    std::string layer, w, b;
  };
  for (const std::string layer : {"a", "b", "f"}) {
    for (const auto& [w, b] : {std::pair{"0", "0.1"}, {"0.1", "0"}, {"0", "0"}}) {
      const Case c{layer + " epsW=" + w + " epsB=" + b, {3, 6, 6}, 2, layers, "f", rates(layer, w, b)};
      run(c);
      SmallNet net(between_data_and_cost(c.layers, c.top, 4, c.parameters), c.image, 4);
      net.prepare(Phase::train, 2);
      const auto before = net.tensors();
      net.step(Phase::train, random_minibatch(c.image, 2, 4, 1), 0);
      const auto after = net.tensors();
      for (const auto& [name, tensor] : before) {
        const bool is_bias = name.find("biases") != std::string::npos;
        const bool frozen = name.rfind(layer + ".", 0) == 0 && std::string(is_bias ? b : w) == "0";
        INFO(c.name << ": " << name);
        CHECK((after.at(name).values == tensor.values) == frozen);
      }
    }
  }
  run({"only the top learns",
       {3, 6, 6},
       2,
       layers,
       "f",
       rates("a", "0", "0") + rates("b", "0", "0") + rates("f", "0", "0")});
}

TEST_CASE("initW takes he and xavier, by the numbers of inputs and outputs of a unit") {
  const ShapeOnlyProvider provider({8, 6, 6}, 4);
  const auto spec = [&](const std::string& layer) {
    const Built built = build_net(between_data_and_cost(layer, "a", 4), provider);
    REQUIRE(built.errors.empty());
    return built.graph.find("a")->layer->weights[0].init_stdev;
  };
  const std::string conv = "channels=8\nfilters=12\nfilterSize=3\ngroups=2\ninitW=";
  CHECK(spec(section("a", "conv", "inputs=data") + conv + "he\n") == Approx(std::sqrt(2.0 / 36)));
  // An input contributes to the 12 filters of its group, in 9 places each.
  CHECK(spec(section("a", "conv", "inputs=data") + conv + "xavier\n") == Approx(std::sqrt(2.0 / (36 + 108))));
  const std::string depthwise = "channels=8\nfilters=1\nfilterSize=5\ngroups=8\ninitW=";
  for (const std::string type : {"conv", "local"}) {
    CHECK(spec(section("a", type, "inputs=data") + depthwise + "xavier\n") == Approx(0.2));
    CHECK(spec(section("a", type, "inputs=data") + depthwise + "he\n") == Approx(std::sqrt(2.0 / 25)));
  }
  const std::string local = "channels=8\nfilters=12\nfilterSize=3\ninitW=xavier\n";
  CHECK(spec(section("a", "local", "inputs=data") + local) == Approx(std::sqrt(2.0 / (72 + 108))));
  CHECK(spec(section("a", "sfc", "inputs=data outputs=10 parts=4 initW=xavier")) ==
        Approx(std::sqrt(2.0 / (72 + 10))));
  CHECK(spec(section("a", "sfc", "inputs=data outputs=10 parts=4 initW=he")) == Approx(std::sqrt(2.0 / 72)));
  CHECK(spec(fc("a", "inputs=data outputs=10 initW=he")) == Approx(std::sqrt(2.0 / 288)));
  CHECK(spec(fc("a", "inputs=data outputs=10 initW=xavier")) == Approx(std::sqrt(2.0 / 298)));
  CHECK(spec(fc("a", "inputs=data outputs=10 initW=0.5")) == 0.5);
  const auto errors = [&](const std::string& layer, const std::string& parameters) {
    const Built built = build_net(between_data_and_cost(layer, "a", 4, parameters), provider);
    REQUIRE(built.errors.size() == 1);
    return built.errors[0];
  };
  CHECK_THAT(errors(fc("a", "inputs=data outputs=10 initW=hee"), ""),
             Catch::Contains("'hee'") && Catch::Contains("or he or xavier"));
  CHECK_THAT(errors(fc("a", "inputs=data outputs=10"), "[logprob]\ncoeff=1\nclassWeights=1,2\n"),
             Catch::Contains("classWeights has 2 weights, but 'probs' has 4 classes"));
  CHECK_THAT(errors(fc("a", "inputs=data outputs=10"), "[logprob]\ncoeff=1\nsmoothing=2\n"),
             Catch::Contains("smoothing expects a number between 0 and 1"));
  CHECK_THAT(
      errors(fc("a", "inputs=data outputs=10"), "[a]\nepsW=1\nepsB=1\nmomW=0\nmomB=0\noptimizer=adam\n"),
      Catch::Contains(
          "expects one of sgd, nesterov, adamw, rmsprop, lars, not 'adam'; did you mean 'adamw'?"));
}

TEST_CASE("a momentum by which the optimiser divides by zero is refused") {
  const ShapeOnlyProvider provider({8, 6, 6}, 4);
  const auto errors = [&](const std::string& layers, const std::string& top, const std::string& rates) {
    return build_net(between_data_and_cost(layers, top, 4, "[a]\nepsW=0.1\nepsB=0.1\n" + rates), provider)
        .errors;
  };
  const std::string layers[] = {fc("a", "inputs=data outputs=10"),
                                conv("a", "inputs=data channels=8 filters=4 filterSize=3"),
                                section("a", "bnorm", "inputs=data")};
  for (const std::string& layer : layers) {
    INFO(layer);
    for (const std::string momentum : {"1", "0.99999999"}) {  // fp32 rounds both to 1
      for (const std::string key : {"momW", "momB"}) {
        const std::string other = key == "momW" ? "momB" : "momW";
        const std::vector<std::string> found =
            errors(layer, "a", "optimizer=adamw\n" + other + "=0.9\n" + key + "=" + momentum + "\n");
        REQUIRE(found.size() == 1);
        CHECK(found[0] == "params.cfg:6: layer 'a': " + key +
                              " is the beta1 of optimizer=adamw, which divides by 1 - " + key +
                              ": it must be at most 0.9999999; usual is 0.9");
      }
    }
    // Others do not divide by it.
    for (const std::string optimizer : {"sgd", "nesterov", "rmsprop", "lars"})
      CHECK(errors(layer, "a", "optimizer=" + optimizer + "\nmomW=1\nmomB=1\n").empty());
    CHECK(errors(layer, "a", "optimizer=adamw\nmomW=0.9999999\nmomB=0\n").empty());
  }
}
