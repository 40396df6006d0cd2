#!/usr/bin/env python3
"""Writes the tar files that tests/providers/tar_test.cpp reads, in the three forms of today: make_tars.py FOLDER."""

import io
import os
import sys
import tarfile

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def add(tar, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    if tar.format == tarfile.PAX_FORMAT:
        info.mtime = 1.5  # a record that says nothing about the name
    tar.addfile(info, io.BytesIO(data))


def main():
    folder = sys.argv[1]
    for name, form in FORMATS.items():
        with tarfile.open(os.path.join(folder, name + ".tar"), "w", format=form) as tar:
            directory = tarfile.TarInfo("images/")
            directory.type = tarfile.DIRTYPE
            tar.addfile(directory)
            add(tar, "images/a.txt", b"first")
            add(tar, "empty", b"")
            # Beyond a header's 100 bytes; ustar can divide it at a slash.
            add(tar, "d" * 90 + "/" + "f" * 60, b"x" * 700)
            if name != "ustar":
                add(tar, "n" * 300, b"long")
                add(tar, "images/\u00e4.txt", b"umlaut")
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w", format=form) as nested:
                add(nested, "inner", b"within")
            add(tar, "nested.tar", inner.getvalue())


if __name__ == "__main__":
    main()
