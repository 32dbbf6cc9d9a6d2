"""A user hears why workers were replaced, which takes seconds each."""

from __future__ import annotations

import pytest

from gpuperf.verb.session import _say_renewals


def test_reasons_are_counted_without_those_that_the_table_shows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    memory = "it kept 4.2 GB of memory"
    _say_renewals([memory, "the case ended wrong", memory, "it left threads: poll"])
    assert capsys.readouterr().err.splitlines() == [
        f"2 workers were replaced after a case: {memory}",
        "1 worker was replaced after a case: it left threads: poll",
    ]
