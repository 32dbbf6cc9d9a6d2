"""Count how often the rule of `gpuperf fleet judge` accuses a healthy fleet, and what it detects.

Simulates fleets whose processes scatter as real ones did, each the median of its samples, drawn in
runs of neighbours: 45 fresh processes on one H200 that were not paced, so that clocks carried over
(`tests/data/noise_h200_medians.json`), and 20 in which gpuperf measured (`h200-noise.jsonl.gz`). To
these come persistent differences between hosts. The functions of `gpuperf.fleet` that judge real
shards judge them. Then a fleet of 1,000 hosts with 16 tests and 100 rows of each test is written,
merged and judged by the commands themselves, in processes of their own. Seeds are fixed; the
seconds are those of the machine: `python docs/measured/fleet.py` prints `fleet.txt` again, in ten
minutes.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy
from scipy.stats import binomtest

from gpuperf.fleet.pairs import judge_test
from gpuperf.fleet.rule import FleetRule, judge_processes
from gpuperf.fleet.shard import Device, Head, Row, encode_shard
from gpuperf.model.contract import Contract
from gpuperf.run.store import read_run

REAL = Path(__file__).parents[2] / "tests" / "data" / "noise_h200_medians.json"
PACED = Path(__file__).parent / "h200-noise.jsonl.gz"
RULE = FleetRule()
FLEETS, TESTS = 1000, 16
PAIRED = 300  # tournaments
LARGE = 1000  # hosts of a fleet of which a fifth as many are simulated
LEAST, MOST = 0.05, 0.15  # slowdowns of bad hosts
Draw = numpy.random.Generator


@dataclass(frozen=True)
class Fleet:
    """A fleet of hosts with one device, and how it is measured: tests, and cases of each in so many
    processes. `whole` and `single` are the standard deviations of the persistent differences
    between hosts, of all tests and of each."""

    hosts: int = 200
    tests: int = 16
    cases: int = 10
    processes: int = 10
    whole: float = 0.004
    single: float = 0.002
    noise: str = "unpaced"


def unpaced() -> Any:
    """Return the log medians of the 45 real processes, less those of their workload: (45, 12)."""
    medians = json.loads(REAL.read_text())["medians_us"]
    logs = numpy.log(numpy.array(list(medians.values()))).T
    return logs - numpy.median(logs, axis=0)


def paced() -> Any:
    """Return the same of the 20 processes in which gpuperf measured 13 cases: (20, 13)."""
    medians: dict[str, dict[int, float]] = {}
    for record in read_run(PACED).records:
        assert record.samples is not None
        medians.setdefault(record.case.id, {})[record.pass_index] = record.samples.median_s
    rows = [[of[i] for i in sorted(of)] for of in medians.values()]
    logs = numpy.log(numpy.array(rows)).T
    return logs - numpy.median(logs, axis=0)


POOLS = {"unpaced": unpaced(), "paced": paced()}


def process_logs(draw: Draw, fleet: Fleet) -> Any:
    """Draw the logs of each process of each host in each test and case: (hosts, tests, cases,
    processes). A test has the cases of as many workloads, all of the same process."""
    shape = (fleet.hosts, fleet.tests, fleet.cases, fleet.processes)
    if fleet.noise == "bimodal":  # an 8 % slow mode in a quarter of the processes of a case
        return draw.normal(0, 0.005, shape) + 0.08 * (draw.random(shape) < 0.25)
    if fleet.noise == "heavy":
        return 0.01 * draw.standard_t(3, shape)
    pool = POOLS[fleet.noise]
    rows, columns = pool.shape
    starts = draw.integers(0, rows, (fleet.hosts, fleet.tests, -(-fleet.processes // 4)))
    runs = (starts[..., None] + numpy.arange(4)) % rows
    picked = runs.reshape(fleet.hosts, fleet.tests, -1)[..., : fleet.processes]
    workloads = numpy.array([draw.permutation(columns) for _ in range(fleet.tests)])
    workloads = numpy.tile(workloads, (1, -(-fleet.cases // columns)))[:, : fleet.cases]
    return pool[picked[:, :, None, :], workloads[None, :, :, None]]


def simulate(draw: Draw, fleet: Fleet, bad: int) -> tuple[Any, dict[int, set[int]]]:
    """Draw a fleet with *bad* slow hosts; return its logs (hosts, cases,
    processes) and their slow tests.

    A bad host is slow by 5 to 15 % against its healthy peers, in all tests or in a single one.
    """
    host = draw.normal(0, fleet.whole, (fleet.hosts, 1))
    offsets = host + draw.normal(0, fleet.single, (fleet.hosts, fleet.tests))
    slow: dict[int, set[int]] = {}
    for i in draw.permutation(fleet.hosts)[:bad]:
        tests = (
            set(range(fleet.tests)) if draw.random() < 0.5 else {int(draw.integers(fleet.tests))}
        )
        slow[int(i)] = tests
        amount = numpy.log1p(draw.uniform(LEAST, MOST))
        offsets[i, sorted(tests)] = amount
    logs = process_logs(draw, fleet) + offsets[:, :, None, None]
    return logs.reshape(fleet.hosts, -1, fleet.processes), slow


def judge(logs: Any, fleet: Fleet) -> tuple[Any, float]:
    """Return which hosts are slow in which test, and the slowdown that is detected."""
    test_of_case = numpy.repeat(numpy.arange(fleet.tests), fleet.cases)
    scores = judge_processes(logs, test_of_case, fleet.tests, RULE)
    return scores.slow(RULE), float(numpy.expm1(scores.detectable[:-1].max()))


def rates(fleet: Fleet, fleets: int = FLEETS) -> str:
    """Return a line: how many healthy fleets accuse a host, and how many bad hosts are detected."""
    draw = numpy.random.default_rng(25)
    accusing = found = bad = innocent = 0
    least = []
    for _ in range(fleets):
        verdicts, detectable = judge(simulate(draw, fleet, 0)[0], fleet)
        accusing += bool(verdicts.any())
        least.append(detectable)
        logs, slow = simulate(draw, fleet, max(1, fleet.hosts // 100))
        verdicts, _ = judge(logs, fleet)
        bad += len(slow)
        found += sum(bool(verdicts[host].any()) for host in slow)
        innocent += int(verdicts.any(axis=1).sum()) - sum(bool(verdicts[h].any()) for h in slow)
    upper = binomtest(accusing, fleets).proportion_ci(0.95, method="exact").high
    return (
        f"{fleet.hosts:6d} {fleet.tests:5d} {fleet.cases:5d} {fleet.processes:9d} "
        f"{fleet.noise:>8s} {fleet.whole * 100:6.1f} {fleet.single * 100:6.1f} "
        f"{accusing:6d}/{fleets:<4d} (<= {upper * 100:4.1f} %)"
        f"{found:7d}/{bad:<6d}{innocent:8d} {numpy.median(least) * 100:9.1f} %"
    )


def pair_rates(hosts: int, noise: str, tournaments: int) -> str:
    """Return a line: how many healthy tournaments accuse a link or a host, and how many slow links
    are detected. Each pair has 3 cases in 5 processes; links differ by 0.3 %."""
    draw = numpy.random.default_rng(26)
    names = [f"node{i:02d}" for i in range(hosts)]
    pairs = list(itertools.combinations(names, 2))
    fleet = Fleet(hosts=len(pairs), tests=1, cases=3, processes=5, noise=noise)
    accusing = found = innocent = 0
    for _ in range(tournaments):
        healthy, other = (
            process_logs(draw, fleet)[:, 0].mean(1) + draw.normal(0, 0.003, (len(pairs), 1))
            for _ in range(2)
        )
        accusing += bool(judge_test("t", dict(zip(pairs, healthy, strict=True)), RULE).slow)
        slow = int(draw.integers(len(pairs)))
        other[slow] += numpy.log1p(draw.uniform(LEAST, MOST))
        named = judge_test("t", dict(zip(pairs, other, strict=True)), RULE).slow
        found += any(part.hosts == pairs[slow] for part in named)
        innocent += sum(part.hosts != pairs[slow] for part in named)
    return (
        f"{hosts:6d} {noise:>8s} {accusing:6d}/{tournaments} {found:6d}/{tournaments} {innocent:8d}"
    )


def write_fleet(folder: Path, hosts: int) -> tuple[list[str], list[str]]:
    """Write the shards of *hosts* hosts, of which 1 % are slow; return all names and the slow ones.

    Each shard has 16 tests of 10 cases in 10 processes: 1,600 rows.
    """
    draw = numpy.random.default_rng(7)
    fleet = Fleet(hosts=hosts)
    logs = process_logs(draw, fleet)
    host = draw.normal(0, fleet.whole, hosts)
    slow = draw.permutation(hosts)[: hosts // 100]
    host[slow] = numpy.log1p(draw.uniform(LEAST, MOST, len(slow)))
    times = 1e-4 * numpy.exp(logs + host[:, None, None, None])
    names = [f"node{i:04d}" for i in range(hosts)]
    cases = [
        (f"test{t:02d}/torch[n={2**c}]", t, c) for t in range(TESTS) for c in range(fleet.cases)
    ]
    hard = {"product": "NVIDIA H200", "sm_count": 132, "max_sm_clock_hz": 1.98e9}
    soft = {"driver": "580.95.05", "torch": "2.13.0"}
    for i, name in enumerate(names):
        head = Head(
            host=name,
            hostname=name,
            machine=f"{i:016x}",
            suite="simulated",
            suite_hash="0" * 64,
            contract=Contract("blocked"),
            devices=(Device(0, hard, soft),),
            processes=fleet.processes,
            planned=len(cases) * fleet.processes,
        )
        rows = (
            Row(case, 0, p, "ok", float(times[i, t, c, p]), 1.9e9)
            for p in range(fleet.processes)
            for case, t, c in cases
        )
        (folder / f"{name}.jsonl").write_bytes(encode_shard(head, rows))
    return names, sorted(names[i] for i in slow)


def timed(words: list[str]) -> tuple[float, float, int, str]:
    """Run a command; return its seconds, its largest memory in GB, its exit code and its stdout."""
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen([sys.executable, "-P", "-m", "gpuperf", *words], stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read().decode()
    seconds = time.perf_counter() - begin
    return seconds, usage.ru_maxrss * 1024 / 1e9, process.returncode, text


def large(hosts: int = 1000) -> Iterator[str]:
    """Merge and judge 1,600 rows of each of *hosts* by the command line; yield lines of text."""
    with tempfile.TemporaryDirectory() as name:
        folder, merged = Path(name) / "shards", Path(name) / "fleet.jsonl"
        folder.mkdir()
        names, slow = write_fleet(folder, hosts)
        (folder.parent / "hosts.txt").write_text("\n".join(names))
        listed = f"@{folder.parent / 'hosts.txt'}"
        merging = timed(["fleet", "merge", str(folder), "--out", str(merged), "--hosts", listed])
        judging = timed(["fleet", "judge", str(merged), "--format", "json"])
        report = json.loads(judging[3])
        found = sorted({bad["host"] for bad in report["bad"]})
        size = merged.stat().st_size / 1e6
        yield f"{report['hosts_judged']:,} hosts, {report['rows']:,} rows, {size:.0f} MB merged"
        for verb, (seconds, memory, code, _) in (("merge", merging), ("judge", judging)):
            yield f"{verb}: {seconds:5.1f} s, {memory:.2f} GB, exit code {code}"
        yield f"slow hosts: {len(slow)}, of which named: {len(set(slow) & set(found))}"
        yield f"healthy hosts that are named: {len(set(found) - set(slow))}"


HEAD = """\
hosts: of a fleet, each with one device; 1 % of them, or one, are slow where bad hosts are counted
noise: of the processes. unpaced: of one H200, clocks carried over; paced: of gpuperf on one H200;
  bimodal: 8 % slower in a quarter of the processes; heavy: Student's t of 3 degrees, times 1 %
whole, single: standard deviation of what differs between hosts, in all tests and in each, in %
accuse: healthy fleets in which a host is named, with the upper end of the 95 % interval
found: bad hosts that are named, slow by 5 to 15 % in all tests or in one; innocent: other hosts
detectable: the slowdown that the rule says it detects in the noisiest test, in the median fleet
"""
COLUMNS = (
    " hosts tests cases processes    noise  whole single accuse                found  "
    "innocent detectable"
)
SMALL = Fleet(tests=5, cases=3, processes=5)  # what the suite `screen` has
FLEETS_SHOWN = (
    *(Fleet(), Fleet(whole=0.002, single=0.001), Fleet(whole=0.008, single=0.003)),
    *(Fleet(processes=5), Fleet(processes=20), Fleet(noise="bimodal"), Fleet(noise="heavy")),
    *(SMALL, replace(SMALL, processes=10), replace(SMALL, processes=20)),
    *(Fleet(noise="paced"), replace(SMALL, noise="paced"), replace(SMALL, noise="paced", cases=1)),
    *(replace(SMALL, noise="paced", whole=0.002, single=0.001),),
    *(Fleet(hosts=n) for n in (3, 4, 8, 16, 50, 1000)),
)


if __name__ == "__main__":
    print(f"{RULE}; simulated\n")
    print(f"{HEAD}\n{COLUMNS}")
    for each in FLEETS_SHOWN:
        print(rates(each, FLEETS // 5 if each.hosts >= LARGE else FLEETS), flush=True)
    print("\ntournaments of pairs, one link slow by 5 to 15 %")
    print(" hosts    noise  accuse       found  innocent")
    for kind in POOLS:
        for hosts in (4, 8, 32):
            print(pair_rates(hosts, kind, PAIRED), flush=True)
    print()
    for line in large():
        print(line)
