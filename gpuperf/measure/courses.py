"""Which passes does a region still have to go through, and how long may each of them take?"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from gpuperf.measure.passes import Pass
from gpuperf.model.program import PassName

__all__ = ["ANEW", "Course", "Limits"]

ANEW: tuple[PassName, ...] = ("light", "trace", "counters", "kernels")  # begin again after a break
# Steps of the passes that slow the program down; the counters of kernels end when they have all.
MOST: dict[PassName, int] = {"light": 5, "trace": 5, "kernels": 64, "accounting": 4}
# Shares of the budget that the warm-up, the plain pass and any other pass may take.
WARM, PLAIN, OTHER = 1 / 6, 1 / 3, 1 / 6
FEWEST_PLAIN = 2  # steps of a plain pass whose time is over
LONGER, SHORT_S = 3, 1.0  # times the steps of a plain pass that wants more and took less than that
LATER = 1000  # steps at most of a second plain pass
SETTLE_S = 1.0  # before it, for the clock of a card that rested while a trace was written


@dataclass(frozen=True)
class Limits:
    """Steps that go by first, steps of the plain pass, and the seconds that all passes of a region
    may take together. With *more* the plain pass is longer where its short steps scatter, and comes
    a second time when all other passes are done: the card is as warm then as it will be."""

    warmup: int
    steps: int
    budget_s: float = math.inf
    more: bool = False

    def plan(self, names: tuple[PassName, ...]) -> list[tuple[PassName, int]]:
        """The passes *names* of a region, each with its steps."""
        found: list[tuple[PassName, int]] = []
        for name in names:
            most = MOST.get(name) or self.steps
            found.append((name, most if name == "kernels" else min(self.steps, most)))
        return [*found, ("plain", LATER)] if self.more and "plain" in names else found


@dataclass
class Course:
    """The passes of one region. `done` are steps that ended; `waited` those of another region that
    waits, since this one's last, `anew` the traces that were begun anew; the pass is `behind`
    a trace of a GPU. A pass that is over starts the clock of the next."""

    region: str
    limits: Limits
    left: list[tuple[PassName, int]]
    done: int = 0
    inside: bool = False
    running: Pass | None = None
    within: bool = False  # the pass takes the step under way
    wanted: int = 0
    taken: int = 0
    waited: int = 0
    anew: int = 0
    began_s: float = 0.0
    behind: bool = False
    step_s: float = 0.0
    launched: int = 0  # kernels of a traced step
    pass_s: float = 0.0  # when the pass under way took its first step
    ended_s: float = 0.0  # when the last pass ended

    @property
    def finished(self) -> bool:
        """Whether there is no pass left."""
        return self.running is None and not self.left

    @property
    def alone(self) -> bool:
        """Whether a pass is under way that suffers no other."""
        return self.running is not None and self.running.name != "plain"

    @property
    def warm(self) -> bool:
        """Whether enough steps went by for the next pass to start."""
        now = time.perf_counter()
        if self.left and self.left[0] == ("plain", LATER):
            return now - self.ended_s >= SETTLE_S
        slow = self.done and now - self.began_s > WARM * self.limits.budget_s
        return self.done >= self.limits.warmup or bool(slow)

    @property
    def complete(self) -> bool:
        """Whether the pass under way has its steps, or no more time."""
        running = self.running
        if running is None or running.done:
            return running is not None
        spent_s, limits = time.perf_counter() - self.pass_s, self.limits
        if running.name == "kernels":
            return self.taken >= self.wanted
        plain = running.name == "plain"
        later = plain and self.wanted == LATER
        share = PLAIN if plain and not later else OTHER
        if spent_s > share * limits.budget_s and self.taken >= (FEWEST_PLAIN if plain else 1):
            return True
        longer = limits.more and not later and spent_s < SHORT_S and running.unsure
        return self.taken >= self.wanted * (LONGER if longer else 1)
