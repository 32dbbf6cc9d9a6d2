"""Count the passes and the products of a training step that keeps results or computes them again.

Source: Chen et al.: Training Deep Nets with Sublinear Memory Cost (2016). The fused forms are in
`gpuperf.theory.recomputation`.
"""

from __future__ import annotations

from gpuperf.theory.recomputation import stored_passes

BLOCK_TENSORS = 16  # of tokens·width elements: x, norm, q k v, o, x, norm, 4 and 4 of the MLP
BLOCK_PRODUCTS = 24  # FLOPs of a block's products forward, over tokens·width²; a third is the last

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


def block_elements(seq: int, width: int, heads: int, kept: str, eager: bool) -> float:
    """Return the elements of a token that a transformer block keeps for its backward pass.

    *kept* is `none` (no checkpoint), `selective` (attention runs again) or `full`. *eager*
    attention keeps its softmax, which is quadratic in *seq*. Source: Korthikanti et al., Reducing
    Activation Recomputation in Large Transformer Models (2022), section 4, without dropout.
    """
    if kept == "full":
        return width
    softmax = heads * seq if eager and kept == "none" else 0
    return BLOCK_TENSORS * width + softmax


def block_ratio(seq: int, width: int, kept: str) -> float:
    """Return the FLOPs of a block's step with fused causal attention, over those without a
    checkpoint. torch stops a block that runs again before its last product."""
    attention = 2 * (seq + 1) / width  # of the forward pass, over tokens·width²
    step = 3 * BLOCK_PRODUCTS + 3.5 * attention  # fused attention computes its scores again
    again = {"none": 0.0, "selective": attention, "full": BLOCK_PRODUCTS * 2 / 3 + attention}
    return (step + again[kept]) / step
