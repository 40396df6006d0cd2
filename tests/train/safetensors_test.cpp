#include "convnet/checkpoint/safetensors.h"

#include <sys/resource.h>

#include <bit>
#include <csignal>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include "tests/catch.h"

#include "convnet/base/error.h"
#include "convnet/checkpoint/json_value.h"
#include "tests/temp_folder.h"

using namespace convnet;

namespace {

/// A file with this header and this many bytes of data.
std::string file_of(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t size = header.size();
  std::string bytes(sizeof size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  return bytes + header + std::string(data_bytes, '\0');
}

std::string error_of(const std::string& bytes) {
  return message_of<InputError>([&] { parse_safetensors("f", bytes); });
}

std::string tensor(const std::string& shape, const std::string& offsets,
                   const std::string& dtype = "\"F32\"") {
  return R"({"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

/// The error for a file of one tensor 'a' and 8 bytes of data.
std::string tensor_error(const std::string& shape, const std::string& offsets,
                         const std::string& dtype = "\"F32\"") {
  return error_of(file_of(R"({"a":)" + tensor(shape, offsets, dtype) + "}", 8));
}

TensorFile sample() {
  TensorFile file;
  std::vector<float> odd;
  for (std::uint32_t bits : {0x7fc00000U, 0x7f800001U, 0xffc12345U, 0x7f800000U, 0xff800000U, 0x00000001U,
                             0x807fffffU, 0x80000000U, 0x00000000U, 0x3f800000U, 0x7f7fffffU, 0x00800000U})
    odd.push_back(std::bit_cast<float>(bits));
  file.tensors["conv1.weights.0"] = {{2, 3, 2, 1}, odd};
  file.tensors["conv1.biases"] = {{2}, {1.5F, -2.25F}};
  file.tensors["empty"] = {{3, 0, 5}, {}};
  file.tensors["scalar"] = {{}, {3.0F}};
  file.metadata = {
      {"seed", "42"}, {"layerDef", "[conv1]\ntype=conv # \"größe\"\t\\"}, {"", std::string("\0x", 2)}};
  return file;
}

void check_same_bits(const TensorFile& a, const TensorFile& b) {
  CHECK(a.metadata == b.metadata);
  REQUIRE(a.tensors.size() == b.tensors.size());
  for (const auto& [name, tensor_a] : a.tensors) {
    CAPTURE(name);
    REQUIRE(b.tensors.count(name) == 1);
    const NamedTensor& tensor_b = b.tensors.at(name);
    CHECK(tensor_a.dims == tensor_b.dims);
    REQUIRE(tensor_a.values.size() == tensor_b.values.size());
    for (std::size_t i = 0; i < tensor_a.values.size(); ++i)
      CHECK(std::bit_cast<std::uint32_t>(tensor_a.values[i]) ==
            std::bit_cast<std::uint32_t>(tensor_b.values[i]));
  }
}

std::size_t files_in(const TempFolder& folder) {
  const std::filesystem::directory_iterator files(folder.path());
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

}  // namespace

TEST_CASE("texts of a checkpoint that are nested without end are refused before they take memory") {
  const std::string deep(1'000'000, '[');
  CHECK(message_of<InputError>([&] { JsonValue::parse(deep); }) == "it is nested in more than 100 levels");
  CHECK_NOTHROW(JsonValue::parse(std::string(100, '[') + std::string(100, ']')));
}

TEST_CASE("safetensors: all types of other programs are read, and floating-point ones become float32") {
  const auto file = [](const std::string& dtype, std::size_t size,
                       const std::vector<std::uint64_t>& elements) {
    const std::size_t bytes = size * elements.size();
    std::string text = file_of("{\"a\":" +
                                   tensor("[" + std::to_string(elements.size()) + "]",
                                          "[0," + std::to_string(bytes) + "]", '"' + dtype + '"') +
                                   "}",
                               bytes);
    for (std::size_t i = 0; i < elements.size(); ++i)
      std::memcpy(text.data() + text.size() - bytes + i * size, &elements[i], size);
    return text;
  };
  const auto values = [&](const std::string& dtype, std::size_t size, const std::vector<std::uint64_t>& of) {
    return parse_safetensors("f", file(dtype, size, of), Checksums::compare, TensorTypes::any)
        .tensors.at("a")
        .values;
  };
  CHECK(values("F16", 2, {0x3c00, 0xc000, 0x3555, 0x0001, 0x83ff, 0x0400, 0x7bff, 0x8000}) ==
        std::vector<float>{1, -2, 0.333251953125F, 0x1p-24F, -1023 * 0x1p-24F, 0x1p-14F, 65504, -0.0F});
  CHECK(values("F16", 2, {0x7c00, 0xfc00}) ==
        std::vector<float>{std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()});
  CHECK(std::isnan(values("F16", 2, {0x7e00})[0]));
  CHECK(values("BF16", 2, {0x3f80, 0xc040}) == std::vector<float>{1, -3});
  CHECK(values("F64", 8, {std::bit_cast<std::uint64_t>(0.1), std::bit_cast<std::uint64_t>(-7.5)}) ==
        std::vector<float>{0.1F, -7.5F});
  CHECK(values("F32", 4, {0x40200000}) == std::vector<float>{2.5F});
  for (const auto& [dtype, size] : std::vector<std::pair<std::string, std::size_t>>{{"I64", 8},
                                                                                    {"U64", 8},
                                                                                    {"I32", 4},
                                                                                    {"U32", 4},
                                                                                    {"I16", 2},
                                                                                    {"U16", 2},
                                                                                    {"I8", 1},
                                                                                    {"U8", 1},
                                                                                    {"BOOL", 1},
                                                                                    {"F8_E4M3", 1},
                                                                                    {"F8_E5M2", 1}}) {
    INFO(dtype);
    CHECK(parse_safetensors("f", file(dtype, size, {1, 2}), Checksums::compare, TensorTypes::any)
              .tensors.empty());
    CHECK_THROWS_AS(parse_safetensors("f", file(dtype, size, {1, 2})), InputError);
  }
  CHECK(message_of<InputError>([&] {
          parse_safetensors("f", file("F12", 2, {1}), Checksums::compare, TensorTypes::any);
        }) == "f: tensor 'a' has dtype 'F12'; the format has no such type");
}

TEST_CASE("safetensors keep every bit", "[train]") {
  const TempFolder folder;
  const std::string path = folder / "1.2.safetensors";
  write_safetensors(path, sample());
  CHECK(files_in(folder) == 1);
  check_same_bits(read_safetensors(path), sample());
  check_same_bits(parse_safetensors("memory", read_file(path)), sample());

  const std::string bytes = read_file(path);
  std::uint64_t header_size = 0;
  std::memcpy(&header_size, bytes.data(), sizeof header_size);
  CHECK(header_size % 8 == 0);
  const auto header = nlohmann::json::parse(bytes.substr(8, header_size));
  CHECK(header["conv1.weights.0"]["shape"] == nlohmann::json({2, 3, 2, 1}));
  CHECK(header["conv1.weights.0"]["data_offsets"] == nlohmann::json({8, 56}));  // after conv1.biases

  write_safetensors(folder / "again", read_safetensors(path));
  CHECK(read_file(folder / "again") == bytes);
}

TEST_CASE("safetensors of nothing", "[train]") {
  const TempFolder folder;
  write_safetensors(folder / "empty", {});
  // Nothing but its checksums.
  const std::string bytes = read_file(folder / "empty");
  CHECK_THAT(bytes.substr(8), Catch::StartsWith(R"({"__metadata__":{"checksum.metadata":")"));
  CHECK_THAT(bytes.substr(8), Catch::Contains(R"("checksum.tensors":"00000000"}})"));
  CHECK(read_safetensors(folder / "empty").tensors.empty());
}

TEST_CASE("Writing replaces a file, and fails without a trace", "[train]") {
  const TempFolder folder;
  const std::string path = folder / "ckpt";
  write_file(path, "older contents");

  SECTION("replace") {
    write_safetensors(path, sample());
    check_same_bits(read_safetensors(path), sample());
  }
  SECTION("no folder") {
    const std::string nowhere = folder / "no/ckpt";
    CHECK(message_of<RunError>([&] { write_safetensors(nowhere, sample()); }) ==
          nowhere + ": cannot be written: No such file or directory");
  }
  SECTION("the name is a folder's") {
    std::filesystem::create_directory(folder / "dir");
    CHECK(message_of<RunError>([&] { write_safetensors(folder / "dir", sample()); }) ==
          (folder / "dir") + ": cannot be written: Is a directory");
    CHECK(files_in(folder) == 2);
  }
  SECTION("the disk takes only a part") {
    // A limit on file sizes makes write() end short, then fail, as a full disk does.
    TensorFile large;
    large.tensors["a"] = {{100'000}, std::vector<float>(100'000, 1.0F)};
    rlimit before{};
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit tight{100'000, before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &tight) == 0);
    const std::string error = message_of<RunError>([&] { write_safetensors(path, large); });
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, old_handler);
    CHECK(error == path + ": cannot be written: File too large (ulimit -f says how large files may be)");
    CHECK(read_file(path) == "older contents");
    CHECK(files_in(folder) == 1);
  }
  SECTION("text that is not UTF-8") {
    TensorFile file = sample();
    file.metadata["layerDef"] =
        "gr\xf6\xdf"
        "e";
    CHECK(message_of<RunError>([&] { write_safetensors(path, file); }) ==
          path + ": cannot be written: a name or a metadata text is not UTF-8");
    CHECK(read_file(path) == "older contents");
  }
  SECTION("a header beyond the format's limit") {
    TensorFile file;
    file.metadata["history"] = std::string(100'000'001, 'x');
    CHECK_THAT(message_of<RunError>([&] { write_safetensors(path, file); }),
               Catch::StartsWith(path + ": cannot be written: the header would have 1000000") &&
                   Catch::EndsWith("bytes, the format allows 100000000"));
  }
  SECTION("our own mistakes") {
    TensorFile file;
    file.tensors["a"] = {{3}, {1.0F}};
    CHECK(message_of<std::logic_error>([&] { write_safetensors(path, file); }) ==
          path + ": tensor 'a' has a reserved name, or 1 values for shape 3");
    file.tensors = {{"__metadata__", {{1}, {1.0F}}}};
    CHECK(message_of<std::logic_error>([&] { write_safetensors(path, file); }) ==
          path + ": tensor '__metadata__' has a reserved name, or 1 values for shape 1");
  }
}

TEST_CASE("Files that cannot be opened", "[train]") {
  const TempFolder folder;
  CHECK(message_of<InputError>([&] { read_safetensors(folder / "none"); }) ==
        (folder / "none") + ": no such file");
  CHECK(message_of<InputError>([&] { read_safetensors(folder.path()); }) == folder.path() + ": not a file");
}

TEST_CASE("Headers that are not safetensors headers", "[train]") {
  CHECK(error_of("") == "f: it has 0 bytes; a safetensors file has at least 8");
  CHECK(error_of("1234567") == "f: it has 7 bytes; a safetensors file has at least 8");
  CHECK(error_of("[conv1]\ntype=conv\n") == "f: is a text file, not a safetensors file");
  CHECK(error_of(std::string(9, '\xff')) ==
        "f: not a safetensors file: a header of 18446744073709551615 bytes; at most 100000000 are allowed");
  CHECK(error_of(file_of("{}", 0).substr(0, 9)) ==
        "f: truncated: a header of 2 bytes is announced, 1 follow");
  for (const char* header : {"", "[]", "1", "null", " {}"})
    CHECK(error_of(file_of(header, 0)) == "f: the header is not a JSON object");
  for (const char* header :
       {"{", "{]", R"({"a")", "{} x", "{}{}", "{\"a\xff\":1}", R"({"a":{"dtype":"F32",})"})
    CHECK(error_of(file_of(header, 0)) == "f: the header is not valid JSON");
  CHECK(error_of(file_of(R"({"a":)" + std::string(1'000'000, '['), 0)) == "f: 'a' is not an object");
  CHECK(error_of(file_of(R"({"a":{"shape":[)" + std::string(1'000'000, '['), 0)) ==
        "f: the header nests too deeply in 'a'");
  CHECK(error_of(file_of(R"({"a":{"shape":{"b":{}}}})", 0)) == "f: the header nests too deeply in 'a'");
  for (const char* value : {"1", "\"x\"", "[]", "null", "true"})
    CHECK(error_of(file_of(R"({"a":)" + std::string(value) + "}", 0)) == "f: 'a' is not an object");
}

TEST_CASE("Duplicates are refused", "[train]") {
  const std::string a = "\"a\":" + tensor("[1]", "[0,4]");
  CHECK(error_of(file_of("{" + a + "," + a + "}", 4)) == "f: the header has 'a' twice");
  CHECK(error_of(file_of(R"({"a":{"dtype":"F32","dtype":"F32"}})", 0)) ==
        "f: the header has 'dtype' twice in 'a'");
  CHECK(error_of(file_of(R"({"__metadata__":{"k":"1","k":"2"}})", 0)) ==
        "f: the header has 'k' twice in '__metadata__'");
  CHECK(error_of(file_of(R"({"__metadata__":{},"__metadata__":{}})", 0)) ==
        "f: the header has '__metadata__' twice");
}

TEST_CASE("Metadata are strings", "[train]") {
  for (const char* value : {"1", "null", "{}", "[]", "[\"x\"]"})
    CHECK(error_of(file_of(R"({"__metadata__":{"k":)" + std::string(value) + "}}", 0)) ==
          "f: metadata 'k' is not a string");
  CHECK(error_of(file_of(R"({"__metadata__":"k"})", 0)) == "f: '__metadata__' is not an object");
  CHECK(parse_safetensors("f", file_of(R"({"__metadata__":{"k":"v"}}  )", 0)).metadata ==
        std::map<std::string, std::string>{{"k", "v"}});
}

TEST_CASE("Members of a tensor are checked", "[train]") {
  CHECK(error_of(file_of(R"({"a":{}})", 0)) == "f: tensor 'a' lacks one of dtype, shape, data_offsets");
  CHECK(error_of(file_of(R"({"a":{"dtype":"F32","shape":[1]}})", 0)) ==
        "f: tensor 'a' lacks one of dtype, shape, data_offsets");
  CHECK(error_of(file_of(R"({"a":{"dtype":"F32","strides":[1]}})", 0)) ==
        "f: tensor 'a' has an unknown member 'strides'");
  CHECK(tensor_error("[1]", "[0,8]", "\"F64\"") == "f: tensor 'a' has dtype 'F64'; only F32 is read");
  CHECK(tensor_error("[1]", "[0,8]", "32") == "f: tensor 'a' has dtype of the wrong kind; only F32 is read");
  for (const char* shape : {"[-1]", "[1.5]", "[\"2\"]", "[null]", "[18446744073709551616]", "[1e3]", "[[2]]"})
    CHECK_THAT(tensor_error(shape, "[0,8]"),
               Catch::Equals("f: tensor 'a' has a shape with something other than whole numbers from 0") ||
                   Catch::Equals("f: the header nests too deeply in 'a'"));
  for (const char* shape : {"2", "\"2\"", "{}", "null"})
    CHECK(tensor_error(shape, "[0,8]") == "f: tensor 'a' has a shape that is not a list");
  CHECK(tensor_error("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2]", "[0,8]") ==
        "f: tensor 'a' has a list of too many numbers");
}

TEST_CASE("Shapes that overflow are refused", "[train]") {
  for (const char* shape : {"[18446744073709551615]", "[4611686018427387904]", "[4294967296,4294967296]",
                            "[2147483648,2147483648,2,2]",
                            "[4294967296,0,4294967296]"})  // its product is 0, but not that of a part of it
    CHECK(tensor_error(shape, "[0,8]") == "f: tensor 'a' has a shape that is too large");
  CHECK(tensor_error("[2305843009213693951]", "[0,8]") ==
        "f: tensor 'a' has shape 2305843009213693951, 9223372036854775804 bytes, but its data_offsets [0, 8] "
        "span 8");
}

TEST_CASE("Offsets tile the data", "[train]") {
  CHECK(tensor_error("[2]", "[8,0]") ==
        "f: tensor 'a' has data_offsets that are not [begin, end] with begin <= end");
  CHECK(tensor_error("[2]", "[0]") ==
        "f: tensor 'a' has data_offsets that are not [begin, end] with begin <= end");
  CHECK(tensor_error("[2]", "[0,4,8]") ==
        "f: tensor 'a' has data_offsets that are not [begin, end] with begin <= end");
  CHECK(tensor_error("[2]", "8") == "f: tensor 'a' has a data_offsets that is not a list");
  CHECK(tensor_error("[2]", "[-8,0]") ==
        "f: tensor 'a' has a data_offsets with something other than whole numbers from 0");
  CHECK(tensor_error("[3]", "[0,12]") ==
        "f: tensor 'a' ends at byte 12 of the data, but the file holds 8: it is truncated");
  CHECK(tensor_error("[2]", "[18446744073709551608,18446744073709551615]") ==
        "f: tensor 'a' ends at byte 18446744073709551615 of the data, but the file holds 8: it is truncated");
  CHECK(tensor_error("[1]", "[0,8]") ==
        "f: tensor 'a' has shape 1, 4 bytes, but its data_offsets [0, 8] span 8");
  CHECK(tensor_error("[]", "[0,8]") ==
        "f: tensor 'a' has shape scalar, 4 bytes, but its data_offsets [0, 8] span 8");
  CHECK(tensor_error("[1]", "[0,4]") ==
        "f: the tensors end at byte 4 of the data, but the file holds 8: too long");
  CHECK(tensor_error("[1]", "[4,8]") ==
        "f: tensor 'a' begins at byte 4 of the data; the bytes from 0 on belong to no tensor");
  const auto two = [](const char* a, const char* b) {
    return R"({"b":)" + tensor("[2]", b) + R"(,"a":)" + tensor("[2]", a) + "}";
  };
  CHECK(error_of(file_of(two("[0,8]", "[4,12]"), 12)) ==
        "f: tensor 'b' begins at byte 4 of the data, inside tensor 'a'");
  CHECK(error_of(file_of(two("[0,8]", "[0,8]"), 8)) ==
        "f: tensor 'b' begins at byte 0 of the data, inside tensor 'a'");
  CHECK(error_of(file_of(two("[0,8]", "[12,20]"), 20)) ==
        "f: tensor 'b' begins at byte 12 of the data; the bytes from 8 on belong to no tensor");
  // Any order is fine, and so are tensors of no bytes in between.
  CHECK(parse_safetensors("f", file_of(two("[8,16]", "[0,8]"), 16)).tensors.size() == 2);
  const std::string empties = R"({"a":)" + tensor("[0]", "[0,0]") + R"(,"b":)" + tensor("[2]", "[0,8]") +
                              R"(,"c":)" + tensor("[5,0]", "[8,8]") + R"(,"d":)" + tensor("[0]", "[8,8]") +
                              "}";
  CHECK(parse_safetensors("f", file_of(empties, 8)).tensors.size() == 4);
  CHECK(error_of(file_of(R"({"a":)" + tensor("[0]", "[4,4]") + R"(,"b":)" + tensor("[2]", "[0,8]") + "}",
                         8)) == "f: tensor 'a' begins at byte 4 of the data, inside tensor 'b'");
}

TEST_CASE("A file cut anywhere is refused", "[train]") {
  const TempFolder folder;
  write_safetensors(folder / "whole", sample());
  const std::string bytes = read_file(folder / "whole");
  for (std::size_t size = 0; size < bytes.size(); ++size)
    CHECK_THROWS_AS(parse_safetensors("f", bytes.substr(0, size)), InputError);
  write_file(folder / "cut", bytes.substr(0, bytes.size() - 1));
  CHECK_THAT(message_of<InputError>([&] { read_safetensors(folder / "cut"); }),
             Catch::StartsWith((folder / "cut") + ": tensor 'scalar' ends at byte 60") &&
                 Catch::EndsWith("it is truncated"));
}

TEST_CASE("Every bit that flips is found", "[train]") {
  const TempFolder folder;
  write_safetensors(folder / "whole", sample());
  std::string bytes = read_file(folder / "whole");
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    CAPTURE(bit);
    const char mask = static_cast<char>(1U << bit % 8);
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ mask);
    CHECK_THROWS_AS(parse_safetensors("f", bytes), InputError);
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ mask);
  }
  check_same_bits(parse_safetensors("f", bytes), sample());
}

TEST_CASE("Checksums name the part that is damaged, and need not be there", "[train]") {
  const TempFolder folder;
  write_safetensors(folder / "whole", sample());
  const std::string bytes = read_file(folder / "whole");
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string copy = bytes;
    return copy.replace(copy.find(from), from.size(), to);
  };
  std::string tensors = bytes;
  tensors.back() = static_cast<char>(tensors.back() ^ 1);
  CHECK(error_of(tensors) ==
        "f: is damaged: its tensors are not what was written, says 'checksum.tensors' in its metadata");
  const std::string metadata =
      "f: is damaged: its metadata are not what was written, says 'checksum.metadata' in its metadata";
  CHECK(error_of(changed("\"42\"", "\"43\"")) == metadata);
  CHECK(error_of(changed("checksum.metadata", "Checksum.metadata")) == metadata);
  CHECK(error_of(changed("checksum.tensors", "Checksum.tensors")) == metadata);
  CHECK(parse_safetensors("f", tensors, Checksums::ignore).metadata == sample().metadata);

  // Such a file is that of an older version, or of another program.
  const std::string header = R"({"a":)" + tensor("[1]", "[0,4]") + R"(,"__metadata__":{"k":"v"}})";
  CHECK(parse_safetensors("f", file_of(header, 4)).metadata.size() == 1);
}

TEST_CASE("Hostile names are shortened in errors", "[train]") {
  CHECK(error_of(file_of("{\"" + std::string(1000, 'n') + "\":1}", 0)) ==
        "f: '" + std::string(100, 'n') + "…' is not an object");
  CHECK(error_of(file_of(R"({"\u001b[2J\n":1})", 0)) == "f: '?[2J?' is not an object");
}
