// Convolutions through cuDNN's graph interface. For every operation the engines that the library proposes are
// timed once; the choice is kept (tuning.h). Only deterministic engines are asked, and none that is compiled
// at run time. Plans are made on the first device and run on all, which are taken to be of one kind.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "convnet/base/clock.h"
#include "kernels/cuda/conv_edges.h"
#include "kernels/cuda/form.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/prepare.h"
#include "kernels/cuda/sizes.h"
#include "kernels/cuda/tuning.h"

namespace convnet::cuda {
namespace {

/// A descriptor of the library: set attributes, finalize, use.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    check(cudnnBackendCreateDescriptor(type, handle_.put()), "making a descriptor");
  }
  cudnnBackendDescriptor_t get() const { return handle_.get(); }

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
           const void* values) const {
    check(cudnnBackendSetAttribute(get(), name, type, count, values), "attribute " + std::to_string(name));
  }
  void set(cudnnBackendAttributeName_t name, const std::vector<std::int64_t>& values) const {
    set(name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), values.data());
  }
  void set(cudnnBackendAttributeName_t name, std::int64_t value) const {
    set(name, CUDNN_TYPE_INT64, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, float value) const { set(name, CUDNN_TYPE_FLOAT, 1, &value); }
  void set(cudnnBackendAttributeName_t name, const Descriptor& value) const {
    cudnnBackendDescriptor_t handle = value.get();
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &handle);
  }
  void set(cudnnBackendAttributeName_t name, cudnnHandle_t value) const {
    set(name, CUDNN_TYPE_HANDLE, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, cudnnDataType_t value) const {
    set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
  }
  void finalize(const char* what = "describing a convolution") const {
    check(cudnnBackendFinalize(get()), what);
  }

 private:
  Owned<cudnnBackendDescriptor_t, cudnnBackendDestroyDescriptor> handle_;
};

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

enum class Pass { forward, backward_data, backward_weights };

/// One way to do an operation.
struct Variant {
  /// Bias and relu are part of the graph; in bf16 runs the bias is then rounded to bf16 before, which engines
  /// that are not compiled at run time ask for.
  bool fused = false;
  bool padded = false;  ///< borders are copied around the images before (or cut off after)
  bool narrow = false;  ///< the weights' gradient is made as bf16, and widened after
  std::string name() const {
    return std::string(fused ? "fused" : "plain") + (padded ? "+padded" : "") + (narrow ? "+narrow" : "");
  }
};

struct Problem {
  Pass pass = Pass::forward;
  ConvGeometry g;
  bool bias = false, relu = false, accumulate = false;
  bool plain_images = false;  ///< a flat vector that is read as maps lies plain
  Precision precision = Precision::tf32;

  /// The type of the activations and of the weights.
  DataType type() const { return product_type(precision); }
  /// The library gets a copy of the bias.
  bool rounds_bias(const Variant& variant) const { return variant.fused && bias && type() == DataType::bf16; }
  std::string name() const {
    static constexpr std::array kPasses = {"forward", "backward_data", "backward_weights"};
    return std::string("conv.") + kPasses.at(static_cast<std::size_t>(pass)) + " " + to_string(g.src()) +
           " * " + to_string(g.weights()) + " -> " + to_string(g.dst()) + " stride " +
           std::to_string(g.stride) + " pad " + std::to_string(g.pad) + (bias ? " bias" : "") +
           (relu ? " relu" : "") + (accumulate ? " accumulate" : "") + (plain_images ? " plain images" : "") +
           " " + to_string(precision);
  }
};

/// Describes the steps and borders of a convolution.
Descriptor convolution_of(const ConvGeometry& g, bool padded) {
  Descriptor conv(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  conv.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  conv.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  conv.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2});
  conv.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, {1, 1});
  conv.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {g.stride, g.stride});
  const std::int64_t before = padded ? 0 : g.pad;
  conv.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {before, before});
  conv.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
           {padded ? 0 : overhang(g, g.oh, g.h), padded ? 0 : overhang(g, g.ow, g.w)});
  conv.finalize();
  return conv;
}

/// The library's names for the operation of a pass and its attributes.
struct PassNames {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t images, weights, output, convolution, alpha, beta;
};
PassNames names_of(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case Pass::backward_data:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case Pass::backward_weights: break;
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
Descriptor convolution_operation(const Problem& p, const Variant& variant, const Descriptor& output) {
  const DataType type = p.type();
  const bool wide = p.pass == Pass::backward_weights && !variant.narrow;
  const PassNames names = names_of(p.pass);
  Descriptor op(names.operation);
  op.set(names.images, variant.padded ? tensor(kImages, type, padded_images(p.g))
                                      : tensor(kImages, type, p.g.src(), false, p.plain_images));
  op.set(names.weights, tensor(kWeights, wide ? DataType::f32 : type, p.g.weights()));
  op.set(names.output, output);
  op.set(names.convolution, convolution_of(p.g, variant.padded));
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

/// The graph of a variant: the convolution, then bias and relu if they are fused. The descriptors that it is
/// made of need not outlive it.
Descriptor graph_of(const Problem& p, const Variant& variant, cudnnHandle_t handle) {
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

/// The engines that the library's heuristics propose, the best first. Empty where it knows nothing.
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

/// Whether an engine gives the same bits every time, in the precision that was asked for, and is there in
/// every process at once: compiling one takes more than a second, and a library that may be missing.
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
  if (numbers.have(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) return false;
  // Winograd's method with tiles of 13 x 13 loses digits, as rounding the factors does.
  const bool rounds = numbers.have(CUDNN_NUMERICAL_NOTE_TENSOR_CORE) ||
                      numbers.have(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13) ||
                      numbers.have(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
  return precision != Precision::fp32 || !rounds;
}

/// An engine with its settings, ready to run.
struct Plan {
  Descriptor descriptor;
  std::int64_t workspace = 0;
};

/// Throws DeviceError where the engine turns out not to support the problem, or wants more than `most` bytes.
Plan finalized(const Descriptor& config, cudnnHandle_t handle, std::int64_t most) {
  Plan plan{Descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)};
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

struct Pointers {
  const std::byte *images = nullptr, *weights = nullptr, *output = nullptr, *bias = nullptr;
};

void execute(const Plan& plan, Queue* queue, const Pointers& p, std::byte* workspace,
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

class ConvOp : public PreparedOp {
 public:
  ConvOp(const OpForm& form, const Problem& problem, const Context& context)
      : problem_(problem), budget_(form.workspace_bytes) {
    args_ = form.args;
    if (problem_.g.n > 0 && problem_.g.oh * problem_.g.ow > 0) choose(*context.tuning, context.device);
    algorithm_ = variant_.name() + ":" + std::to_string(index_);
    workspace_bytes_ = areas(variant_, plan_ ? plan_->workspace : 0).bytes;
  }

  void run(std::span<std::byte* const> p, std::byte* workspace, Queue* queue) const override {
    run_with(plan_ ? &*plan_ : nullptr, variant_, p, workspace, queue);
  }

 private:
  const TensorDesc& images_argument() const { return args_.at(problem_.pass == Pass::backward_data ? 2 : 0); }
  std::int64_t rows() const { return problem_.g.n * problem_.g.oh * problem_.g.ow; }

  /// Returns the parts of the workspace where an engine of `variant` takes `library_bytes`.
  ConvAreas areas(const Variant& variant, std::int64_t library_bytes) const {
    const ConvGeometry& g = problem_.g;
    const std::int64_t rounded = variant.narrow                  ? element_count(g.weights())
                                 : problem_.rounds_bias(variant) ? g.k
                                                                 : 0;
    const bool sums_bias = problem_.pass == Pass::backward_weights && problem_.bias;
    return {g, problem_.type(), {variant.padded, rounded, sums_bias}, library_bytes};
  }

  void run_with(const Plan* plan, const Variant& variant, std::span<std::byte* const> p, std::byte* workspace,
                Queue* queue) const {
    const Stream stream = stream_of(queue);
    const ConvGeometry& g = problem_.g;
    const DataType type = problem_.type();
    const View images = view_of(images_argument());
    const View padded = view_of(channels_last(padded_images(g), type));
    const ConvAreas at = areas(variant, plan != nullptr ? plan->workspace : 0);
    std::byte* const padded_copy = workspace + at.padded;
    std::byte* const rest = workspace + at.library;
    const auto pad = [&](const std::byte* whole) {
      if (variant.padded) pad_images(stream, type, images, whole, padded, g.pad, padded_copy);
      return variant.padded ? padded_copy : whole;
    };
    switch (problem_.pass) {
      case Pass::forward: {
        const float* bias = problem_.bias ? as_floats(p[2]) : nullptr;
        std::byte* fused_bias = variant.fused && problem_.bias ? p[2] : nullptr;
        if (problem_.rounds_bias(variant)) {
          fused_bias = workspace + at.rounded;
          narrow(stream, g.k, bias, reinterpret_cast<BFloat16*>(fused_bias));
        }
        const Pointers pointers{pad(p[0]), p[1], p.back(), fused_bias};
        if (plan != nullptr) execute(*plan, queue, pointers, rest, problem_.name());
        if (!variant.fused) add_bias_relu(stream, rows(), g.k, bias, problem_.relu, type, p.back());
        break;
      }
      case Pass::backward_data: {
        const Pointers pointers{variant.padded ? padded_copy : p[2], p[1], p[0], nullptr};
        if (plan != nullptr) execute(*plan, queue, pointers, rest, problem_.name());
        if (variant.padded) crop_images(stream, type, padded, padded_copy, g.pad, images, p[2]);
        break;
      }
      case Pass::backward_weights: {
        std::byte* const gradient = variant.narrow ? workspace + at.rounded : p[2];
        const Pointers pointers{pad(p[0]), gradient, p[1], nullptr};
        if (plan != nullptr)
          execute(*plan, queue, pointers, rest, problem_.name());
        else
          add_zeros(stream, as_floats(p[2]));
        if (plan != nullptr && variant.narrow)
          widen(stream, element_count(g.weights()), reinterpret_cast<const BFloat16*>(gradient),
                as_floats(p[2]));
        if (problem_.bias)
          bias_gradient(stream, rows(), g.k, type, p[1], workspace + at.sums, as_floats(p[3]));
        break;
      }
    }
  }

  /// Zeroes the gradient of the weights, which is the sum over no images.
  void add_zeros(Stream stream, float* weights) const {
    check(cudaMemsetAsync(weights, 0,
                          static_cast<std::size_t>(element_count(problem_.g.weights())) * sizeof(float),
                          stream.handle),
          "zeroing a gradient");
  }

  /// Variants that round a gradient stand last.
  std::vector<Variant> variants() const {
    const bool can_fuse =
        problem_.pass == Pass::forward && !problem_.accumulate && (problem_.bias || problem_.relu);
    const bool can_narrow = problem_.pass == Pass::backward_weights && problem_.type() == DataType::bf16;
    std::vector<Variant> all;
    for (const bool narrow : {false, true}) {
      for (const bool padded : {false, true}) {
        if ((narrow && !can_narrow) || (padded && symmetric(problem_.g))) continue;
        if (can_fuse) all.push_back({true, padded, narrow});
        all.push_back({false, padded, narrow});
      }
    }
    return all;
  }

  /// The plan of a choice, as algorithm_ names it. False where there is none any more.
  bool take(const std::string& choice, cudnnHandle_t handle) {
    for (const Variant& variant : variants()) {
      const std::string prefix = variant.name() + ":";
      if (!choice.starts_with(prefix)) continue;
      const auto index = static_cast<std::size_t>(std::strtoul(choice.c_str() + prefix.size(), nullptr, 10));
      try {
        const auto found = candidates(variant, handle);
        if (index >= found.size()) return false;
        plan_ = finalized(found[index], handle, library_budget(variant));
      } catch (const DeviceError&) {
        return false;
      }
      variant_ = variant;
      index_ = index;
      return true;
    }
    return false;
  }

  /// First those that the library thinks fast, then those that it thinks safe.
  std::vector<Descriptor> candidates(const Variant& variant, cudnnHandle_t handle) const {
    const Descriptor graph = graph_of(problem_, variant, handle);
    std::vector<Descriptor> found;
    for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
      for (Descriptor& config : proposals(graph, mode)) {
        if (acceptable(config, problem_.precision)) found.push_back(std::move(config));
      }
    }
    return found;
  }

  void choose(Tuning& tuning, int device) {
    Queue& queue = tuning.queue(device);
    const cudnnHandle_t handle = cudnn_of(&queue);
    const std::string library = "cudnn " + std::to_string(cudnnGetVersion());
    const auto try_them = [&] {
      const std::unique_ptr<const Trial> trial = trial_of(queue, device, tuning.times());
      try_candidates(*trial, library);
      return variant_.name() + ":" + std::to_string(index_);
    };
    try {
      if (tuning.times())
        tuning.choose(
            problem_.name() + " " + library, [&](const std::string& kept) { return take(kept, handle); },
            try_them);
      else
        try_them();
    } catch (const NoRoom&) {
      if (!take_untried(handle)) throw;
    }
  }

  /// Takes the first proposal that a plan can be made of, and keeps no choice: a plan that is bound while
  /// others have nearly all memory is not timed. Without relus in the graph: an untried engine may lose NaN.
  /// False where there is none.
  bool take_untried(cudnnHandle_t handle) {
    for (const Variant& variant : variants()) {
      if (variant.fused && problem_.relu) continue;
      std::vector<Descriptor> found;
      try {
        found = candidates(variant, handle);
      } catch (const DeviceError&) {
        continue;
      }
      for (std::size_t i = 0; i < found.size(); ++i) {
        try {
          plan_ = finalized(found[i], handle, library_budget(variant));
        } catch (const DeviceError&) {
          continue;
        }
        variant_ = variant;
        index_ = i;
        return true;
      }
    }
    return false;
  }

  /// Memory of an operation's arguments, with numbers, and the queue where its plans run.
  class Trial {
   public:
    Trial(const std::vector<TensorDesc>& args, Queue& queue_of_trial, int device_of_queue, bool times)
        : queue(queue_of_trial),
          device(device_of_queue),
          delay(times ? std::make_unique<Delay>(device_of_queue) : nullptr) {
      for (const TensorDesc& arg : args) {
        memory_.push_back(allocate_memory(device, arg.bytes()));
        pointers.push_back(memory_.back()->data());
        fill(pointers.size() - 1, kNumbers);
      }
    }
    // Bytes of arguments, f32 or bf16. Zeros would be multiplied faster than numbers are.
    static constexpr int kNumbers = 0x3c;  ///< 0.0115
    static constexpr int kNan = 0xff;
    void fill(std::size_t argument, int byte) const {
      check(
          cudaMemsetAsync(pointers.at(argument), byte,
                          static_cast<std::size_t>(memory_.at(argument)->bytes()), stream_of(&queue).handle),
          "filling memory");
    }
    /// After a failure: throws where the device is lost for the process, else forgets the error, which the
    /// next kernel would report again.
    void recover(const std::string& what) const {
      static_cast<void>(cudaGetLastError());
      check(cudaStreamSynchronize(stream_of(&queue).handle), ("trying " + what).c_str());
    }

    Queue& queue;
    int device;
    std::unique_ptr<Delay> delay;  ///< null where nothing is timed
    std::vector<std::byte*> pointers;

   private:
    std::vector<std::unique_ptr<DeviceMemory>> memory_;
  };

  /// There is no memory to try plans in.
  class NoRoom : public DeviceError {
    using DeviceError::DeviceError;
  };
  std::unique_ptr<const Trial> trial_of(Queue& queue, int device, bool times) const {
    try {
      return std::make_unique<const Trial>(args_, queue, device, times);
    } catch (const DeviceError& error) {
      throw NoRoom(error.what());
    }
  }

  /// Takes the fastest plan, or without timing the first that runs.
  void try_candidates(const Trial& trial, const std::string& library) {
    const bool times = trial.delay != nullptr;
    const auto start = Clock::now();
    double best = 0;
    std::string failure;  // the first: of what the library thinks best
    const auto attempt = [&](const auto& work) {
      try {
        work();
      } catch (const DeviceError& error) {
        if (failure.empty()) failure = error.what();
        trial.recover(problem_.name());
      }
    };
    const cudnnHandle_t handle = cudnn_of(&trial.queue);
    for (const Variant& variant : variants()) {
      // Speed does not decide whether a gradient is rounded.
      if (plan_ && (!times || (variant.narrow && !variant_.narrow))) break;
      // Of those that run. The library puts the fastest first most of the time.
      constexpr int kFew = 8, kMost = 16;
      constexpr double kFewOnlyFrom = 1;  // seconds of this operation
      const auto most_tried = [&] { return !times ? 1 : seconds_since(start) < kFewOnlyFrom ? kMost : kFew; };
      std::vector<Descriptor> found;
      attempt([&] { found = candidates(variant, handle); });
      int tried = 0;
      for (std::size_t i = 0; i < found.size() && tried < most_tried(); ++i) {
        attempt([&] {
          Plan plan = finalized(found[i], handle, library_budget(variant));
          if (variant.fused && problem_.relu && !keeps_nan(plan, variant, trial)) return;
          const double seconds = time(plan, variant, trial, plan_ ? best : 0);
          ++tried;
          if (plan_ && seconds >= best) return;
          best = seconds;
          plan_ = std::move(plan);
          variant_ = variant;
          index_ = i;
        });
      }
    }
    if (!plan_)
      throw DeviceError(problem_.name() + ": " + library +
                        " cannot do this: " + (failure.empty() ? "it proposes no engine" : failure));
  }

  std::unique_ptr<DeviceMemory> workspace_of(const Plan& plan, const Variant& variant,
                                             const Trial& trial) const {
    return allocate_memory(trial.device, areas(variant, plan.workspace).bytes);
  }

  /// Whether NaN in images comes out of a relu that is part of the graph: a broken layer must show, and not
  /// every engine heeds what pointwise operations are told of it.
  bool keeps_nan(const Plan& plan, const Variant& variant, const Trial& trial) const {
    const auto workspace = workspace_of(plan, variant, trial);
    trial.fill(0, Trial::kNan);
    run_with(&plan, variant, trial.pointers, workspace->data(), &trial.queue);
    trial.fill(0, Trial::kNumbers);
    wait_for(*trial.queue.mark());
    // Looks at all outputs of the first image: its first window may see nothing but the border.
    const std::int64_t count = problem_.g.k * problem_.g.oh * problem_.g.ow;
    bool kept = false;
    with_stored_type(problem_.type(), [&](auto stored) {
      std::vector<decltype(stored)> outputs(static_cast<std::size_t>(count));
      copy_memory(reinterpret_cast<std::byte*>(outputs.data()), trial.pointers.back(),
                  count * size_of(problem_.type()));
      kept = std::any_of(outputs.begin(), outputs.end(), [](auto y) { return std::isnan(to_float(y)); });
    });
    return kept;
  }

  /// Seconds of a run; of the first one where nothing is timed. Runs that are much slower than `best` (0:
  /// none) are not repeated. Throws DeviceError where it does not run or does not fit into memory.
  double time(const Plan& plan, const Variant& variant, const Trial& trial, double best) const {
    const int runs = trial.delay ? 5 : 0;  // beside the first, which loads the kernels
    constexpr double kHopeless = 1.5;
    const auto workspace = workspace_of(plan, variant, trial);
    std::vector<double> seconds;
    for (int run = 0; run <= runs; ++run) {
      if (trial.delay) trial.delay->put_into(trial.queue);
      const auto begin = trial.queue.mark();
      run_with(&plan, variant, trial.pointers, workspace->data(), &trial.queue);
      const auto end = trial.queue.mark();
      wait_for(*end);
      if (run > 0 || runs == 0) seconds.push_back(end->seconds_since(*begin));
      if (best > 0 && !seconds.empty() && seconds.back() > kHopeless * best) break;
    }
    return *std::min_element(seconds.begin(), seconds.end());
  }
  /// Bytes of the form's workspace that are left for the library.
  std::int64_t library_budget(const Variant& variant) const { return budget_ - areas(variant, 0).bytes; }

  Problem problem_;
  std::int64_t budget_;  ///< bytes of workspace that the form gives
  Variant variant_;
  std::size_t index_ = 0;     ///< of the candidate among the acceptable ones
  std::optional<Plan> plan_;  ///< none for no images
};

/// Whether images lie otherwise than channels last. Those of one channel or one pixel lie both ways, and the
/// library's fast engines want channels last.
bool lies_plain(const TensorDesc& images) { return !image_view(images).last; }

}  // namespace

template <>
Prepared prepare(const ConvForward& op, const OpForm& form, const Context& context) {
  return std::make_shared<ConvOp>(form,
                                  Problem{Pass::forward, op.g, op.bias, op.relu, op.accumulate,
                                          lies_plain(form.args[0]), context.precision},
                                  context);
}

template <>
Prepared prepare(const ConvBackwardData& op, const OpForm& form, const Context& context) {
  return std::make_shared<ConvOp>(
      form,
      Problem{Pass::backward_data, op.g, false, false, false, lies_plain(form.args[2]), context.precision},
      context);
}

template <>
Prepared prepare(const ConvBackwardWeights& op, const OpForm& form, const Context& context) {
  return std::make_shared<ConvOp>(form,
                                  Problem{Pass::backward_weights, op.g, op.bias, false, false,
                                          lies_plain(form.args[0]), context.precision},
                                  context);
}

}  // namespace convnet::cuda
