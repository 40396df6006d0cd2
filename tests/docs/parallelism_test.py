#!/usr/bin/env python3
"""Compares the predictions in docs/parallelism.md with what the program prints today.

    parallelism_test.py CONVNET [--write]

--write puts today's numbers into the page.
"""

import json
import os
import subprocess
import sys

FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = os.path.join(FOLDER, "docs", "parallelism.md")
BEGIN, END = "<!-- begin: tests/docs/parallelism_test.py -->\n", "<!-- end -->\n"
# Rows of the table of layers that are shown; the others are left out.
LAYERS = ["conv5", "pool5", "fc4096a/0", "fc4096a/1", "fc4096a/2", "fc4096a/3", "dropout1_gather/0", "fc4096b/0",
          "logprob"]


def plan(net, *options):
    """What `convnet plan` prints of a net in configs/."""
    command = [sys.argv[1], "plan", "--layer-def", f"configs/{net}.cfg", "--layer-params", f"configs/{net}-params.cfg",
               "--data-provider", "dummy-3x224x224-1000", "--model", "bench/models/nvlink-8gpu.json", *options]
    run = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {run.returncode}:\n{run.stderr}")
    return run.stdout


def microbatches(net, counts, *options):
    """A table of the step for each number of microbatches; fails unless steps of more devices are shorter than the
    first, and the memory falls."""
    rows = ["| `--microbatches` | predicted step | fullest device |", "|---|---|---|"]
    seconds, memory = [], []
    for count in counts:
        prediction = json.loads(plan(net, "--json", "1", "--microbatches", str(count), *options))["prediction"]
        seconds.append(prediction["step_seconds"])
        memory.append(prediction["memory"]["needed"])
        rows.append(f"| {count} | {1e3 * seconds[-1]:.1f} ms | {memory[-1] / 2**20:.0f} MiB |")
    if memory != sorted(memory, reverse=True) or ("--set" in options and min(seconds) > 0.7 * seconds[0]):
        sys.exit(f"--microbatches no longer helps: {seconds} s, {memory} bytes")
    return "\n".join(rows) + "\n"


def hybrid():
    """The lines that the page shows of the hybrid net, with "..." for those it leaves out."""
    output = plan("alexnet-owt-4gpu-hybrid-auto", "--mini", "512", "--gpu", "0,1,2,3")
    lines, in_layers = [], True
    for line in output.rstrip("\n").split("\n"):
        in_layers = in_layers and line != ""
        if not in_layers or line.split()[0] in LAYERS + ["layer"]:
            lines.append(line)
        elif lines[-1] != "...":
            lines.append("...")
    return "".join("    " + line + "\n" if line else "\n" for line in lines)


def main():
    with open(PAGE, encoding="utf-8") as file:
        parts = [part.split(END) for part in file.read().split(BEGIN)]
    today = [microbatches("resnet18-imagenet", [1, 2, 4, 8], "--mini", "128"),
             microbatches("alexnet-owt", [1, 2, 4, 8, 16], "--mini", "512", "--gpu", "0,1",
                          "--set", "conv1.gpu=0,conv3.gpu=1"),
             hybrid()]
    if "--write" in sys.argv[2:]:
        page = "".join([parts[0][0]] + [BEGIN + block + END + part[1] for block, part in zip(today, parts[1:])])
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(page)
    elif [part[0] for part in parts[1:]] != today:
        sys.exit(f"docs/parallelism.md is stale; `{sys.argv[0]} CONVNET --write` renews it. Today it would show\n" +
                 "\n".join(today))


if __name__ == "__main__":
    main()
