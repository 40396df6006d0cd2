#!/usr/bin/env python3
"""Gives the ready nets of configs/ random weights of torchvision's models by --init-from, and compares the numbers below the
softmax of both on random images. Usage: ready_nets.py CONVNET [NET…]; without names it tries small ones.

Exit code 77 (ctest: skipped) where PyTorch or torchvision is missing.
"""

import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

IMAGES, CLASSES, TOLERANCE = 4, 7, 1e-4
SMALL = ["resnet18", "squeezenet1_1", "mobilenet_v3_small", "mobilenet_v2", "shufflenet_v2_x1_0"]
# The first fully-connected layer of these nets is made for 224 pixels.
FULL_SIZE = ("vgg", "alexnet")

try:
    import numpy
    import torch
    import torchvision
except ImportError as error:
    print(f"SKIPPED: {sys.executable} cannot import torchvision ({error}); "
          "set CONVNET_TORCH_PYTHON to a Python that can")
    sys.exit(77)


def model_of(name):
    options = {"aux_logits": False, "init_weights": False} if name == "googlenet" else {}
    model = torchvision.models.get_model(name, weights=None, num_classes=CLASSES, **options).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_mean, -0.1, 0.1)
            torch.nn.init.uniform_(module.running_var, 0.7, 1.3)
            torch.nn.init.uniform_(module.weight, 0.7, 1.3)
            torch.nn.init.uniform_(module.bias, -0.1, 0.1)
    return model


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
    numpy.save(data / "labels.npy", numpy.arange(IMAGES, dtype=numpy.int64) * 2)
    # The step that makes the checkpoint changes neither weights nor running statistics.
    run(convnet, "plan", "--data-provider", f"dummy-3x{side}x{side}-{CLASSES}", "--layer-def", name, "--flat", folder / "flat.cfg")
    flat = re.sub(r"averageFactor=.*\n", "", (folder / "flat.cfg").read_text())
    (folder / "still.cfg").write_text(flat.replace("type=bnorm\n", "type=bnorm\naverageFactor=0\n"))
    (folder / "still-params.cfg").write_text("[DEFAULT]\nepsW=0\nepsB=0\nmomW=0\nmomB=0\n")
    log = run(convnet, "train", "--data-provider", "npy", "--data-path", data, "--train-range", 1, "--test-range", 1, "--layer-def",
              folder / "still.cfg", "--layer-params", folder / "still-params.cfg", "--init-from", folder / "weights.safetensors",
              "--scalar-mean", 0, "--epochs", 1, "--mini", IMAGES, "--save-file", folder / "run")
    below = re.search(r"type=softmax\ninputs=(\S+)", flat).group(1)
    text = run(convnet, "predict", folder / "run", data / "images.npy", "--output", below, "--json", 1)
    ours = numbers_of(json.loads(text[text.index("{"):text.rindex("}") + 1]))
    with torch.no_grad():
        theirs = model(images).numpy().reshape(-1)
    difference = abs(ours - theirs).max() / abs(theirs).max()
    print(f"{name}: {difference:.1e} of the largest number")
    return log, difference <= TOLERANCE


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


def main():
    convnet, names = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:] or SMALL
    wrong = []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            log, good = check(convnet, name, pathlib.Path(folder))
            if not good or "warning" in log:
                print(log)
                wrong.append(name)
    if wrong:
        sys.exit("differ: " + ", ".join(wrong))


if __name__ == "__main__":
    main()
