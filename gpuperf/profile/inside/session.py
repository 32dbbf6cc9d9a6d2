"""Run the passes of each region as the steps of the profiled program begin and end.

After the warm-up of a region its passes take successive groups of steps. Steps are those that the
program marks; without marks, the steps of an optimizer; without an optimizer, forward passes.

Plain passes of several regions may run at once. Of the other passes, which slow the program down,
only one runs at a time, and plain passes of other regions skip the steps in which it does.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuperf.model.program import ENDED, FORWARD, PROMPT, PassName, PassResult
from gpuperf.profile.inside.agreement import after_meeting
from gpuperf.profile.inside.courses import ANEW, Course, Limits, region_name
from gpuperf.profile.inside.passes import Trace, abandon, capturing, in_compiled, on_gpu, open_pass
from gpuperf.profile.inside.unmarked import AGAIN_S, Unmarked, sentence

STEP = "step"  # the region of `gpuperf.step()`
IMPLICIT = "optimizer step"
MOST_ANEW = 3  # times that passes of a region begin again after the program compiles or forks
COUNTED_S = 0.1  # seconds beside the steps for which counters need room
PATIENCE = 20  # steps for which a region waits for a pass of another region
MOST_LENGTHS, MOST_PROMPTS = 8, 50  # lengths of prompts, and prompts of each that are timed

CUT = "the program ended during this pass"
BEHIND = "CUPTI stays in a process that was traced, where each launch takes about 2 µs more"
AWAY = f"its region had no step during {PATIENCE} steps of another, which waited for this pass"

Say = Callable[[PassResult], None]


def _entry(entry: Callable[..., None]) -> Callable[..., None]:
    """Guard a method of `Session` that the program calls: it does nothing in a forked child, and an
    exception in it ends the running passes, not the program."""

    @functools.wraps(entry)
    def guarded(self: Session, *arguments: Any) -> None:
        if os.getpid() != self.process:
            return
        try:
            entry(self, *arguments)
        except Exception as error:
            with contextlib.suppress(Exception):  # the supervisor may be gone
                self.fail(error)

    return guarded


@dataclass
class Session:
    """The receiver of a running program's marks, which begins and ends passes at them.

    *say* is called with the result of each pass.
    """

    limits: Limits
    passes: tuple[PassName, ...]
    folder: Path
    say: Say
    ready: Callable[[], None] = lambda: None  # called before the first pass
    patience_s: float = AGAIN_S  # seconds until a program that marks nothing is traced (again)
    courses: dict[str, Course] = field(default_factory=dict)
    process: int = field(default_factory=os.getpid)
    begun: bool = False
    _thread: int = 0
    _traced: bool = False
    _explicit: bool = False
    _nested: list[str] = field(default_factory=list)
    _stepped: bool = False
    _prompted: bool = False
    _files: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self._unmarked = Unmarked(self._file, self._cut, lambda: self.watch(on_gpu()))

    @_entry
    def watch(self, cuda: bool = False) -> None:
        """Trace a program that marks nothing, with *cuda* also the GPU that it is about to take."""
        if "trace" in self.passes and not self.courses:
            self._traced |= self._unmarked.watch(cuda)

    @_entry
    def watch_later(self) -> None:
        """Trace the program in `patience_s` seconds, if it has marked nothing until then."""
        self._unmarked.watch_in(self.patience_s)

    @_entry
    def give_way(self) -> None:
        """Abandon all traces, since the program compiles or forks.

        Torch may be unable to compile under its own profiler (2.11 takes the profiler's marks for
        operators of the graph), and a forked child would be profiled for good.
        """
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
        """Trace a program that marks nothing again, `patience_s` after it compiled or forked."""
        if self._unmarked.here and not self.courses:
            self._unmarked.watch_in(self.patience_s)

    @_entry
    def step(self) -> None:
        """Handle a call of `gpuperf.step()`: it ends a step and begins the next one."""
        if self._ours():
            self._prefer_marks()
            self._stepped = True
            self._round(STEP)

    @_entry
    def optimized(self) -> None:
        """Handle a step of an optimizer, which counts if the program marks nothing."""
        if self._ours() and not self._explicit:
            self._unmarked.drop()
            self._forget(FORWARD)
            self._round(IMPLICIT)

    @_entry
    def forwarded(self, usual: bool = True, prompt: tuple[int, int] | None = None) -> None:
        """Handle the beginning of a forward pass of the outermost module.

        Forward passes count as steps if the program has neither marks nor an optimizer. A pass
        takes only steps of the *usual* kind, each up to the next one of that kind. Passes over a
        *prompt* (sequences, tokens) are only timed, each up to the step that follows; neither a
        chunk of a prompt nor one of several prompts in a row is.
        """
        if not self._ours() or self._explicit or IMPLICIT in self.courses:
            return
        self._unmarked.drop()
        alone, self._prompted = not self._prompted, prompt is not None
        for course in self._prompts():
            if course.inside:
                (self._end if usual else self._drop)(course)
        course = self._course(FORWARD)
        if course.inside and usual:
            self._end(course)
        elif course.inside:
            self._drop(course)
        if usual:
            self._begin(course)
        elif prompt and alone and (timed := self._prompt(*prompt)) is not None:
            self._begin(timed)

    @_entry
    def enter(self, name: object) -> None:
        """Handle the beginning of `with gpuperf.region(name)`.

        The outermost of nested regions is profiled; its trace also marks those inside.
        """
        if self._ours():
            self._nested.append(region_name(name))
            self._prefer_marks()
            if len(self._nested) == 1 and not self._stepped:
                self._begin(self._course(self._nested[0]))
            for trace in self._tracing():
                trace.enter(self._nested[-1])

    @_entry
    def leave(self, name: object) -> None:
        """Handle the end of a region."""
        if self._ours() and self._nested:
            for trace in self._tracing():
                trace.leave()
            course = self.courses.get(self._nested.pop())
            if not self._nested and course is not None and course.inside:
                self._end(course)

    @_entry
    def close(self) -> None:
        """End all passes with the program, and keep the steps that they have."""
        self._unmarked.cut(ended=True)
        if self._unmarked.result is not None:
            self._announce_device()
            self.say(self._unmarked.result)
        for course in self.courses.values():
            long = course.running is not None and course.running.last
            self._cease(course, CUT if course.alone and course.taken else ENDED)
            for name, _ in course.left if long else ():  # --steps would have left steps for them
                if name != "plain":
                    self.say(PassResult(course.region, name, 0, reason=ENDED))

    def fail(self, error: Exception) -> None:
        """End all running passes with *error*, which is one of gpuperf; the program goes on."""
        self._unmarked.drop()
        for course in self.courses.values():
            self._lose(course, error)

    def _ours(self) -> bool:
        """Return whether a mark counts: only those of the thread that made the first one do.

        Marks in compiled code never count, as it has none when it runs compiled: an accounting pass
        runs it eagerly. Marks during the capture of a CUDA graph do not count either.
        """
        self._thread = self._thread or threading.get_ident()
        if self._thread != threading.get_ident():
            return False
        accounting = any(
            c.running is not None and c.running.name == "accounting" for c in self.courses.values()
        )
        return not (accounting and in_compiled()) and not capturing()

    def _tracing(self) -> list[Trace]:
        """Return the trace of the current step, if the innermost region is inside that step."""
        if len(self._nested) < 2 and not self._stepped:
            return []
        running = (course.running for course in self.courses.values() if course.within)
        return [each for each in running if isinstance(each, Trace)]

    def _file(self) -> Path:
        return self.folder / f"{next(self._files)}.json"

    def _announce_device(self) -> None:
        if not self.begun:
            self.begun = True
            self.ready()

    @_entry
    def _cut(self) -> None:
        self._unmarked.cut()

    def _prefer_marks(self) -> None:
        """Prefer the marks of the program to steps of optimizers and to forward passes."""
        self._unmarked.drop()
        if not self._explicit:
            self._explicit = True
            self._forget(IMPLICIT)
            self._forget(FORWARD)

    def _forget(self, region: str) -> None:
        """Forget the passes of *region*, since steps of another kind count from now on."""
        also = [course.region for course in self._prompts()] if region == FORWARD else []
        for name in (region, *also):
            course = self.courses.pop(name, None)
            if course is not None and course.running is not None:
                abandon(course.running)

    def _prompts(self) -> list[Course]:
        return [course for name, course in self.courses.items() if name.startswith(PROMPT)]

    def _prompt(self, sequences: int, tokens: int) -> Course | None:
        """Return the course of prompts of this size; None where there are enough other ones."""
        region = f"{PROMPT}{sequences} × {tokens} tokens"
        if region not in self.courses:
            if len(self._prompts()) == MOST_LENGTHS:
                return None
            limits = Limits(0, MOST_PROMPTS)  # no budget: the first one may compile for minutes
            self.courses[region] = Course(region, limits, limits.plan(("plain",)))
        return self.courses[region]

    def _course(self, region: str) -> Course:
        if region not in self.courses:
            names = tuple(name for name in self.passes if name != "light" or on_gpu())
            self.courses[region] = Course(region, self.limits, self.limits.plan(names))
        return self.courses[region]

    def _round(self, region: str) -> None:
        """End a step and begin the next one."""
        course = self._course(region)
        if course.inside:
            self._end(course)
        self._begin(course)

    def _begin(self, course: Course) -> None:
        course.inside = True
        course.began_s = course.began_s or time.perf_counter()
        planned = len(course.left) + 1
        while course.running is None and course.left and course.is_warm():
            if len(course.left) == planned:
                break  # another region's pass comes first
            planned = len(course.left)
            self._start(course)  # a pass that cannot start costs no step
        if course.running is not None and not self._held_up(course):
            course.take()
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
        """Drop the current step from the running pass: a forward pass of another shape ended it."""
        course.inside = False
        if course.running is not None and course.within:
            course.within = False
            try:
                course.running.drop()
            except BaseException as error:
                self._lose(course, error)

    def _held_up(self, course: Course) -> bool:
        """Return whether a pass of another region would disturb the step that begins."""
        return any(other.alone for other in self.courses.values() if other is not course)

    def _start(self, course: Course) -> None:
        for other in self.courses.values():
            if other.alone:  # this region's pass comes later
                other.waited += 1
                if other.waited < PATIENCE:
                    return
                self._cease(other, AWAY)
        self._announce_device()
        name, course.wanted = course.left.pop(0)
        course.taken, course.waited, course.pass_s, course.look_s = 0, 0, 0.0, 0.0
        # Without a plain pass in this process, the warm-up says how long a step takes.
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
        """End the running pass before it has all its steps, with the steps it has taken.

        Without a step, or for counters of DRAM bytes, it has no result but *reason*.
        """
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
            result = replace(running.finish(), first=course.first)
            result = after_meeting(result) if course.limits.agreement else result
            if result.name == "plain" and course.behind:
                result = replace(result, reason=BEHIND)
            self.say(result)
        except BaseException as error:
            self._lose(course, error)
            return
        course.running, course.ended_s = None, time.perf_counter()
        if isinstance(running, Trace):
            course.launched = running.kernels
        if result.name == "plain":
            course.step_s = result.wall_s / max(1, result.steps)

    def _lose(self, course: Course, error: BaseException) -> None:
        """End the running pass without a result but *error*; an interrupt is raised again."""
        running, course.running, course.within = course.running, None, False
        if running is not None:
            abandon(running)
            self.say(PassResult(course.region, running.name, 0, reason=sentence(error)))
        if not isinstance(error, Exception):
            raise error
