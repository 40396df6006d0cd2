// Files of torch.save that PyTorch wrote (tests/train/make_torch_files.py), and hostile ones.
#include "convnet/checkpoint/torch_file.h"

#include <algorithm>
#include <filesystem>

#include "convnet/base/error.h"
#include "tests/catch.h"
#include "tests/temp_folder.h"

namespace convnet {
namespace {

using namespace std::string_literals;
using Entries = std::vector<std::pair<std::string, std::string>>;

std::string data_file(const std::string& name) {
  return std::string(CONVNET_SOURCE_DIR) + "/tests/train/data/" + name;
}

TorchWeights read(const std::string& path) { return read_torch_file(InputFile(path)); }
TorchWeights parse(const std::string& bytes) { return read_torch_file(InputFile("f.pth", bytes)); }

std::string error_of(const std::string& bytes) {
  return message_of<InputError>([&] { parse(bytes); });
}

std::vector<float> ramp(float first, std::size_t count, float step = 0.125F) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = first + step * static_cast<float>(i);
  return values;
}

std::string little(std::uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(i < 8 ? value >> (8 * i) & 0xff : 0);
  return out;
}

/// How make_zip() departs from what torch.save writes.
struct ZipOptions {
  int method = 0;            ///< 8: says that files are compressed
  bool zip64 = false;        ///< sizes and places stand in zip64 records only
  std::string comment = {};  ///< at the end of the archive
};

/// A zip archive of these files, without checksums.
std::string make_zip(const Entries& files, const ZipOptions& options = {}) {
  std::string out, index;
  const std::string none16 = "\xff\xff", none32 = "\xff\xff\xff\xff";
  for (const auto& [name, bytes] : files) {
    const std::uint64_t at = out.size(), size = bytes.size();
    const std::string extra =
        options.zip64 ? little(1, 2) + little(24, 2) + little(size, 8) + little(size, 8) + little(at, 8) : "";
    const std::string sizes = options.zip64 ? none32 + none32 : little(size, 4) + little(size, 4);
    const std::string common = little(20, 2) + little(0, 2) +
                               little(static_cast<std::uint64_t>(options.method), 2) + little(0, 8) + sizes +
                               little(name.size(), 2);
    index += "PK\1\2" + little(20, 2) + common + little(extra.size(), 2) + little(0, 10) +
             (options.zip64 ? none32 : little(at, 4)) + name + extra;
    out += "PK\3\4" + common + little(3, 2) + name + "pad" + bytes;
  }
  const std::uint64_t at = out.size(), count = files.size();
  out += index;
  if (options.zip64) {
    const std::uint64_t end64 = out.size();
    out += "PK\6\6" + little(44, 8) + little(20, 4) + little(0, 8) + little(count, 8) + little(count, 8) +
           little(index.size(), 8) + little(at, 8);
    out += "PK\6\7" + little(0, 4) + little(end64, 8) + little(1, 4);
    out += "PK\5\6" + little(0, 4) + none16 + none16 + none32 + none32;
  } else {
    out += "PK\5\6" + little(0, 4) + little(count, 2) + little(count, 2) + little(index.size(), 4) +
           little(at, 4);
  }
  return out + little(options.comment.size(), 2) + options.comment;
}

// Pieces of a pickle, each of which pushes a value.
std::string text(const std::string& t) { return "X" + little(t.size(), 4) + t; }
std::string integer(std::int64_t v) { return "\x8a\x08" + little(static_cast<std::uint64_t>(v), 8); }
std::string integers(const std::vector<std::int64_t>& values) {
  std::string out = "(";
  for (const std::int64_t v : values) out += integer(v);
  return out + "t";
}
std::string storage(const std::string& key, std::int64_t count, const std::string& type = "Float",
                    const std::string& view = "") {
  return "(" + text("storage") + "ctorch\n" + type + "Storage\n" + text(key) + text("cpu") + integer(count) +
         view + "tQ";
}
std::string tensor(const std::string& numbers, std::int64_t offset, const std::vector<std::int64_t>& dims,
                   const std::vector<std::int64_t>& strides) {
  return "ctorch._utils\n_rebuild_tensor_v2\n(" + numbers + integer(offset) + integers(dims) +
         integers(strides) + "\x89" + "ccollections\nOrderedDict\n)RtR";
}
std::string dict(const Entries& entries) {
  std::string out = "ccollections\nOrderedDict\n)R(";
  for (const auto& [key, value] : entries) out += text(key) + value;
  return out + "u";
}
std::string pickle(const std::string& value) { return "\x80\x02" + value + "."; }

std::string floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

std::string zip_of(const std::string& value, const Entries& numbers = {}, const ZipOptions& options = {}) {
  Entries files = {{"a/data.pkl", pickle(value)}};
  for (const auto& [key, bytes] : numbers) files.emplace_back("a/data/" + key, bytes);
  return make_zip(files, options);
}

/// The older form of a file.
std::string old_of(const std::string& value, const std::string& keys, const std::string& numbers,
                   const std::string& system = "}") {
  return "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."s + pickle("M\xe9\x03") + pickle(system) +
         pickle(value) + pickle(keys) + numbers;
}

TEST_CASE("state_dicts that PyTorch wrote are found and read in both forms", "[torch]") {
  const std::map<std::string, std::string> places = {{"small.pth", ""},
                                                     {"small-old.pth", ""},
                                                     {"small-parallel.pth", "state_dict"},
                                                     {"small-parallel-old.pth", "state_dict"},
                                                     {"small-milestones.pth", "generator"},
                                                     {"small-milestones-old.pth", "generator"},
                                                     {"small-ema.pth", "model_ema"},
                                                     {"small-trainer.pth", "model"},
                                                     {"small-trainer-old.pth", "model"},
                                                     {"small-whole.pth", "net"}};
  for (const auto& [name, place] : places) {
    CAPTURE(name);
    const TorchWeights weights = read(data_file(name));
    CHECK(weights.place == place);
    const bool plain = place.empty() || place == "model" || place == "net";
    const std::string prefix = plain ? "" : "module.";
    const auto& tensors = weights.tensors.tensors;
    CHECK(tensors.size() == 8);  // num_batches_tracked is no weight
    CHECK(tensors.at(prefix + "conv1.weight").dims == Dims{2, 1, 3, 3});
    CHECK(tensors.at(prefix + "conv1.weight").values == ramp(-1, 18));
    CHECK(tensors.at(prefix + "stage.0.bn.running_var").values == ramp(6, 2));
    CHECK(tensors.at(prefix + "fc10.weight").dims == Dims{7, 18});
    CHECK(tensors.at(prefix + "fc10.weight").values == ramp(0, 126));
  }
}

TEST_CASE("tensors of PyTorch of all types and strides become float32 in rows", "[torch]") {
  for (const char* name : {"types.pt", "types-old.pt"}) {
    CAPTURE(name);
    const auto tensors = read(data_file(name)).tensors.tensors;
    const std::vector<float> grid = ramp(-2, 6);
    for (const char* same : {"float", "double", "half", "bfloat16", "parameter", "tied"}) {
      CAPTURE(same);
      CHECK(tensors.at(same).dims == Dims{2, 3});
      CHECK(tensors.at(same).values == grid);
    }
    for (const char* other : {"long", "bool", "complex"}) CHECK_FALSE(tensors.contains(other));
    CHECK(tensors.at("scalar").dims.empty());
    CHECK(tensors.at("scalar").values == std::vector<float>{2.5F});
    CHECK(tensors.at("empty").dims == Dims{0, 3});
    CHECK(tensors.at("empty").values.empty());
    CHECK(tensors.at("transposed").dims == Dims{3, 2});
    CHECK(tensors.at("transposed").values ==
          std::vector<float>{grid[0], grid[3], grid[1], grid[4], grid[2], grid[5]});
    CHECK(tensors.at("channels last").values == ramp(1, 24));
    CHECK(tensors.at("expanded").values == std::vector<float>(6, 1.5F));
    CHECK(tensors.at("head").values == ramp(0, 4));
    CHECK(tensors.at("middle").values == ramp(0.5F, 4));
    CHECK(tensors.at("every second").values == ramp(0, 6, 0.25F));
  }
}

TEST_CASE("a file of torch.save with code in it is refused by name, and nothing is run", "[torch]") {
  const TempFolder folder;
  const std::string made = folder / "made";
  const std::string call = "(" + text("touch " + made) + "tR";
  const std::string weights = tensor(storage("0", 2), 0, {2}, {1});
  const auto both = [&](const std::string& value) {
    const std::string message = error_of(zip_of(value, {{"0", floats({1, 2})}}));
    CHECK(
        error_of(old_of(value, "](X\1\0\0\0" + "0e"s, little(2, 8) + floats({1, 2}))).find(" called; only") !=
        std::string::npos);
    return message;
  };
  for (const auto& [module, name] :
       std::vector<std::pair<std::string, std::string>>{{"os", "system"},
                                                        {"posix", "system"},
                                                        {"builtins", "eval"},
                                                        {"subprocess", "Popen"},
                                                        {"torch", "load"},
                                                        {"torch.serialization", "FloatStorage"},
                                                        {"numpy", "FloatStorage"},
                                                        {"argparse", "Namespace"}}) {
    std::string global = "c";
    global.append(module).append("\n").append(name).append("\n");
    const std::string message = both(dict({{"w", weights}, {"x", global + call}}));
    CHECK(message.starts_with("f.pth: data.pkl: byte "));
    CHECK(message.ends_with("it wants " + module + "." + name +
                            " called; only tensors and plain data are read, and nothing is run; in Python, "
                            "torch.save(model.state_dict(), FILE) writes such a file"));
    CHECK(both(text(module) + text(name) + "\x93" + call).find(module + "." + name) != std::string::npos);
  }
  CHECK(error_of(zip_of("(" + text("touch " + made) + "ios\nsystem\n")).find("os.system") !=
        std::string::npos);
  CHECK(error_of(zip_of("(cos\nsystem\n" + text("touch " + made) + "o")).find("wants an object made") !=
        std::string::npos);
  CHECK(error_of(zip_of("cos\n" + std::string(200, 'x') + "\n")).find("it refers to os.xxx") !=
        std::string::npos);
  CHECK(error_of(zip_of("ctorch\nTensor\n)R")).find("a class of PyTorch is called") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(made));
}

TEST_CASE("objects of any class are left out, and those of models give their tensors", "[torch]") {
  const std::string one = tensor(storage("0", 1), 0, {1}, {1});
  const auto new_object = [](const std::string& attributes) {
    return "c__main__\nNet\n)\x81" + attributes + "b";
  };
  const auto names_of = [](const std::string& value) {
    std::vector<std::string> names;
    for (const auto& [name, t] : parse(zip_of(value, {{"0", floats({1})}})).tensors.tensors)
      names.push_back(name);
    return names;
  };
  using Names = std::vector<std::string>;
  const std::string layer = new_object(dict({{"_parameters", dict({{"weight", one}, {"bias", "N"}})},
                                             {"_buffers", dict({{"mean", one}})},
                                             {"other", one}}));
  CHECK(names_of(layer) == Names{"mean", "weight"});
  CHECK(names_of(new_object(dict({{"_modules", dict({{"0", layer}, {"act", "N"}, {"1", layer}})}}))) ==
        Names{"0.mean", "0.weight", "1.mean", "1.weight"});
  // With objects, sets and a call that makes plain data beside the weights.
  const std::string set = "\x8f(" + integer(1) + "\x90", frozen_set = "(" + integer(1) + "\x91";
  const std::string derived = "c__main__\nDict\n)\x81(" + text("a") + integer(1) + "u";
  const std::string device = "ctorch\ndevice\n" + text("cuda") + "\x85R";
  CHECK(names_of(dict({{"w", one},
                       {"args", new_object(dict({{"lr", integer(1)}}))},
                       {"set", set},
                       {"frozen", frozen_set},
                       {"derived", derived},
                       {"device", device},
                       {"seed", "\x8a\x09" + little(0, 8) + "\1"},
                       {"line", "L123456789012345678901234567890L\n"},
                       {"dtype", "ctorch\nfloat16\n"}})) == Names{"w"});
  CHECK(error_of(zip_of(new_object("}"))) ==
        "f.pth: data.pkl: byte 17: an object of __main__.Net holds no state_dict; in Python, "
        "torch.save(model.state_dict(), FILE) writes one");

  CHECK(error_of(zip_of("](" + integer(1) + "\x90")).find("items of a set are added to a list") !=
        std::string::npos);

  // A module that contains itself, and one that contains 2 to the power of 60 others by reference.
  const auto wrong = [](const std::string& value) { return error_of(zip_of(value)); };
  const std::string itself =
      "c__main__\nNet\n)\x81q\x01" + dict({{"_modules", dict({{"m", "h\x01"}})}}) + "b";
  CHECK(wrong(itself).find("its values contain each other more often") != std::string::npos);
  std::string nested = new_object("}");
  for (int i = 0; i < 60; ++i) {
    const std::string slot(1, static_cast<char>(i + 1));
    nested = new_object(dict({{"_modules", dict({{"a", nested + "q" + slot}, {"b", "h" + slot}})}}));
  }
  CHECK(wrong(nested).find("its values contain each other more often") != std::string::npos);
  // A name that is repeated by reference.
  std::string repeated = "}(" + text(std::string(1000, 'n')) + "q\x01" + one;
  for (int i = 0; i < 1000; ++i) repeated += "h\x01N";
  CHECK(names_of(repeated + "u").size() == 1);
  std::string tensors = "}(" + text(std::string(1000, 'n')) + "q\x01" + one + "q\x02";
  for (int i = 0; i < 1000; ++i) tensors += "h\x01h\x02";
  CHECK(wrong(tensors + "u").find("its values contain each other more often") != std::string::npos);
}

TEST_CASE("state_dicts are found within other dicts, averages first", "[torch]") {
  const std::string one = tensor(storage("1", 1), 0, {1}, {1}), two = tensor(storage("2", 1), 0, {1}, {1});
  const Entries numbers = {{"1", floats({1})}, {"2", floats({2})}};
  const auto place_of = [&](const std::string& value) {
    const TorchWeights weights = parse(zip_of(value, numbers));
    return weights.place + " " + std::to_string(weights.tensors.tensors.begin()->second.values.at(0));
  };
  const std::string a = dict({{"w", one}}), b = dict({{"w", two}});
  CHECK(place_of(a) == " 1.000000");
  CHECK(place_of(dict({{"model", a}, {"ema", b}})) == "ema 2.000000");
  CHECK(place_of(dict({{"model", a}, {"ema", dict({{"decay", integer(1)}})}})) == "model 1.000000");
  CHECK(place_of(dict({{"best", two}, {"model_state_dict", a}})) == "model_state_dict 1.000000");
  CHECK(place_of(dict({{"state", dict({{"model", a}})}, {"epoch", integer(1)}})) == "state.model 1.000000");
  CHECK(place_of(dict({{"w", two}, {"w", one}})) == " 1.000000");  // as in Python, the last one counts
  // Python 2 makes the dict of a list of pairs.
  CHECK(place_of("ccollections\nOrderedDict\n(](](U\x01w" + one + "eetR}" + "b") == " 1.000000");
  CHECK(error_of(zip_of(dict({{"first", a}, {"second", b}}), numbers)) ==
        "f.pth: data.pkl: byte 28: a dict of 2 entries with first, second holds no state_dict; in Python, "
        "torch.save(model.state_dict(), FILE) writes one");
  CHECK(error_of(zip_of(one, numbers)).find("a tensor of 1 numbers holds no state_dict") !=
        std::string::npos);
  CHECK(error_of(zip_of(dict({{"w", tensor(storage("1", 0, "Long"), 0, {0}, {1})}}), numbers))
            .find("no tensor of floating-point numbers") != std::string::npos);
}

TEST_CASE("tensors outside of the file or larger than it are refused before memory is taken", "[torch]") {
  const auto wrong = [](const std::string& value, const std::string& numbers = floats({1, 2, 3, 4})) {
    return error_of(zip_of(dict({{"w", value}}), {{"0", numbers}}));
  };
  const std::string four = storage("0", 4), huge = storage("0", std::int64_t{1} << 40);
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const auto has = [](const std::string& message, const std::string& part) {
    INFO(message);
    CHECK(message.find(part) != std::string::npos);
  };
  has(wrong(tensor(four, 0, {5}, {1})), "a tensor of 5 from number 0 on is not within its storage of 4");
  has(wrong(tensor(four, 1, {2, 2}, {2, 1})), "not within its storage");
  has(wrong(tensor(four, -1, {2}, {1})), "not within its storage");
  has(wrong(tensor(four, 5, {0}, {1})), "not within its storage");
  has(wrong(tensor(four, 0, {most, most}, {most, most})), "not within its storage");
  has(wrong(tensor(four, 0, {2}, {-1})), "the strides of a tensor should be whole numbers from 0");
  has(wrong(tensor(four, 0, {2, 2}, {1})), "a tensor has 2 dimensions, but 1 strides");
  has(wrong(tensor(four, 0, std::vector<std::int64_t>(33, 1), std::vector<std::int64_t>(33, 1))),
      "a tensor has 33 dimensions");
  has(wrong(tensor(four, 0, {4}, {1}), floats({1, 2})), "'a/data/0' in it has 8 bytes; 16 from byte 0 on");
  has(wrong(tensor(storage("1", 4), 0, {4}, {1})), "has no 'a/data/1' in it");
  // One number that is said to be many, and many views of the same numbers.
  has(wrong(tensor(four, 0, {most}, {0})), "more than 16 times the file's size");
  has(wrong(tensor(huge, 0, {1 << 30}, {1})), "more than 16 times the file's size");
  has(wrong(tensor(storage("0", most), 0, {4}, {1})), "a storage should be a class, a key");
  has(wrong(tensor(storage("0", 4, "Float", "N"), 3, {2}, {1})), "not within its storage");
  has(wrong(tensor(storage("0", 4, "Float", "(" + text("v") + integer(3) + integer(2) + "t"), 0, {1}, {1})),
      "a view of 2 elements from 3 on is not within a storage of 4");
  has(wrong("(" + text("module") + text("x") + "tQ"), "it refers to 'module' outside of the pickle");
}

TEST_CASE("views of storages and the other byte order are read", "[torch]") {
  const std::string view = storage("0", 4, "Float", "(" + text("v") + integer(1) + integer(3) + "t");
  const std::string value = dict({{"w", tensor(view, 1, {2}, {1})}}), keys = "](" + text("0") + "e";
  const auto read_first = [](const std::string& bytes) {
    return parse(bytes).tensors.tensors.at("w").values;
  };
  CHECK(read_first(old_of(value, keys, little(4, 8) + floats({1, 2, 3, 4}))) == std::vector<float>{3, 4});
  const std::string whole = dict({{"w", tensor(storage("0", 1), 0, {1}, {1})}});
  const std::string big = "\x3f\xc0\0\0"s;  // 1.5
  CHECK(read_first(old_of(whole, keys, "\0\0\0\0\0\0\0\1"s + big,
                          "}" + text("little_endian") + "\x89" + "s")) == std::vector<float>{1.5F});
  Entries files = {{"a/data.pkl", pickle(whole)}, {"a/byteorder", "big"}, {"a/data/0", big}};
  CHECK(read_first(make_zip(files)) == std::vector<float>{1.5F});
  files[1].second = "little";
  files[2].second = floats({1.5F});
  CHECK(read_first(make_zip(files, {.zip64 = true})) == std::vector<float>{1.5F});
  CHECK(read_first(make_zip(files, {.comment = "PK\5\6 and more"})) == std::vector<float>{1.5F});
}

TEST_CASE("archives that are no files of torch.save, or damaged, say so", "[torch]") {
  const auto has = [](const std::string& bytes, const std::string& part) {
    const std::string message = error_of(bytes);
    INFO(message);
    CHECK(message.starts_with("f.pth: "));
    CHECK(message.find(part) != std::string::npos);
  };
  const std::string value = dict({{"w", tensor(storage("0", 1), 0, {1}, {1})}});
  const std::string good = zip_of(value, {{"0", floats({1})}});
  CHECK(parse(good).tensors.tensors.size() == 1);
  has(good.substr(0, good.size() - 1), "the index at its end is missing; perhaps a download");
  has(make_zip({{"x.npy", "1"}}), "is a zip archive of NumPy arrays (.npz), not a file of torch.save");
  has(make_zip({{"readme", "1"}}), "is a zip archive, not a file of torch.save; unpack it with unzip");
  has(make_zip({{"a/data.pkl", "1"}, {"a/constants.pkl", "1"}}), "is a program of TorchScript");
  has(make_zip({{"a/data.pkl", "1"}, {"a/data.pkl", "1"}}), "a file is in it twice: 'a/data.pkl'");
  has(zip_of(value, {{"0", floats({1})}}, {.method = 8}), "is compressed or encrypted");
  has(zip_of(value), "has no 'a/data/0' in it");
  // Every prefix, and every byte changed: refused or read, never anything else.
  std::size_t refused = 0;
  for (const std::string& file : {good, old_of(value, "](" + text("0") + "e", little(1, 8) + floats({1}))}) {
    for (std::size_t i = 0; i < file.size(); ++i) {
      std::string damaged = file;
      damaged[i] = static_cast<char>(damaged[i] ^ 0x55);
      for (const std::string& bytes : {file.substr(0, i), damaged}) {
        try {
          parse(bytes);
        } catch (const InputError&) {
          ++refused;
        }
      }
    }
  }
  CHECK(refused > good.size());
  const std::string keys = "](" + text("0") + "e";
  has(old_of(value, keys, ""), "the file is truncated: the numbers are missing");
  has(old_of(value, keys, little(9, 8) + floats({1})), "9 numbers of 4 bytes should follow byte");
  has(old_of(value, "](" + text("1") + "e", little(1, 8)), "numbers are in the file that nothing refers to");
  has(old_of(value, "]", ""), "numbers '0' have 0 bytes; 4 from byte 0 on are needed");
  has(old_of(value, "}", ""), "a list of keys of numbers should be here");
}

}  // namespace
}  // namespace convnet
