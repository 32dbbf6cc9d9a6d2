"""Describe contracts and runs in one line."""

from __future__ import annotations

from collections.abc import Sequence

from gpuperf.model.contract import Contract
from gpuperf.model.record import Run
from gpuperf.model.text import shorten
from gpuperf.units import format_time

LONGEST = 44  # characters of a name
LONGEST_NOTE = 600  # characters of a note


def contract_text(contract: Contract, floor: str = "") -> str:
    """Write `blocked timer, cold cache, burst (10 ms idle before each sample), randn data`."""
    idle = plain_quantity(format_time(contract.gap_s, 3))
    gap = f" ({idle} idle before each sample)" if contract.gap_s else ""
    if contract.regime == "sustained":
        gap = f" (back to back, {plain_quantity(format_time(contract.settle_s, 3))} at most)"
    return (
        f"{contract.timer} timer{floor}, {contract.cache} cache, "
        f"{contract.regime}{gap}, {contract.data} data"
    )


def contracts_text(contracts: Sequence[Contract]) -> str:
    """Write several contracts as one: `blocked timer, cold and hot cache, burst, randn data`."""
    first = contracts[0]
    text = contract_text(first)
    for fact, word in (("timer", "timer"), ("cache", "cache"), ("data", "data")):
        names = list(dict.fromkeys(str(getattr(contract, fact)) for contract in contracts))
        text = text.replace(f"{names[0]} {word}", f"{' and '.join(names)} {word}", 1)
    regimes = list(dict.fromkeys(str(contract.regime) for contract in contracts))
    return text if len(regimes) == 1 else f"{text}; {' and '.join(regimes)}"


def plain_quantity(quantity: str) -> str:
    """Write `10.0 ms` as `10 ms`, since a chosen number has no measured digits."""
    number, unit = quantity.split(" ")
    return f"{float(number):g} {unit}"


def how(run: Run) -> str:
    """Describe how the times of *run* were taken."""
    return shorten(contracts_text([run.header.contract, *run.header.variants]), LONGEST_NOTE)


def note(run: Run, *parts: str) -> str:
    """Write the last line under a chart: *parts*, the run, and the version of gpuperf."""
    run_id = shorten(run.header.run, 2 * LONGEST)
    version = shorten(run.header.gpuperf, LONGEST)
    known = {"run": run_id, "gpuperf": version}
    named = [f"{word}\u00a0{name}" for word, name in known.items() if name]
    return " · ".join(filter(None, (*(shorten(part, LONGEST_NOTE) for part in parts), *named)))
