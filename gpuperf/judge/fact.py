"""Define a fact: one named check of the evidence, and the status that it makes if it fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal[
    "valid",
    "wrong",
    "cheat",
    "suspect",
    "inconclusive",
    "unfair-task",
    "timeout",
    "oom",
    "crashed",
    "compile-error",
]
Result = Literal["ok", "failed", "unavailable"]


@dataclass(frozen=True)
class Fact:
    """One named check: its result, the figure that was seen, its bound, and a sentence."""

    name: str
    result: Result
    seen: float | None = None
    bound: float | None = None
    text: str = ""
    makes: Status = "valid"


def fact(
    name: str, ok: bool, seen: float | None, bound: float | None, text: str, makes: Status
) -> Fact:
    """Return the fact *name*, whose sentence and status count only if it is not *ok*."""
    return Fact(name, "ok" if ok else "failed", seen, bound, "" if ok else text, makes)


def unjudged(missing: Fact) -> Fact:
    """Return the fact *missing*, of whose kernels ran, where those of libraries are forbidden."""
    text = f"whose kernels ran is unknown, and libraries are forbidden: {missing.text}"
    return Fact(missing.name, "failed", text=text, makes="inconclusive")


def unavailable(name: str, why: str) -> Fact:
    """Return the fact *name* that could not be checked, and *why*."""
    return Fact(name, "unavailable", text=why)
