"""Each caveat about samples is raised where it is due, and only there."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gpuperf.measure import device
from gpuperf.measure.caveats import sample_caveats
from gpuperf.measure.timing import Timing
from gpuperf.model.contract import Cache, Contract
from gpuperf.model.record import Caveat, Check, Record, TimerFacts
from gpuperf.model.samples import Samples
from gpuperf.model.workload import Case, Point

US = 1e-6
MOST_HZ = 2e9
POINT = Point({"n": 64, "dtype": "tf32"})
BURST = Contract("blocked", budget_s=2.0, precision=0.01)
CALM = Samples((10 * US,) * 40, (1.9e9,) * 40)


def doubts(
    samples: Samples = CALM,
    contract: Contract = BURST,
    stop: str = "precision",
    timer: TimerFacts | None = None,
    check: Check | None = None,
    rounds_inputs_to: str = "",
) -> dict[str, Caveat]:
    case = Case("square", "eager", POINT)
    record = Record(
        "run", case, contract, "ok", timer=timer or TimerFacts(floor_s=2 * US), check=check
    )
    timing = Timing({"busy": samples}, "busy", stop, record.timer)  # type: ignore[arg-type]
    found = list(sample_caveats(record, timing, rounds_inputs_to, MOST_HZ))
    assert all(caveat.message and caveat.hint for caveat in found)
    return {caveat.kind: caveat for caveat in found}


def test_calm_samples_raise_no_doubt() -> None:
    assert doubts() == {}


@pytest.mark.parametrize(
    ("clock_hz", "slowed"), [(1.81e9, False), (1.79e9, True), (1.01e9, True), (None, False)]
)
def test_a_clock_under_nine_tenths_of_the_highest_is_slowed(
    clock_hz: float | None, slowed: bool
) -> None:
    assert ("slowed" in doubts(replace(CALM, sm_clock_hz=(clock_hz,) * 40))) == slowed


@pytest.mark.parametrize(
    ("cache", "aside", "said"),
    [("cold", 24 << 20, True), ("cold", 11 << 20, False), ("hot", 24 << 20, False)],
)
def test_lines_that_no_flush_evicts_are_a_caveat_where_it_is_cold(
    monkeypatch: pytest.MonkeyPatch, cache: Cache, aside: int, said: bool
) -> None:
    monkeypatch.setattr(device, "l2_set_aside", lambda: aside)
    facts = device.open_device("cpu").facts
    opened = device.Device(torch.device("cuda", 0), facts, 11 << 20)
    found = list(opened.cache_caveats(replace(BURST, cache=cache)))
    assert [caveat.kind for caveat in found] == ["l2-set-aside"] * said
    assert all("24 MiB" in caveat.message and caveat.hint for caveat in found)
    assert not list(device.open_device("cpu").cache_caveats(replace(BURST, cache=cache)))


@pytest.mark.parametrize(("size", "few"), [(5, True), (6, False)])
def test_five_samples_are_few_and_six_are_not(size: int, few: bool) -> None:
    samples = Samples(tuple((10 + i % 2) * US for i in range(size)))
    found = doubts(samples, stop="budget")
    assert ("few-samples" in found, "imprecise" in found) == (few, not few)


def test_samples_that_are_known_well_enough_are_no_doubt_though_the_budget_ended() -> None:
    assert doubts(stop="budget") == {}
    assert doubts(stop="samples") == {}


@pytest.mark.parametrize(("median_s", "doubted"), [(19.9 * US, True), (20.1 * US, False)])
def test_event_pairs_are_uncalibrated_under_twenty_microseconds(
    median_s: float, doubted: bool
) -> None:
    samples = Samples((median_s,) * 40)
    assert ("uncalibrated" in doubts(samples, replace(BURST, timer="events"))) == doubted
    assert "uncalibrated" not in doubts(samples)


@pytest.mark.parametrize(("uncertainty_s", "near"), [(0.19 * US, False), (0.21 * US, True)])
def test_a_floor_that_is_uncertain_by_two_percent_is_near(uncertainty_s: float, near: bool) -> None:
    timer = TimerFacts(floor_s=2 * US, floor_uncertainty_s=uncertainty_s)
    assert ("near-floor" in doubts(timer=timer)) == near


@pytest.mark.parametrize(("spread", "imprecise"), [(0.0, False), (0.2, True)])
def test_a_sustained_load_that_swings_is_imprecise(spread: float, imprecise: bool) -> None:
    samples = Samples(tuple(10 * US * (1 + spread * (i % 3 - 1)) for i in range(12)))
    contract = replace(BURST, regime="sustained")
    assert ("imprecise" in doubts(samples, contract, stop="budget")) == imprecise


@pytest.mark.parametrize(("error", "doubted"), [(1e-4, True), (2e-3, False)])
def test_a_result_too_exact_for_its_rounded_inputs_took_another_path(
    error: float, doubted: bool
) -> None:
    """tf32 rounds inputs by 2**-11; six such roundings are part of the tolerance of 0.004."""
    check = Check(error=error, tolerance=0.004, rows=64)
    assert ("dtype-path" in doubts(check=check, rounds_inputs_to="tf32")) == doubted
    assert "dtype-path" not in doubts(check=check)


@pytest.mark.parametrize(
    ("apart", "size", "doubted"),
    [(0.05, 40, True), (0.021, 40, True), (0.019, 40, False), (0.05, 19, False)],
)
def test_samples_that_alternate_between_two_times_are_a_doubt(
    apart: float, size: int, doubted: bool
) -> None:
    values = tuple(10 * US * (1 + apart * (i % 2 - 0.5)) for i in range(size))
    found = doubts(Samples(values))
    assert ("alternating" in found) == doubted


def test_two_times_in_no_order_do_not_alternate() -> None:
    order = [0, 1, 1, 0, 0, 0, 1, 0, 1, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0]
    samples = Samples(tuple(10 * US * (1 + 0.05 * high) for high in order * 2))
    assert "alternating" not in doubts(samples)
