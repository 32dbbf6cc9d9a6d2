"""Are a trace's steps where they were marked, or where its kernels repeat?"""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_kineto import Trace

from gpuperf.model.timeline import Timeline
from gpuperf.profile.trace.kineto import read_trace
from gpuperf.profile.trace.steps import marked, region_name, steps_of

US = 1000


def timeline(trace: Trace, folder: Path) -> Timeline:
    return read_trace(trace.write(folder / "trace.json"))


def loop(rounds: int, names: tuple[str, ...] = ("a", "b", "c"), lead: int = 2) -> Trace:
    """Rounds of kernels, one each 10 µs, behind some that do not come again."""
    trace = Trace()
    at = 0
    order = [f"once {i}" for i in range(lead)] + list(names) * rounds
    for name in order:
        trace.launch(name, at * US, (at + 5) * US, (at + 9) * US)
        at += 10
    return trace


def test_marks_of_gpuperf_come_first(tmp_path: Path) -> None:
    trace = loop(6)
    for i in range(3):
        trace.mark("gpuperf:step", i * 40 * US, (i * 40 + 30) * US)
        trace.mark(f"ProfilerStep#{i}", i * 10 * US, (i * 10 + 5) * US)
    found = timeline(trace, tmp_path)
    name, windows = steps_of(found)
    assert name == "step"
    assert [b - a for a, b in windows] == [30 * US] * 3
    assert marked(found, "step") == windows
    assert marked(found, "other") == []
    assert steps_of(found, warmup=2)[1] == windows[2:]
    assert steps_of(found, warmup=9)[1] == windows[2:]


def test_then_those_of_torchs_profiler(tmp_path: Path) -> None:
    trace = loop(6)
    for i in range(3):
        trace.mark(f"ProfilerStep#{i}", i * 40 * US, (i * 40 + 35) * US)
    trace.mark("ProfilerStep#nonsense", 0, 5 * US)
    name, windows = steps_of(timeline(trace, tmp_path))
    assert (name, len(windows)) == ("ProfilerStep", 3)


@pytest.mark.parametrize("lead", [0, 2, 5])
def test_then_what_repeats_from_launch_to_launch(tmp_path: Path, lead: int) -> None:
    found = timeline(loop(12, lead=lead), tmp_path)
    name, windows = steps_of(found)
    assert name == "loop"
    assert all(b - a == 30 * US for a, b in windows[:-1])
    assert len(windows) in (11, 12)


def test_what_repeats_nothing_is_one_whole(tmp_path: Path) -> None:
    found = timeline(loop(1, tuple("abcdefgh")), tmp_path)
    name, ((start, end),) = steps_of(found)
    assert name == "whole"
    assert start == 0
    assert end > found.length


def test_operators_repeat_where_no_device_does_whatever_their_scalars(tmp_path: Path) -> None:
    trace = Trace(device=None)
    for i in range(24):
        shapes = {
            "Input Dims": [[4, 4], []],
            "Input type": ["float", "Scalar"],
            "Concrete Inputs": ["", str(i)],
        }
        trace.op("aten::mul" if i % 2 else "aten::add", i * 10 * US, (i * 10 + 5) * US, **shapes)
    name, windows = steps_of(timeline(trace, tmp_path))
    assert (name, len(windows)) == ("loop", 12)


def test_a_part_of_a_program_is_never_called_the_whole(tmp_path: Path) -> None:
    found = timeline(loop(1), tmp_path)
    assert region_name("whole", found, cut=True) == f"first {found.length / 1e9:.3g} s"
    assert region_name("whole", found, cut=False) == "whole"
    assert region_name("loop", found, cut=True) == "loop"


def test_a_loop_whose_cache_grows_is_one_by_its_names(tmp_path: Path) -> None:
    trace = Trace()
    at = 0
    for i in range(12):
        for name, shape in (("aten::mm", [4, 4]), ("aten::cat", [i + 1, 4]), ("aten::add", [4])):
            trace.op(name, at * US, (at + 5) * US, **{"Input Dims": [shape]})
            at += 10
    name, windows = steps_of(timeline(trace, tmp_path))
    assert (name, len(windows)) == ("loop", 12)
