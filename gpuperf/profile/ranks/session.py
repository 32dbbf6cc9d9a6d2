"""Profile the rank of this process, and merge the profiles of all ranks in rank 0."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.model.record import Run
from gpuperf.profile.measure import Plan, identity_of, profile_program, write_run
from gpuperf.profile.program import ProgramRun
from gpuperf.profile.ranks.launch import Place, place_of
from gpuperf.profile.ranks.meeting import Meeting
from gpuperf.profile.ranks.merge import merge
from gpuperf.run.store import read_run

INTERRUPTED_S = 30.0  # seconds for the other ranks to end after a Ctrl-C

Profiled = tuple[Run | None, Path, ProgramRun]


@contextlib.contextmanager
def profile_here(plan: Plan) -> Iterator[Profiled]:
    """Run the program of *plan*, and yield the run to report, its file, and how the program ended.

    In a distributed program the run is that of all ranks in rank 0, and None in the others, which
    leave the block after rank 0. Raises: CannotMeasure if nothing could be measured.
    """
    place = place_of(os.environ)
    if place is None:
        yield profile_program(plan)
        return
    if plan.repeat:
        raise UsageError(
            "--repeat runs the program anew for each pass, which one rank of several cannot",
            "leave --repeat out",
        )
    meeting = Meeting(plan.out, place)
    meeting.begin(identity_of(plan))
    try:
        yield _profile_rank(plan, place, meeting)
    finally:
        if not meeting.first:
            with contextlib.suppress(KeyboardInterrupt):
                meeting.await_others()
        meeting.leave()


def _profile_rank(plan: Plan, place: Place, meeting: Meeting) -> Profiled:
    """Profile this rank; in rank 0, wait for the others and merge their records."""
    run, failure = None, None
    path, ended = plan.out / f"{meeting.run}.jsonl", ProgramRun()
    try:
        run, path, ended = profile_program(plan, meeting)
    except CannotMeasure as error:
        failure, ended.error = error, str(error)
    except BaseException as error:
        meeting.end(None, f"gpuperf failed: {error}")
        raise
    meeting.end(ended.exit_code, ended.error)
    if not meeting.first:
        ended.error = f"rank {place.rank}: {ended.error}" if ended.error else ""
        return None, path, ended
    own = {0: run} if run is not None else {}
    merged = _merged(meeting, own, ended)
    if merged is None:
        raise failure or CannotMeasure("no rank measured anything")
    write_run(path, merged)
    return merged, path, ended


def _merged(meeting: Meeting, runs: dict[int, Run], ended: ProgramRun) -> Run | None:
    """Return the run of all ranks that reported, and change *ended* to how all of them ended; None
    if no rank reported."""
    try:
        absent = meeting.await_others(INTERRUPTED_S if ended.interrupted else None)
    except KeyboardInterrupt:  # a launcher ends all ranks if it misses one
        absent = meeting.await_others(0.0)
    for rank in meeting.others:
        with contextlib.suppress(UsageError):  # its program ended before it wrote any record
            runs[rank] = read_run(meeting.shard(rank))
    if failed := meeting.failed():
        own = f"rank 0: {ended.error}; " if ended.error and ended.error not in failed else ""
        ended.error, ended.exit_code = own + failed, None
    return merge(dict(sorted(runs.items())), absent, meeting.place.world) if runs else None
