// Updates of weights, and the step block that they read.
#pragma once

#include "convnet/base/host_device.h"
#include "kernels/ops/argument.h"

namespace convnet {

/// The beginning of the step block, a buffer on each device that the host writes before a step: scalars that
/// change from step to step. A table of Rates follows.
struct StepHeader {
  std::uint64_t iteration = 0;  ///< minibatches trained since the start of training
  float average_share = 1;      ///< Average: the share of the newest weights
  float clip_norm = 0;          ///< UpdateScales: largest norm of all gradients together; 0: no bound
};
/// The parameters of an update, which may change from step to step.
struct Rates {
  float epsilon = 0, momentum = 0, decay = 0;
  float images = 0;  ///< images since the last update, if it accumulates; 0: the next update is not yet due
  float trust = 0;   ///< LARS's trust coefficient; 0: the rate is not scaled
  // Only for rules that keep squares.
  float second = 0, second_share = 0;  ///< beta2, 1 - beta2
  float adam_epsilon = 0;
  // AdamW only, for update number t, counted from 1: 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t). `momentum` is
  // beta1.
  float first_scale = 1, second_scale = 1;
};
inline std::int64_t step_block_bytes(std::int64_t rates) {
  return static_cast<std::int64_t>(sizeof(StepHeader)) + rates * static_cast<std::int64_t>(sizeof(Rates));
}

/// The formula by which a gradient changes a weight w. g is d(cost)/dw, the mean over images.
enum class UpdateRule {
  momentum,  ///< inc = mom*inc - eps*wc*w - eps*g; w += inc, as in cuda-convnet2
  nesterov,  ///< inc as above; w += mom*inc - eps*wc*w - eps*g
  adamw,     ///< inc = mom*inc + (1-mom)*g; sqr = beta2*sqr + (1-beta2)*g^2; w -= eps*wc*w +
             ///< eps*inc' / (sqrt(sqr') + adamEpsilon), where inc' and sqr' are inc and sqr with Adam's
             ///< correction of their bias (arXiv 1711.05101)
  rmsprop    ///< h = g + wc*w; sqr = beta2*sqr + (1-beta2)*h^2;
             ///< inc = mom*inc - eps*h / (sqrt(sqr) + adamEpsilon); w += inc, as in PyTorch
};
/// Returns whether a rule keeps a running mean of squared gradients, sqr, for each weight.
CONVNET_HD constexpr bool keeps_squares(UpdateRule rule) {
  return rule == UpdateRule::adamw || rule == UpdateRule::rmsprop;
}

/// Updates weights. Gradients are d(cost)/dw summed over images; the gradients of a part are added in the
/// order of the arguments. The rates come from the step block. Does nothing if non_finite[0] is not 0, which
/// says that a cost was not finite. Sets costs[0] = 1 if a weight becomes NaN or infinite, which a relu could
/// hide from the costs, or if the mean of its squared gradients does, which stops its learning. Each part is
/// a range of the flat memory of a matrix; padding in it holds zeros and stays zero.
struct Update {
  struct Part {
    std::int64_t count = 0;       ///< floats
    std::int64_t images = 1;      ///< number of images that the gradients are summed over; 0: no update
    std::int64_t rate_index = 0;  ///< index in the step block's table of rates
    int gradients = 1;            ///< number of gradients, which are added up
    /// Adds the gradients to those of earlier minibatches in the accumulator. Only if Rates::images is not 0,
    /// updates the weights by their sum and zeroes the accumulator.
    bool accumulates = false;
    UpdateRule rule = UpdateRule::momentum;
    std::int64_t scale_index = -1;  ///< index of the pair of UpdateScales' factors for the step; -1: none
    bool rounds = false;            ///< writes the weights a second time, rounded to bf16
    DataType gradient_type = DataType::f32;  ///< type of the gradients: f32 or bf16

    // The arguments of this part: weights, increment, gradients, and those of the following that it has.
    std::size_t accumulator() const { return 2 + static_cast<std::size_t>(gradients); }
    std::size_t squares() const { return accumulator() + (accumulates ? 1 : 0); }
    std::size_t rounded() const { return squares() + (keeps_squares(rule) ? 1 : 0); }
    /// Number of arguments that belong to this part.
    std::size_t arguments() const { return rounded() + (rounds ? 1 : 0); }
  };
  std::vector<Part> parts;
  std::int64_t scales = 0;  ///< number of pairs of factors from UpdateScales; 0: there is no such argument

  std::string name() const { return "update"; }
  std::vector<Argument> arguments() const {
    std::vector<Argument> all;
    for (const Part& part : parts) {
      all.push_back(args::read_write("weights", {part.count}));
      all.push_back(args::read_write("increment", {part.count}));
      for (int i = 0; i < part.gradients; ++i)
        all.push_back(args::read("gradient", {part.count}, part.gradient_type));
      if (part.accumulates) all.push_back(args::read_write("accumulator", {part.count}));
      if (keeps_squares(part.rule)) all.push_back(args::read_write("squares", {part.count}));
      if (part.rounds) all.push_back(args::read_write("rounded", {part.count}, DataType::bf16));
    }
    if (scales > 0) all.push_back(args::read("scales", {2 * scales}));
    all.push_back(args::step());
    all.push_back(args::read("non_finite", args::unsized(), DataType::f64));
    all.push_back(args::costs());
    return all;
  }
};

/// Computes the sums of squares of the weights and of the gradient of each part i: squares[2*i] and
/// squares[2*i+1].
struct UpdateSquares {
  struct Part {
    std::int64_t count = 0;    ///< floats
    bool accumulates = false;  ///< the accumulator is added to the gradient
    DataType gradient_type = DataType::f32;
  };
  std::vector<Part> parts;

  std::string name() const { return "update.squares"; }
  std::vector<Argument> arguments() const {
    std::vector<Argument> all;
    for (const Part& part : parts) {
      all.push_back(args::read("weights", {part.count}));
      all.push_back(args::read("gradient", {part.count}, part.gradient_type));
      if (part.accumulates) all.push_back(args::read("accumulator", {part.count}));
    }
    all.push_back(args::write("squares", {2 * std::ssize(parts)}, DataType::f64));
    return all;
  }
};

/// Computes the factors of updates that depend on norms over all devices. For every part i, scales[2*i] clips
/// the gradient (StepHeader::clip_norm), and scales[2*i+1] is LARS's factor of the learning rate. The parts
/// are those of several UpdateSquares, one after the other.
struct UpdateScales {
  struct Part {
    int matrix = 0;           ///< number of the matrix that it is a part of
    std::int64_t images = 1;  ///< Update::Part::images
    std::int64_t rate_index = 0;
    bool accumulates = false;
  };
  std::vector<std::int64_t> sources;  ///< number of parts of each UpdateSquares
  std::vector<Part> parts;

  std::string name() const { return "update.scales"; }
  std::vector<Argument> arguments() const {
    std::vector<Argument> all;
    for (const std::int64_t count : sources) all.push_back(args::read("squares", {2 * count}, DataType::f64));
    all.push_back(args::step());
    all.push_back(args::write("scales", {2 * std::ssize(parts)}));
    return all;
  }
};

/// Moves running averages of weights: average += StepHeader::average_share * (weights - average).
struct Average {
  std::vector<std::int64_t> counts;  ///< floats of each part

  std::string name() const { return "average"; }
  std::vector<Argument> arguments() const {
    std::vector<Argument> all;
    for (const std::int64_t count : counts) {
      all.push_back(args::read("weights", {count}));
      all.push_back(args::read_write("average", {count}));
    }
    all.push_back(args::step());
    return all;
  }
};

/// non_finite[0] = 1 if costs[0] of any device is not 0, else 0.
struct AnyNonFinite {
  std::int64_t devices = 1;

  std::string name() const { return "any_non_finite"; }
  std::vector<Argument> arguments() const {
    std::vector<Argument> all(static_cast<std::size_t>(devices),
                              args::read("costs", args::unsized(), DataType::f64));
    all.push_back(args::write("non_finite", {1}, DataType::f64));
    return all;
  }
};

/// Constrains the rows of a weight matrix after its update (wcNormMin and wcNormMax, then wball, as in
/// cuda-convnet2). The dims of the weights are regrouped as (outer, groups, inner); row g consists of the
/// outer * inner weights with the middle index g. Rows of zeros are not changed.
struct Constrain {
  TensorDesc what;
  std::int64_t outer = 1, groups = 1, inner = 1;
  /// Rows of n weights whose sqrt(sum (w - mean)^2) / n lies outside [norm_min, norm_max] are scaled so that
  /// it is the nearer bound. norm_max = 0: no such rule.
  float norm_min = 0, norm_max = 0;
  float ball = 0;       ///< rows are scaled to this norm; 0: no such rule
  bool shrink = false;  ///< `ball` scales only rows with a larger norm
  /// Acts only if Rates::images is not 0, that is, if an update over several minibatches is due.
  bool when_due = false;
  std::int64_t rate_index = 0;

  std::string name() const { return "constrain"; }
  std::vector<Argument> arguments() const {
    std::vector<Argument> all = {args::read_write("weights", what.dims)};
    if (when_due) all.push_back(args::step());
    return all;
  }
};

}  // namespace convnet
