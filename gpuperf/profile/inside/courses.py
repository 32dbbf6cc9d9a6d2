"""Which passes does a region still have to go through, and how long may each of them take?"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from gpuperf.model.program import PassName
from gpuperf.profile.inside.loading import loading
from gpuperf.profile.inside.passes import Pass

FORWARD = "forward step"  # from one forward pass of the outermost module to the next

ANEW: tuple[PassName, ...] = ("light", "trace", "counters", "kernels")  # begin again after a break
# Steps of the passes that slow the program down; the counters of kernels end when they have all.
MOST: dict[PassName, int] = {"light": 5, "trace": 5, "kernels": 64, "accounting": 4}
# Shares of the budget that the warm-up, the plain pass and any other pass may take.
WARM, PLAIN, OTHER = 1 / 6, 1 / 3, 1 / 6
FEWEST_PLAIN = 2  # steps of a plain pass whose time is over
# A plain pass that must tell all (see `Course._longer`): where steps are sure to follow it takes
# LONG_S, and up to MOST_S until it is sure; else half of a loop of 3 s, or FEW steps, so that a
# loop of 60 has steps for the other passes. Forward passes without an optimizer are most often
# tokens, of which there are more.
LONG_S, MOST_S = 3.0, 8.0
SHORT_S, FEW, MANY = 1.5, 25, 60
MOST_STEPS = 10_000  # of it
LOOK = 1.25  # times the seconds of it until its times are looked at once more
LATER = 1000  # steps at most of a second plain pass
SETTLE_S = 1.0  # before it, for the clock of a card that rested while a trace was written


@dataclass(frozen=True)
class Limits:
    """Steps that go by first, steps of the plain pass, and the seconds that all passes of a region
    may take together. With *more* the plain pass is longer where a second one will tell less, and
    that one comes when all other passes are done: the card is as warm then as it will be."""

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
    look_s: float = 0.0  # of a plain pass: when its times are looked at next
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
        if self.taken < self.wanted:
            return False
        return not (limits.more and plain and not later and self._longer(running, spent_s))

    def _longer(self, running: Pass, spent_s: float) -> bool:
        """Whether a plain pass needs more steps than were wanted, and may have them.

        Of a GPU that waits for its host no later pass can tell the time of a step. So the pass goes
        on by the clock. Where enough steps follow, since nothing is left that needs one or the data
        loader has more batches than it gave, it goes on until the mean is sure. Where none is known
        to follow, other passes need the rest of a short program: only tokens whose time has changed
        in the pass make that longer.
        """
        if not running.last or self.taken >= MOST_STEPS:
            return False
        given, tokens = loading.given, self.region == FORWARD
        room = all(name == "plain" for name, _ in self.left) or (given is not None and given < 0.5)
        most = math.inf if room else MANY if tokens else FEW
        if spent_s < (LONG_S if room else SHORT_S) and self.taken < most:
            return True
        if spent_s >= MOST_S or not (room or (tokens and given is None)):
            return False
        if spent_s >= self.look_s:
            self.look_s = LOOK * spent_s
            return running.changing or (room and running.unsure)
        return True
