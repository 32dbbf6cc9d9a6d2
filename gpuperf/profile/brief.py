"""Render the first look at a profile, in 100 columns and 37 lines (without those of its ranks).

Operators, findings and caveats beyond these are in the whole tables (`-v`), in JSON and in CSV.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpuperf.model.record import Record, Run
from gpuperf.model.text import shorten
from gpuperf.profile.breakdown import KernelUse, OperatorRow, Profile, kernels_of, longest, whole_s
from gpuperf.profile.findings import findings
from gpuperf.profile.gain import Gain
from gpuperf.profile.ranks.table import together_tables
from gpuperf.profile.summary import (
    graphs_of,
    items_rate,
    measured_bytes,
    mfus,
    operands_of,
    part_text,
    prompts_line,
    regions_line,
    time_line,
    title_of,
)
from gpuperf.profile.table import (
    above_roof,
    gain_cells,
    hidden_time,
    kernels_table,
    no_finding,
    no_roof,
    operators_table,
    ran,
    scales_of,
)
from gpuperf.show.render import render
from gpuperf.show.screen import Screen
from gpuperf.show.table import Column, Table, chosen_columns, fill, notes_of
from gpuperf.units import format_bytes, format_flop_rate, format_time

WIDTH, HEIGHT = 100, 37  # characters, lines; progress of `profile` takes up to 8 lines more
MOST_ROWS, LEAST_ROWS, MOST_FINDINGS, LEAST_FINDINGS = 12, 4, 4, 2
MOST_CAVEATS = 4  # lines
LONGEST_NAME, LONGEST_SHAPES, LONGEST_KERNEL, LONGEST_OPERATORS = 26, 28, 38, 20  # characters
NOTHING = "–"
SMALL_PART = 0.005  # of the step: smaller parts are left out
OPERATOR_COLUMNS = (
    Column("operator", left=True),
    Column("of", left=True, keep=2),
    Column("calls", keep=1),
    Column("time"),
    Column("share"),
    Column("of roof"),
    Column("bound by", left=True),
)
KERNEL_COLUMNS = (
    Column("kernel", left=True),
    Column("launches", keep=1),
    Column("time"),
    Column("share"),
    Column("each", keep=2),
    Column("operators", left=True, keep=3),
)
FINDING_COLUMNS = (
    Column("gain"),
    Column("of the step"),
    Column("what to do first", left=True, wrap=24),
)
REGION_COLUMNS = (
    Column("other regions", left=True),
    Column("time"),
    Column("GPU busy"),
    Column("MFU", "sheet %"),
    Column("most of it", left=True),
)
TIMERS = {"events": "CUDA events", "wall": "the host's clock"}


def render_brief(
    run: Run, profiles: Sequence[Profile], by: str, screen: Screen, names: Sequence[str] = ()
) -> str:
    """Render the region of *run* that takes longest, *by* operators or kernels, and a row for each
    other region. *names* choose columns of the whole table instead of the usual ones.

    Raises: UnknownName for a name that is no column.
    """
    narrow = replace(screen, width=min(screen.width, WIDTH))
    largest = longest(profiles)
    others = [profile for profile in profiles if profile is not largest]
    gains, text = findings(largest, run.header), ""
    ranks = "".join(render([one], "table", narrow) + "\n" for one in together_tables(largest))
    for rows in range(MOST_ROWS, LEAST_ROWS - 1, -1):
        for most in range(MOST_FINDINGS, LEAST_FINDINGS - 1, -1):
            head = _head(largest, run, by, rows)
            if names:
                head = _chosen(head, largest, run, by, rows, names)
            tail = [_findings_table(gains, largest, most), _caveats_table(largest)]
            if others:
                tail.insert(0, _regions_table(others, rows // 2))
            text = render([head], "table", screen if names else narrow) + "\n" + ranks
            text += render(tail, "table", narrow)
            if text.count("\n") <= HEIGHT + ranks.count("\n"):
                return text
    return text


def _head(profile: Profile, run: Run, by: str, rows: int) -> Table:
    """Return a table of the *rows* largest operators or kernels of a region, below its totals."""
    columns = _kernel_columns(profile, rows) if by == "kernels" else _columns(profile, rows)
    notes = [_hidden(profile, by, rows), *_doubtful_times(profile, by), *_graphs_note(profile)]
    if by != "kernels" and no_roof(profile) and not run.header.ceilings:
        notes.append("of roof: no roof of this device is known; `gpuperf calibrate` measures them")
    if by != "kernels":
        notes += above_roof(profile, rows)
    return Table(
        columns=columns,
        title=title_of(profile, run),
        lead=tuple(_lead(profile)),
        notes=notes_of(*filter(None, notes)),
        more="-v has all",
    )


def _caveats_table(profile: Profile) -> Table:
    contract = ("Contract", _contract_line(profile.region))
    return Table(footnotes=notes_of(*_caveat_lines(profile)), notes=(contract,))


def _chosen(
    head: Table, profile: Profile, run: Run, by: str, rows: int, names: Sequence[str]
) -> Table:
    """Return *head* with the columns *names* of the table that `-v` shows."""
    whole = (
        kernels_table(profile, rows)
        if by == "kernels"
        else operators_table(profile, not run.header.ceilings, rows)
    )
    return replace(head, columns=chosen_columns(whole, names).columns)


def _lead(profile: Profile) -> Iterator[str]:
    """Yield a line each for the time, the rates, the parts and the memory of a step."""
    region, placed = profile.region, profile.placement
    program, memory = region.program, region.memory
    yield time_line(profile)
    rates = mfus(profile)
    if placed is not None and placed.attained_flop_per_s > 0:
        rates.append(format_flop_rate(placed.attained_flop_per_s))
    if program is not None and program.items:
        rates.append(items_rate(program.items, profile.step_s))
    if rates:
        yield ", ".join(rates)
    shares = {name: seconds / profile.step_s for name, seconds in profile.parts.items()}
    largest = sorted(shares.items(), key=lambda part: -part[1])
    yield ", ".join(part_text(profile, *part) for part in largest if part[1] > SMALL_PART)
    if prompts := prompts_line(profile):
        yield textwrap.shorten(prompts, WIDTH, placeholder=" …")
    if inside := regions_line(profile):
        yield textwrap.shorten(inside, WIDTH, placeholder=" …")
    least = region.cost.dram_bytes if region.cost else 0
    moved = [measured_bytes(profile), f"{format_bytes(least)} at the least" if least else ""]
    texts = [f"DRAM: {', '.join(filter(None, moved))}" if any(moved) else ""]
    if memory is not None and memory.peak_bytes:
        texts.append(f"memory: {format_bytes(memory.peak_bytes)} at the most")
    if any(texts):
        yield "; ".join(filter(None, texts))


def _columns(profile: Profile, rows: int) -> tuple[Column, ...]:
    cells = [_cells(row) for row in ran(profile)[:rows]]
    columns = fill(OPERATOR_COLUMNS, cells)
    return tuple(column for column in columns if set(column.cells) != {NOTHING})


def _cells(row: OperatorRow) -> list[str]:
    operator, placed = row.record.operator, row.placement
    name = row.record.case.op.removeprefix("aten::")
    backward = " bwd" if operator and operator.backward and "backward" not in name else ""
    moves = row.record.cost is not None and row.record.cost.dram_bytes
    fraction = placed.fraction if placed and moves else None
    return [
        shorten(name, LONGEST_NAME - len(backward)) + backward,
        shorten(_compact(operands_of(row)), LONGEST_SHAPES),
        f"{operator.count:.4g}" if operator else "",
        format_time(row.seconds) if row.seconds else NOTHING,
        f"{row.share * 100:.1f} %" if row.seconds else NOTHING,
        NOTHING if fraction is None else f"{fraction * 100:.1f} %",
        row.part.removesuffix("-bound").removesuffix(" kernels") if row.seconds else NOTHING,
    ]


def _compact(operands: str) -> str:
    """Return `8×768, 768×50 bf16` for `8×768 bf16, 768×50 bf16`: a dtype that all share, once."""
    tensors = operands.split(", ")
    dtypes = {text.rpartition(" ")[2] for text in tensors}
    if len(tensors) < 2 or len(dtypes) > 1:
        return operands
    dtype = dtypes.pop()
    return ", ".join(text.removesuffix(f" {dtype}") for text in tensors) + f" {dtype}"


def _kernel_columns(profile: Profile, rows: int) -> tuple[Column, ...]:
    return fill(KERNEL_COLUMNS, [_kernel_cells(use) for use in kernels_of(profile)[:rows]])


def _kernel_cells(use: KernelUse) -> list[str]:
    return [
        shorten(use.name.removeprefix("void ").removeprefix("at::native::"), LONGEST_KERNEL),
        f"{use.count:,}",
        format_time(use.seconds),
        f"{use.share * 100:.1f} %",
        format_time(use.seconds / max(1, use.count)),
        shorten(", ".join(use.operators).replace("aten::", ""), LONGEST_OPERATORS),
    ]


def _hidden(profile: Profile, by: str, rows: int) -> str:
    """Return a note on the operators or kernels beyond the first *rows*: their number and share."""
    every: Sequence[OperatorRow | KernelUse]
    every = kernels_of(profile) if by == "kernels" else ran(profile)
    if len(every) <= rows:
        return "" if every else f"the trace has no {by}"
    share = sum(row.share for row in every[rows:])
    return f"{len(every) - rows} {by} more, {share * 100:.1f} %: -v shows more, --format csv all"


def _doubtful_times(profile: Profile, by: str) -> Iterator[str]:
    for sentence in scales_of(profile):
        yield sentence.partition(":")[0] + ": -v says why"
    yield from hidden_time(profile)


def _graphs_note(profile: Profile) -> Iterator[str]:
    graphs = graphs_of(profile)
    if graphs:
        kernels, share = sum(g[1] for g in graphs), sum(g[2] for g in graphs)
        number = f"{len(graphs)} graph{'s' * (len(graphs) > 1)}"
        yield f"torch.compile: {number}, {kernels} kernels, {share * 100:.1f} % of the step"


def _regions_table(others: Sequence[Profile], most: int) -> Table:
    ordered = sorted(others, key=lambda profile: -whole_s(profile))
    hidden = len(ordered) - most
    notes = notes_of(f"{hidden} regions more: -v has all") if hidden > 0 else ()
    return Table(fill(REGION_COLUMNS, [_region_cells(p) for p in ordered[:most]]), notes=notes)


def _region_cells(profile: Profile) -> list[str]:
    placed, busy_s = profile.placement, profile.busy_s
    mfu = placed.mfu_data_sheet if placed else None
    part, seconds = max(profile.parts.items(), key=lambda part: part[1])
    return [
        shorten(profile.region.region, LONGEST_NAME),
        format_time(profile.step_s),
        NOTHING if busy_s is None or not profile.cuda else f"{busy_s / profile.step_s * 100:.1f} %",
        NOTHING if mfu is None else f"{mfu * 100:.1f}",
        f"{part} {seconds / profile.step_s * 100:.1f} %",
    ]


def _findings_table(gains: Sequence[Gain], profile: Profile, most: int) -> Table:
    """Return a table of the *most* largest findings, each above the place in the program."""
    if not gains:
        return Table(notes=notes_of(no_finding(profile)))
    cells = [[*gain_cells(gain), gain.title] for gain in gains[:most]]
    places = tuple(_place(gain) for gain in gains[:most])
    note = "gains do not add up: two may save the same time; -v says what each rests on"
    if len(gains) > most:
        note = f"{len(gains) - most} findings more: -v has all, and says what each rests on"
    elif len(gains) == 1:
        note = "-v says what the gain rests on"
    return Table(fill(FINDING_COLUMNS, cells), details=places, notes=notes_of(note))


def _place(gain: Gain) -> tuple[str, ...]:
    """Return where to apply a finding: its first line of the program, or else its first place."""
    lines = [where for where in gain.where if not where.startswith("backward")]
    places = lines or list(gain.where)
    return (shorten(f"at {places[0]}", WIDTH - 6),) if places else ()


def _caveat_lines(profile: Profile) -> Iterator[str]:
    """Yield a line for each kind of caveat, and one for the passes that took no step."""
    program = profile.region.program
    caveats: dict[str, list[tuple[str, str]]] = {}
    for text in program.missing if program else ():
        caveats.setdefault("missing", []).append((text, ""))
    for caveat in profile.region.caveats:
        caveats.setdefault(caveat.kind, []).append((caveat.message, caveat.hint))
    for kind, texts in list(caveats.items())[:MOST_CAVEATS]:
        more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
        yield _fitting(f"{kind}: ", *texts[0], more)
    if (hidden := len(caveats) - MOST_CAVEATS) > 0:
        yield f"{hidden} more kinds of caveat: -v has all"


def _fitting(lead: str, message: str, hint: str, end: str) -> str:
    """Return a caveat as one line: message and hint, or as much of them as fits."""
    both = " → ".join(filter(None, (message, hint)))
    room = WIDTH - len(lead) - len(end)
    whole = next((text for text in (both, message, hint) if text and len(text) <= room), None)
    return lead + (whole or textwrap.shorten(hint or message, room, placeholder=" …")) + end


def _contract_line(region: Record) -> str:
    """Return how the time of a step was measured, and how many steps the other passes took."""
    contract, program = region.contract, region.program
    steps = dict(program.steps) if program else {}
    plain, others = steps.pop("plain", 0), sorted(steps.values())
    timer = TIMERS.get(contract.timer, contract.timer)
    text = f"mean of {plain} plain steps ({timer}), {contract.warmup_calls} of warm-up"
    if not plain:
        text = "the step was timed under the profiler"
    if others:
        few, most = others[0], others[-1]
        text += f"; other passes took {few if few == most else f'{few} to {most}'} steps"
    return text
