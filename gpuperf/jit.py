"""Provide Triton, torch.compile and autotuning to workloads, whether or not they are installed.

`triton` and `tl` are Triton's modules (None without Triton), and `jit` is its decorator. Triton is
imported when one of the three is first used or imported from here, as it takes a tenth of a second:
a file of Triton kernels is imported by the `build` of its implementation alone. An `Implementation`
passes `lacks_triton` or `lacks_compiler` as its `supports`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gpuperf.choices import KEPT, PREFERRED, read_choice, write_choice

__all__ = ["Tuned", "begin_build", "compiled", "has_dependent_launch", "jit", "lacks_compiler"]
__all__ += ["lacks_descriptors", "lacks_triton", "remembered", "sample_candidate"]
__all__ += ["time_candidate", "tl", "triton", "tune"]

if TYPE_CHECKING:
    import triton
    import triton.language as tl

    jit: Callable[[Any], Any]

# Whether `jit` makes kernels for Triton's interpreter.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and find_spec("triton") is not None

TIMED_MS, FEWEST, MOST = 10, 5, 50  # a candidate is timed for about 10 ms, by 5 to 50 calls
FLUSHED = 8  # times the size of the L2 is read before each call: 110 µs on an H200
TIE = 0.02  # share of a candidate's time by which tuning scatters
TimeCall = Callable[[Callable[[], Any]], float]  # seconds of one call
MOST_COMPILED = 10_000  # shapes of one function in one process


def __getattr__(name: str) -> Any:
    """Import Triton, and return its module or its decorator."""
    if name not in ("triton", "tl", "jit"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module("triton")
        provided = {"triton": module, "tl": import_module("triton.language"), "jit": module.jit}
    except ImportError:
        provided = {"triton": None, "tl": None, "jit": lambda function: function}
    globals().update(provided)  # later uses find the names without this function
    return provided[name]


def _has_triton() -> bool:
    # A name of this module would not be looked up by `__getattr__`.
    return sys.modules[__name__].triton is not None


def lacks_triton(point: Any, device: Any) -> str | None:
    """Return why a Triton kernel cannot run on *device* (a `DeviceFacts`), or None.

    For tests, Triton's interpreter (`TRITON_INTERPRET=1`) runs on a CPU.
    """
    if not _has_triton():
        return "Triton is not installed"
    return "Triton needs a GPU" if device.kind == "cpu" and not INTERPRETED else None


def lacks_descriptors(point: Any, device: Any) -> str | None:
    """Return why a kernel that loads by tensor descriptors (Triton 3.4) cannot run, or None."""
    lacking = lacks_triton(point, device)
    if lacking or hasattr(tl, "make_tensor_descriptor"):
        return lacking
    return "needs Triton 3.4 or newer"


def has_dependent_launch(device: Any) -> bool:
    """Return whether a Triton kernel may start on *device*, of torch, before the one ahead of it
    ends: programmatic dependent launch, from compute capability 9.0 on, in a Triton that offers it.
    """
    import torch

    if device.type != "cuda" or torch.version.hip is not None:
        return False
    offered = hasattr(tl.extra.cuda, "gdc_wait")
    return offered and torch.cuda.get_device_capability(device)[0] >= 9


def lacks_compiler(point: Any, device: Any) -> str | None:
    """Return why torch.compile cannot compile for *device*, or None."""
    if device.kind != "cpu":
        return None if _has_triton() else "Triton is not installed"
    names = (os.environ.get("CXX", "g++"), "clang++", "cl")
    return None if any(map(shutil.which, names)) else "torch.compile needs a C++ compiler on a CPU"


def compiled(function: Callable[..., Any], mode: str | None = None) -> Callable[..., Any]:
    """Compile *function* by torch.compile, anew for each shape.

    By default torch silently falls back to eager after eight shapes, so the limit is raised.
    """
    import torch

    torch._dynamo.config.recompile_limit = MOST_COMPILED
    torch._functorch.config.donated_buffer = False  # one forward serves many backward calls
    call: Callable[..., Any] = torch.compile(function, mode=mode, dynamic=False, fullgraph=True)
    return call


class Tuned:
    """A call that was chosen among candidates, and its configuration `chosen`."""

    def __init__(self, call: Callable[[], Any], chosen: Mapping[str, int | str]) -> None:
        self._call = call
        self.chosen = dict(chosen)

    def __call__(self) -> Any:
        return self._call()


@dataclass
class _Memory:
    """The `case` whose build runs, the number of kernels that it has tuned, the functions that time
    candidates, and the choices of all cases in this process."""

    case: str = ""
    count: int = 0
    time_s: TimeCall | None = None
    sample_s: TimeCall | None = None
    choices: dict[tuple[str, int], Mapping[str, int]] = field(default_factory=dict)

    def place(self) -> tuple[str, int]:
        self.count += 1
        return (self.case, self.count)


_remembered = _Memory()


def begin_build(
    case: str, time_s: TimeCall | None = None, sample_s: TimeCall | None = None
) -> None:
    """Begin the build of *case*, which reuses earlier choices for it.

    `tune` times a candidate by `time_s(call)`, in seconds, which uses the timer and the idle gap of
    the measurement that follows; `sample_s(call)` is one such time without the gap. Without them,
    events time candidates back to back.
    """
    _remembered.case, _remembered.count = case, 0
    _remembered.time_s, _remembered.sample_s = time_s, sample_s


def time_candidate(call: Callable[[], Any]) -> float:
    """Return the seconds of *call*, as the measurement that follows will time it."""
    return _median_ms(call) * 1e-3


def sample_candidate(call: Callable[[], Any]) -> float:
    """Return a quick time of *call* in seconds, to sort many candidates by."""
    return _remembered.sample_s(call) if _remembered.sample_s else time_candidate(call)


def remembered(
    find: Callable[[], Mapping[str, int]], usable: Callable[[Mapping[str, int]], bool]
) -> Mapping[str, int]:
    """Return the earlier choice for the kernel that is built, if it is *usable*, or that of *find*.

    In a gate, the processes of a side use the choice of its first process, and the head that of the
    base.
    """
    place = _remembered.place()
    stored = (read_choice(variable, place) for variable in (KEPT, PREFERRED))
    for known in (_remembered.choices.get(place), *stored):
        if known is not None and usable(known):
            return known
    chosen = find()
    _remembered.choices[place] = chosen
    write_choice(place, chosen)
    return chosen


def _median_ms(call: Callable[[], Any]) -> float:
    """Time *call* with its data in DRAM and the L2 full of clean lines, as in a measurement.

    The host launches the call during the flush. Triton's `do_bench` leaves dirty lines in the L2,
    which the call then writes back: of two kernels that differ by 6 % the slower seemed faster.
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
    make: Callable[[Mapping[str, int]], Callable[[], Any]],
    candidates: Iterable[Mapping[str, int]],
    prepare: Callable[[Sequence[Mapping[str, int]]], None] | None = None,
) -> Tuned:
    """Return the fastest of the calls that *make* makes of the candidates that compile.

    *prepare* is called with the candidates before they are timed, and may compile them together.

    In a gate, the processes of a side use the choice of its first process. The head uses the choice
    of the base unless another is faster by more than `TIE`: two sides of the same code with
    different choices would differ in every pair. Triton's interpreter uses the first candidate.

    Raises: the error of the last candidate if none runs; ValueError without candidates.
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
    if prepare:
        with contextlib.suppress(Exception):  # then each candidate is compiled when it is timed
            prepare(every)
    best: tuple[float, Callable[[], Any], Mapping[str, int]] | None = None
    for candidate in every:
        call: Callable[[], Any] | None = None  # frees the memory of the previous candidate
        with contextlib.suppress(Exception):  # too much shared memory, too many registers
            call = make(candidate)
            time_ms = _median_ms(call) * (1 - TIE if candidate == usual else 1)
            if best is None or time_ms < best[0]:
                best = (time_ms, call, candidate)
    if best is None:
        call = make(every[-1])
        call()  # raises the error again
        return Tuned(call, every[-1])
    _remembered.choices[place] = best[2]
    write_choice(place, best[2])
    return Tuned(*best[1:])
