"""A roofline chart has no overlap, cuts nothing off, and is the same file each time."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path

import matplotlib
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import (
    copy_run,
    cpu_run,
    crowded_run,
    elementwise_run,
    h200_run,
    h200_sweep,
    hostile_run,
)
from synthetic_counted import counted_run

from gpuperf.errors import UsageError
from gpuperf.model.record import Run
from gpuperf.roofline.canvas import Canvas
from gpuperf.roofline.chart import draw_roofline
from gpuperf.roofline.footer import footer
from gpuperf.roofline.labels import Box, Place, Surface, around, overlap
from gpuperf.roofline.scene import scene
from gpuperf.run.ncu import DOUBT
from gpuperf.show.figure import DPI, INK, figure, plain_number, rc_parameters, tick_values
from gpuperf.show.view import View


def roofless_run() -> Run:
    run = h200_sweep()
    return replace(run, header=replace(run.header, peaks=None, peaks_reason="no file"))


def one_point_run() -> Run:
    return h200_sweep((4096,))


RUNS: list[Callable[[], Run]] = [
    h200_run,
    h200_sweep,
    cpu_run,
    copy_run,
    crowded_run,
    elementwise_run,
    hostile_run,
    roofless_run,
    one_point_run,
]
every_run = pytest.mark.parametrize("make", RUNS, ids=lambda make: make.__name__)


def drawn(run: Run, view: View = "compulsory") -> Canvas:
    shown = scene(run, view)
    with figure([], shown.title, [shown.subtitle], footer(shown, run)) as frame:
        canvas = Canvas(shown, frame)
        canvas.draw()
    return canvas


@cache
def drawn_once(make: Callable[[], Run]) -> Canvas:
    """Draw a run for all tests of its chart, through matplotlib's drawing code but for pixels."""
    canvas = drawn(make())
    with matplotlib.rc_context(rc_parameters()):
        canvas.figure.draw_without_rendering()
    return canvas


def shapes(canvas: Canvas) -> list[Box]:
    """The text boxes as matplotlib measures them, unrotated and then turned."""
    found = []
    for text in canvas.texts:
        angle = text.get_rotation()
        text.set_rotation(0)
        extent = text.get_window_extent(canvas.renderer)
        text.set_rotation(angle)
        x, y = text.get_transform().transform(text.get_position())
        found.append(Box(x, y, extent.width, extent.height, math.radians(angle)))
    return found


@every_run
def test_no_label_overlaps_another(make: Callable[[], Run]) -> None:
    canvas = drawn_once(make)
    assert canvas.texts
    for (a, s), (b, t) in combinations(zip(shapes(canvas), canvas.texts, strict=True), 2):
        assert not overlap(a.corners, b.corners), (s.get_text(), t.get_text())


@every_run
def test_no_label_leaves_the_axes(make: Callable[[], Run]) -> None:
    canvas = drawn_once(make)
    frame = canvas.axes.get_window_extent(canvas.renderer)
    for shape in shapes(canvas):
        for x, y in shape.corners:
            assert frame.x0 <= x <= frame.x1
            assert frame.y0 <= y <= frame.y1


@every_run
def test_every_word_is_inside_the_figure(make: Callable[[], Run]) -> None:
    canvas = drawn_once(make)
    extent = canvas.figure.get_tightbbox(canvas.renderer)
    width, height = canvas.figure.get_size_inches()
    assert extent.x0 >= 0
    assert extent.y0 >= 0
    assert extent.x1 <= width
    assert extent.y1 <= height


@every_run
def test_every_point_is_inside_the_axes(make: Callable[[], Run]) -> None:
    shown = scene(make())
    (x0, x1), (y0, y1) = shown.limits()
    for dot in shown.dots:
        assert x0 < dot.x < x1
        assert y0 < dot.y / shown.unit[0] < y1


@every_run
def test_every_roof_is_named(make: Callable[[], Run]) -> None:
    canvas = drawn_once(make)
    said = " ".join(text.get_text() for text in canvas.texts)
    for roof in canvas.scene.roofs:
        assert f"{roof.label} " in said
        assert f"({roof.origin}" in said


def test_the_sizes_of_a_sweep_are_all_labelled() -> None:
    texts = {text.get_text() for text in drawn_once(h200_sweep).texts}
    assert {"128", "256", "512", "1024", "2048", "4096", "8192"} <= texts
    assert "bf16 tensor 989 TFLOP/s (data sheet, at 1830 MHz)" in texts
    assert "DRAM 4.80 TB/s (data sheet)" in texts
    assert "ridge 206 FLOP/byte" in texts


def test_a_label_of_a_point_covers_no_point() -> None:
    canvas = drawn_once(h200_run)
    for shape in shapes(canvas):
        assert not any(overlap(shape.corners, mark) for mark in canvas.surface.marks)


def test_the_title_asks_the_question_and_the_footer_names_the_sources() -> None:
    texts = [text.get_text() for text in drawn_once(h200_run).figure.texts]
    assert "matmul on NVIDIA H200: bf16, 128 to 8192" in texts
    assert "blocked timer, cold cache, burst (10 ms idle before each sample), randn data" in texts
    foot = " ".join(texts)
    assert "NVIDIA H200 data sheet, 2024" in foot
    assert "run 2026-11-03T101500-7f3a · gpuperf 0.1.0" in foot
    assert "not drawn: 1 oom, 1 wrong, 1 skipped, 1 crashed" in foot


def test_doubtful_points_are_hollow_and_the_legend_says_why() -> None:
    canvas = drawn_once(h200_run)
    faces = {
        line.get_markerfacecolor()
        for line in canvas.axes.lines
        if line.get_marker() == "o" and line.get_linestyle() == "None"
    }
    assert "white" in faces
    assert len(faces) == 2
    legend = [text.get_text() for text in canvas.figure.legends[0].get_texts()]
    assert legend[-1] == "hollow: latency-bound"


def test_series_differ_in_marker_as_well_as_in_colour() -> None:
    canvas = drawn_once(crowded_run)
    looks = [(h.get_marker(), h.get_color()) for h in canvas.figure.legends[0].legend_handles][:8]
    assert len({marker for marker, _ in looks}) == 8
    assert len(set(looks)) == 8


def test_an_operation_without_flops_is_drawn_as_bandwidth() -> None:
    canvas = drawn_once(copy_run)
    assert canvas.axes.get_ylabel() == "bandwidth (TB/s)"
    assert "L2 62.9 MB" in {text.get_text() for text in canvas.texts}


def test_a_wide_interval_has_a_bar_and_a_narrow_one_none() -> None:
    run = h200_sweep((1024, 2048))
    noisy = tuple(1e-5 * (1 + 0.4 * (i * 7 % 5)) for i in range(20))
    first = run.records[0]
    samples = replace(first.times["window"], values_s=noisy, sm_clock_hz=())
    spread = replace(first, times={"window": samples})
    bars = [
        sum(line.get_marker() == "_" for line in drawn(replace(run, records=r)).axes.lines)
        for r in (run.records, (spread, run.records[1]))
    ]
    assert bars == [0, 1]


@pytest.mark.parametrize("excess", [0.01, 5.5])
def test_an_arrow_of_bandwidth_begins_at_the_compulsory_point(excess: float) -> None:
    run = counted_run(excess, of=copy_run)
    least = scene(run).dots
    canvas = drawn(run, "both")
    shown = canvas.scene
    assert shown.kind == "bandwidth"
    assert [d.start for d in shown.dots] == [(d.x, d.y) for d in least]
    assert [d.y for d in shown.dots] == pytest.approx([excess * d.y for d in least])
    (x0, x1), (y0, y1) = shown.limits()
    for dot in least:
        assert x0 < dot.x < x1
        assert y0 < dot.y / shown.unit[0] < y1
    feet = {(line.get_xdata()[0], line.get_ydata()[0]) for line in canvas.axes.lines}
    assert feet >= {(d.x, d.y / shown.unit[0]) for d in least}


def test_an_arrow_shorter_than_its_marker_is_not_drawn() -> None:
    for excess, arrows in ((1.001, 0), (2.0, 7)):
        canvas = drawn(counted_run(excess), "both")
        assert sum(line.get_marker() == "|" for line in canvas.axes.lines) == arrows


def test_a_line_joins_sizes_of_one_mode_and_one_window() -> None:
    run = h200_sweep((1024, 2048))
    points = [{"mode": "fwd"}, {"mode": "bwd"}, {"mode": "fwd", "window": 64}]
    records = [
        replace(r, case=replace(r.case, point={**r.case.point, **more}))
        for r in run.records
        for more in points
    ]
    (series,) = scene(replace(run, records=tuple(records))).series
    joined = [[(dot.variant, dot.label) for dot in part] for part in series.stretches()]
    assert joined == [
        [(("bwd",), "1024"), (("bwd",), "2048")],
        [(("fwd",), "1024"), (("fwd",), "2048")],
        [(("fwd", "window=64"), f"{n},window=64") for n in (1024, 2048)],
    ]


def test_a_hierarchy_joins_the_levels_of_each_record_and_hides_no_point() -> None:
    canvas = drawn(counted_run(2.0, 2.0), "hierarchy")  # the points for L2 lie on those for DRAM
    points = [line for line in canvas.axes.lines if line.get_marker() in ("o", "s")]
    open_ones = [line for line in points if line.get_markerfacecolor() == "none"]
    filled = [line for line in points if line.get_color() != INK and line not in open_ones]
    assert len(open_ones) == len(filled) == len(canvas.scene.dots) / 2
    assert min(p.get_zorder() for p in filled) > max(p.get_zorder() for p in open_ones)
    assert min(p.get_markersize() for p in open_ones) > max(p.get_markersize() for p in filled)
    spread = drawn(counted_run(), "hierarchy")
    ties = [
        tuple(line.get_xdata())
        for line in spread.axes.lines
        if line.get_linewidth() == 1.0 and line.get_marker() == "None"
    ]
    assert ties == [dot.span for dot in spread.scene.series[0].dots]


def test_coinciding_points_of_a_hierarchy_share_a_label() -> None:
    run = counted_run()
    near = run.records[2]
    case = replace(near.case, point={**near.case.point, "m": 600, "n": 600, "k": 600})
    canvas = drawn(Run(run.header, (replace(near, case=case), *run.records)), "hierarchy")
    texts = [text.get_text() for text in canvas.texts]
    assert "512, 600" in texts
    assert "512" not in texts


def test_the_footer_says_who_counted_the_bytes() -> None:
    run = counted_run()
    by_ncu = [replace(r, caveats=(DOUBT,)) for r in run.records]
    ways = "hardware counters", "Nsight Compute, each kernel alone and with a cold cache"
    views: tuple[View, ...] = ("measured", "both", "hierarchy")
    for view in views:
        for records, named in (
            (run.records, [True, False]),
            (by_ncu, [False, True]),
            ([*by_ncu[:2], *run.records[2:]], [True, True]),
        ):
            counted = replace(run, records=tuple(records))
            shown = scene(counted, view)
            with figure([], shown.title, [shown.subtitle], footer(shown, counted)) as frame:
                foot = " ".join(text.get_text() for text in frame.figure.texts)
            assert [way in foot for way in ways] == named


def test_png_has_its_resolution_and_svg_its_text_as_text(tmp_path: Path) -> None:
    paths = [tmp_path / "a.png", tmp_path / "a.svg"]
    draw_roofline(h200_sweep(), paths)
    width, height = (int.from_bytes(paths[0].read_bytes()[i : i + 4], "big") for i in (16, 20))
    assert width == 10 * DPI
    assert 5 * DPI < height < 7 * DPI
    texts = [e.text for e in ET.parse(paths[1]).iter("{http://www.w3.org/2000/svg}text")]
    assert "matmul on NVIDIA H200: bf16, 128 to 8192" in texts


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    for suffix, make in (("svg", crowded_run), ("png", h200_sweep)):
        first, second = (tmp_path / f"{i}.{suffix}" for i in "ab")
        draw_roofline(make(), first)
        draw_roofline(make(), second)
        assert first.read_bytes() == second.read_bytes()
        assert b"dc:date" not in first.read_bytes()


def test_hostile_names_stay_text_in_svg(tmp_path: Path) -> None:
    draw_roofline(hostile_run(), tmp_path / "a.svg")
    root = ET.parse(tmp_path / "a.svg").getroot()
    assert not list(root.iter("script"))
    assert not [e for e in root.iter() if str(e.tag).endswith("script")]
    assert "alert('$a$')" in "".join(root.itertext())


def test_the_users_own_style_changes_nothing_and_is_left_alone(tmp_path: Path) -> None:
    draw_roofline(h200_sweep(), tmp_path / "a.svg")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "text.usetex": True}):
        before = dict(matplotlib.rcParams)
        draw_roofline(h200_sweep(), tmp_path / "b.svg")
        assert dict(matplotlib.rcParams) == before
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize("name", ["a.pdf", "a", "a.jpeg"])
def test_another_suffix_is_a_usage_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot draw to") as caught:
        draw_roofline(h200_sweep(), tmp_path / name)
    assert ".png or .svg" in caught.value.hint


def test_a_place_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        draw_roofline(one_point_run(), tmp_path / "missing" / "a.png")


def test_a_run_of_failures_has_nothing_to_draw(tmp_path: Path) -> None:
    run = h200_run()
    failed = tuple(r for r in run.records if r.status != "ok")
    with pytest.raises(UsageError, match="nothing to draw"):
        draw_roofline(replace(run, records=failed), tmp_path / "a.png")
    assert not list(tmp_path.iterdir())


# The geometry under it.

coordinates = st.floats(-100, 100)
boxes = st.builds(
    Box, coordinates, coordinates, st.floats(1, 50), st.floats(1, 50), st.floats(-3, 3)
)


@given(boxes, boxes)
def test_overlap_is_symmetric_and_a_box_overlaps_itself(a: Box, b: Box) -> None:
    assert overlap(a.corners, b.corners) == overlap(b.corners, a.corners)
    assert overlap(a.corners, a.corners)


@given(boxes, boxes)
def test_boxes_further_apart_than_their_diagonals_do_not_overlap(a: Box, b: Box) -> None:
    reach = (math.hypot(a.width, a.height) + math.hypot(b.width, b.height)) / 2
    if math.hypot(a.x - b.x, a.y - b.y) > reach * 1.001:
        assert not overlap(a.corners, b.corners)


def test_a_line_between_two_boxes_overlaps_neither() -> None:
    line = ((0.0, -10.0), (0.0, 10.0))
    assert overlap(Box(0, 0, 4, 4).corners, line)
    assert not overlap(Box(5, 0, 4, 4).corners, line)
    assert not overlap(Box(5, 0, 4, 4, 0.5).corners, line)


@given(st.lists(st.tuples(st.floats(0, 300), st.floats(0, 200)), max_size=30))
def test_placed_labels_never_overlap_nor_leave_the_frame(points: list[tuple[float, float]]) -> None:
    surface = Surface(Box(150, 100, 300, 200))
    for point in points:
        surface.put(around(point, 40, 12, 8))
    for a, b in combinations(surface.labels, 2):
        assert not overlap(a.corners, b.corners)
    for box in surface.labels:
        assert all(-1e-6 <= x <= 300 + 1e-6 and -1e-6 <= y <= 200 + 1e-6 for x, y in box.corners)


def test_a_label_takes_a_later_place_where_the_first_would_hide_a_point() -> None:
    surface = Surface(Box(150, 100, 300, 200), marks=[Box(100, 100, 4, 4).corners])
    hiding, free, dearer = (Place(Box(x, 100, 40, 12), cost=x / 100) for x in (100, 160, 220))
    assert surface.put([hiding, free, dearer]) == free
    assert surface.put([hiding]) == hiding


def test_a_turned_box_has_its_corners_turned() -> None:
    corners = Box(10, 20, 4, 2, math.pi / 6).corners
    u, v = math.sqrt(3) / 2, 0.5
    wanted = [
        (10 + 2 * a * u - b * v, 20 + 2 * a * v + b * u)
        for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))
    ]
    for corner, expected in zip(corners, wanted, strict=True):
        assert corner == pytest.approx(expected)


def test_labels_know_of_the_line_below_a_ridge() -> None:
    canvas = drawn_once(h200_run)
    ridges = {round(canvas._pixel(x, 1.0)[0], 3) for x, _ in canvas.scene.ridges()}
    assert {round(a[0], 3) for a, *_, b in canvas.surface.drops if a[0] == b[0]} == ridges


def test_a_label_hides_a_line_below_a_ridge_rather_than_a_roof() -> None:
    surface = Surface(Box(100, 100, 200, 200))
    surface.lines.append(((0, 100), (60, 100)))
    surface.drops.append(((150, 0), (150, 200)))
    roof, drop = Place(Box(30, 100, 20, 12)), Place(Box(150, 100, 20, 12), cost=1.0)
    assert surface.put([roof, drop]) == drop


def test_a_leader_ends_at_the_edge_of_its_label() -> None:
    assert Place(Box(10, 0, 4, 2), anchor=(0.0, 0.0)).leader == ((0.0, 0.0), (8.0, 0.0))
    assert Place(Box(10, 0, 4, 2)).leader is None


def test_ticks_lie_inside_and_read_plainly() -> None:
    assert tick_values(15, 600, (1, 2, 5)) == [20, 50, 100, 200, 500]
    assert [plain_number(v) for v in (0.05, 1, 20_000)] == ["0.05", "1", "20,000"]
