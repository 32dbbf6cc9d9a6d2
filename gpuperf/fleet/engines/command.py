"""Run `gpuperf fleet run` and `gpuperf fleet manifest`: start the unit on the hosts of a fleet."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gpuperf.errors import Incomplete, UnknownName, UsageError
from gpuperf.fleet.collection import parse_hosts
from gpuperf.fleet.engines.engine import Engine, NamesHosts
from gpuperf.fleet.session import HostResult
from gpuperf.show.screen import put, stdout_screen
from gpuperf.verb import options as opt
from gpuperf.verb.parse import seconds_between
from gpuperf.verb.progress import say

SuiteName = Annotated[
    str, typer.Option("--suite", help="Suite to measure: screen, ci, quick, full, or a file.")
]
DevicesOption = Annotated[
    str, typer.Option("--devices", help="Devices of the host: all (GPUs), cpu, or indices as 0,1.")
]
Processes = Annotated[
    int,
    typer.Option(
        "--processes",
        min=1,
        max=100,
        help="Number of processes that measure the suite on each device.",
    ),
]
NamedHosts = Annotated[
    str,
    typer.Option(
        "--hosts",
        metavar="NAME,…",
        help="Hosts of the fleet, joined by commas, or @FILE with one host a line.",
    ),
]
ProgramOption = Annotated[
    str | None,
    typer.Option(
        "--program",
        metavar="COMMAND",
        help="The command gpuperf on the hosts, such as /opt/venv/bin/gpuperf.",
        show_default=False,
    ),
]


def run_hosts(
    hosts: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            help="Hosts to measure, joined by commas, or @FILE with one host a line (default for "
            "ray: all nodes).",
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="What starts the unit on the hosts: local, ssh, ray or submitit.")
    ] = "local",
    suite: SuiteName = "screen",
    devices: DevicesOption = "all",
    processes: Processes = 5,
    program: ProgramOption = None,
    deadline: Annotated[
        float,
        typer.Option(
            parser=seconds_between("deadline", 1.0, 86400.0),
            metavar="DURATION",
            help="End a host that has not answered after this long, in seconds, or as 30min.",
        ),
    ] = 1800.0,
    at_once: Annotated[
        int, typer.Option(min=1, max=1000, help="Number of hosts that ssh measures at a time.")
    ] = 32,
    out: Annotated[
        Path, typer.Option(metavar="PATH", help="Folder for the shards; it must have none yet.")
    ] = Path("gpuperf-fleet"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Measure the hosts that the folder --out lacks.")
    ] = False,
    format: opt.FormatOption = opt.Format.TABLE,
) -> int:
    """Measure all hosts of a fleet by an engine, and collect their shards in a folder."""
    from gpuperf.fleet import session

    started = session.engine_of(engine, out)
    if resume and hosts is not None:
        raise UsageError("--resume measures the hosts of the folder", "leave out --hosts")
    options = ("--devices", devices, "--processes", str(processes))
    words = session.program_of(program, engine != "ssh")
    run = session.FleetRun(suite, (), words, options)
    if resume:
        run = session.rest_of_fleet(run, out)
    else:
        run = session.begin_fleet(replace(run, hosts=_hosts_of(hosts, started, engine)), out)
    again = shlex.join(("gpuperf", "fleet", "run", "--resume", "--out", str(out), *run.asked))
    return _report(session.run_fleet(run, started, out, deadline, at_once), format, again)


def _hosts_of(hosts: str | None, started: Engine, engine: str) -> tuple[str, ...]:
    """Return the hosts that are given, or else those of the engine. Raises: UsageError."""
    if hosts is not None:
        return parse_hosts(hosts)
    if isinstance(started, NamesHosts):
        return started.hosts()
    raise UsageError(f"the engine {engine} needs the names of the hosts", "--hosts a,b,c")


def _report(results: Iterable[HostResult], format: opt.Format, again: str) -> int:
    """Write a line for each host as it ends, print all, and return 0.

    Raises: Incomplete, with the command *again* that measures the hosts that are lacking.
    """
    from gpuperf.fleet.table import render_results

    ended = []
    for result in results:
        say(f"{result.host}: {result.reason or f'{result.rows:,} rows'}")
        ended.append(result)
    put(render_results(ended, format.value, stdout_screen()))
    lost = [result.host for result in ended if result.reason]
    if lost:
        raise Incomplete(
            f"{len(lost)} of {len(ended)} hosts have no whole shard: {', '.join(lost[:5])}",
            f"`{again}` measures them; repeat --engine and --program",
        )
    return 0


def print_manifest(
    system: Annotated[str, typer.Argument(metavar="SYSTEM", help="slurm, kubernetes or pairs.")],
    hosts: NamedHosts,
    suite: SuiteName = "screen",
    devices: DevicesOption = "all",
    processes: Processes = 5,
    program: ProgramOption = None,
    folder: Annotated[
        str, typer.Option(help="Folder for the shards, which all hosts share (Slurm).")
    ] = "gpuperf-fleet",
    name: Annotated[str, typer.Option(help="Name of the job.")] = "gpuperf-fleet",
    gpus: Annotated[int, typer.Option(min=0, max=64, help="Number of GPUs of a host.")] = 0,
    minutes: Annotated[
        int, typer.Option(min=1, max=10_000, help="Time limit of the job, in minutes.")
    ] = 60,
    partition: Annotated[str, typer.Option(help="Partition of Slurm.")] = "",
    account: Annotated[str, typer.Option(help="Account of Slurm.")] = "",
    image: Annotated[str, typer.Option(help="Image of the containers (Kubernetes).")] = "",
    volume: Annotated[
        str, typer.Option(help="Persistent volume claim for the shards (Kubernetes).")
    ] = "",
    namespace: Annotated[str, typer.Option(help="Namespace of the job (Kubernetes).")] = "",
) -> int:
    """Print a job file that measures every host once: a Slurm script or a Kubernetes Job.

    For `pairs` it is a script that measures each pair of hosts over ssh, with a suite of
    collectives and --gpus processes on each host.
    """
    from gpuperf.fleet.manifest import SYSTEMS, Manifest, kubernetes_job, pair_script, slurm_script
    from gpuperf.fleet.session import new_fleet_id, program_of

    if system not in SYSTEMS:
        raise UnknownName("system", system, SYSTEMS)
    named = ["--suite", suite, "--devices", devices, "--processes", str(processes)]
    words = (*program_of(program, False), "fleet", "unit", *named, "--fleet", new_fleet_id())
    manifest = Manifest(
        hosts=parse_hosts(hosts),
        words=words,
        folder=folder,
        name=name,
        gpus=gpus,
        minutes=minutes,
        partition=partition,
        account=account,
        image=image,
        volume=volume,
        namespace=namespace,
    )
    write = {"slurm": slurm_script, "kubernetes": kubernetes_job, "pairs": pair_script}[system]
    put(write(manifest))
    return 0
