"""Scripts of docs/measured that need a GPU import without one, and say what they need."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from measured import MEASURED, ROOT


@pytest.mark.parametrize(
    ("script", "words", "sentence"),
    [
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
