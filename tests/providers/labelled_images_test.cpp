#include "providers/labelled_images.h"

#include <filesystem>

#include "convnet/base/error.h"
#include "tests/catch.h"
#include "tests/providers/tar_writer.h"
#include "tests/temp_folder.h"

using namespace convnet;

namespace {

namespace fs = std::filesystem;

/// A folder of files whose bytes are their own names.
struct Folder {
  explicit Folder(const std::vector<std::string>& paths) {
    for (const std::string& name : paths) add(name, name);
  }
  void add(const std::string& name, const std::string& bytes) const {
    fs::create_directories(fs::path(folder / name).parent_path());
    write_file(folder / name, bytes);
  }
  LabelledImages find() const { return find_labelled_images(folder.path()); }
  std::string error() const {
    return message_of<InputError>([&] { find(); });
  }
  TempFolder folder;
};

/// "NAME=LABEL" of each; checks that the bytes are the name.
std::vector<std::string> texts(const LabelledImages& found, const std::vector<LabelledImage>& images) {
  std::vector<std::string> out;
  for (const LabelledImage& image : images) {
    const std::string bytes = found.read(image);
    CHECK(image.name.ends_with(bytes));
    CHECK(image.at.size == bytes.size());
    out.push_back(image.name + "=" + std::to_string(image.label));
  }
  return out;
}

using Texts = std::vector<std::string>;

/// Returns the folder's photos with the classes of the table `text`.
LabelledImages find_with_table(const Folder& folder, const std::string& text) {
  const TempFolder other;
  write_file(other / "labels.csv", text);
  return find_photos(folder.folder.path(), other / "labels.csv");
}

/// Images whose bytes are their names, with classes.
std::string shard(const std::vector<std::pair<std::string, std::string>>& images) {
  std::string tar;
  for (const auto& [name, label] : images) {
    tar += tars::member(name, name);
    tar += tars::member(name.substr(0, name.rfind('.')) + ".cls", label);
  }
  return tar + tars::end();
}

}  // namespace

TEST_CASE("folders of classes are numbered by name", "[labelled_images]") {
  const Folder folder({"dog/b.png", "dog/a.JPG", "cat/10.jpeg", "cat/2.jpeg", "cat/more/1.bmp", "dog/c.WebP",
                       "dog/notes.txt", "dog/.hidden.png", ".cache/x.png", "readme.md"});
  const LabelledImages found = folder.find();
  CHECK(found.class_names == Texts{"cat", "dog"});
  CHECK(texts(found, found.training) == Texts{"cat/10.jpeg=0", "cat/2.jpeg=0", "cat/more/1.bmp=0",
                                              "dog/a.JPG=1", "dog/b.png=1", "dog/c.WebP=1"});
  CHECK(found.validation.empty());
}

TEST_CASE("train and val have the same classes", "[labelled_images]") {
  Folder folder(
      {"train/cat/1.png", "train/dog/2.png", "train/train/3.png", "test/cat/5.png", "val/dog/4.png"});
  const LabelledImages found = folder.find();
  CHECK(found.class_names == Texts{"cat", "dog", "train"});
  CHECK(texts(found, found.training) ==
        Texts{"train/cat/1.png=0", "train/dog/2.png=1", "train/train/3.png=2"});
  CHECK(texts(found, found.validation) == Texts{"val/dog/4.png=1"});
  folder.add("val/fox/1.png", "x");
  CHECK(folder.error() == folder.folder / "val/fox: training has no class 'fox'");
  fs::remove_all(folder.folder / "val");
  CHECK(texts(folder.find(), folder.find().validation) == Texts{"test/cat/5.png=0"});
}

TEST_CASE("a class may be called train", "[labelled_images]") {
  const LabelledImages found = Folder({"bus/1.png", "train/2.png"}).find();
  CHECK(found.class_names == Texts{"bus", "train"});
}

TEST_CASE("shards come in natural order, their classes are numbers or lines", "[labelled_images]") {
  Folder folder({});
  folder.add("s-10.tar", shard({{"x.png", "0"}}));
  folder.add("s-2.tar", shard({{"sub.dir/b.png", "3\n"}, {"a.jpg", "0"}}));
  folder.add("s-1.tar", shard({{"a.jpg", "1"}}));
  const LabelledImages found = folder.find();
  CHECK(found.class_names == Texts{"0", "1", "2", "3"});
  CHECK(texts(found, found.training) ==
        Texts{"s-1.tar: a.jpg=1", "s-2.tar: sub.dir/b.png=3", "s-2.tar: a.jpg=0", "s-10.tar: x.png=0"});
  folder.add("classes.txt",
             "\xEF\xBB\xBF"
             "cat\r\ndog\nowl\nfox\nb\xE4r\n");
  CHECK(folder.find().class_names == Texts{"cat", "dog", "owl", "fox", "b\xC3\xA4r"});
  folder.add("classes.txt", std::string("cat\nd\0g\n", 8));
  CHECK(folder.error() == folder.folder / "classes.txt:2: holds a NUL byte; this is not a text file");
  folder.add("classes.txt", "cat\ndog\n");
  CHECK(folder.error() == folder.folder / "classes.txt: names 2 classes, but there are images of class 3");

  const LabelledImages listed = find_labelled_images({folder.folder / "s-10.tar", folder.folder / "s-1.tar"});
  CHECK(texts(listed, listed.training) == Texts{"s-10.tar: x.png=0", "s-1.tar: a.jpg=1"});
  CHECK(listed.class_names == Texts{"0", "1"});
  // Names with dots, and members that are no part of a pair.
  folder.add("classes.txt", "cat\ndog\nowl\nfox\n");
  folder.add("s-1.tar", tars::member("p.v2.jpg", "p.v2.jpg") + tars::member("p.v2.cls", "1") +
                            tars::member("p.v2.json", "{}") + tars::end());
  folder.add("s-3.tar.gz", "x");
  folder.add("s-4.tgz", "x");
  const LabelledImages dotted = folder.find();
  CHECK(left_out_text(dotted.left_out)
            .starts_with("warning: 2 compressed tar(s) are left out, as " + (folder.folder / "s-3.tar.gz") +
                         "; unpack them"));
  CHECK(texts(dotted, dotted.training)[0] == "s-1.tar: p.v2.jpg=1");
  CHECK(dotted.left_out.other_members.count == 1);
  CHECK(dotted.left_out.other_members.first == (folder.folder / "s-1.tar") + ": p.v2.json");
}

TEST_CASE("shards in train and val", "[labelled_images]") {
  Folder folder({});
  folder.add("train/0.tar", shard({{"a.png", "0"}}));
  folder.add("classes.txt", "cat\n\ndog\n");
  folder.add("val/0.tar", shard({{"b.png", "1"}}));
  const LabelledImages found = folder.find();
  CHECK(found.class_names == Texts{"cat", "dog"});
  CHECK(texts(found, found.validation) == Texts{"0.tar: b.png=1"});
  folder.add("val/dog/1.png", "x");
  CHECK(folder.error() ==
        folder.folder /
            "val: holds folders (dog, …) and tar shards (0.tar, …): it should be one or the other");
  fs::remove(folder.folder / "val/0.tar");
  CHECK(folder.error() ==
        folder.folder / "val/dog: a folder of a class, where training has shards with numbers of classes");
  const Folder other({"train/cat/1.png"});
  other.add("val/0.tar", shard({{"b.png", "1"}}));
  CHECK(other.error() ==
        other.folder / "val/0.tar: a shard with numbers of classes, where training has folders with names");
}

TEST_CASE("what is missing or wrong is named", "[labelled_images]") {
  Folder folder({});
  const std::string& path = folder.folder.path();
  CHECK(message_of<InputError>([&] { find_labelled_images(path + "/none"); }) ==
        path + "/none: no such folder");
  CHECK(folder.error().starts_with(path + ": holds no images: folders CLASS/*.jpg"));
  folder.add("cat/notes.txt", "x");
  CHECK(folder.error() ==
        path + ": there are no images (.jpg, .jpeg, .jpe, .jfif, .png, .bmp, .webp) in its folders");
  // An empty folder keeps the place of a class.
  folder.add("dog/1.png", "x");
  CHECK(find_labelled_images(path).class_names == std::vector<std::string>{"cat", "dog"});
  fs::remove_all(path + "/cat");
  fs::remove_all(path + "/dog");
  folder.add("photos.zip", std::string("PK\3\4") + std::string(26, ' ') + "photos/1.jpg");
  CHECK(folder.error().ends_with("; photos.zip in it is a zip archive: unpack it with unzip"));
  fs::remove(path + "/photos.zip");

  const auto shard_error = [&](const std::string& bytes) {
    folder.add("s.tar", bytes);
    const std::string error = folder.error();
    return error.starts_with(path + "/s.tar: ") ? error.substr(path.size() + 8) : error;
  };
  using tars::member;
  CHECK(shard_error(member("a.png", "x") + tars::end()) ==
        "'a.png' is there without its .cls, the label; unpack the tar if it has a folder for each class");
  CHECK(shard_error(shard({{"a.png", "cat"}})) == "a.cls: 'cat' is not the number of a class");
  CHECK(shard_error(shard({{"a.png", "1000000"}})) == "a.cls: class 1000000; classes are 0 to 999999");
  CHECK(shard_error(tars::end()) ==
        "there are no images (.jpg, .jpeg, .jpe, .jfif, .png, .bmp, .webp) in it");
  CHECK(shard_error("not a tar").starts_with("byte 0: "));
}

TEST_CASE("photos of a table get its classes, and others are left out", "[labelled_images]") {
  const Folder folder({"b.png", "a.jpg", "more/c.bmp", "more/d.png", "notes.txt", "e.gif"});
  const LabelledImages found = find_with_table(folder, "id,label\nd,10\na,9\nb,10\n");
  CHECK(found.class_names == Texts{"9", "10"});
  CHECK(texts(found, found.training) == Texts{"a.jpg=0", "b.png=1", "more/d.png=1"});
  CHECK(found.validation.empty());
  CHECK(found.left_out.without_row == Texts{"more/c.bmp"});
  CHECK(
      left_out_text(found.left_out)
          .find(
              "warning: 1 photo(s) have no line in the table of --labels and are left out, as more/c.bmp") !=
      std::string::npos);
}

TEST_CASE("a table names photos of training and validation", "[labelled_images]") {
  const Folder folder({"train/1.png", "train/2.png", "val/3.png", "test/4.png"});
  const LabelledImages found = find_with_table(folder, "1,cat\nval/3.png,cat\n2,dog\n");
  CHECK(texts(found, found.training) == Texts{"train/1.png=0", "train/2.png=1"});
  CHECK(texts(found, found.validation) == Texts{"val/3.png=0"});
  // Competitions keep the labels of tests to themselves.
  CHECK(find_with_table(folder, "1,cat\n2,dog\n").validation.empty());
  CHECK(message_of<InputError>([&] {
          find_with_table(folder, "3,cat\n");
        }).ends_with("labels.csv: names no photo for training, only some for validation"));
}

TEST_CASE("photos in tars get the classes of a table", "[labelled_images]") {
  const Folder folder({});
  folder.add("p-2.tar", tars::member("./p/3.png", "./p/3.png") + tars::end());
  folder.add("p-1.tar", tars::member("p/1.png", "p/1.png") + tars::member("p/2.jpg", "p/2.jpg") +
                            tars::member("p/notes.txt", "x") + tars::end());
  const LabelledImages found = find_with_table(folder, "p/1.png,cat\n3,dog\n");
  REQUIRE(found.training.size() == 2);
  CHECK(found.training[0].name == "p-1.tar: p/1.png");
  CHECK(found.read(found.training[0]) == "p/1.png");
  CHECK(found.training[1].name == "p-2.tar: p/3.png");
  CHECK(found.read(found.training[1]) == "./p/3.png");
  CHECK(found.training[1].label == 1);
  CHECK(found.left_out.without_row == Texts{"p-1.tar: p/2.jpg"});
  CHECK(found.left_out.other_members.first == (folder.folder / "p-1.tar") + ": p/notes.txt");
  // Members of one name are told apart by their tars.
  folder.add("p-3.tar", tars::member("p/1.png", "p/1.png") + tars::end());
  const LabelledImages both = find_with_table(folder, "p-3.tar/p/1.png,cat\np-1.tar/p/1,dog\n");
  CHECK(texts(both, both.training) == Texts{"p-1.tar: p/1.png=1", "p-3.tar: p/1.png=0"});
  CHECK_THAT(
      message_of<InputError>([&] { find_with_table(folder, "p/1.png,cat\n"); }),
      Catch::EndsWith("labels.csv:1: 'p/1.png' may be 'p-1.tar/p/1.png' or 'p-3.tar/p/1.png'; give the "
                      "path below the folder with the extension"));
  folder.add("p-3.tar", tars::member("x.png", "1") + tars::member("x.png", "2") + tars::end());
  CHECK_THAT(message_of<InputError>([&] { find_with_table(folder, "x,cat\n"); }),
             Catch::EndsWith(
                 "labels.csv:1: there are two photos 'p-3.tar/x.png'; they should have different names"));
  folder.add("x.png", "x");
  CHECK(message_of<InputError>([&] { find_with_table(folder, "3,dog\n"); }) ==
        folder.folder.path() +
            ": holds photos (x.png, …) and tars (p-1.tar, …): it should be one or the other");
}
