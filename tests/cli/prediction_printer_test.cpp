// The JSON of `convnet predict`, which is written while predictions come.
#include "convnet/cli/prediction_printer.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "convnet/base/error.h"
#include "tests/catch.h"
#include "tests/temp_folder.h"

namespace convnet {
namespace {

using nlohmann::json;

/// A file in memory, as stdout.
class PrintedText {
 public:
  PrintedText() : file_(std::tmpfile()) { REQUIRE(file_ != nullptr); }
  PrintedText(const PrintedText&) = delete;
  PrintedText& operator=(const PrintedText&) = delete;
  ~PrintedText() { std::fclose(file_); }  // NOLINT(cppcoreguidelines-owning-memory): it is this object's

  std::FILE* file() const { return file_; }
  std::string text() const {
    std::string all(static_cast<std::size_t>(std::ftell(file_)), '\0');
    std::rewind(file_);
    CHECK(std::fread(all.data(), 1, all.size(), file_) == all.size());
    std::fseek(file_, 0, SEEK_END);
    return all;
  }

 private:
  std::FILE* file_;
};

/// Catches what is printed on stderr: ctest would take a line that begins with "skipped:" for a skipped test.
class CaughtErrors {
 public:
  CaughtErrors() : before_(std::exchange(stderr, printed_.file())) {}
  CaughtErrors(const CaughtErrors&) = delete;
  CaughtErrors& operator=(const CaughtErrors&) = delete;
  ~CaughtErrors() { stderr = before_; }
  std::string text() const { return printed_.text(); }

 private:
  PrintedText printed_;
  std::FILE* before_;
};

const Answer kAnswer = {{"probs"}, {"cat", "dog"}};
const Prediction kCat = {"a \"cat\".png", "", {{0.75F, 0.25F}}};
const Prediction kBad = {"b.png", "b.png: is no image", {}};

PredictionPrinter json_printer(const PrintedText& to) {
  return {ResultForm::json, 1, kAnswer, {2}, {kCat.file, kBad.file}, to.file()};
}

/// Returns the JSON of all files, as if it was printed at the end instead of file by file.
std::string at_once(const json& files) { return json{{"files", files}}.dump(2) + "\n"; }

const json kCatAsJson = {{"file", kCat.file},
                         {"classes", {{{"class", "cat"}, {"index", 0}, {"probability", 0.75}}}}};
const json kBadAsJson = {{"file", kBad.file}, {"error", kBad.error}};

}  // namespace

TEST_CASE("JSON of predictions is printed file by file, with the same text as at once") {
  const PrintedText printed;
  PredictionPrinter printer = json_printer(printed);
  printer.add(kCat);
  const std::string first = printed.text();
  CHECK(first.find("\"cat\"") != std::string::npos);
  CHECK_FALSE(json::accept(first));
  {
    const CaughtErrors errors;
    printer.add(kBad);
    CHECK(errors.text() == "skipped: b.png: is no image\n");
  }
  CHECK(message_of<RunError>([&] { printer.finish(); }) == "1 of 2 inputs could not be classified");
  CHECK(printed.text() == at_once({kCatAsJson, kBadAsJson}));
}

TEST_CASE("JSON of predictions that an error ends is valid and says so") {
  const PrintedText printed;
  PredictionPrinter printer = json_printer(printed);
  printer.add(kCat);
  printer.fail("out of \"memory\"");
  const json all = json::parse(printed.text());
  CHECK(all == json{{"files", {kCatAsJson}}, {"error", "out of \"memory\""}});

  const PrintedText none;
  json_printer(none).fail("out of memory");
  CHECK(json::parse(none.text()) == json{{"files", json::array()}, {"error", "out of memory"}});
}

TEST_CASE("JSON of numbers of layers is valid") {
  const Answer numbers = {{"fc1", "fc2"}, {}};
  const PrintedText printed;
  PredictionPrinter printer(ResultForm::json, 5, numbers, {2, 1}, {"a", "b"}, printed.file());
  for (const char* file : {"a", "b"}) printer.add({file, "", {{1, -0.5F}, {3}}});
  printer.finish();
  const json outputs = {{"fc1", {1.0F, -0.5F}}, {"fc2", {3.0F}}};
  CHECK(printed.text() ==
        at_once({{{"file", "a"}, {"outputs", outputs}}, {{"file", "b"}, {"outputs", outputs}}}));
}

}  // namespace convnet
