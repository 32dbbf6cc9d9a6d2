"""Hold the sizes and words of the code to docs/CONTRIBUTING.md."""

from __future__ import annotations

import ast
import re
import statistics
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from measured import ROOT

FILES = [*sorted((ROOT / "gpuperf").rglob("*.py")), *sorted((ROOT / "kernels").rglob("*.py"))]
MOST_LINES, LONGEST_FUNCTION, MEDIAN_FUNCTION, MOST_PARAMETERS = 400, 60, 8, 10
MOST_SKIPS, MOST_DIALECT = 20, 30
DIALECT = re.compile(r"\b(told|found)\b", re.IGNORECASE)
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(path: Path) -> Iterator[Function]:
    return (node for node in ast.walk(tree(path)) if isinstance(node, Function))


def length(function: Function) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def is_triton(function: Function) -> bool:
    """Return whether a function is a Triton kernel, whose parameters are those of its launch."""
    return any(ast.unparse(each) == "jit" for each in function.decorator_list)


each_file = pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT).as_posix())


@each_file
def test_files_and_functions_are_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES
    long = [f.name for f in functions(path) if length(f) > LONGEST_FUNCTION]
    assert not long


@each_file
def test_functions_take_few_parameters(path: Path) -> None:
    if path.stem.startswith("command"):
        return  # an option of the command line is a parameter there
    for function in functions(path):
        given = function.args
        count = len([*given.posonlyargs, *given.args, *given.kwonlyargs])
        assert count <= MOST_PARAMETERS or is_triton(function), function.name


@each_file
def test_docstrings_are_sentences(path: Path) -> None:
    for node in ast.walk(tree(path)):
        if not isinstance(node, Definition | ast.Module):
            continue
        text = ast.get_docstring(node)
        if text is None:
            continue
        first = text.split("\n\n")[0]
        assert len(text.split()) > 3, text
        assert not text.startswith("Of "), text
        if isinstance(node, ast.Module):
            assert not first.rstrip().endswith("?"), text


def test_half_of_all_functions_are_very_short() -> None:
    every = [length(f) for path in FILES for f in functions(path)]
    assert statistics.median(every) <= MEDIAN_FUNCTION


def test_the_formatter_is_off_for_signatures_of_kernels_alone() -> None:
    skipped = {path: path.read_text(encoding="utf-8").count("fmt: skip") for path in FILES}
    assert sum(skipped.values()) <= MOST_SKIPS
    assert {path.parent.name for path, count in skipped.items() if count} <= {"ops"}


def test_the_dialect_does_not_come_back() -> None:
    package = [path for path in FILES if path.is_relative_to(ROOT / "gpuperf")]
    words = [DIALECT.findall(path.read_text(encoding="utf-8")) for path in package]
    assert sum(map(len, words)) < MOST_DIALECT
