"""Is a roofline on a terminal readable, whatever the terminal can do?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from golden_text import assert_golden
from synthetic import copy_run, cpu_run, crowded_run, h200_run, h200_sweep, hostile_run
from synthetic_counted import counted_run

from gpuperf.errors import UsageError
from gpuperf.roofline.terminal import terminal_roofline


@pytest.mark.parametrize("width", [80, 120])
def test_the_plot_of_a_sweep_is_the_golden_one(width: int) -> None:
    assert_golden(f"terminal_{width}.txt", terminal_roofline(h200_run(), width, 20))


@pytest.mark.parametrize("width", [60, 80, 120, 160])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for run in (h200_run(), cpu_run(), copy_run(), crowded_run(), hostile_run()):
        assert max(map(len, terminal_roofline(run, width).splitlines())) <= width


def test_the_ascii_plot_is_ascii_and_says_the_same() -> None:
    plain = terminal_roofline(h200_run(), 80, 20, ascii=True)
    assert plain.isascii()
    assert "bf16 tensor 989 TFLOP/s (data sheet)" in plain
    assert "A   torch bf16, 128 to 8192" in plain


def test_without_colour_there_is_no_escape_and_with_it_the_same_letters() -> None:
    from rich.text import Text

    plain, coloured = (terminal_roofline(h200_run(), 80, 20, color=c) for c in (False, True))
    assert "\x1b" not in plain
    assert "\x1b[" in coloured
    stripped = [line.rstrip() for line in Text.from_ansi(coloured).plain.splitlines()]
    assert stripped == plain.rstrip("\n").splitlines()


def test_doubtful_points_are_small_letters() -> None:
    assert "a" in terminal_roofline(h200_sweep((128,)), ascii=True).split("FLOP/byte")[0][40:]
    assert "small letters" not in terminal_roofline(h200_sweep((4096,)))


def test_where_levels_of_a_hierarchy_coincide_the_letter_of_dram_stays() -> None:
    text = terminal_roofline(counted_run(2.0, 2.0), view="hierarchy")
    plot, legend = text.split("FLOP/byte", 1)
    assert "B" not in plot
    assert "A" in plot
    assert "B   torch bf16, L2 bytes" in legend


@pytest.mark.parametrize("figure", [1e-300, 1e-320])
def test_figures_out_of_range_still_make_a_plot_of_the_rest(figure: float) -> None:
    run = counted_run()
    first = next(r for r in run.records if r.counters)
    odd = replace(first, counters={**first.counters, "l2_bytes": figure})
    text = terminal_roofline(replace(run, records=(odd, *run.records)), view="hierarchy")
    assert "1 out of range" in text


def test_every_series_has_a_letter_of_its_own() -> None:
    text = terminal_roofline(crowded_run(), 120, 30)
    for i in range(8):
        assert f"\n{'ABCDEFGH'[i]}   " in text


def test_a_hostile_name_sends_no_escape_to_the_terminal() -> None:
    text = terminal_roofline(hostile_run(), 100)
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_one_point_and_no_roofs_still_make_a_plot() -> None:
    run = h200_sweep((1024,))
    bare = replace(run, header=replace(run.header, peaks=None))
    assert "no ceilings are known" in terminal_roofline(bare)


def test_a_run_of_failures_has_nothing_to_draw() -> None:
    run = h200_run()
    failed = tuple(r for r in run.records if r.status != "ok")
    with pytest.raises(UsageError, match="nothing to draw") as caught:
        terminal_roofline(replace(run, records=failed))
    assert "1 oom" in caught.value.hint
