#!/usr/bin/env python3
"""Runs a training step of ResNet-18 (arXiv 1512.03385, as in configs/resnet18-imagenet.cfg) in the peer script, which has no such net.

  bench/resnet18_peer.py --peer-script torch_bench.py --threads 2 --batch 128 --precision bf16 --variant channels_last --steps 10
"""
import argparse
import importlib.util

import torch
from torch import nn


class Block(nn.Module):
    """Two 3x3 convolutions of `maps` maps beside a shortcut, which is projected where the shape changes."""

    def __init__(self, inputs, maps, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, maps, 3, stride, 1, bias=False), nn.BatchNorm2d(maps)
        self.conv2, self.bn2 = nn.Conv2d(maps, maps, 3, 1, 1, bias=False), nn.BatchNorm2d(maps)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != maps:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, maps, 1, stride, bias=False), nn.BatchNorm2d(maps))

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.shortcut(x) + self.bn2(self.conv2(y)))


def resnet18():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for maps in (64, 128, 256, 512):
        for block in range(2):
            layers.append(Block(inputs, maps, 2 if block == 0 and maps > 64 else 1))
            inputs = maps
    return nn.Sequential(*layers, nn.AvgPool2d(7), nn.Flatten(), nn.Linear(512, 1000)), (3, 224, 224), 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-script", required=True)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--variant", default="eager")
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    spec = importlib.util.spec_from_file_location("peer", args.peer_script)
    peer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(peer)
    peer.NETS["resnet18"] = resnet18
    args.net, args.ddp = "resnet18", 1
    peer.worker(0, args)


if __name__ == "__main__":
    main()
