#include "convnet/onnx/builder.h"

#include <algorithm>
#include <utility>

namespace convnet {

std::string OnnxBuilder::unique(const std::string& name) {
  std::string found = name;
  for (int i = 1; !taken_.insert(found).second; ++i) found = name + "." + std::to_string(i);
  return found;
}

void OnnxBuilder::rename(const std::string& from, const std::string& to) {
  for (OnnxNode& node : model_.nodes) {
    std::replace(node.inputs.begin(), node.inputs.end(), from, to);
    if (node.output == from) node.output = to;
  }
}

std::string OnnxBuilder::add(const std::string& op, std::vector<std::string> inputs,
                             std::vector<OnnxAttribute> attributes) {
  std::string output = unique(layer_ + "/" + op);
  model_.nodes.push_back({op, std::move(inputs), output, std::move(attributes)});
  return output;
}

std::string OnnxBuilder::integers(const std::string& what, std::vector<std::int64_t> values) {
  const Dims dims = {std::ssize(values)};
  return constant(what, dims, std::move(values));
}

std::string OnnxBuilder::scaled(const std::string& x, float factor) {
  return factor == 1 ? x : add("Mul", {x, number(factor)});
}

std::string OnnxBuilder::shifted(const std::string& x, float term) {
  return term == 0 ? x : add("Add", {x, number(term)});
}

std::string OnnxBuilder::reshaped(const std::string& x, const Dims& image) {
  Dims shape = {-1};  // as many images as there are
  shape.insert(shape.end(), image.begin(), image.end());
  return add("Reshape", {x, integers("shape", shape)});
}

std::string OnnxBuilder::sliced(const std::string& x, const std::vector<Range>& ranges) {
  std::vector<std::int64_t> starts, ends, axes, steps;
  for (const Range& range : ranges) {
    starts.push_back(range.first);
    ends.push_back(range.end);
    axes.push_back(range.axis);
    steps.push_back(range.step);
  }
  return add("Slice", {x, integers("starts", starts), integers("ends", ends), integers("axes", axes),
                       integers("steps", steps)});
}

}  // namespace convnet
