"""Evidence about submissions that nobody measured."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from gpuperf.judge.evidence import Audit, CaseEvidence, IdleTime, WindowTime
from gpuperf.judge.rule import judge_case
from gpuperf.judge.task import Side
from gpuperf.judge.verdict import JudgedCase, Named, Verdict, conclude

CALLS = 16


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
