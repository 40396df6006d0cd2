// gpu= lines: what a layer without one gets, and what is said where they, parallel= or updatePeriod= break a
// rule.
#include <algorithm>

#include "tests/parallel/placed_nets.h"

using namespace convnet;
using namespace convnet::test;

namespace {

Built build(const NetTexts& texts, int devices = 0) {
  GraphOptions options;
  options.devices = devices;
  return build_net(texts, ShapeOnlyProvider(kImage, kClasses), options);
}

/// conv1, pool1; two columns a and b of conv2, which meet in fc1; fc2, top.
NetTexts net() {
  const std::string keys = " filters=4 filterSize=3 padding=1 neuron=relu";
  return between_data_and_cost(
      conv("conv1", "inputs=data channels=3" + keys) +
          section("pool1", "pool", "pool=max inputs=conv1 channels=4 sizeX=2 stride=2") +
          conv("conv2a", "inputs=pool1 channels=4" + keys) +
          conv("conv2b", "inputs=pool1 channels=4" + keys) +
          fc("fc1", "inputs=conv2a,conv2b outputs=9 neuron=relu dropout=0.5") +
          fc("fc2", "inputs=fc1 outputs=9"),
      "fc2", kClasses);
}

NetTexts placed_net(const Gpus& gpus, const std::map<std::string, int>& periods = {}) {
  NetTexts texts = net();
  texts.definition = with_gpus(texts.definition, gpus);
  std::map<std::string, std::string> lines;
  for (const auto& [layer, period] : periods) lines[layer] = "updatePeriod=" + std::to_string(period);
  texts.parameters = with_keys(texts.parameters, lines);
  return texts;
}

/// 1-based line of the first occurrence.
std::string line_of(const std::string& text, const std::string& what) {
  const std::size_t at = ("\n" + text).find("\n" + what);
  REQUIRE(at != std::string::npos);
  return std::to_string(1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}
/// "net.cfg:7: " of the line after "[layer]", where with_keys puts the key under test.
std::string key_line(const std::string& text, const std::string& layer, const std::string& file = "net.cfg") {
  return file + ":" + std::to_string(1 + std::stoi(line_of(text, "[" + layer + "]"))) + ": ";
}

bool mentions(const std::string& message, const std::vector<std::string>& words) {
  return std::all_of(words.begin(), words.end(),
                     [&](const std::string& word) { return message.find(word) != std::string::npos; });
}

/// Checks that one message begins with the place, names the layer and holds all the words.
void check_said(const Built& built, const std::string& place, const std::string& layer,
                const std::vector<std::string>& words) {
  CAPTURE(built.errors, place, layer, words);
  CHECK(std::any_of(built.errors.begin(), built.errors.end(), [&](const std::string& message) {
    return message.starts_with(place) && mentions(message, {"'" + layer + "'"}) && mentions(message, words);
  }));
}

/// Checks the same for a message whose place is any line of the layer's section.
void check_said_in(const Built& built, const std::string& text, const std::string& layer,
                   const std::vector<std::string>& words) {
  const int begin = std::stoi(line_of(text, "[" + layer + "]"));
  const std::size_t at = ("\n" + text).find("\n[" + layer + "]"), next = text.find("\n[", at);
  const auto length =
      std::count(text.begin() + static_cast<std::ptrdiff_t>(at),
                 text.begin() + static_cast<std::ptrdiff_t>(std::min(next, text.size())), '\n');
  CAPTURE(built.errors, text, layer, words);
  CHECK(std::any_of(built.errors.begin(), built.errors.end(), [&](const std::string& message) {
    const std::string file = "net.cfg:";
    if (!message.starts_with(file)) return false;
    const int line = std::stoi(message.substr(file.size()));
    return line >= begin && line <= begin + length && mentions(message, {"layer '" + layer + "'"}) &&
           mentions(message, words);
  }));
}

std::vector<int> gpus_of(const Built& built, const std::string& layer) {
  const Node* node = built.graph.find(layer);
  REQUIRE(node != nullptr);
  return numbers_of(node->gpus);
}

using List = std::vector<int>;

Built good(const NetTexts& texts, int devices = 0) {
  Built built = build(texts, devices);
  CAPTURE(built.errors, texts.definition);
  REQUIRE(built.errors.empty());
  return built;
}

}  // namespace

TEST_CASE("a layer without gpu= has the devices of its first input that is not data") {
  const Built built = good(placed_net({{"conv1", "2,0"}, {"conv2b", "1,3"}, {"fc2", "1"}}));
  CHECK(gpus_of(built, "conv1") == List{2, 0});
  CHECK(gpus_of(built, "conv1_neuron") == List{2, 0});
  CHECK(gpus_of(built, "pool1") == List{2, 0});
  CHECK(gpus_of(built, "conv2a") == List{2, 0});
  CHECK(gpus_of(built, "conv2b") == List{1, 3});
  CHECK(gpus_of(built, "conv2b_neuron") == List{1, 3});
  CHECK(gpus_of(built, "fc1") == List{2, 0});
  CHECK(gpus_of(built, "fc1_dropout") == List{2, 0});
  CHECK(gpus_of(built, "fc1_neuron") == List{2, 0});
  CHECK(gpus_of(built, "fc2") == List{1});
  CHECK(gpus_of(built, "top") == List{1});
  CHECK(gpus_of(built, "probs") == List{1});
  CHECK(gpus_of(built, "logprob") == List{1});
}

TEST_CASE("without any gpu= all is on the first device") {
  const Built built = good(placed_net({}));
  for (const Node& node : built.graph.nodes) {
    INFO(node.name);
    CHECK(numbers_of(node.gpus) == List{0});
  }
}

TEST_CASE("what reads data alone, without gpu=, is on the first device") {
  NetTexts texts =
      between_data_and_cost(fc("f", "inputs=data outputs=4") + fc("g", "inputs=data,f outputs=4 gpu=1") +
                                fc("h", "inputs=data,g outputs=4"),
                            "h", kClasses);
  const Built built = good(texts);
  CHECK(gpus_of(built, "f") == List{0});
  CHECK(gpus_of(built, "g") == List{1});
  CHECK(gpus_of(built, "h") == List{1});
  // Images and labels go where they are read.
  CHECK(gpus_of(built, "labels") == List{1});
}

TEST_CASE("data without gpu= follows its users") {
  const Built replicas = good(placed_net({{"conv1", "2,0,1"}}));
  CHECK(gpus_of(replicas, "data") == List{2, 0, 1});
  CHECK(gpus_of(replicas, "labels") == List{2, 0, 1});
  // The labels follow the cost's other input.
  const Built hybrid = good(placed_net({{"conv1", "0,1"}, {"fc1", "1"}}));
  CHECK(gpus_of(hybrid, "data") == List{0, 1});
  CHECK(gpus_of(hybrid, "labels") == List{1});
  const Built head = good(placed_net({{"conv1", "1"}, {"fc1", "0,1"}}));
  CHECK(gpus_of(head, "data") == List{1});
  CHECK(gpus_of(head, "labels") == List{0, 1});
  const Built own = good(placed_net({{"data", "1,0"}, {"conv1", "0,1"}}));
  CHECK(gpus_of(own, "data") == List{1, 0});
}

TEST_CASE("placements within the rules") {
  for (const Gpus& gpus : std::vector<Gpus>{{{"conv1", "0,1,2,3"}, {"fc1", "0,1"}, {"fc2", "3"}},
                                            {{"conv1", "0,1,2,3,4,5"}, {"fc1", "0,1,2"}, {"fc2", "3"}},
                                            {{"conv1", "0"}, {"fc1", "0,1"}},
                                            {{"conv1", "0"}, {"fc1", "0,1"}, {"fc2", "0,1,2,3"}},
                                            {{"conv1", "0,1"}, {"fc1", "0,1,2,3"}, {"fc2", "2,1"}},
                                            {{"conv1", "0,1,2,3"}, {"fc1", "0"}, {"fc2", "0,1"}}}) {
    good(placed_net(gpus));
    good(placed_net(gpus), 6);
  }
}

TEST_CASE("a device listed twice") {
  const NetTexts texts = placed_net({{"fc1", "1,0,1"}});
  check_said(build(texts), key_line(texts.definition, "fc1"), "fc1", {"gpu=1,0,1", "twice"});
}

TEST_CASE("what is no list of devices") {
  for (const std::string list : {"one", "-1", "0,", "0;1", "3-0", "0-", "0-1024", "1.5", ""}) {
    const NetTexts texts = placed_net({{"pool1", list}});
    INFO("gpu=" << list);
    check_said(build(texts), key_line(texts.definition, "pool1"), "pool1", {"gpu"});
  }
}

TEST_CASE("a range of devices is the list of its numbers") {
  const Built range = build(placed_net({{"conv1", "0-3"}})), list = build(placed_net({{"conv1", "0,1,2,3"}}));
  CHECK(range.errors.empty());
  REQUIRE(list.graph.find("conv1") != nullptr);
  REQUIRE(range.graph.find("conv1") != nullptr);
  CHECK(list.graph.find("conv1")->replicas() == 4);
  CHECK(range.graph.find("conv1")->gpus == list.graph.find("conv1")->gpus);
}

TEST_CASE("parts of a layer") {
  const auto with_parts = [](const std::string& gpus, const std::string& parts) {
    NetTexts texts = placed_net({{"fc1", gpus}});
    texts.definition = with_keys(texts.definition, {{"fc1", "parts=" + parts}});
    return texts;
  };
  const NetTexts three = with_parts("0-7\nparallel=model", "3");
  check_said(build(three), key_line(three.definition, "fc1"), "fc1",
             {"parts=3 does not divide the number of its devices, 8 (gpu=0,1,2,3,4,5,6,7)"});
  const NetTexts many = with_parts("0-7\nparallel=model", "16");
  check_said(build(many), key_line(many.definition, "fc1"), "fc1", {"parts=16", "8"});
  const NetTexts replicas = with_parts("0-7", "2");
  check_said(build(replicas), key_line(replicas.definition, "fc1"), "fc1",
             {"parts=2 divides a layer with parallel=model only"});
  for (const std::string text : {"-1", "x", "1025", "1.5"}) {
    const NetTexts wrong = with_parts("0-7\nparallel=model", text);
    check_said(build(wrong), key_line(wrong.definition, "fc1"), "fc1", {"parts", text});
  }
  NetTexts conv = placed_net({{"conv1", "0-7"}});
  conv.definition = with_keys(conv.definition, {{"conv1", "parts=2"}});
  CHECK(build(conv).warnings.size() == 1);
  // Replicas of a divided layer count as others do.
  NetTexts above = with_parts("0-5\nparallel=model", "2");
  above.definition = with_keys(above.definition, {{"conv1", "gpu=0,1"}});
  check_said_in(build(above), above.definition, "fc1", {"3", "'conv2a' has 2", "replica"});
  CHECK(gpus_of(good(with_parts("0-5\nparallel=model", "2")), "fc1/1") == List{1, 3, 5});
  CHECK(gpus_of(good(with_parts("0-5\nparallel=model", "0")), "fc1/1") == List{1});
  CHECK(gpus_of(good(with_parts("0-5\nparallel=model", "1")), "fc1") == List{0, 1, 2, 3, 4, 5});
}

TEST_CASE("an index beyond --gpu") {
  const NetTexts texts = placed_net({{"conv1", "0,3"}, {"fc2", "1,4"}});
  good(texts);
  good(texts, 5);
  const Built four = build(texts, 4);
  check_said(four, key_line(texts.definition, "fc2"), "fc2", {"gpu", "5", "4"});
  CHECK(four.errors.size() == 1);
  const Built two = build(texts, 2);
  check_said(two, key_line(texts.definition, "conv1"), "conv1", {"gpu", "4", "2"});
  check_said(two, key_line(texts.definition, "fc2"), "fc2", {"gpu", "5", "2"});
  CHECK(two.errors.size() == 2);
}

TEST_CASE("inputs with other replica counts than each other") {
  // fc1's first input has two replicas, its second one.
  const NetTexts texts = placed_net({{"pool1", "0"}, {"conv2a", "0,1"}, {"conv2b", "1"}, {"fc1", "0"}});
  const Built built = build(texts);
  check_said_in(built, texts.definition, "fc1", {"conv2a", "conv2b", "2", "1", "replica"});
}

TEST_CASE("where data is one of two unequal inputs, the gpu= line that helps is named") {
  // The data follows f, its first user.
  const auto texts = [](const std::string& data, const std::string& g) {
    return between_data_and_cost(
        section("images", "data", "dataIdx=0" + data) + fc("f", "inputs=images outputs=4 gpu=1") +
            fc("wide", "inputs=data outputs=4 gpu=0,1") + fc("g", "inputs=wide,images outputs=4" + g) +
            fc("h", "inputs=f,g outputs=4"),
        "h", kClasses);
  };
  const NetTexts narrow = texts("", " gpu=1");
  check_said_in(build(narrow), narrow.definition, "g",
                {"'wide' has 2 and 'images' has 1; gpu=0,1 on 'images' gives it as many"});
  good(texts(" gpu=0,1", " gpu=1"));
  // All users of a layer have equal counts: with two replicas g needs data of its own.
  const NetTexts wide = texts("", "");
  check_said_in(build(wide), wide.definition, "g",
                {"'wide' has 2 and 'images' has 1; a data layer of its own with gpu=0,1 has as many"});
  // Between layers that compute there is nothing to add.
  const NetTexts others = placed_net({{"pool1", "0"}, {"conv2a", "0,1"}, {"conv2b", "1"}, {"fc1", "0"}});
  check_said_in(build(others), others.definition, "fc1", {"'conv2a' has 2 and 'conv2b' has 1"});
  for (const std::string& message : build(others).errors) CHECK(message.find("; ") == std::string::npos);
}

TEST_CASE("users with other replica counts than each other") {
  const NetTexts texts = placed_net({{"conv1", "0,1"}, {"conv2b", "1"}});
  const Built built = build(texts);
  CAPTURE(built.errors);
  REQUIRE_FALSE(built.errors.empty());
  CHECK(std::any_of(built.errors.begin(), built.errors.end(), [](const std::string& message) {
    return mentions(message, {"net.cfg:", "'pool1'", "conv2b", "2", "1", "replica"});
  }));
  // A layer of data too: it is cut in one way only.
  const NetTexts data = between_data_and_cost(fc("f", "inputs=data outputs=4 gpu=0,1") +
                                                  fc("g", "inputs=data outputs=4 gpu=1") +
                                                  section("s", "cost.sum2", "inputs=g"),
                                              "f", kClasses, keys_of("s", "coeff=1"));
  const Built of_data = build(data);
  CAPTURE(of_data.errors);
  CHECK(std::any_of(of_data.errors.begin(), of_data.errors.end(), [](const std::string& message) {
    return mentions(message, {"net.cfg:", "'data'", "2", "1", "replica"});
  }));
}

TEST_CASE("replica counts that do not divide each other") {
  for (const auto& [below, above] : std::vector<std::pair<std::string, std::string>>{
           {"0,1,2", "0,1"}, {"0,1", "0,1,2"}, {"0,1,2,3", "4,5,6"}}) {
    const NetTexts texts = placed_net({{"conv1", below}, {"fc1", above}});
    const auto count = [](const std::string& list) {
      return std::to_string(1 + std::count(list.begin(), list.end(), ','));
    };
    check_said_in(build(texts), texts.definition, "fc1", {count(below), count(above), "replica"});
  }
}

TEST_CASE("replica counts between the fewest and the most") {
  // Neighbours divide each other, but 2 does not divide 3, the most; nor is 3 a multiple of 2, the fewest.
  for (const Gpus& gpus : std::vector<Gpus>{{{"conv1", "0,1"}, {"fc1", "0"}, {"fc2", "0,1,2"}},
                                            {{"conv1", "0,1"}, {"fc1", "0,1,2,3,4,5"}, {"fc2", "0,1,2"}}}) {
    const Built built = build(placed_net(gpus));
    CAPTURE(built.errors);
    CHECK(std::any_of(built.errors.begin(), built.errors.end(), [](const std::string& message) {
      return mentions(message, {"net.cfg:", "layer '", "2", "3", "replica"});
    }));
  }
}

TEST_CASE("shared weights on other devices") {
  for (const std::string list : {"1,0", "0", "0,2"}) {
    NetTexts texts = placed_net({{"conv1", "0,1"}});
    texts.definition =
        with_keys(texts.definition, {{"conv2b", "weightSource=conv2a[0]\ngpu=" + list}, {"fc1", "gpu=0,1"}});
    const Built built = build(texts);
    check_said(built, "net.cfg:", "conv2b", {"conv2a", "devices"});
    CHECK(built.errors.size() >= 1);
  }
  NetTexts same = placed_net({{"conv1", "0,1"}, {"conv2a", "1,2"}});
  same.definition = with_keys(same.definition, {{"conv2b", "weightSource=conv2a[0]\ngpu=1,2"}});
  good(same);
}

TEST_CASE("updatePeriod divides the passes of a minibatch or is a multiple of them") {
  const Gpus gpus = {{"conv1", "0,1,2,3"}, {"fc1", "0,1"}, {"fc2", "3"}};  // four passes
  for (const int period : {0, 1, 2, 4, 8, 12}) {
    INFO(period);
    good(placed_net(gpus, {{"fc2", period}}));
    // Below the pass period of a layer it means that.
    good(placed_net(gpus, {{"fc1", period}, {"conv1", period}}));
  }
  for (const int period : {3, 5, 6, 7, 9}) {
    for (const std::string layer : {"conv1", "fc1", "fc2", "top"}) {
      INFO(layer);
      // conv1 is updated every four passes at least.
      if (layer == "conv1" && period < 4) continue;
      const NetTexts texts = placed_net(gpus, {{layer, period}});
      check_said(build(texts), key_line(texts.parameters, layer, "params.cfg"), layer,
                 {"updatePeriod", std::to_string(period), "4"});
    }
  }
}

TEST_CASE("updatePeriod is a multiple of the layer's own passes") {
  // Six passes; fc1 runs in every second one.
  const Gpus gpus = {{"conv1", "0,1,2,3,4,5"}, {"fc1", "0,1"}, {"fc2", "3"}};
  for (const int period : {0, 1, 2, 6, 12}) good(placed_net(gpus, {{"fc1", period}}));
  const NetTexts texts = placed_net(gpus, {{"fc1", 3}});
  check_said(build(texts), key_line(texts.parameters, "fc1", "params.cfg"), "fc1",
             {"updatePeriod", "3", "2"});
  good(placed_net(gpus, {{"fc2", 3}}));
}

TEST_CASE("on one device any updatePeriod is a number of minibatches") {
  for (const int period : {0, 1, 2, 3, 7}) good(placed_net({}, {{"conv1", period}, {"fc2", period}}));
}

TEST_CASE("with gpu= lines that are wrong, --parallel data counts minibatches and says so") {
  GraphOptions options;
  options.data_parallel = true;
  options.devices = 2;
  // Three replicas cannot read from two.
  const NetTexts texts = placed_net({{"conv1", "0,1"}, {"fc1", "0,1,2"}, {"fc2", "0"}}, {{"fc2", 2}});
  const Built built = build_net(texts, ShapeOnlyProvider(kImage, kClasses), options);
  CHECK(built.errors.empty());
  REQUIRE(built.warnings.size() == 1);
  CHECK(built.warnings[0].find("layer 'fc2': its updatePeriod counts minibatches, because the gpu= lines") !=
        std::string::npos);
  CHECK(built.graph.find("fc2")->update_period == 2);
}

TEST_CASE("data parallelism warns of updatePeriod only where it changes the learning") {
  GraphOptions options;
  options.data_parallel = true;
  options.devices = 2;
  const auto build_parallel = [&](const NetTexts& texts) {
    return build_net(texts, ShapeOnlyProvider(kImage, kClasses), options);
  };
  const Gpus gpus = {{"conv1", "0,1,2,3"}, {"fc1", "0,1"}, {"fc2", "3"}};  // four passes
  for (const auto& [period, minibatches] : std::map<int, int>{{0, 1}, {4, 1}, {8, 2}, {12, 3}}) {
    INFO(period);
    const Built built = build_parallel(placed_net(gpus, {{"fc2", period}, {"conv1", period}}));
    CHECK(built.errors.empty());
    CHECK(built.warnings.empty());
    for (const std::string layer : {"fc2", "conv1"})
      CHECK(built.graph.find(layer)->update_period == minibatches);
  }
  for (const auto& [period, updates] : std::map<int, std::string>{{1, "4"}, {2, "2"}}) {
    INFO(period);
    // conv1 has four replicas: with any period up to 4 it is updated once in four passes.
    const NetTexts texts = placed_net(gpus, {{"fc2", period}, {"conv1", period}});
    const Built built = build_parallel(texts);
    CHECK(built.errors.empty());
    REQUIRE(built.warnings.size() == 1);
    CHECK(built.warnings[0].find(key_line(texts.parameters, "fc2", "params.cfg")) == 0);
    CHECK(mentions(built.warnings[0], {"'fc2'", "updatePeriod=" + std::to_string(period),
                                       updates + " updates", "--parallel data", "one update"}));
  }
  const NetTexts wrong = placed_net(gpus, {{"fc2", 6}});
  check_said(build_parallel(wrong), key_line(wrong.parameters, "fc2", "params.cfg"), "fc2",
             {"updatePeriod=6", "4 passes"});
  // Without gpu= lines, and where these could not be run, it counts minibatches.
  CHECK(build_parallel(placed_net({}, {{"fc2", 3}})).graph.find("fc2")->update_period == 3);
  const Built broken = build_parallel(placed_net({{"conv1", "0,1,2"}, {"fc1", "0,1"}}, {{"fc2", 3}}));
  CHECK(broken.errors.empty());
  CHECK(broken.graph.find("fc2")->update_period == 3);
}

TEST_CASE("parallel=model is for fc layers") {
  const auto with = [](const std::string& layer, const std::string& keys) {
    NetTexts texts = net();
    texts.definition = with_keys(texts.definition, {{layer, keys}});
    return texts;
  };
  good(with("fc1", "parallel=model\ngpu=0,1,2"));
  good(with("fc1", "parallel=model"));
  const NetTexts wrong_value = with("fc1", "parallel=modle\ngpu=0,1");
  check_said(build(wrong_value), key_line(wrong_value.definition, "fc1"), "fc1",
             {"parallel", "modle", "model"});
  const NetTexts conv_layer = with("conv1", "parallel=model\ngpu=0,1");
  check_said(build(conv_layer), key_line(conv_layer.definition, "conv1"), "conv1", {"parallel=model", "fc"});
  const NetTexts twice = with("fc1", "gpu=1,1\nparallel=model");
  check_said(build(twice), key_line(twice.definition, "fc1"), "fc1", {"gpu=1,1", "twice"});
  const NetTexts beyond = with("fc1", "gpu=0,2\nparallel=model");
  check_said(build(beyond, 2), key_line(beyond.definition, "fc1"), "fc1", {"gpu", "3", "2"});
}

TEST_CASE("a model-parallel layer counts as one replica") {
  NetTexts texts = placed_net({{"conv1", "0,1"}});
  texts.definition = with_keys(texts.definition, {{"fc1", "parallel=model\ngpu=0,1,2"}});
  const Built built = good(texts);
  // Passes: 2. So a period of 3 is refused for any layer.
  texts.parameters = with_keys(texts.parameters, {{"fc2", "updatePeriod=3"}});
  check_said(build(texts), key_line(texts.parameters, "fc2", "params.cfg"), "fc2",
             {"updatePeriod", "3", "2"});
  // A layer that needs everything runs on the first device of the list.
  CHECK(gpus_of(built, "top") == List{0});
}

TEST_CASE("all broken gpu= lines are reported in one run") {
  const NetTexts texts = placed_net({{"conv2a", "0,0"}, {"conv2b", "x"}});
  const Built built = build(texts, 2);
  check_said(built, key_line(texts.definition, "conv2a"), "conv2a", {"twice"});
  check_said(built, key_line(texts.definition, "conv2b"), "conv2b", {"'x'"});
}
