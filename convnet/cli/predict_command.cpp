// `convnet predict` classifies image files with a trained net.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <span>

#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "convnet/base/progress_line.h"
#include "convnet/cli/command_line.h"
#include "convnet/cli/commands.h"
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
  std::string softmax;
  int top = 5;
  bool json = false, csv = false;
  RunOptions run;  ///< those that replace the checkpoint's
};

const OptionTable<PredictOptions>& options_of_predict() {
  static const auto table =
      OptionTable<PredictOptions>()
          .add({
              unsaved_option(
                  "top", &PredictOptions::top,
                  {.fallback = "5", .min = 1, .max = 1e6, .doc = "classes for each file, the best ones"}),
              unsaved_option("json", &PredictOptions::json,
                             {.fallback = "0", .doc = "print one JSON object and nothing else"}),
              unsaved_option("csv", &PredictOptions::csv,
                             {.fallback = "0", .doc = "print a header and a line for each file"}),
              unsaved_option(
                  "softmax", &PredictOptions::softmax,
                  {.fallback = "",
                   .unit = "layer",
                   .doc = "softmax layer whose probabilities to print; needed if the net has several"}),
          })
          .add(&PredictOptions::run,
               run_options().only({"multiview-test", "mini", "gpu", "device", "threads", "precision"}));
  return table;
}

/// A file, and its probabilities, or why it has none.
struct Prediction {
  std::string file, error;
  std::vector<float> probabilities;
};

/// The files to classify, and why others that were named are left out.
struct NamedFiles {
  std::vector<std::string> files;
  std::vector<Prediction> left_out;
};

/// Adds the images in a folder, or a file itself. Warns of what a folder has besides.
void add_files(const std::string& path, NamedFiles& into) {
  std::error_code none;
  if (!fs::is_directory(path, none)) {
    into.files.push_back(path);
    return;
  }
  try {
    auto [found, left_out] = image_files_below(path);
    if (const std::string warning = left_out_text(left_out); !warning.empty())
      fmt::print(stderr, "{}\n", warning);
    if (found.empty())
      throw InputError(path + ": there is no image in this folder (.jpg, .jpeg, .png, .bmp)");
    std::sort(found.begin(), found.end(), natural_less);
    for (const std::string& name : found) into.files.push_back((fs::path(path) / name).string());
  } catch (const std::runtime_error& e) {  // InputError, RunError
    into.left_out.push_back({path, e.what(), {}});
  }
}

/// Adds the files that lines of stdin name.
void add_listed_files(NamedFiles& into) {
  std::size_t names = 0;
  for (std::string line; std::getline(std::cin, line);) {
    // Lists that were made on Windows have lines that end with CR and LF.
    std::error_code none;
    if (line.ends_with('\r') && !fs::exists(line, none)) line.pop_back();
    if (line.empty()) continue;
    add_files(line, into);
    ++names;
  }
  if (names == 0)
    into.left_out.push_back(
        {"-", "-: stdin is empty; it should have names of files or folders, a line each", {}});
}

/// Lists the files that arguments name: files, folders, and for "-" the lines of stdin. Throws InputError if
/// there are none.
NamedFiles files_of(const std::vector<std::string>& named) {
  NamedFiles found;
  for (const std::string& name : named) {
    if (name == "-")
      add_listed_files(found);
    else
      add_files(name, found);
  }
  if (!found.files.empty()) return found;
  std::vector<std::string> why;
  for (const Prediction& p : found.left_out) why.push_back(p.error);
  throw InputError(join(why, "\n"));
}

/// Throws InputError if the layer is computed from more than the images.
void check_reads_images_only(const Graph& graph, const std::string& layer) {
  std::vector<const Node*> from = {graph.find(layer)};
  std::vector<bool> seen(static_cast<std::size_t>(graph.nodes.size()));
  while (!from.empty()) {
    const Node& node = *from.back();
    from.pop_back();
    if (node.layer->facts.data && node.layer->facts.data->matrix != 0)
      throw InputError(fmt::format(
          "{}: layer '{}' reads matrix {} of the data set (dataIdx={}), and files of "
          "images have none",
          node.where.str(), node.section, node.layer->facts.data->matrix, node.layer->facts.data->matrix));
    for (const NodeId input : node.inputs) {
      if (!seen[input.index()]) from.push_back(&graph.nodes[input]);
      seen[input.index()] = true;
    }
  }
}

/// Classifies files, some at a time.
class FileClassifier {
 public:
  FileClassifier(const TrainedNet& trained, const std::string& softmax)
      : trained_(trained),
        like_(provider_of({})),
        graph_(graph_of(trained, like_->matrices())),
        classifier_(find_classifier_of(graph_, like_->matrices(), softmax)),
        statistics_(saved_statistics(trained.checkpoint, trained.options.data, *like_)),
        net_(graph_, *like_, trained.options.devices, trained.options.step, statistics_.mean, false) {
    check_reads_images_only(graph_, classifier_.softmax);
    net_.prepare(Phase::test, static_cast<std::int64_t>(together()) * like_->views());
    net_.load(trained.checkpoint.tensors, trained.checkpoint.file);
    reader_.emplace(net_, std::vector<std::string>{classifier_.softmax});
  }

  const Classifier& classifier() const { return classifier_; }
  /// How many files are classified at a time.
  std::size_t together() const {
    return static_cast<std::size_t>(std::max(1, trained_.options.step.mini / like_->views()));
  }

  /// Classifies files; of those that are no images it says why.
  std::vector<Prediction> classify(const std::vector<std::string>& files) {
    try {
      return with_probabilities(files, read(files));
    } catch (const std::runtime_error& e) {  // InputError, RunError
      if (files.size() == 1) return {{files[0], e.what(), {}}};
    }
    std::vector<Prediction> one_by_one;
    for (const std::string& file : files) one_by_one.push_back(classify({file})[0]);
    return one_by_one;
  }

 private:
  std::unique_ptr<Provider> provider_of(std::vector<std::string> files) const {
    return make_files_provider(std::move(files), trained_.set, image_options(trained_.options.data));
  }

  DataBatch read(const std::vector<std::string>& files) const {
    return provider_of(files)->read({1, 0}, statistics_);
  }

  std::vector<Prediction> with_probabilities(const std::vector<std::string>& files, const DataBatch& batch) {
    const Plan& plan = net_.prepare(Phase::test, batch.images);
    StepInputs inputs;
    for (const std::vector<std::byte>& matrix : batch.matrices) inputs.matrices.push_back(matrix.data());
    inputs.rates = net_.rates(0);
    net_.run(plan, inputs, nullptr, reader_->reading(plan));
    const std::vector<float> means = mean_of_views(reader_->values(0), classifier_.outputs, like_->views());
    std::vector<Prediction> predictions;
    const auto outputs = static_cast<std::size_t>(classifier_.outputs);
    for (std::size_t i = 0; i < files.size(); ++i) {
      const auto first = means.begin() + static_cast<std::ptrdiff_t>(i * outputs);
      predictions.push_back({files[i], "", {first, first + static_cast<std::ptrdiff_t>(outputs)}});
    }
    return predictions;
  }

  const TrainedNet& trained_;
  const std::unique_ptr<Provider> like_;  ///< of no files
  const Graph graph_;
  const Classifier classifier_;
  const PixelStatistics statistics_;
  Net net_;
  std::optional<OutputReader> reader_;
};

/// Returns a name as a part of a line: control characters, line ends among them, become \xHH.
std::string on_one_line(const std::string& name) {
  std::string text;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < ' ' || byte == 0x7F)
      text += fmt::format("\\x{:02x}", byte);
    else
      text += c;
  }
  return text;
}

/// Prints predictions as they come: a table or CSV at once, JSON at the end.
class Results {
 public:
  Results(const PredictOptions& asked, const Classifier& classifier, const std::vector<std::string>& files)
      : asked_(asked), classifier_(classifier), top_(static_cast<std::size_t>(asked.top)) {
    constexpr std::size_t kWidest = 60;
    for (const std::string& file : files)
      widest_ = std::max(widest_, std::min(kWidest, on_one_line(file).size()));
    if (asked.csv) print_csv_header();
  }

  /// Prints a prediction, or on stderr why there is none.
  void add(const Prediction& p) {
    if (asked_.json) add_json(p);
    ++count_;
    if (!p.error.empty()) {
      fmt::print(stderr, "skipped: {}\n", on_one_line(p.error));
      ++bad_;
    } else if (asked_.csv) {
      print_csv(p);
    } else if (!asked_.json) {
      print_line(p);
    }
  }
  /// Throws RunError if there was a file without a prediction.
  void finish() {
    // Names of files may have any encoding.
    if (asked_.json)
      fmt::print("{}\n", nlohmann::json{{"files", files_}}.dump(2, ' ', false,
                                                                nlohmann::json::error_handler_t::replace));
    if (bad_ > 0) throw RunError(fmt::format("{} of {} files could not be classified", bad_, count_));
  }

 private:
  void print_line(const Prediction& p) const {
    std::string line = fmt::format("{:<{}} ", on_one_line(p.file), widest_);
    for (const std::size_t c : best_outputs(p.probabilities, top_))
      line += fmt::format(" {} {:.1f}%", classifier_.class_names[c], 100 * p.probabilities[c]);
    fmt::print("{}\n", line);
  }

  void print_csv_header() const {
    std::string line = "file";
    for (std::size_t k = 1; k <= std::min(top_, classifier_.class_names.size()); ++k)
      line += fmt::format(",class {},probability {}", k, k);
    fmt::print("{}\n", line);
  }

  void print_csv(const Prediction& p) const {
    std::string line = csv_field(p.file);
    for (const std::size_t c : best_outputs(p.probabilities, top_))
      line += fmt::format(",{},{:.6g}", csv_field(classifier_.class_names[c]), p.probabilities[c]);
    fmt::print("{}\n", line);
  }

  void add_json(const Prediction& p) {
    nlohmann::json file = {{"file", p.file}};
    if (!p.error.empty()) file["error"] = p.error;
    for (const std::size_t c : best_outputs(p.probabilities, top_))
      file["classes"].push_back(
          {{"class", classifier_.class_names[c]}, {"index", c}, {"probability", p.probabilities[c]}});
    files_.push_back(std::move(file));
  }

  const PredictOptions& asked_;
  const Classifier& classifier_;
  const std::size_t top_;
  std::size_t widest_ = 0, count_ = 0, bad_ = 0;
  nlohmann::json files_ = nlohmann::json::array();
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
        "usage: convnet predict CHECKPOINT FILE|FOLDER|-... [options]; - reads names of files, a line "
        "each");
  if (asked.json && asked.csv) throw InputError("--json and --csv exclude each other");
  const TrainedNet trained = open_trained_net(named[0], given);
  warn_of_unknown_size(trained);
  const auto [files, left_out] = files_of({named.begin() + 1, named.end()});
  FileClassifier classifier(trained, asked.softmax);
  Results results(asked, classifier.classifier(), files);
  for (const Prediction& p : left_out) results.add(p);
  {
    ProgressLine line("predict...", true, ProgressStream::err);
    const std::size_t together = classifier.together();
    for (std::size_t first = 0; first < files.size(); first += together) {
      const std::size_t end = std::min(files.size(), first + together);
      const auto from = files.begin();
      const std::vector<Prediction> predictions = classifier.classify(
          {from + static_cast<std::ptrdiff_t>(first), from + static_cast<std::ptrdiff_t>(end)});
      line.clear();
      for (const Prediction& p : predictions) results.add(p);
      std::fflush(stdout);
      const auto done = static_cast<std::int64_t>(end);
      line.show(done, static_cast<std::int64_t>(files.size()), done);
    }
  }
  results.finish();
}

}  // namespace convnet
