"""Load gpuperf's plugin into another pytest, also where gpuperf was installed before it had one."""

from __future__ import annotations

import os
from importlib.metadata import entry_points

NAME = "gpuperf.pytest_plugin"
INSTALLED = any(point.value == NAME for point in entry_points(group="pytest11"))


def environment() -> dict[str, str]:
    """Return this process's environment for a pytest of its own, which loads the plugin."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    return kept if INSTALLED else {**kept, "PYTEST_PLUGINS": NAME}
