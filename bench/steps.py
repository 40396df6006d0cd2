"""The repository, the random data of its nets, and the steps of training runs: what several scripts here share."""
import os
import re
import shlex
import shutil
import statistics
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BATCH = 1000  # images in a batch of the provider dummy


def provider_of(net):
    """Returns the data provider of random images of the size that a net is for: ImageNet's unless it is one of the nets for small images."""
    small = {"lenet": "dummy-1x28x28-10", "cifar-quick": "dummy-3x32x32-10", "wrn-16-4": "dummy-3x32x32-10", "two-towers": "dummy-3x32x32-10"}
    return small.get(net, "dummy-3x224x224-1000")


def device_list(count):
    """Returns the value of --gpu for the first `count` devices: "0,1,2"."""
    return ",".join(map(str, range(count)))


def sent_bytes(text):
    """Returns the bytes that the network cards of all hosts have sent. The hosts are namespaces of this machine (scripts/several-hosts) in which
    processes run that have `text` in their command line."""
    sent = {}
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/cmdline") as line, open(f"/proc/{process}/net/dev") as cards:
                if text not in line.read():
                    continue
                found = re.search(r"^ *eth0:(.*)", cards.read(), re.MULTILINE)
                if found:
                    sent[os.stat(f"/proc/{process}/ns/net").st_ino] = int(found.group(1).split()[8])
        except OSError:  # it has ended
            continue
    return sum(sent.values())


def train(net, args, launcher, gpus, threads, more=(), files=None, sent=None):
    """Trains a net on random data with `launcher` before the command, and returns the milliseconds of a step of args.mini images: the median over
    args.batches batches, without the first. `files` are the two files of a net whose layers are placed; else the whole net is on every device. `sent`, a list,
    gets the bytes that hosts sent to each other in a step."""
    folder = tempfile.mkdtemp()
    mini = args.mini
    definition, parameters = files or (f"{ROOT}/configs/{net}.cfg", f"{ROOT}/configs/{net}-params.cfg")
    command = [*launcher, args.program, "--layer-def", definition, "--layer-params", parameters,
               "--data-provider", provider_of(net), "--train-range", f"1-{args.batches + 1}", "--test-range", "1000",
               "--epochs", "1", "--test-freq", "1000000", "--mini", str(mini), "--parallel", "cfg" if files else "data", "--device", "cpu", "--gpu", gpus,
               "--threads", str(threads), "--save-file", folder + "/run", "--max-test-err", "0.0000001", *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    seconds, counts = [], []
    for line in process.stdout:
        found = re.match(r"1\.(\d+) .*\((\d+\.\d+) sec\)", line)
        if found:
            seconds.append(float(found.group(2)))
            if sent is not None:
                counts.append(sent_bytes(folder))
        if len(seconds) == args.batches + 1:
            break
    process.terminate()
    process.wait()
    shutil.rmtree(folder, ignore_errors=True)
    if len(seconds) < 2:
        raise SystemExit("failed: " + shlex.join(command) + "\n" + process.stderr.read())
    steps = -(-BATCH // mini)  # of a batch; the last one has fewer images
    if sent is not None:
        sent.append((counts[-1] - counts[0]) / steps / (len(counts) - 1))
    return 1000 * statistics.median(seconds[1:]) * mini / BATCH
