"""The chart of a gate's pairs names its cases and their verdicts."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from synthetic_report import HOSTILE, RULE, measured, missing, pairs_of, regressed, report

from gpuperf.errors import UsageError
from gpuperf.gate.chart import draw_pairs
from gpuperf.gate.rule import Evidence, Pairs, Rule
from gpuperf.gate.stored import Sets, judge_stored
from gpuperf.gate.verdict import CaseVerdict, GateReport


def drawn(found: GateReport, folder: Path) -> str:
    """Return the words of the chart, as an SVG has them."""
    draw_pairs(found, [folder / "pairs.svg"])
    svg = ElementTree.fromstring((folder / "pairs.svg").read_text(encoding="utf-8"))
    return "\n".join(
        "".join(text.itertext()) for text in svg.iter("{http://www.w3.org/2000/svg}text")
    )


def test_a_chart_names_its_cases_and_their_verdicts(tmp_path: Path) -> None:
    found = measured({"a/x[n=7]": 0.05, "a/x[n=8]": 0.0, "a/x[n=9]": -0.1})
    words = drawn(found, tmp_path).splitlines()
    assert [w for w in words if w.startswith(("a/x", "copy"))] == [
        "a/x n=7",
        "a/x n=9",
        "a/x n=8",
        "copy/torch",
    ]
    assert any(re.fullmatch(r"\+[45]\.\d\d %  regressed", word) for word in words)
    assert any(re.fullmatch(r"-1?[09]\.\d\d %  improved", word) for word in words)
    assert "Gate regressed: 1 regressed, 1 improved, 1 unchanged" in words
    assert "base main (0123456789), head topic (fedcba9876)" in words
    assert any(word.endswith("sentinel") for word in words)


def test_a_chart_shows_the_forty_worst_and_says_so(tmp_path: Path) -> None:
    found = measured({f"a/x[n={n}]": 0.0 if n > 102 else 0.05 for n in range(100, 160)})
    words = drawn(found, tmp_path)
    assert len(re.findall(r"a/x n=\d+$", words, re.MULTILINE)) == 40
    assert "the 40 worst of 60 cases" in words
    assert all(f"a/x n={n}\n" in words for n in (100, 101, 102))


def test_a_chart_of_stored_runs_has_their_processes(tmp_path: Path) -> None:
    one, other = pairs_of(8, 0.0), pairs_of(8, 0.06)
    sets = {"a/x[n=1]": Sets(one.base, other.head), "a/x[n=2]": Sets(one.base[:2], one.head[:3])}
    judged = judge_stored(sets, RULE)
    cases = [CaseVerdict(name, judged[name], None, sets[name]) for name in sets]
    words = drawn(report(*cases, kind="compare", pairs=0), tmp_path)
    assert "process of the base" in words
    assert "processes of two runs, not paired" in words


def test_a_chart_takes_hostile_names_and_odd_times(tmp_path: Path) -> None:
    odd = Pairs((1e-300, 1e-4, 0.0, -1.0, math.inf), (1e300, 1e-4, 1.0, 1.0, 1.0))
    cases = [
        replace(regressed(HOSTILE), evidence=Evidence(pairs_of(6))),
        replace(regressed("カーネル🔥" * 2000), evidence=Evidence(pairs_of(6))),
        replace(regressed("a/x[n=1]", 1e200), evidence=Evidence(odd, odd)),
        replace(regressed("a/x[n=2]", -2.0), evidence=Evidence(Pairs((), ()))),
        missing("a/x[n=3]"),
    ]
    steady = {f"{HOSTILE}{n}": pairs_of(1) for n in range(100)}
    drawn(report(*cases[:1], rule=Rule(floor_s=1e6), sentinels=steady), tmp_path)
    words = drawn(report(*cases, sentinels=steady, device=HOSTILE), tmp_path)
    assert "not comparable" in words
    draw_pairs(report(*cases, sentinels=steady, device=HOSTILE), [tmp_path / "pairs.png"])
    assert (tmp_path / "pairs.png").read_bytes().startswith(b"\x89PNG")
    assert all(line.isprintable() for line in words.split("\n"))


def test_a_chart_without_a_time_says_so_and_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no case has a time on both sides"):
        draw_pairs(report(missing("a/x[n=1]")), [tmp_path / "a.png"])
    with pytest.raises(UsageError, match=r"suffix '\.jpg'"):
        draw_pairs(measured({"a/x[n=1]": 0.0}), [tmp_path / "a.jpg"])
    assert not list(tmp_path.iterdir())


def test_the_same_report_gives_the_same_chart(tmp_path: Path) -> None:
    found = measured({"a/x[n=7]": 0.05, "a/x[n=8]": 0.0})
    draw_pairs(found, [tmp_path / "a.svg", tmp_path / "b.svg"])
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
