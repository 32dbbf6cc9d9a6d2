"""What compiles at run time, where it is installed; a workload's file loads without it too.

`triton` and `tl` are Triton's modules (None without it) and `jit` its decorator. `lacks_triton` and
`lacks_compiler` are what an `Implementation` gives as its `supports`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuperf.choices import KEPT, PREFERRED, read_choice, write_choice

__all__ = ["Tuned", "begin_build", "compiled", "jit", "lacks_compiler", "lacks_descriptors"]
__all__ += ["lacks_triton", "tl", "triton", "tune"]

try:
    import triton
    import triton.language as tl

    jit: Callable[[Any], Any] = triton.jit
    # What `jit` makes of kernels from here on.
    INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
except ImportError:
    triton = tl = None
    INTERPRETED = False

    def jit(function: Any) -> Any:
        """The function as it stands: nothing calls it."""
        return function


TIMED_MS, FEWEST, MOST = 10, 5, 50  # of each candidate: about so long, so many calls
FLUSHED = 8  # times the L2 is read before each: on an H200 some 110 µs
TIE = 0.02  # of a candidate's time: no more than tuning scatters by
TimeCall = Callable[[Callable[[], Any]], float]  # seconds of one call
MOST_COMPILED = 10_000  # shapes of one function in one process


def lacks_triton(point: Any, device: Any) -> str | None:
    """Why a kernel in Triton cannot run on *device* (a `DeviceFacts`), or None.

    Its interpreter (`TRITON_INTERPRET=1`) runs on a CPU, to test.
    """
    if triton is None:
        return "Triton is not installed"
    return "Triton needs a GPU" if device.kind == "cpu" and not INTERPRETED else None


def lacks_descriptors(point: Any, device: Any) -> str | None:
    """The same of a kernel that loads by tensor descriptors, which Triton has since 3.4."""
    lacking = lacks_triton(point, device)
    if lacking or hasattr(tl, "make_tensor_descriptor"):
        return lacking
    return "needs Triton 3.4 or newer"


def lacks_compiler(point: Any, device: Any) -> str | None:
    """Why torch.compile cannot make code for *device*, or None."""
    if device.kind != "cpu":
        return "Triton is not installed" if triton is None else None
    names = (os.environ.get("CXX", "g++"), "clang++", "cl")
    return None if any(map(shutil.which, names)) else "torch.compile needs a C++ compiler on a CPU"


def compiled(function: Callable[..., Any], mode: str | None = None) -> Callable[..., Any]:
    """*function* by torch.compile, for the shapes that come.

    A sweep compiles for each size anew; after eight, torch would go on in eager without a word.
    """
    import torch

    torch._dynamo.config.recompile_limit = MOST_COMPILED
    torch._functorch.config.donated_buffer = False  # a gradient alone is taken again and again
    call: Callable[..., Any] = torch.compile(function, mode=mode, dynamic=False, fullgraph=True)
    return call


class Tuned:
    """A call that was chosen among several: `chosen` is what makes it this one."""

    def __init__(self, call: Callable[[], Any], chosen: Mapping[str, int | str]) -> None:
        self._call = call
        self.chosen = dict(chosen)

    def __call__(self) -> Any:
        return self._call()


@dataclass
class _Memory:
    """What was chosen for a case in this process, by the order in which its build tunes, and how
    candidates are timed."""

    case: str = ""
    count: int = 0
    time_s: TimeCall | None = None
    choices: dict[tuple[str, int], Mapping[str, int]] = field(default_factory=dict)

    def place(self) -> tuple[str, int]:
        self.count += 1
        return (self.case, self.count)


_remembered = _Memory()


def begin_build(case: str, time_s: TimeCall | None = None) -> None:
    """The build of *case* begins: what was tuned for it before is not tuned again.

    `time_s(call)` is how `tune` times a candidate, in seconds: by the timer and with the rest of
    the measurement that follows. Without it candidates are timed by events, back to back.
    """
    _remembered.case, _remembered.count, _remembered.time_s = case, 0, time_s


def _median_ms(call: Callable[[], Any]) -> float:
    """What *call* takes with its data in DRAM and the L2 full of clean lines, as in a measurement.

    The flush takes long enough for the host to launch the call meanwhile. Triton's own `do_bench`
    leaves the L2 dirty: what kernels then write back is not theirs, and of two that differ by 6 %
    the slower came out ahead.
    """
    if _remembered.time_s is not None:
        return _remembered.time_s(call) * 1e3
    import torch

    size = FLUSHED * torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    others = torch.empty(max(size, 2**20), dtype=torch.int8, device="cuda").view(torch.int32)

    def timed(count: int) -> float:
        events = [[torch.cuda.Event(enable_timing=True) for _ in "ab"] for _ in range(count)]
        for begin, end in events:
            others.sum()
            begin.record()
            call()
            end.record()
        torch.cuda.synchronize()
        times: list[float] = [begin.elapsed_time(end) for begin, end in events]
        return statistics.median(times)

    call()
    return timed(min(MOST, max(FEWEST, int(TIMED_MS / max(timed(FEWEST), 1e-3)))))


def tune(
    make: Callable[[Mapping[str, int]], Callable[[], Any]], candidates: Iterable[Mapping[str, int]]
) -> Tuned:
    """The fastest call that *make* makes of a candidate; what does not compile is passed over.

    A process of a gate's side takes what the first process of the side chose; there the head keeps
    to the base's choice unless another is faster by more than `TIE`, since two sides of one code
    that chose differently would differ in every pair. Interpreted it is the first.

    Raises: what the last candidate raises, when none runs; ValueError when there is none.
    """
    place = _remembered.place()
    every = list(candidates)
    if not every:
        raise ValueError("there are no candidates to tune among")
    if INTERPRETED or len(every) == 1:
        return Tuned(make(every[0]), every[0])
    known = _remembered.choices.get(place) or read_choice(KEPT, place, every)
    if known is not None:
        return Tuned(make(known), known)
    usual = read_choice(PREFERRED, place, every)
    best: tuple[float, Callable[[], Any], Mapping[str, int]] | None = None
    for candidate in every:
        call: Callable[[], Any] | None = None  # nor is the last one's memory held by now
        with contextlib.suppress(Exception):  # too much shared memory, too many registers
            call = make(candidate)
            time_ms = _median_ms(call) * (1 - TIE if candidate == usual else 1)
            if best is None or time_ms < best[0]:
                best = (time_ms, call, candidate)
    if best is None:
        call = make(every[-1])
        call()  # raises what it raised
        return Tuned(call, every[-1])
    _remembered.choices[place] = best[2]
    write_choice(place, best[2])
    return Tuned(*best[1:])
