"""Which pass is it, when a step of the program begins?

Of each region a few steps are let go by, and then the passes take successive windows of steps.
Explicit marks count before the optimizer's, which is one where the program has none.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gpuperf.measure.counters import NoCounters
from gpuperf.measure.passes import Pass, Trace, open_pass
from gpuperf.model.program import WHOLE, Passed, PassName

__all__ = ["IMPLICIT", "STEP", "Course", "Session"]

STEP = "step"  # the region of `gpuperf.step()`
IMPLICIT = "optimizer step"
WATCHED_S = 5.0  # of it
# Steps of the passes that slow the program down.
MOST_TRACED, MOST_ACCOUNTED = 5, 4
COUNTED_S = 0.1  # beside the steps, in which counters must have room

Say = Callable[[Passed], None]


@dataclass
class Course:
    """The passes of one region. `done` are steps that ended."""

    region: str
    warmup: int
    left: list[tuple[PassName, int]]
    done: int = 0
    inside: bool = False
    running: Pass | None = None
    wanted: int = 0
    taken: int = 0
    step_s: float = 0.0

    @property
    def finished(self) -> bool:
        """Whether there is no pass left."""
        return self.running is None and not self.left


@dataclass
class Session:
    """The marks of a running program, and the passes that they drive."""

    warmup: int
    steps: int
    passes: tuple[PassName, ...]
    folder: Path
    say: Say
    ready: Callable[[], None] = lambda: None  # before the first pass: the device is known then
    courses: dict[str, Course] = field(default_factory=dict)
    _thread: int = 0
    _explicit: bool = False
    begun: bool = False
    _nested: list[str] = field(default_factory=list)
    _whole: Trace | None = None
    _seen_whole: Passed | None = None
    _stepped: bool = False

    def __post_init__(self) -> None:
        self._pending = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._cut)

    def watch(self) -> None:
        """Trace all that comes, until something is marked: a program may never mark anything."""
        if "trace" in self.passes and not self.courses and self._whole is None:
            whole = Trace(WHOLE, self.folder / "whole.json")
            try:
                whole.start()
            except RuntimeError:
                whole.abandon()
                return
            whole.begin()
            self._whole = whole
            timer = threading.Timer(WATCHED_S, self._ask_to_cut)
            timer.daemon = True
            timer.start()

    def step(self) -> None:
        """`gpuperf.step()`."""
        if self._ours():
            self._announce()
            self._stepped = True
            self._round(STEP)

    def optimized(self) -> None:
        """An optimizer took a step, which counts where nothing is marked."""
        if self._ours() and not self._explicit:
            self._drop_whole()
            self._round(IMPLICIT)

    def enter(self, name: str) -> None:
        """`with gpuperf.region(name)`: of regions in each other the outermost is profiled."""
        if self._ours():
            self._announce()
            self._nested.append(name)
            if len(self._nested) == 1 and not self._stepped:
                self._begin(self._course(name))

    def leave(self, name: str) -> None:
        """Its end."""
        if self._ours() and self._nested:
            self._nested.pop()
            if not self._nested and name in self.courses and self.courses[name].inside:
                self._end(self.courses[name])

    def close(self) -> None:
        """The program ends: what a pass has by now is kept."""
        self._cut()
        if self._seen_whole is not None:
            if not self.begun:
                self.begun = True
                self.ready()
            self.say(self._seen_whole)
        for course in self.courses.values():
            if course.running is None:
                continue
            if course.taken:
                self._finish(course)
            else:
                course.running.abandon()
                course.running = None
                self.say(Passed(course.region, self._name(course), 0, reason="the program ended"))

    def _ours(self) -> bool:
        """Marks of one thread count: the one that made the first."""
        self._thread = self._thread or threading.get_ident()
        return self._thread == threading.get_ident()

    def _ask_to_cut(self) -> None:
        """Of the timer's thread: a trace must end on the thread that it began on."""
        ctypes.pythonapi.Py_AddPendingCall(self._pending, None)

    def _cut(self, _: object = None) -> int:
        """End the trace of a program that marked nothing until now: each operator in it costs 20 kB
        and 50 µs when it ends."""
        whole, self._whole = self._whole, None
        if whole is not None:
            whole.end()
            try:
                self._seen_whole = whole.finish()
            except RuntimeError as error:
                whole.abandon()
                self._seen_whole = Passed(WHOLE, "trace", 0, reason=_sentence(error))
        return 0

    def _drop_whole(self) -> None:
        self._seen_whole = None
        whole, self._whole = self._whole, None
        if whole is not None:
            whole.abandon()

    def _announce(self) -> None:
        """Something is marked by the program itself."""
        self._drop_whole()
        if not self._explicit:
            self._explicit = True
            implicit = self.courses.pop(IMPLICIT, None)
            if implicit is not None and implicit.running is not None:
                implicit.running.abandon()

    def _course(self, region: str) -> Course:
        if region not in self.courses:
            most = {"trace": MOST_TRACED, "accounting": MOST_ACCOUNTED}
            plan = [(name, min(self.steps, most.get(name, self.steps))) for name in self.passes]
            self.courses[region] = Course(region, self.warmup, plan)
        return self.courses[region]

    def _round(self, region: str) -> None:
        """One step ended where the next one begins."""
        course = self._course(region)
        if course.inside:
            self._end(course)
        self._begin(course)

    def _begin(self, course: Course) -> None:
        course.inside = True
        if course.running is None and course.left and course.done >= course.warmup:
            self._start(course)
        if course.running is not None:
            course.running.begin()

    def _end(self, course: Course) -> None:
        course.inside = False
        course.done += 1
        if course.running is not None:
            course.running.end()
            course.taken += 1
            if course.taken >= course.wanted:
                self._finish(course)

    def _start(self, course: Course) -> None:
        if any(other.running for other in self.courses.values()):
            return  # one pass at a time: this region's comes later
        if not self.begun:
            self.begun = True
            self.ready()
        name, course.wanted = course.left.pop(0)
        course.taken = 0
        path = self.folder / f"{len(self.courses)}-{course.done}.json"
        longest_s = COUNTED_S + 2 * course.wanted * course.step_s
        running = open_pass(name, course.region, path, longest_s)
        try:
            running.start()
        except (RuntimeError, NoCounters) as error:
            self._fail(course, running, name, error)
        else:
            course.running = running

    def _finish(self, course: Course) -> None:
        running, course.running = course.running, None
        if running is None:
            return
        try:
            found = running.finish()
        except (RuntimeError, NoCounters) as error:
            self._fail(course, running, self._name(course), error)
            return
        if found.name == "plain":
            course.step_s = found.wall_s / max(1, found.steps)
        self.say(found)

    def _fail(self, course: Course, running: Pass, name: PassName, error: Exception) -> None:
        running.abandon()
        self.say(Passed(course.region, name, 0, reason=_sentence(error)))

    def _name(self, course: Course) -> PassName:
        """Of the pass that is, or was, under way."""
        return self.passes[len(self.passes) - len(course.left) - 1]


def _sentence(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
