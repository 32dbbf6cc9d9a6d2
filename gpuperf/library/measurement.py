"""Define `Measurement`, which `gpuperf.measure` returns: a record with its place under the roof."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.library.run import Run
from gpuperf.model.peaks import Peaks
from gpuperf.model.protocol import Opened
from gpuperf.model.record import Caveat, Header, Kernel, Record
from gpuperf.model.samples import Samples
from gpuperf.model.workload import Case
from gpuperf.roofline.study import Placement, place
from gpuperf.run.runfile import RunWriter
from gpuperf.run.session import make_header, new_run_id
from gpuperf.units import (
    format_bytes,
    format_flop_rate,
    format_interval,
    format_percent,
    format_rate,
    format_time,
)

# Hints name these values of the options.
VALUES = r"auto|wall|events|graph|blocked|activity|cold-dirty|cold|hot|cpu|cuda(?::\d+)?"
MOST_KERNELS = 4  # named when a measurement is printed


def in_python(hint: str) -> str:
    """Return a *hint* for the command line with the arguments of `measure` for its options."""
    named = re.sub(rf"--(timer|cache|device) ({VALUES})(?![\w-])", r"\1='\2'", hint)
    return re.sub(r"--budget\b", "budget_s", re.sub(r"--(timer|cache|device)\b", r"\1", named))


class NotMeasured(CannotMeasure):
    """A callable got no time; `record` holds its status, reason and hint."""

    def __init__(self, record: Record) -> None:
        hint = in_python(record.hint)
        super().__init__(f"{record.case.op}: {record.status}: {record.reason}", hint)
        self.record = record


@dataclass(frozen=True)
class Measurement:
    """The time of one callable, its doubts, and with a cost its place under the roofline.

    All times are in seconds, bytes and FLOPs those of one call.
    """

    record: Record
    opened: Opened = field(repr=False)
    peaks: Peaks | None = field(default=None, repr=False)
    peaks_reason: str = field(default="", repr=False)
    ceilings: Peaks | None = field(default=None, repr=False)

    @property
    def samples(self) -> Samples:
        """Samples of the primary time. Raises: NotMeasured unless the status is `ok`."""
        if self.record.samples is None or self.record.status != "ok":
            raise NotMeasured(self.record)
        return self.record.samples

    @property
    def time_s(self) -> float:
        """Median time of a call. Raises: NotMeasured."""
        return self.samples.median_s

    @property
    def interval_s(self) -> tuple[float, float]:
        """95 % interval of the median within this process, from 0 on. Raises: NotMeasured."""
        low, high = self.samples.interval_s
        return max(low, 0.0), high

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """GPU kernels of a call, by name; empty on a CPU."""
        return self.record.kernels

    @property
    def clock_hz(self) -> float | None:
        """SM clock inside the samples; None where it is unknown."""
        return self.samples.clock_hz

    @property
    def dram_bytes(self) -> float | None:
        """Bytes through DRAM that hardware counters counted; None without counters."""
        counts = self.record.counters
        if "dram_read_bytes" not in counts:
            return None
        return counts["dram_read_bytes"] + counts.get("dram_written_bytes", 0.0)

    @cached_property
    def placement(self) -> Placement | None:
        """Place under the roofline; None without a cost."""
        return place(self.record, self.peaks, self.ceilings)

    @property
    def caveats(self) -> tuple[Caveat, ...]:
        """Doubts about the time, and about the place under the roofline."""
        return (*self.record.caveats, *(self.placement.caveats if self.placement else ()))

    def save(self, path: str | Path) -> Path:
        """Write a run file, which `gpuperf show` prints and `read_run` reads. Return its path.

        Raises: UsageError for a path that cannot be written, or exists.
        """
        return save_run(run_of([self]), path)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        record, samples = self.record, self.record.samples
        if samples is None or record.status != "ok":  # an impossible time is kept, and not shown
            yield f"{record.case.op}: {record.status}: {record.reason}"
            if record.hint:
                yield f"  hint: {in_python(record.hint)}"
            return
        low, high = samples.interval_s
        interval = format_interval(samples.median_s, low, high)
        contract = record.contract
        yield f"{record.case.op}: {format_time(samples.median_s)} {interval}"
        how = f"timer {contract.timer}, {contract.cache} cache, {samples.size} samples"
        yield f"  {how} on {self.opened.device.name}"
        yield from self._place()
        if record.kernels:
            names = [f"{k.name[:60]} x {k.count}" for k in record.kernels[:MOST_KERNELS]]
            more = len(record.kernels) - MOST_KERNELS
            yield "  kernels: " + ", ".join([*names, *([f"{more} more"] if more > 0 else [])])
        for caveat in self.caveats:
            yield f"  {caveat.kind}: {caveat.message}"

    def _place(self) -> Iterator[str]:
        if self.dram_bytes is not None:
            yield f"  {format_bytes(self.dram_bytes)} through DRAM, counted"
        placed = self.placement
        if placed is None:
            return
        rates = [format_rate(placed.attained_byte_per_s)] if placed.attained_byte_per_s else []
        if placed.attained_flop_per_s:
            rates.append(format_flop_rate(placed.attained_flop_per_s))
        if placed.fraction is not None:
            share = f"{format_percent(placed.fraction)} of the {placed.roof} roof"
            rates.append(f"{share} ({placed.limiter})")
        yield "  " + ", ".join(rates)
        for reason in placed.reasons if placed.fraction is None else ():
            yield f"  no share of a roof: {reason}"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        first, *rest = [html.escape(line.strip()) for line in self._lines()]
        items = "".join(f"<li>{line}</li>" for line in rest)
        return f"<div><b>{first}</b><ul>{items}</ul></div>"


def run_of(
    measurements: Sequence[Measurement], baseline: str = "", axes: Sequence[str] = ()
) -> Run:
    """Return the run of *measurements*, which one device gave under one contract.

    *baseline* names the implementation that a comparison compares with, *axes* those of a sweep.
    """
    records = [measurement.record for measurement in measurements]
    cases = {record.case.id: record.case for record in records}
    header = header_of(measurements[0], list(cases.values()), baseline, axes)
    return Run(header, tuple(replace(record, run=header.run) for record in records))


def header_of(
    first: Measurement, cases: Sequence[Case], baseline: str = "", axes: Sequence[str] = ()
) -> Header:
    """Return the header of a run of *cases* that are measured as *first* is; see `run_of`."""
    header = make_header(
        new_run_id("measure", first.record.case.op),
        ("gpuperf.measure",),
        cases,
        [first.record.contract],
        first.opened,
        first.peaks,
        first.peaks_reason,
        first.ceilings,
    )
    study = "compare" if baseline else ""
    return replace(header, baseline=baseline, study=study, main=tuple(axes))


def path_of(path: str | Path) -> Path:
    """Return *path* as that of a run file, which ends with `.jsonl`."""
    target = Path(path)
    return target if target.suffix == ".jsonl" else target.with_name(f"{target.name}.jsonl")


def refuse_existing(target: Path) -> None:
    """Raise UsageError if *target* exists."""
    if target.exists():
        raise UsageError(f"{target} exists", "choose another path, or delete the file")


def save_run(run: Run, path: str | Path) -> Path:
    """Write *run* to *path*, with the suffix `.jsonl`. Return the path. Raises: UsageError."""
    target = path_of(path)
    refuse_existing(target)
    with RunWriter(target, fresh=True) as writer:
        writer.header(run.header)
        for record in run.records:
            writer.record(record)
    return target
