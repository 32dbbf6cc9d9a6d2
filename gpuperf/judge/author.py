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
    r"\b(?:vectorized_|unrolled_)?elementwise_kernel",
    "torch.compile": r"^triton_(?:poi|red|per|tem|unk|for|spl)_(?:fused|\d+$)|"
    r"^triton_(?:mm|bmm|conv\w*)_\d+$",
    "cuDNN": r"cudnn|implicit_convolve|winograd|conv2d_grouped|nchwToNhwc|nhwcToNchw|"
    r"(?:xmma|cutlass)\w*(?:fprop|dgrad|wgrad)",
    "cuBLAS": r"cublas|nvjet|gemvNSP|gemv2T|splitKreduce|xmma_gemm|"
    r"(?:volta|turing|ampere|hopper|maxwell)_\w*gemm|cutlass_\d\d_|cutlass3x_|gemmSN",
    "cuFFT": r"cufft|regular_fft|vector_fft",
    "CUB and Thrust": r"\bcub::|\bthrust::",
    "NCCL": r"^nccl",
}
# These have kernels of other names, whose template arguments are theirs; an own kernel may have
# types of the others, such as c10::BFloat16, among its arguments.
BY_ARGUMENTS = ("cuDNN", "cuBLAS")
_PATTERNS = {name: re.compile(pattern) for name, pattern in LIBRARIES.items()}


def author_of(name: str) -> str:
    """Return the library of the kernel *name*, or `own`."""
    function = re.split(r"[<(]", name.replace("(anonymous namespace)", "anonymous"), maxsplit=1)[0]
    for library, known in _PATTERNS.items():
        if known.search(name if library in BY_ARGUMENTS else function):
            return library
    return OWN


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
