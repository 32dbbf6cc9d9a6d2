"""The launches of kernels are read from a fake of CUPTI."""

from __future__ import annotations

import pytest
from fake_activity import BUSY, FakeActivity, kernel, layout

from gpuperf.measure import launches
from gpuperf.measure.launches import launches_of, with_launches
from gpuperf.measure.recording.records import MEMSET, DeviceRecord
from gpuperf.measure.recording.session import Recorder
from gpuperf.model.record import Kernel, Launch

GEMM = Launch((2, 66, 1), (384, 1, 1), (2, 1, 1), 168, 213188, 66)
FILL = Launch((8, 1, 1), (128, 1, 1))


def record(name: str, launch: Launch, symbol: str = "") -> DeviceRecord:
    sizes = (launch.grid, launch.block, launch.cluster)
    rest = launch.registers, launch.shared_bytes, launch.most_clusters
    return DeviceRecord(1, 2, "kernel", name, 0, 0, 0, symbol or name, sizes, *rest)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> FakeActivity:
    fake = FakeActivity()
    recorder = Recorder(fake)
    monkeypatch.setattr(launches, "open_recorder", lambda: recorder)
    return fake


def test_launches_come_in_the_order_of_their_start(library: FakeActivity) -> None:
    def run() -> None:
        library.launch(kernel(20, b"fill", now=5))
        library.launch(layout(MEMSET, start=5, end=6))
        library.launch(kernel(10, b"_ZN4gemmEv", now=5, cluster=(2, 1, 1), registers=168))

    found = launches_of(run)
    assert [r.name for r in found] == ["gemm()", "fill"]
    assert [r.launch.cluster_blocks for r in found] == [2, 1]


def test_another_subscriber_leaves_no_launches(library: FakeActivity) -> None:
    library.refused["enable 10"] = BUSY
    assert launches_of(lambda: pytest.fail("it ran")) == ()


def test_launches_need_neither_the_clock_nor_the_subscription(library: FakeActivity) -> None:
    library.offset_ns, library.subscriber = 10**15, True
    assert len(launches_of(lambda: library.launch(kernel(1)))) == 1


@pytest.mark.parametrize(
    ("order", "launches", "expected"),
    [
        (
            ["Memset (Device)", "void gemm<4>(int)", "fill", "fill"],
            (("void gemm<4>(int)", GEMM), ("fill", FILL), ("fill", GEMM)),
            [None, GEMM, FILL],
        ),
        (["void gemm<4>(int)", "fill"], (("void gemm<4>(int)", GEMM),), [None, None, None]),
        (
            ["void gemm<4>(int)", "fill"],
            (("fill", FILL), ("void gemm<4>(int)", GEMM)),
            [None, None, None],
        ),
        ([], (), [None, None, None]),
    ],
    ids=["the first of each name", "another count", "another order", "nothing"],
)
def test_a_kernel_is_given_the_first_launch_of_its_name(
    order: list[str], launches: tuple[tuple[str, Launch], ...], expected: list[Launch | None]
) -> None:
    records = [record(name, launch) for name, launch in launches]
    kernels = (Kernel("Memset (Device)"), Kernel("void gemm<4>(int)"), Kernel("fill", 2))
    assert [kernel.launch for kernel in with_launches(kernels, order, records)] == expected


def test_a_name_that_was_left_mangled_is_recognised() -> None:
    found = with_launches([Kernel("_Z4gemmv")], ["_Z4gemmv"], [record("gemm()", GEMM, "_Z4gemmv")])
    assert found[0].launch == GEMM


def test_a_launch_that_cuda_does_not_allow_is_refused() -> None:
    wrong = record("fill", FILL)._replace(sizes=((-1, 1, 1), (1, 1, 1), (1, 1, 1)))
    with pytest.raises(ValueError, match="beyond what CUDA allows"):
        with_launches([Kernel("fill")], ["fill"], [wrong])
