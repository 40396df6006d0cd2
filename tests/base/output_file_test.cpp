// Output files: what is replaced, what is written to, and what is refused.
#include "convnet/base/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <optional>

#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "tests/catch.h"
#include "tests/temp_folder.h"

using namespace convnet;
namespace fs = std::filesystem;

namespace {

std::size_t files_in(const std::string& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {}));
}

std::string error_of(const std::string& path) {
  return message_of<RunError>([&] { write_whole_file(path, "new"); });
}

}  // namespace

TEST_CASE("a path that is not there yet lies where it will be made") {
  const std::string here = fs::current_path().string();
  for (const char* path : {"not-there", "not-there/yet", "./not-there"}) {
    CHECK(lies_in(path, "."));
    CHECK(lies_in(path, here));
    CHECK_FALSE(lies_in(std::string("../") + path, "."));
  }
  CHECK(lies_in(here + "/not-there", "."));
}

TEST_CASE("an output file replaces a file, and only when it is whole") {
  const TempFolder folder;
  const std::string path = folder / "file";
  write_file(path, "old");
  {
    OutputFile file(path);
    file.write("half");
    CHECK(read_file(path) == "old");
  }
  CHECK(read_file(path) == "old");
  write_whole_file(path, "new");
  CHECK(read_file(path) == "new");
  CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("an output file needs its folder, unless the command makes that") {
  const TempFolder folder;
  const std::string path = folder / "a/b/file";
  OutputOption output = {"--out", path, "text is to be written to"};
  CHECK(message_of<InputError>([&] { check_outputs({output}, {}); }) ==
        (folder / "a/b") + ": no such folder; text is to be written to " + path +
            "; a folder is made by mkdir -p " + (folder / "a/b"));
  output.made_folders = {"", folder / "a"};
  CHECK_THROWS_AS(check_outputs({output}, {}), InputError);
  output.made_folders = {folder / "a/../a/b"};
  check_outputs({output}, {});
  CHECK(files_in(folder.path()) == 0);
  make_folders(folder / "a/b");
  check_outputs({{"--out", path, "text is to be written to"}}, {});
  write_whole_file(path, "text");
  CHECK(read_file(path) == "text");
}

TEST_CASE("files that a command reads, or writes already, are refused as its output") {
  const TempFolder folder;
  const std::string input = folder / "net.cfg", link = folder / "link", output = folder / "page";
  write_file(input, "text");
  fs::create_symlink("net.cfg", link);
  const auto refused = [&](const std::vector<OutputOption>& outputs) {
    return message_of<InputError>([&] { check_outputs(outputs, {"", folder / "none", input}); });
  };
  CHECK(refused({{"--out", input, ""}}) ==
        "--out " + input + ": is a file that the command reads; name another file");
  CHECK(refused({{"--html", "", ""}, {"--out", link, ""}}) ==
        "--out " + link + ": is a file that the command reads; name another file");
  CHECK(refused({{"--html", output, ""}, {"--out", folder / "./page", ""}}) ==
        "--html and --out name the same file, " + (folder / "./page"));
  CHECK_NOTHROW(check_outputs({{"--html", output, ""}, {"--out", output + "2", ""}}, {input}));
  // A file of the data set, say, is no page; a page is, and so is an empty file.
  write_file(output, "labels");
  const OutputOption page = {"--html", output, "", "<!DOCTYPE"};
  CHECK(refused({page}) ==
        "--html " + output +
            ": there is another kind of file of that name, or one of another program or that was edited; "
            "remove it or name another file");
  for (const char* const text : {"<!DOCTYPE html>", ""}) {
    write_file(output, text);
    CHECK_NOTHROW(check_outputs({page}, {}));
  }
  // Devices are not replaced.
  CHECK_NOTHROW(check_outputs({{"--html", "/dev/null", ""}, {"--out", "/dev/null", ""}}, {"/dev/null"}));
}

TEST_CASE("an output file goes through a pipe and leaves the pipe") {
  const TempFolder folder;
  const std::string pipe = folder / "pipe", link = folder / "link";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  fs::create_symlink("pipe", link);
  const std::string text(100'000, 'x');
  for (const std::string& path : {pipe, link}) {
    auto reader = std::async(std::launch::async, [&] { return read_file(pipe); });
    // Asking beforehand whether it can be written does not look like the end of the file to the reader.
    OutputFile{path};
    CHECK_NOTHROW(check_file_writable(path, "text is to be written to"));
    write_whole_file(path, text);
    CHECK(reader.get() == text);
  }
  CHECK(fs::is_fifo(pipe));
  CHECK(fs::is_symlink(link));
  CHECK(files_in(folder.path()) == 2);
}

TEST_CASE("an output file is written to a device, which stays one") {
  const TempFolder folder;
  const std::string link = folder / "link";
  fs::create_symlink("/dev/null", link);
  for (const std::string& path : {link, std::string("/dev/null")}) {
    CHECK_NOTHROW(check_file_writable(path, "text is to be written to"));
    write_whole_file(path, "text");
  }
  CHECK(fs::is_symlink(link));
  CHECK(fs::is_character_file("/dev/null"));
  CHECK(error_of("/dev/full") == "/dev/full: cannot be written: No space left on device");
  CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("an output file is written where a link leads") {
  const TempFolder folder;
  fs::create_directory(folder / "elsewhere");
  fs::create_symlink("elsewhere/file", folder / "relative");
  fs::create_symlink(folder / "relative", folder / "absolute");
  // There is no such file yet, then there is one.
  for (const std::string text : {"first", "second"}) {
    write_whole_file(folder / "absolute", text);
    CHECK(read_file(folder / "elsewhere/file") == text);
  }
  CHECK(fs::is_symlink(folder / "absolute"));
  CHECK(fs::is_symlink(folder / "relative"));
  CHECK(files_in(folder / "elsewhere") == 1);
  fs::create_symlink("circle", folder / "circle");
  CHECK(error_of(folder / "circle") ==
        (folder / "circle") + ": cannot be written: Too many levels of symbolic links");
  fs::create_symlink("nowhere/file", folder / "dangling");
  CHECK(error_of(folder / "dangling") ==
        (folder / "dangling") + ": cannot be written: No such file or directory");
}

TEST_CASE("an output file is no folder and no socket") {
  const TempFolder folder;
  CHECK(error_of(folder.path()) == folder.path() + ": cannot be written: Is a directory");
  CHECK(message_of<InputError>([&] { check_file_writable(folder.path(), "text is to be written to"); }) ==
        folder.path() + ": is a folder, not a file; text is to be written to " + folder.path());
  const std::string path = folder / "socket";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  REQUIRE(path.size() < sizeof address.sun_path);
  std::copy(path.begin(), path.end(), address.sun_path);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  REQUIRE(bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  CHECK(error_of(path) ==
        path + ": cannot be written: it is neither a file nor a pipe nor a character device");
  CHECK(fs::is_socket(path));
  close(socket);
}

TEST_CASE("what has the name of a temporary file already stays as it is") {
  const TempFolder folder;
  const std::string other = folder / "other", path = folder / "file";
  write_file(other, "precious");
  const auto name = [&](int number) { return path + ".convnet-tmp-" + std::to_string(number); };
  fs::create_hard_link(other, name(1));
  fs::create_symlink("other", name(2));
  REQUIRE(mkfifo(name(3).c_str(), 0600) == 0);
  fs::create_directory(name(4));
  for (const std::string text : {"first", "second"}) {
    CHECK_NOTHROW(check_file_writable(path, "text is to be written to"));
    write_whole_file(path, text);
    CHECK(read_file(path) == text);
    CHECK(read_file(other) == "precious");
    CHECK(fs::hard_link_count(other) == 2);
    CHECK(fs::is_symlink(name(2)));
    CHECK(fs::is_fifo(name(3)));
    CHECK(files_in(folder.path()) == 6);
  }
  // Even if all names are taken that are tried first.
  for (int number = 5; number <= 20; ++number) fs::create_hard_link(other, name(number));
  write_whole_file(path, "third");
  CHECK(read_file(path) == "third");
  CHECK(files_in(folder.path()) == 22);
}

TEST_CASE("temporary files of killed writers are removed, and those of others are not") {
  const TempFolder folder;
  const std::string path = folder / "file";
  std::optional<OutputFile> alive(path);
  alive->write("alive");
  // Those of killed writers have no lock; these are left, whatever process has the number in their names.
  for (const char* number : {"2", "4", "8"}) write_file(path + ".convnet-tmp-" + number, "half");
  write_file(path + ".convnet-tmp-1x", "not ours");
  write_file(folder / "another.convnet-tmp-1", "of another file");
  const int locked = open((path + ".convnet-tmp-3").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  REQUIRE(flock(locked, LOCK_EX | LOCK_NB) == 0);
  write_whole_file(path, "new");
  CHECK(read_file(path) == "new");
  CHECK(files_in(folder.path()) == 5);  // with the two that are written
  alive->publish();
  CHECK(read_file(path) == "alive");
  close(locked);
  { const OutputFile next(path); }
  CHECK(files_in(folder.path()) == 3);
}

TEST_CASE("a pipe that nobody reads is named in an error") {
  const TempFolder folder;
  const std::string pipe = folder / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  OutputFile file(pipe, std::chrono::milliseconds(1));
  CHECK(message_of<RunError>([&] { file.write("text"); }) ==
        pipe + ": cannot be written: it is a pipe that nobody reads; start its reader first");
}

TEST_CASE("names of temporary files tell what they were to become") {
  CHECK(target_of_temporary("1.2.safetensors.convnet-tmp-7") == "1.2.safetensors");
  CHECK(target_of_temporary("1.2.safetensors.tmp-77") == "1.2.safetensors");  // of an older version
  CHECK(target_of_temporary("a.tmp-1.tmp-2") == "a.tmp-1");
  for (const char* other :
       {"1.2.safetensors", "a.convnet-tmp-", "a.convnet-tmp-1x", "a.tmp-", "a.tmp-1x", "a.tmp--1"})
    CHECK_FALSE(target_of_temporary(other));
}
