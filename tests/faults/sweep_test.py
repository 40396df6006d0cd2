"""Runs commands again and again; each time the nth allocation, write, fsync, rename or link of the program fails (fail_nth.cpp).
Whatever fails, the program ends with code 0 to 3, says why if that is not 0, and loses nothing that was there before.

sweep_test.py PROGRAM LIBRARY [POINTS]: of each kind of call in each command, POINTS numbers n are tried, spread over all that
there are; 0: every n.
"""
import errno
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

PROGRAM, LIBRARY = map(os.path.abspath, sys.argv[1:3])
POINTS = int(sys.argv[3]) if len(sys.argv) > 3 else 12

wrongs = []  # what was wrong with each run, in words

DEFINITION = """[data]
type=data
dataIdx=0
[labels]
type=data
dataIdx=1
[conv1]
type=conv
inputs=data
channels=1
filters=2
filterSize=3
neuron=relu
[fc10]
type=fc
inputs=conv1
outputs=10
[probs]
type=softmax
inputs=fc10
[logprob]
type=cost.logreg
inputs=labels,probs
"""
PARAMETERS = """[conv1]
epsW=0.001
epsB=0.002
momW=0.9
momB=0.8
[fc10]
epsW=0.001
epsB=0.002
momW=0.9
momB=0.8
[logprob]
coeff=1
"""


def npy(descr, shape, values):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + values


def is_whole(checkpoint):
    """Whether a safetensors file has all of the bytes that its header promises."""
    data = checkpoint.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    end = max(t["data_offsets"][1] for name, t in header.items() if name != "__metadata__")
    return len(data) == 8 + size + end


class Fault:
    """One run of a command with a fault."""

    def __init__(self, folder, args, kind, at, code, stdin=None):
        self.what = f"{kind} {at} ({errno.errorcode[code]}) of: convnet {' '.join(map(str, args))}"
        count = folder / "count"
        count.unlink(missing_ok=True)
        settings = dict(LD_PRELOAD=LIBRARY, FAIL_KIND=kind, FAIL_AT=str(at), FAIL_ERRNO=str(code), FAIL_COUNT=str(count))
        done = subprocess.run([PROGRAM, *map(str, args)], env={**os.environ, **settings}, cwd=folder, capture_output=True, timeout=300)
        self.code, self.err = done.returncode, done.stderr.decode(errors="replace")
        self.calls = int(count.read_text()) if count.exists() else 0

    def check(self, holds, wrong):
        if not holds:
            wrongs.append(f"{self.what}\nended with code {self.code}: {wrong}\n{self.err}")

    def check_end(self):
        self.check(0 <= self.code <= 3, "a signal, or an exit code that is none of the program's")
        self.check(self.code == 0 or self.err.strip(), "no text")


def sweep(folder, kinds, prepare, args, check):
    """Runs a command with faults of these kinds, in a folder that `prepare` fills anew for each run."""
    runs = 0
    for kind, code in kinds:

        def run(at):
            scratch = folder / "scratch"
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            prepare(scratch)
            fault = Fault(scratch, args, kind, at, code)
            fault.check_end()
            check(fault, scratch)
            return fault

        calls = run(0)
        calls.check(calls.code == 0, "it fails without a fault")
        step = max(1, -(-calls.calls // POINTS)) if POINTS else 1
        # The first calls and the last are often of another kind than the many between.
        points = set(range(1, calls.calls + 1, step)) | set(range(1, min(3, calls.calls) + 1)) | {calls.calls}
        for at in sorted(points - {0}):
            run(at)
        runs += len(points)
    return runs


def main():
    disk = [(kind, code) for kind in ("write", "fsync", "rename", "link") for code in (errno.ENOSPC, errno.EIO)]
    memory = [("malloc", errno.ENOMEM)]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "net.cfg").write_text(DEFINITION)
        (folder / "params.cfg").write_text(PARAMETERS)
        data = folder / "set"
        data.mkdir()
        images = 48
        pixels = bytes((p * (i % 10 + 3) + 31 * i) % 256 for i in range(images) for p in range(64))
        (data / "images.npy").write_bytes(npy("|u1", f"{images}, 1, 8, 8", pixels))
        (data / "labels.npy").write_bytes(npy("|u1", f"{images},", bytes(i % 10 for i in range(images))))
        net = ["--layer-def", folder / "net.cfg", "--layer-params", folder / "params.cfg", "--threads", "1"]
        train = net + ["--data-provider", "npy", "--data-path", data, "--train-range", "1", "--test-range", "1", "--mini", "16", "--test-freq", "1"]
        first = train + ["--keep-best", "logprob", "--save-file", folder / "run", "--epochs", "1"]
        subprocess.run([PROGRAM, *map(str, first)], check=True, capture_output=True)
        run = folder / "run"

        def copy_run(scratch):
            shutil.copytree(run, scratch / "run")

        def check_run(fault, scratch):
            names = sorted(p.name for p in (scratch / "run").iterdir())
            numbered = [n for n in names if n[0].isdigit() and n.endswith(".safetensors")]
            fault.check(numbered, f"no checkpoint is left, only {names}")
            for n in numbered + ["best.safetensors"]:
                fault.check(n in names and is_whole(scratch / "run" / n), f"{n} is not whole")
            rest = set(names) - set(numbered) - {"best.safetensors"}
            # Where memory ends within a library, it may end the process: then nothing is tidied up.
            killed = {".lock"} | {n for n in rest if "convnet-tmp" in n}
            fault.check(rest <= (killed if "malloc" in fault.what else set()), f"these are left: {sorted(rest)}")

        resume = ["--load-file", "run", "--epochs", "3", "--keep", "1", "--tensorboard", "board", "--profile", "profile.json"]
        runs = sweep(folder, disk + memory, copy_run, resume, check_run)

        # Going on from an older checkpoint moves the later one aside.
        branch = folder / "branch"
        shutil.copytree(run, branch)
        subprocess.run([PROGRAM, "--load-file", str(branch), "--epochs", "2", "--keep", "2"], check=True, capture_output=True)
        later = (branch / "2.1.safetensors").read_bytes()

        def check_moved(fault, scratch):
            fault.check(any(p.read_bytes() == later for p in scratch.rglob("2.1.safetensors")), "the later checkpoint is lost")

        back = ["--load-file", "branch/1.1.safetensors", "--epochs", "3", "--keep", "1"]
        runs += sweep(folder, [k for k in disk if k[0] == "rename"], lambda scratch: shutil.copytree(branch, scratch / "branch"), back, check_moved)

        def check_new(fault, scratch):
            if not (scratch / "new").exists():
                fault.check(fault.code != 0, "there is no run")
                return
            names = [p.name for p in (scratch / "new").iterdir()]
            for n in names:
                fault.check(not n.endswith(".safetensors") or is_whole(scratch / "new" / n), f"{n} is not whole")

        new = train + ["--save-file", "new", "--epochs", "1"]
        runs += sweep(folder, disk + memory, lambda scratch: None, new, check_new)

        for args, name in ((["export", run], "out.onnx"), (["show", run, "--threads", "1", "--html"], "out.html")):
            subprocess.run([PROGRAM, *map(str, args), folder / name], check=True, capture_output=True)
            good = (folder / name).read_bytes()

            def check_file(fault, scratch):
                fault.check((scratch / name).read_bytes() == good, "the file is not whole")
                left = {p.name for p in scratch.iterdir()} - {name, "count"}
                fault.check(not left or "malloc" in fault.what, f"these are left: {left}")

            runs += sweep(folder, disk + memory, lambda scratch: shutil.copy(folder / name, scratch), args + [name], check_file)
        for command in (["predict", run, data / "images.npy", "--threads", "1"], ["plan", *net, "--data-provider", "dummy-1x8x8-10"]):
            runs += sweep(folder, memory, lambda scratch: None, command, lambda fault, scratch: None)
        for wrong in wrongs:
            print(wrong)
        print(f"{runs} faults, {len(wrongs)} of them with wrong ends")
        sys.exit(1 if wrongs else 0)


main()
