#include "convnet/train/watched_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "convnet/base/output_file.h"
#include "convnet/config/text.h"
#include "convnet/net/costs.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

/// Returns the cost layers that a run prints, in order of the file.
std::vector<const Node*> printed_costs(const Graph& graph) {
  std::vector<const Node*> costs;
  for (const Node& node : graph.nodes)
    if (node.is_cost() && !node.is_child) costs.push_back(&node);
  return costs;
}

/// Copies a file, complete or not at all.
void copy_file(const std::string& from, const std::string& to) {
  constexpr std::uint64_t kPiece = 1 << 24;
  const InputFile source(from);
  OutputFile copy(to);
  for (std::uint64_t at = 0; at < source.size(); at += kPiece)
    copy.write(source.read(at, std::min(kPiece, source.size() - at)));
  copy.publish();
}

std::size_t values_of(const Node& cost) { return cost.layer->cost_names().size(); }

}  // namespace

double WatchedCost::of(const CostSums& test, const Graph& graph) const {
  for (const CostReport& report : cost_reports(test, graph))
    if (report.node->name == layer) return report.values.at(value);
  throw std::logic_error("the watched cost is not there");
}

std::string WatchedCost::value_name(const Graph& graph) const {
  return graph.find(layer)->layer->cost_names().at(value);
}

std::string WatchedCost::text(const Graph& graph) const {
  return fmt::format("{} ({})", layer, value_name(graph));
}

WatchedCost find_watched_cost(const std::string& text, const Graph& graph) {
  const std::vector<const Node*> costs = printed_costs(graph);
  std::vector<std::string> names;
  for (const Node* cost : costs) {
    const std::size_t usual = values_of(*cost) > 1 ? 1 : 0;
    if (text.empty() || text == cost->name) return {cost->name, usual};
    if (text == cost->name + ".cost") return {cost->name, 0};
    if (text == cost->name + ".error" && usual == 1) return {cost->name, 1};
    names.push_back(cost->name);
    names.push_back(cost->name + ".cost");
    if (usual == 1) names.push_back(cost->name + ".error");
  }
  if (const Node* other = graph.find(text); other != nullptr && other->is_cost())
    throw InputError(
        fmt::format("--keep-best {}: this cost is part of the one that lists it in 'children', and "
                    "has no value of its own; there are {}",
                    text, join(names)));
  throw InputError(fmt::format("--keep-best {}: there is no such cost; there are {}{}", text, join(names),
                               did_you_mean(text, names)));
}

bool note_test(BestTest& best, const WatchedCost& watched, double value, const Position& at) {
  const bool better = best.epoch == 0 || value < best.value;
  if (better)
    best = {value, at.epoch, at.batch, 0, watched.key()};
  else
    ++best.tests_since;
  return better;
}

std::string keep_as_best(const std::string& folder, const std::string& checkpoint) {
  const std::string best = (fs::path(folder) / kBestFile).string();
  std::error_code error, none;
  // rename() does nothing where both names are links to one file.
  if (fs::equivalent(best, checkpoint, none)) return "";
  const std::string link = (fs::path(folder) / kBestLink).string();
  fs::remove(link, none);
  // A link takes no space and no time; some file systems have none.
  fs::create_hard_link(checkpoint, link, error);
  if (error) return save_making_room(folder, kBestFile, [&] { copy_file(checkpoint, best); });
  fs::rename(link, best, error);
  if (error) {
    fs::remove(link, none);
    throw RunError(fmt::format("{}: cannot be made from {}: {}", best, checkpoint, error.message()));
  }
  sync_parent_folder(best);
  return "";
}

}  // namespace convnet
