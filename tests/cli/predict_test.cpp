// convnet predict as a user meets it: files, folders and lists of them, without the data set.
#include <sys/stat.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "convnet/checkpoint/safetensors.h"

#include "tests/catch.h"
#include "tests/cli/small_net.h"
#include "tests/larger.h"
#include "tests/providers/image_sets.h"

namespace convnet {
namespace {

using nlohmann::json;

json predicted(const Args& args) {
  return json::parse(run_well(Args{"predict"} + args + Args{"--json", "1"}).out);
}

/// A run on the digits of write_data(), and the images of its test as PNG files.
class Digits {
 public:
  explicit Digits(const Args& options = {}) {
    shop.write_data();
    run_well(shop.mnist() + Args{"--save-file", shop / "run", "--epochs", "3"} + options);
    for (std::uint32_t i = 0; i < 20; ++i) {
      std::vector<std::uint8_t> pixels;
      for (std::uint32_t p = 0; p < 64; ++p)
        pixels.push_back(static_cast<std::uint8_t>((p * (i * 7 % 10 + 3) + i * 31) % 256));
      write_file(file(i), test_images::png(8, 8, 1, pixels));
    }
  }
  std::string file(std::uint32_t i) const { return shop / ("image" + std::to_string(i) + ".png"); }
  Args files() const {
    Args all;
    for (std::uint32_t i = 0; i < 20; ++i) all.push_back(file(i));
    return all;
  }

  Workshop shop;
};

/// The numbers of a file of float32 that --test-out wrote.
std::vector<float> numbers_of(const std::string& npy) {
  const std::string bytes = read_file(npy);
  const std::size_t begin = bytes.find('\n') + 1;
  std::vector<float> numbers((bytes.size() - begin) / sizeof(float));
  std::memcpy(numbers.data(), bytes.data() + begin, numbers.size() * sizeof(float));
  return numbers;
}

/// The largest difference between the probabilities of a test of the run and those that predict gives its
/// images.
double distance_to_test(const Digits& digits, const Args& options = {}) {
  const Workshop& shop = digits.shop;
  std::filesystem::remove_all(shop / "tested");
  run_well(Args{"--load-file", shop / "run", "--test-out", shop / "tested"} + options);
  const std::vector<float> tested = numbers_of(shop / "tested/probabilities_2.npy");
  REQUIRE(tested.size() == 200);
  const json found = predicted(Args{shop / "run"} + digits.files() + Args{"--top", "10"} + options);
  double worst = 0;
  for (std::size_t i = 0; i < 20; ++i)
    for (const json& c : found["files"][i]["classes"])
      worst =
          test::larger(worst, std::abs(c["probability"].get<double>() -
                                       static_cast<double>(tested[10 * i + c["index"].get<std::size_t>()])));
  return worst;
}

}  // namespace

TEST_CASE("predict prepares files as the run's tests prepare their images") {
  const Args crops = {"--inner-size", "6"}, views = {"--multiview-test", "1"};
  struct Case {
    Args training, testing;
  };
  for (const Case& c : std::vector<Case>{{{}, {}},
                                         {crops, {}},
                                         {crops, views},
                                         {{"--crop-pad", "1"}, {}},
                                         {{"--flip", "1"}, {}},
                                         {{"--pixel-std", "1"}, {}},
                                         {{"--scalar-mean", "100"}, {}},
                                         {{"--random-erasing", "0.5"}, {}},
                                         {{"--mixup", "0.2"}, {}},
                                         {{"--trivial-augment", "1"}, {}},
                                         {crops + Args{"--color-jitter", "0.4", "--pixel-std", "1"}, {}},
                                         {crops + Args{"--pixel-std", "1"}, {}},
                                         {crops + Args{"--random-erasing", "0.5"}, {}},
                                         {crops + Args{"--random-erasing", "0.5"}, views},
                                         {crops + Args{"--cutmix", "1", "--pixel-std", "1"}, views},
                                         {crops + Args{"--crop-pad", "1", "--shuffle", "1"}, {}}}) {
    std::string name;
    for (const std::string& word : c.training + c.testing) name += word + " ";
    INFO(name);
    const Digits digits(c.training);
    CHECK(distance_to_test(digits, c.testing) < 1e-5);
  }
}

TEST_CASE("a checkpoint that does not say how large images are scales them to the crops, with a warning") {
  const Digits digits({"--inner-size", "6"});
  const std::string file = digits.shop / "run/3.1.safetensors";
  TensorFile contents = read_safetensors(file);
  json matrices = json::parse(contents.metadata.at("matrices"));
  CHECK(matrices[0]["stored"] == json({1, 8, 8}));
  matrices[0].erase("stored");
  contents.metadata["matrices"] = matrices.dump();
  contents.metadata.erase("ranges");
  write_safetensors(file, contents);
  const Outcome old = run_well({"predict", file, digits.file(0)});
  CHECK_THAT(old.err, Catch::Contains("warning: " + file + " is of an older version"));
  run_well({"show", file, "--save-preds", digits.shop / "preds.csv"});
  run_well({"--load-file", file, "--epochs", "4"});
  CHECK(run_well({"predict", digits.shop / "run", digits.file(0)}).err.empty());
  contents.metadata["ranges"] = R"({"test": "2", "train": "x"})";
  write_safetensors(file, contents);
  check_refused({"predict", file, digits.file(0)}, file + ": metadata 'ranges' is damaged: ");
}

TEST_CASE("predict gives several views only of what was cropped") {
  const Digits digits;
  check_refused({"predict", digits.shop / "run", digits.file(0), "--multiview-test", "1"},
                "but this run sees whole images: it has no --inner-size, and keeps that for all of its life; "
                "test it without --multiview-test, or train a new run with --inner-size");
}

TEST_CASE("predict gives the probabilities of a test, without the data set") {
  const Digits digits;
  const Workshop& shop = digits.shop;
  run_well({"--load-file", shop / "run", "--test-only", "1", "--test-out", shop / "tested", "--mini", "16"});
  std::filesystem::remove_all(shop.data_path());
  std::filesystem::remove(shop.definition_path());
  std::filesystem::remove(shop.parameters_path());
  Args files;
  for (std::uint32_t i = 0; i < 20; ++i) files.push_back(digits.file(i));
  const json found = predicted(Args{shop / "run"} + files + Args{"--top", "10", "--mini", "7"});
  REQUIRE(found["files"].size() == 20);
  double sum = 0;
  for (const json& c : found["files"][3]["classes"]) sum += c["probability"].get<double>();
  CHECK(sum == Approx(1).margin(1e-5));
  CHECK(found["files"][3]["file"] == digits.file(3));
  // One by one and in a folder they are the same.
  const json one = predicted({shop / "run", digits.file(3), "--top", "10"});
  CHECK(one["files"][0]["classes"][0]["class"] == found["files"][3]["classes"][0]["class"]);
  CHECK(one["files"][0]["classes"][0]["probability"].get<double>() ==
        Approx(found["files"][3]["classes"][0]["probability"].get<double>()).epsilon(1e-5));
  const json folder = predicted({shop / "run", shop.path(), "--top", "10"});
  REQUIRE(folder["files"].size() == 20);
  CHECK(folder["files"][2]["file"] == digits.file(2));  // 2 comes before 10
  CHECK(folder["files"][3]["classes"] == found["files"][3]["classes"]);
}

TEST_CASE("predict prints a table or CSV") {
  const Digits digits;
  const Outcome table = run_well({"predict", digits.shop / "run", digits.file(0), "--top", "2"});
  CHECK(table.out.starts_with(digits.file(0) + "  "));
  CHECK(count(table.out, "%") == 2);
  CHECK(count(table.out, "\n") == 1);
  const Outcome csv =
      run_well({"predict", digits.shop / "run", digits.file(0), digits.file(1), "--top", "2", "--csv", "1"});
  CHECK(csv.out.starts_with("file,class 1,probability 1,class 2,probability 2\n" + digits.file(0) + ","));
  CHECK(count(csv.out, "\n") == 3);
}

TEST_CASE("predict names bad files, skips them and ends with exit code 1") {
  const Digits digits;
  write_file(digits.shop / "bad.jpg", "no image");
  const Outcome run = run_program({"predict", digits.shop / "run", digits.file(0), digits.shop / "bad.jpg",
                                   digits.shop / "none.png", digits.file(1)});
  INFO(run.err);
  CHECK(run.code == 1);
  CHECK(count(run.out, "\n") == 2);
  CHECK(run.err.find("bad.jpg") != std::string::npos);
  CHECK(run.err.find("none.png") != std::string::npos);
  CHECK(run.err.find("2 of 4 inputs could not be classified") != std::string::npos);
  const std::string arrays = digits.shop / "arrays";
  std::filesystem::create_directory(arrays);
  write_file(arrays + "/x.npy", npy_file("|u1", "1, 1, 8, 8", std::string(64, '\1')));
  for (const auto& [args, message] : std::vector<std::pair<Args, std::string>>{
           {{}, "usage: convnet predict CHECKPOINT"},
           {{digits.shop / "run"}, "usage: convnet predict CHECKPOINT"},
           {{digits.shop / "no-run", digits.file(0)}, "no-run"},
           {{digits.shop / "run", digits.file(0), "--json", "1", "--csv", "1"}, "exclude each other"},
           {{digits.shop / "run", digits.file(0), "--softmax", "prob"}, "did you mean 'probs'"},
           {{digits.shop / "run", digits.file(0), "--topp", "1"}, "did you mean"}}) {
    const Outcome refused = run_program(Args{"predict"} + args);
    INFO(refused.err);
    CHECK(refused.code == 2);
    CHECK(refused.err.find(message) != std::string::npos);
  }
  for (const auto& [name, message] : std::vector<std::pair<std::string, std::string>>{
           {digits.shop / "run", "there is no image in this folder"},
           {digits.shop.data_path(),
            "there is no image in this folder (.jpg, .jpeg, .jpe, .jfif, .png, .bmp, .webp), but a data set: "
            "'convnet --load-file CHECKPOINT --test-out FOLDER --data-provider mnist --data-path " +
                digits.shop.data_path() + " --test-range BATCHES' writes the probabilities of its images"},
           {arrays, ", but an array: " + arrays + "/x.npy in place of the folder takes"}})
    check_refused({"predict", digits.shop / "run", name}, message, 1);
}

TEST_CASE("options of predict stand anywhere, and flags take no name for their value") {
  const Digits digits;
  const std::string run = digits.shop / "run";
  const std::string csv = run_well({"predict", run, digits.file(0), "--csv", "1", "--top", "1"}).out;
  CHECK(count(csv, "\n") == 2);
  CHECK(run_well({"predict", run, digits.file(0), "--csv", "--top", "1"}).out == csv);
  CHECK(run_well({"predict", "--csv", run, "--top=1", digits.file(0)}).out == csv);
  CHECK(run_well({"predict", run, "--top", "1", "--csv", digits.file(0)}).out == csv);
  check_refused({"predict", run, digits.file(0), "--top", "--csv"}, "--top needs a value");
  check_refused({"predict", run, digits.file(0), "--top"}, "--top needs a value");
  // After a bare -- everything is a name.
  for (const char* name : {"-x.png", "--help", "--csv"}) {
    std::filesystem::copy(digits.file(0), digits.shop / name);
    const Outcome table =
        run_in_shell("cd '" + digits.shop.path() + "' && \"$@\"", {"predict", run, "--top", "1", "--", name});
    INFO(table.err);
    CHECK(table.code == 0);
    CHECK(table.out.starts_with(std::string(name) + " "));
  }
}

TEST_CASE("predict skips folders without images, if there are other files") {
  const Digits digits;
  const std::string run = digits.shop / "run", empty = digits.shop / "empty";
  std::filesystem::create_directory(empty);
  const Outcome table = run_program({"predict", run, empty, digits.file(0), digits.file(1)});
  CHECK(table.code == 1);
  CHECK(count(table.out, "\n") == 2);
  CHECK_THAT(table.err, Catch::Contains("skipped: " + empty + ": there is no image in this folder") &&
                            Catch::Contains("1 of 3 inputs could not be classified"));
  const Outcome listed = run_program({"predict", run, digits.file(0), empty, "--json"});
  CHECK(listed.code == 1);
  const json files = json::parse(listed.out)["files"];
  CHECK(files.size() == 2);
  CHECK(std::count_if(files.begin(), files.end(), [](const json& f) { return f.contains("error"); }) == 1);
  check_refused({"predict", run, empty}, empty + ": there is no image in this folder", 1);
}

TEST_CASE("predict reads names from stdin, of whatever system they are") {
  const Digits digits;
  const std::string run = digits.shop / "run";
  write_file(digits.shop / "list", digits.file(0) + "\n\n" + digits.file(1) + "\r\n" + digits.file(2));
  const auto piped = [&](const std::string& list, const Args& more = {}) {
    return run_in_shell("\"$@\" < '" + list + "'", Args{"predict", run, "-", "--csv", "1"} + more);
  };
  const Outcome some = piped(digits.shop / "list");
  INFO(some.err);
  CHECK(some.code == 0);
  CHECK(some.out == run_well({"predict", run, digits.file(0), digits.file(1), digits.file(2), "--csv"}).out);
  write_file(digits.shop / "blank", "\n\r\n");
  for (const std::string& list : {std::string("/dev/null"), digits.shop / "blank"}) {
    const Outcome none = piped(list);
    CHECK(none.code == 1);
    CHECK_THAT(none.err, Catch::Contains("stdin is empty; it should have names of files or folders, a line "
                                         "each, or an image"));
    const Outcome other = piped(list, {digits.file(0)});
    CHECK(other.code == 1);
    CHECK(count(other.out, "\n") == 2);
  }
}

TEST_CASE("predict reads names from the file of --paths, after those of the command line") {
  const Digits digits;
  const std::string run = digits.shop / "run", list = digits.shop / "list";
  write_file(list, digits.file(1) + "\n" + digits.file(2));
  const std::string all =
      run_well({"predict", run, digits.file(0), digits.file(1), digits.file(2), "--csv"}).out;
  CHECK(run_well({"predict", run, digits.file(0), "--paths", list, "--csv"}).out == all);
  CHECK(run_in_shell("\"$@\" < '" + list + "'", {"predict", run, digits.file(0), "--paths", "-", "--csv"})
            .out == all);
  CHECK(count(run_well({"predict", run, "--paths", list, "--csv"}).out, "\n") == 3);
  write_file(list, "\n");
  check_refused({"predict", run, "--paths", list}, list + ": has no names of files or folders, a line each",
                1);
  check_refused({"predict", run, "--paths", "-", "-"}, "--paths - reads names from stdin, and so does");
  check_refused({"predict", run, "--paths", digits.shop / "none"}, "none: ");
  check_refused({"predict", run}, "as --paths LIST does from a file");
}

TEST_CASE("predict says what is no file, and prints every name on its line") {
  const Digits digits;
  const std::string run = digits.shop / "run", pipe = digits.shop / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const Outcome others = run_program({"predict", run, pipe, "/dev/zero", digits.file(0)});
  CHECK(others.code == 1);
  CHECK_THAT(others.err,
             Catch::Contains("skipped: " + pipe + ": is a pipe; only regular files can be read") &&
                 Catch::Contains("skipped: /dev/zero: is a device; only regular files can be read"));
  const std::string odd = digits.shop / "a\nb\tc\x1b[31m \u00e9.png";
  std::filesystem::copy(digits.file(0), odd);
  const Outcome table = run_well({"predict", run, odd, digits.file(1), "--top", "1"});
  CHECK(count(table.out, "\n") == 2);
  CHECK(table.out.starts_with(digits.shop / "a\\x0ab\\x09c\\x1b[31m \u00e9.png "));
  const Outcome none = run_program({"predict", run, digits.shop / "no\nne.png", digits.file(0)});
  CHECK_THAT(none.err, Catch::Contains("skipped: " + (digits.shop / "no\\x0ane.png") + ": no such file\n"));
  CHECK(predicted({run, odd})["files"][0]["file"] == odd);
}

TEST_CASE("predict prints results as they come") {
  const Digits digits;
  const std::string bad = digits.shop / "none.png";
  const Outcome mixed = run_in_shell(
      "\"$@\" 2>&1", {"predict", digits.shop / "run", digits.file(0), bad, digits.file(1), "--mini", "1"});
  INFO(mixed.out);
  CHECK(mixed.code == 1);
  const std::size_t first = mixed.out.find(digits.file(0)), skipped = mixed.out.find("skipped: " + bad),
                    second = mixed.out.find(digits.file(1));
  CHECK(first < skipped);
  CHECK(skipped < second);
  CHECK(second != std::string::npos);
}

TEST_CASE("predict refuses nets that need more than the bytes of images") {
  const Digits digits;
  const Workshop& shop = digits.shop;
  const Outcome bytes = run_well(shop.mnist() + Args{"--epochs", "1", "--save-file", shop / "bytes"});
  CHECK(bytes.out.find("  use it:      convnet predict " + (shop / "bytes") + " FILE") != std::string::npos);
  // Arrays of numbers do not say what 255 is, whether they are divided by their deviations or not.
  for (const Args& options : {Args{}, Args{"--pixel-std", "1"}}) {
    std::filesystem::remove_all(shop / "floats");
    const Outcome run =
        run_well(shop.dummy() + options + Args{"--epochs", "1", "--save-file", shop / "floats"});
    CHECK(run.out.find("  use it:      convnet predict " + (shop / "floats") + " ARRAY.npy...") !=
          std::string::npos);
    check_refused({"predict", shop / "floats", digits.file(0)},
                  digits.file(0) + ": the net was trained on arrays of float32", 1);
  }
  // A second array of numbers, which is added to the fully connected layer.
  shop.write(replaced(kDefinition, "[fc10]\ntype=fc\ninputs=pool1\n",
                      "[more]\ntype=data\ndataIdx=2\n[fc10]\ntype=fc\ninputs=pool1,more\n"),
             "[conv1]\nepsW=0\nepsB=0\nmomW=0\nmomB=0\n[fc10]\nepsW=0,0\nepsB=0\nmomW=0,0\nmomB=0\n"
             "[logprob]\ncoeff=1\n");
  std::filesystem::remove_all(shop.data_path());
  shop.write_arrays();
  write_file(shop.data_path() + "/more.npy", npy_file("|u1", "2100, 5", std::string(2100 * 5, 'x')));
  run_well(shop.net() + Args{"--data-provider", "npy", "--data-path", shop.data_path(), "--epochs", "1",
                             "--save-file", shop / "two"});
  check_refused({"predict", shop / "two", digits.file(0)},
                "net.cfg:21: layer 'more' reads matrix 2 of the data set (dataIdx=2)");
}

TEST_CASE("predict answers each name on stdin before it waits for the next") {
  const Digits digits;
  const std::string names = digits.shop / "names";
  REQUIRE(mkfifo(names.c_str(), 0600) == 0);
  Program program(in_shell("\"$@\" < '" + names + "'", {"predict", digits.shop / "run", "-", "--csv"}),
                  "/bin/sh");
  {
    std::ofstream list(names);
    for (std::uint32_t i = 0; i < 2; ++i) {
      list << digits.file(i) << std::endl;
      REQUIRE(program.printed(digits.file(i) + ",", 1));
    }
    // Several at once, of which one is no file, come in their order.
    list << digits.file(2) << "\n"
         << digits.shop / "none.png"
         << "\n"
         << digits.file(3) << std::endl;
    REQUIRE(program.printed(digits.file(3) + ",", 1));
  }
  const Outcome outcome = program.finish();
  CHECK(outcome.code == 1);
  CHECK(outcome.out == run_well({"predict", digits.shop / "run", digits.file(0), digits.file(1),
                                 digits.file(2), digits.file(3), "--csv"})
                           .out);
  CHECK_THAT(outcome.err, Catch::Contains("1 of 5 inputs could not be classified"));
}

TEST_CASE("predict classifies an image on stdin") {
  const Digits digits;
  const std::string run = digits.shop / "run";
  const auto piped = [&](const std::string& bytes, const Args& more = {}) {
    write_file(digits.shop / "stdin", bytes);
    // In two pieces, the first of which ends in the signature.
    return run_in_shell("(head -c 3 '" + digits.shop / "stdin" + "'; sleep 0.1; tail -c +4 '" +
                            digits.shop / "stdin" + "') | \"$@\"",
                        Args{"predict", run, "-", "--csv", "1"} + more);
  };
  const Outcome image = piped(read_file(digits.file(0)));
  INFO(image.err);
  CHECK(image.code == 0);
  const std::string named = run_well({"predict", run, digits.file(0), "--csv"}).out;
  CHECK(image.out == replaced(named, digits.file(0) + ",", "'-,"));
  // With names of files before and after it.
  const Outcome both = piped(read_file(digits.file(0)), {digits.file(1)});
  CHECK(both.code == 0);
  CHECK(count(both.out, "\n") == 3);
  const Outcome damaged = piped(read_file(digits.file(0)).substr(0, 40));
  CHECK(damaged.code == 1);
  CHECK_THAT(damaged.err, Catch::StartsWith("skipped: -: "));
  const Outcome array = piped(npy_file("|u1", "1, 1, 8, 8", std::string(64, '\1')));
  CHECK(array.code == 1);
  CHECK_THAT(array.err, Catch::Contains("stdin is an array"));
  const Outcome nothing = piped(std::string("\0\n", 2));
  CHECK(nothing.code == 1);
  CHECK_THAT(nothing.err, Catch::Contains("a name has no NUL (zero byte)"));
}

/// Writes net.cfg and params.cfg of a net that tells photographs of four classes apart.
void write_photo_net(const TempFolder& folder) {
  write_file(folder / "net.cfg",
             "[data]\ntype=data\ndataIdx=0\n[labels]\ntype=data\ndataIdx=1\n"
             "[fc]\ntype=fc\ninputs=data\noutputs=4\n[probs]\ntype=softmax\ninputs=fc\n"
             "[logprob]\ntype=cost.logreg\ninputs=labels,probs\n");
  write_file(folder / "params.cfg",
             "[fc]\nepsW=0.00001\nepsB=0.001\nmomW=0.9\nmomB=0.9\n[logprob]\ncoeff=1\n");
}

TEST_CASE("photographs get the names of their folders, whatever their sizes") {
  const TempFolder folder;
  write_photo_net(folder);
  const std::vector<image_sets::Item> items = image_sets::photographs(40, 4, 20);
  image_sets::write_folders(folder / "set/train", items);
  image_sets::write_folders(folder / "set/val", {items.begin(), items.begin() + 12});
  run_well({"--layer-def",     folder / "net.cfg",
            "--layer-params",  folder / "params.cfg",
            "--data-provider", "image",
            "--data-path",     folder / "set",
            "--train-range",   "1",
            "--test-range",    "2",
            "--inner-size",    "16",
            "--image-size",    "20",
            "--mini",          "8",
            "--epochs",        "2",
            "--save-file",     folder / "run"});
  const Args asked = {folder / "run", folder / "set/val", "--top", "4"};
  const json single = predicted(asked), several = predicted(asked + Args{"--multiview-test", "1"});
  REQUIRE(single["files"].size() == 12);
  for (const json& c : single["files"][0]["classes"]) CHECK(c["class"].get<std::string>().starts_with("c"));
  CHECK(single["files"][0]["classes"] != several["files"][0]["classes"]);

  // Classes keep their numbers for all of a run's life.
  const auto data = [&](const std::string& set) {
    return Args{"--load-file", folder / "run", "--data-path", folder / set};
  };
  image_sets::write_folders(folder / "fewer/train", items);
  image_sets::write_folders(folder / "fewer/val", {items.begin(), items.begin() + 12});
  for (const std::string part : {"train", "val"})
    std::filesystem::remove_all(folder / ("fewer/" + part + "/c0"));
  const std::string moved =
      "the data set does not fit: it has 3 of the 4 classes that the net was trained on, and not 'c0': in "
      "folders of classes, an empty folder of that name keeps its place";
  check_refused(data("fewer") + Args{"--test-only", "1"}, moved);
  check_refused(data("fewer") + Args{"--epochs", "3"}, moved);
  check_refused({"show", folder / "run", "--data-path", folder / "fewer", "--save-preds", folder / "p.csv"},
                moved);
  for (const std::string part : {"train", "val"})
    std::filesystem::create_directory(folder / ("fewer/" + part + "/c0"));
  run_well(data("fewer") + Args{"--test-only", "1"});  // a class without images
  // A class with a new name is the same class.
  image_sets::write_folders(folder / "named/train", items);
  image_sets::write_folders(folder / "named/val", {items.begin(), items.begin() + 12});
  for (const std::string part : {"train", "val"})
    std::filesystem::rename(folder / ("named/" + part + "/c3"), folder / ("named/" + part + "/cat"));
  const Outcome named = run_well(data("named") + Args{"--test-only", "1"});
  CHECK(named.err.find("warning: class 3 is 'cat' in the data set, but was 'c3' where the net was trained") !=
        std::string::npos);
}

TEST_CASE("predict scales files to the size that the data set's batches.meta gives") {
  const TempFolder folder;
  write_photo_net(folder);
  const std::vector<image_sets::Item> items = image_sets::photographs(12, 4, 40);
  std::filesystem::create_directory(folder / "set");
  write_file(folder / "set/batches.meta", image_sets::meta(4, 12, 40));
  Args files;
  for (const int batch : {1, 2}) image_sets::write_batch(folder / "set", batch, items, 12);
  for (std::size_t i = 0; i < items.size(); ++i) {
    files.push_back(folder / (std::to_string(i) + ".jpg"));
    write_file(files.back(), items[i].bytes);
  }
  run_well({"--layer-def", folder / "net.cfg", "--layer-params", folder / "params.cfg", "--data-provider",
            "image", "--data-path", folder / "set", "--train-range", "1", "--test-range", "2", "--inner-size",
            "16", "--epochs", "1", "--save-file", folder / "run"});
  run_well({"--load-file", folder / "run", "--test-out", folder / "tested"});
  const std::vector<float> tested = numbers_of(folder / "tested/probabilities_2.npy");
  const json found = predicted(Args{folder / "run"} + files + Args{"--top", "4"})["files"];
  REQUIRE(tested.size() == 4 * files.size());
  REQUIRE(found.size() == files.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    for (const json& c : found[i]["classes"])
      CHECK(c["probability"].get<double>() ==
            Approx(static_cast<double>(tested[4 * i + c["index"].get<std::size_t>()])).margin(1e-5));
  }
}

}  // namespace convnet
