#!/usr/bin/env python3
"""Measures training steps of PyTorch on the nets of configs/, and prints one JSON object: milliseconds a step (the median), images a second.

  bench/torch_bench.py --net wrn-16-4 --threads 2 --batch 128 --variant channels_last
  bench/torch_bench.py --net resnet50 --device cuda --batch 256 --precision bf16 --variant graph

A step is what a step of convnet is: forward, softmax and logistic cost, backward, and SGD with momentum and weight decay, on images that are in
the device's memory already. Variants: eager; channels_last, in which images lie as N,H,W,C; compile, which is torch.compile with channels_last;
graph, which records the step of channels_last as a CUDA graph. bf16 is autocast: weights and their updates stay in f32, as convnet's do. tf32 lets
products of f32 numbers on a GPU use TF32. --ddp N shares the minibatch among N processes with DistributedDataParallel over gloo.
Besides the four nets written here, every net that `convnet nets` lists with a name of torchvision's can be measured.
"""
import argparse
import json
import os
import statistics
import time

import torch
from torch import nn

# Nets of configs/ whose name is not torchvision's.
TORCHVISION = {"resnet18-imagenet": "resnet18", "resnet50-imagenet": "resnet50", "mobilenet-v3-small-imagenet": "mobilenet_v3_small"}
VARIANTS = ("eager", "channels_last", "compile", "graph")


def conv(inputs, outputs, size, stride=1, bias=True):
    """A convolution that keeps the picture's size, but for its stride."""
    return nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=bias)


def pool(kind, size, stride=2):
    """A pool of cuda-convnet's geometry: a window that begins inside the picture counts."""
    return kind(size, stride, ceil_mode=True)


def lenet():
    features = [conv(1, 32, 5), pool(nn.MaxPool2d, 2), nn.ReLU(), conv(32, 64, 5), pool(nn.MaxPool2d, 2), nn.ReLU()]
    return nn.Sequential(*features, nn.Flatten(), nn.Linear(64 * 7 * 7, 256), nn.ReLU(), nn.Linear(256, 10))


def cifar_quick():
    first = [conv(3, 32, 5), pool(nn.MaxPool2d, 3), nn.ReLU()]
    second = [conv(32, 32, 5), nn.ReLU(), pool(nn.AvgPool2d, 3)]
    third = [conv(32, 64, 5), nn.ReLU(), pool(nn.AvgPool2d, 3)]
    return nn.Sequential(*first, *second, *third, nn.Flatten(), nn.Linear(64 * 4 * 4, 64), nn.Linear(64, 10))


def alexnet_owt():
    """Layers as in configs/alexnet-owt.cfg. Its first convolution has 55x55 outputs on 224 pixels, for which the picture's end is padded."""
    def norm():
        return nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75, k=2)
    layers = [nn.ZeroPad2d((0, 3, 0, 3)), nn.Conv2d(3, 64, 11, stride=4), norm(), pool(nn.MaxPool2d, 3), nn.ReLU()]
    layers += [conv(64, 192, 5), nn.ReLU(), norm(), pool(nn.MaxPool2d, 3)]
    layers += [conv(192, 384, 3), nn.ReLU(), conv(384, 256, 3), nn.ReLU(), conv(256, 256, 3), pool(nn.MaxPool2d, 3), nn.ReLU(), nn.Flatten()]
    for inputs in (256 * 6 * 6, 4096):
        layers += [nn.Linear(inputs, 4096), nn.ReLU(), nn.Dropout(0.5)]
    return nn.Sequential(*layers, nn.Linear(4096, 1000))


class WideBlock(nn.Module):
    """A block of a wide ResNet: batch norm and ReLU come before each convolution. Where the size changes, a 1x1 convolution adapts the shortcut,
    which then begins after the first ReLU."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), conv(inputs, outputs, 3, stride, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(outputs), conv(outputs, outputs, 3, bias=False)
        self.project = conv(inputs, outputs, 1, stride, bias=False) if inputs != outputs else None

    def forward(self, images):
        start = nn.functional.relu(self.norm1(images))
        shortcut = self.project(start) if self.project is not None else images
        return shortcut + self.conv2(nn.functional.relu(self.norm2(self.conv1(start))))


def wrn_16_4():
    layers, inputs = [conv(3, 16, 3, bias=False)], 16
    for outputs, stride in ((64, 1), (128, 2), (256, 2)):
        layers += [WideBlock(inputs, outputs, stride), WideBlock(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.BatchNorm2d(inputs), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


# Net: its model, dims of an image, classes.
NETS = {"lenet": (lenet, (1, 28, 28), 10), "cifar-quick": (cifar_quick, (3, 32, 32), 10), "wrn-16-4": (wrn_16_4, (3, 32, 32), 10),
        "alexnet-owt": (alexnet_owt, (3, 224, 224), 1000)}


def model_of(net):
    """Returns the model of a net, the dims of its images, and the number of classes."""
    if net in NETS:
        make, dims, classes = NETS[net]
        return make(), dims, classes
    import torchvision

    name = TORCHVISION.get(net, net)
    if name not in torchvision.models.list_models(module=torchvision.models):
        raise SystemExit(f"torch_bench: no net '{net}': {', '.join((*NETS, *TORCHVISION))}, or a name of torchvision's")
    options = {"init_weights": False, "aux_logits": False} if name in ("googlenet", "inception_v3") else {}
    return torchvision.models.get_model(name, **options), (3, 224, 224), 1000


def measure(rank, args):
    """Measures the steps of one process, and prints them in the first."""
    torch.manual_seed(1)
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = args.precision != "fp32"
    layout = torch.contiguous_format if args.variant == "eager" else torch.channels_last
    model, dims, classes = model_of(args.net)
    model = model.to(args.device, memory_format=layout)
    images = torch.randn(args.batch // args.ddp, *dims).to(args.device).to(memory_format=layout)
    labels = torch.randint(classes, (len(images),)).to(args.device)
    if args.ddp > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(args.port))
        torch.distributed.init_process_group("gloo", rank=rank, world_size=args.ddp)
        model = nn.parallel.DistributedDataParallel(model)
    update = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9, weight_decay=0.0005)

    def step():
        update.zero_grad(set_to_none=args.variant != "graph")
        with torch.autocast(args.device, torch.bfloat16, enabled=args.precision == "bf16"):
            outputs = model(images)
        nn.functional.cross_entropy(outputs.float(), labels).backward()
        update.step()

    run = torch.compile(step) if args.variant == "compile" else step
    wait = torch.cuda.synchronize if args.device == "cuda" else lambda: None
    if args.variant == "graph":
        # Steps before the recording run on a stream of their own, as PyTorch's manual wants it.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        run = graph.replay
    for _ in range(3):  # choose algorithms, compile
        run()
    seconds = []
    for _ in range(args.steps):
        wait()
        start = time.perf_counter()
        run()
        wait()
        seconds.append(time.perf_counter() - start)
    if args.ddp > 1:
        torch.distributed.destroy_process_group()
    median = statistics.median(seconds)
    if rank == 0:
        print(json.dumps({"peer": f"PyTorch {torch.__version__}", "net": args.net, "device": args.device, "threads": torch.get_num_threads(),
                          "processes": args.ddp, "batch": args.batch, "precision": args.precision, "variant": args.variant,
                          "ms": round(1e3 * median, 3), "images_per_s": round(args.batch / median, 1)}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", required=True)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=0, help="threads of a process (PyTorch's own choice)")
    parser.add_argument("--batch", type=int, default=128, help="images of a step of all processes (128)")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "tf32", "bf16"])
    parser.add_argument("--variant", default="eager", choices=VARIANTS)
    parser.add_argument("--steps", type=int, default=10, help="steps that are measured (10)")
    parser.add_argument("--ddp", type=int, default=1, help="processes (1)")
    parser.add_argument("--port", type=int, default=29517, help="of the processes' first connection (29517)")
    args = parser.parse_args()
    if args.variant == "graph" and args.device != "cuda":
        parser.error("--variant graph needs --device cuda")
    if args.ddp < 1 or args.batch % args.ddp:
        parser.error("--batch must be a multiple of --ddp")
    if args.ddp > 1:
        torch.multiprocessing.spawn(measure, (args,), nprocs=args.ddp)
    else:
        measure(0, args)


if __name__ == "__main__":
    main()
