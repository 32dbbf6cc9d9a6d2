"""Load the workloads of a source: a package, a file, a module or an entry point.

A source is `gpuperf.kernels` (all its modules), a file (`./mine.py`), a module or one name in it
(`pkg.mod`, `pkg.mod:NAME`), or an entry point of the group `gpuperf.workloads` (`entry:NAME`). Any
`Workload` value among a module's names is collected, without registration.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import re
import sys
import traceback
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from gpuperf.errors import UnknownName, UsageError, WorkloadError
from gpuperf.files import is_regular
from gpuperf.measure.validation import validate
from gpuperf.model.workload import Workload

ENTRY_GROUP = "gpuperf.workloads"
BUILTIN = "gpuperf.kernels"


def load_source(source: str) -> tuple[dict[str, Workload], dict[str, str]]:
    """Return the workloads of *source* by name, and the errors of modules that do not load.

    Raises: WorkloadError when a file does not load, or holds no workload or a malformed one;
    UsageError when there is no such file.
    """
    if source == BUILTIN:
        return _walk(importlib.import_module(BUILTIN))
    workloads = _load(source)
    if not workloads:
        raise WorkloadError(
            f"{source} holds no Workload", "end the file with a `Workload(...)` value"
        )
    return workloads, {}


def _load(source: str) -> dict[str, Workload]:
    if source.startswith("entry:"):
        return _collect(_entry(source.removeprefix("entry:")), source)
    if source.endswith(".py"):
        return _collect(_load_file(Path(source)), source)
    module_name, _, name = source.partition(":")
    module = _import_user_module(module_name)
    if not name:
        return _collect(module, source)
    by_name = {workload.name: workload for workload in _collect(module, source).values()}
    by_name |= {key: value for key, value in vars(module).items() if isinstance(value, Workload)}
    if name not in by_name:
        raise UnknownName("workload", name, by_name)
    return _collect(by_name[name], source)


def _walk(package: ModuleType) -> tuple[dict[str, Workload], dict[str, str]]:
    workloads: dict[str, Workload] = {}
    broken: dict[str, str] = {}
    for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if info.ispkg:
            continue  # kernels/cuda has CUDA sources and no workloads
        try:
            workloads |= _collect(importlib.import_module(info.name), info.name)
        except Exception as error:  # one broken workload must not hide the others
            broken[info.name] = f"{type(error).__name__}: {error}"
    return workloads, broken


def _collect(holder: object, source: str) -> dict[str, Workload]:
    if not isinstance(holder, Workload | ModuleType):
        raise WorkloadError(f"{source} is not a Workload: its type is {type(holder).__name__}")
    values = [holder] if isinstance(holder, Workload) else list(vars(holder).values())
    workloads: dict[str, Workload] = {}
    for workload in values:
        if isinstance(workload, Workload):
            validate(workload, source)
            if workloads.setdefault(workload.name, workload) is not workload:
                raise WorkloadError(
                    f"{source} has two workloads named {workload.name!r}", "rename one"
                )
    return workloads


def _load_file(path: Path) -> ModuleType:
    """Import the file *path* as a module.

    Its folder and the working folder become the last places of `sys.path`, so that it can import
    modules beside it and packages of its repository, and none of these hides a library.
    """
    if not is_regular(path):
        raise UsageError(f"no file {str(path)!r}", "a workload of gpuperf's is named without .py")
    name = f"gpuperf_user_{re.sub(r'[^A-Za-z0-9_]', '_', path.stem)}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise WorkloadError(f"{path} cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and Triton look their module up there
    _search_last(path.resolve().parent)
    _search_last(Path.cwd())
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        raise _load_error(str(path), error) from error
    return module


def _import_user_module(name: str) -> ModuleType:
    _search_last(Path.cwd())
    try:
        return importlib.import_module(name)
    except BaseException as error:
        raise _load_error(name, error) from error


def _entry(name: str) -> object:
    entries = {entry.name: entry for entry in entry_points(group=ENTRY_GROUP)}
    if name not in entries:
        raise UnknownName("entry point", name, entries)
    try:
        return entries[name].load()
    except BaseException as error:
        distribution = entries[name].dist
        of = f" of {distribution.name}" if distribution else ""
        raise _load_error(f"entry point {name}{of}", error) from error


def _search_last(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _load_error(source: str, error: BaseException) -> WorkloadError:
    if isinstance(error, KeyboardInterrupt):
        raise error
    if isinstance(error, SyntaxError):
        message, place = error.msg, (error.filename, error.lineno)
    else:
        message = f"{type(error).__name__}: {error}"
        frames = traceback.extract_tb(error.__traceback__)
        theirs = [f for f in frames if "importlib" not in f.filename and f.filename != __file__]
        place = (theirs[-1].filename, theirs[-1].lineno) if theirs else (None, None)
    file, line = place
    where = f" ({Path(file).name} line {line})" if file and line else ""
    if os.environ.get("GPUPERF_DEBUG"):
        traceback.print_exception(error, file=sys.stderr)
    hint = "correct the file; --debug prints the whole stack"
    if isinstance(error, ModuleNotFoundError):
        hint = "install it, or run gpuperf in the folder that holds it, or set PYTHONPATH"
    return WorkloadError(f"{source} does not load: {message}{where}", hint)
