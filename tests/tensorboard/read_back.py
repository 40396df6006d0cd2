#!/usr/bin/env python3
"""Trains a small net with --tensorboard, goes on from an older checkpoint, kills a run and goes on, and reads the event files
with the tensorboard package: series, texts and pictures are what the run printed, once each.

Exit code 77 (ctest: skipped) where tensorboard is missing.
"""

import argparse
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile

try:
    from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
except ImportError as error:
    print(f"SKIPPED: {sys.executable} cannot import tensorboard ({error}); "
          "set CONVNET_TENSORBOARD_PYTHON to a Python that can")
    sys.exit(77)

DEFINITION = """[data]
type=data
dataIdx=0
[labels]
type=data
dataIdx=1
[conv1]
type=conv
inputs=data
channels=3
filters=8
filterSize=5
initW=0.01
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
momB=0.9
[fc10]
epsW=dexp[base=0.01;tgtFactor=10;numSteps=2]
epsB=0.002
momW=0.9
momB=0.9
[logprob]
coeff=1
topk=5
"""
BATCHES, TESTS = 8, 4  # in the run: 4 epochs of 2 batches of 20 minibatches, a test after every second
STEPS_PER_BATCH = 20


def series(folder):
    """Scalars by tag: (step, value), as the classic accumulator reads them, which keeps all points."""
    events = event_accumulator.EventAccumulator(str(folder), size_guidance={event_accumulator.SCALARS: 0})
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def check_others(folder, net, parameters, starts):
    """Texts, written at steps `starts`, and pictures, as today's accumulator reads them."""
    events = plugin_event_accumulator.EventAccumulator(str(folder), tensor_size_guidance={"text": 0, "images": 0})
    events.Reload()
    texts = events.PluginTagToContent("text")
    assert sorted(texts) == ["layer definition", "layer parameters"], texts
    for tag, path in (("layer definition", net), ("layer parameters", parameters)):
        shown = events.Tensors(tag)  # once for every time that the run began or went on
        assert [e.step for e in shown] == starts, shown
        for event in shown:
            text = event.tensor_proto.string_val[0].decode()
            assert text.replace("\n    ", "\n")[4:] == path.read_text(), text
    (tag,) = events.PluginTagToContent("images")
    assert tag == "filters/conv1.weights.data", tag
    pictures = events.Tensors(tag)
    assert [e.step for e in pictures] == [2 * STEPS_PER_BATCH * (i + 1) for i in range(TESTS)], pictures
    for event in pictures:
        width, height, png = event.tensor_proto.string_val
        assert png[:8] == b"\x89PNG\r\n\x1a\n", png[:8]
        assert struct.unpack(">II", png[16:24]) == (int(width), int(height)), (width, height)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    program = parser.parse_args().program
    with tempfile.TemporaryDirectory(prefix="convnet-tensorboard-") as name:
        folder = pathlib.Path(name)
        net, parameters = folder / "net.cfg", folder / "params.cfg"
        net.write_text(DEFINITION)
        parameters.write_text(PARAMETERS)

        def options(run):
            return [program, "--layer-def", str(net), "--layer-params", str(parameters), "--data-provider",
                    "dummy-3x12x12-10", "--train-range", "1-2", "--test-range", "3", "--mini", "50", "--epochs", "4",
                    "--test-freq", "2", "--keep", "99", "--threads", "1", "--save-file", str(folder / run),
                    "--tensorboard", str(folder / f"{run} board")]

        def run(command):
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout

        printed = run(options("whole"))
        whole = series(folder / "whole board")
        for kind, pattern, count in (("train", r"^\d+\.\d+ \(.*logprob:  (.*?) \(", BATCHES),
                                     ("test", r"^={5,}.*={5,}\nlogprob:  (.*?) \(", TESTS)):
            costs = re.findall(pattern, printed, re.MULTILINE)
            assert len(costs) == count, printed
            for i, value in enumerate(("-log p", "top-1 error", "top-5 error")):
                points = whole[f"logprob/{value} ({kind})"]
                step = STEPS_PER_BATCH * BATCHES // count
                assert [s for s, _ in points] == [step * (n + 1) for n in range(count)], points
                assert all(abs(v - float(c.split(", ")[i])) < 1e-5 for (_, v), c in zip(points, costs)), points
        rates = [round(v, 6) for _, v in whole["learning rate/fc10.weights.conv1"]]
        assert rates[0] == 0.01 and rates[-1] == 0.001 and len(rates) == BATCHES, rates
        assert len(whole) == 6 + 4, whole.keys()
        check_others(folder / "whole board", net, parameters, [1])

        # From an older checkpoint again: what came after it is there once.
        run([program, "--load-file", str(folder / "whole" / "2.2.safetensors"), "--tensorboard", str(folder / "whole board")])
        assert series(folder / "whole board") == whole
        check_others(folder / "whole board", net, parameters, [1, 4 * STEPS_PER_BATCH + 1])

        # A run that is killed goes on as if it had not been. The signal may come late: where it goes on is not certain.
        killed = subprocess.Popen(options("killed"), stdout=subprocess.PIPE, text=True)
        for line in killed.stdout:
            if line.startswith("3.1 "):
                killed.send_signal(signal.SIGKILL)
                break
        killed.stdout.close()
        killed.wait()
        run(options("killed"))
        assert series(folder / "killed board") == whole
    print("tensorboard reads what convnet printed")


main()
