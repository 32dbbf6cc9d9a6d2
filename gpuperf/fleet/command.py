"""Run `gpuperf fleet`: measure one host, run all hosts, merge their shards, and judge them."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gpuperf.errors import Incomplete, UsageError
from gpuperf.files import check_writable, write_atomically
from gpuperf.fleet.collection import (
    Collection,
    encode_collection,
    parse_hosts,
    read_collection,
    with_expected,
)
from gpuperf.fleet.engines.command import (
    DevicesOption,
    NamedHosts,
    Processes,
    SuiteName,
    print_manifest,
    run_hosts,
)
from gpuperf.fleet.rule import FleetRule
from gpuperf.show.screen import put, stdout_screen
from gpuperf.verb import options as opt
from gpuperf.verb.parse import split
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
ShardFile = Annotated[
    Path | None,
    typer.Option(
        "--shard",
        metavar="FILE",
        help="File for the shard, or - for stdout (default: HOST.jsonl in the folder --out; "
        "HOST-PEER.jsonl of a pair).",
        show_default=False,
    ),
]
OneMachine = Annotated[
    bool, typer.Option("--one-machine", help="Accept hosts that are one machine, as in tests.")
]
LONGEST_ID = 64  # characters of the id of a fleet run

fleet = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
fleet.command("run")(run_hosts)
fleet.command("manifest")(print_manifest)


@fleet.command("unit")
@opt.takes("gpus", "threads", "deadline", "peaks", "out", "seed")
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

    The suite - is read from stdin. With --gpus a gang of this host's GPUs measures a suite of
    collectives; started by torchrun on two hosts, a gang of both, whose shard is of the pair.
    """
    from gpuperf.fleet.unit import Unit, host_name, measure_unit, suite_of, unit_exit_code

    name = host_name(host)
    _check_id(fleet_id)
    unit = Unit(suite_of(suite), name, fleet_id, devices, processes, options)
    if shard is not None and str(shard) != "-":
        check_writable(shard.parent, "--shard")
    runs = replace(options, out=options.out / "runs" / name)
    name, data, outcomes = measure_unit(replace(unit, options=runs))
    target = shard or options.out / f"{name}.jsonl"
    if str(shard) == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        write_file(target, data)
        say(f"shard: {target}")
    return unit_exit_code(outcomes)


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
    for reason in judged.reasons:
        say(f"the fleet is {judged.outcome}: {reason}")
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
