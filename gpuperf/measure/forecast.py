"""Forecast how long a call takes, from the same implementation's times at other sizes.

On a CPU a sweep soon comes to sizes whose single call takes longer than the whole budget of a case.
They are skipped before they run; on a GPU even the largest call is short, and no case is skipped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from gpuperf.model.contract import Contract
from gpuperf.model.cost import Cost
from gpuperf.model.workload import Case
from gpuperf.units import format_time

# Least number of calls of a case: the first call, the checked one, a warm-up and a sample.
CALLS = 4
# Seconds that a case may take even if its budget is smaller, which then only limits its samples.
LEAST_LIMIT_S = 2.0
# At this many times the cost a case cannot be forecast: the smaller case's time is mostly overhead.
FAR = 100.0


class Expected(NamedTuple):
    """The time that a call is expected to take, and whether it rests on a case of similar cost."""

    call_s: float
    near: bool


@dataclass
class Forecast:
    """Costs and times of earlier calls, by implementation, options and axes with text values."""

    _known: dict[tuple[object, ...], list[tuple[Cost, float]]] = field(default_factory=dict)

    def note(self, case: Case, cost: Cost, call_s: float) -> None:
        """Record that a call of *case* takes *call_s*."""
        self._known.setdefault(_group(case), []).append((cost, call_s))

    def expect(self, case: Case, cost: Cost) -> Expected | None:
        """Return the time of *case*, scaled from the earlier case nearest in cost, if any."""
        known = self._known.get(_group(case), ())
        ratios = [(ratio, call_s) for past, call_s in known if (ratio := _ratio(cost, past)) > 0]
        if not ratios:
            return None
        ratio, call_s = min(ratios, key=lambda pair: abs(math.log(pair[0])))
        return Expected(ratio * call_s, ratio <= FAR)

    def refusal(
        self, case: Case, cost: Cost, contract: Contract, call_s: float | None, calls: int = CALLS
    ) -> tuple[str, str] | None:
        """Return the reason and the hint to skip a case whose *calls* exceed its budget, or None.

        The forecast uses earlier cases of similar cost, and *call_s*, the seconds of a call of this
        case, if it was timed. A first call may compile, so the shorter of both counts; with *calls*
        of 1, *call_s* is a later call and counts by itself.
        """
        expected = self.expect(case, cost)
        if calls > 1:
            if expected is None or (call_s is None and not expected.near):
                return None
            call_s = expected.call_s if call_s is None else min(call_s, expected.call_s)
        refusal = _over_budget(call_s or 0.0, contract, calls)
        if refusal is not None:
            self.note(case, cost, call_s or 0.0)
        return refusal


def _over_budget(call_s: float, contract: Contract, calls: int = CALLS) -> tuple[str, str] | None:
    limit_s = max(contract.budget_s, LEAST_LIMIT_S)
    if calls * call_s <= limit_s:
        return None
    several = f", and a case needs {calls} of them" if calls > 1 else ""
    wanted = math.ceil(1.5 * CALLS * call_s)
    larger = f"a budget of {wanted} s (--budget, or budget_s of a suite) measures it"
    return (
        f"a call takes about {format_time(call_s, 2)}{several}: over the {limit_s:g} s of a case",
        larger if wanted <= 3600 else "choose smaller sizes",
    )


def _group(case: Case) -> tuple[object, ...]:
    words = tuple((k, v) for k, v in case.point.items() if isinstance(v, str))
    return (case.source, case.op, case.implementation, tuple(case.options.items()), words)


def _ratio(cost: Cost, past: Cost) -> float:
    """Return *cost* over *past* in FLOPs or bytes, whichever is greater; 0 if both lack one."""
    pairs = ((cost.flop_count, past.flop_count), (cost.dram_bytes, past.dram_bytes))
    return max((a / b for a, b in pairs if a and b), default=0.0)
