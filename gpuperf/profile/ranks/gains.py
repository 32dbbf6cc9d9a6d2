"""Estimate what a step gains from communication that compute hides, and from a rank that is late.

No gain exceeds what it removes. A step with all of its communication hidden still takes its other
time, its compute, and its communication. What ranks wait for a late one is not gained by hiding, so
the exposed part that counts is that of the rank with the least of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuperf.model.record import Header
from gpuperf.profile.breakdown import Profile
from gpuperf.profile.gain import Gain
from gpuperf.profile.ranks.study import RankRow, Together
from gpuperf.units import format_time


def _rows(profile: Profile) -> list[RankRow]:
    """Return the ranks of *profile* with traced communication."""
    compared = profile.together
    return [row for row in compared.rows if row.exposed_s is not None] if compared else []


def _scale(profile: Profile, row: RankRow) -> float:
    """Return by how much the seconds of a traced step are shortened to fit the plain one, which a
    profiler lengthens; never above 1."""
    traced_s = row.traced_s or profile.step_s
    return min(1.0, profile.step_s / traced_s) if traced_s > 0 else 1.0


def _removable(profile: Profile, row: RankRow) -> float:
    """Return the seconds by which hiding shortens a step of the rank *row* at the most: its exposed
    communication, as far as the step does not get shorter than its compute or communication."""
    scale = _scale(profile, row)
    exposed_s, compute_s, communication_s = (
        scale * (seconds or 0.0) for seconds in (row.exposed_s, row.compute_s, row.communication_s)
    )
    left_s = max(profile.step_s - exposed_s, compute_s, communication_s)
    return max(0.0, min(exposed_s, profile.step_s - left_s))


def _overlap(profile: Profile, header: Header) -> Iterator[Gain]:
    """Yield the gain of hiding the exposed communication behind compute."""
    rows = _rows(profile)
    if not rows or profile.together is None:
        return
    row = min(rows, key=lambda row: row.exposed_s or 0.0)
    gain_s = min(_removable(profile, each) for each in rows)
    worst = sorted(profile.together.collectives, key=lambda one: -one.collective.exposed_s)
    yield Gain(
        "overlap communication with compute: smaller buckets, prefetch, async collectives",
        gain_s,
        gain_s / profile.step_s,
        f"on rank {row.rank}, which has the least of it, {format_time(row.exposed_s or 0.0)} of "
        f"{format_time(row.communication_s or 0.0)} communication in a traced step are exposed; "
        f"hidden, the step still takes the {format_time(row.compute_s or 0.0)} of compute, or the "
        "communication if that is longer",
        tuple(
            _place(each.collective.message.name, each.collective.exposed_s) for each in worst[:4]
        ),
    )


def _place(name: str, exposed_s: float) -> str:
    return f"{name} ({format_time(exposed_s)} exposed a step)"


def _straggler(profile: Profile, header: Header) -> Iterator[Gain]:
    """Yield the gain if the straggler came to the collectives when the next rank does."""
    compared = profile.together
    if compared is None or compared.straggler is None:
        return
    gain_s = max(0.0, min(compared.late_s, *(_waited(profile, compared))))
    yield Gain(
        f"find out why rank {compared.straggler} is late: its data, its host, its clocks",
        gain_s,
        gain_s / profile.step_s,
        f"every other rank waits {format_time(compared.late_s)} a step for it in collectives, or "
        f"longer, over {compared.steps} traced steps; if its work is moved to the others, they "
        "take longer instead",
        (f"rank {compared.straggler}",),
    )


def _waited(profile: Profile, compared: Together) -> Iterator[float]:
    """Yield the most that each other rank gains: its exposed communication, of which the waiting is
    a part."""
    yield profile.step_s
    for row in compared.rows:
        if row.rank != compared.straggler and row.exposed_s is not None:
            yield _scale(profile, row) * row.exposed_s


LINK_MAKERS = (_overlap, _straggler)
