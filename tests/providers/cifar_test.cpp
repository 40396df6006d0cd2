#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>

#include "convnet/base/error.h"
#include "providers/cifar.h"
#include "providers/pickle_write.h"
#include "tests/catch.h"
#include "tests/python.h"
#include "tests/temp_folder.h"

using namespace convnet;

namespace {

namespace fs = std::filesystem;
using namespace pickles;
using namespace std::string_literals;

std::string data_folder(const std::string& name) {
  return std::string(CONVNET_SOURCE_DIR) + "/tests/providers/data/" + name;
}

std::unique_ptr<StoredProvider> open(const std::string& path) { return make_cifar_provider(path); }

std::vector<int> pixels_of(const DataBatch& batch) {
  std::vector<int> out;
  for (std::byte b : batch.matrices[0]) out.push_back(std::to_integer<int>(b));
  return out;
}

std::vector<std::int32_t> labels_of(const DataBatch& batch, std::size_t matrix = 1) {
  std::vector<std::int32_t> out(batch.matrices[matrix].size() / sizeof(std::int32_t));
  std::memcpy(out.data(), batch.matrices[matrix].data(), batch.matrices[matrix].size());
  return out;
}

char pixel(std::int64_t image, std::int64_t at) { return static_cast<char>((image * 31 + at * 7) % 251); }

/// The pixels of some images of 3x32x32, an image after the other.
std::string rows(std::int64_t images) {
  std::string out;
  for (std::int64_t i = 0; i < images; ++i)
    for (std::int64_t p = 0; p < 3072; ++p) out += pixel(i, p);
  return out;
}
std::string columns(std::int64_t images) {
  std::string out;
  for (std::int64_t p = 0; p < 3072; ++p)
    for (std::int64_t i = 0; i < images; ++i) out += pixel(i, p);
  return out;
}
std::vector<int> counted(int from, int count, int modulo) {
  std::vector<int> out;
  for (int i = 0; i < count; ++i) out.push_back((from + i) % modulo);
  return out;
}
bool holds(const DataBatch& batch, std::int64_t first, std::int64_t images) {
  const std::string expected = rows(first + images).substr(static_cast<std::size_t>(first * 3072));
  return batch.images == images && batch.matrices[0].size() == expected.size() &&
         std::memcmp(batch.matrices[0].data(), expected.data(), expected.size()) == 0;
}

const std::string names = list({str("cat"), str("dog"), str("owl")});

/// A folder in the original's format whose parts can be replaced.
struct Original {
  Original() {
    meta({{"num_vis", integer(3072)}, {"label_names", names}});
    batch({{"data", array({3072, 5}, "u1", columns(5))}, {"labels", integers({0, 1, 2, 1, 0})}});
  }
  void meta(const std::vector<std::pair<std::string, std::string>>& entries) const {
    write_file(folder / "batches.meta", pickle_file(dict(entries)));
  }
  void batch(const std::vector<std::pair<std::string, std::string>>& entries) const {
    write_file(folder / "data_batch_1", pickle_file(dict(entries)));
  }
  std::string open_error() const {
    return message_of<InputError>([&] { open(folder.path()); });
  }
  std::string load_error() const {
    return message_of<InputError>([&] { open(folder.path())->load(1); });
  }
  TempFolder folder;
};

/// `text` without the number of the byte.
std::string without_byte(std::string text) {
  const std::size_t at = text.find("byte ") + 5;
  return text.erase(at, text.find_first_not_of("0123456789", at) - at);
}

}  // namespace

TEST_CASE("cifar refuses a batch that is there twice", "[cifar]") {
  const Original twice;
  write_file(twice.folder / "data_batch_01", read_file(twice.folder / "data_batch_1"));
  CHECK_THAT(twice.open_error(), Catch::Contains("batch 1 is there twice, as data_batch_1 too") ||
                                     Catch::Contains("batch 1 is there twice, as data_batch_01 too"));
}

TEST_CASE("cifar reads what Python wrote in the original's and in the Python format", "[cifar]") {
  for (const char* format : {"cifar-original", "cifar-python"}) {
    CAPTURE(format);
    const auto provider = open(data_folder(format));
    REQUIRE(provider->matrices().size() == 2);
    CHECK(provider->matrices()[0].name == "data");
    CHECK(provider->matrices()[0].dims == Dims{3, 2, 2});
    CHECK(provider->matrices()[0].type == DataType::u8);
    CHECK(provider->matrices()[1].name == "labels");
    CHECK(provider->matrices()[1].classes == 4);
    for (int b = 1; b <= 3; ++b) {
      CAPTURE(b);
      CHECK(provider->images_in(b) == 3);
      const DataBatch batch = provider->load(b);
      REQUIRE(batch.images == 3);
      std::vector<int> expected;
      for (int i = 0; i < 3; ++i)
        for (int p = 0; p < 12; ++p) expected.push_back(50 * b + 12 * i + p);
      CHECK(pixels_of(batch) == expected);
      CHECK(labels_of(batch) == std::vector<std::int32_t>{b % 4, (b + 1) % 4, (b + 2) % 4});
    }
    CHECK(provider->has_mean());
    CHECK(provider->step_subtracts_mean());
    CHECK_NOTHROW(provider->check_range({1, 3}, "--train-range"));
  }
  // The mean of the meta, whatever the range; else that of the range.
  CHECK(open(data_folder("cifar-original"))->mean_image({1, 2}) == std::vector<float>(12, 100.5F));
  const std::vector<float> mean = open(data_folder("cifar-python"))->mean_image({1, 2});
  REQUIRE(mean.size() == 12);
  for (int p = 0; p < 12; ++p) CHECK(mean[static_cast<std::size_t>(p)] == static_cast<float>(75 + 12 + p));
}

TEST_CASE("cifar reads CIFAR-10 in every form", "[cifar]") {
  const TempFolder folder;
  SECTION("columns, with any batch numbers") {
    for (int b : {0, 3, 1000})
      write_file(folder / "data_batch_" + std::to_string(b),
                 pickle_file(dict({{"data", array({3072, 70}, "u1", columns(70))},
                                   {"labels", integers(counted(b, 70, 3))}})));
    write_file(folder / "batches.meta",
               pickle_file(dict({{"num_vis", integer(3072)}, {"label_names", names}})));
    const auto provider = open(folder.path());
    CHECK(provider->matrices()[0].dims == Dims{3, 32, 32});
    CHECK(provider->matrices()[1].class_names == std::vector<std::string>{"cat", "dog", "owl"});
    CHECK(holds(provider->load(3), 0, 70));
    CHECK(labels_of(provider->load(1000))[1] == 1001 % 3);
    CHECK(message_of<InputError>([&] {
            provider->check_range({0, 3}, "--train-range");
          }) == "--train-range 0-3: batch 1 is not in " + folder.path() + "; its batch numbers: 0, 3, 1000");
    CHECK(message_of<InputError>([&] { provider->load(2); }) ==
          folder.path() + ": there is no batch 2; its batch numbers: 0, 3, 1000");
  }
  SECTION("rows") {
    for (const char* name : {"data_batch_1", "data_batch_2", "test_batch"})
      write_file(folder / name, pickle_file(dict({{"data", array({7, 3072}, "u1", rows(7))},
                                                  {"labels", integers(counted(0, 7, 3))}})));
    write_file(folder / "batches.meta",
               pickle_file(dict({{"num_vis", integer(3072)}, {"label_names", names}})));
    const auto provider = open(folder.path());
    CHECK(holds(provider->load(3), 0, 7));
    CHECK(message_of<InputError>([&] { provider->images_in(4); }) ==
          folder.path() + ": there is no batch 4; its batch numbers: 1-3");
  }
  SECTION("a batch as large as an image is read by whether there is a mean image") {
    const auto square = [&](const std::string& data) {
      write_file(folder / "data_batch_1", pickle_file(dict({{"data", array({12, 12}, "u1", data)},
                                                            {"labels", integers(std::vector<int>(12))}})));
    };
    square(rows(1).substr(0, 144));
    const std::vector<std::pair<std::string, std::string>> meta = {{"num_vis", integer(12)},
                                                                   {"label_names", names}};
    write_file(folder / "batches.meta", pickle_file(dict(meta)));
    CHECK(pixels_of(open(folder.path())->load(1))[1] == 7);
    auto original = meta;
    original.emplace_back("data_mean", integers(std::vector<int>(12, 5)));
    write_file(folder / "batches.meta", pickle_file(dict(original)));
    CHECK(pixels_of(open(folder.path())->load(1))[1] == 84);
    CHECK(open(folder.path())->mean_image({1, 1}) == std::vector<float>(12, 5));
  }
  SECTION("binary") {
    for (const char* name : {"data_batch_1.bin", "data_batch_2.bin", "test_batch.bin"}) {
      std::string records;
      for (int i = 0; i < 4; ++i)
        records += static_cast<char>(i + 6) + rows(4).substr(static_cast<std::size_t>(i) * 3072, 3072);
      write_file(folder / name, records);
    }
    CHECK(open(folder.path())->matrices()[1].class_names.empty());
    write_file(folder / "batches.meta.txt", "a\nb\r\nc\n\nd\ne\nf\ng\nh\ni\nj");
    const auto provider = open(folder.path());
    CHECK(provider->matrices()[1].classes == 10);
    CHECK(provider->matrices()[1].class_names ==
          std::vector<std::string>{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"});
    write_file(folder / "batches.meta.txt", "airplane\n");
    CHECK(message_of<InputError>([&] { open(folder.path()); }) ==
          folder / "batches.meta.txt" + ": should name 10 classes, one a line, but names 1");
    write_file(folder / "batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\n");
    CHECK(message_of<InputError>([&] { open(folder.path()); }) ==
          folder / "batches.meta.txt" + ": should name 10 classes, one a line, but names more");
    fs::remove(folder / "batches.meta.txt");
    CHECK(provider->images_in(3) == 4);
    CHECK(holds(provider->load(3), 0, 4));
    CHECK(labels_of(provider->load(1)) == std::vector<std::int32_t>{6, 7, 8, 9});
    CHECK(provider->mean_image({1, 3})[1] == static_cast<float>((7 + 38 + 69 + 100) / 4.0));
    std::string record = read_file(folder / "data_batch_2.bin");
    record[2 * 3073] = 10;
    write_file(folder / "data_batch_2.bin", record);
    CHECK(message_of<InputError>([&] { provider->load(2); }) ==
          folder / "data_batch_2.bin" + ": record 2 (counted from 0) is label 10; labels are 0 to 9");
    write_file(folder / "data_batch_2.bin", record + "x");
    CHECK(message_of<InputError>([&] { provider->load(2); }) ==
          folder / "data_batch_2.bin" +
              ": 12293 bytes are not whole records of 3073 (1 label(s), then 3072 pixels)");
    write_file(folder / "data_batch_2.bin", "");
    CHECK(message_of<InputError>([&] { open(folder.path())->images_in(2); }) ==
          folder / "data_batch_2.bin" +
              ": 0 bytes are not whole records of 3073 (1 label(s), then 3072 pixels)");
  }
}

TEST_CASE("cifar reads CIFAR-100 in both forms", "[cifar]") {
  const TempFolder folder;
  const auto check = [&] {
    const auto provider = open(folder.path());
    REQUIRE(provider->matrices().size() == 3);
    CHECK(provider->matrices()[1].classes == 100);
    CHECK(provider->matrices()[2].name == "coarse_labels");
    CHECK(provider->matrices()[2].classes == 20);
    CHECK_NOTHROW(provider->check_range({1, 6}, "--train-range"));
    std::int64_t first = 0;
    for (int b = 1; b <= 5; ++b) {
      const std::int64_t images = provider->images_in(b);
      const DataBatch batch = provider->load(b);
      CHECK(holds(batch, first, images));
      CHECK(labels_of(batch)[0] == 80 + first);
      CHECK(labels_of(batch, 2)[0] == 3 + first);
      first += images;
    }
    CHECK(first == 12);
    CHECK(provider->images_in(6) == 4);
    CHECK(holds(provider->load(6), 0, 4));
  };
  const auto write = [&](const std::string& name, int images) {
    write_file(folder / name, pickle_file(dict({{"data", array({images, 3072}, "u1", rows(images))},
                                                {"fine_labels", integers(counted(80, images, 100))},
                                                {"coarse_labels", integers(counted(3, images, 20))}})));
  };
  const auto write_binary = [&](const std::string& name, int images) {
    std::string records;
    for (int i = 0; i < images; ++i) {
      records += static_cast<char>(3 + i);
      records += static_cast<char>(80 + i);
      records += rows(i + 1).substr(static_cast<std::size_t>(i) * 3072);
    }
    write_file(folder / name, records);
  };
  SECTION("pickles") {
    write("train", 12);
    write("test", 4);
    const std::string twenty = list(std::vector<std::string>(20, str("x")));
    write_file(folder / "meta",
               pickle_file(dict({{"fine_label_names", list(std::vector<std::string>(100, str("x")))},
                                 {"coarse_label_names", twenty}})));
    check();
    write("train", 4);
    CHECK(message_of<InputError>([&] { open(folder.path())->load(1); }) ==
          folder / "train" + ": 4 image(s) do not make 5 batches");
    fs::remove(folder / "meta");
    CHECK(message_of<InputError>([&] { open(folder.path()); }) ==
          folder / "meta" + ": missing, beside " + (folder / "train"));
  }
  SECTION("binary") {
    write_binary("train.bin", 12);
    write_binary("test.bin", 4);
    check();
    std::string bytes = read_file(folder / "train.bin");
    bytes[9 * 3074] = 20;
    write_file(folder / "train.bin", bytes);
    CHECK(message_of<InputError>([&] { open(folder.path())->load(5); }) ==
          folder / "train.bin" + ": record 9 (counted from 0) is coarse label 20; coarse labels are 0 to 19");
  }
}

TEST_CASE("cifar says what is in a folder that is no data set", "[cifar]") {
  CHECK(message_of<InputError>([] { open(""); }) ==
        "data provider 'cifar' needs --data-path: the folder of the batches");
  const TempFolder folder;
  const std::string none =
      folder.path() +
      ": no batches are here: batches.meta with data_batch_1, …; data_batch_1.bin, …; meta with "
      "train and test; or train.bin and test.bin; ";
  const auto error = [&] { return message_of<InputError>([&] { open(folder.path()); }); };
  CHECK(message_of<InputError>([&] { open(folder / "none"); }) ==
        "--data-path " + (folder / "none") + ": no such folder");
  CHECK(error() == none + "the folder is empty");
  fs::create_directory(folder / "cifar-10-batches-py");
  write_file(folder / "cifar-10-python.tar.gz", "");
  write_file(folder / "data_batch_x", "");
  CHECK(error() == none + "it holds cifar-10-batches-py/, cifar-10-python.tar.gz, data_batch_x");
  for (int i = 0; i < 12; ++i) write_file(folder / "z" + std::to_string(i), "");
  CHECK(error().ends_with(", z0, z1, z10, z11, z2, z3, z4, z5, z6 and 3 more"));
  write_file(folder / "data_batch_7", "");
  CHECK(error() == folder / "batches.meta" + ": missing, beside " + (folder / "data_batch_7"));
  write_file(folder / "train.bin", "");
  CHECK(error() == folder.path() + ": there are several data sets, beginning with " +
                       (folder / "data_batch_7") + " and " + (folder / "train.bin") +
                       "; each needs its own folder");
}

TEST_CASE("cifar refuses a wrong meta", "[cifar]") {
  const Original set;
  const std::string meta = set.folder / "batches.meta: byte ";
  CHECK(open(set.folder.path())->load(1).images == 5);
  const auto error = [&](const std::vector<std::pair<std::string, std::string>>& entries) {
    set.meta(entries);
    return without_byte(set.open_error());
  };
  CHECK(error({{"num_vis", integer(3072)}}) == meta + ": there is no 'label_names'; the keys are num_vis");
  CHECK(error({{"label_names", names}}) == meta + ": there is no 'num_vis'; the keys are label_names");
  CHECK(error({{"num_vis", integer(3072)}, {"label_names", integer(10)}}) ==
        meta + ": label_names should be a list of names, not the integer 10");
  CHECK(error({{"num_vis", integer(3072)}, {"label_names", list({str("cat"), integer(10)})}})
            .ends_with("a name in label_names should be text, not the integer 10"));
  for (const char* size : {"1024", "-3", "0", "3071", "50331651"})
    CHECK(error({{"num_vis", integer(std::stoi(size))}, {"label_names", names}}) ==
          meta + ": images of " + size +
              " numbers (num_vis) are not square with 3 channel(s) (num_colors), of side 1 to 4096");
  CHECK(error({{"num_vis", integer(3072)}, {"num_colors", integer(1)}, {"label_names", names}}) ==
        meta +
            ": images of 3072 numbers (num_vis) are not square with 1 channel(s) (num_colors), of side 1 to "
            "4096");
  for (const char* channels : {"0", "-1", "4097"})
    CHECK(error({{"num_vis", integer(3072)},
                 {"num_colors", integer(std::stoi(channels))},
                 {"label_names", names}}) ==
          meta + ": images of " + channels + " channels (num_colors); 1 to 4096 are possible");
  for (const char* side : {"0", "-2", "4097"})
    CHECK(error({{"img_size", integer(std::stoi(side))}, {"label_names", names}}) ==
          meta + ": images of size " + side + " (img_size); 1 to 4096 are possible");
  CHECK(error({{"num_vis", integer(12)},
               {"label_names", names},
               {"data_mean", integers(std::vector<int>(11))}}) ==
        meta + ": data_mean has 11 numbers, but images have 12 (num_vis)");
  CHECK(error({{"label_names", names}, {"data_mean", array({3}, "f4", "\0\0\xc0\x7f\0\0\0\0\0\0\0\0"s)}}) ==
        meta + ": data_mean holds numbers that are not finite, or beyond any pixel");
  write_file(set.folder / "batches.meta", pickle_file(integers(std::vector<int>{1})));
  CHECK(without_byte(set.open_error()) == meta + ": a dict should be here, not a list of 1 values");
}

TEST_CASE("cifar takes the size and the channels of images from the meta", "[cifar]") {
  using Entries = std::vector<std::pair<std::string, std::string>>;
  const Original set;
  const auto dims = [&](Entries entries) {
    entries.emplace_back("label_names", names);
    set.meta(entries);
    return open(set.folder.path())->matrices()[0].dims;
  };
  const auto one = std::pair("num_colors"s, integer(1)), side = std::pair("img_size"s, integer(28));
  const auto mean = std::pair("data_mean"s, array({784, 1}, std::vector<float>(784, 2.5F)));
  set.batch(
      {{"data", array({784, 3}, "u1", columns(3).substr(0, 3 * 784))}, {"labels", integers({0, 1, 2})}});
  for (const Entries& grey :
       {Entries{{"num_vis", integer(784)}, one, side}, Entries{{"num_vis", integer(784)}, one},
        Entries{mean, one}, Entries{one, side}}) {
    CHECK(dims(grey) == Dims{1, 28, 28});
    const DataBatch batch = open(set.folder.path())->load(1);
    REQUIRE(batch.matrices[0].size() == 3 * 784);
    CHECK(pixels_of(batch)[784 + 5] == static_cast<unsigned char>(pixel(1, 5)));
  }
  set.batch({{"data", array({3072, 5}, "u1", columns(5))}, {"labels", integers({0, 1, 2, 1, 0})}});
  CHECK(dims({{"img_size", integer(32)}}) == Dims{3, 32, 32});
  CHECK(dims({{"img_size", integer(32)}, {"num_colors", integer(3)}}) == Dims{3, 32, 32});
  CHECK(dims({{"num_vis", integer(3072)}, {"num_colors", integer(12)}}) == Dims{12, 16, 16});
}

TEST_CASE("cifar reads images and labels that are stored as other numbers than bytes", "[cifar]") {
  const Original set;
  set.meta({{"num_vis", integer(12)}, {"label_names", names}});
  // Two images a column each; some values are no bytes.
  std::vector<double> values(24);
  for (std::size_t i = 0; i < 24; ++i) values[i] = static_cast<double>(i) * 100 - 700;
  std::vector<float> expected;
  for (std::size_t i = 0; i < 2; ++i)
    for (std::size_t p = 0; p < 12; ++p) expected.push_back(static_cast<float>(values[2 * p + i]));
  const std::vector<float> singles(values.begin(), values.end());
  const std::vector<std::int32_t> whole_values(values.begin(), values.end());
  const std::string bytes_of_whole(reinterpret_cast<const char*>(whole_values.data()), 24 * 4);
  const auto floats_of = [](const DataBatch& batch) {
    std::vector<float> out(batch.matrices[0].size() / sizeof(float));
    std::memcpy(out.data(), batch.matrices[0].data(), batch.matrices[0].size());
    return out;
  };
  for (const std::string& data :
       {array({12, 2}, values), array({12, 2}, singles), array({12, 2}, "i4", bytes_of_whole)})
    for (const std::string& labels : {array({2}, std::vector<float>{2, 1}), list({"F2.0\n", "F1.0\n"})}) {
      set.batch({{"data", data}, {"labels", labels}});
      const auto provider = open(set.folder.path());
      CHECK(provider->matrices()[0].type == DataType::f32);
      CHECK(provider->images_in(1) == 2);
      const DataBatch batch = provider->load(1);
      CHECK(floats_of(batch) == expected);
      CHECK(labels_of(batch) == std::vector<std::int32_t>{2, 1});
      CHECK(provider->mean_image({1, 1})[1] == -450);
    }
  // Images in rows, and a batch of bytes among others; what is no number is refused, as in provider npy.
  set.batch({{"data", array({2, 12}, expected)}, {"labels", integers({2, 1})}});
  const std::pair labels("labels"s, integers({0}));
  write_file(set.folder / "data_batch_2",
             pickle_file(dict({{"data", array({12, 1}, "u1", rows(1).substr(0, 12))}, labels})));
  std::vector<float> bad(12);
  bad[3] = std::numeric_limits<float>::infinity();
  write_file(set.folder / "data_batch_3", pickle_file(dict({{"data", array({12, 1}, bad)}, labels})));
  const auto provider = open(set.folder.path());
  CHECK(floats_of(provider->load(1)) == expected);
  CHECK(floats_of(provider->load(2))[2] == 14);
  CHECK_THAT(
      message_of<InputError>([&] { provider->load(3); }),
      Catch::EndsWith("record 0 (counted from 0) has the number inf, which is not finite as a float32"));
  write_file(set.folder / "data_batch_0", read_file(set.folder / "data_batch_2"));
  CHECK(without_byte(message_of<InputError>([&] { open(set.folder.path())->load(1); })) ==
        set.folder / "data_batch_1" + ": byte : data should be bytes (type u1), as in " +
            (set.folder / "data_batch_0") + ", not an array of 2x12 numbers of type f4");
}

TEST_CASE("cifar refuses wrong batches", "[cifar]") {
  const Original set;
  const std::string file = set.folder / "data_batch_1", at = file + ": byte ";
  const auto error = [&](const std::vector<std::pair<std::string, std::string>>& entries) {
    set.batch(entries);
    return without_byte(set.load_error());
  };
  const std::string data = array({3072, 5}, "u1", columns(5)), labels = integers({0, 1, 2, 1, 0});
  CHECK(error({{"data", data}}) == at + ": there is no 'labels'; the keys are data");
  CHECK(error({{"labels", labels}}) == at + ": there is no 'data'; the keys are labels");
  CHECK(error({{"data", data}, {"labels", integers({0, 1})}}) == at + ": there are 2 labels for 5 images");
  CHECK(error({{"data", data}, {"labels", array({5}, std::vector<float>{0, 1, 2, 1.5F, 0})}}) ==
        at + ": item 3 of labels should be an integer of at most 64 bits, not 1.5");
  CHECK(error({{"data", data}, {"labels", integer(0)}}) ==
        at + ": labels should be a list of integers, not the integer 0");
  CHECK(error({{"data", data}, {"labels", list(std::vector<std::string>{integers({1})})}}) ==
        at + ": item 0 of labels should be an integer, not a list of 1 values");
  for (int wrong : {3, -1}) {
    set.batch({{"data", data}, {"labels", integers({0, 1, 2, wrong, 0})}});
    CHECK(set.load_error() ==
          file + ": record 3 (counted from 0) is label " + std::to_string(wrong) + "; labels are 0 to 2");
  }
  const std::string expected =
      at + ": data should be images x 3072 or 3072 x images numbers, not an array of ";
  CHECK(error({{"data", array({3071, 5}, "u1", columns(5).substr(5))}, {"labels", labels}}) ==
        expected + "3071x5 numbers of type u1");
  CHECK(error({{"data", array({15360}, "u1", columns(5))}, {"labels", labels}}) ==
        expected + "15360 numbers of type u1");
  CHECK(error({{"data", array({3072, 0}, "u1", "")}, {"labels", labels}}) ==
        expected + "3072x0 numbers of type u1");
  CHECK(error({{"data", integers({1})}, {"labels", labels}}) ==
        at + ": data should be a NumPy array, not a list of 1 values");
  write_file(file, "cos\nsystem\n.");
  CHECK(set.load_error() == file + ": byte 0: it refers to os.system; only data and NumPy arrays are read");
}

TEST_CASE("make-cifar-from-mnist writes what cifar reads", "[cifar]") {
  if (!test::has_python()) return test::skip("there is no python3");
  const TempFolder folder;
  const auto write_idx = [&](const std::string& name, const std::vector<int>& dims, const std::string& data) {
    std::string bytes{0, 0, 8, static_cast<char>(dims.size())};
    for (int dim : dims) bytes += std::string(3, '\0') + static_cast<char>(dim);
    write_file(folder / name, bytes + data);
  };
  // Images of 2x4.
  const std::string train = rows(1).substr(0, 24), test = rows(1).substr(24, 16);
  write_idx("train-images-idx3-ubyte", {3, 2, 4}, train);
  write_idx("train-labels-idx1-ubyte", {3}, "\4\5\6");
  write_idx("t10k-images-idx3-ubyte", {2, 2, 4}, test);
  write_idx("t10k-labels-idx1-ubyte", {2}, "\7\x08");
  const std::string command = std::string(CONVNET_SOURCE_DIR) + "/scripts/make-cifar-from-mnist " +
                              (folder / "set") + " " + folder.path() + " > /dev/null";
  REQUIRE(std::system(command.c_str()) == 0);

  const auto provider = open(folder / "set");
  CHECK(provider->matrices()[0].dims == Dims{3, 32, 32});
  CHECK(provider->matrices()[1].classes == 10);
  const DataBatch batch = provider->load(1);
  CHECK(labels_of(batch) == std::vector<std::int32_t>{4, 5, 6});
  CHECK(labels_of(provider->load(2)) == std::vector<std::int32_t>{7, 8});
  const std::vector<int> pixels = pixels_of(batch);
  const std::vector<float> mean = provider->mean_image({1, 1});
  REQUIRE(pixels.size() == 3 * 3072);
  bool right = true;
  for (std::size_t p = 0; p < 3072; ++p) {
    const std::size_t y = p / 32 % 32, x = p % 32;
    const bool inside = y >= 15 && y < 17 && x >= 14 && x < 18;
    double sum = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      const int expected = inside ? static_cast<unsigned char>(train[i * 8 + (y - 15) * 4 + x - 14]) : 0;
      right = right && pixels[i * 3072 + p] == expected;
      sum += expected;
    }
    right = right && mean[p] == Approx(sum / 3);
  }
  CHECK(right);
}
