// Files that tests of a checkpoint write: features, probabilities, errors by class.
#include <fmt/format.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <future>
#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/cli/small_net.h"
#include "tests/larger.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

/// A .npy file's shape, as written, and its numbers.
template <class T>
struct Array {
  std::string shape;
  std::vector<T> values;
};

template <class T>
Array<T> read_array(const std::string& path) {
  const std::string bytes = read_file(path);
  INFO(path);
  REQUIRE(bytes.size() >= 64);
  const std::size_t at =
      10 + static_cast<unsigned char>(bytes[8]) + 256U * static_cast<unsigned char>(bytes[9]);
  const std::string header = bytes.substr(0, at);
  REQUIRE(header.find(std::is_same_v<T, float> ? "'<f4'" : "'<i4'") != std::string::npos);
  const std::size_t open = header.find('('), close = header.find(')');
  Array<T> array{header.substr(open, close + 1 - open), {}};
  array.values.resize((bytes.size() - at) / sizeof(T));
  std::memcpy(array.values.data(), bytes.data() + at, array.values.size() * sizeof(T));
  return array;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = test::larger(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return largest;
}

/// Runs well; what it printed.
std::string done(const Args& args) {
  const Outcome run = run_program(args);
  INFO(run.out << run.err);
  REQUIRE(run.code == 0);
  return run.out;
}

Outcome refused(const Args& args) {
  Outcome run = run_program(args);
  INFO(run.out << run.err);
  CHECK(run.code == 2);
  return run;
}

std::vector<std::int32_t> labels_of_test() {
  std::vector<std::int32_t> labels;
  for (int i = 0; i < 20; ++i) labels.push_back(i * 7 % 10);
  return labels;
}

}  // namespace

TEST_CASE("features, probabilities and errors by class, however the net is placed") {
  const Workshop shop;
  shop.write_data();
  done(shop.mnist() + Args{"--save-file", shop / "run", "--epochs", "2", "--test-freq", "1"});
  const Args test = {"--load-file", shop / "run"};

  // conv1 is 2x6x6 after its relu, fc10 what the softmax reads.
  done(test + Args{"--write-features", "conv1", "--feature-path", shop / "f/conv1"});
  const Array<float> conv = read_array<float>(shop / "f/conv1/data_batch_2.npy");
  CHECK(conv.shape == "(20, 2, 6, 6)");
  CHECK(*std::min_element(conv.values.begin(), conv.values.end()) == 0);
  CHECK(*std::max_element(conv.values.begin(), conv.values.end()) > 0);
  const Array<std::int32_t> labels = read_array<std::int32_t>(shop / "f/conv1/labels_2.npy");
  CHECK(labels.shape == "(20,)");
  CHECK(labels.values == labels_of_test());
  CHECK(std::distance(fs::directory_iterator(shop / "f/conv1"), {}) == 2);

  // Both at once, with the confusion matrix.
  const std::string out = done(test + Args{"--write-features", "fc10", "--feature-path", shop / "f",
                                           "--test-out", shop / "p", "--confusion", shop / "p/m.csv"});
  const Array<float> probabilities = read_array<float>(shop / "p/probabilities_2.npy");
  const Array<float> scores = read_array<float>(shop / "f/data_batch_2.npy");
  CHECK(probabilities.shape == "(20, 10)");
  CHECK(scores.shape == "(20, 10)");
  CHECK(read_array<std::int32_t>(shop / "p/labels_2.npy").values == labels_of_test());
  double cost = 0;
  std::vector<std::vector<int>> confusion(10, std::vector<int>(10));
  for (std::size_t i = 0; i < 20; ++i) {
    const auto row = probabilities.values.begin() + static_cast<std::ptrdiff_t>(i) * 10;
    const auto label = static_cast<std::size_t>(labels.values[i]);
    double sum = 0, softmax = 0;
    for (std::size_t c = 0; c < 10; ++c) {
      sum += static_cast<double>(row[static_cast<std::ptrdiff_t>(c)]);
      softmax += std::exp(static_cast<double>(scores.values[i * 10 + c]));
    }
    CHECK(sum == Approx(1).margin(1e-5));
    CHECK(std::exp(static_cast<double>(scores.values[i * 10 + label])) / softmax ==
          Approx(row[static_cast<std::ptrdiff_t>(label)]).margin(1e-5));
    cost -= std::log(static_cast<double>(row[static_cast<std::ptrdiff_t>(label)])) / 20;
    ++confusion[label][static_cast<std::size_t>(std::max_element(row, row + 10) - row)];
  }
  const std::size_t printed = out.rfind("logprob:  ");
  REQUIRE(printed != std::string::npos);
  CHECK(std::stod(out.substr(printed + 10)) == Approx(cost).margin(2e-6));
  std::string csv = "true class,0,1,2,3,4,5,6,7,8,9\r\n";
  for (std::size_t c = 0; c < 10; ++c) {
    csv += std::to_string(c);
    for (const int count : confusion[c]) csv += "," + std::to_string(count);
    csv += "\r\n";
  }
  CHECK(read_file(shop / "p/m.csv") == csv);
  const std::size_t table = out.find("Errors by class ('logprob', worst first):\n");
  REQUIRE(table != std::string::npos);
  CHECK(std::count(out.begin() + static_cast<std::ptrdiff_t>(table), out.end(), '\n') == 14);

  // The same from minibatches of another size, and from several devices.
  for (const Args& more :
       {Args{"--mini", "7"}, Args{"--parallel", "data", "--gpu", "0,1,2", "--mini", "11"}}) {
    done(test + more +
         Args{"--write-features", "conv1", "--feature-path", shop / "g", "--test-out", shop / "g"});
    CHECK(largest_difference(read_array<float>(shop / "g/data_batch_2.npy").values, conv.values) < 1e-4);
    CHECK(largest_difference(read_array<float>(shop / "g/probabilities_2.npy").values, probabilities.values) <
          1e-5);
    CHECK(read_array<std::int32_t>(shop / "g/labels_2.npy").values == labels_of_test());
  }
}

TEST_CASE("features and probabilities of a multiview test are means over the views") {
  const Workshop shop;
  shop.write_data();
  done(shop.mnist() +
       Args{"--save-file", shop / "run", "--epochs", "2", "--test-freq", "1", "--inner-size", "6"});
  const Args test = {"--load-file",    shop / "run", "--write-features", "fc10",
                     "--feature-path", shop / "f",   "--test-out",       shop / "f"};
  done(test);
  const Array<float> centre = read_array<float>(shop / "f/probabilities_2.npy");
  const std::string out = done(test + Args{"--multiview-test", "1"});
  const Array<float> views = read_array<float>(shop / "f/probabilities_2.npy");
  CHECK(views.shape == "(20, 10)");
  CHECK(read_array<float>(shop / "f/data_batch_2.npy").shape == "(20, 10)");
  CHECK(read_array<std::int32_t>(shop / "f/labels_2.npy").values == labels_of_test());
  CHECK(largest_difference(views.values, centre.values) > 1e-6);
  double cost = 0;
  for (std::size_t i = 0; i < 20; ++i)
    cost -=
        std::log(static_cast<double>(views.values[i * 10 + static_cast<std::size_t>(labels_of_test()[i])])) /
        20;
  CHECK(std::stod(out.substr(out.rfind("logprob:  ") + 10)) == Approx(cost).margin(2e-6));
  const std::vector<float> features = read_array<float>(shop / "f/data_batch_2.npy").values;
  done(test + Args{"--multiview-test", "1", "--mini", "9"});
  CHECK(largest_difference(read_array<float>(shop / "f/data_batch_2.npy").values, features) < 1e-4);
}

TEST_CASE("a multiview test of several labels sees the mean probabilities of the views") {
  const Workshop shop;
  std::filesystem::create_directories(shop / "arrays");
  constexpr int kImages = 20, kLabels = 3;
  std::string pixels, labels;
  std::vector<float> targets;
  for (int i = 0; i < kImages; ++i) {
    for (int p = 0; p < 64; ++p) pixels += static_cast<char>((p * (i % 5 + 3) + i * 31) % 256);
    labels += static_cast<char>(i % 2);
    for (int c = 0; c < kLabels; ++c) targets.push_back((i * 7 + c * 3) % 5 < 2 ? 0.25F : 1.0F);
  }
  const std::string count = std::to_string(kImages);
  write_file(shop / "arrays/images.npy", npy_file("|u1", count + ", 1, 8, 8", pixels));
  write_file(shop / "arrays/labels.npy", npy_file("|u1", count + ",", labels));
  write_file(shop / "arrays/target.npy",
             npy_file("<f4", count + ", " + std::to_string(kLabels),
                      {reinterpret_cast<const char*>(targets.data()), targets.size() * sizeof(float)}));
  shop.write(
      "[data]\ntype=data\ndataIdx=0\n[target]\ntype=data\ndataIdx=2\n"
      "[seen]\ntype=fc\ninputs=data\noutputs=3\ninitW=0.01\nneuron=logistic\n"
      "[cost]\ntype=cost.bce\ninputs=target,seen\n",
      "[seen]\nepsW=0.0001\nepsB=0.0001\nmomW=0\nmomB=0\n[cost]\ncoeff=1\n");
  const Args training = {"--layer-def",     shop.definition_path(),
                         "--layer-params",  shop.parameters_path(),
                         "--data-provider", "npy",
                         "--data-path",     shop / "arrays",
                         "--train-range",   "1",
                         "--test-range",    "1",
                         "--inner-size",    "6",
                         "--epochs",        "1",
                         "--save-file",     shop / "run"};
  done(training);
  done(Args{"plan"} + training + Args{"--multiview-test", "1"});  // verifies the plan of the test
  const auto cost_of = [](const std::string& out) { return std::stod(out.substr(out.rfind("cost:  ") + 7)); };
  const Args test = {"--load-file",      shop / "run", "--test-only",    "1",
                     "--write-features", "seen",       "--feature-path", shop / "f"};
  const double centre = cost_of(done(test));
  for (const Args& more : {Args{}, Args{"--mini", "9"}, Args{"--gpu", "0,1", "--parallel", "data"}}) {
    const double views = cost_of(done(test + Args{"--multiview-test", "1"} + more));
    const std::vector<float> seen = read_array<float>(shop / "f/data_batch_1.npy").values;
    REQUIRE(seen.size() == targets.size());
    double expected = 0;
    for (std::size_t i = 0; i < seen.size(); ++i) {
      const double t = static_cast<double>(targets[i]), p = static_cast<double>(seen[i]);
      expected -= (t * std::log(p) + (1 - t) * std::log(1 - p)) / kImages;
    }
    CHECK(views == Approx(expected).margin(3e-6));
    CHECK(std::abs(views - centre) > 1e-3);
  }
}

TEST_CASE("options of test outputs that do not fit are refused") {
  const Workshop shop;
  shop.write_data();
  done(shop.mnist() + Args{"--save-file", shop / "run", "--epochs", "1", "--test-freq", "1"});
  const Args test = {"--load-file", shop / "run"};
  const auto says = [&](const Args& more, const std::string& text) {
    const Outcome run = refused(test + more);
    INFO(run.err);
    CHECK(run.err.find(text) != std::string::npos);
  };
  says({"--write-features", "conv2", "--feature-path", shop / "f"},
       "the net has no layer 'conv2'; did you mean 'conv1'?");
  says({"--write-features", "labels", "--feature-path", shop / "f"}, "it has no features");
  says({"--write-features", "conv1"}, "--write-features LAYER and --feature-path FOLDER need each other");
  says({"--feature-path", shop / "f"}, "--write-features LAYER and --feature-path FOLDER need each other");
  says({"--logreg-name", "logprob"}, "--logreg-name is for --test-out, --confusion and --test-only");
  says({"--test-out", shop / "f", "--logreg-name", "logprop"}, "did you mean 'logprob'?");
  says({"--test-out", shop.definition_path()}, "is not a folder; probabilities are to be written to");
  says({"--confusion", shop.path()}, "is a folder, not a file");
  CHECK_FALSE(fs::exists(shop / "f"));
  const Outcome fresh = refused(shop.mnist() + Args{"--save-file", shop / "new", "--test-out", shop / "f"});
  CHECK(fresh.err.find("--test-out tests a trained net: --load-file must name its checkpoint") !=
        std::string::npos);
}

TEST_CASE("results go into pipes and devices, which stay what they are") {
  const Workshop shop;
  shop.write_data();
  done(shop.mnist() + Args{"--save-file", shop / "run", "--epochs", "1", "--test-freq", "1"});
  const Args test = {"--load-file", shop / "run"};
  done(test + Args{"--confusion", shop / "m.csv"});
  const std::string pipe = shop / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  fs::create_symlink("/dev/null", shop / "null");
  fs::create_symlink("linked.csv", shop / "link");
  const auto read = [&] { return std::async(std::launch::async, [&] { return read_file(pipe); }); };
  auto reader = read();
  done(test + Args{"--confusion", pipe});
  CHECK(reader.get() == read_file(shop / "m.csv"));
  done(test + Args{"--confusion", shop / "null"});
  done(test + Args{"--confusion", shop / "link"});
  CHECK(read_file(shop / "linked.csv") == read_file(shop / "m.csv"));

  done({"show", shop / "run", "--save-preds", shop / "p.csv"});
  reader = read();
  done({"show", shop / "run", "--save-preds", pipe, "--html", shop / "null"});
  CHECK(reader.get() == read_file(shop / "p.csv"));
  done({"show", shop / "run", "--show-cost", "logprob", "--out", "/dev/null"});
  fs::create_directory(shop / "out");
  fs::create_symlink("/dev/null", shop / "out/probabilities_2.npy");
  done(test + Args{"--test-out", shop / "out"});
  CHECK(fs::is_fifo(pipe));
  // Nobody reads it: the program waits, and can be ended.
  Program waits(test + Args{"--confusion", pipe});
  REQUIRE(waits.printed("logprob:  ", 1));
  waits.send(SIGTERM);
  const Outcome ended = waits.finish();
  CHECK(ended.code == 1);
  CHECK(ended.err.find("nobody reads") == std::string::npos);  // it says so after a minute
  for (const char* link : {"null", "link", "out/probabilities_2.npy"}) CHECK(fs::is_symlink(shop / link));
  CHECK(fs::is_character_file("/dev/null"));
}

TEST_CASE("a net that does not classify has no errors by class") {
  const Workshop shop;
  shop.write_data();
  const std::string definition =
      replaced(kDefinition, "type=cost.logreg\ninputs=labels,probs", "type=cost.sum2\ninputs=probs");
  shop.write(replaced(definition, "[labels]\ntype=data\ndataIdx=1\n", ""),
             replaced(kParameters, "topk=2\n", ""));
  const Args run = shop.mnist() + Args{"--save-file", shop / "run", "--epochs", "1", "--test-freq", "1"};
  const Outcome trained = run_program(run);
  INFO(trained.err);
  REQUIRE(trained.code == 0);
  const Args test = {"--load-file", shop / "run", "--test-only", "1"};
  CHECK(done(test).find("Errors by class") == std::string::npos);
  const nlohmann::json results = nlohmann::json::parse(done(test + Args{"--json", "1"}));
  CHECK(results["costs"]["logprob"]["sum of squares"].is_number());
  CHECK_FALSE(results.contains("errors_by_class"));
  CHECK(refused(test + Args{"--confusion", shop / "m.csv"}).err.find("the net has no cost.logreg layer") !=
        std::string::npos);
  done(test + Args{"--write-features", "fc10", "--feature-path", shop / "f"});
  CHECK(read_array<std::int32_t>(shop / "f/labels_2.npy").values == labels_of_test());
}

TEST_CASE("the results of a test as JSON are alone on stdout, and those of the lines") {
  using nlohmann::json;
  const Workshop shop;
  shop.write_data();
  done(shop.mnist() + Args{"--save-file", shop / "run", "--epochs", "1", "--test-freq", "1"});
  const Args test = {"--load-file", shop / "run", "--test-only", "1", "--confusion", shop / "m.csv"};
  const std::string lines = done(test);
  const std::string confusion = read_file(shop / "m.csv");
  fs::remove(shop / "m.csv");
  const json results = json::parse(done(test + Args{"--json", "1"}));
  CHECK(read_file(shop / "m.csv") == confusion);
  CHECK(results["checkpoint"] == shop / "run/1.1.safetensors");
  CHECK(results["images"] == 20);
  const json& cost = results["costs"]["logprob"];
  CHECK(cost.size() == 3);
  CHECK_THAT(lines, Catch::Contains(
                        fmt::format("logprob:  {:.6f}, {:.6f}, {:.6f}\n", cost["-log p"].get<double>(),
                                    cost["top-1 error"].get<double>(), cost["top-2 error"].get<double>())));
  const json& errors = results["errors_by_class"]["logprob"];
  const json& classes = errors["classes"];
  REQUIRE(classes.size() == 10);
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const json& c = classes[i];
    CHECK(c["index"] == i);
    CHECK(c["images"] == 2);
    CHECK_THAT(lines,
               Catch::Contains(fmt::format("  {}  {:.4f}  {:>6} of {:>6}", c["class"].get<std::string>(),
                                           c["error"].get<double>(), c["wrong"].get<int>(), 2)));
    CHECK(c["recall"].get<double>() == Approx(1 - c["error"].get<double>()));
    const double sum = c["precision"].get<double>() + c["recall"].get<double>();
    CHECK(c["f1"].get<double>() * sum ==
          Approx(2 * c["precision"].get<double>() * c["recall"].get<double>()));
  }
  const json& macro = errors["macro_averages"];
  CHECK(macro["classes"] == 10);
  CHECK_THAT(lines, Catch::Contains(
                        fmt::format("Means over 10 classes: precision {:.4f}, recall {:.4f}, F1 {:.4f}\n",
                                    macro["precision"].get<double>(), macro["recall"].get<double>(),
                                    macro["f1"].get<double>())));
  // Notes go to stderr, and --json 0 changes nothing.
  fs::remove(shop.parameters_path());
  const Outcome noted = run_program(test + Args{"--json"});
  CHECK(json::parse(noted.out) == results);
  CHECK_THAT(noted.err,
             Catch::Contains("The learning parameters are those of " + (shop / "run/1.1.safetensors")));
  CHECK(done(test + Args{"--json", "0"}).find("Averages") != std::string::npos);

  const std::string message =
      "--json prints the results of --test-only 1 or --find-rate 1; other runs of train print lines";
  for (const Args& args : {Args{"--load-file", shop / "run", "--epochs", "2", "--json", "1"},
                           Args{"--load-file", shop / "run", "--confusion", shop / "m.csv", "--json", "1"},
                           shop.mnist() + Args{"--save-file", shop / "new", "--json", "1"}})
    CHECK_THAT(refused(args).err, Catch::Contains(message));
  CHECK_FALSE(fs::exists(shop / "new"));
}

TEST_CASE("errors by class of several costs are given for each, or for the one that is named") {
  const Workshop shop;
  shop.write_data();
  shop.write(
      kDefinition + "[half]\ntype=softmax\ninputs=pool1\n[aux]\ntype=cost.logreg\ninputs=labels,half\n",
      kParameters + "[aux]\ncoeff=0\n");
  done(shop.mnist() + Args{"--save-file", shop / "run", "--epochs", "1", "--test-freq", "1"});
  const Args test = {"--load-file", shop / "run", "--test-only", "1"};
  const std::string both = done(test), named = done(test + Args{"--logreg-name", "aux"});
  const auto begin = [](const std::string& cost) {
    return "Errors by class ('" + cost + "', worst first):\n";
  };
  CHECK(both.find(begin("logprob")) < both.find(begin("aux")));
  CHECK_THAT(both, Catch::EndsWith(named.substr(named.find(begin("aux")))));
  CHECK_THAT(named, !Catch::Contains(begin("logprob")));
  const nlohmann::json all = nlohmann::json::parse(done(test + Args{"--json", "1"}));
  CHECK(all["costs"].size() == 2);
  CHECK(all["errors_by_class"].size() == 2);
  for (const char* const cost : {"logprob", "aux"}) {
    const Args of_one = {"--logreg-name", cost, "--json", "1"};
    const nlohmann::json one = nlohmann::json::parse(done(test + of_one))["errors_by_class"];
    CHECK(one.size() == 1);
    CHECK(one[cost] == all["errors_by_class"][cost]);
  }
  CHECK(
      refused(test + Args{"--test-out", shop / "p"}).err.find("--logreg-name must be one of logprob, aux") !=
      std::string::npos);
  done(test + Args{"--logreg-name", "aux", "--test-out", shop / "p"});
  CHECK(read_array<float>(shop / "p/probabilities_2.npy").shape == "(20, 18)");
}

}  // namespace convnet
