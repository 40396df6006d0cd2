#!/usr/bin/env python3
"""Exports torchvision's classifiers with both exporters of torch.onnx, and hands the files to tests/onnx/import_test.py: the imported
net must give onnxruntime's numbers, and come back from an export of its own unchanged.

    imported_nets.py CONVNET [NET…]

Without names it tries small nets, and --all stands for all that convnet is known to import. Names with a / are nets of timm
(timm/resnet18d). Weights and running statistics are random.

Exit code 77 (ctest: skipped) where PyTorch, torchvision, onnx, onnxscript or onnxruntime is missing.
"""

import logging
import pathlib
import subprocess
import sys
import warnings

SMALL = ["resnet18", "squeezenet1_1", "mobilenet_v3_small", "shufflenet_v2_x1_0"]
# Images in pixels. Inception's stem takes nothing much smaller; VGG and AlexNet are made for 224.
SIDES = {"alexnet": 224, "vgg": 224, "inception": 299}
EXPORTERS = {"older": {"dynamo": False, "opset_version": 13}, "newer": {"dynamo": True, "verbose": False}}

try:
    import onnx  # noqa: F401: torch.onnx needs it
    import onnxruntime  # noqa: F401: import_test.py needs it
    import onnxscript  # noqa: F401
except ImportError as error:
    print(f"SKIPPED: {sys.executable} cannot import a package ({error}); "
          "set CONVNET_TORCH_PYTHON to a Python with torch, torchvision, onnx, onnxscript and onnxruntime")
    sys.exit(77)
import ready_nets
from ready_nets import torch

ALL = [*ready_nets.ALL, "inception_v3", "mnasnet1_0", "regnet_y_400mf"]


def model_of(name):
    torch.manual_seed(1)
    if not name.startswith("timm/"):
        return ready_nets.model_of(name)
    import timm  # pylint: disable=import-outside-toplevel
    return ready_nets.with_random_norms(timm.create_model(name.removeprefix("timm/"), num_classes=ready_nets.CLASSES).eval())


def check(convnet, name, folder):
    """Returns the cells of a table's row: what import_test.py prints for the file of each exporter."""
    model = model_of(name)
    side = next((side for start, side in SIDES.items() if name.startswith(start)), 96)
    cells, good = [], True
    for exporter, options in EXPORTERS.items():
        file = folder / f"{name.replace('/', '-')}-{exporter}.onnx"
        torch.onnx.export(model, (torch.zeros(1, 3, side, side),), str(file), **options)
        done = subprocess.run([sys.executable, pathlib.Path(__file__).resolve().parents[1] / "onnx/import_test.py", convnet, folder, file],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        agrees = [line.rpartition(" ")[2] for line in done.stdout.splitlines() if "agrees to" in line]
        good = good and done.returncode == 0 and len(agrees) == 2
        cells += agrees if done.returncode == 0 else ["differs", ""]
        if done.returncode:
            print(done.stdout)
        for written in folder.glob(f"{file.name}*"):
            written.unlink()
    print(f"| {name} | {side} | {' | '.join(cells)} |", flush=True)
    return good


def main():
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    ready_nets.check_nets("| net | pixels | older exporter | export and import | newer exporter | export and import |\n|---|---|---|---|---|---|",
                          SMALL, ALL, check)


if __name__ == "__main__":
    main()
