#include "convnet/show/cam.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "convnet/base/error.h"
#include "convnet/base/names.h"
#include "convnet/base/printable.h"
#include "convnet/config/text.h"
#include "convnet/graph/whole_layers.h"
#include "convnet/net/data_set.h"
#include "convnet/net/input_data.h"
#include "convnet/net/target_scores.h"
#include "providers/dummy.h"

namespace convnet {
namespace {

constexpr std::int64_t kRows = 64;  ///< copies of a layer's output in a step
constexpr double kStep = 0.03;  ///< change of a map, as a share of the root mean square of the layer's output
constexpr int kLeastSide = 224;  ///< pixels of the drawing's longer side

const Node& node_called(const Graph& graph, const std::string& layer) {
  return graph.nodes[nodes_with_features(graph, layer).back()];
}

/// Finds the probabilities of classes or tags of which the maps are.
Classifier cam_classifier(const Graph& graph, const std::vector<MatrixInfo>& matrices,
                          const std::string& softmax) {
  if (!softmax.empty() || !logreg_costs(graph).empty()) return find_classifier_of(graph, matrices, softmax);
  const std::vector<Compared> tags = compared_tags(graph, matrices);
  if (tags.empty()) throw InputError("Grad-CAM is of a class or a tag, and the net has no cost of either");
  constexpr std::size_t kNoLabels = 0;  // none are read
  return {tags[0].cost, tags[0].outputs, kNoLabels, std::ssize(tags[0].names), tags[0].names};
}

/// Returns the last layer, by its section, with maps of more than one pixel from which `score` is computed.
std::string last_maps(const Graph& graph, NodeId score) {
  std::string last;
  for (const NodeId id : graph.needed_for({score})) {
    const Node& node = graph.nodes[id];
    const FeatureShape& shape = node.layer->output;
    if (id != score && node.role != LayerRole::data && shape.image && shape.h * shape.w > 1)
      last = node.section;
  }
  if (last.empty())
    throw InputError("the net has no layer with maps of more than one pixel, so there is no Grad-CAM");
  return last;
}

/// The part of a net above a layer.
struct UpperPart {
  IniFile definition, parameters;
  std::vector<std::string>
      boundary;  ///< sections that became matrices of the data set; the first is the layer
};

/// Cuts a net above `layer`, as far as its costs need it. What the rest reads besides becomes data, too.
UpperPart upper_part(const Graph& graph, const NetFiles& files, const Node& layer, std::size_t matrices) {
  std::set<std::string> above;  // sections
  std::set<NodeId> reached = {layer.id};
  for (const Node& node : graph.nodes) {
    const bool reads =
        std::any_of(node.inputs.begin(), node.inputs.end(), [&](NodeId id) { return reached.contains(id); });
    if (!reads || node.section == layer.section) continue;
    reached.insert(node.id);
    above.insert(node.section);
  }
  UpperPart part{files.definition, files.parameters, {layer.section}};
  std::set<std::string> kept;  // data layers that are not images
  for (const Node& node : graph.nodes) {
    if (!above.contains(node.section)) continue;
    for (const NodeId id : node.inputs) {
      const Node& input = graph.nodes[id];
      if (above.contains(input.section) || input.section == layer.section) continue;
      if (input.layer->facts.data && input.layer->facts.data->matrix > 0)
        kept.insert(input.section);
      else if (std::find(part.boundary.begin(), part.boundary.end(), input.section) == part.boundary.end())
        part.boundary.push_back(input.section);
    }
  }
  std::vector<IniSection> sections;
  for (const IniSection& section : files.definition.sections) {
    const auto cut = std::find(part.boundary.begin(), part.boundary.end(), section.name);
    if (cut != part.boundary.end()) {
      const auto index = matrices + static_cast<std::size_t>(cut - part.boundary.begin());
      IniSection data{section.name, section.where, {}};
      data.values.push_back({"type", "type", "data", section.where});
      data.values.push_back({"dataidx", "dataIdx", std::to_string(index), section.where});
      sections.push_back(std::move(data));
    } else if (above.contains(section.name) || kept.contains(section.name)) {
      sections.push_back(section);
    }
  }
  part.definition.sections = std::move(sections);
  std::erase_if(part.parameters.sections,
                [&](const IniSection& section) { return !above.contains(section.name); });
  return part;
}

double root_mean_square(const std::vector<float>& values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * v;
  return std::sqrt(sum / static_cast<double>(std::max<std::size_t>(1, values.size())));
}

std::vector<const std::byte*> pointers_to(const std::vector<std::vector<std::byte>>& matrices) {
  std::vector<const std::byte*> pointers;
  for (const auto& matrix : matrices) pointers.push_back(matrix.data());
  return pointers;
}

}  // namespace

CamNet::CamNet(const Checkpoint& checkpoint, const Graph& graph, const Provider& provider,
               const DeviceOptions& devices, const StepOptions& step, const PixelStatistics& statistics,
               const std::string& layer, const std::string& softmax)
    : step_(step), devices_(devices), matrices_(provider.matrices()) {
  // Differences of scores need their last digits.
  devices_.precision = Precision::fp32;
  step_.mini = static_cast<int>(kRows);
  classifier_ = cam_classifier(graph, provider.matrices(), softmax);
  const Node& probabilities = node_called(graph, classifier_.softmax);
  const NodeId score = probabilities.inputs.at(0);
  logits_ = graph.nodes[score].layer_name;
  layer_ = layer.empty() ? last_maps(graph, score) : layer;
  const Node& maps = node_called(graph, layer_);
  layer_ = maps.section;
  shape_ = whole_output(maps).shape;
  if (!shape_.image)
    throw InputError(
        fmt::format("layer '{}' has no maps but a vector; Grad-CAM is of a layer with maps, like '{}'",
                    layer_, last_maps(graph, score)));
  if (maps.role == LayerRole::data || !graph.needed_for({score}).contains(maps.id) || maps.id == score)
    throw InputError(fmt::format("layer '{}' is not between the images and the scores of '{}'", layer_,
                                 classifier_.softmax));
  Diagnostics diagnostics;
  const NetFiles files = stored_files(checkpoint, diagnostics);
  const UpperPart part = upper_part(graph, files, maps, matrices_.size());
  boundary_ = part.boundary;
  Graph readable = graph;
  std::vector<std::string> read = boundary_;
  read.push_back(classifier_.softmax);
  for (const std::string& name : read) keep_output(readable, name);
  whole_ = std::make_unique<Net>(std::move(readable), provider, devices_, step_, statistics.mean, false);
  whole_->prepare(Phase::test, 1);
  whole_->load(checkpoint.tensors, checkpoint.file);
  reader_ = std::make_unique<OutputReader>(*whole_, read);

  for (std::size_t i = 0; i < boundary_.size(); ++i) {
    const FeatureShape& shape = reader_->shape(i);
    MatrixInfo info;
    info.name = boundary_[i];
    info.dims = shape.image ? Dims{shape.c, shape.h, shape.w} : Dims{shape.c};
    info.type = DataType::f32;
    matrices_.push_back(info);
  }
  upper_provider_ = make_dummy_provider(matrices_, false, 1);
  Graph upper = build_graph(part.definition, part.parameters, matrices_,
                            graph_options(NetFileOptions(), devices_, step_), diagnostics);
  if (diagnostics.has_errors()) {
    std::string why;
    try {
      diagnostics.throw_if_errors();
    } catch (const InputError& e) {
      why = e.what();
    }
    throw InputError(
        fmt::format("what is above layer '{}' cannot run by itself, so another layer must do for "
                    "Grad-CAM:\n{}",
                    layer_, why));
  }
  keep_output(upper, logits_);
  upper_ =
      std::make_unique<Net>(std::move(upper), *upper_provider_, devices_, step_, std::vector<float>(), false);
  upper_->prepare(Phase::test, std::min<std::int64_t>(kRows, 2 * shape_.c));
  upper_->load(checkpoint.tensors, checkpoint.file);
  upper_reader_ = std::make_unique<OutputReader>(*upper_, std::vector<std::string>{logits_});
}

std::string CamNet::maps_text() const {
  return fmt::format("{} map{} of {}x{}", shape_.c, shape_.c == 1 ? "" : "s", shape_.h, shape_.w);
}

std::vector<double> CamNet::scores(const std::vector<std::vector<float>>& inputs, std::int64_t images,
                                   std::size_t cls) {
  const std::size_t own = matrices_.size() - inputs.size();
  std::vector<std::vector<std::byte>> matrices;
  for (std::size_t m = 0; m < matrices_.size(); ++m) {
    matrices.emplace_back(static_cast<std::size_t>(images * matrices_[m].image_bytes()));
    if (m >= own) std::memcpy(matrices[m].data(), inputs[m - own].data(), matrices[m].size());
  }
  const Plan& plan = upper_->prepare(Phase::test, images);
  StepInputs step;
  step.matrices = pointers_to(matrices);
  step.rates = upper_->rates(0);
  upper_->run(plan, step, nullptr, upper_reader_->reading(plan));
  std::vector<double> found;
  const auto classes = static_cast<std::size_t>(upper_reader_->shape(0).size());
  for (std::size_t n = 0; n < static_cast<std::size_t>(images); ++n) {
    const double score = upper_reader_->values(0).at(n * classes + cls);
    if (!std::isfinite(score)) throw RunError("a score is not finite (NaN or infinity)");
    found.push_back(score);
  }
  return found;
}

CamMap CamNet::map_of(const std::vector<const std::byte*>& matrices, std::int64_t cls) {
  const Plan& plan = whole_->prepare(Phase::test, 1);
  StepInputs step;
  step.matrices = matrices;
  step.rates = whole_->rates(0);
  whole_->run(plan, step, nullptr, reader_->reading(plan));
  const std::vector<float>& probabilities = reader_->values(boundary_.size());
  CamMap map;
  map.cls = static_cast<std::size_t>(cls < 0 ? best_output(probabilities) : cls);
  map.probability = probabilities.at(map.cls);
  map.height = static_cast<int>(shape_.h);
  map.width = static_cast<int>(shape_.w);
  const std::vector<float> output = reader_->values(0);
  const std::size_t pixels = static_cast<std::size_t>(shape_.h * shape_.w),
                    count = static_cast<std::size_t>(shape_.c);
  map.values.assign(pixels, 0.0F);
  const auto change = static_cast<float>(kStep * root_mean_square(output));
  if (!std::isfinite(change))
    throw RunError("an output of layer '" + layer_ + "' is not finite (NaN or infinity)");
  if (change == 0) return map;
  std::vector<double> differences;  // of each map
  const std::size_t at_once = static_cast<std::size_t>(kRows) / 2;
  for (std::size_t first = 0; first < count; first += at_once) {
    const std::size_t maps = std::min(at_once, count - first);
    std::vector<std::vector<float>> inputs(boundary_.size());
    for (std::size_t b = 0; b < boundary_.size(); ++b) {
      for (std::size_t row = 0; row < 2 * maps; ++row)
        inputs[b].insert(inputs[b].end(), reader_->values(b).begin(), reader_->values(b).end());
    }
    for (std::size_t row = 0; row < 2 * maps; ++row) {
      float* const changed = inputs[0].data() + row * output.size() + (first + row / 2) * pixels;
      for (std::size_t p = 0; p < pixels; ++p) changed[p] += row % 2 == 0 ? change : -change;
    }
    const std::vector<double> found = scores(inputs, static_cast<std::int64_t>(2 * maps), map.cls);
    for (std::size_t i = 0; i < maps; ++i) differences.push_back(found[2 * i] - found[2 * i + 1]);
  }
  std::vector<double> sums(pixels, 0);
  for (std::size_t k = 0; k < count; ++k) {
    for (std::size_t p = 0; p < pixels; ++p) sums[p] += differences[k] * output[k * pixels + p];
  }
  // Only the ratios count, so the step and the number of pixels need no division.
  const double most = *std::max_element(sums.begin(), sums.end());
  for (std::size_t p = 0; most > 0 && p < pixels; ++p)
    map.values[p] = static_cast<float>(std::max(0.0, sums[p] / most));
  return map;
}

std::int64_t class_of(const Classifier& classifier, const std::string& text) {
  const auto& names = classifier.class_names;
  const auto found = std::find(names.begin(), names.end(), text);
  if (found != names.end()) return found - names.begin();
  const auto number = to_number<std::int64_t>(text);
  if (number && *number >= 0 && *number < classifier.outputs) return *number;
  throw InputError(
      "there is no class " + excerpt(text) +
      did_you_mean(text, names, fmt::format("there are {}, numbered from 0", classifier.outputs)));
}

Picture draw_cam(const Picture& picture, const CamMap& map) {
  const int longer = std::max(picture.width(), picture.height());
  Picture drawn = picture.enlarged(std::max(1, (kLeastSide + longer - 1) / longer));
  // Bilinear, with pixels as squares.
  const auto value_at = [&](double x, double y) {
    const auto clamped = [](int i, int size) { return std::clamp(i, 0, size - 1); };
    const int left = static_cast<int>(std::floor(x)), top = static_cast<int>(std::floor(y));
    double sum = 0;
    for (int dy = 0; dy < 2; ++dy) {
      for (int dx = 0; dx < 2; ++dx) {
        const double share = (dx == 0 ? left + 1 - x : x - left) * (dy == 0 ? top + 1 - y : y - top);
        const int at = clamped(top + dy, map.height) * map.width + clamped(left + dx, map.width);
        sum += share * map.values[static_cast<std::size_t>(at)];
      }
    }
    return sum;
  };
  constexpr double kMostCoverage = 0.75;
  for (int y = 0; y < drawn.height(); ++y) {
    for (int x = 0; x < drawn.width(); ++x) {
      const double value = std::clamp(value_at((x + 0.5) * map.width / drawn.width() - 0.5,
                                               (y + 0.5) * map.height / drawn.height() - 0.5),
                                      0.0, 1.0);
      const auto green = static_cast<std::uint8_t>(std::lround(230 * std::max(0.0, 2 * value - 1)));
      drawn.blend(x, y, {230, green, 0}, kMostCoverage * value);
    }
  }
  return drawn;
}

CamPictures cam_pictures(const Run& run, const std::string& softmax, const ImagePredictions& predictions,
                         const std::vector<std::size_t>& chosen, const std::vector<Picture>& pictures) {
  const PixelStatistics statistics = saved_statistics(run.checkpoint, run.options.data, *run.provider);
  CamNet cam(run.checkpoint, run.graph, *run.provider, run.options.devices, run.options.step, statistics, "",
             softmax);
  CamPictures drawn{fmt::format("{} of '{}'", cam.maps_text(), cam.layer()), {}};
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const ImagePredictions::Image& image = predictions.images[chosen[i]];
    const DataBatch data = run.provider->read({image.batch, 0, image.place, 1}, statistics);
    drawn.pictures.push_back(draw_cam(pictures[i], cam.map_of(pointers_to(data.matrices), -1)));
  }
  return drawn;
}

}  // namespace convnet
