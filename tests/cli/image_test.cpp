// Training from each form of image data sets.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <thread>

#include "convnet/checkpoint/safetensors.h"
#include "tests/catch.h"
#include "tests/cli/equal_tensors.h"
#include "tests/cli/photographs.h"

namespace convnet {
namespace {

using namespace image_sets;

/// Equal tensors and history.
void check_equal(const TensorFile& a, const TensorFile& b) {
  check_equal_tensors(a, b);
  const auto state = [](const TensorFile& file) { return nlohmann::json::parse(file.metadata.at("state")); };
  CHECK(state(a).at("history") == state(b).at("history"));
  CHECK(state(a).at("position") == state(b).at("position"));
}

TEST_CASE("a net that comes with convnet divides pixels if it begins with another program's weights") {
  const Photographs photos;
  const std::string file = photos.folder / "weights.safetensors";
  const auto train = [&](const std::string& folder, const std::string& weights, const Args& more = {}) {
    const Args line = {"train", photos.folder / "folders", "--layer-def", "small", "--inner-size", "16"};
    const Args run = {"--epochs", "1", "--mini", "16", "--init-from", weights, "--save-file", folder};
    return run_well(line + run + more).out;
  };
  const auto chooses = [](const std::string& out) { return out.find("--pixel-std") != std::string::npos; };
  TensorFile weights;
  weights.tensors["conv1.weight"] = {{32, 3, 3, 3}, std::vector<float>(864, 0.1F)};
  write_safetensors(file, weights);
  const std::string run = photos.folder / "run";
  CHECK_THAT(train(run, file),
             Catch::Contains("Not given, and chosen for the weights of " + file + ": --pixel-std 1\n"));
  CHECK(read_safetensors(run + "/1.1.safetensors").tensors.contains("image.deviations"));
  CHECK_FALSE(chooses(train(photos.folder / "given", file, {"--pixel-std", "0"})));
  // A checkpoint and an exported file say whether their nets saw divided pixels.
  CHECK(chooses(train(photos.folder / "from-run", run)));
  CHECK_FALSE(chooses(train(photos.folder / "from-whole", photos.folder / "given")));
  weights.metadata["input_dims"] = "[3, 16, 16]";
  write_safetensors(file, weights);
  CHECK_FALSE(chooses(train(photos.folder / "whole-pixels", file)));
  weights.metadata["deviations"] = "[[[50]],[[50]],[[50]]]";
  write_safetensors(file, weights);
  CHECK(chooses(train(photos.folder / "divided-pixels", file)));
}

TEST_CASE("images train from every form, the same with one and two decoder threads") {
  const Photographs photos;
  for (const std::string set : {"pickles", "tars", "folders"}) {
    CAPTURE(set);
    run_well(photos.train(set, set + "-1") + Args{"--decode-threads", "1"});
    run_well(photos.train(set, set + "-2") + Args{"--decode-threads", "2"});
    const TensorFile one = newest(photos.folder / (set + "-1"));
    check_equal(newest(photos.folder / (set + "-2")), one);
    CHECK(one.tensors.at("image.mean").dims == std::vector<std::int64_t>{3, 16, 16});
    CHECK(one.tensors.at("image.colorPca").dims == std::vector<std::int64_t>{4, 3});
  }
  // Pickles and tars hold the same batches, which differ in number alone.
  CHECK(newest(photos.folder / "pickles-1").tensors.at("image.mean").values ==
        newest(photos.folder / "tars-1").tensors.at("image.mean").values);
  const auto tested = [&](const Args& more) {
    const std::string out =
        run_well(Args{"--load-file", photos.folder / "pickles-1", "--test-only", "1"} + more).out;
    return out.substr(out.find("\n1000... "));
  };
  const std::string views = tested({"--multiview-test", "1"});
  CHECK(views != tested({}));
  for (const char* mini : {"25", "100"}) CHECK(tested({"--multiview-test", "1", "--mini", mini}) == views);
}

TEST_CASE("a run with a cache of pictures trains to the bits of one without it, also after a stop") {
  const Photographs photos;
  const auto trained = [&](const std::string& set, const std::string& into, const Args& more) {
    const Outcome run = run_well(photos.train(set, into) + more);
    if (!more.empty())
      CHECK(run.out.find(" --cache-images " + (photos.folder / "cache") + "\n") != std::string::npos);
    return newest(photos.folder / into);
  };
  const Args cached = {"--cache-images", photos.folder / "cache"};
  for (const std::string set : {"pickles", "tars", "folders"}) {
    INFO(set);
    check_equal(trained(set, set + "-filling", cached), trained(set, set + "-bare", {}));
    const auto size = std::filesystem::file_size(photos.folder / "cache/pictures-20.index");
    check_equal(trained(set, set + "-filled", cached), trained(set, set + "-bare-2", {}));
    CHECK(std::filesystem::file_size(photos.folder / "cache/pictures-20.index") == size);
  }
  // Random resized crops are taken from the pictures of the cache, from the first epoch on.
  const Args crops = cached + Args{"--random-resized-crop", "0.2"};
  const TensorFile whole = trained("folders", "crops-filled", crops);
  std::filesystem::remove_all(photos.folder / "cache");
  run_well(photos.train("folders", "crops-parts") + crops + Args{"--epochs", "1"});
  run_well(Args{"--load-file", photos.folder / "crops-parts", "--epochs", "2"} + cached);
  check_equal(newest(photos.folder / "crops-parts"), whole);
  // A user of the net needs no cache, nor a place for one.
  run_well({"--load-file", photos.folder / "crops-parts", "--epochs", "3", "--cache-images",
            photos.folder / "elsewhere/cache"});
  std::filesystem::remove_all(photos.folder / "elsewhere");
  write_file(photos.folder / "elsewhere", "");
  const std::string val = photos.folder / "folders/val/c0/";
  run_well({"predict", photos.folder / "crops-parts", val + files_in(val).front()});
  run_well(
      {"show", photos.folder / "crops-parts", "--show-preds", "probs", "--out", photos.folder / "preds.png"});
  // Mistakes: a file as the folder, and a folder with something else under the name.
  write_file(photos.folder / "file", "");
  const Outcome file =
      run_program(with(photos.train("folders", "x") + cached, "--cache-images", photos.folder / "file"));
  CHECK(file.code == 2);
  CHECK(file.err.find(photos.folder / "file") != std::string::npos);
  write_file(photos.folder / "cache/pictures-20.index",
             "a list of pictures of all my friends, in alphabetical order");
  const Outcome foreign = run_program(photos.train("folders", "x") + cached + Args{"--skip-bad-images", "1"});
  CHECK(foreign.code == 2);
  CHECK(foreign.err.find(
            "pictures-20.index: is no cache of pictures; choose another folder for --cache-images") !=
        std::string::npos);
}

TEST_CASE("small forms of cuda-convnet2's six ImageNet pairs train on its batches of JPEGs") {
  const TempFolder folder;
  const std::string set = folder / "set";
  const std::vector<Item> items = photographs(32, 20, 72);
  std::filesystem::create_directory(set);
  write_file(set + "/batches.meta", meta(20, 22, 72));
  write_batch(set, 0, {items.begin(), items.begin() + 22}, 8);
  write_batch(set, 1000, {items.begin() + 22, items.end()}, 8);
  for (const auto& [name, gpus] :
       std::vector<std::pair<std::string, std::string>>{{"1gpu", "0"},
                                                        {"2gpu-data", "0,1"},
                                                        {"2gpu-model", "0,1"},
                                                        {"2gpu-data-model", "0,1"},
                                                        {"4gpu-data", "0,1,2,3"},
                                                        {"4gpu-data-model", "0,1,2,3"}}) {
    INFO(name);
    const Outcome run = run_well({"--data-path",     set,
                                  "--train-range",   "0",
                                  "--test-range",    "1000",
                                  "--save-path",     folder / name,
                                  "--epochs",        "2",
                                  "--layer-path",    std::string(CONVNET_SOURCE_DIR) + "/tests/nets/",
                                  "--layer-def",     "imagenet-" + name + ".cfg",
                                  "--layer-params",  "imagenet-" + name + "-params.cfg",
                                  "--data-provider", "image",
                                  "--inner-size",    "64",
                                  "--gpu",           gpus,
                                  "--mini",          "8",
                                  "--test-freq",     "2",
                                  "--color-noise",   "0.1",
                                  "--threads",       "1"});
    CHECK(run.err.empty());
    CHECK(run.out.find("2.0 (50.00%)... logprob: ") != std::string::npos);
    CHECK(run.out.find("Saved checkpoint to ") != std::string::npos);
  }
}

TEST_CASE("colour noise trains to the same bits however layers are placed and images decoded") {
  const Photographs photos;
  const std::string placed = photos.folder / "placed.cfg";
  write_file(placed, replaced(replaced(kColorNet, "filters=4\n", "filters=4\ngpu=0\n"), "outputs=4\n",
                              "outputs=4\ngpu=1\n"));
  const auto trained = [&](const std::string& into, const Args& more) {
    run_well(photos.train("tars", into) + more);
    return newest(photos.folder / into);
  };
  const TensorFile one = trained("one", {});
  check_equal(trained("placed", {"--layer-def", placed, "--gpu", "0,1", "--threads", "4"}), one);
  const Args spread = {"--gpu", "0,1,2", "--parallel", "data"};
  check_equal(trained("spread-2", spread + Args{"--decode-threads", "2"}),
              trained("spread-1", spread + Args{"--decode-threads", "1"}));
}

TEST_CASE("with colour noise the provider subtracts the mean, and nothing else looks different") {
  const Photographs photos;
  run_well(photos.train("tars", "noise") + Args{"--pixel-std", "1"});
  const auto seen = [&](const std::string& noise, const Args& more) {
    const std::string into = photos.folder / "seen";
    run_well(Args{"--load-file", photos.folder / "noise", "--test-only", "1", "--color-noise", noise,
                  "--write-features", "data", "--feature-path", into} +
             more);
    return read_file(into + "/data_batch_3.npy");
  };
  for (const Args& more : {Args{}, Args{"--gpu", "0,1", "--parallel", "data"}, Args{"--multiview-test", "1"}})
    CHECK(seen("0.1", more) == seen("0", more));

  // The same net as a run without noise would have saved it.
  TensorFile net = newest(photos.folder / "noise");
  nlohmann::json options = nlohmann::json::parse(net.metadata.at("options"));
  options["color-noise"] = "0";
  net.metadata["options"] = options.dump();
  write_safetensors(photos.folder / "plain.safetensors", net);
  const auto picture = [&](const std::string& checkpoint) {
    const std::string png = photos.folder / "p.png";
    run_well({"show", photos.folder / checkpoint, "--show-preds", "probs", "--out", png});
    return read_file(png);
  };
  CHECK(picture("noise") == picture("plain.safetensors"));

  // The page's plan, with the data set and without: loading reads and writes 8 images of 768 floats; without
  // noise it also reads the mean image.
  const auto loads = [&](const std::string& checkpoint, const std::string& bytes) {
    run_well({"show", photos.folder / checkpoint, "--html", photos.folder / "p.html"});
    return std::regex_search(read_file(photos.folder / "p.html"),
                             std::regex("data +data +3x16x16[- ]+" + bytes + " +0\n"));
  };
  for (const bool data_set : {true, false}) {
    if (!data_set) std::filesystem::rename(photos.folder / "tars", photos.folder / "elsewhere");
    CHECK(loads("noise", "49\\.2 k"));
    CHECK(loads("plain.safetensors", "52\\.2 k"));
  }
}

TEST_CASE("a run on images that is stopped at any minibatch goes on to the same bits") {
  const Photographs photos;
  const Args args = photos.train("pickles", "whole") + Args{"--keep", "20"};
  run_well(args);
  const TensorFile whole = newest(photos.folder / "whole");
  // Interrupted again and again, wherever that is.
  const Args pieces = photos.train("pickles", "pieces") + Args{"--decode-threads", "2"};
  for (int i = 0; i < 20; ++i) {
    Program program(pieces);
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + 13 * (i % 7)));
    program.send(SIGINT);
    const Outcome run = program.finish();
    INFO(run.out << run.err);
    REQUIRE((run.code == 0 || run.signal == SIGINT));  // before it listens to signals
  }
  run_well(pieces);
  check_equal(newest(photos.folder / "pieces"), whole);
}

TEST_CASE("a damaged training image ends the run, and what was learned before it is saved") {
  const Photographs photos;
  std::vector<Item> items = photographs(17, 4, 20);
  items[12].bytes.resize(200);
  write_file(photos.folder / "tars/a-2.tar", tar_of(items));
  // With a scalar mean no image is read before training.
  const Args args = with(photos.train("tars", "bad"), "--color-noise", "0") + Args{"--scalar-mean", "100"};
  const Outcome stopped = run_program(args);
  INFO(stopped.err);
  CHECK(stopped.code == 2);
  CHECK(stopped.err.find("a-2.tar: s/1012.jpg: a damaged JPEG: ") != std::string::npos);
  CHECK(stopped.err.find("; --skip-bad-images 1 goes on past images that cannot be read\n") !=
        std::string::npos);
  REQUIRE(files_in(photos.folder / "bad") ==
          std::vector<std::string>{"1.1.safetensors", "1.2-0001.safetensors"});
  const std::string file = photos.folder / "bad/1.2-0001.safetensors";
  CHECK(stopped.err.find("\nwhat was learned until then is saved in " + file + "; --load-file ") !=
        std::string::npos);
  // With the image mended the run ends as if nothing had been.
  items[12] = photographs(17, 4, 20)[12];
  write_file(photos.folder / "tars/a-2.tar", tar_of(items));
  run_well(args);
  run_well(with(args, "--save-file", photos.folder / "good"));
  check_equal(newest(photos.folder / "bad"), newest(photos.folder / "good"));
}

TEST_CASE("photos with a table of labels train, and the checkpoint knows the table") {
  const Photographs photos;
  const std::vector<Item> items = photographs(40, 4, 20);
  std::string table = "id,label\n";
  std::filesystem::create_directories(photos.folder / "flat/more");
  for (std::size_t i = 0; i < items.size(); ++i) {
    write_file(photos.folder / "flat/" + (i % 2 ? "more/" : "") + std::to_string(i) + ".jpg", items[i].bytes);
    if (i > 0) table += std::to_string(i) + "," + std::to_string(8 + items[i].label) + "\n";
  }
  write_file(photos.folder / "labels.csv", table);
  Args args = photos.train("flat", "run") + Args{"--labels", photos.folder / "labels.csv"};
  const auto ranges = std::find(args.begin(), args.end(), "--train-range");
  args.erase(ranges, ranges + 4);
  const Outcome run = run_program(args);
  INFO(run.out << run.err);
  REQUIRE(run.code == 0);
  CHECK(run.err.find("1 photo(s) have no line in the table of --labels and are left out, as 0.jpg") !=
        std::string::npos);
  const Outcome test = run_program({"--load-file", photos.folder / "run", "--test-only", "1", "--json", "1"});
  INFO(test.out << test.err);
  REQUIRE(test.code == 0);
  const auto by_class = nlohmann::json::parse(test.out)["errors_by_class"]["logprob"]["classes"];
  CHECK(!by_class.empty());
  for (const auto& of_class : by_class)
    CHECK(of_class["class"] == std::to_string(8 + of_class["index"].get<int>()));
  // A run that goes on with other classes is refused.
  write_file(photos.folder / "labels.csv", table.replace(table.find(",8"), 2, ",x"));
  const Outcome other = run_program({"--load-file", photos.folder / "run", "--epochs", "3"});
  INFO(other.out << other.err);
  CHECK(other.code == 2);
}

TEST_CASE("a run on augmented photographs goes on to the same bits") {
  const Photographs photos;
  std::string net = kColorNet;
  net.replace(net.rfind("dataIdx=1"), 9, "dataIdx=2");
  net.replace(net.find("cost.logreg"), 11, "cost.crossent");
  write_file(photos.folder / "net.cfg", net);
  for (const std::string set : {"tars", "pickles"}) {
    CAPTURE(set);
    const Args augment = {"--mixup",
                          "0.4",
                          "--cutmix",
                          "1",
                          "--random-resized-crop",
                          "0.3",
                          "--random-erasing",
                          "0.5",
                          "--trivial-augment",
                          "1",
                          "--color-jitter",
                          "0.4",
                          "--shuffle",
                          set == "tars" ? "1" : "0"};
    const std::string straight = set + "-straight", resumed = set + "-resumed";
    run_well(photos.train(set, straight) + augment + Args{"--decode-threads", "1"});
    run_well(with(photos.train(set, resumed), "--epochs", "1") + augment + Args{"--decode-threads", "3"});
    run_well({"--load-file", photos.folder / resumed, "--epochs", "2"});
    check_equal(newest(photos.folder / resumed), newest(photos.folder / straight));
  }
  // A test's labels are the images' own classes.
  run_well({"--load-file", photos.folder / "tars-resumed", "--test-only", "1", "--write-features", "fc4",
            "--feature-path", photos.folder / "features"});
  const std::string labels = read_file(photos.folder / "features/labels_3.npy");
  REQUIRE(labels.size() > 40);
  for (std::size_t i = 0; i < 10; ++i)
    CHECK(labels[labels.size() - 40 + 4 * i] == static_cast<char>((37 + i) % 4));
  // Training goes on without mixtures.
  run_well({"--load-file", photos.folder / "tars-resumed", "--epochs", "3", "--mixup", "0", "--cutmix", "0"});
}

TEST_CASE("what images look like stays as it was") {
  const Photographs photos;
  const Args first = with(with(photos.train("tars", "run"), "--epochs", "1"), "--color-noise", "0");
  run_well(first + Args{"--scalar-mean", "100"});
  const Args resume = {"--load-file", photos.folder / "run", "--epochs", "2"};
  const auto error = [&](const Args& more) {
    const Outcome run = run_program(resume + more);
    CHECK(run.code == 2);
    return run.err;
  };
  CHECK(error({"--image-size", "18"}).find("--image-size 20, for all of its life") != std::string::npos);
  CHECK(error({"--scalar-mean", "-1"}).find("--scalar-mean 100, for all of its life") != std::string::npos);
  CHECK(error({"--color-noise", "0.1"}).find("--color-noise needs the tensor 'image.colorPca'") !=
        std::string::npos);
  run_well(resume);
  // Arrays of such images are no provider's own form, and have none of its options.
  std::filesystem::create_directory(photos.folder / "arrays");
  write_file(photos.folder / "arrays/images.npy",
             npy_file("|u1", "4, 3, 20, 20", std::string(4 * 3 * 400, 'x')));
  write_file(photos.folder / "arrays/labels.npy", npy_file("|u1", "4,", std::string("\0\1\2\3", 4)));
  run_well({"--load-file", photos.folder / "run", "--test-only", "1", "--data-provider", "npy", "--data-path",
            photos.folder / "arrays", "--test-range", "1"});
}

TEST_CASE("a test that names the images that a run has held out tests those alone") {
  const Photographs photos;
  Args run = with(photos.train("folders", "held"), "--data-path", photos.folder / "folders/train");
  for (const char* option : {"--train-range", "--test-range"}) {
    const auto at = std::find(run.begin(), run.end(), option);
    run.erase(at, at + 2);
  }
  CHECK_THAT(run_well(run).out, Catch::Contains("Batches: training 1, tests 2: a tenth of the images"));
  const Args test = {"--load-file", photos.folder / "held", "--test-only", "1", "--json", "1"};
  const auto costs = [&](const Args& more) {
    return nlohmann::json::parse(run_well(test + more).out)["costs"];
  };
  CHECK(costs({"--test-range", "2"}) == costs({}));
  // Another set may be there for tests alone.
  const std::string others = photos.folder / "folders/val";
  const std::string how = "If the net was trained on other images, --test-range 1-2 tests all of these\n";
  CHECK_THAT(run_well(test + Args{"--data-path", others}).err,
             Catch::Contains("Batches: tests 2: a tenth of the images") && Catch::Contains(how));
  CHECK_THAT(run_well(test).err, !Catch::Contains(how));
  CHECK_THAT(run_well({"show", photos.folder / "held", "--save-preds", photos.folder / "preds.csv",
                       "--data-path", others})
                 .err,
             Catch::Contains(how));
  CHECK(costs({"--test-range", "1"}) != costs({}));
  // Batches of all images would be others, with those that are held out among those of training.
  check_refused(
      {"--load-file", photos.folder / "held", "--epochs", "9", "--train-range", "1", "--test-range", "2"},
      "--train-range and --test-range: this run holds a tenth of its images out of training; leave both "
      "options out");
  // A run that goes on may not write among the folders of classes either.
  check_refused({"--load-file", photos.folder / "held", "--epochs", "9", "--cache-images",
                 photos.folder / "folders/train/cache"},
                "--cache-images");
}

TEST_CASE("a net of photographs that are all of one size predicts them without options of sizes") {
  const Photographs photos;
  const Args whole = with(with(photos.train("pickles", "whole"), "--color-noise", "0"), "--inner-size", "0");
  run_well(whole);
  const std::string file = photos.folder / "photo.jpg";
  write_file(file, photographs(1, 4, 20)[0].bytes);
  run_well({"predict", photos.folder / "whole", file});
}

TEST_CASE("grey photographs train, predict, and stay grey for a run's life") {
  const Photographs photos;
  write_file(photos.folder / "net.cfg", replaced(kColorNet, "channels=3", "channels=1"));
  const auto grey = [&](const std::string& set, const std::string& into) {
    return with(photos.train(set, into), "--color-noise", "0") +
           Args{"--grey", "1", "--mixup", "0.2", "--random-erasing", "0.5", "--pixel-std", "1"};
  };
  for (const char* set : {"folders", "tars", "pickles"}) {
    INFO(set);
    const std::string run = photos.folder / (std::string("grey-") + set);
    run_well(grey(set, std::string("grey-") + set));
    CHECK(newest(run).tensors.at("image.mean").dims == Dims{1, 16, 16});
    CHECK(newest(run).tensors.at("image.deviations").dims == Dims{1});
  }
  const std::string run = photos.folder / "grey-folders";
  // predict gives the probabilities of a test.
  run_well({"--load-file", run, "--test-only", "1", "--test-out", photos.folder / "out"});
  const std::string names = read_file(photos.folder / "out/names_2.txt");
  const std::string file = photos.folder / "folders/val/" + names.substr(0, names.find('\n'));
  const Outcome predicted = run_well({"predict", run, file, "--json", "1", "--top", "4"});
  const std::string saved = read_file(photos.folder / "out/probabilities_2.npy");
  float first = 0;
  std::memcpy(&first, saved.data() + saved.size() - 10 * 4 * sizeof(float), sizeof first);
  const nlohmann::json classes = nlohmann::json::parse(predicted.out)["files"][0]["classes"];
  const auto zero =
      std::find_if(classes.begin(), classes.end(), [](const auto& c) { return c["index"] == 0; });
  REQUIRE(zero != classes.end());
  CHECK((*zero)["probability"].get<float>() == Approx(first).epsilon(1e-4));
  CHECK_THAT(run_well({"export", run, photos.folder / "grey.onnx"}).out,
             Catch::Contains("from images (N, 1, 16, 16) to probs (N, 4)"));
  run_well({"show", "--load-file", run, "--html", photos.folder / "page.html"});
  check_refused({"--load-file", run, "--epochs", "3", "--grey", "0"},
                "this run has --grey 1, for all of its life; --grey 0 is for a new run");
  check_refused(with(grey("folders", "noisy"), "--color-noise", "0.1"),
                "--color-noise adds colours, and --grey makes the photographs grey; leave one out");
}

TEST_CASE("images of folders and tars keep their names") {
  const Photographs set;
  for (const std::string form : {"folders", "tars"}) {
    INFO(form);
    const std::string run = set.folder / (form + "-run"), out = set.folder / (form + "-out");
    run_well(set.train(form, run) + Args{"--shuffle", "1", "--mixup", "0.2"});
    run_well({"--load-file", run, "--test-only", "1", "--test-out", out});
    const std::string batch = form == "folders" ? "2" : "3";
    const std::string names = read_file(out + "/names_" + batch + ".txt");
    CHECK(count(names, "\n") == 10);
    const std::string csv = set.folder / (form + ".csv");
    run_well({"show", "--load-file", run, "--save-preds", csv});
    const std::string table = read_file(csv);
    CHECK(table.starts_with("batch,image,name,label,"));
    // Both list the images in one order, and the folder's name is the label's.
    std::istringstream lines(names), rows(table);
    std::string row, name;
    std::getline(rows, row);
    for (int i = 0; std::getline(lines, name) && std::getline(rows, row); ++i) {
      CHECK(row.starts_with(batch + "," + std::to_string(i) + "," + name + ","));
      if (form == "folders") CHECK_THAT(row, Catch::Contains("," + name.substr(0, name.find('/')) + ","));
    }
    // A data set without names has no column and no file for them.
    const std::string pickled = set.folder / "pickled-run";
    if (!std::filesystem::exists(pickled)) run_well(set.train("pickles", pickled));
    run_well({"--load-file", pickled, "--test-only", "1", "--test-out", set.folder / "pickled"});
    CHECK_FALSE(std::filesystem::exists(set.folder / "pickled/names_1000.txt"));
  }
}

TEST_CASE("runs on folders and tars test all test images after each epoch, and go on so") {
  const Photographs photos;
  const auto without = [](Args args, const std::vector<std::string>& options) {
    for (const std::string& option : options) {
      const auto at = std::find(args.begin(), args.end(), option);
      args.erase(at, at + 2);
    }
    return args;
  };
  const auto tested = [&](const std::string& run) {
    std::vector<std::pair<int, std::int64_t>> tests;  // epoch, images
    for (const HistoryEntry& entry : read_checkpoint(photos.folder / run).state.history)
      if (entry.test_batch >= 0) tests.emplace_back(entry.epoch, entry.costs.images);
    return tests;
  };
  const std::vector<std::string> both = {"--test-freq", "--epochs"};
  // Tars 1 trains, 2 and 3 test.
  Args args = with(with(photos.train("tars", "new"), "--train-range", "1"), "--test-range", "2-3");
  const Outcome first = run_well(without(args, {"--test-freq"}));
  CHECK_THAT(first.out,
             Catch::Contains(
                 "Not given, and chosen for folders and tars of images: --test-freq 0 (a test at the end "
                 "of each epoch), --test-one 0 (each test uses all test batches)\n"));
  CHECK(tested("new") == std::vector<std::pair<int, std::int64_t>>{{1, 27}, {2, 27}});
  run_well({"--load-file", photos.folder / "new", "--epochs", "3"});
  CHECK(tested("new").back() == std::pair<int, std::int64_t>{3, 27});
  // The number of epochs is chosen, too.
  const Outcome planned = run_program(without(with(args, "--save-file", photos.folder / "long"), both) +
                                      Args{"--time-limit", "2s"});
  CHECK_THAT(planned.out,
             Catch::Contains("chosen for folders and tars of images: --epochs 90, --test-freq 0"));
  // A checkpoint of an older version, which had none of them, goes on as it was.
  TensorFile old = newest(photos.folder / "new");
  nlohmann::json options = nlohmann::json::parse(old.metadata.at("options"));
  for (const char* key : {"epochs", "test-freq", "test-one"}) options.erase(key);
  old.metadata["options"] = options.dump();
  std::filesystem::create_directory(photos.folder / "old");
  write_safetensors(photos.folder / "old/3.1.safetensors", old);
  const Outcome resumed = run_well({"--load-file", photos.folder / "old", "--epochs", "5"});
  CHECK_THAT(resumed.out,
             Catch::Contains("Not given, and so as in cuda-convnet2: --test-freq 57 (batches between "
                             "tests), --test-one 1"));
  CHECK(count(resumed.out, "Saved checkpoint") == 1);
  // cuda-convnet2's own batches keep its defaults.
  const Outcome pickles = run_well(without(photos.train("pickles", "pickles"), {"--test-freq"}));
  CHECK_THAT(pickles.out, Catch::Contains("Not given, and so as in cuda-convnet2: --test-freq 57"));
}

}  // namespace
}  // namespace convnet
