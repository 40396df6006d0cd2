#!/usr/bin/env python3
"""Runs the commands of a page, in order, in a temporary folder.

    commands_test.py CONVNET PAGE.md [PAGE.md …]      with a page like README.md or docs/cfg.md

In a page, a fenced block is
- ```ini with a first line like "# net.cfg" or "# net.cfg: more words": a file of that name;
- ```sh: commands for bash, each of which must succeed; "```sh exit=2" says that the last one ends with that code;
- ```output: consecutive lines of what the commands before it printed. "…" in a line stands for any text, a line of
  "…" for any lines. Measured numbers (with three or more decimals, and percentages with one) may differ by a quarter,
  times by anything.
Other blocks are not read. Commands see the repository's scripts, configs and bench, and the program as build/release/convnet and on PATH.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")
MEASURED = re.compile(r"\d+\.\d{3,} sec|\d+\.\d{3,}|\d+\.\d%")
# What a page does at full size is done here at a smaller one, and in the temporary folder.
SMALLER = {
    "docs/show.md": [("make-cifar-from-mnist cifar", "make-cifar-from-mnist cifar small-mnist"), ("--train-range 1-5", "--train-range 1"),
                     ("--test-range 6", "--test-range 2"), ("--epochs 10", "--epochs 1"), ("train,10000,", "train,2000,")],
    "README.md": [("/tmp/", "./"), ("--train-range 1-6", "--train-range 1"), ("--epochs 2 --test-freq 6", "--epochs 1 --test-freq 1 --threads 1"),
                  ("--epochs 4", "--epochs 2"), ("--threads 2", "--threads 1 --steps 4")],
    # The nets of several GPUs are planned, not measured.
    "configs/README.md": [("convnet bench", "convnet plan")],
}
# Commands that other tests run, or that need root, several hosts or minutes. A block with one of them is not run.
NOT_RUN = {
    "README.md": ["scripts/quickstart", "scripts/package", "mpirun --host alpha"],
    "docs/install.md": ["scripts/setup", "--target uninstall", "scripts/package"],
}
# What a page expects the reader to have.
PREPARED = {
    "README.md": "scripts/make-images-from-mnist made 20 && cp made/train/pullover/00005.png photo.png && mv made/train photos",
    "docs/show.md": f"{ROOT / 'tests/fashion_mnist.py'} small-mnist 2000 500",
}


def blocks_of(text):
    """The fenced blocks as (number of the first line, words after the fence, content)."""
    for match in re.finditer(r"^```([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield text.count("\n", 0, match.start()) + 1, match[1].split(), match[2]


def pattern_of(line):
    """A regular expression for a line of ```output, and the measured numbers in it."""
    parts, numbers = [], []
    for piece in re.split("(…|" + MEASURED.pattern + ")", line):
        if piece == "…":
            parts.append(".*")
        elif piece.endswith(" sec"):
            parts.append(r"\d+\.\d+ sec")
        elif MEASURED.fullmatch(piece):
            parts.append(r"(\d+\.\d+)" + ("%" if piece.endswith("%") else ""))
            numbers.append(float(piece.rstrip("%")))
        else:
            parts.append(re.escape(piece))
    return "".join(parts), numbers


def difference(expected, printed):
    """Says what of an ```output block was not printed; "" if all was."""
    patterns, numbers = [], []
    for line in expected.splitlines():
        if line == "…":
            patterns.append(r"(?:.*\n)*?")
        else:
            pattern, more = pattern_of(line)
            patterns.append(pattern + r" *\n")
            numbers += more
    found = re.search("^" + "".join(patterns), printed, re.MULTILINE)
    if not found:
        return "was not printed"
    for page, today in zip(numbers, map(float, found.groups())):
        if abs(page - today) > 0.25 * max(page, today) + 0.02:
            return f"has {page} where {today} was printed"
    return ""


class Page:
    """A page whose blocks are tried one after the other, as in one terminal: cd and export last."""

    def __init__(self, name, folder, environment):
        self.name, self.path, self.folder, self.environment = name, ROOT / name, folder, environment
        self.not_run = list(NOT_RUN.get(name, []))
        self.state = folder / ".state"  # commands that restore exported variables
        self.state.touch()
        self.printed = ""

    def fail(self, line, message):
        sys.exit(f"{self.name}:{line}: {message}")

    def run(self, line, words, commands):
        commands = self.smaller(commands)
        script = f"source {self.state}\nset -e\n{commands}\nexport -p > {self.state}"
        done = subprocess.run(["bash", "-c", script], cwd=self.folder, env=self.environment,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        folder = re.search('^declare -x PWD="(.*)"$', self.state.read_text(encoding="utf-8"), re.MULTILINE)
        if folder:
            self.folder = pathlib.Path(folder[1])
        self.printed = done.stdout
        wanted = next((int(word.removeprefix("exit=")) for word in words if word.startswith("exit=")), 0)
        if done.returncode != wanted:
            self.fail(line, f"exit code {done.returncode} instead of {wanted} of\n{commands}\n{done.stdout}")

    def smaller(self, text):
        for full, smaller in SMALLER.get(self.name, []):
            text = text.replace(full, smaller)
        return text

    def leaves_out(self, commands):
        """Says whether a block is one of those that are not run."""
        known = next((words for words in NOT_RUN.get(self.name, []) if words in commands), None)
        if known in self.not_run:
            self.not_run.remove(known)
        return known is not None

    def try_blocks(self):
        count = 0
        if self.name in PREPARED:
            self.run(1, [], PREPARED[self.name])
        for line, words, content in blocks_of(self.path.read_text(encoding="utf-8")):
            kind = words[0] if words else ""
            if kind == "ini":
                name = re.match(r"# ([\w-]+\.cfg)(:|$)", content.split("\n")[0])
                if name:
                    (self.folder / name[1]).write_text(content, encoding="utf-8")
            elif kind == "sh" and not self.leaves_out(content):
                self.run(line, words, content)
                count += 1
            elif kind == "output":
                wrong = difference(self.smaller(content), self.printed)
                if wrong:
                    self.fail(line, f"the output {wrong}:\n{content}\nbut this was:\n{self.printed}")
        if count == 0:
            self.fail(1, "the page has no commands")
        if self.not_run:
            self.fail(1, f"no block has these commands, which NOT_RUN of {pathlib.Path(__file__).name} lists: {self.not_run}")
        print(f"{self.name}: {count} blocks of commands")


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    if not FASHION_MNIST.exists():
        print(f"{FASHION_MNIST} is not there (package dataset-fashion-mnist)")
        sys.exit(77)
    for name in sys.argv[2:]:
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            (folder / "build/release").mkdir(parents=True)
            (folder / "build/release/convnet").symlink_to(program)
            for shared in ("scripts", "configs", "bench"):
                (folder / shared).symlink_to(ROOT / shared)
            path = f"{folder / 'build/release'}{os.pathsep}{os.environ['PATH']}"
            Page(name, folder, dict(os.environ, PATH=path, HOME=temporary)).try_blocks()


if __name__ == "__main__":
    main()
