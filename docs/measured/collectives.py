"""Compare gpuperf's times of collectives with torch's own, and with published figures.

    gpuperf run --suite collectives --gpus 2 --out gpuperf-runs
    python docs/measured/collectives.py gpuperf-runs/*-run-collectives-*.jsonl

For each case of NCCL in the run, two processes make the same call by torch alone:

- `graph`: events around a CUDA graph of many calls, over their number, on the faster rank.
- `kernel`: the least duration over the ranks of the call's kernel, by torch.profiler, up to 64 KiB;
  the median of ten calls. A rank that comes early waits in its kernel, the last one does not.
- `in graph`: the same of the kernels of a CUDA graph of ten calls, and `gap`: the time from the end
  of one to the start of the next, with the copy of an all-reduce out of place.
- `loop`: events around a loop of calls, as torch's users and nccl-tests time them.

`published` are figures of nccl-tests for two H200 on NVLink (fp16, out of place, NCCL 2.29.2).
"""

from __future__ import annotations

import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gpuperf.measure.gang import INTERFACE, QUIET
from gpuperf.model.record import Record
from gpuperf.run.store import read_run

SIZES = (2**10, 2**16, 2**20, 2**24, 2**28, 2**30)
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
PROFILED, LOOPED, WARM = 10, 20, 5
RECORDED = ("kernel", "in graph", "gap")
SMALL = 2**16  # bytes up to which kernels are recorded
GRAPH_S, MOST_CALLS = 2e-3, 200  # a graph is so long that the skew of the ranks is small against it
LONGEST_S = 240.0  # seconds of all ranks: one that waits for another would never end
# µs of nccl-tests; all-reduce of 64 MiB on two H100: 245 µs.
PUBLISHED = {
    ("all_reduce", 2**10): 6.0,
    ("all_reduce", 2**16): 7.4,
    ("all_reduce", 2**20): 14.3,
    ("all_reduce", 2**24): 76.2,
    ("all_reduce", 2**28): 886.0,
    ("all_gather", 2**10): 5.1,
    ("all_gather", 2**20): 11.3,
    ("all_gather", 2**24): 54.1,
    ("reduce_scatter", 2**10): 5.2,
    ("reduce_scatter", 2**20): 10.4,
    ("reduce_scatter", 2**24): 50.6,
    ("all_to_all", 2**10): 6.4,
}
Call = Callable[[], Any]
# op, bytes, dtype, in place (yes, no, or empty), root
Asked = tuple[str, int, str, str, int]


def call_of(asked: Asked, rank: int, world: int) -> Call:
    """Return the call that *asked* names, by torch alone."""
    op, size, dtype, place, root = asked
    kind = DTYPES[dtype]
    x = torch.ones(size // kind.itemsize, dtype=kind, device="cuda")
    y, n = torch.empty_like(x), len(x) // world
    part = slice(rank * n, (rank + 1) * n)
    if op == "all_reduce" and place == "no":
        return lambda: dist.all_reduce(y.copy_(x))
    if op == "all_gather":
        given = x[part] if place == "yes" else y[part]
        return lambda: dist.all_gather_into_tensor(x, given)
    if op == "reduce_scatter":
        taken = x[part] if place == "yes" else y[part]
        return lambda: dist.reduce_scatter_tensor(taken, x)
    calls: dict[str, Call] = {
        "all_reduce": lambda: dist.all_reduce(x),
        "broadcast": lambda: dist.broadcast(x, root),
        "reduce": lambda: dist.reduce(x, root),
        "all_to_all": lambda: dist.all_to_all_single(y, x),
        "sendrecv": lambda: shift(x, y, rank, world),
    }
    return calls[op]


def warm(asked: Asked, rank: int, world: int) -> Call:
    """Return the call that *asked* names, after some calls."""
    call = call_of(asked, rank, world)
    for _ in range(WARM):
        call()
    return call


def shift(x: torch.Tensor, y: torch.Tensor, rank: int, world: int) -> None:
    """Send x to the next rank, and receive y from the one before."""
    send = dist.P2POp(dist.isend, x, (rank + 1) % world)
    receive = dist.P2POp(dist.irecv, y, (rank - 1) % world)
    for work in dist.batch_isend_irecv([send, receive]):
        work.wait()


def between_events(run: Call) -> float:
    """Return the seconds of *run* between two events, after a barrier of the hosts."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    dist.all_reduce(torch.zeros(1))
    start.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e-3


def repeated(call: Call, count: int) -> Call:
    """Return *count* calls of *call* in a row."""
    return lambda: [call() for _ in range(count)]


def graph_of(call: Call, count: int) -> torch.cuda.CUDAGraph:
    """Return a CUDA graph of *count* calls."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        repeated(call, count)()
    return graph


def graph_s(call: Call, call_s: float) -> float:
    """Return the seconds of a call in a CUDA graph of many, the median of five replays.

    All ranks agree on how many: if one had a call more, it would wait for the others for ever.
    """
    slowest_s = torch.tensor(call_s, dtype=torch.float64)
    dist.all_reduce(slowest_s, dist.ReduceOp.MAX)
    count = max(4, min(MOST_CALLS, int(GRAPH_S / slowest_s.item())))
    graph = graph_of(call, count)
    graph.replay()
    return statistics.median(between_events(graph.replay) / count for _ in range(5))


def profiled(calls: Sequence[Call]) -> list[dict[str, list[float]]]:
    """Return the durations of NCCL's kernels in calls of each of *calls*, and in a graph of them,
    with the gaps between those; empty if some are lost.

    A session takes seconds, so that one has all of them, each behind a kernel that waits.
    """
    from torch.profiler import ProfilerActivity, profile

    graphs = [graph_of(call, PROFILED) for call in calls]
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        for call, graph in zip(calls, graphs, strict=True):
            for runs in ([call] * PROFILED, [graph.replay]):
                torch.cuda._sleep(1)
                for run in runs:
                    dist.all_reduce(torch.zeros(1))
                    run()
                    torch.cuda.synchronize()
    kernels: list[list[tuple[float, float]]] = []
    for event in sorted(profiler.events(), key=lambda event: event.time_range.start):
        if "spin_kernel" in event.name:
            kernels.append([])
        elif event.name.startswith("nccl") and "Kernel" in event.name:
            kernels[-1].append((event.time_range.start * 1e-6, event.time_range.end * 1e-6))
    assert len(kernels) == 2 * len(calls), "a kernel that waits is lost"
    whole = [own if len(own) == PROFILED else [] for own in kernels]
    return [
        {
            "kernel": [end - start for start, end in alone],
            "in graph": [end - start for start, end in together],
            "gap": [b[0] - a[1] for a, b in itertools.pairwise(together)],
        }
        for alone, together in zip(whole[::2], whole[1::2], strict=True)
    ]


def witness(folder: Path, rank: int, world: int) -> None:
    """Time the cases of *folder* as one rank, and write what was measured."""
    os.environ.update({**QUIET, INTERFACE: "lo"})
    torch.cuda.set_device(rank)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl",
        store=dist.FileStore(str(folder / "meeting"), world),
        rank=rank,
        world_size=world,
        device_id=torch.device("cuda", rank),
    )
    cases, found = json.loads((folder / "cases.json").read_text()), []
    small = [tuple(asked) for asked in cases if asked[1] <= SMALL]
    kernels = dict(zip(small, profiled([warm(asked, rank, world) for asked in small]), strict=True))
    for asked in cases:
        call = warm(asked, rank, world)
        loop_s = min(between_events(repeated(call, LOOPED)) / LOOPED for _ in range(3))
        own = kernels.get(tuple(asked), dict.fromkeys(RECORDED, ()))
        found.append({"loop": loop_s, "graph": graph_s(call, loop_s), **own})
        del call
        torch.cuda.empty_cache()
    (folder / f"found-{rank}.json").write_text(json.dumps(found))
    dist.all_reduce(torch.zeros(1))
    os._exit(0)


def witnessed(cases: Sequence[Asked], world: int) -> list[dict[str, float]]:
    """Return the seconds of each of *cases* by torch: those of the rank that waits least."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cases.json").write_text(json.dumps(cases))
        words = [sys.executable, __file__, name, str(world)]
        ranks = [subprocess.Popen([*words, str(rank)]) for rank in range(world)]
        try:
            failed = any([rank.wait(LONGEST_S) for rank in ranks])
        except subprocess.TimeoutExpired:
            failed = True
        finally:
            for rank in ranks:
                rank.kill()
        if failed:
            raise SystemExit(f"a rank of torch failed, or did not end within {LONGEST_S:g} s")
        found = [json.loads((folder / f"found-{r}.json").read_text()) for r in range(world)]
    return [_least(of_ranks) for of_ranks in zip(*found, strict=True)]


def _least(ranks: Sequence[dict[str, Any]]) -> dict[str, float]:
    least = {name: min(rank[name] for rank in ranks) for name in ("loop", "graph")}
    for name in RECORDED:
        recorded = [rank[name] for rank in ranks]  # of none, if a rank has lost some
        times = [min(each) for each in zip(*recorded, strict=True)] if all(recorded) else []
        least[name] = statistics.median(times) if times else float("nan")
    return least


def chosen(records: Sequence[Record]) -> Iterator[tuple[Asked, Record]]:
    """Yield the cases of NCCL of few sizes, with their records."""
    for record in records:
        point, op = record.case.point, record.case.op
        size = int(point.get("bytes", 0))
        if record.case.implementation == "nccl" and size in SIZES and "wire" in record.times:
            place, root = str(point.get("in_place", "")), int(point.get("root", 0))
            yield (op, size, str(point["dtype"]), place, root), record


def table(rows: Sequence[tuple[Asked, Record, dict[str, float]]]) -> Iterator[str]:
    """Yield the lines of the table, in µs."""
    yield (
        f"{'':24}{'bytes':>11}{'gpuperf':>10}{'graph':>10}{'ratio':>7}{'kernel':>8}"
        f"{'in graph':>10}{'gap':>6}{'eager':>10}{'loop':>10}{'busbw':>7}{'published':>10}"
    )
    for (op, size, _, place, _), record, found in rows:
        own = record.times["wire"].median_s
        link = record.cost.link_bytes if record.cost else 0
        name = f"{op}{' out of place' if place == 'no' else ''}"
        known = PUBLISHED.get((op, size))
        kernel, among, gap = (
            "" if math.isnan(found[part]) else f"{found[part] * 1e6:.2f}" for part in RECORDED
        )
        yield (
            f"{name:24}{size:>11}{own * 1e6:>10.2f}{found['graph'] * 1e6:>10.2f}"
            f"{own / found['graph']:>7.3f}{kernel:>8}{among:>10}{gap:>6}"
            f"{record.times['eager'].median_s * 1e6:>10.1f}{found['loop'] * 1e6:>10.1f}"
            f"{link / own / 1e9:>7.1f}{'' if known is None else f'{known:.1f}':>10}"
        )


def _copies(asked: Asked) -> bool:
    """Return whether a call has another kernel, which copies the array."""
    return asked[0] == "all_reduce" and asked[3] == "no"


def main() -> None:
    """Read the run, time its cases by torch, and print the table."""
    if len(sys.argv) == 4:
        witness(Path(sys.argv[1]), int(sys.argv[3]), int(sys.argv[2]))
    run = read_run(Path(sys.argv[1]))
    cases = list(chosen(run.records))
    began = time.perf_counter()
    if not cases:
        raise SystemExit("the run has no case of NCCL at the sizes that the witness times")
    found = witnessed([asked for asked, _ in cases], run.header.world)
    rows = [(*case, times) for case, times in zip(cases, found, strict=True)]
    print("\n".join(table(rows)))
    large = [(r, t) for asked, r, t in rows if asked[1] >= 2**24]
    small = [(r, t) for asked, r, t in rows if asked[1] <= SMALL and not _copies(asked)]
    off = max((abs(r.times["wire"].median_s / t["graph"] - 1) for r, t in large), default=0.0)
    late = [abs(r.times["wire"].median_s - t["in graph"] - t["gap"]) for r, t in small]
    late = [each for each in late if not math.isnan(each)]
    print(f"{len(large)} cases of 16 MiB or more are within {off:.1%} of torch's graph")
    print(
        f"{len(late)} cases of 64 KiB or less are within {max(late, default=0.0) * 1e6:.2f} µs of "
        f"a kernel and a gap of torch's graph, {statistics.median(late or [0.0]) * 1e6:.2f} µs in "
        "the median"
    )
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
