"""Describe a task and a submission as data, which the clerk plans with and workers load.

The clerk parses the files of a task (as JSON, as YAML, or as a syntax tree) and imports none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Format = Literal["kernelbench", "gpumode", "flashinfer", "gpuperf"]
FORMATS: tuple[Format, ...] = get_args(Format)
# A side whose processes run calls: `compiled` is torch.compile of the reference.
Side = Literal["submission", "reference", "compiled"]


@dataclass(frozen=True)
class TaskCase:
    """One case of a task: its name, and the parameters of its inputs."""

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Submission:
    """A submitted file, the name of its entry point, and whether the entry point writes its results
    into tensors that it is given (`writes_outputs`)."""

    path: str
    entry: str = ""
    name: str = ""
    writes_outputs: bool = False


@dataclass(frozen=True)
class TaskSource:
    """A task: its format, the file of its reference, and its cases.

    `entry` names the workload of a file that has several. `definition` is that of flashinfer-bench.
    """

    format: Format
    reference: str
    cases: tuple[TaskCase, ...] = (TaskCase("default"),)
    entry: str = ""
    definition: Mapping[str, Any] = field(default_factory=dict)
