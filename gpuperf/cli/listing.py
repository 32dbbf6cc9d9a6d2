"""`gpuperf list`: which workloads are there, with which axes and implementations?"""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpuperf.cli.options import TableOrJson, make_supervisor
from gpuperf.cli.progress import say
from gpuperf.model.codec import to_builtins
from gpuperf.model.workload import Axis, Description
from gpuperf.runner.catalogue import find_workload, whole_catalogue

__all__ = ["list_workloads"]


def list_workloads(
    op: Annotated[
        str | None, typer.Argument(help="One workload: a name, or ./mine.py.", show_default=False)
    ] = None,
    format: Annotated[TableOrJson, typer.Option(help="How to print.")] = TableOrJson.TABLE,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """The workloads: axes with their defaults, implementations, and the formula of the cost."""
    with make_supervisor("cpu") as supervisor:
        if op is not None:
            found: tuple[Description, ...] = (find_workload(op, supervisor.describe),)
        else:
            known = whole_catalogue(supervisor.describe)
            found = known.descriptions
            for source, reason in known.broken.items():
                say(f"{source} does not load: {reason}")
    if as_json or format is TableOrJson.JSON:
        sys.stdout.write(json.dumps(to_builtins(found), indent=2, ensure_ascii=False) + "\n")
    else:
        _print(found)


def _print(found: tuple[Description, ...]) -> None:
    table = Table(box=None, pad_edge=False, show_edge=False)
    for head in ("workload", "axes (default)", "implementations", "cost of one call"):
        table.add_column(head, overflow="fold")
    for description in found:
        table.add_row(
            Text(f"{description.name}\n  {description.summary}"),
            Text("\n".join(_axis(axis) for axis in description.axes)),
            Text("\n".join(f"{i.name}: {i.summary}" for i in description.implementations)),
            Text(description.formula),
        )
        table.add_row()
    Console(highlight=False).print(table)


def _axis(axis: Axis) -> str:
    values = f" of {', '.join(axis.choices)}" if axis.choices else ""
    return f"{axis.name} ({axis.default}){values}{' *' if axis.main else ''}"
