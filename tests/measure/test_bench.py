"""A case is measured as its contract says, and its record says how."""

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import pytest
import torch
from fake_bench import CONTRACT, CPU, FACTS, Build, FakeTimer, Inputs, make_bench, measure
from gpuperf.kernels.stream import COPY

from gpuperf.measure.bench import Bench
from gpuperf.measure.device import Device
from gpuperf.measure.inputs import bind_make
from gpuperf.measure.stopwatch import Stopwatch
from gpuperf.measure.telemetry import Meter
from gpuperf.measure.timers.activity import Trace
from gpuperf.measure.timers.timer import Call, CannotBlock
from gpuperf.measure.timers.window import Reading
from gpuperf.measure.verify import SEED_VARIABLE
from gpuperf.model.contract import Cache, Data, Fingerprint
from gpuperf.model.record import Kernel, Record, TimerFacts
from gpuperf.model.samples import Samples
from gpuperf.model.workload import Case, Point


@pytest.mark.parametrize("data", get_args(Data))
def test_what_is_checked_and_timed_is_the_data_of_the_contract(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SEED_VARIABLE, "6")
    seen: list[torch.Tensor] = []

    def build(inputs: Inputs, point: Point, options: object) -> Callable[[], torch.Tensor]:
        def call() -> torch.Tensor:
            seen.append(inputs["x"].clone())
            return inputs["x"].clone()

        return call

    contract = replace(CONTRACT, data=data)
    record = measure(COPY, build, contract=contract, n=1000, dtype="fp32")
    assert (record.status, record.contract.data) == ("ok", data)
    assert record.check is not None
    assert record.check.seed == 6
    assert torch.equal(seen[0], bind_make(CPU, 5, data)((1000,), "fp32"))
    # Zeros are timed, and never checked: they would hide whatever is wrong.
    checked = bind_make(CPU, 6, "randn" if data == "zeros" else data)((1000,), "fp32")
    assert torch.equal(seen[1], checked)
    timed = torch.zeros(1000) if data == "zeros" else checked
    assert all(torch.equal(x, timed) for x in seen[2:-2])
    assert not any(torch.equal(x, timed) for x in seen[-2:])  # the check of what was timed


def test_a_call_that_starts_slowly_is_warmed_up_and_says_from_when_on_it_was_fast() -> None:
    def build(inputs: Inputs, point: Point, options: object) -> Callable[[], torch.Tensor]:
        calls = itertools.count()

        def call() -> torch.Tensor:
            time.sleep(0.05 if next(calls) == 0 else 0.002)
            return inputs["x"].clone()

        return call

    record = measure(COPY, build, n=8, dtype="fp32")
    assert record.first_call_s is not None
    assert record.first_call_s >= 0.05
    assert record.calls_until_steady is not None
    assert record.calls_until_steady >= 2
    assert record.capture_s is None


def pointers(seen: list[int]) -> Build:
    """A copy that notes which input each call reads."""

    def build(inputs: Inputs, point: Point, options: object) -> Callable[[], torch.Tensor]:
        def call() -> torch.Tensor:
            seen.append(inputs["x"].data_ptr())
            return inputs["x"].clone()

        return call

    return build


@pytest.mark.parametrize(("l2_bytes", "copies"), [(1000, 5), (1, 2), (None, 2), (10**6, 64)])
def test_rotating_calls_go_over_to_other_copies_of_several_times_the_cache(
    l2_bytes: int | None, copies: int
) -> None:
    """800 bytes a copy: 1 + 3·1000/800 of them, two at least and 64 at most."""
    seen: list[int] = []
    contract = replace(CONTRACT, cache="rotate", min_samples=2 * copies, precision=1.0)
    record = measure(
        COPY,
        pointers(seen),
        contract=contract,
        facts=replace(FACTS, l2_bytes=l2_bytes),
        n=100,
        dtype="fp32",
    )
    assert record.status == "ok"
    assert len(set(seen)) == copies
    last = seen[-2 * copies :]
    assert last[:copies] == last[copies:]
    assert len(set(last)) == copies


def test_the_copies_hold_other_numbers() -> None:
    seen: list[float] = []

    def build(inputs: Inputs, point: Point, options: object) -> Callable[[], torch.Tensor]:
        def call() -> torch.Tensor:
            seen.append(inputs["x"][0].item())
            return inputs["x"].clone()

        return call

    contract = replace(CONTRACT, cache="rotate", min_samples=10)
    facts = replace(FACTS, l2_bytes=1000)
    measure(COPY, build, contract=contract, facts=facts, n=100, dtype="fp32")
    assert len(set(seen[-5:])) >= 4  # the first was filled anew for the check, like the second


@pytest.mark.parametrize("cache", ["cold", "cold-dirty", "hot"])
def test_without_rotating_every_call_reads_the_same(cache: Cache) -> None:
    seen: list[int] = []
    measure(COPY, pointers(seen), contract=replace(CONTRACT, cache=cache), n=100, dtype="fp32")
    assert len(set(seen)) == 1


@pytest.mark.parametrize(("l2_bytes", "fits"), [(800, True), (799, False), (None, False)])
def test_the_hot_figure_is_of_what_fits_the_cache_with_its_output(
    l2_bytes: int | None, fits: bool
) -> None:
    record = measure(
        COPY,
        None,
        FakeTimer("blocked"),
        replace(CONTRACT, timer="blocked"),
        replace(FACTS, l2_bytes=l2_bytes),
        n=100,
        dtype="fp32",
    )
    assert record.status == "ok"
    assert ("hot" in record.times) == fits
    assert record.primary == "window"


def stopped(watch: Stopwatch) -> Record:
    """The record of a copy that *watch* does not want to time."""
    bench = Bench(Device(CPU, FACTS), watch, Meter(), Fingerprint())
    case = Case("copy", "torch", {"n": 100, "dtype": "fp32"})
    record = bench.measure(COPY, case, replace(CONTRACT, timer="blocked"), "r", 0)
    assert record.times == {}
    assert record.reason
    assert record.hint
    return record


def test_why_there_is_no_time_is_the_cases_status() -> None:
    nothing = Trace((0.0,) * 3, (0.0,) * 3, (Reading(2e-6, None, None, 0.001),) * 3, (), 0, 0.0)
    timer = FakeTimer("blocked")
    assert stopped(Stopwatch(timer, unfinished_s=lambda call, call_s: 0.5)).status == "side-stream"
    assert stopped(Stopwatch(timer, lambda *asked: nothing)).status == "host-only"
    assert timer.calls == 0


def test_a_call_that_cannot_be_blocked_says_which_timer_can() -> None:
    class Refusing(FakeTimer):
        def admit(self, call: Call) -> None:
            raise CannotBlock("the call waits for the device")

    record = stopped(Stopwatch(Refusing("blocked")))
    assert (record.status, record.reason) == ("cannot-block", "the call waits for the device")
    assert "--timer events" in record.hint


def test_the_timers_facts_and_the_doubts_about_the_time_are_in_the_record() -> None:
    facts = TimerFacts(floor_s=2e-6, floor_uncertainty_s=1e-8, empty_call_s=1e-6, clock_hz=1.98e9)
    record = measure(
        COPY,
        None,
        FakeTimer("blocked", facts),
        replace(CONTRACT, timer="blocked"),
        n=100,
        dtype="fp32",
    )
    assert record.timer == facts
    assert "uncalibrated" in {caveat.kind for caveat in record.caveats}


def test_a_recorded_kernel_is_in_the_record_with_its_own_facts() -> None:
    """From its time nothing was subtracted."""
    facts = TimerFacts(floor_s=2e-6, floor_uncertainty_s=1e-8, empty_call_s=1e-6, clock_hz=1.98e9)
    reading = Reading(5e-6, 1.9e9, 1.98e9, 1e-6)
    kernel = Trace((3e-6,) * 3, (3e-6,) * 3, (reading,) * 3, (Kernel("copy"),), 0, 0.0)
    watch = Stopwatch(FakeTimer("blocked", facts), lambda *asked: kernel)
    bench = Bench(Device(CPU, FACTS), watch, Meter(), Fingerprint())
    case = Case("copy", "torch", {"n": 100, "dtype": "fp32"})
    record = bench.measure(COPY, case, replace(CONTRACT, timer="blocked"), "r", 0)
    assert (record.status, record.primary, record.stop) == ("ok", "busy", "precision")
    assert record.kernels == (Kernel("copy"),)
    assert record.timer == replace(facts, floor_s=0.0, floor_uncertainty_s=0.0)
    assert record.samples is not None
    assert record.samples.values_s == (3e-6,) * 3
    assert record.samples.clock_hz == 1.9e9


@pytest.mark.parametrize(("short", "status"), [(0, "ok"), (1, "oom")])
def test_a_case_needs_room_for_its_result_and_twice_its_inputs(
    short: int, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check draws the inputs once more. A copy reads 4,000 bytes here and writes as many."""
    monkeypatch.setattr(Device, "free_bytes", lambda _: 3 * 4000 - short)
    record = measure(COPY, n=1000, dtype="fp32")
    assert record.status == status, record.reason


@pytest.mark.parametrize("brief", [False, True])
def test_a_brief_measurement_has_the_time_of_the_contract_alone(brief: bool) -> None:
    def wall(call: object, call_s: float) -> Samples:
        return Samples((2e-3,) * 7)

    bench = make_bench(FakeTimer(name="events"), replace(FACTS, l2_bytes=1 << 20))
    bench = replace(bench, stopwatch=replace(bench.stopwatch, wall=wall), brief=brief)
    contract = replace(CONTRACT, timer="events", cache="cold")
    case = Case("copy", "torch", {"n": 1000, "dtype": "fp32"})
    record = bench.measure(COPY, case, contract, "r", seed=5)
    assert record.status == "ok"
    assert record.times.keys() == ({"window"} if brief else {"window", "hot", "wall"})
