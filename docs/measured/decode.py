"""Measure decode attention on an H200 by batch and context, beside published times.

`python docs/measured/decode.py > docs/measured/decode.txt` runs on a GPU for about ten minutes and
leaves its run file in `gpuperf-runs`; `decode.py FILE` prints the table of such a file. It measures
8 heads of keys of 128 elements and 32 heads of queries in bf16, one new token, cold L2. Each cell
is the time of a call in µs, and the bytes of keys and values over it in TB/s. `published` has times
in print, whose kernel and number of query heads are unknown (8 to 64 of them take the same time
there). `decode.py cpu` tries the script on a CPU.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import gpuperf
from gpuperf.model.record import Record

GIVEN = sys.argv[1:]
CPU = GIVEN == ["cpu"]
BATCHES = (1, 2) if CPU else (1, 2, 4, 8, 16, 32, 64)
CONTEXTS = (64, 100) if CPU else (1024, 4096, 8192, 16384, 32768, 65536)
COLUMNS = (
    ("sdpa", "contiguous"),
    ("flex", "contiguous"),
    ("triton_split", "contiguous"),
    ("sdpa", "paged"),
    ("triton_split", "paged"),
)
# µs by (batch, context)
PUBLISHED = {
    (1, 1024): 13.6,
    (1, 4096): 16.6,
    (1, 8192): 18.9,
    (1, 16384): 33.5,
    (1, 32768): 49.9,
    (1, 65536): 84.3,
    (8, 4096): 49.4,
    (8, 32768): 273.0,
    (8, 65536): 498.0,
    (64, 1024): 80.7,
    (64, 4096): 271.0,
    (64, 8192): 491.0,
}

Key = tuple[int, int, str, str]


def measure(folder: Path) -> list[Record]:
    """Return the records of one `gpuperf compare` over all sizes, whose run is in *folder*."""
    sizes = {"--batch": BATCHES, "--kv": CONTEXTS}
    command = [sys.executable, "-m", "gpuperf", "compare", "decode", "--layout", "both"]
    command += [word for name, of in sizes.items() for word in (name, ",".join(map(str, of)))]
    command += ["--impl", "sdpa,flex,triton_split", "--splits", "0", "--counters", "off"]
    command += ["--processes", "1", "--budget", "0.05" if CPU else "0.5", "--out", str(folder)]
    command += ["--device", "cpu", "--head-dim", "16"] if CPU else []
    print("$ gpuperf", *command[3:], flush=True)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-2000:])
    (path,) = folder.glob("*.jsonl*")
    return list(gpuperf.read_run(path).records)


def key_of(record: Record) -> Key:
    """Return batch, context, implementation and layout of *record*."""
    point = record.case.point
    batch, context = int(point["batch"]), int(point["kv"])
    return batch, context, record.case.implementation, str(point["layout"])


def cell(record: Record | None) -> str:
    """Return the µs of *record* and the TB/s of its cache; its status if it has no time."""
    if record is None or record.samples is None:
        return "–" if record is None else record.status
    axes = {name: int(n) for name, n in record.case.point.items() if isinstance(n, int)}
    size = 4 if record.case.point["dtype"] == "fp32" else 2
    tokens = axes["batch"] * axes["kv"] * axes["heads"] // axes["gqa"]
    spent = record.samples.median_s
    return f"{spent * 1e6:.1f} ({2 * tokens * axes['head_dim'] * size / spent / 1e12:.2f})"


def main() -> None:
    """Measure, and print one line for each batch and context."""
    folder = Path(tempfile.mkdtemp()) if CPU else Path("gpuperf-runs/decode")
    stored = [] if CPU else [gpuperf.read_run(Path(name)) for name in GIVEN]
    records = [r for run in stored for r in run.records] if stored else measure(folder)
    by_key = {key_of(record): record for record in records}
    titles = (f"{name} {layout}" for name, layout in COLUMNS)
    print(f"{'batch':>5} {'tokens':>6} {'published':>9}", *(f"{t:>23}" for t in titles))
    for batch in BATCHES:
        for context in CONTEXTS:
            if not any((batch, context, *column) in by_key for column in COLUMNS):
                continue
            known = PUBLISHED.get((batch, context), "–")
            cells = (cell(by_key.get((batch, context, *column))) for column in COLUMNS)
            print(f"{batch:5} {context:6} {known:>9}", *(f"{c:>23}" for c in cells))


if __name__ == "__main__":
    main()
