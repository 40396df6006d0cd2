// Random nets, devices, hosts and ways to train (placed_nets.h).
#include <algorithm>
#include <cmath>
#include <random>
#include <sstream>

#include "tests/parallel/placed_nets.h"

namespace convnet::test {

namespace {

/// Uses smooth layers: where a max or a relu is within rounding of its kink, its gradient may go either way.
class RandomNet {
 public:
  RandomNet(std::uint32_t seed, bool normalised, Kinds kinds) : random_(seed), kinds_(kinds) {
    static const std::vector<std::vector<int>> chains = {
        {1, 1, 1}, {1, 1, 1}, {2, 2, 2}, {3, 3, 3}, {4, 4, 4}, {2, 2, 1}, {2, 1, 1}, {4, 2, 1}, {4, 4, 2},
        {1, 1, 2}, {1, 2, 2}, {1, 2, 4}, {2, 4, 2}, {4, 1, 4}, {2, 1, 2}, {3, 3, 1}, {6, 2, 1}, {1, 3, 1}};
    const std::vector<int>& replicas = chains[below(chains.size())];
    const auto most = std::max_element(replicas.begin(), replicas.end());
    passes_ = *most / *std::min_element(replicas.begin(), replicas.end());
    devices_ = std::max(2, *most) * (1 + static_cast<int>(below(2))) + static_cast<int>(below(3));
    scattered_ = below(2) == 0;
    // Biases below a bnorm would learn little but rounding errors, so there are none.
    int to_bnorm = normalised ? static_cast<int>(most - replicas.begin()) : -1;
    for (std::size_t stage = 0; stage < replicas.size(); ++stage, --to_bnorm) {
      replicas_ = replicas[stage];
      list_ = devices();
      normalises_ = to_bnorm == 0;
      no_biases_ = to_bnorm > 0 ? "biases=0 " : "";
      if (stage == 0 && kinds_ == Kinds::all) prepare_images();
      if (stage < 2) {
        maps();
      } else {
        vectors();
      }
    }
  }

  PlacedNet net(const std::string& name) {
    std::string top = current_[0];
    for (std::size_t i = 1; i < current_.size(); ++i) top += "," + current_[i];
    layers_ += fc("fcaux", "inputs=" + current_[0] + " outputs=4") +
               section("auxprobs", "softmax", "inputs=fcaux") +
               section("aux", "cost.logreg", "inputs=labels,auxprobs");
    gpus_["top"] = list_;
    gpus_["fcaux"] = devices();
    NetTexts plain = between_data_and_cost(layers_, top, kClasses, parameters_ + keys_of("aux", "coeff=0.3"));
    // Small steps: rounding errors must not grow.
    for (const std::string rate : {"epsW=0.05", "epsB=0.1"}) {
      for (std::size_t at = 0; (at = plain.parameters.find(rate, at)) != std::string::npos;)
        plain.parameters.replace(at + 5, rate.size() - 5, "0.01");
    }
    return place(name, plain, devices_, gpus_, passes_);
  }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }

  std::string devices() {
    std::vector<int> all;
    for (int i = 0; i < devices_; ++i) all.push_back(i);
    for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[below(i)]);
    std::string list = std::to_string(all[0]);
    for (int i = 1; i < replicas_; ++i) list += "," + std::to_string(all[static_cast<std::size_t>(i)]);
    return list;
  }

  std::string add(const std::string& type, const std::string& keys, const std::string& gpus = "") {
    const std::string name = "x" + std::to_string(++count_);
    layers_ += section(name, type, keys);
    gpus_[name] = !gpus.empty() ? gpus : scattered_ ? devices() : list_;
    return name;
  }

  /// The placement of a layer whose inputs have as many replicas: without a gpu= line it goes where they are.
  std::string add_above(const std::string& type, const std::string& keys) {
    const std::string name = add(type, keys);
    if (below(3) == 0) gpus_.erase(name);
    return name;
  }

  /// Places a layer whose replicas may each be divided over several devices.
  std::string add_divided(const std::string& type, const std::string& keys) {
    const std::string name = add(type, keys);
    const int most = devices_ / replicas_;
    if (most < 2 || below(2) > 0) return name;
    const int parts = 2 + static_cast<int>(below(static_cast<std::size_t>(most) - 1));
    replicas_ *= parts;
    gpus_[name] = devices() + "\nparallel=model\nparts=" + std::to_string(parts);
    replicas_ /= parts;
    return name;
  }

  std::string all_current() const {
    std::string names = current_.empty() ? "data" : "";
    for (const std::string& name : current_) names += (names.empty() ? "" : ",") + name;
    return names;
  }

  /// Weights that keep outputs about one, where nothing is saturated.
  std::string weights_of(int fan_in) const {
    return "initW=" + std::to_string(1 / std::sqrt(fan_in)) + " initB=0.2 " + no_biases_;
  }

  /// Layers that each read all of the current ones, or one column each.
  void columns(const std::string& type, const std::string& keys, int fan_in) {
    const std::size_t count = 1 + below(3);
    const bool crossed = count != current_.size() || below(2) == 0;
    std::vector<std::string> made;
    for (std::size_t i = 0; i < count; ++i) {
      const std::string inputs = " inputs=" + (crossed ? all_current() : current_[i]);
      const auto count_in = static_cast<int>(crossed ? std::max<std::size_t>(1, current_.size()) : 1);
      const std::string common = weights_of(count_in * fan_in) + keys + inputs;
      if (!normalises_ || below(2) == 0) {
        made.push_back(type == "fc" ? add_divided(type, common + " neuron=tanh[1,1]")
                                    : add(type, common + " neuron=tanh[1,1]"));
      } else {
        const std::string raw = add(type, common + " biases=0");
        made.push_back(add("bnorm", "epsilon=0.1 neuron=tanh[1,1] inputs=" + raw));
      }
    }
    current_ = made;
    normalises_ = false;
  }

  void each(const std::string& type, const std::string& keys, const std::string& parameters = "") {
    for (std::string& name : current_) {
      name = add_above(type, keys + " inputs=" + name);
      if (!parameters.empty()) parameters_ += keys_of(name, parameters);
    }
  }

  void join() {
    if (current_.size() < 2) return;
    const std::vector<std::string> types = {"eltsum", "concat", "pass"};
    const std::string type = types[below(types.size())];
    if (type == "concat" || type == "pass") channels_ *= static_cast<int>(current_.size());
    current_ = {add_above(type, "inputs=" + all_current())};
  }

  /// Two more layers upon each other, the second with the first one's weights.
  void shared() {
    const std::string c = std::to_string(channels_);
    const std::string like = "filterSize=3 padding=1 neuron=tanh[1,1] channels=" + c + " filters=" + c + " " +
                             weights_of(9 * channels_) + "inputs=";
    const std::string gpus = scattered_ ? devices() : list_;
    const std::string owner = add("conv", like + current_[0], gpus);
    current_[0] = add("conv", like + owner + " weightSource=" + owner + "[0]", gpus);
  }

  /// Layers without a gradient above the images.
  void prepare_images() {
    switch (below(5)) {
      case 0: current_ = {add("rgb2yuv", "inputs=data")}; break;
      case 1:
        current_ = {add("crop", "inputs=data channels=3 startX=1 startY=0 sizeX=9")};
        side_ = 9;
        break;
      case 2:
        current_ = {add("resize", "inputs=data channels=3 scale=1.5")};
        side_ = 8;
        break;
      case 3:
        current_ = {add("rscale", "inputs=data channels=3 maxScale=1.25 tgtSize=10")};
        side_ = 10;
        break;
      default: break;
    }
  }

  /// Adds layers that halve the side.
  void shrink(const std::string& type, const std::string& keys) {
    if (side_ < 3) return;
    each(type, keys);
    side_ = (side_ + 1) / 2;
  }

  void maps() {
    columns("conv", "filters=4 filterSize=3 padding=1 channels=" + std::to_string(channels_), 9 * channels_);
    channels_ = 4;
    const std::string c = " channels=" + std::to_string(channels_);
    for (int i = 0; i < (kinds_ == Kinds::all ? 4 : 2); ++i) {
      if (kinds_ == Kinds::all && below(4) != 0) {
        further_maps();
        continue;
      }
      switch (below(6)) {
        case 0: each("cmrnorm", "size=3" + c, "scale=0.5 pow=0.75"); break;
        case 1: shrink("nailbed", "stride=2" + c); break;
        case 2: shrink("pool", "pool=avg sizeX=2 stride=2" + c); break;
        case 3: each("dropout", "", "keep=0.8"); break;
        case 4: shared(); break;
        default: each("local", "filters=4 filterSize=1 neuron=tanh[1,1] " + weights_of(channels_) + c); break;
      }
    }
    join();
  }

  /// Convolutions with one group's weights for each output, which see `fan_in` numbers.
  void convolve(const std::string& keys, int fan_in) {
    each("conv", keys + " neuron=tanh[1,1] channels=" + std::to_string(channels_) + " " + weights_of(fan_in));
  }

  /// Layers that only nets of all kinds have. The number of maps stays.
  void further_maps() {
    const std::string count = std::to_string(channels_), c = " channels=" + count,
                      half = std::to_string((side_ + 1) / 2);
    switch (below(19)) {
      case 0:
        convolve("groups=2 filterSize=3 padding=1 filters=" + std::to_string(channels_ / 2),
                 9 * channels_ / 2);
        break;
      case 1: convolve("filters=1 filterSize=3 padding=1 groups=" + count, 9); break;
      case 2:
        if (side_ < 3) break;
        convolve("filters=1 filterSize=3 padding=1 stride=2 groups=" + count + " modulesX=" + half, 9);
        side_ = (side_ + 1) / 2;
        break;
      case 3: convolve("filterSize=1 filters=" + count, channels_); break;
      case 4:
        convolve("filterSize=3 filterSizeY=1 padding=1 paddingY=0 filters=" + count, 3 * channels_);
        break;
      case 5: convolve("filterSize=3 padding=2 dilation=2 filters=" + count, 9 * channels_); break;
      case 6:
        if (side_ < 3) break;
        convolve("filterSize=2 stride=2 filters=" + count, 4 * channels_);
        side_ = (side_ + 1) / 2;
        break;
      case 7: each("rnorm", "size=3" + c, "scale=0.5 pow=0.75"); break;
      case 8: each("cnorm", "size=3" + c, "scale=0.5 pow=0.75"); break;
      case 9: each("blur", "filterSize=3 stdev=1" + c); break;
      case 10: each("href", c); break;
      case 11: each("shuffle", "groups=2" + c); break;
      case 12: exchange_halves(); break;
      case 13: squeeze_and_excite(); break;
      case 14: each("neuron", "neuron=" + smooth_neuron()); break;
      case 15: each("dropout", "", "keep=0.8 drops=maps"); break;
      case 16: each("dropout", "", "keep=0.8 drops=images"); break;
      case 17:
        each("pool",
             "pool=avg sizeX=3 sizeY=2 stride=1 start=-1 startY=0 outputsX=" + std::to_string(side_) + c);
        break;
      default: convolve("filterSize=3 padding=1 sharedBiases=0 filters=" + count, 9 * channels_); break;
    }
  }

  std::string smooth_neuron() {
    const std::vector<std::string> neurons = {"ident",  "logistic",    "softrelu",
                                              "square", "tanh[1,0.7]", "linear[0.8,0.1]"};
    return neurons[below(neurons.size())];
  }

  /// Each layer's maps or numbers, the second half first.
  void exchange_halves() {
    const std::string middle = std::to_string(channels_ / 2);
    for (std::string& name : current_) {
      const std::string first = add_above("slice", "maps=" + middle + " inputs=" + name);
      const std::string second = add_above("slice", "start=" + middle + " inputs=" + name);
      name = add_above("concat", "inputs=" + second + "," + first);
    }
  }

  void squeeze_and_excite() {
    for (std::string& name : current_) {
      const std::string c = " channels=" + std::to_string(channels_);
      const std::string means = add_above("pool", "pool=avg sizeX=0 inputs=" + name + c);
      const std::string factors =
          add("fc", "outputs=" + std::to_string(channels_) + " neuron=logistic inputs=" + means + " " +
                        weights_of(channels_));
      name = add_above("eltmul", "inputs=" + name + "," + factors);
    }
  }

  /// Layers of numbers that only nets of all kinds have.
  void further_vectors() {
    switch (below(7)) {
      case 0:
        each("sfc", "parts=2 neuron=tanh[1,1] outputs=" + std::to_string(channels_ / 2) + " " +
                        weights_of(channels_ / 2));
        break;
      case 1: exchange_halves(); break;
      case 2: each("softmax", ""); break;
      case 3: each("neuron", "neuron=" + smooth_neuron()); break;
      case 4: each("shuffle", "groups=2"); break;
      case 5:
        each("sum", "stride=2");
        channels_ /= 2;
        break;
      default:
        for (std::string& name : current_) name = add_above("eltmul", "inputs=" + name + "," + name);
        break;
    }
  }

  void vectors() {
    columns("fc", "outputs=10", channels_ * side_ * side_);
    channels_ = 10;
    if (kinds_ == Kinds::all) further_vectors();
    if (below(2) == 0) each("dropout2", "", "keep=0.7");
    join();
    if (below(2) == 0) columns("fc", "outputs=9", channels_);
  }

  std::mt19937 random_;
  Kinds kinds_;
  int devices_ = 1, passes_ = 1, replicas_ = 1, count_ = 0, channels_ = 3, side_ = 12;
  bool scattered_ = false, normalises_ = false;
  std::string layers_, parameters_, list_, no_biases_;
  Gpus gpus_;
  std::vector<std::string> current_;
};

}  // namespace

PlacedNet random_net(std::uint32_t seed, bool normalised, Kinds kinds) {
  return RandomNet(seed, normalised, kinds).net("random net " + std::to_string(seed));
}

namespace {

/// Lets updates of a random net's layers span one to three minibatches, all of them as many if `equal`.
void give_periods(PlacedNet& net, std::mt19937& random, bool equal) {
  const std::string key = "updatePeriod=";
  std::string plain, placed;
  std::istringstream lines(net.placed.parameters);
  int minibatches = 1 + static_cast<int>(random() % 3);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) {
      plain += line + "\n";
      placed += line + "\n";
      continue;
    }
    if (!equal) minibatches = 1 + static_cast<int>(random() % 3);
    const int passes = std::stoi(line.substr(key.size()));
    plain += key + std::to_string(minibatches) + "\n";
    placed += key + std::to_string(passes * minibatches) + "\n";
  }
  net.plain.parameters = plain;
  net.placed.parameters = placed;
}

/// Returns the numbers of devices of one to four hosts, which need not be equal; none for one host.
std::vector<int> draw_hosts(int devices, std::mt19937& random) {
  std::vector<int> hosts(1 + random() % 4, 1);
  if (hosts.size() == 1 || std::ssize(hosts) > devices) return {};
  const bool equal = devices % std::ssize(hosts) == 0 && random() % 2 == 0;
  const auto rest = devices - static_cast<int>(hosts.size());
  for (int i = 0; i < rest; ++i) {
    const std::size_t drawn = random();
    ++hosts[(equal ? static_cast<std::size_t>(i) : drawn) % hosts.size()];
  }
  return hosts;
}

}  // namespace

PlacedNet random_training(std::uint32_t seed, Kinds kinds) {
  std::mt19937 random(seed);
  const std::vector<Way> ways = all_ways();
  const Way way = ways[random() % ways.size()];
  PlacedNet net = random_net(seed, true, kinds);
  give_periods(net, random, way.clip_norm > 0);
  net.plain = with_optimizer(net.plain, way);
  net.placed = with_optimizer(net.placed, way);
  net.options = with_way(net.options, way);
  net.options.devices_of_hosts = draw_hosts(static_cast<int>(split_list(net.options.gpu).size()), random);
  net.name += ", " + way.optimizer + ", clipped at " + std::to_string(way.clip_norm) + ", averaged by " +
              std::to_string(way.ema) + ", hosts of " + number_list(net.options.devices_of_hosts);
  return net;
}

PlacedNet random_run(std::uint32_t seed) {
  std::mt19937 random(seed + 1);
  PlacedNet net;
  if (random() % 2 == 0) {
    net = random_training(seed, Kinds::all);
  } else {
    net = random_net(seed, false, Kinds::all);
    net.options.devices_of_hosts = draw_hosts(static_cast<int>(split_list(net.options.gpu).size()), random);
    net = with_microbatches(std::move(net), 1 + static_cast<int>(random() % 3));
  }
  net.options.conserve_memory = random() % 3 == 0;
  net.options.rewrites = random() % 6 != 0;
  net.options.threads = 1 + static_cast<int>(random() % 3);
  if (random() % 2 == 0) net = with_relays(std::move(net));
  net.name += ", " + std::to_string(net.options.threads) + " threads" +
              (net.options.conserve_memory ? ", saving memory" : "") +
              (net.options.rewrites ? "" : ", without fusions");
  return net;
}

}  // namespace convnet::test
