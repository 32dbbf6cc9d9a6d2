"""Count the passes and the products of a training step that keeps results or computes them again.

Source: Chen et al.: Training Deep Nets with Sublinear Memory Cost (2016). The fused forms are in
`gpuperf.theory.recomputation`.
"""

from __future__ import annotations

from gpuperf.theory.recomputation import stored_passes

FORWARD, BACKWARD = 1, 2  # products of a layer: its output; the gradients of its input and weights


def inner_passes(stages: int) -> int:
    """Return the passes of a fused chain whose backward computes the last result from the one
    before it, which it then need not read."""
    return stored_passes(stages) - 1


def apart_passes(stages: int) -> int:
    """Return the passes of a kernel for each function: x and y forward; y, dy and dx backward."""
    return 2 * stages + 3 * stages


def checkpointed_passes(stages: int) -> int:
    """Return the passes of `apart_passes` and of a second forward pass, kernel by kernel."""
    return apart_passes(stages) + 2 * stages


def product_ratio(layers: int, again: int) -> float:
    """Return the products of a step over *layers* layers that computes *again* outputs again, over
    those of a step that keeps all: 4/3 if it computes every output again."""
    products = layers * (FORWARD + BACKWARD)
    return (products + again) / products
