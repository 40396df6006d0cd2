// Photos whose table gives them tags or numbers, and even draws of classes.
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "convnet/checkpoint/safetensors.h"
#include "tests/catch.h"
#include "tests/cli/small_net.h"
#include "tests/providers/image_sets.h"

namespace convnet {
namespace {

using namespace image_sets;

/// A net for photos of 16 pixels with `outputs` outputs, and a cost, which reads them from [fc] as `rest`
/// says.
std::string net_of(int outputs, const std::string& neuron, const std::string& rest) {
  return "[data]\ntype=data\ndataIdx=0\n"
         "[conv1]\ntype=conv\ninputs=data\nchannels=3\nfilters=4\nfilterSize=5\nstride=2\nneuron=relu\n"
         "initW=0.001\n[fc]\ntype=fc\ninputs=conv1\noutputs=" +
         std::to_string(outputs) + "\n" + neuron + rest;
}

const std::string kTagNet =
    net_of(3, "neuron=logistic\n", "[tags]\ntype=data\ndataIdx=2\n[bce]\ntype=cost.bce\ninputs=tags,fc\n");
const std::string kNumberNet =
    net_of(2, "",
           "[numbers]\ntype=data\ndataIdx=1\n[difference]\ntype=eltsum\ninputs=fc,numbers\ncoeffs=1,-1\n"
           "[squares]\ntype=cost.sum2\ninputs=difference\n");
const std::string kRates =
    "[conv1]\nepsW=0.0001\nepsB=0.0001\nmomW=0.9\nmomB=0.9\n[fc]\nepsW=0.001\nepsB=0.001\nmomW=0.9\nmomB=0."
    "9\n";

class TaggedPhotos {
 public:
  TaggedPhotos() {
    std::filesystem::create_directories(folder / "photos");
    const std::vector<Item> items = photographs(40, 4, 20);
    for (std::size_t i = 0; i < items.size(); ++i) write_file(photo(i), items[i].bytes);
  }

  std::string photo(std::size_t i) const { return folder / "photos/" + std::to_string(i) + ".jpg"; }

  /// Trains with this net and table, whose line for photo i is `row(i)`.
  template <class Row>
  Outcome train(const std::string& net, const std::string& parameters, const std::string& header,
                const Row& row, const Args& more = {}) const {
    write_file(folder / "net.cfg", net);
    write_file(folder / "params.cfg", parameters);
    std::string table = header;
    for (std::size_t i = 0; i < 40; ++i) table += std::to_string(i) + "," + row(i) + "\n";
    write_file(folder / "labels.csv", table);
    std::filesystem::remove_all(folder / "run");
    return run_program(Args{"--layer-def",     folder / "net.cfg",
                            "--layer-params",  folder / "params.cfg",
                            "--data-path",     folder / "photos",
                            "--data-provider", "image",
                            "--image-size",    "20",
                            "--inner-size",    "16",
                            "--mini",          "8",
                            "--epochs",        "2",
                            "--threads",       "1",
                            "--save-file",     folder / "run",
                            "--labels",        folder / "labels.csv"} +
                       more);
  }

  nlohmann::json tested(const Args& more = {}) const {
    return nlohmann::json::parse(
        run_well(Args{"--load-file", folder / "run", "--test-only", "1", "--json", "1"} + more).out);
  }

  /// Returns weights of the run's net after two epochs of one batch.
  std::vector<float> weights() const {
    return read_safetensors(folder / "run/2.1.safetensors").tensors.at("fc.weights.conv1").values;
  }

  /// Exports the run's net, imports it again, and checks that it predicts the same, by the same names.
  void check_imported() const {
    const std::string model = folder / "model.onnx", imported = folder / "imported";
    run_well({"export", folder / "run", model});
    const Outcome import =
        run_well({"import", model, "--layer-def", folder / "imported.cfg", "--layer-params",
                  folder / "imported-params.cfg", "--checkpoint", imported});
    CHECK_THAT(import.out, !Catch::Contains("Added: a softmax") && Catch::Contains(" --labels TABLE"));
    const auto predicted = [&](const std::string& checkpoint) {
      return nlohmann::json::parse(run_well({"predict", checkpoint, photo(0), photo(1), "--json", "1"}).out);
    };
    const nlohmann::json before = predicted(folder / "run").flatten(), after = predicted(imported).flatten();
    INFO(after);
    REQUIRE(after.size() == before.size());
    for (const auto& [key, value] : before.items()) {
      INFO(key);
      if (value.is_number_float())
        CHECK(after.at(key).get<double>() == Approx(value.get<double>()).epsilon(1e-4).margin(1e-6));
      else
        CHECK((after.at(key) == value || key.find("layer") != std::string::npos));
    }
  }

  TempFolder folder;
};

TEST_CASE("photos with tags train, and tests score each tag by its name") {
  const TaggedPhotos photos;
  const auto tags_of = [](std::size_t i) {
    return std::string(i % 4 < 2 ? "warm" : "") + (i % 2 == 0 ? ";sea" : "") + (i % 3 == 0 ? "; old" : "");
  };
  const std::string parameters = kRates + "[bce]\ncoeff=1\n";
  const Outcome run = photos.train(kTagNet, parameters, "photo,tags\n", tags_of);
  INFO(run.out << run.err);
  REQUIRE(run.code == 0);
  CHECK(run.err.find("Note: the table of --labels holds 3 tags") != std::string::npos);
  const nlohmann::json scores = photos.tested()["scores_of_tags"]["bce"];
  CHECK(scores["threshold"] == 0.5);
  std::set<std::string> names;
  for (const auto& tag : scores["tags"]) {
    names.insert(tag["tag"].get<std::string>());
    CHECK(tag["average_precision"].get<double>() > 0);
    CHECK(tag["average_precision"].get<double>() <= 1);
    CHECK(tag["images"].get<int>() > 0);
  }
  for (const std::string& name : names) CHECK((name == "old" || name == "sea" || name == "warm"));
  CHECK(scores["means"]["tags"] == names.size());
  const std::string text =
      run_well({"--load-file", photos.folder / "run", "--test-only", "1", "--tag-threshold", "0"}).out;
  INFO(text);
  CHECK(text.find("Scores of tags ('bce', threshold 0, worst first):\n") != std::string::npos);
  CHECK(text.find("average precision (mAP) ") != std::string::npos);
  run_well({"show", photos.folder / "run", "--html", photos.folder / "page.html"});
  const std::string page = read_file(photos.folder / "page.html");
  CHECK(page.find("Tags (bce)") != std::string::npos);
  for (const std::string& name : names) CHECK(page.find("<td>" + name + "</td>") != std::string::npos);
  CHECK(page.find("(mAP, F1)") != std::string::npos);
  const Outcome predicted = run_well({"predict", photos.folder / "run", photos.photo(0), "--json", "1"});
  const nlohmann::json classes = nlohmann::json::parse(predicted.out)["files"][0]["classes"];
  REQUIRE(classes.size() == 3);
  for (const auto& tag : classes) CHECK(tag["class"] != "0");
  photos.check_imported();
  check_refused({"--load-file", photos.folder / "run", "--tag-threshold", "0.3"},
                "--tag-threshold is for --test-only");

  // A column for each tag gives the same weights.
  const std::vector<float> weights = photos.weights();
  const Outcome columns = photos.train(kTagNet, parameters, "photo,old,sea,warm\n", [](std::size_t i) {
    return std::string(i % 3 == 0 ? "1," : "0,") + (i % 2 == 0 ? "1," : "0,") + (i % 4 < 2 ? "1" : "0");
  });
  INFO(columns.out << columns.err);
  REQUIRE(columns.code == 0);
  CHECK(photos.weights() == weights);

  // Batches of cuda-convnet2 have tags, too.
  const Outcome made =
      run_well({"make-data", "--src", photos.folder / "photos", "--dst", photos.folder / "made", "--labels",
                photos.folder / "labels.csv", "--size", "20", "--threads", "1"});
  CHECK(made.out.find("3 tags") != std::string::npos);
  const Outcome again = run_program({"--layer-def",     photos.folder / "net.cfg",
                                     "--layer-params",  photos.folder / "params.cfg",
                                     "--data-provider", "image",
                                     "--data-path",     photos.folder / "made",
                                     "--inner-size",    "16",
                                     "--mini",          "8",
                                     "--epochs",        "1",
                                     "--test-freq",     "1",
                                     "--threads",       "1",
                                     "--save-file",     photos.folder / "again"});
  INFO(again.out << again.err);
  CHECK(again.code == 0);
}

TEST_CASE("photos with numbers train a regression, and predict prints its numbers") {
  const TaggedPhotos photos;
  const std::string parameters =
      "[DEFAULT]\nepsW=1e-8\nepsB=1e-8\nmomW=0.9\nmomB=0.9\n[conv1]\n[fc]\n[squares]\ncoeff=1\n";
  const auto row = [](std::size_t i) { return std::to_string(0.25 * static_cast<double>(i)) + ",-1"; };
  const Outcome run = photos.train(kNumberNet, parameters, "photo,x,y\n", row);
  INFO(run.out << run.err);
  REQUIRE(run.code == 0);
  CHECK(run.err.find("Note: the table of --labels holds 2 numbers of each photo") != std::string::npos);
  const nlohmann::json tested = photos.tested();
  // The figures are of the same images as the cost, the sum of their squared errors.
  const nlohmann::json scores = tested["scores_of_numbers"]["squares"];
  REQUIRE(scores["numbers"].size() == 2);
  CHECK(scores["numbers"][0]["number"] == "x");
  CHECK(scores["numbers"][0]["r2"].is_number());
  CHECK(scores["numbers"][1]["r2"].is_null());  // all are -1
  double squares = 0;
  for (const auto& number : scores["numbers"]) {
    const double root = number["root_mean_squared_error"];
    CHECK(number["mean_absolute_error"].get<double>() <= root * 1.0001);
    squares += root * root;
  }
  CHECK(squares == Approx(tested["costs"]["squares"]["sum of squares"].get<double>()).epsilon(1e-4));
  CHECK(scores["means"]["root_mean_squared_error"].get<double>() == Approx(std::sqrt(squares / 2)));
  const std::string lines = run_well({"--load-file", photos.folder / "run", "--test-only", "1"}).out;
  CHECK(lines.find("Errors of numbers ('squares'):\n") != std::string::npos);
  run_well({"show", photos.folder / "run", "--html", photos.folder / "page.html"});
  const std::string page = read_file(photos.folder / "page.html");
  CHECK(page.find("Numbers (squares)") != std::string::npos);
  CHECK(page.find("<th>root mean squared error</th>") != std::string::npos);
  const std::string predicted =
      run_well({"predict", photos.folder / "run", photos.photo(0), photos.photo(1), "--csv", "1"}).out;
  INFO(predicted);
  CHECK(predicted.starts_with("file,x,y\n"));
  CHECK(std::count(predicted.begin(), predicted.end(), '\n') == 3);
  check_refused(
      {"make-data", "--src", photos.folder / "photos", "--dst", photos.folder / "made", "--labels",
       photos.folder / "labels.csv"},
      "labels.csv: holds numbers, and cuda-convnet2's batches have classes or tags; training reads the "
      "photos themselves: convnet train " +
          (photos.folder / "photos") + " --labels " + (photos.folder / "labels.csv") +
          " --cache-images FOLDER decodes and scales each only once\n");
  photos.check_imported();
  const Outcome even = photos.train(kNumberNet, parameters, "photo,x,y\n", row, {"--balance", "1"});
  CHECK(even.code == 2);
  CHECK(even.err.find("--balance 1 draws classes evenly, and the table of --labels holds numbers") !=
        std::string::npos);
}

/// The command line of a run with a net that comes with the program.
Args with_ready_net(const TaggedPhotos& photos, const std::string& table, const Args& more = {}) {
  write_file(photos.folder / "labels.csv", table);
  return Args{"train",        photos.folder / "photos",
              "--layer-def",  "small",
              "--labels",     photos.folder / "labels.csv",
              "--image-size", "20",
              "--inner-size", "16",
              "--mini",       "8",
              "--threads",    "1",
              "--save-file",  photos.folder / "ready"} +
         more;
}

/// Returns a table of 40 photos, whose line for photo i is `row(i)`.
template <class Row>
std::string table_of(const std::string& header, const Row& row) {
  std::string table = header;
  for (std::size_t i = 0; i < 40; ++i) table += std::to_string(i) + "," + row(i) + "\n";
  return table;
}

TEST_CASE("a run that is told to read its table in another way says that it has begun with other labels") {
  const TaggedPhotos photos;
  const std::string table = table_of("photo,age\n", [](std::size_t i) { return std::to_string(i % 4); });
  run_well(with_ready_net(photos, table, {"--epochs", "1"}));
  const Outcome again =
      run_program(with_ready_net(photos, table, {"--epochs", "2", "--label-kind", "numbers"}));
  CHECK(again.code == 2);
  CHECK_THAT(again.err,
             Catch::Contains("warning: the data set has numbers, but had classes where the net was trained: "
                             "only a new run, in a folder of its own, can learn them\n") &&
                 !Catch::Contains("warning: class 0 is"));
}

TEST_CASE("a net that comes with the program ends for tags if the photos have tags") {
  const TaggedPhotos photos;
  const std::string table = table_of("photo,tags\n", [](std::size_t i) {
    return std::string(i % 4 == 0 ? "" : i % 4 == 1 ? "sea" : i % 4 == 2 ? "sea;warm" : "old");
  });
  const Outcome run = run_well(with_ready_net(photos, table, {"--epochs", "1"}));
  CHECK_THAT(run.err, Catch::Contains("Note: the data set has tags, so the net ends in a logistic output for "
                                      "each tag and cost.bce, in place of softmax and cost.logreg\n"));
  CHECK_THAT(run.err, !Catch::Contains("warning: layer 'logprob'"));
  const std::string net = read_checkpoint(photos.folder / "ready/1.1.safetensors").definition_text;
  CHECK_THAT(net, Catch::Contains("[targets]\ntype=data\ndataIdx=2\n"));
  CHECK_THAT(net, Catch::Contains("[fc]\ntype=fc\ninputs=avgpool\noutputs=classes\n\n[probs]\ntype=neuron\n"
                                  "neuron=logistic\ninputs=fc\n\n[logprob]\ntype=cost.bce\n"
                                  "inputs=targets,probs\n"));
  const std::vector<float> first =
      read_safetensors(photos.folder / "ready/1.1.safetensors").tensors.at("fc.weights.avgpool").values;
  // The same command goes on, with the same net, and so does one that names only the run.
  const Outcome again = run_well(with_ready_net(photos, table, {"--epochs", "2"}));
  CHECK_THAT(again.err, !Catch::Contains("differs from it"));
  const Outcome loaded = run_well({"--load-file", photos.folder / "ready", "--epochs", "3"});
  CHECK_THAT(loaded.err, !Catch::Contains("differs from it"));
  CHECK_THAT(loaded.err, !Catch::Contains("which has changed"));
  const auto tested = nlohmann::json::parse(
      run_well({"--load-file", photos.folder / "ready", "--test-only", "1", "--json", "1"}).out);
  CHECK(tested["scores_of_tags"]["logprob"]["tags"].size() >= 1);
  const auto predicted = nlohmann::json::parse(
      run_well({"predict", photos.folder / "ready", photos.photo(1), "--json", "1"}).out);
  CHECK(predicted["files"][0]["classes"].size() == 3);
  run_well({"export", photos.folder / "ready", photos.folder / "net.onnx"});
  run_well({"show", photos.folder / "ready", "--html", photos.folder / "page.html"});
  run_well({"show", photos.folder / "ready", "--cam", photos.photo(1), "--cam-class", "sea", "--out",
            photos.folder / "cam.png"});
  CHECK(std::filesystem::exists(photos.folder / "cam.png"));

  // plan writes the changed net, which is the same one.
  const Args data = {"--labels",     photos.folder / "labels.csv",
                     "--image-size", "20",
                     "--inner-size", "16",
                     "--mini",       "8",
                     "--threads",    "1"};
  run_well(
      Args{"plan", photos.folder / "photos", "--layer-def", "small", "--flat", photos.folder / "flat.cfg"} +
      data);
  const Outcome flat =
      run_well(Args{"train", photos.folder / "photos", "--layer-def", photos.folder / "flat.cfg",
                    "--layer-params", "small", "--epochs", "1", "--save-file", photos.folder / "flat"} +
               data);
  CHECK_THAT(flat.err, !Catch::Contains("the net ends in"));

  // make-data keeps the tags, also of photos without any.
  run_well({"make-data", "--src", photos.folder / "photos", "--dst", photos.folder / "made", "--labels",
            photos.folder / "labels.csv", "--size", "20", "--threads", "1"});
  const Outcome scaled =
      run_well({"train", photos.folder / "made", "--layer-def", "small", "--inner-size", "16", "--mini", "8",
                "--threads", "1", "--epochs", "1", "--save-file", photos.folder / "scaled"});
  CHECK_THAT(scaled.err,
             Catch::Contains("Note: the data set has tags, so the net ends in a logistic output"));
  CHECK(nlohmann::json::parse(
            run_well({"--load-file", photos.folder / "scaled", "--test-only", "1", "--json", "1"}).out)
            .contains("scores_of_tags"));
  CHECK(read_safetensors(photos.folder / "flat/1.1.safetensors").tensors.at("fc.weights.avgpool").values ==
        first);

  // A file that is given by its path stays as it is.
  const std::string path = std::string(CONVNET_SOURCE_DIR) + "/configs/small";
  const Outcome by_path =
      run_program(Args{"train", photos.folder / "photos", "--layer-def", path + ".cfg", "--layer-params",
                       path + "-params.cfg", "--epochs", "1", "--save-file", photos.folder / "path"} +
                  data);
  CHECK(by_path.code == 2);
  CHECK_THAT(by_path.err,
             Catch::Contains("has no tag, but the net reads one of each image (dataIdx=1); a net "
                             "for tags reads dataIdx=2"));
}

TEST_CASE("a net that comes with the program is a regression if the photos have numbers") {
  const TaggedPhotos photos;
  const std::string table = table_of("photo,age,height\n", [](std::size_t i) {
    return std::to_string(20 + i) + "," + std::to_string(150 + i % 10);
  });
  const Args epochs = {"--epochs", "1"};
  const Outcome run = run_well(with_ready_net(photos, table, epochs));
  CHECK_THAT(run.err, Catch::Contains("Note: the data set has numbers, so the net ends in "));
  const std::string net = read_checkpoint(photos.folder / "ready/1.1.safetensors").definition_text;
  INFO(net);
  CHECK_THAT(net, Catch::Contains("[numbers]\ntype=data\ndataIdx=1\n"));
  const std::size_t end = net.find("[predicted]\ntype=neuron\nneuron=linear[");
  REQUIRE(end != std::string::npos);
  // Half of the numbers are about 39, the other half about 154.
  double deviation = 0, mean = 0, scale = 0;
  REQUIRE(std::sscanf(net.c_str() + end, "[predicted] type=neuron neuron=linear[%lf,%lf]", &deviation,
                      &mean) == 2);
  CHECK(deviation == Approx(58).margin(2));
  CHECK(mean == Approx(97).margin(3));
  const std::size_t coeffs = net.find("coeffs=", end);
  REQUIRE(std::sscanf(net.c_str() + coeffs, "coeffs=%lf", &scale) == 1);
  CHECK(scale * deviation == Approx(1).epsilon(0.01));
  CHECK_THAT(net, Catch::Contains("[squares]\ntype=cost.sum2\ninputs=difference\n"));
  run_well(with_ready_net(photos, table, {"--epochs", "2"}));
  const Outcome loaded = run_well({"--load-file", photos.folder / "ready", "--epochs", "3"});
  CHECK_THAT(loaded.err, !Catch::Contains("differs from it"));
  const auto tested = nlohmann::json::parse(
      run_well({"--load-file", photos.folder / "ready", "--test-only", "1", "--json", "1"}).out);
  CHECK(tested["scores_of_numbers"]["squares"]["numbers"].size() == 2);
  const std::string predicted =
      run_well({"predict", photos.folder / "ready", photos.photo(0), "--csv", "1"}).out;
  CHECK_THAT(predicted, Catch::StartsWith("file,age,height\n"));
  run_well({"export", photos.folder / "ready", photos.folder / "net.onnx"});

  const std::string path = std::string(CONVNET_SOURCE_DIR) + "/configs/small";
  const Outcome by_path =
      run_program({"train", photos.folder / "photos", "--labels", photos.folder / "labels.csv", "--layer-def",
                   path + ".cfg", "--layer-params", path + "-params.cfg", "--inner-size", "16", "--save-file",
                   photos.folder / "path"});
  CHECK(by_path.code == 2);
  CHECK_THAT(by_path.err, Catch::Contains("layer 'logprob': needs classes, but 'labels' holds numbers, for a "
                                          "regression; a net for numbers ends in cost.sum2"));
}

TEST_CASE("some of the tags are scored as they are compared") {
  const TaggedPhotos photos;
  const auto tags_of = [](std::size_t i) {
    return std::string("sea") + (i % 4 < 3 ? ";warm" : "") + (i % 2 == 0 ? ";old" : "");
  };
  const auto images_with = [&](const std::string& net) {
    const Outcome run = photos.train(net, kRates + "[bce]\ncoeff=1\n", "photo,tags\n", tags_of);
    INFO(run.out << run.err);
    REQUIRE(run.code == 0);
    std::vector<int> images;
    const nlohmann::json scores = photos.tested()["scores_of_tags"]["bce"];
    for (const auto& tag : scores["tags"]) images.push_back(tag["images"]);
    return images;
  };
  const std::vector<int> all = images_with(kTagNet);
  REQUIRE(all.size() == 3);
  REQUIRE(all[0] != all[1]);
  CHECK(images_with(net_of(2, "neuron=logistic\n",
                           "[tags]\ntype=data\ndataIdx=2\nstart=1\nend=3\n[bce]\ntype=cost.bce\n"
                           "inputs=tags,fc\n")) == std::vector<int>{all[1], all[2]});
}

TEST_CASE("classes that may have been meant as numbers are noted") {
  const TaggedPhotos photos;
  const std::string table =
      table_of("photo,age\n", [](std::size_t i) { return std::to_string(20 + i / 10); });
  const Outcome run = run_well(with_ready_net(photos, table, {"--epochs", "1"}));
  CHECK_THAT(run.err, Catch::Contains("Note: the table of --labels holds 4 classes, which are named by "
                                      "numbers; --label-kind numbers predicts numbers instead\n"));
  // Without a table there is nothing that the option could be about.
  check_refused(
      {"train", photos.folder / "photos", "--layer-def", "small", "--label-kind", "numbers"},
      "--label-kind says what the table of --labels holds; add that option, or leave this one out\n");
}

TEST_CASE("a regression goes on whatever the deviation of its numbers") {
  const TaggedPhotos photos;
  // Their deviation is about 12, whose inverse has other digits than that of the written 12.
  const std::string table = table_of("photo,age\n", [](std::size_t i) { return std::to_string(i); });
  const Args numbers = {"--label-kind", "numbers"};
  run_well(with_ready_net(photos, table, numbers + Args{"--epochs", "1"}));
  const Outcome again = run_well(with_ready_net(photos, table, numbers + Args{"--epochs", "2"}));
  CHECK_THAT(again.err, !Catch::Contains("differs from it"));
  const Outcome loaded = run_well({"--load-file", photos.folder / "ready", "--epochs", "3"});
  CHECK_THAT(loaded.err, !Catch::Contains("differs from it"));
  CHECK_THAT(loaded.err, !Catch::Contains("which has changed"));
  const auto predicted = nlohmann::json::parse(
      run_well({"predict", photos.folder / "ready", photos.photo(1), "--json", "1"}).out);
  CHECK(predicted["files"][0]["numbers"]["age"].is_number());
}

/// Returns a net for two classes, whose labels are matrix `data_index` of the data set.
std::string net_of_classes(int data_index) {
  return net_of(2, "",
                "[labels]\ntype=data\ndataIdx=" + std::to_string(data_index) +
                    "\n[probs]\ntype=softmax\ninputs=fc\n[logprob]\ntype=cost.logreg\ninputs=labels,probs\n");
}

TEST_CASE("cost.logreg says which labels it needs") {
  const TaggedPhotos photos;
  const std::string net = net_of_classes(2);
  const std::string message =
      "layer 'logprob': needs classes, a data layer with dataIdx=1, but 'labels' holds a number for each "
      "class or tag (dataIdx=2), which cost.bce and cost.crossent read";
  const Outcome classes = photos.train(net, kRates + "[logprob]\ncoeff=1\n", "photo,class\n",
                                       [](std::size_t i) { return i % 2 == 0 ? "a" : "b"; });
  CHECK(classes.code == 2);
  CHECK_THAT(classes.err, Catch::Contains(message));
  const Outcome tags = photos.train(net, kRates + "[logprob]\ncoeff=1\n", "photo,tags\n",
                                    [](std::size_t i) { return i % 2 == 0 ? "a" : "a;b"; });
  CHECK(tags.code == 2);
  CHECK_THAT(tags.err, Catch::Contains(message));
}

TEST_CASE("train names a folder like one that is not there") {
  const TaggedPhotos photos;
  check_refused(
      {"train", "xyzzy-of-nobody", "--layer-def", "small"},
      "unexpected argument 'xyzzy-of-nobody'; there is no such file or folder; photos are given as a "
      "folder or a tar, and --help lists the options");
  check_refused({"train", photos.folder / "fotos", "--layer-def", "small"},
                "unexpected argument '" + (photos.folder / "fotos") +
                    "'; there is no such file or folder; did you "
                    "mean '" +
                    (photos.folder / "photos") + "'?");
}

TEST_CASE("option --balance draws rare classes as often as others, and a resumed run goes on with it") {
  const TaggedPhotos photos;
  const std::string net = net_of_classes(1);
  const auto rare = [](std::size_t i) { return i % 8 == 0 ? "rare" : "usual"; };
  const auto train = [&](const Args& more) {
    const Outcome run = photos.train(net, kRates + "[logprob]\ncoeff=1\n", "photo,class\n", rare, more);
    INFO(run.out << run.err);
    REQUIRE(run.code == 0);
    return photos.weights();
  };
  const std::vector<float> even = train({"--balance", "1"});
  CHECK(train({"--balance", "1"}) == even);
  CHECK(train({"--shuffle", "1"}) != even);
  const Outcome first = photos.train(net, kRates + "[logprob]\ncoeff=1\n", "photo,class\n", rare,
                                     {"--balance", "1", "--epochs", "1"});
  REQUIRE(first.code == 0);
  run_well({"--load-file", photos.folder / "run", "--epochs", "2"});
  CHECK(photos.weights() == even);
  const std::string weighted = kRates + "[logprob]\ncoeff=1\nclassWeights=balanced\n";
  REQUIRE(photos.train(net, weighted, "photo,class\n", rare).code == 0);
  check_refused({"--load-file", photos.folder / "run", "--balance", "1", "--epochs", "4"},
                "rare ones would count twice as much");
  const Outcome twice = photos.train(net, weighted, "photo,class\n", rare, {"--balance", "1"});
  CHECK(twice.code == 2);
  CHECK(twice.err.find("'logprob' has classWeights=balanced, and --balance 1 draws all classes evenly") !=
        std::string::npos);
}

}  // namespace
}  // namespace convnet
