"""Collect the verb of each feature's package, in the order of the help."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import gpuperf
from gpuperf.verb.verb import Verb

if TYPE_CHECKING:
    from gpuperf.model.record import Header


# Help lists these first; other verbs follow in alphabetical order.
ORDER = (
    "roofline",
    "compare",
    "alignment",
    "waves",
    "explain",
    "profile",
    "run",
    "gate",
    "judge",
    "baseline",
    "history",
    "ci",
    "calibrate",
    "timing-check",
    "show",
    "list",
    "import",
    "devices",
    "doctor",
)
ROWS = "roofline"  # the verb that shows runs of cases without tables of their own


@cache
def verbs() -> dict[str, Verb]:
    """Return every verb by its name: the `VERB` of each package in gpuperf.

    Raises: ValueError where two packages give their verbs the same name.
    """
    every = [import_module(f"gpuperf.{name}").VERB for name in _features()]
    places = {name: place for place, name in enumerate(ORDER)}
    every.sort(key=lambda verb: (places.get(verb.name, len(ORDER)), verb.name))
    for verb, following in pairwise(every):
        if verb.name == following.name:
            raise ValueError(f"there are two verbs {verb.name!r}")
    return {verb.name: verb for verb in every}


def _features() -> list[str]:
    """Return the names of the packages that declare a verb.

    Others are not imported: that of the plugin imports pytest, which may not be installed.
    """
    folders = [Path(folder) for folder in gpuperf.__path__]
    files = [file for folder in folders for file in sorted(folder.glob("*/__init__.py"))]
    return [f.parent.name for f in files if "VERB = " in f.read_text(encoding="utf-8")]


def verb_of(header: Header) -> Verb:
    """Return the verb whose tables and charts show a run: the one that its study names."""
    name = header.study.partition(":")[0]
    return verbs().get(name or ("compare" if header.baseline else ""), verbs()[ROWS])
