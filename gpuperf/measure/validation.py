"""Check that a `Workload` value, and the costs that it returns, can be planned with and measured.

Each error names the field, and its hint says what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, get_args

from gpuperf.errors import WorkloadError
from gpuperf.model.codec import decode, encode
from gpuperf.model.cost import Cost, FlopKind
from gpuperf.model.experiment import (
    COMPARED,
    QUANTITIES,
    READING,
    UNITS,
    Control,
    Experiment,
    ExperimentDescription,
    Need,
    unit_of,
)
from gpuperf.model.workload import RESERVED, Axis, Description, Implementation, Workload

T = TypeVar("T", bound=Cost)

NAME = r"[A-Za-z][A-Za-z0-9_-]*"
LISTS: dict[str, type] = {
    "axes": Axis,
    "implementations": Implementation,
    "mutates": str,
    "standard": str,
}
FUNCTIONS = ("inputs", "reference", "cost")

Problem = tuple[str, str]  # message and hint


def validate(workload: Workload, source: str) -> None:
    """Raise WorkloadError for a field of the wrong type, a name that repeats or does not fit into
    a case id, and an axis without choices."""
    for check in (_types, _names, _axes, _described(source)):
        for message, hint in check(workload):
            raise WorkloadError(f"{source}: workload {workload.name!r} {message}", hint)


def validate_experiment(experiment: Experiment, source: str) -> None:
    """Raise WorkloadError for an experiment that cannot be planned with."""
    for check in (_experiment_fields, _experiment_axes):
        for message, hint in check(experiment):
            raise WorkloadError(f"{source}: experiment {experiment.name!r} {message}", hint)
    try:
        decode(encode(experiment.describe(source)), ExperimentDescription)
    except (TypeError, ValueError, AttributeError) as error:
        message = f"{source}: experiment {experiment.name!r} cannot be described: {error}"
        raise WorkloadError(message, "names are text, values whole numbers or text") from None


def validated_cost(value: Any, kind: type[T], function: str) -> T:
    """Return *value*, which the workload's *function* returned, with the types of a record.

    Raises: WorkloadError if it is not a valid *kind*.
    """
    hint = f"{function}(point) returns a {kind.__name__}(flops=(Flops(…),), bytes=(Bytes(…),))"
    if not isinstance(value, Cost):
        returned = "None" if value is None else f"a {type(value).__name__}"
        raise WorkloadError(f"{function}(point) returned {returned}", hint)
    for field in ("flops", "bytes"):
        if not isinstance(getattr(value, field), tuple | list):
            message = f"`{field}` of what {function}(point) returned is not a tuple"
            raise WorkloadError(message, f"{field}=(…,), with a comma before the parenthesis")
    for flops in value.flops:
        kinds = get_args(FlopKind)
        if getattr(flops, "kind", None) not in kinds:
            message = (
                f"{function}(point) counts FLOPs of the kind {getattr(flops, 'kind', flops)!r}"
            )
            raise WorkloadError(message, f"the kinds are {', '.join(kinds)}")
    try:
        return decode(encode(value), kind)
    except (TypeError, ValueError) as error:
        message = f"{function}(point) returned an invalid {kind.__name__}: {error}"
        raise WorkloadError(message, "counts are whole numbers: divide with //") from None


def _experiment_fields(experiment: Experiment) -> Iterator[Problem]:
    if not isinstance(experiment.name, str) or not re.fullmatch(NAME, experiment.name):
        yield "has a name that is not letters, digits, _ and -", "begin with a letter"
    if not isinstance(experiment.workload, Workload | str):
        yield "has a workload that is neither a Workload nor a name", 'workload="copy"'
    if not callable(experiment.expect):
        yield "has no function `expect`", "expect=lambda at, numbers: about(…)"
    if experiment.y not in QUANTITIES and not str(experiment.y).startswith(READING):
        yield f"measures {experiment.y!r}", f"y is one of {', '.join(QUANTITIES)}"
    if unit_of(experiment) not in UNITS:
        yield f"has the unit {unit_of(experiment)!r}", f"it is one of {', '.join(sorted(UNITS))}"
    if (experiment.y in COMPARED) != (experiment.baseline is not None):
        yield f"has y={experiment.y!r}", "a ratio, and nothing else, needs a `baseline`"
    for field, kind in (("controls", Control), ("notes", str), ("claims", str), ("needs", str)):
        yield from _tuple_of(field, getattr(experiment, field), kind)
    for need in set(experiment.needs) - {*get_args(Need)}:
        yield f"needs {need!r}", f"`needs` is some of {', '.join(get_args(Need))}"


def _experiment_axes(experiment: Experiment) -> Iterator[Problem]:
    for name, values in experiment.axes.items():
        yield from _tuple_of(f"values of the axis {name!r}", values, int | str)
    if isinstance(experiment.workload, str):
        return
    known = {axis.name for axis in experiment.workload.axes}
    known |= {option for i in experiment.workload.implementations for option in i.options}
    wanted = {*experiment.axes, *(name for c in experiment.controls for name in c.at)}
    wanted |= {experiment.series}
    wanted |= {experiment.x} if experiment.along is None else set()
    for name in sorted(wanted - known - {"implementation"}):
        yield f"names the axis {name!r}, which its workload lacks", f"it has {', '.join(known)}"


def _types(workload: Workload) -> Iterator[Problem]:
    for field, kind in LISTS.items():
        yield from _tuple_of(field, getattr(workload, field), kind)
    for axis in workload.axes:
        yield from _tuple_of(f"choices of the axis {axis.name!r}", axis.choices, str)
    for field in FUNCTIONS:
        if not callable(getattr(workload, field)):
            yield f"has no function `{field}`", f"{field}=lambda point: … or the name of a function"
    for implementation in workload.implementations:
        if not callable(implementation.build):
            message = f"has an implementation {implementation.name!r} whose build is not a function"
            yield message, "def build(inputs, point, options): return lambda: …"


def _tuple_of(field: str, value: object, kind: Any) -> Iterator[Problem]:
    if not isinstance(value, tuple | list):
        message = f"has {field} that is not a tuple, but {_article(type(value).__name__)}"
        yield message, "a tuple of one needs a comma: (one,)"
        return
    for item in value:
        if not isinstance(item, kind):
            message = f"has {field} with {_article(type(item).__name__)} in it"
            yield message, f"each is {_article(getattr(kind, '__name__', str(kind)))}"


def _article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _names(workload: Workload) -> Iterator[Problem]:
    named = [("workload", workload.name)]
    named += [("axis", axis.name) for axis in workload.axes]
    named += [("implementation", i.name) for i in workload.implementations]
    for noun, name in named:
        if not isinstance(name, str) or not re.fullmatch(NAME, name):
            message = f"has the {'name' if noun == 'workload' else noun} {name!r}, "
            fitting = re.sub(r"[^A-Za-z0-9_-]+", "_", str(name)).strip("_")
            hint = f"write {fitting!r}" if re.fullmatch(NAME, fitting) else "begin with a letter"
            yield f"{message}which is not letters, digits, _ and - (a letter first)", hint
    axes = [axis.name for axis in workload.axes]
    implementations = [i.name for i in workload.implementations]
    if len(set(axes)) < len(axes) or len(set(implementations)) < len(implementations):
        yield "names an axis or an implementation twice", "rename one"
    if not implementations:
        yield "has no implementation", 'implementations=(Implementation("mine", build),)'
    for name in set(workload.standard) - set(implementations):
        yield f"has no implementation {name!r}, which its `standard` names", "name one that it has"


def _axes(workload: Workload) -> Iterator[Problem]:
    axes = {axis.name for axis in workload.axes}
    if taken := sorted(RESERVED & axes):
        message = f"has an axis {taken[0]!r}, which is an option of the command line"
        yield message, "rename the axis"
    options = {option for i in workload.implementations for option in i.options}
    if taken := sorted(options & (RESERVED | axes)):
        message = f"has an option {taken[0]!r}, which is one of the command line's or an axis"
        yield message, "rename the option"
    if "dtype" not in axes:
        yield "has no axis 'dtype'", 'add Axis("dtype", "auto", choices=("fp32", "bf16"))'
    for axis in workload.axes:
        if isinstance(axis.default, str) and not axis.choices:
            message = f"has an axis {axis.name!r} of words, and no choices for it"
            yield message, f'Axis("{axis.name}", "{axis.default}", choices=("{axis.default}", …))'


def _described(source: str) -> Callable[[Workload], Iterator[Problem]]:
    def check(workload: Workload) -> Iterator[Problem]:
        try:
            decode(encode(workload.describe(source)), Description)
        except (TypeError, ValueError) as error:
            hint = "names are text, defaults whole numbers or text"
            yield f"cannot be described: {error}", hint

    return check
