#include "convnet/onnx_import/weights.h"

#include "tests/catch.h"
#include "tests/onnx_import/models.h"

namespace convnet {
namespace {

using Ints = std::vector<std::int64_t>;

/// A convolution with batch norm and two products; the second one's weights have no name of their own and lie
/// with the inputs first. `nodes` come before the last product; they read "r" and make "s".
OnnxModel model_with(std::vector<OnnxNode> more) {
  std::vector<OnnxNode> nodes = {
      {"Conv", {"x", "conv1.weight"}, "a", {{"pads", Ints{1, 1, 1, 1}}}},
      {"Identity", {"bn1.bias"}, "bn1.running_mean", {}},
      {"BatchNormalization", {"a", "bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var"}, "b", {}},
      {"GlobalAveragePool", {"b"}, "p", {}},
      {"Flatten", {"p"}, "f", {}},
      {"Gemm", {"f", "fc1.weight", "fc1.bias"}, "r", {{"transB", std::int64_t{1}}}}};
  nodes.insert(nodes.end(), more.begin(), more.end());
  nodes.push_back({"MatMul", {"s", "onnx::MatMul_7"}, "head", {}});
  return model_of({3, 8, 8}, std::move(nodes),
                  {counted("conv1.weight", {4, 3, 3, 3}), counted("bn1.weight", {4}),
                   counted("bn1.bias", {4}), counted("bn1.running_var", {4}), counted("fc1.weight", {3, 4}),
                   counted("fc1.bias", {3}), counted("onnx::MatMul_7", {3, 2})});
}

/// A model as if another program had written it.
SourceModel foreign(const OnnxModel& model) {
  SourceModel source = parsed(model);
  source.producer = "pytorch 2.1";
  return source;
}

}  // namespace

TEST_CASE("weights of an ONNX model have the names of its tensors, or those of the layers of an import") {
  const OnnxWeights weights = onnx_weights(foreign(model_with({{"Relu", {"r"}, "s", {}}})), {3, 8, 8});
  CHECK(weights.problem == "");
  CHECK(weights.has_batch_norms);
  const auto& tensors = weights.tensors.tensors;
  CHECK(tensors.size() == 7);
  CHECK(tensors.at("conv1.weight").dims == Dims{4, 3, 3, 3});
  CHECK(tensors.at("fc1.weight").dims == Dims{3, 4});
  // A tensor that is passed on under another name.
  CHECK(tensors.at("bn1.running_mean").values == tensors.at("bn1.bias").values);
  CHECK_FALSE(tensors.contains("onnx::MatMul_7"));
  const SketchMatrix& head = weights.layers.at("head").at("weights");
  CHECK(head.dims == Dims{2, 3});
  CHECK(*head.values == std::vector<float>{0.1F, 0.3F, 0.5F, 0.2F, 0.4F, 0.6F});
}

TEST_CASE("a model of this program's has the names of checkpoints") {
  const OnnxModel model =
      model_of({4},
               {{"Gemm", {"x", "fc1.weights.data", "fc1.biases"}, "fc1/Gemm", {{"transB", std::int64_t{1}}}},
                {"Mul", {"fc1/Gemm", "fc1/number"}, "fc1", {}}},
               {counted("fc1.weights.data", {3, 4}), counted("fc1.biases", {3}), counted("fc1/number", {1})});
  const OnnxWeights weights = onnx_weights(parsed(model), {4});
  CHECK(weights.layers.empty());
  CHECK(weights.problem == "");
  CHECK(weights.tensors.tensors.size() == 2);
  CHECK(weights.tensors.tensors.at("fc1.weights.data").values.at(1) == 0.2F);
  CHECK(weights.tensors.tensors.at("fc1.biases").dims == Dims{3});
}

TEST_CASE("tensors of an ONNX model that cannot be imported are found by their names") {
  const OnnxWeights weights = onnx_weights(foreign(model_with({{"Hardmax", {"r"}, "s", {}}})), {3, 8, 8});
  CHECK_THAT(weights.problem,
             Catch::StartsWith("m.onnx: ") && Catch::Contains("(Hardmax): no layer computes it"));
  CHECK(weights.layers.empty());
  CHECK(weights.tensors.tensors.size() == 7);
}

TEST_CASE("an ONNX model that leaves the size of its images open is read for the net's") {
  OnnxModel open = model_with({{"Relu", {"r"}, "s", {}}});
  open.inputs[0].image = {3, 0, 0};
  const OnnxWeights weights = onnx_weights(foreign(open), {3, 8, 8});
  CHECK(weights.problem == "");
  CHECK(weights.layers.contains("head"));
  CHECK(onnx_weights(foreign(open), {192}).problem != "");  // the net reads vectors
}

}  // namespace convnet
