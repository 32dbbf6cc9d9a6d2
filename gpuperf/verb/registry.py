"""Collect the verb of each feature's package, in the order in which help lists them."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING

import gpuperf
from gpuperf.verb.verb import Verb

if TYPE_CHECKING:
    from gpuperf.model.record import Header


# Help lists these first, in this order; verbs that are not named here follow by their names.
ORDER = (
    "roofline",
    "compare",
    "alignment",
    "waves",
    "explain",
    "profile",
    "run",
    "gate",
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
ROWS = "roofline"  # the verb that shows runs of cases


@cache
def verbs() -> dict[str, Verb]:
    """Return every verb by its name: the `VERB` of each package in gpuperf.

    Raises: ValueError where two packages name their verb alike.
    """
    packages = (entry.name for entry in pkgutil.iter_modules(gpuperf.__path__) if entry.ispkg)
    modules = (import_module(f"gpuperf.{name}") for name in packages)
    found = [module.VERB for module in modules if hasattr(module, "VERB")]
    places = {name: place for place, name in enumerate(ORDER)}
    found.sort(key=lambda verb: (places.get(verb.name, len(ORDER)), verb.name))
    for one, other in pairwise(found):
        if one.name == other.name:
            raise ValueError(f"there are two verbs {one.name!r}")
    return {verb.name: verb for verb in found}


def verb_of(header: Header) -> Verb:
    """Return the verb whose table and charts show a run: that of its study, if it is known."""
    every = verbs()
    return every.get(header.study or ("compare" if header.baseline else ""), every[ROWS])
