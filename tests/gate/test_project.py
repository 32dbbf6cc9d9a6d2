"""Is a project's `gpuperf.toml` data or an error, and does a margin hold where its pattern says?"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuperf.errors import GpuperfError, UsageError
from gpuperf.gate.project import Margin, Project, load_project, parse_project
from gpuperf.gate.request import Sources, plan_of
from gpuperf.gate.rule import Rule

WHOLE = """
suite = "./bench/suite.toml"
target = 0.03
[[margin]]
cases = "matmul/*"
slower = 0.02
owner = "@kernels"
[[margin]]
cases = "matmul/torch[m=1,*"
slower = 0.1
"""
CASES = ("matmul/torch[m=1,n=2]", "matmul/torch[m=12,n=2]", "softmax/fused[n=4]")


def test_a_file_says_suite_target_margins_and_owners() -> None:
    project = parse_project(WHOLE)
    assert project.suite == "./bench/suite.toml"
    assert project.target == 0.03
    assert project.margins_of(CASES) == {CASES[0]: 0.1, CASES[1]: 0.02}
    assert project.owners_of(CASES) == {CASES[0]: "@kernels", CASES[1]: "@kernels"}


def test_the_brackets_of_a_case_mean_themselves() -> None:
    project = Project(margins=(Margin("matmul/torch[m=1,n=2]", 0.5),))
    assert project.margins_of(CASES) == {CASES[0]: 0.5}


def test_a_pattern_that_matches_nothing_is_an_error() -> None:
    parse_project(WHOLE).refuse_unmatched(CASES)
    with pytest.raises(UsageError, match=r"no case matches 'matmul/torch\[m=1,\*'"):
        parse_project(WHOLE).refuse_unmatched(CASES[1:])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('suitee = "ci"', "no key of gpuperf.toml 'suitee'; did you mean 'suite'"),
        ('[[margin]]\ncases = "a"\nslow = 1', "'slow'; did you mean 'slower'"),
        ("[[margin]]\nslower = 0.1", "names no cases"),
        ('margin = "a"', "margin of gpuperf.toml is not a list"),
        ("target = 3", "target of gpuperf.toml is 3"),
        ("target = true", "target of gpuperf.toml is True"),
        ("target = nan", "target of gpuperf.toml is nan"),
        (f"target = {'9' * 4000}", "target of gpuperf.toml is huge"),
        ("suite = 3", "suite of gpuperf.toml is not a text"),
        (f'suite = "{"x" * 300}"', "is not a text of up to 200 letters"),
        ("suite = ", "is not TOML"),
        ("a = " + "[" * 5000, "is not TOML"),
    ],
)
def test_what_is_no_project_is_an_error(text: str, told: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_project(text)
    assert told in str(error.value)


@given(st.text(max_size=80))
def test_any_text_is_a_project_or_an_error(text: str) -> None:
    try:
        parse_project(text)
    except GpuperfError as error:
        assert error.hint


def test_without_a_file_nothing_is_said(tmp_path: Path) -> None:
    assert load_project(tmp_path) == Project()
    (tmp_path / "gpuperf.toml").write_bytes(b"\xff")
    with pytest.raises(UsageError, match="cannot be read"):
        load_project(tmp_path)
    (tmp_path / "gpuperf.toml").write_text("# " + "x" * 300_000)
    with pytest.raises(UsageError, match="is over 200,000 bytes"):
        load_project(tmp_path)


@pytest.mark.parametrize(("text", "target"), [("", 0.05), ("target = 0.03", 0.03)])
def test_a_gate_has_to_see_five_percent_unless_another_target_is_given(
    text: str, target: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpuperf.toml").write_text(text)
    two = Sources(base_python=sys.executable, head_python="python3")
    assert plan_of(two, "ci", Rule(), None).target == target
    assert plan_of(two, "ci", Rule(), 0.2).target == 0.2
