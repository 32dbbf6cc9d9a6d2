"""Does each collective give each rank what its formula says, and is a wrong element detected?"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from every_case import CPU, LOADED, pick

from gpuperf.measure.checks import compare
from gpuperf.measure.deviation import WrongResult
from gpuperf.measure.inputs import bind_make, torch_dtype
from gpuperf.model.codec import decode, encode
from gpuperf.model.contract import Contract
from gpuperf.model.workload import Case, Description, Point, Value, Workload
from gpuperf.run.gang import GangLauncher
from gpuperf.run.launcher import LocalLauncher
from gpuperf.run.supervisor import Supervisor
from gpuperf.units import itemsize

COLLECTIVES = {name: workload for name, workload in LOADED.items() if workload.world}
CONTRACT = Contract("wall", "hot", gap_s=0.0, budget_s=0.0, min_samples=3, warmup_calls=0)
NAMES = "all_gather all_reduce all_to_all broadcast reduce reduce_scatter sendrecv"
# Factors of nccl-tests (PERFORMANCE.md), at 2 and 8 ranks.
FACTORS = {
    "all_reduce": (1.0, 1.75),
    "all_gather": (0.5, 0.875),
    "reduce_scatter": (0.5, 0.875),
    "all_to_all": (0.5, 0.875),
    "broadcast": (1.0, 1.0),
    "reduce": (1.0, 1.0),
    "sendrecv": (1.0, 1.0),
}
of_each = pytest.mark.parametrize("name", sorted(COLLECTIVES))


def points(workload: Workload, world: int) -> Iterator[Point]:
    """Odd numbers of elements (a multiple of *world*), every dtype and word, first and last
    root."""
    default: dict[str, Value] = {axis.name: axis.default for axis in workload.axes}
    default |= {"dtype": "fp32", "world": world}
    choices: dict[str, tuple[Value, ...]] = {a.name: a.choices for a in workload.axes if a.choices}
    if "root" in default:
        choices["root"] = (0, world - 1)
    for name, values in choices.items():
        for value in values:
            point = default | {name: value}
            yield Point({**point, "bytes": 1001 * world * itemsize(str(point["dtype"]))})
    for each in (1, 3):
        yield Point({**default, "bytes": 4 * each * world})
    if "in_place" in default:
        pairs = itertools.product(choices["in_place"], choices.get("operation", ("sum",)))
        for place, operation in pairs:
            more = {"operation": operation} if "operation" in default else {}
            yield Point({**default, "bytes": 4 * 77 * world, "in_place": place, **more})


def test_there_are_seven_collectives() -> None:
    assert " ".join(sorted(COLLECTIVES)) == NAMES


@pytest.mark.parametrize("world", [2, 4])
def test_each_collective_is_right_on_every_rank(world: int) -> None:
    """In every dtype, operation and place; every rank compares its whole result."""
    with Supervisor(GangLauncher(LocalLauncher(), world), "cpu") as gang:
        for name, workload in COLLECTIVES.items():
            for point in dict.fromkeys(map(lambda p: tuple(p.items()), points(workload, world))):
                case = Case(name, "gloo", dict(point))
                record = gang.measure("r", case, CONTRACT, 0)
                lacks = dict(point).get("operation") == "avg"
                expected = ("skipped", "gloo has no operation avg") if lacks else ("ok", "")
                assert (record.status, record.reason) == expected, case.id
                assert len(record.ranks) == (0 if lacks else world)
        assert gang.renewals == []


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather() -> None:
    with Supervisor(GangLauncher(LocalLauncher(), 4), "cpu") as gang:
        for operation in ("sum", "max"):
            point = {"bytes": 4 * 4 * 1001, "dtype": "fp32", "operation": operation}
            case = Case("all_reduce", "rs_ag", {**point, "in_place": "yes", "world": 4})
            record = gang.measure("r", case, CONTRACT, 0)
            assert (record.status, record.reason) == ("ok", "")
        odd = Case("all_reduce", "rs_ag", {**case.point, "bytes": 12})
        reason = gang.measure("r", odd, CONTRACT, 0).reason
        assert reason == "3 elements are not divisible by 4 ranks"


def test_what_no_collective_can_do_is_refused() -> None:
    with Supervisor(GangLauncher(LocalLauncher(), 2), "cpu") as gang:
        for name, more, reason in (
            ("all_gather", {"bytes": 12}, "3 elements are not divisible by 2 ranks"),
            ("all_reduce", {"bytes": 7}, "7 bytes are no whole number of fp32 elements of 4"),
            ("broadcast", {"root": 2}, "there is no rank 2 among 2: --root is from 0 to 1"),
        ):
            axes = {axis.name: axis.default for axis in COLLECTIVES[name].axes}
            point = {**axes, "dtype": "fp32", "world": 2, **more}
            record = gang.measure("r", Case(name, "gloo", point), CONTRACT, 0)
            assert record.status == "skipped"
            assert record.reason.startswith(reason)
        alone = Case("copy", "torch", {"n": 8, "dtype": "fp32"})
        assert gang.measure("r", alone, CONTRACT, 0).reason == "copy runs on one device"
        assert gang.renewals == []


@contextlib.contextmanager
def group_of_one(folder: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=(folder / "meeting").as_uri(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


@of_each
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16", "int8"])
def test_one_element_that_is_off_by_one_is_detected(name: str, dtype: str, tmp_path: Path) -> None:
    """The largest one too, of eight ranks: sums are exact, so nothing is granted for rounding."""
    workload = COLLECTIVES[name]
    axes = {axis.name: axis.default for axis in workload.axes}
    point = Point({**axes, "dtype": dtype, "world": 8, "bytes": 8 * 1024})
    with group_of_one(tmp_path):
        inputs = workload.inputs(point, bind_make(CPU.torch, 3))
        exact = workload.reference(inputs, point)
        right = exact.to(torch_dtype(dtype))
        assert torch.equal(right.double(), exact)
        assert exact.min() >= 1 and exact.max() <= 92
        compare(workload, point, inputs, right, "", pick)
        right[exact.argmax()] -= 1
        with pytest.raises(WrongResult):
            compare(workload, point, inputs, right, "", pick)


@of_each
def test_the_bytes_over_the_link_are_those_of_nccl_tests(name: str) -> None:
    workload = COLLECTIVES[name]
    axes = {axis.name: axis.default for axis in workload.axes}
    for world, factor in zip((2, 8), FACTORS[name], strict=True):
        cost = workload.cost(Point({**axes, "dtype": "fp32", "world": world, "bytes": 2**20}))
        assert cost.collective == 2**20
        assert cost.link_bytes == factor * 2**20


@of_each
def test_changed_inputs_change_what_every_rank_gets(name: str, tmp_path: Path) -> None:
    workload = COLLECTIVES[name]
    axes = {axis.name: axis.default for axis in workload.axes}
    point = Point({**axes, "dtype": "fp32", "world": 4, "bytes": 4096})
    with group_of_one(tmp_path):
        seeds = [workload.inputs(point, bind_make(CPU.torch, seed)) for seed in (1, 2)]
        first, second = (workload.reference(inputs, point) for inputs in seeds)
    share = (first != second).double().mean()
    assert share > 0.5 and first.dtype == torch.float64


@of_each
def test_a_collective_tells_a_reader_what_it_is(name: str) -> None:
    workload = COLLECTIVES[name]
    description = workload.describe("gpuperf.kernels")
    assert decode(encode(description), Description) == description
    assert description.world
    assert workload.declares_rounding
    assert all(axis.help for axis in workload.axes) and workload.axes[0].main
    assert [i.name for i in workload.implementations][:3] == ["gloo", "nccl", "nccl_graph"]
