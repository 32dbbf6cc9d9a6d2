"""Verdicts, plans and indexes of baselines from elsewhere are data or one sentence of an error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_sides import FakeSide, Heard, plan_of, sides_in
from synthetic_gate import CASES, compare_runs, run_of, written
from typer.testing import CliRunner

from gpuperf.baseline.command import baseline
from gpuperf.errors import GpuperfError, UsageError
from gpuperf.gate.ab import gate_ab
from gpuperf.gate.baseline import INDEX, Shelf
from gpuperf.gate.bounds import MOST_CASES, MOST_ENTRIES, MOST_RESAMPLES
from gpuperf.gate.formats import GateFormat, render_gate
from gpuperf.gate.plan import read_plan
from gpuperf.gate.prime import GateRequest
from gpuperf.gate.rule import Judged, Rule
from gpuperf.gate.verdict import CaseVerdict, GateReport, read_report, recheck, write_report


@pytest.fixture(scope="module")
def paired(tmp_path_factory: pytest.TempPathFactory) -> GateReport:
    folder = tmp_path_factory.mktemp("gate")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUPERF_CACHE", str(folder / "cache"))
        launchers = {"base": FakeSide(seed=1), "head": FakeSide(seed=2, slower={"op1": 0.05})}
        asked = GateRequest(plan_of(Rule(confirm_pairs=12, seed=3, resamples=99)), folder)
        return gate_ab(asked, sides_in(folder), launchers, Heard())  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def stored() -> GateReport:
    head = run_of({CASES[0].id: 0.06}, seed=2)
    return compare_runs(run_of(), head, Rule(resamples=99), 0.1)


def read_again(report: GateReport, folder: Path) -> GateReport:
    write_report(report, folder / "verdict.json")
    return read_report(folder / "verdict.json")


@pytest.mark.parametrize("resamples", [0, -1, MOST_RESAMPLES + 1, 10**9])
def test_a_verdict_that_asks_for_no_or_endless_permutations_is_refused(
    paired: GateReport, tmp_path: Path, resamples: int
) -> None:
    assert read_again(paired, tmp_path) == paired
    odd = replace(paired, rule=replace(paired.rule, resamples=resamples))
    with pytest.raises(UsageError, match=f"asks for {resamples} permutations"):
        read_again(odd, tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("screen_level", 0.0),
        ("screen_level", 1.0),
        ("alpha", 0.0),
        ("alpha", -0.5),
        ("power", 1.0),
        ("equivalence", 0.0),
        ("margin", -1.0),
        ("margin", 1e300),
        ("floor_s", -1e-6),
        ("screen_pairs", 0),
        ("confirm_pairs", 10**6),
        ("seed", -1),
    ],
)
def test_a_rule_that_no_gate_has_is_refused(
    paired: GateReport, tmp_path: Path, field: str, value: float
) -> None:
    odd = replace(paired, rule=replace(paired.rule, **{field: value}))
    with pytest.raises(UsageError, match=rf"its {field} is|asks for .* {field}"):
        read_again(odd, tmp_path)


def test_a_verdict_of_more_than_any_gate_has_is_refused_before_it_is_judged(
    paired: GateReport, tmp_path: Path
) -> None:
    many = tuple(CaseVerdict(f"a/b[n={i}]", Judged("UNCHANGED")) for i in range(MOST_CASES + 1))
    listed = dict.fromkeys(map(str, range(MOST_ENTRIES + 1)), "")
    (evidence, *_) = (c.evidence for c in paired.cases if c.evidence and c.evidence.confirm)
    work = tuple(
        CaseVerdict(f"a/b[n={i}]", Judged("REGRESSED"), evidence) for i in range(MOST_CASES)
    )
    for odd, told in (
        (replace(paired, cases=many), "10,001 cases"),
        (replace(paired, notes=tuple(listed)), "10,001 notes"),
        (replace(paired, left_out=listed), "10,001 left_out"),
        (replace(paired, cases=work), "asks for permutations of"),
        (replace(paired, cases=(CaseVerdict("x" * 10**5, Judged("UNCHANGED")),)), "the name of a"),
    ):
        with pytest.raises(UsageError, match=told):
            read_again(odd, tmp_path)


def test_ten_thousand_stored_cases_are_within_the_bounds(
    stored: GateReport, tmp_path: Path
) -> None:
    (one, *_) = stored.cases
    cases = tuple(replace(one, case=f"a/b[n={i}]", fields=None) for i in range(MOST_CASES))
    quiet = tuple(replace(c, sets=replace(c.sets, head=c.sets.base)) for c in cases if c.sets)
    assert len(read_again(replace(stored, cases=quiet), tmp_path).cases) == MOST_CASES


ODD = [0, -1, 1, 10**30, -(10**30), 1e308, 1e-320, 0.5, -0.0, "", "x", None, [], {}, True]


def altered(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The places in *value*: of a list the first two alone."""
    yield path, value
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value[:2]) if isinstance(value, list) else items
    for key, item in items:
        yield from altered(item, (*path, key))


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[path[0]] = put(value[path[0]], path[1:], new)
    return copied


@pytest.mark.parametrize("kind", ["paired", "stored"])
def test_an_odd_verdict_is_printed_or_refused_and_never_an_internal_error(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    report: GateReport = request.getfixturevalue(kind)
    write_report(replace(report, cases=report.cases[:2]), tmp_path / "verdict.json")
    whole = json.loads((tmp_path / "verdict.json").read_text())
    places = [path for path, value in altered(whole) if path and not isinstance(value, dict)]
    assert len(places) > 60
    for turn, path in enumerate(places):
        for new in ODD[turn % 3 :: 3]:
            (tmp_path / "odd.json").write_text(json.dumps(put(whole, path, new)))
            try:
                found = read_report(tmp_path / "odd.json")
                for form in GateFormat:
                    render_gate(found, form)
                recheck(found)
            except GpuperfError:
                pass
            except Exception as error:
                raise AssertionError(f"{path} = {new!r}") from error


@pytest.mark.parametrize("read", [read_report, lambda path: read_plan(path.parent)])
def test_a_fifo_in_place_of_a_file_is_refused_at_once(read: Any, tmp_path: Path) -> None:
    for name in ("verdict.json", "plan.json"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(UsageError, match="it is not a regular file"):
        read(tmp_path / "verdict.json")


def test_no_link_beside_a_verdict_is_written_through(stored: GateReport, tmp_path: Path) -> None:
    from gpuperf.gate.output import write_outputs

    precious = tmp_path / "precious"
    precious.write_text("precious")
    folder = tmp_path / "v"
    folder.mkdir()
    for name in ("verdict.part", "report.md", "junit.xml", "pairs.svg", "pairs.png"):
        (folder / name).symlink_to(precious)
    write_report(stored, folder / "verdict.json")
    write_outputs(stored, folder)
    assert precious.read_text() == "precious"
    assert read_report(folder / "verdict.json").outcome == stored.outcome


def shelf_in(folder: Path) -> Shelf:
    shelf = Shelf(folder / "shelf")
    shelf.set("main", written(run_of(), folder / "a.jsonl"))
    return shelf


def test_no_link_among_baselines_is_written_through(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf" / "baselines.json.part").symlink_to(precious)
    shelf = shelf_in(tmp_path)
    assert [b.name for b in shelf.all()] == ["main"]
    (tmp_path / "shelf" / INDEX).unlink()
    (tmp_path / "shelf" / INDEX).symlink_to(precious)
    with pytest.raises(UsageError):
        shelf.set("main", tmp_path / "a.jsonl")
    assert precious.read_text() == "precious"


def test_eight_baselines_that_are_set_at_once_are_all_there(tmp_path: Path) -> None:
    written(run_of(), tmp_path / "a.jsonl")
    code = (
        "import sys\nfrom pathlib import Path\nfrom gpuperf.gate.baseline import Shelf\n"
        "Shelf(Path('shelf')).set(sys.argv[1], Path('a.jsonl'))"
    )
    names = [f"name{i}" for i in range(8)]
    running = [subprocess.Popen([sys.executable, "-c", code, name], cwd=tmp_path) for name in names]
    assert [process.wait() for process in running] == [0] * 8
    assert sorted(b.name for b in Shelf(tmp_path / "shelf").all()) == names


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("file", "x" * 5000, "not a file of a baseline"),
        ("file", "a\0b", "not a file of a baseline"),
        ("name", "=1+1", "not a name of a baseline"),
        ("device", "x" * 5000, "a field of main has over"),
    ],
)
def test_an_index_that_gpuperf_did_not_write_is_refused(
    tmp_path: Path, field: str, value: str, told: str
) -> None:
    shelf = shelf_in(tmp_path)
    path = shelf.folder / INDEX
    index = json.loads(path.read_text())
    index["baselines"][0][field] = value
    path.write_text(json.dumps(index))
    with pytest.raises(UsageError, match=told):
        shelf.all()


def test_an_index_of_very_many_baselines_is_refused(tmp_path: Path) -> None:
    shelf = shelf_in(tmp_path)
    path = shelf.folder / INDEX
    index = json.loads(path.read_text())
    path.write_text(json.dumps({"baselines": index["baselines"] * 1001, "schema": 1}))
    with pytest.raises(UsageError, match="1,001 baselines"):
        shelf.all()
    path.write_text(json.dumps({"baselines": index["baselines"] * 10**5, "schema": 1}))
    with pytest.raises(UsageError, match="it is over 2 MiB"):
        shelf.all()
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UsageError, match="not a regular file"):
        shelf.all()


@pytest.mark.parametrize("format", ["table", "md", "csv", "json"])
def test_no_text_of_an_index_steers_a_terminal_or_a_spreadsheet(
    tmp_path: Path, format: str
) -> None:
    shelf = shelf_in(tmp_path)
    path = shelf.folder / INDEX
    index = json.loads(path.read_text())
    for field in ("created", "expired", "reason", "run", "device", "stack"):
        index["baselines"][0][field] = "=1+1\x1b[31m\x9b"
    path.write_text(json.dumps(index))
    done = CliRunner().invoke(baseline, ["list", "--folder", str(shelf.folder), "--format", format])
    assert done.exit_code == 0
    assert not set(done.stdout) & {"\x1b", "\x9b"}
    if format == "csv":
        assert not any(cell.startswith("=") for cell in done.stdout.replace("\n", ",").split(","))
