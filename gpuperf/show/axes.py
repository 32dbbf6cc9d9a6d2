"""Name sizes and cases by the axes that tell them apart.

Axes that have the same value in every record are written once (`m=n=k`, `4096`); axes that never
vary belong in the caption.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from gpuperf.errors import UsageError
from gpuperf.model.record import Record, Run
from gpuperf.model.text import clean, shorten
from gpuperf.model.workload import Case, Value, id_parts

T = TypeVar("T")

# By operation, axes of which 0 stands for the value of another axis: `attention` then has as many
# keys as queries.
SAME = {"attention": {"kv": "seq"}}


def dtype_of(record: Record) -> str:
    """Return the dtype of a record: its axis, or else that of its FLOPs."""
    dtype = record.case.point.get("dtype")
    if isinstance(dtype, str):
        return dtype
    return record.cost.flops[0].dtype if record.cost and record.cost.flops else ""


def implementation_of(record: Record, with_op: bool) -> str:
    """Return `triton[tile=128]`, with the operation before it where a run holds several."""
    case = record.case
    options = ",".join(f"{k}={v}" for k, v in case.options.items())
    name = f"{case.implementation}[{options}]" if options else case.implementation
    return f"{case.op}/{name}" if with_op else name


def binary(value: str) -> str:
    """Write a long round number as the command line takes it: `8388608` is `8M`."""
    number = int(value) if value.isascii() and value.isdecimal() and 5 < len(value) < 20 else 0
    for factor, suffix in ((2**30, "G"), (2**20, "M"), (2**10, "k")):
        if number and number % factor == 0:
            return f"{number // factor}{suffix}"
    return value


def _columns(points: Sequence[Mapping[str, T]]) -> dict[str, tuple[T | None, ...]]:
    """Return the values of each axis of *points*, None where a point lacks the axis."""
    names = dict.fromkeys(name for point in points for name in point)
    return {name: tuple(point.get(name) for point in points) for name in names}


def _written(op: str, axes: Mapping[str, T]) -> Mapping[str, T]:
    """Return *axes* with the values of others in place of zeros that stand for them."""
    same = SAME.get(op, {})
    return {n: axes.get(same[n], v) if n in same and str(v) == "0" else v for n, v in axes.items()}


def _stated(op: str, axes: Mapping[str, T]) -> Mapping[str, T]:
    """Return *axes* but those that are 0 for the value of another axis."""
    same = SAME.get(op, {})
    return {name: value for name, value in axes.items() if name not in same or str(value) != "0"}


class _Sweep:
    def __init__(self, points: Sequence[Mapping[str, Value]], main: Sequence[str]) -> None:
        columns = _columns(points)
        columns.pop("dtype", None)
        numbers = [n for n, c in columns.items() if not any(isinstance(v, str) for v in c)]
        numeric = [n for n in numbers if None not in columns[n]]
        # Axes that only some points give: they are named with each value, as `window=1024`.
        self.rare = tuple(n for n in numbers if n not in numeric)
        varying = [n for n in numeric if len(set(columns[n])) > 1]
        varying = varying or [n for n in numeric if n in main] or numeric
        classes: dict[tuple[Value | None, ...], list[str]] = {}
        for name in varying:
            classes.setdefault(columns[name], []).append(name)
        self.classes = tuple(tuple(names) for names in classes.values())
        self.named = tuple(n for n, c in columns.items() if n not in numbers and len(set(c)) > 1)
        shown = {*varying, *self.named, *self.rare}
        self.constant = {n: c[0] for n, c in columns.items() if n not in shown}

    def values(self, point: Mapping[str, Value]) -> list[str]:
        return [str(point.get(names[0], "–")) for names in self.classes]

    def others(self, point: Mapping[str, Value]) -> list[str]:
        return [f"{name}={binary(str(point[name]))}" for name in self.rare if name in point]


class Axes:
    """The axes of all records of a run; where none varies, the *main* ones are the size."""

    def __init__(self, records: Iterable[Record], main: Sequence[str] = ()) -> None:
        points: dict[str, list[Mapping[str, Value]]] = {}
        for record in records:
            points.setdefault(record.case.op, []).append(record.case.point)
        self._sweeps = {op: _Sweep(rows, main) for op, rows in points.items()}
        self.ops = tuple(self._sweeps)
        self.named = tuple(dict.fromkeys(n for s in self._sweeps.values() for n in s.named))

    @property
    def head(self) -> str:
        """The head of the size column: `m=n=k`, `m×n×k`; `size` where operations differ."""
        if len(self._sweeps) != 1:
            return "size"
        (sweep,) = self._sweeps.values()
        return "×".join("=".join(names) for names in sweep.classes) or "size"

    def size(self, record: Record) -> str:
        """Return `4096`, `4096×128`, `4096×128,window=512` where only some records have a window;
        where a run has several operations, with the names of all axes: `m=n=4096,k=64`, `n=8M`."""
        sweep, point = self._sweeps[record.case.op], _written(record.case.op, record.case.point)
        values = sweep.values(point)
        if len(self._sweeps) > 1:
            pairs = zip(sweep.classes, values, strict=True)
            values = [*_merged({name: value for names, value in pairs for name in names})]
        else:
            values = ["×".join(values)]
        return ",".join(filter(None, [*values, *sweep.others(point)]))

    def order(self, record: Record) -> tuple[float, ...]:
        """Return the key that sorts the records of one operation by size."""
        point = record.case.point
        sweep = self._sweeps[record.case.op]
        names = [*(names[0] for names in sweep.classes), *sweep.rare]
        values = (point.get(name, 0) for name in names)
        return tuple(float(v) if not isinstance(v, str) else 0.0 for v in values)

    def variant(self, record: Record) -> tuple[str, ...]:
        """Return what sets a record apart from those of other sizes: its axes of words, as `fwd`,
        and those that only some records have."""
        point = record.case.point
        return (*(str(point.get(name, "")) for name in self.named), *self.others(record))

    def constant(self, op: str) -> str:
        """Return the axes of *op* that have one value: `h=16, d=64`."""
        return ", ".join(f"{k}={v}" for k, v in _stated(op, self._sweeps[op].constant).items())

    def brief(self, record: Record) -> str:
        """Return the size for a label, `4096×128`, `16M` (= 2^24), without the names of axes that
        all records have."""
        sweep, point = self._sweeps[record.case.op], _written(record.case.op, record.case.point)
        values = "×".join(map(binary, sweep.values(point)))
        return ",".join(filter(None, [values, *sweep.others(point)]))

    def values(self, record: Record) -> list[str]:
        """Return the values of the axes that all records have, in the order of `head`."""
        return list(map(binary, self._sweeps[record.case.op].values(record.case.point)))

    def others(self, record: Record) -> list[str]:
        """Return the axes that only some records have, as `window=512`."""
        return self._sweeps[record.case.op].others(record.case.point)

    def prefix(self) -> str:
        """Return the name of the size's axis and a blank (`n `); empty unless it is one axis."""
        sweeps = list(self._sweeps.values())
        if len(sweeps) != 1 or [len(names) for names in sweeps[0].classes] != [1]:
            return ""
        return f"{sweeps[0].classes[0][0]} "


def moved_axes(run: Run) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the axes of numbers that the plan sweeps together, and the other axes that vary.

    Of several groups of axes with the same values in every case, the one with most values is swept.
    Raises: UsageError where no axis varies.
    """
    columns = _columns([case.point for case in run.header.plan or [r.case for r in run.records]])
    together: dict[tuple[object, ...], list[str]] = {}
    for name, column in columns.items():
        if len(set(column)) > 1 and all(isinstance(value, int) for value in column):
            together.setdefault(column, []).append(name)
    if not together:
        raise UsageError("no axis varies: there is nothing to compare", "--sizes 1024:8192:+128")
    swept = max(together.values(), key=lambda names: len(set(columns[names[0]])))
    others = [name for names in together.values() if names is not swept for name in names]
    words = [
        name
        for name, column in columns.items()
        if name != "dtype" and len(set(column)) > 1 and name not in (*swept, *others)
    ]
    return tuple(swept), (*others, *words)


def where(point: Mapping[str, object], others: Sequence[str]) -> str:
    """Return the values of the axes *others* of one point: `k=768`."""
    return ", ".join(f"{name}={point.get(name)}" for name in others)


class Names:
    """Short names of *cases*, no two alike, each in at most *most* characters.

    An axis that has one value in all cases of an operation is left out of their names and is in
    `fixed`. The verdict of a gate has ids in place of cases; an id of another form is its own name.
    """

    def __init__(self, cases: Iterable[Case | str], most: int = 60) -> None:
        self._parts = dict(map(_parts, cases))
        points: dict[str, list[Mapping[str, str]]] = {}
        for parts in self._parts.values():
            if parts:
                points.setdefault(parts[0], []).append(parts[2])
        # Of each operation the values that each axis has.
        self._values = {
            op: {
                axis: list(dict.fromkeys(v for v in column if v is not None))
                for axis, column in _columns(rows).items()
            }
            for op, rows in points.items()
        }
        taken: dict[str, int] = {}
        self._names = {
            case: _unique([self._brief(case), clean(case)], most, taken) for case in self._parts
        }

    def _shown(self, op: str) -> set[str]:
        """Return the axes of *op* that its names hold: those that vary, or else the sizes."""
        values = self._values[op]
        varying = {axis for axis, known in values.items() if len(known) > 1}
        return varying or {
            axis
            for axis, (value,) in values.items()
            if value.isdecimal() and value not in ("0", "1")
        }

    def _brief(self, case: str) -> str:
        parts = self._parts[case]
        if parts is None:
            return clean(case)
        op, implementation, point = parts
        shown, point = self._shown(op), _written(op, point)
        name = f"{op}/{implementation}" if implementation else op
        axes = _merged({axis: value for axis, value in point.items() if axis in shown})
        return clean(" ".join([name, *axes]))

    def of(self, case: Case | str) -> str:
        """Return the name of *case*; its id where it is not among the cases."""
        name = case if isinstance(case, str) else case.id
        return self._names.get(name) or clean(name)

    def replace_ids(self, text: str) -> str:
        """Return *text* with the ids in it replaced by names."""
        if "[" in text:
            for case, parts in self._parts.items():
                if parts is not None and case in text:
                    text = text.replace(case, self._names[case])
        return clean(text)

    @property
    def fixed(self) -> Mapping[str, str]:
        """By operation, the axes that no name of its cases holds: `{"softmax": "dtype=bf16"}`."""
        fixed = {}
        for op, values in self._values.items():
            shown = self._shown(op)
            rest = {axis: known[0] for axis, known in values.items() if axis not in shown}
            axes = [f"{axis}={value}" for axis, value in _stated(op, rest).items()]
            if axes:
                fixed[clean(op)] = clean(", ".join(axes))
        return fixed


def _parts(case: Case | str) -> tuple[str, tuple[str, str, Mapping[str, str]] | None]:
    """Return the id of *case*, and its operation, implementation and axes."""
    if isinstance(case, str):
        return case, id_parts(case)
    axes = {name: str(value) for name, value in {**case.point, **case.options}.items()}
    return case.id, (case.op, case.implementation, axes)


def _merged(axes: Mapping[str, str]) -> Iterator[str]:
    """Yield `m=n=k=4096` for neighbours of one letter that have one value, else `seq=1024`."""
    names: list[str] = []
    last = ""
    for axis, value in axes.items():
        if names and not (value == last and len(axis) == len(names[-1]) == 1):
            yield f"{'='.join(names)}={binary(last)}"
            names = []
        names.append(axis)
        last = value
    if names:
        yield f"{'='.join(names)}={binary(last)}"


def _unique(wanted: Sequence[str], most: int, taken: dict[str, int]) -> str:
    """Return the first of *wanted* that is not *taken*, cut to *most* characters, else a number."""
    for name in wanted:
        short = shorten(name, most) or "(no name)"
        if short not in taken:
            taken[short] = 1
            return short
    while True:  # repeated only if a case has the name of a numbered one
        taken[short] += 1
        numbered = f"{shorten(short, most - 8)} ({taken[short]})"
        if numbered not in taken:
            taken[numbered] = 1
            return numbered


def whole_names(cases: Iterable[str], most: int) -> Mapping[str, str]:
    """Return the ids of *cases* with every axis, each in at most *most* characters."""
    taken: dict[str, int] = {}
    return {case: _unique([clean(case)], most, taken) for case in dict.fromkeys(cases)}
