"""The same cases in several fresh processes, in another order each time: how far do they move?"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gpuperf.analysis.timing import noise_of
from gpuperf.model.contract import Contract
from gpuperf.model.protocol import Opened
from gpuperf.model.record import Header, Noise, Record
from gpuperf.model.samples import Samples
from gpuperf.model.workload import Case, Value
from gpuperf.runner.cache import fetch, keep
from gpuperf.runner.ceilings import device_key
from gpuperf.runner.session import Planned
from gpuperf.runner.supervisor import Supervisor

__all__ = ["keep_noise", "kept_noise", "measure_nvbench", "shuffled_passes", "timing_cases"]

NoiseModel = Mapping[str, Noise]


def _case(op: str, implementation: str, dtype: str, **point: Value) -> Case:
    return Case(op, implementation, {**point, "dtype": dtype})


def timing_cases() -> tuple[Case, ...]:
    """Calls of one kernel from 1 µs to 1.4 ms, and calls of several."""
    copies = [_case("copy", "torch", "fp32", n=n) for n in (2**10, 2**20, 2**22, 2**26)]
    triad = _case("triad", "cuda", "fp32", n=2**24)
    matmuls = [
        _case("matmul", "torch", "bf16", m=n, n=n, k=n) for n in (128, 512, 1024, 2048, 4096, 8192)
    ]
    several = [_case("sincos", "eager", "fp32", n=n) for n in (2**20, 2**22)]
    return (*copies, triad, *matmuls, *several)


def shuffled_passes(header: Header, passes: int, first: int = 0) -> Iterator[Planned]:
    """Plan each case of *header* once in each of *passes* processes, in an order drawn from its
    seed; the processes are numbered from *first*."""
    draw = random.Random(header.seed)
    for index in range(first, first + passes):
        order = list(header.plan)
        draw.shuffle(order)
        yield from ((case, header.contract, index) for case in order)


def measure_nvbench(supervisor: Supervisor, header: Header, index: int) -> Iterator[Record]:
    """Measure each case by nvbench, in process number *index*. Raises: CannotMeasure without it."""
    run, contract, seed = header.run, header.contract, header.seed
    supervisor.renew()
    means = supervisor.nvbench(header.plan, contract, seed)
    for case, mean_s in zip(header.plan, means, strict=True):
        if mean_s:
            times = {"nvbench": Samples((mean_s,))}
            record = Record(run, case, contract, "ok", times=times, primary="nvbench", seed=seed)
            yield replace(record, pass_index=index)


def keep_noise(opened: Opened, contract: Contract, records: Sequence[Record]) -> None:
    """Keep what *records* show of each case's noise beside what is known of others; of a case that
    several timers took, by the one that most records have."""
    groups: dict[str, dict[str, list[Record]]] = {}
    for record in records:
        groups.setdefault(record.case.id, {}).setdefault(record.primary, []).append(record)
    usual = {case: max(by.values(), key=len) for case, by in groups.items()}
    found = {case: noise for case, group in usual.items() if (noise := noise_of(group))}
    if found:
        known = dict(kept_noise(opened, contract))
        keep("noise", device_key(opened, *_condition(contract)), {**known, **found})


def kept_noise(opened: Opened, contract: Contract) -> NoiseModel:
    """What earlier processes saw on this device under such a contract, by the case's id."""
    found = fetch("noise", device_key(opened, *_condition(contract)), dict[str, Noise])
    return found or {}


def _condition(contract: Contract) -> tuple[object, ...]:
    return (contract.timer, contract.cache, contract.regime, contract.data, contract.gap_s)
