#include "convnet/net/ready_nets.h"

#include <algorithm>
#include <filesystem>

#include "convnet/base/text_file.h"
#include "convnet/config/ini_lines.h"
#include "convnet/config/text.h"
#include "convnet/graph/graph.h"
#include "convnet/net/find_net.h"
#include "convnet/plan/plan_set.h"
#include "kernels/target.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

/// Reads "3x224x224, 1000 classes".
bool read_input(std::string_view text, NetHeader& header) {
  const std::size_t comma = text.find(',');
  const std::size_t word = text.find(" classes");
  if (comma == std::string_view::npos || word == std::string_view::npos || word < comma) return false;
  for (std::string_view rest = text.substr(0, comma);;) {
    const std::size_t cross = std::min(rest.find('x'), rest.size());
    const auto side = to_number<std::int64_t>(rest.substr(0, cross));
    if (!side || *side < 1 || *side > 4096) return false;
    header.image.push_back(*side);
    if (cross == rest.size()) break;
    rest.remove_prefix(cross + 1);
  }
  const auto classes = to_number<std::int64_t>(trim(text.substr(comma + 1, word - comma - 1)));
  if (!classes || *classes < 1 || *classes > (1 << 20)) return false;
  header.classes = *classes;
  return header.image.size() == 3;
}

bool multiplies(const std::string& type) {
  return type == "conv" || type == "local" || type == "fc" || type == "sfc";
}

}  // namespace

std::optional<NetHeader> read_net_header(std::string_view text) {
  constexpr std::string_view kInput = "# input: ", kMeasured = "# measured: ";
  NetHeader header;
  bool has_input = false;
  for (bool first = true; text.starts_with('#'); first = false) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.starts_with(kInput)) {
      has_input = read_input(line.substr(kInput.size()), header);
    } else if (line.starts_with(kMeasured)) {
      header.measured = line.substr(kMeasured.size());
    } else if (const std::size_t colon = line.find(": "); first && colon != std::string_view::npos) {
      header.summary = line.substr(colon + 2);
    }
  }
  if (!has_input) return std::nullopt;
  return header;
}

std::optional<ReadyNet> ready_net(const std::string& folder, const std::string& file) {
  const std::string path = (fs::path(folder) / file).string();
  const std::string text = as_utf8(read_bytes(path, kMaxIniBytes));
  const std::optional<NetHeader> header = read_net_header(text);
  if (!header) return std::nullopt;
  ReadyNet net{short_net_name(file), file, *header};
  Diagnostics diagnostics;
  const IniFile definition = parse_ini(path, text, diagnostics);
  const std::string parameters = path.substr(0, path.size() - std::string(".cfg").size()) + "-params.cfg";
  const std::vector<MatrixInfo> matrices = {{"data", header->image, DataType::u8, 0},
                                            {"labels", {1}, DataType::s32, header->classes}};
  const Graph graph = build_graph(definition, read_ini(parameters, diagnostics), matrices, {}, diagnostics);
  diagnostics.throw_if_errors();
  for (const Node& node : graph.nodes) {
    for (const WeightSpec& w : node.layer->weights) net.parameters += w.state ? 0 : element_count(w.dims);
  }
  const auto target = make_cpu_target(1, Precision::fp32);
  PlanSet plans(graph, matrices, *target, {});
  for (const Task& task : plans.plan(Phase::test, 1).tasks) {
    if (task.node.exists() && multiplies(graph.nodes[task.node].type)) net.multiply_adds += task.flops / 2;
  }
  return net;
}

std::vector<ReadyNet> ready_nets() {
  const std::string folder = installed_nets();
  std::vector<ReadyNet> nets;
  for (const std::string& file : installed_net_files(CfgFile::definition)) {
    if (std::optional<ReadyNet> net = ready_net(folder, file)) nets.push_back(*std::move(net));
  }
  std::sort(nets.begin(), nets.end(), [](const ReadyNet& a, const ReadyNet& b) { return a.name < b.name; });
  return nets;
}

}  // namespace convnet
