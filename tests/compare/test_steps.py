"""Steps of a workload: the gain of each, and what the step before it predicts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from synthetic_comparison import TOP, one

from gpuperf.compare.steps import Step, launches, least_s, steps_of, steps_tables
from gpuperf.model.cost import Bytes, Cost, Flops, Work
from gpuperf.model.record import Kernel, Record, Run
from gpuperf.model.samples import Samples
from gpuperf.show.screen import Screen
from gpuperf.verb.options import Format
from gpuperf.verb.printing import _with_below, tables_below

NAMES = ("fp32", "bf16", "compile", "graph")
GIGA = 10**9
PEAKS = (TOP.ceilings, TOP.peaks)
RATE, BANDWIDTH = 989.4e12, 4.8e12


def step(name: str, wall_s: float, busy_s: float, moved: int, kernels: int, graph: bool) -> Record:
    """A record of one FLOP a byte: *moved* bytes, of which a gigabyte is compulsory."""
    flops = (Flops(GIGA, "matmul", "bf16", "fp32"),)
    record = one(name)
    times = {"busy": Samples((busy_s,) * 3), "wall": Samples((wall_s,) * 3)}
    return replace(
        record,
        status="ok",
        times=times,
        primary="busy",
        cost=Cost(flops, (Bytes(GIGA, 0),)),
        work=Work(flops, (Bytes(moved, 0),), 1 if graph else None),
        kernels=(Kernel("gemm", kernels),),
    )


def run_of(*records: Record) -> Run:
    return Run(replace(TOP, steps=NAMES, baseline="fp32"), records)


def ladder() -> Run:
    return run_of(
        step("fp32", 2.1e-3, 2e-3, 2 * GIGA, 40, False),
        step("bf16", 1.1e-3, 0.4e-3, GIGA, 40, False),
        step("compile", 0.7e-3, 0.3e-3, GIGA, 20, False),
        step("graph", 0.32e-3, 0.3e-3, GIGA, 20, True),
    )


def by_name(run: Run) -> Mapping[str, Step]:
    return {each.name: each for each in steps_of(run)}


def test_the_gain_of_a_step_is_that_of_its_caller() -> None:
    steps = by_name(ladder())
    assert list(steps) == ["bf16", "compile", "graph"]
    gains = [steps[name].gain.value for name in steps]
    assert gains == pytest.approx([2.1 / 1.1, 1.1 / 0.7, 0.7 / 0.32])


def test_kernels_change_by_the_time_of_their_work_at_the_roofs() -> None:
    """Half the bytes of a call whose kernels bind: half the time."""
    assert by_name(ladder())["bf16"].predicted == pytest.approx(2.1 / 1.0)


def test_launches_that_bind_change_by_their_number() -> None:
    steps = by_name(ladder())
    assert steps["compile"].predicted == pytest.approx(1.1 / 0.55)
    assert "20 in place of 40" in steps["compile"].because


def test_a_graph_is_one_launch_so_that_its_kernels_bind() -> None:
    assert by_name(ladder())["graph"].predicted == pytest.approx(0.7 / 0.3)


def test_compulsory_bytes_move_during_the_products_and_others_apart() -> None:
    record = step("fp32", 1.0, 1.0, 3 * GIGA, 1, False)
    assert least_s(record, PEAKS) == pytest.approx(3 * GIGA / BANDWIDTH)
    products = (Flops(10**15, "matmul", "bf16", "fp32"),)
    heavy = replace(record, work=Work(products, (Bytes(3 * GIGA, 0),)))
    assert least_s(heavy, PEAKS) == pytest.approx(1e15 / RATE + 2 * GIGA / BANDWIDTH, rel=1e-3)


def test_work_without_a_roof_predicts_nothing() -> None:
    unknown = Work((Flops(1, "matmul", "int7"),), (Bytes(GIGA, 0),))
    run = ladder()
    first = replace(run.records[0], work=unknown)
    steps = by_name(replace(run, records=(first, *run.records[1:])))
    assert steps["bf16"].predicted is None
    assert steps["bf16"].gain.value == pytest.approx(2.1 / 1.1)
    assert least_s(replace(first, work=None), PEAKS) is None
    assert least_s(first, (None, None)) is None


def test_a_step_that_failed_is_passed_over() -> None:
    run = ladder()
    failed = replace(run.records[1], status="oom", times={}, primary="")
    steps = by_name(replace(run, records=(run.records[0], failed, *run.records[2:])))
    assert [(s.before, s.name) for s in steps.values()] == [
        ("fp32", "compile"),
        ("compile", "graph"),
    ]


def test_a_step_that_failed_in_one_process_has_no_gain() -> None:
    run = ladder()
    again = tuple(replace(record, pass_index=1) for record in run.records)
    lost = replace(again[2], status="wrong", times={}, primary="")
    steps = by_name(replace(run, records=(*run.records, *again[:2], lost, *again[3:])))
    assert [(s.before, s.name) for s in steps.values()] == [("fp32", "bf16"), ("bf16", "graph")]


def test_a_call_is_launched_by_kernel_unless_its_work_says_how_often() -> None:
    assert [launches(record) for record in ladder().records] == [40, 40, 20, 1]


def test_a_run_without_steps_has_no_table() -> None:
    run = ladder()
    assert not tables_below(replace(run, header=replace(run.header, steps=())))
    assert not steps_tables(replace(run, records=run.records[:1]))


def test_the_table_orders_the_steps_by_their_gain() -> None:
    (table,) = steps_tables(ladder())
    heading, text = table.notes[0]
    assert heading == "Best first"
    assert text.startswith("graph 2.19×, bf16 1.91×, compile 1.57×; all together 6.56×")


def test_each_format_has_the_steps() -> None:
    below, screen = steps_tables(ladder()), Screen(100)
    assert "graph" in _with_below("rows\n", below, Format.TABLE, screen)
    assert "| compile → graph" in _with_below("rows\n", below, Format.MD, screen)
    value = json.loads(_with_below('{"rows": []}', below, Format.JSON, screen))
    assert [each["step"] for each in value["steps"]] == ["bf16", "compile", "graph"]
    assert _with_below("a,b\n", below, Format.CSV, screen) == "a,b\n"
