"""Read the kernels of an Nsight Compute report as records.

NVIDIA's own reader (the package `ncu-report`) parses the file and collects nothing. A report
contains what its user asked for, so a figure may be a sum, or a rate per second or per cycle.
https://docs.nvidia.com/nsight-compute/PythonReportInterface/index.html
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.files import is_regular
from gpuperf.model.contract import Contract, DeviceFacts
from gpuperf.model.cost import Bytes, Cost, Flops
from gpuperf.model.metrics import KERNEL, derive, scale
from gpuperf.model.record import Caveat, Kernel, Record
from gpuperf.model.samples import Samples
from gpuperf.model.text import clean
from gpuperf.model.workload import Case, Value

LARGEST_FILE = 4 << 30
MOST_KERNELS = 100_000
LONGEST_NAME = 1000
LONGEST_TEMPLATE = 48  # characters of a kernel's template arguments
CLOCK_MARGIN = 1.02  # times a device's highest clock: short times are rounded

SECONDS = {"": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}  # by the prefix of `s` or `second`
# The dtype in which a tensor pipe sums what it multiplies; fp16 has two.
ACCUMULATES = {"bf16": "fp32", "tf32": "fp32", "fp8": "fp32", "fp64": "fp64", "int8": "int32"}

CONTRACT = Contract(
    "activity", cache="cold", gap_s=0.0, warmup_calls=0, min_samples=1, max_samples=1
)

BESIDE = Caveat(
    "imported",
    "one run under Nsight Compute, which by default flushes the caches, fixes the clock at its "
    "base and runs kernels one at a time; bytes and FLOPs are what it counted, without the bytes "
    "that L2 writes back after the kernel has ended",
    "ncu --clock-control none lets the clock move as it does without a profiler",
)

TOTAL_BYTES = Caveat(
    "total-bytes",
    "the report gives its bytes through DRAM as one sum: all are shown as read, and the number of "
    "those that were written is unknown",
    "ncu --metrics dram__bytes_read.sum,dram__bytes_write.sum counts them separately",
)
DERIVED = Caveat(
    "derived",
    "the report gives bytes or FLOPs as rates, which were multiplied by the time or the cycles of "
    "another pass: they are accurate to about 0.3 %",
    "ncu --metrics NAME.sum collects a sum",
)

# Parts of a demangled name that are left out: types of parameters, casts and lambdas; the operators
# around lambdas; namespaces.
GROUP = re.compile(r"\([^()]*\)|\[[^\[\]]*\]")
INSIDE = re.compile(r"::[:\s]*(?:(?:operator|const)[:\s]*)*(?=[,>]|$)")
NAMESPACE = re.compile(r"\w*::")


@dataclass(frozen=True)
class Imported:
    """The kernels of a report in their order, and the device on which they ran."""

    device: DeviceFacts
    records: tuple[Record, ...]
    skipped: int  # kernels without a time


def read_report(path: Path, run: str, load: Callable[[str], Any] | None = None) -> Imported:
    """Read the kernels in the report at *path* as records of *run*; *load* (by default that of
    `ncu-report`) opens it.

    Raises: UsageError for a file that is not a report or has no kernel; CannotMeasure without the
    reader.
    """
    if not is_regular(path):
        raise UsageError(f"there is no report {str(path)!r}", "ncu -o NAME writes NAME.ncu-rep")
    if path.stat().st_size > LARGEST_FILE:
        raise UsageError(f"{path} is larger than {LARGEST_FILE >> 30} GiB", "profile fewer kernels")
    context = _open(path, load or _reader())
    actions = list(_actions(context))
    if not actions:
        raise UsageError(f"{path} has no kernels", "write the report with ncu -o NAME")
    records, skipped = [], 0
    for index, action in enumerate(actions):
        try:
            record = _record(_Metrics(action), _names(action), run, index)
        except (ValueError, OverflowError) as error:
            raise UsageError(f"{path}: kernel {index} has an impossible value: {error}") from None
        if record is None:
            skipped += 1
        else:
            records.append(record)
    return Imported(_device(_Metrics(actions[0])), tuple(records), skipped)


def _reader() -> Callable[[str], Any]:
    try:
        from ncu_report import load_report
    except ImportError:
        raise CannotMeasure(
            "reports of Nsight Compute need the package ncu-report, which is not installed",
            "pip install 'gpuperf[ncu]'",
        ) from None
    reader: Callable[[str], Any] = load_report
    return reader


def _open(path: Path, load: Callable[[str], Any]) -> Any:
    try:
        return load(str(path))
    except Exception as error:  # the reader's own, of whatever sort
        raise UsageError(f"{path} cannot be read as a report: {error}") from None


def _actions(context: Any) -> Iterator[Any]:
    """Yield the profiled kernels of all ranges."""
    ranges = [context.range_by_idx(i) for i in range(context.num_ranges())]
    if sum(profiled.num_actions() for profiled in ranges) > MOST_KERNELS:
        raise UsageError(f"the report has over {MOST_KERNELS:,} kernels", "profile fewer kernels")
    for profiled in ranges:
        yield from (profiled.action_by_idx(j) for j in range(profiled.num_actions()))


def _names(action: Any) -> tuple[str, str]:
    """Return the name of the kernel's function, and the name with its template arguments."""
    base = clean(str(action.name()))[:LONGEST_NAME]
    return base, clean(str(action.name(action.NameBase_DEMANGLED) or base))[:LONGEST_NAME]


def _template(name: str) -> str:
    """Return the template arguments of a demangled *name*: `4, sin_kernel_cuda, array<char, 2>`."""
    longer = ""
    while longer != name:
        longer, name = name, GROUP.sub("", name)
    inner = name.partition("<")[2].rpartition(">")[0]
    return NAMESPACE.sub("", INSIDE.sub("", inner))[:LONGEST_TEMPLATE]


class _Metrics:
    """Figures of one kernel by name; a figure that the report lacks is None."""

    def __init__(self, action: Any) -> None:
        self._action = action

    def value(self, name: str) -> float | None:
        metric = self._action.metric_by_name(name)
        if metric is None:
            return None
        value = float(metric.as_double())
        return value if math.isfinite(value) else None

    def text(self, name: str) -> str:
        metric = self._action.metric_by_name(name)
        return str(metric.as_string() or "") if metric is not None else ""

    def seconds(self) -> float | None:
        """Return the kernel's duration."""
        metric = self._action.metric_by_name("gpu__time_duration.sum")
        unit = str(metric.unit()) if metric is not None else ""
        scale = SECONDS.get(unit.removesuffix("econd").removesuffix("s")) if unit else None
        if metric is None or scale is None:
            return None
        value = float(metric.as_double()) * scale
        return value if math.isfinite(value) and value > 0 else None

    def total(self, base: str, seconds: float) -> tuple[float, bool] | None:
        """Return the sum of the counter *base* over a kernel of *seconds*, in the unit of its
        quantity, and whether it was computed from a rate; None if the report lacks it."""
        for name in dict.fromkeys((base, base.replace("sm__", "smsp__", 1))):
            unit = name.split("__")[0]
            cycles = self.value(f"{unit}__cycles_elapsed.max")
            for suffix, factor in (
                (".sum", 1.0),
                (".sum.per_second", seconds),
                (".sum.per_cycle_elapsed", cycles),
            ):
                value = self.value(name + suffix)
                if value is not None and factor is not None and value >= 0:
                    return scale(base) * value * factor, suffix != ".sum" and value > 0
        return None


def _record(metrics: _Metrics, names: tuple[str, str], run: str, index: int) -> Record | None:
    seconds = metrics.seconds()
    if seconds is None:
        return None
    counters, doubts = _counters(metrics, seconds)
    base, name = names
    template = _template(name)
    point: dict[str, Value] = {"launch": index}
    if template:
        point["template"] = template
    for axis in ("grid_size", "block_size"):
        value = metrics.value(f"launch__{axis}")
        if value is not None:
            point[axis] = int(value)
    return Record(
        run=run,
        case=Case(base, "ncu", point, source="ncu"),
        contract=CONTRACT,
        status="ok",
        cost=_cost(counters),
        times={"busy": Samples((seconds,), (_clock(metrics, counters, seconds),))},
        primary="busy",
        kernels=(Kernel(name, 1, counters),),
        counters={k: v for k, v in counters.items() if k not in ("cycles", "time_ns")},
        caveats=(BESIDE, *doubts),
        kind="kernel",
    )


def _clock(metrics: _Metrics, counters: dict[str, float], seconds: float) -> float | None:
    """Return the SM clock in hertz, cycles over time; None without cycles, or above the device's
    highest clock: cycles and time may come from different passes."""
    khz = metrics.value("device__attribute_clock_rate")
    hertz = counters.get("cycles", 0.0) / seconds
    return hertz if hertz and not (khz and hertz > CLOCK_MARGIN * khz * 1e3) else None


def _counters(metrics: _Metrics, seconds: float) -> tuple[dict[str, float], list[Caveat]]:
    """Return those of gpuperf's counters that the report has, by name, and caveats about them."""
    counters = {"time_ns": seconds * 1e9}
    cycles = metrics.value("sm__cycles_elapsed.max")
    counters |= {"cycles": cycles} if cycles is not None else {}
    rates: set[str] = set()
    for quantity, groups in KERNEL.items():
        for group in groups if quantity not in counters and quantity != "cycles" else ():
            totals = [total for base in group if (total := metrics.total(base, seconds))]
            if len(totals) == len(group):
                counters[quantity] = math.fsum(value for value, _ in totals)
                rates |= {quantity} if any(rate for _, rate in totals) else set()
                break
    doubts = []
    total = metrics.total("dram__bytes", seconds)
    if total and not {"dram_read_bytes", "dram_written_bytes"} <= counters.keys():
        counters |= {"dram_read_bytes": total[0], "dram_written_bytes": 0.0}
        rates |= {"dram_read_bytes"} if total[1] else set()
        doubts.append(TOTAL_BYTES)
    if _may_bypass_l1_count(metrics, counters):
        counters.pop("l1_bytes", None)
    if rates & counters.keys() - {"tma_instructions"}:
        doubts.append(DERIVED)
    return derive(counters), doubts


def _may_bypass_l1_count(metrics: _Metrics, counters: Mapping[str, float]) -> bool:
    """Return whether L1 bytes may lack loads by TMA: from Hopper on, without a count of those."""
    major = metrics.value("device__attribute_compute_capability_major")
    return "tma_instructions" not in counters and (major is None or major >= 9)


def _cost(counters: dict[str, float]) -> Cost:
    """Return the counted FLOPs and DRAM bytes as the cost: a report does not say what is needed."""
    flops = [
        Flops(int(count), "matmul", dtype, ACCUMULATES.get(dtype, ""))
        for name, count in counters.items()
        if count > 0 and name.startswith("tensor_")
        for dtype in (name.removeprefix("tensor_"),)
    ]
    flops += [
        Flops(int(count), "elementwise", name.removesuffix("_flops"))
        for name, count in counters.items()
        if count > 0 and name.endswith("_flops")
    ]
    read, written = (counters.get(f"dram_{way}_bytes") for way in ("read", "written"))
    if read is None or written is None:
        return Cost(tuple(flops))
    return Cost(tuple(flops), (Bytes(int(read), int(written)),))


def _device(metrics: _Metrics) -> DeviceFacts:
    """Return the device that the report names."""

    def attribute(name: str) -> int:
        return int(metrics.value(f"device__attribute_{name}") or 0)

    major, minor = (attribute(f"compute_capability_{part}") for part in ("major", "minor"))
    khz = attribute("clock_rate")
    return DeviceFacts(
        kind="cuda",
        index=0,
        name=clean(metrics.text("device__attribute_display_name")) or "unknown GPU",
        sm_count=attribute("multiprocessor_count"),
        memory_bytes=0,
        free_bytes=0,
        capability=f"{major}.{minor}" if major else "",
        l2_bytes=attribute("l2_cache_size") or None,
        max_sm_clock_hz=khz * 1e3 if khz else None,
    )
