"""Run `gpuperf list`: show the workloads with their axes and implementations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from gpuperf.model.codec import to_builtins
from gpuperf.model.text import shorten
from gpuperf.model.workload import Axis, Description
from gpuperf.run.catalogue import find_workload, whole_catalogue
from gpuperf.show.data import to_json
from gpuperf.show.render import render
from gpuperf.show.screen import put, stdout_screen
from gpuperf.show.table import Column, Table, fill, notes_of
from gpuperf.verb import options as opt
from gpuperf.verb.progress import say

LONGEST = 30  # characters of a summary in a line
MOST_AXES = 3  # of a workload by name, in a line
AXES_WIDTH = 19  # characters of these names


def list_workloads(
    op: Annotated[
        str | None,
        typer.Argument(
            metavar="OP", help="Workload to show in full: a name, or ./mine.py.", show_default=False
        ),
    ] = None,
    format: opt.TableOrJsonOption = opt.TableOrJson.TABLE,
    as_json: opt.AsJson = False,
) -> None:
    """List the workloads, or show one in full.

    A workload in full has its axes with their defaults, its implementations, and its cost formula.
    """
    with opt.make_supervisor("cpu") as supervisor:
        if op is not None:
            workloads: tuple[Description, ...] = (find_workload(op, supervisor.describe),)
        else:
            catalogue = whole_catalogue(supervisor.describe)
            workloads = catalogue.descriptions
            for source, reason in catalogue.broken.items():
                say(f"{source} does not load: {reason}")
    if as_json or format is opt.TableOrJson.JSON:
        put(to_json(to_builtins(workloads), stdout_screen().ascii))
    else:
        tables = _in_full(workloads[0]) if op is not None else (_overview(workloads),)
        put(render(tables, "table", stdout_screen()))


def _overview(workloads: Sequence[Description]) -> Table:
    """Make a table with a line for each workload; `*` marks the axes that `--sizes` sets."""
    rows = [
        (d.name, shorten(d.summary, LONGEST), _axes(d.axes), str(len(d.implementations)))
        for d in workloads
    ]
    heads = (
        Column("workload", left=True),
        Column("computes", left=True),
        Column("axes", left=True),
        Column("impl"),
    )
    return Table(
        fill(heads, rows),
        notes=notes_of("* set by --sizes; `gpuperf list NAME` shows a workload in full"),
    )


def _in_full(description: Description) -> tuple[Table, Table]:
    axes = [
        (a.name + "*" * a.main, "all" if a.swept else str(a.default), ", ".join(a.choices), a.help)
        for a in description.axes
    ]
    implementations = [(i.name, i.summary) for i in description.implementations]
    heads = [Column(head, left=True) for head in ("axis", "default", "values")]
    heads.append(Column("", left=True, wrap=30))
    return (
        Table(
            fill(heads, axes),
            title=f"{description.name}: {description.summary}",
            lead=(f"cost of one call: {description.formula}",),
            notes=notes_of("* set by --sizes"),
        ),
        Table(
            fill(
                [Column("implementation", left=True), Column("", left=True, wrap=30)],
                implementations,
            )
        ),
    )


def _axes(axes: Sequence[Axis]) -> str:
    """Write axes as `seq* batch heads +7`: the main axes first, and the number of further axes."""
    names = [f"{axis.name}{'*' * axis.main}" for axis in axes if axis.name != "dtype"]
    names.sort(key=lambda name: not name.endswith("*"))
    shown = names[:MOST_AXES]
    while len(" ".join(shown)) > AXES_WIDTH:
        shown.pop()
    more = f" +{len(names) - len(shown)}" if len(names) > len(shown) else ""
    return " ".join(shown) + more
