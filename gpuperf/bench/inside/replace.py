"""Replace the benchmark functions of Triton and FlashInfer by ones that gpuperf times.

They return what the originals return, in milliseconds; a call without a time gives NaN, and its
record says why. Calls by Triton and torch themselves, as an autotuner makes, go to the originals.
"""

from __future__ import annotations

import functools
import importlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from gpuperf.bench.inside.capture import Capture
from gpuperf.errors import UnknownName
from gpuperf.library.triton_api import MODES
from gpuperf.model.contract import Cache
from gpuperf.model.record import Record

# Packages whose own calls choose a configuration, and are not what a script measures.
TUNERS = ("triton.", "torch.")


@contextmanager
def replaced(capture: Capture, source: str) -> Iterator[tuple[str, ...]]:
    """Replace the functions while the body runs, and yield the names of those that are there.

    FlashInfer is imported only if the text *source* of the script names it.
    """
    with ExitStack() as stack:
        names = []
        testing = _module("triton.testing")
        if testing is not None:
            for name, ours in _triton(capture, testing).items():
                stack.enter_context(patch.object(testing, name, ours))
                names.append(f"triton.testing.{name}")
        flashinfer = _module("flashinfer.testing") if "flashinfer" in source else None
        if flashinfer is not None and hasattr(flashinfer, "bench_gpu_time"):
            ours = functools.partial(_bench_gpu_time, capture)
            for place in (flashinfer, _module("flashinfer.testing.utils")):
                if hasattr(place, "bench_gpu_time"):  # scripts import it from either
                    stack.enter_context(patch.object(place, "bench_gpu_time", ours))
            names.append("flashinfer.testing.bench_gpu_time")
        yield tuple(names)


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _triton(capture: Capture, testing: Any) -> Mapping[str, Callable[..., Any]]:
    """Return what replaces the functions of `triton.testing`, by their names."""
    theirs, graphed = testing.do_bench, testing.do_bench_cudagraph

    @functools.wraps(theirs)
    def do_bench(
        fn: Callable[[], Any],
        warmup: float = 25,
        rep: float = 100,
        grad_to_none: Iterable[Any] | None = None,
        quantiles: Sequence[float] | None = None,
        return_mode: str = "mean",
        **others: Any,  # of older versions: fast_flush, device_type
    ) -> Any:
        if _by_a_tuner():
            return theirs(fn, warmup, rep, grad_to_none, quantiles, return_mode, **others)
        return _milliseconds(capture, fn, grad_to_none, quantiles, return_mode)

    @functools.wraps(graphed)
    def do_bench_cudagraph(
        fn: Callable[[], Any],
        rep: float = 20,
        grad_to_none: Iterable[Any] | None = None,
        quantiles: Sequence[float] | None = None,
        return_mode: str = "mean",
    ) -> Any:
        if _by_a_tuner():
            return graphed(fn, rep, grad_to_none, quantiles, return_mode)
        return _milliseconds(capture, fn, grad_to_none, quantiles, return_mode, "hot")

    report = functools.partial(_perf_report, capture, testing.perf_report)
    names = ("do_bench", "do_bench_cudagraph", "perf_report")
    return dict(zip(names, (do_bench, do_bench_cudagraph, report), strict=True))


def _by_a_tuner() -> bool:
    """Return whether a package of `TUNERS` called the function that calls this one."""
    caller = sys._getframe(2).f_globals.get("__name__", "")
    return f"{caller}.".startswith(TUNERS)


def _milliseconds(
    capture: Capture,
    fn: Callable[[], Any],
    grad_to_none: Iterable[Any] | None,
    quantiles: Sequence[float] | None,
    return_mode: str,
    cache: Cache | None = None,
) -> Any:
    """Time *fn*, and return what `do_bench` returns. Raises: UnknownName; what *fn* raises."""
    if return_mode not in MODES:
        raise UnknownName("return_mode", str(return_mode), MODES)
    tensors = list(grad_to_none or ())

    def call() -> Any:
        for tensor in tensors:
            tensor.grad = None
        return fn()

    functools.update_wrapper(call, fn, updated=())
    record = capture.time(call if tensors else fn, cache)
    return summarized(record, quantiles, return_mode)


def summarized(record: Record, quantiles: Sequence[float] | None, return_mode: str) -> Any:
    """Return the milliseconds of *record* as Triton does: quantiles (a single one as a number), or
    the value that *return_mode* names; NaN without a time."""
    samples = record.samples if record.status == "ok" else None
    if quantiles:
        chosen = [1e3 * samples.quantile_s(q) if samples else math.nan for q in quantiles]
        return chosen[0] if len(chosen) == 1 else chosen
    if samples is None:
        return [] if return_mode == "all" else math.nan
    for mode, reduce in MODES.items():
        if mode == return_mode:
            return reduce([1e3 * value for value in samples.values_s])
    raise UnknownName("return_mode", return_mode, MODES)


def _perf_report(
    capture: Capture, theirs: Callable[[Any], Any], benchmarks: Any
) -> Callable[[Callable[..., Any]], Any]:
    """Do what `triton.testing.perf_report` does, and name what its function times."""
    every = benchmarks if isinstance(benchmarks, list | tuple) else [benchmarks]
    plots = {str(getattr(each, "plot_name", "")) for each in every}
    lines = {getattr(each, "line_arg", None) for each in every}

    def decorate(fn: Callable[..., Any]) -> Any:
        name = getattr(fn, "__name__", "benchmark")
        op = plots.pop() if len(plots) == 1 else f"{capture.file.stem}-{name}"

        @functools.wraps(fn)
        def named(*words: Any, **axes: Any) -> Any:
            line = next((axis for axis in lines if axis in axes), None)
            implementation = name if line is None else axes[line]
            point = {axis: value for axis, value in axes.items() if axis != line}
            with capture.at(op, implementation, point):
                return fn(*words, **axes)

        return theirs(benchmarks)(named)

    return decorate


def _bench_gpu_time(
    capture: Capture,
    fn: Callable[..., Any],
    *_: Any,
    input_args: Sequence[Any] = (),
    input_kwargs: Mapping[str, Any] | None = None,
    cold_l2_cache: bool = True,
    **__: Any,
) -> list[float]:
    """Return the milliseconds of each call, as `flashinfer.testing.bench_gpu_time` does.

    Numbers of iterations and backends are accepted and not needed.
    """
    call = functools.partial(fn, *input_args, **(input_kwargs or {}))
    functools.update_wrapper(call, fn, updated=())
    record = capture.time(call, None if cold_l2_cache else "hot")
    times: list[float] = summarized(record, None, "all")
    return times
