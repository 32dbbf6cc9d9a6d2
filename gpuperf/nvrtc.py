"""Compile, load and launch CUDA C without nvcc.

NVRTC compiles, and the driver loads and launches, both through cuda-bindings, which torch's CUDA
builds install. Everything is imported on first use. Compiling needs no GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from importlib import resources
from typing import Any

from gpuperf.errors import CannotMeasure

# ctypes of kernel arguments.
POINTER = ctypes.c_void_p
U32 = ctypes.c_uint32
U64 = ctypes.c_uint64
F32 = ctypes.c_float


@cache
def _bindings() -> tuple[Any, Any]:
    try:
        from cuda.bindings import driver, nvrtc
    except ImportError as error:
        raise CannotMeasure(
            f"CUDA C cannot be compiled here: {error}",
            "pip install 'gpuperf[cuda]', or choose --timer events",
        ) from None
    return driver, nvrtc


def _checked(result: Sequence[Any], what: str) -> Any:
    """Return the values of a CUDA call without its status. Raises: CannotMeasure if it failed."""
    status, *values = result
    if int(status) != 0:
        raise CannotMeasure(f"{what} failed: {status.name}", "run `gpuperf doctor`")
    return values[0] if len(values) == 1 else None if not values else tuple(values)


def read_source(name: str) -> str:
    """Return the text of `kernels/cuda/<name>`."""
    return (resources.files("gpuperf.kernels.cuda") / name).read_text(encoding="utf-8")


@lru_cache(maxsize=64)
def compile_source(source: str, arch: str) -> bytes:
    """Compile CUDA C to a cubin for *arch* (`sm_90`). Raises: CannotMeasure with the log."""
    _, nvrtc = _bindings()
    try:
        program = _checked(
            nvrtc.nvrtcCreateProgram(source.encode(), b"gpuperf.cu", 0, [], []), "NVRTC"
        )
    except RuntimeError as error:  # cuda-pathfinder, when libnvrtc is not installed
        raise CannotMeasure(f"libnvrtc cannot be loaded: {error}") from None
    options = [f"--gpu-architecture={arch}".encode(), b"--std=c++17"]
    status, *_ = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(status) != 0:
        log = b" " * _checked(nvrtc.nvrtcGetProgramLogSize(program), "NVRTC")
        nvrtc.nvrtcGetProgramLog(program, log)
        text = log.decode().strip("\0\n")
        raise CannotMeasure(f"CUDA C does not compile for {arch}: {text}")
    cubin: bytes = b" " * _checked(nvrtc.nvrtcGetCUBINSize(program), "NVRTC")
    _checked(nvrtc.nvrtcGetCUBIN(program, cubin), "NVRTC")
    nvrtc.nvrtcDestroyProgram(program)
    return cubin


def compile_together(sources: Iterable[str], arch: str) -> None:
    """Compile *sources* at the same time, each in a thread, for `kernel_in` to load.

    Where a source does not compile, `kernel_in` raises the error, and this function raises none.
    """

    def compile_one(source: str) -> None:
        with contextlib.suppress(CannotMeasure):
            compile_source(source, arch)

    with ThreadPoolExecutor() as pool:
        list(pool.map(compile_one, dict.fromkeys(sources)))


class Kernel:
    """A loaded kernel. Its module stays loaded for the life of the process."""

    def __init__(self, function: Any) -> None:
        self._function, self._shared = function, 0

    @property
    def local_bytes(self) -> int:
        """Bytes of local memory of a thread: registers that were spilled, and indexed arrays."""
        driver, _ = _bindings()
        which = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES
        return int(_checked(driver.cuFuncGetAttribute(which, self._function), "a kernel's size"))

    def allow_shared(self, size: int) -> None:
        """Let a block have *size* bytes of dynamic shared memory, or more, if another call of the
        same kernel does. Raises: CannotMeasure."""
        if size <= self._shared:
            return
        driver, _ = _bindings()
        which = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _checked(driver.cuFuncSetAttribute(self._function, which, size), "more shared memory")
        self._shared = size

    def resident_blocks(self, block: int, shared: int, cluster: int) -> int:
        """Return how many blocks of *block* threads and *shared* bytes of dynamic shared memory,
        in clusters of *cluster*, the device runs at a time. Raises: CannotMeasure."""
        driver, _ = _bindings()
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        size = attribute.value.clusterDim
        size.x, size.y, size.z = cluster, 1, 1
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = cluster, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = block, 1, 1
        config.sharedMemBytes = shared
        config.attrs, config.numAttrs = [attribute], 1
        count = driver.cuOccupancyMaxActiveClusters(self._function, config)
        return cluster * int(_checked(count, "the occupancy of a kernel"))

    def launch(
        self,
        stream: int,
        grid: int,
        block: int,
        args: Sequence[Any],
        types: Sequence[Any],
        shared: int = 0,
        together: bool = False,
    ) -> None:
        """Queue it on *stream*.

        *types* are the ctypes of *args*, None for a `tensor_map`; *shared* is the bytes of dynamic
        shared memory of a block. *together* starts no block before all fit the device, for kernels
        whose blocks wait for one another. Raises: CannotMeasure.
        """
        driver, _ = _bindings()
        packed = (tuple(args), tuple(types)) if args else 0
        given = (self._function, grid, 1, 1, block, 1, 1, shared, driver.CUstream(stream), packed)
        if together:
            launched = driver.cuLaunchCooperativeKernel(*given)
        else:
            launched = driver.cuLaunchKernel(*given, 0)
        _checked(launched, "the launch of a kernel")


def tensor_map(
    address: int, dtype: Any, shape: Sequence[int], box: Sequence[int], swizzled: bool = True
) -> Any:
    """Return the argument of a kernel that moves boxes of a contiguous matrix by TMA.

    *dtype* is one of torch's floats of one or two bytes; *shape* and *box* are rows and columns.
    A box that is *swizzled* in shared memory has rows of 128 bytes at most; in another its rows
    follow each other. What is outside of the matrix reads as zero, and is not written.

    Raises: CannotMeasure.
    """
    driver, _ = _bindings()
    swizzle = "128B" if swizzled else "NONE"
    names = {"torch.bfloat16": "BFLOAT16", "torch.float16": "FLOAT16"}
    name = names.get(str(dtype), "UINT8")
    # L2 fetches of 256 bytes made a product of unaligned rows 13 % slower on an H200.
    encoded = driver.cuTensorMapEncodeTiled(
        getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{name}"),
        2,
        address,
        [driver.cuuint64_t(size) for size in reversed(shape)],
        [driver.cuuint64_t(shape[1] * dtype.itemsize)],
        [driver.cuuint32_t(size) for size in reversed(box)],
        [driver.cuuint32_t(1)] * 2,
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{swizzle}"),
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    return _checked(encoded, "the description of a matrix for TMA")


def copy_async(target: int, source: int, size: int, stream: int) -> None:
    """Queue a copy of *size* bytes between two addresses on *stream*, on any two devices.

    Raises: CannotMeasure.
    """
    driver, _ = _bindings()
    queued = driver.cuMemcpyAsync(
        driver.CUdeviceptr(target), driver.CUdeviceptr(source), size, driver.CUstream(stream)
    )
    _checked(queued, "a copy")


def load_kernels(source: str, arch: str, names: Sequence[str]) -> dict[str, Kernel]:
    """Compile *source* and load the `extern "C"` kernels *names* into the current context."""
    driver, _ = _bindings()
    module = _checked(driver.cuModuleLoadData(compile_source(source, arch)), "loading a cubin")
    return {
        name: Kernel(_checked(driver.cuModuleGetFunction(module, name.encode()), f"kernel {name}"))
        for name in names
    }


def kernel_in(source: str, arch: str, name: str) -> Kernel:
    """Return the kernel *name* of the CUDA C text *source*, compiled once for each GPU."""
    return _loaded(_context(), source, arch, (name,))[name]


def kernels_of(name: str, arch: str, names: Sequence[str]) -> dict[str, Kernel]:
    """Return the kernels *names* of `kernels/cuda/<name>`, compiled once for each GPU."""
    return _loaded(_context(), read_source(name), arch, tuple(names))


def _context() -> int:
    """Return the address of the current context: a module is loaded into one alone."""
    driver, _ = _bindings()
    return int(_checked(driver.cuCtxGetCurrent(), "the context of the GPU"))


@cache
def _loaded(context: int, source: str, arch: str, names: tuple[str, ...]) -> dict[str, Kernel]:
    return load_kernels(source, arch, names)
