#!/usr/bin/env python3
"""Imports models with `convnet import` and compares what the nets compute with the models.

    import_test.py CONVNET SOURCE [FILE.onnx …]

Models are made here, of each operator in the forms that exporters write; their outputs are computed by NumPy (evaluate.py), and
where onnxruntime can be imported by that, too. Models that `convnet export` writes come back as nets that test as before.
FILEs are tried instead with onnxruntime alone, and the nets that come of them are exported and imported once more.

Exit code 77 (ctest: skipped) where NumPy or onnx is missing.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

from packages import numpy as np, onnx, onnxruntime
from onnx import TensorProto, helper, numpy_helper
from evaluate import evaluate

TOLERANCE, TOLERANCE_OF_ROUND_TRIP = 1e-4, 1e-5
PROGRAM, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()


def convnet(*arguments, code=0, errors=subprocess.STDOUT):
    done = subprocess.run([PROGRAM, *map(str, arguments)], stdout=subprocess.PIPE, stderr=errors, text=True, check=False)
    if done.returncode != code:
        sys.exit(f"convnet {' '.join(map(str, arguments))}\nended with exit code {done.returncode}:\n{done.stdout}")
    return done.stdout


def result(*arguments):
    """What a command prints with --json."""
    return json.loads(convnet(*arguments, "--json", 1, errors=subprocess.DEVNULL))


def predicted(run, images, layer):
    """The outputs of a layer for the images in an array."""
    files = result("predict", run, images, "--output", layer, "--precision", "fp32")["files"]
    return np.array([file["outputs"][layer] for file in files])


class Model:
    """A model under construction. Each branch becomes five numbers of the output, with names in `branches`."""

    def __init__(self, dims, opset=13, seed=1):
        self.random = np.random.default_rng(seed)
        self.dims, self.opset = dims, opset
        self.onnxruntime = onnxruntime  # None: NumPy alone computes the model
        self.nodes, self.constants, self.branches, self.heads = [], [], [], []

    def const(self, array, name=None):
        name = name or f"c{len(self.constants)}"
        array = np.asarray(array)
        self.constants.append(numpy_helper.from_array(array.astype(np.float32) if array.dtype == np.float64 else array, name))
        return name

    def ints(self, *values):
        return self.const(np.array(values, np.int64))

    def weights(self, *dims, name=None):
        return self.const(self.random.normal(0, 1 / np.sqrt(max(1, np.prod(dims[1:]))), dims), name)

    def add(self, op, *inputs, outputs=1, **attributes):
        names = [f"{op}_{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, f"{op.lower()}{len(self.nodes)}", **attributes))
        return names[0] if outputs == 1 else names

    def branch(self, name, tensor, size):
        """Ends a branch whose images have `size` numbers."""
        flat = self.add("Flatten", tensor)
        self.heads.append(self.add("Gemm", flat, self.weights(size, 5), self.weights(5)))
        self.branches.append(name)

    def save(self, path, output=None, batch="N"):
        output = output or self.add("Concat", *self.heads, axis=1)
        graph = helper.make_graph(self.nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, *self.dims])],
                                  [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        model.ir_version = 8
        onnx.save(model, str(path))


def imported_outputs(folder, model_file, images, options=("--pixels", "floats"), name="net"):
    """What the imported net makes of images: the numbers below its softmax, and its definition."""
    run = folder / name
    convnet("import", model_file, "--layer-def", folder / f"{name}.cfg", "--checkpoint", run, *options)
    definition = (folder / f"{name}.cfg").read_text()
    convnet("plan", "--strict", "--layer-def", folder / f"{name}.cfg", "--layer-params", folder / f"{name}-params.cfg", "--data-provider",
            "dummy-" + "x".join(map(str, images.shape[1:])) + "-2")
    last = re.search(r"\[probs\]\ntype=softmax\ninputs=(.*)", definition)[1]
    np.save(folder / "images.npy", images)
    return predicted(run, folder / "images.npy", last), definition


def check(what, found, expected, branches=(), tolerance=TOLERANCE):
    worst = 0
    width = expected.shape[1] // max(1, len(branches))
    for i, name in enumerate(branches or [what]):
        part = slice(i * width, (i + 1) * width)
        error = np.abs(found[:, part] - expected[:, part]).max() / max(np.abs(expected[:, part]).max(), 1e-6)
        if not error < tolerance:
            sys.exit(f"{what}: {name} differs by {error:.1e} of the largest value")
        worst = max(worst, error)
    print(f"{what}: agrees to {worst:.1e}" + (f", {len(branches)} forms" if branches else ""))


def check_model(what, make):
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        model = make()
        model.save(folder / "model.onnx")
        images = model.random.normal(0, 1, (3, *model.dims)).astype(np.float32)
        (expected,) = evaluate(onnx.load(str(folder / "model.onnx")), {"x": images}).values()
        if model.onnxruntime:
            session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
            check(what + " (onnxruntime)", session.run(None, {"x": images})[0], expected, model.branches)
        nchw = images
        if make is keras_style:
            nchw = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
        found, definition = imported_outputs(folder, folder / "model.onnx", nchw)
        check(what, found, expected, model.branches)
        return definition


def windows():
    """Convolutions and pools. Maps are 9x11."""
    m = Model((3, 9, 11))
    x = m.add("Conv", "x", m.weights(6, 3, 3, 3, name="stem.weight"), m.weights(6), pads=[1, 1, 1, 1])
    for name, kernel, attributes, sides in [
            ("row", (1, 7), {"pads": [0, 3, 0, 3]}, (9, 11)), ("column", (7, 1), {"pads": [3, 0, 3, 0]}, (9, 11)),
            ("rectangle", (3, 2), {"strides": [1, 3], "pads": [2, 0, 1, 1]}, (10, 4)), ("row of the same size", (1, 4), {"auto_pad": "SAME_LOWER"}, (9, 11)),
            ("dilated", 3, {"dilations": [2, 2], "pads": [2, 2, 2, 2]}, (9, 11)),
            ("dilated rectangle", (2, 3), {"dilations": [4, 1], "strides": [2, 1], "group": 2}, (3, 9)),
            ("more behind", 3, {"pads": [0, 0, 2, 2]}, (9, 11)), ("more before", 4, {"pads": [2, 2, 1, 1]}, (9, 11)), ("all in one corner", 3, {"pads": [3, 1, 0, 2], "strides": [2, 2]}, (5, 6)),
            ("grouped", 3, {"group": 3, "pads": [1, 1, 1, 1]}, (9, 11)), ("depthwise", 5, {"group": 6, "pads": [2, 2, 2, 2], "strides": [2, 2]}, (5, 6)),
            ("even filter", 2, {"strides": [2, 2]}, (4, 5)), ("pixels", 1, {"strides": [2, 2]}, (5, 6)),
            ("dilated pixels", 1, {"dilations": [2, 2]}, (9, 11)), ("valid", 3, {"auto_pad": "VALID"}, (7, 9)),
            ("same", 3, {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, (5, 6)), ("one-sided", 3, {"pads": [0, 0, 1, 1], "strides": [3, 3]}, (3, 4))]:
        group = attributes.get("group", 1)
        kernel = [kernel, kernel] if isinstance(kernel, int) else list(kernel)
        y = m.add("Conv", x, m.weights(6, 6 // group, *kernel), kernel_shape=kernel, **attributes)
        m.branch(name, y, 6 * sides[0] * sides[1])
    for name, op, attributes, sides in [
            ("max", "MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}, (5, 6)),
            ("max of ceil", "MaxPool", {"kernel_shape": [3, 3], "strides": [3, 3], "ceil_mode": 1}, (3, 4)),
            ("max of floor", "MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2]}, (4, 5)),
            ("max of one pixel", "MaxPool", {"kernel_shape": [1, 1]}, (9, 11)),
            ("max of the same size", "MaxPool", {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"}, (9, 11)),
            ("average", "AveragePool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}, (5, 6)),
            ("average with its border", "AveragePool", {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1, 1, 1, 1], "count_include_pad": 1}, (9, 11)),
            ("row of maxima", "MaxPool", {"kernel_shape": [1, 3], "strides": [1, 2]}, (9, 5)),
            ("maxima of the same size, even", "MaxPool", {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER"}, (9, 11)),
            ("maxima with pads behind alone", "MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 0, 1, 1]}, (4, 5)),
            ("maxima with pads before alone", "MaxPool", {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 0, 0]}, (4, 5)),
            ("maxima larger than the maps", "MaxPool", {"kernel_shape": [11, 11], "pads": [2, 1, 2, 1]}, (3, 3)),
            ("averages of columns", "AveragePool", {"kernel_shape": [9, 1], "strides": [1, 1]}, (1, 11)),
            ("averages with one border", "AveragePool", {"kernel_shape": [3, 3], "pads": [1, 0, 0, 2], "strides": [1, 2]}, (8, 6)),
            ("averages with one border that counts", "AveragePool", {"kernel_shape": [3, 2], "pads": [1, 0, 0, 1], "strides": [1, 1], "count_include_pad": 1}, (8, 11)),
            ("average of ceil", "AveragePool", {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}, (5, 6)),
            ("global average", "GlobalAveragePool", {}, (1, 1)), ("global maximum", "GlobalMaxPool", {}, (1, 1)),
            ("mean", "ReduceMean", {"axes": [2, 3]}, (1, 1)), ("mean without axes", "ReduceMean", {"axes": [-1, -2], "keepdims": 0}, (1, 1)),
            ("largest", "ReduceMax", {"axes": [2, 3]}, (1, 1))]:
        m.branch(name, m.add(op, x, **attributes), 6 * sides[0] * sides[1])
    padded = m.add("Pad", x, m.ints(0, 0, 1, 1, 0, 0, 1, 1))
    m.branch("zeros before a convolution", m.add("Conv", padded, m.weights(2, 6, 3, 3), strides=[2, 2]), 2 * 5 * 6)
    positive = m.add("Relu", x)
    padded = m.add("Pad", positive, m.ints(0, 0, 0, 0, 0, 0, 1, 1))
    m.branch("zeros before a maximum", m.add("MaxPool", padded, kernel_shape=[3, 3], strides=[2, 2]), 6 * 4 * 5)
    padded = m.add("Pad", x, m.ints(0, 0, 1, 2, 0, 0, 0, 1))
    m.branch("zeros that a maximum sees", m.add("MaxPool", padded, kernel_shape=[3, 3], strides=[2, 2]), 6 * 4 * 6)
    m.branch("zeros around maps", padded, 6 * 10 * 14)
    m.branch("as many zeros everywhere", m.add("Pad", x, m.ints(0, 0, 1, 1, 0, 0, 1, 1)), 6 * 11 * 13)
    padded = m.add("Pad", x, m.ints(0, 0, 1, 1, 0, 0, 1, 1))
    m.branch("zeros before an average", m.add("AveragePool", padded, kernel_shape=[3, 3], strides=[2, 2]), 6 * 5 * 6)
    return m


def dilated_windows_of_the_same_size():
    """onnxruntime 1.32 refuses to compute these, which ONNX allows."""
    m = Model((3, 9, 11))
    m.onnxruntime = None
    x = m.add("Conv", "x", m.weights(6, 3, 1, 1))
    for sides in ["SAME_UPPER", "SAME_LOWER"]:
        m.branch(sides, m.add("Conv", x, m.weights(6, 6, 3, 2), dilations=[1, 3], auto_pad=sides), 6 * 9 * 11)
    return m


def square_windows():
    """Windows that only square maps can have."""
    m = Model((3, 8, 8))
    x = m.add("Conv", "x", m.weights(4, 3, 1, 1))
    m.branch("even filter of the same size", m.add("Conv", x, m.weights(4, 4, 2, 2), auto_pad="SAME_UPPER"), 4 * 64)
    m.branch("maximum of the same size", m.add("MaxPool", x, kernel_shape=[2, 2], auto_pad="SAME_UPPER"), 4 * 64)
    m.branch("cropped", m.add("Slice", x, m.ints(1, 1), m.ints(-1, -1), m.ints(2, 3)), 4 * 36)
    m.branch("some rows", m.add("Slice", x, m.ints(2), m.ints(7), m.ints(2)), 4 * 5 * 8)
    m.branch("a rectangle of some maps", m.add("Slice", x, m.ints(1, 3, 0), m.ints(3, 9, 7), m.ints(1, 2, 3), m.ints(1, 2, 3)), 2 * 3 * 3)
    m.branch("every second pixel", m.add("Slice", x, m.ints(0, 0), m.ints(100, 100), m.ints(2, 3), m.ints(2, 2)), 4 * 16)
    return m


def functions():
    """Element-wise functions, in all the forms that exporters write."""
    m = Model((4, 3, 3), opset=20)
    x = m.add("Conv", "x", m.weights(4, 4, 1, 1), m.weights(4))
    one = {"half": m.const(np.float32(0.5)), "one": m.const(np.float32(1)), "two": m.const(np.float32(2)), "three": m.const(np.float32(3)),
           "six": m.const(np.float32(6)), "zero": m.const(np.float32(0)), "root": m.const(np.float32(np.sqrt(2))), "low": m.const(np.float32(-0.3))}
    for op in ["Relu", "Sigmoid", "Tanh", "Softplus", "Abs", "Neg", "HardSwish", "Mish", "Gelu", "Elu", "Selu", "LeakyRelu", "HardSigmoid"]:
        m.branch(op, m.add(op, x), 36)
    m.branch("HardSigmoid/6", m.add("HardSigmoid", x, alpha=1 / 6), 36)
    m.branch("Elu 0.3", m.add("Elu", x, alpha=0.3), 36)
    m.branch("relu6", m.add("Clip", x, one["zero"], one["six"]), 36)
    m.branch("clip", m.add("Clip", x, one["low"], one["half"]), 36)
    m.branch("clip from below", m.add("Clip", x, one["low"]), 36)
    m.branch("clip from above", m.add("Clip", x, "", one["half"]), 36)
    m.branch("max with 0", m.add("Max", x, one["zero"]), 36)
    m.branch("min with a number", m.add("Min", one["half"], x), 36)
    m.branch("relu6 in two steps", m.add("Min", m.add("Relu", x), one["six"]), 36)
    m.branch("prelu of maps", m.add("PRelu", x, m.weights(4, 1, 1)), 36)
    for slope in [0.2, 0.0, -0.3]:
        m.branch(f"prelu {slope}", m.add("PRelu", x, m.const([slope])), 36)
    m.branch("leaky relu that bends back", m.add("LeakyRelu", x, alpha=-0.2), 36)
    one_map = m.add("Conv", x, m.weights(1, 4, 1, 1), m.weights(1))
    m.branch("one map times a number of each image", m.add("Mul", one_map, m.add("GlobalAveragePool", one_map)), 9)
    m.branch("silu", m.add("Mul", x, m.add("Sigmoid", x)), 36)
    m.branch("mish", m.add("Mul", x, m.add("Tanh", m.add("Softplus", x))), 36)
    erf1 = m.add("Add", m.add("Erf", m.add("Div", x, one["root"])), one["one"])
    m.branch("gelu of PyTorch", m.add("Mul", m.add("Mul", x, erf1), one["half"]), 36)
    m.branch("gelu, half first", m.add("Mul", m.add("Mul", x, one["half"]), erf1), 36)
    m.branch("gelu, half of erf", m.add("Mul", x, m.add("Mul", one["half"], erf1)), 36)
    clipped = m.add("Clip", m.add("Add", x, one["three"]), one["zero"], one["six"])
    m.branch("hswish, division last", m.add("Div", m.add("Mul", x, clipped), one["six"]), 36)
    m.branch("hswish, division first", m.add("Mul", x, m.add("Div", clipped, one["six"])), 36)
    m.branch("hsigmoid", m.add("Div", clipped, one["six"]), 36)
    m.branch("square", m.add("Mul", x, x), 36)
    m.branch("power", m.add("Pow", x, one["two"]), 36)
    m.branch("root", m.add("Sqrt", m.add("Abs", x)), 36)
    m.branch("scaled tanh", m.add("Mul", m.add("Tanh", m.add("Mul", x, one["half"])), one["three"]), 36)
    m.branch("dropout", m.add("Dropout", x, one["half"]), 36)
    m.branch("line", m.add("Sub", one["two"], m.add("Mul", m.add("Add", x, one["one"]), one["three"])), 36)
    return m


def old_functions():
    """The same with attributes, as older opsets have them."""
    m = Model((4, 3, 3), opset=7)
    x = m.add("Conv", "x", m.weights(4, 4, 1, 1))
    m.branch("relu6", m.add("Clip", x, min=0.0, max=6.0), 36)
    m.branch("dropout", m.add("Dropout", x, ratio=0.2), 36)
    m.branch("slice", m.add("Slice", x, starts=[1], ends=[3], axes=[1]), 18)
    m.branch("pad", m.add("Conv", m.add("Pad", x, pads=[0, 0, 1, 1, 0, 0, 1, 1]), m.weights(2, 4, 3, 3)), 18)
    parts = m.add("Split", x, outputs=2, axis=1, split=[1, 3])
    m.branch("split", parts[1], 27)
    m.branch("squeezed", m.add("Squeeze", m.add("GlobalAveragePool", x), axes=[2, 3]), 4)
    m.branch("mean", m.add("ReduceMean", x, axes=[2, 3]), 4)
    return m


def arithmetic():
    """Sums, products and concatenations."""
    m = Model((3, 4, 5))
    a = m.add("Conv", "x", m.weights(4, 3, 1, 1))
    b = m.add("Relu", m.add("Conv", "x", m.weights(4, 3, 3, 3), pads=[1, 1, 1, 1]))
    m.branch("sum", m.add("Add", a, b), 80)
    m.branch("difference", m.add("Sub", a, b), 80)
    m.branch("weighted sum", m.add("Add", a, m.add("Mul", b, m.const(np.float32(0.2)))), 80)
    m.branch("sum of three", m.add("Sum", a, b, a), 80)
    m.branch("mean of two", m.add("Mean", a, b), 80)
    m.branch("product", m.add("Mul", a, b), 80)
    m.branch("maximum", m.add("Max", a, b), 80)
    m.branch("maps together", m.add("Concat", a, b, axis=1), 160)
    gate = m.add("Sigmoid", m.add("Conv", m.add("GlobalAveragePool", a), m.weights(4, 4, 1, 1), m.weights(4)))
    m.branch("squeeze and excitation", m.add("Mul", gate, b), 80)
    m.branch("bias of maps", m.add("Add", a, m.weights(4, 1, 1)), 80)
    m.branch("factors of maps", m.add("Mul", b, m.weights(1, 4, 1, 1)), 80)
    m.branch("quotient of maps", m.add("Div", b, m.const(np.arange(1, 5).reshape(4, 1, 1) / 2)), 80)
    m.branch("biases of elements", m.add("Add", m.add("Conv", "x", m.weights(4, 3, 1, 1), m.weights(4)), m.weights(4, 4, 5)), 80)
    m.branch("affine twice", m.add("Mul", m.add("Add", m.add("Mul", b, m.weights(4, 1, 1)), m.weights(4, 1, 1)), m.weights(4, 1, 1)), 80)
    parts = m.add("Split", b, m.ints(1, 3), outputs=2, axis=1)
    m.branch("split", parts[1], 60)
    m.branch("slice of maps", m.add("Slice", b, m.ints(1), m.ints(1000), m.ints(1), m.ints(2)), 40)
    m.branch("one map", m.add("Unsqueeze", m.add("Gather", b, m.const(np.int64(2)), axis=1), m.ints(1)), 20)
    norm = [m.const(m.random.uniform(0.5, 2, 4)) for _ in range(4)]
    m.branch("batch norm", m.add("BatchNormalization", a, *norm, epsilon=1e-3, momentum=0.99), 80)
    m.branch("batch norm with a factor", m.add("Mul", m.add("BatchNormalization", a, *norm), m.weights(4, 1, 1)), 80)
    m.branch("response norm", m.add("LRN", b, size=3, alpha=0.5, beta=0.75, bias=2.0), 80)
    vector = m.add("Relu", m.add("Gemm", m.add("Flatten", b), m.weights(6, 80), m.weights(6), transB=1, alpha=0.5, beta=2.0))
    m.branch("matmul and biases", m.add("Add", m.add("MatMul", vector, m.weights(6, 7)), m.weights(7)), 7)
    m.branch("batch norm of a vector", m.add("BatchNormalization", vector, *[m.const(m.random.uniform(0.5, 2, 6)) for _ in range(4)]), 6)
    m.branch("product of vectors", m.add("Mul", vector, m.add("Gemm", vector, m.weights(6, 6))), 6)
    m.branch("vectors together", m.add("Concat", vector, vector, axis=-1), 12)
    m.branch("softmax", m.add("Softmax", vector, axis=1), 6)
    # Two ways and the weights with which a third one chooses of them, as SKNet and ResNeSt do.
    stack = m.add("Concat", m.add("Unsqueeze", a, m.ints(1)), m.add("Unsqueeze", b, m.ints(1)), axis=1)
    m.branch("sum of a stack", m.add("ReduceSum", stack, m.ints(1), keepdims=0), 80)
    m.branch("sum of a stack that keeps its axis", m.add("Conv", m.add("Squeeze", m.add("ReduceSum", stack, m.ints(1)), m.ints(1)), m.weights(2, 4, 1, 1)), 40)
    choice = m.add("Reshape", m.add("Conv", m.add("GlobalAveragePool", a), m.weights(8, 4, 1, 1)), m.ints(-1, 2, 4, 1, 1))
    chosen = m.add("Softmax", choice, axis=1)
    m.branch("softmax of two parts", m.add("Reshape", chosen, m.ints(-1, 8)), 8)
    m.branch("selective kernels", m.add("ReduceSum", m.add("Mul", stack, chosen), m.ints(1), keepdims=0), 80)
    both = m.add("Conv", "x", m.weights(8, 3, 1, 1))
    parted = m.add("Reshape", both, m.ints(-1, 2, 4, 4, 5))
    exchanged = m.add("Transpose", m.add("Reshape", choice, m.ints(-1, 1, 2, 4)), perm=[0, 2, 1, 3])
    attention = m.add("Reshape", m.add("Softmax", exchanged, axis=1), m.ints(-1, 2, 4, 1, 1))
    m.branch("split attention", m.add("ReduceSum", m.add("Mul", parted, attention), m.ints(1), keepdims=0), 80)
    m.branch("part of a product of concatenations", m.add("Slice", m.add("Mul", m.add("Concat", a, b, axis=1), m.add("Concat", b, a, axis=1)), m.ints(4), m.ints(8), m.ints(1)), 80)
    m.branch("sums of pixels", m.add("ReduceSum", b, m.ints(2, 3), keepdims=0), 4)
    # Weights that the model itself normalises.
    rows = m.add("Reshape", m.weights(4, 3, 3, 3), m.ints(1, 4, -1))
    centred = m.add("Sub", rows, m.add("ReduceMean", rows, axes=[0, 2], keepdims=1))
    statistics = [m.add("ReduceMean", rows, axes=[0, 2], keepdims=0), m.add("ReduceMean", m.add("Mul", centred, centred), axes=[0, 2], keepdims=0)]
    standard = m.add("BatchNormalization", rows, m.weights(4), m.weights(4), *statistics, epsilon=1e-6)
    m.branch("weights of a standard deviation", m.add("Conv", "x", m.add("Reshape", standard, m.ints(4, 3, 3, 3))), 24)
    length = m.add("Sqrt", m.add("ReduceSum", m.add("Mul", rows, rows), m.ints(2)))
    m.branch("weights of a length", m.add("Conv", "x", m.add("Reshape", m.add("Div", rows, length), m.ints(4, 3, 3, 3))), 24)
    m.branch("logarithm of softmax", m.add("LogSoftmax", vector, axis=-1), 6)
    return m


def shapes():
    """Forms that follow from shape arithmetic, and maps in other orders."""
    m = Model((3, 4, 4))
    x = m.add("Relu", m.add("Conv", "x", m.weights(6, 3, 1, 1)))
    shape = m.add("Shape", x)
    images = m.add("Unsqueeze", m.add("Gather", shape, m.const(np.int64(0))), m.ints(0))
    m.branch("reshape by shape arithmetic", m.add("Reshape", x, m.add("Concat", images, m.ints(-1), axis=0)), 96)
    m.branch("reshape to flat", m.add("Reshape", x, m.add("Constant", value_ints=[0, -1])), 96)
    five = m.add("Reshape", x, m.ints(0, 2, 3, 4, 4))
    shuffled = m.add("Reshape", m.add("Transpose", five, perm=[0, 2, 1, 3, 4]), m.ints(0, 6, 4, 4))
    m.branch("channel shuffle", m.add("Conv", shuffled, m.weights(4, 6, 3, 3)), 16)
    m.branch("half of a channel shuffle", m.add("Split", shuffled, m.ints(3, 3), outputs=2, axis=1)[1], 48)
    m.branch("channel shuffle before a sum", m.add("Add", shuffled, x), 96)
    folded = m.add("Reshape", m.add("Transpose", m.add("Reshape", x, m.ints(-1, 3, 32)), perm=[0, 2, 1]), m.ints(0, -1))
    m.branch("pixels first", folded, 96)
    flat = m.add("Reshape", m.add("Transpose", m.add("Reshape", x, m.ints(-1, 3, 2, 16)), perm=[0, 2, 1, 3]), m.ints(0, 6, 4, 4))
    m.branch("channel shuffle of folded pixels", flat, 96)
    m.branch("every second map", m.add("Slice", x, m.ints(1), m.ints(6), m.ints(1), m.ints(2)), 48)
    last = m.add("Transpose", x, perm=[0, 2, 3, 1])
    m.branch("channels last", last, 96)
    m.branch("channels last and back", m.add("Conv", m.add("Transpose", m.add("Relu", last), perm=[0, 3, 1, 2]), m.weights(2, 6, 2, 2)), 18)
    m.branch("biases of channels last", m.add("Add", last, m.weights(6)), 96)
    m.branch("product of channels last", m.add("MatMul", last, m.weights(6, 5)), 80)
    m.branch("mean of channels last", m.add("ReduceMean", last, axes=[1, 2]), 6)
    m.branch("channels last together", m.add("Concat", last, m.add("Tanh", last), axis=3), 192)
    gate = m.add("Sigmoid", m.add("ReduceMean", last, axes=[1, 2], keepdims=1))
    m.branch("factors of channels last", m.add("Mul", last, gate), 96)
    m.branch("cast and identity", m.add("Identity", m.add("Cast", x, to=1)), 96)
    filled = m.add("ConstantOfShape", m.ints(1), value=helper.make_tensor("v", TensorProto.FLOAT, [1], [0.25]))
    m.branch("computed constant", m.add("Mul", x, m.add("Add", filled, m.add("Constant", value_float=1.0))), 96)
    m.branch("expand to its own size", m.add("Expand", x, m.ints(1, 6, 4, 4)), 96)
    vector = m.add("Gemm", m.add("Flatten", x), m.weights(96, 48))
    m.branch("maps of a vector", m.add("Conv", m.add("Reshape", vector, m.ints(-1, 3, 4, 4)), m.weights(2, 3, 3, 3)), 8)
    # The padding that exporters compute for layers with TensorFlow's padding.
    side = m.add("Gather", shape, m.const(np.int64(2)))
    needed = m.add("Sub", m.add("Add", m.add("Mul", m.add("Sub", m.add("Div", m.add("Add", side, m.const(np.int64(1))), m.const(np.int64(2))),
                   m.const(np.int64(1))), m.const(np.int64(2))), m.const(np.int64(3))), side)
    behind = m.add("Unsqueeze", m.add("Clip", needed, m.const(np.int64(0))), m.ints(0))
    padded = m.add("Pad", x, m.add("Concat", m.ints(0, 0, 0, 0, 0, 0), behind, behind, axis=0))
    m.branch("padding of TensorFlow", m.add("Conv", padded, m.weights(2, 6, 3, 3), strides=[2, 2]), 8)
    turned = m.add("Transpose", m.weights(5, 96), perm=[1, 0])
    m.branch("transposed weights", m.add("MatMul", m.add("Flatten", x), turned), 5)
    m.branch("image in channels of its own", m.add("Concat", *[m.add("Add", m.add("Mul", m.add("Unsqueeze", m.add(
        "Gather", "x", m.const(np.int64(c)), axis=1), m.ints(1)), m.const(np.float32(c + 0.5))), m.const(np.float32(-c))) for c in range(3)], axis=1), 48)
    return m


def new_shapes():
    """The forms of newer opsets."""
    m = Model((3, 4, 4), opset=18)
    x = m.add("Conv", "x", m.weights(5, 3, 1, 1))
    m.branch("mean", m.add("ReduceMean", x, m.ints(2, 3)), 5)
    m.branch("split by number", m.add("Split", x, outputs=2, axis=1, num_outputs=2)[1], 32)
    m.branch("pad of axes", m.add("Conv", m.add("Pad", x, m.ints(1, 1, 1, 1), "", m.ints(2, 3)), m.weights(2, 5, 3, 3)), 32)
    m.branch("part of a shape", m.add("Reshape", x, m.add("Concat", m.add("Shape", x, start=0, end=1), m.ints(80), axis=0)), 80)
    return m


def keras_style():
    """Images with the channels last, and the exchanges of axes that tf2onnx writes around convolutions."""
    m = Model((6, 6, 3))
    x = m.add("Transpose", "x", perm=[0, 3, 1, 2])
    x = m.add("Conv", x, m.weights(4, 3, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2])
    x = m.add("Transpose", x, perm=[0, 2, 3, 1])
    x = m.add("Relu", m.add("Add", x, m.weights(4)))
    m.branch("flat", m.add("Reshape", x, m.ints(-1, 36)), 36)
    y = m.add("Transpose", m.add("MaxPool", m.add("Transpose", x, perm=[0, 3, 1, 2]), kernel_shape=[2, 2], strides=[1, 1]), perm=[0, 2, 3, 1])
    m.branch("pooled", y, 16)
    m.branch("mean", m.add("ReduceMean", y, axes=[1, 2], keepdims=0), 4)
    return m


def check_refusals():
    """All operators that cannot be layers are named at once, with the reason."""
    m = Model((3, 8, 8))
    x = m.add("Conv", "x", m.weights(4, 3, 3, 3), pads=[1, 1, 1, 1])
    wanted = []

    def refused(text, op, *inputs, **attributes):
        m.branch(text, m.add(op, *inputs, **attributes), 4)
        (name,) = [node.name for node in m.nodes[-3:-2]]
        wanted.append(f"node '{name}' ({op}): {text}")

    refused("its stride is 0x2", "Conv", x, m.weights(4, 4, 3, 3), strides=[0, 2])
    refused("its dilation is 1x5000", "Conv", x, m.weights(4, 4, 3, 3), dilations=[1, 5000])
    refused("its windows are larger than the maps", "Conv", x, m.weights(4, 4, 3, 3), dilations=[4, 1])
    refused("it has a dilation of 2, which no pool layer has", "MaxPool", x, kernel_shape=[3, 3], dilations=[2, 2])
    refused("its pads are 3,0,0,0 (top, left, bottom, right): a window lies in them only", "MaxPool", x, kernel_shape=[2, 2], pads=[3, 0, 0, 0])
    refused("no layer computes it", "ConvTranspose", x, m.weights(4, 4, 3, 3))
    # What follows one that is refused is named, too, if no input could save it.
    m.nodes.append(helper.make_node("LayerNormalization", [m.nodes[-3].output[0], m.const(np.ones(4))], ["after"], "after"))
    wanted.append("node 'after' (LayerNormalization): no layer computes it")
    m.heads.append(m.add("Relu", "after"))
    refused("it is of a quantised model; import the model as it was before it was quantised", "DequantizeLinear", x, m.const(np.float32(1)))
    refused("its mode is 'reflect'; layers put zeros around maps", "Pad", x, m.ints(0, 0, 1, 1, 0, 0, 1, 1), mode="reflect")
    refused("it moves the axis of the images", "Transpose", x, perm=[1, 0, 2, 3])
    refused("it divides by something that is no constant", "Div", x, x)
    refused("its size is 4; the windows of a layer are odd here", "LRN", x, size=4)
    refused("its inputs are 1x4x8x8 and 1x3x8x8; layers take inputs of one size", "Add", x, "x")
    refused("it reduces other axes than the two sides of the maps, as layer norms do, which no layer computes", "ReduceMean", x, axes=[1])
    refused("it reduces other axes than the two sides of the maps", "ReduceMax", x, axes=[1])
    refused("it is over 4 parts of the maps; layers compute it over two", "Softmax", m.add("Reshape", x, m.ints(-1, 4, 1, 8, 8)), axis=1)
    refused("it takes elements along another axis than that of the maps", "Slice", m.add("Reshape", x, m.ints(-1, 4, 64)), m.ints(0), m.ints(3), m.ints(2))
    refused("it names the axis 1 twice", "Slice", x, m.ints(2, 2), m.ints(4, 4), m.ints(1, 1))
    refused("its approximate is 'tanh', which is another function than gelu", "Gelu", x, approximate="tanh")
    refused("it is not over all numbers of an image, as that of a layer is", "Softmax", x, axis=2)
    refused("it is an operator of 'com.microsoft', not of ONNX itself", "FusedConv", x, domain="com.microsoft")
    with tempfile.TemporaryDirectory() as scratch:
        model = pathlib.Path(scratch) / "model.onnx"
        m.save(model)
        printed = convnet("import", model, "--layer-def", pathlib.Path(scratch) / "net.cfg", "--checkpoint", pathlib.Path(scratch) / "net", code=2)
        for line in wanted:
            assert f"{model}: {line}" in printed, f"{line}\nis not in\n{printed}"
        assert len(printed.splitlines()) == len(wanted), printed
        assert [file.name for file in pathlib.Path(scratch).iterdir()] == ["model.onnx"]
    # What only shows when the net is whole.
    m = Model((3, 8, 8))
    m.branch("a", m.add("Pad", "x", m.ints(0, 0, 1, 1, 0, 0, 1, 1), m.const(np.float32(0.5))), 300)
    m.branch("b", m.add("Erf", "x"), 192)
    m.branch("c", m.add("Add", m.add("Relu", "x"), m.weights(3, 8, 8)), 192)
    with tempfile.TemporaryDirectory() as scratch:
        model = pathlib.Path(scratch) / "model.onnx"
        m.save(model)
        printed = convnet("import", model, "--layer-def", pathlib.Path(scratch) / "net.cfg", "--checkpoint", pathlib.Path(scratch) / "net", code=2)
        for text in ["(Pad): its border is 0.5; layers put zeros around maps", "(Erf): layers have erf in gelu only", "(Add): no layer adds a number to each element"]:
            assert text in printed, printed
    print(f"refusals: {len(wanted) + 3} as expected")


def round_trip(name, shape, classes):
    """A run of a net in configs/, exported and imported: the same costs and outputs, and it trains on."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        random = np.random.default_rng(2)
        images = random.integers(0, 256, (max(4, classes), *shape)).astype(np.uint8)
        for part in ["train", "val"]:
            (folder / "data" / part).mkdir(parents=True)
            np.save(folder / "data" / part / "images.npy", images)
            np.save(folder / "data" / part / "labels.npy", np.arange(len(images)) % classes)
        slower = re.sub(r"(base=|^eps[WB]=)([0-9.e-]+)", lambda m: f"{m[1]}{float(m[2]) / 1000}",
                        (SOURCE / "configs" / f"{name}-params.cfg").read_text(), flags=re.MULTILINE)
        (folder / "slow-params.cfg").write_text(slower)
        data = ["--data-provider", "npy", "--data-path", folder / "data", "--train-range", 1, "--test-range", 2, "--mini", len(images), "--precision", "fp32"]
        convnet("--layer-def", SOURCE / "configs" / f"{name}.cfg", "--layer-params", folder / "slow-params.cfg", *data, "--pixel-std", 1,
                "--epochs", 1, "--test-freq", 1, "--save-file", folder / "run")
        convnet("export", folder / "run", folder / "net.onnx")
        convnet("import", folder / "net.onnx", "--layer-def", folder / "net.cfg", "--checkpoint", folder / "net")
        costs, outputs = [], []
        for run in ["run", "net"]:
            tested = result("--load-file", folder / run, "--test-only", 1, *data)
            costs.append([tested["costs"]["logprob"][value] for value in ["-log p", "top-1 error"]])
            outputs.append(predicted(folder / run, folder / "data/val/images.npy", "probs"))
        error = np.abs(outputs[0] - outputs[1]).max()
        assert error < 1e-5 and np.allclose(*costs, atol=1e-5), (name, error, costs)
        convnet("--layer-def", folder / "net.cfg", "--layer-params", folder / "net-params.cfg", "--init-from", folder / "net", *data, "--pixel-std", 1,
                "--epochs", 1, "--test-freq", 1, "--save-file", folder / "again")
        print(f"{name}: exported and imported, agrees to {error:.1e}")


def check_file(path):
    """A file from elsewhere: onnxruntime and the imported net agree on random pictures."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    read = {name for node in onnx.load(str(path)).graph.node for name in node.input}
    (put,) = [one for one in session.get_inputs() if one.name in read]
    # tf2onnx writes inputs that nothing reads.
    rest = {one.name: np.zeros(one.shape, np.float32) for one in session.get_inputs() if one.name not in read}
    dims = [side if isinstance(side, int) else 0 for side in put.shape]
    images = np.random.default_rng(1).uniform(-2, 2, (3 if dims[0] in (0, 3) else dims[0], *dims[1:])).astype(np.float32)
    if dims[0] in (0, 3):
        expected = session.run(None, {put.name: images, **rest})[0]
    else:
        images = np.random.default_rng(1).uniform(-2, 2, (3, *dims[1:])).astype(np.float32)
        expected = np.concatenate([session.run(None, {put.name: image[None], **rest})[0] for image in images])
    nchw = images
    if images.ndim == 4 and images.shape[1] not in (1, 3):
        nchw = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        found, definition = imported_outputs(folder, path, nchw)
        scores, expected = found, expected.reshape(len(expected), -1)
        if np.allclose(expected.sum(1), 1, atol=1e-3) and expected.min() > 0:  # probabilities; `found` is below the softmax
            expected = np.log(expected)
            expected -= expected.mean(1, keepdims=True)
            found = found - found.mean(1, keepdims=True)
        check(pathlib.Path(path).name, found, expected)
        convnet("export", folder / "net", folder / "again.onnx")
        again = imported_outputs(folder, folder / "again.onnx", nchw, options=(), name="again")[0]
        check(f"{pathlib.Path(path).name}, exported and imported", again, scores, tolerance=TOLERANCE_OF_ROUND_TRIP)
        return definition


if sys.argv[3:]:
    for file in sys.argv[3:]:
        check_file(file)
    sys.exit()
definitions = {make.__name__: check_model(make.__name__, make) for make in [
    windows, dilated_windows_of_the_same_size, square_windows, functions, old_functions, arithmetic, shapes, new_shapes, keras_style]}
# Maps in the order of a shuffle are no convolution of ones; all users of the same order read one layer.
assert definitions["shapes"].count("type=shuffle") == 2 and "It learns nothing" not in definitions["shapes"], definitions["shapes"]
# Parts of concatenations are read from the layers that were concatenated: only other maps have slices.
assert definitions["arithmetic"].count("type=slice") == 7, definitions["arithmetic"]
check_refusals()
for config, dims, count in [("lenet", (1, 28, 28), 10), ("cifar-quick", (3, 32, 32), 10), 
                            ("wrn-16-4", (3, 32, 32), 10), ("resnet18-imagenet", (3, 224, 224), 2), ("mobilenet-v3-small-imagenet", (3, 224, 224), 2),
                            ("shufflenet_v2_x1_0", (3, 96, 96), 2)]:
    round_trip(config, dims, count)
