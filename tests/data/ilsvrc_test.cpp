// ILSVRC-2012's three tars, in small.
#include "convnet/data/ilsvrc.h"

#include <matio.h>

#include "convnet/base/error.h"
#include "convnet/data/synsets.h"
#include "tests/catch.h"
#include "tests/data/image_folders.h"
#include "tests/providers/gzip.h"
#include "tests/providers/tar_writer.h"

using namespace convnet;

namespace {

/// meta.mat as MATLAB's own library would write it.
std::string mat_file(const std::vector<Synset>& synsets, mat_ft version = MAT_FT_MAT5,
                     const char* name = "synsets", unsigned int field_count = 3) {
  const TempFolder folder;
  const std::string path = folder / "meta.mat";
  mat_t* const mat = Mat_CreateVer(path.c_str(), nullptr, version);
  REQUIRE(mat != nullptr);
  std::vector<const char*> fields = {"ILSVRC2012_ID", "WNID", "words"};
  std::vector<std::size_t> dims = {synsets.size(), 1};
  matvar_t* const all = Mat_VarCreateStruct(name, 2, dims.data(), fields.data(), field_count);
  REQUIRE(all != nullptr);
  for (std::size_t i = 0; i < synsets.size(); ++i) {
    double id = synsets[i].id;
    std::vector<std::size_t> one = {1, 1};
    Mat_VarSetStructFieldByName(all, "ILSVRC2012_ID", i,
                                Mat_VarCreate(nullptr, MAT_C_DOUBLE, MAT_T_DOUBLE, 2, one.data(), &id, 0));
    const auto set_text = [&](const char* field, std::string text) {
      std::vector<std::size_t> size = {1, text.size()};
      Mat_VarSetStructFieldByName(
          all, field, i, Mat_VarCreate(nullptr, MAT_C_CHAR, MAT_T_UTF8, 2, size.data(), text.data(), 0));
    };
    set_text("WNID", synsets[i].wnid);
    if (field_count > 2) set_text("words", synsets[i].words);
  }
  CHECK(Mat_VarWrite(mat, all, MAT_COMPRESSION_ZLIB) == 0);
  Mat_VarFree(all);
  Mat_Close(mat);
  return read_file(path);
}

const std::vector<Synset> three = {
    {2, "n002", "dog, domestic dog"}, {1, "n001", "cat"}, {3, "n003", "animal"}};

/// Classes n001 (two images) and n002 (one), three validation images; parts can be replaced.
struct Tars {
  Tars() {
    training({{"n001.tar", tars::member("b.JPEG", "second") + tars::member("a.JPEG", "first") + tars::end()},
              {"n002.tar", tars::member("c.JPEG", "third") + tars::end()}});
    write_file(files.validation, tars::member("val_2.JPEG", "v2") + tars::member("val_1.JPEG", "v1") +
                                     tars::member("val_3.JPEG", "v3") + tars::end());
    devkit(mat_file(three), "2\n1\n1\n");
  }
  void training(const std::vector<std::pair<std::string, std::string>>& classes) const {
    std::string tar;
    for (const auto& [name, contents] : classes) tar += tars::member(name, contents);
    write_file(files.training, tar + tars::end());
  }
  void devkit(const std::string& mat, const std::string& truth) const {
    write_file(files.devkit,
               gzip(tars::member("ILSVRC2012_devkit_t12/readme.txt", "read me") +
                    tars::member("ILSVRC2012_devkit_t12/data/meta.mat", mat) +
                    tars::member("ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt", truth) +
                    tars::end()));
  }
  std::string error() const {
    return message_of<InputError>([&] { find_ilsvrc_images(files); });
  }
  TempFolder folder;
  const IlsvrcTars files = {folder / "train.tar", folder / "val.tar", folder / "devkit.tar.gz"};
};

constexpr const char* truth_file = "data/ILSVRC2012_validation_ground_truth.txt";

}  // namespace

TEST_CASE("the three tars give images with classes by ILSVRC2012_ID", "[ilsvrc]") {
  const Tars tars;
  const LabelledImages found = find_ilsvrc_images(tars.files);
  CHECK(found.class_names == std::vector<std::string>{"cat", "dog, domestic dog"});
  const auto texts = [&](const std::vector<LabelledImage>& images) {
    std::vector<std::string> out;
    for (const LabelledImage& image : images)
      out.push_back(image.name + " " + std::to_string(image.label) + " " + found.read(image));
    return out;
  };
  CHECK(texts(found.training) ==
        std::vector<std::string>{"a.JPEG 0 first", "b.JPEG 0 second", "c.JPEG 1 third"});
  CHECK(texts(found.validation) ==
        std::vector<std::string>{"val_1.JPEG 1 v1", "val_2.JPEG 0 v2", "val_3.JPEG 0 v3"});
}

TEST_CASE("what does not fit in the three tars is named", "[ilsvrc]") {
  const Tars tars;
  const IlsvrcTars& files = tars.files;
  const std::string meta = files.devkit + ": data/meta.mat: ";
  SECTION("no file") {
    std::filesystem::remove(files.validation);
    CHECK(tars.error() == files.validation + ": no such file");
  }
  SECTION("a class that nobody knows") {
    tars.training({{"n999.tar", tars::end()}});
    CHECK(tars.error() ==
          files.training + ": n999.tar: is not the tar of a class in the devkit's data/meta.mat");
  }
  SECTION("images instead of tars") {
    tars.training({{"n001.JPEG", "x"}});
    CHECK(tars.error() ==
          files.training + ": n001.JPEG: is not the tar of a class in the devkit's data/meta.mat");
  }
  SECTION("a class twice") {
    tars.training({{"n001.tar", tars::end()}, {"x/n001.tar", tars::end()}});
    CHECK(tars.error() == files.training + ": has two tars of ILSVRC2012_ID 1");
  }
  SECTION("an empty class") {
    tars.training({{"n001.tar", tars::end()}});
    CHECK(tars.error() == files.training + ": n001.tar: holds no images");
  }
  SECTION("nothing") {
    tars.training({});
    CHECK(tars.error() == files.training + ": holds no tars of classes");
  }
  SECTION("too few lines") {
    tars.devkit(mat_file(three), "2\n1\n");
    CHECK(tars.error() ==
          files.validation + ": holds 3 images, but " + truth_file + " of " + files.devkit + " has 2 lines");
  }
  SECTION("a line that is no number") {
    tars.devkit(mat_file(three), "2\n1\ntwo\n");
    CHECK(tars.error() == files.devkit + ": " + truth_file + ":3: 'two' is no ILSVRC2012_ID");
  }
  SECTION("a class without training images") {
    tars.devkit(mat_file(three), "2\n3\n1\n");
    CHECK(tars.error() ==
          files.devkit + ": " + truth_file + ":2: ILSVRC2012_ID 3 has no training images; there are 1 to 2");
  }
  SECTION("two synsets of one class") {
    tars.devkit(mat_file({{1, "n001", "cat"}, {1, "n002", "dog"}}), "");
    CHECK(tars.error() == files.training + ": has two tars of ILSVRC2012_ID 1");
    tars.devkit(mat_file({{1, "n001", "cat"}, {2, "n002", "dog"}, {2, "n003", "fox"}}), "");
    CHECK(tars.error() == files.devkit + ": data/meta.mat: has two synsets of ILSVRC2012_ID 2");
  }
  SECTION("a gap") {
    tars.devkit(mat_file({{1, "n001", "cat"}, {3, "n002", "dog"}}), "");
    CHECK(tars.error() == files.devkit + ": data/meta.mat: has no synset of ILSVRC2012_ID 2");
  }
  SECTION("no meta.mat") {
    write_file(files.devkit, gzip(tars::end()));
    CHECK(tars.error() == files.devkit + ": has no data/meta.mat");
  }
  SECTION("a devkit that is not gzip") {
    write_file(files.devkit, tars::end());
    CHECK(tars.error() == files.devkit + ": corrupt gzip data: incorrect header check");
  }
  SECTION("a devkit that ends early") {
    const std::string whole = read_file(files.devkit);
    write_file(files.devkit, whole.substr(0, whole.size() / 2));
    CHECK(tars.error() == files.devkit + ": the gzip data is truncated");
    write_file(files.devkit, "");
    CHECK(tars.error() == files.devkit + ": the gzip data is truncated");
  }
  SECTION("a devkit that is a bomb") {
    write_file(files.devkit, gzip(std::string(std::size_t{257} << 20, '\0')));
    CHECK(tars.error() == files.devkit + ": is larger than 256 MiB when decompressed");
  }
  SECTION("a meta.mat of something else") {
    tars.devkit("text", "");
    CHECK(tars.error() == meta + "is no MATLAB 5 file");
    tars.devkit(mat_file(three, MAT_FT_MAT5, "classes"), "");
    CHECK(tars.error() == meta + "has no struct array 'synsets'");
    tars.devkit(mat_file({{0, "n001", "cat"}}), "");
    CHECK(tars.error() == meta + "synset 1: ILSVRC2012_ID is not a whole number from 1 to 100000");
    tars.devkit(mat_file(three, MAT_FT_MAT5, "synsets", 2), "");
    CHECK(tars.error() == meta + "synset 1 has no words");
    tars.devkit(mat_file({{1, "n001", std::string(5000, 'x')}}), "");
    CHECK(tars.error() == meta + "synset 1: words is no text of at most 4096 letters");
  }
}

TEST_CASE("a meta.mat that crashes its library is an error", "[ilsvrc]") {
  // Reads the same few hundred damaged files each time; some crash the library, some are read all the same.
  const std::string whole = mat_file(three);
  std::uint32_t random = 1;
  int refused = 0;
  for (int i = 0; i < 150; ++i) {
    std::string damaged = whole;
    for (int k = 0; k < 3; ++k) {
      random = random * 1664525 + 1013904223;
      damaged[128 + (random >> 8) % (whole.size() - 128)] = static_cast<char>(random >> 24);
    }
    try {
      read_synsets(damaged, "meta.mat");
    } catch (const InputError& error) {
      ++refused;
      CHECK(std::string(error.what()).starts_with("meta.mat: "));
    }
  }
  CHECK(refused > 50);
}
