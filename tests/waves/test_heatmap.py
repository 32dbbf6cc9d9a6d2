"""Test that the heatmap of m and n shows the model, and is bounded whatever a run file holds."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from command_line import QUICK, CommandLine
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import HOSTILE, decoded, h200_device, h200_peaks, header, matmul

from gpuperf.errors import UsageError
from gpuperf.model.contract import Contract
from gpuperf.model.record import Kernel, Record, Run
from gpuperf.model.samples import Samples
from gpuperf.model.workload import Case
from gpuperf.run.runfile import RunWriter
from gpuperf.show import figure as show
from gpuperf.tiles.waves import Fit, Measured, Tiling
from gpuperf.units import LARGEST
from gpuperf.verb.printing import write_charts
from gpuperf.waves import heatmap as chart
from gpuperf.waves.plane import MOST_CELLS, panels, predict, spans, varies_both
from gpuperf.waves.study import KernelStudy, WavePoint, study_plane, study_waves

TOP = replace(header(h200_device(), Contract("blocked"), h200_peaks()), study="waves")
CLOCK = 1.62e9
TRUTH = Fit(Tiling(128, 128, 64, 132), 4000.0, 0.0, 580.0)
SIZES = tuple(range(512, 8193, 512))


def timed(m: int, n: int, cycles: float, k: int = 4096, name: str = "matmul_kernel") -> Record:
    seconds, chosen = cycles / CLOCK, {"BM": 128, "BN": 128, "BK": 64}
    return replace(
        matmul(TOP, 512, 1.0, CLOCK, kernels=(Kernel(name),), chosen=chosen),
        case=Case("matmul", "triton", {"m": m, "n": n, "k": k, "dtype": "bf16"}),
        times={"window": Samples((seconds, seconds), (CLOCK, CLOCK))},
    )


def grid(sizes: tuple[int, ...] = SIZES, k: int = 4096, **changes: Any) -> Run:
    draw = random.Random(5)
    return Run(
        TOP,
        tuple(
            timed(m, n, TRUTH.cycles(m, n, k) * (1 + 0.01 * (draw.random() - 0.5)), k, **changes)
            for m, n in product(sizes, sizes)
        ),
    )


def studied(model: Fit | None, *sizes: tuple[int, int, int]) -> KernelStudy:
    record = grid((512,)).records[0]
    points = (WavePoint(record, m, Measured(m, n, k, 1e6), CLOCK, "a") for m, n, k in sizes)
    return KernelStudy("triton", "bf16", "", "a", tuple(points), model)


def test_one_model_is_fitted_on_every_m_and_n_of_a_kernel() -> None:
    run = grid()
    assert len(study_waves(run).kernels) == 16
    (kernel,) = study_plane(run).kernels
    assert (len(kernel.points), len(kernel.unseen), kernel.where) == (256, 128, "k=4096")
    assert kernel.model is not None
    assert kernel.model.tiling == TRUTH.tiling
    assert kernel.model.cycles(4096, 4096, 4096) == pytest.approx(
        TRUTH.cycles(4096, 4096, 4096), rel=2e-3
    )
    assert kernel.high_error is not None
    assert kernel.high_error < 0.01


def test_each_k_and_each_kernel_has_a_picture_of_its_own() -> None:
    records = [*grid((512, 1024, 1536)).records, *grid((512, 1024, 1536), 1024).records]
    records += grid((512, 1024, 1536), name="other").records
    study = study_plane(Run(TOP, tuple(records)))
    reported = [(kernel.where, kernel.kernel.split(",")[0]) for kernel in study.kernels]
    assert reported == [
        ("k=4096", "matmul_kernel"),
        ("k=1024", "matmul_kernel"),
        ("k=4096", "other"),
    ]
    assert study.boundaries == ()


def test_a_column_more_than_a_wave_holds_halves_the_prediction() -> None:
    # 11 · 12 tiles are the 132 of one wave; a launch that costs nothing leaves only waves.
    model = Fit(TRUTH.tiling, 0.0, 0.0, 580.0)
    plane = predict(studied(model, (1408, 1536, 4096), (1408, 1792, 4096)))
    assert (plane.ms, plane.ns.step) == (range(1408, 1409), 2)
    (row,) = plane.rows
    full, after = row[0], row[1]
    assert full == 2 * 1408 * 1536 * 4096 / (64 * 580)
    assert after / full == pytest.approx(1538 / 1536 / 2)


side = st.integers(1, LARGEST)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(side, side), min_size=1, max_size=4), side, st.integers(1, 2**16))
def test_the_picture_is_bounded_holds_every_size_and_is_the_model(
    sizes: list[tuple[int, int]], k: int, tile: int
) -> None:
    model = Fit(Tiling(tile, 256, 64, 132), 1.0, 0.0, 1e-9)
    plane = predict(studied(model, *((m, n, k) for m, n in sizes)))
    for cells, values in zip((plane.ms, plane.ns), zip(*sizes, strict=True), strict=True):
        assert len(cells) <= MOST_CELLS
        assert cells[0] - cells.step < min(values) <= max(values) <= cells[-1]
    assert (len(plane.rows), {len(row) for row in plane.rows}) == (len(plane.ms), {len(plane.ns)})
    assert all(math.isfinite(rate) for row in plane.rows for rate in row)
    m, n = plane.ms[-1], plane.ns[0]
    assert plane.rows[-1][0] == 2 * m * n * k / model.cycles(m, n, k)


def test_a_prediction_without_a_model_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a model"):
        predict(studied(None, (512, 512, 512)))


def test_a_line_of_sizes_spans_no_plane() -> None:
    assert spans(set(product((1, 2), (1, 2))))
    assert spans({(1, 1), (1, 2), (2, 2)})
    for line in ({(1, 1), (2, 2), (3, 3)}, {(1, 1), (1, 2)}, {(1, 1)}, set()):
        assert not spans(line)


def test_m_and_n_vary_only_where_all_else_is_held() -> None:
    def cases(*sizes: tuple[int, int, int]) -> list[Case]:
        return [Case("matmul", "torch", dict(zip("mnk", size, strict=True))) for size in sizes]

    assert varies_both(cases((1, 1, 9), (1, 2, 9), (2, 1, 9)))
    assert not varies_both(cases((1, 1, 9), (1, 2, 8), (2, 1, 9)))
    assert not varies_both([Case("sincos", "torch", {"n": n}) for n in (1, 2, 3)])
    assert not varies_both([])


def test_what_is_not_drawn_is_counted() -> None:
    plain, flat = grid((512, 1024, 1536)), grid(SIZES, name="flat").records[:16]
    unknown = tuple(replace(r, chosen={}) for r in grid((512, 1024), name="unknown").records)
    others = [r for name in "abcd" for r in grid((512, 1024, 1536), name=name).records]
    lost = replace(plain.records[0], status="oom", times={}, primary="")
    records = (*plain.records, *flat, *unknown, *others, lost)
    found, left_out = panels(study_plane(Run(TOP, records)), 4)
    assert len(found) == 4
    assert left_out == (
        "1 kernel without a model",
        "1 kernel not spanning m and n",
        "1 kernel with fewer sizes",
        "1 size without a time in cycles",
    )
    note = [text.get_text() for text in drawn(Run(TOP, records)).texts][-1]
    assert "not drawn: 1 kernel without" in note


def drawn(run: Run) -> Any:
    kept: list[Any] = []
    with pytest.MonkeyPatch.context() as patch, matplotlib.rc_context(show.rc_parameters()):
        patch.setattr(show, "save_figure", lambda figure, *_: kept.append(figure))
        chart.draw_heatmap(run, [Path("x.svg")])
        kept[0].draw_without_rendering()
    return kept[0]


def test_image_and_dots_share_a_scale_whose_unit_is_named() -> None:
    axes, bar = drawn(grid()).axes
    (image,), (dots,) = axes.images, axes.collections
    assert image.get_array().shape == (241, 241)
    assert image.get_extent() == [480, 8192, 480, 8192]
    assert len(dots.get_offsets()) == 256
    assert image.get_clim() == dots.get_clim()
    assert bar.get_ylabel() == "TFLOP/s at 1,620 MHz, the median SM clock measured"
    # 4096³ at 4096² / 128² / 132 = 8 waves of 64 steps of 580 cycles, and 4000.
    expected = 2 * 4096**3 / (8 * 64 * 580 + 4000) * CLOCK / 1e12
    assert image.get_array()[(4096 - 512) // 32, (4096 - 512) // 32] == pytest.approx(
        expected, rel=2e-3
    )
    first, kernel, off = axes.get_title(loc="left").split("\n")
    assert first == "triton bf16, k=4096, tile 128×128×64"
    assert kernel == "matmul_kernel, 128x128x64"
    assert off.endswith("on 128 held-out sizes")


def test_a_run_with_no_plane_to_draw_says_why() -> None:
    run = grid((512, 1024))
    with pytest.raises(UsageError, match="span m and n: 1 kernel without a model"):
        chart.draw_heatmap(run, [Path("x.svg")])


@pytest.mark.parametrize("name", [HOSTILE, "x" * 5000, "$\\frac$", ""])
def test_a_strange_kernel_stays_on_the_picture(name: str) -> None:
    figure = drawn(decoded(grid((512, 1024, 1536), name=name)))
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert (box.x0 >= -0.01, box.x1 <= width + 0.01, box.y0 >= 0, box.y1 <= height) == (True,) * 4


def test_a_script_that_the_font_lacks_is_drawn_without_a_word(tmp_path: Path) -> None:
    chart.draw_heatmap(grid((512, 1024, 1536), name="名前"), [tmp_path / "a.svg"])
    assert "名前" in (tmp_path / "a.svg").read_text(encoding="utf-8")


def test_absurd_sizes_and_clocks_in_a_run_file_are_bounded() -> None:
    run = grid((512, 1024, 1536))
    fast = replace(run.records[0], times={"window": Samples((1e-295,) * 2, (1e300,) * 2)})
    huge = [timed(m, n, 1e18) for m, n in product((1, LARGEST), (1, LARGEST))]
    beyond = timed(2**63, 2**63, 1e6)
    figure = drawn(replace(run, records=(fast, *huge, beyond, *run.records)))
    (image,) = figure.axes[0].images
    assert max(image.get_array().shape) <= MOST_CELLS
    assert all(map(math.isfinite, image.get_array().ravel()))
    box, (width, _) = figure.get_tightbbox(), figure.get_size_inches()
    assert (box.x0 >= -0.01, box.x1 <= width + 0.01) == (True, True)


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    return CommandLine.at(tmp_path_factory.mktemp("heatmap"))


def test_a_run_file_is_drawn_again_with_its_heatmap(at: CommandLine) -> None:
    whole = grid((512, 1024, 1536))
    for name, run in (("plane", whole), ("line", Run(TOP, whole.records[:3]))):
        file, target = at.folder / f"{name}.jsonl", at.folder / f"{name}-again.svg"
        with RunWriter(file) as writer:
            writer.header(run.header)
            for record in run.records:
                writer.record(record)
        ended = at.within("show", str(file), "--chart", str(target))
        assert ended.code == 0, ended.err
        beside = at.folder / f"{name}-again-heatmap.svg"
        assert (target.exists(), beside.exists()) == (True, name == "plane")
        assert (f"heatmap: {beside}" in ended.err) == (name == "plane")


def test_a_new_run_has_its_heatmap_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_charts(grid((512, 1024, 1536)), tmp_path / "run.jsonl")
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {"run.png", "run.svg", "run-heatmap.png", "run-heatmap.svg"}
    assert "run-heatmap.png and run-heatmap.svg" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "reported"),
    [
        (["--sizes", "64:256:+64"], 2, "--m 512:8192:+512 --n 512:8192:+512 --k 4096"),
        (["--m", "64", "--n", "64:256:+64"], 2, "heatmap needs m and n to vary"),
        (
            ["--m", "64,128", "--n", "64,128", "--k", "64"],
            3,
            "waves need the SM cycles of an NVIDIA GPU",
        ),
    ],
)
def test_a_heatmap_of_less_than_a_plane_is_refused_before_measuring(
    at: CommandLine, words: list[str], code: int, reported: str
) -> None:
    ended = at.within(
        "waves", "matmul", *words, "--heatmap", *QUICK, "--out", str(at.folder / "bad")
    )
    assert ended.code == code
    assert reported in ended.err
    assert not list((at.folder / "bad").glob("*.jsonl"))
