"""Start a worker of *this* gpuperf under any interpreter, with the measured code first on its path.

This file is run by its path, so gpuperf need not be installed there: `python -P bootstrap.py JSON
…`. A forked worker calls its functions (`fork_server.py`). The JSON names the folders of gpuperf's
packages, of packages for an interpreter that lacks them, of modules that come before installed
ones, and the module that is run.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType


class Finder(importlib.abc.MetaPathFinder):
    """Finder of packages and modules at given paths, before any installed ones of that name."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        place = self._places.get(fullname)
        if place is None:
            return None
        if not Path(place).is_dir():
            return importlib.util.spec_from_file_location(fullname, place)
        return importlib.util.spec_from_file_location(
            fullname, Path(place, "__init__.py"), submodule_search_locations=[place]
        )


def before_installed(paths: Sequence[str]) -> None:
    """Put *paths* after the standard library and before every installed package."""
    places = [i for i, p in enumerate(sys.path) if p.endswith(("site-packages", "dist-packages"))]
    at = places[0] if places else len(sys.path)
    sys.path[at:at] = paths


def main() -> None:
    places = json.loads(sys.argv.pop(1))
    before_installed(places["paths"])
    sys.meta_path.insert(0, Finder(places["packages"]))
    sys.meta_path.append(Finder(places["fallbacks"]))
    runpy.run_module(places["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
