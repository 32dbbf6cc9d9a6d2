"""Build git repositories of a project that is gated."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

WORKLOAD = """
import torch
from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Workload
import mylib
DOUBLE = Workload(
    name="double", summary=mylib.NAME, formula="", axes=(
        Axis("n", 64, main=True), Axis("dtype", "auto", choices=("fp32",))),
    inputs=lambda p, make: {"x": make((p.n,), p.dtype)},
    reference=lambda i, p: i["x"].double() * 2,
    cost=lambda p: Cost((Flops(p.n, "elementwise", "fp32"),), (Bytes(4 * p.n, 4 * p.n),)),
    implementations=(Implementation("mine", lambda i, p, o: lambda: i["x"] * 2),))
"""


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of two commits: `mylib.NAME` is `one` in the first and `two` in the second."""
    folder = tmp_path / "project"
    (folder / "mylib").mkdir(parents=True)
    (folder / "double.py").write_text(WORKLOAD)
    git(tmp_path, "init", "-q", str(folder))
    for name in ("one", "two"):
        (folder / "mylib" / "__init__.py").write_text(f'NAME = "{name}"\n')
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", name)
    monkeypatch.chdir(folder)
    return folder
