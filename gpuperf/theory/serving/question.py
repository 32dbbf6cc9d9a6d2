"""Hold what a simulation of a server is asked: model, device, trace, and how they are named."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """The words of a table and a chart, and the cache: `room` tokens of `token_bytes` each."""

    title: str
    lead: tuple[str, ...]
    remarks: tuple[str, ...]
    room: int
    token_bytes: float
