// Event files: records, messages.
#include "convnet/train/event_file.h"

#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <filesystem>

#include "convnet/base/error.h"
#include "tests/catch.h"
#include "tests/train/event_reader.h"

using namespace convnet;
using namespace convnet::test;

TEST_CASE("an event file holds a version, the start of a session and what was added") {
  const TempFolder folder;
  const std::string text(300, 'x');  // a length of two bytes
  std::string path;
  {
    EventFile file(folder / "new/runs", 41);
    file.scalar("cost/a b", 41, 0.125);
    file.scalar("cost/a b", std::int64_t{1} << 40, -1e-3);
    file.text("net", 42, text);
    file.image("filters/conv1", 43, 300, 2, std::string("png\0bytes", 9));
    file.flush();
    path = file.path();
    CHECK(read_events(path).size() == 6);
  }
  const std::vector<Event> events = read_events(path);
  REQUIRE(events.size() == 6);
  CHECK(events[0].version == "brain.Event:2");
  CHECK(events[1].start);
  CHECK(events[1].step == 41);
  CHECK(events[2].tag == "cost/a b");
  CHECK(events[2].step == 41);
  CHECK(events[2].scalar == 0.125F);
  CHECK(events[3].step == std::int64_t{1} << 40);
  CHECK(events[3].scalar == -1e-3F);
  CHECK(events[4].tag == "net");
  CHECK(events[4].text == text);
  CHECK(events[5].tag == "filters/conv1");
  CHECK(events[5].width == 300);
  CHECK(events[5].height == 2);
  CHECK(events[5].png == std::string("png\0bytes", 9));
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  for (const Event& event : events) CHECK(event.wall_time == Approx(now.count()).margin(60));
}

TEST_CASE("a later event file is read after those that are there") {
  const TempFolder folder;
  std::vector<std::string> paths;
  for (int i = 0; i < 3; ++i) paths.push_back(EventFile(folder.path(), 1).path());
  CHECK(paths[0] < paths[1]);
  CHECK(paths[1] < paths[2]);
  // One from a machine whose clock is ahead.
  write_file(folder / "events.out.tfevents.9000000000.elsewhere", "");
  CHECK(EventFile(folder.path(), 1).path() == folder / "events.out.tfevents.9000000001.convnet");
}

TEST_CASE("an event file that cannot be written is an error") {
  const TempFolder folder;
  write_file(folder / "file", "");
  CHECK_THROWS_AS(EventFile(folder / "file/runs", 1), RunError);
  // No file may have a byte for the moment.
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit none{0, before.rlim_max};
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &none) == 0);
  const std::string message = message_of<RunError>([&] { EventFile(folder.path(), 1); });
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, ignored);
  CHECK(message.find("cannot be written: File too large") != std::string::npos);
  CHECK_FALSE(has_event_files(folder.path()));
  // A folder has the name of the next file.
  std::filesystem::create_directory(folder / "events.out.tfevents.9999999999.convnet");
  write_file(folder / "events.out.tfevents.9999999998.convnet", "");
  CHECK(message_of<RunError>([&] { EventFile(folder.path(), 1); }) ==
        (folder / "events.out.tfevents.9999999999.convnet") + ": cannot be written: Is a directory");
}

TEST_CASE("a folder that cannot be listed is not taken for one without event files") {
  const TempFolder folder;
  CHECK_FALSE(has_event_files(folder.path()));
  CHECK_FALSE(has_event_files(folder / "none/deeper"));
  std::filesystem::create_symlink(folder / "b", folder / "a");
  std::filesystem::create_symlink(folder / "a", folder / "b");
  CHECK(message_of<RunError>([&] { has_event_files(folder / "a"); }) ==
        (folder / "a") + ": cannot be searched for event files: Too many levels of symbolic links");
  EventFile(folder.path(), 1);
  CHECK(has_event_files(folder.path()));
}
