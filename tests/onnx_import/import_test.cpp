// From models to nets: what is written, and what hostile models end with. tests/onnx/import_test.py computes
// the nets.
#include "convnet/onnx_import/import.h"

#include <limits>

#include "convnet/base/error.h"
#include "convnet/onnx_import/cannot_import.h"
#include "convnet/onnx_import/net_sketch.h"
#include "tests/catch.h"
#include "tests/onnx_import/models.h"

namespace convnet {
namespace {

using Ints = std::vector<std::int64_t>;

ImportedModel import_of(const OnnxModel& model, const ImportOptions& options = {}) {
  return import_model(parsed(model), options);
}

/// Checks that an import ends with an InputError that has this text.
void check_refused(const OnnxModel& model, const std::string& text, const ImportOptions& options = {}) {
  const SourceModel source = parsed(model);
  CHECK_THROWS_AS(import_model(source, options), InputError);
  CHECK_THROWS_WITH(import_model(source, options), Catch::StartsWith("m.onnx: ") && Catch::Contains(text));
}

/// A convolution, a mean and a product: `more` nodes come between the first two; they read "a" and make "b".
OnnxModel small_model(std::vector<OnnxNode> more, std::vector<OnnxConstant> constants = {}) {
  std::vector<OnnxNode> nodes = {{"Conv", {"x", "conv1.weight", "bias"}, "a", {{"pads", Ints{1, 1, 1, 1}}}}};
  nodes.insert(nodes.end(), more.begin(), more.end());
  nodes.push_back({"GlobalAveragePool", {"b"}, "pool1", {}});
  nodes.push_back({"Flatten", {"pool1"}, "c", {}});
  nodes.push_back({"Gemm", {"c", "fc.weight"}, "y", {{"transB", std::int64_t{1}}}});
  constants.push_back(counted("conv1.weight", {4, 3, 3, 3}));
  constants.push_back(counted("bias", {4}));
  constants.push_back(counted("fc.weight", {2, 4}));
  return model_of({3, 8, 8}, std::move(nodes), std::move(constants));
}

}  // namespace

TEST_CASE("constants and maps that a model repeats without end are refused") {
  NetSketch net;
  net.charge(std::int64_t{1} << 25);
  net.charge(std::int64_t{1} << 25);
  CHECK_THROWS_AS(net.charge(1), CannotImport);
}

TEST_CASE("an import writes a net that reads like one written by hand") {
  ImportedModel net = import_of(small_model({{"Relu", {"a"}, "b", {}}}));
  CHECK(net.text.definition ==
        "# Imported from m.onnx, which convnet wrote\n\n"
        "[DEFAULT]\n# Weights that an import does not give begin so.\ninitW=he\n\n"
        "[data]\ntype=data\ndataIdx=0\n\n[labels]\ntype=data\ndataIdx=1\n\n"
        "[conv1]\ntype=conv\ninputs=data\nchannels=3\nfilters=4\nfilterSize=3\npadding=1\nneuron=relu\n\n"
        "[pool1]\ntype=pool\ninputs=conv1\npool=avg\nchannels=4\nsizeX=0\n\n"
        "[fc]\ntype=fc\ninputs=pool1\noutputs=2\nbiases=0\n\n"
        "[probs]\ntype=softmax\ninputs=fc\n\n"
        "[logprob]\ntype=cost.logreg\ninputs=labels,probs\n");
  CHECK(net.text.parameters ==
        "# Imported from m.onnx, which convnet wrote\n\n"
        "[DEFAULT]\nepsW=cosine[base=0.001]\nepsB=cosine[base=0.001]\nmomW=0.9\nmomB=0.9\nwc=0.0001\n\n"
        "[logprob]\ncoeff=1\n");
  CHECK(net.text.adds_softmax);
  const Checkpoint checkpoint = checkpoint_of(net, "net.cfg", "net-params.cfg");
  CHECK(checkpoint.tensors.tensors.at("conv1.weights.data").dims == Dims{4, 3, 3, 3});
  CHECK(checkpoint.tensors.tensors.at("conv1.biases").values == std::vector<float>{0.1F, 0.2F, 0.3F, 0.4F});
  CHECK(checkpoint.tensors.tensors.at("fc.weights.pool1").dims == Dims{2, 4});
  CHECK(checkpoint.state.position == Position{});
}

TEST_CASE("what is done to images before the first layer goes into the mean and the deviations") {
  OnnxModel model = small_model({{"Relu", {"a"}, "b", {}}}, {{"mean", {3, 1, 1}, std::vector<float>{1, 2, 3}},
                                                             {"scale", {}, std::vector<float>{0.5F}}});
  model.nodes.insert(model.nodes.begin(),
                     {{"Sub", {"x", "mean"}, "s", {}}, {"Mul", {"s", "scale"}, "t", {}}});
  model.nodes[2].inputs[0] = "t";
  ImportOptions options;
  options.pixels = PixelForm::raw;
  ImportedModel net = import_of(model, options);
  CHECK(net.images.scale == std::vector<float>(3, 0.5F));
  CHECK(net.images.shift == std::vector<float>{-0.5F, -1, -1.5F});
  CHECK_THAT(net.text.definition, Catch::Contains("[conv1]\ntype=conv\ninputs=data\n"));
  const Checkpoint checkpoint = checkpoint_of(net, "net.cfg", "net-params.cfg");
  CHECK(checkpoint.options.at("pixel-std") == "1");
  CHECK(checkpoint.tensors.tensors.at("image.deviations").values == std::vector<float>(3, 2.0F));
  CHECK(checkpoint.tensors.tensors.at("image.mean").values[64] == 1);
  // Pixels of other forms are scaled before that.
  options.pixels = PixelForm::unit;
  CHECK(import_of(model, options).images.scale == std::vector<float>(3, 0.5F / 255));
  options.pixels = PixelForm::symmetric;
  CHECK(import_of(model, options).images.shift[0] == -1);
  options.pixels = PixelForm::imagenet;
  CHECK(import_of(model, options).images.shift[0] == Approx(-0.5 - 0.5 * 0.485 / 0.229));
  // Numbers that are no pixels have no statistics, so a layer does it.
  options.pixels = PixelForm::floats;
  CHECK_THAT(import_of(model, options).text.definition,
             Catch::Contains("inputs=data\nchannels=3\nfilters=1\ngroups=3\nfilterSize=1\n"));
}

TEST_CASE("the data set of an imported net is that of its model") {
  OnnxModel model = small_model({{"Relu", {"a"}, "b", {}}});
  const auto options_of = [](const OnnxModel& m) {
    ImportedModel net = import_of(m);
    return checkpoint_of(net, "net.cfg", "net-params.cfg");
  };
  CHECK(options_of(model).options.at("data-provider") == "image");
  CHECK(options_of(model).options.at("image-size") == "8");
  model.metadata = {
      {"input_numbers", "pixels from 0 to 255"}, {"provider", "npy"}, {"class_names", R"(["cat","dog"])"}};
  const Checkpoint arrays = options_of(model);
  CHECK(arrays.options.at("data-provider") == "npy");
  CHECK(arrays.matrices.at(1).class_names == std::vector<std::string>{"cat", "dog"});
  CHECK(arrays.matrices.at(0).type == DataType::u8);
  model.metadata = {{"input_numbers", "float32 as in the data set"}};
  CHECK(options_of(model).matrices.at(0).stores_floats());
  model.metadata = {{"input_numbers", "pixels from 0 to 255"}, {"provider", "image"}, {"image_size", "12"}};
  CHECK(options_of(model).options.at("inner-size") == "8");
  CHECK(options_of(model).options.at("image-size") == "12");
  // Images of which the net reads the centre.
  model.metadata = {{"input_numbers", "pixels from 0 to 255"},
                    {"provider", "cifar"},
                    {"crop_size", "8"},
                    {"image_dims", "[3,10,12]"}};
  CHECK(options_of(model).options.at("data-provider") == "cifar");
  CHECK(options_of(model).options.at("inner-size") == "8");
  CHECK(options_of(model).matrices.at(0).stored == Dims{3, 10, 12});
  model.metadata[3].second = "[3,4,12]";
  CHECK(options_of(model).matrices.at(0).stored.empty());
  model.metadata = {{"author", "Ultralytics"}, {"names", R"({0: 'cat', 1: "a dog's \"}"})"}};
  CHECK(import_of(model).class_names == std::vector<std::string>{"cat", "a dog's \"}"});
  CHECK(import_of(model).pixels == PixelForm::unit);
  // Metadata that make no sense are ignored.
  model.metadata = {{"names", "{0: 'cat"}};
  CHECK(import_of(model).class_names.empty());
  model.metadata = {{"class_names", "[1,2]"}, {"image_size", "-3"}};
  CHECK(options_of(model).options.at("image-size") == "8");
  model.metadata = {{"class_names", "{"}};
  CHECK(options_of(model).matrices.at(1).class_names.empty());
}

TEST_CASE("a net that ends in logistic outputs has tags") {
  OnnxModel model = small_model({{"Relu", {"a"}, "b", {}}});
  model.nodes.push_back({"Sigmoid", {"y"}, "z", {}});
  model.outputs[0].name = "z";
  ImportedModel net = import_of(model);
  CHECK_THAT(net.text.definition,
             Catch::EndsWith("biases=0\nneuron=logistic\n\n[logprob]\ntype=cost.bce\ninputs=targets,fc\n"));
  // The matrices are those of photos with tags.
  const std::vector<MatrixInfo> matrices = checkpoint_of(net, "net.cfg", "net-params.cfg").matrices;
  CHECK(label_kind(matrices) == LabelKind::tags);
  CHECK(matrices.at(1).classes == matrices.at(2).dims.at(0));
  // Logistic outputs stay tags if the model says that its outputs have no names.
  model.metadata = {{"number_output", "z"}, {"number_names", "[]"}};
  CHECK(import_of(model).text.labels == LabelKind::tags);
}

TEST_CASE("a net whose model says that its outputs are numbers is a regression") {
  OnnxModel model = small_model({{"Relu", {"a"}, "b", {}}});
  model.metadata = {{"number_output", "y"}, {"number_names", R"(["age","height"])"}};
  ImportedModel net = import_of(model);
  CHECK_FALSE(net.text.adds_softmax);
  CHECK_THAT(net.text.definition,
             Catch::Contains("\n[numbers]\ntype=data\ndataIdx=1\n") &&
                 Catch::EndsWith("\n[difference]\ntype=eltsum\ninputs=fc,numbers\ncoeffs=1,-1\n\n"
                                 "[squares]\ntype=cost.sum2\ninputs=difference\n"));
  CHECK_THAT(net.text.parameters, Catch::EndsWith("\n[squares]\ncoeff=1\n"));
  const std::vector<MatrixInfo> matrices = checkpoint_of(net, "net.cfg", "net-params.cfg").matrices;
  CHECK(label_kind(matrices) == LabelKind::numbers);
  CHECK(matrices.at(1).class_names == std::vector<std::string>{"age", "height"});
  // Another output of the model has scores.
  model.metadata[0].second = "other";
  CHECK(import_of(model).text.adds_softmax);
}

TEST_CASE("the mean image of arrays of floats goes into the data set's") {
  std::vector<float> mean(3 * 8 * 8);
  for (std::size_t i = 0; i < mean.size(); ++i) mean[i] = static_cast<float>(i);
  OnnxModel model = small_model({{"Relu", {"a"}, "b", {}}}, {{"mean", {3, 8, 8}, mean}});
  model.nodes.insert(model.nodes.begin(), {{"Sub", {"x", "mean"}, "s", {}}});
  model.nodes[1].inputs[0] = "s";
  model.metadata = {{"input_numbers", "float32 as in the data set"}};
  ImportedModel net = import_of(model);
  CHECK_THAT(net.text.definition, Catch::Contains("[conv1]\ntype=conv\ninputs=data\n"));
  const Checkpoint checkpoint = checkpoint_of(net, "net.cfg", "net-params.cfg");
  CHECK(checkpoint.tensors.tensors.at("npy.mean").values == mean);
  CHECK(checkpoint.matrices.at(0).stores_floats());
}

TEST_CASE("factors and terms of maps go into the weights below them") {
  const std::vector<OnnxConstant> constants = {counted("s", {4, 1, 1}), counted("t", {1, 4, 1, 1})};
  const ImportedModel net =
      import_of(small_model({{"Mul", {"a", "s"}, "m", {}}, {"Add", {"m", "t"}, "b", {}}}, constants));
  CHECK_THAT(net.text.definition, Catch::Contains("padding=1\n\n[pool1]\ntype=pool\ninputs=conv1\n"));
  const auto& biases = *net.text.matrices.at("conv1").at("biases").values;
  for (std::size_t i = 0; i < 4; ++i) {
    const float each = 0.1F * static_cast<float>(i + 1);
    CHECK(biases[i] == Approx(each * each + each));
  }
  // But not if something else reads the convolution.
  const ImportedModel two =
      import_of(small_model({{"Mul", {"a", "s"}, "m", {}}, {"Add", {"m", "a"}, "b", {}}}, constants));
  CHECK_THAT(two.text.definition, Catch::Contains("filters=1\ngroups=4\nfilterSize=1\nbiases=0\n"));
}

TEST_CASE("a cast of activations to integers or truth values is refused, one to floats is nothing") {
  const auto cast = [](std::int64_t type) {
    return small_model(
        {{"Cast", {"a"}, "k", {{"to", type}}}, {"Cast", {"k"}, "b", {{"to", std::int64_t{1}}}}});
  };
  for (const std::int64_t type : {2, 6, 7, 9})  // UINT8, INT32, INT64, BOOL
    check_refused(cast(type), "it turns numbers into integers or truth values");
  for (const std::int64_t type : {1, 10, 11, 16})  // FLOAT, FLOAT16, DOUBLE, BFLOAT16
    CHECK_THAT(import_of(cast(type)).text.definition, Catch::Contains("padding=1\n\n[pool1]\n"));
  const auto like = [](const OnnxConstant& other) {
    return small_model({{"CastLike", {"a", other.name}, "b", {}}}, {other});
  };
  check_refused(like(integers("whole", {1})), "it turns numbers into integers or truth values");
  CHECK_THAT(import_of(like(counted("real", {1}))).text.definition,
             Catch::Contains("padding=1\n\n[pool1]\n"));
}

TEST_CASE("an Elu that rises below zero is refused by its operator's name") {
  check_refused(small_model({{"Elu", {"a"}, "b", {{"alpha", -1.0F}}}}),
                "its alpha is -1; layers take one above 0");
}

TEST_CASE("an import says what it cannot know") {
  OnnxModel model = small_model({{"Relu", {"a"}, "b", {}}});
  ImportOptions options;
  options.translate.output = "pol1";
  check_refused(model, "no operator makes the output 'pol1'; did you mean 'pool1'?", options);
  options.translate.output = "b";
  check_refused(model, "the output 'b' is 1x4x8x8, and a net ends in a vector; --output names another",
                options);
  options.translate.output = "pool1";
  CHECK(import_of(model, options).text.outputs == 4);
  CHECK(import_of(model, options).other_outputs == std::vector<std::string>{"y"});
  options = {};
  options.pixels = PixelForm::imagenet;
  check_refused(model_of({1, 2, 2}, {{"Flatten", {"x"}, "y", {}}}), "its outputs are the images themselves");
  check_refused(model_of({2, 2, 2}, {{"Relu", {"x"}, "a", {}}, {"Flatten", {"a"}, "y", {}}}),
                "--pixels imagenet is for 3 channels, and the net reads 2", options);
  options = {};
  options.data = ImportedData::photos;
  check_refused(model_of({2, 2, 2}, {{"Relu", {"x"}, "a", {}}, {"GlobalMaxPool", {"a"}, "y", {}}}),
                "--data-provider image: photos are square images", options);
  model.inputs[0].image = {0, 8, 8};
  check_refused(model, "input 'x': the file leaves its size open; --input-dims says it");
  options = {};
  options.translate.input_dims = {3, 8, 8};
  CHECK_NOTHROW(import_of(model, options));
  model.inputs[0].image = {3, 8, 8};
  model.inputs.push_back({"z", {1}});
  model.nodes[1] = {"Add", {"a", "z"}, "b", {}};
  check_refused(model, "reads several inputs, 'x' and 'z'");
  check_refused(model_of({3}, {{"Relu", {"c"}, "y", {}}}, {counted("c", {1, 3})}),
                "its output depends on no input");
}

TEST_CASE("hostile models end with a message") {
  // Sizes that overflow, or that would need much memory.
  check_refused(model_of({1 << 24, 1 << 24, 4}, {{"Flatten", {"x"}, "y", {}}}), "is too large");
  check_refused(
      small_model({{"Reshape", {"a", "s"}, "b", {}}}, {integers("s", {1, Ints::value_type{1} << 62, 4})}),
      "its shape is");
  check_refused(small_model({{"ConstantOfShape", {"s"}, "c0", {}}, {"Add", {"a", "c0"}, "b", {}}},
                            {integers("s", {1 << 30, 1 << 30})}),
                "(ConstantOfShape): it computes a constant of");
  std::vector<OnnxNode> doubling;
  std::vector<OnnxConstant> start = {counted("d0", {1024})};
  for (int i = 0; i < 60; ++i)
    doubling.push_back({"Concat",
                        {"d" + std::to_string(i), "d" + std::to_string(i)},
                        "d" + std::to_string(i + 1),
                        {{"axis", std::int64_t{0}}}});
  doubling.push_back({"Add", {"a", "d60"}, "b", {}});
  check_refused(small_model(doubling, start), "(Concat): it computes a constant of");
  std::vector<OnnxNode> borders;
  for (int i = 0; i < 300; ++i)
    borders.push_back({"Pad",
                       {i == 0 ? "a" : "p" + std::to_string(i), "pads"},
                       i == 299 ? "b" : "p" + std::to_string(i + 1),
                       {}});
  check_refused(small_model(borders, {integers("pads", {0, 0, 4096, 4096, 0, 0, 4096, 4096})}),
                "is too large");
  // Attributes and inputs that contradict the tensors.
  const auto conv = [](std::vector<OnnxAttribute> attributes) {
    return small_model({{"Conv", {"a", "w2"}, "b", std::move(attributes)}}, {counted("w2", {4, 4, 3, 3})});
  };
  check_refused(conv({{"strides", Ints{0, 0}}}), "its stride is 0");
  check_refused(conv({{"pads", Ints{-1, 0, 0, 0}}}), "its pads are out of range");
  check_refused(conv({{"pads", Ints{1}}}), "its pads are not 4 numbers");
  check_refused(conv({{"group", std::int64_t{0}}}), "do not fit 4 channels in 0 groups");
  check_refused(conv({{"kernel_shape", Ints{5, 5}}}), "its kernel_shape is not that of its weights");
  check_refused(conv({{"group", 1.5F}}), "its attribute group is no integer");
  check_refused(small_model({{"Conv", {"a", "w2"}, "b", {{"kernel_shape", Ints{3, 3}}}}},
                            {counted("w2", {4, 4, 0, 3})}),
                "its kernel_shape is not that of its weights");
  // Without numbers, sides may be of any size.
  const OnnxConstant empty{"e", {std::int64_t{1} << 31, std::int64_t{1} << 30, 0}, std::vector<float>{}};
  check_refused(
      small_model({{"Concat", {"e", "e"}, "c0", {{"axis", std::int64_t{2}}}}, {"Add", {"a", "c0"}, "b", {}}},
                  {empty}),
      "a constant beside the activation is empty");
  check_refused(small_model({{"Transpose", {"a"}, "t", {{"perm", Ints{0, 2, 3, 1}}}},
                             {"MatMul", {"t", "w2"}, "m", {}},
                             {"ReduceSum", {"m", "last"}, "b", {}}},
                            {{"w2", {4, 0}, std::vector<float>{}}, integers("last", {3})}),
                "holds no numbers");
  constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
  check_refused(small_model({{"Range", {"k", "l", "m"}, "c0", {}}, {"Add", {"a", "c0"}, "b", {}}},
                            {integers("k", {0}), integers("l", {kLeast}), integers("m", {-1})}),
                "its limits are out of range");
  check_refused(small_model({{"Conv", {"a", "w2"}, "b", {}}}, {counted("w2", {4, 4, 9, 9})}),
                "its windows are larger than the maps");
  check_refused(small_model({{"Conv", {"a"}, "b", {}}}), "its input 2 is no constant");
  check_refused(small_model({{"Softmax", {"a"}, "b", {{"axis", std::int64_t{7}}}}}),
                "it has an axis 7 of 4 axes");
  check_refused(
      small_model({{"MaxPool", {"a"}, "b", {{"kernel_shape", Ints{3, 3}}, {"dilations", Ints{1, 2}}}}}),
      "it has a dilation of 2, which no pool layer has");
}

TEST_CASE("further outputs of an operator do not matter if nothing reads them") {
  SourceModel model = parsed(small_model({{"Dropout", {"a"}, "b", {{"ratio", 0.5F}}}}));
  model.nodes[1].outputs.emplace_back("mask");
  CHECK_THAT(import_model(model, {}).text.parameters, Catch::Contains("keep=0.5\n"));
  model.nodes[2].inputs[0] = "mask";
  CHECK_THROWS_WITH(import_model(model, {}),
                    "m.onnx: node 'b' (Dropout): its output 2 is in use, which no layer has");
}

TEST_CASE("operators above a refused one are named, too, if no input could save them") {
  check_refused(small_model({{"LayerNormalization", {"a"}, "n1", {}},
                             {"Relu", {"n1"}, "r", {}},
                             {"LayerNormalization", {"r"}, "n2", {}},
                             {"Shape", {"n2"}, "s", {}},
                             {"Reshape", {"n2", "s"}, "b", {}}}),
                "m.onnx: node 'n1' (LayerNormalization): no layer computes it\n"
                "m.onnx: node 'n2' (LayerNormalization): no layer computes it");
}

TEST_CASE("zeros around maps that no windows take in are a convolution of ones") {
  const OnnxModel model = small_model({{"Pad", {"a", "pads"}, "p", {}}, {"Relu", {"p"}, "b", {}}},
                                      {integers("pads", {0, 0, 1, 2, 0, 0, 3, 0})});
  ImportedModel net = import_of(model);
  CHECK_THAT(net.text.definition,
             Catch::Contains("\n# The same maps with zeros around them. It learns nothing.\n[p]\ntype=conv\n"
                             "inputs=conv1\nchannels=4\nfilters=1\ngroups=4\nfilterSize=1\npadding=2\n"
                             "paddingY=1\npaddingEnd=0\npaddingEndY=3\nbiases=0\nneuron=relu\n"));
  CHECK_THAT(net.text.parameters, Catch::Contains("\n[p]\nepsW=0\n"));
  const Checkpoint checkpoint = checkpoint_of(net, "net.cfg", "net-params.cfg");
  CHECK(checkpoint.tensors.tensors.at("p.weights.conv1").values == std::vector<float>(4, 1.0F));
}

TEST_CASE("windows over a border of its own operator keep their numbers and what they divide by") {
  const auto pool_over_border = [](const Ints& pads, const char* op, std::vector<OnnxAttribute> attributes) {
    attributes.push_back({"kernel_shape", Ints{3, 3}});
    const ImportedModel net = import_of(
        small_model({{"Relu", {"a"}, "r", {}}, {"Pad", {"r", "pads"}, "p", {}}, {op, {"p"}, "b", attributes}},
                    {integers("pads", pads)}));
    return net.text.definition;
  };
  const Ints all = {0, 0, 1, 1, 0, 0, 1, 1}, behind = {0, 0, 0, 0, 0, 0, 1, 1};
  // The operator leaves its own border out, so the zeros below it have to be maps.
  const std::string own = pool_over_border(all, "AveragePool", {{"pads", Ints{1, 1, 1, 1}}});
  CHECK_THAT(own, Catch::Contains("[p]\ntype=conv\n") && !Catch::Contains("sum=1"));
  CHECK_THAT(pool_over_border(all, "AveragePool", {}), Catch::Contains("sum=1") && !Catch::Contains("[p]\n"));
  // Windows begin at rows 0, 3 and 6, whether there are 9 rows or 8 and one of border.
  const Ints threes = {3, 3};
  CHECK_THAT(pool_over_border(behind, "MaxPool", {{"strides", threes}, {"ceil_mode", std::int64_t{1}}}),
             !Catch::Contains("[p]\n"));
  // A window that begins at row 8 shows the border alone, but is none less.
  const Ints fours = {4, 4};
  const std::string last =
      pool_over_border(behind, "MaxPool", {{"strides", fours}, {"ceil_mode", std::int64_t{1}}});
  CHECK_THAT(last, Catch::Contains("[p]\ntype=conv\n"));
  CHECK_NOTHROW(import_of(
      small_model({{"Relu", {"a"}, "r", {}},
                   {"Pad", {"r", "pads"}, "p", {}},
                   {"MaxPool",
                    {"p"},
                    "q",
                    {{"kernel_shape", Ints{3, 3}}, {"strides", fours}, {"ceil_mode", std::int64_t{1}}}},
                   {"Reshape", {"q", "shape"}, "b", {}}},
                  {integers("pads", behind), integers("shape", {1, 4, 3, 3})})));
}

TEST_CASE("a small term stays where a logarithm may need it") {
  const OnnxConstant small{"e", {1}, std::vector<float>{1e-8F}};
  const std::string net =
      import_of(small_model({{"Relu", {"a"}, "r", {}}, {"Add", {"r", "e"}, "s", {}}, {"Log", {"s"}, "b", {}}},
                            {small}))
          .text.definition;
  CHECK_THAT(net, Catch::Contains("1e-08"));
}

TEST_CASE("constants of three inputs, of truth values and of far limits are computed as ONNX says") {
  const auto times = [](std::vector<OnnxNode> nodes, std::vector<OnnxConstant> constants) {
    nodes.push_back({"Relu", {"a"}, "r", {}});  // a factor of a convolution would go into its weights
    nodes.push_back({"Mul", {"r", "factor"}, "b", {}});
    return import_of(small_model(std::move(nodes), std::move(constants))).text.definition;
  };
  const auto one = [](const char* name, float value) {
    return OnnxConstant{name, {1}, std::vector<float>{value}};
  };
  CHECK_THAT(times({{"Max", {"k", "l", "m"}, "factor", {}}}, {one("k", 2), one("l", 3), one("m", 5)}),
             Catch::Contains("linear[5,0]"));
  // Constants without numbers have sides that add up, too.
  const OnnxConstant two{"k", {0, 2}, std::vector<float>{}}, three{"l", {0, 3}, std::vector<float>{}};
  CHECK_THAT(times({{"Concat", {"k", "l"}, "joined", {{"axis", std::int64_t{1}}}},
                    {"Shape", {"joined"}, "shape", {}},
                    {"Gather", {"shape", "i"}, "side", {}},
                    {"Cast", {"side"}, "factor", {{"to", std::int64_t{1}}}}},
                   {two, three, integers("i", {1})}),
             Catch::Contains("linear[5,0]"));
  CHECK_THAT(times({{"Cast", {"k"}, "t", {{"to", std::int64_t{9}}}},
                    {"Cast", {"t"}, "u", {{"to", std::int64_t{1}}}},
                    {"Add", {"u", "k"}, "factor", {}}},
                   {one("k", 0.5F)}),
             Catch::Contains("linear[1.5,0]"));
}

TEST_CASE("many refused operators are named up to a number") {
  std::vector<OnnxNode> nodes;
  for (int i = 0; i < 80; ++i) nodes.push_back({"Unheard", {"a"}, "u" + std::to_string(i), {}});
  OnnxNode sum{"Sum", {}, "b", {}};
  for (int i = 0; i < 60; ++i) sum.inputs.push_back("u" + std::to_string(i));
  nodes.push_back(sum);
  check_refused(small_model(nodes),
                "m.onnx: node 'u49' (Unheard): no layer computes it\nm.onnx: … and 10 more");
}

}  // namespace convnet
