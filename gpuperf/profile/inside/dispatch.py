"""Which operators does a step call, with which tensors, and where does the host wait in it?"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpuperf.marks import COSTS
from gpuperf.model.aten import DTYPES, Call, Tensor
from gpuperf.model.cost import Cost
from gpuperf.model.program import ObservedCall

MOST_SEEN = 200_000  # calls of all steps
MOST_S = 20.0  # that the pass may spend on its own notes
LONGEST = 200  # characters of an argument
MOST_VALUES = 64  # of a list of numbers
PLAIN = (
    bool,
    int,
    float,
    complex,
    str,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)
FAILED: set[str] = set()  # operators whose registered cost is none
# Operators whose result the host must know before it goes on.
WAITS = {
    "aten::_local_scalar_dense": "item",
    "aten::item": "item",
    "aten::is_nonzero": "item",
    "aten::nonzero": "nonzero",
    "aten::equal": "equal",
    "aten::masked_select": "masked_select",
    "aten::_unique2": "unique",
    "aten::unique_dim": "unique",
}
COPIES = ("aten::_to_copy", "aten::copy_")
ENGINE = str(Path("torch", "autograd", "graph.py"))
OPTIMIZERS = f"{Path(torch.__file__).parent / 'optim'}{os.sep}"
CHECKPOINT = str(Path("torch", "utils", "checkpoint.py"))
OWN = tuple(
    f"{folder}{os.sep}" for folder in (Path(torch.__file__).parent, Path(__file__).parents[1])
)


class CallRecorder(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped there
    """Writes down every call while it is active; `missed` counts what could not be written down,
    and once it is `full` that is all. It is full after `MOST_SEEN` calls, or `MOST_S` seconds of
    its own. Whatever fails here is not the program's to bear."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self._process = os.getpid()
        self.calls: list[ObservedCall] = []
        self.missed = 0
        self.full = False
        self.spent_s = 0.0
        self.active = False
        self._storages: dict[int, int] = {}
        self._next = itertools.count(1)

    def __enter__(self) -> CallRecorder:
        super().__enter__()
        self.active = True
        return self

    def __exit__(self, *told: Any) -> None:
        self.active = False
        super().__exit__(*told)

    def forget(self) -> None:
        """Nobody watched for a while: what lies where something lay before may be another
        storage."""
        self._storages.clear()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """*func*, and a word on it."""
        named = dict(kwargs or {})
        if os.getpid() != self._process:  # a child that was forked in a step
            return func(*args, **named)
        began = time.perf_counter()
        before = None if self.full else self._before(func, args, named)
        called = time.perf_counter()
        found = func(*args, **named)
        returned = time.perf_counter()
        self._after(func, before, found)
        self.spent_s += called - began + time.perf_counter() - returned
        return found

    def _before(
        self, func: Any, args: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[list[Any], list[tuple[Tensor, ...]]] | None:
        """The arguments, and their tensors as they are before a call resizes any; None where they
        cannot be told."""
        try:
            inputs = _arguments(func, args, named)
            return inputs, [self._several(value) for value in inputs]
        except Exception:  # a tensor without a storage or a shape: sparse, nested, a stranger's
            return None

    def _after(
        self, func: Any, before: tuple[list[Any], list[tuple[Tensor, ...]]] | None, found: Any
    ) -> None:
        try:
            if _name(func).startswith("profiler::"):
                return
            if len(self.calls) >= MOST_SEEN or self.spent_s >= MOST_S:
                self.full = True
            elif before is not None:
                self._write(func, *before, found)
                return
            self.missed += 1
        except Exception:
            self.missed += 1

    def _write(
        self, func: Any, inputs: Sequence[Any], tensors: Sequence[tuple[Tensor, ...]], found: Any
    ) -> None:
        old = {tensor.storage for group in tensors for tensor in group}
        call = Call(
            _name(func),
            tuple(tensors),
            tuple("" if group else _text(v) for v, group in zip(inputs, tensors, strict=True)),
            self._several(found, old),
        )
        backward = torch._C._current_autograd_node() is not None
        waits = _waits(func, call.name, inputs, found)
        again = backward and _again()
        line, optimizer = _line()
        own = _registered(call)
        self.calls.append(ObservedCall(call, line, waits, backward, own, again, optimizer))

    def _several(self, value: Any, old: set[int] | None = None) -> tuple[Tensor, ...]:
        """The tensors in an argument; with *old* in a result, which lies in new storages but
        those."""
        if isinstance(value, torch.Tensor):
            return (self._tensor(value, old),)
        if isinstance(value, list | tuple):
            return tuple(self._tensor(v, old) for v in value if isinstance(v, torch.Tensor))
        return ()

    def _tensor(self, value: torch.Tensor, old: set[int] | None) -> Tensor:
        try:
            place = value.untyped_storage().data_ptr()
        except RuntimeError:  # it has none
            place = 0
        known = self._storages.get(place)
        if place and (known is None or (old is not None and known not in old)):
            known = self._storages[place] = next(self._next)
        dtype = str(value.dtype).removeprefix("torch.")
        strided = value.layout == torch.strided
        strides = tuple(value.stride()) if strided and not value.is_contiguous() else ()
        offset = value.storage_offset() if strided else None
        short = DTYPES.get(dtype, dtype)
        return Tensor(tuple(value.shape), short, strides, known or 0, offset)


class FlopCounter(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped there
    """Torch's own count of the FLOPs of all calls while it is active.

    By the formulas of `FlopCounterMode` but not by itself, which disturbs what it counts: of a
    `torch.cond` it returns the first branch whatever the predicate says, other operators of a
    higher order fail under it, and it hooks every module.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        from torch.utils.flop_counter import flop_registry  # imports Triton

        self._formulas = flop_registry
        self.count = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """*func*, or what it is made of, where there is no formula for it as it stands."""
        named = dict(kwargs or {})
        formula = self._formulas.get(getattr(func, "_overloadpacket", None))
        if formula is None:
            # Not by `decompose`, which prefers formulas in Python, whose results are others'.
            parts = torch._C.DispatchKey.CompositeImplicitAutograd
            own = isinstance(func, torch._ops.OpOverload) and func.namespace == "aten"
            if own and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), parts):
                with self:
                    return func._op_dk(parts, *args, **named)
            return func(*args, **named)
        found = func(*args, **named)
        try:
            self.count += int(formula(*args, **named, out_val=found))
        except Exception:  # a shape that it does not know
            return found
        return found


def _registered(call: Call) -> Cost | None:
    """What the program says that *call* costs; nothing where its formula fails on it."""
    own = COSTS.get(call.name)
    if own is None:
        return None
    try:
        return msgspec.convert(msgspec.to_builtins(own(call)), Cost)
    except Exception as error:
        if call.name not in FAILED:
            FAILED.add(call.name)
            print(f"gpuperf: the cost of {call.name} failed: {error!r}", file=sys.stderr)
        return None


def _arguments(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """All of them in the schema's order, defaults too."""
    schema = getattr(func, "_schema", None)
    if schema is None:  # a higher-order operator
        return [*args, *kwargs.values()]
    found = []
    for i, argument in enumerate(schema.arguments):
        own = args[i] if i < len(args) else kwargs.get(argument.name, argument.default_value)
        found.append(own)
    return found


def _name(func: Any) -> str:
    schema = getattr(func, "_schema", None)
    return str(schema.name if schema is not None else func)[:LONGEST]


def _text(value: Any) -> str:
    """*value* where that is a number, a word or a short list of them, else its type's name: the
    text of a storage prints each of its bytes."""
    if value is None:
        return ""
    if type(value) is str:
        return value[:LONGEST].encode(errors="replace").decode()
    if type(value) in (list, tuple, torch.Size) and len(value) <= MOST_VALUES:
        return str([_short_value(one) for one in value]).replace("'", "")[:LONGEST]
    return _short_value(value)


def _short_value(value: Any) -> str:
    if type(value) is int and value.bit_length() > 64:
        return "int"
    return str(value)[:LONGEST] if type(value) in PLAIN else type(value).__name__


def _waits(func: Any, name: str, inputs: Sequence[Any], found: Any) -> str:
    """What the host waits for in a call on a GPU."""
    tensors = [v for v in inputs if isinstance(v, torch.Tensor)]
    if name in COPIES and _from_pageable(tensors, found):
        return "copy from pageable memory"
    if not any(tensor.is_cuda for tensor in tensors):
        return ""
    if name in WAITS:
        return WAITS[name]
    if name in ("aten::index", "aten::index_put_", "aten::index_put"):
        many = [v for group in inputs if isinstance(group, list | tuple) for v in group]
        boolean = any(isinstance(v, torch.Tensor) and v.dtype == torch.bool for v in many)
        return "index by a mask" if boolean else ""
    to_host = isinstance(found, torch.Tensor) and not found.is_cuda
    if to_host and name in COPIES:
        names = [argument.name for argument in func._schema.arguments]
        free = dict(zip(names, inputs, strict=True)).get("non_blocking")
        return "" if free else "copy to the host"
    return ""


def _from_pageable(tensors: Sequence[torch.Tensor], found: Any) -> bool:
    """Whether a copy to a GPU reads memory that is not pinned: it returns once that is read,
    also with `non_blocking=True`."""
    if not isinstance(found, torch.Tensor) or not found.is_cuda:
        return False
    return any(tensor.device.type == "cpu" and not tensor.is_pinned() for tensor in tensors)


def _line() -> tuple[str, bool]:
    """`file:line` of the innermost frame that is neither torch's nor ours, and whether an optimizer
    of torch is further in."""
    frame = sys._getframe(2)
    optimizer = False
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith((*OWN, "<")):
            return f"{short_path(path)}:{frame.f_lineno}", optimizer
        optimizer = optimizer or path.startswith(OPTIMIZERS)
        frame = frame.f_back  # type: ignore[assignment]
    return "", optimizer


def _again() -> bool:
    """Whether a call in the backward pass is one of the forward pass, made again by
    `torch.utils.checkpoint`, and not one of a backward pass that this began."""
    frame = sys._getframe(2)
    while frame is not None:
        path = frame.f_code.co_filename
        if path.endswith(ENGINE):
            return False
        if path.endswith(CHECKPOINT):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


@cache
def short_path(path: str) -> str:
    """*path* as seen from the working folder, where it lies in that."""
    with contextlib.suppress(ValueError, OSError):
        path = str(Path(path).relative_to(Path.cwd()))
    return path.encode(errors="replace").decode()  # a file's name may be of any bytes
