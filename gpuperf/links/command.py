"""Run `gpuperf links`: measure each link of each GPU, in a worker of that GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated

import typer

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.files import check_writable
from gpuperf.links.study import cases_of
from gpuperf.model.contract import Contract
from gpuperf.model.protocol import Opened
from gpuperf.model.record import Header, Run
from gpuperf.model.topology import Topology
from gpuperf.model.workload import Case
from gpuperf.peaks.find import find_peaks
from gpuperf.run.plan import default_contract
from gpuperf.run.runfile import RunWriter
from gpuperf.run.session import PlannedCase, make_header, new_run_id
from gpuperf.run.supervisor import Supervisor
from gpuperf.units import parse_range
from gpuperf.verb import options as opt
from gpuperf.verb.measuring import Outcome, exit_code
from gpuperf.verb.printing import print_run
from gpuperf.verb.progress import say
from gpuperf.verb.session import Session

LEAST_BYTES = 4096
Make = Callable[[str], Supervisor]  # of the supervisor of the device of this name


@opt.takes("precision", "budget", "out", "deadline", "format", "seed", budget=0.5)
def links(
    options: opt.Options,
    size: Annotated[
        str, typer.Option("--bytes", metavar="BYTES", help="Bytes to copy in each direction.")
    ] = "256M",
) -> int:
    """Measure the links of every pair of GPUs, and to the host.

    Each ordered pair is measured in one direction and in both at once, by the copy engine and by a
    kernel, with the latency of a load; the host's links with pinned and pageable memory. Each rate
    is beside the data sheet of its link. Nothing is changed.
    """
    count = _bytes(size)

    def make(device: str) -> Supervisor:
        return opt.make_supervisor(device, options.deadline)

    outcome = measure_links(make, options, count)
    print_run(outcome.run, options.format)
    return exit_code(outcome)


def _bytes(text: str) -> int:
    """Return the bytes of a copy. Raises: UsageError."""
    try:
        sizes = parse_range(text, LEAST_BYTES)
    except ValueError as error:
        raise UsageError(f"--bytes: {error}", "for example --bytes 256M") from None
    if len(sizes) != 1 or sizes[0] % 4:
        raise UsageError(f"--bytes {text} is not one multiple of 4", "for example --bytes 256M")
    return sizes[0]


def measure_links(make: Make, options: opt.Options, size: int) -> Outcome:
    """Measure every link with a supervisor of each GPU, into one run file.

    Raises: CannotMeasure where there is no GPU.
    """
    check_writable(options.out)
    with make("auto") as first:
        opened = first.open()
        if opened.device.kind != "cuda":
            raise CannotMeasure(
                f"{opened.device.name} has no links to measure: torch can use no NVIDIA GPU here",
                "run it on a machine with a GPU; `gpuperf doctor` says why torch has none",
            )
        topology = first.survey()
    schedules = [_schedule(opened, topology, gpu, options, size) for gpu in range(topology.gpus)]
    header = _header(opened, topology, [c for plan in schedules for c in plan], options)
    total = sum(map(len, schedules))
    with RunWriter(options.out / f"{header.run}.jsonl", fresh=True) as writer:
        writer.header(header)
        session = _measure(make, writer, header, schedules, total)
        say(f"run file: {writer.path}")
        return Outcome(Run(header, tuple(session.records)), writer.path, session.ended)


def _schedule(
    opened: Opened, topology: Topology, gpu: int, options: opt.Options, size: int
) -> tuple[PlannedCase, ...]:
    """Plan the cases of one GPU; the host's clock times copies of pageable memory, which wait."""
    cases = cases_of(topology, gpu, size)
    return tuple((case, _contract(opened, case, options), 0) for case in cases)


def _contract(opened: Opened, case: Case, options: opt.Options) -> Contract:
    timer = "wall" if case.implementation == "pageable" else "blocked"
    return default_contract(opened.device, timer, options.precision, options.budget)


def _header(
    opened: Opened, topology: Topology, plan: Sequence[PlannedCase], options: opt.Options
) -> Header:
    peaks, reason = find_peaks(opened.device)
    contracts = list(dict.fromkeys(contract for _, contract, _ in plan))
    header = make_header(
        new_run_id("links", opened.device.kind),
        ["gpuperf", *sys.argv[1:]],
        [case for case, _, _ in plan],
        contracts,
        opened,
        peaks,
        reason,
        seed=options.seed,
    )
    return replace(header, study="links", topology=topology, devices=tuple(range(topology.gpus)))


def _measure(
    make: Make,
    writer: RunWriter,
    header: Header,
    schedules: Sequence[tuple[PlannedCase, ...]],
    total: int,
) -> Session:
    """Measure the cases of each GPU by a worker on that GPU; all records are of one session."""
    records: Session | None = None
    for gpu, schedule in enumerate(schedules):
        with make(f"cuda:{gpu}") as supervisor:
            known = records.records if records else []
            session = Session(supervisor, writer, header, known)
            with session.reporting(total, [contract for _, contract, _ in schedule]) as reporter:
                session.measure(reporter, schedule)
            records = session
        if session.ended is not None:
            break
    assert records is not None
    return records
