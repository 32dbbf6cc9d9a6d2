"""What workloads are there? Known without importing any, once a worker has described them.

Descriptions are kept by the hash of the workloads' files, the interpreter, torch and gpuperf.
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
from gpuperf.model.protocol import PROTOCOL, Described
from gpuperf.model.workload import Description
from gpuperf.run.cache import fetch, keep, key_of

BUILTIN = "gpuperf.kernels"
ENTRY_GROUP = "gpuperf.workloads"

Describe = Callable[[str], Described]


@dataclass(frozen=True)
class Catalogue:
    """Descriptions in order of name, and what did not load, each with its reason."""

    descriptions: tuple[Description, ...]
    broken: dict[str, str] = field(default_factory=dict)

    def get(self, name: str) -> Description | None:
        """The workload called *name*, if it is here."""
        return next((d for d in self.descriptions if d.name == name), None)


def builtin_catalogue(describe: Describe, cached: bool = True) -> Catalogue:
    """The workloads of `gpuperf.kernels`; *describe* is called only when they are not cached."""
    if not cached:
        return Catalogue(_sorted(describe(BUILTIN).descriptions))
    key = _builtin_key()
    known = fetch("catalogue", key, Catalogue)
    if known is None:
        described = describe(BUILTIN)
        known = Catalogue(_sorted(described.descriptions), described.broken)
        if not known.broken:
            keep("catalogue", key, known)
    return known


def known_workload(op: str) -> Description | None:
    """The builtin workload called *op*, if the catalogue is cached: no worker is started."""
    known = fetch("catalogue", _builtin_key(), Catalogue)
    return known.get(op) if known else None


def whole_catalogue(describe: Describe) -> Catalogue:
    """The builtin workloads and those of installed packages' entry points."""
    from importlib.metadata import entry_points  # 15 ms that `--help` has no use for

    builtin = builtin_catalogue(describe)
    descriptions, broken = list(builtin.descriptions), dict(builtin.broken)
    for entry in entry_points(group=ENTRY_GROUP):
        source = f"entry:{entry.name}"
        key = key_of(source, entry.value, _file_hash(entry.module), _stack())
        found = fetch("catalogue", key, Catalogue)
        if found is None:
            try:
                found = Catalogue(describe(source).descriptions)
            except Exception as error:  # another package's fault must not hide ours
                what, _, reason = str(error).partition(" does not load: ")
                broken[what if reason else source] = reason or what
                continue
            keep("catalogue", key, found)
        descriptions += found.descriptions
    return Catalogue(_sorted(tuple(descriptions)), broken)


def find_workload(op: str, describe: Describe, cached: bool = True) -> Description:
    """The workload that the user calls *op*; not *cached* where *describe* speaks of other code
    than what is installed here.

    `matmul` is one of ours or an entry point's; `./mine.py` the one in a file, `./mine.py:NAME` one
    of several; `pkg.mod:NAME` one in a module. Raises: UnknownName, UsageError, WorkloadError.
    """
    path, _, name = op.partition(":")
    if path.endswith(".py") or "/" in path:
        if Path(op).is_dir():
            raise UsageError(f"{op!r} is a folder", f"name a file in it: {op.rstrip('/')}/mine.py")
        return _only(op, name, describe(path).descriptions)
    if ":" in op or "." in op:
        return _only(op, "", describe(op).descriptions)
    found = builtin_catalogue(describe, cached).get(op)
    if found is not None:
        return found
    known = whole_catalogue(describe)
    found = known.get(op)
    if found is None and op and Path(op).is_dir():
        raise UsageError(f"{op!r} is a folder", f"name a file in it: {op}/mine.py")
    if found is None:
        names = [d.name for d in known.descriptions]
        raise UnknownName("workload", op, names, "`gpuperf list` shows them; a file is ./mine.py")
    return found


def _only(op: str, name: str, found: tuple[Description, ...]) -> Description:
    names = [d.name for d in found]
    if name:
        if name not in names:
            raise UnknownName("workload", name, names)
        return found[names.index(name)]
    if len(found) != 1:
        raise UsageError(f"{op} holds {len(found)} workloads", f"name one: {op}:{names[0]}")
    return found[0]


def _sorted(descriptions: tuple[Description, ...]) -> tuple[Description, ...]:
    return tuple(sorted(descriptions, key=lambda d: d.name))


def _builtin_key() -> str:
    spec = importlib.util.find_spec(BUILTIN)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    files = sorted(path for folder in folders for path in Path(folder).glob("*.py"))
    contents = [(path.name, sha256(path.read_bytes()).hexdigest()) for path in files]
    return key_of(contents, _stack())


def _stack() -> tuple[object, ...]:
    """What else a description may depend on: interpreter, torch and gpuperf."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = ""
    return sys.version, torch, gpuperf.__version__, PROTOCOL


def _file_hash(module: str) -> str:
    """The hash of a module's file, found without importing the packages that hold it."""
    top, *inner = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None:
        return ""
    folders = [Path(f) for f in spec.submodule_search_locations or ()]
    paths = [f.joinpath(*inner) for f in folders] if inner else []
    files = [p.with_suffix(".py") for p in paths] + [p / "__init__.py" for p in paths]
    files += [Path(spec.origin)] if spec.origin and not inner else []
    return "".join(sha256(f.read_bytes()).hexdigest() for f in files if f.is_file())
