// The folders of runs: made, locked, named, and removed where they stay empty.
#include "convnet/train/run_folder.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <limits>
#include <optional>

#include "convnet/base/error.h"
#include "convnet/checkpoint/checkpoint.h"
#include "convnet/train/watched_cost.h"
#include "tests/catch.h"
#include "tests/temp_folder.h"

using namespace convnet;
namespace fs = std::filesystem;

namespace {

std::string refusal(const std::string& path) {
  return message_of<InputError>([&] { RunFolder{path}; });
}

void write_empty_checkpoint(const std::string& folder, int epoch) {
  Checkpoint checkpoint;
  checkpoint.state.position = {epoch, 1};
  write_checkpoint(folder, checkpoint, 100);
}

}  // namespace

TEST_CASE("a run's folder that stays empty is removed with those above it that it made") {
  const TempFolder folder;
  fs::create_directory(folder / "there");
  {
    const RunFolder made((folder / "a/b/c") + "/");
    CHECK(made.path() == folder / "a/b/c");
    CHECK(fs::exists(folder / "a/b/c/.lock"));
    const RunFolder found(folder / "there");
    CHECK(fs::exists(folder / "there/.lock"));
  }
  CHECK_FALSE(fs::exists(folder / "a"));
  CHECK(fs::is_empty(folder / "there"));
  {
    const RunFolder made(folder / "a/b");
    write_file(folder / "a/b/file", "");
  }
  CHECK(fs::exists(folder / "a/b/file"));
  CHECK_FALSE(fs::exists(folder / "a/b/.lock"));
}

TEST_CASE("one run has a folder, and the next is told which") {
  const TempFolder folder;
  std::optional<RunFolder> first(std::in_place, folder / "run");
  std::string message = refusal(folder / "run");
  CHECK(message.find((folder / "run") + ": another run saves its checkpoints there: pid " +
                     std::to_string(getpid()) + " on ") == 0);
  CHECK(message.find(" since 20") != std::string::npos);
  CHECK(message.find("wait until it ends, or give this one another --save-file") != std::string::npos);
  CHECK(fs::exists(folder / "run/.lock"));
  first.reset();
  CHECK_NOTHROW(RunFolder(folder / "run"));

  // A killed run leaves the file, but no lock.
  fs::create_directory(folder / "killed");
  const pid_t child = fork();
  if (child == 0) {
    const RunFolder its(folder / "killed");
    kill(getpid(), SIGKILL);
  }
  waitpid(child, nullptr, 0);
  CHECK(read_file(folder / "killed/.lock").starts_with("pid " + std::to_string(child) + " on "));
  CHECK_NOTHROW(RunFolder(folder / "killed"));
  CHECK(fs::is_empty(folder / "killed"));
}

TEST_CASE("a lock holds even if its text cannot be written, as on a full disk") {
  const TempFolder folder;
  fs::create_directory(folder / "run");
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit none = {0, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &none) == 0);
  std::optional<RunFolder> run;
  CHECK_NOTHROW(run.emplace(folder / "run"));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  REQUIRE(run);
  CHECK(run->is_claimed());
  CHECK(refusal(folder / "run") == (folder / "run") +
                                       ": another run saves its checkpoints there; wait until it ends, or "
                                       "give this one another --save-file");
}

TEST_CASE("the best checkpoint is replaced at once, or not at all") {
  const TempFolder folder;
  for (const int epoch : {1, 2}) write_empty_checkpoint(folder.path(), epoch);
  const std::string best = folder / kBestFile, first = folder / "1.1.safetensors",
                    second = folder / "2.1.safetensors";
  const auto keep = [&](const std::string& checkpoint) {
    CHECK(keep_as_best(folder.path(), checkpoint).empty());
    CHECK(read_file(best) == read_file(checkpoint));
    CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 3);
  };
  keep(first);
  keep(first);  // both names are links to one file
  keep(second);
  keep(best);
  // There are no links between file systems.
  const std::string elsewhere = "/dev/shm/convnet-test-" + std::to_string(getpid()) + ".safetensors";
  std::error_code none;
  if (!fs::copy_file(first, elsewhere, none)) return;
  keep(elsewhere);
  fs::remove(elsewhere);
}

TEST_CASE("the folder of a checkpoint that is named without one is the current folder") {
  CHECK(folder_of("1.1.safetensors") == ".");
  CHECK(folder_of("run/1.1.safetensors") == "run");
  CHECK(folder_of("/1.1.safetensors") == "/");
}

TEST_CASE("a checkpoint that could not be read again is not written") {
  const TempFolder folder;
  write_empty_checkpoint(folder.path(), 1);
  const auto refused = [&](const std::function<void(Checkpoint&)>& change) {
    Checkpoint checkpoint;
    checkpoint.state.position = {2, 1};
    change(checkpoint);
    const std::string message = message_of<RunError>([&] { write_checkpoint(folder.path(), checkpoint, 1); });
    INFO(message);
    CHECK(message.find("cannot be saved") != std::string::npos);
    CHECK(message.find(folder / "2.1.safetensors") != std::string::npos);
    CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1);
  };
  refused([](Checkpoint& c) {
    c.tensors.tensors["fc1.weightsSqr.data"] = {{2}, {1, std::numeric_limits<float>::infinity()}};
  });
  refused([](Checkpoint& c) { c.state.best = {std::nan(""), 1, 1}; });
  refused([](Checkpoint& c) { c.state.plateau.changes = {{1, 1, 0.0}}; });
  refused([](Checkpoint& c) {
    c.matrices = {{.name = "labels", .dims = {1}, .type = DataType::s32, .classes = 3}};
  });
  CHECK(read_checkpoint(folder.path()).state.position == Position{1, 1});
}

TEST_CASE("a run's folder that somebody has removed is claimed again") {
  const TempFolder folder;
  const std::string path = folder / "run";
  RunFolder run(path);
  CHECK(run.is_claimed());
  CHECK(run.reclaim().empty());
  fs::remove_all(path);
  CHECK_FALSE(run.is_claimed());
  CHECK(run.reclaim() ==
        path +
            " was removed or renamed while this run trained; it is made again for what is saved from now on");
  CHECK(run.is_claimed());
  CHECK(refusal(path).starts_with(path + ": another run saves its checkpoints there"));
  // Only its lock.
  fs::remove(path + "/.lock");
  CHECK(run.reclaim().empty());
  CHECK(refusal(path).starts_with(path + ": another run saves its checkpoints there"));
}

TEST_CASE("a run whose folder was replaced by a file goes on in a folder beside it") {
  const TempFolder folder;
  const std::string path = folder / "run";
  RunFolder run(path);
  fs::rename(path, folder / "moved");
  write_file(path, "a note");
  CHECK(run.reclaim() ==
        path + " was removed or renamed while this run trained, and cannot be claimed again (a file " +
            "has that name now); from now on this run saves in " + path + "_2");
  CHECK(run.path() == path + "_2");
  CHECK(run.is_claimed());
  CHECK(read_file(path) == "a note");
  CHECK(run.reclaim().empty());
}

TEST_CASE("a run whose folder was removed and claimed by another one goes on in a folder beside it") {
  const TempFolder folder;
  const std::string path = folder / "run";
  RunFolder run(path);
  fs::rename(path, folder / "moved");
  const RunFolder other(path);
  const std::string said = run.reclaim();
  CHECK(said.starts_with(path +
                         " was removed or renamed while this run trained, and cannot be claimed again ("));
  CHECK(said.ends_with("); from now on this run saves in " + path + "_2"));
  CHECK(run.path() == path + "_2");
  CHECK(run.is_claimed());
  CHECK(other.is_claimed());
}

TEST_CASE("new folders of equal names get numbers") {
  const TempFolder folder;
  std::vector<std::unique_ptr<RunFolder>> runs;
  for (int i = 0; i < 3; ++i)
    runs.push_back(std::make_unique<RunFolder>(folder / "runs/now", RunFolder::Name::numbered));
  CHECK(runs[0]->path() == folder / "runs/now");
  CHECK(runs[1]->path() == folder / "runs/now_2");
  CHECK(runs[2]->path() == folder / "runs/now_3");
  for (const auto& run : runs) CHECK(fs::exists(run->path() + "/.lock"));
}

TEST_CASE("places where no folder can be are refused") {
  const TempFolder folder;
  write_file(folder / "file", "");
  CHECK(refusal(folder / "file/run").starts_with((folder / "file") + ": is not a folder"));
  fs::create_symlink(folder / "gone", folder / "link");
  CHECK(refusal(folder / "link") == (folder / "link") + ": is a link to " + (folder / "gone") +
                                        ", which is not there; checkpoints are to be saved in " +
                                        (folder / "link"));
  // It cannot be made as root, and not even written to otherwise.
  CHECK(refusal("/proc/convnet-run").starts_with("/proc"));
  const std::string endless = folder / std::string(300, 'n');
  CHECK(refusal(endless).find("File name too long") != std::string::npos);
  CHECK_NOTHROW(RunFolder(folder / std::string(250, 'n')));
}

TEST_CASE("a lock whose file has another name elsewhere leaves the file of that name as it is") {
  const TempFolder folder;
  write_file(folder / "other", "precious");
  fs::create_directory(folder / "run");
  fs::create_hard_link(folder / "other", folder / "run/.lock");
  const RunFolder run(folder / "run");
  CHECK(run.is_claimed());
  CHECK(read_file(folder / "other") == "precious");
  CHECK(read_file(folder / "run/.lock").starts_with("pid "));
}

TEST_CASE("what killed writers left in a folder is removed, and nothing else") {
  const TempFolder folder;
  const std::vector<std::string> stay = {"1.1.safetensors", "notes.tmp-12", "1.1.safetensors.tmp-x"};
  for (const std::string& name : stay) write_file(folder / name, "");
  for (const std::string& pid : {std::to_string(getpid()), std::string("999999999")}) {
    write_file(folder / ("1.2.safetensors.tmp-" + pid), "half");  // of an older version
    write_file(folder / ("best.safetensors.tmp-" + pid), "half");
  }
  write_file(folder / "best.safetensors.new", "linked");
  write_file(folder / "1.2.safetensors.convnet-tmp-1", "half");
  { const RunFolder run(folder.path()); }
  for (const std::string& name : stay) CHECK(fs::exists(folder / name));
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 3);
}

TEST_CASE("checkpoints after the one that a run goes on from are moved aside") {
  const TempFolder folder;
  for (const int epoch : {1, 2, 3}) write_empty_checkpoint(folder.path(), epoch);
  CHECK(move_later_checkpoints(folder.path(), {3, 1}).folder.empty());
  for (const std::string name : {"abandoned-after-1.1", "abandoned-after-1.1_2"}) {
    const Abandoned moved = move_later_checkpoints(folder.path(), {1, 1});
    CHECK(moved.folder == folder / name);
    CHECK(moved.checkpoints == 2);
    for (const int epoch : {2, 3}) {
      CHECK(fs::exists(folder / (name + "/" + Position{epoch, 1}.file_name())));
      write_empty_checkpoint(folder.path(), epoch);
    }
  }
  CHECK(read_checkpoint(folder / "abandoned-after-1.1").state.position == Position{3, 1});
}

TEST_CASE("a damaged checkpoint names the newest sound one before it") {
  const TempFolder folder;
  for (const int epoch : {1, 2, 3, 4}) write_empty_checkpoint(folder.path(), epoch);
  for (const int epoch : {3, 4}) {
    const std::string file = folder / Position{epoch, 1}.file_name();
    const std::string bytes = read_file(file);
    write_file(file, bytes.substr(0, bytes.size() - 20));
  }
  const std::string sound =
      "\nthe checkpoint before it can be read; name that one: " + (folder / "2.1.safetensors");
  for (const std::string& name : {folder.path(), folder / "4.1.safetensors"}) {
    const std::string message = message_of<InputError>([&] { read_checkpoint(name); });
    INFO(message);
    CHECK(message.starts_with(folder / "4.1.safetensors: truncated"));
    CHECK(message.ends_with(sound));
  }
  CHECK(read_checkpoint(folder / "2.1.safetensors").state.position == Position{2, 1});
  fs::rename(folder / "4.1.safetensors", folder / "0.1.safetensors");
  CHECK(message_of<InputError>([&] { read_checkpoint(folder / "0.1.safetensors"); }).find('\n') ==
        std::string::npos);
}

TEST_CASE("on a full disk the oldest checkpoints make room, but never the newest that can be read") {
  const TempFolder folder;
  const auto fill = [&] {
    for (int epoch = 1; epoch <= 4; ++epoch) write_empty_checkpoint(folder.path(), epoch);
    write_file(folder / "4.1.safetensors", "damaged");
    write_file(folder / "best.safetensors", "");
  };
  const auto save_if = [&](bool (*has_room)(const std::string&)) {
    return save_making_room(folder.path(), "5.1.safetensors", [&, has_room] {
      if (!has_room(folder.path())) throw DiskFullError("5.1.safetensors: no space");
    });
  };
  const auto there = [&](const std::string& name) { return fs::exists(folder / (name + ".safetensors")); };
  fill();
  CHECK(save_if([](const std::string&) { return true; }).empty());
  CHECK((there("1.1") && there("2.1") && there("3.1")));

  const std::string warning =
      save_if([](const std::string& in) { return !fs::exists(in + "/1.1.safetensors"); });
  CHECK(warning == "the disk is full: there was room for " + (folder / "5.1.safetensors") +
                       " only after older checkpoints, which --keep would have kept, were removed: "
                       "1.1.safetensors");
  CHECK((!there("1.1") && there("2.1") && there("3.1") && there("4.1") && there("best")));

  fill();
  const std::string error = message_of<RunError>([&] { save_if([](const std::string&) { return false; }); });
  CHECK(error ==
        "5.1.safetensors: no space\nthe newest checkpoint that is left is " + (folder / "3.1.safetensors"));
  CHECK((!there("1.1") && !there("2.1") && there("3.1") && there("4.1") && there("best")));
}

TEST_CASE("each of 150 bits that flip in a checkpoint is found") {
  const TempFolder folder;
  Checkpoint checkpoint;
  checkpoint.tensors.tensors["conv1.weights.data"] = {{40, 25}, std::vector<float>(1000, 0.5F)};
  checkpoint.options = {{"mini", "128"}, {"epochs", "10"}};
  checkpoint.definition_text = "[conv1]\ntype=conv # größe\n";
  HistoryEntry entry;
  entry.costs = {128, {{"logprob", {1.5, 2, 3}}}};
  for (int i = 0; i < 30; ++i) checkpoint.state.history.push_back(entry);
  write_checkpoint(folder.path(), checkpoint, 1);
  const std::string bytes = read_file(checkpoint.file);
  for (std::size_t i = 0; i < 150; ++i) {
    const std::size_t at = i * (bytes.size() - 1) / 149;
    std::string flipped = bytes;
    flipped[at] = static_cast<char>(flipped[at] ^ static_cast<char>(1U << i % 8));
    write_file(checkpoint.file, flipped);
    INFO("byte " << at);
    CHECK_THROWS_AS(read_checkpoint(folder.path()), InputError);
  }
  write_file(checkpoint.file, bytes);
  CHECK(read_checkpoint(folder.path()).definition_text == checkpoint.definition_text);
}
