"""Measure a callable at each size of a range: `gpuperf.sweep`."""

from __future__ import annotations

import html
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gpuperf.errors import UsageError
from gpuperf.library.costs import cost_of
from gpuperf.library.measure import (
    BUDGET_S,
    PRECISION,
    Call,
    Conditions,
    case_of,
    name_of,
    settings,
)
from gpuperf.library.measurement import (
    Measurement,
    header_of,
    path_of,
    refuse_existing,
    run_of,
    save_run,
)
from gpuperf.library.run import Run
from gpuperf.model.contract import Cache, TimerName
from gpuperf.model.cost import Cost
from gpuperf.model.record import Header
from gpuperf.model.workload import Value
from gpuperf.run.plan import MOST_CASES
from gpuperf.run.runfile import RunWriter
from gpuperf.units import parse_range

if TYPE_CHECKING:
    import pandas
    import torch

Sizes = str | Iterable[Value]


@dataclass(frozen=True)
class Sweep:
    """One measurement for each point of a sweep, also where the callable got no time."""

    measurements: tuple[Measurement, ...]
    axes: tuple[str, ...]

    def __iter__(self) -> Iterator[Measurement]:
        return iter(self.measurements)

    def __len__(self) -> int:
        return len(self.measurements)

    def __getitem__(self, index: int) -> Measurement:
        return self.measurements[index]

    def run(self) -> Run:
        """Return the run, as `read_run` returns those of the command line."""
        return run_of(self.measurements, axes=self.axes)

    def save(self, path: str | Path) -> Path:
        """Write a run file, which `gpuperf show` prints. Return its path. Raises: UsageError."""
        return save_run(self.run(), path)

    def frame(self) -> pandas.DataFrame:
        """Return one row for each point; see `Run.frame`. Raises: GpuperfError without pandas."""
        return self.run().frame()

    def plot(self, path: str | Path) -> None:
        """Draw the roofline to *path*, PNG or SVG.

        Raises: UsageError for another suffix, and without any cost.
        """
        from gpuperf.roofline.chart import draw_roofline

        draw_roofline(self.run(), path)

    def __str__(self) -> str:
        return "\n".join(map(_line, self.measurements))

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return f"<pre>{html.escape(str(self))}</pre>"


def _line(measurement: Measurement) -> str:
    point = measurement.record.case.point
    first = str(measurement).splitlines()[0].split(": ", 1)[-1]
    return ", ".join(f"{name} = {value}" for name, value in point.items()) + f": {first}"


def sweep(
    make: Callable[..., Call],
    *,
    cost: Callable[..., Cost] | None = None,
    name: str = "",
    cache: Cache | None = None,
    timer: TimerName | None = None,
    precision: float = PRECISION,
    budget_s: float = BUDGET_S,
    device: str | torch.device | None = None,
    save: str | Path = "",
    **axes: Sizes,
) -> Sweep:
    """Measure the callable that *make* returns at each point of *axes*.

    `sweep(lambda n: lambda x=torch.ones(n): x.sin(), n="1k:1M:x4")` measures six sizes. An axis is
    a range as on the command line (`128:8192`, `1k:1M:x4`, `1,2,3`), or values. *make* and *cost*
    get the axes by name; *cost* returns the `Cost` of one call there. Each measurement is written
    to the run file *save* at once, if it is given, so that an interrupt loses none. The other
    arguments are those of `measure`.

    Where *make* or its callable raises, or memory ends, the point has the status `error` or `oom`
    with the reason, and the others are measured. Raises: UsageError, CannotMeasure; what *cost*
    raises, before anything is measured.
    """
    if not axes:
        raise UsageError("a sweep needs an axis", "for example n='1k:1M:x4'")
    values = {axis: _values(axis, sizes) for axis, sizes in axes.items()}
    points = [dict(zip(values, at, strict=True)) for at in itertools.product(*values.values())]
    if not 0 < len(points) <= MOST_CASES:
        raise UsageError(f"{len(points)} points are not from 1 to {MOST_CASES}", "narrow a range")
    _refuse_other_arguments(make, points[0], "make")
    if cost is not None:
        _refuse_other_arguments(cost, points[0], "cost")
    given = {"cache": cache, "timer": timer, "device": device}
    conditions = {key: value for key, value in given.items() if value is not None}
    calls = _calls_on_gpus(make, points[0]) if device is None else ()
    chosen = settings(Conditions(**conditions, precision=precision, budget_s=budget_s), calls)  # type: ignore[typeddict-item]
    named = name or name_of(make)
    needs = [cost_of(cost(**point), None, None, "") if cost else None for point in points]
    cases = [case_of(named, point=point) for point in points]
    measurements: list[Measurement] = []
    if save:
        refuse_existing(path_of(save))
    with RunWriter(path_of(save), fresh=True) if save else nullcontext() as writer:
        header: Header | None = None
        for point, case, need in zip(points, cases, needs, strict=True):
            taken = chosen.attempt(partial(make, **point), case, need)
            measurements.append(taken)
            if writer is not None:
                if header is None:
                    header = header_of(taken, cases, axes=tuple(values))
                    writer.header(header)
                writer.record(replace(taken.record, run=header.run))
    return Sweep(tuple(measurements), tuple(values))


def _calls_on_gpus(make: Callable[..., Call], point: Mapping[str, Value]) -> Iterator[Call]:
    """Yield the callable of *point*, whose tensors say which of several GPUs it uses."""
    from gpuperf.measure.callables import has_several_gpus

    if has_several_gpus():
        with suppress(Exception):  # it is reported when the point is measured
            yield make(**point)


def _refuse_other_arguments(
    function: Callable[..., object], point: Mapping[str, Value], name: str
) -> None:
    """Raise UsageError if *function*, called *name*, cannot be called with the axes."""
    try:
        inspect.signature(function, follow_wrapped=False).bind(**point)
    except TypeError as error:
        message = f"{name} is called with {', '.join(point)}: {error}"
        raise UsageError(message, "name its arguments like the axes") from None
    except ValueError:  # it has no signature that Python knows
        return


def _values(axis: str, sizes: Sizes) -> tuple[Value, ...]:
    if isinstance(sizes, str):
        try:
            return parse_range(sizes)
        except ValueError as error:
            raise UsageError(f"{axis}={sizes!r}: {error}", f"{axis}='128:8192'") from None
    if isinstance(sizes, Mapping) or not isinstance(sizes, Iterable):
        raise UsageError(f"{axis}={sizes!r:.60} is neither a range nor values", f"{axis}=[1, 2]")
    return tuple(sizes)
