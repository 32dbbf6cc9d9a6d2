"""Load a script or a module as `__main__`, as python does."""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import pkgutil
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

# A program that uses one of these names has marks, an optimizer or modules, which define its steps.
STEPS = {
    "gpuperf",
    "optim",
    "backward",
    "Trainer",
    "lightning",
    "accelerate",
    "nn",
    "Module",
    "transformers",
    "torchvision",
    "timm",
    "diffusers",
    "generate",
    "pipeline",
}
FUNCTIONS = "torch.nn.functional"  # a program may use these without any module


def load(argv: Sequence[str], module: bool) -> tuple[CodeType, ModuleType]:
    """Return the code of the script (with *module*, of the module) that is the first of *argv*, and
    the fresh `__main__` to run it in. Sets `sys.argv` and `sys.path` as python does.

    Raises: OSError, SyntaxError, ImportError, and what the package of a module raises.
    """
    name = argv[0]
    if module:
        sys.argv = ["-m", *argv[1:]]
        sys.path.insert(0, str(Path.cwd()))
        spec = _runnable(name)
        sys.argv[0] = spec.origin or name
        return _of_spec(spec)
    sys.argv = list(argv)
    path = os.path.abspath(name)  # noqa: PTH100 - a link stays a link
    importer = pkgutil.get_importer(path)
    if importer is not None:  # a folder, or an archive
        sys.path.insert(0, path)
        main = importer.find_spec("__main__")
        if main is None:
            raise ImportError(f"can't find '__main__' module in {path!r}")
        return _of_spec(main)
    sys.path.insert(0, str(Path(path).resolve().parent))
    with io.open_code(path) as file:
        code = pkgutil.read_code(file)
    if code is None:
        with io.open_code(path) as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
    loader = SourceFileLoader("__main__", path)
    return code, _main(__file__=path, __cached__=None, __loader__=loader)


def marks_steps(code: CodeType) -> bool:
    """Return whether *code* uses a name of `STEPS`, so that its steps can be detected."""
    names = {part for name in code.co_names if name != FUNCTIONS for part in name.split(".")}
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    return bool(names & STEPS) or any(map(marks_steps, inner))


def _runnable(name: str) -> ModuleSpec:
    """Return the spec that `python -m` runs: a module, or the `__main__` of a package."""
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    if spec is None:
        raise ImportError(f"No module named {name}", name=name)
    return spec


def _of_spec(spec: ModuleSpec) -> tuple[CodeType, ModuleType]:
    get_code = getattr(spec.loader, "get_code", None)
    code = None if get_code is None else get_code(spec.name)
    if code is None:
        raise ImportError(f"No code object available for {spec.name}", name=spec.name)
    return code, _main(
        __file__=spec.origin,
        __cached__=spec.cached,
        __loader__=spec.loader,
        __package__=spec.parent,
        __spec__=spec,
    )


def _main(**names: object) -> ModuleType:
    main = ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={}, **names)
    sys.modules["__main__"] = main
    return main
