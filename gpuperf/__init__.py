"""Measure how fast a GPU operation is, how fast it could be, and where the difference goes.

The public API needs no torch, and is imported on first use, so that the command line starts fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from gpuperf.library.run import Run, read_run
    from gpuperf.marks import region, register_cost, step
    from gpuperf.model.cost import Bytes, Cost, Flops, Work
    from gpuperf.model.experiment import (
        Control,
        Expected,
        Experiment,
        Law,
        Numbers,
        about,
        at_most,
        exactly,
    )
    from gpuperf.model.workload import Axis, Dropout, Implementation, Point, Workload

_NAMES = {
    "gpuperf.library.run": ("Run", "read_run"),
    "gpuperf.marks": ("region", "register_cost", "step"),
    "gpuperf.model.cost": ("Bytes", "Cost", "Flops", "Work"),
    "gpuperf.model.experiment": (
        "Control",
        "Experiment",
        "Expected",
        "Law",
        "Numbers",
        "about",
        "at_most",
        "exactly",
    ),
    "gpuperf.model.workload": ("Axis", "Dropout", "Implementation", "Point", "Workload"),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "Axis",
    "Bytes",
    "Control",
    "Cost",
    "Dropout",
    "Expected",
    "Experiment",
    "Flops",
    "Implementation",
    "Law",
    "Numbers",
    "Point",
    "Run",
    "Work",
    "Workload",
    "about",
    "at_most",
    "exactly",
    "read_run",
    "region",
    "register_cost",
    "step",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'gpuperf' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """Include the public names, which are otherwise absent until their first use."""
    return sorted({*globals(), *__all__})
