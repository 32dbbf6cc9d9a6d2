"""Is a line of progress written for each case, and one for cases that are skipped alike?"""

from __future__ import annotations

from dataclasses import replace

import pytest
import synthetic

from gpuperf.model.record import Record
from gpuperf.verb.progress import Reporter


def skipped(record: Record, reason: str) -> Record:
    return replace(record, status="skipped", reason=reason, times={}, primary="")


def test_cases_that_are_skipped_alike_have_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    first, *_ = synthetic.h200_run().records
    timed = replace(first, case=replace(first.case, implementation="timed"))
    with Reporter(6) as reporter:
        for record in (*[skipped(first, "no GPU")] * 3, timed, skipped(first, "no fp8")):
            reporter.done(record)
        reporter.done(skipped(first, "no fp8"), "process 2 of 2: ")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert lines[0] == f"{first.case.id} and 2 cases more  skipped: no GPU"
    assert lines[1].startswith(timed.case.id)
    assert lines[2] == f"{first.case.id}  skipped: no fp8"
    assert lines[3] == f"process 2 of 2: {first.case.id}  skipped: no fp8"
