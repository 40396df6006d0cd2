// The weights that a new run takes from a file (--init-from).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <string_view>

#include "convnet/base/checksum.h"
#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "convnet/base/file_format.h"
#include "convnet/base/notes.h"
#include "convnet/base/printable.h"
#include "convnet/net/net.h"
#include "convnet/net/net_weights.h"
#include "convnet/onnx_import/weights.h"

namespace convnet {
namespace {

/// Returns whether a tensor belongs to the training of a matrix, not to the net.
bool is_training_state(const std::string& tensor) {
  for (const std::string suffix : kTrainingSuffixes) {
    if (tensor.find(".weights" + suffix + ".") != std::string::npos) return true;
    for (const char* matrix : {".biases", ".scale", ".shift"}) {
      if (tensor.ends_with(matrix + suffix)) return true;
    }
  }
  return false;
}

/// Returns whether a tensor holds what save_statistics() puts into checkpoints.
bool is_statistic(const std::string& tensor) {
  return tensor.ends_with(".mean") || tensor.ends_with(".deviations") || tensor.ends_with(".colorPca");
}

/// Returns the dims of the images that a net reads.
Dims image_dims(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    const auto& data = node.layer->facts.data;
    if (data && data->matrix == 0)
      return Dims{node.layer->output.c, node.layer->output.h, node.layer->output.w};
  }
  return {};
}

/// Reads an ONNX model. What its own tensors do not name has the names that an import gives layers.
InitialWeights read_onnx(const std::string& file, const Graph& graph) {
  OnnxWeights weights = onnx_weights(read_source_model(file), image_dims(graph));
  InitialWeights from{file, std::move(weights.tensors), false};
  from.has_batch_norms = weights.has_batch_norms;
  for (const auto& [layer, matrices] : weights.layers) {
    for (const auto& [matrix, values] : matrices) {
      const std::string name = pytorch_name(layer, matrix, true);
      if (!name.empty() && values.values)
        from.tensors.tensors.try_emplace(name, NamedTensor{values.dims, *values.values});
    }
  }
  if (!weights.problem.empty())
    from.note = fmt::format(
        "Note: only tensors with names like 'conv1.weight' are found, because the model "
        "cannot be imported: {}",
        weights.problem.substr(0, weights.problem.find('\n')));
  return from;
}

bool is_onnx_file(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  const InputFile file(path);
  const FileFormat* format = find_binary_format(format_bytes(file));
  // A long header of a safetensors file may begin with the same bytes.
  return format != nullptr && format->kind == FileKind::importable && !path.ends_with(".safetensors");
}

InitialWeights read_weights(const std::string& file_or_folder, const Graph& graph) {
  if (is_onnx_file(file_or_folder)) return read_onnx(file_or_folder, graph);
  return read_initial_weights(file_or_folder);
}

/// Names of modules that programs put around a net: DataParallel, Lightning, torch.compile, and others.
constexpr std::array<std::string_view, 8> kWrappers = {"module.",   "model.",   "_orig_mod.", "net.",
                                                       "backbone.", "encoder.", "network.",   "ema."};
constexpr int kMostWrappers = 3;

/// Returns whether a matrix is not a layer's for a further input, which modules of PyTorch do not have.
bool is_of_first_input(const WeightBuffers& w, const WeightSpec& spec) {
  return w.index == 0 || !spec.name.starts_with("weights.");
}

/// Returns what stands before the names of most tensors that the net takes from another program's file:
/// "module." if it has "module.conv1.weight" for the layer conv1; "" if nothing does.
std::string find_prefix(const Graph& graph, const std::vector<WeightBuffers>& weights,
                        const InitialWeights& from) {
  const auto& tensors = from.tensors.tensors;
  if (from.of_convnet) return "";
  std::set<std::string> wanted, prefixes = {""};
  for (const WeightBuffers& w : weights) {
    const WeightSpec& spec = graph.weight({w.node, w.index});
    wanted.insert(pytorch_name(graph.nodes[w.node].layer_name, spec.name, is_of_first_input(w, spec)));
  }
  wanted.erase("");
  for (const auto& entry : tensors) {
    const std::string_view name = entry.first;
    std::size_t end = 0;
    for (int i = 0; i < kMostWrappers; ++i) {
      const auto* const wrapper = std::ranges::find_if(
          kWrappers, [&](std::string_view word) { return name.substr(end).starts_with(word); });
      if (wrapper == kWrappers.end()) break;
      end += wrapper->size();
      prefixes.emplace(name.substr(0, end));
    }
  }
  std::string best;
  std::ptrdiff_t most = 0;
  for (const std::string& prefix : prefixes) {
    const auto found = std::ranges::count_if(
        wanted, [&](const std::string& name) { return tensors.contains(prefix + name); });
    if (found <= most) continue;
    best = prefix;
    most = found;
  }
  return best;
}

/// Returns the names by which a matrix may be found in a file of initial weights, the best first.
std::vector<std::string> source_names(const std::string& layer, const std::string& matrix, bool first_input,
                                      bool of_convnet, const std::string& prefix) {
  // Averages, where there are any, are what the other run's tests saw.
  std::vector<std::string> names = {increment_name(layer, matrix, kAverageSuffix), layer + "." + matrix};
  const std::string of_pytorch = of_convnet ? "" : pytorch_name(layer, matrix, first_input);
  if (!of_pytorch.empty()) names.push_back(prefix + of_pytorch);
  return names;
}

/// Returns the name, without its layer, of the matrix of a layer's own for the input at place `index`; "" if
/// there is none.
std::string input_matrix(const Graph& graph, const std::string& layer, std::size_t index) {
  const Node* node = find_layer(graph, layer);
  if (node == nullptr || index >= node->layer->input_weights()) return "";
  const WeightOwner& owner = node->owners[index];
  const std::string name = graph.weight(owner).name;
  return graph.nodes[owner.node].layer_name == layer && name.starts_with("weights.") ? name : "";
}

/// A matrix of a net, and the tensor of a file that it begins with.
struct InitialMatrix {
  const WeightBuffers* weights = nullptr;
  std::string tensor;  ///< its name; "" if the matrix is newly made
  std::string text;    ///< what becomes of the matrix, for the user
};

/// Finds the tensors that the matrices of a net begin with. The names of PyTorch's have the prefix. `used`
/// gets all names that are looked for.
std::vector<InitialMatrix> match_weights(const Graph& graph, const std::vector<WeightBuffers>& weights,
                                         const InitialWeights& from, const std::string& prefix,
                                         std::set<std::string>& used) {
  const auto& tensors = from.tensors.tensors;
  const char* source = from.of_convnet ? "checkpoint" : "file";
  const Graph other = from.of_convnet ? stored_graph(from.checkpoint) : Graph{};
  std::set<std::string> here;
  for (const WeightBuffers& w : weights) here.insert(w.name);
  std::vector<InitialMatrix> matches;
  for (const WeightBuffers& w : weights) {
    InitialMatrix& match = matches.emplace_back();
    match.weights = &w;
    const WeightSpec& spec = graph.weight({w.node, w.index});
    const Dims dims = whole_matrix(graph, {w.node, w.index}).dims;
    auto found = tensors.end();
    const std::string& layer = graph.nodes[w.node].layer_name;
    const bool of_input = spec.name.starts_with("weights.");
    const auto find_matrix = [&](const std::string& matrix) {
      for (const std::string& name :
           source_names(layer, matrix, is_of_first_input(w, spec), from.of_convnet, prefix)) {
        if (found == tensors.end()) found = tensors.find(name);
        used.insert(name);
      }
    };
    find_matrix(spec.name);
    // The input may have another name in the checkpoint; its place tells which one it is.
    std::string renamed;
    if (found == tensors.end() && of_input) {
      const std::string matrix = input_matrix(other, layer, w.index);
      renamed = layer + "." + matrix;
      if (matrix.empty() || here.contains(renamed)) renamed.clear();
      if (!renamed.empty()) find_matrix(matrix);
    }
    if (found == tensors.end()) {
      match.text = fmt::format("newly made: it is not in the {}", source);
    } else if (found->second.dims != dims) {
      match.text = fmt::format("newly made: it is {} in the {}{}", to_string(found->second.dims), source,
                               renamed.empty() ? "" : ", as " + renamed);
    } else {
      match.tensor = found->first;
      const bool same_name = found->first == w.name || from.of_convnet;
      match.text = !renamed.empty() ? "copied from " + renamed
                   : same_name      ? "copied"
                                    : "copied from " + found->first;
    }
  }
  return matches;
}

/// Throws InputError if no matrix begins with a tensor of the file.
void check_any_fits(const std::vector<InitialMatrix>& matches, const InitialWeights& from) {
  if (std::ranges::any_of(matches, [](const InitialMatrix& match) { return !match.tensor.empty(); })) return;
  throw InputError(from.file + ": no matrix has the name and shape of one of this net" +
                   (from.of_convnet ? ""
                                    : "; in a file of another program, layer 'conv1' takes 'conv1.weight', "
                                      "'conv1.bias', 'conv1.running_mean' and 'conv1.running_var'"));
}

/// Counts the tensors of a file that a net does not take.
class SkippedTensors {
 public:
  void add(const std::string& name, const Dims& dims) {
    ++count_;
    if (dims.size() > 1) ++matrices_;
    for (const std::string_view mean : {".running_mean", ".runningMean"}) {
      if (!name.ends_with(mean)) continue;
      if (norms_++ == 0) first_norm_ = name.substr(0, name.size() - mean.size());
    }
  }
  int count() const { return count_; }

  /// Returns a warning if the net lacks the batch norm above a convolution that it takes; "" if not. A net
  /// that is only a part of the file's lacks convolutions and batch norms alike.
  std::string lost_norms_warning(const std::string& file) const {
    if (norms_ <= matrices_) return "";
    return fmt::format(
        "warning: this net lacks {} of the batch norms of {}, like {}, so the copied layers do not compute "
        "what they did there; give the net bnorm layers of these names, or if convnet import made the net, "
        "begin with the checkpoint that it wrote",
        norms_, file, excerpt(first_norm_));
  }

 private:
  int count_ = 0, matrices_ = 0, norms_ = 0;
  std::string first_norm_;
};

/// Returns the pixels that the weights expect.
PixelScale scale_of(const InitialWeights& from) {
  if (is_onnx_file(from.file)) return PixelScale::unknown;
  const auto scale = [](bool divided) { return divided ? PixelScale::divided : PixelScale::whole; };
  if (from.of_convnet) {
    const auto& tensors = from.tensors.tensors;
    return scale(std::any_of(tensors.begin(), tensors.end(), [](const auto& tensor) {
      return is_statistic(tensor.first) && tensor.first.ends_with(".deviations");
    }));
  }
  const auto& metadata = from.tensors.metadata;
  if (metadata.contains("input_dims")) return scale(metadata.contains("deviations"));
  return PixelScale::usual;
}

/// Warns if weights that say what pixels they expect get others.
void warn_of_other_pixels(const InitialWeights& from, bool pixel_std, const std::string& file) {
  const PixelScale scale = scale_of(from);
  if (scale == PixelScale::divided && !pixel_std)
    fmt::print(stderr,
               "warning: the weights of {} expect pixels that are divided by their standard deviation, as "
               "--pixel-std 1 does; those of this run are about fifty times as large\n",
               file);
  if (scale == PixelScale::whole && pixel_std)
    fmt::print(stderr,
               "warning: the weights of {} expect pixels that are not divided by their standard deviation; "
               "those of this run are, by --pixel-std 1\n",
               file);
}

}  // namespace

void check_initial_weights(const Graph& graph, const PlanSet& plans, const std::string& file_or_folder,
                           bool pixel_std) {
  const InitialWeights from = read_weights(file_or_folder, graph);
  const std::string prefix = find_prefix(graph, plans.weights(), from);
  std::set<std::string> used;
  const std::vector<InitialMatrix> matches = match_weights(graph, plans.weights(), from, prefix, used);
  for (const InitialMatrix& match : matches) {
    const WeightOwner owner = {match.weights->node, match.weights->index};
    if (!match.tensor.empty())
      matrix_of(from.tensors, from.file, match.tensor, whole_matrix(graph, owner).dims);
  }
  check_any_fits(matches, from);
  warn_of_other_pixels(from, pixel_std, file_or_folder);
}

PixelScale pixel_scale(const std::string& file_or_folder) {
  if (is_onnx_file(file_or_folder)) return PixelScale::unknown;
  return scale_of(read_initial_weights(file_or_folder));
}

std::uint32_t Net::init_from(const std::string& file_or_folder, bool pixel_std) {
  const InitialWeights from = read_weights(file_or_folder, graph_);
  const std::string prefix = find_prefix(graph_, plans_.weights(), from);
  std::set<std::string> used;
  const std::vector<InitialMatrix> matches = match_weights(graph_, plans_.weights(), from, prefix, used);
  std::vector<std::string> found;
  if (!from.place.empty()) found.push_back(fmt::format("'{}' in it", replace_controls(from.place, '?')));
  if (!prefix.empty()) found.push_back(fmt::format("whose names begin with '{}'", prefix));
  fmt::print("Weights from {}{}:\n", from.file, found.empty() ? "" : " (" + join(found) + ")");
  int copied = 0, made = 0;
  Crc32 sum;
  for (const InitialMatrix& match : matches) {
    const WeightBuffers& w = *match.weights;
    const WholeMatrix matrix = whole(w);
    if (!match.tensor.empty()) {
      const std::vector<float> values =
          part_of(matrix, matrix_of(from.tensors, from.file, match.tensor, matrix.dims));
      executor_.write_weights(w, values);
      executor_.write_averages(w, values);
      sum.add(w.name.data(), w.name.size());
      sum.add(values.data(), values.size() * sizeof(float));
    }
    if (!matrix.is_first()) continue;
    ++(match.tensor.empty() ? made : copied);
    fmt::print("  {:<32} {:<20} {}\n", w.name, to_string(matrix.dims), match.text);
  }
  SkippedTensors skipped;
  for (const auto& [name, tensor] : from.tensors.tensors) {
    if (used.contains(name) || is_training_state(name) || is_statistic(name)) continue;
    skipped.add(name, tensor.dims);
    fmt::print("  {:<32} {:<20} skipped: this net has no such matrix\n", replace_controls(name, '?'),
               to_string(tensor.dims));
  }
  check_any_fits(matches, from);
  fmt::print("  {} of {} matrices copied, {} newly made; {} tensors of the file skipped\n", copied,
             copied + made, made, skipped.count());
  if (made > 0 && !from.note.empty()) fmt::print("{}\n", from.note);
  const bool wants_batch_norms = std::ranges::any_of(
      plans_.weights(), [&](const WeightBuffers& w) { return spec(w).name.starts_with("runningMean"); });
  if (wants_batch_norms && !from.has_batch_norms)
    fmt::print(
        stderr,
        "warning: {} has no batch norms, which exporters join with the convolutions below, so what was "
        "copied does not fit those of this net; export it again with them (torch.onnx.export(…, "
        "dynamo=False, training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False)), or make "
        "a net of it with convnet import\n",
        from.file);
  print_notes({skipped.lost_norms_warning(from.file)});
  warn_of_other_pixels(from, pixel_std, file_or_folder);
  return sum.value();
}

}  // namespace convnet
