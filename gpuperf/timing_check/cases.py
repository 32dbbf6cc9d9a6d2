"""Plan the cases that compare timers, and measure them by nvbench."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpuperf.model.record import Header, Record
from gpuperf.model.samples import Samples
from gpuperf.model.times import TimeName
from gpuperf.model.workload import Case, Value
from gpuperf.run.supervisor import Supervisor


def _case(op: str, implementation: str, dtype: str, **point: Value) -> Case:
    return Case(op, implementation, {**point, "dtype": dtype})


def timing_cases() -> tuple[Case, ...]:
    """Return cases whose call is one kernel of 1 µs to 1.4 ms, and cases of several kernels."""
    copies = [_case("copy", "torch", "fp32", n=n) for n in (2**10, 2**20, 2**22, 2**26)]
    triad = _case("triad", "cuda", "fp32", n=2**24)
    matmuls = [
        _case("matmul", "torch", "bf16", m=n, n=n, k=n) for n in (128, 512, 1024, 2048, 4096, 8192)
    ]
    several = [_case("sincos", "eager", "fp32", n=n) for n in (2**20, 2**22)]
    return (*copies, triad, *matmuls, *several)


def measure_nvbench(supervisor: Supervisor, header: Header, index: int) -> Iterator[Record]:
    """Yield a record with nvbench's mean time for each case that has one; *index* is the process.

    Raises: CannotMeasure if nvbench is missing or fails.
    """
    run, contract, seed = header.run, header.contract, header.seed
    supervisor.renew()
    means = supervisor.nvbench(header.plan, contract, seed)
    for case, mean_s in zip(header.plan, means, strict=True):
        if mean_s:
            times: dict[TimeName, Samples] = {"nvbench": Samples((mean_s,))}
            record = Record(run, case, contract, "ok", times=times, primary="nvbench", seed=seed)
            yield replace(record, pass_index=index)
