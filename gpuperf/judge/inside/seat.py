"""Run one side of a judgement, the submission or the reference: `python -P -m …inside.seat`.

The seat has inputs and results only. It runs in windows between which the clerk stops it, so that
the contents of its inputs are unknown to it outside windows; results are read out of its memory
while it is stopped, or on a GPU copied after their inputs were withdrawn. What it says of its times
and of the device's work is a claim.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from gpuperf.judge.inside.device_side import DeviceSide
from gpuperf.judge.inside.layout import CPU, Slots, is_scattered, put_together
from gpuperf.judge.inside.problem import Builder, load_builder
from gpuperf.judge.inside.sandbox import restrict
from gpuperf.judge.inside.serving import serve
from gpuperf.judge.protocol import (
    IN_INPUT,
    Build,
    Collect,
    Count,
    Done,
    Fetch,
    Import,
    Imported,
    Look,
    Looked,
    Place,
    Ready,
    Recorded,
    ToSeat,
    Window,
)
from gpuperf.judge.task import Side
from gpuperf.measure.isolation import replaced_functions, watched_functions
from gpuperf.measure.result_tensors import overlaps_itself

# Bound before a submission is imported, which may replace the names.
_clock, _len, _type, _isinstance = time.perf_counter, len, type, isinstance
_Tensor, _address = torch.Tensor, torch.Tensor.data_ptr
_contiguous, _scattered = torch.Tensor.contiguous, is_scattered
_without_conjugate, _without_sign = torch.Tensor.resolve_conj, torch.Tensor.resolve_neg
_watched, _replaced = watched_functions, replaced_functions

FORGED = "the noted times of its calls"
# By so much two sums of the same times may differ. A submission that also overwrites the second sum
# is not noticed; it gains nothing, as the clerk's own clock gives the score.
NOTED_S = 1e-9


class Seat:
    """Server of the clerk's requests to one side."""

    def __init__(self) -> None:
        self._functions = watched_functions()
        self._builder: Builder | None = None
        self._calls: list[Callable[[], Any]] = []
        self._results: list[Any] = []
        self._gpu: DeviceSide | None = None
        self._side: Side = "reference"
        self._forged = ""

    def answer(self, request: Any) -> Any:
        """Serve *request* and return the reply. Raises: what the code of the side raises."""
        if _isinstance(request, Window):
            return self._window(request)
        if _isinstance(request, Look):
            return Looked(_replaced(self._functions) or self._forged)
        if _isinstance(request, Import):
            return self._import(request)
        if _isinstance(request, Build):
            return self._build(request)
        assert self._gpu is not None
        if _isinstance(request, Collect):
            return self._gpu.collect(request, self._results)
        if _isinstance(request, Fetch):
            return self._gpu.fetch(request)
        assert _isinstance(request, Count)
        return self._gpu.count(self._calls[request.slot], self._side)

    def _import(self, request: Import) -> Imported:
        device = torch.device(request.device)
        if device.type == "cuda":  # before the restrictions: the driver opens files
            self._gpu = DeviceSide(device)
        self._side = request.side
        restrictions = restrict(request.isolation, request.scratch, request.memory)
        self._functions = _watched()
        self._builder = load_builder(
            request.task, request.case, request.submission, request.side, device
        )
        return Imported(restrictions)

    def _build(self, request: Build) -> Ready:
        assert self._builder is not None
        weights = {}
        if request.state.tensors:
            held = Slots.open(request.weights, request.state, 1)
            weights = put_together(request.state.skeleton, held.tensors(0))
        if self._gpu is None:
            slots = Slots.open(request.slots, request.inputs, request.count, CPU)
        else:
            slots = self._gpu.open(request)
        bind = self._builder(put_together(request.init, []), weights, request.seed)
        self._calls = [
            bind(put_together(request.inputs.skeleton, slots.tensors(slot)))
            for slot in range(request.count)
        ]
        if request.views:
            self._calls = [_copying(call) for call in self._calls]
        return Ready()

    def _window(self, request: Window) -> Done:
        calls, results, gpu = self._calls, self._results, self._gpu
        results.clear()
        claims: list[float] = []
        claimed_s = 0.0
        recorded: Recorded | None = None

        def run() -> None:
            nonlocal claimed_s
            for slot in request.order:
                began = _clock()
                results.append(calls[slot]())
                took_s = _clock() - began
                claims.append(took_s)
                claimed_s += took_s

        began = _clock()
        if gpu is not None and request.recorded:
            recorded = gpu.record(run)
        else:
            run()
            if gpu is not None:
                gpu.wait()
        if results and _resolve(results):
            if gpu is not None:
                gpu.wait()
            claims[-1] = max(claims[-1], _clock() - began - sum(claims[:-1]))
            claimed_s = sum(claims)
        if not abs(claimed_s - sum(claims)) <= NOTED_S:
            self._forged = FORGED
        if gpu is not None and claims:  # calls return before the device has ended them
            claims[-1] += max(0.0, _clock() - began - sum(claims))
        places = tuple(self._places(result) for result in results)
        return Done(request.number, tuple(claims), places, recorded)

    def _places(self, result: Any) -> tuple[Place, ...]:
        """Return where the tensors of *result* lie."""
        if _isinstance(result, list | tuple) and result:
            return tuple(_place(item, self._gpu) for item in result)
        return (_place(result, self._gpu),)


def _resolve(results: list[Any]) -> bool:
    """Conjugate and negate the tensors of *results* that would be when they are read; return
    whether there are such."""
    changed = False

    def resolved(item: Any) -> Any:
        nonlocal changed
        if _type(item) is not _Tensor or not (item.is_conj() or item.is_neg()):
            return item
        changed = True
        return _without_sign(_without_conjugate(item))

    for index, result in enumerate(results):
        several = _isinstance(result, list | tuple)
        results[index] = [resolved(item) for item in result] if several else resolved(result)
    return changed


def _copying(call: Callable[[], Any]) -> Callable[[], Any]:
    """Return *call* with its results in dense memory, also those that are views."""

    def copied(result: Any) -> Any:
        if _type(result) is not _Tensor or result.layout != torch.strided:
            return result
        dense = _without_sign(_without_conjugate(result))
        return _contiguous(dense) if _scattered(dense) else dense

    def run() -> Any:
        result = call()
        if _isinstance(result, list | tuple):
            return [copied(item) for item in result]
        return copied(result)

    return run


def _place(tensor: Any, gpu: DeviceSide | None) -> Place:
    if _type(tensor) is not _Tensor and _type(tensor) is not torch.nn.Parameter:
        kind = f"{_type(tensor).__module__}.{_type(tensor).__qualname__}"
        return Place(0, (), (), "", f"is a {kind}, not a torch.Tensor")
    wanted = "cpu" if gpu is None else "cuda"
    if tensor.layout != torch.strided or tensor.device.type != wanted:
        return Place(0, (), (), "", f"is on {tensor.device} with the layout {tensor.layout}")
    name, address = str(tensor.dtype).removeprefix("torch."), _address(tensor)
    odd = "has several elements at one address" if overlaps_itself(tensor) else ""
    if gpu is not None and not odd and gpu.has(address):
        odd = IN_INPUT
    return Place(address, tuple(tensor.shape), tuple(tensor.stride()), name, odd)


def main(arguments: list[str] | None = None) -> int:
    """Serve requests until the clerk ends."""
    return serve(Seat().answer, ToSeat, arguments)


if __name__ == "__main__":
    from gpuperf.judge.inside import seat  # under its own name, its functions are watched too

    sys.exit(seat.main())
