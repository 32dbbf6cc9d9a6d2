"""Does every workload keep its promises? Written once: a new file in kernels/ops is held to it too.

Only what the CPU computes is compared with the reference here, and `ON_THE_CPU` says what that is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from every_case import BROKEN, CPU, FOUND, every_case, odd_points, options, pick, words
from fake_bench import CONTRACT, make_bench

from gpuperf.measure import warmup
from gpuperf.measure.checks import compare, poison
from gpuperf.measure.dropout import RandomCall
from gpuperf.measure.inputs import ByteCounter, bind_make, refill
from gpuperf.model.codec import decode, encode
from gpuperf.model.workload import Case, Description, Implementation, Point, Workload

Named = tuple[Workload, Implementation, Point, dict[str, Any]]


def tensors(value: Any) -> list[torch.Tensor]:
    values = value.values() if isinstance(value, Mapping) else value
    return [value] if isinstance(value, torch.Tensor) else list(values)


def size(values: list[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in values)


of_every_workload = pytest.mark.parametrize(
    "workload", [pytest.param(workload, id=name) for name, workload in FOUND.items()]
)
CASES = list(every_case())
of_every_case = pytest.mark.parametrize(("workload", "implementation", "point", "given"), CASES)


def test_every_file_of_workloads_loads() -> None:
    assert BROKEN == {}
    assert {"copy", "matmul"} <= FOUND.keys()


# The implementations that the CPU computes, Triton's kernels under its interpreter. What supports
# nothing any more would otherwise pass every test.
ON_THE_CPU = {
    "attention": "compile eager sdpa_math triton_flash",
    "block": "bf16 compile fp32 quantized",
    "checkpoint": "full none selective",
    "copy": "torch triton",
    "cross_entropy": "compile torch triton",
    "decode": "eager sdpa triton_split",
    "filter": "arrow numpy numpy_threads torch",
    "groupby": "arrow numpy numpy_threads torch",
    "kv_append": "torch triton",
    "layernorm": "compile torch triton",
    "linear": "dequantize torch triton",
    "linear_cross_entropy": "chunked compile eager torch triton",
    "matmul": "compile torch triton",
    "mlp": "compile eager triton",
    "read": "torch triton",
    "rmsnorm": "compile torch triton",
    "sincos": "compile compile-max-autotune eager triton",
    "sigmoid_stack": "checkpoint compile eager recomputed stored stored_inner",
    "softmax": "compile eager fused online safe torch",
    "sort": "arrow numpy numpy_threads torch",
    "special": "torch",
    "triad": "torch triton",
    "vector_add": "torch triton",
    "write": "torch triton",
}


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs Triton's interpreter")
def test_what_the_cpu_computes_is_what_it_should() -> None:
    computed: dict[str, set[str]] = {}
    for case in CASES:
        workload, implementation, *_ = case.values
        computed.setdefault(workload.name, set()).add(implementation.name)
    assert {name: " ".join(sorted(found)) for name, found in computed.items()} == ON_THE_CPU


def test_a_matmul_is_tried_at_an_odd_shape_that_is_not_square() -> None:
    point = next(odd_points(FOUND["matmul"], {"dtype": "fp32"}))
    assert (point.m, point.n, point.k) == (33, 47, 65)


@of_every_case
def test_an_implementation_matches_the_reference_at_an_odd_size(
    workload: Workload, implementation: Implementation, point: Point, given: Mapping[str, Any]
) -> None:
    """And the bytes that its cost says are written are those of the real output."""
    inputs = workload.inputs(point, bind_make(CPU.torch, 0))
    call = implementation.build(inputs, point, given)
    poison(call())
    before: Mapping[str, Any] = workload.inputs(point, bind_make(CPU.torch, 1))
    refill(inputs, before)
    cost = workload.cost(point)
    accumulate = cost.flops[0].accumulate if cost.flops else ""
    if observe := workload.dropout(point):
        output, before = RandomCall(observe, CPU.torch, [inputs], call).result(before, 2)
    else:
        output = call()
    check = compare(workload, point, before, output, accumulate, pick)
    assert check.rows > 0
    written = sum(b.written for b in cost.bytes)
    if written != size_written(workload, point, before, output):
        # Where the data decide how large a result is, the cost has the expected size.
        sizes = [size_of_result(workload, point, seed, output) for seed in range(40)]
        assert min(sizes) < written < max(sizes)
    for name in inputs.keys() - set(workload.mutates):
        assert torch.equal(inputs[name], before[name]), f"{name} was changed and is not declared"


def size_of_result(workload: Workload, point: Point, seed: int, output: Any) -> int:
    """The bytes of the result of other inputs, in the dtypes of *output*."""
    inputs = workload.inputs(point, bind_make(CPU.torch, seed))
    pairs = zip(tensors(workload.reference(inputs, point)), tensors(output), strict=True)
    return sum(of.numel() * like.element_size() for of, like in pairs)


def size_written(workload: Workload, point: Point, inputs: Mapping[str, Any], output: Any) -> int:
    """The bytes of the output without those elements that a mutated input had already: what stays
    NaN where such an input is NaN was not written."""
    holes = {
        name: torch.full_like(value, torch.nan)
        for name, value in inputs.items()
        if name in workload.mutates and value.is_floating_point()
    }
    if not holes:
        return size(tensors(output))
    kept = tensors(workload.reference({**inputs, **holes}, point))
    pairs = zip(tensors(output), kept, strict=True)
    return sum(int((~k.isnan()).sum()) * o.element_size() for o, k in pairs)


SMALL = {"batch": 1, "heads": 2, "m": 5}  # one program of a kernel for each row of m, each head


def once_a_mode() -> Iterator[Any]:
    """The first case of each implementation in each mode, in fp32 and in int8: the bench makes the
    same checks in the same order for each other dtype, mask, tile and number of rows."""
    seen = set()
    for case in CASES:
        workload, implementation, point, given = case.values
        key = (workload.name, implementation.name, point.get("mode"), point["dtype"])
        if point["dtype"] in ("fp32", "int8") and key not in seen:
            seen.add(key)
            # What compiles has compiled for the point of the other tests.
            few = {} if implementation.name.startswith("compile") else SMALL
            small = Point({name: few.get(name, value) for name, value in point.items()})
            yield pytest.param(workload, implementation, small, given, id=case.id)


@pytest.mark.parametrize(("workload", "implementation", "point", "given"), list(once_a_mode()))
def test_an_implementation_passes_every_check_of_the_bench(
    workload: Workload,
    implementation: Implementation,
    point: Point,
    given: Mapping[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Among them those of what was timed: inputs that change without a new `_version`."""
    monkeypatch.setattr(warmup, "MOST_S", 0.0)  # else up to 30 calls, on a busy host
    case = Case(workload.name, implementation.name, point, given)
    contract = replace(CONTRACT, min_samples=2, budget_s=60.0)
    record = make_bench(facts=CPU.facts).measure(workload, case, contract, "r", 0)
    assert (record.status, record.reason) == ("ok", "")


def are_read(workload: Workload, point: Point) -> list[str]:
    """The inputs that the result depends on: one that is only written on does not count.

    Nothing survives NaN; integers, which have none, are drawn anew. Elements of an input that is
    mutated may stay what they were, which reads nothing.
    """
    inputs = dict(workload.inputs(point, bind_make(CPU.torch, 0)))

    def results(name: str, value: Any) -> list[torch.Tensor]:
        return tensors(workload.reference({**inputs, name: value}, point))

    def is_read(name: str, value: torch.Tensor) -> bool:
        if name in workload.mutates and value.is_floating_point():
            one, two = (results(name, torch.full_like(value, n)) for n in (1.0, 2.0))
            pairs = zip(one, two, strict=True)
            return any(bool(((a != b) & ~((a == 1.0) & (b == 2.0))).any()) for a, b in pairs)
        if value.is_floating_point():
            other = torch.full_like(value, torch.nan)
        else:
            other = workload.inputs(point, bind_make(CPU.torch, 1))[name]
        pairs = zip(before, results(name, other), strict=True)
        return not all(torch.equal(a, b) for a, b in pairs)

    before = tensors(workload.reference(inputs, point))
    return [name for name, value in inputs.items() if is_read(name, value)]


@of_every_workload
def test_the_bytes_read_are_those_of_the_real_inputs(workload: Workload) -> None:
    """From memory or over the host's link; what is read from a cache was read from memory first.

    A copy between GPUs reads an input from the other one, which has a copy of it.
    """
    for chosen in words(workload):
        for point in odd_points(workload, chosen):
            inputs = workload.inputs(point, bind_make(CPU.torch, 0))
            once = [inputs[name] for name in are_read(workload, point)]
            channels = ("dram", "host", "link") if workload.name == "p2p" else ("dram", "host")
            bytes_ = [b for b in workload.cost(point).bytes if b.channel in channels]
            assert sum(b.read for b in bytes_) == size(once), point


def test_of_the_inputs_only_those_that_a_result_depends_on_are_read() -> None:
    for name, read in (("copy", True), ("write", False)):
        for dtype in ("fp32", "int8"):
            point = next(odd_points(FOUND[name], {"dtype": dtype}))
            (vector,) = FOUND[name].inputs(point, ByteCounter())
            assert (vector in are_read(FOUND[name], point)) is read


@of_every_workload
def test_what_is_counted_before_allocation_is_what_is_allocated(workload: Workload) -> None:
    for chosen in words(workload):
        point = next(odd_points(workload, chosen))
        counter = ByteCounter()
        workload.inputs(point, counter)
        inputs = workload.inputs(point, bind_make(CPU.torch, 0))
        assert counter.bytes == size(tensors(inputs)), point


@of_every_workload
def test_a_narrowed_reference_is_those_rows_of_the_whole(workload: Workload) -> None:
    if workload.narrow is None:
        pytest.skip(f"{workload.name} is always checked whole")
    for chosen in words(workload):
        point = next(odd_points(workload, chosen))
        inputs = workload.inputs(point, bind_make(CPU.torch, 0))
        whole = tensors(workload.reference(inputs, point))
        rows = pick(4, whole[0].shape[0])
        narrowed = workload.narrow(inputs, rows)
        if narrowed is None:
            continue
        few = tensors(workload.reference(narrowed, point))
        for wide, narrow in zip(whole, few, strict=True):
            torch.testing.assert_close(narrow, wide[rows], rtol=1e-12, atol=1e-12)


@of_every_workload
def test_a_reference_is_computed_in_float64(workload: Workload) -> None:
    chosen = next(iter(words(workload)))
    point = next(odd_points(workload, chosen))
    inputs = workload.inputs(point, bind_make(CPU.torch, 0))
    for tensor in tensors(workload.reference(inputs, point)):
        assert tensor.dtype in (torch.float64, torch.int64, torch.int32)


@of_every_workload
def test_case_ids_are_unique(workload: Workload) -> None:
    ids = [
        Case(workload.name, implementation.name, point, given).id
        for implementation in workload.implementations
        for chosen in words(workload)
        for point in odd_points(workload, chosen)
        for given in options(implementation)
    ]
    assert len(ids) > 1
    assert len(set(ids)) == len(ids)


@of_every_workload
def test_a_description_comes_back_from_json_as_it_was(workload: Workload) -> None:
    description = workload.describe("gpuperf.kernels")
    line = encode(description)
    assert json.loads(line)["name"] == workload.name
    assert decode(line, Description) == description


@of_every_workload
def test_a_workload_tells_a_reader_what_it_is(workload: Workload) -> None:
    assert workload.summary
    assert workload.formula
    assert any(axis.main for axis in workload.axes), "--sizes has nothing to set"
    assert all(axis.help for axis in workload.axes)
    assert all(implementation.summary for implementation in workload.implementations)


@of_every_workload
def test_a_workload_of_ours_declares_its_rounding_itself(workload: Workload) -> None:
    assert workload.declares_rounding
