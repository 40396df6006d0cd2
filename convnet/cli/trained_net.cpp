#include "convnet/cli/trained_net.h"

#include <algorithm>

#include "convnet/base/error.h"
#include "convnet/net/data_set.h"
#include "convnet/net/devices.h"
#include "convnet/net/input_data.h"
#include "convnet/net/net_files.h"
#include "convnet/train/stored_options.h"

namespace convnet {

TrainedNet open_trained_net(const std::string& file, const OptionTexts& given) {
  TrainedNet net;
  net.checkpoint = read_run_checkpoint(file);
  const Checkpoint& c = net.checkpoint;
  OptionTexts texts = c.options;
  for (const char* option : {"multiview-test", "cache-images", "hosts", "threads", "device", "microbatches"})
    texts.erase(option);
  texts["gpu"] = "0";
  texts["parallel"] = "data";
  for (const auto& [key, text] : given) texts[key] = text;
  require_options(texts, {"data-provider"}, "; the checkpoint does not say it");
  net.options = run_options().parse(texts);
  check_views_exist(net.options.data, c);
  check_distinct_gpus(given, net.options.devices);
  net.options.devices = with_devices(net.options.devices);
  if (c.matrices.empty())
    throw InputError(c.file +
                     ": is of an older version, which did not note what images look like; resume the run "
                     "for a batch, and it saves that");
  const bool has_mean = std::any_of(c.tensors.tensors.begin(), c.tensors.tensors.end(),
                                    [](const auto& tensor) { return tensor.first.ends_with(".mean"); });
  net.set = {net.options.data.provider, c.matrices, has_mean};
  // Checkpoints of older versions do not say it: it is rare that numbers are divided by their deviations.
  std::optional<DataType>& stored = net.set.matrices[0].stored_type;
  const ImageOptions images = image_options(net.options.data);
  if (!stored && (images.pixel_std || images.read_subtracts_mean())) stored = DataType::u8;
  return net;
}

Graph graph_of(const TrainedNet& net, const std::vector<MatrixInfo>& matrices) {
  Diagnostics diagnostics;
  const NetFiles files = stored_files(net.checkpoint, diagnostics);
  Graph graph =
      build_graph(files.definition, files.parameters, matrices,
                  graph_options(net.options.files, net.options.devices, net.options.step), diagnostics);
  diagnostics.throw_if_errors();
  return graph;
}

}  // namespace convnet
