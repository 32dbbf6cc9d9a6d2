"""Measure a callable that holds its own inputs: it has no workload, and its result no reference.

The order is that of `bench`, without inputs, build and check. What the callable raises goes on to
whoever called, since it is their program.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.measure.bench import Bench, with_times
from gpuperf.measure.caveats import sample_caveats, telemetry_caveats
from gpuperf.measure.counters.case import CaseCounter
from gpuperf.measure.device import open_device
from gpuperf.measure.error_origin import describe_no_memory, first_line, place
from gpuperf.measure.fingerprint import fingerprint_of
from gpuperf.measure.refusals import SMALLER, NoTime
from gpuperf.measure.stopwatch import open_stopwatch
from gpuperf.measure.telemetry import open_meter
from gpuperf.measure.timers.timer import Call, CannotBlock
from gpuperf.measure.warmup import warm_up
from gpuperf.model.contract import Contract, Counting
from gpuperf.model.cost import Cost
from gpuperf.model.record import Caveat, Record, Status
from gpuperf.model.workload import Case

DEEPEST, MOST_ITEMS = 3, 10_000  # of the lists and dictionaries in which tensors are looked for
ONCE = (
    "gpuperf: the first call worked. A function is called many times, so each call has to leave "
    "behind what the next one needs (backward: retain_graph=True, or the forward pass too)."
)


@dataclass
class CallableBench(Bench):
    """Measures callables on one device; see `Bench`."""

    _has_run: bool = field(default=False, init=False)

    def time(self, call: Call, case: Case, contract: Contract, cost: Cost | None) -> Record:
        """Return the record of *call*, named by *case*; the status says why it has no time.

        Raises: what *call* raises; RuntimeError when the device itself has failed.
        """
        self._partial = Record(
            run="",
            case=case,
            contract=contract,
            status="error",
            fingerprint=self.fingerprint,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            timer=self.stopwatch.timer.facts,
            cost=cost,
        )
        try:
            return self._time(call, self._partial)
        except NoTime as refusal:
            return self._failed(refusal.status, refusal.reason, refusal.hint)
        except CannotBlock as error:
            hint = "choose timer='events', which measures launch cost too"
            return self._failed("cannot-block", str(error), hint)
        except CannotMeasure as error:
            return self._failed("error", str(error), error.hint)
        except (torch.OutOfMemoryError, MemoryError) as error:
            return self._failed("oom", describe_no_memory(error), SMALLER)
        except Exception as error:
            if self._has_run:
                error.add_note(ONCE)
            raise

    def _time(self, call: Call, record: Record) -> Record:
        contract = record.contract
        counter = CaseCounter(self.device, self.counting, lambda: None)
        counter.open()
        held = tensors_held_by(call)
        fits = self._fits(record.cost, held)
        first_call_s, output = self._timed(call)
        self._has_run = True
        del output
        before = {name: tensor._version for name, tensor in held.items() if not _frozen(tensor)}
        call()
        changed = [name for name, version in before.items() if held[name]._version != version]
        held.clear()  # the call may replace them
        warm = warm_up(call, self.device.synchronize, first_call_s, contract.warmup_calls - 2)
        self.meter.summary()  # drops the readings from before the samples
        stopwatch = self.stopwatch.with_hooks(self._watch, lambda count: None, lambda made: made)
        timing = stopwatch.take(call, contract, warm.call_s, fits)
        telemetry = self.meter.summary()
        timing = self._launched(call, timing)
        record = replace(
            with_times(record, timing, call),
            first_call_s=first_call_s,
            calls_until_steady=warm.calls,
            telemetry=telemetry,
        )
        most_hz = self.device.facts.max_sm_clock_hz
        caveats = [*telemetry_caveats(telemetry), *_changes(changed), *timing.caveats]
        caveats += sample_caveats(record, timing, "", most_hz)
        caveats += self.device.cache_caveats(contract)
        return counter.count(replace(record, caveats=tuple(caveats)), call, timing)

    def _fits(self, cost: Cost | None, held: Mapping[str, torch.Tensor]) -> bool:
        """Return whether all data of a call surely fits in the L2: by its cost, or its tensors."""
        l2 = self.device.facts.l2_bytes
        held_bytes = sum(tensor.nbytes for tensor in held.values())
        size = cost.dram_bytes if cost and cost.dram_bytes else 2 * held_bytes
        return bool(l2 and size and size <= l2)


def _changes(names: list[str]) -> Iterator[Caveat]:
    if names:
        yield Caveat(
            "changes-inputs",
            f"each call changes {', '.join(names[:3])}, so that later samples meet other values",
            "let the call write to memory of its own, if its time depends on the values",
        )


def tensors_held_by(call: Callable[..., Any]) -> dict[str, torch.Tensor]:
    """Return the tensors that *call* uses, by name, as far as its closure and arguments show: also
    those in lists and dictionaries, and not those of modules."""
    held: dict[str, Any] = {}
    while isinstance(call, functools.partial):
        held |= {f"argument {i + 1}": value for i, value in enumerate(call.args)} | call.keywords
        call = call.func
    held["self"] = getattr(call, "__self__", None)
    call = inspect.unwrap(call)
    if inspect.isfunction(call):
        used = inspect.getclosurevars(call)
        parameters = inspect.signature(call).parameters.values()
        defaults = {each.name: each.default for each in parameters}
        held = {**defaults, **held, **used.globals, **used.nonlocals}
    left = itertools.repeat(None, MOST_ITEMS)
    found = {
        each: name for key, value in held.items() for name, each in _tensors_in(key, value, left)
    }
    return {name: each for each, name in found.items()}  # each tensor once


def _tensors_in(
    name: str, value: Any, left: Iterator[None], depth: int = DEEPEST
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the dense tensors in *value*, each with an expression of it, where *name* is that of
    *value*; look at as many items of lists and dictionaries as *left* has."""
    if isinstance(value, torch.Tensor):
        if value.layout == torch.strided and not is_lazy(value):
            yield name, value
    elif depth and isinstance(value, list | tuple | dict):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        some: list[tuple[Any, Any]] = []
        with contextlib.suppress(RuntimeError):  # another thread changes the dictionary
            some = [item for item, _ in zip(items, left, strict=False)]
        for key, each in some:
            shown = repr(key) if type(key) in (str, int) else "…"
            yield from _tensors_in(f"{name}[{shown}]", each, left, depth - 1)


def has_several_gpus() -> bool:
    """Return whether the tensors of a callable could be on one of several GPUs."""
    return bool(torch.cuda.device_count() > 1)


def gpu_of(calls: Iterable[Callable[..., Any]]) -> str | None:
    """Return the GPU of the tensors that *calls* use, as far as that shows; None if they use none
    on a GPU, or tensors of several."""
    tensors = (tensor for call in calls for tensor in tensors_held_by(call).values())
    devices = {str(tensor.device) for tensor in tensors if tensor.is_cuda}
    return devices.pop() if len(devices) == 1 else None


def _frozen(tensor: torch.Tensor) -> bool:
    """Return whether torch counts no versions of *tensor*, as under inference mode."""
    return bool(tensor.is_inference())


def status_of(error: Exception) -> tuple[Status, str]:
    """Return the status of a callable that raised *error*, and the reason."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return "oom", describe_no_memory(error)
    return "error", f"{type(error).__name__}: {first_line(error)}{place(error)}"


class OpenedDevice:
    """A device that the program uses too, with what gpuperf needs to measure on it."""

    def __init__(self, name: str) -> None:
        """Open the device *name*, and leave torch's current device as it is.

        Raises: UnknownName, CannotMeasure.
        """
        kept = torch.cuda.device(torch.cuda.current_device()) if has_gpu() else nullcontext()
        with kept:
            opened = open_device(name)
            self.meter = open_meter(opened.torch)
            facts, self.fingerprint = fingerprint_of(opened, self.meter)
        self.device = replace(opened, facts=facts)

    def time(
        self,
        call: Call,
        case: Case,
        contract: Contract,
        cost: Cost | None = None,
        counting: Counting = "off",
    ) -> Record:
        """Return the record of *call*. Raises: what it raises; UsageError if it is no function."""
        if not callable(call):
            raise UsageError(
                f"a {type(call).__name__} cannot be called", "give a function: lambda: f(x)"
            )
        if inspect.isgeneratorfunction(call) or inspect.iscoroutinefunction(call):
            raise UsageError(
                "a call of a generator or a coroutine runs nothing of it",
                "give a function that runs it: lambda: list(f(x))",
            )
        with ONE_AT_A_TIME, self._current():
            stopwatch = open_stopwatch(contract.timer, self.device.torch)
            bench = CallableBench(
                self.device, stopwatch, self.meter, self.fingerprint, counting=counting
            )
            return bench.time(call, case, contract, cost)

    def _current(self) -> AbstractContextManager[Any]:
        """Make this device current, and its default stream, which the timers' windows watch."""
        if self.device.torch.type != "cuda":
            return nullcontext()
        torch.cuda.synchronize(self.device.torch)  # work that the program queued elsewhere
        stream = torch.cuda.default_stream(self.device.torch)
        current: AbstractContextManager[Any] = torch.cuda.stream(stream)
        return current


ONE_AT_A_TIME = threading.RLock()  # of the threads of a program: they would time each other


def has_gpu() -> bool:
    """Return whether torch can use a GPU."""
    return bool(torch.cuda.is_available())


def current_device_name() -> str:
    """Return the device that torch would use now: the current GPU, or the CPU without one."""
    return f"cuda:{torch.cuda.current_device()}" if has_gpu() else "cpu"


def device_name(device: str | None) -> str:
    """Return *device* with the index of torch's current GPU if it names none (`cuda`)."""
    return current_device_name() if device is None or (device == "cuda" and has_gpu()) else device


@functools.cache
def opened_device(name: str) -> OpenedDevice:
    """Return the device *name*, opened once in this process. Raises: UnknownName, CannotMeasure."""
    return OpenedDevice(name)
