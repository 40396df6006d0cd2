"""Runs programs that may hang within a time, and keeps what they print."""
import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass


@dataclass
class Run:
    code: int | None  # None: it took too long
    out: str
    err: str
    seconds: float

    def result(self):
        return "passed" if self.code == 0 else "took too long" if self.code is None else f"FAILED ({self.code})"

    def last_line(self):
        """The last line that says something, of errors if there are any; fit for a cell of a table."""
        lines = [line.strip() for line in (self.out + "\n" + self.err).splitlines() if line.strip(" =-")]
        return (lines or ["printed nothing"])[-1][:160].replace("|", "/")


def run(command, seconds, environment=None):
    """The program and all that it has started are killed after `seconds`, not asked to end: it may be past hearing that."""
    begin = time.monotonic()
    # Files rather than pipes, which a child that is left over would keep open.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, start_new_session=True)
        except OSError as error:
            return Run(127, "", str(error), 0)
        code = None
        try:
            code = process.wait(max(seconds, 0.1))
        except subprocess.TimeoutExpired:
            pass
        finally:
            kill_group(process)
        return Run(code, text_of(out), text_of(err), time.monotonic() - begin)


def kill_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(5)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass  # all have ended, or one hangs in a driver, where nothing can end it


def text_of(file):
    file.seek(0)
    return file.read().decode(errors="replace")


def stop_when_asked():
    """SIGTERM ends this program as Ctrl-C does, so that what it runs is killed with it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
