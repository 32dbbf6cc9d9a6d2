"""Arrange the rows of all shards as one grid of devices and cases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuperf.fleet.rule import fastest, median
from gpuperf.fleet.shard import Shard

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_CELLS = 100_000_000  # devices times cases times processes: 0.8 GB of times


@dataclass(frozen=True)
class Unit:
    """One device of one host, which is judged alone."""

    host: str
    device: int


@dataclass(frozen=True)
class Failure:
    """A case that failed on a device: its status, and the reason."""

    unit: int
    case: int
    status: str
    reason: str


@dataclass(frozen=True)
class Grid:
    """The times of a fleet: `processes` has the logs of seconds in the shape (units, cases,
    processes); `logs`, their fastest third, and `clock_hz` have the shape (units, cases).

    NaN marks a case without a time. `test_of_case` is the place of each case's test in `tests`, and
    `shared` (units, cases) the share of the processes in which another program was on the device.
    """

    units: tuple[Unit, ...]
    cases: tuple[str, ...]
    tests: tuple[str, ...]
    test_of_case: NDArray[Any]
    processes: NDArray[Any]
    logs: NDArray[Any]
    clock_hz: NDArray[Any]
    shared: NDArray[Any]
    failures: tuple[Failure, ...]


def name_of_test(case: str) -> str:
    """Return the test to which *case* belongs: its workload and implementation."""
    return case.partition("[")[0]


def grid_of(shards: Sequence[Shard]) -> Grid:
    """Return the grid of *shards*, all of which have the same cases and numbers of processes.

    Raises: ValueError for more devices and cases than memory has room for.
    """
    import numpy

    cases = tuple(sorted(shards[0].cases)) if shards else ()
    units = tuple(Unit(s.head.host, d.index) for s in shards for d in s.head.devices)
    processes = shards[0].head.processes if shards else 1
    if len(units) * len(cases) * processes > MOST_CELLS:
        raise ValueError(f"{len(units):,} devices with {len(cases):,} cases are too many")
    tests = tuple(dict.fromkeys(map(name_of_test, cases)))
    cube = numpy.full((len(units), len(cases), processes), math.nan)
    clocks = numpy.full((len(units), len(cases)), math.nan)
    shared = numpy.zeros((len(units), len(cases)))
    failures: list[Failure] = []
    first = 0
    for shard in shards:
        rows = slice(first, first + len(shard.head.devices))
        places = {case: i for i, case in enumerate(cases)}
        columns = numpy.array([places[case] for case in shard.cases], int)
        cube[rows, columns] = numpy.log(_cube(shard, shard.time_s))
        clocks[rows, columns] = _clock_of(shard)
        shared[rows, columns] = _cube(shard, shard.shared).mean(axis=2)
        failures += _failures_of(shard, first, columns)
        first = rows.stop
    place_of_test = {test: i for i, test in enumerate(tests)}
    test_of_case = numpy.array([place_of_test[name_of_test(case)] for case in cases], int)
    logs = fastest(cube)
    return Grid(units, cases, tests, test_of_case, cube, logs, clocks, shared, tuple(failures))


def _cube(shard: Shard, values: NDArray[Any]) -> NDArray[Any]:
    """Return *values* of the rows of *shard* in the shape (devices, cases, processes)."""
    import numpy

    head = shard.head
    shape = (len(head.devices), len(shard.cases), head.processes)
    cube = numpy.full(shape, math.nan)
    cube[_devices(shard), shard.case, shard.process] = values
    return cube


def _devices(shard: Shard) -> NDArray[Any]:
    """Return the place of the device of each row among the devices of its shard."""
    import numpy

    indices = numpy.array([device.index for device in shard.head.devices])
    order = numpy.argsort(indices)
    places: NDArray[Any] = order[numpy.searchsorted(indices[order], shard.device)]
    return places


def _clock_of(shard: Shard) -> NDArray[Any]:
    """Return the median clock of each device and case over the processes."""
    import numpy

    if not numpy.isfinite(shard.clock_hz).any():
        return numpy.full((len(shard.head.devices), len(shard.cases)), math.nan)
    cube = _cube(shard, shard.clock_hz)
    flat = median(cube.reshape(-1, cube.shape[-1]), 1)
    return flat.reshape(cube.shape[:2])


def _failures_of(shard: Shard, first: int, columns: NDArray[Any]) -> list[Failure]:
    """Return a failure for each device and case of *shard* with a row that has no time."""
    devices = _devices(shard)
    seen: dict[tuple[int, int], Failure] = {}
    for row, (status, reason) in shard.failures.items():
        key = (first + int(devices[row]), int(columns[shard.case[row]]))
        seen.setdefault(key, Failure(*key, status, reason))
    return list(seen.values())
