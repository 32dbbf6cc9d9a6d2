"""Assign the time of an operator to the parts of a transformer.

A product belongs to the part that has a matrix of its shape. A compiled call that is replayed as a
CUDA graph is one operator without shapes, as is a custom operator: the names of its kernels decide.
They say what is a product and what is attention, but not which product; so all products of a step
with such a call are one part.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping

from gpuperf.model.record import Kernel
from gpuperf.profile.breakdown import OperatorRow
from gpuperf.theory.transformer.model import Model
from gpuperf.tiles.names import attends, fused_operators, multiplies

PROJECTIONS, ATTENTION, MLP, HEAD = "attention projections", "attention", "MLP", "head"
PRODUCTS = "products: projections, MLP, head"  # by the names of kernels
COPIES, OTHERS = "copies of keys and values", "norms, sums and others"
PADDED = 1.1  # a vocabulary is padded up to this many times its size
SOFTMAX = ("aten::_softmax", "aten::softmax")
# Inductor's pointwise kernels write at most so many elements a thread; 8 in those seen on an H200
# (torch 2.11). A mask has fewer elements than all keys by heads · head width, queries by the cache.
MOST_OF_THREAD = 32
COPY = re.compile(r"(?:^|_)clone(?:_|$)")
Shape = tuple[int, int, int]


def seconds_of(row: OperatorRow, model: Model, keys: float) -> Mapping[str, float]:
    """Return the seconds of an operator by the parts of *model*.

    *keys* are the elements of the keys of all heads of queries in one layer.
    """
    times = kernel_times(row, keys)
    spent = sum(times.values())
    if not spent:
        return {part_of(row, model): row.seconds}
    parts: Counter[str] = Counter()
    for (part, _), seconds in times.items():
        parts[part] += row.seconds * seconds / spent  # type: ignore[assignment]
    return parts


def kernel_times(row: OperatorRow, keys: float) -> Mapping[tuple[str, str], float]:
    """Return the traced seconds of each kernel of an operator without shapes, by its part and its
    name; nothing for an operator whose shapes are known."""
    operator = row.record.operator
    times: Counter[tuple[str, str]] = Counter()
    for kernel in row.record.kernels if operator and operator.kind == "unknown" else ():
        times[part_of_kernel(kernel, keys), kernel.name] += kernel.time_s or 0.0  # type: ignore[assignment]
    return times


def part_of_kernel(kernel: Kernel, keys: float) -> str:
    """Return the part to which a kernel belongs, by its name.

    Inductor prepares attention in pointwise kernels of one name: for queries, for a mask, and for
    keys and values, which it repeats for the heads that share them. Only the last have threads for
    all *keys*.
    """
    if kernel.kind != "kernel":
        return OTHERS
    if attends(kernel.name):
        return ATTENTION
    if multiplies(kernel.name):
        return PRODUCTS
    fused, launch = fused_operators(kernel.name), kernel.launch
    if "scaled_dot_product" in fused and COPY.search(fused) and launch is not None and keys > 0:
        threads = launch.blocks * math.prod(launch.block)
        return COPIES if threads * MOST_OF_THREAD >= keys else OTHERS
    return OTHERS


def part_of(row: OperatorRow, model: Model) -> str:
    """Return the part of *model* to which an operator belongs, by its shapes."""
    operator, name = row.record.operator, row.record.case.op
    if operator is None:
        return OTHERS
    if operator.kind == "attention" or name in SOFTMAX:
        return ATTENTION
    shape = product_of(row)
    if shape is None:
        return ATTENTION if name == "aten::bmm" else OTHERS
    _, inputs, outputs = shape
    width, mlp = model.width, model.mlp_width
    queries, keys = model.heads * model.head_width, model.kv_heads * model.head_width
    if inputs == width and model.vocabulary <= outputs <= PADDED * model.vocabulary:
        return HEAD
    known = {
        # Of equal shapes the last counts: several products in one come first.
        **dict.fromkeys(((width, 2 * keys), (width, queries + 2 * keys)), PROJECTIONS),
        **dict.fromkeys(((width, mlp), (width, 2 * mlp), (mlp, width)), MLP),
        **dict.fromkeys(((width, queries), (width, keys), (queries, width)), PROJECTIONS),
    }
    return known.get((inputs, outputs), OTHERS)


def product_of(row: OperatorRow) -> Shape | None:
    """Return rows, inputs and outputs of a product with a matrix; None for other operators."""
    operator = row.record.operator
    if operator is None or operator.kind != "matmul":
        return None
    shapes = [tensor.shape for tensor in operator.tensors if len(tensor.shape) > 1]
    if len(shapes) < 2 or len(shapes[1]) != 2:
        return None
    *rows, inputs = shapes[0]
    # Inference mode shows `linear` whole, whose weights are (outputs, inputs).
    of_linear = row.record.case.op == "aten::linear"
    outputs, own = shapes[1] if of_linear else reversed(shapes[1])
    return (math.prod(rows), inputs, outputs) if own == inputs else None
