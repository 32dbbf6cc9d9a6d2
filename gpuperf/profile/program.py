"""Run a program under the profiler, and keep its passes if it dies, hangs or is interrupted."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gpuperf.errors import CannotMeasure
from gpuperf.model.program import PassResult
from gpuperf.model.protocol import PROTOCOL, Ended, FromWorker, Hello, Opened, PassDone, Profile
from gpuperf.profile.interrupts import Interrupts
from gpuperf.run.connection import LocalConnection
from gpuperf.run.launcher import start_program

START_S = 120.0  # seconds to start the process, from a slow disk
HEAR_S = 1.0  # seconds between two checks of the clock
FAREWELL_S = 20.0  # seconds to end a trace after Ctrl-C
LOST_S = 3.0  # the same if another rank failed: the program may wait for it in a collective
EXIT_S = 5.0  # seconds for threads and handlers at exit, before they are reported


class RankLost(Exception):
    """The program cannot go on, as another rank of it failed."""


@dataclass
class ProgramRun:
    """A program that ran: its passes, and how it ended.

    `opened` is its device (None if it died before it had one), `steps` the number of steps of each
    region. The exit code is below 0 for a signal, and None if gpuperf ended the program; `error`
    says why it did not end by itself. `ended` is true from its last line on: threads and handlers
    at exit may still run.
    """

    passed: list[PassResult] = field(default_factory=list)
    opened: Opened | None = None
    exit_code: int | None = None
    error: str = ""
    steps: dict[str, int] = field(default_factory=dict)
    interrupted: bool = False
    ended: bool = False


def run_program(
    request: Profile,
    timeout_s: float | None,
    heard: Callable[[ProgramRun], None],
    stdout: int | None = None,
    waiting: Callable[[], None] = lambda: None,
    lost: Callable[[], str] = str,
) -> ProgramRun:
    """Run the program of *request* to its end, for *timeout_s* seconds at the most.

    *heard* is called with the run after each pass, and *waiting* once if the process outlives the
    program's last line by `EXIT_S`. The program's output goes to the descriptor *stdout* (None:
    ours). A Ctrl-C is passed on to the program, and its passes until then are returned; the same
    holds as soon as *lost* returns why the program cannot go on.

    Raises: CannotMeasure if the process does not start.
    """
    cut = False
    connection = start_program(1 if stdout is None else stdout)
    ending, farewell_s = False, FAREWELL_S
    ran = ProgramRun()
    with contextlib.ExitStack() as stack:
        stack.callback(connection.kill)
        interrupts = stack.enter_context(Interrupts().installed())
        hello = connection.receive(START_S)
        if not isinstance(hello, Hello) or hello.protocol != PROTOCOL:
            hint = "check whether `python -c 'import torch'` ends without an error"
            raise CannotMeasure("the process of the program did not start", hint)
        connection.send(request)
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            try:
                reason = str if ending else lost
                if _listen(connection, interrupts, ran, heard, end, waiting, reason) or ending:
                    break
                ran.error = "its time was over"
            except RankLost as error:
                ran.error, farewell_s = str(error), LOST_S
            except KeyboardInterrupt:
                if ending:
                    break  # the second Ctrl-C ends at once
                ran.interrupted, ran.error = True, "it was interrupted"
            ending, cut = True, ran.ended
            connection.interrupt()  # the program then ends its trace
            end = time.monotonic() + farewell_s
    if cut and ran.exit_code == 0:
        ran.exit_code = None  # python returns 0 whatever became of the threads
    return ran


def _listen(
    connection: LocalConnection,
    interrupts: Interrupts,
    ran: ProgramRun,
    heard: Callable[[ProgramRun], None],
    end: float | None,
    waiting: Callable[[], None],
    lost: Callable[[], str],
) -> bool:
    """Receive messages into *ran* until the process ends, and return True.

    Returns False if *end* (monotonic seconds; None: never) comes first. As in plain python, threads
    and handlers at exit may take any time. Raises: RankLost as soon as *lost* returns a reason.
    """
    patience: float | None = None
    while True:
        if reason := lost():
            raise RankLost(reason)
        left = HEAR_S if end is None else min(HEAR_S, end - time.monotonic())
        connection.wait(max(0.0, left))
        with interrupts.held():  # else a message may be lost between the pipe and *ran*
            message = _receive(connection, ran, heard)
        if isinstance(message, Ended):
            patience = time.monotonic() + EXIT_S
        elif message is None and connection.death() is not None:
            ran.exit_code = connection.exit_code(0.0)
            if not ran.ended or (ran.exit_code or 0) < 0:
                ran.error = ran.error or f"it died by {connection.death()}"
            return True
        elif message is None and patience is not None and time.monotonic() >= patience:
            waiting()
            patience = None
        elif message is None and end is not None and time.monotonic() >= end:
            return False


def _receive(
    connection: LocalConnection, ran: ProgramRun, heard: Callable[[ProgramRun], None]
) -> FromWorker | None:
    """Receive a message that is there into *ran*, and return it."""
    try:
        message: FromWorker | None = connection.receive(0.0)
    except ValueError as error:
        ran.error = f"a message of its process cannot be read: {str(error)[:200]}"
        return None
    if isinstance(message, Opened):
        ran.opened = message
    elif isinstance(message, PassDone):
        ran.passed.append(message.result)
        heard(ran)
    elif isinstance(message, Ended):
        ran.steps, ran.ended = message.steps, True
        ran.error = ran.error or message.error
    return message
