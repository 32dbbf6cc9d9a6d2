"""Count how often the gate is red without a change, and how often it catches a slowdown.

Simulates gates of the default rule under models of how processes scatter, and resamples gates from
the committed verdicts; the functions of `gpuperf.gate` that judge real gates judge them. Seeds are
fixed: `python docs/measured/gate_rates.py` prints `gate_rates.txt` again, in some minutes on all
processors.

A gate has 6 + 20 pairs of 20 cases; the two processes of a pair run in the order that `order_of`
draws.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy
from scipy.stats import false_discovery_control

from gpuperf.gate.calibration import bound, pool_of, resample
from gpuperf.gate.rule import Evidence, Pairs, Rule, detectable, settled, slower_p, suspicious
from gpuperf.gate.schedule import order_of
from gpuperf.gate.verdict import read_report

VERDICTS = Path(__file__).parent / "gates"
REAL = Path(__file__).parents[2] / "tests" / "data" / "noise_h200_medians.json"
RULE, TARGET, CASES = Rule(), 0.05, 20
PAIRS = RULE.screen_pairs + RULE.confirm_pairs
GATES, POWER_GATES, RESAMPLED = 300, 100, 1000

Draw = numpy.random.Generator
# Draws the log times of n processes and m cases, in the order of the processes: (n, m).
Model = Callable[[Draw, int, int], Any]


def normal(sigma: float, drift: float = 0.0) -> Model:
    """Return a model of independent processes with a drift over the gate."""
    return lambda draw, n, m: draw.normal(0, sigma, (n, m)) + numpy.linspace(0, drift, n)[:, None]


def warming(draw: Draw, n: int, m: int) -> Any:
    """Draw times that rise by 4 %, mostly in the first processes."""
    return draw.normal(0, 0.002, (n, m)) + 0.04 * (1 - numpy.exp(-numpy.arange(n) / 5))[:, None]


def walking(shared: bool) -> Model:
    """Return an AR(1) model of 1 % with a correlation of 0.9, for each case or *shared* by all."""

    def logs(draw: Draw, n: int, m: int) -> Any:
        steps = draw.normal(0, 0.01, (n, 1 if shared else m))
        walk = numpy.empty_like(steps)
        walk[0] = steps[0]
        for i in range(1, n):
            walk[i] = 0.9 * walk[i - 1] + math.sqrt(1 - 0.81) * steps[i]
        return walk + draw.normal(0, 0.002, (n, m))

    return logs


def modes(share: float, run: int = 1, spike: float = 0.08, sigma: float = 0.005) -> Model:
    """Return a normal model in which a *share* is slower by *spike*, *run* processes together."""

    def logs(draw: Draw, n: int, m: int) -> Any:
        slow = draw.random((-(-n // run), m)) < share
        return draw.normal(0, sigma, (n, m)) + spike * numpy.repeat(slow, run, axis=0)[:n]

    return logs


def student(sigma: float) -> Model:
    """Return a model of Student's t with 3 degrees of freedom and standard deviation *sigma*."""
    return lambda draw, n, m: draw.standard_t(3, (n, m)) / math.sqrt(3) * sigma


def second_slower(draw: Draw, n: int, m: int) -> Any:
    """Draw times of which the second process of each pair takes 1 % more."""
    return draw.normal(0, 0.005, (n, m)) + 0.01 * (numpy.arange(n) % 2)[:, None]


def unpaced() -> Model:
    """Return a model of 45 processes of an H200 without rests, in blocks of 4 neighbours."""
    medians = json.loads(REAL.read_text())["medians_us"]
    pool = numpy.log(numpy.array(list(medians.values()))).T

    def logs(draw: Draw, n: int, m: int) -> Any:
        starts = draw.integers(0, len(pool), n // 4 + 1)
        return pool[[(start + i) % len(pool) for start in starts for i in range(4)][:n]]

    return logs


UNCHANGED: Mapping[str, Model] = {
    "0.2 %": normal(0.002),
    "0.5 %, a drift of 1 %": normal(0.005, 0.01),
    "warming up by 4 %": warming,
    "AR(1) 0.9, 1 %": walking(shared=False),
    "the same, shared by all cases": walking(shared=True),
    "8 % slower in a quarter": modes(0.25),
    "the same, six processes together": modes(0.25, run=6),
    "Student's t of 3, 2 %": student(0.02),
    "the second of each pair + 1 %": second_slower,
    "45 real processes, unpaced": unpaced(),
}
SLOWED: Mapping[str, Model] = {
    **{f"{share:g} %": normal(share / 100) for share in (0.5, 1, 1.5, 2, 2.5, 3, 4)},
    "Student's t of 3, 2 %": student(0.02),
    "Student's t of 3, 4 %": student(0.04),
    "8 % slower in a tenth": modes(0.1),
    "8 % slower in a quarter": modes(0.25),
    "8 % slower in half": modes(0.5),
    "50 % slower in a tenth": modes(0.1, spike=math.log(1.5)),
}


def gate(logs: Any, seed: int, slower: Sequence[float]) -> dict[str, Evidence]:
    """Return the evidence of one gate with these log times; the head is *slower* by case."""
    base, head = numpy.empty((2, PAIRS, logs.shape[1]))
    for pair in range(PAIRS):
        sides = {"base": base, "head": head}
        for place, label in enumerate(order_of(seed, pair)):
            sides[label][pair] = logs[2 * pair + place]
    base, head = numpy.exp(base), numpy.exp(head + numpy.log1p(numpy.asarray(slower)))
    cut = RULE.screen_pairs

    def pairs(case: int, part: slice) -> Pairs:
        return Pairs(tuple(base[part, case]), tuple(head[part, case]))

    def confirm(case: int) -> Pairs:
        ends = (cut + count for count in (*RULE.looks, RULE.confirm_pairs))
        parts = (pairs(case, slice(cut, end)) for end in ends)
        return next(part for part in parts if settled(part, None, RULE, logs.shape[1]))

    screened = {str(i): Evidence(pairs(i, slice(0, cut))) for i in range(logs.shape[1])}
    sent_on = suspicious(screened, RULE)
    return {
        name: replace(each, confirm=confirm(int(name))) if name in sent_on else each
        for name, each in screened.items()
    }


def reds(evidence: Mapping[str, Evidence]) -> set[str]:
    """Return the cases that are red."""
    p = slower_p(evidence, RULE)
    q = false_discovery_control(list(p.values()))
    return {name for name, value in zip(p, q, strict=True) if value <= RULE.alpha}


def green(evidence: Evidence, cases: int) -> bool:
    """Return whether a case that is not red would have shown a slowdown of the target."""
    pairs = evidence.confirm or evidence.screen
    margin, spread = RULE.margin_of(pairs), float(pairs.ratios.std(ddof=1))
    least = detectable(spread, len(pairs.base), margin, RULE, cases)
    return math.expm1(least) <= TARGET


@dataclass
class Rates:
    """The outcomes of the slowed case and of the gate, counted over many gates."""

    gates: int = 0
    case_red: int = 0
    case_green: int = 0
    any_red: int = 0


def simulate(
    model: Model, gates: int, slowdown: float = 0.0, cases: int = CASES, every: bool = False
) -> Rates:
    """Count gates under *model*, with one case (or *every* case) slower by *slowdown*."""
    rates = Rates(gates)
    for seed in range(gates):
        logs = model(numpy.random.default_rng(seed), 2 * PAIRS, cases)
        slower = [slowdown * (every or not case) for case in range(logs.shape[1])]
        evidence = gate(logs, seed, slower)
        red = reds(evidence)
        rates.any_red += bool(red)
        rates.case_red += "0" in red
        rates.case_green += "0" not in red and green(evidence["0"], logs.shape[1])
    return rates


MARGINAL: Mapping[str, Mapping[str, Any]] = {
    "one case + 1 %": {"slowdown": 0.01},
    "all cases + 1 %": {"slowdown": 0.01, "every": True},
    "a gate of one case, + 1 %": {"slowdown": 0.01, "cases": 1},
}


def false_alarms(name: str) -> Rates:
    """Simulate gates without a change under one model."""
    return simulate(UNCHANGED[name], GATES)


def caught(name: str) -> Rates:
    """Simulate gates with a slowdown of the target under one model."""
    return simulate(SLOWED[name], POWER_GATES, TARGET)


def at_the_margin(name: str) -> Rates:
    """Simulate gates with a slowdown of the margin; processes scatter by 0.5 % and drift by 1 %."""
    return simulate(normal(0.005, 0.01), POWER_GATES, **MARGINAL[name])


def tables(pool: Executor) -> Iterable[str]:
    """Yield the lines to print; each processor simulates a row."""
    yield f"no change: red of {GATES} gates (at most, with 95 % confidence)"
    total = 0
    for name, found in zip(UNCHANGED, pool.map(false_alarms, UNCHANGED), strict=True):
        total += found.any_red
        most = bound(found.any_red, GATES, above=True) * 100
        yield f"  {name:36} {found.any_red:4}  ({most:.2f} %)"
    every = GATES * len(UNCHANGED)
    yield f"  {'all':36} {total:4}  ({bound(total, every, above=True) * 100:.2f} % of {every})"

    yield f"\nslower by the margin, {POWER_GATES} gates: the case is red, any case is red"
    for name, found in zip(MARGINAL, pool.map(at_the_margin, MARGINAL), strict=True):
        red, any_red = found.case_red / found.gates, found.any_red / found.gates
        yield f"  {name:36} {red * 100:5.1f} %  {any_red * 100:5.1f} %"

    yield f"\n5 % slower (the target), {POWER_GATES} gates: the case is red, green, inconclusive"
    for name, found in zip(SLOWED, pool.map(caught, SLOWED), strict=True):
        red, ok = found.case_red / found.gates, found.case_green / found.gates
        yield f"  {name:36} {red * 100:5.1f} %  {ok * 100:5.1f} %  {(1 - red - ok) * 100:5.1f} %"


def resampled() -> Iterable[str]:
    """Yield the rates of gates resampled from the processes of the committed gates."""
    paths = [p for kind in ("same", "slower") for p in sorted(VERDICTS.glob(f"{kind}-*/*.json"))]
    rates = resample(pool_of([read_report(path) for path in paths]), RULE, RESAMPLED, seed=0)
    yield (
        f"\nresampled from {rates.processes} processes of {len(paths)} real gates: "
        f"{rates.red} of {rates.gates} red without a change"
    )
    for share, (caught_count, of) in rates.power.items():
        yield f"  {float(share) * 100:g} % slower: caught in {caught_count} of {of}"


def main() -> None:
    """Print all tables."""
    with ProcessPoolExecutor() as pool:
        for line in tables(pool):
            print(line, flush=True)
    for line in resampled():
        print(line, flush=True)


if __name__ == "__main__":
    main()
