"""Detect the forward passes of the outermost module of a program that marks no step.

`torch.nn.Module.__call__` is replaced until the leader, the module that the program calls in each
round, is known; from then on only `__call__` of its class is replaced, so that other modules are as
fast as before. A global hook would do the same, but `torch.compile` warns of hooks, and each module
would take the slow path through them.

The leader is the first module with parameters that is called `ROUNDS` times from outside any other
module. Its calls are alike if the smallest tensor among their arguments has the same shape: the
tokens that `generate` decodes one by one are alike, and the prompt before them is not: its tokens
are the last side of that tensor, which is 1 for a decoded token.
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
USUAL = 0.5  # share of the leader's calls that must be alike, else all of them count
MOST_KINDS = 1000  # different shapes that are counted

Shape = tuple[int, ...]
Prompt = tuple[int, int]  # sequences, and the tokens of each


class Forwards:
    """A hook that calls *heard* before each forward pass of the leader, with whether its arguments
    have the usual shape, and the sequences and tokens of a prompt (None for other calls)."""

    def __init__(self, heard: Callable[[bool, Prompt | None], None]) -> None:
        self._heard = heard
        self._process, self._thread = os.getpid(), threading.get_ident()
        self._calls: Counter[int] = Counter()
        self._kinds: Counter[Shape] = Counter()
        self._leader: Callable[[], Any] = lambda: None
        self._restore = _replace(torch.nn.Module, self._listen)

    def remove(self) -> None:
        self._restore()

    def _here(self) -> bool:
        same = self._thread == threading.get_ident() and self._process == os.getpid()
        return same and not torch.jit.is_tracing()

    def _listen(self, module: Any, args: Sequence[Any], named: Mapping[str, Any]) -> None:
        """Report a call of *module* from outside any other module, if it is the leader."""
        leader = self._leader()
        if not self._here() or (leader is not None and module is not leader):
            return
        if leader is None and not self._leads(module):
            return
        kind = _kind(args, named)
        if len(self._kinds) < MOST_KINDS or kind in self._kinds:
            self._kinds[kind] += 1
        usual = self._usual()
        prompt = None
        if usual is not None and kind != usual and usual[-1:] == (1,) and kind[-1:] > (1,):
            prompt = _sequences(args, named, kind[-1]), kind[-1]
        self._heard(usual in (None, kind), prompt)

    def _leads(self, module: Any) -> bool:
        """Make *module* the leader if it was called often enough, and return whether it is."""
        if next(module.parameters(), None) is None and next(module.buffers(), None) is None:
            return False
        self._calls[id(module)] += 1
        if self._calls[id(module)] < ROUNDS:
            return False
        self._leader = weakref.ref(module)
        self._restore()
        self._restore = _replace(type(module), self._listen)
        return True

    def _usual(self) -> Shape | None:
        """Return the shape of most calls; None while no shape has enough of them."""
        shape, count = self._kinds.most_common(1)[0]
        return shape if count > 1 and count >= USUAL * self._kinds.total() else None


def _kind(args: Sequence[Any], named: Mapping[str, Any]) -> Shape:
    """Return the shape of the smallest tensor among the arguments of a call."""
    return min(_shapes(args, named), key=_size, default=())


def _sequences(args: Sequence[Any], named: Mapping[str, Any], tokens: int) -> int:
    """Return the sequences of a prompt of *tokens* tokens: the first side of its largest tensor
    whose last one they are."""
    shapes = [shape for shape in _shapes(args, named) if shape[-1] == tokens]
    return max((shape[0] for shape in shapes if len(shape) == 2), default=1)


def _shapes(args: Sequence[Any], named: Mapping[str, Any]) -> list[Shape]:
    """Return the shapes of the tensors among the arguments of a call; a number has none."""
    tensors = [v for v in (*args, *named.values()) if isinstance(v, torch.Tensor)]
    return [tuple(tensor.shape) for tensor in tensors if tensor.dim()]


def _size(shape: Shape) -> tuple[int, Shape]:
    size = 1
    for side in shape:
        size *= side
    return size, shape


def _replace(kind: Any, listen: Callable[[Any, Sequence[Any], Mapping[str, Any]], None]) -> Any:
    """Call *listen* before each outermost call of a module of the class *kind*.

    Returns a function that ends this. If `torch.compile` has compiled anything the replacement
    stays and only forwards calls: compiled code is guarded by it, and would be compiled again.
    """
    original = vars(kind).get("__call__")
    call = kind.__call__
    inside = False

    def forwarded(module: Any, *args: Any, **named: Any) -> Any:
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
        if vars(kind).get("__call__") is forwarded and not _has_compiled():
            if original is None:
                del kind.__call__
            else:
                kind.__call__ = original

    _skip(forwarded)
    kind.__call__ = forwarded
    return restore


def _has_compiled() -> bool:
    """Return whether Dynamo has examined any frame, and so may have compiled one."""
    dynamo = sys.modules.get("torch._dynamo.convert_frame")
    return dynamo is not None and bool(getattr(dynamo, "FRAME_COUNTER", 1))


def _skip(function: Any) -> None:
    """Keep Dynamo from compiling the frame of *function*, but not the functions that it calls."""
    with contextlib.suppress(ImportError, AttributeError, TypeError):
        from torch._C._dynamo import eval_frame as frames

        skipped = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
        frames.set_code_exec_strategy(function.__code__, skipped)
