"""List the verbs: what each is called, where its command is, and how its runs are shown.

A verb is one `Verb` value here; command line, table and charts look everything up by it. Functions
are named as text, `module:function`, and imported when they are asked for, so that a command starts
as fast beside thirty others as alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuperf.model.record import Header

__all__ = ["VERBS", "Chart", "Verb", "load", "register", "verb_of"]


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

    `help` is its line in the list. `group` has verbs of its own. The `axes` of a workload are
    options too; each option of one that `measures` is given once; behind the first argument of
    `script` all belongs to the script. `tables` renders a run of this verb's study
    (`render(run, format, screen=…)`), and `charts` draw it; without them the runs are rows under a
    roofline. A run that has no place under a roofline is not `placed`.
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
    charts: tuple[Chart, ...] = ()


VERBS: dict[str, Verb] = {}


def register(verb: Verb) -> None:
    """Add *verb*. Raises: ValueError where another has its name."""
    if verb.name in VERBS:
        raise ValueError(f"there are two verbs {verb.name!r}")
    VERBS[verb.name] = verb


def load(path: str) -> Any:
    """Import the function that `module:function` names."""
    module, _, function = path.partition(":")
    return getattr(import_module(module), function)


def verb_of(header: Header) -> Verb:
    """Return the verb whose table and charts show a run: that of its study, if it is known."""
    return VERBS.get(header.study or ("compare" if header.baseline else ""), VERBS["roofline"])


for _verb in (
    Verb(
        "roofline",
        "Measure OP over its sizes, and show where each lies under the roofline.",
        "gpuperf.cli.roofline:roofline",
        axes=True,
        measures=True,
    ),
    Verb(
        "compare",
        "Measure every implementation of OP: speed-up over a baseline, bytes, memory, "
        "error, kernels.",
        "gpuperf.cli.compare:compare",
        axes=True,
        measures=True,
        charts=(
            Chart("gpuperf.report.chart.compare:draw_comparison"),
            Chart("gpuperf.cli.printing:draw_best", "-roofline"),
        ),
    ),
    Verb(
        "alignment",
        "Throughput by the alignment of a row: what sizes off the grid lose, and which "
        "kernels ran.",
        "gpuperf.cli.alignment:alignment",
        axes=True,
        measures=True,
        tables="gpuperf.report.alignment:render_alignment",
        charts=(Chart("gpuperf.report.chart.alignment:draw_alignment"),),
    ),
    Verb(
        "waves",
        "Matmul throughput over size, with what tiles and waves predict of it, kernel by kernel.",
        "gpuperf.cli.waves:waves",
        axes=True,
        measures=True,
        tables="gpuperf.report.waves:render_waves",
        charts=(
            Chart("gpuperf.report.chart.waves:draw_waves"),
            Chart(
                "gpuperf.report.chart.heatmap:draw_heatmap",
                "-heatmap",
                "heatmap",
                fits="gpuperf.analysis.waveplane:varies_both",
                shown=True,
            ),
        ),
    ),
    Verb(
        "explain",
        "The loss budget of a case: each step from the data sheet's peak to what was attained.",
        "gpuperf.cli.explain:explain",
    ),
    Verb(
        "profile",
        "Profile a program: time, kernels, FLOPs and bytes of each step, and what to change first.",
        "gpuperf.cli.profiling:profile",
        script=True,
        tables="gpuperf.report.profiling:render_profile",
        charts=(Chart("gpuperf.report.chart.profiling:draw_profile"),),
    ),
    Verb(
        "run",
        "Measure the cases of a suite, under the conditions that it names.",
        "gpuperf.cli.run:run",
        measures=True,
    ),
    Verb(
        "gate",
        "Judge a change: red on a real slowdown, green when nothing changed, and why.",
        "gpuperf.cli.gate:gate",
        group=True,
    ),
    Verb(
        "baseline",
        "Runs that others are held against, by device and software.",
        "gpuperf.cli.baseline:baseline",
        group=True,
    ),
    Verb(
        "history",
        "How cases went over the runs of a folder: trends, and steps that are no chance.",
        "gpuperf.cli.history:history",
        group=True,
    ),
    Verb(
        "ci",
        "Continuous integration: ready workflows that gate each change.",
        "gpuperf.cli.ci:ci",
        group=True,
    ),
    Verb(
        "calibrate",
        "Measure what this device really reaches: matmul, memory, arithmetic, launches; kept.",
        "gpuperf.cli.calibrate:calibrate",
        measures=True,
    ),
    Verb(
        "timing-check",
        "Hold every timer against CUPTI on the same kernels, in several fresh processes.",
        "gpuperf.cli.timing_check:timing_check",
        axes=True,
        measures=True,
        placed=False,
        tables="gpuperf.report.timing:render_timing",
        charts=(Chart("gpuperf.report.chart.timing:draw_timing"),),
    ),
    Verb(
        "show",
        "Print a run again, or draw its chart, or hold one profile against another; "
        "nothing is measured.",
        "gpuperf.cli.show:show",
    ),
    Verb(
        "list",
        "The workloads: axes with their defaults, implementations, and the formula of the cost.",
        "gpuperf.cli.listing:list_workloads",
    ),
    Verb(
        "import",
        "Make a run file of a report or a trace that exists: its kernels under the roofline.",
        "gpuperf.cli.importing:import_file",
    ),
    Verb(
        "devices",
        "The devices whose peaks are known, one of them in full, or the judgement of a peaks file.",
        "gpuperf.cli.devices:devices",
    ),
    Verb(
        "doctor",
        "Look at this machine before believing what it measures; nothing is changed.",
        "gpuperf.cli.doctor:doctor",
    ),
):
    register(_verb)
