"""CUPTI's records are read from buffers laid out as in NVIDIA's headers."""

from __future__ import annotations

from typing import Any

import pytest
from fake_activity import kernel, layout, record_at

from gpuperf.measure.recording.records import (
    CONCURRENT_KERNEL,
    LAYOUTS,
    MEMCPY,
    MEMCPY2,
    MEMSET,
    DeviceRecord,
    demangle,
    read_record,
)
from gpuperf.model.kernelname import kind_of, route_of
from gpuperf.model.record import Launch

# offsetof in cupti_activity.h: CUpti_ActivityKernel9 to 12, Memcpy5 and 6, MemcpyPtoP4, Memset4,
# by a C compiler with the headers of CUDA 12.1.105, 12.8.90 and 13.0.85, which agree.
OFFSETS = {
    CONCURRENT_KERNEL: {
        "registers": 6,
        "start": 16,
        "end": 24,
        "device": 40,
        "stream": 48,
        "grid": 52,
        "block": 64,
        "static_shared": 76,
        "dynamic_shared": 80,
        "correlation": 92,
        "name": 104,
        "graph_node": 144,
        "graph": 156,
        "cluster": 176,
        "most_cluster": 200,
        "most_clusters": 204,
    },
    MEMCPY: {
        "route": 4,
        "source": 5,
        "target": 6,
        "bytes": 8,
        "start": 16,
        "end": 24,
        "device": 32,
        "stream": 40,
        "correlation": 44,
        "graph_node": 64,
    },
    MEMCPY2: {"route": 4, "bytes": 8, "start": 16, "device": 32, "stream": 40, "graph_node": 72},
    MEMSET: {
        "bytes": 8,
        "start": 16,
        "end": 24,
        "device": 32,
        "stream": 40,
        "memory": 50,
        "graph_node": 64,
    },
}
LINKED = b"_ZN2at6native18elementwise_kernelILi4ENS0_11FillFunctorIfEEEEvi"
NAMED = "void at::native::elementwise_kernel<4, at::native::FillFunctor<float> >(int)"


def read(data: bytes, version: int = 130001) -> DeviceRecord | None:
    buffer, address = record_at(data)
    found = read_record(address, version)
    assert buffer is not None
    return found


@pytest.mark.parametrize("kind", OFFSETS)
def test_the_records_are_laid_out_as_in_cuptis_headers(kind: int) -> None:
    assert {n: getattr(LAYOUTS[kind], n).offset for n in OFFSETS[kind]} == OFFSETS[kind]


def test_a_kernel_has_its_times_its_name_and_its_launch() -> None:
    sizes: dict[str, Any] = {"grid": (2, 66, 1), "block": (384, 1, 1), "cluster": (2, 1, 1)}
    found = read(
        layout(
            CONCURRENT_KERNEL,
            name=LINKED,
            start=100,
            end=250,
            device=1,
            stream=7,
            registers=168,
            static_shared=1024,
            dynamic_shared=212164,
            most_clusters=66,
            **sizes,
        )
    )
    assert found is not None
    assert found[:6] == (100, 250, "kernel", NAMED, 1, 7)
    assert found.symbol == LINKED.decode()
    assert found.launch == Launch((2, 66, 1), (384, 1, 1), (2, 1, 1), 168, 213188, 66)


@pytest.mark.parametrize(
    ("version", "written", "read_as"),
    [(26, 66, 0), (130000, 66, 66), (130001, 1 << 20, 0)],
    ids=["before 13", "13", "not a count"],
)
def test_the_clusters_that_fit_are_known_from_cupti_13_on(
    version: int, written: int, read_as: int
) -> None:
    found = read(kernel(0, most_clusters=written), version)
    assert found is not None
    assert found.most_clusters == read_as


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            layout(MEMCPY, route=1, source=1, target=3, bytes=4096, start=5, end=9, stream=7),
            DeviceRecord(5, 9, "copy", "Memcpy HtoD (Pageable -> Device)", 0, 7, bytes=4096),
        ),
        (
            layout(MEMCPY, route=2, source=3, target=2, start=5, end=9),
            DeviceRecord(5, 9, "copy", "Memcpy DtoH (Device -> Pinned)"),
        ),
        (
            layout(MEMCPY2, route=10, source=3, target=3, bytes=8, start=5, end=9),
            DeviceRecord(5, 9, "copy", "Memcpy PtoP (Device -> Device)", bytes=8),
        ),
        (
            layout(MEMCPY, route=99, source=99, start=5, end=9),
            DeviceRecord(5, 9, "copy", "Memcpy <unknown> (Unrecognized -> Unknown)"),
        ),
        (
            layout(MEMSET, memory=3, bytes=64, start=5, end=9, device=1, stream=7),
            DeviceRecord(5, 9, "set", "Memset (Device)", 1, 7, bytes=64),
        ),
    ],
)
def test_copies_and_memsets_have_the_names_of_torchs_profiler(
    data: bytes, expected: DeviceRecord
) -> None:
    assert read(data) == expected
    assert kind_of(expected.name) == expected.kind


def test_the_route_of_a_copy_is_read_from_its_name() -> None:
    found = read(layout(MEMCPY, route=1, source=1, target=3))
    assert found is not None
    assert route_of(found.name) == "HtoD pageable"


def test_a_record_of_another_kind_is_passed_over() -> None:
    assert read(bytes([5, 0, 0, 0]) + bytes(60)) is None  # a call of the runtime


@pytest.mark.parametrize(("start", "end"), [(0, 0), (5, 0), (9, 5)])
def test_a_record_without_its_times_is_incomplete(start: int, end: int) -> None:
    found = read(layout(MEMSET, start=start, end=end))
    assert found is not None
    assert not found.complete


@pytest.mark.parametrize("name", ["fill", "Pf", "f", "", "_Z"])
def test_a_name_that_is_not_mangled_stays(name: str) -> None:
    assert demangle(name) == name


def test_a_launch_that_cuda_does_not_allow_is_refused() -> None:
    found = read(kernel(0, grid=(-1, 1, 1)))
    assert found is not None
    with pytest.raises(ValueError, match="beyond what CUDA allows"):
        _ = found.launch
