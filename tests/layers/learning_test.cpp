// Costs, slices of data, shared weights and constraints against the reference interpreter, and degenerate
// values.
#include <algorithm>

#include "tests/layers/against_reference.h"

using namespace convnet;
using namespace convnet::test;

TEST_CASE("costs of the whole language train like the reference") {
  const std::vector<ExtraMatrix> extra = {
      {4, ExtraMatrix::one_hot}, {5, ExtraMatrix::multi_hot}, {3, ExtraMatrix::real}};
  const std::string labels = section("onehot", "data", "dataIdx=2") + section("tags", "data", "dataIdx=3");
  const std::string f = fc("f", "inputs=data outputs=6 neuron=tanh[1,1]");
  const std::string g = fc("g", "inputs=f outputs=5 neuron=logistic");
  const auto with_tags = [&](const std::string& name, const std::string& layers,
                             const std::string& parameters, std::int64_t images = 3) {
    return Case{name, {6},        images, section("tags", "data", "dataIdx=3") + f + layers,
                "f",  parameters, 4,      extra};
  };
  const auto with_onehot = [&](const std::string& name, const std::string& layers,
                               const std::string& parameters, std::int64_t images = 3) {
    return Case{name, {6},        images, section("onehot", "data", "dataIdx=2") + f + layers,
                "f",  parameters, 4,      extra};
  };
  const std::string soft = fc("h", "inputs=f outputs=4") + section("q", "softmax", "inputs=h");
  const auto cost = [](const std::string& type, const std::string& inputs, const std::string& more = "") {
    return section("cost2", "cost." + type, "inputs=" + inputs + more);
  };
  const std::string coeff = "[cost2]\ncoeff=0.5\n";
  train_all_like_reference(
      {with_onehot("crossent", soft + cost("crossent", "onehot,q"), coeff),
       with_onehot("crossent, one image", soft + cost("crossent", "onehot,q"), coeff, 1),
       with_onehot("two crossents, one only reports",
                   soft + cost("crossent", "onehot,q") + section("cost3", "cost.crossent", "inputs=onehot,q"),
                   "[cost2]\ncoeff=0\n[cost3]\ncoeff=2\n"),
       with_tags("bce", g + cost("bce", "tags,g"), coeff),
       with_tags("bce, one image", g + cost("bce", "tags,g"), coeff, 1),
       with_tags("bce, posWeight", g + cost("bce", "tags,g"), "[cost2]\ncoeff=0.3\nposWeight=3\n", 7),
       with_tags("bce of a logistic others read",
                 g + fc("k", "inputs=g outputs=2") + section("cost3", "cost.sum2", "inputs=k") +
                     cost("bce", "tags,g"),
                 coeff + "[cost3]\ncoeff=0.1\n"),
       with_tags("bce above a neuron layer",
                 fc("g", "inputs=f outputs=5") + section("n", "neuron", "inputs=g neuron=logistic") +
                     cost("bce", "tags,n"),
                 coeff),
       with_tags("dce", g + cost("dce", "tags,g"), coeff),
       with_tags("dce, posWeight", g + cost("dce", "tags,g"), "[cost2]\ncoeff=0.3\nposWeight=0.5\n", 5),
       with_tags("dce, reports only",
                 g + cost("dce", "tags,g") + section("cost3", "cost.bce", "inputs=tags,g"),
                 "[cost2]\ncoeff=0\n[cost3]\ncoeff=0.4\n"),
       {"sum2", {6}, 3, f + cost("sum2", "f"), "f", coeff},
       {"sum2 of maps", {3, 4, 4}, 3, below(3, 16) + cost("sum2", "below"), "below", "[cost2]\ncoeff=0.01\n"},
       {"sum2, one number, one image",
        {1},
        1,
        fc("a", "inputs=data outputs=1") + cost("sum2", "a"),
        "a",
        coeff},
       {"sum2 ignores its neuron", {6}, 3, f + cost("sum2", "f", " neuron=relu"), "f", coeff},
       {"logreg reports only",
        {6},
        3,
        f + section("q", "softmax", "inputs=f") + cost("logreg", "labels,q"),
        "f",
        "[cost2]\ncoeff=0\ntopk=3\n"},
       {"all at once",
        {6},
        5,
        labels + f + g + soft + cost("crossent", "onehot,q") + section("cost3", "cost.bce", "inputs=tags,g") +
            section("cost4", "cost.dce", "inputs=tags,g") + section("cost5", "cost.sum2", "inputs=f"),
        "f",
        "[cost2]\ncoeff=0.5\n[cost3]\ncoeff=0.2\n[cost4]\ncoeff=0.1\n[cost5]\ncoeff=0.05\n",
        4,
        extra}});
}

TEST_CASE("a parent cost has its own gradient beside its children's") {
  const std::string f = fc("f", "inputs=data outputs=6 neuron=tanh[1,1]");
  train_all_like_reference(
      {{"sum2 with children",
        {6},
        3,
        f + fc("g", "inputs=f outputs=3") + section("c1", "cost.sum2", "inputs=f") +
            section("c2", "cost.sum2", "inputs=g children=c1"),
        "f,g",
        "[c1]\ncoeff=0.1\n[c2]\ncoeff=0.2\n"},
       {"logreg with two children",
        {6},
        3,
        f + fc("g", "inputs=f outputs=4") + fc("h", "inputs=f outputs=4") +
            section("q", "softmax", "inputs=g") + section("r", "softmax", "inputs=h") +
            section("s", "softmax", "inputs=g") + section("c1", "cost.logreg", "inputs=labels,q") +
            section("c2", "cost.logreg", "inputs=labels,r") +
            section("c3", "cost.logreg", "inputs=labels,s children=c1,c2"),
        "f",
        "[c1]\ncoeff=0.1\n[c2]\ncoeff=0.2\n[c3]\ncoeff=0\n"}});
}

TEST_CASE("data layers give slices of any matrix") {
  const std::vector<ExtraMatrix> extra = {
      {8, ExtraMatrix::real}, {9, ExtraMatrix::one_hot}, {3, ExtraMatrix::real}};
  const auto data = [](const std::string& name, const std::string& keys) {
    return section(name, "data", keys);
  };
  train_all_like_reference(
      {{"several matrices",
        {3, 3, 3},
        3,
        data("a", "dataIdx=2") + data("b", "dataIdx=4") + fc("f", "inputs=a,b,data outputs=5"),
        "f",
        "",
        4,
        extra},
       {"slices",
        {3, 4, 4},
        3,
        data("a", "dataIdx=2 start=3 end=5") + data("b", "dataIdx=0 start=16 end=32") +
            conv("c", "inputs=b channels=1 filters=3 filterSize=3") + fc("f", "inputs=a,b outputs=5"),
        "f,c,data",
        "",
        4,
        extra},
       {"slices to the end, from the start",
        {3, 4, 4},
        1,
        data("a", "dataIdx=2 start=7") + data("b", "dataIdx=2 end=4") + data("d", "dataIdx=0 start=47") +
            fc("f", "inputs=a,b,d,data outputs=5"),
        "f",
        "",
        4,
        extra},
       {"labels from a slice",
        {6},
        3,
        data("t", "dataIdx=3 start=0 end=4") + fc("f", "inputs=data outputs=4") +
            section("q", "softmax", "inputs=f") + section("cost2", "cost.crossent", "inputs=t,q"),
        "f",
        "[cost2]\ncoeff=1\n",
        4,
        extra}});
}

TEST_CASE("shared weights learn from all who use them") {
  const auto c = [](const std::string& name, const std::string& keys) {
    return conv(name, "filterSize=3 padding=1 " + keys);
  };
  const std::string two = conv("p", "inputs=data channels=3 filters=4 filterSize=1 neuron=relu") +
                          conv("q", "inputs=data channels=3 filters=4 filterSize=1 neuron=tanh[1,1]");
  const std::string within = c("a", "inputs=p,q channels=4 filters=5 weightSource=,a[0]");
  const std::string across = c("a", "inputs=data channels=3 filters=5 neuron=relu") +
                             c("b", "inputs=data channels=3 filters=5 neuron=tanh[1,1] weightSource=a[0]");
  const Dims image = {3, 5, 5};
  train_all_like_reference(
      {{"within a layer", image, 2, two + within, "a"},
       {"within a layer, the second input's matrix learns", image, 2, two + within, "a",
        rates("a", "wc=0.1", "0.05,0.01")},
       {"within a layer, the second input adds no gradient", image, 2, two + within, "a",
        rates("a", "", "0.05,0")},
       {"across layers", image, 2, across, "a,b"},
       {"across layers, the sharer's other parameters do not count", image, 2, across, "a,b",
        rates("b", "wc=3 wball=0.1", "7")},
       {"across layers, the sharer adds no gradient", image, 2, across, "a,b", rates("b", "", "0")},
       {"across layers, the owner is frozen", image, 2, across, "a,b", rates("a", "", "0")},
       {"across layers, all frozen", image, 2, across, "a,b", rates("a", "", "0") + rates("b", "", "0")},
       {"one above the other", image, 2,
        conv("p", "inputs=data channels=3 filters=4 filterSize=1") +
            c("a", "inputs=p channels=4 filters=4 neuron=relu") +
            c("b", "inputs=a channels=4 filters=4 neuron=relu weightSource=a") +
            c("d", "inputs=b channels=4 filters=4 neuron=relu weightSource=b[0]"),
        "d"},
       {"blocked", image, 2,
        conv("p", "inputs=data channels=3 filters=16 filterSize=1") +
            c("a", "inputs=p channels=16 filters=16 neuron=relu initW=0.1") +
            c("b", "inputs=a channels=16 filters=16 stride=2 weightSource=a[0]"),
        "b"},
       {"one of two matrices", image, 2,
        two + c("a", "inputs=p,q channels=4 filters=5") +
            c("b", "inputs=q,p channels=4 filters=5 weightSource=a[1],"),
        "a,b"},
       {"fc",
        {6},
        3,
        fc("a", "inputs=data outputs=6 neuron=tanh[1,1]") + fc("b", "inputs=a outputs=6 weightSource=a[0]"),
        "b",
        rates("a", "wc=0.1 wball=1.5")},
       {"sfc",
        {6},
        3,
        section("a", "sfc", "inputs=data parts=2 outputs=3 initW=0.3 neuron=tanh[1,1]") +
            section("b", "sfc", "inputs=a parts=2 outputs=3 initW=0.3 weightSource=a[0]"),
        "b"},
       {"local",
        {2, 4, 4},
        3,
        section("a", "local",
                "inputs=data channels=2 filters=2 filterSize=3 padding=1 initW=0.3 neuron=relu") +
            section("b", "local",
                    "inputs=a channels=2 filters=2 filterSize=3 padding=1 initW=0.3 weightSource=a[0]"),
        "b"}});
}

TEST_CASE("matrices are kept within their constraints") {
  const Dims image = {3, 4, 4};
  const std::string c = conv("a", "inputs=data channels=3 filters=5 filterSize=3 padding=1 neuron=relu");
  const std::string two = c + conv("b", "inputs=data,a channels=3,5 filters=4 filterSize=1");
  const std::string s = section("a", "sfc", "inputs=data parts=3 outputs=4 initW=0.3");
  const std::string l = section("a", "local", "inputs=data channels=3 filters=2 filterSize=3 initW=0.3");
  train_all_like_reference(
      {{"wball of conv", image, 2, c, "a", rates("a", "wball=1.5")},
       {"wball of conv in blocks", image, 2,
        conv("p", "inputs=data channels=3 filters=16 filterSize=1") +
            conv("a", "inputs=p channels=16 filters=20 filterSize=3"),
        "a", rates("a", "wball=2 wc=0.1")},
       {"wball per input", image, 2, two, "b", rates("b", "wball=0.5,2")},
       {"wball of fc", {7}, 3, fc("a", "inputs=data outputs=5"), "a", rates("a", "wball=1")},
       {"wball of sfc", image, 2, s, "a", rates("a", "wball=0.8")},
       {"wball of local", image, 2, l, "a", rates("a", "wball=1.55")},
       {"wcNormMax", image, 2, c, "a", rates("a", "wcNormMax=0.05")},
       {"wcNormMin and wcNormMax", image, 2, c, "a", rates("a", "wcNormMin=0.055 wcNormMax=0.06")},
       {"wcNormMin alone does nothing", image, 2, c, "a", rates("a", "wcNormMin=1")},
       {"wcNormMax per input", image, 2, two, "b", rates("b", "wcNormMax=0,0.02")},
       {"both", image, 2, c, "a", rates("a", "wcNormMax=0.05 wball=1.2")},
       {"groups",
        {4, 4, 4},
        2,
        conv("a", "inputs=data channels=4 filters=3 groups=2 filterSize=3"),
        "a",
        rates("a", "wball=1.1 wcNormMax=0.05")},
       {"frozen matrices are not touched", image, 2, two, "b", rates("b", "wball=0.5", "0.05,0")}});
}

TEST_CASE("a filter of zeros stays, whatever the constraint") {
  for (const std::string more : {"wball=2", "wcNormMin=0.1 wcNormMax=0.2"}) {
    INFO(more);
    SmallNet net(
        between_data_and_cost(section("a", "conv", "inputs=data channels=3 filters=4 filterSize=3 initW=0"),
                              "a", 4, rates("a", more, "1e-30")),
        {3, 3, 3}, 4);
    const Minibatch batch = random_minibatch({3, 3, 3}, 2, 4, 1);
    net.prepare(Phase::train, 2);
    net.set_weights("top.weights.a", std::vector<float>(16, 0.0F));  // no gradient below
    net.step(Phase::train, batch, 0);
    const std::vector<float> weights = net.tensors().at("a.weights.data").values;
    CHECK(weights == std::vector<float>(weights.size(), 0.0F));
  }
}

TEST_CASE("degenerate values stay finite") {
  const std::vector<ExtraMatrix> extra = {{4, ExtraMatrix::one_hot}, {4, ExtraMatrix::multi_hot}};
  const std::string c = conv("a", "inputs=data channels=3 filters=16 filterSize=1");
  struct Net {
    std::string name, layers, top, parameters;
    float pixel;  ///< value of every pixel of all images
  };
  const std::string huge = section("f", "fc", "inputs=data outputs=4 initW=200");
  const std::string soft = huge + section("q", "softmax", "inputs=f");
  const std::string binary = section("f", "fc", "inputs=data outputs=4 initW=200 neuron=logistic");
  const std::string no_rate = rates("f", "", "1e-6", "1e-6") + "[cost2]\ncoeff=1\n";
  std::vector<Net> nets = {
      {"equal inputs of max", c + section("x", "pool", "inputs=a channels=16 pool=max sizeX=3 stride=2"), "x",
       "", 0},
      {"zeros in maxabs", section("x", "pool", "inputs=a channels=16 pool=maxabs sizeX=0"), "x", "", 0},
      {"no variance", c + section("x", "bnorm", "inputs=a channels=16 neuron=relu"), "x", "", 0.5F},
      {"no variance of zeros", c + section("x", "bnorm", "inputs=a channels=16 epsilon=1e-5"), "x", "", 0},
      {"contrast of a constant", c + section("x", "cnorm", "inputs=a channels=16 size=3"), "x",
       "[x]\nscale=1\npow=0.75\n", 1},
      {"root of zero",
       section("x", "neuron", "inputs=data neuron=relu") + fc("f", "inputs=x outputs=3 initB=0") +
           section("y", "neuron", "inputs=f neuron=abs") + section("z", "neuron", "inputs=y neuron=sqrt"),
       "z", "", 0},
      {"a probability of 0, logreg", soft + section("cost2", "cost.logreg", "inputs=labels,q"), "data",
       no_rate, 1},
      {"a probability of 0, logreg alone",
       soft + section("k", "fc", "inputs=q outputs=2") + section("cost2", "cost.logreg", "inputs=labels,q"),
       "k", no_rate, 1},
      {"a probability of 0, crossent", soft + section("cost2", "cost.crossent", "inputs=onehot,q"), "data",
       no_rate, 1},
      {"a probability of 0, bce", binary + section("cost2", "cost.bce", "inputs=tags,f"), "data", no_rate, 1},
      {"a probability of 0, bce alone",
       binary + section("k", "fc", "inputs=f outputs=2") + section("cost2", "cost.bce", "inputs=tags,f"), "k",
       no_rate, 1},
      {"a probability of 0, dce", binary + section("cost2", "cost.dce", "inputs=tags,f"), "data", no_rate, 1},
  };
  for (Net& n : nets) {
    if (n.name == "zeros in maxabs") n.layers = c + n.layers;
    INFO(n.name);
    std::string used;
    if (n.layers.find("onehot") != std::string::npos) used += section("onehot", "data", "dataIdx=2");
    if (n.layers.find("tags") != std::string::npos) used += section("tags", "data", "dataIdx=3");
    NetOptions options;
    options.extra = extra;
    const Dims image = {3, 5, 5};
    SmallNet net(between_data_and_cost(used + n.layers, n.top, 4, n.parameters), image, 4, options);
    net.prepare(Phase::train, 3);
    const auto before = net.tensors();
    for (std::uint64_t i = 0; i < 2; ++i) {
      Minibatch batch = random_minibatch(image, 3, 4, i, extra);
      std::fill(batch.data.begin(), batch.data.end(), n.pixel);
      for (const Phase phase : {Phase::train, Phase::test}) {
        const StepOutcome outcome = net.step(phase, batch, i, true);
        for (double v : outcome.costs) CHECK(std::isfinite(v));
        for (const auto& [layer, values] : outcome.outputs) {
          INFO(layer);
          CHECK(std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); }));
        }
      }
    }
    for (const auto& [name, tensor] : net.tensors()) {
      INFO(name);
      CHECK(
          std::all_of(tensor.values.begin(), tensor.values.end(), [](float v) { return std::isfinite(v); }));
      if (name == "top.biases") CHECK(tensor.values != before.at(name).values);  // nothing stopped the update
    }
  }
}
