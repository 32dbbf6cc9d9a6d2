"""Call cuBLASLt by ctypes: its heuristic, the capabilities of its algorithms, and its products.

The library is the one that torch has loaded. Structures, attributes and their sizes are those of
`cublasLt.h` in cuBLAS 12.8.4 and 13.8.2, types of data those of `library_types.h`, and compute
types those of `cublas_api.h`. cuBLASLt is column-major: the row-major C (m, n) is its matrix of n
rows and m columns, so that its A is our B, and the rows of its tiles lie along n.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterator, Mapping
from ctypes import (
    byref,
    c_double,
    c_float,
    c_int,
    c_int8,
    c_int32,
    c_int64,
    c_size_t,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from gpuperf import Point
from gpuperf.errors import CannotMeasure

Call = Callable[[], torch.Tensor]

SONAMES = ("libcublasLt.so.13", "libcublasLt.so.12")
WORKSPACE_BYTES = 32 << 20  # of torch and of cuBLAS's own advice for Hopper (cuBLAS 13, §2.1.4)
MOST_ALIGNED = 256  # bytes; cuBLASLt assumes no larger alignment

# cublasComputeType_t, cudaDataType, cublasOperation_t
COMPUTE_32F, COMPUTE_64F, COMPUTE_32I, COMPUTE_TF32 = 68, 70, 72, 77
R_32F, R_64F, R_16F, R_8I, R_32I, R_16BF, R_8F_E4M3 = 0, 1, 2, 3, 10, 14, 28
TRANSPOSED = 1

# cublasLtMatmulDescAttributes_t, cublasLtMatmulPreferenceAttributes_t, cublasLtMatmulSearch_t
DESC_TRANSA, DESC_A_SCALE, DESC_B_SCALE, DESC_FAST_ACCUM = 3, 17, 18, 25
PREF_SEARCH, PREF_WORKSPACE, PREF_REDUCTION, PREF_ALIGNMENT = 0, 1, 3, 5  # of A; B, C, D follow
ONE_ALGORITHM = 1
# cublasLtReductionScheme_t: partial sums of a split k keep the dtype of the accumulator.
COMPUTE_TYPE = 2

# cublasLtMatmulAlgoCapAttributes_t
CAP_SPLIT_K, CAP_REDUCTION, CAP_SWIZZLE, CAP_TILES, CAP_CUSTOM, CAP_STAGES = 0, 1, 2, 6, 7, 13
# cublasLtMatmulAlgoConfigAttributes_t, with their ctypes: what the record says of an algorithm
CONFIG: Mapping[str, tuple[int, Any]] = {
    "algorithm": (0, c_int32),
    "tile_id": (1, c_uint32),
    "stages_id": (6, c_uint32),
    "split_k": (2, c_int32),
    "reduction": (3, c_uint32),
    "swizzle": (4, c_uint32),
    "custom": (5, c_uint32),
    "inner_id": (7, c_uint16),
    "cluster_id": (8, c_uint16),
}
CLUSTERS = (0, *range(2, 17))  # automatic, 1x1x1 to 1x16x1; Hopper has at most 16 blocks
SPLITS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
MOST_VALUES = 1024  # of a capability that is a list


class Algo(ctypes.Structure):
    """A `cublasLtMatmulAlgo_t`; the library can run a copy of it in any process."""

    _fields_ = (("data", c_uint64 * 8),)


class HeuristicResult(ctypes.Structure):
    """A `cublasLtMatmulHeuristicResult_t`: an algorithm and what it needs."""

    _fields_ = (
        ("algo", Algo),
        ("workspace_bytes", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


@dataclass(frozen=True)
class Types:
    """The types of a product: of sums, of alpha and beta (with a ctype), of A and B, and of C."""

    compute: int
    scale: int
    scalar: Any
    inputs: int
    result: int
    dtype: torch.dtype


def _types(compute: int, inputs: int, result: int, dtype: torch.dtype) -> Types:
    scales: dict[int, tuple[int, Any]] = {COMPUTE_64F: (R_64F, c_double)}
    scales[COMPUTE_32I] = (R_32I, c_int32)
    return Types(compute, *scales.get(compute, (R_32F, c_float)), inputs, result, dtype)


TYPES = {
    "bf16": _types(COMPUTE_32F, R_16BF, R_16BF, torch.bfloat16),
    "fp16": _types(COMPUTE_32F, R_16F, R_16F, torch.float16),
    "fp32": _types(COMPUTE_32F, R_32F, R_32F, torch.float32),
    "tf32": _types(COMPUTE_TF32, R_32F, R_32F, torch.float32),
    "fp64": _types(COMPUTE_64F, R_64F, R_64F, torch.float64),
    "fp8": _types(COMPUTE_32F, R_8F_E4M3, R_16BF, torch.bfloat16),
    "int8": _types(COMPUTE_32I, R_8I, R_32I, torch.int32),
}


class Refused(CannotMeasure):
    """A status of cuBLASLt that is not success."""


@dataclass(frozen=True)
class Algorithm:
    """One configured algorithm: the words of its `Algo`, its `config`, and the bytes it needs."""

    words: tuple[int, ...]
    config: tuple[tuple[str, int], ...]
    workspace_bytes: int

    @property
    def described(self) -> dict[str, int]:
        """What the record says of the algorithm, by names of attributes in `cublasLt.h`."""
        return {**dict(self.config), "workspace_bytes": self.workspace_bytes}


class Library:
    """The functions of cuBLASLt, with a handle for the current device."""

    def __init__(self, functions: Any) -> None:
        self.functions = functions
        functions.cublasLtGetVersion.restype = c_size_t
        self.version = int(functions.cublasLtGetVersion())
        self.handle = c_void_p()
        self.run("Create", byref(self.handle))

    def run(self, name: str, *args: Any) -> None:
        """Call `cublasLt<name>`. Raises: Refused for any status but success."""
        status = getattr(self.functions, f"cublasLt{name}")(*args)
        if status:
            raise Refused(f"cublasLt{name} returned status {status}", "see cublas_api.h")

    def attribute(self, what: str, of: Any, which: int, value: Any) -> None:
        """Set the attribute *which* of a descriptor to the ctypes *value*."""
        self.run(f"{what}SetAttribute", of, c_int(which), byref(value), _size(value))


def _size(value: Any) -> c_size_t:
    return c_size_t(ctypes.sizeof(value))


@cache
def open_library(device: int) -> Library:
    """Return cuBLASLt with a handle for CUDA device number *device*. Raises: CannotMeasure."""
    torch.cuda.init()
    for name in (*_loaded(), *SONAMES):
        try:
            functions = ctypes.CDLL(name)
        except OSError:
            continue
        with torch.cuda.device(device):
            return Library(functions)
    raise CannotMeasure("libcublasLt is not installed", "install torch with CUDA")


def _loaded(maps: Path = Path("/proc/self/maps")) -> Iterator[str]:
    """Yield the path of the libcublasLt that this process has loaded, if it has."""
    for line in maps.read_text(encoding="utf-8").splitlines():
        path = line.partition("/")[2]
        if path.rpartition("/")[2].startswith("libcublasLt.so"):
            yield f"/{path}"
            return


class Product:
    """The product of row-major A (m, k) and B (k, n) of either order, as cuBLASLt describes it.

    The result is `c` (m, n), row-major. Raises: Refused.
    """

    def __init__(self, library: Library, a: torch.Tensor, b: torch.Tensor, point: Point) -> None:
        self.library, self.types, self.a, self.b = library, TYPES[point.dtype], a, b
        self.refused = 0  # numbers of algorithms that cuBLASLt lists and does not begin
        m, n, k = point.m, point.n, point.k
        self.c = torch.empty((m, n), dtype=self.types.dtype, device=a.device)
        self.workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=a.device)
        self._one, self._zero = self.types.scalar(1), self.types.scalar(0)
        types = self.types
        self.description = self._made("MatmulDesc", c_int(types.compute), c_int(types.scale))
        turned = not b.is_contiguous()
        if turned:
            self._describe(DESC_TRANSA, c_int32(TRANSPOSED))
        if point.dtype == "fp8":
            self._scaled()
        rows, columns = (k, n) if turned else (n, k)
        self.layouts = (
            self._layout(types.inputs, rows, columns),
            self._layout(types.inputs, k, m),
            *(self._layout(types.result, n, m) for _ in "CD"),
        )
        self.preference = self._made("MatmulPreference")
        self._prefer(PREF_WORKSPACE, c_uint64(WORKSPACE_BYTES))
        self._prefer(PREF_REDUCTION, c_uint32(COMPUTE_TYPE))
        for place, tensor in enumerate((b, a, self.c, self.c)):
            self._prefer(PREF_ALIGNMENT + place, c_uint32(alignment(tensor.data_ptr())))

    def _scaled(self) -> None:
        """Give A and B scales of one in device memory, with sums as exact as `_scaled_mm`'s."""
        self.scale = torch.ones((), dtype=torch.float32, device=self.a.device)
        for which in (DESC_A_SCALE, DESC_B_SCALE):
            self._describe(which, c_void_p(self.scale.data_ptr()))
        self._describe(DESC_FAST_ACCUM, c_int8(0))

    def _made(self, what: str, *args: Any) -> c_void_p:
        made = c_void_p()
        self.library.run(f"{what}Create", byref(made), *args)
        destroy = getattr(self.library.functions, f"cublasLt{what}Destroy")
        weakref.finalize(self, destroy, made)
        return made

    def _layout(self, type_: int, rows: int, columns: int) -> c_void_p:
        sizes = (c_uint64(rows), c_uint64(columns), c_int64(rows))
        return self._made("MatrixLayout", c_int(type_), *sizes)

    def _describe(self, which: int, value: Any) -> None:
        self.library.attribute("MatmulDesc", self.description, which, value)

    def _prefer(self, which: int, value: Any) -> None:
        self.library.attribute("MatmulPreference", self.preference, which, value)

    @property
    def _operands(self) -> tuple[Any, ...]:
        return (self.library.handle, self.description, *self.layouts)

    @property
    def _kinds(self) -> tuple[c_int, ...]:
        types = self.types
        kinds = (types.compute, types.scale, types.inputs, types.inputs, types.result, types.result)
        return tuple(c_int(kind) for kind in kinds)

    def heuristic(self, count: int, algorithm: int | None = None) -> list[Algorithm]:
        """Return up to *count* algorithms, the one first that cuBLASLt takes for the fastest.

        With *algorithm*, all are configurations of the algorithm of that number; none if cuBLASLt
        refuses it, which `refused` counts.
        """
        results, found = (HeuristicResult * count)(), c_int()
        if algorithm is not None:
            try:
                self._start(algorithm, results[0].algo)
            except Refused:
                self.refused += 1
                return []
        self._prefer(PREF_SEARCH, c_uint32(0 if algorithm is None else ONE_ALGORITHM))
        args = (*self._operands, self.preference, c_int(count), results, byref(found))
        try:
            self.library.run("MatmulAlgoGetHeuristic", *args)
        except Refused:  # it knows none
            return []
        return [self._read(r.algo, r) for r in results[: found.value] if r.state == 0]

    def numbers(self, count: int) -> list[int]:
        """Return the numbers of all algorithms for the types of this product."""
        numbers, found = (c_int * count)(), c_int()
        args = (self.library.handle, *self._kinds, c_int(count), numbers, byref(found))
        self.library.run("MatmulAlgoGetIds", *args)
        return list(numbers[: found.value])

    def _start(self, number: int, algo: Algo) -> None:
        args = (self.library.handle, *self._kinds, c_int(number), byref(algo))
        self.library.run("MatmulAlgoInit", *args)

    def _read(self, algo: Algo, result: HeuristicResult) -> Algorithm:
        """Return *algo* with its configuration; what an older library lacks is left out."""
        config = []
        for name, (which, kind) in CONFIG.items():
            value, written = kind(), c_size_t()
            args = (byref(algo), c_int(which), byref(value), _size(value), byref(written))
            if not self.library.functions.cublasLtMatmulAlgoConfigGetAttribute(*args):
                config.append((name, int(value.value)))
        return Algorithm(tuple(algo.data), tuple(config), int(result.workspace_bytes))

    def checked(self, words: tuple[int, ...]) -> Algorithm | None:
        """Return the algorithm of these *words*, or None where it cannot run this product."""
        algo, result = Algo((c_uint64 * 8)(*words)), HeuristicResult()
        args = (*self._operands, byref(algo), byref(result))
        if self.library.functions.cublasLtMatmulAlgoCheck(*args):
            return None
        return self._read(algo, result) if result.workspace_bytes <= WORKSPACE_BYTES else None

    def neighbours(self, algorithm: Algorithm) -> Iterator[Algorithm]:
        """Yield the algorithms that can run and differ from *algorithm* in one attribute."""
        for name, value in self._changes(algorithm):
            algo = Algo((c_uint64 * 8)(*algorithm.words))
            changed = {name: value}
            if name == "split_k":
                changed["reduction"] = COMPUTE_TYPE if value > 1 else 0
            if all(self._configure(algo, each, number) for each, number in changed.items()):
                neighbour = self.checked(tuple(algo.data))
                if neighbour is not None:
                    yield neighbour

    def _configure(self, algo: Algo, name: str, value: int) -> bool:
        which, kind = CONFIG[name]
        args = (byref(algo), c_int(which), byref(kind(value)), c_size_t(ctypes.sizeof(kind)))
        return not self.library.functions.cublasLtMatmulAlgoConfigSetAttribute(*args)

    def _changes(self, algorithm: Algorithm) -> Iterator[tuple[str, int]]:
        """Yield the values of each attribute that the algorithm's capabilities list."""
        now = dict(algorithm.config)
        can = self.capabilities(algorithm)
        for name, values in can.items():
            yield from ((name, value) for value in values if value != now.get(name, value))

    def capabilities(self, algorithm: Algorithm) -> dict[str, tuple[int, ...]]:
        """Return the values of each attribute that the algorithm may take."""
        algo = Algo((c_uint64 * 8)(*algorithm.words))

        def asked(which: int, kind: Any, most: int = 1) -> tuple[int, ...]:
            values, written = (kind * most)(), c_size_t()
            args = (byref(algo), c_int(which), values, _size(values), byref(written))
            if self.library.functions.cublasLtMatmulAlgoCapGetAttribute(*args):
                return ()
            return tuple(values[: written.value // ctypes.sizeof(kind)])

        splits = asked(CAP_SPLIT_K, c_int32) + asked(CAP_REDUCTION, c_uint32)
        can_split = len(splits) == 2 and splits[0] and splits[1] & COMPUTE_TYPE
        return {
            "tile_id": asked(CAP_TILES, c_uint32, MOST_VALUES),
            "stages_id": asked(CAP_STAGES, c_uint32, MOST_VALUES),
            "cluster_id": CLUSTERS,
            "split_k": SPLITS if can_split else (),
            "swizzle": (0, 1) if any(asked(CAP_SWIZZLE, c_uint32)) else (),
            "custom": tuple(range(1 + min(sum(asked(CAP_CUSTOM, c_int32)), MOST_VALUES))),
        }

    def call(self, algorithm: Algorithm) -> Call:
        """Return the call that computes `c` by *algorithm*."""
        algo, matmul = Algo((c_uint64 * 8)(*algorithm.words)), self.library.functions.cublasLtMatmul
        handle, description, a_layout, b_layout, *c_layouts = self._operands
        a, b, c = (c_void_p(tensor.data_ptr()) for tensor in (self.a, self.b, self.c))
        room = (c_void_p(self.workspace.data_ptr()), c_size_t(WORKSPACE_BYTES))
        head = (handle, description, byref(self._one), b, a_layout, a, b_layout)
        args = (*head, byref(self._zero), c, c_layouts[0], c, c_layouts[1], byref(algo), *room)

        def call() -> torch.Tensor:
            stream = torch.cuda.current_stream(self.c.device).cuda_stream
            if status := matmul(*args, c_void_p(stream)):
                raise Refused(f"cublasLtMatmul returned status {status}", "see cublas_api.h")
            return self.c

        return call


def alignment(address: int) -> int:
    """Return the bytes to which *address* is aligned, at most `MOST_ALIGNED`."""
    return min(address & -address, MOST_ALIGNED) if address else MOST_ALIGNED
