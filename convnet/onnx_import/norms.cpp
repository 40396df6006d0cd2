// Batch normalisation and response normalisation.
#include <fmt/format.h>

#include "convnet/onnx_import/operators.h"

namespace convnet {
namespace {

std::string number_text(double number) { return fmt::format("{}", static_cast<float>(number)); }

std::vector<SourceValue> import_batch_norm(OperatorCall& call) {
  const Activation& a = call.activation(0);
  if (call.integer("training_mode", 0) != 0)
    throw CannotImport("it is in training mode; export the model in evaluation mode");
  if (call.integer("spatial", 1) == 0) throw CannotImport("it has statistics for each pixel");
  FeatureShape in = call.net.shape(a.layer);
  SketchId below = a.layer;
  Activation result = a;
  const bool vector = a.axes.size() == 1;
  if (vector) {
    if (!a.in_order()) throw CannotImport("its input is a vector in another order");
    in = {a.size(), 1, 1, false};
    // A layer would normalise maps, not numbers.
    if (call.net.shape(below).h * call.net.shape(below).w > 1)
      throw CannotImport("it normalises each element of maps for itself");
  } else {
    below = as_maps(call, a, in);
    result = stored_activation(below, in, a.images);
  }
  SketchLayer layer{"bnorm", {below}, in, {}, {}, {}, {}};
  layer.keys = {{"channels", std::to_string(in.c)}};
  if (const double epsilon = call.real("epsilon", 1e-5); number_text(epsilon) != "1e-05")
    layer.keys.emplace_back("epsilon", number_text(epsilon));
  if (const double factor = 1 - call.real("momentum", 0.9);
      number_text(factor) != "0.1" && factor > 1e-6 && factor <= 1)
    layer.keys.emplace_back("averageFactor", fmt::format("{:.4g}", factor));
  const char* names[] = {"scale", "shift", "runningMean", "runningVar"};
  for (std::size_t i = 0; i < 4; ++i) {
    const Constant& c = call.constant(i + 1);
    if (!c.is_float() || c.count() != in.c)
      throw CannotImport(fmt::format("its input {} has not a number for each of {} maps", i + 2, in.c));
    layer.matrices[names[i]] = as_matrix(call.constant_pointer(i + 1), {in.c});
  }
  result.layer = call.net.add(std::move(layer));
  return {result};
}

std::vector<SourceValue> import_lrn(OperatorCall& call) {
  FeatureShape in;
  const SketchId below = as_maps(call, call.activation(0), in);
  const std::int64_t size = call.integer("size", 0);
  if (size < 1 || size > 1 << 20 || size % 2 == 0)
    throw CannotImport(fmt::format("its size is {}; the windows of a layer are odd here", size));
  SketchLayer layer{"cmrnorm", {below}, in, {}, {}, {}, {}};
  layer.keys = {{"channels", std::to_string(in.c)}, {"size", std::to_string(size)}};
  layer.parameters = {{"scale", number_text(call.real("alpha", 1e-4))},
                      {"pow", number_text(call.real("beta", 0.75))}};
  if (const double bias = call.real("bias", 1); bias != 1)
    layer.parameters.emplace_back("minDiv", number_text(bias));
  return {stored_activation(call.net.add(std::move(layer)), in, call.activation(0).images)};
}

}  // namespace

const std::vector<KnownOperator>& norm_operators() {
  static const std::vector<KnownOperator> all = {{"BatchNormalization", import_batch_norm},
                                                 {"LRN", import_lrn}};
  return all;
}

}  // namespace convnet
