#include "convnet/cli/prediction_printer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "convnet/base/error.h"
#include "convnet/base/printable.h"

namespace convnet {
namespace {

/// Numbers of a layer in a line; CSV and JSON have all.
constexpr std::size_t kNumbersInLine = 8;

/// Returns "fc1 0.25 -1.5 3 … (512 numbers)".
std::string numbers_text(const std::string& layer, const std::vector<float>& numbers) {
  std::string text = layer;
  for (std::size_t i = 0; i < std::min(kNumbersInLine, numbers.size()); ++i)
    text += fmt::format(" {:.5g}", numbers[i]);
  return numbers.size() > kNumbersInLine ? text + fmt::format(" … ({} numbers)", numbers.size()) : text;
}

constexpr const char* kElementIndent = "    ";

/// Returns a value as JSON with a line for each member. Names of files may have any encoding.
std::string json_text(const nlohmann::json& value) {
  return value.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

PredictionPrinter::PredictionPrinter(ResultForm form, int top, const Answer& answer,
                                     const std::vector<std::int64_t>& sizes,
                                     const std::vector<std::string>& files, std::FILE* out)
    : form_(form), top_(static_cast<std::size_t>(top)), answer_(answer), out_(out) {
  for (const std::string& file : files) align_to(file);
  if (form == ResultForm::csv) print_csv_header(sizes);
}

void PredictionPrinter::add(const Prediction& p) {
  if (form_ == ResultForm::json) print_json(p);
  ++count_;
  if (!p.error.empty()) {
    fmt::print(stderr, "skipped: {}\n", escape_controls(p.error));
    ++bad_;
  } else if (form_ == ResultForm::csv) {
    print_csv(p);
  } else if (form_ == ResultForm::lines) {
    print_line(p);
  }
}

void PredictionPrinter::finish() {
  if (form_ == ResultForm::json) {
    end_json();
    fmt::print(out_, "\n}}\n");
  }
  if (bad_ > 0)
    throw RunError(fmt::format("{} of {} inputs could not be {}", bad_, count_,
                               prints_classes() ? "classified" : "read"));
}

void PredictionPrinter::fail(const std::string& error) {
  if (form_ != ResultForm::json) return;
  end_json();
  fmt::print(out_, ",\n  \"error\": {}\n}}\n", json_text(error));
}

void PredictionPrinter::align_to(const std::string& file) {
  constexpr std::size_t kWidest = 60;
  widest_ = std::max(widest_, std::min(kWidest, escape_controls(file).size()));
}

void PredictionPrinter::print_line(const Prediction& p) {
  align_to(p.file);
  std::string line = fmt::format("{:<{}} ", escape_controls(p.file), widest_);
  if (prints_classes()) {
    for (const std::size_t c : best_outputs(p.outputs[0], top_))
      line += fmt::format(" {} {:.1f}%", answer_.class_names[c], 100 * p.outputs[0][c]);
  } else if (!answer_.number_names.empty()) {
    for (std::size_t k = 0; k < answer_.number_names.size(); ++k)
      line += fmt::format(" {} {:.5g}", answer_.number_names[k], p.outputs[0][k]);
  } else {
    for (std::size_t i = 0; i < p.outputs.size(); ++i)
      line += (i == 0 ? " " : "  ") + numbers_text(answer_.layers[i], p.outputs[i]);
  }
  fmt::print(out_, "{}\n", line);
}

void PredictionPrinter::print_csv_header(const std::vector<std::int64_t>& sizes) const {
  std::string line = "file";
  if (prints_classes()) {
    for (std::size_t k = 1; k <= std::min(top_, answer_.class_names.size()); ++k)
      line += fmt::format(",class {},probability {}", k, k);
  } else {
    for (std::size_t i = 0; i < sizes.size(); ++i)
      for (std::int64_t k = 0; k < sizes[i]; ++k)
        line +=
            "," + csv_field(answer_.number_names.empty() ? fmt::format("{}[{}]", answer_.layers[i], k)
                                                         : answer_.number_names[static_cast<std::size_t>(k)]);
  }
  fmt::print(out_, "{}\n", line);
}

void PredictionPrinter::print_csv(const Prediction& p) const {
  std::string line = csv_field(escape_controls(p.file));
  if (prints_classes()) {
    for (const std::size_t c : best_outputs(p.outputs[0], top_))
      line += fmt::format(",{},{:.6g}", csv_field(answer_.class_names[c]), p.outputs[0][c]);
  } else {
    // Without a precision, so that the same float32 is read back.
    for (const std::vector<float>& numbers : p.outputs)
      for (const float number : numbers) line += fmt::format(",{}", number);
  }
  fmt::print(out_, "{}\n", line);
}

void PredictionPrinter::print_json(const Prediction& p) {
  nlohmann::json file = {{"file", p.file}};
  if (!p.error.empty()) {
    file["error"] = p.error;
  } else if (prints_classes()) {
    for (const std::size_t c : best_outputs(p.outputs[0], top_))
      file["classes"].push_back(
          {{"class", answer_.class_names[c]}, {"index", c}, {"probability", p.outputs[0][c]}});
  } else {
    for (std::size_t i = 0; i < p.outputs.size(); ++i) file["outputs"][answer_.layers[i]] = p.outputs[i];
    for (std::size_t k = 0; k < answer_.number_names.size(); ++k)
      file["numbers"][answer_.number_names[k]] = p.outputs[0][k];
  }
  // The text of the element lies four blanks deep in that of the object.
  std::string text = json_text(file);
  for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1))
    text.insert(at + 1, kElementIndent);
  fmt::print(out_, "{}{}{}", count_ == 0 ? "{\n  \"files\": [\n" : ",\n", kElementIndent, text);
}

/// Prints the end of the list of files.
void PredictionPrinter::end_json() { fmt::print(out_, "{}", count_ == 0 ? "{\n  \"files\": []" : "\n  ]"); }

}  // namespace convnet
