"""Make synthetic runs of thousands of points, and their pages.

A large run has records like those of a real sweep on an H200: 20 times by CUPTI with the SM clock
of each, their spans, 20 times with a hot cache, and 7 wall times, rounded as the worker does.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

from measured import run_file

from gpuperf.model.codec import encode
from gpuperf.model.cost import Bytes, Cost, Flops
from gpuperf.model.record import Record, Run
from gpuperf.model.rounding import rounded
from gpuperf.model.samples import Samples
from gpuperf.run.store import read_run
from gpuperf.verb.page import html_of

SERIES, SAMPLES, WALLS = 5, 20, 7
TICK_S = 32e-9


@cache
def large_run(points: int) -> Run:
    """Return *points* sizes of a matmul in five implementations, each with 67 samples."""
    run, draw = read_run(run_file("h200-waves-plane")), random.Random(1)
    likes = [record for record in run.records if set(record.times) >= {"busy", "hot", "wall"}]
    records = tuple(_record(likes[i % len(likes)], 128 + i, i, draw) for i in range(points))
    header = replace(run.header, study="", plan=tuple(record.case for record in records))
    return Run(header, records)


def _record(like: Record, n: int, i: int, draw: random.Random) -> Record:
    flops = Flops(2 * n**3, "matmul", "bf16", "fp32")
    time_s = flops.count / (4e14 * (0.3 + 0.7 * draw.random())) + 3e-6
    clock_hz = draw.gauss(1.85e9, 4e7)
    busy = Samples(
        _times(draw, time_s), tuple(draw.gauss(clock_hz, 4e6) for _ in range(SAMPLES)), TICK_S
    )
    wall_s = time_s + draw.uniform(10e-6, 20e-6)
    walls = tuple(wall_s * draw.gauss(1, 0.02) for _ in range(WALLS))
    seconds = replace(like.kernels[0], time_s=busy.median_s)
    made = replace(
        like,
        case=replace(
            like.case,
            implementation=f"way_{i % SERIES}",
            point={"m": n, "n": n, "k": n, "dtype": "bf16"},
        ),
        cost=Cost((flops,), (Bytes(4 * n * n, 2 * n * n),)),
        times={
            "busy": busy,
            "span": Samples(busy.values_s, (), TICK_S),
            "hot": Samples(_times(draw, time_s * 0.98), (), TICK_S),
            "wall": Samples(walls, calls_per_window=like.times["wall"].calls_per_window),
        },
        kernels=(seconds, *like.kernels[1:]),
        build_s=draw.uniform(2e-4, 3e-4),
        first_call_s=draw.uniform(1e-4, 2e-4),
    )
    return rounded(made)


def _times(draw: random.Random, time_s: float) -> tuple[float, ...]:
    """Return times about *time_s* in ticks, which CUPTI reports to a nanosecond or two."""
    ticks = (round(time_s * draw.gauss(1, 0.005) / TICK_S) for _ in range(SAMPLES))
    return tuple((tick * 32 + draw.choice((-1, 0, 0, 0))) * 1e-9 for tick in ticks)


@cache
def large_text(points: int) -> bytes:
    """Return the text of the run file of `large_run`."""
    run = large_run(points)
    return b"\n".join([encode(run.header), *map(encode, run.records)]) + b"\n"


@cache
def large_page(points: int) -> str:
    """Return the page of `large_run`."""
    return html_of(large_run(points), large_text(points))
