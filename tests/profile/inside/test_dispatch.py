"""Is every operator of a step written down, with its tensors, its line, and what it waits for?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import gpuperf
from gpuperf import marks
from gpuperf.model.aten import Tensor
from gpuperf.model.program import ObservedCall
from gpuperf.profile.inside import dispatch as watching
from gpuperf.profile.inside.dispatch import CallRecorder, FlopCounter


def seen(run: Callable[[], Any]) -> list[ObservedCall]:
    watch = CallRecorder()
    with watch:
        run()
    assert watch.missed == 0
    return watch.calls


def test_a_product_has_its_inputs_and_its_output() -> None:
    a, b = torch.ones(3, 4), torch.ones(4, 5, dtype=torch.float32)
    (one,) = seen(lambda: a @ b)
    assert one.call.name == "aten::mm"
    assert [t.shape for t in one.call.tensors] == [(3, 4), (4, 5)]
    assert [(t.shape, t.dtype) for t in one.call.outputs] == [((3, 5), "fp32")]
    assert one.where.startswith("tests/profile/inside/test_dispatch.py:") or one.where.endswith(
        f"test_dispatch.py:{one.where.rpartition(':')[2]}"
    )
    assert not one.backward
    assert one.waits == ""


class Half(torch.Tensor):
    """A matrix of which this process has the upper half of the rows, as a sharded one."""

    @staticmethod
    def __new__(cls, part: torch.Tensor) -> Half:
        shape = (2 * part.shape[0], part.shape[1])
        made: Half = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=part.dtype)  # type: ignore[attr-defined]
        made.part = part
        return made

    part: torch.Tensor

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["part"], None

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> torch.Tensor:
        plain = [a.part if isinstance(a, Half) else a for a in args]
        return cls(func(*plain, **(kwargs or {})))


def test_an_operator_on_a_subclass_is_what_it_runs_here() -> None:
    """FLOPs by its shape would be those of all processes together."""
    whole, weight = Half(torch.ones(3, 4)), torch.nn.Parameter(torch.ones(4, 5))
    found = []

    def run() -> None:
        with FlopCounter() as counter:
            found.append(whole @ weight)
        assert counter.count == 2 * 3 * 4 * 5

    (one,) = seen(run)
    assert [t.shape for t in one.call.tensors] == [(3, 4), (4, 5)]
    (product,) = found
    assert isinstance(product, Half)
    assert product.shape == (6, 5)
    assert product.part.tolist() == [[4.0] * 5] * 3


class Tag(torch.Tensor):
    """A subclass that wraps nothing, and leaves operators to torch."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_dispatch__(func, types, args, kwargs or {})  # type: ignore[misc]


def test_an_operator_on_a_subclass_that_wraps_nothing_is_recorded() -> None:
    tagged, weight = torch.ones(3, 4).as_subclass(Tag), torch.ones(4, 5)
    with FlopCounter() as counter:
        calls = seen(lambda: tagged @ weight)
    assert [one.call.name for one in calls] == ["aten::mm"]
    assert counter.count == 2 * 3 * 4 * 5


def test_operators_that_only_infer_shapes_are_not_recorded() -> None:
    """As DTensor does for shapes that it has not seen."""

    def run() -> None:
        with FakeTensorMode() as mode:
            fake = mode.from_tensor(torch.ones(3, 4))
            assert (fake @ torch.empty(4, 5)).shape == (3, 5)

    with FlopCounter() as counter:
        assert seen(run) == []
    assert counter.count == 0


def test_arguments_stand_in_the_schemas_order_defaults_too() -> None:
    x = torch.ones(2, 3)
    (one,) = seen(lambda: torch.softmax(x, dim=-1))
    assert one.call.name == "aten::_softmax"
    assert len(one.call.inputs) == len(one.call.concrete) == 3
    assert one.call.concrete == ("", "-1", "False")


def test_a_list_of_tensors_is_one_argument() -> None:
    x, y = torch.ones(2, 3), torch.ones(4, 3)
    (one,) = seen(lambda: torch.cat([x, y]))
    assert [[t.shape for t in group] for group in one.call.inputs] == [[(2, 3), (4, 3)], []]


def test_a_view_shares_its_storage_and_an_expanded_axis_has_no_stride() -> None:
    x = torch.ones(3, 1)
    calls = [one.call for one in seen(lambda: x.expand(3, 7) + 1)]
    assert [call.name for call in calls] == ["aten::expand", "aten::add"]
    (view,) = calls[0].outputs
    assert view.storage == calls[0].tensors[0].storage != 0
    assert view == Tensor((3, 7), "fp32", (1, 0), view.storage, 0)
    assert view.distinct == 3
    assert calls[1].outputs[0].storage not in (0, view.storage)


def test_what_is_written_in_place_lies_where_it_lay() -> None:
    x = torch.ones(8)
    (one,) = seen(lambda: x.add_(1))
    assert one.call.name == "aten::add_"
    assert one.call.outputs[0].storage == one.call.tensors[0].storage


def test_memory_that_is_used_again_is_another_storage() -> None:
    def run() -> None:
        for _ in range(3):
            torch.empty(1 << 16).fill_(1.0)  # freed at once, and likely given out again

    outputs = [one.call.outputs[0].storage for one in seen(run) if one.call.name == "aten::empty"]
    assert len(set(outputs)) == 3


def test_a_backward_pass_is_told_from_a_forward_one() -> None:
    x = torch.ones(4, 4, requires_grad=True)
    both = seen(lambda: (x * 2).sum().backward())
    assert [one.backward for one in both if one.call.name == "aten::sum"] == [False]
    assert any(one.backward for one in both)


def test_on_a_cpu_nothing_waits() -> None:
    x = torch.ones(4)
    assert [one.waits for one in seen(lambda: x.sum().item())] == ["", ""]


def test_dtypes_have_their_short_names() -> None:
    x = torch.ones(2, dtype=torch.bfloat16)
    calls = [one.call for one in seen(lambda: (x.to(torch.float64), x > 0))]
    assert [call.outputs[0].dtype for call in calls] == ["fp64", "bool"]


def test_a_custom_operator_costs_what_its_program_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(marks, "COSTS", {})
    monkeypatch.setattr(watching, "COSTS", marks.COSTS)
    gpuperf.register_cost(
        "aten::mul",
        lambda call: gpuperf.Cost((gpuperf.Flops(call.tensors[0].size, "special", "fp32"),)),
    )
    gpuperf.register_cost("aten::add", lambda call: call.nonsense)
    x = torch.ones(3, 5)
    one, other = seen(lambda: (x * x, x + x))
    assert one.cost is not None
    assert one.cost.flop_count == 15
    assert other.cost is None
    assert "the cost of aten::add failed" in capsys.readouterr().err
    with pytest.raises(ValueError, match="is not the name of an operator"):
        gpuperf.register_cost("rope", lambda call: None)


def nested() -> float:
    some = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
    return float((some * 2).to_padded_tensor(0.0).sum())


def jagged() -> float:
    parts = [torch.ones(2, 3), torch.ones(4, 3)]
    return float((torch.nested.nested_tensor(parts, layout=torch.jagged) * 2).values().sum())


def sparse() -> float:
    return float((torch.eye(3).to_sparse() @ torch.ones(3, 3)).sum())


def sparse_rows() -> float:
    return float((torch.eye(3).to_sparse_csr() @ torch.ones(3, 3)).sum())


def branch() -> float:
    x = torch.ones(3)
    return float(torch.cond(x.sum() > 100, lambda y: y * 2, lambda y: y - 5, (x,)).sum())


@pytest.mark.filterwarnings("ignore")  # of torch's prototypes
@pytest.mark.parametrize("run", [nested, jagged, sparse, sparse_rows, branch])
def test_what_cannot_be_written_down_runs_all_the_same(run: Callable[[], float]) -> None:
    alone = run()
    with FlopCounter(), CallRecorder() as watch:
        assert run() == alone
    assert watch.calls


def test_an_error_of_the_programs_own_passes_through() -> None:
    with FlopCounter(), CallRecorder(), pytest.raises(RuntimeError, match="cannot be multiplied"):
        torch.ones(2, 3) @ torch.ones(2, 3)


def test_a_name_of_any_bytes_can_be_told() -> None:
    assert watching.short_path("/some\udcff/train.py") == "/some?/train.py"
    assert watching._text("\ud800") == "?"


def test_torchs_count_of_a_layer_is_that_of_its_product() -> None:
    layer = torch.nn.Linear(4, 5, bias=False)
    with torch.inference_mode(), FlopCounter() as flops:
        layer(torch.ones(3, 4))
    assert flops.count == 2 * 3 * 4 * 5


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_a_checkpoint_computes_again_is_told(reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    one, two = (torch.randn(8, 8, requires_grad=True) for _ in range(2))
    x = torch.randn(4, 8, requires_grad=True)
    watch = CallRecorder()
    with watch:
        y = checkpoint(lambda x: (x @ one).relu() @ two, x, use_reentrant=reentrant)
        y.sum().backward()
    products = [call for call in watch.calls if call.call.name == "aten::mm"]
    told = [(call.backward, call.again) for call in products]
    forward, again, backward = (False, False), (True, True), (True, False)
    assert told == [forward] * 2 + [again] * told.count(again) + [backward] * 4
    assert told.count(again) in (1, 2)  # the last product is no input of the backward pass


class Storage:
    """An argument whose text would print each of its bytes."""

    def __str__(self) -> str:
        raise AssertionError("the text of this argument is not to be made")

    __repr__ = __str__


def test_only_numbers_and_words_get_a_text_and_the_rest_the_name_of_its_type() -> None:
    texts = [
        watching._text(v)
        for v in (
            True,
            3,
            -1.5,
            2j,
            "mean",
            torch.float32,
            torch.device("cpu"),
            torch.strided,
            torch.contiguous_format,
            [1, 2],
            (3, 4),
            torch.Size([5]),
            [True, False],
            None,
        )
    ]
    assert texts == [
        "True",
        "3",
        "-1.5",
        "2j",
        "mean",
        "torch.float32",
        "cpu",
        "torch.strided",
        "torch.contiguous_format",
        "[1, 2]",
        "[3, 4]",
        "[5]",
        "[True, False]",
        "",
    ]
    assert watching._text(Storage()) == watching._text([Storage()]).strip("[]") == "Storage"
    assert watching._text([1] * 10**6) == "list"
    assert watching._text(10**10_000) == "int"
    assert len(watching._text("x" * 10**6)) == watching.LONGEST


def test_a_storage_of_megabytes_is_an_argument_like_any_other() -> None:
    x = torch.zeros(2**22)
    storage = torch.UntypedStorage(2**24)
    calls = [one.call for one in seen(lambda: x.set_(storage))]
    assert [call.name for call in calls] == ["aten::set_"]
    assert calls[0].concrete[1] == "UntypedStorage"


def test_a_pass_that_spent_its_time_writes_no_more_down(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, x = CallRecorder(), torch.ones(2)
    with watch:
        x.add_(1)
        watch.spent_s = watching.MOST_S
        x.add_(1)
        x.add_(1)
    assert (len(watch.calls), watch.missed, watch.full) == (1, 2, True)
    assert x.tolist() == [4, 4]


@pytest.mark.parametrize(
    ("pinned", "on_gpu", "waits"),
    [(False, True, "copy from pageable memory"), (True, True, ""), (False, False, "")],
)
def test_a_copy_to_a_gpu_waits_where_its_memory_is_not_pinned(
    pinned: bool, on_gpu: bool, waits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, made = torch.ones(2), torch.ones(3)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: pinned)
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda t: on_gpu and len(t) == 3))
    func = torch.ops.aten._to_copy.default
    assert watching._waits(func, "aten::_to_copy", [source], made) == waits
