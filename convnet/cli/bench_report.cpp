#include "convnet/cli/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "convnet/base/median.h"

namespace convnet {
namespace {

using nlohmann::json;

/// Returns a row for each layer, and one for what belongs to none.
json layer_table(const Graph& graph, const Plan& plan, const BenchMeasurement& m) {
  json rows = json::array();
  std::vector<NodeId> layers = {NodeId()};
  layers.insert(layers.end(), graph.nodes.ids().begin(), graph.nodes.ids().end());
  for (const NodeId id : layers) {
    double forward = 0;
    double backward = 0;
    double update = 0;
    double other = 0;
    double flops = 0;
    bool any = false;
    for (const TaskId t : plan.tasks.ids()) {
      const Task& task = plan.tasks[t];
      double part = 0;
      for (const LayerShare& share : layer_shares(plan, task)) part += share.node == id ? share.part : 0;
      if (part == 0) continue;
      any = true;
      flops += task.flops;
      double& column = task.kind == TaskKind::forward || task.kind == TaskKind::load ? forward
                       : task.kind == TaskKind::backward                             ? backward
                       : task.kind == TaskKind::update                               ? update
                                                                                     : other;
      column += part * m.tasks[t];
    }
    if (!any) continue;
    const double sum = forward + backward + update + other;
    const bool heavy = flops > 0;
    rows.push_back({{"layer", id.exists() ? graph.nodes[id].name : "(step)"},
                    {"type", id.exists() ? graph.nodes[id].type : ""},
                    {"forward_ms", forward * 1e3},
                    {"backward_ms", backward * 1e3},
                    {"update_ms", update * 1e3},
                    {"other_ms", other * 1e3},
                    {"gflops", forward + backward > 0 ? flops / (forward + backward) / 1e9 : 0},
                    {"share", sum / m.step / static_cast<double>(plan.memory.size())},
                    {"weights_layer", heavy}});
  }
  return rows;
}

/// Returns a row for each kind of operation, the most expensive first.
json operation_table(const Plan& plan, const BenchMeasurement& m) {
  struct Work {
    double seconds = 0, flops = 0, bytes = 0;
  };
  std::map<std::string, Work> kinds;
  for (const TaskId t : plan.tasks.ids()) {
    const Task& task = plan.tasks[t];
    Work& w = kinds[work_name(task)];
    w.seconds += m.tasks[t];
    w.flops += task.flops;
    w.bytes += static_cast<double>(task.bytes);
  }
  std::vector<std::pair<std::string, Work>> sorted(kinds.begin(), kinds.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  json rows = json::array();
  for (const auto& [name, w] : sorted) {
    const double seconds = std::max(w.seconds, 1e-12);
    rows.push_back({{"operation", name},
                    {"ms", w.seconds * 1e3},
                    {"share", w.seconds / m.step / static_cast<double>(plan.memory.size())},
                    {"gflops", w.flops / seconds / 1e9},
                    {"gb_per_s", w.bytes / seconds / 1e9},
                    {"copy_fraction", w.bytes / seconds / m.copy}});
  }
  return rows;
}

}  // namespace

json bench_json(const Graph& graph, const Plan& plan, const BenchMeasurement& m, int minibatch) {
  double flops = 0;
  for (const Task& task : plan.tasks) flops += task.flops;
  const double peak = *std::max_element(m.peaks.begin(), m.peaks.end());
  const json layers = layer_table(graph, plan, m);
  double inside = 0;
  for (const json& row : layers) {
    if (row["weights_layer"].get<bool>())
      inside += row["forward_ms"].get<double>() + row["backward_ms"].get<double>();
  }
  return {{"mini", minibatch},
          {"steps", m.steps},
          {"recorded", m.recorded ? json(*m.recorded) : json(nullptr)},
          {"ms_per_step", m.step * 1e3},
          {"ms_per_step_spread",
           {{"min", m.shortest * 1e3}, {"mean", m.mean * 1e3}, {"p95", m.percentile_95 * 1e3}}},
          {"ms_per_fed_step", m.fed_step * 1e3},
          {"images_per_s", minibatch / m.step},
          {"gflops", flops / m.step / 1e9},
          {"peak_gflops", peak / 1e9},
          {"peak_fraction", flops / m.step / peak},
          {"usual_peak_gflops", median(m.peaks) / 1e9},
          {"winograd", m.winograd},
          {"algorithms", m.algorithms},
          {"executor_overhead", m.overhead},
          {"copy_gb_per_s", m.copy / 1e9},
          {"primitives_ms", m.primitives * 1e3},
          {"step_over_primitives", m.step / m.primitives},
          {"outside_conv_fc_ms", m.step * 1e3 - inside / static_cast<double>(plan.memory.size())},
          {"layers", layers},
          {"operations", operation_table(plan, m)}};
}

std::string bench_text(const json& r) {
  std::string text = fmt::format("{:<20} {:<12} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7}\n", "layer", "type",
                                 "fwd ms", "bwd ms", "upd ms", "other ms", "GFLOP/s", "share");
  for (const json& row : r["layers"])
    text += fmt::format("{:<20} {:<12} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.1f} {:>6.1f}%\n",
                        row["layer"].get<std::string>(), row["type"].get<std::string>(),
                        row["forward_ms"].get<double>(), row["backward_ms"].get<double>(),
                        row["update_ms"].get<double>(), row["other_ms"].get<double>(),
                        row["gflops"].get<double>(), 100 * row["share"].get<double>());
  text += fmt::format("\n{:<33} {:>9} {:>9} {:>9} {:>13} {:>7}\n", "operation", "ms", "GFLOP/s", "GB/s",
                      "of copy speed", "share");
  for (const json& row : r["operations"])
    text += fmt::format("{:<33} {:>9.3f} {:>9.1f} {:>9.1f} {:>12.0f}% {:>6.1f}%\n",
                        row["operation"].get<std::string>(), row["ms"].get<double>(),
                        row["gflops"].get<double>(), row["gb_per_s"].get<double>(),
                        100 * row["copy_fraction"].get<double>(), 100 * row["share"].get<double>());
  const json& spread = r["ms_per_step_spread"];
  text += fmt::format(
      "\n{:.3f} ms a step of {} images (median of {}): {:.1f} images/s; {:.3f} ms with new images each step\n"
      "spread of the steps: minimum {:.3f} ms, mean {:.3f} ms, 95th percentile {:.3f} ms\n"
      "outside conv and fc: {:.3f} ms, {:.1f}% of the step; sum of the primitives run alone: {:.3f} ms, "
      "step/sum {:.3f}; executor overhead {:.1f}%\n"
      "{:.1f} GFLOP/s, {:.1f}% of the measured peak of {:.1f} GFLOP/s ({} threads); "
      "copy speed {:.1f} GB/s; peak memory {:.1f} MiB\n",
      r["ms_per_step"].get<double>(), r["mini"].get<int>(), r["steps"].get<int>(),
      r["images_per_s"].get<double>(), r["ms_per_fed_step"].get<double>(), spread["min"].get<double>(),
      spread["mean"].get<double>(), spread["p95"].get<double>(), r["outside_conv_fc_ms"].get<double>(),
      100 * r["outside_conv_fc_ms"].get<double>() / r["ms_per_step"].get<double>(),
      r["primitives_ms"].get<double>(), r["step_over_primitives"].get<double>(),
      100 * r["executor_overhead"].get<double>(), r["gflops"].get<double>(),
      100 * r["peak_fraction"].get<double>(), r["peak_gflops"].get<double>(), r["threads"].get<int>(),
      r["copy_gb_per_s"].get<double>(), r["peak_memory_bytes"].get<double>() / (1 << 20));
  if (r["peak_fraction"].get<double>() > 1)
    text +=
        r["winograd"].get<bool>()
            ? "more than 100% of the peak: operations are counted as in direct convolutions, and Winograd's "
              "method needs fewer\n"
            : "more than 100% of the peak: the machine was slower while the peak was measured; measure "
              "again when nothing else runs\n";
  if (const json& recorded = r["recorded"]; recorded.is_boolean())
    text += recorded.get<bool>() ? "steps are recorded: each is started by one call\n"
                                 : "steps are not recorded: the host starts their operations one by one\n";
  return text;
}

}  // namespace convnet
