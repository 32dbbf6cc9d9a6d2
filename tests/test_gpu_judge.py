"""The judge on a GPU: an honest submission, cheats, shared memory, and the outside witness."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

from gpuperf.judge.clerk import Clerk
from gpuperf.judge.corpus import Sample, read_corpus
from gpuperf.judge.evidence import CaseEvidence
from gpuperf.judge.reading import read_task
from gpuperf.judge.rule import Judgement, judge_case
from gpuperf.judge.run import serving
from gpuperf.judge.settings import Settings
from gpuperf.judge.task import Submission
from gpuperf.run.forking import ForkServer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.version.hip is not None, reason="needs an NVIDIA GPU"
    ),
]

CORPUS = Path(__file__).parent / "cheats" / "judged"
SETTINGS = Settings(processes=1, deadline_s=60.0, started="forked", device="cuda:0")


@cache
def samples() -> Mapping[str, Sample]:
    return {sample.name: sample for sample in read_corpus(CORPUS)}


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer | None]:
    with serving(SETTINGS) as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@contextmanager
def clerk_for(sample: Sample, folder: Path, server: ForkServer | None) -> Iterator[Clerk]:
    reference = folder / f"{sample.task}.py"
    reference.write_text(sample.texts()[0])
    task = read_task(reference, "kernelbench", 1)
    with Clerk(task, task.cases[0], SETTINGS, server) as clerk:
        yield clerk


def judged(
    text: str, sample: Sample, folder: Path, server: ForkServer | None
) -> tuple[CaseEvidence, Judgement]:
    """Judge the submission *text* against the task of *sample*."""
    path = folder / "submitted.py"
    path.write_text(text)
    with clerk_for(sample, folder, server) as clerk:
        evidence = clerk.judge(Submission(str(path), name=path.name))
    return evidence, judge_case(evidence)


HONEST = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        return torch.add(y, x, alpha=2)
"""


def test_an_honest_submission_is_valid_and_its_bytes_were_seen(
    folder: Path, server: ForkServer | None
) -> None:
    evidence, found = judged(HONEST, samples()["c5_half_sum"], folder, server)
    assert found.status == "valid", (found.reason, evidence.failure, evidence.reason)
    hardware = evidence.hardware
    assert hardware is not None
    assert hardware.needed_bytes == pytest.approx(2 * 4 * 2**24, rel=1e-3)
    assert found.score is not None
    assert found.score.speedup > 1.2  # one kernel of three passes, where the reference has two
    mine = [w for w in hardware.recorded if w.side == "submission"]
    assert mine, hardware.missing
    assert all(sum(ran.count for ran in w.ran) == w.calls for w in mine)
    assert all(w.late_s < 10e-6 and w.early_s == 0.0 for w in mine)
    seen = [w for w in hardware.seen if w.side == "submission"]
    assert seen, hardware.missing
    assert evidence.grade == "A"
    for w in seen:
        assert w.read == pytest.approx(w.calls * hardware.needed_bytes, rel=0.1)


LARGE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.rand({rows}, 2**18)]
def get_init_inputs():
    return []
"""


def test_inputs_of_a_23rd_of_the_memory_are_judged_with_all_kinds_of_values(
    folder: Path, server: ForkServer | None
) -> None:
    rows = torch.cuda.get_device_properties(0).total_memory // 23 // 2**20
    reference, submitted = folder / "large.py", folder / "submitted.py"
    reference.write_text(LARGE.format(rows=rows))
    submitted.write_text(reference.read_text().replace("class Model(", "class ModelNew("))
    task = read_task(reference, "kernelbench", 1)
    with Clerk(task, task.cases[0], SETTINGS, server) as clerk:
        evidence = clerk.judge(Submission(str(submitted)))
    assert judge_case(evidence).status == "valid", judge_case(evidence).reason
    assert {audit.kind for audit in evidence.audits} > {"nominal", "extreme"}


@pytest.mark.parametrize(
    ("name", "statuses"),
    [
        ("a1_side_stream", ("cheat", "wrong")),
        ("a1_half_on_side_stream", ("cheat", "wrong")),
        ("a4_driver_wait", ("cheat", "wrong", "suspect")),
        ("b4_graph_by_version", ("cheat",)),
        ("c3_zeroed_after", ("wrong",)),
        ("c5_tf32", ("cheat", "wrong")),
    ],
)
def test_a_cheat_is_convicted(
    name: str, statuses: tuple[str, ...], folder: Path, server: ForkServer | None
) -> None:
    sample = samples()[name]
    evidence, found = judged(sample.texts()[1], sample, folder, server)
    assert found.status in statuses, (found.status, found.reason, evidence.failure)


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("d1_behind_a_fig_leaf", "suspect"),
        ("d1_library_if_it_fails", "suspect"),
        ("add_own_kernel", "valid"),
    ],
)
def test_whose_kernels_ran_is_judged_where_libraries_are_forbidden(
    name: str, status: str, folder: Path, server: ForkServer | None
) -> None:
    sample = samples()[name]
    evidence, found = judged(sample.texts()[1], sample, folder, server)
    assert found.status == "valid", (found.reason, evidence.failure)
    assert judge_case(replace(evidence, forbidden="library")).status == status


def test_one_clerk_judges_several_submissions(folder: Path, server: ForkServer | None) -> None:
    sample = samples()["c5_tf32"]
    path = folder / "submitted.py"
    path.write_text(sample.texts()[0].replace("class Model(", "class ModelNew("))
    with clerk_for(sample, folder, server) as clerk:
        statuses = [judge_case(clerk.judge(Submission(str(path)))).status for _ in range(2)]
        assert not clerk.is_spoiled()
    assert statuses == ["valid", "valid"]
