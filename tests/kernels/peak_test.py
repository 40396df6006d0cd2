"""Checks that the loop that measures the processor's peak keeps its sums in registers.

usage: peak_test.py OBJDUMP OBJECT...

For each object with own kernels, the longest run of arithmetic on vectors in measure_peak_flops() must have twelve
sums, in the widest registers of the instruction set, and may not touch memory.
"""
import re
import subprocess
import sys

objdump, *objects = sys.argv[1:]
ARITHMETIC = re.compile(r"\s(vfn?m(add|sub)\w*ps|vdpbf16ps|v?mulps|v?addps|fmla|movaps)\s+(.*)")
REGISTERS = {"base": "xmm", "v3": "ymm", "v4": "zmm", "v4_bf16": "zmm"}


def runs(path: str) -> list[list[str]]:
    """Returns the runs of arithmetic instructions in the functions that measure the peak."""
    text = subprocess.run([objdump, "--disassemble", "--no-show-raw-insn", path], check=True, capture_output=True, text=True).stdout
    found, run, inside = [], [], False
    for line in text.splitlines():
        if line.endswith(">:"):
            inside = "measure_peak_flops" in line
        match = ARITHMETIC.search(line) if inside else None
        if match:
            run.append(match.group(3))
        elif run:
            found.append(run)
            run = []
    return found


wrong = []
for path in objects:
    name = re.search(r"own_kernels_(\w+)\.o$", path).group(1)
    register = REGISTERS.get(name)
    if register is None:
        continue
    good = [run for run in runs(path) if len({operands.split(",")[-1] for operands in run}) >= 12 and all(register in o and "(" not in o for o in run)]
    if not good:
        wrong.append(f"{path}: no loop of the peak has twelve sums in {register} registers alone: {max(runs(path), key=len, default=[])}")
print("\n".join(wrong) or f"the loops of {len(objects)} objects stay in registers")
sys.exit(1 if wrong or not objects else 0)
