"""Count embeddings, gathers and scatters: the elements that indices select, and the indices.

Traces have no values of indices. So as many elements are taken to be read as the result has, at
most all of the input; an in-place scatter is taken to write as many as its source has. An addition
to an element is one FLOP.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from gpuperf.model.aten import Tensor
from gpuperf.profile.cost.arguments import Arguments, Unreadable
from gpuperf.profile.cost.shapes import axis, common_shape, replaced
from gpuperf.profile.cost.tally import (
    Results,
    Rule,
    Rules,
    Tally,
    computed,
    elements,
    like,
    moved,
    named,
    results,
    tally,
)


def some(x: Tensor, count: int) -> Tensor:
    """Return a tensor of *count* elements of x, or of all if it has fewer."""
    return elements(x, min(count, x.distinct))


def selected(args: Arguments, x: Tensor, indices: Iterable[Tensor], expected: Results) -> Tally:
    """Count a call that reads *indices* and copies the elements of *x* at them into its results."""
    out = results(args, expected)
    return tally(args, (), (*(some(x, t.size) for t in out), *indices), out)


def table_width(weight: Tensor) -> int:
    """Return the width of an embedding's table. Raises: Unreadable if it is not a matrix."""
    if len(weight.shape) != 2:
        raise Unreadable("the weight is not a table of rows")
    return weight.shape[1]


def embedding(args: Arguments) -> Tally:
    """Count an embedding (weight (rows, d), indices), which copies a row for each index."""
    weight, indices = args.first(2)
    out = Tensor((*indices.shape, table_width(weight)), weight.dtype)
    return tally(args, (), (some(weight, out.size), indices), (out,))


def embedding_backward(args: Arguments) -> Tally:
    """Count the backward (dy (…, d), indices, rows, …) of an embedding: it adds the rows of dy to
    the gradient of the table, all of which it writes."""
    dy, indices = args.first(2)
    flops = computed(dy.size, dy.dtype, 1, sums=True)
    return tally(args, flops, (dy, indices), lambda: (table(args, 2, dy),))


def table(args: Arguments, rows: int, dy: Tensor) -> Tensor:
    """Return the gradient of a table, whose number of rows is the argument *rows*."""
    return Tensor((args.integer(rows), *dy.shape[-1:]), dy.dtype)


def bag(args: Arguments) -> Tally:
    """Count `_embedding_bag` (weight, indices, offsets, …): rows are added up, bag by bag."""
    weight, indices, offsets = args.first(3)
    d = table_width(weight)
    out = Tensor((offsets.size, d), weight.dtype)
    flops = computed(indices.size * d, weight.dtype, 1, sums=True)
    return tally(args, flops, (some(weight, indices.size * d), indices, offsets), (out,))


def bag_backward(args: Arguments) -> Tally:
    """Count the backward (dy (bags, d), indices, …, rows, …) of an embedding bag: for each index
    it adds the bag's row of dy to the gradient of the table."""
    dy, indices = args.first(2)
    rows = 5 if args.name.endswith("_dense_backward") else 6
    flops = computed(indices.size * dy.shape[-1], dy.dtype, 1, sums=True)
    return tally(args, flops, args.tensors(*range(rows)), lambda: (table(args, rows, dy),))


def gather(at: int) -> Rule:
    """Return the rule for a copy of one element of argument 0 for each index in argument *at*."""

    def rule(args: Arguments) -> Tally:
        x, index = args.tensor(0), args.tensor(at)
        out = Tensor(index.shape, x.dtype)
        return tally(args, (), (some(x, out.size), index), (out,))

    return rule


def index_select(args: Arguments) -> Tally:
    """Return the cost of `index_select` (x, dim, index), which copies slices of x."""
    x, index = args.tensor(0), args.tensor(2)

    def infer() -> Iterable[Tensor]:
        at = axis(args.integer(1), len(x.shape))
        return (Tensor(replaced(x.shape, at, index.size), x.dtype),)

    return selected(args, x, (index,), infer)


def is_mask(indices: Iterable[Tensor]) -> bool:
    """Return whether an index is a mask: only its values say how many elements it selects."""
    return any(t.dtype in ("bool", "uint8") for t in indices)


def index(args: Arguments) -> Tally:
    """Count x[indices]; the result is inferred only if each axis has an index that is no mask."""
    x, indices = args.tensor(0), args.tensors(1)

    def infer() -> Iterable[Tensor]:
        if is_mask(indices) or len(indices) != len(x.shape):
            raise Unreadable("the number of selected elements is unknown")
        return (Tensor(common_shape(indices), x.dtype),)

    return selected(args, x, indices, infer)


def index_put(args: Arguments) -> Tally:
    """Return the cost of x[indices] = values, or += if they accumulate."""
    x, indices, values = args.tensor(0), args.tensors(1), args.tensor(2)
    least = math.prod(common_shape(indices)) if indices else 0
    count = values.size if is_mask(indices) else max(values.size, least)
    try:
        adds = args.flag(3, False)
    except Unreadable:
        adds = False
    return put(args, x, (values, *indices), count, adds)


def put(args: Arguments, x: Tensor, given: Iterable[Tensor], count: int, adds: bool) -> Tally:
    """Return the cost of a call that reads *given*, and replaces or adds to *count* elements of x.

    A call that is not in place copies x first.
    """
    touched = some(x, count)
    flops = computed(count, x.dtype, int(adds))
    if args.in_place or args.name == "_index_put_impl":
        return Tally(flops, moved((*given, *((touched,) if adds else ())), (touched,)))
    rest = x if adds else elements(x, x.distinct - touched.size)
    return tally(args, flops, (rest, *given), (like(x),))


def scatter(adds: bool = False) -> Rule:
    """Return the rule for a scatter (x, dim, index, source or a number, …), which may add."""

    def rule(args: Arguments) -> Tally:
        x, where, source = args.tensor(0), args.tensor(2), args.optional(3)
        count = where.size
        if args.name.startswith("index_"):  # slices, not elements
            count = source.size if source and source.shape else slices(args, x, where)
        given = [where, *((some(source, count),) if source else ())]
        return put(args, x, given, count, adds or "reduce" in args.name)

    return rule


def slices(args: Arguments, x: Tensor, where: Tensor) -> int:
    """Return the number of elements of the slices of x that the index *where* selects."""
    at = axis(args.integer(1), len(x.shape))
    return where.size * math.prod(replaced(x.shape, at))


def search(args: Arguments) -> Tally:
    """Count a search (`nonzero`), which reads all inputs and writes the recorded results."""
    return tally(args, (), args.call.tensors, ())


def masked_select(args: Arguments) -> Tally:
    """Return the cost of the elements of x that the mask selects, and the mask."""
    x, mask = args.first(2)
    return selected(args, x, (mask,), ())


def masked_scatter(args: Arguments) -> Tally:
    """Return the cost of `masked_scatter` (x, mask, source), which reads all three."""
    x, mask = args.first(2)
    out = x if args.in_place else like(x)
    return tally(args, (), (x, mask, *args.tensors(2)), (out,))


def one_hot(args: Arguments) -> Tally:
    """Return the cost of `one_hot` (indices, number of classes)."""
    x = args.tensor(0)
    return tally(args, (), (x,), lambda: (Tensor((x.size, args.integer(1)), "int64"),))


SEARCHES = "nonzero argwhere searchsorted bucketize isin bincount histc _unique2 unique_dim"
RULES: Rules = {
    **named("embedding", embedding, "embedding"),
    **named("embedding", embedding_backward, "embedding_dense_backward"),
    **named("embedding", bag, "_embedding_bag _embedding_bag_forward_only"),
    **named("embedding", bag_backward, "_embedding_bag_backward _embedding_bag_dense_backward"),
    **named("indexing", gather(2), "gather"),
    **named("indexing", gather(1), "take"),
    **named("indexing", index_select, "index_select"),
    **named("indexing", index, "index _unsafe_index"),
    **named("indexing", index_put, "index_put _index_put_impl _unsafe_index_put"),
    **named("indexing", scatter(), "scatter index_copy index_fill index_reduce"),
    **named("indexing", scatter(adds=True), "scatter_add scatter_reduce index_add"),
    **named("indexing", masked_select, "masked_select"),
    **named("indexing", masked_scatter, "masked_scatter"),
    **named("indexing", search, SEARCHES),
    **named("indexing", one_hot, "one_hot"),
}
