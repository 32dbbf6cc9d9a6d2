"""A Triton repository of somebody else is guarded on a GPU by ten lines and no workload file."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from installed_plugin import environment

from gpuperf.run.store import read_run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

REPOSITORY = Path(__file__).parent / "kernel_repository"
TEN_LINES = """
import pytest, rowwise, torch
x, weight = torch.randn(8192, 4096, device="cuda"), torch.ones(4096, device="cuda")

@pytest.mark.gpuperf(max_us=2000, min_fraction_of_roof=0.5)
def test_rms_norm_is_fast(gpuperf):
    gpuperf(lambda: rowwise.rms_norm(x, weight), bytes=2 * x.nbytes, budget_s=0.3)

def test_swiglu_is_fast(gpuperf):
    gpuperf(lambda: rowwise.swiglu(x, x), bytes=3 * x.nbytes, budget_s=0.3)
"""
LAUNCH = "    rms_norm_kernel[(rows,)](x, weight, y, n, eps, BLOCK"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("theirs")
    shutil.copytree(REPOSITORY, folder, dirs_exist_ok=True)
    (folder / "test_kernels.py").write_text(TEN_LINES)
    return folder


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    variables = {**environment(), "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)


def test_ten_lines_guard_it_and_a_slowdown_is_red(folder: Path) -> None:
    assert len(TEN_LINES.strip().splitlines()) <= 10
    plain = ("pytest", "-p", "no:cacheprovider", "-q", "test_kernels.py")
    saved = run(folder, *plain, "--gpuperf-save=base", "--gpuperf-passes=6")
    assert saved.returncode == 0, saved.stdout
    assert "within" in saved.stdout
    same = run(folder, *plain, "--gpuperf-compare=base")
    assert same.returncode == 0, same.stdout
    kernels = folder / "rowwise" / "kernels.py"
    text = kernels.read_text()
    assert LAUNCH in text
    line = next(line for line in text.splitlines() if line.startswith(LAUNCH))
    kernels.write_text(text.replace(line, f"{line}\n{line}"))
    slower = run(folder, *plain, "--gpuperf-compare=base")
    kernels.write_text(text)
    assert slower.returncode == 1, slower.stdout
    assert "1 measurement is slower than in base" in slower.stdout, slower.stdout
    rows = [line for line in slower.stdout.splitlines() if line.endswith("SLOWER")]
    assert len(rows) == 1 and rows[0].startswith("test_rms_norm_is_fast"), slower.stdout


def test_its_bench_runs_unchanged(folder: Path) -> None:
    words = ("gpuperf", "bench", "bench_rowwise.py", "--budget", "0.2", "--out", "out")
    ended = run(folder, *words)
    assert ended.returncode == 0, ended.stderr
    records = read_run(next((folder / "out").glob("*.jsonl"))).records
    assert [(r.case.implementation, r.case.point["n"], r.status) for r in records] == [
        (kernel, n, "ok") for n in (512, 1024) for kernel in ("rms_norm", "swiglu")
    ]
