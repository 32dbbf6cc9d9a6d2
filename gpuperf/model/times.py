"""List the times of a record: what each is called, what it is, and what gives it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

# A timer that is registered beside those of `timers.py` adds its name in a run of timing-check.
TimeName = Literal[
    "window",
    "busy",
    "span",
    "wall",
    "hot",
    "settled",
    "first_second",
    "step",
    "traced",
    "host",
    "blocked",
    "events",
    "graph",
    "busy_hot",
    "do_bench",
    "nvbench",
]

TIMES: Mapping[TimeName, str] = {
    # of a case
    "window": "first start to last end without a profiler, less the timer's floor; the timer's own",
    "busy": "the kernels of a call without the gaps; CUPTI, of a profile the trace",
    "span": "first start to last end of the kernels, with gaps that the profiler widens; CUPTI",
    "wall": "a call among calls back to back, launches included; the host's clock",
    "hot": "the primary time with the cache as the call left it; the timer of the primary time",
    "settled": "a call under a load whose clock and time are steady; windows of a sustained load",
    "first_second": "a call in the first second of a sustained load; windows of a sustained load",
    # of a region, and of an operator, of a profile
    "step": "a step without a profiler; the device's clock, on a CPU the host's",
    "traced": "a step under the profiler; the trace",
    "host": "an operator's calls of a step on the host; the trace",
    # of a run of timing-check
    "blocked": "the primary time; the timer `blocked`",
    "events": "a plain event pair; the timer `events`",
    "graph": "a call of a CUDA graph of many; the timer `graph`",
    "busy_hot": "the kernels of a call on a hot cache; CUPTI",
    "do_bench": "a call; Triton's do_bench",
    "nvbench": "a call; NVBench",
}
