// Files of ONNX: the bytes, the limit, and names of tensors.
#include "convnet/onnx/model.h"

#include <filesystem>

#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "convnet/onnx/builder.h"
#include "tests/catch.h"
#include "tests/temp_folder.h"

namespace convnet {
namespace {

OnnxModel one_operator() {
  OnnxModel model;
  model.name = "g";
  model.nodes = {{"Add", {"x", "c"}, "y", {{"a", std::int64_t{-1}}}}};
  model.constants = {{"c", {2}, std::vector<float>{1, 2}}};
  model.inputs = {{"x", {2}}};
  model.outputs = {{"y", {2}}};
  return model;
}

TEST_CASE("a model is written as protocol buffers") {
  const TempFolder folder;
  const std::string file = folder.path() + "/m.onnx";
  write_onnx(file, one_operator());
  const std::string bytes = read_whole_file(file);
  const auto text = [](std::initializer_list<int> codes) {
    std::string s;
    for (const int code : codes) s += static_cast<char>(code);
    return s;
  };
  // IR version 8, the producer's name, opset 13 of the domain "".
  CHECK(bytes.starts_with(text({0x08, 8, 0x12, 7}) + "convnet" + text({0x42, 4, 0x0A, 0, 0x10, 13, 0x3A})));
  // An attribute of -1 has ten bytes.
  const std::string minus_one = text({0x18}) + std::string(9, '\xFF') + text({1});
  CHECK(bytes.find(text({0x2A, 17, 0x0A, 1}) + "a" + minus_one + text({0xA0, 1, 2})) != std::string::npos);
  // The constant: dims, type, name, raw data; the file ends with its numbers.
  CHECK(bytes.ends_with(text({0x2A, 17, 0x08, 2, 0x10, 1, 0x42, 1}) + "c" + text({0x4A, 8}) +
                        text({0, 0, 0x80, 0x3F, 0, 0, 0, 0x40})));
}

TEST_CASE("metadata of a model is entries of a key and a value") {
  const TempFolder folder;
  const std::string file = folder.path() + "/m.onnx";
  OnnxModel model = one_operator();
  model.metadata = {{"k", "v"}, {"key", "a value"}};
  write_onnx(file, model);
  const auto message = [](const std::string& bytes) { return static_cast<char>(bytes.size()) + bytes; };
  const auto entry = [&](const std::string& key, const std::string& value) {
    return "\x72" + message("\x0A" + message(key) + "\x12" + message(value));
  };
  CHECK_THAT(read_whole_file(file), Catch::Contains(entry("k", "v") + entry("key", "a value") + "\x3A"));
}

TEST_CASE("a model that is too large is refused before a file is there") {
  const TempFolder folder;
  const std::string file = folder.path() + "/m.onnx";
  write_onnx(file, one_operator());
  const std::uint64_t size = std::filesystem::file_size(file);
  std::filesystem::remove(file);
  CHECK_THROWS_WITH(write_onnx(file, one_operator(), size - 1),
                    file + ": the model would have " + std::to_string(size) +
                        " bytes, and a file of ONNX has at most " + std::to_string(size - 1));
  CHECK(std::filesystem::is_empty(folder.path()));
  write_onnx(file, one_operator(), size);
  CHECK_THROWS_AS(write_onnx(folder.path() + "/none/m.onnx", one_operator()), RunError);
}

TEST_CASE("tensors of a model have names of their own") {
  OnnxModel model;
  OnnxBuilder builder(model, {"conv1", "conv1/Relu"});
  builder.begin_layer("conv1");
  CHECK(builder.add("Relu", {"x"}) == "conv1/Relu.1");
  CHECK(builder.add("Relu", {"conv1/Relu.1"}) == "conv1/Relu.2");
  CHECK(builder.unique("images") == "images");
  CHECK(builder.unique("conv1") == "conv1.1");
  builder.rename("conv1/Relu.1", "conv1");
  CHECK(model.nodes[0].output == "conv1");
  CHECK(model.nodes[1].inputs == std::vector<std::string>{"conv1"});
}

}  // namespace
}  // namespace convnet
