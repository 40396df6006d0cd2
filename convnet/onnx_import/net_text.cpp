#include "convnet/onnx_import/net_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "convnet/base/names.h"
#include "convnet/onnx_import/layer_names.h"
#include "convnet/onnx_import/simplify.h"

namespace convnet {
namespace {

/// Writes the sections of the layers that the output needs.
class NetWriter {
 public:
  NetWriter(const NetSketch& net, SketchId input, SketchId last, NetText& text)
      : net_(net),
        input_(input),
        last_(last),
        text_(text),
        users_(count_users(net, last)),
        names_({"data", "labels", "targets", "numbers", "difference", "squares", "probs", "logprob",
                "default", "DEFAULT"}),
        reader_(net.size(), net.size()),
        section_(net.size()) {
    for (SketchId id = 0; id <= last; ++id)
      if (users_[id] > 0)
        for (const SketchId read : net[id].inputs) reader_[read] = id;
  }

  void write() {
    for (SketchId id = 0; id <= last_; ++id)
      if (users_[id] > 0 && id != input_) write_layer(id);
  }

  /// Returns the section that has the output of a layer.
  const std::string& section(SketchId id) const { return section_[id]; }

 private:
  /// Returns the element-wise function that only reads this layer, and becomes its key neuron=; the layer
  /// itself if there is none.
  SketchId with_neuron(SketchId id) const {
    const SketchId above = reader_[id];
    const bool fits = users_[id] == 1 && above <= last_ && net_[id].type != "neuron";
    return fits && net_[above].type == "neuron" ? above : id;
  }

  void write_layer(SketchId id) {
    if (!section_[id].empty()) return;  // it is a key of the layer below
    const SketchLayer& layer = net_[id];
    const bool is_probs = id == last_ && layer.type == "softmax";
    std::string wanted = layer_name(layer.type, layer.names);
    if (!layer.suffix.empty()) wanted += (wanted.empty() ? "" : ".") + layer.suffix;
    const std::string name = is_probs ? "probs" : names_.take(wanted, layer.type);
    section_[id] = name;
    if (!layer.comment.empty()) definition("\n# " + layer.comment);
    definition(fmt::format("{}[{}]", layer.comment.empty() ? "\n" : "", name));
    definition("type=" + layer.type);
    std::vector<std::string> inputs;
    for (const SketchId input : layer.inputs) inputs.push_back(input == input_ ? "data" : section_[input]);
    definition("inputs=" + join(inputs, ","));
    for (const auto& [key, value] : layer.keys) definition(key + "=" + value);
    if (layer.type == "neuron") definition("neuron=" + layer.neuron.text());
    if (std::ranges::any_of(layer.coeffs, [](double c) { return c != 1; })) {
      std::vector<std::string> coeffs;
      for (const double c : layer.coeffs) coeffs.push_back(fmt::format("{}", static_cast<float>(c)));
      definition("coeffs=" + join(coeffs, ","));
    }
    const bool weighted = layer.type == "conv" || layer.type == "fc";
    if (weighted && !layer.matrices.contains("biases")) definition("biases=0");
    const SketchId top = with_neuron(id);
    if (top != id) {
      definition("neuron=" + net_[top].neuron.text());
      section_[top] = name;
    }
    if (!layer.parameters.empty()) {
      text_.parameters += "\n[" + name + "]\n";
      for (const auto& [key, value] : layer.parameters) text_.parameters += key + "=" + value + "\n";
    }
    if (!layer.matrices.empty()) text_.matrices[name] = layer.matrices;
  }

  void definition(const std::string& line) { text_.definition += line + "\n"; }

  const NetSketch& net_;
  const SketchId input_, last_;
  NetText& text_;
  const std::vector<int> users_;
  TakenNames names_;
  std::vector<SketchId> reader_;      ///< by layer: one that reads it
  std::vector<std::string> section_;  ///< by layer
};

/// Returns the layer whose outputs a net's cost reads, and which cost it is.
SketchId find_answer_layer(const NetSketch& net, SketchId output, bool predicts_numbers, NetText& text) {
  const SketchLayer* layer = &net[output];
  SketchId id = output;
  if (layer->type == "neuron" && layer->neuron.name == "log" && net[layer->inputs[0]].type == "softmax") {
    id = layer->inputs[0];  // LogSoftmax
    layer = &net[id];
    text.drops_logarithm = true;
  }
  text.outputs = layer->shape.size();
  if (predicts_numbers && layer->type != "softmax") text.labels = LabelKind::numbers;
  if (layer->type == "neuron" && layer->neuron.name == "logistic") text.labels = LabelKind::tags;
  text.adds_softmax = layer->type != "softmax" && text.labels == LabelKind::classes;
  return id;
}

/// Returns the section of what the data set tells of an image: its class, tags or numbers.
const char* data_section(LabelKind labels) {
  switch (labels) {
    case LabelKind::tags: return "[targets]\ntype=data\ndataIdx=2\n";
    case LabelKind::numbers: return "[numbers]\ntype=data\ndataIdx=1\n";
    default: return "[labels]\ntype=data\ndataIdx=1\n";
  }
}

/// Returns the sections that compare the outputs of layer `answer` with that.
std::string cost_sections(LabelKind labels, const std::string& answer) {
  switch (labels) {
    case LabelKind::tags: return "\n[logprob]\ntype=cost.bce\ninputs=targets," + answer + "\n";
    case LabelKind::numbers:
      return "\n[difference]\ntype=eltsum\ninputs=" + answer +
             ",numbers\ncoeffs=1,-1\n\n[squares]\ntype=cost.sum2\ninputs=difference\n";
    default: return "\n[logprob]\ntype=cost.logreg\ninputs=labels,probs\n";
  }
}

}  // namespace

NetText net_text(const TranslatedNet& translated, const std::string& head, bool predicts_numbers) {
  NetText text;
  const NetSketch& net = translated.net;
  const SketchId last = find_answer_layer(net, translated.output, predicts_numbers, text);
  const std::string comment = "# " + head + "\n\n";
  text.definition = comment + "[DEFAULT]\n# Weights that an import does not give begin so.\ninitW=he\n\n" +
                    "[data]\ntype=data\ndataIdx=0\n\n" + data_section(text.labels);
  text.parameters =
      comment +
      "[DEFAULT]\nepsW=cosine[base=0.001]\nepsB=cosine[base=0.001]\nmomW=0.9\nmomB=0.9\nwc=0.0001\n";
  NetWriter writer(net, translated.input, last, text);
  writer.write();
  if (text.adds_softmax) text.definition += "\n[probs]\ntype=softmax\ninputs=" + writer.section(last) + "\n";
  text.definition += cost_sections(text.labels, writer.section(last));
  text.parameters += text.labels == LabelKind::numbers ? "\n[squares]\ncoeff=1\n" : "\n[logprob]\ncoeff=1\n";
  constexpr std::int64_t kTop = 5;
  if (text.labels == LabelKind::classes && text.outputs > kTop) text.parameters += "topk=5\n";
  return text;
}

}  // namespace convnet
