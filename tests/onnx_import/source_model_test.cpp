// Reading ONNX files: what is there, and what is refused.
#include "convnet/onnx_import/source_model.h"

#include <filesystem>

#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "tests/catch.h"
#include "tests/onnx_import/models.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;
using protobuf::bytes, protobuf::number;

/// A file around a graph, with the opset.
std::string file_of(const std::string& graph, std::int64_t opset = 13) {
  return number(1, 8) + bytes(2, "maker") + bytes(3, "1.5") + bytes(8, bytes(1, "") + number(2, opset)) +
         bytes(7, graph);
}
std::string node_of(const std::string& op, const std::vector<std::string>& inputs, const std::string& output,
                    const std::string& attribute = "") {
  std::string text;
  for (const std::string& input : inputs) text += bytes(1, input);
  text += bytes(2, output) + bytes(4, op);
  if (!attribute.empty()) text += bytes(5, attribute);
  return bytes(1, text);
}
/// A tensor with one field of numbers.
std::string tensor_of(const std::string& name, const Dims& dims, std::int64_t type,
                      const std::string& numbers) {
  std::string text;
  for (const std::int64_t side : dims) text += number(1, side);
  return bytes(5, text + number(2, type) + bytes(8, name) + numbers);
}
const std::string kRelu = node_of("Relu", {"x"}, "y");
const std::string kPorts = bytes(11, bytes(1, "x")) + bytes(12, bytes(1, "y"));

StoredTensor read_one(const Dims& dims, std::int64_t type, const std::string& numbers) {
  return parse_source_model("m.onnx", file_of(kRelu + kPorts + tensor_of("c", dims, type, numbers)))
      .tensors.at("c");
}

}  // namespace

TEST_CASE("a model is read as it was written") {
  OnnxModel written = model_of({1, 4, 4},
                               {{"Conv", {"x", "w"}, "a", {{"strides", std::vector<std::int64_t>{2, 2}}}},
                                {"LeakyRelu", {"a"}, "y", {{"alpha", 0.5F}}}},
                               {counted("w", {2, 1, 1, 1}), integers("i", {3, -4})});
  written.metadata = {{"key", "value"}};
  const SourceModel model = parsed(written);
  CHECK(model.opset == 13);
  CHECK(model.producer == "convnet");
  CHECK(model.metadata.at("key") == "value");
  REQUIRE(model.inputs.size() == 1);
  CHECK(model.inputs[0].name == "x");
  CHECK(model.inputs[0].dims == Dims{0, 1, 4, 4});
  CHECK(model.outputs == std::vector<std::string>{"y"});
  REQUIRE(model.nodes.size() == 2);
  CHECK(model.nodes[0].op == "Conv");
  CHECK(model.nodes[0].inputs == std::vector<std::string>{"x", "w"});
  CHECK(std::get<std::vector<std::int64_t>>(model.nodes[0].attributes.at("strides")) ==
        std::vector<std::int64_t>{2, 2});
  CHECK(std::get<float>(model.nodes[1].attributes.at("alpha")) == 0.5F);
  CHECK(model.tensors.at("w").constant->dims == Dims{2, 1, 1, 1});
  CHECK(model.tensors.at("w").constant->floats() == std::vector<float>{0.1F, 0.2F});
  CHECK(model.tensors.at("i").constant->integers() == std::vector<std::int64_t>{3, -4});
}

TEST_CASE("tensors are read from each field that may hold their numbers") {
  const auto floats = [](const StoredTensor& t) {
    REQUIRE(t.problem.empty());
    return t.constant->floats();
  };
  const auto raw = [](std::initializer_list<int> codes) {
    std::string s;
    for (const int code : codes) s += static_cast<char>(code);
    return bytes(9, s);
  };
  const std::vector<float> one_and_two = {1, -2};
  CHECK(floats(read_one({2}, 10, raw({0x00, 0x3C, 0x00, 0xC0}))) == one_and_two);          // f16
  CHECK(floats(read_one({2}, 16, raw({0x80, 0x3F, 0x00, 0xC0}))) == one_and_two);          // bf16
  CHECK(floats(read_one({2}, 10, number(5, 0x3C00) + number(5, 0xC000))) == one_and_two);  // bits of f16
  CHECK(floats(read_one({2}, 1, protobuf::real32(4, 1) + protobuf::real32(4, -2))) == one_and_two);
  CHECK(floats(read_one({2}, 1, bytes(4, protobuf::little_endian(1.0F) + protobuf::little_endian(-2.0F)))) ==
        one_and_two);
  CHECK(floats(read_one({2}, 11, protobuf::real64(10, 1) + protobuf::real64(10, -2))) == one_and_two);
  CHECK(read_one({2}, 3, raw({5, 0xFF})).constant->integers() == std::vector<std::int64_t>{5, -1});
  CHECK(read_one({2}, 7, bytes(7, protobuf::varint(5) + protobuf::varint(6))).constant->integers() ==
        std::vector<std::int64_t>{5, 6});
  CHECK(read_one({}, 7, number(7, -3)).constant->integers() == std::vector<std::int64_t>{-3});
}

TEST_CASE("tensors that contradict themselves have a problem") {
  const auto problem = [](const Dims& dims, std::int64_t type, const std::string& numbers) {
    const StoredTensor tensor = read_one(dims, type, numbers);
    CHECK(tensor.constant == nullptr);
    return tensor.problem;
  };
  const std::string four_bytes = bytes(9, "abcd");
  CHECK_THAT(problem({2}, 1, four_bytes), Catch::Contains("it has the dims 2, but 4 bytes"));
  CHECK_THAT(problem({1 << 30, 1 << 30, 1 << 30}, 1, four_bytes), Catch::Contains("it has the dims"));
  CHECK_THAT(problem({-1}, 1, four_bytes), Catch::Contains("it has the dims -1"));
  CHECK_THAT(problem({1}, 8, four_bytes), Catch::Contains("the type 8, which is not read"));
  CHECK_THAT(problem(Dims(17, 1), 1, four_bytes), Catch::Contains("it has 17 dimensions"));
}

TEST_CASE("numbers in other files are read from the model's folder only") {
  const TempFolder folder;
  fs::create_directory(folder / "in");
  write_file(folder / "in/weights.bin", "....abcdefgh");
  write_file(folder / "secret.bin", "abcdefgh");
  fs::create_symlink(folder / "secret.bin", folder / "in/link.bin");
  const auto read = [&](const std::string& location, const std::string& offset, const std::string& length) {
    const auto entry = [](const std::string& key, const std::string& value) {
      return bytes(13, bytes(1, key) + bytes(2, value));
    };
    std::string fields = entry("location", location) + number(14, 1);
    if (!offset.empty()) fields += entry("offset", offset);
    if (!length.empty()) fields += entry("length", length);
    write_file(folder / "in/m.onnx", file_of(kRelu + kPorts + tensor_of("c", {2}, 1, fields)));
    return read_source_model(folder / "in/m.onnx").tensors.at("c");
  };
  const StoredTensor good = read("weights.bin", "4", "8");
  REQUIRE(good.problem.empty());
  CHECK(good.constant->count() == 2);
  CHECK(read("./weights.bin", "", "").problem.empty());
  CHECK_THAT(read("../secret.bin", "", "").problem, Catch::Contains("which is not in the model's folder"));
  CHECK_THAT(read("x/../../secret.bin", "", "").problem,
             Catch::Contains("which is not in the model's folder"));
  CHECK_THAT(read(folder / "secret.bin", "", "").problem,
             Catch::Contains("which is not in the model's folder"));
  CHECK_THAT(read("link.bin", "", "").problem, Catch::Contains("a link out of the model's folder"));
  CHECK_THAT(read("none.bin", "", "").problem, Catch::Contains("which is not there"));
  CHECK_THAT(read("", "", "").problem, Catch::Contains("not in the model's folder"));
  CHECK_THAT(read("weights.bin", "8", "").problem, Catch::Contains("ends before its numbers do"));
  CHECK_THAT(read("weights.bin", "18446744073709551615", "").problem, Catch::Contains("ends before"));
  CHECK_THAT(read("weights.bin", "4", "4").problem, Catch::Contains("it has 4 bytes in 'weights.bin'"));
  CHECK_THROWS_WITH(read("weights.bin", "-1", ""), Catch::Contains("the offset of external data is '-1'"));
  // In memory there is no folder.
  write_file(folder / "m.onnx", "");
  CHECK_THAT(
      read_one({2}, 1, bytes(13, bytes(1, "location") + bytes(2, "weights.bin")) + number(14, 1)).problem,
      Catch::Contains("another file, which cannot be read here"));
}

TEST_CASE("nodes are put into an order in which they can run") {
  const std::string graph =
      node_of("Relu", {"b"}, "y") + node_of("Add", {"a", "a"}, "b") + node_of("Abs", {"x"}, "a") + kPorts;
  const SourceModel model = parse_source_model("m.onnx", file_of(graph));
  std::vector<std::string> ops;
  for (const SourceNode& node : model.nodes) ops.push_back(node.op);
  CHECK(ops == std::vector<std::string>{"Abs", "Add", "Relu"});
  CHECK(model.producer == "maker 1.5");
}

TEST_CASE("files that are no sound models are refused") {
  const auto check = [](const std::string& file, const std::string& message) {
    CHECK_THROWS_WITH(parse_source_model("m.onnx", file),
                      Catch::StartsWith("m.onnx: ") && Catch::Contains(message));
  };
  check("", "is no ONNX model: it has no operators");
  check("no protocol buffers", "is no ONNX model");
  check("PK\x03\x04 more bytes of a zip file", "is a zip archive, not an ONNX model");
  check(file_of(kPorts), "it has no operators");
  check(file_of(kRelu + kPorts).substr(0, 30), "or is damaged");
  check(file_of(kRelu + kPorts, 6), "has operators of opset 6; opsets 7 to 23 are read");
  check(file_of(kRelu + kPorts, 24), "has operators of opset 24");
  check(file_of(kRelu + node_of("Abs", {"x"}, "y") + kPorts), "tensor 'y' has two sources");
  check(file_of(node_of("Abs", {"y"}, "x") + kPorts), "tensor 'x' has two sources");
  check(file_of(node_of("Abs", {"z"}, "y") + kPorts), "nothing makes the tensor 'z'");
  check(file_of(node_of("Abs", {"b"}, "a") + node_of("Abs", {"a"}, "b") + kRelu + kPorts),
        "is computed from itself");
  check(file_of(node_of("Add", {"x", "y"}, "y") + kPorts), "is computed from itself");
  check(file_of(kRelu + kPorts + tensor_of("c", {}, 7, number(7, 1)) + tensor_of("c", {}, 7, number(7, 1))),
        "two tensors are called 'c'");
  check(file_of(kRelu + kPorts + bytes(15, "")), "it has sparse tensors");
}

TEST_CASE("every file cut short is refused or read") {
  const std::string whole =
      onnx_bytes(model_of({1, 4, 4}, {{"Conv", {"x", "w"}, "y", {}}}, {counted("w", {2, 1, 1, 1})}));
  for (std::size_t bytes_left = 0; bytes_left < whole.size(); ++bytes_left) {
    try {
      parse_source_model("m.onnx", whole.substr(0, bytes_left));
    } catch (const InputError&) {
    }
  }
  // A long chain needs no deep stack.
  std::string graph = kPorts + node_of("Relu", {"n99999"}, "y") + node_of("Relu", {"x"}, "n0");
  for (int i = 99999; i > 0; --i)
    graph += node_of("Relu", {"n" + std::to_string(i - 1)}, "n" + std::to_string(i));
  CHECK(parse_source_model("m.onnx", file_of(graph)).nodes.size() == 100001);
  std::string nodes = kPorts;
  for (int i = 0; i <= 200000; ++i) nodes += bytes(1, "");
  CHECK_THAT(message_of<InputError>([&] { parse_source_model("m.onnx", file_of(nodes)); }),
             Catch::Contains("it has more than 200000 operators"));
}

}  // namespace convnet
