"""List the times of a record: the name of each, its definition, and the timer that measures it."""

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
    "wire",
    "eager",
]

TIMES: Mapping[TimeName, str] = {
    # a case
    "window": "from the first start to the last end without a profiler, less the floor (the timer)",
    "busy": "the kernels of a call, without the gaps between them (CUPTI; in a profile the trace)",
    "span": "from the first start to the last end, with gaps that the profiler widens (CUPTI)",
    "wall": "one of many calls back to back, launches included (the host's clock)",
    "hot": "the primary time, with the cache as the call left it (the timer of the primary time)",
    "settled": "a call under a sustained load whose clock and time are steady (windows)",
    "first_second": "a call in the first second of a sustained load (windows)",
    # a region and an operator of a profile
    "step": "a step without a profiler (the device's clock; on a CPU the host's)",
    "traced": "a step under the profiler (the trace)",
    "host": "the calls of an operator in a step, on the host (the trace)",
    # a run of timing-check
    "blocked": "the primary time (the timer `blocked`)",
    "events": "the time between two events (the timer `events`)",
    "graph": "one call in a CUDA graph of many (the timer `graph`)",
    "busy_hot": "the kernels of a call, with a hot cache (CUPTI)",
    "do_bench": "one call (Triton's do_bench)",
    "nvbench": "one call (NVBench)",
    # a gang
    "wire": "one call more in a CUDA graph of several, on the rank that waits for none (windows)",
    "eager": "one call from a barrier of all ranks to its end on the last rank (the host's clock)",
}
