"""`gpuperf explain` reads, explains, draws and refuses run files."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import CommandLine
from explained_cases import ADD, CALL, ODD, SMALL, TOP
from synthetic import HOSTILE, h200_device, header

from gpuperf.errors import UsageError
from gpuperf.explain.chart import MOST_PANELS, draw_explained
from gpuperf.explain.ladder import STEPS
from gpuperf.explain.study import explain
from gpuperf.explain.table import budgets_of, render_explained
from gpuperf.model.record import Record, Run
from gpuperf.model.workload import Case
from gpuperf.run.runfile import RunWriter


def stored(tmp_path: Path, *records: Record) -> Path:
    path = tmp_path / "run.jsonl"
    with RunWriter(path) as writer:
        writer.header(TOP)
        for record in records:
            writer.record(replace(record, run=TOP.run))
    return path


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    return CommandLine.at(tmp_path_factory.mktemp("explain"))


def test_the_command_line_explains_a_run_file(at: CommandLine, tmp_path: Path) -> None:
    path, drawn = str(stored(tmp_path, SMALL, ODD, ADD)), tmp_path / "x.svg"
    ended = at.within("explain", path, "8191", "--chart", str(drawn))
    assert ended.code == 0, ended.err
    assert "instruction path" in ended.out
    assert "1024" not in ended.out
    assert "first: rows are aligned to 2 bytes only" in ended.out
    assert drawn.stat().st_size > 1000
    rows = json.loads(at.within("explain", path, "--format", "json").out)
    assert len(rows) == 2 * (len(STEPS["compute"]) - 2) + len(STEPS["memory"]) - 2
    assert {row["unit"] for row in rows} == {"FLOP/s", "byte/s"}
    table = csv.DictReader(io.StringIO(at.within("explain", path, "--format", "csv").out))
    assert [row["step"] for row in table][:3] == list(STEPS["compute"][2:5])
    assert at.within("explain", path, "--format", "md").out.count("| step |") == 3


def test_a_case_that_is_not_there_is_refused(at: CommandLine, tmp_path: Path) -> None:
    ended = at.within("explain", str(stored(tmp_path, SMALL)), "4096")
    assert ended.code == 2
    assert "no case contains '4096'" in ended.err
    assert "m=1024" in ended.err


def test_too_many_panels_are_refused(tmp_path: Path) -> None:
    found = [explain(SMALL, TOP)] * (MOST_PANELS + 1)
    with pytest.raises(UsageError, match="too many for a chart"):
        draw_explained(Run(TOP, (SMALL,)), found, [tmp_path / "x.png"])


def test_markup_in_a_run_file_is_printed_as_text(tmp_path: Path) -> None:
    text = HOSTILE
    kernels = tuple(replace(kernel, name=text + str(i)) for i, kernel in enumerate(CALL.kernels))
    case = Case(text, text, {"m": 1024, "n": 1024, "k": 1024, "dtype": "bf16"})
    record = replace(CALL, case=case, kernels=kernels)
    run = Run(replace(TOP, run=text, gpuperf=text), (record,))
    found, _ = budgets_of(run, "")
    for style in ("table", "md", "json", "csv"):
        out = render_explained(found, style)
        assert "\x1b" not in out
        assert "\u202e" not in out
    out = render_explained(found, "md")
    assert "<script" not in out
    assert " | `x`" not in out
    target = tmp_path / "x.svg"
    draw_explained(run, found, [target])
    assert "<script" not in target.read_text()


def test_a_profile_is_not_explained_and_says_what_shows_it(tmp_path: Path) -> None:
    from synthetic_profile import training

    from gpuperf.explain.command import explain as verb

    run = training()
    path = tmp_path / "run.jsonl"
    with RunWriter(path) as writer:
        writer.header(run.header)
        for record in run.records:
            writer.record(record)
    with pytest.raises(UsageError, match="is a profile") as refused:
        verb(path)
    assert "gpuperf show" in refused.value.hint


def test_rows_by_kernels_are_of_profiles_alone(tmp_path: Path) -> None:
    from synthetic_profile import EVENTS

    from gpuperf.showing.command import show
    from gpuperf.verb.options import By

    path = tmp_path / "run.jsonl"
    with RunWriter(path) as writer:
        writer.header(header(h200_device(), EVENTS))
    with pytest.raises(UsageError, match="is not a profile"):
        show(path, by=By.KERNELS)
