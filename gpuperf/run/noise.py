"""Plan cases in several processes in random order, and store how each time varies between them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from gpuperf.model.contract import Contract
from gpuperf.model.noise import noise_of
from gpuperf.model.protocol import Opened
from gpuperf.model.record import Header, Noise, Record
from gpuperf.run.cache import fetch, keep
from gpuperf.run.ceilings import device_key
from gpuperf.run.session import PlannedCase

NoiseModel = Mapping[str, Noise]


def shuffled_passes(header: Header, passes: int, first: int = 0) -> Iterator[PlannedCase]:
    """Plan each case of *header* once in each of *passes* processes, numbered from *first*.

    The order in each process is drawn from the run's seed.
    """
    draw = random.Random(header.seed)
    for index in range(first, first + passes):
        order = list(header.plan)
        draw.shuffle(order)
        yield from ((case, header.contract, index) for case in order)


def keep_noise(opened: Opened, contract: Contract, records: Sequence[Record]) -> None:
    """Store the noise of each case in *records*, by the timer that most of its records have."""
    groups: dict[str, dict[str, list[Record]]] = {}
    for record in records:
        groups.setdefault(record.case.id, {}).setdefault(record.primary, []).append(record)
    usual = {case: max(by.values(), key=len) for case, by in groups.items()}
    noises = {case: noise for case, group in usual.items() if (noise := noise_of(group))}
    if noises:
        noises = {**kept_noise(opened, contract), **noises}
        keep("noise", device_key(opened, *_condition(contract)), noises)


def kept_noise(opened: Opened, contract: Contract) -> NoiseModel:
    """Return the stored noise of each case id, on this device and under such a contract."""
    return fetch("noise", device_key(opened, *_condition(contract)), dict[str, Noise]) or {}


def _condition(contract: Contract) -> tuple[object, ...]:
    return (contract.timer, contract.cache, contract.regime, contract.data, contract.gap_s)
