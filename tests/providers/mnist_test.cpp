#include "providers/mnist.h"

#include <cstring>
#include <filesystem>
#include <thread>

#include "convnet/base/error.h"
#include "providers/foreign_files.h"
#include "providers/registry.h"
#include "tests/catch.h"
#include "tests/providers/gzip.h"
#include "tests/temp_folder.h"

using namespace convnet;

namespace {

// The files of Debian's package dataset-fashion-mnist.
constexpr const char* fashion_mnist = "/usr/share/datasets/fashion-mnist";

std::string idx(const std::vector<std::uint32_t>& dims, const std::string& content) {
  std::string bytes{0, 0, 8, static_cast<char>(dims.size())};
  for (std::uint32_t d : dims)
    for (int shift : {24, 16, 8, 0}) bytes += static_cast<char>(d >> shift & 0xff);
  return bytes + content;
}

constexpr std::uint32_t train_count = 20'003, test_count = 10'001;

char pixel(std::uint32_t image, std::uint32_t position) {
  return static_cast<char>((image * 7 + position * 50) % 256);
}

std::string images(std::uint32_t count) {
  std::string bytes;
  for (std::uint32_t i = 0; i < count; ++i)
    for (std::uint32_t j = 0; j < 6; ++j) bytes += pixel(i, j);
  return bytes;
}

std::string labels(std::uint32_t count) {
  std::string bytes;
  for (std::uint32_t i = 0; i < count; ++i) bytes += static_cast<char>(i % 10);
  return bytes;
}

/// A small data set with images of 2x3, plain files.
struct DataSet {
  DataSet() {
    write_file(train_images, idx({train_count, 2, 3}, images(train_count)));
    write_file(train_labels, idx({train_count}, labels(train_count)));
    write_file(test_images, idx({test_count, 2, 3}, images(test_count)));
    write_file(test_labels, idx({test_count}, labels(test_count)));
  }
  std::unique_ptr<StoredProvider> open() const { return make_mnist_provider(folder.path()); }
  std::string open_error() const {
    return message_of<InputError>([&] { open(); });
  }
  /// Returns the error that reading the first training batch throws.
  std::string load_error() const {
    return message_of<InputError>([&] { open()->load(1); });
  }

  TempFolder folder;
  std::string train_images = folder / "train-images-idx3-ubyte",
              train_labels = folder / "train-labels-idx1-ubyte",
              test_images = folder / "t10k-images-idx3-ubyte",
              test_labels = folder / "t10k-labels-idx1-ubyte";
};

void check_batch(const StoredProvider& provider, int batch, std::uint32_t first, std::uint32_t count) {
  CAPTURE(batch);
  CHECK(provider.images_in(batch) == count);
  const DataBatch loaded = provider.load(batch);
  REQUIRE(loaded.images == count);
  REQUIRE(loaded.matrices.size() == 2);
  const std::string expected = images(first + count).substr(first * 6);
  REQUIRE(loaded.matrices[0].size() == expected.size());
  CHECK(std::memcmp(loaded.matrices[0].data(), expected.data(), expected.size()) == 0);
  std::vector<std::int32_t> values(count);
  REQUIRE(loaded.matrices[1].size() == values.size() * sizeof(std::int32_t));
  std::memcpy(values.data(), loaded.matrices[1].data(), loaded.matrices[1].size());
  bool equal = true;
  for (std::uint32_t i = 0; i < count; ++i) equal = equal && values[i] == static_cast<int>((first + i) % 10);
  CHECK(equal);
}

}  // namespace

TEST_CASE("mnist numbers training batches first, then test batches", "[providers]") {
  const DataSet set;
  const auto provider = set.open();
  REQUIRE(provider->matrices().size() == 2);
  CHECK(provider->matrices()[0].name == "data");
  CHECK(provider->matrices()[0].dims == Dims{1, 2, 3});
  CHECK(provider->matrices()[0].type == DataType::u8);
  CHECK(provider->matrices()[1].name == "labels");
  CHECK(provider->matrices()[1].dims == Dims{1});
  CHECK(provider->matrices()[1].type == DataType::s32);
  CHECK(provider->matrices()[1].classes == 10);
  CHECK(provider->matrices()[1].class_names.empty());
  check_batch(*provider, 1, 0, 10'000);
  check_batch(*provider, 2, 10'000, 10'000);
  check_batch(*provider, 3, 20'000, 3);
  check_batch(*provider, 4, 0, 10'000);
  check_batch(*provider, 5, 10'000, 1);
  for (int batch : {-1, 0, 6}) {
    const std::string expected =
        set.folder.path() + ": there is no batch " + std::to_string(batch) + "; its batch numbers: 1-5";
    CHECK(message_of<InputError>([&] { provider->load(batch); }) == expected);
    CHECK(message_of<InputError>([&] { provider->images_in(batch); }) == expected);
  }
}

TEST_CASE("mnist's mean image is over every image of the range", "[providers]") {
  const DataSet set;
  const auto provider = set.open();
  const std::vector<float> mean = provider->mean_image({2, 4});
  REQUIRE(mean.size() == 6);
  for (std::uint32_t j = 0; j < 6; ++j) {
    double sum = 0;
    for (std::uint32_t i = 10'000; i < train_count; ++i) sum += static_cast<unsigned char>(pixel(i, j));
    for (std::uint32_t i = 0; i < 10'000; ++i) sum += static_cast<unsigned char>(pixel(i, j));
    CHECK(mean[j] == static_cast<float>(sum / (train_count - 10'000 + 10'000)));
  }
}

TEST_CASE("mnist checks a range", "[providers]") {
  const DataSet set;
  const auto provider = set.open();
  CHECK_NOTHROW(provider->check_range({1, 5}, "--train-range"));
  const auto error = [&](BatchRange range) {
    return message_of<InputError>([&] { provider->check_range(range, "--train-range"); });
  };
  const std::string rest =
      " not in " + set.folder.path() + "; its batch numbers: 1-5 (training 1-3, test 4-5)";
  CHECK(error({1, 9}) == "--train-range 1-9: batches 6-9 are" + rest);
  CHECK(error({1, 6}) == "--train-range 1-6: batch 6 is" + rest);
  CHECK(error({7, 9}) == "--train-range 7-9: batches 7-9 are" + rest);
  CHECK(error({0, 3}) == "--train-range 0-3: batch 0 is" + rest);
  CHECK(error({0, 0}) == "--train-range 0: batch 0 is" + rest);
  CHECK(error({0, 7}) == "--train-range 0-7: batches 0 and 6-7 are" + rest);
}

TEST_CASE("mnist finds its files under every usual name", "[providers]") {
  const DataSet set;
  write_file(set.folder / "train-images.idx3-ubyte", read_file(set.train_images));
  std::filesystem::remove(set.train_images);
  write_file(set.folder / "t10k-images-idx3-ubyte.gz", gzip(read_file(set.test_images)));
  std::filesystem::remove(set.test_images);
  write_file(set.folder / "t10k-labels.idx1-ubyte.gz", gzip(read_file(set.test_labels)));
  std::filesystem::remove(set.test_labels);
  const auto provider = set.open();
  check_batch(*provider, 3, 20'000, 3);
  check_batch(*provider, 4, 0, 10'000);
}

TEST_CASE("mnist reads EMNIST's files, whose names have prefixes and whose labels are up to 61",
          "[providers]") {
  const TempFolder folder;
  const auto write = [&](const std::string& prefix, int first, int last) {
    for (const char* half : {"train", "test"}) {
      std::string classes;
      for (int i = 0; i < 70; ++i) classes += static_cast<char>(std::min(first + i, last));
      write_file(folder / (prefix + half + "-images-idx3-ubyte.gz"), gzip(idx({70, 2, 3}, images(70))));
      write_file(folder / (prefix + half + "-labels-idx1-ubyte"), idx({70}, classes));
    }
  };
  write("emnist-letters-", 1, 26);
  write_file(folder / "emnist-letters-mapping.txt", "1 65 97\r\n26 90 122\r\n");
  const auto alone = make_mnist_provider(folder.path());
  CHECK(alone->matrices()[1].classes == 27);
  REQUIRE(alone->matrices()[1].class_names.size() == 27);
  CHECK(alone->matrices()[1].class_names[0] == "0");
  CHECK(alone->matrices()[1].class_names[1] == "Aa");
  CHECK(alone->matrices()[1].class_names[26] == "Zz");
  CHECK(alone->load(2).images == 70);
  write("emnist-byclass-", 0, 61);
  CHECK(message_of<InputError>([&] { make_mnist_provider(folder.path()); }) ==
        "--data-path " + folder.path() +
            ": holds several data sets, whose names begin with emnist-byclass-, emnist-letters-; name one, "
            "as in "
            "--data-path " +
            (folder / "emnist-byclass"));
  const auto by_class = make_mnist_provider(folder / "emnist-byclass");
  CHECK(by_class->matrices()[1].classes == 62);
  CHECK(by_class->matrices()[1].class_names.empty());
  CHECK(make_mnist_provider(folder / "emnist-letters")->matrices()[1].classes == 27);
  CHECK(message_of<InputError>([&] { make_mnist_provider(folder / "emnist-digits"); }) ==
        "--data-path " + (folder / "emnist-digits") + ": no such folder");
  write_file(folder / "emnist-letters-mapping.txt", "27 65\n");
  CHECK(message_of<InputError>([&] { make_mnist_provider(folder / "emnist-letters"); }) ==
        folder / "emnist-letters-mapping.txt" +
            ": '27 65' is not a class, 0 to 26, and the codes of its characters");
}

TEST_CASE("mnist names missing folders and files", "[providers]") {
  CHECK(message_of<InputError>([] { make_provider("mnist", "", 0); }) ==
        "data provider 'mnist' needs --data-path: the folder of the four IDX files");
  const DataSet set;
  const std::string nowhere = set.folder / "nowhere";
  CHECK(message_of<InputError>([&] { make_provider("mnist", nowhere, 0); }) ==
        "--data-path " + nowhere + ": no such folder");
  std::filesystem::remove(set.train_images);
  std::filesystem::remove(set.test_labels);
  std::filesystem::create_directory(set.test_labels);
  CHECK(set.open_error() ==
        set.folder.path() +
            ": missing, plain or .gz: train-images-idx3-ubyte (or train-images.idx3-ubyte), "
            "t10k-labels-idx1-ubyte (or t10k-labels.idx1-ubyte)");
  // The other files may be compressed; what else is so must be unpacked.
  std::filesystem::rename(set.test_images, set.test_images + ".gz");
  write_file(set.test_images + ".gz", "\x1F\x8B\x08");
  CHECK(set.open_error().ends_with("(or t10k-labels.idx1-ubyte)"));
  write_file(set.folder / "mnist.tar.gz", "\x1F\x8B\x08");
  CHECK_THAT(set.open_error(), Catch::Contains("; mnist.tar.gz in it is compressed by gzip: unpack it with"));
}

TEST_CASE("mnist refuses wrong headers", "[providers]") {
  const DataSet set;
  SECTION("magic") {
    write_file(set.train_images, "nothing that is known");
    CHECK(set.open_error() ==
          set.train_images +
              ": the magic number is 0x6e6f7468, but an IDX file of unsigned bytes with 3 "
              "dimensions has 0x00000803");
    write_file(set.train_images, "P5 28 28 255 and so on");
    CHECK(set.open_error() ==
          set.train_images + ": is a PBM, PGM or PPM picture, not an IDX file; convert it to JPEG or PNG");
  }
  SECTION("images where labels should be") {
    write_file(set.train_labels, read_file(set.train_images));
    CHECK(set.open_error() ==
          set.train_labels +
              ": the magic number is 0x00000803, but an IDX file of unsigned bytes with 1 "
              "dimension has 0x00000801");
  }
  SECTION("no whole header") {
    write_file(set.test_images, read_file(set.test_images).substr(0, 15));
    CHECK(set.open_error() == set.test_images + ": truncated: it has 15 bytes, an IDX header has 16");
  }
  SECTION("empty") {
    write_file(set.test_labels, "");
    CHECK(set.open_error() == set.test_labels + ": truncated: it has 0 bytes, an IDX header has 8");
  }
  SECTION("no records") {
    write_file(set.train_labels, idx({0}, ""));
    CHECK(set.open_error() == set.train_labels + ": the header says that it holds 0 records");
  }
  SECTION("sides") {
    write_file(set.train_images, idx({5, 0, 3}, ""));
    CHECK(set.open_error() ==
          set.train_images + ": the header says that records are 0x3; sides are 1 to 4096");
    write_file(set.train_images, idx({5, 28, 4097}, ""));
    CHECK(set.open_error() ==
          set.train_images + ": the header says that records are 28x4097; sides are 1 to 4096");
  }
  SECTION("counts of images and labels") {
    write_file(set.train_labels, idx({7}, labels(7)));
    CHECK(set.open_error() ==
          set.train_images + " holds 20003 images, but " + set.train_labels + " holds 7 labels");
  }
  SECTION("sides of training and test images") {
    write_file(set.test_images, idx({test_count, 3, 2}, images(test_count)));
    CHECK(set.open_error() == set.train_images + " holds images of 1x2x3, but " + set.test_images +
                                  " of 1x3x2 (channels x height x width)");
  }
}

TEST_CASE("mnist refuses wrong contents", "[providers]") {
  const DataSet set;
  const std::string whole_images = read_file(set.train_images), whole_labels = read_file(set.train_labels);
  SECTION("truncated images") {
    write_file(set.train_images, whole_images.substr(0, 16 + 100 * 6 + 5));
    CHECK(set.load_error() ==
          set.train_images +
              ": truncated in record 100 (counted from 0): the header promises 20003 records, "
              "120018 bytes after the header, but there are 605");
  }
  SECTION("truncated labels") {
    write_file(set.train_labels, whole_labels.substr(0, 8));
    CHECK(set.load_error() ==
          set.train_labels +
              ": truncated in record 0 (counted from 0): the header promises 20003 records, "
              "20003 bytes after the header, but there are 0");
  }
  SECTION("bytes after the end") {
    write_file(set.train_images, whole_images + "x");
    CHECK(set.load_error() ==
          set.train_images + ": too long: there are bytes after the 20003 records that the header promises");
  }
  SECTION("a label that is no class") {
    std::string bytes = whole_labels;
    bytes[8 + 15'000] = 62;
    write_file(set.train_labels, bytes);
    CHECK(set.open_error() ==
          set.train_labels + ": record 15000 (counted from 0) is label 62; labels are 0 to 61");
  }
  SECTION("a header that promises far more than there is") {
    write_file(set.train_images, idx({0xffffffff, 4096, 4096}, "abc"));
    write_file(set.test_images, idx({test_count, 4096, 4096}, "abc"));
    write_file(set.train_labels, idx({0xffffffff}, "\1\2"));
    CHECK(set.load_error() ==
          set.train_labels +
              ": truncated in record 2 (counted from 0): the header promises 4294967295 records, "
              "4294967295 bytes after the header, but there are 2");
    write_file(set.train_images, idx({train_count, 4096, 4096}, "abc"));
    write_file(set.train_labels, whole_labels);
    const auto provider = set.open();
    CHECK(message_of<InputError>([&] { provider->load(4); }) ==
          set.test_images + ": truncated in record 0 (counted from 0): the header promises 10001 records, " +
              std::to_string(10001LL * 4096 * 4096) + " bytes after the header, but there are 3");
  }
  SECTION("a file that changes") {
    const auto provider = set.open();
    write_file(set.train_images, idx({3, 2, 3}, images(3)));
    CHECK(message_of<InputError>([&] { provider->load(1); }) ==
          set.train_images + ": the file was changed while it was in use");
    write_file(set.train_images, whole_images);
    CHECK(provider->load(1).images == 10'000);  // a failed read is not remembered
  }
}

TEST_CASE("mnist refuses damaged gzip", "[providers]") {
  const DataSet set;
  const std::string packed = gzip(read_file(set.train_images));
  std::filesystem::remove(set.train_images);
  const std::string path = set.train_images + ".gz";
  SECTION("truncated") {
    write_file(path, packed.substr(0, packed.size() / 2));
    CHECK(set.load_error().starts_with(path + ": the gzip data is truncated, "));
  }
  SECTION("without the check sum at the end") {
    write_file(path, packed.substr(0, packed.size() - 6));
    CHECK(set.load_error() == path + ": the gzip data is truncated, 120034 bytes could be decompressed");
  }
  SECTION("wrong check sum") {
    std::string bytes = packed;
    bytes[bytes.size() - 6] = static_cast<char>(bytes[bytes.size() - 6] ^ 1);
    write_file(path, bytes);
    CHECK(set.open_error() == path + ": corrupt gzip data: incorrect data check");
  }
  SECTION("not deflated data") {
    write_file(path, packed.substr(0, 10) + std::string(100, '\xff'));
    CHECK(set.open_error() == path + ": corrupt gzip data: invalid block type");
  }
}

TEST_CASE("mnist may be asked while it loads", "[providers]") {
  const DataSet set;
  const auto provider = set.open();
  std::int64_t loaded = 0;
  std::thread loader([&] {
    for (int batch = 1; batch <= 5; ++batch) loaded += provider->load(batch).images;
  });
  std::int64_t counted = 0;
  for (int batch = 1; batch <= 5; ++batch) counted += provider->images_in(batch);
  const std::vector<float> mean = provider->mean_image({1, 3});
  loader.join();
  CHECK(counted == train_count + test_count);
  CHECK(loaded == counted);
  CHECK(mean == provider->mean_image({1, 3}));
}

TEST_CASE("mnist reads Fashion-MNIST", "[providers]") {
  if (!std::filesystem::exists(fashion_mnist))
    return test::skip(std::string(fashion_mnist) + " is not there (package dataset-fashion-mnist)");
  const auto provider = make_mnist_provider(fashion_mnist);
  CHECK(provider->matrices()[0].dims == Dims{1, 28, 28});
  REQUIRE(provider->matrices()[1].class_names.size() == 10);
  CHECK(provider->matrices()[1].class_names[9] == "Ankle boot");
  CHECK_NOTHROW(provider->check_range({1, 7}, "--train-range"));
  CHECK(message_of<InputError>([&] {
          provider->check_range({1, 9}, "--train-range");
        }) == "--train-range 1-9: batches 8-9 are not in " + std::string(fashion_mnist) +
                  "; its batch numbers: 1-7 (training 1-6, test 7)");
  double mean = 0;
  for (float value : provider->mean_image({1, 6})) mean += double{value} / 784;
  CHECK(mean / 255 == Approx(0.2860).margin(0.00005));  // as published for this data set
  const DataBatch test = provider->load(7);
  CHECK(test.images == 10'000);
  std::vector<std::int32_t> first(6);
  std::memcpy(first.data(), test.matrices[1].data(), first.size() * sizeof first[0]);
  CHECK(first == std::vector<std::int32_t>{9, 2, 1, 1, 6, 1});
}

TEST_CASE("packed files of MNIST are not told to be unpacked, others are", "[mnist]") {
  const TempFolder folder;
  write_file(folder / "train-images-idx3-ubyte.gz", gzip("images"));
  CHECK(foreign_files_text(folder.path(), {}).empty());
  write_file(folder / "train-images.csv.gz", gzip("images"));
  CHECK(foreign_files_text(folder.path(), {}) ==
        "; train-images.csv.gz in it is compressed by gzip: unpack it with gunzip");
}
