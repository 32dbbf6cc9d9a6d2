"""`gpuperf lab` on a CPU: predictions first, every ruling, the page, and slips of a user."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import PEAKS, QUICK, CommandLine, Ended
from pages import check_inert

from gpuperf.errors import WorkloadError
from gpuperf.lab.judging import judge
from gpuperf.lab.page import render_findings, to_html, to_page
from gpuperf.lab.session import Finding
from gpuperf.lab.study import study_run
from gpuperf.lab.table import render_lab
from gpuperf.measure.prediction import predict
from gpuperf.measure.registry import load_all
from gpuperf.model.experiment import Number, Numbers, Prediction, UnknownNumber
from gpuperf.model.protocol import Described, Expect, Opened
from gpuperf.model.record import Run
from gpuperf.peaks.find import find_device
from gpuperf.peaks.numbers import numbers_of
from gpuperf.run.catalogue import experiment_catalogue
from gpuperf.run.experiments import in_order, keep_numbers, kept_numbers, plan_experiment
from gpuperf.run.session import measure_cases, rest_of_schedule
from gpuperf.run.store import read_run
from gpuperf.show.render import FORMATS
from gpuperf.show.screen import WIDE

FILE = Path(__file__).parent / "blocks.py"
BLOCKS = FILE.read_text(encoding="utf-8")
GOLDEN = Path(__file__).parents[1] / "golden" / "run_schema_11.jsonl"


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    folder = tmp_path_factory.mktemp("lab")
    (folder / "peaks.toml").write_text(PEAKS)
    (folder / "blocks.py").write_text(BLOCKS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUPERF_CACHE", str(folder / "cache"))
        experiment_catalogue(described)  # no worker has to describe them
    return CommandLine(folder)


def described(source: str) -> Described:
    loaded = load_all(source)
    workloads = tuple(w.describe(source) for w in loaded.workloads.values())
    return Described(workloads, {}, tuple(e.describe(source) for e in loaded.experiments.values()))


@pytest.fixture(scope="module")
def measured(command: CommandLine) -> Ended:
    return command.within("lab", "--experiment", "blocks.py", *QUICK, "--out", "one")


def golden() -> Run:
    return read_run(GOLDEN)


def test_an_experiment_of_a_user_is_predicted_measured_and_ruled(
    command: CommandLine, measured: Ended
) -> None:
    assert measured.code == 0, measured.err
    assert "blocks: How many blocks does a sum have?" in measured.out
    assert "CONFIRMED. 4 of 4 points agree with the prediction" in measured.out
    header = read_run(command.run_file("one")).header
    assert header.study == "lab:blocks"
    assert header.expected is not None
    assert {p.control for p in header.expected.points} == {"", "one block"}
    assert header.expected.numbers["sms"] == header.device.sm_count
    assert {path.suffix for path in (command.folder / "one").iterdir()} == {
        ".jsonl",
        ".png",
        ".svg",
    }


def test_a_run_of_an_experiment_is_shown_again_with_the_same_table(
    command: CommandLine, measured: Ended
) -> None:
    shown = command.within("show", str(command.run_file("one")))
    assert (shown.code, shown.out) == (0, measured.out)


def test_resume_measures_what_is_missing_under_the_contract_of_the_point() -> None:
    run = golden()
    opened = Opened(run.header.device, run.header.fingerprint)
    rest = rest_of_schedule(replace(run, records=run.records[1:3]), opened)
    assert [(case.point["block"], contract.cache) for case, contract, _ in rest] == [
        (512, "hot"),
        (4096, "cold"),
        (8192, "cold"),
    ]


def test_axes_of_the_command_line_replace_those_of_the_experiment() -> None:
    loaded = load_all(str(FILE))
    experiment = loaded.experiments["blocks"].describe("")
    workload = loaded.workloads["added"].describe("")
    planned = plan_experiment(experiment, workload, {"block": "512,1024", "n": "8k"})
    points = [(p.case.point["block"], p.case.point["n"], p.control) for p in planned]
    assert points == [(512, 8192, ""), (1024, 8192, ""), (8192, 8192, "one block")]


@pytest.fixture(scope="module")
def everything(command: CommandLine) -> Ended:
    """All experiments of a file: one as it is, one whose control moves and whose point is NaN."""
    begin = BLOCKS[BLOCKS.index("BLOCKS = ") :].replace("BLOCKS = ", "MOVED = ")
    moved = begin.replace('name="blocks"', 'name="moved"').replace("exactly(1,", "exactly(3,")
    moved = moved.replace("exactly(-(-at.n // at.block)", "exactly(math.nan")
    text = BLOCKS.replace("import torch", "import math\n\nimport torch") + "\n" + moved
    (command.folder / "both.py").write_text(text)
    words = ("lab", "all", "--experiment", "both.py", "--strict", "--budget", "1", *QUICK[:4])
    return command.within(*words, "--precision", "1", "--out", "all")


def test_all_measures_everything_and_strict_exits_with_4(everything: Ended) -> None:
    assert everything.code == 4, everything.err
    assert "Traceback" not in everything.err
    assert "1 CONFIRMED, 1 INCONCLUSIVE; pages:" in everything.err
    assert "expect returned is nan, which is not a finite number" in everything.err
    assert "INCONCLUSIVE. The control 'one block' moved: 1 (1 to 1) instead of 3" in everything.out
    assert "the ruling is INCONCLUSIVE on moved" in everything.err


def test_ctrl_c_ends_all_and_keeps_what_was_measured(
    command: CommandLine, everything: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_case(*words: Any) -> None:
        measure_cases(*words[:3], itertools.islice(words[3], 1), *words[4:])
        raise KeyboardInterrupt

    monkeypatch.setattr("gpuperf.verb.session.measure_cases", one_case)
    words = ("lab", "all", "--experiment", "both.py", "--budget", "1", *QUICK[:4])
    ended = command.within(*words, "--precision", "1", "--out", "stopped")
    assert ended.code == 130
    assert "interrupted; to measure the missing cases: gpuperf roofline --resume" in ended.err
    (page,) = (command.folder / "stopped").glob("*all*.md")
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# gpuperf lab: ")
    assert "1 INCONCLUSIVE" in text
    assert "moved" not in text
    (file,) = (command.folder / "stopped").glob("*.jsonl")  # no other experiment was begun
    assert [record.status for record in read_run(file).records] == ["ok"]


def test_all_writes_one_page(command: CommandLine, everything: Ended) -> None:
    (html,) = (command.folder / "all").glob("*.html")
    (markdown,) = (command.folder / "all").glob("*.md")
    text = html.read_text(encoding="utf-8")
    assert '<b class="CONFIRMED">CONFIRMED.</b> 4 of 4 points' in text
    assert text.count("data:image/svg+xml;base64,") == 2
    check_inert(text)
    namespace = "http://www.w3.org/2000/svg"  # the name of a format, which nothing fetches
    assert "http" not in text.replace("http-equiv", "").replace(namespace, "")
    assert "## blocks" in markdown.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "code", "sentence", "hint"),
    [
        (("lab",), 2, "no experiment was named", "gpuperf lab list"),
        (("lab", "bank"), 2, "no experiment 'bank'; did you mean 'banks'?", "known: "),
        (("lab", "banks", "--stide", "2"), 2, "no option '--stide'", "--stride"),
        (("lab", "banks", *QUICK), 3, "banks needs an NVIDIA GPU, and the device is", "lab list"),
        (("lab", "list", "--stride", "2"), 2, "`lab list` takes no '--stride'", "lab list"),
        (("lab", "all", "--budget", "soon"), 2, "--budget: 'soon' is not a duration", "10min"),
        (("lab", "all", "--budget", "-1"), 2, "--budget -1 is not from 0 to a day", "10min"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, tuple) else "",
)
def test_a_slip_gets_a_sentence(
    command: CommandLine, words: tuple[str, ...], code: int, sentence: str, hint: str
) -> None:
    ended = command.within(*words)
    assert ended.code == code, ended.err
    assert sentence in ended.err
    assert hint in ended.err
    assert ended.out == ""
    assert "Traceback" not in ended.err


def test_all_on_a_cpu_names_what_each_experiment_needs(command: CommandLine) -> None:
    words = ("lab", "all", *QUICK[:4], "--out", "none", "--budget", "1ms")
    ended = command.within(*words)
    assert ended.code == 3
    assert "needs an NVIDIA GPU, and the device is " in ended.err
    assert "hardware counters, and the device is" in ended.err
    assert "(attention_dram, attention_io, attention_table_bytes, coalescing, granule)" in ended.err
    (page,) = (command.folder / "none").glob("*.md")
    text = page.read_text(encoding="utf-8")
    assert "banks needs an NVIDIA GPU" in text
    assert "What does a bank conflict of shared memory cost?" in text


def test_the_list_has_each_experiment_with_what_it_needs(command: CommandLine) -> None:
    ended = command.within("lab", "list", "--format", "json")
    (banks,) = [row for row in json.loads(ended.out) if row["name"] == "banks"]
    assert banks["needs"] == "an NVIDIA GPU"
    assert banks["controls"] == "broadcast"


RIGHT = 'exactly(-(-at.n // at.block), "count", "n over block")'
WRONG = {
    'exactly(float("nan"), "count", "n")': "which is not a finite number",
    'exactly(-1, "count", "n")': "is negative",
    'exactly(1, "s", "n")': "has the unit 's' and not 'count'",
    'exactly(1, "count", "")': "gives no reason",
    "None": "is a NoneType and not an Expected",
    "1 // 0": "expect raised ZeroDivisionError",
    'exactly(numbers["l9"], "count", "n")': "the figure 'l9' of this device is unknown",
    "at.blok": "expect raised AttributeError: this point has no axis 'blok'",
}


@pytest.mark.parametrize(("expression", "sentence"), WRONG.items(), ids=lambda text: text[:30])
def test_a_wrong_prediction_gets_a_sentence(tmp_path: Path, expression: str, sentence: str) -> None:
    assert RIGHT in BLOCKS
    made = predicted(tmp_path, BLOCKS.replace(RIGHT, expression))
    assert {p.expected is None for p in made if not p.control} == {True}
    assert sentence in made[0].reason
    assert made[-1].expected is not None, "the control has a prediction of its own"


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ("steps=lambda at: 0.0,", "steps is 0"),
        ('cache=lambda at, numbers: "tepid",', "cache returned 'tepid'"),
        ("along=lambda at, numbers: -1.0,", "x is -1.0, which is not a number of at least 0"),
        ('along=lambda at, numbers: "word",', ""),
        ('baseline=lambda at: {"block": 3},', "its baseline (block=3) is not among the points"),
        ("baseline=lambda at: 1 // 0,", "baseline raised ZeroDivisionError"),
    ],
)
def test_other_functions_of_an_experiment_are_checked_too(
    tmp_path: Path, expression: str, sentence: str
) -> None:
    text = BLOCKS.replace('cache=lambda at, numbers: "hot" if at.block < 1024 else "",', "")
    if "baseline" in expression:
        text = text.replace('y="reading:blocks"', 'y="time_ratio"').replace('"count"', '"ratio"')
    made = predicted(tmp_path, text.replace("needs=(),", f"needs=(),\n    {expression}"))
    assert sentence in made[0].reason
    assert made[0].reason or made[0].label == "word"


def predicted(folder: Path, text: str) -> tuple[Prediction, ...]:
    file = folder / "mine.py"
    file.write_text(text)
    loaded = load_all(str(file))
    experiment, workload = loaded.experiments["blocks"], loaded.workloads["added"]
    planned = plan_experiment(experiment.describe(""), workload.describe(""), {})
    cases, controls = tuple(p.case for p in planned), tuple(p.control for p in planned)
    asked = Expect("blocks", "", cases, controls, Numbers())
    return predict(experiment, asked, workload.axes)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('y="reading:blocks"', 'y="speed"', "measures 'speed'"),
        ('x="block"', 'x="blok"', "names the axis 'blok', which its workload lacks"),
        ("needs=()", 'needs=("tpu",)', "needs 'tpu'"),
        ('unit="count"', 'unit="furlong"', "has the unit 'furlong'"),
        ('y="reading:blocks"', 'y="time_ratio"', "has y='time_ratio'"),
        ('"block": (512, 1024, 2048, 4096)', '"block": 512', "is not a tuple, but an int"),
        ("BLOCKS = Experiment(", "raise OSError\nBLOCKS = Experiment(", "does not load: OSError"),
    ],
)
def test_a_malformed_experiment_gets_a_sentence(
    tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    assert old in BLOCKS
    file = tmp_path / "bad.py"
    file.write_text(BLOCKS.replace(old, new))
    with pytest.raises(WorkloadError, match=re.escape(sentence)):
        load_all(str(file))


def test_a_point_has_optional_axes_and_its_baseline_is_another_case(tmp_path: Path) -> None:
    text = BLOCKS.replace('y="reading:blocks"', 'y="time_ratio"').replace('"count"', '"ratio"')
    text = text.replace('Axis("n", 4096, "elements")', 'Axis("n", 4096, "elements", optional=True)')
    made = predicted(tmp_path, text.replace("needs=()", 'baseline=lambda at: {"block": 512}'))
    assert {p.baseline for p in made} == {"added/torch[block=512,dtype=fp32]"}
    assert [p.expected.value for p in made if p.expected] == [8, 4, 2, 1, 1]


@pytest.mark.parametrize("format", FORMATS)
def test_the_golden_run_is_rendered_in_every_format(format: str) -> None:
    text = render_lab(golden(), format)
    assert "CONFIRMED" in text or format == "csv"
    assert "8192" in text


def test_all_findings_are_one_list_of_json_and_one_csv() -> None:
    study = study_run(golden())
    finding = Finding(study.experiment, None, study, judge(study))
    both = [finding, finding, Finding(study.experiment, reason="not here")]
    data = json.loads(render_findings(both, "json", WIDE))
    assert [one["ruling"]["verdict"] for one in data] == ["CONFIRMED"] * 2
    lines = render_findings(both, "csv", WIDE).splitlines()
    assert len(lines) == 1 + 2 * len(data[0]["points"])


def test_the_page_escapes_every_text() -> None:
    run = golden()
    study = study_run(run)
    evil = "<script>alert(1)</script>"
    finding = Finding(replace(study.experiment, name=evil, question=f"{evil}?"), reason=evil)
    assert to_html([finding], evil).count("<script") == 1  # that of every page
    check_inert(to_html([finding], evil))
    assert "<script" not in to_page([finding], evil)


def test_experiments_come_after_those_whose_figures_they_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path))
    described = study_run(golden()).experiment
    first, second = (replace(described, name=n, after=a) for n, a in (("z", ()), ("a", ("z",))))
    circle = replace(described, name="c", after=("c", "nowhere"))
    assert [e.name for e in in_order([second, circle, first])] == ["c", "z", "a"]
    opened = Opened(golden().header.device, golden().header.fingerprint)
    assert kept_numbers(opened) == {}
    keep_numbers(opened, {"l1_latency": Number(2e-8, "s", "z")})
    keep_numbers(opened, {"l2_latency": Number(1e-7, "s", "z")})
    kept = numbers_of(None, None, opened.device, kept_numbers(opened))
    assert (kept["l1_latency"], kept["l2_latency"], kept.source("l1_latency")) == (2e-8, 1e-7, "z")


def test_a_measured_figure_replaces_that_of_the_data_sheet() -> None:
    sheet = find_device("h200-sxm")
    plain = numbers_of(sheet)
    assert plain["copy_bandwidth"] == plain["memory_bandwidth"] == 4.8e12
    assert (plain["sms"], plain["clock"]) == (132, 1.98e9)
    assert plain["tensor_bf16"] == pytest.approx(989.4e12, rel=1e-3)
    assert plain.source("tensor_bf16") == "data sheet"
    measured = numbers_of(sheet, measured={"memory_bandwidth": Number(4.3e12, "byte/s", "here")})
    assert (measured["memory_bandwidth"], measured.source("memory_bandwidth")) == (4.3e12, "here")
    with pytest.raises(UnknownNumber, match="the figure 'l9' of this device is unknown"):
        plain["l9"]
    assert ("l9" in plain, plain.get("l9", 7.0), plain.source("l9")) == (False, 7.0, "assumed")
