"""Is what holds a record back the resource that is busiest while it runs?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic import h200_ceilings, h200_device, h200_peaks, header

from gpuperf.explain.study import explain
from gpuperf.model.contract import Contract
from gpuperf.model.cost import Bytes, Cost, Flops, Work
from gpuperf.model.peaks import Ceiling, Figure, Peaks
from gpuperf.model.record import Record
from gpuperf.model.samples import Samples
from gpuperf.model.workload import Case
from gpuperf.roofline.binding import busiest
from gpuperf.roofline.study import place

SHEET = h200_peaks()
GB = 10**9
BANDWIDTH = 4.0e12  # byte/s, of the roofs here


def figure(value: float, unit: str = "byte/s") -> Figure:
    return Figure(value, unit, "measured", "here")


ROOFS = replace(
    h200_ceilings(),
    compute=(
        Ceiling("tensor", "bf16", "fp32", figure(8e14, "FLOP/s")),
        Ceiling("vector", "fp32", "", figure(6e13, "FLOP/s")),
        Ceiling("special", "fp32", "", figure(4e12, "FLOP/s"), function="sin"),
        Ceiling("special", "fp32", "", figure(1.2e12, "FLOP/s"), function="sin", accurate=True),
    ),
    figures={
        "memory_bandwidth": figure(BANDWIDTH),
        "l2_bandwidth": figure(1e13),
        "l1_bandwidth": figure(3e13),
    },
)


def taken(
    time_s: float, flops: tuple[Flops, ...], moved: int, work: Work | None = None, **counters: float
) -> Record:
    return Record(
        "r",
        Case("op", "mine", {}),
        Contract("blocked"),
        "ok",
        cost=Cost(flops, (Bytes(moved // 2, moved // 2),)),
        work=work,
        times={"window": Samples((time_s,) * 3)},
        primary="window",
        counters=counters,
    )


def bound(record: Record, ceilings: Peaks | None = ROOFS) -> tuple[str, str]:
    most = busiest(record, SHEET, ceilings)
    return most.limiter, most.pipe


ATTENTION = (Flops(8 * 10**11, "matmul", "bf16", "fp32"),)  # 1 ms of the tensor pipe


def test_what_moves_many_times_the_least_bytes_is_bound_by_memory() -> None:
    """At 5 % of the tensor pipe, as eager attention is: 60 GB at 4 TB/s are 15 of its 20 ms."""
    record = taken(20e-3, ATTENTION, GB // 8)
    counted = replace(record, counters={"dram_read_bytes": 40e9, "dram_written_bytes": 20e9})
    assert bound(counted) == ("memory", "")
    modelled = replace(record, work=Work(ATTENTION, (Bytes(40 * GB, 20 * GB),)))
    assert bound(modelled) == ("memory", "")
    assert bound(record) == ("latency or occupancy", "")


def test_a_model_that_memory_could_not_have_served_is_not_believed() -> None:
    """A row that is read again comes from the cache: 120 GB take 30 ms, and it took 20."""
    model = Work(ATTENTION, (Bytes(80 * GB, 40 * GB),))
    assert bound(taken(20e-3, ATTENTION, GB // 8, model)) == ("latency or occupancy", "")


def test_under_half_of_every_roof_it_is_latency_or_occupancy() -> None:
    assert bound(taken(1.99e-3, ATTENTION, GB // 8)) == ("compute", "tensor")
    assert bound(taken(2.01e-3, ATTENTION, GB // 8)) == ("latency or occupancy", "")


def test_cycles_that_were_counted_go_before_the_model() -> None:
    """A naive matmul does its work on the vector pipe, whatever its formula says."""
    naive = taken(
        0.3,
        ATTENTION,
        GB // 8,
        elapsed_cycles=1e6,
        tensor_cycles=0.0,
        fma_cycles=8e5,
        fp64_cycles=0.0,
    )
    assert bound(naive) == ("compute", "vector")
    double = replace(naive, counters={**naive.counters, "fma_cycles": 1e5, "fp64_cycles": 9e5})
    assert bound(double) == ("compute", "vector")
    fed = taken(2.5e-3, ATTENTION, GB // 8, elapsed_cycles=1e6, tensor_cycles=6e5)
    assert bound(fed) == ("compute", "tensor")


@pytest.mark.parametrize(("cache", "roof"), [("L2", 1e13), ("L1", 3e13)])
def test_a_cache_that_is_busiest_is_named(cache: str, roof: float) -> None:
    counters = {f"{cache.lower()}_bytes": 0.9 * roof * 10e-3}
    record = replace(taken(10e-3, ATTENTION, GB // 8), counters=counters)
    assert bound(record) == (cache, "")


def sine(time_s: float, count: int = 10**9) -> Record:
    """bf16: two bytes in and two out an element, and a sine."""
    return taken(time_s, (Flops(count, "special", "bf16", function="sin"),), 4 * count)


def test_an_accurate_sine_binds_where_its_time_allows_it() -> None:
    """10⁹ accurate sines take 0.833 ms, fast ones 0.25 ms, their 4 GB 1 ms."""
    assert bound(sine(1.05e-3)) == ("memory", "")
    twice = replace(sine(1.7e-3), cost=sine(1.7e-3, 2 * 10**9).cost)
    assert twice.cost is not None
    twice = replace(twice, cost=replace(twice.cost, bytes=(Bytes(2 * GB, 2 * GB),)))
    assert bound(twice) == ("special function", "special")
    fast = replace(twice, times={"window": Samples((1.1e-3,) * 3)})
    assert bound(fast) == ("memory", ""), "an accurate sine would have taken longer"


def test_the_row_of_a_table_says_it_and_keeps_the_roof_of_the_algorithm() -> None:
    record = taken(20e-3, ATTENTION, GB // 8, dram_read_bytes=40e9, dram_written_bytes=20e9)
    placed = place(record, SHEET, ROOFS)
    assert placed is not None
    assert (placed.longer, placed.limiter) == ("compute", "memory")
    assert placed.ideal_s == pytest.approx(8e11 / 989.4e12)
    operator = place(replace(record, kind="operator"), SHEET, ROOFS)
    assert operator is not None
    assert operator.limiter == "compute"


def test_explain_takes_the_chain_of_what_it_moves() -> None:
    top = header(h200_device(), Contract("blocked"), SHEET, ceilings=ROOFS)
    record = taken(20e-3, ATTENTION, GB // 8, dram_read_bytes=40e9, dram_written_bytes=20e9)
    told = explain(record, top)
    assert told.chain == "memory"
    assert told.largest.name == "extra bytes"
    assert explain(replace(record, counters={}), top).chain == "compute"


def test_memory_is_held_against_the_roof_of_its_share_of_reads() -> None:
    figures = {"read_bandwidth": figure(4.459e12), "copy_bandwidth": figure(4.294e12)}
    apart = replace(ROOFS, compute=(), figures={**ROOFS.figures, **figures})
    copy = busiest(taken(1e-3, (), round(4.294e9)), SHEET, apart)
    assert copy.busy == pytest.approx(1.0, rel=1e-6)
