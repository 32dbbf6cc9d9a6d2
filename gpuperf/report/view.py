"""Of which bytes is the x axis of a roofline?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

__all__ = ["HINTS", "LACKING", "View"]

View = Literal["compulsory", "modelled", "measured", "both", "hierarchy"]

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
