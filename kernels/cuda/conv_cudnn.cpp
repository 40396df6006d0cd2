// Convolutions through cuDNN's graph interface. For every operation, the engines that the library proposes
// are timed once, and our own kernels beside them where there are any; the choice is kept (tuning.h). Only
// deterministic engines that are not compiled at run time are used. All devices are assumed to be of one
// kind: they share the choices.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "convnet/base/clock.h"
#include "kernels/cuda/conv_edges.h"
#include "kernels/cuda/conv_library.h"
#include "kernels/cuda/cudnn_graph.h"
#include "kernels/cuda/form.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/sizes.h"
#include "kernels/cuda/tuning.h"

namespace convnet::cuda {

/// The engine that was chosen for a convolution. Operations that are alike share its plan, which running does
/// not change.
struct ChosenConvolution {
  ConvVariant variant;
  std::size_t index = 0;                 ///< index among the variant's candidates
  std::shared_ptr<const ConvPlan> plan;  ///< null: our own kernels do it
};

namespace {

class ConvOp : public PreparedOp {
 public:
  /// See prepare_by_library().
  ConvOp(const OpForm& form, const ConvProblem& problem, const Context& context, const PreparedOp* own)
      : problem_(problem), budget_(form.workspace_bytes) {
    args_ = form.args;
    choose(*context.tuning, context.device, own);
    algorithm_ = chosen_name();
    if (has_plan()) workspace_bytes_ = areas(chosen_.variant, chosen_.plan->workspace).bytes;
  }
  /// Returns whether the library does the convolution; else our own kernels are to do it.
  bool has_plan() const { return chosen_.plan != nullptr; }

  void run(std::span<std::byte* const> p, std::byte* workspace, Queue* queue) const override {
    run_with(*chosen_.plan, chosen_.variant, p, workspace, queue);
  }

 private:
  const TensorDesc& images_argument() const {
    return args_.at(problem_.pass == ConvPass::backward_data ? 2 : 0);
  }
  std::string chosen_name() const {
    return has_plan() ? chosen_.variant.name() + ":" + std::to_string(chosen_.index) : kOwn;
  }
  std::int64_t rows() const { return problem_.g.n * problem_.g.oh * problem_.g.ow; }

  /// Returns the parts of the workspace where an engine of `variant` takes `library_bytes`.
  ConvAreas areas(const ConvVariant& variant, std::int64_t library_bytes) const {
    const ConvGeometry g = problem_.geometry(variant);
    ConvExtras extras;
    if (variant.images != ConvImages::given) extras.images = image_bytes(g, problem_.type());
    if (variant.images == ConvImages::blocks)
      extras.weights = element_count(g.weights()) * size_of(problem_.type());
    extras.sums_bias = problem_.pass == ConvPass::backward_weights && problem_.bias;
    return {g, extras, library_bytes};
  }

  void run_with(const ConvPlan& plan, const ConvVariant& variant, std::span<std::byte* const> p,
                std::byte* workspace, Queue* queue) const {
    const Stream stream = stream_of(queue);
    const ConvGeometry& g = problem_.g;
    const ConvGeometry seen = problem_.geometry(variant);
    const DataType type = problem_.type();
    const auto view = [](const Dims& dims) { return view_of(channels_last(dims)); };
    const bool copies = variant.images != ConvImages::given, in_blocks = variant.images == ConvImages::blocks;
    const std::int64_t side = in_blocks ? g.stride.x : 1;
    const Blocks blocks{side, g.pad}, filter_blocks{side, 0};
    const ConvAreas at = areas(variant, plan.workspace);
    std::byte* const image_copy = workspace + at.images;
    std::byte* const weights_copy = workspace + at.weights;
    std::byte* const rest = workspace + at.library;
    const auto images_of = [&](const std::byte* given) {
      if (copies)
        to_blocks(stream, type, view_of(images_argument()), given, blocks, view(seen.src()), image_copy);
      return copies ? image_copy : given;
    };
    switch (problem_.pass) {
      case ConvPass::forward: {
        const std::byte* bias = problem_.bias ? p[2] : nullptr;
        if (in_blocks)
          to_blocks(stream, type, view(g.weights()), p[1], filter_blocks, view(seen.weights()), weights_copy);
        const ConvPointers pointers{images_of(p[0]), in_blocks ? weights_copy : p[1], p.back(),
                                    variant.fused ? bias : nullptr};
        execute(plan, queue, pointers, rest, problem_.name());
        if (!variant.fused) add_bias_relu(stream, rows(), g.k, bias, type, problem_.relu, type, p.back());
        break;
      }
      case ConvPass::backward_data: {
        const ConvPointers pointers{copies ? image_copy : p[2], p[1], p[0], nullptr};
        execute(plan, queue, pointers, rest, problem_.name());
        if (copies)
          from_blocks(stream, type, view(seen.src()), image_copy, blocks, view_of(images_argument()), type,
                      p[2]);
        break;
      }
      case ConvPass::backward_weights: {
        const ConvPointers pointers{images_of(p[0]), in_blocks ? weights_copy : p[2], p[1], nullptr};
        execute(plan, queue, pointers, rest, problem_.name());
        if (in_blocks)
          from_blocks(stream, type, view(seen.weights()), weights_copy, filter_blocks, view(g.weights()),
                      type, p[2]);
        if (problem_.bias)
          bias_gradient(stream, rows(), g.k, type, p[1], workspace + at.sums, as_floats(p[3]));
        break;
      }
    }
  }

  /// Returns whether the library may get the images in this form. The gradient of images with few channels is
  /// hardly ever wanted.
  bool can_get(ConvImages images) const {
    switch (images) {
      case ConvImages::given: break;
      case ConvImages::padded: return !symmetric(problem_.g);
      case ConvImages::blocks:
        return has_few_channels(problem_.g) && problem_.pass != ConvPass::backward_data;
    }
    return true;
  }

  /// Returns the variants that compute the problem.
  std::vector<ConvVariant> variants() const {
    const bool can_fuse =
        problem_.pass == ConvPass::forward && !problem_.accumulate && (problem_.bias || problem_.relu);
    std::vector<ConvVariant> all;
    for (const ConvImages images : {ConvImages::given, ConvImages::padded, ConvImages::blocks}) {
      if (!can_get(images)) continue;
      if (can_fuse) all.push_back({true, images});
      all.push_back({false, images});
    }
    return all;
  }

  /// Takes the choice that chosen_name() gave this name. Returns false if the library no longer offers it.
  bool take(const std::string& choice, cudnnHandle_t handle) {
    if (choice == kOwn) {
      chosen_ = {};
      return true;
    }
    for (const ConvVariant& variant : variants()) {
      const std::string prefix = variant.name() + ":";
      if (!choice.starts_with(prefix)) continue;
      const auto index = static_cast<std::size_t>(std::strtoul(choice.c_str() + prefix.size(), nullptr, 10));
      try {
        const auto found = candidates(variant, handle);
        if (index >= found.size()) return false;
        chosen_ = {variant, index, plan_of(found[index], variant, handle)};
        return true;
      } catch (const DeviceError&) {
        return false;
      }
    }
    return false;
  }

  std::shared_ptr<const ConvPlan> plan_of(const Descriptor& config, const ConvVariant& variant,
                                          cudnnHandle_t handle) const {
    return std::make_shared<const ConvPlan>(finalized(config, handle, library_budget(variant)));
  }

  /// The library proposes what it thinks fast in the first mode, and what it thinks safe in the second.
  static constexpr std::array kModes = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};

  std::vector<Descriptor> candidates(const Descriptor& graph, cudnnBackendHeurMode_t mode) const {
    std::vector<Descriptor> found = proposals(graph, mode);
    std::erase_if(found, [&](const Descriptor& config) { return !acceptable(config, problem_.precision); });
    return found;
  }
  /// Returns the candidates of all modes.
  std::vector<Descriptor> candidates(const ConvVariant& variant, cudnnHandle_t handle) const {
    const Descriptor graph = graph_of(problem_, variant, handle);
    std::vector<Descriptor> found;
    for (const cudnnBackendHeurMode_t mode : kModes) {
      for (Descriptor& config : candidates(graph, mode)) found.push_back(std::move(config));
    }
    return found;
  }

  void choose(Tuning& tuning, int device, const PreparedOp* own) {
    const std::string key = fmt::format("device {}, workspace {}: {}", device, budget_, problem_.name());
    if (const auto known = tuning.convolution(key)) {
      chosen_ = *known;
      return;
    }
    Queue& queue = tuning.queue(device);
    const cudnnHandle_t handle = cudnn_of(&queue);
    const auto try_them = [&] {
      try {
        try_candidates(Trial(args_, budget_, tuning, queue, device), own);
      } catch (const NoRoom&) {
        take_untried(handle, own);
      }
      return chosen_name();
    };
    tuning.choose(
        problem_.name() + " cudnn " + std::to_string(cudnnGetVersion()),
        [&](const std::string& kept) { return take(kept, handle); }, try_them);
    tuning.keep(key, std::make_shared<const ChosenConvolution>(chosen_));
  }

  /// Takes our own kernels, or else the first proposal that gives a plan: there is no memory to try any,
  /// while others use nearly all of it. The choice is kept as any other, so that later runs have the same
  /// bits. Does not use graphs with relus, because an untried engine may lose NaN.
  void take_untried(cudnnHandle_t handle, const PreparedOp* own) {
    chosen_ = {};
    if (own != nullptr) return;
    for (const ConvVariant& variant : variants()) {
      if (variant.fused && problem_.relu) continue;
      std::vector<Descriptor> found;
      try {
        found = candidates(variant, handle);
      } catch (const DeviceError&) {
        continue;
      }
      for (std::size_t i = 0; i < found.size(); ++i) {
        try {
          chosen_ = {variant, i, plan_of(found[i], variant, handle)};
          return;
        } catch (const DeviceError&) {
          continue;
        }
      }
    }
  }

  /// The error that there is not enough memory to try plans.
  class NoRoom : public DeviceError {
    using DeviceError::DeviceError;
  };

  /// Memory of an operation's arguments, with numbers, and of its workspace, and the queue where its plans
  /// run.
  class Trial {
   public:
    /// Throws NoRoom.
    Trial(const std::vector<TensorDesc>& args, std::int64_t workspace_bytes, Tuning& tuning_, Queue& queue_,
          int device)
        : tuning(tuning_), queue(queue_) {
      Areas areas;
      std::vector<std::int64_t> offsets;
      for (const TensorDesc& arg : args) {
        bytes_.push_back(arg.bytes());
        offsets.push_back(areas.add(arg.bytes()));
      }
      const std::int64_t workspace_area = areas.add(workspace_bytes);
      try {
        std::byte* const memory = tuning.arena(device, areas.bytes());
        for (const std::int64_t offset : offsets) pointers.push_back(memory + offset);
        workspace = memory + workspace_area;
        if (tuning.times()) delay = &tuning.delay(device);
      } catch (const DeviceError& error) {
        throw NoRoom(error.what());
      }
      for (std::size_t i = 0; i < pointers.size(); ++i) fill(i, kNumbers);
    }
    // Bytes that fill arguments of type f32 or bf16. Zeros would be multiplied faster than other numbers.
    static constexpr int kNumbers = 0x3c;  ///< makes every number 0.0115
    static constexpr int kNan = 0xff;
    void fill(std::size_t argument, int byte) const {
      check(cudaMemsetAsync(pointers.at(argument), byte, static_cast<std::size_t>(bytes_.at(argument)),
                            stream_of(&queue).handle),
            "filling memory");
    }
    /// Forgets the error of a failed trial, which the next kernel would report again. Throws DeviceError if
    /// the process has lost the device.
    void recover(const std::string& what) const {
      static_cast<void>(cudaGetLastError());
      check(cudaStreamSynchronize(stream_of(&queue).handle), ("trying " + what).c_str());
    }

    Tuning& tuning;
    Queue& queue;
    const Delay* delay = nullptr;  ///< null where nothing is timed
    std::vector<std::byte*> pointers;
    std::byte* workspace = nullptr;

   private:
    std::vector<std::int64_t> bytes_;
  };

  /// Takes the fastest plan, or, if nothing is timed, the first that runs. If there is none, or if our own
  /// kernels are faster, takes these.
  void try_candidates(const Trial& trial, const PreparedOp* own) {
    const bool times = trial.delay != nullptr;
    const auto start = Clock::now();
    bool has_choice = own != nullptr;
    chosen_ = {};
    if (has_choice && !times) return;
    double best =
        !has_choice ? 0 : time([&] { own->run(trial.pointers, trial.workspace, &trial.queue); }, trial, 0);
    const auto attempt = [&](const auto& work) {
      try {
        work();
      } catch (const DeviceError&) {
        trial.recover(problem_.name());
      }
    };
    const cudnnHandle_t handle = cudnn_of(&trial.queue);
    for (const ConvVariant& variant : variants()) {
      if (has_choice && !times) break;
      const auto most_tried = [&] { return trial.tuning.most_tried(seconds_since(start)); };
      std::optional<Descriptor> graph;
      attempt([&] { graph = graph_of(problem_, variant, handle); });
      int tried = 0;
      std::size_t index = 0;
      for (const cudnnBackendHeurMode_t mode : kModes) {
        std::vector<Descriptor> found;
        if (graph && tried < most_tried()) attempt([&] { found = candidates(*graph, mode); });
        for (auto config = found.begin(); config != found.end() && tried < most_tried(); ++config, ++index) {
          attempt([&] {
            const auto plan = plan_of(*config, variant, handle);
            if (variant.fused && problem_.relu && !keeps_nan(*plan, variant, trial)) return;
            const auto run = [&] { run_with(*plan, variant, trial.pointers, trial.workspace, &trial.queue); };
            const double seconds = time(run, trial, best);
            ++tried;
            if (has_choice && seconds >= best) return;
            has_choice = true;
            best = seconds;
            chosen_ = {variant, index, plan};
          });
        }
      }
    }
  }

  /// Returns whether NaN in images passes a relu that is part of the graph. Errors must show, and not every
  /// engine obeys the setting of pointwise operations for NaN.
  bool keeps_nan(const ConvPlan& plan, const ConvVariant& variant, const Trial& trial) const {
    trial.fill(0, Trial::kNan);
    run_with(plan, variant, trial.pointers, trial.workspace, &trial.queue);
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

  /// Returns the seconds of `run`, or of its first call if nothing is timed. A run that is much slower than
  /// `best` seconds is timed only once; `best` is 0 if there is no other yet. Throws DeviceError if it fails.
  template <class Run>
  static double time(const Run& run, const Trial& trial, double best) {
    const int runs = trial.delay != nullptr ? 5 : 0;  // beside the first, which loads the kernels
    constexpr double kHopeless = 1.5;
    std::vector<double> seconds;
    for (int i = 0; i <= runs; ++i) {
      if (trial.delay != nullptr) trial.delay->put_into(trial.queue);
      const auto begin = trial.queue.mark();
      run();
      const auto end = trial.queue.mark();
      wait_for(*end);
      if (i > 0 || runs == 0) seconds.push_back(end->seconds_since(*begin));
      if (best > 0 && !seconds.empty() && seconds.back() > kHopeless * best) break;
    }
    return *std::min_element(seconds.begin(), seconds.end());
  }
  /// Returns the bytes of the form's workspace that are left for the library.
  std::int64_t library_budget(const ConvVariant& variant) const { return budget_ - areas(variant, 0).bytes; }

  /// The choice of our own kernels.
  static constexpr const char* kOwn = "own";

  ConvProblem problem_;
  std::int64_t budget_;  ///< bytes of workspace that the form gives
  ChosenConvolution chosen_;
};

/// Returns whether images are not channels last. Images of one channel or one pixel count as channels last,
/// which the library's fast engines want.
bool lies_plain(const TensorDesc& images) { return !image_view(images).last; }

Prepared prepared(const OpForm& form, const ConvProblem& problem, const Context& context,
                  const Prepared& own) {
  auto op = std::make_shared<const ConvOp>(form, problem, context, own.get());
  return op->has_plan() ? op : nullptr;
}

}  // namespace

Prepared prepare_by_library(const ConvForward& op, const OpForm& form, const Context& context,
                            const Prepared& own) {
  return prepared(
      form,
      {ConvPass::forward, op.g, op.bias, op.relu, op.accumulate, lies_plain(form.args[0]), context.precision},
      context, own);
}

Prepared prepare_by_library(const ConvBackwardData& op, const OpForm& form, const Context& context,
                            const Prepared& own) {
  return prepared(
      form, {ConvPass::backward_data, op.g, false, false, false, lies_plain(form.args[2]), context.precision},
      context, own);
}

Prepared prepare_by_library(const ConvBackwardWeights& op, const OpForm& form, const Context& context,
                            const Prepared& own) {
  return prepared(
      form,
      {ConvPass::backward_weights, op.g, op.bias, false, false, lies_plain(form.args[0]), context.precision},
      context, own);
}

}  // namespace convnet::cuda
