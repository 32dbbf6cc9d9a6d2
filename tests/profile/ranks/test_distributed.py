"""`gpuperf profile` of programs of several processes, on gloo: what is counted and who is named."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import forks
import pytest

from gpuperf.model.collective import Message
from gpuperf.model.record import Record, Run
from gpuperf.profile.breakdown import profiles
from gpuperf.profile.ranks.study import Together
from gpuperf.run.store import read_run

WIDTHS = (256, 512, 1024, 128)
PARAMETERS = sum(a * b + b for a, b in pairwise(WIDTHS))
HEAD = """
import os, sys, time, torch, torch.distributed as dist
torch.set_num_threads(1)
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
"""
GROUP = """
dist.init_process_group("gloo", init_method="file://" + os.path.abspath("store"), rank=rank,
                        world_size=world)
"""
DDP = f"""{HEAD}{GROUP}
m = torch.nn.Sequential(*(torch.nn.Linear(a, b) for a, b in zip({WIDTHS}, {WIDTHS[1:]})))
m = torch.nn.parallel.DistributedDataParallel(m, bucket_cap_mb=1)
o = torch.optim.SGD(m.parameters(), 0.1)
x = torch.randn(16, 256)
def step(i):
    m(x).sum().backward()
    o.step(); o.zero_grad()
"""
LOOP = """
for i in range(22):
    step(i)
dist.destroy_process_group()
"""
BUCKETS = """
print("buckets:", m._get_ddp_logging_data()["rebuilt_bucket_sizes"], file=sys.stderr)
"""
SLOW = DDP + LOOP.replace("step(i)", "time.sleep(0.12 * rank); step(i)") + BUCKETS
DIES = DDP + LOOP.replace("step(i)", "os._exit(9) if (rank, i) == (1, 14) else step(i)")
HANGS = DDP + LOOP.replace(
    "step(i)", "os._exit(9) if (rank, i) == (1, 14) else time.sleep(500) if i > 13 else step(i)"
)
SHARDED = f"""{HEAD}{GROUP}
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
m = torch.nn.Linear(256, 256, bias=False)
fully_shard(m, mesh=init_device_mesh("cpu", (world,)))
o = torch.optim.SGD(m.parameters(), 0.1)
x = torch.randn(16, 256)
def step(i):
    m(x).sum().backward()
    o.step(); o.zero_grad()
{LOOP}"""
ALONE = f"""{HEAD}
m = torch.nn.Linear(64, 64)
o = torch.optim.SGD(m.parameters(), 0.1)
x = torch.randn(64, 64)
for i in range(22 + 8 * rank):
    m(x).sum().backward()
    o.step(); o.zero_grad()
"""


@dataclass(frozen=True)
class Ended:
    """What the ranks printed, their exit codes, and the runs that they left in the folder."""

    codes: list[int]
    printed: list[str]
    said: list[str]
    files: list[Path]

    @property
    def run(self) -> Run:
        (file,) = self.files
        return read_run(file)


def launched(folder: Path, text: str, world: int = 2, *options: str) -> Ended:
    """Profile *text* in *world* processes, started as a launcher does."""
    (folder / "train.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-c", "from gpuperf.app import main; main()", "profile"]
    started = []
    for rank in range(world):
        place = {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_PORT": "1"}
        started.append(
            forks.Popen(
                [*command, "--steps", "5", *options, "train.py"],
                cwd=folder,
                env={**os.environ, **place, "COLUMNS": "100"},
                stdout=forks.PIPE,
                stderr=forks.PIPE,
                text=True,
            )
        )
    outputs = [process.communicate(timeout=120) for process in started]
    files = sorted((folder / "gpuperf-runs").glob("*.jsonl"))
    codes = [process.returncode for process in started]
    return Ended(codes, [out for out, _ in outputs], [err for _, err in outputs], files)


def regions(run: Run) -> dict[int, Record]:
    return {record.rank: record for record in run.records if record.kind == "region"}


def study_of(run: Run) -> Together:
    compared = profiles(run)[0].together
    assert compared is not None
    return compared


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A DDP program whose rank 1 sleeps for 120 ms in each step."""
    return launched(tmp_path_factory.mktemp("slow"), SLOW)


def test_rank_0_prints_one_report_and_the_others_nothing(slow: Ended) -> None:
    assert slow.codes == [0, 0]
    assert "optimizer step of train.py" in slow.printed[0]
    assert slow.printed[1] == ""
    assert "plain, 5 steps" in slow.said[0]
    assert "plain" not in slow.said[1] and "run file" not in slow.said[1]


def test_one_file_has_the_records_of_all_ranks(slow: Ended) -> None:
    run = slow.run
    assert run.header.world == 2
    assert {(r.rank, r.world) for r in run.records} == {(0, 2), (1, 2)}
    whole = regions(run)
    assert sorted(whole) == [0, 1]
    for record in whole.values():
        assert record.program is not None
        assert record.program.backend == "gloo"
        assert record.program.steps == {"plain": 5, "trace": 4, "accounting": 4}
        assert record.program.first == {"plain": 5, "trace": 11, "accounting": 15}


def test_the_buckets_of_ddp_are_counted_with_exact_bytes(slow: Ended) -> None:
    (told,) = re.findall(r"^buckets: (.*)$", slow.said[0], re.MULTILINE)
    of_ddp = [int(size) for size in told.split(",")]
    for record in regions(slow.run).values():
        assert record.program is not None
        found = {(c.message, c.count) for c in record.program.collectives}
        sizes = sorted(message.bytes for message, _ in found)
        assert sizes == sorted(of_ddp) and len(sizes) > 1
        assert sum(sizes) == 4 * PARAMETERS
        assert all(m == Message("all_reduce", m.bytes, "fp32", 2, "0") for m, _ in found)
        assert {count for _, count in found} == {1.0}


def test_a_rank_that_sleeps_is_the_straggler(slow: Ended) -> None:
    study = study_of(slow.run)
    assert study.straggler == 1
    assert 0.06 < study.late_s < 0.2  # a sleep of 0.12 s; in two buckets at once it counts once
    assert "rank 1 is the straggler" in slow.printed[0]
    assert "find out why rank 1 is late" in slow.printed[0]
    first, second = study.rows
    assert first.waiting_s is not None and second.waiting_s is not None
    assert first.waiting_s > second.waiting_s
    for row in study.rows:
        assert row.exposed_s is not None and row.communication_s is not None
        assert 0 <= row.exposed_s <= row.communication_s * (1 + 1e-9)


def test_a_rank_that_dies_is_named_and_the_rest_is_kept(tmp_path: Path) -> None:
    ended = launched(tmp_path, DIES)
    assert ended.codes == [3, 3]
    assert "rank 1: it died by exit code 9" in ended.said[0]
    assert "rank 1: it died by exit code 9" in ended.said[1]
    whole = regions(ended.run)
    assert sorted(whole) == [0, 1]
    assert all(r.program and r.program.steps["plain"] == 5 for r in whole.values())
    assert "ms a step" in ended.printed[0] or "µs a step" in ended.printed[0]
    assert not list((tmp_path / "gpuperf-runs").glob(".ranks*"))


def test_a_rank_that_waits_for_a_dead_one_is_ended(tmp_path: Path) -> None:
    ended = launched(tmp_path, HANGS)
    assert ended.codes == [3, 3]
    assert "rank 1: it died by exit code 9" in ended.said[0]
    assert sorted(regions(ended.run)) == [0, 1]


def test_ranks_of_different_steps_and_no_group_are_reported_as_they_are(tmp_path: Path) -> None:
    ended = launched(tmp_path, ALONE)
    assert ended.codes == [0, 0]
    caveats = {caveat.kind: caveat.message for caveat in regions(ended.run)[0].caveats}
    assert "different numbers of steps: 21 (rank 0), 29 (rank 1)" in caveats["other-steps"]
    assert "no process group was initialised" in caveats["no-group"]
    assert "no process group was initialised: each rank ran alone" in ended.printed[0]
    rows = re.findall(r"^ +([01]) +[\d.]+ [µm]?s", ended.printed[0], re.MULTILINE)
    assert rows == ["0", "1"]  # the step of each rank
    study = study_of(ended.run)
    assert (study.straggler, study.steps, study.collectives) == (None, 0, ())


def test_four_ranks_of_fsdp_gather_and_scatter_their_shards(tmp_path: Path) -> None:
    ended = launched(tmp_path, SHARDED, 4)
    assert ended.codes == [0, 0, 0, 0]
    whole = regions(ended.run)
    assert sorted(whole) == [0, 1, 2, 3]
    for record in whole.values():
        assert record.program is not None
        found = {
            c.message.name: (c.message.bytes, c.message.ranks) for c in record.program.collectives
        }
        assert found["all_gather"] == found["reduce_scatter"] == (4 * 256 * 256, 4)
    assert len(study_of(ended.run).rows) == 4


def test_torchrun_starts_gpuperf_in_place_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ALONE, encoding="utf-8")
    command = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "gpuperf"]
    done = forks.run(
        [sys.executable, "-m", *command, "profile", "--steps", "5", "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("optimizer step of train.py") == 1
    (file,) = (tmp_path / "gpuperf-runs").glob("*.jsonl")
    assert sorted(regions(read_run(file))) == [0, 1]


def test_a_rank_cannot_run_the_program_anew(tmp_path: Path) -> None:
    ended = launched(tmp_path, ALONE, 2, "--repeat")
    assert ended.codes == [2, 2]
    assert "leave --repeat out" in ended.said[0]
