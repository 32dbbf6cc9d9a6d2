"""The test of the judge: which outcomes it keeps, and which corpora and files it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from command_line import CommandLine, assert_refused

import gpuperf
from gpuperf.judge.corpus import Sample, read_corpus
from gpuperf.judge.selftest import Basis, Outcome, SelfTest
from gpuperf.judge.settings import Settings
from gpuperf.model.codec import encode
from gpuperf.run.forking import may_have_gpu

SAMPLE = 'TASK, DEVICE = "{}", "{}"\n'


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for name in ("tasks", "cheats", "honest", "families"):
        (tmp_path / "corpus" / name).mkdir(parents=True)
    (tmp_path / "corpus" / "tasks" / "add.py").write_text("")
    for device in ("cpu", "gpu", "any"):
        text = SAMPLE.format("add", device)
        (tmp_path / "corpus" / "honest" / f"on_{device}.py").write_text(text)
    return tmp_path / "corpus"


def sitting(corpus: Path, kept: Path | None = None, device: str = "cpu") -> SelfTest:
    """A sitting without time to judge a sample."""
    settings = Settings(device=device)
    return SelfTest(read_corpus(corpus), settings, print, budget_s=0.0, file=kept)


def outcome_of(sample: Sample) -> Outcome:
    basis = Basis(sample.sha256(), gpuperf.__version__, "process", "cpu")
    return Outcome(sample.name, sample.kind, "", "valid", "", 1.5, "C", basis=basis)


@pytest.mark.skipif(may_have_gpu("auto"), reason="needs a machine without a GPU")
def test_without_a_gpu_auto_judges_the_samples_for_a_cpu(corpus: Path) -> None:
    test = sitting(corpus, device="auto")
    assert test.run() == []
    assert {sample.name for sample in test.able} == {"on_cpu", "on_any"}


@pytest.mark.parametrize(
    "other",
    [
        {"sha256": "0" * 64},
        {"gpuperf": "0.0.1"},
        {"isolation": "sandbox"},
        {"device": "NVIDIA H100"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_an_outcome_is_kept_for_its_own_conditions(corpus: Path, other: dict[str, str]) -> None:
    mine = outcome_of(next(s for s in read_corpus(corpus) if s.name == "on_cpu"))
    assert mine.basis is not None
    theirs = replace(mine, status="suspect", basis=replace(mine.basis, **other))
    kept = corpus / "kept" / "outcomes.jsonl"
    assert sitting(corpus, kept).run() == []
    kept.write_bytes(encode(theirs) + b"\n")
    assert sitting(corpus, kept).run() == []
    kept.write_bytes(encode(mine) + b"\n" + encode(theirs) + b"\n")
    assert sitting(corpus, kept).run() == [mine]


def test_an_undecided_sample_is_judged_again(corpus: Path) -> None:
    (sample, *_) = read_corpus(corpus)
    kept = corpus / "outcomes.jsonl"
    kept.write_bytes(encode(replace(outcome_of(sample), status="inconclusive")) + b"\n")
    assert sitting(corpus, kept).run() == []


def refused(corpus: Path, sentence: str, *words: str) -> None:
    ended = CommandLine(corpus).within("judge", "selftest", "--corpus", str(corpus), *words)
    assert_refused(ended, 2, sentence)


@pytest.mark.parametrize("text", [b"{}\n", b"\xff\n", b"no JSON\n", None])
def test_a_file_that_is_no_file_of_outcomes_is_refused(corpus: Path, text: bytes | None) -> None:
    kept = corpus / "kept"
    if text is None:
        kept.mkdir()
    else:
        kept.write_bytes(text)
    refused(corpus, "kept holds no outcomes|kept cannot keep outcomes", "--kept", str(kept))


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("cheats/x.py", "def (\n", "is not Python"),
        ("cheats/x.py", "TASK, DEVICE = 1\n", "names no task"),
        ("cheats/x.py", "TASK, DEVICE = f()\n", "names no task"),
        ("cheats/x.py", SAMPLE.format("add", "tpu"), "names no task"),
        ("cheats/x.py", SAMPLE.format("../../secret", "cpu"), "names no task"),
        ("cheats/x.py", SAMPLE.format("absent", "cpu"), "names the unknown task 'absent'"),
        ("cheats/x.py", "\udcff", "is no text in UTF-8"),
        ("families/x.py", "VARIANTS = 1\nDEVICE = 'gpu'\n", "names no variants"),
        ("families/x.py", "VARIANTS = {'a': 1}\nDEVICE = 'gpu'\n", "by no names"),
        ("families/x.py", "VARIANTS = {'../a': ('b',)}\nDEVICE = 'gpu'\n", "by no names"),
        ("families/x.py", "VARIANTS = {'a': ('../b',)}\nDEVICE = 'gpu'\n", "by no names"),
    ],
)
def test_a_bad_corpus_is_refused(corpus: Path, name: str, text: str, sentence: str) -> None:
    (corpus / name).write_bytes(text.encode(errors="surrogateescape"))
    refused(corpus, sentence)
