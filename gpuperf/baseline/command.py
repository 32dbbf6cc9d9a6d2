"""`gpuperf baseline`: runs that others are held against."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from gpuperf.gate.baseline import Baseline, Shelf
from gpuperf.model.text import clean
from gpuperf.show.render import render
from gpuperf.show.screen import put, stdout_screen
from gpuperf.show.table import Column, Table, fill, notes_of
from gpuperf.verb import options as opt
from gpuperf.verb.printing import print_run
from gpuperf.verb.progress import say

Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the baseline.")]

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
    name: Annotated[str, typer.Option(help="Of the baseline.")] = "main",
    reason: Annotated[str, typer.Option(help="Why one may that did not pass.")] = "",
    folder: opt.Baselines = opt.BASELINES,
) -> None:
    """Make a run the baseline for its device, software and contract."""
    made = Shelf(folder).set(name, run, reason)
    say(f"{made.name}: {made.run} on {made.device} under {made.stack}")


@baseline.command("list")
def list_baselines(
    folder: opt.Baselines = opt.BASELINES, format: opt.FormatOption = opt.Format.TABLE
) -> None:
    """Every baseline."""
    _print(Shelf(folder).all(), format)


@baseline.command("show")
def show_baseline(
    name: Name, folder: opt.Baselines = opt.BASELINES, format: opt.FormatOption = opt.Format.TABLE
) -> None:
    """The runs of a baseline."""
    shelf = Shelf(folder)
    for found in shelf.named(name):
        say(f"{found.name}: set {found.created[:10]}, {found.reason or 'passed'}")
        print_run(shelf.read(found).whole(), format)


@baseline.command("expire")
def expire_baseline(
    name: Name, folder: opt.Baselines = opt.BASELINES, format: opt.FormatOption = opt.Format.TABLE
) -> None:
    """Let a baseline hold no longer; its file stays."""
    _print(Shelf(folder).expire(name), format)


def _print(baselines: Sequence[Baseline], format: opt.Format) -> None:
    rows = [
        {
            "name": clean(b.name),
            "set": b.created[:16],
            "run": clean(b.run),
            "device": clean(b.device),
            "software": clean(b.stack),
            "expired": b.expired[:10],
            "reason": clean(b.reason),
        }
        for b in baselines
    ]
    cells = [[row[column.head] for column in COLUMNS] for row in rows]
    notes = () if rows else notes_of("there are none: gpuperf baseline set RUN")
    names = [column.head for column in COLUMNS]
    table = Table(fill(COLUMNS, cells), notes=notes, rows=rows, names=names)
    put(render([table], format.value, stdout_screen()))
