"""Is a record placed under the roofs as pencil and paper place it?"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import copy_run, h200_ceilings, h200_device, h200_run, h200_sweep, header

from gpuperf.model.contract import Contract
from gpuperf.model.cost import Bytes, Cost, Flops
from gpuperf.model.peaks import Ceiling, Figure, Peaks
from gpuperf.model.record import Record, TimerFacts
from gpuperf.model.samples import Samples
from gpuperf.model.workload import Case
from gpuperf.peaks.find import builtin_peaks
from gpuperf.roofline.study import Placement, place, raise_ceilings, roofs

DEVICES = {peaks.id: peaks for peaks in builtin_peaks()}
H200 = DEVICES["h200-sxm"]
EMPTY = replace(H200, compute=(), figures={})


def product(m: int, n: int, k: int, dtype: str = "bf16", width: int = 2) -> Cost:
    """C = A·B with compulsory bytes."""
    flops = Flops(2 * m * n * k, "matmul", dtype, "fp32")
    return Cost((flops,), (Bytes(width * (m * k + k * n), width * m * n),))


def taken(
    cost: Cost | None, time_s: float, clock_hz: float | None = None, empty_call_s: float = 0.0
) -> Record:
    """A record whose median is exactly *time_s*."""
    return Record(
        "r",
        Case("op", "mine", {}),
        Contract("blocked"),
        "ok",
        cost=cost,
        times={"window": Samples((time_s,) * 3, (clock_hz,) * 3)},
        primary="window",
        timer=TimerFacts(empty_call_s=empty_call_s),
    )


def placed(record: Record, peaks: Peaks | None = H200, ceilings: Peaks | None = None) -> Placement:
    placement = place(record, peaks, ceilings)
    assert placement is not None
    return placement


def at_rate(flop_per_s: float, clock_hz: float | None = None) -> Record:
    """A product of 8192³ in bf16 that attained *flop_per_s*."""
    return taken(product(8192, 8192, 8192), 2 * 8192**3 / flop_per_s, clock_hz)


def kinds(placement: Placement) -> list[str]:
    return [caveat.kind for caveat in placement.caveats]


def measured(rate: float, bandwidth: float, dtype: str = "bf16") -> Peaks:
    """Measured ceilings: *rate* in FLOP/s of one dtype, *bandwidth* in byte/s."""
    return replace(
        H200,
        id="measured",
        compute=(Ceiling("tensor", dtype, "fp32", Figure(rate, "FLOP/s", "measured", "here")),),
        figures={"memory_bandwidth": Figure(bandwidth, "byte/s", "measured", "here")},
    )


@pytest.mark.parametrize(
    ("m", "n", "k", "intensity"),
    [(8192, 128, 8192, 124.1), (8192, 8192, 8192, 2730.7), (1, 8192, 8192, 0.9998)],
)
def test_products_have_the_known_arithmetic_intensity(
    m: int, n: int, k: int, intensity: float
) -> None:
    placement = placed(taken(product(m, n, k), 1e-3))
    assert placement.intensity == pytest.approx(intensity, rel=4e-4)


@pytest.mark.parametrize(
    ("device", "ridge"), [("h200-sxm", 206), ("a100-sxm4-80gb", 153), ("h100-sxm5", 295)]
)
def test_devices_have_the_known_ridge_point_in_bf16(device: str, ridge: float) -> None:
    placement = placed(at_rate(1e14), DEVICES[device])
    assert placement.ridge == pytest.approx(ridge, abs=0.5)


def test_a_product_left_of_the_ridge_is_held_by_memory() -> None:
    """124.1 FLOP/byte × 4.8 TB/s = 595.8 TFLOP/s."""
    placement = placed(taken(product(8192, 128, 8192), 5e-5))
    assert placement.longer == placement.limiter == "memory"
    assert placement.attainable_flop_per_s == pytest.approx(595.8e12, rel=1e-3)
    assert placement.ideal_s == pytest.approx(138_412_032 / 4.8e12)
    assert placement.fraction == pytest.approx(0.5767, rel=1e-3)


def test_a_product_right_of_the_ridge_is_held_by_the_tensor_pipe() -> None:
    placement = placed(at_rate(810e12))
    assert placement.limiter == "compute"
    assert placement.pipe == "tensor"
    assert placement.attainable_flop_per_s == pytest.approx(989.4e12)
    assert placement.fraction == pytest.approx(0.8187, rel=1e-3)
    assert placement.roof == "data sheet"


def test_the_three_mfus_are_of_the_sheet_of_the_clock_and_of_the_measured_ceiling() -> None:
    """810 of 989.4 TFLOP/s; of 132 × 4096 × 1.602 GHz = 866.2; of the 824 that were measured."""
    placement = placed(at_rate(810e12, 1.602e9), H200, measured(824e12, 4.29e12))
    assert placement.mfu_data_sheet == pytest.approx(0.819, abs=5e-4)
    assert placement.mfu_clock == pytest.approx(0.935, abs=5e-4)
    assert placement.mfu_measured == pytest.approx(0.983, abs=5e-4)
    assert placement.attained_flop_per_s == pytest.approx(810e12)
    assert placement.clock_hz == 1.602e9
    assert placement.reasons == ()


def test_without_an_observed_clock_there_is_no_mfu_at_the_clock_and_a_reason() -> None:
    placement = placed(at_rate(810e12))
    assert placement.mfu_clock is None
    assert placement.reasons == ("the SM clock was not observed",)
    assert placement.valid


def test_a_short_kernel_is_held_by_latency() -> None:
    """128³: 98 kB take 20 ns through DRAM, and no call takes less than 1.17 µs."""
    record = taken(product(128, 128, 128), 2.48e-6, 1.98e9, empty_call_s=1.17e-6)
    placement = placed(record)
    assert placement.limiter == "latency"
    assert placement.ideal_s == pytest.approx(98_304 / 4.8e12)
    long = taken(product(8192, 8192, 8192), 1.36e-3, 1.6e9, empty_call_s=1.17e-6)
    assert placed(long).limiter == "compute"


def test_a_copy_has_no_flop_and_still_a_place() -> None:
    """2 × 512 MiB in 250 µs: 4.295 TB/s of 4.8."""
    placement = placed(taken(Cost(bytes=(Bytes(2**29, 2**29),)), 250e-6, 1.98e9))
    assert placement.limiter == "memory"
    assert placement.attained_byte_per_s == pytest.approx(4.295e12, rel=1e-3)
    assert placement.fraction == pytest.approx(0.8948, rel=1e-3)
    assert placement.intensity == 0
    assert placement.attained_flop_per_s == 0
    assert placement.attainable_flop_per_s is None
    assert placement.ridge is None
    assert placement.mfu_data_sheet is None
    assert placement.reasons == ()
    assert placement.pipe == ""


def test_pipes_work_side_by_side_and_the_busiest_counts() -> None:
    """1 ms of tensor FLOPs beside 2 ms of vector FLOPs take 2 ms, not 3."""
    both = Cost(
        (
            Flops(round(0.001 * 989.4e12), "matmul", "bf16", "fp32"),
            Flops(round(0.002 * 66.9e12), "elementwise", "fp32"),
        ),
        (Bytes(1000, 1000),),
    )
    placement = placed(taken(both, 4e-3))
    assert placement.ideal_s == pytest.approx(2e-3)
    assert placement.pipe == "vector"
    assert placement.mfu_data_sheet == pytest.approx(0.5)


def test_dtypes_of_one_pipe_work_one_after_the_other() -> None:
    both = Cost(
        (
            Flops(round(0.001 * 989.4e12), "matmul", "bf16", "fp32"),
            Flops(round(0.002 * 494.7e12), "matmul", "tf32", "fp32"),
        ),
        (Bytes(1000, 1000),),
    )
    assert placed(taken(both, 6e-3)).ideal_s == pytest.approx(3e-3)


def test_fp64_products_are_served_by_the_faster_pipe() -> None:
    cost = product(4096, 4096, 4096, "fp64", 8)
    cost = replace(cost, flops=(replace(cost.flops[0], accumulate="fp64"),))
    placement = placed(taken(cost, 3e-3))
    assert placement.pipe == "tensor"
    assert placement.attainable_flop_per_s == pytest.approx(66.9e12)


@given(st.integers(1, 10**15), st.integers(1, 10**12), st.floats(1e12, 1e16), st.floats(1e10, 1e14))
def test_attainable_is_the_lower_of_both_roofs(
    flop: int, moved: int, peak: float, bandwidth: float
) -> None:
    cost = Cost((Flops(flop, "matmul", "bf16", "fp32"),), (Bytes(moved, 0),))
    placement = placed(taken(cost, 1.0), measured(peak, bandwidth))
    assert placement.attainable_flop_per_s == pytest.approx(min(peak, flop / moved * bandwidth))
    assert placement.ridge == pytest.approx(peak / bandwidth)
    assert placement.ideal_s is not None
    assert placement.fraction == pytest.approx(placement.ideal_s)
    right = placement.intensity > placement.ridge
    assert placement.longer == ("compute" if right else "memory") or (
        placement.intensity == pytest.approx(placement.ridge)
    )


@given(st.floats(1e12, 1e16), st.floats(1e10, 1e14), st.floats(1e-6, 1e-2))
def test_the_roof_is_continuous_at_the_ridge(peak: float, bandwidth: float, off: float) -> None:
    """A step of *off* across the ridge point moves attainable by *off* at most."""
    moved = 10**15

    def attainable(intensity: float) -> Placement:
        flop = Flops(round(moved * intensity), "matmul", "bf16", "fp32")
        return placed(taken(Cost((flop,), (Bytes(moved, 0),)), 1.0), measured(peak, bandwidth))

    ridge = peak / bandwidth
    left, right = attainable(ridge * (1 - off)), attainable(ridge * (1 + off))
    assert (left.limiter, right.limiter) == ("memory", "compute")
    assert left.attainable_flop_per_s == pytest.approx(peak * (1 - off), rel=1e-7)
    assert right.attainable_flop_per_s == pytest.approx(peak, rel=1e-7)


@given(st.floats(1e-6, 1.0), st.floats(1.01, 100.0))
def test_a_slower_time_is_a_smaller_fraction(time_s: float, factor: float) -> None:
    fast, slow = (placed(taken(product(512, 512, 512), t, 1e9)) for t in (time_s, time_s * factor))
    for name in ("fraction", "mfu_data_sheet", "mfu_clock", "attained_byte_per_s"):
        assert getattr(fast, name) == pytest.approx(factor * getattr(slow, name))


def test_without_any_roof_the_place_is_what_was_attained_and_a_reason() -> None:
    placement = placed(at_rate(1e14), None, None)
    assert placement.roof == "none"
    assert placement.attained_flop_per_s == pytest.approx(1e14)
    assert placement.intensity == pytest.approx(2730.7, rel=1e-4)
    unknown = (
        placement.ideal_s,
        placement.attainable_flop_per_s,
        placement.fraction,
        placement.ridge,
        placement.mfu_data_sheet,
        placement.mfu_clock,
        placement.mfu_measured,
    )
    assert unknown == (None,) * 7
    assert placement.limiter == "unknown"
    assert placement.reasons == (
        "no ceilings are known for this device; `gpuperf calibrate` measures them",
    )


def test_a_dtype_without_a_peak_has_no_mfu_and_a_reason() -> None:
    placement = placed(taken(product(64, 64, 64, "fp4"), 1e-3, 1.5e9))
    assert placement.mfu_data_sheet is None
    assert placement.mfu_clock is None
    assert placement.fraction is None
    assert placement.limiter == "unknown"
    assert placement.reasons == ("no data-sheet peak is known for matmul in fp4",)


def test_a_special_function_has_a_roof_by_arithmetic_where_the_guide_gives_its_rate() -> None:
    """132 SMs × 16 results × 1.98 GHz = 4.18e12 a second; in fp64 no unit serves it."""
    cost = Cost((Flops(10**9, "special", "fp32"),), (Bytes(10**6, 10**6),))
    placement = placed(taken(cost, 4e-4, 1.5e9))
    assert placement.ideal_s == pytest.approx(1e9 / (132 * 16 * 1.98e9))
    assert placement.limiter == "special function"
    assert placement.mfu_clock is None, "a polynomial may be faster: physics holds nothing to it"
    double = Cost((Flops(10**9, "special", "fp64"),), (Bytes(10**6, 10**6),))
    unknown = placed(taken(double, 1e-3, 1.5e9))
    assert (unknown.limiter, unknown.attainable_flop_per_s) == ("unknown", None)
    assert unknown.reasons[0].startswith("no data-sheet peak is known for special in fp64: ")
    assert "gpuperf calibrate --force" in unknown.reasons[0]


def test_another_accumulate_type_is_not_served_by_its_neighbours_peak() -> None:
    cost = Cost((Flops(10**9, "matmul", "bf16", "bf16"),), (Bytes(10**6, 10**6),))
    assert placed(taken(cost, 1e-3, 1.5e9)).mfu_data_sheet is None


@pytest.mark.parametrize("cost", [product(64, 64, 64), Cost(bytes=(Bytes(10**6, 10**6),))])
def test_an_empty_data_sheet_leaves_figures_empty_and_says_why(cost: Cost) -> None:
    placement = placed(taken(cost, 1e-3, 1.5e9), EMPTY)
    assert placement.fraction is None
    assert placement.attainable_flop_per_s is None
    assert placement.valid
    assert "no data-sheet memory bandwidth is known" in placement.reasons
    assert placed(taken(cost, 1e-3), None, EMPTY).reasons[-1] == (
        "no measured memory bandwidth is known"
    )


def test_measured_ceilings_serve_where_there_is_no_data_sheet() -> None:
    placement = placed(at_rate(618e12), None, measured(824e12, 4.29e12))
    assert placement.roof == "measured"
    assert placement.fraction == pytest.approx(0.75)
    assert placement.mfu_measured == pytest.approx(0.75)
    assert placement.mfu_data_sheet is None
    assert placement.ridge == pytest.approx(192.1, abs=0.05)


@pytest.mark.parametrize(
    "record",
    [
        replace(at_rate(1e14), status="oom"),
        replace(at_rate(1e14), status="wrong"),
        replace(at_rate(1e14), times={}, primary=""),
        replace(at_rate(1e14), cost=None),
        taken(product(64, 64, 64), 0.0),
    ],
)
def test_what_has_no_time_or_no_cost_has_no_place(record: Record) -> None:
    assert place(record, H200, None) is None


def test_above_what_the_sms_do_at_the_observed_clock_a_record_is_invalid() -> None:
    """132 × 4096 × 1.602 GHz = 866.2 TFLOP/s; 2 % are allowed for clock and timer."""
    most = 132 * 4096 * 1.602e9
    broken = placed(at_rate(most * 1.03, 1.602e9))
    assert not broken.valid
    assert kinds(broken) == ["impossible"]
    assert "1.03 times what 132 SMs do" in broken.caveats[0].message
    assert broken.caveats[0].hint
    close = placed(at_rate(most * 1.01, 1.602e9))
    assert close.valid
    assert kinds(close) == []


def test_above_the_data_sheet_at_a_higher_clock_a_record_is_valid() -> None:
    """At 1.98 GHz the SMs do 1070.5 TFLOP/s; the sheet's 989.4 are at 1.83."""
    placement = placed(at_rate(1050e12, 1.98e9))
    assert placement.valid
    assert placement.mfu_data_sheet == pytest.approx(1.0613, abs=1e-4)
    assert placement.mfu_clock == pytest.approx(0.9808, abs=1e-4)
    assert kinds(placement) == []


def test_compulsory_bytes_faster_than_dram_stayed_in_cache() -> None:
    read, hot = Cost(bytes=(Bytes(2**25, 0),)), Contract("blocked", cache="hot")
    fast, slow = (
        placed(replace(taken(read, 2**25 / rate), contract=hot)) for rate in (6e12, 4.7e12)
    )
    assert kinds(fast) == ["cache-resident"]
    assert fast.valid
    assert fast.caveats[0].hint
    assert kinds(slow) == []


def test_writes_that_fit_the_cache_are_told() -> None:
    small, large = (Cost(bytes=(Bytes(n, n),)) for n in (2**26, 2**31))
    assert kinds(placed(taken(small, 2**27 / 4.4e12))) == ["writes-in-cache"]
    assert kinds(placed(taken(large, 2**32 / 4.3e12))) == []


@pytest.mark.parametrize(("channel", "said"), [("l2", "L2"), ("host", "the link to the host")])
def test_what_moves_through_another_channel_has_no_place_under_the_roof_of_dram(
    channel: Any, said: str
) -> None:
    cost = Cost(bytes=(Bytes(0, 2**28), Bytes(2**28, 0, channel)))
    placement = placed(taken(cost, 5e-3))
    assert (placement.fraction, placement.limiter) == (None, "unknown")
    assert f"no roof is known for its bytes through {said}" in placement.reasons


def test_a_kernel_whose_bytes_nobody_counted_has_no_verdict_and_a_reason() -> None:
    """A case without bytes truthfully moves none; a kernel that was counted has them as 0."""
    flops = (Flops(10**9, "elementwise", "fp32"),)
    reason = "its bytes through DRAM are unknown"
    case = taken(Cost(flops), 1e-3, 1.98e9)
    kernel = replace(case, kind="kernel")
    bare = placed(kernel)
    assert (bare.limiter, bare.fraction, bare.ideal_s, bare.ridge) == ("unknown", None, None, None)
    assert reason in bare.reasons
    assert bare.mfu_data_sheet is not None
    for known in (case, replace(kernel, cost=Cost(flops, (Bytes(0, 0),)))):
        told = placed(known)
        assert told.longer == "compute"
        assert told.fraction is not None
        assert reason not in told.reasons


def test_data_that_draws_less_power_may_pass_a_roof_of_random_data() -> None:
    fast = at_rate(890e12)
    zeros = replace(fast, contract=replace(fast.contract, data="zeros"))
    roofs = measured(824e12, 4.3e12)
    assert "other-data" in kinds(placed(zeros, H200, roofs))
    assert "other-data" not in kinds(placed(fast, H200, roofs))
    slow = at_rate(700e12)
    slow = replace(slow, contract=replace(slow.contract, data="zeros"))
    assert "other-data" not in kinds(placed(slow, H200, roofs))


def test_a_time_far_above_a_measured_roof_is_doubted() -> None:
    copy = Cost(bytes=(Bytes(2**30, 2**30),))
    roofs = measured(824e12, 2.0e12)
    high = place(taken(copy, 2**31 / 4e12), None, roofs)
    level = place(taken(copy, 2**31 / 2.05e12), None, roofs)
    assert high is not None and level is not None
    assert kinds(high) == ["above-roof"]
    assert kinds(level) == []


def test_elementwise_bf16_is_placed_under_the_vector_roof_of_fp32() -> None:
    cost = Cost((Flops(2**26, "elementwise", "bf16"),), (Bytes(2**28, 2**27),))
    placement = placed(taken(cost, 1e-4, 1.9e9))
    assert placement.limiter == "memory"
    assert placement.fraction == pytest.approx(3 * 2**27 / 4.8e12 / 1e-4)


def test_a_record_above_the_measured_ceiling_raises_it() -> None:
    best = at_rate(830e12, 1.602e9)
    before = measured(824e12, 4.29e12)
    raised = raise_ceilings(before, [at_rate(700e12), best, at_rate(820e12)], H200)
    assert raised is not None
    assert raised.compute[0].rate.value == pytest.approx(830e12)
    assert raised.compute[0].rate.source == f"best of this run: {best.case.id}"
    assert raised.compute[0].rate.status == "measured"
    assert raised.figures == before.figures
    assert placed(best, None, raised).mfu_measured == pytest.approx(1.0)


@pytest.mark.parametrize(
    "record",
    [
        at_rate(823e12, 1.602e9),
        at_rate(1000e12, 1.602e9),  # breaks physics: at most 866.2 at this clock
        replace(at_rate(850e12, 1.602e9), status="wrong"),
        taken(Cost(bytes=(Bytes(2**24, 2**24),)), 1e-9),
        taken(product(8192, 8192, 8192, "fp16"), 1e-3, 1.602e9),
    ],
)
def test_nothing_else_raises_a_ceiling(record: Record) -> None:
    before = measured(824e12, 4.29e12)
    assert raise_ceilings(before, [record], H200) == before


def test_a_run_raises_a_measured_roof_by_half_at_most() -> None:
    before = measured(500e12, 4.29e12)
    for rate, wanted in ((749e12, 749e12), (751e12, 500e12)):
        raised = raise_ceilings(before, [at_rate(rate)])
        assert raised is not None
        assert raised.compute[0].rate.value == pytest.approx(wanted)


@pytest.mark.parametrize("data", ["uniform", "zeros", "ints"])
def test_only_normal_data_raises_a_roof(data: Any) -> None:
    fast = at_rate(830e12)
    fast = replace(fast, contract=replace(fast.contract, data=data))
    before = measured(824e12, 4.29e12)
    assert raise_ceilings(before, [fast]) == before


def test_above_a_measured_roof_by_more_than_a_twentieth_is_a_doubt() -> None:
    roof = measured(500e12, 4.29e12)
    assert kinds(placed(at_rate(524e12), None, roof)) == []
    assert kinds(placed(at_rate(526e12), None, roof)) == ["above-roof"]


def test_what_is_sustained_is_no_roof_of_a_burst() -> None:
    burst = measured(500e12, 4.29e12)
    lasting = replace(burst, compute=(replace(burst.compute[0], regime="sustained"),))
    assert placed(at_rate(400e12), None, burst).fraction == pytest.approx(0.8)
    assert placed(at_rate(400e12), None, lasting).fraction is None


def test_there_is_nothing_to_raise_without_ceilings() -> None:
    assert raise_ceilings(None, [at_rate(1e14)], H200) is None


def test_a_run_needs_the_roofs_of_its_dtypes_and_no_others() -> None:
    run = h200_sweep(ceilings=h200_ceilings())
    lines = roofs(run.header, run.records)
    assert [(r.kind, r.label, r.value, r.origin) for r in lines] == [
        ("memory", "DRAM", 4.8e12, "data sheet"),
        ("compute", "bf16 tensor", 989.4e12, "data sheet"),
        ("memory", "DRAM", 4.29e12, "measured"),
        ("compute", "bf16 tensor", 824e12, "measured"),
    ]
    assert lines[0].figure.condition == "theoretical, reads and writes together"
    assert lines[1].dtype == "bf16"


def test_a_run_that_did_better_than_its_calibration_shows_a_raised_roof() -> None:
    run = h200_sweep(ceilings=measured(500e12, 4.29e12))
    best = max(p.attained_flop_per_s for r in run.records if (p := place(r, None, None)))
    assert best > 500e12
    assert roofs(run.header, run.records)[-1].value == best


def test_a_record_that_breaks_physics_raises_no_roof() -> None:
    lines = roofs(h200_run().header, h200_run().records)
    assert lines[-1].value == 824e12


def test_a_copy_needs_the_memory_roofs_alone() -> None:
    run = copy_run()
    assert [r.kind for r in roofs(run.header, run.records)] == ["memory", "memory"]


def test_without_peaks_there_are_no_roofs() -> None:
    bare = header(h200_device(), Contract("blocked"), None, "unknown device")
    assert roofs(bare, [at_rate(1e14)]) == ()
    empty = replace(bare, peaks=EMPTY)
    assert roofs(empty, [at_rate(1e14)]) == ()
