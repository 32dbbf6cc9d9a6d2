"""The test of the judge: which outcomes it keeps, and which corpora and files it refuses."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import CommandLine, assert_refused

import gpuperf
from gpuperf.judge.corpus import Sample, read_corpus
from gpuperf.judge.outcomes import Basis, KeptOutcomes, Outcome
from gpuperf.judge.selftest import SelfTest, share_of
from gpuperf.judge.settings import Settings
from gpuperf.model.codec import encode
from gpuperf.run.forking import may_have_gpu

MEASURED = Path(__file__).parents[2] / "docs" / "measured" / "h200-judge-selftest.ndjson.gz"
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


def sitting(
    corpus: Path, kept: Path | None = None, device: str = "cpu", say: Callable[[str], None] = print
) -> SelfTest:
    """A sitting without time to judge a sample."""
    settings = Settings(device=device)
    return SelfTest(read_corpus(corpus), settings, say, budget_s=0.0, file=kept)


def outcome_of(sample: Sample) -> Outcome:
    basis = Basis(sample.sha256(), gpuperf.__version__, "process", "cpu")
    return Outcome(sample.name, sample.kind, "", "valid", "", 1.5, "C", basis=basis)


@pytest.mark.skipif(may_have_gpu("auto"), reason="needs a machine without a GPU")
def test_without_a_gpu_auto_judges_the_samples_for_a_cpu(corpus: Path) -> None:
    test = sitting(corpus, device="auto")
    assert test.run() == []
    assert {sample.name for sample in test.able} == {"on_cpu", "on_any"}


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"sha256": "0" * 64}, "of another text"),
        ({"gpuperf": "0.0.1"}, "of another version of gpuperf"),
        ({"isolation": "sandbox"}, "of another isolation"),
        ({"device": "NVIDIA H100"}, "of another device"),
        ({"device": "NVIDIA H100", "sha256": ""}, "of another text or device"),
        (None, "without their conditions"),
    ],
)
def test_an_outcome_is_kept_for_its_own_conditions(
    corpus: Path, other: dict[str, str] | None, what: str
) -> None:
    mine = outcome_of(next(s for s in read_corpus(corpus) if s.name == "on_cpu"))
    assert mine.basis is not None
    basis = None if other is None else replace(mine.basis, **other)
    theirs = replace(mine, status="suspect", basis=basis)
    unknown = replace(theirs, name="of_no_sample")
    kept, said = corpus / "kept" / "outcomes.jsonl", list[str]()
    assert sitting(corpus, kept, say=said.append).run() == []
    assert said == []
    kept.write_bytes(encode(theirs) + b"\n" + encode(unknown) + b"\n")
    assert sitting(corpus, kept, say=said.append).run() == []
    assert said == [f"{kept}: outcomes of 1 samples are {what}: they are judged again"]
    kept.write_bytes(encode(mine) + b"\n" + encode(theirs) + b"\n")
    assert sitting(corpus, kept, say=said.append).run() == [mine]
    assert len(said) == 1


def test_the_outcome_of_a_cheat_does_not_serve_an_honest_sample(corpus: Path) -> None:
    mine = outcome_of(read_corpus(corpus)[0])
    kept = corpus / "outcomes.jsonl"
    kept.write_bytes(encode(replace(mine, kind="cheat")) + b"\n")
    assert sitting(corpus, kept).run() == []


@pytest.mark.parametrize("name", ["outcomes.jsonl", "outcomes.ndjson.gz"])
def test_outcomes_are_added_to_those_in_the_file(name: str, corpus: Path) -> None:
    first, second = (outcome_of(sample) for sample in read_corpus(corpus)[:2])
    KeptOutcomes(corpus / name).add(first)
    KeptOutcomes(corpus / name).add(replace(second, reason="two\u2028lines"))
    assert (corpus / name).read_bytes().startswith(b"\x1f\x8b" if name[-2:] == "gz" else b"{")
    assert len(KeptOutcomes(corpus / name)._known) == 2


@pytest.mark.parametrize("end", [b"", b"\n", b'\n{"name":"a7_wa'])
def test_a_line_that_was_cut_is_judged_again(end: bytes, corpus: Path) -> None:
    first, second = (outcome_of(sample) for sample in read_corpus(corpus)[:2])
    kept = corpus / "outcomes.jsonl"
    kept.write_bytes(encode(first) + end)
    KeptOutcomes(kept).add(second)
    assert kept.read_bytes() == encode(first) + b"\n" + encode(second) + b"\n"


def test_the_outcomes_of_an_h200_are_readable(corpus: Path, tmp_path: Path) -> None:
    kept = tmp_path / MEASURED.name
    kept.write_bytes(MEASURED.read_bytes())
    known = KeptOutcomes(kept)._known
    assert len(known) == 380
    assert {one.basis.device for one in known if one.basis} == {"NVIDIA H200"}
    assert {one.kind for one in known if one.status == "valid"} == {"honest"}
    assert {one.status for one in known if one.kind == "honest"} == {"valid"}
    assert sitting(corpus, kept).run() == []


def test_an_undecided_sample_is_judged_again(corpus: Path) -> None:
    (sample, *_) = read_corpus(corpus)
    kept = corpus / "outcomes.jsonl"
    kept.write_bytes(encode(replace(outcome_of(sample), status="inconclusive")) + b"\n")
    assert sitting(corpus, kept).run() == []


def refused(corpus: Path, sentence: str, *words: str) -> None:
    ended = CommandLine(corpus).within("judge", "selftest", "--corpus", str(corpus), *words)
    assert_refused(ended, 2, sentence)


# Without the time of day, which would name the tests of two processes differently.
PACKED = gzip.compress(b"{}\n", mtime=0)


@pytest.mark.parametrize(
    "text",
    [
        b"{}\n",
        b"\xff\n",
        b"no JSON\n",
        b'{"name":"a package"}',
        None,
        b"\x1f\x8bbroken",
        PACKED,
        PACKED[:-4],
        gzip.compress(bytes(17 << 20), mtime=0),
    ],
)
def test_a_file_that_is_no_file_of_outcomes_is_refused(corpus: Path, text: bytes | None) -> None:
    kept = corpus / "kept"
    if text is None:
        kept.mkdir()
    else:
        kept.write_bytes(text)
    refused(corpus, "kept holds no outcomes|kept cannot keep outcomes", "--kept", str(kept))
    assert text is None or kept.read_bytes() == text


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("cheats/x.py", "def (\n", "is not Python"),
        ("cheats/x.py", "TASK, DEVICE = 1\n", "names no task"),
        ("cheats/x.py", "TASK, DEVICE = f()\n", "names no task"),
        ("cheats/x.py", "x" + ".y" * 600 + " = 1\n", "names no task"),
        ("cheats/on_cpu.py", SAMPLE.format("add", "cpu"), "name a submission 'on_cpu'"),
        ("families/x.py", "VARIANTS = {'a': ('b', 'b')}\nDEVICE = 'gpu'\n", "name a submission"),
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


@pytest.mark.parametrize("part", ["4/4", "1", "a/2", "-1/2", "0/0"])
def test_a_part_that_is_none_is_refused(corpus: Path, part: str) -> None:
    refused(corpus, f"--part {part} names no part", "--part", part)


def test_parts_judge_each_sample_once(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a part that begins when another one has kept outcomes in their file."""
    kept, judged = corpus / "outcomes.jsonl", []

    def judge(self: SelfTest, group: Sequence[Sample], server: object) -> list[Outcome]:
        for sample in group:
            judged.append(sample.name)
            self._keep(outcome_of(sample))
        return [outcome_of(sample) for sample in group]

    monkeypatch.setattr(SelfTest, "_judge_group", judge)
    for name in "abcdef":
        (corpus / "tasks" / f"{name}.py").write_text("")
        (corpus / "honest" / f"of_{name}.py").write_text(SAMPLE.format(name, "any"))
    for index in range(2):
        test = sitting(corpus, kept)
        test.budget_s, test.part = 60.0, (index, 2)
        test.run()
    assert sorted(judged) == sorted(["on_any", "on_cpu", *(f"of_{name}" for name in "abcdef")])
    assert len(sitting(corpus, kept).run()) == len(judged)


def test_parts_have_about_as_many_samples_each(corpus: Path) -> None:
    sample = read_corpus(corpus)[0]
    sizes = [58, 24, 19, 18, 7, 7, *[4] * 40, *[1] * 50]
    groups = [[sample] * size for size in sizes]
    shares = [share_of(groups, number, 4) for number in range(4)]
    counts = [sum(len(group) + 1 for group in share) for share in shares]
    assert sum(counts) == sum(sizes) + len(sizes)
    assert max(counts) - min(counts) <= 2


def test_a_name_that_no_submission_has_is_refused(corpus: Path) -> None:
    refused(corpus, "no submission in .* has 'absent' in its name", "--only", "absent")
