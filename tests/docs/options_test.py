#!/usr/bin/env python3
"""Checks that the options and keys that pages and configs name exist, and that the recipes of configs are accepted.

    options_test.py CONVNET

In a page, code that begins with "--" names options of convnet, and code like "key=value" names a key of a layer. In a
table of coming-from.md, the first column has the words of the other trainer. Each parameter file of configs is planned with
its net, where an unknown key is an error. A comment there that begins with "#   --" is the options of a recipe: a run of no
epochs tries them on images of the net's size.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
COMMANDS = ["train", "plan", "place", "bench", "show", "predict", "export", "import", "make-data", "nets"]
# Names of other programs that pages use, and placeholders.
OTHERS = {
    "README.md": {"--peer-python"},
    "cfg.md": {"key=", "repeat=", "if="},
    "coming-from.md": {"use_buffers=", "count_include_pad="},
    "decisions.md": {"--option"},
    "distributed.md": {"--map-by", "--signal"},
    "gpu-status.md": {"--seconds"},
    "README.md": {"--peer-python"},
    "show.md": {"--show-"},
}


def output_of(program, *arguments, cwd=None):
    done = subprocess.run([program, *map(str, arguments)], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"convnet {' '.join(map(str, arguments))}\nended with exit code {done.returncode}:\n{done.stdout}")
    return done.stdout


def known_options(program):
    return {option for command in COMMANDS for option in re.findall(r"^  (--[a-z-]+)", output_of(program, command, "--help"), re.MULTILINE)}


def known_keys():
    text = (ROOT / "docs/layers.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \| (?:definition|parameters|either) \|", text, re.MULTILINE)
    schedules = text[text.index("## Schedules"):]
    schedules = schedules[:schedules.index("\n## ")]
    return {key for row in rows for key in row.split(", ")} | set(re.findall(r"(\w+)=", text[:text.index("## ")] + schedules))


def prose_of(page):
    """The text of a page without its blocks of code, and without the words of other trainers."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    if page.name == "coming-from.md":
        text = re.sub(r"^\|[^|]*\|", "|", text, flags=re.MULTILINE)
    return text


def unknown_names(page, options, keys):
    for code in CODE.findall(prose_of(page)):
        names = set(re.findall(r"(?<!\S)--[a-z-]+", code)) - options if code.startswith("--") else set()
        key = re.match(r"([a-z]\w*)=", code)
        if key and key[1] not in keys:
            names.add(key[0])
        yield from names - OTHERS.get(page.name, set())


def check_configs(program):
    """Plans each parameter file of configs with its net; returns how many there are."""
    files = sorted((ROOT / "configs").glob("*-params.cfg"))
    for path in files:
        net = path.name.removesuffix("-params.cfg").removesuffix("-10min")
        small = {"lenet": "1x28x28-10", "wrn-16-4-fashion": "1x28x28-10"}
        shape = small.get(net, "3x32x32-10" if net.startswith(("cifar", "wrn")) else "3x224x224-1000")
        devices = int((re.search(r"-(\d)gpu", net) or [0, 1])[1])
        output_of(program, "plan", "--strict", "--layer-def", path.with_name(f"{net}.cfg"), "--layer-params", path, "--data-provider",
                  f"dummy-{shape}", "--device", "cpu", "--mini", 8, "--gpu", ",".join(map(str, range(devices))))
    return len(files)


def recipes():
    """The files of configs with the options that they recommend."""
    for path in sorted((ROOT / "configs").glob("*-params.cfg")):
        for options in re.findall(r"^#   (--.*)$", path.read_text(encoding="utf-8"), re.MULTILINE):
            yield path, options.split()


def data_of(options, folder):
    """A provider with images of the size that the options ask for."""
    if "--random-resized-crop" in options:
        if not folder.exists():
            subprocess.run([ROOT / "scripts/make-images-from-mnist", folder, "24"], check=True, stdout=subprocess.DEVNULL)
        return ["--data-provider", "image", "--data-path", folder]
    side = options[options.index("--inner-size") + 1]
    return ["--data-provider", f"dummy-1x{side}x{side}-10", "--train-range", 1, "--test-range", 2]


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    options, keys = known_options(program), known_keys()
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "configs/README.md"]
    wrong = [f"{page.relative_to(ROOT)}: {name}" for page in pages for name in unknown_names(page, options, keys)]
    if wrong:
        sys.exit("these names are neither options nor keys:\n" + "\n".join(wrong))
    planned = check_configs(program)
    if not pathlib.Path("/usr/share/datasets/fashion-mnist").exists():
        print("Fashion-MNIST is not there (package dataset-fashion-mnist)")
        sys.exit(77)
    count = 0
    with tempfile.TemporaryDirectory() as temporary:
        for path, recipe in recipes():
            recipe[recipe.index("--epochs") + 1] = "0"
            net = path.name.removesuffix("-params.cfg")
            output_of(program, "--layer-def", path.with_name(f"{net}.cfg"), "--layer-params", path, *recipe,
                      *data_of(recipe, pathlib.Path(temporary) / "images"), "--threads", 1, "--save-file",
                      pathlib.Path(temporary) / f"run{count}")
            count += 1
    print(f"{len(pages)} pages, {planned} parameter files, {count} recipes")
    assert count >= 3


if __name__ == "__main__":
    main()
