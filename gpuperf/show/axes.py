"""How is a point of a sweep written: which axes vary, which move together, which stand still?

Axes that have the same value in every record are written once (`m=n=k`, `4096`), axes that never
vary belong in the caption.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpuperf.errors import UsageError
from gpuperf.model.record import Record, Run
from gpuperf.model.text import clean
from gpuperf.model.workload import Value


def dtype_of(record: Record) -> str:
    """The dtype of a record: its axis, or else that of its FLOPs."""
    dtype = record.case.point.get("dtype")
    if isinstance(dtype, str):
        return clean(dtype)
    return clean(record.cost.flops[0].dtype) if record.cost and record.cost.flops else ""


def implementation_of(record: Record, with_op: bool) -> str:
    """`triton[tile=128]`, with the operation before it where a run holds several."""
    case = record.case
    options = ",".join(f"{k}={v}" for k, v in case.options.items())
    name = f"{case.implementation}[{options}]" if options else case.implementation
    return clean(f"{case.op}/{name}" if with_op else name)


def binary(value: str) -> str:
    """A long round number as the command line takes it: `8388608` is `8M`."""
    number = int(value) if value.isascii() and value.isdecimal() and 5 < len(value) < 20 else 0
    for factor, suffix in ((2**30, "G"), (2**20, "M"), (2**10, "k")):
        if number and number % factor == 0:
            return f"{number // factor}{suffix}"
    return value


class _Sweep:
    """The axes of one operation."""

    def __init__(self, points: Sequence[dict[str, Value]], main: Sequence[str]) -> None:
        columns: dict[str, tuple[Value | None, ...]] = {}
        for name in dict.fromkeys(name for point in points for name in point):
            columns[name] = tuple(point.get(name) for point in points)
        columns.pop("dtype", None)
        numeric = [n for n, c in columns.items() if not any(isinstance(v, str) for v in c)]
        varying = [n for n in numeric if len(set(columns[n])) > 1]
        varying = varying or [n for n in numeric if n in main] or numeric
        classes: dict[tuple[Value | None, ...], list[str]] = {}
        for name in varying:
            classes.setdefault(columns[name], []).append(name)
        self.classes = tuple(tuple(names) for names in classes.values())
        self.named = tuple(n for n, c in columns.items() if n not in numeric and len(set(c)) > 1)
        self.constant = {
            n: c[0] for n, c in columns.items() if n not in varying and n not in self.named
        }

    @property
    def head(self) -> str:
        return "×".join("=".join(names) for names in self.classes)

    def values(self, point: dict[str, Value]) -> list[str]:
        return [str(point.get(names[0], "–")) for names in self.classes]


class Axes:
    """The axes of all records of a run. Where none varies, the *main* ones tell the size."""

    def __init__(self, records: Iterable[Record], main: Sequence[str] = ()) -> None:
        points: dict[str, list[dict[str, Value]]] = {}
        for record in records:
            points.setdefault(record.case.op, []).append(dict(record.case.point))
        self._sweeps = {op: _Sweep(rows, main) for op, rows in points.items()}
        self.ops = tuple(self._sweeps)
        self.named = tuple(dict.fromkeys(n for s in self._sweeps.values() for n in s.named))

    @property
    def head(self) -> str:
        """The head of the size column: `m=n=k`, `m×n×k`; `size` where operations differ."""
        if len(self._sweeps) == 1:
            return clean(next(iter(self._sweeps.values())).head) or "size"
        return "size"

    def size(self, record: Record) -> str:
        """`4096`, `4096×128`; with the axes' names where a run holds several operations."""
        sweep = self._sweeps[record.case.op]
        values = sweep.values(dict(record.case.point))
        if len(self._sweeps) > 1:
            names = ("=".join(n) for n in sweep.classes)
            return clean(",".join(f"{n}={v}" for n, v in zip(names, values, strict=True)))
        return clean("×".join(values))

    def order(self, record: Record) -> tuple[float, ...]:
        """What sorts the records of one operation by size."""
        point = record.case.point
        values = (point.get(names[0], 0) for names in self._sweeps[record.case.op].classes)
        return tuple(float(v) if not isinstance(v, str) else 0.0 for v in values)

    def constant(self, op: str) -> str:
        """The axes of *op* that stand still: `h=16, d=64`."""
        return clean(", ".join(f"{k}={v}" for k, v in self._sweeps[op].constant.items()))

    def brief(self, record: Record) -> str:
        """The size for a label, without the axes' names: `4096`, `4096×128`, `16M` (= 2^24)."""
        values = self._sweeps[record.case.op].values(dict(record.case.point))
        return clean("×".join(binary(v) for v in values))

    def prefix(self) -> str:
        """`n ` where one axis alone varies; empty where several go together and numbers suffice."""
        sweeps = list(self._sweeps.values())
        if len(sweeps) != 1 or [len(names) for names in sweeps[0].classes] != [1]:
            return ""
        return f"{clean(sweeps[0].classes[0][0])} "


def moved_axes(run: Run) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The axes of numbers that are swept, by the plan, of which not all may have been measured:
    those that have the same values everywhere, of which there are most; and the axes that vary
    besides. Raises: UsageError where none varies."""
    points = [case.point for case in run.header.plan or [record.case for record in run.records]]
    names = points[0] if points else ()
    columns = {name: [point.get(name) for point in points] for name in names}
    together: dict[tuple[object, ...], list[str]] = {}
    for name, column in columns.items():
        if len(set(column)) > 1 and all(isinstance(value, int) for value in column):
            together.setdefault(tuple(column), []).append(name)
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
    """`k=768`: what else varies, of one point."""
    return ", ".join(f"{name}={point.get(name)}" for name in others)
