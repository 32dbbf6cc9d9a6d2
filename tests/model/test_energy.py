"""Energies of synthetic traces, whose truth is known."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from gpuperf.model.codec import decode, encode
from gpuperf.model.energy import (
    Edge,
    Energy,
    EnergyTrial,
    between_edges,
    call_energy,
    integral,
    refusal,
)

TICK_S, WATTS = 0.1, 650.0


def edges(watts: float = WATTS, seconds: float = 6.0, late_s: float = 0.03) -> list[Edge]:
    """The steps of a counter that moves every `TICK_S` at a constant power."""
    count = int(seconds / TICK_S)
    return [Edge(late_s + i * TICK_S, watts * i * TICK_S, 1e-3) for i in range(count)]


def powers(watts: float = WATTS, seconds: float = 6.0) -> list[tuple[float, float]]:
    return [(0.02 * i, watts) for i in range(int(seconds / 0.02))]


def trial(watts: float = WATTS, call_s: float = 2e-3, **changes: object) -> EnergyTrial:
    own = EnergyTrial(5.0, 5.0 * watts, 5.0 * watts, 50, 1e-3, call_s, 1.4e9, 45.0)
    return replace(own, **changes)  # type: ignore[arg-type]


def test_a_stretch_lasts_from_an_edge_to_an_edge() -> None:
    """From 1.0 s to 5.0 s the counter moves at 1.03 … 4.93 s: 39 steps, each of 65 J."""
    stretch = between_edges(edges(), powers(), 1.0, 5.0)
    assert stretch is not None
    assert stretch.ticks == 39
    assert stretch.seconds == pytest.approx(3.9)
    assert stretch.counter_j == pytest.approx(39 * 65)
    assert stretch.integrated_j == pytest.approx(39 * 65)
    assert stretch.power_w == pytest.approx(WATTS)
    assert stretch.edge_s == pytest.approx(math.sqrt(2) * 1e-3)


def test_a_counter_that_hardly_moves_or_begins_anew_has_no_stretch() -> None:
    assert between_edges(edges(), powers(), 1.0, 1.1) is None
    again = [*edges(seconds=2.0), *(Edge(e.time_s + 2.0, e.joules) for e in edges(seconds=2.0))]
    assert between_edges(again, powers(), 0.0, 4.0) is None


def test_power_is_integrated_along_lines_between_its_readings() -> None:
    """It rises from 0 to 100 W in 10 s: the integral of 10·t from 2 to 8 is 300 J."""
    ramp = [(float(s), 10.0 * s) for s in range(11)]
    assert integral(ramp, 2.0, 8.0) == pytest.approx(300)
    assert integral(ramp, 2.5, 2.6) is None
    assert integral(ramp, 2.5, 3.5) == pytest.approx(30)
    assert integral([(1.0, 50.0)], 0.0, 2.0) == pytest.approx(100)


def test_the_energy_of_a_call_is_power_times_its_time() -> None:
    energy = call_energy(Energy((trial(),) * 5, idle_w=100.0))
    assert energy is not None
    assert energy.gross_j == pytest.approx(1.3)
    assert energy.net_j == pytest.approx(1.1)
    assert energy.power_w == pytest.approx(650)
    assert energy.counter_over_power == pytest.approx(1)
    assert energy.half_j == pytest.approx(2 * 1.3 * (1e-3 / 5.0) / math.sqrt(5))


def test_the_interval_is_that_of_student_over_trials() -> None:
    """Five trials with a standard deviation of 10 W: 2.776 · 10 / √5 W, times 2 ms."""
    spread = [trial(WATTS + 10 * x, edge_s=0.0) for x in (-math.sqrt(2), 0, 0, 0, math.sqrt(2))]
    energy = call_energy(Energy(tuple(spread)))
    assert energy is not None
    assert energy.half_j == pytest.approx(2.776 * 10 / math.sqrt(5) * 2e-3, rel=1e-3)
    assert energy.net_j is None


@pytest.mark.parametrize(
    ("energy", "reason"),
    [
        (Energy((trial(),) * 4), "4 of 5 trials had edges of the energy counter"),
        (Energy((*(trial(),) * 4, trial(ticks=49))), "moved 49 times in a trial"),
        (Energy((trial(500), *(trial(),) * 4)), "is known to ± "),
        (Energy((trial(),) * 5, refused="the card has no counter"), "the card has no counter"),
    ],
)
def test_what_gives_no_figure_says_why(energy: Energy, reason: str) -> None:
    assert reason in refusal(energy)
    assert call_energy(energy) is None
    assert call_energy(None) is None


def test_without_readings_of_the_power_nothing_is_compared() -> None:
    energy = call_energy(Energy((*(trial(),) * 4, trial(integrated_j=None))))
    assert energy is not None
    assert energy.counter_over_power is None


def test_an_energy_survives_its_json() -> None:
    energy = Energy((trial(),) * 5, 80.0)
    assert decode(encode(energy), Energy) == energy


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("seconds", "0.0", "lasts less than 1e-06 s"),
        ("seconds", "1e-300", "lasts less than 1e-06 s"),
        ("seconds", "1e308", "impossibly large"),
        ("call_s", "1e308", "impossibly large"),
        ("call_s", "-1e308", "impossibly large"),
        ("counter_j", "1e308", "impossibly large"),
        ("integrated_j", "1e308", "impossibly large"),
        ("idle_w", "1e308", "idle card is impossibly large"),
    ],
)
def test_an_energy_beyond_physics_is_refused(field: str, value: str, reason: str) -> None:
    """Each would end the mean over trials in an overflow."""
    text = encode(Energy((trial(),) * 5, 80.0)).decode()
    hostile = re.sub(rf'"{field}":[^,}}]*', f'"{field}":{value}', text)
    with pytest.raises(ValueError, match=reason):
        decode(hostile, Energy)
