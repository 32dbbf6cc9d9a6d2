"""Does a study of waves predict where it can, say where it cannot, and draw what it says?"""

from __future__ import annotations

import csv
import io
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from command_line import QUICK, CommandLine
from synthetic import HOSTILE, cpu_run, decoded, h200_device, h200_peaks, header, matmul

from gpuperf.errors import UsageError
from gpuperf.model.contract import Contract
from gpuperf.model.record import Kernel, Record, Run
from gpuperf.model.samples import Samples
from gpuperf.model.workload import Case
from gpuperf.run.runfile import RunWriter
from gpuperf.show import figure as show
from gpuperf.show.screen import Screen
from gpuperf.tiles.tiling import tiling_of
from gpuperf.tiles.waves import Fit, Tiling
from gpuperf.waves import chart
from gpuperf.waves.study import study_waves
from gpuperf.waves.table import render_waves

TOP = replace(header(h200_device(), Contract("blocked"), h200_peaks()), study="waves")
CLOCK = 1.7e9
TALL = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
TRUTH = Fit(Tiling(128, 256, 64, 132), 4000.0, 1500.0, 512.0)
SPLIT = "nvjet_hsh_32x64_64x16_4x1_v_bz_splitK_TNN"


def timed(n: int, cycles: float, kernel: str, **changes: Any) -> Record:
    """m 3072, k 4096, in so many cycles, twice."""
    record = matmul(TOP, n, 1.0, CLOCK, kernels=(Kernel("Memset"), Kernel(kernel)))
    seconds = cycles / CLOCK
    return replace(
        record,
        case=Case("matmul", "torch", {"m": 3072, "n": n, "k": 4096, "dtype": "bf16"}),
        times={"window": Samples((seconds, seconds), (CLOCK, CLOCK))},
        **changes,
    )


def sweep(first: int = 1024, last: int = 8192, step: int = 128, kernel: str = TALL) -> Run:
    sizes = range(first, last + 1, step)
    return Run(TOP, tuple(timed(n, TRUTH.cycles(3072, n, 4096), kernel) for n in sizes))


def test_a_kernel_is_predicted_on_sizes_it_was_not_fitted_on() -> None:
    study = study_waves(sweep())
    (kernel,) = study.kernels
    assert study.axes == ("n",)
    assert kernel.model is not None
    assert kernel.model.tiling == TRUTH.tiling  # turned: BLAS names it column-major
    assert kernel.sure
    assert len(kernel.unseen) == 28
    assert kernel.median_error == pytest.approx(0, abs=1e-6)
    assert kernel.high_error == pytest.approx(0, abs=1e-6)


def test_each_wave_ends_where_the_tiles_say() -> None:
    study = study_waves(sweep())
    tiling = TRUTH.tiling
    ends = [n for n in range(1024, 8192) if tiling.waves(3072, n + 1) > tiling.waves(3072, n)]
    assert [boundary.last for boundary in study.boundaries] == ends
    assert all(boundary.met is not False for boundary in study.boundaries)
    assert any(boundary.met for boundary in study.boundaries)
    first = study.boundaries[0]
    before, after = (TRUTH.cycles(3072, n, 4096) / n for n in (first.last, first.last + 1))
    assert first.predicted == pytest.approx(1 - before / after, rel=1e-6)


def test_a_boundary_that_nothing_shows_is_not_met() -> None:
    flat = [timed(n, 40.0 * n, TALL) for n in range(1024, 4097, 128)]
    steep = sweep(1024, 4096).records
    mixed = [a if i < 12 else b for i, (a, b) in enumerate(zip(steep, flat, strict=True))]
    scale = steep[11].samples.median_s / flat[11].samples.median_s  # type: ignore[union-attr]
    mixed[12:] = [
        timed(int(r.case.point["n"]), 40.0 * int(r.case.point["n"]) * scale, TALL)
        for r in mixed[12:]
    ]
    study = study_waves(Run(TOP, tuple(mixed)))
    assert any(boundary.met is False for boundary in study.boundaries)


@pytest.mark.parametrize(
    ("kernel", "word"),
    [
        (SPLIT, "split-K"),
        ("my_kernel", "the name of the kernel has no tile"),
        ("", "the name of the kernel has no tile"),
        ("nvjet_sm90_tst_64x64_64x4_16x16_h_bz_TNT", "cluster of 256"),
        ("nvjet_sm90_tst_0x64_64x4_1x2_h_bz_TNT", "the name of the kernel has no tile"),
        ("nvjet_sm90_tst_64x64_64x4_0x0_h_bz_TNT", "the name of the kernel has no tile"),
        ("nvjet_sm100_tst_128x256_64x6_2x1_2cta_v_bz_TNT", "two CTAs"),
    ],
)
def test_where_the_model_does_not_apply_it_says_so(kernel: str, word: str) -> None:
    (found,) = study_waves(sweep(kernel=kernel)).kernels
    assert found.model is None
    assert word in found.reason
    assert word in render_waves(sweep(kernel=kernel), "table")


def test_a_reduction_beside_a_kernel_makes_it_split() -> None:
    reduce = Kernel("void cublasLt::splitKreduce_kernel<32>()")
    run = sweep()
    records = tuple(replace(r, kernels=(*r.kernels, reduce)) for r in run.records)
    (found,) = study_waves(replace(run, records=records)).kernels
    assert "split-K" in found.reason


def test_a_tuned_tile_counts_more_than_a_name() -> None:
    chosen = {"BM": 128, "BN": 256, "BK": 64, "warps": 8}
    run = sweep(kernel="matmul_tma_kernel")
    other = {"BM": 64, "BN": 64, "BK": 64}
    records = [replace(r, chosen=chosen) for r in run.records]
    records[:2] = [replace(r, chosen=other) for r in records[:2]]
    few, many = study_waves(replace(run, records=tuple(records))).kernels
    assert "too few" in few.reason
    assert many.kernel == "matmul_tma_kernel, 128x256x64, warps 8"
    assert many.sure
    assert many.model is not None
    assert many.model.tiling == TRUTH.tiling


def test_no_boundary_is_reported_between_sizes_of_different_kernels() -> None:
    run = sweep(1024, 4096)
    records = [
        replace(r, kernels=(Kernel("other"),)) if i % 2 else r for i, r in enumerate(run.records)
    ]
    assert study_waves(replace(run, records=tuple(records))).boundaries == ()


def test_cases_without_a_clock_or_a_time_are_listed() -> None:
    run = sweep(1024, 2048)
    blind = replace(run.records[0], times={"window": Samples((1e-3, 1e-3))})
    lost = replace(run.records[1], status="oom", reason="needs 9 GB", times={}, primary="")
    study = study_waves(replace(run, records=(blind, lost, *run.records[2:])))
    assert [
        "without the SM clock" in study.left_out[0],
        "oom: needs 9 GB" in study.left_out[1],
    ] == [True, True]
    assert "needs 9 GB" in render_waves(replace(run, records=(blind, lost, *run.records[2:])), "md")


def test_absurd_numbers_in_a_run_file_are_left_out() -> None:
    run = sweep(1024, 2048)
    first = run.records[0]

    def point(**changes: Any) -> Record:
        return replace(first, case=replace(first.case, point={**first.case.point, **changes}))

    def chosen(**tile: Any) -> Record:
        return replace(first, chosen={"BM": 128, "BN": 256, "BK": 64, **tile})

    clocked = Samples((1e-300, 1e-300), (1e-300, 1e-300))
    absurd = (
        point(m=10**18),
        point(m=0),
        point(k=-1),
        point(m="abc"),
        chosen(BM=0),
        chosen(BM=-1),
        chosen(BM="x"),
        replace(first, times={"window": clocked}),
        replace(first, rank=1),
    )
    for record in absurd:
        strange = replace(run, records=(record, *run.records))
        for form in ("table", "md", "csv"):
            render_waves(strange, form)
        reported = json.loads(render_waves(strange, "json"), parse_constant=pytest.fail)
        assert {row["size"] for row in reported} == set(range(1024, 2049, 128))
        assert all(0 < row["flop_per_cycle"] < 1e9 for row in reported)
        drawn(strange)
    same = replace(run, records=(first,) * 5 + tuple(replace(first, rank=i) for i in range(9)))
    assert "no axis varies" in render_waves(same, "table")


def test_noise_alone_does_not_bear_boundaries_out() -> None:
    draw = random.Random(7)
    records = tuple(
        timed(n, 40.0 * n * (1 + 0.06 * (draw.random() - 0.5)), TALL)
        for n in range(1024, 8193, 128)
    )
    reported = [b for b in study_waves(Run(TOP, records)).boundaries if b.met is not None]
    assert sum(bool(b.met) for b in reported) <= len(reported) / 3


def test_every_boundary_between_far_sizes_is_reported() -> None:
    run, tiling = sweep(1024, 7936, 1152), TRUTH.tiling
    chosen = {"BM": 128, "BN": 256, "BK": 64}  # the tile is given, not fitted
    records = tuple(replace(r, chosen=chosen) for r in run.records)
    study = study_waves(replace(run, records=records))
    ends = [n for n in range(1024, 7936) if tiling.waves(3072, n + 1) > tiling.waves(3072, n)]
    assert [boundary.last for boundary in study.boundaries] == ends


def test_tiles_in_parts_of_k_have_no_waves() -> None:
    (record, *_) = sweep(1024, 2048).records
    chosen = {"BM": 128, "BN": 256, "BK": 64, "splits": 1}
    whole, sure, _ = tiling_of([replace(record, chosen=chosen)], 132)
    assert whole is not None and sure
    parts, _, reason = tiling_of([replace(record, chosen={**chosen, "splits": 3})], 132)
    assert parts is None and "split-K" in reason


def test_nine_of_ten_errors_are_within_the_high_one() -> None:
    (kernel,) = study_waves(sweep()).kernels
    reported = replace(kernel, unseen=tuple(i / 100 for i in range(-10, 10)))
    assert reported.high_error == pytest.approx(0.09)
    assert reported.median_error == pytest.approx(0.05)


def test_runs_without_waves_are_refused() -> None:
    run = sweep()
    no_sms = replace(TOP, device=replace(TOP.device, sm_count=0))
    vector = replace(run.records[0], case=Case("sincos", "torch", {"n": 4, "dtype": "fp32"}))
    for broken, word in (
        (cpu_run(), "a CPU has no SMs"),
        (replace(run, header=no_sms), "number of SMs"),
        (replace(run, records=run.records[:1]), "no axis varies"),
        (
            Run(TOP, (vector, replace(vector, case=replace(vector.case, point={"n": 8})))),
            "no axes m, n",
        ),
    ):
        with pytest.raises(UsageError, match=word):
            study_waves(broken)
        assert word in render_waves(broken, "table")


def test_the_table_names_kernels_tiles_errors_and_cliffs() -> None:
    text = render_waves(sweep(), "table")
    assert "128×256×64" in text
    assert "57: 1024 to 8192" in text
    assert "0.00 %" in text
    assert "1 → 2" in text
    assert "have a measured drop within one size" in text
    rows = json.loads(render_waves(sweep(), "json"))
    assert len(rows) == 57
    assert rows[0]["predicted_over_measured"] == pytest.approx(1, abs=1e-6)
    assert rows[0]["waves"] == TRUTH.tiling.waves(3072, 1024)
    table = list(csv.DictReader(io.StringIO(render_waves(sweep(), "csv"))))
    assert [int(row["size"]) for row in table] == list(range(1024, 8193, 128))


def drawn(run: Run) -> Any:
    kept: list[Any] = []
    with pytest.MonkeyPatch.context() as patch, matplotlib.rc_context(show.rc_parameters()):
        patch.setattr(show, "save_figure", lambda figure, *_: kept.append(figure))
        chart.draw_waves(run, [Path("x.svg")])
        kept[0].draw_without_rendering()
    return kept[0]


def test_the_chart_has_dots_a_curve_and_the_ends_of_waves() -> None:
    study = study_waves(sweep())
    upper, lower, _tiles = drawn(sweep()).axes
    dots = [line for line in upper.lines if line.get_linestyle() == "None"]
    assert [len(line.get_xdata()) for line in dots] == [57]
    ends = {line.get_xdata()[0] for line in upper.lines if len(set(line.get_xdata())) == 1}
    assert {boundary.last + 0.5 for boundary in study.boundaries} <= ends
    (steps,) = [line for line in lower.lines if len(line.get_xdata()) > 100]
    assert max(steps.get_ydata()) == TRUTH.tiling.waves(3072, 8192)


@pytest.mark.parametrize("name", [HOSTILE, "x" * 5000, "$\\frac$", ""])
def test_a_strange_kernel_is_drawn_and_printed(name: str) -> None:
    strange = decoded(sweep(1024, 2048, kernel=name))
    assert "\x1b" not in render_waves(strange, "table")
    figure = drawn(strange)
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert (box.x0 >= -0.01, box.x1 <= width + 0.01, box.y0 >= 0, box.y1 <= height) == (True,) * 4


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    return CommandLine.at(tmp_path_factory.mktemp("waves"))


def test_a_run_file_is_shown_and_drawn_anywhere(at: CommandLine) -> None:
    file, run = at.folder / "run.jsonl", sweep()
    with RunWriter(file) as writer:
        writer.header(run.header)
        for record in run.records:
            writer.record(record)
    shown = at.within("show", str(file))
    assert shown.code == 0, shown.err
    assert shown.out == render_waves(run, "table", screen=Screen(100))
    target = at.folder / "waves.png"
    assert at.within("show", str(file), "--chart", str(target)).code == 0
    assert target.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (["matmul", "--sizes", "64:256:+64"], "waves need the SM cycles of an NVIDIA GPU"),
        (["matmul", "--tile", "1x1"], "--tile is an option of triton"),
    ],
)
def test_what_has_no_waves_is_refused_at_once(
    at: CommandLine, words: list[str], reported: str
) -> None:
    ended = at.within("waves", *words, *QUICK, "--out", str(at.folder / "bad"))
    assert ended.code in (2, 3)
    assert reported in ended.err
    assert not list((at.folder / "bad").glob("*.jsonl"))
