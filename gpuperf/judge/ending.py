"""Say how the workers of a clerk ended, and hash the files of the task."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpuperf.errors import CannotMeasure, WorkloadError
from gpuperf.files import read_regular
from gpuperf.judge.evidence import CaseEvidence, Failure, Hardware
from gpuperf.judge.seat import Ended

LARGEST = 16 << 20  # bytes of a reference


def sha256_of(path: str) -> str:
    """Return the SHA-256 of the file *path*; empty if it cannot be read."""
    try:
        return hashlib.sha256(read_regular(path, LARGEST)).hexdigest()
    except OSError:
        return ""


def placed(hardware: Hardware | None, staged: str) -> Hardware | None:
    """Return *hardware* with the way in which inputs reach the seats: *staged* is the reason why
    the device shares no memory."""
    if hardware is None or not staged:
        return hardware
    missing = {**hardware.missing, "withdrawal": staged[:300]}
    return replace(hardware, inputs="staged", missing=missing)


def failed(evidence: CaseEvidence, ended: Ended, error: Failure) -> CaseEvidence:
    """Return *evidence* with the failure of the submission; *error* is that of an exception."""
    known: Mapping[str, Failure] = {"timeout": "timeout", "oom": "oom"}
    known = {**known, "crashed": "crashed", "tampered": "crashed"}
    return replace(evidence, failure=known.get(ended.failure, error), reason=str(ended))


def fault_of_task(ended: Ended) -> CannotMeasure:
    """Return the error that says why a task, or an option of the user, permits no judgement."""
    if ended.failure == "usage":
        return WorkloadError(str(ended), ended.hint)
    hint = ended.hint or "run the reference by itself, or give --debug to see what it prints"
    kind: Any = WorkloadError if ended.failure == "load" else CannotMeasure
    fault: CannotMeasure = kind(f"the reference cannot be judged by: {ended}", hint)
    return fault
