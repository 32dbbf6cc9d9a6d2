"""Of which bytes is the x axis of a roofline?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from gpuperf.model.counted import LITTLE, Counted

View = Literal["compulsory", "modelled", "measured", "both", "hierarchy"]


def best_known(found: Iterable[Counted]) -> View:
    """The bytes that are nearest to the truth among those that all of *found* have."""
    every = list(found)
    if every and all(c.measured and c.measured > LITTLE for c in every):
        return "measured"
    return "modelled" if every and all(c.modelled for c in every) else "compulsory"


# What a view draws that a run may lack, in words.
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
