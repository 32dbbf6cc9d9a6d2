"""Does a verb whose folder is new need no change elsewhere?"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from synthetic import cpu_run

from gpuperf.run.runfile import RunWriter
from gpuperf.verb import registry
from gpuperf.verb.registry import verb_of, verbs
from gpuperf.verb.verb import load

Gpuperf = Callable[..., str]

DUMMY = {
    "__init__": """
from gpuperf.verb.verb import Chart, Verb
HERE = "gpuperf.dummy.command"
VERB = Verb("dummy", "Do next to nothing.", f"{HERE}:dummy", axes=True, tables=f"{HERE}:render",
            charts=(Chart(f"{HERE}:draw"), Chart(f"{HERE}:draw", "-more", "map", shown=True)))
""",
    "command": '''
import pathlib, sys, typer

def dummy(ctx: typer.Context, twice: bool = typer.Option(False, "--twice")) -> None:
    """Do next to nothing."""
    sys.stdout.write(f"twice={twice} {ctx.args}\\n")

def render(run, format, screen):
    return f"{len(run.records)} records as {format}\\n"

def draw(run, files):
    for file in files:
        pathlib.Path(file).write_text(run.header.run)
''',
}
# A folder beside those of gpuperf, as if it were one of them.
START = "import sys, gpuperf; gpuperf.__path__.append(sys.argv.pop(1)); import gpuperf.app as app"


@pytest.fixture
def gpuperf(tmp_path: Path) -> Gpuperf:
    folder = tmp_path / "more" / "dummy"
    folder.mkdir(parents=True)
    for name, text in DUMMY.items():
        (folder / f"{name}.py").write_text(text)

    def run(*words: str) -> str:
        command = [sys.executable, "-c", f"{START}; app.main()", str(folder.parent), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
        return done.stdout

    return run


def test_one_folder_adds_a_verb_to_the_list_and_the_command_line(gpuperf: Gpuperf) -> None:
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
    gpuperf("show", path, "--html", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert "1 records as html" in page
    assert page.count("data:image/svg+xml;base64,") == 2


def test_two_verbs_do_not_share_a_name(tmp_path: Path) -> None:
    (tmp_path / "twin").mkdir()
    twin = 'from gpuperf.verb.verb import Verb; VERB = Verb("show", "another", "x:y")'
    (tmp_path / "twin" / "__init__.py").write_text(twin)
    code = f"import gpuperf; gpuperf.__path__.append({str(tmp_path)!r})\n"
    code += "from gpuperf.verb.registry import verbs; verbs()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "two verbs 'show'" in done.stderr


def test_a_command_imports_no_pytest_which_may_not_be_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    imported: list[str] = []

    def import_named(name: str) -> ModuleType:
        imported.append(name)
        return import_module(name)

    monkeypatch.setattr(registry, "import_module", import_named)
    assert len(verbs.__wrapped__()) == len(imported) == len(verbs())
    assert "gpuperf.pytest_plugin" not in imported


def test_a_run_of_a_study_that_is_not_known_is_shown_as_rows() -> None:
    assert verb_of(replace(cpu_run().header, study="weather")).name == "roofline"


def test_every_function_that_a_verb_names_is_there() -> None:
    for verb in verbs().values():
        charts = [path for c in verb.charts for path in (c.draw, c.fits, c.html) if path]
        own = (verb.command, verb.tables, verb.page, *charts)
        assert all(callable(load(path)) for path in own if path)
