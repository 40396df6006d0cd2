#include "convnet/train/tensorboard.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "convnet/base/error.h"
#include "convnet/graph/whole_layers.h"
#include "convnet/net/costs.h"
#include "convnet/net/net_files.h"
#include "convnet/show/filters.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

/// Markdown shows indented lines as they are.
std::string verbatim(const std::string& text) {
  std::string indented = "    ";
  for (const char c : text) {
    indented += c;
    if (c == '\n') indented += "    ";
  }
  return indented;
}

FilterPicture picture_of(const WeightBuffers& w, const Net& net) {
  return draw_filters({net.graph().weight({w.node, w.index}).dims, net.executor().read_weights(w)});
}

/// The filters of convolutions that have no weights below them: those that see images.
std::vector<const WeightBuffers*> first_filters(const Net& net) {
  std::vector<const WeightBuffers*> found;
  const Table<NodeId, Node>& nodes = net.graph().nodes;
  for (const WeightBuffers& w : net.plans().weights()) {
    const Node& node = nodes[w.node];
    if (!node.layer->weights[w.index].is_filters()) continue;
    if (nodes[node.inputs[w.index]].weights_below) continue;
    try {
      picture_of(w, net);
      found.push_back(&w);
    } catch (const InputError& wrong) {
      fmt::print(stderr, "warning: --tensorboard shows no picture of '{}': it {}\n", w.name, wrong.what());
    }
  }
  return found;
}

}  // namespace

TensorBoard::TensorBoard(BoardFolder* folder, const Net& net, const NetFiles& files, std::uint64_t done)
    : net_(net), filters_(first_filters(net)) {
  if (folder == nullptr) return;
  events_.emplace(folder->path(), static_cast<std::int64_t>(done) + 1);
  folder->keep();
  // The text belongs to the step to come: a run that goes on from the same checkpoint drops it, too.
  const auto next = static_cast<std::int64_t>(done) + 1;
  for (const IniFile* file : {&files.definition, &files.parameters}) {
    const char* name = file == &files.definition ? "layer definition" : "layer parameters";
    events_->text(name, next, verbatim(file->text));
  }
  events_->flush();
}

void TensorBoard::trained(std::uint64_t done, const CostSums& costs, const TrainingProgress& progress,
                          const std::optional<double>& waiting_for_data) {
  if (!events_) return;
  const auto step = static_cast<std::int64_t>(done);
  add_costs(step, costs, "train");
  const std::vector<Rates> rates = net_.rates(progress);
  for (const WeightBuffers& w : net_.plans().weights()) {
    const WeightSpec& spec = net_.graph().weight({w.node, w.index});
    if (spec.learned() && whole_matrix(net_.graph(), {w.node, w.index}).is_first())
      events_->scalar("learning rate/" + w.name, step,
                      static_cast<double>(rates[static_cast<std::size_t>(w.rate_index)].epsilon));
  }
  if (waiting_for_data) events_->scalar("time/waiting for data (percent)", step, 100 * *waiting_for_data);
  flush();
}

void TensorBoard::tested(std::uint64_t done, const CostSums& costs) {
  const auto step = static_cast<std::int64_t>(done);
  std::vector<Picture> pictures;
  for (const WeightBuffers* w : filters_) pictures.push_back(picture_of(*w, net_).picture);
  if (!events_) return;
  add_costs(step, costs, "test");
  for (std::size_t i = 0; i < filters_.size(); ++i) {
    const Picture& picture = pictures[i];
    events_->image("filters/" + filters_[i]->name, step, picture.width(), picture.height(), picture.png());
  }
  flush();
}

void TensorBoard::flush() {
  events_->flush();
  std::error_code unknown;
  if (lost_ || fs::exists(events_->path(), unknown) || unknown) return;
  lost_ = true;
  fmt::print(
      stderr,
      "warning: {} was removed or renamed while this run trained; the curves of --tensorboard end here. "
      "A run that goes on from a checkpoint begins new ones\n",
      events_->path());
}

void TensorBoard::add_costs(std::int64_t step, const CostSums& costs, const std::string& kind) {
  for (const CostReport& report : cost_reports(costs, net_.graph())) {
    const std::vector<std::string> names = report.node->layer->cost_names();
    for (std::size_t v = 0; v < report.values.size(); ++v) {
      if (repeats_earlier(names, v)) continue;
      events_->scalar(fmt::format("{}/{} ({})", report.node->name, names[v], kind), step, report.values[v]);
    }
  }
}

}  // namespace convnet
