"""Run the calls of one side on a CUDA device: wait for them, record them, count them, copy results.

What this module reports is a claim, as all that a seat says. It waits by the driver's own calls,
which no name in torch can change.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gpuperf.judge.evidence import Counted, Ran
from gpuperf.judge.inside.device_memory import (
    HOLD_BYTES,
    HOLDS,
    holder,
    is_device,
    marker,
    opened,
    synchronizer,
)
from gpuperf.judge.inside.layout import Slots, map_file, view_of
from gpuperf.judge.protocol import Build, Collect, Counts, Fetch, Ready, Recorded
from gpuperf.judge.task import Side
from gpuperf.measure.counters.cupti import Cupti, NoCounters, find_library
from gpuperf.measure.counters.kernels import count_kernels
from gpuperf.measure.error_origin import first_line
from gpuperf.measure.recording.records import DeviceRecord
from gpuperf.measure.recording.session import CannotRecord, open_recorder
from gpuperf.model.metrics import SASS, TENSOR, VECTOR, sum_up

# Operations of a call: those of the tensor and vector pipes, and instructions on pairs of 16 bits.
HALF = {f"fp16_{name}": ((f"{SASS}h{name}_pred_on",),) for name in ("fma", "mul", "add")}
OPERATIONS = {**TENSOR, **VECTOR, **HALF}
# Errors of the device; torch before 2.8 has no name for all of them.
OF_DEVICE = (torch.OutOfMemoryError, getattr(torch, "AcceleratorError", torch.OutOfMemoryError))
MOST_NAMES, LONGEST_NAME = 64, 200

# Bound before a submission is imported, which may replace the names.
_copy, _view = torch.Tensor.copy_, view_of


class DeviceSide:
    """The memory of the device that a seat shares, and the work of the device in its windows."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.wait = _checked(synchronizer(device))
        self._mark = marker(device)
        self._hold = holder(device)
        self._slots: Slots | None = None
        self._file: Slots | None = None
        self._results: torch.Tensor | None = None

    def open(self, request: Build) -> Slots:
        """Return the slots of *request* in memory of the device. Raises: CannotShare."""
        size = request.inputs.size * request.count
        if is_device(request.slots):
            slots = Slots.open(request.slots, request.inputs, request.count, self.device)
            self._results = opened(request.results, request.results_bytes, self.device)
        else:
            self._file = Slots.open(request.slots, request.inputs, request.count)
            memory = torch.zeros(size, dtype=torch.uint8, device=self.device)
            slots = Slots(request.inputs, memory)
            self._results = map_file(request.results, request.results_bytes)
        self._slots = slots
        return slots

    def fetch(self, request: Fetch) -> Ready:
        """Copy slots of the file into the memory of the device."""
        assert self._slots is not None
        if self._file is not None:
            for slot in request.slots:
                _copy(self._slots.part(slot), self._file.part(slot))
            self.wait()
        return Ready()

    def collect(self, request: Collect, results: Sequence[Any]) -> Ready:
        """Copy results into the memory that the answers' worker reads."""
        assert self._results is not None
        for index, specs in zip(request.indices, request.places, strict=True):
            result = results[index]
            tensors = list(result) if isinstance(result, list | tuple) else [result]
            for tensor, spec in zip(tensors, specs, strict=True):
                if spec.bytes:
                    _copy(_view(self._results, spec, 0), tensor)
        if self._file is not None and self._slots is not None:
            for slot in request.slots:
                _copy(self._file.part(slot), self._slots.part(slot))
        self.wait()
        return Ready()

    def has(self, address: int) -> bool:
        """Return whether *address* is in the memory of the inputs."""
        memory = self._slots.memory if self._slots is not None else None
        return memory is not None and 0 <= address - memory.data_ptr() < memory.numel()

    def record(self, body: Callable[[], None]) -> Recorded:
        """Run *body* behind a stream that is held, and return what CUPTI recorded of it, or why it
        recorded nothing.

        Raises: what *body* raises.
        """
        ended: Exception | bool = False

        def run() -> None:
            nonlocal ended
            try:
                self._hold()
                body()
                self._mark()
                self.wait()
                ended = True
            except Exception as error:
                ended = error
                raise

        try:
            recording = open_recorder().record(run)
        except (CannotRecord, NoCounters, OSError) as error:
            if isinstance(ended, Exception):  # it is the call's own error
                raise ended from None
            if not ended:
                run()
            return Recorded(missing=f"the records of kernels: {first_line(error)}")
        marks = [r for r in recording.records if r.kind == "set" and r.bytes == 1]
        if not marks:
            return Recorded(missing="the records of kernels: the judge's own mark is not there")
        held = [r for r in recording.records if r.kind == "set" and r.bytes == HOLD_BYTES][:HOLDS]
        ours = {id(record) for record in (*held, marks[-1])}
        records = [record for record in recording.records if id(record) not in ours]
        free_ns = max((record.end_ns for record in held), default=0)
        early = [r._replace(end_ns=min(r.end_ns, free_ns)) for r in records if r.start_ns < free_ns]
        last_ns = max((record.end_ns for record in records), default=0)
        late_s = max(0.0, (last_ns - marks[-1].start_ns) * 1e-9)
        early_s = _busy_s(early) if len(held) == HOLDS else None
        return Recorded(_ran(records), _busy_s(records), late_s, early_s, recording.lost)

    def count(self, call: Callable[[], Any], side: Side) -> Counts:
        """Return the operations of *call* by the counters of its kernels, or why there are none.

        An error of the call is its own, unless it is one of the device, which counters may cause.
        """
        own: list[Exception] = []

        def run() -> None:
            try:
                call()
            except Exception as error:
                own.append(error)
                raise
            self.wait()

        try:
            library = ctypes.CDLL(str(find_library()))
            index = self.device.index or 0
            kernels, _ = count_kernels(Cupti(library), index, run, OPERATIONS)
        except Exception as error:
            if own and not isinstance(own[0], OF_DEVICE):
                return Counts(raised=f"{type(own[0]).__name__}: {first_line(own[0])}")
            if not isinstance(error, NoCounters | RuntimeError | OSError):
                raise
            return Counts(missing=f"the counters of kernels: {first_line(error)}")
        return Counts(Counted(side, dict(sum_up(kernels)), len(kernels)))


def _checked(wait: Callable[[], int]) -> Callable[[], None]:
    """Return *wait*, which raises RuntimeError for the error of the device that it returns."""

    def checked() -> None:
        result = wait()
        if result:
            raise RuntimeError(f"the device has failed (CUDA error {result})")

    return checked


def _busy_s(records: Sequence[DeviceRecord]) -> float:
    """Return the seconds in which at least one record of *records*, in order of start, ran."""
    busy_ns, until = 0, 0
    for record in records:
        busy_ns += max(0, record.end_ns - max(record.start_ns, until))
        until = max(until, record.end_ns)
    return busy_ns * 1e-9


def _ran(records: Sequence[DeviceRecord]) -> tuple[Ran, ...]:
    """Return how often each name ran and for how long, the longest first."""
    by: dict[str, list[float]] = {}
    for record in records:
        by.setdefault(record.name[:LONGEST_NAME], []).append(
            (record.end_ns - record.start_ns) * 1e-9
        )
    ran = [Ran(name, len(times), sum(times)) for name, times in by.items()]
    return tuple(sorted(ran, key=lambda one: -one.seconds)[:MOST_NAMES])
