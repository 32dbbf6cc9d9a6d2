"""Make the tables of a profile that `-v` shows: operators, kernels, and what to do first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpuperf.model.metrics import moved_bytes, tensor_operations
from gpuperf.model.text import shorten
from gpuperf.profile.breakdown import KernelUse, OperatorRow, Profile, kernels_of
from gpuperf.profile.findings import LEAST, LEAST_OF_LINKS
from gpuperf.profile.gain import Gain
from gpuperf.profile.summary import graphs_of, name_of, operands_of
from gpuperf.profile.values import kernel_values, operator_values
from gpuperf.show.table import Column, Table, fill, notes_of
from gpuperf.units import format_bytes, format_number, format_si, format_time

MOST_ROWS = 20
MOST_GRAPHS = 8
LONGEST_SHAPES, LONGEST_PLACE, LONGEST_KERNEL = 56, 60, 80  # characters
DRAWN_OUT = 0.02  # change of the traced times from which a note states it
ABOVE = 1.0005  # share of a roof that is shown as more than 100.0 %
DRAM = "DRAM"  # the head of the measured bytes
COLUMNS = (
    Column("operator", left=True, wrap=16, identity=True),
    Column("of", left=True, keep=4, wrap=16),
    Column("calls", keep=3),
    Column("time"),
    Column("share"),
    Column("FLOPs", keep=5),
    Column("bytes", keep=5),
    Column(DRAM, keep=5),
    Column("AI", keep=2),
    Column("of roof", keep=8),
    Column("bound by", left=True, keep=7),
    Column("largest loss", left=True, keep=9, wrap=16),
)
KERNEL_COLUMNS = (
    Column("kernel", left=True, wrap=30, identity=True),
    Column("launches"),
    Column("time"),
    Column("share"),
    Column("each", keep=5),
    Column(DRAM, keep=4),
    Column("tensor pipe", keep=4),
    Column("operators", left=True, keep=3, wrap=20),
)
FINDING_COLUMNS = (
    Column("what to do first", left=True, wrap=24),
    Column("gain"),
    Column("of the step"),
    Column("where", left=True, keep=3, wrap=24),
)


def operators_table(profile: Profile, roofless: bool, most_rows: int = MOST_ROWS) -> Table:
    """Return the operators that ran, those with the largest share first.

    A *roofless* run has no measured roofs: a note says how to measure them.
    """
    rows = ran(profile)
    counted = any(moved_bytes(row.record.counters) is not None for row in rows)
    columns = fill(COLUMNS, [_cells(row) for row in rows[:most_rows]])
    return Table(
        columns=tuple(column for column in columns if counted or column.head != DRAM),
        notes=notes_of(*_notes(profile, roofless, most_rows)),
        rows=[operator_values(row) for row in profile.operators],
        names=("operator",),
    )


def with_kernels(table: Table, profile: Profile, most_rows: int) -> Table:
    """Return the *table* of operators of a page, each of which folds out its kernels."""
    head, *others = table.columns
    folds = tuple(
        tuple(map(_kernel_line, kernels_of(replace(profile, operators=(row,)))))
        for row in ran(profile)[:most_rows]
    )
    return replace(table, columns=(replace(head, folds=folds), *others))


def _kernel_line(use: KernelUse) -> str:
    name = shorten(use.name.removeprefix("void "), LONGEST_KERNEL)
    return f"{format_time(use.seconds)}, {use.share * 100:.1f} %: {use.count:,} × {name}"


def ran(profile: Profile) -> list[OperatorRow]:
    """Return the operators that have a time; without a trace, all operators.

    An operator of the accounting pass without a traced time ran under another name, or fused.
    """
    return [row for row in profile.operators if row.seconds or profile.busy_s is None]


def kernels_table(profile: Profile, most_rows: int = MOST_ROWS) -> Table:
    """Return the kernels, those with the largest share first."""
    uses = kernels_of(profile)
    notes = [] if uses else ["the trace has no kernel of a device"]
    if len(uses) > most_rows:
        share = sum(use.share for use in uses[most_rows:])
        hidden = f"{len(uses) - most_rows} kernels more, {share * 100:.1f} %"
        notes.append(f"{hidden}: --format csv has all")
    columns = fill(KERNEL_COLUMNS, [_kernel_cells(use) for use in uses[:most_rows]])
    counted = any(use.counters for use in uses)
    return Table(
        columns=tuple(c for c in columns if counted or c.head not in (DRAM, "tensor pipe")),
        notes=notes_of(*notes),
        rows=[{"region": profile.region.region, **kernel_values(use)} for use in uses],
        names=("kernel",),
    )


def findings_table(gains: Sequence[Gain], profile: Profile) -> Table:
    """Return a table of the findings *gains*, with a note on the basis of each."""
    notes = [f"{i}: {gain.basis}" for i, gain in enumerate(gains, 1)]
    if len(gains) > 1:
        notes.append("gains do not add up: two may save the same time")
    if not gains:
        notes.append(no_finding(profile))
    cells = [
        [gain.title, *gain_cells(gain), "; ".join(shorten(w, LONGEST_PLACE) for w in gain.where)]
        for gain in gains
    ]
    return Table(fill(FINDING_COLUMNS, cells), notes=notes_of(*notes))


def gain_cells(gain: Gain) -> tuple[str, str]:
    """Return the time that a finding saves, and its share of the step."""
    return format_time(gain.gain_s), f"{gain.share * 100:.1f} %"


def no_finding(profile: Profile) -> str:
    """Return why a profile has no finding."""
    if not profile.operators:
        return "no gain is known, as no step was traced: fewer --steps leave some for the trace"
    if profile.plain:
        least = LEAST_OF_LINKS if profile.together else LEAST
        return f"no known change would save {least:.0%} of the step"
    return (
        "no gain is estimated, as the step was only timed under the profiler: mark steps with "
        "gpuperf.step(), and a plain pass times each before the profiler starts"
    )


def _cells(row: OperatorRow) -> list[str]:
    record, placed = row.record, row.placement
    operator, cost = record.operator, record.cost
    known = operator is not None and operator.known
    bytes_moved = cost.dram_bytes if cost else 0
    fraction = placed.fraction if placed and bytes_moved else None
    timed = row.seconds > 0
    return [
        name_of(row),
        shorten(operands_of(row), LONGEST_SHAPES),
        f"{operator.count:.4g}" if operator else "",
        format_time(row.seconds) if timed else "–",
        f"{row.share * 100:.1f} %" if timed else "–",
        _flops(cost.flop_count) if cost and known else "unknown",
        format_bytes(bytes_moved) if bytes_moved else "–",
        _moved(moved_bytes(record.counters)),
        format_number(cost.intensity, 3) if cost and cost.intensity else "–",
        "–" if fraction is None else f"{fraction * 100:.1f} %",
        row.part if timed else "–",
        f"{row.loss.name} × {row.loss.factor:.2f}" if row.loss else "–",
    ]


def _kernel_cells(use: KernelUse) -> list[str]:
    return [
        shorten(use.name.removeprefix("void "), LONGEST_KERNEL),
        f"{use.count:,}",
        format_time(use.seconds),
        f"{use.share * 100:.1f} %",
        format_time(use.seconds / max(1, use.count)),
        _moved(moved_bytes(use.counters)),
        _flops(round(tensor_operations(use.counters) or 0)),
        shorten(", ".join(use.operators).replace("aten::", ""), LONGEST_SHAPES),
    ]


def _moved(size: float | None) -> str:
    return "–" if size is None else format_bytes(size)


def _flops(flops: int) -> str:
    return format_si(flops, "FLOP") if flops else "–"


def _notes(profile: Profile, roofless: bool, most_rows: int) -> list[str]:
    notes = []
    if hidden := [row.share for row in profile.operators[most_rows:] if row.seconds]:
        share = sum(hidden)
        notes.append(f"{len(hidden)} operators more, {share * 100:.1f} %: --format csv has all")
    notes.append("FLOPs, bytes and times are those of all calls in a step")
    notes += [*scales_of(profile), *hidden_time(profile)]
    if roofless and no_roof(profile):
        notes.append("of roof: no roof of this device is known; `gpuperf calibrate` measures them")
    notes += above_roof(profile, most_rows)
    for name, kernels, share in graphs_of(profile)[:MOST_GRAPHS]:
        count = f"{kernels} kernel{'' if kernels == 1 else 's'}, " if kernels else ""
        notes.append(f"compiled graph {name}: {count}{share * 100:.1f} % of the step")
    notes += _counted_bytes(profile)
    program = profile.region.program
    notes += [f"missing: {text}" for text in (program.missing if program else ())]
    for caveat in profile.region.caveats:
        hint = f" → {caveat.hint}" if caveat.hint else ""
        notes.append(f"{caveat.kind}: {caveat.message}{hint}")
    return notes


def no_roof(profile: Profile) -> bool:
    """Return whether no operator has a known share of a roof."""
    return not any(row.placement and row.placement.fraction for row in profile.operators)


def above_roof(profile: Profile, most_rows: int) -> list[str]:
    """Return a note on the operators, of the *most_rows* first, above their roof."""
    placed = [row.placement for row in ran(profile)[:most_rows]]
    if not any(p and p.fraction and p.fraction > ABOVE for p in placed):
        return []
    why = "bytes came from cache, or the roof is too low"
    if profile.scales.kernels < 1 - DRAWN_OUT:
        why = "bytes came from cache, the roof is too low, or times of kernels were scaled too far"
    return [f"of roof above 100 %: {why}"]


def scales_of(profile: Profile) -> list[str]:
    """Return sentences on traced times that were scaled to fit the plain step."""
    scales = profile.scales
    notes = []
    if profile.cuda and abs(scales.kernels - 1) > DRAWN_OUT:
        why = "they took longer than the plain step, in which they must fit"
        if scales.kernels > 1:
            why = (
                "in the plain step the device never waited, so they took this long there (a card "
                "that has rested between passes has a higher clock)"
            )
        notes.append(_scaled("kernels", scales.kernels, why))
    if scales.pageable < 1 - DRAWN_OUT:
        why = "the host makes them, a profiler delays the host, and the plain step leaves no more"
        notes.append(_scaled("pageable copies", scales.pageable, why))
    if scales.collectives < 1 - DRAWN_OUT:
        why = "a profiler delays the hosts of other ranks, for which this rank waits in them"
        notes.append(_scaled("collectives", scales.collectives, why))
    return notes


def hidden_time(profile: Profile) -> list[str]:
    """Return a sentence on collectives that run beside compute: their time is in the shares of
    operators too."""
    occupied = profile.region.program.occupied if profile.region.program else {}
    linked_s, exposed_s = (occupied.get(name, 0.0) for name in ("communication", "exposed"))
    if not profile.cuda or linked_s - exposed_s <= DRAWN_OUT * profile.step_s:
        return []
    hidden = f"compute hides {format_time(linked_s - exposed_s)} of {format_time(linked_s)}"
    return [f"in a traced step {hidden} of collectives: shares count that time twice"]


def _scaled(what: str, scale: float, why: str) -> str:
    return f"times of {what} are {scale:.3f} times those of the trace: {why}"


def _counted_bytes(profile: Profile) -> list[str]:
    """Return a note on the sum of the DRAM bytes counted in each kernel, and on those of copies.

    A copy within one device both reads and writes its DRAM, so its bytes count twice.
    """
    sizes = [moved_bytes(k.counters) for row in profile.operators for k in row.record.kernels]
    moved = sum(size for size in sizes if size is not None)
    if not moved:
        return []
    program = profile.region.program
    copies = program.moved.items() if program else ()
    copied = sum(size * (2 if "DtoD" in name else 1) for name, size in copies)
    beside = f", and copies move {format_bytes(copied)} more" if copied > 0.001 * moved else ""
    return [f"{DRAM} was counted kernel by kernel, {format_bytes(moved)} together{beside}"]
