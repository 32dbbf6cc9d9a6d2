"""Evidence about submissions that nobody measured."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from gpuperf.judge.evidence import (
    Audit,
    CaseEvidence,
    CollectTime,
    Counted,
    Hardware,
    IdleTime,
    Ran,
    RecordedWindow,
    SeenWindow,
    WindowTime,
)
from gpuperf.judge.rule import judge_case
from gpuperf.judge.task import Side
from gpuperf.judge.verdict import JudgedCase, Named, Verdict, conclude

CALLS = 16
L2, NEEDED = 50e6, 64e6  # bytes of an L2, and those that a call must read


def window(
    process: int, number: int, side: Side, calls: int, call_s: float, claims: float = 0.95
) -> WindowTime:
    clerk_s = 1e-3 + calls * call_s
    return WindowTime(process, number, side, calls, clerk_s, claims * clerk_s, clerk_s)


def evidence(
    speedup: float = 2.0,
    processes: int = 3,
    noise: float = 0.01,
    claims: float = 0.95,
    seed: int = 1,
    **more: Any,
) -> CaseEvidence:
    """An honest submission that is *speedup* times as fast as the reference."""
    draw, windows = random.Random(seed), []
    sides: tuple[Side, Side] = ("submission", "reference")
    for process in range(processes):
        for number, calls in enumerate([CALLS] * 12 + [1] * 4 + [0] * 3):
            for side in sides:
                call_s = (1e-3 / speedup if side == "submission" else 1e-3) * draw.gauss(1, noise)
                claimed = claims if side == "submission" else 0.95
                windows.append(window(process, number, side, calls, call_s, claimed))
    return replace(
        CaseEvidence(
            "default",
            audits=tuple(Audit(slot, "nominal", 1e-7, 1e-6) for slot in range(20)),
            windows=tuple(windows),
            idles=tuple(IdleTime(0, side, 0.15, 0.0) for side in sides * 2),
        ),
        **more,
    )


def recorded(
    side: Side,
    call_s: float,
    late_s: float = 0.0,
    *more: Ran,
    name: str = "kernel",
    early_s: float | None = 0.0,
) -> tuple[RecordedWindow, ...]:
    """Three windows in which each call runs one kernel for *call_s* seconds."""
    ran = (Ran(name, CALLS, CALLS * call_s), *more)
    busy_s = sum(one.seconds for one in ran)
    return tuple(
        RecordedWindow(0, number, side, CALLS, busy_s, late_s, ran, 0, early_s)
        for number in range(3)
    )


def seen(side: Side, share: float = 1.0, pause_busy_s: float = 0.0) -> tuple[SeenWindow, ...]:
    """Four windows in which calls read a *share* of the bytes that they must read."""
    read = CALLS * NEEDED * share
    return tuple(
        SeenWindow(0, number, side, CALLS, read, read / 2, 8e-3, 0.02, 0.0, pause_busy_s)
        for number in range(4)
    )


def collected(side: Side, seconds: float = 1e-3) -> tuple[CollectTime, ...]:
    """Six copies of the audited results of a window."""
    return tuple(CollectTime(0, number, side, 5, seconds) for number in range(6))


def hardware(**more: Any) -> Hardware:
    """What an honest submission shows on a GPU: see `evidence`, of which it is a part."""
    sides: tuple[Side, Side] = ("submission", "reference")
    times = {"submission": 4e-4, "reference": 8e-4}
    return replace(
        Hardware(
            "a GPU",
            l2_bytes=L2,
            needed_bytes=NEEDED,
            result_bytes=NEEDED / 2,
            probe_s=1e-4,
            probes=(2e-4,) * 20,
            recorded=tuple(w for side in sides for w in recorded(side, times[side])),
            seen=tuple(w for side in sides for w in seen(side)),
            collected=tuple(c for side in sides for c in collected(side)),
            counted=tuple(Counted(side, {"fp32_flops": 2e9, "tensor_tf32": 0.0}) for side in sides),
        ),
        **more,
    )


def verdict(*cases: CaseEvidence) -> Verdict:
    """The verdict on cases with this evidence."""
    return conclude(
        Verdict(
            created="2026-01-01T00:00:00+00:00",
            gpuperf="0.1.0",
            format="kernelbench",
            submission=Named("mine.py", "a" * 64),
            reference=Named("reference.py", "b" * 64),
            status="inconclusive",
            reason="",
            grade="C",
            cases=tuple(JudgedCase(case, judge_case(case)) for case in cases),
        )
    )
