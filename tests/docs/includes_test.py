"""Checks that each folder includes only folders below it (docs/design.md), and that each has a README."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
# Each folder and the folders that its files may include, besides itself.
GROUND = ["convnet/base", "convnet/config"]
MAY_INCLUDE = {
    "convnet/base": [],
    "convnet/config": ["convnet/base"],
    "kernels": ["convnet/base"],
    "providers": ["convnet/base"],
    "layers": GROUND + ["kernels"],
    "convnet/graph": GROUND + ["kernels", "layers", "providers"],
    "convnet/plan": GROUND + ["kernels", "layers", "providers", "convnet/graph"],
    "convnet/place": GROUND + ["kernels", "layers", "providers", "convnet/graph", "convnet/plan"],
    "convnet/runtime": GROUND + ["kernels", "convnet/graph", "convnet/plan"],
    "convnet/checkpoint": GROUND + ["providers"],
    "convnet/data": GROUND + ["providers"],
}
MAY_INCLUDE["convnet/onnx_import"] = GROUND + ["kernels", "layers", "providers", "convnet/graph", "convnet/checkpoint"]
MAY_INCLUDE["convnet/net"] = [f for f in MAY_INCLUDE if f != "convnet/data"]
MAY_INCLUDE["convnet/onnx"] = GROUND + ["kernels", "layers", "providers", "convnet/graph", "convnet/checkpoint", "convnet/net"]
NOT_BELOW_SHOW = {"convnet/data", "convnet/onnx", "convnet/onnx_import"}
MAY_INCLUDE["convnet/show"] = [f for f in MAY_INCLUDE if f not in NOT_BELOW_SHOW]
MAY_INCLUDE["convnet/train"] = [f for f in MAY_INCLUDE if f not in NOT_BELOW_SHOW]
MAY_INCLUDE["convnet/cli"] = list(MAY_INCLUDE)


def folder_of(path: str) -> str:
    """Returns the folder of the table that holds a file."""
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] == "convnet" and len(parts) > 2 else parts[0]


wrong = []
files = 0
for top in ["convnet", "kernels", "layers", "providers"]:
    for file in sorted((root / top).rglob("*")):
        if file.suffix not in {".h", ".cpp", ".cu", ".cuh"}:
            continue
        files += 1
        name = str(file.relative_to(root))
        if name == "convnet/main.cpp":
            continue
        for included in re.findall(r'#include "([^"]+)"', file.read_text()):
            if folder_of(included) != folder_of(name) and folder_of(included) not in MAY_INCLUDE[folder_of(name)]:
                wrong.append(f"{name} includes {included}: {folder_of(name)} may not include {folder_of(included)}")
for folder in [*MAY_INCLUDE, "kernels/cpu", "kernels/cuda", "tests", "scripts", "bench", "configs"]:
    if not (root / folder / "README.md").exists():
        wrong.append(f"{folder} has no README.md")
if files < 200:
    wrong.append(f"only {files} source files were found below {root}")
print("\n".join(wrong) or f"{files} files include only what lies below them")
sys.exit(1 if wrong else 0)
