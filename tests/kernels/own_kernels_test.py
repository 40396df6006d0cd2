"""Checks that the objects with own kernels give the linker nothing but their entry.

usage: own_kernels_test.py NM READELF OBJECT...

A function that another file could use by its name would take AVX-512 to processors without it.
"""
import subprocess
import sys

nm, readelf, *objects = sys.argv[1:]


def output_of(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


wrong = []
for path in objects:
    shared = [line.split()[-1] for line in output_of(nm, "--defined-only", "--extern-only", path).splitlines()]
    if len(shared) != 1 or not shared[0].startswith("convnet_own_kernels_"):
        wrong.append(f"{path} defines {len(shared)} symbols for others: {' '.join(shared[:10])}")
    if "no section groups" not in output_of(readelf, "--section-groups", "--wide", path):
        wrong.append(f"{path} has section groups, of which the linker takes one copy by name")
print("\n".join(wrong) or f"{len(objects)} objects define their entries only")
sys.exit(1 if wrong or not objects else 0)
