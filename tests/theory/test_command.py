"""Run `gpuperf theory` with good and bad input."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import CommandLine, assert_refused

from gpuperf.model.peaks import Figure
from gpuperf.peaks.find import builtin_peaks, find_device
from gpuperf.run.cache import keep
from gpuperf.theory.theory import Chip, find_theory, listed_names, theory_names, values_of

NAMES = theory_names()


@pytest.fixture
def command(tmp_path: Path) -> CommandLine:
    return CommandLine.at(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_every_theory_is_computed_on_every_device(name: str) -> None:
    theory = find_theory(name)
    at = values_of(theory, {})
    for peaks in builtin_peaks():
        rows = list(theory.rows(at, Chip(peaks)))
        assert rows
        for row in rows:
            assert len(row) == len(theory.quantities)
            assert all(value is None or isinstance(value, str) or value >= 0 for value in row)
        for part in theory.parts:
            assert all(len(row) == len(part.quantities) for row in part.rows(at, Chip(peaks)))
        for plot in theory.plots(at, Chip(peaks)):
            assert all(y > 0 for curve in plot.curves for _, y in curve.points)


@pytest.mark.parametrize("name", NAMES)
def test_a_theory_is_a_table_values_and_a_chart(command: CommandLine, name: str) -> None:
    ended = command.within("theory", name, "--chart", "chart.png")
    assert ended.code == 0, ended.err
    assert ended.out.startswith(f"{name}: {find_theory(name).question}")
    assert "Source" in ended.out
    assert (command.folder / "chart.png").stat().st_size > 10_000
    rows = json.loads(command.within("theory", name, "--format", "json").out)
    head = ["table"] if find_theory(name).parts else []
    assert [*rows[0]] == [*head, *(q.key for q in find_theory(name).quantities)]
    assert command.within("theory", name, "--format", "csv").out.count("\n") == len(rows) + 1


def test_without_measured_roofs_the_calibrated_device_is_refused(command: CommandLine) -> None:
    ended = command.within("theory", "ridge", "--device", "calibrated")
    assert_refused(ended, 3, "no measured roofs are stored", "gpuperf calibrate")


def test_the_roofs_measured_last_replace_the_sheet(
    command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUPERF_CACHE", str(command.folder / "cache"))
    sheet = find_device("h200-sxm")
    slow = Figure(4e12, "byte/s", "measured", "calibrate")
    keep("ceilings", "older", replace(sheet, figures={}))
    keep("ceilings", "newer", replace(sheet, id="measured", figures={"memory_bandwidth": slow}))
    os.utime(command.folder / "cache/ceilings/older.json", (0, 0))
    words = ("--device", "calibrated", "--format", "json")
    first = json.loads(command.within("theory", "ridge", *words).out)[0]
    assert first["bandwidth_byte_per_s"] == 4e12
    assert command.within("theory", "sram", *words).code == 0  # sizes are the sheet's


def test_without_a_name_all_are_listed(command: CommandLine) -> None:
    rows = json.loads(command.within("theory", "--format", "json").out)
    assert [row["name"] for row in rows] == list(listed_names())
    assert {row["name"].replace("-", "_") for row in rows} == {*NAMES, "claims", "serve"}


def test_the_help_of_a_theory_has_its_parameters(command: CommandLine) -> None:
    out = command.within("theory", "ridge", "--help").out
    assert "--k 8192 (inputs of the linear layer)" in " ".join(out.split())


@pytest.mark.parametrize(
    ("words", "sentence", "hint"),
    [
        (("atention",), "no theory 'atention'; did you mean 'attention'", "known"),
        (("attention", "--m", "3"), "no option '--m'", "parameters of attention: --n"),
        (("ridge", "--devic", "h200-sxm"), "did you mean '--device'?", "parameters of ridge: --"),
        (("attention", "--n", "x"), "--n: 'x' is not a whole number", "--n 4096"),
        (("attention", "--n", "0"), "--n: 0 in '0' is below 1", "--n 4096"),
        (("attention", "--n", "2M"), "--n 2M is over 1048576", "--n 1048576"),
        (("attention", "--batch", "1,2"), "--batch takes one value, not '1,2'", "--batch 1"),
        (("attention", "--dtype", "bf15"), "no value of --dtype 'bf15'", "known"),
        (("attention", "--n"), "--n needs a value", "--n 4096"),
        (("attention", "more"), "unexpected argument 'more'", "give one theory"),
        (("claim",), "no theory 'claim'; did you mean 'claims'", "known"),
        (("ridge", "--device", "h300"), "no device 'h300'", "gpuperf devices"),
        (("ridge", "--device", "a100"), "no device 'a100'", "gpuperf devices"),
        (("ridge", "--chart", "a.gif"), "'.gif'", ".png"),
        (("--n", "4"), "no theory '--n'", "known: attention"),
    ],
)
def test_bad_input_is_one_sentence_and_a_hint(
    command: CommandLine, words: tuple[str, ...], sentence: str, hint: str
) -> None:
    assert_refused(command.within("theory", *words), 2, sentence, hint)
