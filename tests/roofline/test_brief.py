"""The first look at a run fits 100 columns and 45 lines, and hides no caveat."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from measured import ROOT, TESTS, run_file

from gpuperf.errors import UnknownName
from gpuperf.model.record import Run
from gpuperf.roofline.brief import brief, chosen_columns, render_brief, roofline_below
from gpuperf.roofline.rows import entries_of
from gpuperf.roofline.table import sheet
from gpuperf.run.store import read_run
from gpuperf.show.screen import WIDE, Screen

GOLDEN = TESTS / "golden"
MEASURED = ROOT / "docs" / "measured"
OTHERS = ("profile", "import", "noise", "timing", "suggest", "calibrate")
RUNS = [
    file
    for file in sorted(MEASURED.glob("h200-*.jsonl.gz"))
    if not any(word in file.name for word in OTHERS)
]


def shown_of(run: Run) -> str:
    """What `gpuperf show` prints of *run*."""
    table = render_brief(run, WIDE)
    return table + roofline_below(run, WIDE, "compulsory", table.count("\n"))


def measured(name: str) -> Run:
    return read_run(MEASURED / f"h200-{name}.jsonl.gz")


@pytest.mark.parametrize("file", RUNS, ids=lambda file: file.name)
def test_a_first_look_has_100_columns_at_the_most(file: Path) -> None:
    shown = shown_of(read_run(file))
    assert max(map(len, shown.splitlines())) <= 100


def test_the_main_job_of_a_gpu_is_45_lines_with_its_roofline() -> None:
    shown = shown_of(measured("matmul-bf16"))
    assert shown.count("\n") <= 45
    assert "data sheet: DRAM 4.80 TB/s, bf16 tensor 989 TFLOP/s, ridge 206 FLOP/byte" in shown
    for head in ("time", "interval", "attained", "moved", "AI", "of roof", "MFU", "bound by"):
        assert head in shown


@pytest.mark.parametrize("name", ["matmul-bf16", "compare-attention", "matmul-sustained"])
def test_every_caveat_has_a_mark_and_one_line(name: str) -> None:
    run = measured(name)
    table = brief(run)
    kinds = {caveat.kind for entry in entries_of(run) for caveat in entry.caveats}
    lines = [text for _, text in table.footnotes]
    assert {line.split(" ")[1].rstrip(":") for line in lines} == kinds
    assert max(map(len, lines)) <= 100
    marks = "".join(table.columns[-1].cells)
    assert set(marks) == {line[0] for line in lines}


def test_rows_in_a_row_are_named_by_the_first_and_the_last() -> None:
    (_, first), (_, second) = brief(measured("matmul-bf16")).footnotes
    assert first.startswith("a launch-bound (128 to 1024): CUDA graphs")
    assert second.startswith("b slowed (2048 to 8192): ")


def test_a_comparison_keeps_speed_up_and_bytes_before_rates() -> None:
    shown = render_brief(measured("compare-attention"), Screen(100))
    head = shown.splitlines()[2]
    assert [word in head for word in ("speed-up", "moved", "of roof", "bound by")] == [True] * 4
    assert "attained" not in head
    assert "over eager" in shown.splitlines()[0]


def test_columns_are_chosen_by_their_heads() -> None:
    table = sheet(measured("matmul-bf16"))
    heads = [(c.head, c.unit) for c in chosen_columns(table, ["clock", "mfu-@clock"]).columns]
    assert heads[-2:] == [("clock", "MHz"), ("MFU", "@clock %")]
    assert heads[0] == ("m=n=k", "")
    assert chosen_columns(table, ["all"]) is table
    with pytest.raises(UnknownName, match="no column 'clok'"):
        chosen_columns(table, ["clok"])


def test_a_row_without_a_time_keeps_its_hint_whole() -> None:
    run = read_run(GOLDEN / "run_schema_9.jsonl")
    hints = [record.hint for record in run.records if record.hint]
    shown = " ".join(render_brief(run, WIDE).split())
    assert hints
    assert all(" ".join(hint.split()) in shown for hint in hints)


def test_a_mark_of_an_uncertain_roof_is_explained() -> None:
    run = measured("matmul-bf16")
    assert "uncertain" not in render_brief(run, WIDE)
    peaks = run.header.peaks
    assert peaks is not None
    figures = {name: replace(one, status="uncertain") for name, one in peaks.figures.items()}
    header = replace(run.header, peaks=replace(peaks, figures=figures))
    assert "? uncertain" in render_brief(replace(run, header=header), WIDE)


def test_a_caveat_of_collectives_is_whole_and_names_what_varies() -> None:
    """Long names of rows made room for three words of the hint, and were alike."""
    lines = [
        text for _, text in brief(read_run(MEASURED / "h100x2-collectives.jsonl.gz")).footnotes
    ]
    assert lines[0] == (
        "a cache-resident (42 rows): --cache cold flushes the cache before each sample"
    )
    assert lines[2].startswith("c imprecise (bytes=65536 all_reduce/nccl in_place=no and 29 more)")
    assert not any("…" in line for line in lines)


def test_many_cases_skipped_for_one_reason_are_a_note() -> None:
    run = read_run(MEASURED / "h100x2-collectives.jsonl.gz")
    reason = {"status": "skipped", "reason": "it runs on NVIDIA GPUs", "times": {}, "primary": ""}
    records = [replace(r, **reason) if r.case.implementation == "nccl" else r for r in run.records]
    some = sheet(replace(run, records=tuple(records)))
    assert (some.notes[0][0], some.notes[0][1][-22:]) == ("Skipped", "it runs on NVIDIA GPUs")
    assert some.notes[0][1].startswith("70 cases of all_reduce/nccl, all_gather/nccl, ")
    assert some.height == len(records) - 70
    none = brief(replace(run, records=tuple(replace(r, **reason) for r in run.records)))
    assert (none.lead, none.height) == (("every case was skipped",), 0)
    few = replace(run, records=tuple(replace(r, **reason) for r in run.records[:10]))
    assert brief(few).height == 10


def test_a_share_of_the_roof_by_more_bytes_than_were_moved_is_explained() -> None:
    """Quantized weights are half of the bf16 weights that the roof of a block counts."""
    for name, noted in (("h200-compare-block-decode", True), ("h200-compare-block-prefill", False)):
        text = " ".join(render_brief(read_run(run_file(name)), Screen(100)).split())
        note = "ours moved 0.51 times those, so its share of the bandwidth is 0.51 times this one"
        assert (note in text) is noted
