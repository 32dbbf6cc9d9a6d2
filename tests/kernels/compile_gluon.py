"""Compile our Gluon kernels for an H100 without one, by their own launchers; print errors as JSON.

A driver that launches nothing stands in for that of a GPU. ptxas reports the registers that a
kernel stores to memory, and the products that it makes wait for each other.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton
from gpuperf.kernels import _flash_hopper as forward
from gpuperf.kernels import _flash_hopper_backward as backward
from gpuperf.kernels import _matmul_hopper as matmul
from gpuperf.kernels._flash import Band, Mask
from triton.backends.compiler import GPUTarget

SHARED_BYTES = 227 * 1024  # that a block may have
SPILLED_BYTES = 128  # of a thread, few of them in the loop
CAPPED_BYTES = 256  # the same where scores are capped, whose slope is kept beside the shares


class Absent:
    """A driver of a GPU that is not there."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def compile_only(kernel: Any) -> list[Any]:
    """Make *kernel* compile where it would be launched; return the list of what it compiles."""
    compiled: list[Any] = []
    run = type(kernel).run

    def warm_up(*arguments: Any, **options: Any) -> None:
        compiled.append(run(kernel, *arguments, **{**options, "warmup": True}))

    kernel.run = warm_up
    return compiled


def spilled(ptx: str) -> int:
    """The bytes that a thread stores to memory for want of registers; no product may wait."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(ptx)
        ptxas = triton.knobs.nvidia.ptxas.path
        command = [ptxas, "-v", "--gpu-name=sm_90a", str(source), "-o", "/dev/null"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "serialized" not in said, said
    found = re.search(r"(\d+) bytes spill stores", said)
    assert found, said
    return int(found.group(1))


def hold(kernel: Any, launch: Callable[[], object], spills: int = SPILLED_BYTES) -> list[Any]:
    """Hold what *launch* compiles of *kernel* against the limits of Hopper, and return it."""
    compiled = compile_only(kernel)
    launch()
    for made in compiled:
        assert made.metadata.shared <= SHARED_BYTES, made.metadata
        for word in ("wgmma.mma_async", "cp.async.bulk.tensor", "setmaxnreg.inc"):
            assert word in made.asm["ptx"], word
        assert spilled(made.asm["ptx"]) <= spills
    assert compiled
    return compiled


def tensors(d: int) -> tuple[torch.Tensor, ...]:
    """q, k and v, with two query heads that share a head of keys."""
    return tuple(torch.zeros(1, h, 300, d, dtype=torch.bfloat16) for h in (2, 1, 1))


def softmaxes(made: Any) -> list[str]:
    """The code beside products: between the waits for the scores and for both products."""
    waits = re.split(r"WARPGROUP\.DEPBAR\.LE gsb0, (0x[01])", made.asm["sass"])
    between = zip(waits[1::2], waits[2::2], waits[3::2], strict=False)
    found = [text for first, text, then in between if (first, then) == ("0x1", "0x0")]
    assert found, waits[1::2]
    return found


def overlaps(made: Any) -> None:
    """Hold that a softmax comes before the wait for both products, which ptxas may move."""
    powers = [text.count("MUFU.EX2") for text in softmaxes(made)]
    assert min(powers) > 16, powers


def interleaves(made: Any) -> None:
    """Hold that powers of one row come between the comparisons of another: one row after the other
    takes 9 % longer (d 64)."""
    for text in softmaxes(made):
        runs = re.findall(r"(?:MUFU\.EX2|FMNMX)", text)
        assert sum(a != b for a, b in itertools.pairwise(runs)) > 3, runs


def attention_forward() -> None:
    kernel, launch = forward.forward_hopper_kernel, forward.forward
    plans = [(d, plan) for d, several in forward.PLANS.items() for plan in several]
    masks = (Mask(False, 0, 1.0), Mask(True, 0, 1.0), Mask(True, 0, 1.0, cap=50.0))
    for (d, plan), mask in product(plans, masks):
        for made in hold(kernel, partial(launch, *tensors(d), mask, plan)):
            overlaps(made)
            if mask.kind == "all":
                interleaves(made)


def band() -> Band:
    return Band(*(torch.zeros(300, dtype=torch.int32) for _ in range(4)))


def attention_forward_of_a_band() -> None:
    """Capped, of which the tangent is one instruction."""
    for d in (64, 128, 256):
        mask = Mask(True, 0, 1.0, band(), 50.0)
        kernel, launch = forward.forward_hopper_kernel, forward.forward
        for made in hold(kernel, partial(launch, *tensors(d), mask)):
            overlaps(made)
            assert "tanh.approx" in made.asm["ptx"]


def attention_backward() -> None:
    for quiet in (backward.prepare_kernel, backward.finish_kernel):
        compile_only(quiet)
    for d, plan in backward.PLANS.items():
        q, k, v = tensors(d)
        rest = (q, k, v, q, q, torch.zeros(1, 2, 300), Mask(True, 0, 1.0), plan)
        hold(backward.backward_hopper_kernel, partial(backward.backward, *rest))
        rest = (*rest[:6], Mask(True, 0, 1.0, band(), 50.0), plan)
        hold(backward.backward_hopper_kernel, partial(backward.backward, *rest), CAPPED_BYTES)


def matrix_product() -> None:
    compile_only(matmul.add_kernel)
    a, b = (torch.zeros(n, 1024, dtype=torch.bfloat16) for n in (600, 1024))
    for tile in matmul.TILES:
        hold(matmul.matmul_hopper_kernel, matmul.multiply_by(a, b, tile))
    hold(matmul.matmul_hopper_kernel, matmul.multiply_by(a, b, matmul.TILES[-1], 2))
    a, b = a.to(torch.float8_e4m3fn), torch.zeros(1024, 1024, dtype=torch.float8_e4m3fn).t()
    for tile in matmul.FP8_TILES:
        for made in hold(matmul.matmul_hopper_kernel, matmul.multiply_by(a, b, tile)):
            assert "k32.f32.e4m3.e4m3" in made.asm["ptx"]


CHECKS = (attention_forward, attention_forward_of_a_band, attention_backward, matrix_product)


def error_of(check: Callable[[], None]) -> str:
    try:
        check()
    except Exception:
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    triton.runtime.driver.set_active(Absent())
    torch.cuda.get_device_properties = lambda device: SimpleNamespace(multi_processor_count=132)
    print(json.dumps({check.__name__: error_of(check) for check in CHECKS}), file=sys.stdout)
