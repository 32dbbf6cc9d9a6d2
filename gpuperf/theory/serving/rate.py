"""Parse at which rate requests arrive: `closed`, `trace`, `5.5` a second, `80%` of the capacity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from gpuperf.errors import UsageError

HINT = "closed (all requests at once), 5.5 (a second), 80% (of the capacity) or trace; commas join"
LEAST, MOST = 1e-3, 1e9


@dataclass(frozen=True)
class Rate:
    """How requests arrive: all at once (`closed`), at the times of the `trace`, or as a Poisson
    process of `value` requests a `second`, or of `value` times the `capacity` of the policy."""

    kind: Literal["closed", "trace", "second", "capacity"]
    value: float = 0.0

    @property
    def text(self) -> str:
        """The rate as a user types it."""
        if self.kind == "capacity":
            return f"{self.value * 100:g}%"
        return f"{self.value:g}" if self.kind == "second" else self.kind


def parse_rate(text: str) -> Rate:
    """Parse one rate. Raises: UsageError."""
    if text in ("closed", "trace"):
        return Rate("closed" if text == "closed" else "trace")
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise UsageError(f"--rate {text[:40]!r} is not a rate", HINT)
    if value <= 0:
        raise UsageError(f"--rate {text[:40]} is not above 0", HINT)
    if not LEAST <= value <= MOST:
        raise UsageError(f"--rate {text[:40]} is not from {LEAST:g} to {MOST:g}", HINT)
    return Rate("capacity", value / 100) if text.endswith("%") else Rate("second", value)
