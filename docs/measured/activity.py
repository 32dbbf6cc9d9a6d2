"""Compare gpuperf's own recorder of kernels with that of torch.profiler (Kineto).

`python docs/measured/activity.py > docs/measured/activity.txt` runs on a GPU for under a minute.
One process records thirteen calls by gpuperf (`GPUPERF_RECORDER=cupti`), then by Kineto, and then
tries gpuperf again; another begins with Kineto; a third is under torch.profiler when gpuperf
records. Each line has the records of one call under both recorders: in how many the names, the
launches, the streams and the bytes of copies differ, and by how much the
sum of the durations differs (two runs of the same call). `witness` is one large matmul beside CUDA
events. The last lines are the wall time of `gpuperf roofline` under each recorder. `activity.py
--json` prints what the processes saw, and `activity.py cpu` tries the script on a CPU.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[[], Any]
Row = dict[str, Any]
FIELDS = ("name", "stream", "device", "bytes", "grid", "block", "registers", "shared")
CPU, JSON = "cpu" in sys.argv, "--json" in sys.argv
DEVICE = "cpu" if CPU else "cuda"
MATMUL = 256 if CPU else 8192


def synchronize() -> None:
    """Wait for the device."""
    import torch

    if not CPU:
        torch.cuda.synchronize()


def calls() -> dict[str, Run]:
    """Return the calls by name; each has run once."""
    import torch

    def bf16(n: int) -> Any:
        return torch.randn(n, n, device=DEVICE).bfloat16()

    x, small, rows = torch.ones(1 << 20, device=DEVICE), torch.ones(64, device=DEVICE), bf16(2048)
    a, b = bf16(MATMUL), bf16(MATMUL)
    pageable, pinned = torch.ones(1 << 20), torch.ones(1 << 20)
    pinned = pinned if CPU else pinned.pin_memory()
    found: dict[str, Run] = {
        "add": lambda: x + x,
        "matmul 512": lambda: rows[:512, :512] @ rows[:512, :512],
        "matmul large": lambda: torch.mm(a, b),
        "softmax": lambda: torch.softmax(rows, -1),
        "sort": lambda: torch.sort(x),
        "memset": lambda: x.zero_(),
        "copy from pageable": lambda: x.copy_(pageable),
        "copy from pinned": lambda: x.copy_(pinned, non_blocking=True),
        "copy to pinned": lambda: pinned.copy_(x, non_blocking=True),
        "copy on the device": lambda: x[: 1 << 19].copy_(x[1 << 19 :]),
        "10,000 launches": lambda: [small.add_(1.0) for _ in range(10 if CPU else 10_000)],
    }
    if not CPU:
        found |= {"side stream": side_stream(x), "graph": graph(x)}
    for call in found.values():
        call()
    synchronize()
    return found


def waiting(run: Run) -> Run:
    """Return a call of *run* that waits for the device, as a recorder needs it."""
    return lambda: (run(), synchronize())


def side_stream(x: Any) -> Run:
    """Return a call that runs a kernel on the current stream and one on another."""
    import torch

    other = torch.cuda.Stream()

    def call() -> None:
        y = x * 2
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            y.add_(1.0)
        torch.cuda.current_stream().wait_stream(other)

    return call


def graph(x: Any) -> Run:
    """Return the replay of a CUDA graph of kernels, a copy and a memset."""
    import torch

    y = torch.empty_like(x)
    (x.sin() + x.cos()).sum()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        y.copy_(x)
        y.zero_()
        y.add_(x.sin() + x.cos())
    return captured.replay


def by_gpuperf(run: Run) -> list[Row]:
    """Return the records of *run* by gpuperf's own session. Raises: CannotRecord."""
    from gpuperf.measure.recording.session import open_recorder

    recording = open_recorder().record(run)
    assert recording.lost == 0, recording.lost
    return [
        {
            **{name: getattr(r, name) for name in ("name", "stream", "device")},
            "bytes": r.bytes,
            "grid": list(r.sizes[0]) if r.sizes else [],
            "block": list(r.sizes[1]) if r.sizes else [],
            "registers": r.registers,
            "shared": r.shared_bytes,
            "us": (r.end_ns - r.start_ns) / 1e3,
        }
        for r in recording.records
    ]


def by_kineto(run: Run) -> list[Row]:
    """Return the records of *run* by torch.profiler, from the trace that it writes."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU if CPU else ProfilerActivity.CUDA]
    with profile(activities=activities, acc_events=True) as profiler:
        run()
    with tempfile.TemporaryDirectory() as folder:
        profiler.export_chrome_trace(f"{folder}/trace.json")
        events = json.loads(Path(folder, "trace.json").read_text())["traceEvents"]
    kinds = ("kernel", "gpu_memcpy", "gpu_memset")
    rows = [event for event in events if event.get("cat") in kinds]
    return [
        {
            "name": row["name"],
            "stream": row["args"].get("stream"),
            "device": row["args"].get("device"),
            "bytes": row["args"].get("bytes", 0),
            "grid": row["args"].get("grid", []),
            "block": row["args"].get("block", []),
            "registers": row["args"].get("registers per thread", 0),
            "shared": row["args"].get("shared memory", 0),
            "us": row["dur"],
        }
        for row in sorted(rows, key=lambda row: float(row["ts"]))
    ]


def by_work(run: Run) -> dict[str, Any]:
    """Return the kernels' names and durations as gpuperf's timers see them, and the doubt."""
    from gpuperf.measure.recording.work import record_work

    if CPU:
        return {"names": [], "us": [], "doubt": ""}
    work = record_work(run)
    us = [1e6 * (a.end_s - a.start_s) for a in work.activities]
    return {"names": [a.name for a in work.activities], "us": us, "doubt": work.doubt}


def events_us(run: Run) -> float:
    """Return the median microseconds of *run* between two CUDA events."""
    import torch

    if CPU:
        return 0.0
    times = []
    for _ in range(9):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(1_000_000)  # the launches are behind it, so that none is in the time
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(1e3 * start.elapsed_time(end))
    return statistics.median(times)


def timed(function: Callable[[Run], Any], run: Run) -> tuple[float, Any]:
    """Return how long *function* takes with *run*, and its result or its refusal."""
    from gpuperf.measure.recording.session import CannotRecord

    began = time.perf_counter()
    try:
        result = function(run)
    except CannotRecord as refusal:
        result = str(refusal)
    return time.perf_counter() - began, result


def first(recorders: list[str]) -> dict[str, Any]:
    """Record all calls by each of *recorders* in turn, in this process."""
    from gpuperf.measure.recording import work

    functions = {"gpuperf": by_gpuperf, "kineto": by_kineto, "work": by_work}
    bare = {} if CPU else {"gpuperf": work.record_by_cupti, "kineto": work.record_by_kineto}
    every = calls()
    seen: dict[str, Any] = {"rounds": [], "witness_us": events_us(every["matmul large"])}
    for name in recorders:
        start_s, _ = timed(bare.get(name, functions[name]), waiting(every["add"]))
        chosen = every if name != "work" else {"matmul large": every["matmul large"]}
        results = {call: timed(functions[name], waiting(run)) for call, run in chosen.items()}
        rows = {call: result for call, (_, result) in results.items()}
        later_s = statistics.median(seconds for seconds, _ in results.values())
        seen["rounds"].append({"by": name, "first_s": start_s, "later_s": later_s, "calls": rows})
    return seen


def under_profiler() -> dict[str, Any]:
    """Record a call while the program itself is under torch.profiler."""
    from torch.profiler import ProfilerActivity, profile

    run = waiting(calls()["add"])
    activities = [ProfilerActivity.CPU if CPU else ProfilerActivity.CUDA]
    with profile(activities=activities, acc_events=True) as profiler:
        inner = by_work(run)
    after = by_work(run)
    outer = [e.name for e in profiler.events() if "CUDA" in str(e.device_type)]
    return {"inner": inner, "outer": outer, "after": after}


def in_a_process(*words: str) -> Any:
    """Return what this script prints as *words* in a new process, whose recorder is CUPTI."""
    environment = {**os.environ, "GPUPERF_RECORDER": "cupti"}
    command = [sys.executable, __file__, *words, *(["cpu"] if CPU else [])]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def differing(ours: list[Row], theirs: list[Row]) -> dict[str, int]:
    """Return in how many records each field differs; `records` where their numbers do."""
    if len(ours) != len(theirs):
        return {"records": len(ours) - len(theirs)}
    pairs = list(zip(ours, theirs, strict=True))
    counts = {field: sum(a[field] != b[field] for a, b in pairs) for field in FIELDS}
    return {field: count for field, count in counts.items() if count}


def agreement(ours: Any, theirs: Any) -> str:
    """Return a line on two recordings of a call."""
    if isinstance(ours, str) or isinstance(theirs, str):
        return f"not recorded: {ours if isinstance(ours, str) else theirs}"
    sums = [sum(row["us"] for row in rows) for rows in (ours, theirs)]
    apart = f"{(sums[0] / sums[1] - 1) * 100:+.2f} %" if sums[1] else "no time"
    return (
        f"{len(ours):6} records, {sums[0]:10.2f} and {sums[1]:10.2f} µs ({apart}), "
        f"{differing(ours, theirs) or 'all fields agree'}"
    )


def roofline_s(recorder: str) -> float:
    """Return the seconds of `gpuperf roofline` of one case."""
    words = ["roofline", "matmul", "--sizes", "256" if CPU else "1024", "--impl", "torch"]
    words += ["--device", "cpu", "--budget", "0.1"] if CPU else ["--budget", "0.5"]
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        command = [sys.executable, "-m", "gpuperf", *words, "--out", folder]
        environment = {**os.environ, "GPUPERF_RECORDER": recorder}
        subprocess.run(command, capture_output=True, env=environment, check=True)
        return time.perf_counter() - began


def seen() -> dict[str, Any]:
    """Return what three processes saw."""
    return {
        "own": in_a_process("--first", "gpuperf,kineto,gpuperf,work,kineto"),
        "kineto": in_a_process("--first", "kineto,work"),
        "profiled": in_a_process("--under-profiler"),
    }


def show(found: dict[str, Any]) -> None:
    """Print the agreement of the recorders, and how long each takes."""
    ours, theirs, again, work, last = found["own"]["rounds"]
    print(f"first session: gpuperf {ours['first_s']:.3f} s", end=", ")
    print(f"Kineto {found['kineto']['rounds'][0]['first_s']:.3f} s in a process of its own")
    print(f"later sessions: gpuperf {ours['later_s']:.4f} s, Kineto {theirs['later_s']:.4f} s\n")
    print("gpuperf, then Kineto, in one process:")
    for name, rows in ours["calls"].items():
        print(f"  {name:20} {agreement(rows, theirs['calls'][name])}")
    print("\nKineto, and Kineto again after it:")
    for name, rows in last["calls"].items():
        print(f"  {name:20} {agreement(rows, theirs['calls'][name])}")
    print(f"\ngpuperf after Kineto: {again['calls']['add']}")
    print(f"witness: {found['own']['witness_us']:.1f} µs between events;", end=" ")
    print(f"gpuperf {sum_us(ours)}, Kineto {sum_us(theirs)} µs; as the timers see it after Kineto:")
    for process, one in (("own", work), ("kineto", found["kineto"]["rounds"][1])):
        large = one["calls"]["matmul large"]
        print(f"  {process}: {sum(large['us']):.1f} µs, doubt {large['doubt']!r}")
    profiled = found["profiled"]
    print(f"\nunder torch.profiler: gpuperf sees {profiled['inner']},")
    print(f"  the program's profiler {len(profiled['outer'])} records: {profiled['outer']},")
    print(f"  gpuperf afterwards {profiled['after']}\n")
    for name in ("kineto", "cupti"):
        print(
            f"gpuperf roofline of one case, recorder {name}: {roofline_s(name):.2f} s", flush=True
        )


def sum_us(round_: dict[str, Any]) -> str:
    """Return the microseconds of the large matmul in *round_*, or the refusal."""
    rows = round_["calls"]["matmul large"]
    return rows if isinstance(rows, str) else f"{sum(row['us'] for row in rows):.1f}"


def main() -> None:
    """Do as the arguments say."""
    if "--first" in sys.argv:
        recorders = sys.argv[sys.argv.index("--first") + 1].split(",")
        print(json.dumps(first(recorders)))
    elif "--under-profiler" in sys.argv:
        print(json.dumps(under_profiler()))
    elif JSON:
        print(json.dumps(seen()))
    else:
        show(seen())


if __name__ == "__main__":
    main()
