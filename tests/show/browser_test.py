#!/usr/bin/env python3
"""Opens the page of `convnet show --html` in headless Chromium: a screenshot shows something, the console is silent, the
script runs and says the values under the pointer, and hostile names stay text.

Exit code 77 (ctest: skipped) where there is no Chromium; `scripts/setup dev` installs it.
"""

import html
import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

# A name that would run, were it not escaped.
COST = "</svg><script>document.title='broken'</script>"
DEFINITION = f"""[data]
type=data
dataIdx=0
[labels]
type=data
dataIdx=1
[conv1]
type=conv
inputs=data
channels=3
filters=8
filterSize=3
neuron=relu
[fc10]
type=fc
inputs=conv1
outputs=10
[probs]
type=softmax
inputs=fc10
[{COST}]
type=cost.logreg
inputs=labels,probs
"""
PARAMETERS = f"""[conv1]
epsW=0.01
epsB=0.01
momW=0.9
momB=0.9
[fc10]
epsW=0.01
epsB=0.01
momW=0.9
momB=0.9
[{COST}]
coeff=1
"""
# Points at the middle of the first chart, as a user would.
POINTING = """<script>
addEventListener('load', () => {
  const svg = document.querySelector('svg[data-chart]'), box = svg.getBoundingClientRect();
  svg.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + box.width / 2, clientY: box.top + 100}));
});
</script></body>"""
# Puts into the title how wide the page is, and how large the smallest text of its drawings.
MEASURING = """<script>
addEventListener('load', () => {
  const shown = [...document.querySelectorAll('svg text')].filter(text => text.getBoundingClientRect().height > 0);
  const size = text => parseFloat(text.getAttribute('font-size')) * text.getScreenCTM().d;
  document.title = JSON.stringify({
    'width': document.documentElement.scrollWidth,
    'smallest text': Math.min(...shown.map(size)),
    'unlabelled': document.querySelectorAll('svg:not([role=img][aria-label]), img:not([alt])').length,
  });
});
</script></body>"""


def browse(chromium, folder, *args):
    """Standard output and the console's messages."""
    run = subprocess.run(
        [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
         f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=2000", *args],
        capture_output=True, text=True, timeout=110, check=True)
    return run.stdout, [line for line in run.stderr.splitlines() if "CONSOLE" in line]


def png_rows(path):
    """Size, and the bytes of the rows as they are stored: all alike only if the picture has one colour."""
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n"), "no PNG"
    width, height = struct.unpack(">II", data[16:24])
    at, packed = 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IDAT":
            packed += data[at + 8:at + 8 + length]
        at += length + 12
    return width, height, zlib.decompress(packed)


def main():
    program = sys.argv[1]
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        print("SKIPPED: there is no Chromium; `scripts/setup dev` installs it")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "net.cfg").write_text(DEFINITION)
        (folder / "params.cfg").write_text(PARAMETERS)
        page = folder / "page.html"
        subprocess.run(
            [program, "--layer-def", folder / "net.cfg", "--layer-params", folder / "params.cfg", "--data-provider",
             "dummy-3x8x8-10", "--train-range", "1-2", "--test-range", "3", "--save-file", folder / "run", "--epochs", "3",
             "--test-freq", "1", "--threads", "1"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([program, "show", folder / "run", "--html", page], check=True, stdout=subprocess.DEVNULL)

        shot = folder / "shot.png"
        _, console = browse(chromium, folder, f"--screenshot={shot}", "--window-size=1000,1400", page.as_uri())
        assert not console, console
        width, height, rows = png_rows(shot)
        assert (width, height) == (1000, 1400), (width, height)
        colours = len(set(rows))
        assert colours > 50, f"the screenshot holds only {colours} different bytes"

        dom, console = browse(chromium, folder, "--dump-dom", page.as_uri())
        assert not console, console
        assert 'class="scripted"' in dom, "the page's script did not run to its end"
        title = re.search("<title>(.*?)</title>", dom).group(1)
        assert title.endswith("3.2.safetensors"), title

        # On a phone nothing is wider than the page, though parts of it can be moved within theirs; text is not tiny.
        measured = folder / "measured.html"
        measured.write_text(page.read_text().replace("</body>", MEASURING))
        dom, console = browse(chromium, folder, "--dump-dom", "--window-size=500,900", measured.as_uri())
        assert not console, console
        sizes = json.loads(html.unescape(re.search("<title>(.*?)</title>", dom).group(1)))
        assert sizes["width"] <= 500, sizes
        assert sizes["smallest text"] >= 9, sizes
        assert sizes["unlabelled"] == 0, sizes

        pointed = folder / "pointed.html"
        pointed.write_text(page.read_text().replace("</body>", POINTING))
        dom, console = browse(chromium, folder, "--dump-dom", pointed.as_uri())
        assert not console, console
        tip = re.search('<div id="tip"[^>]*>(.*?)</div>', dom, re.DOTALL).group(1)
        # The middle of three epochs is a little beyond the end of batch 1 of epoch 2.
        expected = r"training \d\.\d{3}  \(epoch 2, batch 1\)\ntest \d\.\d{3}  \(epoch 2, batch 1\)"
        assert re.fullmatch(expected, tip), tip
    print(f"screenshot {width}x{height}, {colours} different bytes; the tip says {tip!r}")


main()
