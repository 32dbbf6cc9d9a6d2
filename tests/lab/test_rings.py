"""Is an all-reduce predicted by the table that NCCL logged, and held against it?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from measured import MEASURED

from gpuperf.lab.judging import judge
from gpuperf.lab.study import LabPoint, Measured, Study
from gpuperf.lab.table import render_lab
from gpuperf.measure.prediction import predict
from gpuperf.measure.registry import load_all
from gpuperf.model.experiment import Numbers, Prediction
from gpuperf.model.gang import TunedTime
from gpuperf.model.protocol import Expect
from gpuperf.peaks.find import find_device
from gpuperf.peaks.numbers import numbers_of, numbers_of_tuning
from gpuperf.run.experiments import plan_experiment
from gpuperf.run.store import read_run

SOURCE = "gpuperf.lab_experiments"
EXPERIMENT = load_all(SOURCE).experiments["alpha_beta"]
ALL_REDUCE = load_all("gpuperf.kernels").workloads["all_reduce"]
# Invented figures, unlike those of any source: LL is the fastest up to 0.5 MB, then Simple.
LL = TunedTime("AllReduce", "RING", "LL", 10e-6, 50e9)
SIMPLE = TunedTime("AllReduce", "RING", "SIMPLE", 15e-6, 100e9)
TREE = TunedTime("AllReduce", "TREE", "SIMPLE", 1e-6, 900e9)
GATHER = TunedTime("AllGather", "RING", "LL", 1e-6, 900e9)


def numbers(tuning: Sequence[TunedTime] = (LL, SIMPLE, TREE, GATHER)) -> Numbers:
    return numbers_of(find_device("h200-sxm"), measured=numbers_of_tuning(tuning))


def predictions(known: Numbers) -> tuple[Prediction, ...]:
    planned = plan_experiment(EXPERIMENT.describe(SOURCE), ALL_REDUCE.describe(SOURCE), {}, world=2)
    cases, controls = tuple(p.case for p in planned), tuple(p.control for p in planned)
    return predict(EXPERIMENT, Expect("alpha_beta", SOURCE, cases, controls, known), ())


def test_the_figures_of_the_log_have_names_units_and_a_source() -> None:
    known = numbers()
    assert known["nccl_allreduce_ring_ll_latency"] == 10e-6
    assert known["nccl_allreduce_ring_simple_bandwidth"] == 100e9
    assert known.source("nccl_allreduce_ring_ll_latency") == "NCCL's log"


def test_the_fastest_protocol_of_the_table_is_predicted() -> None:
    for made in predictions(numbers()):
        assert made.expected is not None
        size = made.steps
        fastest = min((LL, SIMPLE), key=lambda time: time.seconds(size))
        assert made.expected.value == pytest.approx(size / fastest.seconds(size))
        assert f"RING {fastest.protocol}" in made.expected.because
        assert "by NCCL's own table" in made.expected.because


def test_without_a_table_the_figures_of_the_source_are_predicted() -> None:
    made = predictions(numbers(()))
    assert all(p.expected and "by NCCL's model" in p.expected.because for p in made)
    rates = [p.expected.value for p in made if p.expected and not p.control]
    assert all(fast > slow for slow, fast in pairwise(rates))
    assert rates != [p.expected.value for p in predictions(numbers()) if p.expected][: len(rates)]


def measured_as(latency: float, byte: float) -> Study:
    """A machine whose latency and seconds of a byte are these factors of those in the table."""

    def point(made: Prediction) -> LabPoint:
        size = made.steps
        times = [latency * t.latency_s + byte * size / t.bytes_per_s for t in (LL, SIMPLE)]
        rate = size / min(times)
        return LabPoint(made, Measured(rate, 0.99 * rate, 1.01 * rate))

    made = predictions(numbers())
    points = [point(p) for p in made]
    return Study(
        EXPERIMENT.describe(SOURCE),
        tuple(p for p in points if not p.prediction.control),
        tuple(replace(p, doubt="") for p in points if p.prediction.control),
    )


def test_the_fitted_latency_and_bandwidth_are_held_against_the_table() -> None:
    same = judge(measured_as(1.0, 1.0))
    assert same.verdict == "CONFIRMED", same.sentence
    fitted = {f.name: f for f in same.fitted}
    assert set(fitted) == {"latency of an all-reduce", "seconds of a byte"}
    for parameter in fitted.values():
        assert parameter.value == pytest.approx(parameter.expected, rel=0.01)
    assert fitted["seconds of a byte"].expected == pytest.approx(1 / 100e9, rel=0.05)
    assert judge(measured_as(1.0, 4.0)).verdict != "CONFIRMED"
    assert judge(measured_as(4.0, 1.0)).verdict != "CONFIRMED"


def test_parameters_in_seconds_are_written_with_their_unit() -> None:
    path = MEASURED / "lab" / "alpha_beta.jsonl.gz"
    text = render_lab(read_run(path), "table")
    assert "the latency of an all-reduce is 8.872 µs (6.795 µs to 10.95 µs)" in text
    assert "the seconds of a byte is 3.779 ps" in text
