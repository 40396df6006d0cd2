// Fusions change the speed and nothing else.
#include "tests/catch.h"
#include "tests/layers/small_net.h"

using namespace convnet;
using namespace convnet::test;

namespace {

void same_with_and_without(const std::string& layers, const std::string& top, std::size_t rewrites) {
  INFO(layers);
  const Dims image = {3, 8, 8};
  const NetTexts texts = between_data_and_cost(layers, top, 5);
  NetOptions plain;
  plain.rewrites = false;
  SmallNet fused_net(texts, image, 5);
  SmallNet plain_net(texts, image, 5, plain);
  CHECK(fused_net.graph().rewrites.size() == rewrites);
  CHECK(plain_net.graph().rewrites.empty());
  for (std::uint64_t i = 0; i < 3; ++i) {
    const Minibatch batch = random_minibatch(image, 6, 5, i);
    const StepOutcome a = fused_net.step(Phase::train, batch, i);
    const StepOutcome b = plain_net.step(Phase::train, batch, i);
    CHECK(relative_difference(a.costs, b.costs) < 1e-6);
  }
  const auto fused = fused_net.tensors();
  for (const auto& [name, tensor] : plain_net.tensors()) {
    INFO(name);
    CHECK(relative_difference(fused.at(name).values, tensor.values) < 2e-6);
  }
}

}  // namespace

TEST_CASE("rewrites change nothing but speed") {
  const std::string conv =
      "[c]\ntype=conv\ninputs=data\nchannels=3\nfilters=16\nfilterSize=3\npadding=1\ninitW=0.3\nneuron="
      "relu\n";
  const std::string two_inputs =
      "[e]\ntype=conv\ninputs=data,c\nchannels=3,16\nfilters=5\nfilterSize=3,1\npadding=1,0\ninitW=0."
      "2\nneuron=relu\n";
  const std::string fc = "[f]\ntype=fc\ninputs=data\noutputs=9\ninitW=0.2\nneuron=relu\n";
  // softmax with logreg is one more.
  same_with_and_without(conv, "c", 2);
  same_with_and_without(fc, "f", 2);
  same_with_and_without(conv + two_inputs, "e", 3);
  same_with_and_without(conv + fc, "c,f", 3);
  // Someone else reads the convolution before the relu: it may not apply it.
  same_with_and_without(
      "[c]\ntype=conv\ninputs=data\nchannels=3\nfilters=4\nfilterSize=3\ninitW=0.3\n"
      "[n]\ntype=neuron\ninputs=c\nneuron=relu\n",
      "c,n", 1);
  // Dropout stands between.
  same_with_and_without("[f]\ntype=fc\ninputs=data\noutputs=9\ninitW=0.2\ndropout=0.5\nneuron=relu\n", "f",
                        1);
}
