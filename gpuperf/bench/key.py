"""Name the run of a script, and the calls in it, so that a run can be continued."""

from __future__ import annotations

from collections.abc import Sequence

from gpuperf.model.record import Record


def command_of(file: str, words: Sequence[str]) -> tuple[str, ...]:
    """Return the command that a run of the script *file* with the arguments *words* states."""
    return ("gpuperf", "bench", file, *(("--", *words) if words else ()))


def key_of(record: Record) -> tuple[str, str]:
    """Return what identifies a call in the runs of one script: its case, and the cache."""
    return record.case.id, record.contract.cache
