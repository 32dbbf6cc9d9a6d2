"""The same cases in several fresh processes, in another order each time: how far do they move?"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from gpuperf.model.contract import Contract
from gpuperf.model.noise import noise_of
from gpuperf.model.protocol import Opened
from gpuperf.model.record import Header, Noise, Record
from gpuperf.run.cache import fetch, keep
from gpuperf.run.ceilings import device_key
from gpuperf.run.session import Planned

NoiseModel = Mapping[str, Noise]


def shuffled_passes(header: Header, passes: int, first: int = 0) -> Iterator[Planned]:
    """Plan each case of *header* once in each of *passes* processes, in an order drawn from its
    seed; the processes are numbered from *first*."""
    draw = random.Random(header.seed)
    for index in range(first, first + passes):
        order = list(header.plan)
        draw.shuffle(order)
        yield from ((case, header.contract, index) for case in order)


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
