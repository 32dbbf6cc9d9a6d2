"""Run fresh processes of base and head in pairs, in random order, and pass on their records.

A pair is one fresh process of each side, on one device. Blocks of two pairs are ABBA or BAAB, drawn
by the seed; the cases of a pair are in one random order on both sides, so that the effect of one
case on the next is the same for both. While a process measures, the next ones import torch, and
create no context on the device. A process ends while the next one creates its context.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Generic, TypeVar

from gpuperf.errors import CannotMeasure
from gpuperf.gate.sides import LABELS, Label
from gpuperf.model.contract import Contract, Counting
from gpuperf.model.protocol import Opened
from gpuperf.model.record import Record
from gpuperf.model.workload import Case
from gpuperf.run.connection import Connection
from gpuperf.run.launcher import Launcher
from gpuperf.run.supervisor import DEADLINE_S, Supervisor

T = TypeVar("T", bound=Hashable)


def order_of(seed: int, pair: int) -> tuple[Label, Label]:
    """Return the sides of pair number *pair* in the order in which they run: drawn for each block
    of two pairs, and reversed for the second of them."""
    first = random.Random(f"{seed} {pair // 2}").random() < 0.5
    return LABELS if first != bool(pair % 2) else (LABELS[1], LABELS[0])


def shuffled(cases: Sequence[Case], seed: int, pair: int) -> list[Case]:
    """Return *cases* in the random order of pair number *pair*."""
    order = list(cases)
    random.Random(f"cases {seed} {pair}").shuffle(order)
    return order


class Standby(Generic[T]):
    """Workers that are started *ahead* of their turn, in the order of *turns*, by their labels."""

    def __init__(self, launchers: Mapping[T, Launcher], turns: Iterator[T], ahead: int) -> None:
        self._launchers, self._turns, self._ahead = launchers, turns, ahead
        self._workers: deque[tuple[T, Connection]] = deque()

    def take(self, label: T) -> Launcher:
        """Return a launcher for *label*, whose first worker may have been started already."""
        worker: Connection | None = None
        if self._workers and self._workers[0][0] == label:
            worker = self._workers.popleft()[1]
        elif not self._workers and (turn := next(self._turns)) != label:
            raise ValueError(f"it is the turn of {turn}, and not of {label}")
        while len(self._workers) < self._ahead:
            turn = next(self._turns)
            self._workers.append((turn, self._launchers[turn].start()))
        return _StartedLauncher(self._launchers[label], worker)

    def close(self) -> None:
        """End the workers that were started and not taken."""
        while self._workers:
            self._workers.popleft()[1].kill()


class _StartedLauncher:
    """A launcher whose first worker has been started already."""

    def __init__(self, launcher: Launcher, worker: Connection | None) -> None:
        self._launcher, self._worker = launcher, worker

    def start(self) -> Connection:
        """Return the started worker if it lives, else a new one."""
        worker, self._worker = self._worker, None
        if worker is not None and worker.death() is None:
            return worker
        if worker is not None:
            worker.kill()
        return self._launcher.start()


def measure_each(
    supervisor: Supervisor,
    run: str,
    cases: Sequence[Case],
    contract: Contract,
    seed: int,
    begin: Callable[[str], None],
    counting: Counting = "off",
    extra_s: Mapping[str, float] | None = None,
) -> Iterator[Record]:
    """Measure *cases* in the process of *supervisor*, and yield each record as it comes.

    *begin* is called with the id of each case before it. After each call of a case the device spins
    for its seconds in *extra_s*.
    """
    for case in cases:
        begin(case.id)
        spin_s = (extra_s or {}).get(case.id, 0.0)
        yield supervisor.measure(run, case, contract, seed, counting=counting, extra_s=spin_s)


@dataclass
class PairRunner:
    """A runner of pairs, each of one fresh process of each side; `keep` is called with each record
    and its side.

    Each call of a case on the head is lengthened by its seconds in `extra_s`, as a known slowdown.
    `ahead` is the number of workers that are started before their turn.
    """

    launchers: Mapping[Label, Launcher]
    device: str
    contract: Contract
    seed: int
    keep: Callable[[Label, Record], None]
    begin: Callable[[str], None] = lambda case: None
    listen: Callable[[str, int], None] = lambda phase, samples: None
    deadline_s: float = DEADLINE_S
    extra_s: Mapping[str, float] = field(default_factory=dict)
    ahead: int = 0
    expected: Opened | None = None
    _standby: Standby[Label] | None = None
    _ending: ExitStack = field(default_factory=ExitStack)  # waits for the last process's end

    def pair(
        self, run: Mapping[Label, str], cases: Mapping[Label, Sequence[Case]], index: int
    ) -> None:
        """Measure *cases* in one process of each side, as pair number *index*.

        Raises: CannotMeasure if the device is not the expected one.
        """
        if self._standby is None:
            pairs = itertools.count(index)
            turns = (label for pair in pairs for label in order_of(self.seed, pair))
            self._standby = Standby(self.launchers, turns, self.ahead)
        for label in order_of(self.seed, index):
            launcher, keep = self._standby.take(label), partial(self.keep, label)
            self._process(launcher, label, run[label], cases[label], keep, index, brief=True)

    def close(self) -> None:
        """End the last process, and the workers that were started before their turn."""
        self._ending.close()
        if self._standby is not None:
            self._standby.close()
            self._standby = None

    def once(
        self, label: Label, run: str, cases: Sequence[Case], counting: Counting = "off"
    ) -> tuple[Record, ...]:
        """Return the records of *cases* in one process of *label*, without keeping them."""
        records: list[Record] = []
        launcher = self.launchers[label]
        self._process(launcher, label, run, cases, records.append, counting=counting)
        return tuple(records)

    def _process(
        self,
        launcher: Launcher,
        label: Label,
        run: str,
        cases: Sequence[Case],
        keep: Callable[[Record], None],
        index: int = 0,
        counting: Counting = "off",
        brief: bool = False,
    ) -> None:
        with ExitStack() as stack:
            supervisor = Supervisor(launcher, self.device, self.deadline_s, self.listen)
            supervisor.brief = brief
            opened = stack.enter_context(supervisor).open()
            self._ending.close()  # before this process measures
            self._refuse_other(opened)
            order = shuffled(cases, self.seed, index)
            extra_s = self.extra_s if label == "head" else None
            for record in measure_each(
                supervisor, run, order, self.contract, self.seed, self.begin, counting, extra_s
            ):
                keep(replace(record, pass_index=index))
            supervisor.dismiss()
            self._ending = stack.pop_all()

    def _refuse_other(self, opened: Opened) -> None:
        """Raise CannotMeasure if a hard fact of the device has changed since the gate began."""
        if self.expected is None:
            return
        then, now = self.expected.fingerprint.hard, opened.fingerprint.hard
        for fact in sorted(then.keys() | now.keys()):
            if then.get(fact) != now.get(fact):
                raise CannotMeasure(
                    f"{fact} was {then.get(fact)!r} when the gate began, and is {now.get(fact)!r}",
                    "begin a new gate",
                )
