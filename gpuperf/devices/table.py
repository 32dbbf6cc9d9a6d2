"""Make the tables of the known devices and their peaks.

On the screen, a mark follows each figure that was not read in a document: `~` by arithmetic, `?`
recalled or conflicting, `m` measured. JSON and CSV have the word instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuperf.model.codec import to_builtins
from gpuperf.model.peaks import Ceiling, CrossCheck, Figure, Peaks, Sureness, cross_check
from gpuperf.show.table import Column, Table, fill, notes_of
from gpuperf.units import SI_FACTOR

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
OVERVIEW_COLUMNS = (
    Column("id", left=True),
    Column("name", left=True, keep=1),
    Column("SMs"),
    Column("memory", "GB"),
    Column("bandwidth", "GB/s"),
    Column("bf16 tensor", "TFLOP/s"),
    Column("fp32", "TFLOP/s"),
)
FIGURE_COLUMNS = (
    Column("figure", left=True),
    Column("value"),
    Column("unit", left=True),
    Column("condition", left=True, wrap=24),
    Column("source", left=True),
)
COMPUTE_COLUMNS = (
    Column("pipe", left=True),
    Column("dtype", left=True),
    Column("accumulate", left=True),
    Column("peak"),
    Column("unit", left=True),
    Column("clock", "MHz"),
    Column("FLOP/clock", "an SM", keep=2),
    Column("SMs×clock", "×rate", keep=3),
    Column("off by", "%", keep=4),
    Column("condition", left=True, keep=1, wrap=24),
    Column("source", left=True),
)

Cells = list[str]


def devices_table(known: Sequence[Peaks]) -> Table:
    """Make a table with a line for each device: SMs, memory, bandwidth, bf16 and fp32 rates."""
    shown = {status for peaks in known for status in _overview_statuses(peaks)}
    dense = "bf16 tensor: dense, fp32 accumulate. fp32: fused multiply-add on the vector pipe."
    return Table(
        columns=fill(OVERVIEW_COLUMNS, [_overview(peaks) for peaks in known]),
        notes=notes_of(dense, _legend(shown)),
        rows=[_overview_data(peaks) for peaks in known],
    )


def device_tables(peaks: Peaks) -> tuple[Table, Table]:
    """Make the tables of a device's figures with their conditions, sources and cross-checks."""
    sources = _sources(peaks)
    notes = [f"{c.label}: {c.waiver}." for c in peaks.compute if c.waiver]
    notes += [peaks.notes] if peaks.notes else []
    notes += [f"[{number}] {source}" for source, number in sources.items()]
    return (
        Table(
            columns=fill(FIGURE_COLUMNS, _figure_rows(peaks, sources)),
            title=peaks.name,
            lead=(_headline(peaks), f"matches {_names(peaks)}"),
            rows=_figure_data(peaks),
        ),
        Table(
            columns=fill(COMPUTE_COLUMNS, _compute_rows(peaks, sources)),
            notes=notes_of(*notes, _legend(_statuses(peaks))),
        ),
    )


def device_data(peaks: Peaks) -> dict[str, Any]:
    """Return all figures of a device in SI units, with the cross-checks."""
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
    return {**to_builtins(peaks), "cross_check": checks}


def _number(figure: Figure | None, unit: str) -> str:
    """Write the figure in *unit*, with the mark of its status or a blank for a published figure."""
    if figure is None:
        return f"{UNKNOWN} "
    return f"{figure.value / SI_FACTOR[unit]:.6g}{MARK[figure.status] or ' '}"


def _peak(peaks: Peaks, pipe: str, dtype: str) -> Figure | None:
    """Return the peak of *pipe* in *dtype* with fp32 accumulation; None if it is unknown."""
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


def _overview(peaks: Peaks) -> Cells:
    units = ("GB", "GB/s", "TFLOP/s", "TFLOP/s")
    figures = zip(_overview_figures(peaks).values(), units, strict=True)
    sms = f"{peaks.sm_count}{MARK[peaks.sm_count_status] or ' '}"
    return [peaks.id, peaks.name, sms, *(_number(f, unit) for f, unit in figures)]


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
    marks = [f"{MARK[s]} {MEANING[s]}" for s in MARK if s in set(statuses) and MARK[s]]
    return "; ".join([*marks, "no mark: read in the source"])


def _sources(peaks: Peaks) -> dict[str, int]:
    sources = [peaks.sm_count_source, peaks.pcie_source if peaks.pcie else ""]
    sources += [f.source for f in peaks.figures.values()] + [c.rate.source for c in peaks.compute]
    return {source: i for i, source in enumerate(dict.fromkeys(filter(None, sources)), start=1)}


def _reference(source: str, sources: Mapping[str, int]) -> str:
    return f"[{sources[source]}]" if source else UNKNOWN


def _figure_rows(peaks: Peaks, sources: Mapping[str, int]) -> list[Cells]:
    sms = f"{peaks.sm_count}{MARK[peaks.sm_count_status] or ' '}"
    rows = [["SMs", sms, "", "", _reference(peaks.sm_count_source, sources)]]
    for key, (name, unit) in FIGURES.items():
        if figure := peaks.figures.get(key):
            value = _number(figure, unit)
            rows.append([name, value, unit, figure.condition, _reference(figure.source, sources)])
    if peaks.pcie:
        value = f"{peaks.pcie}{MARK[peaks.pcie_status] or ' '}"
        rows.append(["PCIe generation", value, "", "", _reference(peaks.pcie_source, sources)])
    return rows


def _compute_rows(peaks: Peaks, sources: Mapping[str, int]) -> list[Cells]:
    checks = {id(check.ceiling): check for check in cross_check(peaks)}
    return [_compute_row(c, checks.get(id(c)), sources) for c in peaks.compute]


def _compute_row(ceiling: Ceiling, check: CrossCheck | None, sources: Mapping[str, int]) -> Cells:
    clock, rate, unit = ceiling.clock_hz, ceiling.flop_per_clock_per_sm, f"T{ceiling.rate.unit}"
    return [
        ceiling.pipe,
        ceiling.dtype,
        ceiling.accumulate,
        _number(ceiling.rate, unit),
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
