"""The model of two hosts with a network between them, for the scripts that compare it with measurements."""
import json
import re
import shlex
import subprocess
import tempfile

from steps import ROOT, provider_of

BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def bits_of(rate):
    """Returns the bits a second of a rate like "100mbit"; "none" is no limit."""
    if rate == "none":
        return 1e15
    number, unit = re.fullmatch(r"([0-9]+)([a-z]+)", rate).groups()
    return float(number) * BITS[unit]


def host_model(speed, devices, rate):
    """Returns the machine description of hosts with `devices` devices of `speed` FLOP/s each, and a link of rate `rate` between them. A TCP segment of
    1448 bytes takes 1538 on the cable."""
    return {"name": "two hosts", "source": "bench/hosts", "flops": speed, "memory_bandwidth": speed / 5, "link_bandwidth": 5e9,
            "host_bandwidth": 5e9, "switch_devices": devices, "uplink_bandwidth": bits_of(rate) / 8 * 1448 / 1538, "uplink_latency": 1e-4,
            "task_overhead": 1e-6, "concurrent_streams": True}


def predicted(net, args, hosts, gpu, model, processes=1):
    """Returns the predicted milliseconds of a step with data parallelism."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(model, file)
        file.flush()
        command = [args.program, "plan", "--layer-def", f"{ROOT}/configs/{net}.cfg", "--layer-params", f"{ROOT}/configs/{net}-params.cfg",
                   "--data-provider", provider_of(net), "--mini", str(args.mini), "--parallel", "data",
                   "--device", "cpu", "--gpu", gpu, *(["--hosts", hosts] if hosts else []), "--processes", str(processes), "--model", file.name]
        run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit("failed: " + shlex.join(command) + "\n" + run.stderr)
    return float(re.search(r"^predicted for .*: ([0-9.]+) ms a step", run.stdout, re.MULTILINE).group(1))


def speed_for(net, args, milliseconds, hosts="", gpu="0", devices=1):
    """Returns the FLOP/s of a device for which a step without a network between the hosts is predicted to take `milliseconds`."""
    low, high = 1e8, 1e13
    for _ in range(40):
        middle = (low * high) ** 0.5
        if predicted(net, args, hosts, gpu, host_model(middle, devices, "none")) > milliseconds:
            low = middle
        else:
            high = middle
    return low
