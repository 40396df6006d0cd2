#include "convnet/onnx_import/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "convnet/base/error.h"
#include "convnet/base/names.h"
#include "convnet/base/printable.h"
#include "convnet/base/utf8.h"
#include "convnet/checkpoint/json_value.h"
#include "convnet/config/text.h"
#include "convnet/graph/graph.h"
#include "convnet/onnx_import/darknet.h"
#include "providers/image.h"

namespace convnet {
namespace {

/// Returns an entry of a model's metadata; "" if it is not there.
std::string entry(const SourceModel& model, const char* key) {
  const auto found = model.metadata.find(key);
  return found == model.metadata.end() ? "" : found->second;
}

/// Returns the texts of a dict of Python with the keys 0, 1, …, as Ultralytics writes the names of classes:
/// {0: 'cat', 1: "dog's"}.
std::vector<std::string> texts_of_dict(const std::string& dict) {
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < dict.size();) {
    const std::size_t open = dict.find_first_of("'\"", at);
    if (open == std::string::npos) break;
    std::string& text = texts.emplace_back();
    std::size_t i = open + 1;
    for (; i < dict.size() && dict[i] != dict[open]; ++i) {
      if (dict[i] == '\\' && i + 1 < dict.size()) ++i;
      text += dict[i];
    }
    at = i + 1;
  }
  return texts;
}

/// Returns the names of classes that `convnet export` and Ultralytics write into models, or of the numbers
/// that a net predicts, if they are as many as outputs.
std::vector<std::string> class_names(const SourceModel& model, LabelKind labels, std::int64_t outputs) {
  std::vector<std::string> names_of_dict = texts_of_dict(entry(model, "names"));
  if (std::ssize(names_of_dict) == outputs) return names_of_dict;
  std::vector<std::string> texts;
  try {
    texts =
        JsonValue::parse(entry(model, labels == LabelKind::numbers ? "number_names" : "class_names")).texts();
  } catch (const InputError&) {  // there are none, or another program means something else by them
  }
  if (std::ssize(texts) != outputs) return {};
  return texts;
}

PixelForm chosen_pixels(const SourceModel& model, const ImportOptions& options, const Dims& image) {
  const bool images = image.size() == 3 && (image[0] == 1 || image[0] == 3);
  if (options.pixels != PixelForm::automatic) {
    if (!images && options.pixels != PixelForm::floats && image.size() != 3)
      throw InputError(model.file + ": --pixels: the net reads vectors, not images; only floats goes");
    if (image.size() == 3 && image[0] != 3 && options.pixels == PixelForm::imagenet)
      throw InputError(
          fmt::format("{}: --pixels imagenet is for 3 channels, and the net reads {}", model.file, image[0]));
    return options.pixels;
  }
  const std::string said = entry(model, "input_numbers");
  if (said.starts_with("pixels")) return PixelForm::raw;
  if (images && (entry(model, "author") == "Ultralytics" || model.producer == kDarknet))
    return PixelForm::unit;
  if (said.starts_with("float32") || !images) return PixelForm::floats;
  return image[0] == 3 ? PixelForm::imagenet : PixelForm::unit;
}

/// Returns the provider for the data set that the net reads.
std::string chosen_provider(const SourceModel& model, const ImportOptions& options,
                            const ImportedModel& net) {
  const Dims& image = net.image;
  const bool fits = image.size() == 3 && (image[0] == 1 || image[0] == 3) && image[1] == image[2] &&
                    net.pixels != PixelForm::floats;
  if (options.data == ImportedData::photos && !fits)
    throw InputError(
        fmt::format("{}: --data-provider image: photos are square images of 1 or 3 channels of "
                    "pixels, and the net reads {}",
                    model.file, to_string(image)));
  if (options.data != ImportedData::automatic) return options.data == ImportedData::photos ? "image" : "npy";
  const std::string said = entry(model, "provider");
  if (said.empty() || said == "image") return fits ? "image" : "npy";
  for (const char* known : {"mnist", "cifar", "cifar-cropped"})
    if (said == known && net.pixels != PixelForm::floats) return known;
  return "npy";
}

/// Returns the dims of images before the centre is cut out, or none. Photos are scaled to a length for it.
Dims chosen_stored(const SourceModel& model, const ImportedModel& net) {
  constexpr std::int64_t kMost = 4096, kSmall = 64;
  if (net.image.size() != 3) return {};
  const std::int64_t channels = net.image[0], side = net.image[2];
  if (!net.reads_photos()) {
    const nlohmann::json dims = nlohmann::json::parse(entry(model, "image_dims"), nullptr, false);
    if (to_number<std::int64_t>(entry(model, "crop_size")) != side || !dims.is_array() || dims.size() != 3)
      return {};
    Dims stored;
    for (const auto& one : dims) stored.push_back(one.is_number_integer() ? one.get<std::int64_t>() : 0);
    const bool fits = stored[0] == channels && stored[1] >= net.image[1] && stored[2] >= side &&
                      stored[1] <= kMost && stored[2] <= kMost;
    return fits ? stored : Dims{};
  }
  const auto said = to_number<std::int64_t>(entry(model, "image_size"));
  const std::int64_t usual = side <= kSmall ? side : std::min(kMost, size_around(side));
  const std::int64_t size = said && *said >= side && *said <= kMost ? *said : usual;
  return size > side ? Dims{channels, size, size} : Dims{};
}

/// Puts what a pixel form does to pixels before what the model does.
void prepare_pixels(PixelForm form, ImagePreparation& images) {
  constexpr std::array<double, 3> kMeans = {0.485, 0.456, 0.406}, kDeviations = {0.229, 0.224, 0.225};
  constexpr double kLargest = 255;
  const std::size_t channels = images.scale.size(), each = images.shift.size() / channels;
  for (std::size_t c = 0; c < channels; ++c) {
    double scale = 1, shift = 0;
    if (form == PixelForm::unit) scale = 1 / kLargest;
    if (form == PixelForm::symmetric) {
      scale = 2 / kLargest;
      shift = -1;
    }
    if (form == PixelForm::imagenet) {
      scale = 1 / (kLargest * kDeviations.at(c));
      shift = -kMeans.at(c) / kDeviations.at(c);
    }
    for (std::size_t i = 0; i < each; ++i)
      images.shift[c * each + i] += static_cast<float>(shift * static_cast<double>(images.scale[c]));
    images.scale[c] = static_cast<float>(scale * static_cast<double>(images.scale[c]));
  }
}

/// Returns the matrices of the data set that a net reads, as its provider would describe them.
std::vector<MatrixInfo> matrices_of(const ImportedModel& model) {
  const bool tags = model.text.labels == LabelKind::tags;
  const bool floats = model.pixels == PixelForm::floats, divides = model.divides_pixels();
  MatrixInfo images{"data", model.image, divides || floats ? DataType::f32 : DataType::u8};
  if (divides) images.stored_type = DataType::u8;
  images.stored = model.stored;
  const std::int64_t outputs = model.text.outputs;
  if (model.text.labels == LabelKind::numbers)
    return {images, {"numbers", {outputs}, DataType::f32, 0, model.class_names}};
  return {images,
          {"labels", {1}, DataType::s32, outputs, model.class_names},
          {tags ? kTagsMatrix : "multi-hot labels", {outputs}, DataType::f32, 0}};
}

OptionTexts options_of(const ImportedModel& model, const std::string& definition,
                       const std::string& parameters) {
  OptionTexts options = {{"layer-def", definition}, {"layer-params", parameters}};
  options["data-provider"] = model.provider;
  if (model.divides_pixels()) options["pixel-std"] = "1";
  if (!model.stored.empty()) options["inner-size"] = std::to_string(model.image.back());
  if (!model.reads_photos()) return options;
  if (model.image[0] == 1) options["grey"] = "1";
  options["image-size"] = std::to_string(model.photo_size());
  return options;
}

PixelStatistics statistics_of(const ImportedModel& model) {
  PixelStatistics statistics;
  const auto numbers = static_cast<std::size_t>(element_count(model.image));
  statistics.mean.assign(numbers, 0.0F);
  const std::vector<float>& shift = model.images.shift;
  for (std::size_t i = 0; i < numbers; ++i) statistics.mean[i] = -shift[i * shift.size() / numbers];
  if (!model.divides_pixels()) return statistics;
  for (const float scale : model.images.scale) statistics.deviations.push_back(1 / scale);
  return statistics;
}

}  // namespace

bool ImportedModel::divides_pixels() const {
  return pixels != PixelForm::floats && std::ranges::any_of(images.scale, [](float s) { return s != 1; });
}

ImportedModel import_model(const SourceModel& model, const ImportOptions& options) {
  TranslatedNet translated = translate(model, options.translate);
  const FeatureShape shape = translated.net.shape(translated.input);
  ImportedModel result;
  result.image = shape.image ? Dims{shape.c, shape.h, shape.w} : Dims{shape.c};
  result.pixels = chosen_pixels(model, options, result.image);
  result.images = simplify(translated, model.file, result.pixels != PixelForm::floats);
  prepare_pixels(result.pixels, result.images);
  result.provider = chosen_provider(model, options, result);
  result.stored = chosen_stored(model, result);
  const std::string name = std::filesystem::path(model.file).filename().string();
  const std::string head = "Imported from " + printable(name) +
                           (model.producer.empty() ? "" : ", which " + printable(model.producer) + " wrote");
  result.text = net_text(translated, head, entry(model, "number_output") == translated.output_name);
  result.class_names = escape_non_utf8(class_names(model, result.text.labels, result.text.outputs));
  result.input_name = translated.input_name;
  result.output_name = translated.output_name;
  result.other_outputs = translated.other_outputs;
  return result;
}

Checkpoint checkpoint_of(ImportedModel& model, const std::string& definition_path,
                         const std::string& parameters_path) {
  Checkpoint checkpoint;
  checkpoint.definition_path = definition_path;
  checkpoint.definition_text = model.text.definition;
  checkpoint.parameters_path = parameters_path;
  checkpoint.parameters_text = model.text.parameters;
  checkpoint.options = options_of(model, definition_path, parameters_path);
  checkpoint.matrices = matrices_of(model);
  Diagnostics diagnostics;
  const IniFile definition = parse_ini(definition_path, model.text.definition, diagnostics);
  const IniFile parameters = parse_ini(parameters_path, model.text.parameters, diagnostics);
  const Graph graph = build_graph(definition, parameters, checkpoint.matrices, {}, diagnostics);
  diagnostics.throw_if_errors();
  for (const Node& node : graph.nodes) {
    if (node.layer->weights.empty()) continue;
    const auto layer = model.text.matrices.find(node.section);
    if (layer == model.text.matrices.end()) throw std::logic_error("import: no weights for " + node.section);
    for (const WeightSpec& spec : node.layer->weights) {
      const auto matrix = layer->second.find(spec.name.substr(0, spec.name.find('.')));
      if (matrix == layer->second.end() || matrix->second.dims != spec.dims)
        throw std::logic_error(
            fmt::format("import: {}.{} is not {}", node.section, spec.name, to_string(spec.dims)));
      checkpoint.tensors.tensors[node.section + "." + spec.name] = {spec.dims, *matrix->second.values};
      layer->second.erase(matrix);
    }
  }
  save_statistics(statistics_of(model), checkpoint.options.at("data-provider"), model.image,
                  checkpoint.tensors);
  return checkpoint;
}

}  // namespace convnet
