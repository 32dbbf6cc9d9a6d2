"""Every form of a gate's report has its outcome, the names of its cases, and nothing hostile."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from synthetic_report import (
    OUTCOMES,
    encoded,
    every_outcome,
    hostile,
    mixed,
    report,
    unchanged,
    whole_table,
)

from gpuperf.errors import UsageError
from gpuperf.gate.formats import GateFormat, render_gate
from gpuperf.gate.rule import Verdict
from gpuperf.gate.verdict import CaseVerdict, GateReport, Outcome, read_report, write_report
from gpuperf.model.workload import Case
from gpuperf.show.axes import Names, whole_names


def test_the_examples_have_every_outcome() -> None:
    assert set(OUTCOMES) == set(get_args(Outcome))
    assert all(found.outcome == name for name, found in OUTCOMES.items())


@every_outcome
@pytest.mark.parametrize("format", list(GateFormat))
def test_every_form_has_the_outcome_and_ends_with_a_newline(
    outcome: GateReport, format: GateFormat
) -> None:
    text = render_gate(outcome, format)
    assert text.endswith("\n")
    assert outcome.outcome in text.lower()
    assert outcome.device in text


def test_names_leave_out_what_all_cases_of_an_operation_share() -> None:
    cases = [
        "matmul/torch[m=512,n=512,k=512,dtype=bf16]",
        "matmul/torch[m=16,n=4096,k=4096,dtype=bf16]",
        "matmul/triton[m=512,n=512,k=512,dtype=bf16,tile=64x128x64]",
        "matmul/triton[m=2048,n=2048,k=2048,dtype=bf16,tile=128x256x64]",
        "sincos/triton[n=16777216,dtype=fp32]",
        "attention/sdpa[batch=2,heads=16,gqa=1,seq=1024,causal=no,dtype=bf16]",
    ]
    names = Names(cases)
    assert [names.of(case) for case in cases] == [
        "matmul/torch m=n=k=512",
        "matmul/torch m=16 n=k=4096",
        "matmul/triton m=n=k=512 tile=64x128x64",
        "matmul/triton m=n=k=2048 tile=128x256x64",
        "sincos/triton n=16M",
        "attention/sdpa batch=2 heads=16 seq=1024",
    ]
    assert names.fixed == {
        "matmul": "dtype=bf16",
        "sincos": "dtype=fp32",
        "attention": "gqa=1, causal=no, dtype=bf16",
    }


def test_a_case_is_named_by_its_fields_where_a_verdict_has_them(tmp_path: Path) -> None:
    """A value with a comma makes an id that cannot be parsed."""
    points: list[dict[str, Any]] = [{"shape": "2,3", "n": n, "dtype": "bf16"} for n in (7, 8)]
    fields = [Case("a", "x", point) for point in points]
    found = report(*(replace(unchanged(case.id), fields=case) for case in fields))
    write_report(found, tmp_path / "verdict.json")
    read = read_report(tmp_path / "verdict.json")
    assert read == found
    assert re.findall(r"a/x\S* \S+", whole_table(read))[:2] == ["a/x n=7", "a/x n=8"]
    older = replace(found, cases=tuple(replace(case, fields=None) for case in found.cases))
    assert "a/x[shape=2,3,n=7,dtype=bf16]" in whole_table(older)


def test_a_verdict_whose_fields_are_those_of_another_case_is_refused(tmp_path: Path) -> None:
    other = replace(unchanged("a/x[n=7]"), fields=Case("a", "x", {"n": 8}))
    write_report(report(other), tmp_path / "verdict.json")
    with pytest.raises(UsageError, match=r"a/x\[n=7\] has the fields of a/x\[n=8\]"):
        read_report(tmp_path / "verdict.json")


def test_a_reason_names_a_case_as_the_table_does() -> None:
    names = Names(["a/x[m=1,n=7,dtype=bf16]", "a/x[m=1,n=8,dtype=bf16]"])
    assert names.replace_ids("a/x[m=1,n=8,dtype=bf16] is slower") == "a/x n=8 is slower"


@pytest.mark.parametrize(
    "ids",
    [
        ["a\x00", "a", "a\u200b", ""],
        ["x/y[n=1]", "x/y[n=1]\n", "x/y n=1", "x/y[n=1,n=1]"],
        [f"{'x' * 10_000}{i}{'y' * 10_000}" for i in range(50)],
        ["x (2)", "x", "x\x00", "x\x01"],
        ["a/b[", "a/b]", "a/b[n]", "a/b[=1]", "a/b[]", "[n=1]", "a/b[n=1][m=2]"],
    ],
)
def test_no_two_cases_are_called_alike_whatever_they_are_called(ids: list[str]) -> None:
    for named in (Names(ids, 60), whole_names(ids, 60)):
        found = [named.of(case) if isinstance(named, Names) else named[case] for case in ids]
        assert len(set(found)) == len(ids)
        assert all(0 < len(name) <= 64 and name.isprintable() for name in found)


def test_five_thousand_long_names_take_no_time() -> None:
    import time

    began = time.process_time()
    Names([f"{'x' * 9000}{i}{'y' * 1000}" for i in range(5000)])
    assert time.process_time() - began < 20


@pytest.mark.parametrize("format", list(GateFormat))
def test_no_form_holds_what_is_invisible_or_steers_a_terminal(format: GateFormat) -> None:
    for line in render_gate(hostile(), format).split("\n"):
        assert line.isprintable(), repr(line)


@pytest.mark.parametrize("format", [f for f in GateFormat if f != GateFormat.GITHUB])
def test_no_form_holds_what_github_takes_for_a_command_in_a_log(format: GateFormat) -> None:
    for line in render_gate(hostile(), format).split("\n"):
        assert not line.lstrip().startswith("::")
        assert "##[" not in line


def test_json_is_the_verdict_itself() -> None:
    for found in (hostile(), mixed()):
        assert json.loads(render_gate(found, GateFormat.JSON)) == json.loads(encoded(found))


def test_a_written_verdict_reads_back_and_prints_alike(tmp_path: Path) -> None:
    write_report(mixed(), tmp_path / "verdict.json")
    again = read_report(tmp_path / "verdict.json")
    for form in GateFormat:
        assert render_gate(again, form) == render_gate(mixed(), form)


def verdicts(cases: Sequence[CaseVerdict]) -> set[Verdict]:
    return {case.judged.verdict for case in cases}


def test_the_mixed_example_has_every_verdict() -> None:
    assert verdicts(mixed().cases) == set(get_args(Verdict))
