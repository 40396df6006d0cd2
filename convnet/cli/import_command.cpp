// `convnet import` makes the files of a net and a checkpoint of an ONNX model, or of a net of Darknet.
#include <fmt/format.h>

#include <filesystem>

#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "convnet/base/generated_text.h"
#include "convnet/base/output_file.h"
#include "convnet/base/printable.h"
#include "convnet/base/tensor.h"
#include "convnet/cli/command_line.h"
#include "convnet/cli/commands.h"
#include "convnet/config/text.h"
#include "convnet/onnx_import/darknet.h"
#include "convnet/onnx_import/import.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

struct ImportCommandOptions {
  static constexpr OptionGroup group = OptionGroup::output;
  std::string definition, parameters, checkpoint, weights, output, input_dims;
  PixelForm pixels = PixelForm::automatic;
  ImportedData data = ImportedData::automatic;
};

OptionSpec unsaved(OptionSpec spec) {
  spec.saved = false;
  return spec;
}

const OptionTable<ImportCommandOptions>& options_of_import() {
  static const auto table = OptionTable<ImportCommandOptions>().add({
      of_output(unsaved_option("layer-def", &ImportCommandOptions::definition,
                               {.fallback = "",
                                .unit = "file",
                                .doc = "layer definition file to write; if not given, NAME.cfg for "
                                       "NAME.onnx, NAME-net.cfg for NAME.cfg"})),
      of_output(unsaved_option(
          "layer-params", &ImportCommandOptions::parameters,
          {.fallback = "", .unit = "file", .doc = "parameter file to write; if not given, NAME-params.cfg"})),
      of_output(unsaved_option("checkpoint", &ImportCommandOptions::checkpoint,
                               {.fallback = "",
                                .unit = "folder",
                                .doc = "folder for a checkpoint with the weights; if not given, NAME"})),
      unsaved_option("weights", &ImportCommandOptions::weights,
                     {.fallback = "",
                      .unit = "file",
                      .doc = "weights of a net of Darknet; if not given, NAME.weights beside NAME.cfg"}),
      unsaved_option(
          "output", &ImportCommandOptions::output,
          {.fallback = "",
           .unit = "tensor",
           .doc = "tensor of the model with a number for each class, at which the net ends; if not "
                  "given, the model's first output"}),
      unsaved_option("input-dims", &ImportCommandOptions::input_dims,
                     {.fallback = "",
                      .unit = "dims",
                      .doc = "dims of an image, like 3x224x224, in the model's order, where the file leaves "
                             "them open"}),
      unsaved(choice_option(
          "pixels", &ImportCommandOptions::pixels,
          {{"auto", PixelForm::automatic},
           {"raw", PixelForm::raw},
           {"unit", PixelForm::unit},
           {"symmetric", PixelForm::symmetric},
           {"imagenet", PixelForm::imagenet},
           {"floats", PixelForm::floats}},
          {.fallback = "auto",
           .doc = "the numbers that the model takes as pixels: raw, 0 to 255; unit, 0 to 1; "
                  "symmetric, -1 to 1; imagenet, 0 to 1 normalised as torchvision does; "
                  "floats, those of a float32 array; auto: as the file says; else unit for nets of "
                  "Darknet, models of Ultralytics and 1 channel, imagenet for 3 channels, and "
                  "floats for others"})),
      unsaved(choice_option(
          "data-provider", &ImportCommandOptions::data,
          {{"auto", ImportedData::automatic}, {"image", ImportedData::photos}, {"npy", ImportedData::arrays}},
          {.fallback = "auto",
           .doc = "data that the checkpoint's net reads: image, photos; npy, arrays of "
                  "NumPy; auto: photos if it takes square images of pixels"})),
  });
  return table;
}

Dims parse_dims(const std::string& text) {
  Dims dims;
  std::size_t begin = 0;
  while (!text.empty() && begin <= text.size()) {
    const std::size_t end = std::min(text.find('x', begin), text.size());
    const auto side = to_number<std::int64_t>(std::string_view(text).substr(begin, end - begin));
    if (!side || *side < 1)
      throw InputError("--input-dims expects the dims of an image, like 3x224x224, not " + excerpt(text));
    dims.push_back(*side);
    begin = end + 1;
  }
  return dims;
}

/// Throws InputError if the folder has checkpoints of a run that has begun.
void check_folder(const std::string& folder) {
  const auto newest = newest_checkpoint(folder);
  if (newest && fs::path(*newest).filename() != Position{}.file_name())
    throw InputError(fmt::format("--checkpoint {}: has checkpoints of a run, like {}; name another folder",
                                 folder, *newest));
  check_folder_writable(folder, "the checkpoint is to be written to");
}

const char* text_of(PixelForm form) {
  switch (form) {
    case PixelForm::unit: return "0 to 1";
    case PixelForm::symmetric: return "-1 to 1";
    case PixelForm::imagenet: return "0 to 1, normalised by ImageNet's mean and deviations";
    case PixelForm::floats: return "float32 numbers as they are in the data set";
    default: return "0 to 255";
  }
}

/// Returns the options of a table of labels that training on photos needs.
const char* labels_of(LabelKind kind) {
  switch (kind) {
    case LabelKind::tags: return " --labels TABLE";
    case LabelKind::numbers: return " --labels TABLE --label-kind numbers";
    default: return "";
  }
}

/// Returns the number of sections but [DEFAULT].
std::size_t count_layers(const std::string& definition) {
  std::size_t sections = 0;
  for (std::size_t at = 0; (at = definition.find("\n[", at)) != std::string::npos; ++at) ++sections;
  return sections - 1;
}

void print_summary(const ImportedModel& model, const ImportCommandOptions& asked,
                   const std::string& checkpoint, std::size_t layers) {
  fmt::print("{}: {} layers, from {} ({}) to {} {}\n", asked.definition, layers, printable(model.input_name),
             to_string(model.image), model.text.outputs, to_string(model.text.labels));
  fmt::print("{}\n{}\n", asked.parameters, checkpoint);
  fmt::print("Pixels as the model takes them: {}{}\n", text_of(model.pixels),
             asked.pixels == PixelForm::automatic ? "; --pixels says otherwise" : "");
  if (!model.other_outputs.empty())
    fmt::print("Left out: the model's other outputs, like {}; --output names one of them\n",
               excerpt(model.other_outputs[0]));
  if (model.text.adds_softmax)
    fmt::print("Added: a softmax, because the output {} has scores, not probabilities\n",
               excerpt(model.output_name));
  if (model.text.drops_logarithm)
    fmt::print("Left out: the logarithm after the softmax of the output {}; the net gives probabilities\n",
               excerpt(model.output_name));
  fmt::print("  use it:     convnet predict {} FILE...\n", shell_word(asked.checkpoint));
  const bool photos = model.reads_photos();
  std::string options = photos ? fmt::format("--image-size {}", model.photo_size())
                               : fmt::format("--data-provider {}", model.provider);
  if (!model.stored.empty()) options += fmt::format(" --inner-size {}", model.image.back());
  if (photos && model.image[0] == 1) options += " --grey 1";
  if (model.divides_pixels()) options += " --pixel-std 1";
  fmt::print(
      "  train it:   convnet train {} --layer-def {} --layer-params {} --init-from {} {} --save-file run\n",
      photos ? std::string("PHOTOS") + labels_of(model.text.labels) : "--data-path DATA",
      shell_word(asked.definition), shell_word(asked.parameters), shell_word(asked.checkpoint), options);
}

/// Reads the model that the command names. `weights` are those of a net of Darknet; "" chooses them.
SourceModel read_model(const std::string& file, std::string weights) {
  if (file.ends_with(".weights"))
    throw InputError(
        fmt::format("{}: the net of these weights is described by a .cfg; type convnet import {}.cfg "
                    "--weights {}",
                    file, shell_word(fs::path(file).replace_extension().string()), shell_word(file)));
  if (!file.ends_with(".cfg")) {
    if (!weights.empty()) throw InputError("--weights is for nets of Darknet, whose names end in .cfg");
    return read_source_model(file);
  }
  if (weights.empty()) {
    weights = fs::path(file).replace_extension(".weights").string();
    if (std::error_code none; !fs::exists(weights, none)) {
      if (read_whole_file(file).find("[net") == std::string::npos)
        throw InputError(
            file +
            ": is no net of Darknet, which begins with [net]; convnet import reads FILE.onnx, or FILE.cfg of "
            "Darknet");
      throw InputError(
          fmt::format("{}: its weights are not in {}; type convnet import {} --weights FILE.weights", file,
                      weights, shell_word(file)));
    }
  }
  return read_darknet_model(file, weights);
}

}  // namespace

const std::vector<OptionSpec>& import_command_options() { return options_of_import().specs(); }

void import_command(const std::vector<std::string>& args) {
  const auto [named, options] = split_words(import_command_options(), args);
  ImportCommandOptions asked =
      options_of_import().parse(parse_command_line(import_command_options(), options));
  if (named.size() != 1)
    throw InputError(
        "usage: convnet import FILE.onnx|FILE.cfg [--weights FILE.weights] [--layer-def FILE] "
        "[--layer-params FILE] [--checkpoint FOLDER]");
  std::string name = fs::path(named[0]).stem().string();
  if (named[0].ends_with(".cfg")) name += "-net";  // so that Darknet's file stays
  if (asked.definition.empty()) asked.definition = name + ".cfg";
  if (asked.parameters.empty()) {
    const std::string& definition = asked.definition;
    const bool cfg = definition.ends_with(".cfg");
    asked.parameters = (cfg ? definition.substr(0, definition.size() - 4) : definition) + "-params.cfg";
  }
  if (asked.checkpoint.empty()) asked.checkpoint = name;
  ImportOptions how;
  how.translate = {asked.output, parse_dims(asked.input_dims)};
  how.pixels = asked.pixels;
  how.data = asked.data;
  ImportedModel model;
  {
    const SourceModel source = read_model(named[0], asked.weights);
    check_outputs(
        {{"--layer-def", asked.definition, "the net is to be written to", "", is_unedited},
         {"--layer-params", asked.parameters, "the parameters are to be written to", "", is_unedited}},
        {named[0]});
    check_folder(asked.checkpoint);
    model = import_model(source, how);
  }
  for (std::string* text : {&model.text.definition, &model.text.parameters}) *text = generated_text(*text);
  Checkpoint checkpoint = checkpoint_of(model, asked.definition, asked.parameters);
  for (const auto& [tensor, values] : checkpoint.tensors.tensors)
    if (!all_finite(values.values))
      throw InputError(fmt::format(
          "{}: the weights of '{}' hold numbers that are not finite (NaN or infinity)", named[0], tensor));
  for (const auto& [file, text] : {std::pair{asked.definition, model.text.definition},
                                   std::pair{asked.parameters, model.text.parameters}})
    write_whole_file(file, text);
  constexpr int kAll = 1 << 20;
  write_checkpoint(asked.checkpoint, checkpoint, kAll);
  print_summary(model, asked, checkpoint.file, count_layers(model.text.definition));
}

}  // namespace convnet
