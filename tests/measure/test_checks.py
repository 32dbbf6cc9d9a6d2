"""A right result passes and a wrong one is refused, before any time is taken."""

import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from fake_bench import CPU, INCREMENT, Build, FakeTimer, Inputs, assert_wrong, measure, product
from gpuperf.kernels.matmul import MATMUL
from gpuperf.kernels.stream import COPY
from hypothesis import given, settings
from hypothesis import strategies as st
from measured import TESTS

from gpuperf.measure.checks import compare, poison, tolerance
from gpuperf.measure.deviation import UNIT_ROUNDOFF, WrongResult
from gpuperf.measure.inputs import bind_make, torch_dtype
from gpuperf.model.workload import Point


def test_the_tolerance_is_the_sum_of_three_roundings() -> None:
    assert tolerance("fp32", "fp32", 4096) == (4 + 6 * 64) * 2.0**-24
    assert tolerance("bf16", "fp32", 512) == pytest.approx(4 * 2**-8 + 6 * 22.627417 * 2**-24)
    assert tolerance("fp32", "fp32", 1, "tf32") == 10 * 2.0**-24 + 6 * 2.0**-11
    assert tolerance("fp64", "fp64", 0) == 4 * 2.0**-53


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "fp16", "bf16"])
def test_the_unit_roundoff_is_half_the_spacing_at_one(dtype: str) -> None:
    assert torch.finfo(torch_dtype(dtype)).eps / 2 == UNIT_ROUNDOFF[dtype]


@pytest.mark.parametrize(
    "point",
    [
        product(40, 48, 4096, "fp32"),
        product(65, 33, 129, "fp32"),
        product(1, 1, 1, "fp32"),
        product(200, 24, 512, "bf16"),
        product(40, 24, 4096, "bf16"),
        product(40, 24, 300, "fp16"),
        product(40, 24, 1000, "fp64"),
        product(40, 24, 512, "int8"),
    ],
    ids=lambda point: "{m}x{n}x{k} {dtype}".format(**point),
)
def test_a_right_product_passes(point: dict[str, int | str]) -> None:
    record = measure(MATMUL, **point)
    assert (record.status, record.reason) == ("ok", "")
    assert record.check is not None
    assert record.check.error <= record.check.tolerance


def test_a_product_of_4096_terms_in_fp32_is_held_to_23_millionths() -> None:
    check = measure(MATMUL, **product(40, 48, 4096, "fp32")).check
    assert check is not None
    assert check.tolerance == pytest.approx(2.313e-5, rel=1e-3)
    assert check.error < check.tolerance / 4  # not passed by luck


def to_tf32(tensor: torch.Tensor) -> torch.Tensor:
    """Rounded to tf32's 11 bits of significand, as tensor cores do."""
    return ((tensor.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def rounded_product(inputs: Inputs, point: Point, options: object) -> Callable[[], torch.Tensor]:
    return lambda: to_tf32(inputs["a"]) @ to_tf32(inputs["b"])


@pytest.mark.parametrize("k", [16, 512, 4096, 16384])
def test_inputs_rounded_to_tf32_are_no_fp32_product(k: int) -> None:
    record = measure(MATMUL, rounded_product, **product(40, 48, k, "fp32"))
    assert_wrong(record, "over the tolerance")


@pytest.mark.parametrize("k", [16, 512, 4096])
def test_inputs_rounded_to_tf32_are_a_tf32_product(k: int) -> None:
    record = measure(MATMUL, rounded_product, **product(40, 48, k, "tf32"))
    assert record.status == "ok"
    assert "dtype-path" not in {c.kind for c in record.caveats}


def test_a_tf32_product_too_exact_for_tf32_is_doubted() -> None:
    record = measure(MATMUL, **product(40, 48, 512, "tf32"))
    assert record.status == "ok"
    assert "dtype-path" in {c.kind for c in record.caveats}


@pytest.mark.parametrize(
    ("dtype", "k"),
    [("fp32", 64), ("fp32", 4096), ("bf16", 64), ("bf16", 512), ("fp16", 512), ("int8", 512)],
)
def test_one_dropped_term_is_caught(dtype: str, k: int) -> None:
    def build(inputs: Inputs, point: Point, options: object) -> Callable[[], torch.Tensor]:
        a, b = inputs["a"], inputs["b"]
        if point.dtype == "int8":
            return lambda: torch._int_mm(a[:, :-1], b[:-1])
        return lambda: a[:, :-1] @ b[:-1]

    assert_wrong(measure(MATMUL, build, **product(128, 64, k, dtype)), "over the tolerance")


def test_a_product_accumulated_in_bf16_is_no_bf16_product() -> None:
    """Tensor cores accumulate in fp32; a sum kept in bf16 loses all but two digits."""

    def build(inputs: Inputs, point: Point, options: object) -> Callable[[], torch.Tensor]:
        def call() -> torch.Tensor:
            total = torch.zeros(point.m, point.n, dtype=torch.bfloat16)
            for j in range(point.k):
                total += inputs["a"][:, j, None] * inputs["b"][None, j]
            return total

        return call

    assert_wrong(measure(MATMUL, build, **product(40, 24, 512, "bf16")), "over the tolerance")


@pytest.mark.parametrize("where", [0, 17, -1])
def test_int8_must_be_exact(where: int) -> None:
    def build(inputs: Inputs, point: Point, options: object) -> Callable[[], torch.Tensor]:
        def call() -> torch.Tensor:
            result = torch._int_mm(inputs["a"], inputs["b"])
            result[where] += 1
            return result

        return call

    assert_wrong(measure(MATMUL, build, **product(24, 24, 64, "int8")), "tolerance of 0")
    right = measure(MATMUL, **product(24, 24, 64, "int8"))
    assert right.check is not None
    assert (right.check.error, right.check.tolerance) == (0.0, 0.0)


def test_a_wrong_result_is_never_timed() -> None:
    timer = FakeTimer()
    record = measure(
        MATMUL, lambda i, p, o: lambda: i["b"] @ i["a"], timer, **product(64, 64, 64, "fp32")
    )
    assert_wrong(record, "differs from the float64 reference")
    assert record.hint == "nothing was timed"
    assert timer.calls == 0


def test_a_result_kept_from_the_first_call_is_caught() -> None:
    def build(inputs: Inputs, point: Point, options: object) -> Callable[[], torch.Tensor]:
        kept: list[torch.Tensor] = []

        def call() -> torch.Tensor:
            if not kept:
                kept.append(inputs["a"] @ inputs["b"])
            return kept[0].clone()

        return call

    record = measure(MATMUL, build, **product(40, 24, 64, "fp32"))
    assert record.status == "wrong"


def test_a_result_kept_and_handed_out_by_copies_is_caught() -> None:
    """The poison falls on the copy, so only the fresh inputs show it."""

    def build(inputs: Inputs, point: Point, options: object) -> Callable[[], torch.Tensor]:
        kept = inputs["a"] @ inputs["b"]
        return lambda: kept.clone()

    record = measure(MATMUL, build, **product(40, 24, 64, "fp32"))
    assert_wrong(record, "differs from the float64 reference")


def written(rows: slice) -> Build:
    """A product that writes only *rows* of an output made once."""

    def build(inputs: Inputs, point: Point, options: object) -> Callable[[], torch.Tensor]:
        out = inputs["a"] @ inputs["b"]  # once right throughout

        def call() -> torch.Tensor:
            out[rows] = inputs["a"][rows] @ inputs["b"]
            return out

        return call

    return build


@pytest.mark.parametrize("m", [16, 1000])
@pytest.mark.parametrize("rows", [slice(0, -1), slice(1, None), slice(0, 0)])
def test_unwritten_rows_are_caught(m: int, rows: slice) -> None:
    record = measure(MATMUL, written(rows), **product(m, 128, 32, "fp32"))
    assert_wrong(record, "unwritten")


def test_one_unwritten_row_in_the_middle_of_many_is_caught() -> None:
    def build(inputs: Inputs, point: Point, options: object) -> Callable[[], torch.Tensor]:
        out = torch.empty(point.m, point.n)

        def call() -> torch.Tensor:
            for rows in (slice(0, 1234), slice(1235, None)):
                out[rows] = inputs["a"][rows] @ inputs["b"]
            return out

        return call

    assert_wrong(measure(MATMUL, build, **product(5000, 128, 16, "fp32")), "unwritten")


def test_a_tail_computed_wrongly_is_caught() -> None:
    """The last row of a size that no tile divides, off by a term."""

    def build(inputs: Inputs, point: Point, options: object) -> Callable[[], torch.Tensor]:
        def call() -> torch.Tensor:
            result = inputs["a"] @ inputs["b"]
            result[-1] -= inputs["a"][-1, -1] * inputs["b"][-1]
            return result

        return call

    assert_wrong(measure(MATMUL, build, **product(4097, 128, 32, "fp32")), "over the tolerance")


@pytest.mark.parametrize("m", [8, 1000])
def test_half_a_result_has_the_wrong_shape(m: int) -> None:
    def build(inputs: Inputs, point: Point, options: object) -> Callable[[], torch.Tensor]:
        return lambda: inputs["a"][: m // 2] @ inputs["b"]

    record = measure(MATMUL, build, **product(m, 128, 32, "fp32"))
    assert_wrong(record, f"has the shape ({m // 2}, 128) where ({m}, 128) is right")


def test_a_result_longer_than_it_should_be_has_the_wrong_shape() -> None:
    def build(inputs: Inputs, point: Point, options: object) -> Callable[[], torch.Tensor]:
        return lambda: torch.cat([inputs["a"] @ inputs["b"]] * 2)

    record = measure(MATMUL, build, **product(1000, 128, 32, "fp32"))
    assert_wrong(record, "has the shape (2000, 128) where (1000, 128) is right")


def test_a_scalar_has_the_wrong_shape() -> None:
    record = measure(
        MATMUL, lambda i, p, o: lambda: (i["a"] @ i["b"]).sum(), **product(8, 8, 8, "fp32")
    )
    assert_wrong(record, "has the shape () where (8, 8) is right")


LARGE_PRODUCT = """
import sys
from fake_bench import measure, product
from gpuperf.kernels.matmul import MATMUL
record = measure(MATMUL, **product(1000, 64, 32, "fp32"))
print(record.status, "torch._dynamo" in sys.modules)
"""


def test_the_check_of_a_product_imports_nothing_of_torchs_compiler() -> None:
    """A second of each process, of which a gate has many."""
    done = subprocess.run(
        [sys.executable, "-c", LARGE_PRODUCT],
        capture_output=True,
        text=True,
        cwd=TESTS,
        check=False,
    )
    assert done.stdout.split() == ["ok", "False"], done.stderr


@pytest.mark.parametrize("result", [None, 3.0, "done", [1, 2]])
def test_what_is_no_tensor_is_wrong(result: object) -> None:
    record = measure(MATMUL, lambda i, p, o: lambda: result, **product(8, 8, 8, "fp32"))
    assert_wrong(record, f"is a {type(result).__name__}, not a tensor or a tuple of tensors")


def test_too_many_tensors_are_wrong() -> None:
    def build(inputs: Inputs, point: Point, options: object) -> Callable[[], object]:
        return lambda: (inputs["a"] @ inputs["b"],) * 2

    for m in (8, 1000):
        record = measure(MATMUL, build, **product(m, 128, 8, "fp32"))
        assert_wrong(record, "is 2 tensors where the reference is 1")


def test_infinity_is_wrong() -> None:
    def build(inputs: Inputs, point: Point, options: object) -> Callable[[], torch.Tensor]:
        return lambda: (inputs["a"] @ inputs["b"]).fill_(math.inf)

    assert_wrong(measure(MATMUL, build, **product(8, 8, 8, "fp32")), "differs")


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("n", [7, 2**18 + 3])
def test_a_copy_that_stops_one_element_short_is_caught(dtype: str, n: int) -> None:
    def build(inputs: Inputs, point: Point, options: object) -> Callable[[], torch.Tensor]:
        out = torch.empty_like(inputs["x"])

        def call() -> torch.Tensor:
            out[:-1] = inputs["x"][:-1]
            return out

        return call

    assert measure(COPY, n=n, dtype=dtype).status == "ok"
    assert measure(COPY, build, n=n, dtype=dtype).status == "wrong"


def test_a_hundredth_of_a_copy_wrong_is_caught() -> None:
    def build(inputs: Inputs, point: Point, options: object) -> Callable[[], torch.Tensor]:
        def call() -> torch.Tensor:
            out = inputs["x"].clone()
            out[50::100] += 1
            return out

        return call

    assert_wrong(measure(COPY, build, n=10**6, dtype="fp32"), "over the tolerance")


def test_poison_overwrites_every_element() -> None:
    floats = [torch.zeros(3, dtype=torch_dtype(d)) for d in ("fp64", "fp32", "fp16", "bf16", "fp8")]
    poison(tuple(floats))
    assert all(torch.isnan(tensor.float()).all() for tensor in floats)
    whole = torch.zeros(3, dtype=torch.int8)
    poison(whole)
    assert whole.tolist() == [-128] * 3


def test_a_declared_change_of_an_input_is_held_against_what_was_there_before() -> None:
    assert measure(INCREMENT, n=100, dtype="fp32").status == "ok"
    undeclared = replace(INCREMENT, mutates=())
    assert measure(undeclared, n=100, dtype="fp32").status == "wrong"


@settings(max_examples=30)
@given(st.integers(1, 40), st.integers(1, 20), st.integers(1, 30), st.data())
def test_a_product_narrowed_to_rows_gives_these_rows(
    m: int, n: int, k: int, data: st.DataObject
) -> None:
    point = Point(product(m, n, k, "fp32"))
    inputs = MATMUL.inputs(point, bind_make(CPU, 3))
    rows = torch.tensor(data.draw(st.lists(st.integers(0, m - 1), min_size=1)))
    assert MATMUL.narrow is not None
    few = MATMUL.reference(MATMUL.narrow(inputs, rows), point)
    # BLAS may sum in another order for another shape, so not to the last bit.
    assert torch.allclose(few, MATMUL.reference(inputs, point)[rows], rtol=1e-12, atol=1e-12)


@given(st.integers(1, 100), st.data())
def test_a_copy_narrowed_to_rows_gives_these_rows(n: int, data: st.DataObject) -> None:
    point = Point(n=n, dtype="bf16")
    inputs = COPY.inputs(point, bind_make(CPU, 3))
    rows = torch.tensor(data.draw(st.lists(st.integers(0, n - 1), min_size=1)))
    assert COPY.narrow is not None
    few = COPY.reference(COPY.narrow(inputs, rows), point)
    assert torch.equal(few, COPY.reference(inputs, point)[rows])


def test_a_big_product_is_checked_on_a_few_rows_with_the_first_and_the_last() -> None:
    asked: list[torch.Tensor] = []

    def narrow(inputs: Inputs, rows: torch.Tensor) -> Inputs:
        asked.append(rows)
        assert MATMUL.narrow is not None
        return MATMUL.narrow(inputs, rows)

    record = measure(replace(MATMUL, narrow=narrow), **product(4096, 256, 8, "fp32"))
    assert record.check is not None
    assert record.check.rows == 32
    rows = max(asked, key=len)
    assert len(rows) == 32
    assert (rows[0], rows[-1]) == (0, 4095)


def test_a_reference_that_disagrees_by_hand() -> None:
    """[1, 0.5] against [1, 1]: the error is 0.5 of max(|1|, rms 1)."""
    one = replace(COPY, reference=lambda inputs, point: torch.ones(2, dtype=torch.float64))
    got = torch.tensor([1.0, 0.5])
    with pytest.raises(WrongResult, match=r"by 0\.5 of the values' size"):
        compare(one, Point(n=2, dtype="fp32"), {"x": got}, got, "fp32", lambda count, n: got)


def test_an_element_that_cancels_is_held_to_the_size_of_the_others() -> None:
    want = torch.tensor([0.0, 3.0, 4.0, 0.0], dtype=torch.float64)  # rms 2.5
    workload = replace(COPY, reference=lambda inputs, point: want)
    got = torch.tensor([2.5e-7, 3.0, 4.0, 0.0])
    check = compare(
        workload, Point(n=4, dtype="fp32"), {"x": got}, got, "fp32", lambda count, n: got
    )
    assert check.error == pytest.approx(1e-7, rel=1e-6)


def test_a_wrong_second_output_is_not_hidden_by_an_infinite_reference() -> None:
    want = (torch.zeros(4).double(), torch.tensor([1.0, torch.inf]).double())
    workload = replace(COPY, reference=lambda inputs, point: want, narrow=None)
    got = (torch.zeros(4), torch.full((2,), 123.0))
    with pytest.raises(WrongResult):
        compare(workload, Point(n=4, dtype="fp32"), {}, got, "fp32", lambda c, n: got[0])


def test_an_infinity_that_is_right_is_right() -> None:
    want = torch.tensor([1.0, -torch.inf]).double()
    workload = replace(COPY, reference=lambda inputs, point: want, narrow=None)
    point = Point(n=2, dtype="fp32")
    check = compare(workload, point, {}, want.float(), "fp32", lambda c, n: want)
    assert check.error <= check.tolerance


def test_a_head_whose_row_cancels_is_as_exact_as_that_row_of_the_others() -> None:
    """Gradients under a causal mask: the first rows are large, and one head's cancels."""
    want = torch.full((1, 64, 1000, 8), 0.01).double()
    want[:, :, :2] = 1.0
    want[0, 5, 1] = 1e-4
    workload = replace(COPY, reference=lambda inputs, point: want, narrow=None)
    point = Point(n=8, dtype="bf16")

    def error_at(row: int) -> float:
        got = want.bfloat16()
        got[0, 5, row] += 0.002
        return compare(workload, point, {}, got, "fp32", lambda c, n: want[0]).error

    assert error_at(1) < 0.01
    with pytest.raises(WrongResult):
        error_at(500)
