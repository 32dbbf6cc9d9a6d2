"""Tell by the name of a kernel which library it is from; any other kernel is the submission's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from gpuperf.judge.evidence import Ran
from gpuperf.model.kernelname import COMPUTING, kind_of

OWN = "own"
# The first pattern that matches decides. Kernels of CUTLASS in a namespace of PyTorch are its own.
LIBRARIES: Mapping[str, str] = {
    "PyTorch": r"at::native|at::cuda|at_cuda_detail|pytorch_flash|\bc10::|fmha_cutlass|"
    r"vectorized_elementwise|elementwise_kernel",
    "torch.compile": r"^triton_(?:poi|red|per|tem|mm|bmm|conv|unk|for|spl)_",
    "cuDNN": r"cudnn|implicit_convolve|winograd|conv2d_grouped|nchwToNhwc|nhwcToNchw|"
    r"fprop|dgrad|wgrad",
    "cuBLAS": r"cublas|nvjet|gemvNSP|gemv2T|splitKreduce|xmma_gemm|"
    r"(?:volta|turing|ampere|hopper|maxwell)_\w*gemm|cutlass_\d\d_|cutlass3x_|dot_kernel|"
    r"gemmk1_kernel|gemmSN",
    "cuFFT": r"cufft|regular_fft|vector_fft",
    "CUB and Thrust": r"\bcub::|\bthrust::",
    "NCCL": r"^nccl",
}
_PATTERNS = {name: re.compile(pattern) for name, pattern in LIBRARIES.items()}


def author_of(name: str) -> str:
    """Return the library of the kernel *name*, or `own`."""
    return next((lib for lib, known in _PATTERNS.items() if known.search(name)), OWN)


def shares(ran: Iterable[Ran]) -> dict[str, float]:
    """Return the share of the kernels' time by author, the largest first."""
    by: dict[str, float] = {}
    for one in ran:
        if kind_of(one.name) in COMPUTING:
            author = author_of(one.name)
            by[author] = by.get(author, 0.0) + one.seconds
    total = sum(by.values())
    ordered = sorted(by.items(), key=lambda item: -item[1])
    return {author: seconds / total for author, seconds in ordered if total > 0}
