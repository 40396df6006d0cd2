#include "convnet/net/fit_labels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

#include "convnet/base/names.h"
#include "convnet/config/ini_edit.h"
#include "convnet/config/params.h"
#include "convnet/config/text.h"
#include "convnet/net/predictions.h"

namespace convnet {
namespace {

// Names of sections in the ready nets, and their replacements in a net for numbers.
constexpr const char *kProbs = "probs", *kPredicted = "predicted";
constexpr const char *kLogprob = "logprob", *kSquares = "squares";

/// The layers at the end of a net for classes.
struct Ending {
  std::string labels, outputs, probs, cost;
};

std::string text_of(const IniSection& section, const char* key) {
  const IniValue* const value = section.find(key);
  return value == nullptr ? "" : value->text;
}

std::vector<std::string> inputs_of(const IniSection& section) {
  return split_list(text_of(section, "inputs"));
}

/// Returns the section of the first input; null if there is none.
const IniSection* first_input(const IniFile& file, const IniSection& section) {
  const std::vector<std::string> inputs = inputs_of(section);
  return inputs.empty() ? nullptr : file.find(inputs[0]);
}

std::vector<Ending> find_endings(const IniFile& definition) {
  std::vector<Ending> endings;
  for (const IniSection& cost : definition.sections) {
    if (text_of(cost, "type") != "cost.logreg") continue;
    const std::vector<std::string> inputs = inputs_of(cost);
    if (inputs.size() != 2) continue;
    const IniSection *const labels = definition.find(inputs[0]), *const probs = definition.find(inputs[1]);
    if (labels == nullptr || text_of(*labels, "type") != "data" || text_of(*labels, "dataIdx") != "1")
      continue;
    if (probs == nullptr || text_of(*probs, "type") != "softmax") continue;
    const std::vector<std::string> outputs = inputs_of(*probs);
    if (outputs.size() == 1) endings.push_back({labels->name, outputs[0], probs->name, cost.name});
  }
  return endings;
}

/// Returns the text of a section with these lines, and with the keys of `like` that stay.
std::string section_text(const std::string& name, const std::vector<std::string>& lines,
                         const IniSection& like) {
  const std::vector<std::string> replaced = {"type", "inputs", "dataidx"};
  std::vector<std::string> all = {"[" + name + "]"};
  all.insert(all.end(), lines.begin(), lines.end());
  for (const IniValue& value : like.values)
    if (!value.from_default && std::ranges::find(replaced, value.key) == replaced.end())
      all.push_back(value.written + "=" + value.text);
  return join(all, "\n");
}

/// Returns the name, or if the file has a section of this name, one that it does not have.
std::string free_name(const IniFile& file, const std::string& name) {
  std::string free = name;
  for (int i = 2; file.find(free) != nullptr; ++i) free = name + std::to_string(i);
  return free;
}

void replace(IniFile& file, const std::string& section, const std::string& text) {
  Diagnostics known;
  file = with_section(file, section, text, known);
}

/// Returns a number with so many digits, as a person would write it.
std::string short_number(double value, int digits = 3) {
  return format_number(to_number<double>(fmt::format("{:.{}g}", value, digits)).value_or(value));
}

/// Returns the power of ten of the first digit of a number that is not 0.
int exponent_of(double value) { return static_cast<int>(std::floor(std::log10(std::abs(value)))); }

/// The numbers of a fit, as a net has them. A fit that is read from the net is written in the same way.
struct WrittenFit {
  std::string deviation, scale;  ///< three digits, and three of the inverse of these
  std::string mean;              ///< exact to the second digit of the deviation

  explicit WrittenFit(const LabelFit& fit) : deviation(short_number(fit.deviation)) {
    const double written = to_number<double>(deviation).value_or(fit.deviation);
    scale = short_number(1 / written);
    constexpr int kMostDigits = std::numeric_limits<double>::max_digits10;
    const int digits = fit.mean == 0 ? 0 : exponent_of(fit.mean) - exponent_of(written) + 2;
    mean = digits < 1 ? "0" : short_number(fit.mean, std::min(digits, kMostDigits));
  }
};

void end_with_tags(IniFile& file, const Ending& end, const std::string& targets) {
  replace(file, end.probs,
          section_text(end.probs, {"type=neuron", "neuron=logistic", "inputs=" + end.outputs},
                       *file.find(end.probs)));
  replace(
      file, end.cost,
      section_text(end.cost, {"type=cost.bce", "inputs=" + targets + "," + end.probs}, *file.find(end.cost)));
}

void end_with_numbers(IniFile& file, const Ending& end, const std::string& numbers, const LabelFit& fit) {
  const std::string predicted = end.probs == kProbs ? free_name(file, kPredicted) : end.probs;
  const std::string cost = end.cost == kLogprob ? kSquares : end.cost;
  const std::string difference =
      free_name(file, end.cost == kLogprob ? "difference" : end.cost + ".difference");
  const WrittenFit written(fit);
  const std::string linear = fmt::format("neuron=linear[{},{}]", written.deviation, written.mean);
  replace(file, end.probs,
          section_text(predicted, {"type=neuron", linear, "inputs=" + end.outputs}, *file.find(end.probs)) +
              fmt::format("\n\n[{}]\ntype=eltsum\ninputs={},{}\ncoeffs={},-{}", difference, predicted,
                          numbers, written.scale, written.scale));
  replace(file, end.cost,
          section_text(cost, {"type=cost.sum2", "inputs=" + difference}, *file.find(end.cost)));
}

/// Mean and deviation of numbers, by Welford's method.
struct Moments {
  double count = 0, mean = 0, squares = 0;
  void add(double number) {
    const double before = number - mean;
    mean += before / ++count;
    squares += before * (number - mean);
  }
  double deviation() const { return std::sqrt(squares / std::max(1.0, count)); }
};

}  // namespace

LabelFit label_fit(const Provider& provider, const std::optional<BatchRange>& range) {
  LabelFit fit;
  const std::vector<MatrixInfo>& matrices = provider.matrices();
  fit.kind = label_kind(matrices);
  if (fit.kind != LabelKind::numbers || !range) return fit;
  constexpr std::int64_t kTogether = 128;
  const auto stride = static_cast<std::size_t>(matrices[1].image_bytes() * provider.views());
  const ImageShare nobody{{}, {false}};
  Moments all;
  std::vector<Moments> each(static_cast<std::size_t>(element_count(matrices[1].dims)));
  for (int batch = range->first; batch <= range->last; ++batch) {
    for (LoadRequest request{batch, 0, 0, kTogether, &nobody};; request.first += kTogether) {
      const DataBatch piece = provider.read(request, {});
      const std::vector<std::byte>& rows = piece.matrices.at(1);
      for (std::size_t at = 0; at < rows.size(); at += stride) {
        for (std::size_t i = 0; i < each.size(); ++i) {
          float number = 0;
          std::memcpy(&number, rows.data() + at + i * sizeof number, sizeof number);
          all.add(static_cast<double>(number));
          each[i].add(static_cast<double>(number));
        }
      }
      if (piece.last) break;
    }
  }
  // Numbers that are not finite are reported when the net reads them.
  if (!std::isfinite(all.mean) || !std::isfinite(all.deviation())) return fit;
  fit.mean = all.mean;
  if (all.deviation() > 0) fit.deviation = all.deviation();
  const std::vector<std::string> names = names_of_outputs({matrices[1]}, std::ssize(each));
  constexpr double kUnlike = 10;
  for (std::size_t i = 0; i < each.size() && fit.warning.empty(); ++i) {
    const double own = each[i].deviation();
    if (own > 0 && own < fit.deviation / kUnlike)
      fit.warning = fmt::format(
          "warning: the deviation of the number '{}' is {}, and that of all numbers together {}, so it "
          "hardly counts; bring the numbers to like sizes in the table",
          names[i], short_number(own), short_number(fit.deviation));
  }
  return fit;
}

LabelFit label_fit(const IniFile& definition) {
  LabelFit fit;
  for (const IniSection& cost : definition.sections) {
    const std::string type = text_of(cost, "type");
    if (type == "cost.bce") fit.kind = LabelKind::tags;
    if (type != "cost.sum2") continue;
    const IniSection* const difference = first_input(definition, cost);
    const IniSection* const predicted =
        difference == nullptr ? nullptr : first_input(definition, *difference);
    constexpr std::string_view kLinear = "linear[";
    const std::string neuron = predicted == nullptr ? "" : text_of(*predicted, "neuron");
    const std::size_t comma = neuron.find(',');
    if (!neuron.starts_with(kLinear) || !neuron.ends_with(']') || comma == std::string::npos) continue;
    const std::string_view text = neuron;
    fit.kind = LabelKind::numbers;
    fit.deviation = to_number<double>(text.substr(kLinear.size(), comma - kLinear.size())).value_or(1);
    fit.mean = to_number<double>(text.substr(comma + 1, text.size() - comma - 2)).value_or(0);
    break;
  }
  return fit;
}

std::string fit_definition(IniFile& definition, const LabelFit& fit) {
  if (fit.kind == LabelKind::classes) return "";
  const std::vector<Ending> endings = find_endings(definition);
  if (endings.empty()) return "";
  const bool tags = fit.kind == LabelKind::tags;
  std::vector<std::pair<std::string, std::string>> renamed;  // data layers
  for (const Ending& end : endings) {
    auto labels = std::ranges::find(renamed, end.labels, [](const auto& pair) { return pair.first; });
    if (labels == renamed.end()) {
      const std::string name = free_name(definition, tags ? "targets" : "numbers");
      replace(
          definition, end.labels,
          section_text(name, {"type=data", tags ? "dataIdx=2" : "dataIdx=1"}, *definition.find(end.labels)));
      labels = renamed.insert(renamed.end(), {end.labels, name});
    }
    if (tags)
      end_with_tags(definition, end, labels->second);
    else
      end_with_numbers(definition, end, labels->second, fit);
  }
  if (tags) return "a logistic output for each tag and cost.bce";
  const WrittenFit written(fit);
  return fmt::format("{} times its outputs plus {} and cost.sum2, a regression", written.deviation,
                     written.mean);
}

void fit_parameters(IniFile& parameters, const IniFile& definition) {
  if (definition.find(kLogprob) == nullptr && definition.find(kSquares) != nullptr) {
    if (const IniSection* const section = parameters.find(kLogprob); section != nullptr)
      replace(parameters, kLogprob, section_text(kSquares, {}, *section));
  }
  const std::vector<IniSection> sections = parameters.sections;
  for (const IniSection& section : sections) {
    const IniSection* const layer = definition.find(section.name);
    const std::string type = layer == nullptr ? "" : text_of(*layer, "type");
    if (!type.starts_with("cost.") || type == "cost.logreg") continue;
    for (const char* const key : {"topk", "smoothing", "classWeights"})
      if (has_own_key(parameters, section.name, key)) parameters = without_key(parameters, section.name, key);
  }
}

}  // namespace convnet
