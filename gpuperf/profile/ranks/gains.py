"""Estimate what a step gains from communication that compute hides, and from a rank that is late.

No gain exceeds what it removes. A step with all of its communication hidden still takes its other
time, its compute, and its communication. What ranks wait for a late one is not gained by hiding, so
the exposed part that counts is that of the rank with the least of it, and of that no more than what
is no waiting.
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
    communication without waiting, as far as that is known, and as far as the step does not get
    shorter than its compute or communication."""
    scale, worked_s = _scale(profile, row), row.worked_s
    exposed_s, compute_s, communication_s = (
        scale * (seconds or 0.0)
        for seconds in (
            row.exposed_s if worked_s is None else worked_s,
            row.compute_s,
            row.communication_s,
        )
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
    waits = max((each.waiting_s or 0.0 for each in rows), default=0.0)
    worst = sorted(profile.together.collectives, key=lambda one: -one.collective.exposed_s)
    yield Gain(
        "overlap communication with compute: smaller buckets, prefetch, async collectives",
        gain_s,
        gain_s / profile.step_s,
        f"on rank {row.rank}, which has the least of it, {format_time(row.exposed_s or 0.0)} of "
        f"{format_time(row.communication_s or 0.0)} communication in a traced step are exposed; "
        f"hidden, the step still takes the {format_time(row.compute_s or 0.0)} of compute, or the "
        "communication if that is longer" + (f"; {WAITS}" if waits else ""),
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


def _late_host(profile: Profile, header: Header) -> Iterator[Gain]:
    """Yield the gain of the faster launches of another rank, whose host is late, while all others
    wait for it in collectives, so that this one seems busy.

    The late rank is idle in a plain step no longer than that is beside its kernels. The gain is no
    more than what each other rank waits, nor than what the step has beside the work of the late
    rank, or the work and the idle time of another one.
    """
    compared, rows = profile.together, _rows(profile)
    if not profile.cuda or compared is None or compared.doubt or compared.lone is not None:
        return
    if len(rows) < 2 or any(r.worked_s is None or r.idle_s is None or not r.traced_s for r in rows):
        return
    late = max(rows, key=lambda row: row.idle_s or 0.0)
    if late.rank == profile.region.rank:
        return  # its own finding is that of one process
    others = [row for row in rows if row is not late]
    beside_s = profile.step_s - (late.compute_s or 0.0) - (late.exposed_s or 0.0)
    idle_s = min(_scale(profile, late) * (late.idle_s or 0.0), beside_s) - late.data_s
    waits_s = [_scale(profile, r) * min(r.waiting_s or 0.0, r.exposed_s or 0.0) for r in others]
    busy_s = [_scale(profile, row) * (row.idle_s or 0.0) + _work_s(row) for row in others]
    work_s = max(_work_s(late), *busy_s)
    gain_s = max(0.0, min(idle_s, profile.step_s - work_s, *waits_s))
    yield Gain(
        f"launch less, as ranks wait for late hosts, most for that of rank {late.rank}: CUDA "
        "graphs, torch.compile, larger batches",
        gain_s,
        gain_s / profile.step_s,
        f"the GPU of rank {late.rank} is idle for {format_time(late.idle_s or 0.0)} of a traced "
        f"step of {format_time(late.traced_s or 0.0)}, as its host has launched nothing, and every "
        f"other rank waits in collectives for {format_time(min(waits_s))} of a plain step or "
        f"longer; the step still takes {format_time(work_s)}, of compute, communication and the "
        "idle time of another rank",
        (f"rank {late.rank}",),
    )


def _work_s(row: RankRow) -> float:
    """Return the seconds in which a rank computes, or communicates without waiting or computing."""
    return (row.compute_s or 0.0) + (row.worked_s or 0.0)


WAITS = "waiting for late ranks is not gained"
LINK_MAKERS = (_overlap, _straggler, _late_host)
