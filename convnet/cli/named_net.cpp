#include "convnet/cli/named_net.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "convnet/base/error.h"
#include "convnet/net/auto_placement.h"
#include "convnet/net/data_set.h"
#include "convnet/net/net_files.h"
#include "convnet/place/placed_files.h"
#include "providers/dummy.h"

namespace convnet {

std::optional<Checkpoint> named_checkpoint(OptionTexts& texts, const std::vector<OptionSpec>& specs) {
  const auto named = texts.find("load-file");
  if (named == texts.end()) {
    require_options(texts, {"layer-def", "layer-params", "data-provider"},
                    "; or --load-file with a checkpoint");
    return std::nullopt;
  }
  constexpr std::array kOfFiles = {"layer-def", "layer-params", "layer-path", "conv-to-local",
                                   "unshare-weights"};
  for (const char* const option : kOfFiles) {
    if (texts.contains(option))
      throw InputError(std::string("--load-file names a net, and so does --") + option + "; use one of them");
  }
  Checkpoint checkpoint = read_checkpoint(named->second);
  for (const auto& option : checkpoint.options) {
    const auto is_it = [&](const auto& key) { return key == option.first; };
    const bool taken = std::any_of(specs.begin(), specs.end(),
                                   [&](const OptionSpec& spec) { return is_it(spec.param.key); });
    if (taken && std::none_of(kOfFiles.begin(), kOfFiles.end(), is_it)) texts.insert(option);
  }
  return checkpoint;
}

NamedNet open_named_net(const std::optional<Checkpoint>& checkpoint, const OptionTexts& given,
                        const NetFileOptions& files, const DataOptions& data, const StepOptions& step,
                        Diagnostics& diagnostics) {
  NamedNet net;
  if (!checkpoint) {
    net.files = read_net_files(files, diagnostics);
    net.provider = open_provider(data, step.seed);
    return net;
  }
  const Checkpoint& c = *checkpoint;
  net.files = stored_files(c, diagnostics);
  apply_settings(files.set, net.files.definition, net.files.parameters, diagnostics);
  net.checkpoint_placement = c.placement;
  if (given.contains("data-provider")) {
    net.provider = open_provider(data, step.seed);
    return net;
  }
  if (c.matrices.empty())
    throw InputError(
        c.file +
        ": is of an older version, which did not note what the data looks like; --data-provider and "
        "--data-path must say it");
  const bool has_mean = c.tensors.tensors.contains(c.options.at("data-provider") + ".mean");
  net.provider = make_dummy_provider(c.matrices, has_mean, step.seed);
  return net;
}

Graph graph_of(const NamedNet& net, const NetFileOptions& files, const DeviceOptions& devices,
               const StepOptions& step, const std::function<Predictor&()>& predictor, std::string& found,
               Diagnostics& diagnostics) {
  GraphOptions options = graph_options(files, devices);
  Placement placement;
  if (devices.parallel == Parallel::automatic) {
    diagnostics.throw_if_errors();
    if (net.checkpoint_placement.starts_with(placement_head(devices, step)))
      placement = read_placement(net.checkpoint_placement, net.files.definition,
                                 static_cast<int>(devices.gpus().size()), net.files.definition.path);
    else
      placement = auto_placement(net.files, *net.provider, files, devices, step, predictor(), found);
    options.placement = &placement;
  }
  Graph graph = checked_graph(net.files, *net.provider, options, diagnostics);
  for (const std::string& warning : diagnostics.warnings()) fmt::print(stderr, "{}\n", warning);
  return graph;
}

}  // namespace convnet
