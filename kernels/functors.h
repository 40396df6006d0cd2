// Element-wise mathematics, written once and compiled for host and device, so that the CPU tests prove the
// CUDA arithmetic.
#pragma once

#include <cmath>

#include "convnet/base/host_device.h"
#include "kernels/exponentials.h"
#include "kernels/ops/neuron.h"

namespace convnet {

/// Returns whether `v` replaces `best` as the maximum. NaN beats every number, so that it is not lost, and of
/// equal values the first one stays. There are no branches, so that loops vectorise.
CONVNET_HD inline bool beats(float v, float best) {
  return (static_cast<int>(v > best) | (static_cast<int>(v != v) & static_cast<int>(best == best))) != 0;
}

/// Returns a probability, but at least exp(-50). Costs divide by such probabilities, and the layers below
/// multiply by them, so that the gradient of both is right where a probability is rounded to 0 or 1.
CONVNET_HD inline float floored(float p) {
  constexpr float kLeast = 1.92874985e-22F;
  return p < kLeast ? kLeast : p;  // keeps NaN
}

// Functors have `float forward(float x)`, and `float backward(float y, float dy)` for dx. The y is the
// output, or the input x if neuron_uses_output() is false. Where V stands for float, it may be a vector, too.
struct IdentFunctor {
  CONVNET_HD float forward(float x) const { return x; }
  CONVNET_HD float backward(float, float dy) const { return dy; }
};
struct ReluFunctor {
  /// Keeps NaN, so that errors below show.
  template <class V>
  CONVNET_HD V forward(V x) const {
    return x < 0 ? V{} : x;
  }
  template <class V>
  CONVNET_HD V backward(V y, V dy) const {
    return y > 0 ? dy : V{};
  }
};
struct LogisticFunctor {
  template <class V>
  CONVNET_HD V forward(V x) const {
    return math::logistic(x);
  }
  CONVNET_HD float backward(float y, float dy) const { return dy * floored(y) * floored(1 - y); }
};
struct TanhFunctor {
  float a, b;
  template <class V>
  CONVNET_HD V forward(V x) const {
    return a * math::tanh(b * x);
  }
  CONVNET_HD float backward(float y, float dy) const { return dy * b * (a - y * y / a); }
};

/// |x|; the gradient at 0 is 0.
struct AbsFunctor {
  CONVNET_HD float forward(float x) const { return std::fabs(x); }
  CONVNET_HD float backward(float x, float dy) const { return x > 0 ? dy : (x < 0 ? -dy : 0); }
};
/// ln(1 + e^x), without overflow.
struct SoftReluFunctor {
  template <class V>
  CONVNET_HD V forward(V x) const {
    const V below = math::log1p_of_unit(math::exp(x < 0 ? x : -x));
    return x < 0 ? below : x + below;
  }
  template <class V>
  CONVNET_HD V backward(V y, V dy) const {
    return dy * -math::expm1(-y);
  }
};
struct SquareFunctor {
  CONVNET_HD float forward(float x) const { return x * x; }
  CONVNET_HD float backward(float x, float dy) const { return dy * 2 * x; }
};
/// The gradient at 0, which is infinite, is taken as 0.
struct SqrtFunctor {
  CONVNET_HD float forward(float x) const { return std::sqrt(x); }
  CONVNET_HD float backward(float y, float dy) const { return y == 0 ? 0 : dy / (2 * y); }
};
struct LogFunctor {
  float a;
  CONVNET_HD float forward(float x) const { return std::log(a + x); }
  CONVNET_HD float backward(float x, float dy) const { return dy == 0 ? 0 : dy / (a + x); }
};
/// min(a, max(0, x))
struct BoundedReluFunctor {
  float a;
  template <class V>
  CONVNET_HD V forward(V x) const {
    return x < 0 ? V{} : (x > a ? V{} + a : x);
  }
  template <class V>
  CONVNET_HD V backward(V y, V dy) const {
    return y > 0 ? (y < a ? dy : V{}) : V{};
  }
};
struct LinearFunctor {
  float a, b;
  CONVNET_HD float forward(float x) const { return a * x + b; }
  CONVNET_HD float backward(float, float dy) const { return a * dy; }
};
/// x - a*tanh(x/a)
struct DampedReluFunctor {
  float a;
  template <class V>
  CONVNET_HD V forward(V x) const {
    return x - a * math::tanh(x / a);
  }
  template <class V>
  CONVNET_HD V backward(V x, V dy) const {
    const V t = math::tanh(x / a);
    return dy * t * t;
  }
};
/// a*|tanh(b*x)|; the gradient at 0 is 0.
struct AbsTanhFunctor {
  float a, b;
  template <class V>
  CONVNET_HD V forward(V x) const {
    const V t = math::tanh(b * x);
    return a * (t < 0 ? -t : t);
  }
  template <class V>
  CONVNET_HD V backward(V x, V dy) const {
    const V t = math::tanh(b * x);
    const V slope = a * b * (1.0F - t * t);
    return t > 0 ? dy * slope : (t < 0 ? -dy * slope : V{});
  }
};

// At kinks, functions that PyTorch has, too, have its slopes: many inputs are exactly 0 where an image is
// black.

/// x for x >= 0, and a*x for x < 0, with a > 0, so that the output has the sign of x. The slope at 0 is a.
struct LeakyReluFunctor {
  float a;
  template <class V>
  CONVNET_HD V forward(V x) const {
    return x < 0 ? a * x : x;
  }
  template <class V>
  CONVNET_HD V backward(V y, V dy) const {
    return y > 0 ? dy : a * dy;
  }
};
/// x for x >= 0, and a*(e^x - 1) for x < 0, with a > 0. The slope at 0 is a. Clevert, Unterthiner and
/// Hochreiter, arXiv:1511.07289.
struct EluFunctor {
  float a;
  template <class V>
  CONVNET_HD V forward(V x) const {
    const V below = a * math::expm1(x);
    return x < 0 ? below : x;
  }
  template <class V>
  CONVNET_HD V backward(V y, V dy) const {
    return y > 0 ? dy : (y + a) * dy;
  }
};
/// x * logistic(x), 0 at minus infinity. Elfwing, Uchibe and Doya, arXiv:1702.03118.
struct SiluFunctor {
  template <class V>
  CONVNET_HD V forward(V x) const {
    const V value = x * math::logistic(x);
    return x < kNothing ? V{} : value;
  }
  template <class V>
  CONVNET_HD V backward(V x, V dy) const {
    const V s = math::logistic(x);
    const V slope = s * (1.0F + x * (1.0F - s));
    return x < kNothing ? V{} : dy * (x > -kNothing ? s : slope);
  }
  static constexpr float kNothing = -100;  ///< smaller x make the function underflow
};
/// x * P(X <= x) of a normal X. Hendrycks and Gimpel, arXiv:1606.08415.
struct GeluFunctor {
  template <class V>
  CONVNET_HD V forward(V x) const {
    const V value = x * math::Normal<V>(x).below;
    return x < kNothing ? V{} : value;
  }
  template <class V>
  CONVNET_HD V backward(V x, V dy) const {
    constexpr float kDensity = 0.3989422804F;  // 1/sqrt(2 pi)
    const math::Normal<V> normal(x);
    const V slope = normal.below + x * kDensity * normal.density;
    return x < kNothing ? V{} : dy * (x > -kNothing ? V{} + 1.0F : slope);
  }
  static constexpr float kNothing = -15;  ///< see SiluFunctor
};
/// x * tanh(ln(1 + e^x)). Misra, arXiv:1908.08681. With e = e^x and n = e (e + 2), the factor is n / (n + 2).
struct MishFunctor {
  template <class V>
  CONVNET_HD V forward(V x) const {
    const V e = exponential(x), n = e * (e + 2.0F);
    const V value = x * (n / (n + 2.0F));
    return x < kNothing ? V{} : value;
  }
  template <class V>
  CONVNET_HD V backward(V x, V dy) const {
    const V e = exponential(x), n = e * (e + 2.0F);
    const V t = n / (n + 2.0F), s = e / (1.0F + e);
    const V slope = t + x * s * (1.0F - t * t);
    return x < kNothing ? V{} : dy * (x > -kNothing ? V{} + 1.0F : slope);
  }
  /// Returns e^x, for large x that of 20, which make the factor 1.
  template <class V>
  CONVNET_HD static V exponential(V x) {
    return math::exp(math::at_most(x, 20));
  }
  static constexpr float kNothing = -100;  ///< see SiluFunctor
};

/// x/6 + 1/2, clamped to [0, 1]. Howard et al., arXiv:1905.02244.
struct HardSigmoidFunctor {
  CONVNET_HD float forward(float x) const { return x < -3 ? 0 : (x > 3 ? 1 : x / 6 + 0.5F); }
  CONVNET_HD float backward(float y, float dy) const { return y > 0 && y < 1 ? dy / 6 : 0; }
};
/// x times that number; 0 at minus infinity. The slope at -3 is 0, and at 3 it is 1.
struct HardSwishFunctor {
  template <class V>
  CONVNET_HD V forward(V x) const {
    return x <= -3 ? V{} : (x >= 3 ? x : x * (x * (1.0F / 6) + 0.5F));
  }
  template <class V>
  CONVNET_HD V backward(V x, V dy) const {
    return x <= -3 ? V{} : (x >= 3 ? dy : dy * (x * (1.0F / 3) + 0.5F));
  }
};

/// Calls `visit` with the functor of `f`, so that the switch is outside the loop over elements.
template <class Visitor>
void visit_neuron(const Neuron& f, Visitor&& visit) {
  switch (f.kind) {
    case NeuronKind::ident: return visit(IdentFunctor{});
    case NeuronKind::relu: return visit(ReluFunctor{});
    case NeuronKind::logistic: return visit(LogisticFunctor{});
    case NeuronKind::tanh: return visit(TanhFunctor{f.a, f.b});
    case NeuronKind::abs: return visit(AbsFunctor{});
    case NeuronKind::softrelu: return visit(SoftReluFunctor{});
    case NeuronKind::square: return visit(SquareFunctor{});
    case NeuronKind::sqrt: return visit(SqrtFunctor{});
    case NeuronKind::log: return visit(LogFunctor{f.a});
    case NeuronKind::brelu: return visit(BoundedReluFunctor{f.a});
    case NeuronKind::linear: return visit(LinearFunctor{f.a, f.b});
    case NeuronKind::drelu: return visit(DampedReluFunctor{f.a});
    case NeuronKind::abstanh: return visit(AbsTanhFunctor{f.a, f.b});
    // The noise is NoisyRelu's (ops/elementwise.h).
    case NeuronKind::nrelu: return visit(ReluFunctor{});
    case NeuronKind::leaky: return visit(LeakyReluFunctor{f.a});
    case NeuronKind::elu: return visit(EluFunctor{f.a});
    case NeuronKind::silu: return visit(SiluFunctor{});
    case NeuronKind::gelu: return visit(GeluFunctor{});
    case NeuronKind::mish: return visit(MishFunctor{});
    case NeuronKind::hsigmoid: return visit(HardSigmoidFunctor{});
    case NeuronKind::hswish: return visit(HardSwishFunctor{});
  }
}

/// Calls `visit` with the functor of `f` if f is quick: its functor takes vectors, it maps 0 to 0, and its
/// slope follows from the input x, so that backward(x, dy) is right even if neuron_uses_output(). Batch norm
/// can apply such neurons, and computes their inputs again in backward.
template <class Visitor>
CONVNET_HD void visit_quick_neuron(const Neuron& f, Visitor&& visit) {
  switch (f.kind) {
    case NeuronKind::relu: return visit(ReluFunctor{});
    case NeuronKind::brelu: return visit(BoundedReluFunctor{f.a});
    case NeuronKind::leaky: return visit(LeakyReluFunctor{f.a});
    case NeuronKind::silu: return visit(SiluFunctor{});
    case NeuronKind::hswish: return visit(HardSwishFunctor{});
    default: return;
  }
}
/// Sets `known` when it is called.
struct QuickNeuronFound {
  bool& known;
  template <class Functor>
  CONVNET_HD void operator()(Functor) const {
    known = true;
  }
};
/// Returns whether visit_quick_neuron() knows the neuron.
inline bool is_quick(const Neuron& f) {
  bool known = false;
  visit_quick_neuron(f, QuickNeuronFound{known});  // nvcc would refuse a lambda of the host
  return known;
}

}  // namespace convnet
