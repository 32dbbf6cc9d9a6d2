"""Does what a run says reach every format whole, in the right units, and harmless?"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from golden_text import assert_golden
from hypothesis import given
from hypothesis import strategies as st
from measured import TESTS
from synthetic import (
    HOSTILE,
    copy_run,
    cpu_run,
    crowded_run,
    h200_ceilings,
    h200_peaks,
    h200_run,
    h200_sweep,
    hostile_run,
    matmul,
)

from gpuperf.errors import UnknownName
from gpuperf.model.record import Caveat, Run
from gpuperf.model.samples import Samples
from gpuperf.model.text import clean, shorten
from gpuperf.roofline.formats import render_run
from gpuperf.roofline.rows import rows
from gpuperf.show.render import FORMATS
from gpuperf.show.screen import Screen
from gpuperf.show.text import to_ascii
from gpuperf.units import format_interval


def test_writing_a_golden_file_is_no_success(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys.modules["golden_text"], "GOLDEN", tmp_path)
    monkeypatch.setenv("GPUPERF_GOLDEN", "write")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(AssertionError, match="no place in CI"):
        assert_golden("some.txt", "text")
    assert not (tmp_path / "some.txt").exists()
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.fail.Exception, match=r"some\.txt was written"):
        assert_golden("some.txt", "text")
    monkeypatch.delenv("GPUPERF_GOLDEN")
    assert_golden("some.txt", "text")


@pytest.mark.parametrize("width", [80, 120, 160])
def test_the_table_of_a_sweep_is_the_golden_one(width: int) -> None:
    assert_golden(f"h200_{width}.txt", render_run(h200_run(), "table", Screen(width)))


@pytest.mark.parametrize("format", ["json", "csv", "md"])
def test_each_other_format_of_a_sweep_is_the_golden_one(format: str) -> None:
    assert_golden(f"h200.{format}", render_run(h200_run(), format))


def test_the_tables_of_a_cpu_of_a_copy_and_of_hostile_names_are_the_golden_ones() -> None:
    assert_golden("cpu_120.txt", render_run(cpu_run(), "table", Screen(120)))
    assert_golden("copy_ascii_100.txt", render_run(copy_run(), "table", Screen(100, ascii=True)))
    assert_golden("hostile_160.txt", render_run(hostile_run(), "table", Screen(160)))
    assert_golden("hostile.md", render_run(hostile_run(), "md"))


def test_every_record_is_a_row_with_the_same_keys() -> None:
    found = rows(h200_run())
    assert len(found) == len(h200_run().records)
    assert {tuple(row) for row in found} == {tuple(found[0])}
    assert [r["status"] for r in found[-5:]] == ["oom", "wrong", "skipped", "crashed", "impossible"]
    assert found[7]["reason"] == "needs 103 GB, 24 GB free"
    assert found[7]["time_s"] is None


def test_a_row_holds_si_values_against_known_numbers() -> None:
    """8192³ in 1 ms is 1.0995e15 FLOP/s, 402.7 MB compulsory, 2731 FLOP/byte."""
    run = h200_sweep((8192,))
    samples = Samples((1e-3,) * 30, (1.6e9,) * 30)
    row = rows(replace(run, records=(replace(run.records[0], times={"window": samples}),)))[0]
    assert row["time_s"] == 1e-3
    assert row["flop_per_s"] == pytest.approx(1.0995e15, rel=1e-4)
    assert row["bytes_compulsory"] == 3 * 2 * 8192**2
    assert row["intensity_flop_per_byte"] == pytest.approx(8192 / 3)
    assert row["attainable_flop_per_s"] == pytest.approx(989.4e12)
    assert row["mfu_data_sheet"] == pytest.approx(1.0995e15 / 989.4e12, rel=1e-4)
    assert row["mfu_clock"] == pytest.approx(1.0995e15 / (132 * 4096 * 1.6e9), rel=1e-4)
    assert row["sm_clock_hz"] == 1.6e9
    assert row["power_w"] == 690.0
    assert row["valid"] is False


def test_a_record_that_breaks_physics_is_marked_in_every_format() -> None:
    last = json.loads(render_run(h200_run(), "json"))["rows"][-1]
    assert (last["status"], last["valid"], last["time_s"]) == ("impossible", False, None)
    table = list(csv.DictReader(io.StringIO(render_run(h200_run(), "csv"))))
    assert table[-1]["valid"] == "False"
    assert "impossible: its FLOPs" in render_run(h200_run(), "md")
    for width in (60, 80, 120, 200):
        assert "impossible: its FLOPs" in render_run(h200_run(), "table", Screen(width))


def test_a_record_that_breaks_physics_does_not_raise_the_measured_roof() -> None:
    roofs = json.loads(render_run(h200_run(), "json"))["header"]["roofs"]
    assert 824e12 in [roof["value"] for roof in roofs]


@pytest.mark.parametrize("width", [80, 100, 120, 160, 220])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for run in (h200_run(), cpu_run(), copy_run(), crowded_run()):
        assert max(map(len, render_run(run, "table", Screen(width)).splitlines())) <= width


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_caveats_are_never_dropped_for_want_of_width(width: int) -> None:
    text = render_run(h200_run(), "table", Screen(width))
    assert text.count("throttled") == 3  # two rows and the footnote
    words = " ".join(text.split())
    assert "the power cap held the SM clock below its maximum" in words


def test_what_is_dropped_for_want_of_width_is_named() -> None:
    assert "Not shown" not in render_run(h200_run(), "table", Screen(160))
    text = " ".join(render_run(h200_run(), "table", Screen(80)).split())
    assert "for want of width: clock MHz, MFU @clock, dtype" in text


def test_uncertain_and_derived_ceilings_are_marked_where_they_are_named() -> None:
    run = h200_sweep((1024,))
    fp8 = matmul(run.header, 1024, 5e-6, 1.9e9, dtype="fp8")
    fp32 = matmul(run.header, 1024, 90e-6, 1.9e9, dtype="fp32")
    text = render_run(replace(run, records=(fp8, fp32)), "table", Screen(160))
    assert "fp8 tensor 1980 TFLOP/s?" in text
    assert "fp32 vector ~66.9 TFLOP/s" in text
    assert "marks: ~ derived, ? uncertain" in text


def test_a_cpu_says_of_its_measured_roofs_that_they_are_used_only_if_it_has_some() -> None:
    run = h200_sweep((1024,), h200_ceilings())
    before = "gpuperf has no data sheets of CPUs and uses measured roofs"  # of older files
    for reason in (before, "gpuperf has no data sheets of CPUs"):
        header = replace(run.header, peaks=None, peaks_reason=reason)
        known = render_run(replace(run, header=header), "table", Screen(200))
        assert "no data sheets of CPUs; measured roofs are used" in known
        bare = replace(run, header=replace(header, ceilings=None))
        unknown = render_run(bare, "table", Screen(200))
        assert "measured roofs" not in unknown
        assert "no data sheets of CPUs\n" in unknown
        assert "no ceilings are known for this device" in unknown


def test_without_any_ceilings_the_reason_stands_in_the_caption() -> None:
    run = h200_sweep((1024,))
    bare = replace(run, header=replace(run.header, peaks=None, peaks_reason="no file for it"))
    text = render_run(bare, "table", Screen(120))
    assert "data sheet unknown: no file for it" in text
    assert "`gpuperf calibrate` measures them" in text


def test_a_column_has_one_unit_gflops_on_a_cpu() -> None:
    assert "GFLOP/s" in render_run(cpu_run(), "md").splitlines()[2]
    assert "TFLOP/s" not in render_run(cpu_run(), "md")


def test_an_implementation_column_appears_when_there_are_several() -> None:
    assert "implementation" not in render_run(h200_sweep(), "table", Screen(160))
    assert "implementation" in render_run(crowded_run(), "table", Screen(160))


def test_axes_that_differ_are_written_apart_and_still_ones_go_to_the_caption() -> None:
    run = h200_sweep((1024, 2048))
    first, second = run.records
    points = ({"m": 64, "n": 128, "k": 32, "h": 8}, {"m": 64, "n": 256, "k": 64, "h": 8})
    moved = tuple(
        replace(r, case=replace(r.case, point={**p, "dtype": "bf16"}))
        for r, p in zip((first, second), points, strict=True)
    )
    text = render_run(replace(run, records=moved), "table", Screen(160))
    assert "n×k" in text
    assert "256×64" in text
    assert "m=64, h=8" in text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.996, 1.004, "±0.4 %"),
        (0.998, 1.009, "−0.2/+0.9 %"),
        (0.997, 1.0042, "±0.4 %"),  # nearly even: the wider side, never less than was found
        (0.9996, 1.0004, "±0.04 %"),
        (0.5, 1.6, "±60 %"),
        (0.0, 2.4, "−100/+140 %"),  # no time is below 0
        (0.95, 1.0, "−5.0/+0.00 %"),
        (0.0, 99.0, "−100/+9800 %"),
        (0.0, 102.0, "unknown"),
    ],
)
def test_an_interval_reads_as_it_is(low: float, high: float, text: str) -> None:
    assert format_interval(1.0, low, high) == text


def test_a_sentence_stands_once_and_many_alike_are_counted() -> None:
    run = h200_sweep()
    noisy = tuple(
        replace(r, caveats=(Caveat("noisy", f"the interval is {i} %", "wait"),))
        for i, r in enumerate(run.records)
    )
    text = render_run(replace(run, records=noisy), "table", Screen(160))
    assert text.count("the interval is") == 3
    assert "and 4 more; --format json has all" in text


@pytest.mark.parametrize("format", FORMATS)
def test_hostile_names_reach_no_format_with_their_teeth(format: str) -> None:
    text = render_run(hostile_run(), format)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    if format == "md":
        assert "<script>" not in text
        assert len({line.count(" | ") for line in text.splitlines() if line[:1] == "|"}) == 1


@pytest.mark.parametrize("format", FORMATS)
def test_a_run_without_records_renders(format: str) -> None:
    assert render_run(Run(h200_sweep().header, ()), format).endswith("\n")


def test_colour_adds_escapes_and_changes_no_letter() -> None:
    from rich.text import Text

    coloured = render_run(h200_run(), "table", Screen(120, color=True))
    assert "\x1b[" in coloured
    plain = Text.from_ansi(coloured).plain
    assert plain.rstrip("\n") == render_run(h200_run(), "table", Screen(120)).rstrip("\n")


def test_the_ascii_table_is_ascii() -> None:
    for run in (h200_run(), cpu_run(), hostile_run()):
        assert render_run(run, "table", Screen(120, ascii=True)).isascii()


def test_an_unknown_format_is_an_error_with_a_guess() -> None:
    with pytest.raises(UnknownName, match="did you mean 'json'"):
        render_run(h200_run(), "jsn")


def test_infinities_become_null_in_json() -> None:
    run = h200_sweep((1024,))
    zero = replace(run.records[0], times={"window": Samples((0.0,) * 5)})
    (row,) = json.loads(render_run(replace(run, records=(zero,)), "json"))["rows"]
    assert row["precision"] is None
    assert "0 " in render_run(replace(run, records=(zero,)), "table")


@given(st.text())
def test_clean_text_is_printable_and_clean_again(text: str) -> None:
    once = clean(text)
    assert once.isprintable()
    assert clean(once) == once
    assert to_ascii(once).isascii()
    assert len(shorten(once, 20)) <= 20


def test_control_characters_go_and_words_stay() -> None:
    assert clean("a\tb\nc\x1b[0m\u202e") == "a b c[0m"
    assert "\x1b" not in clean(HOSTILE)


def test_a_table_loads_neither_torch_nor_matplotlib_nor_pandas() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from synthetic import h200_run\n"
        "from gpuperf.roofline.formats import render_run\n"
        "[render_run(h200_run(), f) for f in ('table', 'json', 'csv', 'md')]\n"
        "print([m for m in ('torch', 'matplotlib', 'pandas', 'numpy', 'plotext') "
        "if m in sys.modules])"
    )
    here = str(TESTS)
    done = subprocess.run(
        [sys.executable, "-c", code, here], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_peaks_are_known_by_their_id_in_the_header() -> None:
    header = json.loads(render_run(h200_run(), "json"))["header"]
    assert header["peaks"] == h200_peaks().id
    assert header["device"]["name"] == "NVIDIA H200"
    assert header["problems"] == ["line 14: not JSON"]


def test_a_hint_is_printed_once_and_names_its_rows() -> None:
    """Three rows of one doubt with figures of their own, one row of another doubt."""
    run = h200_run()
    hint = "give --budget more seconds"
    spread = [Caveat("imprecise", f"±{n} % after 9 samples", hint) for n in (4, 5, 6)]
    records = [
        replace(record, caveats=(spread[i],) if i < 3 else ())
        for i, record in enumerate(run.records)
    ]
    text = render_run(replace(run, records=tuple(records)), "md")
    (line,) = [line for line in text.splitlines() if line.startswith("- **imprecise**")]
    sizes = [record.case.point["m"] for record in records[:3]]
    told = "; ".join(f"{m}: ±{n} % after 9 samples" for m, n in zip(sizes, (4, 5, 6), strict=True))
    assert line == f"- **imprecise**: {told} → {hint}"


def test_planned_cases_that_lack_are_counted_below_the_table() -> None:
    run = h200_run()
    cases = [record.case for record in run.records]
    other = replace(cases[0], point={**cases[0].point, "m": 7})
    whole = replace(run, header=replace(run.header, plan=tuple(cases)))
    cut = replace(run, header=replace(run.header, plan=(*cases, other)))
    assert "not measured;" not in render_run(whole, "table", Screen(100))
    said = f"1 of {len(cases) + 1} planned cases were not measured"
    assert said in render_run(cut, "table", Screen(100))
    calibrated = replace(cut, header=replace(cut.header, command=("gpuperf", "calibrate")))
    assert said not in render_run(calibrated, "table", Screen(100))
