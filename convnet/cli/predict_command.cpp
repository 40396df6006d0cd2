// `convnet predict` computes what a trained net makes of images in files: classes, or outputs of layers.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "convnet/base/progress_line.h"
#include "convnet/cli/command_line.h"
#include "convnet/cli/commands.h"
#include "convnet/cli/prediction_printer.h"
#include "convnet/cli/trained_net.h"
#include "convnet/net/data_set.h"
#include "convnet/net/input_data.h"
#include "convnet/net/outputs.h"
#include "convnet/net/predictions.h"
#include "providers/image_parts.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

struct PredictOptions {
  static constexpr OptionGroup group = OptionGroup::output;
  std::string output, softmax;
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

/// The images to classify, and why others that were named are left out.
struct NamedImages {
  std::vector<FileImage> images;
  std::vector<Prediction> left_out;
};

/// Returns what a folder without files of images has instead, and what to type for that with a net that was
/// trained on `like`; "" if it has nothing that is known.
std::string hint_of_data_set(const std::string& folder, const LikeSet& like) {
  if (const std::vector<std::string> providers = providers_that_read(folder); !providers.empty())
    return fmt::format(
        ", but a data set: 'convnet --load-file CHECKPOINT --test-out FOLDER --data-provider {} --data-path "
        "{} --test-range BATCHES' writes the probabilities of its images",
        providers[0], folder);
  std::error_code error;
  const bool takes_arrays = like.provider != "image";
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (takes_arrays && entry.path().extension() == ".npy")
      return ", but an array: " + entry.path().string() + " in place of the folder takes the images in it";
  }
  return "";
}

/// Returns the images in a folder, for a net that was trained on `like`. Warns of what the folder has
/// besides.
std::vector<std::string> image_files_in(const std::string& folder, const LikeSet& like) {
  auto [found, left_out] = image_files_below(folder);
  if (const std::string warning = left_out_text(left_out); !warning.empty())
    fmt::print(stderr, "{}\n", warning);
  if (found.empty())
    throw InputError(fmt::format("{}: there is no image in this folder ({}){}", folder, kImageExtensions,
                                 hint_of_data_set(folder, like)));
  std::sort(found.begin(), found.end(), natural_less);
  for (std::string& name : found) name = (fs::path(folder) / name).string();
  return found;
}

/// Adds the images in a folder, or those in a file, for a net that was trained on `like`.
void add_images(const std::string& path, const LikeSet& like, NamedImages& into) {
  try {
    check_name(path);
    std::error_code none;
    const bool is_folder = fs::is_directory(path, none);
    for (const std::string& file : is_folder ? image_files_in(path, like) : std::vector<std::string>{path}) {
      for (FileImage& image : images_in_file(file, like)) into.images.push_back(std::move(image));
    }
  } catch (const std::runtime_error& e) {  // InputError, RunError
    into.left_out.push_back({path, e.what(), {}});
  }
}

/// Adds the images in the files that lines of stdin name.
void add_listed_images(const LikeSet& like, NamedImages& into) {
  std::size_t names = 0;
  for (std::string line; std::getline(std::cin, line);) {
    // Lists that were made on Windows have lines that end with CR and LF.
    std::error_code none;
    if (line.ends_with('\r') && !fs::exists(line, none)) line.pop_back();
    if (line.empty()) continue;
    add_images(line, like, into);
    ++names;
  }
  if (names == 0)
    into.left_out.push_back(
        {"-", "-: stdin is empty; it should have names of files or folders, a line each", {}});
}

/// Lists the images that arguments name: files, folders, and for "-" the lines of stdin. Throws InputError if
/// there are none.
NamedImages images_of(const std::vector<std::string>& named, const LikeSet& like) {
  NamedImages found;
  for (const std::string& name : named) {
    if (name == "-")
      add_listed_images(like, found);
    else
      add_images(name, like, found);
  }
  if (!found.images.empty()) return found;
  std::vector<std::string> why;
  for (const Prediction& p : found.left_out) why.push_back(p.error);
  throw InputError(join(why, "\n"));
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
    net_.prepare(Phase::test, static_cast<std::int64_t>(together()) * like_->views());
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
  std::size_t together() const {
    return static_cast<std::size_t>(std::max(1, trained_.options.step.mini / like_->views()));
  }

  /// Computes the outputs for images; for those that cannot be read it says why.
  std::vector<Prediction> predict(const std::vector<FileImage>& images) {
    try {
      return with_outputs(images, read(images));
    } catch (const std::runtime_error& e) {  // InputError, RunError
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
  if (named.size() < 2)
    throw InputError(
        "usage: convnet predict CHECKPOINT FILE|FOLDER|-... [options]; a FILE is an image, or an array of "
        "images (x.npy); - reads names of files, a line each");
  if (asked.json && asked.csv) throw InputError("--json and --csv exclude each other");
  if (!asked.output.empty() && !asked.softmax.empty())
    throw InputError("--output and --softmax exclude each other");
  const TrainedNet trained = open_trained_net(named[0], given);
  warn_of_unknown_size(trained);
  const auto [images, left_out] = images_of({named.begin() + 1, named.end()}, trained.set);
  ImagePredictor predictor(trained, asked);
  if (given.contains("top") && predictor.answer().class_names.empty())
    throw InputError("--top is for the best classes, but what is printed are the numbers of " +
                     join(predictor.answer().layers));
  std::vector<std::string> names;
  for (const FileImage& image : images) names.push_back(image.name());
  PredictionPrinter results(asked.form(), asked.top, predictor.answer(), predictor.sizes(), names);
  for (const Prediction& p : left_out) results.add(p);
  try {
    ProgressLine line("predict...", true, ProgressStream::err);
    const std::size_t together = predictor.together();
    for (std::size_t first = 0; first < images.size(); first += together) {
      const std::size_t end = std::min(images.size(), first + together);
      const auto from = images.begin();
      const std::vector<Prediction> predictions = predictor.predict(
          {from + static_cast<std::ptrdiff_t>(first), from + static_cast<std::ptrdiff_t>(end)});
      line.clear();
      for (const Prediction& p : predictions) results.add(p);
      std::fflush(stdout);
      const auto done = static_cast<std::int64_t>(end);
      line.show(done, static_cast<std::int64_t>(images.size()), done);
    }
  } catch (const std::exception& e) {
    results.fail(e.what());
    throw;
  }
  results.finish();
}

}  // namespace convnet
