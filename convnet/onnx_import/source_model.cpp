#include "convnet/onnx_import/source_model.h"

#include <fmt/format.h>

#include <filesystem>
#include <protozero/pbf_reader.hpp>
#include <set>

#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "convnet/base/file_format.h"
#include "convnet/base/names.h"
#include "convnet/base/printable.h"
#include "convnet/onnx_import/source_tensor.h"

namespace convnet {
namespace {

using protozero::pbf_reader, protozero::pbf_wire_type, protozero::tag_and_type;
constexpr std::size_t kMostNodes = 200000;
constexpr auto kBytes = pbf_wire_type::length_delimited, kVarint = pbf_wire_type::varint,
               kFixed32 = pbf_wire_type::fixed32;

// Field numbers of the messages in onnx.proto (IR version 11).
namespace model_field {
constexpr unsigned producer_name = 2, producer_version = 3, graph = 7, opset_import = 8, metadata_props = 14;
}
namespace graph_field {
constexpr unsigned node = 1, initializer = 5, input = 11, output = 12, sparse_initializer = 15;
}
namespace node_field {
constexpr unsigned input = 1, output = 2, name = 3, op_type = 4, attribute = 5, domain = 7;
}
namespace attribute_field {
constexpr unsigned name = 1, f = 2, i = 3, s = 4, t = 5, floats = 7, ints = 8, type = 20;
constexpr std::int64_t type_float = 1, type_int = 2, type_string = 3, type_tensor = 4, type_floats = 6,
                       type_ints = 7;
}  // namespace attribute_field

std::pair<std::string, SourceAttribute> read_attribute(pbf_reader message, const std::string& folder) {
  namespace field = attribute_field;
  std::string name, s;
  float f = 0;
  std::int64_t i = 0, type = 0;
  StoredTensor t;
  std::vector<float> floats;
  std::vector<std::int64_t> ints;
  while (message.next()) {
    switch (message.tag_and_type()) {
      case tag_and_type(field::name, kBytes): name = message.get_string(); break;
      case tag_and_type(field::f, kFixed32): f = message.get_float(); break;
      case tag_and_type(field::i, kVarint): i = message.get_int64(); break;
      case tag_and_type(field::s, kBytes): s = message.get_string(); break;
      case tag_and_type(field::t, kBytes): t = read_tensor(message.get_message(), folder).tensor; break;
      case tag_and_type(field::floats, kFixed32): floats.push_back(message.get_float()); break;
      case tag_and_type(field::floats, kBytes):
        for (const float value : message.get_packed_float()) floats.push_back(value);
        break;
      case tag_and_type(field::ints, kVarint): ints.push_back(message.get_int64()); break;
      case tag_and_type(field::ints, kBytes):
        for (const std::int64_t value : message.get_packed_int64()) ints.push_back(value);
        break;
      case tag_and_type(field::type, kVarint): type = message.get_int64(); break;
      default: message.skip();
    }
  }
  switch (type) {
    case field::type_float: return {name, f};
    case field::type_int: return {name, i};
    case field::type_string: return {name, s};
    case field::type_tensor: return {name, t};
    case field::type_floats: return {name, floats};
    case field::type_ints: return {name, ints};
    default: return {name, std::monostate()};
  }
}

SourceNode read_node(pbf_reader message, const std::string& folder) {
  namespace field = node_field;
  SourceNode node;
  while (message.next()) {
    switch (message.tag_and_type()) {
      case tag_and_type(field::input, kBytes): node.inputs.push_back(message.get_string()); break;
      case tag_and_type(field::output, kBytes): node.outputs.push_back(message.get_string()); break;
      case tag_and_type(field::name, kBytes): node.name = message.get_string(); break;
      case tag_and_type(field::op_type, kBytes): node.op = message.get_string(); break;
      case tag_and_type(field::domain, kBytes): node.domain = message.get_string(); break;
      case tag_and_type(field::attribute, kBytes):
        node.attributes.insert(read_attribute(message.get_message(), folder));
        break;
      default: message.skip();
    }
  }
  if (node.domain == "ai.onnx") node.domain.clear();
  return node;
}

/// Returns the only message of field `field` in a message, or an empty one.
pbf_reader inner_message(pbf_reader message, unsigned field) {
  pbf_reader found;
  while (message.next()) {
    if (message.tag_and_type() == tag_and_type(field, kBytes))
      found = message.get_message();
    else
      message.skip();
  }
  return found;
}

/// Reads a ValueInfoProto: a name, and the dims of a type of tensors.
SourceInput read_input(pbf_reader message) {
  SourceInput input;
  const pbf_reader copy = message;
  while (message.next()) {
    if (message.tag_and_type() == tag_and_type(1, kBytes))
      input.name = message.get_string();
    else
      message.skip();
  }
  // ValueInfoProto.type, TypeProto.tensor_type, TypeProto.Tensor.shape, TensorShapeProto.dim.dim_value.
  pbf_reader shape = inner_message(inner_message(inner_message(copy, 2), 1), 2);
  while (shape.next()) {
    if (shape.tag_and_type() != tag_and_type(1, kBytes)) {
      shape.skip();
      continue;
    }
    pbf_reader dim = shape.get_message();
    std::int64_t side = 0;
    while (dim.next()) {
      if (dim.tag_and_type() == tag_and_type(1, kVarint))
        side = dim.get_int64();
      else
        dim.skip();
    }
    input.dims.push_back(std::max<std::int64_t>(side, 0));
  }
  return input;
}

void read_graph(pbf_reader message, const std::string& folder, SourceModel& model) {
  namespace field = graph_field;
  while (message.next()) {
    switch (message.tag_and_type()) {
      case tag_and_type(field::node, kBytes):
        if (model.nodes.size() == kMostNodes)
          throw InputError(fmt::format("it has more than {} operators", kMostNodes));
        model.nodes.push_back(read_node(message.get_message(), folder));
        break;
      case tag_and_type(field::initializer, kBytes): {
        NamedStoredTensor read = read_tensor(message.get_message(), folder);
        if (!model.tensors.try_emplace(read.name, std::move(read.tensor)).second)
          throw InputError("two tensors are called " + excerpt(read.name));
        break;
      }
      case tag_and_type(field::sparse_initializer, kBytes):
        throw InputError("it has sparse tensors, which are not read");
      case tag_and_type(field::input, kBytes):
        model.inputs.push_back(read_input(message.get_message()));
        break;
      case tag_and_type(field::output, kBytes):
        model.outputs.push_back(read_input(message.get_message()).name);
        break;
      default: message.skip();
    }
  }
}

void read_opset(pbf_reader message, SourceModel& model) {
  std::string domain;
  std::int64_t version = 0;
  while (message.next()) {
    switch (message.tag_and_type()) {
      case tag_and_type(1, kBytes): domain = message.get_string(); break;
      case tag_and_type(2, kVarint): version = message.get_int64(); break;
      default: message.skip();
    }
  }
  if (domain.empty() || domain == "ai.onnx") model.opset = version;
}

void read_model(pbf_reader message, const std::string& folder, SourceModel& model) {
  namespace field = model_field;
  std::string version;
  while (message.next()) {
    switch (message.tag_and_type()) {
      case tag_and_type(field::producer_name, kBytes): model.producer = message.get_string(); break;
      case tag_and_type(field::producer_version, kBytes): version = message.get_string(); break;
      case tag_and_type(field::graph, kBytes): read_graph(message.get_message(), folder, model); break;
      case tag_and_type(field::opset_import, kBytes): read_opset(message.get_message(), model); break;
      case tag_and_type(field::metadata_props, kBytes):
        model.metadata.insert(read_texts(message.get_message()));
        break;
      default: message.skip();
    }
  }
  if (!version.empty()) model.producer += " " + version;
}

/// Puts nodes into an order in which they can run. Throws InputError if a tensor has two sources or none, or
/// is computed from itself.
void sort_nodes(SourceModel& model) {
  std::map<std::string, std::size_t> source;  // the node that makes a tensor
  std::set<std::string> given = {""};
  for (const auto& [name, tensor] : model.tensors) given.insert(name);
  for (const SourceInput& input : model.inputs) given.insert(input.name);
  for (std::size_t i = 0; i < model.nodes.size(); ++i) {
    for (const std::string& output : model.nodes[i].outputs) {
      if (output.empty()) continue;
      if (given.contains(output) || !source.emplace(output, i).second)
        throw InputError("tensor " + excerpt(output) + " has two sources");
    }
  }
  // Depth first, with a stack of nodes and of the next input of each.
  enum class Mark : std::uint8_t { none, open, done };
  std::vector<Mark> marks(model.nodes.size(), Mark::none);
  std::vector<std::size_t> order;
  std::vector<std::pair<std::size_t, std::size_t>> open;
  for (std::size_t first = 0; first < model.nodes.size(); ++first) {
    if (marks[first] != Mark::none) continue;
    marks[first] = Mark::open;
    open.emplace_back(first, 0);
    while (!open.empty()) {
      auto& [node, next] = open.back();
      const std::vector<std::string>& inputs = model.nodes[node].inputs;
      if (next == inputs.size()) {
        marks[node] = Mark::done;
        order.push_back(node);
        open.pop_back();
        continue;
      }
      const std::string& input = inputs[next++];
      if (given.contains(input)) continue;
      const auto found = source.find(input);
      if (found == source.end()) throw InputError("nothing makes the tensor " + excerpt(input));
      if (marks[found->second] == Mark::open)
        throw InputError("the tensor " + excerpt(input) + " is computed from itself");
      if (marks[found->second] == Mark::done) continue;
      marks[found->second] = Mark::open;
      open.emplace_back(found->second, 0);
    }
  }
  std::vector<SourceNode> sorted;
  sorted.reserve(order.size());
  for (const std::size_t node : order) sorted.push_back(std::move(model.nodes[node]));
  model.nodes = std::move(sorted);
}

SourceModel parse(const std::string& name, const std::string& bytes, const std::string& folder) {
  SourceModel model;
  model.file = name;
  const auto not_onnx = [&](const std::string& why) {
    const std::string_view first = std::string_view(bytes).substr(0, kFormatBytes);
    const FileFormat* format = find_format(first);
    const bool other = format != nullptr && format->kind != FileKind::importable;
    return InputError(name + ": " + (other ? other_format_text(first, "an ONNX model", why) : why));
  };
  try {
    read_model(pbf_reader(bytes), folder, model);
  } catch (const protozero::exception&) {
    throw not_onnx("is no ONNX model, or is damaged: its bytes are no protocol buffers");
  } catch (const InputError& wrong) {
    throw InputError(name + ": " + wrong.what());
  }
  if (model.nodes.empty()) throw not_onnx("is no ONNX model: it has no operators");
  if (model.opset < kOldestOpset || model.opset > kNewestOpset)
    throw InputError(fmt::format("{}: has operators of opset {}; opsets {} to {} are read", name, model.opset,
                                 kOldestOpset, kNewestOpset));
  std::erase_if(model.inputs, [&](const SourceInput& input) { return model.tensors.contains(input.name); });
  try {
    sort_nodes(model);
  } catch (const InputError& wrong) {
    throw InputError(name + ": " + wrong.what());
  }
  return model;
}

}  // namespace

SourceModel read_source_model(const std::string& path) {
  const std::string bytes = read_whole_file(path);
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return parse(path, bytes, folder.empty() ? "." : folder);
}

SourceModel parse_source_model(const std::string& name, const std::string& bytes) {
  return parse(name, bytes, "");
}

}  // namespace convnet
