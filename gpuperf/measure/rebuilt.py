"""Time callables that a program names, `file.py:function` or `module:function`, in a worker."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from gpuperf.errors import GpuperfError, UnknownName, UsageError
from gpuperf.measure.agreement import UNCHECKED, disagreement, has_tensors
from gpuperf.measure.callables import CallableBench, status_of
from gpuperf.measure.registry import load_module
from gpuperf.measure.timers.timer import Call
from gpuperf.model.protocol import Time
from gpuperf.model.record import Caveat, Record


def time_target(bench: CallableBench, request: Time) -> Record:
    """Return the record of the target of *request*; what it raises becomes its status.

    Raises: UsageError, WorkloadError for a target that cannot be loaded.
    """
    refused = functools.partial(
        Record, request.run, request.case, request.contract, fingerprint=bench.fingerprint
    )
    doubts: tuple[Caveat, ...] = ()
    try:
        call = rebuild(request.target)
        if request.against:
            bench.report("check", 0)
            got = call()
            if why := disagreement(got, rebuild(request.against)(), request.tolerance):
                return refused(status="wrong", reason=f"the result {why}")
            doubts = () if has_tensors(got) else (UNCHECKED,)
            del got
        record = bench.time(call, request.case, request.contract, request.cost)
        return replace(record, run=request.run, caveats=(*record.caveats, *doubts))
    except GpuperfError:
        raise
    except Exception as error:
        status, reason = status_of(error)
        return refused(status=status, reason=reason)


@functools.cache
def rebuild(target: str) -> Call:
    """Return the callable *target*, once in this process.

    Raises: UnknownName, UsageError, WorkloadError; what a target that ends with `()` raises.
    """
    source, _, name = target.rpartition(":")
    value: Any = _module(str(Path(source).resolve()) if source.endswith(".py") else source)
    public = [(name, each) for name, each in vars(value).items() if not name.startswith("_")]
    known = [name for name, each in public if callable(each)]
    for part in name.removesuffix("()").split("."):
        if not hasattr(value, part):
            raise UnknownName(f"function of {source}", part, known)
        value = getattr(value, part)
    if name.endswith("()"):
        value = value()
    if not callable(value):
        hint = f"name a function, or with '()' one that returns it: '{source}:make()'"
        raise UsageError(f"{target} is a {type(value).__name__}, and not a function", hint)
    call: Call = value
    return call


@functools.cache
def _module(source: str) -> ModuleType:
    return load_module(source)
