"""Decide which profiling pass of a region comes next, and when a pass has enough steps."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from gpuperf.model.program import FORWARD, PART, WHOLE, PassName
from gpuperf.profile.inside.agreement import Agreement
from gpuperf.profile.inside.loading import loading
from gpuperf.profile.inside.passes import Pass

# Passes that begin again if the program compiles or forks in them.
ANEW: tuple[PassName, ...] = ("light", "trace", "counters", "kernels")
# The most steps of passes that slow the program down; `kernels` ends once it has all counters.
MOST: dict[PassName, int] = {"light": 5, "trace": 5, "kernels": 64, "accounting": 4}
# Shares of the budget that the warm-up, the plain pass and any other pass may take.
WARM, PLAIN, OTHER = 1 / 6, 1 / 3, 1 / 6
FEWEST_PLAIN = 2  # steps of a plain pass even if its share of the budget is spent
# A plain pass that no later pass can repeat (see `Course._longer`) lasts LONG_S seconds if enough
# steps are sure to follow it, and up to MOST_S until its mean is precise. Otherwise it is SHORT_S
# seconds or FEW steps, so that a loop of 3 s or 60 steps has some for the other passes. Forward
# passes without an optimizer are most often tokens, of which it takes MANY.
LONG_S, MOST_S = 3.0, 8.0
SHORT_S, FEW, MANY = 1.5, 25, 60
MOST_STEPS = 10_000  # steps of a plain pass
LONGEST = 80  # characters of a region's name
LOOK = 1.25  # factor between the moments at which the times of a plain pass are examined
LATER = 1000  # the most steps of a second plain pass
SETTLE_S = 1.0  # seconds before a second plain pass: the card rested while a trace was written


@dataclass(frozen=True)
class Limits:
    """Steps of the warm-up and of the plain pass, and the seconds of all passes of a region.

    With *more* the plain pass may take more steps than these, if no later pass can repeat it, and a
    second plain pass follows all other passes, when the card has reached its temperature. With an
    *agreement* only numbers of steps end the warm-up and the passes, the same on all ranks.
    """

    warmup: int
    steps: int
    budget_s: float = math.inf
    more: bool = False
    agreement: Agreement | None = None

    def plan(self, names: tuple[PassName, ...]) -> list[tuple[PassName, int]]:
        """Return the passes *names* of a region in order, each with the steps it has to take."""
        passes: list[tuple[PassName, int]] = []
        for name in names:
            most = MOST.get(name) or self.steps
            passes.append((name, most if name == "kernels" else min(self.steps, most)))
        return [*passes, ("plain", LATER)] if self.more and "plain" in names else passes


@dataclass
class Course:
    """The passes of one region: those that are left, the running one, and its steps so far.

    `done` counts the region's steps that ended, `inside` is true during a step. The running pass
    has `taken` steps of those `wanted`; it is `behind` if a trace of a GPU came before it. `waited`
    counts how often another region's pass had to wait for the running one since its last step,
    `anew` the passes that were begun again.
    """

    region: str
    limits: Limits
    left: list[tuple[PassName, int]]
    done: int = 0
    inside: bool = False
    running: Pass | None = None
    within: bool = False  # whether the running pass measures the current step
    wanted: int = 0
    taken: int = 0
    waited: int = 0
    anew: int = 0
    began_s: float = 0.0  # when the first step began; all moments by `time.perf_counter`
    behind: bool = False
    step_s: float = 0.0
    launched: int = 0  # kernels of a traced step
    pass_s: float = 0.0  # when the running pass took its first step
    look_s: float = 0.0  # when the times of a plain pass are examined next
    ended_s: float = 0.0  # when the last pass ended
    first: int = 0  # steps of the region before the first one of the running pass
    agreed: bool = False

    @property
    def finished(self) -> bool:
        """Return whether all passes of the region are done."""
        return self.running is None and not self.left

    @property
    def alone(self) -> bool:
        """Return whether a pass other than `plain` runs, which excludes passes of other regions."""
        return self.running is not None and self.running.name != "plain"

    def take(self) -> None:
        """Record the beginning of a step that the running pass measures."""
        self.within = True
        if not self.pass_s:
            self.pass_s, self.first = time.perf_counter(), self.done

    def is_warm(self) -> bool:
        """Return whether a pass may start: the warm-up is over, or the card has settled.

        The ranks of a distributed program agree here, once, on the steps of each pass.
        """
        now = time.perf_counter()
        if self.limits.agreement is not None:
            return self.done >= self.limits.warmup and self._agree(self.limits.agreement, now)
        if self.left and self.left[0] == ("plain", LATER):
            return now - self.ended_s >= SETTLE_S
        slow = self.done and now - self.began_s > WARM * self.limits.budget_s
        return self.done >= self.limits.warmup or bool(slow)

    def _agree(self, agreement: Agreement, now: float) -> bool:
        """Take as many steps in each pass as all ranks do, and return True."""
        if not self.agreed:
            self.agreed = True
            each_s = (now - self.began_s) / self.done if self.done else 0.0
            self.left = agreement.settle(self.region, self._affordable(each_s))
        return True

    def _affordable(self, each_s: float) -> list[tuple[PassName, int]]:
        """Return the passes that are left, with as many steps of *each_s* seconds as their shares
        of the budget have room for."""
        if not each_s:
            return self.left
        affordable: list[tuple[PassName, int]] = []
        for name, wanted in self.left:
            share, least = (PLAIN, FEWEST_PLAIN) if name == "plain" else (OTHER, 1)
            most = max(least, int(min(wanted, share * self.limits.budget_s / each_s)))
            affordable.append((name, wanted if name == "kernels" else min(wanted, most)))
        return affordable

    @property
    def complete(self) -> bool:
        """Return whether the running pass has all its steps, or spent its share of the budget."""
        running = self.running
        if running is None or running.done:
            return running is not None
        spent_s, limits = time.perf_counter() - self.pass_s, self.limits
        if running.name == "kernels" or limits.agreement is not None:
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
        """Return whether a plain pass of *spent_s* seconds needs more steps, and may take them.

        If the GPU waits for the host, no later pass can measure the time of a step, so this one
        lasts some seconds. If enough steps follow (no other pass needs one, or the data loader has
        returned under half of its batches), it lasts until its mean is precise. Otherwise the other
        passes need the rest of a short program: only a pass over tokens lasts longer, if the time
        of a token has changed in it.
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


def region_name(name: object) -> str:
    """Return the name of a region without the characters that a trace does not escape."""
    try:
        text = str(name)[:LONGEST]
    except Exception:  # its `__str__` fails
        text = type(name).__name__
    text = text.replace('"', "'").replace("\\", "/").replace(PART, "/")
    text = "".join(c if c.isprintable() else " " for c in text) or " "
    return f"{text} " if text == WHOLE else text
