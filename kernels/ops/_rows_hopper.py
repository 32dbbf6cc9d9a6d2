"""Tilings of rows that were the fastest on a Hopper GPU, so that a first call does not tune.

The key is a kernel, the length of its rows (rounded up to a power of 2) and the bytes of an
element; the values are in the order of the tilings of that kernel. Other devices tune once.
"""

from __future__ import annotations

from collections.abc import Mapping

Key = tuple[str, int, int]

# From docs/measured/h200-compare-softmax-*.jsonl.gz, 128 Mi elements in bf16.
CHOSEN: Mapping[Key, tuple[int, ...]] = {
    ("softmax", 1024, 2): (2, 2, 0, 0, 1, 0),
    ("softmax", 2048, 2): (1, 4, 0, 0, 1, 0),
}
