#!/usr/bin/env python3
"""Trains ready nets of configs/ for five steps beside torchvision's models, from the same random weights and on the same images,
and compares the cost of each step with PyTorch's in double precision. SGD with momentum and weight decay; dropout and stochastic
depth are off.

    training_steps.py CONVNET [NET…]

Without names it trains small nets. --all stands for every net that torchvision has, too. Nets see images of 64 pixels, VGG and
AlexNet 224 (their first fully-connected layer is made for these).

The residual branches of ResNets begin with a fifth of their random strength: like PyTorch's zero_init_residual, that keeps the gradients
of a hundred layers within bounds. Without it, costs of resnet152 differ in the second digit at a rate of 1e-7, also between two
precisions of PyTorch.

Deep nets with batch norms amplify rounding from step to step until costs differ in the second digit. So a net whose costs differ by
more than the tolerance trains again with a tenth of the rate, down to a thousandth: it must differ by less then. And wherever
it differs more, so must PyTorch, within a factor of ten, because such differences are chaotic: in single precision, or in double
precision from weights that are changed by less than single precision can tell.

The cost of the first steps may depend little on training, so the weights after one step at a rate of 1 are compared, too: the
change of all weights together must be that of double precision, or differ from it as little as PyTorch's in single precision.

Exit code 77 (ctest: skipped) where PyTorch or torchvision is missing.
"""

import copy
import csv
import json
import shutil
import struct

from ready_nets import ALL, CLASSES, FULL_SIZE, check_nets, model_of, numpy, run, torch, torchvision, write_safetensors

STEPS, RATES, MOMENTUM, DECAY = 5, (1e-3, 1e-4, 1e-5, 1e-6), 0.9, 5e-4
BRANCHES = 0.2
IMAGES, IMAGES_AT_FULL_SIZE = 32, 8
TOLERANCE = 1e-3
SMALL = ["resnet18", "squeezenet1_1", "mobilenet_v3_small"]


def without_dropout(model):
    """The model in training mode, without what is random in it."""
    model.train()
    for module in model.modules():
        if isinstance(module, (torch.nn.Dropout, torchvision.ops.StochasticDepth)):
            module.p = 0
    return model


def with_weak_branches(model):
    """The model, with small outputs of all residual branches of a ResNet."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, torchvision.models.resnet.BasicBlock):
                module.bn2.weight *= BRANCHES
            elif isinstance(module, torchvision.models.resnet.Bottleneck):
                module.bn3.weight *= BRANCHES
    return model


def their_costs(model, steps, rate):
    """The cost of each step, and that of the last one without training. The model is trained. Biases have no weight decay in convnet, so they have none here."""
    without_dropout(model)
    with torch.no_grad():
        untrained = torch.nn.functional.cross_entropy(copy.deepcopy(model)(steps[-1][0]), steps[-1][1]).item()
    biases = [p for name, p in model.named_parameters() if name.endswith("bias")]
    others = [p for name, p in model.named_parameters() if not name.endswith("bias")]
    optimizer = torch.optim.SGD([{"params": others, "weight_decay": DECAY}, {"params": biases}], lr=rate, momentum=MOMENTUM)
    costs = []
    for images, labels in steps:
        optimizer.zero_grad()
        cost = torch.nn.functional.cross_entropy(model(images), labels)
        cost.backward()
        optimizer.step()
        costs.append(cost.item())
    return costs, untrained


def in_double(steps):
    return [(images.double(), labels) for images, labels in steps]


def nudged(model):
    """The model in double precision, with each weight changed by at most half of the last bit that single precision has."""
    model = copy.deepcopy(model).double()
    with torch.no_grad():
        for weights in model.parameters():
            weights *= 1 + torch.empty_like(weights).uniform_(-1, 1) * 2**-24
    return model


def our_costs(convnet, name, folder, steps, rate):
    """The same. Each step is a run of one minibatch that goes on from the one before."""
    shutil.rmtree(folder / "run", ignore_errors=True)
    (folder / "params.cfg").write_text(f"[DEFAULT]\nepsW={rate}\nepsB={rate}\nmomW={MOMENTUM}\nmomB={MOMENTUM}\nwc={DECAY}\nkeep=1\n[logprob]\ncoeff=1\n")
    for number, (images, labels) in enumerate(steps, 1):
        data = folder / f"data{number}"
        data.mkdir(exist_ok=True)
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


def read_safetensors(path):
    content = path.read_bytes()
    begin = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:begin])
    return {name: numpy.frombuffer(content[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]], dtype=numpy.float32)
            for name, entry in header.items() if name != "__metadata__"}


def change_differs(convnet, name, folder, model, step):
    """By how much the change of all weights in one step differs from that in double precision, in convnet and in PyTorch's single precision."""
    def change(weights):
        return numpy.concatenate([weights[key].ravel().astype(numpy.float64) - p.detach().numpy().ravel() for key, p in model.named_parameters()])

    def theirs(trained, steps):
        their_costs(trained, steps, 1)
        return change({key: p.detach().numpy() for key, p in trained.named_parameters()})

    exact = theirs(copy.deepcopy(model).double(), in_double([step]))
    single = theirs(copy.deepcopy(model), [step])
    our_costs(convnet, name, folder, [step], 1)
    run(convnet, "export", folder / "run", folder / "trained.safetensors")
    ours = change(read_safetensors(folder / "trained.safetensors"))
    return tuple(numpy.linalg.norm(other - exact) / numpy.linalg.norm(exact) for other in (ours, single))


def largest_difference(costs, exact):
    return max(abs(a - b) for a, b in zip(costs, exact, strict=True))


def check(convnet, name, folder):
    side, images = (224, IMAGES_AT_FULL_SIZE) if name.startswith(FULL_SIZE) else (64, IMAGES)
    torch.manual_seed(1)
    model = with_weak_branches(model_of(name))
    write_safetensors(folder / "weights.safetensors", model.state_dict())
    # The largest label tells the number of classes.
    steps = [(torch.randn(images, 3, side, side), torch.cat([torch.randint(CLASSES, (images - 1,)), torch.tensor([CLASSES - 1])]))
             for _ in range(STEPS)]
    our_change, their_change = change_differs(convnet, name, folder, model, steps[0])
    changes = f"{our_change:.1e} | {their_change:.1e} |"
    right = our_change <= max(TOLERANCE, 10 * their_change)
    for rate in RATES:
        exact, untrained = their_costs(copy.deepcopy(model).double(), in_double(steps), rate)
        ours = our_costs(convnet, name, folder, steps, rate)
        difference = largest_difference(ours, exact)
        theirs = largest_difference(their_costs(copy.deepcopy(model), steps, rate)[0], exact)
        row = f"| {name} | {rate} | {' '.join(f'{cost:.4f}' for cost in exact)} | {exact[-1] - untrained:+.4f} | {abs(ours[0] - exact[0]):.0e} | {difference:.1e} | {theirs:.1e} |"
        if difference <= TOLERANCE:
            print(f"{row} | {changes}", flush=True)
            return right
        nudge = largest_difference(their_costs(nudged(model), in_double(steps), rate)[0], exact)
        print(f"{row} {nudge:.1e} | {changes}", flush=True)
        if difference > 10 * max(theirs, nudge):
            break
    return False


def main():
    check_nets("| net | rate | costs of the five steps | of the last by training | convnet differs in the first by | in any by | PyTorch in single precision by | from nudged weights by | "
               "changes of weights in one step differ by | PyTorch's in single precision by |\n|---|---|---|---|---|---|---|---|---|---|", SMALL, ALL, check)


if __name__ == "__main__":
    main()
