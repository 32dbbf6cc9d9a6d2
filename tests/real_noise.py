"""Draw gates from real measured noise."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy

GATES, CASES, ITERATIONS = 300, 50, 30  # 0 red of 299 bound the rate under 1 %
MEDIANS = 50_000  # the more, the smoother the tail from which the medians of processes are drawn


# 45 fresh processes on an H200, one after the other, cases in random order without a rest, so that
# clocks carry over from case to case.
REAL = json.loads((Path(__file__).parent / "data" / "noise_h200_medians.json").read_text())


@functools.cache
def unit_medians() -> Any:
    """Medians of the samples of `MEDIANS` processes, whose scatter is 1: Student's t of 4 degrees
    of freedom, and one sample of a hundred disturbed. Computed once, because each gate would need
    78,000 samples of its own."""
    random = numpy.random.default_rng(1)
    samples = random.standard_t(4, (MEDIANS, ITERATIONS))
    samples += random.exponential(3, samples.shape) * (random.random(samples.shape) < 0.01)
    return numpy.median(samples, axis=1)


class Noise:
    """Log medians of processes, which scatter *between* processes and *within* each, and drift over
    the gate; a fraction *slow* of the processes runs in a mode that is 8 % slower."""

    def __init__(
        self, between: float, within: float, drift: float = 0.0, slow: float = 0.0
    ) -> None:
        self.between, self.within, self.drift, self.slow = between, within, drift, slow

    def processes(self, random: numpy.random.Generator, count: int, cases: int) -> Any:
        """(count, cases), in the order they ran."""
        logs = self.within * random.choice(unit_medians(), (count, cases))
        logs += random.normal(0, self.between, (count, cases))
        logs += numpy.linspace(0, self.drift, count)[:, None]
        if self.slow:
            logs += 0.08 * (random.random((count, cases)) < self.slow)
        return logs


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
