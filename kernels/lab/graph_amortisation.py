"""Predict the speed-up of n calls by CUDA graphs, with the recording among them or before them.

The notes measured 0.18 over 100 calls after one warm-up. torch records its graph in the second
call, so that n calls take C + n·t_g: S(n) = n·t_e / (C + n·t_g). The prediction takes C, t_e and
t_g from the notes' own three times, whose machine is unknown, so that each may differ by a factor.
A recording outside of the calls is worth a factor of 30 at n = 100, and cannot be confused with it.
"""

from __future__ import annotations

from gpuperf.lab_experiments._small_function import SMALL_FUNCTION

from gpuperf import Control, Expected, Experiment, Law, Numbers, Point, about
from gpuperf.theory.claims.checks_003 import COMPILED_S, EAGER_S, RECORDING_S, REPLAY_S
from gpuperf.theory.graph_amortisation import break_even, speedup

FACTOR = 3.0  # between the notes' host and another: of C (a garbage collection), t_e and t_g
GRAPH_KERNEL_S = 2.5e-6  # of a kernel over 8 MB in the L2 within a graph: published and L2 rate
KERNELS = 30


def within_factor(value: float, because: str) -> Expected:
    return Expected(value, value / FACTOR, value * FACTOR, "ratio", "model", because)


def expect(at: Point, numbers: Numbers) -> Expected:
    """Predict the speed-up of the calls, one of which records the graph."""
    gain = speedup(at.calls, EAGER_S, RECORDING_S, REPLAY_S)
    once = f"{RECORDING_S * 1e3:.0f} ms of recording, then {REPLAY_S * 1e6:.0f} µs a call"
    return within_factor(gain, f"{once}; 1 at {break_even(EAGER_S, RECORDING_S, REPLAY_S):.0f}")


def recorded_before(at: Point, numbers: Numbers) -> Expected:
    """Predict the speed-up where no call records: that of an endless run."""
    return within_factor(speedup(at.calls, EAGER_S, 0, REPLAY_S), "no call records: t_e / t_g")


GRAPH_AMORTISATION = Experiment(
    name="graph_amortisation",
    question="Do CUDA graphs slow a small function down?",
    workload=SMALL_FUNCTION,
    axes={"calls": (10, 100, 1000, 10000), "warmups": (1,)},
    implementations=("reduce_overhead",),
    x="calls",
    y="reading:speedup",
    unit="ratio",
    expect=expect,
    controls=(
        Control(
            "two warm-ups",
            {"calls": 100, "warmups": 2},
            "the recording is over: the slow calls vanish",
            recorded_before,
        ),
        Control(
            "no graphs",
            {"calls": 100},
            "torch.compile without graphs has no recording",
            lambda at, numbers: within_factor(EAGER_S / COMPILED_S, "t_e over a compiled call"),
            ("compile",),
        ),
        Control(
            "by hand",
            {"calls": 100},
            "a capture by hand is in the warm-up",
            lambda at, numbers: within_factor(
                EAGER_S / (KERNELS * GRAPH_KERNEL_S), "t_e over 30 kernels within a graph"
            ),
            ("captured",),
        ),
        Control(
            "eager",
            {"calls": 100},
            "the function against itself",
            lambda at, numbers: about(1, "ratio", "the same calls", 0.1),
            ("eager",),
        ),
    ),
    law=Law("amortisation", band=FACTOR - 1, names=("recording in calls", "share of a replay")),
    claims=("003-14", "003-15", "003-16", "003-18", "004-06"),
    notes=(
        "Readings of a record: seconds of an eager, a first and a steady call, graph breaks, and "
        "how often torch skipped its graphs: not 0 means that nothing was recorded.",
    ),
)

GRAPH_LAW = Experiment(
    name="graph_law",
    question="Do one recording and a steady replay explain the time of the first n calls?",
    workload=SMALL_FUNCTION,
    axes={"calls": (10, 100, 1000, 10000), "warmups": (1,)},
    implementations=("reduce_overhead",),
    x="calls",
    y="reading:of_law",
    unit="ratio",
    # A recording includes a garbage collection, whose time scatters.
    expect=lambda at, numbers: about(1, "ratio", "S(n) with C, t_e and t_g of single calls", 0.3),
    controls=(
        Control(
            "nothing to record",
            {"calls": 1000},
            "the law without a recording",
            implementations=("eager", "compile"),
        ),
    ),
    claims=("003-16",),
)
