#!/usr/bin/env python3
"""Compares the prediction in docs/parallelism.md with what the program prints today.

    parallelism_test.py CONVNET [--write]

--write puts today's numbers into the page.
"""

import os
import subprocess
import sys

FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = os.path.join(FOLDER, "docs", "parallelism.md")
BEGIN, END = "<!-- begin: tests/docs/parallelism_test.py -->\n", "<!-- end -->\n"
NET = "configs/alexnet-owt-4gpu-hybrid-auto"
COMMAND = ["plan", "--layer-def", NET + ".cfg", "--layer-params", NET + "-params.cfg", "--data-provider",
           "dummy-3x224x224-1000", "--mini", "512", "--gpu", "0,1,2,3", "--model", "bench/models/nvlink-8gpu.json"]
# Rows of the table of layers that are shown; the others are left out.
LAYERS = ["conv5", "pool5", "fc4096a/0", "fc4096a/1", "fc4096a/2", "fc4096a/3", "dropout1_gather/0", "fc4096b/0",
          "logprob"]


def excerpt(output):
    """The lines that the page shows, with "..." for those it leaves out."""
    lines, in_layers = [], True
    for line in output.rstrip("\n").split("\n"):
        in_layers = in_layers and line != ""
        if not in_layers or line.split()[0] in LAYERS + ["layer"]:
            lines.append(line)
        elif lines[-1] != "...":
            lines.append("...")
    return "".join("    " + line + "\n" if line else "\n" for line in lines)


def main():
    run = subprocess.run([sys.argv[1]] + COMMAND, cwd=FOLDER, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"convnet plan ended with {run.returncode}:\n{run.stderr}")
    today = excerpt(run.stdout)
    with open(PAGE, encoding="utf-8") as file:
        before, rest = file.read().split(BEGIN)
    page, after = rest.split(END)
    if "--write" in sys.argv[2:]:
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(before + BEGIN + today + END + after)
    elif page != today:
        sys.exit(f"docs/parallelism.md is stale; `{sys.argv[0]} CONVNET --write` renews it. Today it would show\n{today}")


if __name__ == "__main__":
    main()
