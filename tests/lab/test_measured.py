"""Stored experiments have the rulings that docs/measured says, by their files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from measured import MEASURED, name_of

from gpuperf.lab.judging import judge
from gpuperf.lab.study import study_run
from gpuperf.model.record import Caveat, Record
from gpuperf.run.store import read_run

REFUTED = {"graph_amortisation"}  # which the page explains
OPEN = {"quant_crossover", "halves"}  # as the page explains
FILES = sorted((MEASURED / "lab").glob("*.jsonl.gz"))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_stored_experiment_has_its_ruling(path: Path) -> None:
    study = study_run(read_run(path))
    ruling = judge(study)
    expected = "REFUTED" if name_of(path) in REFUTED else "CONFIRMED"
    if name_of(path) in OPEN:
        expected = "INCONCLUSIVE"
    assert ruling.verdict == expected, ruling.sentence
    assert study.experiment.name == name_of(path)
    assert all(point.agreement in ("agrees", "baseline") for point in study.controls)


def test_the_page_names_each_of_them() -> None:
    text = (MEASURED / "README.md").read_text(encoding="utf-8")
    assert FILES
    rows = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}
    assert {name_of(path) for path in FILES} <= rows.keys()
    for word, names in (("REFUTED", REFUTED), ("INCONCLUSIVE", OPEN)):
        assert {name for name in map(name_of, FILES) if f"| {word}: " in rows[name]} == names


@pytest.mark.parametrize(
    ("name", "kinds", "doubtful"),
    [
        ("bandwidths", ("throttled",), False),  # the clock was read in the samples, and was fast
        ("bandwidths", ("slowed",), False),  # predictions are of measured rates, at such clocks
        ("bandwidths", ("throttled", "slowed"), True),
        ("checkpointing", ("throttled", "slowed"), False),  # in cycles
        ("graph_amortisation", ("throttled", "slowed"), False),  # by the host's clock
        ("attention_io", ("throttled", "slowed"), False),  # a count
    ],
)
def test_a_clock_that_was_held_down_is_a_doubt_of_times_alone(
    name: str, kinds: tuple[str, ...], doubtful: bool
) -> None:
    run = read_run(MEASURED / "lab" / f"{name}.jsonl.gz")
    caveats = tuple(Caveat(kind, "the clock was held down", "") for kind in kinds)
    records = tuple(replace(record, caveats=caveats) for record in run.records)
    points = study_run(replace(run, records=records)).points
    assert points
    assert {bool(point.doubt) for point in points} == {doubtful}


def test_a_clock_that_nobody_read_is_a_doubt_where_the_driver_held_it_down() -> None:
    run = read_run(MEASURED / "lab" / "bandwidths.jsonl.gz")
    flag = (Caveat("throttled", "the clock was held down", ""),)

    def unread(record: Record) -> Record:
        times = {name: replace(each, sm_clock_hz=()) for name, each in record.times.items()}
        return replace(record, times=times, caveats=flag)

    records = tuple(map(unread, run.records))
    assert all(point.doubt for point in study_run(replace(run, records=records)).points)
