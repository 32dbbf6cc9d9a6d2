"""Run one side of a judgement, the submission or the reference: `python -P -m …inside.seat`.

The seat has inputs and results only. It runs in windows between which the clerk stops it, so that
the contents of its inputs are unknown to it outside windows; results are read out of its memory
while it is stopped. What it says of its times is a claim.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from gpuperf.judge.inside.layout import Slots, put_together
from gpuperf.judge.inside.problem import Builder, load_builder
from gpuperf.judge.inside.sandbox import restrict
from gpuperf.judge.inside.serving import serve
from gpuperf.judge.protocol import Build, Done, Import, Imported, Place, Ready, ToSeat, Window
from gpuperf.measure.isolation import replaced_functions, watched_functions
from gpuperf.measure.result_tensors import overlaps_itself

# Bound before a submission is imported, which may replace the names.
_clock, _len, _type, _isinstance = time.perf_counter, len, type, isinstance
_Tensor, _address = torch.Tensor, torch.Tensor.data_ptr
_watched, _replaced = watched_functions, replaced_functions


class Seat:
    """Server of the clerk's requests to one side."""

    def __init__(self) -> None:
        self._functions = watched_functions()
        self._builder: Builder | None = None
        self._calls: list[Callable[[], Any]] = []
        self._results: list[Any] = []

    def answer(self, request: Any) -> Any:
        """Serve *request* and return the reply. Raises: what the code of the side raises."""
        if _isinstance(request, Window):
            return self._window(request)
        if _isinstance(request, Import):
            return self._import(request)
        assert _isinstance(request, Build)
        return self._build(request)

    def _import(self, request: Import) -> Imported:
        restrictions = restrict(request.isolation, request.scratch, request.memory)
        self._functions = _watched()
        self._builder = load_builder(request.task, request.case, request.submission, request.side)
        return Imported(restrictions)

    def _build(self, request: Build) -> Ready:
        assert self._builder is not None
        weights = {}
        if request.state.tensors:
            held = Slots.open(request.weights, request.state, 1)
            weights = put_together(request.state.skeleton, held.tensors(0))
        slots = Slots.open(request.slots, request.inputs, request.count)
        bind = self._builder(put_together(request.init, []), weights, request.seed)
        self._calls = [
            bind(put_together(request.inputs.skeleton, slots.tensors(slot)))
            for slot in range(request.count)
        ]
        return Ready()

    def _window(self, request: Window) -> Done:
        calls, results = self._calls, self._results
        results.clear()
        claims = []
        for slot in request.order:
            began = _clock()
            results.append(calls[slot]())
            claims.append(_clock() - began)
        places = tuple(_places(result) for result in results)
        return Done(request.number, tuple(claims), places, _replaced(self._functions))


def _places(result: Any) -> tuple[Place, ...]:
    """Return where the tensors of *result* lie."""
    if _isinstance(result, list | tuple) and result:
        return tuple(_place(item) for item in result)
    return (_place(result),)


def _place(tensor: Any) -> Place:
    if _type(tensor) is not _Tensor and _type(tensor) is not torch.nn.Parameter:
        kind = f"{_type(tensor).__module__}.{_type(tensor).__qualname__}"
        return Place(0, (), (), "", f"is a {kind}, not a torch.Tensor")
    if tensor.layout != torch.strided or tensor.device.type != "cpu":
        return Place(0, (), (), "", f"is on {tensor.device} with the layout {tensor.layout}")
    name = str(tensor.dtype).removeprefix("torch.")
    odd = "has several elements at one address" if overlaps_itself(tensor) else ""
    return Place(_address(tensor), tuple(tensor.shape), tuple(tensor.stride()), name, odd)


def main(arguments: list[str] | None = None) -> int:
    """Serve requests until the clerk ends."""
    return serve(Seat().answer, ToSeat, arguments)


if __name__ == "__main__":
    from gpuperf.judge.inside import seat  # under its own name, its functions are watched too

    sys.exit(seat.main())
