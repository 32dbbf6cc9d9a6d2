"""Define experiments: a question, a prediction for each point, controls, and the ruling.

An experiment is one frozen `Experiment` value at the end of a file. Its functions import torch, so
only the worker loads it; the supervisor plans with its `ExperimentDescription`. The worker computes
each `Prediction` before anything is timed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gpuperf.model.contract import Cache
from gpuperf.model.workload import Point, Value, Workload

EXACT, BOUND, BAND, SHARE = 0.01, 0.03, 0.03, 0.85  # usual widths of expectations, as fractions
MOST_BAND = 10.0  # of a law, as a fraction

Kind = Literal["exact", "bound", "model"]
Form = Literal[
    "points",
    "proportional",
    "plateaus",
    "saturation",
    "floor",
    "inverse",
    "crossover",
    "amortisation",
]
Verdict = Literal["CONFIRMED", "REFUTED", "INCONCLUSIVE"]
Need = Literal["cuda", "counters", "peer", "gang"]

# What y can be, with its unit. A step is the part of a call that `Experiment.steps` counts.
QUANTITIES: Mapping[str, str] = {
    "time_per_step": "s",  # of a call, over its steps
    "cycles_per_step": "cycles",  # the same, times the SM clock of the samples
    "bytes_per_s": "byte/s",  # steps that are bytes, over the time
    "flop_per_s": "FLOP/s",  # steps that are FLOPs, over the time
    "time_ratio": "ratio",  # time over the time of the `baseline`
    "speedup": "ratio",  # time of the `baseline` over the time
    "cycle_ratio": "ratio",  # the same two with cycles, for calls that compute binds: a power cap
    "cycle_speedup": "ratio",  # lowers the clock of each call by another amount
    "dram_bytes": "byte",  # counters of a call, over its steps
    "dram_read_bytes": "byte",
    "dram_written_bytes": "byte",
    "l2_bytes": "byte",  # that the slices of the L2 serve and take
    "sm_read_bytes": "byte",  # that the SMs read from the L2
    "l1_bytes": "byte",
    "call_bytes": "byte",  # most memory that a call allocates, over its steps
}
COUNTED = frozenset(
    f"{place}_bytes" for place in ("dram", "dram_read", "dram_written", "l2", "sm_read", "l1")
)
COMPARED = frozenset({"time_ratio", "speedup", "cycle_ratio", "cycle_speedup"})
IN_CYCLES = frozenset({"cycles_per_step", "cycle_ratio", "cycle_speedup"})
# `reading:NAME` is a number that the call reads of itself (`Record.readings`).
READING = "reading:"
UNITS = frozenset({*QUANTITIES.values(), "count"})


class UnknownNumber(LookupError):
    """A figure of the device that a prediction needs, and that nobody measured or published."""


@dataclass(frozen=True)
class Number:
    """A figure of the device in SI units, and where it comes from: `data sheet`, `calibration`,
    `driver`, or the name of an experiment."""

    value: float
    unit: str
    source: str

    def __post_init__(self) -> None:
        if not (math.isfinite(self.value) and self.value >= 0):
            raise ValueError(f"a figure of a device cannot be {self.value} {self.unit}")


@dataclass(frozen=True)
class Numbers:
    """Figures of the device that a prediction may use: `numbers["l2"]`, in SI units.

    `sms` and `clock` (Hz); `l2` and `shared_memory` (bytes); `memory_bandwidth`, `read_bandwidth`,
    `copy_bandwidth`, `l2_bandwidth`, `l1_bandwidth` (byte/s); rates such as `tensor_bf16` and
    `vector_fp32` (FLOP/s), and `tensor_bf16_per_clock` of an SM (FLOP); what NCCL logged, such as
    `nccl_allreduce_ring_ll_latency` (s) and `…_bandwidth` (byte/s of the whole array); and what
    experiments measured on this device. A measured figure replaces that of the data sheet.
    """

    figures: Mapping[str, Number] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        """Return the figure *name*. Raises: UnknownNumber."""
        if name not in self.figures:
            raise UnknownNumber(f"the figure {name!r} of this device is unknown")
        return self.figures[name].value

    def __contains__(self, name: object) -> bool:
        return name in self.figures

    def get(self, name: str, default: float) -> float:
        """Return the figure *name*, or *default* if it is unknown."""
        return self.figures[name].value if name in self.figures else default

    def source(self, name: str) -> str:
        """Return where the figure *name* comes from, for the reason of a prediction."""
        return self.figures[name].source if name in self.figures else "assumed"


@dataclass(frozen=True)
class Expected:
    """A predicted y with its lowest and highest acceptable value, and the reason in one line.

    `exact` predictions are counts; a `bound` is never exceeded (`high` allows for the error of the
    measurement) and reached to a share (`low`); a `model` has a band.
    """

    value: float
    low: float
    high: float
    unit: str
    kind: Kind
    because: str


def exactly(value: float, unit: str, because: str, within: float = EXACT) -> Expected:
    """Return the prediction of a count, or of a time that follows from a count."""
    return Expected(value, value * (1 - within), value * (1 + within), unit, "exact", because)


def about(value: float, unit: str, because: str, within: float = BAND) -> Expected:
    """Return the prediction of a model that holds *within* a fraction of the value."""
    return Expected(value, value * (1 - within), value * (1 + within), unit, "model", because)


def at_most(
    value: float, unit: str, because: str, share: float = SHARE, above: float = BOUND
) -> Expected:
    """Return an upper bound, of which at least the fraction *share* is reached."""
    return Expected(value, value * share, value * (1 + above), unit, "bound", because)


def flaw_of(expected: object, unit: str) -> str:
    """Return what is wrong with a prediction of a quantity in *unit*; empty if nothing is."""
    if not isinstance(expected, Expected):
        return f"is a {type(expected).__name__} and not an Expected"
    numbers = (expected.low, expected.value, expected.high)
    if not all(isinstance(n, int | float) and math.isfinite(n) for n in numbers):
        return f"is {expected.value}, which is not a finite number"
    if min(numbers) < 0:
        return f"is negative: {expected.value:g} from {expected.low:g} to {expected.high:g}"
    if not expected.low <= expected.value <= expected.high:
        return f"has {expected.value:g} outside of {expected.low:g} to {expected.high:g}"
    if expected.unit != unit:
        return f"has the unit {expected.unit!r} and not {unit!r}"
    return "" if expected.because else "gives no reason"


Theory = Callable[[Point, Numbers], Expected]


@dataclass(frozen=True)
class Control:
    """A point at which the effect must be absent, or must be of a known size.

    `at` gives axes one value or several; other axes of the experiment have their first value.
    `expect` is the control's own prediction; without it, the experiment's holds. If a control
    differs from its prediction, the ruling is INCONCLUSIVE.
    """

    name: str
    at: Mapping[str, Value | tuple[Value, ...]]
    because: str
    expect: Theory | None = None
    implementations: tuple[str, ...] = ()


@dataclass(frozen=True)
class Law:
    """The form of y over x, fitted to the measurements and to the predictions of each series.

    The fitted parameters must agree within the fraction `band`.

    - `points`: no form; each point counts by itself.
    - `proportional`: measured = slope × predicted; the slope is 1.
    - `plateaus`: as many constant levels as the prediction has, and the edges between them.
    - `saturation`: min(x / knee, 1) · level.    `floor`: max(x / knee, 1) · level.
    - `inverse`: max(knee / x, 1) · level.
    - `crossover`: the x at which the two series `between` are equal.
    - `amortisation`: x / (cost + x · share), the speed-up of x calls after a cost.

    `names` name the fitted parameters in their order, for `Experiment.gives`.
    """

    form: Form = "points"
    band: float = 0.05
    names: tuple[str, ...] = ()
    between: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.band <= MOST_BAND:
            raise ValueError(f"the band of a law cannot be {self.band}")


@dataclass(frozen=True)
class Experiment:
    """A question whose answer is predicted before it is measured.

    `workload` is a `Workload` value, or the name of one of gpuperf's. `axes` has the values of the
    axes that vary, by default; the others have the workload's defaults. `x` names the axis on the
    chart, or the quantity that `along(at, numbers)` computes; `series` names the axis (or
    `implementation`) whose values are lines of the chart. `y` is one of `QUANTITIES`; `steps(at)`
    is the number of steps of a call, by which it is divided.

    `expect(at, numbers)` predicts y at the point `at`, whose axes are attributes, with
    `at.implementation`. `baseline(at)` returns the axes to change for the case that a ratio refers
    to. `cache(at, numbers)` is the state of the cache that the point needs (empty: the usual one).
    `needs` says what the device must have. `gives` names fitted parameters that are kept as figures
    of the device, and `after` the experiments whose figures this one uses. `claims` are the ids of
    claims that it judges, `notes` sentences for the reader.
    """

    name: str
    question: str
    workload: Workload | str
    axes: Mapping[str, tuple[Value, ...]]
    x: str
    y: str
    expect: Theory
    controls: tuple[Control, ...] = ()
    law: Law = Law()
    series: str = "implementation"
    implementations: tuple[str, ...] = ()
    steps: Callable[[Point], float] = lambda at: 1.0
    along: Callable[[Point, Numbers], float] | None = None
    baseline: Callable[[Point], Mapping[str, Value]] | None = None
    cache: Callable[[Point, Numbers], Cache | Literal[""]] = lambda at, numbers: ""
    unit: str = ""
    needs: tuple[Need, ...] = ("cuda",)
    gives: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def op(self) -> str:
        """The name of its workload."""
        return self.workload if isinstance(self.workload, str) else self.workload.name

    def describe(self, source: str) -> ExperimentDescription:
        """Return the `ExperimentDescription` of this experiment, loaded from *source*."""
        return ExperimentDescription(
            name=self.name,
            question=self.question,
            op=self.op,
            workload_source="gpuperf.kernels" if isinstance(self.workload, str) else source,
            source=source,
            axes={name: tuple(values) for name, values in self.axes.items()},
            implementations=self.implementations,
            x=self.x,
            y=self.y,
            unit=self.unit or QUANTITIES.get(self.y, ""),
            series=self.series,
            controls=tuple(_described(control) for control in self.controls),
            law=self.law,
            needs=self.needs,
            gives=self.gives,
            after=self.after,
            claims=self.claims,
            notes=self.notes,
        )


def _described(control: Control) -> ControlDescription:
    at = {name: v if isinstance(v, tuple) else (v,) for name, v in control.at.items()}
    return ControlDescription(control.name, at, control.because, control.implementations)


@dataclass(frozen=True)
class ControlDescription:
    """A `Control` without its function."""

    name: str
    at: Mapping[str, tuple[Value, ...]]
    because: str
    implementations: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExperimentDescription:
    """An `Experiment` without its functions, with which the command line plans and reports."""

    name: str
    question: str
    op: str
    workload_source: str
    source: str
    axes: Mapping[str, tuple[Value, ...]]
    x: str
    y: str
    unit: str
    series: str
    implementations: tuple[str, ...] = ()
    controls: tuple[ControlDescription, ...] = ()
    law: Law = Law()
    needs: tuple[Need, ...] = ()
    gives: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Prediction:
    """What an experiment expects of one case: y, its place on the chart, and the case's steps.

    `label` is x in words, which alone counts if x is no number. `control` names the control that
    the case belongs to (empty: none). `baseline` is the id of the case that a ratio refers to.
    Without `expected`, `reason` says why nothing is predicted.
    """

    case: str
    x: float
    series: str
    label: str = ""
    expected: Expected | None = None
    control: str = ""
    steps: float = 1.0
    baseline: str = ""
    cache: Cache | Literal[""] = ""
    reason: str = ""

    def __post_init__(self) -> None:
        if not (self.steps > 0 and self.x >= 0):
            raise ValueError(f"a case cannot have {self.steps} steps at x = {self.x}")


@dataclass(frozen=True)
class Predictions:
    """The part of a run's header that an experiment wrote before the first measurement."""

    experiment: ExperimentDescription
    numbers: Numbers
    points: tuple[Prediction, ...]


@dataclass(frozen=True)
class Fitted:
    """A parameter of a law, fitted to the measurements, beside the one fitted to the predictions.

    `low` and `high` bound its 95 % interval; `expected` may differ by the fraction `band`.
    """

    name: str
    value: float
    low: float
    high: float
    expected: float
    band: float
    series: str = ""


@dataclass(frozen=True)
class Ruling:
    """The verdict on an experiment, its reason in a sentence, and the fitted parameters."""

    verdict: Verdict
    sentence: str
    fitted: tuple[Fitted, ...] = ()


def unit_of(experiment: Experiment | Any) -> str:
    """Return the unit of the y of *experiment*; empty if its quantity is unknown."""
    return str(experiment.unit or QUANTITIES.get(experiment.y, ""))
