#include "convnet/onnx_import/simplify.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "convnet/base/error.h"

namespace convnet {
namespace {

using Floats = std::vector<float>;

/// A factor and a term for each map.
struct Affine {
  Floats scale, shift;
};

/// Returns what a layer does to each map if that is an affine function; else nothing.
std::optional<Affine> affine_of(const SketchLayer& layer) {
  if (layer.type == "affine")
    return Affine{*layer.matrices.at("weights").values, *layer.matrices.at("biases").values};
  if (layer.type != "neuron" || !layer.neuron.is_linear()) return std::nullopt;
  const auto maps = static_cast<std::size_t>(layer.shape.c);
  return Affine{Floats(maps, static_cast<float>(layer.neuron.a)),
                Floats(maps, static_cast<float>(layer.neuron.b))};
}

/// Returns a matrix with the rows of each output times a factor.
SketchMatrix scaled_rows(const SketchMatrix& matrix, const Floats& scale) {
  Floats values = *matrix.values;
  const std::size_t row = values.size() / scale.size();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] *= scale[i / row];
  return make_matrix(matrix.dims, std::move(values));
}

/// Returns scale * biases + shift; biases may be absent.
SketchMatrix moved(const SketchLayer& layer, const char* name, const Affine& f) {
  Floats values = f.shift;
  if (const auto found = layer.matrices.find(name); found != layer.matrices.end())
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += f.scale[i] * (*found->second.values)[i];
  const Dims dims = {std::ssize(values)};
  return make_matrix(dims, std::move(values));
}

/// Changes a layer so that it also does an affine function of its maps. Returns whether it can.
bool take_in(SketchLayer& layer, const Affine& f) {
  const bool scales = std::ranges::any_of(f.scale, [](float s) { return s != 1; });
  if (layer.type == "bnorm") {
    layer.matrices["shift"] = moved(layer, "shift", f);
    layer.matrices["scale"] = scaled_rows(layer.matrices.at("scale"), f.scale);
    return true;
  }
  if (layer.type != "conv" && layer.type != "fc" && layer.type != "affine") return false;
  const auto biases = layer.matrices.find("biases");
  if (biases != layer.matrices.end() && biases->second.dims.size() > 1) return false;
  layer.matrices["biases"] = moved(layer, "biases", f);
  if (scales) layer.matrices["weights"] = scaled_rows(layer.matrices.at("weights"), f.scale);
  return true;
}

/// Changes a convolution so that it adds a number to each element of its output. Returns whether it can.
bool take_in_shift(SketchLayer& layer, const SketchMatrix& shift) {
  if (layer.type != "conv") return false;
  Floats values = *shift.values;
  const auto found = layer.matrices.find("biases");
  if (found != layer.matrices.end()) {
    const Floats& biases = *found->second.values;
    const std::size_t each = values.size() / biases.size();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += biases[i / each];
  }
  if (found == layer.matrices.end() || found->second.dims.size() == 1)
    layer.keys.emplace_back("sharedBiases", "0");
  layer.matrices["biases"] = make_matrix(shift.dims, std::move(values));
  return true;
}

/// Adds an affine function of the images to what is done to them already. Returns whether that is possible.
bool take_in(ImagePreparation& images, const Affine& f) {
  if (std::ranges::any_of(f.scale, [](float s) { return !(s > 0); })) return false;
  const std::size_t each = images.shift.size() / f.scale.size();
  for (std::size_t i = 0; i < images.shift.size(); ++i)
    images.shift[i] = images.shift[i] * f.scale[i / each] + f.shift[i / each];
  for (std::size_t i = 0; i < images.scale.size(); ++i) images.scale[i] *= f.scale[i];
  return true;
}

void take_in_shift(ImagePreparation& images, const SketchMatrix& shift) {
  const Floats& terms = *shift.values;
  const std::size_t each = terms.size() / images.shift.size();
  Floats sum = terms;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += images.shift[i / each];
  images.shift = std::move(sum);
}

/// Takes the function of layer `id` into the layer below it, which only it reads. Returns whether it could.
bool take_into_below(NetSketch& net, SketchId id, SketchId input, ImagePreparation& images) {
  const SketchLayer above = net[id];
  const SketchId below_id = above.inputs[0];
  const std::optional<Affine> f = affine_of(above);
  if (below_id == input) {
    if (f && !take_in(images, *f)) return false;
    if (!f) take_in_shift(images, above.matrices.at("biases"));
    // The layer passes the images on; its readers read them themselves.
    net[id] = {"ident", {input}, above.shape, {}, {}, {}, {}};
    return true;
  }
  SketchLayer below = net[below_id];
  if (!(f ? take_in(below, *f) : take_in_shift(below, above.matrices.at("biases")))) return false;
  net[id] = std::move(below);
  return true;
}

/// Makes a convolution of zeros around maps that no layer with windows took in: each filter is a one, and
/// there are as many zeros around what it sees.
void make_border(SketchLayer& layer) {
  const std::string maps = std::to_string(layer.shape.c);
  const SketchLayer::Border& border = layer.border;
  layer.type = "conv";
  layer.keys = {{"channels", maps}, {"filters", "1"}, {"groups", maps}, {"filterSize", "1"}};
  for (const auto& [key, pixels] :
       {std::pair{"padding", border.left}, std::pair{"paddingY", border.top},
        std::pair{"paddingEnd", border.right}, std::pair{"paddingEndY", border.bottom}})
    if (!border.is_even() || key == std::string_view("padding"))
      layer.keys.emplace_back(key, std::to_string(pixels));
  layer.parameters = {{"epsW", "0"}};
  layer.matrices["weights"] =
      make_matrix({layer.shape.c, 1, 1, 1}, Floats(static_cast<std::size_t>(layer.shape.c), 1));
  layer.comment = "The same maps with zeros around them. It learns nothing.";
}

/// Makes a convolution of an affine function that no layer took in.
void make_conv(SketchLayer& layer) {
  const std::string maps = std::to_string(layer.shape.c);
  layer.type = "conv";
  layer.keys = {{"channels", maps}, {"filters", "1"}, {"groups", maps}, {"filterSize", "1"}};
  SketchMatrix& weights = layer.matrices.at("weights");
  weights.dims = {layer.shape.c, 1, 1, 1};
  const Floats& biases = *layer.matrices.at("biases").values;
  if (std::ranges::all_of(biases, [](float b) { return b == 0; })) layer.matrices.erase("biases");
  layer.shape.image = true;
}

/// Returns what of an operator is left that no layer does; "" if nothing is.
std::string left_over(const SketchLayer& layer) {
  if (layer.type == "pad")
    return fmt::format("its border is {}; layers put zeros around maps", layer.border.value);
  if (layer.type == "shift") return "no layer adds a number to each element of its input";
  if (layer.type == "neuron" && layer.neuron.name.starts_with("erf")) return "layers have erf in gelu only";
  return "";
}

}  // namespace

std::vector<int> count_users(const NetSketch& net, SketchId output) {
  std::vector<int> users(net.size(), 0);
  users[output] = 1;
  for (SketchId id = output + 1; id-- > 0;)
    if (users[id] > 0)
      for (const SketchId input : net[id].inputs) ++users[input];
  return users;
}

ImagePreparation simplify(TranslatedNet& translated, const std::string& file, bool prepares) {
  NetSketch& net = translated.net;
  ImagePreparation images;
  const FeatureShape data = net.shape(translated.input);
  images.scale.assign(static_cast<std::size_t>(data.c), 1);
  images.shift.assign(static_cast<std::size_t>(data.c), 0);
  const std::vector<int> users = count_users(net, translated.output);
  std::vector<std::string> problems;
  for (SketchId id = 0; id <= translated.output; ++id) {
    if (users[id] == 0) continue;
    SketchLayer& layer = net[id];
    // How often a layer is read does not change when its only reader takes its place.
    const bool only_reader = layer.inputs.size() == 1 && users[layer.inputs[0]] == 1;
    for (SketchId& input : layer.inputs)
      while (net[input].type == "ident") input = net[input].inputs[0];
    const bool takes_part = layer.type == "shift" || affine_of(layer).has_value();
    const bool is_of_images = layer.inputs.size() == 1 && layer.inputs[0] == translated.input;
    if (takes_part && only_reader && (prepares || layer.type == "shift" || !is_of_images))
      take_into_below(net, id, translated.input, images);
    if (net[id].type == "affine") continue;  // the next one may take it in
    if (net[id].type == "pad" && net[id].border.value == 0) make_border(net[id]);
    if (const std::string what = left_over(net[id]); !what.empty())
      problems.push_back(net[id].node + ": " + what);
  }
  const std::string& last = net[translated.output].type;
  if (last == "ident" || last == "data") problems.emplace_back("its outputs are the images themselves");
  if (!problems.empty()) refuse(file, problems);
  const std::vector<int> left = count_users(net, translated.output);
  for (SketchId id = 0; id <= translated.output; ++id)
    if (left[id] > 0 && net[id].type == "affine") make_conv(net[id]);
  return images;
}

}  // namespace convnet
