// Neurons: element-wise functions of one input. What they compute is in kernels/functors.h.
#pragma once

namespace convnet {

enum class NeuronKind {
  ident,
  relu,
  logistic,
  tanh,
  abs,
  softrelu,
  square,
  sqrt,
  log,
  brelu,
  linear,
  drelu,
  abstanh,
  nrelu,
  leaky,
  elu,
  silu,
  gelu,
  mish,
  hsigmoid,
  hswish
};

/// A neuron with its parameters, like a*tanh(b*x); parameters that the neuron does not have are 1.
struct Neuron {
  NeuronKind kind = NeuronKind::ident;
  float a = 1, b = 1;

  constexpr bool is_ident() const { return kind == NeuronKind::ident; }
};

/// Returns the name in layer files and plans.
constexpr const char* neuron_name(NeuronKind kind) {
  switch (kind) {
    case NeuronKind::ident: return "ident";
    case NeuronKind::relu: return "relu";
    case NeuronKind::logistic: return "logistic";
    case NeuronKind::tanh: return "tanh";
    case NeuronKind::abs: return "abs";
    case NeuronKind::softrelu: return "softrelu";
    case NeuronKind::square: return "square";
    case NeuronKind::sqrt: return "sqrt";
    case NeuronKind::log: return "log";
    case NeuronKind::brelu: return "brelu";
    case NeuronKind::linear: return "linear";
    case NeuronKind::drelu: return "drelu";
    case NeuronKind::abstanh: return "abstanh";
    case NeuronKind::nrelu: return "nrelu";
    case NeuronKind::leaky: return "leaky";
    case NeuronKind::elu: return "elu";
    case NeuronKind::silu: return "silu";
    case NeuronKind::gelu: return "gelu";
    case NeuronKind::mish: return "mish";
    case NeuronKind::hsigmoid: return "hsigmoid";
    case NeuronKind::hswish: return "hswish";
  }
  return "";
}

/// Returns whether the outputs are probabilities. They stay f32 in bf16 runs, because bf16 numbers just below
/// 1 are 1/256 apart, and costs take the logarithm of 1 - y.
constexpr bool gives_probabilities(const Neuron& f) { return f.kind == NeuronKind::logistic; }

/// Returns whether the gradient is computed from the output y; else it is computed from the input x.
constexpr bool neuron_uses_output(NeuronKind kind) {
  switch (kind) {
    case NeuronKind::abs:
    case NeuronKind::square:
    case NeuronKind::log:
    case NeuronKind::drelu:
    case NeuronKind::abstanh:
    case NeuronKind::silu:
    case NeuronKind::gelu:
    case NeuronKind::mish:
    case NeuronKind::hswish: return false;
    default: return true;
  }
}

}  // namespace convnet
