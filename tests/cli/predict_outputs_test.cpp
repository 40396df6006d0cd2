// convnet predict for nets that do not classify, and the outputs of any layer.
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/catch.h"
#include "tests/cli/small_net.h"
#include "tests/larger.h"
#include "tests/providers/image_sets.h"

namespace convnet {
namespace {

using nlohmann::json;

constexpr int kImages = 6;  // as files; the first ones of the test batch

/// The layers of kDefinition up to pool1, and above them three numbers that a regression compares with
/// targets.
const std::string kRegression =
    replaced(kDefinition.substr(0, kDefinition.find("[fc10]")), "[labels]\ntype=data\ndataIdx=1\n", "") +
    "[fc3]\ntype=fc\ninputs=pool1\noutputs=3\n"
    "[target]\ntype=data\ndataIdx=2\n"
    "[difference]\ntype=eltsum\ninputs=fc3,target\ncoeffs=1,-1\n"
    "[small]\ntype=cost.sum2\ninputs=fc3\n"
    "[l2]\ntype=cost.sum2\ninputs=difference\n";
const std::string kRegressionParameters =
    "[DEFAULT]\nepsW=0.0000001\nepsB=0.0001\nmomW=0.9\nmomB=0.9\n"
    "[conv1]\n[fc3]\n[small]\ncoeff=0.001\n[l2]\ncoeff=1\n";

/// A run of a regression on the arrays of write_arrays(), and the first images of its test as PNG files.
class Regression {
 public:
  explicit Regression(const Args& options = {}) {
    shop.write(kRegression, kRegressionParameters);
    shop.write_arrays();
    std::string targets;
    for (int i = 0; i < 2100 * 3; ++i) {
      const auto value = static_cast<float>(i % 7) / 7;
      targets.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    write_file(shop.data_path() + "/target.npy", npy_file("<f4", "2100, 3", targets));
    run_well(shop.net() +
             Args{"--data-provider", "npy", "--data-path", shop.data_path(), "--save-file", shop / "run",
                  "--epochs", "1", "--test-freq", "2", "--mini", "100"} +
             options);
    for (int i = 0; i < kImages; ++i) {
      std::vector<std::uint8_t> pixels;
      for (int p = 0; p < 64; ++p)
        pixels.push_back(static_cast<std::uint8_t>((p * ((2000 + i) * 7 % 10 + 3) + (2000 + i) * 31) % 256));
      write_file(file(i), test_images::png(8, 8, 1, pixels));
    }
  }
  std::string run() const { return shop / "run"; }
  std::string file(int i) const { return shop / ("image" + std::to_string(i) + ".png"); }
  /// `convnet predict` of all files.
  Args predict(const Args& options) const {
    Args args = {"predict", run()};
    for (int i = 0; i < kImages; ++i) args.push_back(file(i));
    return args + options;
  }
  json predicted(const Args& options) const {
    return json::parse(run_well(predict(options + Args{"--json", "1"})).out)["files"];
  }
  /// A layer's outputs of the test's first images, as --write-features writes them.
  std::vector<std::vector<float>> features(const std::string& layer, const Args& options = {}) const {
    std::filesystem::remove_all(shop / "features");
    run_well(Args{"--load-file", run(), "--write-features", layer, "--feature-path", shop / "features"} +
             options);
    const std::string bytes = read_file(shop / "features/data_batch_3.npy");
    const std::size_t begin = bytes.find('\n') + 1, size = (bytes.size() - begin) / sizeof(float) / 100;
    std::vector<std::vector<float>> all(kImages, std::vector<float>(size));
    for (std::size_t i = 0; i < kImages; ++i)
      std::memcpy(all[i].data(), bytes.data() + begin + i * size * sizeof(float), size * sizeof(float));
    return all;
  }

  Workshop shop;
};

double distance(const std::vector<float>& a, const json& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = test::larger(worst, std::abs(static_cast<double>(a[i]) - b[i].get<double>()));
  return worst;
}

std::vector<std::string> rows_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("predict gives what a regression compares with its targets") {
  const Regression net;
  const auto features = net.features("fc3");
  const json files = net.predicted({});
  REQUIRE(files.size() == kImages);
  for (std::size_t i = 0; i < kImages; ++i) {
    CHECK(files[i]["file"] == net.file(static_cast<int>(i)));
    CHECK(files[i]["outputs"].size() == 1);
    CHECK(distance(features[i], files[i]["outputs"]["fc3"]) < 1e-4);
  }
  // One by one, and a minibatch that is not full.
  CHECK(distance(features[5], net.predicted({"--mini", "4"})[5]["outputs"]["fc3"]) < 1e-4);
  check_refused(net.predict({"--top", "3"}),
                "--top is for the best classes, but what is printed are the numbers of fc3");
  check_refused(net.predict({"--softmax", "fc3"}),
                "the net has no softmax layer that a cost.logreg compares with labels");
}

TEST_CASE("predict prints the outputs of any layers, as tests write them") {
  const Regression net;
  // conv1 has its relu inside, and pool1 is fused with nothing.
  const json files = net.predicted({"--output", "pool1,conv1,fc3,data,conv1_neuron"});
  for (const char* layer : {"conv1", "pool1", "fc3", "data"}) {
    INFO(layer);
    const auto features = net.features(layer);
    for (std::size_t i = 0; i < kImages; ++i) CHECK(distance(features[i], files[i]["outputs"][layer]) < 1e-4);
  }
  CHECK(files[0]["outputs"]["conv1"].size() == 2 * 6 * 6);
  CHECK(files[0]["outputs"]["conv1"] == files[0]["outputs"]["conv1_neuron"]);
}

TEST_CASE("predict prints outputs as lines and CSV") {
  const Regression net;
  const json files = net.predicted({"--output", "fc3,pool1"});
  const std::vector<std::string> lines = rows_of(run_well(net.predict({"--output", "fc3,pool1"})).out);
  REQUIRE(lines.size() == kImages);
  CHECK(lines[0].starts_with(net.file(0) + "  fc3 "));
  CHECK_THAT(lines[0], Catch::Contains("  pool1 ") && Catch::EndsWith(" … (18 numbers)"));
  CHECK(count(lines[0], " ") == 2 + 3 + 2 + 8 + 3);

  const std::vector<std::string> csv =
      rows_of(run_well(net.predict({"--output", "fc3,pool1", "--csv", "1"})).out);
  REQUIRE(csv.size() == 1 + kImages);
  CHECK(csv[0].starts_with("file,fc3[0],fc3[1],fc3[2],pool1[0],"));
  CHECK(csv[0].ends_with(",pool1[17]"));
  std::istringstream cells(csv[2]);
  std::vector<std::string> row;
  for (std::string cell; std::getline(cells, cell, ',');) row.push_back(cell);
  REQUIRE(row.size() == 1 + 3 + 18);
  CHECK(row[0] == net.file(1));
  // The very float32 numbers.
  for (std::size_t k = 0; k < 3; ++k)
    CHECK(std::stof(row[1 + k]) == files[1]["outputs"]["fc3"][k].get<float>());
}

TEST_CASE("predict averages the outputs of an image's views") {
  const Regression net({"--inner-size", "6"});
  const Args views = {"--multiview-test", "1"};
  const auto features = net.features("fc3", views);
  const json several = net.predicted(views), single = net.predicted({});
  for (std::size_t i = 0; i < kImages; ++i) CHECK(distance(features[i], several[i]["outputs"]["fc3"]) < 1e-4);
  CHECK(several[0]["outputs"] != single[0]["outputs"]);
}

TEST_CASE("predict refuses outputs that a net does not have") {
  const Regression net;
  const auto refused = [&](const std::string& layers, const std::string& message) {
    check_refused(net.predict({"--output", layers}), message);
  };
  refused("fc4", "the net has no layer 'fc4'; did you mean 'fc3'?");
  refused("fc3,fc3", "--output names 'fc3' twice");
  refused("l2", "layer 'l2' is of type 'cost.sum2': it has no features");
  refused("target",
          "layer 'target' reads matrix 2 of the data set (dataIdx=2), and files of images have none");
  refused("difference", "layer 'target' reads matrix 2");
  check_refused(net.predict({"--output", "fc3", "--softmax", "fc3"}),
                "--output and --softmax exclude each other");
  check_refused(net.predict({"--output", "fc3", "--top", "1"}), "--top is for the best classes");
  write_file(net.shop / "bad.png", "no image");
  const Outcome bad = run_program({"predict", net.run(), net.file(0), net.shop / "bad.png"});
  CHECK(bad.code == 1);
  CHECK_THAT(bad.err, Catch::Contains("1 of 2 inputs could not be read"));
}

TEST_CASE("export and predict take the same layer where none is named") {
  const Regression net;
  CHECK_THAT(run_well({"export", net.run(), net.shop / "net.onnx"}).out, Catch::Contains(" to fc3 (N, 3), "));
}

TEST_CASE("a net of several labels an image gives the names of its classes") {
  const TempFolder folder;
  write_file(folder / "net.cfg",
             "[data]\ntype=data\ndataIdx=0\n[tags]\ntype=data\ndataIdx=2\n"
             "[fc]\ntype=fc\ninputs=data\noutputs=4\nneuron=logistic\n"
             "[bce]\ntype=cost.bce\ninputs=tags,fc\n");
  write_file(folder / "params.cfg", "[fc]\nepsW=0.00001\nepsB=0.001\nmomW=0.9\nmomB=0.9\n[bce]\ncoeff=1\n");
  image_sets::write_folders(folder / "set", image_sets::photographs(40, 4, 20));
  run_well({"--layer-def",     folder / "net.cfg",
            "--layer-params",  folder / "params.cfg",
            "--data-provider", "image",
            "--data-path",     folder / "set",
            "--train-range",   "1",
            "--test-range",    "1",
            "--inner-size",    "16",
            "--image-size",    "20",
            "--mini",          "8",
            "--epochs",        "1",
            "--save-file",     folder / "run"});
  const Args asked = {"predict", folder / "run", folder / "set/c1", "--json", "1"};
  const json classes = json::parse(run_well(asked + Args{"--top", "2"}).out)["files"][0]["classes"];
  const json numbers = json::parse(run_well(asked + Args{"--output", "fc"}).out)["files"][0]["outputs"]["fc"];
  REQUIRE(classes.size() == 2);
  REQUIRE(numbers.size() == 4);
  for (const json& c : classes) {
    CHECK(c["class"] == "c" + std::to_string(c["index"].get<int>()));
    CHECK(c["probability"] == numbers[c["index"].get<std::size_t>()]);
  }
  CHECK(classes[0]["probability"].get<double>() >= classes[1]["probability"].get<double>());
}

}  // namespace convnet
