"""Measure how fast a GPU operation is, how fast it could be, and where the difference goes.

The public API needs no torch, and is imported on first use, so that the command line starts fast.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from gpuperf.judge.pool import Judge, judge
    from gpuperf.judge.verdict import Verdict
    from gpuperf.library.comparison import Comparison, compare
    from gpuperf.library.measure import measure
    from gpuperf.library.measurement import Measurement, NotMeasured
    from gpuperf.library.run import Run, read_run
    from gpuperf.library.sweep import Sweep, sweep
    from gpuperf.library.triton_api import do_bench, perf_report
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
    "gpuperf.judge.pool": ("Judge", "judge"),
    "gpuperf.judge.verdict": ("Verdict",),
    "gpuperf.library.comparison": ("Comparison", "compare"),
    "gpuperf.library.measure": ("measure",),
    "gpuperf.library.measurement": ("Measurement", "NotMeasured"),
    "gpuperf.library.run": ("Run", "read_run"),
    "gpuperf.library.sweep": ("Sweep", "sweep"),
    "gpuperf.library.triton_api": ("do_bench", "perf_report"),
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
    "Comparison",
    "Control",
    "Cost",
    "Dropout",
    "Expected",
    "Experiment",
    "Flops",
    "Implementation",
    "Judge",
    "Law",
    "Measurement",
    "NotMeasured",
    "Numbers",
    "Point",
    "Run",
    "Sweep",
    "Verdict",
    "Work",
    "Workload",
    "about",
    "at_most",
    "compare",
    "do_bench",
    "exactly",
    "judge",
    "measure",
    "perf_report",
    "read_run",
    "region",
    "register_cost",
    "step",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'gpuperf' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """Include the public names, which are otherwise absent until their first use."""
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """This package, whose functions `measure` and `compare` have the names of subpackages.

    An import of a subpackage sets it as an attribute here; the functions stay.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and name in _HOME):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
