"""What the hardware counted, held against the model, and drawn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import h200_device, h200_run
from synthetic_counted import counted_run, moved

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.model.contract import Contract, Counting
from gpuperf.model.cost import Bytes, Cost, Flops, Work
from gpuperf.model.counted import breaks_bus, counted, cross_check
from gpuperf.model.record import Record, Run, without_counters
from gpuperf.model.samples import Samples
from gpuperf.model.workload import Case
from gpuperf.roofline.chart import draw_roofline
from gpuperf.roofline.formats import render_run
from gpuperf.roofline.scene import scene
from gpuperf.roofline.study import place
from gpuperf.roofline.terminal import terminal_roofline
from gpuperf.run.ncu import with_ncu
from gpuperf.show.screen import Screen
from gpuperf.show.view import View
from gpuperf.verb.measuring import Outcome, _refuse_view, exit_code

N = 4096
FLOPS = 2 * N**3
LEAST = 3 * 2 * N**2
TILES = {"tensor_bf16": FLOPS * 1.0, "tensor_fp16": 0.0}


def record(
    counters: Mapping[str, float],
    flops: Flops | None = None,
    work: Work | None = None,
    contract: Contract | None = None,
    time_s: float = 175e-6,
) -> Record:
    cost = Cost((flops or Flops(FLOPS, "matmul", "bf16", "fp32"),), (Bytes(LEAST, 0),))
    return Record(
        "r",
        Case("matmul", "torch", {}),
        contract or Contract("blocked"),
        "ok",
        cost=cost,
        work=work,
        counters=counters,
        times={"busy": Samples((time_s,) * 5)},
        primary="busy",
    )


def kinds(one: Record) -> list[str]:
    return [caveat.kind for caveat in cross_check(one)]


def test_three_figures_of_bytes_and_two_of_operations() -> None:
    work = Work(bytes=(Bytes(LEAST, LEAST),))
    figures = counted(record(moved(1.5 * LEAST, **TILES, fp32_flops=10.0), work=work))
    assert (figures.compulsory, figures.modelled) == (LEAST, 2 * LEAST)
    assert figures.measured == pytest.approx(1.5 * LEAST)
    assert figures.excess == pytest.approx(1.5)
    assert (figures.flop_model, figures.flop_hardware) == (FLOPS, FLOPS + 10)
    assert figures.intensity("compulsory") == pytest.approx(FLOPS / LEAST)
    assert figures.intensity("modelled") == pytest.approx(FLOPS / LEAST / 2)
    assert figures.intensity("measured") == pytest.approx(FLOPS / LEAST / 1.5)


def test_what_was_not_counted_is_unknown() -> None:
    figures = counted(record({}))
    assert figures.measured is figures.excess is None
    assert figures.flop_hardware is figures.flop_excess is None
    assert figures.intensity("measured") is figures.intensity("modelled") is None
    assert kinds(record({})) == []


def test_a_negative_difference_of_counters_is_zero() -> None:
    """The difference of two stretches scatters about nought where the cache holds everything."""
    figures = counted(record(moved(-1000.0)))
    assert figures.measured == 0
    assert figures.intensity("measured") is None


@pytest.mark.parametrize(
    ("counters", "expected"),
    [
        ({"tensor_bf16": FLOPS * 1.0}, []),
        ({"tensor_bf16": FLOPS * 1.016}, []),
        ({"tensor_bf16": FLOPS * 1.074}, ["more-operations"]),
        ({"tensor_bf16": FLOPS * 0.5}, ["fewer-operations"]),
        ({"tensor_bf16": 0.0, "tensor_fp16": FLOPS * 1.0}, ["dtype-path"]),
        ({"fp32_flops": FLOPS * 1.0}, []),  # the chip has no counter of bf16
    ],
)
def test_operations_are_held_against_the_cost(
    counters: dict[str, float], expected: list[str]
) -> None:
    assert kinds(record(counters)) == expected


def test_padding_is_told_with_its_figure() -> None:
    (caveat,) = cross_check(record({"tensor_bf16": FLOPS * 1.0737}))
    assert "1.074 times the operations" in caveat.message
    assert "multiples of the tile" in caveat.hint


def test_what_the_implementation_says_that_it_does_is_no_surprise() -> None:
    anew = {"tensor_bf16": 1.75 * FLOPS}
    assert kinds(record(anew)) == ["more-operations"]
    work = Work((Flops(int(1.75 * FLOPS), "matmul", "bf16", "fp32"),))
    assert cross_check(replace(record(anew), work=work)) == ()


def test_matmuls_beside_other_work_are_held_against_the_cost() -> None:
    one = record({"tensor_bf16": 3.0 * FLOPS, "fp32_flops": 5.0})
    assert one.cost is not None
    mixed = (*one.cost.flops, Flops(7, "special", "fp32"), *one.cost.flops)
    assert kinds(replace(one, cost=replace(one.cost, flops=mixed))) == ["more-operations"]
    vector = (Flops(FLOPS, "matmul", "fp32", "fp32"), Flops(FLOPS, "elementwise", "fp32"))
    assert kinds(replace(one, cost=replace(one.cost, flops=vector))) == []


def test_the_path_that_ran_instead_is_named() -> None:
    (caveat,) = cross_check(record({"tensor_bf16": 0.0, "tensor_tf32": FLOPS * 1.0}))
    assert "FLOPs of the cost in tf32" in caveat.message


def test_fp32_is_counted_on_the_vector_pipe_and_fp64_on_both() -> None:
    fp32 = Flops(FLOPS, "matmul", "fp32", "fp32")
    assert kinds(record({"fp32_flops": FLOPS * 1.0, "tensor_tf32": 0.0}, fp32)) == []
    assert kinds(record({"fp32_flops": 1e6, "tensor_tf32": FLOPS * 1.0}, fp32)) == ["dtype-path"]
    fp64 = Flops(FLOPS, "matmul", "fp64", "fp64")
    halves = {"fp64_flops": FLOPS * 0.5, "tensor_fp64": FLOPS * 0.5}
    assert kinds(record(halves, fp64)) == []


def test_elementwise_operations_are_told_but_not_judged() -> None:
    """A sine is one operation of the model, and twenty of the pipe."""
    sine = record({"fp32_flops": 20.0 * FLOPS}, Flops(FLOPS, "special", "fp32"))
    assert kinds(sine) == []
    assert counted(sine).flop_excess == pytest.approx(20)


@pytest.mark.parametrize(
    ("share", "expected"), [(1.0, []), (1.09, []), (1.2, ["more-bytes"]), (0.8, ["fewer-bytes"])]
)
def test_bytes_are_held_against_the_model_of_the_implementation(
    share: float, expected: list[str]
) -> None:
    work = Work(bytes=(Bytes(2 * LEAST, 0),))
    assert kinds(record(moved(share * 2 * LEAST), work=work)) == expected
    # Compulsory bytes are a bound: a matmul that reads them twice has no doubt about it.
    assert kinds(record(moved(share * LEAST))) == []
    hot = Contract("blocked", cache="hot")
    assert kinds(record(moved(share * 2 * LEAST), work=work, contract=hot)) == []


def test_nsight_compute_cannot_tell_that_bytes_stayed_in_the_cache() -> None:
    """It flushes the cache before each kernel, and misses what is written back later."""
    work = Work(bytes=(Bytes(2 * LEAST, 0),))
    for share, expected in ((0.8, []), (1.2, ["more-bytes"])):
        one = with_ncu(record({}, work=work), [("k", moved(share * 2 * LEAST))])
        assert kinds(one) == expected


def test_a_strangers_word_is_no_operation() -> None:
    strange = record({"tensor_cores": 1e20, "tensor_": 5.0, "bf16_flops": 7.0})
    assert counted(strange).flop_hardware is None
    beside = record({"tensor_bf16": 0.4 * FLOPS, "tensor_cores": 1e20})
    assert counted(beside).flop_hardware == 0.4 * FLOPS
    assert kinds(beside) == ["fewer-operations"]


def test_more_bytes_than_the_bus_can_move_make_the_row_invalid() -> None:
    peaks = h200_run().header.peaks
    assert peaks is not None
    assert peaks.bandwidth is not None
    most = peaks.bandwidth.value * 1e-3
    within = record({"dram_read_bytes": most, "dram_written_bytes": 9e7}, time_s=1e-3)
    assert breaks_bus(within, peaks) is None
    assert breaks_bus(within, None) is None
    beyond = replace(within, counters={**within.counters, "dram_read_bytes": 1.1 * most})
    placed = place(beyond, peaks, None)
    assert placed is not None
    assert not placed.valid
    assert "impossible" in [caveat.kind for caveat in placed.caveats]


def test_the_x_axis_is_of_the_bytes_that_were_asked_for() -> None:
    run = counted_run()
    compulsory, measured = scene(run), scene(run, "measured")
    assert [d.x for d in measured.dots] == pytest.approx([d.x / 2 for d in compulsory.dots])
    assert [d.y for d in measured.dots] == pytest.approx([d.y for d in compulsory.dots])
    arrows = scene(run, "both")
    assert [d.start for d in arrows.dots] == [(d.x, d.y) for d in compulsory.dots]
    assert all(d.start is None for d in (*compulsory.dots, *measured.dots))
    (low, high), _ = arrows.limits()
    assert low < min(d.x for d in arrows.dots)
    assert max(d.start[0] for d in arrows.dots if d.start) < high


def test_a_hierarchy_has_a_point_and_a_roof_for_each_level() -> None:
    shown = scene(counted_run(), "hierarchy")
    assert [s.label.split(", ")[-1] for s in shown.series] == ["DRAM bytes", "L2 bytes"]
    dram, l2 = (series.dots for series in shown.series)
    assert [d.x for d in l2] == pytest.approx([d.x / 4 for d in dram])
    # The levels of a record are joined, at its point for DRAM; the sizes of a level are not.
    assert [d.span for d in dram] == [(a.x, b.x) for a, b in zip(l2, dram, strict=True)]
    assert not [part for series in shown.series for part in series.stretches()]
    roof = next(r for r in shown.roofs if r.label == "L2")
    assert (roof.kind, roof.value, roof.origin) == ("memory", 9e12, "measured")
    compute = next(r for r in shown.roofs if r.kind == "compute" and r.origin == "measured")
    # The roof over both begins where L2's ends.
    assert shown.ends(compute)[0][0] == pytest.approx(compute.value / 9e12)


def test_l1_is_a_level_of_what_loads_through_it() -> None:
    run = counted_run()
    first, *rest = (r for r in run.records if r.counters and r.status == "ok")
    seen = replace(first, counters={**first.counters, "l1_bytes": 4.0 * first.counters["l2_bytes"]})
    shown = scene(replace(run, records=(seen, *rest)), "hierarchy")
    assert [(s.level, len(s.dots)) for s in shown.series] == [
        ("DRAM", len(rest) + 1),
        ("L2", len(rest) + 1),
        ("L1", 1),
    ]
    assert {dot.x for dot in shown.labelled(99)} == {dot.x for dot in shown.series[0].dots}
    assert shown.series[2].dots[0].x == pytest.approx(shown.series[1].dots[0].x / 4)
    assert "the roof of L1 (gpuperf calibrate measures it)" in shown.missing


@pytest.mark.parametrize("view", ["measured", "both", "hierarchy", "modelled"])
def test_a_run_without_such_bytes_says_so(view: View) -> None:
    with pytest.raises(UsageError, match="has no ") as refused:
        scene(h200_run(), view)
    assert ("--intensity compulsory" if view == "modelled" else "--counters") in refused.value.hint


@pytest.mark.parametrize("view", ["measured", "both", "hierarchy"])
def test_every_view_is_drawn(view: View, tmp_path: Path) -> None:
    files = [tmp_path / f"{view}{suffix}" for suffix in (".png", ".svg")]
    draw_roofline(counted_run(), files, view)
    assert all(file.stat().st_size > 5000 for file in files)
    assert "hardware counters" in (tmp_path / f"{view}.svg").read_text(encoding="utf-8")
    assert terminal_roofline(counted_run(), view=view)


def test_the_table_has_the_measured_bytes_and_their_ratio() -> None:
    text = render_run(counted_run(), "table", Screen(220))
    assert "moved" in text
    assert "× least" in text
    assert " 2.00 " in text
    assert "ops hw" in text
    assert "hardware counters at full speed" in text
    plain = render_run(h200_run(), "table", Screen(220))
    assert "moved" not in plain
    assert "ops hw" not in plain


def test_counters_that_were_scaled_are_told_of() -> None:
    run = counted_run()
    twice = [replace(r, counters={**r.counters, "dram_factor": 2.0}) for r in run.records]
    shown = render_run(Run(run.header, tuple(twice)), "table", Screen(220))
    assert "showed 2 times the true bytes" in shown


def test_json_has_all_figures() -> None:
    rows = json.loads(render_run(counted_run(), "json"))["rows"]
    row = next(r for r in rows if r["bytes_measured"])
    assert row["bytes_measured_over_compulsory"] == pytest.approx(2)
    assert row["bytes_measured"] == pytest.approx(2 * row["bytes_compulsory"])
    assert row["intensity_measured"] == pytest.approx(row["intensity_flop_per_byte"] / 2)
    assert row["byte_per_s_measured"] == pytest.approx(row["bytes_measured"] / row["time_s"])
    assert row["flop_hardware"] == row["flop"]
    assert row["kernels"][0]["counters"]["l2_bytes"] > 0


def test_a_count_that_scatters_widely_is_no_doubt() -> None:
    work = Work(bytes=(Bytes(2 * LEAST, 0),))
    unsure = {**moved(1.5 * 2 * LEAST), "dram_uncertainty_bytes": 1.0 * LEAST}
    assert kinds(record(unsure, work=work)) == []
    little = Work(bytes=(Bytes(1000, 0),))
    assert kinds(record(moved(5000.0), work=little)) == []
    load = Contract("blocked", regime="sustained")
    assert kinds(record(moved(1.5 * 2 * LEAST), work=work, contract=load)) == []


@pytest.mark.parametrize(
    "counters",
    [
        {"tensor_bf16": -5.0},
        {"tensor_bf16": -5.0, "tensor_fp16": -7.0},
        {"tensor_bf16": 1e20, "l2_bytes": 1e20},
        {"dram_read_bytes": -1e11, "dram_written_bytes": 1e20},
        {"dram_uncertainty_bytes": 1e20, **moved(1.0)},
    ],
)
def test_a_strangers_counters_break_nothing(counters: dict[str, float], tmp_path: Path) -> None:
    run = counted_run()
    for time_s in (175e-6, 0.0):
        odd = replace(record(counters, time_s=time_s), run=run.header.run)
        strange = Run(run.header, (odd, *run.records))
        for form in ("table", "json", "csv", "md"):
            assert render_run(strange, form)
            assert all(len(word) < 60 for word in render_run(strange, "table", Screen(300)).split())
        for view in ("compulsory", "measured", "both", "hierarchy"):
            assert scene(strange, view).dots
            terminal_roofline(strange, view=view)


def test_what_has_no_bytes_at_all_is_refused_in_a_sentence() -> None:
    run = h200_run()
    bare = [replace(r, cost=Cost(r.cost.flops)) for r in run.records if r.cost and r.times]
    with pytest.raises(UsageError, match="nothing to draw"):
        scene(Run(run.header, tuple(bare)))
    assert render_run(Run(run.header, tuple(bare)), "table")


def test_each_implementation_of_a_hierarchy_is_labelled_at_dram() -> None:
    run = counted_run()
    other = [replace(r, case=replace(r.case, implementation="mine")) for r in run.records]
    shown = scene(Run(run.header, (*run.records, *other)), "hierarchy")
    assert len(shown.series) == 4
    places = {(d.x, d.label) for s in shown.series[::2] for d in s.dots}
    assert {(d.x, d.label) for d in shown.labelled(99)} == places


def test_counts_of_nsight_compute_are_not_said_to_be_at_full_speed() -> None:
    run = counted_run()
    by_ncu = Run(replace(run.header, counting="ncu"), run.records)
    text = render_run(by_ncu, "table", Screen(220))
    assert "Nsight Compute, each kernel alone" in text
    assert "full speed" not in text


def test_counters_that_were_required_and_lack_end_the_command_with_3() -> None:
    run = counted_run()
    one = next(r for r in run.records if r.times)
    lacking = without_counters(replace(one, counters={}), "no permission", "ask for it")
    for counting, refused in (("auto", False), ("require", True), ("kernels", True)):
        header = replace(run.header, counting=counting)
        outcome = Outcome(Run(header, (one, lacking)), Path("x"))
        if not refused:
            assert exit_code(outcome) == 0
            continue
        with pytest.raises(CannotMeasure, match="1 of 2 cases have no counters") as told:
            exit_code(outcome)
        assert told.value.hint == "ask for it"


@pytest.mark.parametrize(
    ("view", "counting", "refused"),
    [
        ("compulsory", "off", False),
        ("modelled", "off", False),
        ("measured", "off", True),
        ("both", "off", True),
        ("measured", "auto", False),
        ("hierarchy", "auto", True),
        ("hierarchy", "kernels", False),
        ("hierarchy", "ncu", False),
    ],
)
def test_a_chart_by_bytes_that_are_not_counted_is_refused_beforehand(
    view: View, counting: Counting, refused: bool
) -> None:
    device = h200_device()
    if not refused:
        _refuse_view(view, counting, device)
        return
    with pytest.raises(UsageError, match=f"--intensity {view} needs"):
        _refuse_view(view, counting, device)


def test_a_device_without_counters_is_told_of_what_it_can_draw() -> None:
    cpu = replace(h200_device(), kind="cpu")
    _refuse_view("modelled", "auto", cpu)
    for view in ("measured", "both", "hierarchy"):
        with pytest.raises(CannotMeasure, match="NVIDIA GPUs only") as told:
            _refuse_view(view, "kernels", cpu)  # type: ignore[arg-type]
        assert told.value.hint == "--intensity compulsory"
