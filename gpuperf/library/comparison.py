"""Compare callables in this process, in turns: `gpuperf.compare`."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Unpack

from gpuperf.errors import UnknownName, UsageError
from gpuperf.library.costs import cost_of
from gpuperf.library.measure import (
    BUDGET_S,
    Call,
    Conditions,
    Settings,
    case_of,
    refuse_numbers,
    refuse_unknown,
    settings,
)
from gpuperf.library.measurement import Measurement, run_of, save_run
from gpuperf.library.processes import measure_in_processes
from gpuperf.library.run import Run
from gpuperf.model.cost import Cost
from gpuperf.model.record import MOST_PROCESSES, Caveat, Record, Status
from gpuperf.model.samples import Samples
from gpuperf.roofline.processes import reduce_processes
from gpuperf.roofline.speedup import Speedup, center, key_of, speedups
from gpuperf.units import format_interval, format_number, format_time

EXAMPLE = "compare({'eager': f, 'fused': g})"
ROUNDS = 5  # in which each callable is measured once; the interval has 4 degrees of freedom
MOST_ROUNDS = 1000


@dataclass(frozen=True)
class Comparison:
    """Measurements of callables by name, and how much faster each is than the *baseline*.

    Each speed-up has the interval of its ratios over the rounds of this process, or over
    *processes* if there are several: only those show how processes differ. `intervals_s` has then
    the 95 % interval of each time over them, and `records` what each of them measured.
    """

    measurements: Mapping[str, Measurement]
    baseline: str
    rounds: int
    speedups: Mapping[str, Speedup] = field(default_factory=dict)
    processes: int = 1
    intervals_s: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    records: tuple[Record, ...] = ()

    def __getitem__(self, name: str) -> Measurement:
        return self.measurements[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.measurements)

    def run(self) -> Run:
        """Return the run, as `read_run` returns those of the command line."""
        run = run_of([*self.measurements.values()], self.baseline)
        if not self.records:
            return run
        header = replace(run.header, processes=self.processes)
        return Run(header, tuple(replace(record, run=header.run) for record in self.records))

    def save(self, path: str | Path) -> Path:
        """Write a run file, which `gpuperf show` prints. Return its path. Raises: UsageError."""
        return save_run(self.run(), path)

    def __str__(self) -> str:
        width = max(len(name) for name in self.measurements)
        lines = []
        for name, measurement in self.measurements.items():
            record, samples = measurement.record, measurement.record.samples
            if samples is None or record.status != "ok":
                lines.append(f"{name:{width}}  {record.status}: {record.reason}")
                continue
            low_high = self.intervals_s.get(name, samples.interval_s)
            interval = format_interval(samples.median_s, *low_high)
            if interval == "unknown":  # of too few processes, say
                interval = " to ".join(format_time(max(end, 0.0)) for end in low_high)
            line = f"{name:{width}}  {format_time(samples.median_s):>9} {interval}"
            if name in self.speedups and name != self.baseline:
                line += f"  {_times(self.speedups[name])}"
            lines.append(line)
        for name, measurement in self.measurements.items():
            lines += [f"{name:{width}}  {c.kind}: {c.message}" for c in measurement.record.caveats]
        where = f"{self.rounds} rounds of one process"
        where = f"{self.processes} fresh processes" if self.processes > 1 else where
        how = f"in {where}, over {self.baseline}"
        return "\n".join([*lines, f"speed-ups {how}"])

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return f"<pre>{html.escape(str(self))}</pre>"


def _times(speedup: Speedup) -> str:
    value = f"{format_number(speedup.value)}x"
    if speedup.low is None or speedup.high is None:
        return value
    return f"{value} ({format_number(speedup.low)} to {format_number(speedup.high)})"


def compare(
    calls: Mapping[str, Call | str],
    *,
    check: bool | float = True,
    baseline: str = "",
    rounds: int = ROUNDS,
    processes: int = 1,
    cost: Cost | None = None,
    name: str = "compare",
    **conditions: Unpack[Conditions],
) -> Comparison:
    """Measure *calls*, by name, in turns, and return their times and speed-ups.

    In each of *rounds* every callable is measured once, in an order that turns from round to round,
    so that a drift of the clock meets all of them. A callable gets *budget_s* in all.

    With *check* the results are compared with those of the *baseline* (by default the first one);
    a number is the tolerance, relative to the size of the values. A wrong result gets no time. So
    no callable may change a tensor that another one reads. *cost* holds for each callable, and the
    conditions are those of `measure`.

    With several *processes* each of them measures all callables once, in place of the rounds. It
    rebuilds them: each is a function of a module, or its name `"file.py:function"` or
    `"module:function"`; `"file.py:make()"` is the callable that `make` returns.

    A callable that raises has the status `error` with the reason, and the others are measured.
    Raises: UsageError, CannotMeasure; what the baseline raises.
    """
    if not isinstance(calls, Mapping):
        message = f"the callables are a {type(calls).__name__}, not a dict of them by name"
        raise UsageError(message, EXAMPLE)
    if not calls:
        raise UsageError("there is nothing to compare", EXAMPLE)
    refuse_unknown(conditions)
    refuse_numbers(conditions)
    if not isinstance(check, bool | int | float) or not 0 <= check < math.inf:
        raise UsageError(f"check={check!r:.40} is not a tolerance", "check=1e-3, or check=False")
    if not 2 <= rounds <= MOST_ROUNDS:
        raise UsageError(f"rounds={rounds} is not from 2 to {MOST_ROUNDS}", "rounds=5")
    if not 1 <= processes <= MOST_PROCESSES:
        raise UsageError(f"processes={processes} is not from 1 to {MOST_PROCESSES}", "processes=3")
    names = list(calls)
    first = baseline or names[0]
    if first not in calls:
        raise UnknownName("callable to compare with", first, calls)
    counted = cost_of(cost, None, None, "")
    budget_s = conditions.get("budget_s", BUDGET_S) / (rounds if processes == 1 else processes)
    shared = Conditions(**{**conditions, "budget_s": budget_s})
    if processes > 1:
        every = measure_in_processes(calls, first, check, counted, name, shared, processes)
        return _over_processes(every, first, processes)
    functions = _functions(calls)
    chosen = settings(shared, functions.values())
    return _in_turns(functions, first, check, counted, name, chosen, rounds)


def _functions(calls: Mapping[str, Call | str]) -> dict[str, Call]:
    """Return *calls* if none is the name of a function. Raises: UsageError."""
    for name, call in calls.items():
        if isinstance(call, str):
            hint = "give processes=3, or the function itself"
            raise UsageError(f"{name!r} is a name, which other processes rebuild", hint)
    return {name: call for name, call in calls.items() if not isinstance(call, str)}


def _over_processes(every: Sequence[Measurement], first: str, processes: int) -> Comparison:
    records = tuple(measurement.record for measurement in every)
    each = {one.record.case.implementation: one for one in reduce_processes(records, processes)}
    faster = speedups(records, first)
    return Comparison(
        {name: replace(every[0], record=one.record) for name, one in each.items()},
        first,
        processes,
        {name: s for name, one in each.items() if (s := faster.get(key_of(one.record)))},
        processes,
        {name: one.interval_s for name, one in each.items() if one.interval_s},
        records,
    )


def _in_turns(
    calls: Mapping[str, Call],
    first: str,
    check: bool | float,
    counted: Cost | None,
    name: str,
    chosen: Settings,
    rounds: int,
) -> Comparison:
    """Measure *calls* in this process, in rounds."""
    names = list(calls)
    wrong, unchecked = _wrong_results(calls, first, check)
    taken: dict[str, list[Measurement]] = {name: [] for name in names}
    for turn in range(rounds):
        for each in names if turn % 2 == 0 else reversed(names):
            if each not in wrong and all(m.record.status == "ok" for m in taken[each]):
                case = case_of(name, each)
                taken[each].append(chosen.attempt(partial(calls.__getitem__, each), case, counted))
    measurements = {
        each: chosen.refused(case_of(name, each), *wrong[each])
        if each in wrong
        else _joined(taken[each])
        for each in names
    }
    measurements |= {each: _doubted(measurements[each], doubt) for each, doubt in unchecked.items()}
    speedups = {each: s for each in names if (s := _speedup(taken[first], taken[each], rounds))}
    return Comparison(measurements, first, rounds, speedups)


def _wrong_results(
    calls: Mapping[str, Call], first: str, check: bool | float
) -> tuple[dict[str, tuple[Status, str]], dict[str, Caveat]]:
    """Return the status and the reason of each callable whose result is not that of *first*, and
    the callables whose results cannot be compared."""
    if check is False:
        return {}, {}
    from gpuperf.measure.agreement import UNCHECKED, disagreement, has_tensors
    from gpuperf.measure.callables import status_of

    wanted = calls[first]()
    tolerance = None if check is True else float(check)
    wrong: dict[str, tuple[Status, str]] = {}
    unchecked: dict[str, Caveat] = {}
    for name, call in calls.items():
        if name != first:
            try:
                got = call()
                why = disagreement(got, wanted, tolerance)
            except Exception as error:
                wrong[name] = status_of(error)
            else:
                wrong |= {name: ("wrong", f"the result {why}")} if why else {}
                if not why and not has_tensors(got):
                    unchecked[name] = UNCHECKED
    return wrong, unchecked


def _doubted(measurement: Measurement, caveat: Caveat) -> Measurement:
    record = measurement.record
    return replace(measurement, record=replace(record, caveats=(*record.caveats, caveat)))


def _joined(rounds: Sequence[Measurement]) -> Measurement:
    """Return one measurement with the samples of all *rounds*, or the one that failed."""
    last = rounds[-1]
    if last.record.status != "ok" or len(rounds) == 1:
        return last
    records = [one.record for one in rounds]
    together = _all_samples(records)
    times = {
        name: together if name == last.record.primary else samples
        for name, samples in last.record.times.items()
    }
    caveats: dict[str, Caveat] = {c.kind: c for record in records for c in record.caveats}
    if together.precision <= last.record.contract.precision:
        caveats = {k: c for k, c in caveats.items() if k not in ("imprecise", "few-samples")}
    joined = replace(last.record, times=times, caveats=tuple(caveats.values()))
    return replace(last, record=joined)


def _all_samples(records: Sequence[Record]) -> Samples:
    each = [record.samples for record in records if record.samples is not None]
    return replace(
        each[0],
        values_s=tuple(value for samples in each for value in samples.values_s),
        sm_clock_hz=tuple(hz for samples in each for hz in samples.sm_clock_hz),
        offset_uncertainty_s=max(samples.offset_uncertainty_s for samples in each),
    )


def _speedup(
    base: Sequence[Measurement], own: Sequence[Measurement], rounds: int
) -> Speedup | None:
    """Return the speed-up from the ratio in each round; None if one of the two has no time."""
    both = [*base, *own]
    if len(base) < rounds or len(own) < rounds or any(m.record.status != "ok" for m in both):
        return None
    if base is own:
        return Speedup(1.0)
    ratios = [one.time_s / other.time_s for one, other in zip(base, own, strict=True)]
    return Speedup(*center(ratios))
