// Pickles that Python and NumPy wrote (tests/providers/make_pickles.py), and hostile ones.
#include "providers/pickle.h"

#include "convnet/base/error.h"
#include "providers/pickle_write.h"
#include "tests/catch.h"
#include "tests/temp_folder.h"

using namespace convnet;

namespace {

using Kind = PickleKind;
using namespace std::string_literals;

std::string data_file(const std::string& name, int protocol) {
  return std::string(CONVNET_SOURCE_DIR) + "/tests/providers/data/" + name + "-p" + std::to_string(protocol) +
         ".pickle";
}

std::string unpickling_error(const std::string& bytes) {
  return message_of<InputError>([&] { parse_pickle(bytes, "file"); });
}

PickleValue at(const PickleValue& value, const char* key) {
  const auto found = value.find(key);
  REQUIRE(found);
  return *found;
}

std::vector<std::string> strings(const PickleValue& list) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < list.size(); ++i) out.emplace_back(list[i].string("item"));
  return out;
}

}  // namespace

TEST_CASE("pickles of every protocol hold the same", "[pickle]") {
  for (int protocol = 0; protocol <= 5; ++protocol) {
    CAPTURE(protocol);
    const PickleValue root = read_pickle(data_file("python", protocol));
    REQUIRE(root.kind() == Kind::dict);
    CHECK(root.size() == 22);
    CHECK(root.keys() == std::vector<std::string>{"none", "booleans", "integers", "floats", "text", "bytes",
                                                  "tuples", "long list", "shared", "nested"});
    CHECK(at(root, "none").is_none());
    CHECK_FALSE(root.find("None"));
    CHECK(at(root, "booleans")[0].kind() == Kind::boolean);
    CHECK(at(root, "booleans").integers("them") == std::vector<std::int64_t>{1, 0});
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
    CHECK(at(root, "integers").integers("them") ==
          std::vector<std::int64_t>{0, 1, -1, 255, 256, 65535, 65536, -32769, 2147483647, -2147483648LL,
                                    2147483648LL, most, -most - 1});
    CHECK(at(root, "floats").numbers("them") ==
          std::vector<double>{0, -1.5, 0.1, 1e300, std::numeric_limits<double>::infinity()});
    CHECK(at(root, "text")[0].kind() == Kind::text);
    CHECK(strings(at(root, "text")) ==
          std::vector<std::string>{"", "cat", "it's \"quoted\"", "back\\slash\n\ttab", "Grüße, 猫 🐈"});
    std::string all_bytes;
    for (int i = 0; i < 256; ++i) all_bytes += static_cast<char>(i);
    CHECK(at(root, "bytes")[0].kind() == Kind::bytes);
    CHECK(strings(at(root, "bytes")) == std::vector<std::string>{"", "dog", all_bytes});
    const PickleValue tuples = at(root, "tuples");
    REQUIRE(tuples.size() == 5);
    for (std::size_t i = 0; i < 5; ++i) {
      CHECK(tuples[i].kind() == Kind::tuple);
      CHECK(tuples[i].size() == i);
    }
    CHECK(tuples[4].integers("them") == std::vector<std::int64_t>{1, 2, 3, 4});
    const std::vector<std::int64_t> numbers = at(root, "long list").integers("them");
    REQUIRE(numbers.size() == 1001);
    CHECK(numbers[1000] == 1000);
    CHECK(at(root, "shared")[1][0].string("it") == "once");
    CHECK(at(at(at(root, "nested"), "a"), "b")[0].find("c")->describe() == "a tuple of 0 values");
  }
}

TEST_CASE("NumPy arrays of every protocol, type and order are read", "[pickle]") {
  for (const char* numpy : {"numpy1", "numpy2"})
    for (int protocol = 0; protocol <= 5; ++protocol) {
      CAPTURE(numpy, protocol);
      const PickleValue root = read_pickle(data_file(numpy, protocol));
      CHECK(at(root, "empty").array("it").dims == Dims{0, 3});
      CHECK(at(root, "empty").integers("it").empty());
      CHECK(at(root, "single").array("it").dims.empty());
      CHECK(at(root, "single").integers("it") == std::vector<std::int64_t>{5});
      for (const std::string kind : {"u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8"})
        for (const char order : {'<', '>'}) {
          CAPTURE(kind, order);
          const PickleValue value = at(root, (order + kind).c_str());
          const PickleArray& array = value.array("it");
          CHECK(array.type == kind[0]);
          CHECK(array.item_bytes == kind[1] - '0');
          CHECK(array.dims == Dims{2, 3});
          const double first = kind[0] == 'u' ? 0 : -2;
          CHECK(value.numbers("it") ==
                std::vector<double>{first, first + 1, first + 2, first + 3, first + 4, first + 5});
          CHECK(value.integers("it")[5] == static_cast<std::int64_t>(first) + 5);
        }
      CHECK(at(root, "b1").integers("it") == std::vector<std::int64_t>{0, 1, 0, 1, 0, 1});
      CHECK(at(root, "C").array("it").is_bytes());
      CHECK(at(root, "C").array("it").data == "\0\1\2\3\4\5"s);
      CHECK(at(root, "F").array("it").fortran);
      CHECK(at(root, "F").array("it").data == "\0\3\1\4\2\5"s);
      CHECK(at(root, "F").integers("it") == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5});
      CHECK(at(root, "frozen").integers("it") == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5});
      CHECK(at(root, "strided").array("it").dims == Dims{2, 2});
      CHECK(at(root, "strided").integers("it") == std::vector<std::int64_t>{0, 2, 3, 5});
      const std::vector<double> cube = at(root, "F3").numbers("it");
      REQUIRE(cube.size() == 24);
      for (std::size_t i = 0; i < 24; ++i) CHECK(cube[i] == static_cast<double>(i));
      CHECK(at(root, "scalars").numbers("them") == std::vector<double>{200, -3, 0.5, -0.25, 1, 9});
      CHECK(at(root, "scalars")[1].kind() == Kind::integer);
      CHECK(at(root, "scalars")[4].kind() == Kind::boolean);
    }
}

TEST_CASE("what Python 2 writes is read", "[pickle]") {
  // {'data': 'a\nb', 'n': 7L} in protocols 0 and 2, and an array's bytes as a str.
  const PickleValue zero =
      parse_pickle("(dp0\nS'data'\np1\nS'a\\nb\\x00\\''\np2\nsS'n'\np3\nL7L\ns.", "file");
  CHECK(zero.find("data")->string("it") == "a\nb\0'"s);
  CHECK(zero.find("data")->kind() == Kind::bytes);
  CHECK(zero.find("n")->integer("it") == 7);
  CHECK(parse_pickle("Vcaf\xe9\n.", "file").string("it") == "café");  // Latin-1
  const PickleValue two = parse_pickle("\x80\x02}q\0(U\4dataq\1U\3a\nbq\2U\1nq\3\x8a\1\7u."s, "file");
  CHECK(two.find("data")->string("it") == "a\nb");
  CHECK(two.find("n")->integer("it") == 7);
  const PickleValue array = parse_pickle(
      "\x80\x02"
      "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85U\1b\x87R(K\1K\2\x85"
      "cnumpy\ndtype\nU\2u1K\0K\1\x87R(K\3U\1|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89U\2\3\4tb."s,
      "file");
  CHECK(array.integers("it") == std::vector<std::int64_t>{3, 4});
}

TEST_CASE("whole-valued floats are integers, others are not", "[pickle]") {
  const auto integers = [](const std::string& bytes) {
    return parse_pickle(pickles::pickle_file(bytes), "file").integers("labels");
  };
  const auto error = [&](const std::string& bytes) {
    const std::string text = message_of<InputError>([&] { integers(bytes); });
    return text.substr(text.find("item"));
  };
  CHECK(integers(pickles::array({3}, std::vector<float>{2, 0, -1})) == std::vector<std::int64_t>{2, 0, -1});
  CHECK(integers("]F2.0\naF-1.0\na") == std::vector<std::int64_t>{2, -1});
  CHECK(error(pickles::array({2}, std::vector<double>{1, 0.5})) ==
        "item 1 of labels should be an integer of at most 64 bits, not 0.5");
  CHECK(error(pickles::array({1}, std::vector<float>{std::nanf("")})) ==
        "item 0 of labels should be an integer of at most 64 bits, not nan");
  CHECK(error(pickles::array({1}, std::vector<double>{9223372036854775808.0})) ==
        "item 0 of labels should be an integer of at most 64 bits, not 9.223372036854776e+18");
  CHECK(error("]F1.0\naF0.5\na") == "item 1 of labels should be an integer, not the number 0.5");
  CHECK(error("]F1e300\na") == "item 0 of labels should be an integer, not the number 1e+300");
}

TEST_CASE("values say what they are not", "[pickle]") {
  const PickleValue root = parse_pickle("\x80\x02]K\5a."s, "file");
  const auto error = [](const auto& call) { return message_of<InputError>(call); };
  CHECK(error([&] { root.array("data"); }) ==
        "file: byte 2: data should be a NumPy array, not a list of 1 values");
  CHECK(error([&] { root.integer("n"); }) == "file: byte 2: n should be an integer, not a list of 1 values");
  CHECK(error([&] { root.number("n"); }) == "file: byte 2: n should be a number, not a list of 1 values");
  CHECK(error([&] { root.string("n"); }) == "file: byte 2: n should be text, not a list of 1 values");
  CHECK(error([&] { root[0].integers("n"); }) ==
        "file: byte 3: n should be a list of integers, not the integer 5");
  CHECK(error([&] { root[0].numbers("n"); }) ==
        "file: byte 3: n should be a list of numbers, not the integer 5");
  CHECK(error([] { parse_pickle("]Na.", "file").integers("labels"); }) ==
        "file: byte 1: item 0 of labels should be an integer, not None");
  CHECK(root.find("key") == std::nullopt);
}

TEST_CASE("a pickle's code is refused by name and never run", "[pickle]") {
  const std::string rest = "; only data and NumPy arrays are read";
  CHECK(unpickling_error("cos\nsystem\n(S'true'\ntR.") == "file: byte 0: it refers to os.system" + rest);
  CHECK(unpickling_error("\x80\4\x8c\2os\x8c\6system\x93.") ==
        "file: byte 14: it refers to os.system" + rest);
  CHECK(unpickling_error("(S'true'\nios\nsystem\n.") ==
        "file: byte 9: it wants an object of os.system made" + rest);
  CHECK(unpickling_error("ccollections\nOrderedDict\n)R.") ==
        "file: byte 0: it refers to collections.OrderedDict" + rest);
  CHECK(unpickling_error("cnumpy\nload\n.") == "file: byte 0: it refers to numpy.load" + rest);
  CHECK(unpickling_error("c\x1b[31m\n" + std::string(100, 'x') + "\n.") ==
        "file: byte 0: it refers to \\x1b[31m." + std::string(60, 'x') + "…" + rest);
  CHECK(unpickling_error("cnumpy\nndarray\n)\x81.") == "file: byte 16: it wants an object made" + rest);
  CHECK(unpickling_error("(cnumpy\nndarray\no.") == "file: byte 16: it wants an object made" + rest);
  CHECK(unpickling_error("Pname\n.") == "file: byte 0: it refers to an object outside of the file" + rest);
  CHECK(unpickling_error("\x82\1.") ==
        "file: byte 0: it names an object by a number of the copyreg registry" + rest);
  CHECK(unpickling_error("cnumpy\nndarray\n)R.") ==
        "file: byte 16: numpy.ndarray is called; NumPy writes arrays in another way");
  CHECK(unpickling_error("K\1)R.") == "file: byte 3: the integer 1 is called");
  CHECK(unpickling_error("c__builtin__\nbytes\nK\5\x85R.") ==
        "file: byte 22: bytes() with arguments is not read");
  CHECK(unpickling_error("c_codecs\nencode\nX\1\0\0\0aX\4\0\0\0utf8\x86R."s) ==
        "file: byte 32: _codecs.encode is read for a text in latin1 only");
  CHECK(unpickling_error("c_codecs\nencode\nX\3\0\0\0\xe7\x8c\xabX\6\0\0\0latin1\x86R."s) ==
        "file: byte 36: _codecs.encode: the text holds letters that are not in latin1");
  CHECK(unpickling_error("]}b.") ==
        "file: byte 2: a list of 0 values gets a state; only NumPy arrays and types have one");
  CHECK(unpickling_error("\x8f.") == "file: byte 0: sets are not read");
}

TEST_CASE("damaged pickles are refused", "[pickle]") {
  CHECK(unpickling_error("") == "file: the file is empty");
  CHECK(unpickling_error("\x89PNG") ==
        "file: byte 1: it refers to an object outside of the file; only data and NumPy arrays are read");
  CHECK(unpickling_error("\x1f\x8b") ==
        "file: byte 0: is compressed by gzip, not a pickle; unpack it with gunzip");
  CHECK(unpickling_error("PK\3\4\24\0\0\0"s) ==
        "file: byte 0: is a zip archive, not a pickle; unpack it with unzip");
  CHECK(unpickling_error("Pid\n.") ==
        "file: byte 0: it refers to an object outside of the file; only data and NumPy arrays are read");
  CHECK(unpickling_error("\x1f\x1f") ==
        "file: byte 0: this is no pickle: 0x1f is no opcode of protocols 0 to 5 that stands for data");
  CHECK(unpickling_error("\x80\6N.") ==
        "file: byte 0: this is a pickle of protocol 6; 0 to 5 are read: save it by "
        "pickle.dump(data, file, protocol=5)");
  for (const char* buffer : {"\x80\5\x97.", "\x80\5\x97\x98."})
    CHECK(unpickling_error(buffer) ==
          "file: byte 2: its buffers are not in the file, because it was pickled with buffer_callback=: save "
          "it by pickle.dump(data, file)");
  CHECK(unpickling_error("\x80\5\x96\xff\xff\xff\xff\xff\xff\xff\x7fx.") ==
        "file: byte 2: the file is truncated: 9223372036854775807 bytes should follow byte 11, there are 2");
  CHECK(unpickling_error("N") ==
        "file: byte 1: the file is truncated: 1 bytes should follow byte 1, there are 0");
  CHECK(unpickling_error("X\xff\xff\xff\xff"s + "abc") ==
        "file: byte 0: the file is truncated: 4294967295 bytes should follow byte 5, there are 3");
  CHECK(unpickling_error("\x8d\xff\xff\xff\xff\xff\xff\xff\xff") ==
        "file: byte 0: the file is truncated: 18446744073709551615 bytes should follow byte 9, there are 0");
  CHECK(unpickling_error("\x95\x08\0\0\0\0\0\0\0N."s) ==
        "file: byte 0: the file is truncated: a frame of 8 bytes should follow byte 9, there are 2");
  CHECK(unpickling_error("I12") == "file: byte 0: the file is truncated: a line does not end");
  CHECK(unpickling_error("Iten\n.") == "file: byte 0: 'ten' is no integer");
  CHECK(unpickling_error("Fone\n.") == "file: byte 0: 'one' is no number");
  CHECK(unpickling_error("L99999999999999999999L\n.") == "file: byte 0: an integer is beyond 64 bits");
  CHECK(unpickling_error("\x8a\x09\0\0\0\0\0\0\0\0\1."s) == "file: byte 0: an integer is beyond 64 bits");
  CHECK(unpickling_error("\x8a\x09\0\0\0\0\0\0\0\x80\0."s) == "file: byte 0: an integer is beyond 64 bits");
  CHECK(unpickling_error("\x8a\x09\0\0\0\0\0\0\0\0\xff."s) == "file: byte 0: an integer is beyond 64 bits");
  CHECK(unpickling_error("Sabc\n.") == "file: byte 0: a string is not quoted: abc");
  CHECK(unpickling_error("S'\\q'\n.") ==
        "file: byte 0: a string holds an escape that Python does not write: \\q");
  CHECK(unpickling_error("S'\\x1'\n.") ==
        "file: byte 0: a string holds an escape that Python does not write: \\x1");
  CHECK(unpickling_error("S'\\'\n.") == "file: byte 0: a string ends within an escape");
  CHECK(unpickling_error("Va\\u12\n.") == "file: byte 0: a text holds a damaged escape: \\u12");
  CHECK(unpickling_error("V\\U00110000\n.") == "file: byte 0: a text holds a damaged escape: \\U00110000");
  CHECK(unpickling_error(".") == "file: byte 0: the pickle ends with 0 values instead of one");
  CHECK(unpickling_error("NN.") == "file: byte 2: the pickle ends with 2 values instead of one");
  CHECK(unpickling_error("a.") == "file: byte 0: opcode 0x61 needs 1 value(s) on the stack");
  CHECK(unpickling_error("N(a.") == "file: byte 2: opcode 0x61 needs 1 value(s) on the stack");
  CHECK(unpickling_error("Nt.") == "file: byte 1: opcode 0x74 needs a mark on the stack");
  CHECK(unpickling_error("NNa.") == "file: byte 2: items are added to None");
  CHECK(unpickling_error("}(Nu.") == "file: byte 3: a key of a dict has no value");
  CHECK(unpickling_error("h\7.") == "file: byte 0: memo entry 7 is used before it is set");
  CHECK(unpickling_error("Npx\n.") == "file: byte 1: 'x' is no number of a memo entry");
  CHECK(unpickling_error("\x80\4NN\x93.") == "file: byte 4: a name should be text, not None");
}

TEST_CASE("damaged NumPy arrays are refused", "[pickle]") {
  const std::string start = "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85U\1b\x87R"s;
  const auto type = [](const std::string& name, const std::string& order) {
    return "cnumpy\ndtype\nU" + std::string(1, static_cast<char>(name.size())) + name + "K\0K\1\x87R(K\3U"s +
           std::string(1, static_cast<char>(order.size())) + order + "NNNtb";
  };
  const auto array_error = [&](const std::string& state) {
    std::string message = unpickling_error(start + state);
    REQUIRE(message.starts_with("file: byte "));
    return message.substr(message.find(": ", 6) + 2);
  };
  CHECK(array_error("(K\1K\3\x85" + type("i2", "<") + "\x89U\5abcdetb.") ==
        "a NumPy array of 3 numbers of 2 byte(s) has 5 bytes");
  // Sides whose product overflows, in both ways it can.
  CHECK(array_error("(K\1J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86J\xff\xff\xff\x7f\x86"s + type("u1", "|") +
                    "\x89U\1atb.") == "a side of a NumPy array is a tuple of 2 values");
  CHECK(array_error("(K\1(J\xff\xff\xff\x7fJ\xff\xff\xff\x7fJ\xff\xff\xff\x7fJ\xff\xff\xff\x7ft"s +
                    type("u1", "|") + "\x89U\1atb.")
            .ends_with(" numbers of 1 byte(s) has 1 bytes"));
  CHECK(array_error("(K\1J\xff\xff\xff\xff\x85"s + type("u1", "|") + "\x89U\1atb.") ==
        "a side of a NumPy array is the integer -1");
  CHECK(array_error("(K\1("s + std::string(66, 'K') + "t" + type("u1", "|") + "\x89U\1atb.") ==
        "a NumPy array has 33 dimensions");
  CHECK(array_error("(K\1)" + type("O8", "|") + "\x89]tb.") ==
        "NumPy type 'O8' is not read; bool, integers, float32 and float64 are");
  CHECK(array_error("(K\1)" + type("f2", "<")) ==
        "NumPy type 'f2' is not read; bool, integers, float32 and float64 are");
  CHECK(array_error("(K\1)" + type("u1", "x")) == "'x' is no byte order of a NumPy type");
  CHECK(array_error("(K\1)" + type("u1", "|") + "\x89]tb.") ==
        "a NumPy array's data should be bytes, not a list of 0 values");
  CHECK(array_error(")b.") == "a NumPy array's state is not (version, shape, type, order, bytes)");
  CHECK(array_error("Nb.") == "a state should be a tuple, not None");
  CHECK(unpickling_error("cnumpy.core.multiarray\nscalar\n" + type("i4", "<") + "U\2ab\x86R.")
            .ends_with("a NumPy scalar of 4 bytes has 2"));
  CHECK(unpickling_error("cnumpy.core.multiarray\nscalar\nNU\2ab\x86R.")
            .ends_with("a NumPy scalar should have a type and bytes"));
  CHECK(unpickling_error("cnumpy.core.multiarray\nscalar\n" + type("u8", "<") +
                         "U\x08\xff\xff\xff\xff\xff\xff\xff\xff\x86R.")
            .ends_with("an integer is beyond 64 bits"));
  // The call of protocol 5.
  const auto buffer_error = [&](const std::string& args) {
    const std::string message =
        unpickling_error("\x80\5" + "cnumpy._core.numeric\n_frombuffer\n("s + args + "tR.");
    return message.substr(message.find(": ", 6) + 2);
  };
  const std::string five = "\x96\5\0\0\0\0\0\0\0abcde"s, order = "\x8c\1C"s;
  CHECK(buffer_error(five + type("i2", "<") + "K\3\x85" + order) ==
        "a NumPy array of 3 numbers of 2 byte(s) has 5 bytes");
  CHECK(buffer_error("]" + type("i2", "<") + "K\3\x85" + order) ==
        "a NumPy array's data should be bytes, not a list of 0 values");
  CHECK(buffer_error(five + type("u1", "|") + "J\xff\xff\xff\xff\x85" + order) ==
        "a side of a NumPy array is the integer -1");
  for (const std::string& args :
       {five, five + "N" + "K\5\x85" + order, five + type("u1", "|") + "K\5" + order,
        five + type("u1", "|") + "K\5\x85" + "\x8c\1A", five + type("u1", "|") + "K\5\x85" + order + order}) {
    CAPTURE(args);
    CHECK(buffer_error(args) == "a NumPy array is not made of (bytes, type, shape, order)");
  }
}

TEST_CASE("deep, cyclic and repeating pickles cost no more than their bytes", "[pickle]") {
  SECTION("a million lists in each other") {
    const std::string depth(1'000'000, ']');
    CHECK(parse_pickle(depth + std::string(999'999, 'a') + ".", "file").describe() == "a list of 1 values");
  }
  SECTION("a list that holds itself") {
    const PickleValue value = parse_pickle("]q\0h\0a."s, "file");
    CHECK(value[0][0][0].size() == 1);
    CHECK(message_of<InputError>([&] { value.integers("labels"); }) ==
          "file: byte 0: item 0 of labels should be an integer, not a list of 1 values");
  }
  SECTION("lists that double") {
    std::string bytes = "(]";
    for (char i = 0; i < 100; ++i) bytes += "q"s + i + "](h" + i + "h" + i + "e";
    CHECK(parse_pickle(bytes + "t.", "file")[100][1].size() == 2);
  }
  SECTION("one long text, turned into bytes again and again") {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += "\xc3\xbc";
    std::string bytes =
        "]c_codecs\nencode\nq\0X\x40\x0d\x03\0"s + text + "q\1X\6\0\0\0latin1\x86q\2\x30\x30("s;
    for (int i = 0; i < 100'000; ++i) bytes += "h\0h\2R"s;
    const PickleValue value = parse_pickle(bytes + "e.", "file");
    CHECK(value.size() == 100'000);
    CHECK(value[0].string("it").data() == value[99'999].string("it").data());
  }
  SECTION("more values than are sensible") {
    CHECK(unpickling_error(std::string((1U << 24) + 1, 'N')) ==
          "file: byte 16777216: there are more than 16777216 values");
    CHECK(unpickling_error("N" + std::string((1U << 24) + 1, '\x94')) ==
          "file: byte 16777217: there are more than 16777216 values in the memo");
  }
}

TEST_CASE("pickles come from files", "[pickle]") {
  const TempFolder folder;
  CHECK(message_of<InputError>([&] { read_pickle(folder / "none"); }) == folder / "none" + ": no such file");
  CHECK(message_of<InputError>([&] { read_pickle(folder.path()); }) ==
        folder.path() + ": is a folder; only regular files can be read here");
  write_file(folder / "damaged", "\x80\2]");
  CHECK(message_of<InputError>([&] { read_pickle(folder / "damaged"); }) ==
        folder / "damaged" + ": byte 3: the file is truncated: 1 bytes should follow byte 3, there are 0");
}
