"""Describe a profiled region in a few lines of text: its title, its totals, its caveats."""

from __future__ import annotations

from gpuperf.model.metrics import moved_bytes
from gpuperf.model.record import Run
from gpuperf.model.samples import mean_precision
from gpuperf.model.text import clean, shorten
from gpuperf.profile.breakdown import OperatorRow, Profile
from gpuperf.profile.ranks.table import waiting_share
from gpuperf.units import format_bytes, format_flop_rate, format_number, format_si, format_time

LONGEST = 44  # characters of a name
FEWEST_STEPS = 5  # steps from which on an interval is stated
WIDE_INTERVAL = 0.5  # relative half-width from which on the extremes are stated instead
UNEVEN = 0.02  # relative difference of median and mean from which on both are stated
SMALL_PART = 0.001  # share of the step: smaller parts are left out
MOSTLY = 0.5  # share of the communication from which on its waiting is stated
COMMUNICATION = "communication"  # the part of a step
MOST_PARTS = 8  # regions inside a step that are listed
MOST_LENGTHS = 2  # lengths of prompts that are listed


def title_of(profile: Profile, run: Run) -> str:
    """Return the title of a profile, like `step of gpt2.py on NVIDIA H200`."""
    script = profile.region.case.implementation
    name, script, device = (
        shorten(clean(text), LONGEST)
        for text in (profile.region.region, script, run.header.device.name)
    )
    return f"{name} of {script} on {device}"


def totals_of(profile: Profile, run: Run) -> tuple[str, ...]:
    """Return the lines above the whole tables: time, parts, rates, cost, memory and items."""
    lines = [time_line(profile), prompts_line(profile), parts_line(profile), regions_line(profile)]
    lines += [_rates_line(profile), _cost_line(profile)]
    memory, program = profile.region.memory, profile.region.program
    if memory is not None and memory.peak_bytes:
        lines.append(f"{format_bytes(memory.peak_bytes)} of memory at the most")
    if program is not None and program.items:
        lines.append(items_rate(program.items, profile.step_s))
    return tuple(filter(None, lines))


def prompts_line(profile: Profile) -> str:
    """Return the time between tokens and to the first one; empty for a program without prompts:
    `6.906 ms a token; the first one after 12.34 ms (prompt of 4 × 64), 48.1 ms (4 × 512)`."""
    program = profile.region.program
    if program is None or not program.prompts:
        return ""
    ordered = sorted(program.prompts, key=lambda prompts: (prompts.tokens, prompts.sequences))
    each = [
        f"{format_time(prompts.usual_s)} "
        f"({'' if index else 'prompt of '}{prompts.sequences} × {prompts.tokens:,})"
        for index, prompts in enumerate(ordered[:MOST_LENGTHS])
    ]
    more = f", {len(ordered) - MOST_LENGTHS} more" if len(ordered) > MOST_LENGTHS else ""
    return f"{format_time(profile.step_s)} a token; the first one after {', '.join(each)}{more}"


def time_line(profile: Profile) -> str:
    """Return the time of a step: `138.6 ms a step ± 0.1 %, the GPU busy 99.7 %, 1,004 kernels`."""
    program = profile.region.program
    line = f"{format_time(profile.step_s)} a step{_spread(profile)}"
    if profile.cuda and profile.busy_s is not None and profile.plain:
        line += f", the GPU busy {profile.busy_s / profile.step_s * 100:.1f} %"
    if program is None or "plain" not in program.steps:
        line += " under the profiler, which slows the host: no plain pass timed it"
    if program is not None and program.launched.get("kernel"):
        line += f", {program.launched['kernel']:,g} kernels"
    return line


def _spread(profile: Profile) -> str:
    """Return the interval of a step's mean, and the median where it differs from the mean."""
    samples = profile.region.samples
    if samples is None or samples.size < FEWEST_STEPS:
        return ""
    precision = mean_precision(samples.values_s)
    text = f" ± {precision * 100:.1f} %"
    if precision > WIDE_INTERVAL:
        least, most = min(samples.values_s), max(samples.values_s)
        text = f", between {format_time(least)} and {format_time(most)} in {samples.size} steps"
    if abs(samples.median_s / profile.step_s - 1) > UNEVEN:
        text += f" (mean; the median is {format_time(samples.median_s)})"
    return text


def parts_line(profile: Profile) -> str:
    """Return the shares of the step's parts as text, in the order of `PARTS`."""
    shares = [(name, seconds / profile.step_s) for name, seconds in profile.parts.items()]
    return ", ".join(part_text(profile, *share) for share in shares if share[1] > SMALL_PART)


def part_text(profile: Profile, name: str, share: float) -> str:
    """Return a part of a step as text: `communication 26.8 % (87 % of it waits for other ranks)`,
    where that is most of it."""
    text = f"{name} {share * 100:.1f} %"
    if name != COMMUNICATION or (waiting := waiting_share(profile)) < MOSTLY:
        return text
    return f"{text} ({waiting * 100:.0f} % of it waits for other ranks)"


def regions_line(profile: Profile) -> str:
    """Return the shares of the regions inside a step as text; empty if it has none.

    They are shares of the device's busy time; on a CPU, of the traced step.
    """
    program = profile.region.program
    if program is None or not program.parts:
        return ""
    traced = profile.region.times.get("busy" if profile.cuda else "traced")
    whole_s = traced.median_s if traced else profile.step_s
    parts = sorted(program.parts.items(), key=lambda part: -part[1])[:MOST_PARTS]
    shares = (f"{shorten(clean(n), LONGEST)} {s / whole_s * 100:.1f} %" for n, s in parts)
    return f"inside, of the {'busy' if profile.cuda else 'traced'} time: {', '.join(shares)}"


def _rates_line(profile: Profile) -> str:
    placed = profile.placement
    if placed is None or placed.attained_flop_per_s <= 0:
        return ""
    rate = f"{format_flop_rate(placed.attained_flop_per_s)} of the model's FLOPs"
    return ", ".join([rate, *mfus(profile)])


def mfus(profile: Profile) -> list[str]:
    """Return the MFUs and the HFU that are known, each with its denominator."""
    placed, texts = profile.placement, []
    if placed is not None and placed.mfu_data_sheet is not None:
        texts.append(f"MFU {placed.mfu_data_sheet * 100:.1f} % of the data sheet")
    if placed is not None and placed.mfu_measured is not None:
        name = "" if texts else "MFU "
        texts.append(f"{name}{placed.mfu_measured * 100:.1f} % of the measured roof")
    if profile.hfu is not None:
        texts.append(f"HFU {profile.hfu * 100:.1f} %")
    return texts


def _cost_line(profile: Profile) -> str:
    cost, program = profile.region.cost, profile.region.program
    if cost is None or not cost.flop_count:
        return ""
    counter = program.flop_counter if program else None
    beside = f" (torch's own counter: {format_si(counter, 'FLOP')})" if counter else ""
    least = f"{format_bytes(cost.dram_bytes)} at the least through DRAM"
    measured = ", ".join(filter(None, [least, measured_bytes(profile)]))
    return f"{format_si(cost.flop_count, 'FLOP', 4)}{beside}, {measured}"


def measured_bytes(profile: Profile) -> str:
    """Return the bytes through DRAM that counters measured and their rate; empty without any."""
    moved = moved_bytes(profile.region.counters)
    if moved is None:
        return ""
    return f"{format_bytes(moved)} measured ({format_bytes(moved / profile.step_s)}/s)"


def items_rate(items: float, step_s: float) -> str:
    """Return the rate of items, like `163,840 items/s`."""
    rate = items / step_s
    return f"{rate:,.0f} items/s" if rate >= 1000 else f"{format_number(rate, 4)} items/s"


def name_of(row: OperatorRow) -> str:
    """Return the operator's name for a table: `mm`, `mm (backward)`, or that of a kernel."""
    operator = row.record.operator
    name = clean(row.record.case.op).removeprefix("aten::")
    return shorten(name, LONGEST) + (" (backward)" if operator and operator.backward else "")


def operands_of(row: OperatorRow) -> str:
    """Return the shapes and dtypes of the operator's tensors."""
    return clean(row.record.operator.operands) if row.record.operator else ""


def graphs_of(profile: Profile) -> list[tuple[str, int, float]]:
    """Return each torch.compile graph: its name, its kernels in a step, its share of the step."""
    rows: dict[str, list[OperatorRow]] = {}
    for row in profile.operators:
        if row.record.operator and row.record.operator.graph:
            rows.setdefault(row.record.operator.graph, []).append(row)
    graphs = []
    for graph, members in rows.items():
        largest = max(members, key=lambda row: row.seconds).record.operator
        name = graph + (" (backward)" if largest and largest.backward else "")
        kernels = sum(k.count for row in members for k in row.record.kernels if k.computes)
        graphs.append((name, kernels, sum(row.share for row in members)))
    return sorted(graphs, key=lambda graph: -graph[2])
