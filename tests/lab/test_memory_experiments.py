"""Experiments on latency, bandwidth and parallelism: their kernels, references and figures."""

from __future__ import annotations

import math
import random
import re
from functools import cache

import pytest
import torch
from gpuperf.lab_experiments import (
    _chase,
    _fma,
    _loads,
    _mma,
    _pointers,
    _reads,
    bandwidths,
    ilp,
    ilp_mma,
    little,
)

from gpuperf import Experiment, Numbers, Point
from gpuperf.lab.judging import judge
from gpuperf.lab.study import LabPoint, Measured, Study
from gpuperf.measure.inputs import bind_make
from gpuperf.model.experiment import Prediction
from gpuperf.theory.latency import cycles_per_instruction, published, sequential_hop
from tests.lab.test_experiments import EXPERIMENTS, SOURCE, predictions, sheet

OWN = ("latency", "lines", "bandwidths", "little", "ilp", "ilp_mma")
BY_NAME = {experiment.name: experiment for experiment in EXPERIMENTS}
NOISE = 0.004


def drawn(shape: tuple[int, ...], dtype: str, high: int | None = None) -> torch.Tensor:
    return bind_make(torch.device("cpu"), 7)(shape, dtype, high)


@pytest.mark.parametrize("order", ["random", "sequential"])
def test_a_chase_is_one_cycle_through_all_nodes(order: str) -> None:
    point = Point(footprint=4096, step=64, order=order, hops=48)
    inputs = _pointers.inputs(point, drawn)
    base, nodes = 1 << 40, torch.zeros(512, dtype=torch.int64)
    _chase.link(nodes, inputs["order"], base, 64)
    at, visited = base + 64 * int(inputs["order"][0]), []
    for _ in range(64):
        visited.append((at - base) // 64)
        at = int(nodes[(at - base) // 8])
    assert at == base + 64 * visited[0], "the chain is closed"
    assert sorted(visited) == list(range(64)), "each node is visited once"
    assert (visited == list(range(64))) == (order == "sequential")
    for hops in (16, 48, 64 + 16):
        assert int(_pointers.reference(inputs, Point(point, hops=hops))) == visited[hops % 64]


@pytest.mark.parametrize(("footprint", "units"), [(2**14, 3), (2**16, 5), (2**18, 9)])
def test_repeated_reads_sum_what_the_kernel_reads(footprint: int, units: int) -> None:
    x, grid = drawn((footprint // 4,), "fp32"), 2
    point = Point(footprint=footprint, total=units * _reads.AHEAD * _reads.ROW)
    wide, rows = x.view(-1, 4).double().sum(1), footprint // _reads.ROW
    lanes, sums = torch.arange(_reads.THREADS), torch.zeros(grid, _reads.THREADS).double()
    for block in range(grid):
        at = block * rows // grid * 1024 + lanes
        for _ in range(block * units // grid, (block + 1) * units // grid):
            for k in range(8):
                sums[block] += wide[(at + k * 1024) & (rows * 1024 - 1)]
            at = at + 8192
    torch.testing.assert_close(_reads.reference({"x": x}, point), sums)


@pytest.mark.parametrize(("size", "unroll", "threads"), [(4, 4, 32), (8, 1, 512), (16, 2, 256)])
def test_loads_sum_what_the_kernel_loads(size: int, unroll: int, threads: int) -> None:
    point = Point(size=size, unroll=unroll, threads=threads, rounds=1, n=2**14)
    x = drawn((point.n,), "fp32")
    block, grid, rounds = _loads.shape(point, x)
    wide, total, moved = x.view(-1, size // 4).double().sum(1), grid * block, 0
    sums = torch.zeros(grid, block).double()
    for b in range(grid):
        at = b * block + torch.arange(block)
        for _ in range(b * rounds // grid, (b + 1) * rounds // grid):
            for k in range(unroll):
                sums[b] += wide[(at + k * total) & (len(wide) - 1)]
                moved += block * size
            at = at + unroll * total
    torch.testing.assert_close(_loads.reference({"x": x}, point), sums.flatten())
    assert moved == little.moved(point), "the bytes do not depend on the number of SMs"


def test_a_chain_of_multiply_adds_counts_its_links_exactly() -> None:
    point = Point(chains=3, warps=1, links=_fma.BODY)
    x = drawn((_fma.MOST,), "fp32")
    chains = torch.stack([x[:128] + c for c in range(3)])
    for _ in range(point.links):
        chains = chains * 1.0 + _fma.LINK
    expected = _fma.reference({"x": x}, point)
    assert expected.shape == (2, 128)
    torch.testing.assert_close(chains.sum(0).double(), expected[0], rtol=1e-6, atol=1e-6)
    missed = _fma.reference({"x": x}, Point(point, links=point.links - 1))
    assert (expected - missed).abs().min() > 3e-4, "one link less is seen"


def test_sums_of_a_tensor_core_are_exact_in_fp32() -> None:
    point = Point(chains=16, warps=16, links=256 * _mma.BODY)
    ones = {"x": torch.ones(16, 16), "w": torch.ones(16, 8)}
    sums = _mma.reference(ones, point)
    assert sums.shape == (2 * 4, 16, 16, 8)
    assert sums.max() == 16 * point.links * 16 + 16 * 15 / 2 < 2**24


@cache
def ptx(source: str) -> dict[str, str]:
    """Return the PTX of each kernel, compiled for Hopper."""
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-bindings (Linux)")
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], [])
    options = [b"--gpu-architecture=compute_90", b"--std=c++17"]
    assert int(nvrtc.nvrtcCompileProgram(program, len(options), options)[0]) == 0
    text = b" " * nvrtc.nvrtcGetPTXSize(program)[1]
    nvrtc.nvrtcGetPTX(program, text)
    parts = re.split(r"\.visible \.entry (\w+)", text.decode())
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_a_thread_has_as_many_loads_in_flight_as_the_prediction_of_little_counts() -> None:
    """It begins another as soon as the oldest has arrived."""
    kernels = ptx(_loads.CUDA)
    assert len(kernels) == 12 + 3
    for name, body in kernels.items():
        _, size, unroll = (*name.split("_"), "1")[:3]
        steps = re.findall(r"cp\.async\.(?:ca|wait_group \d+)|ld\.volatile\.shared", body)
        first, last = (i for i, step in enumerate(steps) if "wait_group" in step)
        assert steps[first] == f"cp.async.wait_group {int(unroll) - 1}", name
        assert steps[last] == "cp.async.wait_group 0", name
        assert steps[:first] == ["cp.async.ca"] * int(unroll), name
        of_turn = ["ld.volatile.shared"] * (int(size) // 4)
        assert steps[first + 1 : last] == [*of_turn, "cp.async.ca"], name


def test_a_chase_has_nothing_between_two_loads() -> None:
    for name, body in ptx(_chase.CUDA).items():
        chased = re.findall(r"ld\.\w+(?:\.\w+)*\s+(%\w+), \[\1\];", body)
        assert len(chased) == (0 if name == "lap" else 16)
        assert body.count("clock64") == (0 if name == "lap" else 2)


def test_figures_of_the_theories() -> None:
    assert published({"tensor_bf16"}).l2 == 208
    assert published({"tensor_bf16", "tensor_fp8"}).dram == 690
    assert sequential_hop(8, 40, 280, 700) == 40 * 0.75 + 280 * 0.125 + 700 * 0.125
    assert sequential_hop(32, 40, 280, 700) == (280 + 700) / 2
    assert sequential_hop(32, 40, 280, 700, granule=32) == sequential_hop(64, 40, 280, 700) == 700
    assert [cycles_per_instruction(4, p, 1) for p in (1, 2, 4, 16)] == [4, 2, 1, 1]


def test_figures_of_the_predictions() -> None:
    a100, h200 = sheet("a100-sxm4-80gb"), sheet("h200-sxm")
    assert (ilp.issue(a100), ilp.issue(h200)) == (2, 1)
    assert ilp_mma.issue(a100) == 8
    assert ilp_mma.issue(h200) == pytest.approx(4 / 0.63)
    own = Numbers({k: v for k, v in h200.figures.items() if not k.startswith("latency")})
    scalar = Point(threads=2048, unroll=1, size=4, implementation="independent")
    most = little.expect(scalar, own)
    assert little.in_flight(scalar, own) == 132 * 2048 * 4
    assert most.value == pytest.approx(132 * 2048 * 4 / (690 / 1.98e9))
    assert most.high < own["memory_bandwidth"], "4-byte loads cannot saturate an H200"
    waiting = Point(scalar, unroll=4, implementation="dependent")
    assert little.expect(waiting, own).value == most.value


def measured(prediction: Prediction, factor: float, noise: random.Random) -> LabPoint:
    assert prediction.expected is not None
    value = prediction.expected.value * factor * math.exp(noise.gauss(0, NOISE))
    return LabPoint(prediction, Measured(value, value * (1 - NOISE), value * (1 + NOISE)))


def verdict(experiment: Experiment, numbers: Numbers, factor: float) -> str:
    """The ruling on a device whose values are *factor* times the predictions."""
    noise, made = random.Random(1), predictions(experiment, numbers)
    points = [measured(p, 1.0 if p.control else factor, noise) for p in made]
    described = experiment.describe(SOURCE)
    by_control = [
        [p for p in points if bool(p.prediction.control) is held] for held in (False, True)
    ]
    return judge(Study(described, tuple(by_control[0]), tuple(by_control[1]))).verdict


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("device", ["a100-sxm4-80gb", "h200-sxm"])
def test_a_device_as_predicted_is_confirmed_and_one_of_twice_the_values_refuted(
    name: str, device: str
) -> None:
    figures = sheet(device).figures
    numbers = Numbers({k: v for k, v in figures.items() if not k.startswith("latency")})
    assert verdict(BY_NAME[name], numbers, 0.98) == "CONFIRMED"
    assert verdict(BY_NAME[name], numbers, 2.0) == "REFUTED"


def test_a_round_knee_is_no_contradiction_of_littles_law() -> None:
    """The latency grows with the load: near the knee, both limits count."""
    numbers = Numbers(
        {k: v for k, v in sheet("h200-sxm").figures.items() if not k.startswith("latency")}
    )
    points, noise = [], random.Random(3)
    for made in predictions(little.LITTLE, numbers):
        bound = numbers["read_bandwidth"]
        over = made.x / (690 / numbers["clock"]) / bound
        value = 0.97 * bound * (over**-4 + 1) ** -0.25
        assert made.expected is not None
        points.append(measured(made, value / made.expected.value, noise))
    own, held = ([p for p in points if bool(p.prediction.control) is c] for c in (False, True))
    ruling = judge(Study(little.LITTLE.describe(SOURCE), tuple(own), tuple(held)))
    assert ruling.verdict == "CONFIRMED", ruling.sentence


@pytest.mark.parametrize("device", ["a100-sxm4-80gb", "h200-sxm", "b200"])
@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("latency", ("latency_l1", "latency_l2", "latency_dram")),
        ("bandwidths", ("bandwidth_l1", "bandwidth_l2", "bandwidth_dram")),
        ("lines", ("latency_stream",)),
    ],
)
def test_each_plateau_has_the_name_of_its_level(
    name: str, names: tuple[str, ...], device: str
) -> None:
    """A mixture of two levels that was taken for a plateau would shift all names."""
    figures = sheet(device).figures
    numbers = Numbers({k: v for k, v in figures.items() if not k.startswith("latency")})
    made = [measured(p, 1.0, random.Random(2)) for p in predictions(BY_NAME[name], numbers)]
    own, held = ([p for p in made if bool(p.prediction.control) is c] for c in (False, True))
    fitted = judge(Study(BY_NAME[name].describe(SOURCE), tuple(own), tuple(held))).fitted
    levels = published(figures)
    cycles = {"l1": levels.l1, "l2": levels.l2, "dram": levels.dram, "stream": levels.dram}
    l1, l2, dram = bandwidths.levels(numbers)
    known = {f"latency_{k}": v for k, v in cycles.items()}
    known |= {"bandwidth_l1": l1, "bandwidth_l2": l2, "bandwidth_dram": dram}
    assert [f.name for f in fitted] == [*names, *(f"edge {i}" for i in range(1, len(names)))]
    for parameter in fitted[: len(names)]:
        assert parameter.value == pytest.approx(known[parameter.name], rel=0.02)
