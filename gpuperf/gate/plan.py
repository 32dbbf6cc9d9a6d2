"""Define the plan of a gate, which is written before the gate begins, so that it can be resumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuperf.errors import UsageError
from gpuperf.files import read_regular, write_atomically
from gpuperf.gate.project import Project
from gpuperf.gate.rule import Rule
from gpuperf.model.codec import decode, encode
from gpuperf.run.suite import Suite

FILE, SCHEMA = "plan.json", 1
LARGEST = 1 << 20  # bytes


@dataclass(frozen=True)
class GatePlan:
    """The suite and the rule of a gate, and its sides: two commits, or two interpreters.

    `base` and `head` are the user's names for the commits, `top` is the repository's folder,
    `trees` are the git trees of both. `target` is the slowdown that must be detectable in every
    case; `slower` are cases that are slowed down on purpose, each by a fraction.
    """

    id: str
    suite: Suite
    project: Project
    rule: Rule
    seed: int
    target: float
    base: str = ""
    head: str = ""
    base_commit: str = ""
    head_commit: str = ""
    top: str = ""
    trees: tuple[str, str] = ("", "")
    notes: tuple[str, ...] = ()
    base_python: str = ""
    head_python: str = ""
    setup: str = ""
    device: str = "auto"
    slower: Mapping[str, float] = field(default_factory=dict)
    schema: int = SCHEMA


def write_plan(plan: GatePlan, folder: Path) -> None:
    """Write *plan* into the gate's *folder*. Raises: UsageError."""
    try:
        write_atomically(folder / FILE, encode(plan) + b"\n")
    except OSError as error:
        message = f"{folder / FILE} cannot be written: {error.strerror}"
        raise UsageError(message, "choose another --out") from None


def read_plan(folder: Path) -> GatePlan:
    """Read the plan of the gate in *folder*. Raises: UsageError if it cannot be read."""
    path, hint = folder / FILE, "give --resume the folder of a gate"
    try:
        plan = decode(read_regular(path, LARGEST), GatePlan)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint) from None
    except ValueError as error:
        raise UsageError(f"{path} is not a plan of a gate: {str(error)[:200]}", hint) from None
    if plan.schema != SCHEMA:
        raise UsageError(f"{path} has schema {plan.schema}", f"this gpuperf reads {SCHEMA}")
    return plan
