"""Scripts of docs/measured that need a GPU import without one, and say what they need; its suites
name the cases of the runs that are stored."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from measured import MEASURED, ROOT, run_file

from gpuperf.run.launcher import LocalLauncher
from gpuperf.run.store import read_run
from gpuperf.run.suite import load_suite, plan_suite
from gpuperf.run.supervisor import Supervisor

SUITES = {
    "attention": "h200-attention",
    "counted": "h200-counted",
    "counted_attention": "h200-counted-attention",
    "cross_entropy": "h200-cross-entropy",
    "random_products": "h200-random-products",
    "rows": "h200-rows",
    "rows_torch": "h200-rows-torch",
}


def test_each_suite_names_the_cases_of_its_run() -> None:
    assert {path.stem for path in MEASURED.glob("*.toml")} == set(SUITES)
    with Supervisor(LocalLauncher(), "cpu") as supervisor:
        supervisor.open()
        for name, stored in SUITES.items():
            suite, run = load_suite(str(MEASURED / f"{name}.toml")), read_run(run_file(stored))
            cases = {case.id for case in plan_suite(suite, supervisor.describe, run.header.device)}
            assert cases == {record.case.id for record in run.records}


@pytest.mark.parametrize(
    ("script", "words", "sentence"),
    [
        ("cluster_tiles.py", [], "cluster_tiles.py needs a Hopper GPU, such as an H100."),
        ("hopper_plans.py", [], "hopper_plans.py needs a Hopper GPU, such as an H100."),
        ("rows_plans.py", [], "rows_plans.py needs a Hopper GPU, such as an H100."),
        ("adversarial.py", ["KernelBench"], "adversarial.py needs a GPU."),
        (
            "kernelbench.py",
            ["level1", "out.jsonl"],
            "kernelbench.py needs a GPU; --device cpu tries it without one.",
        ),
    ],
)
def test_without_a_gpu_a_script_says_in_one_sentence_what_it_needs(
    script: str, words: list[str], sentence: str
) -> None:
    ended = subprocess.run(
        [sys.executable, str(MEASURED / script), *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert (ended.returncode, ended.stdout, ended.stderr.strip()) == (1, "", sentence)
