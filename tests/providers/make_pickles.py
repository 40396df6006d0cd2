#!/usr/bin/env python3
"""Writes tests/providers/data/: the same values in pickle protocols 0 to 5, and small data sets, for the tests of providers.

make_pickles.py python  writes python-pN.pickle
make_pickles.py numpy   writes numpy1-pN.pickle or numpy2-pN.pickle, after NumPy's major version, which decides the names it pickles
make_pickles.py cifar   writes cifar-original/ and cifar-python/, with NumPy: images of 3x2x2, three a batch; pixel p of image i of
                        batch b is 50 b + 12 i + p, its label (b + i) % 4
The files are in the repository, since test machines need not have NumPy.
"""
import pathlib
import pickle
import sys

FOLDER = pathlib.Path(__file__).parent / "data"


def python_values():
    shared = ["once"]
    return {
        "none": None,
        "booleans": [True, False],
        "integers": [0, 1, -1, 255, 256, 65535, 65536, -32769, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, -(2**63)],
        "floats": [0.0, -1.5, 0.1, 1e300, float("inf")],
        "text": ["", "cat", "it's \"quoted\"", "back\\slash\n\ttab", "Grüße, 猫 🐈"],
        "bytes": [b"", b"dog", bytes(range(256))],
        "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
        "long list": list(range(1001)),
        "shared": [shared, shared],
        "nested": {"a": {"b": [{"c": ()}]}},
        7: "key",
    }


def numpy_values(np):
    grid = np.arange(6).reshape(2, 3)
    values = {"empty": np.zeros((0, 3), np.uint8), "single": np.array(5, np.int32)}
    for kind in ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8"]:
        for order in "<>":
            values[order + kind] = (grid - (2 if kind[0] != "u" else 0)).astype(order + kind)
    values["b1"] = grid % 2 == 1
    values["C"] = np.ascontiguousarray(grid.astype(np.uint8))
    values["F"] = np.asfortranarray(grid.astype(np.uint8))
    values["frozen"] = grid.astype(np.uint8)
    values["frozen"].flags.writeable = False
    values["strided"] = grid.astype(np.uint8)[:, ::2]
    values["F3"] = np.asfortranarray(np.arange(24).reshape(2, 3, 4).astype(np.int16))
    values["scalars"] = [np.uint8(200), np.int64(-3), np.float32(0.5), np.float64(-0.25), np.bool_(True), np.dtype(">i4").type(9)]
    return values


def write_cifar():
    import numpy as np
    names = ["cat", "dog", "owl", "fox"]
    images = {b: np.array([[50 * b + 12 * i + p for p in range(12)] for i in range(3)], np.uint8) for b in (1, 2, 3)}
    labels = {b: [(b + i) % 4 for i in range(3)] for b in images}

    def write(name, value):
        path = FOLDER / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(pickle.dumps(value, 2))

    mean = np.full((12, 1), 100.5, np.float32)
    write("cifar-original/batches.meta", {"num_cases_per_batch": 3, "label_names": names, "num_vis": 12, "data_mean": mean})
    for b, rows in images.items():
        columns = np.ascontiguousarray(rows.T) if b == 1 else rows.T  # batch 1 in C order, others in Fortran's
        write(f"cifar-original/data_batch_{b}", {"data": columns, "labels": labels[b], "filenames": [f"{b}_{i}.png" for i in range(3)]})
    write("cifar-python/batches.meta", {"num_cases_per_batch": 3, "label_names": names, "num_vis": 12})
    for b, rows in images.items():
        name = "test_batch" if b == 3 else f"data_batch_{b}"
        write("cifar-python/" + name, {b"data": rows, b"labels": labels[b], b"batch_label": b"batch"})


def main():
    if sys.argv[1:] == ["cifar"]:
        return write_cifar()
    if sys.argv[1:] == ["python"]:
        name, values = "python", python_values()
    elif sys.argv[1:] == ["numpy"]:
        import numpy as np
        name, values = "numpy" + np.__version__.split(".")[0], numpy_values(np)
    else:
        sys.exit(__doc__)
    FOLDER.mkdir(exist_ok=True)
    for protocol in range(6):
        (FOLDER / f"{name}-p{protocol}.pickle").write_bytes(pickle.dumps(values, protocol))


if __name__ == "__main__":
    main()
