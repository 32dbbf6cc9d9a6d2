"""Compare two profiles of a program: which operators became slower or faster, and why.

Operators are matched by name, shapes and direction within regions of one name. An operator that
only one profile has is new or gone, which is how changed code shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from gpuperf.errors import UsageError
from gpuperf.model.record import Record
from gpuperf.profile.breakdown import OperatorRow, Profile

FEW = 0.005  # share of the step: smaller changes are left out
ALIKE = 0.02  # relative difference up to which two numbers of calls count as equal


@dataclass(frozen=True)
class Change:
    """An operator with its seconds in a step before and after (None if absent), and the cause of
    the change, such as `2 → 3 calls`; `of` are its operands."""

    operator: str
    of: str
    backward: bool
    before_s: float | None
    after_s: float | None
    cause: str

    @property
    def delta_s(self) -> float:
        """Return by how many seconds a step the operator is slower; below 0 if it is faster."""
        return (self.after_s or 0.0) - (self.before_s or 0.0)


@dataclass(frozen=True)
class Difference:
    """Two profiles of a region and their changes, the largest first."""

    before: Profile
    after: Profile
    changes: tuple[Change, ...]

    @property
    def ratio(self) -> float:
        """Return the seconds of a step after, over those before."""
        return self.after.step_s / self.before.step_s


def differences(before: Iterable[Profile], after: Iterable[Profile]) -> tuple[Difference, ...]:
    """Compare the regions of equal name. Raises: UsageError if the profiles share none."""
    earlier = {profile.region.region: profile for profile in before}
    later = {profile.region.region: profile for profile in after}
    pairs = tuple(
        Difference(earlier[name], later[name], _changes(earlier[name], later[name]))
        for name in later
        if name in earlier
    )
    if not pairs:
        names = f"{', '.join(earlier)} and {', '.join(later)}"[:200]
        raise UsageError(f"the profiles have no region in common: {names}", "mark the same regions")
    return pairs


def _changes(before: Profile, after: Profile) -> tuple[Change, ...]:
    old, new = _timed(before), _timed(after)
    least = FEW * min(before.step_s, after.step_s)
    changes = []
    for key in dict.fromkeys((*old, *new)):
        was, now = old.get(key), new.get(key)
        before_s, after_s = was.seconds if was else None, now.seconds if now else None
        change = Change(*key, before_s, after_s, _cause(was, now))
        if abs(change.delta_s) >= least:
            changes.append(change)
    return tuple(sorted(changes, key=lambda change: -abs(change.delta_s)))


def _timed(profile: Profile) -> dict[tuple[str, str, bool], OperatorRow]:
    """Return the operators with a time; those inside compiled code have none of their own."""
    rows: dict[tuple[str, str, bool], OperatorRow] = {}
    numbers: Counter[tuple[str, str, bool]] = Counter()
    for share in profile.operators:
        operator = share.record.operator
        if operator is None or not share.seconds:
            continue
        name, of, backward = share.record.case.op, operator.operands, operator.backward
        numbers[name, of, backward] += 1
        number = numbers[name, of, backward]  # the operands show a few tensors of many
        rows[name, f"{of} ({number})" if number > 1 else of, backward] = share
    return rows


def _cause(before: OperatorRow | None, after: OperatorRow | None) -> str:
    if before is None or after is None:
        return "new" if before is None else "gone"
    one, other = before.record, after.record
    if _moved(_count(one), _count(other)):
        return f"{_count(one):g} → {_count(other):g} calls"
    kernels = [Counter({k.name: k.count for k in record.kernels}) for record in (one, other)]
    if kernels[0].keys() != kernels[1].keys():
        gone = next(iter(kernels[0].keys() - kernels[1].keys()), "")
        new = next(iter(kernels[1].keys() - kernels[0].keys()), "")
        if not gone or not new:
            return f"a kernel {'less' if gone else 'more'}: {(gone or new)[:60]}"
        return f"another kernel: {gone[:60]} → {new[:60]}"
    if kernels[0] != kernels[1]:
        return f"{kernels[0].total()} → {kernels[1].total()} kernels"
    bound = after.part.removesuffix("-bound")
    return (
        {"memory": "lower bandwidth", "compute": "lower compute rate"}.get(
            bound, "the same kernels"
        )
        if after.seconds > before.seconds
        else "the same kernels, faster"
    )


def _count(record: Record) -> float:
    return record.operator.count if record.operator else 0.0


def _moved(one: float, other: float) -> bool:
    return abs(one - other) > ALIKE * max(one, other)
