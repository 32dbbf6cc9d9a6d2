"""Make a synthetic run of thousands of points, and its page."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

from synthetic import h200_sweep

from gpuperf.model.codec import encode
from gpuperf.model.cost import Bytes, Cost, Flops
from gpuperf.model.record import Run
from gpuperf.model.samples import Samples
from gpuperf.verb.page import html_of

SERIES, SAMPLES = 5, 8


@cache
def large_run(points: int) -> Run:
    """Return *points* sizes of a matmul in five implementations, each time with eight samples."""
    run, draw = h200_sweep(), random.Random(1).random
    records = []
    for i in range(points):
        n, like = 128 + i, run.records[i % len(run.records)]
        flops = Flops(2 * n**3, "matmul", "bf16", "fp32")
        time_s = flops.count / (4e14 * (0.3 + 0.7 * draw())) + 3e-6
        values = tuple(round(time_s * (1 + 0.01 * draw()), 10) for _ in range(SAMPLES))
        point = {"m": n, "n": n, "k": n, "dtype": "bf16"}
        records.append(
            replace(
                like,
                case=replace(like.case, implementation=f"way_{i % SERIES}", point=point),
                cost=Cost((flops,), (Bytes(4 * n * n, 2 * n * n),)),
                times={like.primary: Samples(values, (), 32e-9)},
                caveats=(),
            )
        )
    header = replace(run.header, plan=tuple(record.case for record in records))
    return Run(header, tuple(records))


@cache
def large_page(points: int) -> str:
    """Return the page of `large_run`."""
    run = large_run(points)
    lines = [encode(run.header), *map(encode, run.records)]
    return html_of(run, b"\n".join(lines) + b"\n")
