#include "convnet/show/image_predictions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <random>

#include "convnet/base/error.h"
#include "convnet/base/progress_line.h"
#include "convnet/net/costs.h"
#include "convnet/net/input_data.h"
#include "convnet/net/outputs.h"
#include "convnet/show/font.h"
#include "providers/crop.h"

namespace convnet {
namespace {

constexpr std::size_t kBest = 5;

/// Reads a batch as tests see it.
DataBatch load_test_batch(const Run& run, const PixelStatistics& statistics, int batch) {
  return run.provider->read({batch, 0}, statistics);
}

PixelStatistics statistics_of(const Run& run) {
  return saved_statistics(run.checkpoint, run.options.data, *run.provider);
}

Color mixed(Color a, Color b, double share) {
  const auto mix = [&](std::uint8_t from, std::uint8_t to) {
    return static_cast<std::uint8_t>(std::lround(from + (to - from) * std::clamp(share, 0.0, 1.0)));
  };
  return {mix(a.r, b.r), mix(a.g, b.g), mix(a.b, b.b)};
}

}  // namespace

Picture picture_of(std::vector<float> values, const MatrixInfo& info) {
  if (info.type == DataType::f32) {
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    const float from = *low;
    const float range = *high - *low;
    for (float& v : values) v = range > 0 ? 255 * (v - from) / range : 128;
  }
  // Vectors are a row of pixels.
  const Dims dims = info.dims.size() == 3 ? info.dims : Dims{1, 1, element_count(info.dims)};
  const auto plane = static_cast<std::size_t>(dims[1] * dims[2]);
  Picture picture(static_cast<int>(dims[2]), static_cast<int>(dims[1]));
  for (std::size_t p = 0; p < plane; ++p) {
    const auto level = [&](std::size_t channel) {
      const float value = values[(dims[0] == 3 ? channel : 0) * plane + p];
      return static_cast<std::uint8_t>(std::clamp(value, 0.0F, 255.0F));
    };
    picture.set(static_cast<int>(p % static_cast<std::size_t>(dims[2])),
                static_cast<int>(p / static_cast<std::size_t>(dims[2])), {level(0), level(1), level(2)});
  }
  return picture;
}

std::vector<std::size_t> ImagePredictions::best(std::size_t image, std::size_t count) const {
  return best_outputs({probabilities.data() + image * classes.size(), classes.size()}, count);
}

Confusion ImagePredictions::confusion() const {
  Confusion confusion(classes);
  for (std::size_t i = 0; i < images.size(); ++i)
    confusion.add(images[i].label, static_cast<std::int64_t>(best(i, 1)[0]));
  return confusion;
}

namespace {

/// A step of a test that has ended.
struct TestStep {
  int batch = 0;
  std::int64_t first = 0, images = 0;  ///< of the batch
  const Plan& plan;
  const std::vector<const std::byte*>& matrices;
  const OutputReader& outputs;  ///< of the layers that were asked for
};

/// Tests the net on `batches`, and calls `use` after each step.
void test_net(const Run& run, const std::vector<std::string>& layers, const BatchRange& batches,
              const std::function<void(const TestStep&)>& use) {
  if (!run.provider) throw InputError(run.no_provider);
  const PixelStatistics statistics = statistics_of(run);
  const std::vector<MatrixInfo>& infos = run.provider->matrices();
  Net net(run.graph, *run.provider, run.options.devices, run.options.step, statistics.mean, false);
  net.prepare(Phase::test,
              std::min<std::int64_t>(run.options.step.mini, run.provider->images_in(batches.first)));
  net.load(run.checkpoint.tensors, run.checkpoint.file);
  OutputReader reader(net, layers);
  for (int batch = batches.first; batch <= batches.last; ++batch) {
    const DataBatch data = load_test_batch(run, statistics, batch);
    ProgressLine line(fmt::format("test {}...", batch));
    for (std::int64_t first = 0; first < data.images;) {
      const std::int64_t images = std::min<std::int64_t>(run.options.step.mini, data.images - first);
      const Plan& plan = net.prepare(Phase::test, images);
      StepInputs inputs;
      for (std::size_t m = 0; m < infos.size(); ++m)
        inputs.matrices.push_back(data.matrices[m].data() + first * infos[m].image_bytes());
      inputs.rates = net.rates(0);
      if (!net.run(plan, inputs, nullptr, reader.reading(plan)).finite())
        throw RunError(fmt::format("a cost is not finite (NaN or infinity) in test batch {}", batch));
      use({batch, first, images, plan, inputs.matrices, reader});
      first += images;
      line.show(first, data.images, first);
    }
  }
}

}  // namespace

ImagePredictions predict(const Run& run, const Classifier& classifier, const BatchRange& batches) {
  ImagePredictions result;
  result.classes = classifier.class_names;
  test_net(run, {classifier.softmax}, batches, [&](const TestStep& step) {
    const std::vector<float>& values = step.outputs.values(0);
    result.probabilities.insert(result.probabilities.end(), values.begin(), values.end());
    const std::int64_t bytes = run.provider->matrices()[classifier.labels].image_bytes();
    for (std::int64_t i = 0; i < step.images; ++i) {
      std::int32_t label = 0;
      std::memcpy(&label, step.matrices[classifier.labels] + i * bytes, sizeof label);
      const std::int64_t place = step.first + i;
      result.images.push_back({step.batch, place, label, run.provider->image_name(step.batch, place)});
    }
  });
  return result;
}

TargetScores score_targets(const Run& run) {
  constexpr double kThreshold = 0.5;
  TargetScores scores(run.graph, run.matrices, kThreshold);
  if (scores.empty()) return scores;
  test_net(run, scores.layers(), run.options.data.test_range,
           [&](const TestStep& step) { scores.add(step.outputs, 0, step.plan); });
  return scores;
}

std::vector<std::size_t> choose_images(const ImagePredictions& predictions, std::size_t count,
                                       bool only_errors, std::uint64_t seed) {
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < predictions.images.size(); ++i) {
    if (!only_errors || static_cast<std::int64_t>(predictions.best(i, 1)[0]) != predictions.images[i].label)
      all.push_back(i);
  }
  // Avoids the standard distributions, which differ between libraries; the generators do not.
  std::mt19937_64 random(seed);
  count = std::min(count, all.size());
  for (std::size_t i = 0; i < count; ++i) std::swap(all[i], all[i + random() % (all.size() - i)]);
  all.resize(count);
  return all;
}

std::vector<Picture> pictures_of(const Run& run, const ImagePredictions& predictions,
                                 const std::vector<std::size_t>& chosen) {
  PixelStatistics statistics = statistics_of(run);
  statistics.mean.clear();  // so that the provider does not subtract it either
  const MatrixInfo& info = run.provider->matrices()[0];
  std::map<int, DataBatch> batches;
  for (const std::size_t i : chosen) batches[predictions.images[i].batch];
  for (auto& [number, batch] : batches) batch = load_test_batch(run, statistics, number);
  std::vector<Picture> pictures;
  for (const std::size_t i : chosen) {
    const ImagePredictions::Image& image = predictions.images[i];
    pictures.push_back(picture_of(seen_pixels(batches[image.batch], info, image.place), info));
  }
  return pictures;
}

namespace {

constexpr int kCellWidth = 230, kCellHeight = 300, kColumns = 4, kMargin = 16;
constexpr double kImageSide = 128, kBarHeight = 22;
constexpr Color kRightBar = {167, 215, 184}, kWrongBar = {246, 190, 160};

}  // namespace

Size predictions_size(std::size_t images) {
  const int count = std::max(1, static_cast<int>(images));
  return {std::min(count, kColumns) * kCellWidth + kMargin,
          (count + kColumns - 1) / kColumns * kCellHeight + kMargin};
}

void draw_predictions(Canvas& canvas, const ImagePredictions& predictions,
                      const std::vector<std::size_t>& chosen, const std::vector<Picture>& pictures) {
  for (std::size_t n = 0; n < chosen.size(); ++n) {
    const std::size_t image = chosen[n];
    const int row = static_cast<int>(n) / kColumns, column = static_cast<int>(n) % kColumns;
    const Box cell = {static_cast<double>(kMargin + column * kCellWidth),
                      static_cast<double>(kMargin + row * kCellHeight), kCellWidth - kMargin,
                      kCellHeight - kMargin};
    const double scale = kImageSide / std::max(pictures[n].width(), pictures[n].height());
    const double width = pictures[n].width() * scale;
    const double height = pictures[n].height() * scale;
    canvas.image({cell.x + (cell.width - width) / 2, cell.y + (kImageSide - height) / 2, width, height},
                 pictures[n]);
    const std::int64_t label = predictions.images[image].label;
    const std::string name = label >= 0 && label < static_cast<std::int64_t>(predictions.classes.size())
                                 ? predictions.classes[static_cast<std::size_t>(label)]
                                 : "no label";
    canvas.text({cell.x + cell.width / 2, cell.y + kImageSide + 20}, fitted(name, 15, cell.width),
                palette::ink, 15, Anchor::middle);
    double top = cell.y + kImageSide + 30;
    for (const std::size_t cls : predictions.best(image, kBest)) {
      const double probability =
          std::clamp(static_cast<double>(predictions.probability(image, cls)), 0.0, 1.0);
      const std::string percent = fmt::format("{:.1f} %", 100 * probability);
      const Box bar = {cell.x, top, cell.width, kBarHeight - 3};
      canvas.box(bar, {242, 244, 246});
      canvas.box({bar.x, bar.y, bar.width * probability, bar.height},
                 static_cast<std::int64_t>(cls) == label ? kRightBar : kWrongBar);
      canvas.text({bar.x + 6, bar.y + 14},
                  fitted(predictions.classes[cls], 12, bar.width - 20 - text_width(percent, 12)),
                  palette::ink, 12, Anchor::start);
      canvas.text({bar.right() - 6, bar.y + 14}, percent, palette::ink, 12, Anchor::end);
      top += kBarHeight;
    }
  }
}

std::string predictions_csv(const ImagePredictions& predictions) {
  const std::size_t best = std::min(kBest, predictions.classes.size());
  const bool named = std::any_of(predictions.images.begin(), predictions.images.end(),
                                 [](const ImagePredictions::Image& image) { return !image.name.empty(); });
  std::string text = std::string(kPredictionsBegin) + (named ? "name,label" : "label");
  for (std::size_t k = 1; k <= best; ++k) text += fmt::format(",class {0},probability {0}", k);
  text += "\n";
  for (std::size_t i = 0; i < predictions.images.size(); ++i) {
    const ImagePredictions::Image& image = predictions.images[i];
    text += fmt::format("{},{},", image.batch, image.place);
    if (named) text += csv_field(image.name) + ",";
    if (image.label >= 0 && image.label < static_cast<std::int64_t>(predictions.classes.size()))
      text += csv_field(predictions.classes[static_cast<std::size_t>(image.label)]);
    for (const std::size_t cls : predictions.best(i, best))
      text += fmt::format(",{},{:.6f}", csv_field(predictions.classes[cls]), predictions.probability(i, cls));
    text += "\n";
  }
  return text;
}

namespace {

/// The positions of a confusion matrix's cells.
struct ConfusionGrid {
  explicit ConfusionGrid(const std::vector<std::string>& classes)
      : count(static_cast<int>(classes.size())), cell(std::clamp(440 / std::max(1, count), 1, 44)) {
    if (!labelled()) return;
    double widest = 0;
    for (std::size_t c = 0; c < classes.size(); ++c)
      widest = std::max(widest, text_width(name(classes, c), kSize));
    left = 24 + static_cast<int>(std::min(widest, 180.0));
    top = 48;
  }
  bool labelled() const { return cell >= 11; }
  bool numbered() const { return cell >= 28; }
  static std::string name(const std::vector<std::string>& classes, std::size_t c) {
    const std::string number = std::to_string(c);
    return classes[c] == number ? number : classes[c] + " " + number;
  }
  static constexpr double kSize = 12;
  int count, cell, left = 8, top = 8;
};

}  // namespace

Size confusion_size(const std::vector<std::string>& classes) {
  const ConfusionGrid grid(classes);
  return {grid.left + grid.count * grid.cell + (grid.numbered() ? 76 : 8),
          grid.top + grid.count * grid.cell + 8};
}

void draw_confusion(Canvas& canvas, const Confusion& confusion, const std::vector<std::string>& classes) {
  const ConfusionGrid grid(classes);
  // Too many cells for a drawing of boxes: a pixel each.
  Picture pixels(std::max(1, grid.count), std::max(1, grid.count));
  if (grid.labelled())
    canvas.text({static_cast<double>(grid.left), 16}, "taken for", palette::faint, ConfusionGrid::kSize,
                Anchor::start);
  if (grid.numbered())
    canvas.text({grid.left + static_cast<double>(grid.count * grid.cell) + 68, 38}, "error", palette::faint,
                ConfusionGrid::kSize, Anchor::end);
  for (int row = 0; row < grid.count; ++row) {
    std::int64_t images = 0;
    for (int column = 0; column < grid.count; ++column) images += confusion.count(row, column);
    const double y = grid.top + static_cast<double>(row * grid.cell);
    const double baseline = y + grid.cell / 2.0 + 4;
    for (int column = 0; column < grid.count; ++column) {
      const std::int64_t count = confusion.count(row, column);
      const double share = images > 0 ? static_cast<double>(count) / static_cast<double>(images) : 0;
      // A few percent of errors should be seen beside ninety that are right.
      const Color full = row == column ? palette::train : palette::test;
      const Color shade = mixed({246, 247, 249}, full, std::sqrt(share));
      pixels.set(column, row, shade);
      if (!grid.numbered()) continue;
      const double x = grid.left + static_cast<double>(column * grid.cell);
      canvas.box({x, y, grid.cell - 1.0, grid.cell - 1.0}, shade);
      if (count == 0) continue;
      canvas.text({x + grid.cell / 2.0, baseline}, std::to_string(count), share > 0.4 ? kWhite : palette::ink,
                  ConfusionGrid::kSize, Anchor::middle);
    }
    if (grid.numbered() && images > 0)
      canvas.text({grid.left + static_cast<double>(grid.count * grid.cell) + 68, baseline},
                  fmt::format("{:.1f} %", 100.0 * static_cast<double>(images - confusion.count(row, row)) /
                                              static_cast<double>(images)),
                  palette::ink, ConfusionGrid::kSize, Anchor::end);
  }
  if (!grid.numbered())
    canvas.image({static_cast<double>(grid.left), static_cast<double>(grid.top),
                  static_cast<double>(grid.count * grid.cell), static_cast<double>(grid.count * grid.cell)},
                 pixels);
  if (!grid.labelled()) return;
  for (int c = 0; c < grid.count; ++c) {
    const double middle = c * grid.cell + grid.cell / 2.0;
    canvas.text({grid.left - 8.0, grid.top + middle + 4},
                fitted(ConfusionGrid::name(classes, static_cast<std::size_t>(c)), ConfusionGrid::kSize, 180),
                palette::ink, ConfusionGrid::kSize, Anchor::end);
    if (grid.numbered() || c % 5 == 0)
      canvas.text({grid.left + middle, 38}, std::to_string(c), palette::faint, ConfusionGrid::kSize,
                  Anchor::middle);
  }
}

}  // namespace convnet
