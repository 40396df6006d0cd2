#include "tests/layers/random_nets.h"

#include <cmath>
#include <utility>

namespace convnet::test {
namespace {

std::string number(double value) { return std::to_string(value); }

/// Returns a section; `keys` are separated by blanks.
std::string section(const std::string& name, std::string keys) {
  std::replace(keys.begin(), keys.end(), ' ', '\n');
  return "[" + name + "]\n" + keys + "\n";
}

}  // namespace

const std::vector<ExtraMatrix>& random_net_matrices() {
  static const std::vector<ExtraMatrix> matrices = {{kRandomNetClasses, ExtraMatrix::one_hot},
                                                    {5, ExtraMatrix::multi_hot}};
  return matrices;
}

std::string RandomNets::deal(Deck& deck, const std::vector<std::string>& cards) {
  if (deck.empty()) {
    deck = cards;
    for (std::size_t i = deck.size(); i > 1; --i) std::swap(deck[i - 1], deck[below(i)]);
  }
  std::string card = deck.back();
  deck.pop_back();
  return card;
}

RandomNets::Tensor RandomNets::add(const std::string& type, const std::string& keys, Tensor output,
                                   const std::string& parameters) {
  output.name = "x" + std::to_string(++count_);
  layers_ += section(output.name, "type=" + type + " " + keys);
  const bool learns = type == "conv" || type == "local" || type == "fc" || type == "sfc" || type == "bnorm";
  // Increments are gradients: there is no momentum and no decay.
  if (learns) parameters_ += section(output.name, "epsW=0.01 epsB=0.01 momW=0 momB=0");
  if (!parameters.empty()) parameters_ += section(output.name, parameters);
  return output;
}

std::string RandomNets::keys_of_weights(int inputs) {
  return " initW=" + number(1 / std::sqrt(inputs)) + " initB=0.1";
}

std::string RandomNets::channels_of(const Tensor& in) const {
  return "inputs=" + in.name + " channels=" + std::to_string(in.channels);
}

/// Adds a neuron layer. Functions that are not defined everywhere stand on one that keeps within bounds.
RandomNets::Tensor RandomNets::bent(Tensor in) {
  static const std::vector<std::string> cards = {
      "ident",  "logistic", "abs",      "relu",          "nrelu",        "softrelu",        "square",
      "sqrt",   "log[3]",   "drelu[2]", "tanh[1.5,0.7]", "abstanh[1,1]", "linear[0.7,0.1]", "brelu[1]",
      "elu[1]", "silu",     "gelu",     "mish",          "hsigmoid",     "hswish",          "leaky[0.1]"};
  // Those that other layers apply, and two that none does.
  static const std::vector<std::string> applied = {"relu",   "relu", "brelu[1]", "leaky[0.1]",
                                                   "hswish", "silu", "logistic"};
  const std::string neuron = deal(neurons_, kinds_ == LayerKinds::all ? cards : applied);
  if (neuron == "sqrt") in = add("neuron", "inputs=" + in.name + " neuron=logistic", in);
  if (neuron == "log[3]") in = add("neuron", "inputs=" + in.name + " neuron=tanh[1,1]", in);
  return add("neuron", "inputs=" + in.name + " neuron=" + neuron, in);
}

/// Adds a layer and, mostly, a function of its outputs.
RandomNets::Tensor RandomNets::with_neuron(const std::string& type, const std::string& keys, Tensor output) {
  output = add(type, keys, output);
  return below(3) == 0 ? output : bent(output);
}

/// Returns as many maps of the same side, from a convolution.
RandomNets::Tensor RandomNets::convolved(const Tensor& in, int filters) {
  return add("conv",
             channels_of(in) + " filters=" + std::to_string(filters) + " filterSize=3 padding=1" +
                 keys_of_weights(9 * in.channels),
             {"", filters, in.side});
}

/// Adds layers that have no gradient.
RandomNets::Tensor RandomNets::on_data() {
  const Tensor data{"data", 3, 8};
  const std::string kind =
      deal(data_layers_, {"none", "neuron", "rgb2yuv", "rgb2lab", "rscale", "resize", "crop", "none"});
  if (kind == "neuron") return bent(data);
  if (kind == "rgb2yuv") return add(kind, "inputs=data", data);
  // L*a*b* are numbers up to 100.
  if (kind == "rgb2lab")
    return add("neuron", "inputs=" + add(kind, "inputs=data center=1", data).name + " neuron=linear[0.02,0]",
               data);
  if (kind == "rscale") return add(kind, channels_of(data) + " maxScale=1.2 tgtSize=6", {"", 3, 6});
  if (kind == "resize") return add(kind, channels_of(data) + " scale=1.2", {"", 3, 6});
  if (kind == "crop") return add(kind, channels_of(data) + " startX=1 sizeX=7", {"", 3, 7});
  return data;
}

RandomNets::Tensor RandomNets::above_maps(const Tensor& in) {
  static const std::vector<std::string> cards = {
      "conv",    "conv 1x1",     "conv stride", "conv groups",  "depthwise", "local",  "max",
      "avg",     "maxabs",       "sum",         "global",       "cmpool",    "rnorm",  "cnorm",
      "cmrnorm", "bnorm",        "eltsum",      "eltmax",       "eltmul",    "by map", "concat",
      "blur",    "href",         "nailbed",     "dropout",      "dropout2",  "pass",   "neuron",
      "shared",  "sharedBiases", "windows",     "pool windows", "slice",     "shuffle"};
  const std::string kind = deal(map_layers_, cards), keys = channels_of(in), c = std::to_string(in.channels);
  const int half = (in.side + 1) / 2;
  const auto windows = [&](const std::string& pool) {
    return add("pool", keys + " pool=" + pool + " sizeX=2 stride=2", {"", in.channels, half});
  };
  const auto norm = [&] { return add(kind, keys + " size=3", in, "scale=0.5 pow=0.75"); };
  if (kind == "conv") {
    const int filters = static_cast<int>(std::vector<int>{3, 8, 16}[below(3)]);
    return with_neuron("conv",
                       keys + " filters=" + std::to_string(filters) + " filterSize=3 padding=1" +
                           keys_of_weights(9 * in.channels),
                       {"", filters, in.side});
  }
  if (kind == "conv 1x1")
    return with_neuron("conv", keys + " filters=5 filterSize=1" + keys_of_weights(in.channels),
                       {"", 5, in.side});
  if (kind == "conv stride")
    return with_neuron("conv",
                       keys + " filters=8 filterSize=3 padding=1 stride=2" + keys_of_weights(9 * in.channels),
                       {"", 8, half});
  if (kind == "conv groups" && in.channels % 2 == 0)
    return with_neuron(
        "conv", keys + " filters=4 groups=2 filterSize=3 padding=1" + keys_of_weights(9 * in.channels / 2),
        {"", 8, in.side});
  if (kind == "depthwise")
    return with_neuron("conv",
                       keys + " filters=1 groups=" + c + " filterSize=3 padding=1" + keys_of_weights(9), in);
  if (kind == "sharedBiases")
    return with_neuron(
        "conv", keys + " filters=4 filterSize=3 padding=1 sharedBiases=0" + keys_of_weights(9 * in.channels),
        {"", 4, in.side});
  if (kind == "local")
    return with_neuron("local", keys + " filters=4 filterSize=3 padding=1" + keys_of_weights(9 * in.channels),
                       {"", 4, in.side});
  if (kind == "max" || kind == "avg" || kind == "maxabs") return in.side > 1 ? windows(kind) : in;
  if (kind == "sum" && in.side > 1)
    return add("pool", keys + " pool=avg sum=1 sizeX=2 stride=1 start=-1", {"", in.channels, in.side});
  if (kind == "global" && below(3) == 0) return add("pool", keys + " pool=avg sizeX=0", {"", in.channels, 1});
  if (kind == "windows") {
    // A column, taps that are not neighbours, more border behind than before.
    static const std::vector<std::string> windows_of_six = {"filterSize=1 filterSizeY=3 paddingY=1",
                                                            "filterSize=3 padding=2 dilation=2",
                                                            "filterSize=2 paddingEnd=1"};
    return with_neuron("conv",
                       keys + " filters=6 " + windows_of_six[below(3)] + keys_of_weights(6 * in.channels),
                       {"", 6, in.side});
  }
  if (kind == "pool windows")
    return add("pool", keys + " pool=max sizeX=2 sizeY=3 stride=1 startY=-1 paddingEnd=1",
               {"", in.channels, in.side});
  if (kind == "cmpool" && in.channels > 1)
    return add("cmpool", keys + " pool=max size=2 stride=2", {"", (in.channels + 1) / 2, in.side});
  if (kind == "rnorm" || kind == "cnorm" || kind == "cmrnorm")
    return in.side > 2 && in.channels > 2 ? norm() : in;
  if (kind == "bnorm") return batch_norm(in);
  if (kind == "eltsum")
    return add(kind, "inputs=" + in.name + "," + convolved(in, in.channels).name + " coeffs=1,-0.5", in);
  if (kind == "eltmax" || kind == "eltmul")
    return add(kind, "inputs=" + convolved(in, in.channels).name + "," + convolved(in, in.channels).name, in);
  if (kind == "by map") {
    const Tensor factors =
        add("fc", "inputs=" + in.name + " outputs=" + c + keys_of_weights(in.size()), {"", in.channels, 0});
    return add("eltmul", "inputs=" + in.name + "," + bent(factors).name, in);
  }
  if (kind == "concat")
    return add(kind, "inputs=" + in.name + "," + convolved(in, 4).name, {"", in.channels + 4, in.side});
  if (kind == "blur") return add(kind, keys + " filterSize=3 stdev=1", in);
  if (kind == "href") return add(kind, keys, in);
  if (kind == "nailbed") return add(kind, keys + " stride=2", {"", in.channels, half});
  if (kind == "dropout") return add(kind, "inputs=" + in.name, in, "keep=0.8");
  if (kind == "dropout2" || kind == "pass") return add(kind, "inputs=" + in.name, in);
  if (kind == "neuron") return bent(in);
  if (kind == "slice" && in.channels > 2)
    return add(kind, keys + " start=1 maps=" + std::to_string(in.channels - 2),
               {"", in.channels - 2, in.side});
  if (kind == "shuffle" && in.channels % 2 == 0) return add(kind, keys + " groups=2", in);
  if (kind == "shared") {
    const Tensor owner = convolved(in, in.channels), between = bent(owner);
    return add("conv",
               channels_of(between) + " filters=" + c + " filterSize=3 padding=1 weightSource=" + owner.name +
                   "[0]" + keys_of_weights(9 * in.channels),
               in);
  }
  return in;
}

/// Adds a batch norm and, mostly, a neuron.
RandomNets::Tensor RandomNets::batch_norm(const Tensor& in) {
  return with_neuron("bnorm", channels_of(in) + " epsilon=0.01", in);
}

/// Returns as many maps from a convolution with a batch norm and, mostly, a neuron.
RandomNets::Tensor RandomNets::normalised(const Tensor& in) {
  const bool learns_biases = below(2) == 0;
  const std::string filters = " filters=" + std::to_string(in.channels);
  static const std::vector<std::string> windows = {" filterSize=3 padding=1", " filterSize=1",
                                                   " filterSize=5 padding=2"};
  const std::string window = windows[below(windows.size())];
  const Tensor maps = add("conv",
                          channels_of(in) + filters + window + keys_of_weights(9 * in.channels) +
                              (learns_biases ? "" : " biases=0"),
                          in);
  return batch_norm(maps);
}

/// Adds layers that are joined with others, mostly several that read the same maps.
RandomNets::Tensor RandomNets::joined(const Tensor& in) {
  static const std::vector<std::string> cards = {"plain",   "residual", "residual", "pre-activation",
                                                 "squeeze", "concat",   "two",      "max",
                                                 "bnorm",   "depthwise"};
  const std::string kind = deal(map_layers_, cards), c = std::to_string(in.channels);
  const auto sum = [&](const Tensor& a, const Tensor& b) {
    return add("eltsum", "inputs=" + a.name + "," + b.name, in);
  };
  if (kind == "plain") return normalised(in);
  if (kind == "residual") {
    const Tensor result = sum(normalised(in), below(2) == 0 ? in : normalised(in));
    return below(4) == 0 ? result : bent(result);
  }
  if (kind == "pre-activation") return sum(in, convolved(batch_norm(in), in.channels));
  if (kind == "squeeze") {
    const Tensor maps = below(2) == 0 ? in : normalised(in);
    const Tensor means = add("pool", channels_of(maps) + " pool=avg sizeX=0", {"", in.channels, 1});
    const Tensor sums = add("fc", "inputs=" + means.name + " outputs=" + c + keys_of_weights(in.channels),
                            {"", in.channels, 0});
    // Factors of 0 would put whole maps on the kink of a neuron above.
    const Tensor factors =
        add("neuron", "inputs=" + sums.name + " neuron=" + (below(2) == 0 ? "logistic" : "hsigmoid"), sums);
    return add("eltmul", "inputs=" + maps.name + "," + factors.name, maps);
  }
  if (kind == "concat") {
    const Tensor other = normalised(in);
    const Tensor both = add("concat", "inputs=" + in.name + "," + other.name, {"", 2 * in.channels, in.side});
    return convolved(both, in.channels);
  }
  if (kind == "two") {
    const Tensor maps = normalised(in);
    return sum(normalised(maps), bent(convolved(maps, in.channels)));
  }
  if (kind == "max" && in.side > 2)
    return add("pool", channels_of(in) + " pool=max sizeX=3 stride=2", {"", in.channels, in.side / 2});
  if (kind == "bnorm") return batch_norm(in);
  if (kind == "depthwise") {
    const Tensor maps =
        add("conv",
            channels_of(in) + " filters=1 groups=" + c + " filterSize=3 padding=1" + keys_of_weights(9), in);
    return batch_norm(maps);
  }
  return in;
}

RandomNets::Tensor RandomNets::above_vector(Tensor in) {
  const std::string kind = deal(vector_layers_, {"fc", "fc", "sfc", "sum", "bnorm", "eltsum", "eltmul",
                                                 "concat", "neuron", "dropout", "slice", "shuffle"});
  const auto of_fc = [&](int outputs) {
    return add("fc", "inputs=" + in.name + " outputs=" + std::to_string(outputs) + keys_of_weights(in.size()),
               {"", outputs, 0});
  };
  if (kind == "sfc" && in.size() % 2 == 0)
    return with_neuron("sfc", "inputs=" + in.name + " parts=2 outputs=6" + keys_of_weights(in.size() / 2),
                       {"", 12, 0});
  if (in.side > 0 || kind == "fc" || kind == "sfc") in = bent(of_fc(12));
  if (kind == "sum")
    return in.size() % 2 == 0 ? add(kind, "inputs=" + in.name + " stride=2", {"", in.size() / 2, 0}) : in;
  if (kind == "bnorm") return with_neuron(kind, "inputs=" + in.name + " epsilon=0.1", in);
  if (kind == "eltsum" || kind == "eltmul")
    return add(kind, "inputs=" + in.name + "," + of_fc(in.size()).name, in);
  if (kind == "concat") return add(kind, "inputs=" + in.name + "," + of_fc(3).name, {"", in.size() + 3, 0});
  if (kind == "dropout") return add(kind, "inputs=" + in.name, in, "keep=0.8");
  if (kind == "slice" && in.side == 0 && in.size() > 3)
    return add(kind, "inputs=" + in.name + " start=2", {"", in.size() - 2, 0});
  if (kind == "shuffle" && in.side == 0 && in.size() % 2 == 0)
    return add(kind, "inputs=" + in.name + " groups=2", in);
  return kind == "neuron" ? bent(in) : in;
}

/// Adds a second cost.
void RandomNets::add_cost(const Tensor& in) {
  const std::string kind = deal(costs_, {"none", "crossent", "bce", "dce", "sum2"});
  if (kind == "none") return;
  const auto outputs = [&](int count) {
    return add("fc", "inputs=" + in.name + " outputs=" + std::to_string(count) + keys_of_weights(in.size()),
               {"", count, 0});
  };
  if (kind == "sum2") {
    add("cost.sum2", "inputs=" + outputs(3).name, {}, "coeff=0.1");
  } else if (kind == "crossent") {
    layers_ += section("onehot", "type=data dataIdx=2");
    const Tensor softmax = add("softmax", "inputs=" + outputs(kRandomNetClasses).name, {});
    add("cost.crossent", "inputs=onehot," + softmax.name, {}, "coeff=0.5");
  } else {
    layers_ += section("tags", "type=data dataIdx=3");
    const Tensor tags = add("neuron", "inputs=" + outputs(5).name + " neuron=logistic", {});
    add("cost." + kind, "inputs=tags," + tags.name, {}, "coeff=0.5 posWeight=2");
  }
}

NetTexts RandomNets::next() {
  layers_ = parameters_ = "";
  count_ = 0;
  const bool all = kinds_ == LayerKinds::all;
  Tensor top = on_data();
  // Something learns below the layers under test. Winograd's method and blocks of maps want more maps.
  const int few = 4 + 2 * static_cast<int>(below(3));
  top = bent(convolved(top, all ? few : 2 * few));
  const int maps = 2 + static_cast<int>(below(3)), vectors = static_cast<int>(below(3));
  for (int i = 0; i < maps; ++i) top = all ? above_maps(top) : joined(top);
  for (int i = 0; i < vectors; ++i) top = above_vector(top);
  add_cost(top);
  return between_data_and_cost(layers_, top.name, kRandomNetClasses,
                               parameters_ + section("top", "epsW=0.01 epsB=0.01 momW=0 momB=0"));
}

}  // namespace convnet::test
