// --tensorboard: what a run leaves, and that going on from a checkpoint goes on in the same curves.
#include <map>

#include "tests/catch.h"
#include "tests/cli/small_net.h"
#include "tests/train/event_reader.h"

namespace convnet {
namespace {

using test::Event;

void done(const Args& args) {
  const Outcome run = run_program(args);
  INFO(run.out << run.err);
  REQUIRE(run.code == 0);
}

std::map<std::string, std::vector<std::pair<std::int64_t, float>>> curves(const std::string& folder) {
  std::map<std::string, std::vector<std::pair<std::int64_t, float>>> found;
  for (const Event& event : test::read_folder(folder)) {
    if (event.scalar) found[event.tag].emplace_back(event.step, *event.scalar);
  }
  return found;
}

}  // namespace

TEST_CASE("option --tensorboard writes costs, rates, filters and both files") {
  const Workshop shop;
  shop.write_data();
  // Six epochs of a batch of three minibatches, a test after every second.
  const Args run = shop.mnist() + Args{"--epochs", "6", "--test-freq", "2", "--keep", "9"};
  done(run + Args{"--save-file", shop / "run", "--tensorboard", shop / "board"});
  const auto all = curves(shop / "board");
  std::vector<std::string> tags;
  for (const auto& [tag, points] : all) tags.push_back(tag);
  CHECK(tags == std::vector<std::string>{"learning rate/conv1.biases", "learning rate/conv1.weights.data",
                                         "learning rate/fc10.biases", "learning rate/fc10.weights.pool1",
                                         "logprob/-log p (test)", "logprob/-log p (train)",
                                         "logprob/top-1 error (test)", "logprob/top-1 error (train)",
                                         "logprob/top-2 error (test)", "logprob/top-2 error (train)"});
  const auto steps_of = [&](const std::string& tag) {
    std::vector<std::int64_t> steps;
    for (const auto& [step, value] : all.at(tag)) steps.push_back(step);
    return steps;
  };
  CHECK(steps_of("logprob/-log p (train)") == std::vector<std::int64_t>{3, 6, 9, 12, 15, 18});
  CHECK(steps_of("logprob/-log p (test)") == std::vector<std::int64_t>{6, 12, 18});
  CHECK(steps_of("learning rate/conv1.biases") == std::vector<std::int64_t>{3, 6, 9, 12, 15, 18});
  CHECK(all.at("learning rate/conv1.biases")[0].second == 0.02F);
  std::map<std::string, std::string> texts;
  std::vector<std::int64_t> images;
  for (const Event& event : test::read_folder(shop / "board")) {
    if (!event.text.empty()) texts[event.tag] = event.text;
    if (event.png.empty()) continue;
    CHECK(event.tag == "filters/conv1.weights.data");
    CHECK(event.png.substr(1, 3) == "PNG");
    // A PNG's header has its sides at these places, highest byte first.
    const auto side = [&](std::size_t at) {
      return static_cast<unsigned char>(event.png[at + 2]) * 256 +
             static_cast<unsigned char>(event.png[at + 3]);
    };
    CHECK(side(16) == event.width);
    CHECK(side(20) == event.height);
    images.push_back(event.step);
  }
  CHECK(images == std::vector<std::int64_t>{6, 12, 18});
  CHECK(texts.at("layer definition").starts_with("    [data]\n    type=data\n"));
  CHECK(texts.at("layer parameters").starts_with("    [conv1]\n    epsW=0.01\n"));

  // From the checkpoint after four epochs again, in the same folder, which the checkpoint knows: as if
  // nothing had come after it. Twice, which leaves no texts or points twice either.
  for (int i = 0; i < 2; ++i) {
    done({"--load-file", shop / "run/4.1.safetensors"});
    CHECK(curves(shop / "board") == all);
    std::map<std::pair<std::string, std::int64_t>, int> times;
    for (const Event& event : test::read_folder(shop / "board")) ++times[{event.tag, event.step}];
    for (const auto& [point, count] : times) {
      INFO(point.first << " at " << point.second);
      CHECK(count == 1);
    }
  }

  // A run that is stopped and goes on has the curves of one that was not.
  done(run + Args{"--save-file", shop / "parts", "--tensorboard", shop / "parts board", "--epochs", "2"});
  done({"--load-file", shop / "parts", "--epochs", "6"});
  CHECK(curves(shop / "parts board") == all);

  // An empty value takes back what the checkpoint says.
  done(run + Args{"--save-file", shop / "bare", "--tensorboard", shop / "none", "--epochs", "1"});
  std::filesystem::remove_all(shop / "none");
  done({"--load-file", shop / "bare", "--epochs", "2", "--tensorboard="});
  CHECK(!std::filesystem::exists(shop / "none"));

  // Tests and runs with nothing to train leave no files.
  const auto files = [&] { return std::distance(std::filesystem::directory_iterator(shop / "board"), {}); };
  const auto before = files();
  done({"--load-file", shop / "run", "--test-only", "1"});
  done({"--load-file", shop / "run"});
  CHECK(files() == before);
}

TEST_CASE("option --tensorboard where no folder can be is refused before training") {
  const Workshop shop;
  shop.write_data();
  const Outcome run = run_program(shop.mnist() + Args{"--epochs", "1", "--save-file", shop / "run",
                                                      "--tensorboard", shop.definition_path()});
  CHECK(run.code == 2);
  CHECK(run.err.find("is not a folder; event files are to be written to") != std::string::npos);
}

TEST_CASE("curves of another run are not written over") {
  const Workshop shop;
  shop.write_data();
  const Args run = shop.mnist() + Args{"--test-freq", "1", "--keep", "9", "--tensorboard", shop / "board"};
  const auto refused = [&](const Args& args, const std::string& owner) {
    const Outcome outcome = run_program(args);
    INFO(outcome.out << outcome.err);
    CHECK(outcome.code == 2);
    CHECK(outcome.err.find("--tensorboard " + (shop / "board") + ": has the curves of another run" + owner +
                           ", which this one would write over") != std::string::npos);
  };
  const std::string the_first = ", that of " + (shop / "one");
  done(run + Args{"--save-file", shop / "one", "--epochs", "2"});
  const auto all = curves(shop / "board");
  refused(run + Args{"--save-file", shop / "two", "--epochs", "2"}, the_first);
  refused(run + Args{"--save-path", shop / "runs", "--epochs", "2"}, the_first);
  CHECK_FALSE(std::filesystem::exists(shop / "two"));
  CHECK_FALSE(std::filesystem::exists(shop / "runs"));
  CHECK(curves(shop / "board") == all);

  // The same run, also from another place; then, from a checkpoint of it, a branch, to which the curves
  // belong then.
  done(run + Args{"--save-file", shop / "one", "--epochs", "3"});
  std::filesystem::rename(shop / "one", shop / "moved");
  done({"--load-file", shop / "moved", "--epochs", "4"});
  done({"--load-file", shop / "moved/2.1.safetensors", "--save-file", shop / "branch", "--epochs", "3"});
  refused({"--load-file", shop / "moved", "--epochs", "5"}, ", that of " + (shop / "branch"));
  done({"--load-file", shop / "moved", "--epochs", "5", "--tensorboard", shop / "another board"});

  // A run that was killed before its first checkpoint begins again; one whose folder was removed is another.
  std::filesystem::remove(shop / "branch/3.1.safetensors");
  done(run + Args{"--save-file", shop / "branch", "--epochs", "1"});
  std::filesystem::remove_all(shop / "branch");
  refused(run + Args{"--save-file", shop / "branch", "--epochs", "1"}, ", that of " + (shop / "branch"));

  // Event files of another program, or of an older version.
  std::filesystem::remove(shop / "board/convnet-run.txt");
  refused(run + Args{"--save-file", shop / "three", "--epochs", "1"}, "");
}

}  // namespace convnet
