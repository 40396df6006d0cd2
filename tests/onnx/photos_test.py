#!/usr/bin/env python3
"""Goes the whole way of a user with photos: one `convnet train` with the name of a ready net, `predict` with the best checkpoint,
`convnet export`, and onnxruntime, which must name the same classes with the same probabilities.

    photos_test.py CONVNET SOURCE

Photos are scaled twice: as convnet does it, number by number, and with Pillow as docs/export.md says (its code is run from the
page), which gives nearly the same pixels.

Exit code 77 (ctest: skipped) where NumPy, onnx, onnxruntime or Pillow is missing.
"""

import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from packages import numpy as np, onnxruntime

if onnxruntime is None:
    print(f"SKIPPED: {sys.executable} cannot import onnxruntime; CONVNET_ONNX_PYTHON names a Python that has it (pip install onnxruntime)")
    sys.exit(77)
try:
    from PIL import Image
except ImportError as error:
    print(f"SKIPPED: {sys.executable} cannot import Pillow ({error}); Debian's is python3-pil")
    sys.exit(77)

PROGRAM, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
CLASSES, PHOTOS, NEW_PHOTOS = ["apple", "leaf", "sky"], 24, 30
TOLERANCE, TOLERANCE_WITH_PILLOW = 1e-4, 1e-2
# docs/export.md promises these of Pillow's pixels: most by which a byte differs, and the part of the bytes that do.
MOST_OF_A_BYTE, PART_OF_BYTES = 1, 0.01


def make_photo(path, random, which, number):
    """A blurred pattern in which one colour is a little stronger than the others. Sizes are those that cameras turn, cut and shrink."""
    sizes = [(61, 97), (90, 90), (150, 113), (37, 40), (211, 200), (330, 301), (640, 427), (33, 90)]
    width, height = sizes[number % len(sizes)]
    small = random.integers(0, 180, (5, 6, 3))
    small[..., which] += 40
    photo = Image.fromarray(small.astype(np.uint8)).resize((width, height), Image.Resampling.BICUBIC)
    if number % 7 == 5:
        exif = Image.Exif()
        exif[0x112] = 6 if number % 2 else 3  # orientation
        photo.save(path, exif=exif, quality=90)
    else:
        photo.save(path, quality=(60, 85, 95)[number % 3], progressive=number % 5 == 0, subsampling=(2, 0, 1)[number % 3])


def make_photos(folder, count, seed):
    random = np.random.default_rng(seed)
    for which, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            make_photo(folder / name / f"{number:03}.jpg", random, which, number)


def convnet(folder, *arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"convnet {' '.join(map(str, arguments))}\nended with exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def scaling_weights(length, to):
    """The weights (to, length) with which convnet scales an axis, in units of 2^-14: triangles as wide as what a new pixel covers.
    What rounding changes in a weight is made up for by the next one."""
    weights = np.zeros((to, length), np.int64)
    scale, radius = length / to, max(1, length / to)
    taps = min(length, math.ceil(2 * radius) + 1)
    for i in range(to):
        centre = (i + 0.5) * scale
        first = min(max(math.floor(centre - radius), 0), length - taps)
        exact = [max(0, 1 - abs(x + 0.5 - centre) / radius) for x in range(first, first + taps)]
        rounded = [math.floor(part + 0.5) for part in np.cumsum(exact) / sum(exact) * 2**14]
        weights[i, first:first + taps] = np.diff(rounded, prepend=0)
    return weights


class ExactImage:
    """Scales as convnet does, with those of Pillow's methods that docs/export.md calls."""

    def __init__(self, array):
        self.array = array
        self.size = array.shape[1::-1]

    def resize(self, size, _):
        result = self.array
        for axis in (0, 1):
            length, to = result.shape[axis], size[1 - axis]
            if length != to:
                sums = np.moveaxis(np.tensordot(scaling_weights(length, to), result.astype(np.int64), (1, axis)), 0, axis)
                result = ((sums + 2**13) >> 14).astype(np.uint8)
        return ExactImage(result)

    def crop(self, box):
        left, top, right, bottom = box
        return ExactImage(self.array[top:bottom, left:right])

    def __array__(self, dtype=None, copy=None):
        return self.array


def code_of_page():
    """The code of docs/export.md that prepares a photo and asks a model, which is run in the current folder. Returns what it defines."""
    page = (SOURCE / "docs/export.md").read_text(encoding="utf-8")
    (code,) = [block for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL) if "def prepared(" in block]
    names = {}
    exec(code, names)  # pylint: disable=exec-used
    return names


def compare(what, session, metadata, files, pixels, tolerance):
    names = json.loads(metadata["class_names"])
    (probabilities,) = session.run([metadata["class_output"]], {"images": np.concatenate(pixels)})
    worst = 0
    for file, found in zip(files, probabilities, strict=True):
        ours = {one["class"]: one["probability"] for one in file["classes"]}
        assert sorted(ours) == sorted(names), (ours, names)
        worst = max(worst, *(abs(ours[name] - p) for name, p in zip(names, found)))
        # Only classes that are as probable as each other may change their order.
        best = names[found.argmax()]
        assert ours[best] > max(ours.values()) - 2 * tolerance, f"{what}: {file['file']} is {best} for onnxruntime, and {ours} for convnet"
    print(f"{what}: the same classes for {len(files)} photos, probabilities to {worst:.1e} (allowed {tolerance:.0e})")
    if not worst < tolerance:
        sys.exit("that is too much")


def check(net, options, folder):
    printed = convnet(folder, "train", "photos", "--layer-def", net, "--mini", 16, "--epochs", 8, "--save-file", "run", *options)
    assert (folder / "run/best.safetensors").is_file(), printed
    for line in ["use it:", "export it:"]:
        assert line in printed, printed
    best = "run/best.safetensors"
    files = json.loads(convnet(folder, "predict", best, "new", "--json", 1, "--precision", "fp32", "--top", len(CLASSES)))["files"]
    assert len(files) == NEW_PHOTOS * len(CLASSES)
    right = sum(max(file["classes"], key=lambda one: one["probability"])["class"] == pathlib.Path(file["file"]).parts[-2] for file in files)
    assert right > len(files) / 2, f"{right} of {len(files)} photos are named right"
    convnet(folder, "export", best, "net.onnx")
    os.chdir(folder)
    shutil.copy(files[0]["file"], "photo.jpg")
    page = code_of_page()
    opened, prepared, session, metadata = (page[name] for name in ["opened", "prepared", "session", "metadata"])
    images = [opened(file["file"], metadata) for file in files]
    exact = [prepared(ExactImage(np.asarray(image)), metadata) for image in images]
    pillow = [prepared(image, metadata) for image in images]
    differences = np.abs(np.concatenate(exact) - np.concatenate(pillow))
    print(f"{net}: {right} of {len(files)} photos named right; with Pillow {(differences > 0).mean():.2%} of the bytes differ, by at most {differences.max():.0f}")
    assert differences.max() <= MOST_OF_A_BYTE and (differences > 0).mean() < PART_OF_BYTES
    assert page["probs"].shape == (1, len(CLASSES))
    compare(f"{net}, the same pixels", session, metadata, files, exact, TOLERANCE)
    compare(f"{net}, pixels of Pillow", session, metadata, files, pillow, TOLERANCE_WITH_PILLOW)


for ready_net, size in [("small", ()), ("resnet18", ("--image-size", 36))]:
    with tempfile.TemporaryDirectory() as scratch:
        make_photos(pathlib.Path(scratch) / "photos", PHOTOS, 1)
        make_photos(pathlib.Path(scratch) / "new", NEW_PHOTOS, 2)
        check(ready_net, size, pathlib.Path(scratch))
