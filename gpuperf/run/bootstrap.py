"""Start a worker of *this* gpuperf under any interpreter, with other code first on its path.

Run as a file, so that nothing of gpuperf needs to be installed there: `python -P bootstrap.py JSON
…`, where the JSON names the folders of our packages, packages to fall back on where that
interpreter lacks them, and the folders whose modules come before installed ones.
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
    """Finds packages and modules at given places, whatever is installed."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of a name that has a place."""
        place = self._places.get(fullname)
        if place is None:
            return None
        if not Path(place).is_dir():
            return importlib.util.spec_from_file_location(fullname, place)
        return importlib.util.spec_from_file_location(
            fullname, Path(place, "__init__.py"), submodule_search_locations=[place]
        )


def _before_installed(paths: Sequence[str]) -> None:
    """Put *paths* behind the standard library and before every installed package."""
    places = [i for i, p in enumerate(sys.path) if p.endswith(("site-packages", "dist-packages"))]
    at = places[0] if places else len(sys.path)
    sys.path[at:at] = paths


def main() -> None:
    """Become the worker."""
    asked = json.loads(sys.argv.pop(1))
    _before_installed(asked["paths"])
    sys.meta_path.insert(0, Finder(asked["packages"]))
    sys.meta_path.append(Finder(asked["fallbacks"]))
    runpy.run_module("gpuperf.measure.worker", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
