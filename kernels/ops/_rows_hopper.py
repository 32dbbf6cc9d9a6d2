"""Tilings of rows that were the fastest on a Hopper GPU, so that a first call hardly tunes.

The key is a kernel, the length of its rows (rounded up to a power of 2) and the bytes of an
element; the values are its tilings, in the order of their keys. Other devices tune once.
"""

from __future__ import annotations

from collections.abc import Mapping

Key = tuple[str, int, int]

# From docs/measured/h200-compare-softmax-*.jsonl.gz for softmax of 1024 and 2048 elements, and from
# docs/measured/rows_plans.txt, on an H100, for the others; 128 Mi elements in bf16. Of two tilings
# the second is that of an H200, on which the first has 87 % of the rate of a copy.
CHOSEN: Mapping[Key, tuple[tuple[int, ...], ...]] = {
    ("layernorm", 4096, 2): ((2, 8, 0, 0, 1, 0), (2, 4, 128, 0, 1, 0)),
    ("layernorm", 8192, 2): ((1, 4, 0, 0, 1, 1),),
    ("layernorm_backward", 4096, 2): ((1, 4, 3, 2, 0, 0, 0),),
    ("layernorm_backward", 8192, 2): ((1, 8, 3, 1, 0, 1, 0),),
    ("norm", 4096, 2): ((1, 4, 0, 0, 1, 0),),
    ("norm", 8192, 2): ((1, 8, 0, 0, 1, 0),),
    ("norm_backward", 4096, 2): ((1, 4, 3, 2, 0, 1, 0),),
    ("norm_backward", 8192, 2): ((1, 8, 3, 1, 0, 1, 0),),
    ("norm_residual", 4096, 2): ((2, 16, 0, 0, 1, 0),),
    ("norm_residual", 8192, 2): ((1, 16, 0, 0, 1, 0),),
    ("norm_residual_backward", 4096, 2): ((1, 4, 3, 2, 0, 1, 0),),
    ("norm_residual_backward", 8192, 2): ((1, 16, 3, 1, 0, 1, 0),),
    ("softmax", 4096, 2): ((1, 2, 0, 0, 1, 1),),
    ("softmax", 1024, 2): ((2, 2, 0, 0, 1, 0),),
    ("softmax", 2048, 2): ((1, 4, 0, 0, 1, 0),),
}
