// Graph rewrites (one operation for two layers, no copies) change speed only.
#include "tests/layers/against_reference.h"
#include "tests/rounding.h"

using namespace convnet;
using namespace convnet::test;

namespace {

// On GPUs fused operations are other engines than plain ones. The longest sums are those of fully-connected
// layers over a convolution: 16 maps of 8 x 8 pixels.
const double kFusedTolerance = rounding_of(16 * 8 * 8);

void same_with_and_without(const std::string& layers, const std::string& top, std::size_t rewrites,
                           const std::string& parameters = "") {
  INFO(layers);
  const Dims image = {3, 8, 8};
  const NetTexts texts = between_data_and_cost(layers, top, 5, parameters);
  NetOptions with;
  with.extra = {{4, ExtraMatrix::multi_hot}};
  NetOptions without = with;
  without.rewrites = false;
  SmallNet fused_net(texts, image, 5, with);
  SmallNet plain_net(texts, image, 5, without);
  CHECK(fused_net.graph().rewrites.size() == rewrites);
  CHECK(plain_net.graph().rewrites.empty());
  for (std::uint64_t i = 0; i < 3; ++i) {
    const Minibatch batch = random_minibatch(image, 6, 5, i, with.extra);
    const StepOutcome a = fused_net.step(Phase::train, batch, i);
    const StepOutcome b = plain_net.step(Phase::train, batch, i);
    CHECK(relative_difference(a.costs, b.costs) < kFusedTolerance);
  }
  const auto fused = fused_net.tensors();
  for (const auto& [name, tensor] : plain_net.tensors()) {
    INFO(name);
    CHECK(relative_difference(fused.at(name).values, tensor.values) < kFusedTolerance);
  }
}

}  // namespace

TEST_CASE("rewrites change nothing but speed") {
  const std::string c = conv("c", "inputs=data channels=3 filters=16 filterSize=3 padding=1 neuron=relu");
  const std::string two_inputs =
      conv("e", "inputs=data,c channels=3,16 filters=5 filterSize=3,1 padding=1,0 initW=0.2 neuron=relu");
  const std::string f = fc("f", "inputs=data outputs=9 neuron=relu");
  // The fusion of softmax with logreg is one more.
  same_with_and_without(c, "c", 2);
  same_with_and_without(f, "f", 2);
  same_with_and_without(c + two_inputs, "e", 3);
  same_with_and_without(c + f, "c,f", 3);
  // Another layer reads the convolution before the relu, so it may not apply the relu.
  same_with_and_without(conv("c", "inputs=data channels=3 filters=4 filterSize=3") +
                            section("n", "neuron", "inputs=c neuron=relu"),
                        "c,n", 1);
  // A dropout lies between.
  same_with_and_without(fc("f", "inputs=data outputs=9 dropout=0.5 neuron=relu"), "f", 1);
}

TEST_CASE("rewrites of pooling change nothing but speed") {
  const auto pooled = [](const std::string& keys) {
    return section("p", "pool", "inputs=c channels=6 neuron=relu " + keys);
  };
  const std::string c = conv("c", "inputs=data channels=3 filters=6 filterSize=3 initW=0.3");
  same_with_and_without(c + pooled("pool=max sizeX=2 stride=2"), "p", 2);
  same_with_and_without(c + pooled("pool=max sizeX=3 stride=2"), "p", 2);
  same_with_and_without(c + pooled("pool=maxabs sizeX=3 stride=1"), "p", 2);
  same_with_and_without(c + pooled("pool=max sizeX=0"), "p", 2);
  // An average keeps no positions.
  same_with_and_without(c + pooled("pool=avg sizeX=3 stride=2"), "p", 1);
  // Another layer reads the pooled maps.
  same_with_and_without(c + section("p", "pool", "inputs=c channels=6 pool=max sizeX=2 stride=2") +
                            section("n", "neuron", "inputs=p neuron=relu"),
                        "p,n", 1);
  // Nothing learns below.
  same_with_and_without(section("p", "pool", "inputs=data channels=3 pool=max sizeX=2 stride=2 neuron=relu"),
                        "p", 2);
}

TEST_CASE("rewrites of local, sfc and bnorm change nothing but speed") {
  same_with_and_without(
      section("l", "local", "inputs=data channels=3 filters=4 filterSize=3 stride=2 initW=0.3 neuron=relu"),
      "l", 2);
  same_with_and_without(section("s", "sfc", "inputs=data parts=4 outputs=3 initW=0.3 neuron=relu"), "s", 2);
  const std::string c = conv("c", "inputs=data channels=3 filters=16 filterSize=3 neuron=tanh[1,1]");
  same_with_and_without(c + section("b", "bnorm", "inputs=c channels=16 neuron=relu"), "b", 2);
  for (const std::string neuron : {"brelu[1]", "leaky[0.1]", "hswish", "silu"})
    same_with_and_without(c + section("b", "bnorm", "inputs=c channels=16 neuron=" + neuron), "b", 2);
  // Two layers read the output, so the gradient is a sum, which the norm makes.
  for (const std::string neuron : {"relu", "brelu[1]", "leaky[0.1]", "hswish", "silu"}) {
    const std::string layers = c + section("b", "bnorm", "inputs=c channels=16 neuron=" + neuron) +
                               section("p", "pool", "pool=avg inputs=b channels=16 sizeX=0") +
                               section("m", "eltmul", "inputs=b,p") +
                               conv("d", "inputs=m channels=16 filters=16 filterSize=3");
    same_with_and_without(layers, "d", 2);
    SmallNet net(between_data_and_cost(layers, "d", 5), {3, 8, 8}, 5, {});
    const std::vector<std::string> lines = net.prepare(Phase::train, 6).rewrites;
    CHECK(std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
      return line.starts_with("accumulate of 'p' does bnorm.backward_weights");
    }));
  }
  // Batch norm applies some functions only, and a convolution applies relu only.
  same_with_and_without(c + section("b", "bnorm", "inputs=c channels=16 neuron=gelu"), "b", 1);
  same_with_and_without(conv("c", "inputs=data channels=3 filters=16 filterSize=3 neuron=hswish"), "c", 1);
  // Another layer reads the output before its relu.
  same_with_and_without(
      c + section("b", "bnorm", "inputs=c channels=16") + section("n", "neuron", "inputs=b neuron=relu"),
      "b,n", 1);
  // Unshared biases are added after the convolution, and the relu after them.
  same_with_and_without(conv("c", "inputs=data channels=3 filters=4 filterSize=3 sharedBiases=0 neuron=relu"),
                        "c", 1);
}

TEST_CASE("fused sums and moments of a residual net change nothing but speed") {
  const auto wide = [](const std::string& name, const std::string& input, int channels) {
    return conv(name, "inputs=" + input + " channels=" + std::to_string(channels) +
                          " filters=64 filterSize=3 padding=1");
  };
  const auto norm = [](const std::string& name, const std::string& input, const std::string& keys = "") {
    return section(name, "bnorm", "inputs=" + input + " channels=64 " + keys);
  };
  // A sum that a convolution makes, whose moments the next norm wants; then one that a norm makes, with a
  // relu.
  const std::string layers = wide("c1", "data", 3) + norm("b1", "c1", "neuron=relu") + wide("c2", "b1", 64) +
                             section("s1", "eltsum", "inputs=c1,c2") + norm("b2", "s1", "neuron=relu") +
                             wide("c3", "b2", 64) + norm("b3", "c3") +
                             section("s2", "eltsum", "inputs=s1,b3 neuron=relu") +
                             section("p", "pool", "inputs=s2 channels=64 pool=avg sizeX=8 stride=8");
  // The norm above takes a bias away again: its gradient is nothing but rounding.
  same_with_and_without(layers, "p", 3, keys_of("c3", "epsW=0.05 epsB=0 momW=0.9 momB=0.8"));
  SmallNet net(between_data_and_cost(layers, "p", 5), {3, 8, 8}, 5, {});
  const std::vector<std::string> fused = net.prepare(Phase::train, 6).rewrites;
  CHECK(std::find(fused.begin(), fused.end(), "bnorm.forward of 'b3' does eltsum of 's2' as well") !=
        fused.end());
}

TEST_CASE("rewrites of binary costs change nothing but speed") {
  const std::string f =
      section("tags", "data", "dataIdx=2") + fc("f", "inputs=data outputs=4 neuron=logistic");
  const std::string parameters = "[x]\ncoeff=0.5\nposWeight=2\n";
  for (const std::string type : {"cost.bce", "cost.dce"}) {
    same_with_and_without(f + section("x", type, "inputs=tags,f"), "data", 2, parameters);
    // Others read the probabilities, so their gradient has to exist.
    same_with_and_without(f + section("x", type, "inputs=tags,f"), "f", 1, parameters);
  }
}

TEST_CASE("rewrites of cross entropy change nothing but speed") {
  const std::string f = section("tags", "data", "dataIdx=2") + fc("f", "inputs=data outputs=4") +
                        section("q", "softmax", "inputs=f") + section("x", "cost.crossent", "inputs=tags,q");
  same_with_and_without(f, "data", 2, "[x]\ncoeff=0.5\n");
  // Others read the probabilities, so their gradient has to exist.
  same_with_and_without(f, "q", 1, "[x]\ncoeff=0.5\n");
}

TEST_CASE("cross entropy learns labels however improbable they are") {
  const std::string layers = section("onehot", "data", "dataIdx=2") +
                             fc("f", "inputs=data outputs=4 initW=0") + section("q", "softmax", "inputs=f") +
                             section("x", "cost.crossent", "inputs=onehot,q");
  NetOptions options;
  options.extra = {{4, ExtraMatrix::one_hot}};
  const NetTexts texts = between_data_and_cost(layers, "data", 4, "[x]\ncoeff=0.5\n");
  SmallNet net(texts, {3}, 4, options);
  net.prepare(Phase::train, 1);
  Minibatch batch = random_minibatch({3}, 1, 4, 1, options.extra);
  batch.extra[0] = {0, 1, 0, 0};
  for (const float difference : {10.0F, 60.0F, 200.0F}) {
    INFO("the label is e^" << difference << " times less probable than another class");
    net.set_weights("f.biases", {difference, 0, -500, -500});
    net.set_weights("f.weights.data", std::vector<float>(12, 0.0F));
    const std::vector<float> gradient = net.step(Phase::train, batch, 0, true).gradients.at("f.biases");
    CHECK(relative_difference(gradient, std::vector<double>{0.5, -0.5, 0, 0}) < 1e-4);
  }
}

TEST_CASE("layers that write over their input change nothing but memory") {
  const std::string c =
      conv("c", "inputs=data channels=3 filters=16 filterSize=3 padding=1 neuron=tanh[1,1]");
  const auto lines = [](const std::string& layers, const std::string& top) {
    same_with_and_without(layers, top, 1);
    SmallNet net(between_data_and_cost(layers, top, 5), {3, 8, 8}, 5);
    return net.prepare(Phase::train, 6).rewrites;
  };
  using Lines = std::vector<std::string>;
  CHECK(lines(c, "c") == Lines{"'c_neuron' writes over 'c' in place"});
  // The backward of tanh reads its output, so dropout may not write over it.
  CHECK(lines(c + section("d", "dropout", "inputs=c"), "d") == Lines{"'c_neuron' writes over 'c' in place"});
  CHECK(lines(conv("c", "inputs=data channels=3 filters=4 filterSize=3 dropout=0.3 neuron=logistic"), "c") ==
        Lines{"'c_dropout' writes over 'c' in place", "'c_neuron' writes over 'c_dropout' in place"});
  CHECK(lines(section("p", "pass", "inputs=data") + conv("c", "inputs=p channels=3 filters=4 filterSize=3"),
              "c") == Lines{"'p' passes 'data' on without a copy"});
}

TEST_CASE("conserving memory changes nothing but memory") {
  const std::string layers =
      conv("a", "inputs=data channels=3 filters=16 filterSize=3 padding=1 neuron=tanh[1,1]") +
      section("b", "bnorm", "inputs=a channels=16 neuron=hswish") +
      section("p", "pool", "pool=max inputs=b channels=16 sizeX=3 stride=1 neuron=square") +
      section("n", "cmrnorm", "inputs=p channels=16 size=5") +
      section("q", "pass", "inputs=n neuron=softrelu") +
      conv("c", "inputs=q channels=16 filters=16 filterSize=3 padding=1 dropout=0.3 neuron=abs") +
      section("s", "eltsum", "inputs=c,q") + section("w", "rnorm", "inputs=s channels=16 size=3") +
      section("v", "pool", "pool=avg inputs=w channels=16 sizeX=2 stride=2") +
      section("h", "href", "inputs=v channels=16 neuron=logistic");
  const std::string parameters = "[n]\nscale=0.7\npow=0.75\n[w]\nscale=0.7\npow=0.75\n";
  const Dims image = {3, 12, 12};
  NetOptions conserving;
  conserving.conserve_memory = true;
  const NetTexts texts = between_data_and_cost(layers, "h,s", 5, parameters);
  SmallNet kept(texts, image, 5);
  SmallNet conserved(texts, image, 5, conserving);
  for (std::uint64_t i = 0; i < 4; ++i) {
    const Minibatch batch = random_minibatch(image, 6, 5, i);
    CHECK(kept.step(Phase::train, batch, i).costs == conserved.step(Phase::train, batch, i).costs);
  }
  const auto expected = kept.tensors();
  for (const auto& [name, tensor] : conserved.tensors()) {
    INFO(name);
    CHECK(expected.at(name).values == tensor.values);
  }
  CHECK(conserved.prepare(Phase::train, 6).memory[0].transient <
        kept.prepare(Phase::train, 6).memory[0].transient);
}

TEST_CASE("layers without work of their own change nothing") {
  const std::string c = conv("c", "inputs=data channels=3 filters=16 filterSize=3 padding=1");
  // Both sides run without copies; what is compared is the same net without the layer.
  const auto trained = [](const std::string& layers, const std::string& top) {
    SmallNet net(between_data_and_cost(layers, top, 5), {3, 6, 6}, 5);
    StepOutcome last;
    for (std::uint64_t i = 0; i < 3; ++i)
      last = net.step(Phase::train, random_minibatch({3, 6, 6}, 4, 5, i), i);
    return std::pair{last.costs, net.tensors().at("c.weights.data").values};
  };
  // The top's weights are named after their input, so all nets go through one more neuron.
  const auto end = [](const std::string& input) {
    return section("t", "neuron", "neuron=tanh[1,1] inputs=" + input);
  };
  const auto plain = trained(c + end("c"), "t");
  for (const std::string type : {"pass", "concat"}) {
    INFO(type);
    const auto with = trained(c + section("p", type, "inputs=c") + end("p"), "t");
    CHECK(with.first == plain.first);
    CHECK(with.second == plain.second);
  }
  const auto twice =
      trained(c + section("p", "pass", "inputs=c") + section("q", "pass", "inputs=p neuron=ident") +
                  section("n", "neuron", "inputs=q neuron=ident") + end("n"),
              "t");
  CHECK(twice.second == plain.second);
  // The input of a layer that could work in place is read again.
  same_with_and_without(c + section("p", "pass", "inputs=c neuron=relu") +
                            section("d", "dropout", "inputs=c neuron=tanh[1,1]") +
                            section("n", "neuron", "inputs=c neuron=logistic"),
                        "p,c,n,d", 1);
}
