"""Draw the requests of a trace: lengths from published quantiles or simple laws, Poisson arrivals.

The quantiles are of the requests to two services of Azure in November 2023, from the traces that
vidur publishes as splitwise_conv.csv and splitwise_code.csv (github.com/microsoft/vidur, commit
7d47513, data/processed_traces).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy

from gpuperf.theory.serving.load import Load

if TYPE_CHECKING:
    from numpy.random import Generator

    Numbers = numpy.ndarray[Any, numpy.dtype[Any]]

SHARES = (
    *(0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65),
    *(0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1),
)


@dataclass(frozen=True)
class Quantiles:
    """The tokens of prompts and of outputs at the shares SHARES of all requests."""

    prompt: tuple[int, ...]
    output: tuple[int, ...]


MEASURED = {
    "conversation": Quantiles(
        prompt=(
            *(2, 29, 91, 181, 207, 372, 387, 396, 403, 414, 703, 984, 1020, 1045, 1071, 1097),
            *(1130, 1189, 1315, 1876, 2734, 4083, 4098, 4142, 4831, 6179, 14050),
        ),
        output=(
            *(7, 16, 24, 41, 54, 67, 77, 85, 91, 96, 103, 113, 129, 151, 177, 217),
            *(384, 395, 400, 411, 424, 451, 540, 601, 643, 954, 1000),
        ),
    ),
    "code": Quantiles(
        prompt=(
            *(3, 17, 35, 75, 147, 232, 386, 578, 770, 939, 1075, 1261, 1469, 1690, 1909, 2164),
            *(2433, 2744, 3192, 3920, 5188, 7303, 7436, 7436, 7437, 7437, 7437),
        ),
        output=(
            *(6, 6, 6, 6, 7, 7, 8, 9, 9, 10, 11, 12, 13, 14, 16, 18),
            *(20, 24, 29, 39, 55, 90, 171, 251, 359, 825, 1899),
        ),
    ),
}
LAWS = ("uniform", "geometric", "log-normal", "constant")
TRACES = (*MEASURED, *LAWS)


def draw_load(trace: str, requests: int, seed: int, prompt: int, output: int) -> Load:
    """Draw *requests* requests of *trace* that are all there at time 0.

    For a law, all prompts have *prompt* tokens, and outputs have *output* tokens on average:
    uniform from 1 to twice as many (half a token more on average), geometric, log-normal with a
    standard deviation equal to the mean, or constant.
    """
    draws = numpy.random.default_rng(seed)
    if trace in MEASURED:
        quantiles = MEASURED[trace]
        prompts = _of_quantiles(quantiles.prompt, requests, draws)
        outputs = _of_quantiles(quantiles.output, requests, draws)
    else:
        prompts, outputs = [prompt] * requests, _of_law(trace, output, requests, draws)
    return Load([0.0] * requests, prompts, outputs)


def _of_quantiles(quantiles: Sequence[int], requests: int, draws: Generator) -> list[int]:
    """Draw lengths: the logarithm is interpolated linearly between the quantiles."""
    logs = numpy.interp(draws.random(requests), SHARES, numpy.log(quantiles))
    return _whole(numpy.exp(logs))


def _of_law(law: str, mean: int, requests: int, draws: Generator) -> list[int]:
    if law == "uniform":
        return _whole(draws.integers(1, 2 * mean, requests, endpoint=True))
    if law == "geometric":
        return _whole(draws.geometric(1 / mean, requests))
    if law == "log-normal":
        variance = numpy.log(2)  # of the logarithm, where the coefficient of variation is 1
        mu = numpy.log(mean) - variance / 2
        return _whole(draws.lognormal(mu, numpy.sqrt(variance), requests))
    return [mean] * requests


def _whole(values: Numbers) -> list[int]:
    lengths: list[int] = numpy.maximum(numpy.rint(values), 1).astype(int).tolist()
    return lengths


def with_arrivals(load: Load, rate: float, seed: int) -> Load:
    """Return *load* with Poisson arrivals, *rate* a second on average."""
    draws = numpy.random.default_rng((seed, 1))
    gaps = draws.exponential(1 / rate, len(load))
    return Load(numpy.cumsum(gaps).tolist(), load.prompt, load.output)


def at_once(load: Load) -> Load:
    """Return *load* with all its requests there at time 0."""
    return Load([0.0] * len(load), load.prompt, load.output)
