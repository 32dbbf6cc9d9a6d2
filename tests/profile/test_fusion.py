"""Which elementwise operators could be one kernel, and what would that save?"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

import pytest

from gpuperf.model.aten import Call, Tensor
from gpuperf.model.program import ObservedCall
from gpuperf.profile.fusion import MOST_OPEN, chains_of

N = 1024
SIZE = 4 * N  # bytes of a vector in fp32


class Step:
    """Calls one after the other, each on storages by number."""

    def __init__(self) -> None:
        self.seen: list[ObservedCall] = []
        self._line = itertools.count(1)

    def call(
        self, name: str, inputs: Sequence[int], output: int, shape: tuple[int, ...] = (N,)
    ) -> None:
        tensors = tuple((Tensor(shape, "fp32", (), storage, 0),) for storage in inputs)
        made = (Tensor(shape, "fp32", (), output, 0),)
        where = f"a.py:{next(self._line)}"
        self.seen.append(
            ObservedCall(Call(f"aten::{name}", tensors, ("",) * len(tensors), made), where)
        )


def test_a_chain_reads_what_comes_from_outside_and_writes_its_end() -> None:
    step = Step()
    step.call("mul", [1, 2], 3)
    step.call("add", [3, 4], 5)
    step.call("relu", [5], 6)
    (chain,) = chains_of(step.seen)
    assert chain.operators == ("mul", "add", "relu")
    assert chain.where == "a.py:1"
    assert (chain.bytes, chain.fused_bytes) == (8 * SIZE, 4 * SIZE)


def test_what_another_operator_takes_later_is_still_written() -> None:
    step = Step()
    step.call("mul", [1, 2], 3)
    step.call("relu", [3], 4)
    step.call("mm", [3, 9], 5, (32, 32))
    (chain,) = chains_of(step.seen)
    assert (chain.bytes, chain.fused_bytes) == (5 * SIZE, 4 * SIZE)


def test_an_operator_between_ends_a_chain() -> None:
    step = Step()
    step.call("mul", [1, 2], 3)
    step.call("sum", [3], 7)
    step.call("relu", [3], 4)
    assert chains_of(step.seen) == ()


def test_a_view_between_does_not() -> None:
    step = Step()
    step.call("mul", [1, 2], 3)
    step.call("view", [3], 3)
    step.call("relu", [3], 4)
    assert [chain.operators for chain in chains_of(step.seen)] == [("mul", "relu")]


def test_neighbours_that_share_nothing_are_no_chain() -> None:
    step = Step()
    step.call("mul", [1, 2], 3)
    step.call("mul", [4, 5], 6)
    assert chains_of(step.seen) == ()


def test_neighbours_that_read_the_same_are_a_chain_unless_it_is_small() -> None:
    step = Step()
    step.call("mul", [1, 2], 3)
    step.call("mul", [1, 4], 5)
    (chain,) = chains_of(step.seen)
    assert (chain.bytes, chain.fused_bytes) == (6 * SIZE, 4 * SIZE)
    bias, large = Tensor((8,), "fp32", (), 9, 0), (N, 8)
    two = [
        ObservedCall(
            Call(
                "aten::add",
                ((Tensor(large, "fp32", (), i, 0),), (bias,)),
                ("", ""),
                (Tensor(large, "fp32", (), i + 1, 0),),
            )
        )
        for i in (20, 30)
    ]
    assert chains_of(two) == ()


def test_what_the_trace_has_other_kernels_for_is_fused_already() -> None:
    step = Step()
    step.call("mul", [1, 2], 3)
    step.call("relu", [3], 4)
    mul, relu = ((one.call.name, tuple(t.shape for t in one.call.tensors)) for one in step.seen)
    assert len(chains_of(step.seen, {mul, relu})) == 1
    assert chains_of(step.seen, {mul}) == ()
    assert chains_of(step.seen, set()) == ()


def test_in_place_operators_read_and_write_once() -> None:
    step = Step()
    step.call("mul_", [1, 2], 1)
    step.call("add_", [1, 3], 1)
    (chain,) = chains_of(step.seen)
    assert (chain.bytes, chain.fused_bytes) == (6 * SIZE, 4 * SIZE)


def test_chains_alike_are_counted() -> None:
    step = Step()
    for first in (10, 20, 30):
        step.call("mul", [first, 1], first + 1)
        step.call("relu", [first + 1], first + 2)
        step.call("mm", [first + 2, 9], first + 3, (32, 32))
    alike = [ObservedCall(one.call, "a.py:1") for one in step.seen]
    (chain,) = chains_of(alike)
    assert chain.count == 3
    assert chain.bytes == 3 * 5 * SIZE


def test_what_was_there_before_and_is_written_in_place_is_still_written() -> None:
    step = Step()
    step.call("mul_", [1, 2], 1)
    step.call("relu", [1], 3)
    (chain,) = chains_of(step.seen)
    assert (chain.bytes, chain.fused_bytes) == (5 * SIZE, 4 * SIZE)


def test_a_copy_into_a_buffer_does_not_read_it() -> None:
    step = Step()
    step.call("mul", [1, 2], 3)
    step.call("copy_", [9, 3], 9)
    (chain,) = chains_of(step.seen)
    assert (chain.bytes, chain.fused_bytes) == (5 * SIZE, 3 * SIZE)


def test_a_tensor_like_another_is_made_without_reading_it() -> None:
    step = Step()
    step.call("relu", [1], 2)
    step.call("zeros_like", [2], 3)
    step.call("add", [3, 4], 5)
    (chain,) = chains_of(step.seen)
    assert chain.operators == ("zeros_like", "add")
    assert (chain.bytes, chain.fused_bytes) == (4 * SIZE, 2 * SIZE)


def cut(storage: int, at: int) -> Tensor:
    """A third of a row of three."""
    return Tensor((N, 8), "fp32", (24, 1), storage, 8 * at)


def test_pieces_of_one_tensor_are_no_chain() -> None:
    def call(name: str, taken: Tensor, made: Tensor) -> ObservedCall:
        return ObservedCall(Call(f"aten::{name}", ((taken,),), ("",), (made,)))

    q, k, v = (cut(1, at) for at in range(3))
    into = [call("relu_", q, q), call("relu_", k, k), call("relu_", v, v)]
    assert chains_of(into) == ()
    (chain,) = chains_of([*into, call("neg", v, Tensor((N, 8), "fp32", (), 7, 0))])
    assert chain.operators == ("relu_", "neg")
    assert (chain.bytes, chain.fused_bytes) == (4 * 8 * SIZE, 3 * 8 * SIZE)


def test_a_part_of_what_a_chain_made_is_at_hand() -> None:
    whole = Tensor((N, 24), "fp32", (), 3, 0)
    step = Step()
    step.call("mul", [1, 2], 3, (N, 24))
    made = Tensor((N, 8), "fp32", (), 6, 0)
    step.seen.append(ObservedCall(Call("aten::relu", ((cut(3, 1),),), ("",), (made,))))
    (chain,) = chains_of(step.seen)
    assert chain.fused_bytes == 2 * whole.bytes + whole.bytes // 3


def backward(step: Step, name: str, inputs: Sequence[int], output: int) -> None:
    step.call(name, inputs, output)
    step.seen[-1] = ObservedCall(step.seen[-1].call, "", backward=True)


def gate(first: str = "mul") -> Step:
    """y = x·s, out = y·tanh(y), a product, and backward: what autograd keeps are y and the tanh."""
    step = Step()
    step.call(first, [1, 2], 3)
    step.call("tanh", [3], 4)
    step.call("mul", [3, 4], 5)
    step.call("mm", [5, 90], 91, (32, 32))
    backward(step, "mm", [92, 90], 6)
    backward(step, "mul", [6, 4], 7)
    backward(step, "mul", [6, 3], 8)
    backward(step, "tanh_backward", [8, 4], 9)
    backward(step, "add", [7, 9], 10)
    return step


def test_a_backward_kernel_computes_again_what_a_forward_one_need_not_write() -> None:
    forward, back = chains_of(gate().seen)
    # x and s are read, the result is written: y and the tanh are not.
    assert (forward.bytes, forward.fused_bytes) == (8 * SIZE, 3 * SIZE)
    # The gradient, x and s are read.
    assert (back.bytes, back.fused_bytes) == (12 * SIZE, 4 * SIZE)


def test_what_is_drawn_is_kept_and_what_is_overwritten_is_gone() -> None:
    forward, back = chains_of(gate("native_dropout").seen)
    assert forward.fused_bytes == 5 * SIZE
    assert back.fused_bytes == 4 * SIZE
    step = gate()
    step.call("add_", [1, 80], 1)
    step.seen.insert(4, step.seen.pop())
    forward, back = chains_of(step.seen)
    assert forward.fused_bytes == 5 * SIZE
    assert back.fused_bytes == 4 * SIZE


def test_what_a_product_takes_is_written_and_what_costs_as_much_again_too() -> None:
    step = gate()
    backward(step, "mm", [4, 90], 95)
    forward, back = chains_of(step.seen)
    assert forward.fused_bytes == 5 * SIZE  # x, s, the result, the tanh, y
    assert back.fused_bytes == 4 * SIZE  # the gradient, y, the tanh


def test_a_buffer_of_very_many_pieces_takes_no_time() -> None:
    """2,000 pieces, twice the uses of a storage that are searched (MOST_USES)."""
    seen = []
    for i in range(2000):
        piece = Tensor((16,), "fp32", (), 1, 16 * i)
        own = Tensor((16,), "fp32", (), i + 2, 0)
        seen.append(ObservedCall(Call("aten::exp", ((piece,),), ("",), (own,))))
        seen.append(ObservedCall(Call("aten::add_", ((piece,), (own,)), ("", ""), (piece,))))
    began = time.process_time()
    (chain,) = chains_of(seen)
    assert (
        time.process_time() - began < 3.2
    )  # as 20 of 5,000 pieces, if the time grew with the square
    assert chain.count == 2000
    assert (chain.bytes, chain.fused_bytes) == (2000 * 5 * 64, 2000 * 2 * 64)


@pytest.mark.parametrize("storage", [0])
def test_of_unknown_storages_nothing_is_said(storage: int) -> None:
    step = Step()
    step.call("mul", [storage, storage], storage)
    step.call("relu", [storage], storage)
    assert chains_of(step.seen) == ()


ROWS = (64, 768)
ALL = 4 * 64 * 768  # bytes of them in fp32


def norm(step: Step, source: int, output: int, shape: tuple[int, ...] = ROWS) -> None:
    """A layer norm without weights."""
    kept = [Tensor((*shape[:-1], 1), "fp32", (), output + n, 0) for n in (100, 200)]
    made = (Tensor(shape, "fp32", (), output, 0), *kept)
    x = (Tensor(shape, "fp32", (), source, 0),)
    call = Call("aten::native_layer_norm", (x, (), (), (), ()), ("", str([shape[-1]])), made)
    step.seen.append(ObservedCall(call, ""))


def test_a_norm_of_rows_is_a_link_like_another() -> None:
    step = Step()
    step.call("add", [1, 2], 3, ROWS)
    norm(step, 3, 4)
    step.call("mul", [4, 5], 6, ROWS)
    (chain,) = chains_of(step.seen)
    assert chain.operators == ("add", "native_layer_norm", "mul")
    # x, y and a factor are read, the result is written; the statistics are small, and not taken.
    assert chain.fused_bytes == 4 * ALL
    assert chain.bytes == pytest.approx(8 * ALL, rel=0.01)


def test_rows_that_no_block_holds_are_none() -> None:
    step = Step()
    step.call("add", [1, 2], 3, (64, 50257))
    norm(step, 3, 4, (64, 50257))
    assert chains_of(step.seen) == ()


def reduce(step: Step, name: str, dims: str, shape: tuple[int, ...]) -> None:
    """Of storage 3, to 4."""
    x, made = Tensor(ROWS, "fp32", (), 3, 0), Tensor(shape, "fp32", (), 4, 0)
    call = Call(f"aten::{name}", ((x,), (), (), ()), ("", dims, "True", ""), (made,))
    step.seen.append(ObservedCall(call, ""))


def test_a_norm_by_hand_is_one_chain() -> None:
    step = Step()
    step.call("mul", [1, 1], 3, ROWS)
    reduce(step, "mean.dim", "[-1]", (64, 1))
    step.call("rsqrt", [4], 5, (64, 1))
    step.call("mul", [1, 5], 6, ROWS)
    (chain,) = chains_of(step.seen)
    assert chain.operators == ("mul", "mean.dim", "rsqrt", "mul")


def test_columns_are_not_reduced_in_a_block() -> None:
    step = Step()
    step.call("mul", [1, 2], 3, ROWS)
    reduce(step, "sum.dim_IntList", "[0]", (1, 768))
    step.call("relu", [3], 5, ROWS)
    assert chains_of(step.seen) == ()


def test_what_belongs_to_another_chain_may_lie_between() -> None:
    """A weight is cast between a norm and the cast of its result."""
    step = Step()
    step.call("add", [1, 2], 3, ROWS)
    step.call("_to_copy", [20], 21, ROWS)
    step.call("relu", [3], 4, ROWS)
    step.call("exp", [21], 22, ROWS)
    chains = chains_of(step.seen)
    assert [chain.operators for chain in chains] == [("add", "relu"), ("_to_copy", "exp")]
    assert [chain.fused_bytes for chain in chains] == [3 * ALL, 2 * ALL]


def test_what_another_chain_takes_in_between_is_written() -> None:
    step = Step()
    step.call("add", [1, 2], 3, ROWS)
    step.call("_to_copy", [20], 21, ROWS)
    step.call("relu", [3], 4, ROWS)
    step.call("mul", [21, 3], 22, ROWS)  # follows both, and is of the last
    step.call("exp", [4], 5, ROWS)
    first, second = chains_of(step.seen)
    assert (first.operators, second.operators) == (("add", "relu", "exp"), ("_to_copy", "mul"))
    assert first.fused_bytes == 4 * ALL  # x, y, and their sum as well as the result
    assert second.fused_bytes == 3 * ALL


def test_what_is_overwritten_in_between_ends_a_chain() -> None:
    step = Step()
    step.call("add", [1, 2], 3, ROWS)
    step.call("add_", [20, 21], 20, ROWS)
    step.call("relu", [3], 4, ROWS)
    assert chains_of(step.seen) == ()


def test_what_a_norm_made_is_not_computed_again() -> None:
    step = gate()
    _, *rest = step.seen
    step.seen = []
    norm(step, 1, 3, (1, N))
    step.seen += rest
    forward, back = chains_of(step.seen)
    assert forward.operators[0] == "native_layer_norm"
    # Of y and its tanh, which a backward kernel takes, neither can be had from x number by number.
    assert forward.fused_bytes == pytest.approx(4 * SIZE, rel=0.01)
    assert back.fused_bytes == 4 * SIZE


def test_a_chain_is_not_held_open_for_ever() -> None:
    step = Step()
    step.call("add", [1, 2], 3, ROWS)
    for i in range(MOST_OPEN):
        step.call("exp", [100 + i], 200 + i, ROWS)
    step.call("relu", [3], 4, ROWS)
    assert chains_of(step.seen) == ()
