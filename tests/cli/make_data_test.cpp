// `convnet make-data` as a user runs it, and as a machine stops it.
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "providers/pickle.h"
#include "providers/provider.h"
#include "providers/registry.h"
#include "tests/catch.h"
#include "tests/cli/run_program.h"
#include "tests/data/image_folders.h"
#include "tests/providers/tar_writer.h"
#include "tests/python.h"

namespace convnet {
namespace {

/// train/ with five images and val/ with one, all different.
struct Source {
  Source() {
    for (int i = 0; i < 6; ++i)
      write_below(
          folder.path(),
          (i < 5 ? "train/" : "val/") + std::string(i < 3 ? "cat/" : "dog/") + std::to_string(i) + ".png",
          test_images::png(test_images::waves(20 + i, 30 - i, i)));
    for (const char* name : {"train/dog", "val/cat"}) std::filesystem::create_directories(folder / name);
    write_below(folder.path(), "val/cat/9.png", test_images::png(test_images::waves(20, 20, 9)));
  }
  Args args(const std::string& dst, const Args& more = {}) const {
    return Args{"make-data", "--src",        folder.path(), "--dst",     target / dst, "--size",
                "16",        "--batch-size", "2",           "--threads", "1"} +
           more;
  }
  TempFolder folder, target;
};

/// Calls that change files or folders; between two of them a kill leaves the same behind.
bool changes_files(long call) {
  static const std::set<long> calls = {SYS_write, SYS_rename,  SYS_renameat, SYS_renameat2,
                                       SYS_mkdir, SYS_mkdirat, SYS_unlink,   SYS_unlinkat};
  return calls.contains(call);
}

/// Runs the program and kills it just before its `n`-th call that changes files, counted from the first
/// mkdir. False if it ended before.
bool killed_before(int n, std::vector<std::string> args) {
  args.insert(args.begin(), CONVNET_PROGRAM);
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);  // it refuses to work in a traced process
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(99);
    execv(argv[0], argv.data());
    _exit(98);
  }
  int status = 0, calls = 0;
  bool entering = false, begun = false;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSTOPPED(status));
  ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  for (;;) {
    ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    REQUIRE(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status)) {
      CHECK(WEXITSTATUS(status) == 0);
      return false;
    }
    REQUIRE(WIFSTOPPED(status));
    if (WSTOPSIG(status) != (SIGTRAP | 0x80)) continue;
    entering = !entering;
    if (!entering) continue;
    __ptrace_syscall_info info = {};
    REQUIRE(ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info) > 0);
    const long call = static_cast<long>(info.entry.nr);
    begun = begun || call == SYS_mkdir || call == SYS_mkdirat;
    if (begun && changes_files(call) && ++calls == n) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return true;
    }
  }
}

bool may_trace() {
  const pid_t child = fork();
  if (child == 0) _exit(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0 ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_CASE("make-data says what it finds and makes") {
  const Source source;
  const Outcome run = run_program(source.args("set"));
  INFO(run.err);
  CHECK(run.code == 0);
  CHECK(run.out == source.folder.path() + ": 5 training images, 2 validation images, 2 classes\n" +
                       "data_batch_0: 2 of 7 images are done\n" + "data_batch_1: 4 of 7 images are done\n" +
                       "data_batch_2: 5 of 7 images are done\n" +
                       "data_batch_1000: 7 of 7 images are done\n" + source.target.path() +
                       "/set: 5 training images (--train-range 0-2), 2 validation images " +
                       "(--test-range 1000)\ntrain on it: convnet train " + source.target.path() +
                       "/set --layer-def NET.cfg --layer-params NET-params.cfg --epochs 90 --test-freq 0 "
                       "--test-one 0 --save-file RUN\n");
  CHECK(run.err.empty());
  const auto made = all_files(source.target / "set");
  CHECK(made.size() == 5);
  // Again: nothing is left to do.
  CHECK(run_program(source.args("set")).out.find("5 training images (--train-range 0-2)") !=
        std::string::npos);
  CHECK(all_files(source.target / "set") == made);
}

TEST_CASE("provider image trains and tests on what make-data writes") {
  const Source source;
  REQUIRE(run_program(source.args("set")).code == 0);
  write_file(source.target / "net.cfg",
             "[data]\ntype=data\ndataIdx=0\n[labels]\ntype=data\ndataIdx=1\n"
             "[fc]\ntype=fc\ninputs=data\noutputs=2\n[probs]\ntype=softmax\ninputs=fc\n"
             "[logprob]\ntype=cost.logreg\ninputs=labels,probs\n");
  write_file(source.target / "params.cfg",
             "[fc]\nepsW=0.00001\nepsB=0\nmomW=0\nmomB=0\n[logprob]\ncoeff=1\n");
  const Outcome run = run_program({"--layer-def",     source.target / "net.cfg",
                                   "--layer-params",  source.target / "params.cfg",
                                   "--data-provider", "image",
                                   "--data-path",     source.target / "set",
                                   "--train-range",   "0-2",
                                   "--test-range",    "1000",
                                   "--inner-size",    "12",
                                   "--color-noise",   "0.1",
                                   "--mini",          "2",
                                   "--epochs",        "2",
                                   "--test-freq",     "3",
                                   "--save-file",     source.target / "run"});
  INFO(run.out << run.err);
  CHECK(run.code == 0);
  CHECK(run.out.find("\n2.2 (") != std::string::npos);
  CHECK(run.out.find("Test output") != std::string::npos);
  // A set of few images has a batch 0 and no batch 1.
  REQUIRE(run_program(source.args("one") + Args{"--batch-size", "3000"}).code == 0);
  run_well({"bench", "--steps", "1", "--layer-def", source.target / "net.cfg", "--layer-params",
            source.target / "params.cfg", "--data-provider", "image", "--data-path", source.target / "one",
            "--train-range", "0", "--inner-size", "12", "--mini", "2"});
}

TEST_CASE("make-data killed before any change of a file goes on to the same bytes") {
  if (!may_trace()) return test::skip("this machine does not let a process trace another");
  const Source source;
  REQUIRE(run_program(source.args("whole")).code == 0);
  const auto expected = all_files(source.target / "whole");
  int n = 1;
  for (; killed_before(n, source.args("killed")); ++n) {
    CAPTURE(n);
    // Whatever is there under its own name is whole.
    if (std::filesystem::exists(source.target / "killed"))
      for (const auto& [name, bytes] : all_files(source.target / "killed"))
        if (expected.contains(name)) REQUIRE(bytes == expected.at(name));
    REQUIRE(run_program(source.args("killed")).code == 0);
    REQUIRE(all_files(source.target / "killed") == expected);
    std::filesystem::remove_all(source.target / "killed");
    REQUIRE(n < 1000);
  }
  CHECK(n > 20);
}

TEST_CASE("CPython loads what make-data writes") {
  if (!test::has_python()) return test::skip("there is no python3");
  const Source source;
  REQUIRE(run_program(source.args("set")).code == 0);
  write_file(source.target / "load.py", R"(
import pickle, sys

class Loader(pickle.Unpickler):
    """NumPy need not be there: what is called is kept with its arguments."""
    def find_class(self, module, name):
        class Made:
            def __init__(self, *args): self.args = args
            def __setstate__(self, state): self.state = state
        Made.__name__ = module + "." + name
        return Made

def load(name):
    with open(sys.argv[1] + "/" + name, "rb") as file:
        return Loader(file, encoding="latin1").load()

part = load("data_batch_0/data_batch_0.0")
assert sorted(part) == ["data", "labels"] and len(part["data"]) == len(part["labels"]) == 2
assert all(type(jpeg) is str and jpeg.startswith("\xff\xd8\xff") and jpeg.endswith("\xff\xd9") for jpeg in part["data"])
assert all(type(label) is list and label[0] in (0, 1) for label in part["labels"])
meta = load("batches.meta")
assert (meta["batch_size"], meta["num_vis"], meta["img_size"], meta["label_names"]) == (2, 768, 16, ["cat", "dog"])
mean = meta["data_mean"]
version, shape, kind, fortran, data = mean.state
assert type(mean).__name__ == "numpy.core.multiarray._reconstruct" and shape == (768, 1) and len(data) == 4 * 768
assert type(kind).__name__ == "numpy.dtype" and kind.args[0] == "f4" and kind.state[1] == "<" and not fortran
assert [a.state[1] for a in meta["color_pca"]] == [(3,), (3, 3)]
print("loaded")
)");
  FILE* const python = popen(
      ("python3 " + (source.target / "load.py") + " " + (source.target / "set") + " 2>&1").c_str(), "r");
  REQUIRE(python != nullptr);
  std::string out;
  for (int c = fgetc(python); c != EOF; c = fgetc(python)) out += static_cast<char>(c);
  const int status = pclose(python);
  CHECK(out == "loaded\n");
  CHECK(status == 0);
}

TEST_CASE("make-data names what is wrong with its options") {
  const Source source;
  check_refused({"make-data"}, "missing: --src, --dst");
  check_refused({"make-data", "--mini", "3"}, "unknown option '--mini'");
  check_refused(source.args("set", {"--size", "15"}),
                "--size expects an integer between 16 and 1024, not '15'");
  check_refused(source.args("set", {"--batch-size", "0"}), "--batch-size expects an integer between 1 and");
  check_refused(source.args("set", {"--crop-to-square", "2"}), "--crop-to-square expects 0 or 1");
  check_refused(source.args("set", {"--dst", source.folder / "train/set"}),
                "/train/set: lies in --src; choose a folder outside");
  check_refused(source.args("set", {"--dst", source.folder.path()}),
                ": lies in --src; choose a folder outside");
  check_refused(source.args("set", {"--src", source.folder / "none"}), source.folder / "none: no such file");
  check_refused(source.args("set", {"--src", source.folder / "val/cat/9.png"}),
                "val/cat/9.png: is a PNG, not a tar");
  CHECK_FALSE(std::filesystem::exists(source.target / "set"));

  write_below(source.folder.path(), "train/dog/bad.png", "no image");
  check_refused(source.args("set"), "train/dog/bad.png: ");
  const Outcome skipping = run_program(source.args("set", {"--skip-bad-images"}));
  CHECK(skipping.code == 0);
  CHECK(skipping.err.starts_with("1 images were left out:\n  train/dog/bad.png: "));
  check_refused(source.args("set", {"--skip-bad-images", "--seed", "7"}),
                "holds a data set made with --seed 1 (now 7)");
}

TEST_CASE("make-data takes the classes of photos from a table") {
  const TempFolder folder;
  for (int i = 0; i < 5; ++i)
    write_below(folder / "photos", std::to_string(i) + ".png",
                test_images::png(test_images::waves(20, 20, i)));
  write_file(folder / "labels.csv", "id,label\r\n0,10\r\n1,9\r\n3.png,\"9\"\r\n4,10\r\n");
  const auto make = [&](const Args& more) {
    return run_program(Args{"make-data", "--src", folder / "photos", "--labels", folder / "labels.csv",
                            "--size", "16", "--hold-out", "0"} +
                       more);
  };
  const Outcome run = make({"--dst", folder / "set"});
  INFO(run.out << run.err);
  CHECK(run.code == 0);
  CHECK(run.out.starts_with(folder / "photos: 4 training images, 0 validation images, 2 classes\n"));
  CHECK(run.err ==
        "Note: the table of --labels begins with a header, which is left out: " + folder / "labels.csv" +
            ":1: 'id,label'\n"
            "Note: the table of --labels holds 2 classes, which are named by numbers; --label-kind numbers "
            "predicts numbers instead\n"
            "warning: 1 photo(s) have no line in the table of --labels and are left out, as 2.png\n");
  const PickleValue meta = read_pickle(folder / "set/batches.meta");
  CHECK(meta.at("label_names")[0].string("name") == "9");
  CHECK(meta.at("label_names")[1].string("name") == "10");
  // Other labels are another data set.
  write_file(folder / "labels.csv", "0,9\n1,9\n3,9\n4,10\n");
  const Outcome other = make({"--dst", folder / "set"});
  CHECK(other.code == 2);
  CHECK(other.err.find("holds a data set made with other images") != std::string::npos);
  write_file(folder / "labels.csv", "0,9\n1,9\n7,9\n");
  const Outcome wrong = make({"--dst", folder / "other"});
  CHECK(wrong.code == 2);
  CHECK(wrong.err.find(folder / "labels.csv:3: there is no photo '7' in " + folder / "photos") !=
        std::string::npos);
  CHECK(!std::filesystem::exists(folder / "other"));
  // Shards of the same photos.
  std::string tar;
  for (const char* name : {"0.png", "1.png"}) tar += tars::member(name, read_file(folder / "photos/" + name));
  write_file(folder / "p.tar", tar + tars::end());
  write_file(folder / "labels.csv", "0,9\n1,8\n");
  const Outcome tars = run_program({"make-data", "--src", folder / "p.tar", "--labels", folder / "labels.csv",
                                    "--size", "16", "--dst", folder / "of-tar"});
  INFO(tars.err);
  CHECK(tars.code == 0);
  CHECK(tars.out.starts_with(folder /
                             "p.tar: 1 training images, 1 validation images (a tenth, held out by a hash "
                             "of their names), 2 classes\n"));
}

TEST_CASE("make-data holds out the tenth that a run on the folders would") {
  const TempFolder folder;
  for (int i = 0; i < 40; ++i)
    write_below(folder / "photos", (i % 2 ? "cat/" : "dog/") + std::to_string(i) + ".png",
                plain_png(20, 20, static_cast<std::uint8_t>(i), 9, 9));
  const auto make = [&](const std::string& dst, const Args& more = {}) {
    return Args{"make-data", "--src", folder / "photos", "--dst", folder / dst, "--size", "16"} + more;
  };
  ImageOptions options;
  options.image_size = 16;
  options.hold_out = true;
  const auto direct = make_provider("image", folder / "photos", 0, options);
  const std::int64_t held_out = direct->images_in(2);
  CHECK(held_out > 0);
  CHECK(direct->images_in(1) + held_out == 40);
  const Outcome run = run_well(make("set"));
  CHECK_THAT(
      run.out,
      Catch::StartsWith((folder / "photos") + ": " + std::to_string(40 - held_out) + " training images, " +
                        std::to_string(held_out) +
                        " validation images (a tenth, held out by a hash of their names), 2 classes\n") &&
          Catch::Contains(std::to_string(held_out) + " validation images (--test-range 1000)\n"));
  const auto made = make_provider("image", folder / "set", 0, {});
  CHECK(made->count_images(0) == 40 - held_out);
  CHECK(made->count_images(1000) == held_out);
  // The classes of the images that are held out.
  const auto labels_in = [](const Provider& provider, int batch) {
    const DataBatch data = provider.read({batch, 0}, {});
    std::vector<std::int32_t> labels(static_cast<std::size_t>(data.images));
    std::memcpy(labels.data(), data.matrices[1].data(), data.matrices[1].size());
    std::sort(labels.begin(), labels.end());
    return labels;
  };
  CHECK(labels_in(*made, 1000) == labels_in(*direct, 2));

  const Outcome none = run_well(make("all", {"--hold-out", "0"}));
  CHECK_THAT(none.out, Catch::Contains(": 40 training images, 0 validation images, 2 classes\n") &&
                           Catch::Contains("it has one batch, and none to test with: --hold-out 1, or a "
                                           "--batch-size of at most 20, makes one\n"));
  // Another choice is another data set, and older versions held nothing out.
  check_refused(make("all"), (folder / "all") +
                                 ": holds a data set made with --hold-out 0 (now 1); make this one in "
                                 "another folder");
  // A single image cannot be held out.
  write_below(folder / "one", "cat/0.png", plain_png(20, 20, 9, 9, 9));
  check_refused({"make-data", "--src", folder / "one", "--dst", folder / "of-one", "--size", "16"},
                "there is one image, and none is left to test with; --hold-out 0 makes it a training image");
}

TEST_CASE("make-data takes tars") {
  const TempFolder folder;
  const auto shard = [&](int i) {
    const std::string key = "k" + std::to_string(i);
    write_file(folder / key + ".tar", tars::member(key + ".png", plain_png(20, 20, 9, 9, 9)) +
                                          tars::member(key + ".cls", std::to_string(i)) + tars::end());
    return folder / key + ".tar";
  };
  const Args rest = {"--dst", folder / "set", "--size", "16", "--hold-out", "0"};
  const Outcome run = run_program(Args{"make-data", "--src", shard(0) + "," + shard(1)} + rest);
  INFO(run.err);
  CHECK(run.code == 0);
  CHECK(run.out.find(": 2 training images, 0 validation images, 2 classes\n") != std::string::npos);
  write_file(folder / "ILSVRC2012_img_val.tar", tars::end());
  const std::string rule =
      "--src: ILSVRC-2012 is ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar and "
      "ILSVRC2012_devkit_t12.tar.gz, all "
      "three and nothing else";
  for (const std::string& src :
       {folder / "ILSVRC2012_img_val.tar", folder / "ILSVRC2012_img_val.tar" + "," + shard(0)}) {
    const Outcome wrong = run_program(Args{"make-data", "--src", src} + rest);
    CHECK(wrong.code == 2);
    CHECK(wrong.err == rule + "\n");
  }
}

}  // namespace
}  // namespace convnet
