"""Embeddings, gathers and scatters: only the elements that indices point at, and the indices.

What indices point at is in no trace. As many elements are taken to be read as there are places to
put them, and no more than there are; an in-place scatter writes as many as it is given. Adding to
what is there is a FLOP each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from gpuperf.model.aten import Tensor
from gpuperf.profile.cost.arguments import Arguments, Unreadable
from gpuperf.profile.cost.shapes import axis, broadcast
from gpuperf.profile.cost.tally import (
    Rule,
    Rules,
    Tally,
    computed,
    copies,
    fresh,
    inferred,
    moved,
    named,
)


def some(x: Tensor, count: int) -> Tensor:
    """*count* elements of x, and no more than it has."""
    return copies(x, min(count, x.distinct))


def embedding(args: Arguments) -> Tally:
    """(weight (rows, d), indices): a row for each index."""
    weight, indices = args.tensor(0), args.tensor(1)
    if len(weight.shape) != 2:
        raise Unreadable("no table of rows")
    out = Tensor((*indices.shape, weight.shape[1]), weight.dtype)
    return Tally((), moved((some(weight, out.size), indices), args.call.outputs or (out,)))


def embedding_backward(args: Arguments) -> Tally:
    """(dy (…, d), indices, rows, …): the whole table is written, rows are added up."""
    dy, indices = args.tensor(0), args.tensor(1)
    out = args.call.outputs or inferred(
        lambda: (Tensor((args.integer(2), *dy.shape[-1:]), dy.dtype),)
    )
    return Tally(computed(dy.size, dy.dtype, 1, sums=True), moved((dy, indices), out))


def bag(args: Arguments) -> Tally:
    """`_embedding_bag` (weight, indices, offsets, …): rows added up, bag by bag."""
    weight, indices, offsets = (args.tensor(at) for at in range(3))
    if len(weight.shape) != 2:
        raise Unreadable("no table of rows")
    d = weight.shape[1]
    out = Tensor((offsets.size, d), weight.dtype)
    flops = computed(indices.size * d, weight.dtype, 1, sums=True)
    read = (some(weight, indices.size * d), indices, offsets)
    return Tally(flops, moved(read, args.call.outputs or (out,)))


def bag_backward(args: Arguments) -> Tally:
    """(dy (bags, d), indices, …, rows, …): dy of its bag is added for each index."""
    dy, indices = args.tensor(0), args.tensor(1)
    rows = 5 if args.name.endswith("_dense_backward") else 6
    out = args.call.outputs or inferred(
        lambda: (Tensor((args.integer(rows), *dy.shape[-1:]), dy.dtype),)
    )
    flops = computed(indices.size * dy.shape[-1], dy.dtype, 1, sums=True)
    return Tally(flops, moved([t for at in range(rows) for t in args.tensors(at)], out))


def gather(args: Arguments) -> Tally:
    """(x, dim, index): an element for each index."""
    x, index = args.tensor(0), args.tensor(2)
    out = Tensor(index.shape, x.dtype)
    return Tally((), moved((some(x, out.size), index), args.call.outputs or (out,)))


def take(args: Arguments) -> Tally:
    """(x, index)"""
    x, index = args.tensor(0), args.tensor(1)
    out = Tensor(index.shape, x.dtype)
    return Tally((), moved((some(x, out.size), index), args.call.outputs or (out,)))


def index_select(args: Arguments) -> Tally:
    """(x, dim, index): slices of an axis."""
    x, index = args.tensor(0), args.tensor(2)

    def infer() -> Iterable[Tensor]:
        at = axis(args.integer(1), len(x.shape))
        return (Tensor((*x.shape[:at], index.size, *x.shape[at + 1 :]), x.dtype),)

    out = args.call.outputs or inferred(infer)
    return Tally((), moved((*(some(x, t.size) for t in out), index), out))


def index(args: Arguments) -> Tally:
    """x[indices]: of which axes is not said where not all have one; of bool, only x knows."""
    x, indices = args.tensor(0), args.tensors(1)

    def infer() -> Iterable[Tensor]:
        if any(t.dtype in ("bool", "uint8") for t in indices) or len(indices) != len(x.shape):
            raise Unreadable("which elements?")
        return (Tensor(broadcast(*(t.shape for t in indices)), x.dtype),)

    out = args.call.outputs or inferred(infer)
    return Tally((), moved((*(some(x, t.size) for t in out), *indices), out))


def index_put(args: Arguments) -> Tally:
    """x[indices] = values, or += where they accumulate."""
    x, indices, values = args.tensor(0), args.tensors(1), args.tensor(2)
    least = math.prod(broadcast(*(t.shape for t in indices))) if indices else 0
    if any(t.dtype in ("bool", "uint8") for t in indices):
        least = 0
    adds = bool(inferred(lambda: (x,) if args.flag(3, False) else ()))
    return put(args, x, (values, *indices), max(values.size, least), adds)


def put(args: Arguments, x: Tensor, given: Iterable[Tensor], count: int, adds: bool) -> Tally:
    """*count* elements of x replaced by *given*, or added to; out of place, in a copy of x."""
    touched = some(x, count)
    flops = computed(count, x.dtype, int(adds))
    if args.in_place or args.name == "_index_put_impl":
        return Tally(flops, moved((*given, *((touched,) if adds else ())), (touched,)))
    rest = x if adds else copies(x, x.distinct - touched.size)
    return Tally(flops, moved((rest, *given), args.call.outputs or (fresh(x),)))


def scatter(at: int, adds: bool = False) -> Rule:
    """(x, dim, index, src or a number, …): *at*, the source, if there is one."""

    def rule(args: Arguments) -> Tally:
        x, where = args.tensor(0), args.tensor(2)
        source = args.optional(at)
        count = where.size
        if args.name.startswith("index_"):  # slices, not elements
            count = source.size if source and source.shape else sliced(args, x, where)
        given = [where, *((some(source, count),) if source else ())]
        return put(args, x, given, count, adds or "reduce" in args.name)

    return rule


def sliced(args: Arguments, x: Tensor, where: Tensor) -> int:
    """Elements of the slices that an index takes out of an axis."""
    at = axis(args.integer(1), len(x.shape))
    return where.size * math.prod(n for i, n in enumerate(x.shape) if i != at)


def searched(args: Arguments) -> Tally:
    """Masks and searches, whose result only the data knows: what they read, and what was seen."""
    return Tally((), moved(args.call.tensors, args.call.outputs))


def masked(args: Arguments) -> Tally:
    """`masked_select` (x, mask), `masked_scatter` (x, mask, source)."""
    x, mask = args.tensor(0), args.tensor(1)
    if args.name == "masked_scatter":
        made = args.call.outputs or (x if args.in_place else fresh(x),)
        return Tally((), moved((x, mask, *args.tensors(2)), made))
    out = args.call.outputs
    return Tally((), moved((*(some(x, t.size) for t in out), mask), out))


def one_hot(args: Arguments) -> Tally:
    """(indices, classes)"""
    x = args.tensor(0)
    out = args.call.outputs or inferred(lambda: (Tensor((x.size, args.integer(1)), "int64"),))
    return Tally((), moved((x,), out))


SEARCHES = "nonzero argwhere searchsorted bucketize isin bincount histc _unique2 unique_dim"
RULES: Rules = {
    **named("embedding", embedding, "embedding"),
    **named("embedding", embedding_backward, "embedding_dense_backward"),
    **named("embedding", bag, "_embedding_bag _embedding_bag_forward_only"),
    **named("embedding", bag_backward, "_embedding_bag_backward _embedding_bag_dense_backward"),
    **named("indexing", gather, "gather"),
    **named("indexing", take, "take"),
    **named("indexing", index_select, "index_select"),
    **named("indexing", index, "index _unsafe_index"),
    **named("indexing", index_put, "index_put _index_put_impl _unsafe_index_put"),
    **named("indexing", scatter(3), "scatter index_copy index_fill index_reduce"),
    **named("indexing", scatter(3, adds=True), "scatter_add scatter_reduce index_add"),
    **named("indexing", masked, "masked_select masked_scatter"),
    **named("indexing", searched, SEARCHES),
    **named("indexing", one_hot, "one_hot"),
}
