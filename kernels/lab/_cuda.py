"""Launch the CUDA C kernel of an experiment, whose source is a text in the experiment's file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gpuperf.nvrtc import F32, POINTER, U32, kernel_in


class CudaCall:
    """A call of one kernel on the current stream, which returns the tensor `result`."""

    def __init__(self, kernel: Any, result: torch.Tensor, launch: Callable[[int], None]) -> None:
        self._kernel, self._result, self._launch = kernel, result, launch

    def __call__(self) -> torch.Tensor:
        self._launch(torch.cuda.current_stream(self._result.device).cuda_stream)
        return self._result

    def readings(self) -> dict[str, float]:
        """Return the bytes of local memory of a thread: an experiment with spills is void."""
        return {"local_bytes": float(self._kernel.local_bytes)}


def cuda_call(
    source: str, name: str, result: torch.Tensor, grid: int, block: int, *arguments: Any
) -> CudaCall:
    """Build the call of the kernel *name* in the CUDA C text *source*.

    A tensor is passed as its address, an int as `unsigned int`, a float as `float`; a pair
    `(value, type)` has a type of `gpuperf.nvrtc`, such as `U64`.
    """
    major, minor = torch.cuda.get_device_capability(result.device)
    kernel = kernel_in(source, f"sm_{major}{minor}", name)
    pairs = [_typed(argument) for argument in arguments]
    values, types = [value for value, _ in pairs], [kind for _, kind in pairs]
    return CudaCall(kernel, result, lambda s: kernel.launch(s, grid, block, values, types))


def _typed(argument: Any) -> tuple[float, Any]:
    if isinstance(argument, torch.Tensor):
        return argument.data_ptr(), POINTER
    if isinstance(argument, tuple):
        return argument
    return argument, F32 if isinstance(argument, float) else U32


def sm_count(tensor: torch.Tensor) -> int:
    """Return the number of SMs of the device of *tensor*."""
    return int(torch.cuda.get_device_properties(tensor.device).multi_processor_count)


def lacks_cuda(point: Any, device: Any) -> str | None:
    """Return why CUDA C cannot run on *device*, or None where it can."""
    return None if device.kind == "cuda" else "CUDA C needs an NVIDIA GPU"


def block_count(tensor: torch.Tensor, blocks: int = 1) -> int:
    """Return the blocks of a grid with *blocks* on each SM; a CPU, which checks the arithmetic of a
    reference in tests, has two SMs."""
    return blocks * (sm_count(tensor) if tensor.is_cuda else 2)
