"""Evaluates ONNX models of opset 13 with NumPy: the operators that `convnet export` writes, by their definitions."""

import math

import numpy as np
from onnx import helper, numpy_helper


def windows_of(x, kernel, strides, pads, fill):
    """(N,C,H,W) to its windows (N,C,OH,OW,KH,KW)."""
    top, left, bottom, right = pads
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    windows = np.lib.stride_tricks.sliding_window_view(x, tuple(kernel), axis=(2, 3))
    return windows[:, :, ::strides[0], ::strides[1]]


def conv(x, w, bias=None, *, group=1, kernel_shape, strides=(1, 1), pads=(0, 0, 0, 0)):
    assert tuple(kernel_shape) == w.shape[2:]
    windows = windows_of(x, kernel_shape, strides, pads, 0)
    n, c, oh, ow = windows.shape[:4]
    windows = windows.reshape(n, group, c // group, oh, ow, *kernel_shape)
    filters = w.reshape(group, -1, *w.shape[1:])
    y = np.stack([np.einsum("ncyxhw,ochw->noyx", windows[:, g], filters[g], optimize=True) for g in range(group)], axis=1)
    y = y.reshape(n, -1, oh, ow)
    return y if bias is None else y + bias.reshape(1, -1, 1, 1)


def pool(x, kernel_shape, strides, pads, largest, count_include_pad=0):
    if largest:
        return windows_of(x, kernel_shape, strides, pads, -np.inf).max((4, 5))
    sums = windows_of(x, kernel_shape, strides, pads, 0).sum((4, 5))
    ones = windows_of(np.ones_like(x), kernel_shape, strides, pads, count_include_pad).sum((4, 5))
    return sums / ones


def lrn(x, *, size, alpha, beta, bias):
    before = (size - 1) // 2
    squares = np.pad(x * x, ((0, 0), (before, size - 1 - before), (0, 0), (0, 0)))
    sums = sum(squares[:, i:i + x.shape[1]] for i in range(size))
    return x / (bias + alpha / size * sums) ** beta


def batch_normalization(x, scale, shift, mean, variance, *, epsilon):
    one = (1, -1) + (1,) * (x.ndim - 2)
    return (x - mean.reshape(one)) / np.sqrt(variance.reshape(one) + epsilon) * scale.reshape(one) + shift.reshape(one)


def softmax(x, *, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def sliced(x, starts, ends, axes, steps):
    places = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps):
        if step < 0 and end < -x.shape[axis]:
            end = None
        places[axis] = slice(int(start), None if end is None else int(end), int(step))
    return x[tuple(places)]


OPERATORS = {
    "Abs": np.abs, "Add": np.add, "Div": np.divide, "Log": np.log, "MatMul": np.matmul, "Mul": np.multiply,
    "Pow": np.power, "Sqrt": np.sqrt, "Sub": np.subtract, "Tanh": np.tanh,
    "AveragePool": lambda x, **a: pool(x, largest=False, **a),
    "BatchNormalization": batch_normalization,
    "Clip": np.clip,
    "Concat": lambda *xs, axis: np.concatenate(xs, axis),
    "Conv": conv,
    "Expand": lambda x, shape: x * np.ones(shape, x.dtype),
    "Gemm": lambda x, w, bias=0, *, transB: x @ w.T + bias,
    "GlobalAveragePool": lambda x: x.mean((2, 3), keepdims=True),
    "GlobalMaxPool": lambda x: x.max((2, 3), keepdims=True),
    "Identity": lambda x: x,
    "LRN": lrn,
    "Max": lambda *xs: np.maximum.reduce(xs),
    "MaxPool": lambda x, **a: pool(x, largest=True, **a),
    "ReduceSum": lambda x, axes, *, keepdims: x.sum(tuple(axes), keepdims=bool(keepdims)),
    "Relu": lambda x: np.maximum(x, 0),
    "Reshape": lambda x, shape: x.reshape(shape),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "HardSigmoid": lambda x, *, alpha, beta: np.clip(alpha * x + beta, 0, 1),
    "Slice": sliced,
    "Softmax": softmax,
    "Softplus": lambda x: np.logaddexp(x, 0),
    "LeakyRelu": lambda x, *, alpha: np.where(x < 0, alpha * x, x),
    "Elu": lambda x, *, alpha: np.where(x < 0, alpha * np.expm1(x), x),
    "Erf": lambda x: np.vectorize(math.erf, otypes=[x.dtype])(x),
    "Sum": lambda *xs: sum(xs),
    "Transpose": lambda x, perm=None: x.transpose(perm),
}


def evaluate(model, inputs):
    """The outputs by name, computed in double precision."""
    def wide(x):
        return x.astype(np.float64) if x.dtype == np.float32 else x

    values = {c.name: wide(numpy_helper.to_array(c)) for c in model.graph.initializer}
    values |= {name: wide(x) for name, x in inputs.items()}
    for node in model.graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        values[node.output[0]] = OPERATORS[node.op_type](*(values[name] for name in node.input), **attributes)
    return {output.name: values[output.name] for output in model.graph.output}
