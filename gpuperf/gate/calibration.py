"""Estimate how often gates on this device are wrong: for unchanged code, and for a known slowdown.

Real gates of a side against itself, and of a side slowed down by a known fraction, accumulate in
the user's cache over nights, by device, suite and rule. Many more gates are resampled from the
processes of these, but are not independent of each other. The error rate of both is reported, with
its exact (Clopper-Pearson) 95 % bound.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuperf.errors import CannotMeasure
from gpuperf.gate.rule import Evidence, Pairs, Rule, adjusted, slower_p
from gpuperf.gate.schedule import order_of
from gpuperf.gate.sides import Label
from gpuperf.gate.verdict import GateReport
from gpuperf.model.protocol import Opened
from gpuperf.run.cache import fetch, keep
from gpuperf.run.ceilings import device_key

SLOWDOWNS = (0.01, 0.015, 0.02, 0.025, 0.03, 0.05)  # fractions that are added to one case
BLOCK = 4  # successive processes that are drawn together, as their times are correlated
FEWEST = 12  # processes of a pool from which gates may be resampled


@dataclass(frozen=True)
class RealGate:
    """One real gate of a side against itself, whose head had one `case` `slower` by a fraction (0:
    none), which the gate `measured` as another fraction.

    `right` says whether only that case regressed, or, without one, none.
    """

    id: str
    created: str
    suite: str
    cases: int
    slower: float
    outcome: str
    right: bool
    measured: float | None = None
    case: str = ""


@dataclass(frozen=True)
class Resampled:
    """Gates drawn from a pool of processes: how many of `gates` regressed without a change (`red`),
    and by slowdown in how many gates it was detected, of how many (`power`)."""

    gates: int
    red: int
    processes: int
    cases: int
    power: Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Calibration:
    """The real and the resampled gates of a suite under a rule on a device."""

    gates: tuple[RealGate, ...] = ()
    resampled: Resampled | None = None


def stored_calibration(opened: Opened, suite: str, rule: Rule) -> Calibration:
    """Return the stored gates of *suite* by *rule*, whatever its seed, on this device."""
    return fetch("calibration", _key(opened, suite, rule), Calibration) or Calibration()


def add_gate(opened: Opened, rule: Rule, gate: RealGate) -> Calibration:
    """Store *gate* beside the others of its suite."""
    known = stored_calibration(opened, gate.suite, rule)
    others = tuple(g for g in known.gates if g.id != gate.id)
    calibration = replace(known, gates=(*others, gate))
    store_calibration(opened, gate.suite, rule, calibration)
    return calibration


def store_calibration(opened: Opened, suite: str, rule: Rule, calibration: Calibration) -> None:
    """Store *calibration* in place of the earlier one."""
    keep("calibration", _key(opened, suite, rule), calibration)


def _key(opened: Opened, suite: str, rule: Rule) -> str:
    return device_key(opened, suite, replace(rule, seed=0))


def gate_of(report: GateReport) -> RealGate | None:
    """Return *report* as one gate of a calibration; None if it came to no verdict on its cases."""
    if report.outcome not in ("passed", "regressed", "inconclusive"):
        return None
    red = {c.case: c.judged.change for c in report.cases if c.judged.verdict == "REGRESSED"}
    name, share = next(iter(report.slowed.items()), ("", 0.0))
    return RealGate(
        report.id,
        report.created,
        report.suite,
        len(report.cases),
        share,
        report.outcome,
        red.keys() == set(report.slowed),
        red.get(name),
        name,
    )


def pool_of(reports: Sequence[GateReport]) -> dict[str, Any]:
    """Return the log median seconds of each case in every screening process of *reports*.

    Processes are in the order in which they ran, without heads that were slowed down. (Confirming
    processes measured only some of the cases.) Raises: CannotMeasure if they are under `FEWEST`.
    """
    import numpy

    processes: list[dict[str, float]] = []
    for report in reports:
        screens = {c.case: c.evidence.screen for c in report.cases if c.evidence is not None}
        for i, label in _turns(report):
            medians = {name: getattr(pairs, label) for name, pairs in screens.items()}
            processes.append(
                {name: math.log(times[i]) for name, times in medians.items() if i < len(times)}
            )
    names = set.intersection(*map(set, processes)) if processes else set()
    if len(processes) < FEWEST or not names:
        raise CannotMeasure(
            f"{len(processes)} processes of the same cases are too few to resample: "
            f"{FEWEST} at least",
            "gpuperf gate calibrate --gates 1 measures some",
        )
    return {name: numpy.array([logs[name] for logs in processes]) for name in sorted(names)}


def _turns(report: GateReport) -> Iterator[tuple[int, Label]]:
    """Yield for each screening process in the order of time the index of its pair, among the pairs
    that count, and its side. (The number of a pair, from which its order of sides is drawn, counts
    discarded pairs too.)"""
    discarded = {pair.pair for pair in report.discarded}
    counted = (pair for pair in itertools.count() if pair not in discarded)
    for i, pair in enumerate(itertools.islice(counted, report.rule.screen_pairs)):
        for label in order_of(report.rule.seed, pair):
            if label == "base" or not report.slowed:
                yield i, label


def resample(pool: Mapping[str, Any], rule: Rule, gates: int, seed: int) -> Resampled:
    """Draw *gates* gates from *pool* without a change, and a tenth as many (20 or more) with one
    case slower for each of `SLOWDOWNS`, and count those that regress."""
    import numpy

    draw = numpy.random.default_rng(seed)
    names = list(pool)
    table = numpy.stack([pool[name] for name in names])
    red = sum(bool(_reds(_gate(table, draw, rule, {}), rule)) for _ in range(gates))
    power = {}
    for share in SLOWDOWNS:
        caught = 0
        for _ in range(max(20, gates // 10)):
            victim = int(draw.integers(len(names)))
            caught += victim in _reds(_gate(table, draw, rule, {victim: math.log1p(share)}), rule)
        power[f"{share:g}"] = (caught, max(20, gates // 10))
    return Resampled(gates, red, table.shape[1], len(names), power)


def _gate(table: Any, draw: Any, rule: Rule, slower: Mapping[int, float]) -> list[Evidence]:
    """Return the evidence of one resampled gate: blocks of successive processes, as ABBA sides.

    *slower* adds to the log times of a case on the head.
    """
    import numpy

    count = 2 * (rule.screen_pairs + rule.confirm_pairs)
    starts = draw.integers(0, table.shape[1], count // BLOCK + 1)
    picked = [(start + i) % table.shape[1] for start in starts for i in range(BLOCK)][:count]
    sides = numpy.array(["ABBA"[i % 4] for i in range(count)])
    base, head = table[:, picked][:, sides == "A"], table[:, picked][:, sides == "B"]
    for victim, share in slower.items():
        head[victim] += share
    cut = rule.screen_pairs
    return [
        Evidence(_pairs(b[:cut], h[:cut]), _pairs(b[cut:], h[cut:]))
        for b, h in zip(base, head, strict=True)
    ]


def _pairs(base: Any, head: Any) -> Pairs:
    import numpy

    return Pairs(tuple(numpy.exp(base)), tuple(numpy.exp(head)))


def _reds(evidence: Sequence[Evidence], rule: Rule) -> set[int]:
    p = slower_p({str(i): pairs for i, pairs in enumerate(evidence)}, rule)
    return {i for i, q in enumerate(adjusted(list(p.values()))) if q <= rule.alpha}


def bound(successes: int, trials: int, above: bool) -> float:
    """Return the exact one-sided 95 % bound of a probability: from *above*, or from below.

    (Clopper and Pearson, Biometrika 26, 1934. scipy.stats takes 0.5 s to import.)
    """
    from scipy.special import betaincinv

    if successes == (trials if above else 0):
        return float(above)
    if above:
        return float(betaincinv(successes + 1, trials - successes, 0.95))
    return float(betaincinv(successes, trials - successes + 1, 0.05))


def quote(calibration: Calibration) -> str:
    """Return the sentence on error rates in a gate's report; empty if no gate was calibrated."""
    parts = []
    same = [gate for gate in calibration.gates if not gate.slower]
    if same:
        red = sum(not gate.right for gate in same)
        parts.append(
            f"{red} of {len(same)} real gates of unchanged code regressed here "
            f"(rate ≤ {bound(red, len(same), True) * 100:.3g} % with 95 % confidence)"
        )
    if (again := calibration.resampled) is not None:
        parts.append(
            f"{again.red} of {again.gates} resampled from {again.processes} processes "
            f"(≤ {bound(again.red, again.gates, True) * 100:.2g} %, not independent)"
        )
    for share in sorted({gate.slower for gate in calibration.gates if gate.slower}):
        gates = [gate for gate in calibration.gates if gate.slower == share]
        right = sum(gate.right for gate in gates)
        parts.append(
            f"an injected {share * 100:g} % was detected in {right} of {len(gates)} "
            f"(power ≥ {bound(right, len(gates), False) * 100:.0f} %)"
        )
    return "; ".join(parts)
