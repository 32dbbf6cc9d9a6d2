"""Describe the columns of a run's rows: the name, kind, unit and meaning of each.

`rows.py` fills them, `--format csv` and `Run.frame()` have them in this order. A column whose name
has a point, such as `point.m`, is one entry of a mapping: which entries exist depends on the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from gpuperf.units import DTYPES

Kind = Literal["text", "number", "count", "flag", "mixed"]


@dataclass(frozen=True)
class RowColumn:
    """A column of the rows of a run; `unit` is empty for a text, and missing figures are empty.

    A `number` may have a fraction, a `count` is whole, a `flag` true or false. The values of an
    axis are `mixed`: whole numbers or names.
    """

    name: str
    kind: Kind
    unit: str
    meaning: str


def _columns(kind: Kind, *lines: tuple[str, str, str]) -> tuple[RowColumn, ...]:
    return tuple(RowColumn(name, kind, unit, meaning) for name, unit, meaning in lines)


COLUMNS: tuple[RowColumn, ...] = (
    *_columns(
        "text",
        ("run", "", "id of the run"),
        ("kind", "", "what the row is: case, region, operator or kernel"),
        ("case", "", "id of the case, op/implementation[axis=value,…]"),
        ("op", "", "name of the workload"),
        ("implementation", "", "name of the implementation"),
        ("dtype", "", "data type: the axis of this name, or that of the FLOPs"),
        ("status", "", "ok, or why there is no valid time: oom, skipped, wrong, timeout, …"),
    ),
    *_columns("flag", ("valid", "", "whether the row breaks no rule of physics")),
    *_columns(
        "text",
        ("reason", "", "reason of the status"),
        ("hint", "", "what to do about the status"),
        ("caveats", "", "doubts about the measurement, `kind: message`, joined by semicolons"),
    ),
    *_columns(
        "number",
        ("time_s", "s", "median time of one call"),
        ("time_low_s", "s", "lower end of the 95 % interval of the median within one process"),
        ("time_high_s", "s", "upper end of the 95 % interval of the median within one process"),
        ("precision", "fraction", "half the interval over the median"),
        ("spread", "fraction", "interquartile range of the samples over the median"),
    ),
    *_columns("count", ("samples", "count", "number of samples")),
    *_columns(
        "number", ("effective_samples", "count", "independent samples that give as sure a median")
    ),
    *_columns(
        "count",
        ("calls_per_window", "count", "calls in each timed window"),
        ("processes", "count", "processes that the row combines"),
    ),
    *_columns(
        "number",
        ("time_across_processes_low_s", "s", "lower end of the 95 % interval over processes"),
        ("time_across_processes_high_s", "s", "upper end of the 95 % interval over processes"),
        ("time_next_low_s", "s", "lower end of the 95 % interval of another process's median"),
        ("time_next_high_s", "s", "upper end of the 95 % interval of another process's median"),
        ("speedup", "ratio", "time of the baseline over the time of the case"),
        ("speedup_low", "ratio", "lower end of the speed-up's 95 % interval over processes"),
        ("speedup_high", "ratio", "upper end of the speed-up's 95 % interval over processes"),
        ("speedup_one_process_low", "ratio", "lower end of the interval within one process"),
        ("speedup_one_process_high", "ratio", "upper end of the interval within one process"),
        ("algbw_byte_per_s", "byte/s", "whole array of a collective over the time"),
        ("busbw_byte_per_s", "byte/s", "bytes that a rank sends in a ring over the time"),
        ("flop", "FLOP", "operations that the algorithm needs for a call"),
        ("bytes_compulsory", "byte", "bytes that the algorithm must move through DRAM"),
        ("bytes_modelled", "byte", "bytes that this implementation is modelled to move"),
        ("bytes_measured", "byte", "bytes through DRAM by the hardware's counters"),
        ("bytes_measured_uncertainty", "byte", "half the 95 % interval of the measured bytes"),
        ("bytes_measured_over_compulsory", "ratio", "measured over compulsory bytes"),
        ("bytes_l2", "byte", "bytes through L2 by the hardware's counters"),
        ("bytes_l1", "byte", "bytes through L1 by the hardware's counters"),
        ("flop_modelled", "FLOP", "operations that this implementation is modelled to do"),
        ("flop_hardware", "FLOP", "operations that the hardware counted"),
        ("flop_per_s", "FLOP/s", "operations of the algorithm over the time"),
        ("byte_per_s", "byte/s", "compulsory bytes over the time"),
        ("byte_per_s_measured", "byte/s", "measured bytes over the time"),
        ("intensity_flop_per_byte", "FLOP/byte", "operations over compulsory bytes"),
        ("intensity_modelled", "FLOP/byte", "modelled operations over modelled bytes"),
        ("intensity_measured", "FLOP/byte", "operations over measured bytes"),
    ),
    *_columns("text", ("roof", "", "which roofs the place refers to: data sheet or measured")),
    *_columns(
        "number",
        ("ideal_s", "s", "time of a call that reaches the roof"),
        ("attainable_flop_per_s", "FLOP/s", "the roof at this intensity"),
        ("fraction_of_attainable", "fraction", "share of the roof that the case attains"),
        ("ridge_flop_per_byte", "FLOP/byte", "intensity at which the roof turns flat"),
    ),
    *_columns(
        "text",
        ("bound_by", "", "what limits the case: compute, memory, special function, latency"),
        ("pipe", "", "unit of the SM that computes"),
    ),
    *_columns(
        "number",
        ("mfu_data_sheet", "fraction", "FLOP/s over the peak of the data sheet"),
        ("mfu_clock", "fraction", "FLOP/s over the peak at the observed clock"),
        ("mfu_measured", "fraction", "FLOP/s over the measured ceiling"),
    ),
    *_columns("text", ("unknown", "", "why figures are missing, joined by semicolons")),
    *_columns(
        "number",
        ("sm_clock_hz", "Hz", "median SM clock during the samples"),
        ("power_w", "W", "highest reading of the board's power"),
        ("power_limit_w", "W", "limit of the board's power"),
        ("temperature_c", "°C", "temperature of the GPU"),
        ("energy_j", "J", "energy of one call under a sustained load, by the card's counter"),
        ("energy_low_j", "J", "lower end of the 95 % interval of the energy over trials"),
        ("energy_high_j", "J", "upper end of the 95 % interval of the energy over trials"),
        ("energy_net_j", "J", "energy of one call, less that of the idle card"),
        ("energy_per_flop_j", "J", "energy over the operations that the algorithm needs"),
        ("energy_per_byte_j", "J", "energy over the compulsory bytes"),
        ("flop_per_j", "FLOP/J", "operations over the energy: FLOP/s for each watt"),
        ("flop_per_j_net", "FLOP/J", "operations over the energy net of the idle card"),
        ("power_mean_w", "W", "mean power of the trials, by the counter"),
        ("power_idle_w", "W", "mean power of the idle card, with an open context"),
        ("energy_counter_over_power", "ratio", "counted energy over the integral of the power"),
    ),
    *_columns(
        "text",
        ("throttle", "", "reasons for throttling that were observed, joined by semicolons"),
        ("timer", "", "timer of the contract"),
        ("cache", "", "state of the L2 before a call"),
        ("regime", "", "load before a sample: burst or sustained"),
    ),
    *_columns("number", ("gap_s", "s", "rest before each sample in burst")),
    *_columns(
        "text",
        ("data", "", "values of the inputs"),
        ("stop", "", "why sampling stopped: precision, budget or samples"),
        ("primary", "", "which of the times is `time_s`"),
    ),
    *_columns(
        "number",
        ("noise_within", "fraction", "relative deviation of samples in earlier processes"),
        ("noise_between", "fraction", "relative deviation between medians of earlier processes"),
        ("floor_s", "s", "time that the timer adds to a call, already subtracted"),
        ("floor_uncertainty_s", "s", "half the 95 % interval of the floor"),
        ("empty_call_s", "s", "time of an empty call"),
        ("build_s", "s", "time of compiling and autotuning"),
        ("first_call_s", "s", "time of the first call"),
        ("capture_s", "s", "time of capturing a CUDA graph"),
    ),
    *_columns(
        "count", ("calls_until_steady", "count", "calls after which the time no longer fell")
    ),
    *_columns(
        "number",
        ("check_error", "fraction", "largest error of an element of the result"),
        ("check_tolerance", "fraction", "largest error that is allowed"),
        ("memory_inputs_bytes", "byte", "bytes of the inputs"),
        ("memory_call_bytes", "byte", "most bytes that a call allocated beside the inputs"),
        ("memory_peak_bytes", "byte", "peak of the allocator"),
    ),
    *_columns("count", ("kernels_per_call", "count", "kernels, copies and memsets of a call")),
    *_columns("text", ("kernels", "", "count and name of each kernel, joined by semicolons")),
    *_columns(
        "count",
        ("seed", "", "seed of the inputs"),
        ("pass", "", "number of the process, from 0"),
        ("rank", "", "rank of the process in a distributed run"),
        ("world", "count", "processes of the gang that measured the case together"),
    ),
    *_columns("text", ("started", "", "time at which the measurement began, UTC")),
)

MAPPINGS: Mapping[str, RowColumn] = {
    column.name: column
    for column in (
        RowColumn("point", "mixed", "", "value of this axis"),
        RowColumn("options", "mixed", "", "value of this option of the implementation"),
        RowColumn("chosen", "mixed", "", "value that an autotuner chose"),
        RowColumn("readings", "number", "", "number that the call reads of itself"),
        RowColumn("ranks", "number", "s", "median of this rank's own time of a call"),
        RowColumn("times", "number", "s", "median of this time of a call"),
        RowColumn("counters", "number", "", "this hardware counter, of one call"),
    )
}
_BY_NAME = {column.name: column for column in COLUMNS}
_OPERATIONS = tuple(f"_{dtype}" for dtype in DTYPES)


def column_of(name: str) -> RowColumn:
    """Return the description of the column *name*, `time_s` or `point.m`. Raises: KeyError."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    group, point, entry = name.partition(".")
    if not point:
        raise KeyError(name)
    column = MAPPINGS[group]
    unit = _counter_unit(entry) if group == "counters" else column.unit
    return RowColumn(name, column.kind, unit, column.meaning)


def _counter_unit(name: str) -> str:
    if name.endswith("_bytes"):
        return "byte"
    if name.endswith("_flops") or (name.startswith("tensor_") and name.endswith(_OPERATIONS)):
        return "FLOP"
    if name == "dram_factor":
        return "ratio"
    return "cycle" if name.endswith("_cycles") else "count"


def in_order(names: Iterable[str]) -> list[str]:
    """Return all columns of the table above, then those of *names* with a point, in their order."""
    return [*_BY_NAME, *(name for name in dict.fromkeys(names) if "." in name)]
