#include "kernels/cuda/cudnn_graph.h"

#include <algorithm>

namespace convnet::cuda {
namespace {

// Names of the tensors of a graph.
constexpr std::int64_t kImages = 1, kWeights = 2, kOutput = 3, kBias = 4, kConvolved = 5, kBiased = 6;

/// Dims (N,C,H,W), stored (N,H,W,C) unless `plain`. What is virtual exists within the graph alone, as f32.
Descriptor tensor(std::int64_t id, DataType type, const Dims& d, bool is_virtual = false,
                  bool plain = false) {
  Descriptor t(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const bool bf16 = type == DataType::bf16 && !is_virtual;
  t.set(CUDNN_ATTR_TENSOR_DATA_TYPE, bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT);
  t.set(CUDNN_ATTR_TENSOR_DIMENSIONS, d);
  t.set(CUDNN_ATTR_TENSOR_STRIDES, plain ? Dims{d[1] * d[2] * d[3], d[2] * d[3], d[3], 1}
                                         : Dims{d[1] * d[2] * d[3], 1, d[3] * d[1], d[1]});
  t.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  // Arguments are aligned to 64 bytes, the parts of the workspace too.
  t.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{16});
  t.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  t.finalize();
  return t;
}

/// Describes the steps and borders of a convolution.
Descriptor convolution_of(const ConvGeometry& g) {
  Descriptor conv(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  conv.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  conv.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  conv.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2});
  conv.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, {g.dilation.y, g.dilation.x});
  conv.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {g.stride.y, g.stride.x});
  conv.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {g.pad.y, g.pad.x});
  conv.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {overhang(g.rows()), overhang(g.columns())});
  conv.finalize();
  return conv;
}

/// The library's names for the operation of a pass and its attributes.
struct PassNames {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t images, weights, output, convolution, alpha, beta;
};
PassNames names_of(ConvPass pass) {
  switch (pass) {
    case ConvPass::forward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case ConvPass::backward_data:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case ConvPass::backward_weights: break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
}

/// The convolution of a variant; `output` is what the forward pass makes, or its gradient.
Descriptor convolution_operation(const ConvProblem& p, const ConvVariant& variant, const Descriptor& output) {
  const DataType type = p.type();
  const PassNames names = names_of(p.pass);
  Descriptor op(names.operation);
  const ConvGeometry g = p.geometry(variant);
  op.set(names.images,
         tensor(kImages, type, g.src(), false, p.plain_images && variant.images == ConvImages::given));
  op.set(names.weights, tensor(kWeights, type, g.weights()));
  op.set(names.output, output);
  op.set(names.convolution, convolution_of(g));
  op.set(names.alpha, 1.0F);
  op.set(names.beta, p.accumulate ? 1.0F : 0.0F);
  op.finalize();
  return op;
}

/// An operation on each element of `from`, and of `bias` where there is one.
Descriptor pointwise_operation(cudnnPointwiseMode_t mode, const Descriptor& from, const Descriptor* bias,
                               const Descriptor& to) {
  Descriptor pointwise(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  pointwise.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  pointwise.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  // A broken layer must show.
  const cudnnNanPropagation_t keeps_nan = CUDNN_PROPAGATE_NAN;
  pointwise.set(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, &keeps_nan);
  pointwise.finalize();
  Descriptor op(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise);
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, from);
  if (bias != nullptr) op.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *bias);
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to);
  op.finalize();
  return op;
}

/// The notes of one kind that an engine carries about itself.
template <class Note, std::size_t Most>
class Notes {
 public:
  Notes(const Descriptor& engine, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) {
    check(cudnnBackendGetAttribute(engine.get(), name, type, std::ssize(notes_), &count_, notes_.data()),
          "asking for an engine's properties");
    count_ = std::min(count_, std::ssize(notes_));  // a newer library knows more of them
  }
  bool have(Note note) const {
    return std::find(notes_.begin(), notes_.begin() + count_, note) != notes_.begin() + count_;
  }

 private:
  std::array<Note, Most> notes_{};
  std::int64_t count_ = 0;
};

}  // namespace

// The descriptors that the graph is made of need not outlive it.
Descriptor graph_of(const ConvProblem& p, const ConvVariant& variant, cudnnHandle_t handle) {
  const bool adds_bias = variant.fused && p.bias, applies_relu = variant.fused && p.relu;
  const auto result = [&](std::int64_t id, bool is_virtual) {
    return tensor(is_virtual ? id : kOutput, p.type(), p.g.dst(), is_virtual);
  };
  std::vector<Descriptor> operations;
  Descriptor last = result(kConvolved, adds_bias || applies_relu);
  operations.push_back(convolution_operation(p, variant, last));
  if (adds_bias) {
    const Descriptor bias = tensor(kBias, p.type(), {1, p.g.k, 1, 1});
    Descriptor biased = result(kBiased, applies_relu);
    operations.push_back(pointwise_operation(CUDNN_POINTWISE_ADD, last, &bias, biased));
    last = std::move(biased);
  }
  if (applies_relu)
    operations.push_back(
        pointwise_operation(CUDNN_POINTWISE_RELU_FWD, last, nullptr, result(kOutput, false)));

  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  std::vector<cudnnBackendDescriptor_t> handles;
  for (const Descriptor& op : operations) handles.push_back(op.get());
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            static_cast<std::int64_t>(handles.size()), handles.data());
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  graph.finalize();
  return graph;
}

std::vector<Descriptor> proposals(const Descriptor& graph, cudnnBackendHeurMode_t mode) {
  constexpr std::int64_t kMost = 128;  // those of fp32 stand behind all that use tensor cores
  const Descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (cudnnBackendFinalize(heuristic.get()) != CUDNN_STATUS_SUCCESS) return {};
  std::vector<Descriptor> configs;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (std::int64_t i = 0; i < kMost; ++i) {
    configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    handles.push_back(configs.back().get());
  }
  std::int64_t count = 0;
  if (cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                               kMost, &count, handles.data()) != CUDNN_STATUS_SUCCESS)
    return {};
  configs.erase(configs.begin() + std::min<std::ptrdiff_t>(kMost, count), configs.end());
  return configs;
}

bool acceptable(const Descriptor& config, Precision precision) {
  const Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t handle = engine.get();
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                 &count, &handle),
        "asking for an engine");
  const Notes<cudnnBackendBehaviorNote_t, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT> behavior(
      engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE);
  if (behavior.have(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION)) return false;
  const Notes<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> numbers(
      engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE);
  // Inputs that are converted become f16, in which small gradients are 0. Sums are f32 in every precision.
  for (const cudnnBackendNumericalNote_t note :
       {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
        CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION})
    if (numbers.have(note)) return false;
  // Winograd's method with tiles of 13 x 13 loses digits, as rounding the factors does.
  const bool rounds = numbers.have(CUDNN_NUMERICAL_NOTE_TENSOR_CORE) ||
                      numbers.have(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13);
  return precision != Precision::fp32 || !rounds;
}

ConvPlan finalized(const Descriptor& config, cudnnHandle_t handle, std::int64_t most) {
  ConvPlan plan{Descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)};
  plan.descriptor.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle);
  plan.descriptor.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  plan.descriptor.finalize("preparing a convolution");
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(plan.descriptor.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                 CUDNN_TYPE_INT64, 1, &count, &plan.workspace),
        "asking for a workspace's size");
  if (plan.workspace > most)
    throw DeviceError("cuDNN: a convolution wants " + std::to_string(plan.workspace) +
                      " bytes of workspace and gets " + std::to_string(most));
  return plan;
}

void execute(const ConvPlan& plan, Queue* queue, const ConvPointers& p, std::byte* workspace,
             const std::string& what) {
  std::vector<std::int64_t> ids = {kImages, kWeights, kOutput};
  std::vector<const void*> pointers = {p.images, p.weights, p.output};
  if (p.bias != nullptr) {
    ids.push_back(kBias);
    pointers.push_back(p.bias);
  }
  const Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
           static_cast<std::int64_t>(pointers.size()), pointers.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  pack.finalize();
  check(cudnnBackendExecute(cudnn_of(queue), plan.descriptor.get(), pack.get()), what);
}

}  // namespace convnet::cuda
