"""Are a device's own roofs measured only where they are needed, and for how long do they serve?"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import CommandLine
from fake_sides import OPENED, FakeSide, case_of

from gpuperf.doctor.command import _roofs
from gpuperf.model.contract import Contract
from gpuperf.model.record import Caveat, Record
from gpuperf.model.workload import Case
from gpuperf.run.cache import keep
from gpuperf.run.ceilings import device_key, doubtful_ceilings, kept_ceilings
from gpuperf.run.supervisor import Supervisor
from gpuperf.verb.roofs import measured_roofs

CONTRACT = Contract("wall", gap_s=0.0)
BUSY = Caveat("contended", "other work ran on the processors", "end it")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path / "cache"))


def busy(record: Record, process: int) -> Record:
    return replace(record, caveats=(BUSY,))


def counted(side: FakeSide) -> list[str]:
    """The ids of the cases that *side* measures from here on."""
    seen: list[str] = []
    inner = side.change

    def change(record: Record, process: int) -> Record:
        seen.append(record.case.id)
        return inner(record, process)

    side.change = change
    return seen


def roofs_on(side: FakeSide, *cases: Case) -> list[str]:
    """What is measured for the roofs of *cases*."""
    seen = counted(side)
    with Supervisor(side) as supervisor:  # type: ignore[arg-type]
        measured_roofs(supervisor, OPENED, cases, CONTRACT)
    return seen


def test_no_roof_is_measured_for_cases_that_cannot_run() -> None:
    assert roofs_on(FakeSide(), replace(case_of("matmul"), implementation="unsupported")) == []


def test_roofs_are_measured_for_the_dtypes_of_cases_that_can_run() -> None:
    other = Case("matmul", "unsupported", {"n": 64, "dtype": "fp64"})
    seen = roofs_on(FakeSide(), case_of("matmul"), other)
    assert any("dtype=fp32" in case for case in seen)
    assert not any("dtype=fp64" in case for case in seen)


def test_roofs_of_a_quiet_machine_are_kept_for_good() -> None:
    assert roofs_on(FakeSide(), case_of("matmul"))
    assert kept_ceilings(OPENED) is not None
    assert roofs_on(FakeSide(), case_of("matmul")) == []


def test_roofs_of_a_busy_machine_serve_the_next_commands_with_their_doubt(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert roofs_on(FakeSide(change=busy), case_of("matmul"))
    assert kept_ceilings(OPENED) is None
    capsys.readouterr()
    assert roofs_on(FakeSide(change=busy), case_of("matmul")) == []
    assert "in doubt: other work ran on the processors" in capsys.readouterr().err


def test_the_doctor_says_whether_roofs_are_sure_uncertain_or_none() -> None:
    assert _roofs(OPENED).value == "none yet"
    roofs_on(FakeSide(change=busy), case_of("matmul"))
    uncertain = _roofs(OPENED)
    assert uncertain.verdict == "note"
    assert uncertain.value.startswith("uncertain, for an hour: other work ran")
    found = doubtful_ceilings(OPENED)
    assert found is not None
    keep("ceilings", device_key(OPENED), found.ceilings)
    assert (_roofs(OPENED).verdict, _roofs(OPENED).value) == ("ok", "fp32")


def test_roofs_of_a_busy_machine_are_forgotten_after_an_hour() -> None:
    roofs_on(FakeSide(change=busy), case_of("matmul"))
    found = doubtful_ceilings(OPENED)
    assert found is not None
    keep("doubtful", device_key(OPENED), replace(found, measured=time.time() - 3700))
    assert doubtful_ceilings(OPENED) is None
    assert roofs_on(FakeSide(change=busy), case_of("matmul"))


def test_no_kept_roof_that_is_in_doubt_calls_a_case_impossible() -> None:
    """Whoever kept it may have called its figures measured."""
    roofs_on(FakeSide(change=busy), case_of("matmul"))
    found = doubtful_ceilings(OPENED)
    assert found is not None
    sure = [replace(c, rate=replace(c.rate, status="measured")) for c in found.ceilings.compute]
    kept = replace(found, ceilings=replace(found.ceilings, compute=tuple(sure)))
    keep("doubtful", device_key(OPENED), kept)
    again = doubtful_ceilings(OPENED)
    assert again is not None
    assert again.ceilings.compute
    assert {c.rate.status for c in again.ceilings.compute} == {"uncertain"}


def test_ctrl_c_while_roofs_are_measured_says_that_nothing_is_kept(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(record: Record, process: int) -> Record:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        roofs_on(FakeSide(change=interrupt), case_of("matmul"))
    assert "interrupted while the roofs were measured" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [("--impl", "triton", "--sizes", "64"), ("--sizes", "99999999")], ids=" ".join
)
def test_the_command_measures_no_roofs_where_nothing_can_run(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    ended = CommandLine.at(tmp_path)("roofline", "matmul", *words, "--device", "cpu")
    assert ended.code == 3, ended.err
    assert "roofs first" not in ended.err
    assert "nothing was measured" in ended.err
