"""Do our Gluon kernels compile for Hopper, fit it, and say what they do not take?"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from gpuperf.kernels import _flash_hopper as forward
from gpuperf.kernels import _matmul_hopper as matmul
from gpuperf.kernels._gluon import gl
from gpuperf.kernels.attention import ATTENTION
from gpuperf.kernels.matmul import MATMUL

from gpuperf.model.contract import DeviceFacts
from gpuperf.model.workload import Point, Workload

PROGRAM = Path(__file__).with_name("compile_gluon.py")
CHECKS = [
    "attention_forward",
    "attention_forward_of_a_band",
    "attention_backward",
    "matrix_product",
]
HOPPER = DeviceFacts("cuda", 0, "GPU", 132, 0, 0, capability="9.0")
AMPERE = DeviceFacts("cuda", 0, "GPU", 108, 0, 0, capability="8.0")
PROCESSORS = 132

needs_gluon = pytest.mark.skipif(gl is None, reason="needs Triton 3.6")


@pytest.fixture(scope="module")
def errors() -> dict[str, str]:
    """The error of each check in PROGRAM, a process of its own that Triton does not interpret."""
    done = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@needs_gluon
@pytest.mark.parametrize("check", CHECKS)
def test_the_kernels_compile_for_hopper_by_their_launchers(
    check: str, errors: dict[str, str]
) -> None:
    assert list(errors) == CHECKS
    assert errors[check] == ""


@pytest.mark.parametrize("workload", [ATTENTION, MATMUL], ids=lambda workload: workload.name)
def test_gluon_needs_a_hopper_gpu(workload: Workload) -> None:
    (gluon,) = (i for i in workload.implementations if i.name.startswith("gluon"))
    point = Point({**{axis.name: axis.default for axis in workload.axes}, "dtype": "bf16"})
    assert gluon.supports(point, AMPERE) == "needs a Hopper GPU"
    crooked = Point({**point, "head_dim": 80, "n": 100})
    assert "multiple" in str(gluon.supports(crooked, HOPPER)) or "one of 64, 128, 256" in str(
        gluon.supports(crooked, HOPPER)
    )


def test_every_head_dim_has_a_plan() -> None:
    assert set(forward.PLANS) == {64, 128, 256}


def test_a_size_with_a_poor_last_wave_gets_another_tile() -> None:
    """3072 rows and columns are 288 tiles of 128 x 256, of which 24 are a wave of their own."""
    chosen = {size: matmul.choose(size, size, size, PROCESSORS)[0] for size in (3072, 4096)}
    assert (chosen[3072].members, chosen[3072].columns) == (3, 128)
    assert (chosen[4096].members, chosen[4096].columns) == (2, 256)


def test_few_rows_are_divided_along_k() -> None:
    tile, splits = matmul.choose(16, 1024, 16384, PROCESSORS)
    assert tile.members == 1
    assert splits > 1
    assert matmul.choose(4096, 4096, 4096, PROCESSORS)[1] == 1


def test_no_tile_is_faster_than_the_tensor_cores() -> None:
    """4096 FLOP a cycle of a multiprocessor: 989.4 TFLOP/s at 132 of them and 1.83 GHz."""
    assert max(tile.rate for tile in matmul.TILES) < 4096
    for m, n, k in ((4096, 4096, 4096), (3000, 5000, 7000), (64, 8192, 8192)):
        tile, splits = matmul.choose(m, n, k, PROCESSORS)
        least = 2 * m * n * k / 4096 / PROCESSORS
        assert matmul.cycles(m, n, k, tile, splits, PROCESSORS) > least


def test_fp8_has_tiles_of_its_own_and_rows_of_16_elements() -> None:
    assert max(tile.rate for tile in matmul.FP8_TILES) < 2 * 4096
    for size in ((4096, 4096, 4096), (16, 1024, 16384)):
        tile, splits = matmul.choose(*size, PROCESSORS, 1)
        assert tile in matmul.FP8_TILES
        assert matmul.fits(tile, splits, 1)
    point = Point({"m": 8, "n": 24, "k": 64, "dtype": "fp8"})
    assert "multiples of 16" in str(matmul.gluon_supports(point, HOPPER))


@pytest.mark.parametrize("lacking", ["triton", "triton.experimental"])
@pytest.mark.parametrize("module", ["attention", "matmul", "norms", "linear", "decode"])
def test_workloads_are_there_without_triton_or_without_gluon(module: str, lacking: str) -> None:
    program = f"import sys; sys.modules['{lacking}'] = None; import gpuperf.kernels.{module}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
