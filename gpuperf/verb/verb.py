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
    """A chart of a verb's runs: the function `draw(run, files)` and the suffix of its file's name.

    `fits(cases)` says whether a run can be drawn. `show --chart` draws the first chart of a verb,
    and of the others those that are `shown`. An HTML page has all of them: as an image, or, where
    there is one, what the function `html(run)` returns, which contains the chart and its table.
    """

    draw: str
    suffix: str = ""
    noun: str = "chart"
    fits: str = ""
    shown: bool = False
    html: str = ""


@dataclass(frozen=True)
class Verb:
    """A verb of the command line.

    `help` is its line in the list of verbs. A `group` has verbs of its own. With `axes`, it takes
    the axes of the workload as options; with `parameters`, options that this function describes
    (`help(words)`). A verb that `measures` takes each option once. The arguments after the first
    one of a `script` belong to the script. `tables` renders a run of this verb's study
    (`render(run, format, screen=…)`, with the further arguments `look`: by, columns, verbose; as
    `html` it escapes its texts), and `charts` draw it; without them the runs are rows under a
    roofline. `changes` renders two runs side by side. `page(path)` returns the HTML page of a file
    or a folder of this verb that is not a run, and None for another one. `placed` is false for runs
    that have no place under a roofline. `below` makes the tables under the rows of a run
    (`below(run)`; none for most).
    """

    name: str
    help: str
    command: str
    group: bool = False
    axes: bool = False
    measures: bool = False
    script: bool = False
    placed: bool = True
    parameters: str = ""
    tables: str = ""
    look: tuple[Literal["by", "columns", "verbose"], ...] = ()
    charts: tuple[Chart, ...] = ()
    changes: str = ""
    page: str = ""
    below: str = ""


def load(path: str) -> Any:
    """Import the function that `module:function` names."""
    module, _, function = path.partition(":")
    return getattr(import_module(module), function)
