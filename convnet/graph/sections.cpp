#include "convnet/graph/sections.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>

#include "convnet/base/printable.h"
#include "convnet/config/text.h"
#include "convnet/graph/devices.h"
#include "convnet/graph/settings.h"

namespace convnet {
namespace {

FeatureShape shape_of(const MatrixInfo& m) {
  if (m.dims.size() == 3) return {m.dims[0], m.dims[1], m.dims[2], true};
  return {element_count(m.dims), 1, 1, false};
}

/// Returns the name of the option that gives `user` weights of its own, if --conv-to-local may have changed
/// one of the two layers: if they have filters. Else "".
std::string unshare_hint(const Node& source, const Node& user) {
  const auto filters = [](const Node& n) {
    return !n.layer->weights.empty() && n.layer->weights[0].is_filters();
  };
  if (!filters(source) || !filters(user)) return "";
  return "; --unshare-weights " + user.name + " gives '" + user.name + "' weights of its own";
}

/// Builds node by node in the order of the file.
class SectionReader {
 public:
  SectionReader(const IniFile& definition, const IniFile& parameters, const std::vector<MatrixInfo>& matrices,
                const GraphOptions& options, Diagnostics& diagnostics)
      : definition_(definition),
        parameters_(parameters),
        options_(options),
        diagnostics_(diagnostics),
        devices_(graph_, options, diagnostics) {
    for (const MatrixInfo& m : matrices) {
      matrices_.push_back({m.name, shape_of(m), m.type, m.classes});
      class_names_.push_back(m.class_names);
    }
  }

  Graph read() {
    if (definition_.sections.empty() && !diagnostics_.has_errors())
      diagnostics_.error(place_in_definition(1), "holds no layers; a layer is a [section] with type=");
    check_templates();
    for (const IniSection& section : definition_.sections) add_section(section);
    report_lacking();
    for (const IniSection& section : parameters_.sections) {
      if (definition_.find(section.name) != nullptr) continue;
      const std::string message = "section [" + section.name + "] is ignored: there is no such layer" +
                                  did_you_mean_section(section.name);
      diagnostics_.warning(section.where, message);
    }
    check_users();
    check_children();
    devices_.check_count(definition_);
    check_defaults(definition_);
    check_defaults(parameters_);
    return std::move(graph_);
  }

 private:
  /// Line 0 stands for the whole file.
  SourceLocation place_in_definition(int line) const {
    return {std::make_shared<const std::string>(definition_.path), line};
  }

  std::vector<std::string> section_names() const {
    std::vector<std::string> names;
    for (const IniSection& s : definition_.sections) names.push_back(s.name);
    return names;
  }

  /// Returns the end of a message about a name that no layer has, like did_you_mean(). It is empty once there
  /// are many messages, because each comparison goes through the whole file.
  std::string did_you_mean_layer(const std::string& name) const {
    return has_many_messages() ? "" : did_you_mean(name, section_names());
  }
  bool has_many_messages() const {
    constexpr std::size_t many = 100;
    return diagnostics_.error_count() + diagnostics_.warnings().size() > many;
  }

  /// Returns the end of a message about a section that is no layer.
  std::string did_you_mean_section(const std::string& name) const {
    if (nearest(name, {kDefaultSection}) == kDefaultSection)
      return std::string("; did you mean [") + kDefaultSection + "]?";
    return did_you_mean_layer(name);
  }

  /// Refuses templates with the name of a layer type, because no layer could have that type.
  void check_templates() {
    for (const IniTemplate& t : definition_.templates) {
      if (find_layer_type(t.name) != nullptr)
        diagnostics_.error(t.where, "template '" + t.name + "' has the name of a layer type; choose another");
    }
  }

  void error(const SourceLocation& where, const std::string& layer, const std::string& message) {
    diagnostics_.error(where, "layer '" + layer + "': " + message);
  }

  /// Reports each key of [DEFAULT] that no layer type has but that looks like one, unless a value refers to
  /// it: an error with --strict, else a warning. (Other unknown keys there are names of the user's own.)
  void check_defaults(const IniFile& file) {
    if (file.defaults.values.empty()) return;
    std::vector<std::string> known;
    std::set<std::string> checked;  // keys, in lower case
    const auto add = [&](const std::string& key) {
      known.push_back(key);
      checked.insert(lower(key));
    };
    for (const ParamSpec& spec : common_params()) add(spec.key);
    for (const LayerType& type : layer_types()) {
      for (const ParamSpec& spec : type.params) {
        add(spec.key);
        for (const std::string& alias : spec.aliases) add(alias);
      }
    }
    for (const IniValue& value : file.defaults.values) {
      if (!checked.insert(value.key).second || has_many_messages()) continue;
      const std::string close = nearest(value.written, known, typing_edits(value.written));
      if (close.empty() || refers_to(file, value.key)) continue;
      const std::string message = "key " + excerpt(value.written) +
                                  " of [DEFAULT] belongs to no layer type; did you mean '" + close + "'?";
      if (options_.strict) {
        diagnostics_.error(value.where, message);
      } else {
        diagnostics_.warning(value.where, message);
      }
    }
  }

  void add_section(const IniSection& section) {
    wrong_sections_.insert(section.name);  // removed at the end, if no error returns before
    const LayerType* type = find_type(section);
    if (type == nullptr) return;
    LayerSource source;
    source.name = section.name;
    source.definition = &section;
    IniSection inherited;
    source.parameters = parameters_of(*type, section, inherited);
    source.strict = options_.strict;
    source.matrices = matrices_;
    source.diagnostics = &diagnostics_;
    Node node;
    node.name = node.layer_name = node.section = section.name;
    node.type = type->name;
    node.role = type->role;
    node.where = section.where;
    source.inputs_are_right = find_inputs(section, *type, node, source);
    const bool gpus_good = devices_.read_gpus(section, node);
    node.layer = type->create(*type, source);
    const Implicit implicit = read_implicit(section, source, *type, node.layer.get());
    if (node.layer == nullptr || !gpus_good) return;
    if (!check_size(section, *node.layer)) return;
    if (!devices_.read_parallel(section, node)) return;
    if (!find_owners(section, node) || !check_below(section, node)) return;
    if (type->role == LayerRole::weights) warn_random_sparse(section);
    wrong_sections_.erase(section.name);
    const NodeId id = add_node(std::move(node));
    add_implicit(section, implicit, id);
  }

  /// Returns the layer's section in the parameter file. Without one, a layer that needs learning parameters
  /// takes all values of [DEFAULT], as if its section were empty. Other layers take only those keys that
  /// belong to their type and to the parameter file alone: a pool takes no dropout. Returns null for no
  /// values.
  const IniSection* parameters_of(const LayerType& type, const IniSection& section, IniSection& inherited) {
    const IniSection* found = parameters_.find_or_default(section.name);
    if (parameters_.find(section.name) != nullptr) return found;
    const std::vector<ParamSpec> specs = params_of(type, section);
    if (!missing_keys(specs, nullptr).empty()) {
      if (std::vector<std::string> missing = missing_keys(specs, found); !missing.empty())
        lacking_[std::move(missing)].push_back(&section);
      return found;
    }
    if (found == nullptr) return nullptr;
    inherited = *found;
    std::erase_if(inherited.values, [&](const IniValue& value) {
      return std::none_of(specs.begin(), specs.end(), [&](const ParamSpec& spec) {
        return spec.file == CfgFile::parameters && has_name(spec, value.key);
      });
    });
    return &inherited;
  }

  /// Reports layers that have neither a section in the parameter file nor all of their learning parameters in
  /// [DEFAULT], those that lack the same keys together.
  void report_lacking() {
    constexpr std::size_t kMostNames = 8;
    for (const auto& [keys, layers] : lacking_) {
      const IniSection& first = *layers.front();
      const std::string wanted = join(keys) + ", there or in [DEFAULT]";
      if (layers.size() == 1) {
        diagnostics_.error(first.where, "layer '" + first.name + "' has no section [" + first.name +
                                            "] in the parameter file; it needs " + wanted);
        continue;
      }
      std::vector<std::string> names;
      for (const IniSection* layer : layers) names.push_back(layer->name);
      const std::size_t more = names.size() - std::min(names.size(), kMostNames);
      names.resize(names.size() - more);
      diagnostics_.error(first.where, std::to_string(layers.size()) +
                                          " layers have no sections in the parameter file, and need " +
                                          wanted + ": " + join(names) +
                                          (more > 0 ? " and " + std::to_string(more) + " more" : ""));
    }
  }

  /// Refuses sizes that no machine holds, and that libraries, which count in 32 bits, would misread.
  bool check_size(const IniSection& section, const Layer& layer) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    const auto too_large = [&](const std::string& what) {
      error(section.where, section.name, what + ", which is more than " + std::to_string(kMost) + " numbers");
      return false;
    };
    if (layer.output.size() > kMost) return too_large("its output is " + layer.output.str() + " an image");
    for (const WeightSpec& w : layer.weights) {
      if (element_count(w.dims) > kMost)
        return too_large("its matrix '" + w.name + "' is " + to_string(w.dims));
    }
    return true;
  }

  /// Finds the layers that own the matrices, following the entries of weightSource.
  bool find_owners(const IniSection& section, Node& node) {
    const NodeId self = graph_.nodes.next_id();
    const IniValue* value = section.find("weightSource");
    for (std::size_t i = 0; i < node.layer->weights.size(); ++i) {
      const WeightSpec& spec = node.layer->weights[i];
      node.owners.push_back({self, i});
      if (spec.source_layer.empty()) continue;
      const auto wrong = [&](const std::string& message) {
        error(
            value == nullptr ? section.where : value->where, section.name,
            "weightSource '" + spec.source_layer + "[" + std::to_string(spec.source_index) + "]' " + message);
        return false;
      };
      const auto index = static_cast<std::size_t>(spec.source_index);
      const bool own = spec.source_layer == section.name;
      const auto found = own_name_.find(spec.source_layer);
      if (!own && found == own_name_.end()) {
        if (wrong_sections_.contains(spec.source_layer)) return false;  // reported already
        if (definition_.find(spec.source_layer) != nullptr)
          return wrong("is defined below it; the layer that owns the weights must be above");
        return wrong("is no layer above this one" + did_you_mean_layer(spec.source_layer));
      }
      const Node& source = own ? node : graph_.nodes[found->second];
      if (own && index >= i) return wrong("must name an earlier input of the layer");
      if (source.type != node.type)
        return wrong("is a layer of type '" + source.type + "'; weights are shared between equal types" +
                     unshare_hint(source, node));
      const std::size_t matrices = source.layer->input_weights();
      if (index >= matrices)
        return wrong("does not exist: '" + source.name + "' has " + std::to_string(matrices) +
                     (matrices == 1 ? " weight matrix" : " weight matrices"));
      if (source.layer->weights[index].dims != spec.dims)
        return wrong("is " + to_string(source.layer->weights[index].dims) + ", but this layer needs " +
                     to_string(spec.dims));
      if (source.gpus != node.gpus || source.division.gpus != node.division.gpus)
        return wrong("is on other devices; gpu= and parallel= must be the same");
      node.owners.back() = source.owners[index];
    }
    return true;
  }

  /// Refuses layers without a gradient above layers with weights.
  bool check_below(const IniSection& section, Node& node) {
    for (const NodeId input : node.inputs) {
      const Node& below = graph_.nodes[input];
      node.weights_below = node.weights_below || below.weights_below;
    }
    if (!node.layer->facts.differentiable && node.weights_below) {
      error(section.where, section.name,
            "a layer of type '" + node.type + "' has no gradient and cannot lie above layers with weights");
      return false;
    }
    node.weights_below = node.weights_below || !node.layer->weights.empty();
    return true;
  }

  void warn_random_sparse(const IniSection& section) {
    const IniValue* value = section.find("randSparse");
    if (value == nullptr) return;
    const std::vector<std::string> items = split_list(value->text);
    const bool sparse = std::any_of(items.begin(), items.end(), [](const std::string& item) {
      bool on = true;
      parse_value(item, ParamSpec{}, on);
      return on;
    });
    if (!sparse) return;
    diagnostics_.warning(value->where,
                         "layer '" + section.name +
                             "': randSparse=true IS NOT SUPPORTED: the layer is connected to all its "
                             "inputs, which is ANOTHER NET than the file describes");
  }

  /// Finds the nodes that children= of the costs names, once all layers are known.
  void check_children() {
    for (Node& node : graph_.nodes) {
      if (!node.is_cost()) continue;
      const IniSection* section = definition_.find(node.name);
      const CostFacts& parent = *node.layer->facts.cost;
      for (const std::string& name : parent.children) {
        const auto found = own_name_.find(name);
        const auto wrong = [&](const std::string& message) {
          error(section->find("children")->where, node.name, "child '" + name + "' " + message);
        };
        if (found == own_name_.end()) {
          if (!wrong_sections_.contains(name)) wrong("does not exist" + did_you_mean_layer(name));
          continue;
        }
        Node& child = graph_.nodes[found->second];
        if (child.type != node.type || child.id == node.id) {
          wrong("must be another cost of type '" + node.type + "'");
        } else if (child.layer->facts.cost->values != parent.values) {
          wrong("has another number of values than its parent");
        } else if (child.is_child || !child.layer->facts.cost->children.empty()) {
          wrong("is a child or a parent already");
        } else {
          child.is_child = true;
          node.children.push_back(child.id);
        }
      }
    }
  }

  const LayerType* find_type(const IniSection& section) {
    const IniValue* value = section.find("type");
    if (value == nullptr) {
      std::vector<std::string> known;
      for (const LayerType& t : layer_types()) known.push_back(t.name);
      const bool is_defaults = lower(section.name) == lower(std::string_view(kDefaultSection));
      const bool ends_template = section.name == "end" && section.values.empty();
      error(section.where, section.name,
            is_defaults     ? std::string("'type' is missing; did you mean [") + kDefaultSection + "]?"
            : ends_template ? "[end] ends a template, and there is no [template NAME(PARAMETERS)] above it"
                            : "'type' is missing; it is one of " + join(known));
      return nullptr;
    }
    if (value->is_wrong) return nullptr;
    const LayerType* type = find_layer_type(value->text);
    if (type != nullptr) return type;
    std::vector<std::string> templates;
    for (const IniTemplate& t : definition_.templates) templates.push_back(t.name);
    const std::string close = nearest(value->text, templates);
    error(value->where, section.name,
          close.empty()
              ? unknown_layer_type(value->text)
              : "unknown layer type or template " + excerpt(value->text) + "; did you mean '" + close + "'?");
    return nullptr;
  }

  /// Finds the layers that inputs= names, and fills in Node::inputs and LayerSource::inputs. Returns false
  /// if one of them is wrong, after an error if the mistake is in this section.
  bool find_inputs(const IniSection& section, const LayerType& type, Node& node, LayerSource& source) {
    const IniValue* value = section.find("inputs");
    if (type.max_inputs == 0) {
      if (value != nullptr && !value->from_default) {
        error(value->where, section.name, "a layer of type '" + type.name + "' takes no inputs");
        return false;
      }
      return true;
    }
    if (value != nullptr && value->is_wrong) return false;
    const std::vector<std::string> names =
        value == nullptr ? std::vector<std::string>{} : split_list(value->text);
    if (names.empty()) {
      error(value == nullptr ? section.where : value->where, section.name,
            "'inputs' is missing; it names the layers this one reads");
      return false;
    }
    if (std::find(names.begin(), names.end(), "") != names.end()) {
      error(value->where, section.name,
            "inputs has an empty entry, because it has a comma too many; remove the comma");
      return false;
    }
    const auto count = static_cast<int>(names.size());
    const bool too_many = count > type.max_inputs;  // they need not be looked up
    for (const std::string& name : too_many ? std::vector<std::string>() : names) {
      if (const std::string with_commas = separated(name); !with_commas.empty()) {
        error(value->where, section.name,
              "unknown input " + excerpt(name) + "; separate names by commas: " + printable(with_commas));
        return false;
      }
    }
    for (const std::string& name : names) source.inputs.emplace_back().name = name;
    if (count < type.min_inputs || too_many) {
      const std::string takes =
          type.min_inputs == type.max_inputs
              ? std::to_string(type.min_inputs)
              : std::to_string(type.min_inputs) + " to " + std::to_string(type.max_inputs);
      error(value->where, section.name,
            "a layer of type '" + type.name + "' takes " + takes +
                (type.max_inputs == 1 ? " input" : " inputs") + ", not " + std::to_string(count));
      return false;
    }
    bool good = true;
    for (std::size_t i = 0; i < names.size(); ++i)
      good = add_input(i, *value, section, node, source.inputs[i]) && good;
    // The names with a line break have swallowed an indented line; there may be any number of others.
    if (!good && std::any_of(names.begin(), names.end(),
                             [](const std::string& name) { return name.find('\n') != std::string::npos; }))
      source.inputs.clear();
    return good;
  }

  /// Returns the names of several sections that stand with blanks or semicolons between them where one name
  /// was expected, with commas between them; else "".
  std::string separated(const std::string& text) const {
    if (definition_.find(text) != nullptr) return "";
    std::vector<std::string> names;
    for (std::size_t begin = 0; (begin = text.find_first_not_of("; \t", begin)) != std::string::npos;) {
      const std::size_t end = std::min(text.find_first_of("; \t", begin), text.size());
      names.push_back(text.substr(begin, end - begin));
      if (definition_.find(names.back()) == nullptr) return "";
      begin = end;
    }
    return names.size() < 2 ? "" : join(names, ",");
  }

  /// Finds the layer of input i, whose name is filled in.
  bool add_input(std::size_t i, const IniValue& value, const IniSection& section, Node& node,
                 LayerInput& out) {
    const std::string name = out.name;
    const auto found = by_name_.find(name);
    if (found != by_name_.end()) {
      const Node& input = graph_.nodes[found->second];
      node.inputs.push_back(input.id);
      const std::int64_t classes = input.layer->label_classes();
      out = {name, input.layer->output, input.type, input.layer->facts.function, classes};
      out.flat_because = input.layer->facts.flat_because;
      if (const auto& data = input.layer->facts.data; data) out.matrix = data->matrix;
      if (classes > 0)
        out.class_names = class_names_.at(static_cast<std::size_t>(input.layer->facts.data->matrix));
      if (classes > 0 && (node.role != LayerRole::cost || i != 0)) {
        error(value.where, section.name,
              "input '" + name + "' holds class labels, which only a cost can read, as its first input");
        return false;
      }
      if (!input.is_cost()) return true;
      error(value.where, section.name, "input '" + name + "' is a cost layer, which has no output to read");
      return false;
    }
    if (wrong_sections_.contains(name) && name != section.name) return false;  // reported already
    if (name == section.name) {
      error(value.where, section.name, "reads itself");
    } else if (definition_.find(name) != nullptr) {
      error(value.where, section.name,
            "input '" + name + "' is defined below it; inputs must be defined above");
    } else if (!definition_.lacks_sections) {
      error(value.where, section.name, "unknown input " + excerpt(name) + did_you_mean_layer(name));
    }
    return false;
  }

  NodeId add_node(Node node) {
    node.id = graph_.nodes.next_id();
    for (const NodeId input : node.inputs) graph_.nodes[input].users.push_back(node.id);
    by_name_[node.name] = own_name_[node.name] = node.id;
    graph_.nodes.push_back(std::move(node));
    return graph_.nodes.back().id;
  }

  /// Holds what dropout= and neuron= of a section ask for.
  struct Implicit {
    double drop = 0;
    std::optional<Neuron> neuron;
  };

  /// Reads dropout= and neuron= of a section. `layer` is null after errors. A wrong value is reported and
  /// left out; the layer's shape is the same without it.
  Implicit read_implicit(const IniSection& section, const LayerSource& source, const LayerType& type,
                         const Layer* layer) {
    const IniValue* neuron = section.find("neuron");
    if (neuron != nullptr && (neuron->text.empty() || neuron->is_wrong)) neuron = nullptr;
    const IniValue* dropout = choose_value("dropout", section.name, section, source.parameters, diagnostics_);
    if (dropout != nullptr && dropout->is_wrong) dropout = nullptr;
    const bool no_features = type.role == LayerRole::cost || (layer != nullptr && layer->label_classes() > 0);
    if (no_features || type.role == LayerRole::data) {
      const auto ignored = [&](const IniValue* value) {
        if (value != nullptr && !value->from_default)
          diagnostics_.warning(value->where, "layer '" + section.name + "': '" + value->written +
                                                 "' has no effect on a layer of type '" + type.name + "'");
      };
      ignored(neuron);
      neuron = nullptr;
      if (no_features) {
        ignored(dropout);
        dropout = nullptr;
      }
    }
    Implicit implicit;
    if (dropout != nullptr) {
      ParamSpec rules;
      rules.min = 0;
      rules.max = 0.999;
      if (std::string wrong = parse_value(dropout->text, rules, implicit.drop); !wrong.empty())
        error(dropout->where, section.name, "dropout " + wrong);
    }
    if (neuron == nullptr || type.role == LayerRole::neuron) return implicit;
    try {
      implicit.neuron = parse_neuron(neuron->text);
    } catch (const std::invalid_argument& wrong) {
      error(neuron->where, section.name, wrong.what());
    }
    return implicit;
  }

  /// Makes layers of their own of dropout= and neuron=, between this one and its users.
  void add_implicit(const IniSection& section, const Implicit& implicit, NodeId id) {
    const FeatureShape shape = graph_.nodes[id].layer->output;
    if (implicit.drop > 0)
      id = add_above(id, section.name, "_dropout", "dropout", make_dropout_layer(implicit.drop, shape));
    if (implicit.neuron && implicit.neuron->kind != NeuronKind::ident)
      add_above(id, section.name, "_neuron", "neuron", make_neuron_layer(*implicit.neuron, shape));
  }

  /// Returns `wish`, or if a layer of the file has that name, the first of wish.1, wish.2, … that is free.
  std::string unused_name(const std::string& wish) const {
    std::string name = wish;
    for (int i = 1; own_name_.contains(name) || definition_.find(name) != nullptr; ++i)
      name = wish + "." + std::to_string(i);
    return name;
  }

  /// Adds a node that users read from now on where they name `layer`.
  NodeId add_above(NodeId below, const std::string& layer, const char* suffix, const char* type,
                   std::shared_ptr<const Layer> maths) {
    Node node;
    node.name = unused_name(layer + suffix);
    node.type = type;
    node.role = LayerRole::neuron;
    node.layer = std::move(maths);
    node.inputs = {below};
    node.layer_name = node.name;
    node.section = layer;
    node.gpus = graph_.nodes[below].gpus;
    node.division.gpus = graph_.nodes[below].division.gpus;
    node.where = node.gpu_where = graph_.nodes[below].where;
    node.implicit = true;
    node.weights_below = graph_.nodes[below].weights_below;
    const NodeId id = add_node(std::move(node));
    by_name_[layer] = id;
    return id;
  }

  /// Refuses nets without a cost, and layers whose output nobody reads. Both follow from other mistakes, too
  /// (a misspelt input or section), so they are looked for only if nothing else is wrong.
  void check_users() {
    if (diagnostics_.has_errors()) return;
    if (std::none_of(graph_.nodes.begin(), graph_.nodes.end(), [](const Node& n) { return n.is_cost(); }))
      return diagnostics_.error(place_in_definition(0),
                                "the net has no cost layer; add one, like type=cost.logreg");
    for (const Node& node : graph_.nodes) {
      if (node.users.empty() && !node.is_cost())
        error(node.where, node.section, "no layer uses its output; name it in an inputs= or remove it");
    }
  }

  const IniFile& definition_;
  const IniFile& parameters_;
  const GraphOptions& options_;
  Diagnostics& diagnostics_;
  std::vector<SourceMatrix> matrices_;
  std::vector<std::vector<std::string>> class_names_;  ///< by matrix
  Graph graph_;
  DeviceReader devices_;
  std::map<std::string, NodeId>
      by_name_;  ///< by the name that inputs= gives: a layer's topmost implicit node
  std::map<std::string, NodeId> own_name_;  ///< every node under its own name
  std::set<std::string> wrong_sections_;    ///< sections with errors
  /// Layers without a section in the parameter file, by the keys that they lack.
  std::map<std::vector<std::string>, std::vector<const IniSection*>> lacking_;
};

}  // namespace

Graph read_sections(const IniFile& definition, const IniFile& parameters,
                    const std::vector<MatrixInfo>& matrices, const GraphOptions& options,
                    Diagnostics& diagnostics) {
  return SectionReader(definition, parameters, matrices, options, diagnostics).read();
}

}  // namespace convnet
