#!/usr/bin/env python3
"""Exports nets with `convnet export` and evaluates the models on the images that the program's own tests read.

    export_test.py CONVNET SOURCE [NET …]

The checker and the strict shape inference of the package onnx must accept every model. Outputs are those of
`--write-features`, computed by NumPy (evaluate.py), and where onnxruntime can be imported by that, too. NETs are names in
configs/ to try instead of the usual ones, which are small enough for a test; "layers" is a net of every layer type.

Exit code 77 (ctest: skipped) where NumPy or onnx is missing.
"""

import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

from packages import numpy as np, onnx, onnxruntime
from onnx import shape_inference
from evaluate import evaluate

TOLERANCE = 1e-4
NETS = ["layers", "lenet", "cifar-quick", "cifar10-11pct", "wrn-16-4", "resnet18-imagenet", "mobilenet-v3-small-imagenet"]
PROGRAM, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])


def convnet(*arguments, code=0):
    done = subprocess.run([PROGRAM, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != code:
        sys.exit(f"convnet {' '.join(map(str, arguments))}\nended with exit code {done.returncode}:\n{done.stdout}")
    return done.stdout


def write_images(folder, shape, classes, count):
    """A set of random images with smooth and sharp parts: (count, *shape) of bytes."""
    random = np.random.default_rng(1)
    small = random.integers(0, 256, (count, shape[0], (shape[1] + 3) // 4, (shape[2] + 3) // 4))
    images = small.repeat(4, 2).repeat(4, 3)[:, :, :shape[1], :shape[2]] * 0.7 + random.integers(0, 70, (count, *shape))
    images = images.astype(np.uint8)
    for part in ["train", "val"]:
        (folder / part).mkdir(parents=True)
        np.save(folder / part / "images.npy", images)
        labels = np.arange(count) % classes
        labels[-1] = classes - 1
        np.save(folder / part / "labels.npy", labels)
    return images


def check_outputs(what, model_file, images, expected):
    """Compares all outputs of a model with `expected`, by name."""
    model = onnx.load(str(model_file))
    onnx.checker.check_model(model, full_check=True)
    shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    assert model.ir_version == 8 and [(o.domain, o.version) for o in model.opset_import] == [("", 13)]
    assert [d.dim_param or d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim] == ["N", *images.shape[1:]]
    inputs = {"images": images.astype(np.float32)}
    found = {"NumPy": evaluate(model, inputs)}
    if onnxruntime:
        names = list(expected)
        session = onnxruntime.InferenceSession(str(model_file), providers=["CPUExecutionProvider"])
        found["onnxruntime"] = dict(zip(names, session.run(names, inputs)))
    for program, outputs in found.items():
        assert set(outputs) == set(expected), (set(outputs), set(expected))
        worst = 0
        for name, values in expected.items():
            error = np.abs(outputs[name].reshape(values.shape) - values).max() / max(np.abs(values).max(), 1e-6)
            if not error < TOLERANCE:
                sys.exit(f"{what}: output {name} of {program} differs by {error:.1e} of its largest value")
            worst = max(worst, error)
        print(f"{what}: {program} agrees to {worst:.1e}, {len(model.graph.node)} operators, outputs {', '.join(expected)}")


def features(run, layer, folder, options=()):
    convnet("--load-file", run, "--write-features", layer, "--feature-path", folder, *options)
    (file,) = folder.glob("data_batch_*.npy")
    return np.load(file)


class Net:
    """A run of a few minibatches on random images."""

    def __init__(self, folder, definition, parameters, shape, classes, count=6, options=()):
        self.folder = folder
        self.images = write_images(folder / "data", shape, classes, count)
        convnet("--layer-def", definition, "--layer-params", parameters, "--data-provider", "npy", "--data-path", folder / "data",
                "--train-range", 1, "--test-range", 2, "--mini", count, "--epochs", 2, "--test-freq", 2, "--precision", "fp32",
                "--save-file", folder / "run", *options)

    def check(self, what, layers=(), seen=None):
        """Exports `layers`, or what is the default (probs), and compares."""
        model = self.folder / "net.onnx"
        printed = convnet("export", self.folder / "run", model, *(["--output", ",".join(layers)] if layers else []))
        assert printed.startswith(f"{model}: from images (N, "), printed
        expected = {layer: features(self.folder / "run", layer, self.folder / f"features-{layer}") for layer in layers or ["probs"]}
        check_outputs(what, model, self.images if seen is None else seen, expected)


def with_scratch(function):
    with tempfile.TemporaryDirectory() as scratch:
        function(pathlib.Path(scratch))


def check_config(name):
    small = {"lenet": (1, 28, 28), "wrn-16-4-fashion": (1, 28, 28)}
    shape = small.get(name, (3, 32, 32) if name.startswith(("cifar", "wrn")) else (3, 224, 224))
    count, classes = (2, 2) if shape[1] > 100 else (6, 6)
    definition = SOURCE / "configs" / f"{name}.cfg"
    below = re.search(r"\[probs\]\s+type=softmax\s+inputs=(\S+)", definition.read_text())[1]
    devices = int((re.search(r"-(\d)gpu", name) or [0, 1])[1])

    def check(folder):
        # A few images of noise at the net's own rates can make its weights explode.
        slower = re.sub(r"(base=|^eps[WB]=)([0-9.e-]+)", lambda m: f"{m[1]}{float(m[2]) / 1000}",
                        definition.with_name(f"{name}-params.cfg").read_text(), flags=re.MULTILINE)
        (folder / "params.cfg").write_text(slower)
        Net(folder, definition, folder / "params.cfg", shape, classes, max(count, devices),
            ("--gpu", ",".join(map(str, range(devices))), "--device", "cpu")).check(name, ["probs", below])
    with_scratch(check)


# Kinds of layers that every-layer.cfg has otherwise or not at all, beside each other on conv1 (8x11x9).
MORE = {
    "grouped": ("type=conv\nchannels=8\nfilters=3\ngroups=2\nfilterSize=3\nstride=2\npadding=1\ninitW=0.3\nsharedBiases=0", True),
    "unseen": ("type=conv\nchannels=8\nfilters=2\nfilterSize=2\nstride=4\ninitW=0.3\nneuron=softrelu", True),
    "bare": ("type=conv\nchannels=8\nfilters=2\nfilterSize=1\nstride=2\nbiases=0\ninitW=0.3", True),
    "local": ("type=local\nchannels=8\nfilters=2\ngroups=2\nfilterSize=4\nstride=2\npadding=1\ninitW=0.3", True),
    "maxpool": ("type=pool\npool=max\nchannels=8\nsizeX=3\nstride=2", False),
    "avgpool": ("type=pool\npool=avg\nchannels=8\nsizeX=3\nstride=2\nstart=-1", False),
    "sumpool": ("type=pool\npool=avg\nsum=1\nchannels=8\nsizeX=3\nstride=2\nstart=-1", False),
    "latepool": ("type=pool\npool=avg\nchannels=8\nsizeX=2\nstride=3\nstart=1\noutputsX=2", False),
    "allavg": ("type=pool\npool=avg\nchannels=8\nsizeX=0", False),
    "allsum": ("type=pool\npool=avg\nsum=1\nchannels=8\nsizeX=0", False),
    "allmax": ("type=pool\npool=max\nchannels=8\nsizeX=0", False),
    "onepool": ("type=pool\npool=avg\nchannels=8\nsizeX=6\nstride=1\nstart=-2\noutputsX=1", False),
    "mapspool": ("type=cmpool\npool=max\nchannels=8\nsize=3\nstride=2\nstart=-1", False),
    "evennorm": ("type=cmrnorm\nchannels=8\nsize=4", "scale=0.5\npow=0.75"),
    "oddnorm": ("type=cmrnorm\nchannels=8\nsize=5", "scale=0.5\npow=0.75\nminDiv=2"),
    "widenorm": ("type=cmrnorm\nchannels=8\nsize=11", "scale=0.5\npow=-0.5"),
    "blockednorm": ("type=cmrnorm\nchannels=8\nsize=3\nblocked=1", "scale=0.5\npow=0.75"),
    "evenrnorm": ("type=rnorm\nchannels=8\nsize=4", "scale=0.5\npow=0.75"),
    "evencnorm": ("type=cnorm\nchannels=8\nsize=4", "scale=0.5\npow=0.75"),
    "small": ("type=resize\nchannels=8\nscale=1.3", False),
    "mirror": ("type=href\nchannels=8", False),
    "nails": ("type=nailbed\nchannels=8\nstride=3", False),
    "gauss": ("type=blur\nchannels=8\nfilterSize=5\nstdev=1.5", False),
    "corner": ("type=crop\nchannels=8\nstartX=2\nstartY=1\nsizeX=5", False),
    "numbers": ("type=bnorm", True),
    "digits": ("type=slice\nstart=2\nmaps=7", False),
    "dealt": ("type=shuffle\ngroups=3", False),
    "some": ("type=slice\nstart=3", False),
    "mixed": ("type=shuffle\ngroups=4", False),
    "more": ("type=fc\noutputs=7\ninitW=0.1\ndropout=0.3\nneuron=tanh[1.7,0.6]", True),
    **{f"n{i}": (f"type=neuron\nneuron={n}", False) for i, n in enumerate(
        ["ident", "logistic", "abs", "relu", "nrelu", "softrelu", "square", "tanh[2,0.5]", "abstanh[2,0.5]", "brelu[0.5]",
         "linear[2,-1]", "drelu[2]", "leaky[0.1]", "elu[1.5]", "silu", "gelu", "mish", "hsigmoid", "hswish"])},
    "down": ("type=conv\nchannels=8\nfilters=2\nfilterSize=3\nstride=2\nrounding=down\ninitW=0.3", True),
    "row": ("type=conv\nchannels=8\nfilters=2\nfilterSize=5\nfilterSizeY=1\npadding=2\npaddingY=0\nstrideY=2\ninitW=0.3", True),
    "dilated": ("type=conv\nchannels=8\nfilters=2\nfilterSize=3\npadding=2\ndilation=2\ndilationY=3\ninitW=0.3", True),
    "behind": ("type=conv\nchannels=8\nfilters=2\nfilterSize=2\npaddingEnd=1\npaddingEndY=3\ninitW=0.3", True),
    "localrow": ("type=local\nchannels=8\nfilters=2\nfilterSize=3\nfilterSizeY=2\nstride=2\ndilationY=2\ninitW=0.3", True),
    "poolrow": ("type=pool\npool=max\nchannels=8\nsizeX=3\nsizeY=1\nstride=2\nstrideY=1\nstart=-1\nstartY=0", False),
    "poolbehind": ("type=pool\npool=avg\nchannels=8\nsizeX=2\nstride=1\npaddingEnd=1", False),
    "poolwide": ("type=pool\npool=avg\nsum=1\nchannels=8\nsizeX=12\nsizeY=3\nstride=1\nstart=-3\nstartY=-1\npaddingEnd=2\npaddingEndY=1", False),
    "pooldown": ("type=pool\npool=avg\nchannels=8\nsizeX=3\nstride=2\nstart=-1\nrounding=down", False),
}


def check_families():
    """Every kind of layer on a conv layer, whose heads a fc layer joins, in one net and one model."""
    definition = ("[data]\ntype=data\ndataIdx=0\n[labels]\ntype=data\ndataIdx=1\n"
                  "[conv1]\ntype=conv\ninputs=data\nchannels=2\nfilters=8\nfilterSize=3\ninitW=0.01\ninitB=0.1\n"
                  "[squared]\ntype=neuron\ninputs=conv1\nneuron=square\n[rooted]\ntype=neuron\ninputs=squared\nneuron=sqrt\n"
                  "[logged]\ntype=neuron\ninputs=squared\nneuron=log[0.5]\n"
                  "[vector]\ntype=fc\ninputs=conv1,data\noutputs=12\ninitW=0.01,0.01\n"
                  "[part]\ntype=data\ndataIdx=0\nstart=5\nend=17\n"
                  "[mix]\ntype=eltsum\ninputs=vector,part,vector\ncoeffs=1,0.01,-2\n"
                  "[same]\ntype=dropout\ninputs=mix\n"
                  "[parts]\ntype=sfc\ninputs=mix,vector\nparts=3\noutputs=2\ninitW=0.3,0.3\n"
                  "[top]\ntype=eltmax\ninputs=conv1,rooted,logged\n[flat]\ntype=concat\ninputs=top,vector\n"
                  "[maps]\ntype=concat\ninputs=conv1,top\n[sums]\ntype=sum\ninputs=vector\nstride=3\n"
                  "[gate]\ntype=fc\ninputs=vector\noutputs=8\ninitW=0.1\nneuron=logistic\n"
                  "[gated]\ntype=eltmul\ninputs=conv1,gate\n[gates]\ntype=eltmul\ninputs=mix,vector\n")
    ends = ["flat", "parts", "same", "sums", "maps", "gated", "gates"]
    parameters = "[DEFAULT]\nepsW=0.0001\nepsB=0.0001\nmomW=0.9\nmomB=0.9\n[conv1]\n[vector]\n[parts]\n[gate]\n"
    # Layers without a gradient stand on the data.
    for name, (text, learned) in MORE.items():
        source = "data" if name in {"small", "corner"} else "vector" if name in {"numbers", "digits", "dealt"} else "conv1"
        if source == "data":
            text = text.replace("channels=8", "channels=2")
        definition += f"[{name}]\n{text}\ninputs={source}\n"
        if learned:
            parameters += f"[{name}]\n" + (learned + "\n" if isinstance(learned, str) else "")
    # A layer takes 64 inputs.
    for name, inputs in {"fc3": ends, "fc4": ["fc3", *MORE]}.items():
        definition += f"[{name}]\ntype=fc\ninputs={','.join(inputs)}\noutputs=4\ninitW={','.join(['0.01'] * len(inputs))}\n"
    definition += ("[probs]\ntype=softmax\ninputs=fc4\n[logprob]\ntype=cost.logreg\ninputs=labels,probs\n")
    parameters += "[fc3]\n[fc4]\n[logprob]\ncoeff=1\n"

    def check(folder):
        (folder / "net.cfg").write_text(definition)
        (folder / "params.cfg").write_text(parameters)
        net = Net(folder, folder / "net.cfg", folder / "params.cfg", (2, 13, 11), 4)
        net.check("families of layers", ["probs", "conv1", "same", *ends[:2], *ends[3:], *MORE])
    with_scratch(check)


def check_every_layer():
    """tests/nets/every-layer.cfg without its one layer that ONNX lacks."""
    def check(folder):
        text = (SOURCE / "tests/nets/every-layer.cfg").read_text()
        (folder / "net.cfg").write_text(text.replace("type=rgb2lab\ninputs=data\ncenter=1", "type=rgb2yuv\ninputs=data"))
        parameters = folder / "params.cfg"
        parameters.write_text((SOURCE / "tests/nets/every-layer-params.cfg").read_text().replace("epsW=0.01", "epsW=1e-6").replace("epsB=0.02", "epsB=1e-6"))
        net = Net(folder, folder / "net.cfg", parameters, (3, 12, 12), 4)
        net.check("every layer", ["probs", "tags", "conv1", "bn", "added", "most", "local1_dropout", "local1", "passed", "sfc1", "bent"])
    with_scratch(check)


def check_preparation():
    """What is done to pixels before a net sees them, and averaged weights."""
    lenet = [SOURCE / "configs/lenet.cfg", SOURCE / "configs/lenet-params.cfg", (1, 30, 30), 6]
    centre = (slice(None), slice(None), slice(1, 29), slice(1, 29))
    for options in [("--inner-size", 28), ("--inner-size", 28, "--pixel-std", 1), ("--inner-size", 28, "--scalar-mean", 100),
                    ("--inner-size", 28, "--ema", 0.9)]:
        def check(folder):
            net = Net(folder, *lenet, options=options)
            net.check("lenet " + " ".join(map(str, options)), seen=np.ascontiguousarray(net.images[centre]))
        with_scratch(check)


def metadata(model_file):
    """A model's metadata; values that are JSON are parsed."""
    entries = {entry.key: entry.value for entry in onnx.load(str(model_file)).metadata_props}
    for key in ["input_dims", "image_dims", "image_size", "crop_size", "class_names"]:
        if key in entries:
            entries[key] = json.loads(entries[key])
    return entries


def check_metadata():
    """What a model says of the images it wants and of its classes."""
    def check(folder):
        net = Net(folder, SOURCE / "configs/lenet.cfg", SOURCE / "configs/lenet-params.cfg", (1, 30, 30), 10, count=10,
                  options=("--inner-size", 28, "--pixel-std", 1))
        (folder / "data/classes.txt").write_text("".join(f"class {i} \u00e9\n" for i in range(10)))
        convnet("--load-file", net.folder / "run", "--epochs", 3)
        model = folder / "net.onnx"
        convnet("export", folder / "run", model)
        found = metadata(model)
        wanted = {"checkpoint": "3.1.safetensors", "provider": "npy", "input_dims": [1, 28, 28], "input_numbers": "pixels from 0 to 255",
                  "mean_subtraction": "inside the model", "deviation_division": "inside the model", "image_dims": [1, 30, 30],
                  "crop_size": 28, "class_output": "probs", "class_names": [f"class {i} \u00e9" for i in range(10)]}
        assert found == wanted, found
        # Names belong to one output, so models without it have none.
        convnet("export", folder / "run", model, "--output", "conv1")
        assert metadata(model) == {key: value for key, value in wanted.items() if not key.startswith("class_")}
        convnet("export", folder / "run", model, "--output", "conv1,probs")
        assert metadata(model) == wanted
    with_scratch(check)

    def check_photographs(folder):
        images = np.random.default_rng(1).integers(0, 256, (4, 20, 24, 3))
        for part in ["train", "val"]:
            for label in ["cat", "dog"]:
                (folder / "set" / part / label).mkdir(parents=True)
                for i, image in enumerate(images):
                    write_bmp(folder / "set" / part / label / f"{i}.bmp", image.astype(np.uint8))
        (folder / "net.cfg").write_text("[data]\ntype=data\ndataIdx=0\n[labels]\ntype=data\ndataIdx=1\n[fc]\ntype=fc\ninputs=data\n"
                                        "outputs=2\n[probs]\ntype=softmax\ninputs=fc\n[logprob]\ntype=cost.logreg\ninputs=labels,probs\n")
        (folder / "params.cfg").write_text("[fc]\nepsW=0.000001\nepsB=0.001\nmomW=0\nmomB=0\n[logprob]\ncoeff=1\n")
        for name, options, sizes in [("cropped", ("--inner-size", 14), {"image_size": 16, "crop_size": 14}),
                                     ("whole", ("--image-size", 18), {"image_size": 18}),
                                     ("both", ("--image-size", 18, "--inner-size", 14), {"image_size": 18, "crop_size": 14}),
                                     ("grey", ("--image-size", 18, "--grey", 1), {"image_size": 18})]:
            convnet("--layer-def", folder / "net.cfg", "--layer-params", folder / "params.cfg", "--data-provider", "image", "--data-path",
                    folder / "set", "--epochs", 1, "--scalar-mean", 0, "--save-file", folder / name, *options)
            convnet("export", folder / name, folder / "net.onnx")
            side = sizes.get("crop_size", 18)
            wanted = {"checkpoint": "1.1.safetensors", "provider": "image",
                      "input_dims": [1 if name == "grey" else 3, side, side],
                      "input_numbers": "pixels from 0 to 255", "mean_subtraction": "inside the model", "deviation_division": "none",
                      "class_output": "probs", "class_names": ["cat", "dog"], **sizes}
            found = metadata(folder / "net.onnx")
            assert found == wanted, (found, wanted)
    with_scratch(check_photographs)
    print("metadata: as expected")


def write_bmp(path, image):
    """Writes (height, width, 3) bytes as a BMP of 24 bits; the width must be a multiple of 4."""
    height, width, _ = image.shape
    size = struct.pack("<IHHI", 54 + image.size, 0, 0, 54)
    info = struct.pack("<IiiHHIIiiII", 40, width, -height, 1, 24, 0, image.size, 0, 0, 0, 0)
    path.write_bytes(b"BM" + size + info + image[:, :, ::-1].tobytes())


nets = sys.argv[3:] or NETS
if "layers" in nets:
    check_families()
    check_every_layer()
    check_preparation()
    check_metadata()
for net_name in nets:
    if net_name != "layers":
        check_config(net_name)
