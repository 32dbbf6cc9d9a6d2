"""Record the work of the device by CUPTI, through this package or through torch.profiler.

`$GPUPERF_RECORDER` chooses the recorder: `cupti` (`session.py`) or `kineto`, the recorder of
torch.profiler, whose first session takes 3 s on an H200 host. Both return the records of the same
hardware, and CUPTI's records of a call are the same under both.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, cast, get_args

from gpuperf.errors import UnknownName
from gpuperf.measure.recording.session import CannotRecord, open_recorder, torch_profiles

RecorderName = Literal["kineto", "cupti"]
DEFAULT_RECORDER: RecorderName = "cupti"
VARIABLE = "GPUPERF_RECORDER"


class Activity(NamedTuple):
    """One kernel, copy or memset, with start and end in seconds since an arbitrary moment."""

    name: str
    start_s: float
    end_s: float


class Work(NamedTuple):
    """The activities of the device in order of start, and how many more CUPTI lost.

    `doubt` is the reason why torch.profiler recorded them although CUPTI was to record them itself;
    it is empty if that does not impair them.
    """

    activities: tuple[Activity, ...]
    lost: int = 0
    doubt: str = ""


def recorder_name() -> RecorderName:
    """Return the recorder that the environment chooses. Raises: UnknownName."""
    name = os.environ.get(VARIABLE, "") or DEFAULT_RECORDER
    if name not in get_args(RecorderName):
        raise UnknownName(f"recorder in ${VARIABLE}", name, get_args(RecorderName))
    return cast(RecorderName, name)


def record_work(run: Callable[[], Any]) -> Work:
    """Return all work of the device during *run*, which waits for the device at its end.

    The result is empty where CUPTI gives no records. Where only torch.profiler can record, *run*
    may run twice. Raises: UnknownName, what *run* raises.
    """
    if recorder_name() == "kineto":
        return record_by_kineto(run)
    try:
        return record_by_cupti(run)
    except CannotRecord as error:
        work = record_by_kineto(run)
        return work._replace(doubt=str(error) if error.busy else "")


def record_by_cupti(run: Callable[[], Any]) -> Work:
    """Return the work during *run* by a session of this package. Raises: CannotRecord."""
    recording = open_recorder().record(run)
    first = recording.records[0].start_ns if recording.records else 0
    # Seconds since 1970 would round a time to 0.2 µs.
    activities = (
        Activity(record.name, (record.start_ns - first) * 1e-9, (record.end_ns - first) * 1e-9)
        for record in recording.records
    )
    return Work(tuple(activities), recording.lost)


def record_by_kineto(run: Callable[[], Any]) -> Work:
    """Return the work during *run* by torch.profiler; empty where it cannot start.

    A program that is under torch.profiler already keeps its session: a second one would end it.
    """
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    if torch_profiles():
        run()
        return Work(())
    try:
        profiler = profile(activities=[ProfilerActivity.CUDA], acc_events=True)
        profiler.start()
    except RuntimeError:
        run()
        return Work(())
    try:
        run()
    finally:
        profiler.stop()
    activities = (
        Activity(e.name, e.time_range.start * 1e-6, e.time_range.end * 1e-6)
        for e in profiler.events()
        if e.device_type == DeviceType.CUDA
    )
    return Work(tuple(sorted(activities, key=lambda activity: activity.start_s)))
