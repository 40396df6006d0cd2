#include "providers/npy.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "convnet/base/error.h"
#include "providers/npy_array.h"
#include "providers/registry.h"
#include "tests/catch.h"
#include "tests/temp_folder.h"

using namespace convnet;

namespace {

namespace fs = std::filesystem;

/// A header as numpy.save() writes it, and `data`.
std::string npy(const std::string& dict, const std::string& data, char version = 1) {
  const std::size_t width = version == 1 ? 2 : 4;
  const std::string header = dict + std::string((64 - (8 + width + dict.size() + 1) % 64) % 64, ' ') + "\n";
  std::string file = std::string("\x93NUMPY") + version + '\0';
  for (std::size_t i = 0; i < width; ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return file + header + data;
}
template <class T>
std::string npy_array(const std::string& descr, const std::string& shape, const std::vector<T>& values) {
  return npy("{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }",
             {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
}

struct NpyFolder {
  TempFolder temp;
  std::string path = temp.path();

  void write(const std::string& name, const std::string& bytes) const {
    fs::create_directories((fs::path(path) / name).parent_path());
    std::ofstream((fs::path(path) / name).string(), std::ios::binary) << bytes;
  }
};

template <class T>
std::vector<T> numbers_of(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

NpyHeader npy_header_of(const std::string& bytes) { return read_npy_header(InputFile("a.npy", bytes)); }
std::string npy_error_of(const std::string& bytes) {
  return message_of<InputError>([&] { npy_header_of(bytes); });
}

/// 2500 images of 2x1x2 bytes, counted up, with labels i % 7 and two numbers each.
void write_npy_set(const NpyFolder& folder, const std::string& below, int images) {
  std::vector<std::uint8_t> pixels;
  std::vector<std::int64_t> labels;
  std::vector<double> targets;
  for (int i = 0; i < images; ++i) {
    for (int j = 0; j < 4; ++j) pixels.push_back(static_cast<std::uint8_t>(i + j));
    labels.push_back(i % 7);
    targets.insert(targets.end(), {0.5 * i, -1.0 * i});
  }
  const std::string n = std::to_string(images);
  folder.write(below + "images.npy", npy_array("|u1", "(" + n + ", 2, 1, 2)", pixels));
  folder.write(below + "labels.npy", npy_array("<i8", "(" + n + ",)", labels));
  folder.write(below + "target.npy", npy_array("<f8", "(" + n + ", 2)", targets));
}

}  // namespace

TEST_CASE("Headers of .npy files are read", "[providers]") {
  const NpyHeader v1 = npy_header_of(npy_array<float>("<f4", "(2, 3)", std::vector<float>(6)));
  CHECK(v1.type == NpyType::f32);
  CHECK(v1.dims == Dims{2, 3});
  CHECK(v1.offset % 64 == 0);
  for (const char version : {char{2}, char{3}})
    CHECK(
        npy_header_of(npy("{\"shape\": (3,), \"fortran_order\": False, \"descr\": \"|u1\"}", "abc", version))
            .dims == Dims{3});
  CHECK(npy_header_of(npy("{'descr':'<i4','fortran_order':False,'shape':()}", "abcd")).dims.empty());
  CHECK(npy_header_of(npy("{'descr': '<i4', 'fortran_order': False, 'shape': (0, 5)}", "")).dims ==
        Dims{0, 5});
  // Other programs than NumPy name types in other ways, and Python 2 has an L behind sizes.
  for (const auto& [descr, type] :
       {std::pair{"<u1", NpyType::u8}, {">i1", NpyType::i8}, {"u1", NpyType::u8}, {"<b1", NpyType::boolean}})
    CHECK(npy_header_of(npy_array<std::uint8_t>(descr, "(2L, 3L)", std::vector<std::uint8_t>(6))).type ==
          type);
  for (const char* const descr : {"=f4", "f4", "|f4"})
    CHECK(npy_header_of(npy_array<float>(descr, "(2, 1L)", {1, 2})).type == NpyType::f32);
}

TEST_CASE("Wrong .npy files are refused with their name and what is wrong", "[providers]") {
  const auto dict = [](const std::string& descr, const std::string& order, const std::string& shape) {
    return "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }";
  };
  const auto check = [](const std::string& bytes, const std::string& message) {
    INFO(message);
    CHECK_THAT(npy_error_of(bytes), Catch::StartsWith("a.npy: ") && Catch::Contains(message));
  };
  check("", "is not a .npy file");
  check("PK\x03\x04", "is a zip archive, not a .npy file; unpack it with unzip");
  check("PK\x03\x04" + std::string(26, ' ') + "images.npy",
        "is a zip archive of NumPy arrays (.npz), not a .npy file; save each array with numpy.save");
  check(npy(dict("'|u1'", "False", "(1,)"), "a", 9), "is of version 9");
  check(std::string("\x93NUMPY\x01\0\xFF\xFF", 10), "says that its header has 65535 bytes; the file has 10");
  check(std::string("\x93NUMPY\x02\0\xFF\xFF\xFF\xFF", 12), "says that its header has 4294967295 bytes");
  check(std::string("\x93NUMPY\x02\0\xFF\xFF", 10), "ends within its header");
  check(npy(dict("'<c8'", "False", "(1,)"), "a"), "says that its numbers are '<c8'");
  check(npy(dict("'<f2'", "False", "(1,)"), "ab"), "astype('<f4')");
  check(npy(dict("'>f4'", "False", "(1,)"), "abcd"), "a.astype(a.dtype.newbyteorder('<'))");
  check(npy(dict("'|O'", "False", "(1,)"), "abcd"),
        "says that its numbers are '|O'; these are Python objects");
  for (const char* const text : {"'<U5'", "'|S3'"})
    check(npy(dict(text, "False", "(1,)"), "abcd"), "numpy.unique(a, return_inverse=True)");
  check(npy(dict("[('a', '<f4')]", "False", "(1,)"), "abcd"), "structured array");
  check(npy(dict("'|u1'", "True", "(2, 2)"), "abcd"), "is in Fortran order; save it again");
  check(npy(dict("'|u1'", "0", "(2, 2)"), "abcd"), "neither True nor False");
  check(npy(dict("'|u1'", "False", "(2, -2)"), "abcd"), "a shape with '-2)");
  check(npy(dict("'|u1'", "False", "(99999999999999999999,)"), "abcd"), "a shape with '9999");
  check(npy(dict("'|u1'", "False", "(4"), "abcd"), "has a shape with '}");
  check(npy(dict("'|u1'", "False", "(2, 2)"), "abc"),
        "ends within its numbers: an array of 2x2 needs 4 bytes, but 3 follow the header");
  check(npy(dict("'|u1'", "False", "(2, 2)"), "abcde"), "has more than its numbers");
  check(npy(dict("'<f8'", "False", "(9223372036854775807, 9223372036854775807)"), ""),
        "needs over 2^62 bytes, but 0 follow");
  check(npy("{'descr': '|u1', 'fortran_order': False}", ""),
        "lacks one of 'descr', 'fortran_order' and 'shape'");
  check(npy("{'descr': '|u1', 'descr': '|u1'}", ""), "has a second key 'descr'");
  check(npy("{'colour': '|u1'}", ""), "has an unknown key 'colour'");
  check(npy(dict("'|u1'", "False", "(1,)") + "x", "a"), "goes on after its dict with 'x");
  check(npy("{'descr': '|u1", ""), "has a text without an end");
  check(npy("[1, 2]", ""), "where '{' belongs");
}

TEST_CASE("Provider npy gives images, labels and further arrays", "[providers]") {
  const NpyFolder folder;
  write_npy_set(folder, "", 2500);
  folder.write("notes.txt", "no array");
  const auto provider = make_npy_provider(folder.path);
  const std::vector<MatrixInfo>& infos = provider->matrices();
  REQUIRE(infos.size() == 3);
  CHECK(infos[0].dims == Dims{2, 1, 2});
  CHECK(infos[0].type == DataType::u8);
  CHECK(infos[1].name == "labels");
  CHECK(infos[1].classes == 7);
  CHECK(infos[2].name == "target");
  CHECK(infos[2].dims == Dims{2});
  CHECK(infos[2].type == DataType::f32);
  CHECK(provider->images_in(1) == 1000);
  CHECK(provider->images_in(3) == 500);
  // Image i has the label i % 7.
  CHECK(provider->class_counts({1, 1}) == std::vector<std::int64_t>{143, 143, 143, 143, 143, 143, 142});
  CHECK(provider->class_counts({1, 3}) == std::vector<std::int64_t>{358, 357, 357, 357, 357, 357, 357});
  CHECK_NOTHROW(provider->check_range({1, 3}, "--train-range"));
  CHECK(message_of<InputError>([&] {
          provider->check_range({1, 4}, "--train-range");
        }) == "--train-range 1-4: " + folder.path + " has batches 1-3");
  const DataBatch last = provider->load(3);
  CHECK(last.images == 500);
  CHECK(numbers_of<std::uint8_t>(last.matrices[0])[5] == (2001 + 1) % 256);
  CHECK(numbers_of<std::int32_t>(last.matrices[1])[1] == 2001 % 7);
  CHECK(numbers_of<float>(last.matrices[2])[2] == 1000.5F);
  CHECK(numbers_of<float>(last.matrices[2])[3] == -2001.0F);
  double sum = 0;
  for (int i = 0; i < 1000; ++i) sum += i % 256;
  CHECK(provider->mean_image({1, 1})[0] == Approx(sum / 1000));
  CHECK(provider->has_mean());
}

TEST_CASE("Provider npy numbers a training and a test set one after the other", "[providers]") {
  const NpyFolder folder;
  write_npy_set(folder, "train/", 1001);
  write_npy_set(folder, "test/", 10);
  folder.write("classes.txt", "a\nb\nc\nd\ne\nf\ng\nh\n");
  const auto provider = make_npy_provider(folder.path);
  CHECK(provider->images_in(3) == 10);
  CHECK(provider->matrices()[1].classes == 8);
  CHECK(provider->matrices()[1].class_names.back() == "h");
  folder.write("classes.txt", "a\nb\n");
  CHECK_THAT(message_of<InputError>([&] { make_npy_provider(folder.path); }),
             Catch::EndsWith("has 2 lines, but there are labels up to 6"));
  fs::remove(fs::path(folder.path) / "classes.txt");
  folder.write("test/target.npy", npy_array("<f4", "(10, 3)", std::vector<float>(30)));
  CHECK_THAT(
      message_of<InputError>([&] { make_npy_provider(folder.path); }),
      Catch::Contains("target.npy holds records of 2, but ") && Catch::Contains(" of 3, or of another type"));
  fs::remove(fs::path(folder.path) / "test/target.npy");
  CHECK_THAT(message_of<InputError>([&] { make_npy_provider(folder.path); }),
             Catch::Contains("holds the arrays images, labels, target, but "));
}

TEST_CASE("Provider npy takes arrays of all shapes and types of numbers", "[providers]") {
  const NpyFolder folder;
  folder.write("images.npy", npy_array("<f4", "(2, 3)", std::vector<float>{1, 2, 3, 4, 5, 6}));
  folder.write("flag.npy", npy_array("|b1", "(2,)", std::vector<char>{1, 0}));
  folder.write("grey.npy", npy_array("<i2", "(2, 1, 2)", std::vector<std::int16_t>{-1, 300, 5, 6}));
  folder.write("one.npy", npy_array("<f8", "(2,)", std::vector<double>{0.5, 2}));
  folder.write("parts2.npy", npy_array("<u2", "(2, 1)", std::vector<std::uint16_t>{4, 1}));
  folder.write("parts10.npy", npy_array("<u8", "(2, 2)", std::vector<std::uint64_t>{1, 2, 3, 4}));
  const auto provider = make_npy_provider(folder.path);
  const std::vector<MatrixInfo>& infos = provider->matrices();
  REQUIRE(infos.size() == 6);
  CHECK(infos[0].dims == Dims{3});
  CHECK(infos[1].name == "flag");
  CHECK(infos[1].classes == 2);
  CHECK(infos[2].dims == Dims{1, 1, 2});
  CHECK(infos[3].dims == Dims{1});
  CHECK(infos[3].type == DataType::f32);
  CHECK(infos[4].name == "parts2");
  CHECK(infos[4].classes == 5);
  CHECK(infos[5].dims == Dims{2});
  const DataBatch batch = provider->load(1);
  CHECK(numbers_of<std::int32_t>(batch.matrices[1]) == std::vector<std::int32_t>{1, 0});
  CHECK(numbers_of<float>(batch.matrices[2]) == std::vector<float>{-1, 300, 5, 6});
  CHECK(numbers_of<float>(batch.matrices[5]) == std::vector<float>{1, 2, 3, 4});
}

TEST_CASE("Provider npy refuses numbers that are not finite, and names the record", "[providers]") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const NpyFolder folder;
  folder.write("images.npy", npy_array("<f4", "(3, 2)", std::vector<float>{1, 2, 3, 4, 5, nan}));
  const std::string images = (fs::path(folder.path) / "images.npy").string();
  CHECK(message_of<InputError>([&] { make_npy_provider(folder.path)->load(1); }) ==
        images + ": record 2 (counted from 0) has the number nan, which is not finite as a float32");
  // Larger than any float32.
  folder.write("images.npy", npy_array("<f8", "(3, 1)", std::vector<double>{1, 1e300, 2}));
  CHECK(message_of<InputError>([&] { make_npy_provider(folder.path)->load(1); }) ==
        images + ": record 1 (counted from 0) has the number 1e+300, which is not finite as a float32");
}

TEST_CASE("Provider npy refuses links that lead nowhere", "[providers]") {
  const NpyFolder folder;
  folder.write("images.npy", npy_array("|u1", "(1, 2)", std::vector<std::uint8_t>{1, 2}));
  fs::create_symlink("gone.npy", fs::path(folder.path) / "labels.npy");
  CHECK(message_of<InputError>([&] { make_npy_provider(folder.path); }) ==
        folder.path + "/labels.npy: is a link that leads nowhere; mend or remove it");
}

TEST_CASE("Provider npy gives the names of classes to targets where there are no labels", "[providers]") {
  const NpyFolder folder;
  folder.write("images.npy", npy_array("|u1", "(1, 2)", std::vector<std::uint8_t>{1, 2}));
  folder.write("other.npy", npy_array("<f4", "(1, 2)", std::vector<float>{1, 0}));
  folder.write("target.npy", npy_array("<f4", "(1, 3)", std::vector<float>{1, 0, 1}));
  folder.write("classes.txt", "cat\ndog\nh\xE9t\n");
  const auto provider = make_npy_provider(folder.path);
  const std::vector<MatrixInfo>& infos = provider->matrices();
  REQUIRE(infos.size() == 3);
  CHECK(infos[1].class_names.empty());
  CHECK(infos[2].class_names == std::vector<std::string>{"cat", "dog", "h\xC3\xA9t"});
  CHECK(infos[2].classes == 0);
}

TEST_CASE("Provider npy names what does not fit", "[providers]") {
  const NpyFolder folder;
  const auto error = [&] { return message_of<InputError>([&] { make_npy_provider(folder.path); }); };
  CHECK_THAT(error(), Catch::EndsWith("there is no images.npy here, nor in a folder train in it"));
  CHECK_THAT(message_of<InputError>([&] { make_npy_provider(""); }), Catch::Contains("needs --data-path"));
  CHECK_THAT(message_of<InputError>([&] { make_npy_provider("/none"); }), Catch::Contains("no such folder"));
  folder.write("images.npy", npy_array("|u1", "(2,)", std::vector<char>{1, 0}));
  CHECK_THAT(error(), Catch::Contains("images are (N,C,H,W)"));
  CHECK_THAT(message_of<InputError>([&] { make_npy_provider(folder.path + "/images.npy"); }),
             Catch::EndsWith("is a file; name the folder that holds images.npy"));
  folder.write("images.npy", npy_array("|u1", "(2, 1, 1, 1, 1)", std::vector<char>{1, 0}));
  CHECK_THAT(error(), Catch::Contains("arrays are (N), (N,D), (N,H,W) or (N,C,H,W)"));
  folder.write("images.npy", npy_array("|u1", "(0, 4)", std::vector<char>{}));
  CHECK_THAT(error(), Catch::Contains("holds no numbers"));
  folder.write("images.npy", npy_array("<f4", "()", std::vector<float>{1}));
  CHECK_THAT(error(), Catch::Contains("holds one number"));
  folder.write("images.npy", npy_array("|u1", "(2, 4)", std::vector<char>(8)));
  folder.write("labels.npy", npy_array("<i4", "(3,)", std::vector<std::int32_t>(3)));
  CHECK_THAT(error(),
             Catch::Contains("labels.npy holds 3 records, but ") && Catch::EndsWith("images.npy holds 2"));
  folder.write("labels.npy", npy_array("<f4", "(2,)", std::vector<float>(2)));
  CHECK_THAT(error(), Catch::Contains("labels are a whole number for each image; save whole numbers by "
                                      "labels.astype(numpy.int32); rows of tags or of other numbers "
                                      "belong in an array of another name, like target.npy"));
  folder.write("labels.npy", npy_array("|u1", "(2, 3)", std::vector<char>(6)));
  CHECK_THAT(error(), Catch::Contains("save numbers of classes by labels.argmax(1) if each row is one-hot"));
  for (const std::int64_t label : {std::int64_t{-1}, std::int64_t{1'000'000}, std::int64_t{1} << 40}) {
    folder.write("labels.npy", npy_array("<i8", "(2,)", std::vector<std::int64_t>{0, label}));
    CHECK_THAT(error(), Catch::EndsWith("record 1 (counted from 0) is label " + std::to_string(label) +
                                        "; labels are 0 to 999999"));
  }
}

TEST_CASE("mixup and cutmix blend further arrays of bytes of provider npy", "[providers]") {
  constexpr std::int32_t kImages = 9, kBytes = 5;
  const auto byte_of = [](std::int32_t image, std::int32_t j) { return (image * 37 + j * 50) % 256; };
  std::vector<std::uint8_t> bytes;
  std::vector<std::int64_t> labels;
  for (std::int32_t i = 0; i < kImages; ++i) {
    for (std::int32_t j = 0; j < kBytes; ++j) bytes.push_back(static_cast<std::uint8_t>(byte_of(i, j)));
    labels.push_back(i);
  }
  const NpyFolder folder;
  folder.write("images.npy", npy_array("|u1", "(9, 2, 2)", std::vector<char>(kImages * 4)));
  folder.write("labels.npy", npy_array("<i8", "(9,)", labels));
  folder.write("mask.npy", npy_array("|u1", "(9, 5)", bytes));
  ImageOptions mixup, cutmix;
  mixup.mixup = cutmix.cutmix = 1;
  for (const ImageOptions& options : {mixup, cutmix}) {
    const auto provider = make_provider("npy", folder.path, 1, options);
    REQUIRE(provider->matrices()[2].type == DataType::u8);
    const DataBatch batch = provider->read({1, 1}, {});
    const auto mixed_labels = numbers_of<std::int32_t>(batch.matrices[1]);
    const auto mask = numbers_of<std::uint8_t>(batch.matrices[2]);
    REQUIRE(mixed_labels.size() == std::size_t{kImages} * 3);
    REQUIRE(mask.size() == std::size_t{kImages} * kBytes);
    int mixed = 0;
    for (std::size_t i = 0; i < mask.size(); ++i) {
      const std::int32_t* const label = mixed_labels.data() + i / kBytes * 3;
      const auto j = static_cast<std::int32_t>(i % kBytes);
      const double share = label[2] / 65536.0;
      CHECK(std::abs(mask[i] - (byte_of(label[0], j) * (1 - share) + byte_of(label[1], j) * share)) <= 0.5);
      mixed += label[2] > 0 ? 1 : 0;
    }
    CHECK(mixed > 0);
  }
}
