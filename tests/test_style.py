"""Hold the sizes and words of the code to docs/CONTRIBUTING.md."""

from __future__ import annotations

import ast
import re
import statistics
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from measured import ROOT

FILES = [*sorted((ROOT / "gpuperf").rglob("*.py")), *sorted((ROOT / "kernels").rglob("*.py"))]
MOST_LINES, LONGEST_FUNCTION, MEDIAN_FUNCTION, MOST_PARAMETERS = 400, 60, 8, 10
MOST_SKIPS, MOST_DIALECT = 20, 30
DIALECT = re.compile(r"\b(told|found)\b", re.IGNORECASE)
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def definitions(path: Path) -> tuple[Definition | ast.Module, ...]:
    """Return the module in *path*, and its functions and classes at every depth."""
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    for node in waiting:
        if not isinstance(node, ast.expr):  # holds no definition
            waiting += ast.iter_child_nodes(node)
    return tuple(node for node in waiting if isinstance(node, Definition | ast.Module))


def functions(path: Path) -> Iterator[Function]:
    return (node for node in definitions(path) if isinstance(node, Function))


def length(function: Function) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def is_triton(function: Function) -> bool:
    """Return whether a function is a Triton kernel, whose parameters are those of its launch."""
    names = [ast.unparse(each).split("(")[0] for each in function.decorator_list]
    return "jit" in names or "gluon_jit" in names


def test_files_and_functions_are_short() -> None:
    for path in FILES:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES, path
        assert not [f.name for f in functions(path) if length(f) > LONGEST_FUNCTION], path


def test_functions_take_few_parameters() -> None:
    for path in FILES:
        if path.name == "command.py":
            continue  # an option of the command line is a parameter there
        for function in functions(path):
            given = function.args
            count = len([*given.posonlyargs, *given.args, *given.kwonlyargs])
            assert count <= MOST_PARAMETERS or is_triton(function), (path, function.name)


def test_docstrings_are_sentences() -> None:
    for path in FILES:
        for node in definitions(path):
            text = ast.get_docstring(node)
            if text is None:
                continue
            first = text.split("\n\n")[0]
            assert len(text.split()) > 3, (path, text)
            assert not text.startswith("Of "), (path, text)
            if isinstance(node, ast.Module):
                assert not first.rstrip().endswith("?"), (path, text)


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


def test_no_tensor_has_the_default_dtype() -> None:
    """gpuperf works in programs that set torch's default dtype, where its bytes would be others."""
    made = re.compile(r"torch\.(ones|zeros|empty|rand|randn|linspace|eye)\((?!.*dtype)")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in FILES
        if path.is_relative_to(ROOT / "gpuperf" / "measure")
        for line in path.read_text(encoding="utf-8").splitlines()
        if made.search(line)
    ]
    assert not found
