"""On two GPUs of one host: collectives by NCCL, their graphs and logs, and the links of the pair.

No test judges a speed beyond physics. Run with `pytest -m gpu tests/test_gpu_gang.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import ranked
import torch
from command_line import CommandLine

import gpuperf
from gpuperf.links.study import cells
from gpuperf.measure.topology import read_topology
from gpuperf.model.contract import Contract
from gpuperf.model.record import Record
from gpuperf.model.workload import Case, Value
from gpuperf.profile.breakdown import Profile, longest, profiles
from gpuperf.run.gang import GangLauncher
from gpuperf.run.launcher import LocalLauncher
from gpuperf.run.plan import Conditions, plan_contracts, plan_gang
from gpuperf.run.store import read_run
from gpuperf.run.supervisor import Supervisor

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs of one host"),
]
COUNT = 2
WHOLE = {"operation": "sum", "in_place": "yes"}
POINTS: dict[str, dict[str, Value]] = {
    "all_reduce": WHOLE,
    "all_gather": {"in_place": "no"},
    "reduce_scatter": {"operation": "sum", "in_place": "no"},
    "broadcast": {"root": 1},
    "reduce": {"operation": "sum", "root": 0},
    "all_to_all": {},
    "sendrecv": {},
}
DDP = Path(__file__).parents[1] / "docs" / "examples" / "gpt2_ddp.py"
GPT2_PARAMETERS = 124_439_808  # of GPT-2 small, the head tied to the embedding
BUSBW = 900e9  # byte/s of both directions of the fastest link of a Hopper pair


Gang = tuple[Supervisor, Contract]


class WithGpus(CommandLine):
    """The command line as a user's, which sees the GPUs."""

    @property
    def environment(self) -> dict[str, str]:
        hidden = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
        shown = {name: os.environ[name] for name in hidden if name in os.environ}
        return {k: v for k, v in super().environment.items() if k not in hidden} | shown


@pytest.fixture(scope="module")
def gang() -> Iterator[Gang]:
    """One gang for all tests, since its start takes seconds."""
    with Supervisor(GangLauncher(LocalLauncher(), COUNT), "cuda") as supervisor:
        conditions = plan_gang(supervisor.open().device, Conditions(budget_s=0.1))
        yield supervisor, plan_contracts(supervisor.open().device, conditions)[0]


def measure(
    supervisor: Supervisor, contract: Contract, op: str, name: str, size: int, **more: Value
) -> Record:
    point = {"bytes": size, "dtype": "bf16", **POINTS[op], **more, "world": COUNT}
    return supervisor.measure("r", Case(op, name, point), contract, 0)


def assert_timed(record: Record) -> None:
    assert (record.status, record.reason) == ("ok", ""), record.case.id
    assert record.primary == "wire"
    assert {"wire", "eager"} <= record.times.keys()
    assert (record.world, record.devices) == (COUNT, (0, 1))
    assert [times.rank for times in record.ranks] == [0, 1]
    assert record.samples is not None and record.cost is not None
    assert record.samples.median_s > 1e-6
    assert record.cost.link_bytes / record.samples.median_s < BUSBW
    # What the user waits for includes what the link takes.
    assert record.times["eager"].median_s > 0.8 * record.samples.median_s


@pytest.mark.parametrize("op", POINTS)
def test_each_collective_is_right_and_timed_by_nccl(op: str, gang: Gang) -> None:
    supervisor, contract = gang
    before = len(supervisor.renewals)
    for name in ("nccl", "nccl_graph"):
        for size in (4 * COUNT, 2002 * COUNT, 2**24):
            assert_timed(measure(supervisor, contract, op, name, size))
    assert supervisor.renewals[before:] == []


def test_a_gigabyte_leaves_no_memory_behind(gang: Gang) -> None:
    supervisor, contract = gang
    before = len(supervisor.renewals)
    for op, place in (("all_reduce", "yes"), ("all_gather", "no"), ("reduce_scatter", "yes")):
        assert_timed(measure(supervisor, contract, op, "nccl", 2**30, in_place=place))
    assert supervisor.renewals[before:] == []


def test_every_operation_place_and_dtype_is_exact(gang: Gang) -> None:
    supervisor, contract = gang
    for operation in ("sum", "max", "min", "avg"):
        for place in ("yes", "no"):
            more = {"operation": operation, "in_place": place}
            record = measure(supervisor, contract, "all_reduce", "nccl", 4004, **more)
            assert (record.status, record.reason) == ("ok", ""), record.case.id
    for dtype in ("fp32", "fp16", "fp64", "int8"):
        for op in ("all_gather", "reduce_scatter"):
            record = measure(supervisor, contract, op, "nccl", 8 * 1001 * COUNT, dtype=dtype)
            assert (record.status, record.reason) == ("ok", ""), record.case.id


def test_nccl_says_itself_what_it_chose(gang: Gang) -> None:
    supervisor, contract = gang
    small = measure(supervisor, contract, "all_reduce", "nccl", 1024)
    large = measure(supervisor, contract, "all_reduce", "nccl", 2**28)
    for record in (small, large):
        assert record.chosen.keys() == {"algorithm", "protocol", "channels"}
        assert record.chosen["algorithm"] in ("RING", "TREE", "NVLS", "PAT")
    assert small.chosen["protocol"] in ("LL", "LL128")
    assert large.chosen["protocol"] == "SIMPLE"
    assert "nccl" in supervisor.open().fingerprint.soft
    unknown = measure(supervisor, contract, "sendrecv", "nccl", 1024)
    assert unknown.chosen == {}, "NCCL logs no choice for sends"


def test_symmetric_memory_reduces_in_one_shot_and_in_two(gang: Gang) -> None:
    supervisor, contract = gang
    for name, place in (("one_shot", "no"), ("two_shot", "yes")):
        record = measure(supervisor, contract, "all_reduce", name, 2**16, in_place=place)
        if record.status == "skipped":
            assert "symmetric" in record.reason or "access" in record.reason
            continue
        assert_timed(record)


def test_the_eager_time_is_that_of_the_hosts_clock(gang: Gang) -> None:
    supervisor, _ = gang
    conditions = plan_gang(supervisor.open().device, Conditions(timer="wall", budget_s=0.3))
    (contract,) = plan_contracts(supervisor.open().device, conditions)
    record = measure(supervisor, contract, "all_reduce", "nccl", 1024)
    assert (record.status, record.primary) == ("ok", "eager")
    assert record.times["eager"].median_s > 2e-6


def test_a_rank_that_dies_or_is_wrong_is_named_and_the_rest_is_measured(gang: Gang) -> None:
    source = str(Path(ranked.__file__))
    supervisor, contract = gang
    for name, status in (("dies", "crashed"), ("wrong", "wrong"), ("good", "ok")):
        point = {"n": 64, "dtype": "fp32", "world": COUNT}
        record = supervisor.measure("r", Case("ranked", name, point, {}, source), contract, 0)
        assert record.status == status, record.reason
        assert status == "ok" or record.reason.startswith("rank 1")


def test_the_command_line_measures_both_gpus(tmp_path: Path) -> None:
    at = WithGpus.at(tmp_path)
    done = at("roofline", "all_reduce", "--gpus", "2", "--impl", "nccl", "--bytes", "1k,1M",
              "--budget", "0.3", "--format", "json")  # fmt: skip
    assert done.code == 0, done.err
    rows = json.loads(done.out)["rows"]
    assert [row["world"] for row in rows] == [2, 2]
    assert all(0 < row["busbw_byte_per_s"] < BUSBW for row in rows)
    more = at("roofline", "all_reduce", "--gpus", "32", "--bytes", "1k")
    assert (more.code, "--gpus 32 is more than there are" in more.err) == (3, True)


def test_the_links_of_the_pair_are_measured(tmp_path: Path) -> None:
    at = WithGpus.at(tmp_path)
    done = at("links", "--bytes", "64M", "--budget", "0.2")
    assert done.code == 0, done.err
    (file,) = tmp_path.glob("gpuperf-runs/*.jsonl")
    run = read_run(file)
    topology = read_topology()
    assert run.header.topology == topology
    assert len(topology.pairs) == topology.gpus * (topology.gpus - 1)
    measured = cells(run)
    assert [cell.failure for cell in measured if cell.failure] == []
    assert {True, False} == {cell.both for cell in measured}
    for cell in measured:
        assert cell.rate is None or 1e9 < cell.rate < 2 * BUSBW
        assert cell.latency_s is None or 1e-7 < cell.latency_s < 1e-4


def test_a_suite_of_collectives_is_measured_by_one_gang(tmp_path: Path) -> None:
    suite = tmp_path / "two.toml"
    case = '[[case]]\nop = "{}"\nbytes = "1k,1M"\nimpl = "nccl"\n'
    cases = "".join(map(case.format, ("broadcast", "all_to_all")))
    suite.write_text(f"schema = 1\n[conditions]\nbudget_s = 0.1\n{cases}")
    done = WithGpus.at(tmp_path)("run", "--suite", str(suite), "--gpus", "2", "--format", "json")
    assert done.code == 0, done.err
    rows = json.loads(done.out)["rows"]
    assert [row["op"] for row in rows] == ["broadcast", "broadcast", "all_to_all", "all_to_all"]
    assert all(0 < row["busbw_byte_per_s"] < BUSBW for row in rows)


def test_littles_law_over_the_link_is_measured(tmp_path: Path) -> None:
    at = WithGpus.at(tmp_path)
    for name in ("peer_latency", "nvlink_little"):
        done = at("lab", name, "--budget", "0.1")
        assert done.code == 0, done.err
    *_, file = sorted(tmp_path.glob("gpuperf-runs/*nvlink*.jsonl"))
    records = read_run(file).records
    assert {record.status for record in records} == {"ok"}, [r.reason for r in records]
    rates = [
        sum(b.read for b in r.cost.bytes if b.channel == "link") / r.samples.median_s
        for r in records
        if r.cost and r.samples
    ]
    assert max(rates) < BUSBW / 2
    assert max(rates) > 4 * min(rates), "more bytes in flight are not faster"


def test_the_library_measures_a_second_gpu_and_leaves_the_first_current() -> None:
    times = []
    for device in ("cuda:0", "cuda:1"):
        x = torch.randn(2**26, device=device)
        found = gpuperf.measure(x.clone, bytes=gpuperf.Bytes(x.nbytes, x.nbytes))
        assert found.opened.device.index == x.get_device()
        assert len(found.kernels) == 1
        times.append(found.samples.median_s)
    assert times[1] == pytest.approx(times[0], rel=0.1)
    assert torch.cuda.current_device() == 0


def ddp_profile(folder: Path, overlap: str) -> Profile:
    """The profile of GPT-2 small on both GPUs, with or without overlap."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words = ["-m", "gpuperf", "profile", "--steps", "8", "--budget", "15", "--out", str(folder)]
    done = subprocess.run(
        [sys.executable, *launch, *words, str(DDP), "--overlap", overlap],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (file,) = folder.glob("*.jsonl")
    return longest(profiles(read_run(file)))


def test_overlap_gains_no_more_than_the_profile_without_it_exposes(tmp_path: Path) -> None:
    late, early = (ddp_profile(tmp_path / o, o) for o in ("off", "on"))
    for profile in (late, early):
        assert profile.together is not None
        sizes = [row.collective for row in profile.together.collectives]
        assert sum(c.count * c.message.bytes for c in sizes) == pytest.approx(4 * GPT2_PARAMETERS)
        assert {c.message.ranks for c in sizes} == {COUNT}
    assert late.together is not None and early.together is not None
    # The rank with the least of it waits for no other.
    one, many = (
        min(row.exposed_s or 0.0 for row in together.rows)
        for together in (late.together, early.together)
    )
    assert one > 1.5 * many > 0, "one bucket is reduced after the backward pass"
    gained_s = late.step_s - early.step_s
    assert -0.02 * late.step_s < gained_s < 1.2 * one + 0.02 * late.step_s
