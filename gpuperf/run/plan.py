"""Plan the cases of a command line, and the contracts to measure them under."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpuperf.errors import CannotMeasure, UnknownName, UsageError
from gpuperf.model.contract import Cache, Contract, Counting, Data, DeviceFacts, Regime, TimerName
from gpuperf.model.timers import TIMERS, timer_names
from gpuperf.model.workload import Axis, Case, Description, Value
from gpuperf.units import parse_range

MOST_CASES = 10_000


def plan_cases(
    description: Description,
    axes: Mapping[str, str],
    sizes: str | None = None,
    implementations: Sequence[str] = (),
    world: int | None = None,
) -> tuple[Case, ...]:
    """Plan the cases of each implementation in turn; the last axis varies fastest.

    *axes* maps names of axes and of implementations' options to the texts of their values; *sizes*
    sets the main axes together. The cases of a gang of *world* ranks have it in their points.
    Raises: UnknownName, UsageError.
    """
    gang = _gang(description, world)
    by_name = {axis.name: axis for axis in description.axes}
    options = {option for i in description.implementations for option in i.options}
    pinned = {name: text for name, text in axes.items() if name in options - by_name.keys()}
    for name in axes.keys() - pinned.keys():
        if name not in by_name:
            raise UnknownName(f"axis of {description.name}", name, by_name)
    values = {name: _values(by_name[name], axes[name]) for name in axes if name not in pinned}
    together = _sizes(description, values, sizes)
    chosen = _implementations(description, implementations, pinned)
    count = len(chosen) * len(together or (None,)) * math.prod(len(v) for v in values.values())
    if count > MOST_CASES:
        raise UsageError(f"{count} cases are more than {MOST_CASES}", "narrow a range")
    return tuple(
        Case(description.name, implementation, {**point, **gang}, options, description.source)
        for implementation, options in chosen
        for point in _points(description, values, together)
    )


def _gang(description: Description, world: int | None) -> dict[str, Value]:
    """Return the coordinate of a gang of *world* ranks. Raises: UsageError for a workload that
    needs one and gets none, or the reverse."""
    if description.world and world is None:
        hint = f"gpuperf roofline {description.name} --gpus 2, with --device cpu on CPUs"
        raise UsageError(f"{description.name} needs several ranks, and --gpus is not given", hint)
    if not description.world and world is not None:
        raise UsageError(
            f"{description.name} runs on one device, and --gpus {world} asks for {world}",
            "leave --gpus out; `gpuperf list` shows the collectives",
        )
    return {"world": world} if world is not None else {}


def settle_dtype(
    cases: Sequence[Case], description: Description, device: DeviceFacts
) -> tuple[Case, ...]:
    """Replace the dtype `auto`: by bf16 on a GPU that has it, and otherwise by fp32.

    A workload without that dtype gets its first dtype.
    """
    choices = next((a.choices for a in description.axes if a.name == "dtype"), ())
    wanted = ["bf16"] if device.kind != "cpu" and "bf16" in device.dtypes else []
    wanted.append("fp32")
    dtype = next((d for d in wanted if d in choices), choices[0] if choices else "fp32")
    settled = (
        replace(case, point={**case.point, "dtype": dtype})
        if case.point.get("dtype") == "auto"
        else case
        for case in cases
    )
    return tuple({case.id: case for case in settled}.values())


def plan_comparison(
    cases: Sequence[Case], baseline: str | None, description: Description
) -> tuple[tuple[Case, ...], str]:
    """Sort *cases* by their points; return them and the name of the baseline (default: the first).

    Raises: UnknownName; UsageError where implementations compute different things.
    """
    names = list(dict.fromkeys(case.implementation for case in cases))
    if baseline is not None and baseline not in names:
        known = [i.name for i in description.implementations]
        hint = f"add {baseline} to --impl, which leaves it out" if baseline in known else ""
        raise UnknownName("implementation to compare with", baseline, names, hint)
    computes = {i.name: i.computes or "the formula" for i in description.implementations}
    base = computes.get(baseline or names[0])
    others = [name for name in names if computes.get(name) != base]
    if others:
        alike = ",".join(name for name in names if name not in others)
        raise UsageError(
            f"{baseline or names[0]} computes {base}, and {others[0]} {computes[others[0]]}",
            f"compare implementations that compute the same: --impl {alike}",
        )
    points = list(dict.fromkeys(tuple(case.point.items()) for case in cases))
    place = {point: i for i, point in enumerate(points)}
    ordered = sorted(cases, key=lambda case: place[tuple(case.point.items())])
    return tuple(ordered), baseline or names[0]


def _sizes(
    description: Description, values: Mapping[str, tuple[Value, ...]], text: str | None
) -> tuple[int, ...] | None:
    if text is None:
        return None
    main = [axis for axis in description.axes if axis.main]
    free = [axis for axis in main if axis.name not in values]
    if not free:
        names = ", ".join(f"--{axis.name}" for axis in main)
        why = f"{names} are given" if main else f"{description.name} has no main axis"
        raise UsageError(f"--sizes {text} sets nothing: {why}", "leave --sizes out")
    try:
        return parse_range(text, max(axis.minimum for axis in free))
    except ValueError as error:
        raise UsageError(f"--sizes: {error}", "for example --sizes 128:8192") from None


def _values(axis: Axis, text: str) -> tuple[Value, ...]:
    if axis.choices:
        names = [name.strip() for name in text.split(",")]
        if names in (["all"], ["both"]) and not set(names) & set(axis.choices):
            return axis.choices
        for name in names:
            if name not in axis.choices and name != axis.default:
                every = "both" if len(axis.choices) == 2 else "all"
                raise UnknownName(axis.name.replace("_", "-"), name, (*axis.choices, every))
        return tuple(dict.fromkeys(names))
    try:
        return parse_range(text, axis.minimum)
    except ValueError as error:
        option = f"--{axis.name.replace('_', '-')}"
        usual = max(1, int(axis.default))
        hint = f"for example {option} {usual},{2 * usual}"
        raise UsageError(f"{option}: {error}", hint) from None


def _implementations(
    description: Description, wanted: Sequence[str], pinned: Mapping[str, str]
) -> list[tuple[str, Mapping[str, Value]]]:
    """Return each implementation with each combination of its options' values.

    They are the values *pinned* on the command line, else the default, unless that is empty.
    """
    by_name = {i.name: i for i in description.implementations}
    for name in wanted:
        if name not in by_name:
            raise UnknownName(f"implementation of {description.name}", name, by_name)
    chosen = [*(dict.fromkeys(wanted) or description.standard or by_name)]
    for option in pinned:
        owners = [i.name for i in description.implementations if option in i.options]
        if not set(owners) & set(chosen):
            belongs = f"--{option.replace('_', '-')} is an option of {', '.join(owners)}"
            raise UsageError(f"{belongs}, and not of {', '.join(chosen)}", f"--impl {owners[0]}")
    combinations: list[tuple[str, Mapping[str, Value]]] = []
    for name in chosen:
        columns = [
            [(option, value) for value in _pinned(name, option, values, pinned.get(option))]
            for option, values in by_name[name].options.items()
        ]
        for options in itertools.product(*columns):
            combinations.append((name, {key: value for key, value in options if value != ""}))
    return combinations


def _pinned(name: str, option: str, values: Sequence[Value], text: str | None) -> list[Value]:
    """Return the values that *text* gives an option, or its default."""
    if text is None:
        return [values[0]]
    known = {str(value): value for value in values if value != ""}
    for word in text.split(","):
        if word.strip() not in known:
            raise UnknownName(f"{option} of {name}", word.strip(), known)
    return [known[word.strip()] for word in dict.fromkeys(text.split(","))]


def _points(
    description: Description,
    values: Mapping[str, tuple[Value, ...]],
    together: tuple[int, ...] | None,
) -> list[dict[str, Value]]:
    """Return every combination of the values; the other main axes follow `--sizes` *together*."""
    sizes: Sequence[int | None] = together if together is not None else (None,)
    points: list[dict[str, Value]] = []
    for size in sizes:
        columns: list[tuple[Value, ...]] = []
        for axis in description.axes:
            if axis.name in values:
                columns.append(values[axis.name])
            elif axis.main and size is not None:
                columns.append((size,))
            else:
                columns.append((axis.swept and axis.choices) or (axis.default,))
        points += [
            {
                axis.name: value
                for axis, value in zip(description.axes, combination, strict=True)
                if not (axis.optional and value == axis.default)
            }
            for combination in itertools.product(*columns)
        ]
    return points


# An H200's times do not change with longer rests before each sample (docs/measured).
GPU_GAP_S, GPU_DUTY = 0.002, 0.2


@dataclass(frozen=True)
class Conditions:
    """Conditions of a measurement that the user chose; None or empty means the device's default.

    Each case is measured once for each combination of `caches`, `regimes` and `data`.
    """

    timer: TimerName | None = None
    precision: float = 0.01
    budget_s: float = 2.0
    caches: tuple[Cache, ...] = ()
    regimes: tuple[Regime, ...] = ()
    data: tuple[Data, ...] = ()
    gap_s: float | None = None
    settle_s: float | None = None
    counting: Counting = "auto"
    energy: bool = False


GANG_TIMERS = ("graph", "wall")  # of a gang, the default on GPUs first


def plan_gang(device: DeviceFacts, conditions: Conditions) -> Conditions:
    """Return the *conditions* of a gang, with its default timer, and without counters: the passes
    that read them repeat the calls of one rank alone.

    Raises: CannotMeasure for a timer, a regime or counters that a gang does not have.
    """
    if conditions.timer not in (None, *GANG_TIMERS):
        raise CannotMeasure(
            f"the timer {conditions.timer!r} times one device alone",
            f"choose --timer {' or '.join(GANG_TIMERS)}",
        )
    if conditions.energy:
        raise CannotMeasure("the energy of a gang is not measured", "leave --energy out")
    if "sustained" in conditions.regimes:
        raise CannotMeasure("a gang cannot be timed under a sustained load", "leave --regime out")
    if conditions.counting not in ("off", "auto"):
        raise CannotMeasure("hardware counters are not read in a gang", "leave --counters out")
    default: TimerName = "wall" if device.kind == "cpu" else "graph"
    return replace(conditions, timer=conditions.timer or default, counting="off")


def plan_contracts(device: DeviceFacts, conditions: Conditions) -> tuple[Contract, ...]:
    """Return the contracts that each case is measured under, at least one.

    Raises: UsageError for a precision or a budget that is not a number, or conditions that
    exclude each other; CannotMeasure for a timer or a regime that the device does not have.
    """
    if conditions.energy and device.kind != "cuda":
        raise CannotMeasure(f"gpuperf reads no energy of {device.name}", "leave --energy out")
    plain = default_contract(device, conditions.timer, conditions.precision, conditions.budget_s)
    if conditions.gap_s is not None:
        plain = replace(plain, gap_s=conditions.gap_s, duty=1.0)
    if conditions.settle_s is not None:
        if "sustained" not in conditions.regimes:
            raise UsageError(
                "--settle needs --regime sustained", "add --regime sustained, or leave --settle out"
            )
        plain = replace(plain, settle_s=conditions.settle_s)
    contracts = dict.fromkeys(
        _contract(plain, device, cache, regime, data)
        for regime in conditions.regimes or (plain.regime,)
        for data in conditions.data or (plain.data,)
        for cache in conditions.caches or (None,)
    )
    return tuple(contracts)


def plan_counting(device: DeviceFacts, counting: Counting) -> Counting:
    """Return *counting*, or `off` on a device without counters.

    Raises: CannotMeasure where counters are required and the device has none.
    """
    if device.kind == "cuda":
        return counting
    if counting in ("require", "kernels", "ncu"):
        raise CannotMeasure(
            f"gpuperf reads no hardware counters of {device.name}", "leave --counters out"
        )
    return "off"


def _contract(
    plain: Contract, device: DeviceFacts, cache: Cache | None, regime: Regime, data: Data
) -> Contract:
    """Return *plain* under this cache, regime and data; None means the default of the device.

    Raises: CannotMeasure, UsageError if they exclude each other.
    """
    if regime == "sustained":
        if device.kind != "cuda":
            raise CannotMeasure(
                f"a sustained load cannot be timed on {device.name}", "leave --regime out"
            )
        if not TIMERS[plain.timer].sustained:
            raise UsageError(
                f"--timer {plain.timer} and --regime sustained exclude each other: sustained calls "
                "are timed in batches between stamps on the device",
                "leave --timer out",
            )
        if cache not in (None, "hot"):
            raise UsageError(
                f"--cache {cache} and --regime sustained exclude each other: each call finds in "
                "the cache the data of the last call",
                "leave --cache out",
            )
        cache = "hot"
    if TIMERS[plain.timer].follow:
        if cache in ("cold", "cold-dirty"):
            raise UsageError(
                f"--cache {cache} and --timer {plain.timer} exclude each other: the calls of "
                "a graph follow each other",
                "--cache rotate uses other inputs in each call",
            )
        cache = cache or "rotate"
    return replace(plain, cache=cache or plain.cache, regime=regime, data=data)


def default_contract(
    device: DeviceFacts,
    timer: TimerName | None = None,
    precision: float = 0.01,
    budget_s: float = 2.0,
) -> Contract:
    """Return the contract of *device* for a user who chooses nothing else.

    On a GPU, an idle gap before each sample lets the clock recover; a CPU needs none.
    Raises: UsageError for a precision or a budget that is not a number; CannotMeasure for a timer
    that the device does not have.
    """
    for name, value in (("precision", precision), ("budget", budget_s)):
        if not math.isfinite(value):
            raise UsageError(f"--{name} {value} is not a number", f"for example --{name} 0.02")
    names = timer_names(device.kind)
    if timer not in (None, *names):
        raise CannotMeasure(
            f"{device.name} does not have the timer {timer!r}",
            f"choose --timer {' or '.join(names)}",
        )
    if device.kind == "cpu":
        return Contract(
            timer=timer or names[0],
            gap_s=0.0,
            precision=precision,
            budget_s=budget_s,
            min_samples=10,
        )
    return Contract(
        timer=timer or names[0],
        gap_s=GPU_GAP_S,
        duty=GPU_DUTY,
        precision=precision,
        budget_s=budget_s,
    )
