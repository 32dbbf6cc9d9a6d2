"""The meter of energy on a card whose power is known, in a fraction of its usual time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from fake_bench import CONTRACT, INCREMENT, make_bench, product
from fake_nvml import IDLE_W, LOAD_W, FakeNvml
from gpuperf.kernels.matmul import MATMUL

from gpuperf.measure import energy as module
from gpuperf.measure.card import Card
from gpuperf.measure.energy import EnergyMeter, Pace, energy_caveats, open_energy_meter
from gpuperf.measure.telemetry import Meter, NvmlMeter
from gpuperf.model.energy import Energy, EnergyTrial, call_energy
from gpuperf.model.record import Record
from gpuperf.model.workload import Case

CALL_S = 1e-3
QUICK = Pace(rest_s=0.01, warm_s=0.02, trial_s=0.25, most_s=2.0, cool_s=0.05)


def load(nvml: FakeNvml, call: Any, call_s: float) -> Iterator[tuple[float, float | None]]:
    """Draw the power of a load until it is closed, ten calls in a batch."""
    nvml.load(LOAD_W)
    try:
        while True:
            time.sleep(10 * CALL_S)
            yield CALL_S, 1.5e9
    finally:
        nvml.load(IDLE_W)


def meter(nvml: FakeNvml) -> EnergyMeter:
    return EnergyMeter(Card(nvml, "card", lambda: nvml.others), partial(load, nvml), QUICK)


def record() -> Record:
    """A record whose call takes a millisecond."""
    case = Case("matmul", "torch", product(8, 8, 8, "fp32"))
    measured: Record = make_bench().measure(MATMUL, case, CONTRACT, "r", seed=5)
    assert measured.samples is not None
    return measured


def settled() -> None:
    """Nothing failed, so that nothing waits for the device."""
    pytest.fail("the device was waited for")


def kinds(measured: Record) -> list[str]:
    return [caveat.kind for caveat in measured.caveats]


def test_the_energy_of_a_load_of_known_power_is_known() -> None:
    measured = meter(FakeNvml()).measured(record(), lambda: None, settled)
    assert measured.energy is not None
    energy = call_energy(measured.energy)
    assert energy is not None, measured.energy.refused
    assert energy.gross_j == pytest.approx(LOAD_W * CALL_S, rel=0.03)
    assert energy.net_j == pytest.approx((LOAD_W - IDLE_W) * CALL_S, rel=0.04)
    assert energy.counter_over_power == pytest.approx(1, abs=0.03)
    first = measured.energy.trials[0]
    assert (first.clock_hz, first.start_c, len(measured.energy.trials)) == (1.5e9, 40.0, 5)
    assert "no-energy" not in kinds(measured)


@pytest.mark.parametrize(
    ("nvml", "reason"),
    [
        (FakeNvml(counts=False), "the card has no counter of its energy"),
        (FakeNvml(mig=True), "MIG divides"),
        (FakeNvml(others=2), "other processes had a context on the GPU: 2"),
    ],
)
def test_a_card_that_cannot_be_read_is_refused_with_the_reason(nvml: FakeNvml, reason: str) -> None:
    before = time.perf_counter()
    measured = meter(nvml).measured(record(), lambda: None, settled)
    assert time.perf_counter() - before < 5, "nothing was run for it"
    assert measured.energy is not None
    assert reason in measured.energy.refused
    assert call_energy(measured.energy) is None
    caveat = next(c for c in measured.caveats if c.kind == "no-energy")
    assert reason in caveat.message


def test_a_counter_that_moves_too_rarely_is_refused_and_its_trials_are_kept() -> None:
    own = replace(meter(FakeNvml(tick_s=0.05)), pace=replace(QUICK, most_s=0.4))
    measured = own.measured(record(), lambda: None, settled)
    assert measured.energy is not None
    assert "times in a trial, and 50 are needed" in measured.energy.refused
    assert len(measured.energy.trials) == 5
    assert "no-energy" in kinds(measured)


def test_a_call_that_fails_under_the_load_keeps_its_times() -> None:
    waited: list[str] = []

    def failing(call: Any, call_s: float) -> Iterator[tuple[float, float | None]]:
        yield CALL_S, None
        raise RuntimeError("out of workspace\nmore of it")

    own = replace(meter(FakeNvml()), load=failing)
    before = record()
    measured = own.measured(before, lambda: None, lambda: waited.append("once"))
    assert (measured.status, measured.times) == ("ok", before.times)
    assert waited == ["once"]
    caveat = next(c for c in measured.caveats if c.kind == "no-energy")
    assert "the call failed under the load: out of workspace" in caveat.message


def test_without_nvml_the_reason_is_that() -> None:
    opened = open_energy_meter(Meter(), None)  # type: ignore[arg-type]
    measured = opened.measured(record(), lambda: None, settled)
    assert measured.energy == Energy(refused="NVML does not read this GPU")


def test_the_meter_of_a_gpu_gives_its_card() -> None:
    nvml = FakeNvml(instant=False)
    card = NvmlMeter(nvml, "card").card()
    assert card.power_w() == IDLE_W
    assert card.temperature_c() == 40.0
    assert card.others() is None, "this NVML lists no processes"


def test_counter_and_power_that_disagree_get_a_caveat_with_both() -> None:
    trial = EnergyTrial(5.0, 5.4 * 600, 5.0 * 600, 50, 0.0, 1e-3)
    (caveat,) = energy_caveats(Energy((trial,) * 5))
    assert caveat.kind == "energy-disagrees"
    assert "1.080 times the integral of the power" in caveat.message
    near = replace(trial, counter_j=5.1 * 600)
    assert not list(energy_caveats(Energy((near,) * 5)))


def test_a_warm_card_rests_until_it_is_as_cool_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml(celsius=50.0)
    rested: list[float] = []

    def sleep(seconds: float) -> None:
        rested.append(seconds)
        nvml.celsius -= 3

    monkeypatch.setattr(module.time, "sleep", sleep)
    own = replace(meter(nvml), pace=replace(QUICK, cool_s=100.0))
    own._cool(40.0)
    assert len(rested) == 3, "to 41 °C, a kelvin above"
    own._cool(40.0)
    assert len(rested) == 3


def test_a_bench_measures_the_energy_of_the_call_that_it_timed() -> None:
    asked: list[Any] = []

    class Asked(EnergyMeter):
        def measured(self, record: Record, call: Any, settle: Any) -> Record:
            asked.append(record.samples)
            return replace(record, energy=Energy(refused="asked"))

    bench = make_bench()
    bench.energy = Asked(None, lambda call, call_s: ())
    case = Case("increment", "torch", {"n": 8, "dtype": "fp32"})
    measured = bench.measure(INCREMENT, case, CONTRACT, "r", seed=5)
    assert measured.status == "ok", measured.reason
    assert len(asked) == 1
    assert measured.energy == Energy(refused="asked")
