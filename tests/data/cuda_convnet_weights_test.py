#!/usr/bin/env python3
"""scripts/weights-from-cuda-convnet: the weights of a checkpoint of cuda-convnet or cuda-convnet2 reach a run by --init-from. The
checkpoint is made here, number by number, from one of convnet: a matrix has a column for each filter or output; the rows of conv are
(channel, pixel), those of local (position, channel, pixel); unshared biases lie filter by filter."""

import array
import itertools
import json
import math
import os
import pathlib
import pickle
import struct
import subprocess
import sys
import tempfile
import zipfile

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/weights-from-cuda-convnet"
# Section: its keys, and those of the checkpoint that say the same after cuda-convnet has parsed them.
LAYERS = {
    "data": ("type=data dataIdx=0", {}),
    "labels": ("type=data dataIdx=1", {}),
    "conv1": ("type=conv inputs=data channels=4 filters=3 groups=2 filterSize=3 padding=1 stride=2 neuron=relu", {"filterChannels": [2], "filters": 6}),
    "conv2": ("type=conv inputs=conv1,data channels=6,4 filters=4 filterSize=2,3 stride=2,3 padding=0,0 sharedBiases=0 initB=0.1", {"filterChannels": [6, 4]}),
    "twin": ("type=conv inputs=data channels=4 filters=3 groups=2 filterSize=3 padding=1 stride=2 weightSource=conv1", {"filterChannels": [2], "filters": 6}),
    "local3": ("type=local inputs=twin channels=6 filters=2 groups=3 filterSize=2 stride=2 neuron=tanh[1,1]", {"filterChannels": [2], "filters": 6}),
    "sfc4": ("type=sfc inputs=local3 outputs=5 parts=2 initW=0.1", {"parts": 2}),
    "fc5": ("type=fc inputs=conv2,sfc4,sfc4 outputs=10 initW=0.1 neuron=ident", {}),
    "probs": ("type=softmax inputs=fc5", {}),
    "logprob": ("type=cost.logreg inputs=labels,probs", {}),
}


class Named:
    """A class or function of which a pickle holds only the name."""

    def __init__(self, module, name):
        self.module, self.name = module, name


class Object:
    """An object that a pickle makes by calling `make`, and whose state it sets."""

    def __init__(self, make, arguments, state):
        self.make, self.arguments, self.state = make, arguments, state

    def __reduce__(self):
        return Call(self.make), self.arguments, self.state


class Call:
    def __init__(self, named):
        self.named = named

    def __call__(self):
        pass


class Pickler(pickle._Pickler):
    """Writes strings as Python 2 does, and names without importing what they name."""

    dispatch = dict(pickle._Pickler.dispatch)

    def save_string(self, text):
        data = text if isinstance(text, bytes) else text.encode()
        self.write(b"T" + struct.pack("<i", len(data)) + data)

    def save_named(self, named):
        self.write(f"c{named.module}\n{named.name}\n".encode())

    def save_call(self, call):
        self.save_named(call.named)

    dispatch.update({str: save_string, bytes: save_string, Named: save_named, Call: save_call})


def write_pickle(path, value):
    with open(path, "wb") as file:
        Pickler(file, 2).dump(value)


def numpy_array(rows, columns, value, fortran=False):
    """Returns a NumPy array of float32 with value(row, column)."""
    order = ((r, c) for c in range(columns) for r in range(rows)) if fortran else itertools.product(range(rows), range(columns))
    items = array.array("f", (value(r, c) for r, c in order)).tobytes()
    kind = Object(Named("numpy", "dtype"), ("f4", 0, 1), (3, "<", None, None, None, -1, -1, 0))
    return Object(Named("numpy.core.multiarray", "_reconstruct"), (Named("numpy", "ndarray"), (0,), b"b"), (1, (rows, columns), kind, fortran, items))


def read_safetensors(path):
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    return {
        name: (entry["shape"], array.array("f", data[8 + length + entry["data_offsets"][0] : 8 + length + entry["data_offsets"][1]]))
        for name, entry in header.items()
        if name != "__metadata__"
    }


def at(tensor, *index):
    dims, numbers = tensor
    place = 0
    for i, n in zip(index, dims):
        place = place * n + i
    return numbers[place]


def matrix(kind, tensor):
    """Returns the array that cuda-convnet has for a matrix of convnet."""
    dims = tensor[0]
    if kind == "fc":
        return numpy_array(dims[1], dims[0], lambda r, c: at(tensor, c, r), fortran=True)
    if kind == "sfc":
        return numpy_array(dims[0] * dims[2], dims[1], lambda r, c: at(tensor, r // dims[2], c, r % dims[2]))
    channels, side = dims[-3], dims[-1]

    def weight(r, c):
        position, rest = divmod(r, channels * side * side)
        channel, pixel = divmod(rest, side * side)
        place = divmod(position, dims[1]) if kind == "local" else ()
        return at(tensor, *place, c, channel, pixel // side, pixel % side)

    return numpy_array((dims[0] * dims[1] if kind == "local" else 1) * channels * side * side, dims[-4], weight)


def biases(kind, tensor):
    dims = tensor[0]
    if kind == "local":
        y, x, filters = dims
        return numpy_array(filters * y * x, 1, lambda r, _: at(tensor, r % (y * x) // x, r % x, r // (y * x)))
    count = math.prod(dims)
    return numpy_array(1, count, lambda _, c: tensor[1][c], fortran=True) if kind in ("fc", "sfc") else numpy_array(count, 1, lambda r, _: tensor[1][r])


def their_layers(tensors):
    """Returns the layers of a checkpoint of cuda-convnet2 with these weights."""
    layers = {}
    for name, (text, parsed) in LAYERS.items():
        keys = dict(word.split("=", 1) for word in text.split())
        kind = keys["type"]
        layer = {"name": name, "type": kind, "neuron": keys.get("neuron", ""), **parsed}
        if "inputs" in keys:
            inputs = keys["inputs"].split(",")
            layer["inputs"] = [f"{i}_neuron" if layers[i]["neuron"] else i for i in inputs]
        if kind in ("conv", "local", "fc", "sfc"):
            shared = "weightSource" in keys
            layer["weightSourceLayers"] = ["conv1" if shared else ""] * len(inputs)
            seen = []
            layer["weights"] = []
            for i in inputs:
                tensor = "conv1.weights.data" if shared else f"{name}.weights.{i}" + (f".{seen.count(i)}" if i in seen else "")
                layer["weights"].append(matrix(kind, tensors[tensor]))
                seen.append(i)
            bias = tensors[f"{name}.biases"]
            layer["biases"] = biases(kind, bias)
            if kind in ("conv", "local"):
                layer.setdefault("filters", 4)
                layer["filterSize"] = [int(size) for size in keys["filterSize"].split(",")]
                layer["sharedBiases"] = keys.get("sharedBiases") != "0"
                layer["modulesX"] = bias[0][0 if kind == "local" else 1] if len(bias[0]) == 3 else 5
                layer["modules"] = layer["modulesX"] ** 2
        layers[name] = layer
        if layer["neuron"]:
            layers[f"{name}_neuron"] = {"name": f"{name}_neuron", "type": "neuron", "inputs": [name], "neuron": {"type": "relu"}}
    return layers


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        pathlib.Path("net.cfg").write_text("".join(f"[{name}]\n" + text.replace(" ", "\n") + "\n" for name, (text, _) in LAYERS.items()))
        pathlib.Path("params.cfg").write_text("[DEFAULT]\nepsW=0.01\nepsB=0.01\nmomW=0\nmomB=0\n")

        def train(save, *options):
            line = [program, "--data-provider", "dummy-4x8x8-10", "--train-range", "1", "--test-range", "2", "--layer-def", "net.cfg"]
            line += ["--layer-params", "params.cfg", "--save-file", save, *options]
            return subprocess.run(line, text=True, capture_output=True, check=True).stdout

        def convert(source):
            return subprocess.run([sys.executable, SCRIPT, source, "weights.safetensors"], text=True, capture_output=True)

        train("ours", "--epochs", "1")
        weights = {name: tensor for name, tensor in read_safetensors(pathlib.Path("ours/1.1.safetensors")).items() if "Inc" not in name}
        weights = {name: tensor for name, tensor in weights.items() if ".weights." in name or name.endswith(".biases")}
        assert len({tensor[1].tobytes() for tensor in weights.values()}) == len(weights), "equal matrices would hide mistakes"
        layers = their_layers(weights)
        # The options of a run are an object, which is not made. One that is made would write a file.
        options = Object(Named("os", "system"), ("touch ran",), {})
        theirs = pathlib.Path("ConvNet__2014")
        theirs.mkdir()
        write_pickle(theirs / "10.2", {"model_state": {"layers": layers, "epoch": 10}, "op": options})
        write_pickle(theirs / "9.5", {})
        # cuda-convnet 1: a list, inputs by number, shared weights by number, and zipped.
        numbers = {name: i for i, name in enumerate(layers)}
        old = [dict(layer) for layer in layers.values()]
        for layer in old:
            if "inputs" in layer:
                layer["inputs"] = [numbers[name] for name in layer["inputs"]]
            if "weightSourceLayers" in layer:
                layer["weightSourceLayerIndices"] = [numbers.get(name, -1) for name in layer.pop("weightSourceLayers")]
        write_pickle("plain", {"op": options, "model_state": {"layers": old}})
        with zipfile.ZipFile("zipped", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write("plain", "data")
        for source in ["ConvNet__2014", "ConvNet__2014/10.2", "plain", "zipped"]:
            converted = convert(source)
            assert converted.returncode == 0, converted
            assert "local3.weights.twin  3x3x6x2x2x2\n" in converted.stdout, converted.stdout
            assert read_safetensors(pathlib.Path("weights.safetensors")) == weights, source
        assert not pathlib.Path("ran").exists()
        copied = train("new", "--epochs", "1", "--init-from", "weights.safetensors")
        assert f"{len(weights)} of {len(weights)} matrices copied, 0 newly made" in copied, copied

        write_pickle("layerless", {"model_state": {"layers": {"fc": {"type": "fc", "inputs": [], "weights": [1]}}}})
        pathlib.Path("empty").mkdir()
        for source, message in [
            ("none", "none: No such file or directory"),
            ("empty", "empty: holds no checkpoint of cuda-convnet (files named EPOCH.BATCH)"),
            ("net.cfg", "net.cfg: is no checkpoint of cuda-convnet: "),
            ("ConvNet__2014/9.5", "9.5: is no checkpoint of cuda-convnet: it has no 'model_state' with 'layers'"),
            ("layerless", "layerless: a layer is not one of cuda-convnet's: "),
        ]:
            refused = convert(source)
            assert refused.returncode == 2 and message in refused.stderr and "Traceback" not in refused.stderr, refused


if __name__ == "__main__":
    main()
