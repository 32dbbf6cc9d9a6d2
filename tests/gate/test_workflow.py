"""The workflow for GitHub has no token where it measures, and ends as the gate did."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from measured import ROOT
from synthetic_report import COMMIT, measured
from typer.testing import CliRunner

from gpuperf.ci.command import ci
from gpuperf.ci.workflow import github_workflow, source_of, workflow_files
from gpuperf.errors import UsageError
from gpuperf.gate.formats import GateFormat, render_gate
from gpuperf.gate.markdown import MARKER
from gpuperf.gate.verdict import SideSummary, conclude, exit_code, write_report

GATE, REPORT = workflow_files().values()


def scripts(text: str) -> dict[str, str]:
    """Of each step with a `run: |`, by name, what the shell gets."""
    found = {}
    for step in re.split(r"^      - ", text, flags=re.MULTILINE)[1:]:
        name = re.match(r"name: (.*)", step)
        body = re.search(r"^ {8}run: (?:\|\n((?: {10}.*\n|\n)+)|(.*\n))", step, re.MULTILINE)
        if name and body:
            found[name[1]] = re.sub(r"^ {10}", "", body[1] or body[2], flags=re.MULTILINE)
    return found


def test_the_command_prints_both_files_under_their_paths() -> None:
    printed = run_ci().stdout
    assert printed == github_workflow()
    assert printed.count("# .github/workflows/gpuperf-gate.yml\n") == 1
    assert printed.count("# .github/workflows/gpuperf-report.yml\n") == 1


def test_what_is_printed_are_two_yaml_documents() -> None:
    documents = github_workflow().split("\n---\n")
    assert [
        d.startswith(f"# .github/workflows/{n}\n")
        for d, n in zip(documents, workflow_files(), strict=True)
    ] == [True, True]


def test_the_workflow_installs_gpuperf_from_where_it_can_be_had() -> None:
    """One that is installed from a folder names no source, since no runner has the folder."""
    assert "gpuperf==" not in github_workflow("")
    assert github_workflow("").count("GPUPERF: ${{ vars.GPUPERF }}\n") == 2
    known = github_workflow("git+https://host/gpuperf@0123")
    assert known.count("GPUPERF: ${{ vars.GPUPERF || 'git+https://host/gpuperf@0123' }}\n") == 2
    for text in (GATE, REPORT):
        assert ': "${GPUPERF:?' in text


@pytest.mark.parametrize(
    ("noted", "source"),
    [
        (None, "gpuperf==9.8"),
        ('{"url": "file:///home/me/gpuperf", "dir_info": {}}', ""),
        (
            '{"url": "https://host/g.git", "vcs_info": {"vcs": "git", "commit_id": "01ab"}}',
            "git+https://host/g.git@01ab",
        ),
        ('{"url": "https://host/g-1.whl", "archive_info": {}}', "https://host/g-1.whl"),
        ('{"url": "https://host/\' }} x"}', ""),
        ("no json", ""),
    ],
)
def test_where_gpuperf_can_be_had_is_what_pip_noted(
    noted: str | None, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "gpuperf-9.8.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gpuperf\nVersion: 9.8\n")
    if noted is not None:
        (info / "direct_url.json").write_text(noted)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert source_of("9.8") == source


def run_ci(*words: str) -> Any:
    app = typer.Typer()
    app.add_typer(ci, name="ci")
    return CliRunner().invoke(app, ["ci", "github", *words])


def test_the_command_writes_both_files_and_overwrites_none(tmp_path: Path) -> None:
    folder = tmp_path / ".github" / "workflows"
    assert run_ci("--out", str(folder)).exit_code == 0
    assert {p.name: p.read_text(encoding="utf-8") for p in folder.iterdir()} == workflow_files()
    again = run_ci("--out", str(folder))
    assert isinstance(again.exception, UsageError)
    assert "gpuperf-gate.yml exists" in str(again.exception)


def test_the_workflow_is_plain_yaml_of_steps() -> None:
    for text in workflow_files().values():
        assert "\t" not in text
        assert all(len(re.findall("^ *", line)[0]) % 2 == 0 for line in text.split("\n"))
        for key in ("name: ", "on:\n", "permissions: {}\n", "jobs:\n"):
            assert len(re.findall(f"^{re.escape(key)}", text, re.MULTILINE)) == 1
        assert text.count("${{") == text.count("}}")
        assert "VERSION" not in text


def test_the_measuring_job_has_no_token_and_no_secret() -> None:
    assert "on:\n  pull_request:\n" in GATE
    assert "pull_request_target" not in GATE + REPORT
    assert "persist-credentials: false" in GATE
    assert "fetch-depth: 0" in GATE
    assert not re.search(r"github\.token|GITHUB_TOKEN|GH_TOKEN|secrets", GATE)
    assert re.findall(r"^    permissions:\n((?:      .*\n)+)", GATE, re.MULTILINE) == [
        "      contents: read\n"
    ]
    assert "if: always()\n        uses: actions/upload-artifact" in GATE


def test_the_reporting_job_has_none_of_the_changes_code() -> None:
    assert "workflow_run:" in REPORT
    assert f"workflows: [{re.findall('^name: (.*)', GATE, re.MULTILINE)[0]}]" in REPORT
    assert "actions/checkout" not in REPORT
    assert "git " not in REPORT
    with_token = [name for name in scripts(REPORT) if "gh api" in scripts(REPORT)[name]]
    assert REPORT.count("GH_TOKEN: ${{ github.token }}") == len(with_token) == 2


def test_no_script_holds_an_expression() -> None:
    found = {**scripts(GATE), **scripts(REPORT)}
    assert len(found) == 7
    for body in found.values():
        assert "${{" not in body
        assert body.startswith("set -euo pipefail\n") or body == 'exit "$CODE"\n'
        assert "make" not in body


@pytest.fixture
def tools(tmp_path: Path) -> dict[str, str]:
    """An environment in which `gpuperf` and `python` are ours."""
    folder = tmp_path / "bin"
    folder.mkdir()
    command = folder / "gpuperf"
    command.write_text(
        f"#!/bin/sh\nexec {sys.executable} -c 'from gpuperf.app import main; main()' \"$@\"\n"
    )
    command.chmod(0o755)
    (folder / "python").symlink_to(sys.executable)
    return {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "HEAD_SHA": COMMIT,
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "GATE_URL": "https://example.com/run/1",
        "PYTHONPATH": str(ROOT),
    }


def judged_by_the_workflow(tools: dict[str, str], folder: Path) -> tuple[int, str, str]:
    """The code that the reporting job ends with, its summary and its comment."""
    found = scripts(REPORT)
    subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", found["Judge it again"]],
        cwd=folder,
        env=tools,
        check=True,
    )
    code = (folder / "output").read_text().strip().removeprefix("code=")
    ended = subprocess.run(
        ["bash", "-c", found["Pass where the gate passed"]],
        env={**tools, "CODE": code},
        check=False,
    )
    return ended.returncode, (folder / "summary").read_text(), (folder / "comment.md").read_text()


bash = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


@bash
@pytest.mark.parametrize(("slower", "wanted"), [(0.0, 0), (0.05, 1)])
def test_the_reporting_job_ends_as_the_gate_did(
    tools: dict[str, str], tmp_path: Path, slower: float, wanted: int
) -> None:
    found = measured({"a/x[n=7]": slower, "a/x[n=8]": 0.0})
    write_report(found, tmp_path / "gate" / "20260101" / "verdict.json")
    code, summary, comment = judged_by_the_workflow(tools, tmp_path)
    assert code == exit_code(found) == wanted
    assert summary == render_gate(found, GateFormat.MD)
    assert comment == render_gate(found, GateFormat.COMMENT)


@bash
@pytest.mark.parametrize("fault", ["missing", "two", "no json", "other commit", "tampered"])
def test_the_reporting_job_is_red_without_a_verdict_of_this_commit(
    tools: dict[str, str], tmp_path: Path, fault: str
) -> None:
    found = measured({"a/x[n=7]": 0.05, "a/x[n=8]": 0.0})
    files = [tmp_path / "gate" / name / "verdict.json" for name in ("one", "two")]
    if fault == "two":
        write_report(found, files[1])
    if fault == "other commit":
        found = replace(found, head=SideSummary("topic", "0" * 40))
    if fault == "tampered":
        passed = [replace(c, judged=replace(c.judged, verdict="UNCHANGED")) for c in found.cases]
        found = conclude(replace(found, cases=tuple(passed)))
        assert found.outcome == "passed"
    if fault != "missing":
        write_report(found, files[0])
    if fault == "no json":
        files[0].write_text("{")
    code, summary, comment = judged_by_the_workflow(tools, tmp_path)
    assert code == (2 if fault == "tampered" else 3)
    assert comment == summary
    assert comment.startswith(f"{MARKER}\n### ⚠️ gpuperf gate: the")


def on_path(program: str) -> str | None:
    """Where *program* is, beside this interpreter or on the PATH."""
    folders = (str(Path(sys.executable).parent), os.environ["PATH"])
    return shutil.which(program, path=os.pathsep.join(folders))


SHELLCHECK = on_path("shellcheck")


@pytest.mark.skipif(SHELLCHECK is None, reason="needs shellcheck, which the extra `test` installs")
def test_the_scripts_pass_shellcheck() -> None:
    for name, body in {**scripts(GATE), **scripts(REPORT)}.items():
        done = subprocess.run(
            [SHELLCHECK, "--shell=bash", "-"],
            input=body,
            text=True,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, f"{name}: {done.stdout}"


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="needs actionlint on the PATH")
def test_the_workflow_passes_actionlint(tmp_path: Path) -> None:
    for name, text in workflow_files().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    files = [str(tmp_path / name) for name in workflow_files()]
    done = subprocess.run(["actionlint", *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
