"""What is said of sizes off the grid: the classes, the loss, the better size, and the words."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from command_line import QUICK, CommandLine
from hypothesis import given
from hypothesis import strategies as st
from synthetic import HOSTILE, decoded, h200_device, h200_peaks, header, matmul

from gpuperf.alignment import chart
from gpuperf.alignment.study import groups
from gpuperf.alignment.table import render_alignment
from gpuperf.errors import UsageError
from gpuperf.model.contract import Contract
from gpuperf.model.record import Kernel, Record, Run
from gpuperf.model.samples import Samples
from gpuperf.model.workload import Case
from gpuperf.run.store import read_run
from gpuperf.show import figure as show
from gpuperf.show.axes import moved_axes
from gpuperf.tiles.alignment import alignment_of, nearby
from gpuperf.tiles.names import main_kernel

TOP = replace(header(h200_device(), Contract("blocked"), h200_peaks()), study="alignment")
FAST = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
SLOW = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_nn_align1>(x)"


def sized(n: int, per_s: float, kernel: str = FAST, **changes: Any) -> Record:
    """A matmul n³ in bf16 at so many FLOP/s, without noise worth a word."""
    kernels = (Kernel("Memset (Device)"), Kernel(kernel))
    return matmul(TOP, n, 2 * n**3 / per_s, 1.7e9, kernels=kernels, **changes)


def study(sizes: range = range(4032, 4161)) -> Run:
    """Off 16 bytes a fifth of the speed, and a tenth lost off 128; speed grows with the size."""
    records = []
    for n in sizes:
        whole = 700e12 * n / 4096
        per_s = whole if n % 64 == 0 else 0.9 * whole if n % 8 == 0 else 0.2 * whole
        records.append(sized(n, per_s, FAST if n % 8 == 0 else SLOW))
    return Run(TOP, tuple(records))


def vocabulary(times: Mapping[int, float]) -> Run:
    records = tuple(
        replace(
            matmul(TOP, 1024, time_s, 1.7e9),
            case=Case("matmul", "torch", {"m": 8192, "n": n, "k": 768, "dtype": "bf16"}),
        )
        for n, time_s in times.items()
    )
    return Run(replace(TOP, asked=(50257,)), records)


@given(st.integers(1, 2**20), st.sampled_from(["bf16", "fp32", "fp8", "fp64"]))
def test_alignment_is_the_largest_power_of_two_that_divides_a_row(n: int, dtype: str) -> None:
    row = n * {"bf16": 2, "fp32": 4, "fp8": 1, "fp64": 8}[dtype]
    assert alignment_of(n, dtype) == max(2**i for i in range(8) if row % 2**i == 0)


def test_sizes_nearby_are_those_on_the_grid() -> None:
    assert nearby(50257) == (50257, 50260, 50264, 50272, 50304, 50432)
    assert nearby(4096) == (4096, 4352)


def test_loss_is_of_the_alignment_and_not_of_the_size() -> None:
    (group,) = groups(study())
    classes = {each.alignment: each for each in group.classes}
    assert sorted(classes) == [2, 4, 8, 16, 32, 64, 128]
    assert classes[128].loss is None
    assert classes[128].count == 3
    for alignment in (16, 32, 64):
        assert classes[alignment].loss == pytest.approx(0.1, abs=0.01)
        assert classes[alignment].kernels == ((FAST, classes[alignment].count),)
    for alignment in (2, 4, 8):
        assert classes[alignment].loss == pytest.approx(0.8, abs=0.01)
        assert classes[alignment].kernels == ((SLOW, classes[alignment].count),)
    assert sum(each.count for each in classes.values()) == 129


def test_without_a_well_aligned_size_the_best_there_is_is_the_reference() -> None:
    (group,) = groups(study(range(4097, 4112)))
    assert [each.loss is None for each in group.classes] == [False, False, False, True]
    assert group.classes[0].loss == pytest.approx(1 - 0.2 / 0.9, abs=0.01)


def test_the_matmul_among_several_kernels_is_the_main_one() -> None:
    record = replace(sized(64, 1e12), kernels=(Kernel("Memset"), Kernel("pad"), Kernel(FAST)))
    assert main_kernel(record) == FAST
    assert main_kernel(replace(record, kernels=())) == ""


def test_the_cheapest_of_sizes_as_good_is_suggested_with_its_gain() -> None:
    times = {50257: 2e-3, 50260: 1.9e-3, 50264: 1.4e-3, 50272: 1.004e-3, 50304: 1e-3, 50432: 1.1e-3}
    (group,) = groups(vocabulary(times))
    found = group.suggest(50257)
    assert found is not None
    assert found.better is not None
    assert found.gain is not None
    assert found.better.elements == 50272
    assert found.gain.value == pytest.approx(2 / 1.004, rel=0.01)
    assert found.gain.low is not None
    assert found.gain.low < found.gain.value


def test_no_size_is_suggested_where_none_is_faster() -> None:
    (group,) = groups(vocabulary({50257: 1e-3, 50264: 1.0005e-3, 50304: 1.2e-3}))
    found = group.suggest(50257)
    assert found is not None
    assert found.better is None
    assert group.suggest(50264) is not None
    assert group.suggest(1000) is None


def test_the_varied_axes_are_detected_or_refused() -> None:
    assert moved_axes(study()) == (("m", "n", "k"), ())
    for records in ((sized(64, 1e12),), ()):
        with pytest.raises(UsageError, match="no axis varies"):
            moved_axes(Run(TOP, records))


def test_a_run_that_was_cut_short_is_of_its_plan() -> None:
    run = study()
    begun = replace(
        run,
        header=replace(run.header, plan=tuple(r.case for r in run.records)),
        records=run.records[:1],
    )
    assert moved_axes(begun) == (("m", "n", "k"), ())
    assert str(run.records[0].case.point["n"]) in render_alignment(begun, "csv")


def test_other_axes_that_vary_make_groups_of_their_own() -> None:
    def at(n: int, k: int) -> Record:
        case = Case("matmul", "torch", {"m": 8192, "n": n, "k": k, "dtype": "bf16"})
        return replace(matmul(TOP, 1024, (2e-3 if n % 8 else 1e-3) * k / 768, 1.7e9), case=case)

    sizes = (50257, 50264, 50304)
    run = Run(replace(TOP, asked=sizes[:1]), tuple(at(n, k) for k in (768, 4096) for n in sizes))
    assert moved_axes(run) == (("n",), ("k",))
    assert [group.where for group in groups(run)] == ["k=768", "k=4096"]
    lines = [line for line in render_alignment(run, "table").splitlines() if "50264" in line]
    assert ["k=768" in lines[0], "k=4096" in lines[1]] == [True, True]
    assert {row["where"] for row in json.loads(render_alignment(run, "json"))} == {
        "k=768",
        "k=4096",
    }
    assert len(drawn(run).axes) == 2


def test_the_table_says_what_is_lost_and_by_which_kernel() -> None:
    text = render_alignment(study(), "table")
    line = next(line for line in text.splitlines() if line.startswith("2 "))
    assert "64" in line.split()
    assert "80.0 %" in line
    assert "align1" in line
    assert next(line for line in text.splitlines() if line.startswith("128 +")).count("–") == 1


def test_a_suggestion_is_printed_with_its_interval() -> None:
    text = render_alignment(vocabulary({50257: 2e-3, 50264: 1.5e-3, 50304: 1e-3}), "table")
    line = next(line for line in text.splitlines() if line.startswith("50257"))
    assert "50304" in line
    assert "+100" in line or "+99" in line
    assert "0.094 %" in line
    none = render_alignment(vocabulary({50257: 1e-3, 50264: 1.1e-3}), "table")
    assert "none surely" in none


def test_json_and_csv_have_a_row_a_size() -> None:
    run = study(range(4090, 4100))
    rows = json.loads(render_alignment(run, "json"))
    assert [row["elements"] for row in rows] == list(range(4090, 4100))
    assert rows[6]["row_alignment_bytes"] == 128
    assert rows[6]["axis"] == "m=n=k"
    table = list(csv.DictReader(io.StringIO(render_alignment(run, "csv"))))
    assert [int(row["elements"]) for row in table] == list(range(4090, 4100))
    assert "| 2 |" in render_alignment(run, "md")


def test_a_case_without_a_time_is_listed_below() -> None:
    run = study(range(4090, 4100))
    lost = matmul(TOP, 4100, None, status="oom", reason="needs 9 GB")
    text = render_alignment(replace(run, records=(*run.records, lost)), "table")
    assert "oom: needs 9 GB" in text
    assert render_alignment(replace(run, records=(lost,)), "table").count("oom: needs 9 GB") == 1
    assert json.loads(render_alignment(replace(run, records=(lost,)), "json")) == []


def test_absurd_numbers_in_a_run_file_are_left_out() -> None:
    run = study(range(4090, 4100))
    first = run.records[0]

    def point(**changes: Any) -> Record:
        return replace(first, case=replace(first.case, point={**first.case.point, **changes}))

    absurd = (
        point(m=2**64, n=2**64, k=2**64),
        point(dtype="bf17"),
        point(m="x", n="x", k="x"),
        replace(first, cost=None),
        replace(first, times={"window": Samples((1e-300,) * 3)}),
    )
    for record in absurd:
        strange = replace(run, records=(record, *run.records))
        for form in ("table", "md", "csv", "json"):
            render_alignment(strange, form)
        reported = json.loads(render_alignment(strange, "json"), parse_constant=pytest.fail)
        if record.case.point["m"] == "x":  # no axis of numbers is left to be swept
            assert reported == []
        else:
            assert [row["elements"] for row in reported] == list(range(4090, 4100))
            drawn(strange)


def test_a_gain_that_no_interval_bears_out_is_none() -> None:
    run = vocabulary({50257: 1.001e-3, 50264: 1e-3})
    one = tuple(
        replace(r, times={"window": Samples((r.samples.median_s,))})  # type: ignore[union-attr]
        for r in run.records
    )
    (group,) = groups(replace(run, records=one))
    found = group.suggest(50257)
    assert found is not None
    assert found.better is None


def drawn(run: Run) -> Any:
    kept: list[Any] = []
    with pytest.MonkeyPatch.context() as patch, matplotlib.rc_context(show.rc_parameters()):
        patch.setattr(show, "save_figure", lambda figure, *_: kept.append(figure))
        chart.draw_alignment(run, [Path("x.svg")])
        kept[0].draw_without_rendering()
    return kept[0]


def test_the_chart_has_a_dot_a_size_and_a_colour_an_alignment() -> None:
    run = study()
    (axes,) = drawn(run).axes
    dots = [line for line in axes.lines if line.get_linestyle() == "None"]
    assert sum(len(line.get_xdata()) for line in dots) == len(run.records)
    assert len({line.get_color() for line in dots}) == 7
    said = [text.get_text() for text in axes.get_legend().get_texts()]
    assert said == ["2 B", "4 B", "8 B", "16 B", "32 B", "64 B", "128 B +"]
    lines = [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == "-"]
    assert {x for x in lines if x % 8} == set()
    assert {4032, 4096, 4160} <= set(lines)
    assert axes.get_ylabel() == "TFLOP/s"


@pytest.mark.parametrize("text", [HOSTILE, "x" * 5000, "$\\frac$", ""])
def test_strange_names_are_drawn_within_the_picture(text: str) -> None:
    run = study(range(4090, 4100))
    records = tuple(
        replace(r, kernels=(Kernel(text),), case=replace(r.case, implementation=text))
        for r in run.records
    )
    strange = decoded(replace(run, records=records))
    assert "\x1b" not in render_alignment(strange, "table")
    figure = drawn(strange)
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert box.x0 >= -0.01
    assert box.x1 <= width + 0.01
    assert 0 <= box.y0 <= box.y1 <= height + 0.01


def test_a_run_without_a_time_is_not_drawn() -> None:
    lost = [matmul(TOP, n, None, status="oom") for n in (64, 65)]
    with pytest.raises(UsageError, match="no size has a time"):
        drawn(Run(TOP, tuple(lost)))


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    return CommandLine.at(tmp_path_factory.mktemp("alignment"))


def test_one_axis_is_moved_and_shown_again(at: CommandLine) -> None:
    ended = at.within(
        "alignment",
        "matmul",
        "--axis",
        "n",
        "--n",
        "64",
        "--m",
        "16",
        "--k=16",
        "--offsets",
        "-2:2:+1",
        *QUICK,
        "--out",
        str(at.folder / "one"),
    )
    assert ended.code == 0, ended.err
    assert "row, bytes" in ended.out
    (path,) = (at.folder / "one").glob("*.jsonl")
    run = read_run(path)
    assert [r.case.point["n"] for r in run.records] == [62, 63, 64, 65, 66]
    assert {r.case.point["m"] for r in run.records} == {16}
    assert path.with_suffix(".png").stat().st_size > 10_000
    again = at.within("show", str(path))
    assert again.out == ended.out
    target = at.folder / "again.svg"
    assert at.within("show", str(path), "--chart", str(target)).code == 0
    assert "row divisible by" in target.read_text()
    assert (
        at.within("show", str(path), "--chart", str(target), "--intensity", "compulsory").code == 0
    )
    assert "arithmetic intensity" in target.read_text() or "bandwidth" in target.read_text()


def test_a_better_size_is_sought_for_each_asked(at: CommandLine) -> None:
    ended = at.within(
        "alignment",
        "matmul",
        "--axis",
        "n",
        "--m",
        "16",
        "--k",
        "16",
        "--suggest",
        "61,250",
        *QUICK,
        "--out",
        str(at.folder / "two"),
    )
    assert ended.code == 0, ended.err
    assert [line.split()[0] for line in ended.out.splitlines()[2:4]] == ["61", "250"]


@pytest.mark.parametrize(
    ("words", "reported", "hint"),
    [
        (["--sizes", "16", "--offsets", "-64:64:+1"], "a size of -48, below 1", "larger size"),
        (["--offsets", "1,2"], "--sizes has no size to add offsets to", "--sizes 4096"),
        (["--sizes", "64", "--offsets", "0"], "only one is given", "--offsets -64:64:+1"),
        (["--axis", "n", "--n", "64", "--n=128", "--offsets", "0"], "--n is given twice", "once"),
        (["--axis", "n", "--n", "64", "--suggest", "61"], "--suggest sets --n itself", "leave --n"),
        (["--axis", "n", "--offsets", "1,2"], "--n has no size", "--n 4096"),
        (
            ["--axis", "dtype", "--offsets", "1"],
            "dtype is not an axis of sizes",
            "for example --axis n",
        ),
        (["--axis", "j", "--j", "4096"], "no axis of matmul 'j'", "k, m, n"),
        (["--sizes", "64", "--offsets", "x"], "--offsets: 'x' is not", "--offsets -64:64:+1"),
        (["--sizes", "64", "--offsets", "0", "--suggest", "64"], "takes its sizes itself", "leave"),
        (["--suggest", "0"], "--suggest: 0 in '0' is below 1", ""),
        (["--suggest", "1:100:+1"], "100 sizes, and takes 50", "fewer"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(
    at: CommandLine, words: list[str], reported: str, hint: str
) -> None:
    ended = at.within("alignment", "matmul", *words, *QUICK, "--out", str(at.folder / "bad"))
    assert ended.code == 2, ended.err
    assert reported in ended.err
    assert hint in ended.err


def test_a_suggestion_is_in_the_rows_too() -> None:
    def at(n: int) -> Record:
        case = Case("matmul", "torch", {"m": 8192, "n": n, "k": 768, "dtype": "bf16"})
        return replace(matmul(TOP, 1024, 2e-3 if n % 8 else 1e-3, 1.7e9), case=case)

    run = Run(replace(TOP, asked=(50257,)), tuple(map(at, (50257, 50264, 50304))))
    rows = json.loads(render_alignment(run, "json"))
    assert [row["better"] for row in rows] == [50264, None, None]
    assert rows[0]["gain"] == pytest.approx(2)


def test_uncertain_times_get_a_note() -> None:
    wild = Samples((1e-3, 9e-3, 1e-3, 7e-3))
    run = study()
    first = replace(run.records[0], times={"window": wild})
    noisy = replace(run, records=(first, *run.records[1:]))
    assert "are uncertain" in render_alignment(noisy, "table")
    assert "are uncertain" not in render_alignment(run, "table")
