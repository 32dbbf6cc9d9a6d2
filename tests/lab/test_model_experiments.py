"""Experiments on the layers of a model: their figures for an H200 beside those worked out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_bench import CONTRACT, make_bench
from gpuperf.kernels.checkpoint import CHECKPOINT, kept_elements

from gpuperf.lab.judging import judge
from gpuperf.lab.study import LabPoint, Measured, Study
from gpuperf.measure.device import open_device
from gpuperf.model.experiment import Number, Numbers, Prediction
from gpuperf.model.workload import Case, Point
from gpuperf.theory.checkpointing import block_elements, block_ratio
from gpuperf.theory.decoding import quantized_gain, split_bandwidth
from gpuperf.theory.offload import break_even, offload_gain
from gpuperf.theory.ridge import weights_seconds
from tests.lab.test_experiments import EXPERIMENTS, SHEETS, SOURCE, predictions, sheet
from tests.lab.test_memory_experiments import verdict

BY_NAME = {experiment.name: experiment for experiment in EXPERIMENTS}
H200 = sheet("h200-sxm")
RATE, BANDWIDTH = 989.4e12, 4.8e12
OWN = (
    *("critical_batch", "quant_crossover", "split_kv", "gqa", "cpu_or_gpu"),
    *("checkpoint_memory", "checkpoint_time"),
)


def of(name: str, numbers: Numbers = H200) -> list[Prediction]:
    """The predictions of an experiment without its controls."""
    return [p for p in predictions(BY_NAME[name], numbers) if not p.control]


def values(name: str, series: str | None = None) -> dict[float, float]:
    """The predicted y by x."""
    return {
        p.x: p.expected.value
        for p in of(name)
        if p.expected is not None and series in (None, p.series)
    }


def test_a_linear_layer_leaves_its_floor_at_206_tokens() -> None:
    at = (8192, 8192, 2, RATE, BANDWIDTH)
    assert weights_seconds(1, *at) == weights_seconds(206, *at) == pytest.approx(27.96e-6, rel=1e-3)
    assert weights_seconds(207, *at) > weights_seconds(206, *at)
    assert values("critical_batch")[1024] == pytest.approx(2 * 1024 * 8192**2 / RATE)


@pytest.mark.parametrize(("bits", "leaves"), [(8, 103), (4.125, 53)])
def test_weights_of_fewer_bits_leave_memory_earlier_and_gain_nothing_from_206_tokens(
    bits: float, leaves: int
) -> None:
    shape, rates = (2**22, 2**22), (RATE, RATE)  # so wide that activations do not count
    gains = {m: quantized_gain(m, shape, bits, rates, BANDWIDTH) for m in (1, leaves, 150, 210)}
    assert gains[1] == pytest.approx(gains[leaves], rel=0.01) == pytest.approx(16 / bits, rel=0.01)
    assert gains[150] == pytest.approx(206 / 150, rel=0.01)
    assert gains[210] == 1


def test_fp8_gains_at_any_number_of_tokens() -> None:
    gains = values("quant_crossover", "fp8")
    assert gains[1] == pytest.approx(2, rel=0.01)
    assert gains[1024] == pytest.approx(2, rel=0.01)
    assert values("quant_crossover", "int4")[1] == pytest.approx(3.88, rel=0.01)
    assert set(values("quant_crossover", "unquantized").values()) == {1}


def test_eight_programs_leave_an_h200_idle_and_38_fill_it() -> None:
    draw = 64 * 1.98e9
    assert split_bandwidth(8, draw, BANDWIDTH) == pytest.approx(1.014e12, rel=1e-3)
    assert split_bandwidth(37, draw, BANDWIDTH) < BANDWIDTH == split_bandwidth(38, draw, BANDWIDTH)
    assert values("split_kv") == {8.0: pytest.approx(1.014e12, rel=1e-3), 64.0: 4.8e12, 256: 4.8e12}


def test_heads_of_queries_cost_nothing_beside_the_start_of_two_kernels() -> None:
    by_series = {p.series: values("gqa", p.series) for p in of("gqa")}
    assert [by_series[heads][8.0] for heads in ("8", "16", "32", "64")] == pytest.approx([1.0] * 4)
    start_s, eight_s = 5e-6, 32 * 8 * 4095 * 128 * 4 / BANDWIDTH
    gains = {8.0 * k: (start_s + k * eight_s) / (start_s + eight_s) for k in (1, 2, 4, 8)}
    assert by_series["64"] == pytest.approx(gains, rel=1e-3)


def test_a_speed_up_with_copies_is_bounded_by_the_link() -> None:
    moved, link = 200e6, 55.5e9
    assert break_even(moved, link) == pytest.approx(3.6e-3, rel=0.01)
    assert offload_gain(36e-3, 0.1e-3, moved, float("inf")) == pytest.approx(360)
    assert offload_gain(36e-3, 0.1e-3, moved, link) == pytest.approx(36 / 3.7, rel=0.01)
    assert offload_gain(break_even(moved, link), 0, moved, link) == 1
    fed = values("cpu_or_gpu")[2**24]
    assert 0.98 * 63.0e9 < fed < 63.1e9, "16 lanes of PCI Express 5.0"


@pytest.mark.parametrize("kept", ["none", "selective", "full"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_theory_counts_what_the_workload_counts(kept: str, attention: str) -> None:
    sizes = {"batch": 2, "depth": 1, "heads": 4, "seq": 64, "head_dim": 16}
    point = Point({**sizes, "attention": attention, "dtype": "fp32"})
    eager = attention == "eager"
    counted = 2 * 64 * block_elements(64, 64, 4, kept, eager)
    own = 2 * 64 * 64 if (kept, eager) == ("none", False) else 0  # sdpa's output, laid out anew
    assert kept_elements(point, kept) == counted + own
    works = {each.name: each.work for each in CHECKPOINT.implementations}
    whole, usual = works[kept], works["none"]
    assert whole is not None
    assert usual is not None
    if not eager:
        ratio = whole(point).flop_count / usual(point).flop_count
        assert ratio == pytest.approx(block_ratio(64, 64, kept))


def test_running_blocks_again_takes_a_fifth_more_and_not_a_third() -> None:
    assert block_ratio(2048, 2048, "full") == pytest.approx(97 / 79, rel=1e-3)
    assert block_ratio(1, 10**6, "full") == pytest.approx(1 + 2 / 9)


@pytest.mark.parametrize("kept", ["none", "selective", "full"])
def test_what_a_step_keeps_is_what_is_predicted(kept: str) -> None:
    sizes = {"batch": 2, "depth": 3, "heads": 4, "seq": 64, "head_dim": 32}
    point = {**sizes, "attention": "sdpa", "dtype": "fp32"}
    case = Case("checkpoint", kept, point)
    contract = replace(CONTRACT, min_samples=2, budget_s=60.0)
    bench = make_bench(facts=open_device("cpu").facts)
    record = bench.measure(CHECKPOINT, case, contract, "r", 0)
    assert record.status == "ok", record.reason
    expected = BY_NAME["checkpoint_memory"].expect(
        Point({**point, "implementation": kept}), Numbers()
    )
    assert expected.low <= record.readings["kept_bytes"] <= expected.high


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("device", SHEETS)
def test_a_device_as_predicted_is_confirmed_and_one_of_twice_the_values_refuted(
    name: str, device: str
) -> None:
    assert verdict(BY_NAME[name], sheet(device), 0.98) == "CONFIRMED"
    assert verdict(BY_NAME[name], sheet(device), 2.0) == "REFUTED"


def test_a_published_sweep_of_an_h200_confirms_the_critical_batch() -> None:
    """NVIDIA's AI Configurator, bf16, 8192²; roofs as measured on an H200."""
    published = {1: 34.9, 16: 34.4, 64: 37.0, 128: 37.1, 256: 47.7, 512: 90.3, 1024: 167}
    roofs = {"copy_bandwidth": 4.29e12, "tensor_bf16": 840e12}
    figures = {**H200.figures, **{n: Number(v, "", "test") for n, v in roofs.items()}}
    experiment = BY_NAME["critical_batch"]
    points, controls = [], []
    for made in predictions(experiment, Numbers(figures)):
        assert made.expected is not None
        if made.control:
            controls.append(LabPoint(made, Measured(*[made.expected.value] * 3)))
        elif made.x in published:
            points.append(LabPoint(made, Measured(*[published[int(made.x)] * 1e-6] * 3)))
    ruling = judge(Study(experiment.describe(SOURCE), tuple(points), tuple(controls)))
    assert ruling.verdict == "CONFIRMED", ruling.sentence
    (knee,) = (fitted for fitted in ruling.fitted if fitted.name == "knee")
    assert knee.expected == pytest.approx(196, rel=0.01)
    assert knee.value == pytest.approx(215, rel=0.05)
