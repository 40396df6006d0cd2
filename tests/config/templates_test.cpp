// Templates and repeated sections of INI files.
#include <algorithm>
#include <filesystem>

#include "convnet/config/ini.h"
#include "convnet/config/ini_edit.h"
#include "convnet/config/ini_expression.h"
#include "convnet/config/ini_flat.h"
#include "tests/catch.h"
#include "tests/config/parsed.h"

using namespace convnet;
using Strings = std::vector<std::string>;

namespace {

/// The sections as text, to compare two files.
std::string printed(const IniFile& file) {
  std::string out;
  for (const IniSection& s : file.sections) {
    Strings lines;
    for (const IniValue& v : s.values)
      lines.push_back(v.written + "=" + v.text + (v.from_default ? " (DEFAULT)" : ""));
    std::sort(lines.begin(), lines.end());
    out += "[" + s.name + "]\n" + join(lines, "\n") + "\n";
  }
  return out;
}

/// Parses a file, and checks that its flat form says the same.
Parsed expand_text(const std::string& text) {
  Parsed p(text);
  if (!p.diagnostics.has_errors()) {
    Diagnostics of_flat;
    const IniFile flat = parse_ini("net.cfg", flat_text(p.ini), of_flat);
    INFO(flat.text);
    CHECK(of_flat.errors().empty());
    CHECK(printed(flat) == printed(p.ini));
    CHECK(flat.templates.empty());
    CHECK(flat_text(flat) == flat.text);
  }
  return p;
}

Strings expansion_errors(const std::string& text) { return expand_text(text).diagnostics.errors(); }

/// The error of a file with one mistake.
std::string expansion_error(const std::string& text) {
  const Strings errors = expansion_errors(text);
  INFO(join(errors, "\n"));
  REQUIRE(errors.size() == 1);
  return errors[0];
}

const std::string kPair =
    "[template pair(bn, filters, size=1)]\n"  // line 1
    "[%(name)s]\ntype=conv\ninputs=%(inputs)s\nfilters=%(filters)s\nfilterSize=%(size)s\n"
    "[%(bn)s]\ntype=bnorm\ninputs=%(name)s\n"
    "[end]\n";  // line 10

}  // namespace

TEST_CASE("a template is used like a layer type, and the author names its layers", "[templates]") {
  const Parsed p = expand_text(kPair +
                               "[data]\ntype=data\n[labels]\ntype=data\n"
                               "[conv1]\ntype=pair\nbn=bn1\nfilters=64\nsize=7\ninputs=data\n"
                               "[layer1.0.conv1]\ntype=pair(bn=layer1.0.bn1, filters=32)\n");
  CHECK(p.diagnostics.errors().empty());
  CHECK(p.diagnostics.warnings().empty());
  CHECK(p.names() == Strings{"data", "labels", "conv1", "bn1", "layer1.0.conv1", "layer1.0.bn1"});
  CHECK(p.text("conv1", "filters") == "64");
  CHECK(p.text("conv1", "filterSize") == "7");
  CHECK(p.text("layer1.0.conv1", "filterSize") == "1");
  CHECK(p.text("conv1", "inputs") == "data");
  CHECK(p.text("layer1.0.conv1", "inputs") == "bn1");  // the layer above the use
  CHECK(p.text("layer1.0.bn1", "inputs") == "layer1.0.conv1");
  CHECK_FALSE(p.has("conv1", "bn"));
}

TEST_CASE("layers of any type may have their keys in brackets", "[templates]") {
  const Parsed p = expand_text(
      "[a]\ntype=conv(filters=8, initW=he, "
      "neuron=tanh[1,2])\ninputs=x,y\n[b]\ntype=%(t)s(k=%(v)s)\nt=pool\nv=3\n");
  CHECK(p.diagnostics.errors().empty());
  CHECK(p.text("a", "type") == "conv");
  CHECK(p.text("a", "neuron") == "tanh[1,2]");
  CHECK(p.text("a", "inputs") == "x,y");
  CHECK(p.text("b", "type") == "pool");
  CHECK(p.text("b", "k") == "3");
  CHECK(expand_text("[b]\n[a]\ntype=pool%(above)s(size=3)\n").text("a", "type") == "poolb");
}

TEST_CASE("sections are repeated with an index and with a list of values", "[templates]") {
  const Parsed p = expand_text(
      "[data]\ntype=data\n[c%(i)s]\ntype=conv\nrepeat=3\ninputs=%(above)s\nfilters=8 | 16 | 32\n"
      "[p%(i)s]\ntype=pool\nrepeat=2-3\nsizeX=%(i*2-1)s\n[none%(i)s]\nrepeat=0\n[none%(i)s.b]\nrepeat=4-3\n");
  CHECK(p.diagnostics.errors().empty());
  CHECK(p.names() == Strings{"data", "c0", "c1", "c2", "p2", "p3"});
  CHECK(p.text("c0", "inputs") == "data");
  CHECK(p.text("c2", "inputs") == "c1");
  CHECK(p.text("c1", "filters") == "16");
  CHECK(p.text("p3", "sizeX") == "5");
  CHECK_FALSE(p.has("c0", "repeat"));
}

TEST_CASE("values refer to the entries of lists, and lists may be parameters", "[templates]") {
  const Parsed p = expand_text(
      "[a%(i)s]\nrepeat=2\nfilters=16 | 32\ngroups=%(filters/4)s\nk=%(filters)s\n"
      "[template t(w)]\n[%(name)s%(i)s]\nrepeat=2\nk=%(w)s\n[end]\n[b]\ntype=t(w=3 | 4)\n");
  CHECK(p.diagnostics.errors().empty());
  CHECK(p.text("a1", "groups") == "8");
  CHECK(p.text("a1", "k") == "32");
  CHECK(p.text("b0", "k") == "3");
  CHECK(p.text("b1", "k") == "4");
}

TEST_CASE("templates use templates, and each sees only its own names", "[templates]") {
  const Parsed p = expand_text(
      kPair +
      "[template block(width, project=0, shortcut=%(inputs)s)]\n"
      "[%(name)s.conv%(i)s]\ntype=pair(bn=%(name)s.bn%(i)s)\nrepeat=1-2\nfilters=%(width)s | %(4*width)s\n"
      "[%(name)s.down]\ntype=pair(bn=%(name)s.downbn, "
      "filters=%(4*width)s)\nif=%(project)s\ninputs=%(inputs)s\n"
      "[%(name)s]\ntype=eltsum\ninputs=%(shortcut)s,%(name)s.bn2\n[end]\n"
      "[template stage(width, blocks)]\n"
      "[%(name)s.0]\ntype=block(width=%(width)s, project=1, shortcut=%(name)s.0.downbn)\n"
      "[%(name)s.%(i)s]\ntype=block(width=%(width)s)\nrepeat=1-%(blocks-1)s\n[end]\n"
      "[data]\ntype=data\n[layer%(i)s]\ntype=stage\nrepeat=1-2\nwidth=8 | 16\nblocks=2 | 1\n");
  CHECK(p.diagnostics.errors().empty());
  CHECK(p.names() == Strings{"data",           "layer1.0.conv1", "layer1.0.bn1",    "layer1.0.conv2",
                             "layer1.0.bn2",   "layer1.0.down",  "layer1.0.downbn", "layer1.0",
                             "layer1.1.conv1", "layer1.1.bn1",   "layer1.1.conv2",  "layer1.1.bn2",
                             "layer1.1",       "layer2.0.conv1", "layer2.0.bn1",    "layer2.0.conv2",
                             "layer2.0.bn2",   "layer2.0.down",  "layer2.0.downbn", "layer2.0"});
  CHECK(p.text("layer1.0.conv1", "inputs") == "data");
  CHECK(p.text("layer1.0.down", "inputs") == "data");
  CHECK(p.text("layer1.0", "inputs") == "layer1.0.downbn,layer1.0.bn2");
  CHECK(p.text("layer1.1.conv1", "inputs") == "layer1.0");
  CHECK(p.text("layer1.1", "inputs") == "layer1.0,layer1.1.bn2");
  CHECK(p.text("layer2.0.conv2", "filters") == "64");
  CHECK(p.text("layer2.0.down", "inputs") == "layer1.1");
}

TEST_CASE("%(above)s is the layer above, and labels do not come between data and the first layer",
          "[templates]") {
  const Parsed p = expand_text(
      "[d]\ntype=data\n[l]\ntype=data\n[a]\ntype=fc\ninputs=%(above)s\n[l2]\ntype=data\n[b]\ninputs=%(ABOVE)"
      "s,x\n");
  CHECK(p.diagnostics.errors().empty());
  CHECK(p.text("a", "inputs") == "d");
  CHECK(p.text("b", "inputs") == "a,x");
  CHECK(expansion_error("[a]\ninputs=%(above)s\n") ==
        "net.cfg:2: section 'a': 'inputs' refers to '%(above)s', but no section is above this one");
  CHECK(expand_text("[b]\n[a%(above)s]\nk=%(above)s\n").text("a%(above)s", "k") == "b");
  CHECK(expand_text("[b]\n[a]\nx%(above)s=%(above)s,\n  %(above)s=c\n").text("a", "x%(above)s") == "b,\nb=c");
  CHECK(expand_text("[DEFAULT]\nabove=x\n[a]\nk=%(above)s\n").text("a", "k") == "x");
  CHECK(expand_text("[b]\n[a]\nabove=x\nk=%(above)s\n").text("a", "k") == "x");
}

TEST_CASE("conditions leave sections out", "[templates]") {
  for (const char* yes : {"1", "yes", "true", "on", "-1", "0.5", "%(k)s"})
    CHECK(expand_text("[a]\nk=2\nif=" + std::string(yes) + "\n").names() == Strings{"a"});
  for (const char* no : {"0", "no", "false", "off", "", "0.0", "%(k-2)s"})
    CHECK(expand_text("[b]\n[a]\nk=2\nif=" + std::string(no) + "\n").names() == Strings{"b"});
  CHECK(expansion_error("[a]\nif=maybe\n") ==
        "net.cfg:2: section 'a': 'if' expects a number, 0 for no, or yes or no, not 'maybe'");
  CHECK(expand_text("[a%(i)s]\nrepeat=3\nif=0 | 1 | %(i-1)s\n").names() == Strings{"a1", "a2"});
}

TEST_CASE("a section of the file overrides values of the template's section of its name", "[templates]") {
  const std::string use = "[x]\ntype=pair(bn=y, filters=1)\ninputs=data\n";
  for (const std::string& text :
       {kPair + use + "[y]\ninputs=z\ngpu=1\n[x]\n", kPair + "[y]\ninputs=z\ngpu=1\n" + use}) {
    const Parsed p = expand_text(text);
    if (text.ends_with("[x]\n")) CHECK(p.diagnostics.warnings().empty());
    CHECK(p.diagnostics.errors().empty());
    CHECK(p.text("y", "type") == "bnorm");
    CHECK(p.text("y", "inputs") == "z");
    CHECK(p.text("y", "gpu") == "1");
  }
}

TEST_CASE("values of templates keep percent signs and references to keys", "[templates]") {
  const Parsed p = expand_text(
      "[DEFAULT]\nrate=3\nd=%(rate)s\n"
      "[template t(p, q=a%%b)]\n[%(name)s]\nk=%(p)s %%(x)s "
      "%(q)s\nrate=%(own)s\nown=4\nl=%(rate)s\nn=%(2*rate)s\n"
      "[end]\n[u]\ntype=t\np=%(own)s%%\n[v]\ntype=t(p=%(d)s)\n");
  REQUIRE(p.diagnostics.errors().size() == 1);  // the use [u] has no `own`
  const Parsed good = expand_text(
      "[DEFAULT]\nrate=3\nd=%(rate)s\n"
      "[template t(p, q=a%%b)]\n[%(name)s]\nk=%(p)s %%(x)s "
      "%(q)s\nrate=%(own)s\nown=4\nl=%(rate)s\nn=%(2*rate)s\n"
      "[end]\n[u]\ntype=t\np=100%%\n[v]\ntype=t(p=%(d)s)\n");
  CHECK(good.diagnostics.errors().empty());
  CHECK(good.text("u", "k") == "100% %(x)s a%b");
  CHECK(good.text("v", "k") == "3 %(x)s a%b");
  CHECK(good.text("v", "l") == "4");
  CHECK(good.text("v", "n") == "8");
  CHECK(good.text("v", "d") == "4");
}

TEST_CASE("expressions", "[templates]") {
  const auto number = [](const std::string& text) {
    std::int64_t result = 0;
    const auto value_of = [](const std::string& name, std::int64_t& out) -> std::string {
      if (name != "w") return "knows no " + name;
      out = 8;
      return "";
    };
    const std::string wrong = evaluate(text, value_of, result);
    return wrong.empty() ? std::to_string(result) : wrong;
  };
  CHECK(number("1+2*3-4/2") == "5");
  CHECK(number("(1+2)*3") == "9");
  CHECK(number(" - w * ( 2 - -1 ) ") == "-24");
  CHECK(number("8/w/1") == "1");
  CHECK(number("7/2") == "divides 7 by 2, which is no integer");
  CHECK(number("7/(w-8)") == "divides by 0");
  CHECK(number("x+1") == "knows no x");
  CHECK(number("1+") == "lacks a number or a name");
  CHECK(number("(1") == "has a bracket that is not closed");
  CHECK(number("1 2") == "is no expression: 2 is not expected");
  CHECK(number("3x") == "has '3x', which is neither an integer nor a name");
  CHECK(number("99999*99999") == "9999800001");
  CHECK(number("999999*999999") == "makes a number of more than ten digits");
  CHECK(number("9999999999+1") == "makes a number of more than ten digits");
  CHECK(number("99999999999999999999") ==
        "has '99999999999999999999', which is neither an integer nor a name");
  CHECK(number(std::string(100, '(') + "1" + std::string(100, ')')) == "is nested too deep");
  CHECK(expand_text("[DEFAULT]\nw=3\n[a]\nk=%(2*w)s\nl=%((w+1)*2)s\n").text("a", "l") == "8");
  CHECK(expansion_error("[a]\nk=%(b*2)s\nb=x\n") ==
        "net.cfg:2: section 'a': 'k' has '%(b*2)s', which computes with 'b', which is 'x', no integer");
  // A key that looks like an expression is a key.
  CHECK(expand_text("[a]\nb-1=x\nk=%(b-1)s\n").text("a", "k") == "x");
}

TEST_CASE("mistakes in uses name the template", "[templates]") {
  const auto use = [](const std::string& text) { return expansion_error(kPair + "[x]\n" + text); };
  CHECK(use("type=pair\nbn=b\nfilters=1\nsiez=2\n") ==
        "net.cfg:15: section 'x': template 'pair' (line 1) has no parameter 'siez'; did you mean 'size'?");
  CHECK(use("type=pair\nbn=b\nfilters=1\ncolour=2\n") ==
        "net.cfg:15: section 'x': template 'pair' (line 1) has no parameter 'colour'; it has inputs, bn, "
        "filters, size");
  CHECK(use("type=pair\nbn=b\n") == "net.cfg:11: section 'x': template 'pair' (line 1) needs 'filters'");
  CHECK(use("type=pair(bn=b, filters=1, bn=c)\n") == "net.cfg:12: section 'x': 'bn' is given twice");
  CHECK(
      use("type=pair(bn=b, 3)\nfilters=1\n") ==
      "net.cfg:12: section 'x': 'type' expects KEY=VALUE between its brackets, not '3'; a value with a comma "
      "needs a line of its own: bn=…");
  CHECK(use("type=pair(3, bn=b)\nfilters=1\n") ==
        "net.cfg:12: section 'x': 'type' expects KEY=VALUE between its brackets, not '3'");
  CHECK(
      use("type=pair(inputs=a,b, bn=b)\nfilters=1\n") ==
      "net.cfg:12: section 'x': 'type' expects KEY=VALUE between its brackets, not 'b'; a value with a comma "
      "needs a line of its own: inputs=…");
  // Such keys could not be written as lines of a flat file.
  CHECK(use("type=pair(a:b=3)\n").ends_with("expects KEY=VALUE between its brackets, not 'a:b=3'"));
  CHECK(use("type=pair([b]=3)\n").ends_with("expects KEY=VALUE between its brackets, not '[b]=3'"));
  CHECK(use("type=pair(bn=b, filters=1\n").ends_with("'type' lacks a ')' at its end: NAME(KEY=VALUE, …)"));
  CHECK(expansion_error("[x]\nrepeat=2\n") ==
        "net.cfg:1: section 'x': stands there twice, the first time from net.cfg:1; the names of a "
        "template's sections "
        "need %(name)s in them, and of a repeated section %(i)s");
  for (const char* repeat : {"-1", "x", "3-1", "1-x", "1.5", ""})
    CHECK(expansion_error("[x%(i)s]\nrepeat=" + std::string(repeat) + "\n") ==
          "net.cfg:2: section 'x%(i)s': 'repeat' expects a number of copies or a range of indices, like 3 or "
          "1-4, not '" +
              std::string(repeat) + "'");
  CHECK(expansion_error("[x%(i)s]\nrepeat=5000\n") ==
        "net.cfg:2: section 'x%(i)s': 'repeat' makes more than 4096 copies");
  CHECK(expansion_error("[x%(i)s]\nrepeat=3\nk=1 | 2\n") ==
        "net.cfg:3: section 'x0': 'k' has 2 values, one for each copy, but the section has 3 copies");
}

TEST_CASE("mistakes in templates name the line there and the lines of the uses, once", "[templates]") {
  const std::string text =
      "[template in(w)]\n[%(name)s]\nk=%(wdith)s\n[end]\n"
      "[template "
      "out(w)]\n[%(name)s.%(i)s]\ntype=in(w=1)\nrepeat=3\n[end]\n[a]\ntype=out(w=1)\n[b]\ntype=out(w=2)\n";
  CHECK(expansion_error(text) ==
        "net.cfg:3 (used in line 6, line 10): section 'a.0': 'k' refers to '%(wdith)s', but neither the "
        "section nor "
        "[DEFAULT] has that key, and it is no name of the template");
  const std::string close = "[template t(width)]\n[%(name)s]\nk=%(wdith)s\n[end]\n[a]\ntype=t(width=1)\n";
  CHECK(expansion_error(close).ends_with("it is no name of the template; did you mean 'width'?"));
  CHECK(expansion_error("[template t]\n[%(name)s]\ntype=t\n[end]\n[a]\ntype=t\n") ==
        "net.cfg:2 (used in line 5): section 'a': template 't' (line 1) uses itself");
  CHECK(expansion_error("[template t(p=%(q)s)]\n[%(name)s]\n[end]\n[a]\ntype=t\n")
            .starts_with("net.cfg:1: parameter 'p' of template 't' refers to '%(q)s'"));
  CHECK(expansion_error("[template t]\n[x]\n[end]\n[a]\ntype=t\n[b]\ntype=t\n") ==
        "net.cfg:2 (used in line 6): section 'x': stands there twice, the first time from net.cfg:2 (used in "
        "line 4); "
        "the names of a template's sections need %(name)s in them, and of a repeated section %(i)s");
  CHECK(expansion_error("[template t(p)]\n[%(p)s]\n[end]\n[a]\ntype=t\np=\n")
            .ends_with("section '%(p)s': its name is empty"));
  CHECK(expansion_error("[template t(p)]\n[%(p)s]\n[end]\n[a]\ntype=t\np=DEFAULT\n")
            .ends_with("its name would be 'DEFAULT', which has a meaning of its own"));
  CHECK(expansion_error("[template t(p)]\n[%(p)s]\n[end]\n[a]\ntype=t\np=b]\n")
            .ends_with("its name would be 'b]'"));
  CHECK(expansion_error("[template t(p)]\n[%(name)s]\nk=a %(p)s\n[end]\n[a]\ntype=t\np=#b\n")
            .ends_with("'k' would end in a comment: 'a #b'"));
}

TEST_CASE("mistakes in the lines of templates", "[templates]") {
  CHECK(expansion_error("[template t]\n[a]\n") == "net.cfg:1: template 't' has no [end] below its sections");
  CHECK(expansion_error("[template t]\n[template u]\n[a]\n[end]\n") ==
        "net.cfg:2: a template stands in template 't', which line 1 begins; end that with [end] above this "
        "one");
  CHECK(expansion_error("[template t]\n[DEFAULT]\nk=1\n") ==
        "net.cfg:2: [DEFAULT] stands in template 't'; end the template with [end] above it");
  CHECK(expansion_error("[template t]\nk=1\n[end]\n") ==
        "net.cfg:2: key 'k' stands in no section of template 't'; its parameters stand in brackets behind "
        "its name");
  CHECK(expansion_error("[template t(a]\n[end]\n") ==
        "net.cfg:1: the parameters of template 't' lack a ')': [template NAME(PARAMETERS)]");
  CHECK(expansion_error("[template t(a, a=1)]\n[end]\n") ==
        "net.cfg:1: parameter 'a' of template 't' is given twice");
  CHECK(expansion_error("[template t(a-b)]\n[end]\n") ==
        "net.cfg:1: parameter 'a-b' of template 't' needs a name of letters, digits and '_'");
  for (const char* name : {"name", "i", "above", "inputs", "type", "if", "repeat"})
    CHECK(expansion_error("[template t(" + std::string(name) + ")]\n[end]\n") ==
          "net.cfg:1: parameter '" + std::string(name) +
              "' of template 't' has a name that every template knows already");
  CHECK(expansion_error("[template (a)]\n[end]\n") ==
        "net.cfg:1: a template without a name: [template NAME(PARAMETERS)]");
  CHECK(expansion_error("[template t]\n[end]\n[template t]\n[end]\n") ==
        "net.cfg:3: template 't' stands in line 1 already");
  CHECK(expansion_error("[a]\n[template t]\n[%(name)s]\n[end]\nk=1\nl=2\n[b]\ntype=t\n") ==
        "net.cfg:5: key 'k' stands behind the [end] of a template, in no section");
  const Parsed unused = expand_text("[template t]\n[%(name)s]\n[end]\n");
  CHECK(unused.diagnostics.warnings() == Strings{"net.cfg:1: warning: template 't' is not used"});
}

TEST_CASE("templates cannot make files without end", "[templates]") {
  // Each template uses the next one twice: 2^n sections.
  std::string text;
  for (int n = 0; n < 12; ++n) {
    const std::string next = n == 11 ? "k=1" : "type=t" + std::to_string(n + 1);
    text += "[template t" + std::to_string(n) + "]\n[%(name)s0]\n" + next + "\n[%(name)s1]\n" + next +
            "\n[end]\n";
  }
  CHECK(expand_text(text + "[a]\ntype=t0\n").ini.sections.size() == 1 << 12);
  CHECK(expansion_errors(text + "[a%(i)s]\ntype=t0\nrepeat=4096\n").size() == 1);
  std::string deep;
  for (int n = 0; n < 20; ++n)
    deep += "[template t" + std::to_string(n) + "]\n[%(name)s]\ntype=t" + std::to_string(n + 1) + "\n[end]\n";
  CHECK(
      expansion_error(deep + "[template t20]\n[%(name)s]\n[end]\n[a]\ntype=t0\n").find("more than 16 deep") !=
      std::string::npos);
  // A long value in many copies.
  const std::string big =
      "[template "
      "t(v)]\n[%(name)s.%(i)s]\nrepeat=4096\nk=%(v)s%(v)s\n[end]\n[a%(i)s]\ntype=t\nrepeat=4096\nv=" +
      std::string(100'000, 'x') + "\n";
  CHECK(expansion_error(big).find("make more than 16 MiB of this file") != std::string::npos);
}

TEST_CASE("files without templates mean what they meant", "[templates]") {
  const Parsed p = expand_text("[end]\ntype=pass\n[template]\nk=1|2\n[a%(x)s]\nk=%%(above)s\n");
  CHECK(p.diagnostics.errors().empty());
  CHECK(p.names() == Strings{"end", "template", "a%(x)s"});
  CHECK(p.text("template", "k") == "1|2");
}

TEST_CASE("the flat form keeps comments and the lines around templates", "[templates]") {
  Diagnostics d;
  const IniFile file = parse_ini(
      "net.cfg",
      "# A net.\n\n[data]\ntype=data   # images\n\n"
      "# About the template.\n[template t(w)]\n; about the layer\n[%(name)s]\nfilters=%(w)s\n"
      "# about biases\nbiases=0\n[end]\n\n"
      "# The first.\n[a]\ntype=t(w=1)\n\n# The second.\n[b]\ntype=t\nw=2  # two\n\n[c]\nk=%(above)s\n",
      d);
  CHECK(d.errors().empty());
  CHECK(flat_text(file) ==
        "# A net.\n\n[data]\ntype=data   # images\n\n"
        "# The first.\n; about the layer\n# about biases\n[a]\nfilters=1\nbiases=0\n\n"
        "# The second.\n[b]\nfilters=2\nbiases=0\n\n[c]\nk=b\n");
}

TEST_CASE("keys of a template's layers are set for one of them", "[templates]") {
  Diagnostics d;
  const IniFile file = parse_ini(
      "net.cfg",
      kPair + "[x]\ntype=pair(bn=y, filters=1)\n[u%(i)s]\ntype=pair\nbn=v%(i)s\nfilters=2\nrepeat=2\n", d);
  CHECK_FALSE(has_own_key(file, "y", "type"));
  const IniFile behind_rem = parse_ini("f", "[a]\nl=1,\nrem of both\n 2\nk=3\n", d);
  CHECK(with_value(behind_rem, "a", "l", "4", d).find("a")->find("l")->text == "4");
  const IniFile appended = with_value(file, "y", "gpu", "1", d);
  CHECK(appended.text == file.text + "[y]\ngpu=1\n");
  CHECK(appended.find("y")->find("gpu")->text == "1");
  CHECK(with_value(appended, "y", "gpu", "2", d).text == file.text + "[y]\ngpu=2\n");
  Diagnostics known;
  CHECK(with_section(file, "x", "", known).find("x") == nullptr);
  const IniFile replaced = with_section(file, "u1", "[u1]\ntype=conv\n[more]\na=1", known);
  CHECK(replaced.find("u1")->values.size() == 1);
  CHECK(replaced.find("more")->find("a")->text == "1");
  CHECK(replaced.find("u0")->find("filters")->text == file.find("u0")->find("filters")->text);
  CHECK(with_section(file, "none", "[y]\n", known).text == file.text);
  CHECK(with_key(file, "v1", "inputs", "x").text == file.text + "[v1]\ninputs=x\n");
  CHECK(with_key(file, "v1", "inputs", "x").find("v0")->find("inputs")->text == "u0");
  // [x] is a use in this file, so its layer of that name is reached by the flat form.
  const IniFile flat = with_key(file, "x", "filters", "7");
  CHECK(flat.find("x")->find("filters")->text == "7");
  CHECK(flat.templates.empty());
  const IniFile removed = without_key(file, "u1", "filters");
  CHECK(removed.find("u1")->find("filters") == nullptr);
  CHECK(removed.find("u0")->find("filters")->text == "2");
  CHECK(with_key(file, "u1", "filters", std::nullopt).find("u1")->find("filters") == nullptr);
  CHECK(d.errors().empty());
  // A type that is a reference is no use of a template, right or wrong.
  for (const char* type : {"%(t)s", "p%(inputs)sx", "%(none)s", "%"}) {
    Diagnostics ignored;
    const IniFile other =
        parse_ini("net.cfg", "[a]\ntype=" + std::string(type) + "\nt=conv\ninputs=b\n", ignored);
    CHECK(has_own_key(other, "a", "t"));
    CHECK(with_value(other, "a", "t", "fc", ignored).text ==
          "[a]\ntype=" + std::string(type) + "\nt=fc\ninputs=b\n");
    CHECK(with_key(other, "a", "gpu", "1").find("a")->find("gpu") != nullptr);
  }
}
