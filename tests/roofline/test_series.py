"""Are figures that no device has kept out of charts, and told of?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_counted import counted_run

from gpuperf.errors import UsageError
from gpuperf.model.peaks import Figure
from gpuperf.model.record import Record, Run
from gpuperf.model.samples import Samples
from gpuperf.roofline.chart import draw_roofline
from gpuperf.roofline.scene import scene
from gpuperf.show.view import View


def odd_l2(record: Record, figure: float) -> Record:
    return replace(record, counters={**record.counters, "l2_bytes": figure})


def odd_time(record: Record, figure: float) -> Record:
    return replace(record, times={"window": Samples((figure,))}, primary="window")


@pytest.mark.parametrize("figure", [1e-300, 1e-320])
@pytest.mark.parametrize(
    ("view", "spoil"), [("compulsory", odd_time), ("both", odd_time), ("hierarchy", odd_l2)]
)
def test_what_is_out_of_range_is_counted_and_not_drawn(
    view: View, spoil: Callable[[Record, float], Record], figure: float, tmp_path: Path
) -> None:
    run = counted_run()
    odd = spoil(next(r for r in run.records if r.counters), figure)
    strange = Run(run.header, (odd, *run.records))
    assert len(scene(strange, view).dots) == len(scene(run, view).dots)
    assert "1 out of range" in scene(strange, view).missing
    draw_roofline(strange, tmp_path / "a.svg", view)
    with pytest.raises(UsageError, match="nothing to draw"):
        scene(Run(run.header, (odd,)), view)


@pytest.mark.parametrize("value", [0.0, 1e29])
def test_a_roof_out_of_range_is_not_drawn(value: float) -> None:
    run = counted_run()
    ceilings = run.header.ceilings
    assert ceilings is not None
    odd = {**ceilings.figures, "l2_bandwidth": Figure(value, "byte/s", "measured", "x")}
    header = replace(run.header, ceilings=replace(ceilings, figures=odd))
    roofs = scene(Run(header, run.records), "hierarchy").roofs
    assert "L2" not in [roof.label for roof in roofs]
