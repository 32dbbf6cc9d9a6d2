"""Compute gradients, products and attention of small matrices, by definition and without autograd.

Matrices are lists of rows of floats.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable, Sequence

Matrix = Sequence[Sequence[float]]

STEP = 1e-5  # of a central difference, whose error is then below 1e-9 of values near 1


def derivative(f: Callable[..., float], at: Sequence[float], index: int) -> float:
    """Return ∂f/∂x_index at the point *at*, as a central difference."""
    ahead, behind = list(at), list(at)
    ahead[index] += STEP
    behind[index] -= STEP
    return (f(*ahead) - f(*behind)) / (2 * STEP)


def gaussian(rows: int, columns: int, seed: int) -> list[list[float]]:
    """Return a matrix of normally distributed numbers, the same for the same *seed*."""
    source = random.Random(seed)
    return [[source.gauss(0, 1) for _ in range(columns)] for _ in range(rows)]


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the sum of the products of two rows."""
    return math.fsum(map(operator.mul, a, b))


def transposed(a: Matrix) -> list[list[float]]:
    """Return the transpose of *a*."""
    return [list(column) for column in zip(*a, strict=True)]


def product(a: Matrix, b: Matrix) -> list[list[float]]:
    """Return the matrix product a·b."""
    columns = transposed(b)
    return [[dot(row, column) for column in columns] for row in a]


def flat_product(a: Sequence[float], b: Sequence[float], m: int, n: int, k: int) -> list[float]:
    """Return C (m, n) of a naive CUDA kernel, whose thread (row, column) adds A[row·k + i] times
    B[i·n + column]."""
    return [
        sum(a[row * k + i] * b[i * n + column] for i in range(k))
        for row in range(m)
        for column in range(n)
    ]


def softmax_rows(scores: Matrix, shift: bool = True) -> list[list[float]]:
    """Return the softmax of each row, less its maximum if *shift*."""
    rows = []
    for row in scores:
        powers = [math.exp(x - (max(row) if shift else 0.0)) for x in row]
        rows.append([power / math.fsum(powers) for power in powers])
    return rows


def attention(q: Matrix, k: Matrix, v: Matrix) -> list[list[float]]:
    """Return the attention of plain matrices, softmax(q·kᵀ)·v."""
    return product(softmax_rows(product(q, transposed(k))), v)


def tiled_attention(q: Matrix, k: Matrix, v: Matrix, tile: int) -> list[list[float]]:
    """Return softmax(q·kᵀ)·v with one pass over tiles of keys for each query, by the online
    softmax."""
    result = []
    for query in q:
        largest, total, output = -math.inf, 0.0, [0.0] * len(v[0])
        for start in range(0, len(k), tile):
            scores = [dot(query, key) for key in k[start : start + tile]]
            new = max(largest, *scores)
            factor = math.exp(largest - new)
            powers = [math.exp(score - new) for score in scores]
            total = total * factor + sum(powers)
            rows = v[start : start + tile]
            added = product([powers], rows)[0]
            output = [old * factor + more for old, more in zip(output, added, strict=True)]
            largest = new
        result.append([value / total for value in output])
    return result


def difference(a: Matrix, b: Matrix) -> float:
    """Return the largest absolute difference of two matrices."""
    rows = zip(a, b, strict=True)
    return max(abs(x - y) for row, other in rows for x, y in zip(row, other, strict=True))


def numeric_gradient(loss: Callable[[list[list[float]]], float], at: Matrix) -> list[list[float]]:
    """Return the gradient of *loss* with respect to each element of a matrix, by central
    differences."""
    gradient = []
    for i, row in enumerate(at):
        gradient.append([0.0] * len(row))
        for j in range(len(row)):

            def shifted(by: float, i: int = i, j: int = j) -> float:
                moved = [list(each) for each in at]
                moved[i][j] += by
                return loss(moved)

            gradient[i][j] = (shifted(STEP) - shifted(-STEP)) / (2 * STEP)
    return gradient
