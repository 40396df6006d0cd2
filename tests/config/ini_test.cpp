#include "convnet/config/ini.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "tests/catch.h"
#include "tests/config/parsed.h"
#include "tests/temp_folder.h"

using namespace convnet;
using Strings = std::vector<std::string>;

namespace {

Parsed parse(std::string text) { return Parsed(std::move(text)); }

/// Value of key "k" written as `line` in a section of its own.
std::string value_of(const std::string& line) {
  const Parsed p = parse("[a]\n" + line + "\n");
  CAPTURE(line, p.errors(), p.warnings());
  REQUIRE(p.clean());
  return p.text("a", "k");
}

Strings errors_of(std::string text) { return parse(std::move(text)).errors(); }

}  // namespace

TEST_CASE("sections and keys keep order, case and place", "[ini]") {
  const Parsed p = parse("# net\n[conv1]\ntype=conv\nFilterSize=5\n\n[data]\ntype: data\n");
  REQUIRE(p.clean());
  CHECK(p.ini.path == "net.cfg");
  CHECK(p.ini.text.starts_with("# net\n"));
  REQUIRE(p.ini.sections.size() == 2);
  CHECK(p.ini.sections[0].name == "conv1");
  CHECK(p.ini.sections[0].where.str() == "net.cfg:2");
  CHECK(p.ini.sections[1].name == "data");
  CHECK(p.ini.sections[1].where.line == 6);
  REQUIRE(p.ini.sections[0].values.size() == 2);
  const IniValue& size = p.value("conv1", "FILTERSIZE");
  CHECK(size.key == "filtersize");
  CHECK(size.written == "FilterSize");
  CHECK(size.text == "5");
  CHECK(size.where.str() == "net.cfg:4");
  CHECK_FALSE(size.from_default);
  CHECK(p.text("data", "type") == "data");
  CHECK(p.ini.find("Conv1") == nullptr);
  CHECK(p.ini.sections[0].find("nothing") == nullptr);
}

TEST_CASE("an empty file has no sections", "[ini]") {
  for (const char* text : {"", "\n", "\n\n  \n# only a comment", "\xEF\xBB\xBF"}) {
    const Parsed p = parse(text);
    CHECK(p.clean());
    CHECK(p.ini.sections.empty());
  }
}

TEST_CASE("values as found in published files", "[ini]") {
  CHECK(value_of("k=dexp[base=0.01;tgtFactor=250;numSteps=4]") == "dexp[base=0.01;tgtFactor=250;numSteps=4]");
  CHECK(value_of("k: v") == "v");
  CHECK(value_of("k:v") == "v");
  CHECK(value_of("k = a:b=c") == "a:b=c");
  CHECK(value_of("k: a=b") == "a=b");
  CHECK(value_of("k \t=\t v \t") == "v");
  CHECK(value_of("k=a, b ,c") == "a, b ,c");
  CHECK(value_of("K=v") == "v");
  CHECK(value_of("k=-1") == "-1");
  CHECK(value_of("k=") == "");
  CHECK(value_of("k=\"\"") == "");
  CHECK(value_of("k=[x]") == "[x]");
  CHECK(value_of("k=tanh[1.7,0.6]") == "tanh[1.7,0.6]");
  CHECK(value_of("k=" + std::string(5000, 'x') + ",y") == std::string(5000, 'x') + ",y");
}

TEST_CASE("comments", "[ini]") {
  CHECK(value_of("k=1 # comment") == "1");
  CHECK(value_of("k=1 ; comment ; more") == "1");
  CHECK(value_of("k=1\t; comment") == "1");
  CHECK(value_of("k=a;b # c") == "a;b");
  CHECK(value_of("k=a#b") == "a#b");
  CHECK(value_of("k= ; nothing") == "");
  CHECK(value_of("k= # nothing") == "");
  CHECK(value_of("# c\n; c\n  # c=1\n\t; [c]\nk=1\n  # indented comment after a key\n\t;x=2") == "1");
  const Parsed p = parse("[a] # first\nk=1\n[b];c\nk=2\n[c # d]\n");
  CHECK(p.clean());
  CHECK(p.ini.find("a"));
  CHECK(p.ini.find("b"));
  CHECK(p.ini.find("c # d"));
}

TEST_CASE("lines that begin with the word rem are comments, as in Python's ConfigParser", "[ini]") {
  Diagnostics diagnostics;
  const IniFile ini = parse_ini("f",
                                "rem before any section\nREM\n[a]\nrem=1\nRem k=9\nk=1\nrem [b]\nremark=2\n"
                                "l=3,\n rem 4\nreM\t= 5\n",
                                diagnostics);
  CHECK(diagnostics.errors().empty());
  REQUIRE(ini.sections.size() == 1);
  const IniSection& a = ini.sections[0];
  CHECK(a.values.size() == 4);
  REQUIRE(a.find("rem"));
  CHECK(a.find("rem")->text == "1");
  CHECK(a.find("k")->text == "1");
  CHECK(a.find("remark")->text == "2");
  // An indented line is none: it continues the value.
  CHECK(a.find("l")->text == "3,\nrem 4");
}

TEST_CASE("CRLF, a byte order mark and a missing last line break", "[ini]") {
  const Parsed p = parse("\xEF\xBB\xBF[a]\r\nx=1\r\n\r\ny=2 ; c\r\n[b]\r\nz=3");
  REQUIRE(p.clean());
  CHECK(p.text("a", "x") == "1");
  CHECK(p.text("a", "y") == "2");
  CHECK(p.value("a", "y").where.line == 4);
  CHECK(p.ini.find("b")->where.line == 5);
  CHECK(p.text("b", "z") == "3");
}

TEST_CASE("any section name", "[ini]") {
  const std::string long_name(300, 'n');
  const std::string longer = long_name + "2";
  const Parsed p = parse("[conv-1.2 a]\nk=1\n[ padded ]\nk=2\n[" + long_name + "]\nk=3\n[" + longer +
                         "]\nk=4\n[7]\nk=5\n[x]\nk=6\n[Conv1]\nk=7\n[conv1]\nk=8\n");
  REQUIRE(p.clean());
  CHECK(p.text("conv-1.2 a", "k") == "1");
  CHECK(p.text("padded", "k") == "2");
  CHECK(p.text(long_name.c_str(), "k") == "3");
  CHECK(p.text(longer.c_str(), "k") == "4");
  CHECK(p.text("7", "k") == "5");
  CHECK(p.text("x", "k") == "6");
  CHECK(p.text("Conv1", "k") == "7");
  CHECK(p.text("conv1", "k") == "8");
}

TEST_CASE("keys and lines of any length", "[ini]") {
  const std::string key(1000, 'k');
  // Around inih's initial buffer of 200 bytes and its doublings.
  for (const std::size_t size : {195u, 196u, 197u, 198u, 199u, 200u, 201u, 397u, 398u, 399u, 400u, 100000u}) {
    const std::string value(size, 'v');
    const Parsed p = parse("[a]\nk=" + value + "\n" + key + "=" + value + "\nnext=1\n");
    CAPTURE(size);
    REQUIRE(p.clean());
    CHECK(p.text("a", "k") == value);
    CHECK(p.text("a", key.c_str()) == value);
    CHECK(p.value("a", "next").where.line == 4);
  }
}

TEST_CASE("continuation lines", "[ini]") {
  const Parsed p = parse("[a]\ninputs=x,\n  y,  # comment\n# another\n\n\tz\nnext=1\nlist=\n  p,q\n");
  REQUIRE(p.clean());
  CHECK(p.text("a", "inputs") == "x,\ny,\nz");
  CHECK(p.value("a", "inputs").where.line == 2);
  CHECK(p.text("a", "next") == "1");
  CHECK(p.text("a", "list") == "p,q");
}

TEST_CASE("a repeated key is not a continuation", "[ini]") {
  const Parsed p = parse("[a]\nk=1\nK=2\nother=3\nk=4\n");
  CHECK(p.errors().empty());
  CHECK(p.warnings() ==
        Strings{"net.cfg:3: warning: section 'a': 'K' is given twice; this one replaces line 2",
                "net.cfg:5: warning: section 'a': 'k' is given twice; this one replaces line 3"});
  REQUIRE(p.ini.sections[0].values.size() == 2);
  CHECK(p.text("a", "k") == "4");
  CHECK(p.value("a", "k").where.line == 5);
}

TEST_CASE("indented lines that look like keys continue the value, with a warning", "[ini]") {
  const Parsed p = parse("[a]\nk=1\n  stride = 2\n  [b]\nl=3\n  dexp[base=1]\n");
  CHECK(p.errors().empty());
  CHECK(p.text("a", "k") == "1\nstride = 2\n[b]");
  CHECK(p.text("a", "l") == "3\ndexp[base=1]");
  CHECK(p.warnings() == Strings{"net.cfg:3: warning: the indented line 'stride = 2' continues the value of "
                                "'k' above; begin it in the "
                                "first column if it is a key of its own",
                                "net.cfg:4: warning: the indented line '[b]' continues the value of 'k' "
                                "above; begin it in the first "
                                "column if it is a section of its own"});
}

TEST_CASE("indentation before any key is harmless", "[ini]") {
  const Parsed p = parse("  [a]\n  k=1\n[b]\n  k=2\n");
  CHECK(p.clean());
  CHECK(p.text("a", "k") == "1");
  CHECK(p.text("b", "k") == "2");
}

TEST_CASE("a section given twice is merged", "[ini]") {
  const Parsed p = parse("[a]\nx=1\ny=1\n[b]\nx=5\n[a]\ny=2\nz=3\n");
  CHECK(p.errors().empty());
  CHECK(p.warnings() ==
        Strings{"net.cfg:7: warning: section 'a': 'y' is given twice; this one replaces line 3, because the "
                "section continues that of line 1"});
  REQUIRE(p.ini.sections.size() == 2);
  CHECK(p.ini.sections[0].where.line == 1);
  CHECK(p.text("a", "x") == "1");
  CHECK(p.text("a", "y") == "2");
  CHECK(p.text("a", "z") == "3");
  CHECK(p.text("b", "x") == "5");
}

TEST_CASE("[DEFAULT] is inherited", "[ini]") {
  const Parsed p = parse("[a]\nepsW=1\n[DEFAULT]\nepsW=9\nMomW=0.9\n[b]\n[default]\nk=1\n");
  REQUIRE(p.clean());
  REQUIRE(p.ini.sections.size() == 3);
  CHECK(p.ini.find("DEFAULT") == nullptr);
  CHECK(p.ini.find("default"));  // only in capitals
  CHECK(p.text("a", "epsW") == "1");
  CHECK_FALSE(p.value("a", "epsW").from_default);
  CHECK(p.text("b", "epsW") == "9");
  const IniValue& inherited = p.value("b", "momw");
  CHECK(inherited.from_default);
  CHECK(inherited.text == "0.9");
  CHECK(inherited.written == "MomW");
  CHECK(inherited.where.line == 5);
  CHECK(p.ini.sections[0].values.back().key == "momw");
}

TEST_CASE("interpolation", "[ini]") {
  const Parsed p = parse(
      "[DEFAULT]\nbase=0.01\nrate=dexp[base=%(BASE)s;tgtFactor=2]\npercent=100%%\n"
      "[a]\nepsW=%(rate)s\nk=<%(base)s%(base)s>%%(base)s\ne=\nf=%(e)s\n"
      "[b]\nBase=0.5\nepsW=%(rate)s\n");
  REQUIRE(p.clean());
  CHECK(p.text("a", "epsW") == "dexp[base=0.01;tgtFactor=2]");
  CHECK(p.text("a", "k") == "<0.010.01>%(base)s");
  CHECK(p.text("a", "f") == "");
  CHECK(p.text("a", "percent") == "100%");
  CHECK(p.text("b", "epsW") == "dexp[base=0.5;tgtFactor=2]");  // the section's own first
  CHECK(p.text("b", "rate") == "dexp[base=0.5;tgtFactor=2]");
}

TEST_CASE("interpolation nests ten deep", "[ini]") {
  std::string text = "[a]\nk0=end\n";
  for (int i = 1; i <= 11; ++i) text += "k" + std::to_string(i) + "=%(k" + std::to_string(i - 1) + ")s\n";
  const Parsed p = parse(text);
  CHECK(p.text("a", "k10") == "end");
  CHECK(p.errors() == Strings{"net.cfg:13: section 'a': 'k11' has references nested more than 10 deep"});
}

TEST_CASE("mistakes of interpolation", "[ini]") {
  CHECK(errors_of("[a]\nx=1\nk=%(y)s\n") == Strings{"net.cfg:3: section 'a': 'k' refers to '%(y)s', but "
                                                    "neither the section nor [DEFAULT] has that key"});
  CHECK(errors_of("[a]\nK=%(k)s\n") ==
        Strings{"net.cfg:2: section 'a': 'K' refers to itself through '%(k)s'"});
  CHECK(errors_of("[a]\nx=%(y)s\ny=%(x)s\n") ==
        Strings{"net.cfg:2: section 'a': 'x' refers to itself through '%(x)s'",
                "net.cfg:3: section 'a': 'y' refers to itself through '%(y)s'"});
  for (const char* value : {"50%", "%", "%s", "%(x)", "%(x", "%()s", "%(x)d"}) {
    CAPTURE(value);
    const Parsed p = parse("[a]\nx=1\nk=" + std::string(value) + "\n");
    CHECK(p.errors() == Strings{"net.cfg:3: section 'a': 'k' has a lone '%'; a percent sign is written '%%', "
                                "a reference '%(key)s'"});
    CHECK(p.text("a", "k") == value);
  }
  // A wrong default is one mistake, in however many sections.
  CHECK(errors_of("[DEFAULT]\nk=%(x)s\n[a]\n[b]\n") ==
        Strings{"net.cfg:2: section 'a': 'k' refers to '%(x)s', but neither the section nor [DEFAULT] has "
                "that key"});
}

TEST_CASE("mistakes of syntax, each with its line", "[ini]") {
  CHECK(errors_of("[a]\nk=1\nnonsense\nl=2\nmore nonsense # c\n") ==
        Strings{"net.cfg:3: expected [section] or key=value, found 'nonsense'",
                "net.cfg:5: expected [section] or key=value, found 'more nonsense'"});
  CHECK(errors_of("nonsense") == Strings{"net.cfg:1: expected [section] or key=value, found 'nonsense'"});
  CHECK(errors_of("[a]\r\n\r\nnonsense\r\n") ==
        Strings{"net.cfg:3: expected [section] or key=value, found 'nonsense'"});
  CHECK(errors_of("k=1\n  l\nm=2\n[a]\n") == Strings{"net.cfg:1: key 'k' stands before any [section]"});
  CHECK(errors_of("[]\nk=1\n  c\n[ ]\n") ==
        Strings{"net.cfg:1: a section without a name", "net.cfg:4: a section without a name"});
  CHECK(errors_of("[a]\n=1\n: 2\n") ==
        Strings{"net.cfg:2: a value without a key: '=1'", "net.cfg:3: a value without a key: '=2'"});
  CHECK(errors_of("[\n") == Strings{"net.cfg:1: '[' without ']' in '['"});
  CHECK(errors_of(std::string("[a]\nk=1\nl=\0\n", 12)) ==
        Strings{"net.cfg:3: holds a NUL byte; this is not a text file"});
}

TEST_CASE("an unclosed section keeps its name, so that nothing follows from it", "[ini]") {
  const Parsed p = parse("[a]\nk=1\n[conv2 # c\nk=2\n");
  CHECK(p.errors() == Strings{"net.cfg:3: '[' without ']' in '[conv2 # c'"});
  CHECK(p.warnings().empty());
  CHECK(p.text("a", "k") == "1");
  CHECK(p.text("conv2", "k") == "2");
}

TEST_CASE("a section without its first bracket keeps its name, too", "[ini]") {
  const Parsed p = parse("[a]\nk=1\nconv2] # c\nk=2\nl=tanh[1,\n 2]\n");
  CHECK(p.errors() == Strings{"net.cfg:3: ']' without '[' in 'conv2]'"});
  CHECK(p.warnings().empty());
  CHECK(p.text("a", "k") == "1");
  CHECK(p.text("conv2", "k") == "2");
  CHECK(p.text("conv2", "l") == "tanh[1,\n2]");
}

TEST_CASE("files in UTF-16 and with line ends of old Macs are refused as a whole", "[ini]") {
  const Parsed wide = parse(std::string("\xFF\xFE[\0a\0", 6));
  CHECK(wide.errors() == Strings{"net.cfg: is a text in UTF-16; save it in UTF-8"});
  CHECK(wide.ini.text.empty());
  const Parsed mac = parse("[a]\rk=1\r");
  CHECK(mac.errors() ==
        Strings{"net.cfg: has the line ends of old Macs (CR alone), which make it one line; save "
                "it with those of Unix (LF) or Windows (CR LF)"});
  CHECK(mac.ini.text.empty());
  CHECK(parse("[a]\r").clean());
  const Parsed windows = parse("[a]\r\nk=\xE9\r\n");
  REQUIRE(windows.clean());
  CHECK(windows.text("a", "k") == "\xC3\xA9");  // Latin-1
}

TEST_CASE("text after a section's bracket is ignored with a warning", "[ini]") {
  const Parsed p = parse("[a] k=1\n[b]] ; c\n");
  CHECK(p.errors().empty());
  CHECK(p.warnings() == Strings{"net.cfg:1: warning: the text after the section's ']' is ignored: 'k=1'",
                                "net.cfg:2: warning: the text after the section's ']' is ignored: ']'"});
  CHECK(p.ini.find("a"));
  CHECK(p.ini.find("b"));
}

TEST_CASE("hostile files are refused in time and memory", "[ini]") {
  const auto start = std::chrono::steady_clock::now();
  SECTION("references that multiply") {
    std::string text = "[DEFAULT]\na0=xxxxxxxxxx\n";
    for (int i = 1; i <= 9; ++i) {
      text += "a" + std::to_string(i) + "=";
      for (int k = 0; k < 50; ++k) text += "%(a" + std::to_string(i - 1) + ")s";
      text += "\n";
    }
    const Strings errors = errors_of(text + "[b]\n");
    REQUIRE(errors.size() == 1);
    CHECK(errors[0].ends_with(
        "is too much: [DEFAULT], %(key)s and templates make more than 16 MiB of this file"));
  }
  SECTION("empty references that multiply") {
    std::string text = "[a]\na0=\n";
    for (int i = 1; i <= 9; ++i) {
      text += "a" + std::to_string(i) + "=";
      for (int k = 0; k < 50; ++k) text += "%(a" + std::to_string(i - 1) + ")s";
      text += "\n";
    }
    REQUIRE(errors_of(text).size() == 1);
  }
  SECTION("many defaults in many sections") {
    std::string text = "[DEFAULT]\n";
    for (int i = 0; i < 5000; ++i) text += "k" + std::to_string(i) + "=\n";
    for (int i = 0; i < 5000; ++i) text += "[s" + std::to_string(i) + "]\n";
    const Strings errors = errors_of(text);
    REQUIRE(errors.size() == 1);
    CHECK(errors[0].find("is too much") != std::string::npos);
  }
  SECTION("long names, many sections, many parameters") {
    CHECK(errors_of("[" + std::string(1001, 'n') + "]\nk=1\n[" + std::string(1000, 'n') + "]\nk=1\n") ==
          Strings{
              "net.cfg:1: section 'nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn...' has a name "
              "of 1001 bytes; names may have 1000"});
    std::string text;
    for (int i = 0; i < 10000; ++i) text += "[s" + std::to_string(i) + "]\n";
    CHECK(errors_of("[DEFAULT]\n" + text + "[s7]\n").empty());
    CHECK(errors_of(text + "[more]\nk=1\n[again]\n") ==
          Strings{"net.cfg:10001: the file has more than 10000 sections"});
    std::string parameters = "p0";
    for (int i = 1; i < 256; ++i) parameters += ",p" + std::to_string(i);
    CHECK(errors_of("[template t(" + parameters + ")]\n[a]\n[end]\n").empty());
    CHECK(errors_of("[template t(" + parameters + ",q,q)]\n[a]\n[end]\n") ==
          Strings{"net.cfg:1: template 't' has more than 256 parameters"});
  }
  SECTION("a mistake in every line") {
    std::string text = "[" + std::string(1000, 'n') + "]\n";
    for (int i = 0; i < 100000; ++i) text += "k=\nx\n";
    const Parsed p = parse(text);
    CHECK(p.errors().size() == Diagnostics::max_messages + 1);
    CHECK(p.warnings().size() == Diagnostics::max_messages + 1);
    CHECK(p.warnings()[0].size() < 200);
  }
  SECTION("one line of the largest size") {
    CHECK(errors_of("[a]\nk=" + std::string((4 << 20) - 6, 'x')).empty());
    CHECK(errors_of(std::string((4 << 20) + 1, '\n')) ==
          Strings{"net.cfg: is larger than 4 MiB; is this a layer file?"});
  }
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
}

TEST_CASE("files are parsed by several threads at once", "[ini]") {
  std::vector<std::thread> threads;
  std::vector<std::string> results(4);
  for (std::string& result : results)
    threads.emplace_back([&result] {
      Diagnostics diagnostics;
      const IniFile ini =
          parse_ini("t", "[" + std::string(60, 's') + "]\nk=" + std::string(900, 'v'), diagnostics);
      result = ini.sections.at(0).values.at(0).text;
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& result : results) CHECK(result == std::string(900, 'v'));
}

TEST_CASE("read_ini reads a file or says why not", "[ini]") {
  namespace fs = std::filesystem;
  const fs::path folder =
      fs::temp_directory_path() / ("convnet_ini_test_" + std::to_string(std::random_device{}()));
  fs::create_directory(folder);
  const std::string good = (folder / "net.cfg").string();
  const std::string large = (folder / "large.cfg").string();
  std::ofstream(good, std::ios::binary) << "[a]\r\nk=1\r\n";
  std::ofstream(large, std::ios::binary) << std::string(5 << 20, '#');
  Diagnostics diagnostics;
  const IniFile ini = read_ini(good, diagnostics);
  CHECK_FALSE(diagnostics.has_errors());
  CHECK(ini.text == "[a]\r\nk=1\r\n");
  REQUIRE(ini.find("a"));
  CHECK(ini.find("a")->find("k")->where.str() == good + ":2");

  const std::string absent = (folder / "absent.cfg").string();
  CHECK(read_ini(absent, diagnostics).sections.empty());
  read_ini(folder.string(), diagnostics);
  read_ini(large, diagnostics);
  CHECK(diagnostics.errors() == Strings{absent + ": cannot be read: No such file or directory",
                                        folder.string() + ": cannot be read: Is a directory",
                                        large + ": is larger than 4 MiB; is this a layer file?"});
  fs::remove_all(folder);
}

TEST_CASE("files that are not UTF-8 are read as Latin-1") {
  const convnet::TempFolder folder;
  const std::string path = folder / "net.cfg";
  convnet::write_file(path, "# caf\xe9\n[a]\ntype=data\n[b\xfc]\nk=\xc3\xa9\n");
  convnet::Diagnostics diagnostics;
  const convnet::IniFile file = convnet::read_ini(path, diagnostics);
  CHECK_FALSE(diagnostics.has_errors());
  CHECK(file.text.starts_with("# caf\xc3\xa9\n"));
  REQUIRE(file.sections.size() == 2);
  CHECK(file.sections[1].name == "b\xc3\xbc");

  const std::string good = folder / "good.cfg";
  convnet::write_file(good, "[b\xc3\xbc]\nk=\xf0\x9f\x98\x80\n");
  CHECK(convnet::read_ini(good, diagnostics).sections.at(0).name == "b\xc3\xbc");
}
