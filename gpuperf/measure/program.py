"""The process in which a program runs under the profiler: `python -m gpuperf.measure.program`.

The program has its own arguments, stdin, stdout and `__main__`, as if python had been called with
it. What the passes find goes to the supervisor as it comes, so that a program that dies loses only
the pass it is in.
"""

from __future__ import annotations

import argparse
import os
import runpy
import signal
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from gpuperf import marks
from gpuperf.measure.device import open_device
from gpuperf.measure.session import Session
from gpuperf.measure.telemetry import open_meter
from gpuperf.measure.worker import die_with_parent, fingerprint_of
from gpuperf.model.codec import encode
from gpuperf.model.program import Passed
from gpuperf.model.protocol import (
    PROTOCOL,
    Ended,
    FromWorker,
    Hello,
    Opened,
    Passing,
    Profile,
    Progress,
    ToWorker,
)

__all__ = ["main"]


class Stage:
    """Where the program runs, and who hears of it."""

    def __init__(self, out: BinaryIO, request: Profile) -> None:
        self._out, self._request = out, request
        self._process = os.getpid()
        self.session = Session(
            request.warmup, request.steps, request.passes, Path(request.folder), self._passed,
            self._ready,
        )  # fmt: skip

    def say(self, message: FromWorker) -> None:
        """One line to the supervisor, at once; a forked child says nothing."""
        if os.getpid() == self._process:
            self._out.write(encode(message) + b"\n")
            self._out.flush()

    def run(self) -> int:
        """The program's exit code."""
        marks.listen(self.session)
        hook = register_optimizer_step_post_hook(self._optimized)
        if not torch.cuda.is_available():
            self.session.watch()
        else:  # not before the program takes its device, which it may choose in its environment
            torch.cuda._lazy_call(partial(self.session.watch, True))
        code, error = self._run()
        marks.listen(None)
        hook.remove()
        if os.getpid() != self._process:  # a child that was forked, and came back here
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)  # an orderly exit would wait for the profiler's threads: it has none
        self.session.close()
        if not self.session.begun:
            self._ready()
        counts = {name: course.done for name, course in self.session.courses.items()}
        self.say(Ended(code, error, counts))
        return code

    def _run(self) -> tuple[int, str]:
        asked = self._request
        sys.argv = list(asked.argv)
        try:
            if asked.module:
                sys.path.insert(0, str(Path.cwd()))
                runpy.run_module(asked.argv[0], run_name="__main__", alter_sys=True)
            else:
                sys.path.insert(0, str(Path(asked.argv[0]).resolve().parent))
                runpy.run_path(asked.argv[0], run_name="__main__")
        except SystemExit as error:
            if error.code is None or isinstance(error.code, int):
                return error.code or 0, ""
            sys.stderr.write(f"{error.code}\n")
            return 1, str(error.code)[:300]
        except KeyboardInterrupt:
            return 130, "interrupted"
        except BaseException as error:
            _print(error)
            return 1, f"{type(error).__name__}: {error}"[:300]
        return 0, ""

    def _optimized(self, *_: Any) -> None:
        self.session.optimized()

    def _passed(self, found: Passed) -> None:
        self.say(Passing(found))

    def _ready(self) -> None:
        """Tell the device that the program has taken by now."""
        cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
        device = open_device(f"cuda:{torch.cuda.current_device()}" if cuda else "cpu")
        facts, fingerprint = fingerprint_of(device, open_meter(device.torch))
        self.say(Opened(facts, fingerprint))
        self.say(Progress("profile"))


def _print(error: BaseException) -> None:
    """A traceback as python prints it, from the program's own first frame on."""
    own = str(Path(__file__))
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename in (own, runpy.__file__):
        frames = frames.tb_next
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith("<frozen runpy"):
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames or error.__traceback__)


def main(arguments: list[str] | None = None) -> int:
    """Run one program."""
    parser = argparse.ArgumentParser()
    for name in ("--requests", "--replies", "--parent"):
        parser.add_argument(name, type=int, required=True)
    options: Any = parser.parse_args(arguments)
    die_with_parent(options.parent)
    # Ctrl-C is passed on by the supervisor, also to what a shell started without hearing it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for descriptor in (options.requests, options.replies):
        os.set_inheritable(descriptor, False)
    out = os.fdopen(options.replies, "wb")
    out.write(encode(Hello(PROTOCOL, os.getpid(), str(torch.__version__))) + b"\n")
    out.flush()
    with os.fdopen(options.requests, "rb") as requests:
        request = msgspec.json.decode(requests.readline(), type=ToWorker)
    assert isinstance(request, Profile)
    return Stage(out, request).run()


if __name__ == "__main__":
    sys.exit(main())
