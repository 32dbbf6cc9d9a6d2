"""Find the fastest of cuBLASLt's algorithms for one product, and how much its heuristic loses.

The heuristic lists algorithms by their estimated time. All of them are screened, then algorithms
that differ from the fastest ones in one attribute, until none is faster. In the finals the fastest
and the heuristic's first choice are timed in turn, as the measurement will time them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from gpuperf.kernels._cublaslt import Algorithm, Product, Refused, open_library

from gpuperf import Implementation, Point
from gpuperf.errors import Unsupported
from gpuperf.jit import Tuned, remembered, sample_candidate, time_candidate

REQUESTED = 256  # algorithms asked of the heuristic; on an H100 it lists fewer
OF_EACH, NUMBERS = 8, 64  # algorithms of one number, and numbers of algorithms
SCREEN_S = 3.0  # seconds for all samples of the screening
HOPEFUL = 1.25  # times the fastest so far, beyond which one sample of an algorithm is enough
SAMPLES = 3  # of a hopeful algorithm
PARENTS, CLIMBS = 3, 4  # algorithms whose neighbours are screened, and how often
GAIN = 0.002  # share of the time that a climb must gain for another
FINALISTS, ROUNDS = 6, 3
TIE = 0.002  # share of a time by which the finals scatter (H100): the heuristic's choice wins ties
AGREED = 0.05  # of the largest element: a difference of results that no rounding explains

Measure = Callable[[Algorithm], float]


@dataclass(frozen=True)
class Found:
    """The fastest algorithm and the heuristic's first choice, with their seconds in the finals, and
    how many algorithms were tried, and how many of them cuBLASLt refused to run."""

    best: Algorithm
    first: Algorithm
    best_s: float
    first_s: float
    tried: int
    refused: int = 0

    @property
    def loss(self) -> float:
        """By how much the heuristic's choice is slower, as a fraction of the best time."""
        return self.first_s / self.best_s - 1


@dataclass
class Screening:
    """The shortest time of each algorithm that runs; no sample begins after *limit_s* seconds."""

    sample: Measure
    limit_s: float
    clock: Callable[[], float] = time.perf_counter
    times: dict[Algorithm, float] = field(default_factory=dict)
    seen: set[tuple[int, ...]] = field(default_factory=set)
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.clock()

    def screen(self, algorithms: Iterable[Algorithm]) -> None:
        """Time those of *algorithms* that are new, until the time is over."""
        for algorithm in algorithms:
            if self.clock() - self._began > self.limit_s:
                return
            if algorithm.words not in self.seen:
                self.seen.add(algorithm.words)
                self._time(algorithm)

    def _time(self, algorithm: Algorithm) -> None:
        best_s = min(self.times.values(), default=float("inf"))
        try:
            time_s = self.sample(algorithm)
            if time_s <= HOPEFUL * best_s:
                time_s = min(time_s, *(self.sample(algorithm) for _ in range(SAMPLES - 1)))
        except Refused:  # the check promises no success
            return
        self.times[algorithm] = time_s

    def fastest(self, count: int) -> list[Algorithm]:
        """Return the *count* fastest algorithms, the fastest first."""
        return sorted(self.times, key=lambda algorithm: self.times[algorithm])[:count]


def search(
    listed: Sequence[Algorithm],
    neighbours: Callable[[Algorithm], Iterable[Algorithm]],
    sample: Measure,
    settled: Measure,
    agrees: Callable[[Algorithm], bool] = lambda algorithm: True,
    clock: Callable[[], float] = time.perf_counter,
) -> Found:
    """Return the fastest algorithm that descends from *listed*, the heuristic's list.

    `sample` takes one quick time, `settled` one as the measurement takes it; a finalist must agree
    with the heuristic's choice in its result. Raises: Refused if no algorithm runs.
    """
    screening = Screening(sample, SCREEN_S, clock)
    screening.screen(listed)
    if not screening.times:
        raise Refused(f"none of {len(listed)} algorithms runs", "choose --impl torch")
    climbed: set[tuple[int, ...]] = set()
    for _ in range(CLIMBS):
        before_s = screening.times[screening.fastest(1)[0]]
        for parent in screening.fastest(PARENTS):
            if parent.words not in climbed:
                climbed.add(parent.words)
                screening.screen(neighbours(parent))
        if screening.times[screening.fastest(1)[0]] > (1 - GAIN) * before_s:
            break
    first = next(algorithm for algorithm in listed if algorithm in screening.times)
    rivals = (a for a in screening.fastest(len(screening.times)) if a != first)
    finalists = [first, *_agreeing(rivals, agrees)]
    times = finals(finalists, settled)
    if not times:
        raise Refused(f"none of {len(finalists)} finalists runs again", "choose --impl torch")
    best = min(times, key=lambda algorithm: times[algorithm])
    first = first if first in times else best
    if times[best] > (1 - TIE) * times[first]:
        best = first
    tried = len(screening.seen)
    refused = tried - len(screening.times) + len(finalists) - len(times)
    return Found(best, first, times[best], times[first], tried, refused)


def _agreeing(
    rivals: Iterable[Algorithm], agrees: Callable[[Algorithm], bool]
) -> Iterable[Algorithm]:
    """Yield the first `FINALISTS` of *rivals* whose results agree with that of the first choice."""
    count = 0
    for rival in rivals:
        if count == FINALISTS:
            return
        if agrees(rival):
            count += 1
            yield rival


def finals(finalists: Sequence[Algorithm], settled: Measure) -> Mapping[Algorithm, float]:
    """Return the median time of each of *finalists* that runs, timed in turn; every other round
    backwards."""
    times: dict[Algorithm, list[float]] = {algorithm: [] for algorithm in finalists}
    for turn in range(ROUNDS):
        for algorithm in list(times)[:: -1 if turn % 2 else 1]:
            try:
                times[algorithm].append(settled(algorithm))
            except Refused:
                del times[algorithm]
    return {algorithm: statistics.median(own) for algorithm, own in times.items()}


class LtCall(Tuned):
    """The call of one algorithm, whose readings are the loss of the heuristic and the algorithms
    that were tried, and refused, in the *choice*."""

    def __init__(
        self, call: Callable[[], Any], algorithm: Algorithm, choice: Mapping[str, int]
    ) -> None:
        super().__init__(call, algorithm.described)
        self._readings = {
            "heuristic_loss": choice["first"] / max(choice["best"], 1) - 1,
            "algorithms_tried": float(choice["tried"]),
            "algorithms_refused": float(choice.get("refused", 0)),
        }

    def readings(self) -> dict[str, float]:
        """Return the numbers of the search."""
        return self._readings


def matmul_cublaslt(inputs: Mapping[str, torch.Tensor], point: Point, options: object) -> LtCall:
    """Build the product by the fastest of cuBLASLt's algorithms. Raises: Unsupported, Refused."""
    product = product_of(inputs, point)
    version = product.library.version

    def find() -> dict[str, int]:
        found = search(
            listed_algorithms(product, point),
            product.neighbours,
            lambda algorithm: sample_candidate(product.call(algorithm)),
            lambda algorithm: time_candidate(product.call(algorithm)),
            agreement(product, point),
        )
        words = {f"word{i}": word for i, word in enumerate(found.best.words)}
        picoseconds = {"first": round(found.first_s * 1e12), "best": round(found.best_s * 1e12)}
        counts = {"tried": found.tried, "refused": found.refused + product.refused}
        return {"version": version, **words, **picoseconds, **counts}

    def usable(choice: Mapping[str, int]) -> bool:
        return choice.get("version") == version and product.checked(words_of(choice)) is not None

    choice = remembered(find, usable)
    algorithm = product.checked(words_of(choice))
    if algorithm is None:
        raise Refused("cuBLASLt refuses the algorithm that it ran", "choose --impl torch")
    return LtCall(product.call(algorithm), algorithm, choice)


def words_of(choice: Mapping[str, int]) -> tuple[int, ...]:
    """Return the words of the algorithm in a stored *choice*."""
    return tuple(choice.get(f"word{i}", 0) for i in range(8))


def matmul_heuristic(inputs: Mapping[str, torch.Tensor], point: Point, options: object) -> Tuned:
    """Build the product by the first choice of cuBLASLt's heuristic. Raises: Unsupported."""
    product = product_of(inputs, point)
    first = listed_algorithms(product, point, 1)[0]
    return Tuned(product.call(first), first.described)


def product_of(inputs: Mapping[str, torch.Tensor], point: Point) -> Product:
    """Describe the product of the *inputs* to cuBLASLt."""
    a, b = inputs["a"], inputs["b"]
    index = a.device.index if a.device.index is not None else torch.cuda.current_device()
    return Product(open_library(index), a, b, point)


def listed_algorithms(product: Product, point: Point, count: int = REQUESTED) -> list[Algorithm]:
    """Return the heuristic's list, its best first; if *count* allows, then configurations of every
    algorithm for these types. Raises: Unsupported where there is none."""
    listed: list[Algorithm] = product.heuristic(count)
    if not listed:
        m, n, k = point.m, point.n, point.k
        raise Unsupported(f"cuBLASLt has no algorithm for {m}×{n}×{k} in {point.dtype}")
    for number in product.numbers(NUMBERS) if count > 1 else ():
        listed += product.heuristic(OF_EACH, number)
    return listed


def agreement(product: Product, point: Point) -> Callable[[Algorithm], bool]:
    """Return a test whether the result of an algorithm is that of the heuristic's choice."""
    expected: list[torch.Tensor] = []

    def agrees(algorithm: Algorithm) -> bool:
        if not expected:
            expected.append(product.call(product.heuristic(1)[0])().clone())
        product.c.zero_()
        try:
            result = product.call(algorithm)()
        except Refused:
            return False
        scale = float(expected[0].abs().max())
        off = float((result.to(torch.float32) - expected[0].to(torch.float32)).abs().max())
        return off <= AGREED * scale

    return agrees


OLDEST = {"bf16": (8, 0), "tf32": (8, 0), "fp8": (8, 9), "int8": (7, 5)}


def cublaslt_supports(point: Point, device: Any) -> str | None:
    """Return why cuBLASLt cannot run the point, or None where it can.

    Sources: the cuBLAS documentation 13, cublasLtMatmul, requirements of IMMA and fp8 kernels.
    """
    if device.kind != "cuda":
        return "cuBLASLt needs an NVIDIA GPU"
    least = OLDEST.get(point.dtype, (0, 0))
    if tuple(int(part) for part in device.capability.split(".")) < least:
        return f"{point.dtype} needs compute capability {least[0]}.{least[1]}"
    by = {"fp8": 16, "int8": 4}.get(point.dtype, 1)
    if point.n % by or point.k % by:
        return f"cuBLASLt needs multiples of {by} for n and k in {point.dtype}"
    return None


CUBLASLT = (
    Implementation(
        "cublaslt_heuristic",
        matmul_heuristic,
        "cuBLASLt, first choice of its heuristic",
        cublaslt_supports,
    ),
    Implementation(
        "cublaslt", matmul_cublaslt, "cuBLASLt, fastest of its algorithms", cublaslt_supports
    ),
)
