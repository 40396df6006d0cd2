#include "convnet/onnx_import/layer_names.h"

#include <algorithm>
#include <string_view>

#include "convnet/base/names.h"

namespace convnet {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return lower(c) >= 'a' && lower(c) <= 'z'; }

/// Returns the text with _ in place of what names do not have, without such at its ends.
std::string cleaned(std::string_view text) {
  constexpr std::size_t kMost = 100;
  std::string name;
  for (const char c : text.substr(0, kMost)) {
    const bool good = is_digit(c) || is_letter(c) || c == '.' || c == '-' || c == '_';
    if (good || (!name.empty() && name.back() != '_')) name += good ? c : '_';
  }
  const auto edge = [](char c) { return c == '.' || c == '_' || c == '-'; };
  while (!name.empty() && edge(name.back())) name.pop_back();
  while (!name.empty() && edge(name.front())) name.erase(name.begin());
  return name;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts = {""};
  for (const char c : text) {
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

/// Returns whether a name is a number, or an operator with a number, like "Conv_12".
bool is_automatic(std::string_view name) {
  while (!name.empty() && is_digit(name.back())) name.remove_suffix(1);
  if (name.empty()) return true;
  if (name.back() != '_') return false;
  name.remove_suffix(1);
  return !name.empty() && name[0] >= 'A' && name[0] <= 'Z' && std::ranges::all_of(name, is_letter);
}

/// Returns the module of weights: "conv1" for "conv1.weight" and for "conv1.weights.data"; "" for names that
/// do not tell.
std::string module_of_weights(const std::string& name) {
  if (name.find("::") != std::string::npos || name.find('/') != std::string::npos) return "";
  for (const std::string_view end : {".weight", ".scale", ".gamma"})
    if (name.ends_with(end)) return name.substr(0, name.size() - end.size());
  const std::size_t at = name.rfind(".weights.");
  return at == std::string::npos ? "" : name.substr(0, at);
}

/// Returns the module of an operator of PyTorch: "/layer1/layer1.0/conv1/Conv" is of "layer1.0.conv1". A part
/// of the name either begins with the one before it or is a name within it.
std::string module_of_scopes(const std::vector<std::string>& scopes) {
  std::vector<std::string> path;
  for (const std::string& scope : scopes) {
    if (!path.empty() && scope.starts_with(path.back() + "."))
      path.back() = scope;
    else
      path.push_back(scope);
  }
  return join(path, ".");
}

/// Returns the name of an operator of TensorFlow, whose last parts name what the layer consists of.
std::string keras_layer(std::vector<std::string> parts) {
  static const std::set<std::string> inner = {"Conv2D",    "BiasAdd",
                                              "MatMul",    "Relu",
                                              "Relu6",     "FusedBatchNormV3",
                                              "depthwise", "ReadVariableOp",
                                              "Mean",      "MaxPool",
                                              "AvgPool",   "add",
                                              "mul",       "Pad",
                                              "batchnorm", "Softmax",
                                              "transpose", "Sigmoid"};
  while (parts.size() > 1 && (inner.contains(parts.back()) || parts.back().find("__") != std::string::npos))
    parts.pop_back();
  return parts.back();
}

/// Returns the name that an operator's own name makes for a layer.
std::string from_node(const std::string& type, const std::string& name) {
  if (name.empty() || is_automatic(name)) return "";
  if (name.starts_with("/")) {
    std::vector<std::string> scopes = split(name.substr(1), '/');
    std::string op = scopes.back();
    scopes.pop_back();
    const std::string module = module_of_scopes(scopes);
    // Sums and the like are written in the code of a block, which has a name of its own.
    static const std::set<std::string> inner = {"eltsum", "eltmul",  "eltmax", "concat",
                                                "slice",  "shuffle", "neuron"};
    std::ranges::transform(op, op.begin(), [](char c) { return lower(c); });
    if (module.empty()) return op;
    return inner.contains(type) ? module + "." + op : module;
  }
  if (name.find('/') != std::string::npos) return keras_layer(split(name, '/'));
  if (name.starts_with("node_") && !is_automatic(name.substr(5))) return name.substr(5);
  return name.starts_with("node_") ? "" : name;
}

}  // namespace

std::string layer_name(const std::string& type, const std::vector<std::string>& names) {
  static const std::set<std::string> with_weights = {"conv", "fc", "bnorm"};
  std::string name;
  if (with_weights.contains(type) && !names.empty()) name = cleaned(module_of_weights(names[0]));
  if (name.empty() && names.size() > 1) name = cleaned(from_node(type, names[1]));
  if (name.empty() && names.size() > 2 && names[2].find('/') == std::string::npos &&
      !is_automatic(names[2]) && names[2].find("::") == std::string::npos)
    name = cleaned(names[2]);
  return name;
}

std::string TakenNames::take(const std::string& name, const std::string& type) {
  static const std::map<std::string, std::string> short_types = {
      {"eltsum", "add"}, {"eltmul", "mul"},   {"eltmax", "max"},   {"concat", "cat"}, {"bnorm", "bn"},
      {"slice", "maps"}, {"dropout", "drop"}, {"cmrnorm", "norm"}, {"neuron", "act"}};
  std::string stem = name;
  if (stem.empty()) {
    const auto found = short_types.find(type);
    stem = found == short_types.end() ? type : found->second;
  }
  std::string found = name.empty() ? stem + std::to_string(++numbers_[stem]) : stem;
  while (!taken_.insert(found).second)
    found = name.empty() ? stem + std::to_string(++numbers_[stem])
                         : stem + "_" + std::to_string(1 + std::max(1, ++numbers_[stem]));
  return found;
}

}  // namespace convnet
