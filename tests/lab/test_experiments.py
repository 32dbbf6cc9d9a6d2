"""Every experiment holds its promises: it is short, predicts everywhere, and compiles."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import ModuleType

import pytest

from gpuperf.measure.prediction import predict
from gpuperf.measure.registry import load_all
from gpuperf.model.codec import decode, encode
from gpuperf.model.experiment import (
    QUANTITIES,
    Experiment,
    ExperimentDescription,
    Number,
    Numbers,
    Prediction,
)
from gpuperf.model.protocol import Expect
from gpuperf.nvrtc import compile_source
from gpuperf.peaks.find import find_device
from gpuperf.peaks.numbers import numbers_of
from gpuperf.run.experiments import plan_experiment

ROOT = Path(__file__).parents[2]
SOURCE = "gpuperf.lab_experiments"
LOADED = load_all(SOURCE)
OPS = load_all("gpuperf.kernels").workloads | LOADED.workloads
EXPERIMENTS = sorted(LOADED.experiments.values(), key=lambda e: e.name)
MOST_LINES = 120
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
SHEETS = ("a100-sxm4-80gb", "h200-sxm")


def sheet(name: str) -> Numbers:
    """The figures of a data sheet, and those that other experiments would have measured."""
    given = {name: Number(1e-7, "s", "test") for e in EXPERIMENTS for name in e.gives}
    return numbers_of(find_device(name), measured=given)


def predictions(experiment: Experiment, numbers: Numbers) -> tuple[Prediction, ...]:
    workload = OPS[experiment.op].describe(SOURCE)
    world = 2 if "gang" in experiment.needs else None
    planned = plan_experiment(experiment.describe(SOURCE), workload, {}, world=world)
    cases, controls = tuple(p.case for p in planned), tuple(p.control for p in planned)
    asked = Expect(experiment.name, SOURCE, cases, controls, numbers)
    return predict(experiment, asked, OPS[experiment.op].axes)


def modules() -> list[ModuleType]:
    return [m for name, m in sorted(sys.modules.items()) if name.startswith(f"{SOURCE}.")]


def test_every_experiment_loads() -> None:
    assert LOADED.broken == {}
    assert "banks" in LOADED.experiments


@pytest.mark.parametrize("file", sorted((ROOT / "kernels/lab").glob("*.py")), ids=lambda f: f.stem)
def test_an_experiment_is_short(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
def test_an_experiment_has_a_control_that_can_differ(experiment: Experiment) -> None:
    """A case that is compared with itself always agrees."""
    made = predictions(experiment, sheet("h200-sxm"))
    assert any(p.control and p.baseline != p.case for p in made)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
@pytest.mark.parametrize("device", SHEETS)
def test_an_experiment_predicts_every_point_from_a_data_sheet(
    experiment: Experiment, device: str
) -> None:
    made = predictions(experiment, sheet(device))
    assert [p.reason for p in made if p.reason] == []
    assert {p.control for p in made} == {"", *(c.name for c in experiment.controls)}
    for prediction in made:
        expected = prediction.expected
        assert expected is not None
        assert expected.low <= expected.value <= expected.high
        assert expected.unit == (experiment.unit or QUANTITIES[experiment.y])
        assert decode(encode(prediction), Prediction) == prediction


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
def test_an_experiment_has_a_control_and_a_face_without_torch(experiment: Experiment) -> None:
    described = experiment.describe(SOURCE)
    assert decode(encode(described), ExperimentDescription) == described
    assert described.controls
    assert described.question.endswith("?")


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_kernels_of_experiments_compile(arch: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-bindings (Linux)")
    sources = {m.__name__: m.CUDA for m in modules() if hasattr(m, "CUDA")}
    assert sources
    for name, source in sources.items():
        assert compile_source(source, arch).startswith(b"\x7fELF"), name


def test_no_experiment_is_named_by_the_frame() -> None:
    """A new experiment is one file: the frame has no list, and no case for one of them."""
    frame = [
        *(ROOT / "gpuperf/lab").glob("*.py"),
        *(ROOT / "gpuperf" / f"{path}.py" for path in ("run/experiments", "measure/prediction")),
        *(ROOT / "gpuperf" / f"{path}.py" for path in ("model/experiment", "peaks/numbers")),
    ]
    for path in frame:
        texts = {
            node.value
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        assert not texts & LOADED.experiments.keys(), path
