"""Runs programs that may hang, within a time limit, and keeps what they print."""
import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass

LATE = 6  # seconds that run() may take beyond its limit


@dataclass
class Run:
    code: int | None  # None: the program took too long
    out: str
    err: str
    seconds: float

    def result(self):
        return "passed" if self.code == 0 else "took too long" if self.code is None else f"FAILED ({self.code})"

    def gist(self):
        """Returns a text for a cell of a table: the reason of a test program's first failure, or else the last line that is not empty, of errors
        if there are any."""
        lines = [line.strip() for line in (self.out + "\n" + self.err).splitlines() if line.strip(" =-")]
        reasons = [after for line, after in zip(lines, lines[1:]) if line.startswith(("due to ", "with expansion:"))]
        return (reasons[:1] or lines[-1:] or ["printed nothing"])[0][:160].replace("|", "/")


def run(command, seconds, environment=None, keep=None):
    """Runs a program. After `seconds` it gets SIGTERM, at which a test program names the case that it runs. A little later it is killed, together
    with all processes that it has started. While it runs, its output is in the file `keep`, which stays there if this program is killed."""
    begin = time.monotonic()
    # The output goes to files, because a child that outlives the program would keep pipes open.
    with open(keep, "w+b") if keep else tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, start_new_session=True)
        except OSError as error:
            if keep:
                os.remove(keep)
            return Run(127, "", str(error), 0)
        code = None
        try:
            code = process.wait(max(seconds, 0.1))
        except subprocess.TimeoutExpired:
            send(process, signal.SIGTERM, LATE / 2)
        finally:
            send(process, signal.SIGKILL, LATE / 2)
        if keep:
            os.remove(keep)
        return Run(code, text_of(out), text_of(err), time.monotonic() - begin)


def send(process, number, seconds):
    """Sends a signal to the program and all processes that it has started, and waits up to `seconds` for its end."""
    try:
        os.killpg(process.pid, number)
        process.wait(seconds)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass  # all have ended, or one cannot end, because a driver hangs


def text_of(file):
    file.seek(0)
    return file.read().decode(errors="replace")


def stop_when_asked():
    """Makes SIGTERM end this program as Ctrl-C does, so that the program that it runs is killed with it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
