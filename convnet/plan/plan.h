// The static plan: every task of a minibatch, its buffers, its order. Data, made by a pure function of the
// graph, the number of images and the phase; the executor only follows it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "convnet/graph/graph.h"
#include "convnet/plan/topology.h"
#include "kernels/target.h"

namespace convnet {

/// check: training without masks, noise and constraints, for gradient checks.
enum class Phase { train, test, check };

enum class BufferKind {
  weights,
  increment,
  accumulator,  ///< gradients of earlier minibatches, where updatePeriod spans several
  squares,      ///< running means of squared gradients, for AdamW
  average,      ///< running averages of the weights
  mean,
  step,
  costs,
  input,
  activation,
  gradient,
  weights_gradient,
  workspace,
  landing  ///< what a message from another process brings
};
const char* to_string(BufferKind kind);

/// A piece of memory on one device.
struct Buffer {
  std::string name;  ///< "conv1", "d conv1", "conv1.weights.data", …
  BufferKind kind = BufferKind::activation;
  DeviceId device{0};
  TensorDesc desc;
  std::int64_t bytes = 0;
  NodeId
      node;  ///< the layer that owns the matrix, for `weights` and the sums of a host's gradients; else none
  std::size_t index = 0;  ///< which matrix of Layer::weights
  /// Byte offset in the device's persistent or transient memory; -1 for `input`, which is the host's.
  std::int64_t offset = -1;

  /// Lives as long as the net; the others share the transient memory by liveness.
  bool persistent() const { return kind <= BufferKind::costs; }
};

enum class TaskKind {
  load,
  forward,
  backward,
  update,
  reorder,
  accumulate,
  zero,
  // Communication: these alone may touch the memory of other devices. They run on the device that receives.
  copy,           ///< activations and gradients that a layer on another device made; gathers
  reduce,         ///< sums over devices: gradients, statistics, the flags of broken costs
  reduce_update,  ///< sums a range of the weights' gradients over the replicas and updates that range
  publish,        ///< fetches a range of the weights that another replica has updated
  // The two ends of a message between processes. They have no operation.
  send,
  receive
};
const char* to_string(TaskKind kind);
inline bool communicates(TaskKind kind) { return kind >= TaskKind::copy; }
inline bool is_message(TaskKind kind) { return kind >= TaskKind::send; }

/// Tasks of one stream of a device run in the order of Plan::tasks; streams wait for each other by
/// Task::after only. A GPU has a stream each for work; a CPU device runs whichever of the three has a task
/// that can start. Messages run beside them: a device sends one and receives one at a time for its layers,
/// and one of each for its updates, because layers must not wait behind gradients and weights.
enum class Stream { compute, copy, update, send, receive, send_update, receive_update };
constexpr int kStreams = 7;
constexpr int kWorkStreams = 3;  ///< the first ones, without messages
/// The order in which a CPU device asks its streams: others wait for copies, and updates find their gradients
/// in the cache.
constexpr std::array<Stream, kWorkStreams> kStreamOrder = {Stream::copy, Stream::update, Stream::compute};
const char* to_string(Stream stream);

struct BufferUse {
  BufferId buffer{0};
  Access access = Access::read;
  int version = 0;  ///< tasks of the plan that have written these bytes before: which contents are meant
  std::int64_t begin = 0, bytes = -1;  ///< the part of the buffer that is used, as flat memory; -1: all of it
};

struct Task {
  TaskKind kind = TaskKind::forward;
  NodeId node;  ///< none where it is for no layer, or for several (layer_shares)
  int microbatch = 0;
  int pass = 0;
  DeviceId device{0};
  Stream stream = Stream::compute;
  OpDesc op;                    ///< means nothing for messages
  OpForm form;                  ///< how the operation reads and writes memory
  std::vector<BufferUse> uses;  ///< one per argument of the operation
  BufferId workspace;           ///< none where the operation needs no workspace
  /// Tasks that must be done before, without those that follow from the others and from the order of a
  /// stream.
  std::vector<TaskId> after;
  /// The other end of a message. A receive task also waits until the send task has begun.
  TaskId partner;
  double flops = 0;
  std::int64_t bytes = 0;  ///< read and written
};

/// A part of a matrix that one replica updates: a range of the weights' flat memory.
struct UpdateShard {
  int replica = 0;                    ///< the owner
  std::int64_t begin = 0, count = 0;  ///< floats
  BufferId increment;                 ///< holds `count` floats
  BufferId accumulator;               ///< likewise; none if the update period ends with the minibatch
  BufferId squares;                   ///< likewise; none unless the optimiser is AdamW
};

/// A part of a matrix whose running average one replica keeps: a range of the weights' flat memory.
struct AverageShard {
  int replica = 0;
  std::int64_t begin = 0, count = 0;  ///< floats
  BufferId average;                   ///< holds `count` floats
};

/// A learned matrix: the buffers that hold it, and where its rates stand in the step block.
struct WeightBuffers {
  NodeId node{0};                      ///< the owner
  std::size_t index = 0;               ///< into Layer::weights
  std::string name;                    ///< of its tensor in checkpoints: "conv1.weights.data"
  std::vector<BufferId> weights;       ///< by replica; all have the same layout and values
  std::vector<UpdateShard> shards;     ///< empty in nets that only test, and of state
  std::vector<AverageShard> averages;  ///< empty where no averages are kept
  /// The first entry in the table of rates. Updates of AdamW have an entry each, those of other optimisers
  /// share one.
  std::int64_t rate_index = 0;
  int rates = 1;  ///< number of its entries

  /// Whether its updates span several minibatches.
  bool accumulates() const { return !shards.empty() && shards[0].accumulator.exists(); }
  /// Whether means of squared gradients are kept for it, for AdamW.
  bool keeps_squares() const { return !shards.empty() && shards[0].squares.exists(); }
};

/// The place of a cost layer's values in the costs buffer.
struct CostSlot {
  NodeId node{0};
  std::int64_t slot = 0;
  int values = 0;
};

struct DeviceMemoryNeeds {
  std::int64_t persistent = 0, transient = 0;
  std::map<BufferKind, std::int64_t>
      by_kind;  ///< persistent kinds: sums; transient kinds: at the fullest moment
};

struct Plan {
  std::string target, precision;  ///< Target::name() and precision()
  Topology topology;              ///< of the devices
  Phase phase = Phase::train;
  std::int64_t images = 0;          ///< all views of them
  std::int64_t views = 1;           ///< neighbours that are views of one image, in the same microbatch
  Table<BufferId, Buffer> buffers;  ///< the persistent ones first, the same in all plans of a PlanSet
  Table<TaskId, Task> tasks;        ///< in program order
  std::vector<BufferId> inputs;     ///< bound to the provider's matrix i; none if no data layer reads it
  std::vector<CostSlot> costs;
  std::vector<std::string> rewrites;  ///< outputs without memory of their own, and fused tasks; a line each
  Table<DeviceId, DeviceMemoryNeeds> memory;
};

/// Checks a plan (docs/design.md lists what): throws std::logic_error naming the first two tasks that are
/// wrong.
void verify(const Plan& plan, const Graph& graph);

/// Microbatches whose gradients make one update of the weights of `owner` within a minibatch. Gradient checks
/// update once, by all of them.
int update_window(const Graph& graph, const Node& owner, Phase phase);

/// Adds a buffer that has no place yet to the end of `buffers` and returns its id.
BufferId add_buffer(Table<BufferId, Buffer>& buffers, std::string name, BufferKind kind, DeviceId device,
                    TensorDesc desc);

/// Returns the number of devices that tasks and buffers of the plan are on, with those between them.
int device_count(const Plan& plan);

/// Bytes of a buffer that a task reads or writes.
std::int64_t bytes_of(const Plan& plan, const BufferUse& use);

/// Bytes that a task reads elsewhere than on its device, by device. No device stands for the host.
std::map<DeviceId, std::int64_t> bytes_fetched(const Plan& plan, const Task& task);

/// The share of a task that it does for one layer.
struct LayerShare {
  NodeId node;  ///< none for the share that is for no layer
  std::int64_t bytes = 0;
  std::int64_t fetched = 0;  ///< of these, from other devices
  double part = 0;           ///< of the task, by bytes
};
/// Returns the shares by layer. A task does all its work for its node; one that joins the updates of several
/// layers has no node, and its shares are those of the matrices' owners.
std::vector<LayerShare> layer_shares(const Plan& plan, const Task& task);

/// Places transient buffers by liveness and fills Plan::memory.
void place_buffers(Plan& plan, int devices);

/// Returns bytes that the device with the fullest memory needs at least: what outlives a step, and what is in
/// use at the fullest moment. Needs no places of transient buffers, which need somewhat more.
std::int64_t least_memory(const Plan& plan, int devices);

/// Returns what the task does, for output: its operation's name, or "send" or "receive".
std::string work_name(const Task& task);

/// "conv1 forward (conv.forward, device 0)": for errors and profiles.
std::string describe(const Task& task, const Graph& graph);

}  // namespace convnet
