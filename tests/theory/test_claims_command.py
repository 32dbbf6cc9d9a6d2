"""Run `gpuperf theory claims` with filters, with run files, and with bad input."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine, Ended, assert_refused
from measured import run_file, text_of

from gpuperf.show.render import render
from gpuperf.show.screen import Screen
from gpuperf.theory.claims.query import answer, read_folder
from gpuperf.theory.claims.study import CLAIMS, Choice, study
from gpuperf.theory.claims.table import claims_table

SINCOS = text_of(run_file("h200-compare-sincos"))
CLAIM = ("--id", "000-08")


@pytest.fixture
def command(tmp_path: Path) -> CommandLine:
    """A folder with an empty folder `runs` and a file; no catalogue, since no command needs it."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "file.txt").write_text("a text")
    return CommandLine(tmp_path)


def rows(ended: Ended) -> list[dict[str, Any]]:
    assert ended.code == 0, ended.err
    listed: list[dict[str, Any]] = json.loads(ended.out)
    return listed


def claims(command: CommandLine, *words: str) -> list[dict[str, Any]]:
    return rows(command.within("theory", "claims", "--format", "json", *words))


def keep(command: CommandLine, text: str, name: str = "a.jsonl") -> None:
    (command.folder / "runs" / name).write_text(text)


def test_all_claims_are_listed_in_every_format(command: CommandLine) -> None:
    listed = claims(command)
    assert len(listed) == 140
    table = command.within("theory", "claims").out
    assert table.startswith("claims: What do the notes say, and is it right?\n140 claims: 79 right")
    narrow = render([claims_table(study(Choice()), Choice())], "table", Screen(width=100))
    assert max(map(len, narrow.splitlines())) <= 100
    assert "measured" not in table.splitlines()[3]  # no column without a folder
    csv = command.within("theory", "claims", "--format", "csv").out
    assert csv.count("\n") == 141
    assert csv.startswith("id,notes,quote,check,says,computed,measured,ruling,basis,")
    markdown = command.within("theory", "claims", "--format", "md").out
    assert len(re.findall(r"^\| 00\d-\d\d \|", markdown, re.MULTILINE)) == 140
    assert all({*row} == {*listed[0]} for row in listed)


def test_filters_join_by_commas_and_combine(command: CommandLine) -> None:
    wrong = claims(command, "--ruling", "wrong")
    assert len(wrong) == 24
    assert {row["basis"] for row in wrong} == {"computed"}
    some = claims(command, "--notes", "001,003", "--ruling", "wrong,open")
    assert {row["notes"] for row in some} == {"001", "003"}
    assert {row["ruling"] for row in some} == {"wrong", "open"}
    assert [row["id"] for row in claims(command, "--id", "001-1")] == [
        f"001-1{i}" for i in range(10)
    ]
    assert [row["id"] for row in claims(command, "--id", "000-01,004-34")] == ["000-01", "004-34"]
    known = claims(command, "--basis", "known")
    assert all(row["known_from"] for row in known)
    none = command.within("theory", "claims", "--ruling", "opinion", "--notes", "000")
    assert none.code == 0
    assert "no claim has all of these" in none.out


def test_a_figure_has_its_statement_and_whether_it_agrees(command: CommandLine) -> None:
    (row,) = claims(command, "--id", "000-06")
    assert row["ruling"] == "conditional"
    agreeing = {each["label"] for each in row["figures"] if each["agrees"]}
    assert agreeing == {"A100", "H100", "B200"}
    assert "V100: 7.96 (no)" in row["computed"]
    assert row["measured"] == ""


def test_a_folder_fills_in_what_was_measured(command: CommandLine) -> None:
    keep(command, SINCOS)
    (row,) = claims(command, *CLAIM, "--run", "runs")
    assert [each["value"] for each in row["measured_figures"]] == pytest.approx([5, 11], rel=0.01)
    source = row["measured_figures"][0]["source"]
    assert source == "NVIDIA H200, a.jsonl, sincos/eager[n=268435456,dtype=fp32]"
    (decided,) = claims(command, "--id", "000-09", "--run", "runs/a.jsonl")
    assert (decided["ruling"], decided["basis"]) == ("right", "measured")
    (empty,) = claims(command, "--id", "004-27", "--run", "runs")
    assert (empty["measured"], empty["basis"]) == ("", "known")
    table = command.within("theory", "claims", *CLAIM, "--run", "runs").out
    assert "passes: 11.0" in table
    assert "1 of 1 claims, from 7 records of runs" in table


def test_the_largest_record_is_taken_and_partners_share_run_and_contract(
    command: CommandLine,
) -> None:
    small = SINCOS.replace("268435456", "1048576").replace('"count":1,', '"count":3,')
    keep(command, SINCOS + re.sub(r'"run":"[^"]*"', '"run":"other"', small))
    (row,) = claims(command, *CLAIM, "--run", "runs")
    assert row["measured_figures"][0]["value"] == 5
    is_header = '"type":"header"'
    lines = [x for x in SINCOS.splitlines() if is_header in x or '"triton"' not in x]
    keep(command, "\n".join([*lines, ""]))
    (row,) = claims(command, "--id", "004-01", "--run", "runs")
    assert row["measured"] == ""  # nothing to divide by


def broken(times: str) -> str:
    """Replace every sample of the run by *times*."""
    return re.sub(r'"values_s":\[[^\]]*\]', f'"values_s":[{times}]', SINCOS)


@pytest.mark.parametrize(
    "text",
    [
        SINCOS.replace('"kind":"cuda"', '"kind":"cpu"'),  # another device
        SINCOS.replace('"status":"ok"', '"status":"wrong"'),
        SINCOS.replace('"op":"sincos"', '"op":"other"'),
        SINCOS.splitlines()[1] + "\n",  # no record
        re.sub(r'"counters":\{[^}]*\}', '"counters":{}', SINCOS).replace('"count":', '"was":'),
    ],
    ids=["cpu", "wrong", "other", "header", "no counters"],
)
def test_records_that_do_not_fit_leave_the_cell_empty(command: CommandLine, text: str) -> None:
    keep(command, text)
    (row,) = claims(command, "--id", "004-01", "--run", "runs")
    assert row["measured"] == ""
    assert row["ruling"] == "right"


def test_impossible_values_are_no_figures(command: CommandLine) -> None:
    for times in ("0.0", "0.0,0.0", ""):
        keep(command, broken(times), f"{len(times)}.jsonl")
    zero = re.sub(r'"dram_(read|written)_bytes":[\d.]+', r'"dram_\1_bytes":0.0', SINCOS)
    keep(command, zero, "zero.jsonl")
    for row in claims(command, "--run", "runs"):
        for figure in row["measured_figures"]:
            assert figure["value"] > 0


def test_files_that_are_no_runs_are_named_and_the_others_read(command: CommandLine) -> None:
    folder = command.folder / "runs"
    keep(command, SINCOS)
    keep(command, "not a run\n", "b.jsonl")
    keep(command, SINCOS[: len(SINCOS) // 2], "cut.jsonl")
    (folder / "c.jsonl.gz").write_bytes(b"\x1f\x8bnot gzip")
    (folder / "d.jsonl").mkdir()
    os.mkfifo(folder / "e.jsonl")
    (folder / "f.jsonl").symlink_to("nowhere")
    keep(command, "ignored", "notes.txt")
    ended = command.within("theory", "claims", *CLAIM, "--run", "runs")
    assert ended.code == 0, ended.err
    assert "passes: 11.0" in ended.out
    for name in ("b.jsonl", "c.jsonl.gz", "d.jsonl", "e.jsonl", "f.jsonl"):
        assert f"runs/{name} " in ended.out
    assert "notes.txt" not in ended.out


def test_text_of_a_run_file_cannot_paint_the_screen(command: CommandLine) -> None:
    keep(command, SINCOS.replace("NVIDIA H200", "\\u001b[31mred"))
    ended = command.within("theory", "claims", *CLAIM, "--run", "runs", "--format", "json")
    assert ended.code == 0, ended.err
    assert "\x1b" not in ended.out
    assert "\\u001b" not in ended.out


@pytest.mark.parametrize(
    ("words", "sentence", "hint"),
    [
        (("--ruling", "rong"), "no ruling 'rong'; did you mean 'wrong'", "known: conditional"),
        (("--notes", "005"), "no notes '005'", "known: 000"),
        (("--basis", "compute"), "no basis 'compute'; did you mean 'computed'", "known"),
        (("--id", "001-99"), "no claim '001-99'; did you mean '001-", "known: 000-01"),
        (("--rulin", "wrong"), "no option '--rulin'; did you mean '--ruling'", "options of claims"),
        (("--ruling",), "--ruling needs a value", "for example"),
        (("--ruling", "wrong", "--ruling", "open"), "--ruling is given twice", "commas join"),
        (("more",), "unexpected argument 'more'", "--notes 001"),
        (("--device", "h200-sxm"), "claims take no --device", "own devices"),
        (("--chart", "a.png"), "claims take no --chart", "own devices"),
        (("--run", "nowhere"), "--run nowhere cannot be read: No such file", "gpuperf compare"),
        (("--run", "runs"), "runs has no run files", "gpuperf compare"),
        (("--run", "file.txt"), "no run file that can be read", "gpuperf compare"),
        (("--run", "a\0b"), "cannot be read", "gpuperf compare"),
        (("--run", ""), "--run names no folder", "gpuperf-runs"),
    ],
)
def test_bad_input_is_one_sentence_and_a_hint(
    command: CommandLine, words: tuple[str, ...], sentence: str, hint: str
) -> None:
    assert_refused(command.within("theory", "claims", *words), 2, sentence, hint)


def test_a_folder_of_broken_files_alone_is_refused(command: CommandLine) -> None:
    keep(command, "{}\n")
    keep(command, "\n", "b.jsonl")
    ended = command.within("theory", "claims", "--run", "runs")
    assert_refused(ended, 2, "runs has no run file that can be read: .*a.jsonl", "gpuperf compare")


def test_a_folder_that_may_not_be_read_is_refused(command: CommandLine) -> None:
    if os.geteuid() == 0:
        pytest.skip("needs a user whose permissions count")
    (command.folder / "runs").chmod(0)
    ended = command.within("theory", "claims", "--run", "runs")
    (command.folder / "runs").chmod(0o755)
    assert_refused(ended, 2, "cannot be read: Permission denied", "gpuperf compare")


def test_the_help_lists_the_options_of_claims(command: CommandLine) -> None:
    out = " ".join(command.within("theory", "claims", "--help").out.split())
    assert "Options of claims: --notes (notes of the claims: 000 to 004), --id" in out


def test_a_run_of_the_lab_is_asked_by_its_study(command: CommandLine) -> None:
    lab = SINCOS.replace('"seed":', '"study":"lab:fusion","seed":', 1)
    keep(command, lab, "lab.jsonl")
    measured, _ = read_folder(command.folder / "runs")
    (claim,) = (claim for claim in CLAIMS if claim.id == "000-09")
    for kind, count in (("lab:fusion", 1), ("lab:latency", 0), ("", 1)):
        asked = replace(claim, queries=(replace(claim.queries[0], study=kind),))
        assert len(answer(asked, measured)) == count
