// The provider of photographs: which images and labels a data set has, and in which order.
#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>

#include "providers/image.h"
#include "providers/registry.h"
#include "tests/catch.h"
#include "tests/providers/image_sets.h"

using namespace convnet;
using namespace image_sets;

TEST_CASE("folders of classes are dealt in a fixed order", "[image]") {
  const TempFolder folder;
  const std::vector<Item> items = photographs(30, 4, 16);
  write_folders(folder / "one", items);
  write_file(folder / "one/c2/notes.txt", "no image");
  write_file(folder / "one/c2/.hidden.jpg", "no image");
  std::filesystem::create_directories(folder / "one/c2/deeper");
  write_file(folder / "one/c2/deeper/x.PNG", test_images::png(test_images::waves(16, 16, 9)));
  const auto provider = open_images(folder / "one", sized(16));
  CHECK(provider->images_in(1) == 31);
  const DataBatch all = provider->read({1, 0}, {});
  std::vector<std::int32_t> labels = image_labels_of(all);
  CHECK(all.images == 31);
  CHECK_FALSE(std::is_sorted(labels.begin(), labels.end()));
  CHECK(std::count(labels.begin(), labels.end(), 2) == 8);
  CHECK(provider->matrices()[1].classes == 4);
  // Matrix 2 has a one for the label.
  const std::vector<float> hot = floats_of(all.matrices[2]);
  REQUIRE(hot.size() == 31 * 4);
  for (std::size_t i = 0; i < 31; ++i)
    for (int c = 0; c < 4; ++c)
      CHECK(hot[i * 4 + static_cast<std::size_t>(c)] == (labels[i] == c ? 1.0F : 0.0F));

  write_folders(folder / "two/train", items);
  write_folders(folder / "two/val", photographs(5, 2, 16));
  const auto parts = open_images(folder / "two", sized(16));
  CHECK(parts->images_in(2) == 5);
  CHECK(message_of<InputError>([&] {
          parts->check_range({1, 3}, "--train-range");
        }) ==
        "--train-range 1-3: batch 3 is not in " + folder / "two" + "; its batch numbers: 1 (train), 2 (val)");
  std::filesystem::create_directories(folder / "two/val/other");
  CHECK(read_error_of(folder / "two") ==
        folder / "two/val" + ": class 'other' is not in " + folder / "two/train");
  std::filesystem::create_directories(folder / "empty/class");
  CHECK(read_error_of(folder / "empty") ==
        folder / "empty" +
            ": there are no images (.jpg, .jpeg, .jpe, .jfif, .png, .bmp, .webp) in its folders");
  std::filesystem::create_directories(folder / "unnamed/data_batch_1");
  write_file(folder / "unnamed/data_batch_1/data_batch_1.0", "(dp1\n.");
  CHECK(read_error_of(folder / "unnamed") == folder / "unnamed" +
                                                 ": there are no images (.jpg, .jpeg, .jpe, .jfif, .png, "
                                                 ".bmp, .webp) in its folders; cuda-convnet2's "
                                                 "batches need their batches.meta beside them");
  CHECK(read_error_of(folder / "none") == folder / "none" + ": no such folder");
  std::filesystem::create_directories(folder / "bare");
  CHECK(read_error_of(folder / "bare") ==
        folder / "bare" +
            ": there is no batches.meta (batches of cuda-convnet2), no tar and no folder of images here; "
            "photos belong in a folder for each class, or --labels names a table of their classes");
}

TEST_CASE("links to folders are followed, and hidden folders are not searched", "[image]") {
  namespace fs = std::filesystem;
  const TempFolder folder;
  write_folders(folder / "set", photographs(6, 2, 12));
  const std::string in_class =
      folder / "set/" + open_images(folder / "set", sized(12))->matrices()[1].class_names[0];
  fs::create_directories(in_class + "/.ipynb_checkpoints");
  fs::create_directories(folder / "more/deep");
  for (const std::string& path : {in_class + "/.ipynb_checkpoints/1.jpg", folder / "more/deep/2.jpg"})
    write_file(path, photographs(1, 1, 12)[0].bytes);
  CHECK(open_images(folder / "set", sized(12))->images_in(1) == 6);
  fs::create_directory_symlink(folder / "more", in_class + "/more");
  CHECK(open_images(folder / "set", sized(12))->images_in(1) == 7);
  const auto error = [&] { return message_of<InputError>([&] { open_images(folder / "set", sized(12)); }); };
  fs::create_directory_symlink(in_class, folder / "more/deep/back");
  CHECK(error() ==
        in_class + "/more/deep/back: links lead back to a folder that this one is in; remove them");
  fs::remove(folder / "more/deep/back");
  fs::create_directory_symlink(".", in_class + "/self");
  CHECK(error() == in_class + "/self: links lead back to a folder that this one is in; remove them");
}

TEST_CASE("what unzipping an archive of macOS leaves is no class and no image", "[image]") {
  const TempFolder folder;
  for (const std::string set : {"set", "two/train", "two/val"}) {
    write_folders(folder / set, photographs(6, 2, 12));
    for (const std::string name : {"/__MACOSX/c0/._1.jpg", "/c0/__MACOSX/2.jpg", "/c1/._3.jpg"}) {
      const std::string file = folder / set + name;
      std::filesystem::create_directories(std::filesystem::path(file).parent_path());
      write_file(file, "no image");
    }
  }
  std::filesystem::create_directories(folder / "two/__MACOSX/train");
  for (const char* const set : {"set", "two"}) {
    const auto provider = open_images(folder / set, sized(12));
    CHECK(provider->matrices()[1].class_names == std::vector<std::string>{"c0", "c1"});
    CHECK(provider->images_in(1) == 6);
  }
}

TEST_CASE("all usual endings of JPEGs are read, in folders and in tars", "[image]") {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "set/c");
  std::string tar;
  for (const std::string name : {"1.jpe", "2.jfif", "3.JFIF", "4.jpeg"}) {
    const std::string bytes = photographs(1, 1, 12)[0].bytes;
    write_file(folder / "set/c/" + name, bytes);
    tar += tars::member(name, bytes) + tars::member(name.substr(0, 1) + ".cls", "0");
  }
  write_file(folder / "one.tar", tar + tars::end());
  for (const char* const set : {"set", "one.tar"}) {
    const auto provider = open_images(folder / set, sized(12));
    CHECK(provider->read({1, 0}, {}).images == 4);
    CHECK(left_out_text(provider->left_out()) == "");
  }
}

TEST_CASE("the training images of each class are counted where labels are known", "[image]") {
  using Counts = std::vector<std::int64_t>;
  const TempFolder folder;
  write_folders(folder / "two/train", photographs(5, 2, 12));
  write_folders(folder / "two/val", photographs(3, 2, 12));
  std::filesystem::create_directories(folder / "two/train/empty");
  const auto folders = open_images(folder / "two", sized(12));
  CHECK(folders->class_counts({1, 1}) == Counts{3, 2, 0});
  CHECK(folders->class_counts({1, 2}) == Counts{5, 3, 0});

  write_file(folder / "labels.csv", "1000,b\n1001,a\n1002,b\n");
  ImageOptions options = sized(12);
  options.labels = folder / "labels.csv";
  CHECK(open_images(folder / "two/train", options)->class_counts({1, 1}) == Counts{1, 2});
  write_file(folder / "labels.csv", "1000,b;a\n1001,a\n1002,b\n");
  CHECK(open_images(folder / "two/train", options)->class_counts({1, 1}).empty());
  // Shards are read when their images are.
  write_file(folder / "one.tar", tar_of(photographs(5, 2, 12)));
  CHECK(open_images(folder / "one.tar", sized(12))->class_counts({1, 1}).empty());
}

TEST_CASE("links that lead nowhere are errors, unless an image is missing", "[image]") {
  namespace fs = std::filesystem;
  const TempFolder folder;
  write_folders(folder / "set", photographs(6, 2, 12));
  const auto error = [&] { return message_of<InputError>([&] { open_images(folder / "set", sized(12)); }); };
  for (const char* const name : {"set/fox", "set/more.tar", "set/val"}) {
    fs::create_symlink("nowhere", folder / name);
    CHECK(error() == folder / name + ": is a link that leads nowhere; mend or remove it");
    fs::remove(folder / name);
  }
  fs::create_symlink("gone.jpg", folder / "set/gone.jpg");
  fs::create_symlink("nowhere", folder / "set/.hidden");
  CHECK(error() == "(nothing was thrown)");
}

TEST_CASE("names of classes are UTF-8 whatever the folders are called", "[image]") {
  const TempFolder folder;
  for (const char* const name : {"set/caf\xE9", "set/caf\xC3\xA9"})
    std::filesystem::create_directories(folder / name);
  write_file(folder / "set/caf\xE9/1.jpg", photographs(1, 1, 12)[0].bytes);
  write_file(folder / "set/caf\xC3\xA9/2.jpg", photographs(1, 1, 12)[0].bytes);
  const auto provider = open_images(folder / "set", sized(12));
  // The folders are in the order of their bytes.
  CHECK(provider->matrices()[1].class_names == std::vector<std::string>{"caf\xC3\xA9", "caf\\xe9"});
  CHECK(provider->read({1, 0}, {}).images == 2);
}

TEST_CASE("folders of training and test images have several usual names", "[image]") {
  const TempFolder folder;
  const std::vector<Item> items = photographs(6, 2, 12), tests = photographs(4, 2, 12);
  int set = 0;
  for (const auto& [train, test] : std::vector<std::pair<std::string, std::string>>{
           {"train", "valid"}, {"Train", "Val"}, {"TRAIN", "validation"}, {"training", "testing"}}) {
    const std::string path = folder / std::to_string(++set);
    write_folders(path + "/" + train, items);
    write_folders(path + "/" + test, tests);
    write_folders(path + "/zzz", tests);  // neither
    const auto provider = open_images(path, sized(12));
    CHECK(provider->images_in(1) == 6);
    CHECK(provider->images_in(2) == 4);
    CHECK(provider->matrices()[1].class_names.size() == 2);
  }
  // The best name counts, if it holds images.
  write_folders(folder / "both/train", items);
  write_folders(folder / "both/test", tests);
  std::filesystem::create_directories(folder / "both/val");
  CHECK(open_images(folder / "both", sized(12))->images_in(2) == 4);
  write_folders(folder / "both/val", {tests[0]});
  CHECK(open_images(folder / "both", sized(12))->images_in(2) == 1);
  // Folders for tests are no classes.
  write_folders(folder / "lone/Val", items);
  write_folders(folder / "lone/test", items);
  CHECK(read_error_of(folder / "lone") ==
        folder / "lone" + ": has only folders for tests (Val, test), none with training images (train)");
}

TEST_CASE("a tenth of folders without a test set can be held out by names", "[image]") {
  const TempFolder folder;
  const std::vector<Item> items = photographs(60, 3, 12);
  write_folders(folder / "set", items);
  ImageOptions options;
  options.inner_size = 8;
  options.hold_out = true;
  const auto provider = make_provider("image", folder / "set", 0, options);
  const auto split = provider->split();
  REQUIRE(split);
  CHECK(split->held_out);
  CHECK(split->train == BatchRange{1, 1});
  REQUIRE(split->test);
  CHECK(*split->test == BatchRange{2, 2});
  const std::int64_t held = provider->images_in(2);
  CHECK(held > 0);
  CHECK(held < 20);
  CHECK(provider->images_in(1) + held == 60);
  // New images change nothing about the others: they only come to one side.
  write_file(folder / "set/c0/new.jpg", items[0].bytes);
  const auto more = make_provider("image", folder / "set", 0, options);
  CHECK(more->images_in(2) >= held);
  CHECK(more->images_in(1) + more->images_in(2) == 61);
  // Without that, batches are what they always were.
  options.hold_out = false;
  CHECK(make_provider("image", folder / "set", 0, options)->images_in(1) == 61);
  CHECK_FALSE(make_provider("image", folder / "set", 0, options)->split()->test);
  // A set with tests of its own keeps them.
  write_folders(folder / "both/train", items);
  write_folders(folder / "both/val", items);
  options.hold_out = true;
  CHECK_FALSE(make_provider("image", folder / "both", 0, options)->split()->held_out);
  CHECK(make_provider("image", folder / "both", 0, options)->images_in(1) == 60);
  // Two images are the least.
  write_folders(folder / "two", {items[0], items[1]});
  CHECK(make_provider("image", folder / "two", 0, options)->images_in(2) == 1);
  write_folders(folder / "one", {items[0]});
  CHECK_THAT(message_of<InputError>([&] { make_provider("image", folder / "one", 0, options); }),
             Catch::EndsWith("there is one image, and none is left to test with. With --train-range 1 "
                             "--test-range 1 a run would be tested on the image that it trains on"));
}

TEST_CASE("1,024 images of folders make a batch", "[image]") {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "a");
  const std::string png = test_images::png(test_images::waves(8, 8, 1));
  for (int i = 0; i < 1030; ++i) write_file(folder / ("a/" + std::to_string(i) + ".png"), png);
  const auto provider = open_images(folder.path(), sized(8));
  CHECK(provider->images_in(1) == 1024);
  CHECK(provider->images_in(2) == 6);
  const DataBatch rest = provider->read({2, 1, 2, 100}, {});
  CHECK(rest.images == 4);
  CHECK(rest.last);
  CHECK_FALSE(provider->read({1, 1, 0, 2}, {}).last);
}

TEST_CASE("tar shards are batches in the natural order of their names", "[image]") {
  const TempFolder folder;
  const std::vector<Item> items = photographs(9, 3, 16);
  write_file(folder / "t-10.tar", tar_of({items.begin() + 5, items.end()}));
  write_file(folder / "t-9.tar", tar_of({items.begin(), items.begin() + 5}));
  const auto provider = open_images(folder.path(), sized(16));
  CHECK(provider->matrices()[1].classes == 3);
  CHECK(provider->images_in(1) == 5);
  CHECK(image_labels_of(provider->read({1, 0}, {})) == std::vector<std::int32_t>{0, 1, 2, 0, 1});
  CHECK(image_labels_of(provider->read({2, 0}, {})) == std::vector<std::int32_t>{2, 0, 1, 2});
  // These are the same images as in the folders.
  write_folders(folder / "f", {items[3]});
  CHECK(image_of(provider->read({1, 0}, {}), 3) ==
        open_images(folder / "f", sized(16))->read({1, 0}, {}).matrices[0]);
  // One tar alone.
  CHECK(open_images(folder / "t-10.tar", sized(16))->read({1, 0}, {}).images == 4);
  // The names of the classes are there: no shard is read before it is needed.
  write_file(folder / "classes.txt", "red\ngreen\nblue\nnone of them\n\n");
  const auto named = open_images(folder.path(), sized(16));
  CHECK(named->matrices()[1].classes == 4);
  CHECK(named->images_in(2) >= 4);
  named->read({2, 0, 0, 1}, {});
  CHECK(named->images_in(2) == 4);

  const std::string tar = folder / "bad/t.tar";
  std::filesystem::create_directories(folder / "bad");
  const auto error = [&](const std::string& members) {
    write_file(tar, members + tars::end());
    return read_error_of(folder / "bad");
  };
  const std::string image = tars::member("a.jpg", items[0].bytes);
  CHECK(error("") == tar + ": there are no images (.jpg, .jpeg, .jpe, .jfif, .png, .bmp, .webp) in it");
  CHECK(error(image) ==
        tar +
            ": 'a.jpg' is there without its .cls, the label; unpack the tar if it has a folder for "
            "each class");
  CHECK(error(tars::member("a.cls", "1")) ==
        tar + ": 'a.cls' is there without an image (.jpg, .jpeg, .jpe, .jfif, .png, .bmp, .webp)");
  CHECK(error(image + tars::member("a.PNG", "x") + tars::member("a.cls", "1")) ==
        tar + ": 'a.jpg' and 'a.PNG' are of one image");
  // A name of dots has as many beginnings as letters.
  std::string dots;
  for (int i = 0; i < 200'000; ++i) dots += "a.";
  const auto with_long_name = [&](const std::string& name, const std::string& data) {
    return tars::member("././@LongLink", name + '\0', 'L') + tars::member(name.substr(0, 90), data);
  };
  CHECK_THAT(error(with_long_name(dots + "jpg", items[0].bytes) + with_long_name("b" + dots + "cls", "1")),
             Catch::Contains("is there without its .cls"));
  CHECK(error(image + tars::member("a.cls", "one")) == tar + ": a.cls: 'one' is not the number of a class");
  CHECK(error(image + tars::member("a.cls", " \n")) ==
        tar + ": a.cls: ' \\x0a' is not the number of a class");
  CHECK(error(image + tars::member("a.cls", "-1")) == tar + ": a.cls: class -1; classes are 0 to 999999");
  write_file(folder / "bad/classes.txt", "x\ny\n");
  CHECK(error(image + tars::member("a.cls", " 2\n")) == tar + ": a.cls: class 2; classes are 0 to 1");
  CHECK(error(image + tars::member("a.cls", "1\n")) == "(nothing was thrown)");
  CHECK(error(image + tars::member("a.cls",
                                   "\xEF\xBB\xBF"
                                   "1\r\n")) == "(nothing was thrown)");
}

TEST_CASE("images and labels of a shard are pairs whatever dots are in their names", "[image]") {
  const TempFolder folder;
  const std::string tar = folder / "t.tar", bytes = photographs(1, 1, 16)[0].bytes;
  const auto members = [&](const std::vector<std::string>& names) {
    std::string all;
    for (std::size_t i = 0; i < names.size(); ++i)
      all += tars::member(names[i], names[i].ends_with(".cls") ? std::to_string(i) : bytes);
    return all + tars::end();
  };
  const auto pairs = [&](const std::vector<std::string>& names) {
    write_file(tar, members(names));
    const auto provider = open_images(folder.path(), sized(16));
    std::vector<std::string> found;
    const std::vector<std::int32_t> labels = image_labels_of(provider->read({1, 0}, {}));
    for (std::size_t i = 0; i < labels.size(); ++i)
      found.push_back(provider->image_name(1, static_cast<std::int64_t>(i)) + " " +
                      std::to_string(labels[i]));
    return found;
  };
  const auto error = [&](const std::vector<std::string>& names) {
    write_file(tar, members(names));
    return message_of<InputError>([&] { open_images(folder.path(), sized(16)); });
  };
  const auto left_out = [&] { return left_out_text(open_images(folder.path(), sized(16))->left_out()); };
  using Names = std::vector<std::string>;
  CHECK(pairs({"photo.v2.jpg", "photo.v2.cls"}) == Names{"photo.v2.jpg 1"});
  CHECK(left_out() == "");
  CHECK(pairs({"22.05.jpg", "22.05.cls", "22.06.cls", "22.06.jpg"}) == Names{"22.05.jpg 1", "22.06.jpg 2"});
  CHECK(pairs({"a.b/22.cls", "a.b/22.jpg", "a/22.jpg", "a/22.cls"}) == Names{"a.b/22.jpg 0", "a/22.jpg 3"});
  // The longest common beginning, where names differ before their last dots.
  CHECK(pairs({"1.left.jpg", "1.cls", "2.x.y.jpg", "2.x.z.cls", "2.w.jpg", "2.cls"}) ==
        Names{"1.left.jpg 1", "2.x.y.jpg 3", "2.w.jpg 5"});
  // What else belongs to a sample is left out, and said.
  CHECK(pairs({"1.jpg", "1.cls", "1.mask.png", "1.json", "1.txt", "1.fine.cls", "1.raw.tiff", ".1.jpg"}) ==
        Names{"1.jpg 1"});
  CHECK(left_out() ==
        "warning: 1 picture(s) are left out, as " + tar +
            ": 1.raw.tiff: only files with these endings are read: .jpg, .jpeg, .jpe, .jfif, .png, .bmp, "
            ".webp; convert them to JPEG or PNG\nwarning: 2 image(s) or label(s) in tars are left out, "
            "because their "
            "sample has a pair of the same name without them, as " +
            tar +
            ": 1.mask.png\nNote: 2 member(s) of tars that are neither images nor labels "
            "(.cls) are left out, as " +
            tar + ": 1.json");
  const std::string ending = "; an image and its label should have the same name up to the last dot";
  CHECK(error({"1.left.jpg", "1.right.jpg", "1.cls"}) ==
        tar + ": '1.cls' may belong to '1.left.jpg' or to '1.right.jpg'" + ending);
  CHECK(error({"1.a.cls", "1.jpg", "1.b.cls"}) ==
        tar + ": '1.jpg' may belong to '1.a.cls' or to '1.b.cls'" + ending);
  CHECK(error({"22.05.jpg", "22.05.cls", "22.06.jpg"}) ==
        tar + ": '22.06.jpg' is there without its .cls, the label");
  // What shards that are read later leave out is known then.
  write_file(folder / "classes.txt", "0\n1\n2\n");
  write_file(tar, members({"1.jpg", "1.cls", "1.json"}));
  const auto provider = open_images(folder.path(), sized(16));
  CHECK(left_out_text(provider->left_out()) == "");
  provider->read({1, 0}, {});
  CHECK(provider->left_out().other_members.count == 1);
}

TEST_CASE("labels of cuda-convnet2's batches: several, none, an offset", "[image]") {
  const TempFolder folder;
  const std::string jpeg = photographs(1, 1, 16)[0].bytes;
  write_file(folder / "batches.meta", meta(4, 10, 16, {{"label_offset", pickles::integer(-1)}}));
  write_file(folder / "data_batch_0", sub_batch({jpeg, jpeg, jpeg}, {{2}, {}, {1, 3, 4}}));
  const auto provider = open_images(folder.path());
  CHECK(image_labels_of(provider->read({0, 0}, {})) == std::vector<std::int32_t>{1, -1, 0});
  CHECK(floats_of(provider->read({0, 0}, {}).matrices[2]) ==
        std::vector<float>{0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1});
  std::map<std::int32_t, int> drawn;
  for (int epoch = 1; epoch <= 300; ++epoch) {
    const std::vector<std::int32_t> labels = image_labels_of(provider->read({0, epoch}, {}));
    CHECK(labels[0] == 1);
    CHECK(labels[1] == -1);
    ++drawn[labels[2]];
  }
  REQUIRE(drawn.size() == 3);
  for (const int label : {0, 2, 3}) CHECK(drawn[label] > 70);
  CHECK(label_kind(provider->matrices()) == LabelKind::classes);

  const auto kind_of = [&](const std::string& kind) {
    write_file(folder / "batches.meta",
               meta(4, 10, 16, {{"label_offset", pickles::integer(-1)}, {"label_kind", pickles::str(kind)}}));
    return label_kind(open_images(folder.path())->matrices());
  };
  CHECK(message_of<InputError>([&] {
          kind_of("tag");
        }).ends_with("a label_kind of 'tag'; it is classes or tags"));
  CHECK(kind_of("tags") == LabelKind::tags);
  CHECK(kind_of("classes") == LabelKind::classes);

  const auto error = [&](const std::string& pickle) {
    write_file(folder / "data_batch_0", pickle);
    return message_of<InputError>([&] { open_images(folder.path())->read({0, 0}, {}); });
  };
  const auto with_labels = [&](const std::string& labels) {
    return pickles::pickle_file(pickles::dict(
        {{"data", pickles::list({pickles::str(jpeg), pickles::str(jpeg)})}, {"labels", labels}}));
  };
  const std::string three = "F3.0\n", half = "F0.5\n";
  for (const std::string& labels :
       {pickles::list({three, pickles::integer(1)}), pickles::array({2}, std::vector<float>{3, 1}),
        pickles::list({pickles::list({three}), pickles::array({1}, std::vector<float>{1})})}) {
    write_file(folder / "data_batch_0", with_labels(labels));
    CHECK(image_labels_of(open_images(folder.path())->read({0, 0}, {})) == std::vector<std::int32_t>{2, 0});
  }
  CHECK(error(with_labels(pickles::list({three, half})))
            .ends_with("the label of image 1 (counted from 0) should be an integer, not the number 0.5"));
  CHECK(error(with_labels(pickles::list({pickles::list({three}), pickles::list({half})})))
            .ends_with("item 0 of the labels of an image should be an integer, not the number 0.5"));
  CHECK(error(sub_batch({jpeg, jpeg}, {{1}, {5}}))
            .ends_with("image 1 (counted from 0) is of class 5; classes are 1 to 4"));
  CHECK(error(sub_batch({jpeg}, {{0}}))
            .ends_with("image 0 (counted from 0) is of class 0; classes are 1 to 4"));
  CHECK(error(sub_batch({jpeg, jpeg}, {{1}})).ends_with("there are labels of 1 images for 2 images"));
  CHECK(error(sub_batch({}, {})).find("data should be a list of JPEGs") != std::string::npos);
  CHECK(error(pickles::pickle_file(pickles::dict({{"data", pickles::array({2, 3}, std::vector<float>(6))}})))
            .ends_with("data should be a list of JPEGs, not an array of 2x3 numbers of type f4; "
                       "--data-provider cifar reads arrays"));
  CHECK(error(pickles::pickle_file(pickles::dict({{"data", pickles::list({})}}))).find("data should be") !=
        std::string::npos);
  CHECK(error(sub_batch(std::vector<std::string>(11, jpeg), std::vector<std::vector<int>>(11, {1})))
            .ends_with("batch 0 has 11 images; batches.meta says 10 (batch_size)"));
  std::filesystem::create_directories(folder / "data_batch_3");
  CHECK(read_error_of(folder.path()) == folder / "data_batch_3" + ": there is no data_batch_3.0 in it");
  write_file(folder / "data_batch_3/data_batch_3.1", "");
  CHECK(read_error_of(folder.path()) == folder / "data_batch_3" + ": data_batch_3.0 is missing");
}

TEST_CASE("options that do not fit the provider are errors", "[image]") {
  const TempFolder folder;
  write_folders(folder.path(), photographs(2, 2, 16));
  ImageOptions pad;
  pad.crop_pad = 4;
  CHECK(read_error_of(folder.path(), pad) == "--crop-pad is for providers of small images, not for 'image'");
  const TempFolder pickles;
  write_file(pickles / "batches.meta", meta(2, 2, 16));
  write_batch(pickles.path(), 1, photographs(2, 2, 16), 2);
  CHECK(message_of<InputError>([&] {
          make_provider("image", pickles.path(), 1, {}, BatchRange{1, 1});
        }).starts_with("--shuffle: cuda-convnet2's batches are read a file at a time,"));
  CHECK(message_of<InputError>([&] { make_provider("dummy-3x8x8-10", "", 1, sized(64)); }) ==
        "--image-size is for data provider 'image', not for 'dummy-3x8x8-10'");
  ImageOptions grey;
  grey.grey = true;
  CHECK(message_of<InputError>([&] { make_provider("dummy-3x8x8-10", "", 1, grey); }) ==
        "--grey is for data provider 'image', not for 'dummy-3x8x8-10'");
  grey.color_noise = 0.1;
  CHECK(read_error_of(folder.path(), grey) ==
        "--color-noise adds colours, and --grey makes the photographs grey; leave one out");
  CHECK(read_error_of("") == "data provider 'image' needs --data-path, the folder of the data set");
  // The default of --image-size is 8/7 of --inner-size.
  CHECK(open_images(folder.path(), sized(0, 224))->matrices()[0].dims == Dims{3, 224, 224});
  CHECK(open_images(folder.path())->matrices()[0].dims == Dims{3, 256, 256});
}

TEST_CASE("each epoch has a shuffled image data set in another order", "[image]") {
  const TempFolder folder;
  const std::vector<Item> all = photographs(12, 12, 16);
  write_file(folder / "a-1.tar", tar_of({all.begin(), all.begin() + 4}));
  write_file(folder / "a-2.tar", tar_of({all.begin() + 4, all.begin() + 9}));
  write_file(folder / "a-3.tar", tar_of({all.begin() + 9, all.end()}));
  const auto open = [&](int threads) {
    ImageOptions options = sized(16);
    options.decode_threads = threads;
    return make_provider("image", folder.path(), 1, options, BatchRange{1, 2});
  };
  const auto provider = open(1);
  const auto epoch_of = [&](int epoch) {
    std::vector<std::int32_t> labels = image_labels_of(provider->read({1, epoch}, {}));
    CHECK(labels.size() == 4);
    const std::vector<std::int32_t> second = image_labels_of(provider->read({2, epoch}, {}));
    CHECK(second.size() == 5);
    labels.insert(labels.end(), second.begin(), second.end());
    return labels;
  };
  std::vector<std::int32_t> first = epoch_of(1), other = epoch_of(2), stored(9);
  std::iota(stored.begin(), stored.end(), 0);
  CHECK(first != other);
  CHECK(first != stored);
  CHECK(epoch_of(0) == stored);
  CHECK(epoch_of(1) == first);
  // A run that begins with another batch and piece has the same images, and they go with their labels.
  const DataBatch piece = open(3)->read({2, 1, 2, 2}, {});
  CHECK(image_labels_of(piece) == std::vector<std::int32_t>{first[6], first[7]});
  CHECK(image_of(piece, 1) == image_of(provider->read({2, 1}, {}), 3));
  for (std::vector<std::int32_t>* labels : {&first, &other}) {
    std::sort(labels->begin(), labels->end());
    CHECK(*labels == stored);
  }
}
