#!/usr/bin/env python3
"""Imports what both exporters of torch.onnx write for blocks with rectangular, dilated and one-sided windows, and compares the
numbers of `convnet predict` with PyTorch's. Usage: imported_windows.py CONVNET.

Exit code 77 (ctest: skipped) where PyTorch, onnx or onnxscript is missing.
"""

import csv
import io
import pathlib
import subprocess
import sys
import tempfile
import warnings

IMAGES, CLASSES, TOLERANCE = 5, 4, 1e-4

try:
    import numpy
    import onnx  # noqa: F401: torch.onnx needs it
    import onnxscript  # noqa: F401
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError as error:
    print(f"SKIPPED: {sys.executable} cannot import a package ({error}); "
          "set CONVNET_TORCH_PYTHON to a Python with torch, onnx and onnxscript")
    sys.exit(77)


class Inception(nn.Module):
    """A block of Inception v3, whose 7x7 filters are rows and columns."""
    shape = (3, 19, 23)

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.single = nn.Conv2d(16, 8, 1)
        self.long = nn.Sequential(nn.Conv2d(16, 8, 1), nn.ReLU(), nn.Conv2d(8, 8, (1, 7), padding=(0, 3)), nn.ReLU(),
                                  nn.Conv2d(8, 12, (7, 1), padding=(3, 0)), nn.ReLU())
        self.pooled = nn.Conv2d(16, 8, 1)
        self.fc = nn.Linear(28, CLASSES)

    def forward(self, x):
        x = self.stem(x)
        x = torch.cat([self.single(x), self.long(x), self.pooled(F.avg_pool2d(x, 3, 1, 1))], 1)
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(F.relu(x), 1), 1))


class DeepLab(nn.Module):
    """Dilated convolutions, some of them of single maps, and DeepLab's pyramid of several dilations."""
    shape = (3, 17, 17)

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, 1, 2, dilation=2)
        self.depthwise = nn.Conv2d(16, 16, 3, 1, 4, dilation=4, groups=16)
        self.pyramid = nn.ModuleList([nn.Conv2d(16, 6, 3, padding=d, dilation=d) for d in (1, 3, 6)])
        self.fc = nn.Linear(18, CLASSES)

    def forward(self, x):
        x = F.relu(self.depthwise(F.relu(self.first(x))))
        return self.fc(torch.cat([branch(x) for branch in self.pyramid], 1).mean((2, 3)))


class Same(nn.Module):
    """The "same" padding of Keras: more zeros below and to the right than above and to the left."""
    shape = (3, 32, 32)

    def __init__(self):
        super().__init__()
        self.halved = nn.Conv2d(3, 8, 3, 2)
        self.even = nn.Conv2d(8, 8, 4)
        self.again = nn.Conv2d(8, 12, 5, 2)
        self.depthwise = nn.Conv2d(12, 12, (2, 3), padding="same", groups=12)
        self.fc = nn.Linear(12 * 16, CLASSES)

    def forward(self, x):
        x = F.relu(self.even(F.pad(F.relu(self.halved(F.pad(x, (0, 1, 0, 1)))), (1, 2, 1, 2))))
        x = F.max_pool2d(F.pad(x, (0, 1, 0, 1)), 3, 2)
        return self.fc(torch.flatten(self.depthwise(self.again(F.pad(x, (1, 2, 1, 2)))), 1))


class Pools(nn.Module):
    """Rectangular pools with padding in one direction, and a part of the pixels."""
    shape = (1, 16, 20)

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, (3, 5), (1, 2), (1, 0))
        self.fc = nn.Linear(8 * 4 * 4, CLASSES)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv(x)), (3, 2), (2, 1), (1, 0))
        x = F.avg_pool2d(F.avg_pool2d(x, (2, 1), (1, 1)), (1, 3), (1, 2), (0, 1))
        return self.fc(torch.flatten(x[:, :, 1:5], 1))


def run(*words):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def check(kind, convnet, folder):
    torch.manual_seed(1)
    model = kind().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.1, 0.1)
            nn.init.uniform_(module.running_var, 0.7, 1.3)
    images = torch.randn(IMAGES, *kind.shape)
    expected = model(images).detach().numpy()
    numpy.save(folder / "x.npy", images.numpy())
    for exporter, options in {"torch.export": {"dynamo": True, "verbose": False}, "TorchScript": {"dynamo": False}}.items():
        name = folder / f"{kind.__name__}-{exporter}"
        torch.onnx.export(model, (images[:1],), f"{name}.onnx", input_names=["x"], **options)
        run(convnet, "import", f"{name}.onnx", "--layer-def", f"{name}.cfg", "--checkpoint", name, "--pixels", "floats")
        rows = list(csv.reader(io.StringIO(run(convnet, "predict", name, folder / "x.npy", "--output", "fc", "--csv", "1"))))
        found = numpy.array([[float(value) for value in row[1:]] for row in rows[1:]])
        error = abs(found - expected).max() / abs(expected).max()
        print(f"{kind.__name__}, {exporter}: agrees to {error:.1e}")
        if not error < TOLERANCE:
            sys.exit("that is too much")


warnings.simplefilter("ignore")
with tempfile.TemporaryDirectory() as scratch:
    for model_kind in [Inception, DeepLab, Same, Pools]:
        check(model_kind, sys.argv[1], pathlib.Path(scratch))
