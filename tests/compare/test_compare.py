"""A comparison has charts of what was measured, and an exit code for what failed."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from command_line import QUICK, SAXPY, CommandLine, Ended
from synthetic import HOSTILE, matmul
from synthetic_comparison import FASTER, TOP, compared, counted, failing

from gpuperf.compare import chart
from gpuperf.errors import UsageError
from gpuperf.model.record import Run
from gpuperf.model.samples import Samples
from gpuperf.roofline.footer import footer
from gpuperf.roofline.rows import entries_of
from gpuperf.roofline.scene import scene
from gpuperf.roofline.series import Dot
from gpuperf.run.runfile import RunWriter
from gpuperf.run.store import read_run
from gpuperf.show import figure as show
from gpuperf.show.view import View

SIZES = (512, 1024, 2048, 4096)  # more than are drawn as bars


def drawn(run: Run, files: Sequence[Path] = ()) -> Any:
    """Draw a comparison, to *files* if there are any, and return its figure."""
    kept, save = [], show.save_figure

    def keep(figure: Any, target: Path, title: str) -> None:
        kept.append(figure)
        if files:
            save(figure, target, title)

    with pytest.MonkeyPatch.context() as patch, matplotlib.rc_context(show.rc_parameters()):
        patch.setattr(show, "save_figure", keep)
        chart.draw_comparison(run, files or [Path("x.svg")])
        if not files:
            kept[0].draw_without_rendering()
    return kept[0]


def words(figure: Any) -> list[str]:
    from matplotlib.text import Text

    return [t.get_text() for t in figure.findobj(Text) if t.get_text() and t.get_visible()]


def inside(figure: Any) -> None:
    box = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert (box.x0 >= 0, box.y0 >= 0, box.x1 <= width, box.y1 <= height) == (True,) * 4
    assert all(axes.get_position().height > 0.1 for axes in figure.axes)
    assert width < 40  # inches, however long a bar's interval is


def test_one_size_is_drawn_as_bars_with_times_and_speed_ups() -> None:
    figure = drawn(compared())
    left, right = figure.axes
    assert [patch.get_width() for patch in left.patches] == pytest.approx(
        [e.time.median_s for e in entries_of(compared()) if e.time]
    )
    said = words(figure)
    assert "107.6 µs, 1.00×" in said
    assert "10.75 µs, 10.0×" in said
    assert [t.get_text() for t in left.get_yticklabels()] == ["naive", "tiled", "triton"]
    assert right.get_title(loc="left") == "bytes through DRAM, at least"
    inside(figure)


def test_several_sizes_are_lines_and_bytes_are_the_best_that_all_have() -> None:
    run = counted(compared(SIZES), {"naive": 5.0, "tiled": 2.0, "triton": 1.0})
    figure = drawn(run)
    left, right = figure.axes
    assert [list(line.get_xdata()) for line in left.lines] == [list(SIZES)] * 3
    assert right.get_title(loc="left") == "bytes through DRAM, measured"
    assert {t.get_text() for t in figure.legends[-1].get_texts()} == set(FASTER)
    assert left.get_xlabel() == "m=n=k"
    inside(figure)


def test_a_few_sizes_are_groups_of_bars_with_intervals_and_speed_ups() -> None:
    run = counted(compared((512, 1024)), {"naive": 5.0, "tiled": 2.0, "triton": 1.0})
    figure = drawn(run)
    times, moved = figure.axes
    found = entries_of(run)
    heights = sorted(patch.get_height() for patch in times.patches)
    assert heights == pytest.approx(sorted(e.time.median_s for e in found if e.time))
    assert len(moved.patches) == len(times.containers) / 2 == 6
    lengths = sorted(
        bar.get_segments()[0][1][1] - bar.get_segments()[0][0][1] for bar in times.collections
    )
    intervals = [e.time.interval_s for e in found if e.time]
    assert lengths == pytest.approx(sorted(high - low for low, high in intervals))
    assert {"1.00×", "4.00×", "10.0×"} <= {text.get_text() for text in times.texts}
    assert [t.get_text().strip() for t in times.get_xticklabels()] == ["m=n=k 512", "m=n=k 1024"]
    inside(figure)


def test_modes_and_caches_are_variants_and_each_has_its_line() -> None:
    parts = [compared(SIZES, mode=mode).records for mode in ("fwd", "bwd")]
    hot = replace(TOP.contract, cache="hot")
    both = [*parts[0], *parts[1], *(replace(r, contract=hot) for r in parts[0])]
    figure = drawn(Run(replace(TOP, variants=(hot,)), tuple(both)))
    assert {len(line.get_xdata()) for line in figure.axes[0].lines if len(line.get_xdata())} == {4}
    variants = {t.get_text() for t in figure.legends[-1].get_texts()} - set(FASTER)
    assert variants == {"mode=fwd, cold", "mode=bwd, cold", "mode=fwd, hot"}
    inside(figure)


def test_of_axes_that_vary_each_by_itself_the_longest_is_the_size() -> None:
    records = [
        replace(r, case=replace(r.case, point={"heads": heads, "seq": n, "kv": kv}))
        for heads in (8, 16)
        for n in SIZES
        for kv in (0, 64)
        for r in compared((n,)).records
    ]
    figure = drawn(Run(TOP, tuple(records)))
    assert figure.axes[0].get_xlabel() == "seq"
    assert [list(line.get_xdata()) for line in figure.axes[0].lines] == [list(SIZES)] * 12
    assert "heads=8, kv=64" in words(figure)


def test_a_size_of_zero_has_its_place() -> None:
    records = [
        replace(r, case=replace(r.case, point={"kv": kv}))
        for kv in (0, 128, 256, 512)
        for r in compared().records
    ]
    figure = drawn(Run(TOP, tuple(records)))
    assert figure.axes[0].get_xlim()[0] < 0 < 512 < figure.axes[0].get_xlim()[1]


@pytest.mark.parametrize("name", ["naive", "tiled"])
def test_a_chart_without_the_one_that_failed_says_so(name: str) -> None:
    for sizes in ((1024,), (512, 1024)):
        figure = drawn(failing(compared(sizes), name, status="oom", reason="why"))
        assert any(f"not drawn: {len(sizes)} oom" in text for text in words(figure))
        assert name not in words(figure)


def test_where_nothing_succeeded_there_is_nothing_to_draw(tmp_path: Path) -> None:
    run = replace(compared(), records=())
    for found in (run, Run(TOP, tuple(replace(r, status="wrong") for r in compared().records))):
        with pytest.raises(UsageError, match="nothing to draw") as caught:
            chart.draw_comparison(found, [tmp_path / "x.png"])
        assert caught.value.hint


def nameless(run: Run) -> Run:
    """No implementation is the baseline."""
    return replace(run, header=replace(run.header, baseline="gone"))


def hostile(run: Run) -> Run:
    """Names that mean harm, very long."""
    name, other = HOSTILE + "漢" * 5000, {"naive": "n", "tiled": "t", "triton": "f"}
    records = tuple(
        replace(
            r,
            case=replace(
                r.case,
                implementation=name + other[r.case.implementation],
                op=name,
                point={**r.case.point, name: name},
            ),
        )
        for r in run.records
    )
    return Run(
        replace(run.header, baseline=name + "n", run=name, gpuperf=name, main=(name,)), records
    )


def extreme(run: Run) -> Run:
    """Times and sizes at the ends of what a float holds."""
    times = (5e-324, 1e-300, 1e300, 1e-9, 1.0, -1.0)
    return replace(
        run,
        records=tuple(
            matmul(TOP, 2 ** (i * 6), t, implementation=name)
            for name in FASTER
            for i, t in enumerate(times)
        ),
    )


def costless(run: Run) -> Run:
    """Of nothing the bytes are known."""
    return replace(run, records=tuple(replace(r, cost=None) for r in run.records))


def crowd(run: Run) -> Run:
    """More implementations than there are colours, and more bars than a picture holds."""
    return replace(
        run,
        records=tuple(
            replace(r, case=replace(r.case, implementation=f"an implementation, number {i}"))
            for i in range(200 if len(run.records) == 3 else 12)
            for r in run.records[::3]
        ),
    )


def two_that_disagree(run: Run) -> Run:
    """Two processes so different that the interval of their mean spans many powers of ten."""
    return replace(
        run,
        records=tuple(
            replace(
                r, pass_index=i, times={"window": Samples((r.times["window"].median_s * factor,))}
            )
            for r in run.records
            for i, factor in enumerate((1.0, 50.0))
        ),
    )


ODD = [nameless, hostile, costless, crowd, two_that_disagree]


@pytest.mark.parametrize("sizes", [(1024,), (512, 1024)])
@pytest.mark.parametrize("make", ODD, ids=lambda make: make.__name__)
def test_an_odd_run_is_drawn_inside_its_figure(
    make: Callable[[Run], Run], sizes: tuple[int, ...], tmp_path: Path
) -> None:
    files = [tmp_path / "a.png", tmp_path / "a.svg"]
    figure = drawn(make(compared(sizes)), files)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        inside(figure)
    assert files[0].read_bytes().startswith(b"\x89PNG")


def test_times_beyond_any_device_are_left_out_and_counted() -> None:
    figure = drawn(extreme(compared()))
    assert len(figure.axes[0].patches) == 6
    assert any("not drawn: 12 out of range" in text for text in words(figure))


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    files = [tmp_path / "a.svg", tmp_path / "b.svg"]
    chart.draw_comparison(compared((512, 1024)), files)
    assert files[0].read_bytes() == files[1].read_bytes()


def dots_by_name(run: Run, view: View = "compulsory") -> dict[str, list[Dot]]:
    return {s.label.split()[0]: list(s.dots) for s in scene(run, view).series}


MOVED = {"naive": 5.0, "tiled": 2.0, "triton": 1.0}


def test_arrows_lead_from_the_baselines_points_to_those_of_the_same_case() -> None:
    run = counted(compared((512, 1024)), MOVED)
    for view in ("compulsory", "measured"):
        found = dots_by_name(run, view)  # type: ignore[arg-type]
        feet = [(dot.x, dot.y) for dot in found.pop("naive")]
        assert found.keys() == {"tiled", "triton"}
        assert all([dot.start for dot in dots] == feet for dots in found.values())
        assert all(dot.start is None for dot in dots_by_name(run, "compulsory")["naive"])
        (line,) = (t for t in footer(scene(run, view), run) if "Arrows" in t)  # type: ignore[arg-type]
        assert line.startswith("Arrows lead from naive to the others")


def test_with_both_bytes_each_arrow_is_of_its_own_record() -> None:
    run = counted(compared(), MOVED)
    for (dot,) in dots_by_name(run, "both").values():
        assert dot.start is not None
        assert dot.start[1] == dot.y
    assert not any("to the others" in line for line in footer(scene(run, "both"), run))


@pytest.mark.parametrize(
    "run", [nameless(compared()), failing(compared(), "naive", status="oom", reason="why")]
)
def test_without_a_baseline_there_are_no_arrows_and_no_line_on_them(run: Run) -> None:
    shown = scene(run)
    assert all(dot.start is None for dot in shown.dots)
    assert not any("Arrows" in line for line in footer(shown, run))


def test_the_baseline_and_the_fastest_are_labelled_and_no_other() -> None:
    assert {name: [d.label for d in dots] for name, dots in dots_by_name(compared()).items()} == {
        "naive": ["naive"],
        "tiled": [""],
        "triton": ["triton"],
    }
    found = dots_by_name(compared((512, 1024)))
    assert [d.label for d in found["naive"]] == ["512", "1024"]
    assert [d.label for d in found["tiled"]] == ["", ""]
    first = failing(compared(), "triton", status="wrong", reason="why")
    assert [d.label for d in dots_by_name(first)["tiled"]] == ["tiled"]


# Two that agree, one that raises, one that is not for this device, one that is wrong.
LADDER = (
    SAXPY.replace(
        'Implementation("fused", saxpy_fused, "torch.add"),',
        """Implementation("fused", saxpy_fused, "torch.add"),
        *((Implementation("raising", raising),) if "r" in EXTRA else ()),
        *((Implementation("absent", saxpy_eager, supports=absent),) if "a" in EXTRA else ()),
        *((Implementation("wrong", wrong),) if "w" in EXTRA else ()),""",
    )
    .replace('Axis("dtype"', 'Axis("mode", "fwd", choices=("fwd", "bwd")), Axis("dtype"')
    .replace(
        "def reference(",
        """def raising(inputs, point, options):
    raise RuntimeError("no such thing")


def absent(point, device):
    return "needs a device of another kind"


def wrong(inputs, point, options):
    return lambda: inputs["x"] * 2


def reference(""",
    )
)


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    made = {name: f'EXTRA = "{name}"\n' for name in ("n", "rw", "a")}
    files = {
        name: LADDER.replace("\nimport torch\n", f"\nimport torch\n\n{extra}", 1)
        for name, extra in made.items()
    }
    return CommandLine.at(tmp_path_factory.mktemp("compare"), **files)


def compare(at: CommandLine, file: str, *words: str, out: str) -> Ended:
    return at("compare", f"./{file}.py", "--processes", "1", *words, *QUICK, "--out", out)


@pytest.fixture(scope="module")
def swept(at: CommandLine) -> Ended:
    return compare(at, "n", "--n", "256,1k", "--mode", "both", out="swept")


def test_compare_measures_every_implementation_point_by_point(
    at: CommandLine, swept: Ended
) -> None:
    assert swept.code == 0, swept.err
    path = at.run_file("swept")
    run = read_run(path)
    assert (run.header.baseline, run.header.main) == ("eager", ("n",))
    assert [
        (r.case.point["n"], r.case.point["mode"], r.case.implementation) for r in run.records
    ] == [
        (n, mode, name)
        for n in (256, 1024)
        for mode in ("fwd", "bwd")
        for name in ("eager", "fused")
    ]
    assert "speed-up" in swept.out
    assert "over eager" in swept.out
    for name in (path.stem, f"{path.stem}-roofline"):
        assert path.with_name(f"{name}.png").stat().st_size > 10_000
        assert "<svg" in path.with_name(f"{name}.svg").read_text()


def test_show_draws_a_comparison_or_where_bytes_are_asked_for_its_roofline(
    at: CommandLine, tmp_path: Path
) -> None:
    run, file = counted(compared(), MOVED), tmp_path / "run.jsonl"
    with RunWriter(file) as writer:
        writer.header(run.header)
        for record in run.records:
            writer.record(record)
    told = {"": "time of a call", "compulsory": "intensity", "measured": "intensity"}
    for view, word in told.items():
        target = tmp_path / f"{view or 'comparison'}.svg"
        asked = ["--intensity", view] if view else []
        ended = at("show", str(file), "--chart", str(target), *asked)
        assert (ended.code, ended.out) == (0, ""), ended.err
        assert word in target.read_text()
    assert "Arrows lead from naive" in (tmp_path / "measured.svg").read_text()
    lacking = at("show", str(file), "--intensity", "modelled")
    assert lacking.code == 0
    assert "no roofline is drawn" in lacking.err


def test_one_that_raises_or_is_wrong_is_a_row_and_the_exit_code_says_so(at: CommandLine) -> None:
    ended = compare(at, "rw", "--n", "256", "--baseline", "wrong", "--format", "json", out="raised")
    assert ended.code == 3
    assert "2 of 4 cases failed" in ended.err
    rows = {row["implementation"]: row for row in json.loads(ended.out)["rows"]}
    assert {name: row["status"] for name, row in rows.items()} == {
        "eager": "ok",
        "fused": "ok",
        "raising": "error",
        "wrong": "wrong",
    }
    assert "no such thing" in rows["raising"]["reason"]
    assert all(row["speedup"] is None for row in rows.values()), "the baseline failed"
    assert len(list((at.folder / "raised").glob("*.png"))) == 2


def test_one_that_is_not_for_this_device_is_told_of_and_no_failure(at: CommandLine) -> None:
    ended = compare(at, "a", "--n", "256", "--baseline", "fused", out="absent")
    assert ended.code == 0, ended.err
    assert "absent: needs a device of another kind" in ended.out
    assert "over fused" in ended.out


def test_one_implementation_is_compared_with_itself(at: CommandLine) -> None:
    ended = compare(at, "n", "--n", "256", "--impl", "fused", "--format", "json", out="one")
    assert ended.code == 0, ended.err
    (row,) = json.loads(ended.out)["rows"]
    assert (row["implementation"], row["speedup"], row["speedup_low"]) == ("fused", 1, None)


def test_a_comparison_of_one_time_ends_with_3(at: CommandLine) -> None:
    words = ("--impl", "torch,cublaslt", "--sizes", "8", "--device", "cpu", "--processes", "1")
    ended = at("compare", "matmul", *words, "--budget", "20ms", "--out", "alone")
    assert ended.code == 3
    assert "Skipped" in ended.out
    assert "no case has times of two implementations, only torch\n  hint: " in ended.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--baseline", "eagre"), "no implementation to compare with 'eagre'; did you mean 'eage"),
        (("--baseline", "eager", "--impl", "fused"), "no implementation to compare with 'eager'"),
        (("--impl", "fsued"), "no implementation of saxpy 'fsued'; did you mean 'fused'?"),
        (("--seq", "512"), "no option '--seq'"),
        (("--n", "both"), "--n: "),
        (("--mode", "both,fwd"), "no mode 'both'"),
        (("--mode", "sideways"), "no mode 'sideways'"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_measured(
    at: CommandLine, words: tuple[str, ...], sentence: str
) -> None:
    ended = compare(at, "n", *words, out="refused")
    assert (ended.code, ended.out) == (2, "")
    assert sentence in ended.err
    assert not (at.folder / "refused").exists()


def test_labels_of_near_sizes_make_way() -> None:
    sizes = [1.0, 4.0, 16.0, 32.0, 64.0, 128.0, 256.0, 1024.0, 4096.0]
    assert chart._apart(sizes) == [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0]
    assert chart._apart([0.0, 1.0, 100.0]) == [0.0, 100.0]
    assert chart._apart([5.0]) == [5.0]
