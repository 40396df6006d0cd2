// Files written as users write them give the net that their clean form gives. Mistakes are
// located, and all of them are found in one run.
#include <algorithm>
#include <functional>

#include "tests/layers/against_reference.h"

using namespace convnet;
using namespace convnet::test;

namespace {

Built build(const std::string& definition, const std::string& parameters) {
  return build_net(
      {definition, parameters},
      ShapeOnlyProvider({3, 12, 12}, 4, {{4, ExtraMatrix::one_hot}, {5, ExtraMatrix::multi_hot}}));
}

std::string described(const WeightSpec& w) {
  const auto number = [](double v) { return std::to_string(v); };
  return w.name + " " + to_string(w.dims) + " init " + number(w.init_stdev) + " " + number(w.init_value) +
         " rates " + w.learning.epsilon.str() + " " + number(w.learning.momentum) + " " +
         number(w.learning.decay) + " limits " + number(w.constraint.norm_min) + " " +
         number(w.constraint.norm_max) + " " + number(w.constraint.ball);
}

/// Returns one line for each node and matrix.
std::vector<std::string> described(const Graph& graph) {
  std::vector<std::string> lines;
  for (const Node& node : graph.nodes) {
    std::string line = node.name + " " + node.type + " " + node.layer->output.str() + " from";
    for (const NodeId input : node.inputs) line += " " + graph.nodes[input].name;
    if (node.is_cost()) line += " coeff " + std::to_string(node.layer->facts.cost->coeff);
    lines.push_back(line);
    for (std::size_t i = 0; i < node.layer->weights.size(); ++i) {
      const WeightOwner& owner = node.owners[i];
      lines.push_back("  " + described(node.layer->weights[i]) + " of " + graph.nodes[owner.node].name + " " +
                      std::to_string(owner.index));
    }
  }
  return lines;
}

const std::string kDefinition = R"([data]
type=data
dataIdx=0
[labels]
type=data
dataIdx=1
[conv1]
type=conv
inputs=data
channels=3
filters=8
filterSize=3
padding=1
initW=0.01
neuron=tanh[1.7,0.6]
[pool1]
type=pool
pool=max
inputs=conv1
channels=8
sizeX=3
stride=2
start=-1
[rnorm1]
type=cmrnorm
inputs=pool1
channels=8
size=4
[conv2]
type=conv
inputs=pool1,rnorm1
channels=8
filters=4
filterSize=3,1
padding=1,0
initW=0.1,0.2
neuron=relu
[fc10]
type=fc
inputs=conv2
outputs=4
[probs]
type=softmax
inputs=fc10
[logprob]
type=cost.logreg
inputs=labels,probs
)";

const std::string kParameters = R"([conv1]
epsW=dexp[base=0.01;tgtFactor=250;numSteps=4]
epsB=linear[base=0.02;tgtFactor=10]
momW=0.9
momB=0.9
wc=0.004
[rnorm1]
scale=0.001
pow=0.75
[conv2]
epsW=0.001,0.002
epsB=0.002
momW=0.9
momB=0.8
wc=0
[fc10]
epsW=0.001
epsB=0.002
momW=0.9
momB=0.9
wc=1
[logprob]
coeff=1
topk=2
)";

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

/// Applies `change` to every line.
std::string each_line(const std::string& text, const std::function<std::string(std::string)>& change) {
  std::string result;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    result += change(text.substr(begin, end - begin)) + "\n";
    begin = end + 1;
  }
  return result;
}

/// Does the same to lines that give a key: (key, value).
std::string each_key(const std::string& text,
                     const std::function<std::string(std::string, std::string)>& change) {
  return each_line(text, [&](const std::string& line) {
    const std::size_t equals = line.find('=');
    if (line[0] == '[' || equals == std::string::npos) return line;
    return change(line.substr(0, equals), line.substr(equals + 1));
  });
}

struct Quirk {
  std::string name;
  std::function<std::string(const std::string&)> change;  ///< applied to both files
  std::size_t warnings = 0;
};

bool mentions(const std::vector<std::string>& messages, const std::vector<std::string>& words) {
  return std::any_of(messages.begin(), messages.end(), [&](const std::string& message) {
    return std::all_of(words.begin(), words.end(),
                       [&](const std::string& word) { return message.find(word) != std::string::npos; });
  });
}

/// Returns the line of the first occurrence, counted from 1.
std::string line_of(const std::string& text, const std::string& what) {
  const std::size_t at = text.find(what);
  REQUIRE(at != std::string::npos);
  return std::to_string(1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

void same_net(const std::string& definition, const std::string& parameters, std::size_t warnings = 0) {
  const Built clean = build(kDefinition, kParameters);
  REQUIRE(clean.errors.empty());
  REQUIRE(clean.warnings.empty());
  const Built quirky = build(definition, parameters);
  CAPTURE(quirky.errors, quirky.warnings);
  REQUIRE(quirky.errors.empty());
  CHECK(described(quirky.graph) == described(clean.graph));
  CHECK(quirky.warnings.size() == warnings);
}

}  // namespace

TEST_CASE("ways of writing a file do not change the net") {
  const auto spread = [](const std::string& blank) {
    return [blank](const std::string& text) {
      return each_key(
          text, [&](const std::string& k, const std::string& v) { return k + blank + "=" + blank + v; });
    };
  };
  const std::vector<Quirk> quirks = {
      {"CRLF", [](const std::string& t) { return replaced(t, "\n", "\r\n"); }},
      {"a byte order mark", [](const std::string& t) { return "\xEF\xBB\xBF" + t; }},
      {"comments behind values",
       [](const std::string& t) {
         return each_line(t, [](const std::string& l) { return l + " # of [it]=; all"; });
       }},
      {"comments behind values, with semicolons and tabs",
       [](const std::string& t) {
         return each_line(t, [](const std::string& l) { return l + "\t; sections=1"; });
       }},
      {"indented comments between lines",
       [](const std::string& t) {
         return each_line(t, [](const std::string& l) { return "# a=b\n" + l + "\n  ; [x]"; });
       }},
      {"blanks around =", spread("  ")},
      {"tabs around =", spread("\t ")},
      {"blanks behind lines",
       [](const std::string& t) { return each_line(t, [](const std::string& l) { return l + " \t"; }); }},
      {"empty lines",
       [](const std::string& t) {
         return each_line(t, [](const std::string& l) { return "\n" + l + "\n  "; });
       }},
      {"colons",
       [](const std::string& t) {
         return each_key(t, [](const std::string& k, const std::string& v) { return k + ": " + v; });
       }},
      {"keys in capitals",
       [](const std::string& t) {
         return each_key(t, [](std::string k, const std::string& v) {
           for (char& ch : k) ch = static_cast<char>(std::toupper(ch));
           return k + "=" + v;
         });
       }},
      {"blanks behind commas", [](const std::string& t) { return replaced(t, ",", " ,  "); }},
      {"lines of thousands of characters",
       [](const std::string& t) {
         return each_line(t, [](const std::string& l) {
           return l + std::string(3000, ' ') + "# " + std::string(500, '=');
         });
       }},
      {"lists over several lines", [](const std::string& t) { return replaced(t, ",", ",\n   "); }},
      {"a section in two parts",
       [](const std::string& t) {
         return replaced(t, "filters=8\n", "") + (t == kDefinition ? "[conv1]\nfilters=8\n" : "");
       }},
      {"another encoding behind #",
       [](const std::string& t) {
         return each_line(t, [](const std::string& l) { return l + " # \xE9t\xE9"; });
       }},
  };
  for (const Quirk& q : quirks) {
    INFO(q.name);
    same_net(q.change(kDefinition), q.change(kParameters), q.warnings);
  }
}

TEST_CASE("keys of published files") {
  const auto in = [](const std::string& text, const std::string& what, const std::string& by) {
    REQUIRE(text.find(what) != std::string::npos);
    return replaced(text, what, by);
  };
  const std::string& d = kDefinition;
  const std::string& p = kParameters;
  same_net(in(d, "filters=8\n", "filters=8\npartialSum=4\nsharedBiases=1\nmodulesX=0\ngroups=1\nstride=1\n"),
           p);
  same_net(in(d, "filters=8\n", "filters=8\nsumWidth=4\nmodulesX=12\n"), p);
  same_net(in(d, "start=-1\n", "start=-1\noutputsX=0\nsum=0\n"), p);
  same_net(in(d, "start=-1\n", "start=-1\noutputsX=6\n"), p);
  same_net(in(d, "type=", "gpu=0\ntype="), p);
  same_net(d + "[DEFAULT]\nmomW=0.5\nnothing=here\n", p);
  same_net(d, "[DEFAULT]\nrate=0.001\n" + in(p, "[fc10]\nepsW=0.001", "[fc10]\nepsW=%(rate)s"));
  // Lists with a value for each input, or one for all; schedules with their arguments in any order.
  same_net(in(d, "inputs=pool1,rnorm1\nchannels=8", "inputs=pool1,rnorm1\nchannels=8,8"),
           in(p, "wc=0\n", "wc=0,0.0\n"));
  same_net(d, in(p, "dexp[base=0.01;tgtFactor=250;numSteps=4]", "dexp[numSteps=4;base=1e-2;tgtFactor=250]"));
  same_net(d, in(p, "epsB=0.002\n", "epsB=const[base=0.002]\n"));
  // A key given twice: the last one counts.
  same_net(in(d, "filters=8\n", "filters=99\nfilters=8\n"), p, 1);
  same_net(d, in(p, "momB=0.8\n", "momB=0.1\nmomB=0.2\nmomb=0.8\n"), 2);
  // Forks' keys, keys in the wrong file, sections of layers that are not there.
  same_net(in(d, "filters=8\n", "filters=8\ndisableBprop=1\nbatchNormStyle=fork\n"), p, 2);
  same_net(in(d, "filters=8\n", "filters=8\nwc=3\n"), p, 1);
  same_net(d, p + "[conv3]\nepsW=0.1\n[fc-old]\nepsB=1\n", 2);
  same_net(d, in(p, "wc=1\n", "wc=1\noutputs=7\n"), 1);

  const Built wrong_file = build(in(d, "filters=8\n", "filters=8\nwc=3\n"), p);
  CHECK(mentions(wrong_file.warnings, {"net.cfg:12:", "wc", "parameter"}));
  const Built no_layer = build(d, p + "[conv3]\nepsW=0.1\n");
  CHECK(mentions(no_layer.warnings, {"params.cfg:", "conv3"}));
}

TEST_CASE("any section name works") {
  const auto renamed = [](const std::string& text) {
    return replaced(replaced(replaced(text, "conv1", "conv-1.a b"), "pool1", "7"), "fc10", "Fc.10 (top)");
  };
  const Built clean = build(kDefinition, kParameters);
  const Built quirky = build(renamed(kDefinition), renamed(kParameters));
  CAPTURE(quirky.errors, quirky.warnings);
  CHECK(quirky.errors.empty());
  CHECK(quirky.warnings.empty());
  std::vector<std::string> expected;
  for (const std::string& line : described(clean.graph)) expected.push_back(renamed(line));
  CHECK(described(quirky.graph) == expected);
}

TEST_CASE("several data layers and costs") {
  const std::string more = R"([onehot]
type=data
dataIdx=2
[tags]
type=data
dataIdx=3
start=1
end=5
[ce]
type=cost.crossent
inputs=onehot,probs
[fc4]
type=fc
inputs=conv2
outputs=4
neuron=logistic
[bce]
type=cost.bce
inputs=tags,fc4
)";
  const std::string rates = "[ce]\ncoeff=0\n[bce]\ncoeff=0.5\n[fc4]\nepsW=1\nepsB=1\nmomW=0\nmomB=0\n";
  const Built built = build(kDefinition + more, kParameters + rates);
  CAPTURE(built.errors);
  REQUIRE(built.errors.empty());
  CHECK(built.graph.find("onehot")->layer->output.str() == "4");
  CHECK(built.graph.find("tags")->layer->output.str() == "4");
  CHECK(built.graph.find("bce")->layer->facts.cost->coeff == 0.5);
}

TEST_CASE("dropout= on any layer, in either file") {
  const std::string in_definition = replaced(kDefinition, "padding=1,0\n", "padding=1,0\ndropout=0.25\n");
  const std::string in_parameters = replaced(kParameters, "momB=0.8\n", "momB=0.8\ndropout=0.25\n");
  const Built a = build(in_definition, kParameters), b = build(kDefinition, in_parameters);
  for (const Built* built : {&a, &b}) {
    CAPTURE(built->errors, built->warnings);
    REQUIRE(built->errors.empty());
    CHECK(built->warnings.empty());
    const Node* dropout = built->graph.find("conv2_dropout");
    REQUIRE(dropout != nullptr);
    CHECK(built->graph.nodes[dropout->inputs[0]].name == "conv2");
    const Node* neuron = built->graph.find("conv2_neuron");
    REQUIRE(neuron != nullptr);
    CHECK(neuron->inputs == std::vector<NodeId>{dropout->id});
    const Node* user = built->graph.find("fc10");
    CHECK(user->inputs == std::vector<NodeId>{neuron->id});
  }
  CHECK(described(a.graph) == described(b.graph));
  train_like_reference(
      {"dropout in the parameter file",
       {3, 5, 5},
       2,
       conv("c", "inputs=data channels=3 filters=4 filterSize=3 neuron=relu") +
           section("p", "pool", "pool=avg inputs=c channels=4 sizeX=2 stride=1"),
       "p",
       keys_of("c", "epsW=0.1 epsB=0.1 momW=0.9 momB=0.9 dropout=0.4") + keys_of("p", "dropout=0.2")});
}

TEST_CASE("of two dropout= the parameter file's counts, which a resumed run reads again") {
  const std::string definition = replaced(kDefinition, "padding=1,0\n", "padding=1,0\ndropout=0.2\n");
  const Built same = build(kDefinition, replaced(kParameters, "momB=0.8\n", "momB=0.8\ndropout=0.25\n"));
  const Built both = build(definition, replaced(kParameters, "momB=0.8\n", "momB=0.8\ndropout=0.25\n"));
  CHECK(described(both.graph) == described(same.graph));
  CHECK(mentions(both.warnings, {"params.cfg:", "'conv2'", "'dropout' is given in both files"}));
  const Built off = build(definition, replaced(kParameters, "momB=0.8\n", "momB=0.8\ndropout=0\n"));
  CHECK(off.graph.find("conv2_dropout") == nullptr);
}

TEST_CASE("dropout= acts on images; what has no effect on data and costs gets a warning") {
  const Built images =
      build(replaced(kDefinition, "dataIdx=0\n", "dataIdx=0\ndropout=0.1\nneuron=relu\n"), kParameters);
  REQUIRE(images.errors.empty());
  REQUIRE(images.graph.find("data_dropout") != nullptr);
  CHECK(images.graph.find("data_neuron") == nullptr);
  CHECK(mentions(images.warnings, {"net.cfg:5:", "'data'", "'neuron' has no effect"}));
  const Built labels = build(replaced(kDefinition, "dataIdx=1\n", "dataIdx=1\ndropout=0.1\n"), kParameters);
  REQUIRE(labels.errors.empty());
  CHECK(mentions(labels.warnings, {"net.cfg:7:", "'labels'", "'dropout' has no effect"}));
  CHECK(labels.graph.find("labels_dropout") == nullptr);
}

TEST_CASE("a layer that makes the labels of a cost does not learn through them") {
  const std::string layers = fc("soft", "inputs=data outputs=4") + section("q", "softmax", "inputs=soft") +
                             fc("f", "inputs=data outputs=4") + section("p", "softmax", "inputs=f") +
                             section("x", "cost.crossent", "inputs=q,p");
  const Built built = build(section("data", "data", "dataIdx=0") + layers,
                            "[DEFAULT]\nepsW=0.1\nepsB=0.1\nmomW=0.9\nmomB=0.9\n[soft]\n[f]\n[x]\ncoeff=1\n");
  CAPTURE(built.errors);
  REQUIRE(built.errors.empty());
  CHECK_FALSE(built.graph.find("soft")->gets_gradient);
  CHECK_FALSE(built.graph.find("q")->gets_gradient);
  CHECK(built.graph.find("f")->gets_gradient);
}

TEST_CASE("coeffs is honoured in both files") {
  const auto eltsum = [](const std::string& definition, const std::string& parameters) {
    return build(
        replaced(kDefinition, "[fc10]", "[sum]\ntype=eltsum\ninputs=pool1,rnorm1\n" + definition + "[fc10]") +
            "[fc2]\ntype=fc\ninputs=sum\noutputs=4\n[p2]\ntype=softmax\ninputs=fc2\n[cost2]\ntype=cost."
            "logreg\n"
            "inputs=labels,p2\n",
        kParameters + "[fc2]\nepsW=1\nepsB=1\nmomW=0\nmomB=0\n[cost2]\ncoeff=1\n" + parameters);
  };
  for (const Built& built : {eltsum("coeffs=0.5,2\n", ""), eltsum("", "[sum]\ncoeffs=0.5,2\n")}) {
    CAPTURE(built.errors, built.warnings);
    CHECK(built.errors.empty());
    CHECK(built.warnings.empty());
  }
}

TEST_CASE("random sparse connections are another net, which is said aloud") {
  const auto with = [](const std::string& value) {
    return build(replaced(kDefinition, "filters=8\n", "filters=8\nrandSparse=" + value + "\n"), kParameters);
  };
  const Built sparse = with("true");
  CHECK(sparse.errors.empty());
  CHECK(mentions(sparse.warnings, {"net.cfg:12:", "conv1", "randSparse"}));
  const auto loud = [](const std::string& warning) {
    return warning.find("randSparse") != std::string::npos &&
           warning.find("ANOTHER NET") != std::string::npos;
  };
  CHECK(std::count_if(sparse.warnings.begin(), sparse.warnings.end(), loud) == 1);
  const Built list =
      build(replaced(kDefinition, "padding=1,0\n", "padding=1,0\nrandSparse=false,true\n"), kParameters);
  CHECK(std::count_if(list.warnings.begin(), list.warnings.end(), loud) == 1);
  for (const char* value : {"false", "0"}) {
    const Built dense = with(value);
    CHECK(dense.errors.empty());
    CHECK(std::count_if(dense.warnings.begin(), dense.warnings.end(), loud) == 0);
  }
}

TEST_CASE("all mistakes of a net are found in one run, each at its place") {
  const std::string definition = R"([data]
type=data
dataIdx=0
[labels]
type=data
dataIdx=1
[cccp1]
type=cccp
inputs=data
[max1]
type=maxout
inputs=data
[c1]
type=conv
inputs=data
channels=3
filters=4
filterSize=3
modulesX=5
[c2]
type=conv
inputs=data
channels=3
filters=4
filterSize=3
neuron=prelu
[late]
type=fc
inputs=later
outputs=3
[later]
type=fc
inputs=late
outputs=3
[self]
type=fc
inputs=self
outputs=3
[lonely]
type=fc
inputs=data
outputs=3
[yuv]
type=rgb2yuv
inputs=c3
[c3]
type=conv
inputs=data
channels=3
filters=3
filterSize=3
[hinge]
type=cost.hinge
inputs=labels,data
[few]
type=pool
pool=max
channels=3
inputs=data
sizeX=13
stride=1
[typo]
type=fc
inputs=date
outputs=3
)";
  std::string parameters;
  for (const char* layer : {"c1", "c2", "c3", "late", "later", "self", "lonely", "typo"})
    parameters += std::string("[") + layer + "]\nepsW=0.1\nepsB=0.1\nmomW=0.9\nmomB=0.9\n";
  const Built built = build(definition, parameters);
  CAPTURE(built.errors);
  const auto at = [&](const std::string& what, std::vector<std::string> words) {
    words.push_back("net.cfg:" + line_of(definition, what) + ":");
    INFO(what);
    CHECK(mentions(built.errors, words));
  };
  at("type=cccp", {"cccp1", "'cccp'", "conv", "pool", "cost.logreg"});
  at("type=maxout", {"max1", "'maxout'", "known"});
  at("modulesX=5", {"c1", "modulesX", "cover"});
  at("neuron=prelu", {"c2", "prelu", "relu", "softrelu"});
  at("inputs=later", {"late", "later", "below"});
  at("inputs=self", {"self"});
  // It may be a misspelt input that lets nobody read it.
  CHECK_FALSE(mentions(built.errors, {"no layer uses its output"}));
  at("type=cost.hinge", {"hinge", "cost.hinge", "cost.logreg"});
  at("sizeX=13", {"few", "sizeX"});
  at("inputs=date\n", {"typo", "'date'", "data"});
}

TEST_CASE("a layer that nobody reads is a mistake where nothing else is wrong") {
  const std::string definition = R"([data]
type=data
dataIdx=0
[labels]
type=data
dataIdx=1
[lonely]
type=fc
inputs=data
outputs=3
[probs]
type=softmax
inputs=data
[logprob]
type=cost.logreg
inputs=labels,probs
)";
  const Built built =
      build(definition, "[lonely]\nepsW=0.1\nepsB=0.1\nmomW=0.9\nmomB=0.9\n[logprob]\ncoeff=1\n");
  CAPTURE(built.errors);
  CHECK(mentions(built.errors,
                 {"net.cfg:" + line_of(definition, "[lonely]") + ":", "lonely", "no layer uses its output"}));
}

TEST_CASE("mistakes of single layers are located") {
  struct Mistake {
    std::string layer;               ///< "x", that reads data, c (4x10x10, learns) or f (6 numbers)
    std::string at;                  ///< the mistake is reported at the line of this text
    std::vector<std::string> words;  ///< parts of the message
    std::string parameters = "";
  };
  const std::string rate = "epsW=0.1 epsB=0.1 momW=0.9 momB=0.9";
  const std::vector<Mistake> mistakes = {
      {section("x", "sfc", "inputs=f outputs=2 parts=4"), "parts=4", {"parts"}, keys_of("x", rate)},
      {section("x", "local", "inputs=c channels=4 filters=2 filterSize=11"),
       "filterSize=11",
       {"filterSize"},
       keys_of("x", rate)},
      {section("x", "conv", "inputs=c channels=4 filters=2 filterSize=3 modulesX=8 rounding=down"),
       "rounding=down",
       {"modulesX", "rounding"},
       keys_of("x", rate)},
      {section("x", "conv", "inputs=c channels=4 filters=2 filterSize=12 stride=4 rounding=down"),
       "filterSize=12",
       {"filterSize", "larger"},
       keys_of("x", rate)},
      {section("x", "conv", "inputs=c channels=4 filters=2 filterSize=3 filterSizeY=11"),
       "filterSizeY=11",
       {"filterSizeY=11 is larger than the input 'c' (4x10x10) with its padding of 0"},
       keys_of("x", rate)},
      {section("x", "conv", "inputs=c channels=4 filters=2 filterSize=3 filterSizeY=0"),
       "filterSizeY=0",
       {"filterSizeY expects an integer between 1 and 4096, not '0'"},
       keys_of("x", rate)},
      {section("x", "conv", "inputs=c channels=4 filters=2 filterSize=3 dilation=8 padding=1 paddingEnd=2"),
       "filterSize=3",
       {"filterSize=3 with dilation=8 spans 17 pixels, which is larger than the input 'c' (4x10x10) with its "
        "padding of 1 and 2 behind it"},
       keys_of("x", rate)},
      {section("x", "conv", "inputs=c channels=4 filters=2 filterSize=3 paddingEnd=1 modulesX=9"),
       "paddingEnd=1",
       {"modulesX gives the side of the output; leave paddingEnd out"},
       keys_of("x", rate)},
      {section("x", "conv", "inputs=c channels=4 filters=2 filterSize=3 modulesX=8 modulesY=4"),
       "modulesY=4",
       {"modulesY=4 windows of 3 pixels do not cover the 10 pixels of input 'c'; it takes at least 8"},
       keys_of("x", rate)},
      {section("x", "conv", "inputs=c channels=4 filters=2 filterSize=3 stride=3 padding=2 modulesX=3"),
       "modulesX=3",
       {"modulesX=3 windows of 3 pixels do not cover the 10 pixels of input 'c'; it takes at least 4"},
       keys_of("x", rate)},
      {section("x", "conv", "inputs=c channels=4 filters=2 filterSize=3 strideY=1,2"),
       "strideY=1,2",
       {"strideY has 2 values for 1 input; give one value, or one per input"},
       keys_of("x", rate)},
      {section("x", "pool", "inputs=c channels=4 pool=max sizeX=3 sizeY=11 stride=2"),
       "sizeY=11",
       {"sizeY=11 is larger than the input 'c' (4x10x10)"}},
      {section("x", "pool", "inputs=c channels=4 pool=max sizeX=14 stride=2 start=-1 rounding=down"),
       "sizeX=14",
       {"sizeX=14 is larger than the input 'c' (4x10x10) with its border of 1 before and 1 behind it"}},
      {section("x", "pool", "inputs=c channels=4 pool=max sizeX=2 stride=2 startY=10"),
       "startY=10",
       {"a window lies wholly outside the 10-pixel image (startY=10, stride=2, 1 output)"}},
      {section("x", "pool", "inputs=c channels=4 pool=max sizeX=2 stride=2 paddingEnd=3"),
       "paddingEnd=3",
       {"a window lies wholly outside the 10-pixel image (start=0, stride=2, 7 outputs)"}},
      {section("x", "pool", "inputs=c channels=4 pool=max sizeX=2 stride=2 outputsY=5 paddingEndY=1"),
       "paddingEndY=1",
       {"outputsY gives the side of the output: leave paddingEndY out"}},
      {section("x", "pool", "inputs=c channels=4 pool=avg sizeX=0 sizeY=2 paddingEnd=1"),
       "sizeY=2",
       {"sizeX=0 pools the whole map: sizeY, paddingEnd must be left out"}},
      {section("x", "pool", "inputs=c channels=4 pool=max sizeX=3 stride=2 outputsX=4 rounding=down"),
       "rounding=down",
       {"outputsX", "rounding"}},
      {section("x", "pool", "inputs=c channels=4 pool=avg sizeX=0 rounding=down"),
       "rounding=down",
       {"sizeX=0"}},
      {section("x", "sum", "inputs=f stride=4"), "stride=4", {"stride", "6"}},
      {section("x", "slice", "inputs=c start=4"),
       "start=4",
       {"start=4 is behind the 4 maps of input 'c' (4x10x10)"}},
      {section("x", "slice", "inputs=c start=1 maps=4"),
       "maps=4",
       {"maps=4 from start=1 goes beyond the 4 maps of input 'c' (4x10x10); use at most 3"}},
      {section("x", "slice", "inputs=f maps=7"), "maps=7", {"6 numbers of input 'f'"}},
      {section("x", "slice", "inputs=c channels=5"), "channels=5", {"channels"}},
      {section("x", "shuffle", "inputs=c groups=3"),
       "groups=3",
       {"groups=3 does not divide the 4 maps of input 'c'"}},
      {section("x", "shuffle", "inputs=c"), "[x]", {"groups"}},
      {section("x", "eltsum", "inputs=c,f"), "inputs=c,f", {"4x10x10", "6"}},
      {section("x", "eltmax", "inputs=c"), "inputs=c\n", {"input"}},
      {section("x", "eltmul", "inputs=c,f"),
       "inputs=c,f",
       {"'f' must have the shape of 'c', 4x10x10, or a number for each of its 4 maps, but is 6"}},
      {section("g", "fc", "inputs=f outputs=4 initW=0.1") + section("x", "eltmul", "inputs=g,c"),
       "inputs=g,c",
       {"the maps come first: inputs=c,g"},
       keys_of("g", rate)},
      {section("x", "eltmul", "inputs=f,data"), "inputs=f,data", {"same shape", "6"}},
      {section("x", "eltsum", "inputs=c,c coeffs=1,2,3"), "coeffs", {"coeffs", "3"}},
      {section("x", "crop", "inputs=data channels=3 startX=8 sizeX=5"), "sizeX=5", {"crop"}},
      {section("x", "crop", "inputs=c channels=4 startX=0 sizeX=5"), "[x]", {"crop", "weights"}},
      {section("x", "resize", "inputs=data channels=3 scale=3"), "scale=3", {"scale", "2"}},
      {section("x", "rscale", "inputs=data channels=3 maxScale=2 tgtSize=5"),
       "tgtSize=5",
       {"tgtSize", "6", "12"}},
      {section("x", "rgb2yuv", "inputs=c"), "inputs=c", {"3", "4x10x10"}},
      {section("x", "rgb2lab", "inputs=f"), "inputs=f", {"3", "6"}},
      {section("x", "blur", "inputs=data channels=3 filterSize=4 stdev=1"), "filterSize=4", {"3, 5, 7"}},
      {section("x", "bnorm", "inputs=c channels=5"), "channels=5", {"channels"}, keys_of("x", rate)},
      {section("x", "cmpool", "pool=max inputs=c channels=4 size=2 stride=2 start=0 outputs=4"),
       "outputs=4",
       {"outside"}},
      {section("x", "cmpool", "pool=avg inputs=c channels=4 size=2 stride=2"), "pool=avg", {"max"}},
      {section("x", "pool", "pool=maxab inputs=c channels=4 sizeX=2"), "pool=maxab", {"maxabs"}},
      {section("x", "pool", "pool=max inputs=c channels=4 sizeX=2 stride=1 start=-2"),
       "start=-2",
       {"outside"}},
      {section("x", "data", "dataIdx=4"), "dataIdx=4", {"dataIdx", "3"}},
      {section("x", "data", "dataIdx=3 start=2 end=6"), "end=6", {"6", "5"}},
      {section("x", "fc", "inputs=f outputs=6 weightSource=nobody[0]"),
       "weightSource",
       {"nobody"},
       keys_of("x", rate)},
      {section("x", "fc", "inputs=f outputs=6 weightSource=f[1]"),
       "weightSource",
       {"f[1]"},
       keys_of("x", rate)},
      {section("x", "fc", "inputs=f outputs=6 weightSource=c[0]"),
       "weightSource",
       {"conv"},
       keys_of("x", rate)},
      {section("x", "fc", "inputs=f outputs=5 weightSource=f[0]"),
       "weightSource",
       {"f[0]"},
       keys_of("x", rate)},
      {section("x", "fc", "inputs=f outputs=6 weightSource=f[0],f[0]"),
       "weightSource",
       {"2", "1"},
       keys_of("x", rate)},
      {section("x", "fc", "inputs=f outputs=6 weightSource=x[0]"),
       "weightSource",
       {"x[0]"},
       keys_of("x", rate)},
      {section("x", "neuron", "inputs=f neuron=tanh[1]"), "neuron=tanh[1]", {"tanh[a,b]"}},
      {section("x", "neuron", "inputs=f neuron=brelu"), "neuron=brelu", {"brelu[a]"}},
      {section("x", "cost.bce", "inputs=labels,f"), "inputs=labels,f", {"labels"}, "[x]\ncoeff=1\n"},
      {section("x", "cost.crossent", "inputs=onehot,q"), "inputs=onehot,q", {"4", "6"}, "[x]\ncoeff=1\n"},
      {section("x", "cost.crossent", "inputs=tags,f"), "inputs=tags,f", {"softmax"}, "[x]\ncoeff=1\n"},
      {section("x", "cost.sum2", "inputs=f children=logprob"), "children", {"logprob"}, "[x]\ncoeff=1\n"},
      {section("x", "cost.sum2", "inputs=f children=nobody"), "children", {"nobody"}, "[x]\ncoeff=1\n"},
  };
  for (const Mistake& m : mistakes) {
    const std::string definition =
        section("data", "data", "dataIdx=0") + section("labels", "data", "dataIdx=1") +
        section("onehot", "data", "dataIdx=2") + section("tags", "data", "dataIdx=3") +
        conv("c", "inputs=data channels=3 filters=4 filterSize=3") +
        fc("f", "inputs=c,tags,onehot outputs=6") + section("q", "softmax", "inputs=f") +
        section("logprob", "cost.logreg", "inputs=labels,q") + m.layer +
        section("end", "fc", "inputs=x outputs=3");
    const std::string parameters = keys_of("c", rate) + keys_of("f", rate) + keys_of("end", rate) +
                                   m.parameters + "[logprob]\ncoeff=1\n";
    const Built built = build(definition, parameters);
    CAPTURE(m.layer, built.errors);
    std::vector<std::string> words = m.words;
    const std::size_t begin = definition.find("[x]");
    const std::size_t where = definition.find(m.at, begin);
    REQUIRE(where != std::string::npos);
    const auto line =
        1 + std::count(definition.begin(), definition.begin() + static_cast<std::ptrdiff_t>(where), '\n');
    words.push_back(":" + std::to_string(line) + ":");
    CHECK(mentions(built.errors, words));
  }
}
