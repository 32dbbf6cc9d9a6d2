"""The experiments that docs/measured says are confirmed are so, by their files."""

from __future__ import annotations

from pathlib import Path

import pytest
from measured import MEASURED, name_of

from gpuperf.lab.judging import judge
from gpuperf.lab.study import study_run
from gpuperf.run.store import read_run

FILES = sorted((MEASURED / "lab").glob("*.jsonl.gz"))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_stored_experiment_has_its_ruling(path: Path) -> None:
    study = study_run(read_run(path))
    ruling = judge(study)
    assert ruling.verdict == "CONFIRMED", ruling.reason
    assert study.experiment.name == name_of(path)
    assert all(point.agreement == "agrees" for point in study.controls)


def test_the_page_names_each_of_them() -> None:
    text = (MEASURED / "README.md").read_text(encoding="utf-8")
    assert FILES
    assert not [path.name for path in FILES if f"| `{name_of(path)}` |" not in text]
