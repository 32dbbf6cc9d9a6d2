"""How long will a call take, by what the same implementation took at other sizes?

On a CPU a sweep soon comes to sizes whose single call takes longer than the whole budget of a case.
They are skipped before they run; on a GPU even the largest call is short, and none is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from gpuperf.model.contract import Contract
from gpuperf.model.cost import Cost
from gpuperf.model.workload import Case
from gpuperf.units import format_time

# Calls that a case needs at the least: the first, the one that is checked, a warm-up, a sample.
CALLS = 4
# A budget below this is taken for a wish for few samples, and skips nothing that is as short.
LEAST_LIMIT_S = 2.0
# A case of so many times the cost is too far away: the smaller one is all overhead.
FAR = 100.0


class Expected(NamedTuple):
    """The time that a call is expected to take, and whether a case of similar cost says so."""

    call_s: float
    near: bool


@dataclass
class Forecast:
    """What calls took so far, by implementation, options and every axis that is a word."""

    _known: dict[tuple[object, ...], list[tuple[Cost, float]]] = field(default_factory=dict)

    def note(self, case: Case, cost: Cost, call_s: float) -> None:
        """A call of *case* takes *call_s*."""
        self._known.setdefault(_group(case), []).append((cost, call_s))

    def expect(self, case: Case, cost: Cost) -> Expected | None:
        """By the case nearest in cost, in proportion; None where there is none."""
        known = self._known.get(_group(case), ())
        found = [(ratio, call_s) for other, call_s in known if (ratio := _ratio(cost, other)) > 0]
        if not found:
            return None
        ratio, call_s = min(found, key=lambda pair: abs(math.log(pair[0])))
        return Expected(ratio * call_s, ratio <= FAR)

    def refusal(
        self, case: Case, cost: Cost, contract: Contract, call_s: float | None, calls: int = CALLS
    ) -> tuple[str, str] | None:
        """The reason and the hint of a case whose *calls* exceed its budget, if they do: by what
        cases of similar cost took, and by *call_s* where a call was timed.

        A first call may compile, so it counts only where other cases lead to expect as much; a
        later one, of which *calls* is 1, counts by itself.
        """
        expected = self.expect(case, cost)
        if calls > 1:
            if expected is None or (call_s is None and not expected.near):
                return None
            call_s = expected.call_s if call_s is None else min(call_s, expected.call_s)
        told = _over_budget(call_s or 0.0, contract, calls)
        if told is not None:
            self.note(case, cost, call_s or 0.0)
        return told


def _over_budget(call_s: float, contract: Contract, calls: int = CALLS) -> tuple[str, str] | None:
    """The reason and the hint of a case whose *calls* of *call_s* exceed its budget, if they do."""
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


def _ratio(cost: Cost, other: Cost) -> float:
    """How many times the work of *other* that of *cost* is; 0 where neither says."""
    pairs = ((cost.flop_count, other.flop_count), (cost.dram_bytes, other.dram_bytes))
    return max((a / b for a, b in pairs if a and b), default=0.0)
