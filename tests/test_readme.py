"""The README and the guides show a real run, files that exist and commands that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from measured import MEASURED, run_file

from gpuperf.app import make_app
from gpuperf.measure.registry import load_source
from gpuperf.profile.output import render_profile
from gpuperf.roofline.brief import render_brief, roofline_below
from gpuperf.run.store import read_run
from gpuperf.show.screen import WIDE
from gpuperf.verb.registry import verbs

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = {
    page: page.read_text(encoding="utf-8")
    for page in (README, *sorted((ROOT / "docs" / "guides").glob("*.md")))
}
BLOCK = re.compile(r"^```(?:\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCKS = [block for text in PAGES.values() for block in BLOCK.findall(text)]
LINKS = [
    (page, target)
    for page, text in PAGES.items()
    for target in re.findall(r"\]\(([^)]+)\)", BLOCK.sub("", text))
]


def test_the_readme_is_read_in_minutes() -> None:
    assert len(PAGES[README].splitlines()) <= 200


def test_the_table_is_that_of_the_committed_run() -> None:
    run = read_run(run_file("h200-matmul-bf16"))
    table = render_brief(run, WIDE)
    shown = table + roofline_below(run, WIDE, "compulsory", table.count("\n"))
    plain = [line.rstrip() for line in shown.splitlines()]
    assert any([line.rstrip() for line in b.splitlines()] == plain for b in BLOCKS)


def test_the_profile_is_that_of_the_committed_run() -> None:
    run = read_run(run_file("h200-profile-sdpa"))
    assert render_profile(run, "table") in BLOCKS


def test_the_example_is_the_file_that_it_names() -> None:
    example = (ROOT / "docs" / "examples" / "vector_add.py").read_text(encoding="utf-8")
    assert example in BLOCKS
    assert len(example.splitlines()) <= 70


def test_every_command_is_there_with_its_options() -> None:
    commands_of = typer.main.get_command(make_app()).commands  # type: ignore[attr-defined]
    commands = re.findall(r"^(gpuperf .+?)(?:\s+#.*)?$", "\n".join(BLOCKS), re.MULTILINE)
    commands += [c for text in PAGES.values() for c in re.findall(r"`(gpuperf [a-z]+[^`]*)`", text)]
    assert len(commands) > 8
    workloads, _ = load_source("gpuperf.kernels")
    measured_by_lab, _ = load_source("gpuperf.lab_experiments")
    every = [*workloads.values(), *measured_by_lab.values()]
    axes = {f"--{a.name.replace('_', '-')}" for w in every for a in w.axes}
    given = {o for w in workloads.values() for i in w.implementations for o in i.options}
    axes |= {f"--{option.replace('_', '-')}" for option in given}
    for command in commands:
        words = shlex.split(command)
        assert words[1] in commands_of, command
        verb = commands_of[words[1]]
        if verbs()[words[1]].group and len(words) > 2:
            # `gpuperf judge FILE` is short for `gpuperf judge file FILE`.
            verb = verb.commands.get(words[2]) or verb.commands["file"]
        if words[1] == "profile":  # what follows the script is the script's
            scripts = (i for i, word in enumerate(words) if word.endswith(".py"))
            words = words[: next(scripts, len(words)) + 1]
        if words[1] == "bench" and "--" in words:  # and so is what follows `--`
            words = words[: words.index("--")]
        known = axes | {name for p in verb.params for name in p.opts}
        for word in words[2:]:
            assert not word.startswith("--") or word in known, command


@pytest.mark.parametrize(("page", "target"), LINKS)
def test_every_link_leads_to_a_file(page: Path, target: str) -> None:
    assert (page.parent / target.partition("#")[0]).exists()


def test_what_was_measured_takes_little_room() -> None:
    """Run files are compressed, and charts have a palette: a clone fetches them all."""
    files = [path for path in MEASURED.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert sum(path.stat().st_size for path in files) <= 4_000_000
    made = {".md", ".txt", ".json", ".gz", ".png"}
    assert {path.suffix for path in files} <= made | {".py", ".sh", ".toml"}
