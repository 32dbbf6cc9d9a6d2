"""Read the operators, kernels, copies and launches of a run from a trace of torch.profiler.

Kineto, the library below torch.profiler, writes a chrome trace (`export_chrome_trace`, or
`tensorboard_trace_handler`). Its categories and arguments are those of libkineto's
`output_json.cpp`, `ActivityType.cpp`, `CuptiActivity.cpp` and `RocprofActivity_inl.h`, as of torch
2.4 to 2.13. https://github.com/pytorch/kineto/tree/main/libkineto/src

The file is read as a stream, of which only columns of numbers are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from gpuperf.errors import UsageError
from gpuperf.model.contract import DeviceFacts
from gpuperf.model.record import Launch
from gpuperf.model.timeline import (
    COPY,
    KERNEL,
    SET,
    Activities,
    Annotations,
    Operators,
    RuntimeCalls,
    Timeline,
)
from gpuperf.profile.trace.calls import Calls
from gpuperf.profile.trace.columns import EventColumns, Names, launchers, legible
from gpuperf.profile.trace.eventstream import EventStream, Progress
from gpuperf.profile.trace.messages import Messages, only_group

MOST_EVENTS = 30_000_000  # 2 GB of trace have 5 million
MOST_OTHERS = 300_000  # events before the first one of torch.profiler
MOST_CATEGORIES = 100  # categories of ignored events that are counted by name
MOST_DEVICES = 1024
LARGEST = 2**62  # of any number; in nanoseconds since 1970, the year 2116
LONGEST_NUMBER = 40  # characters of a number that are parsed

KINDS = {"kernel": KERNEL, "gpu_memcpy": COPY, "gpu_memset": SET}
RUNTIME = (
    "cuda_runtime",
    "cuda_driver",
    "xpu_runtime",
    "xpu_driver",
    "privateuse1_runtime",
    "privateuse1_driver",
)
# The call of a compiled graph is an operator in older versions of torch, and a mark in newer ones.
COMPILED = "## Call CompiledFxGraph"

Event = dict[str, Any]


def read_trace(path: Path, progress: Progress | None = None) -> Timeline:
    """Read the chrome trace at *path*, which may be compressed with gzip.

    *progress* is called with the bytes of text read, every 512 MiB. Raises: UsageError for a file
    that is not a trace of torch.profiler, or that holds impossible values.
    """
    stream = EventStream(path, progress)
    reader = _Reader()
    for event in stream:
        try:
            reader.add(event)
        except ValueError as error:
            raise UsageError(
                f"{path}: event {stream.count}{_shown(event)} cannot be true: {error}",
                "is it as torch.profiler wrote it?",
            ) from None
        if not reader.kept and stream.count > MOST_OTHERS:
            break
        if stream.count > MOST_EVENTS:
            raise UsageError(f"{path} has over {MOST_EVENTS:,} events", "profile fewer steps")
    if not reader.kept:
        first = "first " if stream.count > MOST_OTHERS else ""
        what = f"none of its {first}{stream.count:,} events is torch.profiler's"
        if not stream.count:
            what = "it has no whole event: it was cut, or nothing was recorded"
        raise UsageError(
            f"{path}: {what}",
            "profile(activities=[CPU, CUDA], record_shapes=True), then export_chrome_trace",
        )
    try:
        return reader.timeline(stream)
    except ValueError as error:
        raise UsageError(f"{path} cannot be true: {error}") from None


def _shown(event: Any) -> str:
    name = event.get("name") if isinstance(event, dict) else None
    return f" ({legible(name[:60])!r})" if isinstance(name, str) else ""


class _Reader:
    """The columns of a timeline, filled event by event."""

    def __init__(self) -> None:
        self.operators = EventColumns("start end thread call sequence forward_thread external")
        self.activities = EventColumns(
            "start end name device stream kind bytes launch correlation external message"
        )
        self.runtime = EventColumns("start end name thread correlation external")
        self.annotations = EventColumns("start end name thread on_device message")
        self.calls, self.names, self.threads = Calls(), Names(), Names()
        self.messages = Messages()
        self.launches: dict[tuple[int, ...], int] = {}
        self.passed_over: Counter[str] = Counter()
        self.kept = 0
        self._adders: dict[str, Callable[[Event, str, int, int], None]] = {
            "cpu_op": self._operator,
            "user_annotation": self._annotation,
            "gpu_user_annotation": self._annotation,
            **dict.fromkeys(KINDS, self._activity),
            **dict.fromkeys(RUNTIME, self._runtime),
        }

    def add(self, event: Any) -> None:
        """Add the row of an event to its columns, or count an event of a category that is ignored.

        Raises: ValueError for impossible values.
        """
        if not isinstance(event, dict):
            raise ValueError("it is not an object")
        category = event.get("cat")
        add = self._adders.get(category) if isinstance(category, str) else None
        if add is None or event.get("ph") != "X":
            self._pass_over(category if isinstance(category, str) else f"ph {event.get('ph')}")
            return
        self.kept += 1
        start = _nanoseconds(event, "ts")
        add(event, str(category), start, start + _nanoseconds(event, "dur"))

    def _pass_over(self, category: str) -> None:
        category = legible(category[:60])
        known = category in self.passed_over or len(self.passed_over) < MOST_CATEGORIES
        self.passed_over[category if known else "others"] += 1

    def _operator(self, event: Event, _category: str, start: int, end: int) -> None:
        args = _args(event)
        self.operators.add(
            start,
            end,
            self._thread(event),
            self.calls.index(_name(event), args),
            _whole(args, "Sequence number", -1),
            _whole(args, "Fwd thread id", -1),
            _whole(args, "External id", 0),
        )

    def _annotation(self, event: Event, category: str, start: int, end: int) -> None:
        name = _name(event)
        if name.startswith(COMPILED):
            self._operator(event, category, start, end)
            return
        on_device = category == "gpu_user_annotation"
        message = self.messages.of_mark(name, _args(event))
        number, thread = self.names.index(name), self._thread(event)
        self.annotations.add(start, end, number, thread, on_device, message)

    def _runtime(self, event: Event, _category: str, start: int, end: int) -> None:
        args = _args(event)
        self.runtime.add(
            start,
            end,
            self.names.index(_name(event)),
            self._thread(event),
            _whole(args, "correlation", 0),
            _whole(args, "External id", 0),
        )

    def _activity(self, event: Event, category: str, start: int, end: int) -> None:
        args = _args(event)
        self.activities.add(
            start,
            end,
            self.names.index(_name(event)),
            _whole(args, "device", event.get("pid", 0)),
            _whole(args, "stream", event.get("tid", 0)),
            KINDS[category],
            _whole(args, "bytes", 0, least=0),
            self._launch(args),
            _whole(args, "correlation", 0),
            _whole(args, "External id", 0),
            self.messages.of_kernel(args),
        )

    def _thread(self, event: Event) -> int:
        return self.threads.index(f"{event.get('pid')}/{event.get('tid')}")

    def _launch(self, args: Event) -> int:
        if "grid" not in args or "block" not in args:
            return -1
        numbers = (
            *_three(args, "grid"),
            *_three(args, "block"),
            _whole(args, "registers per thread", 0),
            _whole(args, "shared memory", 0),
        )
        place = self.launches.get(numbers)
        if place is None:
            _as_launch(numbers)  # raises for impossible values
            place = self.launches[numbers] = len(self.launches)
        return place

    def timeline(self, stream: EventStream) -> Timeline:
        """Return the timeline of all events. Raises: ValueError for an impossible device."""
        tables = (self.operators, self.activities, self.runtime, self.annotations)
        origin = min(min(table.starts) for table in tables if table.starts)
        runtime = RuntimeCalls(*self.runtime.columns(origin))
        activities = self.activities.columns(origin)
        launched_by = launchers(activities[8], runtime.correlation)
        unreadable = {"unreadable": stream.unreadable} if stream.unreadable else {}
        return Timeline(
            Operators(*self.operators.columns(origin)),
            Activities(*[*activities, launched_by]),
            runtime,
            Annotations(*self.annotations.columns(origin)),
            calls=self.calls.calls(),
            names=self.names.texts(),
            launches=tuple(map(_as_launch, self.launches)),
            threads=self.threads.texts(),
            devices=_devices(stream.facts.get("deviceProperties")),
            shapes=self.calls.shapes,
            cut=stream.cut,
            messages=self.messages.texts(),
            group=only_group(stream.facts.get("distributedInfo")),
            passed_over={**self.passed_over, **self.calls.doubtful, **unreadable},
        )


def _as_launch(numbers: tuple[int, ...]) -> Launch:
    x, y, z, i, j, k, registers, shared = numbers
    return Launch((x, y, z), (i, j, k), registers=registers, shared_bytes=shared)


def _name(event: Event) -> str:
    name = event.get("name")
    if not isinstance(name, str):
        raise ValueError(f"its name is {_short(name)}")
    return name


def _args(event: Event) -> Event:
    args = event.get("args")
    if args is None:
        return {}
    if not isinstance(args, dict):
        raise ValueError(f"its args are {_short(args)}")
    return args


def _nanoseconds(event: Event, key: str) -> int:
    """Return the time at *key*, which is in microseconds, in nanoseconds.

    Text with three decimals is read exactly. Raises: ValueError for an impossible time.
    """
    value = event.get(key)
    if isinstance(value, str):
        whole, _, decimals = value.partition(".")
        exact = len(decimals) == 3 and len(whole) < 20 and (whole + decimals).isdecimal()
        if exact and (nanoseconds := int(whole + decimals)) < LARGEST:
            return nanoseconds
    try:
        number = Decimal(str(value)[:LONGEST_NUMBER])
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or not 0 <= number < LARGEST // 1000:
        raise ValueError(f"its {key!r} is {_short(value)}")
    return round(number * 1000)


def _whole(args: Event, key: str, default: Any, least: int = -LARGEST) -> int:
    """Return the integer at *key* (ROCm's Kineto may write it as text), else *default*.

    Raises: ValueError for another value, and below *least*.
    """
    value = args.get(key)
    if value is None:
        value = default
    if isinstance(value, str) and len(value) < 20 and value.removeprefix("-").isdecimal():
        value = int(value)
    if not isinstance(value, int) or not least <= value < LARGEST:
        raise ValueError(f"its {key!r} is {_short(value)}")
    return value


def _three(args: Event, key: str) -> tuple[int, ...]:
    value = args[key]
    if not isinstance(value, list) or len(value) != 3 or not all(type(n) is int for n in value):
        raise ValueError(f"its {key!r} is {_short(value)}")
    return tuple(value)


def _short(value: Any) -> str:
    return legible(str(value)[:40]) if value not in (None, "") else "missing"


def _devices(properties: Any) -> tuple[DeviceFacts, ...]:
    if not isinstance(properties, list):
        return ()
    return tuple(_device(entry) for entry in properties[:MOST_DEVICES] if isinstance(entry, dict))


def _device(entry: Event) -> DeviceFacts:
    capability = ".".join(str(_whole(entry, f"compute{part}", 0)) for part in ("Major", "Minor"))
    return DeviceFacts(
        # Only HIP's properties have this spelling of the shared memory's limit.
        kind="rocm" if "maxSharedMemoryPerMultiProcessor" in entry else "cuda",
        index=_whole(entry, "id", 0),
        name=legible(str(entry.get("name", "")))[:200],
        sm_count=_whole(entry, "numSms", 0, least=0),
        memory_bytes=_whole(entry, "totalGlobalMem", 0, least=0),
        free_bytes=0,
        capability=capability if capability != "0.0" else "",
    )
