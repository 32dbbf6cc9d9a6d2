"""Every table fits the width and the encoding of the stdout that it is printed to."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from measured import run_file, text_of

from gpuperf import app
from gpuperf.show.render import render
from gpuperf.show.screen import Screen, stdout_screen
from gpuperf.show.table import Column, Table, fill, notes_of
from gpuperf.show.terminal import to_terminal

SHOWN = {
    "alignment": ("show", "h200-suggest"),
    "waves": ("show", "h200-waves-triton"),
    "profile": ("show", "h200-profile-eager"),
    "timing": ("show", "h200-timing-check"),
    "compare": ("show", "h200-compare-softmax-4k"),
    "explain": ("explain", "h200-explain-matmul"),
}
NAMES = ("case", "detail", "time", "rare")
COLUMNS = (
    Column("case", left=True),
    Column("detail", left=True, wrap=10),
    Column("time", "ms"),
    Column("rare", keep=1),
)


def printed(
    monkeypatch: pytest.MonkeyPatch, encoding: str, *words: object, columns: int = 0
) -> str:
    """Return what the command line prints to a stdout of this *encoding*."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "argv", ["gpuperf", *map(str, words)])
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    if columns:
        monkeypatch.setenv("COLUMNS", str(columns))
    assert app._guarded(app._run) == 0
    sys.stdout.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("format", ["table", "md", "csv", "json"])
@pytest.mark.parametrize("study", SHOWN)
def test_a_stdout_of_ascii_gets_ascii(
    monkeypatch: pytest.MonkeyPatch, study: str, format: str
) -> None:
    verb, name = SHOWN[study]
    command = (verb, run_file(name), "--format", format)
    text = printed(monkeypatch, "ascii", *command)
    assert text
    if format == "json":
        assert json.loads(text) == json.loads(printed(monkeypatch, "utf-8", *command))


@pytest.mark.parametrize("format", ["table", "md", "csv", "json"])
def test_a_history_and_the_devices_are_printed_to_a_stdout_of_ascii(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, format: str
) -> None:
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "a.jsonl").write_text(text_of(run_file("h200-vector-add")))
    folder = ("--folder", tmp_path / "runs", "--format", format)
    assert "vector" in printed(monkeypatch, "ascii", "history", "list", *folder)
    for device in ((), ("h200-sxm",)):
        shown = printed(monkeypatch, "ascii", "devices", *device, "--format", format)
        assert "4800" in shown.replace("4800000000000.0", "4800")


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("study", [study for study in SHOWN if study != "compare"])
def test_a_table_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch, study: str, columns: int
) -> None:
    verb, name = SHOWN[study]
    text = printed(monkeypatch, "utf-8", verb, run_file(name), columns=columns)
    assert max(map(len, text.splitlines())) <= columns


def table(**more: object) -> Table:
    cells = [["copy", "some words of a sentence", "12.5", "1"], ["matmul", "few", "3", "2"]]
    return Table(fill(COLUMNS, cells), rows=[{"case": "copy"}], names=("case",), **more)  # type: ignore[arg-type]


def test_words_wrap_before_a_column_goes_and_numbers_never_do() -> None:
    assert to_terminal(table(), Screen(80)).splitlines() == [
        "case    detail                    time  rare",
        "                                    ms",
        "──────  ────────────────────────  ────  ────",
        "copy    some words of a sentence  12.5     1",
        "matmul  few                          3     2",
    ]
    assert to_terminal(table(), Screen(34)).splitlines()[3:5] == [
        "copy    some words of   12.5     1",
        "        a sentence",
    ]
    narrow = to_terminal(table(), Screen(24))
    note = "not shown for want of width: rare; --format json has all"
    assert " ".join(narrow.split()).endswith(note)
    assert "12.5" in narrow


def test_a_failure_and_the_details_of_a_row_are_under_it() -> None:
    columns = fill((Column("case", left=True, identity=True), Column("time")), [["a", ""]])
    failed = Table(columns, failures=("oom: needs 9 GB",), details=(("because",),))
    lines = to_terminal(failed, Screen(80)).splitlines()
    assert lines[2:] == ["a     oom: needs 9 GB", "    because"]
    assert "**oom: needs 9 GB**" in render([failed], "md")


def test_without_rows_there_are_notes_alone_and_csv_has_its_head() -> None:
    empty = Table(fill(COLUMNS, []), notes=notes_of("there are none"), names=NAMES)
    assert render([empty], "table") == "there are none\n"
    assert render([empty], "csv") == "case,detail,time,rare\n"
    assert json.loads(render([empty], "json")) == []


def test_a_stdout_that_is_no_terminal_has_100_columns_and_no_colour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="latin-1"))
    assert stdout_screen() == Screen(100, color=False, ascii=True)
    monkeypatch.setenv("COLUMNS", "90")
    assert stdout_screen().width == 90
