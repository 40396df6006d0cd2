// Notes and errors of runs on photographs: how a folder is read, and what is left out of it or wrong in it.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/cli/equal_tensors.h"
#include "tests/cli/photographs.h"

namespace convnet {
namespace {

using namespace image_sets;

TEST_CASE("one photo is enough to train on if it is named for tests, too; minibatches have one image then") {
  const Photographs photos;
  const std::string from = photos.folder / "folders/val", one = photos.folder / "one";
  const std::string name = files_in(from).front(), photo = files_in(from + "/" + name).front();
  std::filesystem::create_directories(one + "/" + name);
  std::filesystem::copy_file(from + "/" + name + "/" + photo, one + "/" + name + "/" + photo);
  const Args line = {"train", one,        "--layer-def", "small",       "--inner-size",
                     "16",    "--epochs", "1",           "--save-file", photos.folder / "run"};
  const Args ranges = {"--train-range", "1", "--test-range", "1"};
  check_refused(line, one +
                          ": there is one image, and none is left to test with. With --train-range 1 "
                          "--test-range 1 a run would be tested on the image that it trains on\n");
  const Outcome chosen = run_well(line + ranges);
  INFO(chosen.out);
  CHECK_THAT(chosen.out, Catch::Contains("Not given, and chosen for 1 image: --mini 1\n") &&
                             Catch::Contains("; minibatches of 1 image;"));
  CHECK_THAT(chosen.err,
             !Catch::Contains("--mini") &&
                 Catch::Contains("layer 'logprob': the data has one class, and 'probs' one output, whose "
                                 "probability is always 1: there is nothing to learn\n"));
  // A number that is given is lowered, with a warning, in training, tests and plans.
  const Outcome given =
      run_well(line + ranges + Args{"--mini", "16", "--save-file", photos.folder / "given"});
  const std::string warning =
      "warning: --mini 16 is more than the largest batch has, 1 image: minibatches have at most 1 image\n";
  CHECK_THAT(given.err, Catch::Contains(warning));
  check_equal_tensors(read_safetensors(photos.folder / "given/1.1.safetensors"),
                      read_safetensors(photos.folder / "run/1.1.safetensors"));
  CHECK(run_program({"--load-file", photos.folder / "given", "--test-only", "1"}).code == 0);
  CHECK_THAT(
      run_well(Args{"plan"} + Args(line.begin() + 1, line.end() - 4) + ranges + Args{"--mini", "16"}).err,
      Catch::Contains(warning));
}

TEST_CASE("a run whose folder of photos has moved, or has other classes now, says so") {
  const Photographs photos;
  const std::string set = photos.folder / "folders", moved = photos.folder / "moved",
                    run = photos.folder / "run";
  run_well({"train", set, "--layer-def", "small", "--inner-size", "16", "--epochs", "1", "--save-file", run});
  std::filesystem::rename(set, moved);
  const std::string where = set + " is in the options of " + run +
                            "/1.1.safetensors; if it has moved, or "
                            "you are in another folder, name it with --data-path\n";
  check_refused({"--load-file", run, "--test-only", "1"}, where);
  check_refused({"--load-file", run, "--epochs", "2"}, where);
  const Args test = {"--load-file", run, "--test-only", "1", "--data-path", moved};
  CHECK(run_program(test).code == 0);
  // Without its last class, the data set needs another net.
  for (const char* part : {"train", "val"}) {
    const std::string all = moved + "/" + part;
    std::filesystem::remove_all(all + "/" + files_in(all).back());
  }
  check_refused(
      test,
      "the data set does not fit: it has 3 of the 4 classes that the net was trained on, and not 'c3': in "
      "folders of classes, an empty folder of that name keeps its place; --init-from starts a new net from "
      "the "
      "weights that fit");
}

TEST_CASE("a new run finds out how its folder is read, and the side of its net's images") {
  const Photographs photos;
  write_file(photos.folder / "net.cfg", "# net: for colours.\n# input: 3x16x16, 4 classes\n" + kColorNet);
  const Args net = {"--layer-def",    photos.folder / "net.cfg",
                    "--layer-params", photos.folder / "params.cfg",
                    "--mini",         "8"};
  const std::string folders = photos.folder / "folders", out = photos.folder / "run";
  const Outcome run = run_well(net + Args{"--epochs", "1", "--data-path", folders, "--save-file", out});
  INFO(run.out);
  CHECK(run.out.find("Not given, and chosen for " + folders + ": --data-provider image, --inner-size 16\n") !=
        std::string::npos);
  run_well({"--load-file", out, "--epochs", "2"});  // the checkpoint holds what was chosen
  // The images of batches have one size, which may be smaller.
  const Outcome plan = run_well(Args{"plan"} + net + Args{"--data-path", photos.folder / "pickles"});
  CHECK((plan.out + plan.err).find("--inner-size") == std::string::npos);
  // Photos in one folder are read with their table.
  std::string table;
  for (const std::string& name : files_in(folders + "/val")) {
    for (const std::string& photo : files_in(folders + "/val/" + name)) {
      std::filesystem::create_directories(photos.folder / "flat");
      std::filesystem::copy_file(folders + "/val/" + name + "/" + photo,
                                 photos.folder / "flat" + "/" + name + "-" + photo);
      table += name + "-" + photo + "," + name + "\n";
    }
  }
  write_file(photos.folder / "table.csv", table);
  const Outcome tabled =
      run_well(net + Args{"--epochs", "1", "--data-path", photos.folder / "flat", "--labels",
                          photos.folder / "table.csv", "--save-file", out + "3"});
  CHECK(tabled.out.find("--data-provider image, --inner-size 16\n") != std::string::npos);
  const std::string nothing = photos.folder / "nothing";
  const Outcome missing = run_program(net + Args{"--data-path", nothing, "--save-file", out + "2"});
  CHECK(missing.code == 2);
  CHECK(missing.err.find(nothing) != std::string::npos);
}

TEST_CASE("a bad image ends training with its name, or is named at the end") {
  const Photographs photos;
  std::vector<Item> items = photographs(17, 4, 20);
  items[3].bytes.resize(200);
  write_file(photos.folder / "tars/a-2.tar", tar_of(items));
  const Args args = photos.train("tars", "bad");
  const Outcome stopped = run_program(args);
  CHECK(stopped.code == 2);
  CHECK(stopped.err.find("a-2.tar: s/1003.jpg: a damaged JPEG: ") != std::string::npos);
  const Outcome skipped = run_program(args + Args{"--skip-bad-images", "1"});
  CHECK(skipped.code == 0);
  CHECK(skipped.err.find("warning: 1 image(s) could not be read, and others took their places:\n  " +
                         photos.folder / "tars/a-2.tar: s/1003.jpg\n") != std::string::npos);
  // The line 'train on:' needs no more.
  run_well({"--load-file", photos.folder / "bad", "--epochs", "3"});
}

TEST_CASE("a BMP without pixels is an unreadable image like others, whatever it is called") {
  const Photographs photos;
  const std::string bmp = std::string("BM\x36\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0", 18) + std::string(8, '\0') +
                          std::string("\1\0\x18\0", 4) + std::string(24, '\0');
  const std::string name = photos.folder / "folders/train/c1/empty.jpg";
  write_file(name, bmp);
  const Args args = photos.train("folders", "run");
  const Outcome stopped = run_program(args);
  CHECK(stopped.code == 2);
  CHECK(stopped.err.find(name + ": a damaged image: 0 x 0 pixels") != std::string::npos);
  CHECK(stopped.err.find("--skip-bad-images 1 goes on past images") != std::string::npos);
  CHECK(run_well(args + Args{"--skip-bad-images", "1"}).err.find(name) != std::string::npos);
  // `predict` has no such option.
  const Outcome predicted = run_program({"predict", photos.folder / "run", name});
  CHECK(predicted.code == 1);
  CHECK(predicted.err.find("--skip-bad-images") == std::string::npos);
  const Args make = {"make-data", "--src", photos.folder / "folders", "--dst", photos.folder / "made",
                     "--size",    "16"};
  CHECK(run_program(make).code == 2);
  CHECK(run_well(make + Args{"--skip-bad-images", "1"}).err.find("0 x 0 pixels") != std::string::npos);
}

TEST_CASE("links to images that lead nowhere are counted and named") {
  const Photographs photos;
  const std::string link = photos.folder / "folders/train/c1/gone.jpg";
  std::filesystem::create_symlink("nowhere.jpg", link);
  std::filesystem::create_symlink("nowhere.txt", photos.folder / "folders/train/c1/gone.txt");
  const std::string warning = "warning: 1 link(s) to images lead nowhere and are left out:\n  " + link + "\n";
  CHECK(run_well(photos.train("folders", "run")).err == warning);
  CHECK(run_well({"make-data", "--src", photos.folder / "folders", "--dst", photos.folder / "made", "--size",
                  "16"})
            .err == warning);
}

TEST_CASE("tables of labels are refused where there are labels already, or no photos") {
  const Photographs photos;
  write_file(photos.folder / "labels.csv", "x,1\n");
  const auto error = [&](const Args& args) {
    const Outcome run = run_program(args + Args{"--labels", photos.folder / "labels.csv"});
    CHECK(run.code == 2);
    return run.err;
  };
  CHECK(error(photos.train("pickles", "run"))
            .find("holds batches with labels (batches.meta); --labels is for") != std::string::npos);
  CHECK(error(photos.train("folders", "run")).find("labels.csv:1: there is no photo 'x' in ") !=
        std::string::npos);
  CHECK(error(with(photos.train("folders", "run"), "--data-provider", "dummy-3x16x16-4"))
            .find("--labels is for data provider 'image', not for 'dummy-3x16x16-4'") != std::string::npos);
}

TEST_CASE("pictures of formats that are not read are counted") {
  const Photographs photos;
  const std::string folder = photos.folder / "folders/train/c1/";
  for (const std::string name : {"a.heic", "b.TIFF", ".c.gif", "notes.txt"}) write_file(folder + name, "");
  const std::string warning =
      "warning: 2 picture(s) are left out, as " + folder +
      "a.heic: only files with these endings are read: .jpg, .jpeg, .jpe, .jfif, .png, .bmp, .webp; convert "
      "them to JPEG or PNG\n";
  CHECK(run_well(photos.train("folders", photos.folder / "run")).err == warning);
  CHECK(run_well({"make-data", "--src", photos.folder / "folders", "--dst", photos.folder / "made", "--size",
                  "16"})
            .err == warning);
  CHECK(run_well({"predict", photos.folder / "run", folder}).err == warning);
}

TEST_CASE("images whose names do not end like those of images are counted") {
  const Photographs photos;
  const std::string folder = photos.folder / "folders/train/c1/";
  const std::string photo = photographs(1, 4, 20)[0].bytes;
  for (const std::string name : {"img?w=200", "a.jpg_large", "b.jpg"}) write_file(folder + name, photo);
  write_file(folder + "c.jpg.part", "not begun");
  // A folder that has nothing else says so.
  const std::string others = photos.folder / "others";
  std::filesystem::create_directories(others + "/a");
  write_file(others + "/a/1.gif", "GIF89a");
  check_refused({"train", others, "--layer-def", "small"},
                others +
                    ": there are no images (.jpg, .jpeg, .jpe, .jfif, .png, .bmp, .webp) in its folders\n"
                    "warning: 1 picture(s) are left out, as " +
                    others + "/a/1.gif: only files with these endings are read");
  const std::string warning = "warning: 2 image(s) are left out, as " + folder +
                              "a.jpg_large, because their names do not end like those of images; give them "
                              "names like photo.jpg\n";
  CHECK(run_well(photos.train("folders", photos.folder / "run")).err == warning);
  CHECK(run_well({"predict", photos.folder / "run", folder}).err == warning);
}

TEST_CASE("a run says what its classes are, and which have no training images") {
  const Photographs photos;
  const Args train = photos.train("folders", "run");
  const Outcome full = run_well(train);
  CHECK_THAT(full.out, Catch::Contains("\nClasses: 4; training images: c0 (10), c1 (9), c2 (9), c3 (9)\n"));
  CHECK(full.err == "");
  const std::string classes = photos.folder / "folders/train/";
  for (const auto& file : std::filesystem::directory_iterator(classes + "c1"))
    std::filesystem::remove(file.path());
  const std::string one =
      "warning: class 'c1' has no training images, and the net has an output for it: remove what is no "
      "class\n";
  const Outcome empty = run_well(with(train, "--save-file", photos.folder / "empty"));
  CHECK_THAT(empty.out, Catch::Contains("\nClasses: 4; training images: c0 (10), c1 (0), c2 (9), c3 (9)\n"));
  CHECK(empty.err == one);
  CHECK_THAT(run_well(Args{"plan"} + with(train, "--save-file", photos.folder / "none")).err,
             Catch::Contains(one));
  // Tests alone see other images.
  const Outcome tested = run_well({"--load-file", photos.folder / "empty", "--test-only", "1"});
  CHECK_THAT(tested.out + tested.err, !Catch::Contains("Classes: ") && !Catch::Contains("warning: "));
}

TEST_CASE("images beside the folders of classes are said to be left out, and no output may lie among these") {
  const Photographs photos;
  namespace fs = std::filesystem;
  const std::string set = photos.folder / "folders", train = set + "/train";
  const std::string photo = train + "/c0/" + files_in(train + "/c0").front();
  const Args line = {"train", set, "--layer-def", "small", "--inner-size", "16", "--epochs", "1"};
  run_well(Args{"train", "--flip", set} + Args(line.begin() + 2, line.end()) +
           Args{"--save-file", set + "/before"});
  check_refused(Args{"train", "--flip", "ture", set}, "--flip expects one of auto, 0, 1, not 'ture'");
  for (const Args& output : {Args{"--save-file", train + "/run"}, Args{"--save-path", train},
                             Args{"--tensorboard", set + "/val/board", "--save-file", photos.folder / "run"},
                             Args{"--cache-images", train + "/cache", "--save-file", photos.folder / "run"}})
    check_refused(line + output,
                  output[0] + " " + output[1] + ": lies in " +
                      (output[1].find("/val/") == std::string::npos ? train : set + "/val") +
                      ", whose folders are the classes of the data set; choose a folder outside\n");
  for (const Args& output : {Args{"--test-out", train + "/probs", "--test-only", "1"},
                             Args{"--feature-path", train + "/fc", "--write-features", "probs"}})
    check_refused(Args{"--load-file", set + "/before"} + output,
                  output[0] + " " + output[1] + ": lies in " + train +
                      ", whose folders are the classes of the data set; choose a folder outside\n");
  CHECK(files_in(train) == std::vector<std::string>{"c0", "c1", "c2", "c3"});
  // Beside the folders of training and test images there is room.
  run_well(line + Args{"--save-file", set + "/run"});
  fs::copy_file(photo, train + "/loose.jpg");
  fs::create_directories(set + "/dev/c0");
  fs::copy_file(photo, set + "/dev/c0/1.jpg");
  const std::string loose = "warning: 1 image(s) beside the folders of classes are left out, as " + train +
                            "/loose.jpg; an image's class is the folder that it lies in\n",
                    beside =
                        "warning: 1 folder(s) with images beside that of training images are left out, as " +
                        set + "/dev\n";
  const std::string err = run_well(line + Args{"--save-file", set + "/again"}).err;
  CHECK_THAT(err, Catch::Contains(loose) && Catch::Contains(beside));
  const std::string made = run_well({"make-data", "--src", set, "--dst", photos.folder / "made"}).err;
  CHECK_THAT(made, Catch::Contains(loose) && Catch::Contains(beside));
  // The image of one of two classes is held out.
  const std::string few = photos.folder / "few";
  for (const std::string name : {"a", "b"}) {
    fs::create_directories(few + "/" + name);
    fs::copy_file(photo, few + "/" + name + "/" + name + ".jpg");
  }
  const Args on_few = {"train", few, "--layer-def", "small", "--inner-size", "16", "--epochs", "1"};
  CHECK_THAT(
      run_well(on_few + Args{"--save-file", photos.folder / "few-run"}).err,
      Catch::Contains("' are held out for tests, so none is left for training: add more, or put those of "
                      "tests into a folder val beside a folder train\n"));
  fs::create_directories(few + "/none");
  CHECK_THAT(run_well(on_few + Args{"--save-file", photos.folder / "fewer-run"}).err,
             Catch::Contains("' are held out for tests, so none is left for training") &&
                 Catch::Contains("warning: class 'none' has no training images, and the net has an output"));
}

TEST_CASE("a run warns if its initial weights expect other pixels than its own") {
  const Photographs photos;
  const auto train = [&](const std::string& into, const Args& more) {
    return run_well(photos.train("folders", into) + more).err;
  };
  train("whole", {});
  train("divided", {"--pixel-std", "1"});
  const std::string whole = photos.folder / "whole", divided = photos.folder / "divided";
  CHECK(train("1", {"--init-from", whole}) == "");
  CHECK(train("2", {"--init-from", divided, "--pixel-std", "1"}) == "");
  CHECK(
      train("3", {"--init-from", divided}) ==
      "warning: the weights of " + divided +
          " expect pixels that are divided by their standard deviation, as --pixel-std 1 does; those of this "
          "run are about fifty times as large\n");
  CHECK(train("4", {"--init-from", whole, "--pixel-std", "1"}) ==
        "warning: the weights of " + whole +
            " expect pixels that are not divided by their standard deviation; those of this run are, by "
            "--pixel-std 1\n");
}

TEST_CASE("arrays whose labels leave out numbers get a warning, because the net has outputs for these") {
  const auto npy = [](const std::string& shape, const std::string& data) {
    const std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': " + shape + ", }\n";
    return std::string("\x93NUMPY\x01\0", 8) + static_cast<char>(header.size()) + '\0' + header + data;
  };
  const TempFolder folder;
  std::filesystem::create_directories(folder / "set");
  write_file(folder / "set/images.npy",
             npy("(6, 3, 16, 16)", std::string(std::size_t{6} * 3 * 16 * 16, 'x')));
  write_file(folder / "set/labels.npy", npy("(6,)", std::string("\0\3\0\5\3\0", 6)));
  const Args train = {"train",         folder / "set",
                      "--layer-def",   "small",
                      "--train-range", "1",
                      "--test-range",  "1",
                      "--epochs",      "1",
                      "--threads",     "1",
                      "--save-file",   folder / "run"};
  const std::string warning =
      "warning: 3 classes, as '1', have no training images, and the net has an output for each of them: "
      "number the classes from 0 and without gaps\n";
  CHECK_THAT(run_well(Args{"plan"} + Args(train.begin() + 1, train.end() - 6)).err, Catch::Contains(warning));
  const Outcome run = run_well(train);
  CHECK_THAT(run.err, Catch::Contains(warning));
  CHECK_THAT(run.out,
             Catch::Contains("\nClasses: 6; training images: 0 (3), 1 (0), 2 (0), 3 (2), 4 (0), 5 (1)\n"));
}

TEST_CASE("images without labels are errors where the net reads labels") {
  const Photographs photos;
  const std::string jpeg = photographs(1, 1, 20)[0].bytes;
  write_file(photos.folder / "pickles/data_batch_7", sub_batch({jpeg, jpeg, jpeg}, {{1}, {2}, {}}));
  check_refused(with(photos.train("pickles", "none"), "--train-range", "7"),
                "batch 7: image 2 (counted from 0) has no label, but the net reads labels (dataIdx=1)");
  // Whichever of them is read first with the bare one's label.
  const Outcome mixed =
      run_program(with(photos.train("pickles", "none"), "--train-range", "7") + Args{"--mixup", "1"});
  CHECK(mixed.code == 2);
  INFO(mixed.err);
  CHECK(mixed.err.find("batch 7: image 1 (counted from 0), or the one that it is mixed with, has no label") !=
        std::string::npos);
}

}  // namespace
}  // namespace convnet
