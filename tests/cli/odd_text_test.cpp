// Texts that nobody means to give: zero bytes, line ends, bytes that are not UTF-8, and controls of
// terminals. Wherever a text is read, the program takes it or says what is wrong with it.
#include <filesystem>

#include "convnet/base/printable.h"
#include "convnet/checkpoint/safetensors.h"
#include "tests/catch.h"
#include "tests/cli/small_net.h"
#include "tests/providers/image_sets.h"
#include "tests/providers/test_images.h"

namespace convnet {
namespace {

using namespace std::string_literals;

const std::vector<std::string> kOddTexts = {
    "\0"s,   "\0x"s,     "x\0y"s,        "\n",       "x\ny",         "\r",
    "\xff"s, "x\xc3(y"s, "\xed\xa0\x80", "\x1b[31m", "\xEF\xBB\xBF", std::string(5000, 'x')};

/// Checks the end of a run: if it failed, it says why, and prints nothing that controls a terminal.
void check_end(const Outcome& run) {
  INFO(run.out << run.err);
  CHECK(run.signal == 0);
  CHECK(run.code >= 0);
  CHECK(run.code <= 3);
  CHECK((run.code == 0 || run.err.find_first_not_of(" \n") != std::string::npos));
  for (const char unwanted : {'\0', '\x1b'}) {
    CHECK(run.out.find(unwanted) == std::string::npos);
    CHECK(run.err.find(unwanted) == std::string::npos);
  }
}

}  // namespace

TEST_CASE("odd texts in files of nets, options and machine models are taken or refused") {
  const Workshop shop;
  const Args plan = Args{"plan", "--data-provider", "dummy-1x8x8-10"} + shop.net();
  for (const std::string& odd : kOddTexts) {
    INFO(printable(odd));
    for (const char* const place : {"conv1", "pool=", "=relu", "[probs]"}) {
      const std::size_t at = kDefinition.find(place);
      REQUIRE(at != std::string::npos);
      shop.write(std::string(kDefinition).insert(at + 3, odd), kParameters);
      check_end(run_program(plan));
    }
    shop.write(kDefinition, std::string(kParameters).insert(kParameters.find("epsW=") + 5, odd));
    check_end(run_program(plan));
    shop.write(kDefinition, kParameters);
    write_file(shop / "model.json", "{\"name\": \"" + odd + "\"}");
    check_end(run_program(plan + Args{"--model", shop / "model.json"}));
    if (odd.find('\0') != std::string::npos) continue;  // no command line has one
    for (const char* const option :
         {"--set", "--gpu", "--train-range", "--data-path", "--hosts", "--layer-path", "--data-provider",
          "--keep-best", "--time-limit", odd.c_str()})
      check_end(run_program(shop.net() + Args{"--data-provider", "dummy-1x8x8-10", "--save-file",
                                              shop / "run", "--epochs", "0", option, odd}));
  }
}

TEST_CASE("odd texts in data sets and in lists of files are taken or refused") {
  const Workshop shop;
  shop.write_arrays();
  const Args arrays = shop.net() + Args{"--data-provider", "npy", "--data-path", shop.data_path()};
  run_well(arrays + Args{"--save-file", shop / "run", "--epochs", "1"});
  const std::vector<image_sets::Item> items = image_sets::photographs(6, 2, 12);
  image_sets::write_folders(shop / "photos", items);
  const Args photos = Args{"plan"} + shop.net() +
                      Args{"--data-provider", "image", "--data-path", shop / "photos", "--inner-size", "8"};
  for (const std::string& odd : kOddTexts) {
    INFO(printable(odd));
    write_file(shop.data_path() + "/classes.txt", "a\n" + odd + "\nc");
    check_end(run_program({"--load-file", shop / "run", "--test-only", "1"}));
    write_file(shop / "labels.csv", "photo,class\n" + odd + ",a\na.png," + odd + "\n\"" + odd + "\",b\n");
    check_end(run_program(photos + Args{"--labels", shop / "labels.csv", "--train-range", "1"}));
    write_file(shop / "list", odd + "\n" + shop.path() + odd + "\n" + shop.data_path() + "/images.npy\n");
    const Outcome listed =
        run_in_shell("\"$@\" < '" + (shop / "list") + "'", {"predict", shop / "run", "-", "--csv"});
    check_end(listed);
    write_file(shop / "list", odd);
    const Outcome alone = run_in_shell("\"$@\" < '" + (shop / "list") + "'", {"predict", shop / "run", "-"});
    check_end(alone);
    CHECK(alone.code != 0);
  }
  // A name ends nowhere but at the end of its line.
  write_file(shop / "list", "\0\n"s + shop.data_path() + "/images.npy\0x\n"s);
  const Outcome named = run_in_shell("\"$@\" < '" + (shop / "list") + "'", {"predict", shop / "run", "-"});
  CHECK(named.code == 1);
  CHECK(named.err ==
        "skipped: \\x00: no such file: a name has no NUL (zero byte)\nskipped: " + shop.data_path() +
            "/images.npy\\x00x: no such file: a name has no NUL (zero byte)\n"
            "2 of 2 inputs could not be classified\n");
}

TEST_CASE("odd texts in a checkpoint's metadata are taken or refused") {
  const Workshop shop;
  shop.write_data();
  run_well(shop.mnist() + Args{"--save-file", shop / "run", "--epochs", "1"});
  const std::string file = shop / "run/1.1.safetensors";
  const TensorFile good = read_safetensors(file);
  for (const std::string& odd : kOddTexts) {
    INFO(printable(odd));
    for (const auto& [key, text] : good.metadata) {
      INFO(key);
      TensorFile changed = good;
      changed.metadata[key] = text.substr(0, text.size() / 2) + odd + text.substr(text.size() / 2);
      try {
        write_safetensors(file, changed);
      } catch (const RunError&) {
        continue;  // no safetensors file has it
      }
      check_end(run_program({"plan", "--load-file", file}));
    }
  }
}

}  // namespace convnet
