"""Make the table of a run: its columns with their units, its cells and its notes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gpuperf.model.counted import Counted
from gpuperf.model.record import Run
from gpuperf.model.text import shorten
from gpuperf.model.times import TimeName
from gpuperf.roofline.caption import caption, footnotes
from gpuperf.roofline.collectives import collective_columns, gang_notes, is_collective
from gpuperf.roofline.energy import energy_columns, energy_notes
from gpuperf.roofline.rows import Entry, entries_of
from gpuperf.roofline.study import Placement
from gpuperf.show.axes import Axes, dtype_of, implementation_of
from gpuperf.show.table import ALWAYS, Column, Mood, Note, Table
from gpuperf.units import (
    digits_of_percent,
    format_bytes,
    format_interval,
    format_number,
    format_si,
    format_time,
)

MOST_NAMED = 12  # operations in a title, and implementations in a note
MOST_SKIPPED = 10  # rows that were skipped for one reason; more become a note
NOTHING = "–"
LONGEST, SHORT = 40, 32  # characters of a name in a cell, and of one on a narrow screen
NARROW = 0.005  # width of a speed-up's interval over the speed-up, below which it has 4 digits


def sheet(run: Run) -> Table:
    """Return the table of *run*; a row without a time has a sentence in place of figures."""
    every, axes = entries_of(run), Axes(run.records, run.header.main)
    entries, skipped = _without_skipped(run, every)
    columns = [*_identity(entries, axes), *_figures(run, entries)]
    return Table(
        title=_title(run, axes),
        lead=() if entries else ("every case was skipped" if every else "no records",),
        columns=tuple(c for c in columns if c.keep == ALWAYS or set(c.cells) - {NOTHING}),
        failures=tuple(_failure(entry) for entry in entries),
        footnotes=tuple(footnotes(entries, axes)),
        notes=(
            *skipped,
            *_baseline_notes(run, every),
            *gang_notes(run),
            *energy_notes(entries),
            *caption(run, entries, axes),
        ),
    )


def shown_entries(run: Run) -> Sequence[Entry]:
    """Return the entries of *run* that are rows of its table, in their order."""
    return _without_skipped(run, entries_of(run))[0]


def _baseline_notes(run: Run, every: Sequence[Entry]) -> Iterable[Note]:
    name = run.header.baseline
    timed = list(dict.fromkeys(e.record.case.implementation for e in every if e.time is not None))
    if name and timed and name not in timed:
        missing = f"{shorten(name, LONGEST)} has no time here, so no speed-up is known"
        yield "Baseline", f"{missing} → --baseline {shorten(timed[0], LONGEST)}"


def _without_skipped(run: Run, every: Sequence[Entry]) -> tuple[Sequence[Entry], list[Note]]:
    """Return *every* without the implementations that were always skipped, which would be a row for
    every size, and a note on each reason.

    A run that compares nothing keeps its rows, unless more than `MOST_SKIPPED` would be alike.
    """
    several, compared = len({e.record.case.op for e in every}) > 1, bool(run.header.baseline)
    names = [shorten(implementation_of(e.record, several), LONGEST) for e in every]
    reasons: dict[str, set[str]] = {}
    for name, entry in zip(names, every, strict=True):
        ran = entry.record.status != "skipped"
        reasons.setdefault(name, set()).add("" if ran else entry.record.reason)
    groups: dict[str, list[str]] = {}
    for name, texts in reasons.items():
        if "" not in texts:
            groups.setdefault("; ".join(sorted(texts)), []).append(name)
    counts = {why: sum(map(names.count, own)) for why, own in groups.items()}
    if compared and sum(counts.values()) == len(every):
        return every, []  # without them the table would be empty
    groups = {why: own for why, own in groups.items() if compared or counts[why] > MOST_SKIPPED}
    skipped = {name for own in groups.values() for name in own}
    notes = []
    for why, own in groups.items():
        count = "" if compared else f"{counts[why]} cases of "
        more = f" and {len(own) - MOST_NAMED} more" if len(own) > MOST_NAMED else ""
        notes.append(("Skipped", f"{count}{', '.join(own[:MOST_NAMED])}{more}: {why}"))
    return [e for name, e in zip(names, every, strict=True) if name not in skipped], notes


def _title(run: Run, axes: Axes) -> str:
    names = dict.fromkeys(shorten(implementation_of(r, False), LONGEST) for r in run.records)
    dtypes = dict.fromkeys(d for r in run.records if (d := dtype_of(r)))
    ops = ", ".join(shorten(op, LONGEST) for op in axes.ops) or "nothing"
    if len(axes.ops) > MOST_NAMED:
        ops = f"{len(axes.ops)} operations"
    parts = [f"{ops} on {run.header.device.name}"]
    parts += [", ".join(group) for group in (names, dtypes) if 0 < len(group) <= 3]
    return " · ".join(parts)


def _failure(entry: Entry) -> str:
    record = entry.record
    if entry.time is not None:
        return ""
    reason = record.reason or ("no samples" if record.status == "ok" else "")
    return f"{record.status}: {reason}" if reason else record.status


def _identity(entries: Sequence[Entry], axes: Axes) -> Iterable[Column]:
    """Yield the columns that identify a row: implementation, size, dtype, and what else varies."""
    records = [e.record for e in entries]

    def column(head: str, cells: Iterable[str], keep: int = ALWAYS, left: bool = True) -> Column:
        full = tuple(c or NOTHING for c in cells)
        short = tuple(shorten(c, SHORT) for c in full)
        return Column(head, "", full, keep, left, True, short if short != full else ())

    names = [shorten(implementation_of(r, len(axes.ops) > 1), LONGEST) for r in records]
    if len(set(names)) > 1 or len(axes.ops) > 1:
        yield column("implementation", names)
    yield column(shorten(axes.head, LONGEST), (axes.size(r) for r in records), left=False)
    dtypes = [dtype_of(r) for r in records]
    yield column("dtype", dtypes, ALWAYS if len(set(dtypes)) > 1 else 3)
    for axis in axes.named:
        names = [str(r.case.point.get(axis, "")) for r in records]
        yield column(shorten(axis, LONGEST), names)
    several = any(e.processes > 1 for e in entries)
    others = {
        "kind": [str(r.kind) for r in records],
        "pass": [] if several else [str(r.pass_index) for r in records],
        "rank": [str(r.rank) for r in records],
        "timer": [str(r.contract.timer) for r in records],
        "regime": [str(r.contract.regime) for r in records],
        "cache": [str(r.contract.cache) for r in records],
        "data": [str(r.contract.data) for r in records],
    }
    for head, cells in others.items():
        if len(set(cells)) > 1:
            yield column(head, cells)


def _figures(run: Run, entries: Sequence[Entry]) -> Iterable[Column]:
    def column(
        head: str, unit: str, cell: Callable[[Placement], float | None], keep: int, scale: float
    ) -> Column:
        placed = (cell(e.placement) if e.placement else None for e in entries)
        cells = (NOTHING if v is None else format_number(v / scale) for v in placed)
        return Column(head, unit, tuple(cells), keep)

    def percent(
        head: str, unit: str, cell: Callable[[Placement], float | None], keep: int
    ) -> Column:
        placed = (cell(e.placement) if e.placement else None for e in entries)
        return Column(head, unit, tuple(NOTHING if v is None else _tenths(v) for v in placed), keep)

    scale, unit = flop_unit(run, entries)
    flops = any(e.record.cost and e.record.cost.flops for e in entries)
    exchanged = any(is_collective(e.record) for e in entries)
    moved = (not flops and not exchanged) or any(
        e.placement and e.placement.longer == "memory" for e in entries
    )
    byte_scale, byte_unit = byte_rate_unit(entries)
    several = max((e.processes for e in entries), default=1)
    yield Column("time", "median", tuple(_time(e) for e in entries))
    yield Column("interval", _within(several), tuple(_interval(e, several) for e in entries))
    yield Column("next time", "95 %", tuple(_next(e) for e in entries), 9)
    if run.header.baseline:
        yield from _compared(run.header.baseline, entries)
    yield from _around(run, entries)
    yield from collective_columns(entries)
    if flops:
        keep = ALWAYS - 1  # dropped after all others
        yield column("attained", unit, lambda p: p.attained_flop_per_s or None, keep, scale)
    if moved:
        keep = 7 if flops else ALWAYS
        yield column("compulsory", byte_unit, lambda p: p.attained_byte_per_s, keep, byte_scale)
    yield from _counted(entries)
    yield column("AI", "FLOP/B", lambda p: p.intensity or None, 5, 1)
    yield column("attainable", unit, lambda p: p.attainable_flop_per_s, 4, scale)
    yield percent("of roof", "%", lambda p: p.fraction, 3 if exchanged else ALWAYS)
    yield from energy_columns(entries)
    yield percent("MFU", "sheet %", lambda p: p.mfu_data_sheet, 6)
    yield percent("MFU", "@clock %", lambda p: p.mfu_clock, 2)
    yield percent("MFU", "meas. %", lambda p: p.mfu_measured, 3 if run.header.peaks else 6)
    clocks = (e.time.clock_hz if e.time else None for e in entries)
    yield Column("clock", "MHz", tuple(f"{c / 1e6:.0f}" if c else NOTHING for c in clocks), 1)
    limiters = tuple(
        e.placement.limiter.replace("latency or occupancy", "lat./occ.") if e.placement else NOTHING
        for e in entries
    )
    yield Column("bound by", "", tuple(_bound(e) for e in entries), 8, left=True, short=limiters)
    doubts = tuple(_doubts(e) for e in entries)
    if any(doubts):
        moods: list[Mood] = ["doubt"] * len(doubts)
        yield Column("caveats", "", doubts, left=True, wrap=1, moods=tuple(moods))


def _around(run: Run, entries: Sequence[Entry]) -> Iterable[Column]:
    """Yield columns of noise, times in other states of cache and clock, and the working set."""
    yield Column("noise", "in, between", tuple(_noise(e) for e in entries), 2)
    yield Column("hot", "median", tuple(_beside(e, "hot") for e in entries), 2)
    yield Column("first s", "median", tuple(_beside(e, "first_second") for e in entries), 9)
    if any(_sets(run, e) for e in entries):
        sets = (_sets(run, e) for e in entries)
        yield Column("set", "of L2", tuple(f"{s:.2g}×" if s else NOTHING for s in sets), 1)


def _compared(baseline: str, entries: Sequence[Entry]) -> Iterable[Column]:
    checks = [e.record.check if e.time else None for e in entries]
    memory = [e.record.memory.call_bytes if e.time and e.record.memory else None for e in entries]
    kernels = [sum(k.count for k in e.record.kernels) if e.time else 0 for e in entries]
    several = max((e.speedup.processes for e in entries if e.speedup), default=1)
    over = f"over {shorten(baseline, 16)}, {_within(several)}"
    yield Column("speed-up", over, tuple(_speedup(e, several) for e in entries))
    yield Column("error", "most", tuple(f"{c.error:.1e}" if c else NOTHING for c in checks), 7)
    yield Column(
        "error", "allowed", tuple(f"{c.tolerance:.1e}" if c else NOTHING for c in checks), 2
    )
    yield Column(
        "memory", "over inputs", tuple(NOTHING if m is None else format_bytes(m) for m in memory), 7
    )
    yield Column("kernels", "a call", tuple(str(k) if k else NOTHING for k in kernels), 7)


def _within(processes: int) -> str:
    return f"{processes} processes" if processes > 1 else "one process"


def _speedup(entry: Entry, several: int) -> str:
    """Return the speed-up, with its interval unless that is of one process among several."""
    if entry.speedup is None:
        return NOTHING
    value, low, high = entry.speedup.value, entry.speedup.low, entry.speedup.high
    alone = entry.speedup.processes == 1 < several
    if low is None or high is None or alone:
        return f"{format_number(value)}×"
    # With a narrow interval the figure needs a digit more.
    digits = 3 if high - low > NARROW * value else 4
    return f"{format_number(value, digits)}× {format_interval(value, low, high)}"


def _counted(entries: Sequence[Entry]) -> Iterable[Column]:
    """Yield columns of measured and modelled bytes, and of the operations that the hardware did."""

    def column(
        head: str,
        unit: str,
        keep: int,
        cell: Callable[[Counted], float | None],
        show: Callable[[float], str],
    ) -> Column:
        values = (cell(e.counted) if e.time else None for e in entries)
        cells = tuple(NOTHING if value is None else show(value) for value in values)
        return Column(head, unit, cells, keep)

    if any(e.counted.measured is not None for e in entries):
        yield column("bytes", "least", 1, lambda c: c.compulsory, format_bytes)
        yield column("bytes", "modelled", 1, lambda c: c.modelled, format_bytes)
        yield column("bytes", "measured", 4, lambda c: c.measured, format_bytes)
        yield column("moved", "× least", 8, lambda c: c.excess, _times)
    if any(e.counted.flop_hardware is not None for e in entries):
        yield column("ops", "model", 1, lambda c: c.flop_model, _flop)
        yield column("ops", "hardware", 2, lambda c: c.flop_hardware, _flop)
        yield column("ops hw", "× model", 5, lambda c: c.flop_excess, _thousandths)


def _times(value: float) -> str:
    return format_number(value) if value >= 0.005 else "0"


def _flop(value: float) -> str:
    return format_si(value, "FLOP")


def _thousandths(value: float) -> str:
    return f"{value:.3f}"


def _time(entry: Entry) -> str:
    return format_time(entry.time.median_s) if entry.time else NOTHING


def _interval(entry: Entry, several: int) -> str:
    if entry.time is None or entry.time.median_s <= 0 or (several == 1 and entry.time.size < 2):
        return NOTHING
    interval_s = entry.across_s if several > 1 else entry.time.interval_s
    return _around_time(entry.time.median_s, interval_s)


def _next(entry: Entry) -> str:
    return _around_time(entry.time.median_s, entry.next_s) if entry.time else NOTHING


def _around_time(median_s: float, ends: tuple[float, float] | None) -> str:
    return format_interval(median_s, max(ends[0], 0.0), ends[1]) if ends else NOTHING


def _beside(entry: Entry, name: TimeName) -> str:
    """Return another time of the record: with a hot cache, or in the first second."""
    samples = entry.record.times.get(name)
    return format_time(samples.median_s) if samples and entry.time else NOTHING


def _sets(run: Run, entry: Entry) -> float | None:
    """Return the working set over the L2 of the device, where it is under ten times that."""
    memory, l2 = entry.record.memory, run.header.device.l2_bytes
    if memory is None or not l2 or l2 < 0:
        return None
    share = (memory.inputs_bytes + memory.output_bytes) / l2
    return share if share < 10 else None


def _noise(entry: Entry) -> str:
    """Return the noise within and between earlier processes: `0.3, 0.5 %`."""
    noise = entry.record.noise
    if noise is None or entry.time is None:
        return NOTHING
    return f"{digits_of_percent(noise.within * 100)}, {digits_of_percent(noise.between * 100)} %"


def _tenths(fraction: float) -> str:
    """Return percent with one digit after the point; what would round to 0.0 is `<0.1`."""
    return "<0.1" if 0 < fraction < 0.0005 else f"{fraction * 100:.1f}"


def _bound(entry: Entry) -> str:
    if entry.placement is None:
        return NOTHING
    limiter, pipe = entry.placement.limiter, entry.placement.pipe
    return f"{limiter} ({pipe})" if limiter == "compute" and pipe else limiter


def _doubts(entry: Entry) -> str:
    kinds = list(dict.fromkeys(shorten(c.kind, LONGEST) for c in entry.caveats))
    marked = entry.valid or entry.record.status == "impossible"  # `impossible` says it already
    return ", ".join(kinds if marked else ["INVALID", *kinds])


def flop_unit(run: Run, entries: Iterable[Entry]) -> tuple[float, str]:
    """Return the unit of a column or an axis of rates: TFLOP/s, or GFLOP/s for low rates."""
    placed = [e.placement for e in entries if e.placement]
    rates = (r for p in placed for r in (p.attained_flop_per_s, p.attainable_flop_per_s or 0.0))
    most = max(rates, default=0.0)
    least = 1e13 if run.header.device.kind == "cpu" else 1e12
    return (1e12, "TFLOP/s") if most >= least or not most else (1e9, "GFLOP/s")


def byte_rate_unit(entries: Iterable[Entry]) -> tuple[float, str]:
    """Return the unit of a column or an axis of bandwidths."""
    rates = (e.placement.attained_byte_per_s for e in entries if e.placement)
    return (1e12, "TB/s") if max(rates, default=0.0) >= 1e12 else (1e9, "GB/s")
