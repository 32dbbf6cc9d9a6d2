"""Do operators and kernels of a GPU's trace find each other, and do the sums hold?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_kineto import Trace

from gpuperf.model.aten import Call, Tensor
from gpuperf.model.contract import Contract, Fingerprint
from gpuperf.model.cost import Cost, Flops
from gpuperf.model.program import ObservedCall, PassResult, Wait
from gpuperf.model.record import Kernel, Record
from gpuperf.model.timeline import Timeline
from gpuperf.profile.average import kernel_counters, stretches
from gpuperf.profile.devicetime import device_time
from gpuperf.profile.passes import RegionPasses
from gpuperf.profile.records import _counters, region_records
from gpuperf.profile.trace.kineto import read_trace
from gpuperf.profile.trace.steps import marked, steps_of

US = 1000
EVENTS = Contract("events", "hot", "sustained", gap_s=0.0, data="own")
MM = Call(
    "aten::mm",
    ((Tensor((64, 32), "bf16"),), (Tensor((32, 16), "bf16"),)),
    ("", ""),
    (Tensor((64, 16), "bf16"),),
)
SHAPES = {"Input Dims": [[64, 32], [32, 16]], "Input type": ["c10::BFloat16"] * 2}
STEPS = 3


def trace(folder: Path) -> Path:
    """Three steps of 100 µs on the host; the device works behind it, 60 µs of each: a matmul in two
    kernels, a kernel by hand, and a copy."""
    made = Trace()
    for i in range(STEPS):
        at, device = i * 100, 50 + i * 100
        made.mark("gpuperf:step", at * US, (at + 100) * US)
        made.op("aten::matmul", (at + 5) * US, (at + 30) * US, **SHAPES)
        made.op("aten::mm", (at + 6) * US, (at + 29) * US, **SHAPES)
        made.launch("gemm", (at + 8) * US, device * US, (device + 20) * US)
        made.launch("splitk_reduce", (at + 20) * US, (device + 20) * US, (device + 30) * US)
        made.launch("by_hand_kernel", (at + 40) * US, (device + 30) * US, (device + 50) * US)
        made.launch("gone", (at + 60) * US, (device + 50) * US, (device + 60) * US)
    return made.write(folder / "trace.json")


def told(folder: Path, *passed: PassResult, traced: bool = True) -> tuple[Record, ...]:
    timeline = read_trace(trace(folder)) if traced else None
    return region_records(
        RegionPasses(
            "r",
            "step",
            "train.py",
            EVENTS,
            Fingerprint(),
            passed,
            timeline,
            total=9,
            exit_code=0,
            cuda=True,
        )
    )


PLAIN = PassResult("step", "plain", 10, (110e-6,) * 10, 1.2e-3, 5000)
ACCOUNTING = PassResult(
    "step", "accounting", 1, calls=(ObservedCall(MM, "train.py:7"),), flop_counts=(65536,)
)


def by_name(records: tuple[Record, ...]) -> dict[str, Record]:
    return {record.case.op: record for record in records if record.kind == "operator"}


def test_kernels_belong_to_the_operator_that_the_mode_saw(tmp_path: Path) -> None:
    region, *_ = records = told(tmp_path, PLAIN, ACCOUNTING)
    mm = by_name(records)["aten::mm"]
    assert mm.samples is not None
    assert mm.samples.median_s == pytest.approx(30e-6)
    assert [(k.name, k.count) for k in mm.kernels] == [("gemm", 1), ("splitk_reduce", 1)]
    assert mm.cost is not None
    assert mm.cost.flop_count == 2 * 64 * 32 * 16
    assert mm.cost.dram_bytes == 2 * (64 * 32 + 32 * 16 + 64 * 16)
    assert mm.operator is not None
    assert mm.operator.where == ("train.py:7",)
    assert "aten::matmul" not in by_name(records)
    assert region.cost == mm.cost


def test_a_kernel_without_an_operator_is_shown_by_its_name(tmp_path: Path) -> None:
    records = told(tmp_path, PLAIN, ACCOUNTING)
    own = by_name(records)["by_hand_kernel"]
    assert own.samples is not None
    assert own.samples.median_s == pytest.approx(20e-6)
    assert own.operator is not None
    assert not own.operator.known
    (doubt,) = records[0].caveats
    assert doubt.kind == "unknown-operators"
    assert "50.0 %" in doubt.message


def test_the_device_is_followed_behind_the_last_mark(tmp_path: Path) -> None:
    region, *_ = told(tmp_path, PLAIN, ACCOUNTING)
    assert region.times["busy"].median_s == pytest.approx(60e-6)
    assert region.times["step"].median_s == pytest.approx(110e-6)
    assert region.primary == "step"
    assert region.program is not None
    assert region.program.launched == {"kernel": 4.0}
    assert region.program.occupied["kernels"] == pytest.approx(60e-6)
    assert region.memory is not None
    assert region.memory.peak_bytes == 5000
    assert region.program.flop_counter == 65536


def test_a_trace_alone_counts_a_product_once(tmp_path: Path) -> None:
    region, *_ = records = told(tmp_path)
    assert region.primary == "traced"
    assert region.cost is not None
    assert region.cost.flop_count == 2 * 64 * 32 * 16
    assert by_name(records)["aten::mm"].operator is not None


def test_without_a_trace_there_are_costs_and_no_kernels(tmp_path: Path) -> None:
    region, mm = told(tmp_path, PLAIN, ACCOUNTING, traced=False)
    assert region.status == "ok"
    assert mm.samples is None
    assert mm.kernels == ()


def test_without_a_time_the_region_says_why(tmp_path: Path) -> None:
    gone = PassResult("step", "plain", 0, reason="the program ended")
    (region,) = told(tmp_path, gone, traced=False)
    assert (region.status, region.reason) == ("error", "no pass took a step")
    assert region.program is not None
    assert "use fewer --steps" in region.program.missing[0]


def test_what_the_program_says_of_its_operator_counts(tmp_path: Path) -> None:
    cost = Cost((Flops(7, "special", "bf16"),))
    own = PassResult("step", "accounting", 1, calls=(ObservedCall(MM, cost=cost),))
    assert by_name(told(tmp_path, PLAIN, own))["aten::mm"].cost == cost


def test_fp32_products_are_in_tf32_where_the_program_chose_so(tmp_path: Path) -> None:
    x = Tensor((8, 8), "fp32")
    seen = (ObservedCall(Call("aten::mm", ((x,), (x,)), ("", ""), (x,))),)
    for tf32, dtype in ((False, "fp32"), (True, "tf32")):
        passed = PassResult("step", "accounting", 1, calls=seen, tf32=tf32)
        region, *_ = told(tmp_path, PLAIN, passed, traced=False)
        assert region.cost is not None
        assert [flops.dtype for flops in region.cost.flops] == [dtype]


def test_a_count_that_torch_does_not_share_is_a_doubt(tmp_path: Path) -> None:
    other = PassResult("step", "accounting", 1, calls=(ObservedCall(MM),), flop_counts=(32768,))
    region, *_ = told(tmp_path, PLAIN, other, traced=False)
    assert [doubt.kind for doubt in region.caveats] == ["flops-disagree"]


def test_what_a_compiled_function_computes_is_no_chain(tmp_path: Path) -> None:
    x, y, z = (Tensor((64, 16), "bf16", (), i, 0) for i in (1, 2, 3))
    calls = (Call("aten::exp", ((x,),), ("",), (y,)), Call("aten::neg", ((y,),), ("",), (z,)))
    own = PassResult(
        "step", "accounting", 1, calls=tuple(ObservedCall(call) for call in (MM, *calls))
    )
    for traced, count in ((True, 0), (False, 1)):  # in the trace there is no exp
        region, *_ = told(tmp_path, PLAIN, own, traced=traced)
        assert region.program is not None
        assert len(region.program.chains) == count


def test_what_waits_is_held_against_the_trace(tmp_path: Path) -> None:
    item = ObservedCall(Call("aten::_local_scalar_dense"), "train.py:9", "item")
    own = PassResult("step", "accounting", 1, calls=(ObservedCall(MM), item))
    region, *_ = told(tmp_path, PLAIN, own)
    assert region.program is not None
    assert region.program.waits == (Wait("item", "train.py:9", 1.0, 0.0),)  # the trace has none


def test_what_is_computed_again_is_work_and_no_cost(tmp_path: Path) -> None:
    seen = (
        ObservedCall(MM),
        ObservedCall(MM, backward=True, again=True),
        ObservedCall(MM, backward=True),
    )
    region, *_ = told(
        tmp_path, PLAIN, PassResult("step", "accounting", 1, calls=seen), traced=False
    )
    assert region.cost is not None
    assert region.work is not None
    assert region.cost.flop_count == 2 * 65536
    assert region.work.flop_count == 3 * 65536


def test_an_operator_that_only_the_trace_has_adds_nothing_to_the_step(tmp_path: Path) -> None:
    other = Call("aten::mm", ((Tensor((8, 32), "bf16"),), (Tensor((32, 16), "bf16"),)), ("", ""))
    accounting = PassResult(
        "step", "accounting", 2, calls=(ObservedCall(other),) * 4, flop_counts=(16384,) * 2
    )
    region, *_ = records = told(tmp_path, PLAIN, accounting)
    assert region.cost is not None
    assert region.cost.flop_count == 2 * 2 * 8 * 32 * 16  # two in each of the two steps
    shown = [r for r in records if r.case.op == "aten::mm" and r.samples]
    assert [r.cost.flop_count for r in shown if r.cost] == [65536]
    assert "other-operators" in [doubt.kind for doubt in region.caveats]


def test_steps_that_differ_are_a_doubt(tmp_path: Path) -> None:
    uneven = PassResult(
        "step", "accounting", 2, calls=(ObservedCall(MM),) * 3, flop_counts=(65536, 131072)
    )
    region, *_ = told(tmp_path, PLAIN, uneven, traced=False)
    assert region.cost is not None
    assert region.cost.flop_count == 98304
    assert [doubt.kind for doubt in region.caveats] == ["uneven-steps"]


def test_the_device_is_busy_where_it_works_and_not_where_the_host_marks(tmp_path: Path) -> None:
    """A host that launches three steps of 60 µs in 30 µs, and marks them 1 µs apart."""
    made = Trace()
    for i in range(STEPS):
        at, device = i * 10, 100 + i * 60
        made.mark("gpuperf:step", (at + 1) * US, (at + 9) * US)
        made.op("aten::mm", (at + 2) * US, (at + 8) * US, **SHAPES)
        made.launch("gemm", (at + 3) * US, device * US, (device + 60) * US)
    timeline = read_trace(made.write(tmp_path / "ahead.json"))
    windows = marked(timeline, "step")
    assert [(a // US, b // US) for a, b in stretches(timeline, windows)] == [(0, 279)]


@pytest.mark.parametrize(
    ("ends", "prefetches", "begins"),
    [(90, False, 90), (90, True, 90), (900, False, 100)],
    ids=["work that delays", "work that delays, but for a prefetch", "work beside all steps"],
)
def test_work_launched_before_the_first_step_is_none_of_its_own(
    ends: int, prefetches: bool, begins: int, tmp_path: Path
) -> None:
    """Three steps of 60 µs begin at 100 µs, and earlier work of the device at 10 µs."""
    made = Trace()
    made.launch("earlier", 0, 10 * US, ends * US)
    for i in range(STEPS):
        at, device = 5 + i * 10, 100 + i * 60
        made.mark("gpuperf:step", at * US, (at + 8) * US)
        if prefetches and not i:
            made.launch("prefetch", (at + 1) * US, 11 * US, 12 * US)
        made.launch("gemm", (at + 3) * US, device * US, (device + 60) * US)
    timeline = read_trace(made.write(tmp_path / "late.json"))
    (stretch,) = stretches(timeline, marked(timeline, "step"))
    assert (stretch[0] // US, stretch[1] // US) == (begins, 280)
    assert device_time(timeline, stretch).busy_s * 1e6 == pytest.approx(180)


def test_work_between_the_steps_is_none_of_theirs(tmp_path: Path) -> None:
    made = Trace()
    for i in range(STEPS):
        at, device = i * 10, 100 + i * 60
        made.mark("gpuperf:forward", at * US, (at + 4) * US)
        made.launch("inside", (at + 1) * US, device * US, (device + 20) * US)
        made.launch("between", (at + 6) * US, (device + 20) * US, (device + 60) * US)
    timeline = read_trace(made.write(tmp_path / "gaps.json"))
    found = stretches(timeline, marked(timeline, "forward"))
    assert [(a // US, b // US) for a, b in found] == [(100, 120), (160, 180), (220, 240)]


def test_a_region_inside_a_step_has_what_was_launched_in_it(tmp_path: Path) -> None:
    made = Trace()
    for i in range(STEPS):
        at, device = i * 100, 50 + i * 100
        made.mark("gpuperf:step", at * US, (at + 100) * US)
        made.mark("gpuperf:step / forward", (at + 10) * US, (at + 30) * US)
        made.launch("inside", (at + 15) * US, device * US, (device + 20) * US)
        made.launch("behind", (at + 40) * US, (device + 20) * US, (device + 60) * US)
    timeline = read_trace(made.write(tmp_path / "parts.json"))
    region, *_ = region_records(
        RegionPasses(
            "r",
            "step",
            "train.py",
            EVENTS,
            Fingerprint(),
            (PLAIN, PassResult("step", "trace", STEPS)),
            timeline,
            cuda=True,
        )
    )
    assert region.program is not None
    assert region.program.parts == {"forward": pytest.approx(20e-6)}
    assert steps_of(timeline)[0] == "step"


def test_work_on_another_gpu_than_the_clocks_is_a_doubt(tmp_path: Path) -> None:
    timeline = read_trace(trace(tmp_path))
    for device, doubts in (
        (timeline.active_devices[0], []),
        (timeline.active_devices[0] + 1, ["other-devices"]),
    ):
        region, *_ = region_records(
            RegionPasses(
                "r",
                "step",
                "train.py",
                EVENTS,
                Fingerprint(),
                (PLAIN,),
                timeline,
                cuda=True,
                device=device,
            )
        )
        kinds = [doubt.kind for doubt in region.caveats if doubt.kind == "other-devices"]
        assert kinds == doubts


def each(*reads: float) -> PassResult:
    """The counters of each kernel of a step."""
    counts = tuple({"dram_read_bytes": read, "dram_written_bytes": 1.0} for read in reads)
    return PassResult("step", "kernels", 6, kernels=counts)


def test_counters_go_to_the_kernels_of_a_step_in_the_order_of_their_launch(tmp_path: Path) -> None:
    region, *_ = records = told(tmp_path, PLAIN, ACCOUNTING, each(10, 20, 30, 40))
    mm = by_name(records)["aten::mm"]
    assert {k.name: k.counters["dram_read_bytes"] for k in mm.kernels} == {
        "gemm": 10,
        "splitk_reduce": 20,
    }
    assert mm.counters == {"dram_read_bytes": 30, "dram_written_bytes": 2}
    assert by_name(records)["by_hand_kernel"].counters["dram_read_bytes"] == 30
    assert not [doubt for doubt in region.caveats if doubt.kind == "incomplete"]


def test_counters_of_other_kernels_are_nobodys(tmp_path: Path) -> None:
    region, *_ = records = told(tmp_path, PLAIN, ACCOUNTING, each(10, 20, 30))
    assert not any(k.counters for record in records for k in record.kernels)
    (doubt,) = (doubt for doubt in region.caveats if doubt.kind == "incomplete")
    assert "counters of 3 kernels cannot be assigned" in doubt.message


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("a", "b", "a", "b"), ["a", "b"]),
        (("a", "b", "b", "a"), []),  # of which step?
        (("a", "b", "a", "c"), []),
    ],
)
def test_counters_are_of_the_kernels_that_all_steps_launch(
    tmp_path: Path, names: Sequence[str], expected: Sequence[str]
) -> None:
    """What is launched first may start last; a copy is no kernel."""
    made = Trace()
    made.op("aten::mm", 0, 1)
    for i, name in enumerate(names):
        step, late = divmod(i, 2)
        at = 100 * step
        made.launch(
            name, (at + 10 * late) * US, (at + 60 - 20 * late) * US, (at + 65 - 20 * late) * US
        )
        if late:
            number = made.call("cudaMemcpyAsync", (at + 5) * US, (at + 6) * US)
            made.copy("DtoD (Device -> Device)", (at + 20) * US, (at + 30) * US, 100, number)
    timeline = read_trace(made.write(tmp_path / "t.json"))
    windows = [(0, 100 * US), (100 * US, 200 * US)]
    found = kernel_counters(timeline, windows, [{"n": 1.0}, {"n": 2.0}])
    by_count = sorted(found.items(), key=lambda one: one[1]["n"])
    assert [timeline.names[timeline.activities.name[row]] for row, _ in by_count] == expected


@pytest.mark.parametrize(("copy_s", "known"), [(1e-7, True), (5e-6, False)])
def test_an_operator_that_copies_is_not_what_its_kernels_move(copy_s: float, known: bool) -> None:
    kernels = (
        Kernel("fill", 1, {"dram_read_bytes": 8.0}, time_s=20e-6),
        Kernel("Memcpy DtoD (Device -> Device)", 1, time_s=copy_s),
    )
    assert _counters(kernels) == ({"dram_read_bytes": 8.0} if known else {})
    few = replace(kernels[1], name="Memset (Device)", count=2, time_s=4e-6)  # a semaphore or so
    assert _counters((kernels[0], few)) == {"dram_read_bytes": 8.0}


AHEAD = replace(PLAIN, ahead=9)


def test_idle_time_is_bounded_where_the_device_never_waits(tmp_path: Path) -> None:
    """The device works for 60 µs of each 100, and not before the first launch."""
    region, *_ = told(tmp_path, AHEAD, ACCOUNTING)
    assert region.program is not None
    # Of three steps two gaps of 40 µs; the next kernel was launched in time.
    assert region.program.occupied["idle_most"] == pytest.approx(40e-6)
    assert region.program.occupied["idle_between"] == pytest.approx(80e-6 / 3)
    region, *_ = told(tmp_path, PLAIN, ACCOUNTING)
    assert region.program is not None
    assert "idle_most" not in region.program.occupied


def light(folder: Path) -> Timeline:
    """Three steps as a light pass has them: gaps of 3 µs, all of it launched in time."""
    made = Trace()
    for i in range(30):
        made.launch("gemm", i * US, (50 + 10 * i) * US, (57 + 10 * i) * US)
    return read_trace(made.write(folder / "light.json"))


@pytest.mark.parametrize("apart", [False, True])
def test_what_a_light_trace_idled_is_the_steps_own_if_they_follow_each_other(
    tmp_path: Path, apart: bool
) -> None:
    made = Trace()
    for i in range(STEPS):
        at = i * 100
        made.mark("gpuperf:step", at * US, (at + 50) * US)
        made.launch("gemm", (at + 8) * US, (at + 10) * US, (at + 40) * US)
        if apart:
            made.launch("other", (at + 60) * US, (at + 62) * US, (at + 90) * US)
    timeline = read_trace(made.write(tmp_path / "t.json"))
    passed = (AHEAD, *(replace(PLAIN, name=name, steps=STEPS) for name in ("trace", "light")))
    region, *_ = region_records(
        RegionPasses(
            "r",
            "step",
            "train.py",
            EVENTS,
            Fingerprint(),
            passed,
            timeline,
            cuda=True,
            light=light(tmp_path),
        )
    )
    assert region.program is not None
    occupied = region.program.occupied
    assert occupied["idle_between"] == pytest.approx(0 if apart else 29 * 3e-6 / 3)
    # The light one idled for 87 µs in two steps, the other for 140.
    assert occupied.get("idle_most") == (None if apart else pytest.approx(29 * 3e-6 / 2))


@pytest.mark.parametrize("has_trace", [False, True])
def test_a_light_pass_without_its_trace_and_a_trace_without_its_pass_change_nothing(
    tmp_path: Path, has_trace: bool
) -> None:
    """A program may end between the two."""
    timeline = read_trace(trace(tmp_path))
    passed = (PLAIN, ACCOUNTING, replace(PLAIN, name="trace", steps=STEPS))
    neither = RegionPasses(
        "r", "step", "train.py", EVENTS, Fingerprint(), passed, timeline, cuda=True
    )
    half = replace(neither, light=light(tmp_path))
    if not has_trace:
        half = replace(neither, passed=(*passed, replace(PLAIN, name="light", steps=STEPS)))
    (region, *_), (expected, *_) = region_records(half), region_records(neither)
    assert region.program is not None and expected.program is not None
    assert region.program.waits == expected.program.waits
