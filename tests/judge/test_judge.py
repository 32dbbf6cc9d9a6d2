"""The judge on real processes: honest submissions, cheats, unfair tasks, formats, exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import SAXPY, CommandLine

from gpuperf.judge.clerk import Clerk
from gpuperf.judge.corpus import read_corpus
from gpuperf.judge.outcomes import ACCUSED, Outcome
from gpuperf.judge.reading import read_task
from gpuperf.judge.rule import judge_case
from gpuperf.judge.selftest import rates_table
from gpuperf.judge.settings import Settings
from gpuperf.judge.task import Submission
from gpuperf.show.render import render

HERE = Path(__file__).parent
CORPUS = HERE.parent / "cheats" / "judged"
ONE = ("--processes", "1", "--deadline", "60", "--no-compiled")
FAMILIES = """
A1 A2 A3 A4 A5 A6 A7 A8 A10 A11 A12 B1 B2 B3 B4 B5 B6 B7 B8 B9 C1 C2 C3 C4 C5 C6 C7 C8 C9 C10 C11
D1 D2 D3 D4 D5 D6
"""
# One of each way to cheat, and one honest submission beside them.
SOME_CHEATS = (
    "a2_thread",
    "a3_lazy_subclass",
    "a4_seat_clock",
    "a5_detour",
    "a6_claims_in_memory",
    "a7_warm_up",
    "a10_no_time",
    "a12_exit",
    "a12_forged_message",
    "b1_version",
    "b2_first_element",
    "b5_public_seeds",
    "b7_fresh_memory",
    "c3_zeroed_inputs",
    "c4_one_tile",
    "c5_fp16",
    "c6_sniffs",
    "d6_results_of_others",
    "d2_edits_reference",
)
SOME_HONEST = ("matmul_double", "matmul_transposed", "matmul_split_k", "matmul_workspace")


@pytest.fixture
def judge(tmp_path: Path) -> CommandLine:
    (tmp_path / "reference.py").write_text((CORPUS / "tasks" / "norm.py").read_text())
    return CommandLine(tmp_path)


@pytest.fixture
def clerk(tmp_path: Path) -> Iterator[Clerk]:
    reference = tmp_path / "matmul.py"
    reference.write_text((CORPUS / "tasks" / "matmul.py").read_text())
    task = read_task(reference, "kernelbench", 1)
    with Clerk(task, task.cases[0], Settings(processes=1)) as held:
        yield held
    assert not held._starting.memory.exists()
    assert not held._starting.scratch.exists()


def test_an_honest_submission_is_judged_and_its_verdict_checked(judge: CommandLine) -> None:
    (judge.folder / "mine.py").write_text((CORPUS / "honest" / "norm_native.py").read_text())
    ended = judge("judge", "mine.py", "--against", "reference.py", *ONE)
    assert ended.code in (0, 4), ended.err  # 4 where other work hides the speed-up
    said = json.loads((judge.folder / "verdict.json").read_text())
    assert said["status"] in ("valid", "inconclusive")
    case = said["cases"][0]["evidence"]
    assert len(case["audits"]) > 20
    assert not any(audit["reason"] or audit["changed"] for audit in case["audits"])
    assert case["cost"]["bytes"][0]["read"] == 4 * (96 * 512 + 2 * 512)
    assert {audit["kind"] for audit in case["audits"]} > {"nominal", "offset", "extreme"}
    again = judge("judge", "check", "verdict.json")
    assert (again.code, again.out) == (ended.code, ended.out)


@pytest.mark.slow
def test_torch_compile_of_the_reference_is_timed_beside_it(judge: CommandLine) -> None:
    (judge.folder / "mine.py").write_text((CORPUS / "honest" / "norm_native.py").read_text())
    ended = judge("judge", "mine.py", "--against", "reference.py", "--processes", "1")
    said = json.loads((judge.folder / "verdict.json").read_text())
    windows = said["cases"][0]["evidence"]["windows"]
    counts = [sum(w["side"] == side for w in windows) for side in ("reference", "compiled")]
    assert counts[0] == counts[1] > 10, ended.err
    assert (said["compiled"] is None) == (said["status"] != "valid")


def test_without_a_compiler_the_reference_is_not_compiled(
    judge: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "/bin/false")
    (judge.folder / "mine.py").write_text((CORPUS / "honest" / "norm_native.py").read_text())
    ended = judge("judge", "mine.py", "--against", "reference.py", "--processes", "1")
    assert ended.code in (0, 4), ended.err
    said = json.loads((judge.folder / "verdict.json").read_text())
    assert said["compiled"] is None
    (note,) = said["cases"][0]["evidence"]["notes"]
    assert note.startswith("torch.compile of the reference is not timed: ")


def test_a_wrong_submission_ends_with_1(judge: CommandLine) -> None:
    (judge.folder / "mine.py").write_text((CORPUS / "cheats" / "c1_no_mean.py").read_text())
    ended = judge("judge", "file", "mine.py", "--against", "reference.py", *ONE, "--json")
    assert ended.code == 1, ended.err
    assert json.loads(ended.out)[0]["status"] == "wrong"


@pytest.mark.parametrize(
    ("text", "code", "status"),
    [
        ("class ModelNew(:\n", 3, "compile-error"),
        ("import torch\nclass ModelNew(torch.nn.Module):\n    pass\n", 3, "crashed"),
    ],
)
def test_what_does_not_run_is_not_judged(
    judge: CommandLine, text: str, code: int, status: str
) -> None:
    (judge.folder / "mine.py").write_text(text)
    ended = judge("judge", "mine.py", "--against", "reference.py", *ONE)
    assert ended.code == code, ended.err
    assert json.loads((judge.folder / "verdict.json").read_text())["status"] == status


def test_a_reference_that_fails_is_a_mistake_of_the_task(judge: CommandLine) -> None:
    (judge.folder / "mine.py").write_text("class ModelNew: pass")
    (judge.folder / "reference.py").write_text("class Model:\n  x\ndef get_inputs(): return []\n")
    ended = judge("judge", "mine.py", "--against", "reference.py", *ONE)
    assert ended.code == 2
    assert "the reference cannot be judged by" in ended.err
    assert not (judge.folder / "verdict.json").exists()


@pytest.mark.parametrize(
    ("forward", "inputs", "kind"),
    [
        ("return torch.zeros_like(x) + 0 * x", 1, "constant"),
        ("return x.exp() + 0 * y", 2, "input"),
        ("return x.clone()", 1, "trivial"),
        ("return x + torch.rand_like(x)", 1, "random"),
    ],
)
def test_an_unfair_task_is_refused_before_anyone_is_scored(
    judge: CommandLine, forward: str, inputs: int, kind: str
) -> None:
    names = ", ".join("xy"[:inputs])
    (judge.folder / "reference.py").write_text(
        "import torch\nclass Model(torch.nn.Module):\n"
        f"    def forward(self, {names}):\n        {forward}\n"
        f"def get_inputs():\n    return [torch.randn(64, 64) for _ in range({inputs})]\n"
    )
    (judge.folder / "mine.py").write_text("raise SystemExit('it was run')")
    ended = judge("judge", "mine.py", "--against", "reference.py", *ONE)
    assert ended.code == 3, ended.err
    said = json.loads((judge.folder / "verdict.json").read_text())
    assert said["status"] == "unfair-task"
    assert kind in [way["kind"] for way in said["cases"][0]["evidence"]["unfair"]]
    assert said["cases"][0]["evidence"]["windows"] == []


def test_a_task_of_gpu_mode_is_judged_by_its_own_check(judge: CommandLine) -> None:
    folder = str(HERE / "gpumode")
    right = judge("judge", f"{folder}/submission.py", "--against", folder, "--cases", "1", *ONE)
    assert right.code in (0, 4), right.err
    stale = judge("judge", f"{folder}/stale.py", "--against", folder, "--cases", "1", *ONE)
    assert stale.code == 1, stale.err
    said = json.loads((judge.folder / "verdict.json").read_text())
    assert "refused by the task's own check" in str(said["cases"][0]["evidence"]["audits"])


def test_traces_of_flashinfer_bench_are_written(judge: CommandLine) -> None:
    folder = HERE / "flashinfer"
    task = str(folder / "definitions" / "scale.json")
    for name in ("fused", "wrong"):
        solution = str(folder / "solutions" / f"{name}.json")
        words = ("--against", task, "--cases", "1", "--trace", "traces.jsonl")
        judge("judge", solution, *words, *ONE)
    traces = [json.loads(x) for x in (judge.folder / "traces.jsonl").read_text().splitlines()]
    by = {trace["solution"]: trace for trace in traces}
    wrong = by["wrong"]["evaluation"]
    assert wrong["status"] == "INCORRECT_NUMERICAL"
    assert (wrong["correctness"], wrong["performance"]) == (None, None)
    if "fused" in by:  # no trace of what the machine was too noisy for
        passed = by["fused"]["evaluation"]
        assert passed["status"] == "PASSED"
        assert passed["performance"]["latency_ms"] > 0
        assert 0 < passed["correctness"]["max_absolute_error"] < 1e-4
        assert by["fused"]["workload"]["uuid"] == "first"


def test_a_workload_is_a_task(judge: CommandLine) -> None:
    (judge.folder / "saxpy.py").write_text(SAXPY)
    body = "    return lambda: {} * inputs['x'] + inputs['y']\n"
    for name, factor, codes in (("right", 2.5, (0, 4)), ("wrong", 2.501, (1,))):
        text = "def build(inputs, point, options):\n" + body.format(factor)
        (judge.folder / f"{name}.py").write_text(text)
        words = ("--against", "saxpy.py", "--point", "n=65536", *ONE)
        assert judge("judge", f"{name}.py", *words).code in codes


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--point", "n=abc"), "--point n=abc: n must be a whole number from 1 up"),
        (("--point", "n=0"), "--point n=0: n must be a whole number from 1 up"),
        (("--point", "q=3"), "no axis of saxpy 'q'"),
        (("--point", "dtype=fp9"), "no dtype for --point 'fp9'"),
        (("--device", "gpu"), "no device 'gpu'; did you mean 'cuda:0'?"),
    ],
)
def test_a_mistake_in_an_option_is_none_of_the_reference(
    judge: CommandLine, words: tuple[str, ...], sentence: str
) -> None:
    (judge.folder / "saxpy.py").write_text(SAXPY)
    (judge.folder / "mine.py").write_text("build = None\n")
    ended = judge("judge", "mine.py", "--against", "saxpy.py", *words, *ONE)
    assert ended.code == 2
    assert sentence in ended.err
    assert "cannot be judged by" not in ended.err


@pytest.mark.slow
def test_known_cheats_are_not_valid_and_honest_kernels_not_accused(clerk: Clerk) -> None:
    statuses = {}
    for kind, names in (("cheats", SOME_CHEATS), ("honest", SOME_HONEST)):
        for name in names:
            if clerk.is_spoiled():
                break
            path = CORPUS / kind / f"{name}.py"
            judged = judge_case(clerk.judge(Submission(str(path), name=name)))
            statuses[name] = judged.status
            assert judged.status != "valid" if kind == "cheats" else judged.status not in ACCUSED, (
                name,
                judged,
            )
        if kind == "cheats":
            assert clerk.is_spoiled()  # by the last of them, which edits the reference
            Path(clerk.task.reference).write_text((CORPUS / "tasks" / "matmul.py").read_text())
    assert statuses["d2_edits_reference"] == "cheat"
    for name in ("a4_seat_clock", "a5_detour", "a6_claims_in_memory", "a10_no_time"):
        assert statuses[name] == "cheat"
    assert statuses["d6_results_of_others"] in ("wrong", "cheat")  # it may answer earlier contents
    assert statuses["b1_version"] == "cheat"
    assert statuses["c5_fp16"] == "wrong"


def test_the_corpus_has_every_family() -> None:
    samples = read_corpus(CORPUS)
    cheats = [s for s in samples if s.kind == "cheat"]
    assert set(FAMILIES.split()) == {s.summary.partition(":")[0] for s in cheats}
    assert len([s for s in cheats if s.runs_on(gpu=False)]) >= 40
    assert len([s for s in cheats if s.runs_on(gpu=True)]) >= 40
    assert all(s.path.stem.startswith(s.summary.partition(":")[0].lower() + "_") for s in cheats)
    assert all(s.variant or (CORPUS / "tasks" / f"{s.task}.py").is_file() for s in samples)
    honest = [s for s in samples if s.kind == "honest"]
    assert len([s for s in honest if s.runs_on(gpu=False)]) >= 30
    assert len([s for s in honest if s.runs_on(gpu=True)]) >= 200
    assert len({s.name for s in samples}) == len(samples)


def test_the_rates_have_exact_bounds() -> None:
    outcomes = [
        *(Outcome("x", "cheat", "C1", "wrong", "") for _ in range(59)),
        Outcome("y", "honest", "", "suspect", "it burns"),
        *(Outcome("y", "honest", "", "valid", "", 1.0) for _ in range(9)),
    ]
    text = render([rates_table(outcomes, 4, 7)], "table")
    assert "0 of 59 cheats were valid (rate ≤ 4.95 % with 95 % confidence)" in text
    assert "1 of 10 honest submissions were accused (rate ≤ 39.4 % with 95 % confidence)" in text
    assert "4 submissions need another device" in text
    assert "7 submissions are left for another sitting" in text
