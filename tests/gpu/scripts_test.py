#!/usr/bin/env python3
"""scripts/gpu-check and gpu-speed with stand-ins for what they run: scripts_test.py CONVNET_ON_EMULATED_GPUS CUDA_TEST_ON_EMULATED_GPUS"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts")
EMULATED = ""
CUDA_TEST = ""

CONVNET = """case "$*" in
  --version) echo convnet 1.2.3 ;;
  bench*) mkdir -p "$CONVNET_CACHE"; echo '{}' >"$CONVNET_CACHE/tuning-stand-in.json"; echo '{"ms_per_step": 2.0, "recorded": true}' ;;
  *) echo trained ;;
esac"""
PASSES = "case \"$*\" in --list*) echo a case ;; *) echo all passed ;; esac"
# One case breaks the process, as a wrong access on a GPU does.
FAILS = """case "$*" in
  --list-test-names-only) printf '  %s\\n' 'good' 'broken, [badly]' 'also good' ;;
  *'broken\\, \\[badly\\]'*) printf 'FAILED:\ndue to unexpected exception with message:\n  illegal access\n=====\nassertions: 1\n'; exit 42 ;;
  *) echo some passed ;;
esac"""
HANGS = "trap '' TERM\necho $$ >\"$PIDS\"\nsleep 1000 & echo $! >>\"$PIDS\"\nwhile :; do wait; done"
SANITIZER = "echo \"$@\"\necho $CONVNET_CASES >\"$PIDS\"\ncase \"$*\" in *racecheck*) exit 9 ;; esac"
PEER = """import sys
variant = sys.argv[sys.argv.index("--variant") + 1]
print("a warning")
print({"channels_last": '{"ms": 12.5}', "graph": "no figures today", "compile": '{"ms": null}'}[variant])
"""

COMPILED = """import os, sys
with open(os.environ["PIDS"], "a") as file:
    print("theirs", *sys.argv[1:], file=file)
print('{"ms": 6.0}' if "compile" in sys.argv else "not asked for")
"""


class Bundle(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        shutil.copytree(SCRIPTS, self.path("scripts"), ignore=shutil.ignore_patterns("__pycache__"))
        os.makedirs(self.path("out"))
        os.symlink(os.path.join(SCRIPTS, "../configs"), self.path("configs"))
        self.program("bin/convnet", CONVNET)
        for suite in ("cuda_gpu", "layers", "parallel", "agreement"):
            self.program(f"bin/{suite}_test", PASSES)

    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, name):
        with open(self.path(name)) as file:
            return file.read()

    def program(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w") as file:
            file.write(f"#!/bin/sh\n{text}\n")
        os.chmod(file.name, 0o755)

    def run_script(self, name, *args):
        """The exit code and the seconds it took."""
        environment = dict(os.environ, PIDS=self.path("pids"), PATH=f"{self.path('tools')}:{os.environ['PATH']}")
        environment.pop("CONVNET_CACHE", None)
        begin = time.monotonic()
        run = subprocess.run([sys.executable, self.path(f"scripts/{name}"), *args], env=environment, capture_output=True, text=True)
        self.said = run.stdout + run.stderr
        return run.returncode, time.monotonic() - begin

    def check_no_process_is_left(self):
        for pid in self.read("pids").split():
            try:
                with open(f"/proc/{pid}/stat") as stat:
                    self.assertIn(stat.read().rsplit(")", 1)[1].split()[0], "ZX", "is still there")
            except FileNotFoundError:
                pass

    def test_failing_case_is_named_and_a_hanging_suite_killed(self):
        self.program("bin/cuda_gpu_test", FAILS)
        self.program("bin/parallel_test", HANGS)
        code, seconds = self.run_script("gpu-check", "correct", self.path("out/a.md"), "--seconds", "20")
        report = self.read("out/a.md")
        self.assertEqual(code, 1, self.said)
        self.assertLess(seconds, 22)
        self.assertIn("convnet 1.2.3", report)
        self.assertRegex(report, r"\| every operation beside the CPU's \| FAILED \(42\) \| [0-9]+ s \| [0-9] of [0-9] processes passed; illegal access \|")
        self.assertRegex(report, r"\| – broken, \[badly\] \| FAILED \(42\) \| [0-9]+ s \| illegal access \|")
        self.assertRegex(report, r"\| – its [1-3] cases alone \| 1 failed, 0 not run \|")
        self.assertNotIn("good", report)
        self.assertRegex(report, r"\| lenet on Fashion-MNIST \| passed \| [0-9]+ s \| trained \|")
        self.assertRegex(report, r"\| parallelism .* \| took too long \|")
        self.assertIn("  illegal access\n", self.read("out/a.log"))
        self.assertTrue(os.path.exists(self.path("out/tuning-stand-in.json")))
        self.check_no_process_is_left()

    def test_a_run_that_is_killed_leaves_what_it_knows(self):
        self.program("bin/cuda_gpu_test", FAILS)
        self.program("bin/agreement_test", "case \"$*\" in *first*) ;; --list*) echo a case ;; *) echo half of it; echo $$ >\"$PIDS\"; exec sleep 1000 ;; esac")
        environment = dict(os.environ, PIDS=self.path("pids"))
        run = subprocess.Popen([sys.executable, self.path("scripts/gpu-check"), "all", self.path("out/a.md"), "--seconds", "100"], env=environment,
                               stdout=subprocess.DEVNULL)
        for _ in range(300):
            time.sleep(0.1)
            if os.path.exists(self.path("pids")):
                break
        run.kill()
        run.wait()
        os.kill(int(self.read("pids")), signal.SIGKILL)
        report = self.read("out/a.md")
        self.assertIn("| steps of four nets in three precisions, recorded and not | passed |", report)
        self.assertIn("| – broken, [badly] | FAILED (42) |", report)
        self.assertRegex(report, r"\| steps of lenet, .* beside the CPU \| running \|")
        self.assertIn("illegal access", self.read("out/a.log"))
        left = [name for name in os.listdir(self.path("out")) if "-running-" in name]
        self.assertEqual([self.read(f"out/{name}") for name in left], ["half of it\n"])

    def test_parts_share_the_time(self):
        self.program("bin/layers_test", HANGS)
        with open(self.path("scripts/torch_bench.py"), "w") as file:
            file.write(COMPILED)
        code, seconds = self.run_script("gpu-check", "all", self.path("out/a.md"), "--seconds", "70")
        self.assertEqual(code, 1, self.said)
        self.assertLess(seconds, 72)
        report = self.read("out/a.md")
        self.assertRegex(report, r"\| whole nets .* \| took too long \|")
        self.assertIn("| steps beside PyTorch's | passed |", report)
        self.assertNotIn("running", report)
        self.check_no_process_is_left()

    def test_steps_that_are_not_recorded(self):
        for said in ("false", "null"):
            self.program("bin/convnet", CONVNET.replace("true", said))
            code, _ = self.run_script("gpu-check", "correct", self.path("out/a.md"), "--seconds", "30")
            self.assertEqual(code, 1, self.said)
            self.assertIn("| a step of lenet | not recorded |", self.read("out/a.md"))
            self.program("bench", f"""echo '{{"ms_per_step": 1.0, "recorded": {said}}}'""")
            code, _ = self.run_script("gpu-speed", "--program", self.path("bench"), "--output", self.path("out/steps.md"), "--nets", "lenet",
                                      "--batches", "2", "--precisions", "bf16")
            self.assertEqual(code, 1, self.said)
            self.assertIn("- convnet, lenet, batch 2, bf16: its steps were not recorded", self.read("out/steps.md"))

    def test_no_gpu(self):
        self.program("bin/convnet", "echo '--device cuda: there is none; use --device cpu' >&2; exit 3")
        code, _ = self.run_script("gpu-check", "correct", self.path("out/a.md"))
        self.assertEqual(code, 3)
        self.assertIn("there is none", self.said)

    def test_a_machine_whose_libraries_are_too_old_gets_the_bundle_s(self):
        self.program("bin/convnet", 'case "$LD_LIBRARY_PATH" in */lib/cxx) ;; *) echo "GLIBCXX_3.4.30 not found" >&2; exit 1 ;; esac\n' + CONVNET)
        self.program("tools/compute-sanitizer", "echo nothing wrong")
        code, _ = self.run_script("gpu-check", "sanitize", self.path("out/a.md"))
        self.assertEqual(code, 0, self.said)
        self.assertIn("convnet 1.2.3", self.read("out/a.md"))

    def test_sanitizers(self):
        self.program("tools/compute-sanitizer", SANITIZER)
        code, _ = self.run_script("gpu-check", "sanitize", self.path("out/a.md"))
        report = self.read("out/a.md")
        self.assertEqual(code, 1)
        self.assertIn("| memcheck of the own kernels | passed |", report)
        self.assertIn("| racecheck of the own kernels | FAILED (9) |", report)
        self.assertIn("| – a case | FAILED (9) |", report)
        self.assertIn("--kernel-name kns=convnet", self.read("out/a.log"))
        self.assertIn("smallest", self.read("pids"))

    def test_a_machine_that_does_not_let_sanitizers_reach_its_gpu(self):
        self.program("tools/compute-sanitizer", "echo '========= Error: Device not supported'\nexit 1")
        self.run_script("gpu-check", "sanitize", self.path("out/a.md"))
        report = self.read("out/a.md")
        self.assertRegex(report, r"\| compute-sanitizer \| not run \|.*Device not supported")
        self.assertNotIn("of the own kernels", report)

    def test_sanitizers_leave_out_the_cases_that_run_cudnn(self):
        self.program("tools/compute-sanitizer", SANITIZER)
        self.program("bin/cuda_gpu_test", 'case "$*" in --list*) echo "$2" >"$PIDS.spec"; echo a case ;; esac')
        self.run_script("gpu-check", "sanitize", self.path("out/a.md"))
        spec = self.read("pids.spec").strip()
        # With Catch2 2 the exit code is the number of cases.
        lists = [subprocess.run([CUDA_TEST, "--list-test-names-only", *filters], stdout=subprocess.PIPE, text=True).stdout.splitlines() for filters in (["[cuda]"], [spec])]
        cases, chosen = (set(map(str.strip, lines)) for lines in lists)
        operations = ["conv.forward", "conv.forward+relu", "conv.backward_data", "conv.backward_weights"]
        self.assertEqual(cases - chosen, {f"{operation} on both backends" for operation in operations} | {
            "convolutions of bf16 numbers", "convolutions of the CUDA backend keep NaN through relu", "convolutions read maps that must lie plain",
            "large products bind within their workspace"})
        self.assertIn("pool.forward on both backends", chosen)

    def test_everything_passes(self):
        self.program("bin/convnet", CONVNET.replace("trained", "printf 'Averages----\\nlogprob:  0.3 0.1\\n'"))
        code, _ = self.run_script("gpu-check", "correct", self.path("out/a.md"))
        self.assertEqual(code, 0, self.said)

    def test_steps_beside_a_peer_that_fails_in_parts(self):
        with open(self.path("peer.py"), "w") as file:
            file.write(PEER)
        code, _ = self.run_script("gpu-speed", "--program", EMULATED, "--peer-script", self.path("peer.py"), "--output", self.path("out/steps.md"), "--nets",
                                  "lenet", "--batches", "2", "--precisions", "bf16", "--steps", "1", "--seconds", "200", "--variants",
                                  "channels_last,graph,compile")
        self.assertEqual(code, 0, self.said)
        steps = self.read("out/steps.md")
        number = r"[0-9]+\.[0-9]{3}"
        self.assertRegex(steps, rf"\| lenet \| 2 \| bf16 \| {number} \| [0-9]+ \| {number} \| [0-9]+% \| 12.500 \| channels_last \| [0-9.]+x \|")
        self.assertIn("- PyTorch graph, lenet, batch 2, bf16: printed no figures: no figures today", steps)
        self.assertIn("- PyTorch compile, lenet, batch 2, bf16: ms is no number", steps)

    def test_convolutions_that_cudnn_does_not_do_are_named(self):
        algorithms = '"algorithms": {"conv1 conv.forward 2": "fused:0", "conv2 conv.backward_data 2": "im2col"}'
        self.program("bench", f"""echo '{{"ms_per_step": 1.0, "recorded": true, {algorithms}}}'""")
        code, _ = self.run_script("gpu-speed", "--program", self.path("bench"), "--peer-script", "none", "--output", self.path("out/steps.md"), "--nets", "lenet",
                                  "--batches", "2", "--precisions", "bf16")
        self.assertEqual(code, 0, self.said)
        self.assertIn("- convnet, lenet, batch 2, bf16: cuDNN has no engine, so matrix products compute conv2 conv.backward_data 2\n", self.read("out/steps.md"))

    def test_steps_beside_what_is_compiled(self):
        self.program("bin/convnet", CONVNET.replace("bench*)", 'bench*) echo "ours $*" >>"$PIDS"; '))
        with open(self.path("scripts/torch_bench.py"), "w") as file:
            file.write(COMPILED)
        code, _ = self.run_script("gpu-check", "compile", self.path("out/a.md"), "--seconds", "100")
        self.assertEqual(code, 0, self.said)
        self.assertRegex(self.read("out/a.md"), r"\| steps beside torch.compile's \| passed \|")
        rows = re.findall(r"\| ([a-z0-9-]+) \| (1024|128) \| (bf16|tf32) \| 2.000 .*\| 6.000 \| compile \| 3.00x \|", self.read("out/a-compiled.md"))
        self.assertEqual(len(rows), 20)
        self.assertEqual(rows[:2], [("alexnet-owt", "1024", "bf16"), ("wrn-16-4", "1024", "bf16")])
        self.assertEqual([batch for _, batch, _ in rows], ["1024"] * 10 + ["128"] * 10)
        runs = self.read("pids").splitlines()[1:]  # the first looks for a GPU
        self.assertEqual([run.split()[0] for run in runs], ["ours", "theirs"] * 20)
        for run in runs:
            self.assertIn("--steps 401", run)

    def test_dependent_launches(self):
        self.program("bin/convnet", 'ms=2.0; [ "$CONVNET_DEPENDENT_LAUNCH" != on ] || ms=1.6; echo "{\\"ms_per_step\\": $ms, \\"recorded\\": true}"')
        self.program("bin/agreement_test", '[ "$CONVNET_DEPENDENT_LAUNCH $CONVNET_TUNING" = "on off" ] && echo all passed')
        code, _ = self.run_script("gpu-check", "launches", self.path("out/a.md"), "--seconds", "60")
        self.assertEqual(code, 0, self.said)
        report = self.read("out/a.md")
        self.assertIn("| steps of four nets in three precisions, with dependent launches | passed |", report)
        self.assertEqual(report.count("128 images, bf16, dependent launches on | passed |"), 6)
        self.assertEqual(report.count("2.000 ms without, 1.600 ms with dependent launches: 1.25x |"), 3)

    def test_training_by_the_recipe(self):
        def trains(error):
            return CONVNET.replace("trained", f"echo \"$*\" >\"$PIDS\"; printf 'Averages----\\nlogprob:  0.6 0.2\\nAverages----\\nlogprob:  0.3 {error}\\n'")
        for error, code, result in (("0.0479", 0, "passed"), ("0.0521", 1, "FAILED")):
            self.program("bin/convnet", trains(error))
            self.assertEqual(self.run_script("gpu-check", "train", self.path("out/a.md"))[0], code, self.said)
            report = self.read("out/a.md")
            self.assertRegex(report, r"\| wrn-16-4-fashion by its recipe, 26 epochs in bf16 \| passed \| [0-9]+ s \|")
            self.assertIn(f"| its test error at most 5.2 % | {result} |  | {100 * float(error):.2f} % after the last epoch |", report)
        # It is the command of the README.
        with open(os.path.join(SCRIPTS, "../README.md")) as file:
            recipe = re.search(r"--train-range 1-6 --test-range 7 \\\n( *--pixel-std.*?) --save-file", file.read(), re.S)[1]
        for option, value in re.findall(r"(--\S+) (\S+)", recipe):
            self.assertIn(f"{option} {value} ", self.read("pids"))

    def test_training_that_fails(self):
        self.program("bin/convnet", CONVNET.replace("*) echo trained", "*) echo 'no memory' >&2; exit 4"))
        self.assertEqual(self.run_script("gpu-check", "train", self.path("out/a.md"))[0], 1, self.said)
        report = self.read("out/a.md")
        self.assertIn("| wrn-16-4-fashion by its recipe, 26 epochs in bf16 | FAILED (4) |", report)
        self.assertNotIn("its test error", report)

    def test_what_takes_long_to_compile_keeps_its_limit(self):
        with open(self.path("peer.py"), "w") as file:
            file.write("import sys, time\nif 'alexnet-owt' in sys.argv: time.sleep(100)\nprint('{\"ms\": 6.0}')\n")
        code, seconds = self.run_script("gpu-speed", "--program", self.path("bin/convnet"), "--peer-script", self.path("peer.py"), "--output",
                                        self.path("out/steps.md"), "--variants", "compile", "--batches", "1024", "--precisions", "bf16", "--nets",
                                        "alexnet-owt,lenet", "--limit", "3")
        self.assertEqual(code, 0, self.said)
        self.assertLess(seconds, 20)
        steps = self.read("out/steps.md")
        self.assertIn("- PyTorch compile, alexnet-owt, batch 1024, bf16: took too long", steps)
        self.assertRegex(steps, r"\| lenet \| 1024 \| bf16 \| 2.000 .*\| 6.000 \| compile \| 3.00x \|")

    def test_steps_that_hang(self):
        self.program("hangs", HANGS)
        code, seconds = self.run_script("gpu-speed", "--program", self.path("hangs"), "--output", self.path("out/steps.md"), "--seconds", "15")
        self.assertEqual(code, 1, self.said)
        self.assertLess(seconds, 17)
        steps = self.read("out/steps.md")
        self.assertIn("| resnet50-imagenet | 256 | bf16 | failed |", steps)
        self.assertIn("resnet50-imagenet, batch 256, bf16: took too long", steps)
        self.assertIn("- wrn-16-4, batch 256, bf16 and what comes after: not run", steps)
        self.check_no_process_is_left()


if __name__ == "__main__":
    EMULATED, CUDA_TEST = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main(verbosity=2)
