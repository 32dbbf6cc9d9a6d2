"""Compare how times vary between forked processes and between spawned ones.

    OMP_NUM_THREADS=1 python docs/measured/forked_processes.py > docs/measured/forked_processes.txt

runs on a CPU for some minutes; `--device cuda:0` needs a GPU. Each round has a fork of each of
SERVERS servers and as many spawned processes, in random order. Each process measures all cases. The
tests permute labels within rounds, so that a drift of the machine meets both ways:

- spread: the standard deviation of the processes around the median of their round, and the ratio of
  forked to spawned ones;
- shift: how much longer forked processes take, in the mean;
- servers: the standard deviation of the means of the servers, whose forks share a layout of memory.

A busy machine disturbs the fastest tenth of the samples less than their median.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from gpuperf.gate.schedule import Standby
from gpuperf.model.record import Record
from gpuperf.model.workload import Case
from gpuperf.run.forking import ForkingLauncher, ForkServer
from gpuperf.run.launcher import Launcher, LocalLauncher
from gpuperf.run.plan import default_contract
from gpuperf.run.supervisor import Supervisor
from gpuperf.timing_check.cases import timing_cases

SERVERS = 4
ROUNDS = 8  # 32 processes of each way
LEAST_SPREAD = 1e-6
AHEAD = 2  # processes that are started before their turn
PERMUTATIONS = 4000
Rounds = list[list[float]]  # for each round the logarithm of each process's time
CPU = (
    ("copy", {"n": 2**18}),
    ("vector_add", {"n": 2**18}),
    ("softmax", {"m": 64, "n": 1024}),
    ("matmul", {"m": 192, "n": 192, "k": 192}),
)
GPU = (1, 2, 6, 8, 9, 11)  # of `timing_cases`: copies of 4 and 16 MB, matmul 512, 2048 and 4096 …


def cases_of(device: str, chosen: Sequence[int] = GPU) -> list[Case]:
    """Return the cases that are measured on *device*; on a GPU the *chosen* ones."""
    if device.startswith("cuda"):
        return [timing_cases()[index] for index in chosen]
    return [Case(op, "torch", {**point, "dtype": "fp32"}) for op, point in CPU]


def measure(
    launcher: Launcher, device: str, cases: Sequence[Case], budget_s: float
) -> tuple[list[Record], float]:
    """Return a record of each case from a fresh process, and the seconds that it needed to open the
    device, after it was started ahead of its turn."""
    start = time.perf_counter()
    with Supervisor(launcher, device) as supervisor:
        opened = supervisor.open()
        ready_s = time.perf_counter() - start
        contract = default_contract(opened.device, precision=0.001, budget_s=budget_s)
        if opened.device.kind == "cpu":  # whose flush takes longer than a hundred calls
            contract = replace(contract, cache="hot", gap_s=0.0)
        return [supervisor.measure("", c, contract, 0) for c in cases], ready_s


def p_of(statistic: Callable[[Rounds], float], rounds: Rounds, draw: random.Random) -> float:
    """Return the share of permutations within rounds whose statistic is as far from 0."""
    found = abs(statistic(rounds))
    again = ([draw.sample(each, len(each)) for each in rounds] for _ in range(PERMUTATIONS))
    return (1 + sum(abs(statistic(r)) >= found for r in again)) / (1 + PERMUTATIONS)


def spread(rounds: Rounds, way: slice) -> float:
    """Return the standard deviation of the processes of *way* around the median of their round."""
    apart = [x - statistics.median(each) for each in rounds for x in each[way]]
    return math.sqrt(statistics.fmean(x * x for x in apart))


FORKED, SPAWNED = slice(0, SERVERS), slice(SERVERS, 2 * SERVERS)


def ratio(rounds: Rounds) -> float:
    """Return the logarithm of the ratio of the spreads, of forked to spawned processes.

    A spread of 0, as of times of 1 µs that differ by whole ticks of the timer, counts as one of
    LEAST_SPREAD.
    """
    forked, spawned = (max(LEAST_SPREAD, spread(rounds, way)) for way in (FORKED, SPAWNED))
    return math.log(forked / spawned)


def shift(rounds: Rounds) -> float:
    """Return how much longer forked processes take, as a logarithm."""
    return statistics.fmean(
        statistics.fmean(each[FORKED]) - statistics.fmean(each[SPAWNED]) for each in rounds
    )


def between(rounds: Rounds) -> float:
    """Return the standard deviation of the servers' means."""
    means = [statistics.fmean(e[i] - statistics.fmean(e) for e in rounds) for i in range(SERVERS)]
    return statistics.stdev(means)


def show(name: str, rounds: Rounds, draw: random.Random) -> None:
    """Print the line of one figure of one case."""
    time_s = math.exp(statistics.median(x for each in rounds for x in each))
    forks = [each[FORKED] for each in rounds]
    print(
        f"{name:34s} {time_s * 1e6:9.2f} µs  spread {spread(rounds, FORKED) * 100:5.2f} % forked, "
        f"{spread(rounds, SPAWNED) * 100:5.2f} % spawned, ratio {math.exp(ratio(rounds)):5.2f} "
        f"(p {p_of(ratio, rounds, draw):.3f})  shift {shift(rounds) * 100:+5.2f} % "
        f"(p {p_of(shift, rounds, draw):.3f})  servers {between(forks) * 100:4.2f} % "
        f"(p {p_of(between, forks, draw):.3f})",
        flush=True,
    )


def main() -> None:
    """Measure, and print a line for each case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--budget", type=float, default=0.2, help="seconds of a case")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no round after them")
    parser.add_argument("--cases", default=",".join(map(str, GPU)), help="numbers, of a GPU")
    options = parser.parse_args()
    cases = cases_of(options.device, [int(number) for number in options.cases.split(",")])
    began = time.monotonic()
    draw, spawning = random.Random(1), LocalLauncher()
    servers = [ForkServer([None]) for _ in range(SERVERS)]
    launchers: list[Launcher] = [*(ForkingLauncher(s, spawning) for s in servers)]
    launchers += [spawning] * SERVERS
    every = range(len(launchers))
    ready_s: list[list[float]] = [[] for _ in launchers]
    rounds: list[list[list[Record]]] = []
    turns = [index for _ in range(options.rounds) for index in draw.sample(every, len(every))]
    # While a process measures, the next one imports torch, as in a gate.
    standby = Standby(dict(enumerate(launchers)), iter([*turns, *turns[:AHEAD]]), AHEAD)
    try:
        for server in servers:
            if refused := server.refused():
                parser.exit(3, f"workers cannot be forked here: {refused}\n")
        while turns and time.monotonic() - began < options.seconds:
            found: dict[int, list[Record]] = {}
            for index in turns[: len(every)]:
                launcher = standby.take(index)
                found[index], took_s = measure(launcher, options.device, cases, options.budget)
                ready_s[index].append(took_s)
            del turns[: len(every)]
            rounds.append([found[index] for index in every])
            print(f"{len(rounds)} rounds, {time.monotonic() - began:.0f} s", file=sys.stderr)
    finally:
        standby.close()
        for server in servers:
            server.close()
    report(cases, rounds, ready_s, draw)


def report(
    cases: Sequence[Case],
    rounds: Sequence[Sequence[Sequence[Record]]],
    ready_s: Sequence[Sequence[float]],
    draw: random.Random,
) -> None:
    """Print how long processes took to open the device, and a line for each figure of each case."""
    for way, part in (("forked", ready_s[FORKED]), ("spawned", ready_s[SPAWNED])):
        each = [seconds for some in part for seconds in some]
        print(f"{len(each)} {way} processes opened the device in {statistics.median(each):.2f} s")
    for index, case in enumerate(cases):
        records = [[process[index] for process in each] for each in rounds]
        if bad := [r for each in records for r in each if r.samples is None]:
            print(f"{case.id}: {bad[0].status}: {bad[0].reason}")
            continue
        for figure, share in (("median", 0.5), ("fastest tenth", 0.1)):
            times = [[math.log(quantile(r, share)) for r in each] for each in records]
            show(f"{case.op} {figure}", times, draw)


def quantile(record: Record, share: float) -> float:
    """Return the time below which *share* of the samples are."""
    assert record.samples is not None
    ordered = sorted(record.samples.values_s)
    return ordered[int(share * (len(ordered) - 1))]


if __name__ == "__main__":
    main()
