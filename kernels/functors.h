// Element-wise mathematics, written once and compiled for host and device, so that the CPU tests prove the
// CUDA arithmetic.
#pragma once

#include <cmath>

#if defined(__CUDACC__)
#define CONVNET_HD __host__ __device__
#else
#define CONVNET_HD
#endif

namespace convnet {

enum class NeuronKind { ident, relu, logistic, tanh };

/// A neuron with its two parameters (tanh: a*tanh(b*x)).
struct Neuron {
  NeuronKind kind = NeuronKind::ident;
  float a = 1, b = 1;
};

/// Whether the gradient is computed from the output y (else from the input x).
constexpr bool neuron_uses_output(NeuronKind) { return true; }

/// Calls `visit` with a functor that has `float forward(float x)` and `float backward(float y, float dy)`
/// (y is the input x for functions whose gradient needs it). The switch is outside the loop over elements.
struct IdentFunctor {
  CONVNET_HD float forward(float x) const { return x; }
  CONVNET_HD float backward(float, float dy) const { return dy; }
};
struct ReluFunctor {
  /// Keeps NaN: a broken layer must show.
  CONVNET_HD float forward(float x) const { return x < 0 ? 0 : x; }
  CONVNET_HD float backward(float y, float dy) const { return y > 0 ? dy : 0; }
};
struct LogisticFunctor {
  CONVNET_HD float forward(float x) const { return 1 / (1 + std::exp(-x)); }
  CONVNET_HD float backward(float y, float dy) const { return dy * y * (1 - y); }
};
struct TanhFunctor {
  float a, b;
  CONVNET_HD float forward(float x) const { return a * std::tanh(b * x); }
  CONVNET_HD float backward(float y, float dy) const { return dy * b * (a - y * y / a); }
};

template <class Visitor>
void visit_neuron(const Neuron& f, Visitor&& visit) {
  switch (f.kind) {
    case NeuronKind::ident: return visit(IdentFunctor{});
    case NeuronKind::relu: return visit(ReluFunctor{});
    case NeuronKind::logistic: return visit(LogisticFunctor{});
    case NeuronKind::tanh: return visit(TanhFunctor{f.a, f.b});
  }
}

}  // namespace convnet
