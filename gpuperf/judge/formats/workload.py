"""Read a task in gpuperf's own form: a file with a `Workload`, and a point of its axes.

A submission has a function `build(inputs, point, options)`, as an `Implementation` has.
"""

from __future__ import annotations

from pathlib import Path

from gpuperf.errors import UsageError
from gpuperf.files import is_regular
from gpuperf.judge.task import TaskCase, TaskSource
from gpuperf.model.workload import Value
from gpuperf.units import parse_number


def read_workload(against: Path, point: str) -> TaskSource:
    """Return the task of the workload in the file *against*. Raises: UsageError."""
    if not is_regular(against):
        raise UsageError(f"no file {str(against)!r}", "give a file with a Workload")
    values = {}
    for part in filter(None, point.split(",")):
        axis, equals, text = part.partition("=")
        if not equals or not axis.strip():
            raise UsageError(f"--point has {part!r}", "for example --point m=64,dtype=fp32")
        values[axis.strip()] = _value(text.strip())
    return TaskSource("gpuperf", str(against.absolute()), (TaskCase(point or "default", values),))


def _value(text: str) -> Value:
    try:
        return parse_number(text)
    except ValueError:
        return text
