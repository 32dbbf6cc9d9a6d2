"""Choose the bytes that the intensity of a roofline is computed from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from gpuperf.model.counted import LITTLE, Counted

View = Literal["compulsory", "modelled", "measured", "both", "hierarchy"]


def best_known(counts: Iterable[Counted]) -> View:
    """Return the most accurate kind of bytes that all *counts* have."""
    every = list(counts)
    if every and all(c.measured and c.measured > LITTLE for c in every):
        return "measured"
    return "modelled" if every and all(c.modelled for c in every) else "compulsory"


# The bytes that each view needs, as an error names them if a run lacks them.
LACKING: Mapping[str, str] = {
    "modelled": "modelled bytes: its implementations state none",
    "measured": "measured bytes",
    "both": "measured bytes",
    "hierarchy": "bytes through L2",
}
MEASURE = "measure it with --counters require, or draw --intensity compulsory"
HINTS: Mapping[str, str] = {
    "modelled": "draw --intensity compulsory",
    "measured": MEASURE,
    "both": MEASURE,
    "hierarchy": "measure it with --counters kernels",
}
