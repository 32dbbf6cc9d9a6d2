"""Draw what a submission must not know: contents, calls of each window, and which are audited.

All windows come from one pool. Whether a window is timed, and which of its results are audited, is
decided by the clerk and is not visible to the submission.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gpuperf.judge.protocol import Contents

WARM_ROUNDS = 2  # rounds at the beginning of a process that are not timed
SINGLE_ROUNDS, EMPTY_ROUNDS = 4, 3
MANY_ROUNDS = 24, 4  # usual rounds of several calls, and those of slow calls
TARGET_S, LONGEST_S = 0.02, 0.5  # seconds of a window: the least that is aimed at, and the most
AUDITED = 1 / 3  # fraction of the calls of each window
TWINS, COPIES = 0.15, 0.1  # probabilities of contents that resemble or repeat others
SLOT_BYTES, MOST_SLOTS, LEAST_SLOTS = 128 << 20, 32, 3
LEAST_LARGE_SLOTS = 2  # of contents that alone are larger than all slots should be
GPU_SLOT_BYTES, MOST_GPU_SLOTS = 4 << 30, 48
GPU_MANY_ROUNDS = 16, 4  # as MANY_ROUNDS; times vary less there
WATCHED_ROUNDS, RECORDED_ROUNDS = 4, 3
SEEDS = 2**62
LARGEST_SPREAD = 4  # bytes of a result's extent over those of its elements


@dataclass(frozen=True)
class Round:
    """One round: the calls of a window, which sides go first, and the audited places in it.

    On a GPU, some windows are `watched` by another process, which the submission cannot notice, and
    the last ones `recorded` in its own process.
    """

    contents: tuple[Contents, ...]
    submission_first: bool
    audited: tuple[int, ...]
    timed: bool
    watched: bool = False
    recorded: bool = False

    @property
    def order(self) -> tuple[int, ...]:
        """The slots in the order of the calls."""
        return tuple(contents.slot for contents in self.contents)


def slot_count(size: int, gpu: bool = False) -> int:
    """Return how many slots of *size* bytes a seat gets; on a GPU, with its results."""
    most, total = (MOST_GPU_SLOTS, GPU_SLOT_BYTES) if gpu else (MOST_SLOTS, SLOT_BYTES)
    least = LEAST_LARGE_SLOTS if size > total else LEAST_SLOTS
    return max(least, min(most, total // size))


def most_audits(slots: int) -> int:
    """Return the largest number of audited results of a window."""
    return math.ceil(AUDITED * most_calls(slots))


def most_calls(slots: int) -> int:
    """Return the largest number of calls of a window: other slots keep earlier contents."""
    return max(1, slots * 3 // 4)


@dataclass
class Plan:
    """The rounds of one process, drawn from a secret. `call_s` is the time of one call, once the
    reference has shown it; with *gpu*, rounds are watched and recorded. with *twins*, some
    contents differ from others in one element: with `far` it is far from the values that the task
    draws, with `near` it is one of them.
    """

    secret: int
    slots: int
    kinds: tuple[str, ...]
    call_s: float | None = None
    gpu: bool = False
    twins: str = ""
    _random: random.Random = field(init=False)
    _earlier: list[Contents] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.secret)

    def warm_rounds(self) -> list[Round]:
        """Return the first rounds, which look like all others."""
        return [self._round(self._many(), False) for _ in range(WARM_ROUNDS)]

    def rounds(self) -> list[Round]:
        """Return the timed rounds, in a random order."""
        slow = self.call_s is not None and self.call_s > LONGEST_S / 2
        many = (GPU_MANY_ROUNDS if self.gpu else MANY_ROUNDS)[slow]
        counts = [self._many() for _ in range(many)]
        counts += [1] * (0 if slow else SINGLE_ROUNDS) + [0] * EMPTY_ROUNDS
        self._random.shuffle(counts)
        rounds = [self._round(count, True) for count in counts]
        if not self.gpu:
            return rounds
        with_calls = [i for i, count in enumerate(counts) if count]
        several = [i for i in with_calls if counts[i] > 1] or with_calls
        for index in self._random.sample(several, min(WATCHED_ROUNDS, len(several))):
            rounds[index] = replace(rounds[index], watched=True)
        return rounds

    def recorded_rounds(self) -> list[Round]:
        """Return the last rounds on a GPU, whose windows are recorded and not timed."""
        rounds = [self._round(self._many(), False) for _ in range(RECORDED_ROUNDS * self.gpu)]
        return [replace(each, recorded=True) for each in rounds]

    def _many(self) -> int:
        """Draw the number of calls of a window."""
        most = most_calls(self.slots)
        least = max(2, self.slots // 2)  # windows of one call are planned by themselves
        if self.call_s is None:
            return max(1, self.slots // 3)
        fitting = max(1, int(LONGEST_S / max(self.call_s, 1e-9)))
        wanted = max(3, math.ceil(TARGET_S / max(self.call_s, 1e-9)))
        most = min(most, fitting, max(wanted, 3))
        return self._random.randint(min(least, most), most)

    def _round(self, count: int, timed: bool) -> Round:
        slots = self._random.sample(range(self.slots), count)
        contents: list[Contents] = []
        for slot in slots:
            contents.append(self._contents(slot, contents))
        self._earlier = (self._earlier + contents)[-64:]
        audits = self._random.sample(range(count), math.ceil(AUDITED * count))
        first = self._random.random() < 0.5
        return Round(tuple(contents), first, tuple(sorted(audits)), timed)

    def _contents(self, slot: int, present: Sequence[Contents]) -> Contents:
        """Draw contents for *slot*: mostly fresh ones, some like others, some seen elsewhere."""
        draw = self._random
        chance = draw.random()
        far = self.twins == "far"
        plain = [c for c in present if c.twin is None and (far or c.kind == self.kinds[0])]
        if chance < TWINS and plain and self.twins:
            other = draw.choice(plain)
            return Contents(slot, draw.randrange(SEEDS), "twin", (other.seed, other.kind), far)
        elsewhere = [c for c in self._earlier if c.slot != slot]
        if chance > 1 - COPIES and elsewhere:
            other = draw.choice(elsewhere)
            return Contents(slot, other.seed, other.kind, other.twin, other.far)
        nominal = draw.random() < 0.5 or len(self.kinds) == 1
        kind = self.kinds[0] if nominal else draw.choice(self.kinds[1:])
        return Contents(slot, draw.randrange(SEEDS), kind)
