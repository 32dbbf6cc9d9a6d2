"""Define the options that mean the same for every verb, and hand them over as one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_type_hints

import typer

from gpuperf.model.contract import LONGEST_BUDGET_S, Cache, Counting, Data
from gpuperf.model.timers import TIMERS, timer_names
from gpuperf.run.plan import Conditions
from gpuperf.run.supervisor import DEADLINE_S, Supervisor
from gpuperf.show.figure import import_ahead
from gpuperf.verb import parse
from gpuperf.verb.hosts import launched_place, launched_supervisor
from gpuperf.verb.registry import ROWS, verbs
from gpuperf.verb.verb import load
from gpuperf.verb.workers import make_supervisor as make_supervisor

RUNS, BASELINES = Path("gpuperf-runs"), Path("gpuperf-baselines")
DEFAULT_DEADLINE_S = DEADLINE_S

T = TypeVar("T")


class By(StrEnum):
    """Kind of the rows of a profile."""

    OPERATORS = "operators"
    KERNELS = "kernels"


class Format(StrEnum):
    """Format of printed data."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MD = "md"


class TableOrJson(StrEnum):
    """Format of printed data that is not a list of rows."""

    TABLE = "table"
    JSON = "json"


if TYPE_CHECKING:
    TimerChoice = str
else:
    TimerChoice = StrEnum("TimerChoice", {name.upper(): name for name in timer_names()})


# What is measured.
Op = Annotated[
    str | None,
    typer.Option(
        help="Workload to measure: a name from `gpuperf list`, a file ./mine.py, or pkg.mod:NAME.",
        show_default=False,
    ),
]
Sizes = Annotated[
    str | None,
    typer.Option(
        metavar="RANGE",
        help="Sizes of the main axes, which change together: 128:8192 doubles, 1k:2k:+64 adds 64, "
        "and commas join. An axis with an option of its own keeps its sizes.",
        show_default=False,
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        help="Data types, joined by commas: bf16, fp16, fp32, tf32, fp64, fp8, int8; or all.",
        show_default=False,
    ),
]
Impl = Annotated[
    str | None,
    typer.Option(
        help="Implementations to measure, joined by commas; `gpuperf list OP` names them.",
        show_default=False,
    ),
]
DeviceName = Annotated[
    str, typer.Option("--device", help="Device to measure on: auto, cuda:0 or cpu.")
]
Gpus = Annotated[
    int | None,
    typer.Option(
        "--gpus",
        "--world",
        parser=parse.ranks,
        metavar="N",
        show_default=False,
        help="Measure a collective on the first N GPUs, a process each; with --device cpu, on N "
        "processes (default under torchrun: all processes that it started).",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        max=4096,
        show_default=False,
        help="Number of threads that compute on a CPU (default: torch's choice).",
    ),
]
Seed = Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Random seed of the inputs.")]
PeaksFile = Annotated[
    Path | None,
    typer.Option(
        "--peaks",
        metavar="FILE",
        help="Your own file of this device's peaks; `gpuperf devices --lint FILE` checks it.",
        show_default=False,
    ),
]

# How it is measured.
TimerOption = Annotated[
    TimerChoice | None,
    typer.Option(
        "--timer",
        help="Timer to use; gpuperf never swaps it for another. "
        + "; ".join(f"{name}: {TIMERS[name].help}" for name in timer_names())
        + ".",
        show_default=False,
    ),
]
Precision = Annotated[
    float,
    typer.Option(
        parser=parse.precision,
        metavar="FRACTION",
        help="Stop sampling when the half-width of the 95 % interval is this fraction of the time: "
        "0.01, or 1%.",
    ),
]
Budget = Annotated[
    float,
    typer.Option(
        parser=parse.seconds_between("budget", 0.0, LONGEST_BUDGET_S),
        metavar="DURATION",
        help="Sample a case for at most this long, in seconds, or as 500ms or 2min. On a CPU, a "
        "size whose calls take longer is skipped.",
    ),
]
CacheOption = Annotated[
    str | None,
    typer.Option(
        "--cache",
        help="State of the L2 cache before a sample: cold, cold-dirty, rotate or hot. Commas join "
        "several, and each is measured.",
        show_default=False,
    ),
]
RegimeOption = Annotated[
    str | None,
    typer.Option(
        "--regime",
        help="Load before a sample: burst (the device rests first) or sustained (calls follow each "
        "other). Commas join both.",
        show_default=False,
    ),
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        help="Values of the inputs: randn, uniform, zeros or ints. Commas join several, and each "
        "is measured.",
        show_default=False,
    ),
]
Gap = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        show_default=False,
        help="Rest before each sample in burst, in seconds, or as 5ms or 500us.",
    ),
]
Settle = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        show_default=False,
        help="Keep a sustained load up for at most this long, in seconds, or as 2min.",
    ),
]
EnergyOption = Annotated[bool, typer.Option("--energy", help="Measure joules of a sustained call.")]
CountersOption = Annotated[
    str,
    typer.Option(
        "--counters",
        help="Hardware counters to read: off, auto (DRAM bytes, where the machine allows it), "
        "require (fail without them), kernels (those of each kernel too), ncu (by Nsight Compute).",
    ),
]
Deadline = Annotated[
    float,
    typer.Option(
        parser=parse.seconds_between("deadline", 1.0, 86400.0),
        metavar="DURATION",
        help="End a case that reports nothing for this long, in seconds, or as 500ms or 2min.",
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN",
        help="Measure the cases that this run file lacks, into the same file.",
        show_default=False,
    ),
]
Suite = Annotated[
    str, typer.Option(help="Suite: ci, quick, full, screen, collectives, or a file ./mine.toml.")
]

# Where the results go, and how they are shown.
Out = Annotated[
    Path,
    typer.Option(
        parser=parse.folder, metavar="PATH", help="Folder for the run file and the charts."
    ),
]
Baselines = Annotated[Path, typer.Option(help="Folder that holds the baselines.")]
RunFile = Annotated[
    Path, typer.Argument(metavar="RUN", help="Run file, as a measuring verb wrote it.")
]
ChartFile = Annotated[
    Path | None,
    typer.Option(
        "--chart",
        metavar="FILE",
        help="Draw the chart into this file, whose name ends with .png or .svg.",
        show_default=False,
    ),
]
HtmlFile = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="FILE",
        help="Write one HTML page that contains charts, tables and the run file itself.",
        show_default=False,
    ),
]
FormatOption = Annotated[Format, typer.Option("--format", help="Format of what is printed.")]
TableOrJsonOption = Annotated[
    TableOrJson, typer.Option("--format", help="Format of what is printed.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, as --format json does.")]
ByOption = Annotated[By, typer.Option(help="Rows of a profile: its operators or its kernels.")]
Columns = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,…",
        show_default=False,
        help="Columns of the table, such as time,clock,MFU; or all.",
    ),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", help="Show the whole table, every caveat in full, and all sources."
    ),
]
INTENSITY = typer.Option(
    "--intensity",
    help="Bytes that the roofline's intensity is computed from: compulsory, modelled, measured, "
    "both (arrows from compulsory to measured), or hierarchy (DRAM, L2 and L1).",
)
IntensityOption = Annotated[str, INTENSITY]


@dataclass(frozen=True)
class Options:
    """The shared options of the measuring verbs, as given; each verb has some (see `takes`).

    `words` are the arguments of the command line that are no option of the verb, such as the axes
    of a workload; `typed` are the names of the options that were typed.
    """

    op: Op = None
    sizes: Sizes = None
    dtype: Dtype = None
    impl: Impl = None
    device: DeviceName = "auto"
    gpus: Gpus = None
    threads: Threads = None
    timer: TimerOption = None
    precision: Precision = 0.01
    budget: Budget = 2.0
    cache: CacheOption = None
    regime: RegimeOption = None
    data: DataOption = None
    gap: Gap = None
    settle: Settle = None
    energy: EnergyOption = False
    counters: CountersOption = "auto"
    intensity: IntensityOption = "compulsory"
    deadline: Deadline = DEFAULT_DEADLINE_S
    peaks: PeaksFile = None
    out: Out = RUNS
    format: FormatOption = Format.TABLE
    columns: Columns = None
    verbose: Verbose = False
    resume: Resume = None
    seed: Seed = 0
    words: tuple[str, ...] = ()
    typed: tuple[str, ...] = ()

    @property
    def conditions(self) -> Conditions:
        """Return the conditions of the measurement. Raises: UnknownName, UsageError."""
        return Conditions(
            timer=str(self.timer) if self.timer else None,
            precision=self.precision,
            budget_s=self.budget,
            caches=parse.choose("cache", self.cache, get_args(Cache)),
            regimes=parse.choose_regimes(self.regime, self.energy),
            data=parse.choose("data", self.data, [d for d in get_args(Data) if d != "own"]),
            gap_s=parse.duration("gap", self.gap, parse.LONGEST_GAP_S),
            settle_s=parse.duration("settle", self.settle, 3600.0),
            counting=parse.choose_one("counters", self.counters, get_args(Counting)),
            energy=self.energy,
        )

    def supervisor(self, processes: int = 1) -> Supervisor:
        """Return a supervisor of local workers on the device, for a measurement in *processes*.

        Under torchrun, a verb of gangs supervises in rank 0, and the other ranks serve it.
        Raises: CannotMeasure, UsageError; typer.Exit in a rank that has served.
        """
        place = launched_place()
        if self.gpus and place:
            return launched_supervisor(place, self.gpus, self.device, self.deadline, _import_output)
        return make_supervisor(
            self.device, self.deadline, self.threads, _import_output, processes, self.gpus or 1
        )


def _import_output() -> None:
    """Import what prints and draws rows, while a worker starts."""
    import_ahead()
    rows = verbs()[ROWS]
    for name in (rows.tables, rows.charts[0].draw):
        load(name)


# Groups of options for `takes`.
CASES = ("op", "sizes", "dtype", "impl")
TIMING = ("timer", "precision", "budget")
CONDITIONS = ("cache", "regime", "data", "gap", "settle")
FILES = ("deadline", "peaks", "out", "format")
LOOK = ("columns", "verbose")
TYPED = "COMMANDLINE"  # typer's name for the source of an option that was typed


def takes(*names: str, **defaults: object) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Decorate a function of `Options` as a command: its own options, then the shared ones *names*.

    *defaults* replaces the usual defaults of shared options, by their names.
    """
    types = get_type_hints(Options, include_extras=True)
    usual: dict[str, Any] = {field.name: field.default for field in fields(Options)} | defaults
    option = Parameter.POSITIONAL_OR_KEYWORD
    shared = [Parameter(n, option, default=usual[n], annotation=types[n]) for n in names]

    def make(function: Callable[..., T]) -> Callable[..., T]:
        private = list(signature(function, eval_str=True).parameters.values())[1:]
        first = Parameter("ctx", option, annotation=typer.Context)

        @wraps(function)
        def command(ctx: typer.Context, **values: Any) -> T:
            sources = {name: ctx.get_parameter_source(name) for name in names}
            given: dict[str, Any] = {name: values.pop(name) for name in names}
            typed = tuple(n for n, source in sources.items() if source and source.name == TYPED)
            given |= {"words": tuple(ctx.args), "typed": typed}
            if "gpus" in given and given["gpus"] is None and (place := launched_place()):
                given["gpus"] = place.world
            return function(Options(**{**usual, **given}), **values)

        parameters = [first, *(p.replace(kind=option) for p in private), *shared]
        parameters.sort(key=lambda parameter: parameter.default is not Parameter.empty)
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return make
