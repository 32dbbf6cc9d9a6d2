"""Run `gpuperf fleet`: measure one host, run all hosts, merge their shards, and judge them."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gpuperf.errors import Incomplete, UnknownName, UsageError
from gpuperf.files import write_atomically
from gpuperf.fleet.collection import (
    Collection,
    encode_collection,
    parse_hosts,
    read_collection,
    with_expected,
)
from gpuperf.fleet.engines.engine import NamesHosts
from gpuperf.fleet.rule import FleetRule
from gpuperf.show.screen import put, stdout_screen
from gpuperf.verb import options as opt
from gpuperf.verb.parse import seconds_between, split
from gpuperf.verb.progress import say

Shards = Annotated[
    list[Path], typer.Argument(metavar="SHARDS", help="Shards, merged files, or their folders.")
]
Hosts = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,…",
        help="Hosts of the fleet, joined by commas, or @FILE with one host a line.",
        show_default=False,
    ),
]
HostName = Annotated[
    str | None,
    typer.Option(
        "--host",
        metavar="NAME",
        help="Name under which this host reports (default: what the machine calls itself).",
        show_default=False,
    ),
]
FleetId = Annotated[
    str,
    typer.Option(
        "--fleet", metavar="ID", help="Id of the fleet run, which all of its shards share."
    ),
]
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
ShardFile = Annotated[
    Path | None,
    typer.Option(
        "--shard",
        metavar="FILE",
        help="File for the shard, or - for stdout (default: HOST.jsonl in the folder --out).",
        show_default=False,
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
OneMachine = Annotated[
    bool, typer.Option("--one-machine", help="Accept hosts that are one machine, as in tests.")
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
LONGEST_ID = 64  # characters of the id of a fleet run

fleet = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@fleet.command("unit")
@opt.takes("threads", "deadline", "peaks", "out", "seed")
def measure_this_host(
    options: opt.Options,
    suite: SuiteName = "screen",
    host: HostName = None,
    devices: DevicesOption = "all",
    processes: Processes = 5,
    shard: ShardFile = None,
    fleet_id: FleetId = "",
) -> int:
    """Measure a suite on every device of this host, and write one shard.

    The suite - is read from stdin.
    """
    from gpuperf.fleet.unit import Unit, host_name, measure_unit, suite_of, unit_exit_code

    name = host_name(host)
    _check_id(fleet_id)
    unit = Unit(suite_of(suite), name, fleet_id, devices, processes, options)
    target = shard or options.out / f"{name}.jsonl"
    runs = replace(options, out=options.out / "runs" / name)
    data, outcomes = measure_unit(replace(unit, options=runs))
    if str(shard) == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        write_file(target, data)
        say(f"shard: {target}")
    return unit_exit_code(outcomes)


@fleet.command("run")
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
    from gpuperf.fleet.session import (
        FleetRun,
        begin_fleet,
        engine_of,
        program_of,
        rest_of_fleet,
        run_fleet,
    )
    from gpuperf.fleet.table import render_results

    started = engine_of(engine, out)
    fleet_id = ""
    if resume:
        if hosts is not None:
            raise UsageError("--resume measures the hosts of the folder", "leave out --hosts")
        fleet_id, names = rest_of_fleet(out)
    elif hosts is not None:
        names = parse_hosts(hosts)
    elif isinstance(started, NamesHosts):
        names = started.hosts()
    else:
        raise UsageError(f"the engine {engine} needs the names of the hosts", "--hosts a,b,c")
    options = ("--devices", devices, "--processes", str(processes))
    words = program_of(program, engine != "ssh")
    run = FleetRun(suite, names, words, options, fleet_id or begin_fleet(out, names))
    results = []
    for result in run_fleet(run, started, out, deadline, at_once):
        say(f"{result.host}: {result.reason or f'{result.rows:,} rows'}")
        results.append(result)
    put(render_results(results, format.value, stdout_screen()))
    lost = [result.host for result in results if result.reason]
    if lost:
        raise Incomplete(
            f"{len(lost)} of {len(names)} hosts have no whole shard: {', '.join(lost[:5])}",
            f"gpuperf fleet run --resume --out {out} measures them, with the same options",
        )
    return 0


@fleet.command("merge")
def merge_shards(
    shards: Shards,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="File for the merged shards.")
    ] = Path("fleet.jsonl"),
    hosts: Hosts = None,
) -> int:
    """Merge shards into one file; the order does not matter, and a shard counts once."""
    collection = _collection(shards, hosts)
    write_file(out, encode_collection(collection))
    for broken in collection.broken:
        say(broken.reason)
    for host in collection.repeated:
        say(f"the shard of {host} was read twice, and counts once")
    count = len({shard.head.host for shard in collection.shards})
    put(f"{count:,} hosts, {sum(shard.rows for shard in collection.shards):,} rows: {out}\n")
    missing = _missing(collection)
    if missing:
        raise Incomplete(f"hosts are missing: {', '.join(missing[:5])}", "measure them again")
    if collection.broken:
        raise Incomplete(
            f"{len(collection.broken)} shards cannot be read", "measure their hosts again"
        )
    return 0


@fleet.command("judge")
def judge_shards(
    shards: Shards,
    hosts: Hosts = None,
    expectation: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What a healthy fleet measured, as `gpuperf fleet expect` wrote it.",
            show_default=False,
        ),
    ] = None,
    allow: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            help="Facts in which hosts may differ, such as driver,python.",
            show_default=False,
        ),
    ] = None,
    one_machine: OneMachine = False,
    chart: opt.ChartFile = None,
    format: opt.FormatOption = opt.Format.TABLE,
) -> int:
    """Name the hosts that are missing, different, or slower than their peers."""
    from gpuperf.fleet.expectation import read_expectation
    from gpuperf.fleet.study import judge_fleet
    from gpuperf.fleet.table import render_judgement
    from gpuperf.show.figure import targets_of

    targets = targets_of([chart] if chart else [])
    stored = read_expectation(expectation) if expectation else None
    collection = _collection(shards, hosts)
    judged = judge_fleet(collection, FleetRule(), split(allow), stored, one_machine)
    try:
        put(render_judgement(judged, format.value, stdout_screen()))
    except BrokenPipeError:  # the exit code is that of the fleet
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if targets:
        from gpuperf.fleet.chart import draw_fleet

        try:
            draw_fleet(judged, targets)
        except UsageError as error:
            say(f"no chart was written: {error}")
    return judged.exit_code


@fleet.command("expect")
def expect_fleet(
    shards: Shards,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="File for the expectation.")
    ] = Path("fleet-expectation.json"),
    hosts: Hosts = None,
    one_machine: OneMachine = False,
) -> int:
    """Store what a good fleet measured as the expectation of its device."""
    from gpuperf.fleet.expectation import expectation_of, write_expectation
    from gpuperf.fleet.grid import grid_of
    from gpuperf.fleet.study import judge_fleet, scored

    collection = _collection(shards, hosts)
    judged = judge_fleet(collection, FleetRule(), one_machine=one_machine)
    if judged.outcome not in ("good", "inconclusive"):
        raise Incomplete(
            f"the fleet is {judged.outcome}, so it is no expectation: {'; '.join(judged.reasons)}",
            "`gpuperf fleet judge` shows why",
        )
    alone = [shard for shard in collection.shards if not shard.head.peer]
    if not alone:
        raise UsageError("tests of pairs are no expectation of a device", "give shards of hosts")
    grid = grid_of(alone)
    scores = scored(grid, FleetRule())
    write_expectation(expectation_of(grid, alone[0].head, scores.scatter), out)
    put(f"{len(grid.units):,} devices, {len(grid.cases):,} cases: {out}\n")
    return 0


@fleet.command("pairs")
def schedule_pairs(hosts: NamedHosts, format: opt.FormatOption = opt.Format.TABLE) -> int:
    """List the pairs of hosts to test in each round, so that each pair meets once."""
    from gpuperf.fleet.pairs import tournament
    from gpuperf.fleet.table import render_rounds

    names = parse_hosts(hosts)
    if len(names) < 2:
        raise UsageError("pairs need two hosts or more", "--hosts a,b,c,d")
    put(render_rounds(tournament(names), format.value, stdout_screen()))
    return 0


@fleet.command("manifest")
def print_manifest(
    system: Annotated[str, typer.Argument(metavar="SYSTEM", help="slurm or kubernetes.")],
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
    """Print a job file that measures every host once: a Slurm script or a Kubernetes Job."""
    from gpuperf.fleet.manifest import SYSTEMS, Manifest, kubernetes_job, slurm_script
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
    put(slurm_script(manifest) if system == "slurm" else kubernetes_job(manifest))
    return 0


def write_file(path: Path, data: bytes) -> None:
    """Write *data* to *path*, whole or not at all. Raises: UsageError if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}", "choose another --out"
        ) from None


def _collection(paths: list[Path], hosts: str | None) -> Collection:
    collection = read_collection(paths)
    return with_expected(collection, parse_hosts(hosts)) if hosts is not None else collection


def _missing(collection: Collection) -> list[str]:
    expected = collection.expected.hosts if collection.expected else ()
    there = {shard.head.host for shard in collection.shards}
    return [host for host in expected if host not in there]


def _check_id(text: str) -> None:
    if text and (len(text) > LONGEST_ID or not text.replace("-", "").isalnum()):
        raise UsageError(f"--fleet {text[:80]!r} is no id", "letters, digits and hyphens")
