#!/usr/bin/env python3
"""Measures torchvision's DataLoader on a folder of classes with photos: pictures a second of processor time (all workers) and on the wall.

  bench/decode_peer.py FOLDER IMAGE-SIZE INNER-SIZE WORKERS EPOCHS

"crops" are Resize(IMAGE-SIZE), RandomCrop(INNER-SIZE) and RandomHorizontalFlip, "resized crops" RandomResizedCrop(INNER-SIZE) with its usual smallest area
of 0.08 and RandomHorizontalFlip; PILToTensor ends both, so that nothing is computed that convnet does on the device. Pillow decodes and scales. Starting
and ending workers counts as little as EPOCHS are many: they stay for all epochs, and what an epoch of no pictures costs is taken off.
"""
import resource
import sys
import time

import torch
from torchvision import datasets, transforms

MINIBATCH = 64


def processor_seconds():
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def run(data, workers, epochs):
    """Returns the seconds of processor time and on the wall; workers are waited for, because only then their time is known."""
    processor, wall = processor_seconds(), time.perf_counter()
    loader = torch.utils.data.DataLoader(data, MINIBATCH, shuffle=True, num_workers=workers, persistent_workers=True)
    for _ in range(epochs):
        for _ in loader:
            pass
    wall = time.perf_counter() - wall
    del loader
    return processor_seconds() - processor, wall


def main():
    folder, image_size, inner_size, workers, epochs = sys.argv[1], *map(int, sys.argv[2:])
    torch.set_num_threads(1)
    ends = [transforms.RandomHorizontalFlip(), transforms.PILToTensor()]
    kinds = {"crops": [transforms.Resize(image_size), transforms.RandomCrop(inner_size)],
             "resized crops": [transforms.RandomResizedCrop(inner_size)]}
    for kind, steps in kinds.items():
        data = datasets.ImageFolder(folder, transforms.Compose(steps + ends))
        nothing = run(torch.utils.data.Subset(data, [0] * workers), workers, 1)
        all_epochs = run(data, workers, epochs)
        processor, wall = (a - n for a, n in zip(all_epochs, nothing))
        images = len(data) * epochs
        print(f"{kind}: {images / processor:.0f} images a second of processor time, {images / wall:.0f} on the wall")


if __name__ == "__main__":
    main()
