"""Read the numbers that a call counts itself, such as the cycles of its kernel."""

from __future__ import annotations

import math
from typing import Any

from gpuperf.errors import WorkloadError

MOST, LARGEST = 100, 1e21  # readings of a call, and their size


def readings_of(call: Any) -> dict[str, float]:
    """Return what the method `readings` of a built *call* returns; nothing where it has none.

    Raises: WorkloadError for readings that are not finite numbers by name.
    """
    if not hasattr(call, "readings"):
        return {}
    values = call.readings()
    if not isinstance(values, dict) or len(values) > MOST:
        raise WorkloadError(
            f"readings() returned a {type(values).__name__}", 'return {"name": 1.0}'
        )
    for name, value in values.items():
        number = isinstance(value, int | float) and math.isfinite(value) and abs(value) < LARGEST
        if not isinstance(name, str) or not number:
            message = f"readings() returned {value!r} for {name!r}, which is not a number"
            raise WorkloadError(message, "return finite numbers by name")
    return {name: float(value) for name, value in values.items()}
