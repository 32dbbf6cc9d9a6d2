"""Our Triton kernels compile for Hopper, use its instructions, and fit into its shared memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpuperf.jit import triton

PROGRAM = Path(__file__).with_name("compile_for_hopper.py")


@pytest.fixture(scope="module")
def errors() -> dict[str, str]:
    """The error of each check in PROGRAM, run once: its start takes longer than most checks."""
    command = [sys.executable, str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


CHECKS = ["flash_forward", "flash_backward", "matmul", "linear_layer", "wide_linear_layer"]
CHECKS += ["sincos", "decode", "mlp", "cross_entropy", "linear_cross_entropy"]
CHECKS += ["rows_in_registers", "rows_in_pieces", "other_kernels_of_rows"]
needs_triton = pytest.mark.skipif(triton is None, reason="needs Triton")


@needs_triton
def test_no_check_is_left_out(errors: dict[str, str]) -> None:
    assert list(errors) == CHECKS


@needs_triton
@pytest.mark.parametrize("check", CHECKS)
def test_the_kernels_compile_for_hopper_and_fit_it(check: str, errors: dict[str, str]) -> None:
    assert errors[check] == ""
