// Every layer type and neuron against the reference interpreter, over shapes that libraries find odd.
#include "tests/layers/against_reference.h"
#include "tests/rounding.h"

using namespace convnet;
using namespace convnet::test;

namespace {

/// Makes the case of a layer "x" of `type` above "below", a convolution of `channels` data maps to `maps`
/// maps.
Case above(const std::string& type, const std::string& keys, const Dims& image, std::int64_t images,
           std::int64_t maps, const std::string& parameters = "") {
  const std::string layers =
      below(static_cast<int>(image[0]), static_cast<int>(maps)) +
      section("x", type, "inputs=below channels=" + std::to_string(maps) + (keys.empty() ? "" : " " + keys));
  return {type + " " + keys + " of " + to_string(image), image, images, layers, "x", parameters};
}

}  // namespace

TEST_CASE("sfc layers train like the reference") {
  const auto sfc = [](const std::string& keys) { return section("s", "sfc", "initW=0.3 initB=0.1 " + keys); };
  train_all_like_reference(
      {{"one part of one number", {1}, 1, sfc("inputs=data outputs=1 parts=1"), "s"},
       {"parts", {8}, 3, sfc("inputs=data outputs=3 parts=2"), "s"},
       {"a part for each number", {5}, 3, sfc("inputs=data outputs=2 parts=5 neuron=relu"), "s"},
       {"from blocked maps", {3, 4, 4}, 2, below(3, 16) + sfc("inputs=below outputs=3 parts=4"), "s"},
       {"several inputs",
        {6},
        7,
        fc("a", "inputs=data outputs=9 neuron=tanh[1,1]") +
            sfc("inputs=data,a outputs=2 parts=3 initW=0.3,0.2 neuron=logistic"),
        "s"}});
}

TEST_CASE("local layers train like the reference") {
  const auto local = [](const std::string& keys) {
    return section("l", "local", "initW=0.3 initB=0.1 " + keys);
  };
  const auto of_data = [&](const std::string& keys, const Dims& image, std::int64_t images) {
    return Case{keys, image, images, local("inputs=data channels=" + std::to_string(image[0]) + " " + keys),
                "l"};
  };
  train_all_like_reference(
      {of_data("filters=1 filterSize=1", {1, 1, 1}, 1),
       of_data("filters=4 filterSize=3 padding=1", {3, 5, 5}, 2),
       of_data("filters=3 filterSize=3 stride=2 neuron=relu", {2, 6, 6}, 3),
       of_data("filters=3 filterSize=3 stride=2 padding=1", {2, 6, 7}, 3),
       of_data("filters=2 filterSize=2 stride=3", {1, 7, 7}, 2),
       of_data("filters=2 filterSize=3 groups=2 padding=1 neuron=logistic", {4, 4, 4}, 3),
       of_data("filters=1 filterSize=3 groups=3", {3, 5, 5}, 2),
       of_data("filters=3 filterSize=3 stride=2 modulesX=4", {2, 7, 7}, 2),
       of_data("filters=3 filterSize=3 stride=2 rounding=down", {2, 8, 7}, 2),
       of_data("filters=3 filterSize=3 filterSizeY=2 stride=1 strideY=2 padding=1 paddingY=0", {2, 6, 5}, 2),
       of_data("filters=3 filterSize=2 dilation=2 dilationY=3 groups=2", {4, 6, 5}, 2),
       of_data("filters=2 filterSize=2 paddingEnd=1 paddingEndY=0", {2, 5, 5}, 2),
       {"a vector read as maps", {18}, 3, local("inputs=data channels=2 filters=3 filterSize=2"), "l"},
       {"blocked maps",
        {3, 4, 4},
        2,
        below(3, 16) + local("inputs=below channels=16 filters=16 filterSize=3 padding=1 neuron=relu") +
            conv("c", "inputs=l channels=16 filters=3 filterSize=2"),
        "c"},
       {"several inputs",
        {3, 5, 5},
        2,
        below(3, 20) + local("inputs=data,below channels=3,20 filters=2 filterSize=3,1 padding=1,0"),
        "l"}});
}

TEST_CASE("biases of convolutions, unshared and none") {
  const auto c = [](const std::string& keys) {
    return Case{keys,
                {3, 5, 6},
                3,
                conv("a", "inputs=data channels=3 filters=4 filterSize=3 padding=1 " + keys),
                "a"};
  };
  train_all_like_reference(
      {c("sharedBiases=0"),
       c("biases=0"),
       c("sharedBiases=0 neuron=relu"),
       c("biases=0 neuron=relu"),
       c("sharedBiases=1 biases=1"),
       {"unshared, of blocked maps",
        {3, 4, 4},
        2,
        below(3, 16) +
            conv("a", "inputs=below channels=16 filters=16 filterSize=3 sharedBiases=0 neuron=relu") +
            conv("b", "inputs=a channels=16 filters=3 filterSize=1"),
        "b"},
       {"several inputs, unshared",
        {3, 5, 5},
        2,
        below(3, 5) + conv("a",
                           "inputs=data,below channels=3,5 filters=4 filterSize=3,1 padding=1,0 "
                           "sharedBiases=no"),
        "a"},
       {"several inputs, none",
        {3, 5, 5},
        1,
        below(3, 5) + conv("a", "inputs=data,below channels=3,5 filters=4 filterSize=1 biases=0"),
        "a"},
       {"frozen, unshared",
        {3, 4, 4},
        2,
        conv("a", "inputs=data channels=3 filters=4 filterSize=3 sharedBiases=0"),
        "a",
        rates("a", "", "0.05", "0")}});
}

TEST_CASE("pools of the whole language train like the reference") {
  train_all_like_reference(
      {above("pool", "pool=maxabs sizeX=2 stride=2", {3, 6, 6}, 3, 5),
       above("pool", "pool=maxabs sizeX=3 stride=2 start=-1", {3, 7, 7}, 2, 16),
       above("pool", "pool=maxabs sizeX=3 stride=2", {3, 8, 5}, 2, 20),
       above("pool", "pool=maxabs sizeX=17 stride=2", {1, 20, 20}, 1, 2),
       above("pool", "pool=maxabs sizeX=0", {3, 4, 4}, 2, 3),
       above("pool", "pool=max sizeX=0", {3, 5, 5}, 2, 16),
       above("pool", "pool=avg sum=1 sizeX=0", {3, 4, 4}, 2, 3),
       above("pool", "pool=avg sum=1 sizeX=2 stride=3 start=-1", {3, 6, 6}, 2, 3),
       above("cmpool", "pool=max size=1 stride=1 start=0 outputs=1", {1, 1, 1}, 1, 1),
       above("cmpool", "pool=max size=2 stride=2 start=0 outputs=3", {3, 4, 4}, 2, 6),
       above("cmpool", "pool=max size=3 stride=2 start=-1 outputs=8", {3, 4, 3}, 3, 16),
       above("cmpool", "pool=max size=4 stride=3 start=0 outputs=7", {3, 3, 3}, 2, 20),
       above("cmpool", "pool=max size=2 stride=3 start=1 outputs=2", {3, 3, 3}, 2, 7),
       above("cmpool", "pool=max size=16 stride=16 start=0 outputs=2", {3, 2, 2}, 1, 32)});
}

TEST_CASE("normalisations of the whole language train like the reference") {
  const std::string p = "[x]\nscale=0.7\npow=0.75\n";
  std::vector<Case> cases;
  for (const std::string type : {"rnorm", "cnorm"}) {
    cases.push_back(above(type, "size=1", {1, 1, 1}, 1, 1, p));
    cases.push_back(above(type, "size=3", {3, 5, 4}, 2, 5, p));
    cases.push_back(above(type, "size=4", {3, 5, 5}, 2, 16, p));
    cases.push_back(above(type, "size=5", {3, 3, 3}, 2, 20, p));
    cases.push_back(above(type, "size=9", {1, 4, 4}, 1, 3, "[x]\nscale=2\npow=1.5\nminDiv=2\n"));
    cases.push_back(above(type, "size=2", {2, 1, 1}, 3, 3, p));
  }
  cases.push_back(above("cmrnorm", "size=2", {1, 1, 1}, 1, 2, p));
  cases.push_back(above("cmrnorm", "size=8", {3, 2, 3}, 3, 8, p));
  train_all_like_reference(cases);
}

TEST_CASE("bnorm layers train like the reference") {
  // The biases of a layer right below have no effect, so its neuron comes between.
  const auto b = [](const std::string& keys, const Dims& image, std::int64_t images, int maps,
                    const std::string& parameters = "") {
    std::string layers = conv("below", "neuron=tanh[1,1] inputs=data channels=" + std::to_string(image[0]) +
                                           " filters=" + std::to_string(maps) + " filterSize=1");
    layers += section("x", "bnorm", "inputs=below channels=" + std::to_string(maps) + " " + keys);
    return Case{keys + " of " + to_string(image), image, images, layers, "x", parameters};
  };
  train_all_like_reference(
      {b("", {3, 4, 4}, 3, 5),
       b("neuron=relu", {3, 4, 4}, 3, 16),
       b("neuron=logistic", {3, 3, 5}, 2, 20),
       b("", {3, 2, 2}, 1, 3),
       b("", {2, 1, 1}, 5, 3),
       b("epsilon=0.01 averageFactor=0.5 initScale=2 initB=0.5", {3, 3, 3}, 2, 4),
       b("averageFactor=1 sync=0 neuron=relu", {1, 3, 3}, 2, 1),
       b("", {3, 3, 3}, 2, 16, rates("x", "wc=0.1", "0", "0.1")),
       b("neuron=relu", {3, 3, 3}, 2, 4, rates("x", "", "0.1", "0")),
       b("", {3, 3, 3}, 2, 4, rates("x", "", "0", "0")),
       {"per number of a vector",
        {7},
        5,
        fc("f", "inputs=data outputs=9 neuron=tanh[1,1]") + section("x", "bnorm", "inputs=f neuron=relu"),
        "x"},
       {"a vector read as maps",
        {7},
        4,
        fc("f", "inputs=data outputs=18 neuron=tanh[1,1]") + section("x", "bnorm", "inputs=f channels=2"),
        "x"},
       {"of the data", {3, 4, 4}, 4, section("x", "bnorm", "inputs=data channels=3"), "x"},
       {"two in a row, with others reading the first",
        {3, 3, 3},
        3,
        conv("below", "neuron=tanh[1,1] inputs=data channels=3 filters=16 filterSize=3 padding=1") +
            section("x", "bnorm", "inputs=below channels=16") +
            conv("c", "neuron=relu inputs=x channels=16 filters=5 filterSize=1") +
            section("y", "bnorm", "inputs=c channels=5 neuron=relu"),
        "y,x"},
       {"and neurons",
        {3, 5, 5},
        4,
        conv("c", "inputs=data channels=3 filters=16 filterSize=3 padding=1 biases=0") +
            section("x", "bnorm", "inputs=c channels=16 initScale=3 neuron=hswish") +
            section("y", "bnorm", "inputs=x channels=16 neuron=brelu[1]") +
            section("z", "bnorm", "inputs=y channels=16 neuron=leaky[0.2]"),
        "z"},
       {"that two layers read",
        {3, 5, 5},
        4,
        conv("c", "inputs=data channels=3 filters=16 filterSize=3 padding=1 biases=0") +
            section("x", "bnorm", "inputs=c channels=16 neuron=hswish") +
            section("p", "pool", "pool=avg inputs=x channels=16 sizeX=0") +
            section("m", "eltmul", "inputs=x,p") +
            conv("y", "inputs=m channels=16 filters=16 filterSize=3 padding=1"),
        "y"}});
}

TEST_CASE("layers that join inputs train like the reference") {
  const std::string a = conv("a", "inputs=data channels=3 filters=16 filterSize=3 padding=1 neuron=relu");
  const std::string b = conv("b", "inputs=data channels=3 filters=16 filterSize=1 neuron=tanh[1,1]");
  const std::string c5 = conv("c", "inputs=data channels=3 filters=5 filterSize=1");
  const std::string f = fc("f", "inputs=data outputs=7 neuron=logistic");
  std::vector<Case> cases;
  for (const std::string type : {"concat", "pass"}) {
    const auto join = [&](const std::string& layers, const std::string& inputs, const std::string& above = "",
                          const std::string& top = "x") {
      cases.push_back(
          {type + " " + inputs, {3, 4, 4}, 3, layers + section("x", type, "inputs=" + inputs) + above, top});
    };
    join(a + b, "a,b");
    join(b, "b");
    join(a + c5, "c,a", conv("d", "inputs=x channels=21 filters=3 filterSize=2"), "d,a");
    join(a + f, "a,f");
    join(f, "f,data");
    join(a + b + c5 + f, "f,c,b,a");
    join(a, "a,data", section("y", type, "inputs=x,x neuron=relu"), "y");
  }
  for (const std::string type : {"eltsum", "eltmax"}) {
    const auto join = [&](const std::string& layers, const std::string& keys, const std::string& p = "") {
      cases.push_back(
          {type + " " + keys + " " + p, {3, 4, 4}, 2, layers + section("x", type, "inputs=" + keys), "x", p});
    };
    join(a + b, "a,b");
    join(a + b, "b,a,b neuron=relu");
    join(f + fc("g", "inputs=f outputs=7"), "f,g");
    join(a, "a,a");
    if (type == "eltmax") continue;
    join(a, "a");
    join(a + b, "a,b coeffs=0.5,-2");
    join(a + b, "a,b coeffs=0.5");
    join(a + b, "a,b", "[x]\ncoeffs=1,0\n");
  }
  const auto take = [&](const std::string& type, const std::string& layers, const std::string& keys) {
    cases.push_back({type + " " + keys, {3, 4, 4}, 2, layers + section("x", type, "inputs=" + keys), "x"});
  };
  take("slice", a, "a start=4 maps=8");
  take("slice", a, "a start=5 neuron=relu");
  take("slice", c5, "c maps=2");
  take("slice", f, "f start=2 maps=4");
  take("slice", f, "f");
  take("slice", f + fc("g", "inputs=f outputs=36"), "g channels=4 start=1 maps=2");
  take("shuffle", a, "a groups=2");
  take("shuffle", a, "a groups=8 neuron=relu");
  take("shuffle", c5, "c groups=5");
  take("shuffle", f + fc("g", "inputs=f outputs=36"), "g groups=4");
  take("shuffle", f + fc("g", "inputs=f outputs=36"), "g channels=4 groups=2");
  // A unit of ShuffleNet v2: half of the maps goes by, the other through a convolution.
  cases.push_back({"halves",
                   {3, 4, 4},
                   2,
                   a + section("l", "slice", "inputs=a maps=8") + section("r", "slice", "inputs=a start=8") +
                       conv("v", "inputs=r channels=8 filters=8 filterSize=3 padding=1 neuron=relu") +
                       section("j", "concat", "inputs=l,v") + section("x", "shuffle", "inputs=j groups=2"),
                   "x"});
  const auto multiply = [&](const std::string& layers, const std::string& keys) {
    cases.push_back({"eltmul " + keys, {3, 4, 4}, 2, layers + section("x", "eltmul", "inputs=" + keys), "x"});
  };
  const std::string gate = fc("gate", "inputs=f outputs=16 neuron=logistic");
  multiply(a + b, "a,b");
  multiply(a + b, "b,a neuron=relu");
  multiply(a, "a,a");
  multiply(f + fc("g", "inputs=f outputs=7"), "f,g");
  multiply(a + f + gate, "a,gate");
  multiply(a + section("squeeze", "pool", "inputs=a channels=16 pool=avg sizeX=4 stride=4"),
           "a,squeeze neuron=relu");
  multiply(a + section("squeeze", "pool", "inputs=a channels=16 pool=avg sizeX=4 stride=4") + f + gate,
           "squeeze,gate");
  cases.push_back({"sum",
                   {3, 4, 4},
                   2,
                   f + fc("g", "inputs=f outputs=12") + section("x", "sum", "inputs=g stride=4"),
                   "x"});
  cases.push_back({"sum of one", {5}, 3, f + section("x", "sum", "inputs=f"), "x"});
  cases.push_back({"sum of all", {5}, 3, f + section("x", "sum", "inputs=f stride=7 neuron=tanh[1,1]"), "x"});
  train_all_like_reference(cases);
}

TEST_CASE("layers that move pixels train like the reference") {
  std::vector<Case> cases = {
      above("nailbed", "stride=1", {1, 1, 1}, 1, 1),
      above("nailbed", "stride=2", {3, 5, 6}, 2, 16),
      above("nailbed", "stride=3", {3, 7, 8}, 2, 3),
      above("nailbed", "stride=9", {3, 4, 4}, 2, 3),
      above("href", "", {1, 1, 1}, 1, 1),
      above("href", "", {3, 3, 4}, 2, 16),
      above("href", "neuron=relu", {3, 4, 5}, 3, 5),
      above("blur", "filterSize=3 stdev=1", {1, 1, 1}, 1, 1),
      above("blur", "filterSize=3 stdev=0.5", {3, 5, 4}, 2, 16),
      above("blur", "filterSize=5 stdev=2", {3, 5, 6}, 2, 3),
      above("blur", "filterSize=7 stdev=1.5", {2, 9, 9}, 1, 20),
      above("blur", "filterSize=9 stdev=4", {3, 4, 4}, 2, 2),
  };
  // These have no gradient and read the data.
  const auto on_data = [&](const std::string& type, const std::string& keys, const Dims& image,
                           const std::string& init_w = "0.003") {
    cases.push_back(
        {type + " " + keys, image, 3,
         section("x", type, "inputs=data " + keys) + fc("f", "inputs=x outputs=5 initW=" + init_w), "f",
         rates("f", "", "1e-5")});
  };
  on_data("crop", "channels=3 startX=1 sizeX=3", {3, 5, 5});
  on_data("crop", "channels=3 startX=0 startY=2 sizeX=1", {3, 3, 4});
  on_data("crop", "channels=1 startX=0 sizeX=1", {1, 1, 1});
  on_data("crop", "channels=2 startX=2 startY=1 sizeX=4", {2, 6, 6});
  on_data("resize", "channels=3 scale=0.5", {3, 4, 4});
  on_data("resize", "channels=3 scale=1", {3, 5, 5});
  on_data("resize", "channels=3 scale=1.2", {3, 6, 6});
  on_data("resize", "channels=3 scale=1.7", {3, 9, 9});
  on_data("resize", "channels=2 scale=2", {2, 7, 7});
  on_data("resize", "channels=1 scale=0.8", {1, 1, 1});
  on_data("rscale", "channels=3 maxScale=1 tgtSize=5", {3, 5, 5});
  on_data("rscale", "channels=3 maxScale=1.5 tgtSize=6", {3, 8, 8});
  on_data("rscale", "channels=2 maxScale=2 tgtSize=4", {2, 7, 7});
  on_data("rscale", "channels=1 maxScale=1.2 tgtSize=5", {1, 6, 6});
  on_data("rgb2yuv", "", {3, 4, 5});
  on_data("rgb2yuv", "", {3, 1, 1});
  // Uncentred Lab reaches hundreds: larger weights would saturate the softmax and leave only rounding to
  // compare.
  on_data("rgb2lab", "", {3, 4, 5}, "0.0003");
  on_data("rgb2lab", "center=1", {3, 3, 3});
  cases.push_back({"one above the other",
                   {3, 8, 8},
                   2,
                   section("r", "resize", "inputs=data channels=3 scale=1.3") +
                       section("y", "rgb2yuv", "inputs=r") +
                       section("c", "crop", "inputs=y channels=3 startX=1 sizeX=4") +
                       conv("k", "inputs=c channels=3 filters=4 filterSize=3 neuron=relu"),
                   "k"});
  cases.push_back(
      {"a vector read as colours",
       {27},
       2,
       section("y", "rgb2yuv", "inputs=data") + conv("k", "inputs=y channels=3 filters=4 filterSize=2"),
       "k"});
  train_all_like_reference(cases);
}

TEST_CASE("rscale draws anew for every image and minibatch") {
  for (const auto& [keys, side] :
       {std::pair<std::string, int>{"maxScale=1.5 tgtSize=6", 8}, {"maxScale=2 tgtSize=4", 7}}) {
    INFO(keys);
    const Dims image = {3, side, side};
    SmallNet net(between_data_and_cost(section("x", "rscale", "inputs=data channels=3 " + keys), "x", 4),
                 image, 4);
    const Minibatch batch = random_minibatch(image, 3, 4, 1);
    const auto drawn = [&](std::uint64_t iteration) {
      return net.step(Phase::train, batch, iteration, true).outputs.at("x");
    };
    const std::vector<float> first = drawn(1);
    CHECK(first == drawn(1));
    CHECK(first != drawn(2));
    for (float v : first) CHECK(std::abs(v) <= 1.0001F);
  }
}

TEST_CASE("all neurons train like the reference") {
  std::vector<Case> cases;
  for (const std::string f :
       {"abs", "softrelu", "square", "brelu[0.4]", "linear[0.5,0.3]", "linear[-0.5,0]", "drelu[0.7]", "nrelu",
        "abstanh[1.5,0.8]", "abstanh[1,-1]", "log[3]", "tanh[2,-0.5]", "leaky[0.1]", "elu[1.3]", "silu",
        "gelu", "mish", "hsigmoid", "hswish"}) {
    const std::string neuron = section("n", "neuron", "inputs=below neuron=" + f);
    cases.push_back({"layer of its own, " + f, {3, 3, 5}, 3, below(3, 5) + neuron, "n"});
    cases.push_back({"between convolutions, " + f,
                     {3, 4, 4},
                     2,
                     conv("a", "inputs=data channels=3 filters=20 filterSize=1 neuron=" + f) +
                         conv("c", "inputs=a channels=20 filters=3 filterSize=3 padding=1"),
                     "c"});
    cases.push_back({"others read its input, " + f, {3, 3, 3}, 2, below(3, 16) + neuron, "below,n"});
  }
  for (const std::string f : {"sqrt", "log[0.1]", "log[1e-3]"})
    cases.push_back(
        {f,
         {6},
         3,
         fc("a", "inputs=data outputs=5 neuron=logistic") + section("n", "neuron", "inputs=a neuron=" + f),
         "n"});
  cases.push_back({"one number", {1}, 1, fc("a", "inputs=data outputs=1 neuron=softrelu"), "a", "", 2});
  train_all_like_reference(cases);
}

TEST_CASE("nrelu is relu in tests and noisy in training") {
  const auto net_of = [](const std::string& f) {
    return between_data_and_cost(conv("a", "inputs=data channels=3 filters=16 filterSize=3 neuron=" + f), "a",
                                 4);
  };
  SmallNet noisy(net_of("nrelu"), {3, 6, 6}, 4), plain(net_of("relu"), {3, 6, 6}, 4);
  const Minibatch batch = random_minibatch({3, 6, 6}, 3, 4, 1);
  CHECK(relative_difference(noisy.step(Phase::test, batch, 0, true).outputs.at("a_neuron"),
                            plain.step(Phase::test, batch, 0, true).outputs.at("a_neuron")) <
        rounding_of(3 * 3 * 3));
  const StepOutcome train = noisy.step(Phase::train, batch, 0, true);
  const std::vector<float>& x = train.outputs.at("a");
  const std::vector<float>& y = train.outputs.at("a_neuron");
  double sum = 0, squares = 0, count = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    CHECK(y[i] >= 0);
    if (y[i] == 0 || x[i] < 1) continue;
    const double deviation =
        static_cast<double>(y[i] - x[i]) * std::sqrt(1 + std::exp(-static_cast<double>(x[i])));
    sum += deviation;
    squares += deviation * deviation;
    ++count;
  }
  REQUIRE(count > 50);
  CHECK(std::abs(sum / count) < 0.5);
  CHECK(squares / count > 0.5);
  CHECK(squares / count < 1.6);
}

TEST_CASE("one image of one pixel of one map goes through every layer") {
  for (const auto& [type, keys] : std::vector<std::pair<std::string, std::string>>{
           {"pool", "channels=1 pool=max sizeX=1 stride=1"},
           {"pool", "channels=1 pool=maxabs sizeX=0"},
           {"pool", "channels=1 pool=avg sizeX=1 stride=1"},
           {"cmpool", "channels=1 pool=max size=1 stride=1 start=0 outputs=1"},
           {"rnorm", "channels=1 size=3"},
           {"cnorm", "channels=1 size=3"},
           {"cmrnorm", "channels=1 size=1"},
           {"bnorm", "channels=1"},
           {"concat", ""},
           {"pass", ""},
           {"slice", ""},
           {"shuffle", "groups=1"},
           {"eltsum", ""},
           {"sum", ""},
           {"dropout", ""},
           {"dropout2", ""},
           {"nailbed", "channels=1 stride=2"},
           {"blur", "channels=1 filterSize=9 stdev=1"},
           {"href", "channels=1"},
           {"softmax", ""}}) {
    const bool norm = type == "rnorm" || type == "cnorm" || type == "cmrnorm";
    train_like_reference({type + " " + keys,
                          {1, 1, 1},
                          1,
                          conv("b", "inputs=data channels=1 filters=1 filterSize=1 neuron=tanh[1,1]") +
                              section("x", type, "inputs=b " + keys),
                          "x",
                          norm ? "[x]\nscale=0.5\npow=0.75\n"
                          // bnorm makes 0 of a single value, and only rounding of its gradient.
                          : type == "bnorm" ? rates("b", "", "0", "0")
                                            : "",
                          2});
  }
}
