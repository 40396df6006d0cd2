// Tests that make_data() writes the same bytes, whatever interrupts it.
#include "convnet/data/make_data.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "convnet/base/error.h"
#include "providers/pickle.h"
#include "tests/catch.h"
#include "tests/data/image_folders.h"

using namespace convnet;

namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;

void no_report(const MakeDataProgress&) {}

/// Classes "cat" and "dog": eight training images of one colour each, (20 i, 10, 255 - 20 i), and three for
/// validation; made with small options.
struct Workplace {
  Workplace() {
    for (int i = 0; i < 8; ++i)
      write_below(source.path(), (i % 3 == 0 ? "train/cat/" : "train/dog/") + std::to_string(i) + ".png",
                  plain_png(20 + i, 40 - i, static_cast<std::uint8_t>(20 * i), 10,
                            static_cast<std::uint8_t>(255 - 20 * i)));
    for (int i = 0; i < 3; ++i)
      write_below(source.path(), (i == 0 ? "val/cat/" : "val/dog/") + std::to_string(i) + ".png",
                  plain_png(16, 30, static_cast<std::uint8_t>(50 * i), 200, 100));
    options.folder = target / "set";
    options.size = 16;
    options.batch_size = 3;
  }
  MakeDataResult make() const { return make_data(find_labelled_images(source.path()), options, no_report); }
  std::string error() const {
    return message_of<InputError>([&] { make(); });
  }
  PickleValue pickle(const std::string& name) const { return read_pickle(options.folder + "/" + name); }

  TempFolder source, target;
  MakeDataOptions options;
};

struct Batch {
  std::vector<DecodedImage> images;
  std::vector<std::vector<std::int64_t>> labels;
};

Batch read_part(const PickleValue& part) {
  Batch batch;
  const PickleValue data = *part.find("data"), labels = *part.find("labels");
  REQUIRE(part.size() == 4);
  REQUIRE(data.size() == labels.size());
  for (std::size_t i = 0; i < data.size(); ++i) {
    CHECK(data[i].kind() == PickleKind::bytes);
    CHECK(data[i].string("an image").starts_with("\xff\xd8"));
    batch.images.push_back(decode_image(data[i].string("an image"), "an image"));
    batch.labels.push_back(labels[i].integers("labels"));
  }
  return batch;
}

std::set<std::string> names_of(const std::map<std::string, std::string>& files) {
  std::set<std::string> names;
  for (const auto& file : files) names.insert(file.first);
  return names;
}

}  // namespace

TEST_CASE("batches hold each image once, as JPEG, with its class", "[make_data]") {
  const Workplace place;
  const MakeDataResult made = place.make();
  CHECK(made.training_images == 8);
  CHECK(made.training_batches == 3);
  CHECK(made.validation_images == 3);
  CHECK(made.first_validation_batch == 1000);
  CHECK(made.validation_batches == 1);
  CHECK(made.bad_images.empty());
  CHECK(names_of(all_files(place.options.folder)) ==
        std::set<std::string>{"batches.meta", "data_batch_0/data_batch_0.0", "data_batch_1/data_batch_1.0",
                              "data_batch_2/data_batch_2.0", "data_batch_1000/data_batch_1000.0"});

  std::vector<int> order;
  for (const int b : {0, 1, 2}) {
    const Batch batch = read_part(
        place.pickle("data_batch_"s + std::to_string(b) + "/data_batch_" + std::to_string(b) + ".0"));
    CHECK(batch.images.size() == (b < 2 ? 3 : 2));
    for (std::size_t i = 0; i < batch.images.size(); ++i) {
      const DecodedImage& image = batch.images[i];
      CHECK(image.height == 16);
      CHECK(image.width == 16);
      const int number = (image.pixels[0] + 10) / 20;
      order.push_back(number);
      for (std::size_t p = 0; p < image.pixels.size(); p += 3) {
        REQUIRE(std::abs(image.pixels[p] - 20 * number) <= 3);
        REQUIRE(std::abs(image.pixels[p + 1] - 10) <= 3);
        REQUIRE(std::abs(image.pixels[p + 2] - (255 - 20 * number)) <= 3);
      }
      CHECK(batch.labels[i] == std::vector<std::int64_t>{number % 3 == 0 ? 0 : 1});
    }
  }
  CHECK(std::set<int>(order.begin(), order.end()).size() == 8);
  CHECK_FALSE(std::is_sorted(order.begin(), order.end()));

  const Batch validation = read_part(place.pickle("data_batch_1000/data_batch_1000.0"));
  REQUIRE(validation.images.size() == 3);
  for (int i = 0; i < 3; ++i)  // in order
    CHECK(std::abs(validation.images[static_cast<std::size_t>(i)].pixels[0] - 50 * i) <= 3);
  CHECK(validation.labels == std::vector<std::vector<std::int64_t>>{{0}, {1}, {1}});
}

TEST_CASE("the meta has the mean and the colours of the training images", "[make_data]") {
  const Workplace place;
  place.make();
  const PickleValue meta = place.pickle("batches.meta");
  CHECK(meta.find("batch_size")->integer("it") == 3);
  CHECK(meta.find("num_vis")->integer("it") == 768);
  CHECK(meta.find("img_size")->integer("it") == 16);
  CHECK(meta.find("label_offset")->integer("it") == 0);
  CHECK(meta.find("label_kind")->string("it") == "classes");
  const PickleValue names = *meta.find("label_names");
  REQUIRE(names.size() == 2);
  CHECK(names[0].string("it") == "cat");
  CHECK(names[1].string("it") == "dog");
  const PickleArray& mean = meta.find("data_mean")->array("it");
  CHECK(mean.dims == Dims{768, 1});
  CHECK(mean.type == 'f');
  for (std::size_t i = 0; i < 768; ++i)  // means of 20 i, 10, 255 - 20 i
    REQUIRE(mean.number(i) == (i < 256 ? 70 : i < 512 ? 10 : 185));
  const PickleValue pca = *meta.find("color_pca");
  CHECK(pca.kind() == PickleKind::tuple);
  REQUIRE(pca.size() == 2);
  CHECK(pca[0].array("it").dims == Dims{3});
  CHECK(pca[1].array("it").dims == Dims{3, 3});
  const std::vector<double> deviations = pca[0].numbers("it"), vectors = pca[1].numbers("it");
  // Red and blue go against each other in steps of 20; the variance of 0…7 is 5.25.
  CHECK(deviations[0] == Approx(20 * std::sqrt(2 * 5.25)).epsilon(1e-5));
  CHECK(deviations[1] == Approx(0).margin(1e-3));
  CHECK(std::abs(vectors[0]) == Approx(std::sqrt(0.5)).epsilon(1e-5));
  CHECK(vectors[3] == Approx(0).margin(1e-5));
  CHECK(vectors[6] == Approx(-vectors[0]).epsilon(1e-5));
}

TEST_CASE("the meta does not promise more images than the largest batch has", "[make_data]") {
  Workplace place;
  place.options.batch_size = 1024;
  place.make();
  CHECK(place.pickle("batches.meta").find("batch_size")->integer("it") == 8);
}

TEST_CASE("the images are scaled, and cut in the middle or not", "[make_data]") {
  const TempFolder source, target;
  // Left third red, middle green, right blue.
  DecodedImage wide{32, 96, {}};
  for (int i = 0; i < 32 * 96; ++i)
    for (int c = 0; c < 3; ++c) wide.pixels.push_back(i % 96 / 32 == c ? 250 : 5);
  write_below(source.path(), "a/wide.png", test_images::png(wide));
  MakeDataOptions options;
  options.size = 16;
  for (const bool square : {true, false}) {
    options.folder = target / (square ? "square" : "whole");
    options.crop_to_square = square;
    make_data(find_labelled_images(source.path()), options, no_report);
    const DecodedImage made =
        read_part(read_pickle(options.folder + "/data_batch_0/data_batch_0.0")).images.at(0);
    CHECK(made.height == 16);
    CHECK(made.width == (square ? 16 : 48));
    const auto at = [&](int x, std::size_t c) {
      return made.pixels[static_cast<std::size_t>(8 * made.width + x) * 3 + c];
    };
    CHECK(at(made.width / 2, 1) > 200);
    if (!square) CHECK(at(4, 0) > 200);
    if (!square) CHECK(at(44, 2) > 200);
    // The mean is that of the square in the middle either way.
    const std::vector<double> mean =
        read_pickle(options.folder + "/batches.meta").find("data_mean")->numbers("it");
    REQUIRE(mean.size() == 768);
    CHECK(mean[256 + 8 * 16 + 8] == 250);
  }
}

TEST_CASE("the seed decides the order, and threads change nothing", "[make_data]") {
  Workplace place;
  place.make();
  const auto expected = all_files(place.options.folder);
  place.options.threads = 3;
  place.options.folder = place.target / "threads";
  place.make();
  CHECK(all_files(place.options.folder) == expected);
  place.options.seed = 2;
  place.options.folder = place.target / "seed";
  place.make();
  CHECK(all_files(place.options.folder) != expected);
}

TEST_CASE("a batch of many images is several files", "[make_data]") {
  const TempFolder source, target;
  for (int i = 0; i < 1100; ++i)
    write_below(source.path(), "class/" + std::to_string(i) + ".png", plain_png(1, 1, 0, 0, 0));
  MakeDataOptions options;
  options.size = 16;
  options.batch_size = 1050;
  options.threads = 2;
  options.folder = target / "set";
  make_data(find_labelled_images(source.path()), options, no_report);
  const auto count = [&](const std::string& name) {
    return read_pickle(options.folder + "/" + name).find("data")->size();
  };
  CHECK(count("data_batch_0/data_batch_0.0") == 1024);
  CHECK(count("data_batch_0/data_batch_0.1") == 26);
  CHECK(count("data_batch_1/data_batch_1.0") == 50);
}

TEST_CASE("a run killed after any image goes on to the same bytes", "[make_data]") {
  Workplace place;
  place.options.batch_size = 2;
  place.options.folder = place.target / "whole";
  place.make();
  const auto expected = all_files(place.options.folder);
  place.options.folder = place.target / "killed";
  const LabelledImages images = find_labelled_images(place.source.path());
  int killed = 0;
  for (int reports = 1;; ++reports) {
    // Each child gets one report further, then dies: all of them work in one folder, one after the other.
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      int seen = 0;
      try {
        make_data(images, place.options, [&](const MakeDataProgress&) {
          if (++seen == reports) kill(getpid(), SIGKILL);
        });
      } catch (...) {
        _exit(1);
      }
      _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status)) {
      REQUIRE(WEXITSTATUS(status) == 0);
      break;
    }
    CHECK(WTERMSIG(status) == SIGKILL);
    CHECK_FALSE(fs::exists(place.options.folder + "/batches.meta"));
    REQUIRE(++killed < 100);
  }
  CHECK(killed > 3);
  CHECK(all_files(place.options.folder) == expected);
}

TEST_CASE("bad images stop it, or are left out", "[make_data]") {
  Workplace place;
  write_below(place.source.path(), "train/cat/0.png", "no image");
  CHECK(place.error().starts_with("train/cat/0.png: "));
  CHECK(place.error().ends_with("; --skip-bad-images 1 leaves such images out"));

  place.options.skip_bad_images = true;
  const MakeDataResult made = place.make();
  CHECK(made.training_images == 7);
  REQUIRE(made.bad_images.size() == 1);
  CHECK(made.bad_images[0].starts_with("train/cat/0.png: "));
  std::size_t images = 0;
  for (const char* part :
       {"data_batch_0/data_batch_0.0", "data_batch_1/data_batch_1.0", "data_batch_2/data_batch_2.0"})
    images += read_part(place.pickle(part)).images.size();
  CHECK(images == 7);
  CHECK(place.pickle("batches.meta").find("data_mean")->numbers("it")[0] == 80);  // the mean of 1…7, 20 times
  // Again: it says the same, and writes nothing.
  const auto before = all_files(place.options.folder);
  CHECK(place.make().bad_images == made.bad_images);
  CHECK(all_files(place.options.folder) == before);

  const TempFolder narrow;
  write_below(narrow.path(), "a/line.png", plain_png(1, 99, 0, 0, 0));
  place.options.size = 700;
  place.options.folder = place.target / "narrow";
  place.options.skip_bad_images = false;
  place.options.crop_to_square = false;
  const auto narrow_error = [&] {
    return message_of<InputError>(
        [&] { make_data(find_labelled_images(narrow.path()), place.options, no_report); });
  };
  CHECK(narrow_error().starts_with(
      "a/line.png: is too narrow: with a shorter side of 700 it would have 69300x700 pixels"));
  place.options.skip_bad_images = true;
  CHECK(narrow_error() == place.options.folder + ": no training image could be decoded");
  place.options.skip_bad_images = false;
  CHECK(narrow_error().starts_with(place.options.folder +
                                   ": bad images were left out of it before: a/line.png: is too"));
  // make-data refuses the images that a run would refuse.
  write_below(narrow.path(), "a/line.png", plain_png(2, 202, 0, 0, 0));
  place.options.folder = place.target / "line";
  CHECK(narrow_error().starts_with("a/line.png: 202 x 2 pixels; one side is more than 100 times the other"));
}

TEST_CASE("a folder with something else is refused", "[make_data]") {
  Workplace place;
  const std::string& folder = place.options.folder;
  SECTION("any file") {
    write_below(folder, "notes.txt", "mine");
    CHECK(place.error() ==
          folder + ": is not empty (notes.txt is there), and not a data set that make-data has begun");
    CHECK(all_files(folder).size() == 1);
  }
  SECTION("another data set") {
    write_below(folder, "batches.meta", "\x80\2}.");
    CHECK(place.error() == folder + ": holds another data set: its batches.meta is not from make-data");
  }
  SECTION("other options, finished") {
    place.make();
    place.options.size = 17;
    place.options.seed = 5;
    place.options.crop_to_square = false;
    CHECK(place.error() == folder +
                               ": holds a data set made with --size 16 (now 17), --crop-to-square 1 (now 0), "
                               "--seed 1 (now 5); make this one in another folder");
  }
  SECTION("other options, begun") {
    write_below(place.source.path(), "val/dog/2.png", "bad");
    CHECK(place.error().starts_with("val/dog/2.png: "));
    place.options.batch_size = 4;
    CHECK(place.error() ==
          folder + ": holds a data set made with --batch-size 3 (now 4); make this one in another folder");
  }
  SECTION("the same labels as tags") {
    place.make();
    LabelledImages tagged = find_labelled_images(place.source.path());
    tagged.kind = LabelKind::tags;
    for (auto* part : {&tagged.training, &tagged.validation})
      for (LabelledImage& image : *part) image.tags = {image.label};
    CHECK(
        message_of<InputError>([&] { make_data(tagged, place.options, no_report); }) ==
        folder +
            ": holds a data set made with --label-kind classes (now tags); make this one in another folder");
  }
  SECTION("other images") {
    place.make();
    write_below(place.source.path(), "train/cat/9.png", plain_png(9, 9, 0, 0, 0));
    CHECK(place.error() ==
          folder + ": holds a data set made with other images; make this one in another folder");
  }
  SECTION("a file that is gone") {
    place.make();
    fs::remove(folder + "/data_batch_1/data_batch_1.0");
    CHECK(place.error() ==
          folder + "/data_batch_1/data_batch_1.0: was made and is gone: remove the folder and start again");
  }
  SECTION("a damaged state") {
    write_below(folder, "make-data.state", "\x80\2}.");
    CHECK(place.error() == folder + "/make-data.state: byte 2: there is no 'made_with'; it is empty");
  }
  SECTION("another process at work") {
    fs::create_directories(folder);
    const int other = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY);
    REQUIRE(flock(other, LOCK_EX) == 0);
    CHECK(place.error() == folder + ": another make-data is at work in it");
    ::close(other);
  }
  SECTION("a place where nothing can be written") {
    write_below(place.target.path(), "file", "");
    place.options.folder = place.target / "file/set";
    CHECK(message_of<RunError>([&] { place.make(); }).starts_with(place.options.folder + ": "));
  }
}
