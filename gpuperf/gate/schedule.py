"""In which order do processes of the two sides run, and what becomes of their records?

Pairs of fresh processes, one of each side, on one device. Blocks of two pairs are ABBA or BAAB, as
the seed has it; the cases of a pair are in one random order on both sides, so that what one case
leaves to the next is the same for both. While a process measures, the next ones import torch, and
make no context on the device.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuperf.errors import CannotMeasure
from gpuperf.gate.sides import LABELS, Label
from gpuperf.model.contract import Contract, Counting
from gpuperf.model.protocol import Opened
from gpuperf.model.record import Record
from gpuperf.model.workload import Case
from gpuperf.run.launcher import Connection, Launcher
from gpuperf.run.supervisor import DEADLINE_S, Supervisor


@dataclass(frozen=True)
class Injection:
    """A slowdown that is known: seconds that the *head* spins behind each call, by case."""

    extra_s: Mapping[str, float] = field(default_factory=dict)


def order_of(seed: int, pair: int) -> tuple[Label, Label]:
    """Which side of a pair runs first: drawn for each block of two pairs, and turned inside it."""
    first = random.Random(f"{seed} {pair // 2}").random() < 0.5
    return LABELS if first != bool(pair % 2) else (LABELS[1], LABELS[0])


def shuffled(cases: Sequence[Case], seed: int, pair: int) -> list[Case]:
    """*cases* in the order of this pair."""
    order = list(cases)
    random.Random(f"cases {seed} {pair}").shuffle(order)
    return order


class Standby:
    """Workers that are started before their turn, in the order in which they will be wanted."""

    def __init__(
        self, launchers: Mapping[Label, Launcher], turns: Iterator[Label], ahead: int
    ) -> None:
        self._launchers, self._turns = launchers, turns
        self._waiting: deque[tuple[Label, Connection]] = deque()
        self._ahead = ahead

    def take(self, label: Label) -> Launcher:
        """A launcher for *label*, whose first worker may be up already."""
        ready: Connection | None = None
        if self._waiting and self._waiting[0][0] == label:
            ready = self._waiting.popleft()[1]
        elif not self._waiting:
            self._turns = _after(self._turns, label)
        while len(self._waiting) < self._ahead:
            turn = next(self._turns)
            self._waiting.append((turn, self._launchers[turn].start()))
        return _Ready(self._launchers[label], ready)

    def close(self) -> None:
        """End the workers that nobody wants any more."""
        while self._waiting:
            self._waiting.popleft()[1].kill()


def _after(turns: Iterator[Label], label: Label) -> Iterator[Label]:
    """*turns* without the first, which is taken by *label*."""
    first = next(turns)
    if first != label:
        raise ValueError(f"it is the turn of {first}, and not of {label}")
    return turns


class _Ready:
    """A launcher whose first worker was started before."""

    def __init__(self, launcher: Launcher, ready: Connection | None) -> None:
        self._launcher, self._ready = launcher, ready

    def start(self) -> Connection:
        """The one that is there, then new ones."""
        ready, self._ready = self._ready, None
        if ready is not None and ready.death() is None:
            return ready
        if ready is not None:
            ready.kill()
        return self._launcher.start()


@dataclass
class Passes:
    """Runs passes: a fresh process of one side that measures cases, each record kept as it comes.

    `keep` gets the side and the record; `begin` hears which case is next.
    """

    launchers: Mapping[Label, Launcher]
    device: str
    contract: Contract
    seed: int
    keep: Callable[[Label, Record], None]
    begin: Callable[[str], None] = lambda case: None
    listen: Callable[[str, int], None] = lambda phase, samples: None
    deadline_s: float = DEADLINE_S
    injection: Injection = Injection()
    ahead: int = 0
    expected: Opened | None = None
    _standby: Standby | None = None

    def pair(
        self, run: Mapping[Label, str], cases: Mapping[Label, Sequence[Case]], index: int
    ) -> None:
        """One process of each side. Raises: CannotMeasure where the device is another one."""
        if self._standby is None:
            turns = (label for pair in _from(index) for label in order_of(self.seed, pair))
            self._standby = Standby(self.launchers, turns, self.ahead)
        for label in order_of(self.seed, index):
            self._pass(self._standby.take(label), label, run[label], cases[label], index)

    def close(self) -> None:
        """End what waits."""
        if self._standby is not None:
            self._standby.close()
            self._standby = None

    def once(
        self, label: Label, run: str, cases: Sequence[Case], counting: Counting = "off"
    ) -> tuple[Record, ...]:
        """The records of *cases* in one process of *label*, kept by nobody: to prime its caches, or
        with counters to find causes."""
        found: list[Record] = []
        kept, self.keep = self.keep, lambda label, record: found.append(record)
        try:
            self._pass(self.launchers[label], label, run, cases, 0, counting)
        finally:
            self.keep = kept
        return tuple(found)

    def _pass(
        self,
        launcher: Launcher,
        label: Label,
        run: str,
        cases: Sequence[Case],
        index: int,
        counting: Counting = "off",
    ) -> None:
        with Supervisor(launcher, self.device, self.deadline_s, self.listen) as supervisor:
            self._refuse_other(supervisor.open())
            for case in shuffled(cases, self.seed, index):
                self.begin(case.id)
                extra_s = self.injection.extra_s.get(case.id, 0.0) if label == "head" else 0.0
                record = supervisor.measure(
                    run, case, self.contract, self.seed, counting=counting, extra_s=extra_s
                )
                self.keep(label, replace(record, pass_index=index))

    def _refuse_other(self, opened: Opened) -> None:
        """Raises: CannotMeasure where the device changed its hard facts meanwhile."""
        if self.expected is None:
            return
        then, now = self.expected.fingerprint.hard, opened.fingerprint.hard
        for fact in sorted(then.keys() | now.keys()):
            if then.get(fact) != now.get(fact):
                raise CannotMeasure(
                    f"{fact} was {then.get(fact)!r} when the gate began, and is {now.get(fact)!r}",
                    "begin a new gate",
                )


def _from(index: int) -> Iterator[int]:
    while True:
        yield index
        index += 1
