// Darknet's nets: what is read, and what is refused. tests/cli/darknet_test.cpp computes one.
#include "convnet/onnx_import/darknet.h"

#include "convnet/base/error.h"
#include "convnet/onnx_import/import.h"
#include "tests/catch.h"
#include "tests/onnx_import/darknet_files.h"

namespace convnet {
namespace {

const std::string kHead = "[net]\nwidth=8\nheight=8\nchannels=3\n";

SourceModel read(const std::string& cfg, const std::string& weights = darknet_weights(0)) {
  return parse_darknet_model("x.cfg", cfg, "x.weights", weights);
}

/// Checks that a net is refused with this message.
void refused(const std::string& cfg, const std::string& message,
             const std::string& weights = darknet_weights(0)) {
  CHECK_THROWS_AS(read(cfg, weights), InputError);
  CHECK_THROWS_WITH(read(cfg, weights), message);
}

}  // namespace

TEST_CASE("a net of Darknet becomes a net with the numbers of its layers") {
  const std::string cfg =
      kHead +
      "# a comment\n[convolutional]\nbatch_normalize = 1\nfilters=4\nsize=3\npad=1\n"
      "activation=leaky\n\n[maxpool]\nsize=2\nstride=2\n[avgpool]\n"
      "[connected]\noutput=5\nactivation=linear\n[dropout]\nprobability=.25\n[softmax]\n[cost]\n";
  const std::int64_t numbers = 4 * 4 + 4 * 27 + 5 + 20;
  ImportedModel net = import_model(read(cfg, darknet_weights(numbers)), {});
  CHECK(net.text.definition ==
        "# Imported from x.cfg, which Darknet wrote\n\n"
        "[DEFAULT]\n# Weights that an import does not give begin so.\ninitW=he\n\n"
        "[data]\ntype=data\ndataIdx=0\n\n[labels]\ntype=data\ndataIdx=1\n\n"
        "[conv0]\ntype=conv\ninputs=data\nchannels=3\nfilters=4\nfilterSize=3\npadding=1\nbiases=0\n\n"
        "[bn0]\ntype=bnorm\ninputs=conv0\nchannels=4\nneuron=leaky[0.1]\n\n"
        "[pool1]\ntype=pool\ninputs=bn0\npool=max\nchannels=4\nsizeX=2\nstride=2\n\n"
        "[pool2]\ntype=pool\ninputs=pool1\npool=avg\nchannels=4\nsizeX=0\n\n"
        "[fc3]\ntype=fc\ninputs=pool2\noutputs=5\n\n"
        "[dropout4]\ntype=dropout\ninputs=fc3\n\n"
        "[probs]\ntype=softmax\ninputs=dropout4\n\n"
        "[logprob]\ntype=cost.logreg\ninputs=labels,probs\n");
  CHECK_THAT(net.text.parameters, Catch::Contains("[dropout4]\nkeep=0.75\n"));
  CHECK(net.pixels == PixelForm::unit);
  CHECK(net.stored.empty());  // Darknet cuts nothing off
  const Checkpoint checkpoint = checkpoint_of(net, "net.cfg", "net-params.cfg");
  // The biases of a normalised layer come first, and are what is added at the end.
  CHECK(checkpoint.tensors.tensors.at("bn0.shift").values == std::vector<float>{0, 1, 2, 3});
  CHECK(checkpoint.tensors.tensors.at("bn0.scale").values == std::vector<float>{4, 5, 6, 7});
  CHECK(checkpoint.tensors.tensors.at("fc3.weights.pool2").values.back() == static_cast<float>(numbers - 1));
}

TEST_CASE("sections of Darknet that no layer computes are named together") {
  refused(kHead + "[convolutional]\n[upsample]\nstride=2\n[yolo]\nmask=0,1\n[maxpol]\n",
          "x.cfg:6: [upsample] is not imported\n"
          "x.cfg:8: [yolo] finds objects; only nets that classify are imported\n"
          "x.cfg:10: [maxpol] is not imported; did you mean 'maxpool'?");
  refused(
      kHead + "[crop]\ncrop_width=7\n",
      "x.cfg:5: [crop] cuts images and scales their pixels; leave it out, give [net] its height and width, "
      "and import with --pixels symmetric, or unit if it says noadjust=1");
}

TEST_CASE("mistakes in a cfg of Darknet are named with their line") {
  refused("", "x.cfg: is no net of Darknet: its first section is not [net]");
  refused("[convolutional]\n", "x.cfg: is no net of Darknet: its first section is not [net]");
  refused(kHead, "x.cfg: has no layers");
  refused("width=8\n[net]\n", "x.cfg:1: is above the first section, which is [net]");
  refused(kHead + "[maxpool\n", "x.cfg:5: expected [section], not '[maxpool'");
  refused(kHead + "[maxpool]\nsize\n", "x.cfg:6: expected key=value, not 'size'");
  refused("[net]\nheight=8\n[avgpool]\n", "x.cfg:1: [net] has no width");
  refused("[net]\nheight=0\nwidth=8\n", "x.cfg:1: [net] height=0; expected 1 to 16384");
  refused(kHead + "[maxpool]\nstride=0\n", "x.cfg:5: [maxpool] stride=0; expected 1 to 4096");
  refused(kHead + "[maxpool]\nsize=40\npadding=0\n",
          "x.cfg:5: [maxpool] its windows are larger than the maps");
  refused(kHead + "[maxpool]\nmaxpool_depth=1\n", "x.cfg:5: [maxpool] maxpool_depth=1 has no counterpart");
  refused(kHead + "[avgpool]\n[activation]\nactivation=stair\n",
          "x.cfg:6: [activation] activation=stair has no counterpart; there are logistic, mish, relu, selu, "
          "tanh, linear, leaky, elu, relu6, swish");
  refused(kHead + "[avgpool]\n[shortcut]\nfrom=-2\n",
          "x.cfg:6: [shortcut] there is no layer -2 below it, which is layer 1");
  refused(kHead + "[maxpool]\nstride=2\n[maxpool]\nstride=2\n[shortcut]\nfrom=0\n",
          "x.cfg:9: [shortcut] adds layers of 3x2x2 and 3x4x4, and only equal ones can be added");
  std::string many = "-1";
  for (int i = 0; i < 64; ++i) many += ",-1";
  refused(kHead + "[avgpool]\n[route]\nlayers=" + many + "\n",
          "x.cfg:6: [route] layers names 65 layers; layers have up to 64 inputs");
  refused(kHead + "[avgpool]\n[route]\nlayers=a\n", "x.cfg:6: [route] layers=a; expected numbers of layers");
  refused(kHead + "[avgpool]\n[route]\nlayers=0\ngroups=2\n", "x.cfg:6: [route] 3 maps do not fit 2 groups");
  refused(kHead + "[softmax]\n[maxpool]\n",
          "x.cfg:6: [maxpool] needs maps, and the layer below it has a vector");
  refused(kHead + "[dropout]\nprobability=1\n", "x.cfg:5: [dropout] probability=1; expected 0 to 1");
  refused(kHead + "[softmax]\ngroups=2\n", "x.cfg:5: [softmax] has several groups");
}

TEST_CASE("weights of Darknet must be those of the net") {
  const std::string cfg = kHead + "[convolutional]\nfilters=2\nactivation=linear\n[avgpool]\n";
  CHECK_NOTHROW(read(cfg, darknet_weights(2 + 6)));
  refused(cfg,
          "x.weights: ends within layer 0, [convolutional], whose next 2x3x1x1 numbers it should have; is it "
          "the file of another net?",
          darknet_weights(7));
  refused(cfg, "x.weights: has 1 numbers more than the net has weights; is it the file of another net?",
          darknet_weights(9));
  refused(cfg, "x.weights: is no weights file of Darknet: it is too short for its header", "short");
  refused(cfg, "x.weights: is no weights file of Darknet, or is damaged: its length does not fit",
          darknet_weights(8) + "x");
  refused(cfg, "x.weights: is no weights file of Darknet: it says that its version is 1701670501.1701670501",
          "enmeenmeenmeenmeenme");
  // Sizes whose product overflows need no memory.
  refused(
      kHead + "[convolutional]\nfilters=1048576\nsize=4096\npad=1\n[avgpool]\n",
      "x.weights: ends within layer 0, [convolutional], whose next 1048576 numbers it should have; is it the "
      "file of another net?");
  refused("[net]\nwidth=16384\nheight=16384\nchannels=1048576\n[connected]\noutput=1\n",
          "x.weights: ends within layer 0, [connected], whose next 1x281474976710656 numbers it should have; "
          "is it "
          "the file of another net?",
          darknet_weights(1));
  // Borders of [maxpool] make maps larger, and no weights are needed for that.
  std::string grown = "[net]\nwidth=16384\nheight=16384\nchannels=1048576\n";
  for (int i = 0; i < 1020; ++i) grown += "[maxpool]\npadding=4096\n";
  refused(grown + "[connected]\noutput=1\n",
          "x.cfg:5: [maxpool] makes maps of 20480x20480 pixels; at most 16384 along a side are imported",
          darknet_weights(1));
}

TEST_CASE("of a key that Darknet's section gives twice, the first one counts") {
  const std::string cfg = kHead + "[convolutional]\nfilters=2\nfilters=3\nactivation=linear\n[avgpool]\n";
  CHECK_NOTHROW(read(cfg, darknet_weights(2 + 6)));
}

TEST_CASE("the short names of Darknet's sections are those of the same layers") {
  const std::string layers = "filters=2\nactivation=linear\n";
  const SourceModel usual =
      read(kHead + "[convolutional]\n" + layers + "[maxpool]\n[avgpool]\n[connected]\n[softmax]\n",
           darknet_weights(2 + 6 + 1 + 2));
  const SourceModel brief =
      read("[network]\nwidth=8\nheight=8\nchannels=3\n[conv]\n" + layers + "[max]\n[avg]\n[conn]\n[soft]\n",
           darknet_weights(2 + 6 + 1 + 2));
  REQUIRE(brief.nodes.size() == usual.nodes.size());
  for (std::size_t i = 0; i < usual.nodes.size(); ++i) {
    CHECK(brief.nodes[i].op == usual.nodes[i].op);
    CHECK(brief.nodes[i].inputs == usual.nodes[i].inputs);
  }
}

TEST_CASE("keys of Darknet with values that change nothing are read over") {
  CHECK_NOTHROW(read(kHead + "[maxpool]\nout_channels=1\n[shortcut]\nfrom=0\nweights_type=none\n"
                             "weights_normalizion=none\n[softmax]\ntemperature=1.0\n"));
  refused(kHead + "[softmax]\ntemperature=2\n", "x.cfg:5: [softmax] has a temperature");
  refused(kHead + "[maxpool]\nout_channels=2\n", "x.cfg:5: [maxpool] out_channels=2 has no counterpart");
}

TEST_CASE("vectors and maps of Darknet are not joined") {
  const std::string head = kHead + "[avgpool]\n[connected]\noutput=3\n";
  const std::string weights = darknet_weights(3 + 9);
  refused(head + "[shortcut]\nfrom=0\n",
          "x.cfg:8: [shortcut] adds a vector and maps; only outputs of one form are imported", weights);
  refused(head + "[route]\nlayers=0,1\n",
          "x.cfg:8: [route] joins a vector and maps; only outputs of one form are imported", weights);
}

}  // namespace convnet
