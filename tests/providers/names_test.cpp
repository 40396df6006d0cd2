// File names of images in pickles, and of those that take an unreadable image's place.
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "convnet/base/error.h"
#include "providers/provider.h"
#include "providers/registry.h"
#include "tests/catch.h"
#include "tests/providers/image_sets.h"

using namespace convnet;

namespace {

using namespace image_sets;
using namespace pickles;
using Entries = std::vector<std::pair<std::string, std::string>>;

std::string name_list(const std::vector<std::string>& texts) {
  std::vector<std::string> items;
  for (const std::string& text : texts) items.push_back(str(text));
  return list(items);
}

/// The names of the first `images` images of a batch.
std::vector<std::string> names_of(const Provider& provider, int batch, std::int64_t images) {
  std::vector<std::string> out;
  for (std::int64_t i = 0; i < images; ++i) out.push_back(provider.image_name(batch, i));
  return out;
}

/// Four grey images of 3x4x4.
Entries small_images() {
  return {{"data", array({4, 48}, "u1", std::string(192, '\1'))}, {"labels", integers({0, 1, 0, 1})}};
}

}  // namespace

TEST_CASE("images of CIFAR's pickles have the names in their files", "[names]") {
  const TempFolder folder;
  write_file(folder / "batches.meta",
             pickle_file(dict({{"num_vis", integer(48)}, {"label_names", name_list({"a", "b"})}})));
  const auto write = [&](int batch, const std::string& filenames) {
    Entries entries = small_images();
    if (!filenames.empty()) entries.emplace_back("filenames", filenames);
    write_file(folder / ("data_batch_" + std::to_string(batch)), pickle_file(dict(entries)));
  };
  write(1, name_list({"w.png", "x.png", "y\n.png", "z.png"}));
  write(2, "");
  write(3, name_list({"w.png"}));
  write(4, list({str("w.png"), str("x.png"), integer(3), str("z.png")}));
  const auto provider = make_provider("cifar", folder.path(), 1, {});
  CHECK(names_of(*provider, 1, 4) == std::vector<std::string>{"w.png", "x.png", "y\n.png", "z.png"});
  CHECK(names_of(*provider, 2, 4) == std::vector<std::string>(4));
  CHECK_THAT(
      message_of<InputError>([&] { provider->image_name(3, 0); }),
      Catch::EndsWith("filenames should be a list of 4 names, one for each image, not a list of 1 values"));
  CHECK_THAT(message_of<InputError>([&] { provider->image_name(4, 0); }),
             Catch::Contains("a name in filenames"));
  // Crops are of the same images.
  ImageOptions crops;
  crops.inner_size = 2;
  CHECK(make_provider("cifar", folder.path(), 1, crops)->image_name(1, 3) == "z.png");
}

TEST_CASE("the batches cut from CIFAR-100's file have their images' names", "[names]") {
  const TempFolder folder;
  std::vector<std::string> labels, files;
  for (int i = 0; i < 100; ++i) labels.push_back("l" + std::to_string(i));
  for (int i = 0; i < 10; ++i) files.push_back(std::to_string(i) + ".png");
  const std::vector<std::string> coarse(labels.begin(), labels.begin() + 20);
  write_file(folder / "meta", pickle_file(dict({{"fine_label_names", name_list(labels)},
                                                {"coarse_label_names", name_list(coarse)}})));
  const std::vector<int> zeros(10);
  const std::string split = pickle_file(dict({{"data", array({10, 3072}, "u1", std::string(30720, '\1'))},
                                              {"fine_labels", integers(zeros)},
                                              {"coarse_labels", integers(zeros)},
                                              {"filenames", name_list(files)}}));
  write_file(folder / "train", split);
  write_file(folder / "test", split);
  const auto provider = make_provider("cifar", folder.path(), 1, {});
  CHECK(names_of(*provider, 2, 2) == std::vector<std::string>{"2.png", "3.png"});
  CHECK(names_of(*provider, 6, 2) == std::vector<std::string>{"0.png", "1.png"});
}

TEST_CASE("photographs in pickles have the names in their files", "[names]") {
  const TempFolder folder;
  const std::vector<Item> items = photographs(4, 2, 16);
  write_file(folder / "batches.meta", meta(2, 10, 16));
  std::filesystem::create_directories(folder / "data_batch_1");
  const auto write = [&](int file, const std::string& filenames) {
    Entries entries = {{"data", list({str(items[0].bytes), str(items[1].bytes)})},
                       {"labels", integers({0, 1})}};
    if (!filenames.empty()) entries.emplace_back("filenames", filenames);
    write_file(folder / ("data_batch_1/data_batch_1." + std::to_string(file)), pickle_file(dict(entries)));
  };
  ImageOptions options;
  options.image_size = 16;
  const auto open = [&] { return make_provider("image", folder.path(), 1, options); };
  write(0, name_list({"a.jpg", "b.jpg"}));
  write(1, "");
  write(2, name_list({"c.jpg", "d.jpg"}));
  const auto provider = open();
  CHECK(provider->image_name(1, 5) == "d.jpg");
  CHECK(names_of(*provider, 1, 6) == std::vector<std::string>{"a.jpg", "b.jpg", "", "", "c.jpg", "d.jpg"});
  write(1, name_list({"c.jpg"}));
  CHECK_THAT(message_of<InputError>([&] {
               open()->read({1, 0}, {});
             }),
             Catch::Contains("filenames should be a list of 2 names"));
}

TEST_CASE("the image that takes an unreadable one's place keeps its own name", "[names]") {
  const TempFolder folder;
  std::vector<Item> items = photographs(4, 4, 16);
  items[1].bytes = "no image";
  write_file(folder / "a.tar", tar_of(items));
  ImageOptions options;
  options.image_size = 16;
  options.skip_bad_images = true;
  const auto provider = make_provider("image", folder.path(), 1, options);
  provider->read({1, 0}, {});
  CHECK(names_of(*provider, 1, 4) ==
        std::vector<std::string>{"s/1000.jpg", "s/1002.jpg", "s/1002.jpg", "s/1003.jpg"});
}

TEST_CASE("a pickle that repeats one name or list by reference takes no more memory than it has bytes",
          "[names]") {
  // One value goes to the memo (opcode q), and the list takes it from there (opcode h) again and again.
  const auto repeated = [](const std::string& value, int times) {
    std::string items = value + std::string("q\0", 2);
    for (int i = 1; i < times; ++i) items += std::string("h\0", 2);
    return list({items});
  };
  const TempFolder folder;
  const auto cifar_meta = [&](const std::string& names) {
    write_file(folder / "batches.meta",
               pickle_file(dict({{"num_vis", integer(48)}, {"label_names", names}})));
  };
  const auto open = [&] { return make_provider("cifar", folder.path(), 1, {}); };
  Entries entries = small_images();
  entries.emplace_back("filenames", repeated(str("one name"), 4));
  write_file(folder / "data_batch_1", pickle_file(dict(entries)));
  cifar_meta(name_list({"a", "b"}));
  CHECK(names_of(*open(), 1, 4) == std::vector<std::string>(4, "one name"));
  entries.back().second = repeated(str(std::string(1000, 'x')), 4);
  write_file(folder / "data_batch_1", pickle_file(dict(entries)));
  CHECK_THAT(message_of<InputError>([&] { open()->image_name(1, 0); }),
             Catch::EndsWith("the names in filenames have more bytes than the file"));
  cifar_meta(repeated(str(std::string(1000, 'x')), 100));
  CHECK_THAT(message_of<InputError>(open),
             Catch::EndsWith("the names in label_names have more bytes than the file"));

  const TempFolder photos;
  write_file(photos / "batches.meta", meta(200, 1000, 16));
  const std::string image = photographs(1, 1, 16)[0].bytes;
  const auto many_labels = [&](int images) {
    const std::string labels = repeated(integers(std::vector<int>(200)), images);
    write_file(photos / "data_batch_1",
               pickle_file(dict({{"data", repeated(str(image), images)}, {"labels", labels}})));
    ImageOptions options;
    options.image_size = 16;
    return make_provider("image", photos.path(), 1, options)->read({1, 0}, {});
  };
  CHECK(many_labels(2).images == 2);
  CHECK_THAT(message_of<InputError>([&] { many_labels(1000); }),
             Catch::EndsWith("there are more labels than the file has bytes: it repeats lists of them"));
}
