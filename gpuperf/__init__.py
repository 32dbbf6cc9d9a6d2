"""Measure how fast a GPU operation is, how fast it could be, and where the difference goes.

The public API needs no torch, and is imported on first use, so that the command line starts fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from gpuperf.marks import region, register_cost, step
    from gpuperf.model.cost import Bytes, Cost, Flops, Work
    from gpuperf.model.workload import Axis, Implementation, Point, Workload
    from gpuperf.run.store import read_run

_HOME = {
    "Axis": "gpuperf.model.workload",
    "Bytes": "gpuperf.model.cost",
    "Cost": "gpuperf.model.cost",
    "Flops": "gpuperf.model.cost",
    "Implementation": "gpuperf.model.workload",
    "Point": "gpuperf.model.workload",
    "Work": "gpuperf.model.cost",
    "Workload": "gpuperf.model.workload",
    "read_run": "gpuperf.run.store",
    "region": "gpuperf.marks",
    "register_cost": "gpuperf.marks",
    "step": "gpuperf.marks",
}

__all__ = [
    "Axis",
    "Bytes",
    "Cost",
    "Flops",
    "Implementation",
    "Point",
    "Work",
    "Workload",
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
