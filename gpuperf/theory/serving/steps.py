"""Define what the simulation asks of a model: the time of one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gpuperf.theory.transformer.step import Steps

Chunk = tuple[int, int]  # prompt tokens that a pass computes, and tokens of the prompt before them


class StepTime(Protocol):
    """The time of a pass: prompt chunks, and sequences that write one token each.

    Between two events of a simulation the time is taken as linear in the sum of the contexts. The
    roofs make it so: the FLOPs and the bytes of decode attention are both proportional to the sum.
    """

    def step_s(self, prefill: Sequence[Chunk], sequences: int, context: int) -> float:
        """Return the seconds of a pass over the chunks *prefill* and over *sequences* sequences,
        whose cached tokens add up to *context*."""
        ...


@dataclass(frozen=True)
class ConstantStep:
    """Passes of one length, for closed forms of queues; `prefill_s` is that of a pass with prompts,
    by default the same."""

    decode_s: float
    prefill_s: float | None = None

    def step_s(self, prefill: Sequence[Chunk], sequences: int, context: int) -> float:
        """Return the seconds of the pass, whatever it holds."""
        return self.prefill_s if prefill and self.prefill_s is not None else self.decode_s


@dataclass(frozen=True)
class ModelStep:
    """Passes of a model whose times follow from its sizes and a device's roofs."""

    steps: Steps

    def step_s(self, prefill: Sequence[Chunk], sequences: int, context: int) -> float:
        """Return the seconds of the pass: linear layers, head, attention, and the fixed time."""
        return self.steps.pass_s(sequences, context, prefill)
