// Several processes under mpirun as a user meets them: what is printed, files, endings of every kind.
#include <cstdlib>
#include <map>
#include <optional>
#include <sstream>

#include "convnet/base/file.h"
#include "convnet/checkpoint/safetensors.h"
#include "kernels/cpu/instruction_set.h"
#include "tests/catch.h"
#include "tests/cli/equal_tensors.h"
#include "tests/cli/small_net.h"
#include "tests/providers/image_sets.h"

namespace convnet {
namespace {

/// Sets what Open MPI needs in order to start processes for root, and more of them than there are cores.
void prepare_launcher() {
  for (const auto& [name, value] :
       std::map<std::string, std::string>{{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                          {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                          {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                                          {"OMPI_MCA_hwloc_base_binding_policy", "none"},
                                          {"OMPI_MCA_orte_abort_print_stack", "0"}})
    setenv(name.c_str(), value.c_str(), 1);
}

/// Arguments of mpirun that start a process with each of these arguments of the program.
Args launched(const std::vector<Args>& processes) {
  prepare_launcher();
  Args args;
  for (const Args& process : processes) {
    if (!args.empty()) args.emplace_back(":");
    args = args + Args{"-np", "1", CONVNET_PROGRAM} + process;
  }
  return args;
}
Args launched(int processes, const Args& args) {
  prepare_launcher();
  return Args{"-np", std::to_string(processes), CONVNET_PROGRAM} + args;
}

Outcome mpirun(const Args& args) { return Program(args, CONVNET_MPIRUN).finish(); }

Outcome mpirun_well(const Args& args) {
  Outcome run = mpirun(args);
  INFO(run.out << run.err);
  REQUIRE(run.code == 0);
  return run;
}

Args training(const Workshop& shop, const std::string& folder, const std::string& gpus, int epochs = 2) {
  return shop.dummy() + Args{"--save-file",  folder, "--epochs",        std::to_string(epochs),
                             "--test-freq",  "1",    "--mini",          "50",
                             "--test-range", "3",    "--gpu",           gpus,
                             "--device",     "cpu",  "--stall-timeout", "60"};
}

/// The lines of a run without times and devices.
std::string costs_in(const std::string& out) {
  std::string lines;
  std::istringstream text(out);
  for (std::string line; std::getline(text, line);) {
    if (line.find("logprob") != std::string::npos) lines += line.substr(0, line.find(" (")) + "\n";
  }
  return lines;
}

std::string with_gpus(const std::string& conv, const std::string& fc = "") {
  return replaced(replaced(kDefinition, "filters=2\n", "filters=2\n" + conv + "\n"), "outputs=10\n",
                  "outputs=10\n" + fc + "\n");
}

}  // namespace

TEST_CASE("with --parallel auto the first process finds the placement for all") {
  const Workshop shop;
  const Args found = {"--parallel", "auto", "--model", CONVNET_SOURCE_DIR "/bench/models/nvlink-8gpu.json"};
  const Outcome one = run_well(training(shop, shop / "one", "0,1") + found);
  const Outcome several = mpirun_well(launched(2, training(shop, shop / "several", "0") + found));
  CHECK(count(several.out, "Placement: ") == 1);
  CHECK(costs_in(several.out) == costs_in(one.out));
  check_equal_tensors(shop / "several/2.2.safetensors", shop / "one/2.2.safetensors");
  // Without a model the first process measures.
  const Outcome measured =
      mpirun_well(launched(2, training(shop, shop / "measured", "0") + Args{"--parallel", "auto"}));
  CHECK(count(measured.out, "predicted for this machine, measured") == 1);
  const Outcome wrong = mpirun(launched(
      2, training(shop, shop / "wrong", "0") + Args{"--parallel", "auto", "--model", shop / "none.json"}));
  CHECK(wrong.code == 2);
  CHECK(count(wrong.err, "none.json: cannot be opened") == 1);
}

TEST_CASE("what several processes have trained is shown and tested by one") {
  const Workshop shop;
  shop.write(with_gpus("gpu=0,1"), kParameters);
  const std::string folder = shop / "run";
  const Outcome run = mpirun_well(launched(2, training(shop, folder, "0", 1)));
  CHECK_THAT(run.out, Catch::Contains("convnet --load-file " + folder + " --test-only 1 --parallel data\n") &&
                          Catch::Contains("train on:    mpirun -np 2 convnet --load-file " + folder));
  run_well({"--load-file", folder, "--test-only", "1", "--parallel", "data"});
  run_well({"show", folder, "--show-cost", "logprob", "--out", shop / "cost.png"});
  run_well({"show", folder, "--save-preds", shop / "preds.csv"});
  // One process behind a launcher prints the lines of several.
  const Outcome alone = mpirun_well(launched(1, training(shop, shop / "alone", "0,1", 1)));
  CHECK(count(alone.out, "... logprob: ") == 2);
}

TEST_CASE("processes save the bits of one process and print what it prints") {
  const Workshop shop;
  struct Case {
    std::string name, definition;
    int processes;
    std::string own, all;  ///< --gpu of each process and of one process with all devices
    Args more = {};
  };
  const std::string hybrid = with_gpus("gpu=0,1,2,3", "parallel=model\ngpu=0,1,2,3");
  for (const Case& c : std::vector<Case>{
           {"data2", with_gpus("gpu=0,1"), 2, "0", "0,1"},
           {"data3", with_gpus("gpu=0,1,2"), 3, "0", "0,1,2"},
           {"model2", with_gpus("gpu=0", "parallel=model\ngpu=0,1"), 2, "0", "0,1"},
           {"hybrid4", hybrid, 4, "0", "0,1,2,3"},
           {"hybrid2x2", hybrid, 2, "0-1", "0-3"},
           {"hosts2x2", hybrid, 2, "0,1", "0,1,2,3", {"--hosts", "2x2"}},
           {"data2 by MPI", with_gpus("gpu=0,1"), 2, "0", "0,1", {"--shared-memory", "0"}},
           {"hybrid4 by MPI", hybrid, 4, "0", "0,1,2,3", {"--shared-memory", "0"}},
           {"pipeline2", with_gpus("gpu=0", "gpu=1"), 2, "0", "0,1", {"--microbatches", "3"}},
           {"hybrid4 cut", hybrid, 4, "0", "0,1,2,3", {"--microbatches", "2"}},
           {"saves", with_gpus("gpu=0,1"), 2, "0", "0,1", {"--test-freq", "4", "--save-freq", "3"}},
           {"hosts2x2 of 4", hybrid, 4, "0", "0,1,2,3", {"--hosts", "2x2"}}}) {
    INFO(c.name);
    shop.write(c.definition, kParameters);
    const Outcome one = run_well(training(shop, shop / c.name + "-one", c.all) + c.more);
    const Outcome several = mpirun_well(launched(c.processes, training(shop, shop / c.name, c.own) + c.more));
    CHECK(costs_in(several.out) == costs_in(one.out));
    CHECK(count(several.out, "Saved checkpoint") == count(one.out, "Saved checkpoint"));
    CHECK(several.out.find("in " + std::to_string(c.processes) + " processes") != std::string::npos);
    CHECK(files_in(shop / c.name) == files_in(shop / c.name + "-one"));
    check_equal_tensors(shop / c.name + "/2.2.safetensors", shop / c.name + "-one/2.2.safetensors");
  }
}

TEST_CASE("processes on different processors compute with the least instruction set") {
  if (instruction_set() <= InstructionSet::avx2) return test::skip("this processor has no AVX-512");
  if (lowest_compiled_instruction_set() > InstructionSet::avx2)
    return test::skip("this build has own kernels for AVX-512 alone (CONVNET_INSTRUCTION_SETS=native)");
  const Workshop shop;
  shop.write(with_gpus("gpu=0,1"), kParameters);
  const Args limit = {"ONEDNN_MAX_CPU_ISA=AVX2", CONVNET_PROGRAM};
  const Outcome one = Program(limit + training(shop, shop / "one", "0,1"), "/usr/bin/env").finish();
  REQUIRE(one.code == 0);
  prepare_launcher();
  const std::string line = "Processors differ: all processes compute with AVX2, the instruction set of rank ";
  for (const int limited : {0, 1}) {
    const std::string folder = shop / std::to_string(limited);
    const Args free = Args{"-np", "1", CONVNET_PROGRAM} + training(shop, folder, "0");
    const Args held = Args{"-np", "1", "/usr/bin/env"} + limit + training(shop, folder, "0");
    const Outcome run = mpirun_well(limited == 0 ? held + Args{":"} + free : free + Args{":"} + held);
    CHECK(count(run.out, line + std::to_string(limited) + " on host ") == 1);
    CHECK(costs_in(run.out) == costs_in(one.out));
    check_equal_tensors(folder + "/2.2.safetensors", shop / "one/2.2.safetensors");
  }

  const Outcome alike = mpirun_well(launched(2, training(shop, shop / "alike", "0")));
  CHECK(alike.out.find("Processors differ") == std::string::npos);
  const TensorFile wide = read_safetensors(shop / "alike/2.2.safetensors");
  const TensorFile narrow = read_safetensors(shop / "one/2.2.safetensors");
  CHECK(wide.tensors.at("fc10.weights.pool1").values != narrow.tensors.at("fc10.weights.pool1").values);
}

/// Returns what mpirun does with these arguments on two hosts with network cards of their own; nothing where
/// scripts/several-hosts cannot make any, which it has said.
std::optional<Outcome> on_two_hosts(const Args& args, const std::string& rate = "1gbit") {
  // Processes of other hosts do not inherit the environment.
  Args sanitizers;
  for (const char* name : {"LSAN_OPTIONS", "TSAN_OPTIONS"})
    if (std::getenv(name) != nullptr) sanitizers = sanitizers + Args{"-x", name};
  Outcome run = Program(Args{"--rate", rate, "2", CONVNET_MPIRUN} + sanitizers + args,
                        std::string(CONVNET_SOURCE_DIR) + "/scripts/several-hosts")
                    .finish();
  if (run.code == 77) return std::nullopt;
  return run;
}

TEST_CASE("processes on two hosts sum by host and save the bits of one process with these hosts") {
  const Workshop shop;
  shop.write(with_gpus("gpu=0,1,2,3", "parallel=model\ngpu=0,1,2,3"), kParameters);
  const std::optional<Outcome> several =
      on_two_hosts(Args{"--host", "host0:2,host1:2"} + launched(4, training(shop, shop / "several", "0")));
  if (!several) return test::skip("scripts/several-hosts makes no hosts here");
  INFO(several->out << several->err);
  REQUIRE(several->code == 0);
  CHECK(several->out.find("in 4 processes (2 on host host0, 2 on host host1)") != std::string::npos);
  const Outcome one = run_well(training(shop, shop / "one", "0,1,2,3") + Args{"--hosts", "2x2"});
  CHECK(costs_in(several->out) == costs_in(one.out));
  check_equal_tensors(shop / "several/2.2.safetensors", shop / "one/2.2.safetensors");
}

TEST_CASE("a run goes on with another number of processes") {
  const Workshop shop;
  shop.write(with_gpus("gpu=0,1"), kParameters);
  run_well(training(shop, shop / "straight", "0,1", 3));
  mpirun_well(launched(2, training(shop, shop / "moved", "0", 1)));
  run_well(training(shop, shop / "moved", "0,1", 2));
  mpirun_well(launched(2, training(shop, shop / "moved", "local", 3)));
  check_equal_tensors(shop / "moved/3.2.safetensors", shop / "straight/3.2.safetensors");
}

TEST_CASE("features and probabilities of several processes are those of one") {
  const Workshop shop;
  shop.write(with_gpus("gpu=0,1", "parallel=model\ngpu=0,1"), kParameters);
  run_well(training(shop, shop / "net", "0,1", 1));
  const auto tested = [&](const std::string& to, const std::string& gpus) {
    return Args{"--load-file",      shop / "net", "--gpu",          gpus,
                "--write-features", "fc10",       "--feature-path", shop / to,
                "--test-out",       shop / to,    "--confusion",    shop / (to + ".csv")};
  };
  const Outcome one = run_well(tested("one", "0,1"));
  const Outcome several = mpirun_well(launched(2, tested("several", "0")));
  CHECK(files_in(shop / "one") == files_in(shop / "several"));
  for (const std::string& file : files_in(shop / "one")) {
    INFO(file);
    CHECK(read_whole_file(shop / "one/" + file) == read_whole_file(shop / "several/" + file));
  }
  CHECK(read_whole_file(shop / "one.csv") == read_whole_file(shop / "several.csv"));
  CHECK(costs_in(several.out) == costs_in(one.out));
}

TEST_CASE("an error that all processes find is printed once, with the exit code of one process") {
  const Workshop shop;
  shop.write(with_gpus("gpu=0,1"), kParameters);
  const Outcome run = mpirun(launched(2, training(shop, shop / "out", "0") + Args{"--mini", "0"}));
  CHECK(run.code == 2);
  CHECK(count(run.err, "--mini expects auto, or an integer") == 1);
  CHECK(run.err.find("rank") == std::string::npos);
  const Outcome devices = mpirun(launched(3, training(shop, shop / "out", "0")));
  CHECK(devices.code == 0);
  CHECK(count(devices.err, "the run has 3 devices, but the layers use 2") == 1);
}

TEST_CASE("commands that run in one process say so") {
  const Outcome layers = mpirun(launched({{"predict", "run", "a.png"}, {"predict", "run", "a.png"}}));
  CHECK(layers.code == 2);
  CHECK(count(layers.err, "convnet predict runs in one process; start it without mpirun or srun") == 1);
  for (const std::string command : {"help", "--version", "--help"}) {
    const Outcome printed = mpirun_well(launched({{command}, {command}}));
    CHECK(count(printed.out, command == "--version" ? "convnet " : "Commands:") == 1);
  }
  CHECK(count(mpirun(launched({{"tain"}, {"tain"}})).err, "unknown command 'tain'; did you mean 'train'?") ==
        1);
}

TEST_CASE("devices that are missing are counted over all processes") {
  const Workshop shop;
  shop.write(with_gpus("gpu=0,1,2,3"), kParameters);
  const Outcome run = mpirun(launched(2, training(shop, shop / "out", "0")));
  CHECK(run.code == 2);
  CHECK(run.err.find(
            "index 3 is beyond the 2 devices of 2 processes; the layers need 4 in all of them together, as "
            "each process's --gpu lists them") != std::string::npos);
}

TEST_CASE("processes that would not do the same are told so") {
  const Workshop shop;
  shop.write(with_gpus("gpu=0,1"), kParameters);
  const Args args = training(shop, shop / "out", "0");
  const Outcome option = mpirun(launched({args, args + Args{"--mini", "64"}}));
  CHECK(option.code == 2);
  CHECK(count(option.err, "rank 1 on host ") == 1);
  CHECK(option.err.find("the option --mini is '64' instead of '50'") != std::string::npos);
  const Outcome more = mpirun(launched({args, args + Args{"--ema", "0.9"}}));
  CHECK(more.err.find("the option --ema is '0.9' instead of not given") != std::string::npos);
  const Outcome less = mpirun(launched({args + Args{"--ema", "0.9"}, args}));
  CHECK(less.err.find("the option --ema is not given instead of '0.9'") != std::string::npos);

  write_file(shop / "other.cfg", replaced(kParameters, "epsW=0.01", "epsW=0.02"));
  const Outcome file = mpirun(launched({args, args + Args{"--layer-params", shop / "other.cfg"}}));
  CHECK(file.code == 2);
  CHECK(file.err.find("would not do the same as rank 0") != std::string::npos);
  CHECK(files_in(shop.path()).size() == 3);  // nothing was made

  // So are those that checkpoints do not store, and those that decide what is exchanged while the run loads.
  const std::vector<std::pair<Args, Args>> pairs = {{{}, {"--find-rate", "1"}},
                                                    {{"--force-save", "1"}, {}},
                                                    {{"--mini", "auto"}, {}},
                                                    {{}, {"--parallel", "auto"}}};
  for (const auto& [first, second] : pairs) {
    const Outcome refused = mpirun(launched({args + first, args + second}));
    INFO(refused.err);
    CHECK(refused.code == 2);
    CHECK(refused.err.find("would not do the same as rank 0 on host ") != std::string::npos);
    CHECK(refused.err.find("the option " + (first.empty() ? second : first)[0] + " is ") !=
          std::string::npos);
  }
  CHECK(files_in(shop.path()).size() == 3);

  // Where one of them shares no memory, MPI carries all messages.
  mpirun_well(launched({args, args + Args{"--shared-memory", "0"}}));
}

TEST_CASE("processes whose initial weights differ are told so") {
  const Workshop shop;
  // Each process reads the checkpoint of this name below its own current folder.
  for (const std::string folder : {"a", "b"}) {
    std::filesystem::create_directory(shop / folder);
    run_well(training(shop, shop / (folder + "/begun"), "0") + Args{"--seed", folder == "a" ? "1" : "2"});
  }
  shop.write(with_gpus("gpu=0,1"), kParameters);
  prepare_launcher();
  const auto refused = [&](const Args& args, const std::string& what) {
    const Outcome run = mpirun(Args{"-n", "1", "--wdir", shop / "a", CONVNET_PROGRAM} + args +
                               Args{":", "-n", "1", "--wdir", shop / "b", CONVNET_PROGRAM} + args);
    INFO(run.out << run.err);
    CHECK(run.code == 2);
    CHECK(run.err.find("rank 1") != std::string::npos);
    CHECK(run.err.find("would not do the same as rank 0") != std::string::npos);
    CHECK(run.err.find(what) != std::string::npos);
  };
  const Args args = training(shop, shop / "out", "0");
  refused(args + Args{"--init-from", "begun"}, ": what --init-from begun copies differs");
  mpirun_well(Args{"-n", "2", "--wdir", shop / "a", CONVNET_PROGRAM} + args + Args{"--init-from", "begun"});
}

TEST_CASE("a process that cannot read the data names itself and the folder") {
  const Workshop shop;
  shop.write(with_gpus("gpu=0,1"), kParameters);
  const Args args = {"--layer-def",     shop / "net.cfg",
                     "--layer-params",  shop / "params.cfg",
                     "--data-provider", "mnist",
                     "--train-range",   "1",
                     "--test-range",    "2",
                     "--save-file",     shop / "out",
                     "--gpu",           "0",
                     "--device",        "cpu"};
  const std::string data = shop.write_data();
  const Outcome run =
      mpirun(launched({args + Args{"--data-path", data}, args + Args{"--data-path", shop / "nowhere"}}));
  CHECK(run.code == 2);
  CHECK(count(run.err, "rank 1 on host ") == 1);
  CHECK(run.err.find(shop / "nowhere") != std::string::npos);
}

TEST_CASE("a label or an image that differs in one process's copy of the data is noticed") {
  const Workshop shop;
  shop.write(with_gpus("gpu=0,1"), kParameters);
  const std::filesystem::path data = shop.write_data(), copies = shop / "copies",
                              copy = copies / data.filename();
  std::filesystem::create_directory(copies);
  // Each process reads the folder of this name below its own current folder.
  const Args args = {"--layer-def",     shop / "net.cfg",
                     "--layer-params",  shop / "params.cfg",
                     "--data-provider", "mnist",
                     "--data-path",     data.filename(),
                     "--train-range",   "1",
                     "--test-range",    "2",
                     "--save-file",     shop / "out",
                     "--gpu",           "0",
                     "--device",        "cpu"};
  const auto in_folder = [&](const std::filesystem::path& folder) {
    return Args{"--wdir", folder, "-np", "1", CONVNET_PROGRAM} + args;
  };
  const auto error_of = [&](const std::string& file) {
    std::filesystem::remove_all(copy);
    std::filesystem::copy(data, copy);
    std::string bytes = read_file(copy / file);
    char& middle = bytes[bytes.size() / 2];
    middle = static_cast<char>((middle + 1) % 10);
    write_file(copy / file, bytes);
    return mpirun(in_folder(data.parent_path()) + Args{":"} + in_folder(copies)).err;
  };
  prepare_launcher();
  for (const std::string file : {"train-labels-idx1-ubyte", "train-images-idx3-ubyte"})
    CHECK(error_of(file).find("the data set's batches 1 differ") != std::string::npos);
  CHECK(error_of("t10k-labels-idx1-ubyte").find("the data set's batches 2 differ") != std::string::npos);
}

TEST_CASE("a checkpoint that cannot be written ends all processes with one message") {
  const Workshop shop;
  shop.write(with_gpus("gpu=0,1"), kParameters);
  const std::string folder = shop / "runs/out";
  Program run(launched(2, training(shop, folder, "0", 1000000)), CONVNET_MPIRUN);
  REQUIRE(run.printed("Saved checkpoint", 1));
  std::filesystem::rename(shop / "runs", shop / "moved");
  write_file(shop / "runs", "no folder");
  const Outcome ended = run.finish();
  INFO(ended.err);
  CHECK(ended.code == 1);
  CHECK(count(ended.err, folder) == 1);
  CHECK(ended.err.find("rank") == std::string::npos);
  run_well({"--load-file", shop / "moved/out", "--test-only", "1", "--gpu", "0,1"});
}

TEST_CASE("a request to stop reaches all processes, whichever gets it") {
  const Workshop shop;
  shop.write(with_gpus("gpu=0,1"), kParameters);
  for (const bool launcher : {true, false}) {
    const std::string folder = shop / (launcher ? "launcher" : "process");
    Program run(launched(2, training(shop, folder, "0", 1000000)), CONVNET_MPIRUN);
    REQUIRE(run.printed("Saved checkpoint", 1));
    if (launcher)
      run.send(SIGUSR1);  // mpirun passes it on
    else
      REQUIRE(std::system(("pkill -TERM -n -f '^" CONVNET_PROGRAM ".*" + folder + "'").c_str()) == 0);
    const Outcome ended = run.finish();
    INFO(ended.err);
    CHECK(ended.code == 0);
    // What was saved last goes on in one process.
    run_well({"--load-file", folder, "--test-only", "1", "--gpu", "0,1"});
  }
}

TEST_CASE("a time limit ends all processes together, and going on gives the same bits") {
  const Workshop shop;
  shop.write(with_gpus("gpu=0,1"), kParameters);
  const auto run = [&](const std::string& name, const std::string& gpus, int epochs) {
    return training(shop, shop / name, gpus, epochs) + Args{"--test-freq", "1000000"};
  };
  // The limit of one process is enough.
  const Args endless = run("limited", "0", 1000000);
  const auto [limited, limit] = run_limited(shop / "limited", [&](std::string text) {
    return mpirun(launched({endless, endless + Args{"--time-limit", text}}));
  });
  CHECK(count(limited.out,
              "Stopped before --time-limit " + limit + "; the command after 'train on:' goes on\n") == 1);
  const std::vector<std::string> files = files_in(shop / "limited");
  REQUIRE(files.size() == 1);
  const int epochs = std::stoi(files[0]) + 1;
  mpirun_well(launched(2, run("limited", "0", epochs)));
  run_well(run("whole", "0,1", epochs));
  const std::string last = "/" + std::to_string(epochs) + ".2.safetensors";
  check_equal_tensors((shop / "limited") + last, (shop / "whole") + last);
}

TEST_CASE("learning rates of all processes drop together with --plateau") {
  const Workshop shop;
  shop.write(with_gpus("gpu=0,1"), kParameters);
  const Args plateau = {"--plateau", "0.5,1"};
  const Outcome one = run_well(training(shop, shop / "one", "0,1", 5) + plateau);
  REQUIRE(count(one.out, "Learning rates drop") >= 2);
  mpirun_well(launched(2, training(shop, shop / "several", "0", 3) + plateau));
  const Outcome several = mpirun_well(launched(2, training(shop, shop / "several", "0", 5)));
  CHECK(count(several.out, "Learning rates drop") < count(one.out, "Learning rates drop"));
  check_equal_tensors(shop / "several/5.2.safetensors", shop / "one/5.2.safetensors");
}

TEST_CASE("when a process dies the others end, and the newest checkpoint is whole") {
  const Workshop shop;
  shop.write(with_gpus("gpu=0,1"), kParameters);
  const std::string folder = shop / "out";
  Program run(launched(2, training(shop, folder, "0", 1000000)), CONVNET_MPIRUN);
  REQUIRE(run.printed("Saved checkpoint", 2));
  REQUIRE(std::system(("pkill -KILL -n -f '^" CONVNET_PROGRAM ".*" + folder + "'").c_str()) == 0);
  CHECK(run.finish().code != 0);
  run_well({"--load-file", folder, "--test-only", "1", "--gpu", "0,1"});
}

TEST_CASE("a process that never starts ends the others after the stall timeout") {
  const Workshop shop;
  shop.write(with_gpus("gpu=0,1"), kParameters);
  prepare_launcher();
  for (const std::string idle : {"0", "1"}) {
    INFO(idle);
    const Args starts =
        Args{"-np", "1", CONVNET_PROGRAM} + training(shop, shop / "out", "0") + Args{"--stall-timeout", "3"};
    const Args never = {"-np", "1", "/bin/sleep", "600"};
    const Outcome run = mpirun(idle == "0" ? never + Args{":"} + starts : starts + Args{":"} + never);
    INFO(run.out << run.err);
    const std::string who = idle == "0" ? "rank 1: " : "rank 0: ";
    CHECK(run.code == 1);
    CHECK(count(run.err, who + "waiting for the other processes to start (--stall-timeout 3 s)") == 1);
    CHECK(count(run.err, who + "not all of the 2 processes have started convnet and MPI within 3 s") == 1);
  }
}

TEST_CASE("a timeline that cannot be written does not stop several processes") {
  const Workshop shop;
  shop.write(with_gpus("gpu=0,1"), kParameters);
  const Outcome run = mpirun_well(launched(
      2, training(shop, shop / "out", "0") + Args{"--stall-timeout", "10", "--profile", "/dev/full"}));
  CHECK(count(run.err, "training goes on without --profile") == 1);
}

TEST_CASE("when a process hangs the others say what they wait for, and end") {
  const Workshop shop;
  shop.write(with_gpus("gpu=0,1"), kParameters);
  const std::string folder = shop / "out";
  Program run(launched(2, training(shop, folder, "0", 1000000) + Args{"--stall-timeout", "5"}),
              CONVNET_MPIRUN);
  REQUIRE(run.printed("Saved checkpoint", 2));
  REQUIRE(std::system(("pkill -STOP -n -f '^" CONVNET_PROGRAM ".*" + folder + "'").c_str()) == 0);
  const Outcome ended = run.finish();
  INFO(ended.err);
  CHECK(ended.code == 1);
  const bool in_step = ended.err.find("the step has stalled") != std::string::npos &&
                       ended.err.find("of rank ") != std::string::npos;
  CHECK((in_step || ended.err.find("has not answered for 5 s") != std::string::npos));
}

TEST_CASE("each process decodes its own images, and all end at a bad one") {
  using namespace image_sets;
  const TempFolder folder;
  const std::string net =
      "[data]\ntype=data\ndataIdx=0\n[labels]\ntype=data\ndataIdx=1\n"
      "[fc4]\ntype=fc\ninputs=data\ngpu=0,1\noutputs=4\n"
      "[probs]\ntype=softmax\ninputs=fc4\n[logprob]\ntype=cost.logreg\ninputs=labels,probs\n";
  write_file(folder / "net.cfg", net);
  write_file(folder / "params.cfg",
             "[fc4]\nepsW=0.0001\nepsB=0.001\nmomW=0.9\nmomB=0.9\n[logprob]\ncoeff=1\n");
  std::vector<Item> items = photographs(40, 4, 20);
  std::filesystem::create_directory(folder / "set");
  const auto write_set = [&] {
    write_file(folder / "set/a-1.tar", tar_of({items.begin(), items.begin() + 27}));
    write_file(folder / "set/a-2.tar", tar_of({items.begin() + 27, items.end()}));
  };
  write_set();
  const auto args = [&](const std::string& into, const std::string& gpus) {
    return Args{"--layer-def",     folder / "net.cfg",
                "--layer-params",  folder / "params.cfg",
                "--data-provider", "image",
                "--data-path",     folder / "set",
                "--train-range",   "1",
                "--test-range",    "2",
                "--inner-size",    "16",
                "--image-size",    "20",
                "--mini",          "8",
                "--epochs",        "3",
                "--test-freq",     "1",
                "--threads",       gpus == "0" ? "1" : "2",
                "--save-file",     folder / into,
                "--gpu",           gpus,
                "--device",        "cpu"};
  };
  const Outcome one = run_well(args("one", "0,1"));
  const Outcome several = mpirun_well(launched(2, args("several", "0")));
  CHECK(costs_in(several.out) == costs_in(one.out));
  check_equal_tensors(folder / "several/3.1.safetensors", folder / "one/3.1.safetensors");
  const Args augmented = {"--shuffle",         "1", "--random-resized-crop", "0.3", "--random-erasing", "0.5",
                          "--trivial-augment", "1", "--color-jitter",        "0.4"};
  const Outcome alone = run_well(args("alone", "0,1") + augmented);
  CHECK(costs_in(alone.out) != costs_in(one.out));
  mpirun_well(launched(2, args("together", "0") + augmented));
  check_equal_tensors(folder / "together/3.1.safetensors", folder / "alone/3.1.safetensors");

  // The seventh image of a minibatch is of the second process. The mean is known, so none is read before.
  items[8 + 6].bytes.resize(items[8 + 6].bytes.size() / 2);
  write_set();
  const Outcome bad = mpirun(launched(2, args("several", "0") + Args{"--epochs", "4"}));
  INFO(bad.err);
  CHECK(bad.code == 2);
  CHECK(count(bad.err, "rank 1 on host ") == 1);
  CHECK(bad.err.find("set/a-1.tar") != std::string::npos);
  CHECK(bad.err.find("what was learned until then is saved in") != std::string::npos);
}

#ifdef CONVNET_SLOW_JPEG
TEST_CASE("processes of GPUs stop together if the images of one of them come late") {
  using namespace image_sets;
  const TempFolder folder;
  write_folders(folder / "photos", photographs(96, 4, 20));
  const Args args = {CONVNET_EMULATED,
                     "train",
                     folder / "photos",
                     "--layer-def",
                     "small",
                     "--image-size",
                     "20",
                     "--inner-size",
                     "16",
                     "--mini",
                     "8",
                     "--epochs",
                     "1000000",
                     "--parallel",
                     "data",
                     "--gpu",
                     "0",
                     "--device",
                     "cuda",
                     "--threads",
                     "1",
                     "--save-file",
                     folder / "run",
                     "--decode-threads",
                     "1",
                     "--stall-timeout",
                     "20"};
  prepare_launcher();
  // The first process has the images of the next minibatch before it begins one, and the second has not.
  Program run(Args{"-np", "1"} + args +
                  Args{":", "-np", "1", "-x", std::string("LD_PRELOAD=") + CONVNET_SLOW_JPEG} + args,
              CONVNET_MPIRUN);
  REQUIRE(run.printed("Saved checkpoint", 2));
  run.send(SIGUSR1);  // mpirun passes it on
  const Outcome ended = run.finish();
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(count(ended.out, "Stopped by SIGUSR1") == 1);
  run_well({"--load-file", folder / "run", "--test-only", "1", "--gpu", "0,1", "--device", "cpu"});
}
#endif

TEST_CASE("a net by its name learns tags and numbers in several processes") {
  using namespace image_sets;
  const TempFolder folder;
  std::filesystem::create_directory(folder / "photos");
  const std::vector<Item> items = photographs(40, 4, 20);
  std::string tags = "photo,tags\n", numbers = "photo,x,y\n";
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string name = std::to_string(i);
    write_file(folder / "photos/" + name + ".jpg", items[i].bytes);
    tags += name + (i % 3 == 0 ? ",\n" : i % 3 == 1 ? ",sea\n" : ",sea;warm\n");
    numbers += name + "," + name + "," + std::to_string(90 - i) + "\n";
  }
  for (const auto& [kind, table] : std::map<std::string, std::string>{{"tags", tags}, {"numbers", numbers}}) {
    INFO(kind);
    const std::string labels = folder / kind + ".csv", file = "/best.safetensors";
    write_file(labels, table);
    const auto args = [&](const std::string& into, const std::string& gpus) {
      return Args{"train",        folder / "photos",
                  "--labels",     labels,
                  "--layer-def",  "small",
                  "--image-size", "20",
                  "--inner-size", "16",
                  "--epochs",     "2",
                  "--parallel",   "data",
                  "--gpu",        gpus,
                  "--device",     "cpu",
                  "--threads",    gpus == "0" ? "1" : "2",
                  "--save-file",  folder / kind + into};
    };
    const Outcome one = run_well(args("-one", "0,1"));
    const Outcome several = mpirun_well(launched(2, args("-several", "0")));
    CHECK(count(several.err, "Note: the data set has " + kind + ", so the net ends in ") == 1);
    CHECK(read_checkpoint(folder / kind + "-several" + file).definition_text ==
          read_checkpoint(folder / kind + "-one" + file).definition_text);
    check_equal_tensors(folder / kind + "-several" + file, folder / kind + "-one" + file);
    // The same command goes on.
    mpirun_well(launched(2, args("-several", "0") + Args{"--epochs", "3"}));
  }
}

TEST_CASE("processes choose one minibatch together") {
  const Workshop shop;
  shop.write(with_gpus("gpu=0,1"), kParameters);
  const Outcome run = mpirun_well(launched(2, training(shop, shop / "out", "0", 1) + Args{"--mini", "auto"}));
  CHECK(count(run.out, "--mini auto: 512, the largest power of two") == 1);
  CHECK(read_checkpoint(shop / "out/1.2.safetensors").options.at("mini") == "512");
}

TEST_CASE("processes find one learning rate together") {
  const Workshop shop;
  shop.write(with_gpus("gpu=0,1"), kParameters);
  const Outcome together =
      mpirun_well(launched(2, training(shop, shop / "out", "0") + Args{"--find-rate", "1", "--json"}));
  const Outcome alone = run_well(training(shop, shop / "out", "0,1") + Args{"--find-rate", "1", "--json"});
  CHECK(together.out == alone.out);
  CHECK_FALSE(std::filesystem::exists(shop / "out"));
}

TEST_CASE("option --check-grads is for one process") {
  const Workshop shop;
  shop.write(with_gpus("gpu=0,1"), kParameters);
  const Outcome run = mpirun(launched(2, training(shop, shop / "out", "0") + Args{"--check-grads", "1"}));
  CHECK(run.code == 2);
  CHECK(count(run.err, "--check-grads works in one process") == 1);
}

}  // namespace convnet
