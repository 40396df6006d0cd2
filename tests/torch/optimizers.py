#!/usr/bin/env python3
"""Trains a softmax regression on Fashion-MNIST for 20 minibatches with each optimiser, with clipped gradients and with
averaged weights, and compares all weights with those of torch.optim, clip_grad_norm_ and AveragedModel in double precision.
torch.optim has no LARS, so that is written here, after its paper.

Exit code 77 (ctest: skipped) where PyTorch or the data set is missing.
"""

import argparse
import pathlib
import sys
import tempfile

import agreement  # ends with 77 where PyTorch is missing
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn

TOLERANCE = 1e-5
EMA = 0.9
# RMSProp's is larger, because small gradients divided by their own size amplify rounding.
ADAM_EPSILON, RMS_EPSILON = 1e-8, 0.5
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
initW=0.001
[probs]
type=softmax
inputs=fc
[logprob]
type=cost.logreg
inputs=labels,probs
"""
PARAMETERS = """[DEFAULT]
optimizer={optimizer}
epsW={rate}
epsB={rate}
momW=0.9
momB=0.9
wc=0.01
beta2=0.99
adamEpsilon={epsilon}
trust=0.01
[fc]
[logprob]
coeff=1
"""
# optimizer, rate, largest norm of the gradient, averages
CASES = [("sgd", 1e-6, 0, False), ("sgd", 1e-4, 1.0, True), ("nesterov", 1e-6, 0, True),
         ("nesterov", 1e-4, 1.0, False), ("adamw", 1e-4, 0, True), ("adamw", 1e-3, 1.0, False),
         ("rmsprop", 1e-4, 0, True), ("rmsprop", 1e-3, 1.0, False), ("lars", 0.05, 0, True), ("lars", 0.05, 1.0, False)]


class Lars(torch.optim.Optimizer):
    """Layer-wise Adaptive Rate Scaling (You, Gitman and Ginsburg 2017, arXiv 1708.03888, algorithm 1): SGD with momentum
    whose rate for each tensor of a group with "trust" is multiplied by trust * norm(w) / (norm(g) + weight_decay * norm(w))."""

    def __init__(self, groups, lr, momentum):
        super().__init__(groups, {"lr": lr, "momentum": momentum, "weight_decay": 0.0, "trust": None})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weights in group["params"]:
                rate, decay = group["lr"], group["weight_decay"]
                if group["trust"] is not None:
                    rate *= group["trust"] * weights.norm() / (weights.grad.norm() + decay * weights.norm())
                velocity = self.state[weights].setdefault("velocity", torch.zeros_like(weights))
                velocity.mul_(group["momentum"]).add_(rate * (weights.grad + decay * weights))
                weights.sub_(velocity)


def train_with_convnet(program, scratch, case):
    optimizer, rate, clip, average = case
    (scratch / "net.cfg").write_text(DEFINITION)
    (scratch / "params.cfg").write_text(PARAMETERS.format(optimizer=optimizer, rate=rate, epsilon=RMS_EPSILON if optimizer == "rmsprop" else ADAM_EPSILON))
    run = scratch / "run"
    agreement.run_convnet(program, "--layer-def", scratch / "net.cfg", "--layer-params", scratch / "params.cfg",
                          "--data-provider", "mnist", "--data-path", scratch.parent / "data", "--train-range", 1,
                          "--test-range", 2, "--mini", agreement.MINI, "--epochs", 0, "--test-freq", 1, "--save-file",
                          run, "--device", "cpu", "--force-save", 1, "--clip-norm", clip, "--ema", EMA if average else 0)
    agreement.run_convnet(program, "--load-file", run, "--epochs", 1)
    return agreement.read_safetensors(run / "0.0.safetensors")[0], agreement.read_safetensors(run / "1.1.safetensors")[0]


def train_with_torch(initial, case, pixels, labels):
    optimizer, rate, clip, average = case
    model = torch.nn.Linear(784, 10).double()
    model.weight.data.copy_(initial["fc.weights.data"])
    model.bias.data.copy_(initial["fc.biases"])
    averaged = AveragedModel(model, avg_fn=get_ema_avg_fn(EMA)) if average else None
    groups = [{"params": [model.weight], "weight_decay": 0.01}, {"params": [model.bias], "weight_decay": 0.0}]
    if optimizer == "adamw":
        optim = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.99), eps=ADAM_EPSILON)
    elif optimizer == "rmsprop":
        optim = torch.optim.RMSprop(groups, lr=rate, momentum=0.9, alpha=0.99, eps=RMS_EPSILON)
    elif optimizer == "lars":
        groups[0]["trust"] = 0.01
        optim = Lars(groups, lr=rate, momentum=0.9)
    else:
        optim = torch.optim.SGD(groups, lr=rate, momentum=0.9, nesterov=optimizer == "nesterov")
    images = torch.frombuffer(bytearray(pixels), dtype=torch.uint8).reshape(-1, 784).double()
    images = images - initial["mnist.mean"].reshape(1, 784)
    targets = torch.frombuffer(bytearray(labels), dtype=torch.uint8).long()
    for step in range(agreement.STEPS):
        part = slice(step * agreement.MINI, (step + 1) * agreement.MINI)
        optim.zero_grad()
        torch.nn.functional.cross_entropy(model(images[part]), targets[part]).backward()
        if clip > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optim.step()
        if averaged is not None:
            averaged.update_parameters(model)
    tensors = {"fc.weights.data": model.weight.data, "fc.biases": model.bias.data}
    if averaged is not None:
        tensors |= {"fc.weightsAvg.data": averaged.module.weight.data, "fc.biasesAvg": averaged.module.bias.data}
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path, default=agreement.FOLDER)
    options = parser.parse_args()
    if not (options.data / "train-images-idx3-ubyte.gz").is_file():
        print(f"SKIPPED: no Fashion-MNIST in {options.data} (Debian package dataset-fashion-mnist)")
        return 77
    count = agreement.STEPS * agreement.MINI
    pixels, labels = agreement.read_first("train", count, options.data)
    tests = agreement.read_first("t10k", agreement.TEST_IMAGES, options.data)
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        agreement.write_data(pathlib.Path(folder) / "data", pixels, labels, tests, count)
        for number, case in enumerate(CASES):
            scratch = pathlib.Path(folder) / f"case{number}"
            scratch.mkdir()
            initial, final = train_with_convnet(options.program, scratch, case)
            for name, theirs in train_with_torch(initial, case, pixels, labels).items():
                difference = ((final[name] - theirs).norm() / theirs.norm()).item()
                moved = theirs.norm() > 0 and (theirs - initial.get(name, theirs + 1)).norm() > 0.01 * theirs.norm()
                worst = max(worst, difference if moved else 1.0)
                print(f"{case}: {name}: relative difference {difference:.1e}, moved {moved}")
    print(f"largest relative difference of a tensor, in norm: {worst:.2e} (allowed {TOLERANCE:.0e})")
    return 0 if worst < TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
