"""Which stretches of a trace are steps: those that were marked, or those that repeat?"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from gpuperf.model.program import MARK, PART
from gpuperf.model.timeline import Timeline
from gpuperf.profile.trace.periods import periods, repeats

StepWindow = tuple[int, int]  # nanoseconds of the host

PROFILER_STEP = re.compile(r"ProfilerStep#\d+")
LOOP, WHOLE = "loop", "whole"


def marked(timeline: Timeline, region: str) -> list[StepWindow]:
    """The steps of *region* that gpuperf marked."""
    return _annotated(timeline, lambda name: name == f"{MARK}{region}")


def parts_of(timeline: Timeline, region: str) -> dict[str, list[StepWindow]]:
    """Where the regions inside the steps of *region* are, by name."""
    prefix = f"{MARK}{region}{PART}"
    names = (n for n in timeline.names if n.startswith(prefix))
    return {n.removeprefix(prefix): _annotated(timeline, lambda o, n=n: o == n) for n in names}  # type: ignore[misc]


def steps_of(
    timeline: Timeline, warmup: int = 0, by_marks: bool = True
) -> tuple[str, list[StepWindow]]:
    """What the steps of a trace are called, and where they are, without the first *warmup*.

    By the marks of gpuperf, unless *by_marks* is false; else of torch's own profiler
    (`ProfilerStep#3`); else what repeats among its kernels (on a CPU, its operators), `loop`; else
    all of it, `whole`.
    """
    names = {timeline.names[name] for name in timeline.annotations.name.tolist()}
    marks = (name.removeprefix(MARK) for name in names if name.startswith(MARK))
    ours = sorted(name for name in marks if PART not in name)
    for region in ours if by_marks else ():
        found = marked(timeline, region)
        if found:
            return region, _rest(found, warmup)
    found = _annotated(timeline, lambda name: PROFILER_STEP.fullmatch(name) is not None)
    if found:
        return "ProfilerStep", _rest(found, warmup)
    found = _repeated(timeline)
    if len(found) > 1:
        return LOOP, _rest(found, warmup)
    return WHOLE, [(0, timeline.length + 1)]


def region_name(name: str, timeline: Timeline, cut: bool) -> str:
    """*name* of what `steps_of` found; of a trace that was *cut*, a part is not the whole."""
    return f"first {timeline.length / 1e9:.3g} s" if cut and name == WHOLE else name


def _rest(found: list[StepWindow], warmup: int) -> list[StepWindow]:
    return found[min(warmup, len(found) - 1) :]


def _annotated(timeline: Timeline, fits: Callable[[str], bool]) -> list[StepWindow]:
    marks = timeline.annotations
    kept = {i for i, name in enumerate(timeline.names) if fits(name)}
    return [
        (int(marks.start[i]), int(marks.end[i]))
        for i in range(len(marks))
        if not marks.on_device[i] and int(marks.name[i]) in kept
    ]


def _repeated(timeline: Timeline) -> list[StepWindow]:
    """The rounds of a loop, each from its first launch to the next one's."""
    activities, operators, runtime = timeline.activities, timeline.operators, timeline.runtime
    names: Sequence[int]
    if len(activities):
        names = activities.name.tolist()
        by = activities.runtime.tolist()
        starts = [
            int(runtime.start[one]) if one >= 0 else int(start)
            for one, start in zip(by, activities.start.tolist(), strict=True)
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
    found = periods(names)
    if found is None and not len(activities):  # a cache may grow from round to round
        names = [ids.setdefault(timeline.calls[c].name, len(ids)) for c in operators.call.tolist()]
        found = periods(names)
    if found is None:
        return []
    first, length = found
    count = repeats(names, first, length)
    edges = [starts[first + i * length] for i in range(count)]
    after = first + count * length
    edges.append(starts[after] if after < len(starts) else timeline.length + 1)
    return [(a, b) for a, b in pairwise(edges) if b > a]
