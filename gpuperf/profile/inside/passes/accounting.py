"""Record the operators that the program calls, with their tensors."""

from __future__ import annotations

import contextlib
import sys

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode, _pop_mode, _push_mode

from gpuperf.model.program import PassName, PassResult
from gpuperf.profile.inside.dispatch import MOST_S, CallRecorder, FlopCounter
from gpuperf.profile.inside.passes.base import Base

MODE = "the program has a dispatch mode of its own, with which gpuperf's would interfere"


class Accounting(Base):
    """A record of every operator of some steps, and torch's own count of the FLOPs of each step."""

    name: PassName = "accounting"

    def __init__(self, region: str) -> None:
        super().__init__(region)
        self._watch = CallRecorder()
        self._flops: list[int] = []
        self._counter: FlopCounter | None = None  # of the step under way
        self._ended = self._missed = 0  # recorded and missed calls at the end of the last step
        self._full = False
        self._within = contextlib.ExitStack()

    def begin(self) -> None:
        if _get_current_dispatch_mode() is not None:
            raise RuntimeError(MODE)
        self._ended, self._missed = len(self._watch.calls), self._watch.missed
        if not self._full:
            self._compile_nothing()
            self._counter = self._within.enter_context(FlopCounter())
            self._watch.forget()
            self._within.enter_context(self._watch)

    def end(self) -> None:
        counter, self._counter = self._counter, None
        self._leave()
        if counter is None:
            return
        if self._watch.full and self.steps:  # only a part of this step was recorded
            self._full = self.done = True
            self._drop()
            return
        super().end()
        self._flops.append(counter.count)
        self._full = self.done = self._watch.full

    def drop(self) -> None:
        self._counter = None
        self._leave()
        self._drop()

    def _compile_nothing(self) -> None:
        """Run compiled code as the operators from which it was compiled.

        A dispatch mode does not see Triton kernels, and code that is compiled under one is marked
        as never to be compiled.
        """
        dynamo = sys.modules.get("torch._dynamo.eval_frame")
        if dynamo is not None and dynamo._stance.stance == "default":
            self._within.enter_context(torch.compiler.set_stance("force_eager"))

    def _leave(self) -> None:
        """Remove gpuperf's modes from below the modes that the program has entered since."""
        theirs = []
        while self._watch.active and _get_current_dispatch_mode() is not self._watch:
            theirs.append(_pop_mode())
        self._within.close()
        for mode in reversed(theirs):
            _push_mode(mode)

    def _drop(self) -> None:
        """Discard the calls of a step that does not count."""
        del self._watch.calls[self._ended :]
        self._watch.missed = self._missed

    def finish(self) -> PassResult:
        if self._counter is not None:
            self._drop()
        self.abandon()
        return PassResult(
            self.region,
            "accounting",
            self.steps,
            calls=tuple(self._watch.calls),
            flop_counts=tuple(self._flops),
            tf32=_tf32(),
            reason=self._doubt(),
        )

    def _doubt(self) -> str:
        missed = self._watch.missed
        if missed and self._watch.spent_s >= MOST_S:
            return f"recording stopped after {MOST_S:.0f} s, and {missed} calls are missing"
        return f"{missed} calls could not be recorded" if missed else ""

    def abandon(self) -> None:
        self._counter = None
        self._leave()


def _tf32() -> bool:
    """Return whether fp32 matmuls run in tf32, by torch's settings at the end of the pass."""
    precision = str(torch.get_float32_matmul_precision())
    return torch.cuda.is_initialized() and precision != "highest"
