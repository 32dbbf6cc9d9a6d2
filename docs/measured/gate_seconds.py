"""Time gates of an unchanged and of a slower commit, as a user runs them.

    python docs/measured/gate_seconds.py --times 3 > docs/measured/gate_seconds.txt

makes a repository of this checkout's kernels with three commits: the second changes a comment, the
third launches the Triton kernel of sin² + cos² twice. It gates the second against the first on the
suite of five cases below and on `ci`, and then the third on the five. A line has the seconds of the
whole command, the pairs that screened and those that confirmed, and the outcome. Nothing else may
use the device. `--device cpu --suites five` tries it on a CPU, where all cases that need a GPU are
left out.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("gpuperf", "kernels", "configs", "pyproject.toml", "README.md", "LICENSE")
CHANGED = Path("kernels/ops/sincos.py")
LAUNCH = "            sincos_kernel[grid](x, b, y, point.n, BLOCK=block, num_warps=warps)\n"
FIVE = """
schema = 1
[conditions]
precision = 0.02
budget_s = 0.15
counters = "off"
[[case]]
op = "sincos"
sizes = "16M"
dtype = "fp32"
impl = "triton"
[[case]]
op = "softmax"
m = "8192"
n = "4096"
impl = "fused"
[[case]]
op = "rmsnorm"
m = "8192"
n = "4096"
impl = "triton"
[[case]]
op = "matmul"
sizes = "2048"
impl = "torch"
[[case]]
op = "attention"
batch = "2"
seq = "1024"
impl = "triton_flash"
"""


def git(folder: Path, *words: str) -> None:
    """Run git in *folder*, as an author of its own."""
    who = ("-c", "user.name=gate", "-c", "user.email=gate@localhost")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def make_repository(folder: Path) -> None:
    """Make the three commits in *folder*, tagged `base`, `same` and `slower`."""
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, folder / name)
    (folder / "five.toml").write_text(FIVE, encoding="utf-8")
    git(folder, "init", "-q")
    file = folder / CHANGED
    text = file.read_text(encoding="utf-8")
    if LAUNCH not in text:
        raise SystemExit(f"{CHANGED} has changed: name its launch in gate_seconds.py")
    texts = {
        "base": text,
        "same": f"{text}# a comment\n",
        "slower": text.replace(LAUNCH, 2 * LAUNCH),
    }
    for tag, content in texts.items():
        file.write_text(content, encoding="utf-8")
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", tag)
        git(folder, "tag", tag)


def gated(folder: Path, head: str, suite: str, device: str) -> tuple[float, str]:
    """Return the seconds of one gate of *head*, and what became of it."""
    words = ("gate", "ab", "--base", "base", "--head", head, "--suite", suite, "--device", device)
    began = time.monotonic()
    more = ("--overrule", "the same code is gated again")
    command = [sys.executable, "-m", "gpuperf", *words, *more, "--out", str(folder / "out")]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    took_s = time.monotonic() - began
    verdicts = sorted(
        (folder / "out").glob("*/verdict.json"), key=lambda path: path.stat().st_mtime
    )
    if not verdicts:
        return took_s, f"no verdict: {ended.stderr.strip().splitlines()[-1:]}"
    verdict = json.loads(verdicts[-1].read_text(encoding="utf-8"))
    shutil.rmtree(folder / "out")
    screen = verdict["rule"]["screen_pairs"]
    red = [case["case"] for case in verdict["cases"] if case["judged"]["verdict"] == "REGRESSED"]
    found = f": {', '.join(red)}" if red else ""
    pairs = f"{screen} pairs of all, {verdict['pairs'] - screen} of suspicious cases"
    return took_s, f"{pairs}: {verdict['outcome']}{found}"


def main() -> None:
    """Gate, and print a line for each gate and the median seconds of each kind."""
    parser = argparse.ArgumentParser(description="Time gates of unchanged and of slower code.")
    parser.add_argument("--times", type=int, default=3, help="gates of each kind")
    parser.add_argument("--suites", default="five,ci", help="suites of the unchanged commit")
    parser.add_argument("--device", default="auto", help="auto, cuda:0 or cpu")
    given = parser.parse_args()
    kinds = [("same", suite) for suite in given.suites.split(",")] + [("slower", "five")]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_repository(folder)
        for head, suite in kinds:
            took = []
            for _ in range(given.times):
                file = f"{suite}.toml" if suite == "five" else suite
                seconds, what = gated(folder, head, file, given.device)
                took.append(seconds)
                print(f"{head:6}  {suite:4}  {seconds:6.1f} s  {what}", flush=True)
            print(
                f"{head:6}  {suite:4}  {statistics.median(took):6.1f} s in the median", flush=True
            )


if __name__ == "__main__":
    main()
