// convnet predict for arrays of images, in files of NumPy.
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/cli/small_net.h"
#include "tests/larger.h"
#include "tests/providers/image_sets.h"

namespace convnet {
namespace {

using nlohmann::json;

constexpr int kRecords = 40, kTested = 20;

/// The bytes of the numbers that `number_of(image, pixel)` gives `count` images of 64 pixels.
template <class T, class F>
std::string bytes_of_images(int count, const F& number_of) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    for (int p = 0; p < 64; ++p) {
      const T value = number_of(i, p);
      bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
  }
  return bytes;
}

float float_pixel(int image, int pixel) {
  return static_cast<float>((pixel * (image * 7 % 10 + 3) + image * 31) % 256) / 100 - 1;
}

/// A run on float32 images with labels, and the images of its test in the array test.npy.
class FloatImages {
 public:
  explicit FloatImages(const std::string& dims = "1, 8, 8", const Args& options = {}) {
    for (const auto& [part, count] : {std::pair<std::string, int>{"train", kRecords}, {"val", kTested}}) {
      const std::string folder = shop.data_path() + "/" + part;
      std::filesystem::create_directories(folder);
      std::string labels;
      for (int i = 0; i < count; ++i) labels += static_cast<char>(i * 7 % 10);
      write_file(folder + "/images.npy", npy_file("<f4", std::to_string(count) + ", " + dims,
                                                  bytes_of_images<float>(count, float_pixel)));
      write_file(folder + "/labels.npy", npy_file("|u1", std::to_string(count) + ",", labels));
    }
    std::filesystem::copy(shop.data_path() + "/val/images.npy", array());
    run_well(shop.net() +
             Args{"--data-provider", "npy", "--data-path", shop.data_path(), "--epochs", "2", "--save-file",
                  shop / "run"} +
             options);
  }
  std::string array() const { return shop / "test.npy"; }
  json predicted(const Args& options = {}) const {
    return json::parse(
        run_well(Args{"predict", shop / "run", array(), "--json", "--top", "10"} + options).out)["files"];
  }

  Workshop shop;
};

/// The largest difference between the probabilities of predict and those of the run's test.
double distance_to_probabilities(const FloatImages& images, const Args& options) {
  const std::string tested = images.shop / "tested";
  run_well(Args{"--load-file", images.shop / "run", "--test-out", tested} + options);
  const std::string bytes = read_file(tested + "/probabilities_2.npy");
  const std::string_view numbers = std::string_view(bytes).substr(bytes.find('\n') + 1);
  REQUIRE(numbers.size() == 10 * kTested * sizeof(float));
  const json found = images.predicted(options);
  REQUIRE(found.size() == kTested);
  double worst = 0;
  for (std::size_t i = 0; i < kTested; ++i) {
    CHECK(found[i]["file"] == images.array() + "[" + std::to_string(i) + "]");
    REQUIRE(found[i]["classes"].size() == 10);
    for (const json& c : found[i]["classes"]) {
      float expected = 0;
      std::memcpy(&expected, numbers.data() + (10 * i + c["index"].get<std::size_t>()) * sizeof expected,
                  sizeof expected);
      worst = test::larger(worst, std::abs(c["probability"].get<double>() - static_cast<double>(expected)));
    }
  }
  return worst;
}

}  // namespace

TEST_CASE("predict gives records of a float32 array the probabilities of the run's test") {
  struct Case {
    std::string dims;
    Args training, testing;
  };
  for (const Case& c : std::vector<Case>{{"1, 8, 8", {}, {}},
                                         {"8, 8", {}, {"--mini", "7"}},
                                         {"1, 8, 8", {"--pixel-std", "1"}, {}},
                                         {"1, 8, 8", {"--inner-size", "6"}, {}},
                                         {"1, 8, 8", {"--inner-size", "6"}, {"--multiview-test", "1"}}}) {
    INFO(c.dims << " " << c.training.size() << " " << c.testing.size());
    CHECK(distance_to_probabilities(FloatImages(c.dims, c.training), c.testing) < 1e-5);
  }
}

TEST_CASE("what a test writes never becomes an array of the data set") {
  const FloatImages set;
  for (const std::string part : {"train", "val"}) {
    const std::string folder = set.shop.data_path() + "/" + part;
    for (const Args& output : {Args{"--test-out", folder, "--test-only", "1"},
                               Args{"--feature-path", folder, "--write-features", "fc"}})
      check_refused(Args{"--load-file", set.shop / "run"} + output,
                    output[0] + " " + folder + ": holds the arrays of the data set");
    CHECK(files_in(folder) == std::vector<std::string>{"images.npy", "labels.npy"});
  }
  run_well(
      {"--load-file", set.shop / "run", "--test-only", "1", "--test-out", set.shop.data_path() + "/probs"});
}

TEST_CASE("a small set of arrays without those of tests is told where to put them") {
  const Workshop shop;
  std::filesystem::create_directory(shop.data_path());
  write_file(shop.data_path() + "/images.npy",
             npy_file("<f4", "20, 1, 8, 8", bytes_of_images<float>(20, float_pixel)));
  check_refused(shop.net() + Args{"--data-provider", "npy", "--data-path", shop.data_path(), "--save-file",
                                  shop / "run"},
                "put the arrays to train with into a folder train, and those to test with into a folder val");
}

TEST_CASE("predict prints records of arrays as it prints files") {
  const FloatImages images;
  const std::string run = images.shop / "run";
  const Outcome lines = run_well({"predict", run, images.array(), "--top", "1"});
  CHECK(count(lines.out, "\n") == kTested);
  CHECK(lines.out.starts_with(images.array() + "[0]   "));  // as wide as [19], and two blanks
  const std::string csv = run_well({"predict", run, images.array(), "--csv", "--output", "fc10"}).out;
  CHECK(count(csv, "\n") == kTested + 1);
  CHECK_THAT(csv, Catch::Contains("fc10[9]\n") && Catch::Contains("\n" + images.array() + "[19],"));
  write_file(images.shop / "list", images.array() + "\n");
  const Outcome listed = run_in_shell("\"$@\" < '" + (images.shop / "list") + "'",
                                      {"predict", run, "-", "--csv", "--output", "fc10"});
  CHECK(listed.out == csv);
}

TEST_CASE("predict takes bytes of arrays for nets of bytes, beside files of images") {
  const Workshop shop;
  shop.write_data();
  run_well(shop.mnist() + Args{"--save-file", shop / "run", "--epochs", "2"});
  const auto pixel = [](int i, int p) { return static_cast<std::uint8_t>((p * (i + 3) + i * 31) % 256); };
  const std::string array = shop / "x.npy", png = shop / "x.png";
  write_file(array, npy_file("|u1", "4, 8, 8", bytes_of_images<std::uint8_t>(4, pixel)));
  std::vector<std::uint8_t> pixels;
  for (int p = 0; p < 64; ++p) pixels.push_back(pixel(2, p));
  write_file(png, test_images::png(8, 8, 1, pixels));
  const json files = json::parse(run_well({"predict", shop / "run", array, png, "--json"}).out)["files"];
  REQUIRE(files.size() == 5);
  CHECK(files[2]["file"] == array + "[2]");
  CHECK(files[4]["file"] == png);
  CHECK(files[2]["classes"] == files[4]["classes"]);
  CHECK(files[2]["classes"] != files[3]["classes"]);
}

TEST_CASE("predict takes records of numbers that are no images") {
  const Workshop shop;
  std::filesystem::create_directory(shop.data_path());
  shop.write(
      "[data]\ntype=data\ndataIdx=0\n[labels]\ntype=data\ndataIdx=1\n"
      "[fc]\ntype=fc\ninputs=data\noutputs=4\n[probs]\ntype=softmax\ninputs=fc\n"
      "[logprob]\ntype=cost.logreg\ninputs=labels,probs\n",
      "[fc]\nepsW=0.001\nepsB=0.001\nmomW=0.9\nmomB=0.9\n[logprob]\ncoeff=1\n");
  const auto pixel = [](int i, int p) { return static_cast<std::uint8_t>((p * (i + 3)) % 256); };
  const std::string images = shop.data_path() + "/images.npy";
  write_file(images, npy_file("|u1", "2000, 64", bytes_of_images<std::uint8_t>(2000, pixel)));
  std::string labels;
  for (int i = 0; i < 2000; ++i) labels += static_cast<char>(i % 4);
  write_file(shop.data_path() + "/labels.npy", npy_file("|u1", "2000,", labels));
  const Outcome trained =
      run_well(shop.net() + Args{"--data-provider", "npy", "--data-path", shop.data_path(), "--save-file",
                                 shop / "run", "--epochs", "1"});
  CHECK_THAT(trained.out, Catch::Contains("convnet predict " + (shop / "run") + " ARRAY.npy..."));
  write_file(shop / "x.npy", npy_file("|u1", "3, 64", bytes_of_images<std::uint8_t>(3, pixel)));
  CHECK(count(run_well({"predict", shop / "run", shop / "x.npy"}).out, "\n") == 3);
  check_refused({"predict", shop / "run", shop / "x.png"},
                (shop / "x.png") + ": the net was not trained on images but on 64 numbers each", 1);
}

TEST_CASE("predict skips arrays that do not fit the net's data set, and records that are not finite") {
  const FloatImages images;
  const Workshop& shop = images.shop;
  const std::string run = shop / "run", bad = shop / "bad.npy";
  const auto refused_as = [&](const std::string& contents, const std::string& why) {
    write_file(bad, contents);
    check_refused({"predict", run, bad}, bad + ": " + why, 1);
    const Outcome mixed = run_program({"predict", run, bad, images.array()});
    INFO(mixed.err);
    CHECK(mixed.code == 1);
    CHECK(count(mixed.out, "\n") == kTested);
    CHECK_THAT(mixed.err, Catch::Contains("skipped: " + bad + ": " + why) &&
                              Catch::Contains("1 of 21 inputs could not be classified"));
  };
  const std::string floats = bytes_of_images<float>(3, float_pixel);
  refused_as(npy_file("<f4", "3, 64", floats),
             "its shape is 3x64, so each of its records has 64 numbers, but the net's data set has images of "
             "1x8x8");
  refused_as(npy_file("<f4", "3, 1, 1, 8, 8", floats), "its shape is 3x1x1x8x8; arrays are (N)");
  refused_as(npy_file("|u1", "3, 8, 8", std::string(192, 'x')),
             "its numbers are bytes (uint8), but the net's data set has other numbers");
  refused_as("no array at all", "is not a .npy file");
  // Wider types become float32, as provider npy reads them.
  write_file(bad, npy_file("<f8", "3, 8, 8", bytes_of_images<double>(3, float_pixel)));
  CHECK(count(run_well({"predict", run, bad}).out, "\n") == 3);

  write_file(bad, npy_file("<f4", "3, 8, 8", bytes_of_images<float>(3, [](int i, int p) {
                             return i == 1 && p == 5 ? std::numeric_limits<float>::infinity() : 1.0F;
                           })));
  const Outcome two = run_program({"predict", run, bad});
  CHECK(two.code == 1);
  CHECK(count(two.out, "\n") == 2);
  CHECK_THAT(two.err, Catch::Contains("skipped: " + bad + ": record 1 (counted from 0) has the number inf") &&
                          Catch::Contains("1 of 3 inputs could not be classified"));
  const Outcome in_json = run_program({"predict", run, bad, "--json"});
  CHECK(json::parse(in_json.out)["files"][1]["file"] == bad + "[1]");
  CHECK(json::parse(in_json.out)["files"][1].contains("error"));
}

TEST_CASE(
    "predict refuses arrays of other numbers for nets of bytes, and all arrays for nets of photographs") {
  const Workshop shop;
  shop.write_data();
  run_well(shop.mnist() + Args{"--save-file", shop / "bytes", "--epochs", "1"});
  write_file(shop / "x.npy", npy_file("<f4", "3, 8, 8", bytes_of_images<float>(3, float_pixel)));
  check_refused({"predict", shop / "bytes", shop / "x.npy"},
                (shop / "x.npy") + ": its numbers are no bytes, but the net's data set has images of uint8",
                1);
  shop.write(
      "[data]\ntype=data\ndataIdx=0\n[labels]\ntype=data\ndataIdx=1\n"
      "[fc]\ntype=fc\ninputs=data\noutputs=4\n[probs]\ntype=softmax\ninputs=fc\n"
      "[logprob]\ntype=cost.logreg\ninputs=labels,probs\n",
      "[fc]\nepsW=0.00001\nepsB=0.001\nmomW=0.9\nmomB=0.9\n[logprob]\ncoeff=1\n");
  image_sets::write_folders(shop / "photos/train", image_sets::photographs(16, 4, 20));
  image_sets::write_folders(shop / "photos/val", image_sets::photographs(8, 4, 20));
  run_well(shop.net() + Args{"--data-provider", "image", "--data-path", shop / "photos", "--inner-size", "16",
                             "--image-size", "20", "--epochs", "1", "--save-file", shop / "run"});
  check_refused({"predict", shop / "run", shop / "x.npy"},
                (shop / "x.npy") + ": the net was trained on photographs (--data-provider image)", 1);
}

}  // namespace convnet
