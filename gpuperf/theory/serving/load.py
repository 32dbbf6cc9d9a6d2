"""Hold the requests of a simulation: when each arrives, its prompt, and the tokens it asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """Requests in the order of their arrival: times in seconds, prompts and outputs in tokens."""

    arrival_s: Sequence[float]
    prompt: Sequence[int]
    output: Sequence[int]

    def __len__(self) -> int:
        return len(self.arrival_s)

    def chosen(self, indices: Sequence[int]) -> Load:
        """Return the requests at *indices*."""
        return Load(
            [self.arrival_s[i] for i in indices],
            [self.prompt[i] for i in indices],
            [self.output[i] for i in indices],
        )


@dataclass(frozen=True)
class Server:
    """What a server can hold: `slots` sequences at once and `pages` pages of `page` tokens.

    A pass computes at most `chunk` prompt tokens. All prompts begin with the same `prefix` tokens,
    which come on top of those of the load.
    """

    slots: int
    pages: int
    page: int = 16
    chunk: int = 8192
    prefix: int = 0

    @property
    def shared_pages(self) -> int:
        """The whole pages of the prefix; the last partial one is copied when a sequence writes."""
        return self.prefix // self.page
