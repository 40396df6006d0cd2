// The arithmetic of weight updates, compiled for host and device.
#pragma once

#include <cmath>
#include <cstdint>

#include "convnet/base/host_device.h"
#include "kernels/ops/update.h"

namespace convnet {

/// The factors of an update that are the same for all weights of a part.
struct UpdateFactors {
  /// `scales` is the part's pair of factors from UpdateScales, or null. `images` is the number of images that
  /// the gradient is summed over, not 0.
  CONVNET_HD UpdateFactors(const Rates& rates, UpdateRule rule, float images, const float* scales)
      : momentum(rates.momentum), decay(rates.epsilon * rates.decay) {
    const float clip = scales == nullptr ? 1 : scales[0], trust = scales == nullptr ? 1 : scales[1];
    if (keeps_squares(rule)) {
      gradient = clip / images;
      second = rates.second;
      second_share = rates.second_share;
      floor = rates.adam_epsilon;
      step = rates.epsilon;
      if (rule == UpdateRule::adamw) {
        step *= rates.first_scale;
        share = 1 - rates.momentum;
        second_scale = rates.second_scale;
      } else {
        decay = rates.decay;
      }
    } else {
      decay *= trust;
      step = rates.epsilon / images * clip * trust;
    }
  }

  float momentum;
  float decay;  ///< of weights; RMSProp: of what is added to the gradient
  float step = 0;
  float gradient = 0, second = 0, second_share = 0, floor = 0;  ///< only for rules that keep squares
  float share = 0, second_scale = 0;                            ///< only for AdamW
};

/// Returns a weight after its step with `gradient`, the sum over the images, and updates `increment` and, for
/// rules that keep it, `second`, the mean of squared gradients. UpdateRule has the formulas.
template <UpdateRule rule>
CONVNET_HD inline float updated(const UpdateFactors& f, float weight, float gradient, float& increment,
                                float& second) {
  if constexpr (rule == UpdateRule::adamw) {
    const float g = f.gradient * gradient;
    increment = f.momentum * increment + f.share * g;
    second = f.second * second + f.second_share * g * g;
    return weight - f.decay * weight - f.step * increment / (std::sqrt(second) * f.second_scale + f.floor);
  } else if constexpr (rule == UpdateRule::rmsprop) {
    const float g = f.gradient * gradient + f.decay * weight;
    second = f.second * second + f.second_share * g * g;
    increment = f.momentum * increment - f.step * g / (std::sqrt(second) + f.floor);
    return weight + increment;
  } else {
    increment = f.momentum * increment - f.decay * weight - f.step * gradient;
    if constexpr (rule == UpdateRule::nesterov)
      return weight + (f.momentum * increment - f.decay * weight - f.step * gradient);
    return weight + increment;
  }
}

/// Returns the factor of all gradients that reduces their norm to `most` if it is larger; `most` = 0 means no
/// bound. The 1e-6 is that of PyTorch's clip_grad_norm_.
CONVNET_HD inline double clip_factor(double norm, double most) {
  if (most <= 0) return 1;
  const double factor = most / (norm + 1e-6);
  return factor < 1 ? factor : 1;
}

/// Returns LARS's factor of a matrix's learning rate from the norms of its weights and gradient (Layer-wise
/// Adaptive Rate Scaling, arXiv 1708.03888); 1 if `trust` or the weights are 0, or nothing changes them.
CONVNET_HD inline double trust_factor(double weights, double gradient, double decay, double trust) {
  const double change = gradient + decay * weights;
  return trust <= 0 || weights <= 0 || change <= 0 ? 1 : trust * weights / change;
}

/// A part of UpdateScales with its sums of squares.
struct ScaledPart {
  const double* squares;  ///< two sums: of the weights, and of the sum of gradients
  std::int64_t rate_index;
  float images;  ///< Update::Part::images; ignored where the part accumulates
  std::int64_t matrix;
  bool accumulates;

  CONVNET_HD float images_at(const Rates& rates) const { return accumulates ? rates.images : images; }

  /// Adds the sum of squares of the mean gradient to total[0] and of_matrices[2*matrix+1], and that of the
  /// weights to of_matrices[2*matrix].
  CONVNET_HD void add(const Rates& rates, double* total, double* of_matrices) const {
    const double n = images_at(rates);
    if (n <= 0) return;
    total[0] += squares[1] / (n * n);
    of_matrices[2 * matrix] += squares[0];
    of_matrices[2 * matrix + 1] += squares[1] / (n * n);
  }
  /// Writes the pair of factors of the part.
  CONVNET_HD void write(const Rates& rates, float clip_norm, const double* total, const double* of_matrices,
                        float* scales) const {
    const double clip = clip_factor(std::sqrt(total[0]), clip_norm);
    scales[0] = static_cast<float>(clip);
    scales[1] = static_cast<float>(trust_factor(std::sqrt(of_matrices[2 * matrix]),
                                                clip * std::sqrt(of_matrices[2 * matrix + 1]), rates.decay,
                                                rates.trust));
  }
};

/// Returns the running average after `value`, which has the share `share` in it.
CONVNET_HD inline float averaged(float average, float value, float share) {
  return share == 1 ? value : average + share * (value - average);
}

}  // namespace convnet
