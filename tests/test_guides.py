"""Run each command of the guides and of CONTRIBUTING, as a reader would."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import unittest.mock
from dataclasses import replace
from pathlib import Path

import forks
import pytest
from command_line import PEAKS, CommandLine
from installed_plugin import environment

from gpuperf.peaks.file import parse_peaks
from gpuperf.run.cache import keep
from gpuperf.run.ceilings import device_key
from gpuperf.verb.options import make_supervisor

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
IN_PYTHON = ROOT / "docs" / "guides" / "measure-in-python.md"
GUIDES = [*sorted((ROOT / "docs" / "guides").glob("*.md")), ROOT / "docs" / "CONTRIBUTING.md"]
GUIDES.remove(IN_PYTHON)
FILE = re.compile(r"Save this as `([\w.]+)`:\n\n```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ON_GPU = "# on a GPU"


def commands(guide: Path, gpu: bool) -> list[str]:
    """The command lines of *guide* that need a GPU, or those that do not."""
    lines = "".join(BLOCK.findall(guide.read_text(encoding="utf-8"))).splitlines()
    return [line for line in lines if line and (ON_GPU in line) == gpu]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with two commits and the documents, in which a reader would stand."""
    for folder in ("docs", "configs"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    git = ["git", "-c", "user.name=reader", "-c", "user.email=reader@example.org"]
    subprocess.run([*git, "init", "-q"], cwd=tmp_path, check=True)
    for text in ("before", "after"):
        (tmp_path / "kernel.txt").write_text(text, encoding="utf-8")
        subprocess.run([*git, "add", "kernel.txt"], cwd=tmp_path, check=True)
        subprocess.run([*git, "commit", "-q", "-m", text], cwd=tmp_path, check=True)
    return tmp_path


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A cache with roofs of this CPU, which would take half a minute for each count of threads."""
    at = CommandLine.at(tmp_path_factory.mktemp("reader"))
    roofs = parse_peaks(PEAKS, "a test")
    for threads in (None, 1):
        with unittest.mock.patch.dict(os.environ, at.environment):
            with make_supervisor("cpu", threads=threads) as supervisor:
                opened = supervisor.open()
            keep("ceilings", device_key(opened), replace(roofs, sm_count=opened.device.sm_count))
    return at.environment["GPUPERF_CACHE"]


def run(guide: Path, repository: Path, gpu: bool, **more: str) -> None:
    """Save the files that *guide* names, then run its commands one after the other."""
    for name, text in FILE.findall(guide.read_text(encoding="utf-8")):
        (repository / name).write_text(text, encoding="utf-8")
    for line in commands(guide, gpu):
        words = shlex.split(line, comments=True)
        assert words[0] in ("gpuperf", "pytest"), line
        done = forks.run(
            [sys.executable, "-m", *words],
            cwd=repository,
            capture_output=True,
            text=True,
            timeout=570,
            check=False,
            env={**environment(), "COLUMNS": "100", **more},
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        assert done.stdout.strip() or {"--chart", "--html"} & set(words), line


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_every_command_of_a_guide_runs(guide: Path, repository: Path, cache: str) -> None:
    assert commands(guide, False)
    run(guide, repository, False, GPUPERF_CACHE=cache)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "guide", [one for one in GUIDES if commands(one, True)], ids=lambda guide: guide.stem
)
def test_every_command_of_a_guide_runs_on_a_gpu(guide: Path, repository: Path) -> None:
    if shutil.which("nvidia-smi") is None:
        pytest.skip("needs an NVIDIA GPU")
    run(guide, repository, True)


def run_blocks(guide: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the Python of *guide* as one script in *folder*."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GPUPERF_CACHE", str(folder / "cache"))
    exec("\n".join(PYTHON.findall(guide.read_text(encoding="utf-8"))), {"__name__": "a reader"})


def test_the_python_of_a_guide_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gpuperf.library.measure.BUDGET_S", 0.1)
    run_blocks(IN_PYTHON, tmp_path, monkeypatch)
    assert (tmp_path / "sine.svg").stat().st_size > 1000
    printed = capsys.readouterr().out
    assert "speed-ups in 5 rounds" in printed
    assert "n = 65536: " in printed


def test_the_python_of_a_guide_has_the_types_of_the_library(tmp_path: Path) -> None:
    file = tmp_path / "guide.py"
    file.write_text("\n".join(PYTHON.findall(IN_PYTHON.read_text(encoding="utf-8"))))
    mypy = [sys.executable, "-m", "mypy", "--allow-untyped-defs", "--allow-untyped-calls"]
    cached = ["--cache-dir", str(ROOT / ".mypy_cache"), "--follow-imports", "silent"]
    ended = subprocess.run([*mypy, *cached, str(file)], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout
    file.write_text(f"{file.read_text()}\nswept.plot(3)\n")
    wrong = subprocess.run([*mypy, *cached, str(file)], cwd=ROOT, capture_output=True, text=True)
    assert 'Argument 1 to "plot" of "Sweep" has incompatible type "int"' in wrong.stdout


@pytest.mark.gpu
def test_the_python_of_a_guide_runs_on_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_blocks(IN_PYTHON, tmp_path, monkeypatch)
    assert "of the roof, bound by" in capsys.readouterr().out
