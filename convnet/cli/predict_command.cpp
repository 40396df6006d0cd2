// `convnet predict` computes what a trained net makes of images in files: classes, or outputs of layers.
#include <fmt/format.h>

#include <algorithm>

#include "convnet/base/error.h"
#include "convnet/base/progress_line.h"
#include "convnet/cli/command_line.h"
#include "convnet/cli/commands.h"
#include "convnet/cli/predict_inputs.h"
#include "convnet/cli/prediction_printer.h"
#include "convnet/cli/trained_net.h"
#include "convnet/net/data_set.h"
#include "convnet/net/input_data.h"
#include "convnet/net/outputs.h"
#include "convnet/net/predictions.h"
#include "providers/file_images.h"

namespace convnet {
namespace {

struct PredictOptions {
  static constexpr OptionGroup group = OptionGroup::output;
  std::string output, softmax, paths;
  int top = 5;
  bool json = false, csv = false;

  ResultForm form() const {
    if (json) return ResultForm::json;
    return csv ? ResultForm::csv : ResultForm::lines;
  }
  RunOptions run;  ///< those that replace the checkpoint's
};

const OptionTable<PredictOptions>& options_of_predict() {
  static const auto table =
      OptionTable<PredictOptions>()
          .add({
              unsaved_option(
                  "top", &PredictOptions::top,
                  {.fallback = "5", .min = 1, .max = 1e6, .doc = "classes for each image, the best ones"}),
              unsaved_option("json", &PredictOptions::json,
                             {.fallback = "0", .doc = "print one JSON object and nothing else"}),
              unsaved_option("csv", &PredictOptions::csv,
                             {.fallback = "0", .doc = "print a header and a line for each image"}),
              unsaved_option(
                  "paths", &PredictOptions::paths,
                  {.fallback = "",
                   .unit = "file",
                   .doc = "file with more names of files and folders, a line each; - for stdin, each "
                          "of whose lines is answered as soon as it comes"}),
              unsaved_option("softmax", &PredictOptions::softmax,
                             {.fallback = "",
                              .unit = "layer",
                              .doc = "softmax layer whose probabilities to print, where the net has several; "
                                     "without it, that of the first cost.logreg"}),
              unsaved_option("output", &PredictOptions::output,
                             {.fallback = "",
                              .unit = "layers",
                              .doc = "comma list of layers whose outputs to print as numbers, after their "
                                     "neurons; if not given, the softmax, or where there is no cost.logreg "
                                     "the layer that the first cost compares with its targets"}),
          })
          .add(&PredictOptions::run,
               run_options().only({"multiview-test", "mini", "gpu", "device", "threads", "precision"}));
  return table;
}

/// Throws InputError if a layer is computed from more than the images.
void check_reads_images_only(const Graph& graph, NodeId layer) {
  for (const NodeId id : graph.needed_for({layer})) {
    const Node& node = graph.nodes[id];
    if (!node.layer->facts.data || node.layer->facts.data->matrix == 0) continue;
    throw InputError(
        fmt::format("{0}: layer '{1}' reads matrix {2} of the data set (dataIdx={2}), and files of "
                    "images have none",
                    node.where.str(), node.section, node.layer->facts.data->matrix));
  }
}

/// Returns the answer that the options ask for.
Answer answer_for(const Graph& graph, const std::vector<MatrixInfo>& matrices, const PredictOptions& asked) {
  if (asked.softmax.empty()) return find_answer(graph, matrices, asked.output);
  const Classifier classifier = find_classifier_of(graph, matrices, asked.softmax);
  return {{classifier.softmax}, classifier.class_names};
}

/// Computes the outputs for images, some at a time.
class ImagePredictor {
 public:
  ImagePredictor(const TrainedNet& trained, const PredictOptions& asked)
      : trained_(trained),
        like_(provider_of({})),
        graph_(graph_of(trained, like_->matrices())),
        answer_(answer_for(graph_, like_->matrices(), asked)),
        statistics_(saved_statistics(trained.checkpoint, trained.options.data, *like_)),
        net_(readable(graph_, answer_.layers), *like_, trained.options.devices, trained.options.step,
             statistics_.mean, false) {
    net_.prepare(Phase::test, static_cast<std::int64_t>(images_at_once()) * like_->views());
    net_.load(trained.checkpoint.tensors, trained.checkpoint.file);
    reader_.emplace(net_, answer_.layers);
  }

  const Answer& answer() const { return answer_; }
  /// Returns how many numbers each layer of the answer has for an image.
  std::vector<std::int64_t> sizes() const {
    std::vector<std::int64_t> sizes;
    for (std::size_t i = 0; i < answer_.layers.size(); ++i) sizes.push_back(reader_->shape(i).size());
    return sizes;
  }
  /// Returns how many images are computed at a time.
  std::size_t images_at_once() const {
    return static_cast<std::size_t>(std::max(1, trained_.options.step.mini / like_->views()));
  }

  /// Computes the outputs for images; for those that cannot be read it says why.
  std::vector<Prediction> predict(const std::vector<FileImage>& images) {
    try {
      return with_outputs(images, read(images));
    } catch (const DeviceError&) {
      throw;
    } catch (const Error& e) {  // of a picture
      if (images.size() == 1) return {{images[0].name(), e.what(), {}}};
    }
    std::vector<Prediction> one_by_one;
    for (const FileImage& image : images) one_by_one.push_back(predict({image})[0]);
    return one_by_one;
  }

 private:
  /// Returns the graph with every one of `layers` ready to be read.
  static Graph readable(Graph graph, const std::vector<std::string>& layers) {
    for (const std::string& layer : layers) {
      check_reads_images_only(graph, nodes_with_features(graph, layer).at(0));
      keep_output(graph, layer);
    }
    return graph;
  }

  std::unique_ptr<Provider> provider_of(std::vector<FileImage> images) const {
    return make_files_provider(std::move(images), trained_.set, image_options(trained_.options.data));
  }

  DataBatch read(const std::vector<FileImage>& images) const {
    return provider_of(images)->read({1, 0}, statistics_);
  }

  std::vector<Prediction> with_outputs(const std::vector<FileImage>& images, const DataBatch& batch) {
    const Plan& plan = net_.prepare(Phase::test, batch.images);
    StepInputs inputs;
    for (const std::vector<std::byte>& matrix : batch.matrices) inputs.matrices.push_back(matrix.data());
    inputs.rates = net_.rates(0);
    net_.run(plan, inputs, nullptr, reader_->reading(plan));
    std::vector<Prediction> predictions;
    for (const FileImage& image : images) predictions.push_back({image.name(), "", {}});
    for (std::size_t layer = 0; layer < answer_.layers.size(); ++layer) {
      const std::int64_t size = reader_->shape(layer).size();
      const std::vector<float> means = mean_of_views(reader_->values(layer), size, like_->views());
      auto first = means.begin();
      for (Prediction& p : predictions) {
        p.outputs.emplace_back(first, first + size);
        first += size;
      }
    }
    return predictions;
  }

  const TrainedNet& trained_;
  const std::unique_ptr<Provider> like_;  ///< without images
  const Graph graph_;
  const Answer answer_;
  const PixelStatistics statistics_;
  Net net_;
  std::optional<OutputReader> reader_;
};

/// Warns where files cannot be cut as the run's tests cut their images.
void warn_of_unknown_size(const TrainedNet& trained) {
  const bool known = trained.set.provider == "image" || !trained.set.matrices[0].stored.empty() ||
                     !image_options(trained.options.data).crops();
  if (known) return;
  fmt::print(stderr,
             "warning: {} is of an older version, which did not note how large the data set's images are: "
             "files are scaled to the size of the crops and not cut; resume the run for a batch, and it "
             "saves that\n",
             trained.checkpoint.file);
}

}  // namespace

const std::vector<OptionSpec>& predict_command_options() { return options_of_predict().specs(); }

void predict_command(const std::vector<std::string>& args) {
  const auto [named, options] = split_words(predict_command_options(), args);
  const OptionTexts given = parse_command_line(predict_command_options(), options);
  const PredictOptions asked = options_of_predict().parse(given);
  if (named.empty() || (named.size() < 2 && asked.paths.empty()))
    throw InputError(
        "usage: convnet predict CHECKPOINT FILE|FOLDER|-... [options]; a FILE is an image, or an array of "
        "images (x.npy); - reads an image, or names of files, a line each, from stdin, as --paths LIST does "
        "from a file");
  if (asked.json && asked.csv) throw InputError("--json and --csv exclude each other");
  if (!asked.output.empty() && !asked.softmax.empty())
    throw InputError("--output and --softmax exclude each other");
  const TrainedNet trained = open_trained_net(named[0], given);
  warn_of_unknown_size(trained);
  PredictInputs inputs({named.begin() + 1, named.end()}, asked.paths, trained.set);
  ImagePredictor predictor(trained, asked);
  if (given.contains("top") && predictor.answer().class_names.empty())
    throw InputError("--top is for the best classes, but what is printed are the numbers of " +
                     join(predictor.answer().layers));
  PredictionPrinter results(asked.form(), asked.top, predictor.answer(), predictor.sizes(), inputs.names());
  try {
    ProgressLine line("predict...", true, ProgressStream::err);
    std::int64_t done = 0;
    while (true) {
      const PredictInputs::Piece piece = inputs.next(predictor.images_at_once());
      if (piece.empty()) break;
      std::vector<Prediction> predictions = piece.left_out;
      if (!piece.images.empty())
        for (Prediction& p : predictor.predict(piece.images)) predictions.push_back(std::move(p));
      line.clear();
      for (const Prediction& p : predictions) results.add(p);
      std::fflush(stdout);
      done += static_cast<std::int64_t>(piece.images.size());
      line.show(done, done + static_cast<std::int64_t>(inputs.waiting()), done);
    }
  } catch (const std::exception& e) {
    results.fail(e.what());
    throw;
  }
  results.finish();
}

}  // namespace convnet
