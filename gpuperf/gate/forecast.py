"""How long will a gate take, and which slowdown could it see: before anything is measured?

From what earlier processes on this device saw of each case: how far they scatter
(`runner/timing.py`), and how long its passes took. What was never seen is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gpuperf.gate.rule import Rule, detectable
from gpuperf.model.protocol import Opened
from gpuperf.model.record import Noise
from gpuperf.run.cache import fetch, keep
from gpuperf.run.ceilings import device_key

MOST_PAIRS = 100  # confirming pairs that a target may ask for


@dataclass(frozen=True)
class Pace:
    """Seconds of a pass of all cases, and of one of the suspicious cases (0: none was seen)."""

    screen_s: float
    confirm_s: float = 0.0


def kept_pace(opened: Opened, cases: Iterable[str]) -> Pace | None:
    """How long passes of just these cases took here."""
    return fetch("pace", device_key(opened, tuple(sorted(cases))), Pace)


def keep_pace(opened: Opened, cases: Iterable[str], pace: Pace) -> None:
    """Keep it for the next gate."""
    keep("pace", device_key(opened, tuple(sorted(cases))), pace)


def minutes(pace: Pace, rule: Rule) -> float:
    """Of a gate in which some case is suspicious, which is the rule: at a level of 0.2, one of 20
    unchanged cases is in 99 gates of 100. A pass to prime each side is counted."""
    confirm_s = pace.confirm_s or pace.screen_s / 2
    passes_s = (rule.screen_pairs + 1) * pace.screen_s + rule.confirm_pairs * confirm_s
    return 2 * passes_s / 60


def foreseen(
    cases: Iterable[str], noise: Mapping[str, Noise], rule: Rule, margins: Mapping[str, float]
) -> dict[str, float | None]:
    """The slowdown that would be found in each case; None where its noise is unknown."""
    every = list(cases)
    found: dict[str, float | None] = dict.fromkeys(every)
    for name in every:
        known = noise.get(name)
        if known is not None and known.processes > 2:
            spread = math.sqrt(2) * known.between  # of the ratio of two processes
            margin = math.log1p(margins.get(name, rule.margin))
            found[name] = math.expm1(detectable(spread, known.processes, margin, rule, len(every)))
    return found


def fitted(
    cases: Iterable[str],
    noise: Mapping[str, Noise],
    rule: Rule,
    margins: Mapping[str, float],
    target: float,
) -> Rule:
    """*rule* with as many confirming pairs as *target* takes in every case whose noise is known,
    `MOST_PAIRS` at most."""
    every = list(cases)
    while rule.confirm_pairs < MOST_PAIRS:
        seen = [least for least in foreseen(every, noise, rule, margins).values() if least]
        if max(seen, default=0.0) <= target:
            break
        rule = replace(rule, confirm_pairs=rule.confirm_pairs + 1)
    return rule
