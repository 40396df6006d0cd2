// Texts as people write them, and files of other kinds.
#include "convnet/base/text_file.h"

#include "convnet/base/error.h"
#include "convnet/base/file_format.h"
#include "tests/catch.h"
#include "tests/temp_folder.h"

using namespace std::string_literals;

namespace convnet {
namespace {

std::string text(const std::string& bytes, NotUtf8 rule = NotUtf8::is_latin1) {
  return text_of("t.txt", bytes, rule);
}
std::string error_of(const std::string& bytes, NotUtf8 rule = NotUtf8::is_latin1) {
  return message_of<InputError>([&] { text_of("t.txt", bytes, rule); });
}

/// The name that a file with these first bytes gets, or "".
std::string format_of(const std::string& first) {
  const FileFormat* format = find_format(first);
  return format == nullptr ? "" : format->name;
}

}  // namespace

TEST_CASE("texts lose their byte order mark and the line ends of Windows", "[text]") {
  CHECK(text("") == "");
  CHECK(text("\xEF\xBB\xBF"
             "a\r\nb\n\rc\r") == "a\nb\n\rc\r");
  CHECK(text("\r\n\r\n") == "\n\n");
  CHECK(text("b\xC3\xA4r", NotUtf8::is_error) == "b\xC3\xA4r");
  CHECK(text("b\xE4r") == "b\xC3\xA4r");
}

TEST_CASE("what is no text is named with its line", "[text]") {
  CHECK(error_of("a\nb\0c"s) == "t.txt:2: holds a NUL byte; this is not a text file");
  CHECK(error_of("a\n\nb\xE4r", NotUtf8::is_error) ==
        "t.txt:3: holds bytes that are no UTF-8 (perhaps Latin-1); save it in UTF-8");
  for (const std::string mark : {"\xFF\xFE", "\xFE\xFF"})
    CHECK(error_of(mark + "a\0"s) == "t.txt: is a text in UTF-16; save it in UTF-8");
  CHECK(error_of("\x89PNG\r\n\x1a\n\0\0\0\rIHDR"s) == "t.txt: is a PNG, not a text file");
  CHECK(error_of("PK\3\4\24\0"s) == "t.txt: is a zip archive, not a text file; unpack it with unzip");
  // A text may begin like a format.
  CHECK(text("BZh, a word\n") == "BZh, a word\n");
  CHECK(text("P1 and P2\n") == "P1 and P2\n");
}

TEST_CASE("lists of names have no blank lines and no blanks at the ends of lines", "[text]") {
  const TempFolder folder;
  write_file(folder / "names.txt",
             "\xEF\xBB\xBF"
             "big dog \r\n\n\t\n cat\r\nlast");
  CHECK(read_names(folder / "names.txt") == std::vector<std::string>{"big dog", " cat", "last"});
  write_file(folder / "names.txt", "\n\n");
  CHECK(read_names(folder / "names.txt").empty());
  CHECK(message_of<InputError>([&] { read_names(folder.path()); }).find("is a folder") != std::string::npos);
}

TEST_CASE("files without an end are read as far as they may be long", "[text]") {
  CHECK(read_bytes("/dev/zero", 5000).size() == 5001);
  CHECK(message_of<InputError>([] { read_bytes("/no/such/file", 10); }) ==
        "/no/such/file: cannot be read: No such file or directory");
}

TEST_CASE("formats are recognised by their first bytes", "[text]") {
  const auto at = [](std::size_t offset, const std::string& bytes) {
    return std::string(offset, '\1') + bytes;
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\x1f\x8b\x08", "compressed by gzip"},
      {"\xfd"
       "7zXZ\0"s,
       "compressed by xz"},
      {"\x28\xb5\x2f\xfd", "compressed by Zstandard"},
      {"BZh91AY", "compressed by bzip2"},
      {"7z\xbc\xaf\x27\x1c", "a 7z archive"},
      {"Rar!\x1a\x07\x01", "a RAR archive"},
      {at(257,
          "ustar\0"
          "00"s),
       "a tar"},
      {"PK\3\4" + at(26, "photos/1.jpg"), "a zip archive"},
      {"PK\3\4" + at(26, "archive/data.pkl"), "a zip archive, as torch.save (.pth) writes"},
      {"PK\3\4" + at(26, "metadata.json"), "a Keras model"},
      {"PK\3\4" + at(26, "images.npy"), "a zip archive of NumPy arrays (.npz)"},
      {"PK\3\4" + at(26, "[Content_Types].xml"), "an Office document"},
      {"\xff\xd8\xff\xe0", "a JPEG"},
      {"\x89PNG\r\n\x1a\n", "a PNG"},
      {"BM" + std::string(30, '\0'), "a BMP"},
      {"RIFF\4\0\0\0WEBPVP8 "s, "a WebP picture"},
      {"GIF89a", "a GIF picture"},
      {"II*\0"s, "a TIFF picture"},
      {"MM\0*"s, "a TIFF picture"},
      {at(4, "ftypavif"), "an AVIF picture"},
      {at(4, "ftypheic"), "a HEIC picture"},
      {at(4, "ftypmif1"), "a HEIC picture"},
      {"P6\n3 3\n255\n", "a PBM, PGM or PPM picture"},
      {at(128, "DICM"), "a DICOM picture"},
      {"\x93NUMPY\1\0"s, "a NumPy array (.npy)"},
      {"\x89HDF\r\n\x1a\n", "an HDF5 file"},
      {at(16, "\xde\xc0\xef\xbe"), "an LMDB database"},
      {"PAR1", "a Parquet file"},
      {"\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", "an old file of torch.save (.pth)"},
      {"\x80\x04\x95\x10", "a pickle"},
      {"(dp0\nS'data'\n", "a pickle"},
      {"\x08\x07\x12\x07pytorch", "an ONNX model"},
      {"\x0a\x05"
       "LeNet\xa2\x06\x10"
       "conv1",
       "a Caffe model"},
      {"\x40\0\0\0\0\0\0\0{\"a\""s, "a safetensors file"},
      // The length of a record and its checksum, as TensorFlow writes them.
      {"\x1a\0\0\0\0\0\0\0\x12\x9b\xd8\x2d\x0a\x18"s, "a TFRecord file"},
      {"\n<!doctype HTML><html>", "a web page"},
      {"<?xml version=\"1.0\"?>", "an XML file"},
      {"version https://git-lfs.github.com/spec/v1\noid", "a pointer of Git LFS, not the file itself"},
      {"", ""},
      {"[conv1]\ntype=conv\n", ""},
      {"id,breed\n", ""},
      {std::string(600, '\0'), ""},
      {"{\"name\": \"machine\"}", ""}};
  for (const auto& [first, name] : cases) {
    INFO(name);
    CHECK(format_of(first) == name);
  }
  CHECK(other_format_text("GIF89a", "a tar", "is odd") ==
        "is a GIF picture, not a tar; convert it to JPEG or PNG");
  CHECK(other_format_text("text", "a tar", "is odd") == "is odd");
  // A damaged file is not said to be another than itself.
  CHECK(other_format_text(at(257, "ustar"), "a tar", "is odd") == "is odd");
}

}  // namespace convnet
