#include "convnet/config/params.h"

#include <optional>
#include <stdexcept>
#include "tests/catch.h"

using namespace convnet;
using Strings = std::vector<std::string>;

namespace {

enum class Kind { max, average };

struct Params {
  int filters = -1, filter_size = -1;
  std::vector<int> stride;
  std::vector<double> init_w;
  bool shared = false;
  Kind pool = Kind::average;
  std::string module;
  std::vector<std::string> sources;
  std::optional<int> height;
  std::vector<std::optional<int>> strides_y;
  std::vector<double> coeffs;
  std::vector<Schedule> eps_w;
  Schedule eps_b;
  double wc = -1;
};

std::vector<ParamSpec> specs() {
  return {
      param("filters", &Params::filters, {.min = 1, .unit = "maps", .doc = "Number of output maps."}),
      param("filterSize", &Params::filter_size,
            {.fallback = "3", .min = 1, .max = 4096, .unit = "pixels", .doc = "side of the square filters"}),
      param_per_input("stride", &Params::stride, {.fallback = "1", .min = 1, .doc = "step"}),
      param_per_input("initW", &Params::init_w, {.fallback = "0.01", .min = 0, .doc = "deviation"}),
      param("sharedBiases", &Params::shared, {.fallback = "1", .doc = "one bias per map"}),
      param_choice<Params, Kind>("pool", &Params::pool, {{"max", Kind::max}, {"avg", Kind::average}},
                                 {.fallback = "max", .doc = "kind"}),
      param("module", &Params::module, {.fallback = "", .doc = "name"}),
      param("weightSource", &Params::sources, {.fallback = "", .doc = "owners of shared weights"}),
      param_per_input("coeffs", &Params::coeffs, {.fallback = "1", .doc = "factors", .file = CfgFile::both}),
      param_hint("sumWidth", {.doc = "no effect", .aliases = {"partialSum"}}),
      param_per_input("epsW", &Params::eps_w,
                      {.min = 0, .doc = "rate of the weights", .file = CfgFile::parameters}),
      param("epsB", &Params::eps_b, {.min = 0, .doc = "rate of the biases", .file = CfgFile::parameters}),
      param("sizeY", &Params::height, {.fallback = "", .min = 1, .doc = "height, if it is another"}),
      param_per_input("strideY", &Params::strides_y, {.fallback = "", .min = 1, .doc = "step downwards"}),
      param("wc", &Params::wc,
            {.fallback = "0",
             .min = 0,
             .doc = "decay",
             .file = CfgFile::parameters,
             .aliases = {"weightDecay"}}),
  };
}

std::vector<ParamSpec> common() {
  std::vector<ParamSpec> keys(3);
  keys[0].key = "type";
  keys[1].key = "inputs";
  keys[2].key = "dropout";
  keys[2].file = CfgFile::both;
  return keys;
}

struct Result {
  Params params;
  Diagnostics diagnostics;
  const Strings& errors() const { return diagnostics.errors(); }
  const Strings& warnings() const { return diagnostics.warnings(); }
};

constexpr const char* good_parameters = "[c]\nepsW=0.1\nepsB=0.2\n";

/// Assigns the layer [c] of the two files; `parameters` may lack the section.
Result assign(const std::string& definition, const std::string& parameters = good_parameters,
              std::size_t inputs = 1, bool strict = false) {
  Result result;
  const IniFile d = parse_ini("net.cfg", definition, result.diagnostics);
  const IniFile p = parse_ini("par.cfg", parameters, result.diagnostics);
  REQUIRE_FALSE(result.diagnostics.has_errors());
  REQUIRE(d.find("c"));
  const auto keys = common();
  const ForeignKeys foreign = {{"coeff", "it belongs to layers of type cost"},
                               {"topk", "it belongs to layers of type cost"}};
  assign_params(specs(), {keys, foreign}, "c", *d.find("c"), p.find("c"), inputs, strict, &result.params,
                result.diagnostics);
  return result;
}

/// The one error a line of the definition or the parameter section causes, without its place.
std::string definition_error(const std::string& line) {
  const Result r = assign("[c]\nfilters=1\n" + line);
  CAPTURE(line, r.errors());
  REQUIRE(r.errors().size() == 1);
  REQUIRE(r.errors()[0].starts_with("net.cfg:"));
  return r.errors()[0].substr(r.errors()[0].find(": ") + 2);
}
std::string rate_error(const std::string& text) {
  const Result r = assign("[c]\nfilters=1\n", "[c]\nepsW=" + text + "\nepsB=0");
  REQUIRE(r.errors().size() == 1);
  return r.errors()[0];
}

}  // namespace

TEST_CASE("values and defaults are assigned", "[params]") {
  const Result r = assign(
      "[c]\ntype=conv\ninputs=a,b\nFILTERS=64\nstride=2\ninitW=0.1, 1e-3\nsharedBiases=no\npool=avg\n"
      "module=x.y(z)\nweightSource=,other[1]\ncoeffs=-1\npartialSum=4\ndropout=0.5\n",
      "[c]\nepsW=exp[base=1;tgtFactor=2],0.5\nepsB=0\nwc=0.004\ndropout=0.4\n", 2);
  CHECK(r.errors().empty());
  CHECK(r.warnings().empty());
  CHECK(r.params.filters == 64);
  CHECK(r.params.filter_size == 3);
  CHECK(r.params.stride == std::vector<int>{2, 2});
  CHECK_FALSE(r.params.height.has_value());
  CHECK(r.params.strides_y == std::vector<std::optional<int>>{std::nullopt, std::nullopt});
  CHECK(r.params.init_w == std::vector<double>{0.1, 1e-3});
  CHECK_FALSE(r.params.shared);
  CHECK(r.params.pool == Kind::average);
  CHECK(r.params.module == "x.y(z)");
  CHECK(r.params.sources == Strings{"", "other[1]"});
  CHECK(r.params.coeffs == std::vector<double>{-1, -1});
  REQUIRE(r.params.eps_w.size() == 2);
  CHECK(r.params.eps_w[0].at(1) == 0.5);
  CHECK(r.params.eps_w[1].at(1) == 0.5);
  CHECK(r.params.eps_b.frozen());
  CHECK(r.params.wc == 0.004);

  const Result defaults = assign("[c]\nfilters=1");
  CHECK(defaults.errors().empty());
  CHECK(defaults.params.shared);
  CHECK(defaults.params.pool == Kind::max);
  CHECK(defaults.params.sources.empty());
  CHECK(defaults.params.wc == 0);
  CHECK(assign("[c]\nfilters=1\nweightSource=\n").params.sources.empty());
}

TEST_CASE("booleans in all spellings", "[params]") {
  for (const char* text : {"1", "true", "Yes", "ON"})
    CHECK(assign("[c]\nfilters=1\nsharedBiases=" + std::string(text)).params.shared);
  for (const char* text : {"0", "False", "no", "off"})
    CHECK_FALSE(assign("[c]\nfilters=1\nsharedBiases=" + std::string(text)).params.shared);
}

TEST_CASE("bad values say what is expected", "[params]") {
  CHECK(assign("[c]\ntype=conv\nfilters=0").errors() ==
        Strings{"net.cfg:3: layer 'c': filters expects an integer of at least 1, not '0'"});
  CHECK(definition_error("filterSize=x") ==
        "layer 'c': filterSize expects an integer between 1 and 4096, not 'x'");
  CHECK(definition_error("FilterSize=4097") ==
        "layer 'c': FilterSize expects an integer between 1 and 4096, not '4097'");
  for (const char* text : {"", "3.0", "0x3", "1e2", "3 4", "--3", "+-3"})
    CHECK(definition_error("filterSize=" + std::string(text)) ==
          "layer 'c': filterSize expects an integer between 1 and 4096, not '" + std::string(text) + "'");
  CHECK(definition_error("filterSize=99999999999") ==
        "layer 'c': filterSize expects an integer between 1 and 4096, not '99999999999'");
  CHECK(definition_error("stride=99999999999") ==
        "layer 'c': stride expects an integer between 1 and 2147483647, not '99999999999'");
  CHECK(definition_error("filterSize=3x") ==
        "layer 'c': filterSize expects an integer between 1 and 4096, not '3x'; write the number alone "
        "(pixels)");
  CHECK(definition_error("initW=-1") == "layer 'c': initW expects a number of at least 0, not '-1'");
  for (const char* text : {"nan", "inf", "1e999", "1,x", "0,1e"})
    CHECK(assign("[c]\nfilters=1\ninitW=" + std::string(text), good_parameters, 2).errors().size() == 1);
  CHECK(definition_error("sizeY=0") == "layer 'c': sizeY expects an integer of at least 1, not '0'");
  CHECK(definition_error("strideY=1,2") ==
        "layer 'c': strideY has 2 values for 1 input; give one value, or one per input");
  CHECK(assign("[c]\nfilters=1\nsizeY=4\nstrideY=,3", good_parameters, 2).params.strides_y ==
        std::vector<std::optional<int>>{std::nullopt, 3});
  CHECK(definition_error("coeffs=x") == "layer 'c': coeffs expects a number, not 'x'");
  CHECK(definition_error("sharedBiases=maybe") ==
        "layer 'c': sharedBiases expects 0 or 1 (also true/false, yes/no, on/off), not 'maybe'");
  CHECK(definition_error("pool=sum") == "layer 'c': pool expects one of max, avg, not 'sum'");
  CHECK(definition_error("pool=Max") ==
        "layer 'c': pool expects one of max, avg, not 'Max'; did you mean 'max'?");
  CHECK(definition_error("initW=1,2") ==
        "layer 'c': initW has 2 values for 1 input; give one value, or one per input");
  CHECK(definition_error("initW=") == "layer 'c': initW has no value");
}

TEST_CASE("a value that swallowed an indented line is shown on one line", "[params]") {
  CHECK(definition_error("filterSize=3\n stride=2") ==
        "layer 'c': filterSize expects an integer between 1 and 4096, not '3 stride=2'");
}

TEST_CASE("bad rates", "[params]") {
  CHECK(rate_error("-0.1") == "par.cfg:2: layer 'c': epsW expects a rate of at least 0, not '-0.1'");
  CHECK(rate_error("const[base=-1]") == "par.cfg:2: layer 'c': epsW expects a rate of at least 0, not '-1'");
  CHECK(rate_error("dexp[base=1;tgtFactor=2]") ==
        "par.cfg:2: layer 'c': epsW has a wrong value: dexp needs numSteps, as in "
        "dexp[base=...;tgtFactor=...;numSteps=...]");
  CHECK(rate_error("x") ==
        "par.cfg:2: layer 'c': epsW has a wrong value: 'x' is neither a number nor one of the "
        "schedules const, linear, exp, dexp, cosine, poly, step, " +
            std::string(kScheduleSyntax));
}

TEST_CASE("one-sided and open ranges", "[params]") {
  ParamSpec spec;
  double number = 0;
  int integer = 0;
  CHECK(parse_value("x", spec, integer) == "expects an integer, not 'x'");
  CHECK(parse_value("-99999999999", spec, integer) ==
        "expects an integer between -2147483648 and 2147483647, not '-99999999999'");
  CHECK(parse_value("x", spec, number) == "expects a number, not 'x'");
  CHECK(parse_value("-1e3", spec, number) == "");
  CHECK(number == -1000);
  spec.max = 1;
  CHECK(parse_value("2", spec, number) == "expects a number of at most 1, not '2'");
  CHECK(number == -1000);
  CHECK(parse_value("+1", spec, integer) == "");
  CHECK(integer == 1);
}

TEST_CASE("a number with a unit is written without it", "[params]") {
  ParamSpec spec;
  double number = 0;
  int integer = 0;
  CHECK(parse_value("1MB", spec, number) == "expects a number, not '1MB'");
  spec.unit = "MiB";
  CHECK(parse_value("1MB", spec, number) == "expects a number, not '1MB'; write the number alone (MiB)");
  CHECK(parse_value("1.5GB", spec, integer) ==
        "expects an integer, not '1.5GB'; write the number alone (MiB)");
  for (const std::string other : {"MB", "1-2MB", "1 MB,", "x1", ""})
    CHECK(parse_value(other, spec, number) == "expects a number, not '" + other + "'");
}

TEST_CASE("missing keys are reported at their section", "[params]") {
  CHECK(assign("\n[c]\ntype=conv\n").errors() == Strings{"net.cfg:2: layer 'c': 'filters' is missing; it is "
                                                         "an integer of at least 1 (Number of output maps)"});
  CHECK(assign("[c]\nfilters=1", "[c]\nepsB=0").errors() ==
        Strings{"par.cfg:1: layer 'c': 'epsW' is missing; it is a number of at least 0 or a schedule such as "
                "dexp[base=...] per input (rate of the weights)"});
  CHECK(assign("[c]\nfilters=1", "[other]\nepsB=0").errors().empty());  // see missing_keys()
}

TEST_CASE("the missing-key message describes every type", "[params]") {
  struct Fields {
    int i = 0;
    double d = 0;
    bool b = false;
    Kind k = Kind::max;
    std::string s;
    Strings n;
  };
  const std::vector<ParamSpec> required = {
      param("i", &Fields::i, {.min = 1, .max = 9}),
      param("d", &Fields::d, {.max = 1}),
      param("b", &Fields::b, {}),
      param_choice<Fields, Kind>("k", &Fields::k, {{"max", Kind::max}, {"avg", Kind::average}}, {}),
      param("s", &Fields::s, {}),
      param("n", &Fields::n, {})};
  Diagnostics diagnostics;
  const IniFile ini = parse_ini("net.cfg", "[c]", diagnostics);
  Fields fields;
  assign_params(required, {{}, {}}, "c", ini.sections.at(0), nullptr, 1, false, &fields, diagnostics);
  CHECK(diagnostics.errors() ==
        Strings{"net.cfg:1: layer 'c': 'i' is missing; it is an integer between 1 and 9",
                "net.cfg:1: layer 'c': 'd' is missing; it is a number of at most 1",
                "net.cfg:1: layer 'c': 'b' is missing; it is 0 or 1",
                "net.cfg:1: layer 'c': 'k' is missing; it is one of max, avg",
                "net.cfg:1: layer 'c': 's' is missing; it is a name",
                "net.cfg:1: layer 'c': 'n' is missing; it is a list of names"});
}

TEST_CASE("a choice of 0 and 1 takes the other words for them", "[params]") {
  struct Fields {
    int flip = -1;
  };
  const ParamSpec spec =
      param_choice<Fields, int>("flip", &Fields::flip, {{"auto", 2}, {"0", 0}, {"1", 1}}, {});
  for (const auto& [text, flip] : {std::pair<const char*, int>{"auto", 2},
                                   {"1", 1},
                                   {"TRUE", 1},
                                   {"yes", 1},
                                   {"off", 0},
                                   {"False", 0},
                                   {"0", 0}}) {
    Fields fields;
    CHECK(spec.assign(&fields, text, 0).empty());
    CHECK(fields.flip == flip);
  }
  Fields fields;
  CHECK(spec.assign(&fields, "ture", 0).starts_with("expects one of auto, 0, 1, not 'ture'"));
}

TEST_CASE("no parameter section is needed without required parameters", "[params]") {
  Params params;
  Diagnostics diagnostics;
  const IniFile ini = parse_ini("net.cfg", "[c]", diagnostics);
  const std::vector<ParamSpec> optional = {specs().back()};
  assign_params(optional, {common(), {}}, "c", ini.sections.at(0), nullptr, 1, true, &params, diagnostics);
  CHECK_FALSE(diagnostics.has_errors());
  CHECK(params.wc == 0);
}

TEST_CASE("misspelt keys are errors, once", "[params]") {
  CHECK(assign("[c]\nfilters=1\nfliterSize=5").errors() ==
        Strings{"net.cfg:3: layer 'c': unknown key 'fliterSize'; did you mean 'filterSize'?"});
  CHECK(assign("[c]\nfilterss=1").errors() ==
        Strings{"net.cfg:2: layer 'c': unknown key 'filterss'; did you mean 'filters'?"});
  CHECK(assign("[c]\nfilters=1\ninptus=a").errors() ==
        Strings{"net.cfg:3: layer 'c': unknown key 'inptus'; did you mean 'inputs'?"});
  CHECK(assign("[c]\nfilters=1\npartialSumm=a").errors() ==
        Strings{"net.cfg:3: layer 'c': unknown key 'partialSumm'; did you mean 'partialSum'?"});
  CHECK(assign("[c]\nfilters=1", "[c]\nepsV=1\nepsB=1").errors() ==
        Strings{"par.cfg:2: layer 'c': unknown key 'epsV'; did you mean 'epsW'?"});
}

TEST_CASE("a key like one that the section has is another program's", "[params]") {
  const std::string parameters = "[c]\nEPSW=1\nnepsw=2\nepsB=1";
  const Result r = assign("[c]\nfilters=1", parameters);
  CHECK(r.errors().empty());
  CHECK(
      r.warnings() ==
      Strings{"par.cfg:3: warning: layer 'c': unknown key 'nepsw' is ignored; the section has 'epsW', too"});
  CHECK(r.params.eps_w.at(0).base() == 1);
  CHECK(assign("[c]\nfilters=1", parameters, 1, true).errors() ==
        Strings{"par.cfg:3: layer 'c': unknown key 'nepsw'; the section has 'epsW', too"});
  // One that it inherits may be what was meant to be replaced.
  CHECK(assign("[c]\nfilters=1", "[DEFAULT]\nepsW=1\nepsB=1\n[c]\nnepsw=2").errors() ==
        Strings{"par.cfg:5: layer 'c': unknown key 'nepsw'; did you mean 'epsW'?"});
}

TEST_CASE("other unknown keys are warnings, errors when strict", "[params]") {
  // Under six letters one edit is the limit: "tyqes" is two from "type".
  for (const char* key : {"foo", "tyqes", "useTextures"}) {
    const std::string definition = "[c]\nfilters=1\n" + std::string(key) + "=1";
    const Result r = assign(definition);
    CHECK(r.errors().empty());
    CHECK(r.warnings() ==
          Strings{"net.cfg:3: warning: layer 'c': unknown key '" + std::string(key) + "' is ignored"});
    const Result strict = assign(definition, good_parameters, 1, true);
    CHECK(strict.errors() == Strings{"net.cfg:3: layer 'c': unknown key '" + std::string(key) + "'"});
    CHECK(strict.warnings().empty());
  }
}

TEST_CASE("keys that a reference reads are no unknown ones", "[params]") {
  for (const bool strict : {false, true}) {
    const Result read = assign("[c]\nfilters=%(foo)s\nfoo=1", good_parameters, 1, strict);
    CHECK(read.errors().empty());
    CHECK(read.warnings().empty());
  }
  CHECK(assign("[c]\nfilters=1", "[c]\nespW=1\nepsB=%(espW)s").errors().at(0) ==
        "par.cfg:2: layer 'c': unknown key 'espW'; did you mean 'epsW'?");
}

TEST_CASE("transposed short keys are misspelt ones", "[params]") {
  CHECK(assign("[c]\nfilters=1\nytpe=5").errors() ==
        Strings{"net.cfg:3: layer 'c': unknown key 'ytpe'; did you mean 'type'?"});
  CHECK(assign("[c]\nfilters=1", "[c]\nepsW=1\nespB=1").errors() ==
        Strings{"par.cfg:3: layer 'c': unknown key 'espB'; did you mean 'epsB'?"});
}

TEST_CASE("keys of other layer types are warnings, however close, and errors when strict", "[params]") {
  const Result near = assign("[c]\nfilters=1\nCoeff=5");
  CHECK(near.errors().empty());
  CHECK(near.warnings() ==
        Strings{"net.cfg:3: warning: layer 'c': unknown key 'Coeff' is ignored: it belongs to layers "
                "of type cost; did you mean 'coeffs'?"});
  const Result far = assign("[c]\nfilters=1", "[c]\nepsW=1\nepsB=1\ntopk=2");
  CHECK(
      far.warnings() ==
      Strings{
          "par.cfg:4: warning: layer 'c': unknown key 'topk' is ignored: it belongs to layers of type cost"});
  const Result strict = assign("[c]\nfilters=1\ncoeff=5", good_parameters, 1, true);
  CHECK(strict.errors() == Strings{"net.cfg:3: layer 'c': unknown key 'coeff': it belongs to layers of type "
                                   "cost; did you mean 'coeffs'?"});
}

TEST_CASE("a key in the wrong file is ignored with a warning", "[params]") {
  const Result r = assign("[c]\nfilters=1\nepsW=7\nweightDecay=1\n",
                          "[c]\nepsW=1\nepsB=1\nfilters=9\ninputs=b\nsumWidth=1");
  CHECK(r.errors().empty());
  CHECK(r.params.filters == 1);
  CHECK(r.params.eps_w.at(0).base() == 1);
  CHECK(r.params.wc == 0);
  CHECK(
      r.warnings() ==
      Strings{
          "net.cfg:3: warning: layer 'c': 'epsW' belongs in the parameter file and is ignored here",
          "net.cfg:4: warning: layer 'c': 'weightDecay' belongs in the parameter file and is ignored here",
          "par.cfg:4: warning: layer 'c': 'filters' belongs in the layer definition file and is ignored here",
          "par.cfg:5: warning: layer 'c': 'inputs' belongs in the layer definition file and is ignored here",
          "par.cfg:6: warning: layer 'c': 'sumWidth' belongs in the layer definition file and is ignored "
          "here"});
}

TEST_CASE("a key of both files", "[params]") {
  const std::string rates = good_parameters;
  CHECK(assign("[c]\nfilters=1\ncoeffs=2").params.coeffs == std::vector<double>{2});
  CHECK(assign("[c]\nfilters=1", rates + "coeffs=3").params.coeffs == std::vector<double>{3});
  const Result r = assign("[c]\nfilters=1\ncoeffs=2", rates + "coeffs=3");
  CHECK(r.params.coeffs == std::vector<double>{3});
  CHECK(r.warnings() ==
        Strings{"par.cfg:4: warning: layer 'c': 'coeffs' is given in both files; this one is used"});
  const Result inherited = assign("[c]\nfilters=1\ncoeffs=2", "[DEFAULT]\ncoeffs=3\n" + rates);
  CHECK(inherited.params.coeffs == std::vector<double>{2});
  CHECK(inherited.warnings().empty());
}

TEST_CASE("aliases", "[params]") {
  const std::string rates = good_parameters;
  CHECK(assign("[c]\nfilters=1", rates + "WeightDecay=2").params.wc == 2);
  const Result twice = assign("[c]\nfilters=1", rates + "weightDecay=2\nwc=3");
  CHECK(twice.params.wc == 3);
  CHECK(twice.warnings() ==
        Strings{"par.cfg:5: warning: layer 'c': 'wc' and 'weightDecay' are the same key; 'wc' is used"});
  CHECK(assign("[c]\nfilters=1", rates + "wc=3\nweightDecay=2").params.wc == 2);
  const Result inherited = assign("[c]\nfilters=1", "[DEFAULT]\nwc=3\n" + rates + "weightDecay=2");
  CHECK(inherited.params.wc == 2);
  CHECK(inherited.warnings().empty());
}

TEST_CASE("inherited keys count as given and never as unknown or misplaced", "[params]") {
  const Result r = assign("[DEFAULT]\nfilters=8\nepsW=5\nfliters=1\nfoo=1\n[c]\n",
                          "[DEFAULT]\nepsW=1\nepsB=2\n[c]\n", 1, true);
  CHECK(r.errors().empty());
  CHECK(r.warnings().empty());
  CHECK(r.params.filters == 8);
  CHECK(r.params.eps_w.at(0).base() == 1);
  CHECK(r.params.eps_b.base() == 2);
}

TEST_CASE("hints take any text", "[params]") {
  const Result r = assign("[c]\nfilters=1\npartialSum=whatever");
  CHECK(r.errors().empty());
  CHECK(r.warnings().empty());
  CHECK(param_hint("sumWidth", {}).fallback == "");
}

TEST_CASE("all mistakes of a layer are reported together", "[params]") {
  const Result r = assign("[c]\nfilterSize=0\ninitW=x\nfoo=1\n", "[c]\nepsB=x\n");
  CHECK(r.errors().size() == 5);  // filters, filterSize, initW, epsW, epsB
  CHECK(r.warnings().size() == 1);
}

TEST_CASE("a default that does not parse is a mistake of the program", "[params]") {
  Params params;
  Diagnostics diagnostics;
  const IniFile ini = parse_ini("net.cfg", "[c]", diagnostics);
  const std::vector<ParamSpec> wrong = {param("wc", &Params::wc, {.fallback = "x"})};
  CHECK_THROWS_AS(
      assign_params(wrong, {common(), {}}, "c", ini.sections.at(0), nullptr, 1, false, &params, diagnostics),
      std::logic_error);
}

TEST_CASE("split_list", "[params]") {
  CHECK(split_list("") == Strings{});
  CHECK(split_list(" \n") == Strings{});
  CHECK(split_list("a") == Strings{"a"});
  CHECK(split_list(" a , b,c ") == Strings{"a", "b", "c"});
  CHECK(split_list("a,\nb,\n\nc") == Strings{"a", "b", "c"});
  CHECK(split_list(",b,") == Strings{"", "b", ""});
  CHECK(split_list("tanh[1,2],relu") == Strings{"tanh[1,2]", "relu"});
  CHECK(split_list("a],b") == Strings{"a]", "b"});
  CHECK(split_list("a[,b") == Strings{"a[,b"});
}

TEST_CASE("describe_values", "[params]") {
  const std::vector<ParamSpec> all = specs();
  CHECK(describe_values(all[0]) == "integer >= 1, maps");
  CHECK(describe_values(all[1]) == "integer in [1, 4096], pixels");
  CHECK(describe_values(all[3]) == "number per input >= 0");
  CHECK(describe_values(all[4]) == "boolean");
  CHECK(describe_values(all[5]) == "one of max, avg");
  CHECK(describe_values(all[7]) == "names");
  CHECK(describe_values(all[8]) == "number per input");
  CHECK(describe_values(all[10]) == "schedule per input >= 0");
  ParamSpec at_most;
  at_most.type = "number";
  at_most.max = 0.5;
  CHECK(describe_values(at_most) == "number <= 0.5");
}

TEST_CASE("lists of numbers have ranges", "[params]") {
  ParamSpec spec;
  spec.min = 0;
  spec.max = 15;
  std::vector<int> numbers;
  const auto parsed = [&](const std::string& text) {
    CHECK(parse_number_list(text, spec, numbers) == "");
    return numbers;
  };
  using Numbers = std::vector<int>;
  CHECK(parsed("0-3,6") == Numbers{0, 1, 2, 3, 6});
  CHECK(parsed(" 7, 2-2 ,0-1") == Numbers{7, 2, 0, 1});
  CHECK(parsed("3,2,1,0,3") == Numbers{3, 2, 1, 0, 3});
  CHECK(parsed("0-15").size() == 16);
  CHECK(parsed("").empty());
  const auto wrong = [&](const std::string& text) { return parse_number_list(text, spec, numbers); };
  CHECK(wrong("3-0") ==
        "has the range '3-0', which ends before it begins; write 0-3, or single numbers for that order");
  CHECK(wrong("0-16") == "expects an integer between 0 and 15, not '16'");
  CHECK(wrong("0-999999999999") == "expects an integer between 0 and 15, not '999999999999'");
  CHECK(wrong("0-") == "expects an integer between 0 and 15, not ''");
  CHECK(wrong("-3") == "expects an integer between 0 and 15, not '-3'");
  CHECK(wrong("0-1-2") == "expects an integer between 0 and 15, not '1-2'");
  CHECK(wrong("0--2") == "expects an integer between 0 and 15, not '-2'");
  CHECK(wrong("1 - 2") == "expects an integer between 0 and 15, not '1 '");
  CHECK(wrong("0,") == "expects an integer between 0 and 15, not ''");
  // A text of some bytes makes no list of any length.
  CHECK(wrong("0-15,0-15,0-15") == "lists more than 16 numbers");
  spec.min = -5;
  CHECK(parsed("-5--4,-1-1") == Numbers{-5, -4, -1, 0, 1});
}
