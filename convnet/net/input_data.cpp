#include "convnet/net/input_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include "convnet/base/error.h"
#include "convnet/config/text.h"
#include "convnet/net/data_set.h"
#include "providers/dummy.h"

namespace convnet {
namespace {

/// The matrices with class labels that the net's data layers read.
std::vector<std::size_t> label_matrices(const Graph& graph) {
  std::vector<std::size_t> labels;
  for (const Node& node : graph.nodes) {
    if (node.layer->label_classes() > 0)
      labels.push_back(static_cast<std::size_t>(node.layer->facts.data->matrix));
  }
  return labels;
}

/// Throws InputError for an image without a class (-1), or one that is mixed with such an image: costs of
/// classes cannot leave out an image. `views` is the number of rows of an image, `kind` that of the data
/// set's labels.
void check_labelled(const DataBatch& data, std::size_t matrix, const LoadRequest& request, int views,
                    LabelKind kind) {
  const auto* const labels = reinterpret_cast<const std::int32_t*>(data.matrices[matrix].data());
  const std::size_t count = data.matrices[matrix].size() / sizeof(std::int32_t);
  const std::int32_t* const bare = std::find_if(labels, labels + count, [](std::int32_t l) { return l < 0; });
  if (bare == labels + count) return;
  const std::int64_t at = bare - labels, values = static_cast<std::int64_t>(count) / data.images;
  const bool tags = kind == LabelKind::tags;
  throw InputError(fmt::format(
      "batch {}: image {} (counted from 0){} has no {}, but the net reads {} (dataIdx={}); {}", request.batch,
      data.first + at / values / views, at % values > 0 ? ", or the one that it is mixed with," : "",
      tags ? "tag" : "label", tags ? "one of each image" : "labels", matrix,
      tags ? "a net for tags reads dataIdx=2, and ends in logistic outputs and cost.bce (docs/data.md, "
             "Several "
             "tags); nets that come with convnet (--layer-def resnet18; convnet nets lists them) get such an "
             "end by themselves"
           : "dataIdx=2 has a number for every class"));
}

/// A piece whose labels are checked when it is complete.
class CheckedPiece final : public PieceInProgress {
 public:
  CheckedPiece(std::unique_ptr<PieceInProgress> piece, const LoadRequest& request,
               std::vector<std::size_t> labels, int views, LabelKind kind)
      : piece_(std::move(piece)), request_(request), labels_(std::move(labels)), views_(views), kind_(kind) {}
  bool last() const override { return piece_->last(); }
  bool done() const override { return piece_->done(); }
  std::shared_ptr<const DataBatch> wait() override {
    std::shared_ptr<const DataBatch> data = piece_->wait();
    for (const std::size_t m : labels_) check_labelled(*data, m, request_, views_, kind_);
    return data;
  }

 private:
  const std::unique_ptr<PieceInProgress> piece_;
  const LoadRequest request_;
  const std::vector<std::size_t> labels_;
  const int views_;
  const LabelKind kind_;
};

}  // namespace

std::size_t pieces_ahead(const Provider& provider, std::int64_t images) {
  constexpr std::int64_t kBytes = 64 << 20, kFewestPieces = 2, kMostPieces = 4096;
  std::int64_t image = 0;
  for (const MatrixInfo& m : provider.matrices()) image += m.image_bytes();
  return static_cast<std::size_t>(
      std::clamp(kBytes / std::max<std::int64_t>(1, images * image), kFewestPieces, kMostPieces));
}

Prefetcher::Begin make_loader(const std::shared_ptr<const Provider>& provider,
                              const PixelStatistics& statistics, const Graph& graph) {
  // Copies of the function share what its pieces use.
  const auto kept = std::make_shared<const PixelStatistics>(statistics);
  return [provider, kept, labels = label_matrices(graph)](const LoadRequest& r) {
    return std::make_unique<CheckedPiece>(provider->begin(r, *kept), r, labels,
                                          r.epoch == 0 ? provider->views() : 1,
                                          label_kind(provider->matrices()));
  };
}

PixelStatistics saved_statistics(const Checkpoint& checkpoint, const DataOptions& options,
                                 const Provider& provider) {
  const Dims& image = provider.matrices()[0].dims;
  // The tensor, of `count` finite numbers, each at least `least`.
  const auto take = [&](const char* user, const char* name, std::int64_t count, float least,
                        const char* what) {
    std::string tensor = options.provider + name;
    const auto then = checkpoint.options.find("data-provider");
    if (!checkpoint.tensors.tensors.contains(tensor) && then != checkpoint.options.end())
      tensor = then->second + name;
    const auto fail = [&](const std::string& wrong) {
      return InputError(
          fmt::format("{}: {} needs the tensor '{}', {}; {}", checkpoint.file, user, tensor, what, wrong));
    };
    const auto found = checkpoint.tensors.tensors.find(tensor);
    if (found == checkpoint.tensors.tensors.end()) throw fail("it is not there");
    const std::vector<float>& values = found->second.values;
    if (static_cast<std::int64_t>(values.size()) != count)
      throw fail(fmt::format("it has {} values, not {}{}", values.size(), count,
                             std::string_view(name) == ".mean"
                                 ? ": the run's images have another size or number of channels"
                                 : ""));
    if (!std::all_of(values.begin(), values.end(), [&](float v) { return std::isfinite(v) && v >= least; }))
      throw fail(least > 0 ? "it holds others" : "it holds numbers that are not finite (NaN or infinity)");
    return values;
  };
  constexpr float kAny = std::numeric_limits<float>::lowest();
  PixelStatistics statistics;
  if (provider.has_mean())
    statistics.mean = take(("--data-provider " + options.provider).c_str(), ".mean", element_count(image),
                           kAny, "the mean image of the training range");
  if (options.pixel_std)
    statistics.deviations = take("--pixel-std", ".deviations", image[0], std::numeric_limits<float>::min(),
                                 "a positive number for each channel");
  if (options.color_noise > 0)
    statistics.color_pca = take("--color-noise", ".colorPca", 12, kAny,
                                "three standard deviations and the axes of the colours, measured when a run "
                                "with colour noise begins");
  return statistics;
}

std::shared_ptr<const Provider> stand_in_for_data(const Checkpoint& checkpoint, const DataOptions& options,
                                                  std::uint64_t seed) {
  const bool step_subtracts_mean = checkpoint.tensors.tensors.contains(options.provider + ".mean") &&
                                   !image_options(options).read_subtracts_mean();
  return make_dummy_provider(checkpoint.matrices, step_subtracts_mean, seed);
}

std::string missing_class(const std::vector<MatrixInfo>& then, const std::vector<MatrixInfo>& now) {
  for (std::size_t m = 0; m < std::min(then.size(), now.size()); ++m) {
    const std::vector<std::string>&known = then[m].class_names, &here = now[m].class_names;
    const auto lacks = [](const std::vector<std::string>& names) {
      return [&](const std::string& name) { return std::ranges::find(names, name) == names.end(); };
    };
    if (here.empty() || here.size() >= known.size() || std::ranges::any_of(here, lacks(known))) continue;
    const auto missing = std::ranges::find_if(known, lacks(here));
    if (missing == known.end()) continue;
    return fmt::format(
        "it has {} of the {} classes that the net was trained on, and not {}: in folders of classes, an "
        "empty folder of that name keeps its place",
        here.size(), known.size(), excerpt(*missing));
  }
  return "";
}

std::string renumbered_class(const std::vector<MatrixInfo>& then, const std::vector<MatrixInfo>& now) {
  for (std::size_t m = 0; m < std::min(then.size(), now.size()); ++m) {
    const std::vector<std::string>& before = then[m].class_names;
    std::map<std::string, std::size_t> numbers;
    for (std::size_t c = 0; c < before.size(); ++c) numbers.emplace(before[c], c);
    for (std::size_t c = 0; c < now[m].class_names.size(); ++c) {
      // Classes may share a name: ImageNet has two of "crane".
      if (c < before.size() && before[c] == now[m].class_names[c]) continue;
      const auto found = numbers.find(now[m].class_names[c]);
      if (found == numbers.end()) continue;
      if (std::string missing = missing_class(then, now); !missing.empty()) return missing;
      constexpr std::size_t most = 20;
      std::string names;
      for (std::size_t k = 0; k < std::min(most, before.size()); ++k)
        names += (k == 0 ? "" : ", ") + excerpt(before[k]);
      return fmt::format(
          "its class {} is {}, which was class {} where the net was trained; it needs the same classes in "
          "the same order: {}{}",
          c, excerpt(found->first), found->second, names, before.size() > most ? ", …" : "");
    }
  }
  return "";
}

std::string other_outputs(const Checkpoint& checkpoint, const std::vector<MatrixInfo>& now) {
  const std::vector<MatrixInfo>& then = checkpoint.matrices;
  if (then.size() < 2 || now.size() < 2 || then[1].classes == 0 || now[1].classes == 0 ||
      then[1].classes == now[1].classes)
    return "";
  Diagnostics ignored;
  const IniFile definition = parse_ini(checkpoint.definition_path, checkpoint.definition_text, ignored);
  for (const IniSection& section : definition.sections) {
    for (const IniValue& value : section.values) {
      if (value.text != "classes") continue;
      if (const std::string missing = missing_class(then, now); !missing.empty())
        return missing + "; --init-from starts a new net from the weights that fit";
      return fmt::format(
          "it has {} classes, but the net was trained on {}, and layer '{}' has as many outputs as there are "
          "classes; --init-from starts a new net from the weights that fit",
          now[1].classes, then[1].classes, section.name);
    }
  }
  return "";
}

std::string other_numbers(const std::vector<MatrixInfo>& then, const std::vector<MatrixInfo>& now) {
  if (then.empty() || then[0].stores_floats() == now[0].stores_floats()) return "";
  const auto kind = [](const MatrixInfo& images) {
    return images.stores_floats() ? "float32 numbers" : "bytes (uint8)";
  };
  return fmt::format("its images are {}, but the net was trained on {}; prepare it as the run's data set was",
                     kind(now[0]), kind(then[0]));
}

std::string renamed_class(const std::vector<MatrixInfo>& then, const std::vector<MatrixInfo>& now) {
  if (then.size() > 1 && now.size() > 1 && label_kind(then) != label_kind(now))
    return fmt::format(
        "warning: the data set has {}, but had {} where the net was trained: only a new run, in a folder of "
        "its own, can learn them",
        to_string(label_kind(now)), to_string(label_kind(then)));
  for (std::size_t m = 0; m < std::min(then.size(), now.size()); ++m) {
    const auto &before = then[m].class_names, &after = now[m].class_names;
    const auto [a, b] = std::mismatch(before.begin(), before.end(), after.begin(), after.end());
    if (a != before.end() && b != after.end())
      return fmt::format("warning: class {} is {} in the data set, but was {} where the net was trained",
                         a - before.begin(), excerpt(*b), excerpt(*a));
  }
  return "";
}

void check_views_exist(const DataOptions& now, const Checkpoint& checkpoint) {
  if (!now.multiview_test || data_options().parse(checkpoint.options).inner_size > 0) return;
  throw InputError(fmt::format(
      "{}: --multiview-test averages over crops of each image, but this run sees whole images: it "
      "has no --inner-size, and keeps that for all of its life; test it without --multiview-test, "
      "or train a new run with --inner-size",
      checkpoint.file));
}

void check_same_images(const DataOptions& now, const Checkpoint& checkpoint) {
  const DataOptions then = data_options().parse(checkpoint.options);
  check_views_exist(now, checkpoint);
  const auto differs = [&](const char* option, const auto& before, const auto& given) {
    if (before != given)
      throw InputError(fmt::format("{}: this run has --{} {}, for all of its life; --{} {} is for a new run",
                                   checkpoint.file, option, before, option, given));
  };
  if (then.provider == now.provider) {
    differs("grey", then.grey ? 1 : 0, now.grey ? 1 : 0);
    differs("image-size", then.image_size, now.image_size);
  }
  differs("inner-size", then.inner_size, now.inner_size);
  differs("scalar-mean", then.scalar_mean, now.scalar_mean);
  differs("pixel-std", then.pixel_std ? 1 : 0, now.pixel_std ? 1 : 0);
}

}  // namespace convnet
