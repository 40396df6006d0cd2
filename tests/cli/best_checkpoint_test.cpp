// The checkpoint of the best test, runs that end when tests get no better, and checkpoints without their
// files.
#include <fmt/format.h>

#include <filesystem>
#include <regex>

#include "convnet/checkpoint/checkpoint.h"
#include "tests/cli/equal_tensors.h"
#include "tests/cli/small_net.h"

using namespace convnet;

namespace {

namespace fs = std::filesystem;

/// Options of a run that tests after every batch.
Args training(const Workshop& shop, const std::string& folder, int epochs) {
  return shop.dummy() +
         Args{"--save-file", folder, "--epochs", std::to_string(epochs), "--test-freq", "1", "--mini", "100"};
}

/// The value of every test in a checkpoint's history, by index in what the cost prints.
std::vector<double> tests_of(const Checkpoint& checkpoint, std::size_t value) {
  std::vector<double> values;
  for (const HistoryEntry& entry : checkpoint.state.history) {
    if (entry.test_batch >= 0)
      values.push_back(entry.costs.sums.at(0).second.at(value) / static_cast<double>(entry.costs.images));
  }
  return values;
}

}  // namespace

TEST_CASE("a run goes on where the disk has room for fewer checkpoints than --keep asks for") {
  const Workshop shop;
  shop.write(
      replaced(replaced(kDefinition, "filters=2\n", "filters=200\n"), "channels=2\n", "channels=200\n"),
      kParameters);
  const std::string run = shop / "run";
  const Args args = training(shop, run, 4) + Args{"--keep-best", "logprob", "--max-test-err", "0"};
  run_well(args + Args{"--epochs", "1"});
  const auto kib = static_cast<int>(fs::file_size(run + "/1.2.safetensors") >> 10);
  fs::remove_all(run);
  fs::create_directory(run);
  const auto on_disk_of = [&](int size, const Args& command) {
    const std::string script = fmt::format(
        "mount -t tmpfs -o size={}k none {} || exit 77; \"$@\"; code=$?; ls {}; "
        "exit $code",
        size, run, run);
    return Program(Args{"-rm", "/bin/sh", "-c", script, "sh"} + command, "/usr/bin/unshare").finish();
  };
  if (on_disk_of(64, {"true"}).code != 0) return test::skip("this process may not mount a file system");
  // The best checkpoint may be another one than the newest, so there is room for two and a new one.
  const Outcome kept = on_disk_of(kib * 7 / 2, Args{CONVNET_PROGRAM} + args + Args{"--keep", "9"});
  INFO(kept.out << kept.err);
  CHECK(kept.code == 0);
  CHECK_THAT(kept.err, Catch::Contains("warning: the disk is full: there was room for") &&
                           Catch::Contains("were removed: 1.1.safetensors"));
  CHECK_THAT(kept.out, Catch::Contains("\n4.2.safetensors\n") && Catch::Contains("\nbest.safetensors\n"));
  const Outcome full = on_disk_of(kib * 3 / 2, Args{CONVNET_PROGRAM} + training(shop, run, 4));
  INFO(full.out << full.err);
  CHECK(full.code == 1);
  CHECK_THAT(full.err,
             Catch::Contains("1.2.safetensors: cannot be written: No space left on device\nthe newest "
                             "checkpoint that is left is " +
                             run + "/1.1.safetensors"));
}

TEST_CASE("a folder that cannot be written is refused with the reason") {
  const Workshop shop;
  const std::string run = shop / "run";
  fs::create_directory(run);
  const auto on_read_only = [&](const Args& command) {
    const std::string script = "mount -t tmpfs -o ro none " + run + " || exit 77; \"$@\"";
    return Program(Args{"-rm", "/bin/sh", "-c", script, "sh"} + command, "/usr/bin/unshare").finish();
  };
  if (on_read_only({"true"}).code != 0) return test::skip("this process may not mount a file system");
  const Outcome refused = on_read_only(Args{CONVNET_PROGRAM} + training(shop, run, 1));
  INFO(refused.err);
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, Catch::Contains(run +
                                          ": cannot be written: Read-only file system; checkpoints are to be "
                                          "saved in " +
                                          run));
}

TEST_CASE("the checkpoint of the best test is kept, by any value of a cost, also over resumed runs") {
  const Workshop shop;
  for (const auto& [cost, value] :
       {std::pair<std::string, std::size_t>{"logprob", 1}, {"logprob.error", 1}, {"logprob.cost", 0}}) {
    INFO(cost);
    const std::string run = shop / ("run-" + cost);
    run_well(training(shop, run, 2) + Args{"--keep-best", cost});
    run_well({"--load-file", run, "--epochs", "4"});  // the option is that of the run
    const std::vector<double> tests = tests_of(read_checkpoint(run), value);
    REQUIRE(tests.size() == 8);
    const auto best = std::min_element(tests.begin(), tests.end());
    const Checkpoint kept = read_checkpoint(run + "/best.safetensors");
    CHECK(kept.state.position.epoch == 1 + (best - tests.begin()) / 2);
    CHECK(kept.state.position.batch == 1 + (best - tests.begin()) % 2);
    CHECK(kept.state.best.value == Approx(*best));
    CHECK(files_in(run).size() == 3);  // and the two newest
    run_well({"--load-file", run + "/best.safetensors", "--test-only", "1"});
  }
  const Outcome wrong = run_program(training(shop, shop / "wrong", 1) + Args{"--keep-best", "logprop"});
  CHECK(wrong.code == 2);
  CHECK_THAT(wrong.err, Catch::Contains("--keep-best logprop: there is no such cost") &&
                            Catch::Contains("did you mean 'logprob'?"));
}

TEST_CASE("a best checkpoint that a killed run has saved and not yet kept is kept when it goes on") {
  const Workshop shop;
  run_well(training(shop, shop / "run", 1) + Args{"--keep-best", "logprob", "--test-freq", "2"});
  std::filesystem::remove(shop / "run/best.safetensors");
  run_well({"--load-file", shop / "run", "--epochs", "1"});
  check_equal_tensors(read_checkpoint(shop / "run/best.safetensors").tensors,
                      read_checkpoint(shop / "run").tensors);
}

TEST_CASE("a run that goes on from a checkpoint in the current folder keeps its best test") {
  const Workshop shop;
  const std::string run = shop / "run";
  run_well(training(shop, run, 2) + Args{"--keep-best", "logprob"});
  const BestTest before = read_checkpoint(run).state.best;
  // Rates so small that no later test is better.
  shop.write(kDefinition, std::regex_replace(kParameters, std::regex("eps(.)=0.0."), "eps$1=0.000000001"));
  const Outcome later = run_in_shell("cd '" + run + "' && \"$@\" --load-file 2.2.safetensors --epochs 3", {});
  INFO(later.out << later.err);
  REQUIRE(later.code == 0);
  CHECK_THAT(later.out, !Catch::Contains("looked for anew"));
  CHECK(read_checkpoint(run).state.best.value <= before.value);
  CHECK(read_checkpoint(run + "/best.safetensors").state.best.value <= before.value);
}

TEST_CASE("a run that is new in the current folder keeps its best test") {
  const Workshop shop;
  std::filesystem::create_directory(shop / "here");
  const Outcome run = run_in_shell("cd '" + shop / "here" + "' && \"$@\"",
                                   training(shop, ".", 1) + Args{"--keep-best", "logprob"});
  INFO(run.out << run.err);
  REQUIRE(run.code == 0);
  CHECK(std::filesystem::exists(shop / "here/best.safetensors"));
}

TEST_CASE("a run goes on where the disk has no room for the text of its lock") {
  const Workshop shop;
  const std::string run = shop / "run";
  run_well(training(shop, run, 1) + Args{"--keep", "9"});
  fs::rename(run, shop / "kept");
  fs::create_directory(run);
  // The checkpoints fill the disk but for less than a page.
  const std::string script = "mount -t tmpfs -o size=1m none '" + run + "' || exit 77; cp '" +
                             (shop / "kept") + "'/* '" + run + "'; cp '" + run + "/1.1.safetensors' '" + run +
                             "/0.1.safetensors'; dd if=/dev/zero of='" + run +
                             "/more' bs=4096 2>/dev/null; \"$@\"; code=$?; ls '" + run + "'; exit $code";
  const Outcome full = Program(Args{"-rm", "/bin/sh", "-c", script, "sh", CONVNET_PROGRAM} +
                                   training(shop, run, 2) + Args{"--keep", "9"},
                               "/usr/bin/unshare")
                           .finish();
  if (full.code == 77) return test::skip("this process may not mount a file system");
  INFO(full.out << full.err);
  CHECK(full.code == 0);
  CHECK_THAT(full.err, Catch::Contains("warning: the disk is full: there was room for"));
  CHECK_THAT(full.out, Catch::Contains("\n2.2.safetensors\n"));
}

TEST_CASE("going back to an earlier checkpoint leaves the later best one as it is") {
  const Workshop shop;
  const std::string run = shop / "run", best = run + "/best.safetensors";
  run_well(training(shop, run, 2) + Args{"--keep-best", "logprob.cost", "--keep", "9"});
  // The test after 1.2 was the best when it was saved, and the one after 2.2 was better.
  Checkpoint earlier = read_checkpoint(run + "/1.2.safetensors");
  earlier.state.best = {0.5, 1, 2, 0, "logprob.0"};
  write_checkpoint(run, earlier, 9);
  fs::copy_file(run + "/2.2.safetensors", best, fs::copy_options::overwrite_existing);
  const std::string later = read_file(best);
  CHECK_THAT(run_well({"--load-file", run + "/1.2.safetensors", "--epochs", "1"}).out,
             Catch::Contains("Nothing to train"));
  CHECK(read_file(best) == later);
  run_well({"--load-file", run + "/1.2.safetensors", "--epochs", "2"});
  CHECK(read_file(run + "/abandoned-after-1.2/best.safetensors") == later);
}

TEST_CASE("a best test of other images, or whose checkpoint is gone, is forgotten") {
  const Workshop shop;
  const std::string run = shop / "run";
  run_well(training(shop, run, 2) + Args{"--keep-best", "logprob.cost"});
  // No later test is better.
  Checkpoint checkpoint = read_checkpoint(run);
  checkpoint.state.best = {0.001, 1, 1, 3, "logprob.0"};
  const auto resumed = [&](const Args& more) {
    for (const fs::directory_entry& entry : fs::directory_iterator(run))
      if (entry.path().filename() != "best.safetensors") fs::remove_all(entry.path());
    write_checkpoint(run, checkpoint, 9);
    return run_well(Args{"--load-file", run, "--epochs", "3"} + more).out;
  };
  CHECK_THAT(resumed({}), !Catch::Contains("looked for anew"));
  const std::string before = checkpoint.test_range.value().str();
  const std::string other = before == "1" ? "2" : "1";
  CHECK_THAT(resumed({"--test-range", other}),
             Catch::Contains("is looked for anew: the run was tested on batches " + before + " before"));
  fs::remove(run + "/best.safetensors");
  CHECK_THAT(
      resumed({}),
      Catch::Contains("is looked for anew: the checkpoint of an earlier one is not kept in this folder"));
  CHECK(fs::exists(run + "/best.safetensors"));
}

TEST_CASE("a best test whose checkpoint nobody kept is forgotten") {
  const Workshop shop;
  const std::string run = shop / "run";
  run_well(training(shop, run, 2) + Args{"--keep-best", ""});
  const Outcome later = run_well({"--load-file", run, "--epochs", "3", "--keep-best", "logprob"});
  CHECK_THAT(later.out, Catch::Contains("is looked for anew: the checkpoint of an earlier one is not kept"));
  CHECK(std::filesystem::exists(run + "/best.safetensors"));
}

TEST_CASE("a best test counts only beside tests of the same value, and where its checkpoint is kept") {
  const Workshop shop;
  const std::string run = shop / "run";
  run_well(training(shop, run, 2));
  REQUIRE(read_checkpoint(run).state.best.watched == "logprob.1");
  // Another value, which no test has been watched by.
  const Outcome other =
      run_well({"--load-file", run, "--epochs", "4", "--keep-best", "logprob.cost", "--patience", "9"});
  CHECK(
      other.out.find("The best logprob (-log p) is looked for anew: the run watched another value before") !=
      std::string::npos);
  const std::vector<double> costs = tests_of(read_checkpoint(run), 0);
  REQUIRE(costs.size() == 8);
  const Checkpoint kept = read_checkpoint(run + "/best.safetensors");
  CHECK(kept.state.best.value == Approx(*std::min_element(costs.begin() + 4, costs.end())));
  CHECK(kept.state.best.watched == "logprob.0");
  // The same value goes on.
  const Outcome same = run_well({"--load-file", run, "--epochs", "5"});
  CHECK(same.out.find("looked for anew") == std::string::npos);
  // A branch into another folder keeps a best checkpoint of its own.
  const Outcome branch = run_well({"--load-file", run, "--save-file", shop / "branch", "--epochs", "6"});
  CHECK(branch.out.find("is looked for anew: the checkpoint of an earlier one is not kept in this folder") !=
        std::string::npos);
  CHECK(fs::exists(shop / "branch/best.safetensors"));
}

TEST_CASE("a best checkpoint of a branch that is given up moves aside with the others") {
  const Workshop shop;
  const std::string run = shop / "run";
  run_well(training(shop, run, 3) + Args{"--keep-best", "logprob.cost", "--keep", "9"});
  const Checkpoint best = read_checkpoint(run + "/best.safetensors");
  const std::string first = run + "/1.1.safetensors";
  run_well({"--load-file", first, "--epochs", "1"});
  const bool was_later = best.state.position > Position{1, 1};
  CHECK(fs::exists(run + "/abandoned-after-1.1/best.safetensors") == was_later);
  const Checkpoint newest = read_checkpoint(run);
  CHECK(read_checkpoint(run + "/best.safetensors").state.best.value == Approx(newest.state.best.value));
}

TEST_CASE("a run ends after --patience tests without a better one, and stays ended until there is more") {
  const Workshop shop;
  // Nothing is learned, so no test is better than the first one of its batch.
  shop.write(
      kDefinition,
      replaced(replaced(replaced(replaced(kParameters, "epsW=0.01", "epsW=1e-30"), "epsB=0.02", "epsB=1e-30"),
                        "epsW=0.01", "epsW=1e-30"),
               "epsB=0.02", "epsB=1e-30"));
  const std::string run = shop / "run";
  const Outcome ended = run_well(training(shop, run, 50) + Args{"--patience", "3"});
  CHECK_THAT(ended.out,
             Catch::Contains("Training ends: 3 tests without a better logprob (top-1 error) than") &&
                 Catch::Contains(" % (--patience 3; 0 clears it)\n"));
  // What the last lines say to type trains on.
  const std::string advice = "convnet --load-file " + run + " --epochs 50 --patience 0\n";
  CHECK_THAT(ended.out, Catch::Contains("  train on:    " + advice +
                                        "               --patience 3 has ended the run; 0 clears it"));
  CHECK(tests_of(read_checkpoint(run), 1).size() == 4);
  // The fourth batch is the second one of its epoch, the third the first one.
  CHECK_THAT(ended.out, Catch::Contains("Trained to the end of epoch 2 in "));
  const Outcome part = run_well(training(shop, shop / "part", 50) + Args{"--patience", "2"});
  CHECK_THAT(part.out, Catch::Contains("Trained into epoch 2 in "));
  const Outcome again = run_well({"--load-file", run});
  CHECK_THAT(again.out, Catch::Contains("Training ends: 3 tests"));
  CHECK(tests_of(read_checkpoint(run), 1).size() == 4);
  run_well({"--load-file", run, "--patience", "5"});
  CHECK(tests_of(read_checkpoint(run), 1).size() == 6);
  const Outcome more = run_well({"--load-file", run, "--epochs", "4", "--patience", "0"});
  CHECK(tests_of(read_checkpoint(run), 1).size() == 8);
  CHECK_THAT(more.out, Catch::Contains("convnet --load-file " + run + " --epochs 8\n") &&
                           !Catch::Contains("clears it"));
}

TEST_CASE("a run ends with its best and its last test, its checkpoint, and what to type next") {
  const Workshop shop;
  const std::string run = shop / "run";
  const Args bytes = {"--data-provider", "npy", "--data-path", shop.write_arrays()};
  const std::string out = run_well(training(shop, run, 2) + bytes).out;
  const std::string summary = out.substr(out.find("Trained "));
  const Checkpoint newest = read_checkpoint(run);
  CHECK_THAT(summary, Catch::StartsWith("Trained to the end of epoch 2 in "));
  CHECK_THAT(summary, Catch::Contains(fmt::format(
                          "best test:   logprob (top-1 error) {:.2f} %, after batch {}.{}\n",
                          100 * newest.state.best.value, newest.state.best.epoch, newest.state.best.batch)));
  CHECK_THAT(summary,
             Catch::Contains(fmt::format("last test:   logprob (top-1 error) {:.2f} %, after batch 2.2\n",
                                         100 * tests_of(newest, 1).back())));
  CHECK_THAT(summary, Catch::Contains("checkpoint:  " + run + "/2.2.safetensors\n") &&
                          Catch::Contains("convnet --load-file " + run + " --test-only 1\n") &&
                          Catch::Contains("convnet predict " + run + " FILE...\n") &&
                          Catch::Contains("convnet --load-file " + run + " --epochs 4\n"));
  CHECK_THAT(run_well({"--load-file", run}).out, !Catch::Contains("Trained "));
  // With a best checkpoint that one is the one to use; a cost is no percentage.
  const std::string kept = shop / "kept";
  const std::string best =
      run_well(training(shop, kept, 1) + bytes + Args{"--keep-best", "logprob.cost"}).out;
  CHECK_THAT(best,
             Catch::Contains("convnet predict " + kept + "/best.safetensors FILE...\n") &&
                 Catch::Contains(fmt::format("Best logprob (-log p) so far: {:.4f}; kept as best.safetensors",
                                             read_checkpoint(kept).state.best.value)));
}

TEST_CASE("the average of a test of the whole range is that test") {
  const Workshop shop;
  const Args whole = shop.dummy() + Args{"--save-file",  shop / "run", "--epochs",   "3", "--test-freq", "1",
                                         "--test-range", "3-5",        "--test-one", "0"};
  const std::string out = run_well(whole).out;
  std::size_t at = 0;
  int tests = 0;
  while ((at = out.find("Test output", at)) != std::string::npos) {
    const std::size_t line = out.find("logprob:", at), end = out.find(" (", line);
    const std::size_t average = out.find("logprob:", end);
    CHECK(out.substr(line, end - line) == out.substr(average, out.find('\n', average) - average));
    at = average;
    ++tests;
  }
  CHECK(tests == 6);
}

TEST_CASE("a checkpoint works when its cfg files are gone, and says whose learning parameters a run takes") {
  const Workshop shop;
  const std::string run = shop / "run";
  run_well(training(shop, run, 1));
  shop.write(kDefinition, replaced(kParameters, "wc=0.001", "wc=0.002"));
  CHECK_THAT(run_well({"--load-file", run, "--epochs", "2"}).out,
             Catch::Contains("The learning parameters are those of " + shop.parameters_path() +
                             ", which has changed since " + run + "/1.2.safetensors"));
  fs::remove(shop.parameters_path());
  fs::remove(shop.definition_path());
  const Outcome resumed = run_well({"--load-file", run, "--epochs", "3"});
  CHECK_THAT(resumed.out,
             Catch::Contains(shop.parameters_path() + " is not there: the learning parameters are those of " +
                             run + "/2.2.safetensors"));
  CHECK(read_checkpoint(run).parameters_text.find("wc=0.002") != std::string::npos);
  run_well({"--load-file", run, "--test-only", "1"});
}

TEST_CASE("a test takes the learning parameters of the checkpoint, whatever became of the file") {
  const Workshop shop;
  const std::string run = shop / "run", checkpoint = run + "/1.2.safetensors";
  run_well(training(shop, run, 1));
  const Args test = {"--load-file", run, "--test-only", "1"};
  const auto results = [](const Outcome& tested) {
    return tested.out.substr(tested.out.find("Test output"));
  };
  const std::string before = results(run_well(test));
  const std::string note = "The learning parameters are those of " + checkpoint;
  for (const std::string& text : {replaced(kParameters, "topk=2", "topk=3"),
                                  replaced(kParameters, "epsW=0.01", "epsW=much"), std::string("[conv1\n")}) {
    shop.write(kDefinition, text);
    const Outcome tested = run_well(test);
    CHECK(results(tested) == before);
    CHECK_THAT(tested.out,
               Catch::Contains(note + "; " + shop.parameters_path() + " differs from it and is not used\n"));
  }
  // A file that the command line names is used.
  const Args named = test + Args{"--layer-params", shop.parameters_path()};
  check_refused(named, shop.parameters_path() + ":1: ");
  shop.write(kDefinition, replaced(kParameters, "topk=2", "topk=3"));
  CHECK(results(run_well(named)) != before);
  fs::remove(shop.parameters_path());
  CHECK_THAT(run_well(test).out, Catch::Contains(note + "\n"));
}

TEST_CASE("files that a resumed run is given must be there, and it says which text it uses") {
  const Workshop shop;
  const std::string run = shop / "run", checkpoint = run + "/1.2.safetensors";
  run_well(training(shop, run, 1));
  const Args on = {"--load-file", run, "--epochs", "1"};
  const std::string parameters = "The learning parameters are those of " + shop.parameters_path();
  CHECK_THAT(run_well(on).out,
             Catch::Contains("\nThe net is that of " + checkpoint + "\n" + parameters + "\n"));
  CHECK_THAT(run_well(on + Args{"--layer-def", shop.definition_path()}).out,
             Catch::Contains("\nThe net is that of " + shop.definition_path() + "\n" + parameters + "\n"));
  shop.write(replaced(kDefinition, "filters=2", "filters=3"), kParameters);
  CHECK_THAT(run_well(on).out,
             Catch::Contains("\nThe net is that of " + checkpoint + "; " + shop.definition_path() +
                             " differs from it and is not used\n"));
  // Mistyped names.
  const std::string none = shop / "parms.cfg";
  check_refused(on + Args{"--layer-params", none}, none + ": cannot be read: No such file");
  check_refused(on + Args{"--layer-def", none}, none + ": cannot be read: No such file");
  check_refused(on + Args{"--layer-path", none, "--layer-params", "params.cfg"},
                none + "/params.cfg: cannot be read: No such file");
  fs::remove(shop.parameters_path());
  check_refused(training(shop, run, 1), shop.parameters_path() + ": cannot be read: No such file");
  run_well(on);
}
