// Minibatches that the program chooses: with --mini auto the largest one that fits the memory, and a small
// one for few images.
#pragma once

#include <cstdint>
#include <string>

#include "convnet/graph/graph.h"
#include "convnet/net/net_files.h"
#include "convnet/plan/device_model.h"
#include "convnet/runtime/processes.h"

namespace convnet {

/// The images of the largest batches of a data set, which minibatches do not exceed, and of an epoch; 0: not
/// known.
struct LargestBatches {
  std::int64_t train = 0, test = 0, epoch = 0;
};
/// Returns those of the ranges in the options.
LargestBatches largest_batches(const Provider& provider, const DataOptions& data);

/// Returns the memory that is free for `used` devices of this machine, and of this process if there are
/// several: that of the GPU with least, or that of the host.
MachineMemory free_memory_of(const DeviceOptions& devices, int used, const Processes* processes = nullptr);

/// Throws InputError if --mini is auto and --parallel, too: each waits for the other.
void check_auto_minibatch(const StepOptions& step, const DeviceOptions& devices);

/// Returns --mini for --mini auto: a power of two for each replica of the layer with most replicas, the
/// largest one whose plans of training and of tests need at most four fifths of the memory, and that is no
/// more than the largest batch of training. The rest is for batches that wait and for other programs. `note`
/// becomes a line about it, which also says so if an epoch has few of them. Several processes (else
/// `processes` is null) make the call together, and get the least of what each finds. Throws DeviceError if
/// even one image for each microbatch does not fit.
int choose_minibatch(const Graph& graph, const Provider& provider, const DeviceOptions& devices,
                     StepOptions step, const MachineMemory& memory, const LargestBatches& largest,
                     std::string& note, Processes* processes = nullptr);

/// Chooses the minibatch of a new run that names only a net and its data, if `texts` has none: an epoch of
/// few images has several steps then, and no batch has fewer images than a minibatch. `images` are those of
/// an epoch, `largest` those of its largest batch. Returns a note about it; "" if --mini stays as it is.
std::string choose_small_minibatch(StepOptions& step, OptionTexts& texts, std::int64_t images,
                                   std::int64_t largest);

}  // namespace convnet
