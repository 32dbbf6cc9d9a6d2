"""The launches of kernels are read from a fake of CUPTI."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import pytest

from gpuperf.measure import launches as geometry
from gpuperf.measure.launches import (
    CONCURRENT_KERNEL,
    _KernelRecord,
    _LaunchRecorder,
    with_launches,
)
from gpuperf.model.record import Kernel, Launch

GEMM = Launch((2, 66, 1), (384, 1, 1), (2, 1, 1), 168, 213188, 66)
FILL = Launch((8, 1, 1), (128, 1, 1))


NAMES = {GEMM: b"_ZN4gemm", FILL: b"fill"}


def kernel_record(start: int, launch: Launch) -> _KernelRecord:
    record = _KernelRecord(
        kind=CONCURRENT_KERNEL,
        start=start,
        name=NAMES.get(launch, b""),
        registers=launch.registers,
        dynamic_shared=launch.shared_bytes,
        most_clusters=launch.most_clusters,
    )
    for name in ("grid", "block", "cluster"):
        setattr(record, name, type(getattr(record, name))(*getattr(launch, name)))
    return record


class FakeCupti:
    """Hands the records that `run` leaves to the callbacks when it is flushed, as CUPTI does."""

    def __init__(self, version: int = 130001, refuses: str = "") -> None:
        self.version, self.refuses = version, refuses
        self.pending: list[_KernelRecord] = []
        self.enabled = False

    def cuptiGetVersion(self, out: Any) -> int:
        ctypes.cast(out, ctypes.POINTER(ctypes.c_uint32))[0] = self.version
        return 0

    def cuptiActivityRegisterCallbacks(self, requested: Any, completed: Any) -> int:
        self.requested, self.completed = requested, completed
        return 39 if self.refuses == "register" else 0

    def cuptiActivityEnable(self, kind: int) -> int:
        self.enabled = self.refuses != "enable"
        return 0 if self.enabled else 39

    def cuptiActivityDisable(self, kind: int) -> int:
        self.enabled = False
        return 0

    def cuptiActivityFlushAll(self, flag: int) -> int:
        buffer = ctypes.POINTER(ctypes.c_uint8)()
        size, most = ctypes.c_size_t(), ctypes.c_size_t()
        self.requested(ctypes.pointer(buffer), ctypes.pointer(size), ctypes.pointer(most))
        self.given = list(self.pending)
        self.completed(None, 0, buffer, size.value, len(self.given))
        return 0

    def cuptiActivityGetNextRecord(self, buffer: Any, valid: Any, out: Any) -> int:
        if not self.given:
            return 12  # CUPTI_ERROR_MAX_LIMIT_REACHED
        self.last = self.given.pop(0)
        ctypes.cast(out, ctypes.POINTER(ctypes.c_void_p))[0] = ctypes.addressof(self.last)
        return 0


def recorded(library: FakeCupti, *records: _KernelRecord) -> tuple[tuple[str, Launch], ...]:
    activities = _LaunchRecorder(library)
    return activities.record(lambda: library.pending.extend(records))


def test_the_record_is_laid_out_as_in_cuptis_headers() -> None:
    """offsetof of CUpti_ActivityKernel9 and 10, cupti_activity.h of CUDA 13.0."""
    offsets = {
        "registers": 6,
        "start": 16,
        "grid": 52,
        "block": 64,
        "static_shared": 76,
        "name": 104,
        "cluster": 176,
        "most_cluster": 200,
        "most_clusters": 204,
    }
    assert {name: getattr(_KernelRecord, name).offset for name in offsets} == offsets


def test_launches_come_in_the_order_of_their_start() -> None:
    found = recorded(FakeCupti(), kernel_record(20, FILL), kernel_record(10, GEMM))
    assert found == (("_ZN4gemm", GEMM), ("fill", FILL))
    assert (GEMM.blocks, GEMM.cluster_blocks, FILL.cluster_blocks) == (132, 2, 1)


def test_a_cupti_before_13_does_not_tell_how_many_clusters_fit() -> None:
    ((_, found),) = recorded(FakeCupti(version=26), kernel_record(1, GEMM))
    assert (found.cluster, found.most_clusters) == ((2, 1, 1), 0)


@pytest.mark.parametrize("refuses", ["register", "enable"])
def test_another_subscriber_leaves_no_launches(refuses: str) -> None:
    assert recorded(FakeCupti(refuses=refuses), kernel_record(1, GEMM)) == ()


def test_records_stop_when_the_call_raises() -> None:
    library = FakeCupti()

    def run() -> None:
        raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        _LaunchRecorder(library).record(run)
    assert not library.enabled


@pytest.mark.parametrize(("version", "found"), [(17, False), (18, True), (130001, True)])
def test_a_cupti_before_12_is_left_alone(
    version: int, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(geometry, "find_library", lambda: "libcupti.so")
    monkeypatch.setattr(geometry.ctypes, "CDLL", lambda name: FakeCupti(version))
    geometry._recorder.cache_clear()
    try:
        assert (geometry._recorder() is not None) is found
    finally:
        geometry._recorder.cache_clear()


def test_a_launch_that_cuda_does_not_allow_leaves_no_buffer_behind() -> None:
    library = FakeCupti()
    activities = _LaunchRecorder(library)
    wrong = replace(GEMM, registers=7)
    record = kernel_record(1, wrong)
    record.grid[0] = -1
    with pytest.raises(ValueError, match="beyond what CUDA allows"):
        activities.record(lambda: library.pending.append(record))
    assert activities._buffers == {}


@pytest.mark.parametrize(
    ("order", "launches", "expected"),
    [
        (
            ["Memset (Device)", "void gemm<4>(int)", "fill", "fill"],
            (("_Z4gemmILi4EEvi", GEMM), ("fill", FILL), ("fill", GEMM)),
            [None, GEMM, FILL],
        ),
        (["void gemm<4>(int)", "fill"], (("_Z4gemmILi4EEvi", GEMM),), [None, None, None]),
        (
            ["void gemm<4>(int)", "fill"],
            (("fill", FILL), ("_Z4gemmILi4EEvi", GEMM)),
            [None, None, None],
        ),
        ([], (), [None, None, None]),
    ],
    ids=["the first of each name", "another count", "another order", "nothing"],
)
def test_a_kernel_is_given_the_first_launch_of_its_name(
    order: list[str], launches: tuple[tuple[str, Launch], ...], expected: list[Launch | None]
) -> None:
    kernels = (Kernel("Memset (Device)"), Kernel("void gemm<4>(int)"), Kernel("fill", 2))
    assert [kernel.launch for kernel in with_launches(kernels, order, launches)] == expected


def test_without_a_library_there_are_no_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    def run() -> None:
        ran.append(1)

    monkeypatch.setattr(geometry, "_recorder", lambda: None)
    assert (geometry.launches_of(run), ran) == ((), [])


FILL_NAME = "void at::native::elementwise_kernel<4, at::native::FillFunctor<float>>(int)"
ADD_NAME = "void at::native::elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
FILL_LINKED = "_ZN2at6native18elementwise_kernelILi4ENS0_11FillFunctorIfEEEEvi"
ADD_LINKED = "_ZN2at6native18elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEEEEvi"


@pytest.mark.parametrize("swapped", [False, True])
def test_two_kernels_of_one_template_are_distinguished(swapped: bool) -> None:
    linked = [(FILL_LINKED, FILL), (ADD_LINKED, GEMM)][:: -1 if swapped else 1]
    kernels = (Kernel(FILL_NAME), Kernel(ADD_NAME))
    found = with_launches(kernels, [FILL_NAME, ADD_NAME], linked)
    assert [kernel.launch for kernel in found] == ([None] * 2 if swapped else [FILL, GEMM])
