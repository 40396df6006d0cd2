#!/usr/bin/env python3
"""What a run shows on a terminal: a labelled line while a batch is trained, labelled results, and a table after a test;
in a pipe the lines of the original. No line is wider than the terminal. Predictions go to stdout, their progress to
stderr."""

import fcntl
import os
import pathlib
import pty
import random
import re
import struct
import subprocess
import sys
import tempfile
import termios
import zlib

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
SUM_DEFINITION = """[data]
type=data
dataIdx=0
[fc]
type=fc
inputs=data
outputs=2
[sum]
type=cost.sum2
inputs=fc
"""
SUM_PARAMETERS = "[fc]\nepsW=0.000001\nepsB=0.000001\nmomW=0.9\nmomB=0.9\n[sum]\ncoeff=1\n"
WIDTH = 60
LIVE = r"\r\x1b\[J([^\r\n]*)\r"  # the line before it is erased, and the cursor goes back to its beginning


class Screen:
    """What a terminal shows: lines as long as they were written, which it breaks at its width, and breaks anew when that
    changes. The cursor stays at its character, as in common terminals."""

    def __init__(self):
        self.lines, self.column = [""], 0

    def write(self, text):
        for piece in re.findall(r"\x1b\[J|.", text, re.DOTALL):
            if piece == "\r":
                self.column = self.column // self.width * self.width  # the beginning of the row, not of the line
            elif piece == "\n":
                self.lines.append("")
                self.column = 0
            elif piece == "\x1b[J":
                self.lines[-1] = self.lines[-1][:self.column]
            else:
                line = self.lines[-1].ljust(self.column)
                self.lines[-1] = line[:self.column] + piece + line[self.column + 1:]
                self.column += 1


def run_on_terminal(command, width=WIDTH):
    """Returns the exit code, and what a terminal of this width gets."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    with subprocess.Popen(command, stdout=side, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL) as process:
        os.close(side)
        shown = read_all(main)
    return process.returncode, shown


def run_with_errors_on_terminal(command):
    """Returns the exit code, stdout, and what a terminal gets that is stderr alone."""
    main, side = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=side, stdin=subprocess.DEVNULL, text=True) as process:
        os.close(side)
        out = process.stdout.read()
        shown = read_all(main)
    return process.returncode, out, shown


def read_all(terminal):
    shown = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        shown += piece
    os.close(terminal)
    return shown.decode()


def check(right, what, shown):
    if not right:
        sys.exit(f"{what}; the run printed:\n{shown}")


def without_live_lines(shown):
    return re.sub(r"\r\x1b\[J[^\r\n]*\r(?=\r\x1b\[J)", "", shown).replace("\r\x1b[J", "").replace("\r\n", "\n")


def options(folder, program, name, definition, parameters):
    """Returns a command that trains two epochs of random images."""
    (folder / f"{name}.cfg").write_text(definition)
    (folder / f"{name}-params.cfg").write_text(parameters)
    return [program, "--layer-def", folder / f"{name}.cfg", "--layer-params", folder / f"{name}-params.cfg",
            "--data-provider", "dummy-3x64x64-10", "--train-range", "1-2", "--test-range", "3", "--epochs", "2",
            "--test-freq", "2", "--mini", "4", "--threads", "1"]


def check_usual_run(command, folder):
    code, shown = run_on_terminal([*command, "--save-file", folder / "a"])
    check(code == 0, f"exit code {code}", shown)
    live = [piece for piece in re.findall(LIVE, shown) if "logprob" in piece and "images/s)" not in piece]
    check(live, "no line was shown while a batch was trained", shown)
    check(all(len(piece) < WIDTH for piece in live), "a live line is as wide as the terminal", shown)
    plain = without_live_lines(shown)
    check(re.search(r"^1\.2 \(25\.00%\)\.\.\. logprob: -log p \d+\.\d{4}, top-1 error \d+\.\d\d %, top-5 error "
                    r"\d+\.\d\d % \(\d+\.\d s, \d+ images/s\)$", plain, re.M), "no labelled batch", plain)
    check(re.search(r"^test after 1\.2 \(\d+\.\d s\), learning rate 0\.01 to 0\.02$", plain, re.M), "no test", plain)
    check(re.search(r"^  logprob top-1 error +\d+\.\d\d % +\d+\.\d\d %$", plain, re.M), "no table", plain)
    check(re.search(r"^  best logprob top-1 error: \d+\.\d\d %, after batch [12]\.2$", plain, re.M), "no best", plain)
    check(re.search(r"^  best test:   logprob \(top-1 error\) \d+\.\d\d %, after batch [12]\.2$", plain, re.M),
          "no summary in percent", plain)
    check("Layer 'fc'" not in plain and "Test output" not in plain, "lines of the original", plain)
    _, shown = run_on_terminal([*command, "--save-file", folder / "b", "--verbose", "1"])
    check("Layer 'fc' weights[0]:" in shown and "learning rate: 0.01 to 0.02" in shown, "--verbose adds nothing", shown)
    piped = subprocess.run([*command, "--save-file", folder / "c"], capture_output=True, text=True, check=True).stdout
    verbose = subprocess.run([*command, "--save-file", folder / "d", "--verbose", "1"], capture_output=True, text=True,
                             check=True).stdout
    check(re.search(r"^Layer 'fc' weights\[0\]: \d\.\d{6}e-\d\d \[\d\.\d{6}e-\d\d\] \[\d\.\d{6}e-\d\d\]\nLayer 'fc' biases: ",
                    verbose, re.M), "no magnitudes with --verbose in a pipe", verbose)
    check(re.search(r"^1\.2 \(25\.00%\)\.\.\. logprob:  \d+\.\d{6}, \d\.\d{6}, \d\.\d{6} \(\d+\.\d{3} sec\)$", piped,
                    re.M), "a pipe does not get the line of the original", piped)
    check("=Test output=" in piped and "-Averages-" in piped and "Layer 'fc'" not in piped and "\r" not in piped,
          "a pipe does not get the test of the original", piped)


def check_widths(command, folder):
    """Loss and error come before the bar, and the time left after it, that of the run and the speed as far as there is room."""
    short = r"^1\.1 \(0%\) logprob \d+\.\d{3}, \d+\.\d % "
    for width, line in ((46, short + r"\d+:\d\d left$"),
                        (60, short + r"\[[#.]{6,20}\] \d+:\d\d left$"),
                        (80, short + r"\[[#.]{6,20}\] \d+:\d\d left, run \d+:\d\d, \d+ img/s$"),
                        (160, r"^1\.1 \(0\.00%\)\.\.\. logprob: -log p \d+\.\d{4}, top-1 error \d+\.\d\d % "
                              r"\[[#.]{20}\] \d+:\d\d left, \d+:\d\d of the run, \d+ images/s$")):
        _, shown = run_on_terminal([*command, "--save-file", folder / str(width)], width)
        live = re.findall(LIVE, shown)
        check(any(re.search(line, piece) for piece in live), f"no loss, error and times in {width} columns", shown)
        check(all(len(piece) < width for piece in live if "[" in piece), "a live line is too wide", shown)


def check_narrowing(command, folder):
    """No part of a live line stays when the terminal becomes narrower while the line is shown."""
    main, side = pty.openpty()
    screen = Screen()
    resize = lambda width: (fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0)),
                            setattr(screen, "width", width))
    resize(160)
    with subprocess.Popen([*command, "--save-file", folder / "narrowing"], stdout=side, stderr=side,
                          stdin=subprocess.DEVNULL) as process:
        shown = ""
        while not re.search(LIVE, shown):
            shown += os.read(main, 65536).decode()
        end = re.search(LIVE, shown).end()
        screen.write(shown[:end])
        resize(50)
        os.close(side)
        screen.write(shown[end:] + read_all(main))
    left = [line for line in screen.lines if re.search(r"\[[#.]{6,}\]| left", line)]
    check(not left, "parts of live lines stay", "\n".join(screen.lines))
    check(any(line.startswith("1.2 (25.00%)... logprob: -log p ") for line in screen.lines), "no batch", "\n".join(screen.lines))


def check_watched_costs(program, folder):
    """The best test is printed by whatever value of a cost it is found."""
    command = options(folder, program, "sum", SUM_DEFINITION, SUM_PARAMETERS)
    code, shown = run_on_terminal([*command, "--save-file", folder / "sum"])
    check(code == 0, f"cost.sum2: exit code {code}", shown)
    check(re.search(r"^  best sum sum of squares: \d+\.\d{4}, after batch [12]\.2$", without_live_lines(shown), re.M),
          "no best sum", shown)
    command = options(folder, program, "one", DEFINITION, PARAMETERS.replace("topk=5", "topk=1"))
    code, shown = run_on_terminal([*command, "--save-file", folder / "cost", "--keep-best", "logprob.cost"])
    check(code == 0, f"--keep-best logprob.cost: exit code {code}", shown)
    plain = without_live_lines(shown)
    check(re.search(r"^  best logprob -log p: \d+\.\d{4}, after batch [12]\.2$", plain, re.M), "no best cost", plain)
    check(len(re.findall(r"^  logprob top-1 error ", plain, re.M)) == 2, "not one top-1 error a test", plain)


def check_rates(program, folder):
    """The table has the learning rates of the last minibatch."""
    schedule = "step[base=0.01;at=100,600;unit=minibatches]"
    command = options(folder, program, "steps", DEFINITION,
                      PARAMETERS.replace("=0.01\n", f"={schedule}\n").replace("=0.02\n", f"={schedule}\n"))
    _, shown = run_on_terminal([*command, "--save-file", folder / "steps"])
    for after, rate in (("1.2", "0.001"), ("2.2", "0.0001")):
        check(re.search(rf"^test after {after} \(.*\), learning rate {rate}$", without_live_lines(shown), re.M),
              f"not the learning rate {rate}", shown)


def check_closed_terminal(command, folder, controls):
    """A run whose terminal is closed saves and ends well, whether it gets SIGHUP (`controls`) or only errors of writing."""
    main, side = pty.openpty()
    run = folder / f"closed-{controls}"
    become_controlled = (lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if controls else None
    with subprocess.Popen([*command, "--save-file", run, "--epochs", "1000"], stdout=side, stderr=side, stdin=side,
                          start_new_session=True, preexec_fn=become_controlled) as process:
        os.close(side)
        while b"1.1" not in os.read(main, 65536):
            pass
        os.close(main)
        check(process.wait() == 0, f"exit code {process.returncode} after the terminal was closed", f"controls: {controls}")
    check(list(run.glob("*.safetensors")), "no checkpoint after the terminal was closed", f"controls: {controls}")


def write_png(path, side):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    noise = random.Random(1)
    rows = b"".join(b"\0" + noise.randbytes(3 * side) for _ in range(side))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) +
                     chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def check_predict(program, folder):
    """Progress goes to stderr, so results can be piped."""
    for part in ("train", "val"):
        for kind in ("cat", "dog"):
            (folder / "photos" / part / kind).mkdir(parents=True)
            for i in range(4):
                write_png(folder / "photos" / part / kind / f"{i}.png", 64)
    photos = ["--data-provider", "image", "--data-path", folder / "photos", "--image-size", "64", "--inner-size", "64"]
    command = options(folder, program, "photos", DEFINITION, PARAMETERS)
    subprocess.run([*command, *photos, "--train-range", "1", "--test-range", "2", "--save-file", folder / "photos-run"],
                   capture_output=True, check=True)
    image = folder / "photos/val/cat/0.png"
    for form, begin in (("--csv", "file,class 1"), ("--json", "{"), ("--json=0", str(image))):
        code, out, shown = run_with_errors_on_terminal(
            [program, "predict", folder / "photos-run", image, image, "--mini", "1", form])
        check(code == 0 and out.startswith(begin), f"{form}: exit code {code}", out + shown)
        check("predict... [" in shown and "\x1b" not in out and "predict..." not in out, f"{form}: no progress", shown)


def check_waiting(program, folder):
    """A net that waits for large pictures says so while a batch is trained, after it, and once with what helps."""
    (folder / "large").mkdir()
    write_png(folder / "large.png", 2000)
    for kind in ("cat", "dog"):
        (folder / "large/train" / kind).mkdir(parents=True)
        for i in range(30):
            (folder / "large/train" / kind / f"{i}.png").symlink_to(folder / "large.png")
        (folder / "large/val" / kind).mkdir(parents=True)
        write_png(folder / "large/val" / kind / "0.png", 8)
    command = [*options(folder, program, "large", DEFINITION, PARAMETERS), "--data-provider", "image", "--data-path",
               folder / "large", "--image-size", "8", "--inner-size", "8", "--decode-threads", "1", "--train-range", "1",
               "--test-range", "2", "--test-freq", "1", "--save-file", folder / "large-run"]
    code, shown = run_on_terminal(command, 160)
    check(code == 0, f"exit code {code}", shown)
    check(re.search(r" of the run, \d+ images/s, \d+ % waiting for data\r", shown), "nothing about waiting in a live line", shown)
    plain = without_live_lines(shown)
    check(re.search(r" images/s, \d+ % waiting for data\)$", plain, re.M), "nothing about waiting after a batch", plain)
    check(len(re.findall(r"^Note: steps have waited for data \d+ % of the time; ", plain, re.M)) == 1, "not one note", plain)


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        command = options(folder, program, "net", DEFINITION, PARAMETERS)
        check_usual_run(command, folder)
        check_widths(command, folder)
        check_narrowing(command, folder)
        check_watched_costs(program, folder)
        check_rates(program, folder)
        check_predict(program, folder)
        check_waiting(program, folder)
        check_closed_terminal(command, folder, True)
        check_closed_terminal(command, folder, False)


if __name__ == "__main__":
    main()
