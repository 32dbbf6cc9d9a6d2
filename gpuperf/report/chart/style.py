"""What do our charts look like, whatever the user's matplotlibrc says?

Colours: Okabe and Ito, Color Universal Design (2008), without the yellow, which white paper hides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gpuperf.units import format_bytes, format_number

__all__ = ["COLOURS", "MARKERS", "decades", "plain_number", "rc_parameters", "tick_values"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8A8A8A",
           "#7A4B1E", "#5B3A9E")  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "h", "<")  # filled: a hollow one can be told
INK, FAINT, GRID = "#222222", "#666666", "#dddddd"
SHEET_LINE, MEASURED_LINE = "#777777", "#222222"

_FOREIGN = ("backend", "interactive", "toolbar", "timezone", "webagg.", "tk.", "keymap.")


def rc_parameters() -> Any:
    """matplotlib's defaults with our changes: for `matplotlib.rc_context`."""
    import matplotlib

    defaults: dict[str, Any] = {
        name: value
        for name, value in dict[Any, Any](matplotlib.rcParamsDefault).items()
        if not name.startswith(_FOREIGN)
    }
    return {
        **defaults,
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 11,
        "text.parse_math": False,  # a `$` in a name is a dollar
        "text.color": INK,
        "axes.edgecolor": FAINT,
        "axes.labelcolor": INK,
        "xtick.color": FAINT,
        "ytick.color": FAINT,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "svg.fonttype": "none",
        "svg.hashsalt": "gpuperf",
        "path.simplify": False,
    }


def decades(low: float, high: float) -> float:
    """How many powers of ten lie between *low* and *high*."""
    return math.log10(high / low)


def tick_values(low: float, high: float, steps: Sequence[int]) -> list[float]:
    """*steps* times powers of ten between *low* and *high*."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    values = (step * 10.0**power for power in range(first, last + 1) for step in steps)
    return [v for v in values if low <= v <= high]


def plain_number(value: float) -> str:
    """A tick without exponents: `0.05`, `10`, `20,000`."""
    if value < 1:
        return format_number(value, 1)
    return f"{value:,.10g}"


def plain_bytes(value: float) -> str:
    """A tick of bytes: `20 MB`."""
    number, unit = format_bytes(value).split(" ")
    return f"{float(number):g} {unit}"
