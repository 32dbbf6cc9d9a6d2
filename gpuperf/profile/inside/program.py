"""Run a program under the profiler: `python -m gpuperf.profile.inside.program`.

The program has its own arguments, stdin, stdout and `__main__`, as if python had been called with
it, and torch is imported when the program imports it. Each pass is sent to the supervisor as soon
as it ends, so that a program that dies loses only its last pass.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import os
import signal
import sys
import threading
import traceback
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from gpuperf import marks
from gpuperf.measure.pipe import Pipe, die_with_parent
from gpuperf.model.program import PassResult
from gpuperf.model.protocol import (
    PROTOCOL,
    Ended,
    FromWorker,
    Hello,
    Opened,
    PassDone,
    Profile,
    Progress,
)
from gpuperf.model.text import clean
from gpuperf.profile.inside import script
from gpuperf.profile.inside.import_hook import AfterImport
from gpuperf.profile.inside.script import load, marks_steps

if TYPE_CHECKING:
    from gpuperf.profile.inside.session import Session


# A program that names a mark or an optimizer is traced as a whole only if it has marked no step
# this long after its first use of the GPU.
UNMARKED_S = 20.0
OWN = (__file__, script.__file__, "<frozen importlib")  # files that run the program
PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"


class Stage:
    """The process of the program, and its connection to the supervisor."""

    def __init__(self, pipe: Pipe, request: Profile) -> None:
        self._pipe, self._request = pipe, request
        self._process = os.getpid()
        self._session: Session | None = None
        self._opened = False
        self._failed = ""
        self._dynamo: AfterImport | None = None
        self._marks_steps = False

    def say(self, message: FromWorker) -> None:
        """Send *message* to the supervisor at once; a forked child sends nothing."""
        self._pipe.send(message)

    def run(self) -> int:
        """Run the program and return its exit code."""
        hook = AfterImport("torch", self._listen)
        code, error = self._run()
        hook.remove()
        marks.listen(None)
        if os.getpid() != self._process:
            _end_child(code)
        try:
            if code == 0:
                self._open()
            if self._session is not None:
                self._session.close()
                if not self._opened:
                    self._ready()
        except KeyboardInterrupt:
            code, error = 130, error or "interrupted"
        except Exception as failure:
            self._failed = self._failed or _message(failure)
        counts = {}
        if self._session is not None:
            counts = {name: course.done for name, course in self._session.courses.items()}
        self.say(Ended(code, error or self._failed, counts))
        return code

    def _listen(self) -> None:
        """Start the session, since the program has imported torch."""
        if os.getpid() == self._process:
            try:
                self._open()
            except Exception as error:  # ours, and not the program's
                self._failed = _message(error)

    def _open(self) -> None:
        """Start a session that drives passes by the program's marks, without opening a GPU: the
        program may choose its GPU later, or take it in a child that it forks."""
        if self._session is not None:
            return
        import torch
        from torch.optim.optimizer import register_optimizer_step_post_hook

        from gpuperf.profile.inside.agreement import agreement_of
        from gpuperf.profile.inside.courses import Limits
        from gpuperf.profile.inside.forwards import Forwards
        from gpuperf.profile.inside.loading import loading
        from gpuperf.profile.inside.session import Session

        request = self._request
        agreement = agreement_of(request)
        limits = Limits(request.warmup, request.steps, request.budget_s, request.more, agreement)
        session = self._session = Session(
            limits, request.passes, Path(request.folder), self._passed, self._ready
        )
        gpus = torch.cuda.device_count()
        if gpus and self._marks_steps:
            session.patience_s = UNMARKED_S
        compiling = torch.compiler.is_compiling
        marks.listen(session, compiling)

        def optimized(*_: Any) -> None:
            if not compiling():
                forwards.remove()
                session.optimized()

        def forwarded(usual: bool, prompt: tuple[int, int] | None) -> None:
            if not compiling():
                session.forwarded(usual, prompt)

        forwards = Forwards(forwarded)
        loading.install()
        register_optimizer_step_post_hook(optimized)
        self._hear_compiling(session)
        os.register_at_fork(before=session.give_way, after_in_parent=session.resume)
        if not gpus:
            session.watch()
        elif self._marks_steps:
            # CUPTI stays in a process after a trace: on an H200 a launch then takes 9.7 µs, and 7.4
            # before. TEARDOWN_CUPTI=1 removes it, but then no counters open.
            torch.cuda._lazy_call(session.watch_later)
        else:
            torch.cuda._lazy_call(partial(session.watch, True))

    def _hear_compiling(self, session: Session) -> None:
        """Make *session* abandon its traces whenever Dynamo compiles."""

        def register() -> None:
            with contextlib.suppress(Exception):  # another version's has another name
                from torch._dynamo.callback import callback_handler

                callback_handler.register_start_callback(lambda *_: session.give_way())
                callback_handler.register_end_callback(lambda *_: session.resume())

        self._dynamo = AfterImport("torch._dynamo.callback", register)

    def _run(self) -> tuple[int, str]:
        try:
            code, main = load(self._request.argv, self._request.module)
            self._marks_steps = marks_steps(code)
            exec(code, main.__dict__)
        except SystemExit as error:
            if error.code is None or isinstance(error.code, int):
                return error.code or 0, ""
            sys.stderr.write(f"{error.code}\n")
            return 1, _message(error, "")
        except KeyboardInterrupt:
            return 130, "interrupted"
        except BaseException as error:
            return _uncaught(error), _message(error)
        return 0, ""

    def _passed(self, result: PassResult) -> None:
        self.say(PassDone(replace(result, backend=_backend())))

    def _ready(self) -> None:
        """Report the device that the program has taken so far."""
        import torch

        from gpuperf.measure.device import open_device
        from gpuperf.measure.fingerprint import fingerprint_of
        from gpuperf.measure.telemetry import open_meter

        cuda = torch.cuda.is_initialized()
        device = open_device(f"cuda:{torch.cuda.current_device()}" if cuda else "cpu")
        facts, fingerprint = fingerprint_of(device, open_meter(device.torch))
        self.say(Opened(facts, fingerprint))
        self._opened = True
        self.say(Progress("profile"))


def _backend() -> str:
    """Return the backend of the program's default process group; empty without one."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return ""
    return str(distributed.get_backend())


def _message(error: BaseException, kind: str | None = None) -> str:
    """Return `Class: message` of *error*, with *kind* in place of the class if it is given."""
    name = type(error).__name__ if kind is None else kind
    try:
        text = f"{name}: {error}" if name else str(error)
    except Exception:  # its `__str__` fails
        text = name
    return text[:300].encode(errors="replace").decode()


def _uncaught(error: BaseException) -> int:
    """Report an exception as python does, without frames of gpuperf, and return the exit code."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(OWN):
        frames = frames.tb_next
    error.__traceback__ = frames
    try:
        if sys.excepthook is sys.__excepthook__:
            sys.stderr.write(_traceback(error))
        else:
            sys.excepthook(type(error), error, frames)
    except SystemExit as other:
        return other.code if isinstance(other.code, int) else 1
    except BaseException as other:
        sys.stderr.write(f"Error in sys.excepthook:\n{_traceback(other)}")
        sys.stderr.write(f"\nOriginal exception was:\n{_traceback(error)}")
    return 1


def _traceback(error: BaseException) -> str:
    """Format *error* as python does, without frames of gpuperf and control characters."""
    report = traceback.TracebackException.from_exception(error)
    pending = [report]
    while pending:
        part = pending.pop()
        theirs = [frame for frame in part.stack if not frame.filename.startswith(PACKAGE)]
        part.stack = traceback.StackSummary.from_list(theirs)
        pending += [cause for cause in (part.__cause__, part.__context__) if cause is not None]
    lines = "".join(report.format()).splitlines()
    return "".join(f"{_indent(line)}{clean(line)}\n" for line in lines)


def _indent(line: str) -> str:
    return "" if line.isprintable() else " " * (len(line) - len(line.lstrip(" ")))


def _end_child(code: int) -> NoReturn:
    """End the process, a forked child that has run the program's last line too.

    `sys.exit` would wait for the threads of the profiler, which the child does not have.
    """
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _torch() -> str:
    """Return the version of torch without importing it."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""


def main(arguments: list[str] | None = None) -> int:
    """Run the program that the supervisor requests."""
    parser = argparse.ArgumentParser()
    for name in ("--requests", "--replies", "--parent"):
        parser.add_argument(name, type=int, required=True)
    options: Any = parser.parse_args(arguments)
    die_with_parent(options.parent)
    # The supervisor passes Ctrl-C on. A shell may have started gpuperf with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    pipe = Pipe(options.requests, options.replies)
    pipe.send(Hello(PROTOCOL, os.getpid(), _torch()))
    request = next(pipe.requests())
    assert isinstance(request, Profile)
    return Stage(pipe, request).run()


if __name__ == "__main__":
    sys.exit(main())
