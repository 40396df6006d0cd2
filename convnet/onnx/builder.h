// Adds operators and constants to a model, and chooses the names of tensors.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "convnet/onnx/model.h"

namespace convnet {

class OnnxBuilder {
 public:
  /// `taken`: names that are not chosen, because layers have them. Keeps a reference to `model`.
  OnnxBuilder(OnnxModel& model, std::set<std::string> taken) : model_(model), taken_(std::move(taken)) {}

  /// Names of operators and their constants begin with `layer` from now on: "conv1/Conv".
  void begin_layer(const std::string& layer) { layer_ = layer; }
  /// Returns `name`, or if that is taken already, with ".1", ".2", … appended, and takes it.
  std::string unique(const std::string& name);
  /// Renames a tensor that an operator of this layer makes.
  void rename(const std::string& from, const std::string& to);

  /// Adds an operator. Returns the name of its output.
  std::string add(const std::string& op, std::vector<std::string> inputs,
                  std::vector<OnnxAttribute> attributes = {});
  /// Adds a constant. Returns its name.
  std::string number(float value) { return constant("number", {}, std::vector<float>{value}); }
  std::string numbers(const std::string& what, const Dims& dims, std::vector<float> values) {
    return constant(what, dims, std::move(values));
  }
  std::string integers(const std::string& what, std::vector<std::int64_t> values);

  /// Add x * factor, or nothing if the factor is 1, and x + term, or nothing if the term is 0. Return the
  /// name of the result.
  std::string scaled(const std::string& x, float factor);
  std::string shifted(const std::string& x, float term);
  /// Adds an operator that gives each image of an activation the dims `image`.
  std::string reshaped(const std::string& x, const Dims& image);
  /// The elements first, first + step, … below `end` of `axis`.
  struct Range {
    std::int64_t axis = 0, first = 0, end = 0, step = 1;
  };
  std::string sliced(const std::string& x, const std::vector<Range>& ranges);

 private:
  template <class T>
  std::string constant(const std::string& what, const Dims& dims, std::vector<T> values) {
    std::string name = unique(layer_ + "/" + what);
    model_.constants.push_back({name, dims, std::move(values)});
    return name;
  }

  OnnxModel& model_;
  std::set<std::string> taken_;
  std::string layer_;
};

}  // namespace convnet
