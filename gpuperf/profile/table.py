"""Render a profile: the step in a few lines, its operators in a table, what to do first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpuperf.model.codec import to_builtins
from gpuperf.model.metrics import moved_bytes, tensor_operations
from gpuperf.model.program import Program
from gpuperf.model.record import Run
from gpuperf.model.samples import mean_precision
from gpuperf.model.text import clean, shorten
from gpuperf.profile.breakdown import KernelUse, OperatorRow, Profile, kernels_of, profiles
from gpuperf.profile.findings import LEAST, findings
from gpuperf.profile.gain import Gain
from gpuperf.show.data import to_json
from gpuperf.show.render import render
from gpuperf.show.screen import WIDE, Screen
from gpuperf.show.table import Column, Table, fill, notes_of
from gpuperf.units import format_bytes, format_flop_rate, format_number, format_si, format_time

MOST_ROWS = 20
LONGEST, LONGEST_SHAPES, LONGEST_PLACE = 44, 56, 60
MOST_GRAPHS = 8
MOST_PARTS = 8
SCHEMA = 1
FEWEST = 5  # steps of which an interval is told
DRAWN_OUT = 0.02  # of the time of kernels, without a word
UNSURE = 0.5  # from here on an interval tells less than its ends
UNEVEN = 0.02  # what median and mean may differ without a word
MOVED = "DRAM"  # the head of what the counters saw
COLUMNS = (
    Column("operator", left=True, wrap=16),
    Column("of", left=True, keep=4, wrap=16),
    Column("calls", keep=3),
    Column("time"),
    Column("share"),
    Column("FLOPs", keep=5),
    Column("bytes", keep=5),
    Column(MOVED, keep=5),
    Column("AI", keep=2),
    Column("of roof", keep=8),
    Column("bound by", left=True, keep=7),
    Column("largest loss", left=True, keep=9, wrap=16),
)
KERNEL_COLUMNS = (
    Column("kernel", left=True, wrap=30),
    Column("launches"),
    Column("time"),
    Column("share"),
    Column("each", keep=5),
    Column(MOVED, keep=4),
    Column("tensor pipe", keep=4),
    Column("operators", left=True, keep=3, wrap=20),
)
LONGEST_KERNEL = 80
FINDING_COLUMNS = (
    Column("what to do first", left=True, wrap=24),
    Column("gain"),
    Column("of the step"),
    Column("where", left=True, keep=3, wrap=24),
)


def render_profile(run: Run, format: str, by: str = "operators", screen: Screen = WIDE) -> str:
    """Each region of *run* by its operators or its kernels: as table or md one after the other, as
    csv a row each."""
    found = profiles(run)
    if format == "json":
        value = {"schema": SCHEMA, "run": run.header.run, "regions": [_told(p, run) for p in found]}
        return to_json(value, screen.ascii)
    tables = []
    for profile in found:
        if by == "kernels":
            table = _kernels(profile)
        else:
            table = _operators(profile, not run.header.ceilings)
        tables.append(replace(table, title=title_of(profile, run), lead=totals_of(profile, run)))
        tables.append(_advice(findings(profile, run.header), profile))
    return render(tables, format, screen)


def _advice(advice: Sequence[Gain], profile: Profile) -> Table:
    """What to do first, or why nothing is known to do."""
    notes = [f"{i}: {one.basis}" for i, one in enumerate(advice, 1)]
    if len(advice) > 1:
        notes.append("gains do not add up: two may save the same time")
    if not advice:
        notes.append(_no_advice(profile))
    cells = [_finding_cells(one) for one in advice]
    return Table(fill(FINDING_COLUMNS, cells), notes=notes_of(*notes))


def _no_advice(profile: Profile) -> str:
    if profile.plain:
        return f"no change was found that would save {LEAST:.0%} of the step"
    return (
        "no gain is foretold, as the step was only timed under the profiler: mark steps with "
        "gpuperf.step(), and each is timed without it first"
    )


def _operators(profile: Profile, roofless: bool) -> Table:
    shown = _shown(profile)
    counted = any(moved_bytes(share.record.counters) is not None for share in shown)
    columns = fill(COLUMNS, [_cells(share) for share in shown[:MOST_ROWS]])
    return Table(
        columns=tuple(column for column in columns if counted or column.head != MOVED),
        notes=notes_of(*_notes(profile, roofless)),
        rows=[_row(share) for share in profile.operators],
        names=("operator",),
    )


def _shown(profile: Profile) -> list[OperatorRow]:
    """What ran: what was accounted for and has no time runs under another name, or fused."""
    return [s for s in profile.operators if s.seconds or profile.busy_s is None]


def _kernels(profile: Profile) -> Table:
    uses = kernels_of(profile)
    cells = [
        [
            shorten(clean(use.name).removeprefix("void "), LONGEST_KERNEL),
            f"{use.count:,}",
            format_time(use.seconds),
            f"{use.share * 100:.1f} %",
            format_time(use.seconds / max(1, use.count)),
            _moved(moved_bytes(use.counters)),
            _flops(round(tensor_operations(use.counters) or 0)),
            shorten(clean(", ".join(use.operators)).replace("aten::", ""), LONGEST_SHAPES),
        ]
        for use in uses[:MOST_ROWS]
    ]
    counted = any(use.counters for use in uses)
    columns = fill(KERNEL_COLUMNS, cells)
    notes = [] if uses else ["no kernel of a device was traced"]
    if len(uses) > MOST_ROWS:
        rest = sum(use.share for use in uses[MOST_ROWS:])
        more = f"{len(uses) - MOST_ROWS} kernels more, {rest * 100:.1f} %"
        notes.append(f"{more}: --format csv has all")
    return Table(
        columns=tuple(c for c in columns if counted or c.head not in (MOVED, "tensor pipe")),
        notes=notes_of(*notes),
        rows=[{"region": profile.region.region, **_kernel(use)} for use in uses],
        names=("kernel",),
    )


def _moved(size: float | None) -> str:
    return "–" if size is None else format_bytes(size)


def _kernel(use: KernelUse) -> dict[str, Any]:
    return {
        "kernel": use.name,
        "launches": use.count,
        "time_s": use.seconds,
        "share": use.share,
        "dram_bytes": moved_bytes(use.counters),
        "tensor_operations": tensor_operations(use.counters),
        "operators": "; ".join(use.operators),
    }


def title_of(profile: Profile, run: Run) -> str:
    """`step of gpt2.py on NVIDIA H200`."""
    script = profile.region.case.implementation
    name = shorten(clean(profile.region.region), LONGEST)
    device = shorten(clean(run.header.device.name), LONGEST)
    return f"{name} of {shorten(clean(script), LONGEST)} on {device}"


def totals_of(profile: Profile, run: Run) -> tuple[str, ...]:
    """What is said of the whole region."""
    lines = [_time_line(profile), _parts_line(profile)]
    placed, program = profile.placement, profile.region.program
    if program is not None and program.parts:
        lines.append(_regions_line(profile, program))
    if placed is not None and placed.attained_flop_per_s > 0:
        told = [f"{format_flop_rate(placed.attained_flop_per_s)} of the model's FLOPs"]
        if placed.mfu_data_sheet is not None:
            told.append(f"MFU {placed.mfu_data_sheet * 100:.1f} % of the data sheet")
        if placed.mfu_measured is not None:
            told.append(f"{placed.mfu_measured * 100:.1f} % of the measured roof")
        if profile.hfu is not None:
            told.append(f"HFU {profile.hfu * 100:.1f} %")
        lines.append(", ".join(told))
    cost = profile.region.cost
    if cost is not None and cost.flop_count:
        counter = program.flop_counter if program else None
        beside = f" (torch's own counter: {format_si(counter, 'FLOP')})" if counter else ""
        lines.append(
            f"{format_si(cost.flop_count, 'FLOP', 4)}{beside}, "
            f"{format_bytes(cost.dram_bytes)} at the least through DRAM{_measured(profile)}"
        )
    memory = profile.region.memory
    if memory is not None and memory.peak_bytes:
        lines.append(f"{format_bytes(memory.peak_bytes)} of memory at the most")
    if program is not None and program.items:
        lines.append(f"{_counted(program.items / profile.step_s)} items/s")
    return tuple(lines)


def _counted(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else format_number(value, 4)


def _measured(profile: Profile) -> str:
    """What the counters saw, where they were read."""
    moved = moved_bytes(profile.region.counters)
    if moved is None:
        return ""
    return f", {format_bytes(moved)} measured ({format_bytes(moved / profile.step_s)}/s)"


def _time_line(profile: Profile) -> str:
    program = profile.region.program
    told = f"{format_time(profile.step_s)} a step{_spread(profile)}"
    if profile.cuda and profile.busy_s is not None and profile.plain:
        told += f", the GPU busy {profile.busy_s / profile.step_s * 100:.1f} %"
    steps = dict(program.steps) if program else {}
    if "plain" not in steps:
        told += " under the profiler, which slows the host: no plain pass timed it"
    launched = program.launched if program else {}
    if launched.get("kernel"):
        told += f", {launched['kernel']:,g} kernels"
    return told


def _spread(profile: Profile) -> str:
    """How sure the mean of a step is, and the median where that is another figure."""
    samples = profile.region.samples
    if samples is None or samples.size < FEWEST:
        return ""
    precision = mean_precision(samples.values_s)
    told = f" ± {precision * 100:.1f} %"
    if precision > UNSURE:
        least, most = min(samples.values_s), max(samples.values_s)
        told = f", between {format_time(least)} and {format_time(most)} in {samples.size} steps"
    if abs(samples.median_s / profile.step_s - 1) > UNEVEN:
        told += f" (mean; the median is {format_time(samples.median_s)})"
    return told


def _parts_line(profile: Profile) -> str:
    shown = {name: seconds / profile.step_s for name, seconds in profile.parts.items()}
    return ", ".join(f"{n} {share * 100:.1f} %" for n, share in shown.items() if share > 0.001)


def _regions_line(profile: Profile, program: Program) -> str:
    """What the regions inside a step take of the device; traced, on a CPU they take longer."""
    traced = profile.region.times.get("busy" if profile.cuda else "traced")
    whole = traced.median_s if traced else profile.step_s
    told = sorted(program.parts.items(), key=lambda part: -part[1])
    shares = (f"{shorten(clean(n), LONGEST)} {s / whole * 100:.1f} %" for n, s in told[:MOST_PARTS])
    return f"inside, of the {'busy' if profile.cuda else 'traced'} time: {', '.join(shares)}"


def name_of(share: OperatorRow) -> str:
    """`mm` or `mm (backward)`, of torch.compile the kernel's own name."""
    operator = share.record.operator
    name = clean(share.record.case.op).removeprefix("aten::")
    return shorten(name, LONGEST) + (" (backward)" if operator and operator.backward else "")


def _cells(share: OperatorRow) -> list[str]:
    record, placed = share.record, share.placement
    operator, cost = record.operator, record.cost
    known = operator is not None and operator.known
    bytes_moved = cost.dram_bytes if cost else 0
    fraction = placed.fraction if placed and bytes_moved else None
    timed = share.seconds > 0
    return [
        name_of(share),
        shorten(clean(operator.operands if operator else ""), LONGEST_SHAPES),
        f"{operator.count:.4g}" if operator else "",
        format_time(share.seconds) if timed else "–",
        f"{share.share * 100:.1f} %" if timed else "–",
        _flops(cost.flop_count) if cost and known else "unknown",
        format_bytes(bytes_moved) if bytes_moved else "–",
        _moved(moved_bytes(record.counters)),
        format_number(cost.intensity, 3) if cost and cost.intensity else "–",
        "–" if fraction is None else f"{fraction * 100:.1f} %",
        share.part if timed else "–",
        f"{share.loss.name} × {share.loss.factor:.2f}" if share.loss else "–",
    ]


def _flops(flops: int) -> str:
    return format_si(flops, "FLOP") if flops else "–"


def _notes(profile: Profile, roofless: bool = False) -> list[str]:
    left = [share for share in profile.operators[MOST_ROWS:] if share.seconds]
    notes = []
    if left:
        share = sum(one.share for one in left)
        notes.append(f"{len(left)} operators more, {share * 100:.1f} %: --format csv has all")
    notes.append("FLOPs, bytes and times are those of all calls in a step")
    if profile.cuda and abs(profile.scale - 1) > DRAWN_OUT:
        why = "they took longer than a plain step, in which they cannot have been"
        if profile.scale > 1:
            why = (
                "the plain step, in which the device never waited, leaves them so long (a card "
                "that has rested has a higher clock)"
            )
        notes.append(f"times of kernels are {profile.scale:.3f} times those of the trace: {why}")
    if profile.pageable_scale < 1 - DRAWN_OUT:
        notes.append(
            f"times of pageable copies are {profile.pageable_scale:.3f} times those of the trace: "
            "the host makes them, which a profiler delays, and the plain step leaves no more"
        )
    if roofless and not any(s.placement and s.placement.fraction for s in profile.operators):
        notes.append("of roof: no roof of this device is known; `gpuperf calibrate` measures them")
    notes += _graphs(profile)
    notes += _counted_bytes(profile)
    program = profile.region.program
    notes += [f"missing: {clean(text)}" for text in (program.missing if program else ())]
    for doubt in profile.region.caveats:
        hint = f" → {doubt.hint}" if doubt.hint else ""
        notes.append(clean(f"{doubt.kind}: {doubt.message}{hint}"))
    return notes


def _counted_bytes(profile: Profile) -> list[str]:
    """What was counted kernel by kernel, and what copies move beside it: twice on one device."""
    each = [moved_bytes(k.counters) for s in profile.operators for k in s.record.kernels]
    moved = sum(size for size in each if size is not None)
    if not moved:
        return []
    program = profile.region.program
    copies = program.moved.items() if program else ()
    copied = sum(size * (2 if "DtoD" in name else 1) for name, size in copies)
    beside = f", and copies move {format_bytes(copied)} more" if copied > 0.001 * moved else ""
    return [f"{MOVED} was counted kernel by kernel, {format_bytes(moved)} together{beside}"]


def _graphs(profile: Profile) -> list[str]:
    """What torch.compile made of a program: each graph, and its share of the step."""
    found: dict[str, list[OperatorRow]] = {}
    for share in profile.operators:
        if share.record.operator and share.record.operator.graph:
            found.setdefault(share.record.operator.graph, []).append(share)
    told = []
    for graph, own in sorted(found.items(), key=lambda one: -sum(s.share for s in one[1])):
        part, largest = sum(share.share for share in own), max(own, key=lambda s: s.seconds)
        back = " (backward)" if largest.record.operator and largest.record.operator.backward else ""
        names = [k for s in own for k in s.record.kernels if k.computes]
        kernels = sum(kernel.count for kernel in names)
        count = f"{kernels} kernel{'' if kernels == 1 else 's'}, " if kernels else ""
        told.append(f"compiled graph {clean(graph)}{back}: {count}{part * 100:.1f} % of the step")
    return told[:MOST_GRAPHS]


def _finding_cells(one: Gain) -> list[str]:
    return [
        f"{one.title}",
        format_time(one.gain_s),
        f"{one.share * 100:.1f} %",
        "; ".join(shorten(clean(where), LONGEST_PLACE) for where in one.where),
    ]


def _told(profile: Profile, run: Run) -> dict[str, Any]:
    placed = profile.placement
    program = profile.region.program
    return {
        "region": profile.region.region,
        "script": profile.region.case.implementation,
        "step_s": profile.step_s,
        "mean_s": wall.median_s if (wall := profile.region.times.get("wall")) else None,
        "busy_s": profile.busy_s,
        "scale": profile.scale,
        "pageable_scale": profile.pageable_scale,
        "parts_s": dict(profile.parts),
        "placement": to_builtins(placed) if placed else None,
        "hfu": profile.hfu,
        "program": to_builtins(program) if program else None,
        "cost": to_builtins(profile.region.cost),
        "operators": [_row(share) for share in profile.operators],
        "kernels": [_kernel(use) for use in kernels_of(profile)],
        "findings": [to_builtins(one) for one in findings(profile, run.header)],
        "least_finding": LEAST,
        "caveats": [to_builtins(caveat) for caveat in profile.region.caveats],
    }


def _row(share: OperatorRow) -> dict[str, Any]:
    record, placed = share.record, share.placement
    operator, cost = record.operator, record.cost
    return {
        "operator": record.case.op,
        "of": operator.operands if operator else None,
        "region": record.region,
        "backward": operator.backward if operator else None,
        "kind": operator.kind if operator else None,
        "calls": operator.count if operator else None,
        "time_s": share.seconds,
        "graph": operator.graph if operator else None,
        "host_s": operator.host_s if operator else None,
        "share": share.share,
        "flops": cost.flop_count if cost and operator and operator.known else None,
        "bytes": cost.dram_bytes if cost else None,
        "dram_bytes": moved_bytes(record.counters),
        "tensor_operations": tensor_operations(record.counters),
        "intensity": cost.intensity if cost else None,
        "of_roof": placed.fraction if placed else None,
        "part": share.part,
        "largest_loss": share.loss.name if share.loss else None,
        "loss_factor": share.loss.factor if share.loss else None,
        "kernels": "; ".join(f"{k.count} {k.name}" for k in record.kernels),
        "where": "; ".join(operator.where) if operator else "",
    }
