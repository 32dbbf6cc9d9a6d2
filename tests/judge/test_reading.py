"""Tasks and submissions are read as data, and a mistake in them is a sentence."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.judge.formats.flashinfer import read_solution
from gpuperf.judge.formats.yaml import YamlError, read_yaml
from gpuperf.judge.isolation import container_command
from gpuperf.judge.reading import detect_format, read_submission, read_task

HERE = Path(__file__).parent
DEFINITION = HERE / "flashinfer" / "definitions" / "scale.json"
CORPUS = HERE.parent / "cheats" / "judged"


@pytest.mark.parametrize(
    ("against", "format"),
    [
        (CORPUS / "tasks" / "matmul.py", "kernelbench"),
        (HERE / "gpumode", "gpumode"),
        (HERE / "gpumode" / "reference.py", "gpumode"),
        (DEFINITION, "flashinfer"),
        (HERE.parents[1] / "docs" / "examples" / "vector_add.py", "gpuperf"),
    ],
)
def test_the_format_of_a_task_is_detected(against: Path, format: str) -> None:
    assert detect_format(against) == format
    assert read_task(against, "auto", 2).format == format


def test_the_cases_of_a_task_are_its_benchmarks() -> None:
    task = read_task(HERE / "gpumode", "auto", 8)
    assert [case.name for case in task.cases] == ["rows=64,size=512", "rows=32,size=2048"]
    assert task.cases[0].values == {"rows": 64, "size": 512, "seed": 4}
    assert set(task.definition["modules"]) == {"helper", "reference"}
    assert len(read_task(HERE / "gpumode", "auto", 1).cases) == 1


def test_the_workloads_of_a_definition_are_its_cases() -> None:
    task = read_task(DEFINITION, "auto", 8)
    assert [case.name for case in task.cases] == ["first", "second"]
    assert task.cases[1].values["axes"] == {"rows": 7}


def test_nothing_of_a_task_is_imported(tmp_path: Path) -> None:
    path = tmp_path / "reference.py"
    path.write_text("raise SystemExit\nclass Model: pass\ndef get_inputs(): pass\n")
    assert read_task(path, "auto", 1).format == "kernelbench"
    with pytest.raises(UsageError, match="a task of kernelbench has no points"):
        read_task(path, "auto", 1, "m=3")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("plain.py", "x = 1\n", "holds no task"),
        ("broken.py", "def f(:\n", "is not Python"),
        ("list.json", "[1]", "no JSON object"),
        ("broken.json", "{", "is not JSON"),
        ("few.json", '{"name": "x"}', "it has no 'axes'"),
        ("deep.json", "[" * 100_000, "is not JSON"),
    ],
)
def test_a_file_that_is_no_task_is_refused(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=said):
        read_task(tmp_path / name, "auto", 1)


@pytest.mark.parametrize("path", ["../outside.py", "/etc/outside.py", "", "a/../../b.py", "x\0y"])
def test_a_solution_writes_into_its_folder_alone(tmp_path: Path, path: str) -> None:
    solution = json.loads((HERE / "flashinfer" / "solutions" / "fused.json").read_text())
    solution["sources"].append({"path": path, "content": "x = 1"})
    file = tmp_path / "solution.json"
    file.write_text(json.dumps(solution))
    folder = tmp_path / "inner"
    folder.mkdir()
    with pytest.raises(UsageError, match="has a source with the path"):
        read_solution(file, read_task(DEFINITION, "auto", 1), folder)


def test_a_solution_is_its_entry_point(tmp_path: Path) -> None:
    task = read_task(DEFINITION, "auto", 1)
    given = read_submission(HERE / "flashinfer" / "solutions" / "fused.json", task, tmp_path)
    assert (given.entry, given.name, given.writes_outputs) == ("run", "fused", True)
    assert Path(given.path).read_text().startswith("import torch")


def test_the_part_of_yaml_that_tasks_use_is_read() -> None:
    text = (
        "a: 1  # a comment\n"
        'b: "x: y"\n'
        "c:\n  - {k: 1.5, name: 'it', on: true}\n  - k: 2\n    list: [1, two, {z: ~}]\n  - plain\n"
        "d: |\n  some text\n  - that is kept\n\ne:\n  f: {}\n"
    )
    assert read_yaml(text) == {
        "a": 1,
        "b": "x: y",
        "c": [
            {"k": 1.5, "name": "it", "on": True},
            {"k": 2, "list": [1, "two", {"z": None}]},
            "plain",
        ],
        "d": "some text\n- that is kept\n",
        "e": {"f": {}},
    }


@pytest.mark.parametrize(
    "text", ["a: &x 1\nb: *x\n  c: 2", "a: {b: [1}", "!!python/object:os.system x"]
)
def test_other_yaml_is_refused(text: str) -> None:
    with pytest.raises(YamlError):
        read_yaml(text)


@given(st.text(alphabet="ab:-{}[]\"'|#, \n", max_size=80))
def test_no_text_breaks_the_reader_of_yaml(text: str) -> None:
    with contextlib.suppress(YamlError):
        read_yaml(text)


def test_a_container_needs_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    files = Path("mine.py"), Path("reference.py")
    monkeypatch.setattr(
        "shutil.which", lambda name: "/usr/bin/podman" if name == "podman" else None
    )
    words = ["judge", "mine.py", "--isolation", "container", "--against", "reference.py"]
    command = container_command(*files, words)
    assert command.startswith("podman run --rm --network=none")
    assert command.endswith("gpuperf judge mine.py --against reference.py")
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(CannotMeasure, match="neither podman nor docker"):
        container_command(*files, words)
