"""How are the known devices and their peaks shown?

A figure that is not read from a document carries a mark wherever it stands on the screen: `~` by
arithmetic, `?` recalled or conflicting, `m` measured. JSON and CSV carry the word instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpuperf.model.codec import to_builtins
from gpuperf.model.peaks import Ceiling, CrossCheck, Figure, Peaks, Sureness, cross_check
from gpuperf.show.data import to_csv
from gpuperf.show.text import escape
from gpuperf.units import SI_FACTOR

__all__ = [
    "device_csv",
    "device_json",
    "device_markdown",
    "device_view",
    "devices_csv",
    "devices_json",
    "devices_markdown",
    "devices_table",
]

MARK: Mapping[Sureness, str] = {"verified": "", "derived": "~", "uncertain": "?", "measured": "m"}
MEANING: Mapping[Sureness, str] = {
    "verified": "",
    "derived": "by arithmetic",
    "uncertain": "recalled or conflicting: check it before relying on it",
    "measured": "measured, not published",
}
UNKNOWN = "–"

# The figures of a device in the order shown, each with its name and its unit on the screen.
FIGURES = {
    "memory_bandwidth": ("memory bandwidth", "GB/s"),
    "memory_capacity": ("memory", "GB"),
    "l2": ("L2", "MiB"),
    "llc": ("last-level cache", "MiB"),
    "shared_memory": ("shared memory an SM", "KiB"),
    "boost_clock": ("boost clock", "MHz"),
    "tensor_clock": ("tensor clock", "MHz"),
    "tdp": ("TDP", "W"),
    "link_bandwidth": ("link bandwidth", "GB/s"),
}
# Terminal columns from which every column of the table of devices, of the peaks of one, has room.
WIDE_OVERVIEW = 90
WIDE = 125

OVERVIEW_HEADS = (
    "id", "name", "SMs", "memory\nGB", "bandwidth\nGB/s", "bf16 tensor\nTFLOP/s", "fp32\nTFLOP/s",
)  # fmt: skip
FIGURE_HEADS = ("figure", "value", "unit", "condition", "source")
COMPUTE_HEADS = (
    "pipe", "dtype", "accumulate", "peak", "unit", "clock\nMHz", "FLOP/clock\nan SM",
    "SMs×clock\n×rate", "off by\n%", "condition", "source",
)  # fmt: skip
NUMBERS = {*OVERVIEW_HEADS[2:], "value", "peak", *COMPUTE_HEADS[5:9]}  # aligned to the right

Cells = list[str]


def devices_table(known: Sequence[Peaks], width: int) -> RenderableType:
    """One line a device: SMs, memory, bandwidth, bf16 (tensor pipe) and fp32 (vector pipe)."""
    rows = [_overview(peaks, pad=" ") for peaks in known]
    table = _table(OVERVIEW_HEADS, rows, hidden=("name",) if width < WIDE_OVERVIEW else ())
    shown = {status for peaks in known for status in _overview_statuses(peaks)}
    dense = "bf16 tensor: dense, fp32 accumulate. fp32: fused multiply-add on the vector pipe."
    return Group(table, Text(""), Text(dense), Text(_legend(shown)))


def device_view(peaks: Peaks, width: int) -> RenderableType:
    """Every figure of one device, with its condition, its source and its cross-check."""
    sources = _sources(peaks)
    hidden = (COMPUTE_HEADS[6], "condition") if width < WIDE else ()
    parts: list[RenderableType] = [Text(peaks.name, style="bold"), Text(_headline(peaks))]
    parts += [Text(f"matches {_names(peaks)}"), Text("")]
    parts += [_table(FIGURE_HEADS, _figure_rows(peaks, sources, pad=" ")), Text("")]
    parts += [_table(COMPUTE_HEADS, _compute_rows(peaks, sources, pad=" "), hidden), Text("")]
    if hidden:
        parts.append(Text(f"The conditions: gpuperf devices {peaks.id} --format md"))
    parts += [Text(f"{c.label}: {c.waiver}.") for c in peaks.compute if c.waiver]
    parts += [Text(peaks.notes), Text("")] if peaks.notes else []
    parts += [Text(f"[{number}] {source}") for source, number in sources.items()]
    parts += [Text(_legend(_statuses(peaks)))]
    return Group(*parts)


def devices_json(known: Sequence[Peaks]) -> str:
    """The overview as a JSON array, in SI units."""
    return json.dumps([_overview_data(peaks) for peaks in known], indent=2, ensure_ascii=False)


def device_json(peaks: Peaks) -> str:
    """Everything known of one device as a JSON object, in SI units, with the cross-check."""
    checks = [
        {
            "pipe": ceiling.pipe,
            "dtype": ceiling.dtype,
            "accumulate": ceiling.accumulate,
            "computed": computed,
            "difference": difference,
        }
        for ceiling, computed, difference in cross_check(peaks)
    ]
    return json.dumps({**to_builtins(peaks), "cross_check": checks}, indent=2, ensure_ascii=False)


def devices_csv(known: Sequence[Peaks]) -> str:
    """The overview as CSV, in SI units."""
    rows = [_overview_data(peaks) for peaks in known]
    return to_csv(rows, list(rows[0])).rstrip("\n")


def device_csv(peaks: Peaks) -> str:
    """One line a figure of one device, in SI units."""
    rows = _figure_data(peaks)
    return to_csv(rows, list(rows[0])).rstrip("\n")


def devices_markdown(known: Sequence[Peaks]) -> str:
    """The overview as a markdown table with its legend."""
    shown = {status for peaks in known for status in _overview_statuses(peaks)}
    table = _markdown(OVERVIEW_HEADS, [_overview(peaks) for peaks in known])
    return f"{table}\n\n{_legend(shown)}"


def device_markdown(peaks: Peaks) -> str:
    """One device as markdown: its figures, its peaks, its sources."""
    sources = _sources(peaks)
    figures = _markdown(FIGURE_HEADS, _figure_rows(peaks, sources))
    compute = _markdown(COMPUTE_HEADS, _compute_rows(peaks, sources))
    waivers = "".join(f"{c.label}: {c.waiver}.\n\n" for c in peaks.compute if c.waiver)
    listed = "\n".join(f"- [{number}] {s}" for s, number in sources.items())
    return (
        f"## {peaks.name}\n\n{_headline(peaks)}\n\n{figures}\n\n{compute}\n\n{waivers}"
        f"{peaks.notes}\n\n{listed}\n\n{_legend(_statuses(peaks))}"
    )


def _number(figure: Figure | None, unit: str, pad: str = "") -> str:
    """The figure in *unit* with its mark; *pad* stands where there is no mark."""
    if figure is None:
        return UNKNOWN + pad
    return f"{figure.value / SI_FACTOR[unit]:.6g}{MARK[figure.status] or pad}"


def _peak(peaks: Peaks, pipe: str, dtype: str) -> Figure | None:
    """The peak with fp32 accumulation."""
    return next(
        (c.rate for c in peaks.compute if (c.pipe, c.dtype, c.accumulate) == (pipe, dtype, "fp32")),
        None,
    )


def _overview_figures(peaks: Peaks) -> dict[str, Figure | None]:
    return {
        "memory_capacity": peaks.figures.get("memory_capacity"),
        "memory_bandwidth": peaks.bandwidth,
        "tensor_bf16": _peak(peaks, "tensor", "bf16"),
        "vector_fp32": _peak(peaks, "vector", "fp32"),
    }


def _overview(peaks: Peaks, pad: str = "") -> Cells:
    units = ("GB", "GB/s", "TFLOP/s", "TFLOP/s")
    figures = zip(_overview_figures(peaks).values(), units, strict=True)
    sms = f"{peaks.sm_count}{MARK[peaks.sm_count_status] or pad}"
    return [peaks.id, peaks.name, sms, *(_number(f, unit, pad) for f, unit in figures)]


def _overview_statuses(peaks: Peaks) -> set[Sureness]:
    figures = _overview_figures(peaks).values()
    return {peaks.sm_count_status} | {f.status for f in figures if f is not None}


def _overview_data(peaks: Peaks) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": peaks.id,
        "name": peaks.name,
        "vendor": peaks.vendor,
        "arch": peaks.arch,
        "capability": peaks.capability,
        "sm_count": peaks.sm_count,
        "sm_count_status": peaks.sm_count_status,
    }
    units = ("bytes", "bytes_per_s", "flop_per_s", "flop_per_s")
    for (key, figure), unit in zip(_overview_figures(peaks).items(), units, strict=True):
        row[f"{key}_{unit}"] = figure.value if figure else None
        row[f"{key}_status"] = figure.status if figure else None
    return row


def _headline(peaks: Peaks) -> str:
    sms = f"{peaks.sm_count}{MARK[peaks.sm_count_status]} SMs"
    parts = [peaks.id, peaks.vendor, peaks.arch, f"capability {peaks.capability}", sms]
    if peaks.pcie:
        parts.append(f"PCIe {peaks.pcie}{MARK[peaks.pcie_status]}")
    return " · ".join(parts)


def _names(peaks: Peaks) -> str:
    return f"{', '.join(repr(n) for n in peaks.names)} with {peaks.sm_count} SMs"


def _statuses(peaks: Peaks) -> set[Sureness]:
    statuses = {f.status for f in peaks.figures.values()} | {c.rate.status for c in peaks.compute}
    return statuses | {peaks.sm_count_status} | ({peaks.pcie_status} if peaks.pcie else set())


def _legend(statuses: Iterable[Sureness]) -> str:
    """What the marks mean, of those that are shown."""
    marks = [f"{MARK[s]} {MEANING[s]}" for s in MARK if s in set(statuses) and MARK[s]]
    return "; ".join([*marks, "no mark: read in the source"])


def _sources(peaks: Peaks) -> dict[str, int]:
    """Each source once, numbered from 1."""
    found = [peaks.sm_count_source, peaks.pcie_source if peaks.pcie else ""]
    found += [f.source for f in peaks.figures.values()] + [c.rate.source for c in peaks.compute]
    return {source: i for i, source in enumerate(dict.fromkeys(filter(None, found)), start=1)}


def _reference(source: str, sources: Mapping[str, int]) -> str:
    return f"[{sources[source]}]" if source else UNKNOWN


def _figure_rows(peaks: Peaks, sources: Mapping[str, int], pad: str = "") -> list[Cells]:
    sms = f"{peaks.sm_count}{MARK[peaks.sm_count_status] or pad}"
    rows = [["SMs", sms, "", "", _reference(peaks.sm_count_source, sources)]]
    for key, (name, unit) in FIGURES.items():
        if figure := peaks.figures.get(key):
            value = _number(figure, unit, pad)
            rows.append([name, value, unit, figure.condition, _reference(figure.source, sources)])
    if peaks.pcie:
        value = f"{peaks.pcie}{MARK[peaks.pcie_status] or pad}"
        rows.append(["PCIe generation", value, "", "", _reference(peaks.pcie_source, sources)])
    return rows


def _compute_rows(peaks: Peaks, sources: Mapping[str, int], pad: str = "") -> list[Cells]:
    checks = {id(check.ceiling): check for check in cross_check(peaks)}
    return [_compute_row(c, checks.get(id(c)), sources, pad) for c in peaks.compute]


def _compute_row(
    ceiling: Ceiling, check: CrossCheck | None, sources: Mapping[str, int], pad: str
) -> Cells:
    clock, rate, unit = ceiling.clock_hz, ceiling.flop_per_clock_per_sm, f"T{ceiling.rate.unit}"
    return [
        ceiling.pipe,
        ceiling.dtype,
        ceiling.accumulate,
        _number(ceiling.rate, unit, pad),
        unit,
        f"{clock / 1e6:.6g}" if clock else UNKNOWN,
        f"{rate:.6g}" if rate else UNKNOWN,
        f"{check.computed / 1e12:.5g}" if check else UNKNOWN,
        _difference(ceiling, check),
        ceiling.rate.condition,
        _reference(ceiling.rate.source, sources),
    ]


def _difference(ceiling: Ceiling, check: CrossCheck | None) -> str:
    if check is None:
        return "waived" if ceiling.waiver else UNKNOWN
    percent = round(check.difference * 100, 1)
    return f"{percent:+.1f}" if percent else "0.0"


def _table(heads: Iterable[str], rows: Iterable[Cells], hidden: Iterable[str] = ()) -> Table:
    """Only conditions are folded where the terminal is narrow; numbers never are."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for head in heads:
        if head not in hidden:
            justify: Literal["left", "right"] = "right" if head in NUMBERS else "left"
            table.add_column(head, justify=justify, no_wrap=head != "condition")
    for row in rows:
        pairs = zip(heads, row, strict=True)
        table.add_row(*(Text(cell) for head, cell in pairs if head not in hidden))
    return table


def _figure_data(peaks: Peaks) -> list[dict[str, Any]]:
    checks = {id(check.ceiling): check for check in cross_check(peaks)}
    count = Figure(peaks.sm_count, "count", peaks.sm_count_status, peaks.sm_count_source)
    rows = [
        {"quantity": key, "pipe": "", "dtype": "", "accumulate": "", **_figure_fields(figure)}
        for key, figure in {"sm_count": count, **peaks.figures}.items()
    ]
    for c in peaks.compute:
        check = checks.get(id(c))
        kind = {"quantity": "peak", "pipe": c.pipe, "dtype": c.dtype, "accumulate": c.accumulate}
        rows.append(
            {
                **kind,
                **_figure_fields(c.rate),
                "computed": check.computed if check else None,
                "difference": check.difference if check else None,
                "waiver": c.waiver,
            }
        )
    return rows


def _figure_fields(figure: Figure) -> dict[str, Any]:
    return {
        "value": figure.value,
        "unit": figure.unit,
        "status": figure.status,
        "condition": figure.condition,
        "source": figure.source,
        "computed": None,
        "difference": None,
        "waiver": "",
    }


def _markdown(heads: Iterable[str], rows: Iterable[Cells]) -> str:
    rule = ["---:" if head in NUMBERS else "---" for head in heads]
    body = (map(escape, row) for row in rows)
    lines = [[head.replace("\n", " ") for head in heads], rule, *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
