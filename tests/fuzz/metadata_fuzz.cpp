// What a checkpoint says besides its tensors, on any bytes, as commands take it: resuming, planning and
// showing. The input is its options, state, matrices, ranges and placement, then, after lines of "====", a
// definition file and a parameter file. Messages must be ours.
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "convnet/base/error.h"
#include "convnet/net/net_files.h"
#include "convnet/place/placed_files.h"
#include "convnet/show/curves.h"
#include "convnet/train/options.h"
#include "convnet/train/stored_options.h"
#include "convnet/train/watched_cost.h"

namespace {

using namespace convnet;

/// Returns the text up to the next separator and removes both from `rest`.
std::string next_part(std::string& rest) {
  const std::string separator = "\n====\n";
  const std::size_t cut = rest.find(separator);
  const std::string part = rest.substr(0, cut);
  rest = cut == std::string::npos ? "" : rest.substr(cut + separator.size());
  return part;
}

Checkpoint checkpoint_from(std::string text) {
  TensorFile file;
  file.metadata = {{"format", "convnet-1"}, {"algorithms", "{}"}};
  file.metadata["layer_def_path"] = "net.cfg";
  file.metadata["layer_params_path"] = "params.cfg";
  for (const char* key : {"options", "state", "matrices", "ranges", "placement", "layer_def"})
    file.metadata[key] = next_part(text);
  file.metadata["layer_params"] = text;
  return parse_checkpoint("fuzz", std::move(file));
}

void use(const Checkpoint& checkpoint) {
  check_options(checkpoint);
  const TrainOptions options = parse_train_options(taken_options(checkpoint));
  Diagnostics diagnostics;
  NetFiles files = stored_files(checkpoint, diagnostics);
  apply_settings(options.files.set, files.definition, files.parameters, diagnostics);
  GraphOptions graph_of;
  graph_of.devices = 4;
  const Placement placement =
      read_placement(checkpoint.placement, files.definition, graph_of.devices, checkpoint.file);
  if (!checkpoint.placement.empty()) graph_of.placement = &placement;
  const Graph graph =
      build_graph(files.definition, files.parameters, checkpoint.matrices, graph_of, diagnostics);
  diagnostics.throw_if_errors();
  const BatchRange range = checkpoint.train_range.value_or(BatchRange{1, 1});
  costs_csv(checkpoint.state, graph);
  rate_chart(checkpoint.state, graph, range, options.epochs);
  const WatchedCost watched = find_watched_cost(options.checkpoints.keep_best, graph);
  cost_chart(checkpoint.state, graph, {watched.layer, watched.value, 1, range});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    use(checkpoint_from(std::string(reinterpret_cast<const char*>(data), size)));
  } catch (const InputError& refused) {
    const std::string_view text = refused.what();
    if (text.empty() || text.find("exception") != std::string_view::npos) __builtin_trap();
  }
  return 0;
}
