// Resuming: a run that was stopped or killed ends where the uninterrupted one does, bit for bit.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <thread>

#include "convnet/checkpoint/safetensors.h"
#include "tests/catch.h"
#include "tests/cli/equal_tensors.h"
#include "tests/cli/small_net.h"

namespace convnet {
namespace {

nlohmann::json state_of(const TensorFile& file) { return nlohmann::json::parse(file.metadata.at("state")); }

/// Equal tensors, names and bits; the same place in training and the same history of costs.
void check_equal(const std::string& file, const std::string& expected) {
  const TensorFile a = read_safetensors(file);
  const TensorFile b = read_safetensors(expected);
  check_equal_tensors(a, b);
  for (const char* key : {"position", "iteration", "test_cursor", "test_due", "best", "plateau", "history"}) {
    INFO(key);
    CHECK(state_of(a).at(key) == state_of(b).at(key));
  }
}

bool holds_checkpoint(const std::string& folder) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none))
    if (entry.path().extension() == ".safetensors") return true;
  return false;
}

bool same_weights(const std::string& a, const std::string& b) {
  return read_safetensors(a).tensors.at("fc10.weights.pool1").values ==
         read_safetensors(b).tensors.at("fc10.weights.pool1").values;
}

/// Both training batches have 1000 images, so the last minibatch is short.
Args options(const Workshop& shop, int epochs, bool shuffle, const std::string& folder) {
  return shop.dummy() + Args{"--save-file", folder,   "--epochs",  std::to_string(epochs), "--test-freq",
                             "1",           "--mini", "48",        "--test-range",         "3-5",
                             "--threads",   "2",      "--shuffle", shuffle ? "1" : "0"};
}

std::string last_of(const std::string& folder, int epochs) {
  return folder + "/" + std::to_string(epochs) + ".2.safetensors";
}

/// The small net's parameters with this learning rate and no momentum.
std::string with_rate(const std::string& rate) {
  const std::string rates = std::regex_replace(kParameters, std::regex("eps(.)=[^\n]*"), "eps$1=" + rate);
  return std::regex_replace(rates, std::regex("mom(.)=[^\n]*"), "mom$1=0");
}

TEST_CASE("the rates of a schedule are those of the weights' updates") {
  const Workshop shop;
  const std::string run = shop / "run";
  shop.write(kDefinition, with_rate("step[base=0.01;at=1;factor=1e-30]"));
  run_well(options(shop, 2, false, run) + Args{"--keep", "9"});
  CHECK_FALSE(same_weights(run + "/1.1.safetensors", run + "/1.2.safetensors"));
  CHECK(same_weights(run + "/1.2.safetensors", run + "/2.2.safetensors"));
  // A step that is submitted ahead has its own rate; --verbose submits none.
  shop.write(kDefinition, with_rate("step[base=0.01;at=33;factor=0.1;unit=minibatches]"));
  run_well(options(shop, 1, false, shop / "ahead"));
  run_well(options(shop, 1, false, shop / "one-by-one") + Args{"--verbose", "1"});
  check_equal(last_of(shop / "ahead", 1), last_of(shop / "one-by-one", 1));
}

TEST_CASE("the same command twice gives the same bits, another seed does not") {
  const Workshop shop;
  for (const char* folder : {"a", "b"}) run_well(options(shop, 2, true, shop / folder));
  check_equal(last_of(shop / "a", 2), last_of(shop / "b", 2));
  run_well(options(shop, 2, true, shop / "c") + Args{"--seed", "2"});
  CHECK_FALSE(same_weights(last_of(shop / "a", 2), last_of(shop / "c", 2)));
  run_well(options(shop, 2, false, shop / "d"));
  CHECK_FALSE(same_weights(last_of(shop / "a", 2), last_of(shop / "d", 2)));
}

TEST_CASE("a resumed run ends like the uninterrupted one") {
  const Workshop shop;
  for (const bool shuffle : {false, true}) {
    const std::string name = shuffle ? "shuffled" : "plain";
    const std::string straight = shop / (name + "-straight");
    const std::string resumed = shop / (name + "-resumed");
    // --epochs drives nothing here: the rates are constant.
    run_well(options(shop, 4, shuffle, straight));
    run_well(options(shop, 1, shuffle, resumed));
    run_well(options(shop, 3, shuffle, resumed));
    const Outcome last = run_well({"--load-file", resumed, "--epochs", "4"});
    CHECK(last.out.find("Saved checkpoint to " + resumed + "\n") != std::string::npos);
    check_equal(last_of(resumed, 4), last_of(straight, 4));
  }
}

TEST_CASE("a run with shuffled images that is stopped in a test ends like the uninterrupted one") {
  const Workshop shop;
  const auto args = [&](const std::string& folder, const std::string& tests) {
    return options(shop, 2, true, folder) + Args{"--test-one", "0", "--test-range", tests};
  };
  run_well(args(shop / "straight", "3"));
  for (const char* folder : {"a", "b", "c"}) {
    Program program(args(shop / folder, "3-30000"));
    REQUIRE(program.printed("1.1 (", 1));  // the test after this batch takes minutes
    program.send(SIGTERM);
    REQUIRE(program.finish().code == 0);
    // The test that is due comes first. It must not read training images while they are loaded.
    run_well(args(shop / folder, "3"));
    check_equal(last_of(shop / folder, 2), last_of(shop / "straight", 2));
  }
}

TEST_CASE("a resumed run sees the crops of the uninterrupted one") {
  const Workshop shop;
  const Args crops = {"--inner-size", "6", "--crop-pad", "1", "--pixel-std", "1"},
             erased = {"--flip", "0", "--random-erasing", "0.5"};
  for (const bool shuffle : {false, true}) {
    const std::string name = shuffle ? "shuffled" : "plain";
    const std::string straight = shop / (name + "-straight");
    const std::string resumed = shop / (name + "-resumed");
    run_well(options(shop, 3, shuffle, straight) + crops + erased);
    run_well(options(shop, 1, shuffle, resumed) + crops + erased);
    run_well({"--load-file", resumed, "--epochs", "3"});
    check_equal(last_of(resumed, 3), last_of(straight, 3));
  }
  run_well(options(shop, 3, false, shop / "whole") + Args{"--inner-size", "6"});
  CHECK_FALSE(same_weights(last_of(shop / "plain-straight", 3), last_of(shop / "whole", 3)));
  run_well(options(shop, 3, false, shop / "crops") + crops);
  CHECK_FALSE(same_weights(last_of(shop / "plain-straight", 3), last_of(shop / "crops", 3)));
}

TEST_CASE("checkpoints between tests change nothing, and each of them resumes like the uninterrupted run") {
  const Workshop shop;
  const auto run = [&](const std::string& folder, const Args& more) {
    return run_well(options(shop, 3, true, shop / folder) + Args{"--test-freq", "4", "--keep", "99"} + more);
  };
  const Outcome plain = run("plain", {});
  CHECK(files_in(shop / "plain") == Args{"2.2.safetensors", "3.2.safetensors"});
  const Outcome often = run("often", {"--save-freq", "1"});
  CHECK(files_in(shop / "often") == Args{"1.1.safetensors", "1.2.safetensors", "2.1.safetensors",
                                         "2.2.safetensors", "3.1.safetensors", "3.2.safetensors"});
  CHECK(count(often.out, "Saved checkpoint") == 6);
  check_equal(last_of(shop / "often", 3), last_of(shop / "plain", 3));
  check_equal(shop / "often/2.2.safetensors", shop / "plain/2.2.safetensors");
  for (const char* from : {"1.1", "2.1", "3.1"}) {
    const std::string folder = shop / (std::string("from-") + from);
    run_well({"--load-file", shop / "often/" + from + ".safetensors", "--save-file", folder});
    check_equal(last_of(folder, 3), last_of(shop / "plain", 3));
  }
  // Batches are counted from the start of the run, over epochs and resumes.
  run("third", {"--save-freq", "3"});
  CHECK(files_in(shop / "third") == Args{"2.1.safetensors", "2.2.safetensors", "3.2.safetensors"});
  run_well(options(shop, 1, true, shop / "resumed") +
           Args{"--test-freq", "4", "--keep", "99", "--save-freq", "3"});
  run_well({"--load-file", shop / "resumed", "--epochs", "3"});
  CHECK(files_in(shop / "resumed") ==
        Args{"1.2.safetensors", "2.1.safetensors", "2.2.safetensors", "3.2.safetensors"});
  // The run of one epoch ended with a test.
  check_equal_tensors(last_of(shop / "resumed", 3), last_of(shop / "plain", 3));
}

TEST_CASE("a resumed run says if its training range has another number of images") {
  const Workshop shop;
  const auto with_images = [&](int count) {
    std::filesystem::create_directories(shop / "set");
    std::string data(static_cast<std::size_t>(count) * 64, 'x');
    const std::string header =
        fmt::format("{{'descr': '|u1', 'fortran_order': False, 'shape': ({}, 1, 8, 8), }}", count);
    std::string npy("\x93NUMPY\x01\0", 8);
    npy += static_cast<char>(header.size() + 1);
    npy += '\0';
    write_file(shop / "set/images.npy", npy + header + "\n" + data);
    const std::string labels =
        fmt::format("{{'descr': '|u1', 'fortran_order': False, 'shape': ({},), }}", count);
    std::string npy_labels("\x93NUMPY\x01\0", 8);
    npy_labels += static_cast<char>(labels.size() + 1);
    npy_labels += '\0';
    write_file(shop / "set/labels.npy",
               npy_labels + labels + "\n" + std::string(static_cast<std::size_t>(count), '\0'));
    return shop.net() + Args{"--data-provider", "npy", "--data-path", shop / "set", "--train-range", "1",
                             "--test-range",    "1",   "--save-file", shop / "run"};
  };
  run_well(with_images(40) + Args{"--epochs", "1"});
  CHECK(run_well(with_images(40) + Args{"--epochs", "2"}).err.find("goes on with other data") ==
        std::string::npos);
  std::filesystem::rename(shop / "set", shop / "moved");
  check_refused({"--load-file", shop / "run", "--epochs", "3"},
                "/set is in the options of " + shop / "run/2.1.safetensors" + "; if it has moved");
  run_well({"--load-file", shop / "run", "--epochs", "3", "--data-path", shop / "moved"});
  const Outcome more = run_well(with_images(41) + Args{"--epochs", "4"});
  CHECK(more.err.find("warning: the training range has 41 images, but had 40 when ") != std::string::npos);
}

TEST_CASE("a net with a layer that reads an input twice resumes, and both matrices can be drawn") {
  const Workshop shop;
  const std::string twice = replaced(kDefinition, "inputs=data\n", "inputs=data,data\n");
  shop.write(replaced(twice, "filterSize=3\n", "filterSize=3,5\npadding=0,1\n"), kParameters);
  run_well(options(shop, 2, false, shop / "straight"));
  run_well(options(shop, 1, false, shop / "resumed"));
  run_well({"--load-file", shop / "resumed", "--epochs", "2"});
  check_equal(last_of(shop / "resumed", 2), last_of(shop / "straight", 2));
  const TensorFile saved = read_safetensors(last_of(shop / "straight", 2));
  CHECK(saved.tensors.at("conv1.weights.data").dims == Dims{2, 1, 3, 3});
  CHECK(saved.tensors.at("conv1.weights.data.1").dims == Dims{2, 1, 5, 5});
  CHECK(saved.tensors.contains("conv1.weightsInc.data.1"));
  const Outcome drawn = run_well({"show", shop / "straight", "--show-filters", "conv1", "--input-idx", "1",
                                  "--out", shop / "filters.png"});
  CHECK(drawn.out.find("conv1.weights.data.1") != std::string::npos);
}

TEST_CASE("a run keeps the size and the unit of its images") {
  const Workshop shop;
  shop.write_data();
  const Args start =
      shop.mnist() + Args{"--save-file", shop / "run", "--inner-size", "6", "--pixel-std", "1"};
  run_well(start + Args{"--epochs", "1"});
  const std::string file = shop / "run/1.1.safetensors";
  const TensorFile saved = read_safetensors(file);
  CHECK(saved.tensors.at("mnist.mean").dims == Dims{1, 6, 6});
  REQUIRE(saved.tensors.at("mnist.deviations").dims == Dims{1});
  CHECK(saved.tensors.at("mnist.deviations").values[0] > 50);
  const auto refused = [&](const Args& change, const std::string& message) {
    check_refused(Args{"--load-file", shop / "run", "--epochs", "2"} + change, message);
  };
  refused({"--inner-size", "4"},
          file + ": this run has --inner-size 6, for all of its life; --inner-size 4 is for a new run");
  refused({"--pixel-std", "0"},
          file + ": this run has --pixel-std 1, for all of its life; --pixel-std 0 is for a new run");
  // The border may change, the numbers stay those of the checkpoint.
  run_well({"--load-file", shop / "run", "--epochs", "2", "--crop-pad", "2"});
  const TensorFile later = read_safetensors(shop / "run/2.1.safetensors");
  for (const char* name : {"mnist.mean", "mnist.deviations"})
    CHECK(later.tensors.at(name).values == saved.tensors.at(name).values);
  const std::string damaged_file = shop / "damaged/1.1.safetensors";
  std::filesystem::create_directory(shop / "damaged");
  TensorFile damaged = saved;
  damaged.tensors.erase("mnist.deviations");
  write_safetensors(damaged_file, damaged);
  check_refused({"--load-file", damaged_file, "--epochs", "2"},
                "--pixel-std needs the tensor 'mnist.deviations', a positive number for each channel");
}

TEST_CASE("a run stopped by SIGTERM or SIGINT again and again ends like the uninterrupted one") {
  const Workshop shop;
  std::mt19937 random(1);
  for (const bool shuffle : {false, true}) {
    const std::string name = shuffle ? "shuffled" : "plain";
    const std::string straight = shop / (name + "-straight");
    const std::string stopped = shop / (name + "-stopped");
    const int epochs = 12;
    run_well(options(shop, epochs, shuffle, straight));
    int inside = 0;  // stops within a batch
    for (int i = 0; i < 12 || inside == 0; ++i) {
      REQUIRE(i < 200);
      // It got to the end between the signals: once more.
      if (std::filesystem::exists(last_of(stopped, epochs))) std::filesystem::remove_all(stopped);
      Program program(options(shop, epochs, shuffle, stopped));
      program.printed(" sec)", static_cast<int>(random() % 3));
      if (i > 0) program.printed("Devices: ", 1);
      // Where minibatches take long, as under tsan, the next one begins later.
      const auto longest = static_cast<unsigned>(6000 * (1 + i / 12));
      std::this_thread::sleep_for(std::chrono::microseconds(random() % longest));
      program.send(i % 2 == 0 ? SIGTERM : SIGINT);
      const Outcome run = program.finish();
      INFO(run.out << run.err);
      // A signal before the program watches for them ends it at once.
      REQUIRE((run.code == 0 || (run.signal != 0 && run.out.empty())));
      if (!std::filesystem::exists(stopped)) continue;
      for (const auto& entry : std::filesystem::directory_iterator(stopped)) {
        const std::string file = entry.path().filename().string();
        CHECK(std::regex_match(file, std::regex(R"(\d+\.\d+(-\d{4})?\.safetensors)")));
        inside += file.find('-') != std::string::npos ? 1 : 0;
      }
    }
    run_well(options(shop, epochs, shuffle, stopped));
    check_equal(last_of(stopped, epochs), last_of(straight, epochs));
  }
}

TEST_CASE("a run killed at any moment leaves a checkpoint that loads, and ends like the uninterrupted one") {
  const Workshop shop;
  shop.write_data();
  shop.write(kDefinition, kPixelParameters);
  const int epochs = 260;
  const auto options = [&](const std::string& folder) {
    return shop.mnist() + Args{"--save-file", folder, "--epochs", std::to_string(epochs), "--test-freq", "1"};
  };
  const std::string straight = shop / "straight";
  const std::string killed = shop / "killed";
  const std::string last = "/" + std::to_string(epochs) + ".1.safetensors";
  run_well(options(straight));
  std::mt19937 random(2);
  int by_kill = 0;
  for (int i = 0; by_kill < 30; ++i) {
    REQUIRE(i < 300);
    // It got to the end between the kills: once more.
    if (std::filesystem::exists(killed + last)) std::filesystem::remove_all(killed);
    Program program(options(killed));
    if (i % 4 != 3) program.printed("Saved checkpoint", static_cast<int>(random() % 8));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % (i % 4 == 3 ? 20000 : 4000)));
    program.send(SIGKILL);
    by_kill += program.finish().signal == SIGKILL ? 1 : 0;
    if (!holds_checkpoint(killed)) continue;
    const Outcome loaded = run_program({"--load-file", killed, "--test-only"});
    INFO(loaded.err);
    REQUIRE(loaded.code == 0);
  }
  run_well(options(killed));
  check_equal(killed + last, straight + last);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(killed)) {
    INFO(entry.path());
    CHECK(entry.path().extension() == ".safetensors");
    ++files;
  }
  CHECK(files == 2);
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(killed).parent_path()))
    CHECK(entry.path().filename().string().find("tmp-") == std::string::npos);
}

TEST_CASE("a resumed run takes the learning parameters from the file as it is now") {
  const Workshop shop;
  const std::string frozen = shop / "frozen";
  const std::string learning = shop / "learning";
  run_well(shop.dummy() + Args{"--save-file", frozen, "--epochs", "1"});
  std::filesystem::copy(frozen, learning);
  run_well({"--load-file", learning, "--epochs", "2"});
  // No rate, no momentum, no decay: nothing moves any more.
  shop.write(kDefinition, std::regex_replace(kParameters, std::regex("(eps.|mom.|wc)=[0-9.]+"), "$1=0"));
  const Outcome run = run_well({"--load-file", frozen, "--epochs", "3"});
  CHECK(run.out.find("2.1 (33.33%)...") != std::string::npos);
  CHECK(same_weights(frozen + "/3.2.safetensors", frozen + "/1.2.safetensors"));
  CHECK_FALSE(same_weights(learning + "/2.2.safetensors", learning + "/1.2.safetensors"));
}

TEST_CASE("a run with steps and warm-up goes on at the same rates, and says where others make them jump") {
  const Workshop shop;
  const std::string text = replaced(
      replaced(kParameters, "epsW=0.01", "epsW=step[base=0.02;at=60;factor=0.5;warmup=30;unit=minibatches]"),
      "epsB=0.02", "epsB=step[base=0.02;at=1.5;warmup=1]");
  shop.write(kDefinition, text);
  run_well(options(shop, 3, true, shop / "straight"));
  run_well(options(shop, 1, true, shop / "resumed"));
  const Outcome same = run_well(options(shop, 3, true, shop / "resumed"));
  CHECK(same.err.find("jumps") == std::string::npos);
  check_equal(last_of(shop / "resumed", 3), last_of(shop / "straight", 3));

  shop.write(kDefinition, replaced(text, "factor=0.5", "factor=0.25"));
  const Outcome jump = run_well(options(shop, 4, true, shop / "resumed"));
  CHECK(jump.err.find("'conv1' weights.data goes on with 0.005 instead of 0.01; the parameter file, "
                      "--set or --epochs has changed") != std::string::npos);
  // A cosine over more epochs than before is another curve.
  shop.write(kDefinition, replaced(kParameters, "epsW=0.01", "epsW=cosine[base=0.02]"));
  run_well(options(shop, 2, false, shop / "cosine"));
  const Outcome longer = run_well(options(shop, 4, false, shop / "cosine"));
  CHECK(longer.err.find("goes on with 0.01 instead of") != std::string::npos);
}

TEST_CASE("rates that drop with --plateau go on to the same bits, resumed or killed") {
  const Workshop shop;
  const auto args = [&](const std::string& folder, int epochs) {
    return options(shop, epochs, true, shop / folder) + Args{"--plateau", "0.5,1", "--verbose", "1"};
  };
  const Outcome straight = run_well(args("straight", 8));
  CHECK(count(straight.out, "Learning rates drop to ") >= 3);
  CHECK(
      straight.out.find("Learning rates drop to 0.5 of those in the parameter file: 1 test without a better "
                        "logprob (top-1 error) than ") != std::string::npos);
  // The rates are 0.01 and 0.02 in the file.
  const std::size_t drop = straight.out.find("Learning rates drop to 0.5 of");
  CHECK(straight.out.rfind("learning rate: 0.01 to 0.02\n", drop) != std::string::npos);
  CHECK(straight.out.find("learning rate: 0.005 to 0.01\n", drop) != std::string::npos);
  const nlohmann::json plateau = state_of(read_safetensors(last_of(shop / "straight", 8))).at("plateau");
  CHECK(plateau.at("changes").size() ==
        static_cast<std::size_t>(count(straight.out, "Learning rates drop to ")));

  for (const int epochs : {1, 2, 5, 8}) {
    const Outcome part = run_well(args("resumed", epochs));
    CHECK(part.err.find("jumps") == std::string::npos);
  }
  check_equal(last_of(shop / "resumed", 8), last_of(shop / "straight", 8));
  Program killed(args("killed", 8));
  REQUIRE(killed.printed("Learning rates drop to ", 2));
  killed.send(SIGKILL);
  killed.finish();
  run_well(args("killed", 8));
  check_equal(last_of(shop / "killed", 8), last_of(shop / "straight", 8));
  run_well(options(shop, 8, true, shop / "without"));
  CHECK_FALSE(same_weights(last_of(shop / "without", 8), last_of(shop / "straight", 8)));

  // Without the option the rates are those of the file again, and a warning says that they jump.
  const Outcome ended = run_well(args("straight", 9) + Args{"--plateau", "0"});
  CHECK(ended.err.find("goes on with 0.01 instead of ") != std::string::npos);
  CHECK(ended.err.find("--plateau, --set or --epochs has changed") != std::string::npos);
  CHECK(ended.out.find("learning rate: 0.01 to 0.02\n") != std::string::npos);
  CHECK(ended.out.find("Learning rates drop") == std::string::npos);
  CHECK(state_of(read_safetensors(last_of(shop / "straight", 9))).at("plateau").at("changes").back().at(2) ==
        1.0);
}

TEST_CASE("a checkpoint with a factor of learning rates that makes no sense is refused") {
  const Workshop shop;
  run_well(options(shop, 1, false, shop / "run"));
  TensorFile contents = read_safetensors(last_of(shop / "run", 1));
  contents.metadata.erase("checksum.metadata");
  for (const double factor : {0.0, -1.0, 2.0}) {
    nlohmann::json state = state_of(contents);
    state["plateau"] = {{"tests_since", 0}, {"changes", {{1, 1, factor}}}};
    contents.metadata["state"] = state.dump();
    write_safetensors(shop / "wrong.safetensors", contents);
    check_refused({"--load-file", shop / "wrong.safetensors", "--epochs", "2"},
                  "plateau.changes[0][2] is not a factor of learning rates, which is in (0,1]");
  }
  // Checkpoints of older versions have none.
  nlohmann::json state = state_of(contents);
  state.erase("plateau");
  contents.metadata["state"] = state.dump();
  write_safetensors(shop / "old.safetensors", contents);
  run_well({"--load-file", shop / "old.safetensors", "--epochs", "2", "--save-file", shop / "goes-on"});
}

/// Changes a finished checkpoint into one that was stopped after `minibatches` of its batch, of 48 images
/// each.
void stop_within_batch(const std::string& file, const std::string& stopped, int minibatches) {
  TensorFile contents = read_safetensors(file);
  nlohmann::json state = state_of(contents);
  state["position"]["minibatches"] = minibatches;
  state["position"]["images"] = 48 * minibatches;
  state["partial"] = {{"images", state["history"][0]["images"]}, {"sums", state["history"][0]["sums"]}};
  contents.metadata["state"] = state.dump();
  write_safetensors(stopped, contents);
}

TEST_CASE("a run says where the rate of a divided layer jumps") {
  const Workshop shop;
  const std::string divided = replaced(kDefinition, "[fc10]\n", "[fc10]\nparallel=model\ngpu=0,1\n");
  shop.write(divided, kParameters);
  run_well(shop.dummy() + Args{"--gpu", "0,1", "--save-file", shop / "run", "--epochs", "1"});
  shop.write(divided, std::regex_replace(kParameters, std::regex("epsW=[0-9.]+"), "epsW=0.003"));
  const Outcome jump = run_well({"--load-file", shop / "run", "--epochs", "2"});
  CHECK(jump.err.find("and 1 other(s) jump, too") != std::string::npos);
}

TEST_CASE("a run without ranges, or stopped within a batch, is not said to jump where it does not") {
  const Workshop shop;
  const std::string text =
      replaced(kPixelParameters, "epsW=0.000001", "epsW=step[base=0.00001;at=1.5;factor=0.5]");
  shop.write(kDefinition, text);
  const Args arrays = shop.net() + Args{"--data-provider", "npy", "--data-path", shop.write_arrays(),
                                        "--test-freq",     "1",   "--mini",      "48",
                                        "--keep",          "9"};
  run_well(arrays + Args{"--save-file", shop / "run", "--epochs", "1"});
  CHECK(run_well({"--load-file", shop / "run", "--epochs", "2"}).err.find("jumps") == std::string::npos);

  // The rate's first step is after batch 2.1, the second batch of the second epoch has it.
  stop_within_batch(shop / "run/2.1.safetensors", shop / "2.1-0003.safetensors", 3);
  shop.write(kDefinition, replaced(text, "factor=0.5", "factor=0.25"));
  const auto resumed = [&](const std::string& file, const std::string& epochs) {
    std::filesystem::remove_all(shop / "more");
    return run_well({"--load-file", file, "--save-file", shop / "more", "--epochs", epochs}).err;
  };
  const std::string jump =
      "'conv1' weights.data goes on with 2.5e-06 instead of 5e-06; the parameter file, "
      "--set or --epochs has changed";
  CHECK(resumed(shop / "2.1-0003.safetensors", "2").find("jumps") == std::string::npos);
  CHECK(resumed(shop / "run/2.1.safetensors", "2").find(jump) != std::string::npos);
  stop_within_batch(shop / "run/2.2.safetensors", shop / "2.2-0003.safetensors", 3);
  CHECK(resumed(shop / "2.2-0003.safetensors", "2").find(jump) != std::string::npos);
  // Nothing is left to train.
  CHECK(resumed(shop / "run/2.2.safetensors", "2").find("jumps") == std::string::npos);
  CHECK(resumed(shop / "run/2.2.safetensors", "3").find(jump) != std::string::npos);
  // With another range the epochs that are done are others.
  shop.write(kDefinition, text);
  const Outcome wider = run_well({"--load-file", shop / "run/2.1.safetensors", "--save-file", shop / "wider",
                                  "--epochs", "2", "--train-range", "1-3", "--test-range", "3"});
  CHECK(wider.err.find(
            "goes on with 1e-05 instead of 5e-06; the parameter file, --set, --epochs or the training range "
            "has changed") != std::string::npos);
}

TEST_CASE("a resumed run keeps its net, whatever became of the definition file") {
  const Workshop shop;
  const std::string folder = shop / "out";
  run_well(shop.dummy() + Args{"--save-file", folder, "--epochs", "1"});
  const Args again = Args{"--load-file", folder, "--layer-def", shop.definition_path(), "--test-only"};
  struct Change {
    std::string from, to;
    int code;
  };
  for (const Change& change :
       std::vector<Change>{{"outputs=10", "outputs=10\ninitW=0.5", 0},
                           {"filters=2", "Filters = 2 # as before", 0},
                           {"stride=2", "stride=2\ngpu=0", 0},
                           // Names of the user's own, and keys of other layer types, change nothing.
                           {"[data]", "[DEFAULT]\nside=3\nmaps=7\nparts=9\n[data]", 0},
                           {"filterSize=3", "side=3\nfilterSize=%(side)s", 0},
                           {"[data]", "[DEFAULT]\npadding=1\n[data]", 2},
                           {"filterSize=3", "side=5\nfilterSize=%(side)s", 2},
                           {"filters=2", "filters=3", 2},
                           {"pool=max", "pool=avg", 2},
                           {"[pool1]", "[extra]\ntype=neuron\nneuron=relu\ninputs=conv1\n[pool1]", 2}}) {
    shop.write(replaced(kDefinition, change.from, change.to), kParameters);
    const Outcome run = run_program(again);
    INFO(change.to << "\n" << run.err);
    CHECK(run.code == change.code);
    if (change.code != 0)
      CHECK(run.err.find(shop.definition_path() + ": is another net than that of checkpoint " + folder +
                         "/1.2.safetensors:") != std::string::npos);
  }
  std::filesystem::remove(shop.definition_path());
  run_well({"--load-file", folder, "--epochs", "2"});
  CHECK(run_program(again).code == 2);
}

TEST_CASE("a resumed run accepts a key by any of its names") {
  const Workshop shop;
  const std::string by_key = replaced(kDefinition, "filterSize=3", "filterSize=3\npadding=1\nsumWidth=3"),
                    by_alias = replaced(kDefinition, "filterSize=3", "filterSize=3\npad=1\npartialSum=4");
  for (const bool alias_first : {false, true}) {
    const std::string folder = shop / (alias_first ? "alias" : "key");
    shop.write(alias_first ? by_alias : by_key, kParameters);
    run_well(shop.dummy() + Args{"--save-file", folder, "--epochs", "1"});
    shop.write(alias_first ? by_key : by_alias, kParameters);
    run_well(shop.dummy() + Args{"--load-file", folder, "--epochs", "2"});
    shop.write(replaced(by_alias, "pad=1", "pad=0"), kParameters);
    check_refused(
        shop.dummy() + Args{"--load-file", folder, "--epochs", "3"},
        "it has  [conv1] channels=1 filters=2 filtersize=3 inputs=data neuron=relu padding=1 type=conv");
  }
}

TEST_CASE(
    "a run says which options it takes from its checkpoint, and when it has more epochs than asked for") {
  const Workshop shop;
  const std::string folder = shop / "run";
  const Args run = shop.dummy() + Args{"--save-file", folder};
  run_well(run + Args{"--epochs", "2", "--mini", "100", "--seed", "3"});
  const Outcome again = run_well(run + Args{"--epochs", "1"});
  CHECK_THAT(
      again.out,
      Catch::Contains("Not given, and so as in " + folder + "/2.2.safetensors: --mini 100 --seed 3\n") &&
          Catch::Contains("Nothing to train: 2 epochs are done, which is more than --epochs 1\n"));
  const Outcome same = run_well(run + Args{"--epochs", "2", "--mini", "100", "--seed", "3"});
  CHECK_THAT(same.out, !Catch::Contains("so as in " + folder) &&
                           Catch::Contains("Nothing to train: 2 of 2 epochs are done\n"));
}

Args every_layer(int epochs, const std::string& folder) {
  const std::string net = std::string(CONVNET_SOURCE_DIR) + "/tests/nets/every-layer";
  return {"--layer-def",     net + ".cfg",
          "--layer-params",  net + "-params.cfg",
          "--data-provider", "dummy-3x12x12-4",
          "--train-range",   "1-2",
          "--test-range",    "3",
          "--mini",          "170",
          "--test-freq",     "1",
          "--threads",       "2",
          "--save-file",     folder,
          "--epochs",        std::to_string(epochs)};
}

TEST_CASE("every layer type resumes bit for bit: masks, noise, running statistics, increments") {
  const Workshop shop;
  run_well(every_layer(2, shop / "straight"));
  run_well(every_layer(1, shop / "resumed"));
  run_well(every_layer(2, shop / "resumed"));
  check_equal(last_of(shop / "resumed", 2), last_of(shop / "straight", 2));
}

TEST_CASE("optimisers, averages, clipping and mixed images resume bit for bit, on one device and on two") {
  const Workshop shop;
  for (const std::string optimizer : {"nesterov", "adamw", "rmsprop", "lars"}) {
    INFO(optimizer);
    shop.write(kDefinition, "[DEFAULT]\noptimizer=" + optimizer + "\nsmoothing=0.1\n" + kParameters);
    for (const Args& placement : {Args{"--gpu", "0"}, Args{"--gpu", "0,1", "--parallel", "data"}}) {
      const std::string name = optimizer + std::to_string(placement.size());
      const std::string straight = shop / (name + "-straight"), resumed = shop / (name + "-resumed");
      const Args with = placement + Args{"--ema",   "0.9", "--clip-norm", "0.5", "--flip",           "1",
                                         "--mixup", "0.4", "--cutmix",    "1",   "--random-erasing", "0.3"};
      run_well(options(shop, 3, true, straight) + with);
      run_well(options(shop, 1, true, resumed) + with);
      run_well({"--load-file", resumed, "--epochs", "3"});
      check_equal(last_of(resumed, 3), last_of(straight, 3));
      CHECK(read_safetensors(last_of(straight, 3)).tensors.contains("conv1.weightsAvg.data"));
    }
  }
}

TEST_CASE("a training range without the saved batch starts at its first batch") {
  const Workshop shop;
  run_well(shop.dummy() + Args{"--save-file", shop / "out", "--epochs", "1"});
  const Outcome run = run_well({"--load-file", shop / "out", "--train-range", "5-6", "--epochs", "1"});
  CHECK(run.out.find("\n1.5 (0.00%)...") != std::string::npos);
  CHECK(std::filesystem::exists(shop / "out/1.6.safetensors"));
}

TEST_CASE("a cost that is not finite stops training and leaves the last good checkpoint") {
  const Workshop shop;
  const std::string folder = shop / "out";
  run_well(shop.dummy() + Args{"--save-file", folder, "--epochs", "1"});
  shop.write(kDefinition, std::regex_replace(kParameters, std::regex("epsW=0.01"), "epsW=1e38"));
  const Outcome run = run_program({"--load-file", folder, "--epochs", "3"});
  INFO(run.out << run.err);
  CHECK(run.code == 1);
  CHECK(std::regex_search(
      run.err, std::regex("is not finite \\(NaN or infinity\\) in training after \\d+ minibatches")));
  CHECK(std::regex_search(run.err, std::regex("'(conv1|fc10|probs|logprob|pool1)")));
  CHECK(run.err.find(
            "\ntry lower learning rates (epsW and epsB in the parameter file), a tenth to begin with, or "
            "--clip-norm 1, which bounds the gradient\nthe last good checkpoint is " +
            folder + "/1.2.safetensors") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder + "/2.1.safetensors"));
  run_well({"--load-file", folder, "--test-only"});
}

TEST_CASE("a first step that is not finite is not blamed on learning rates") {
  const Workshop shop;
  shop.write(replaced(kDefinition, "neuron=relu", "neuron=sqrt"), kParameters);
  const Outcome run = run_program(shop.dummy() + Args{"--save-file", shop / "out", "--epochs", "1"});
  INFO(run.err);
  CHECK(run.code == 1);
  CHECK(run.err.find("after 0 minibatches") != std::string::npos);
  CHECK(run.err.find("no weight has been updated yet") != std::string::npos);
  CHECK(run.err.find("lower learning rates") == std::string::npos);
}

TEST_CASE("a checkpoint with weights that are not finite is refused") {
  const Workshop shop;
  run_well(shop.dummy() + Args{"--save-file", shop / "out", "--epochs", "1"});
  for (const float value : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    TensorFile file = read_safetensors(shop / "out/1.2.safetensors");
    file.tensors.at("fc10.biases").values[3] = value;
    write_safetensors(shop / "bad.safetensors", file);
    check_refused({"--load-file", shop / "bad.safetensors", "--test-only"},
                  "bad.safetensors: tensor 'fc10.biases' holds numbers that are not finite");
  }
}

TEST_CASE("a run on hosts goes on with other devices if --hosts is given anew, and says so") {
  const Workshop shop;
  run_well(shop.dummy() + Args{"--save-file", shop / "run", "--epochs", "1", "--parallel", "data", "--gpu",
                               "0,1", "--hosts", "1x2"});
  const Args more = {"--load-file", shop / "run", "--epochs", "2", "--gpu", "0,1,2"};
  check_refused(more,
                "\n--hosts is that of the run, which goes on; type --hosts with the devices of each host");
  run_well(more + Args{"--hosts", "1x3"});
}

TEST_CASE("a net is tested on the same images in another form") {
  const Workshop shop;
  shop.write_data();
  run_well(shop.mnist() + Args{"--save-file", shop / "run", "--epochs", "1"});
  std::filesystem::create_directory(shop / "arrays");
  const std::string images = read_file(shop.data_path() + "/t10k-images-idx3-ubyte").substr(16);
  const std::string labels = read_file(shop.data_path() + "/t10k-labels-idx1-ubyte").substr(8);
  write_file(shop / "arrays/images.npy", npy_file("|u1", "20, 1, 8, 8", images));
  write_file(shop / "arrays/labels.npy", npy_file("|u1", "20,", labels));
  const Args test = {"--load-file", shop / "run", "--test-only", "1", "--json", "1"};
  const auto costs = [&](const Args& more) {
    return nlohmann::json::parse(run_well(test + more).out)["costs"];
  };
  CHECK(costs({"--data-provider", "npy", "--data-path", shop / "arrays", "--test-range", "1"}) == costs({}));
  check_refused(
      test + Args{"--data-provider", "dummy-1x8x8-10", "--test-range", "1"},
      ": the data set does not fit: its images are float32 numbers, but the net was trained on bytes "
      "(uint8); prepare it as the run's data set was");
}

}  // namespace
}  // namespace convnet
