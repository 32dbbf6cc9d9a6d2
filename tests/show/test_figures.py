"""Each kind of measured run has charts that are small and hold their words inside their frames."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from measured import RUN_FILES, name_of

from gpuperf.errors import UsageError
from gpuperf.explain.chart import draw_explained
from gpuperf.explain.table import budgets_of
from gpuperf.run.store import read_run
from gpuperf.show import figure as show
from gpuperf.verb.printing import draw
from gpuperf.waves.heatmap import draw_heatmap

MOST = 300_000  # bytes of an SVG
# Runs that differ in one size only, as h200-compare-softmax-4k and -16k, have the same charts but
# for the figures: the last of each family stands for it.
FAMILIES = {re.sub(r"-\d+[km]$", "", name_of(path)): path for path in RUN_FILES}


def charts(path: Path) -> Iterator[Callable[[list[Path]], Any]]:
    """Yield what draws each chart of the run in *path*."""
    run = read_run(path)
    yield lambda files: draw(run, files)
    if run.header.baseline:
        yield lambda files: draw(run, files, "compulsory")
    if "-plane." in path.name:
        yield lambda files: draw_heatmap(run, files)
    if "explain" in path.name:
        yield lambda files: draw_explained(run, budgets_of(run, "")[0], files)


@pytest.mark.parametrize("path", FAMILIES.values(), ids=name_of)
def test_each_kind_of_measured_run_has_small_charts_with_nothing_cut(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Any] = []
    save = show.save_figure

    def keep(drawn: Any, target: Path, title: str) -> None:
        kept.append(drawn)
        save(drawn, target, title)

    monkeypatch.setattr(show, "save_figure", keep)
    for draws in charts(path):
        try:
            draws([tmp_path / "chart.svg"])
        except UsageError as error:
            assert path.name.startswith("h200-noise"), error
            return
        assert (tmp_path / "chart.svg").stat().st_size < MOST
        box, (width, height) = kept[-1].get_tightbbox(), kept[-1].get_size_inches()
        assert (box.x0 >= 0, box.y0 >= 0, box.x1 <= width, box.y1 <= height) == (True,) * 4


def test_a_dense_chart_becomes_an_image_inside_its_svg(tmp_path: Path) -> None:
    with show.figure(tmp_path / "dense.svg", "dense") as frame:
        (axes,) = frame.stack(3.0)
        axes.plot([i * 7919 % 1000 for i in range(6000)], marker="o", linestyle="none")
        axes.set_xlabel("index")
        frame.fit()
    text = (tmp_path / "dense.svg").read_text(encoding="utf-8")
    assert len(text) < MOST
    assert "<image" in text
    assert ">index<" in text


def test_a_long_title_and_many_entries_stay_inside() -> None:
    with show.figure([], "word " * 60, ["line " * 90], ["note " * 150]) as frame:
        (axes,) = frame.stack(3.0)
        for i in range(30):
            axes.plot([0, 1], [i, i], label=f"a series with a long name, number {i}")
        frame.legend(axes.get_legend_handles_labels()[0])
        frame.fit()
        box, (width, height) = frame.figure.get_tightbbox(), frame.figure.get_size_inches()
        below = frame.figure.legends[0].get_window_extent().y0
        assert (box.x0 >= 0, box.y0 >= 0, box.x1 <= width, box.y1 <= height) == (True,) * 4
        assert axes.get_window_extent().y1 < below
