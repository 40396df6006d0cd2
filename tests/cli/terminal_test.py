#!/usr/bin/env python3
"""What a run shows on a terminal: a labelled line while a batch is trained, labelled results, and a table after a test;
in a pipe the lines of the original. No line is wider than the terminal."""

import fcntl
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios

DEFINITION = """[data]
type=data
dataIdx=0
[labels]
type=data
dataIdx=1
[fc]
type=fc
inputs=data
outputs=10
[probs]
type=softmax
inputs=fc
[logprob]
type=cost.logreg
inputs=labels,probs
"""
PARAMETERS = "[fc]\nepsW=0.01\nepsB=0.02\nmomW=0.9\nmomB=0.9\n[logprob]\ncoeff=1\ntopk=5\n"
WIDTH = 60


def run_on_terminal(command):
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
    with subprocess.Popen(command, stdout=side, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL) as process:
        os.close(side)
        shown = b""
        while True:
            try:
                piece = os.read(main, 65536)
            except OSError:  # the other side is closed
                break
            if not piece:
                break
            shown += piece
    os.close(main)
    return process.returncode, shown.decode()


def check(right, what, shown):
    if not right:
        sys.exit(f"{what}; the run printed:\n{shown}")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "net.cfg").write_text(DEFINITION)
        (folder / "params.cfg").write_text(PARAMETERS)
        command = [program, "--layer-def", folder / "net.cfg", "--layer-params", folder / "params.cfg", "--data-provider",
                   "dummy-3x64x64-10", "--train-range", "1-2", "--test-range", "3", "--epochs", "2", "--test-freq", "2",
                   "--mini", "4", "--threads", "1"]
        code, shown = run_on_terminal([*command, "--save-file", folder / "a"])
        check(code == 0, f"exit code {code}", shown)
        # The live line is erased by a carriage return and an escape sequence.
        live = [piece for piece in re.findall(r"\r\x1b\[K([^\r\n]*)", shown) if "images/s" in piece and "[" in piece]
        check(live, "no line was shown while a batch was trained", shown)
        check(all(len(piece) < WIDTH for piece in live), "a live line is as wide as the terminal", shown)
        plain = re.sub(r"\r\x1b\[K[^\r\n]*(?=\r\x1b\[K)", "", shown).replace("\r\x1b[K", "").replace("\r\n", "\n")
        check(re.search(r"^1\.2 \(25\.00%\)\.\.\. logprob: -log p \d+\.\d{4}, top-1 error \d+\.\d\d %, top-5 error "
                        r"\d+\.\d\d % \(\d+\.\d s, \d+ images/s\)$", plain, re.M), "no labelled batch", plain)
        check(re.search(r"^test after 1\.2 \(\d+\.\d s\), learning rate 0\.01 to 0\.02$", plain, re.M), "no test", plain)
        check(re.search(r"^  logprob top-1 error +\d+\.\d\d % +\d+\.\d\d %$", plain, re.M), "no table", plain)
        check(re.search(r"^  best logprob top-1 error: \d+\.\d\d %, after batch [12]\.2$", plain, re.M), "no best", plain)
        check("Layer 'fc'" not in plain and "Test output" not in plain, "lines of the original", plain)
        _, shown = run_on_terminal([*command, "--save-file", folder / "b", "--verbose", "1"])
        check("Layer 'fc' weights[0]:" in shown and "learning rate: 0.01 to 0.02" in shown, "--verbose adds nothing", shown)
        piped = subprocess.run([*command, "--save-file", folder / "c"], capture_output=True, text=True, check=True).stdout
        check(re.search(r"^1\.2 \(25\.00%\)\.\.\. logprob:  \d+\.\d{6}, \d\.\d{6}, \d\.\d{6} \(\d+\.\d{3} sec\)$", piped,
                        re.M), "a pipe does not get the line of the original", piped)
        check("=Test output=" in piped and "-Averages-" in piped and "Layer 'fc' weights[0]:" in piped and
              "\r" not in piped, "a pipe does not get the test of the original", piped)


if __name__ == "__main__":
    main()
