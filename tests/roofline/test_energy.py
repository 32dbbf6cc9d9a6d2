"""The energy of a call in tables and rows, and the roof that the power limit allows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from golden_text import assert_golden
from synthetic import h200_ceilings, h200_sweep

from gpuperf.model.contract import Contract
from gpuperf.model.energy import Energy, EnergyTrial
from gpuperf.model.record import Record, Run, Telemetry
from gpuperf.roofline.formats import render_run
from gpuperf.roofline.rows import rows
from gpuperf.roofline.scene import scene
from gpuperf.roofline.study import power_roofs
from gpuperf.roofline.terminal import terminal_roofline
from gpuperf.show.screen import Screen

SUSTAINED = Contract("blocked", cache="hot", regime="sustained")
CAPPED = Telemetry(power_w=700.0, power_limit_w=700.0, throttle=("power cap",))


def with_energy(record: Record, watts: float = 690.0) -> Record:
    assert record.samples is not None
    call_s, clock_hz = record.samples.median_s, record.samples.clock_hz
    trials = tuple(
        EnergyTrial(5.0, 5 * w, 5 * w / 1.01, 51, 2e-3, call_s, clock_hz, 44.0)
        for w in (watts - 1, watts, watts, watts, watts + 1)
    )
    return replace(record, contract=SUSTAINED, energy=Energy(trials, 110.0), telemetry=CAPPED)


def run() -> Run:
    """The two largest sizes under a sustained load at the power limit."""
    own = h200_sweep((4096, 8192), h200_ceilings())
    records = tuple(map(with_energy, own.records))
    return replace(own, records=records, header=replace(own.header, contract=SUSTAINED))


def test_a_row_has_the_energy_in_joules_and_flop_a_joule() -> None:
    own = run()
    record, row = own.records[1], rows(own)[1]
    assert record.samples is not None
    assert record.cost is not None
    joules = 690 * record.samples.median_s
    assert row["energy_j"] == pytest.approx(joules)
    assert row["energy_low_j"] < joules < row["energy_high_j"]
    assert row["energy_net_j"] == pytest.approx(joules * 580 / 690)
    assert row["flop_per_j"] == pytest.approx(record.cost.flop_count / joules)
    assert row["flop_per_j_net"] == pytest.approx(record.cost.flop_count / joules * 690 / 580)
    assert row["energy_per_flop_j"] == pytest.approx(joules / record.cost.flop_count)
    assert row["energy_per_byte_j"] == pytest.approx(joules / record.cost.dram_bytes)
    assert (row["power_mean_w"], row["power_idle_w"]) == (690, 110)
    assert row["energy_counter_over_power"] == pytest.approx(1.01)


def test_a_record_without_a_figure_has_empty_columns() -> None:
    own = run()
    refused = replace(own.records[0], energy=Energy(refused="no counter"))
    shown = rows(replace(own, records=(refused,)))[0]
    assert shown["energy_j"] is None
    assert shown["flop_per_j"] is None
    table = render_run(replace(own, records=(refused,)), "table", Screen(160))
    assert "net of idle" not in table


def test_the_table_shows_energy_and_how_it_was_measured() -> None:
    assert_golden("energy_160.txt", render_run(run(), "table", Screen(160)))


def test_the_power_limit_gives_a_roof_at_the_clock_of_the_load() -> None:
    own = run()
    peaks, heaviest = own.header.peaks, own.records[1]
    assert peaks is not None
    assert heaviest.samples is not None
    (roof,) = power_roofs(peaks, own.records)
    assert roof.clock_hz == heaviest.samples.clock_hz
    ceiling = peaks.ceiling(heaviest.cost.flops[0]) if heaviest.cost else None
    assert ceiling is not None
    assert ceiling.flop_per_clock_per_sm
    expected = peaks.sm_count * ceiling.flop_per_clock_per_sm * (roof.clock_hz or 0)
    assert roof.value == pytest.approx(expected)
    assert roof.figure.condition.endswith("700 W allows under " + heaviest.case.id)
    assert roof.value < ceiling.rate.value


@pytest.mark.parametrize(
    "changes",
    [
        {"contract": Contract("blocked")},
        {"telemetry": replace(CAPPED, throttle=("thermal (software)",))},
        {"telemetry": None},
        {"status": "oom"},
    ],
)
def test_other_loads_have_no_power_roof(changes: dict[str, object]) -> None:
    own = run()
    record = replace(own.records[1], **changes)  # type: ignore[arg-type]
    assert power_roofs(own.header.peaks, [record]) == ()
    assert power_roofs(None, own.records) == ()


def test_charts_draw_the_power_roof_with_its_clock() -> None:
    own = run()
    drawn = scene(own)
    (roof,) = (r for r in drawn.roofs if r.origin == "power limit")
    (start, y0), (_, y1) = drawn.ends(roof)
    assert y0 == y1 == pytest.approx(roof.value / drawn.unit[0])
    bandwidth = max(r.value for r in drawn.roofs if r.kind == "memory")
    assert start == pytest.approx(roof.value / bandwidth), "from its ridge on"
    assert drawn.clock(roof) == roof.clock_hz
    assert "power limit" in terminal_roofline(own, 120, 20)
