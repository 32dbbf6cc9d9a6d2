"""The page of a run contains its charts, its tables and the run itself, and executes nothing else.

What needs a browser is in test_browser.py.
"""

from __future__ import annotations

import base64
import gzip
import json
import lzma
import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from command_line import CommandLine, Ended
from hypothesis import given, settings
from hypothesis import strategies as st
from large_run import large_page, large_run, large_text
from measured import MEASURED, run_file, text_of
from pages import EVIL, check_inert, poisoned

from gpuperf.gate.page import gate_page
from gpuperf.gate.rule import Evidence, Pairs
from gpuperf.gate.verdict import read_report
from gpuperf.profile.breakdown import profiles
from gpuperf.profile.output import MOST_ROWS
from gpuperf.profile.table import ran
from gpuperf.roofline.rows import entries_of
from gpuperf.run import embedded
from gpuperf.run.packed import pack, unpack
from gpuperf.run.store import read_run
from gpuperf.show.page import Section, data_element, page

POINTS = 1001
DTYPES, COMPARED, PROFILED = "h200-matmul-dtypes", "h200-compare-softmax-4k", "h200-profile-sdpa"


@pytest.fixture(scope="module")
def gpuperf(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    return CommandLine(tmp_path_factory.mktemp("pages"))


def page_of(gpuperf: CommandLine, run: Path) -> str:
    ended = gpuperf.within("show", str(run), "--html", "page.html")
    assert (ended.code, ended.out) == (0, ""), ended.err
    assert "page: page.html (" in ended.err
    return (gpuperf.folder / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [DTYPES, COMPARED, PROFILED])
def test_a_page_loads_nothing_and_is_read_back_as_its_run(gpuperf: CommandLine, name: str) -> None:
    found = check_inert(page_of(gpuperf, run_file(name)))
    assert all(image["alt"] for image in found.of("img"))
    assert read_run(gpuperf.folder / "page.html") == read_run(run_file(name))
    shown = gpuperf.within("show", "page.html", "--format", "json")
    assert shown == gpuperf.within("show", str(run_file(name)), "--format", "json")


def test_each_record_with_a_place_is_one_mark_and_names_its_row(gpuperf: CommandLine) -> None:
    found = check_inert(page_of(gpuperf, run_file("h200-compare-attention")))
    entries = [e for e in entries_of(read_run(run_file("h200-compare-attention"))) if e.placement]
    rows = [int(a["data-r"]) for _, a in found.tags if "data-r" in a]
    assert len(rows) == len(set(rows)) == len(entries) == 16
    names = [a["data-s"] for a in found.of("li") if "data-s" in a]
    assert len(names) == len({e.record.case.implementation for e in entries})
    assert [a["value"] for a in found.of("input")] == ["compulsory", "modelled", "measured"]


def test_a_run_of_copies_is_drawn_as_bandwidth(gpuperf: CommandLine) -> None:
    found = check_inert(page_of(gpuperf, run_file("h200-copy")))
    assert any("bandwidth" in text for text in found.texts)
    assert sum("data-r" in a for _, a in found.tags) == 4


@pytest.mark.parametrize("name", ["h200-matmul-counters", "h200-sincos-import", COMPARED])
def test_no_text_of_a_run_becomes_markup(gpuperf: CommandLine, name: str) -> None:
    path = gpuperf.folder / "poisoned.jsonl"
    lines = (
        json.dumps(poisoned(json.loads(line)))
        for line in text_of(run_file(name)).split("\n")
        if line
    )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    content = page_of(gpuperf, path)
    found = check_inert(content)
    assert content.count("<script") == 2
    assert len(found.of("img")) == (name == COMPARED)
    assert any("onerror=" in text for text in found.texts)
    assert "\u202e" not in content
    assert read_run(gpuperf.folder / "page.html") == read_run(path)


def test_the_page_of_many_points_is_small_and_contains_every_sample(tmp_path: Path) -> None:
    page, run = large_page(POINTS), large_run(POINTS)
    assert len(page.encode()) < 350_000  # 1.3 MB for 5,000 points of 67 samples each
    found = check_inert(page)
    assert sum("data-r" in attributes for _, attributes in found.tags) == POINTS
    assert len(found.of("tr")) == 1 + 200  # the others are compressed
    (rest,) = re.findall("class=rows>([^<]*)</script>", page)
    assert gzip.decompress(base64.b64decode(rest)).count(b"<tr>") == POINTS - 200
    (tmp_path / "large.html").write_text(page, encoding="utf-8")
    back = read_run(tmp_path / "large.html")
    assert (back.header, back.records) == (run.header, run.records)


REFUSED = [
    ("<!DOCTYPE html><p>hello", "is an HTML page without a run of gpuperf", "gate check FILE"),
    ("<!doctype html>" + embedded.START.decode() + "====", "whose run is cut off", "copy the page"),
    (
        "<!doctype html>" + embedded.START.decode() + "<b>x</b></script>",
        "is damaged: it is not base64",
        "copy the page again",
    ),
    (
        "<!doctype html>" + embedded.START.decode() + "AAAA</script>",
        "is broken as a gzip file",
        "copy it again",
    ),
]


@pytest.mark.parametrize(("content", "sentence", "hint"), REFUSED, ids=lambda v: str(v)[-20:])
def test_an_html_file_of_others_is_refused(
    gpuperf: CommandLine, content: str, sentence: str, hint: str
) -> None:
    (gpuperf.folder / "foreign.html").write_text(content)
    refused(gpuperf.within("show", "foreign.html"), sentence, hint)


def test_a_page_replaces_pages_of_gpuperf_alone(gpuperf: CommandLine) -> None:
    mine, run = gpuperf.folder / "mine.html", str(run_file(DTYPES))
    mine.write_text("<!doctype html><title>mine</title>")
    ended = gpuperf.within("show", run, "--html", "mine.html")
    refused(ended, "mine.html exists and is not a page of gpuperf", "choose another file")
    assert "mine" in mine.read_text()
    mine.write_text("")
    for _ in range(2):
        assert gpuperf.within("show", run, "--html", "mine.html").code == 0


def test_regions_of_a_page_have_labels_of_their_own() -> None:
    one, two = (f'<div role=region aria-label="{name}" tabindex=0></div>' for name in ("a", "b"))
    three = one.replace('"a"', '"a 1"')
    content = page("title", (), [Section("", one + two), Section("", one + three)])
    assert re.findall('aria-label="([^"]*)"', content) == ["a 2", "b", "a 3", "a 1"]


def test_a_page_that_unpacks_to_a_huge_run_is_refused(
    gpuperf: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = embedded.embed(b"\n" * (2 << 20))
    (gpuperf.folder / "bomb.html").write_text(f"<!doctype html>{bomb}")
    refused(gpuperf.within("show", "bomb.html"), "has over 200,000 lines", "split it")
    monkeypatch.setattr(embedded, "MOST_PAGE", 1 << 10)
    refused(gpuperf.within("show", "bomb.html"), "is over", "show the run file itself")


def packed_page(gpuperf: CommandLine, packed: bytes) -> Ended:
    """Show a page with the bytes *packed* where a packed run is."""
    data = base64.b85encode(packed).replace(b"<", b",").decode()
    page = f"<!doctype html>{embedded.START_PACKED.decode()}{data}</script>"
    (gpuperf.folder / "packed.html").write_text(page)
    return gpuperf.within("show", "packed.html")


def test_a_packed_run_of_a_gigabyte_is_refused_before_it_is_expanded(
    gpuperf: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    zeros = b"\0" * (8 << 20)
    monkeypatch.setattr(embedded, "MOST_TEXT", 4 << 20)  # the 256 MiB of a user, 64 times smaller
    parts = [zeros, b"[]", b"x", b"x"]
    refused(packed_page(gpuperf, joined(parts)), "expands to over 4 MiB", "the run file itself")
    few = [2**16] * 20  # 1.3 million equal samples, in no bytes at all
    head = msgspec.json.encode([few, [0] * 20, [0] * 20, [1] * 20, [0] * 20])
    parts = [b'"values_s":[~]' * 20, head, b"x", b"x"]
    refused(packed_page(gpuperf, joined(parts)), "expands to over 4 MiB", "the run file itself")
    parts = [b'"values_s":[~]' + b'"values_s":[=]' * 20, b"[[65536],[0],[0],[1],[0]]", b"x", b"x"]
    refused(packed_page(gpuperf, joined(parts)), "expands to over 4 MiB", "the run file itself")


DAMAGED = {
    "cut off": [b'"values_s":[~]', b"[[9],[0],[0],[1],[2]]", b"x", b"x"],
    "an array is missing": [b'"values_s":[~]', b"[]", b"x", b"x"],
    "an array has no place": [b"{}", b"[[1],[0],[0],[1],[1]]", b"x", b"x"],
    "an array is cut off": [b'"values_s":[~]', b"[[1],[0],[0],[1],[9]]", b"x", b"x"],
    "an array is cut": [b'"values_s":[~]', b"[[99999],[0],[0],[1],[0]]", b"x", b"x"],
    "an array has no numbers": [b'"values_s":[~]', b"[[1],[9999],[0],[1],[1]]", b"x", b"x"],
    "is damaged": [b'"values_s":[~]', b'[["1"]]', b"x", b"x"],
    "is not a run of gpuperf": [b"{}", b"[]", b"x", b"x"],
}


@pytest.mark.parametrize("sentence", DAMAGED)
def test_a_damaged_packed_run_is_a_sentence(gpuperf: CommandLine, sentence: str) -> None:
    whole = joined(DAMAGED[sentence])
    refused(packed_page(gpuperf, whole), sentence, "")
    refused(packed_page(gpuperf, whole[:-9]), "damaged", "copy the page again")
    refused(packed_page(gpuperf, b"1234" + whole), "damaged", "copy the page again")


def joined(parts: list[bytes]) -> bytes:
    return b"".join(len(p).to_bytes(4, "little") + p for p in map(lzma.compress, parts))


def test_a_page_that_is_cut_off_is_a_sentence(gpuperf: CommandLine) -> None:
    whole = page_of(gpuperf, run_file(DTYPES))
    (gpuperf.folder / "cut.html").write_text(whole[: whole.index(embedded.START.decode()) + 500])
    refused(gpuperf.within("show", "cut.html"), "whose run is cut off", "copy the page again")
    (gpuperf.folder / "cut.html").write_text(whole[:500])
    refused(
        gpuperf.within("show", "cut.html"), "without a run of gpuperf", "gpuperf gate check FILE"
    )


SMALL = st.floats(0, 1e-3, allow_nan=False)
TEXTS = st.lists(
    st.one_of(
        st.lists(SMALL, max_size=5).map(lambda v: b'"values_s":' + msgspec.json.encode(v)),
        st.sampled_from(
            [
                b'"values_s":[1e999999999]',
                b'"values_s":[0.10,1e-2,1E3]',
                b'"sm_clock_hz":[null,1.5e9]',
                b'"sm_clock_hz":[1980000000.0,1.98e9]',
                b'"values_s":[1e-400,1]',
                b'"values_s":[1,]',
                b'"values_s":[1e-6,3e-6]',  # twice in a text, it is written once
                b"\xff\n",
            ]
        ),
    )
).map(b",".join)


@given(TEXTS)
@settings(max_examples=60, deadline=None)
def test_what_is_packed_is_unpacked_to_the_byte(text: bytes) -> None:
    packed = pack(text)
    assert packed is not None
    assert unpack(packed, 1 << 20) == text


def test_real_run_files_are_packed_into_less_and_unpacked_to_the_byte() -> None:
    for name in ("h200-compare-attention", "h200-calibrate"):
        text = text_of(run_file(name)).encode()
        packed = pack(text)
        assert packed is not None
        assert unpack(packed, 1 << 30) == text
        assert len(packed) < 0.8 * len(gzip.compress(text, 9))
    large = large_text(POINTS)
    assert len(pack(large) or large) < 0.5 * len(gzip.compress(large, 9))
    assert pack(b'"values_s":[~]') is pack(b'"values_s":[=]') is None


@pytest.mark.parametrize(
    ("words", "sentence", "hint"),
    [
        (["--html", "page.pdf"], "its name does not end with .html", "--html report.html"),
        (["--html", "none/page.html"], "cannot write 'none/page.html'", "choose another file"),
        (["--html", "p.html", "--chart", "c.svg"], "exclude each other", "the page has the charts"),
        (["--html", "p.html", "--format", "csv"], "--html and --format exclude", "the page has"),
    ],
)
def test_a_page_that_cannot_be_written_is_a_sentence(
    gpuperf: CommandLine, words: list[str], sentence: str, hint: str
) -> None:
    refused(gpuperf.within("show", str(run_file("h200-copy")), *words), sentence, hint)


def refused(ended: Ended, sentence: str, hint: str) -> None:
    assert (ended.code, ended.out) == (2, "")
    said, advice = ended.err.strip().splitlines()
    assert sentence in said
    assert hint in advice


def test_several_runs_in_one_file_are_refused(gpuperf: CommandLine) -> None:
    two = text_of(run_file("h200-copy")) + text_of(run_file("h200-vector-add"))
    (gpuperf.folder / "two.jsonl.gz").write_bytes(gzip.compress(two.encode()))
    ended = gpuperf.within("show", "two.jsonl.gz", "--html", "two.html")
    refused(ended, "holds 2 runs; a page shows one", "split the file")


def test_a_verdict_is_a_page_that_the_gate_judges_again(gpuperf: CommandLine) -> None:
    folder = MEASURED / "gates" / "regressions"
    content = page_of(gpuperf, folder)
    found = check_inert(content)
    report = read_report(folder / "verdict.json")
    pairs = [pairs for case in report.cases if case.evidence for pairs in all_pairs(case.evidence)]
    told = [a["data-t"] for _, a in found.tags if "data-t" in a]
    assert len(told) == sum(len(each.base) for each in pairs) > 20
    assert all(re.match(r"(screening|confirming) pair \d+ of \d+: base .*, head ", t) for t in told)
    assert {a["data-s"] for a in found.of("li") if "data-s" in a} == {"c1", "c7"}
    assert "gate: regressed" in found.texts
    assert any("softmax/fused" in text for text in found.texts)
    judged = gpuperf.within("gate", "check", "page.html", "--format", "json")
    assert judged == gpuperf.within("gate", "check", f"{folder}/verdict.json", "--format", "json")
    assert judged.code == 1
    refused(
        gpuperf.within("show", "page.html"), "without a run of gpuperf", "gpuperf gate check FILE"
    )
    assert data_element("x", '"</script>"').count("</script>") == 1


def test_no_text_of_a_verdict_becomes_markup() -> None:
    report = read_report(MEASURED / "gates" / "slower-1" / "verdict.json")
    cases = tuple(replace(each, case=EVIL + each.case, fields=None) for each in report.cases)
    sentinels = {EVIL + name: pairs for name, pairs in report.sentinels.items()}
    content = gate_page(replace(report, cases=cases, sentinels=sentinels))
    found = check_inert(content)
    assert content.count("<script") == 2
    assert found.of("img") == []
    assert any("onerror=" in text for text in found.texts)


def all_pairs(evidence: Evidence) -> list[Pairs]:
    return [evidence.screen, *filter(None, [evidence.confirm])]


def test_the_operators_of_a_profile_fold_out_their_kernels(gpuperf: CommandLine) -> None:
    found = check_inert(page_of(gpuperf, run_file(PROFILED)))
    (profile,) = profiles(read_run(run_file(PROFILED)))
    shown = [row for row in ran(profile)[:MOST_ROWS] if row.record.kernels]
    assert len(found.of("details")) == len(found.of("summary")) == len(shown) > 10
    kernels = {k.name.removeprefix("void ")[:30] for row in shown for k in row.record.kernels}
    assert all(any(f" × {name}" in text for text in found.texts) for name in kernels)


def test_a_folder_of_runs_is_a_history(gpuperf: CommandLine) -> None:
    folder = gpuperf.folder / "runs"
    folder.mkdir()
    for name in ("h200-suggest", "h200-suggest-again"):
        (folder / f"{name}.jsonl.gz").write_bytes(run_file(name).read_bytes())
    found = check_inert(page_of(gpuperf, folder))
    assert "history: runs" in found.texts
    listed = gpuperf.within("history", "list", "--folder", str(folder), "--format", "json")
    several = [case for case in json.loads(listed.out) if case["points"] > 1]
    assert len(found.of("img")) == min(len(several), 30)


def test_explained_cases_are_a_page_that_contains_their_run(gpuperf: CommandLine) -> None:
    source = run_file("h200-explain-matmul")
    ended = gpuperf.within("explain", str(source), "--html", "explained.html")
    assert (ended.code, ended.out) == (0, "")
    found = check_inert((gpuperf.folder / "explained.html").read_text(encoding="utf-8"))
    assert len(found.of("img")) == 1
    assert len(found.of("table")) >= 4
    assert read_run(gpuperf.folder / "explained.html") == read_run(source)
    with_chart = gpuperf.within("explain", str(source), "--html", "e.html", "--chart", "e.svg")
    refused(with_chart, "exclude each other", "the page has the charts")
