"""Draw gates from real measured noise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy

GATES, CASES, ITERATIONS = 300, 50, 30  # 0 red of 299 bound the rate under 1 %


# 45 fresh processes on an H200, one after the other, cases in random order without a rest, so that
# clocks carry over from case to case.
REAL = json.loads((Path(__file__).parent / "data" / "noise_h200_medians.json").read_text())


class Noise:
    """Log medians of processes: what scatters between them, drifts over the gate, and within."""

    def __init__(
        self, between: float, within: float, drift: float = 0.0, slow: float = 0.0
    ) -> None:
        self.between, self.within, self.drift, self.slow = between, within, drift, slow

    def processes(self, random: numpy.random.Generator, count: int, cases: int) -> Any:
        """(count, cases), in the order they ran."""
        t = random.standard_t(4, (count, cases, ITERATIONS)) * self.within
        t += random.exponential(3 * self.within, t.shape) * (random.random(t.shape) < 0.01)
        found = numpy.median(t, axis=2) + random.normal(0, self.between, (count, cases))
        found += numpy.linspace(0, self.drift, count)[:, None]
        if self.slow:
            found += 0.08 * (random.random((count, cases)) < self.slow)
        return found


MODELS = {
    "quiet": Noise(0.001, 0.003),
    "typical": Noise(0.005, 0.005, 0.01),
    "bimodal": Noise(0.005, 0.005, 0.01, 0.25),
    "thermal": Noise(0.005, 0.005, 0.04),
}


class RealNoise:
    """Processes that were measured: drawn in runs of neighbours, so that what carries over from one
    to the next stays."""

    def processes(self, random: numpy.random.Generator, count: int, cases: int) -> Any:
        pool = numpy.log(numpy.array(list(REAL["medians_us"].values()))).T
        starts = random.integers(0, len(pool), count // 4 + 1)
        rows = [(start + i) % len(pool) for start in starts for i in range(4)]
        return pool[rows[:count]]
