"""Store, list and expire baselines, the runs that later runs are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from gpuperf.gate.baseline import Baseline, Shelf
from gpuperf.gate.stored import ENOUGH
from gpuperf.run.store import read_summary
from gpuperf.show.render import render
from gpuperf.show.screen import put, stdout_screen
from gpuperf.show.table import Column, Table, fill, notes_of
from gpuperf.verb import options as opt
from gpuperf.verb.printing import print_run
from gpuperf.verb.progress import say

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the baseline.")]

COLUMNS = (
    Column("name", left=True),
    Column("set", left=True, keep=3),
    Column("run", left=True, wrap=20),
    Column("device", left=True, keep=4, wrap=16),
    Column("software", left=True, keep=2, wrap=24),
    Column("expired", left=True),
    Column("reason", left=True, keep=1, wrap=20),
)

baseline = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@baseline.command("set")
def set_baseline(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run file.")],
    name: Annotated[str, typer.Option(help="Name of the baseline.")] = "main",
    reason: Annotated[
        str, typer.Option(help="Reason to accept a run that did not pass.", show_default=False)
    ] = "",
    folder: opt.Baselines = opt.BASELINES,
) -> None:
    """Make a run the baseline for its device, software and contract."""
    made = Shelf(folder).set(name, run, reason)
    say(f"{made.name}: {made.run} on {made.device} under {made.stack}")
    processes = len({record.pass_index for record in read_summary(run).records})
    if processes < ENOUGH:
        say(
            f"this run has {processes} process{'es' * (processes != 1)}: a run of "
            f"`gpuperf run --passes {ENOUGH}` shows how processes scatter, and smaller slowdowns"
        )


@baseline.command("list")
@opt.takes("format")
def list_baselines(options: opt.Options, folder: opt.Baselines = opt.BASELINES) -> None:
    """List all baselines of the folder."""
    _print(Shelf(folder).all(), options.format)


@baseline.command("show")
@opt.takes("format")
def show_baseline(options: opt.Options, name: Name, folder: opt.Baselines = opt.BASELINES) -> None:
    """Show the runs of a baseline."""
    shelf = Shelf(folder)
    for entry in shelf.named(name):
        expired = f", expired {entry.expired[:10]}" if entry.expired else ""
        say(f"{entry.name}: set {entry.created[:10]}, {entry.reason or 'passed'}{expired}")
        print_run(shelf.read(entry).whole(), options.format)


@baseline.command("expire")
@opt.takes("format")
def expire_baseline(
    options: opt.Options, name: Name, folder: opt.Baselines = opt.BASELINES
) -> None:
    """Expire a baseline: `gate compare` then refuses it. Its file stays."""
    _print(Shelf(folder).expire(name), options.format)


def _print(baselines: Sequence[Baseline], format: opt.Format) -> None:
    rows = [
        {
            "name": b.name,
            "set": b.created[:16],
            "run": b.run,
            "device": b.device,
            "software": b.stack,
            "expired": b.expired[:10],
            "reason": b.reason,
        }
        for b in baselines
    ]
    cells = [list(row.values()) for row in rows]
    notes = () if rows else notes_of("there are no baselines: gpuperf baseline set RUN adds one")
    names = [column.head for column in COLUMNS]
    table = Table(fill(COLUMNS, cells), notes=notes, rows=rows, names=names)
    put(render([table], format.value, stdout_screen()))
