"""An error in a user's file names the function that raised, and the line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fake_bench import measure

from gpuperf.measure.registry import load_source
from gpuperf.model.record import Record

TEXT = """
import torch
from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Workload

def helper(x):
    return x * 2

def build(inputs, point, options):
    def call():
        return helper(inputs["x"])
    return call

def reference(inputs, point):
    return inputs["x"].double() * 2

def inputs(point, make):
    return {"x": make((point.n,), point.dtype)}

def cost(point):
    return Cost(bytes=(Bytes(4 * point.n, 4 * point.n),))

MINE = Workload(
    "mine", "y", "y", (Axis("n", 64), Axis("dtype", "fp32", choices=("fp32",))),
    inputs, reference, cost, (Implementation("eager", build),),
)
"""

Measured = Callable[[str, str], Record]


@pytest.fixture
def changed(tmp_path: Path) -> Measured:
    """The record of the workload in which one piece of the text is another."""

    def record(old: str, new: str) -> Record:
        assert old in TEXT
        path = tmp_path / "mine.py"
        path.write_text(TEXT.replace(old, new))
        (workload,) = load_source(str(path))[0].values()
        return measure(workload, n=64, dtype="fp32")

    return record


def test_the_workload_itself_is_right(changed: Measured) -> None:
    assert changed("", "").status == "ok"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "    return x * 2\n",
            "    raise RuntimeError('my kernel broke')\n",
            "the call raised RuntimeError: my kernel broke (mine.py:6)",
        ),
        (
            "    return x * 2\n",
            "    return torch.nn.functional.linear(x, x[:3])\n",
            "the call raised RuntimeError: ",
        ),
        (
            'return inputs["x"].double() * 2',
            'return inputs["y"]',
            "the reference raised KeyError: 'y' (mine.py:14)",
        ),
        (
            "    def call():",
            "    raise ValueError('no tile')\n    def call():",
            "build of eager raised ValueError: no tile (mine.py:9)",
        ),
        (
            'return {"x": make((point.n,), point.dtype)}',
            "return {'x': make((point.z,), 'fp32')}",
            "inputs raised AttributeError: this point has no axis 'z' (mine.py:17)",
        ),
        (
            "    return Cost(bytes=(Bytes(4 * point.n, 4 * point.n),))",
            "    return 1 // 0",
            "cost raised ZeroDivisionError: integer division or modulo by zero (mine.py:20)",
        ),
    ],
    ids=["call", "library", "reference", "build", "inputs", "cost"],
)
def test_an_exception_names_the_function_that_raised_and_the_users_line(
    changed: Measured, old: str, new: str, reason: str
) -> None:
    record = changed(old, new)
    assert record.status == "error"
    assert record.reason.startswith(reason)
    assert "(mine.py:" in record.reason


def test_the_hint_of_an_exception_leads_through_the_users_frames(changed: Measured) -> None:
    record = changed("    return x * 2\n", "    raise RuntimeError('my kernel broke')\n")
    assert record.hint == (
        "mine.py:6 in helper, called by mine.py:10 in call; --debug prints the whole stack"
    )


def test_debug_prints_the_stack_of_the_users_exception(
    changed: Measured, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPUPERF_DEBUG", "1")
    changed("    return x * 2\n", "    raise RuntimeError('my kernel broke')\n")
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "in helper" in err


@pytest.mark.parametrize(
    ("old", "new", "reason", "hint"),
    [
        ("return Cost(bytes", "Cost(bytes", "cost(point) returned None", "returns a Cost("),
        (
            "return Cost(bytes",
            "return Cost((Flops(64, 'gelu', 'fp32'),), bytes",
            "FLOPs of the kind 'gelu'",
            "the kinds are matmul, elementwise, special",
        ),
        (
            "return Cost(bytes=(Bytes(4 * point.n, 4 * point.n),))",
            "return Cost(bytes=(Bytes(4 * point.n, 4 * point.n)))",
            "`bytes` of what cost(point) returned is not a tuple",
            "a comma",
        ),
        ("Bytes(4 * point.n,", "Bytes(4 * point.n / 3,", "returned an invalid Cost", "//"),
        (
            "    return call\n",
            "    return call()\n",
            "build of eager returned a Tensor, not a function",
            "return lambda",
        ),
        ("    return call\n", "", "eager returned a NoneType, not a function", "return lambda"),
    ],
    ids=["no cost", "kind", "no comma", "fraction", "tensor", "nothing built"],
)
def test_a_slip_in_cost_or_build_says_what_to_write(
    changed: Measured, old: str, new: str, reason: str, hint: str
) -> None:
    record = changed(old, new)
    assert record.status == "error"
    assert reason in record.reason
    assert hint in record.hint


def test_an_allocation_that_fails_is_reported_without_the_allocators_words(
    changed: Measured,
) -> None:
    record = changed("return x * 2", "return torch.empty(2**42).sum() + x")
    assert record.status == "oom"
    assert record.reason == "17,592.2 GB could not be allocated (mine.py:6)"


def test_a_result_that_is_random_is_called_so(changed: Measured) -> None:
    record = changed("return x * 2", "return torch.nn.functional.dropout(x * 2, 0.5)")
    assert record.status == "wrong"
    assert "not deterministic" in record.reason
    assert "dropout" in record.hint


def test_a_result_that_is_wrong_in_the_same_way_each_time_is_not_called_random(
    changed: Measured,
) -> None:
    record = changed("return x * 2", "return x * 3")
    assert record.status == "wrong"
    assert "deterministic" not in record.reason


@pytest.mark.parametrize(
    "reference", ['inputs["x"] * 2', 'inputs["x"].half() * 2'], ids=["fp32", "fp16"]
)
def test_a_reference_that_is_not_in_float64_is_refused(changed: Measured, reference: str) -> None:
    record = changed('inputs["x"].double() * 2', reference)
    assert record.status == "error"
    assert "the reference is computed in fp" in record.reason
    assert ".double()" in record.hint
