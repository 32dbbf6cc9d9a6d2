"""When does the outermost module of a program that marks no step begin another forward pass?

`torch.nn.Module.__call__` is replaced for as long as it takes to find the module that leads the
program's rounds, and from then on that of its class alone, so that no other module pays for it. A
global hook would do the same, but `torch.compile` warns of those, and each module would take the
slow way through them.

The leader is the first module with parameters that is called `ROUNDS` times from outside of any
other. Its calls are alike where the smallest tensor among their arguments has one shape: so the
tokens that `generate` decodes one by one are alike, and the prompt before them is not.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

ROUNDS = 3  # calls of a module that make it the leader
USUAL = 0.5  # of the leader's calls must be alike, or all of them count
MOST_KINDS = 1000  # of calls that are told apart

Shape = tuple[int, ...]


class Forwards:
    """Calls *heard* when the leader is called, with whether this call is of the usual kind."""

    def __init__(self, heard: Callable[[bool], None]) -> None:
        self._heard = heard
        self._process, self._thread = os.getpid(), threading.get_ident()
        self._calls: Counter[int] = Counter()
        self._kinds: Counter[Shape] = Counter()
        self._leader: Callable[[], Any] = lambda: None
        self._restore = _replace(torch.nn.Module, self._listen)

    def remove(self) -> None:
        """Hear nothing any more."""
        self._restore()

    def _here(self) -> bool:
        own = self._thread == threading.get_ident() and self._process == os.getpid()
        return own and not torch.jit.is_tracing()

    def _listen(self, module: Any, args: Sequence[Any], named: Mapping[str, Any]) -> None:
        """A module is called from outside of any other."""
        leader = self._leader()
        if not self._here() or (leader is not None and module is not leader):
            return
        if leader is None and not self._leads(module):
            return
        kind = _kind(args, named)
        if len(self._kinds) < MOST_KINDS or kind in self._kinds:
            self._kinds[kind] += 1
        self._heard(self._usual(kind))

    def _leads(self, module: Any) -> bool:
        """Whether *module* is the leader from now on."""
        if next(module.parameters(), None) is None and next(module.buffers(), None) is None:
            return False
        self._calls[id(module)] += 1
        if self._calls[id(module)] < ROUNDS:
            return False
        self._leader = weakref.ref(module)
        self._restore()
        self._restore = _replace(type(module), self._listen)
        return True

    def _usual(self, kind: Shape) -> bool:
        most = self._kinds.most_common(1)[0]
        usual = most[1] > 1 and most[1] >= USUAL * self._kinds.total()
        return not usual or kind == most[0]


def _kind(args: Sequence[Any], named: Mapping[str, Any]) -> Shape:
    """The shape of the smallest tensor in a call."""
    tensors = [v for v in (*args, *named.values()) if isinstance(v, torch.Tensor)]
    return min((tuple(t.shape) for t in tensors), key=_size, default=())


def _size(shape: Shape) -> tuple[int, Shape]:
    size = 1
    for side in shape:
        size *= side
    return size, shape


def _replace(kind: Any, listen: Callable[[Any, Sequence[Any], Mapping[str, Any]], None]) -> Any:
    """Have calls of modules of the class *kind* pass by *listen*, but for those within another;
    returns what ends that. Where `torch.compile` has compiled anything the replacement stays, and
    only passes calls on: compiled code is guarded by it, and would be compiled again."""
    own = vars(kind).get("__call__")
    call = kind.__call__
    inside = False

    def passed_on(module: Any, *args: Any, **named: Any) -> Any:
        nonlocal inside
        if inside:
            return call(module, *args, **named)
        inside = True
        try:
            listen(module, args, named)
            return call(module, *args, **named)
        finally:
            inside = ended

    ended = False

    def restore() -> None:
        nonlocal inside, ended
        inside = ended = True
        if vars(kind).get("__call__") is passed_on and not _has_compiled():
            if own is None:
                del kind.__call__
            else:
                kind.__call__ = own

    _skip(passed_on)
    kind.__call__ = passed_on
    return restore


def _has_compiled() -> bool:
    """Whether Dynamo looked at any frame."""
    dynamo = sys.modules.get("torch._dynamo.convert_frame")
    return dynamo is not None and bool(getattr(dynamo, "FRAME_COUNTER", 1))


def _skip(function: Any) -> None:
    """Keep Dynamo from compiling the frame of *function*; what it calls is compiled as ever."""
    with contextlib.suppress(ImportError, AttributeError, TypeError):
        from torch._C._dynamo import eval_frame as frames

        skipped = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
        frames.set_code_exec_strategy(function.__code__, skipped)
