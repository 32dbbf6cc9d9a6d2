"""Load workloads and experiments of a source: a package, a file, a module or an entry point.

A source is `gpuperf.kernels` or `gpuperf.lab_experiments` (all modules of the package), a file
(`./mine.py`), a module or one name in it (`pkg.mod`, `pkg.mod:NAME`), or an entry point of the
group `gpuperf.workloads` (`entry:NAME`). Any `Workload` or `Experiment` value among a module's
names is collected, without registration.
"""

from __future__ import annotations

import contextlib
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
from typing import NamedTuple, TypeVar

from gpuperf.errors import UnknownName, UsageError, WorkloadError
from gpuperf.files import is_regular
from gpuperf.measure.validation import validate, validate_experiment
from gpuperf.model.experiment import Experiment
from gpuperf.model.workload import Workload

ENTRY_GROUP = "gpuperf.workloads"
BUILTIN = ("gpuperf.kernels", "gpuperf.lab_experiments")


T = TypeVar("T", Workload, Experiment)


class Loaded(NamedTuple):
    """The workloads and experiments of a source by name, and the modules that do not load."""

    workloads: dict[str, Workload]
    experiments: dict[str, Experiment]
    broken: dict[str, str]


def load_source(source: str) -> tuple[dict[str, Workload], dict[str, str]]:
    """Return the workloads of *source*, and the modules that do not load. Raises: as `load_all`."""
    loaded = load_all(source)
    return loaded.workloads, loaded.broken


def load_all(source: str) -> Loaded:
    """Return the workloads and experiments of *source*, and the errors of its broken modules.

    Raises: WorkloadError when a file does not load, or holds neither or a malformed one;
    UsageError when there is no such file.
    """
    if source in BUILTIN:
        return _walk(importlib.import_module(source))
    loaded = _load(source)
    if not loaded.workloads and not loaded.experiments:
        raise WorkloadError(
            f"{source} holds no Workload", "end the file with a `Workload(...)` value"
        )
    return loaded


def find_builtin(source: str, name: str) -> Workload | None:
    """Return the workload *name* of the package *source*, without its other modules.

    None for other sources, and where no module that has the quoted name defines it.
    """
    if source not in BUILTIN:
        return None
    for folder in importlib.import_module(source).__path__:
        for stem in _modules_with(name, Path(folder)):
            with contextlib.suppress(Exception):  # `load_all` reports it
                held = _collect(importlib.import_module(f"{source}.{stem}"), stem)
                if name in held.workloads:
                    return held.workloads[name]
    return None


def _modules_with(name: str, folder: Path) -> list[str]:
    """Return the modules in *folder* that have the quoted *name*, those that assign it first."""
    texts = {p.stem: p.read_text(encoding="utf-8") for p in sorted(folder.glob("[!_]*.py"))}
    quoting = [stem for stem, text in texts.items() if f'"{name}"' in text]
    return sorted(quoting, key=lambda stem: f'name="{name}"' not in texts[stem])


def _load(source: str) -> Loaded:
    if source.startswith("entry:"):
        return _collect(_entry(source.removeprefix("entry:")), source)
    if source.endswith(".py"):
        return _collect(load_module(source), source)
    module_name, _, name = source.partition(":")
    module = _import_user_module(module_name)
    if not name:
        return _collect(module, source)
    by_name: dict[str, Workload] = dict(_collect(module, source).workloads)
    by_name |= {key: value for key, value in vars(module).items() if isinstance(value, Workload)}
    if name not in by_name:
        raise UnknownName("workload", name, by_name)
    return _collect(by_name[name], source)


def load_module(source: str) -> ModuleType:
    """Import the file or the module *source*. Raises: WorkloadError, UsageError."""
    return _load_file(Path(source)) if source.endswith(".py") else _import_user_module(source)


def _walk(package: ModuleType) -> Loaded:
    whole = Loaded({}, {}, {})
    for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if info.ispkg:
            continue  # kernels/cuda has CUDA sources and no workloads
        try:
            loaded = _collect(importlib.import_module(info.name), info.name)
        except Exception as error:  # one broken workload must not hide the others
            whole.broken[info.name] = f"{type(error).__name__}: {error}"
            continue
        whole.workloads.update(loaded.workloads)
        whole.experiments.update(loaded.experiments)
    return whole


def _collect(holder: object, source: str) -> Loaded:
    if not isinstance(holder, Workload | ModuleType):
        raise WorkloadError(f"{source} is not a Workload: its type is {type(holder).__name__}")
    values = [holder] if isinstance(holder, Workload) else list(vars(holder).values())
    loaded = Loaded({}, {}, {})
    for value in values:
        if isinstance(value, Experiment):
            validate_experiment(value, source)
            _add(loaded.experiments, value, "experiment", source)
    inline = (e.workload for e in loaded.experiments.values())
    for value in [*values, *inline]:
        if isinstance(value, Workload):
            validate(value, source)
            _add(loaded.workloads, value, "workload", source)
    return loaded


def _add(values: dict[str, T], value: T, noun: str, source: str) -> None:
    if values.setdefault(value.name, value) is not value:
        raise WorkloadError(f"{source} has two {noun}s named {value.name!r}", "rename one")


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
