"""Reads the IDX files of MNIST's form, for the scripts that make other data sets of them."""
import gzip
import pathlib
import struct
import sys

DEFAULT_FOLDER = "/usr/share/datasets/fashion-mnist"


def read_idx(folder: pathlib.Path, stem, dims):
    """Returns the sizes of the `dims` dimensions, and the bytes, of the file STEM-idxN-ubyte, plain or .gz. Exits with a message if there is none."""
    for path in (folder / f"{stem}-idx{dims}-ubyte.gz", folder / f"{stem}-idx{dims}-ubyte"):
        if path.exists():
            data = (gzip.open if path.suffix == ".gz" else open)(path, "rb").read()
            sizes = struct.unpack(f">4x{dims}I", data[: 4 + 4 * dims])
            return sizes, data[4 + 4 * dims :]
    sys.exit(f"{folder}: no {stem}-idx{dims}-ubyte, plain or .gz")
