"""Compute what speculation and chunked prefill gain, from the times of passes."""

from __future__ import annotations

from dataclasses import dataclass

from gpuperf.theory.decoding import accepted_tokens
from gpuperf.theory.transformer.step import Steps


@dataclass(frozen=True)
class Round:
    """A round of speculation: the tokens that a sequence gets, the seconds of the drafts and of the
    pass that verifies them, and those of a step without drafts."""

    tokens: float
    draft_s: float
    verify_s: float
    plain_s: float

    @property
    def token_s(self) -> float:
        """The seconds between two tokens of a sequence, on average."""
        return (self.draft_s + self.verify_s) / self.tokens

    @property
    def gain(self) -> float:
        """How many times more tokens a second speculation gives."""
        return self.plain_s / self.token_s


def speculation(
    steps: Steps, draft: Steps | None, at: tuple[int, int], drafts: int, acceptance: float
) -> Round:
    """Return a round of *drafts* drafts, each accepted with the probability *acceptance*.

    *at* is the sequences, and the cached tokens of each. The model *draft* writes the drafts one by
    one; None drafts for nothing, as a look-up in the text does. The target verifies all drafts and
    its own next token in one pass.
    """
    batch, context = at
    cached = batch * context
    drafted = drafts * draft.decode_s(batch, cached) if draft is not None else 0.0
    verify_s = steps.decode_s(batch, cached, queries=drafts + 1)
    tokens = accepted_tokens(acceptance, drafts)
    return Round(tokens, drafted, verify_s, steps.decode_s(batch, cached))


@dataclass(frozen=True)
class Chunked:
    """A prompt computed in `passes` chunks beside running sequences: the seconds until its first
    token, and the longest between two tokens of the others."""

    passes: int
    first_s: float
    between_s: float


def chunked_prefill(steps: Steps, prompt: int, chunk: int, running: int, context: int) -> Chunked:
    """Return the passes of a prompt of *prompt* tokens in chunks of *chunk*, each beside *running*
    sequences that have *context* cached tokens each and get one token a pass."""
    starts = range(0, prompt, chunk)
    times = [
        steps.pass_s(
            running,
            running * context,
            ((min(chunk, prompt - start), start),),
            running + (start + chunk >= prompt),
        )
        for start in starts
    ]
    return Chunked(len(times), sum(times), max(times))
