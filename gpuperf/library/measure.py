"""Measure one callable in this process: `gpuperf.measure`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

from gpuperf.errors import GpuperfError, UnknownName, UsageError
from gpuperf.library.costs import cost_of
from gpuperf.library.measurement import Measurement, NotMeasured, in_python
from gpuperf.model.contract import (
    LEAST_PRECISE,
    LONGEST_BUDGET_S,
    Cache,
    Contract,
    Counting,
    DeviceFacts,
    TimerName,
)
from gpuperf.model.cost import Bytes, Cost, Flops
from gpuperf.model.protocol import Opened
from gpuperf.model.record import Record, Status
from gpuperf.model.timers import timer_names
from gpuperf.model.workload import Case, Value
from gpuperf.peaks.find import find_peaks
from gpuperf.peaks.physics import check_physics
from gpuperf.run.ceilings import kept_ceilings
from gpuperf.run.plan import default_contract

if TYPE_CHECKING:
    import torch

    from gpuperf.measure.callables import OpenedDevice

Call = Callable[[], Any]

PRECISION, BUDGET_S = 0.01, 2.0  # unless the caller says otherwise
MOST_NAME = 60  # letters of the name of a callable


@dataclass(frozen=True)
class Settings:
    """How callables are measured, and on which device; see `measure`."""

    device: OpenedDevice
    contract: Contract
    counting: Counting = "off"

    def measure(self, call: Call, case: Case, cost: Cost | None) -> Measurement:
        """Return the measurement of *call*, whatever its status. Raises: what *call* raises."""
        return self._placed(self.device.time(call, case, self.contract, cost, self.counting))

    def attempt(self, make: Callable[[], Call], case: Case, cost: Cost | None) -> Measurement:
        """Return the measurement of what *make* returns; what either raises becomes its status."""
        from gpuperf.measure.callables import status_of

        try:
            return self._placed(self.device.time(make(), case, self.contract, cost, self.counting))
        except GpuperfError:
            raise  # a slip of the caller
        except Exception as error:
            return self.refused(case, *status_of(error))

    def refused(self, case: Case, status: Status, reason: str) -> Measurement:
        """Return the measurement of a callable that is not timed, with the status that says why."""
        return self._placed(Record("", case, self.contract, status, reason=reason))

    def _placed(self, record: Record) -> Measurement:
        opened = Opened(self.device.device.facts, self.device.fingerprint)
        peaks, reason = find_peaks(opened.device)
        ceilings = kept_ceilings(opened)
        record = check_physics(record, peaks, ceilings)
        return Measurement(record, opened, peaks, reason, ceilings)


class Conditions(TypedDict, total=False):
    """The arguments by which `measure` and `compare` choose the conditions; see `measure`."""

    cache: Cache
    timer: TimerName
    precision: float
    budget_s: float
    counters: bool
    device: str | torch.device


def settings(given: Conditions, calls: Iterable[Call] = ()) -> Settings:
    """Open the device, by default that of the tensors that *calls* use, and make the contract.

    Raises: UsageError, CannotMeasure.
    """
    from gpuperf.measure.callables import device_name, gpu_of, opened_device

    refuse_unknown(given)
    refuse_numbers(given)
    device = given.get("device")
    try:
        opened = opened_device(device_name(gpu_of(calls) if device is None else str(device)))
        return Settings(opened, *contract_of(opened.device.facts, given))
    except GpuperfError as error:
        error.advise(in_python(error.hint))
        raise


def refuse_unknown(given: Conditions) -> None:
    """Refuse arguments that are no conditions. Raises: UnknownName."""
    known = Conditions.__annotations__
    for name in given.keys() - known.keys():
        raise UnknownName("argument", name, known)


def refuse_numbers(given: Conditions) -> None:
    """Refuse a precision or a budget that the command line refuses too. Raises: UsageError."""
    known = (("precision", PRECISION, LEAST_PRECISE), ("budget_s", BUDGET_S, LONGEST_BUDGET_S))
    for name, usual, most in known:
        value = given.get(name, usual)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
            message = f"{name}={value!r:.40} is not a number above 0 and up to {most:g}"
            raise UsageError(message, f"{name}={usual}")


def contract_of(facts: DeviceFacts, given: Conditions) -> tuple[Contract, Counting]:
    """Return the contract of callables on a device, and what is counted. Raises: UsageError."""
    cache = given.get("cache")
    precision, budget_s = given.get("precision", PRECISION), given.get("budget_s", BUDGET_S)
    usual: TimerName | None = "auto" if "auto" in timer_names(facts.kind) else None
    contract = default_contract(facts, given.get("timer", usual), precision, budget_s)
    if cache not in (None, "cold", "cold-dirty", "hot"):
        raise UsageError(f"no cache state {cache!r} here", "'cold', 'cold-dirty' or 'hot'")
    contract = replace(contract, cache=cache or contract.cache, data="own")
    counts = given.get("counters", False) and facts.kind == "cuda"
    return contract, "auto" if counts else "off"


class _Decorates:
    """Stand-in for the function below `@measure(…)`; None could be a slip of the caller."""

    def __repr__(self) -> str:
        return "<the decorated function>"


DECORATES = _Decorates()


def name_of(call: object) -> str:
    """Return the name of a callable, as a case has it."""
    name = getattr(call, "__qualname__", "") or type(call).__qualname__
    return name.rsplit("<locals>.", 1)[-1].replace("<lambda>", "lambda")


def case_of(
    name: str, implementation: str = "call", point: Mapping[str, Value] | None = None
) -> Case:
    """Return the case of a callable; its id keeps letters, digits, `_`, `.` and `-` of the name."""
    op = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-")[:MOST_NAME] or "call"
    return Case(op, implementation, dict(point or {}), source="")


@overload
def measure(
    fn: Call,
    *,
    cost: Cost | None = None,
    flops: float | Flops | Sequence[Flops] | None = None,
    bytes: float | Bytes | None = None,
    dtype: str = "",
    name: str = "",
    **conditions: Unpack[Conditions],
) -> Measurement: ...


@overload
def measure(
    *,
    cost: Cost | None = None,
    flops: float | Flops | Sequence[Flops] | None = None,
    bytes: float | Bytes | None = None,
    dtype: str = "",
    name: str = "",
    **conditions: Unpack[Conditions],
) -> Callable[[Call], Measurement]: ...


def measure(
    fn: Call | _Decorates = DECORATES,
    *,
    cost: Cost | None = None,
    flops: float | Flops | Sequence[Flops] | None = None,
    bytes: float | Bytes | None = None,
    dtype: str = "",
    name: str = "",
    **conditions: Unpack[Conditions],
) -> Measurement | Callable[[Call], Measurement]:
    """Measure how long a call of *fn* takes, on tensors that exist, in this process.

    *fn* takes no arguments: `gpuperf.measure(lambda: torch.softmax(x, -1))`. Return its
    `Measurement`, which as a decorator, `@gpuperf.measure` or `@gpuperf.measure(budget_s=1)`, takes
    the place of the function. There is no `with` form: the code of a block cannot be run again.

    *cost* is what one call needs, or *flops* and *bytes* are: a number of FLOPs of a matrix product
    in *dtype*, or `Flops`; the bytes read from DRAM and written to it, or `Bytes`. With any of them
    the measurement has a place under the roofline. *name* is by default that of *fn*.
    The conditions:

    - `cache` is the state of the L2 before a call: `cold` (the default), `cold-dirty`, or `hot`.
    - `timer` is one of `gpuperf list`'s timers; the default is `auto` on a GPU, `wall` on a CPU.
    - Sampling ends when half the 95 % interval is within `precision` (0.01), a fraction of the
      median, or after `budget_s` seconds (2.0).
    - `counters=True` counts the DRAM bytes of a call too, where the GPU allows it.
    - `device` is `cuda:0`, `cpu` and the like; `cuda` is torch's current GPU. The default is the
      GPU of the tensors that *fn* uses, as far as its closure shows them, else the current GPU,
      else the CPU.

    Raises: NotMeasured (a CannotMeasure) for a callable that gets no time, with the `record` that
    says why; UsageError, CannotMeasure; what *fn* raises.
    """
    counted = cost_of(cost, flops, bytes, dtype)
    if isinstance(fn, _Decorates):
        return partial(measure, cost=counted, name=name, **conditions)
    chosen = settings(conditions, [fn])
    measurement = chosen.measure(fn, case_of(name or name_of(fn)), counted)
    if measurement.record.samples is None or measurement.record.status != "ok":
        raise NotMeasured(measurement.record)
    return measurement
