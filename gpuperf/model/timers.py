"""List the timers: what each is called, what it measures, and what it needs.

A timer is one `Timer` value here and one module that times with it, which only a worker imports.
Plan, contract, suites, `--timer` and timing-check read this list and name no timer themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GPU = ("cuda", "rocm")


@dataclass(frozen=True)
class Timer:
    """A way to time a call.

    `module` opens it on a device (`open_timer(device)`); `windows_of` names the timer that takes
    its samples instead. `kinds` are the kinds of device that have it. `kernels` says for which
    calls CUPTI's record of the kernels is the time: for none, for those of one kernel, or always.
    A timer by the `host`'s clock gives one figure; a `sustained` load can be timed by some;
    where calls `follow` each other on the device, no cache state can be set between them.
    timing-check compares the figure called `name` with the figure called `reference`, and a user
    can choose the timers that are not only a figure of timing-check (`chosen`).
    """

    name: str
    help: str
    kinds: tuple[str, ...]
    module: str = ""
    windows_of: str = ""
    kernels: Literal["never", "one", "always"] = "never"
    host: bool = False
    sustained: bool = False
    follow: bool = False
    reference: str = ""
    chosen: bool = True


TIMERS: dict[str, Timer] = {}


def register(timer: Timer) -> None:
    """Add *timer*. Raises: ValueError where another has its name."""
    if timer.name in TIMERS:
        raise ValueError(f"there are two timers {timer.name!r}")
    TIMERS[timer.name] = timer


def timer_names(kind: str = "") -> tuple[str, ...]:
    """Names that a user can choose, of one *kind* of device or of all; its default comes first."""
    return tuple(t.name for t in TIMERS.values() if t.chosen and (not kind or kind in t.kinds))


ROOM = "gpuperf.measure.timers"

for _timer in (
    Timer(
        "blocked",
        "GPU time without launches",
        ("cuda",),
        f"{ROOM}.blocked",
        kernels="one",
        sustained=True,
        reference="busy",
    ),
    Timer(
        "window",
        "the window alone",
        ("cuda",),
        windows_of="blocked",
        reference="busy",
        chosen=False,
    ),
    Timer(
        "activity",
        "busy time of the kernels, by CUPTI",
        ("cuda",),
        windows_of="blocked",
        kernels="always",
    ),
    Timer(
        "graph",
        "a CUDA graph of many calls",
        ("cuda",),
        f"{ROOM}.graph",
        follow=True,
        reference="busy_hot",
    ),
    Timer("events", "a plain event pair", GPU, f"{ROOM}.events", reference="busy"),
    Timer("wall", "the host's clock", (*GPU, "cpu"), f"{ROOM}.wall", host=True, reference="busy"),
    Timer(
        "auto",
        "blocked, or events for a call that waits for the GPU",
        ("cuda",),
        windows_of="blocked",
        kernels="one",
        sustained=True,
    ),
    Timer("do_bench", "Triton's do_bench", ("cuda",), reference="busy", chosen=False),
    Timer("nvbench", "NVBench", ("cuda",), reference="busy", chosen=False),
):
    register(_timer)
