#!/usr/bin/env python3
"""The first images of Fashion-MNIST, for tests that have no time for all: fashion_mnist.py FOLDER TRAINING-IMAGES TEST-IMAGES writes them to a folder."""
import gzip
import pathlib
import struct
import sys

FOLDER = pathlib.Path("/usr/share/datasets/fashion-mnist")
SIDES = (28, 28)


def read_idx(path, count):
    """The first `count` records of a gzipped IDX file of bytes."""
    with gzip.open(path) as file:
        dims = struct.unpack(">BBBB", file.read(4))[3]
        shape = struct.unpack(f">{dims}I", file.read(4 * dims))
        size = 1
        for side in shape[1:]:
            size *= side
        return file.read(count * size)


def write_idx(path, record_shape, data):
    size = 1
    for side in record_shape:
        size *= side
    dims = (len(data) // size, *record_shape)
    path.write_bytes(struct.pack(f">BBBB{len(dims)}I", 0, 0, 8, len(dims), *dims) + data)


def read_first(half, count, folder=FOLDER):
    """The pixels and labels of the first `count` images of "train" or "t10k"."""
    return (read_idx(folder / f"{half}-images-idx3-ubyte.gz", count), read_idx(folder / f"{half}-labels-idx1-ubyte.gz", count))


def write_data(folder, pixels, labels, tests, images):
    """Writes the first `images` training images, and the pixels and labels `tests`, as a data set."""
    folder.mkdir()
    size = SIDES[0] * SIDES[1]
    write_idx(folder / "train-images-idx3-ubyte", SIDES, pixels[:images * size])
    write_idx(folder / "train-labels-idx1-ubyte", (), labels[:images])
    write_idx(folder / "t10k-images-idx3-ubyte", SIDES, tests[0])
    write_idx(folder / "t10k-labels-idx1-ubyte", (), tests[1])


if __name__ == "__main__":
    images = int(sys.argv[2])
    write_data(pathlib.Path(sys.argv[1]), *read_first("train", images), read_first("t10k", int(sys.argv[3])), images)
