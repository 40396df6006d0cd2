// Chooses names of layers from those that a model has.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

namespace convnet {

/// Returns a name for a layer of type `type`, made from names in the model: of its weights, of its operator,
/// of its output; any of them may be "". The name has letters, digits, dots, - and _ only. It is that of
/// PyTorch's module where the model has it: "layer1.0.conv1" for "/layer1/layer1.0/conv1/Conv" and
/// "layer1.0.conv1.weight". "" if nothing speaks for a name.
std::string layer_name(const std::string& type, const std::vector<std::string>& names);

/// Names that are taken.
class TakenNames {
 public:
  explicit TakenNames(std::set<std::string> taken) : taken_(std::move(taken)) {}
  /// Returns the name, or if it is "", the type with a number, and takes it; if it is taken already, with
  /// "_2", "_3", … appended.
  std::string take(const std::string& name, const std::string& type);

 private:
  std::set<std::string> taken_;
  std::map<std::string, int> numbers_;
};

}  // namespace convnet
