// Views of what layers store: axes that are transposed, joined and cut.
#include "convnet/onnx_import/activation.h"

#include "convnet/onnx_import/cannot_import.h"
#include "convnet/onnx_import/layer_names.h"
#include "tests/catch.h"

namespace convnet {
namespace {

const FeatureShape kMaps{6, 4, 5, true};

}  // namespace

TEST_CASE("an activation follows transposes and reshapes") {
  const Activation stored = stored_activation(0, kMaps, 1);
  CHECK(stored.dims() == Dims{1, 6, 4, 5});
  CHECK(stored.in_order());
  const Activation last = transposed(stored, {0, 2, 3, 1});
  CHECK(last.dims() == Dims{1, 4, 5, 6});
  CHECK_FALSE(last.in_order());
  CHECK(transposed(last, {0, 3, 1, 2}).in_order());
  const Activation flat = reshaped(last, {1, 120});
  CHECK(flat.dims() == Dims{1, 120});
  // The second element of (N,H,W,C) is the first pixel of the second map.
  const std::vector<std::int64_t> at = places(flat.axes);
  CHECK(at[0] == 0);
  CHECK(at[1] == 20);
  CHECK(at[6] == 1);
  CHECK(at[119] == 119);
  CHECK(reshaped(flat, {1, 4, 5, 6}).axes == last.axes);
}

TEST_CASE("an activation follows a channel shuffle") {
  const Activation groups = reshaped(stored_activation(0, kMaps, 1), {1, 2, 3, 4, 5});
  const Activation shuffled = reshaped(transposed(groups, {0, 2, 1, 3, 4}), {1, 6, 4, 5});
  CHECK(counts_maps(shuffled.axes[0], kMaps));
  CHECK_FALSE(counts_maps(shuffled.axes[1], kMaps));
  std::vector<std::int64_t> maps;
  for (const std::int64_t place : places({shuffled.axes[0]})) maps.push_back(place / 20);
  CHECK(maps == std::vector<std::int64_t>{0, 3, 1, 4, 2, 5});
}

TEST_CASE("forms that are no views are refused") {
  const Activation stored = stored_activation(0, kMaps, 1);
  CHECK_THROWS_AS(reshaped(stored, {1, 121}), CannotImport);
  CHECK_THROWS_AS(reshaped(stored, {1, 60}), CannotImport);
  CHECK_THROWS_AS(transposed(stored, {1, 0, 2, 3}), CannotImport);
  CHECK_THROWS_AS(transposed(stored, {0, 1, 1, 3}), CannotImport);
  CHECK_THROWS_AS(transposed(stored, {0, 1, 2}), CannotImport);
  // (N,W,H,C) cut across its axes.
  CHECK_THROWS_AS(reshaped(transposed(stored, {0, 3, 2, 1}), {1, 3, 40}), CannotImport);
}

TEST_CASE("names of layers are those of PyTorch's modules where a model has them") {
  const auto name = [](const std::string& type, const std::string& weights, const std::string& node,
                       const std::string& output = "") {
    return layer_name(type, {weights, node, output});
  };
  CHECK(name("conv", "layer1.0.conv1.weight", "/layer1/layer1.0/conv1/Conv") == "layer1.0.conv1");
  CHECK(name("conv", "onnx::Conv_193", "/layer1/layer1.0/conv1/Conv") == "layer1.0.conv1");
  CHECK(name("conv", "onnx::Conv_1", "/features/features.1/conv/conv.0/conv.0.0/Conv") ==
        "features.1.conv.0.0");
  CHECK(name("eltsum", "", "/layer1/layer1.0/Add") == "layer1.0.add");
  CHECK(name("concat", "", "/features/denseblock1/denselayer2/Concat_1") ==
        "features.denseblock1.denselayer2.concat_1");
  CHECK(name("pool", "", "/maxpool/MaxPool") == "maxpool");
  CHECK(name("conv", "conv1.weights.data", "conv1/Conv") == "conv1");
  CHECK(name("bnorm", "bn1.scale", "bn1") == "bn1");
  CHECK(name("conv", "model/conv1_conv/Conv2D/ReadVariableOp:0", "model/conv1_conv/Conv2D") == "conv1_conv");
  CHECK(name("fc", "fc.weight", "node_linear") == "fc");
  CHECK(name("pool", "", "node_max_pool2d") == "max_pool2d");
  // Numbers tell nothing; then the output may.
  CHECK(name("conv", "123", "Conv_12", "456").empty());
  CHECK(name("conv", "123", "", "feature map") == "feature_map");
  CHECK(name("conv", "a[b]\n;c.weight", "") == "a_b_c");
}

TEST_CASE("names of layers are taken once") {
  TakenNames names({"data"});
  CHECK(names.take("data", "conv") == "data_2");
  CHECK(names.take("a", "conv") == "a");
  CHECK(names.take("a", "conv") == "a_2");
  CHECK(names.take("a", "conv") == "a_3");
  CHECK(names.take("", "conv") == "conv1");
  CHECK(names.take("conv2", "conv") == "conv2");
  CHECK(names.take("", "conv") == "conv3");
  CHECK(names.take("", "eltsum") == "add1");
}

}  // namespace convnet
