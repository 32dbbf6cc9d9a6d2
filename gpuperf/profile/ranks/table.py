"""Make the tables of a distributed program: its ranks, and the collectives of a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuperf.model.codec import to_builtins
from gpuperf.profile.breakdown import Profile
from gpuperf.profile.ranks.study import CollectiveRow, RankRow, Together
from gpuperf.show.table import Column, Table, fill, notes_of
from gpuperf.units import format_bytes, format_rate, format_time

MOST_RANKS, MOST_COLLECTIVES = 16, 8
NOTHING = "–"
RANK_COLUMNS = (
    Column("rank", identity=True),
    Column("GPU", keep=1),
    Column("step"),
    Column("compute"),
    Column("communication"),
    Column("exposed"),
    Column("waiting"),
    Column("idle"),
)
COLLECTIVE_COLUMNS = (
    Column("collective", left=True, identity=True),
    Column("bytes"),
    Column("ranks", keep=1),
    Column("calls", keep=2),
    Column("each"),
    Column("algbw", keep=3),
    Column("busbw"),
    Column("exposed"),
    Column("waiting"),
)


def together_tables(profile: Profile, most: int = MOST_RANKS) -> tuple[Table, ...]:
    """Return the tables of the ranks and of the collectives of a region; none for a program of one
    process without collectives."""
    compared = profile.together
    if compared is None:
        return ()
    tables = []
    if compared.world > 1:
        tables.append(_ranks_table(compared, most, profile.cuda))
    if compared.collectives:
        tables.append(_collectives_table(compared, profile.region.rank, most))
    return tuple(tables)


def together_values(compared: Together | None) -> dict[str, Any] | None:
    """Return the comparison of the ranks as a part of a JSON document."""
    if compared is None:
        return None
    return {
        "world": compared.world,
        "steps": compared.steps,
        "straggler": compared.straggler,
        "late_s": compared.late_s,
        "lone": to_builtins(compared.lone),
        "doubt": compared.doubt,
        "ranks": [to_builtins(row) for row in compared.rows],
        "collectives": [_values(row) for row in compared.collectives],
    }


def _values(row: CollectiveRow) -> dict[str, Any]:
    one = row.collective
    return {
        **to_builtins(one.message),
        "kernel": one.kernel,
        "calls": one.count,
        "time_s": one.step_s,
        "own_s": row.own_s,
        "last_s": row.last_s,
        "algbw_byte_per_s": one.algbw(row.call_s),
        "busbw_byte_per_s": one.busbw(row.call_s),
        "exposed_s": one.exposed_s,
        "waiting_s": row.waiting_s,
    }


def straggler_line(compared: Together) -> str:
    """Return which rank the others wait for; empty if their waiting was not compared."""
    if compared.straggler is not None:
        # A traced step may be twice as long as a plain one, and its waiting longer than that.
        traced_s = min((row.traced_s for row in compared.rows if row.traced_s), default=None)
        step = "a step" if traced_s is None else f"of a traced step of {format_time(traced_s)}"
        return (
            f"rank {compared.straggler} is the straggler: every other rank waits "
            f"{format_time(compared.late_s)} {step} for it, or longer"
        )
    if not compared.steps:
        return ""
    steady = "no rank is later than all others beyond the noise between steps"
    return steady if compared.lone is None else f"{steady}: one step has most of the waiting"


def waiting_share(profile: Profile) -> float:
    """Return the share of the step's communication in which the reporting rank waits for others; 0
    if that is unknown.

    On a GPU it is a lower bound, since all communication that compute hides may be waiting. The
    time by which the traced steps communicated longer than the plain step was waiting too.
    """
    rows, left_s = profile.together.rows if profile.together else (), profile.parts["communication"]
    row = next((row for row in rows if row.rank == profile.region.rank), None)
    if row is None or row.waiting_s is None or not row.communication_s or left_s <= 0:
        return 0.0
    if not profile.cuda or row.exposed_s is None:
        return min(1.0, row.waiting_s / row.communication_s)
    bare_s = row.waiting_s - (row.communication_s - row.exposed_s)
    return min(1.0, max(0.0, bare_s - max(0.0, row.exposed_s - left_s)) / left_s)


def _ranks_table(compared: Together, most: int, cuda: bool) -> Table:
    rows = sorted(_shown(compared, most), key=lambda row: row.rank)
    idle = cuda and any(row.idle_s is not None for row in rows)  # older runs do not know
    left_out = {"GPU": not cuda, "idle": not idle}
    notes = [] if len(rows) == len(compared.rows) else [_hidden(compared, len(rows))]
    if compared.steps:
        notes.append(
            f"of {compared.steps} traced steps, beside the plain step: exposed is communication "
            "without compute, waiting the time in collectives until the last rank comes"
            + (", idle the time in which a GPU had nothing to do as its host was late" * idle)
        )
    notes += [_lone_note(compared), compared.doubt]
    columns = fill(RANK_COLUMNS, [_rank_cells(row) for row in rows])
    return Table(
        tuple(column for column in columns if not left_out.get(column.head)),
        lead=tuple(filter(None, [straggler_line(compared)])),
        notes=notes_of(*filter(None, notes)),
        rows=[to_builtins(row) for row in compared.rows],
        names=("rank",),
    )


def _lone_note(compared: Together) -> str:
    """Return that one step makes the mean waiting of a rank; empty if none does."""
    lone = compared.lone
    if lone is None:
        return ""
    why = ", perhaps as each rank starts its profiler by itself" if lone.step == 1 else ""
    return (
        f"rank {lone.rank} waited {format_time(lone.seconds)} in traced step {lone.step} of "
        f"{compared.steps}{why}, and {format_time(lone.usual_s)} in the median of the others: "
        "plain steps may have no such wait, but the means here contain it"
    )


def _shown(compared: Together, most: int) -> list[RankRow]:
    """Return *most* rows: those for which others wait longest, and those that wait longest."""
    if len(compared.rows) <= most:
        return list(compared.rows)
    ordered = sorted(compared.rows, key=lambda row: row.waiting_s or 0.0)
    half = most // 2
    return [*ordered[:half], *ordered[half - most :]]


def _hidden(compared: Together, shown: int) -> str:
    return (
        f"{len(compared.rows) - shown} ranks more, which wait neither longest nor least: "
        "--format json has all"
    )


def _rank_cells(row: RankRow) -> list[str]:
    traced = (row.compute_s, row.communication_s, row.exposed_s, row.waiting_s, row.idle_s)
    seconds = (row.step_s, *traced)
    return [str(row.rank), str(row.device), *map(_time, seconds)]


def _time(seconds: float | None) -> str:
    return NOTHING if seconds is None else format_time(seconds)


def _rate(byte_per_s: float | None) -> str:
    return NOTHING if byte_per_s is None else format_rate(byte_per_s)


def _collectives_table(compared: Together, rank: int, most: int) -> Table:
    rows = sorted(compared.collectives, key=lambda row: -row.collective.step_s)
    shown = rows[: min(most, MOST_COLLECTIVES) if most == MOST_RANKS else most]
    cells = [_collective_cells(row) for row in shown]
    columns = fill(COLLECTIVE_COLUMNS, cells)
    return Table(
        tuple(one for one in columns if compared.world > 1 or one.head != "waiting"),
        notes=notes_of(*_collective_notes(compared, rank, len(rows) - len(shown))),
        rows=[_values(row) for row in compared.collectives],
        names=("name",),
    )


def _collective_notes(compared: Together, rank: int, hidden: int) -> Iterator[str]:
    if hidden:
        yield f"{hidden} collectives more: -v has all"
    here = f"rank {rank}" if compared.world > 1 else "this process"
    joint = any(row.last_s is not None for row in compared.collectives)
    each = (
        "each, algbw and busbw are those of the rank that came last to a call, which waits for "
        "no other"
        if joint
        else f"each is the time in {here}, with its waiting for others: the rates are lower bounds"
    )
    yield f"{each}; exposed and waiting are those of {here}" if compared.world > 1 else each


def _collective_cells(row: CollectiveRow) -> list[str]:
    one = row.collective
    message = one.message
    dtype = f" {message.dtype}" if message.dtype else ""
    return [
        f"{message.name}{dtype}",
        format_bytes(message.bytes) if message.bytes else NOTHING,
        str(message.ranks) if message.ranks else NOTHING,
        f"{one.count:.4g}",
        format_time(row.call_s),
        _rate(one.algbw(row.call_s)),
        _rate(one.busbw(row.call_s)),
        format_time(one.exposed_s),
        _time(row.waiting_s),
    ]
