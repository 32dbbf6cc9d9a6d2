"""Measure a suite on every device of this host, and return the measurements as a shard.

A suite of collectives is measured by a gang instead: of the devices of this host, or, where
torchrun started it on two hosts, of both, as the test of a pair.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import gpuperf
from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.fleet.shard import Device, Head, Row, encode_shard, is_host
from gpuperf.model.record import Record, Run
from gpuperf.model.text import clean, shorten
from gpuperf.run.store import read_run
from gpuperf.run.suite import LARGEST_FILE, Suite, hash_of_suite, load_suite, parse_suite
from gpuperf.verb.measuring import Outcome, Request, exit_code, measure_again, measure_suite
from gpuperf.verb.options import Options, make_supervisor

BOOT = Path("/proc/sys/kernel/random/boot_id")  # differs between kernels, also in containers
STDIN = "-"  # the suite that is read from stdin
MOST_DEVICES = 64
LONGEST_REASON = 200  # characters of a failure in a shard


@dataclass(frozen=True)
class Unit:
    """What one host measures: a suite on `devices` (all, cpu, or indices as 0,1), in so many
    processes; and the names under which it reports. With `options.gpus` a gang measures it."""

    suite: Suite
    host: str
    fleet: str
    devices: str
    processes: int
    options: Options


def suite_of(name: str) -> Suite:
    """Load the suite *name*, or read it from stdin for `-`. Raises: UsageError."""
    if name != STDIN:
        return load_suite(name)
    data = sys.stdin.buffer.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise UsageError(f"the suite on stdin is over {LARGEST_FILE:,} bytes", "use a short suite")
    try:
        return parse_suite(data.decode("utf-8-sig"), "stdin")
    except UnicodeDecodeError as error:
        raise UsageError(f"the suite on stdin is not UTF-8: {error}", "save it as UTF-8") from None


def host_name(given: str | None) -> str:
    """Return the name under which this host reports. Raises: UsageError for an invalid one."""
    name = given if given is not None else platform.node()
    if not is_host(name):
        raise UsageError(
            f"{clean(name)[:80]!r} is not the name of a host",
            "--host NAME, with letters, digits, dots and hyphens",
        )
    return name


def machine_mark() -> str:
    """Return a hash that differs between machines and reveals nothing about this one.

    `$GPUPERF_HOST` replaces the kernel's boot id where several hosts share one kernel.
    """
    name = os.environ.get("GPUPERF_HOST", "")
    with suppress(OSError):
        name = name or BOOT.read_text(encoding="ascii").strip()
    return sha256(f"gpuperf fleet {name or platform.node()}".encode()).hexdigest()[:16]


def measure_unit(unit: Unit) -> tuple[str, bytes, list[Outcome]]:
    """Measure *unit*, and return the name of its shard, the shard, and the outcome of each device.

    Run files go to the folder of the options. Raises: CannotMeasure, UsageError; and the error that
    ended a run early, without a shard.
    """
    outcomes = [_measure_device(unit, device) for device in _devices(unit)]
    runs = [read_run(outcome.path) for outcome in outcomes]
    first = runs[0].header
    host, peer = _ends(unit, first.hosts)
    head = Head(
        host=host,
        peer=peer,
        hostname=clean(platform.node())[:253],
        machine=machine_mark(),
        suite=unit.suite.name,
        suite_hash=hash_of_suite(unit.suite),
        contract=first.contract,
        devices=tuple(
            Device(place, run.header.fingerprint.hard, run.header.fingerprint.soft)
            for place, run in enumerate(runs)
        ),
        processes=unit.processes,
        planned=len(first.plan) * len(runs) * unit.processes,
        created=first.created,
        gpuperf=gpuperf.__version__,
        fleet=unit.fleet,
    )
    rows = [row for i, run in enumerate(runs) for row in _rows(run, i)]
    return f"{host}-{peer}" if peer else host, encode_shard(head, rows), outcomes


def _ends(unit: Unit, hosts: Sequence[str]) -> tuple[str, str]:
    """Return the host that reports, and the other one of a pair; *hosts* are those of a gang's
    ranks. Raises: UsageError for more hosts, or names that are no hosts'."""
    names = list(dict.fromkeys(hosts))
    if len(names) < 2:
        return unit.host, ""
    if len(names) > 2 or not all(map(is_host, names)):
        raise UsageError(
            f"a pair has two hosts, and the ranks are on {', '.join(names)[:120]}",
            "torchrun --nnodes 2; GPUPERF_HOST names a host",
        )
    return names[0], names[1]


def unit_exit_code(outcomes: Sequence[Outcome]) -> int:
    """Return 0. Raises: CannotMeasure where a case failed."""
    for outcome in outcomes:
        exit_code(outcome)
    return 0


def _devices(unit: Unit) -> Iterator[str]:
    """Yield the names of the devices of *unit*; all are the GPUs, or the CPU without one. A gang
    counts as one device."""
    if unit.options.gpus and unit.devices not in ("all", "cpu"):
        raise UsageError(
            f"--devices {clean(unit.devices)[:40]} and a gang exclude each other",
            "leave --devices out; CUDA_VISIBLE_DEVICES chooses the GPUs",
        )
    if unit.options.gpus:
        yield "cpu" if unit.devices == "cpu" else "auto"
        return
    if unit.devices == "cpu":
        yield "cpu"
        return
    if unit.devices != "all":
        yield from (f"cuda:{index}" for index in _indices(unit.devices))
        return
    with make_supervisor("auto", unit.options.deadline) as supervisor:
        if supervisor.open().device.kind == "cpu":
            yield "cpu"
            return
    for index in range(MOST_DEVICES):
        if index and not _is_there(f"cuda:{index}", unit.options.deadline):
            return
        yield f"cuda:{index}"


def _indices(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) < MOST_DEVICES for word in words):
        raise UsageError(f"--devices {clean(text)[:40]!r} names no devices", "all, cpu, or 0,1,2")
    return sorted({int(word) for word in words})


def _is_there(device: str, deadline_s: float) -> bool:
    try:
        with make_supervisor(device, deadline_s) as supervisor:
            supervisor.open()
    except CannotMeasure:
        return False
    return True


def _measure_device(unit: Unit, device: str) -> Outcome:
    options = replace(unit.options, device=device)
    with options.supervisor(unit.processes) as supervisor:
        request = Request("fleet", options, unit.suite.conditions)
        outcome = measure_suite(supervisor, unit.suite, request)
        if unit.processes > 1 and outcome.ended is None:
            outcome = measure_again(supervisor, outcome, unit.processes - 1)
    if outcome.ended is not None:
        raise outcome.ended
    return outcome


def _rows(run: Run, device: int) -> Iterator[Row]:
    for record in run.records:
        yield _row(record, device)


def _row(record: Record, device: int) -> Row:
    samples, telemetry = record.samples, record.telemetry
    place = (record.case.id, device, record.pass_index)
    shared = bool(telemetry and telemetry.other_processes)
    if record.status != "ok" or samples is None:
        status = "error" if record.status == "ok" else record.status
        return Row(*place, status, reason=shorten(record.reason, LONGEST_REASON), shared=shared)
    clocks = sorted(clock for clock in samples.sm_clock_hz if clock is not None)
    clock_hz = clocks[len(clocks) // 2] if clocks else None
    return Row(*place, "ok", samples.median_s, clock_hz, shared=shared)
