// .npy files, predictions and the confusion matrix.
#include "convnet/net/predictions.h"

#include <cstring>
#include <filesystem>

#include "convnet/base/error.h"
#include "convnet/net/input_data.h"
#include "convnet/train/npy_writer.h"
#include "tests/catch.h"
#include "tests/layers/small_net.h"
#include "tests/temp_folder.h"

using namespace convnet;
using namespace convnet::test;

namespace {

/// Bytes of float32 or int32 numbers.
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::string padded(std::string dict) {
  const std::size_t length = (10 + dict.size() + 1 + 63) / 64 * 64 - 10;
  dict.resize(length - 1, ' ');
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(length) + '\0' + dict + '\n';
}

}  // namespace

TEST_CASE("npy files hold what was appended, and appear when they are whole") {
  const TempFolder folder;
  const std::string path = folder / "a.npy";
  {
    NpyWriter file(path, {3, 2}, DataType::f32);
    file.append(std::vector<float>{1, 2});
    file.append(std::vector<float>{3, 4, 5, 6.5F});
    CHECK_FALSE(std::filesystem::exists(path));
    file.finish();
  }
  CHECK(read_file(path) == padded("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }") +
                               bytes_of<float>({1, 2, 3, 4, 5, 6.5F}));
  CHECK(read_file(path).size() == 128 + 6 * 4);
  {
    NpyWriter file(path, {2}, DataType::s32);
    file.append(std::vector<std::int32_t>{-1, 7});
    file.finish();
  }
  CHECK(read_file(path) == padded("{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }") +
                               bytes_of<std::int32_t>({-1, 7}));
  const std::string before = read_file(path);
  {
    NpyWriter file(path, {2}, DataType::s32);
    file.append(std::vector<std::int32_t>{9});
    CHECK_THROWS_AS(file.finish(), std::logic_error);
    CHECK_THROWS_AS(file.append(std::vector<float>{1}), std::logic_error);
    CHECK_THROWS_AS(file.append(std::vector<std::int32_t>{1, 2}), std::logic_error);
  }
  CHECK(read_file(path) == before);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
  CHECK(message_of<RunError>([&] { NpyWriter(folder / "none/a.npy", {1}, DataType::f32); }) ==
        folder / "none/a.npy" + ": cannot be written: No such file or directory");
}

TEST_CASE("the first of the most probable outputs is the prediction") {
  CHECK(best_output(std::vector<float>{0.2F, 0.4F, 0.4F}) == 1);
  CHECK(best_output(std::vector<float>{0.25F, 0.25F, 0.25F, 0.25F}) == 0);
}

TEST_CASE("a confusion matrix as table and CSV") {
  Confusion confusion({"a", "b, \"c\"", "long name", "unseen"});
  const auto add = [&](std::int64_t label, std::int64_t predicted, int times) {
    for (int i = 0; i < times; ++i) confusion.add(label, predicted);
  };
  add(0, 0, 3);
  add(0, 1, 1);
  add(1, 0, 2);
  add(1, 2, 2);
  add(2, 2, 5);
  add(-1, 2, 1);  // no class
  add(4, 2, 1);
  CHECK(confusion.images() == 13);
  CHECK(confusion.count(1, 2) == 2);
  // The first of equally frequent mistakes is shown; a class without images has no line.
  CHECK(confusion.table(20) ==
        "  b, \"c\"     1.0000       4 of      4  2 taken for a\n"
        "  a          0.2500       1 of      4  1 taken for b, \"c\"\n"
        "  long name  0.0000       0 of      5\n");
  CHECK(confusion.table(1) ==
        "  b, \"c\"  1.0000       4 of      4  2 taken for a\n"
        "  and 2 more classes; --confusion FILE.csv has all\n");
  CHECK(confusion.csv() ==
        "true class,a,\"b, \"\"c\"\"\",long name,unseen\r\n"
        "a,3,1,0,0\r\n"
        "\"b, \"\"c\"\"\",2,0,2,0\r\n"
        "long name,0,0,5,0\r\n"
        "unseen,0,0,0,0\r\n");
}

TEST_CASE("precision, recall and F1 of classes, and their means") {
  Confusion confusion({"a", "b", "c", "d", "e"});
  const auto add = [&](std::int64_t label, std::int64_t predicted, int times) {
    for (int i = 0; i < times; ++i) confusion.add(label, predicted);
  };
  CHECK(confusion.macro_averages().classes == 0);
  CHECK(confusion.macro_averages().f1 == 0);
  add(0, 0, 3);
  add(0, 1, 1);
  add(1, 0, 2);
  add(1, 3, 2);  // d has no images; e has none, and nothing is taken for it
  add(2, 0, 1);
  const std::vector<ClassErrors> classes = confusion.by_class();
  REQUIRE(classes.size() == 3);
  CHECK(classes[0].predicted == 6);
  CHECK(classes[0].precision() == Approx(3.0 / 6));
  CHECK(classes[0].recall() == Approx(3.0 / 4));
  CHECK(classes[0].f1() == Approx(2 * 0.5 * 0.75 / (0.5 + 0.75)));
  CHECK(classes[1].predicted == 1);
  CHECK(classes[2].predicted == 0);
  for (const std::size_t c : {1, 2}) {
    CHECK(classes[c].precision() == 0);
    CHECK(classes[c].recall() == 0);
    CHECK(classes[c].f1() == 0);
  }
  const MacroAverages macro = confusion.macro_averages();
  CHECK(macro.classes == 4);
  CHECK(macro.precision == Approx(0.5 / 4));
  CHECK(macro.recall == Approx(0.75 / 4));
  CHECK(macro.f1 == Approx(0.6 / 4));
}

TEST_CASE("a name in a CSV file is text for spreadsheets, too") {
  CHECK(csv_field("cat") == "cat");
  CHECK(csv_field("a=b") == "a=b");
  CHECK(csv_field("=cmd|' /C calc'!A0") == "'=cmd|' /C calc'!A0");
  CHECK(csv_field("=1,2") == "\"'=1,2\"");
  for (const char* name : {"+1", "-1", "@sum", "\tx"}) CHECK(csv_field(name) == "'" + std::string(name));
}

TEST_CASE("classes keep their numbers, though two may share a name") {
  const auto set = [](std::vector<std::string> names) {
    return std::vector<MatrixInfo>{{"data", {1, 2, 2}, DataType::u8, 0},
                                   {"labels", {1}, DataType::s32, std::ssize(names), std::move(names)}};
  };
  const std::vector<MatrixInfo> cranes = set({"hen", "crane", "stork", "crane"});
  CHECK(renumbered_class(cranes, cranes).empty());
  CHECK_THAT(renumbered_class(cranes, set({"crane", "hen", "stork", "crane"})),
             Catch::StartsWith("its class 0 is 'crane', which was class 1 where the net was trained"));
  const std::string what_to_do =
      "it has 2 of the 3 classes that the net was trained on, and not 'hen': in folders of classes, an empty "
      "folder of that name keeps its place";
  const std::vector<MatrixInfo> birds = set({"crane", "hen", "stork"});
  CHECK(renumbered_class(birds, set({"crane", "stork"})) == what_to_do);
  CHECK(missing_class(birds, set({"crane", "stork"})) == what_to_do);
  CHECK(missing_class(birds, set({"crane", "tern"})).empty());
  CHECK(missing_class(birds, birds).empty());
  CHECK(missing_class(birds, set({"crane", "hen", "stork", "tern"})).empty());
}

TEST_CASE("a classifier is a cost.logreg") {
  const NetTexts one = between_data_and_cost(
      "[fc1]\ntype=fc\ninputs=data\noutputs=3\n[p2]\ntype=softmax\ninputs=fc1\n", "fc1", 3);
  SmallNet single(
      {one.definition + "[free]\ntype=cost.sum2\ninputs=p2\n", one.parameters + "[free]\ncoeff=1\n"},
      {1, 2, 2}, 3);
  std::vector<MatrixInfo> matrices = {{"data", {1, 2, 2}, DataType::f32, 0},
                                      {"labels", {1}, DataType::s32, 3}};
  CHECK(find_classifier(single.graph(), matrices, "").class_names == std::vector<std::string>{"0", "1", "2"});
  matrices[1].class_names = {"cat", "d\x1bog\n", "owl"};
  const Classifier classifier = find_classifier(single.graph(), matrices, "");
  CHECK(classifier.cost == "logprob");
  CHECK(classifier.softmax == "probs");
  CHECK(classifier.labels == 1);
  CHECK(classifier.outputs == 3);
  CHECK(classifier.class_names == std::vector<std::string>{"cat", "d?og?", "owl"});
  CHECK(message_of<InputError>([&] { find_classifier(single.graph(), matrices, "logprop"); }) ==
        "--logreg-name logprop: the net has no such cost.logreg layer; did you mean 'logprob'?");
  CHECK(message_of<InputError>([&] { find_classifier(single.graph(), matrices, "free"); }) ==
        "--logreg-name free: the net has no such cost.logreg layer; there is logprob");

  SmallNet both({one.definition + "[second]\ntype=cost.logreg\ninputs=labels,p2\n",
                 one.parameters + "[second]\ncoeff=1\n"},
                {1, 2, 2}, 3);
  CHECK(find_classifier(both.graph(), matrices, "second").softmax == "p2");
  CHECK(message_of<InputError>([&] { find_classifier(both.graph(), matrices, ""); }) ==
        "the net has several cost.logreg layers: --logreg-name must be one of logprob, second");
}

TEST_CASE("the answer of a net is what its first cost compares") {
  const std::vector<MatrixInfo> matrices = {{"data", {1, 2, 2}, DataType::f32, 0},
                                            {"labels", {1}, DataType::s32, 3, {"cat", "dog", "owl"}},
                                            {"targets", {3}, DataType::f32, 0}};
  const auto answer = [&](const std::string& layers, const std::string& costs,
                          const std::string& asked = "") {
    const std::string used = layers + costs;
    std::string definition = "[data]\ntype=data\ndataIdx=0\n";
    if (used.find("labels") != std::string::npos) definition += "[labels]\ntype=data\ndataIdx=1\n";
    if (used.find("targets") != std::string::npos) definition += "[targets]\ntype=data\ndataIdx=2\n";
    definition += "[fc1]\ntype=fc\ninputs=data\noutputs=3\n" + used;
    std::string parameters = "[DEFAULT]\nepsW=0.1\nepsB=0.1\nmomW=0\nmomB=0\n[fc1]\n";
    if (used.find("[back]") != std::string::npos) parameters += "[back]\n";
    for (const std::string name : {"free", "first", "second"})
      if (costs.find("[" + name + "]") != std::string::npos) parameters += "[" + name + "]\ncoeff=1\n";
    Diagnostics diagnostics;
    const IniFile net = parse_ini("net.cfg", definition, diagnostics);
    const Graph graph =
        build_graph(net, parse_ini("params.cfg", parameters, diagnostics), matrices, {}, diagnostics);
    diagnostics.throw_if_errors();
    return find_answer(graph, matrices, asked);
  };
  using Names = std::vector<std::string>;
  const std::string difference = "[d]\ntype=eltsum\ninputs=targets,fc1\ncoeffs=-1,1\n",
                    logistic = "[p]\ntype=neuron\ninputs=fc1\nneuron=logistic\n",
                    softmax = "[p]\ntype=softmax\ninputs=fc1\n",
                    free = "[free]\ntype=cost.sum2\ninputs=fc1\n";
  const auto first = [](const std::string& type, const std::string& inputs) {
    return "[first]\ntype=cost." + type + "\ninputs=" + inputs + "\n";
  };

  CHECK(answer(difference, free + first("sum2", "d")).layers == Names{"fc1"});
  CHECK(answer(difference, first("sum2", "d")).class_names.empty());
  CHECK(answer(difference + "[e]\ntype=neuron\ninputs=d\nneuron=abs\n", first("sum2", "e")).layers ==
        Names{"fc1"});
  // An autoencoder compares its output with its input.
  CHECK(answer("[back]\ntype=fc\ninputs=fc1\noutputs=4\ninitW=1\n[d]\ntype=eltsum\ninputs=back,data\n"
               "coeffs=1,-1\n",
               first("sum2", "d"))
            .layers == Names{"back"});
  CHECK(answer(logistic, first("bce", "targets,p")).layers == Names{"p"});
  CHECK(answer(logistic, first("bce", "targets,p")).class_names == Names{"cat", "dog", "owl"});
  CHECK(answer(softmax, first("crossent", "targets,p")).class_names == Names{"cat", "dog", "owl"});
  // A cost.logreg counts, wherever it stands.
  CHECK(answer(difference + softmax, first("sum2", "d") + "[second]\ntype=cost.logreg\ninputs=labels,p\n")
            .layers == Names{"p"});
  CHECK(answer(softmax, first("crossent", "targets,p"), " fc1, p").layers == Names{"fc1", "p"});
  CHECK(answer(softmax, first("crossent", "targets,p"), "p").class_names.empty());
  CHECK(message_of<InputError>([&] { answer("", free); }) ==
        "no cost of the net compares a layer with labels or targets: --output must say which layers are the "
        "outputs");
  CHECK(message_of<InputError>([&] { answer("", free, "fc1,fc1"); }) == "--output names 'fc1' twice");
  CHECK(message_of<InputError>([&] { answer("", free, "fc2"); }) ==
        "the net has no layer 'fc2'; did you mean 'fc1'?");
}
