#!/usr/bin/env python3
"""Writes tests/train/data/: small files of torch.save in both forms, for the tests of its reader. It needs PyTorch.

The files are in the repository, since test machines need not have PyTorch. small*.pth hold a small net under several names,
types*.pt tensors of all kinds. The names say how they are made; "-old" is the form of PyTorch before 1.6.
"""
import argparse
import collections
import datetime
import pathlib

import torch

FOLDER = pathlib.Path(__file__).parent / "data"


def ramp(first, *dims):
    """Returns a tensor of first, first + 1/8, first + 2/8, …"""
    count = torch.Size(dims).numel()
    return (first + 0.125 * torch.arange(count, dtype=torch.float32)).reshape(dims)


def small_net():
    net = torch.nn.Module()
    net.conv1 = torch.nn.Conv2d(1, 2, 3)
    net.stage = torch.nn.Sequential()
    net.stage.add_module("0", torch.nn.Module())
    net.stage[0].bn = torch.nn.BatchNorm2d(2)
    net.fc10 = torch.nn.Linear(18, 7)
    firsts = {"conv1.weight": -1, "conv1.bias": 5, "stage.0.bn.weight": 2, "stage.0.bn.bias": 3, "stage.0.bn.running_mean": 4,
              "stage.0.bn.running_var": 6, "fc10.weight": 0, "fc10.bias": 1}
    for name, tensor in net.state_dict().items():
        if name in firsts:
            tensor.copy_(ramp(firsts[name], *tensor.shape))
    return net


def tensors():
    shared = ramp(0, 12)
    grid = ramp(-2, 2, 3)
    return {
        "float": grid, "double": grid.double(), "half": grid.half(), "bfloat16": grid.bfloat16(), "long": grid.long(),
        "bool": grid > 0, "complex": torch.complex(grid, grid), "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 3),
        "transposed": grid.t(), "channels last": ramp(1, 2, 3, 2, 2).to(memory_format=torch.channels_last),
        "expanded": torch.tensor([1.5]).expand(2, 3), "head": shared[:4], "middle": shared[4:8], "every second": shared[::2],
        "parameter": torch.nn.Parameter(grid), "tied": grid,
    }


def save(value, name, old=True):
    torch.save(value, FOLDER / name)
    if old:
        path = FOLDER / name
        torch.save(value, path.with_name(path.stem + "-old" + path.suffix), _use_new_zipfile_serialization=False)


FOLDER.mkdir(exist_ok=True)
net = small_net()
save(net.state_dict(), "small.pth")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for parameter in net.parameters():
    parameter.grad = torch.ones_like(parameter)
before = collections.OrderedDict((name, tensor.clone()) for name, tensor in net.state_dict().items())
optimizer.step()
save({"epoch": 3, "best_acc1": torch.tensor(71.5), "optimizer": optimizer.state_dict(),
      "state_dict": collections.OrderedDict(("module." + name, tensor) for name, tensor in before.items())}, "small-parallel.pth")
save({"model": {name: 0 * tensor for name, tensor in before.items()},
      "model_ema": {"module." + name: tensor for name, tensor in before.items()}}, "small-ema.pth", old=False)
# A schedule with milestones has a Counter, and a cost is a tensor of one number.
schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [30, 60])
save({"lr_scheduler": schedule.state_dict(), "loss": torch.tensor(0.5),
      "generator": {"module." + name: tensor for name, tensor in before.items()}}, "small-milestones.pth")
net.load_state_dict(before)
save({"epoch": 3, "net": net}, "small-whole.pth", old=False)
# What training scripts keep beside the weights: their options, and data of Python's own classes.
save({"model": before, "args": argparse.Namespace(lr=0.1, device=torch.device("cpu"), amp=True, paths=[pathlib.PurePosixPath("a")]),
      "seen": {1, 2}, "counts": collections.defaultdict(int, a=1), "seed": 2**70, "dtype": torch.float16,
      "date": datetime.datetime(2026, 11, 29)}, "small-trainer.pth")
save(tensors(), "types.pt")
