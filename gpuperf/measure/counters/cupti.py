"""NVIDIA's profiling library, by ctypes: the libcupti that torch's own packages bring.

Its calls take one struct each, whose first field is its size; a size beyond what the library knows
is refused, so each is given up to its last field used here, and fields are only ever appended
(headers of 12.6, 13.0 and 13.4). https://docs.nvidia.com/cupti/api/modules.html
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Sequence
from ctypes import (
    POINTER,
    c_char_p,
    c_double,
    c_int,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import Any, Literal, NamedTuple

from gpuperf.errors import CannotMeasure
from gpuperf.model.metrics import PERMISSION_HINT

NoCountersKind = Literal[
    "permission",
    "virtual-gpu",
    "old-cuda",
    "no-library",
    "busy",
    "unknown-metric",
    "overflow",
    "no-samples",
    "uncalibrated",
    "unsupported",
    "failed",
]

RANGE_PROFILER, PM_SAMPLING = 0, 1  # CUpti_ProfilerType

HINTS: dict[NoCountersKind, str] = {
    "permission": PERMISSION_HINT,
    "virtual-gpu": "counters belong to a whole card: use one that is not sliced by MIG or vGPU, or "
    "have profiling enabled for it",
    "old-cuda": "counters need CUDA 12.6 or newer: update torch and its CUDA packages",
    "no-library": "pip install the nvidia-cuda-cupti package of torch's CUDA version",
    "busy": "end other profilers (ncu, nsys, DCGM profiling, torch.profiler) and try again",
    "unknown-metric": "a newer torch may bring a CUPTI that knows this chip",
    "overflow": "the call is long: measure a smaller size",
    "no-samples": "a virtual machine may hide them; `gpuperf import` reads what ncu writes, where "
    "that works",
    "uncalibrated": "start again: the counters of one process may be scaled, the next one's right",
    "unsupported": "such a device has no counters to read",
    "failed": "`gpuperf doctor` tries the counters; --counters off does without",
}

# CUptiResult, cupti_result.h
KINDS: dict[int, NoCountersKind] = {
    11: "old-cuda",  # API_NOT_IMPLEMENTED
    26: "busy",  # HARDWARE_BUSY
    27: "unsupported",  # NOT_SUPPORTED
    33: "virtual-gpu",  # VIRTUALIZED_DEVICE_NOT_SUPPORTED
    35: "permission",  # INSUFFICIENT_PRIVILEGES
    36: "busy",  # OLD_PROFILER_API_INITIALIZED
    39: "busy",  # MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
    40: "permission",  # VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES
    41: "unsupported",  # CONFIDENTIAL_COMPUTING_NOT_SUPPORTED
    42: "unsupported",  # CMP_DEVICE_NOT_SUPPORTED
    43: "virtual-gpu",  # MIG_DEVICE_NOT_SUPPORTED
    44: "unsupported",  # SLI_DEVICE_NOT_SUPPORTED
    45: "unsupported",  # WSL_DEVICE_NOT_SUPPORTED
    46: "unknown-metric",  # INVALID_CHIP_NAME
}
DECODE_FULL = 8  # OUT_OF_MEMORY: what a decoding call says when the hardware's buffer was too small
UNKNOWN_METRIC = 17  # INVALID_METRIC_NAME


class NoCounters(CannotMeasure):
    """The counters cannot be read, and which sort of reason it is."""

    def __init__(self, kind: NoCountersKind, message: str) -> None:
        super().__init__(message, HINTS[kind])
        self.kind: NoCountersKind = kind


class Params(ctypes.Structure):
    """A struct of one call. Its subclasses list what comes after the size and a null pointer."""

    _fields_ = [("size", c_size_t), ("private", c_void_p)]


def _params(name: str, *fields: tuple[str, Any]) -> type[Any]:
    return type(name, (Params,), {"_fields_": list(fields)})


NAMES = POINTER(c_char_p)
BYTES = POINTER(c_uint8)

ProfilerInitialize = _params("ProfilerInitialize")
GetChipName = _params("GetChipName", ("device", c_size_t), ("chip", c_char_p))
HostInitialize = _params(
    "HostInitialize",
    ("kind", c_int),
    ("chip", c_char_p),
    ("availability", c_void_p),
    ("host", c_void_p),
)
HostDeinitialize = _params("HostDeinitialize", ("host", c_void_p))
GetBaseMetrics = _params(
    "GetBaseMetrics", ("host", c_void_p), ("kind", c_int), ("names", NAMES), ("count", c_size_t)
)
AddMetrics = _params("AddMetrics", ("host", c_void_p), ("names", NAMES), ("count", c_size_t))
GetConfigSize = _params("GetConfigSize", ("host", c_void_p), ("bytes", c_size_t))
GetConfig = _params("GetConfig", ("host", c_void_p), ("bytes", c_size_t), ("image", BYTES))
GetPasses = _params("GetPasses", ("bytes", c_size_t), ("image", BYTES), ("passes", c_size_t))
Evaluate = _params(
    "Evaluate",
    ("host", c_void_p),
    ("image", BYTES),
    ("bytes", c_size_t),
    ("index", c_size_t),
    ("names", NAMES),
    ("count", c_size_t),
    ("values", POINTER(c_double)),
)
SamplingEnable = _params("SamplingEnable", ("device", c_size_t), ("sampler", c_void_p))
Sampling = _params("Sampling", ("sampler", c_void_p))
SamplingConfig = _params(
    "SamplingConfig",
    ("sampler", c_void_p),
    ("bytes", c_size_t),
    ("config", BYTES),
    ("buffer_bytes", c_size_t),
    ("interval", c_uint64),
    ("trigger", c_int),
)
SamplingImageSize = _params(
    "SamplingImageSize",
    ("sampler", c_void_p),
    ("names", NAMES),
    ("count", c_size_t),
    ("most_samples", c_uint32),
    ("bytes", c_size_t),
)
SamplingImage = _params(
    "SamplingImage", ("sampler", c_void_p), ("bytes", c_size_t), ("image", BYTES)
)
SamplingDecode = _params(
    "SamplingDecode",
    ("sampler", c_void_p),
    ("image", BYTES),
    ("bytes", c_size_t),
    ("stop", c_int),
    ("overflow", c_uint8),
)
SamplingInfo = _params(
    "SamplingInfo",
    ("image", BYTES),
    ("bytes", c_size_t),
    ("total", c_size_t),
    ("populated", c_size_t),
    ("completed", c_size_t),
)
RangesEnable = _params("RangesEnable", ("context", c_void_p), ("profiler", c_void_p))
Ranges = _params("Ranges", ("profiler", c_void_p))
RangesPush = _params("RangesPush", ("profiler", c_void_p), ("name", c_char_p))
RangesConfig = _params(
    "RangesConfig",
    ("profiler", c_void_p),
    ("bytes", c_size_t),
    ("config", BYTES),
    ("image_bytes", c_size_t),
    ("image", BYTES),
    ("range", c_int),
    ("replay", c_int),
    ("most_ranges", c_size_t),
    ("levels", c_uint16),
    ("least_level", c_uint16),
    ("pass_index", c_size_t),
    ("target_level", c_uint16),
)
RangesStop = _params(
    "RangesStop",
    ("profiler", c_void_p),
    ("pass_index", c_size_t),
    ("target_level", c_size_t),
    ("all_passes", c_uint8),
)
RangesDecode = _params("RangesDecode", ("profiler", c_void_p), ("dropped", c_size_t))
RangesImageSize = _params(
    "RangesImageSize",
    ("profiler", c_void_p),
    ("names", NAMES),
    ("count", c_size_t),
    ("most_ranges", c_size_t),
    ("most_nodes", c_uint32),
    ("bytes", c_size_t),
)
RangesImage = _params("RangesImage", ("profiler", c_void_p), ("bytes", c_size_t), ("image", BYTES))
RangesInfo = _params("RangesInfo", ("image", BYTES), ("bytes", c_size_t), ("ranges", c_size_t))


class Cupti:
    """The library, or what stands in for it. Raises: NoCounters by every call."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self.call("cuptiProfilerInitialize", ProfilerInitialize())

    def call(self, name: str, params: Any) -> Any:
        """Call *name*; *params* as the library left them. Raises: NoCounters."""
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise NoCounters("old-cuda", f"this CUPTI has no {name}") from None
        params.size = ctypes.sizeof(params)
        fields = params._fields_
        if fields:
            last = getattr(type(params), fields[-1][0])
            params.size = last.offset + last.size
        result = int(function(ctypes.byref(params)))
        if result:
            raise NoCounters(self._kind(name, result), f"{name}: {self._told(result)}")
        return params

    def _kind(self, name: str, result: int) -> NoCountersKind:
        if name == "cuptiProfilerHostConfigAddMetrics" or result == UNKNOWN_METRIC:
            return "unknown-metric"
        if name == "cuptiPmSamplingDecodeData" and result == DECODE_FULL:
            return "overflow"
        return KINDS.get(result, "failed")

    def _told(self, result: int) -> str:
        text = c_char_p()
        self._library.cuptiGetResultString(result, ctypes.byref(text))
        return text.value.decode(errors="replace") if text.value else f"result {result}"

    def chip(self, device_index: int) -> str:
        """The name of the chip, such as GH100. Raises: NoCounters."""
        told = self.call("cuptiDeviceGetChipName", GetChipName(device=device_index))
        return bytes(told.chip).decode()


class Image(NamedTuple):
    """Bytes that the library writes and reads."""

    data: Any
    size: int

    @classmethod
    def of(cls, size: int) -> Image:
        """So many bytes of nought."""
        return cls((c_uint8 * size)(), size)


def names_array(names: Sequence[str]) -> Any:
    """*names* as the library takes them; they live as long as the array."""
    return (c_char_p * len(names))(*(name.encode() for name in names))


class Host:
    """The part of the library that knows metrics by name and needs no GPU."""

    def __init__(self, cupti: Cupti, kind: int, chip: str) -> None:
        self.cupti = cupti
        told = HostInitialize(kind=kind, chip=chip.encode())
        self._host = cupti.call("cuptiProfilerHostInitialize", told).host

    def base_metrics(self) -> frozenset[str]:
        """The counters that this chip has. Raises: NoCounters."""
        told = self.cupti.call("cuptiProfilerHostGetBaseMetrics", GetBaseMetrics(host=self._host))
        return frozenset(told.names[i].decode() for i in range(told.count))

    def configure(self, names: Sequence[str]) -> tuple[Image, int]:
        """What sets the hardware up for *names*, and how many passes they take together.

        Raises: NoCounters.
        """
        array, call = names_array(names), self.cupti.call
        call(
            "cuptiProfilerHostConfigAddMetrics",
            AddMetrics(host=self._host, names=array, count=len(names)),
        )
        size = call("cuptiProfilerHostGetConfigImageSize", GetConfigSize(host=self._host)).bytes
        image = Image.of(size)
        call(
            "cuptiProfilerHostGetConfigImage",
            GetConfig(host=self._host, bytes=size, image=image.data),
        )
        told = call("cuptiProfilerHostGetNumOfPasses", GetPasses(bytes=size, image=image.data))
        return image, int(told.passes)

    def evaluate(self, image: Image, index: int, names: Sequence[str]) -> tuple[float, ...]:
        """The values of *names* in sample or range number *index*. Raises: NoCounters."""
        values = (c_double * len(names))()
        self.cupti.call(
            "cuptiProfilerHostEvaluateToGpuValues",
            Evaluate(
                host=self._host,
                image=image.data,
                bytes=image.size,
                index=index,
                names=names_array(names),
                count=len(names),
                values=values,
            ),
        )
        return tuple(values)

    def close(self) -> None:
        """Give the memory back. Raises: NoCounters."""
        self.cupti.call("cuptiProfilerHostDeinitialize", HostDeinitialize(host=self._host))


def find_library() -> Path:
    """The libcupti that this process uses, or could use. Raises: NoCounters."""
    for path in (*_loaded(), *_installed()):
        return path
    raise NoCounters("no-library", "no libcupti was found beside torch")


def _loaded() -> Iterable[Path]:
    """What torch has mapped already: a second copy would be a second subscriber."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return
    yield from {Path(line.split(maxsplit=5)[5]) for line in lines if "/libcupti.so" in line}


def _installed() -> Iterable[Path]:
    """Of the packages that torch depends on, or of the toolkit."""
    places = [Path(entry) / "nvidia" for entry in sys.path]
    for place in places:
        yield from sorted(place.glob("*/lib/libcupti.so.*"), reverse=True)
    yield from sorted(Path("/usr/local/cuda/extras/CUPTI/lib64").glob("libcupti.so.*"))
