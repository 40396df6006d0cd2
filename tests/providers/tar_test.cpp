// Tars that Python wrote (tests/providers/make_tars.py), and damaged ones.
#include "providers/tar.h"

#include <map>

#include "convnet/base/error.h"
#include "tests/catch.h"
#include "tests/providers/tar_writer.h"
#include "tests/temp_folder.h"

using namespace convnet;

namespace {

using namespace tars;
using namespace std::string_literals;

struct Tar {
  std::vector<std::string> names;
  std::map<std::string, std::string> contents;
};

Tar read_tar_file(const InputFile& file, FileRegion region) {
  Tar tar;
  for (const TarMember& member : index_tar(file, region)) {
    tar.names.push_back(member.name);
    tar.contents[member.name] = file.read(member.at.offset, member.at.size);
  }
  return tar;
}

Tar read_tar_file(const std::string& path) {
  const InputFile file(path);
  return read_tar_file(file, {0, file.size()});
}

Tar read_bytes(const std::string& bytes) {
  const TempFolder folder;
  write_file(folder / "t.tar", bytes);
  return read_tar_file(folder / "t.tar");
}

std::string tar_error_of(const std::string& bytes) {
  const std::string message = message_of<InputError>([&] { read_bytes(bytes); });
  return message.substr(std::min(message.size(), message.find("t.tar")));
}

}  // namespace

TEST_CASE("tars of every form hold the same", "[tar]") {
  const std::string deep = std::string(90, 'd') + "/" + std::string(60, 'f');
  for (const std::string form : {"ustar", "gnu", "pax"}) {
    CAPTURE(form);
    const std::string path = std::string(CONVNET_SOURCE_DIR) + "/tests/providers/data/" + form + ".tar";
    const Tar tar = read_tar_file(path);
    std::vector<std::string> names = {"images/a.txt", "empty", deep};
    if (form != "ustar") {
      names.push_back(std::string(300, 'n'));
      names.emplace_back("images/\xc3\xa4.txt");
      CHECK(tar.contents.at(names[3]) == "long");
      CHECK(tar.contents.at(names[4]) == "umlaut");
    }
    names.emplace_back("nested.tar");
    CHECK(tar.names == names);
    CHECK(tar.contents.at("images/a.txt") == "first");
    CHECK(tar.contents.at("empty").empty());
    CHECK(tar.contents.at(deep) == std::string(700, 'x'));

    const InputFile file(path);
    const Tar inner = read_tar_file(file, index_tar(file).back().at);
    CHECK(inner.names == std::vector<std::string>{"inner"});
    CHECK(inner.contents.at("inner") == "within");
  }
}

TEST_CASE("tars: old forms", "[tar]") {
  // Version 7: no magic, a NUL for a type, directories by their slash; sizes end with a blank.
  std::string old = header("a", "       1 ", '\0');
  old.replace(257, 8, 8, '\0');
  seal(old);
  CHECK(read_bytes(old + "A" + std::string(511, '\0') + member("d/", "", '\0') + end()).contents ==
        std::map<std::string, std::string>{{"a", "A"}});
  // A binary size, as of files above 8 GiB.
  const std::string binary = header("b", "\x80"s + std::string(10, '\0') + "\x02");
  CHECK(read_bytes(binary + "BB" + std::string(510, '\0') + end()).contents.at("b") == "BB");
  // A sum of signed bytes.
  std::string with_sign = header("\xff", octal(0, 11));
  with_sign.replace(148, 8, 8, ' ');
  int sum = 0;
  for (const char c : with_sign) sum += static_cast<signed char>(c);
  with_sign.replace(148, 8, octal(static_cast<unsigned int>(sum), 6) + "\0 "s);
  CHECK(read_bytes(with_sign + end()).names == std::vector<std::string>{"\xff"});
  // Several archives in one file; one block of zeros is enough at the end.
  CHECK(read_bytes(member("a", "1") + end() + member("b", "2") + std::string(512, '\0')).names ==
        std::vector<std::string>{"a", "b"});
  // The size of a pax record counts, and so does the name.
  CHECK(read_bytes(member("x", pax_record("path", "long") + pax_record("size", "3"), 'x') +
                   header("short", octal(0, 11)) + "abc" + std::string(509, '\0') + end())
            .contents == std::map<std::string, std::string>{{"long", "abc"}});
}

TEST_CASE("tars: errors say where and what", "[tar]") {
  CHECK(tar_error_of("") == "t.tar: byte 0: is empty");
  CHECK(tar_error_of("no tar") == "t.tar: byte 0: the tar ends within a header");
  CHECK(tar_error_of(std::string(512, 'x')) == "t.tar: byte 0: is no tar header: its checksum is wrong");
  const std::string gzip_text = "t.tar: is compressed by gzip, not a tar; unpack it with gunzip";
  CHECK(tar_error_of("\x1f\x8b\x08"s) == gzip_text);
  CHECK(tar_error_of("\x1f\x8b\x08"s + std::string(2000, 'x')) == gzip_text);
  CHECK(tar_error_of("PK\3\4"s + std::string(600, ' ')) ==
        "t.tar: is a zip archive, not a tar; unpack it with unzip");
  std::string damaged = member("a", "data");
  damaged[0] = 'b';
  CHECK(tar_error_of(damaged) == "t.tar: byte 0: is no tar header: its checksum is wrong");
  const std::string a = member("a", "data");
  CHECK(tar_error_of(a) == "t.tar: byte 1024: the tar ends without the zeros that end one: it was cut off");
  CHECK(tar_error_of(a + "more") == "t.tar: byte 1024: the tar ends within a header");
  CHECK(tar_error_of(a.substr(0, 600) + std::string(500, 'x') + end()) ==
        "t.tar: byte 1024: is no tar header: its checksum is wrong");
  CHECK(tar_error_of(a + header("big", octal(5000, 11)) + end()) ==
        "t.tar: byte 1024: 'big' has 5000 bytes, but the tar ends after 1024");
  CHECK(tar_error_of(header("huge", "\x80\0\0\0\x7f"s + std::string(7, '\xff')) + end()) ==
        "t.tar: byte 0: 'huge' has 9223372036854775807 bytes, but the tar ends after 1024");
  CHECK(tar_error_of(header("over", "\xff"s + std::string(11, '\xff')) + end()) ==
        "t.tar: byte 0: a size of '\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff'");
  CHECK(tar_error_of(header("odd", "00000000009") + end()) == "t.tar: byte 0: a size of '00000000009\\x00'");
  CHECK(tar_error_of(member("", "x") + end()) == "t.tar: byte 0: a file without a name");
  CHECK(tar_error_of(member("l", "", '2') + end()) ==
        "t.tar: byte 0: 'l' is a link; tar --dereference --hard-dereference writes the files themselves");
  CHECK(tar_error_of(member("s", "", 'S') + end()) ==
        "t.tar: byte 0: 's' is of type 'S'; only files and directories can be read");
}

TEST_CASE("tars: damaged extension headers", "[tar]") {
  CHECK(tar_error_of(header("x", octal(2U << 20, 11), 'x') + end()) ==
        "t.tar: byte 0: a header of 2097152 bytes about a member; 1048576 are allowed");
  CHECK(tar_error_of(header("L", octal(4096, 11), 'L') + end()) ==
        "t.tar: byte 0: '(a header about a member)' has 4096 bytes, but the tar ends after 1024");
  CHECK(tar_error_of(member("L", "\0"s, 'L') + end()) == "t.tar: byte 0: a long name that is empty");
  CHECK(tar_error_of(member("L", "name", 'L') + end()) ==
        "t.tar: byte 2048: the tar ends after a header about a member to come");
  for (const std::string& damaged : {"x"s, "99 path=a\n"s, "0 path=a\n"s, "10 path=a"s, "8 path=a\n"s,
                                     "3 \n"s, "-9 path=a\n"s, "99999999999999999999 path=a\n"s, "2 "s})
    CHECK(tar_error_of(member("x", damaged, 'x') + end()).find("a damaged pax record") != std::string::npos);
  CHECK(tar_error_of(member("x", "7 none\n", 'x') + end()) ==
        "t.tar: byte 0: a pax record without '=': 'none'");
  CHECK(tar_error_of(member("x", pax_record("size", "12x"), 'x') + end()) ==
        "t.tar: byte 0: a pax record with a size of '12x'");
  CHECK(tar_error_of(member("x", pax_record("size", "9223372036854775807"), 'x') + end()) ==
        "t.tar: byte 0: a pax record with a size of '9223372036854775807'");
  CHECK(tar_error_of(member("x", pax_record("path", "a\0b"s), 'x') + end()) ==
        "t.tar: byte 0: a name with a NUL: 'a\\x00b'");
  CHECK(tar_error_of(member("g", pax_record("path", "a"), 'g') + end()) ==
        "t.tar: byte 0: a pax record that gives all members the same path");
  CHECK(tar_error_of(member("x", pax_record("GNU.sparse.major", "1"), 'x') + end()) ==
        "t.tar: byte 0: a sparse file; tar without --sparse writes it whole");
}

TEST_CASE("tars: a region beyond the file", "[tar]") {
  const TempFolder folder;
  write_file(folder / "t.tar", member("a", "data") + end());
  const InputFile file(folder / "t.tar");
  CHECK(message_of<InputError>([&] {
          index_tar(file, {1024, 4096});
        }).ends_with("are beyond its end at 2048"));
  CHECK_THROWS_AS(file.read(2000, 49), InputError);
  CHECK(file.read(2000, 48).size() == 48);
  CHECK_THROWS_AS(InputFile(folder / "none"), InputError);
  CHECK_THROWS_AS(InputFile(folder.path()), InputError);
}
