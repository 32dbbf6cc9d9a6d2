"""The README shows what is: a real run, a file that is there, commands that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from measured import MEASURED, run_file

from gpuperf.analysis.region import profiles
from gpuperf.cli.app import make_app
from gpuperf.cli.verbs import VERBS
from gpuperf.measure.registry import load_source
from gpuperf.report.formats import render_run
from gpuperf.report.profiling import title_of, totals_of
from gpuperf.runner.store import read_run
from gpuperf.show.screen import Screen

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROSE = re.sub(r"^```.*?^```$", "", README, flags=re.DOTALL | re.MULTILINE)
BLOCKS = re.findall(r"^```(?:\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def test_the_table_is_that_of_the_committed_run() -> None:
    run = read_run(run_file("h200-matmul-bf16"))
    shown = render_run(run, "table", Screen(160)).split("\n\nRoof")[0]
    plain = [line.rstrip() for line in shown.splitlines()]
    assert any([line.rstrip() for line in b.splitlines()] == plain for b in BLOCKS)


def test_the_profile_is_that_of_the_committed_run() -> None:
    run = read_run(run_file("h200-profile-sdpa"))
    (profile,) = profiles(run)
    shown = [title_of(profile, run), *totals_of(profile, run)]
    assert "\n".join([*shown, ""]) in BLOCKS


def test_the_example_is_the_file_that_it_names() -> None:
    example = (ROOT / "docs" / "examples" / "vector_add.py").read_text(encoding="utf-8")
    assert example in BLOCKS
    assert len(example.splitlines()) <= 70


def test_every_command_is_there_with_its_options() -> None:
    verbs = typer.main.get_command(make_app()).commands  # type: ignore[attr-defined]
    commands = re.findall(r"^(gpuperf .+?)(?:\s+#.*)?$", "\n".join(BLOCKS), re.MULTILINE)
    commands += re.findall(r"`(gpuperf [a-z]+[^`]*)`", README)
    assert len(commands) > 8
    workloads, _ = load_source("gpuperf.kernels")
    axes = {f"--{a.name.replace('_', '-')}" for w in workloads.values() for a in w.axes}
    given = {o for w in workloads.values() for i in w.implementations for o in i.options}
    axes |= {f"--{option.replace('_', '-')}" for option in given}
    for command in commands:
        words = shlex.split(command)
        assert words[1] in verbs, command
        verb = verbs[words[1]]
        if VERBS[words[1]].group and len(words) > 2:
            verb = verb.commands[words[2]]
        if words[1] == "profile":  # what follows the script is the script's
            words = words[: next(i for i, word in enumerate(words) if word.endswith(".py")) + 1]
        known = axes | {name for p in verb.params for name in p.opts}
        for word in words[2:]:
            assert not word.startswith("--") or word in known, command


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)]+)\)", PROSE))
def test_every_link_leads_to_a_file(target: str) -> None:
    assert (ROOT / target.partition("#")[0]).exists()


def test_what_was_measured_takes_little_room() -> None:
    """Run files are compressed, and charts have a palette: a clone fetches them all."""
    files = [path for path in MEASURED.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert sum(path.stat().st_size for path in files) <= 4_000_000
    assert {path.suffix for path in files} <= {".md", ".txt", ".py", ".json", ".gz", ".png"}
