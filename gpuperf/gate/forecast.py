"""Forecast how long a gate will take, and which slowdown it will detect.

Both follow from earlier processes of each case on this device: their scatter (`run/noise.py`), and
their seconds. The forecast of a case that was never measured is unknown.
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
    """Seconds of a screening process, which measures all cases, and of a confirming one, which
    measures those that looked slower (0 if unknown)."""

    screen_s: float
    confirm_s: float = 0.0


def stored_pace(opened: Opened, cases: Iterable[str]) -> Pace | None:
    """Return the seconds of earlier processes of just *cases* on this device; None if unknown."""
    return fetch("pace", device_key(opened, tuple(sorted(cases))), Pace)


def keep_pace(opened: Opened, cases: Iterable[str], pace: Pace) -> None:
    """Store *pace* for the next gate of these cases."""
    keep("pace", device_key(opened, tuple(sorted(cases))), pace)


def minutes(pace: Pace, rule: Rule) -> float:
    """Return the minutes of a gate with all its pairs, and one more process of each side before.

    Confirming pairs are nearly always needed: of 20 unchanged cases at least one looks slower in
    99 gates of 100, at the screen's level 0.2.
    """
    confirm_s = pace.confirm_s or pace.screen_s / 2
    passes_s = (rule.screen_pairs + 1) * pace.screen_s + rule.confirm_pairs * confirm_s
    return 2 * passes_s / 60


def foreseen(
    cases: Iterable[str], noise: Mapping[str, Noise], rule: Rule, margins: Mapping[str, float]
) -> dict[str, float | None]:
    """Return the slowdown that *rule* detects in each case; None if its noise is unknown."""
    every = list(cases)
    least: dict[str, float | None] = dict.fromkeys(every)
    for name in every:
        known = noise.get(name)
        if known is not None and known.processes > 2:
            spread = math.sqrt(2) * known.between  # of the ratio of two processes
            margin = math.log1p(margins.get(name, rule.margin))
            least[name] = math.expm1(detectable(spread, known.processes, margin, rule, len(every)))
    return least


def fitted(
    cases: Iterable[str],
    noise: Mapping[str, Noise],
    rule: Rule,
    margins: Mapping[str, float],
    target: float,
) -> Rule:
    """Return *rule* with enough confirming pairs to detect *target* in every case whose noise is
    known, and at most `MOST_PAIRS`."""
    every = list(cases)
    while rule.confirm_pairs < MOST_PAIRS:
        known = [least for least in foreseen(every, noise, rule, margins).values() if least]
        if max(known, default=0.0) <= target:
            break
        rule = replace(rule, confirm_pairs=rule.confirm_pairs + 1)
    return rule
