"""Which pass is it, when a step of the program begins?

Of each region a few steps are let go by, and then the passes take successive windows of steps.
Explicit marks count before the optimizer's, which is one where the program has none.

Plain passes disturb nobody: each region's takes its steps as they come, but for those in which
another region's slower pass is under way. Of such passes there is one at a time.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuperf.model.program import ENDED, PART, WHOLE, PassName, PassResult
from gpuperf.profile.inside.courses import ANEW, FORWARD, Course, Limits
from gpuperf.profile.inside.passes import Trace, abandon, capturing, on_gpu, open_pass
from gpuperf.profile.inside.unmarked import AGAIN_S, Unmarked, sentence

STEP = "step"  # the region of `gpuperf.step()`
IMPLICIT = "optimizer step"
MOST_ANEW = 3  # times a step of a pass may be one in which the program compiles or forks
COUNTED_S = 0.1  # beside the steps, in which counters must have room
PATIENCE = 20  # steps of another region that waits for a pass of one that does not come again
LONGEST = 80  # characters of a region's name

CUT = "the program ended in it"
BEHIND = "CUPTI stays in a process that was traced, where each launch takes about 2 µs more"
AWAY = f"its region had no step in {PATIENCE} of another, which waited for it"

Say = Callable[[PassResult], None]


def _entry(entry: Callable[..., None]) -> Callable[..., None]:
    """What the program calls: a forked child is not heard, and whatever fails in here ends a pass
    and not the program."""

    @functools.wraps(entry)
    def guarded(self: Session, *arguments: Any) -> None:
        if os.getpid() != self.process:
            return
        try:
            entry(self, *arguments)
        except Exception as error:
            with contextlib.suppress(Exception):  # nobody is there to be told
                self.fail(error)

    return guarded


@dataclass
class Session:
    """The marks of a running program, and the passes that they drive."""

    limits: Limits
    passes: tuple[PassName, ...]
    folder: Path
    say: Say
    ready: Callable[[], None] = lambda: None  # before the first pass: the device is known then
    patience_s: float = AGAIN_S  # until what marks nothing is traced (again)
    courses: dict[str, Course] = field(default_factory=dict)
    process: int = field(default_factory=os.getpid)
    begun: bool = False
    _thread: int = 0
    _traced: bool = False
    _explicit: bool = False
    _nested: list[str] = field(default_factory=list)
    _stepped: bool = False
    _files: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self._unmarked = Unmarked(self._file, self._cut, lambda: self.watch(on_gpu()))

    @_entry
    def watch(self, cuda: bool = False) -> None:
        """Trace all that comes, until something is marked: a program may never mark anything. With
        *cuda* it is about to take its GPU."""
        if "trace" in self.passes and not self.courses:
            self._traced |= self._unmarked.watch(cuda)

    @_entry
    def watch_later(self) -> None:
        """The same, if nothing is marked until then."""
        self._unmarked.watch_in(self.patience_s)

    @_entry
    def give_way(self) -> None:
        """The program compiles, or forks. Torch may not be able to compile under its own profiler
        (2.11 takes the profiler's marks for operators of the graph), and a child would be profiled
        for good; what is traced then is of no step."""
        if not self._unmarked.here:
            return  # a trace must end on the thread that it began on
        self._unmarked.give_way()
        for course in self.courses.values():
            running = course.running
            if running is not None and running.name in ANEW and course.anew < MOST_ANEW:
                course.anew += 1
                course.left.insert(0, (running.name, course.wanted))
                course.running, course.within = None, False
                abandon(running)

    @_entry
    def resume(self) -> None:
        """It is done: what marks nothing is traced again, once it has run for a while."""
        if self._unmarked.here and not self.courses:
            self._unmarked.watch_in(self.patience_s)

    @_entry
    def step(self) -> None:
        """`gpuperf.step()`."""
        if self._ours():
            self._announce()
            self._stepped = True
            self._round(STEP)

    @_entry
    def optimized(self) -> None:
        """An optimizer took a step, which counts where nothing is marked."""
        if self._ours() and not self._explicit:
            self._unmarked.drop()
            self._forget(FORWARD)
            self._round(IMPLICIT)

    @_entry
    def forwarded(self, usual: bool = True) -> None:
        """The outermost module begins a forward pass, which is a step where neither marks nor
        optimizers are. A pass takes steps of the *usual* kind alone, each up to the next one of
        that kind."""
        if not self._ours() or self._explicit or IMPLICIT in self.courses:
            return
        self._unmarked.drop()
        course = self._course(FORWARD)
        if course.inside and usual:
            self._end(course)
        elif course.inside:
            self._drop(course)
        if usual:
            self._begin(course)

    @_entry
    def enter(self, name: object) -> None:
        """`with gpuperf.region(name)`: of regions in each other the outermost is profiled, and its
        trace tells of those inside."""
        if self._ours():
            self._nested.append(_told(name))
            self._announce()
            if len(self._nested) == 1 and not self._stepped:
                self._begin(self._course(self._nested[0]))
            for trace in self._tracing():
                trace.enter(self._nested[-1])

    @_entry
    def leave(self, name: object) -> None:
        """Its end."""
        if self._ours() and self._nested:
            for trace in self._tracing():
                trace.leave()
            course = self.courses.get(self._nested.pop())
            if not self._nested and course is not None and course.inside:
                self._end(course)

    @_entry
    def close(self) -> None:
        """The program ends: what a pass has by now is kept."""
        self._unmarked.cut(ended=True)
        if self._unmarked.found is not None:
            self._begin_telling()
            self.say(self._unmarked.found)
        for course in self.courses.values():
            long = course.running is not None and course.running.last
            self._cease(course, CUT if course.alone and course.taken else ENDED)
            for name, _ in course.left if long else ():  # --steps would have left steps for them
                if name != "plain":
                    self.say(PassResult(course.region, name, 0, reason=ENDED))

    def fail(self, error: Exception) -> None:
        """Something of ours went wrong: all passes under way are lost, and the program goes on."""
        self._unmarked.drop()
        for course in self.courses.values():
            self._lose(course, error)

    def _ours(self) -> bool:
        """Marks of one thread count: the one that made the first. Those in compiled code do not,
        also where an accounting pass has it run eagerly."""
        self._thread = self._thread or threading.get_ident()
        if self._thread != threading.get_ident():
            return False
        accounting = any(
            c.running is not None and c.running.name == "accounting" for c in self.courses.values()
        )
        return not (accounting and _in_compiled()) and not capturing()

    def _tracing(self) -> list[Trace]:
        """The trace of the step under way, if the innermost region is inside that."""
        if len(self._nested) < 2 and not self._stepped:
            return []
        running = (course.running for course in self.courses.values() if course.within)
        return [one for one in running if isinstance(one, Trace)]

    def _file(self) -> Path:
        return self.folder / f"{next(self._files)}.json"

    def _begin_telling(self) -> None:
        if not self.begun:
            self.begun = True
            self.ready()

    @_entry
    def _cut(self) -> None:
        self._unmarked.cut()

    def _announce(self) -> None:
        """Something is marked by the program itself."""
        self._unmarked.drop()
        if not self._explicit:
            self._explicit = True
            self._forget(IMPLICIT)
            self._forget(FORWARD)

    def _forget(self, region: str) -> None:
        """Steps of another kind count from now on; what *region* found is kept."""
        course = self.courses.pop(region, None)
        if course is not None and course.running is not None:
            abandon(course.running)

    def _course(self, region: str) -> Course:
        if region not in self.courses:
            names = tuple(name for name in self.passes if name != "light" or on_gpu())
            self.courses[region] = Course(region, self.limits, self.limits.plan(names))
        return self.courses[region]

    def _round(self, region: str) -> None:
        """One step ended where the next one begins."""
        course = self._course(region)
        if course.inside:
            self._end(course)
        self._begin(course)

    def _begin(self, course: Course) -> None:
        course.inside = True
        course.began_s = course.began_s or time.perf_counter()
        planned = len(course.left) + 1
        while course.running is None and course.left and course.warm:
            if len(course.left) == planned:
                break  # its time comes later
            planned = len(course.left)
            self._start(course)  # one that cannot be had costs no step
        if course.running is not None and not self._held_up(course):
            course.within = True
            course.pass_s = course.pass_s or time.perf_counter()
            try:
                course.running.begin()
            except BaseException as error:
                self._lose(course, error)

    def _end(self, course: Course) -> None:
        course.inside = False
        course.done += 1
        course.waited = 0
        if course.running is not None and course.within:
            course.within = False
            try:
                course.running.end()
            except BaseException as error:
                self._lose(course, error)
                return
            course.taken += 1
            if course.complete:
                self._finish(course)

    def _drop(self, course: Course) -> None:
        """The step under way is of no pass: it does not end with one of its kind."""
        course.inside = False
        if course.running is not None and course.within:
            course.within = False
            try:
                course.running.drop()
            except BaseException as error:
                self._lose(course, error)

    def _held_up(self, course: Course) -> bool:
        """Whether another region's pass would disturb this step."""
        return any(other.alone for other in self.courses.values() if other is not course)

    def _start(self, course: Course) -> None:
        for other in self.courses.values():
            if other.alone:  # this region's pass comes later
                other.waited += 1
                if other.waited < PATIENCE:
                    return
                self._cease(other, AWAY)
        self._begin_telling()
        name, course.wanted = course.left.pop(0)
        course.taken, course.waited, course.pass_s, course.look_s = 0, 0, 0.0, 0.0
        # Without a plain pass of its own process, by what the steps took that went by.
        each_s = course.step_s or (time.perf_counter() - course.began_s) / max(1, course.done)
        longest_s = COUNTED_S + 2 * course.wanted * each_s
        if name == "plain":
            for other in self.courses.values():
                if other.running is not None:
                    other.running.pause()
        try:
            course.running = open_pass(
                name, course.region, self._file(), longest_s, course.launched
            )
            course.behind = self._traced
            self._traced |= isinstance(course.running, Trace) and on_gpu()
            course.running.start()
        except BaseException as error:
            if course.running is None:
                self.say(PassResult(course.region, name, 0, reason=sentence(error)))
            self._lose(course, error)

    def _cease(self, course: Course, reason: str) -> None:
        """End the pass under way before it has all its steps; what it counted is of no step."""
        running = course.running
        if running is None:
            return
        if course.taken and running.name != "counters":
            self._finish(course)
            return
        course.running = None
        abandon(running)
        self.say(PassResult(course.region, running.name, 0, reason=reason))

    def _finish(self, course: Course) -> None:
        running = course.running
        if running is None:
            return
        try:
            found = running.finish()
            if found.name == "plain" and course.behind:
                found = replace(found, reason=BEHIND)
            self.say(found)
        except BaseException as error:
            self._lose(course, error)
            return
        course.running, course.ended_s = None, time.perf_counter()
        if isinstance(running, Trace):
            course.launched = running.kernels
        if found.name == "plain":
            course.step_s = found.wall_s / max(1, found.steps)

    def _lose(self, course: Course, error: BaseException) -> None:
        """The pass under way, if any, ends with what went wrong; an interrupt goes on from here."""
        running, course.running, course.within = course.running, None, False
        if running is not None:
            abandon(running)
            self.say(PassResult(course.region, running.name, 0, reason=sentence(error)))
        if not isinstance(error, Exception):
            raise error


def _in_compiled() -> bool:
    """Whether a call of a compiled function is under way."""
    frame = sys._getframe(1) if "torch._dynamo.eval_frame" in sys.modules else None
    while frame is not None and frame.f_code.co_name != "compile_wrapper":
        frame = frame.f_back
    return frame is not None


def _told(name: object) -> str:
    """The name of a region as it can be written into a trace, which quotes nothing."""
    try:
        text = str(name)[:LONGEST]
    except Exception:  # of a stranger's class
        text = type(name).__name__
    text = text.replace('"', "'").replace("\\", "/").replace(PART, "/")
    text = "".join(c if c.isprintable() else " " for c in text) or " "
    return f"{text} " if text == WHOLE else text
