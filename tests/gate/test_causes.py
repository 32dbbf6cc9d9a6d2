"""Is the cause of a slowdown what accounts for at least half of it?"""

from __future__ import annotations

import pytest
from fake_sides import case_of

from gpuperf.gate.causes import LAUNCH_GAP_S, cause_of
from gpuperf.model.contract import Contract
from gpuperf.model.cost import Bytes, Cost, Flops
from gpuperf.model.record import Kernel, Record
from gpuperf.model.samples import Samples

COST = Cost((Flops(10**6, "elementwise", "fp32"),), (Bytes(10**6, 10**6),))


def record(
    time_s: float,
    kernels: int = 1,
    clock_hz: float | None = None,
    bytes_moved: float = 0.0,
    gap_s: float | None = None,
) -> Record:
    """A call of *kernels* kernels; with *gap_s* its trace shows as much between two of them."""
    clocks = (clock_hz,) * 3 if clock_hz else ()
    times = {"window": Samples((time_s,) * 3, clocks)}
    if gap_s is not None:
        times["span"] = Samples((time_s,) * 3)
        times["busy"] = Samples((time_s - gap_s * (kernels - 1),) * 3)
    counters = (
        {"dram_read_bytes": bytes_moved / 2, "dram_written_bytes": bytes_moved / 2}
        if bytes_moved
        else {}
    )
    return Record(
        "run",
        case_of("op0"),
        Contract("blocked"),
        "ok",
        cost=COST,
        times=times,
        primary="window",
        kernels=(Kernel("a_kernel", kernels),),
        counters=counters,
    )


def kind(base: Record, head: Record) -> str | None:
    found = cause_of(base, head, None)
    return None if found is None else found.kind


def test_a_launch_more_is_the_cause_only_where_its_gap_is_half_of_the_slowdown() -> None:
    """1.2 µs of 2 µs are the cause; 1.2 µs of 100 µs are not."""
    assert LAUNCH_GAP_S == 1.2e-6
    assert kind(record(20e-6), record(22e-6, 2)) == "more launches"
    assert kind(record(20e-6), record(22.5e-6, 2)) != "more launches"
    assert kind(record(1e-3), record(1.1e-3, 2)) != "more launches"
    assert kind(record(1e-3), record(1.1e-3, 51)) == "more launches"


def test_the_gap_between_kernels_is_the_traces_own_where_it_has_one() -> None:
    assert kind(record(20e-6), record(30e-6, 2, gap_s=6e-6)) == "more launches"
    assert kind(record(20e-6), record(22e-6, 2, gap_s=0.5e-6)) != "more launches"


@pytest.mark.parametrize(
    ("base", "head", "cause"),
    [
        (record(1e-4, clock_hz=1.9e9), record(1.1e-4, clock_hz=1.75e9), "lower clock"),
        (record(1e-4, clock_hz=1.9e9), record(1.1e-4, clock_hz=1.88e9), "lower compute rate"),
        (record(1e-4, bytes_moved=1e8), record(2e-4, bytes_moved=2e8), "more bytes"),
        (record(1e-4), record(1.005e-4), None),
    ],
)
def test_the_first_that_accounts_for_half_is_the_cause(
    base: Record, head: Record, cause: str | None
) -> None:
    assert kind(base, head) == cause
