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
from gpuperf.profile.ranks.meeting import Meeting
from gpuperf.profile.ranks.merge import merge
from gpuperf.run.store import read_run
from gpuperf.run.torchrun import Place, place_of
from gpuperf.verb.progress import say

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
    meeting.end(ended.exit_code, ended.error, ended.interrupted)
    if not meeting.first:
        _keep(meeting, path, ended)
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
    _add_failure(meeting, ended)
    return merge(dict(sorted(runs.items())), absent, meeting.place.world) if runs else None


def _add_failure(meeting: Meeting, ended: ProgramRun) -> None:
    """Add to *ended* how the programs of other ranks failed. A launcher interrupts all ranks if one
    of them fails, which is no Ctrl-C of the user."""
    own = f"rank {meeting.rank}: {ended.error}" if ended.error else ""
    failed = meeting.failed()
    if failed:
        ended.exit_code = None
        own = "" if ended.error and ended.error in failed else own
    ended.error = "; ".join(filter(None, [own, failed]))
    if meeting.failed(interrupted=False):
        ended.interrupted = False


def _keep(meeting: Meeting, shard: Path, ended: ProgramRun) -> None:
    """Wait until rank 0 has reported; if it cannot, keep this rank's records beside the run."""
    with contextlib.suppress(KeyboardInterrupt):  # a launcher ends all ranks if it misses one
        meeting.await_others()
    if not meeting.folder.is_dir():
        ended.error = f"rank {meeting.rank}: {ended.error}" if ended.error else ""
        return
    _add_failure(meeting, ended)
    kept = meeting.out / f"{meeting.run}-rank-{meeting.rank}.jsonl"
    with contextlib.suppress(OSError):  # its program ended before it wrote any record
        shard.replace(kept)
        say(f"rank 0 did not report: the records of rank {meeting.rank} are in {kept}")
