"""Stored experiments have the rulings that docs/measured says, by their files."""

from __future__ import annotations

from pathlib import Path

import pytest
from measured import MEASURED, name_of

from gpuperf.lab.judging import judge
from gpuperf.lab.study import study_run
from gpuperf.run.store import read_run

REFUTED = {"graph_amortisation"}  # which the page explains
FILES = sorted((MEASURED / "lab").glob("*.jsonl.gz"))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_stored_experiment_has_its_ruling(path: Path) -> None:
    study = study_run(read_run(path))
    ruling = judge(study)
    expected = "REFUTED" if name_of(path) in REFUTED else "CONFIRMED"
    assert ruling.verdict == expected, ruling.reason
    assert study.experiment.name == name_of(path)
    assert all(point.agreement == "agrees" for point in study.controls)


def test_the_page_names_each_of_them() -> None:
    text = (MEASURED / "README.md").read_text(encoding="utf-8")
    assert FILES
    rows = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}
    assert {name_of(path) for path in FILES} <= rows.keys()
    assert {name for name in map(name_of, FILES) if "| REFUTED: " in rows[name]} == REFUTED
