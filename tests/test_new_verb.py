"""Does a verb that is registered in one file need no change elsewhere?"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import cpu_run

from gpuperf.cli.verbs import VERBS, Verb, load, register, verb_of
from gpuperf.runner.store import RunWriter

Gpuperf = Callable[..., str]

DUMMY = '''
import pathlib, sys, typer
from gpuperf.cli.verbs import Chart, Verb, register
register(Verb("dummy", "Do next to nothing.", "dummy:dummy", axes=True, tables="dummy:render",
              charts=(Chart("dummy:draw"), Chart("dummy:draw", "-more", "map", shown=True))))

def dummy(ctx: typer.Context, twice: bool = typer.Option(False, "--twice")) -> None:
    """Do next to nothing."""
    sys.stdout.write(f"twice={twice} {ctx.args}\\n")

def render(run, format, screen):
    return f"{len(run.records)} records as {format}\\n"

def draw(run, files):
    for file in files:
        pathlib.Path(file).write_text(run.header.run)

if __name__ == "__main__":
    sys.modules["dummy"] = sys.modules["__main__"]
    from gpuperf.cli.app import main
    main()
'''


@pytest.fixture
def gpuperf(tmp_path: Path) -> Gpuperf:
    (tmp_path / "dummy.py").write_text(DUMMY)

    def run(*words: str) -> str:
        command = [sys.executable, str(tmp_path / "dummy.py"), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
        return done.stdout

    return run


def test_one_file_adds_a_verb_to_the_list_and_the_command_line(
    gpuperf: Gpuperf,
) -> None:
    assert "dummy" in gpuperf("--help")
    assert gpuperf("dummy", "--twice", "--m", "8") == "twice=True ['--m', '8']\n"


def test_its_runs_are_shown_by_its_table_and_its_charts(gpuperf: Gpuperf, tmp_path: Path) -> None:
    run = cpu_run()
    top = replace(run.header, study="dummy")
    with RunWriter(tmp_path / "run.jsonl", fresh=True) as writer:
        writer.header(top)
        writer.record(run.records[0])
    path = str(tmp_path / "run.jsonl")
    assert gpuperf("show", path, "--format", "csv") == "1 records as csv\n"
    gpuperf("show", path, "--chart", str(tmp_path / "chart.png"))
    assert (tmp_path / "chart.png").read_text() == top.run
    assert (tmp_path / "chart-more.png").read_text() == top.run


def test_two_verbs_do_not_share_a_name() -> None:
    with pytest.raises(ValueError, match="two verbs 'show'"):
        register(Verb("show", "another", "x:y"))


def test_a_run_of_a_study_that_is_not_known_is_shown_as_rows() -> None:
    assert verb_of(replace(cpu_run().header, study="weather")).name == "roofline"


def test_every_function_that_a_verb_names_is_there() -> None:
    for verb in VERBS.values():
        charts = [path for chart in verb.charts for path in (chart.draw, chart.fits) if path]
        assert all(callable(load(path)) for path in (verb.command, verb.tables, *charts) if path)
