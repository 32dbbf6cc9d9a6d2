"""Call CUPTI, NVIDIA's profiling library, through ctypes, from the packages that torch brings.

Each call takes one struct, whose first field is its size. The library refuses a size that it does
not know, so each struct ends with the last field used here; later versions only append fields
(headers of 12.6, 13.0 and 13.4). https://docs.nvidia.com/cupti/api/modules.html
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Sequence
from ctypes import POINTER, c_char_p, c_double, c_size_t, c_uint8, c_void_p
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
    "have profiling enabled for the slice",
    "old-cuda": "counters need CUDA 12.6 or newer: update torch and its CUDA packages",
    "no-library": "pip install the nvidia-cuda-cupti package of torch's CUDA version",
    "busy": "end other profilers (ncu, nsys, DCGM profiling, torch.profiler) and try again",
    "unknown-metric": "a newer torch may bring a CUPTI that knows this chip",
    "overflow": "the call is long: measure a smaller size",
    "no-samples": "a virtual machine may hide the counters; `gpuperf import` reads the reports of "
    "ncu, where that works",
    "uncalibrated": "run it again: the counters may be scaled in one process and right in the next",
    "unsupported": "this device has no counters to read; --counters off skips them",
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
DECODE_FULL = 8  # OUT_OF_MEMORY: a decoding call's result when the hardware's buffer was too small
UNKNOWN_METRIC = 17  # INVALID_METRIC_NAME


class NoCounters(CannotMeasure):
    """The hardware counters cannot be read; `kind` classifies the reason and selects the hint."""

    def __init__(self, kind: NoCountersKind, message: str) -> None:
        super().__init__(message, HINTS[kind])
        self.kind: NoCountersKind = kind


CODES: dict[str, Any] = {
    "B": c_uint8,
    "H": ctypes.c_uint16,
    "I": ctypes.c_uint32,
    "Q": ctypes.c_uint64,
    "i": ctypes.c_int,
    "N": c_size_t,
    "P": c_void_p,
    "s": c_char_p,
    "*B": POINTER(c_uint8),
    "*d": POINTER(c_double),
    "*s": POINTER(c_char_p),
}


class Params(ctypes.Structure):
    """Argument struct of a CUPTI function; subclasses add the fields after these two."""

    _fields_ = [("size", c_size_t), ("private", c_void_p)]


def fields(layout: str) -> list[tuple[str, Any]]:
    """Return ctypes fields for *layout*: a type code (see `CODES`) and a name, in turn."""
    words = layout.split()
    return [
        (name, CODES[code] if code in CODES else CODES[code[-1]] * int(code[:-1]))
        for code, name in zip(words[::2], words[1::2], strict=True)
    ]


def _params(function: str, layout: str = "") -> type[Any]:
    return type("Params", (Params,), {"function": function, "_fields_": fields(layout)})


ProfilerInitialize = _params("cuptiProfilerInitialize")
GetChipName = _params("cuptiDeviceGetChipName", "N device s chip")
HostInitialize = _params("cuptiProfilerHostInitialize", "i kind s chip P availability P host")
HostDeinitialize = _params("cuptiProfilerHostDeinitialize", "P host")
GetBaseMetrics = _params("cuptiProfilerHostGetBaseMetrics", "P host i kind *s names N count")
AddMetrics = _params("cuptiProfilerHostConfigAddMetrics", "P host *s names N count")
GetConfigSize = _params("cuptiProfilerHostGetConfigImageSize", "P host N bytes")
GetConfig = _params("cuptiProfilerHostGetConfigImage", "P host N bytes *B image")
GetPasses = _params("cuptiProfilerHostGetNumOfPasses", "N bytes *B image N passes")
Evaluate = _params(
    "cuptiProfilerHostEvaluateToGpuValues",
    "P host *B image N bytes N index *s names N count *d values",
)
SamplingEnable = _params("cuptiPmSamplingEnable", "N device P sampler")
SamplingDisable = _params("cuptiPmSamplingDisable", "P sampler")
SamplingStart = _params("cuptiPmSamplingStart", "P sampler")
SamplingStop = _params("cuptiPmSamplingStop", "P sampler")
SamplingConfig = _params(
    "cuptiPmSamplingSetConfig", "P sampler N bytes *B config N buffer_bytes Q interval i trigger"
)
SamplingImageSize = _params(
    "cuptiPmSamplingGetCounterDataSize", "P sampler *s names N count I most_samples N bytes"
)
SamplingImage = _params("cuptiPmSamplingCounterDataImageInitialize", "P sampler N bytes *B image")
SamplingDecode = _params(
    "cuptiPmSamplingDecodeData", "P sampler *B image N bytes i stop B overflow"
)
SamplingInfo = _params(
    "cuptiPmSamplingGetCounterDataInfo", "*B image N bytes N total N populated N completed"
)
RangesEnable = _params("cuptiRangeProfilerEnable", "P context P profiler")
RangesDisable = _params("cuptiRangeProfilerDisable", "P profiler")
RangesPop = _params("cuptiRangeProfilerPopRange", "P profiler")
RangesStart = _params("cuptiRangeProfilerStart", "P profiler")
RangesPush = _params("cuptiRangeProfilerPushRange", "P profiler s name")
RangesConfig = _params(
    "cuptiRangeProfilerSetConfig",
    "P profiler N bytes *B config N image_bytes *B image "
    "i range i replay N most_ranges H levels H least_level N pass_index H target_level",
)
RangesStop = _params(
    "cuptiRangeProfilerStop", "P profiler N pass_index N target_level B all_passes"
)
RangesDecode = _params("cuptiRangeProfilerDecodeData", "P profiler N dropped")
RangesImageSize = _params(
    "cuptiRangeProfilerGetCounterDataSize",
    "P profiler *s names N count N most_ranges I most_nodes N bytes",
)
RangesImage = _params("cuptiRangeProfilerCounterDataImageInitialize", "P profiler N bytes *B image")
RangesInfo = _params("cuptiRangeProfilerGetCounterDataInfo", "*B image N bytes N ranges")


class Cupti:
    """The loaded CUPTI library; every call may raise NoCounters."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self.call(ProfilerInitialize())

    def call(self, params: Any) -> Any:
        """Call the function of the struct *params*, which it may change. Raises: NoCounters."""
        name = params.function
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise NoCounters("old-cuda", f"this CUPTI has no {name}") from None
        params.size = ctypes.sizeof(params)
        if params._fields_:
            last = getattr(type(params), params._fields_[-1][0])
            params.size = last.offset + last.size
        result = int(function(ctypes.byref(params)))
        if result:
            raise NoCounters(self._kind(name, result), f"{name}: {self._message(result)}")
        return params

    def _kind(self, name: str, result: int) -> NoCountersKind:
        if name == "cuptiProfilerHostConfigAddMetrics" or result == UNKNOWN_METRIC:
            return "unknown-metric"
        if name == "cuptiPmSamplingDecodeData" and result == DECODE_FULL:
            return "overflow"
        return KINDS.get(result, "failed")

    def _message(self, result: int) -> str:
        text = c_char_p()
        self._library.cuptiGetResultString(result, ctypes.byref(text))
        return text.value.decode(errors="replace") if text.value else f"result {result}"

    def chip(self, device_index: int) -> str:
        """Return the name of the chip, such as GH100. Raises: NoCounters."""
        named = self.call(GetChipName(device=device_index))
        return bytes(named.chip).decode()


class Image(NamedTuple):
    """A buffer of *size* bytes, *data*, that the library writes and reads."""

    data: Any
    size: int

    @classmethod
    def of(cls, size: int) -> Image:
        """Return an image of *size* zero bytes."""
        return cls((c_uint8 * size)(), size)


def names_array(names: Sequence[str]) -> Any:
    """Return *names* as a C array of strings."""
    return (c_char_p * len(names))(*(name.encode() for name in names))


class Host:
    """The part of CUPTI that needs no GPU: it lists a chip's metrics and evaluates their values."""

    def __init__(self, cupti: Cupti, kind: int, chip: str) -> None:
        self.cupti = cupti
        params = HostInitialize(kind=kind, chip=chip.encode())
        self._host = cupti.call(params).host

    def base_metrics(self) -> frozenset[str]:
        """Return the names of this chip's counters. Raises: NoCounters."""
        listed = self.cupti.call(GetBaseMetrics(host=self._host))
        return frozenset(listed.names[i].decode() for i in range(listed.count))

    def configure(self, names: Sequence[str]) -> tuple[Image, int]:
        """Return the hardware configuration for *names*, and the number of passes that they take.

        Raises: NoCounters.
        """
        array, call = names_array(names), self.cupti.call
        call(AddMetrics(host=self._host, names=array, count=len(names)))
        size = call(GetConfigSize(host=self._host)).bytes
        image = Image.of(size)
        call(GetConfig(host=self._host, bytes=size, image=image.data))
        counted = call(GetPasses(bytes=size, image=image.data))
        return image, int(counted.passes)

    def evaluate(self, image: Image, index: int, names: Sequence[str]) -> tuple[float, ...]:
        """Return the values of *names* in sample or range number *index*. Raises: NoCounters."""
        values = (c_double * len(names))()
        self.cupti.call(
            Evaluate(
                host=self._host,
                image=image.data,
                bytes=image.size,
                index=index,
                names=names_array(names),
                count=len(names),
                values=values,
            )
        )
        return tuple(values)

    def close(self) -> None:
        """Free the library's memory. Raises: NoCounters."""
        self.cupti.call(HostDeinitialize(host=self._host))


def find_library() -> Path:
    """Return the path of the libcupti that this process has loaded or can. Raises: NoCounters."""
    for path in (*_loaded(), *_installed()):
        return path
    raise NoCounters("no-library", "there is no libcupti beside torch")


def _loaded() -> Iterable[Path]:
    """Yield the libcupti that torch has loaded: a second copy would be a second subscriber."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return
    yield from {Path(line.split(maxsplit=5)[5]) for line in lines if "/libcupti.so" in line}


def _installed() -> Iterable[Path]:
    """Yield the libcupti of the packages that torch depends on, and of the CUDA toolkit."""
    for entry in sys.path:
        yield from sorted((Path(entry) / "nvidia").glob("*/lib/libcupti.so.*"), reverse=True)
    yield from sorted(Path("/usr/local/cuda/extras/CUPTI/lib64").glob("libcupti.so.*"))
