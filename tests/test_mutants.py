"""Each change of `make mutants` still has its line in the code and its tests in the suite."""

from __future__ import annotations

import tomllib

from mutants import run

MUTANTS = tomllib.loads((run.HERE / "mutants.toml").read_text(encoding="utf-8"))["mutant"]


def test_no_mutant_is_stale() -> None:
    stale = []
    for mutant in MUTANTS:
        path = run.ROOT / mutant["file"]
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        after = run.changed(text, mutant["line"], mutant["becomes"], mutant.get("nth", 1))
        if after is None or not run.readable(path, after):
            stale.append(f"{mutant['file']}: {mutant['line']}")
    assert stale == []


def exists(test: str) -> bool:
    """Whether *test* is a folder or a file of tests, or `FILE::NAME` of a test in one."""
    file, _, name = test.partition("::")
    path = run.ROOT / "tests" / file
    if not name:
        return path.exists()
    return path.is_file() and f"def {name.split('[')[0]}(" in path.read_text(encoding="utf-8")


def test_the_tests_of_a_mutant_exist() -> None:
    tests = {test for mutant in MUTANTS for test in mutant.get("tests", ())}
    assert [test for test in sorted(tests) if not exists(test)] == []
