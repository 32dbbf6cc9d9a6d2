"""Tilings of rows that were the fastest on a Hopper GPU, so that a first call hardly tunes.

The key is a kernel, the length of its rows and the bytes of an element; rows of up to 2048 elements
have the key of the next power of 2. The values are tilings, in the order of their keys. Other
devices tune once.
"""

from __future__ import annotations

from collections.abc import Mapping

Key = tuple[str, int, int]

# All are of H200s, with 128 Mi elements in bf16. Softmax of 1024 and 2048 elements is
# from runs that are not stored, the others are from docs/measured/rows_plans.txt: the fastest
# tiling, and in some keys another one within about 1 %. Measurements under a contract ranked a few
# tilings otherwise, and theirs are here: layernorm and softmax of 4096, softmax of 32768, and the
# gradient of RMS norm of 16384 with a residual.
CHOSEN: Mapping[Key, tuple[tuple[int, ...], ...]] = {
    ("layernorm", 4096, 2): ((1, 4, 0, 0, 1, 0, 1),),
    ("layernorm", 8192, 2): ((1, 8, 0, 0, 1, 0, 2),),
    ("layernorm", 16384, 2): ((1, 16, 0, 0, 1, 0, 2), (1, 16, 0, 0, 1, 0, 4)),
    ("layernorm", 32768, 2): ((1, 32, 0, 0, 1, 0, 4),),
    ("layernorm_backward", 4096, 2): ((1, 4, 3, 2, 1, 0, 0), (1, 8, 3, 2, 0, 1, 0)),
    ("layernorm_backward", 8192, 2): ((1, 16, 3, 1, 0, 1, 0), (1, 8, 3, 1, 0, 1, 0)),
    ("layernorm_backward", 16384, 2): ((1, 16, 3, 1, 1, 1, 0), (1, 8, 3, 1, 1, 1, 0)),
    ("layernorm_residual", 4096, 2): ((1, 16, 0, 0, 1, 0, 1),),
    ("layernorm_residual", 8192, 2): ((1, 16, 0, 0, 1, 0, 1),),
    ("layernorm_residual", 16384, 2): ((1, 32, 0, 0, 1, 0, 2),),
    ("layernorm_residual", 32768, 2): ((1, 16, 0, 0, 1, 1, 0),),
    ("layernorm_residual_backward", 4096, 2): ((1, 4, 3, 2, 0, 0, 0), (1, 4, 3, 2, 0, 1, 0)),
    ("layernorm_residual_backward", 8192, 2): ((1, 4, 3, 1, 1, 1, 0), (1, 8, 3, 1, 0, 1, 0)),
    ("layernorm_residual_backward", 16384, 2): ((1, 16, 3, 1, 1, 1, 0), (1, 8, 3, 1, 1, 1, 0)),
    ("norm", 4096, 2): ((1, 8, 0, 0, 1, 0, 1),),
    ("norm", 8192, 2): ((1, 16, 0, 0, 1, 0, 1), (1, 16, 0, 0, 1, 0, 2)),
    ("norm", 16384, 2): ((1, 16, 0, 0, 1, 0, 2), (1, 32, 0, 0, 1, 0, 2)),
    ("norm", 32768, 2): ((1, 32, 0, 0, 1, 0, 4), (1, 16, 0, 0, 1, 0, 2)),
    ("norm_backward", 4096, 2): ((1, 4, 1, 4, 1, 0, 0), (1, 4, 3, 2, 1, 1, 0)),
    ("norm_backward", 8192, 2): ((1, 16, 1, 2, 0, 0, 0), (1, 8, 1, 2, 0, 0, 0)),
    ("norm_backward", 16384, 2): ((1, 8, 3, 1, 0, 0, 0), (1, 16, 3, 1, 1, 1, 0)),
    ("norm_residual", 4096, 2): ((1, 16, 0, 0, 1, 0, 1),),
    ("norm_residual", 8192, 2): ((1, 32, 0, 0, 1, 0, 1), (1, 16, 0, 0, 1, 0, 1)),
    ("norm_residual", 16384, 2): ((1, 32, 0, 0, 1, 0, 2), (1, 16, 0, 0, 1, 0, 1)),
    ("norm_residual", 32768, 2): ((1, 32, 0, 0, 1, 0, 2),),
    ("norm_residual_backward", 4096, 2): ((1, 4, 3, 2, 0, 0, 0), (1, 4, 3, 2, 0, 1, 0)),
    ("norm_residual_backward", 8192, 2): ((1, 16, 1, 2, 0, 0, 0), (1, 4, 3, 1, 1, 1, 0)),
    ("norm_residual_backward", 16384, 2): ((1, 16, 3, 1, 1, 1, 0),),
    ("softmax", 1024, 2): ((2, 2, 0, 0, 1, 0, 0),),
    ("softmax", 2048, 2): ((1, 4, 0, 0, 1, 0, 0),),
    ("softmax", 4096, 2): ((1, 2, 0, 0, 1, 1, 0),),
    ("softmax", 8192, 2): ((1, 8, 0, 0, 1, 0, 0), (1, 16, 0, 0, 1, 0, 0)),
    ("softmax", 16384, 2): ((1, 16, 0, 0, 1, 0, 4),),
    ("softmax", 32768, 2): ((1, 16, 0, 0, 1, 1, 0),),
    ("softmax_backward", 4096, 2): ((1, 16, 0, 0, 1, 0, 1),),
    ("softmax_backward", 8192, 2): ((1, 16, 0, 0, 1, 0, 2),),
    ("softmax_backward", 16384, 2): ((1, 32, 0, 0, 1, 0, 2),),
    ("softmax_backward", 32768, 2): ((1, 16, 0, 0, 1, 1, 0),),
}
