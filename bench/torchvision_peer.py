#!/usr/bin/env python3
"""Runs training steps of torchvision's nets, which are those of our configs, in the peer script, which has none of them.

  bench/torchvision_peer.py --peer-script torch_bench.py --net resnet18-imagenet --threads 2 --batch 128 --precision bf16 --variant channels_last --steps 10
"""
import argparse
import importlib.util

NETS = {"resnet18-imagenet": "resnet18", "resnet50-imagenet": "resnet50", "mobilenet-v3-small-imagenet": "mobilenet_v3_small"}


def main():
    import torchvision  # other scripts need only the names

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-script", required=True)
    parser.add_argument("--net", choices=NETS, required=True)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--variant", default="eager")
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    spec = importlib.util.spec_from_file_location("peer", args.peer_script)
    peer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(peer)
    peer.NETS[args.net] = lambda: (getattr(torchvision.models, NETS[args.net])(), (3, 224, 224), 1000)
    args.ddp = 1
    peer.worker(0, args)


if __name__ == "__main__":
    main()
