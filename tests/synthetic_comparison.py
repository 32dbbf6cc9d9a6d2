"""Build runs of comparisons without measuring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from synthetic import h200_device, h200_peaks, header, matmul

from gpuperf.model.contract import Contract
from gpuperf.model.record import Kernel, Memory, Record, Run
from gpuperf.model.samples import Samples
from gpuperf.show.table import Table

TOP = replace(
    header(h200_device(), Contract("blocked"), h200_peaks()), baseline="naive", main=("m", "n", "k")
)


FASTER = {"naive": 1.0, "tiled": 4.0, "triton": 10.0}


def one(implementation: str, *values: float, tick_s: float = 0.0, **changes: Any) -> Record:
    """A record with these times."""
    times = {"window": Samples(values, tick_s=tick_s)} if values else {}
    return matmul(
        TOP, 512, None, implementation=implementation, times=times, primary="window", **changes
    )


def compared(sizes: tuple[int, ...] = (1024,), **point: str) -> Run:
    """Three implementations at *sizes*, the others faster than the baseline."""
    made = []
    for n in sizes:
        for name, factor in FASTER.items():
            record = matmul(
                TOP,
                n,
                n**3 * 1e-13 / factor,
                1.9e9,
                name,
                memory=Memory(8 * n * n, 2 * n * n, call_bytes=3 * n * n),
                kernels=(Kernel(f"{name}_kernel", 2), Kernel("fill")),
            )
            case = replace(record.case, point={**record.case.point, **point})
            made.append(replace(record, case=case))
    return Run(TOP, tuple(made))


def failing(run: Run, name: str, **changes: Any) -> Run:
    """*run* with each record of the implementation *name* failed."""
    lost = {"times": {}, "primary": "", "memory": None, "kernels": (), "check": None, **changes}
    return replace(
        run,
        records=tuple(
            replace(r, **lost) if r.case.implementation == name else r for r in run.records
        ),
    )


def counted(run: Run, share: Mapping[str, float]) -> Run:
    """*run* as if the hardware had counted this many times the compulsory bytes."""

    def moved(r: Record) -> Record:
        assert r.cost is not None
        moved = share[r.case.implementation] * r.cost.dram_bytes
        return replace(r, counters={"dram_read_bytes": moved, "dram_written_bytes": 0.0})

    return replace(run, records=tuple(map(moved, run.records)))


def cells(of: Table) -> dict[str, tuple[str, ...]]:
    return {f"{c.head} {c.unit}".strip(): c.cells for c in of.columns}
