// Messages about wrong options, and what options choose.
#include <array>
#include <nlohmann/json.hpp>

#include "convnet/checkpoint/checkpoint.h"
#include "kernels/cpu/instruction_set.h"
#include "tests/catch.h"
#include "tests/cli/small_net.h"

namespace convnet {
namespace {

TEST_CASE("a wrong option is named") {
  struct Mistake {
    Args args;  ///< after those of a good run
    std::string message;
  };
  const std::vector<Mistake> mistakes = {
      {{"--minni", "3"}, "unknown option '--minni'; did you mean '--mini'?"},
      {{"--crop-border=4"},
       "unknown option '--crop-border'; use --inner-size, the images' side less twice the border"},
      {{"--test", "1"},
       "option '--test' may be any of --test-range, --test-one, --test-freq, --test-only, --test-out; more "
       "letters must say which"},
      {{"--mi", "3"}, "unknown option '--mi'"},
      {{"--save-fil"}, "--save-file needs a value"},
      {{"--colour=red"}, "unknown option '--colour'; --help lists what there is"},
      {{"-x"}, "unknown option '-x'; --help lists what there is"},
      {{"--epochs", "1", "more"}, "unexpected argument 'more'; there is no such file or folder"},
      {{"--steps"}, "unknown option '--steps'; it is an option of 'convnet bench'"},
      {{"--show-preds", "probs"}, "unknown option '--show-preds'; it is an option of 'convnet show'"},
      {{"-f", "run"}, "unknown option '-f'; did you mean '--load-file'?"},
      {{"--max-filesize=5000"},
       "unknown option '--max-filesize'; use --keep, the number of checkpoints to keep"},
      {{"--zip-save", "0"}, "unknown option '--zip-save'; leave it out: checkpoints are never compressed"},
      {{"--lr", "0.1"},
       "unknown option '--lr'; learning rates are keys of the parameter file: epsW and epsB of each layer; "
       "--rate-factor multiplies all of them"},
      {{"--freeze", "10"},
       "unknown option '--freeze'; a rate of 0 freezes a layer: --set DEFAULT.epsW=0,DEFAULT.epsB=0,"
       "fc.epsW=0.01,fc.epsB=0.01 trains the layer fc alone\n"},
      {{"--pretrained", "net.pth"},
       "unknown option '--pretrained'; use --init-from, which starts a new run from the weights of a "
       "checkpoint, or of a .safetensors, .pth, .pt or .onnx file with PyTorch's names"},
      {{"--Weights=net.pth"}, "unknown option '--Weights'; use --init-from"},
      {{"--resume", "run"}, "unknown option '--resume'; did you mean '--load-file'?"},
      {{"--workers", "4"}, "unknown option '--workers'; did you mean '--decode-threads'?"},
      {{"-j4"}, "unknown option '-j4'"},
      {{"-j", "4"}, "unknown option '-j'; did you mean '--decode-threads'?"},
      {{"--batch_size=64"}, "unknown option '--batch_size'; did you mean '--mini'?"},
      {{"--optimizer", "sgd"},
       "optimizer is a key of the parameter file: sgd, nesterov, adamw, rmsprop or lars"},
      {{"--lr-scheduler", "x"}, "schedules are values of epsW and epsB in the parameter file, like cosine["},
      {{"--num-classes", "10"}, "in a file of your own the last fc layer's outputs= says it"},
      {{"--set", ",,,", "--set", "a.b=1"}, "--set expects LAYER.KEY=VALUE, like conv1.epsW=0.01, or several"},
      {{"--momentum", "0.9"},
       "unknown option '--momentum'; momentum is a key of the parameter file: momW and momB of each layer"},
      {{"--batch-size=64"}, "unknown option '--batch-size'; did you mean '--mini'?"},
      {{"--precision", "fp16"},
       "--precision expects one of fp32, tf32, bf16, not 'fp16'; did you mean 'bf16'?"},
      {{"--mini"}, "--mini needs a value"},
      {{"--mini="}, "--mini needs a value"},
      {{"--save-file=", "--shuffle"}, "--save-file needs a value"},
      {{"--save-file", "--shuffle"}, "--save-file needs a value"},
      {{"--save-file", ""}, "--save-file needs a value"},
      {{"--shuffle="}, "--shuffle needs a value"},
      {{"--data-path="}, "--data-path needs a value"},
      {{"--mini", "0"}, "--mini expects auto, or an integer between 1 and 16777216, not '0'"},
      {{"--mini", "-5"}, "--mini expects auto, or an integer between 1 and 16777216, not '-5'"},
      {{"--mini", "1e3"}, "--mini expects auto, or an integer between 1 and 16777216, not '1e3'"},
      {{"--epochs", "99999999999"},
       "--epochs expects an integer between 0 and 1000000000, not '99999999999'"},
      {{"--test-freq=-1"}, "--test-freq expects an integer between 0 and 1000000000, not '-1'"},
      {{"--keep", "0"}, "--keep expects an integer between 1 and 1000000000, not '0'"},
      {{"--threads", "many"}, "--threads expects an integer between 0 and 4096, not 'many'"},
      {{"--seed", "1.5"}, "--seed expects a whole number, not '1.5'"},
      {{"--seed", "-1"}, "--seed expects a number between 0 and 9.007199254740992e+15, not '-1'"},
      {{"--test-one", "2"}, "--test-one expects 0 or 1 (also true/false, yes/no, on/off), not '2'"},
      {{"--device", "gpu"}, "--device expects one of auto, cpu, cuda, not 'gpu'; did you mean 'cuda'?"},
      {{"--train-range", "5-1"},
       "--train-range '5-1' is empty: the first batch comes before the last one, as in 1-5"},
      {{"--test-range", "x"},
       "--test-range 'x' is not a range of batches; give a number (6) or the first and the last one (1-5)"},
      {{"--test-range", "-1"}, "--test-range '-1' is not a range of batches"},
      {{"--test-range", "1-99999999999"}, "--test-range '1-99999999999': batch numbers are 0 to 999999999"},
      {{"--gpu", "x"}, "--gpu expects device numbers, like 0,1 or 0-3, or all, auto or local, not 'x'"},
      {{"--gpu", "0,"}, "--gpu expects an integer between 0 and 1023, not ''"},
      {{"--gpu", "3-0"}, "--gpu has the range '3-0', which ends before it begins; write 0-3, or single"},
      {{"--gpu", "0-1024"}, "--gpu expects an integer between 0 and 1023, not '1024'"},
      {{"--gpu", "0-1023,0-1023"}, "--gpu lists more than 1024 numbers"},
      {{"--gpu", "-1"}, "--gpu expects an integer between 0 and 1023, not '-1'"},
      {{"--hosts", "8"},
       "--hosts expects the numbers of hosts and of devices on each, like 8x4, or the number of devices of "
       "each host, like 4,4,2, at most 1024 devices together, not '8'"},
      {{"--hosts", "0x4"}, "--hosts expects the numbers of hosts and of devices on each"},
      {{"--hosts", "2x"}, "not '2x'"},
      {{"--hosts", "2x4x8"}, "not '2x4x8'"},
      {{"--hosts", "1024x2"}, "at most 1024 devices together"},
      {{"--hosts", "4,0"}, "not '4,0'"},
      {{"--hosts", "4,"}, "not '4,'"},
      {{"--hosts", "1000,25"}, "at most 1024 devices together"},
      {{"--hosts", "4,2", "--gpu", "0,1,2"},
       "--hosts 4,2 needs 6 devices, host by host, but --gpu lists 3; type --gpu 0,1,2,3 for a host's "
       "devices, "
       "which then stand for those of each"},
      {{"--hosts", "2x4", "--gpu", "0,1,2"},
       "--hosts 2x4 needs 8 devices, host by host, but --gpu lists 3; type --gpu 0,1,2,3 for a host's "
       "devices, "
       "which then stand for those of each"},
      {{"--data-provider", "minst"}, "data provider 'minst' is not known; did you mean 'mnist'?"},
      {{"--data-provider", "imagenet"},
       "data provider 'imagenet' is not known; the known ones are image, mnist, cifar, cifar-cropped, npy, "
       "dummy-CxHxW-K"},
      {{"--data-provider", "dummy-1x8"}, "data provider 'dummy-1x8': the dummy providers are dummy-CxHxW-K"},
      {{"--data-provider", "dummy-9x99999x99999-10"}, "data provider 'dummy-9x99999x99999-10': too large"},
      {{"--test-only"}, "--test-only tests a trained net: --load-file must name its checkpoint"},
  };
  const Workshop shop;
  for (const Mistake& mistake : mistakes)
    check_refused(shop.dummy() + Args{"--save-file", shop / "out"} + mistake.args, mistake.message);
  CHECK_FALSE(std::filesystem::exists(shop / "out"));
}

TEST_CASE("a path that begins with ~ is refused where shells leave it as it is") {
  const Workshop shop;
  check_refused(shop.dummy() + Args{"--save-file=~/run"},
                "--save-file=~/run: there is no folder named ~ here, and shells replace it only at the "
                "beginning of a word; type --save-file ~/run with a space");
}

TEST_CASE("layer files in place of each other are called swapped") {
  const Workshop shop;
  const std::string message =
      shop.parameters_path() + " and " + shop.definition_path() +
      " look swapped: the second says what the layers are, with a 'type' for each; type "
      "--layer-def " +
      shop.definition_path() + " --layer-params " + shop.parameters_path() + "\n";
  for (const Args& command : {Args{"--save-file", shop / "run"}, Args{"plan"}, Args{"bench"}}) {
    Args args = command;
    const bool trains = command.size() > 1;
    args = args + Args{"--data-provider",      "dummy-1x8x8-10", "--layer-def",
                       shop.parameters_path(), "--layer-params", shop.definition_path()};
    CHECK(check_refused(args + (trains ? Args{"--train-range", "1", "--test-range", "2"} : Args{}),
                        "look swapped")
              .err == message);
  }
}

TEST_CASE("the value of an unknown option is no second mistake") {
  const Workshop shop;
  const Args train = shop.dummy() + Args{"--save-file", shop / "out"};
  for (const std::string value : {"3", "-3", "run"}) {
    const Outcome run = run_program(train + Args{"--minni", value, "--epochs", "1"});
    CHECK(run.err == "unknown option '--minni'; did you mean '--mini'?\n");
  }
  const Outcome several = run_program(train + Args{"--minni", "--epoch=1", "-x", "--colour=red", "more"});
  CHECK(several.code == 2);
  CHECK(count(several.err, "\n") == 4);
  CHECK(several.err.find("unexpected argument 'more'") != std::string::npos);
}

TEST_CASE("commands and options of cuda-convnet2 lead to ours") {
  const Workshop shop;
  check_refused({"shownet", "run"}, "unknown command 'shownet'; did you mean 'show'?");
  check_refused({"convnet.py"}, "unknown command 'convnet.py'; did you mean 'train'?");
  check_refused({"make-data", "--src-dir", "a", "--tgt-dir", "b"},
                "unknown option '--src-dir'; did you mean '--src'?\nunknown option '--tgt-dir'; did you mean "
                "'--dst'?");
  check_refused({"show", "--write-features", "fc10"},
                "unknown option '--write-features'; it is an option of 'convnet train'");
}

TEST_CASE("a minibatch that is larger than every batch is announced as small as it is") {
  const Workshop shop;
  shop.write_data();
  const Outcome train =
      run_well(shop.mnist() + Args{"--save-file", shop / "run", "--epochs", "1", "--mini", "5000"});
  INFO(train.out << train.err);
  const std::string warning =
      "warning: --mini 5000 is more than the largest batch has, 40 images: minibatches have at most 40 "
      "images\n";
  CHECK_THAT(train.err, Catch::Contains(warning));
  CHECK_THAT(train.out, Catch::Contains("; minibatches of 40 images"));
  const auto plan = [&](const std::string& mini) {
    return run_well(Args{"plan", "--data-provider", "mnist", "--data-path", shop.data_path()} + shop.net() +
                    Args{"--mini", mini});
  };
  CHECK_THAT(plan("5000").err, Catch::Contains(warning));
  CHECK(plan("40").err.empty());
  CHECK(plan("5000").out == plan("40").out);
  CHECK(run_well(shop.dummy() + Args{"--save-file", shop / "exact", "--epochs", "1", "--mini", "1000"})
            .err.empty());
}

TEST_CASE("runs that count tests make one each epoch, unless an option says when") {
  const Workshop shop;
  const Args train = shop.dummy() + Args{"--epochs", "3"};
  const auto tests = [](const Outcome& run) { return count(run.out, "Saved checkpoint"); };
  const std::string note =
      "Not given, and chosen for --patience: --test-freq 0 (a test at the end of each epoch)";
  const Outcome counted = run_well(train + Args{"--save-file", shop / "a", "--patience", "9"});
  INFO(counted.out);
  CHECK(tests(counted) == 3);
  CHECK_THAT(counted.out, Catch::Contains(note) && !Catch::Contains("--test-freq 57"));
  const Outcome resumed = run_well({"--load-file", shop / "a", "--epochs", "5"});
  CHECK(tests(resumed) == 2);
  const Outcome few = run_well(train + Args{"--save-file", shop / "few", "--plateau", "0.1,9"});
  CHECK_THAT(few.out,
             Catch::Contains("chosen for --plateau: --test-freq 0") &&
                 Catch::Contains("Note: --plateau 0.1,9 lowers no rate: that takes 11 tests, and the run "
                                 "has 3\n"));
  const Outcome best = run_well(train + Args{"--save-file", shop / "b", "--keep-best", "logprob"});
  CHECK(tests(best) == 3);
  CHECK_THAT(best.out, Catch::Contains("chosen for --keep-best: --test-freq 0"));
  const Outcome given =
      run_well(train + Args{"--save-file", shop / "c", "--patience", "9", "--test-freq", "3"});
  CHECK(tests(given) == 2);
  CHECK_THAT(given.out, !Catch::Contains("--test-freq"));
  // A run that did not compare tests keeps its other batches.
  run_well(train + Args{"--save-file", shop / "old"});
  const Outcome later = run_well({"--load-file", shop / "old", "--epochs", "5", "--keep-best", "logprob"});
  CHECK(tests(later) == 2);
  CHECK_THAT(later.out,
             Catch::Contains("--test-freq is not given, and --keep-best compares tests: there is one at "
                             "the end of each epoch\n"));
}

TEST_CASE("tests that are compared have the same images") {
  const Workshop shop;
  const Args train =
      shop.net() +
      Args{"--data-provider", "dummy-1x8x8-10", "--train-range", "1", "--test-range", "2-4", "--epochs", "3",
           "--keep-best",     "logprob",        "--save-file"};
  const auto images_of_tests = [](const std::string& run) {
    std::vector<std::int64_t> images;
    for (const HistoryEntry& entry : read_checkpoint(run).state.history)
      if (entry.test_batch >= 0) images.push_back(entry.costs.images);
    return images;
  };
  const Outcome all = run_well(train + Args{shop / "all"});
  CHECK_THAT(all.out, Catch::Contains("--test-one 0 (each test uses all test batches)") &&
                          !Catch::Contains("Note: with --test-one 1"));
  CHECK(images_of_tests(shop / "all") == std::vector<std::int64_t>{3000, 3000, 3000});
  const Outcome one = run_well(train + Args{shop / "one", "--test-one", "1"});
  CHECK_THAT(one.out, Catch::Contains("Note: with --test-one 1 each test uses other images, and --keep-best "
                                      "compares such tests; with --test-one 0 each uses all of them\n"));
  CHECK(images_of_tests(shop / "one") == std::vector<std::int64_t>{1000, 1000, 1000});
}

TEST_CASE("a run notes what it would otherwise take in silence") {
  const Workshop shop;
  const Args train = shop.dummy() + Args{"--epochs", "1"};
  const Outcome overlap = run_well(train + Args{"--save-file", shop / "a", "--test-range", "2-4"});
  CHECK_THAT(overlap.out,
             Catch::Contains("Note: batch 2 is both trained on and tested: test errors will look too good"));
  const Outcome same = run_well(train + Args{"--save-file", shop / "b", "--test-range", "1-2", "--verbose"});
  CHECK_THAT(same.out, Catch::Contains("% between tasks, ") && !Catch::Contains("waiting for each other"));
  CHECK_THAT(same.out, Catch::Contains("Note: batches 1-2 are both trained on and tested"));
  CHECK_THAT(same.out, !Catch::Contains("--max-test-err"));
  const Outcome percent = run_well(train + Args{"--save-file", shop / "c", "--max-test-err", "20"});
  CHECK_THAT(percent.out, !Catch::Contains("trained on and tested") &&
                              Catch::Contains("Note: --max-test-err 20 is above every error, which is a "
                                              "fraction: 20 % is 0.2"));
}

TEST_CASE("a parameter file that is missing on resume is the only error") {
  const Workshop shop;
  run_well(shop.dummy() + Args{"--save-file", shop / "run", "--epochs", "1"});
  const Outcome run = run_program({"--load-file", shop / "run", "--layer-params", shop / "missing.cfg"});
  CHECK(run.code == 2);
  CHECK(run.err == (shop / "missing.cfg") + ": cannot be read: No such file or directory\n");
}

TEST_CASE("the first letters of an option's name stand for it") {
  const Workshop shop;
  const Outcome run =
      run_well({"--layer-de", shop.definition_path(), "--layer-par=" + shop.parameters_path(), "--data-pro",
                "dummy-1x8x8-10", "--train-r", "1", "--test-r", "2", "--save-file", shop / "out", "--epo",
                "1", "--test-freq", "1", "--shuf", "--thr", "1"});
  CHECK(run.out.find("Saved checkpoint to " + (shop / "out")) != std::string::npos);
  // Among names of files, too: a shortened option takes its value.
  shop.write_data();
  run_well(shop.mnist() + Args{"--save-file", shop / "digits", "--epochs", "1"});
  check_refused({"predict", shop / "digits", "--dev", "cpu", shop / "none.png"}, "1 of 1 inputs could not be",
                1);
}

TEST_CASE("a byte that is not UTF-8 in an option is refused before the run, not when it saves") {
  const Workshop shop;
  check_refused(shop.dummy() + Args{"--epochs", "1", "--save-file", shop / "r\xFFn"},
                "--save-file: the value has a byte that is not UTF-8; rename");
  CHECK_FALSE(std::filesystem::exists(shop / "r\xFFn"));
  run_well(shop.dummy() + Args{"--epochs", "1", "--save-file", shop / "r\xC3\xA4n"});
}

TEST_CASE("all wrong and all missing options are reported together") {
  check_refused({"--mini", "0", "--keep", "none", "--test-range", "9-2"}, "--mini expects");
  check_refused({"--mini", "0", "--keep", "none", "--test-range", "9-2"}, "\n--keep expects");
  check_refused({"--mini", "0", "--keep", "none", "--test-range", "9-2"}, "\n--test-range '9-2' is empty");
  check_refused({"--epochs", "1"},
                "missing: --layer-def, --layer-params, --data-provider, --save-file FOLDER (or "
                "--save-path); to resume, --load-file CHECKPOINT");
  check_refused({"--epochs", "1", "--train-range", "1"},
                "missing: --layer-def, --layer-params, --data-provider, --test-range, --save-file FOLDER");
  check_refused({"plan"},
                "missing: --layer-def, --layer-params, --data-provider; or --load-file with a checkpoint");
  check_refused({"bench", "--layer-def", "x"},
                "--layer-def x: there is no such file, and no net of this name; 'convnet nets' lists those");
  check_refused({"bench", "--layer-def", "x", "--layer-params", "y"}, "missing: --data-provider");
  const Workshop shop;
  check_refused(shop.dummy(), "missing: --save-file FOLDER (or --save-path)");
}

TEST_CASE("a wrong command is named") {
  check_refused({"tarin"}, "unknown command 'tarin'; did you mean 'train'?");
  check_refused({"learn"},
                "unknown command 'learn'; the commands are train, plan, place, bench, show, predict, export, "
                "import, make-data, nets, layers, help, "
                "completion");
  check_refused({}, "convnet trains convolutional networks");
  check_refused({"layers", "convv"}, "unknown layer type 'convv'; did you mean 'conv'? known: data, ");
  check_refused({"layers", "conv", "fc"}, "usage: convnet layers [TYPE | --markdown]");
  check_refused({"export", "--train-range", "1"}, "unknown option '--train-range'");
}

TEST_CASE("a command line of training can be planned and measured as it is") {
  const Workshop shop;
  shop.write_data();
  const Args line = shop.mnist() + Args{"--save-file",      shop / "run", "--epochs",    "3",
                                        "--test-freq=2",    "--shuffle",  "--keep-best", "logprob",
                                        "--inner-size",     "6",          "--crop-pad",  "1",
                                        "--flip",           "1",          "--mixup",     "0.2",
                                        "--random-erasing", "0.25",       "--pixel-std", "--trivial-augment"};
  const std::string left_aside = "--shuffle, --save-file, --keep-best, --epochs, --test-freq\n";
  const Outcome plan = run_well(Args{"plan", "--json"} + line);
  CHECK(plan.err == "convnet plan does not use " + left_aside);
  const nlohmann::json planned = nlohmann::json::parse(plan.out);
  const Outcome bench = run_well(Args{"bench", "--json", "--steps", "2"} + line);
  CHECK(bench.err == "convnet bench does not use --test-range, " + left_aside);
  CHECK(nlohmann::json::parse(bench.out)["mini"] == 16);
  const Outcome place = run_well(Args{"place", "--json", "--gpu", "0,1", "--model",
                                      std::string(CONVNET_SOURCE_DIR) + "/bench/models/nvlink-8gpu.json"} +
                                 line);
  CHECK(place.err ==
        "convnet place does not use --train-range, --test-range, --shuffle, --save-file, --keep-best, "
        "--epochs, "
        "--test-freq\n");
  CHECK_FALSE(std::filesystem::exists(shop / "run"));
  // The plan is that of the run, whose checkpoint is planned without the data set.
  run_well(line);
  CHECK(nlohmann::json::parse(run_well({"plan", "--json", "--load-file", shop / "run"}).out) == planned);

  // The names and values of the options are checked.
  check_refused(Args{"plan"} + line + Args{"--epoch-count", "3"}, "unknown option '--epoch-count'");
  const Outcome wrong = check_refused(Args{"plan"} + line + Args{"--epochs", "-1", "--mini", "0"},
                                      "--epochs expects an integer between 0 and 1000000000, not '-1'");
  CHECK_THAT(wrong.err,
             Catch::Contains("--mini expects auto, or an integer between 1 and 16777216, not '0'"));
  // place cannot read the net of a checkpoint.
  check_refused(Args{"place", "--load-file", shop / "run"} + shop.mnist(), "unknown option '--load-file'");
}

TEST_CASE("a plan has the minibatches of the batches that the options name") {
  const Workshop shop;
  shop.write_arrays();
  const auto images = [&](const Args& options) {
    return nlohmann::json::parse(run_well(Args{"plan", "--json", "--mini", "500", "--data-provider", "npy",
                                               "--data-path", shop.data_path()} +
                                          shop.net() + options)
                                     .out)["images"];
  };
  CHECK(images({}) == 500);
  CHECK(images({"--train-range", "3", "--test-range", "1"}) == 100);
  check_refused(Args{"plan", "--data-provider", "npy", "--data-path", shop.data_path()} + shop.net() +
                    Args{"--train-range", "1-9", "--test-range", "3"},
                "--train-range");
  const Args views =
      Args{"plan", "--data-provider", "npy", "--data-path", shop.data_path(), "--mini", "100"} + shop.net() +
      Args{"--inner-size", "6"};
  const std::string single = run_well(views + Args{"--verbose", "1"}).out;
  CHECK(run_well(views + Args{"--verbose", "1", "--multiview-test", "1"}).out != single);
  check_refused(Args{"plan"} + shop.dummy() + Args{"--multiview-test", "1"},
                "--multiview-test needs --inner-size");
}

TEST_CASE("a device that is not there is an error of the environment") {
  const Workshop shop;
  check_refused(shop.dummy() + Args{"--save-file", shop / "out", "--device", "cuda"}, "; use --device cpu",
                3);
  CHECK_FALSE(std::filesystem::exists(shop / "out"));
}

TEST_CASE("a precision of GPUs is refused on the CPU") {
  const Workshop shop;
  check_refused(shop.dummy() + Args{"--save-file", shop / "out", "--device", "cpu", "--precision", "tf32"},
                "--precision tf32 needs a GPU; CPU devices compute in fp32 or bf16");
}

TEST_CASE("a run in bf16 trains, tests and is the same every time") {
  const Workshop shop;
  const auto run = [&](const std::string& folder) {
    return run_program(shop.dummy() + Args{"--save-file", shop / folder, "--epochs", "1", "--device", "cpu",
                                           "--precision", "bf16"});
  };
  const Outcome first = run("a");
  INFO(first.out << first.err);
  REQUIRE(first.code == 0);
  const bool slow = first.out.find("--precision bf16 is no faster here than fp32") != std::string::npos;
  CHECK(slow == (instruction_set() < InstructionSet::avx512_core_bf16));
  CHECK(first.out.find("Averages") != std::string::npos);
  const auto weights = [&](const std::string& text) { return text.substr(text.find("Averages")); };
  const Outcome again = run("b");
  const std::string a = weights(first.out), b = weights(again.out);
  CHECK(a.substr(0, a.find("Saved")) == b.substr(0, b.find("Saved")));
}

TEST_CASE("all devices of the machine can be asked for") {
  const Workshop shop;
  const Outcome run = run_program({"--layer-def",     shop.definition_path(),
                                   "--layer-params",  shop.parameters_path(),
                                   "--data-provider", "dummy-1x8x8-10",
                                   "--train-range",   "1-2",
                                   "--test-range",    "3",
                                   "--save-file",     shop / "out",
                                   "--epochs",        "1",
                                   "--device",        "cpu",
                                   "--threads",       "3",
                                   "--gpu",           "all",
                                   "--parallel",      "data"});
  INFO(run.out << run.err);
  CHECK(run.code == 0);
  CHECK(run.out.find("Devices: cpu:0,1,2, 1 thread(s) each") != std::string::npos);
}

TEST_CASE("a device that is listed twice is refused") {
  const Workshop shop;
  const Args train = shop.dummy() + Args{"--save-file", shop / "run", "--parallel", "data",
                                         "--device",    "cpu",        "--epochs",   "1"};
  const Args plan = Args{"plan", "--data-provider", "dummy-1x8x8-10"} + shop.net();
  for (const Args& command : {train, plan}) {
    check_refused(command + Args{"--gpu", "0,0"},
                  "--gpu 0,0 lists device 0 twice; each device may be listed once");
    check_refused(command + Args{"--gpu", "1,0-2"}, "--gpu 1,0-2 lists device 1 twice");
    check_refused(command + Args{"--gpu", "0,0,1,1", "--hosts", "2x2"},
                  "--gpu 0,0,1,1 lists device 0 twice for one host");
  }
  check_refused(plan + Args{"--gpu", "0,1,1", "--hosts", "1,2"}, "lists device 1 twice for one host");
  CHECK_FALSE(std::filesystem::exists(shop / "run"));
  // Hosts may have different numbers of devices.
  run_well(plan + Args{"--parallel", "data", "--hosts", "3,1", "--mini", "16"});
  run_well(plan + Args{"--parallel", "data", "--hosts", "3,1", "--gpu", "2,1,0,2", "--mini", "16"});
  // Hosts number their own devices, and a checkpoint of an older version goes on as it began.
  run_well(train + Args{"--gpu", "0,1,0,1", "--hosts", "2x2", "--threads", "4"});
  std::filesystem::remove_all(shop / "run");
  run_well(train + Args{"--gpu", "0,1", "--threads", "2"});
  Checkpoint checkpoint = read_checkpoint(shop / "run");
  checkpoint.options["gpu"] = "0,0";
  write_checkpoint(shop / "run", checkpoint, 1);
  run_well({"--load-file", shop / "run", "--epochs", "2"});
}

TEST_CASE("options of training are refused beside options that only test") {
  const Workshop shop;
  run_well(shop.dummy() + Args{"--save-file", shop / "run", "--epochs", "1", "--test-freq", "1"} +
           Args{"--tensorboard", shop / "board", "--keep-best", "logprob", "--save-freq", "1"} +
           Args{"--patience", "3"});
  const Args test = {"--load-file", shop / "run", "--test-only", "1"};
  for (const auto& [option, value, use] : std::vector<std::array<std::string, 3>>{
           {"--tensorboard", shop / "other", "draws the curves of training"},
           {"--keep-best", "logprob", "keeps a checkpoint of training"},
           {"--save-freq", "2", "is for the checkpoints of training"},
           {"--plateau", "0.1,2", "lowers the learning rates of training"},
           {"--patience", "2", "ends training"}}) {
    check_refused(test + Args{option, value},
                  option + " " + use + ", and --test-only does not train; leave it out");
    check_refused({"--load-file", shop / "run", "--confusion", shop / "c.csv", option, value},
                  option + " " + use + ", and --confusion does not train; leave it out");
  }
  CHECK_FALSE(std::filesystem::exists(shop / "other"));
  // Those that the checkpoint holds do no harm, nor do those that cuda-convnet2 takes.
  run_well(test);
  run_well(test + Args{"--test-freq", "5", "--epochs", "9", "--max-test-err", "1", "--force-save", "1"});
}

TEST_CASE("the devices of one host stand for those of all hosts") {
  const Workshop shop;
  const auto devices = [&](const std::string& hosts, const Args& gpu) {
    const Outcome run = run_program(shop.dummy() +
                                    Args{"--save-file", shop / "out", "--epochs", "1", "--device", "cpu",
                                         "--threads", "4", "--parallel", "data", "--hosts", hosts} +
                                    gpu);
    INFO(run.out << run.err);
    CHECK(run.code == 0);
    std::filesystem::remove_all(shop / "out");
    const std::size_t at = run.out.find("Devices: cpu:");
    return at == std::string::npos ? "" : run.out.substr(at + 13, run.out.find(", ", at) - at - 13);
  };
  CHECK(devices("2x2", {}) == "0,1,0,1");
  CHECK(devices("3x1", {}) == "0,0,0");
  CHECK(devices("2x2", {"--gpu", "3,2"}) == "3,2,3,2");
  CHECK(devices("2x2", {"--gpu", "3,2,1,0"}) == "3,2,1,0");
  CHECK(devices("2x2", {"--gpu", "2-3"}) == "2,3,2,3");
  CHECK(devices("1x4", {"--gpu", "1-3,0"}) == "1,2,3,0");
}

TEST_CASE("a run goes on with its hosts") {
  const Workshop shop;
  const Args args = shop.dummy() + Args{"--save-file", shop / "out", "--device", "cpu", "--threads", "4"};
  run_well(args + Args{"--epochs", "1", "--parallel", "data", "--hosts", "2x2"});
  const Outcome again = run_well(args + Args{"--epochs", "2"});
  CHECK(again.out.find("Devices: cpu:0,1,0,1") != std::string::npos);
}

TEST_CASE("a plan says which devices are on which host") {
  const Workshop shop;
  const Args args = {"plan",           "--layer-def",          shop.definition_path(),
                     "--layer-params", shop.parameters_path(), "--data-provider",
                     "dummy-1x8x8-10", "--parallel",           "data"};
  const Outcome hosts = run_program(args + Args{"--hosts", "2x3"});
  INFO(hosts.out << hosts.err);
  CHECK(hosts.code == 0);
  CHECK(hosts.out.find("\n2 hosts, of devices 0-2; 3-5\n") != std::string::npos);
  CHECK(run_program(args + Args{"--gpu", "0,1,2"}).out.find("hosts") == std::string::npos);
}

TEST_CASE("tests say which options of training they do not use") {
  const Workshop shop;
  run_well(shop.dummy() + Args{"--save-file", shop / "run", "--epochs", "1"});
  const auto tested = [&](const Args& more) {
    return run_well(Args{"--test-only", "1", "--test-range", "3"} + more).out;
  };
  const Args named = {"--load-file", shop / "run"};
  CHECK_THAT(tested(named), !Catch::Contains("not used: "));
  CHECK_THAT(tested(named + Args{"--save-file", shop / "other", "--epochs", "9"}),
             Catch::Contains("--epochs, --save-file are not used: --test-only does not train\n"));
  CHECK_THAT(tested({"--save-file", shop / "run", "--keep", "2"}),
             Catch::Contains("--keep is not used: --test-only does not train\n"));
  shop.write_data();
  run_well(shop.mnist() + Args{"--save-file", shop / "digits", "--epochs", "1"});
  CHECK_THAT(
      run_well({"--load-file", shop / "digits", "--test-only", "1", "--flip", "--mixup", "0.2",
                "--random-erasing", "0.5", "--trivial-augment", "1", "--color-jitter", "0.4"})
          .out,
      Catch::Contains("--mixup, --random-erasing, --trivial-augment, --color-jitter, --flip are not used: "
                      "--test-only does not train\n"));
}

}  // namespace
}  // namespace convnet
