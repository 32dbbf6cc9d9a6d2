"""Time how long the first number takes: by the command line, and by `gpuperf.measure`.

    python docs/measured/first_number.py > docs/measured/first_number.txt

runs for 2 minutes on a GPU that nothing else uses. Ten times in turns it runs
`gpuperf roofline copy --impl torch --n 64M --dtype fp32`, and a program that imports torch and
creates a context; a line has the seconds of both and their difference. Then ten fresh processes
import torch, create a context, import gpuperf and measure twice. A line has the seconds of the
first `gpuperf.measure`, and by how much the second exceeds its budget of one second, which it
spends whole because its precision is out of reach. `first_number.py cpu 2` tries two of each on a
CPU.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

CPU = sys.argv[1:2] == ["cpu"]
TIMES = int(sys.argv[2]) if len(sys.argv) > 2 else 10
SIZE = "1M" if CPU else "64M"
CASE = ("roofline", "copy", "--impl", "torch", "--n", SIZE, "--dtype", "fp32")
DEVICE = "cpu" if CPU else "cuda"
BARE = f"import torch; torch.zeros(1, device={DEVICE!r})"
MEASURES = f"""
import json, time, torch
x = torch.zeros(1 << 20, device={DEVICE!r})
x + 1
began = time.perf_counter()
import gpuperf
gpuperf.measure(lambda: x + 1, budget_s=0.2)
first = time.perf_counter()
gpuperf.measure(lambda: x * 2, budget_s=1.0, precision=1e-9)
print(json.dumps([first - began, time.perf_counter() - first - 1.0]))
"""


def seconds(words: Sequence[str]) -> float:
    """Return the seconds of `python words`, which must succeed."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    return time.perf_counter() - began


def main() -> None:
    """Print the seconds of each, and the medians."""
    print("one case s  torch s  difference s")
    more = []
    with tempfile.TemporaryDirectory() as folder:
        command = ("-m", "gpuperf", *CASE, "--out", folder)
        seconds(command)  # its files are read from disk once
        for _ in range(TIMES):
            whole, bare = seconds(command), seconds(("-c", BARE))
            more.append(whole - bare)
            print(f"{whole:10.2f}  {bare:7.2f}  {more[-1]:12.2f}", flush=True)
    print(f"median of the differences: {statistics.median(more):.2f} s")
    print("first gpuperf.measure s  second beyond its budget s")
    firsts, seconds_more = [], []
    for _ in range(TIMES):
        printed = subprocess.run(
            [sys.executable, "-c", MEASURES], check=True, capture_output=True, text=True
        ).stdout
        first, second = json.loads(printed)
        firsts.append(first)
        seconds_more.append(second)
        print(f"{first:23.2f}  {second:26.2f}", flush=True)
    medians = f"{statistics.median(firsts):.2f} and {statistics.median(seconds_more):.2f} s"
    print(f"medians: {medians}")


if __name__ == "__main__":
    main()
