// How runs end that do not get to their end: signals, outputs that cannot be written, data that is wrong,
// limits of the machine. What was learned is saved.
#include <sys/stat.h>

#include <algorithm>
#include <chrono>

#include "convnet/checkpoint/safetensors.h"
#include "tests/catch.h"
#include "tests/cli/equal_tensors.h"
#include "tests/cli/small_net.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

void check(const Outcome& run, int code, const std::string& message) {
  INFO(run.out << run.err);
  CHECK(run.signal == 0);
  CHECK(run.code == code);
  CHECK(run.err.find(message) != std::string::npos);
}

/// A shell's words that run "$@" as a user without rights, where this one has all; "" if it cannot be done.
std::string without_rights() {
  if (geteuid() != 0) return "exec ";
  const std::string as_nobody = "exec setpriv --reuid=65534 --regid=65534 --clear-groups ";
  return run_in_shell(as_nobody + "\"$@\"", {"--version"}).code == 0 ? as_nobody : "";
}

}  // namespace

TEST_CASE("training without an end is saved when its terminal is closed, but not under nohup") {
  const Workshop shop;
  shop.write_data();
  Program program(shop.mnist() + Args{"--save-file", shop / "run"});
  REQUIRE(program.printed("1.1 (", 1));
  program.send(SIGHUP);
  const Outcome run = program.finish();
  INFO(run.err);
  CHECK(run.code == 0);
  CHECK_THAT(run.out,
             Catch::Contains("Saved checkpoint to " + (shop / "run") +
                             "\nStopped by SIGHUP; the command after 'train on:' goes on\nTrained "));

  // As nohup does it.
  Program deaf(in_shell("trap '' HUP; exec \"$@\"", shop.mnist() + Args{"--save-file", shop / "deaf"}),
               "/bin/sh");
  REQUIRE(deaf.printed("1.1 (", 1));
  deaf.send(SIGHUP);
  REQUIRE(deaf.printed("Test output", 1));
  deaf.send(SIGTERM);
  CHECK(deaf.finish().code == 0);
}

TEST_CASE("a time limit ends training with a checkpoint, and going on gives the same bits") {
  const Workshop shop;
  const Args run = shop.dummy() + Args{"--mini", "100", "--test-freq", "1000000", "--save-file"};
  const auto [limited, limit] = run_limited(shop / "run", [&](std::string text) {
    return run_program(run + Args{shop / "run", "--time-limit", text});
  });
  CHECK_THAT(limited.out,
             Catch::Contains("Saved checkpoint to " + (shop / "run") + "\nStopped before --time-limit " +
                             limit + "; the command after 'train on:' goes on\nTrained "));
  CHECK_THAT(limited.out, Catch::Contains("convnet --load-file " + (shop / "run") + " --epochs") &&
                              Catch::EndsWith(" --time-limit " + limit + "\n"));
  const std::vector<std::string> files = files_in(shop / "run");
  REQUIRE(files.size() == 1);
  const std::string epochs = std::to_string(std::stoi(files[0]) + 1);
  const Outcome resumed = run_well(run + Args{shop / "run", "--time-limit", "1-0", "--epochs", epochs});
  CHECK_THAT(resumed.out, !Catch::Contains("Stopped"));
  run_well(run + Args{shop / "whole", "--epochs", epochs});
  const std::string last = "/" + epochs + ".2.safetensors";
  check_equal_tensors((shop / "run") + last, (shop / "whole") + last);
  check_refused({"--load-file", shop / "run", "--test-only", "--time-limit", "5m"},
                "--time-limit ends training, and --test-only does not train; leave it out");
  check_refused(run + Args{shop / "run", "--time-limit", "soon"},
                "--time-limit expects a time above 0: minutes, like 90; with units, like 10s");
}

TEST_CASE("a time limit shorter than a minibatch trains one, and a loop of such runs reaches the end") {
  const Workshop shop;
  const std::string run = shop / "run", whole = shop / "whole";
  const Args args = shop.dummy() + Args{"--mini", "500", "--epochs", "1", "--test-freq", "9", "--save-file"},
             limit = {"--time-limit", "0.0000001"};
  const Outcome first = run_well(args + Args{run} + limit);
  CHECK_THAT(first.out,
             Catch::Contains("\nStopped before --time-limit 0:01; the command after 'train on:' goes "
                             "on\nNote: the limit was over ") &&
                 Catch::Contains(" s before that, because a minibatch takes longer\n") &&
                 Catch::Contains(" --epochs 1 --time-limit 0:01\n"));
  CHECK(files_in(run) == std::vector<std::string>{"1.1-0001.safetensors"});
  for (const char* next : {"1.1", "1.2-0001", "1.2"}) {
    run_well(args + Args{run} + limit);
    CHECK(files_in(run).back() == std::string(next) + ".safetensors");
  }
  // The test that is due has the time that the limit says, or the next run would not come further, either.
  check_refused(
      args + Args{run, "--test-range", "3-90"} + limit,
      "--time-limit 0:01 was over before a test ended, and a run that goes on with it would stop there", 1);
  run_well(args + Args{run});
  run_well(args + Args{whole});
  check_equal_tensors(run + "/1.2.safetensors", whole + "/1.2.safetensors");
}

TEST_CASE("training without an end is saved when nobody reads what it says any more") {
  const Workshop shop;
  shop.write_data();
  const Outcome run = run_in_shell("{ \"$@\"; echo $? >'" + (shop / "code") + "'; } | head -1",
                                   shop.mnist() + Args{"--save-file", shop / "run"});
  CHECK(run.out.starts_with("Devices: "));
  CHECK(run.err.empty());
  CHECK(read_file(shop / "code") == "0\n");
  CHECK(files_in(shop / "run").size() == 1);
  // Warnings and errors are not worth less.
  const Outcome deaf = run_in_shell("\"$@\" 2>/dev/full", {"--nonsense"});
  CHECK(deaf.code == 2);
}

TEST_CASE("with stdout and stderr closed, nothing is printed into the files that are written") {
  const Workshop shop;
  shop.write_data();
  const Args args = shop.mnist() + Args{"--save-file", shop / "run", "--epochs", "2", "--test-freq", "1"};
  CHECK(run_in_shell("exec \"$@\" <&- >&- 2>&-", args).code == 0);
  run_well(shop.mnist() + Args{"--save-file", shop / "same", "--epochs", "2", "--test-freq", "1"});
  const auto tensors = [&](const std::string& name) {
    return read_safetensors(shop / name + "/2.1.safetensors").tensors.at("conv1.weights.data").values;
  };
  CHECK(tensors("run") == tensors("same"));
}

TEST_CASE("output that cannot be written is an error at the end of every command") {
  const Workshop shop;
  shop.write_data();
  const Args net = shop.net() + Args{"--data-provider", "dummy-1x8x8-10"};
  const std::string message = "stdout cannot be written: No space left on device";
  for (const Args& args :
       {Args{"plan"} + net, Args{"plan", "--json"} + net, Args{"layers", "conv"}, Args{"--version"}}) {
    INFO(args[0]);
    check(run_in_shell("exec \"$@\" >/dev/full", args), 1, message);
  }
  // It is no reason to lose a training.
  check(run_in_shell("exec \"$@\" >/dev/full",
                     shop.mnist() + Args{"--save-file", shop / "run", "--epochs", "2"}),
        1, message);
  CHECK(files_in(shop / "run") == std::vector<std::string>{"2.1.safetensors"});
}

TEST_CASE("a limit on the size of files is said, not died of") {
  const Workshop shop;
  shop.write_data();
  const Args run = shop.mnist() + Args{"--save-file", shop / "run", "--epochs", "1"};
  check(run_in_shell("ulimit -f 2; exec \"$@\"", run), 1,
        "cannot be written: File too large (ulimit -f says how large files may be)");
  CHECK((!fs::exists(shop / "run") || files_in(shop / "run").empty()));
}

TEST_CASE("a small stack is enough") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return test::skip("sanitizers need more of it");
#endif
  const Workshop shop;
  shop.write_data();
  const std::string small = "ulimit -s 64; exec \"$@\"";
  check(run_in_shell(small, Args{"plan", "--data-provider", "dummy-1x8x8-10"} + shop.net()), 0, "");
  check(run_in_shell(small, shop.mnist() + Args{"--save-file", shop / "run", "--epochs", "1"}), 0, "");
  check(run_in_shell(small, {"--load-file", shop / "run", "--test-only", "1"}), 0, "");
}

TEST_CASE("a run under any limit of address space ends with a code and a text") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return test::skip("sanitizers need address space of their own");
#endif
  const Workshop shop;
  std::string definition = kDefinition;
  for (const auto& [from, to] :
       {std::pair<std::string, std::string>{"channels=1\nfilters=2\nfilterSize=3",
                                            "channels=3\nfilters=16\nfilterSize=5\npadding=2"},
        {"channels=2\n", "channels=16\n"}})
    definition = replaced(definition, from, to);
  shop.write(definition, kParameters);
  const Args train = {"--layer-def",     shop.definition_path(),
                      "--layer-params",  shop.parameters_path(),
                      "--threads",       "2",
                      "--data-provider", "dummy-3x32x32-10",
                      "--train-range",   "1",
                      "--test-range",    "2",
                      "--mini",          "100",
                      "--epochs",        "1"};
  int failed = 0;
  for (int mib = 120; mib <= 320; mib += 4) {
    const std::string folder = shop / std::to_string(mib);
    const Outcome run = run_in_shell("ulimit -v " + std::to_string(mib * 1024) + "; exec \"$@\"",
                                     train + Args{"--save-file", folder});
    INFO(mib << " MiB\n" << run.out << run.err);
    CHECK(run.signal == 0);
    CHECK((run.code == 0 || run.code == 3));
    CHECK((run.code == 0 || !run.err.empty()));
    failed += run.code == 0 ? 0 : 1;
    fs::remove_all(folder);
  }
  CHECK(failed > 0);
}

TEST_CASE("event files that cannot be written are a warning, and training goes on") {
  const Workshop shop;
  shop.write_data();
  std::string slow = kParameters;
  for (int i = 0; i < 2; ++i) slow = replaced(slow, "epsW=0.01", "epsW=0.0001");
  shop.write(kDefinition, slow);
  // Event files grow past the limit, checkpoints do not.
  const Outcome run =
      run_in_shell("ulimit -f 160; exec \"$@\"",
                   shop.mnist() + Args{"--save-file", shop / "run", "--epochs", "300", "--test-freq", "300"} +
                       Args{"--tensorboard", shop / "board"});
  check(run, 0, "File too large");
  CHECK(count(run.err, "; training goes on without --tensorboard\n") == 1);
  CHECK(run.out.find("300.1 (") != std::string::npos);
  CHECK(files_in(shop / "run") == std::vector<std::string>{"300.1.safetensors"});
}

TEST_CASE("wrong labels of tests are found before training") {
  const Workshop shop;
  shop.write_data();
  const std::string labels = shop.data_path() + "/t10k-labels-idx1-ubyte";
  std::string bytes = read_file(labels);
  bytes.back() = 77;
  write_file(labels, bytes);
  const Outcome run = run_program(shop.mnist() + Args{"--save-file", shop / "run"});
  check(run, 2, labels + ": record 19 (counted from 0) is label 77; labels are 0 to 61");
  CHECK(run.out.empty());
}

TEST_CASE("weights that are not finite are never saved") {
  const Workshop shop;
  shop.write_data();
  run_well(shop.mnist() + Args{"--save-file", shop / "run", "--epochs", "1"});
  shop.write(kDefinition, replaced(kParameters, "epsW=0.01", "epsW=1e38"));
  const Outcome run = run_program({"--load-file", shop / "run", "--epochs", "9"});
  check(run, 1, "not finite");
  CHECK(run.err.find("the last good checkpoint is " + (shop / "run/1.1.safetensors")) != std::string::npos);
  CHECK(run.err.find("saved") == std::string::npos);
  CHECK(files_in(shop / "run") == std::vector<std::string>{"1.1.safetensors"});
}

TEST_CASE("training whose folder is removed makes it again, says so and goes on") {
  const Workshop shop;
  shop.write_data();
  Program program(shop.mnist() + Args{"--save-file", shop / "run", "--test-freq", "1"});
  REQUIRE(program.printed("Saved checkpoint", 1));
  fs::rename(shop / "run", shop / "gone");
  // One of them may have been under way.
  REQUIRE(program.printed("Saved checkpoint", 3));
  program.send(SIGTERM);
  const Outcome run = program.finish();
  INFO(run.err);
  CHECK(run.code == 0);
  CHECK(count(run.err, "warning: " + (shop / "run") +
                           " was removed or renamed while this run trained; it is made again for what is "
                           "saved from now on\n") == 1);
  CHECK_FALSE(files_in(shop / "run").empty());
  CHECK(run_program({"--load-file", shop / "run", "--test-only", "1"}).code == 0);
}

TEST_CASE("training whose event files are removed says so once and goes on") {
  const Workshop shop;
  shop.write_data();
  Program program(shop.mnist() +
                  Args{"--save-file", shop / "run", "--test-freq", "1", "--tensorboard", shop / "curves"});
  REQUIRE(program.printed("Saved checkpoint", 1));
  fs::remove_all(shop / "curves");
  REQUIRE(program.printed("Saved checkpoint", 4));
  program.send(SIGTERM);
  const Outcome run = program.finish();
  INFO(run.err);
  CHECK(run.code == 0);
  CHECK(count(run.err, "the curves of --tensorboard end here") == 1);
  CHECK_FALSE(fs::exists(shop / "curves"));
}

TEST_CASE("training that is stopped in a test says how it ended") {
  const Workshop shop;
  Program program(shop.net() + Args{"--data-provider", "dummy-1x8x8-10", "--mini", "8", "--train-range",
                                    "0-1", "--test-range", "2-30000", "--test-one", "0", "--test-freq", "1",
                                    "--save-file", shop / "run"});
  REQUIRE(program.printed("1.0 (", 1));
  program.send(SIGTERM);
  const Outcome run = program.finish();
  INFO(run.err);
  CHECK(run.code == 0);
  CHECK_THAT(run.out, !Catch::Contains("Test output"));
  CHECK_THAT(run.out,
             Catch::Contains("Saved checkpoint to " + (shop / "run") +
                             "\nStopped by SIGTERM, before the test had ended; the command after 'train "
                             "on:' goes on\nTrained into epoch 1 in "));
}

TEST_CASE("training that is stopped while it loads the images to shuffle ends before it has all") {
  const Workshop shop;
  // The images take 800 MB.
  Program program(shop.net() + Args{"--data-provider", "dummy-1x64x64-10", "--train-range", "1-50",
                                    "--test-range", "51", "--shuffle", "1", "--save-file", shop / "run"});
  REQUIRE(program.printed("Devices: ", 1));
  program.send(SIGINT);
  const Outcome run = program.finish();
  INFO(run.err);
  CHECK(run.code == 0);
  CHECK_THAT(run.out, Catch::Contains("Saved checkpoint to " + (shop / "run")));
  CHECK(run.peak_kib < 600'000);
}

TEST_CASE("tests that are stopped say what is missing") {
  const Workshop shop;
  run_well(shop.dummy() + Args{"--save-file", shop / "run", "--epochs", "1"});
  Program program({"--load-file", shop / "run", "--test-range", "3-90000", "--confusion", shop / "c.csv",
                   "--test-out", shop / "out"});
  REQUIRE(program.printed("3... ", 1));
  program.send(SIGINT);
  const Outcome run = program.finish();
  check(run, 1, "stopped in test batch ");
  CHECK(run.err.find(" of 3-90000; missing are the averages, --confusion " + (shop / "c.csv")) !=
        std::string::npos);
  CHECK(run.err.find("/probabilities_90000.npy") != std::string::npos);
  CHECK(!fs::exists(shop / "c.csv"));
}

TEST_CASE("a check of gradients can be stopped") {
  const Workshop shop;
  Program program(shop.dummy() + Args{"--save-file", shop / "run", "--check-grads", "--mini", "1000"});
  REQUIRE(program.printed("Devices: ", 1));
  program.send(SIGINT);
  check(program.finish(), 1, "of the gradients were checked; nothing is known of the others");
}

TEST_CASE("a run that is still reading ends at once") {
  const Workshop shop;
  fs::remove(shop.definition_path());
  REQUIRE(mkfifo(shop.definition_path().c_str(), 0600) == 0);
  Program program(shop.dummy() + Args{"--save-file", shop / "run"});
  // This waits until the program opens the other end, and the program then waits for text.
  const int pipe = open(shop.definition_path().c_str(), O_WRONLY | O_CLOEXEC);
  REQUIRE(pipe >= 0);
  CHECK(fs::exists(shop / "run"));
  program.send(SIGTERM);
  CHECK(program.finish().signal == SIGTERM);
  CHECK(!fs::exists(shop / "run"));
  close(pipe);
}

TEST_CASE("threads beyond the cores are a warning") {
  const Workshop shop;
  const Args plan = Args{"plan", "--data-provider", "dummy-1x8x8-10"} + shop.net();
  const Outcome many = run_program(plan + Args{"--threads", "2000"});
  check(many, 0, "warning: --threads 2000: this process may use ");
  CHECK(run_program(plan).err.empty());
}

TEST_CASE("threads beyond what the machine allows are an error") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return test::skip("sanitizers need threads of their own");
#endif
  const std::string user = without_rights();
  if (user.empty())
    return test::skip("there is no setpriv here to run as another user; limits do not bind this one");
  const Workshop shop;
  const Args bench = Args{"bench", "--steps", "1", "--data-provider", "dummy-1x8x8-10"} + shop.net();
  fs::permissions(shop.path(), fs::perms::all);
  const std::string one = user + "prlimit --nproc=1 \"$@\"";
  const std::string message = "ulimit -u, ulimit -v or pids.max of the control group is the limit";
  check(run_in_shell(one, bench + Args{"--threads", "2"}), 3, message);
  // One that is not started by the devices.
  const Args train = shop.dummy() + Args{"--save-file", shop / "run"};
  check(run_in_shell(one, train), 3, message);
}

TEST_CASE("a minibatch that does not fit is refused before it is made") {
  const Workshop shop;
  const Args large = {"bench",
                      "--layer-def",
                      shop.definition_path(),
                      "--layer-params",
                      shop.parameters_path(),
                      "--data-provider",
                      "dummy-1x1400x1400-10",
                      "--mini",
                      "16777216"};
  check(run_program(large), 3, "minibatches of 16777216 images do not fit in memory: they take ");
}

TEST_CASE("a folder that cannot be looked into is not taken for an empty one") {
  const std::string user = without_rights();
  if (user.empty())
    return test::skip("there is no setpriv here to run as another user; every folder is open to this one");
  const Workshop shop;
  shop.write_data();
  fs::permissions(shop.path(), fs::perms::all);
  const Args run = shop.mnist() + Args{"--save-file", shop / "run", "--epochs", "1"};
  run_well(run);
  // It could be written to: the run would begin anew in it.
  fs::permissions(shop / "run", fs::perms::others_write | fs::perms::owner_write | fs::perms::others_exec |
                                    fs::perms::owner_exec);
  check(run_in_shell(user + "\"$@\"", run), 1,
        (shop / "run") + ": cannot be searched for checkpoints: Permission denied");
  fs::permissions(shop / "run", fs::perms::all);
  CHECK(files_in(shop / "run") == std::vector<std::string>{"1.1.safetensors"});

  fs::permissions(shop.data_path(), fs::perms::none);
  Args cifar = run;
  *std::find(cifar.begin(), cifar.end(), "mnist") = "cifar";
  const Outcome data = run_in_shell(user + "\"$@\"", cifar + Args{"--save-file", shop / "other"});
  check(data, 1, shop.data_path() + ": cannot be read: Permission denied");
  fs::permissions(shop.data_path(), fs::perms::all);
}

TEST_CASE("names of layers cannot command the terminal") {
  const Workshop shop;
  std::string definition = kDefinition;
  for (const char* old : {"[fc10]", "inputs=fc10"})
    definition = replaced(definition, old, replaced(old, "fc", "fc\x1b[2J"));
  shop.write(definition, replaced(kParameters, "[fc10]", "[fc\x1b[2J10]"));
  shop.write_data();
  const auto clean = [](const Outcome& run, int code) {
    INFO(run.out << run.err);
    CHECK(run.code == code);
    CHECK((run.out + run.err).find("fc?[2J10") != std::string::npos);
    CHECK((run.out + run.err).find('\x1b') == std::string::npos);
  };
  clean(run_program(Args{"plan", "--data-provider", "dummy-1x8x8-10"} + shop.net()), 0);
  clean(run_program(shop.mnist() + Args{"--save-file", shop / "run", "--epochs", "1", "--verbose"}), 0);
  shop.write(replaced(definition, "outputs=10", "outputs=-1"), kParameters);
  clean(run_program(Args{"plan", "--data-provider", "dummy-1x8x8-10"} + shop.net()), 2);
}

}  // namespace convnet
