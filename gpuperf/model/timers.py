"""List the timers: the name of each, what it measures, and what it needs.

A timer is a `Timer` value in this module and a module that measures, which only a worker imports.
Plans, contracts, suites, `--timer` and timing-check take the timers from this list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GPU = ("cuda", "rocm")
LAUNCH_BOUND = 1.5  # wall time over busy time, above which a call is launch-bound


@dataclass(frozen=True)
class Timer:
    """A way to time a call.

    `kinds` are the kinds of device that have it. `module` opens it on a device
    (`open_timer(device)`); a timer without a module takes the windows of the timer `windows_of`.
    `kernels` says for which calls the time is CUPTI's record of the kernels: for none, for calls
    of one kernel, or for all. `host` marks a timer that uses the host's clock, and so gives one
    time only; `sustained` one that can time a sustained load; `follow` one whose calls follow each
    other on the device, so that no cache state can be set between them. timing-check compares the
    time `name` with the time `reference`. A user can choose a timer unless `chosen` is false.
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
    """Add *timer* to the list. Raises: ValueError if its name is taken."""
    if timer.name in TIMERS:
        raise ValueError(f"there are two timers {timer.name!r}")
    TIMERS[timer.name] = timer


def timer_names(kind: str = "") -> tuple[str, ...]:
    """Return the names that a user can choose for a *kind* of device, its default first; without a
    *kind* those for all devices."""
    return tuple(t.name for t in TIMERS.values() if t.chosen and (not kind or kind in t.kinds))


FOLDER = "gpuperf.measure.timers"

for _timer in (
    Timer(
        "blocked",
        "GPU time without launches",
        ("cuda",),
        f"{FOLDER}.blocked",
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
        f"{FOLDER}.graph",
        follow=True,
        reference="busy_hot",
    ),
    Timer("events", "a plain event pair", GPU, f"{FOLDER}.events", reference="busy"),
    Timer("wall", "the host's clock", (*GPU, "cpu"), f"{FOLDER}.wall", host=True, reference="busy"),
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
