"""Installs the build into a temporary prefix and tries what is there: install_test.py BUILD_DIR SOURCE_DIR BUILD_TYPE"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BUILD, SOURCE, BUILD_TYPE = sys.argv[1:]
NET = ["--layer-def", "configs/lenet.cfg", "--layer-params", "configs/lenet-params.cfg", "--data-provider", "dummy-1x28x28-10"]


def run(*command, cwd=None):
    done = subprocess.run([str(part) for part in command], cwd=cwd, text=True, capture_output=True)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done


def complete(script, *words):
    """Returns what bash completes the last of the words to; an option with "=" is three words, as in the shell."""
    quoted = " ".join(f"'{word}'" for word in words)
    text = f"source '{script}'; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _convnet; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    return set(run("bash", "-c", text, cwd=SOURCE).stdout.split())


def check_program(prefix):
    program = prefix / "bin/convnet"
    shared = prefix / "share/convnet"
    for name in ["configs/lenet.cfg", "bench/models/nvlink-8gpu.json"]:
        assert (shared / name).exists(), name
    # The scripts explain themselves, and leave nothing beside them.
    for name, argument in [("make-images-from-mnist", "FOLDER"), ("make-cifar-from-mnist", "FOLDER"), ("weights-from-cuda-convnet", "CHECKPOINT")]:
        script = subprocess.run([shared / "scripts" / name], text=True, capture_output=True)
        assert f"scripts/{name} {argument}" in script.stdout + script.stderr, script
    assert len(list((shared / "scripts").iterdir())) == 4, list((shared / "scripts").iterdir())
    assert (prefix / "share/doc/convnet/docs/layers.md").exists()
    plan = run(program, "plan", *NET, "--mini", "8", "--model", "bench/models/nvlink-8gpu.json", cwd=shared)
    assert "conv1" in plan.stdout
    by_name = run(program, "plan", "--layer-def", "lenet", "--layer-params", "lenet", *NET[4:], cwd=prefix)
    assert by_name.stdout.splitlines()[:5] == run(program, "plan", *NET, cwd=shared).stdout.splitlines()[:5]
    assert f"--layer-def lenet is {shared}/configs/lenet.cfg" in by_name.stderr, by_name.stderr
    # Debug information and sanitizers name source files.
    if BUILD_TYPE == "Release":
        for folder in {BUILD, SOURCE}:
            assert folder.encode() not in program.read_bytes(), f"the program holds the path {folder}"


def check_man_page(prefix):
    page = prefix / "share/man/man1/convnet.1"
    if shutil.which("groff") is None:
        print("skipped: the man page, without groff")
        return
    # A terminal of a C locale shows ASCII alone. The options keep bold and italic letters from being overstruck.
    for device in ["utf8", "ascii"]:
        done = run("groff", "-man", "-ww", f"-T{device}", "-P-c", "-P-b", "-P-u", page)
        assert not done.stderr, done.stderr
    text = done.stdout
    for word in ["--layer-def", "--conserve-mem", "convnet make-data", "EXIT STATUS"]:
        assert word in text, word


def check_bash(prefix):
    script = prefix / "share/bash-completion/completions/convnet"
    run("bash", "-n", script)
    assert complete(script, "convnet", "pl") == {"plan", "place"}
    assert complete(script, "convnet", "plan", "--layer-") == {"--layer-def", "--layer-params", "--layer-path"}
    assert complete(script, "convnet", "--test-on") == {"--test-one", "--test-only"}
    assert complete(script, "convnet", "plan", "--device", "") == {"auto", "cpu", "cuda"}
    assert complete(script, "convnet", "bench", "--device", "=", "c") == {"cpu", "cuda"}
    assert complete(script, "convnet", "train", "--shuffle", "") == {"0", "1"}
    assert complete(script, "convnet", "train", "--shuffle", "--min") == {"--mini"}
    assert complete(script, "convnet", "plan", "--layer-def", "configs/len") == {"configs/lenet.cfg", "configs/lenet-params.cfg"}
    assert complete(script, "convnet", "train", "--data-path", "conf") == {"configs"}
    assert complete(script, "convnet", "train", "--data-path", "READ") == set()
    assert complete(script, "convnet", "predict", "READ") == {"README.md"}
    assert "cost.logreg" in complete(script, "convnet", "layers", "cost")
    assert complete(script, "convnet", "completion", "") >= {"bash", "zsh", "fish"}


def check_other_shells(prefix):
    for shell, script in [("zsh", "zsh/vendor-completions/_convnet"), ("fish", "fish/vendor_completions.d/convnet.fish")]:
        path = prefix / "share" / script
        assert path.stat().st_size > 1000
        if shutil.which(shell):
            run(shell, "-n", path)
        else:
            print(f"skipped: the syntax of {path.name}, without {shell}")


def check_maintainer():
    """The package has a maintainer with an address that mail can have."""
    config = (pathlib.Path(BUILD) / "CPackConfig.cmake").read_text()
    contact = re.search(r'^set\(CPACK_PACKAGE_CONTACT "(.*)"\)$', config, re.M).group(1)
    assert re.fullmatch(r"[^<>]+ <[^<>@\s]+@[^<>@\s]+>", contact), contact
    assert not contact.endswith(".invalid>"), contact


def check_uninstall(prefix):
    """Uninstalling removes all that was installed, nothing else, and is refused when it is repeated."""
    installed = [path for path in prefix.rglob("*") if not path.is_dir()]
    others = [prefix / "bin/other", prefix / "share/convnet/configs/my-net.cfg", prefix / "share/doc/other/README.md"]
    for path in others:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("not ours")
    done = run("cmake", "--build", BUILD, "--target", "uninstall")
    assert f"uninstalled {len(installed)} files" in done.stdout + done.stderr, done.stdout + done.stderr
    left = [path for path in prefix.rglob("*") if not path.is_dir()]
    assert sorted(left) == sorted(others), left
    assert not (prefix / "share/doc/convnet").exists()
    assert not (prefix / "share/convnet/bench").exists()
    again = subprocess.run(["cmake", "--build", BUILD, "--target", "uninstall"], text=True, capture_output=True)
    assert again.returncode != 0 and "nothing to uninstall" in again.stdout + again.stderr, again.stdout + again.stderr


# The build's own list of installed files is kept for the one who installed it.
manifest = pathlib.Path(BUILD) / "install_manifest.txt"
kept = manifest.read_bytes() if manifest.exists() else None
try:
    check_maintainer()
    with tempfile.TemporaryDirectory() as folder:
        prefix = pathlib.Path(folder) / "prefix"
        run("cmake", "--install", BUILD, "--prefix", prefix)
        check_program(prefix)
        check_man_page(prefix)
        check_bash(prefix)
        check_other_shells(prefix)
        check_uninstall(prefix)
finally:
    if kept is None:
        manifest.unlink(missing_ok=True)
    else:
        manifest.write_bytes(kept)
