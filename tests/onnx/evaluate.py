"""Evaluates ONNX models with NumPy: the operators that `convnet export` writes (opset 13), and those that `convnet import` reads
in the forms of several opsets, by their definitions."""

import functools
import math

import numpy as np
from onnx import helper, numpy_helper


def windows_of(x, kernel, strides, pads, fill):
    """(N,C,H,W) to its windows (N,C,OH,OW,KH,KW)."""
    top, left, bottom, right = pads
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    windows = np.lib.stride_tricks.sliding_window_view(x, tuple(kernel), axis=(2, 3))
    return windows[:, :, ::strides[0], ::strides[1]]


def same_pads(auto_pad, sides, kernel, strides, pads):
    """The pads that auto_pad stands for, else `pads`."""
    if auto_pad in (None, b"NOTSET"):
        return pads
    if auto_pad == b"VALID":
        return (0, 0, 0, 0)
    total = [max(0, (-(-side // stride) - 1) * stride + k - side) for side, k, stride in zip(sides, kernel, strides)]
    less, more = [t // 2 for t in total], [t - t // 2 for t in total]
    return less + more if auto_pad == b"SAME_UPPER" else more + less


def conv(x, w, bias=None, *, group=1, kernel_shape=None, strides=(1, 1), pads=(0, 0, 0, 0), auto_pad=None, dilations=(1, 1)):
    kernel_shape = kernel_shape or w.shape[2:]
    assert tuple(kernel_shape) == w.shape[2:]
    if tuple(dilations) != (1, 1):  # zeros between the weights
        kernel_shape = [(k - 1) * d + 1 for k, d in zip(kernel_shape, dilations)]
        dilated = np.zeros((*w.shape[:2], *kernel_shape), w.dtype)
        dilated[:, :, ::dilations[0], ::dilations[1]] = w
        w = dilated
    pads = same_pads(auto_pad, x.shape[2:], kernel_shape, strides, pads)
    windows = windows_of(x, kernel_shape, strides, pads, 0)
    n, c, oh, ow = windows.shape[:4]
    windows = windows.reshape(n, group, c // group, oh, ow, *kernel_shape)
    filters = w.reshape(group, -1, *w.shape[1:])
    y = np.stack([np.einsum("ncyxhw,ochw->noyx", windows[:, g], filters[g], optimize=True) for g in range(group)], axis=1)
    y = y.reshape(n, -1, oh, ow)
    return y if bias is None else y + bias.reshape(1, -1, 1, 1)


def pool(x, kernel_shape, strides=(1, 1), pads=(0, 0, 0, 0), largest=False, count_include_pad=0, ceil_mode=0, auto_pad=None):
    pads = list(same_pads(auto_pad, x.shape[2:], kernel_shape, strides, pads))
    if ceil_mode:  # the last window hangs over what is neither a pixel nor a border, unless it would begin there
        assert not (count_include_pad and any(pads))
        for i in range(2):
            length = x.shape[2 + i] + pads[i] + pads[i + 2]
            more = -(length - kernel_shape[i]) % strides[i]
            if (length + more - kernel_shape[i]) // strides[i] * strides[i] < x.shape[2 + i] + pads[i]:
                pads[i + 2] += more
    if largest:
        return windows_of(x, kernel_shape, strides, pads, -np.inf).max((4, 5))
    sums = windows_of(x, kernel_shape, strides, pads, 0).sum((4, 5))
    ones = windows_of(np.ones_like(x), kernel_shape, strides, pads, count_include_pad).sum((4, 5))
    return sums / ones


def lrn(x, *, size, alpha=1e-4, beta=0.75, bias=1):
    before = (size - 1) // 2
    squares = np.pad(x * x, ((0, 0), (before, size - 1 - before), (0, 0), (0, 0)))
    sums = sum(squares[:, i:i + x.shape[1]] for i in range(size))
    return x / (bias + alpha / size * sums) ** beta


def batch_normalization(x, scale, shift, mean, variance, *, epsilon=1e-5, momentum=0.9):
    one = (1, -1) + (1,) * (x.ndim - 2)
    return (x - mean.reshape(one)) / np.sqrt(variance.reshape(one) + epsilon) * scale.reshape(one) + shift.reshape(one)


def softmax(x, *, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def sliced(x, starts, ends, axes=None, steps=None):
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    places = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps):
        if step < 0 and end < -x.shape[axis]:
            end = None
        places[axis] = slice(int(start), None if end is None else int(end), int(step))
    return x[tuple(places)]


def reshaped(x, shape):
    return x.reshape([x.shape[i] if side == 0 else side for i, side in enumerate(shape)])


def unsqueezed(x, axes):
    for axis in sorted(axis % (x.ndim + len(axes)) for axis in axes):
        x = np.expand_dims(x, axis)
    return x


def split(x, split=None, *, axis=0, num_outputs=None):
    if split is None:
        each = -(-x.shape[axis] // num_outputs)
        split = [each] * (num_outputs - 1) + [x.shape[axis] - each * (num_outputs - 1)]
    return tuple(np.split(x, np.cumsum(split)[:-1], axis))


def padded(x, pads, value=0, axes=None, *, mode=b"constant"):
    axes = list(range(x.ndim)) if axes is None else list(axes)
    widths = [(0, 0)] * x.ndim
    for i, axis in enumerate(axes):
        widths[axis] = (int(pads[i]), int(pads[i + len(axes)]))
    return np.pad(x, widths, constant_values=value or 0)


def gemm(x, w, bias=0, *, transB=0, alpha=1, beta=1):
    return alpha * (x @ (w.T if transB else w)) + beta * bias


def constant(**attributes):
    ((name, value),) = attributes.items()
    if name == "value":
        value = numpy_helper.to_array(value)
        return value.astype(np.float64) if value.dtype == np.float32 else value
    return np.array(value, np.int64 if name.startswith("value_int") else np.float64)


def erf(x):
    return np.vectorize(math.erf, otypes=[x.dtype])(x)


def hard_sigmoid(x, *, alpha=0.2, beta=0.5):
    return np.clip(alpha * x + beta, 0, 1)


OPERATORS = {
    "Abs": np.abs, "Add": np.add, "Div": np.divide, "Log": np.log, "MatMul": np.matmul, "Mul": np.multiply,
    "Pow": np.power, "Sqrt": np.sqrt, "Sub": np.subtract, "Tanh": np.tanh,
    "AveragePool": lambda x, **a: pool(x, largest=False, **a),
    "BatchNormalization": batch_normalization,
    "Clip": lambda x, low=None, high=None, **a: np.clip(x, a.get("min", -np.inf if low is None else low), a.get("max", np.inf if high is None else high)),
    "Concat": lambda *xs, axis: np.concatenate(xs, axis),
    "Constant": constant,
    "ConstantOfShape": lambda shape, *, value=None: np.full(shape, 0.0 if value is None else numpy_helper.to_array(value)[0]),
    "Cast": lambda x, *, to: x.astype({1: np.float64, 6: np.int64, 7: np.int64}[to]),
    "Dropout": lambda x, *rest, **a: x,
    "Conv": conv,
    "Expand": lambda x, shape: x * np.ones(shape, x.dtype),
    "Flatten": lambda x, *, axis=1: x.reshape(math.prod(x.shape[:axis]), -1),
    "Gather": lambda x, indices, *, axis=0: np.take(x, indices, axis),
    "Gelu": lambda x, **a: x * (1 + erf(x / math.sqrt(2))) / 2,
    "Gemm": gemm,
    "GlobalAveragePool": lambda x: x.mean((2, 3), keepdims=True),
    "GlobalMaxPool": lambda x: x.max((2, 3), keepdims=True),
    "Identity": lambda x: x,
    "LRN": lrn,
    "Max": lambda *xs: functools.reduce(np.maximum, xs),
    "MaxPool": lambda x, **a: pool(x, largest=True, **a),
    "ReduceSum": lambda x, axes, *, keepdims=1: x.sum(tuple(axes), keepdims=bool(keepdims)),
    "Relu": lambda x: np.maximum(x, 0),
    "Reshape": reshaped,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "HardSigmoid": hard_sigmoid,
    "HardSwish": lambda x: x * hard_sigmoid(x, alpha=1 / 6),
    "LogSoftmax": lambda x, *, axis=-1: np.log(softmax(x, axis=axis)),
    "Mean": lambda *xs: sum(xs) / len(xs),
    "Min": lambda *xs: functools.reduce(np.minimum, xs),
    "Mish": lambda x: x * np.tanh(np.logaddexp(x, 0)),
    "Neg": np.negative,
    "PRelu": lambda x, slope: np.where(x < 0, slope * x, x),
    "Pad": lambda x, given=None, value=0, axes=None, *, pads=None, **a: padded(x, pads if given is None else given, value, axes),
    "ReduceMax": lambda x, given=None, *, axes=None, keepdims=1: x.max(tuple(axes if given is None else given), keepdims=bool(keepdims)),
    "ReduceMean": lambda x, given=None, *, axes=None, keepdims=1: x.mean(tuple(axes if given is None else given), keepdims=bool(keepdims)),
    "Selu": lambda x: 1.0507009873554805 * np.where(x < 0, 1.6732632423543772 * np.expm1(x), x),
    "Shape": lambda x, *, start=0, end=None: np.array(x.shape[start:end], np.int64),
    "Split": split,
    "Squeeze": lambda x, given=None, *, axes=None: x.squeeze(tuple(axes if given is None else given)),
    "Unsqueeze": lambda x, given=None, *, axes=None: unsqueezed(x, axes if given is None else given),
    "Slice": lambda x, *rest, **a: sliced(x, *rest, **a),
    "Softmax": softmax,
    "Softplus": lambda x: np.logaddexp(x, 0),
    "LeakyRelu": lambda x, *, alpha=0.01: np.where(x < 0, alpha * x, x),
    "Elu": lambda x, *, alpha=1: np.where(x < 0, alpha * np.expm1(x), x),
    "Erf": erf,
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
        results = OPERATORS[node.op_type](*(values[name] if name else None for name in node.input), **attributes)
        for name, value in zip(node.output, results if isinstance(results, tuple) else (results,)):
            values[name] = value
    return {output.name: values[output.name] for output in model.graph.output}
