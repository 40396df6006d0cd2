// Imports an ONNX model: files of a net, and a checkpoint with its weights.
//
//   ImportedModel net = import_model(read_source_model("resnet18.onnx"), options);
//   write_whole_file("resnet18.cfg", net.text.definition);
//   Checkpoint checkpoint = checkpoint_of(net, "resnet18.cfg", "resnet18-params.cfg");
#pragma once

#include <string>
#include <vector>

#include "convnet/checkpoint/checkpoint.h"
#include "convnet/onnx_import/net_text.h"
#include "convnet/onnx_import/simplify.h"
#include "convnet/onnx_import/source_model.h"

namespace convnet {

/// The numbers that a model takes as pixels.
enum class PixelForm {
  automatic,  ///< as the model's metadata say, or else unit for Darknet's and for grey, imagenet for
              ///< other colours
  raw,        ///< 0 to 255
  unit,       ///< 0 to 1
  symmetric,  ///< -1 to 1
  imagenet,   ///< 0 to 1, minus the mean of ImageNet's colours, divided by their deviations
  floats      ///< no pixels: numbers of an array of float32
};

/// The data set that an imported net reads.
enum class ImportedData { automatic, photos, arrays };

struct ImportOptions {
  TranslateOptions translate;
  PixelForm pixels = PixelForm::automatic;
  ImportedData data = ImportedData::automatic;
};

struct ImportedModel {
  NetText text;
  ImagePreparation images;
  PixelForm pixels = PixelForm::raw;  ///< never automatic
  std::string provider;               ///< data provider of the checkpoint
  Dims image;                         ///< dims that the net reads
  /// The dims of images of which the net reads the centre; those of photos are the length to which their
  /// shorter side is scaled. Empty: it reads whole images.
  Dims stored;
  std::vector<std::string> class_names;  ///< by output, or none
  std::string input_name, output_name;
  std::vector<std::string> other_outputs;

  bool reads_photos() const { return provider == "image"; }
  /// Returns whether the net reads pixels divided by deviations (--pixel-std 1).
  bool divides_pixels() const;
  /// Returns the side to which photos are scaled.
  std::int64_t photo_size() const { return stored.empty() ? image.back() : stored.back(); }
};

/// Makes a net of a model. Throws InputError naming every operator that cannot be layers, and why.
ImportedModel import_model(const SourceModel& model, const ImportOptions& options);

/// Makes a checkpoint from before the first step of training, whose net is in these files. The model's own
/// tensors are handed over: `model` has none afterwards.
Checkpoint checkpoint_of(ImportedModel& model, const std::string& definition_path,
                         const std::string& parameters_path);

}  // namespace convnet
