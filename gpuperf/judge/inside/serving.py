"""Serve the clerk's requests in a worker, over the pipe that `measure.pipe` describes."""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable
from typing import Any

import torch

from gpuperf.errors import GpuperfError, UsageError, WorkloadError
from gpuperf.judge.protocol import Ready, Refused
from gpuperf.measure.deviation import WrongResult
from gpuperf.measure.error_origin import first_line
from gpuperf.measure.pipe import Pipe, die_with_parent


def serve(answer: Callable[[Any], Any], messages: Any, arguments: list[str] | None) -> int:
    """Reply to each request by *answer*; an error of a task or a submission becomes `Refused`."""
    parser = argparse.ArgumentParser()
    for name in ("--requests", "--replies", "--parent"):
        parser.add_argument(name, type=int, required=True)
    options: Any = parser.parse_args(arguments)
    die_with_parent(options.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the clerk's to handle
    pipe = Pipe(options.requests, options.replies, messages)
    send(pipe, Ready())
    for request in pipe.requests():
        send(pipe, _reply(answer, request))
    return 0


def send(pipe: Pipe, message: Any) -> None:
    """Send *message*; a forked child of the worker exits instead."""
    if not pipe.send(message):
        os._exit(0)


def _reply(answer: Callable[[Any], Any], request: Any) -> Any:
    try:
        return answer(request)
    except (torch.OutOfMemoryError, MemoryError) as error:
        return Refused("oom", first_line(error) or "no memory was left")
    except WrongResult as error:
        return Refused("task", f"the result of the reference {error}", error.hint)
    except UsageError as error:
        return Refused("usage", str(error), error.hint)
    except WorkloadError as error:
        return Refused("load", str(error), error.hint)
    except GpuperfError as error:
        return Refused("task", str(error), error.hint)
    except Exception as error:
        return Refused("error", f"{type(error).__name__}: {first_line(error)}")
