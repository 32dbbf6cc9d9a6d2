"""Judge a measurement against the budgets of the marker `gpuperf`.

A budget is exceeded when the whole interval of the measurement is beyond it. An interval that
contains the budget decides nothing, and the test passes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from gpuperf.errors import UnknownName, UsageError
from gpuperf.library.measurement import Measurement
from gpuperf.units import format_percent, format_time

Word = Literal["", "within", "OVER", "not decided", "ERROR"]
WORST: tuple[Word, ...] = ("ERROR", "OVER", "not decided", "within", "")
KNOWN = ("max_us", "min_fraction_of_roof")
EXAMPLE = "@pytest.mark.gpuperf(max_us=20, min_fraction_of_roof=0.8)"


class Mark(Protocol):
    """A marker of pytest, with what it was given."""

    @property
    def args(self) -> tuple[Any, ...]: ...
    @property
    def kwargs(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Budget:
    """The longest time in seconds, and the least fraction of the roof; None where not given."""

    most_s: float | None = None
    least_fraction: float | None = None

    def __str__(self) -> str:
        texts = []
        if self.most_s is not None:
            texts.append(f"≤ {quantity(self.most_s)}")
        if self.least_fraction is not None:
            texts.append(f"≥ {percent(self.least_fraction)}")
        return ", ".join(texts)


@dataclass(frozen=True)
class Decision:
    """What a budget says of a measurement: a word, and a sentence unless it is within."""

    word: Word = ""
    sentence: str = ""


def budget_of(marks: Iterable[Mark]) -> Budget:
    """Return the budget of *marks*, the closest to the test first. Raises: UsageError."""
    given: dict[str, Any] = {}
    for mark in marks:
        if mark.args:
            raise UsageError(
                f"the marker gpuperf has an argument without a name, {mark.args[0]!r:.40}", EXAMPLE
            )
        for name in mark.kwargs:
            if name not in KNOWN:
                raise UnknownName("argument of the marker gpuperf", name, KNOWN)
        given = {**mark.kwargs, **given}
    most_us = _number(given, "max_us", math.inf, "max_us=20 is 20 µs")
    least = _number(given, "min_fraction_of_roof", 1.0, "min_fraction_of_roof=0.8 is 80 %")
    return Budget(None if most_us is None else most_us * 1e-6, least)


def _number(given: Mapping[str, Any], name: str, most: float, hint: str) -> float | None:
    if name not in given:
        return None
    value = given[name]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not (0 < value <= most and math.isfinite(value)):
        limit = "a positive number" if most == math.inf else f"a number above 0 and up to {most:g}"
        raise UsageError(f"{name}={value!r:.40} of the marker gpuperf is not {limit}", hint)
    return float(value)


def decide(measurement: Measurement, budget: Budget) -> Decision:
    """Return the worst of what the budgets say of *measurement*."""
    record = measurement.record
    if record.status != "ok" or record.samples is None:
        return Decision("ERROR", f"it got no time: {record.status}: {record.reason}")
    each = [_time(measurement, budget.most_s), _fraction(measurement, budget.least_fraction)]
    sentences = "; ".join(one.sentence for one in each if one.sentence)
    return Decision(min((one.word for one in each), key=WORST.index), sentences)


def _time(measurement: Measurement, most_s: float | None) -> Decision:
    if most_s is None:
        return Decision()
    low, high = measurement.interval_s
    text = f"{format_time(measurement.time_s)} ({format_time(low)} to {format_time(high)})"
    if low > most_s:
        return Decision("OVER", f"{text} is over the budget of {quantity(most_s)}")
    if high > most_s:
        return Decision(
            "not decided",
            f"not decided: the interval of {text} contains the budget of {quantity(most_s)}; a "
            "larger budget_s= narrows the interval",
        )
    return Decision("within")


def _fraction(measurement: Measurement, least: float | None) -> Decision:
    if least is None:
        return Decision()
    placed = measurement.placement
    if placed is None:
        return Decision(
            "ERROR",
            "min_fraction_of_roof needs the cost of a call\nhint: gpuperf(fn, cost=…), or flops= "
            "and bytes=",
        )
    if placed.fraction is None:
        why = "; ".join(placed.reasons) or "no roof of this device is known"
        return Decision(
            "ERROR",
            f"min_fraction_of_roof needs a known roof: {why}\nhint: without a roof, give max_us",
        )
    middle, (low_s, high_s) = measurement.time_s, measurement.interval_s
    low = placed.fraction * middle / high_s
    # The interval of a noisy time reaches below 0: then the fraction has no upper end.
    high = placed.fraction * middle / low_s if low_s > 0 else math.inf
    interval = f"{format_percent(low)} to {format_percent(high)}"
    text = f"{format_percent(placed.fraction)} ({interval}) of the {placed.roof} roof"
    if high < least:
        return Decision("OVER", f"{text} is under the budget of {percent(least)}")
    if low < least:
        return Decision(
            "not decided",
            f"not decided: the interval of {text} contains the budget of {percent(least)}; a "
            "larger budget_s= narrows the interval",
        )
    return Decision("within")


def quantity(seconds: float) -> str:
    """Return a chosen time, which has no measured digits: `20 µs` for 20.00 µs."""
    number, _, unit = format_time(seconds).partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


def percent(fraction: float) -> str:
    """Return a chosen fraction in percent, which has no measured digits: `80 %`."""
    return f"{fraction * 100:.4g} %"
