#include "tests/parallel/placed_nets.h"

#include <algorithm>
#include <random>
#include <sstream>
#include <stdexcept>

#include "kernels/backend.h"
#include "tests/catch.h"
#include "tests/every_case.h"
#include "tests/wrapped_backend.h"

namespace convnet::test {

namespace {

/// Learning parameters that hold norms at work beside those of every layer.
std::string constrained(const std::string& name, const std::string& limits) {
  return keys_of(name, "epsW=0.05 epsB=0.1 momW=0.9 momB=0.8 wc=0.01 " + limits);
}

}  // namespace

std::string device_list(int devices) {
  std::string list = "0";
  for (int i = 1; i < devices; ++i) list += "," + std::to_string(i);
  return list;
}

std::string with_keys(std::string text, const std::map<std::string, std::string>& keys) {
  for (const auto& [layer, lines] : keys) {
    const std::string header = "[" + layer + "]\n";
    const std::size_t at = ("\n" + text).find("\n" + header);
    if (at == std::string::npos) throw std::logic_error("no section " + header);
    text.insert(at + header.size(), lines + "\n");
  }
  return text;
}

std::string with_gpus(const std::string& definition, const Gpus& gpus) {
  std::map<std::string, std::string> keys;
  for (const auto& [layer, list] : gpus) keys[layer] = "gpu=" + list;
  return with_keys(definition, keys);
}

std::string with_update_period(std::string parameters, int period) {
  const std::string key = "\nepsW=", line = "\nupdatePeriod=" + std::to_string(period);
  for (std::size_t at = parameters.find(key); at != std::string::npos;
       at = parameters.find(key, at + line.size() + 1))
    parameters.insert(at, line);
  return parameters;
}

PlacedNet place(const std::string& name, const NetTexts& plain, int devices, const Gpus& gpus, int passes) {
  PlacedNet net;
  net.name = name;
  net.plain = plain;
  net.placed.definition = with_gpus(plain.definition, gpus);
  net.placed.parameters = passes == 0 ? plain.parameters : with_update_period(plain.parameters, passes);
  net.options.gpu = device_list(devices);
  return net;
}

NetTexts column_net(Normalised normalised) {
  const bool trunk = normalised == Normalised::trunk, head = normalised == Normalised::head;
  // A bias below a bnorm would learn rounding errors only.
  const std::string below_bnorm = "biases=0 ", tanh = "neuron=tanh[1,1] ";
  std::string layers = conv("conv1", "inputs=data channels=3 filters=6 filterSize=5 padding=2 " + tanh) +
                       section("norm1", "cmrnorm", "inputs=conv1 channels=6 size=5") +
                       section("pool1", "pool", "pool=max inputs=norm1 channels=6 sizeX=3 stride=2") +
                       conv("conv2", "inputs=pool1 channels=6 filters=6 filterSize=3 padding=1 " +
                                         (trunk ? below_bnorm : tanh));
  if (trunk) layers += section("bn", "bnorm", "inputs=conv2 channels=6 epsilon=0.01 " + tanh);
  const std::string second = trunk ? "bn" : "conv2";
  layers += conv("conv3", "inputs=" + second +
                              " channels=6 filters=6 filterSize=3 padding=1 weightSource=conv2[0] " + tanh) +
            section("added", "eltsum", "inputs=" + second + ",conv3 coeffs=1,0.5") +
            section("drop1", "dropout", "inputs=added") +
            section("pool2", "pool", "pool=avg inputs=drop1 channels=6 sizeX=2 stride=2") +
            section("local1", "local",
                    "inputs=pool2 channels=6 filters=4 filterSize=3 padding=1 initW=0.2 " + tanh) +
            fc("fc1", "inputs=local1 outputs=20 " + (head ? below_bnorm : "neuron=relu dropout=0.3"));
  if (head) layers += section("bn", "bnorm", "inputs=fc1 epsilon=0.1 dropout=0.3 " + tanh);
  layers += fc("fc2", std::string("inputs=") + (head ? "bn" : "fc1") + " outputs=12 " + tanh) +
            fc("fcaux", "inputs=local1 outputs=4") + section("auxprobs", "softmax", "inputs=fcaux") +
            section("aux", "cost.logreg", "inputs=labels,auxprobs");
  return between_data_and_cost(
      layers, "fc2", kClasses,
      keys_of("norm1", "scale=0.5 pow=0.75") + keys_of("aux", "coeff=0.3") + keys_of("drop1", "keep=0.8") +
          constrained("conv1", "wcNormMin=0.02 wcNormMax=0.024") + constrained("fc2", "wball=1") +
          keys_of("local1", "epsW=0.05 epsB=0 momW=0.9 momB=0.8"));
}

NetTexts two_columns_net(bool crossed) {
  const std::string keys = " filters=4 filterSize=3 padding=1 neuron=tanh[1,1]";
  std::string layers;
  for (const std::string column : {"a", "b"})
    layers +=
        conv("conv1" + column, "inputs=data channels=3" + keys) +
        section("pool1" + column, "pool", "pool=max inputs=conv1" + column + " channels=4 sizeX=2 stride=2");
  for (const std::string column : {"a", "b"})
    layers += conv("conv2" + column,
                   "inputs=" + (crossed ? "pool1a,pool1b" : "pool1" + column) + " channels=4" + keys);
  layers +=
      section("sum", "eltsum", "inputs=conv2a,conv2b coeffs=1,-0.5") +
      section("cat", "concat", "inputs=conv2a,conv2b") +
      conv("conv3", "inputs=cat,sum channels=8,4" + keys + " dropout=0.2") +
      fc("fca", "inputs=conv3 outputs=10 neuron=relu dropout=0.25") +
      fc("fcb", "inputs=conv3 outputs=10 neuron=tanh[1,1]") + section("joined", "pass", "inputs=fca,fcb") +
      fc("fc2", "inputs=joined outputs=12 neuron=tanh[1,1]") + section("drop2", "dropout2", "inputs=fc2") +
      fc("fcaux", "inputs=fca,fcb outputs=4") + section("auxprobs", "softmax", "inputs=fcaux") +
      section("aux", "cost.logreg", "inputs=labels,auxprobs");
  return between_data_and_cost(layers, "drop2", kClasses, keys_of("aux", "coeff=0.3 topk=3"));
}

NetTexts wide_matrix_net() {
  return between_data_and_cost(
      conv("conv1", "inputs=data channels=3 filters=6 filterSize=3 padding=1 neuron=tanh[1,1]") +
          fc("fc1", "inputs=conv1 outputs=40 neuron=relu dropout=0.3"),
      "fc1", kClasses, constrained("conv1", "wcNormMin=0.02 wcNormMax=0.024"));
}

std::vector<PlacedNet> data_parallel_nets() {
  std::vector<PlacedNet> nets;
  const NetTexts trunk = column_net(Normalised::trunk), head = column_net(Normalised::head);
  for (const int devices : {2, 3, 4, 8}) {
    const std::string on = " on " + std::to_string(devices);
    nets.push_back(place("data parallel" + on, trunk, devices, {{"conv1", device_list(devices)}}));
    nets.push_back(place("--parallel data" + on, head, devices, {}));
    nets.back().options.data_parallel = true;
  }
  // Replica r of each layer is on another device than replica r of its input.
  nets.push_back(place("data parallel, every layer's devices in another order", trunk, 3,
                       {{"conv1", "0,1,2"},
                        {"norm1", "1,2,0"},
                        {"pool1", "2,1,0"},
                        {"conv2", "0,2,1"},
                        {"bn", "1,0,2"},
                        {"conv3", "0,2,1"},
                        {"added", "2,0,1"},
                        {"drop1", "1,2,0"},
                        {"pool2", "0,1,2"},
                        {"local1", "2,1,0"},
                        {"fc1", "1,0,2"},
                        {"fcaux", "2,0,1"},
                        {"auxprobs", "0,1,2"}}));
  nets.push_back(
      place("data parallel, the images' layer placed", trunk, 2, {{"data", "1,0"}, {"conv1", "0,1"}}));
  nets.push_back(place("data parallel, saving memory", trunk, 3, {{"conv1", "0,1,2"}}));
  nets.back().options.conserve_memory = true;
  nets.push_back(place("data parallel, without fusions", head, 3, {{"conv1", "0,1,2"}}));
  nets.back().options.rewrites = false;
  nets.push_back(place("data parallel, four cores", trunk, 2, {{"conv1", "0,1"}}));
  nets.back().options.threads = 4;
  nets.push_back(place("data parallel, fewer replicas than devices", trunk, 4, {{"conv1", "3,1"}}));
  return nets;
}

std::vector<PlacedNet> one_layer_per_device_nets() {
  std::vector<PlacedNet> nets;
  const std::vector<std::string> layers = {"conv1", "norm1", "pool1", "conv2",  "bn",       "conv3",
                                           "added", "drop1", "pool2", "local1", "fc1",      "fc2",
                                           "fcaux", "top",   "probs", "aux",    "auxprobs", "logprob"};
  for (const int devices : {2, 3, 4, 8}) {
    Gpus gpus;
    for (std::size_t i = 0; i < layers.size(); ++i)
      gpus[layers[i]] = std::to_string(i % static_cast<std::size_t>(devices));
    gpus["conv3"] = gpus["conv2"];
    const std::string on = " on " + std::to_string(devices);
    nets.push_back(place("a layer per device" + on, column_net(Normalised::trunk), devices, gpus));
    // In halves: the lower layers on the last device.
    nets.push_back(place("lower and upper half" + on, column_net(Normalised::head), devices,
                         {{"conv1", std::to_string(devices - 1)}, {"local1", "0"}, {"fcaux", "0"}}));
  }
  return nets;
}

std::vector<PlacedNet> column_per_device_nets() {
  const Gpus two = {{"conv1a", "0"}, {"conv1b", "1"}, {"conv2a", "0"}, {"conv2b", "1"},
                    {"cat", "1"},    {"fca", "0"},    {"fcb", "1"},    {"fcaux", "1"}};
  Gpus three = two, four = two;
  three["cat"] = three["conv3"] = "2";
  three["sum"] = three["drop2"] = "1";
  four["conv2a"] = "2";
  four["conv2b"] = "3";
  four["joined"] = "2";
  four["top"] = "3";
  std::vector<PlacedNet> nets;
  for (const bool crossed : {true, false}) {
    const std::string kind = crossed ? "columns with cross connections" : "columns";
    nets.push_back(place(kind + " on 2", two_columns_net(crossed), 2, two));
    nets.push_back(place(kind + " on 3", two_columns_net(crossed), 3, three));
    nets.push_back(place(kind + " on 4", two_columns_net(crossed), 4, four));
  }
  return nets;
}

std::vector<PlacedNet> two_tower_nets() {
  const Gpus four = {{"conv1a", "0,1"}, {"conv1b", "2,3"}, {"conv2a", "0,1"}, {"conv2b", "2,3"}};
  Gpus six = {
      {"conv1a", "0,1,2"}, {"conv1b", "3,4,5"}, {"conv2a", "0,1,2"}, {"conv2b", "3,4,5"}, {"fcb", "5,3,4"}};
  Gpus hybrid = four;
  hybrid["fca"] = "0";
  hybrid["fcb"] = "2";
  hybrid["joined"] = "1";
  hybrid["fcaux"] = "3";
  return {place("two towers on 4", two_columns_net(false), 4, four),
          place("two crossed towers on 6", two_columns_net(true), 6, six),
          place("two towers with heads on single devices", two_columns_net(false), 4, hybrid, 2)};
}

std::vector<PlacedNet> replicated_trunk_nets() {
  std::vector<PlacedNet> nets;
  const NetTexts column = column_net(Normalised::trunk), columns = two_columns_net(true);
  for (const int devices : {2, 3, 4, 8}) {
    const std::string all = device_list(devices), last = std::to_string(devices - 1);
    nets.push_back(place("single-device head above " + all, column, devices,
                         {{"conv1", all}, {"fc1", "0"}, {"fcaux", last}}, devices));
  }
  nets.push_back(place("fully-connected columns above 0,1", columns, 2,
                       {{"conv1a", "0,1"}, {"conv1b", "0,1"}, {"fca", "0"}, {"fcb", "1"}, {"fcaux", "1"}},
                       2));
  nets.push_back(place("two replicas above four", column, 4,
                       {{"conv1", "0,1,2,3"}, {"fc1", "2,0"}, {"fcaux", "1,3"}}, 2));
  nets.push_back(
      place("4, 2 and 1 replicas", column, 4,
            {{"conv1", "0,1,2,3"}, {"fc1", "1,2"}, {"fcaux", "0,1"}, {"fc2", "3"}, {"auxprobs", "0"}}, 4));
  nets.push_back(place(
      "6, 3 and 1 replicas", columns, 6,
      {{"conv1a", "0,1,2,3,4,5"}, {"conv1b", "5,4,3,2,1,0"}, {"conv3", "0,2,4"}, {"fca", "0"}, {"fcb", "5"}},
      6));
  nets.push_back(place("images replicated, layers not", column_net(Normalised::nowhere), 2,
                       {{"data", "0,1"}, {"conv1", "1"}}, 2));
  nets.push_back(place("single-device head, saving memory", column, 2,
                       {{"conv1", "0,1"}, {"fc1", "0"}, {"fcaux", "1"}}, 2));
  nets.back().options.conserve_memory = true;
  nets.push_back(place("single-device head, without fusions", column, 2,
                       {{"conv1", "0,1"}, {"fc1", "0"}, {"fcaux", "1"}}, 2));
  nets.back().options.rewrites = false;
  return nets;
}

std::vector<PlacedNet> replicated_head_nets() {
  std::vector<PlacedNet> nets;
  const NetTexts column = column_net(Normalised::head), columns = two_columns_net(true);
  for (const int devices : {2, 3, 4}) {
    const std::string all = device_list(devices);
    const Gpus gpus = {{"conv1", std::to_string(devices - 1)}, {"fc1", all}, {"fcaux", all}};
    nets.push_back(place("head on " + all + " above a single device", column, devices, gpus, devices));
    // The trunk cannot be updated between the passes its users need, whatever its updatePeriod.
    nets.push_back(
        place("head on " + all + " above a single device, no updatePeriod", column, devices, gpus));
  }
  nets.push_back(
      place("1, 2 and 4 replicas", columns, 4,
            {{"conv1a", "0"}, {"conv1b", "3"}, {"conv3", "0,1"}, {"fca", "0,1,2,3"}, {"fcb", "3,2,1,0"}}, 4));
  nets.push_back(
      place("2, 4 and 2 replicas", columns, 4,
            {{"conv1a", "0,1"}, {"conv1b", "2,3"}, {"conv3", "0,1,2,3"}, {"fca", "1,2"}, {"fcb", "0,3"}}, 2));
  nets.push_back(place(
      "4, 1 and 4 replicas", columns, 4,
      {{"conv1a", "0,1,2,3"}, {"conv1b", "0,1,2,3"}, {"conv3", "2"}, {"fca", "0,1,2,3"}, {"fcb", "0,1,2,3"}},
      4));
  nets.push_back(place("1, 2 and 1 replicas", columns, 2,
                       {{"conv1a", "0"}, {"conv1b", "1"}, {"conv3", "0,1"}, {"fca", "0"}, {"fcb", "1"}}, 2));
  return nets;
}

std::vector<PlacedNet> pipeline_nets() {
  const NetTexts column = column_net(Normalised::nowhere), columns = two_columns_net(true);
  std::vector<PlacedNet> nets = {
      place("two halves", column, 2, {{"conv1", "0"}, {"fc1", "1"}, {"fcaux", "1"}}),
      place("three stages, the first on the last device", column, 3,
            {{"conv1", "2"}, {"added", "0"}, {"fc1", "1"}, {"fcaux", "1"}}),
      place("a cost on a stage of its own", column, 4,
            {{"conv1", "0"}, {"added", "1"}, {"fc1", "2"}, {"fcaux", "3"}}),
      place("two halves of two replicas", column, 4, {{"conv1", "0,1"}, {"fc1", "3,2"}, {"fcaux", "2,3"}}),
      place("two replicas below one", column, 3, {{"conv1", "0,1"}, {"fc1", "2"}, {"fcaux", "2"}}, 2),
      place("two replicas below one, which is below another stage", column, 4,
            {{"conv1", "0,1"}, {"fc1", "2"}, {"fcaux", "2"}, {"fc2", "3"}}, 2),
      place("a stage of two replicas and of one, below another", column, 3,
            {{"conv1", "0,1"}, {"fc1", "1"}, {"fcaux", "1"}, {"fc2", "2"}}, 2),
      place("one replica below two", column, 3, {{"conv1", "2"}, {"fc1", "0,1"}, {"fcaux", "0,1"}}),
      place("two columns on one device, two on the next", columns, 2,
            {{"conv1a", "0"}, {"conv1b", "0"}, {"cat", "1"}, {"sum", "1"}}),
      place(
          "a column on each of two devices, and the rest on a third", columns, 3,
          {{"conv1a", "0"}, {"conv1b", "1"}, {"conv2a", "0"}, {"conv2b", "1"}, {"cat", "2"}, {"sum", "2"}})};
  nets.push_back(place("a divided layer above the trunk", column, 3,
                       {{"conv1", "0"}, {"fc1", "1,2\nparallel=model"}, {"fc2", "1"}, {"fcaux", "1"}}));
  nets.push_back(nets[0]);
  nets.back().name += ", saving memory";
  nets.back().options.conserve_memory = true;
  return nets;
}

PlacedNet with_microbatches(PlacedNet net, int microbatches) {
  net.name += ", " + std::to_string(microbatches) + " microbatches";
  net.options.microbatches = microbatches;
  return net;
}

bool has_gpus() {
  std::string reason;
  return cuda_devices(reason) > 0;
}

namespace {

struct RelayingTarget : WrappedTarget {
  using WrappedTarget::WrappedTarget;
  bool runs_streams_together() const override { return true; }
  std::int64_t link_delay_bytes() const override { return 256; }
};

}  // namespace

PlacedNet with_relays(PlacedNet net) {
  net.name += ", with relays";
  net.options.wrap = [](std::unique_ptr<Backend> backend) {
    return std::make_unique<BackendWithTarget<RelayingTarget>>(std::move(backend));
  };
  return net;
}

std::uint32_t every_net() { return static_cast<std::uint32_t>(every_case(has_gpus() ? 3 : 1)); }

std::vector<PlacedNet> thinned(const std::vector<PlacedNet>& nets) { return every_nth(nets, every_net()); }

NetOptions PlacedNet::plain_options() const {
  NetOptions same;
  same.extra = options.extra;
  same.clip_norm = options.clip_norm;
  same.ema = options.ema;
  return same;
}

std::vector<Way> all_ways() {
  return {{"sgd", 0.3, 0.9}, {"nesterov"},     {"nesterov", 0.3}, {"adamw", 0, 0.9},
          {"adamw", 0.3},    {"lars", 0, 0.5}, {"lars", 0.3},     {"rmsprop", 0, 0.9},
          {"rmsprop", 0.3},  {"sgd", 0, 0.9},  {"sgd", 1000, 0}};
}

// RMSProp's first steps, whose squares are not corrected for their bias, are long. A small epsilon would let
// rounding grow in them.
NetTexts with_optimizer(NetTexts texts, const Way& way) {
  texts.parameters = "[DEFAULT]\noptimizer=" + way.optimizer +
                     "\nbeta2=0.99\nadamEpsilon=" + (way.optimizer == "rmsprop" ? "0.5" : "1e-3") +
                     "\ntrust=0.01\n" + texts.parameters;
  return texts;
}

NetOptions with_way(NetOptions options, const Way& way) {
  options.clip_norm = way.clip_norm;
  options.ema = way.ema;
  return options;
}

Trained train(SmallNet& net, const std::vector<std::int64_t>& sizes, const std::vector<ExtraMatrix>& extra) {
  Trained trained;
  std::uint64_t iteration = 0;
  for (const std::int64_t images : sizes) {
    const Minibatch batch = random_minibatch(kImage, images, kClasses, 100 + iteration, extra);
    trained.costs.push_back(net.step(Phase::train, batch, iteration).costs);
    ++iteration;
  }
  const Minibatch batch = random_minibatch(kImage, sizes[0], kClasses, 99, extra);
  trained.costs.push_back(net.step(Phase::test, batch, iteration).costs);
  trained.tensors = net.tensors();
  return trained;
}

Trained train(const NetTexts& texts, const NetOptions& options, const std::vector<std::int64_t>& sizes) {
  SmallNet net(texts, kImage, kClasses, options);
  return train(net, sizes);
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, norm = 1e-30;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += d * d;
    norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::isfinite(difference) ? std::sqrt(difference / norm) : INFINITY;
}

double distance(const Trained& a, const Trained& b) {
  double largest = 0;
  for (const auto& [name, tensor] : b.tensors)
    largest = std::max(largest, distance(a.tensors.at(name).values, tensor.values));
  return largest;
}

void check_same_answer(const Trained& actual, const Trained& expected, double tolerance) {
  REQUIRE(actual.costs.size() == expected.costs.size());
  for (std::size_t step = 0; step < expected.costs.size(); ++step) {
    REQUIRE(actual.costs[step].size() == expected.costs[step].size());
    for (std::size_t slot = 0; slot < expected.costs[step].size(); ++slot) {
      INFO("value " << slot << " of the costs of step " << step);
      CHECK(actual.costs[step][slot] == Approx(expected.costs[step][slot]).epsilon(tolerance).margin(1e-6));
    }
  }
  REQUIRE(actual.tensors.size() == expected.tensors.size());
  for (const auto& [name, tensor] : expected.tensors) {
    INFO(name);
    REQUIRE(actual.tensors.contains(name));
    CHECK(actual.tensors.at(name).dims == tensor.dims);
    CHECK(distance(actual.tensors.at(name).values, tensor.values) < tolerance);
  }
}

void check_same_bits(const Trained& actual, const Trained& expected) {
  CHECK(actual.costs == expected.costs);
  REQUIRE(actual.tensors.size() == expected.tensors.size());
  for (const auto& [name, tensor] : expected.tensors) {
    INFO(name);
    CHECK(actual.tensors.at(name).values == tensor.values);
  }
}

void check_same_outputs(const PlacedNet& net) {
  SmallNet plain(net.plain, kImage, kClasses), placed(net.placed, kImage, kClasses, net.options);
  for (const std::int64_t images : {8, 3, 1}) {
    const Minibatch batch = random_minibatch(kImage, images, kClasses, static_cast<std::uint64_t>(images));
    const auto expected = plain.read_outputs(batch), actual = placed.read_outputs(batch);
    REQUIRE(actual.size() == expected.size());
    for (const auto& [layer, values] : expected) {
      INFO("output of " << layer << " for " << images << " images");
      CHECK(distance(actual.at(layer), values) < kSumsTolerance);
    }
  }
}

void check_gradients(const PlacedNet& net) {
  INFO(net.name);
  SmallNet placed(net.placed, kImage, kClasses, net.options);
  placed.prepare(Phase::check, 5);
  const auto before = placed.tensors();
  const Minibatch batch = random_minibatch(kImage, 5, kClasses, 1);
  std::size_t right = 0;
  const std::vector<GradientReport> reports = placed.net().check_gradients(5, placed.inputs_of(batch, 0));
  for (const GradientReport& report : reports) {
    INFO(report.name << ", error " << report.error);
    CHECK(report.verdict != Verdict::wrong);
    right += report.verdict == Verdict::right ? 1 : 0;
  }
  CHECK(2 * right > reports.size());
  for (const auto& [name, tensor] : placed.tensors()) {
    INFO(name);
    CHECK(tensor.values == before.at(name).values);
  }
}

}  // namespace convnet::test
