"""Measure all that several GPUs of one host share: links, collectives, sharded training, a fleet.

    python docs/measured/many_gpus.py many_gpus --minutes 10

writes into the folder `many_gpus`, in this order, as far as the minutes go:

- `links`: every ordered pair of GPUs, and the links to the host.
- `fsdp`, `tensor`: profiles of `docs/examples/block_sharded.py` on all GPUs, beside
  `gpuperf theory collectives`.
- `fleet`: a unit of the suite `screen` on each GPU, as if each were a host, while another program
  works on the last one. The judgement must name that one.
- `collectives-N`: the seven collectives from 1 KiB to 1 GiB with N = 8, 4, 2 ranks, as far as there
  are so many GPUs; all-reduce in finer steps with the most, so that NCCL's steps of algorithm and
  protocol show.

Each command and its seconds are in `log.txt`. `--only sharded` measures that part alone. `--device
cpu` tries it by gloo with `--ranks` processes at tiny sizes, without links.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "block_sharded.py"
OPS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "all_to_all",
    "sendrecv",
)
PARTS = ("links", "sharded", "fleet", "collectives")
TINY = "--layers 2 --width 64 --heads 8 --kv-heads 8 --hidden 128 --length 32 --steps 30"
BURN = """
import time, torch
x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
end = time.monotonic() + float({seconds})
while time.monotonic() < end:
    for _ in range(20):
        x @ x
    torch.cuda.synchronize()
"""


class Sitting:
    """Runs commands one after the other, until the time is spent, and keeps what they print."""

    def __init__(self, folder: Path, minutes: float) -> None:
        self.folder, self.ends = folder, time.monotonic() + 60 * minutes
        folder.mkdir(parents=True, exist_ok=True)

    def run(self, name: str, *words: str, **variables: str) -> int:
        """Run `python words` within the time that is left; return its exit code (124: no time)."""
        left_s = self.ends - time.monotonic()
        if left_s < 10:
            return self.note(name, 0.0, 124, words)
        began = time.monotonic()
        with (self.folder / f"{name}.txt").open("w", encoding="utf-8") as output:
            try:
                code = subprocess.run(
                    [sys.executable, *words],
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **variables},
                    timeout=left_s,
                ).returncode
            except subprocess.TimeoutExpired:
                code = 124
        return self.note(name, time.monotonic() - began, code, words)

    def note(self, name: str, took_s: float, code: int, words: tuple[str, ...]) -> int:
        """Write a line to the log, and print it."""
        line = f"{name:16} {took_s:6.1f} s, exit {code}: {' '.join(words)}"
        print(line, flush=True)
        with (self.folder / "log.txt").open("a", encoding="utf-8") as log:
            log.write(line + "\n")
        return code

    def gpuperf(self, name: str, *words: str, **variables: str) -> int:
        """Run a verb of gpuperf."""
        return self.run(name, "-m", "gpuperf", *words, **variables)


def suite(sizes: str, finer: str = "") -> str:
    """Return a suite of all collectives with *sizes* in bytes, of all-reduce with *finer* ones."""
    head = 'schema = 1\n[conditions]\nprecision = 0.01\nbudget_s = 0.3\ncounters = "off"\n'
    case = '[[case]]\nop = "{}"\nbytes = "{}"\n'
    cases = [case.format(op, finer if finer and op == "all_reduce" else sizes) for op in OPS]
    return head + "".join(cases)


def collectives(sitting: Sitting, ranks: int, device: str, last: bool) -> None:
    """Measure the collectives of so many *ranks*, more finely if they are the *last*."""
    cpu = device == "cpu"
    file = sitting.folder / f"collectives-{ranks}.toml"
    text = suite("1k,64k", "") if cpu else suite("1k:1G:x32", "1k:1G:x4" if last else "")
    implementation = "gloo" if cpu else "nccl"
    text = text.replace("\nbytes", f'\nimpl = "{implementation}"\nbytes')
    file.write_text(text, encoding="utf-8")
    out = str(sitting.folder / f"collectives-{ranks}")
    words = ("run", "--suite", str(file), "--gpus", str(ranks), "--out", out)
    sitting.gpuperf(file.stem, *words, *(("--device", "cpu") if cpu else ()))


def sharded(sitting: Sitting, ranks: int, device: str) -> None:
    """Profile both ways to shard blocks, and print what theory says of their collectives."""
    launch = ("-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "-m", "gpuperf")
    variables = {"OMP_NUM_THREADS": "1"} if device == "cpu" else {}
    sizes = TINY.split() if device == "cpu" else []
    for way in ("fsdp", "tensor"):
        out = str(sitting.folder / way)
        words = ("profile", "--steps", "6", "--warmup", "3", "--budget", "15", "--out", out)
        options = ("--parallel", way, *sizes)
        sitting.run(way, *launch, *words, str(EXAMPLE), *options, **variables)
    # A block of Llama 3 8B: its bf16 weights, and the residual stream of 4,096 tokens.
    weights, stream = "436224000", "33554432"
    words = ("theory", "collectives", "--size", f"{weights},{stream}", "--ranks", str(ranks))
    sitting.gpuperf("theory", *words)


def fleet(sitting: Sitting, ranks: int, device: str) -> None:
    """Measure a unit on each GPU, another program on the last of them, and judge them."""
    folder, units = sitting.folder / "fleet", []
    folder.mkdir(exist_ok=True)
    cpu = device == "cpu"
    burning = None
    if not cpu:
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": str(ranks - 1)}
        burning = subprocess.Popen(
            [sys.executable, "-c", BURN.format(seconds=600)], env=environment
        )
        time.sleep(15)
    began = time.monotonic()
    suite_words = ("--suite", "screen") if not cpu else ("--suite", "quick", "--threads", "1")
    for index in range(ranks):
        words = ("fleet", "unit", *suite_words, "--processes", "5" if not cpu else "2")
        shard = ("--host", f"gpu{index}", "--shard", str(folder / f"gpu{index}.jsonl"))
        where = ("--devices", "cpu" if cpu else "0", "--fleet", "many-gpus", "--out", str(folder))
        variables = {} if cpu else {"CUDA_VISIBLE_DEVICES": str(index)}
        with (folder / f"gpu{index}.txt").open("w", encoding="utf-8") as output:
            units.append(
                subprocess.Popen(
                    [sys.executable, "-m", "gpuperf", *words, *shard, *where],
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **variables},
                )
            )
    try:
        codes = [unit.wait(max(10.0, sitting.ends - time.monotonic())) for unit in units]
    except subprocess.TimeoutExpired:
        codes = [124]
    finally:
        for process in (*units, *((burning,) if burning else ())):
            process.kill()
    sitting.note("units", time.monotonic() - began, max(codes), tuple(map(str, codes)))
    shards = [str(path) for path in sorted(folder.glob("gpu*.jsonl"))]
    chart = str(folder / "fleet.png")
    words = ("fleet", "judge", *shards, "--one-machine", "--chart", chart)
    hosts = ",".join(f"gpu{index}" for index in range(ranks))
    sitting.gpuperf("fleet-judge", *words, "--hosts", hosts)


def main() -> None:
    """Measure what the time allows."""
    parser = argparse.ArgumentParser(description="Measure what several GPUs of one host share.")
    parser.add_argument("folder", type=Path, help="folder for run files and what commands print")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--ranks", type=int, default=4, help="processes, with --device cpu")
    parser.add_argument("--only", choices=PARTS, help="one part alone")
    given = parser.parse_args()
    ranks = given.ranks
    if given.device == "cuda":
        import torch

        ranks = torch.cuda.device_count()
        if ranks < 2:
            raise SystemExit("many_gpus.py needs several GPUs; --device cpu tries it by gloo.")
    elif given.only == "links":
        raise SystemExit("links are of GPUs: leave out --device cpu.")
    sitting = Sitting(given.folder.absolute(), given.minutes)
    parts = (given.only,) if given.only else PARTS
    if "links" in parts and given.device == "cuda":
        sitting.gpuperf(
            "links", "links", "--budget", "0.05", "--out", str(sitting.folder / "links")
        )
    if "sharded" in parts:
        sharded(sitting, ranks, given.device)
    if "fleet" in parts:
        fleet(sitting, ranks, given.device)
    for count in (count for count in (8, 4, 2) if count <= ranks and "collectives" in parts):
        collectives(sitting, count, given.device, last=count == ranks)


if __name__ == "__main__":
    main()
