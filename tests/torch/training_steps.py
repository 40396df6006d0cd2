#!/usr/bin/env python3
"""Trains ready nets of configs/ for five steps beside torchvision's models, from the same random weights and on the same images,
and compares the cost of each step with PyTorch's in double precision. SGD with momentum and weight decay; dropout and stochastic
depth are off.

    training_steps.py CONVNET [NET…]

Without names it trains small nets. --all stands for every net that torchvision has, too. Nets see images of 64 pixels, GoogLeNet
96 (its pools need them), VGG and AlexNet 224 (their first fully-connected layer is made for these). Where rounding flips a relu, nets with batch norms of few
values amplify it: PyTorch in single precision then differs as much, and a net may differ twice as much as that.

Exit code 77 (ctest: skipped) where PyTorch or torchvision is missing.
"""

import copy
import csv
import pathlib
import sys
import tempfile

from ready_nets import CLASSES, FULL_SIZE, model_of, numpy, run, torch, torchvision, write_safetensors

STEPS, RATE, MOMENTUM, DECAY = 5, 0.001, 0.9, 5e-4
IMAGES, IMAGES_AT_FULL_SIZE = 32, 8
TOLERANCE = 1e-3
SMALL = ["resnet18", "squeezenet1_1", "mobilenet_v3_small"]
ALL = ["alexnet", "vgg11", "vgg11_bn", "vgg16", "vgg16_bn", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "wide_resnet50_2",
       "wide_resnet101_2", "resnext50_32x4d", "densenet121", "squeezenet1_1", "googlenet", "mobilenet_v2", "mobilenet_v3_small",
       "mobilenet_v3_large", "efficientnet_b0", "shufflenet_v2_x1_0"]


def without_dropout(model):
    """The model in training mode, without what is random in it."""
    model.train()
    for module in model.modules():
        if isinstance(module, (torch.nn.Dropout, torchvision.ops.StochasticDepth)):
            module.p = 0
    return model


def their_costs(model, steps):
    """The cost of each step. Biases have no weight decay in convnet, so they have none here."""
    without_dropout(model)
    biases = [p for name, p in model.named_parameters() if name.endswith("bias")]
    others = [p for name, p in model.named_parameters() if not name.endswith("bias")]
    optimizer = torch.optim.SGD([{"params": others, "weight_decay": DECAY}, {"params": biases}], lr=RATE, momentum=MOMENTUM)
    costs = []
    for images, labels in steps:
        optimizer.zero_grad()
        cost = torch.nn.functional.cross_entropy(model(images), labels)
        cost.backward()
        optimizer.step()
        costs.append(cost.item())
    return costs


def in_double(steps):
    return [(images.double(), labels) for images, labels in steps]


def our_costs(convnet, name, folder, steps):
    """The same. Each step is a run of one minibatch that goes on from the one before."""
    (folder / "params.cfg").write_text(f"[DEFAULT]\nepsW={RATE}\nepsB={RATE}\nmomW={MOMENTUM}\nmomB={MOMENTUM}\nwc={DECAY}\nkeep=1\n[logprob]\ncoeff=1\n")
    for number, (images, labels) in enumerate(steps, 1):
        data = folder / f"data{number}"
        data.mkdir()
        numpy.save(data / "images.npy", images.numpy())
        numpy.save(data / "labels.npy", labels.numpy())
        begin = ["--load-file", folder / "run"]
        if number == 1:
            begin = ["--layer-def", name, "--layer-params", folder / "params.cfg", "--init-from", folder / "weights.safetensors", "--save-file",
                     folder / "run", "--data-provider", "npy", "--scalar-mean", 0, "--mini", len(steps[0][1]), "--train-range", 1, "--test-range", 1,
                     "--keep", 1, "--precision", "fp32"]
        run(convnet, "train", *begin, "--data-path", data, "--epochs", number, "--test-freq", 1000)
    run(convnet, "show", folder / "run", "--save-costs", folder / "costs.csv")
    with open(folder / "costs.csv", encoding="utf-8") as file:
        return [float(row["value"]) for row in csv.DictReader(file) if (row["phase"], row["value name"]) == ("train", "-log p")]


def check(convnet, name, folder):
    side, images = (224, IMAGES_AT_FULL_SIZE) if name.startswith(FULL_SIZE) else (96 if name == "googlenet" else 64, IMAGES)
    torch.manual_seed(1)
    model = model_of(name)
    write_safetensors(folder / "weights.safetensors", model.state_dict())
    # The largest label tells the number of classes.
    steps = [(torch.randn(images, 3, side, side), torch.cat([torch.randint(CLASSES, (images - 1,)), torch.tensor([CLASSES - 1])]))
             for _ in range(STEPS)]
    exact = their_costs(copy.deepcopy(model).double(), in_double(steps))
    with torch.no_grad():
        untrained = torch.nn.functional.cross_entropy(without_dropout(copy.deepcopy(model))(steps[-1][0]), steps[-1][1]).item()
    ours, theirs = (max(abs(a - b) for a, b in zip(costs, exact, strict=True))
                    for costs in (our_costs(convnet, name, folder, steps), their_costs(model, steps)))
    print(f"| {name} | {images} of {side} | {' '.join(f'{cost:.4f}' for cost in exact)} | {exact[-1] - untrained:+.4f} | {ours:.1e} | {theirs:.1e} |", flush=True)
    return ours <= max(TOLERANCE, 2 * theirs)


def main():
    convnet, names = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:] or SMALL
    print("| net | images | costs of the five steps | of it by training | convnet differs by | PyTorch in single precision by |\n|---|---|---|---|---|---|")
    wrong = []
    for name in ALL if names == ["--all"] else names:
        with tempfile.TemporaryDirectory() as folder:
            if not check(convnet, name, pathlib.Path(folder)):
                wrong.append(name)
    if wrong:
        sys.exit("differ: " + ", ".join(wrong))


if __name__ == "__main__":
    main()
