"""Locate the steps of a traced program, by its marks or by the repetition of its kernels."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from gpuperf.model.program import MARK, PART
from gpuperf.model.timeline import Timeline
from gpuperf.profile.trace.periods import periods, repeats

StepWindow = tuple[int, int]  # begin and end of a step by the host's clock, in nanoseconds

PROFILER_STEP = re.compile(r"ProfilerStep#\d+")
LOOP, WHOLE = "loop", "whole"


def marked(timeline: Timeline, region: str) -> list[StepWindow]:
    """Return the begin and end of each step of *region* that gpuperf marked in the trace."""
    return _annotated(timeline, lambda name: name == f"{MARK}{region}")


def parts_of(timeline: Timeline, region: str) -> dict[str, list[StepWindow]]:
    """Return the begins and ends of the regions nested in steps of *region*, by name."""
    prefix = f"{MARK}{region}{PART}"
    names = (n for n in timeline.names if n.startswith(prefix))
    return {n.removeprefix(prefix): _annotated(timeline, lambda o, n=n: o == n) for n in names}  # type: ignore[misc]


def steps_of(
    timeline: Timeline, warmup: int = 0, by_marks: bool = True
) -> tuple[str, list[StepWindow]]:
    """Return the name of the region that a trace shows, and its steps after the first *warmup*.

    Steps are those that gpuperf marked, unless *by_marks* is false; else those of torch's profiler
    (`ProfilerStep#3`); else the rounds in which its kernels (on a CPU, its operators) repeat,
    `loop`; else the whole trace, `whole`.
    """
    names = {timeline.names[name] for name in timeline.annotations.name.tolist()}
    marks = (name.removeprefix(MARK) for name in names if name.startswith(MARK))
    ours = sorted(name for name in marks if PART not in name)
    for region in ours if by_marks else ():
        if steps := marked(timeline, region):
            return region, _after(warmup, steps)
    if steps := _annotated(timeline, lambda name: PROFILER_STEP.fullmatch(name) is not None):
        return "ProfilerStep", _after(warmup, steps)
    if len(steps := _repeated(timeline)) > 1:
        return LOOP, _after(warmup, steps)
    return WHOLE, [(0, timeline.length + 1)]


def region_name(name: str, timeline: Timeline, cut: bool) -> str:
    """Return the *name* from `steps_of`; for a whole trace that was *cut*, `first 5 s` instead."""
    return f"first {timeline.length / 1e9:.3g} s" if cut and name == WHOLE else name


def _after(warmup: int, steps: list[StepWindow]) -> list[StepWindow]:
    return steps[min(warmup, len(steps) - 1) :]


def _annotated(timeline: Timeline, fits: Callable[[str], bool]) -> list[StepWindow]:
    marks = timeline.annotations
    kept = {i for i, name in enumerate(timeline.names) if fits(name)}
    return [
        (int(marks.start[i]), int(marks.end[i]))
        for i in range(len(marks))
        if not marks.on_device[i] and int(marks.name[i]) in kept
    ]


def _repeated(timeline: Timeline) -> list[StepWindow]:
    """Return the rounds of a loop, each from its first launch to that of the next round."""
    activities, operators, runtime = timeline.activities, timeline.operators, timeline.runtime
    names: Sequence[int]
    if len(activities):
        names = activities.name.tolist()
        by = activities.runtime.tolist()
        starts = [
            int(runtime.start[launch]) if launch >= 0 else int(start)
            for launch, start in zip(by, activities.start.tolist(), strict=True)
        ]
    else:
        # Scalars among the arguments change from step to step: names and shapes do not.
        ids: dict[object, int] = {}
        alike = [
            ids.setdefault((c.name, tuple(t.shape for t in c.tensors)), len(ids))
            for c in timeline.calls
        ]
        names = [alike[call] for call in operators.call.tolist()]
        starts = operators.start.tolist()
    repetition = periods(names)
    if repetition is None and not len(activities):  # a cache may grow from round to round
        names = [ids.setdefault(timeline.calls[c].name, len(ids)) for c in operators.call.tolist()]
        repetition = periods(names)
    if repetition is None:
        return []
    first, length = repetition
    count = repeats(names, first, length)
    edges = [starts[first + i * length] for i in range(count)]
    after = first + count * length
    edges.append(starts[after] if after < len(starts) else timeline.length + 1)
    return [(a, b) for a, b in pairwise(edges) if b > a]
