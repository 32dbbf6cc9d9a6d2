"""Time callables with the signatures of `triton.testing`: change one import, and no other line.

`do_bench` takes the arguments of Triton's, and returns what it returns, measured by gpuperf: the
kernels alone, without launch latency, after a rest in which the clock recovers.
"""

from __future__ import annotations

import functools
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from gpuperf.errors import CannotMeasure, UnknownName, UsageError
from gpuperf.library.measure import Call, measure, name_of

Mode = Literal["min", "max", "mean", "median", "all"]
MODES: Mapping[Mode, Callable[[Sequence[float]], Any]] = {
    "min": min,
    "max": max,
    "mean": statistics.fmean,
    "median": statistics.median,
    "all": list,
}


def do_bench(
    fn: Call,
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: Mode = "mean",
) -> Any:
    """Return the milliseconds of a call of *fn*, as `triton.testing.do_bench` does.

    *rep* are the milliseconds of sampling. *warmup* is accepted and not needed: *fn* is warmed up
    until its time no longer falls. The `grad` of each tensor in *grad_to_none* is dropped before
    each call. Return the *quantiles* of the samples, where given (a single one as a number), else
    their minimum, maximum, mean or median, or `all` of them.

    Raises: NotMeasured, UnknownName, UsageError; what *fn* raises.
    """
    if return_mode not in MODES:
        raise UnknownName("return_mode", str(return_mode), MODES)
    if quantiles is not None and not all(0 <= share <= 1 for share in quantiles):
        raise UsageError(f"quantiles={quantiles!r} are not all from 0 to 1", "for example [0.5]")
    tensors = list(grad_to_none or ())

    def call() -> Any:
        for tensor in tensors:
            tensor.grad = None
        return fn()

    timed = fn if not tensors else call
    samples = measure(timed, name=name_of(fn), budget_s=max(1e-3, rep / 1e3)).samples
    if quantiles is None:
        return MODES[return_mode]([1e3 * value for value in samples.values_s])
    chosen = [1e3 * samples.quantile_s(share) for share in quantiles]
    return chosen[0] if len(chosen) == 1 else chosen


def perf_report(benchmarks: Any) -> Callable[[Callable[..., Any]], Any]:
    """Do what `triton.testing.perf_report` does, with times by `do_bench` of this module.

    *benchmarks* are `triton.testing.Benchmark`s. Raises: CannotMeasure without Triton.
    """
    try:
        from triton import testing
    except ImportError:
        raise CannotMeasure("perf_report needs Triton", "pip install triton") from None

    def decorate(fn: Callable[..., Any]) -> Any:
        @functools.wraps(fn)
        def ours(*words: Any, **named: Any) -> Any:
            with in_place_of_triton():
                return fn(*words, **named)

        return testing.perf_report(benchmarks)(ours)

    return decorate


@contextmanager
def in_place_of_triton() -> Iterator[None]:
    """Have `triton.testing.do_bench` be that of this module, if the program has imported it."""
    testing = sys.modules.get("triton.testing")
    theirs = getattr(testing, "do_bench", None)
    if testing is None or theirs is None:
        yield
        return
    testing.do_bench = do_bench  # type: ignore[attr-defined]
    try:
        yield
    finally:
        testing.do_bench = theirs  # type: ignore[attr-defined]
