"""Describe a verb of the command line: its name, its command, and how its runs are shown.

Each feature's package defines one `VERB`. Functions are named as text, `module:function`, and
imported when they are called, so that a command starts as fast beside thirty others as alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal


@dataclass(frozen=True)
class Chart:
    """A chart of a verb's runs: the function `draw(run, files)`, and what its file's name ends
    with. It is drawn where the cases are such that it `fits`; `show --chart` draws those that are
    `shown` beside the first."""

    draw: str
    suffix: str = ""
    noun: str = "chart"
    fits: str = ""
    shown: bool = False


@dataclass(frozen=True)
class Verb:
    """A verb of the command line.

    `help` is its line in the list. A `group` has verbs of its own. The `axes` of a workload are
    options too. A verb that `measures` takes each option once. The arguments after the first one of
    a `script` belong to the script. `tables` renders a run of this verb's study
    (`render(run, format, screen=…)`, with the further arguments `look`: by, columns, verbose), and
    `charts` draw it; without them the runs are rows under a roofline. `changes` renders two runs
    beside each other. A run that has no place under a roofline is not `placed`.
    """

    name: str
    help: str
    command: str
    group: bool = False
    axes: bool = False
    measures: bool = False
    script: bool = False
    placed: bool = True
    tables: str = ""
    look: tuple[Literal["by", "columns", "verbose"], ...] = ()
    charts: tuple[Chart, ...] = ()
    changes: str = ""


def load(path: str) -> Any:
    """Import the function that `module:function` names."""
    module, _, function = path.partition(":")
    return getattr(import_module(module), function)
