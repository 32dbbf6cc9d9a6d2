"""Find workloads and experiments by name, from descriptions that a worker made once.

Descriptions are cached by the hash of the files, the interpreter, torch and gpuperf.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import gpuperf
from gpuperf.errors import UnknownName, UsageError
from gpuperf.model.experiment import ExperimentDescription
from gpuperf.model.protocol import PROTOCOL, Described
from gpuperf.model.workload import Description
from gpuperf.run.cache import fetch, keep, key_of

BUILTIN = "gpuperf.kernels"
EXPERIMENTS = "gpuperf.lab_experiments"
ENTRY_GROUP = "gpuperf.workloads"

Describe = Callable[[str], Described]


@dataclass(frozen=True)
class Catalogue:
    """Descriptions in order of name, and the sources that do not load, with the reasons."""

    descriptions: tuple[Description, ...]
    broken: dict[str, str] = field(default_factory=dict)
    experiments: tuple[ExperimentDescription, ...] = ()

    def get(self, name: str) -> Description | None:
        """Return the workload called *name*, if there is one."""
        return next((d for d in self.descriptions if d.name == name), None)


def builtin_catalogue(describe: Describe, cached: bool = True) -> Catalogue:
    """Return the workloads of `gpuperf.kernels`; *describe* is called if they are not cached."""
    if not cached:
        return Catalogue(_sorted(describe(BUILTIN).descriptions))
    return _package_catalogue(BUILTIN, describe)


def experiment_catalogue(describe: Describe) -> Catalogue:
    """Return the experiments of gpuperf, and their workloads; as `builtin_catalogue`."""
    return _package_catalogue(EXPERIMENTS, describe)


def _package_catalogue(package: str, describe: Describe) -> Catalogue:
    key = _builtin_key(package)
    catalogue = fetch("catalogue", key, Catalogue)
    if catalogue is None:
        described = describe(package)
        catalogue = _catalogue_of(described)
        if not catalogue.broken:
            keep("catalogue", key, catalogue)
    return catalogue


def _catalogue_of(described: Described) -> Catalogue:
    experiments = sorted(described.experiments, key=lambda e: e.name)
    return Catalogue(_sorted(described.descriptions), described.broken, tuple(experiments))


def find_experiment(
    name: str, describe: Describe, file: str = ""
) -> tuple[ExperimentDescription, Description]:
    """Return the experiment *name* and its workload, of gpuperf or of the user's *file*.

    Without a name, it is the only experiment of the file. Raises: UnknownName, UsageError,
    WorkloadError.
    """
    catalogue = _catalogue_of(describe(file)) if file else experiment_catalogue(describe)
    by_name = {experiment.name: experiment for experiment in catalogue.experiments}
    if file and not by_name:
        raise UsageError(
            f"{file} has no Experiment", "end the file with an `Experiment(...)` value"
        )
    if not name and len(by_name) > 1:
        raise UsageError(
            f"{file} has {len(by_name)} experiments", f"name one: {next(iter(by_name))}"
        )
    if name and name not in by_name:
        raise UnknownName("experiment", name, by_name, broken_hint(catalogue, name))
    experiment = by_name[name] if name else next(iter(by_name.values()))
    own = catalogue.get(experiment.op) if experiment.workload_source == experiment.source else None
    return experiment, own or find_workload(experiment.op, describe)


def load_experiments(file: str, describe: Describe) -> Catalogue:
    """Return the experiments of a user's *file*. Raises: UsageError if it has none, and as
    `find_workload`."""
    catalogue = _catalogue_of(describe(file))
    if not catalogue.experiments:
        raise UsageError(f"{file} has no Experiment", "end it with an `Experiment(...)` value")
    return catalogue


def known_experiment(name: str) -> ExperimentDescription | None:
    """Return gpuperf's experiment *name* if it is cached; no worker is started."""
    catalogue = fetch("catalogue", _builtin_key(EXPERIMENTS), Catalogue)
    known = catalogue.experiments if catalogue else ()
    return next((experiment for experiment in known if experiment.name == name), None)


def broken_hint(catalogue: Catalogue, name: str) -> str:
    """Return the reason why the file of the experiment *name* does not load, or nothing."""
    broken = {module.rpartition(".")[2]: reason for module, reason in catalogue.broken.items()}
    return f"its file does not load: {broken[name]}" if name in broken else ""


def known_workload(op: str) -> Description | None:
    """Return the builtin workload called *op* if it is cached; no worker is started."""
    catalogue = fetch("catalogue", _builtin_key(), Catalogue)
    return catalogue.get(op) if catalogue else None


def whole_catalogue(describe: Describe) -> Catalogue:
    """Return the builtin workloads and those of installed packages' entry points."""
    from importlib.metadata import entry_points  # here: 15 ms that `--help` does not need

    builtin = builtin_catalogue(describe)
    descriptions, broken = list(builtin.descriptions), dict(builtin.broken)
    for entry in entry_points(group=ENTRY_GROUP):
        source = f"entry:{entry.name}"
        key = key_of(source, entry.value, _file_hash(entry.module), _stack())
        catalogue = fetch("catalogue", key, Catalogue)
        if catalogue is None:
            try:
                catalogue = Catalogue(describe(source).descriptions)
            except Exception as error:  # a fault of another package must not hide our workloads
                name, _, reason = str(error).partition(" does not load: ")
                broken[name if reason else source] = reason or name
                continue
            keep("catalogue", key, catalogue)
        descriptions += catalogue.descriptions
    return Catalogue(_sorted(tuple(descriptions)), broken)


def find_workload(op: str, describe: Describe, cached: bool = True) -> Description:
    """Return the workload that the user calls *op*.

    `matmul` is a builtin workload or an entry point's; `./mine.py` is the only one in a file,
    `./mine.py:NAME` one of several; `pkg.mod:NAME` is in a module. The catalogue is *cached* unless
    *describe* runs other code than the code installed here.
    Raises: UnknownName, UsageError, WorkloadError.
    """
    path, _, name = op.partition(":")
    if path.endswith(".py") or "/" in path:
        if Path(op).is_dir():
            raise UsageError(f"{op!r} is a folder", f"name a file in it: {op.rstrip('/')}/mine.py")
        return _only(op, name, describe(path).descriptions)
    if ":" in op or "." in op:
        return _only(op, "", describe(op).descriptions)
    builtin = builtin_catalogue(describe, cached).get(op)
    if builtin is not None:
        return builtin
    catalogue = whole_catalogue(describe)
    description = catalogue.get(op)
    if description is None and op and Path(op).is_dir():
        raise UsageError(f"{op!r} is a folder", f"name a file in it: {op}/mine.py")
    if description is None:
        names = [d.name for d in catalogue.descriptions]
        raise UnknownName("workload", op, names, "`gpuperf list` shows them; a file is ./mine.py")
    return description


def _only(op: str, name: str, descriptions: tuple[Description, ...]) -> Description:
    names = [d.name for d in descriptions]
    if name:
        if name not in names:
            raise UnknownName("workload", name, names)
        return descriptions[names.index(name)]
    if len(names) != 1:
        raise UsageError(f"{op} has {len(names)} workloads", f"name one: {op}:{names[0]}")
    return descriptions[0]


def _sorted(descriptions: tuple[Description, ...]) -> tuple[Description, ...]:
    return tuple(sorted(descriptions, key=lambda d: d.name))


def _builtin_key(package: str = BUILTIN) -> str:
    spec = importlib.util.find_spec(package)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    files = sorted(path for folder in folders for path in Path(folder).glob("*.py"))
    contents = [(path.name, sha256(path.read_bytes()).hexdigest()) for path in files]
    return key_of(contents, _stack())


def _stack() -> tuple[object, ...]:
    from importlib.metadata import PackageNotFoundError, version

    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = ""
    return sys.version, torch, gpuperf.__version__, PROTOCOL


def _file_hash(module: str) -> str:
    """Hash the file of *module* without importing the packages around it."""
    top, *inner = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None:
        return ""
    folders = [Path(f) for f in spec.submodule_search_locations or ()]
    paths = [f.joinpath(*inner) for f in folders] if inner else []
    files = [p.with_suffix(".py") for p in paths] + [p / "__init__.py" for p in paths]
    files += [Path(spec.origin)] if spec.origin and not inner else []
    return "".join(sha256(f.read_bytes()).hexdigest() for f in files if f.is_file())
