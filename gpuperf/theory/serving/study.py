"""Simulate a server under several policies, numbers of slots and rates of arrival."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from gpuperf.errors import UsageError
from gpuperf.model.record import Caveat
from gpuperf.theory.serving.inflight import simulate_inflight
from gpuperf.theory.serving.load import Load, Server
from gpuperf.theory.serving.log import Log
from gpuperf.theory.serving.outcome import Outcome, reduce
from gpuperf.theory.serving.rate import Rate
from gpuperf.theory.serving.static import simulate_static
from gpuperf.theory.serving.steps import StepTime
from gpuperf.theory.serving.trace import at_once, with_arrivals

POLICIES: Mapping[str, Callable[[Load, StepTime, Server], Log]] = {
    "static, padded": partial(simulate_static, padded=True),
    "static, ragged": partial(simulate_static, padded=False),
    "in-flight": simulate_inflight,
}
FEW = 20  # requests a slot, under which the filling and the emptying of the server count
CHART_LOADS = (0.2, 0.4, 0.6, 0.8, 0.9, 0.95)  # shares of the capacity


@dataclass(frozen=True)
class Row:
    """One simulation: `arriving_per_s` is the offered rate, None for a closed run or a trace, and
    `capacity_per_s` the requests a second of the same policy in a closed run."""

    policy: str
    slots: int
    rate: Rate
    arriving_per_s: float | None
    capacity_per_s: float
    outcome: Outcome

    @property
    def load(self) -> float | None:
        """The offered rate as a share of the capacity."""
        if self.arriving_per_s is None:
            return None
        return self.arriving_per_s / self.capacity_per_s

    @property
    def caveats(self) -> tuple[Caveat, ...]:
        """What is doubtful about the figures of this simulation."""
        doubts = list(self.outcome.caveats)
        if self.load is not None and self.load >= 1:
            message = (
                f"{self.policy} gets {self.load * 100:.0f} % of its capacity at rate "
                f"{self.rate.text}: the queue grows as long as requests arrive, so its latencies "
                "depend on the number of requests"
            )
            doubts.append(Caveat("overloaded", message, "give a rate below the capacity"))
        if self.outcome.requests < FEW * self.slots:
            message = (
                f"{self.outcome.requests:,} requests are under {FEW} for each of {self.slots} "
                "slots: the beginning and the end of the run weigh much"
            )
            doubts.append(Caveat("few-requests", message, "give more --requests"))
        return tuple(doubts)


@dataclass
class Bench:
    """A load on a server of given step times; each simulation is computed once.

    `left_out` counts the requests that do not fit into the cache alone.
    """

    load: Load
    steps: StepTime
    server: Server
    seed: int
    left_out: int = 0
    _rows: dict[tuple[str, int, Rate], Row] = field(default_factory=dict)

    def row(self, policy: str, slots: int, rate: Rate) -> Row:
        """Return the simulation of *policy* with *slots* slots at *rate*."""
        key = (policy, slots, rate)
        if key not in self._rows:
            self._rows[key] = self._simulate(*key)
        return self._rows[key]

    def _simulate(self, policy: str, slots: int, rate: Rate) -> Row:
        server = Server(
            slots, self.server.pages, self.server.page, self.server.chunk, self.server.prefix
        )
        if rate.kind == "closed":
            load, arriving = at_once(self.load), None
        elif rate.kind == "trace":
            load, arriving = self.load, arrival_rate(self.load)
        else:
            arriving = rate.value
            if rate.kind == "capacity":
                arriving *= self.row(policy, slots, Rate("closed")).capacity_per_s
            load = with_arrivals(self.load, arriving, self.seed)
        outcome = reduce(POLICIES[policy](load, self.steps, server), load, server)
        capacity = outcome.requests_per_s
        if rate.kind != "closed":
            capacity = self.row(policy, slots, Rate("closed")).capacity_per_s
        return Row(policy, slots, rate, arriving, capacity, outcome)


def arrival_rate(load: Load) -> float | None:
    """Return the requests a second of *load*, None if all arrive at once."""
    span = load.arrival_s[-1] - load.arrival_s[0]
    return (len(load) - 1) / span if span > 0 else None


def make_bench(load: Load, steps: StepTime, server: Server, seed: int) -> Bench:
    """Return the bench of the requests of *load* that fit into the cache alone.

    Raises: UsageError if none does.
    """
    fitting = [request for request in range(len(load)) if fits(load, request, server)]
    if not fitting:
        raise UsageError(
            f"no request fits into a cache of {server.pages * server.page:,} tokens",
            "choose a device with more memory, a smaller model, or shorter requests",
        )
    left_out = len(load) - len(fitting)
    return Bench(load.chosen(fitting) if left_out else load, steps, server, seed, left_out)


def fits(load: Load, request: int, server: Server) -> bool:
    """Return whether the cache holds *request*, to its last token, if it holds nothing else."""
    tokens = server.prefix + load.prompt[request] + load.output[request] - 1
    return -(-tokens // server.page) <= server.pages


def simulate(
    bench: Bench, policies: Sequence[str], slots: Sequence[int], rates: Sequence[Rate]
) -> Iterator[Row]:
    """Yield a row for each number of slots, rate and policy, in this order."""
    for count in slots:
        for rate in rates:
            for policy in policies:
                yield bench.row(policy, count, rate)
