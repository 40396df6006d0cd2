// The static plan: every task of a minibatch, its buffers, its order. Data, made by a pure function of the
// graph, the number of images and the phase; the executor only follows it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "convnet/base/shared.h"
#include "convnet/graph/graph.h"
#include "convnet/plan/exchange.h"
#include "kernels/target.h"

namespace convnet {

/// The kind of a step. check: a training step without masks, noise and constraints, for gradient checks.
enum class Phase { train, test, check };

/// The kind of a buffer's contents. Buffers of the kinds up to `costs` live as long as the net.
enum class BufferKind {
  weights,
  rounded,      ///< weights as bf16, for products in bf16
  increment,    ///< momentum that contains the learning rate, as in cuda-convnet2
  accumulator,  ///< gradient accumulation over minibatches, where updatePeriod spans several
  squares,      ///< running means of squared gradients, of optimisers that keep them
  average,      ///< running averages of the weights
  mean,         ///< a mean image
  step,         ///< the step block: numbers of a step, like its rates (StepHeader)
  costs,
  input,  ///< a matrix of a minibatch, in the host's memory
  activation,
  gradient,
  weights_gradient,
  workspace,
  landing  ///< the contents of a message from another process
};

/// A piece of memory on one device.
struct Buffer {
  std::string name;  ///< "conv1", "d conv1", "conv1.weights.data", …
  BufferKind kind = BufferKind::activation;
  DeviceId device{0};
  TensorDesc desc;
  std::int64_t bytes = 0;
  /// The layer that owns the matrix, for kinds `weights` and `rounded`, for the sums of a host's gradients,
  /// and for landing buffers of a matrix or its gradients; else none.
  NodeId node;
  std::size_t index = 0;  ///< index of the matrix in Layer::weights
  /// Byte offset in the device's persistent or transient memory; -1 for `input`, which is the host's memory.
  std::int64_t offset = -1;

  /// Returns whether the buffer lives as long as the net. All others share the transient memory: buffers that
  /// are not in use at the same time may overlap.
  bool persistent() const { return kind <= BufferKind::costs; }
};

enum class TaskKind {
  load,  ///< copies images or labels from `input` to a device
  forward,
  backward,
  update,
  reorder,
  accumulate,
  zero,
  // Communication. Only these tasks may read the memory of other devices. They run on the device that
  // receives.
  copy,    ///< fetches activations and gradients that a layer on another device made; gathers parts
  reduce,  ///< sums over devices: gradients, statistics, flags of costs that are not finite
  reduce_scatter_update,  ///< sums a range of the weights' gradients over the replicas and updates that range
  all_gather,             ///< fetches a range of the weights that another replica has updated
  // The two ends of a message between processes. They have no operation.
  send,
  receive
};
const char* to_string(TaskKind kind);
inline bool communicates(TaskKind kind) { return kind >= TaskKind::copy; }
inline bool is_message(TaskKind kind) { return kind >= TaskKind::send; }

/// The stream of a task. Tasks of one stream of a device run in the order of Plan::tasks; tasks of different
/// streams are ordered only by Task::after. The first four streams are for work: a GPU runs them at the same
/// time, a CPU device runs one task at a time, from whichever of them has one that can start. Every other
/// chunk of a route is in `relay` instead of `copy`. The other streams are for messages, one at a time in
/// each. Messages for layers and messages for updates have streams of their own, because layers must not wait
/// behind gradients and weights.
enum class Stream { compute, copy, update, relay, send, receive, send_update, receive_update };
constexpr int kStreams = 8;
constexpr int kWorkStreams = 4;  ///< number of streams without those for messages
/// The order in which a CPU device looks at its streams. Copies come first because others wait for them;
/// updates come before computing because their gradients are still in the cache.
constexpr std::array<Stream, kWorkStreams> kStreamOrder = {Stream::copy, Stream::relay, Stream::update,
                                                           Stream::compute};
const char* to_string(Stream stream);
/// Returns whether a stream carries what layers wait for between devices.
inline bool is_for_layers(Stream stream) { return stream == Stream::copy || stream == Stream::relay; }

/// An argument of a task: the bytes of a buffer that it reads or writes.
struct BufferUse {
  BufferId buffer{0};
  Access access = Access::read;
  int version = 0;  ///< number of uses before this one that wrote to these bytes; identifies the contents
  std::int64_t begin = 0, bytes = -1;  ///< range of bytes in the buffer; bytes = -1: the whole buffer
};

/// One operation on one device, or one end of a message.
struct Task {
  TaskKind kind = TaskKind::forward;
  NodeId node;  ///< the layer that it is for; none if it is for no layer, or for several (layer_shares())
  int microbatch = 0;
  int pass = 0;
  DeviceId device{0};
  Stream stream = Stream::compute;
  Shared<OpDesc> op;            ///< meaningless for messages; tasks that run the same one share it
  Shared<OpForm> form;          ///< how the operation reads and writes memory
  std::vector<BufferUse> uses;  ///< one for each argument of the operation, or piece of the message
  BufferId workspace;           ///< none if the operation needs no workspace
  /// Tasks that must end before this one starts, without those that the order of streams and the other
  /// entries imply.
  std::vector<TaskId> after;
  /// The other end of a message. A receive task also waits until the send task has begun.
  TaskId partner;
  double flops = 0;        ///< floating-point operations, as op_flops()
  std::int64_t bytes = 0;  ///< bytes read and written, together
};

/// A part of a matrix that one replica updates: a range of the weights' flat memory.
struct UpdateShard {
  Exchange::Share share;              ///< of the replica that updates it, in the exchange of the replicas
  std::int64_t begin = 0, count = 0;  ///< in floats
  BufferId increment;                 ///< holds `count` floats
  BufferId accumulator;               ///< likewise; none if the update period ends with the minibatch
  BufferId squares;                   ///< likewise; none unless the optimiser keeps squares

  int owner() const { return share.owner; }  ///< the replica that updates it
};

/// A part of a matrix whose running average one replica keeps: a range of the weights' flat memory.
struct AverageShard {
  int replica = 0;
  std::int64_t begin = 0, count = 0;  ///< in floats
  BufferId average;                   ///< holds `count` floats
};

/// A weight matrix: the buffers that hold it, and the place of its rates in the step block.
struct WeightBuffers {
  NodeId node{0};                 ///< the node that owns the matrix
  std::size_t index = 0;          ///< index in Layer::weights
  std::string name;               ///< name of its tensor in checkpoints: "conv1.weights.data"
  std::vector<BufferId> weights;  ///< by replica; all have the same layout and values
  /// By replica: the same weights rounded to bf16. A task that writes a range of the weights writes that
  /// range here as well. Empty if forward does not read the matrix in bf16; in nets that learn also if it
  /// reads it in another layout, or if a constraint changes it after updates.
  std::vector<BufferId> rounded;
  /// Empty in nets that only test, for running statistics, and for frozen matrices.
  std::vector<UpdateShard> shards;
  std::vector<AverageShard> averages;  ///< empty if no averages are kept, and for frozen matrices
  /// The first entry in the table of rates. Updates of AdamW have an entry each, those of other optimisers
  /// share one.
  std::int64_t rate_index = 0;
  int rates = 1;  ///< number of its entries

  /// Whether its updates span several minibatches.
  bool accumulates() const { return !shards.empty() && shards[0].accumulator.exists(); }
  /// Whether running means of squared gradients are kept for it.
  bool keeps_squares() const { return !shards.empty() && shards[0].squares.exists(); }
};

/// The place of a cost layer's values in the costs buffer: `values` doubles from entry `slot` on.
struct CostSlot {
  NodeId node{0};
  std::int64_t slot = 0;
  int values = 0;
};

/// Bytes of memory that a device needs.
struct DeviceMemoryNeeds {
  std::int64_t persistent = 0, transient = 0;
  /// For persistent kinds the sum, for transient kinds the bytes in use at the fullest moment.
  std::map<BufferKind, std::int64_t> by_kind;
};

/// A plan of one step of a net: a minibatch of training, or of a test.
struct Plan {
  std::string target, precision;  ///< Target::name() and precision()
  Topology topology;              ///< the hosts and processes of the devices
  Phase phase = Phase::train;
  std::int64_t images = 0;          ///< rows of the minibatch: all views of its images
  std::int64_t views = 1;           ///< number of consecutive rows that are views of one image
  Table<BufferId, Buffer> buffers;  ///< the persistent ones first, the same in all plans of a PlanSet
  Table<TaskId, Task> tasks;        ///< in program order
  std::vector<BufferId> inputs;     ///< by the provider's matrix; none if no data layer reads it
  std::vector<CostSlot> costs;
  std::vector<std::string> rewrites;  ///< a line for each output without own memory and each fused task
  Table<DeviceId, DeviceMemoryNeeds> memory;
};

/// Returns the number of microbatches of a minibatch whose gradients make one update of the weights of
/// `owner`; all of them for Phase::check.
int microbatches_per_update(const Graph& graph, const Node& owner, Phase phase);

/// Adds a buffer that has no place yet to the end of `buffers` and returns its id.
BufferId add_buffer(Table<BufferId, Buffer>& buffers, std::string name, BufferKind kind, DeviceId device,
                    TensorDesc desc);

/// Returns 1 + the largest index of a device that a task or a buffer of the plan is on.
int device_count(const Plan& plan);

/// Returns the number of bytes that a task reads or writes by `use`.
std::int64_t bytes_of(const Plan& plan, const BufferUse& use);

/// Returns the bytes that a task reads from other devices, by device. The key DeviceId(), no device, stands
/// for the host.
std::map<DeviceId, std::int64_t> bytes_fetched(const Plan& plan, const Task& task);

/// The share of a task's work that is for one layer.
struct LayerShare {
  NodeId node;  ///< none for work that is for no layer
  std::int64_t bytes = 0;
  std::int64_t fetched = 0;  ///< part of `bytes` that comes from other devices
  double part = 0;           ///< fraction of the task's bytes
};
/// Returns the shares of a task by layer. A task with a node does all of its work for it. A task that updates
/// matrices of several layers has no node, and its work belongs to the owners of the matrices.
std::vector<LayerShare> layer_shares(const Plan& plan, const Task& task);

/// Returns the tasks that a task waits for; a receive task waits for what is sent to it, too.
std::vector<TaskId> causes(const Task& task);

/// Returns the name of the task's operation, or "send" or "receive", for output.
std::string work_name(const Task& task);

/// Returns "conv1 forward: conv.forward, device 0", for errors and profiles. Tasks of several layers name the
/// first ones, and messages of several layers what they carry: "d conv1.weights.data, d fc1.biases receive,
/// device 1".
std::string describe(const Plan& plan, const Task& task, const Graph& graph);

}  // namespace convnet
