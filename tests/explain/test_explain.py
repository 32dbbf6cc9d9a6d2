"""Is a loss budget exact, honest about what it does not know, and right about what to do?"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import pytest
from explained_cases import ADD, CALL, HOT, ODD, SMALL, TOP
from hypothesis import given
from hypothesis import strategies as st
from synthetic import cpu_run

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.explain.advice import advise, note
from gpuperf.explain.ladder import STEPS, TIE
from gpuperf.explain.study import LossBudget, explain
from gpuperf.explain.table import levels, render_explained
from gpuperf.model.cost import Bytes, Cost, Flops, Work
from gpuperf.model.record import Kernel, Launch, Record, Telemetry
from gpuperf.model.samples import Samples
from gpuperf.model.workload import Case

SMS, RATE, SHEET_HZ = 132, 4096, 1.83e9


def factors(losses: LossBudget) -> dict[str, float]:
    return {factor.name: factor.value for factor in losses.factors}


def test_every_step_of_a_counted_matmul_is_measured_and_the_product_is_what_was_attained() -> None:
    losses = explain(SMALL, TOP)
    assert losses.chain == "compute"
    assert tuple(factors(losses)) == STEPS["compute"][2:]  # one kernel, and no launch in its time
    assert {factor.how for factor in losses.factors} == {"measured"}
    assert math.prod(factors(losses).values()) == pytest.approx(
        losses.attained / losses.peak, rel=1e-12
    )
    assert losses.attained == pytest.approx(2 * 1024**3 / 5.632e-6)
    own = factors(losses)
    # The sheet's 989.4 TFLOP/s is not quite 132 · 4096 · 1.83 GHz.
    assert own["clock"] == pytest.approx(1.810e9 * SMS * RATE / 989.4e12)
    assert own[TIE] == pytest.approx(10_300 / (1.810e9 * 5.632e-6))
    assert own["ramp and tail"] == pytest.approx(7_520 / 10_300)
    assert own["feeding"] == pytest.approx(3971.88 / 7_520)
    assert own["instruction path"] == pytest.approx(1, abs=1e-5)
    assert own["padding"] == 1
    assert "16 K-tiles" in advise(losses)
    assert levels(losses)[-1] == pytest.approx(losses.attained)


def test_an_unaligned_matmul_loses_to_feeding_and_to_its_instructions() -> None:
    losses = explain(ODD, TOP)
    own = factors(losses)
    assert losses.largest.name == "feeding"
    assert own["feeding"] == pytest.approx(0.318, abs=0.001)
    assert own["instruction path"] == pytest.approx(0.5, abs=0.001)
    assert own["padding"] == pytest.approx(1 / 1.004274)
    assert losses.named is not None
    assert losses.named > 0.99
    assert advise(losses).startswith("rows are aligned to 2 bytes only")
    assert "multiples of 8 elements" in advise(losses)
    assert "47 waves" in note(losses, "ramp and tail")
    path = replace(losses, factors=(next(f for f in losses.factors if "path" in f.name),))
    assert "falls back" in advise(path)


def test_memory_is_explained_by_bytes_and_no_clock() -> None:
    losses = explain(ADD, TOP)
    assert losses.chain == "memory"
    assert tuple(factors(losses)) == STEPS["memory"][2:]
    own = factors(losses)
    assert math.prod(own.values()) == pytest.approx(losses.attained / losses.peak, rel=1e-12)
    assert own["memory's own best"] == pytest.approx(4.29 / 4.8)
    assert own["keeping memory busy"] == pytest.approx(12.6e6 / 4.128e-6 / 4.29e12)
    assert own["extra bytes"] == pytest.approx(12.582912 / 12.6)
    assert "2.621 µs at full bandwidth" in advise(losses)


some = st.floats(1e-3, 1e15)


@given(
    counts=st.dictionaries(
        st.sampled_from(["elapsed_cycles", "active_cycles", "tensor_cycles", "tensor_bf16"]), some
    ),
    moved=st.dictionaries(
        st.sampled_from(["dram_read_bytes", "dram_written_bytes"]), st.floats(1e-3, 1e9)
    ),
    base=st.sampled_from([SMALL, ODD, ADD]),
    seconds=st.floats(2e-3, 10),
    clocked=st.booleans(),
)
def test_whatever_is_known_the_product_is_exact_and_no_step_counts_twice(
    counts: dict[str, float], moved: dict[str, float], base: Record, seconds: float, clocked: bool
) -> None:
    clocks = (1.7e9,) * 2 if clocked else ()
    record = replace(
        base,
        contract=HOT,
        counters={**counts, **moved},
        times={"busy": Samples((seconds,) * 2, clocks)},
    )
    losses = explain(record, TOP)
    found = math.prod(factor.value for factor in losses.factors)
    assert found == pytest.approx(losses.attained / losses.peak, rel=1e-9)
    steps = [step for factor in losses.factors for step in factor.steps]
    assert len(steps) == len(set(steps))
    left = set(STEPS[losses.chain]) - set(steps) - {"launches", "gaps between kernels"}
    assert left <= ({TIE} if "active_cycles" not in counts else set())
    assert losses.named is None or 0 <= losses.named <= 1
    assert advise(losses)


def test_without_counters_tiles_and_waves_stand_in_and_say_so() -> None:
    losses = explain(replace(SMALL, counters={}), TOP)
    how = {factor.name: factor.how for factor in losses.factors}
    assert how == {
        "clock": "measured",
        "ramp and tail": "modelled",
        "feeding, instruction path": "remainder",
        "padding": "modelled",
    }
    untold = "unknown: feeding, instruction path cannot be separated: cycles and operations"
    assert advise(losses).startswith(untold)
    assert factors(losses)["ramp and tail"] == pytest.approx(128 / 132)
    assert losses.named is not None
    assert losses.named < 0.1
    assert any("--counters kernels" in words for words in losses.missing)


def test_with_operations_but_no_cycles_padding_is_measured() -> None:
    counts = {"tensor_bf16": 2.1 * 1024.0**3}
    losses = explain(replace(SMALL, counters=counts), TOP)
    assert {f.name: f.how for f in losses.factors}["feeding, instruction path"] == "remainder"
    assert factors(losses)["padding"] == pytest.approx(2 / 2.1)


def test_operations_of_another_pipe_explain_nothing() -> None:
    counts = {**SMALL.counters, "tensor_bf16": 1e6}
    losses = explain(replace(SMALL, counters=counts, kernels=(Kernel("mine"),)), TOP)
    assert losses.factors[-1].name == "feeding, instruction path, padding"
    assert losses.factors[-1].how == "remainder"


def test_bytes_of_the_model_stand_in_for_those_not_counted() -> None:
    work = Work((), (Bytes(2**24, 2**23),))
    slow = replace(ADD, times={"busy": Samples((9e-6,) * 2, (1.976e9,) * 2)})
    losses = explain(replace(slow, counters={}, work=work), TOP)
    assert factors(losses)["extra bytes"] == pytest.approx(0.5)
    assert {f.name: f.how for f in losses.factors}["extra bytes"] == "modelled"
    bare = explain(replace(ADD, counters={}), replace(TOP, ceilings=None))
    assert "2.621 µs at full bandwidth" in advise(bare)
    assert bare.factors[-1].name == "memory's own best, keeping memory busy, extra bytes"
    assert len(bare.missing) == 2


def test_a_call_of_several_kernels_is_weighed_by_their_time() -> None:
    losses = explain(CALL, TOP)
    assert factors(losses)["gaps between kernels"] == pytest.approx(0.9)
    assert factors(losses)["ramp and tail"] == pytest.approx(150 / (180 * 0.9))
    softmax, gemm = losses.kernels
    assert (gemm.name, gemm.count, gemm.share) == ("gemm", 2, pytest.approx(0.3))
    assert gemm.of_peak == pytest.approx(2 * 1024**3 / 30e-6 / 989.4e12)
    assert gemm.pipe == pytest.approx(3972 / (1.8e9 * 30e-6))
    assert gemm.path == pytest.approx(1, abs=1e-4)
    assert (softmax.of_peak, softmax.pipe) == (0.0, None)
    # Each kernel's part, weighed by its time, is the call's.
    whole = sum(k.share * (k.of_peak or 0.0) for k in losses.kernels)
    assert whole == pytest.approx(losses.attained / losses.peak)
    assert "60 % of the time is in kernels without these operations" in advise(losses)
    assert "softmax" in render_explained([losses], "table")
    assert "overlap" not in render_explained([losses], "table")


def test_kernels_that_overlap_are_said_to() -> None:
    early = [
        replace(k, time_s=2.5 * k.time_s) if "softmax" in k.name and k.time_s else k
        for k in CALL.kernels
    ]
    losses = explain(replace(CALL, kernels=tuple(early)), TOP)
    assert losses.overlap == pytest.approx(0.8)
    text = " ".join(render_explained([losses], "table").split())
    assert "the kernels overlap: their times add up to 180 % of the call's" in text
    assert "70 % of the time is in kernels without these operations" in advise(losses)


@pytest.mark.parametrize(
    ("step", "word"),
    [
        ("gaps between kernels", "fuse"),
        ("clock", "power"),
        (TIE, "measure again"),
        ("ramp and tail", "1 wave of tiles is short"),
        ("padding", "hardware does more"),
        ("memory's own best", "little is left"),
        ("extra bytes", "fuse"),
    ],
)
def test_each_step_has_its_advice(step: str, word: str) -> None:
    case = ADD if step in STEPS["memory"][2:] else CALL if "gaps" in step else SMALL
    base = explain(case, TOP)
    one = replace(
        base, factors=tuple(replace(f, value=0.5 if step in f.steps else 1.0) for f in base.factors)
    )
    assert word in advise(one)


def test_what_a_graph_launches_is_not_told_to_become_one() -> None:
    times = {"events": Samples((60e-6,) * 2, (1.8e9,) * 2), "busy": Samples((6e-6,) * 2)}
    plain = replace(SMALL, times=times, primary="events")
    graphed = replace(plain, capture_s=1e-3)
    assert "use CUDA graphs" in advise(explain(plain, TOP))
    assert "a CUDA graph launches it already" in advise(explain(graphed, TOP))
    gaps = explain(CALL, TOP)
    only = tuple(replace(f, value=0.5 if "gaps" in f.name else 1.0) for f in gaps.factors)
    assert "or launch them as a CUDA graph" in advise(replace(gaps, factors=only))
    replayed = replace(gaps, factors=only, record=replace(CALL, capture_s=1e-3))
    assert advise(replayed).endswith("kernels with gaps between them: fuse them")


def test_a_half_empty_wave_is_named() -> None:
    losses = explain(SMALL, TOP)
    half = replace(
        losses,
        predicted={**losses.predicted, "waves": 0.55, "wave_count": 2},
        factors=tuple(f for f in losses.factors if f.name == "ramp and tail"),
    )
    assert "fill 55 % of 2 waves" in advise(half)


def test_nothing_lost_is_nothing_to_gain() -> None:
    losses = explain(SMALL, TOP)
    whole = replace(losses, factors=tuple(replace(f, value=0.99) for f in losses.factors))
    assert advise(whole).startswith("nothing to gain")


def test_the_reasons_of_a_throttled_clock_are_printed() -> None:
    slow = replace(SMALL, telemetry=Telemetry(throttle=("software power cap",)))
    losses = explain(slow, TOP)
    assert "software power cap" in note(losses, "clock")


@pytest.mark.parametrize(
    ("record", "top", "word"),
    [
        (replace(SMALL, status="oom", reason="not enough"), TOP, "is oom: not enough"),
        (replace(SMALL, cost=None), TOP, "no time or no cost"),
        (SMALL, replace(TOP, peaks=None, ceilings=None), "has no roof: no ceilings are known"),
        (replace(SMALL, times={"busy": Samples((1e-6,) * 2, (1.8e9,) * 2)}), TOP, "breaks physics"),
        (replace(SMALL, cost=Cost((), (Bytes(2**20, 0, "host"),))), TOP, "has no roof"),
    ],
)
def test_what_cannot_be_explained_is_refused(record: Record, top: Any, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        explain(record, top)


def test_a_cpu_has_no_such_budget() -> None:
    run = cpu_run()
    with pytest.raises(CannotMeasure, match="from a CPU"):
        explain(run.records[0], run.header)


def test_a_run_without_kernels_says_what_it_lacks() -> None:
    losses = explain(replace(SMALL, kernels=(), counters={}), TOP)
    assert any("no kernels are recorded" in words for words in losses.missing)


@pytest.mark.parametrize("name", [*SMALL.counters, "time_s", "busy"])
@pytest.mark.parametrize("value", [0.0, 1e-320, 5e-324, 1e20, 1e-6])
def test_extreme_numbers_in_a_run_file_break_nothing(name: str, value: float) -> None:
    record = CALL
    if name in SMALL.counters:
        record = replace(CALL, counters={**CALL.counters, name: value})
    elif name == "time_s":
        record = replace(CALL, kernels=tuple(replace(k, time_s=value) for k in CALL.kernels))
    else:
        record = replace(CALL, times={**CALL.times, "busy": Samples((max(value, 5e-324),) * 2)})
    losses = explain(record, TOP)
    found = math.prod(factor.value for factor in losses.factors)
    assert found == pytest.approx(losses.attained / losses.peak, rel=1e-9)
    assert render_explained([losses], "table")


def test_numbers_beyond_any_machine_are_refused() -> None:
    huge = replace(SMALL, cost=Cost((Flops(2**199, "matmul", "bf16", "fp32"),)))
    with pytest.raises(UsageError):
        explain(huge, TOP)


def test_ten_thousand_kernels_take_no_time() -> None:
    # A fifth of the names match a grammar at many places, which takes most of the time.
    names = [f"cutlass_75_{'gemm_1x1_' * (1 if i % 5 else 30)}{i}" for i in range(10_000)]
    record = replace(SMALL, kernels=tuple(Kernel(name) for name in names))
    began = time.process_time()
    render_explained([explain(record, TOP)], "table")
    assert time.process_time() - began < 4


@pytest.mark.parametrize(
    ("primary", "launches"), [("events", True), ("wall", True), ("settled", False)]
)
def test_a_time_with_launches_in_it_says_what_they_cost(primary: str, launches: bool) -> None:
    times = {primary: Samples((8e-6,) * 2, (1.8e9,) * 2), "busy": Samples((6e-6,) * 2)}
    losses = explain(replace(SMALL, times=times, primary=primary), TOP)
    own = {name: value for name, value in factors(losses).items() if "launches" in name}
    assert own == ({"launches": pytest.approx(0.75)} if launches else {})


def test_cycles_without_a_time_stay_one_remainder() -> None:
    counts = {k: v for k, v in SMALL.counters.items() if k != "elapsed_cycles"}
    losses = explain(replace(SMALL, counters=counts), TOP)
    assert losses.factors[1].name == "counter pass, ramp and tail"
    assert losses.factors[1].how == "remainder"


def test_a_call_that_the_cache_served_says_so() -> None:
    none = {"dram_read_bytes": 0.0, "dram_written_bytes": 0.0}
    losses = explain(replace(ADD, contract=HOT, counters=none), TOP)
    assert losses.factors[-1].name == "keeping memory busy, extra bytes"
    assert any("cache served the others" in words for words in losses.missing)


def test_a_tile_whose_way_is_not_sure_predicts_nothing() -> None:
    sizes = {"m": 1024, "n": 1030, "k": 64, "dtype": "bf16"}
    wide = replace(SMALL, case=Case("matmul", "torch", sizes))
    full = replace(wide.kernels[0], launch=None)
    assert explain(replace(wide, kernels=(full,)), TOP).predicted == {}
    assert explain(SMALL, TOP).predicted  # as many tiles either way


def test_sms_that_clusters_leave_idle_are_no_empty_places_of_a_wave() -> None:
    kernel = Kernel(
        "nvjet_sm90_tst_128x128_64x6_2x4_h_bz_NNT",
        1,
        {},
        Launch((8, 15, 1), (384, 1, 1), (8, 1, 1), 168, 213188, 15),
        5e-6,
    )
    case = Case("matmul", "torch", {"m": 1536, "n": 1280, "k": 1024, "dtype": "bf16"})
    losses = explain(replace(SMALL, case=case, kernels=(kernel,), counters={}), TOP)
    assert losses.predicted["waves"] == 1
    assert factors(losses)["ramp and tail"] == pytest.approx(120 / 132)
    assert "120 tiles on 120 usable SMs: 1 wave, 100.0 % full" in note(losses, "ramp and tail")


def test_bytes_that_no_memory_could_move_in_the_time_are_no_model_of_it() -> None:
    work = Work((), (Bytes(2**26, 2**25),))
    losses = explain(replace(ADD, counters={}, work=work), TOP)
    assert losses.factors[-1].name == "keeping memory busy, extra bytes"
    assert losses.factors[-1].how == "remainder"


def test_a_gain_that_cannot_be_is_no_named_cause() -> None:
    whole, less = (
        explain(SMALL, TOP).named,
        explain(replace(SMALL, counters={**SMALL.counters, "active_cycles": 3000.0}), TOP).named,
    )
    assert whole is not None
    assert less is not None
    assert less < whole - 0.2
