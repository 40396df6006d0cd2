#include "convnet/onnx/model.h"

#include <fmt/format.h>

#include <span>

#include "convnet/base/error.h"
#include "convnet/base/output_file.h"
#include "convnet/base/protobuf.h"

namespace convnet {
namespace {

using protobuf::bytes, protobuf::head, protobuf::number, protobuf::real32;

// Field numbers and enumerators of the messages in onnx.proto (version 1.12, IR version 8).
namespace model_field {
constexpr int ir_version = 1, producer_name = 2, graph = 7, opset_import = 8, metadata_props = 14;
}
/// StringStringEntryProto.
namespace entry_field {
constexpr int key = 1, value = 2;
}
namespace opset_field {
constexpr int domain = 1, version = 2;
}
namespace graph_field {
constexpr int node = 1, name = 2, initializer = 5, input = 11, output = 12;
}
namespace node_field {
constexpr int input = 1, output = 2, name = 3, op_type = 4, attribute = 5;
}
namespace attribute_field {
constexpr int name = 1, f = 2, i = 3, ints = 8, type = 20;
constexpr int type_float = 1, type_int = 2, type_ints = 7;
}  // namespace attribute_field
namespace tensor_field {
constexpr int dims = 1, data_type = 2, name = 8, raw_data = 9;
constexpr int type_float = 1, type_int64 = 7;
}  // namespace tensor_field
/// ValueInfoProto, TypeProto, TypeProto.Tensor, TensorShapeProto and TensorShapeProto.Dimension.
namespace value_field {
constexpr int name = 1, type = 2, tensor_type = 1, elem_type = 1, shape = 2, dim = 1, dim_value = 1,
              dim_param = 2;
}

std::string message(const OnnxAttribute& attribute) {
  namespace field = attribute_field;
  std::string value;
  int type = 0;
  if (const auto* i = std::get_if<std::int64_t>(&attribute.value)) {
    value = number(field::i, *i);
    type = field::type_int;
  } else if (const auto* f = std::get_if<float>(&attribute.value)) {
    value = real32(field::f, *f);
    type = field::type_float;
  } else {
    for (const std::int64_t item : std::get<std::vector<std::int64_t>>(attribute.value))
      value += number(field::ints, item);
    type = field::type_ints;
  }
  return bytes(field::name, attribute.name) + value + number(field::type, type);
}

std::string message(const OnnxNode& node) {
  namespace field = node_field;
  std::string text;
  for (const std::string& input : node.inputs) text += bytes(field::input, input);
  text +=
      bytes(field::output, node.output) + bytes(field::name, node.output) + bytes(field::op_type, node.op);
  for (const OnnxAttribute& attribute : node.attributes) text += bytes(field::attribute, message(attribute));
  return text;
}

std::string message(const OnnxTensor& tensor) {
  namespace field = value_field;
  std::string shape = bytes(field::dim, bytes(field::dim_param, "N"));
  for (const std::int64_t side : tensor.image) shape += bytes(field::dim, number(field::dim_value, side));
  const std::string type = number(field::elem_type, tensor_field::type_float) + bytes(field::shape, shape);
  return bytes(field::name, tensor.name) + bytes(field::type, bytes(field::tensor_type, type));
}

std::span<const std::byte> raw(const OnnxConstant& constant) {
  return std::visit([](const auto& values) { return std::as_bytes(std::span(values)); }, constant.values);
}

/// Returns the bytes of a constant, as a field of the graph, that stand before its numbers.
std::string constant_head(const OnnxConstant& constant) {
  namespace field = tensor_field;
  const bool floats = std::holds_alternative<std::vector<float>>(constant.values);
  std::string text;
  for (const std::int64_t side : constant.dims) text += number(field::dims, side);
  text += number(field::data_type, floats ? field::type_float : field::type_int64) +
          bytes(field::name, constant.name) + head(field::raw_data, raw(constant).size());
  return head(graph_field::initializer, text.size() + raw(constant).size()) + text;
}

}  // namespace

void write_onnx(const std::string& path, const OnnxModel& model, std::uint64_t most_bytes) {
  // The constants, which may be large, go to the file from where they are.
  std::string graph;
  for (const OnnxNode& node : model.nodes) graph += bytes(graph_field::node, message(node));
  graph += bytes(graph_field::name, model.name);
  for (const OnnxTensor& input : model.inputs) graph += bytes(graph_field::input, message(input));
  for (const OnnxTensor& output : model.outputs) graph += bytes(graph_field::output, message(output));
  std::uint64_t graph_bytes = graph.size();
  std::vector<std::string> heads;
  for (const OnnxConstant& constant : model.constants) {
    heads.push_back(constant_head(constant));
    graph_bytes += heads.back().size() + raw(constant).size();
  }
  const std::string opset = bytes(opset_field::domain, "") + number(opset_field::version, OnnxModel::opset);
  std::string metadata;
  for (const auto& [key, value] : model.metadata)
    metadata +=
        bytes(model_field::metadata_props, bytes(entry_field::key, key) + bytes(entry_field::value, value));
  const std::string begin =
      number(model_field::ir_version, OnnxModel::ir_version) + bytes(model_field::producer_name, "convnet") +
      bytes(model_field::opset_import, opset) + metadata + head(model_field::graph, graph_bytes);
  if (begin.size() + graph_bytes > most_bytes)
    throw InputError(fmt::format("{}: the model would have {} bytes, and a file of ONNX has at most {}", path,
                                 begin.size() + graph_bytes, most_bytes));
  OutputFile file(path);
  file.write(begin);
  file.write(graph);
  for (std::size_t i = 0; i < heads.size(); ++i) {
    file.write(heads[i]);
    const std::span<const std::byte> numbers = raw(model.constants[i]);
    file.write(numbers.data(), numbers.size());
  }
  file.publish();
}

}  // namespace convnet
