// --tensorboard: what a run leaves, and that going on from a checkpoint goes on in the same curves.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <regex>

#include "tests/catch.h"
#include "tests/cli/small_net.h"
#include "tests/train/event_reader.h"

namespace convnet {
namespace {

using test::Event;

void run_board(const Args& args) {
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

/// A run that is refused before it trains, for what `message` says of --tensorboard `board`.
void refused(const Args& args, const std::string& board, const std::string& message) {
  const Outcome outcome = run_program(args);
  INFO(outcome.out << outcome.err);
  CHECK(outcome.code == 2);
  CHECK(outcome.err.find("--tensorboard " + board + ": " + message) != std::string::npos);
}

/// Returns the error of a run that would write over the curves of the run in the folder `owner`.
std::string has_curves_of(const std::string& owner) {
  return "has the curves of another run, that of " + owner + ", which this one would write over";
}

Args short_board_run(const Workshop& shop) { return shop.mnist() + Args{"--test-freq", "1", "--keep", "9"}; }

}  // namespace

TEST_CASE("option --tensorboard writes costs, rates, filters and both files") {
  const Workshop shop;
  shop.write_data();
  // Six epochs of a batch of three minibatches, a test after every second.
  const Args run = shop.mnist() + Args{"--epochs", "6", "--test-freq", "2", "--keep", "9"};
  run_board(run + Args{"--save-file", shop / "run", "--tensorboard", shop / "board"});
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

  // From the checkpoint after four epochs again, in the same folder: as if nothing had come after
  // it. Twice, which leaves no texts or points twice either.
  for (int i = 0; i < 2; ++i) {
    run_board({"--load-file", shop / "run/4.1.safetensors", "--tensorboard", shop / "board"});
    CHECK(curves(shop / "board") == all);
    std::map<std::pair<std::string, std::int64_t>, int> times;
    for (const Event& event : test::read_folder(shop / "board")) ++times[{event.tag, event.step}];
    for (const auto& [point, count] : times) {
      INFO(point.first << " at " << point.second);
      CHECK(count == 1);
    }
  }

  // A run that is stopped and goes on has the curves of one that was not.
  run_board(run +
            Args{"--save-file", shop / "parts", "--tensorboard", shop / "parts board", "--epochs", "2"});
  run_board({"--load-file", shop / "parts", "--epochs", "6", "--tensorboard", shop / "parts board"});
  CHECK(curves(shop / "parts board") == all);

  // An empty value takes back what the checkpoint says.
  run_board(run + Args{"--save-file", shop / "bare", "--tensorboard", shop / "none", "--epochs", "1"});
  std::filesystem::remove_all(shop / "none");
  run_board({"--load-file", shop / "bare", "--epochs", "2", "--tensorboard="});
  CHECK(!std::filesystem::exists(shop / "none"));

  // Tests and runs with nothing to train leave no files.
  const auto files = [&] { return std::distance(std::filesystem::directory_iterator(shop / "board"), {}); };
  const auto before = files();
  run_board({"--load-file", shop / "run", "--test-only", "1"});
  run_board({"--load-file", shop / "run", "--tensorboard", shop / "board"});
  CHECK(files() == before);
}

TEST_CASE("option --tensorboard where no folder can be is refused before training") {
  const Workshop shop;
  shop.write_data();
  check_refused(shop.mnist() + Args{"--epochs", "1", "--save-file", shop / "run", "--tensorboard",
                                    shop.definition_path()},
                "is not a folder; event files are to be written to");
}

TEST_CASE("curves of another run are not written over") {
  const Workshop shop;
  shop.write_data();
  const std::string board = shop / "board";
  const Args run = short_board_run(shop) + Args{"--tensorboard", board};
  const std::string the_first = has_curves_of(shop / "one");
  run_board(run + Args{"--save-file", shop / "one", "--epochs", "2"});
  const auto all = curves(shop / "board");
  refused(run + Args{"--save-file", shop / "two", "--epochs", "2"}, board, the_first);
  refused(run + Args{"--save-path", shop / "runs", "--epochs", "2"}, board, the_first);
  CHECK_FALSE(std::filesystem::exists(shop / "two"));
  CHECK_FALSE(std::filesystem::exists(shop / "runs"));
  CHECK(curves(shop / "board") == all);

  // The same run goes on, also from another place, and a branch of it may take over once its folder is gone.
  run_board(run + Args{"--save-file", shop / "one", "--epochs", "3"});
  std::filesystem::rename(shop / "one", shop / "moved");
  run_board({"--load-file", shop / "moved", "--epochs", "4", "--tensorboard", board});
  std::filesystem::rename(shop / "moved", shop / "again");
  const Args branch = {"--load-file", shop / "again/2.1.safetensors", "--save-file", shop / "branch"};
  run_board(branch + Args{"--tensorboard", board, "--epochs", "3"});
  refused({"--load-file", shop / "again", "--epochs", "5", "--tensorboard", board}, board,
          has_curves_of(shop / "branch"));
  run_board({"--load-file", shop / "again", "--epochs", "5", "--tensorboard", shop / "another board"});

  // A run that was killed before its first checkpoint begins again.
  std::filesystem::remove(shop / "branch/3.1.safetensors");
  run_board(run + Args{"--save-file", shop / "branch", "--epochs", "1"});
  CHECK(curves(board).at("logprob/-log p (train)").size() == 1);

  // Curves of a run that was removed are still those of another one.
  std::filesystem::remove_all(shop / "branch");
  refused(run + Args{"--save-file", shop / "two", "--epochs", "1"}, board, has_curves_of(shop / "branch"));

  // Event files of another program, or of an older version.
  std::filesystem::remove(shop / "board/convnet-run.txt");
  refused(run + Args{"--save-file", shop / "three", "--epochs", "1"}, board,
          "has the curves of another run, which this one would write over");
  CHECK_FALSE(std::filesystem::exists(shop / "board/convnet-run.txt"));
}

TEST_CASE("a branch does not write into the curves of the run that it comes from") {
  const Workshop shop;
  shop.write_data();
  const std::string board = shop / "board";
  // A message names the whole path, however long it is.
  const std::string first = shop / std::string(80, 'n');
  run_board(short_board_run(shop) + Args{"--tensorboard", board, "--save-file", first, "--epochs", "3"});
  const auto all = curves(board);
  const Args branch = {"--load-file", first + "/2.1.safetensors", "--save-file", shop / "branch"};
  refused(branch + Args{"--tensorboard", board, "--epochs", "4"}, board, has_curves_of(first));

  // The checkpoint's --tensorboard is not taken over, nor is it saved in the branch's checkpoints.
  const Outcome bare = run_program(branch + Args{"--epochs", "4"});
  CHECK(bare.code == 0);
  CHECK(bare.out.find("The curves in " + board + " are not gone on with") != std::string::npos);
  CHECK(run_program({"--load-file", shop / "branch", "--epochs", "5"}).out.find(board) == std::string::npos);
  CHECK(curves(board) == all);
  CHECK(read_file(board + "/convnet-run.txt") == first + "\n");

  // The run itself goes on with its curves, and the branch may have its own folder.
  run_board({"--load-file", first, "--save-file", first + "/", "--epochs", "4", "--tensorboard", board});
  CHECK(curves(board).at("logprob/-log p (train)").size() == 4);
  const Args other = {"--load-file", first + "/2.1.safetensors", "--save-file", shop / "other"};
  CHECK(run_program(other + Args{"--tensorboard", shop / "other board", "--epochs", "4"}).err.empty());
  CHECK(curves(shop / "other board").at("logprob/-log p (train)").size() == 2);
}

TEST_CASE("two runs that are alive do not share a folder of curves") {
  const Workshop shop;
  shop.write_data();
  const std::string board = shop / "deep/board";
  // With such rates the costs stay finite as long as it takes.
  shop.write(kDefinition, std::regex_replace(kParameters, std::regex("eps(.)=0.0"), "eps$1=0.00000"));
  const Args run = shop.mnist() + Args{"--test-freq", "1", "--tensorboard", board};
  const std::string message = "another run writes its curves there; wait until it ends";
  {
    Program first(run + Args{"--save-file", shop / "one", "--epochs", "1000000"});
    REQUIRE(first.printed("Saved checkpoint", 1));
    refused(run + Args{"--save-file", shop / "two", "--epochs", "1"}, board, message);
  }
  // It was killed: its curves are still its own, but nobody holds them.
  refused(run + Args{"--save-file", shop / "two", "--epochs", "1"}, board, has_curves_of(shop / "one"));
}

TEST_CASE("a folder of curves is claimed before training, and given back by a run that writes none") {
  const Workshop shop;
  shop.write_data();
  const std::string board = shop / "deep/board", note = board + "/convnet-run.txt";
  const Args run = short_board_run(shop) + Args{"--tensorboard", board, "--save-file", shop / "run"};
  // A run has the folder before it has read its definition, which is a pipe here; killed, it has it no more.
  std::filesystem::remove(shop.definition_path());
  REQUIRE(mkfifo(shop.definition_path().c_str(), 0600) == 0);
  {
    Program first(short_board_run(shop) + Args{"--tensorboard", board, "--save-file", shop / "first"});
    // This waits until the program opens the other end, and the program then waits for text.
    const int pipe = open(shop.definition_path().c_str(), O_WRONLY | O_CLOEXEC);
    REQUIRE(pipe >= 0);
    refused(run + Args{"--epochs", "1"}, board, "another run writes its curves there; wait until it ends");
    CHECK(read_file(note) == (shop / "first") + "\n");
    first.send(SIGKILL);
    CHECK(first.finish().signal == SIGKILL);
    close(pipe);
  }
  std::filesystem::remove(shop.definition_path());
  shop.write(kDefinition, kParameters);
  run_board(run + Args{"--epochs", "1"});
  CHECK(read_file(note) == (shop / "run") + "\n");
  std::filesystem::remove_all(shop / "deep");
  std::filesystem::remove_all(shop / "run");

  // A run that is refused for another reason leaves nothing.
  const Outcome wrong = run_program(run + Args{"--epochs", "1", "--test-range", "7"});
  CHECK(wrong.code == 2);
  CHECK_FALSE(std::filesystem::exists(shop / "deep"));

  // It leaves another run's note as it was.
  std::filesystem::create_directories(board);
  write_file(note, shop.path() + "\n");
  CHECK(run_program(run + Args{"--epochs", "1", "--test-range", "7"}).code == 2);
  CHECK(read_file(note) == shop.path() + "\n");
}

TEST_CASE("a run that failed before its first checkpoint may begin again with its curves") {
  const Workshop shop;
  shop.write_data();
  const Args run = short_board_run(shop) +
                   Args{"--epochs", "3", "--save-file", shop / "run", "--tensorboard", shop / "board"};
  // The second minibatch has costs that are not finite.
  shop.write(kDefinition, replaced(kParameters, "epsW=0.01", "epsW=1e30"));
  CHECK(run_program(run).code == 1);
  CHECK_FALSE(std::filesystem::exists(shop / "run"));
  CHECK(read_file(shop / "board/convnet-run.txt") == (shop / "run") + "\n");
  shop.write(kDefinition, kParameters);
  run_board(run);
  CHECK(curves(shop / "board").at("logprob/-log p (train)").size() == 3);
}

TEST_CASE("a folder of curves that cannot be used is refused with the cause") {
  const Workshop shop;
  shop.write_data();
  const auto check = [&](const std::string& board, const std::string& message) {
    check_refused(shop.mnist() + Args{"--epochs", "1", "--save-file", shop / "run", "--tensorboard", board},
                  message);
    CHECK_FALSE(std::filesystem::exists(shop / "run"));
  };
  std::filesystem::create_symlink(shop / "gone", shop / "link");
  check(shop / "link", (shop / "link") + ": is a link to " + (shop / "gone") +
                           ", which is not there; event files are to be written to " + (shop / "link"));
  check(shop / std::string(300, 'n'), "File name too long; event files are to be written to ");
  std::filesystem::create_directories(shop / "board/convnet-run.txt");
  check(shop / "board", (shop / "board/convnet-run.txt") + ": cannot be opened for writing: Is a directory");
}

}  // namespace convnet
