"""Does a profile sum to its step, and is what it says to do first what it would gain?"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import HOSTILE, h200_ceilings, h200_peaks
from synthetic_profile import STEP_S, operator, region, run_of, training

from gpuperf.errors import UsageError
from gpuperf.model.cost import Bytes, Cost, Flops
from gpuperf.model.program import Chain, Wait
from gpuperf.model.record import Kernel, Record, Run
from gpuperf.model.samples import Samples
from gpuperf.profile.breakdown import PARTS, Profile, kernels_of, profiles
from gpuperf.profile.chart import draw_profile
from gpuperf.profile.findings import LEAST, findings
from gpuperf.profile.output import render_profile

MATMUL = operator(
    "aten::mm", "4096×4096 bf16, 4096×4096 bf16", 30e-3, flops=15 * 10**12, moved=10**9
)


def profile(whole: Record, *operators: Record) -> Profile:
    (found,) = profiles(run_of(whole, operators))
    return found


def gains(whole: Record, *operators: Record) -> dict[str, float]:
    """Shares of the step by the first word of what to do."""
    run = run_of(whole, operators)
    return {one.title.split(" ")[0]: one.share for one in findings(profiles(run)[0], run.header)}


def whole_table(run: Run, by: str = "operators") -> str:
    return render_profile(run, "table", by, verbose=True)


def test_the_parts_sum_to_the_step() -> None:
    (found,) = profiles(training())
    assert tuple(found.parts) == PARTS
    assert sum(found.parts.values()) == pytest.approx(STEP_S)
    assert found.busy_s + found.idle_s == pytest.approx(STEP_S)
    assert sum(share.share for share in found.operators) == pytest.approx(0.9)


@pytest.mark.parametrize(("share", "part"), [(0.5, "compute-bound"), (0.02, "latency-bound")])
def test_a_cpu_far_below_its_roof_is_not_bound_by_it(share: float, part: str) -> None:
    """A GPU's kernels have launches, whose length tells; a CPU's calls have none."""
    flops = int(989.5e12 * 30e-3 * share)
    call = replace(operator("aten::mm", "", 30e-3, flops=flops, moved=10**6), kernels=())
    run = run_of(region(), (call,))
    device = replace(run.header.device, kind="cpu")
    (found,) = profiles(replace(run, header=replace(run.header, device=device)))
    assert found.operators[0].part == part


def test_idle_time_is_the_plain_steps_and_split_by_what_was_waited_for() -> None:
    found = profile(region(busy_s=60e-3, waits=(Wait("item", "a.py:1", 1, 10e-3),)))
    assert found.parts["idle: waiting"] == pytest.approx(10e-3)
    assert found.parts["idle: launch or host"] == pytest.approx(30e-3)


def test_a_step_idles_no_longer_than_a_traced_one() -> None:
    """What the plain step takes beyond that was in the kernels, which a hot card runs slower."""
    occupied = {"idle_most": 4e-3, "idle_between": 1e-3}
    found = profile(region(busy_s=90e-3, occupied=occupied), MATMUL)
    assert found.busy_s == pytest.approx(96e-3)
    assert found.scales.kernels == pytest.approx(96 / 90)
    assert found.operators[0].seconds == pytest.approx(30e-3 * 96 / 90)
    assert kernels_of(found)[0].seconds == found.operators[0].seconds
    assert found.parts["idle: between kernels"] == pytest.approx(1e-3)
    assert found.parts["idle: launch or host"] == pytest.approx(3e-3)
    assert sum(found.parts.values()) == pytest.approx(STEP_S)
    told = whole_table(run_of(found.region, (MATMUL,)))
    assert "times of kernels are 1.067 times those of the trace" in told


@pytest.mark.parametrize("traced_s", [60e-3, 120e-3])
def test_no_card_is_slower_than_that_by_its_clock(traced_s: float) -> None:
    """A step of 100 ms whose kernels took 60 had something else to wait for; kernels of 120 ms
    cannot have been in it."""
    found = profile(region(busy_s=traced_s, occupied={"idle_most": 1e-3}), MATMUL)
    assert found.busy_s == pytest.approx(min(traced_s, STEP_S))
    assert found.scales.kernels == pytest.approx(min(1.0, STEP_S / traced_s))


def test_the_gaps_that_a_device_takes_itself_are_not_for_cuda_graphs() -> None:
    gaps = region(busy_s=90e-3, occupied={"idle_between": 9.5e-3})
    late = region(busy_s=90e-3, occupied={"idle_between": 0.5e-3})
    assert "launch" not in gains(gaps)
    assert gains(late)["launch"] == pytest.approx(0.095)


def test_kernels_that_overlap_count_once() -> None:
    found = profile(region(busy_s=30e-3), MATMUL, replace(MATMUL, region="step"))
    assert found.parts["compute-bound"] == pytest.approx(30e-3)


def test_the_mfu_is_of_the_step() -> None:
    cost = Cost((Flops(round(989.4e12 * STEP_S / 4), "matmul", "bf16", "fp32"),))
    found = profile(region(cost), MATMUL)
    assert found.placement is not None
    assert found.placement.mfu_data_sheet == pytest.approx(0.25)
    assert found.hfu == pytest.approx(0.25)


def test_a_recomputation_shows_in_the_hfu_alone() -> None:
    whole = region(Cost((Flops(10**13, "matmul", "bf16", "fp32"),)))
    assert whole.work is not None
    more = replace(whole.work, flops=(Flops(2 * 10**13, "matmul", "bf16", "fp32"),))
    found = profile(replace(whole, work=more))
    assert found.placement is not None
    assert found.placement.mfu_data_sheet is not None
    assert found.hfu == pytest.approx(2 * found.placement.mfu_data_sheet)


def odd(of: str, seconds: float, flops: float, count: float = 1, moved: int = 0) -> Record:
    return operator("aten::mm", of, seconds, flops=round(flops), count=count, moved=moved)


def test_a_matmul_off_the_boundary_is_padded_for_the_rate_of_those_as_large() -> None:
    like = operator("aten::mm", "8192×768 bf16, 768×8192 bf16", 30e-3, flops=15 * 10**12, count=3)
    head = odd("8192×768 bf16, 768×50257 bf16", 40e-3, 5e12)
    assert gains(region(busy_s=STEP_S), like, head)["pad"] == pytest.approx(
        (40e-3 - 5 / 15 * 30e-3) / STEP_S
    )
    across = odd("50257×8192 bf16, 8192×768 bf16", 40e-3, 5e12)
    assert "pad" in gains(region(busy_s=STEP_S), like, across)
    as_fast = odd("8191×768 bf16, 768×768 bf16", 12e-3, 5e12)
    assert "pad" not in gains(region(busy_s=STEP_S), like, as_fast)
    even = odd("8192×768 bf16, 768×50304 bf16", 40e-3, 5e12)
    assert "pad" not in gains(region(busy_s=STEP_S), like, even)


def test_a_large_product_says_nothing_of_a_small_one() -> None:
    big = operator("aten::mm", "8192×8192 bf16, 8192×8192 bf16", 10e-3, flops=7 * 10**12, count=6)
    small = odd("33×768 bf16, 768×50257 bf16", 40e-3, 2.5e9 * 100, count=100)
    assert "pad" not in gains(region(busy_s=STEP_S), big, small)
    head = odd("8192×768 bf16, 768×50257 bf16", 40e-3, 0.7 * 800e12 * 10e-3, count=2)
    as_large = operator("aten::mm", "64×64 bf16, 64×64 bf16", 1e-3, flops=10**9, count=10)
    roof = h200_ceilings().ceiling(Flops(1, "matmul", "bf16", "fp32"))
    assert roof is not None
    left_s = 0.7 * 800e12 * 10e-3 / (0.7 * roof.rate.value)
    told = gains(region(busy_s=STEP_S), as_large, head)
    assert told["pad"] == pytest.approx((40e-3 - left_s) / STEP_S)


def test_a_padded_product_is_no_faster_than_its_bytes() -> None:
    bandwidth = h200_ceilings().bandwidth
    assert bandwidth is not None
    like = operator("aten::mm", "8192×768 bf16, 768×8192 bf16", 30e-3, flops=15 * 10**12, count=3)
    skinny = odd(
        "8192×768 bf16, 768×50257 bf16", 40e-3, 5e12, moved=round(bandwidth.value * 20e-3 / 3) * 3
    )
    told = gains(region(busy_s=STEP_S), like, skinny)
    assert told["pad"] == pytest.approx(0.2, rel=1e-3)


def test_an_fp32_product_in_tf32_runs_at_the_usual_part_of_its_roof() -> None:
    sheet = h200_peaks()  # nobody measured tf32
    tf32 = replace(sheet.compute[0], dtype="tf32", rate=replace(sheet.compute[0].rate, value=5e14))
    flops = round(0.7 * 5e14 * 10e-3)
    slow = operator("aten::mm", "8×8 fp32, 8×8 fp32", 60e-3, flops=flops, dtype="fp32")
    run = run_of(region(busy_s=STEP_S), (slow,))
    header = replace(run.header, peaks=replace(sheet, compute=(*sheet.compute, tf32)))
    (told,) = findings(profiles(run)[0], header)
    assert "tf32" in told.title
    assert told.gain_s == pytest.approx(50e-3)
    assert findings(profiles(run)[0], run.header) == ()


def test_chains_save_their_bytes_at_the_rate_of_elementwise_kernels() -> None:
    slow = operator("aten::mul", "1×1 bf16", 40e-3, "elementwise", 10**9, 40 * 10**9)
    chain = Chain(("mul", "add"), "a.py:1", 1, 20 * 10**9, 10 * 10**9)
    told = gains(region(busy_s=STEP_S, chains=(chain,)), slow)
    assert told["fuse"] == pytest.approx(0.1)
    assert gains(region(busy_s=STEP_S / 2, chains=(chain,)), slow)["fuse"] == pytest.approx(0.05)


def test_a_chain_is_told_with_the_rate_that_its_operators_reach() -> None:
    """24 GB in 7 ms are 3.43 TB/s."""
    run = training()
    found = findings(profiles(run)[0], run.header)
    (chain,) = (one for one in found if "elementwise operators" in one.title)
    assert "at the 3.43 TB/s that these operators reach in this profile" in chain.basis


def test_what_saves_less_than_a_fiftieth_is_not_said() -> None:
    slow = operator("aten::mul", "1×1 bf16", 40e-3, "elementwise", 10**9, 40 * 10**9)
    small = Chain(("mul", "add"), "a.py:1", 1, 2 * 10**9, 10**9)
    assert LEAST == 0.02
    assert gains(region(busy_s=STEP_S, chains=(small,)), slow) == {}


def test_idle_time_is_of_launches_but_for_what_waiting_costs() -> None:
    assert gains(region(busy_s=50e-3))["launch"] == pytest.approx(0.5)
    waits = (Wait("item", "a.py:3", 1.0, 20e-3), Wait("nonzero", "a.py:4", 2.0, 10e-3))
    told = gains(region(busy_s=50e-3, waits=waits))
    assert told == {"do": pytest.approx(0.3), "launch": pytest.approx(0.2)}


def test_a_wait_by_which_nothing_idles_costs_nothing() -> None:
    told = gains(region(busy_s=50e-3, waits=(Wait("item", "a.py:3", 1.0),)))
    assert told == {"launch": pytest.approx(0.5)}


def test_waiting_costs_no_more_than_the_plain_step_idles() -> None:
    told = gains(region(busy_s=90e-3, waits=(Wait("item", "a.py:3", 1.0, 40e-3),)))
    assert told == {"do": pytest.approx(0.1)}


def test_without_a_trace_no_idle_time_is_known() -> None:
    whole = region(waits=(Wait("item", "a.py:3", 1.0),))
    assert gains(replace(whole, times={"step": whole.times["step"]})) == {}


def pageable(
    pcie: str, step_s: float, *kernels: Record, busy_s: float = 0.0, copied_s: float = 60e-3
) -> float:
    """The gain that a gigabyte from pageable memory foretells, which took so long in a trace that
    was busy for *busy_s* (0: for the whole step)."""
    copied = operator("aten::copy_", "1 fp32", copied_s, "copy", kernel="Memcpy HtoD (Pageable ->")
    occupied = {"copy HtoD pageable": copied_s, "busy": busy_s or step_s}
    whole = region(
        moved={"copy HtoD pageable": 10**9},
        occupied=occupied,
        busy_s=busy_s or step_s,
        step_s=step_s,
    )
    run = run_of(whole, (copied, *kernels))
    top = replace(run.header, peaks=replace(h200_peaks(), pcie=pcie))
    (found,) = (one for one in findings(profiles(run)[0], top) if "pinned" in one.title)
    assert f"PCIe {pcie or '3.0, as the device'}" in found.basis
    return found.gain_s


def test_copies_from_pageable_memory_are_held_against_pinned_ones_of_the_same_link() -> None:
    assert pageable("5.0", STEP_S) == pytest.approx(60e-3 - 1 / (0.8 * 63))
    assert pageable("4.0", STEP_S) == pytest.approx(60e-3 - 1 / (0.8 * 31.5))


def test_a_faster_copy_gains_no_more_than_the_step_has_beyond_its_kernels() -> None:
    kernels = operator("aten::mm", "1×1 bf16", 45e-3)
    assert pageable("5.0", 70e-3, kernels) == pytest.approx(25e-3)


def test_the_host_makes_the_copy_so_all_of_its_time_counts_in_a_step_that_idles() -> None:
    assert pageable("5.0", 100e-3, busy_s=60e-3) == pytest.approx(60e-3 - 1 / (0.8 * 63))


def test_a_copy_that_the_profiler_delayed_gains_no_more_than_it_took_without_it() -> None:
    """105 ms of the trace in turn are a plain step of 70 ms: the copy took 25 ms of it."""
    kernels = operator("aten::mm", "1×1 bf16", 45e-3)
    in_turn = pageable("5.0", 70e-3, kernels, busy_s=105e-3)
    assert in_turn == pytest.approx(25e-3 - 1 / (0.8 * 63))
    long = pageable("5.0", 70e-3, kernels, busy_s=195e-3, copied_s=150e-3)
    assert long == pytest.approx(in_turn)
    at_once = pageable("5.0", 70e-3, kernels, busy_s=70e-3)
    assert at_once == pytest.approx(25e-3)


def test_parts_and_kernels_of_a_delayed_copy_are_those_of_the_plain_step() -> None:
    kernels = operator("aten::mm", "1×1 bf16", 45e-3)
    copied = operator("aten::copy_", "1 fp32", 150e-3, "copy", kernel="Memcpy HtoD (Pageable ->")
    whole = region(busy_s=195e-3, step_s=70e-3, occupied={"busy": 195e-3})
    (own,) = profiles(run_of(whole, (kernels, copied)))
    assert own.parts["copies"] == pytest.approx(25e-3)
    assert own.scales.kernels == pytest.approx(1.0)
    assert [use.seconds for use in kernels_of(own)] == pytest.approx([45e-3, 25e-3])


def test_a_delayed_copy_is_shortened_beside_a_cast_of_the_same_shape() -> None:
    """Both are calls of one operator, which is one record of 165 ms in the trace."""
    cast = Kernel("cast_kernel", 1, time_s=15e-3)
    copy = Kernel("Memcpy HtoD (Pageable -> Device)", 1, time_s=150e-3)
    both = replace(operator("aten::_to_copy", "1 bf16", 165e-3, "copy"), kernels=(copy, cast))
    whole = region(
        busy_s=195e-3,
        step_s=70e-3,
        moved={"copy HtoD pageable": 10**9},
        occupied={"busy": 195e-3, "copy HtoD pageable": 150e-3},
    )
    run = run_of(whole, (operator("aten::mm", "1×1 bf16", 30e-3), both))
    (own,) = profiles(run)
    assert own.scales.kernels == pytest.approx(1.0)
    assert own.parts["copies"] == pytest.approx(25e-3)
    assert [share.seconds for share in own.operators] == pytest.approx([40e-3, 30e-3])
    top = replace(run.header, peaks=replace(h200_peaks(), pcie="5.0"))
    (found,) = findings(own, top)
    assert found.gain_s == pytest.approx(25e-3 - 1 / (0.8 * 63))


SOFT = operator("aten::_softmax", "2×12×512×256 bf16", 10e-3, "softmax", 10**9, 10**9)
PRODUCTS = (
    operator("aten::bmm", "24×512×64 bf16, 24×64×256 bf16", 10e-3, flops=10**12),
    operator("aten::bmm", "24×512×256 bf16, 24×256×64 bf16", 10e-3, flops=10**12),
)


def test_attention_by_hand_is_told_with_what_goes_over_its_scores() -> None:
    scale = operator("aten::mul", "2×12×512×256 bf16, scalar fp32", 8e-3, "elementwise", 1, 10**9)
    turned = operator("aten::mul", "2×12×256×512 bf16", 8e-3, "elementwise", 1, 10**9)
    other = operator("aten::mul", "512×256 bf16", 8e-3, "elementwise", 1, 10**9)
    told = gains(region(busy_s=STEP_S), SOFT, scale, turned, other, *PRODUCTS)
    assert told["use"] == pytest.approx(0.18)
    biased = operator("aten::baddbmm", "24×512×256 bf16, 24×512×64 bf16, 24×64×256 bf16", 10e-3)
    assert "use" in gains(region(busy_s=STEP_S), SOFT, biased, PRODUCTS[1])


@pytest.mark.parametrize("products", [(), PRODUCTS[:1], PRODUCTS[1:]])
def test_a_softmax_beside_other_products_is_no_attention(products: tuple[Record, ...]) -> None:
    assert "use" not in gains(region(busy_s=STEP_S), SOFT, *products)
    gate = operator("aten::_softmax", "8192×8 fp32", 30e-3, "softmax", 10**9, 10**9)
    assert "use" not in gains(region(busy_s=STEP_S), gate, *PRODUCTS)
    loss = operator("aten::_log_softmax", "2×12×512×256 bf16", 10e-3, "softmax", 10**9, 10**9)
    assert "use" not in gains(region(busy_s=STEP_S), loss, *PRODUCTS)


def test_the_fallback_of_sdpa_is_told_as_such() -> None:
    own = operator("aten::_safe_softmax", "2×12×512×256 bf16", 10e-3, "softmax", 10**9, 10**9)
    run = run_of(region(busy_s=STEP_S), (own, *PRODUCTS))
    (told,) = findings(profiles(run)[0], run.header)
    assert "fused kernel" in told.title


@pytest.mark.parametrize("of", ["²×3 bf16, ٣×4 bf16", "9" * 5000 + "×3 bf16", "→ ×, ,×", "-1×3 x"])
def test_a_strangers_shapes_are_no_numbers(of: str) -> None:
    strange = [
        operator(f"aten::{name}", of, 5e-3, kind, 10**12, 10**9)
        for name, kind in (("bmm", "matmul"), ("_softmax", "softmax"), ("mul", "elementwise"))
    ]
    assert gains(region(busy_s=STEP_S), *strange) == {}


def test_no_gain_is_above_the_time_of_what_it_is_about() -> None:
    slow = operator("aten::mul", "1×1 bf16", 40e-3, "elementwise", 10**9, 10**9)
    other = operator("aten::exp", "1×1 bf16", 40e-3, "elementwise", 10**9, 10**9)
    copied = operator(
        "aten::mul", "1×1 bf16", 40e-3, "copy", 0, 10**9, kernel="Memcpy HtoD (Pageable -> Device)"
    )
    chain = Chain(("mul", "add"), "a.py:1", 1, 20 * 10**9, 0)
    told = gains(region(busy_s=STEP_S, chains=(chain,)), slow, other, copied)
    assert told["fuse"] == pytest.approx(0.4)
    assert sum(gains(region(busy_s=STEP_S / 2, chains=(chain,)), slow, other).values()) <= 1


def test_on_a_cpu_too_fusing_saves_no_more_than_the_chains_take() -> None:
    def on_host(name: str, seconds: float) -> Record:
        one = operator(f"aten::{name}", "8×8 fp32", seconds, "elementwise", 10**9, 10**9)
        return replace(one, times={"host": Samples((seconds,))}, primary="host", kernels=())

    chain = Chain(("mul", "add"), "a.py:1", 1, 4 * 10**9, 10**9)
    whole = region(busy_s=0.0, chains=(chain,))
    traced = {**whole.times, "traced": Samples((2 * STEP_S,))}  # the profiler doubles all times
    slow = on_host("mul", 60e-3), on_host("add", 20e-3), on_host("exp", 100e-3)
    run = run_of(replace(whole, times=traced), slow)
    top = replace(run.header, device=replace(run.header.device, kind="cpu"))
    (told,) = findings(profiles(replace(run, header=top))[0], top)
    assert told.gain_s == pytest.approx(40e-3)


def test_a_run_without_a_region_says_how_to_mark_one() -> None:
    with pytest.raises(UsageError, match="no region with a time") as caught:
        profiles(Run(training().header, ()))
    assert "gpuperf.step()" in caught.value.hint
    failed = replace(region(), times={}, primary="", reason="ValueError: bad")
    with pytest.raises(UsageError, match="ValueError: bad"):
        profiles(run_of(failed, ()))


def test_the_table_has_totals_operators_and_what_to_do() -> None:
    text = whole_table(training())
    for words in (
        "step of train.py on NVIDIA H200",
        "100.0 ms a step ± 0.0 %, the GPU busy 90.0 %",
        "MFU 27.3 % of the data sheet",
        "163,840 items/s",
        "mm (backward)",
        "unknown",
        "pad the dimensions",
        "gpt2.py:99 (item)",
    ):
        assert words in text


def test_an_uneven_step_tells_its_mean() -> None:
    run = training()
    whole = run.records[0]
    values = (0.1,) * 8 + (0.3, 0.3)
    uneven = replace(
        whole, times={**whole.times, "step": Samples(values), "wall": Samples((0.14,))}
    )
    text = whole_table(replace(run, records=(uneven, *run.records[1:])))
    assert "(mean; the median is 100.0 ms)" in text
    assert "MFU 19.5 % of the data sheet" in text  # 27.3 % of a step of 0.1 s, in one of 0.14


def test_json_and_csv_have_every_operator() -> None:
    value = json.loads(render_profile(training(), "json"))
    assert len(value["regions"][0]["operators"]) == 12
    assert sum(value["regions"][0]["parts_s"].values()) == pytest.approx(STEP_S)
    rows = list(csv.DictReader(io.StringIO(render_profile(training(), "csv"))))
    assert len(rows) == 12
    assert float(rows[0]["time_s"]) == 24e-3


def hostile() -> Run:
    run = training()
    records = tuple(
        replace(
            r,
            case=replace(r.case, op=HOSTILE, implementation=HOSTILE, point={"of": HOSTILE}),
            operator=replace(r.operator, where=(HOSTILE,)) if r.operator else None,
            program=replace(r.program, missing=(HOSTILE,), waits=(Wait(HOSTILE, HOSTILE, 1.0),))
            if r.program
            else None,
        )
        for r in run.records
    )
    return replace(run, records=records)


@pytest.mark.parametrize("format", ["table", "md", "json", "csv"])
def test_a_strangers_names_stay_names(format: str) -> None:
    text = render_profile(hostile(), format)
    assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert format != "md" or "<script>" not in text


def test_the_chart_is_drawn_twice_alike_and_holds_no_markup(tmp_path: Path) -> None:
    files = [tmp_path / "a.svg", tmp_path / "b.svg", tmp_path / "c.png"]
    draw_profile(hostile(), files)
    draw_profile(training(), [files[1]])
    again = tmp_path / "again.svg"
    draw_profile(training(), [again])
    assert files[1].read_bytes() == again.read_bytes()
    assert "<script" not in files[0].read_text(encoding="utf-8")


def test_a_profile_of_a_cpu_has_no_idle_device(tmp_path: Path) -> None:
    one = replace(MATMUL, times={"host": Samples((30e-3,))}, primary="host", kernels=())
    run = run_of(region(busy_s=0.0), (one,))
    top = replace(run.header, device=replace(run.header.device, kind="cpu"))
    (found,) = profiles(replace(run, header=top))
    assert found.busy_s == pytest.approx(30e-3)
    assert found.parts["idle: launch or host"] == pytest.approx(70e-3)
    draw_profile(replace(run, header=top), [tmp_path / "cpu.png"])


def test_bytes_without_flops_have_no_place_but_their_time() -> None:
    moved = replace(MATMUL, cost=Cost((), (Bytes(10**11, 0),)))
    found = profile(region(), moved)
    assert found.parts["memory-bound"] == pytest.approx(90e-3)


def test_kernels_are_told_by_what_launches_them() -> None:
    run = training()
    (found,) = profiles(run)
    uses = kernels_of(found)
    assert [use.name for use in uses[:2]] == ["aten::mm_kernel", "aten::addmm_kernel"]
    assert uses[0].count == 49
    assert uses[0].seconds == pytest.approx(46e-3)
    assert uses[0].operators == ("aten::mm",)
    assert sum(use.share for use in uses) == pytest.approx(0.9)
    shown = whole_table(run, "kernels")
    assert "aten::mm_kernel" in shown
    assert "what to do first" in shown
    rows = render_profile(run, "csv", "kernels").splitlines()
    assert rows[0] == ("region,kernel,launches,time_s,share,dram_bytes,tensor_operations,operators")
    assert len(rows) == 1 + len(uses)


def test_a_product_loses_by_waves_or_in_its_kernel_and_a_copy_by_its_memory() -> None:
    (found,) = profiles(training())
    by = {share.record.case.op: share.loss for share in found.operators}
    assert by["aten::addmm"] is not None
    assert (by["aten::addmm"].name, round(by["aten::addmm"].factor, 2)) == ("in the kernel", 0.54)
    assert by["aten::mul"] is not None
    assert by["aten::mul"].name == "in the kernel"  # or it moves more than it must: not counted


def counted(record: Record, **counters: float) -> Record:
    kernels = tuple(replace(kernel, counters=counters) for kernel in record.kernels)
    return replace(record, kernels=kernels, counters=counters)


def test_what_was_counted_kernel_by_kernel_stands_beside_what_must_move() -> None:
    tera = 15e12
    mm = counted(
        MATMUL,
        dram_read_bytes=2e9,
        dram_written_bytes=1e9,
        tensor_bf16=1.5 * tera,
        active_cycles=4e7,
        tensor_cycles=3e7,
    )
    run = run_of(region(busy_s=40e-3), (mm, operator("aten::add", "8 fp32", 10e-3, "elementwise")))
    head, *rows = whole_table(run).splitlines()[6:]
    assert "DRAM" not in whole_table(run_of(region(), (MATMUL,)))
    (row,) = (line for line in (head, *rows) if line.startswith("mm "))
    assert "1.00 GB  3.00 GB" in row
    shown = whole_table(run, "kernels")
    (row,) = (line for line in shown.splitlines() if line.startswith("aten::mm_kernel"))
    assert "3.00 GB" in row
    assert "22.5 TFLOP" in row
    assert "counted kernel by kernel, 3.00 GB together\n" in whole_table(run)
    copies = region(busy_s=40e-3, moved={"copy DtoD": 10**9, "copy HtoD pinned": 10**8})
    told = whole_table(run_of(copies, (mm,)))
    assert "3.00 GB together, and copies move 2.10 GB more" in told
    found = json.loads(render_profile(run, "json"))["regions"][0]
    assert found["operators"][0]["dram_bytes"] == 3e9
    assert found["kernels"][0]["tensor_operations"] == 1.5 * tera
    assert found["operators"][1]["dram_bytes"] is None


def test_counters_of_its_kernels_tell_what_a_product_loses() -> None:
    cycles = 30e-3 * 1.7e9
    mm = counted(MATMUL, tensor_bf16=15e12, active_cycles=cycles, tensor_cycles=0.4 * cycles)
    (share,) = profile(region(busy_s=30e-3), mm).operators
    assert share.loss is not None
    assert share.loss.name != "in the kernel"


def test_steps_that_scatter_widely_are_told_by_their_ends() -> None:
    times = {"step": Samples((10e-3, 80e-3, 9e-3, 11e-3, 10e-3)), "busy": Samples((8e-3,))}
    told = whole_table(run_of(replace(region(), times=times), (MATMUL,)))
    assert "24.00 ms a step, between 9.000 ms and 80.00 ms in 5 steps (mean; the median" in told


def test_a_trace_alone_is_as_idle_as_it_was() -> None:
    """Its step counts what lies before the first kernel, which bounds nothing."""
    whole = region(busy_s=80e-3, occupied={"idle_most": 1e-3})
    alone = replace(
        whole, times={"traced": Samples((STEP_S,)), "busy": Samples((80e-3,))}, primary="traced"
    )
    found = profile(alone, MATMUL)
    assert (found.busy_s, found.scales.kernels) == (pytest.approx(80e-3), pytest.approx(1.0))


def test_a_copy_does_not_follow_the_clock() -> None:
    copy = operator("aten::copy_", "8 fp32", 10e-3, "copy", kernel="Memcpy HtoD (Pinned -> Device)")
    kernels = operator("aten::mm", "8×8 bf16, 8×8 bf16", 80e-3)
    found = profile(region(busy_s=90e-3, occupied={"idle_most": 2e-3}), copy, kernels)
    assert [share.seconds for share in found.operators] == pytest.approx([88e-3, 10e-3])
    assert [use.seconds for use in kernels_of(found)] == pytest.approx([88e-3, 10e-3])
    assert found.scales.kernels == pytest.approx(88 / 80)


def test_a_loop_that_waits_for_data_is_told_so_first() -> None:
    whole = region(busy_s=30e-3, data_s=60e-3, data_where="train.py:9")
    found = profile(whole, MATMUL)
    assert found.parts["idle: data"] == pytest.approx(60e-3)
    assert found.parts["idle: launch or host"] == pytest.approx(10e-3)
    first, *_ = findings(found, training().header)
    assert first.title.startswith("load data faster")
    assert (first.gain_s, first.where) == (pytest.approx(60e-3), ("train.py:9",))


def test_data_that_comes_while_the_device_works_costs_nothing() -> None:
    found = profile(region(busy_s=99e-3, data_s=60e-3), MATMUL)
    assert found.parts["idle: data"] == pytest.approx(1e-3)
    assert not [one for one in findings(found, training().header) if "load data" in one.title]


def test_the_chains_of_an_optimizer_are_its_own_to_fuse() -> None:
    slow = operator("aten::addcdiv_", "1×1 fp32", 40e-3, "elementwise", 10**9, 10**9)
    chain = Chain(("addcdiv_", "mul_"), "a.py:1", 1, 10**9, 5 * 10**8, True)
    run = run_of(region(busy_s=STEP_S, chains=(chain,)), (slow,))
    (found,) = findings(profiles(run)[0], run.header)
    assert "fused=True" in found.title
    assert found.gain_s == pytest.approx(20e-3)


def traced_only(whole: Record) -> Record:
    times = {"busy": whole.times["busy"], "traced": Samples((STEP_S,))}
    return replace(whole, times=times, primary="traced")


def test_a_gain_is_never_of_a_time_under_the_profiler() -> None:
    run = run_of(traced_only(region(busy_s=3e-3)), (MATMUL,))
    assert findings(profiles(run)[0], run.header) == ()
    text = whole_table(run)
    assert "no gain is estimated" in text
    assert "busy" not in text
    assert "under the profiler" in text


def test_where_there_is_nothing_to_change_a_sentence_says_so() -> None:
    text = whole_table(run_of(region(busy_s=STEP_S), (MATMUL,)))
    assert "no known change would save 2% of the step" in text


def test_where_nothing_was_traced_no_change_is_ruled_out() -> None:
    text = whole_table(run_of(region(busy_s=STEP_S), ()))
    assert "no step was traced" in text
    assert "no known change" not in text


def test_a_step_without_roofs_points_to_calibrate() -> None:
    run = run_of(region(), (MATMUL,))
    bare = replace(run, header=replace(run.header, peaks=None, ceilings=None))
    assert "`gpuperf calibrate` measures them" in whole_table(bare)
    assert "calibrate" not in whole_table(run)


SECONDS = st.floats(1e-3, 60e-3)


@settings(max_examples=150, deadline=None)
@given(
    SECONDS,
    SECONDS,
    SECONDS,
    SECONDS,
    SECONDS,
    st.floats(0, 60e-3),
    st.floats(0, 60e-3),
    st.integers(10**6, 10**10),
    st.floats(20e-3, 200e-3),
)
def test_no_gain_is_above_the_step_less_what_remains(
    mm: float,
    mul: float,
    step: float,
    copied: float,
    soft: float,
    data: float,
    wait: float,
    moved: int,
    step_s: float,
) -> None:
    """What remains is at the least all kernels that the finding is not about, or all copies (which
    a profiler may have delayed), and what the device idles for another reason."""
    chains = (
        Chain(("mul",), "a.py:1", 1, moved, moved // 3),
        Chain(("addcdiv_",), "a.py:2", 1, moved, moved // 4, True),
    )
    operators = (
        operator("aten::mm", "4095×4095 fp32, 4095×4095 fp32", mm, flops=10**10, dtype="fp32"),
        operator("aten::mul", "1×1 bf16", mul, "elementwise", 10**6, moved),
        operator("aten::addcdiv_", "1×1 bf16", step, "elementwise", 10**6, moved),
        operator("aten::_softmax", "4×64×64 bf16", soft, "softmax", 10**6, moved),
        operator("aten::copy_", "1 fp32", copied, "copy", kernel="Memcpy HtoD (Pageable ->"),
    )
    kernels = mm + mul + step + soft
    busy = min(step_s, kernels + copied)
    plain = min(copied, max(0.0, busy - kernels))
    whole = region(
        busy_s=kernels + copied,
        step_s=step_s,
        chains=chains,
        data_s=data,
        waits=(Wait("item", "a.py:3", 1, wait),),
        moved={"copy HtoD pageable": moved},
        occupied={"busy": kernels + copied, "copy HtoD pageable": copied},
    )
    run = run_of(whole, operators)
    about = {
        "fuse": (mul, 0.0),
        "let the optimizer": (step, 0.0),
        "let fp32": (mm, 0.0),
        "pad": (mm, 0.0),
        "copy": (0.0, plain),
        "use scaled": (soft, 0.0),
        "let scaled": (soft, 0.0),
    }
    for one in findings(profiles(run)[0], run.header):
        own = next((v for k, v in about.items() if one.title.startswith(k)), (0.0, 0.0))
        remains = max(kernels - own[0], plain - own[1])
        assert 0 < one.gain_s <= step_s - min(busy, remains) + 1e-9, one
        assert one.gain_s <= step_s


def test_the_flops_of_an_operator_that_is_not_known_are_unknown_and_not_none() -> None:
    value = json.loads(render_profile(training(), "json"))
    rows = {row["operator"]: row for row in value["regions"][0]["operators"]}
    assert rows["mylib::rope"]["flops"] is None
    known = [row["flops"] for name, row in rows.items() if name != "mylib::rope"]
    assert None not in known
