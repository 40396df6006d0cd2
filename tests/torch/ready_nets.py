#!/usr/bin/env python3
"""Gives the ready nets of configs/ random weights of torchvision's models by --init-from, and compares the numbers below the
softmax on random images: those of `convnet predict`, those of torchvision's model, and those that onnxruntime computes of the file
that `convnet export` writes.

    ready_nets.py CONVNET [NET…]

Without names it tries small nets. --all stands for every net that torchvision has, too. It prints a table, with the largest
difference as a part of the largest number. onnxruntime's columns are empty where it cannot be imported.

Exit code 77 (ctest: skipped) where PyTorch or torchvision is missing.
"""

import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

IMAGES, CLASSES, TOLERANCE = 20, 7, 1e-4
SMALL = ["resnet18", "squeezenet1_1", "mobilenet_v3_small", "mobilenet_v2", "shufflenet_v2_x1_0"]
ALL = ["alexnet", "vgg11", "vgg11_bn", "vgg16", "vgg16_bn", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "wide_resnet50_2",
       "wide_resnet101_2", "resnext50_32x4d", "densenet121", "squeezenet1_1", "googlenet", "mobilenet_v2", "mobilenet_v3_small",
       "mobilenet_v3_large", "efficientnet_b0", "shufflenet_v2_x1_0"]
# The first fully-connected layer of these nets is made for 224 pixels.
FULL_SIZE = ("vgg", "alexnet")
PAIRS = [("convnet", "PyTorch"), ("convnet", "onnxruntime"), ("onnxruntime", "PyTorch")]

try:
    import numpy
    import torch
    import torchvision
except ImportError as error:
    print(f"SKIPPED: {sys.executable} cannot import torchvision ({error}); "
          "set CONVNET_TORCH_PYTHON to a Python that can")
    sys.exit(77)
try:
    import onnxruntime
    onnxruntime.set_default_logger_severity(3)
except ImportError:
    onnxruntime = None


def with_random_norms(model):
    """The model, whose batch norms do something else than a new one's."""
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_mean, -0.1, 0.1)
            torch.nn.init.uniform_(module.running_var, 0.7, 1.3)
            torch.nn.init.uniform_(module.weight, 0.7, 1.3)
            torch.nn.init.uniform_(module.bias, -0.1, 0.1)
    return model


def model_of(name):
    options = {"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}
    return with_random_norms(torchvision.models.get_model(name, weights=None, num_classes=CLASSES, **options).eval())


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        if tensor.dtype != torch.float32:
            continue
        blob = tensor.contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(blob)]}
        data += blob
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def run(*words):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def check(convnet, name, folder):
    side = 224 if name.startswith(FULL_SIZE) else 96
    torch.manual_seed(1)
    model, images = model_of(name), torch.randn(IMAGES, 3, side, side)
    write_safetensors(folder / "weights.safetensors", model.state_dict())
    data = folder / "data"
    data.mkdir()
    numpy.save(data / "images.npy", images.numpy())
    # The largest label tells the number of classes.
    numpy.save(data / "labels.npy", numpy.arange(IMAGES, dtype=numpy.int64) % CLASSES)
    # The step that makes the checkpoint changes neither weights nor running statistics.
    run(convnet, "plan", "--data-provider", f"dummy-3x{side}x{side}-{CLASSES}", "--layer-def", name, "--flat", folder / "flat.cfg")
    flat = re.sub(r"averageFactor=.*\n", "", (folder / "flat.cfg").read_text())
    (folder / "still.cfg").write_text(flat.replace("type=bnorm\n", "type=bnorm\naverageFactor=0\n"))
    (folder / "still-params.cfg").write_text("[DEFAULT]\nepsW=0\nepsB=0\nmomW=0\nmomB=0\n")
    log = run(convnet, "train", "--data-provider", "npy", "--data-path", data, "--train-range", 1, "--test-range", 1, "--layer-def",
              folder / "still.cfg", "--layer-params", folder / "still-params.cfg", "--init-from", folder / "weights.safetensors",
              "--scalar-mean", 0, "--epochs", 1, "--mini", IMAGES, "--save-file", folder / "run")
    below = re.search(r"type=softmax\ninputs=(\S+)", flat).group(1)
    text = run(convnet, "predict", folder / "run", data / "images.npy", "--output", below, "--precision", "fp32", "--json", 1)
    found = {"convnet": numbers_of(json.loads(text[text.index("{"):text.rindex("}") + 1]))}
    with torch.no_grad():
        found["PyTorch"] = model(images).numpy().reshape(-1)
    if onnxruntime:
        run(convnet, "export", folder / "run", folder / "net.onnx", "--output", below)
        session = onnxruntime.InferenceSession(str(folder / "net.onnx"), providers=["CPUExecutionProvider"])
        found["onnxruntime"] = session.run(None, {"images": images.numpy()})[0].reshape(-1)
    largest = abs(found["PyTorch"]).max()
    differences = {(a, b): abs(found[a] - found[b]).max() / largest for a, b in PAIRS if a in found and b in found}
    cells = [f"{differences[pair]:.1e}" if pair in differences else "" for pair in PAIRS]
    print(f"| {name} | {IMAGES} of {side} | {' | '.join(cells)} |", flush=True)
    good = max(differences.values()) <= TOLERANCE and "warning" not in log
    if not good:
        print(log)
    return good


def numbers_of(answer):
    found = []

    def walk(value):
        if isinstance(value, list) and value and all(isinstance(x, (int, float)) for x in value):
            found.extend(value)
        elif isinstance(value, list):
            for item in value:
                walk(item)
        elif isinstance(value, dict):
            for item in value.values():
                walk(item)

    walk(answer["images"] if "images" in answer else answer)
    return numpy.array(found, dtype=numpy.float64)


def check_nets(heading, small, all_nets, check_net):
    """Prints the heading of a table, and calls check_net(convnet, name, folder), which adds a row, for the nets that the command line
    names. Exits with the names of those for which it returns false."""
    convnet, names = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:] or small
    print(heading)
    wrong = []
    for name in all_nets if names == ["--all"] else names:
        with tempfile.TemporaryDirectory() as folder:
            if not check_net(convnet, name, pathlib.Path(folder)):
                wrong.append(name)
    if wrong:
        sys.exit("differ: " + ", ".join(wrong))


def main():
    check_nets(f"| net | images | {' | '.join(' and '.join(pair) for pair in PAIRS)} |\n|---|---|---|---|---|", SMALL, ALL, check)


if __name__ == "__main__":
    main()
