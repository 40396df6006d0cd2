#!/usr/bin/env python3
"""Compares the nets of bench/torch_bench.py with those of configs/: their parameters, layer by layer. bench_nets.py PROGRAM

Exit code 77 (ctest: skipped) where PyTorch is missing.
"""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
try:
    import torch_bench
    from torch import nn
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)


def ours(program, net, dims, classes):
    """Returns the numbers of parameters of our layers that have any, in order."""
    command = [program, "plan", "--layer-def", f"{ROOT}/configs/{net}.cfg", "--layer-params", f"{ROOT}/configs/{net}-params.cfg",
               "--data-provider", f"dummy-{'x'.join(map(str, dims))}-{classes}", "--mini", "8", "--json", "1"]
    layers = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["layers"]
    return [layer["parameters"] for layer in layers if layer["parameters"]]


def theirs(model):
    kinds = (nn.Conv2d, nn.Linear, nn.BatchNorm2d)
    return [sum(p.numel() for p in module.parameters()) for module in model.modules() if isinstance(module, kinds)]


def main():
    wrong = 0
    for net in torch_bench.NETS:
        model, dims, classes = torch_bench.model_of(net)
        a, b = ours(sys.argv[1], net, dims, classes), theirs(model)
        equal = sorted(a) == sorted(b)  # the order of a block's layers is each program's own
        wrong += not equal
        print(f"{net}: {sum(a)} parameters" + ("" if equal else f", but {sum(b)} in bench/torch_bench.py: {a} and {b}"))
    sys.exit(1 if wrong else 0)


main()
