"""Does plain library code pass, in a workload that says nothing of its rounding?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fake_bench import assert_wrong, measure

from gpuperf.model.cost import Bytes, Cost, Flops
from gpuperf.model.workload import Axis, Implementation, Point, Workload
from gpuperf.units import itemsize

Compute = Callable[[dict[str, torch.Tensor]], torch.Tensor]


def plain(
    shapes: dict[str, tuple[int, ...]],
    compute: Compute,
    elements: int,
    flops: tuple[int, str] = (0, "elementwise"),
    **more: Any,
) -> Workload:
    """A workload as a user writes it first: no terms, no roundings."""

    def cost(point: Point) -> Cost:
        size = elements * itemsize(point.dtype)
        count, kind = flops
        return Cost((Flops(count, kind, point.dtype),) if count else (), (Bytes(size, size),))

    return Workload(
        "plain",
        "y",
        "y",
        (Axis("dtype", "fp32", choices=("fp32", "bf16", "fp16")),),
        lambda point, make: {name: make(shape, point.dtype) for name, shape in shapes.items()},
        lambda inputs, point: compute({name: x.double() for name, x in inputs.items()}),
        cost,
        (Implementation("eager", lambda inputs, point, options: lambda: compute(inputs)),),
        **more,
    )


GELU = plain(
    {"x": (512, 512), "b": (512,)},
    lambda i: F.gelu(i["x"] + i["b"]),
    512**2,
    (10 * 512**2, "special"),
)
CHAIN = plain(
    {"x": (512, 512), "b": (512,)},
    lambda i: torch.tanh(F.gelu(i["x"] + i["b"]) * i["x"]) + i["b"],
    512**2,
)
BMM = plain(
    {"a": (4, 256, 256), "b": (4, 256, 256)},
    lambda i: torch.bmm(i["a"], i["b"]),
    4 * 256**2,
    (2 * 4 * 256**3, "matmul"),
)
SOFTMAX = plain(
    {"x": (256, 1000)}, lambda i: torch.softmax(i["x"], -1), 256_000, (5 * 256_000, "special")
)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "workload", [GELU, CHAIN, BMM, SOFTMAX], ids=["gelu", "chain", "bmm", "softmax"]
)
def test_plain_torch_code_is_right(workload: Workload, dtype: str) -> None:
    record = measure(workload, dtype=dtype)
    assert (record.status, record.reason) == ("ok", "")


def test_a_workload_that_declares_nothing_has_its_terms_from_the_flops_of_its_cost() -> None:
    assert BMM.terms_of(Point(dtype="fp32")) == 256
    assert GELU.terms_of(Point(dtype="fp32")) == 10
    assert CHAIN.terms_of(Point(dtype="fp32")) == 1


def test_a_workload_that_declares_its_terms_is_given_no_roundings_beside() -> None:
    point = Point(dtype="fp32")
    declared = plain({"x": (64, 64)}, lambda i: i["x"] * 2, 64**2, terms=lambda point: 7)
    assert (declared.terms_of(point), declared.roundings_of(point)) == (7, 0)
    assert CHAIN.roundings_of(point) > 0


def test_a_product_that_lacks_one_of_its_terms_is_still_wrong() -> None:
    def build(inputs: Any, point: Point, options: object) -> Callable[[], torch.Tensor]:
        return lambda: torch.bmm(inputs["a"][:, :, :-1], inputs["b"][:, :-1])

    assert_wrong(measure(BMM, build, dtype="fp32"), "over the tolerance")


def test_the_hint_of_a_near_miss_names_terms_and_roundings_and_that_of_a_far_one_does_not() -> None:
    def off_by(factor: float) -> str:
        declared = plain({"x": (64, 64)}, lambda i: i["x"] * 2, 64**2, terms=lambda point: 1)
        record = measure(declared, lambda i, p, o: lambda: i["x"] * (2 * factor), dtype="fp32")
        assert_wrong(record, "over the tolerance")
        return record.hint

    assert "terms=" in off_by(1 + 1e-6)
    assert "roundings=" in off_by(1 + 1e-6)
    assert "terms=" not in off_by(2.0)


def test_indices_and_masks_are_inputs_like_others() -> None:
    rows, width = 100, 64

    def inputs(point: Point, make: Callable[..., torch.Tensor]) -> dict[str, torch.Tensor]:
        return {
            "table": make((rows, width), point.dtype),
            "index": make((512,), "int64", high=rows),
            "mask": make((512, 1), "bool"),
        }

    def embed(i: dict[str, torch.Tensor]) -> torch.Tensor:
        return F.embedding(i["index"], i["table"]) * i["mask"]

    workload = replace(
        plain({}, embed, 512 * width),
        inputs=inputs,
        reference=lambda i, point: embed({**i, "table": i["table"].double()}),
    )
    record = measure(workload, dtype="fp32")
    assert (record.status, record.reason) == ("ok", "")
