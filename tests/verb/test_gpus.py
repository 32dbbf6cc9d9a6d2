"""Is a number of ranks that cannot be refused in one sentence, before anything is measured?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import ranked
from command_line import CommandLine

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.model.contract import DeviceFacts
from gpuperf.run.plan import Conditions, plan_contracts, plan_gang
from gpuperf.verb.parse import ranks

GPU = DeviceFacts("cuda", 0, "NVIDIA H200", 132, 2**37, 2**37, dtypes=("bf16",))
CPU = DeviceFacts("cpu", 0, "a CPU", 2, 2**34, 2**34, dtypes=("fp32",))
SMALL = ("--device", "cpu", "--bytes", "64", "--impl", "gloo", "--budget", "0.05")


@pytest.fixture
def at(tmp_path: Path) -> CommandLine:
    return CommandLine.at(tmp_path)


@pytest.mark.parametrize("text", ["0", "1", "-2", "two", "2.5", "33", ""])
def test_a_gang_has_two_ranks_or_more(text: str) -> None:
    with pytest.raises(UsageError, match=f"--gpus {text} is not a whole number from 2") as refused:
        ranks(text)
    assert refused.value.hint.startswith("for example --gpus 2")


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("all_reduce", "--gpus", "0"), 2, "--gpus 0 is not a whole number from 2 to 32"),
        (("all_reduce", "--world", "1"), 2, "--gpus 1 is not a whole number from 2 to 32"),
        (("all_reduce",), 2, "all_reduce needs several ranks, and --gpus is not given"),
        (("copy", "--gpus", "2"), 2, "copy runs on one device, and --gpus 2 asks for 2"),
        (("all_reduce", "--gpus", "2", "--timer", "wall", "--counters", "require"), 3, "counters"),
        (("all_reduce", "--gpus", "2", "--operation", "xor"), 2, "no operation 'xor'"),
        (("broadcast", "--gpus", "2", "--root", "2"), 3, "nothing was measured"),
        (("all_to_all", "--gpus", "2", "--bytes", "12"), 3, "nothing was measured"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    at: CommandLine, words: tuple[str, ...], code: int, sentence: str
) -> None:
    given = SMALL if words[0] != "copy" else ("--device", "cpu")
    if "--bytes" in words:
        given = tuple(word for word in given if word not in ("--bytes", "64"))
    done = at("roofline", *words, *given)
    assert done.code == code, done.err
    assert sentence in done.err
    assert "hint: " in done.err
    assert "Traceback" not in done.err


def test_a_sweep_goes_on_after_a_rank_that_died(at: CommandLine) -> None:
    source = str(Path(ranked.__file__))
    done = at("roofline", "--op", source, "--gpus", "2", "--device", "cpu", "--n", "64",
              "--impl", "good,dies,wrong,good", "--budget", "0.05")  # fmt: skip
    assert done.code == 3
    (file,) = at.folder.glob("gpuperf-runs/*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines() if line]
    header, records = lines[0], lines[1:]
    assert (header["world"], header["devices"]) == (2, [0, 0])
    statuses = {r["case"]["implementation"]: r["status"] for r in records}
    assert statuses == {"good": "ok", "dies": "crashed", "wrong": "wrong"}
    reasons = [r["reason"] for r in records if r["status"] != "ok"]
    assert all(reason.startswith("rank 1") for reason in reasons)
    assert "crashed: rank 1 died by signal 9 (SIGKILL)" in done.out
    resumed = at("roofline", "--resume", str(file))
    assert "rank 1 died" in resumed.out  # the case is measured again, by a gang of two


def test_a_gang_has_its_own_timers_and_no_counters() -> None:
    planned = plan_gang(GPU, Conditions())
    assert (planned.timer, planned.counting) == ("graph", "off")
    (contract,) = plan_contracts(GPU, planned)
    assert (contract.timer, contract.cache) == ("graph", "rotate")
    assert plan_gang(CPU, Conditions()).timer == "wall"
    assert plan_gang(GPU, Conditions(timer="wall")).timer == "wall"
    for conditions, reason in (
        (Conditions(timer="blocked"), "times one device alone"),
        (Conditions(regimes=("sustained",)), "sustained"),
        (Conditions(counting="require"), "counters"),
    ):
        with pytest.raises(CannotMeasure, match=reason) as refused:
            plan_gang(GPU, conditions)
        assert refused.value.hint
