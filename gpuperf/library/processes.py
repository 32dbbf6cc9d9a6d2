"""Measure callables in several fresh processes, each of which rebuilds them from their names."""

from __future__ import annotations

import inspect
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from gpuperf.errors import UsageError
from gpuperf.library.measure import Call, Conditions, case_of, contract_of, refuse_unknown
from gpuperf.library.measurement import Measurement
from gpuperf.model.cost import Cost
from gpuperf.model.protocol import Opened, Time
from gpuperf.model.record import Record
from gpuperf.peaks.find import find_peaks
from gpuperf.run.ceilings import kept_ceilings
from gpuperf.run.forking import launching
from gpuperf.run.launcher import LocalLauncher, Place
from gpuperf.run.supervisor import Supervisor

INSTALLED = {"site-packages", "dist-packages"}  # folders of installed packages
HINT = (
    "name it as 'file.py:function', or as 'file.py:make()' if make returns it; or leave `processes`"
)


def target_of(name: str, call: Call | str) -> str:
    """Return the name by which another process rebuilds *call*. Raises: UsageError."""
    if isinstance(call, str):
        if not all(call.rpartition(":")):
            raise UsageError(f"{name!r}: {call!r} names no function of a file or module", HINT)
        return call
    what = f"{name!r} cannot be rebuilt in another process"
    if not inspect.isfunction(call):
        raise UsageError(f"{what}: it is a {type(call).__name__}", HINT)
    if call.__name__ == "<lambda>" or "<locals>" in call.__qualname__:
        kind = "a lambda" if call.__name__ == "<lambda>" else f"made inside {_maker(call)}"
        raise UsageError(f"{what}: it is {kind}", HINT)
    module = sys.modules.get(call.__module__)
    if _named(module, call.__qualname__) is not call:
        raise UsageError(
            f"{what}: {call.__qualname__} of {call.__module__} is another object", HINT
        )
    if call.__module__ != "__main__":
        return f"{call.__module__}:{call.__qualname__}"
    file = getattr(module, "__file__", None)
    if file is None:
        raise UsageError(f"{what}: this session has no file", HINT)
    return f"{Path(file).absolute()}:{call.__qualname__}"


def _named(module: ModuleType | None, name: str) -> object:
    """Return what the dotted *name* stands for in *module* now; None for nothing."""
    value: object = module
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def _maker(call: Call) -> str:
    return call.__qualname__.split(".<locals>")[0].rpartition(".")[2]


def measure_in_processes(
    calls: Mapping[str, Call | str],
    first: str,
    check: bool | float,
    cost: Cost | None,
    name: str,
    conditions: Conditions,
    processes: int,
) -> list[Measurement]:
    """Return a measurement of each callable in each of *processes*, in the order of measuring.

    The order turns from process to process. Raises: UsageError, CannotMeasure.
    """
    if "gpuperf.measure.pipe" in sys.modules and sys.modules["gpuperf.measure.pipe"].IN_WORKER:
        raise UsageError(
            "this file compares while a worker loads it",
            "put the comparison under `if __name__ == '__main__':`",
        )
    refuse_unknown(conditions)
    targets = {each: target_of(each, call) for each, call in calls.items()}
    for each, target in targets.items():
        source = target.rpartition(":")[0]
        if source.endswith(".py") and not Path(source).is_file():
            raise UsageError(f"{each!r}: there is no file {source}", HINT)
    device = _device(conditions)
    tolerance = None if isinstance(check, bool) else float(check)
    taken: list[Measurement] = []
    local = LocalLauncher(place=Place(paths=_own_paths()))
    with launching([local], device) as (launcher,), Supervisor(launcher, device) as supervisor:
        for index in range(processes):
            opened = supervisor.open()
            supervisor.ceilings = kept_ceilings(opened)
            contract, counting = contract_of(opened.device, conditions)
            for each in _turned(list(targets), index):
                request = Time(
                    run="",
                    case=replace(case_of(name, each), source=targets[each]),
                    contract=contract,
                    target=targets[each],
                    cost=cost,
                    counting="off" if index else counting,
                    against=targets[first] if check is not False and each != first else "",
                    tolerance=tolerance,
                )
                record = replace(supervisor.time(request), pass_index=index)
                taken.append(_placed(record, supervisor, opened))
            supervisor.renew()
    return taken


def _turned(names: list[str], index: int) -> Sequence[str]:
    return names[::-1] if index % 2 else names


def _device(conditions: Conditions) -> str:
    """Return the device of the workers, as they name it."""
    given = conditions.get("device")
    if "torch" not in sys.modules:
        return "auto" if given is None else str(given)
    from gpuperf.measure.callables import device_name

    return device_name(None if given is None else str(given))


def _own_paths() -> tuple[str, ...]:
    """Return the places of this program's own modules: `sys.path` but for what Python and installed
    packages add, such as the folder of its own dependencies that setuptools adds."""
    pythons = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    places = (Path(path).absolute() for path in sys.path)
    return tuple(
        str(p)
        for p in places
        if p.is_dir() and pythons.isdisjoint({p, *p.parents}) and INSTALLED.isdisjoint(p.parts)
    )


def _placed(record: Record, supervisor: Supervisor, opened: Opened) -> Measurement:
    peaks, reason = find_peaks(opened.device)
    return Measurement(record, opened, peaks, reason, supervisor.ceilings)
