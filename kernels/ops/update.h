// Updates of weights, and the step block that they read.
#pragma once

#include "kernels/ops/argument.h"

namespace convnet {

/// The first part of the step block: the scalars that change from step to step, in one device buffer that the
/// host writes before a step. An entry of Rates for each learning rate follows.
struct StepHeader {
  std::uint64_t iteration = 0;  ///< minibatches trained since the start of training
  float average_share = 1;      ///< Average: the share of the newest weights
  float clip_norm = 0;          ///< UpdateScales: largest norm of all gradients together; 0: no bound
};
/// Numbers of an update that may change from step to step.
struct Rates {
  float epsilon = 0, momentum = 0, decay = 0;
  float images = 0;  ///< Update::accumulates: images since the last step; 0: the next step is not due
  float trust = 0;   ///< LARS's trust coefficient; 0: the rate is not scaled
  // AdamW, after t updates with this one. `momentum` is beta1.
  float second = 0, second_share = 0;       ///< beta2, 1 - beta2
  float first_scale = 1, second_scale = 1;  ///< 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t)
  float adam_epsilon = 0;
};
inline std::int64_t step_block_bytes(std::int64_t rates) {
  return static_cast<std::int64_t>(sizeof(StepHeader)) + rates * static_cast<std::int64_t>(sizeof(Rates));
}

/// How a gradient changes a weight w. g is d(cost)/dw, the mean over images.
enum class UpdateRule {
  momentum,  ///< inc = mom*inc - eps*wc*w - eps*g; w += inc: cuda-convnet2's
  nesterov,  ///< inc as above; w += mom*inc - eps*wc*w - eps*g
  adamw      ///< inc = mom*inc + (1-mom)*g; sqr = beta2*sqr + (1-beta2)*g^2; w -= eps*wc*w +
             ///< eps*inc' / (sqrt(sqr') + adamEpsilon); inc', sqr' as Rates scales them (arXiv 1711.05101)
};

/// One update of weights, with the gradients stored as d(cost)/dw, summed over images and here by increasing
/// index. The rates are read from the step block; nothing happens if broken[0] says a cost was not finite.
/// Sets costs[0] = 1 where a weight becomes NaN or infinite: a relu above may hide that from the costs. Works
/// on ranges of the flat memory of any number of matrices: padding holds zeros and keeps them.
struct Update {
  struct Part {
    std::int64_t count = 0;       ///< floats
    std::int64_t images = 1;      ///< images that the gradients are summed over; if 0, nothing happens
    std::int64_t rate_index = 0;  ///< entry of the step block's rate table
    int gradients = 1;
    /// The gradients are added to those of earlier minibatches in the accumulator; the step is made, and the
    /// accumulator zeroed, where the step block gives a number of images.
    bool accumulates = false;
    UpdateRule rule = UpdateRule::momentum;
    std::int64_t scale_index = -1;  ///< pair of UpdateScales' results that scales the step; -1: none

    /// Number of arguments that belong to this part.
    int arguments() const {
      return 2 + gradients + (accumulates ? 1 : 0) + (rule == UpdateRule::adamw ? 1 : 0);
    }
  };
  std::vector<Part> parts;
  std::int64_t scales = 0;  ///< pairs that UpdateScales has made; 0: they are no argument

  std::string name() const { return "update"; }
  std::vector<Argument> arguments() const {
    std::vector<Argument> all;
    for (const Part& part : parts) {
      all.push_back(args::read_write("weights", {part.count}));
      all.push_back(args::read_write("increment", {part.count}));
      for (int i = 0; i < part.gradients; ++i) all.push_back(args::read("gradient", {part.count}));
      if (part.accumulates) all.push_back(args::read_write("accumulator", {part.count}));
      if (part.rule == UpdateRule::adamw) all.push_back(args::read_write("squares", {part.count}));
    }
    if (scales > 0) all.push_back(args::read("scales", {2 * scales}));
    all.push_back(args::step());
    all.push_back(args::read("broken", args::unsized(), DataType::f64));
    all.push_back(args::costs());
    return all;
  }
};

/// Sums of squares of weights and gradients: those of part i at squares[2*i] and squares[2*i+1].
struct UpdateSquares {
  struct Part {
    std::int64_t count = 0;    ///< floats
    bool accumulates = false;  ///< the gradient has the accumulator added
  };
  std::vector<Part> parts;

  std::string name() const { return "update.squares"; }
  std::vector<Argument> arguments() const {
    std::vector<Argument> all;
    for (const Part& part : parts) {
      all.push_back(args::read("weights", {part.count}));
      all.push_back(args::read("gradient", {part.count}));
      if (part.accumulates) all.push_back(args::read("accumulator", {part.count}));
    }
    all.push_back(args::write("squares", {2 * std::ssize(parts)}, DataType::f64));
    return all;
  }
};

/// The factors of updates that depend on norms over devices: for every part scales[2*i], which clips the
/// gradient (StepHeader::clip_norm), and scales[2*i+1], LARS's factor of the learning rate. The parts are
/// those of several UpdateSquares, one after the other.
struct UpdateScales {
  struct Part {
    int matrix = 0;           ///< parts of the same number are parts of one matrix
    std::int64_t images = 1;  ///< as in Update
    std::int64_t rate_index = 0;
    bool accumulates = false;
  };
  std::vector<std::int64_t> sources;  ///< parts of each UpdateSquares
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

/// Running averages of weights: average += share * (weights - average), with the step block's average_share.
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

/// broken[0] = 1 if the first entry of any of the costs is not 0, else 0.
struct AnyBroken {
  std::int64_t devices = 1;

  std::string name() const { return "any_broken"; }
  std::vector<Argument> arguments() const {
    std::vector<Argument> all(static_cast<std::size_t>(devices),
                              args::read("costs", args::unsized(), DataType::f64));
    all.push_back(args::write("broken", {1}, DataType::f64));
    return all;
  }
};

/// A constraint on the rows of a weight matrix, after its update (wcNormMin and wcNormMax, then wball, as in
/// cuda-convnet2). The weights are seen as (outer, groups, inner): a row is a (group, all outer and inner)
/// vector of outer * inner values. Rows of zeros stay.
struct Constrain {
  TensorDesc what;
  std::int64_t outer = 1, groups = 1, inner = 1;
  /// Rows whose sqrt(sum (w - mean)^2) / n lies outside [norm_min, norm_max] are scaled onto it; norm_max 0:
  /// no such rule.
  float norm_min = 0, norm_max = 0;
  float ball = 0;       ///< rows are scaled to this norm; 0: no such rule
  bool shrink = false;  ///< ball: only rows longer than it
  /// Acts only where the step block says that an update over several minibatches is due, as
  /// Update::accumulates.
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
