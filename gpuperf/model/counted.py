"""Compare the bytes and operations that the hardware counted with those of the model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gpuperf.model.cost import Cost
from gpuperf.model.metrics import BY_NCU, TENSOR, moved_bytes
from gpuperf.model.peaks import Peaks
from gpuperf.model.record import Caveat, Record

Intensity = Literal["compulsory", "modelled", "measured", "l2", "l1"]

LITTLE = 1e4  # bytes; a ratio to a model of fewer bytes is meaningless
OPERATIONS_OFF, BYTES_OFF = 0.02, 0.1  # relative differences from the model that get a caveat
BUS_MARGIN = 0.02
VECTOR = ("fp32", "fp64")  # dtypes for which the vector pipes have counters


@dataclass(frozen=True)
class Counted:
    """Bytes and operations of one call, by the model and by the hardware's counters.

    `compulsory`, `modelled` and `measured` are bytes through DRAM, `l2` and `l1` bytes through the
    caches; None is unknown. `uncertainty` is half the 95 % interval of `measured`. `unmodelled`
    says that there is no model and the counters stand in for it, so ratios are meaningless.
    """

    compulsory: float | None = None
    modelled: float | None = None
    measured: float | None = None
    uncertainty: float | None = None
    l2: float | None = None
    l1: float | None = None
    flop_model: float | None = None
    flop_hardware: float | None = None
    unmodelled: bool = False

    @property
    def excess(self) -> float | None:
        """Ratio of measured to compulsory bytes."""
        if self.unmodelled or self.measured is None or not self.compulsory:
            return None
        return self.measured / self.compulsory

    @property
    def flop_excess(self) -> float | None:
        """Ratio of the operations that the hardware counted to those of the model."""
        if self.unmodelled or self.flop_hardware is None or not self.flop_model:
            return None
        return self.flop_hardware / self.flop_model

    def bytes_of(self, kind: Intensity) -> float | None:
        """Return the bytes of this *kind*."""
        number: float | None = getattr(self, kind)
        return number

    def intensity(self, kind: Intensity) -> float | None:
        """Return the FLOPs of the model over the bytes of this *kind*."""
        moved = self.bytes_of(kind)
        return self.flop_model / moved if self.flop_model and moved and moved > 0 else None


def counted(record: Record) -> Counted:
    """Return the bytes and operations of *record*."""
    cost, work, counters = record.cost, record.work, record.counters
    return Counted(
        compulsory=cost.dram_bytes if cost else None,
        modelled=work.dram_bytes if work else None,
        measured=moved_bytes(counters),
        uncertainty=counters.get("dram_uncertainty_bytes"),
        l2=counters.get("l2_bytes"),
        l1=counters.get("l1_bytes"),
        flop_model=cost.flop_count if cost else None,
        flop_hardware=_operations(record),
        unmodelled=record.kind == "kernel",
    )


def _operations(record: Record) -> float | None:
    """Return the counted operations of all pipes, if any were counted."""
    names = {*TENSOR, *(f"{dtype}_flops" for dtype in VECTOR)}
    operations = [value for name, value in record.counters.items() if name in names]
    return max(sum(operations), 0.0) if operations else None


def cross_check(record: Record) -> tuple[Caveat, ...]:
    """Return caveats on *record* where the hardware disagrees with the model."""
    return (*_operation_doubts(record), *_byte_doubts(record))


def _operation_doubts(record: Record) -> Iterator[Caveat]:
    """Compare the operations of a call whose matmuls have one dtype. Operations that agree with the
    implementation's own model need no caveat."""
    dtype, wanted = _matmuls(record.cost)
    done, modelled = _operations_in(record, dtype) if wanted else None, _matmuls(record.work)[1]
    if done is None or (modelled and abs(done - modelled) <= OPERATIONS_OFF * modelled):
        return
    share = done / wanted
    others = {
        name.removeprefix("tensor_"): value
        for name, value in record.counters.items()
        if name in TENSOR and name != f"tensor_{dtype}"
    }
    most = max(others, key=others.__getitem__, default="")
    if share < 0.5 and most and others[most] > max(done, 0.0):
        yield Caveat(
            "dtype-path",
            f"the hardware did {others[most] / wanted:.3g} times the matmul FLOPs of the cost in "
            f"{most}, and {share:.3g} times in {dtype}",
            "look at the names of the kernels: another kernel may have run than was meant",
        )
    elif share > 1 + OPERATIONS_OFF:
        yield Caveat(
            "more-operations",
            f"the hardware did {share:.4g} times the operations of the cost: tiles that reach over "
            "the edge, or work that is done twice",
            "use sizes that are multiples of the tile",
        )
    elif share < 1 - OPERATIONS_OFF:
        yield Caveat(
            "fewer-operations",
            f"the hardware did {share:.4g} times the operations of the cost: sparsity, another "
            "pipe, or a cost that is overstated",
            "look at the kernels' names and counters",
        )


def _matmuls(cost: Cost | None) -> tuple[str, int]:
    """Return the dtype of the matmuls of *cost* and their FLOPs: 0 without matmuls, for several
    dtypes, and if the same pipe counts other work as well."""
    flops = cost.flops if cost else ()
    matmuls = [f for f in flops if f.kind == "matmul"]
    dtypes = {f.dtype for f in matmuls}
    dtype = next(iter(dtypes), "")
    mixed = dtype in VECTOR and len(matmuls) < len(flops)
    return (dtype, 0) if len(dtypes) != 1 or mixed else (dtype, sum(f.count for f in matmuls))


def _operations_in(record: Record, dtype: str) -> float | None:
    names = (f"tensor_{dtype}", f"{dtype}_flops")
    operations = [record.counters[name] for name in names if name in record.counters]
    return sum(operations) if operations else None


def _byte_doubts(record: Record) -> Iterator[Caveat]:
    """Compare the bytes of an implementation that has a model of them; the compulsory bytes are a
    bound, not a model."""
    figures, contract = counted(record), record.contract
    model, unsure = figures.modelled, figures.uncertainty or 0.0
    cold = contract.cache in ("cold", "cold-dirty") and contract.regime == "burst"
    if figures.measured is None or not model or not cold or model < LITTLE:
        return
    share = figures.measured / model
    # Nsight Compute flushes the cache before each kernel and misses later write-backs.
    by_ncu = any(caveat.kind == BY_NCU for caveat in record.caveats)
    if figures.measured - unsure > (1 + BYTES_OFF) * model:
        yield Caveat(
            "more-bytes",
            f"the call moved {share:.3g} times the bytes of the implementation's model: data were "
            "read again after they left the cache, or were written in between",
            "choose tiles, a launch order or a fusion that keeps data in L2",
        )
    elif figures.measured + unsure < (1 - BYTES_OFF) * model and not by_ncu:
        yield Caveat(
            "fewer-bytes",
            f"the call moved {share:.3g} times the bytes of the implementation's model: part of "
            "them stayed in L2 from one kernel to the next",
            "use a working set of several times the L2 to measure the traffic of DRAM",
        )


def breaks_bus(record: Record, peaks: Peaks | None) -> Caveat | None:
    """Return a caveat if more bytes were counted than the memory can move in the time.

    Up to the size of the L2, data may be written back after the call.
    """
    samples, bandwidth = record.samples, peaks.bandwidth if peaks else None
    read, written = (record.counters.get(f"dram_{way}_bytes") for way in ("read", "written"))
    if samples is None or peaks is None or bandwidth is None or read is None or written is None:
        return None
    if samples.median_s <= 0:
        return None
    l2 = peaks.figures["l2"].value if "l2" in peaks.figures else 0.0
    rate = (read + max(0.0, written - 2 * l2)) / samples.median_s
    if rate <= (1 + BUS_MARGIN) * bandwidth.value:
        return None
    return Caveat(
        "impossible",
        f"the counters show {rate / bandwidth.value:.2f} times the bytes that the memory can move "
        "in the time",
        "the timer missed work, or the counters are scaled: run `gpuperf doctor`",
    )
