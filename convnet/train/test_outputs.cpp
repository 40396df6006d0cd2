#include "convnet/train/test_outputs.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "convnet/base/output_file.h"
#include "convnet/base/printable.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

std::vector<TestOutputs::Counted> counted_of(std::vector<Classifier> classifiers) {
  std::vector<TestOutputs::Counted> counted;
  for (Classifier& classifier : classifiers) {
    Confusion confusion(classifier.class_names);
    counted.push_back({std::move(classifier), std::move(confusion)});
  }
  return counted;
}

/// Returns the matrix to write beside features: that of the only classifier, else the first of labels.
std::optional<std::size_t> choose_labels(const std::vector<MatrixInfo>& matrices,
                                         const std::vector<TestOutputs::Counted>& counted) {
  if (counted.size() == 1) return counted[0].classifier.labels;
  for (std::size_t m = 0; m < matrices.size(); ++m) {
    if (matrices[m].classes > 0) return m;
  }
  return std::nullopt;
}

std::vector<std::int64_t> bytes_of_images(const std::vector<MatrixInfo>& matrices) {
  std::vector<std::int64_t> bytes;
  for (const MatrixInfo& matrix : matrices) bytes.push_back(matrix.image_bytes());
  return bytes;
}

std::vector<std::string> layers_to_read(const TestOptions& options,
                                        const std::vector<TestOutputs::Counted>& counted,
                                        const TargetScores& targets) {
  std::vector<std::string> layers;
  if (!options.write_features.empty()) layers.push_back(options.write_features);
  for (const TestOutputs::Counted& c : counted) layers.push_back(c.classifier.softmax);
  for (const std::string& layer : targets.layers()) layers.push_back(layer);
  return layers;
}

/// Returns the labels of the images of a step of `plan`, from a matrix with `bytes` for each row.
std::vector<std::int32_t> labels_in(const std::byte* matrix, std::int64_t bytes, const Plan& plan) {
  std::vector<std::int32_t> labels(static_cast<std::size_t>(plan.images / plan.views));
  for (std::size_t i = 0; i < labels.size(); ++i)
    std::memcpy(&labels[i], matrix + static_cast<std::int64_t>(i) * plan.views * bytes, sizeof(std::int32_t));
  return labels;
}

void close(std::optional<NpyWriter>& file) {
  if (file) file->finish();
  file.reset();
}

}  // namespace

std::vector<Classifier> tested_classifiers(const Graph& graph, const std::vector<MatrixInfo>& matrices,
                                           const TestOptions& options) {
  const bool one = !options.test_out.empty() || !options.confusion.empty() || !options.logreg_name.empty();
  std::vector<Classifier> classifiers;
  for (const std::string& cost : one ? std::vector{options.logreg_name} : logreg_costs(graph))
    classifiers.push_back(find_classifier(graph, matrices, cost));
  return classifiers;
}

TestOutputs::TestOutputs(const Net& net, const std::vector<MatrixInfo>& matrices, const TestOptions& options,
                         bool writes, NameImage name)
    : options_(options),
      writes_(writes),
      name_(std::move(name)),
      counted_(counted_of(tested_classifiers(net.graph(), matrices, options))),
      targets_(net.graph(), matrices, options.tag_threshold),
      labels_(choose_labels(matrices, counted_)),
      label_bytes_(bytes_of_images(matrices)),
      reader_(net, layers_to_read(options, counted_, targets_)) {}

void TestOutputs::open(BatchFiles& files, const std::string& folder, const std::string& stem,
                       std::size_t layer, int number, std::int64_t images) {
  make_folders(folder);
  const auto path = [&](const std::string& name) {
    return (fs::path(folder) / fmt::format("{}_{}.npy", name, number)).string();
  };
  files.values.emplace(path(stem), reader_.shape(layer).dims(images), DataType::f32);
  // Features and probabilities may lie in one folder, with the same labels.
  std::error_code ignored;
  const bool there =
      &files == &probabilities_ && features_.labels && fs::equivalent(folder, options_.feature_path, ignored);
  if (labels_ && !there) files.labels.emplace(path("labels"), Dims{images}, DataType::s32);
}

void TestOutputs::begin_batch(int number, std::int64_t images) {
  batch_ = number;
  images_ = 0;
  if (!writes_) return;
  std::size_t layer = 0;
  if (!options_.write_features.empty())
    open(features_, options_.feature_path, "data_batch", layer++, number, images);
  if (!options_.test_out.empty())
    open(probabilities_, options_.test_out, "probabilities", layer, number, images);
}

void TestOutputs::add_step(const Plan& plan, const std::vector<const std::byte*>& inputs) {
  images_ += plan.images / plan.views;
  const auto write = [&](BatchFiles& files, const std::vector<float>& values) {
    if (files.values) files.values->append(values);
    if (files.labels) files.labels->append(labels_in(inputs[*labels_], label_bytes_[*labels_], plan));
  };
  std::size_t layer = 0;
  if (!options_.write_features.empty()) {
    write(features_, mean_of_views(reader_.values(layer), reader_.shape(layer).size(), plan.views));
    ++layer;
  }
  for (auto& [classifier, confusion] : counted_) {
    const auto outputs = static_cast<std::size_t>(classifier.outputs);
    const std::vector<float> probabilities =
        mean_of_views(reader_.values(layer++), classifier.outputs, plan.views);
    write(probabilities_, probabilities);
    const std::vector<std::int32_t> labels =
        labels_in(inputs[classifier.labels], label_bytes_[classifier.labels], plan);
    for (std::size_t i = 0; i < labels.size(); ++i)
      confusion.add(labels[i], best_output(std::span(probabilities).subspan(i * outputs, outputs)));
  }
  targets_.add(reader_, layer, plan);
}

void TestOutputs::end_batch() {
  for (BatchFiles* files : {&features_, &probabilities_}) {
    close(files->values);
    close(files->labels);
  }
  if (!writes_ || !name_ || images_ == 0 || name_(batch_, 0).empty()) return;
  std::string names;
  for (std::int64_t i = 0; i < images_; ++i) names += escape_controls(name_(batch_, i)) + '\n';
  for (const std::string& folder : {options_.feature_path, options_.test_out}) {
    if (!folder.empty())
      write_whole_file((fs::path(folder) / fmt::format("names_{}.txt", batch_)).string(), names);
  }
}

std::string TestOutputs::missing(const BatchRange& batches) const {
  std::string text = "the averages";
  if (!options_.confusion.empty()) text += ", --confusion " + options_.confusion;
  const auto add = [&](const std::string& folder, const char* stem) {
    if (folder.empty()) return;
    const auto file = [&](int batch) {
      return (fs::path(folder) / fmt::format("{}_{}.npy", stem, batch)).string();
    };
    text += ", " + file(batches.first);
    if (batches.count() > 1) text += " to " + file(batches.last);
  };
  add(options_.feature_path, "data_batch");
  add(options_.test_out, "probabilities");
  return text;
}

void TestOutputs::finish() const {
  if (options_.confusion.empty() || !writes_) return;
  write_whole_file(options_.confusion, counted_[0].confusion.csv());
}

std::string TestOutputs::errors_text() const {
  constexpr std::size_t kMostClasses = 20;
  std::string text;
  for (const auto& [classifier, confusion] : counted_) {
    const MacroAverages macro = confusion.macro_averages();
    text += fmt::format(
        "Errors by class ('{}', worst first):\n{}Means over {} class{}: precision {:.4f}, recall {:.4f}, F1 "
        "{:.4f}\n",
        classifier.cost, confusion.table(kMostClasses), macro.classes, macro.classes == 1 ? "" : "es",
        macro.precision, macro.recall, macro.f1);
  }
  for (const auto& [compared, scores] : targets_.tagged())
    text += fmt::format("Scores of tags ('{}', threshold {:g}, worst first):\n{}", compared.cost,
                        scores.threshold(), scores.table(kMostClasses));
  for (const auto& [compared, scores] : targets_.numbered())
    text += fmt::format("Errors of numbers ('{}'):\n{}", compared.cost, scores.table(kMostClasses));
  return text;
}

}  // namespace convnet
