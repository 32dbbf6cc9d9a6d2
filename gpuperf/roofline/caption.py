"""Write the notes under a table: roofs with their sources, contract, device, run and caveats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpuperf.model.contract import Contract
from gpuperf.model.counted import LITTLE
from gpuperf.model.peaks import Figure
from gpuperf.model.record import Run
from gpuperf.model.text import shorten
from gpuperf.roofline.rows import Entry
from gpuperf.roofline.study import Roof, roofs
from gpuperf.show.axes import Axes, dtype_of, implementation_of
from gpuperf.show.contract import contract_text, plain_quantity
from gpuperf.show.table import Note
from gpuperf.units import (
    format_bytes,
    format_flop_rate,
    format_percent,
    format_rate,
    format_si,
    format_time,
)

LONGEST = 60  # characters of a kernel's name
LONGEST_CHOICE = 200  # characters of an autotuner's choice
MOST_KERNELS = 12  # kernels of one call that are named; further ones are counted
FEWER = 0.9  # measured over compulsory bytes, under which a share of the roof needs a word
MOST_ALIKE = 3  # sentences of one kind of caveat; further ones are counted

_SURENESS = {"derived": "~ derived", "uncertain": "? uncertain"}


def sure(value: str, figure: Figure) -> str:
    """Return *value* with `~` before it where its figure is derived, `?` after it if uncertain."""
    if figure.status == "derived":
        return f"~{value}"
    return f"{value}?" if figure.status == "uncertain" else value


def roof_text(roof: Roof) -> str:
    """Return `bf16 tensor 989 TFLOP/s`, with the mark of its sureness."""
    if roof.kind == "memory":
        rate = format_rate(roof.value)
    elif roof.value >= 1e12:
        rate = format_flop_rate(roof.value)
    else:
        rate = format_si(roof.value, "FLOP/s")
    return f"{roof.label} {sure(rate, roof.figure)}"


def run_roofs(run: Run) -> tuple[Roof, ...]:
    """Return the roofs that the records of *run* need."""
    return roofs(run.header, run.records)


ALONE = "Nsight Compute, each kernel alone and with a cold cache"
PROFILED = "each kernel as it ran once under a profiler: no interval is known"


def caption(run: Run, entries: Sequence[Entry], axes: Axes) -> list[Note]:
    """Return the notes under a table: (heading, text), some headings several times."""
    return [
        *_fixed(axes),
        *_roofs(run),
        *_meanings(run, entries),
        *_contracts(entries, run.header.contract),
        *_unknown(entries),
        *(_ran(entries) if run.header.baseline else ()),
        ("Device", _device(run)),
        ("Run", _run(run)),
        *(("Problem", problem) for problem in run.problems),
        *_unmeasured(run),
    ]


def _unmeasured(run: Run) -> Iterable[Note]:
    measured, plan = {record.case.id for record in run.records}, run.header.plan
    missing = sum(case.id not in measured for case in plan)
    calibrates = run.header.command[1:2] == ("calibrate",)  # it leaves out sizes that take too long
    if missing and not calibrates:
        yield (
            "Problem",
            f"{missing} of {len(plan)} planned cases were not measured; `gpuperf roofline "
            "--resume` of this file measures them",
        )


def _fixed(axes: Axes) -> Iterable[Note]:
    for op in axes.ops:
        text = axes.constant(op)
        if text:
            yield "Fixed", f"{op}: {text}" if len(axes.ops) > 1 else text


def _roofs(run: Run) -> Iterable[Note]:
    for roof in run_roofs(run):
        figure = roof.figure
        condition = f" ({figure.condition})" if figure.condition else ""
        source = f"; {figure.source}" if figure.source else ""
        yield "Roof", f"{roof_text(roof)}, {roof.origin}{condition}{source}"
    yield from roof_doubts(run)


def roof_doubts(run: Run) -> Iterable[Note]:
    """Yield the doubts about the roofs of *run*, and the meaning of their marks."""
    header = run.header
    if header.peaks is not None and header.peaks_reason:
        yield "Roof", f"caution: {header.peaks_reason}"
    if header.peaks is None:
        # Older files said of a CPU's measured roofs that they are used, even where it had none.
        reason = header.peaks_reason.removesuffix(" and uses measured roofs")
        used = "; measured roofs are used" if header.ceilings else ""
        yield "Roof", f"data sheet unknown: {reason or 'no reason recorded'}{used}"
    marks = [m for s, m in _SURENESS.items() if any(r.figure.status == s for r in run_roofs(run))]
    if marks:
        yield "Roof", "marks: " + ", ".join(marks)


def _meanings(run: Run, entries: Sequence[Entry]) -> Iterable[Note]:
    placed = [e.placement for e in entries if e.placement]
    if any(p.fraction is not None for p in placed):
        kinds = {p.roof for p in placed if p.fraction is not None}
        basis = " or (where it is silent) ".join(
            name
            for roof, name in (("data sheet", "data-sheet"), ("measured", "measured"))
            if roof in kinds
        )
        yield "Of roof", f"least time under the {basis} roofs, with compulsory bytes, over the time"
        yield from fewer_bytes(entries)
    meanings = (
        ("sheet", "at the data-sheet rate", any(p.mfu_data_sheet for p in placed)),
        ("@clock", "at SMs × rate × SM clock observed", any(p.mfu_clock for p in placed)),
        ("measured", "at the measured ceiling", any(p.mfu_measured for p in placed)),
    )
    parts = [f"{name} {meaning}" for name, meaning, there in meanings if there]
    if parts:
        yield "MFU", f"least time of the FLOPs over the time: {', '.join(parts)}"
    yield from _counted(run, entries)
    empty = [e.record.timer.empty_call_s for e in entries if _limiter(e) == "latency"]
    if empty:
        least = format_time(max(empty), 3)
        yield "Bound by", f"latency: the roofs allow less time than an empty call takes ({least})"


def fewer_bytes(entries: Sequence[Entry]) -> Iterable[Note]:
    """Yield a note on rows that moved fewer bytes than the roof counts, as quantized weights do."""
    few = [
        (excess, entry)
        for entry in entries
        if entry.placement is not None
        and entry.placement.longer == "memory"
        and entry.record.contract.cache == "cold"
        and (excess := entry.counted.excess) is not None
        and excess < FEWER
        and not any(caveat.kind == "cache-resident" for caveat in entry.caveats)
    ]
    if few:
        excess, entry = min(few, key=lambda pair: pair[0])
        name = shorten(implementation_of(entry.record, False), LONGEST)
        yield (
            "Of roof",
            f"counts the compulsory bytes; {name} moved {excess:.2f} times those, so its share of "
            f"the bandwidth is {excess:.2f} times this one (rows that moved fewer: {len(few)})",
        )


def _counted(run: Run, entries: Sequence[Entry]) -> Iterable[Note]:
    if any(e.counted.measured is not None for e in entries):
        yield "Bytes", _measured_text(run, entries)
    if any(e.counted.flop_excess is not None for e in entries):
        yield "Ops hw", "operations of tensor and vector pipes that ran, over those of the cost"


def _measured_text(run: Run, entries: Sequence[Entry]) -> str:
    if profiled(entries):
        return "kernels without a model: the least bytes are those that the counters showed"
    least = "least: of the algorithm; measured: through DRAM, by "
    if run.header.counting == "ncu":
        return least + ALONE
    factors = {e.record.counters.get("dram_factor", 1.0) for e in entries if e.record.counters}
    scaled = sorted(f"{factor:g}" for factor in factors if factor != 1)
    unsure = [
        c.uncertainty / c.measured
        for c in (e.counted for e in entries)
        if c.uncertainty is not None and c.measured and c.measured > LITTLE
    ]
    return (
        f"{least}hardware counters at full speed, in a pass of its own"
        + (f", ±{format_percent(max(unsure))} at most" if unsure else "")
        + (f"; the counters showed {' and '.join(scaled)} times the true bytes" if scaled else "")
    )


def profiled(entries: Sequence[Entry]) -> bool:
    """Whether all entries are kernels that another tool measured."""
    return bool(entries) and all(e.record.kind == "kernel" for e in entries)


def _limiter(entry: Entry) -> str:
    return entry.placement.limiter if entry.placement else ""


def _contracts(entries: Sequence[Entry], default: Contract) -> Iterable[Note]:
    contracts = dict.fromkeys(e.record.contract for e in entries) or {default: None}
    for contract in contracts:
        if profiled(entries):
            yield "Contract", PROFILED
            return
        own = [e for e in entries if e.record.contract == contract]
        count = f" ({len(own)} rows)" if len(contracts) > 1 else ""
        yield "Contract", f"{contract_text(contract, _floor(own))}{count}"
        precision = plain_quantity(format_percent(contract.precision))
        rule = f"until ±{precision} or {plain_quantity(format_time(contract.budget_s, 3))}"
        late = sum(e.record.stop == "budget" for e in own)
        spent = f"; the budget ended {late} of {len(own)} rows first" if late else ""
        several = max((e.processes for e in own), default=1)
        of = "median, 95 % interval within this process, "
        if several > 1:
            middle = "median" if several % 2 else "the slower of the two middle ones"
            of = f"{middle} of {several} processes, 95 % intervals over them; in each "
        yield "Contract", f"{of}{rule}{spent}"
    if any(e.next_s for e in entries):
        yield (
            "Next time",
            "95 % interval of another process's median, by the scatter of earlier processes",
        )


def _floor(entries: Sequence[Entry]) -> str:
    floors = [e.record.timer.floor_s for e in entries if e.time and e.record.timer.floor_s]
    if not floors:
        return ""
    low, high = (format_time(f(floors), 3) for f in (min, max))
    return f" (floor of {low if low == high else f'{low} to {high}'} subtracted)"


def _unknown(entries: Sequence[Entry]) -> Iterable[Note]:
    reasons = (r for e in entries if e.placement for r in e.placement.reasons)
    for reason in dict.fromkeys(reasons):
        yield "Unknown", reason


def _ran(entries: Sequence[Entry]) -> Iterable[Note]:
    """Yield the kernels and the autotuner's choice in the first case of each implementation, and
    the number of other lists of kernels in its other cases."""
    by_name: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.time is not None and entry.record.kernels:
            name = shorten(entry.record.case.implementation, LONGEST)
            by_name.setdefault(name, []).append(entry)
    chosen: list[Note] = []
    for name, own in by_name.items():
        first, lists = own[0].record, {tuple(k.name for k in e.record.kernels) for e in own}
        shown = [
            f"{k.count} × " * (k.count > 1) + shorten(k.name, LONGEST)
            for k in first.kernels[:MOST_KERNELS]
        ]
        left = len(first.kernels) - len(shown)
        shown += [f"and {left} more"] if left else []
        others = f"{len(lists) - 1} other list{'s' * (len(lists) > 2)}"
        more = f" ({others} in other cases)" if len(lists) > 1 else ""
        yield "Ran", f"{name}: {', '.join(shown)}{more}"
        if first.chosen:
            choice = ", ".join(f"{key}={value}" for key, value in first.chosen.items())
            chosen.append(("Chosen", f"{name}: {shorten(choice, LONGEST_CHOICE)}"))
    yield from chosen


def _device(run: Run) -> str:
    device, soft = run.header.device, run.header.fingerprint.soft
    units = "threads" if device.kind == "cpu" else "CUs" if device.kind == "rocm" else "SMs"
    parts = [device.name, f"{device.sm_count} {units}"]
    parts += [format_bytes(device.memory_bytes)] if device.memory_bytes else []
    if device.max_sm_clock_hz:
        parts.append(f"up to {device.max_sm_clock_hz / 1e6:.0f} MHz")
    parts += [f"{name} {value}" for name, value in soft.items() if value is not None]
    return ", ".join(parts)


def _run(run: Run) -> str:
    header = run.header
    version = f"gpuperf {header.gpuperf}" if header.gpuperf else ""
    return ", ".join(filter(None, (header.run, header.created, version)))


def footnotes(entries: Sequence[Entry], axes: Axes) -> list[Note]:
    """Return every caveat as a sentence with its rows and its hint, each hint once, by kind."""
    several = len({implementation_of(entry.record, len(axes.ops) > 1) for entry in entries}) > 1
    dtypes = {dtype_of(entry.record) for entry in entries}
    by_hint: dict[tuple[str, str], dict[str, list[str]]] = {}
    for entry in entries:
        record = entry.record
        row = [axes.size(record), dtype_of(record) if len(dtypes) > 1 else ""]
        row += [implementation_of(record, len(axes.ops) > 1)] if several else []
        doubts = [(c.kind, c.message, c.hint) for c in entry.caveats]
        doubts += [(record.status, "", record.hint)] if record.hint else []
        for kind, message, hint in doubts:
            rows = by_hint.setdefault((kind, hint), {}).setdefault(message, [])
            rows.append(" ".join(filter(None, row)))
    return [
        (kind, _sentence(_with_rows(messages, len(entries)), hint))
        for (kind, hint), messages in by_hint.items()
    ]


def _with_rows(messages: Mapping[str, Sequence[str]], count: int) -> str:
    """Join the messages, each after its rows unless it is about all *count* of them."""
    parts = []
    for message, rows in list(messages.items())[:MOST_ALIKE]:
        where = ", ".join(list(dict.fromkeys(rows))[:MOST_ALIKE])
        more = len(set(rows)) - MOST_ALIKE
        where += f" and {more} more" if more > 0 else ""
        everywhere = len(messages) == 1 and len(rows) == count
        parts.append(": ".join(filter(None, ("" if everywhere else where, message))))
    if len(messages) > MOST_ALIKE:
        parts.append(f"and {len(messages) - MOST_ALIKE} more; --format json has all")
    return "; ".join(filter(None, parts))


def _sentence(message: str, hint: str) -> str:
    return " → ".join(filter(None, (message, hint)))
